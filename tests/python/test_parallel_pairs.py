# SPDX-License-Identifier: Apache-2.0
"""A model in one process against the same one over several ranks: healthy ones are clean, faults are named.

The ranks hold shards of values and weights, partial sums, parts of the sequence, or parts of the weights alone.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import job_of_ranks
import pytest

pytest.importorskip("torch.distributed")
pytestmark = pytest.mark.slow

WORLDS = ["inside", "parent", "dtensor", "sequence", "fsdp"]
LEVELS = ["module", "operator"]
# What is wrong in layer 1, and where: a module that adds up inside, and one whose parent does.
FAULTS = {"missing": ("mlp.down", "mlp"), "twice": ("mlp.down", "mlp"), "stale": ("mlp.down", "mlp")}
FAULTS["bias"] = ("mlp.down", "mlp.down")
# What only ranks that are held against golden's, one by one, can show: another reduction, a part of the last rank that
# is off by 1 %, and a weight of the last rank.
OF_ONE_RANK = {"max": ("mlp.down", "mlp"), "part": ("mlp.down", "mlp"), "weight": ("mlp.up", "mlp.up")}

PROGRAM = """
import os, sys
import torch, torch.distributed as dist, torch.nn.functional as F
from torch import nn
import assay

folder, dtype, worlds, faults = sys.argv[1], getattr(torch, sys.argv[2]), sys.argv[3].split(), sys.argv[4].split()
ranks, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
if ranks > 1:
    dist.init_process_group("gloo")
HIDDEN, INNER, HEADS, LAYERS, VOCABULARY, TOKENS = 32, 64, 4, 3, 64, 16

class Column(nn.Module):  # rows of the weight
    def __init__(self, of):
        super().__init__()
        self.weight = nn.Parameter(of.weight.detach().chunk(ranks)[rank].clone())
        self.bias = nn.Parameter(of.bias.detach().chunk(ranks)[rank].clone())

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)

class Row(nn.Module):  # columns of the weight: a partial sum, which it adds up itself, or leaves to its parent
    def __init__(self, of, sums):
        super().__init__()
        self.weight = nn.Parameter(of.weight.detach().chunk(ranks, 1)[rank].clone())
        self.bias = nn.Parameter(of.bias.detach().clone())
        self.sums, self.fault = sums, ""

    def forward(self, x):
        y = F.linear(x, self.weight, self.bias if self.fault == "bias" or rank == 0 else None)
        return added_up(y, self) if self.sums else y

def added_up(y, module):
    if module.fault == "missing":
        return y
    if module.fault == "stale" and rank == ranks - 1:  # this rank gives what it gave in the step before
        before, module.before = getattr(module, "before", y), y.clone()
        y = before.clone()
    if module.fault == "part" and rank == ranks - 1:
        y[0, 3] *= 1.01
    dist.all_reduce(y, op=dist.ReduceOp.MAX if module.fault == "max" else dist.ReduceOp.SUM)
    if module.fault == "twice":
        dist.all_reduce(y)
    return y

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(HIDDEN, HIDDEN) for _ in range(4))
        self.sums, self.fault = False, ""

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (p(x).view(batch, length, -1, HIDDEN // HEADS).transpose(1, 2) for p in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = self.o(y.transpose(1, 2).reshape(batch, length, -1))
        return added_up(y, self) if self.sums else y

class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.gate, self.down = nn.Linear(HIDDEN, INNER), nn.Linear(HIDDEN, INNER), nn.Linear(INNER, HIDDEN)
        self.sums, self.fault = False, ""

    def forward(self, x):
        y = self.down(F.silu(self.gate(x)) * self.up(x))
        return added_up(y, self) if self.sums else y

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(HIDDEN), Attention()
        self.norm_2, self.mlp = nn.LayerNorm(HIDDEN), Mlp()

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.mlp(self.norm_2(x))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers = nn.Embedding(VOCABULARY, HIDDEN), nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))

def by_hand(model, sums_inside):
    for layer in model.layers:
        for module, first, last in ((layer.attention, "qkv", "o"), (layer.mlp, ("up", "gate"), "down")):
            for name in first:
                setattr(module, name, Column(getattr(module, name)))
            setattr(module, last, Row(getattr(module, last), sums_inside))
            module.sums = not sums_inside

