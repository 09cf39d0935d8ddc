# SPDX-License-Identifier: Apache-2.0
"""The GGUF file of a twin is the twin: llama.cpp and transformers agree on it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import test_ggml_engines as engines
import torch
from tiny_llama import WORDS_BEGIN

import assay

SIZES = {
    "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192,
}  # fmt: skip
EXPERTS = {"moe_intermediate_size": 1408, "num_experts": 64, "num_experts_per_tok": 4}
KINDS = {
    "gemma": {"head_dim": 256, "tie_word_embeddings": True},
    "gemma2": {"head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 4096},
    "llama": {},
    "mistral": {"sliding_window": None},
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None},
    "qwen2": {},
    "qwen3": {"head_dim": 128},
    "qwen2_moe": {**EXPERTS, "shared_expert_intermediate_size": 5632},
    "qwen3_moe": {**EXPERTS, "head_dim": 128, "norm_topk_prob": True},
    "phi3": {"pad_token_id": 0},
}


def make(kind, folder, **changes):
    source = folder / "config.json"
    source.write_text(json.dumps({"model_type": kind, **SIZES, **KINDS[kind], **changes}))
    return assay.twin(source, folder / "twin")


@pytest.mark.parametrize(
    "kind", [kind if kind in ("llama", "qwen3") else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
def test_log_probabilities_agree(kind, llama_engine, tmp_path, monkeypatch):
    folder = make(kind, tmp_path)
    prompts = {prompt["name"]: prompt["tokens"] for prompt in assay.twin.prompts(folder)}
    tokens = prompts["far"] + prompts["plain"][1:]  # longer than a window of 24
    with torch.no_grad():
        best = assay.twin.load(folder, attention="eager")(torch.tensor([tokens])).logits[0].argmax(-1).tolist()
    # The engine reports a token that is one byte of a character together with the next: the answer must be a word.
    length = max(at + 1 for at, token in enumerate(best) if token >= WORDS_BEGIN)
    assert length > 30
    monkeypatch.setattr(engines, "PROMPT", tokens[:length])

    _, mine = engines.chat(folder / "model.gguf", tmp_path / "mine.npy")

    golden = engines.hugging_face(folder, [0])
    assert np.isfinite(mine[0]).all()
    # ggml looks GELU up in a table of float16, whose steps are 5e-4 of a value.
    limit = 1e-3 if kind.startswith("gemma") else 1e-5
    assert engines.relative_difference(golden[0], mine[0]) < limit


@pytest.mark.parametrize("kind", ["mistral", "phi3"])
def test_a_sliding_window_is_refused_because_the_engine_has_none(kind, tmp_path):
    folder = make(kind, tmp_path, sliding_window=4096)

    assert assay.twin.read(folder)["gguf"] == {
        "left_out": f"llama.cpp has no sliding window for {kind}, whose is 24 tokens"
    }
    assert not (folder / "model.gguf").exists()
