# SPDX-License-Identifier: Apache-2.0
"""Dumps of single operations made by hand, and what `assay opcheck` says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Optional

import numpy as np
from assay_command import run

# aclDataType, docs/formats/atb-bin.md; arrays of types that NumPy lacks are given as (bits, name).
ACL = {
    "float32": 0,
    "float16": 1,
    "int8": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 6,
    "uint16": 7,
    "uint32": 8,
    "int64": 9,
    "uint64": 10,
    "float64": 11,
    "bool": 12,
    "bfloat16": 27,
    "hifloat8": 34,
    "float8_e5m2": 35,
    "float8_e4m3fn": 36,
}
ND, FRACTAL_NZ = 2, 29


def to_bf16(values) -> tuple[np.ndarray, str]:
    """float32 values rounded to nearest even, as (bits, "bfloat16")."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return rounded.astype(np.uint16), "bfloat16"


def from_bf16(tensor) -> np.ndarray:
    bits, _ = tensor
    return (bits.astype(np.uint32) << 16).view(np.float32)


def write_tensor(path: Path, tensor, file_format: int = ND) -> None:
    """One tensor file; `tensor` is an array or (bits, type name)."""
    array, name = tensor if isinstance(tensor, tuple) else (tensor, np.asarray(tensor).dtype.name)
    array = np.asarray(array)
    data = np.ascontiguousarray(array).tobytes()
    dims = ",".join(map(str, array.shape))
    head = (
        f"$Version=1.0\n$Object.Count=1\n$Object.Length={len(data)}\nformat={file_format}\ndtype={ACL[name]}\n"
        f"dims={dims}\n$Object.data=0,{len(data)}\n$End=1\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head.encode() + data)


def write_operation(
    run_folder: Path,
    folder: str,
    parameters: Optional[dict],
    inputs: list,
    outputs: list,
    before: Optional[list] = None,
    nz: tuple[str, ...] = (),
) -> Path:
    """Writes one operation below a token folder (`.../tensors/0_4711/0`), for example "0_RmsNormOperation".

    inputs   what after/ holds; None leaves a number out
    before   inputs as they were before the operation; None: dumped after it only
    nz       names of the files whose format is FRACTAL_NZ: "intensor1"
    """
    place = run_folder / folder
    place.mkdir(parents=True, exist_ok=True)
    if parameters is not None:
        (place / "op_param.json").write_text(json.dumps(parameters, separators=(",", ":")) + "\n")
    (place / "after").mkdir(exist_ok=True)
    for moment, kind, tensors in (
        ("after", "intensor", inputs),
        ("after", "outtensor", outputs),
        ("before", "intensor", before or []),
    ):
        for number, tensor in enumerate(tensors):
            if tensor is not None:
                name = f"{kind}{number}"
                write_tensor(place / moment / f"{name}.bin", tensor, FRACTAL_NZ if name in nz else ND)
    return place


def run_folder_of(root: Path, device: int = 0, pid: int = 4711, step: int = 0) -> Path:
    return root / "msit_dump_20250102_030405" / "tensors" / f"{device}_{pid}" / str(step)


def opcheck(path: Path, output: Path, *options: str, status: Optional[int] = None) -> list[dict[str, Any]]:
    """Rows of the .jsonl report, one an output."""
    output.mkdir(parents=True, exist_ok=True)
    done = run("opcheck", path, "-o", output, "--format", "jsonl", *options)
    expected = (0, 1, 125) if status is None else (status,)
    assert done.returncode in expected, (done.returncode, done.stdout, done.stderr)
    reports = sorted(output.glob("opcheck_result_*.jsonl"))
    assert reports, (done.stdout, done.stderr)
    return [json.loads(line) for line in reports[-1].read_text().splitlines()]


def check(
    tmp_path: Path, op_type: str, parameters: Optional[dict], inputs: list, outputs: list, *options: str, **more
) -> list:
    """Rows of a dump that holds one operation: keys "result", "reason", "note", "variant" and the report's columns."""
    place = run_folder_of(tmp_path / "dump")
    write_operation(place, f"0_{op_type}", parameters, inputs, outputs, **more)
    return opcheck(place, tmp_path / "report", *options)
