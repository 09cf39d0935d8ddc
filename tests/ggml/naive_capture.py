# SPDX-License-Identifier: Apache-2.0
"""Runs a host under the naive probe (naive_probe.cpp) and reads what it wrote."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

DTYPES = {"f32": np.float32, "f16": np.float16, "i32": np.int32, "i64": np.int64}


@dataclass(frozen=True)
class Node:
    graph: int
    index: int
    name: str
    op: str  # "MUL_MAT"
    type: str  # "f32"
    ne: tuple[int, ...]
    sources: tuple[str, ...]
    raw: bytes | None  # None: not contiguous

    def values(self) -> np.ndarray:
        """Row-major, four dimensions."""
        return np.frombuffer(self.raw, DTYPES[self.type]).reshape(self.ne[::-1])

    def rows(self) -> np.ndarray:
        """(everything but the last dimension, last dimension)"""
        return self.values().reshape(-1, self.ne[0])


def naive_capture(probe: Path, out: Path, command) -> tuple[list[Node], str]:
    """Every computed node in order, and what the host printed on stdout."""
    environment = {**os.environ, "LD_PRELOAD": str(probe), "GGML_NAIVE_OUT": str(out)}
    done = subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    payload = out.with_suffix(".bin").read_bytes()
    nodes = []
    for line in out.with_suffix(".txt").read_text().splitlines():
        graph, index, name, op, kind, ne, size, offset, sources = line.split("\t")
        begin = int(offset)
        raw = payload[begin : begin + int(size)] if begin >= 0 else None
        shape = tuple(map(int, ne.split(",")))
        nodes.append(Node(int(graph), int(index), name, op, kind, shape, tuple(sources.split("|")), raw))
    return nodes, done.stdout
