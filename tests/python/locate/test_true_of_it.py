# SPDX-License-Identifier: Apache-2.0
"""What a sentence says besides a place is true: a cause that golden's program was run with, and how small an error
could have been seen before it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import pytest
import torch
from bench.faults import families
from torch.nn.functional import scaled_dot_product_attention

import assay

LEVELS = ["operator", "module"]
TOKENS = families.prompt(3, 24, vocabulary=256)


def captured(model: torch.nn.Module, folder: Path, level: str = "operator", **given: Any) -> Path:
    with torch.no_grad(), assay.capture(model, folder, level=level, weights=True):
        model(**(given or {"input_ids": TOKENS, "use_cache": False}))
    return folder


# ---- another shape is the cause where there are more or fewer values, not where they come in other pieces

WRONG_EXPERTS = {
    "given": lambda forward, hidden, chosen, weights: forward(1.1 * hidden, chosen, weights),
    "returned": lambda forward, hidden, chosen, weights: 1.1 * forward(hidden, chosen, weights),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("wrong", WRONG_EXPERTS)
def test_a_loop_over_experts_is_not_blamed_for_a_fault_around_it(tmp_path: Path, wrong: str, level: str) -> None:
    # given golden with all experts in one product, and mine that calls its activation once for each
    model = families.build("qwen3_moe", 3)
    golden = captured(model, tmp_path / "golden")
    mine = families.narrowed(model, torch.bfloat16)
    mine.set_experts_implementation("eager")
    experts = mine.get_submodule("model.layers.1.mlp.experts")
    forward = experts.forward
    experts.forward = lambda *given: WRONG_EXPERTS[wrong](forward, *given)
    # when
    verdict = assay.locate(golden, captured(mine, tmp_path / "mine", level))
    # then
    assert verdict.outcome == "first_wrong" and "has shape" not in verdict.sentence, verdict.sentence
    assert verdict.candidates[0].module == "model.layers.1.mlp.experts", verdict.sentence


def test_an_expert_fewer_is_said_by_its_shape(tmp_path: Path) -> None:
    # given a router that chooses one expert where golden's chooses two
    model = families.build("qwen3_moe", 3)
    golden = captured(model, tmp_path / "golden")
    mine = families.narrowed(model, torch.float32)
    router = mine.get_submodule("model.layers.1.mlp.gate")
    taken, router.top_k = router.top_k, router.top_k - 1
    # when
    verdict = assay.locate(golden, captured(mine, tmp_path / "mine", "module"))
    # then
    assert f"has shape [24, {taken - 1}] against golden's [24, {taken}]" in verdict.sentence, verdict.sentence


# ---- an argument is the cause where golden's program with it makes what mine made

WIDTH, HEADS = 64, 4


class Attention(torch.nn.Module):
    """Causal attention, by an argument or by a mask."""

    def __init__(self, masked: bool, turned: int) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.masked, self.turned = masked, turned
        self.causal = not masked

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).view(1, -1, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mask: Optional[torch.Tensor] = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        made = scaled_dot_product_attention(q, k, v, mask if self.masked else None, is_causal=self.causal)
        return self.out(made.roll(self.turned, 1).transpose(1, 2).flatten(2))


class Model(torch.nn.Module):
    def __init__(self, masked: bool = False, turned: int = 0) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.layers = torch.nn.ModuleList(Attention(masked and i == 1, turned if i == 1 else 0) for i in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


X = torch.randn(1, 20, WIDTH, generator=torch.Generator().manual_seed(5))


def test_an_argument_that_a_mask_replaces_is_not_the_cause(tmp_path: Path) -> None:
    # given attention that is causal by a mask and not by an argument, and whose heads stand in another order
    golden = captured(Model(), tmp_path / "golden", x=X)
    # when
    verdict = assay.locate(golden, captured(Model(masked=True, turned=1), tmp_path / "mine", x=X))
    # then
    assert verdict.candidates[0].module == "layers.1", verdict.sentence
    assert "is_causal" not in verdict.sentence, verdict.sentence


def test_an_argument_that_makes_the_error_is_the_cause(tmp_path: Path) -> None:
    golden = captured(Model(), tmp_path / "golden", x=X)
    mine = Model()
    mine.get_submodule("layers.1").causal = False
    # when
    verdict = assay.locate(golden, captured(mine, tmp_path / "mine", x=X))
    # then
    assert verdict.candidates[0].module == "layers.1", verdict.sentence
    assert "is_causal" in verdict.sentence, verdict.sentence


# ---- what is said of all before it has a power


def times(factor: float) -> Callable[[Any, Any, torch.Tensor], torch.Tensor]:
    return lambda _, __, result: result * factor


def test_what_is_said_of_all_before_it_is_what_would_have_been_seen(tmp_path: Path) -> None:
    model = families.build("llama", 3)
    golden = captured(model, tmp_path / "golden")

    def judged(name: str, queries: float) -> assay.Verdict:
        """Of 8 % in the values of a layer, and so much in its queries."""
        mine = families.narrowed(model, torch.bfloat16)
        attention = mine.get_submodule("model.layers.1.self_attn")
        attention.get_submodule("q_proj").register_forward_hook(times(1 + queries))
        attention.get_submodule("v_proj").register_forward_hook(times(1.08))
        return assay.locate(golden, captured(mine, tmp_path / name, "module"))

    # given an error in front that rounding hides; when the other one is named
    hidden = judged("hidden", 0.003)
    assert hidden.candidates[0].module == "model.layers.1.self_attn.v_proj"
    # then the sentence says how large it would have to be
    said = re.search(r"nothing before it is wrong \(errors above ([0-9.]+) % of a value would", hidden.sentence)
    assert said and 0.003 < float(said[1]) / 100 < 0.03, hidden.sentence
    # and where it is as large it does not say so
    seen = judged("seen", 2 * float(said[1]) / 100)
    assert any(one.module.endswith("self_attn.q_proj") for one in seen.candidates)
    assert "nothing before it is wrong" not in seen.sentence
    assert "1 place before it differs, too, with less effect" in seen.sentence or "q_proj" in seen.sentence
