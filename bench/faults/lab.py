# SPDX-License-Identifier: Apache-2.0
"""Cases of the laboratory and how they are judged."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Optional

import torch

import assay
from bench.faults import captures, faults, kernels, thresholds
from bench.faults.families import FAMILIES, LAYERS, WIDTH, build, narrowed, prompt

LENGTHS = (17, 8, 48, 97, 33)
FLOOR_PAIRS = 5


# Healthy pairs: how mine differs from golden, which is the fp32 model with fused attention unless said otherwise.
PAIRS = {
    "precision": "mine in 16 bits",
    "fp64": "golden in fp64, mine in 16 bits",
    "threads": "mine in fp32 with two threads",
    "mkldnn": "mine in 16 bits with another library for products",
    "batch": "mine is row 0 of a batch of 4",
    "decomposed": "mine with attention of several operators",
    "fused": "golden with attention of several operators, mine with the fused one",
    "chunked": "mine fills its cache in two chunks",
    "compiled": "mine with every decoder layer compiled by inductor",
}


@dataclass(frozen=True)
class Case:
    """One fault at one place, or (kind "") a healthy pair.

    Attributes:
        pair: how mine differs from golden besides the fault, a key of PAIRS.
    """

    family: str
    seed: int
    kind: str = ""
    form: str = ""
    layer: int = 0
    strength: float = 1.0
    dtype: str = "bfloat16"
    coarse: bool = False
    pair: str = "precision"
    width: int = WIDTH

    @property
    def name(self) -> str:
        """Unique; also the name of its folder."""
        parts = [self.family, str(self.seed), self.dtype]
        if self.kind:
            parts += [self.kind, self.form, f"layer{self.layer}", f"{self.strength:g}"]
        if self.pair != "precision":
            parts.append(self.pair)
        if self.width != WIDTH:
            parts.append(f"wide{self.width}")
        return "-".join([*parts, "coarse"] if self.coarse else parts)


def case_of(name: str) -> Case:
    """The case that has this name; raises ValueError when none has."""
    pairs = "|".join(PAIRS)
    found = re.fullmatch(
        r"(?P<family>[a-z0-9]+)-(?P<seed>\d+)-(?P<dtype>[a-z0-9]+)"
        r"(-(?P<kind>[a-z-]+)-(?P<form>visible|hidden)-layer(?P<layer>\d+)-(?P<strength>[0-9.]+))?"
        rf"(-(?P<pair>{pairs}))?(-wide(?P<width>\d+))?(?P<coarse>-coarse)?",
        name,
    )
    if found is None or found["family"] not in FAMILIES or (found["kind"] and found["kind"] not in faults.KINDS):
        raise ValueError(f"no case of the laboratory is called {name!r}")
    return Case(
        found["family"],
        int(found["seed"]),
        found["kind"] or "",
        found["form"] or "",
        int(found["layer"] or 0),
        float(found["strength"] or 1),
        found["dtype"],
        bool(found["coarse"]),
        found["pair"] or "precision",
        int(found["width"] or WIDTH),
    )


@dataclass
class Result:
    """What was named at one level.

    Attributes:
        place: path of the module with the fault, "" for a healthy pair.
        outcome: of the verdict; "not planted" when the fault changes no bit.
        first, others: modules named, the first and those after it.
        distance: operators between the fault's first operator and the one named; None when nothing was named.
        rivals: what fixed limits name, by limit.
    """

    case: Case
    level: str
    place: str
    outcome: str
    first: Optional[str] = None
    others: list[str] = field(default_factory=list)
    sentence: str = ""
    seconds: float = 0.0
    rivals: dict[str, Optional[str]] = field(default_factory=dict)

    def right(self, top: int = 1) -> bool:
        """Whether the planted module, or something inside it, is among the first `top` that were named."""
        named = [] if self.first is None else [self.first, *self.others]
        return any(inside(self.place, module, self.level) for module in named[:top])

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "name": self.case.name, "right": self.right(), "top3": self.right(3)}


def inside(place: str, module: str, level: str) -> bool:
    """Whether `module` is the place of the fault or lies in it; for layer outputs, whether it is the layer of it."""
    if level == "B":
        return bool(place) and (place == module or place.startswith(module + "."))
    return module == place or module.startswith(place + ".")


class Laboratory:
    """Keeps what several cases share: golden models, and their captures.

    Args:
        folder: for captures; emptied case by case unless `keep`.
        width: of the models; cases must have the same.
    """

    def __init__(self, folder: Path, levels: tuple[str, ...], keep: bool = False, width: int = WIDTH) -> None:
        self._width = width
        self._folder = folder
        self._levels = levels
        self._keep = keep
        self._models: dict[tuple[str, int, str], torch.nn.Module] = {}
        self._goldens: dict[tuple[str, int, str], Path] = {}
        self._golden_outputs: dict[Path, Any] = {}

    def model(self, family: str, seed: int, attention: str = "sdpa") -> torch.nn.Module:
        """The fp32 model."""
        key = (family, seed, attention)
        if key not in self._models:
            self._models[key] = build(family, seed, attention, self._width)
        return self._models[key]

    def tokens(self, seed: int) -> torch.Tensor:
        """The prompt of a seed."""
        return prompt(seed, LENGTHS[seed % len(LENGTHS)])

    def golden(self, family: str, seed: int, pair: str = "precision") -> Path:
        """The capture of golden at operator level."""
        kind = pair if pair in ("fp64", "fused") else "precision"
        key = (family, seed, kind)
        if key not in self._goldens:
            path = self._folder / f"golden-{family}-{seed}-{kind}"
            model = self.model(family, seed, "eager" if kind == "fused" else "sdpa")
            if kind == "fp64":
                model = narrowed(model, torch.float64)
            captures.capture(model, self.tokens(seed), path)
            self._goldens[key] = path
            self._golden_outputs[path] = thresholds.outputs(path)
        return self._goldens[key]

    def run(self, case: Case) -> Iterator[Result]:
        """Plants, captures and judges; one result a level."""
        golden = self.golden(case.family, case.seed, case.pair)
        mine = self._folder / case.name
        place = ""
        if case.kind:
            place = faults.KINDS[case.kind].place(self._site(case, self.model(case.family, case.seed)))
        try:
            self._capture(case, mine)
        except faults.NoFault as why:
            yield Result(case, "", place, f"not planted: {why}")
            return
        rivals = thresholds.first_beyond(self._golden_outputs[golden], thresholds.outputs(mine))
        prefix = FAMILIES[case.family].layer.format("")
        for level in self._levels:
            if level == "B" and case.kind and not place.startswith(prefix):
                continue  # no layer is wrong
            if case.pair == "compiled" and level != "B":
                continue  # what is inside a compiled layer is not captured
            thin = captures.thinned(mine, level, self._folder / f"{case.name}-{level}", prefix)
            if level in ("N", "S"):
                right = captures.thinned(golden, level, self._folder / f"{golden.name}-{level}", prefix)
                yield self._judged(case, level, place, right, thin, rivals, self.floor(case, level))
            else:
                yield self._judged(case, level, place, golden, thin, rivals)
            if thin != mine and not self._keep:
                shutil.rmtree(thin)
        if not self._keep:
            shutil.rmtree(mine)

    def floor(self, case: Case, level: str) -> Path:
        """The profile of five healthy pairs of other prompts."""
        profile = self._folder / f"floor-{case.family}-{case.seed}-{case.dtype}-{level}.json"
        if profile.exists():
            return profile
        prefix = FAMILIES[case.family].layer.format("")
        model = self.model(case.family, case.seed)
        pairs = []
        for number in range(FLOOR_PAIRS):
            tokens = prompt(1000 + 10 * case.seed + number, LENGTHS[(case.seed + number) % len(LENGTHS)])
            sides = []
            for side, one in (("golden", model), ("mine", narrowed(model, getattr(torch, case.dtype)))):
                whole = self._folder / f"{profile.stem}-{number}-{side}"
                captures.capture(one, tokens, whole)
                sides.append(captures.thinned(whole, level, whole.with_name(whole.name + "-thin"), prefix))
            pairs.append((sides[0], sides[1]))
        assay.locate(*pairs[0], floor_runs=pairs, save_floor=profile)
        return profile

    def _site(self, case: Case, model: torch.nn.Module) -> faults.Site:
        return faults.Site(model, FAMILIES[case.family], case.layer, case.strength, case.form == "hidden")

    def _capture(self, case: Case, folder: Path) -> None:
        """Captures mine."""
        dtype = torch.float32 if case.pair == "threads" else getattr(torch, case.dtype)
        attention = "eager" if case.pair == "decomposed" else "sdpa"
        model = narrowed(self.model(case.family, case.seed, attention), dtype)
        tokens = self.tokens(case.seed)
        with contextlib.ExitStack() as around:
            if case.coarse:
                around.enter_context(kernels.Kernels(model, "", kernels.coarse))
            if case.pair == "threads":
                around.callback(torch.set_num_threads, torch.get_num_threads())
                torch.set_num_threads(2)
            if case.pair == "mkldnn":
                around.enter_context(torch.backends.mkldnn.flags(enabled=False))
            if case.pair == "batch":
                tokens = torch.cat([tokens, prompt(case.seed + 500, tokens.shape[1], 3)])
            if case.pair == "compiled":
                captures.capture_compiled(model, tokens, folder, FAMILIES[case.family].layer, LAYERS)
            elif case.pair == "chunked":
                captures.capture_chunks(model, tokens, folder)
            else:
                beneath = faults.KINDS[case.kind].plant(self._site(case, model)) if case.kind else None
                captures.capture(model, tokens, folder, beneath=beneath)

    def _judged(
        self,
        case: Case,
        level: str,
        place: str,
        golden: Path,
        mine: Path,
        rivals: dict[str, Optional[str]],
        floor: Optional[Path] = None,
    ) -> Result:
        begin = time.perf_counter()
        verdict = assay.locate(golden, mine, floor=floor)
        seconds = time.perf_counter() - begin
        modules = [finding.module for finding in verdict.candidates]
        return Result(
            case,
            level,
            place,
            verdict.outcome,
            modules[0] if modules else None,
            modules[1:],
            verdict.sentence,
            seconds,
            rivals,
        )


def fault_cases(
    families: tuple[str, ...],
    seeds: tuple[int, ...],
    kinds: tuple[str, ...],
    strengths: tuple[float, ...] = (1.0, 0.5),
    forms: tuple[str, ...] = ("visible", "hidden"),
    coarse: bool = False,
) -> Iterator[Case]:
    """Every kind that the family has, in every form, at two layers; `sized` ones in every strength."""
    for family in families:
        for seed in seeds:
            for name in kinds:
                kind = faults.KINDS[name]
                if kind.target(FAMILIES[family]) is None:
                    continue
                layers = faults.LAYER_CHOICES if not name.startswith(("rope", "positions")) else (0,)
                for form in kind.forms:
                    if form not in forms:
                        continue
                    for layer in layers:
                        for strength in strengths if kind.sized else strengths[:1]:
                            yield Case(family, seed, name, form, layer, strength, coarse=coarse)


def healthy_cases(
    families: tuple[str, ...], seeds: tuple[int, ...], pairs: tuple[str, ...], coarse: bool = False
) -> Iterator[Case]:
    """Every kind of healthy pair; bf16 and fp16 where precision is the difference."""
    for family in families:
        for seed in seeds:
            for pair in ("precision",) if coarse else pairs:
                if pair == "fp64" and family == "mixtral":
                    continue  # its grouped product has no fp64 kernel
                both = pair == "precision" and not coarse
                for dtype in ("bfloat16", "float16") if both else ("bfloat16",):
                    yield Case(family, seed, dtype=dtype, coarse=coarse, pair=pair)


assert max(faults.LAYER_CHOICES) < LAYERS
