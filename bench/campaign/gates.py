# SPDX-License-Identifier: Apache-2.0
"""Gates on shaped twins (bench/faults/twins.py): healthy ports must never be red, planted faults must be.

Seeds are drawn from numbers above those that limits were set and tested on.
"""

from __future__ import annotations

import collections
import random
import re
import shutil
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Optional

from bench.campaign.campaign import FAILED, MISTAKE, OK, SAMPLE_SEED, Campaign, Case, Result, Workplace, rounds
from bench.report import Row

if TYPE_CHECKING:
    from bench.faults import twins

SEEDS = 10  # of each kind, for the figures of docs/benchmarks.md
FIRST_SEED = 1_000_000
CLEAN, RED, NOT_JUDGED, NOT_PLANTED = "clean", "red", "cannot judge", "not planted"
FIRST_PLACE = "first place"
_WORDS = {"clean": CLEAN, "first_wrong": RED, "wrong": RED, "cannot_judge": NOT_JUDGED, "not planted": NOT_PLANTED}


class _OfTwins(Campaign):
    weight = 1
    timeout_s = 600

    def __init__(self) -> None:
        self._twins: Optional[twins.Twins] = None
        self._group = ""

    def _twins_of(self, case: Case, work: Workplace) -> twins.Twins:
        import torch
        import transformers

        from bench.faults import twins

        if self._twins is None or self._group != case.group:
            torch.set_num_threads(1)  # so that results do not depend on the machine
            transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
            transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
            shutil.rmtree(work.scratch)
            work.scratch.mkdir()
            self._twins, self._group = twins.Twins(work.scratch), case.group
        return self._twins


class HealthyGates(_OfTwins):
    """Healthy ports of twins."""

    name = "gates"
    title = "Gates on healthy ports of twins"
    about: tuple[str, ...] = (
        "Each case is a twin (`assay twin`) of an architecture's default configuration and a healthy port of it, "
        "judged by its operators, as `assay gate` does. *Red* is a false alarm.",
        "Beside it criteria that tests of engines ask of the logits: how many cases do not satisfy them, of those "
        "with such logits (none where shapes differ or an engine answers).",
        "A batch of four rows against golden's one is other inputs: exit status 125.",
    )

    def __init__(self) -> None:
        super().__init__()
        self.columns = ["", "gates", CLEAN, RED, NOT_JUDGED, *_criteria()]

    def cases(self, seed: int) -> Iterator[Case]:
        """Ten twins after the other, each with its share of the kinds; then others."""
        draw = random.Random(f"gates {seed}")
        while True:
            yield from _round(draw, range(SEEDS))

    def sample(self) -> Iterable[Case]:
        """One of each kind."""
        return _round(random.Random(SAMPLE_SEED), range(1))

    def case_of(self, name: str) -> Case:
        """From ``<port>.<family>.<seed>``."""
        from bench.faults import twins

        found = re.fullmatch(r"(?P<port>[a-zA-Z0-9_.-]+)@(?P<family>[a-z0-9_]+)@(?P<seed>\d+)", name)
        if found is None or found["port"] not in twins.PORTS or found["family"] not in twins.FAMILIES:
            raise ValueError(f"no gate is called {name!r}")
        return Case(name, group=f"{found['family']}@{found['seed']}")

    def run(self, case: Case, work: Workplace) -> Result:
        from bench.faults import twins

        port, family, seed = case.name.split("@")
        if port.startswith("llama.cpp") and not _has_engine():
            return {"outcome": OK, "verdict": "", "satisfied": {}}
        gate = self._twins_of(case, work).healthy(twins.PORTS[port], family, int(seed))
        verdict = _WORDS[gate.outcome]
        reason = "" if verdict == CLEAN else f"{verdict}: {gate.sentence}"
        done = {"outcome": MISTAKE if verdict == RED else OK, "reason": reason}
        return {**done, "listed": verdict == NOT_JUDGED, "verdict": verdict, "satisfied": gate.satisfied}

    def rows(self, results: list[Result]) -> list[Row]:
        """By port, by family, and all."""
        counted: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for result in results:
            if result["outcome"] == FAILED or not result["verdict"]:
                continue
            port, family, _ = result["case"].split("@")
            for line in (f"port {port}", f"family {family}", "all"):
                _count(counted[line], result)
        return [Row(line, _cells(counted[line], ("gates", CLEAN, RED, NOT_JUDGED))) for line in sorted(counted)]


