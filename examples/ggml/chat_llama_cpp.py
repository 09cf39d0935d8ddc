#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a prompt through llama-cpp-python and prints the tokens it chooses greedily.

    python examples/ggml/chat_llama_cpp.py MODEL.gguf --api low-level --callback watch
    assay dump -o OUT -- python examples/ggml/chat_llama_cpp.py MODEL.gguf

Prints `tokens 184 486 276 19` and `logits <sha256>`, the latter over those of the whole vocabulary, float32. Settings
as in chat.py. How the package is built: docs/design/ggml-engines.md
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import llama_cpp
import numpy as np

CACHE_TYPES = {"f32": 0, "f16": 1, "q8_0": 8}  # enum ggml_type
WATCHED = b"l_out-"


def class_logits(options: argparse.Namespace, prompt: list[int]) -> Iterator[np.ndarray]:
    """Logits after the prompt, then after each token that was chosen, through `llama_cpp.Llama`."""
    model = llama_cpp.Llama(
        str(options.model),
        n_ctx=options.context,
        n_threads=options.threads,
        n_threads_batch=options.threads,
        flash_attn=options.flash_attention,
        type_k=CACHE_TYPES[options.cache_type],
        type_v=CACHE_TYPES[options.cache_type],
        verbose=False,
    )
    tokens = prompt
    while True:
        model.eval(tokens)
        logits = llama_cpp.llama_get_logits(model.ctx)
        row = np.ctypeslib.as_array(logits, (model.n_vocab(),)).copy()
        yield row
        tokens = [int(row.argmax())]


def watcher(delivered: list[bytes]):
    """A callback of the host's own, for the output of each layer."""
    library = ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"))
    library.ggml_get_name.restype = ctypes.c_char_p
    library.ggml_get_name.argtypes = [ctypes.c_void_p]

    @llama_cpp.ggml_backend_sched_eval_callback
    def callback(tensor, ask, _user):
        name = library.ggml_get_name(tensor)
        if ask:
            return name.startswith(WATCHED)
        delivered.append(name)
        return True

    return callback


def low_level_logits(options: argparse.Namespace, prompt: list[int], delivered: list[bytes]) -> Iterator[np.ndarray]:
    """The same through the functions of llama.h."""
    llama_cpp.llama_backend_init()
    quiet = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(quiet, None)
    model = llama_cpp.llama_model_load_from_file(str(options.model).encode(), llama_cpp.llama_model_default_params())
    if not model:
        raise RuntimeError(f"the engine cannot load {options.model}")
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = options.context
    params.n_threads = params.n_threads_batch = options.threads
    params.type_k = params.type_v = CACHE_TYPES[options.cache_type]
    params.flash_attn_type = int(options.flash_attention)
    if options.callback == "watch":
        params.cb_eval = callback = watcher(delivered)  # noqa: F841 - it lives as long as the context
    context = llama_cpp.llama_init_from_model(model, params)
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    tokens = prompt
    while True:
        array = (llama_cpp.llama_token * len(tokens))(*tokens)  # the batch only points at it
        batch = llama_cpp.llama_batch_get_one(array, len(tokens))
        if (status := llama_cpp.llama_decode(context, batch)) != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        row = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), (vocabulary,)).copy()
        yield row
        tokens = [int(row.argmax())]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="GGUF file")
    parser.add_argument("--prompt", default="1,50,60,70,300", help="token ids (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=4, help="how many to generate (default: %(default)s)")
    parser.add_argument("--api", default="class", choices=["class", "low-level"])
    parser.add_argument("--callback", choices=["watch"], help="the host's own, with the low-level functions")
    parser.add_argument("--threads", type=int, default=1, help="of the engine (default: %(default)s)")
    parser.add_argument("--context", type=int, default=256, help="cells of the cache (default: %(default)s)")
    parser.add_argument("--cache-type", default="f32", choices=CACHE_TYPES)
    parser.add_argument("--flash-attention", action="store_true")
    parser.add_argument("--logits", type=Path, help=".npy file: float32 (tokens, vocabulary)")
    options = parser.parse_args()
    if options.callback and options.api == "class":
        parser.error("--callback needs --api low-level")

    prompt = [int(token) for token in options.prompt.split(",")]
    delivered: list[bytes] = []
    if options.api == "class":
        rows = class_logits(options, prompt)
    else:
        rows = low_level_logits(options, prompt, delivered)
    logits = np.stack(list(itertools.islice(rows, options.tokens)))
    print("tokens", *logits.argmax(-1))
    print("logits", hashlib.sha256(logits.tobytes()).hexdigest())
    if options.callback:
        print("delivered", b" ".join(delivered).decode())
    if options.logits:
        np.save(options.logits, logits)
    return 0


if __name__ == "__main__":
    sys.exit(main())
