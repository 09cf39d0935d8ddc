# SPDX-License-Identifier: Apache-2.0
"""Cases of the laboratory and how they are judged."""

from __future__ import annotations

import contextlib
import copy
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

import torch

import assay
from assay.twin import drive
from bench.faults import captures, coded, faults, kernels, narrow, ports, program_faults, rewrites, thresholds, trained
from bench.faults.families import FAMILIES, FAR, FIRST_TOKEN, WIDTH, build, narrowed, places_of, prompt

_NO_FP64 = ("xglm",)  # fills its mask with a number that is too large for the type of the mask
_NO_AUTOCAST = ("dbrx",)  # adds what an expert made to a sum of another type
LENGTHS = (17, 8, 48, 97, 33)
FLOOR_PAIRS = 5
PADDING = 3


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
    "math": "mine with torch's own attention of several operators",
    "loaded": "mine in 16 bits, buffers in fp32, as from_pretrained leaves it",
    "recreated": "mine computes its tables of rotary frequencies anew",
    "static": "golden with a cache that grows, mine with a static one",
    "autocast": "mine in fp32 under autocast to bf16",
    "inference": "mine under inference_mode",
    "cached": "mine keeps a cache that golden does not",
    "padded": "both with padding to the left and a mask",
    "columns": "mine in fp32, weights stored column by column",
    "device": "mine on the accelerator of this machine",
    "lora": "golden with a low-rank part beside a matrix of each layer, mine with it merged, in 16 bits",
    "int8": "mine in 16 bits, matrices as int8 with a scale a row",
    "int4": "mine in 16 bits, matrices as words of eight codes with a scale and a zero point a group of 8",
    "fp8": "mine in 16 bits, matrices as 8-bit floats with a scale a row",
    **{name: about for name, (about, _) in narrow.PRODUCTS.items()},
    "dynamic": "mine in fp32, its linear layers quantised by torch's quantize_dynamic",
    **{world.name: "mine in 16 bits, " + world.about for world in coded.WORLDS.values()},
}
DEVICE = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
CODES = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
PORTS = ("lora", "int4", *CODES)  # whose own healthy runs say what noise is
EQUAL_SHAPES = tuple(pair for pair in PAIRS if pair not in ("batch", "chunked", "static"))  # clean is possible there


