# SPDX-License-Identifier: Apache-2.0
"""Reference operators: attention."""

from __future__ import annotations

__all__: list[str] = []
