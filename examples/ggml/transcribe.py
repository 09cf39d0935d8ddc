#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs whisper.cpp (wheel pywhispercpp) over noise, and prints the tokens it hears.

    python examples/ggml/transcribe.py MODEL.bin --seconds 1
    assay dump -o OUT -- python examples/ggml/transcribe.py MODEL.bin

Prints a line a segment: the ids of its tokens, and the SHA-256 of their probabilities, float32. The engine's functions
are called directly, without the package's own wrapper. Its messages go to stderr.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

import _pywhispercpp as whisper
import numpy as np


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="file in whisper.cpp's container")
    parser.add_argument("--seconds", type=float, default=1.0, help="of noise (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the noise (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=4, help="at most, in a segment (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of the engine (default: %(default)s)")
    parser.add_argument("--flash-attention", action="store_true")
    options = parser.parse_args()

    context_params = whisper.whisper_context_default_params()
    context_params.use_gpu = False
    context_params.flash_attn = options.flash_attention
    context = whisper.whisper_init_from_file_with_params(str(options.model), context_params)
    params = whisper.whisper_full_default_params(whisper.whisper_sampling_strategy.WHISPER_SAMPLING_GREEDY)
    params.n_threads = options.threads
    params.max_tokens = options.tokens
    params.single_segment = True
    params.no_timestamps = True
    params.temperature_inc = 0  # no second try of what sounds unlikely: everything does
    params.print_progress = params.print_realtime = params.print_timestamps = False
    noise = np.random.default_rng(options.seed).normal(size=int(options.seconds * whisper.WHISPER_SAMPLE_RATE))
    if (status := whisper.whisper_full(context, params, (noise / 10).astype(np.float32), noise.size)) != 0:
        print(f"transcribe: the engine returned {status}", file=sys.stderr)
        return 1
    for segment in range(whisper.whisper_full_n_segments(context)):
        count = whisper.whisper_full_n_tokens(context, segment)
        tokens = [whisper.whisper_full_get_token_id(context, segment, i) for i in range(count)]
        chances = [whisper.whisper_full_get_token_p(context, segment, i) for i in range(count)]
        print("tokens", *tokens, hashlib.sha256(np.array(chances, dtype=np.float32).tobytes()).hexdigest())
    whisper.whisper_free(context)
    return 0


if __name__ == "__main__":
    sys.exit(main())
