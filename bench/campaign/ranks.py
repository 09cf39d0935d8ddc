# SPDX-License-Identifier: Apache-2.0
"""Jobs of many ranks: one of them is wrong, and the comparison names it; by one process, and in parts on Ray.

Each case writes two runs of a job, tensor parallel over 8 ranks and data parallel over the others, compares them by one
process and by `--ray` on a cluster of two nodes in this machine, and holds the reports against each other.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Optional

import numpy

from bench.campaign.campaign import FAILED, OK, ROOT, Campaign, Case, Result, Workplace
from bench.campaign.measured import run_measured
from bench.compare_speed import find_assay
from bench.measure import NotAvailable
from bench.report import Row

RANKS = (64, 256, 1024, 4096)
SAMPLE_RANKS = 64
STEPS, LAYERS, SHAPE = 2, 20, (4, 16)
TENSOR_PARALLEL = 8
NODES = 2
MOST_DRIVER_BYTES = 1 << 30


_CLUSTER = """
import json, os, resource, subprocess, sys, time
from ray.cluster_utils import Cluster
from bench.ray_cluster import NODE, add_node
cluster = Cluster()
for _ in range(int(sys.argv[1])):
    add_node(cluster, **NODE)
begin = time.monotonic()
done = subprocess.run([*sys.argv[2:], f"--ray={cluster.address}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                      text=True)
seconds = time.monotonic() - begin
cluster.shutdown()
print(json.dumps({"status": done.returncode, "output": done.stdout, "seconds": seconds}))
"""


class Ranks(Campaign):
    """See the module."""

    name = "ranks"
    title = "Jobs of many ranks"
    about = (
        f"Two runs of a job of {STEPS} steps and {LAYERS} tensors a step and rank, shards and replicas; half of the "
        "layers of one rank are 20 % too large. `compare` must name that rank.",
        f"`s` and `MB` are of one process, `Ray s` of a cluster of {NODES} nodes of one core in the same machine, "
        "start included; its report must be the same bytes. `ms a part` is what the cluster took longer. A part is "
        "one rank and step.",
    )
    weight = 0.5
    timeout_s = 1800.0
    least_s = 60.0
    columns = ["", "pairs", "parts", "s", "MB", "Ray s", "ms a part", "outcome"]

    def unavailable(self) -> Optional[str]:
        """Ray is an extra of the distribution."""
        return None if importlib.util.find_spec("ray") else "ray is not installed"

    def cases(self, seed: int) -> Iterator[Case]:
        """Every size, then again with another wrong rank."""
        draw = random.Random(seed)
        while True:
            for ranks in RANKS:
                yield Case(f"{ranks}-{draw.randrange(ranks)}")

    def sample(self) -> Iterable[Case]:
        """The smallest one."""
        return [Case(f"{SAMPLE_RANKS}-37")]

    def case_of(self, name: str) -> Case:
        """From ``<ranks>-<wrong rank>``."""
        _parse(name)
        return Case(name)

    def run(self, case: Case, work: Workplace) -> Result:
        """Writes, compares twice, deletes."""
        ranks, wrong = _parse(case.name)
        assay = find_assay(None)
        if assay is None:
            raise NotAvailable("no `assay` command is installed")
        folder = work.scratch / case.name
        folder.mkdir()
        try:
            write_job(folder / "golden", ranks, None)
            write_job(folder / "mine", ranks, wrong)
            return _compare(folder, assay, ranks, wrong)
        finally:
            if not work.keep:
                shutil.rmtree(folder)

    def rows(self, results: list[Result]) -> list[Row]:
        """A line a case, the smallest first."""
        rows = []
        for result in sorted(results, key=lambda result: _parse(result["case"])):
            cells = {key: f"{value:.1f}" if isinstance(value, float) else str(value) for key, value in result.items()}
            ranks, wrong = _parse(result["case"])
            rows.append(Row(f"{ranks} ranks, rank {wrong} wrong", cells, data=dict(result)))
        return rows


def _parse(name: str) -> tuple[int, int]:
    ranks, _, wrong = name.partition("-")
    if not ranks.isdigit() or not wrong.isdigit() or int(wrong) >= int(ranks):
        raise ValueError("the name must be a number of ranks and one of the ranks, with a dash")
    return int(ranks), int(wrong)


def write_job(folder: Path, ranks: int, wrong: int | None) -> None:
    """A native run of many ranks: float32 outputs of LAYERS modules, equal over the data-parallel ranks."""
    for rank in range(ranks):
        place = folder / f"rank{rank}"
        place.mkdir(parents=True)
        draw = numpy.random.default_rng(rank % TENSOR_PARALLEL)
        lines = []
        for step in range(STEPS):
            values = draw.standard_normal((LAYERS, *SHAPE)).astype(numpy.float32)
            if rank == wrong:
                values[LAYERS // 2 :] *= 1.2
            name = f"step-{step:06}.safetensors"
            (place / name).write_bytes(bytes(64) + values.tobytes())
            for layer in range(LAYERS):
                line: dict[str, Any] = {"n": step * LAYERS + layer, "step": step, "node": f"model.layers.{layer}.mlp"}
                line |= {"type": "MLP", "order": layer, "role": "output", "slot": "", "dtype": "float32"}
                line |= {"shape": list(SHAPE), "file": name, "offset": 64 + layer * values[0].nbytes}
                lines.append(json.dumps(line | {"bytes": values[0].nbytes}))
        (place / "records.jsonl").write_text("\n".join(lines) + "\n")
        parallel = {
            "tp": {"rank": rank % TENSOR_PARALLEL, "size": TENSOR_PARALLEL},
            "dp": {"rank": rank // TENSOR_PARALLEL, "size": ranks // TENSOR_PARALLEL},
        }
        manifest = {"format": "assay-run", "version": 1, "complete": True, "host": {"rank": rank, "parallel": parallel}}
        (place / "manifest.json").write_text(json.dumps(manifest))


def _compare(folder: Path, assay: str, ranks: int, wrong: int) -> Result:
    words = [assay, "compare", str(folder / "golden"), str(folder / "mine"), "--cmp-level", "api", "--jsonl"]
    here = run_measured([*words, "-o", str(folder / "here")], folder / "usage.txt")
    there = subprocess.run(
        [sys.executable, "-c", _CLUSTER, str(NODES), *words, "-o", str(folder / "there")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "ASSAY_BINARY": assay},
    )
    on_ray = json.loads(there.stdout.splitlines()[-1])
    problems = []
    sentence = f"rank {wrong} differs from its {ranks - 1} peers, from model.layers.{LAYERS // 2}.mlp output of step 0"
    if sentence not in " ".join(here.output.split()):
        problems.append(f"the wrong rank is not named: {here.output[-1000:]}")
    if _report(folder / "there") != _report(folder / "here"):
        problems.append(f"on Ray the report is another one, status {on_ray['status']}: {on_ray['output'][-1000:]}")
    if here.resident > MOST_DRIVER_BYTES:
        problems.append(f"one process held {here.resident >> 20} MiB")
    parts = ranks * STEPS
    return {
        "outcome": FAILED if problems else OK,
        "reason": "; ".join(problems),
        "pairs": parts * LAYERS,
        "parts": parts,
        "s": here.seconds,
        "MB": here.resident / 1e6,
        "Ray s": on_ray["seconds"],
        "ms a part": 1e3 * max(0.0, on_ray["seconds"] - here.seconds) / parts,
    }


def _report(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted(folder.glob("*.jsonl"))] + [
        file.read_bytes() for file in sorted(folder.glob("*.csv"))
    ]
