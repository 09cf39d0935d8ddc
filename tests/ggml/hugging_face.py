# SPDX-License-Identifier: Apache-2.0
"""What the modules of a Hugging Face model compute, and which nodes of ggml should hold the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from naive_capture import Node

LAYERS, HEAD = 4, 64


def load(folder: Path):
    import transformers

    transformers.utils.logging.disable_progress_bar()
    return transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()


def reference(model, prompt: list[int]) -> dict[str, np.ndarray]:
    """Float32 (token, channel) by place: "<module>" its output, "<module>:in" its input, "...self_attn:q" rotated."""
    import torch
    from transformers.models.llama import modeling_llama

    found: dict[str, np.ndarray] = {}

    def keep(name: str):
        def hook(module, inputs, output):
            value = output[0] if isinstance(output, tuple) else output
            if isinstance(value, torch.Tensor):
                found[name] = value[0].numpy().copy()
            if inputs and isinstance(inputs[0], torch.Tensor):
                found[name + ":in"] = inputs[0][0].numpy().copy()

        return hook

    hooks = [module.register_forward_hook(keep(name)) for name, module in model.named_modules()]
    with torch.no_grad():
        model(torch.tensor([prompt]))
        cos, sin = model.model.rotary_emb(torch.zeros(1), torch.arange(len(prompt))[None])
    for hook in hooks:
        hook.remove()
    for layer in range(LAYERS):
        path = f"model.layers.{layer}.self_attn"
        query, key = (
            torch.tensor(found[f"{path}.{which}_proj"]).view(1, len(prompt), -1, HEAD).transpose(1, 2) for which in "qk"
        )
        # Llama's and Qwen2's functions are the same.
        for which, turned in zip("qk", modeling_llama.apply_rotary_pos_emb(query, key, cos, sin)):
            found[f"{path}:{which}"] = turned[0].transpose(0, 1).reshape(len(prompt), -1).numpy()
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


class PromptGraph:
    """The nodes of a prompt's graph, and what they hold in Hugging Face's order of channels."""

    def __init__(self, nodes: list[Node], prompt: list[int], family: str):
        # The engine runs a graph to warm up first; the prompt's is the one with its tokens.
        (graph,) = {node.graph for node in nodes if node.name == "embd" and node.ne[1] == len(prompt)}
        nodes = [node for node in nodes if node.graph == graph]
        self.family = family
        self.by_name = {(node.name, node.op): node for node in nodes}
        products = [node for node in nodes if node.sources[0].startswith("blk.")]
        self.by_name.update({(f"({node.sources[0]})", node.op): node for node in products})

    def rows(self, name: str, op: str, heads: bool) -> np.ndarray:
        """(token, channel); in the last layer, behind the attention, the last token alone."""
        node = self.by_name[name, op]
        rows = node.rows().reshape(node.ne[2] if op == "ROPE" else node.ne[1], -1)
        return halves_from_neighbours(rows) if heads and self.family == "llama" else rows


def difference(golden: np.ndarray, mine: np.ndarray) -> float:
    """Largest, in parts of the largest value; `mine` may have the last rows only."""
    golden = golden[-len(mine) :]
    return float(np.abs(golden - mine).max() / np.abs(golden).max())
