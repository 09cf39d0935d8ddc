# SPDX-License-Identifier: Apache-2.0
"""Two prompts at once in one server of llama.cpp: its graphs hold tokens of both.

python tests/ggml/two_requests.py MODEL.gguf TOKENS PROMPT PROMPT
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import xllamacpp

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "ggml"))

from chat import complete

VOCABULARY = 512


def main() -> int:
    model, count, *prompts = sys.argv[1:]
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.n_ctx, params.n_batch, params.n_ubatch = 512, 256, 256
    params.n_parallel = len(prompts)
    params.kv_unified = True
    params.warmup = False
    params.verbosity = 0
    server = xllamacpp.Server(params)
    together = threading.Barrier(len(prompts))

    def ask(prompt: str) -> None:
        together.wait()
        complete(server, [int(token) for token in prompt.split(",")], int(count), VOCABULARY)

    threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
