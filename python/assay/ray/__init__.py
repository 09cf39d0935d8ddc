# SPDX-License-Identifier: Apache-2.0
"""Commands of assay on a Ray cluster: ``assay compare GOLDEN MINE --ray`` and the like. See docs/scale.md."""
