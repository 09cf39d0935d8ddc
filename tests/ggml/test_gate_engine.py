# SPDX-License-Identifier: Apache-2.0
"""`assay gate` with golden in transformers and mine in llama.cpp: one command, each host found by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from test_ggml_engines import CHAT, PROMPT

COMMAND = os.environ.get("ASSAY_BINARY", "assay")
GENERATE = """
import sys, torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], attn_implementation="eager").eval()
prompt = torch.tensor([[int(token) for token in sys.argv[2].split(",")]])
with torch.no_grad():
    model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=4, do_sample=False, pad_token_id=0)
"""


def test_an_engine_is_judged_by_its_graphs(models, llama_engine, tmp_path: Path) -> None:
    prompt = ",".join(map(str, PROMPT))
    (tmp_path / "generate.py").write_text(GENERATE)
    twin = tmp_path / "twin"
    twin.mkdir()
    (twin / "twin.json").write_text("{}")
    (twin / "model.gguf").symlink_to(models["f32"])
    golden = f"{sys.executable} generate.py {models['hf']} {prompt}"
    mine = f"{sys.executable} {CHAT} {{gguf}} --prompt {prompt} --tokens 4"

    done = subprocess.run(
        [COMMAND, "gate", twin, "--golden", golden, "--mine", mine, "--format", "json"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    outcome = json.loads(done.stdout)
    coverage = outcome["coverage"]
    # The capture has the weights, too: each counts once, as the file's.
    assert coverage["weights"] == coverage["weights_compared"] == 39
    assert outcome["tokens"]["positions"] == 4
    assert outcome["tokens"]["kl_max"] < 1e-9
    assert not list(tmp_path.glob("assay-gate-*"))
