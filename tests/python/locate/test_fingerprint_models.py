# SPDX-License-Identifier: Apache-2.0
"""Fingerprints of a Llama with 12 layers: their size, and what they tell with its checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import assay

LENGTHS = ((12, 2), (20, 2), (30, 2), (24, 1))  # tokens of the prompt, tokens behind it


def llama(vocabulary: int = 512) -> torch.nn.Module:
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=128,
        num_hidden_layers=12,
        num_attention_heads=8,
        num_key_value_heads=2,
        intermediate_size=352,
        vocab_size=vocabulary,
        max_position_embeddings=512,
    )
    return transformers.LlamaForCausalLM(config).eval()


def capture(model: torch.nn.Module, folder: Path, level: str = "module", seed: int = 1) -> Path:
    """Four prompts, each with a cache of its own."""
    generator = torch.Generator().manual_seed(seed)
    with torch.inference_mode(), assay.capture(model, folder, level=level, weights=level == "module"):
        for length, further in LENGTHS:
            ids = torch.randint(0, 512, (1, length), generator=generator)
            result = model(input_ids=ids, use_cache=True)
            for _ in range(further):
                ids = torch.randint(0, 512, (1, 1), generator=generator)
                result = model(input_ids=ids, past_key_values=result.past_key_values, use_cache=True)
    return folder


@pytest.fixture(scope="module")
def golden(tmp_path_factory) -> Path:
    return capture(llama(), tmp_path_factory.mktemp("golden") / "run", "operator")


@pytest.fixture(scope="module")
def fingerprint(golden) -> assay.Fingerprint:
    return assay.fingerprint(golden, golden.parent / "golden.json.gz")


@pytest.fixture(scope="module")
def checkpoint(golden) -> Path:
    save_file(llama().state_dict(), golden.parent / "model.safetensors")
    return golden.parent / "model.safetensors"


def test_it_is_small_enough_to_commit(fingerprint):
    """Measured: 78 706 bytes, of which statistics take 62 kB."""
    assert fingerprint.operators == 7727 and fingerprint.steps == 11 and fingerprint.statistics > 1900
    assert fingerprint.bytes < 90_000
    assert assay.fingerprint(fingerprint.path, f"{fingerprint.path}.less", statistics=False).bytes < 20_000


def test_bfloat16_is_clean_and_its_near_tie_is_told(golden, fingerprint, checkpoint, tmp_path):
    mine = capture(llama().bfloat16(), tmp_path / "mine")
    verdict = assay.locate(fingerprint.path, mine, golden_weights=checkpoint)
    whole = assay.locate(golden, mine)
    assert verdict.outcome == "clean", verdict.sentence
    assert verdict.coverage == whole.coverage
    assert verdict.to_dict()["power"] == whole.to_dict()["power"]
    told, right = verdict.to_dict()["tokens"], whole.to_dict()["tokens"]
    assert told["near_tie"] and told["positions"] == 11  # the last ones; of the run all are compared
    assert [told[key] for key in ("step", "golden_token", "my_token")] == [
        right[key] for key in ("step", "golden_token", "my_token")
    ]
    assert told["margin"] == pytest.approx(right["margin"])


def test_a_fault_is_named(fingerprint, checkpoint, tmp_path):
    model = llama().bfloat16()
    model.model.layers[1].mlp.act_fn.register_forward_hook(lambda module, inputs, output: output * 1.05)
    verdict = assay.locate(fingerprint.path, capture(model, tmp_path / "mine"), golden_weights=checkpoint)
    assert verdict.outcome == "first_wrong", verdict.sentence
    assert verdict.first_bad is not None and verdict.first_bad.module == "model.layers.1.mlp.act_fn"


@pytest.mark.parametrize("other", ["prompts", "vocabulary"])
def test_another_question_cannot_be_judged(fingerprint, checkpoint, tmp_path, other):
    model = llama(768 if other == "vocabulary" else 512)
    mine = capture(model, tmp_path / "mine", seed=2 if other == "prompts" else 1)
    verdict = assay.locate(fingerprint.path, mine, golden_weights=checkpoint)
    assert verdict.outcome == "cannot_judge", verdict.sentence
