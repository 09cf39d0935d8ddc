# SPDX-License-Identifier: Apache-2.0
"""Collectives between two ranks: a module records what it gave and what its parent gave, each as it was then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch.distributed")
pytestmark = pytest.mark.slow

# A parent reduces what its child returned. The oracle is a clone taken at each place.
PROGRAM = """
import os, sys
import torch, torch.distributed as dist
from torch import nn
import assay
from bench import record_lines

dist.init_process_group("gloo")
rank, level, folder = dist.get_rank(), sys.argv[1], sys.argv[2]
kept = []

def keep(y):
    kept.append(y.clone())
    return y

class Inner(nn.Module):
    def forward(self, x):
        return keep(x @ torch.ones(64, 64) * (rank + 1))

class Parent(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

class Waits(Parent):
    def forward(self, x):
        y = self.inner(x)
        dist.all_reduce(y)
        return keep(y)

class WaitsLater(Parent):
    def forward(self, x):
        y = self.inner(x)
        work = dist.all_reduce(y, async_op=True)
        other = x + 1
        work.wait()
        return keep(y * other.sum())

class Gathers(Parent):
    def forward(self, x):
        y = self.inner(x)
        parts = [torch.empty_like(y) for _ in range(2)]
        dist.all_gather(parts, y)
        return keep(torch.cat(parts))

class Broadcasts(Parent):
    def forward(self, x):
        y = self.inner(x)
        dist.broadcast(y, 0)
        return keep(y)

def value_of(run, record):
    place = record.get("view") or record
    with open(f"{run}/rank{rank}/{place['file']}", "rb") as file:
        file.seek(place["offset"])
        return torch.frombuffer(bytearray(file.read(place["bytes"])), dtype=torch.float32).reshape(record["shape"])

torch.manual_seed(rank)
for kind in (Waits, WaitsLater, Gathers, Broadcasts):
    kept.clear()
    run, model = f"{folder}/{kind.__name__}", kind()
    with torch.no_grad(), assay.capture(model, run, level=level):
        for _ in range(2):
            model(torch.randn(32, 64))
    records = record_lines.read(f"{run}/rank{rank}/records.jsonl")
    outputs = [r for r in records if "::" not in r["node"] and r.get("role") == "output"]
    assert len(outputs) == len(kept) == 4, kind
    assert all(torch.equal(value_of(run, r), value) for r, value in zip(outputs, kept)), kind
    print(rank, kind.__name__, flush=True)
dist.barrier()
os._exit(0)  # a worker of gloo that frees a tensor while Python ends aborts the process (pytorch PR 179291)
"""


@pytest.mark.parametrize("level", ["module", "operator"])
def test_values_are_those_of_the_place(level: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    environment = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, program, level, tmp_path / "runs"], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    kinds = ("Waits", "WaitsLater", "Gathers", "Broadcasts")
    assert sorted(done.stdout.splitlines()) == sorted(f"{rank} {kind}" for rank in (0, 1) for kind in kinds)
