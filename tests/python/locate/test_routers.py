# SPDX-License-Identifier: Apache-2.0
"""Routers that take several of many experts, and what they decide by."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from bench.faults.families import FAMILIES, build, prompt

import assay

WIDE = ("deepseek_v3_wide", "glm4_moe_wide", "qwen3_moe_wide")  # unsorted in groups, unsorted, sorted
BIASED = ("deepseek_v3_wide", "hy_v3")  # a buffer of the router; one that the router is called with


def model_of(family: str) -> tuple[torch.nn.Module, torch.Tensor]:
    """Routers' biases as training leaves them: far from zero, and near each other."""
    model = build(family, 4)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(30 + 0.1 * torch.rand(buffer.shape, generator=torch.Generator().manual_seed(9)))
    return model, prompt(4, 40, vocabulary=FAMILIES[family].vocabulary)


def narrowed(model: torch.nn.Module, biases: bool) -> torch.nn.Module:
    """In bfloat16; buffers stay as they are, but for the biases of routers where these are narrowed, too."""
    mine = copy.deepcopy(model).to(torch.bfloat16)
    for (name, buffer), (_, original) in zip(mine.named_buffers(), model.named_buffers(), strict=True):
        if not biases or "e_score_correction_bias" not in name:
            buffer.data = original.clone()
    return mine


def capture(model: torch.nn.Module, tokens: torch.Tensor, folder: Path, level: str = "operator") -> Path:
    with torch.no_grad(), assay.capture(model, folder, level=level, weights=True):
        model(input_ids=tokens, use_cache=False)
    return folder


@pytest.mark.parametrize("family", WIDE)
def test_a_router_of_many_experts_agrees_with_itself_and_with_its_copy_in_bfloat16(tmp_path: Path, family: str) -> None:
    # given: topk(sorted=False) leaves what it takes in an order that no reference has
    model, tokens = model_of(family)
    golden = capture(model, tokens, tmp_path / "golden")
    runs = [golden]
    runs += [
        capture(narrowed(model, biases=False), tokens, tmp_path / level, level) for level in ("operator", "module")
    ]
    for run in runs:
        # when
        verdict = assay.locate(golden, run)
        # then
        assert verdict.outcome == "clean", (run.name, verdict.sentence)


@pytest.mark.parametrize("family", WIDE)
def test_weights_that_go_to_other_experts_are_named(tmp_path: Path, family: str) -> None:
    # given a router whose weights are those of its experts, each given to the next one
    model, tokens = model_of(family)
    golden = capture(model, tokens, tmp_path / "golden")
    mine = narrowed(model, biases=False)
    router = mine.model.layers[1].mlp.gate
    forward = router.forward

    def turned(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logits, weights, chosen = forward(*given)
        return logits, weights.roll(1, -1), chosen

    router.forward = turned
    for level in ("operator", "module"):
        # when
        verdict = assay.locate(golden, capture(mine, tokens, tmp_path / level, level))
        # then: as sets they would be the same
        assert verdict.outcome == "first_wrong", (level, verdict.sentence)
        assert verdict.candidates[0].module == "model.layers.1.mlp.gate", (level, verdict.sentence)


@pytest.mark.parametrize("level", ["operator", "module"])
@pytest.mark.parametrize("family", BIASED)
def test_a_bias_that_only_decides_is_judged_by_what_is_chosen(tmp_path: Path, family: str, level: str) -> None:
    # given 30 to 30.1 in bfloat16: one value or two
    model, tokens = model_of(family)
    golden = capture(model, tokens, tmp_path / "golden")
    mine = narrowed(model, biases=True)
    biases = {float(value) for name, one in mine.named_buffers() if "e_score" in name for value in one}
    assert len(biases) <= 2
    # when
    verdict = assay.locate(golden, capture(mine, tokens, tmp_path / "mine", level))
    # then: it was golden's bias, "rounded as mine's type rounds"
    assert verdict.outcome == "first_wrong", verdict.sentence
    assert verdict.candidates[0].module == "model.layers.1.mlp.gate"
    assert "e_score_correction_bias is held in bfloat16, golden's in float32" in verdict.sentence


def test_a_bias_that_decides_the_same_is_none_of_a_fault(tmp_path: Path) -> None:
    # given biases that bfloat16 can hold only roughly, and so far apart that the same experts are taken
    model, tokens = model_of("deepseek_v3_wide")
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(10.01 * torch.arange(len(buffer)))
    golden = capture(model, tokens, tmp_path / "golden")
    # when
    verdict = assay.locate(golden, capture(narrowed(model, biases=True), tokens, tmp_path / "mine"))
    # then
    assert verdict.outcome == "clean", verdict.sentence
