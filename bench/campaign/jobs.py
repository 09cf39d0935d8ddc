# SPDX-License-Identifier: Apache-2.0
"""Jobs of few ranks in many arrangements: whoever is healthy must not be named, whoever is wrong must be.

Each case draws a world: how the job divides a model (stages of a pipeline, experts, replicas), how far ranks are from
golden, and how much that differs between them. It is compared once as it is, and once with a fault in one rank.
"""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy

from bench.campaign.campaign import FAILED, MISTAKE, OK, Campaign, Case, Result, Workplace, rounds
from bench.compare_speed import find_assay
from bench.measure import NotAvailable
from bench.report import Row

LAYERS, EXPERTS, SHAPE = 8, 8, (4, 16)
STAGES, PLACES = 4, 4
FAULTS = (0.15, 0.6)  # relative size, of a half of the layers of one rank
LARGEST_NOISE = 0.09  # a rank that is off by more is not healthy
# So many times the largest error of a healthy rank at the same place: what can be told from noise.
VISIBLE = 30.0
KINDS = {
    "stages-from-0": "4 stages that each number their layers from 0, of 1 to 5 replicas of one prompt",
    "stages-through": "4 stages that number their layers through",
    "experts-from-0": "8 experts on 4 places that number them from 0, of 1 to 5 replicas",
    "experts-through": "8 experts on 4 places, by their number in the model",
    "experts-untold": "experts numbered from 0, and nobody tells the places",
    "replicas": "4 to 9 replicas, some of them with other prompts",
    "three": "3 ranks against 3, each with its own data",
    "ranks": "4 to 64 ranks against as many",
}
SPREADS = (0.0, 0.5, 1.0, 1.5, 2.0)  # sigma of the log of the error, between ranks

Tensors = dict[str, numpy.ndarray]


class Jobs(Campaign):
    """See the module."""

    name = "jobs"
    title = "Arrangements of jobs"
    about = (
        f"Two runs of a model of {LAYERS} layers and {EXPERTS} experts a layer: golden by one rank, or as mine, and "
        "mine as a job. Ranks are equal to golden, or off by errors of log-normal size, with sigma up to 2 between "
        f"ranks, and {100 * LARGEST_NOISE:g} % at most. Each world is compared twice: as it is, and with one rank "
        "that is off by 15 to 60 % in half of its layers.",
        "*accused*: a rank of the healthy job, or another one than the wrong one, was named. *unseen*: the wrong "
        f"rank was not named, though its error is {VISIBLE:g} times the largest of the others at the same place; of a "
        "single replica, that the worst row is not of that rank. Both must be 0. *in noise*: wrong ranks nearer to "
        "the others, which need not be named.",
    )
    weight = 0.25
    timeout_s = 120.0
    columns = ["", "worlds", "accused", "unseen", "seen", "in noise"]

    def cases(self, seed: int) -> Iterator[Case]:
        """All kinds before the first comes again."""
        draw = random.Random(seed)
        for kind in rounds(KINDS, draw):
            yield Case(f"{kind}-{draw.randrange(2**31)}")

    def sample(self) -> Iterable[Case]:
        """One of each arrangement that names are told apart in."""
        return [Case("stages-from-0-1"), Case("experts-from-0-2"), Case("replicas-3")]

    def case_of(self, name: str) -> Case:
        """From ``<kind>-<number>``."""
        kind, _, number = name.rpartition("-")
        if kind not in KINDS or not number.isdigit():
            raise ValueError("the name must be a kind of job and a number, with a dash")
        return Case(name)

    def run(self, case: Case, work: Workplace) -> Result:
        """Writes golden and both jobs, compares, looks who is named."""
        assay = find_assay(None)
        if assay is None:
            raise NotAvailable("no `assay` command is installed")
        kind, _, number = case.name.rpartition("-")
        world = draw_world(kind, int(number))
        folder = work.scratch / case.name
        folder.mkdir()
        try:
            world.write(folder)
            mistakes = list(_accusations(assay, folder, "healthy", world, None))
            result: Result = {"kind": kind, "accused": len(mistakes)}
            if world.wrong is not None:
                named = _named(assay, folder, "faulty", world)
                accused = [f"with rank {world.wrong} wrong {text}" for rank, text in named if rank != world.wrong]
                mistakes += accused
                result["accused"] += bool(accused)
                is_seen = any(rank == world.wrong for rank, _ in named)
                if not world.has_peers:
                    is_seen = _said(assay, folder, "faulty", world)[0]["worst"][0]["rank"] == world.wrong
                result["seen"] = int(is_seen)
                result["in noise"] = int(not is_seen and not world.is_visible)
                result["unseen"] = int(not is_seen and world.is_visible)
                if result["unseen"]:
                    mistakes.append(f"rank {world.wrong} is wrong and not named")
            result["outcome"] = MISTAKE if mistakes else OK
            return {**result, "reason": f"{world.about}: " + "; ".join(mistakes)} if mistakes else result
        finally:
            if not work.keep:
                shutil.rmtree(folder)

    def rows(self, results: list[Result]) -> list[Row]:
        """By kind."""
        rows = []
        for kind, about in KINDS.items():
            of_kind = [result for result in results if result.get("kind") == kind]
            counts = {"worlds": len(of_kind)}
            for key in self.columns[2:]:
                counts[key] = sum(result.get(key, 0) for result in of_kind)
            counts["failed"] = sum(result["outcome"] == FAILED for result in of_kind)
            rows.append(Row(f"{kind}: {about}", {key: str(counts[key]) for key in self.columns[1:]}, data=counts))
        return rows


