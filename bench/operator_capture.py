# SPDX-License-Identifier: Apache-2.0
"""What a capture at operator level adds to a step: ours, a mode that does nothing, and a mode with torch reductions.

    none                  the model alone
    empty Python mode     a TorchDispatchMode that only calls on: what Python adds before anybody looks
    operators, off        assay.capture(level="operator") installed, the steps are outside the wanted ones
    operators, empty      the same, inside: every operator is seen and none is wanted
    operators, statistics of outputs; of inputs too; full
    mode, four torch reductions   min, max, mean and norm of every output by torch, in a TorchDispatchMode

and with RIVALS=1 torch's DebugMode and torchlens (bench/rivals/tools.py).

Alternation, samples and ratios are those of bench/capture_overhead.py.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Optional

from bench import models, record_lines
from bench.capture_overhead import COLUMNS, CPU_COLUMNS, rows_of, run_child, with_rivals
from bench.measure import load_average, machine
from bench.report import FAILED, NOT_AVAILABLE, Row, Section
from bench.variants import NEVER, AssayCapture, Variant

GOALS: dict[str, dict[str, float]] = {
    "operators, statistics of outputs": {"S": 1.25, "M": 1.15},
    "operators, statistics": {"S": 1.5, "S-decode": 1.35, "M": 1.5},
    "operators, full": {"S-decode": 1.4, "M": 1.12},
}
# The package that a group of bench/rivals/tools.py needs; none: torch has it.
RIVAL_GROUPS = {"debug-mode": "", "torchlens": "torchlens"}
# Operators of a step in no_grad: fewer means that some were missed.
OPERATORS = {"S": 500, "S-decode": 500, "M": 750}


class OperatorCapture(AssayCapture):
    """`assay.capture(level="operator")`."""

    def __init__(self, name: str, data: str, **options: Any) -> None:
        super().__init__(name, data, options.get("steps"))
        self._options = options

    def attach(self, model: Any, folder: Path) -> None:
        """Starts the capture."""
        import assay

        self._capture = assay.capture(model, str(folder), data=self._data, level="operator", **self._options)

    def check(self, folder: Path, steps: int, spec: models.ModelSpec) -> None:
        """Counts operators and statistics."""
        records = [record for path in folder.rglob("records.jsonl") for record in record_lines.read(path)]
        operators = sum(record.get("kind") == "operator" for record in records)
        wanted = 0 if "include" in self._options or self._steps is not None else steps * OPERATORS[spec.name]
        if operators < wanted or (operators and not wanted):
            raise RuntimeError(f"{self.name}: {operators} operators in {steps} steps, expected {wanted}")
        tensors = [record for record in records if record.get("kind", "tensor") == "tensor"]
        if self._data != "none" and not all("stats" in record for record in tensors):
            raise RuntimeError(f"{self.name}: a tensor record has no statistics")


class Mode(Variant):
    """A TorchDispatchMode in Python around the steps."""

    def __init__(self, name: str, reductions: bool) -> None:
        self.name = name
        self._reductions = reductions
        self._mode: Any = None

    def attach(self, model: Any, folder: Path) -> None:
        """Enters the mode."""
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode

        rows: list[Any] = []
        reductions = self._reductions

        class Watch(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                result = func(*args, **(kwargs or {}))
                if reductions:
                    for value in result if isinstance(result, (tuple, list)) else (result,):
                        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
                            rows.append((str(func), value.min(), value.max(), value.mean(), value.norm()))
                return result

        self._rows = rows
        self._mode = Watch()
        self._mode.__enter__()

    def flush(self) -> None:
        """Reads the numbers, as a table would need them."""
        self._table = [(name, *(float(value) for value in values)) for name, *values in self._rows]
        self._rows.clear()

    def detach(self) -> None:
        """Leaves the mode."""
        self._mode.__exit__(None, None, None)


VARIANTS: list[Any] = [
    lambda: Variant(),
    lambda: Mode("empty Python mode", reductions=False),
    lambda: OperatorCapture("operators, off", "stats", steps=[NEVER]),
    lambda: OperatorCapture("operators, empty", "stats", include="no such module"),
    lambda: OperatorCapture("operators, statistics of outputs", "stats", inputs=False),
    lambda: OperatorCapture("operators, statistics", "stats"),
    lambda: OperatorCapture("operators, full", "full"),
    lambda: Mode("mode, four torch reductions", reductions=True),
]


def run(
    build: Path, quick: bool, only_models: Optional[list[str]] = None, cpu: bool = False, rivals: bool = False
) -> Section:
    """Measures all variants on all models; with `cpu` the CPU time of one thread, which neighbours hardly disturb."""
    if cpu:
        section = Section("operators-cpu", "CPU time that an operator-level capture adds, one thread", CPU_COLUMNS)
    else:
        section = Section("operators", "What an operator-level capture adds to a step", COLUMNS)
    section.machine = machine()
    before = load_average()
    work = build / "work"
    work.mkdir(parents=True, exist_ok=True)
    pythons = {"operators": Path(sys.executable)}
    refusals: dict[str, str] = {}
    if rivals:
        pythons, refusals = with_rivals(build, pythons, RIVAL_GROUPS)
    seen: set[str] = set()
    for spec in models.MODELS.values():
        if only_models and spec.name not in only_models:
            continue
        rounds = max(2, spec.rounds // 4) if quick else 5 if cpu else spec.rounds
        for group, python in pythons.items():
            print(f"{section.key}: {spec.name}, {group} ...", file=sys.stderr, flush=True)
            try:
                child = run_child(python, spec.name, group, rounds, 20.0 if quick else 240.0, work, cpu)
                section.rows += rows_of(spec, group, child, seen, cpu, GOALS)
            except RuntimeError as error:
                section.rows.append(Row(f"{spec.name}: {group}", status=FAILED, reason=str(error)))
        section.rows += [
            Row(f"{spec.name}: {group}", status=NOT_AVAILABLE, reason=reason) for group, reason in refusals.items()
        ]
    section.load = (before, load_average())
    if cpu:
        for row in section.rows:
            row.cells["CPU ms a step"] = row.cells.get("ms a step", "")
    section.notes = [
        "Samples and ratios as in `capture`. S has 595 operators a step, S-decode 600, M 875; both modes in Python see "
        "outputs only, the reductions those of floating-point outputs.",
    ]
    return section
