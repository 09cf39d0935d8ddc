# SPDX-License-Identifier: Apache-2.0
"""What the ggml probe costs a graph of llama.cpp, beside a plain loop over every node and beside doing nothing.

All modes alternate in one process: ggml_mode_router.cpp sends graphs in turn through copies of the probe with different
requests. The time of a graph is from its compute call to the next one; the thread's processor time is that of the
thread that computes, which with one thread is everything but the writer's work, and which neighbours hardly change.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from bench.measure import NotAvailable, load_average, machine, median
from bench.report import FAILED, NOT_AVAILABLE, Row, Section
from bench.scratch import scratch_folder

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = [
    "",
    "CPU ms a graph",
    "quartiles",
    "of none",
    "added us, paired",
    "quartiles of these",
    "wall ms",
    "of none (wall)",
    "recorded ms",
    "MB/s",
    "n",
    "goal",
    "met",
]
GOAL_STATISTICS = 1.05
# A model of 140 M parameters.
SIZES = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "vocab_size": 4096,
    "max_position_embeddings": 1024,
}
# One of 400 M parameters: the engine starts its threads once a wanted node, however much a node computes.
LARGE_SIZES = {**SIZES, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 8}
MOST_LOAD = 2.0
BLOCK = 8  # graphs of one mode in a row; the first of them is not counted


@dataclass
class Mode:
    """One way to treat a graph; `request` of kind "probe" only, None: no request at all."""

    name: str
    kind: str
    request: Optional[dict[str, Any]] = None
    goal: Optional[float] = None


DECODE = [
    Mode("none", "none"),
    Mode("off", "probe"),
    Mode("callback, nothing wanted", "probe", {"names": ["no such node"]}),
    Mode("floor: every node wanted, nothing done", "empty"),
    Mode("rival: every node summed up in a plain loop", "naive"),
    Mode("lines without statistics", "probe", {"full": False}),
    Mode("statistics", "probe", {"full": False, "statistics": True}, GOAL_STATISTICS),
    Mode("full", "probe", {}),
]
PROMPT = [
    Mode("none", "none"),
    Mode("rival: every node summed up in a plain loop", "naive"),
    Mode("statistics", "probe", {"full": False, "statistics": True}, GOAL_STATISTICS),
    Mode("full", "probe", {}),
]


@dataclass
class Graphs:
    """Seconds of the graphs of one mode: of the wall clock, and of the computing thread's processor time."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    paired: list[float] = field(default_factory=list)  # cpu of a block beside the block of `none` in its round
    recorded_ms: Optional[float] = None
    bytes_a_graph: float = 0
    waited_ms: float = 0


MODELS = {"quick": {"vocab_size": 4096}, "140m": SIZES, "400m": LARGE_SIZES}


def make_model(folder: Path, name: str) -> Path:
    """Writes the model once a build folder."""
    path = folder / f"ggml-{name}" / "q8_0.gguf"
    if not path.exists():
        sys.path.insert(0, str(ROOT / "tests" / "ggml"))
        import tiny_llama

        tiny_llama.write_models(path.parent, types=("q8_0",), **MODELS[name])
        shutil.rmtree(path.parent / "hf")
    return path


