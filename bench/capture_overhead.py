# SPDX-License-Identifier: Apache-2.0
"""What a capture adds to a step of the model: ours in both modes, hook scripts, and other people's tools.

Each (model, group) is a process of its own (bench/capture_child.py); inside it the variants alternate at random, so a
slow minute of the machine hits all of them. Ratios are to "none" of the same process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from bench import models
from bench.measure import Sample, Series, load_average, machine
from bench.report import FAILED, NOT_AVAILABLE, Row, Section
from bench.rivals import tools

CPU_COLUMNS = ["", "CPU ms a step", "IQR", "added ms", "until returned", "all bytes handed over", "of minima", "n"]
COLUMNS = [
    "",
    "ms a step",
    "IQR",
    "until returned",
    "all bytes handed over",
    "of minima",
    "MB written",
    "n",
    "goal",
    "met",
]

# Ratio of medians, step with tool / step without. Full dumps: until all bytes are handed over.
GOALS: dict[str, dict[str, float]] = {
    "assay off": {"S": 1.01, "S-decode": 1.01, "M": 1.01},
    "assay statistics": {"S": 1.04, "S-decode": 1.04, "M": 1.02},
    "assay full": {"S": 1.15, "S-decode": 1.06, "M": 1.08},
    "strict statistics": {"S": 1.15, "S-decode": 1.2, "M": 1.05},
    "strict full": {"S": 2.0, "S-decode": 2.0, "M": 1.5},
}
GROUPS = ("extended", "strict")
# The package that a group of bench/rivals/tools.py needs; none: torch or transformers has it.
RIVAL_GROUPS: dict[str, str] = {
    "msprobe-statistics": "msprobe",
    "msprobe-full": "msprobe",
    "transformers-debugger": "",
}
QUICK_ROUNDS = 9  # runs with fewer rounds do not repeat disturbed samples


def with_rivals(
    build: Path, pythons: Mapping[str, Path], groups: Mapping[str, str]
) -> tuple[dict[str, Path], dict[str, str]]:
    """Adds the Python of each rival group; returns (Python, why there is none), both by group."""
    found = dict(pythons)
    refusals = {}
    for group, tool in groups.items():
        python, reason = tools.install(build, tool) if tool else (Path(sys.executable), "")
        if python is None:
            refusals[group] = reason
        else:
            found[group] = python
    return found, refusals


def run_child(
    python: Path, model: str, group: str, rounds: int, budget: float, work: Path, cpu: bool
) -> dict[str, Any]:
    """Runs one child process and returns its result; raises RuntimeError with its last words when it fails."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "result.json")
        command = [str(python), "-m", "bench.capture_child", "--model", model, "--group", group]
        command += ["--rounds", str(rounds), "--budget", str(budget), "--work", str(work), "--out", str(out)]
        command += ["--cpu"] if cpu else []
        command += ["--retries", "0"] if rounds < QUICK_ROUNDS else []
        threads = 1 if cpu else models.THREADS
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
        done = subprocess.run(
            command, cwd=Path(__file__).parent.parent, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0 or not out.exists():
            raise RuntimeError(f"exit status {done.returncode}: {(done.stderr or done.stdout)[-2000:]}")
        return dict(json.loads(out.read_text()))


def rows_of(
    spec: models.ModelSpec,
    group: str,
    child: dict[str, Any],
    seen: set[str],
    cpu: bool,
    goals: Mapping[str, Mapping[str, float]] = GOALS,
) -> list[Row]:
    """Turns the samples of one child process into rows; the baseline of a second group gets the group's name."""
    series: dict[str, Series] = {}
    for name, entry in child["variants"].items():
        series[name] = Series([Sample(**sample) for sample in entry["samples"]])
    if not series["none"].samples:
        return [Row(f"{spec.name}: {group}", status=FAILED, reason="no sample without capture")]
    base = series["none"].summary()
    rows = []
    for name, entry in child["variants"].items():
        label = f"{spec.name}: {name}"
        if label in seen:
            label = f"{spec.name}: {name} (beside {group})"
        seen.add(label)
        if entry["status"] != "measured":
            rows.append(Row(label, status=entry["status"], reason=entry["reason"]))
            continue
        if not series[name].samples:
            rows.append(Row(label, status=NOT_AVAILABLE, reason="the time budget ended before its first sample"))
            continue
        figures = series[name].summary()
        returned = figures["returned_median"] / base["returned_median"]
        handed_over = figures["handed_over_median"] / base["handed_over_median"]
        minima = figures["handed_over_min"] / base["handed_over_min"]
        goal = None if cpu else goals.get(name, {}).get(spec.name)
        # A statistics run has nothing to hand over but its table: the same figure decides.
        kept = f"{figures['used']}" + (f" (-{figures['discarded']})" if figures["discarded"] else "")
        row = Row(
            label,
            cells={
                "added ms": ""
                if name == "none"
                else f"{(figures['handed_over_median'] - base['handed_over_median']) * 1e3:.1f}",
                "ms a step": f"{figures['handed_over_median'] * 1e3:.1f}",
                "IQR": f"{figures['handed_over_iqr'] * 1e3:.1f}",
                "until returned": "1" if name == "none" else f"{returned:.2f}",
                "all bytes handed over": "1" if name == "none" else f"{handed_over:.2f}",
                "of minima": "1" if name == "none" else f"{minima:.2f}",
                "MB written": f"{entry['bytes_per_step'] / 1e6:.1f}" if entry["bytes_per_step"] else "",
                "n": kept + ("!" if figures["noisy"] else ""),
            },
            seconds=figures["handed_over_median"] * 100,
            unit="100 steps",
            data={**figures, "ratio_returned": returned, "ratio_handed_over": handed_over, "ratio_minima": minima},
        )
        if goal is not None:
            met = None if figures["noisy"] or base["noisy"] else round(handed_over, 2) <= goal
            row.judge(f"{handed_over:.2f}", f"{goal:.2f}", met)
        rows.append(row)
    return rows


def run(build: Path, rivals: bool, quick: bool, only_models: Optional[list[str]] = None, cpu: bool = False) -> Section:
    """Measures all groups on all models. `build` is where temporary files and the rivals' environment go.

    With `cpu`: the section "capture-cpu", which neighbours hardly disturb.
    """
    if cpu:
        section = Section("capture-cpu", "CPU time that a capture adds to a step, one thread", CPU_COLUMNS)
    else:
        section = Section("capture", "What a capture adds to a step", COLUMNS)
    section.machine = machine()
    before = load_average()
    work = build / "work"
    work.mkdir(parents=True, exist_ok=True)
    pythons = {group: Path(sys.executable) for group in GROUPS}
    refusals: dict[str, str] = {}
    if rivals and not cpu:
        pythons, refusals = with_rivals(build, pythons, RIVAL_GROUPS)
    seen: set[str] = set()
    for spec in models.MODELS.values():
        if only_models and spec.name not in only_models:
            continue
        for group, python in pythons.items():
            rounds = max(2, spec.rounds // 4) if quick else 5 if cpu else spec.rounds
            budget = 20.0 if quick else 240.0
            print(f"{section.key}: {spec.name}, {group} ...", file=sys.stderr, flush=True)
            try:
                child = run_child(python, spec.name, group, rounds, budget, work, cpu)
                section.rows += rows_of(spec, group, child, seen, cpu)
            except RuntimeError as error:
                section.rows.append(Row(f"{spec.name}: {group}", status=FAILED, reason=str(error)))
        section.rows += [
            Row(f"{spec.name}: {group}", status=NOT_AVAILABLE, reason=reason) for group, reason in refusals.items()
        ]
    section.load = (before, load_average())
    section.notes = [
        "A sample is a burst of steps (S 4, S-decode 8, M 1) after one step that is not timed, then one wait until "
        "every byte was handed over; figures are per step. Installing, removing and clearing files is not timed.",
    ]
    if cpu:
        for row in section.rows:
            row.cells["CPU ms a step"] = row.cells.get("ms a step", "")
        section.notes += [
            "CPU time of all threads of the process, the model on one thread: the work that is added, whatever the "
            "neighbours do. It is an upper bound for wall time: on two threads statistics are shared between them, and "
            "a writer may find an idle core. Time of the kernel's own threads (write-back) is not in it.",
        ]
    else:
        section.notes += [
            "Ratios of medians to `none` of the same process; `of minima`: ratio of the fastest samples, until all "
            "bytes are handed over. The goal is for `all bytes handed over`.",
            "n: samples used, in brackets those discarded because neighbours held a core for more than 5 % of the "
            "sample (bench/measure.py); `!`: too few were undisturbed, so all are used, the figures say little and no "
            "goal is judged.",
        ]
    return section
