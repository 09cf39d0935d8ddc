# SPDX-License-Identifier: Apache-2.0
"""What the nodes of llama.cpp hold, by their names, is what the modules of Hugging Face compute: the facts that pairing
stands on (src/pair/ggml_names.cpp). The nodes come from a naive probe, not from ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hugging_face import PromptGraph, difference, load, reference, table
from naive_capture import naive_capture

CHAT = Path(__file__).resolve().parents[2] / "examples" / "ggml" / "chat.py"
PROMPT = [1, 50, 60, 70, 300]


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_nodes_hold_what_the_modules_compute(family, request, llama_engine, naive_probe, tmp_path):
    models = request.getfixturevalue("models" if family == "llama" else "qwen2_models")
    prompt = ",".join(map(str, PROMPT))
    command = [sys.executable, CHAT, models["f32"], "--prompt", prompt, "--tokens", 1]

    nodes, _ = naive_capture(naive_probe, tmp_path / "nodes", command)

    graph = PromptGraph(nodes, PROMPT, family)
    if family == "llama":
        assert graph.by_name["attn_out-0", "MUL_MAT"] is graph.by_name["(blk.0.attn_output.weight)", "MUL_MAT"]
    golden = reference(load(models["hf"]), PROMPT)
    for place, name, op, heads in table(biased=family == "qwen2"):
        mine = graph.rows(name, op, heads)
        assert len(mine) in (1, len(PROMPT))
        assert difference(golden[place], mine) < 1e-5, (place, name, op)


def test_the_naive_probe_changes_nothing(models, llama_engine, naive_probe, tmp_path):
    command = [sys.executable, str(CHAT), str(models["q8_0"]), "--flash-attention", "--cache-type", "f16"]
    plain = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    _, probed = naive_capture(naive_probe, tmp_path / "nodes", command)

    assert probed == plain
