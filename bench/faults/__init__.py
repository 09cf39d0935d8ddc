# SPDX-License-Identifier: Apache-2.0
"""The fault laboratory: models with planted faults, healthy pairs, and how often the first wrong operator is named."""