@dataclass
class World:
    """A job, healthy and with a fault.

    Attributes:
        golden: tensors by rank.
        healthy: of the job.
        faulty: the same with one wrong rank; None where no fault is planted.
        parallel: the option that tells the groups; "" tells nothing.
        wrong: the rank with the fault.
        is_visible: whether that can be told from noise.
        has_peers: whether other ranks hold the same tensors.
        about: of the noise, for people.
    """

    golden: list[Tensors]
    healthy: list[Tensors]
    faulty: Optional[list[Tensors]]
    parallel: str
    wrong: Optional[int]
    is_visible: bool
    has_peers: bool
    about: str

    def write(self, folder: Path) -> None:
        """As native runs `golden`, `healthy` and `faulty`."""
        write_run(folder / "golden", self.golden)
        write_run(folder / "healthy", self.healthy)
        if self.faulty is not None:
            write_run(folder / "faulty", self.faulty)


# ---- models ----


def model(prompt: int) -> Tensors:
    """What a model is given and computes for a prompt."""
    draw = numpy.random.default_rng(prompt)
    tensors = {"model input": numpy.array([prompt, 2, 3])}
    for layer in range(LAYERS):
        for part in ("attn", *(f"mlp.experts.{expert}" for expert in range(EXPERTS)), "mlp"):
            tensors[f"model.layers.{layer}.{part} output"] = draw.standard_normal(SHAPE).astype(numpy.float32)
    return tensors


def layer_of(name: str) -> int:
    """The layer of a tensor; -1 for the model's own."""
    return int(name.split(".")[2]) if ".layers." in name else -1


def expert_of(name: str) -> int:
    """The expert of a tensor; -1 for what is none's."""
    return int(name.split(".")[5].split(" ")[0]) if ".experts." in name else -1


def divided(tensors: Tensors, kind: str) -> list[tuple[Tensors, dict[str, str]]]:
    """A replica's ranks: tensors by their names in the model, and what each rank calls them."""
    number_of, count, places = (layer_of, LAYERS, STAGES) if kind.startswith("stages") else (expert_of, EXPERTS, PLACES)
    if not kind.startswith(("stages", "experts")):
        return [(tensors, {name: name for name in tensors})]
    each = count // places
    ranks = []
    for place in range(places):
        held = {
            name: tensor
            for name, tensor in tensors.items()
            if number_of(name) // each == place
            or (number_of(name) < 0 and (number_of is expert_of or place == 0))  # the model's input
        }
        own = {name: name for name in held}
        for name in held if not kind.endswith("through") else ():
            list_of = "layers" if number_of is layer_of else "experts"
            number = number_of(name)
            if number >= 0:
                own[name] = re.sub(rf"\.{list_of}\.{number}\b", f".{list_of}.{number % each}", name, count=1)
        ranks.append((held, own))
    return ranks


def draw_world(kind: str, number: int) -> World:
    """The world of a case."""
    draw = random.Random(f"{kind}-{number}")
    spread = draw.choice(SPREADS)
    size = 0.0 if draw.random() < 0.25 else 10 ** draw.uniform(-6, -3)
    rows = draw.uniform(0.1, 0.7)  # sigma between the tensors of a rank
    fault = draw.uniform(*FAULTS)
    about = f"errors of {size:.1e}, sigma {spread} between ranks and {rows:.1f} within"
    if kind in ("three", "ranks"):
        count = 3 if kind == "three" else draw.choice((4, 8, 16, 64))
        replicas = [model(draw.randrange(1, 2**20)) for _ in range(count)]
        golden = list(replicas)
    else:
        count = (
            draw.randint(4, 9)
            if kind == "replicas"
            else 1
            if kind == "experts-untold"
            else draw.choice((1, 3, 3, 4, 5))
        )
        prompt = draw.randrange(1, 2**20)
        others = draw.sample(range(count), draw.randint(1, count - 3)) if kind == "replicas" else []
        replicas = [model(prompt + 1 + i if i in others else prompt) for i in range(count)]
        golden = [model(prompt)]
        about += f", {len(others)} replicas of other prompts" if others else ""
    noise = numpy.random.default_rng(draw.randrange(2**32))
    healthy: list[Tensors] = []
    errors: list[dict[str, float]] = []  # by the names in the model
    names: list[dict[str, str]] = []
    for tensors in replicas:
        off, sizes = noisy(tensors, size, spread, rows, noise)
        # What several ranks of a replica hold is the same on all of them; its experts are each one rank's.
        for part, own in divided(off, kind):
            healthy.append({own[name]: tensor for name, tensor in part.items()})
            errors.append({name: sizes[name] for name in part})
            names.append(own)
    parallel = told(kind, len(replicas))
    if kind == "experts-untold":
        return World(golden, healthy, None, parallel, None, False, False, about)
    same = [i for i in range(len(healthy)) if kind != "replicas" or i not in others]
    wrong = draw.choice(same)
    faulty = [dict(tensors) for tensors in healthy]
    chosen = [name for name in names[wrong] if has_fault(name, kind)]
    for name in chosen:
        own = names[wrong][name]
        faulty[wrong][own] = faulty[wrong][own] * numpy.float32(1 + fault)
    rest = [i for i in same if i != wrong]
    if len(replicas) > 1:
        peers = [max(errors[i][name] for i in rest if name in errors[i]) for name in chosen]
        is_visible = VISIBLE * max(peers) < fault
    else:
        is_visible = 2 * max(size for of_rank in errors for size in of_rank.values()) < fault
    return World(golden, healthy, faulty, parallel, wrong, is_visible, len(replicas) > 1, about)


