# SPDX-License-Identifier: Apache-2.0
"""FSDP keeps several parameters in one flat list, cut into as many parts as there are processes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch
import warm_python

import assay

MODEL = """
import os
import sys
import torch

torch.manual_seed(5)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(16, 24)
        self.norm = torch.nn.LayerNorm(24)
        self.down = torch.nn.Linear(24, 7, bias=False)

    def forward(self, x):
        return self.down(torch.relu(self.norm(self.up(x))))

model = Model().eval()
x = torch.randn(4, 16)
"""

WRAPPED = """
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
import assay
rank, world, store, folder, wrong = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:6]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
with torch.no_grad():
    if wrong == "True":
        model.norm.bias[20] += 0.25
    model = FullyShardedDataParallel(model, use_orig_params=False, device_id=torch.device("cpu"))
    with assay.capture(model, folder, weights=True):
        model(x)
dist.barrier()  # a process that leaves while others talk to it ends in gloo's threads
dist.destroy_process_group()
os._exit(0)  # a worker of gloo that frees a tensor while Python ends aborts the process (pytorch PR 179291)
"""


def wrapped(tmp_path: Path, world: int, wrong: bool = False) -> Path:
    folder = tmp_path / f"mine{wrong}"
    store = tmp_path / f"store{wrong}"
    script = tmp_path / "wrapped.py"
    script.write_text(MODEL + WRAPPED)
    processes = [
        subprocess.Popen(
            [warm_python.python("transformers"), script, str(rank), str(world), store, folder, str(wrong)],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    return folder


def plain(tmp_path: Path) -> Path:
    scope: dict[str, object] = {}
    exec(MODEL, scope)  # the same text as in the processes
    model, x = scope["model"], scope["x"]
    assert isinstance(model, torch.nn.Module)
    with torch.no_grad(), assay.capture(model, tmp_path / "golden", level="operator", weights=True):
        model(x)
    return tmp_path / "golden"


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="a build without torch.distributed")
@pytest.mark.parametrize("world", [1, 2])
def test_each_parameter_of_the_flat_list_is_held_against_golden_s(tmp_path: Path, world: int) -> None:
    golden = plain(tmp_path)
    mine = wrapped(tmp_path, world)
    names = {record.slot for record in assay.open(mine).records if record.role == "weight"}
    assert names == {"weight", "bias"}
    coverage = assay.locate(str(golden), str(mine)).coverage
    # up and norm have two, down has one; with two processes one of them is cut in two.
    assert (coverage["weights"], coverage["weights_compared"]) == (5, 5)
    verdict = assay.locate(str(golden), str(wrapped(tmp_path, world, wrong=True)))
    assert verdict.outcome == "first_wrong", str(verdict)
    assert verdict.candidates[0].module == "norm", str(verdict)
