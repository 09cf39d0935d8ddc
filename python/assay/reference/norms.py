# SPDX-License-Identifier: Apache-2.0
"""Reference operators: norms and rotary embeddings."""

from __future__ import annotations

__all__: list[str] = []
