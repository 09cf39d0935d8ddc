# SPDX-License-Identifier: Apache-2.0
"""What all reference operators take."""

from __future__ import annotations

from typing import Any

Array = Any  # NumPy arrays, torch tensors, objects with __dlpack__, nested lists