def route(
    build: Path, model: Path, modes: list[Mode], block: int, out: Path, arguments: list[Any]
) -> dict[str, Graphs]:
    """Runs the host once; raises RuntimeError with its last words when it fails."""
    router = build / "bench" / "ggml_mode_router.so"
    probe = build / "lib" / "assay" / "libggml_probe.so"
    for library in (router, probe):
        if not library.exists():
            raise NotAvailable(f"{library.name} is not built")
    out.mkdir(parents=True)
    lines, libraries = [], [str(router)]
    for number, mode in enumerate(modes):
        library, request = "", ""
        if mode.kind == "probe":
            library = str(out / f"probe{number}.so")
            shutil.copy(probe, library)
            libraries.append(library)
            if mode.request is not None:
                request = json.dumps({"output": str(out / f"run{number}"), "steps": "all", **mode.request})
        lines.append("\t".join([str(number), mode.kind, library, request]))
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("ASSAY_", "GGML_"))}
    environment.update(
        LD_PRELOAD=" ".join(libraries),
        GGML_ROUTER_MODES="\n".join(lines),
        GGML_ROUTER_BLOCK=str(block),
        GGML_ROUTER_OUT=str(out / "graphs.txt"),
    )
    command = [sys.executable, ROOT / "bench" / "ggml_host.py", model, *arguments]
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    found = read_graphs(out / "graphs.txt", modes, block)
    for number, mode in enumerate(modes):
        manifest = out / f"run{number}" / "manifest.json"
        if not manifest.exists():
            continue
        content = json.loads(manifest.read_text())
        graphs = found[mode.name]
        graphs.recorded_ms = median([step["added_ms"] for step in content["steps"]])
        graphs.bytes_a_graph = median([step["bytes"] for step in content["steps"]])
        graphs.waited_ms = content["sink"]["waited_ms"]
    return found


def read_graphs(path: Path, modes: list[Mode], block: int) -> dict[str, Graphs]:
    """The first graphs of all, which read the requests, and the first of each block are left out."""
    found = {mode.name: Graphs() for mode in modes}
    rows = [line.split("\t") for line in path.read_text().splitlines()][len(modes) :]
    blocks: list[tuple[str, list[float]]] = []
    for index, (number, _, wall, cpu) in enumerate(rows):
        name = modes[int(number)].name
        if index % block == 0:
            blocks.append((name, []))
            if block > 1:
                continue
        found[name].wall.append(int(wall) * 1e-9)
        found[name].cpu.append(int(cpu) * 1e-9)
        blocks[-1][1].append(int(cpu) * 1e-9)
    for begin in range(0, len(blocks) - len(modes) + 1, len(modes)):
        of_round = {name: median(values) for name, values in blocks[begin : begin + len(modes)] if values}
        for name, value in of_round.items():
            if name != "none" and "none" in of_round:
                found[name].paired.append(value - of_round["none"])
    return found


