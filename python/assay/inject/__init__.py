# SPDX-License-Identifier: Apache-2.0
"""What ``assay dump -- python run.py`` puts into a script that knows nothing of assay. docs/design/inject.md"""
