#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program that no probe knows, here plain NumPy, leaves a run that every command of assay reads.

python examples/own_host.py FOLDER [float16]

The format, with all that may be recorded besides: docs/formats/native.md.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np


class Capture:
    """Writes a native run: a line of records.jsonl a tensor, after its bytes."""

    def __init__(self, folder: str) -> None:
        self.folder, self.rank = Path(folder), Path(folder) / "rank0"
        self.rank.mkdir(parents=True)
        self.write_manifest(complete=False)
        self.lines = (self.rank / "records.jsonl").open("w")
        self.data = (self.rank / "step-000000.safetensors").open("wb")
        self.data.write(bytes(4096))  # room for the header, which readers of a run do not need
        self.count = 0

    def write_manifest(self, complete: bool) -> None:
        text = json.dumps({"format": "assay-run", "version": 1, "complete": complete})
        (self.folder / "manifest.json").write_text(text)

    def output(self, node: str, kind: str, array: np.ndarray) -> None:
        data = np.ascontiguousarray(array).tobytes()
        record = {"n": self.count, "step": 0, "node": node, "type": kind, "order": self.count}
        record |= {"role": "output", "slot": "", "dtype": str(array.dtype), "shape": list(array.shape)}
        record |= {"file": "step-000000.safetensors", "offset": self.data.tell(), "bytes": len(data)}
        self.data.write(data.ljust(-(-len(data) // 64) * 64, b"\0"))  # payloads begin at multiples of 64
        self.data.flush()  # before its line: a killed program leaves no line without bytes
        self.lines.write(json.dumps(record) + "\n")
        self.lines.flush()
        self.count += 1

    def close(self) -> None:
        self.write_manifest(complete=True)


def main() -> None:
    capture, random = Capture(sys.argv[1]), np.random.default_rng(0)
    dtype = np.dtype(sys.argv[2] if len(sys.argv) > 2 else "float32")
    x = random.standard_normal((4, 64)).astype(np.float32)
    for layer in range(3):
        weight = random.standard_normal((64, 64)).astype(np.float32) / 8
        x = np.tanh(x.astype(dtype) @ weight.astype(dtype)).astype(np.float32)
        capture.output(f"layers.{layer}", "Layer", x)
    capture.close()


if __name__ == "__main__":
    main()
