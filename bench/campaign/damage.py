# SPDX-License-Identifier: Apache-2.0
"""Damage of captured runs: it must hide no fault and accuse no operator, on models of many families.

tests/python/locate/test_damage.py tries every damage on a run of two layers; here some are drawn on larger ones.
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Callable

from bench.campaign.campaign import FAILED, MISTAKE, OK, SAMPLE_SEED, SKIPPED, Campaign, Case, Result, Workplace, rounds
from bench.damaging import Damaged, changed_entries, changed_files, changed_lines, changed_payloads, copied
from bench.report import Row

LEVELS = {"O": "operators", "L": "leaf modules", "M": "module outputs"}
FACTOR = 1.05  # of one weight matrix of the wrong run
DRAWN = 12  # damages of each of four kinds, of each run
SAMPLE_SIZE = 3
IN_SAMPLE = ("qwen3", "stablelm", "olmo2")  # small families


class DamageOfRuns(Campaign):
    """Damaged runs, wrong and healthy ones."""

    name = "damage"
    title = "Damaged runs"
    about = (
        "Each case captures a golden at operator level, a run with one wrong weight and a healthy one, and damages "
        "them: a record line, a step file, an entry of the manifest or a payload is removed, cut, exchanged, doubled "
        "or zeroed, one at a time, in the run under test or in golden.",
        "*hidden*: the wrong run was called clean. *accused*: an operator of the healthy run was named. Both must be "
        "0. *refused*: the verdict was that a run is damaged, or that it did not finish; the rest could not be opened, "
        "or were judged right in spite of a payload that no verdict needs.",
    )
    weight = 1
    timeout_s = 600
    columns = ["", "cases", "damages", "refused", "hidden", "accused"]

    def cases(self, seed: int) -> Iterator[Case]:
        """All families before the first comes again."""
        from bench.faults.families import DRAWN

        draw = random.Random(seed)
        for family in rounds(DRAWN, draw):
            yield _case(family, draw.choice(list(LEVELS)), draw.randrange(2**16))

    def sample(self) -> Iterable[Case]:
        """One of each level."""
        draw = random.Random(SAMPLE_SEED)
        drawn = (_case(family, level, draw.randrange(2**16)) for family, level in zip(IN_SAMPLE, LEVELS))
        return itertools.islice(drawn, SAMPLE_SIZE)

    def case_of(self, name: str) -> Case:
        """From ``<family>-<level>-<number>``."""
        from bench.faults.families import FAMILIES

        family, level, number = [*name.split("-"), "", ""][:3]
        if family not in FAMILIES or level not in LEVELS or not number.isdigit():
            raise ValueError("the name must be a family, a level (O, L, M) and a number, with dashes")
        return _case(family, level, int(number))

    def run(self, case: Case, work: Workplace) -> Result:
        """Captures three runs and judges all damages drawn."""
        import torch

        import assay

        torch.set_num_threads(1)
        family, level, number = case.name.split("-")
        draw = random.Random(int(number))
        golden, wrong, healthy = _capture(family, level, draw.randrange(1000), work.scratch)
        outcome = assay.locate(golden, wrong).outcome
        if outcome != "first_wrong" or assay.locate(golden, healthy).outcome != "clean":
            return {"outcome": SKIPPED, "reason": f"the undamaged runs are {outcome} and not clean"}
        counts: Counter[str] = Counter()
        mistakes = []
        for mine in (wrong, healthy):
            for damaged in _drawn(mine, golden, draw):
                said = _judge(golden, copied(mine, work.scratch / "damaged", damaged.file), damaged)
                mistakes += _count(counts, said, mine == wrong, damaged)
            for damaged in draw.sample(list(changed_lines(golden, mine)), DRAWN):
                said = _judge(copied(golden, work.scratch / "damaged", damaged.file), mine, damaged, of_golden=True)
                mistakes += _count(counts, said, mine == wrong, damaged)
        if not work.keep:
            for folder in (golden, wrong, healthy, work.scratch / "damaged"):
                shutil.rmtree(folder, ignore_errors=True)
        result: Result = {"outcome": MISTAKE if mistakes else OK, "level": level, **counts}
        return {**result, "reason": "; ".join(mistakes)} if mistakes else result

    def rows(self, results: list[Result]) -> list[Row]:
        """By level."""
        rows = []
        for level, about in LEVELS.items():
            of_level = [result for result in results if result.get("level") == level]
            counts = {"cases": len(of_level)}
            for key in self.columns[2:]:
                counts[key] = sum(result.get(key, 0) for result in of_level)
            counts["failed"] = sum(result["outcome"] == FAILED for result in of_level)
            rows.append(Row(f"{level}: {about}", {key: str(counts[key]) for key in self.columns[1:]}, data=counts))
        return rows


def _case(family: str, level: str, number: int) -> Case:
    return Case(f"{family}-{level}-{number}")


def _capture(family: str, level: str, seed: int, scratch: Path) -> tuple[Path, Path, Path]:
    """Golden, a run with a wrong weight, and a healthy one; the last two at the level."""
    import torch

    from bench.faults import captures
    from bench.faults.families import FAMILIES, build, prompt

    model = build(family, seed)
    tokens = prompt(seed, 8, vocabulary=FAMILIES[family].vocabulary)
    runs = []
    for name in ("golden", "healthy", "wrong"):
        if name == "wrong":
            matrices = [p for path, p in model.named_parameters() if p.dim() == 2 and ".1." in path]
            with torch.no_grad():
                matrices[len(matrices) // 2].mul_(FACTOR)
        captures.capture(model, tokens, scratch / f"{name}-full")
        wanted = "O" if name == "golden" else level
        run = captures.thinned(scratch / f"{name}-full", wanted, scratch / name, "")
        runs.append(run)
    return runs[0], runs[2], runs[1]


def _drawn(run: Path, other: Path, draw: random.Random) -> Iterator[Damaged]:
    kinds: tuple[Callable[[Path, Path], Iterator[Damaged]], ...]
    kinds = (changed_lines, changed_files, changed_entries, changed_payloads)
    for kind in kinds:
        changes = list(kind(run, other))
        yield from draw.sample(changes, min(DRAWN, len(changes)))


def _judge(golden: Path, mine: Path, damaged: Damaged, of_golden: bool = False) -> Any:
    """The verdict; None when the run could not be opened."""
    import assay

    damaged.change(golden if of_golden else mine)
    try:
        return assay.locate(golden, mine)
    except assay.Error:
        return None


def _count(counts: Counter[str], verdict: Any, is_wrong: bool, damaged: Damaged) -> list[str]:
    """Counts a verdict; returns what is to be said of it."""
    counts["damages"] += 1
    if verdict is None:
        return []
    counts["refused"] += verdict.outcome == "cannot_judge"
    hidden = is_wrong and verdict.outcome == "clean"
    accused = not is_wrong and verdict.outcome == "first_wrong"
    counts["hidden"] += hidden
    counts["accused"] += accused
    return [f"{damaged.what}: {' '.join(str(verdict).split())}"] if hidden or accused else []
