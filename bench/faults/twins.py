# SPDX-License-Identifier: Apache-2.0
"""Gates on twins: healthy ports and planted faults, judged as `assay gate` does, beside what engines' tests ask today.

A twin is made of the default configuration of an architecture, as large as its makers meant it (assay.twin). Both sides
are captured with their operators.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

import torch

import assay
from assay.twin import drive, places, prompt_set
from bench.faults import captures, faults, kernels, lab, ports
from bench.faults.criteria import CRITERIA
from bench.faults.families import narrowed

ROOT = Path(__file__).resolve().parent.parent.parent
CHAT = ROOT / "examples" / "ggml" / "chat.py"

# Name here: type of transformers. Those that GGUF files are written for; all that have rotary tables; the rest.
GGUF = ("llama", "qwen2", "qwen3", "phi3")
ROTARY = (*GGUF, "mistral", "mixtral", "gemma", "gemma2", "gpt_neox", "olmo2", "stablelm", "granite", "starcoder2")
FAMILIES = (*ROTARY, "gpt2", "opt", "deepseek_v3")
OF_FAULTS = ("llama", "qwen2", "gpt2", "mixtral", "mistral", "gemma", "gpt_neox")
LAYERS = 6


@dataclass(frozen=True)
class Port:
    """One kind of healthy pair.

    Attributes:
        pair: how mine differs, of `lab.PAIRS`, or "engine": llama.cpp.
        dtype: of mine; of an engine the type of its file.
        prompt: the only prompt that both sides run, "" for all: shapes may not differ, or an engine takes no more.
        families: that have what it needs.
    """

    name: str
    pair: str = "precision"
    dtype: str = "bfloat16"
    prompt: str = ""
    families: tuple[str, ...] = FAMILIES


def _ports() -> Iterator[Port]:
    for dtype in ("bfloat16", "float16"):
        short = {"bfloat16": "bf16", "float16": "fp16"}[dtype]
        yield Port(short, dtype=dtype)
        yield Port(f"fp64-{short}", "fp64", dtype, families=tuple(f for f in FAMILIES if f not in _EXPERTS))
        yield Port(f"eager-{short}", "decomposed", dtype)
        yield Port(f"sdpa-of-eager-{short}", "fused", dtype)
        yield Port(f"math-{short}", "math", dtype)
        yield Port(f"loaded-{short}", "loaded", dtype, families=ROTARY)
        yield Port(f"recreated-{short}", "recreated", dtype, families=ROTARY)
        yield Port(f"static-{short}", "static", dtype)
        yield Port(f"other-products-{short}", "mkldnn", dtype)
        yield Port(f"reloaded-{short}", "reloaded", dtype)
        yield Port(f"inference-{short}", "inference", dtype)
    yield Port("fp32", dtype="float32")
    yield Port("threads-fp32", "threads", "float32")
    yield Port("threads-bf16", "threads", "bfloat16")
    yield Port("eager-fp32", "decomposed", "float32")
    yield Port("sdpa-of-eager-fp32", "fused", "float32")
    yield Port("math-fp32", "math", "float32")
    yield Port("static-fp32", "static", "float32")
    yield Port("columns-fp32", "columns", "float32")
    yield Port("autocast", "autocast", "float32", families=tuple(f for f in FAMILIES if f not in _EXPERTS))
    yield Port("gradients", "gradients", "float32")
    yield Port("flash-like", "flash", "bfloat16")
    linear = tuple(family for family in FAMILIES if family != "gpt2")  # its matrices are of a class of their own
    yield Port("merged-lora", "lora", "bfloat16", families=linear)
    for codes in ("int8", "int4", "fp8"):
        yield Port(codes, codes, "bfloat16", families=linear)
    yield Port("batch-of-4", "batch", "bfloat16", "plain")
    yield Port("chunks", "chunked", "bfloat16", "plain")
    yield Port("compiled", "compiled", "bfloat16", "plain", tuple(f for f in FAMILIES if f not in _EXPERTS))
    for kind in ("f32", "f16", "q8_0"):
        yield Port(f"llama.cpp-{kind}", "engine", kind, "plain", GGUF)


_EXPERTS = ("mixtral", "deepseek_v3")  # grouped products have no fp64 kernel, and their experts compile for minutes
PORTS: Mapping[str, Port] = {port.name: port for port in _ports()}


@dataclass
class Gate:
    """What a gate said.

    Attributes:
        outcome: of the verdict: "clean", "first_wrong", "cannot_judge"; "not planted" when the fault changes no bit.
        level: the verdict's: "O" operators, "L" between modules.
        satisfied: what each criterion says of the logits; empty where there are none.
        place: of the planted fault.
    """

    outcome: str
    sentence: str
    level: str = ""
    modules: list[str] = field(default_factory=list)
    satisfied: dict[str, bool] = field(default_factory=dict)
    place: str = ""

    @property
    def at_first_place(self) -> bool:
        """Whether the planted module, or something inside it, is named first."""
        return bool(self.modules) and lab.inside(self.place, self.modules[0], "M")


class Twins:
    """Twins of one folder, and the golden runs of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._models: dict[tuple[Path, str], torch.nn.Module] = {}
        self._golden: dict[Path, torch.Tensor] = {}

    def twin(self, family: str, seed: int, gguf_type: Optional[str] = None) -> Path:
        """The folder of a twin; made when it is asked for first."""
        folder = self._folder / f"{family}-{seed}{'-' + gguf_type if gguf_type else ''}"
        if not folder.exists():
            from transformers import CONFIG_MAPPING

            source = self._folder / f"{family}.json"
            source.write_text(CONFIG_MAPPING[family]().to_json_string(use_diff=False))
            assay.twin(source, folder, seed=seed, layers=LAYERS, gguf_type=gguf_type)
        return folder

    def model(self, twin: Path, attention: str = "sdpa") -> torch.nn.Module:
        """The fp32 model; of an architecture with one attention only, with that."""
        key = (twin, attention)
        if key not in self._models:
            try:
                self._models[key] = assay.twin.load(twin, attention=attention)
            except ValueError as why:
                if "attention implementation" not in str(why):
                    raise
                self._models[key] = assay.twin.load(twin, attention="eager")
        return self._models[key]

    def prompts(self, twin: Path, only: str = "") -> list[prompt_set.Prompt]:
        found = [prompt_set.Prompt(**one) for one in assay.twin.prompts(twin)]
        return [one for one in found if only in ("", one.name)]

    def golden(self, twin: Path, port: Port) -> Path:
        """The run of golden, with operators."""
        variant = port.pair if port.pair in ("fp64", "fused", "lora") else "fp32"
        whole = port.pair in ("batch", "chunked", "compiled", "engine")
        run = twin / f"golden-{variant}-{port.prompt}{'-whole' if whole else ''}"
        if run not in self._golden:
            model = self.model(twin, "eager" if variant == "fused" else "sdpa")
            if variant == "fp64":
                model = narrowed(model, torch.float64)
            if variant == "lora":
                model = ports.with_low_rank(model, 0)
            driven = [_whole(one) for one in self.prompts(twin, port.prompt)] if whole else self.prompts(twin)
            self._golden[run] = _captured(model, driven, run)
        return run

    def healthy(self, port: Port, family: str, seed: int) -> Gate:
        """One healthy pair."""
        if port.pair == "engine":
            return self._engine(port, family, seed)
        twin = self.twin(family, seed)
        golden = self.golden(twin, port)
        mine = twin / f"mine-{port.name}"
        model = _ported(port, self.model(twin, "eager" if port.pair == "decomposed" else "sdpa"), twin)
        case = lab.Case(family, seed, dtype=port.dtype, pair=port.pair)
        with contextlib.ExitStack() as around:
            if port.pair == "flash":
                around.enter_context(kernels.Kernels(model, "", kernels.flash_attention))
            lab.prepare(case, model, self.model(twin), around)
            logits = _run_port(port, model, self.prompts(twin, port.prompt), mine)
        return self._judged(golden, mine, logits)

    def faulty(self, kind: str, family: str, seed: int, form: str, layer: int) -> Gate:
        """One planted fault, in mine in bfloat16."""
        port = PORTS["bf16"]
        twin = self.twin(family, seed)
        golden = self.golden(twin, port)
        mine = twin / f"mine-{kind}-{form}-{layer}"
        healthy = twin / "mine-healthy"
        if healthy not in self._golden:
            self._golden[healthy] = _captured(_ported(port, self.model(twin), twin), self.prompts(twin), healthy)
        model = _ported(port, self.model(twin), twin)
        site = faults.Site(model, places.of(model, layer), layer, 1.0, form == "hidden")
        place = lab.first_name(model, faults.KINDS[kind].place(site))
        try:
            logits = _captured(model, self.prompts(twin), mine, faults.KINDS[kind].plant(site), site)
        except faults.NoFault as why:
            return Gate("not planted", str(why), place=place)
        if torch.equal(logits, self._golden[healthy]):
            return Gate("not planted", "the logits are the same", place=place)
        gate = self._judged(golden, mine, logits)
        gate.place = place
        return gate

    def _engine(self, port: Port, family: str, seed: int) -> Gate:
        twin = self.twin(family, seed, port.dtype)
        golden = self.golden(twin, port)
        mine = twin / f"mine-{port.name}"
        (prompt,) = self.prompts(twin, port.prompt)
        words = ",".join(map(str, prompt.tokens))
        command = [os.environ.get("ASSAY_BINARY", "assay"), "dump", "-o", str(mine), "--steps", "all"]
        program = [sys.executable, str(CHAT), str(twin / "model.gguf"), "--prompt", words, "--tokens", "1"]
        done = subprocess.run([*command, "--", *program], capture_output=True, text=True, timeout=200)
        if done.returncode:
            raise RuntimeError(f"llama.cpp ended with {done.returncode}: {done.stderr[-500:]}")
        verdict = assay.locate(golden, mine)
        shutil.rmtree(mine)
        return _gate(verdict)

    def _judged(self, golden: Path, mine: Path, logits: Optional[torch.Tensor]) -> Gate:
        """As the gate does, by operators."""
        gate = _gate(assay.locate(golden, mine))
        right = self._golden[golden]
        if logits is not None and logits.shape == right.shape:
            gate.satisfied = {name: satisfied(right, logits) for name, satisfied in CRITERIA.items()}
        shutil.rmtree(mine)
        return gate