def has_fault(name: str, kind: str) -> bool:
    """Of a rank that has one: experts where there are some, for the rest of a replica is the same on all its ranks."""
    if kind.startswith("experts"):
        return expert_of(name) >= 0 and layer_of(name) >= LAYERS // 2
    return layer_of(name) >= 0 and layer_of(name) % 2 == 1


def told(kind: str, replicas: int) -> str:
    """The option that tells the groups, the fastest first."""
    if kind in ("experts-untold", "three", "ranks"):
        return ""
    inner = f"pp={STAGES}," if kind.startswith("stages") else f"ep={PLACES}," if kind.startswith("experts") else ""
    return f"{inner}dp={replicas}"


def noisy(
    tensors: Tensors, size: float, spread: float, rows: float, noise: numpy.random.Generator
) -> tuple[Tensors, dict[str, float]]:
    """Tensors off by log-normal errors, and their relative sizes."""
    of_rank = math.exp(spread * noise.standard_normal())
    off, sizes = {}, {}
    for name, tensor in tensors.items():
        of_tensor = size * of_rank * math.exp(rows * noise.standard_normal())
        sizes[name] = 0.0 if tensor.dtype.kind == "i" else min(of_tensor, LARGEST_NOISE)
        error = noise.standard_normal(tensor.shape)
        error *= numpy.linalg.norm(tensor.astype(float)) / numpy.linalg.norm(error)
        off[name] = tensor if sizes[name] == 0 else (tensor + sizes[name] * error).astype(tensor.dtype)
    return off, sizes


# ---- runs ----


def write_run(folder: Path, ranks: list[Tensors]) -> None:
    """A native run of tensors that are called "<module> <role>", in their order."""
    for rank, tensors in enumerate(ranks):
        place = folder / f"rank{rank}"
        place.mkdir(parents=True)
        payload, lines = bytearray(64), []
        for order, (name, tensor) in enumerate(tensors.items()):
            node, role = name.rsplit(" ", 1)
            line: dict[str, Any] = {"n": order, "step": 0, "node": node, "type": "Module", "order": order, "role": role}
            line |= {"slot": "", "dtype": str(tensor.dtype), "shape": list(tensor.shape), "bytes": tensor.nbytes}
            lines.append(json.dumps({**line, "file": "step-000000.safetensors", "offset": len(payload)}))
            payload += tensor.tobytes()
        (place / "step-000000.safetensors").write_bytes(payload)
        (place / "records.jsonl").write_text("\n".join(lines) + "\n")
        manifest = {"format": "assay-run", "version": 1, "complete": True, "host": {"rank": rank}}
        (place / "manifest.json").write_text(json.dumps(manifest))


# ---- what is said ----


def _said(assay: str, folder: Path, mine: str, world: World) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `compare` and `locate` found, as JSON."""
    options = ["--parallel", world.parallel] if world.parallel else []
    found = []
    for command in (["compare", "--cmp-level", "api", "-o", str(folder / "out")], ["locate"]):
        words = [assay, *command, "--json", str(folder / "golden"), str(folder / mine), *options]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1, 125):
            raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr[-1000:]}")
        found.append(json.loads(done.stdout))
    return found[0], found[1]


def _named(assay: str, folder: Path, mine: str, world: World) -> list[tuple[int, str]]:
    """Ranks that are said to be wrong, each with the sentence."""
    compared, located = _said(assay, folder, mine, world)
    ranks = compared["ranks"] or {"beside_peers": [], "sentence": ""}
    named = [(one["rank"], f"the table: {ranks['sentence']}") for one in ranks["beside_peers"]]
    named += [(one["rank"], f"the verdict: {one['text']}") for one in located["candidates"]]
    return named


def _accusations(assay: str, folder: Path, mine: str, world: World, wrong: Optional[int]) -> Iterator[str]:
    named = [text for rank, text in _named(assay, folder, mine, world) if rank != wrong]
    if named:
        yield named[0]
