# SPDX-License-Identifier: Apache-2.0
"""Converts a checkpoint of Gemma, Llama, Mistral, Mixtral, Qwen2, Qwen3 or Phi-3 to GGUF, for programs that read it.

For models without a tokenizer (random weights, tests): the vocabulary is a placeholder of the 256 bytes and numbered
words, so any text tokenises but means nothing. A real model is converted by llama.cpp's own script.
Needs torch, safetensors, numpy and gguf.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Optional

import gguf
import numpy as np
from safetensors import safe_open

Array = Any  # numpy.ndarray

TYPES = {
    "f32": (gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32),
    "f16": (gguf.GGMLQuantizationType.F16, gguf.LlamaFileType.MOSTLY_F16),
    "q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
    "q4_0": (gguf.GGMLQuantizationType.Q4_0, gguf.LlamaFileType.MOSTLY_Q4_0),
}
# The architecture of GGUF, and whether its rope pairs neighbours (mode 0). Hugging Face pairs channel i with i + d/2;
# where the engine does not, the rows of the query and key projections change places.
ARCHITECTURES = {
    "LlamaForCausalLM": ("llama", True),
    "GemmaForCausalLM": ("gemma", False),
    "Gemma2ForCausalLM": ("gemma2", False),
    "MistralForCausalLM": ("llama", True),
    "MixtralForCausalLM": ("llama", True),
    "Phi3ForCausalLM": ("phi3", False),
    "Qwen2ForCausalLM": ("qwen2", False),
    "Qwen2MoeForCausalLM": ("qwen2moe", False),
    "Qwen3ForCausalLM": ("qwen3", False),
    "Qwen3MoeForCausalLM": ("qwen3moe", False),
}
# The tokens before the 256 bytes: unknown, begin and end of a text.
SPECIAL_TOKENS = ["<unk>", "<s>", "</s>"]

OUTSIDE_LAYERS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
IN_LAYERS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "block_sparse_moe.gate": "ffn_gate_inp",
}
# Norms that stand elsewhere in Gemma 2, behind attention and around the feed-forward part.
IN_LAYERS_OF = {
    "gemma2": {
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    }
}
ONE_PLUS = ("gemma", "gemma2")  # norms multiply by one plus their weight; the engine by what the file holds
# Matrices of one expert, by Mixtral's names, too; the file holds those of all experts of a layer in one tensor.
EXPERTS = {
    "gate_proj": "ffn_gate_exps",
    "up_proj": "ffn_up_exps",
    "down_proj": "ffn_down_exps",
    "w1": "ffn_gate_exps",
    "w3": "ffn_up_exps",
    "w2": "ffn_down_exps",
}


def gguf_name(name: str, architecture: str) -> str:
    """GGUF's name of a parameter: `model.layers.3.mlp.up_proj.weight` is `blk.3.ffn_up.weight`."""
    if name in OUTSIDE_LAYERS:
        return OUTSIDE_LAYERS[name]
    prefix, _, rest = name.partition("model.layers.")
    layer, _, path = rest.partition(".")
    module, _, parameter = path.rpartition(".")
    names = {**IN_LAYERS, **IN_LAYERS_OF.get(architecture, {})}
    if prefix or not layer.isdecimal() or module not in names or parameter not in ("weight", "bias"):
        raise ValueError(f"no name for the parameter {name}")
    return f"blk.{layer}.{names[module]}.{parameter}"


def neighbours_from_halves(rows: Array, heads: int) -> Array:
    """Row i of a head of d rows goes to 2i, row i + d/2 to 2i + 1. Weights (heads * d, in) or biases (heads * d)."""
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, 2, half, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def parameters(folder: Path) -> Iterator[tuple[str, Array]]:
    """Name and float32 values of each parameter, one at a time."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"{folder} has no .safetensors file")
    for file in files:
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - it is no dictionary
                yield name, tensors.get_tensor(name).float().numpy()


def stack_experts(named: Iterable[tuple[str, Array]], architecture: str) -> Iterator[tuple[str, Array]]:
    """GGUF's names and values; matrices of single experts (out, in) become one tensor (experts, out, in)."""
    experts: dict[str, dict[int, Array]] = {}
    for name, values in named:
        path, mark, expert = name.partition(".experts.")
        if not mark:
            yield gguf_name(name, architecture), values
            continue
        number, matrix, _ = expert.split(".")
        layer = path.removeprefix("model.layers.").partition(".")[0]
        experts.setdefault(f"blk.{layer}.{EXPERTS[matrix]}.weight", {})[int(number)] = values
    for name, matrices in experts.items():
        yield name, np.stack([matrices[number] for number in sorted(matrices)])


def refuse_window(config: dict[str, Any]) -> None:
    """llama.cpp computes these architectures over the whole context, also where the model has a sliding window."""
    window = config.get("sliding_window") or 0
    kinds = config.get("layer_types")
    if config["model_type"] == "gemma2":
        refuse_other_gemma2(config)
        return
    slides = "sliding_attention" in kinds if kinds else config.get("use_sliding_window", True)
    if slides and 0 < window < config["max_position_embeddings"]:
        raise ValueError(f"llama.cpp has no sliding window for {config['model_type']}, whose is {window} tokens")


