# SPDX-License-Identifier: Apache-2.0
"""Twins: small random checkpoints of an architecture, shaped as trained ones are."""
