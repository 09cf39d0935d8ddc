# SPDX-License-Identifier: Apache-2.0
"""A compiled graph as text: protobuf's text format, the form of graph viewers, Python source, the readable form.

``txt`` is a bare ``GraphDef`` as TorchAir writes it, ``ge_proto`` the ``ModelDef`` of the graph engine; both are byte
for byte what protobuf's own printer would give for the same message, but that all that is not ASCII is octal.
Which field and attribute means what: docs/formats/graph-text.md. Importing this module does not import torch.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Optional

import numpy as np

from assay.torch.graph._model import Attribute, Graph, Operator, TensorDesc

__all__ = [
    "EngineGraphDump",
    "graph_file_name",
    "utc_stamp",
    "write_ge_onnx",
    "write_ge_proto",
    "write_pbtxt",
    "write_py",
    "write_readable",
    "write_txt",
]

_ESCAPES = {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t", ord('"'): '\\"', ord("'"): "\\'", ord("\\"): "\\\\"}
_ESCAPED = [_ESCAPES.get(byte, chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}") for byte in range(256)]
_PLAIN = frozenset(chr(byte) for byte in range(256) if _ESCAPED[byte] == chr(byte))

# Names of the proto's enumeration by what numpy calls the type; bfloat16 and the 8-bit floats are ml_dtypes' names.
_PROTO_OF_NUMPY = {
    "float32": "DT_FLOAT",
    "float16": "DT_FLOAT16",
    "float64": "DT_DOUBLE",
    "int8": "DT_INT8",
    "int16": "DT_INT16",
    "int32": "DT_INT32",
    "int64": "DT_INT64",
    "uint8": "DT_UINT8",
    "uint16": "DT_UINT16",
    "uint32": "DT_UINT32",
    "uint64": "DT_UINT64",
    "bool": "DT_BOOL",
    "complex64": "DT_COMPLEX64",
    "complex128": "DT_COMPLEX128",
    "bfloat16": "DT_BF16",
    "float8_e5m2": "DT_FLOAT8_E5M2",
    "float8_e4m3fn": "DT_FLOAT8_E4M3FN",
}

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
    "DT_COMPLEX64": 16,
    "DT_COMPLEX128": 17,
    "DT_QINT8": 18,
    "DT_QINT16": 19,
    "DT_QINT32": 20,
    "DT_QUINT8": 21,
    "DT_QUINT16": 22,
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
}

# TensorProto.DataType of ONNX.
_ONNX_NUMBERS = {
    "DT_FLOAT": 1,
    "DT_UINT8": 2,
    "DT_INT8": 3,
    "DT_UINT16": 4,
    "DT_INT16": 5,
    "DT_INT32": 6,
    "DT_INT64": 7,
    "DT_STRING": 8,
    "DT_BOOL": 9,
    "DT_FLOAT16": 10,
    "DT_DOUBLE": 11,
    "DT_UINT32": 12,
    "DT_UINT64": 13,
    "DT_COMPLEX64": 14,
    "DT_COMPLEX128": 15,
    "DT_BF16": 16,
}


# ---- names ---------------------------------------------------------------------------------------------------------


def utc_stamp(time: Optional[datetime] = None) -> str:
    """20 digits: UTC date and time with microseconds. A time without zone is local; None is now."""
    moment = datetime.now(timezone.utc) if time is None else time.astimezone(timezone.utc)
    return moment.strftime("%Y%m%d%H%M%S%f")


def graph_file_name(kind: str, graph_id: int, rank: int, pid: int, time: Optional[datetime], suffix: str) -> str:
    """Name of one text of a graph.

    Args:
        kind: "original" (before the passes) or "optimized" (behind them).
        graph_id: N of graph_N.
        rank: of the process, 0 without torch.distributed.
        pid: of the process.
        time: None is now.
        suffix: "txt", "pbtxt" or "py".
    """
    return f"dynamo_{kind}_graph_{graph_id}_rank_{rank}_pid_{pid}_ts_{utc_stamp(time)}.{suffix}"


# ---- protobuf's text format ----------------------------------------------------------------------------------------


def _bytes_of(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")


def _escape(value: str | bytes) -> str:
    if isinstance(value, str) and _PLAIN.issuperset(value):
        return value
    return "".join([_ESCAPED[byte] for byte in _bytes_of(value)])


def _float_text(value: float) -> str:
    """A float32 in six digits, or in the nine that no float32 needs more of."""
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    try:
        (single,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return "inf" if value > 0 else "-inf"
    short = f"{single:.6g}"
    try:
        return short if struct.pack("<f", float(short)) == struct.pack("<f", single) else f"{single:.9g}"
    except OverflowError:  # six digits of the largest numbers round to more than fits
        return f"{single:.9g}"


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_float(value: Any) -> bool:
    return isinstance(value, (float, np.floating))


def _is_bool(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))


class _Text:
    """Lines of protobuf's text format. The methods are called in the order of the fields' numbers.

    Args:
        weights: whether the bytes of tensors are written.
    """

    def __init__(self, weights: bool = True) -> None:
        self._lines: list[str] = []
        self._indent = ""
        self._weights = weights

    def take(self) -> str:
        return "\n".join(self._lines) + "\n" if self._lines else ""

    def open(self, field: str) -> None:
        self._lines.append(f"{self._indent}{field} {{")
        self._indent += "  "

    def close(self) -> None:
        self._indent = self._indent[:-2]
        self._lines.append(self._indent + "}")

    def word(self, field: str, value: str) -> None:
        self._lines.append(f"{self._indent}{field}: {value}")

    def string(self, field: str, value: str | bytes) -> None:
        self._lines.append(f'{self._indent}{field}: "{_escape(value)}"')

    # A field that has its default value is not there, but in a list.

    def optional_string(self, field: str, value: str | bytes) -> None:
        if value:
            self.string(field, value)

    def optional_int(self, field: str, value: int) -> None:
        if value:
            self.word(field, str(value))

    def integer(self, field: str, value: int) -> None:
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"{value} does not fit 64 bits")
        self.word(field, str(int(value)))

    def scalar(self, field: str, value: Any) -> None:
        """``field`` is the one of AttrDef or ListValue that belongs to the value's type."""
        if field in ("s", "bt"):
            self.string(field, value)
        elif field == "b":
            self.word(field, "true" if value else "false")
        elif field == "i":
            self.integer(field, value)
        elif field == "f":
            self.word(field, _float_text(float(value)))
        elif field == "t":
            self.tensor(field, value)
        elif field == "td":
            self.descriptor(field, value)
        else:
            self.open(field)
            self.graph_fields(value)
            self.close()

    def tensor(self, field: str, array: np.ndarray[Any, Any]) -> None:
        self.open(field)
        dtype = _PROTO_OF_NUMPY.get(array.dtype.name, "DT_UNDEFINED")
        self.descriptor("desc", TensorDesc("", dtype, list(array.shape), "ND"))
        if self._weights:
            self.optional_string("data", np.ascontiguousarray(array).tobytes())
        self.close()

    def nested_lists(self, rows: list[list[Any]]) -> None:
        """list_list_int or list_list_float."""
        kind = "f" if any(_is_float(value) for row in rows for value in row) else "i"
        name = "float" if kind == "f" else "int"
        self.open(f"list_list_{name}")
        for row in rows:
            self.open(f"list_list_{kind}")
            for value in row:
                self.word(f"list_{kind}", _float_text(float(value)) if kind == "f" else str(int(value)))
            self.close()
        self.close()

    def list_value(self, values: list[Any]) -> None:
        if values and all(isinstance(value, (list, tuple)) for value in values):
            self.nested_lists(values)
            return
        fields = {_scalar_field(value) for value in values}
        if fields == {"i", "f"}:
            fields = {"f"}
        if len(fields) > 1:
            raise TypeError(f"a list of different kinds: {values!r}")
        self.open("list")
        for value in values:
            self.scalar(next(iter(fields)), value)
        self.close()

    def attributes(self, attributes: Mapping[str, Attribute]) -> None:
        for key in sorted(attributes):
            self.open("attr")
            self.string("key", key)
            self.open("value")
            value = attributes[key]
            try:
                if isinstance(value, (list, tuple)):
                    self.list_value(list(value))
                else:
                    self.scalar(_scalar_field(value), value)
            except (TypeError, ValueError) as error:
                raise type(error)(f"attribute {key!r}: {error}") from None
            self.close()
            self.close()

    def descriptor(self, field: str, desc: TensorDesc) -> None:
        self.open(field)
        self.descriptor_fields(desc)
        self.close()

    def descriptor_fields(self, desc: TensorDesc) -> None:
        self.optional_string("name", desc.name)
        if desc.dtype not in ("", "DT_UNDEFINED"):
            self.word("dtype", desc.dtype)
        if desc.shape is not None:
            self.open("shape")
            for size in desc.shape:
                self.word("dim", str(size))
            self.close()
        self.optional_string("layout", desc.layout)
        self.attributes(desc.attributes)

    def onnx_tensor(self, array: np.ndarray[Any, Any]) -> None:
        self.open("t")
        for size in array.shape:
            self.word("dims", str(size))
        self.word("data_type", str(_ONNX_NUMBERS.get(_PROTO_OF_NUMPY[array.dtype.name], 0)))
        if self._weights:
            self.string("raw_data", np.ascontiguousarray(array).tobytes())
        self.close()

    def operator(self, operator: Operator, number: int = 0) -> None:
        self.open("op")
        self.optional_string("name", operator.name)
        self.optional_string("type", operator.type)
        for edge in operator.inputs:
            self.string("input", edge)
        try:
            self.attributes(attributes_of(operator))
            self.optional_int("id", number)
            for desc in operator.input_desc:
                self.descriptor("input_desc", desc)
            for desc in operator.output_desc:
                self.descriptor("output_desc", desc)
        except (TypeError, ValueError) as error:
            raise type(error)(f"operator {operator.name!r}: {error}") from None
        self.close()

    def graph_fields(self, graph: Graph, numbered: bool = False) -> None:
        self.optional_string("name", graph.name)
        for number, operator in enumerate(graph):
            self.operator(operator, number if numbered else 0)
        self.attributes(graph.attributes)


def _scalar_field(value: Any) -> str:
    """The field of AttrDef that holds a value of this type."""
    if isinstance(value, str):
        return "s"
    if isinstance(value, bytes):
        return "bt"
    if _is_bool(value):
        return "b"
    if _is_int(value):
        return "i"
    if _is_float(value):
        return "f"
    if isinstance(value, np.ndarray):
        return "t"
    if isinstance(value, TensorDesc):
        return "td"
    if isinstance(value, Graph):
        return "g"
    raise TypeError(f"a value of type {type(value).__name__} has no field in AttrDef")


def attributes_of(operator: Operator) -> dict[str, Attribute]:
    """The operator's attributes, with what its fields say about fusion."""
    if not operator.members or "_datadump_original_op_names" in operator.attributes:
        return operator.attributes
    return {**operator.attributes, "_datadump_original_op_names": list(operator.members)}


def write_txt(graph: Graph) -> str:
    """The graph as a ``GraphDef`` in protobuf's text format.

    Raises:
        TypeError, ValueError: an attribute has a value that the format cannot hold; names operator and attribute.
    """
    text = _Text()
    text.graph_fields(graph)
    return text.take()


def write_ge_proto(graph: Graph, *, weights: bool = True) -> str:
    """The graph inside a ``ModelDef`` of its name, operators numbered in their order.

    Args:
        weights: whether the bytes of constants are written.

    Raises:
        TypeError, ValueError: as :func:`write_txt`.
    """
    text = _Text(weights)
    text.optional_string("name", graph.name)
    text.open("graph")
    text.graph_fields(graph, numbered=True)
    text.close()
    return text.take()


# ---- the form of graph viewers -------------------------------------------------------------------------------------


def _is_control(edge: str) -> bool:
    return edge.endswith(":-1")


def write_pbtxt(graph: Graph) -> str:
    """The graph as TensorFlow's viewers read it.

    A node has ``name``, ``op`` and ``input``, a control edge as ``^name``; each attribute is the text of its AttrDef,
    each operand an attribute ``[i]x1`` or ``[o]y`` with the text of its descriptor.

    Raises:
        TypeError, ValueError: as :func:`write_txt`.
    """
    text = _Text()

    def attribute(key: str, value: str) -> None:
        text.open("attr")
        text.string("key", key)
        text.open("value")
        text.string("s", value)
        text.close()
        text.close()

    for operator in graph:
        text.open("node")
        text.string("name", operator.name)
        text.string("op", operator.type)
        for edge in operator.inputs:
            text.string("input", f"^{edge[:-3]}" if _is_control(edge) else edge)
        attributes = attributes_of(operator)
        for key in sorted(attributes):
            attribute(key, _value_text(attributes, key))
        for mark, descs in (("[i]", operator.input_desc), ("[o]", operator.output_desc)):
            for desc in descs:
                inner = _Text()
                inner.descriptor_fields(desc)
                attribute(mark + desc.name, inner.take())
        text.close()
    return text.take()


