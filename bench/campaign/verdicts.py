# SPDX-License-Identifier: Apache-2.0
"""Verdicts of the fault laboratory (bench/faults): planted faults and healthy pairs of models that nobody has seen.

Model seeds are drawn from numbers above those that the limits of docs/localisation.md were set and tested on.
"""

from __future__ import annotations

import collections
import random
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Optional

from bench.campaign.campaign import FAILED, MISTAKE, OK, SAMPLE_SEED, Campaign, Case, Result, Workplace, rounds
from bench.report import Row

if TYPE_CHECKING:
    from bench.faults import lab

# What a verdict says about a planted fault, and about a healthy pair.
NAMED, MISNAMED, MISSED, NOT_JUDGED = "named", "misnamed", "called clean", "not judged"
CLEAN, FALSE_ALARM, HEALTHY_NOT_JUDGED = "clean", "false alarm", "healthy, not judged"
BELOW = "clean, below power"  # a fault that moves the output by less than what the verdict says it would have seen
MISTAKES = (MISNAMED, MISSED, FALSE_ALARM)
NOT_PLANTED = "not planted"
AUDITED = "OLM"

LEVELS = {
    "O": "operators",
    "L": "leaf modules",
    "M": "module outputs",
    "B": "layer outputs",
    "N": "modules on both sides, with floors",
    "S": "statistics on both sides, with floors",
}
FIRST_MODEL_SEED = 1000


@dataclass(frozen=True)
class Setting:
    """How the cases of one model are captured.

    Attributes:
        levels: of bench.faults.captures; N and S measure floors first, once a model.
        strengths: of sized faults.
        shaped: weights resemble trained ones.
        decode: steps of one token behind the prompt.
        groups: of faults; empty: all.
    """

    levels: str
    strengths: tuple[float, ...] = (1.0, 0.5)
    forms: tuple[str, ...] = ("visible", "hidden")
    faults: int = 6
    healthy: int = 2
    shaped: bool = False
    decode: int = 0
    groups: tuple[str, ...] = ()


COARSER = Setting("OLMB")
FLOORS = Setting("NS")
TENTH = Setting("O", (0.1,), ("hidden",))
SHAPED = Setting("OLM", shaped=True)
DECODING = Setting("OLM", decode=4)
LONGER = Setting("OLM", shaped=True, decode=32, faults=3)
# One is drawn for each model.
SETTINGS = (COARSER,) * 6 + (SHAPED,) * 6 + (DECODING,) * 2 + (LONGER,) + (FLOORS,) * 2 + (TENTH,)
# Of campaigns of healthy pairs alone.
HEALTHY_PAIRS = 7  # of one model
HEALTHY = (
    Setting("OLM", faults=0, healthy=HEALTHY_PAIRS),
    Setting("OLM", faults=0, healthy=HEALTHY_PAIRS, shaped=True),
    Setting("OLM", faults=0, healthy=HEALTHY_PAIRS, shaped=True, decode=4),
    Setting("OLM", faults=0, healthy=HEALTHY_PAIRS, decode=32),
)
REWRITINGS = 8  # of one model
IN_ONE_MODULE = ("scaled-values", "transposed")
IN_KERNELS = ("weight", "constant", "kernel dense", "kernel sparse", "wiring")
IN_SAMPLE = ("qwen3", "stablelm", "olmo2", "phi3", "gptj")  # small families


class LastLaboratory:
    """The laboratory of the cases that follow each other in one group."""

    def __init__(self) -> None:
        self._laboratory: Optional[lab.Laboratory] = None
        self._group = ""

    def of(self, group: str, levels: str, work: Workplace) -> lab.Laboratory:
        """That of the group; made, in an empty folder, when another one came before."""
        import torch

        from bench.faults import lab

        if self._laboratory is None or self._group != group:
            torch.set_num_threads(1)  # so that results do not depend on the machine
            shutil.rmtree(work.scratch)
            work.scratch.mkdir()
            self._laboratory, self._group = lab.Laboratory(work.scratch, tuple(levels), keep=work.keep), group
        return self._laboratory


