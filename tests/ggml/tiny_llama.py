# SPDX-License-Identifier: Apache-2.0
"""A random-weight model of Hugging Face and its conversions to GGUF, small enough to make anew for every test run."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "ggml"))

GGUF_TYPES = ("f32", "f16", "q8_0", "q4_0")
# The first token that is a whole word: after three special ones and the 256 bytes.
WORDS_BEGIN = 3 + 256
# Every dimension of a row is a multiple of 256, so the blocks of k-quants fit, too.
SIZES = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
}

FAMILY_SETTINGS = {
    "qwen3": {"head_dim": 64},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    # An expert that all tokens share; weights as they are.
    "qwen2moe": {
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 256,
        "shared_expert_intermediate_size": 512,
        "norm_topk_prob": False,
    },
    # llama.cpp divides the weights of the chosen experts by their sum.
    "qwen3moe": {
        "head_dim": 64,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 256,
        "norm_topk_prob": True,
    },
}


def make_model(family: str = "llama", seed: int = 20261122, **changes):
    """The model in float32, `eval` mode; `changes` go into its configuration.

    Norm weights and biases are random, too: a missing multiplication or sum must show.
    """
    import torch
    import transformers

    config_class, model_class = {
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
        "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
        "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
        "phi3": (transformers.Phi3Config, transformers.Phi3ForCausalLM),
        "mixtral": (transformers.MixtralConfig, transformers.MixtralForCausalLM),
        "qwen2moe": (transformers.Qwen2MoeConfig, transformers.Qwen2MoeForCausalLM),
        "qwen3moe": (transformers.Qwen3MoeConfig, transformers.Qwen3MoeForCausalLM),
    }[family]
    changes = {**FAMILY_SETTINGS.get(family, {}), **changes}
    config = config_class(
        **{
            **SIZES,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
            "tie_word_embeddings": False,
            "attn_implementation": "eager",
            **changes,
        }
    )
    generator = torch.Generator().manual_seed(seed)
    model = model_class(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5, generator=generator)
            elif name.endswith("bias"):
                parameter.normal_(0.0, 0.2, generator=generator)
            elif "embed" in name and not config.tie_word_embeddings:
                parameter.normal_(0.0, 1.0, generator=generator)
            else:  # keeps the size of what goes through, so that no layer drowns in the residual
                parameter.normal_(0.0, parameter.shape[-1] ** -0.5, generator=generator)
        # Whole words win: the engine's server reports bytes only when they make up a UTF-8 character.
        model.get_output_embeddings().weight[:WORDS_BEGIN] *= 0.2
    return model


def write_models(folder: Path, family: str = "llama", types=GGUF_TYPES, seed: int = 20261122, **changes) -> dict:
    """Writes `<folder>/hf` and `<folder>/<type>.gguf` for each type.

    Returns:
        Their paths: `{"hf": ..., "f32": ..., "f16": ..., "q8_0": ..., "q4_0": ...}`.
    """
    from assay.twin.gguf_file import convert

    folder = Path(folder)
    paths = {"hf": folder / "hf"}
    make_model(family, seed, **changes).save_pretrained(paths["hf"])
    for name in types:
        paths[name] = folder / f"{name}.gguf"
        convert(paths["hf"], paths[name], name)
    return paths
