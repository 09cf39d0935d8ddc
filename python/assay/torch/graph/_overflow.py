# SPDX-License-Identifier: Apache-2.0
"""Overflow dump (``dump_debug=on``): which operator made the first Inf or NaN, and which one saturated.

After every operator its floating point results are looked at. A report is made for

    Inf or NaN   in a result while all operands are finite; NaN also when operands have Inf and none has NaN
    saturation   a float16 or bfloat16 result of the largest finite magnitude while no operand reaches it

so that a value is reported where it is made and not in everything computed from it. Each report leaves the operands
(an ordinary dump file), a debug file ``Opdebug.Node_OpDebug...`` and an entry of ``overflow.json`` in the step's
folder. Meaning of the status and the file: docs/graph/overflow.md.
"""

from __future__ import annotations

import json
import math
import os
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from torch import fx

from assay.torch.graph._files import GraphFolder
from assay.torch.graph._interpreter import OperatorObserver, Tensors
from assay.torch.graph._log import logger
from assay.torch.graph._model import Graph, Operator
from assay.torch.graph._request import DumpRequest, OperandMask, Plan

__all__ = ["OverflowObserver", "Report", "debug_payload", "find_overflow", "run_time_dtype"]

STATUS_FLOAT = 0x20  # an arithmetic result left the range, or is no number
STATUS_NARROWING = 0x100  # a conversion to a smaller type left its range

_MAGIC = 0x5A5A5A5A
_PAYLOAD_BYTES = 2048

# Numbers of the run time for the data types, which are not those of the files' headers.
_RUN_TIME_DTYPES = {
    torch.float32: 0,
    torch.float16: 1,
    torch.int8: 2,
    torch.int32: 3,
    torch.uint8: 4,
    torch.int16: 6,
    torch.int64: 9,
    torch.float64: 11,
    torch.bool: 12,
    torch.complex64: 16,
    torch.complex128: 17,
    torch.bfloat16: 27,
}
_UNDEFINED = 28

# Their results are memory as it was found.
_UNINITIALISED = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"})
_SATURATING = frozenset({torch.float16, torch.bfloat16})


def run_time_dtype(dtype: torch.dtype) -> int:
    """Number of a dtype in the run time's order (``original_op.data_type`` of a dump file); 28: it has none."""
    return _RUN_TIME_DTYPES.get(dtype, _UNDEFINED)


@dataclass(frozen=True)
class _Extent:
    """What one tensor holds. ``low`` and ``high`` are NaN when it has a NaN, and 0 when it is empty."""

    low: float
    high: float

    @property
    def has_nan(self) -> bool:
        return math.isnan(self.low)

    @property
    def has_inf(self) -> bool:
        return math.isinf(self.low) or math.isinf(self.high)

    @property
    def magnitude(self) -> float:
        return max(abs(self.low), abs(self.high))


@dataclass(frozen=True)
class Report:
    """One overflow.

    Attributes:
        kind: "nan", "inf" or "saturation".
        status: bits as in a debug file.
        output: index of the first result that has it.
    """

    kind: str
    status: int
    output: int


def find_overflow(operator: Operator, inputs: Tensors, outputs: Tensors) -> Optional[Report]:
    """Says whether `operator` made an overflow of its operands; None when it did not.

    One pass over every floating point output, in its own dtype; operands are read only when an output is suspicious.
    Operators without tensor operands (a mask filled with -inf) and uninitialised memory are never reported.
    """
    if operator.type in ("Data", "Const", "NetOutput") or _target_name(operator) in _UNINITIALISED:
        return None
    extents = [(index, tensor, _extent(tensor)) for index, tensor in enumerate(outputs) if tensor is not None]
    suspicious = [
        (index, tensor, extent)
        for index, tensor, extent in extents
        if extent is not None and (extent.has_nan or extent.has_inf or _is_saturated(extent, tensor.dtype))
    ]
    operands = [tensor for tensor in inputs if tensor is not None]
    if not suspicious or not operands:
        return None
    ranges = [extent for tensor in operands if (extent := _extent(tensor)) is not None]
    numbers = [float(number) for number in _numbers(operator)]
    nan_before = any(extent.has_nan for extent in ranges) or any(math.isnan(number) for number in numbers)
    inf_before = any(extent.has_inf for extent in ranges) or any(math.isinf(number) for number in numbers)
    reach = max([extent.magnitude for extent in ranges if not extent.has_nan] + [abs(n) for n in numbers], default=0.0)
    for index, tensor, extent in suspicious:
        narrowing = STATUS_NARROWING if _narrows(operands, tensor.dtype) else 0
        if extent.has_nan and not nan_before:
            return Report("nan", STATUS_FLOAT | narrowing, index)
        if extent.has_inf and not inf_before and not nan_before:
            return Report("inf", STATUS_FLOAT | narrowing, index)
        if not extent.has_nan and not extent.has_inf and not nan_before:
            # A narrowing conversion of a larger value is an overflow; a copy of the largest one is not.
            limit = torch.finfo(tensor.dtype).max
            if reach < limit or (narrowing and limit < reach < math.inf):
                return Report("saturation", narrowing or STATUS_FLOAT, index)
    return None


def debug_payload(graph: int, task: int, status: int) -> bytes:
    """The 2048 bytes of a debug file: new form, version 0, one block of kind AI Core.

    Args:
        graph: number of the graph, as model id.
        task: position of the operator in its graph, as task id; the stream is 0.
        status: bits of :class:`Report`.
    """
    fields = (graph, 0, task, 0, 0, 0, 0, 0, 0, 0, status)  # model stream task type context thread pc para core block
    block = struct.pack("<11Q", *fields)
    head = struct.pack("<6I", _MAGIC, 0, 1, 0, 0, len(block))  # magic version | valid acc_type reserved data_len
    return (head + block).ljust(_PAYLOAD_BYTES, b"\0")


