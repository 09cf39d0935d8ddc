# SPDX-License-Identifier: Apache-2.0
"""Verdicts on a trained model: sixty healthy worlds of it, and one planted fault of each kind."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Optional

from bench.campaign.campaign import SAMPLE_SEED, Case
from bench.campaign.verdicts import Verdicts, of_laboratory

if TYPE_CHECKING:
    from bench.faults import lab

FAMILY = "smollm2"
LEVELS = "OM"
TOGETHER = 16  # cases of one text that follow each other: to load the model takes as long as two verdicts
PLAIN = (
    *("threads", "mkldnn", "batch", "decomposed", "fused", "chunked", "math", "loaded", "recreated", "autocast"),
    *("inference", "cached", "padded", "columns", "lora", "int8", "int4", "fp8", "fp64"),
)
THROUGH_A_CACHE = ("static", "decomposed", "math", "loaded", "padded", "threads", "autocast")
WRITTEN_OTHERWISE = (
    *("folded-norms", "folded-head", "scaled-queries", "prescaled-queries", "scaled-values", "turned-values"),
    *("permuted-heads", "scaled-feed-forward", "negated-feed-forward", "permuted-neurons", "one-operator"),
    *("transposed", "merged-feed-forward", "summed-in-parts", "beside", "exact-tables", "interleaved", "masked"),
    "shifted",
)
IN_FP32 = ("folded-norms", "permuted-heads", "merged-feed-forward", "interleaved", "one-operator", "masked")


class Trained(Verdicts):
    """The worlds of one trained model."""

    name = "trained"
    title = "Verdicts on a trained model"
    about: tuple[str, ...] = (
        "As for random weights, of SmolLM2-135M-Instruct (30 layers) on texts of prose, of a chat template, of code, "
        "of six tokens and of 1100: healthy pairs of types, kernels, caches, ports of its matrices and rewritten "
        "modules, and one planted fault of each kind.",
    )
    weight = 2
    timeout_s = 600

    def unavailable(self) -> Optional[str]:
        """Without the package there is no model."""
        from bench.faults import trained

        return None if trained.wheel() else trained.ABSENT

    def cases(self, seed: int) -> Iterator[Case]:
        """All of them once: a few healthy ones and a few faults of one text after the other."""
        draw = random.Random(f"trained {seed}")
        healthy, faulty = list(_healthy()), list(_faulty(draw))
        parts = [*_parts(draw, healthy), *_parts(draw, faulty)]
        for part in draw.sample(parts, len(parts)):
            yield from (of_laboratory(case, LEVELS) for case in part)

    def sample(self) -> Iterable[Case]:
        """One healthy pair and one fault of a short text."""
        from bench.faults import trained

        draw = random.Random(SAMPLE_SEED)
        yield of_laboratory(_case("precision", trained.SHORT), LEVELS)
        fault = next(case for case in _faulty(draw) if case.kind == "mask-missing")
        yield of_laboratory(replace(fault, seed=trained.SHORT), LEVELS)


def _case(pair: str, text: int, dtype: str = "bfloat16", decode: int = 0) -> lab.Case:
    from bench.faults import lab

    return lab.Case(FAMILY, text, dtype=dtype, pair=pair, decode=decode)


def _healthy() -> Iterator[lab.Case]:
    from bench.faults import trained

    for text in (trained.PROSE, trained.CHAT, trained.CODE, trained.SHORT):
        yield _case("precision", text)
        yield _case("precision", text, "float16")
    yield _case("precision", trained.LONG)
    yield _case("math", trained.LONG)
    for dtype in ("bfloat16", "float16"):
        yield _case("precision", trained.PROSE, dtype, decode=32)
    texts = (trained.PROSE, trained.CHAT)
    for number, pair in enumerate(PLAIN):
        yield _case(pair, texts[number % len(texts)])
    for pair in THROUGH_A_CACHE:
        yield _case(pair, trained.CHAT, decode=4)
    for number, kind in enumerate(WRITTEN_OTHERWISE):
        yield _case(kind, texts[number % len(texts)])
    for kind in IN_FP32:
        yield _case(kind, trained.CODE, "float32")


def _faulty(draw: random.Random) -> Iterator[lab.Case]:
    """One of each kind, in a form, a layer, a strength and a text that are drawn."""
    from bench.faults import faults, lab, trained

    for kind in faults.KINDS:
        text = draw.choice((trained.PROSE, trained.CHAT))
        cases = list(lab.fault_cases((FAMILY,), (text,), (kind,)))
        if cases:
            yield draw.choice(cases)


def _parts(draw: random.Random, cases: list[lab.Case]) -> Iterator[list[lab.Case]]:
    """A few cases of one text each: they share golden."""
    by_text: dict[int, list[lab.Case]] = {}
    for case in draw.sample(cases, len(cases)):
        by_text.setdefault(case.seed, []).append(case)
    for found in by_text.values():
        for begin in range(0, len(found), TOGETHER):
            yield found[begin : begin + TOGETHER]
