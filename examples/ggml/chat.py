#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a prompt through llama.cpp (wheel xllamacpp) and prints the tokens it chooses greedily.

    python examples/ggml/chat.py MODEL.gguf --prompt 1,50,60,70,300 --tokens 4
    assay dump -o OUT -- python examples/ggml/chat.py MODEL.gguf

One request prints `tokens 184 486 276 19` and `logprobs <sha256>`, the latter over those of the whole vocabulary.
Before the first prompt the engine's server runs a graph of two tokens of its own. The settings are those of an exact
comparison with Hugging Face: float32 cache, no flash attention. The engine's own messages go to stderr.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

import numpy as np
import xllamacpp

CACHE_TYPES = ["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]


def load(options: argparse.Namespace) -> xllamacpp.Server:
    params = xllamacpp.CommonParams()
    params.model.path = str(options.model)
    params.cache_type_k = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{options.cache_type.upper()}")
    values = options.value_cache_type or options.cache_type
    params.cache_type_v = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{values.upper()}")
    flash = xllamacpp.llama_flash_attn_type
    params.flash_attn_type = (
        flash.LLAMA_FLASH_ATTN_TYPE_ENABLED if options.flash_attention else flash.LLAMA_FLASH_ATTN_TYPE_DISABLED
    )
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    params.n_ctx = options.context
    params.n_batch = params.n_ubatch = options.chunk
    params.n_parallel = 1
    params.warmup = options.warmup
    params.verbosity = 0
    return xllamacpp.Server(params)


def complete(
    server: xllamacpp.Server, prompt: list[int], count: int, vocabulary: int, cache_prompt: bool = False
) -> tuple[list[int], np.ndarray]:
    """The chosen tokens and their log-probabilities, float64 of shape (count, vocabulary), in the order of token ids.

    The engine reports tokens whose bytes are no whole UTF-8 character together with the next: rows that it left out are
    the last ones, NaN, and the tokens are fewer.
    """
    reply = server.handle_completions(
        {
            "prompt": prompt,
            "n_predict": count,
            "temperature": 0,
            "ignore_eos": True,
            "n_probs": vocabulary,
            "cache_prompt": cache_prompt,
        }
    )
    if "choices" not in reply:
        raise RuntimeError(f"the engine refused: {reply}")
    steps = (reply["choices"][0]["logprobs"] or {"content": []})["content"]  # None when it reports no token at all
    logprobs = np.full((count, vocabulary), np.nan)
    for row, step in zip(logprobs, steps):
        for entry in step["top_logprobs"]:
            row[entry["id"]] = entry["logprob"]
    return [step["id"] for step in steps], logprobs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="GGUF file")
    parser.add_argument("--prompt", default="1,50,60,70,300", help="token ids (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=4, help="how many to generate (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=1, help="how often the prompt is asked (default: %(default)s)")
    parser.add_argument("--contexts", type=int, default=1, help="the model is loaded so often (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of the engine (default: %(default)s)")
    parser.add_argument("--context", type=int, default=256, help="cells of the cache (default: %(default)s)")
    parser.add_argument("--chunk", type=int, default=256, help="tokens of a prompt in one graph (default: %(default)s)")
    parser.add_argument("--cache-type", default="f32", choices=CACHE_TYPES, help="of keys and values (default: f32)")
    parser.add_argument("--value-cache-type", choices=CACHE_TYPES, help="of values, where it is another one")
    parser.add_argument("--flash-attention", action="store_true")
    parser.add_argument("--warmup", action="store_true", help="one more graph of two tokens before the first prompt")
    parser.add_argument("--vocabulary", type=int, default=512, help="size of the model's (default: %(default)s)")
    parser.add_argument("--logprobs", type=Path, help=".npy file: float64 (requests, tokens, vocabulary)")
    options = parser.parse_args()

    prompt = [int(token) for token in options.prompt.split(",")]
    servers = [load(options) for _ in range(options.contexts)]
    results = []
    for _ in range(options.requests):
        for server in servers:
            tokens, logprobs = complete(server, prompt, options.tokens, options.vocabulary)
            results.append(logprobs)
            print("tokens", *tokens)
            print("logprobs", hashlib.sha256(logprobs.tobytes()).hexdigest(), flush=True)
    if options.logprobs:
        np.save(options.logprobs, np.stack(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
