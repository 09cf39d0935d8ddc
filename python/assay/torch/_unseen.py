# SPDX-License-Identifier: Apache-2.0
"""Work of ours on a program's thread that its own modes are not to see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import _disable_current_modes

__all__ = ["unseen"]


@contextmanager
def unseen() -> Iterator[None]:
    """No ``TorchFunctionMode`` and no ``TorchDispatchMode`` of the program is asked inside the block."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield
