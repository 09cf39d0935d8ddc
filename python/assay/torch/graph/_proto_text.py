# SPDX-License-Identifier: Apache-2.0
"""Protobuf's text format: the writer, and which field of which message holds a value of the graph's model.

Fields stand by number, entries of a map by key; a scalar with its default value is left out, but not inside AttrDef.
All that is not printable ASCII is octal. Importing this module does not import torch.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from assay.torch.graph._model import Attribute, Graph, Operator, TensorDesc

__all__ = [
    "ONNX_NUMBERS",
    "PROTO_OF_NUMPY",
    "TextWriter",
    "attributes_of",
    "escape",
    "float_text",
    "is_bool",
    "is_control",
    "is_float",
    "is_int",
    "literal",
]

_ESCAPES = {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t", ord('"'): '\\"', ord("'"): "\\'", ord("\\"): "\\\\"}
_ESCAPED = [_ESCAPES.get(byte, chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}") for byte in range(256)]
_PLAIN = frozenset(chr(byte) for byte in range(256) if _ESCAPED[byte] == chr(byte))

# Names of the proto's enumeration by what numpy calls the type; bfloat16 and the 8-bit floats are ml_dtypes' names.
PROTO_OF_NUMPY = {
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

# TensorProto.DataType of ONNX.
ONNX_NUMBERS = {
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


def _bytes_of(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")


def escape(value: str | bytes) -> str:
    if isinstance(value, str) and _PLAIN.issuperset(value):
        return value
    return "".join([_ESCAPED[byte] for byte in _bytes_of(value)])


def float_text(value: float) -> str:
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


def is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_float(value: Any) -> bool:
    return isinstance(value, (float, np.floating))


def is_bool(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))


class TextWriter:
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
        self._lines.append(f'{self._indent}{field}: "{escape(value)}"')

    # A field that has its default value is not there, but in a list.

    def optional_string(self, field: str, value: str | bytes) -> None:
        if value:
            self.string(field, value)

    def optional_int(self, field: str, value: int) -> None:
        if value:
            self.word(field, str(value))

    def scalar(self, field: str, value: Any) -> None:
        """``field`` is the one of AttrDef or ListValue that belongs to the value's type."""
        if field in ("s", "bt"):
            self.string(field, str(value) if is_int(value) else value)
        elif field == "b":
            self.word(field, "true" if value else "false")
        elif field == "i":
            self.word(field, str(int(value)))
        elif field == "f":
            self.word(field, float_text(float(value)))
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
        dtype = PROTO_OF_NUMPY.get(array.dtype.name, "DT_UNDEFINED")
        self.descriptor("desc", TensorDesc("", dtype, list(array.shape), "ND"))
        if self._weights:
            self.optional_string("data", np.ascontiguousarray(array).tobytes())
        self.close()

    def nested_lists(self, rows: list[list[Any]]) -> None:
        """list_list_int or list_list_float."""
        kind = "f" if any(is_float(value) for row in rows for value in row) else "i"
        name = "float" if kind == "f" else "int"
        self.open(f"list_list_{name}")
        for row in rows:
            self.open(f"list_list_{kind}")
            for value in row:
                self.word(f"list_{kind}", float_text(float(value)) if kind == "f" else str(int(value)))
            self.close()
        self.close()

    def list_value(self, values: list[Any]) -> None:
        if values and all(isinstance(value, (list, tuple)) for value in values):
            self.nested_lists(values)
            return
        fields = {_scalar_field(value) for value in values}
        if fields == {"i", "f"}:
            fields = {"f"}
        if fields == {"i", "s"} and all(is_int(value) for value in values):
            fields = {"s"}
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
        self.word("data_type", str(ONNX_NUMBERS.get(PROTO_OF_NUMPY[array.dtype.name], 0)))
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
    if is_bool(value):
        return "b"
    if is_int(value):
        # Beyond 64 bits the digits are worth more than an error.
        return "i" if -(2**63) <= value < 2**63 else "s"
    if is_float(value):
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


def is_control(edge: str) -> bool:
    return edge.endswith(":-1")


def literal(value: Any) -> str:
    """The value as Python source."""
    if isinstance(value, np.ndarray):
        return literal(value.tolist())
    if isinstance(value, np.generic):
        return literal(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(literal(item) for item in value)}]"
    if isinstance(value, str):
        return f'"{escape(value)}"'
    if isinstance(value, (bool, int, float, bytes, complex)) or value is None:
        return repr(value)
    return f'"{type(value).__name__}"'
