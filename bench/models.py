# SPDX-License-Identifier: Apache-2.0
"""The three bench models: random-weight Llama models of Hugging Face, fp32, SDPA, `no_grad`, two threads.

S         hidden 512, 8 layers, 8 heads, feed-forward 1408, vocabulary 8192, prompt of 64 tokens:
          270 module inputs and outputs of 42.0 MB a step, of which 119 tensors, 24.4 MB, are distinct
S-decode  the same with a KV cache of 64 tokens and steps of one token
M         hidden 1024, 12 layers, 16 heads, feed-forward 2816, vocabulary 32000, prompt of 128 tokens:
          398 tensors of 256.2 MB, 175 distinct ones of 149.6 MB
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Optional

THREADS = 2


@dataclass(frozen=True)
class ModelSpec:
    """Sizes of a bench model and how many of its steps make one sample.

    Attributes:
        prompt: tokens a step (one when `decode`), and tokens in the cache before the first step when `decode`.
        burst: steps of one sample; the captured bytes are waited for once, after the last.
        rounds: samples a variant in a full run; a quick run takes a third.
    """

    name: str
    hidden: int
    layers: int
    heads: int
    feed_forward: int
    vocabulary: int
    prompt: int
    decode: bool
    burst: int
    rounds: int


MODELS = {
    spec.name: spec
    for spec in (
        ModelSpec("S", 512, 8, 8, 1408, 8192, 64, False, 4, 21),
        ModelSpec("S-decode", 512, 8, 8, 1408, 8192, 64, True, 8, 21),
        ModelSpec("M", 1024, 12, 16, 2816, 32000, 128, False, 1, 15),
    )
}


def build(spec: ModelSpec) -> Any:
    """Returns the LlamaForCausalLM of `spec` in eval mode, weights from seed 0."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=spec.hidden,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        num_key_value_heads=spec.heads,
        intermediate_size=spec.feed_forward,
        vocab_size=spec.vocabulary,
        max_position_embeddings=2048,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config).eval()


def twin(model: Any) -> Any:
    """Returns a second model over the same parameters and buffers, so that both have the same cache behaviour."""
    shared = {id(tensor): tensor for tensor in [*model.parameters(), *model.buffers()]}
    return copy.deepcopy(model, shared)


class Stepper:
    """Runs single steps of a bench model, with a fresh KV cache for each burst of decode steps."""

    def __init__(self, spec: ModelSpec, model: Any) -> None:
        """Fills the cache of decode steps with `model`, which must have no hooks."""
        import torch

        generator = torch.Generator().manual_seed(1)
        self._decode = spec.decode
        self._prompt = torch.randint(0, spec.vocabulary, (1, spec.prompt), generator=generator)
        self._token = self._prompt[:, :1]
        self._filled: Optional[Any] = None
        self._cache: Optional[Any] = None
        if spec.decode:
            with torch.no_grad():
                self._filled = model(self._prompt, use_cache=True).past_key_values

    def begin(self) -> None:
        """Prepares a burst; not timed."""
        if self._decode:
            self._cache = copy.deepcopy(self._filled)

    def step(self, model: Any) -> Any:
        """Runs one forward of `model`; the caller holds `no_grad`."""
        if self._decode:
            return model(self._token, past_key_values=self._cache, use_cache=True)
        return model(self._prompt, use_cache=False)
