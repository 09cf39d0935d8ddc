# SPDX-License-Identifier: Apache-2.0
"""Collectives between ranks: what is recorded is what the program had at that place, and nobody waits for it.

The program below is run by two and by four ranks over gloo. Each case is a model of two modules; the oracle are copies
that the program makes itself where a module ends, or as soon as it has waited for the collective.
"""

from __future__ import annotations

import os
from pathlib import Path

import job_of_ranks
import pytest

pytest.importorskip("torch.distributed")
pytestmark = pytest.mark.slow

PROGRAM = """
import os, sys
import torch, torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
import assay
from bench import record_lines

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
level, folder = sys.argv[1], sys.argv[2]
kept = []

def keep(y):
    kept.append(y.clone())
    return y

def done(case):
    os.write(1, f"{rank} {case}\\n".encode())  # lines of several processes stay whole

def product(x):
    return x @ torch.full((16, 16), rank + 1.0)

# -- torch.distributed: each takes a tensor, and returns the result and what is to be waited for (or nothing)

def all_reduce(y, later):
    return y, dist.all_reduce(y, async_op=later)

def broadcast(y, later):
    return y, dist.broadcast(y, ranks - 1, async_op=later)

def reduce(y, later):
    return y, dist.reduce(y, 0, async_op=later)

def all_gather(y, later):
    parts = [torch.empty_like(y) for _ in range(ranks)]
    return parts, dist.all_gather(parts, y, async_op=later)

def all_gather_into_tensor(y, later):
    whole = torch.empty(ranks * y.shape[0], y.shape[1])
    return whole, dist.all_gather_into_tensor(whole, y, async_op=later)

def gather(y, later):
    parts = [torch.empty_like(y) for _ in range(ranks)] if rank == 0 else None
    return parts or [y], dist.gather(y, parts, 0, async_op=later)

def scatter(y, later):
    part = torch.empty(y.shape[0] // ranks, y.shape[1])
    return part, dist.scatter(part, list(y.chunk(ranks)) if rank == 0 else None, 0, async_op=later)

def reduce_scatter_tensor(y, later):
    part = torch.empty(y.shape[0] // ranks, y.shape[1])
    return part, dist.reduce_scatter_tensor(part, y, async_op=later)

def reduce_scatter(y, later):
    part = torch.empty(y.shape[0] // ranks, y.shape[1])
    return part, dist.reduce_scatter(part, [c.contiguous() for c in y.chunk(ranks)], async_op=later)

def all_to_all_single(y, later):
    other = torch.empty_like(y)
    return other, dist.all_to_all_single(other, y, async_op=later)

def all_to_all(y, later):
    parts = [torch.empty_like(c) for c in y.chunk(ranks)]
    return parts, dist.all_to_all(parts, [c.contiguous() for c in y.chunk(ranks)], async_op=later)

def send_and_recv(y, later):
    other = torch.empty_like(y)
    if later:
        works = [dist.isend(y, (rank + 1) % ranks), dist.irecv(other, (rank - 1) % ranks)]
        return other, works
    for turn in (0, 1):
        if rank % 2 == turn:
            dist.send(y, (rank + 1) % ranks)
        else:
            dist.recv(other, (rank - 1) % ranks)
    return other, None

def batched_send_and_recv(y, later):
    other = torch.empty_like(y)
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, y, (rank + 1) % ranks), dist.P2POp(dist.irecv, other, (rank - 1) % ranks)]
    )
    return other, works

def all_reduce_coalesced(y, later):
    other = y + 1
    return [y, other], dist.all_reduce_coalesced([y, other], async_op=later)

def coalescing_manager(y, later):
    other = y + 1
    with dist._coalescing_manager(async_ops=later) as manager:
        dist.all_reduce(y)
        dist.all_reduce(other)
    return [y, other], manager if later else None

EAGER = [all_reduce, broadcast, reduce, all_gather, all_gather_into_tensor, gather, scatter, reduce_scatter_tensor,
         reduce_scatter, all_to_all_single, all_to_all, send_and_recv, batched_send_and_recv, all_reduce_coalesced,
         coalescing_manager]

class Child(nn.Module):
    def forward(self, x):
        return keep(product(x))

class Eager(nn.Module):
    def __init__(self, collective, later):
        super().__init__()
        self.child, self.collective, self.later = Child(), collective, later

    def forward(self, x):
        result, work = self.collective(self.child(x), self.later)
        other = x + 1
        for one in work if isinstance(work, list) else [work]:
            if one is not None:
                one.wait()
        result = torch.cat(result) if isinstance(result, list) else result
        return keep(result * other.sum())

# -- functional collectives, whose results are waited for when they are used

group = dist.group.WORLD
FUNCTIONAL = {
    "all_reduce": lambda y: functional.all_reduce(y, "sum", group),
    "broadcast": lambda y: functional.broadcast(y, 0, group),
    "all_gather_tensor": lambda y: functional.all_gather_tensor(y, 0, group),
    "reduce_scatter_tensor": lambda y: functional.reduce_scatter_tensor(y, "sum", 0, group),
    "all_to_all_single": lambda y: functional.all_to_all_single(y, None, None, group),
    "all_reduce_coalesced": lambda y: functional.all_reduce_coalesced([y], "sum", group)[0],
}
def wait_beside_another(y):
    other = functional.all_reduce(torch.ones(4), "sum", group)  # stays in flight
    result = y.wait().mul_(2)
    other.wait()
    return result

USES = {
    "arithmetic": lambda y: y * 2,
    "wait": lambda y: y.wait() * 2,
    "wait_tensor": lambda y: functional.wait_tensor(y) * 2,
    "view": lambda y: y.view(-1, 2) * 2,
    "overload": lambda y: torch.ops._c10d_functional.wait_tensor.default(y.elem).mul_(2),
    "overload_by_name": lambda y: torch.ops._c10d_functional.wait_tensor.default(tensor=y.elem).mul_(2),
    "in_place": lambda y: y.mul_(2),
    "wait_in_place": lambda y: y.wait().mul_(2),
    "wait_beside_another": lambda y: wait_beside_another(y),
}
WRITES = [use for name, use in USES.items() if name not in ("arithmetic", "wait", "wait_tensor", "view")]

class Starts(nn.Module):
    def __init__(self, collective):
        super().__init__()
        self.collective = collective

    def forward(self, x):
        return self.collective(product(x))

class Takes(nn.Module):
    def __init__(self, use):
        super().__init__()
        self.use = use

    def forward(self, y):
        result = self.use(y)
        if self.use not in WRITES:
            keep(y.elem)  # the result of the collective, after the program has waited for it
        return keep(result)

class Functional(nn.Module):
    def __init__(self, collective, use):
        super().__init__()
        self.starts, self.takes = Starts(collective), Takes(use)

    def forward(self, x):
        return self.takes(self.starts(x))

# -- what is recorded

def value_of(run, record):
    place = record.get("view") or record
    with open(f"{run}/rank{rank}/{place['file']}", "rb") as file:
        file.seek(place["offset"])
        return torch.frombuffer(bytearray(file.read(place["bytes"])), dtype=torch.float32).reshape(record["shape"])

def is_value(run, record, value):
    return "offset" in (record.get("view") or record) and torch.equal(value_of(run, record), value)

def check_operators(run, lines):
    # A value has one content, whoever saw it, and a collective says who had it together.
    contents = {}
    for r in lines:
        if "vid" in r and r.get("dtype") == "float32" and "offset" in (r.get("view") or r):
            value = value_of(run, r).view(torch.int32)  # what nobody wrote may be NaN
            assert torch.equal(contents.setdefault(r["vid"], value), value), (run, r)
        name = r.get("type", "")
        if r.get("kind") != "operator" or "c10d" not in name or "wait_tensor" in name or "_wrap_tensor" in name:
            continue
        point_to_point = "src" in r["args"] and "tag" in r["args"] or "dst" in r["args"]
        assert point_to_point or r["args"]["ranks"] == list(range(ranks)), r
        kind = r["args"].get("reduces", r["args"].get("reduce_op"))
        assert "reduce" not in name or kind == "sum", r

def capture(name, model, steps=2):
    # Returns the lines of outputs and of inputs of modules.
    kept.clear()
    run = f"{folder}/{name}"
    torch.manual_seed(rank)
    inputs = [torch.randn(32, 16) for _ in range(steps)]
    with torch.no_grad(), assay.capture(model, run, level=level):
        for x in inputs:
            model(x)
    lines = record_lines.read(f"{run}/rank{rank}/records.jsonl")
    lines.sort(key=lambda r: (r.get("step", 0), r.get("order", 0)))
    check_operators(run, lines)
    return run, *(
        [r for r in lines if "::" not in r.get("node", "::") and r.get("role") == role] for role in ("output", "input")
    )

for collective in EAGER:
    for later in (False, True):
        name = f"{collective.__name__}-{later}"
        run, outputs, _ = capture(name, Eager(collective, later))
        outputs.sort(key=lambda r: (r["step"], r["node"] == ""))  # the child's comes first
        assert len(outputs) == len(kept) == 4, (name, len(outputs), len(kept))
        assert all(is_value(run, r, value) for r, value in zip(outputs, kept)), name
        done(name)

# A module returns what a collective is still writing, and the one around it waits, keeps a copy and writes over it.
# Rank 0 ends that module before another rank begins the collective: whoever reads there, or waits, is found out.

store = dist.distributed_c10d._get_default_store()

class LeavesInFlight(nn.Module):
    def __init__(self, collective):
        super().__init__()
        self.collective = collective

    def forward(self, x):
        result, work = self.collective(product(x), True)
        self.works = work if isinstance(work, list) else [work]
        return result

class WaitsBehind(nn.Module):
    def __init__(self, collective):
        super().__init__()
        self.starts, self.reads, self.turn = LeavesInFlight(collective), nn.Identity(), f"turn-{collective.__name__}"

    def forward(self, x):
        self.turn += "."
        if rank != 0:
            store.wait([self.turn])
        result = self.reads(self.starts(x))
        if rank == 0:
            store.set(self.turn, "")
        for one in self.starts.works:
            if one is not None:
                one.wait()
        parts = result if isinstance(result, list) else [result]
        for part in parts:
            keep(part)
            part.mul_(2)
        return torch.cat(parts)

for collective in EAGER:
    run, outputs, inputs = capture(f"{collective.__name__}-in_flight", WaitsBehind(collective))
    for node, lines in ("starts", outputs), ("reads", inputs), ("reads", outputs):
        # Parts of one result may arrive in any order.
        of = sorted((r for r in lines if r["node"] == node), key=lambda r: (r["step"], r["slot"]))
        assert len(of) == len(kept) > 0, (collective, node, len(of), len(kept))
        assert all(is_value(run, r, value) for r, value in zip(of, kept)), (collective, node)
    done(f"{collective.__name__}-in_flight")

waits = 0
plain_wait = functional.wait_tensor

def counting_wait(*arguments):
    global waits
    waits += 1
    return plain_wait(*arguments)

functional.wait_tensor = counting_wait
for name, collective in FUNCTIONAL.items():
    for how in USES if name == "all_reduce" else ("arithmetic", "view"):
        use = USES[how]
        model = Functional(collective, use)
        with torch.no_grad():
            waits = 0
            for _ in range(2):
                model(torch.randn(32, 16))
            expected = waits
        waits = 0
        run, outputs, inputs = capture(f"{name}-{how}", model)
        assert waits == expected, (name, how, waits, expected)
        for step in (0, 1):
            start, = (r for r in outputs if r["step"] == step and r["node"] == "starts")
            given, = (r for r in inputs if r["step"] == step and r["node"] == "takes")
            ends = [r for r in outputs if r["step"] == step and r["node"] in ("takes", "")]
            assert len(ends) == 2
            if USES[how] in WRITES:
                result, = kept[step:step + 1]
                for r in (start, given):
                    assert is_value(run, r, result / 2), (name, how, r)
            else:
                reduced, result = kept[2 * step:2 * step + 2]
                assert all(is_value(run, r, reduced) for r in (start, given)), (name, how, start, given)
            assert all(is_value(run, r, result) for r in ends), (name, how)
        done(f"{name}-{how}")

# The model's own result: waited for at once, only behind the capture, or never.
for waited in (True, False):
    kept.clear()
    run = f"{folder}/root-{waited}"
    model = Starts(FUNCTIONAL["all_reduce"])
    with torch.no_grad(), assay.capture(model, run, level=level):
        for _ in range(2):
            y = model(torch.ones(32, 16))
            if waited:
                keep(y.trigger_wait())
        del y
    lines = record_lines.read(f"{run}/rank{rank}/records.jsonl")
    outputs = [r for r in lines if r.get("role") == "output" and r.get("node") == ""]
    assert len(outputs) == 2
    if waited:
        assert all(is_value(run, r, value) for r, value in zip(outputs, kept)), outputs
    else:
        assert all("may still write" in r["reason"] for r in outputs), outputs
    done(f"root-{waited}")
model, run = Starts(FUNCTIONAL["all_reduce"]), f"{folder}/root-behind"
with torch.no_grad(), assay.capture(model, run, level=level):
    y = model(torch.ones(32, 16))
lines = record_lines.read(f"{run}/rank{rank}/records.jsonl")
(output,) = (r for r in lines if r.get("role") == "output" and r.get("node") == "")
assert is_value(run, output, y * 1), output
done("root-behind")
functional.wait_tensor = plain_wait

# -- DTensor: the recorded value is the local shard

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

mesh = init_device_mesh("cpu", (ranks,))

class Shards(nn.Module):
    def forward(self, x):
        return DTensor.from_local(product(x), mesh, [Shard(0)])

class Redistributes(nn.Module):
    def __init__(self, later):
        super().__init__()
        self.later = later

    def forward(self, y):
        return y.redistribute(mesh, [Replicate()], async_op=self.later)

class UsesShards(nn.Module):
    def forward(self, y):
        result = y * 2
        local = y._local_tensor
        keep(local.elem if hasattr(local, "elem") else local)
        keep(result._local_tensor)
        return result

for later in (False, True):
    model = nn.Sequential(Shards(), Redistributes(later), UsesShards())
    run, outputs, inputs = capture(f"dtensor-{later}", model)
    for step in (0, 1):
        whole, result = kept[2 * step:2 * step + 2]
        of = {r["node"]: r for r in outputs if r["step"] == step}
        given = {r["node"]: r for r in inputs if r["step"] == step}
        assert is_value(run, of["1"], whole) and is_value(run, given["2"], whole), (later, of["1"], given["2"])
        assert is_value(run, of["2"], result) and is_value(run, of[""], result)
    done(f"dtensor-{later}")

torch.manual_seed(0)
class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 8 * ranks), nn.Linear(8 * ranks, 16)

    def forward(self, x):
        h = keep(self.up(x))
        return keep(self.down(h.relu()))

model = parallelize_module(Mlp(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
run, outputs, _ = capture("parallelized", model)
for step in (0, 1):
    of = {r["node"]: r for r in outputs if r["step"] == step}
    up, down = kept[2 * step:2 * step + 2]
    down = down.wait() if hasattr(down, "wait") else down
    assert is_value(run, of["up"], up) and is_value(run, of["down"], down) and is_value(run, of[""], down), of
done("parallelized")

# -- compiled: the wrapper's own input and output

class Compiled(nn.Module):
    def forward(self, x):
        y = product(x)
        dist.all_reduce(y)
        return y * 2

for backend in ("eager", "aot_eager"):
    compiled = torch.compile(Compiled(), backend=backend)
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = compiled

        def forward(self, x):
            return keep(self.inner(x)) + 1
    run, outputs, _ = capture(f"compiled-{backend}", Outer())
    inner = [r for r in outputs if r["node"] == "inner"]
    assert len(inner) == 2 and all(is_value(run, r, value) for r, value in zip(inner, kept)), (backend, outputs)
    done(f"compiled-{backend}")

dist.barrier()
os._exit(0)  # a worker of gloo that frees a tensor while Python ends aborts the process (pytorch PR 179291)
"""