def _gate(verdict: assay.Verdict) -> Gate:
    level = verdict.to_dict()["level"] or ""
    return Gate(verdict.outcome, verdict.sentence, level, [one.module for one in verdict.candidates])


def _whole(prompt: prompt_set.Prompt) -> prompt_set.Prompt:
    """All of its tokens at once."""
    return prompt_set.Prompt(prompt.name, prompt.tokens, 0, prompt.first, prompt.padding)


def _ported(port: Port, model: torch.nn.Module, twin: Path) -> torch.nn.Module:
    if port.pair == "reloaded":
        return assay.twin.load(twin, dtype=port.dtype)
    case = lab.Case("llama", 0, dtype=port.dtype, pair=port.pair)
    return lab.ported(case, model, getattr(torch, port.dtype))


def _captured(
    model: torch.nn.Module,
    prompts: list[prompt_set.Prompt],
    folder: Path,
    fault: Optional[contextlib.AbstractContextManager[Any]] = None,
    site: Optional[faults.Site] = None,
    static: bool = False,
    gradients: bool = False,
) -> torch.Tensor:
    """Runs the prompts, captured with operators and weights; the logits of all tokens that are no padding, in fp64."""
    logits = []
    grad = torch.enable_grad() if gradients else torch.no_grad()
    with grad, fault or contextlib.nullcontext(), assay.capture(model, folder, level="operator", weights=True):
        for one in prompts:
            found = drive.run(
                model,
                torch.tensor([one.tokens]),
                one.decoded,
                first=one.first,
                padding=one.padding,
                counted=True,
                static=static and one.padding == 0,
                between=None if site is None else site.between,
            )
            logits.append(found[0, one.padding :].detach().double())
    return torch.cat(logits)


