# SPDX-License-Identifier: Apache-2.0
"""What a script does in place of `assay opcheck`: goldens of a dump's operations in torch, float64, on the CPU.

    python bench/rivals/torch_opcheck.py DUMP

Covers the operations of bench/opcheck_speed.py with the element rule of ATB's own tests. Prints a line of JSON: cases,
how many pass, and the seconds from the first file on, without the import of torch.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

DTYPES: dict[str, Any] = {"0": np.float32, "1": np.float16, "3": np.int32, "9": np.int64}
HEADER_BYTES = 4096  # more than any header has


def read_tensor(path: str) -> torch.Tensor:
    """Maps one tensor file; text lines `key=value` up to `$End=1`, then the data."""
    with open(path, "rb") as file:
        head = file.read(HEADER_BYTES)
    end = head.index(b"$End=1\n") + len(b"$End=1\n")
    fields = dict(line.split("=", 1) for line in head[:end].decode().splitlines())
    shape = tuple(int(size) for size in fields["dims"].split(","))
    data = np.memmap(path, DTYPES[fields["dtype"]], "c", end, shape)
    return torch.from_numpy(data)


def softmax_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, bias: Any) -> torch.Tensor:
    """q [m, H, D], k and v [n, G, D], bias [m, n] or None; returns [m, H, D]."""
    repeat = q.shape[1] // k.shape[1]
    q, k, v = (x.transpose(0, 1) for x in (q, k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)))
    scores = q @ k.transpose(1, 2) * scale
    if bias is not None:
        scores = scores + bias
    return (torch.softmax(scores, -1) @ v).transpose(0, 1)


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x [T, heads * D], cos and sin [T, D]; halves of a head are the pairs."""
    heads = x.reshape(len(x), -1, cos.shape[1])
    u, v = heads.chunk(2, -1)
    return (heads * cos[:, None] + torch.cat([-v, u], -1) * sin[:, None]).reshape(x.shape)


def goldens(name: str, parameters: dict[str, Any], ins: list[torch.Tensor]) -> list[torch.Tensor]:
    """Float64 results of one operation."""
    wide = [x.double() if x.is_floating_point() else x for x in ins]
    if name == "RmsNormOperation":
        epsilon = parameters["normParam"]["epsilon"]
        return [wide[0] * wide[1] * torch.rsqrt(wide[0].square().mean(-1, keepdim=True) + epsilon)]
    if name == "LinearOperation":
        return [wide[0] @ wide[1].T]
    if name == "RopeOperation":
        return [rotated(x, wide[2], wide[3]) for x in wide[:2]]
    if name == "ElewiseOperation":
        return [wide[0] + wide[1] if parameters["elewiseType"] == 8 else wide[0] * wide[1]]
    if name == "ActivationOperation":
        return [wide[0] * torch.sigmoid(wide[0])]
    heads, kv_heads, scale = parameters["headNum"], parameters["kvHeadNum"], parameters["qkScale"]
    if name == "SelfAttentionOperation":
        tokens = len(wide[0])
        q, k, v = (x.reshape(tokens, n, -1) for x, n in zip(wide, (heads, kv_heads, kv_heads)))
        return [softmax_attention(q, k, v, scale, wide[3]).reshape(wide[0].shape)]
    assert name == "PagedAttentionOperation", name
    table, length = ins[3][0].long(), int(ins[4][0])
    k, v = (cache[table].flatten(0, 1)[:length] for cache in wide[1:3])
    return [softmax_attention(wide[0], k, v, scale, None)]


def limit(name: str, terms: int) -> float:
    """The largest error of a float16 result, relative to max(1, |golden|)."""
    if name in ("RmsNormOperation", "ActivationOperation"):
        return 2.0**-9
    return 2.0**-7 if terms >= 2048 else 2.0**-8


def check(folder: Path) -> bool:
    """Reads, recomputes and judges one operation."""
    name = folder.name.split("_")[-1]
    parameters = json.loads((folder / "op_param.json").read_text())
    after = os.path.join(folder, "after")
    names = sorted(os.listdir(after))
    ins, outs = ([read_tensor(os.path.join(after, n)) for n in names if n.startswith(k)] for k in ("in", "out"))
    terms = ins[1].shape[-1] if name == "LinearOperation" else 0
    worst = limit(name, terms)
    passed = True
    for golden, mine in zip(goldens(name, parameters, ins), outs):
        error = (mine.double() - golden).abs()
        passed = passed and bool((error <= worst * golden.abs().clamp(min=1)).all())
    return passed


def main() -> None:
    """Checks every folder that has `after`."""
    start = time.perf_counter()
    with torch.inference_mode():
        results = [check(path.parent) for path in sorted(Path(sys.argv[1]).rglob("after"))]
    seconds = time.perf_counter() - start
    print(json.dumps({"cases": len(results), "passed": sum(results), "seconds": seconds}))


if __name__ == "__main__":
    main()