def _value_text(attributes: Mapping[str, Attribute], key: str) -> str:
    """The fields of one attribute's AttrDef."""
    inner = _Text()
    inner.attributes({key: attributes[key]})
    # Between "attr {", the key and "value {" in front and two brackets behind.
    return "".join(line[4:] + "\n" for line in inner.take().splitlines()[3:-2])


# ---- Python --------------------------------------------------------------------------------------------------------


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
        inputs = [self._value(edge) for edge in operator.inputs if not _is_control(edge)]
        waits = [self._value(edge[:-3] + ":0") for edge in operator.inputs if _is_control(edge)]
        dependencies = f"dependencies=[{', '.join(waits)}]"
        if operator.type == "NetOutput":
            return f"[{', '.join(inputs)}], {dependencies}"
        parts = inputs
        desc = operator.output_desc[0] if operator.output_desc else TensorDesc()
        attributes = {key: value for key, value in operator.attributes.items() if not key.startswith("_")}
        if operator.type == "Data":
            parts.append(f"index={attributes.pop('index', 0)!r}")
            parts += [f"dtype={_run_time(desc)}", f"shape={desc.shape if desc.shape is not None else []}"]
            parts.append(f"placement={_literal(attributes.pop('placement', 'CPU'))}")
        if operator.type == "Const":
            parts.append(_literal(attributes.pop("value", None)))
            parts.append(f"dtype={_run_time(desc)}")
        parts += [f"{_variable(key)}={_literal(attributes[key])}" for key in sorted(attributes)]
        if waits:
            parts.append(dependencies)
        return ", ".join([*parts, f'node_name="{_escape(operator.name)}"'])

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
        return repr(int(item)) if whole else _literal(item)


def _variable(name: str) -> str:
    word = re.sub(r"\W", "_", name)
    return f"_{word}" if word[:1].isdigit() else word


def _run_time(desc: TensorDesc) -> int:
    return _RUN_TIME_NUMBERS.get(desc.dtype, _RUN_TIME_NUMBERS["DT_UNDEFINED"])


def _literal(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return _literal(value.tolist())
    if isinstance(value, np.generic):
        return _literal(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_literal(item) for item in value)}]"
    if isinstance(value, str):
        return f'"{_escape(value)}"'
    if isinstance(value, (bool, int, float, bytes, complex)) or value is None:
        return repr(value)
    return f'"{type(value).__name__}"'


def write_py(graph: Graph) -> str:
    """The graph as Python source, each operator behind the line of the program and of the FX graph that it comes from.

    Outputs are variables ``{name}_{index}``, scalars stand where they are used, ``dtype=`` is the engine's run-time
    number.
    """
    return _Source(graph).take()


# ---- the readable form and ONNX ------------------------------------------------------------------------------------


def write_readable(graph: Graph, *, attributes: bool = True) -> str:
    """One line an operator, in the manner of a printed FX graph.

    Args:
        attributes: False leaves them out, and only who feeds whom is left.
    """
    users: Counter[str] = Counter()
    for operator in graph:
        users.update({graph.producer(edge) for edge in operator.inputs if edge})
    by_name = graph.by_name()

    def value(edge: str) -> str:
        if not edge:
            return "None"
        producer, _, index = edge.rpartition(":")
        operator = by_name.get(producer)
        if operator is not None and len(operator.output_desc) > 1:
            return f"get_element[node=%{producer}]({index})"
        return f"%{producer}"

    lines = [f'graph("{_escape(graph.name)}"):']
    for operator in graph:
        named: list[str] = []
        controls: list[str] = []
        for edge in operator.inputs:
            if _is_control(edge):
                controls.append(f"%{edge[:-3]}")
                continue
            place = len(named)
            desc = operator.input_desc[place] if place < len(operator.input_desc) else TensorDesc()
            named.append(f"{desc.name or place}={value(edge)}")
        parts = [f"inputs = ({', '.join(named)})"] if named else []
        if controls:
            parts.append(f"controls = ({', '.join(controls)})")
        shown = {key: item for key, item in attributes_of(operator).items() if _is_short(item)}
        if attributes and shown:
            parts.append("attrs = {" + ", ".join(f"{key}: {_literal(shown[key])}" for key in sorted(shown)) + "}")
        lines.append(
            f"  %{operator.name} : [#users={users[operator.name]}] = Node[type={operator.type}] ({', '.join(parts)})"
        )
    return "\n".join(lines) + "\n"


