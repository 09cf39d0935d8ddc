# SPDX-License-Identifier: Apache-2.0
"""Reference operators: matrix products and sums over ranks."""

from __future__ import annotations

__all__: list[str] = []
