# SPDX-License-Identifier: Apache-2.0
"""Operator dump (``dump_op_switch=on``): every operator that is launched outside of compiled graphs.

    {path}/worldsize{W}_global_rank{R}/{time}/{device}/{type}.{name}.{number}.0.{time us}

Operators are numbered from 1 as they are launched and named as those of a graph: ``Add``, ``Add_1``. Views launch
nothing and leave no file. Operators that a compiled graph runs are the graph's. Only the thread that made the backend
is seen: a dispatch mode of torch belongs to a thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Optional

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from assay.torch.graph._files import RunFolder, refusal, steps_taken
from assay.torch.graph._interpreter import Runner, Tensors, tensors_of
from assay.torch.graph._log import logger, tell
from assay.torch.graph._names import ge_type, pack_name
from assay.torch.graph._request import DumpRequest

__all__ = ["OperatorDump", "hidden", "install"]


class _Local(threading.local):
    inside_graph = 0


_local = _Local()


class _HiddenRunner:
    """A runner whose operators belong to its graph."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.graph = runner.graph

    def plain(self, args: list[Any]) -> Any:
        with _inside_graph():
            return self._runner.plain(args)

    def dumped(self, args: list[Any], step: int) -> Any:
        with _inside_graph():
            return self._runner.dumped(args, step)


def hidden(runner: Runner) -> Runner:
    """The same runner, with its operators out of sight of the operator dump."""
    return _HiddenRunner(runner)


@contextmanager
def _inside_graph() -> Iterator[None]:
    _local.inside_graph += 1
    try:
        yield
    finally:
        _local.inside_graph -= 1


class OperatorDump(TorchDispatchMode):
    """Sees every operator of its thread and stores its operands. Nothing it does can fail the host."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True  # torch.compile goes on compiling while this mode is active

    def __init__(self, run: RunFolder, request: DumpRequest) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._run = run
        self._request = request
        self._statistics = request.statistics if request.data == "stats" else None
        self._counts: dict[str, int] = {}
        self._number = 0
        self._missed: set[str] = set()
        self._installed = False
        everywhere = [entry for entry in request.entries if entry.model_name is None]
        self._left_out_types = [entry.type_blacklist for entry in everywhere if entry.type_blacklist]
        self._left_out_names = [entry.name_blacklist for entry in everywhere if entry.name_blacklist]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Optional[dict[str, Any]] = None
    ) -> Any:
        kwargs = kwargs or {}
        if not self._wants(func):
            return func(*args, **kwargs)
        inputs: Tensors = []
        if self._request.mode != "output":
            inputs = tensors_of((args, kwargs))
            if func._schema.is_mutable:
                inputs = [None if tensor is None or refusal(tensor) else tensor.detach().clone() for tensor in inputs]
        result = func(*args, **kwargs)
        outputs = tensors_of(result) if self._request.mode != "input" else []
        self._write(func, kwargs.get("alpha", 1), inputs, outputs)
        return result

    def remove(self) -> None:
        """Ends the dump. The mode itself leaves the stack only when it is on top of it."""
        from torch.utils._python_dispatch import _get_current_dispatch_mode

        self._run = _Closed  # type: ignore[assignment]
        if self._installed and _get_current_dispatch_mode() is self:  # type: ignore[no-untyped-call]
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self._installed = False

    def put_in_place(self) -> None:
        self.__enter__()  # type: ignore[no-untyped-call]
        self._installed = True

    def _wants(self, func: Any) -> bool:
        if _local.inside_graph or not self._run.alive or getattr(func, "is_view", False):
            return False
        return getattr(func, "_schema", None) is not None and (steps_taken() or 0) in self._request.steps

    def _write(self, func: Any, alpha: Any, inputs: Tensors, outputs: Tensors) -> None:
        operands = [tensor for tensor in (*inputs, *outputs) if tensor is not None]
        if not operands:
            return
        namespace, short, full = pack_name(func)
        reason = next((why for why in map(refusal, operands) if why), "")
        if reason:
            self._miss(full, reason)
            return
        kind = ge_type(short, namespace, alpha)
        count = self._counts.get(kind, 0)
        self._counts[kind] = count + 1
        self._number += 1
        name = kind if count == 0 else f"{kind}_{count}"
        device = next((str(t.device.index) for t in operands if t.device.index is not None), "0")
        left_out = self._left_out(kind, name)
        try:
            self._run.writer.write_operator(
                os.path.join(self._run.root, device), kind, name, self._number, 0,
                [_operand("input", index, tensor, left_out) for index, tensor in enumerate(inputs)],
                [_operand("output", index, tensor, left_out) for index, tensor in enumerate(outputs)],
                left_out=sorted(left_out), statistics=self._statistics,
            )  # fmt: skip
        except (ValueError, TypeError, RuntimeError, OSError, MemoryError) as error:
            self._miss(full, f"{type(error).__name__}: {error}")

    def _left_out(self, kind: str, name: str) -> set[tuple[str, int]]:
        found: set[tuple[str, int]] = set()
        for blacklist in self._left_out_types:
            found |= blacklist.get(kind, frozenset())
        for blacklist in self._left_out_names:
            found |= blacklist.get(name, frozenset())
        return found

    def _miss(self, operator: str, reason: str) -> None:
        if operator not in self._missed:  # once an operator: the log is no table
            self._missed.add(operator)
            logger.error("operator dump: %s is not stored: %s", operator, reason)


class _Closed:
    alive = False


def _operand(
    side: str, index: int, tensor: Optional[torch.Tensor], left_out: set[tuple[str, int]]
) -> Optional[torch.Tensor]:
    if tensor is None or (side, index) in left_out:
        return None
    return tensor.detach() if tensor.device.type == "cpu" else tensor.detach().cpu()


def install(run: RunFolder, request: DumpRequest) -> Optional[OperatorDump]:
    """Begins the operator dump in this thread.

    Returns:
        What :meth:`OperatorDump.remove` ends it with; None, with a warning, inside another dispatch mode: when that
        one ended it would take ours from the stack.
    """
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    if _get_current_dispatch_mode_stack():  # type: ignore[no-untyped-call]
        tell("dump_op_switch has no effect: the backend was made inside another dispatch mode.")
        return None
    mode = OperatorDump(run, request)
    mode.put_in_place()
    return mode
