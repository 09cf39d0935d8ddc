# SPDX-License-Identifier: Apache-2.0
"""Reference operators: reductions, sorting, sampling."""

from __future__ import annotations

__all__: list[str] = []
