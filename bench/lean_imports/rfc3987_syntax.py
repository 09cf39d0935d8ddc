# SPDX-License-Identifier: Apache-2.0
"""First on PYTHONPATH, it stands for the package of this name, which a tool of `make smoke` brings along.

jsonschema takes it where it finds it, and Ray imports jsonschema in each of its processes: three quarters of the 1.3 s
that this takes go into the package's grammar. Users of `assay-llm[ray]` do not have it.
"""

raise ImportError("no checks of IRIs here")
