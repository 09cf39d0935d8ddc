# SPDX-License-Identifier: Apache-2.0
"""Counted work: what no neighbour on the machine changes."""