EAGER = ["all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "gather", "scatter"]
EAGER += ["reduce_scatter_tensor", "reduce_scatter", "all_to_all_single", "all_to_all", "send_and_recv"]
EAGER += ["batched_send_and_recv", "all_reduce_coalesced", "coalescing_manager"]
FUNCTIONAL = ["all_reduce", "broadcast", "all_gather_tensor", "reduce_scatter_tensor", "all_to_all_single"]
FUNCTIONAL += ["all_reduce_coalesced"]
USES = ["arithmetic", "wait", "wait_tensor", "view", "overload", "overload_by_name", "in_place", "wait_in_place"]
USES += ["wait_beside_another"]
CASES = [
    *(f"{name}-{later}" for name in EAGER for later in (False, True, "in_flight")),
    *(f"{name}-{use}" for name in FUNCTIONAL for use in (USES if name == "all_reduce" else ["arithmetic", "view"])),
    *("root-True", "root-False", "root-behind", "dtensor-False", "dtensor-True", "parallelized"),
    *("compiled-eager", "compiled-aot_eager"),
]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("level", ["module", "operator"])
def test_values_are_those_of_the_place_and_no_wait_is_added(
    level: str, ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
    said = job_of_ranks.run(ranks, program, level, tmp_path / "runs")
    assert sorted(said.splitlines()) == sorted(f"{rank} {case}" for rank in range(ranks) for case in CASES)
