# SPDX-License-Identifier: Apache-2.0
"""The google-benchmark programs of the C++ modules, each figure beside memcpy of the same size, and Python rivals."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.measure import load_average, machine, median
from bench.report import FAILED, NOT_AVAILABLE, Row, Section

PROGRAMS = ("stats_bench", "metrics_bench", "formats_bench")
COLUMNS = ["", "bytes", "time", "GB/s", "of memcpy", "goal", "met"]
SHOWN_BYTES = 256 * 1024  # smaller ones are shown only at 64 elements, where the cost of a call is visible

# One core: fp32 statistics at least memcpy speed, fp16 and bf16 8 GB/s.
MEMCPY_GOAL = re.compile(r"stats.*/(fp32|float32)/(1048576|16777216)$", re.IGNORECASE)
HALF_GOAL = re.compile(r"stats.*/(fp16|bf16|float16|bfloat16)/(1048576|16777216)$", re.IGNORECASE)


def run_program(program: Path, quick: bool) -> list[tuple[str, float, float]]:
    """Returns (name, bytes an iteration, median seconds an iteration by CPU time); bytes 0 when not reported."""
    repetitions = 3 if quick else 9
    command = [
        str(program),
        "--benchmark_format=json",
        f"--benchmark_repetitions={repetitions}",
        f"--benchmark_min_time={0.02 if quick else 0.1}",
        "--benchmark_enable_random_interleaving=true",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{program.name}: exit status {done.returncode}: {done.stderr[-1000:]}")
    scale = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
    runs: dict[str, list[tuple[float, float]]] = {}
    entries = json.loads(done.stdout)["benchmarks"]
    # Random interleaving also shuffles the output; the rows keep the order of the source.
    entries.sort(key=lambda entry: (entry.get("family_index", 0), entry.get("per_family_instance_index", 0)))
    for entry in entries:
        if entry.get("run_type") != "iteration":
            continue
        if entry.get("error_occurred"):
            raise RuntimeError(f"{program.name}: {entry['name']}: {entry.get('error_message')}")
        # Programs with threads of their own ask for real time; then the rate is of real time, and so is ours.
        clock = "real_time" if "real_time" in entry["run_name"] else "cpu_time"
        seconds = entry[clock] * scale[entry["time_unit"]]
        runs.setdefault(entry["run_name"], []).append((seconds, entry.get("bytes_per_second", 0.0) * seconds))
    return [(name, times[0][1], median([seconds for seconds, _ in times])) for name, times in runs.items()]


def _time_text(seconds: float) -> str:
    for unit, scale in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)):
        if seconds < 1000 * scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def make_row(name: str, size: float, seconds: float, floor: float) -> Row:
    """Returns the row of one measurement; `floor` is the rate of memcpy in bytes/s, 0 when unknown."""
    rate = size / seconds
    row = Row(name, data={"bytes": size, "seconds": seconds, "memcpy_rate": floor})
    row.cells = {"bytes": f"{size:.0f}", "time": _time_text(seconds), "GB/s": f"{rate / 1e9:.1f}"}
    if size:
        row.seconds, row.unit = 10e9 / rate, "10 GB"
    if floor:
        row.cells["of memcpy"] = f"{rate / floor:.2f}"
        if MEMCPY_GOAL.search(name):
            row.judge(f"{rate / floor:.2f}", "1.00 of memcpy", rate >= floor)
    if HALF_GOAL.search(name):
        row.judge(f"{rate / 1e9:.1f} GB/s", "8 GB/s", rate >= 8e9)
    return row


def rival_figures(quick: bool) -> dict[str, Any]:
    """Runs bench/rivals/kernels.py in its own process: one thread, whatever this process uses."""
    command = [sys.executable, "-m", "bench.rivals.kernels", "3" if quick else "9"]
    root = Path(__file__).parent.parent
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"bench.rivals.kernels: {done.stderr[-1000:]}")
    return dict(json.loads(done.stdout))


def run(build: Path, quick: bool) -> Section:
    """Runs every program of `build`/bench and the rivals."""
    section = Section("kernels", "Kernels on one core", COLUMNS, machine=machine())
    before = load_average()
    floors: list[tuple[float, float]] = []  # (bytes, bytes/s) of memcpy
    for name in PROGRAMS:
        program = build / "bench" / name
        if not program.exists():
            section.rows.append(Row(name, status=NOT_AVAILABLE, reason="not built; `make bench` builds what exists"))
            continue
        print(f"kernels: {name} ...", file=sys.stderr, flush=True)
        try:
            figures = run_program(program, quick)
        except RuntimeError as error:
            section.rows.append(Row(name, status=FAILED, reason=str(error)))
            continue
        floors = [(size, size / seconds) for key, size, seconds in figures if "memcpy" in key.lower()] or floors
        for key, size, seconds in figures:
            if not size or (size < SHOWN_BYTES and not key.endswith("/64")):
                continue
            floor = min(floors, key=lambda entry: abs(math.log(entry[0] / size)))[1] if floors else 0.0
            section.rows.append(make_row(f"{name}: {key}", size, seconds, floor))
    print("kernels: rivals ...", file=sys.stderr, flush=True)
    for key, entry in rival_figures(quick).items():
        size = entry["bytes"]
        floor = min(floors, key=lambda known: abs(math.log(known[0] / size)))[1] if floors else 0.0
        section.rows.append(make_row(key, size, entry["seconds"], floor))
    section.load = (before, load_average())
    section.notes = [
        "Medians of CPU time of 9 repetitions (--quick: 3), interleaved at random; names with `real_time`: wall time. "
        "One thread unless the name ends in /2/real_time. Bytes are those read; of a pair both sides. `of memcpy`: "
        "beside memcpy of about as many bytes in the same process.",
    ]
    return section
