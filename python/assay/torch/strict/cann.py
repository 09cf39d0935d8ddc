# SPDX-License-Identifier: Apache-2.0
"""CANN operator dump files: a protobuf header and the raw bytes of every input and output."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Union


@dataclass(frozen=True)
class CannTensor:
    """One input or output.

    Attributes:
        data_type: number of the dump format (1 float32, 2 float16, 27 bfloat16 ...), not ACL's.
        format: layout number (2 ND, 29 FRACTAL_NZ ...); `data` is in that layout.
        shape, original_shape: sizes in `format`, and in the framework's layout.
        size: bytes as the header says; may exceed what the shape needs.
        data: the raw bytes, little-endian.
    """

    data_type: int
    format: int
    shape: tuple[int, ...]
    original_shape: tuple[int, ...]
    size: int
    data: bytes


@dataclass(frozen=True)
class CannDump:
    """A dump file. Attribute names are those of the message ``DumpData``."""

    version: str
    dump_time: int
    op_name: str
    input: list[CannTensor] = field(default_factory=list)
    output: list[CannTensor] = field(default_factory=list)


_Value = Union[int, bytes]
# Numbers of the fields in the messages OpInput and OpOutput.
_INPUT_FIELDS = {"data_type": 1, "format": 2, "shape": 3, "data": 4, "size": 5, "original_shape": 6}
_OUTPUT_FIELDS = {"data_type": 1, "format": 2, "shape": 3, "data": 5, "size": 6, "original_shape": 7}


def parse_cann_dump(content: bytes, path: str = "") -> CannDump:
    """Parses a whole file: ``uint64 header length, DumpData, inputs, outputs``; or the old form, DumpData alone.

    Raises:
        ValueError: the bytes are not such a file, or end early.
    """
    where = f"{path}: " if path else ""
    if len(content) <= 8:
        raise ValueError(f"{where}{len(content)} bytes are too few for a CANN dump file.")
    length = struct.unpack_from("<Q", content)[0]
    if length <= len(content) - 8:
        return _dump(content[8 : 8 + length], content[8 + length :], where)
    try:
        return _dump(content, b"", where)
    except ValueError as error:
        raise ValueError(f"{where}not a CANN dump file ({error}).") from error


def _dump(header: bytes, payload: bytes, where: str) -> CannDump:
    inputs: list[dict[str, Any]] = []
    outputs: list[dict[str, Any]] = []
    version, dump_time, op_name = "", 0, ""
    for number, value in _fields(header):
        if number == 1 and isinstance(value, bytes):
            version = value.decode("utf-8", "replace")
        elif number == 2 and isinstance(value, int):
            dump_time = value
        elif number == 3 and isinstance(value, bytes):
            outputs.append(_tensor(value, _OUTPUT_FIELDS))
        elif number == 4 and isinstance(value, bytes):
            inputs.append(_tensor(value, _INPUT_FIELDS))
        elif number == 6 and isinstance(value, bytes):
            op_name = value.decode("utf-8", "replace")
    position = 0
    for tensor in inputs + outputs:
        if tensor["data"]:
            continue
        end = position + tensor["size"]
        if end > len(payload):
            raise ValueError(f"{where}the header announces {end} bytes of tensors, {len(payload)} follow it.")
        tensor["data"] = payload[position:end]
        position = end
    return CannDump(
        version,
        dump_time,
        op_name,
        [CannTensor(**entry) for entry in inputs],
        [CannTensor(**entry) for entry in outputs],
    )


def _tensor(message: bytes, numbers: dict[str, int]) -> dict[str, Any]:
    values = dict(_fields(message))

    def integer(name: str) -> int:
        value = values.get(numbers[name], 0)
        return value if isinstance(value, int) else 0

    def chunk(name: str) -> bytes:
        value = values.get(numbers[name], b"")
        return value if isinstance(value, bytes) else b""

    return {
        "data_type": integer("data_type"),
        "format": integer("format"),
        "shape": _shape(chunk("shape")),
        "original_shape": _shape(chunk("original_shape")),
        "size": integer("size"),
        "data": chunk("data"),
    }


def _shape(message: bytes) -> tuple[int, ...]:
    sizes: list[int] = []
    for number, value in _fields(message):
        if number != 1:
            continue
        if isinstance(value, int):  # unpacked repetition
            sizes.append(value)
            continue
        position = 0
        while position < len(value):
            size, position = _varint(value, position)
            sizes.append(size)
    return tuple(sizes)


def _fields(message: bytes) -> Iterator[tuple[int, _Value]]:
    """Yields (field number, value) of one protobuf message; groups do not occur in this format."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        kind = key & 7
        if kind == 0:
            value: _Value
            value, position = _varint(message, position)
        else:
            if kind == 2:
                length, position = _varint(message, position)
            elif kind in (1, 5):
                length = 8 if kind == 1 else 4
            else:
                raise ValueError(f"wire type {kind} at byte {position}")
            if length > len(message) - position:
                raise ValueError(f"a field of {length} bytes at byte {position} runs over the end")
            value = message[position : position + length]
            position += length
        yield key >> 3, value


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(message):
            raise ValueError("the header ends inside a number")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError(f"a number longer than 64 bits at byte {position}")
