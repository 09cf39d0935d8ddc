# SPDX-License-Identifier: Apache-2.0
"""Pytest in a process that compiles every class of modules: ``python compiled_suite.py BACKEND pytest-arguments...``.

The backend is one of torch.compile: torch's own, or ours with its options in ASSAY_GRAPH_CONFIG.
"""

from __future__ import annotations

import os
import sys

sys.path[0] = os.getcwd()  # what `python -m pytest` has there; our neighbours are no modules of the suite

import pytest  # noqa: E402
import torch  # noqa: E402


def compile_modules(backend: str) -> None:
    """The forward() of each class of modules, of torch and of whom comes later, is what torch.compile makes of it.

    Not ``module.compile()``: classes with a ``__call__`` of their own do not ask for it.
    """

    def compile_class(cls: type) -> None:
        if "forward" in vars(cls) and not issubclass(cls, (torch.fx.GraphModule, torch.jit.ScriptModule)):
            cls.forward = torch.compile(vars(cls)["forward"], backend=backend)  # type: ignore[attr-defined]

    known = list(torch.nn.Module.__subclasses__())
    for cls in known:  # which grows
        compile_class(cls)
        known += (below for below in cls.__subclasses__() if below not in known)
    torch.nn.Module.__init_subclass__ = classmethod(lambda cls, **_: compile_class(cls))  # type: ignore[assignment]


if __name__ == "__main__":
    compile_modules(sys.argv[1])
    sys.exit(pytest.main(sys.argv[2:]))
