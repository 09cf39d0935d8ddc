# SPDX-License-Identifier: Apache-2.0
"""Reference operators: activations and element-wise arithmetic."""

from __future__ import annotations

__all__: list[str] = []
