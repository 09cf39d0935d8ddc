# SPDX-License-Identifier: Apache-2.0
"""Padding: kernels choose what they compute at tokens that the mask hides, and nobody is accused of that."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import assay

HIDDEN, SHOWN = 5, 10


@pytest.fixture(scope="module")
def models() -> dict[str, torch.nn.Module]:
    torch.manual_seed(4)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=96, attn_implementation="sdpa")
    model = LlamaForCausalLM(config).eval()
    eager = LlamaForCausalLM(copy.deepcopy(config)).eval()
    eager.load_state_dict(model.state_dict())
    eager.set_attn_implementation("eager")
    return {"sdpa": model, "eager": eager}


def captured(model: torch.nn.Module, folder: Path, level: str) -> Path:
    """A prompt with padding to the left, and one more token."""
    tokens = torch.randint(1, 96, (1, HIDDEN + SHOWN + 1), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(tokens)
    mask[:, :HIDDEN] = 0
    with torch.no_grad(), assay.capture(model, folder, level=level, weights=True):
        first = model(tokens[:, :-1], attention_mask=mask[:, :-1], use_cache=True)
        model(tokens[:, -1:], attention_mask=mask, past_key_values=first.past_key_values)
    return folder


@pytest.fixture(scope="module")
def golden(models, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("golden")
    return {name: captured(model, folder / name, "operator") for name, model in models.items()}


@pytest.mark.parametrize("level", ["module", "operator"])
@pytest.mark.parametrize(("right", "other"), [("sdpa", "eager"), ("eager", "sdpa")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_another_attention_is_clean(models, golden, tmp_path, level, right, other, dtype):
    mine = captured(copy.deepcopy(models[other]).to(dtype), tmp_path / "mine", level)
    # Given outputs that differ at the padding by far more than rounding
    place = {"node": "model.layers.0.self_attn.o_proj", "step": 0, "role": "output"}
    both = [assay.open(run).records.select(**place)[0].torch().float() for run in (golden[right], mine)]
    assert (both[0] - both[1])[:, :HIDDEN].norm() > 0.1 * both[0][:, :HIDDEN].norm()
    assert (both[0] - both[1])[:, HIDDEN:].norm() < 0.02 * both[0][:, HIDDEN:].norm()
    verdict = assay.locate(golden[right], mine)
    assert verdict.outcome == "clean", verdict


@pytest.mark.parametrize("level", ["module", "operator"])
def test_a_fault_at_one_shown_token_is_named(models, golden, tmp_path, level):
    model = copy.deepcopy(models["eager"])

    def wrong(module, args, result):
        result = result.clone()
        result[:, HIDDEN:, 7] *= 1.1
        return result

    model.model.layers[1].self_attn.o_proj.register_forward_hook(wrong)
    verdict = assay.locate(golden["sdpa"], captured(model, tmp_path / "mine", level))
    assert verdict.outcome == "first_wrong", verdict
    assert verdict.first_bad.module.startswith("model.layers.1.self_attn")


@pytest.mark.parametrize("level", ["module", "operator"])
def test_a_mask_that_shows_the_padding_is_named(models, golden, tmp_path, level):
    """The hidden tokens themselves do not count; that others look at them does."""
    model = copy.deepcopy(models["eager"])

    def unmasked(module, args, kwargs):
        kwargs["attention_mask"] = kwargs["attention_mask"].clone()
        kwargs["attention_mask"][..., HIDDEN + 3, HIDDEN - 1] = 0  # in a float mask: seen
        return args, kwargs

    handle = model.model.layers[1].self_attn.register_forward_pre_hook(unmasked, with_kwargs=True)
    try:
        verdict = assay.locate(golden["eager"], captured_prompt(model, tmp_path / "mine", level))
    finally:
        handle.remove()
    assert verdict.outcome == "first_wrong", verdict
    assert verdict.first_bad.module.startswith("model.layers.1.self_attn")


def captured_prompt(model: torch.nn.Module, folder: Path, level: str) -> Path:
    """The prompt alone: the hook knows its shape."""
    tokens = torch.randint(1, 96, (1, HIDDEN + SHOWN + 1), generator=torch.Generator().manual_seed(1))[:, :-1]
    mask = torch.ones_like(tokens)
    mask[:, :HIDDEN] = 0
    with torch.no_grad(), assay.capture(model, folder, level=level, weights=True):
        model(tokens, attention_mask=mask, use_cache=True)
    return folder


class Inverted(torch.nn.Module):
    """A model whose mask is 1 where a token is hidden, as nn.MultiheadAttention has it."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.inner = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """[batch, tokens] each, to [batch, tokens, vocabulary]."""
        return self.inner(input_ids, attention_mask=1 - attention_mask).logits


@pytest.mark.parametrize("level", ["module", "operator"])
def test_a_mask_that_shows_where_it_is_0_excuses_no_fault(models, tmp_path, level):
    """Given a fault at shown tokens only, where a reader of the other convention would not look."""
    tokens = torch.randint(1, 96, (1, HIDDEN + SHOWN), generator=torch.Generator().manual_seed(1))
    tokens[:, SHOWN:] = 0
    mask = torch.zeros_like(tokens)
    mask[:, SHOWN:] = 1

    def captured_run(folder: Path, level: str) -> Path:
        with torch.no_grad(), assay.capture(model, folder, level=level, weights=True):
            model(input_ids=tokens, attention_mask=mask)
        return folder

    def wrong(module, args, result):
        result = result.clone()
        result[:, :SHOWN, 7] *= 1.1
        return result

    model = Inverted(copy.deepcopy(models["eager"]))
    golden = captured_run(tmp_path / "golden", "operator")
    model.inner.model.layers[1].self_attn.o_proj.register_forward_hook(wrong)

    verdict = assay.locate(golden, captured_run(tmp_path / "mine", level))

    assert verdict.outcome != "clean", verdict