def _run_port(
    port: Port, model: torch.nn.Module, prompts: list[prompt_set.Prompt], folder: Path
) -> Optional[torch.Tensor]:
    if port.pair == "batch":
        (prompt,) = prompts
        others = torch.tensor(prompt.tokens).flip(0)[None].repeat(3, 1)
        tokens = torch.cat([torch.tensor([prompt.tokens]), others])
        captures.capture(model, tokens, folder)
        return None
    if port.pair == "chunked":
        captures.capture_chunks(model, torch.tensor([prompts[0].tokens]), folder)
        return None
    if port.pair == "compiled":
        found = places.of(model)
        captures.capture_compiled(model, torch.tensor([prompts[0].tokens]), folder, found.layer, found.layers)
        return None
    return _captured(model, prompts, folder, static=port.pair == "static", gradients=port.pair == "gradients")


def planted(kind: str, family: str, seed: int, twins: Twins) -> Iterator[tuple[str, int]]:
    """The forms and layers that a kind of fault has in a twin; neither the first layer nor the last."""
    found = faults.KINDS[kind]
    model = twins.model(twins.twin(family, seed))
    for layer in faults.layer_choices(places.of(model).layers):
        if found.target(places.of(model, layer)) is not None:
            for form in found.forms:
                yield form, layer


KINDS = tuple(faults.KINDS)[:28]  # those that limits were set for; program_faults adds the others behind them
assert KINDS[-1] == "positions"
