# SPDX-License-Identifier: Apache-2.0
"""A run on one screen of a notebook."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from assay import _html

if TYPE_CHECKING:
    from assay._run import Run

__all__ = ["run_fragment"]

# Of `Run.properties`, with what they are called.
_PROPERTIES = (
    ("host.program", "program"),
    ("tool", "captured by"),
    ("started", "started"),
    ("host.hostname", "machine"),
    ("host.python", "Python"),
    ("host.torch", "PyTorch"),
    ("host.transformers", "transformers"),
    ("config.level", "level"),
    ("config.data", "values"),
)


def run_fragment(run: Run) -> str:
    """Returns where the run is from, what it has, whether all of it is there, and its first modules."""
    state = "damaged" if run.damage else "complete" if run.coverage.complete else "incomplete"
    planned = run.coverage.planned
    known = [
        ("path", _html.code(run.path)),
        *((title, _plain(run.properties.get(key, ""))) for key, title in _PROPERTIES),
        ("steps", _numbers(run.steps)),
        ("ranks", _numbers(run.ranks)),
        ("captured", f"{run.coverage.captured} of {planned} nodes" if planned else ""),
    ]
    modules = _modules(run)
    return _html.fragment(
        "Run",
        f"{run.layout}, {len(run)} records, {state}",
        _html.facts(known),
        _html.table(
            "modules" if run.tree else "nodes",
            ("name", "type", "tensors", "output", "code"),
            [_module_row(run, name) for name in modules[: _html.MOST_ROWS]],
            len(modules),
        ),
        _html.sentences("warnings:", [*(f"{file}: {what}" for file, what in run.damage), *run.warnings]),
        tone={"damaged": "bad", "incomplete": "open"}.get(state, ""),
    )


def _modules(run: Run) -> list[str]:
    """Nodes with records that are modules, where the run knows which ones are."""
    if run.tree is None:
        return run.nodes
    modules = {node.name for node in run.tree.walk()}
    return [node for node in run.nodes if node in modules]


def _module_row(run: Run, name: str) -> list[Any]:
    """Name, type, number of tensors, type and shape of the first output or else of the first tensor, code."""
    records = [record for record in run.named(name) if not record.value]
    node = None if run.tree is None else next((node for node in run.tree.walk() if node.name == name), None)
    kind = node.type if node else records[0].op_type if records else ""
    output: object = ""
    if records:
        dtype, shape, problem = next((r for r in records if r.role == "output"), records[0])._type_and_shape()
        output = _html.prose(problem) if problem else f"{dtype or '?'} {'?' if shape is None else list(shape)}"
    source = node.source if node else ""
    return [_html.code(name or "(model)"), _html.code(kind), len(records), output, _html.code(source)]


def _plain(value: str) -> str:
    """A command line as one types it; anything else as it is."""
    try:
        words = json.loads(value)
    except ValueError:
        return value
    return shlex.join(words) if isinstance(words, list) and all(isinstance(word, str) for word in words) else value


def _numbers(numbers: Sequence[int]) -> str:
    """``"0-3, 7"``"""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in ranges)