class Verdicts(Campaign):
    """Healthy pairs and planted faults over families, kinds, pairs and levels."""

    name = "verdicts"
    title = "Verdicts on planted faults and healthy pairs"
    about: tuple[str, ...] = (
        "Each case is a model of the fault laboratory (docs/localisation.md) with a planted fault, or a healthy "
        "pair. It is judged once a level, with less and less of the run under test captured.",
        "Planted faults: *named*, the module with the fault or something inside it is named first; *misnamed*, "
        "something else is; *called clean*; *not judged*, which is right for runs that are no pair. A fault that is "
        "called clean and moves the output of the fp32 model by less than the verdict's power is *clean, below "
        "power*.",
        "Healthy pairs differ by precision, threads, library, batch, kind of attention or chunks. Misnamed, called "
        "clean and *false alarm* are mistakes.",
        "The JSON file has the same verdicts by family, kind of fault and pair, and how many at each level were "
        "called clean.",
    )
    weight = 5
    timeout_s = 300
    columns = ["", "verdicts", NAMED, MISNAMED, MISSED, NOT_JUDGED, BELOW, CLEAN, FALSE_ALARM]
    columns += [HEALTHY_NOT_JUDGED, *(f"clean at {level}" for level in AUDITED)]

    def __init__(self) -> None:
        self._laboratory = LastLaboratory()

    def cases(self, seed: int) -> Iterator[Case]:
        """Model after model; all families before the first comes again."""
        from bench.faults.families import DRAWN

        draw = random.Random(seed)
        for family in rounds(DRAWN, draw):
            yield from _of_model(draw, family, draw.choice(SETTINGS))

    def sample(self) -> Iterable[Case]:
        """A few of the larger families, a healthy pair of some small ones, and one model with floors."""
        from bench.faults.families import LARGER

        draw = random.Random(SAMPLE_SEED)
        for family in LARGER:
            yield from _of_model(draw, family, Setting(COARSER.levels, faults=2, healthy=1, groups=IN_KERNELS))
        yield from _of_model(draw, "llama", Setting(FLOORS.levels, faults=2, healthy=1, groups=IN_KERNELS))
        for family in IN_SAMPLE:
            yield from _of_model(draw, family, Setting("OL", faults=0, healthy=1))

    def case_of(self, name: str) -> Case:
        """From ``<name of the laboratory>@<levels>``."""
        from bench.faults import lab

        of_lab, at, levels = name.rpartition("@")
        if not at or not levels or any(level not in LEVELS for level in levels):
            raise ValueError(f"the name must end with @ and letters of {''.join(LEVELS)}")
        return of_laboratory(lab.case_of(of_lab), levels)

    def run(self, case: Case, work: Workplace) -> Result:
        """Plants, captures and judges; golden is captured once a group."""
        from bench.faults import lab

        of_lab, _, _ = case.name.rpartition("@")
        verdicts = {}
        said = {}  # for who reads the results
        reasons = []
        sizes_of = {"size": -1.0, "rounding": -1.0}
        for result in self._laboratory.of(case.group, case.group.rpartition("@")[2], work).run(lab.case_of(of_lab)):
            if result.level == "":
                return {"outcome": OK, "verdicts": {NOT_PLANTED: result.outcome}}
            verdicts[result.level] = judged = judge(result)
            said[result.level] = result.sentence
            sizes_of = {"size": result.size, "rounding": result.rounding}
            if judged in (*MISTAKES, BELOW):
                where = f"planted in {result.place}; " if result.place else ""
                sizes = f"it moves the output by {result.size:.2%}; " if judged in (MISSED, BELOW) else ""
                reasons.append(f"{result.level}: {judged}: {where}{sizes}{result.sentence}")
        wrong = any(judged in MISTAKES for judged in verdicts.values())
        done = {"outcome": MISTAKE if wrong else OK, "reason": "; ".join(reasons), "verdicts": verdicts, "said": said}
        listed = BELOW in verdicts.values()
        return {**done, "listed": listed, **sizes_of}

    def rows(self, results: list[Result]) -> list[Row]:
        """By level, family, kind and pair."""
        from bench.faults import lab

        counted: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for result in results:
            if result["outcome"] == FAILED or NOT_PLANTED in result["verdicts"]:
                continue
            case = lab.case_of(result["case"].rpartition("@")[0])
            about = f"fault {case.kind}" if case.kind else f"pair {case.pair}"
            weak = ", faults a tenth as strong" if case.strength == TENTH.strengths[0] else ""
            for level, verdict in result["verdicts"].items():
                for line in (f"{level}: {LEVELS[level]}{weak}", f"family {case.family}", about):
                    counted[line][verdict] += 1
                    if level in AUDITED:
                        counted[line][f"at {level}"] += 1
                        counted[line][f"clean at {level}"] += verdict in (CLEAN, MISSED)
        return [Row(line, _cells(counted[line]), data=dict(counted[line])) for line in sorted(counted, key=_order)]


