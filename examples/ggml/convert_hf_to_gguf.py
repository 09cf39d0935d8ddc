#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Converts a checkpoint of Gemma, Llama, Mistral, Mixtral, Qwen2, Qwen3 or Phi-3 to GGUF, for programs that read it.

    python examples/ggml/convert_hf_to_gguf.py HF_DIR OUT.gguf --type q8_0

`assay twin` writes its GGUF files with the same converter (assay.twin.gguf_file).
"""

from __future__ import annotations

import sys

from assay.twin.gguf_file import main

if __name__ == "__main__":
    sys.exit(main())
