# SPDX-License-Identifier: Apache-2.0
"""Faults of experts whose tokens are sorted on the way: by golden's function of what the module was given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from bench.faults.families import build, narrowed, prompt

import assay

FAMILIES = ("mixtral", "qwen3_moe", "olmoe")
LEVELS = ("operator", "module")


def capture(model: torch.nn.Module, tokens: torch.Tensor, folder: Path, level: str = "operator") -> Path:
    with torch.no_grad(), assay.capture(model, folder, level=level, weights=True):
        model(input_ids=tokens, use_cache=False)
    return folder


def experts_of(model: Any) -> Any:
    """Those of the layer in the middle."""
    return model.model.layers[1].mlp.experts


def with_weights(experts: Any, factor: float) -> None:
    """What the router gives each expert is multiplied on the way into it."""
    forward = experts.forward
    experts.forward = lambda hidden, chosen, weights: forward(hidden, chosen, weights * factor)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_half_of_what_a_router_gives_is_named(tmp_path: Path, family: str, dtype: torch.dtype, level: str) -> None:
    # given experts that get half of their weights, which no module of their own shows
    model, tokens = build(family, 3), prompt(3, 24, vocabulary=256)
    golden = capture(model, tokens, tmp_path / "golden")
    mine = narrowed(model, dtype)
    with_weights(experts_of(mine), 0.5)
    # when
    verdict = assay.locate(golden, capture(mine, tokens, tmp_path / "mine", level))
    # then: it was `clean` once, and `cannot judge` after that
    assert verdict.outcome == "first_wrong", verdict
    assert verdict.candidates[0].module == "model.layers.1.mlp.experts"
    assert "a constant factor 0." in verdict.sentence


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_wrong_expert_that_no_token_chose_is_a_fact(tmp_path: Path, dtype: torch.dtype, level: str) -> None:
    # given two tokens, which leave an expert without any, and that expert's matrix with a factor
    model, tokens = build("qwen3_moe", 3), prompt(3, 2, vocabulary=256)
    chosen: set[int] = set()
    hook = experts_of(model).register_forward_pre_hook(lambda _, given: chosen.update(given[1].flatten().tolist()))
    golden = capture(model, tokens, tmp_path / "golden")
    hook.remove()
    mine = narrowed(model, dtype)
    idle = next(i for i in range(len(experts_of(mine).gate_up_proj)) if i not in chosen)
    with torch.no_grad():
        experts_of(mine).gate_up_proj[idle] *= 1.5
    # when
    verdict = assay.locate(golden, capture(mine, tokens, tmp_path / "mine", level))
    # then nothing that was computed is wrong, and the weight is not golden's
    assert verdict.outcome == "first_wrong", verdict
    assert verdict.candidates[0].module == "model.layers.1.mlp.experts"
    assert "differs" in verdict.sentence
