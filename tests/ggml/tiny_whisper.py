# SPDX-License-Identifier: Apache-2.0
"""A random-weight Whisper of transformers, and the same in the container that whisper.cpp reads.

All numbers are little-endian, int32 and float32:

    magic 0x67676d6c; vocabulary; audio positions, width, heads, layers of the encoder; text positions, width, heads,
    layers of the decoder; mel bins; type of the matrices (1 float16)
    rows, columns of the mel filters; the filters
    number of tokens; each: length, bytes
    each tensor: number of sizes, length of the name, type (0 float32, 1 float16); sizes, fastest first; name; values
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

MAGIC = 0x67676D6C
# The engine knows its special tokens by number, beginning with 50256, so the vocabulary cannot be smaller.
VOCABULARY, WORDS = 51864, 50256
SIZES = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 256,  # the engine takes four times the width
    "decoder_ffn_dim": 256,
    "max_source_positions": 64,  # a little more than a second
    "max_target_positions": 64,
    "num_mel_bins": 80,
    "vocab_size": VOCABULARY,
}
MODULES = {
    "self_attn.q_proj": "attn.query",
    "self_attn.k_proj": "attn.key",
    "self_attn.v_proj": "attn.value",
    "self_attn.out_proj": "attn.out",
    "self_attn_layer_norm": "attn_ln",
    "encoder_attn.q_proj": "cross_attn.query",
    "encoder_attn.k_proj": "cross_attn.key",
    "encoder_attn.v_proj": "cross_attn.value",
    "encoder_attn.out_proj": "cross_attn.out",
    "encoder_attn_layer_norm": "cross_attn_ln",
    "fc1": "mlp.0",
    "fc2": "mlp.2",
    "final_layer_norm": "mlp_ln",
}
OUTSIDE_LAYERS = {
    "encoder.layer_norm": "encoder.ln_post",
    "decoder.layer_norm": "decoder.ln",
    "encoder.embed_positions.weight": "encoder.positional_embedding",
    "decoder.embed_positions.weight": "decoder.positional_embedding",
    "decoder.embed_tokens.weight": "decoder.token_embedding.weight",
}


def make_model(seed: int = 20261122):
    import torch
    import transformers

    model = transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(**SIZES, attn_implementation="eager")
    ).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                parameter.uniform_(0.5, 1.5, generator=generator)
            elif parameter.ndim < 2:
                parameter.normal_(0.0, 0.1, generator=generator)
            else:
                parameter.normal_(0.0, float(np.prod(parameter.shape[1:])) ** -0.5, generator=generator)
    return model


def container_name(name: str) -> str:
    """`encoder.layers.1.fc1.bias` is `encoder.blocks.1.mlp.0.bias`."""
    side, _, rest = name.partition(".")
    if rest.startswith("layers."):
        _, layer, rest = rest.split(".", 2)
        module, _, parameter = rest.rpartition(".")
        return f"{side}.blocks.{layer}.{MODULES[module]}.{parameter}"
    if name in OUTSIDE_LAYERS:
        return OUTSIDE_LAYERS[name]
    module, _, parameter = name.rpartition(".")
    return f"{OUTSIDE_LAYERS.get(module, module)}.{parameter}"


def write_whisper(path: Path, model) -> Path:
    """Matrices in float16, the only type the engine has convolutions for; norms, biases and positions in float32."""
    import transformers

    filters = transformers.WhisperFeatureExtractor().mel_filters.T.astype("<f4")  # (80, 201)
    sizes = SIZES
    with path.open("wb") as file:

        def put(*numbers: int) -> None:
            file.write(struct.pack(f"<{len(numbers)}i", *numbers))

        put(MAGIC, VOCABULARY)
        put(sizes["max_source_positions"], sizes["d_model"], sizes["encoder_attention_heads"], sizes["encoder_layers"])
        put(sizes["max_target_positions"], sizes["d_model"], sizes["decoder_attention_heads"], sizes["decoder_layers"])
        put(sizes["num_mel_bins"], 1)
        put(*filters.shape)
        file.write(np.ascontiguousarray(filters).tobytes())
        put(WORDS)
        for number in range(WORDS):
            word = b" " if number == 220 else f" {number}".encode()  # the engine asks for the blank by its text
            put(len(word))
            file.write(word)
        for name, parameter in model.model.state_dict().items():
            stored = container_name(name)
            values = parameter.numpy()
            if stored in ("encoder.conv1.bias", "encoder.conv2.bias"):
                values = values[:, None]
            is_half = values.ndim >= 2 and not stored.endswith((".bias", "positional_embedding"))
            put(values.ndim, len(stored), int(is_half), *reversed(values.shape))
            file.write(stored.encode())
            file.write(values.astype("<f2" if is_half else "<f4").tobytes())
    return path
