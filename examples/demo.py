#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small Llama generates four tokens twice; the second time it is wrong. Assay names the first wrong operator.

Golden: fp32, captured operator by operator. Mine: bf16 with a planted fault, the weight of one RMSNorm times 1.03,
captured module by module. A process each. Random weights, fixed seed, no download.

    python examples/demo.py [OUTPUT_FOLDER]
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

FAULTY = "model.layers.5.input_layernorm"


def generate(side: str, folder: str) -> None:
    """Runs one side and leaves its dump below `folder`."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=12,
        num_attention_heads=8,
        num_key_value_heads=4,
        vocab_size=2048,
        max_position_embeddings=256,
        pad_token_id=0,
    )
    # With these weights both precisions choose the same tokens by a wide margin: all steps compare like with like.
    torch.manual_seed(2033)
    model = LlamaForCausalLM(config).eval()
    if side == "mine":
        with torch.no_grad():
            model.get_submodule(FAULTY).weight *= 1.03
        model = model.to(torch.bfloat16)
    prompt = torch.arange(1, 33).unsqueeze(0)

    import assay

    level = "operator" if side == "golden" else "module"
    with torch.no_grad(), assay.capture(model, folder, level=level, weights=True, steps=[0, 1, 2, 3]):
        tokens = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=4, do_sample=False)
    print(f"{side}: generated {tokens[0, 32:].tolist()}, captured in {folder}", flush=True)


def main() -> int:
    """Runs both sides and the comparison; returns 0 when a wrong operator was named."""
    output = Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output")
    if output.exists():
        shutil.rmtree(output)
    for side in ("golden", "mine"):
        subprocess.run([sys.executable, __file__, "--side", side, str(output / side)], check=True)
    print(f"\nplanted fault: {FAULTY}.weight * 1.03\n", flush=True)
    command = ["assay", "compare", str(output / "golden"), str(output / "mine"), "-o", str(output)]
    named = subprocess.run(command, check=False).returncode == 1  # a wrong operator is named
    return 0 if named else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--side"]:
        generate(sys.argv[2], sys.argv[3])
    else:
        sys.exit(main())
