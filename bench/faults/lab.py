# SPDX-License-Identifier: Apache-2.0
"""Cases of the laboratory and how they are judged."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Optional

import torch

import assay
from bench.faults import captures, faults, kernels, thresholds
from bench.faults.families import FAMILIES, LAYERS, build, narrowed, prompt

LENGTHS = (17, 8, 48, 97, 33)


@dataclass(frozen=True)
class Case:
    """One fault at one place, or (kind "") a healthy pair."""

    family: str
    seed: int
    kind: str = ""
    form: str = ""
    layer: int = 0
    strength: float = 1.0
    dtype: str = "bfloat16"
    coarse: bool = False

    @property
    def name(self) -> str:
        """Unique; also the name of its folder."""
        parts = [self.family, str(self.seed), self.dtype]
        if self.kind:
            parts += [self.kind, self.form, f"layer{self.layer}", f"{self.strength:g}"]
        return "-".join([*parts, "coarse"] if self.coarse else parts)


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
    """

    def __init__(self, folder: Path, levels: tuple[str, ...], keep: bool = False) -> None:
        self._folder = folder
        self._levels = levels
        self._keep = keep
        self._models: dict[tuple[str, int], torch.nn.Module] = {}
        self._goldens: dict[tuple[str, int], Path] = {}
        self._golden_outputs: dict[tuple[str, int], Any] = {}

    def model(self, family: str, seed: int) -> torch.nn.Module:
        """The fp32 model."""
        key = (family, seed)
        if key not in self._models:
            self._models[key] = build(family, seed)
        return self._models[key]

    def tokens(self, seed: int) -> torch.Tensor:
        """The prompt of a seed."""
        return prompt(seed, LENGTHS[seed % len(LENGTHS)])

    def golden(self, family: str, seed: int) -> Path:
        """The capture of the fp32 model at operator level."""
        key = (family, seed)
        if key not in self._goldens:
            path = self._folder / f"golden-{family}-{seed}"
            captures.capture(self.model(family, seed), self.tokens(seed), path)
            self._goldens[key] = path
            self._golden_outputs[key] = thresholds.outputs(path)
        return self._goldens[key]

    def run(self, case: Case) -> Iterator[Result]:
        """Plants, captures and judges; one result a level."""
        golden = self.golden(case.family, case.seed)
        family = FAMILIES[case.family]
        model = narrowed(self.model(case.family, case.seed), getattr(torch, case.dtype))
        if case.coarse:
            below = kernels.Kernels(model, "", kernels.coarse)
        place = ""
        mine = self._folder / case.name
        beneath: Any = None
        if case.kind:
            kind = faults.KINDS[case.kind]
            site = faults.Site(model, family, case.layer, case.strength, case.form == "hidden")
            place = kind.place(site)
            beneath = kind.plant(site)
        try:
            if case.coarse:
                with below:
                    captures.capture(model, self.tokens(case.seed), mine, beneath=beneath)
            else:
                captures.capture(model, self.tokens(case.seed), mine, beneath=beneath)
        except faults.NoFault as why:
            yield Result(case, "", place, f"not planted: {why}")
            return
        rivals = thresholds.first_beyond(self._golden_outputs[case.family, case.seed], thresholds.outputs(mine))
        prefix = family.layer.format("")
        for level in self._levels:
            thin = captures.thinned(mine, level, self._folder / f"{case.name}-{level}", prefix)
            yield self._judged(case, level, place, golden, thin, rivals)
            if thin != mine and not self._keep:
                shutil.rmtree(thin)
        if not self._keep:
            shutil.rmtree(mine)

    def _judged(
        self, case: Case, level: str, place: str, golden: Path, mine: Path, rivals: dict[str, Optional[str]]
    ) -> Result:
        import time

        begin = time.perf_counter()
        verdict = assay.locate(golden, mine)
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


def healthy_cases(families: tuple[str, ...], seeds: tuple[int, ...], coarse: bool = False) -> Iterator[Case]:
    """fp32 against bf16 and fp16 of the same model."""
    for family in families:
        for seed in seeds:
            for dtype in ("bfloat16", "float16") if not coarse else ("bfloat16",):
                yield Case(family, seed, dtype=dtype, coarse=coarse)


assert max(faults.LAYER_CHOICES) < LAYERS
