# SPDX-License-Identifier: Apache-2.0
"""Captures of the laboratory: one at operator level, and thinner ones made of it by leaving records out."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, Callable, Optional

import torch

import assay
from bench import record_lines, sealing

LEVELS = ("O", "L", "M", "B", "N", "S")


_OPERATOR_KEYS = ("vid", "storage", "storage_offset", "version", "from", "same_as")
_PAYLOAD_KEYS = ("file", "offset", "bytes", "view")


def _empty(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def capture(
    model: torch.nn.Module,
    tokens: torch.Tensor,
    folder: Path,
    beneath: Optional[contextlib.AbstractContextManager[Any]] = None,
    drive: Optional[Callable[[], None]] = None,
) -> None:
    """Runs the model once and captures it at operator level.

    The fault is planted first: weights are recorded as they are then, and the capture's mode lies above the fault's.

    Args:
        drive: runs the model, when that is more than one call with the tokens.
    """
    _empty(folder)
    fault = beneath or contextlib.nullcontext()
    with torch.no_grad(), fault, assay.capture(model, folder, level="operator", weights=True):
        if drive is None:
            model(input_ids=tokens, use_cache=False)
        else:
            drive()


def capture_chunks(model: torch.nn.Module, tokens: torch.Tensor, folder: Path) -> None:
    """The same in two chunks through a key/value cache: two steps."""
    _empty(folder)
    half = tokens.shape[1] // 2
    with torch.no_grad(), assay.capture(model, folder, level="operator", weights=True):
        first = model(input_ids=tokens[:, :half], use_cache=True)
        name = "past_key_values" if first.get("past_key_values") is not None else "cache_params"
        model(input_ids=tokens[:, half:], use_cache=True, **{name: first[name]})


def capture_compiled(model: torch.nn.Module, tokens: torch.Tensor, folder: Path, layer: str, count: int) -> None:
    """The same with every decoder layer compiled; only what the layers return is seen."""
    _empty(folder)
    for number in range(count):
        model.get_submodule(layer.format(number)).compile()
    with torch.no_grad():
        model(input_ids=tokens, use_cache=False)  # compiles
        with assay.capture(model, folder, weights=True):
            model(input_ids=tokens, use_cache=False)


def thinned(run: Path, level: str, folder: Path, layer_prefix: str) -> Path:
    """A copy of a capture at operator level as a coarser one would have left it; step files are hard links.

    level  "O" the run itself; "L" inputs and outputs of leaf modules, what the model returns, weights; "M" outputs of
           all modules, weights; "B" outputs of decoder layers; "N" inputs and outputs of all modules; "S" statistics
           of these and of weights
    """
    if level == "O":
        return run
    if folder.exists():
        shutil.rmtree(folder)
    (folder / "rank0").mkdir(parents=True)
    for file in (run / "rank0").iterdir():
        if file.name != "records.jsonl":
            os.link(file, folder / "rank0" / file.name)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["config"]["level"] = "module"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    leaves = _leaf_modules(json.loads((run / "rank0" / "topology.json").read_text()))
    with (
        open(run / "rank0" / "records.jsonl", encoding="utf-8") as source,
        open(folder / "rank0" / "records.jsonl", "w", encoding="utf-8") as target,
    ):
        for record in record_lines.whole(source):
            if _kept(record, level, leaves, layer_prefix):
                for key in _OPERATOR_KEYS if level != "S" else _OPERATOR_KEYS + _PAYLOAD_KEYS:
                    record.pop(key, None)
                target.write(json.dumps(record) + "\n")
    sealing.reseal(folder, files=[])
    return folder


def _leaf_modules(node: dict[str, Any]) -> set[str]:
    children = node.get("children", [])
    if not children:
        return {node["name"]}
    return set().union(*(_leaf_modules(child) for child in children))


def _kept(record: dict[str, Any], level: str, leaves: set[str], layer_prefix: str) -> bool:
    node = record["node"]
    if "::" in node:
        return False
    role = record.get("role")
    if role in ("weight", "buffer"):
        return level in ("L", "M", "S")
    if level in ("N", "S"):
        return True
    if level == "L":
        return node in leaves or (not node and role == "output")  # what the model returns, as every capture has
    if role != "output":
        return False
    if level == "M":
        return True
    return node.startswith(layer_prefix) and node[len(layer_prefix) :].isdigit()
