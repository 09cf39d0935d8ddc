# SPDX-License-Identifier: Apache-2.0
"""Every kind of tensor that a host may hand over, at every level: the host lives, computes the same bits, and the
record says what the tensor was. tensor_kinds.py lists the kinds and what is to be recorded of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import job_of_ranks
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("assay.torch.capture")

from bench import record_lines  # noqa: E402
from tensor_kinds import KINDS, LEVELS, Kind, folder_of  # noqa: E402

pytestmark = pytest.mark.slow
Record = dict[str, Any]


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int], str]:
    """(folder with one for each kind, exit statuses, stderr)."""
    root = tmp_path_factory.mktemp("kinds")
    program = Path(__file__).with_name("tensor_kinds.py")
    done = subprocess.run([sys.executable, str(program), str(root)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return root, json.loads(done.stdout.splitlines()[-1]), done.stderr


def tensor_in(folder: Path, record: Record) -> list[Any]:
    with open(folder / record["file"], "rb") as file:
        file.seek(record["offset"])
        data = bytearray(file.read(record["bytes"]))
    return torch.frombuffer(data, dtype=getattr(torch, record["dtype"])).reshape(record["shape"]).tolist()


def check_records(kind: Kind, folder: Path, records: list[Record], bytes_wanted: bool) -> None:
    whole = [record for record in records if record["slot"] in ("0", "")]
    assert [record["role"] for record in whole] == ["input", "output"]
    for record in whole:
        assert record.get("class", "") == kind.cls, record
        if kind.reason:
            assert record["kind"] == "skipped" and kind.reason in record["reason"] and "file" not in record
        elif kind.values is not None:
            assert record.get("kind") is None and record["stats"]["count"] == torch.tensor(kind.values).numel()
            if bytes_wanted:
                assert tensor_in(folder, record) == kind.values
    for part, values in kind.parts.items():
        found = [r for r in records if r["slot"] in (part, f"0.{part}")]
        assert len(found) == 2, part
        for record in found:
            assert record["stats"]["count"] == len(values)
            if bytes_wanted:
                assert tensor_in(folder, record) == values


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", KINDS)
def test_the_host_lives_and_computes_the_same_bits(name: str, level: str, kinds: Any) -> None:
    root, endings, errors = kinds
    result = folder_of(root, name) / level / "result.json"

    assert result.exists(), f"ended with {endings[name]}: {errors}"
    found = json.loads(result.read_text())
    assert found["got"] == found["wanted"]
    # A guard on a symbolic size would change what the host's tracer makes.
    assert found["guards"] == 0


@pytest.mark.parametrize("level", ["module", "operator", "statistics"])
@pytest.mark.parametrize("name", KINDS)
def test_the_record_says_what_the_tensor_was(name: str, level: str, kinds: Any) -> None:
    folder = folder_of(kinds[0], name) / level / "run" / "rank0"
    lines = record_lines.read(folder / "records.jsonl")

    of_module = [r for r in lines if r["node"] == "give" and r.get("type") == "Pass"]
    check_records(KINDS[name], folder, of_module, level != "statistics")


def test_a_shard_says_where_it_lies_in_the_whole(kinds: Any) -> None:
    lines = (
        (folder_of(kinds[0], "sharded DTensor") / "module" / "run" / "rank0" / "records.jsonl").read_text().splitlines()
    )
    shards = [json.loads(line)["shard"] for line in lines if '"shard"' in line]

    # Four values over a mesh of one process.
    whole = {
        "mesh": [1],
        "names": ["tp"],
        "coordinate": [0],
        "placements": ["Shard(dim=0)"],
        "shape": [4],
        "offset": [0],
    }
    assert shards == [whole, whole]


@pytest.mark.parametrize("name", KINDS)
def test_graph_mode_names_what_it_could_not_write(name: str, kinds: Any) -> None:
    kind = KINDS[name]
    missed = json.loads((folder_of(kinds[0], name) / "graph" / "missed.json").read_text())

    assert bool(missed) == bool(kind.reason or kind.cls in ("DTensor", "AsyncCollectiveTensor")) or kind.values is None


def test_nothing_is_said_about_tensors_that_are_only_looked_at(kinds: Any) -> None:
    # torch warns when somebody asks a fake tensor for its address.
    assert "data pointer" not in kinds[2]


@pytest.mark.parametrize(
    "name", [name for name in KINDS if name.startswith(("quint8", "qint", "bits", "complex32", "float"))]
)
def test_element_types_that_cannot_be_read_are_listed_by_name(name: str, kinds: Any) -> None:
    pytest.importorskip("assay._core")
    import assay

    run = assay.open(str(folder_of(kinds[0], name) / "module" / "run"))
    found = [record for record in run.records if record.node == "give"]

    assert [record.role for record in found] == ["input", "output"]
    for record in found:
        # The name of torch, also where nobody can read it.
        assert record.dtype_name and name.split()[0] in record.dtype_name
        assert bool(record.problem) == bool(KINDS[name].reason)


TWO_RANKS = """
import sys, torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
import assay

torch.set_num_threads(1)
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))

class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8, bias=False), nn.Linear(8, 4, bias=False)
    def forward(self, x):
        return self.down(torch.relu(self.up(x)))

model = Mlp()
for weight in model.parameters():
    weight.data = torch.arange(32.0).reshape(weight.shape)
parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel(use_local_output=False)})
x = torch.ones(2, 4)
with torch.no_grad():
    wanted = model(x)
    for level in ("module", "operator"):
        with assay.capture(model, f"{sys.argv[1]}/{level}", level=level, weights=True, queue_bytes=8 << 20):
            got = model(x)
        assert torch.equal(got.full_tensor(), wanted.full_tensor())
dist.barrier()
dist.destroy_process_group()
"""


def test_two_ranks_of_a_parallel_model_record_their_own_shards(tmp_path: Path) -> None:
    job_of_ranks.run(2, "-c", TWO_RANKS, tmp_path)

    whole = torch.arange(32.0).reshape(8, 4)
    for level in ("module", "operator"):
        for rank in range(2):
            folder = tmp_path / level / f"rank{rank}"
            lines = record_lines.read(folder / "records.jsonl")
            (weight,) = [r for r in lines if r.get("role") == "weight" and r["node"] == "up"]
            # Columns of the product are rows of the weight: four of eight a rank.
            assert weight["class"] == "DTensor" and weight["shard"]["placements"] == ["Shard(dim=0)"]
            assert weight["shard"]["coordinate"] == [rank] and weight["shard"]["offset"] == [4 * rank, 0]
            assert weight["shard"]["shape"] == [8, 4] and weight["shard"]["mesh"] == [2]
            assert tensor_in(folder, weight) == whole[4 * rank : 4 * rank + 4].tolist()
            (down,) = [r for r in lines if r["node"] == "down" and r.get("role") == "output" and r["type"] == "Linear"]
            # relu(ones @ up.T) @ down.T, summed over both ranks.
            wanted = torch.ones(2, 4) @ whole.T @ torch.arange(32.0).reshape(4, 8).T
            assert down["shard"]["placements"] == ["Replicate()"] and tensor_in(folder, down) == wanted.tolist()
