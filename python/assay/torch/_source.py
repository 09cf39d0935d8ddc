# SPDX-License-Identifier: Apache-2.0
"""Where the Python code of a module stands: ``transformers/models/llama/modeling_llama.py:312``."""

from __future__ import annotations

import inspect
import re
from typing import Any, Optional

import torch

from assay._manifest import printable

__all__ = ["ForwardSources"]

# What stands in front of an installed package's own path.
_PACKAGES = re.compile(r"^.*[/\\](?:site|dist)-packages[/\\]")


class ForwardSources:
    """File and line of the ``forward`` of modules, looked up once a class.

    Not longer than for one capture: a program may replace the method of a class at any time.
    """

    def __init__(self) -> None:
        self._of_class: dict[type, Optional[str]] = {}

    def of(self, module: torch.nn.Module) -> Optional[str]:
        """Returns ``"FILE:LINE"`` of the ``forward`` that the module's call runs, of a decorated one that of the
        function inside; None where it is no Python code, or only torch's own that raises."""
        own = module.__dict__.get("forward")  # a program has given this one module another method
        if own is not None:
            return _place_of(own)
        cls = type(module)
        if cls not in self._of_class:
            self._of_class[cls] = _place_of(getattr(cls, "forward", None))
        return self._of_class[cls]


def _place_of(forward: Any) -> Optional[str]:
    if forward is torch.nn.Module.forward:
        return None
    try:
        # A bound method hands its function's code on.
        code = inspect.unwrap(forward).__code__
        return printable(f"{_PACKAGES.sub('', code.co_filename)}:{code.co_firstlineno:d}")
    except Exception:  # whatever a program calls its forward: a capture works without this line
        return None
