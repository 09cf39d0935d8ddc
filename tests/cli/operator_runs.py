# SPDX-License-Identifier: Apache-2.0
"""Runs at operator level written by hand, byte by byte as docs/formats/native.md has them.

The model: three blocks of `norm` (h = x * gain * scale, two operators) and `proj` (x = h @ weight), and a `head`
(logits = x @ weight). Every operator is computed in float64 from the stored bytes of its operands and rounded once, as
a strict kernel does, so a run without a planted fault is exact to rounding by construction.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Optional

import torch

WIDTH, ROWS, BLOCKS = 64, 24, 3
HEADER = 4096  # reserved for the safetensors header; readers go by the records

Change = Callable[[torch.Tensor], torch.Tensor]


@dataclass
class Plan:
    """What is captured, and what is wrong."""

    dtype: torch.dtype = torch.bfloat16
    level: str = "operator"  # "module": records of modules only
    statistics: bool = False  # no bytes
    weights: bool = True  # records of parameters
    steps: tuple[int, ...] = (0,)
    rows: int = ROWS
    seed: int = 0
    gains: dict[int, float] = field(default_factory=dict)  # block -> factor on its gain
    scales: dict[int, float] = field(default_factory=dict)  # block -> its scalar instead of 0.5
    kernels: dict[str, Change] = field(default_factory=dict)  # module -> change of its result inside the kernel
    stale: Optional[int] = None  # this block's proj reads the block's input, not its norm
    extra: Optional[int] = None  # this block's norm has one operator more, that changes nothing
    unknown: bool = False  # mm is called by a name that nobody knows
    lost_inputs: bool = False  # operators' inputs were not captured


class Writer:
    """Appends records of one rank and their payloads."""

    def __init__(self, folder: Path, plan: Plan):
        self.folder = folder / "rank0"
        self.folder.mkdir(parents=True)
        self.plan = plan
        self.payload = bytearray(HEADER)
        self.lines: list[str] = []
        self.n = 0

    def write(self, **keys: object) -> int:
        self.lines.append(json.dumps({"n": self.n, **keys}))
        self.n += 1
        return self.n - 1

    def tensor(self, value: torch.Tensor, keep: bool = True, **keys: object) -> int:
        described: dict[str, object] = {
            "dtype": str(value.dtype).removeprefix("torch."),
            "shape": list(value.shape),
            "strides": list(value.stride()),
        }
        if keep and not self.plan.statistics:
            self.payload.extend(b"\0" * (-len(self.payload) % 64))
            content = value.contiguous().view(torch.uint8).numpy().tobytes()
            described |= {"file": "step-000000.safetensors", "offset": len(self.payload), "bytes": len(content)}
            self.payload.extend(content)
        wide = value.double()
        finite = wide[torch.isfinite(wide)]
        described["stats"] = {
            "count": int(wide.numel()),
            "nan": int(wide.isnan().sum()),
            "pos_inf": int((wide == float("inf")).sum()),
            "neg_inf": int((wide == -float("inf")).sum()),
            "min": float(finite.min()),
            "max": float(finite.max()),
            "mean": float(finite.mean()),
            "l2": float(finite.norm()),
        }
        return self.write(**keys, **described)

    def close(self, program: tuple[str, ...]) -> None:
        (self.folder / "records.jsonl").write_text("\n".join(self.lines) + "\n")
        (self.folder / "step-000000.safetensors").write_bytes(self.payload)
        blocks = [
            {
                "name": f"blocks.{i}",
                "type": "Block",
                "children": [
                    {"name": f"blocks.{i}.norm", "type": "ScaleNorm", "children": []},
                    {"name": f"blocks.{i}.proj", "type": "Projection", "children": []},
                ],
            }
            for i in range(BLOCKS)
        ]
        tree = {
            "name": "",
            "type": "Tiny",
            "children": [
                {"name": "blocks", "type": "ModuleList", "children": blocks},
                {"name": "head", "type": "Projection", "children": []},
            ],
        }
        (self.folder / "topology.json").write_text(json.dumps(tree))
        manifest = {
            "format": "assay-run",
            "version": 1,
            "complete": True,
            "host": {"program": list(program)},
            "config": {"level": self.plan.level},
            "coverage": {"planned": 11, "captured": 11, "missed": []},
        }
        (self.folder.parent / "manifest.json").write_text(json.dumps(manifest))


@dataclass
class Value:
    tensor: torch.Tensor
    vid: int
    made_by: Optional[int] = None  # n of the output record
    leaf: str = ""


class Model:
    """Computes the model and writes down what a capture would have seen."""

    def __init__(self, folder: Path, plan: Plan):
        self.plan = plan
        self.out = Writer(folder, plan)
        self.vids = 0
        self.order = 0
        self.counts: dict[str, int] = {}
        generator = torch.Generator().manual_seed(1)
        self.leaves: dict[str, Value] = {}
        for name in [f"blocks.{i}.{part}" for i in range(BLOCKS) for part in ("norm.weight", "proj.weight")] + [
            "head.weight"
        ]:
            shape = (WIDTH,) if "norm" in name else (WIDTH, WIDTH)
            value = torch.randn(shape, generator=generator, dtype=torch.float64) / (1 if "norm" in name else WIDTH**0.5)
            if "norm" in name:
                value = 2 + 0.1 * value
                value = value.to(torch.float32).double() * plan.gains.get(int(name.split(".")[1]), 1.0)
            leaf = self.value(value.to(torch.float32).to(plan.dtype))
            leaf.leaf = name
            self.leaves[name] = leaf

    def value(self, tensor: torch.Tensor) -> Value:
        self.vids += 1
        return Value(tensor, self.vids)

    def keys(self, value: Value) -> dict[str, object]:
        keys: dict[str, object] = {"vid": value.vid, "storage": value.vid}
        if value.made_by is not None:
            keys["from"] = value.made_by
        if value.leaf:
            keys["leaf"] = value.leaf
        return keys

    def operator(self, step: int, module: str, name: str, arguments: dict[str, object]) -> Value:
        """One call: its line, its inputs, its output. Tensors among the arguments are Values."""
        compute = {
            "aten.mul.Tensor": lambda a: a["self"] * a["other"],
            "aten.mm.default": lambda a: a["self"] @ a["mat2"],
        }[name]
        wide = {k: v.tensor.double() if isinstance(v, Value) else v for k, v in arguments.items()}
        result = compute(wide).to(self.plan.dtype)
        if name == "aten.mm.default" and module in self.plan.kernels:
            result = self.plan.kernels[module](result.clone())
        if name == "aten.mul.Tensor" and module in self.plan.kernels and isinstance(arguments["other"], Value):
            result = self.plan.kernels[module](result.clone())
        made = self.value(result)
        if self.plan.level != "operator":
            return made
        shown = "mylib.product.default" if self.plan.unknown and name == "aten.mm.default" else name
        key = f"{step} {module} {shown}"
        k = self.counts[key] = self.counts.get(key, -1) + 1
        self.order += 1
        common = {"step": step, "node": f"{module}::{shown}.{k}", "type": shown, "order": self.order}
        args = {k: {"tensor": k} if isinstance(v, Value) else v for k, v in arguments.items()}
        self.out.write(**common, kind="operator", module=module, args=args)
        for slot, value in arguments.items():
            if isinstance(value, Value):
                self.out.tensor(
                    value.tensor, not self.plan.lost_inputs, **common, role="input", slot=slot, **self.keys(value)
                )
        made.made_by = self.out.tensor(result, **common, role="output", slot="", **self.keys(made))
        return made

    def module(self, step: int, name: str, kind: str, value: Value, body: Callable[[Value], Value]) -> Value:
        self.order += 1
        common = {"step": step, "node": name, "type": kind, "order": self.order}
        self.out.tensor(value.tensor, **common, role="input", slot="0", **self.keys(value))
        result = body(value)
        n = self.out.tensor(result.tensor, **common, role="output", slot="", **self.keys(result))
        if result.made_by is None:
            result.made_by = None if self.plan.level == "operator" else n
        return result

    def block(self, step: int, i: int, value: Value) -> Value:
        def norm(x: Value) -> Value:
            gain = self.leaves[f"blocks.{i}.norm.weight"]
            h = self.operator(step, f"blocks.{i}.norm", "aten.mul.Tensor", {"self": x, "other": gain})
            if self.plan.extra == i:
                h = self.operator(step, f"blocks.{i}.norm", "aten.mul.Tensor", {"self": h, "other": 1.0})
            scale = self.plan.scales.get(i, 0.5)
            return self.operator(step, f"blocks.{i}.norm", "aten.mul.Tensor", {"self": h, "other": scale})

        def proj(h: Value) -> Value:
            weight = self.leaves[f"blocks.{i}.proj.weight"]
            return self.operator(step, f"blocks.{i}.proj", "aten.mm.default", {"self": h, "mat2": weight})

        h = self.module(step, f"blocks.{i}.norm", "ScaleNorm", value, norm)
        return self.module(step, f"blocks.{i}.proj", "Projection", value if self.plan.stale == i else h, proj)

    def step(self, step: int) -> None:
        generator = torch.Generator().manual_seed(100 * self.plan.seed + step)
        first = torch.randn(self.plan.rows, WIDTH, generator=generator, dtype=torch.float32)
        # Both sides are fed the same values: those that the coarsest type can hold.
        start = self.value(first.to(torch.bfloat16).to(self.plan.dtype))

        def body(value: Value) -> Value:
            for i in range(BLOCKS):
                value = self.module(step, f"blocks.{i}", "Block", value, lambda x, i=i: self.block(step, i, x))
            head = self.leaves["head.weight"]
            return self.module(
                step,
                "head",
                "Projection",
                value,
                lambda x: self.operator(step, "head", "aten.mm.default", {"self": x, "mat2": head}),
            )

        self.module(step, "", "Tiny", start, body)


def write_run(folder: Path, program: tuple[str, ...] = ("python", "run.py"), **plan: object) -> Path:
    """Writes a run into `folder` and returns it; the plan's fields as keywords."""
    model = Model(folder, Plan(**plan))
    if model.plan.weights:
        for name, leaf in model.leaves.items():
            node, slot = name.rsplit(".", 1)
            kind = "ScaleNorm" if "norm" in node else "Projection"
            model.out.tensor(
                leaf.tensor, step=-1, node=node, type=kind, order=0, role="weight", slot=slot, **model.keys(leaf)
            )
    for step in model.plan.steps:
        model.step(step)
    model.out.close(program)
    return folder