@dataclass(frozen=True)
class Case:
    """One fault at one place, or (kind "") a healthy pair.

    Attributes:
        pair: how mine differs from golden besides the fault, a key of PAIRS or of rewrites.KINDS.
        shaped: weights resemble trained ones (assay.twin.shaping).
        decode: steps of one token after the prompt, through a cache; their tokens are fixed.
        far: positions begin at 15 900.
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
    shaped: bool = False
    decode: int = 0
    far: bool = False

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
        parts += ["shaped"] * self.shaped + [f"decode{self.decode}"] * bool(self.decode) + ["far"] * self.far
        return "-".join([*parts, "coarse"] if self.coarse else parts)


def case_of(name: str) -> Case:
    """The case that has this name; raises ValueError when none has."""
    pairs = "|".join([*PAIRS, *rewrites.KINDS])
    found = re.fullmatch(
        r"(?P<family>[a-z0-9_]+)-(?P<seed>\d+)-(?P<dtype>[a-z0-9]+)"
        r"(-(?P<kind>[a-z0-9-]+?)-(?P<form>visible|hidden)-layer(?P<layer>\d+)-(?P<strength>[0-9.]+))?"
        rf"(-(?P<pair>{pairs}))?(-wide(?P<width>\d+))?(?P<shaped>-shaped)?(-decode(?P<decode>\d+))?(?P<far>-far)?"
        r"(?P<coarse>-coarse)?",
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
        bool(found["shaped"]),
        int(found["decode"] or 0),
        bool(found["far"]),
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
        size, rounding: share of the model's output that the fault moves in fp32, and that healthy rounding does; -1
            unknown.
        power: of a clean verdict, the smallest error it says it would have seen, as a share of a value; else -1.
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
    size: float = -1.0
    rounding: float = -1.0
    power: float = -1.0

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
        fingerprint: golden is judged by its fingerprint and its weights (levels O, L, M, S).
    """

    def __init__(
        self,
        folder: Path,
        levels: tuple[str, ...],
        keep: bool = False,
        width: int = WIDTH,
        fingerprint: bool = False,
    ) -> None:
        self._width = width
        self._fingerprint = fingerprint
        self._folder = folder
        self._levels = levels
        self._keep = keep
        self._models: dict[tuple[str, int, str, bool], torch.nn.Module] = {}
        self._golden_logits: dict[Path, torch.Tensor] = {}
        self._healthy: dict[str, torch.Tensor] = {}
        self._golden_outputs: dict[Path, Any] = {}

    def model(self, case: Case, attention: str = "sdpa") -> torch.nn.Module:
        """The fp32 model of a case, without its fault."""
        key = (case.family, case.seed, attention, case.shaped)
        if key not in self._models:
            self._models[key] = build(case.family, case.seed, attention, self._width, case.shaped)
        return self._models[key]

    def tokens(self, case: Case) -> torch.Tensor:
        """The prompt of a seed, and behind it the tokens of the steps."""
        if FAMILIES[case.family].trained:
            return trained.tokens(case.seed, case.decode)
        length = LENGTHS[case.seed % len(LENGTHS)] + case.decode
        tokens = prompt(case.seed, length, vocabulary=FAMILIES[case.family].vocabulary)
        if case.shaped:
            tokens[0, 0] = FIRST_TOKEN
        return tokens

    def golden(self, case: Case) -> Path:
        """The capture of golden at operator level."""
        kind = case.pair if case.pair in ("fp64", "fused", "padded", "lora") else "precision"
        run = replace(case, kind="", form="", layer=0, strength=1.0, dtype="float32", coarse=False, pair=kind)
        path = self._folder / f"golden-{run.name}"
        if path not in self._golden_outputs:
            model = self.model(case, "eager" if kind == "fused" else "sdpa")
            if kind == "fp64":
                model = narrowed(model, torch.float64)
            if kind == "lora":
                model = ports.with_low_rank(model, case.seed)
            self._golden_logits[path] = self._driven(run, self._site(run, model), path)
            self._golden_outputs[path] = thresholds.outputs(path)
        return path

    def _driven(
        self,
        case: Case,
        site: faults.Site,
        folder: Optional[Path] = None,
        beneath: Optional[contextlib.AbstractContextManager[Any]] = None,
    ) -> torch.Tensor:
        """Runs a model as the case says, captured when there is a folder; the logits of all steps."""
        found: list[torch.Tensor] = []

        def run() -> None:
            assert site.tokens is not None
            rewriting = rewrites.KINDS.get(case.pair)
            found.append(
                drive.run(
                    site.model if rewriting is None else rewriting.called(site.model, site.tokens),
                    site.tokens,
                    site.steps,
                    first=FAR if case.far else 0,
                    static=case.pair == "static",
                    cached=case.pair == "cached",
                    padding=PADDING if case.pair == "padded" else 0,
                    between=site.between,
                )
            )

        if folder is None:
            with torch.no_grad(), beneath or contextlib.nullcontext():
                run()
        else:
            captures.capture(site.model, self.tokens(case), folder, beneath, run)
        return found[0].detach().cpu().double()

    def _sizes(self, case: Case, moved: Optional[torch.Tensor]) -> tuple[float, float]:
        """Which share of the model's output the fault moves, and rounding does; -1 where that is not known.

        The fault is planted in the fp32 model for that. In mine it also has all that follows rounded anew, so that
        the smallest one would seem to move the output by as much as rounding.
        """
        if not case.kind or moved is None:
            return -1.0, -1.0
        key = replace(case, kind="", form="", layer=0, strength=1.0).name
        if key not in self._healthy:
            model = narrowed(self.model(case), getattr(torch, case.dtype))
            self._healthy[key] = self._driven(case, self._site(case, model))
        healthy, right = self._healthy[key], self._golden_logits[self.golden(case)]
        rounding = _share(healthy, right)
        if moved.shape != healthy.shape:
            return -1.0, rounding
        if torch.equal(moved, healthy):
            return 0.0, rounding
        # What wide types do not show, such as an accumulator of bf16, is held against the healthy run.
        alone = _share(self._planted_in_golden(case), right)
        return alone or _share(moved, healthy), rounding

    def _planted_in_golden(self, case: Case) -> torch.Tensor:
        """The logits of the golden model with the fault; without it where that type has no such fault."""
        site = self._site(case, narrowed(self.model(case), torch.float32))
        try:
            return self._driven(case, site, beneath=faults.KINDS[case.kind].plant(site))
        except faults.NoFault:
            return self._golden_logits[self.golden(case)]

    def run(self, case: Case) -> Iterator[Result]:
        """Plants, captures and judges; one result a level."""
        mine = self._folder / case.name
        site = self._site(case, self.model(case))
        place = first_name(site.model, faults.KINDS[case.kind].place(site)) if case.kind else ""
        try:
            golden = self.golden(case)
            moved = self._capture(case, mine)
        except faults.NoFault as why:
            yield Result(case, "", place, f"not planted: {why}")
            return
        size, rounding = self._sizes(case, moved)
        if size == 0 and case.kind:
            yield Result(case, "", place, "not planted: the model's output is the same")
            return
        rivals: dict[str, Optional[str]] = {}
        if not FAMILIES[case.family].trained:
            rivals = thresholds.first_beyond(self._golden_outputs[golden], thresholds.outputs(mine))
        prefix = site.family.layer.format("")
        for level in self._levels:
            if level == "B" and case.kind and not place.startswith(prefix):
                continue  # no layer is wrong
            if case.pair == "compiled" and level != "B":
                continue  # what is inside a compiled layer is not captured
            if level in "BNS" and (case.pair == "autocast" or case.pair in (*narrow.PRODUCTS, "dynamic")):
                continue  # nothing says that layers compute in another type than they return
            if level in "NS" and case.pair in coded.WORLDS:
                continue  # the floors are of pairs without codes
            thin = captures.thinned(mine, level, self._folder / f"{case.name}-{level}", prefix)
            if level in ("N", "S"):
                right = captures.thinned(golden, level, self._folder / f"{golden.name}-{level}", prefix)
                result = self._judged(case, level, place, right, thin, rivals, self.floor(case, level))
            else:
                result = self._judged(case, level, place, golden, thin, rivals)
            result.size, result.rounding = size, rounding
            yield result
            if thin != mine and not self._keep:
                shutil.rmtree(thin)
        if not self._keep:
            shutil.rmtree(mine)

    def floor(self, case: Case, level: str) -> Path:
        """The profile of five healthy pairs of other prompts."""
        profile = self._folder / f"floor-{self._noise_of(case)}-{level}.json"
        if not profile.exists():
            pairs = self._healthy_pairs(case, level)
            assay.locate(*pairs[0], floor_runs=pairs, save_floor=profile)
        return profile

    @staticmethod
    def _noise_of(case: Case) -> str:
        port = case.pair if case.pair in PORTS else "precision"
        return f"{case.family}-{case.seed}-{case.dtype}-{port}{'-shaped' * case.shaped}"

    def _healthy_pairs(self, case: Case, level: str) -> list[tuple[Path, Path]]:
        port = case.pair if case.pair in PORTS else "precision"
        prefix = places_of(case.family).layer.format("")
        model = self.model(case)
        if port == "lora":
            model = ports.with_low_rank(model, case.seed)
        mine = ported(replace(case, pair=port), self.model(case), getattr(torch, case.dtype))
        pairs = []
        for number in range(FLOOR_PAIRS):
            length = LENGTHS[(case.seed + number) % len(LENGTHS)]
            tokens = prompt(1000 + 10 * case.seed + number, length, vocabulary=FAMILIES[case.family].vocabulary)
            sides = []
            for side, one in (("golden", model), ("mine", mine)):
                whole = self._folder / f"floor-{self._noise_of(case)}-{level}-{number}-{side}"
                captures.capture(one, tokens, whole)
                sides.append(captures.thinned(whole, level, whole.with_name(whole.name + "-thin"), prefix))
            pairs.append((sides[0], sides[1]))
        return pairs

    def _site(self, case: Case, model: torch.nn.Module) -> faults.Site:
        found = places_of(case.family, case.layer if case.kind else None)
        hidden = case.form == "hidden"
        return faults.Site(model, found, case.layer, case.strength, hidden, self.tokens(case), case.decode)

    def _capture(self, case: Case, folder: Path) -> Optional[torch.Tensor]:
        """Captures mine; the logits of all steps."""
        if case.pair in rewrites.KINDS:
            return self._capture_rewritten(case, folder)
        exact = case.pair in ("threads", "autocast", "columns", "dynamic") or case.pair in narrow.PRODUCTS
        dtype = torch.float32 if exact else getattr(torch, case.dtype)
        attention = "eager" if case.pair == "decomposed" else "sdpa"
        model = ported(case, self.model(case, attention), dtype)
        site = self._site(case, model)
        tokens = self.tokens(case)
        if case.pair == "device":
            model.to(DEVICE)
            site.tokens = tokens.to(DEVICE)
        with contextlib.ExitStack() as around:
            prepare(case, model, self.model(case, attention), around)
            if case.pair == "batch":
                others = prompt(case.seed + 500, tokens.shape[1], 3, FAMILIES[case.family].vocabulary)
                site.tokens = torch.cat([tokens, others])
            if case.pair == "compiled":
                captures.capture_compiled(model, tokens, folder, site.family.layer, site.family.layers)
                return None
            if case.pair == "chunked":
                captures.capture_chunks(model, tokens, folder)
                return None
            beneath = faults.KINDS[case.kind].plant(site) if case.kind else None
            return self._driven(case, site, folder, beneath)

    def _capture_rewritten(self, case: Case, folder: Path) -> torch.Tensor:
        """The fault is planted in a copy of golden, which is then written otherwise and rounded."""
        site = self._site(case, copy.deepcopy(self.model(case)))
        fault = faults.KINDS[case.kind].plant(site) if case.kind else contextlib.nullcontext()
        with fault:
            tokens = self.tokens(case)[:, : self.tokens(case).shape[1] - case.decode]
            site.model = rewrites.rewritten(case.pair, site.model, tokens).to(getattr(torch, case.dtype))
            return self._driven(case, site, folder)

    def _stand_in(self, case: Case, golden: Path, level: str) -> tuple[Path, Optional[Path]]:
        """The fingerprint of golden, and where its weights are. At level S floors stand for these."""
        if level == "S":
            path = golden.with_name(f"{golden.name}-{self._noise_of(case)}.json.gz")
            if not path.exists():
                assay.fingerprint(golden, path, floor_runs=self._healthy_pairs(case, level))
            return path, None
        path = golden.with_name(f"{golden.name}.json.gz")
        if not path.exists():
            assay.fingerprint(golden, path)
        return path, golden

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
        weights = None
        if self._fingerprint and level in "OLMS":
            golden, weights, floor = *self._stand_in(case, golden, level), None
        begin = time.perf_counter()
        verdict = assay.locate(golden, mine, floor=floor, golden_weights=weights)
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
            power=(verdict.to_dict()["power"] or {}).get("error") or -1.0,
        )


