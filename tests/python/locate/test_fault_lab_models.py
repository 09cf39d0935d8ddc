# SPDX-License-Identifier: Apache-2.0
"""What the models of the fault laboratory are like: found places, and weights that resemble trained ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from bench.faults import families

from assay.twin import drive

FAMILIES = ["llama", "qwen3", "mixtral", "deepseek_v2", "mamba2", "bert"]


def residuals(model: torch.nn.Module, name: str, ids: torch.Tensor) -> list[torch.Tensor]:
    """What the layers return: [positions, width] each."""
    places = families.places_of(name)
    seen: list[torch.Tensor] = []
    hooks = [
        model.get_submodule(places.layer.format(number)).register_forward_hook(
            lambda _, __, result: seen.append((result[0] if isinstance(result, tuple) else result).flatten(0, -2))
        )
        for number in range(places.layers)
    ]
    with torch.no_grad():
        model(input_ids=ids)
    for hook in hooks:
        hook.remove()
    return seen


def prompt(name: str) -> torch.Tensor:
    ids = families.prompt(3, 24, vocabulary=families.FAMILIES[name].vocabulary)
    ids[0, 0] = families.FIRST_TOKEN
    return ids


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shaped_models_have_outlier_channels_and_stay_finite(name: str, dtype: torch.dtype) -> None:
    model = families.build(name, 3, shaped=True).to(dtype)
    ids = prompt(name)
    with torch.no_grad():
        logits = model(input_ids=ids)[0].float()
    assert logits.isfinite().all()
    assert 0.05 < float(logits.std()) < 20
    ratios = []
    for hidden in residuals(model, name, ids):
        channels = hidden.float().pow(2).mean(0).sqrt()
        ratios.append(float(channels.max() / channels.median()))
    # Norms behind the sum, as BERT has them, take from it.
    assert max(ratios) > (5 if name == "bert" else 10)
    assert max(ratios) < 150


def test_the_first_position_draws_attention_and_gains_are_spread() -> None:
    ids = prompt("llama")
    shares = {}
    for shaped in (False, True):
        model = families.build("llama", 3, "eager", shaped=shaped)
        with torch.no_grad():
            attentions = model(input_ids=ids, output_attentions=True).attentions
        shares[shaped] = min(float(one[0, :, 8:, 0].mean()) for one in attentions)
    assert shares[False] < 0.15 < 0.3 < shares[True] < 0.9
    gains = model.get_submodule("model.norm").weight.detach()
    assert float(gains.min()) > 0 and float(gains.log().std()) > 0.4


def test_rows_of_a_shaped_router_are_nearly_parallel() -> None:
    def cosine(shaped: bool) -> float:
        weight = families.build("mixtral", 3, shaped=shaped).get_submodule("model.layers.1.mlp.gate").weight
        rows = torch.nn.functional.normalize(weight.detach(), dim=1)
        return float((rows @ rows.t()).min())

    assert cosine(False) < 0.5 < 0.9 < cosine(True)


def test_shapes_are_the_same_for_the_same_seed() -> None:
    one, same, other = (families.build("qwen3", seed, shaped=True).state_dict() for seed in (3, 3, 6))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["model.norm.weight"], other["model.norm.weight"])


def test_heads_of_shaped_models_have_odd_ratios() -> None:
    found = {
        (config.num_attention_heads, config.num_key_value_heads)
        for config in (families.build("qwen3", seed, shaped=True).config for seed in range(3))
    }
    assert found == {(6, 2), (7, 1), (4, 2)}


@pytest.mark.parametrize("static", [False, True])
def test_steps_through_a_cache_compute_what_one_pass_does(static: bool) -> None:
    # In fp64 nothing but the order of sums differs.
    model = families.build("qwen3", 3, shaped=True).double()
    ids = prompt("qwen3")
    with torch.no_grad():
        whole = drive.run(model, ids, first=families.FAR)
        steps = drive.run(model, ids, 5, first=families.FAR, static=static)
    assert steps.shape == whole.shape
    assert float((steps - whole).norm() / whole.norm()) < 1e-4  # norms compute in fp32


def test_places_are_found_in_models_of_other_making() -> None:
    gpt2 = families.places_of("gpt2")
    assert (gpt2.layer, gpt2.attention, gpt2.mlp, gpt2.activation) == ("transformer.h.{}", "attn", "mlp", "mlp.act")
    assert gpt2.biased == gpt2.linears == ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    moe = families.places_of("qwen2_moe")
    assert (moe.router, moe.mlp, moe.rotary, moe.head) == ("mlp.gate", "mlp", "model.rotary_emb", "lm_head")
    assert families.places_of("mamba2").attention == "mixer"
    assert len(families.FAMILIES) >= 30
