# SPDX-License-Identifier: Apache-2.0
"""The parallel groups of a rank in its manifest: read from what the host has loaded, or told."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
import warm_python

torch = pytest.importorskip("torch")
assay = pytest.importorskip("assay")
_parallel = pytest.importorskip("assay._parallel")

MESH = """
import os, sys, torch, assay
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
rank = int(sys.argv[2])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/rendezvous", rank=rank, world_size=4)
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tensor"))
model = torch.nn.Linear(2, 2)
with assay.capture(model, sys.argv[1] + "/run"):
    model(torch.ones(1, 2))
dist.barrier()
os._exit(0)  # a worker of gloo that frees a tensor while Python ends aborts the process (pytorch PR 179291)
"""

FAKE = """
import sys, types, torch, assay
module = types.ModuleType({name!r})
{functions}
sys.modules[{name!r}] = module
model = torch.nn.Linear(2, 2)
with assay.capture(model, sys.argv[1]):
    model(torch.ones(1, 2))
"""


def host_of(manifest):
    return json.loads(manifest.read_text())["host"]


@pytest.mark.slow
def test_named_dimensions_of_a_mesh(tmp_path):
    variables = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [warm_python.python("transformers"), "-c", MESH, str(tmp_path)]
    ranks = [subprocess.Popen([*command, str(rank)], env=variables) for rank in range(4)]
    assert [rank.wait(timeout=200) for rank in ranks] == [0, 0, 0, 0]
    for rank in range(4):  # row-major: the last dimension is the fastest
        assert host_of(tmp_path / "run" / f"rank{rank}" / "manifest.json")["parallel"] == {
            "dp": {"rank": rank // 2, "size": 2},
            "tp": {"rank": rank % 2, "size": 2},
        }


@pytest.mark.parametrize(
    ("name", "functions", "expected"),
    [
        (
            "megatron.core.parallel_state",
            "module.get_tensor_model_parallel_rank = lambda: 3\n"
            "module.get_tensor_model_parallel_world_size = lambda: 4\n"
            "module.get_data_parallel_rank = lambda: 0\n"
            "module.get_data_parallel_world_size = lambda: 1\n",
            {"tp": {"rank": 3, "size": 4}},  # a group of one tells nothing
        ),
        (
            "vllm.distributed.parallel_state",
            "module.get_tp_group = lambda: types.SimpleNamespace(rank_in_group=1, world_size=2)\n"
            "module.get_pp_group = lambda: types.SimpleNamespace(rank_in_group=2, world_size=4)\n",
            {"tp": {"rank": 1, "size": 2}, "pp": {"rank": 2, "size": 4}},
        ),
    ],
)
def test_groups_of_engines(name, functions, expected, tmp_path):
    script = FAKE.format(name=name, functions=functions)
    variables = {**os.environ, "RANK": "3", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}
    subprocess.run([warm_python.python(), "-c", script, str(tmp_path / "run")], env=variables, check=True, timeout=120)
    assert host_of(tmp_path / "run" / "rank3" / "manifest.json")["parallel"] == expected


def test_told(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "8")
    model = torch.nn.Linear(2, 2)
    with assay.capture(model, tmp_path / "run", parallel="tp=2,pp=2,dp=2"):
        model(torch.ones(1, 2))
    # 5 = 1 + 2 * 0 + 4 * 1
    assert host_of(tmp_path / "run" / "manifest.json")["parallel"] == {
        "tp": {"rank": 1, "size": 2},
        "pp": {"rank": 0, "size": 2},
        "dp": {"rank": 1, "size": 2},
    }
    for wrong, why in [("tp=2", "the product is not 8"), ("tp=2,x=4", "'x' is no kind"), ("tp", "is not like")]:
        with pytest.raises(assay.FormatError, match=why):
            assay.capture(model, tmp_path / "wrong", parallel=wrong)
    assert not (tmp_path / "wrong").exists()