def refuse_other_gemma2(config: dict[str, Any]) -> None:
    """The engine knows Gemma 2 with a window in every second layer, and scores scaled by the size of a head."""
    kinds = ["full_attention" if layer % 2 else "sliding_attention" for layer in range(config["num_hidden_layers"])]
    if config["layer_types"] != kinds or config["query_pre_attn_scalar"] != config["head_dim"]:
        raise ValueError("llama.cpp has only Gemma 2 with alternating windows and scores scaled by the size of a head")


def rope_base(config: dict[str, Any]) -> float:
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "llama3"):
        raise ValueError(f"rope of type {kind} is not converted")
    return float(rope.get("rope_theta", config.get("rope_theta", 10000.0)))


def rope_divisors(config: dict[str, Any], head_size: int) -> Optional[Array]:
    """What each of the head_size / 2 frequencies of Llama 3.1 and later is divided by, float32; None for other models.

    Waves longer than low_freq_factor's share of the original context are slowed down, those shorter than
    high_freq_factor's are not, and in between goes a line (transformers, `_compute_llama3_parameters`).
    """
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if rope.get("rope_type", rope.get("type")) != "llama3":
        return None
    waves = 2 * np.pi * rope_base(config) ** (np.arange(0, head_size, 2) / head_size)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    kept = np.clip((rope["original_max_position_embeddings"] / waves - low) / (high - low), 0, 1)
    return (1 / ((1 - kept) / rope["factor"] + kept)).astype(np.float32)


def add_vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
    bytes_end = len(SPECIAL_TOKENS) + 256
    if size <= bytes_end:
        raise ValueError(f"a vocabulary of {size} has no room for the {bytes_end} tokens every text needs")
    words = [f"▁w{n}" for n in range(bytes_end, size)]
    kind = gguf.TokenType
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(SPECIAL_TOKENS + [f"<0x{n:02X}>" for n in range(256)] + words)
    # The tokenizer merges by score: a word must not win against its bytes by chance.
    writer.add_token_scores([0.0] * bytes_end + [-1000.0 - n for n in range(len(words))])
    writer.add_token_types([kind.UNKNOWN, kind.CONTROL, kind.CONTROL] + [kind.BYTE] * 256 + [kind.NORMAL] * len(words))
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def convert(folder: Path, out: Path, type_name: str = "f32") -> None:
    """Writes the checkpoint in `folder` to the GGUF file `out`.

    Matrices take the type; norms, biases and the router of experts stay float32, as engines expect.

    Raises:
        ValueError: the model is of another family or has a sliding window, or a row is no multiple of the type's block.
    """
    config = json.loads((folder / "config.json").read_text())
    (family,) = config["architectures"]
    if family not in ARCHITECTURES:
        raise ValueError(f"{family} is not converted, only {', '.join(ARCHITECTURES)}")
    refuse_window(config)
    architecture, neighbours = ARCHITECTURES[family]
    matrix_type, file_type = TYPES[type_name]
    heads = config["num_attention_heads"]
    key_heads = config.get("num_key_value_heads") or heads
    head_size = config.get("head_dim") or config["hidden_size"] // heads

    writer = gguf.GGUFWriter(out, architecture)
    # The same for all: bytes must not depend on the folder, and llama.cpp expects the real tokenizer of a "phi3".
    writer.add_name("twin")
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(key_heads)
    writer.add_key_length(head_size)
    writer.add_value_length(head_size)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(rope_base(config))
    writer.add_rope_dimension_count(head_size)
    writer.add_vocab_size(config["vocab_size"])
    if architecture == "phi3":  # the engine wants it; as long as the context is none
        writer.add_sliding_window(config.get("sliding_window") or config["max_position_embeddings"])
    if architecture == "gemma2":
        writer.add_sliding_window(config["sliding_window"])
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if experts := config.get("num_local_experts") or config.get("num_experts"):
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
        if width := config.get("moe_intermediate_size"):
            writer.add_expert_feed_forward_length(width)
        if width := config.get("shared_expert_intermediate_size"):
            writer.add_expert_shared_feed_forward_length(width)
    add_vocabulary(writer, config["vocab_size"])

    divisors = rope_divisors(config, head_size)
    if divisors is not None:
        writer.add_tensor("rope_freqs.weight", divisors)
    for name, values in stack_experts(parameters(folder), architecture):
        if name == "output.weight" and config.get("tie_word_embeddings"):
            continue  # the engine takes token_embd where output is missing
        if neighbours and ".attn_q." in name:
            values = neighbours_from_halves(values, heads)
        if neighbours and ".attn_k." in name:
            values = neighbours_from_halves(values, key_heads)
        if ".ffn_gate_inp_shexp." in name:
            values = values[0]  # (1, in)
        if architecture in ONE_PLUS and name.endswith("norm.weight"):
            values = values + 1
        plain = values.ndim == 1 or ".ffn_gate_inp." in name
        kind = gguf.GGMLQuantizationType.F32 if plain else matrix_type
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hf_dir", type=Path, help="folder with config.json and *.safetensors")
    parser.add_argument("out", type=Path, help="GGUF file to write")
    parser.add_argument("--type", choices=TYPES, default="f32", help="type of the matrices (default: %(default)s)")
    options = parser.parse_args()
    try:
        convert(options.hf_dir, options.out, options.type)
    except (OSError, ValueError) as error:
        print(f"gguf_file: {error}", file=sys.stderr)
        return 2
    return 0
