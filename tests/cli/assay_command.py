# SPDX-License-Identifier: Apache-2.0
"""Runs the native command under its new and old names, and builds the runs that the tests compare."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch


def binary() -> str:
    """ASSAY_BINARY, or the command beside this Python, or the one on PATH."""
    named = os.environ.get("ASSAY_BINARY")
    if named:
        return named
    beside = Path(sys.executable).with_name("assay")
    found = str(beside) if beside.exists() else shutil.which("assay")
    assert found, "the command assay is not installed; set ASSAY_BINARY"
    return found


def run(*arguments, name="assay", cwd=None, stdout=subprocess.PIPE, errors="surrogateescape", **kwargs):
    """Runs the command; `name` is argv[0], so that msit and ait can be tried."""
    return subprocess.run(
        [name, *(os.fsdecode(a) if isinstance(a, bytes) else str(a) for a in arguments)],
        executable=binary(),
        cwd=cwd,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        errors=errors,
        timeout=120,
        env={**os.environ, "NO_COLOR": "1", "LC_ALL": "C.UTF-8"},
        **kwargs,
    )


def read_csv(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def the_report(folder, pattern="msit_cmp_report_*.csv"):
    found = sorted(Path(folder).glob(pattern))
    assert len(found) == 1, found
    return found[0]


def llama_tree(layer_count, layer_type="LlamaDecoderLayer"):
    def node(name, kind, *children):
        return {"name": name, "type": kind, "children": list(children)}

    layers = [
        node(
            f"root.model.layers.{i}",
            layer_type,
            node(f"root.model.layers.{i}.self_attn", "LlamaAttention"),
            node(f"root.model.layers.{i}.mlp", "LlamaMLP"),
        )
        for i in range(layer_count)
    ]
    model = node(
        "root.model",
        "LlamaModel",
        node("root.model.embed_tokens", "Embedding"),
        node("root.model.layers", "ModuleList", *layers),
        node("root.model.norm", "LlamaRMSNorm"),
    )
    return node("root", "LlamaForCausalLM", model, node("root.lm_head", "Linear"))


def write_torch_tree(root: Path, layer_count=12, tokens=(0,), change=lambda name, tensor: tensor, pid=1, seed=0):
    """A strict hook dump with one output a module; returns the {device}_{pid} folder.

    change: gets the module's name and its tensor, returns what is written (a tensor, or a tuple of files' contents).
    """
    rank = root / "msit_dump_20250220_083154" / "torch_tensors" / f"cpu_{pid}"
    tree = llama_tree(layer_count)
    rank.mkdir(parents=True)
    (rank / "model_tree.json").write_text(json.dumps(tree))
    generator = torch.Generator().manual_seed(seed)

    def write(node, token):
        tensor = torch.randn(2, 8, generator=generator)
        if node["type"] != "ModuleList":
            folder = rank / str(token) / node["name"]
            folder.mkdir(parents=True)
            torch.save(tensor, folder / "input_0.pth")
            content = change(node["name"], tensor.clone())
            named = content if isinstance(content, dict) else {"output": content}
            for stem, value in named.items():
                torch.save(value, folder / f"{stem}.pth")
        for child in node["children"]:
            write(child, token)

    for token in tokens:
        write(tree, token)
    return rank


def write_small_hook_dump(folder: Path) -> None:
    """Two steps of three modules, a weight and a module tree: what register_hook leaves in `folder`."""
    rank = folder / "msit_dump_20250220_083154" / "torch_tensors" / "cpu_77"
    names = {"root.norm": "RMSNorm", "root.embed": "Embedding", "root.a_head": "Linear"}
    rank.mkdir(parents=True)
    children = [{"name": name, "type": kind, "children": []} for name, kind in names.items()]
    (rank / "model_tree.json").write_text(json.dumps({"name": "root", "type": "TinyLM", "children": children}))
    for step in (0, 1):
        for name in names:
            place = rank / str(step) / name
            place.mkdir(parents=True)
            torch.save(torch.arange(6, dtype=torch.bfloat16).reshape(2, 3), place / "input_0.pth")
            torch.save(torch.full((2, 3), float(step)), place / "output.pth")
    (rank / "weights").mkdir()
    torch.save(torch.nn.Parameter(torch.ones(3)), rank / "weights" / "root.norm.weight.pth")


def write_native_run(folder: Path, records: list[dict], host: dict | None = None) -> Path:
    """A run of one rank from lines of records.jsonl, which are outputs in step 0 unless they say otherwise."""
    rank = folder / "rank0"
    rank.mkdir(parents=True)
    manifest = {"format": "assay-run", "version": 1, "complete": True, "host": host or {}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    common = {"step": 0, "role": "output", "slot": "", "dtype": "float32", "shape": [4]}
    lines = [json.dumps({"n": n, **({} if "kind" in r else common), "step": 0, **r}) for n, r in enumerate(records)]
    (rank / "records.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def write_sparse_npy(path: Path, element_count: int, descr: str = "<f4") -> None:
    """Zeros that take no room on the disk."""
    path.parent.mkdir(exist_ok=True)
    with open(path, "wb") as file:
        header = {"descr": descr, "fortran_order": False, "shape": (element_count,)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + np.dtype(descr).itemsize * element_count)


def has_mapped(pid: int, folder: Path) -> bool:
    """Whether the command reads a file of the folder; from then on Ctrl-C is its own."""
    return str(folder) in Path(f"/proc/{pid}/maps").read_text()
