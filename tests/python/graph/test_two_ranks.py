# SPDX-License-Identifier: Apache-2.0
"""Two processes of one gloo group: two rank folders, one time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import warm_python
from dump_reading import index_of, step_dumps

import assay

RANK = """
import os, sys, time
import torch
import torch.distributed as dist
from assay.torch.graph import CompilerConfig, get_backend

rank, path = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{path}/rendezvous", rank=rank, world_size=2)
config = CompilerConfig()
config.dump_config.enable_dump = True
config.dump_config.dump_path = path
backend = get_backend(config)
compiled = torch.compile(lambda x: x * 2 + 1, backend=backend)
dist.barrier()
begin = time.time()
while rank == 1 and int(time.time()) == int(begin):  # its own clock would name another folder
    pass
out = compiled(torch.full((3,), float(rank)))
dist.all_reduce(out)
assert out.tolist() == [4.0, 4.0, 4.0]  # 0 * 2 + 1 and 1 * 2 + 1
backend.close()
dist.barrier()  # nobody leaves while another one still talks to it
dist.destroy_process_group()
os._exit(0)  # a worker of gloo that frees a tensor while Python ends aborts the process (pytorch PR 179291)
"""


@pytest.mark.slow
def test_two_ranks_have_two_folders_and_one_time(tmp_path: Path) -> None:
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), OMP_NUM_THREADS="1")
    command = [warm_python.python("transformers"), "-c", RANK]
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path)], env=environment, stderr=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    for process in ranks:
        _, errors = process.communicate(timeout=180)
        assert process.returncode == 0, errors
    folders = sorted(tmp_path.glob("worldsize*"))
    assert [folder.name for folder in folders] == ["worldsize2_global_rank0", "worldsize2_global_rank1"]
    runs = [next(folder.iterdir()) for folder in folders]
    assert runs[0].name == runs[1].name, "one time"
    for rank, run in enumerate(runs):
        index = index_of(run)
        assert (index["rank"], index["world_size"], index["complete"]) == (rank, 2, True)
        add = step_dumps(run, index["graphs"][0]["graph"], 0)["Add"]
        assert add.outputs[0].tensor.tolist() == [rank * 2.0 + 1] * 3


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["native", "ge"])
def test_what_a_collective_still_writes_is_not_read(tmp_path: Path, layout: str) -> None:
    # Given a graph that starts a collective, computes meanwhile, and waits
    program = RANK.replace("lambda x: x * 2 + 1", "summed").replace(
        "backend = get",
        f'config.execution.layout = "{layout}"\n'
        "import torch.distributed._functional_collectives as functional\n"
        'def summed(x):\n    return functional.all_reduce(x * 2 + 1, "sum", dist.group.WORLD) * 3\n'
        "backend = get",
    )
    program = program.replace("dist.all_reduce(out)\nassert out.tolist() == [4.0, 4.0, 4.0]", "assert out[0] == 12")
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), OMP_NUM_THREADS="1")
    command = [warm_python.python("transformers"), "-c", program]
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path)], env=environment, stderr=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    for process in ranks:
        _, errors = process.communicate(timeout=180)
        assert process.returncode == 0, errors
    # Then the sum is what the operator that waits returned, and nothing is said of what was on its way
    run = assay.open(tmp_path)
    of_collectives = [record for record in run.records if "all_reduce" in record.node.lower()]
    waited = [record for record in run.records if "wait" in record.node.lower()]
    assert not [record for record in of_collectives if record.role == "output"]
    assert [record.role for record in waited] == ["output"] * 2
    assert [record.numpy().tolist() for record in waited] == [[4.0] * 3] * 2  # 0 * 2 + 1 and 1 * 2 + 1, summed
