# SPDX-License-Identifier: Apache-2.0
"""The program that bench/ggml_capture.py measures: llama.cpp of the wheel xllamacpp, prompts of one length answered."""

from __future__ import annotations

import argparse

import xllamacpp


def main() -> None:
    """Loads the model once and asks it the same prompt again and again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--prompt", type=int, default=16, help="tokens")
    parser.add_argument("--tokens", type=int, default=500, help="of an answer; 1: the prompt alone is computed")
    parser.add_argument("--requests", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    params.n_ctx = 1024
    params.n_batch = params.n_ubatch = 512
    params.n_parallel = 1
    params.warmup = False
    params.verbosity = 0
    server = xllamacpp.Server(params)
    for number in range(options.requests):
        # The engine keeps the cache of a prompt that it knows: each begins differently.
        prompt = [1, 300 + number % 100, *range(400, 398 + options.prompt)]
        answer = server.handle_completions(
            {
                "prompt": prompt,
                "n_predict": options.tokens,
                "temperature": 0,
                "ignore_eos": True,
                "cache_prompt": False,
            }
        )
        if "choices" not in answer:
            raise RuntimeError(f"the engine refused: {answer}")


if __name__ == "__main__":
    main()
