# SPDX-License-Identifier: Apache-2.0
"""Dump files of CANN's graph engine put together by hand, and read by hand, from docs/formats/cann-dump.md."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Optional

import numpy as np
from graph_dumps import content, number, varint

ND = 2
NUMBERS = {
    "float32": 1, "float16": 2, "int8": 3, "uint8": 4, "int16": 5, "uint16": 6, "int32": 7, "int64": 8, "uint32": 9,
    "uint64": 10, "bool": 11, "float64": 12, "complex64": 16, "complex128": 17,
}  # fmt: skip
BFLOAT16, INT4, UINT1, E5M2, E4M3FN = 27, 28, 29, 34, 35


@dataclass
class Operand:
    data_type: int
    shape: Sequence[int]
    data: bytes
    format: int = ND
    original_shape: Optional[Sequence[int]] = None
    size: Optional[int] = None  # when it is not that of the data
    arg_index: Optional[int] = None

    @classmethod
    def of(cls, array: np.ndarray, format: int = ND, original_shape=None) -> Operand:
        return cls(NUMBERS[array.dtype.name], array.shape, array.tobytes(), format, original_shape)


@dataclass
class Dump:
    op_name: str = "Add_1"
    inputs: list[Operand] = field(default_factory=list)
    outputs: list[Operand] = field(default_factory=list)
    buffers: list[bytes] = field(default_factory=list)
    spaces: list[bytes] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        def shape(sizes) -> bytes:
            return content(1, b"".join(varint(size) for size in sizes)) if len(sizes) else b""

        def operand(op: Operand, size_tag: int, original_tag: int, index_tag: int) -> bytes:
            out = number(1, op.data_type) + number(2, op.format) + content(3, shape(op.shape))
            out += number(size_tag, len(op.data) if op.size is None else op.size)
            out += content(original_tag, shape(op.shape if op.original_shape is None else op.original_shape))
            return out if op.arg_index is None else out + number(index_tag, op.arg_index)

        header = content(1, b"2.0") + number(2, 1760000000123456)
        header += b"".join(content(3, operand(op, 6, 7, 12)) for op in self.outputs)
        header += b"".join(content(4, operand(op, 5, 6, 10)) for op in self.inputs)
        header += b"".join(content(5, number(3, len(data))) for data in self.buffers)
        header += content(6, self.op_name.encode())
        for name, value in self.attributes.items():
            header += content(7, content(1, name.encode()) + content(2, value.encode()))
        header += b"".join(content(8, number(3, len(data))) for data in self.spaces)
        payload = [op.data for op in [*self.inputs, *self.outputs]] + self.buffers + self.spaces
        return struct.pack("<Q", len(header)) + header + b"".join(payload)


def fields(message: bytes):
    """(number, value) of a protobuf message: int for varints, bytes for the others."""
    at = 0

    def take() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        tag = take()
        if tag & 7 == 0:
            yield tag >> 3, take()
        else:
            assert tag & 7 == 2, tag
            size = take()
            yield tag >> 3, message[at : at + size]
            at += size


def read_dump(file: bytes):
    """op_name, inputs and outputs as (data type, format, shape, bytes)."""
    (header_size,) = struct.unpack_from("<Q", file)
    op_name, described = "", {3: [], 4: []}
    for tag, value in fields(file[8 : 8 + header_size]):
        if tag == 6:
            op_name = value.decode()
        if tag in described:
            described[tag].append(dict(fields(value)))
    at = 8 + header_size
    out = []
    for tag, size_tag in ((4, 5), (3, 6)):
        side = []
        for tensor in described[tag]:
            sizes, packed = [], dict(fields(tensor.get(3, b""))).get(1, b"")
            while packed:
                end = next(i for i, byte in enumerate(packed) if byte < 0x80) + 1
                sizes.append(sum((byte & 0x7F) << 7 * i for i, byte in enumerate(packed[:end])))
                packed = packed[end:]
            size = tensor.get(size_tag, 0)
            side.append((tensor.get(1, 0), tensor.get(2, 0), tuple(sizes), file[at : at + size]))
            at += size
        out.append(side)
    assert at == len(file)
    return op_name, out[0], out[1]


def overflow_payload(task=12, stream=3, status=0x20, acc_type=0, version=0) -> bytes:
    """The new form of a debug file's output: model 1, context and thread unset."""
    words = [1, stream, task, 0, 65535, 65535, 0x1000, 0x2000, 7, 8]
    words += [status] if version == 0 else [status, 0, 0, 0x10]
    head = struct.pack("<6I", 0x5A5A5A5A, version, 1, acc_type, 0, 8 * len(words))
    return (head + struct.pack(f"<{len(words)}Q", *words)).ljust(2048, b"\0")


def old_overflow_payload(task=12, stream=3, status=272) -> bytes:
    payload = bytearray(2048)
    struct.pack_into("<6Q", payload, 256, 1, stream, task, 0, 0x1000, 0x2000)
    struct.pack_into("<3Q", payload, 1024, 0xAB, 2, status)
    return bytes(payload)
