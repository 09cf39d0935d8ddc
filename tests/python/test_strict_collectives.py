# SPDX-License-Identifier: Apache-2.0
"""register_hook with two ranks over gloo: collectives write tensors behind torch's counters, and behind the return."""

from __future__ import annotations

from pathlib import Path

import job_of_ranks
import pytest

pytest.importorskip("torch.distributed")

PROGRAM = """
import logging, os, sys
import torch, torch.distributed as dist
from torch import nn
from assay.torch.strict import DumpConfig, register_hook, reset

logging.basicConfig(stream=sys.stdout, format="%(message)s")
dist.init_process_group("gloo")
rank, folder = dist.get_rank(), sys.argv[1]
store = dist.distributed_c10d._get_default_store()

class Child(nn.Module):
    def forward(self, x):
        return x * (rank + 1)

class AddsUp(nn.Module):
    def __init__(self, later):
        super().__init__()
        self.child, self.other, self.later = Child(), Child(), later

    def forward(self, x):
        y = self.child(x)
        work = dist.all_reduce(y, async_op=self.later)
        self.other(x)
        if self.later:
            work.wait()
        return y

class Receives(nn.Module):  # rank 1 sends when rank 0 has dumped what it returned
    def forward(self, x):
        y = x.clone()
        self.work = dist.irecv(y, 1)
        return y

def dump(name, model):
    config = DumpConfig(f"{folder}/{name}-{rank}")
    register_hook(model, config)
    y = model(torch.ones(3))
    reset()
    return config.dump_dir, y

for later in (False, True):
    where, _ = dump(f"sum-{later}", AddsUp(later))
    for place, expected in ("root.child", rank + 1.0), ("root", 3.0):
        dumped = torch.load(f"{where}/0/{place}/output.pth")
        assert torch.equal(dumped, torch.full((3,), expected)), (rank, later, place, dumped)

if rank == 0:
    model = Receives()
    dump("received", model)
    store.set("dumped", "")
    model.work.wait()
else:
    store.wait(["dumped"])
    dist.send(torch.ones(3), 0)
dist.barrier()
sys.stdout.flush()
os._exit(0)  # a worker of gloo that frees a tensor while Python ends aborts the process (pytorch PR 179291)
"""


def test_what_a_collective_wrote_is_dumped_anew_and_what_is_in_flight_is_said(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    said = job_of_ranks.run(2, program, tmp_path)
    assert said.count("root is dumped as it is, though a collective may still write it") == 1, said