def _share(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


def first_name(model: torch.nn.Module, path: str) -> str:
    """Of a module that stands in several places, as one activation in all layers, where it stands first."""
    wanted = model.get_submodule(path)
    return next(name for name, module in model.named_modules() if module is wanted)


def ported(case: Case, model: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    """The model under test: the golden one in another type, and for some pairs with its matrices stored otherwise."""
    if case.pair in CODES:
        return ports.quantised(model, CODES[case.pair], dtype)
    if case.pair == "dynamic":
        return narrow.dynamic(model)
    if case.pair in coded.WORLDS:
        return coded.ported(case.pair, model, dtype)
    if case.pair == "int4":
        return ports.packed(model, dtype, zeros=True)
    if case.pair == "lora":
        model = ports.merged(ports.with_low_rank(model, case.seed))
    return narrowed(model, dtype)


def prepare(case: Case, model: torch.nn.Module, golden: torch.nn.Module, around: contextlib.ExitStack) -> None:
    """Makes mine what its pair says, besides its type and its way of being run."""
    if case.coarse:
        around.enter_context(kernels.Kernels(model, "", kernels.coarse))
    if case.pair in narrow.PRODUCTS:
        around.enter_context(kernels.Kernels(model, "", narrow.PRODUCTS[case.pair][1]))
    elif case.pair == "threads":
        around.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(2)
    elif case.pair == "mkldnn":
        around.enter_context(torch.backends.mkldnn.flags(enabled=False))
    elif case.pair == "math":
        around.enter_context(torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH))
    elif case.pair == "autocast":
        around.enter_context(torch.autocast("cpu", torch.bfloat16))
    elif case.pair == "inference":
        around.enter_context(torch.inference_mode())
    elif case.pair in ("loaded", "recreated"):
        for path, buffer in golden.named_buffers():
            owner, _, name = path.rpartition(".")
            if name != "inv_freq":
                continue
            again = buffer.clone() if case.pair == "loaded" else buffer.to(getattr(torch, case.dtype)).clone()
            setattr(model.get_submodule(owner), name, again)
    elif case.pair == "columns":
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.data = parameter.data.t().contiguous().t()


def has_fp64(family: str) -> bool:
    """Whether the model runs in fp64: grouped products of experts have no kernel there."""
    return not places_of(family).router and family not in _NO_FP64


def fault_cases(
    families: tuple[str, ...],
    seeds: tuple[int, ...],
    kinds: tuple[str, ...],
    strengths: tuple[float, ...] = (1.0, 0.5),
    forms: tuple[str, ...] = ("visible", "hidden"),
    coarse: bool = False,
    shaped: bool = False,
    decode: int = 0,
    pair: str = "precision",
) -> Iterator[Case]:
    """Every kind that the family has, in every form, at two layers; `sized` ones in every strength."""
    for family in families:
        for seed in seeds:
            for name in kinds:
                kind = faults.KINDS[name]
                known = FAMILIES[family]
                if kind.needs == "codes" and pair not in coded.WORLDS:
                    continue
                if name == "low-accumulator" and pair in narrow.PRODUCTS:
                    continue  # partial sums of float32 are none
                if (kind.needs == "decode" and not known.decodes) or (kind.needs == "far" and not known.far):
                    continue
                steps = decode if known.decodes else 0
                base = Case(
                    family,
                    seed,
                    name,
                    dtype="float32" if kind.needs == "float32" else "bfloat16",
                    coarse=coarse,
                    pair=pair,
                    shaped=shaped,
                    decode=max(steps, 4) if kind.needs == "decode" else steps,
                    far=kind.needs == "far",
                )
                layers = faults.layer_choices(places_of(family).layers)
                for form in kind.forms:
                    if form not in forms:
                        continue
                    for layer in (0,) if (kind.target(places_of(family, 0)) or "").startswith("/") else layers:
                        if kind.target(places_of(family, layer)) is None:
                            continue
                        for strength in strengths if kind.sized else strengths[:1]:
                            yield replace(base, form=form, layer=layer, strength=strength)


def healthy_cases(
    families: tuple[str, ...],
    seeds: tuple[int, ...],
    pairs: tuple[str, ...],
    coarse: bool = False,
    shaped: bool = False,
    decode: int = 0,
) -> Iterator[Case]:
    """Every kind of healthy pair; bf16 and fp16 where precision is the difference."""
    for family in families:
        decodes = FAMILIES[family].decodes
        for seed in seeds:
            for pair in ("precision",) if coarse else pairs:
                if pair == "fp64" and not has_fp64(family):
                    continue
                if pair == "autocast" and family in _NO_AUTOCAST:
                    continue
                if pair == "device" and DEVICE is None:
                    continue
                if pair in ("static", "cached") and not decodes:
                    continue
                if pair == "chunked" and not FAMILIES[family].chunks:
                    continue
                if pair in ("loaded", "recreated") and not places_of(family).rotary:
                    continue  # there are no tables
                both = pair in ("precision", "device") and not coarse
                steps = decode if decodes and pair not in ("chunked", "compiled", "batch") else 0
                for dtype in ("bfloat16", "float16") if both else ("bfloat16",):
                    case = Case(family, seed, dtype=dtype, coarse=coarse, pair=pair, shaped=shaped, decode=steps)
                    yield replace(case, decode=max(case.decode, 4)) if pair == "static" else case


def rewritten_cases(
    families: tuple[str, ...], seeds: tuple[int, ...], kinds: tuple[str, ...], shaped: bool = False, decode: int = 0
) -> Iterator[Case]:
    """The same function written otherwise, in both types. Families that have nothing to write so are left out later."""
    for family in families:
        for seed in seeds:
            for kind in kinds:
                steps = decode if FAMILIES[family].decodes and kind not in ("masked", "shifted") else 0
                for dtype in ("bfloat16", "float32"):
                    yield Case(family, seed, dtype=dtype, pair=kind, shaped=shaped, decode=steps)


assert program_faults.KINDS is faults.KINDS  # all kinds are known where the laboratory is
