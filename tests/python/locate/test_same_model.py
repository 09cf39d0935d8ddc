# SPDX-License-Identifier: Apache-2.0
"""Runs of two models, or of one under other conditions, have no first wrong operator: one line says what differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest
import torch
import transformers

import assay

PROMPT = torch.arange(3, 27).reshape(1, -1)
BF16 = torch.bfloat16


def llama(seed: int = 0, **changes: Any) -> torch.nn.Module:
    """Three layers of width 64 with random weights, in evaluation mode."""
    settings = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 128,
        "max_position_embeddings": 64,
    }
    torch.manual_seed(seed)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**settings, **changes})).eval()


def fewer_tokens() -> torch.nn.Module:
    """The same weights, of the first 100 tokens only."""
    model = llama()
    model.resize_token_embeddings(100)
    return model.to(BF16)


def gpt2() -> torch.nn.Module:
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=64, n_layer=3, n_head=4, vocab_size=128)).eval()


def capture(folder: Path, model: torch.nn.Module, level: str) -> Path:
    torch.manual_seed(1)  # of dropout
    with torch.no_grad(), assay.capture(model, folder, level=level, weights=True):
        model(PROMPT, use_cache=False)
    return folder


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """float32, every operator."""
    return capture(tmp_path_factory.mktemp("golden") / "run", llama(), "operator")


def changed(change: Callable[[torch.nn.Module], None]) -> torch.nn.Module:
    model = llama()
    with torch.no_grad():
        change(model)
    return model.to(BF16)


def matrices(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [weight for weight in model.parameters() if weight.ndim == 2]


def other_scale(model: torch.nn.Module) -> None:
    for weight in matrices(model):
        weight.mul_(2)


def transposed(model: torch.nn.Module) -> None:
    for weight in matrices(model):
        weight.copy_(weight.reshape(-1).roll(1).reshape(weight.shape))


def exchanged_layers(model: torch.nn.Module) -> None:
    layers = model.model.layers
    first = {name: weight.clone() for name, weight in layers[0].state_dict().items()}
    for i in range(len(layers)):
        layers[i].load_state_dict(layers[i + 1].state_dict() if i + 1 < len(layers) else first)


OTHERS = {
    "layers": (lambda: llama(num_hidden_layers=2).to(BF16), "has 2 modules in model.layers, golden 3"),
    "width": (
        lambda: llama(hidden_size=128).to(BF16),
        "is of another size: lm_head.weight is [128, 128], golden's [128, 64]",
    ),
    "vocabulary": (
        fewer_tokens,
        "has another vocabulary, or fewer positions: model.embed_tokens.weight is [100, 64], golden's [128, 64]",
    ),
    "checkpoint": (lambda: llama(seed=1).to(BF16), "has another checkpoint: 23 of 32 weights are not golden's"),
    "architecture": (lambda: gpt2().to(BF16), "of another model (GPT2LMHeadModel, golden's is LlamaForCausalLM)"),
    "dropout": (lambda: llama(attention_dropout=0.1).to(BF16).train(), "drops values at random"),
}


@pytest.mark.parametrize("level", ["operator", "module"])
@pytest.mark.parametrize("what", OTHERS)
def test_what_differs_is_one_line_and_no_fault(golden: Path, tmp_path: Path, what: str, level: str) -> None:
    make, words = OTHERS[what]
    verdict = assay.locate(golden, capture(tmp_path / "mine", make(), level))
    assert verdict.outcome == "cannot_judge"
    assert words in verdict.sentence
    assert verdict.candidates == []


@pytest.mark.parametrize("level", ["operator", "module"])
def test_exchanged_sides_are_named_with_the_right_command(golden: Path, tmp_path: Path, level: str) -> None:
    narrow = capture(tmp_path / "narrow", llama().to(BF16), level)
    verdict = assay.locate(narrow, golden)
    assert verdict.outcome == "cannot_judge"
    assert "rounded to bfloat16: the two look exchanged" in verdict.sentence
    assert verdict.next == f"assay locate {golden} {narrow}"
    assert assay.locate(golden, narrow).outcome == "clean"


def test_a_wider_run_of_weights_that_golden_holds_exactly_is_judged(tmp_path: Path) -> None:
    stored = llama().to(BF16)
    golden = capture(tmp_path / "golden", stored, "operator")
    wide = capture(tmp_path / "mine", stored.float(), "operator")
    assert "exchanged" not in assay.locate(golden, wide).sentence


@pytest.mark.parametrize("change", [other_scale, transposed, exchanged_layers])
def test_weights_that_are_golden_s_in_another_way_are_a_fault(golden: Path, tmp_path: Path, change: Any) -> None:
    verdict = assay.locate(golden, capture(tmp_path / "mine", changed(change), "module"))
    assert verdict.outcome == "first_wrong"
    assert "weight" in str(verdict) or "Linear" in str(verdict)


def test_one_layer_of_another_checkpoint_is_a_fault(golden: Path, tmp_path: Path) -> None:
    other = llama(seed=1)
    model = changed(lambda model: model.model.layers[1].load_state_dict(other.model.layers[1].state_dict()))
    verdict = assay.locate(golden, capture(tmp_path / "mine", model, "module"))
    assert verdict.outcome == "first_wrong"
    assert verdict.first_bad.module.startswith("model.layers.1.")


def test_a_dropout_of_rate_zero_in_training_mode_is_no_difference(golden: Path, tmp_path: Path) -> None:
    assert assay.locate(golden, capture(tmp_path / "mine", llama().to(BF16).train(), "module")).outcome == "clean"


def test_some_modules_of_the_run_under_test_are_no_other_model(golden: Path, tmp_path: Path) -> None:
    model = llama().to(BF16)
    with (
        torch.no_grad(),
        assay.capture(model, tmp_path / "mine", weights=True, include=["model.layers.1.*"]),
    ):
        model(PROMPT, use_cache=False)
    sentence = assay.locate(golden, tmp_path / "mine").sentence
    assert "another" not in sentence and "modules in" not in sentence
