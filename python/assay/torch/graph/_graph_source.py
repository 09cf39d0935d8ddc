# SPDX-License-Identifier: Apache-2.0
"""A compiled graph as Python source that would build it. Importing this module does not import torch."""

from __future__ import annotations

import math
import re
from typing import Optional

import numpy as np

from assay.torch.graph._model import Graph, Operator, TensorDesc
from assay.torch.graph._proto_text import escape, is_control, literal

__all__ = ["write_py"]

# The numbers that the engine's C++ and ge.Const(dtype=...) have for the same names; the proto's are others.
_RUN_TIME_NUMBERS = {
    "DT_FLOAT": 0,
    "DT_FLOAT16": 1,
    "DT_INT8": 2,
    "DT_INT32": 3,
    "DT_UINT8": 4,
    "DT_INT16": 6,
    "DT_UINT16": 7,
    "DT_UINT32": 8,
    "DT_INT64": 9,
    "DT_UINT64": 10,
    "DT_DOUBLE": 11,
    "DT_BOOL": 12,
    "DT_STRING": 13,
    "DT_DUAL_SUB_INT8": 14,
    "DT_DUAL_SUB_UINT8": 15,
    "DT_COMPLEX64": 16,
    "DT_COMPLEX128": 17,
    "DT_QINT8": 18,
    "DT_QINT16": 19,
    "DT_QINT32": 20,
    "DT_QUINT8": 21,
    "DT_QUINT16": 22,
    "DT_RESOURCE": 23,
    "DT_STRING_REF": 24,
    "DT_DUAL": 25,
    "DT_VARIANT": 26,
    "DT_BF16": 27,
    "DT_UNDEFINED": 28,
    "DT_INT4": 29,
    "DT_UINT1": 30,
    "DT_INT2": 31,
    "DT_UINT2": 32,
    "DT_COMPLEX32": 33,
    "DT_HIFLOAT8": 34,
    "DT_FLOAT8_E5M2": 35,
    "DT_FLOAT8_E4M3FN": 36,
    "DT_FLOAT8_E8M0": 37,
    "DT_FLOAT6_E3M2": 38,
    "DT_FLOAT6_E2M3": 39,
    "DT_FLOAT4_E2M1": 40,
    "DT_FLOAT4_E1M2": 41,
}


class _Source:
    """Python source that would build the graph: one line an operator."""

    def __init__(self, graph: Graph) -> None:
        self._by_name = graph.by_name()
        self._lines: list[str] = []
        self._place = ""  # the source line last written
        used = {edge for operator in graph for edge in operator.inputs}
        for operator in graph:
            if operator.type == "Const" and self._scalar(operator) is not None and f"{operator.name}:0" in used:
                continue  # stands where it is used
            self._operator(operator)

    def take(self) -> str:
        return "\n".join(self._lines) + "\n" if self._lines else ""

    def _operator(self, operator: Operator) -> None:
        if operator.source and operator.source != self._place:
            self._lines.append("# " + " ".join(operator.source.split()))
            self._place = operator.source
        if operator.fx_line:
            self._lines.append("## FX Code: " + " ".join(operator.fx_line.split()))
        results = [f"{_variable(operator.name)}_{index}" for index in range(len(operator.output_desc))]
        self._lines.append(f"{', '.join(results) or '_'} = ge.{_variable(operator.type)}({self._arguments(operator)})")

    def _arguments(self, operator: Operator) -> str:
        inputs = [self._value(edge) for edge in operator.inputs if not is_control(edge)]
        waits = [self._value(edge[:-3] + ":0") for edge in operator.inputs if is_control(edge)]
        dependencies = f"dependencies=[{', '.join(waits)}]"
        if operator.type == "NetOutput":
            return f"[{', '.join(inputs)}], {dependencies}"
        parts = inputs
        desc = operator.output_desc[0] if operator.output_desc else TensorDesc()
        attributes = {key: value for key, value in operator.attributes.items() if not key.startswith("_")}
        if operator.type == "Data":
            parts.append(f"index={attributes.pop('index', 0)!r}")
            parts += [f"dtype={_run_time(desc)}", f"shape={desc.shape if desc.shape is not None else []}"]
            parts.append(f"placement={literal(attributes.pop('placement', 'CPU'))}")
        if operator.type == "Const":
            parts.append(literal(attributes.pop("value", None)))
            parts.append(f"dtype={_run_time(desc)}")
        parts += [f"{_variable(key)}={literal(attributes[key])}" for key in sorted(attributes)]
        if waits:
            parts.append(dependencies)
        return ", ".join([*parts, f'node_name="{escape(operator.name)}"'])

    def _value(self, edge: str) -> str:
        if not edge:
            return "None"
        producer, _, index = edge.rpartition(":")
        operator = self._by_name.get(producer)
        if operator is not None and operator.type == "Const":
            scalar = self._scalar(operator)
            if scalar is not None:
                return f"ge.Const({scalar}, dtype={_run_time(operator.output_desc[0])})"
        return f"{_variable(producer)}_{index}"

    @staticmethod
    def _scalar(operator: Operator) -> Optional[str]:
        value = operator.attributes.get("value")
        if not isinstance(value, np.ndarray) or value.ndim != 0 or not operator.output_desc:
            return None
        item = value.item()
        # 3.0 is 3, as the program has it.
        whole = isinstance(item, float) and math.isfinite(item) and item == int(item) and abs(item) < 1e15
        return repr(int(item)) if whole else literal(item)


def _variable(name: str) -> str:
    word = re.sub(r"\W", "_", name)
    return f"_{word}" if word[:1].isdigit() else word


def _run_time(desc: TensorDesc) -> int:
    return _RUN_TIME_NUMBERS.get(desc.dtype, _RUN_TIME_NUMBERS["DT_UNDEFINED"])


def write_py(graph: Graph) -> str:
    """The graph as Python source, each operator behind the line of the program and of the FX graph that it comes from.

    Outputs are variables ``{name}_{index}``, scalars stand where they are used, ``dtype=`` is the engine's run-time
    number.
    """
    return _Source(graph).take()
