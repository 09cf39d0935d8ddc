# SPDX-License-Identifier: Apache-2.0
"""The commands msit and ait, and what the old package names share."""
