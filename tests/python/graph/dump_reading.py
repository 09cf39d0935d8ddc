# SPDX-License-Identifier: Apache-2.0
"""An independent reader of dump files and of a capture's folders: struct and numpy, nothing of assay.

Layout of a file: docs/formats/cann-dump.md.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

# Data types of the header -> torch
_DTYPES = {
    1: torch.float32, 2: torch.float16, 3: torch.int8, 4: torch.uint8, 5: torch.int16, 7: torch.int32, 8: torch.int64,
    11: torch.bool, 12: torch.float64, 16: torch.complex64, 17: torch.complex128, 27: torch.bfloat16,
    34: torch.float8_e5m2, 35: torch.float8_e4m3fn,
}  # fmt: skip


@dataclass
class Operand:
    dtype: torch.dtype
    shape: tuple[int, ...]
    size: int
    index: int | None  # arg_index, where the file has one
    tensor: torch.Tensor


@dataclass
class DumpFile:
    path: Path
    name: str
    inputs: list[Operand]
    outputs: list[Operand]

    @property
    def type(self) -> str:
        return self.path.name.split(".")[0]

    @property
    def task(self) -> int:
        return int(self.path.name.split(".")[2])


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at


def _fields(data: bytes) -> list[tuple[int, Any]]:
    found, at = [], 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            value, at = _varint(data, at)
        else:
            assert key & 7 == 2, f"wire type {key & 7} does not occur"
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        found.append((key >> 3, value))
    return found


def _shape(data: bytes) -> tuple[int, ...]:
    dims = []
    for number, value in _fields(data):
        assert number == 1
        at = 0
        while at < len(value):
            dim, at = _varint(value, at)
            dims.append(dim)
    return tuple(dims)


def _operand(data: bytes, size_field: int, index_field: int) -> tuple[int, tuple[int, ...], int, int | None]:
    fields = dict(_fields(data))
    return fields.get(1, 0), _shape(fields.get(3, b"")), fields.get(size_field, 0), fields.get(index_field)


def read_dump(path: Path) -> DumpFile:
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = _fields(data[8 : 8 + length])
    at = 8 + length
    sides: dict[str, list[Operand]] = {"input": [], "output": []}
    descs = [("input", _operand(value, 5, 10)) for number, value in header if number == 4]
    descs += [("output", _operand(value, 6, 12)) for number, value in header if number == 3]
    for side, (dtype, shape, size, index) in descs:
        count = int(np.prod(shape)) if shape else 1
        raw = bytearray(data[at : at + size])
        at += size
        kind = _DTYPES[dtype]
        tensor = torch.frombuffer(raw, dtype=kind, count=count) if count else torch.empty(0, dtype=kind)
        sides[side].append(Operand(kind, shape, size, index, tensor.reshape(shape)))
    assert at == len(data), "the header announces as many bytes as the file has"
    name = next(value for number, value in header if number == 6).decode()
    return DumpFile(path, name, sides["input"], sides["output"])


def the_only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    assert len(found) == 1, found
    return found[0]


def run_folder(path: Path) -> Path:
    """The folder of the only run below dump_path: the one with a graphs.json and a time."""
    return the_only(path, "worldsize*/*/graphs.json").parent


def index_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "graphs.json").read_text())


def step_dumps(run: Path, graph: int, step: int) -> dict[str, DumpFile]:
    """All files of one step by operator name; one file an operator."""
    folder = run / "0" / f"graph_{graph}" / str(graph) / str(step)
    found: dict[str, DumpFile] = {}
    for path in sorted(folder.iterdir()):
        dump = read_dump(path)
        assert dump.name not in found, f"two files of {dump.name} in {folder}"
        found[dump.name] = dump
    return found