def _is_short(value: Attribute) -> bool:
    return not isinstance(value, (np.ndarray, Graph, TensorDesc)) or (
        isinstance(value, np.ndarray) and value.size <= 16
    )


def write_ge_onnx(graph: Graph, *, weights: bool = False, attributes: bool = True) -> str:
    """The graph as the text of an ONNX ``ModelProto``, its operators in the operator set "ge".

    Args:
        weights: whether the bytes of constants are written.
        attributes: False leaves them out, and only who feeds whom is left.
    """
    text = _Text(weights)
    text.word("ir_version", "8")
    text.string("producer_name", "assay")
    text.open("graph")
    waited = {edge for operator in graph for edge in operator.inputs if _is_control(edge)}
    for operator in graph:
        outputs = [f"{operator.name}:{index}" for index in range(len(operator.output_desc))]
        outputs += [f"{operator.name}:-1"] if f"{operator.name}:-1" in waited else []
        text.open("node")
        for edge in operator.inputs:
            text.string("input", edge)
        for output in outputs:
            text.string("output", output)
        text.string("name", operator.name)
        text.string("op_type", operator.type)
        own = attributes_of(operator) if attributes else {}
        for key in sorted(own):
            _onnx_attribute(text, key, own[key])
        text.string("domain", "ge")
        text.close()
    text.string("name", graph.name or "graph")
    described = {
        f"{operator.name}:{index}": desc for operator in graph for index, desc in enumerate(operator.output_desc)
    }
    results = [edge for operator in graph if operator.type == "NetOutput" for edge in operator.inputs if edge]
    for edge in dict.fromkeys(edge for edge in results if not _is_control(edge)):
        _onnx_value(text, "output", edge, described.pop(edge, TensorDesc()))
    for edge, desc in described.items():
        _onnx_value(text, "value_info", edge, desc)
    text.close()
    text.open("opset_import")
    text.string("domain", "ge")
    text.word("version", "1")
    text.close()
    return text.take()


def _onnx_attribute(text: _Text, key: str, value: Any) -> None:
    values = value if isinstance(value, (list, tuple)) else None
    if values and all(_is_int(item) or _is_bool(item) for item in values):
        field, kind, items = "ints", "INTS", [str(int(item)) for item in values]
    elif values and all(_is_int(item) or _is_float(item) for item in values):
        field, kind, items = "floats", "FLOATS", [_float_text(float(item)) for item in values]
    elif values is not None:
        words = [item if isinstance(item, (str, bytes)) else _literal(item) for item in values]
        field, kind, items = "strings", "STRINGS", [f'"{_escape(word)}"' for word in words]
    elif _is_int(value) or _is_bool(value):
        field, kind, items = "i", "INT", [str(int(value))]
    elif _is_float(value):
        field, kind, items = "f", "FLOAT", [_float_text(float(value))]
    elif isinstance(value, np.ndarray) and value.dtype.name in _PROTO_OF_NUMPY:
        field, kind, items = "t", "TENSOR", []
    else:
        word = value if isinstance(value, (str, bytes)) else _literal(value)
        field, kind, items = "s", "STRING", [f'"{_escape(word)}"']
    text.open("attribute")
    text.string("name", key)
    for item in items:
        text.word(field, item)
    if kind == "TENSOR":
        text.onnx_tensor(value)
    text.word("type", kind)
    text.close()


def _onnx_value(text: _Text, field: str, name: str, desc: TensorDesc) -> None:
    text.open(field)
    text.string("name", name)
    text.open("type")
    text.open("tensor_type")
    text.word("elem_type", str(_ONNX_NUMBERS.get(desc.dtype, 0)))
    text.open("shape")
    for size in desc.shape or []:
        text.open("dim")
        text.word("dim_value", str(size)) if size >= 0 else text.string("dim_param", "?")
        text.close()
    for _ in range(4):
        text.close()


# ---- the engine's dump of graphs -----------------------------------------------------------------------------------

_FORMATS = ("ge_proto", "onnx", "readable")
_FIRST_STAGE = "PreRunBegin"
_LAST_STAGE = "Build"
_numbers = itertools.count()  # of the stages that this process wrote; next() on it is atomic


