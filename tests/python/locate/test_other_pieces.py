# SPDX-License-Identifier: Apache-2.0
"""Programs that compute the golden function in other pieces: literally other values inside, and no fault.

Each healthy pair has a twin with a fault in the same place, which must be named.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import pytest
import torch
from bench.faults import captures

import assay

WIDTH = 64
LEVELS = ["O", "L", "M"]


class Lora(torch.nn.Module):
    """A linear layer with an adapter beside it, with the names that PEFT gives its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.base_layer = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.lora_A = torch.nn.ModuleDict({"default": torch.nn.Linear(WIDTH, 4, bias=False)})
        self.lora_B = torch.nn.ModuleDict({"default": torch.nn.Linear(4, WIDTH, bias=False)})
        self.merged = False

    def merge(self, scale: float = 1.0) -> None:
        with torch.no_grad():
            self.base_layer.weight += scale * self.lora_B["default"].weight @ self.lora_A["default"].weight
        self.merged = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.base_layer(x)
        if not self.merged:
            result = result + self.lora_B["default"](self.lora_A["default"](x))
        return result


class Norm(torch.nn.Module):
    """Alone as Hugging Face has it, or, as engines do, with the residual added in the same call."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(1 + 0.1 * torch.randn(WIDTH))

    def forward(self, x: torch.Tensor, residual: Optional[torch.Tensor] = None) -> Any:
        if residual is not None:
            x = x + residual
        wide = x.float()
        normed = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight
        return normed if residual is None else (normed, x)


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = Norm()
        self.q_proj = Lora()
        self.o_proj = torch.nn.Linear(WIDTH, WIDTH, bias=False)

    def branch(self, normed: torch.Tensor) -> torch.Tensor:
        return self.o_proj(torch.nn.functional.silu(self.q_proj(normed)))


class Model(torch.nn.Module):
    """Three residual layers. `fused` hands the residual to the norm."""

    def __init__(self, fused: bool = False) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.fused = fused
        self.embed_tokens = torch.nn.Embedding(48, WIDTH)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(3))
        self.norm = Norm()
        self.head = torch.nn.Linear(WIDTH, 48, bias=False)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.embed_tokens(input_ids)
        if not self.fused:
            for layer in self.layers:
                x = x + layer.branch(layer.norm(x))
            return self.head(self.norm(x))
        residual = torch.zeros_like(x)
        for layer in self.layers:
            normed, residual = layer.norm(x, residual)
            x = layer.branch(normed)
        return self.head(self.norm(x, residual)[0])


IDS = torch.randint(0, 48, (1, 12), generator=torch.Generator().manual_seed(6))


def capture(model: torch.nn.Module, path: Path) -> Path:
    with torch.no_grad(), assay.capture(model.eval(), path, level="operator", weights=True):
        model(IDS)
    return path


def judged(golden: Path, mine: Path, level: str, tmp_path: Path) -> assay.Verdict:
    return assay.locate(str(golden), str(captures.thinned(mine, level, tmp_path / f"thin{level}", "layers.")))


def with_merged(model: Model, *scales: float) -> Model:
    for layer, scale in zip(model.layers, scales, strict=True):
        layer.q_proj.merge(scale)
    return model


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("golden_is_merged", [False, True])
def test_an_adapter_merged_into_the_weight_beside_it(tmp_path: Path, level: str, golden_is_merged: bool) -> None:
    merged, apart = with_merged(Model(), 1, 1, 1), Model()
    golden, mine = (merged, apart) if golden_is_merged else (apart, merged)
    golden_run = capture(golden, tmp_path / "golden")
    verdict = judged(golden_run, capture(mine.bfloat16(), tmp_path / "mine"), level, tmp_path)
    assert verdict.outcome == "clean", str(verdict)
    assert "weights are golden's, the others are written otherwise" in " ".join(str(verdict).split())


@pytest.mark.parametrize("level", LEVELS)
def test_an_adapter_merged_with_another_scale_is_wrong(tmp_path: Path, level: str) -> None:
    golden = capture(Model(), tmp_path / "golden")
    mine = capture(with_merged(Model(), 1, 2, 1).bfloat16(), tmp_path / "mine")
    verdict = judged(golden, mine, level, tmp_path)
    assert verdict.outcome == "first_wrong", str(verdict)
    assert verdict.candidates[0].module.startswith("layers.1.q_proj"), str(verdict)


@pytest.mark.parametrize("level", LEVELS)
def test_a_norm_that_takes_the_residual(tmp_path: Path, level: str) -> None:
    golden = capture(Model(), tmp_path / "golden")
    verdict = judged(golden, capture(Model(fused=True).bfloat16(), tmp_path / "mine"), level, tmp_path)
    assert verdict.outcome == "clean", str(verdict)


@pytest.mark.parametrize("level", LEVELS)
def test_a_norm_that_takes_the_residual_and_forgets_it_once(tmp_path: Path, level: str) -> None:
    golden = capture(Model(), tmp_path / "golden")
    broken = Model(fused=True).bfloat16()
    broken.layers[1].norm.register_forward_hook(lambda _module, _inputs, output: (output[0], output[1] * 0.5))
    verdict = judged(golden, capture(broken, tmp_path / "mine"), level, tmp_path)
    assert verdict.outcome == "first_wrong", str(verdict)


def padded(model: Model, rows: int = 16) -> Model:
    """The vocabulary filled up to a round number of rows, as engines do it."""
    model.embed_tokens.weight = torch.nn.Parameter(torch.cat([model.embed_tokens.weight, torch.zeros(rows, WIDTH)]))
    model.head.weight = torch.nn.Parameter(torch.cat([model.head.weight, torch.zeros(rows, WIDTH)]))
    return model


@pytest.mark.parametrize("level", LEVELS)
def test_a_vocabulary_with_more_rows(tmp_path: Path, level: str) -> None:
    golden = capture(Model(), tmp_path / "golden")
    verdict = judged(golden, capture(padded(Model()).bfloat16(), tmp_path / "mine"), level, tmp_path)
    assert verdict.outcome == "clean", str(verdict)
    assert "golden's rows and more behind them (padding): embed_tokens.weight, head.weight" in " ".join(verdict.notes)


@pytest.mark.parametrize("level", LEVELS)
def test_a_vocabulary_with_rows_in_front(tmp_path: Path, level: str) -> None:
    golden = capture(Model(), tmp_path / "golden")
    moved = padded(Model())
    moved.head.weight = torch.nn.Parameter(moved.head.weight.roll(16, 0))
    verdict = judged(golden, capture(moved.bfloat16(), tmp_path / "mine"), level, tmp_path)
    assert verdict.outcome == "first_wrong", str(verdict)
    assert verdict.candidates[0].module == "head", str(verdict)


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("level", ["O", "L"])
def test_a_dry_run_before_the_prompt(tmp_path: Path, level: str, wrong: bool) -> None:
    """Engines run once on placeholders; steps are paired by their tokens."""
    golden = capture(Model(), tmp_path / "golden")
    model = Model().bfloat16().eval()
    if wrong:
        model.layers[1].o_proj.register_forward_hook(lambda _module, _inputs, output: output * 1.05)
    with torch.no_grad(), assay.capture(model, tmp_path / "mine", steps=[0, 1], level="operator", weights=True):
        model(torch.zeros(1, 12, dtype=torch.long))
        model(IDS)
    verdict = judged(golden, tmp_path / "mine", level, tmp_path)
    assert verdict.outcome == ("first_wrong" if wrong else "clean"), str(verdict)
    if wrong:
        assert verdict.candidates[0].module == "layers.1.o_proj", str(verdict)