@dataclass
class _StepState:
    number: int = 0
    reports: list[dict[str, Any]] = field(default_factory=list)


class _Local(threading.local):
    def __init__(self) -> None:
        self.step = _StepState()


class OverflowObserver(OperatorObserver):
    """Looks at the results of every operator of one graph. The first overflow is logged by name.

    On a device every operator is waited for: this is a search, not a measurement.
    """

    def __init__(self, graph: Graph, plan: Plan, folder: GraphFolder, request: DumpRequest) -> None:
        self._folder = folder
        self._graph = graph
        self._local = _Local()
        self._logged = False
        self._count = 0

    def begin_step(self, step: int) -> None:
        self._local.step = _StepState(step)

    def copies_inputs(self, operator: Operator) -> bool:
        return True

    def after(self, operator: Operator, inputs: Tensors, outputs: Tensors) -> None:
        try:
            with torch.no_grad():
                report = find_overflow(operator, inputs, outputs)
        except (RuntimeError, NotImplementedError, TypeError) as error:  # a dtype or layout without this operation
            self._folder.entry.miss(operator.name, f"not checked for overflow: {error}")
            return
        if report is not None:
            self._write(operator, inputs, outputs, report)

    def end_of_step(self) -> None:
        state = self._local.step
        if state.reports and self._folder.run.alive:
            path = os.path.join(self._folder.step_path(state.number), "overflow.json")
            document = {"graph": self._graph.name, "step": state.number, "reports": state.reports}
            self._folder.run.writer.write_bytes(path, (json.dumps(document, indent=1) + "\n").encode())
        self._local.step = _StepState()
        self._folder.end_of_step()

    def _write(self, operator: Operator, inputs: Tensors, outputs: Tensors, report: Report) -> None:
        state = self._local.step
        folder = self._folder
        task = folder.task_id(operator)
        self._count += 1
        if not self._logged:
            self._logged = True
            where = f" ({operator.source})" if operator.source else ""
            logger.error(
                "overflow: step %d, %s: the first operator with %s of sound operands is %s (%s)%s",
                state.number, self._graph.name, _WORDS[report.kind], operator.name, operator.type, where,
            )  # fmt: skip
        folder.write_operator(operator, inputs, outputs, state.number, OperandMask(True, True))
        tensor = outputs[report.output]
        assert tensor is not None
        state.reports.append(_as_json(folder.entry.graph, task, operator, report))
        if not folder.run.alive:
            return
        payload = torch.frombuffer(
            bytearray(debug_payload(folder.entry.graph, task, report.status)), dtype=torch.uint8
        )  # fmt: skip
        try:
            folder.run.writer.write_operator(
                folder.step_path(state.number), "Opdebug", "Node_OpDebug", self._count, 0, [], [payload],
                origins=[(operator.name, report.output, run_time_dtype(tensor.dtype))],
            )  # fmt: skip
        except (ValueError, TypeError, RuntimeError, OSError, MemoryError) as error:
            folder.entry.miss(operator.name, f"debug file: {error}")


_WORDS = {"nan": "NaN", "inf": "Inf", "saturation": "a saturated value"}


def _as_json(graph: int, task: int, operator: Operator, report: Report) -> dict[str, Any]:
    return {
        "operator": operator.name,
        "type": operator.type,
        "kind": report.kind,
        "output": report.output,
        "source": operator.source,
        "magic": f"{_MAGIC:#x}",
        "version": 0,
        "acc_list": [
            {
                "acc_type": "AIC",
                "model_id": graph,
                "stream_id": 0,
                "task_id": task,
                "task_type": 0,
                "context_id": 0,
                "thread_id": 0,
                "pc_start": "0x0",
                "para_base": "0x0",
                "core_id": 0,
                "block_id": 0,
                "status": f"{report.status:#x}",
            }
        ],
    }


def _extent(tensor: torch.Tensor) -> Optional[_Extent]:
    """Smallest and largest value; None for types that have neither Inf nor NaN."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if not tensor.is_floating_point():
        return None
    if tensor.numel() == 0:
        return _Extent(0.0, 0.0)
    if tensor.dtype.itemsize == 1:
        tensor = tensor.to(torch.float32)  # aminmax does not know the 8-bit types
    low, high = torch.aminmax(tensor.detach())
    return _Extent(float(low), float(high))


def _is_saturated(extent: _Extent, dtype: torch.dtype) -> bool:
    return dtype in _SATURATING and extent.magnitude == torch.finfo(dtype).max


def _narrows(operands: list[torch.Tensor], result: torch.dtype) -> bool:
    """Whether an operator with one operand changes its type to one of smaller range."""
    if len(operands) != 1 or operands[0].dtype == result or not result.is_floating_point:
        return False
    source = operands[0].dtype
    if source.is_floating_point:
        return torch.finfo(source).max > torch.finfo(result).max
    return not source.is_complex and source != torch.bool and torch.iinfo(source).max > torch.finfo(result).max


def _node_of(operator: Operator) -> Optional[fx.Node]:
    return operator.key if isinstance(operator.key, fx.Node) else None


def _target_name(operator: Operator) -> str:
    node = _node_of(operator)
    packet = getattr(node.target, "overloadpacket", node.target) if node is not None else None
    return str(getattr(packet, "__name__", packet))


def _numbers(operator: Operator) -> Iterator[float]:
    """Numbers among the arguments, which may be infinite on purpose: ``masked_fill(x, mask, -inf)``."""
    node = _node_of(operator)
    if node is None:
        return
    for value in (*node.args, *node.kwargs.values()):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            try:
                yield float(value)
            except OverflowError:
                yield math.inf