@dataclass(frozen=True)
class EngineGraphDump:
    """Files ``ge_proto_00000001_Build.txt`` and others, as the environment asks for them."""

    detail: int  # 1 with weights, 2 without, 3 who feeds whom
    stages: str  # "1" all, "2" the usual ones, "3" the last, "4" the first, else parts of names joined by |
    formats: tuple[str, ...]
    folder: str  # "{pid}" and "{device}" stand for the process's
    device: int = 0
    with_data: bool = False  # the text of the build is always written beside a dump: comparisons need it

    @classmethod
    def from_environment(
        cls, environment: Optional[Mapping[str, str]] = None, *, device: int = 0, with_data: bool = False
    ) -> Optional[EngineGraphDump]:
        """What DUMP_GE_GRAPH and its companions say; None when it is absent, empty or 0.

        Args:
            environment: of the process when None.
            device: the device's number, part of the folder's name.
            with_data: whether operators are dumped, too.

        Raises:
            ValueError: a variable has a value that means nothing; all of them are named.
        """
        env = os.environ if environment is None else environment
        wanted = env.get("DUMP_GE_GRAPH", "").strip()
        if wanted in ("", "0"):
            return None
        problems = []
        if wanted not in ("1", "2", "3"):
            problems.append(f"DUMP_GE_GRAPH is {wanted!r}: 1 with weights, 2 without, 3 node relations only")
        stages = env.get("DUMP_GRAPH_LEVEL", "").strip() or "2"
        if stages.isdigit() and stages not in ("1", "2", "3", "4"):
            problems.append(f"DUMP_GRAPH_LEVEL is {stages!r}: 1 to 4, or parts of stage names joined by |")
        words = [word.strip() for word in env.get("DUMP_GRAPH_FORMAT", "").split("|")]
        formats = tuple(word for word in words if word) or ("ge_proto", "onnx")
        unknown = [word for word in formats if word not in _FORMATS]
        if unknown:
            problems.append(f"DUMP_GRAPH_FORMAT has {unknown[0]!r}: {', '.join(_FORMATS)} joined by |")
        if problems:
            raise ValueError("; ".join(problems))
        return cls(int(wanted), stages, formats, _engine_folder(env), device, with_data)

    def write(self, graph: Graph, stage: str) -> list[str]:
        """Writes the stage's files if it is one of those wanted; each appears whole.

        Returns:
            The paths written.

        Raises:
            OSError: the folder or a file cannot be written.
        """
        always = self.with_data and stage == _LAST_STAGE
        if not (self.wants(stage) or always):
            return []
        formats = self.formats if self.wants(stage) else ()
        if always and "ge_proto" not in formats:
            formats = ("ge_proto", *formats)
        folder = self.folder.format(pid=os.getpid(), device=self.device)
        os.makedirs(folder, exist_ok=True)
        number = next(_numbers)
        paths = []
        for kind in formats:
            short, suffix = {"ge_proto": ("proto", "txt"), "onnx": ("onnx", "pbtxt"), "readable": ("readable", "txt")}[
                kind
            ]
            name = f"ge_{short}_{number:08d}_{re.sub(r'[^0-9A-Za-z_-]', '_', stage)}.{suffix}"
            path = os.path.join(folder, name)
            with open(path + ".tmp", "w", encoding="ascii", errors="backslashreplace") as file:
                file.write(self._text(graph, kind))
            os.replace(path + ".tmp", path)
            paths.append(path)
        return paths

    def wants(self, stage: str) -> bool:
        if self.stages in ("1", "2"):
            return True
        if self.stages == "3":
            return stage == _LAST_STAGE
        if self.stages == "4":
            return stage == _FIRST_STAGE
        return any(part and part in stage for part in self.stages.split("|"))

    def _text(self, graph: Graph, kind: str) -> str:
        if kind == "ge_proto":
            return write_ge_proto(graph, weights=self.detail == 1)
        if kind == "onnx":
            return write_ge_onnx(graph, weights=self.detail == 1, attributes=self.detail < 3)
        return write_readable(graph, attributes=self.detail < 3)


def _engine_folder(env: Mapping[str, str]) -> str:
    def literal(path: str) -> str:
        return path.replace("{", "{{").replace("}", "}}")

    if env.get("NPU_COLLECT_PATH"):
        return os.path.join(literal(env["NPU_COLLECT_PATH"]), "extra-info", "graph", "{pid}_{device}")
    for name in ("DUMP_GRAPH_PATH", "ASCEND_WORK_PATH"):
        if env.get(name):
            return os.path.join(literal(env[name]), "pid_{pid}_deviceid_{device}")
    return "."
