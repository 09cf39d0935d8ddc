# SPDX-License-Identifier: Apache-2.0
"""Model families of the laboratory: small Hugging Face models with random weights.

`llama`, `qwen2` and `gpt2` are the families that the limits of docs/localisation.md were set on. The seven of `LARGER`
have 6 layers of width 128 (or as asked for) and a vocabulary of 1024. The others are one row of a table each: their
sizes are cut down by the names that configurations use for them. Where things are in a model is found in the model
itself (assay.twin.places). `smollm2` is trained, and not among those that campaigns draw from (bench.faults.trained).
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable, Optional

import torch

from assay.twin import drawing, places, shaping
from bench.faults import trained

LAYERS = 6
WIDTH = 128
VOCABULARY = 1024
SMALL_LAYERS = 3
SMALL_VOCABULARY = 256
HEAD = 16  # width of a head in small models
FAR = 15_900  # position of the first token of a "far" run
FIRST_TOKEN = 1  # what trained models begin with; shaped ones give it an attention sink


@dataclass(frozen=True)
class Family:
    """One architecture.

    Attributes:
        config: makes its configuration, given the attention implementation, the width and the heads (queries, keys).
        vocabulary: tokens.
        auto: the class of transformers that makes the model.
        decodes: whether it can go on from a cache.
        chunks: and with several tokens at once.
        trained: it has weights and texts of its own.
    """

    name: str
    config: Callable[[str, int, tuple[int, int]], Any]
    vocabulary: int = VOCABULARY
    auto: str = "AutoModelForCausalLM"
    decodes: bool = True
    far: bool = True
    chunks: bool = True
    trained: bool = False


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


def _llama(attention: str, width: int, _: Any) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(**_sizes(width), attn_implementation=attention)


def _qwen2(attention: str, width: int, _: Any) -> Any:
    from transformers import Qwen2Config

    return Qwen2Config(**_sizes(width), attn_implementation=attention)


def _gpt2(attention: str, width: int, _: Any) -> Any:
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


def _mixtral(attention: str, width: int, _: Any) -> Any:
    from transformers import MixtralConfig

    # Rows of its grouped products must be multiples of 16 bytes.
    sizes = _sizes(width, intermediate_size=176 if width == WIDTH else width // 2)
    return MixtralConfig(**sizes, num_local_experts=4, num_experts_per_tok=2, attn_implementation=attention)


def _mistral(attention: str, width: int, _: Any) -> Any:
    from transformers import MistralConfig

    return MistralConfig(**_sizes(width, sliding_window=24), attn_implementation=attention)


def _gemma(attention: str, width: int, _: Any) -> Any:
    from transformers import GemmaConfig

    return GemmaConfig(**_sizes(width, head_dim=width // max(8, width // 64)), attn_implementation=attention)


def _neox(attention: str, width: int, _: Any) -> Any:
    from transformers import GPTNeoXConfig

    sizes = _sizes(width)
    del sizes["num_key_value_heads"]
    return GPTNeoXConfig(**sizes, attn_implementation=attention)


LARGER = ("llama", "qwen2", "gpt2", "mixtral", "mistral", "gemma", "neox")
FIT = LARGER[:3]
TEST = LARGER[3:]

# What configurations call their sizes. Those that a configuration does not know are left out.
_SMALL: Mapping[str, Any] = {
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_dim", "d_ff", "ffn_hidden_size"), 96),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 96),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers"), SMALL_LAYERS),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 256),
    "vocab_size": SMALL_VOCABULARY,
    "pad_token_id": 0,
    "bos_token_id": FIRST_TOKEN,
    "eos_token_id": 2,
    "decoder_start_token_id": FIRST_TOKEN,
    "num_experts_per_tok": 2,
    "sliding_window": 12,
    "rotary_dim": 8,
    "state_size": 16,
    "num_heads": 8,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    "head_dim": HEAD,
    "d_kv": HEAD,
    "n_group": 1,
    "topk_group": 1,
}
_WIDTHS = ("hidden_size", "n_embd", "d_model", "word_embed_proj_dim")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "encoder_attention_heads", "decoder_attention_heads")


def _small(model_type: str, more: Mapping[str, Any], attention: str, _: int, heads: tuple[int, int]) -> Any:
    """The configuration of a type of transformers with its sizes cut down."""
    from transformers import CONFIG_MAPPING

    make = CONFIG_MAPPING[model_type]
    known = make()
    queries, keys = heads if hasattr(known, "num_key_value_heads") else (4, 4)
    sizes = {**_SMALL, **dict.fromkeys(_WIDTHS, HEAD * queries), **dict.fromkeys(_HEADS, queries)}
    sizes["num_key_value_heads"] = keys
    given = {name: value for name, value in sizes.items() if hasattr(known, name)}
    given.update(
        {name: queries if value is _AS_QUERIES else value for name, value in more.items() if hasattr(known, name)}
    )
    for name in [name for name, value in given.items() if value is _LEFT_OUT]:
        del given[name]
    return make(**given, attn_implementation=attention)


def _dbrx(attention: str, _: int, heads: tuple[int, int]) -> Any:
    """Its sizes stand in configurations of their own."""
    from transformers import DbrxConfig

    queries, keys = heads
    return DbrxConfig(
        d_model=HEAD * queries,
        n_heads=queries,
        n_layers=SMALL_LAYERS,
        max_seq_len=2 * FAR,
        vocab_size=SMALL_VOCABULARY,
        attn_config={"kv_n_heads": keys, "rope_theta": 10_000.0, "clip_qkv": 8.0},
        ffn_config={"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2, "hidden_size": HEAD * queries},
        attn_implementation=attention,
    )


_LEFT_OUT = object()
_AS_QUERIES = object()


def _row(model_type: str, auto: str = "AutoModelForCausalLM", far: bool = True, name: str = "", **more: Any) -> Family:
    return Family(
        name or model_type.replace("-", "_"),
        functools.partial(_small, model_type, more),
        SMALL_VOCABULARY,
        auto,
        decodes=not model_type.startswith(_NO_CACHE),
        far=far,
        chunks=not model_type.startswith((*_NO_CACHE, *_NO_CHUNKS)),
    )


_NO_CHUNKS = ("minicpm3",)  # their attention in transformers fails on several tokens behind a cache
_NO_CACHE = ("bert", "roberta", "electra", "openai-gpt", "recurrent_gemma", "jamba")
# Routers that take several of many experts.
_WIDE = {"num_experts": 32, "n_routed_experts": 32, "num_local_experts": 32, "num_experts_per_tok": 6}
_LEARNED = {"far": False}  # a table of positions, which ends at 256

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("llama", _llama),
        Family("qwen2", _qwen2),
        Family("gpt2", _gpt2, far=False),
        Family("mixtral", _mixtral),
        Family("mistral", _mistral),
        Family("gemma", _gemma),
        Family("neox", _neox),
        _row("apertus"),
        _row("arcee"),
        _row("bert", **_LEARNED),
        _row("biogpt", **_LEARNED),
        _row("bitnet"),
        _row("bloom", **_LEARNED),
        _row("codegen", **_LEARNED),
        _row("cohere"),
        _row("cohere2"),
        _row("cwm"),
        Family("dbrx", _dbrx, vocabulary=SMALL_VOCABULARY),
        _row("deepseek_v2", num_key_value_heads=_AS_QUERIES),
        _row("deepseek_v3", head_dim=_LEFT_OUT, first_k_dense_replace=1, num_key_value_heads=_AS_QUERIES),
        _row(
            "deepseek_v3",
            name="deepseek_v3_wide",
            head_dim=_LEFT_OUT,
            first_k_dense_replace=1,
            num_key_value_heads=_AS_QUERIES,
            **_WIDE,
            n_group=4,
            topk_group=2,
        ),
        _row("diffllama", num_attention_heads=4, num_key_value_heads=2, hidden_size=4 * HEAD),  # pairs of heads
        _row("doge"),
        _row("electra", **_LEARNED),
        _row("ernie4_5"),
        _row("exaone4"),
        _row("falcon", head_dim=_LEFT_OUT, ffn_hidden_size=_LEFT_OUT),
        _row("falcon_mamba", **_LEARNED),
        _row("flex_olmo"),
        _row("gemma2"),
        _row("gemma3_text"),
        _row("glm"),
        _row("glm4"),
        _row("glm4_moe"),
        _row("glm4_moe", name="glm4_moe_wide", **_WIDE),
        _row("gpt_bigcode", **_LEARNED),
        _row("gpt_oss"),
        _row("gptj", **_LEARNED),
        _row("granite"),
        _row("granitemoe"),
        _row("helium"),
        _row("hunyuan_v1_dense"),
        _row("hy_v3"),
        _row("internlm3"),
        _row("jamba", **_LEARNED, attn_layer_period=2, attn_layer_offset=1),
        _row("lfm2"),
        _row("llama4_text"),
        _row("mamba", **_LEARNED),
        _row("mamba2", **_LEARNED),
        _row("minicpm3", num_key_value_heads=_AS_QUERIES),  # its eager attention has no groups
        _row("ministral"),
        _row("mpt", **_LEARNED),
        _row("nanochat"),
        _row("nemotron"),
        _row("olmo"),
        _row("olmo2"),
        _row("olmo3"),
        _row("olmoe"),
        _row("openai-gpt", **_LEARNED),
        _row("opt", **_LEARNED),
        _row("persimmon"),
        _row("phi"),
        _row("phi3"),
        _row("phimoe"),
        _row("qwen2_moe"),
        _row("qwen3"),
        _row("qwen3_moe"),
        _row("qwen3_moe", name="qwen3_moe_wide", **_WIDE),
        _row("recurrent_gemma", **_LEARNED),
        _row("roberta", **_LEARNED),
        _row("seed_oss"),
        _row("smollm3"),
        _row("solar_open"),
        _row("stablelm"),
        _row("starcoder2"),
        _row("vaultgemma"),
        _row("xglm", **_LEARNED),
        Family("smollm2", trained.config, vocabulary=49152, trained=True),
    )
}
DRAWN = tuple(name for name, family in FAMILIES.items() if not family.trained)

_HEAD_RATIOS = ((6, 2), (7, 1), (4, 2))  # of shaped models


@functools.lru_cache(maxsize=512)
def places_of(name: str, layer: Optional[int] = None) -> places.Places:
    """Where things are in the models of a family: found once, in a model without memory."""
    with torch.device("meta"):
        return places.of(_fresh(name, "sdpa", WIDTH, (4, 2)), layer)


def _fresh(name: str, attention: str, width: int, heads: tuple[int, int]) -> torch.nn.Module:
    import transformers

    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # about tokens these models never see
    family = FAMILIES[name]
    make = getattr(transformers, family.auto)
    try:
        return make.from_config(family.config(attention, width, heads)).eval()
    except ValueError as why:
        if "attention implementation" not in str(why):
            raise
        return make.from_config(family.config("eager", width, heads)).eval()  # it has only one


def build(name: str, seed: int, attention: str = "sdpa", width: int = WIDTH, shaped: bool = False) -> torch.nn.Module:
    """The fp32 model of a family, in eval mode, with weights that make every operator matter.

    The default initialisation leaves norms at one and biases at zero, where some faults do nothing: both are drawn.
    With `shaped` the weights are made to resemble trained ones (assay.twin.shaping). Trained ones are what they are.
    """
    if FAMILIES[name].trained:
        return trained.load(attention)
    torch.manual_seed(1000 + seed)
    heads = _HEAD_RATIOS[seed % len(_HEAD_RATIOS)] if shaped else (4, 2)
    model = _fresh(name, attention, width, heads)
    generator = torch.Generator().manual_seed(seed)
    drawing.draw(model, generator)
    if shaped:
        shaping.shape(model, seed, FIRST_TOKEN, FAMILIES[name].vocabulary)
    return model


def narrowed(model: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    """A copy in another type, as users make one: `model.to(dtype)`."""
    return copy.deepcopy(model).to(dtype)


def prompt(seed: int, length: int, batch: int = 1, vocabulary: int = VOCABULARY) -> torch.Tensor:
    """Token ids, [batch, length]."""
    generator = torch.Generator().manual_seed(77 + seed)
    return torch.randint(1, vocabulary, (batch, length), generator=generator)