def with_plans(model, of_sequence):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module,
    )
    mesh = init_device_mesh("cpu", (ranks,))
    column = ColwiseParallel
    row = (lambda: RowwiseParallel(output_layouts=Shard(1))) if of_sequence else RowwiseParallel
    plan = {f"attention.{name}": column() for name in "qkv"} | {"mlp.up": column(), "mlp.gate": column()}
    plan |= {"attention.o": row(), "mlp.down": row()}
    if of_sequence:
        gathers = lambda: PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
        plan |= {"norm": SequenceParallel(), "norm_2": SequenceParallel(), "attention": gathers(), "mlp": gathers()}
    for layer in model.layers:
        parallelize_module(layer, mesh, plan)
    if of_sequence:
        embed = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
        head = ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
        parallelize_module(model, mesh, {"embed": embed, "norm": SequenceParallel(), "head": head})

def with_shards_of_weights(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (ranks,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)

class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(HIDDEN, INNER), nn.Linear(INNER, HIDDEN)

    def forward(self, x):
        return self.down(F.silu(self.up(x)))

class Experts(nn.Module):  # of which a rank has some
    def __init__(self):
        super().__init__()
        self.router, self.experts = nn.Linear(HIDDEN, 4), nn.ModuleList(Expert() for _ in range(4))
        self.here = range(4)

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        y = torch.zeros_like(x)
        for i in self.here:
            at = (chosen == i).any(-1)
            if at.any():
                y[at] = y[at] + (weights * (chosen == i)).sum(-1, keepdim=True)[at] * self.experts[i](x[at])
        if len(self.here) < 4:
            dist.all_reduce(y)
        return y

def with_experts(model, over_ranks):
    for layer in model.layers:
        layer.mlp = Experts().to(dtype).eval()
        if over_ranks:
            layer.mlp.here = range(rank * 4 // ranks, (rank + 1) * 4 // ranks)
            for i in set(range(4)) - set(layer.mlp.here):
                layer.mlp.experts[i] = nn.Identity()

def pipelined(model):  # layer 0 in rank 0, the others in rank 1
    here = range(1) if rank == 0 else range(1, LAYERS)

    def forward(ids):
        x = model.embed(ids) if rank == 0 else torch.empty(1, TOKENS, HIDDEN, dtype=dtype)
        if rank == 1:
            dist.recv(x, 0)
        for i in here:
            x = model.layers[i](x)
        if rank == 0:
            dist.send(x, 1)
        return x if rank == 0 else model.head(model.norm(x))

    model.forward = forward
    for name in ("norm", "head") if rank == 0 else ("embed",):
        delattr(model, name)
    for i in set(range(LAYERS)) - set(here):
        model.layers[i] = nn.Identity()

CHANGES = {
    "one_with_experts": lambda model: with_experts(model, False),
    "experts": lambda model: with_experts(model, True),
    "pipeline": pipelined,
    "plain": lambda model: None,
    "inside": lambda model: by_hand(model, True),
    "parent": lambda model: by_hand(model, False),
    "dtensor": lambda model: with_plans(model, False),
    "sequence": lambda model: with_plans(model, True),
    "fsdp": with_shards_of_weights,
}

def capture(world, fault, level):
    torch.manual_seed(11)
    model = Model().to(dtype).eval()
    CHANGES[world](model)
    if fault == "weight" and rank == ranks - 1:
        with torch.no_grad():
            model.layers[1].mlp.up.weight[1] *= 1.05
    if fault:
        model.layers[1].mlp.fault = model.layers[1].mlp.down.fault = fault
    draw = torch.Generator().manual_seed(12)
    steps = [torch.randint(0, VOCABULARY, (1, TOKENS), generator=draw) for _ in range(2)]
    with torch.no_grad(), assay.capture(model, f"{folder}/{world}-{fault}-{level}", level=level, weights=True):
        for ids in steps:
            model(ids)

for world in worlds:
    for level in ("module", "operator"):
        capture(world, "", level)
    for fault in faults if world in ("inside", "parent") else ():
        for level in ("module", "operator"):
            capture(world, fault, level)
if ranks > 1:
    dist.barrier()
os._exit(0)  # a worker of gloo that frees a tensor while Python ends aborts the process (pytorch PR 179291)
"""


def run(folder: Path, ranks: int, dtype: str, worlds: list[str], faults: list[str]) -> None:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    job_of_ranks.run(ranks, program, folder, dtype, " ".join(worlds), " ".join(faults))


def verdict(folder: Path, mine: str, golden: str = "plain--operator") -> tuple[int, str]:
    command = ["assay", "locate", folder / golden, folder / mine]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    return done.returncode, " ".join(done.stdout.split())


@pytest.mark.parametrize(("ranks", "dtype"), [(2, "float32"), (4, "float32"), (4, "bfloat16")])
def test_healthy_ones_are_clean_and_faults_are_named(ranks: int, dtype: str, tmp_path: Path) -> None:
    # Given golden in one process, and the same model over ranks in five ways, two of them also with faults
    faults = list(FAULTS) if dtype == "float32" else []
    run(tmp_path, 1, dtype, ["plain"], [])
    run(tmp_path, ranks, dtype, WORLDS, faults)
    # Then a healthy one is clean
    healthy = {f"{world}--{level}": verdict(tmp_path, f"{world}--{level}") for world in WORLDS for level in LEVELS}
    assert {name: text for name, (status, text) in healthy.items() if (status, text[:6]) != (0, "clean:")} == {}
    # And of a faulty one the module is named that is wrong
    for fault in faults:
        for world, module in zip(("inside", "parent"), FAULTS[fault]):
            for level in LEVELS:
                status, text = verdict(tmp_path, f"{world}-{fault}-{level}")
                assert status == 1 and f"first bad: layers.1.{module} (" in text, (world, fault, level, text)


def test_golden_of_several_ranks_accuses_no_healthy_run(tmp_path: Path) -> None:
    """Cut as golden is, cut otherwise, and in one process; also experts and stages of a pipeline."""
    worlds = [*WORLDS, "experts", "pipeline"]
    run(tmp_path, 1, "float32", ["plain", "one_with_experts"], [])
    run(tmp_path, 2, "float32", worlds, [])
    pairs = [(golden, mine) for golden in WORLDS for mine in [*WORLDS, "plain"]]
    for other, one in (("experts", "one_with_experts"), ("pipeline", "plain")):
        pairs += [(other, other), (other, one), (one, other)]
    found = {}
    for golden, mine in pairs:
        for level in LEVELS:
            status, text = verdict(tmp_path, f"{mine}--{level}", f"{golden}--operator")
            found[golden, mine, level] = text if status == 1 or status not in (0, 125) else text[:6]
    assert {pair: text for pair, text in found.items() if text not in ("clean:", "cannot")} == {}
    for level in LEVELS:
        for world in WORLDS:  # of the same placement all are judged
            assert found[world, world, level] == "clean:", (world, level)
        for mine in ("plain", "fsdp"):
            assert "are cut otherwise" in verdict(tmp_path, f"{mine}--{level}", "inside--operator")[1]


@pytest.mark.parametrize(("ranks", "dtype"), [(2, "float32"), (4, "float32"), (4, "bfloat16")])
def test_as_many_ranks_as_golden_has_are_judged_one_by_one(ranks: int, dtype: str, tmp_path: Path) -> None:
    # Given the same program over the same ranks twice, and with faults
    faults = [*FAULTS, *OF_ONE_RANK] if dtype == "float32" else []
    run(tmp_path, ranks, dtype, WORLDS, faults)
    # Then golden's collectives are replayed on what all ranks of the run under test gave: a healthy one is clean
    for world in WORLDS:
        for level in LEVELS:
            status, text = verdict(tmp_path, f"{world}--{level}", f"{world}--operator")
            assert (status, text[:6]) == (0, "clean:"), (world, level, text)
    # And of a faulty one the module is named that is wrong
    for fault in faults:
        for world, module in zip(("inside", "parent"), (FAULTS | OF_ONE_RANK)[fault]):
            for level in LEVELS:
                status, text = verdict(tmp_path, f"{world}-{fault}-{level}", f"{world}--operator")
                assert status == 1 and f"first bad: layers.1.{module} (" in text, (world, fault, level, text)
