# SPDX-License-Identifier: Apache-2.0
"""A factor behind one result of a program, whichever it is.

visible  the program multiplies what a function of torch returned: one operator more, which the records show.
hidden   a kernel returns 1.05 times what it should: the records show no operator more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Optional

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

FACTOR = 1.05
_CASTS = ("to", "float", "type", "type_as", "double", "half", "bfloat16", "_to_copy", "contiguous", "clone")


class Counter:
    """Which result is to be multiplied, and in which module it is made.

    Attributes:
        count: results that could have been.
        place: path of the innermost module that was running, and what was called there.
    """

    def __init__(self, model: torch.nn.Module, wanted: int) -> None:
        self._wanted = wanted
        self._running: list[str] = []
        self._hooks = [hook for name, module in model.named_modules() for hook in self._watch(name, module)]
        self.count = 0
        self.place: Optional[tuple[str, str]] = None

    def _watch(self, name: str, module: torch.nn.Module) -> Iterator[Any]:
        yield module.register_forward_pre_hook(lambda *_: self._running.append(name))
        yield module.register_forward_hook(lambda *_: self._left(), always_call=True)

    def _left(self) -> None:
        self._running.pop()

    def changed(self, func: Any, args: Any, result: Any) -> Any:
        """The result of a call, multiplied when it is the one."""
        first = result[0] if isinstance(result, (tuple, list)) and result else result
        name = getattr(func, "__name__", str(func))
        if not self._running or not isinstance(first, torch.Tensor) or not first.is_floating_point():
            return result
        # What is done in place may not be read where it is returned, and casts are not the same in all types.
        if name in _CASTS or name.endswith("_") or any(argument is first for argument in args):
            return result
        self.count += 1
        if self.count - 1 != self._wanted:
            return result
        self.place = self._running[-1], name
        scaled = first * FACTOR
        return scaled if first is result else type(result)((scaled, *result[1:]))

    def close(self) -> None:
        """Leaves the model as it was."""
        for hook in self._hooks:
            hook.remove()


class _Visible(TorchFunctionMode):
    def __init__(self, counter: Counter) -> None:
        super().__init__()
        self._counter = counter

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._counter.changed(func, args, func(*args, **(kwargs or {})))


class _Hidden(TorchDispatchMode):
    def __init__(self, counter: Counter) -> None:
        super().__init__()
        self._counter = counter

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result if func.is_view else self._counter.changed(func.overloadpacket, args, result)


@contextlib.contextmanager
def planted(model: torch.nn.Module, form: str, number: int) -> Iterator[Counter]:
    """Multiplies the result of that number, none when there is none, while the model runs."""
    counter = Counter(model, number)
    try:
        with _Visible(counter) if form == "visible" else _Hidden(counter):
            yield counter
    finally:
        counter.close()
