# SPDX-License-Identifier: Apache-2.0
"""Configurations of full-size models, as their makers published them; {} is what transformers has as a default."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PHI35_FACTORS = [1.0 + 0.05 * n for n in range(48)]  # a factor for each pair of 96 channels

MODELS: dict[str, dict[str, Any]] = {
    "llama": {  # Llama 3.1 8B
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256, "bos_token_id": 128000, "eos_token_id": 128001,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192},
    },
    "mistral": {"sliding_window": 4096, "vocab_size": 32000},  # Mistral 7B
    "mixtral": {"max_position_embeddings": 32768},  # Mixtral 8x7B
    "qwen2": {  # Qwen2.5 7B
        "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
        "num_key_value_heads": 4, "vocab_size": 152064, "rope_theta": 1e6,
    },
    "qwen2_moe": {},
    "qwen3": {  # Qwen3 0.6B
        "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True,
        "max_position_embeddings": 40960, "rope_theta": 1e6,
    },
    "qwen3_moe": {  # Qwen3 30B A3B
        "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 48,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
        "num_experts_per_tok": 8, "norm_topk_prob": True, "vocab_size": 151936,
    },
    "gemma": {},
    "gemma2": {  # Gemma 2 9B
        "hidden_size": 3584, "intermediate_size": 14336, "num_hidden_layers": 42, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 4096,
    },
    "gemma3_text": {  # Gemma 3 1B
        "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 256, "sliding_window": 512, "vocab_size": 262144,
    },
    "phi": {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32,  # Phi 2
            "partial_rotary_factor": 0.4, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default",
                                                              "partial_rotary_factor": 0.4}},
    "phi3": {  # Phi 3.5 mini
        "max_position_embeddings": 131072, "original_max_position_embeddings": 4096, "sliding_window": 262144,
        "rope_scaling": {"type": "longrope", "short_factor": PHI35_FACTORS, "long_factor": PHI35_FACTORS[::-1]},
    },
    "gpt2": {},
    "gpt_neox": {},
    "gptj": {},
    "falcon": {},
    "opt": {"hidden_size": 1024, "word_embed_proj_dim": 512, "ffn_dim": 4096, "num_hidden_layers": 24,  # OPT 350M
            "num_attention_heads": 16, "do_layer_norm_before": False},
    "bloom": {"hidden_size": 4096, "n_layer": 30, "n_head": 32},  # BLOOM 7B1
    "mpt": {"d_model": 4096, "n_heads": 32, "n_layers": 32},  # MPT 7B
    "stablelm": {},
    "starcoder2": {"sliding_window": 4096},
    "cohere": {},
    "cohere2": {},
    "olmo2": {},
    "deepseek_v3": {
        "max_position_embeddings": 163840,
        "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
                         "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096},
    },
    "granite": {  # Granite 3.1 8B
        "hidden_size": 4096, "intermediate_size": 12800, "num_hidden_layers": 40, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 49155, "embedding_multiplier": 12.0, "logits_scaling": 16.0,
        "residual_multiplier": 0.22, "attention_multiplier": 0.0078125, "tie_word_embeddings": True,
    },
    "glm4": {},
    "gpt_oss": {},
    "mamba": {},
    "mamba2": {},
    "jamba": {},
    "bamba": {"attn_layer_indices": [9, 18, 27]},
    "gpt_neo": {},
    "gpt_bigcode": {},
    "glm4_moe": {"head_dim": 128},
    "llama4_text": {},
    "nemotron": {"num_attention_heads": 48, "num_key_value_heads": 8},
    "olmoe": {},
    "phimoe": {},
    "qwen3_next": {},
    "recurrent_gemma": {},
    "smollm3": {},
    "exaone4": {},
    "lfm2": {},
    "minimax": {},
}  # fmt: skip


def write(kind: str, folder: Path, **changes: Any) -> Path:
    """Writes folder/config.json of the full-size model; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": kind, **MODELS[kind], **changes}))
    return path