class FaultyGates(_OfTwins):
    """Planted faults in twins."""

    name = "gate-faults"
    title = "Gates on planted faults in twins"
    about: tuple[str, ...] = (
        "One planted fault in a port in bfloat16: *red*, and at the *first place* when the planted module or "
        "something inside it is named first. The last columns are the criteria of the gates on healthy ports.",
    )

    def __init__(self) -> None:
        super().__init__()
        self.columns = ["", "gates", RED, FIRST_PLACE, CLEAN, NOT_JUDGED, *_criteria()]

    def cases(self, seed: int) -> Iterator[Case]:
        """All families with all kinds, again and again with other seeds, forms and layers."""
        from bench.faults import twins

        draw = random.Random(f"gate faults {seed}")
        for family in rounds(twins.OF_FAULTS, draw):
            yield from _faults(draw, family, twins.KINDS)

    def sample(self) -> Iterable[Case]:
        """Eight kinds in one family."""
        from bench.faults import twins

        return _faults(random.Random(SAMPLE_SEED), "llama", twins.KINDS[::4])

    def case_of(self, name: str) -> Case:
        """From ``<kind>@<number of the place>@<family>@<seed>``."""
        from bench.faults import twins

        found = re.fullmatch(r"(?P<kind>[a-z-]+)@\d+@(?P<family>[a-z0-9_]+)@(?P<seed>\d+)", name)
        if found is None or found["kind"] not in twins.KINDS or found["family"] not in twins.FAMILIES:
            raise ValueError(f"no fault of a gate is called {name!r}")
        return Case(name, group=f"{found['family']}@{found['seed']}")

    def run(self, case: Case, work: Workplace) -> Result:
        from bench.faults import twins

        kind, number, family, seed = case.name.split("@")
        of_group = self._twins_of(case, work)
        places = list(twins.planted(kind, family, int(seed), of_group))
        if not places:
            return {"outcome": OK, "verdict": NOT_PLANTED, "satisfied": {}}
        form, layer = places[int(number) % len(places)]
        gate = of_group.faulty(kind, family, int(seed), form, layer)
        verdict = _WORDS[gate.outcome]
        right = verdict == NOT_PLANTED or (verdict == RED and gate.at_first_place)
        reason = "" if right else f"planted in {gate.place} ({form}): {gate.sentence}"
        done = {"outcome": OK if right else MISTAKE, "reason": reason, "verdict": verdict}
        return {**done, "first": gate.at_first_place, "satisfied": gate.satisfied}

    def rows(self, results: list[Result]) -> list[Row]:
        """By kind, by family, and all."""
        counted: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for result in results:
            if result["outcome"] == FAILED or result["verdict"] == NOT_PLANTED:
                continue
            kind, _, family, _ = result["case"].split("@")
            for line in (f"fault {kind}", f"family {family}", "all"):
                _count(counted[line], result)
                counted[line][FIRST_PLACE] += result["first"]
        words = ("gates", RED, FIRST_PLACE, CLEAN, NOT_JUDGED)
        return [Row(line, _cells(counted[line], words)) for line in sorted(counted)]


def _round(draw: random.Random, numbers: Iterable[int]) -> Iterator[Case]:
    """Every port once for each number, spread over the families that have it; those of one twin follow each other."""
    from bench.faults import twins

    by_twin: dict[tuple[str, int], list[str]] = collections.defaultdict(list)
    for _ in numbers:
        seeds = {family: draw.randrange(FIRST_SEED, 1000 * FIRST_SEED) for family in twins.FAMILIES}
        for port in twins.PORTS.values():
            family = draw.choice(port.families)
            by_twin[family, seeds[family]].append(port.name)
    for (family, seed), ports in draw.sample(sorted(by_twin.items()), len(by_twin)):
        for port in ports:
            yield Case(f"{port}@{family}@{seed}", group=f"{family}@{seed}")


def _faults(draw: random.Random, family: str, kinds: Iterable[str]) -> Iterator[Case]:
    seed = draw.randrange(FIRST_SEED, 1000 * FIRST_SEED)
    for kind in kinds:
        yield Case(f"{kind}@{draw.randrange(100)}@{family}@{seed}", group=f"{family}@{seed}")


def _criteria() -> list[str]:
    from bench.faults.criteria import NAMES

    return list(NAMES)


def _count(line: collections.Counter[str], result: Result) -> None:
    line["gates"] += 1
    line[result["verdict"]] += 1
    for name, satisfied in result["satisfied"].items():
        line[name] += not satisfied
        line[f"asked {name}"] += 1


def _cells(line: collections.Counter[str], words: Iterable[str]) -> dict[str, Any]:
    cells: dict[str, Any] = {word: str(line[word]) if line[word] else "" for word in words}
    for name in _criteria():
        if line[f"asked {name}"]:
            cells[name] = f"{line[name]} of {line[f'asked {name}']}"
    return cells


def _has_engine() -> bool:
    import importlib.util

    return importlib.util.find_spec("xllamacpp") is not None
