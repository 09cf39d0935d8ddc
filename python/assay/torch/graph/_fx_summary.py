# SPDX-License-Identifier: Apache-2.0
"""``config.debug.fx_summary``: which Aten operators a graph calls, how often, with what, and what GE calls them."""

from __future__ import annotations

import csv
from collections import Counter
from typing import Any

import torch
from torch import fx

from assay.torch.graph._names import known_type

__all__ = ["HEADER", "summary_rows", "write_summary"]

HEADER = ("Target", "Kind", "Status", "Calls", "Inputs", "Outputs")


def write_summary(module: fx.GraphModule, path: str) -> None:
    """Writes the table as csv with a byte order mark, as spreadsheets want it.

    Raises:
        OSError: the file cannot be written.
    """
    with open(path, "w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        writer.writerows(summary_rows(module))


def summary_rows(module: fx.GraphModule) -> list[list[str]]:
    """One row a target, in the order of their first call.

    Inputs and outputs are lines ``{count}x {description}``, the most frequent first; a tensor is described by its dtype
    and shape as they were known when the graph was compiled: ``float32[2, s0]``.
    """
    calls: dict[Any, list[tuple[str, str]]] = {}
    for node in module.graph.nodes:
        if node.op == "call_function":
            arguments = ", ".join(
                [_describe(value) for value in node.args]
                + [f"{name}={_describe(value)}" for name, value in node.kwargs.items()]
            )
            calls.setdefault(node.target, []).append((arguments, _describe(node)))
    return [
        [
            _target_name(target),
            *_kind_and_status(target),
            str(len(made)),
            _counted(inputs for inputs, _ in made),
            _counted(outputs for _, outputs in made),
        ]
        for target, made in calls.items()
    ]


def _counted(texts: Any) -> str:
    return "\n".join(f"{count}x {text}" for text, count in Counter(texts).most_common())


def _target_name(target: Any) -> str:
    return str(target) if isinstance(target, torch._ops.OpOverload) else getattr(target, "__name__", str(target))


def _kind_and_status(target: Any) -> tuple[str, str]:
    if not isinstance(target, torch._ops.OpOverload):
        return "builtin", "runs on the host"
    name = target._schema.name.partition("::")[2]
    known = known_type(name, target.namespace)
    return target.namespace, f"known as {known}" if known else "no counterpart known"


def _describe(value: Any) -> str:
    if isinstance(value, fx.Node):
        return _describe(value.meta.get("val", value.name))
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_describe(item) for item in value) + "]"
    return str(value)
