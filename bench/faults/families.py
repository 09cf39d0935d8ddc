# SPDX-License-Identifier: Apache-2.0
"""Model families of the laboratory: small Hugging Face models with random weights, and what their modules are called.

All have 6 layers of width 128 (or as asked for) and a vocabulary of 1024. `llama`, `qwen2` and `gpt2` are the families
that the limits of docs/localisation.md were set on; the others are only ever tested.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Callable

import torch

LAYERS = 6
WIDTH = 128
VOCABULARY = 1024


@dataclass(frozen=True)
class Family:
    """One architecture.

    Attributes:
        config: makes its configuration, given the attention implementation and the width.
        layer: path of a decoder layer, with "{}" for its number.
        norms: norm modules within a layer.
        linears: modules with one matrix each, within a layer.
        attention: the module whose forward holds the attention core.
        mlp: the module of the feed-forward part.
        activation: the activation module within a layer; empty when it is a function.
        rotary: path of the module that makes the tables of rotary positions; empty without one.
        biased: linear modules of `linears` that have a bias.
        transposed: weights are stored [in, out] (GPT-2's Conv1D).
    """

    name: str
    config: Callable[[str, int], Any]
    layer: str
    norms: tuple[str, ...]
    linears: tuple[str, ...]
    attention: str
    mlp: str
    activation: str
    rotary: str = ""
    biased: tuple[str, ...] = ()
    transposed: bool = False


def _sizes(width: int, **more: Any) -> dict[str, Any]:
    heads = max(8, width // 64)
    return {
        "hidden_size": width,
        "intermediate_size": 344 if width == WIDTH else width,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 2,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 256,
        "pad_token_id": 0,
        **more,
    }


def _llama(attention: str, width: int) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(**_sizes(width), attn_implementation=attention)


def _qwen2(attention: str, width: int) -> Any:
    from transformers import Qwen2Config

    return Qwen2Config(**_sizes(width), attn_implementation=attention)


def _gpt2(attention: str, width: int) -> Any:
    from transformers import GPT2Config

    return GPT2Config(
        n_embd=width,
        n_layer=LAYERS,
        n_head=max(8, width // 64),
        n_positions=256,
        n_inner=None if width == WIDTH else width,
        vocab_size=VOCABULARY,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation=attention,
    )


def _mixtral(attention: str, width: int) -> Any:
    from transformers import MixtralConfig

    # Rows of its grouped products must be multiples of 16 bytes.
    sizes = _sizes(width, intermediate_size=176 if width == WIDTH else width // 2)
    return MixtralConfig(**sizes, num_local_experts=4, num_experts_per_tok=2, attn_implementation=attention)


def _mistral(attention: str, width: int) -> Any:
    from transformers import MistralConfig

    return MistralConfig(**_sizes(width, sliding_window=24), attn_implementation=attention)


def _gemma(attention: str, width: int) -> Any:
    from transformers import GemmaConfig

    return GemmaConfig(**_sizes(width, head_dim=width // max(8, width // 64)), attn_implementation=attention)


def _neox(attention: str, width: int) -> Any:
    from transformers import GPTNeoXConfig

    sizes = _sizes(width)
    del sizes["num_key_value_heads"]
    return GPTNeoXConfig(**sizes, attn_implementation=attention)


_LLAMA_LINEARS = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)


def _like_llama(name: str, config: Callable[[str, int], Any], biased: tuple[str, ...] = ()) -> Family:
    return Family(
        name,
        config,
        "model.layers.{}",
        ("input_layernorm", "post_attention_layernorm"),
        _LLAMA_LINEARS,
        "self_attn",
        "mlp",
        "mlp.act_fn",
        "model.rotary_emb",
        biased,
    )


FAMILIES = {
    family.name: family
    for family in (
        _like_llama("llama", _llama),
        _like_llama("qwen2", _qwen2, biased=_LLAMA_LINEARS[:3]),
        Family(
            "gpt2",
            _gpt2,
            "transformer.h.{}",
            ("ln_1", "ln_2"),
            ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"),
            "attn",
            "mlp",
            "mlp.act",
            biased=("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"),
            transposed=True,
        ),
        Family(
            "mixtral",
            _mixtral,
            "model.layers.{}",
            ("input_layernorm", "post_attention_layernorm"),
            _LLAMA_LINEARS[:4],
            "self_attn",
            "mlp",
            "",
            "model.rotary_emb",
        ),
        _like_llama("mistral", _mistral),
        _like_llama("gemma", _gemma),
        Family(
            "neox",
            _neox,
            "gpt_neox.layers.{}",
            ("input_layernorm", "post_attention_layernorm"),
            ("attention.query_key_value", "attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
            "attention",
            "mlp",
            "mlp.act",
            "gpt_neox.rotary_emb",
            biased=("attention.query_key_value", "attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
        ),
    )
}
FIT = ("llama", "qwen2", "gpt2")
TEST = ("mixtral", "mistral", "gemma", "neox")


def build(name: str, seed: int, attention: str = "sdpa", width: int = WIDTH) -> torch.nn.Module:
    """The fp32 model of a family, in eval mode, with weights that make every operator matter.

    The default initialisation leaves norms at one and biases at zero, where some faults do nothing: both are drawn.
    """
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1000 + seed)
    model = AutoModelForCausalLM.from_config(FAMILIES[name].config(attention, width)).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            draw = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() >= 2:
                # Activations keep their size from layer to layer, and heads do not all look alike.
                fan_in = parameter.shape[-2] if FAMILIES[name].transposed and "wte" not in path else parameter.shape[-1]
                scale = 0.5 if "embed" in path or "wte" in path or "wpe" in path else fan_in**-0.5
                parameter.copy_(draw * scale)
            elif path.endswith("bias"):
                parameter.copy_(draw * 0.1)
            else:
                centre = 0.0 if name == "gemma" else 1.0
                parameter.copy_(centre + draw * 0.1)
    return model


def narrowed(model: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    """A copy in another type, as users make one: `model.to(dtype)`."""
    return copy.deepcopy(model).to(dtype)


def prompt(seed: int, length: int, batch: int = 1) -> torch.Tensor:
    """Token ids, [batch, length]."""
    generator = torch.Generator().manual_seed(77 + seed)
    return torch.randint(1, VOCABULARY, (batch, length), generator=generator)
