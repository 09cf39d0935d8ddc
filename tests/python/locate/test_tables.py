# SPDX-License-Identifier: Apache-2.0
"""Tables that are made of a configuration: any way to compute them is right, another configuration is not."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from bench.faults.families import FAMILIES, build, prompt

import assay


def capture(model: torch.nn.Module, tokens: torch.Tensor, folder: Path, level: str = "operator") -> Path:
    with torch.no_grad(), assay.capture(model, folder, level=level, weights=True):
        model(input_ids=tokens, use_cache=False)
    return folder


def with_frequencies(model: Any, base: float) -> None:
    """As several engines make them: exp(-log(base) * i / d), all of it in float32."""
    frequencies = model.model.rotary_emb.inv_freq
    places = torch.arange(0, 2 * frequencies.numel(), 2).float()
    frequencies.data = torch.exp(places * (-math.log(base) / (2 * frequencies.numel())))


def with_exact_tables(model: Any) -> None:
    """Cosines and sines in fp64, rounded once."""
    rotary = model.model.rotary_emb

    def forward(x: torch.Tensor, position_ids: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        angles = position_ids[..., None].double() * rotary.inv_freq.double()
        both = torch.cat([angles, angles], -1)
        return both.cos().to(x.dtype), both.sin().to(x.dtype)

    rotary.forward = forward


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["llama", "phi3"])
def test_tables_may_be_computed_in_another_way(tmp_path: Path, family: str, dtype: torch.dtype) -> None:
    # given frequencies three ULP from golden's, and far positions, which multiply that
    model, tokens = build(family, 3), prompt(3, 200, vocabulary=FAMILIES[family].vocabulary)
    golden = capture(model, tokens, tmp_path / "golden")
    for name, change in (("tables", with_exact_tables), ("frequencies", lambda mine: with_frequencies(mine, 10_000))):
        mine = copy.deepcopy(model).to(dtype)
        mine.model.rotary_emb.inv_freq.data = model.model.rotary_emb.inv_freq.clone()
        change(mine)
        for level in ("operator", "module"):
            # when
            verdict = assay.locate(golden, capture(mine, tokens, tmp_path / f"{name}-{level}", level))
            # then
            assert verdict.outcome == "clean", (name, level, verdict.sentence)


@pytest.mark.parametrize("level", ["operator", "module"])
def test_frequencies_of_another_base_are_a_fault(tmp_path: Path, level: str) -> None:
    model, tokens = build("llama", 3), prompt(3, 48, vocabulary=256)
    golden = capture(model, tokens, tmp_path / "golden")
    mine = copy.deepcopy(model)
    with_frequencies(mine, 10_001)
    verdict = assay.locate(golden, capture(mine, tokens, tmp_path / "mine", level))
    assert verdict.outcome == "first_wrong", verdict.sentence
    assert verdict.candidates[0].module == "model.rotary_emb"


@pytest.mark.parametrize("base", [10_000, 10_010])
def test_stored_sines_of_positions_may_be_computed_in_another_way(tmp_path: Path, base: int) -> None:
    # given [positions, sines then cosines], which every layer has, made in fp64
    model, tokens = build("codegen", 3), prompt(3, 48, vocabulary=FAMILIES["codegen"].vocabulary)
    golden = capture(model, tokens, tmp_path / "golden")
    mine: Any = copy.deepcopy(model)
    for block in mine.transformer.h:
        positions, columns = block.attn.embed_positions.shape
        frequencies = base ** (-torch.arange(0, columns, 2, dtype=torch.float64) / columns)
        angles = torch.outer(torch.arange(positions, dtype=torch.float64), frequencies)
        block.attn.embed_positions.data = torch.cat([angles.sin(), angles.cos()], 1).float()
    # when
    verdict = assay.locate(golden, capture(mine, tokens, tmp_path / "mine"))
    # then: another base is a fault all the same
    assert verdict.outcome == ("clean" if base == 10_000 else "first_wrong"), verdict.sentence
