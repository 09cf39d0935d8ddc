# SPDX-License-Identifier: Apache-2.0
"""What the nodes of llama.cpp hold, by their names, is what the modules of Hugging Face compute: the facts that pairing
stands on (src/compare/match/ggml_names.cpp). The nodes come from a naive probe, not from ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from naive_capture import Node, naive_capture

CHAT = Path(__file__).resolve().parents[2] / "examples" / "ggml" / "chat.py"
PROMPT = [1, 50, 60, 70, 300]
LAYERS, HEAD = 4, 64


def reference(folder: Path) -> dict[str, np.ndarray]:
    """Float32 (token, channel) by place: "<module>" its output, "<module>:in" its input, "...self_attn:q" rotated."""
    import torch
    import transformers
    from transformers.models.llama import modeling_llama

    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    found: dict[str, np.ndarray] = {}

    def keep(name: str):
        def hook(module, inputs, output):
            value = output[0] if isinstance(output, tuple) else output
            if isinstance(value, torch.Tensor):
                found[name] = value[0].numpy().copy()
            if inputs and isinstance(inputs[0], torch.Tensor):
                found[name + ":in"] = inputs[0][0].numpy().copy()

        return hook

    for name, module in model.named_modules():
        module.register_forward_hook(keep(name))
    with torch.no_grad():
        model(torch.tensor([PROMPT]))
        cos, sin = model.model.rotary_emb(torch.zeros(1), torch.arange(len(PROMPT))[None])
    for layer in range(LAYERS):
        path = f"model.layers.{layer}.self_attn"
        query, key = (
            torch.tensor(found[f"{path}.{which}_proj"]).view(1, len(PROMPT), -1, HEAD).transpose(1, 2) for which in "qk"
        )
        # Llama's and Qwen2's functions are the same.
        for which, turned in zip("qk", modeling_llama.apply_rotary_pos_emb(query, key, cos, sin)):
            found[f"{path}:{which}"] = turned[0].transpose(0, 1).reshape(len(PROMPT), -1).numpy()
    return found


def halves_from_neighbours(rows: np.ndarray) -> np.ndarray:
    """Undoes the converter's order of a head's channels; rows: (token, heads * HEAD)."""
    return rows.reshape(len(rows), -1, HEAD // 2, 2).swapaxes(2, 3).reshape(rows.shape)


def table(biased: bool) -> list[tuple[str, str, str, bool]]:
    """(place, node's name, operator, whether its channels are a head's of queries or keys)"""
    projected = "ADD" if biased else "MUL_MAT"
    rows = [("model.embed_tokens", "embd", "GET_ROWS", False)]
    for n in range(LAYERS):
        layer = f"model.layers.{n}"
        rows += [
            (f"{layer}.input_layernorm", f"attn_norm-{n}", "MUL", False),
            (f"{layer}.self_attn.q_proj", f"Qcur-{n}", projected, True),
            (f"{layer}.self_attn.k_proj", f"Kcur-{n}", projected, True),
            (f"{layer}.self_attn.v_proj", f"Vcur-{n}", projected, False),
            (f"{layer}.self_attn:q", f"Qcur-{n}", "ROPE", True),
            (f"{layer}.self_attn:k", f"Kcur-{n}", "ROPE", True),
            (f"{layer}.self_attn.o_proj:in", f"kqv_out-{n}", "CONT", False),
            # Qwen2's graph leaves the product without a name; it is the one with this weight.
            (f"{layer}.self_attn.o_proj", f"(blk.{n}.attn_output.weight)", "MUL_MAT", False),
            (f"{layer}.post_attention_layernorm:in", f"ffn_inp-{n}", "ADD", False),
            (f"{layer}.post_attention_layernorm", f"ffn_norm-{n}", "MUL", False),
            (f"{layer}.mlp.gate_proj", f"ffn_gate-{n}", "MUL_MAT", False),
            (f"{layer}.mlp.up_proj", f"ffn_up-{n}", "MUL_MAT", False),
            (f"{layer}.mlp.down_proj:in", f"ffn_swiglu-{n}", "GLU", False),
            (f"{layer}.mlp.down_proj", f"ffn_out-{n}", "MUL_MAT", False),
            (f"{layer}.mlp", f"ffn_out-{n}", "MUL_MAT", False),
            (layer, f"l_out-{n}", "ADD", False),
        ]
    return [*rows, ("model.norm", "result_norm", "MUL", False), ("lm_head", "result_output", "MUL_MAT", False)]


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_nodes_hold_what_the_modules_compute(family, request, llama_engine, naive_probe, tmp_path):
    models = request.getfixturevalue("models" if family == "llama" else "qwen2_models")
    prompt = ",".join(map(str, PROMPT))
    command = [sys.executable, CHAT, models["f32"], "--prompt", prompt, "--tokens", 1]

    nodes, _ = naive_capture(naive_probe, tmp_path / "nodes", command)

    # The engine runs a graph to warm up first; the prompt's is the one with its tokens.
    (graph,) = {node.graph for node in nodes if node.name == "embd" and node.ne[1] == len(PROMPT)}
    nodes = [node for node in nodes if node.graph == graph]
    by_name: dict[tuple[str, str], Node] = {(node.name, node.op): node for node in nodes}
    by_name.update({(f"({node.sources[0]})", node.op): node for node in nodes if node.sources[0].startswith("blk.")})
    if family == "llama":
        assert by_name["attn_out-0", "MUL_MAT"] is by_name["(blk.0.attn_output.weight)", "MUL_MAT"]
    golden = reference(models["hf"])
    for place, name, op, heads in table(biased=family == "qwen2"):
        node = by_name[name, op]
        mine = node.rows().reshape(node.ne[2] if op == "ROPE" else node.ne[1], -1)
        if heads and family == "llama":
            mine = halves_from_neighbours(mine)
        # In the last layer, behind the attention, there is one row: the last token's.
        want = golden[place][-len(mine) :]
        assert len(mine) in (1, len(PROMPT))
        assert np.abs(want - mine).max() / np.abs(want).max() < 1e-5, (place, name, op)


def test_the_naive_probe_changes_nothing(models, llama_engine, naive_probe, tmp_path):
    command = [sys.executable, str(CHAT), str(models["q8_0"]), "--flash-attention", "--cache-type", "f16"]
    plain = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    _, probed = naive_capture(naive_probe, tmp_path / "nodes", command)

    assert probed == plain
