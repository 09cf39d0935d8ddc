# SPDX-License-Identifier: Apache-2.0
"""Two prompts, one after the other, in a server of llama.cpp that keeps what it has in its cache.

python tests/ggml/two_prompts.py MODEL.gguf PROMPT PROMPT TOKENS
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "ggml"))

from chat import complete, load

VOCABULARY = 512


def main() -> int:
    model, first, second, count = sys.argv[1:]
    options = argparse.Namespace(
        model=model, cache_type="f32", value_cache_type=None, flash_attention=False, threads=1, context=256, chunk=256,
        warmup=False,
    )  # fmt: skip
    server = load(options)
    for prompt, tokens in ((first, 1), (second, int(count))):
        complete(server, [int(token) for token in prompt.split(",")], tokens, VOCABULARY, cache_prompt=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