def quartiles(values: list[float], scale: float, digits: int) -> str:
    """First and third quartile."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return f"{ordered[quarter] * scale:.{digits}f} .. {ordered[-1 - quarter] * scale:.{digits}f}"


def rows_of(title: str, modes: list[Mode], found: dict[str, Graphs]) -> list[Row]:
    """One row a mode."""
    base = found["none"]
    rows = []
    for mode in modes:
        graphs = found[mode.name]
        cpu, wall = median(graphs.cpu), median(graphs.wall)
        ratio = cpu / median(base.cpu)
        row = Row(f"{title}: {mode.name}", seconds=100 * cpu, unit="100 graphs")
        row.cells = {
            "CPU ms a graph": f"{cpu * 1e3:.2f}",
            "quartiles": quartiles(graphs.cpu, 1e3, 2),
            "of none": f"{ratio:.3f}",
            "wall ms": f"{wall * 1e3:.2f}",
            "of none (wall)": f"{wall / median(base.wall):.3f}",
            "recorded ms": "" if graphs.recorded_ms is None else f"{graphs.recorded_ms:.3f}",
            "MB/s": f"{graphs.bytes_a_graph / wall / 1e6:.0f}" if graphs.bytes_a_graph else "",
            "n": str(len(graphs.cpu)),
        }
        if graphs.paired:
            row.cells["added us, paired"] = f"{median(graphs.paired) * 1e6:+.0f}"
            row.cells["quartiles of these"] = quartiles(graphs.paired, 1e6, 0)
        if mode.goal is not None:
            row.judge(f"{ratio:.3f}", f"{mode.goal:g}", ratio <= mode.goal)
        row.data = {"cpu": cpu, "wall": wall, "paired": graphs.paired, "waited_ms": graphs.waited_ms}
        rows.append(row)
    return rows


def raw_write(folder: Path, size: int) -> float:
    """Bytes a second of direct writes of 4 MiB, as the writer's thread makes them."""
    block = 4 << 20
    import mmap

    buffer = mmap.mmap(-1, block)
    buffer.write(os.urandom(block))
    descriptor = os.open(folder / "raw", os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600)
    try:
        begin = time.perf_counter()
        for _ in range(max(1, size // block)):
            os.write(descriptor, buffer)
        return max(1, size // block) * block / (time.perf_counter() - begin)
    finally:
        os.close(descriptor)
        os.unlink(folder / "raw")


def run(build: Path, quick: bool) -> Section:
    """Measures one-token graphs with one thread and with two, and prompts."""
    section = Section("ggml", "What the ggml probe costs a graph of llama.cpp", COLUMNS, machine=machine())
    before = load_average()
    work = (build / "work").absolute()
    work.mkdir(parents=True, exist_ok=True)
    rounds = 3 if quick else 24
    tokens = ["--tokens", 480, "--requests", len(DECODE) * BLOCK * rounds // 480 + 1]
    prompts = ["--tokens", 1, "--prompt", 256, "--requests", len(PROMPT) * (3 if quick else 10)]
    small = "quick" if quick else "140m"
    plans = [
        ("token, 1 thread", small, DECODE, BLOCK, tokens),
        ("prompt of 256, 1 thread", small, PROMPT, 1, prompts),
    ]
    if before < MOST_LOAD:
        plans.insert(1, ("token, 2 threads", small, DECODE, BLOCK, [*tokens, "--threads", 2]))
        if not quick:
            plans.append(("400 M, token, 2 threads", "400m", DECODE, BLOCK, [*tokens, "--threads", 2]))
    else:
        section.notes.append(
            f"Two threads were not measured: the load was {before:.0f}, and threads of an engine that wait for each "
            "other in a loop measure the neighbours."
        )
    try:
        for title, name, modes, block, arguments in plans:
            print(f"ggml: {title} ...", file=sys.stderr, flush=True)
            model = make_model(work, name)
            with scratch_folder(work) as scratch:
                try:
                    found = route(build.absolute(), model, modes, block, scratch / "out", arguments)
                    section.rows += rows_of(title, modes, found)
                    size = int(found["full"].bytes_a_graph)
                    if block == 1 and size:
                        rate = raw_write(scratch, min(10 * size, 1 << 30))
                        section.rows.append(
                            Row(f"{title}: raw writes to the same disk", cells={"MB/s": f"{rate / 1e6:.0f}"})
                        )
                        seconds = sum(found["full"].wall)
                        section.notes.append(
                            f"Full dump of prompts: {size / 1e6:.0f} MB a graph; the program waited "
                            f"{found['full'].waited_ms:.0f} ms of {seconds * 1e3:.0f} ms for the disk."
                        )
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    section.rows.append(Row(title, status=FAILED, reason=str(error)))
    except (ImportError, NotAvailable) as error:
        section.rows.append(Row("ggml", status=NOT_AVAILABLE, reason=str(error)))
    section.load = (before, load_average())
    section.notes = [
        "Llama of 140 M parameters (hidden 1024, 12 layers), Q8_0, xllamacpp 2026.10.11549, flash attention on; "
        "381 nodes. `400 M`: hidden 2048, 8 layers, 257 nodes.",
        "All modes of a block of rows alternate in one process, eight graphs each in random order; the first of the "
        "eight is left out. `added us, paired`: median of a mode's eight beside that of `none` in the same round.",
        "`CPU`: of the thread that computes. `recorded ms`: what the probe itself measured (`added_ms`); the goal is "
        "for `of none`. `MB/s`: payload bytes by wall time.",
        *section.notes,
    ]
    return section
