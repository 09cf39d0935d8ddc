# SPDX-License-Identifier: Apache-2.0
"""A factor of 1.05 behind one operator of a program (bench/faults/factors.py): what `clean` overlooks.

The oracle is the model in fp64 with the same factor: where its output stays the same nothing was planted.
"""

from __future__ import annotations

import collections
import random
import re
import shutil
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from bench.campaign.campaign import FAILED, MISTAKE, OK, SAMPLE_SEED, Campaign, Case, Result, Workplace, rounds
from bench.campaign.verdicts import BELOW, FIRST_MODEL_SEED, MISSED, NAMED, NOT_JUDGED, LastLaboratory
from bench.report import Row

if TYPE_CHECKING:
    import torch

LEAST = 1e-6  # share of the output in fp64 that a factor moves at least
LEVELS = "OM"
FORMS = ("visible", "hidden")
OF_ONE_MODEL = 12
IN_SAMPLE = ("llama", "mixtral")

NEARBY, ELSEWHERE = "named nearby", "elsewhere"  # beside the words of the other verdicts


class Factors(Campaign):
    """A factor behind one operator after the other."""

    name = "factors"
    title = "A factor of 1.05 behind one operator"
    about: tuple[str, ...] = (
        "Behind one result of a model's program stands a factor of 1.05, which the program multiplies by (visible) or "
        "the kernel does (hidden); drawn over families, types and operators.",
        "*named*: the module that made the result, or one inside it; *named nearby*: a module around it or beside it; "
        "*elsewhere*: another; *called clean* is a mistake, unless the verdict says that so small an error would not "
        "have been seen (*clean, below power*). Where the output in fp64 stays the same nothing was planted.",
    )
    weight = 2
    timeout_s = 300
    columns = ["", "verdicts", NAMED, NEARBY, ELSEWHERE, NOT_JUDGED, BELOW, MISSED]

    def __init__(self) -> None:
        self._laboratory = LastLaboratory()

    def cases(self, seed: int) -> Iterator[Case]:
        """Model after model; all families before the first comes again."""
        from bench.faults.families import DRAWN

        draw = random.Random(f"factors {seed}")
        for family in rounds(DRAWN, draw):
            yield from _of_model(draw, family, OF_ONE_MODEL)

    def sample(self) -> Iterable[Case]:
        """A few of two families."""
        draw = random.Random(SAMPLE_SEED)
        for family in IN_SAMPLE:
            yield from _of_model(draw, family, 4)

    def case_of(self, name: str) -> Case:
        """From ``<name of a healthy case of the laboratory>@<form>-<share of the program>``."""
        _parts(name)
        return Case(name, group=name.partition("@")[0])

    def run(self, case: Case, work: Workplace) -> Result:
        """Plants, captures and judges; golden is captured once a group."""
        import torch

        from bench.faults import captures, factors, lab
        from bench.faults.families import narrowed, places_of

        of_lab, form, share = _parts(case.name)
        one = lab.case_of(of_lab)
        laboratory = self._laboratory.of(case.group, LEVELS, work)
        golden, tokens = laboratory.golden(one), laboratory.tokens(one)

        def call(model: torch.nn.Module) -> torch.Tensor:
            with torch.no_grad():
                result = model(input_ids=tokens, use_cache=False)[0]
            assert isinstance(result, torch.Tensor)
            return result.double()

        wide = narrowed(laboratory.model(one), torch.float64 if lab.has_fp64(one.family) else torch.float32)
        with factors.planted(wide, form, -1) as counter:
            right = call(wide)
        number = int(share * counter.count)
        with factors.planted(wide, form, number) as counter:
            size = float((call(wide) - right).norm() / right.norm())
        planted = counter.place
        mine = narrowed(laboratory.model(one), getattr(torch, one.dtype))
        whole = work.scratch / case.name
        with factors.planted(mine, form, number) as counter:
            captures.capture(mine, tokens, whole)
        if counter.place is None or counter.place != planted or size < LEAST:
            return {"outcome": OK, "verdicts": {}}
        place, function = counter.place
        verdicts, reasons = {}, []
        for level in LEVELS:
            thin = captures.thinned(whole, level, work.scratch / f"{case.name}-{level}", places_of(one.family).layer)
            verdict, text = _judged(golden, thin, place, size)
            verdicts[level] = verdict
            if verdict in (MISSED, BELOW, ELSEWHERE):
                reasons.append(f"{level}: {verdict}: behind {function} in {place or 'the model'}; {size:.2%}; {text}")
        if not work.keep:
            shutil.rmtree(whole)
        wrong = MISSED in verdicts.values()
        return {"outcome": MISTAKE if wrong else OK, "reason": "\n".join(reasons), "verdicts": verdicts}

    def rows(self, results: list[Result]) -> list[Row]:
        """By level and form, and by family."""
        counted: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for result in results:
            if result["outcome"] == FAILED:
                continue
            of_lab, form, _ = _parts(result["case"])
            for level, verdict in result["verdicts"].items():
                for line in (f"{level}, {form}", f"family {of_lab.partition('-')[0]}"):
                    counted[line][verdict] += 1
        return [
            Row(line, {"verdicts": str(sum(counted[line].values())), **{k: str(v) for k, v in counted[line].items()}})
            for line in sorted(counted, key=lambda line: (line.startswith("family"), line))
        ]


def _judged(golden: Any, mine: Any, place: str, size: float) -> tuple[str, str]:
    import assay

    verdict = assay.locate(golden, mine)
    text = verdict.sentence
    if verdict.outcome == "clean":
        power = (verdict.to_dict()["power"] or {}).get("error") or 0.0
        return (BELOW if size < power else MISSED), text
    if verdict.outcome != "first_wrong":
        return NOT_JUDGED, text
    named = verdict.candidates[0].module
    if named == place or named.startswith(place + "."):
        return NAMED, text
    near = place.startswith(named) or named.rpartition(".")[0] == place.rpartition(".")[0]
    return (NEARBY if near else ELSEWHERE), text


def _of_model(draw: random.Random, family: str, count: int) -> Iterator[Case]:
    """Results of one new model's program, drawn by their place in it."""
    from bench.faults import lab

    seed = draw.randrange(FIRST_MODEL_SEED, 1000 * FIRST_MODEL_SEED)
    dtype = draw.choice(("bfloat16", "float32"))
    of_lab = lab.Case(family, seed, dtype=dtype, shaped=draw.random() < 0.5)
    for _ in range(count):
        yield Case(f"{of_lab.name}@{draw.choice(FORMS)}-{draw.random():.4f}", group=of_lab.name)


def _parts(name: str) -> tuple[str, str, float]:
    from bench.faults import lab

    found = re.fullmatch(rf"(?P<of_lab>[^@]+)@(?P<form>{'|'.join(FORMS)})-(?P<share>0\.\d+)", name)
    if found is None:
        raise ValueError("the name must end with @, visible or hidden, and a share of the program such as 0.5")
    lab.case_of(found["of_lab"])
    return found["of_lab"], found["form"], float(found["share"])
