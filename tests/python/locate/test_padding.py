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


# ---- a prompt that only mine pads, as an engine of batches does


def captured_text(model: torch.nn.Module, folder: Path, level: str, padding: int, counted: bool = True) -> Path:
    """The same prompt and two more tokens, behind so many of padding.

    counted   the positions are those of the text, else those of the rows
    """
    text = torch.randint(1, 96, (2, SHOWN + 2), generator=torch.Generator().manual_seed(2))
    tokens = torch.cat([torch.zeros(2, padding, dtype=text.dtype), text], 1)
    mask = (torch.arange(tokens.shape[1]) >= padding).long().expand_as(tokens)
    positions = (mask.cumsum(-1) - 1).clamp(min=0) if counted else torch.arange(tokens.shape[1]).expand_as(tokens)
    cache = None
    with torch.no_grad(), assay.capture(model, folder, level=level, weights=True):
        for first, last in ((0, -2), (-2, -1), (-1, None)):
            given = {"attention_mask": mask[:, : tokens.shape[1] if last is None else last]} if padding else {}
            cache = model(
                tokens[:, first:last],
                **given,
                position_ids=positions[:, first:last],
                past_key_values=cache,
                use_cache=True,
            ).past_key_values
    return folder


@pytest.mark.parametrize("level", ["module", "operator"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_prompt_that_only_mine_pads_is_judged_by_its_text(models, tmp_path, level, attention):
    golden = captured_text(models["sdpa"], tmp_path / "golden", "operator", padding=0)
    mine = copy.deepcopy(models[attention]).to(torch.bfloat16)
    verdict = assay.locate(golden, captured_text(mine, tmp_path / "mine", level, padding=HIDDEN))
    assert verdict.outcome == "clean", verdict


@pytest.mark.parametrize("level", ["module", "operator"])
def test_a_prompt_that_mine_pads_and_counts_from_the_padding_is_not_accused(models, tmp_path, level):
    golden = captured_text(models["sdpa"], tmp_path / "golden", "operator", padding=0)
    mine = captured_text(models["sdpa"], tmp_path / "mine", level, padding=HIDDEN, counted=False)
    assert assay.locate(golden, mine).outcome != "first_wrong"


@pytest.mark.parametrize("level", ["module", "operator"])
def test_a_fault_behind_padding_of_mine_alone_is_named(models, tmp_path, level):
    golden = captured_text(models["sdpa"], tmp_path / "golden", "operator", padding=0)
    model = copy.deepcopy(models["sdpa"])
    model.model.layers[1].mlp.register_forward_hook(lambda _, __, result: 1.1 * result)
    verdict = assay.locate(golden, captured_text(model, tmp_path / "mine", level, padding=HIDDEN))
    assert verdict.outcome == "first_wrong", verdict
    assert verdict.first_bad.module.startswith("model.layers.1.mlp")


@pytest.mark.parametrize("level", ["module", "operator"])
def test_a_mask_that_shows_padding_of_mine_alone_is_not_clean(models, tmp_path, level):
    golden = captured_text(models["eager"], tmp_path / "golden", "operator", padding=0)
    model = copy.deepcopy(models["eager"])

    def unmasked(module, args, kwargs):
        if kwargs["attention_mask"].shape[-2] == 1:  # of a token that is decoded, which may see all but the padding
            kwargs["attention_mask"] = torch.zeros_like(kwargs["attention_mask"])
        return args, kwargs

    model.model.layers[1].self_attn.register_forward_pre_hook(unmasked, with_kwargs=True)
    verdict = assay.locate(golden, captured_text(model, tmp_path / "mine", level, padding=HIDDEN))
    assert verdict.outcome != "clean", verdict


def test_a_weight_behind_padding_of_mine_alone_is_named_as_a_weight(models, tmp_path):
    golden = captured_text(models["sdpa"], tmp_path / "golden", "operator", padding=0)
    model = copy.deepcopy(models["sdpa"])
    with torch.no_grad():
        model.model.layers[1].post_attention_layernorm.weight *= 1.1
    verdict = assay.locate(golden, captured_text(model, tmp_path / "mine", "module", padding=HIDDEN))
    assert "weight differs from golden by a constant factor 1.1" in verdict.sentence
    assert len(verdict.candidates) == 1