class HealthyPairs(Verdicts):
    """Healthy pairs alone: how often a verdict accuses what is right."""

    name = "healthy"
    title = "Verdicts on healthy pairs alone"
    about: tuple[str, ...] = (
        "As for planted faults, without them. Pairs whose shapes differ (batch, chunked, static) may not be called "
        "clean from everything that was captured.",
    )
    weight = 2

    def cases(self, seed: int) -> Iterator[Case]:
        """Model after model; all families before the first comes again."""
        from bench.faults.families import DRAWN

        draw = random.Random(f"healthy {seed}")
        for family in rounds(DRAWN, draw):
            yield from _of_model(draw, family, draw.choice(HEALTHY))

    def sample(self) -> Iterable[Case]:
        """Ports of the matrices of one small model."""
        from bench.faults import lab

        seed = random.Random(SAMPLE_SEED).randrange(FIRST_MODEL_SEED, 1000 * FIRST_MODEL_SEED)
        for case in lab.healthy_cases(("llama",), (seed,), (*lab.PORTS, "products-bf16", "inplace8")):
            yield of_laboratory(case, "OLM")


class Rewritten(Verdicts):
    """The same function written otherwise, healthy and with a fault inside."""

    name = "rewritten"
    title = "Verdicts on the same function written otherwise"
    about: tuple[str, ...] = (
        "Mine is golden's function with other weights, modules or operators (bench/faults/rewrites.py): norms folded "
        "into matrices, heads and neurons in another order, matrices merged, split or transposed, ALiBi counted from "
        "the other end. Half of the cases have a planted fault besides, which is to be named.",
    )
    weight = 3

    def cases(self, seed: int) -> Iterator[Case]:
        """Model after model; all families before the first comes again."""
        from bench.faults import rewrites
        from bench.faults.families import DRAWN

        draw = random.Random(f"rewritten {seed}")
        for family in rounds(DRAWN, draw):
            kinds = tuple(draw.sample(sorted(rewrites.KINDS), REWRITINGS))
            yield from _rewritten(draw, family, kinds, draw.random() < 0.5)

    def sample(self) -> Iterable[Case]:
        """A few of three families; a fault besides where what is written otherwise lies in one module."""
        draw = random.Random(SAMPLE_SEED)
        for family, kinds in (
            ("llama", ("folded-norms", "permuted-heads", "scaled-values", "permuted-neurons")),
            ("gpt2", ("transposed", "folded-head")),
            ("bloom", ("from-the-end",)),
        ):
            for case in _rewritten(draw, family, kinds, shaped=False):
                if "visible" not in case.name or any(f"-{kind}@" in case.name for kind in IN_ONE_MODULE):
                    yield case


