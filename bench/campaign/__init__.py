# SPDX-License-Identifier: Apache-2.0
"""Campaigns: what is too long for CI. Thousands of verdicts, hundreds of kills, long fuzzing, large runs."""
