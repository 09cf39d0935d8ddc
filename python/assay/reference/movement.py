# SPDX-License-Identifier: Apache-2.0
"""Reference operators: moves of data and caches."""

from __future__ import annotations

__all__: list[str] = []