def _rewritten(draw: random.Random, family: str, rewritten: tuple[str, ...], shaped: bool) -> Iterator[Case]:
    """Kinds of rewriting of one new model, each healthy and with a fault."""
    from bench.faults import faults, lab, program_faults

    seed = (draw.randrange(FIRST_MODEL_SEED, 1000 * FIRST_MODEL_SEED),)
    kinds = tuple(name for name, one in faults.KINDS.items() if one.group != program_faults.INPUTS and not one.needs)
    faulty = list(lab.fault_cases((family,), seed, kinds, (1.0,), ("visible",), shaped=shaped))
    for kind in rewritten:
        dtype = draw.choice(("bfloat16", "float32"))
        yield of_laboratory(lab.Case(family, seed[0], dtype=dtype, pair=kind, shaped=shaped), "OM")
        if faulty:
            yield of_laboratory(replace(draw.choice(faulty), dtype=dtype, pair=kind), "OM")


def judge(result: lab.Result) -> str:
    """What a verdict says, in one word of those above."""
    from bench.faults import faults, program_faults

    faulty = bool(result.case.kind)
    if faulty and faults.KINDS[result.case.kind].group == program_faults.INPUTS:
        return {"clean": MISSED, "first_wrong": FALSE_ALARM}.get(result.outcome, NOT_JUDGED)
    if result.outcome == "first_wrong":
        return FALSE_ALARM if not faulty else NAMED if result.right() else MISNAMED
    if result.outcome == "clean":
        below = 0 <= result.size < result.power
        return (BELOW if below else MISSED) if faulty else CLEAN
    return NOT_JUDGED if faulty else HEALTHY_NOT_JUDGED


def of_laboratory(of_lab: lab.Case, levels: str) -> Case:
    """A case of the laboratory as one of a campaign."""
    return Case(f"{of_lab.name}@{levels}", group=f"{of_lab.family}-{of_lab.seed}@{levels}")


def _of_model(draw: random.Random, family: str, setting: Setting) -> Iterator[Case]:
    """Cases of one new model: faults of different kinds, and different healthy pairs."""
    from bench.faults import faults, lab

    seed = (draw.randrange(FIRST_MODEL_SEED, 1000 * FIRST_MODEL_SEED),)
    kinds = tuple(name for name, kind in faults.KINDS.items() if not setting.groups or kind.group in setting.groups)
    run: dict[str, Any] = {"shaped": setting.shaped, "decode": setting.decode}
    by_kind: dict[str, list[lab.Case]] = collections.defaultdict(list)
    for case in lab.fault_cases((family,), seed, kinds, setting.strengths, setting.forms, **run):
        by_kind[case.kind].append(case)
    pairs = tuple(pair for pair in lab.PAIRS if pair != "compiled")  # minutes of a C++ compiler for one verdict
    chosen = [draw.choice(by_kind[kind]) for kind in draw.sample(sorted(by_kind), min(setting.faults, len(by_kind)))]
    chosen += draw.sample(list(lab.healthy_cases((family,), seed, pairs, **run)), setting.healthy)
    for case in draw.sample(chosen, len(chosen)):
        yield of_laboratory(case, setting.levels)


def _cells(verdicts: collections.Counter[str]) -> dict[str, str]:
    """Counts; those of planted faults with their share."""
    faulty = sum(verdicts[word] for word in (NAMED, MISNAMED, MISSED, NOT_JUDGED, BELOW))
    words = [NAMED, MISNAMED, MISSED, NOT_JUDGED, BELOW, CLEAN, FALSE_ALARM, HEALTHY_NOT_JUDGED]
    cells: dict[str, Any] = {word: str(verdicts[word]) if verdicts[word] else "" for word in words}
    cells["verdicts"] = str(sum(verdicts[word] for word in words))
    for level in AUDITED:
        if verdicts[f"at {level}"]:
            cells[f"clean at {level}"] = f"{verdicts[f'clean at {level}']} of {verdicts[f'at {level}']}"
    if faulty:
        cells[NAMED] = f"{verdicts[NAMED]} ({100 * verdicts[NAMED] / faulty:.1f} %)"
    return cells


def _order(line: str) -> tuple[int, str]:
    """Levels first, in the order of LEVELS; then families, kinds of faults and pairs by name."""
    for place, start in enumerate((*(f"{level}:" for level in LEVELS), "family", "fault", "pair")):
        if line.startswith(start):
            return place, line
    raise AssertionError(line)
