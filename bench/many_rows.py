# SPDX-License-Identifier: Apache-2.0
"""Writes two runs of one decoder in the native layout, with small tensors and many of them.

    python -m bench.many_rows FOLDER [ROWS]

FOLDER/golden and FOLDER/mine have the inputs and outputs of every module of a decoder of 80 layers, fp32 [1, 1, 64],
with their statistics as a capture has them, over as many steps as ROWS (200 000) need. Mine differs by noise that
grows with depth, and by a gain of 3 % behind a norm in the middle. Layout: docs/formats/native.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy

LAYERS = 80
WIDTH = 64
FAULT = "model.layers.40.input_layernorm"
STATES = "kwargs.hidden_states"

# Modules of a layer in execution order: name, class, slots of its inputs
MODULES = [
    ("", "LlamaDecoderLayer", ["0"]),
    (".input_layernorm", "LlamaRMSNorm", ["0"]),
    (".self_attn", "LlamaAttention", [STATES, "kwargs.position_embeddings.0", "kwargs.position_embeddings.1"]),
    (".self_attn.q_proj", "Linear", ["0"]),
    (".self_attn.k_proj", "Linear", ["0"]),
    (".self_attn.v_proj", "Linear", ["0"]),
    (".self_attn.o_proj", "Linear", ["0"]),
    (".post_attention_layernorm", "LlamaRMSNorm", ["0"]),
    (".mlp", "LlamaMLP", ["0"]),
    (".mlp.gate_proj", "Linear", ["0"]),
    (".mlp.up_proj", "Linear", ["0"]),
    (".mlp.down_proj", "Linear", ["0"]),
]


def tensors_of_step() -> Iterator[tuple[str, str, str, str]]:
    """node, class, role and slot of each tensor of one step, in execution order."""
    for layer in range(LAYERS):
        for name, kind, inputs in MODULES:
            node = f"model.layers.{layer}{name}"
            for slot in inputs:
                yield node, kind, "input", slot
            yield node, kind, "output", "0" if name == ".self_attn" else ""


def topology() -> dict[str, Any]:
    """The tree of modules as rank0/topology.json has it."""
    nodes: dict[str, dict[str, Any]] = {}

    def add(name: str, kind: str) -> None:
        nodes[name] = {"name": name, "type": kind, "aliases": [], "parameters": [], "children": []}
        if name:
            nodes[name.rpartition(".")[0]]["children"].append(nodes[name])

    for name, kind in (("", "LlamaForCausalLM"), ("model", "LlamaModel"), ("model.layers", "ModuleList")):
        add(name, kind)
    for layer in range(LAYERS):
        for name, kind, _ in MODULES:
            add(f"model.layers.{layer}{name}", kind)
    return nodes[""]


def write_step_file(path: Path, names: list[str], payload: numpy.ndarray) -> int:
    """A safetensors file of fp32 rows; returns where the payload starts."""
    size = payload[0].nbytes
    entries = {
        name: {"dtype": "F32", "shape": [1, 1, WIDTH], "data_offsets": [i * size, (i + 1) * size]}
        for i, name in enumerate(names)
    }
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-(len(header) + 8) % 4096)
    path.write_bytes(len(header).to_bytes(8, "little") + header + payload.tobytes())
    return 8 + len(header)


def values_of(golden: bool, step: int, nodes: list[str]) -> numpy.ndarray:
    """One row of WIDTH values a tensor; both sides draw the same golden values."""
    values = numpy.random.default_rng(step).standard_normal((len(nodes), WIDTH)).astype(numpy.float32)
    if golden:
        return values
    depth = numpy.linspace(1e-4, 3e-3, len(nodes), dtype=numpy.float32)[:, None]
    noise = numpy.random.default_rng(10_000 + step).standard_normal(values.shape).astype(numpy.float32)
    gain = numpy.array([1.03 if node == FAULT else 1.0 for node in nodes], numpy.float32)[:, None]
    return values * (1 + depth * noise) * gain


def statistics_of(payload: numpy.ndarray) -> list[dict[str, float]]:
    """Statistics of each row, as lines of records have them."""
    wide = payload.astype(numpy.float64)
    columns = [payload.min(1), payload.max(1), wide.mean(1), numpy.sqrt((wide * wide).sum(1))]
    rows = numpy.stack([column.astype(numpy.float64) for column in columns], 1).tolist()
    return [dict(zip(("count", "min", "max", "mean", "l2"), (payload.shape[1], *row))) for row in rows]


def write_run(folder: Path, golden: bool, rows: int) -> None:
    """One side."""
    tensors = list(tensors_of_step())
    names = [node for node, _, _, _ in tensors]
    steps = -(-rows // len(tensors))
    rank = folder / "rank0"
    rank.mkdir(parents=True)
    (rank / "topology.json").write_text(json.dumps(topology()))
    with open(rank / "records.jsonl", "w") as lines:
        for step in range(steps):
            file = f"step-{step:06}.safetensors"
            first = step * len(tensors)
            keys = [f"{first + i}:{node}.{role}.{slot}" for i, (node, _, role, slot) in enumerate(tensors)]
            payload = values_of(golden, step, names)
            statistics = statistics_of(payload)
            start = write_step_file(rank / file, keys, payload)
            for i, (node, kind, role, slot) in enumerate(tensors):
                line = {"n": first + i, "step": step, "node": node, "type": kind, "order": i, "role": role}
                line |= {"slot": slot, "dtype": "float32", "shape": [1, 1, WIDTH], "file": file}
                line |= {"offset": start + i * WIDTH * 4, "bytes": WIDTH * 4}
                line["stats"] = statistics[i]
                lines.write(json.dumps(line, separators=(",", ":")) + "\n")
    manifest = {"format": "assay-run", "version": 1, "tool": "assay bench", "complete": True}
    manifest["config"] = {"level": "module", "data": "full"}
    manifest["coverage"] = {"planned": len(names), "captured": len(names), "missed": []}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def main() -> None:
    """Writes both sides."""
    folder, rows = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 200_000
    for side in ("golden", "mine"):
        write_run(folder / side, side == "golden", rows)
        print(folder / side)


if __name__ == "__main__":
    main()
