# SPDX-License-Identifier: Apache-2.0
"""ATB dumps written by hand from docs/formats, for tests that need no host."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

_ACL = {"float32": 0, "float16": 1, "int8": 2, "int32": 3, "int64": 9, "bool": 12}


def write_bin(path: Path, array: np.ndarray) -> None:
    """A tensor file: key=value lines, $End=1, then the bytes."""
    data = np.ascontiguousarray(array).tobytes()
    dims = ",".join(map(str, array.shape))
    head = "$Version=1.0\n$Object.Count=1\n$Object.Length=%d\nformat=2\ndtype=%d\ndims=%s\n$Object.data=0,%d\n$End=1\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((head % (len(data), _ACL[array.dtype.name], dims, len(data))).encode() + data)


def node(name: str, kind: str, *children: dict) -> dict:
    """A node of a topology: opName "LmHead_14", opType "LmHead"."""
    return {"opName": name, "opType": kind, "inTensors": [], "outTensors": [], "nodes": list(children)}


def write_topology(root: Path, pid: int, model_name: str, nodes: list[dict]) -> None:
    folder = root / "model" / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{model_name}.json").write_text(json.dumps({"modelName": model_name, "nodes": nodes}))
