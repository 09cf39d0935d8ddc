# SPDX-License-Identifier: Apache-2.0
"""One model on two sides: examples/atb_host in float16 and Hugging Face's Llama in float32, over the same weights.

What a tensor *is* can be told from its place on either side without looking at its values; tests hold every pair of a
report against that (golden_meaning, mine_meaning).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import torch
from assay_command import run


def host_program() -> Path:
    build = Path(os.environ.get("ASSAY_BUILD_DIR", "build/release")).absolute()
    program = build / "examples" / "atb_host" / "atb_host_abi1"
    assert program.exists(), f"{program} is not built; set ASSAY_BUILD_DIR to a build with ASSAY_BUILD_TESTS=ON"
    return program


def save_weights(folder: Path, *arguments) -> tuple[list[int], list[int]]:
    """Writes the host's model into the folder; returns the prompt and the tokens that the host generates."""
    folder.mkdir(parents=True)
    done = subprocess.run(
        [host_program(), *map(str, arguments), "--save-weights", folder], capture_output=True, text=True, check=True
    )
    (prompt,) = json.loads((folder / "prompts.json").read_text())
    return prompt, [int(token) for token in done.stdout.splitlines()[0].split()[1:]]


def load_model(folder: Path, dtype=torch.float32):
    import transformers

    transformers.utils.logging.disable_progress_bar()
    model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    return model.eval()


def generate(model, prompt: list[int], count: int) -> list[int]:
    ids = torch.tensor([prompt])
    result = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, pad_token_id=0
    )
    return result[0, len(prompt) :].tolist()


def capture_tree(model, prompt, count, folder: Path) -> Path:
    """The hook dump of the old API; returns its {device}_{pid} folder."""
    from assay.torch.strict import DumpConfig, register_hook, remove_hooks, reset

    os.environ.pop("ATB_TIMESTAMP", None)
    reset()
    try:
        register_hook(model, DumpConfig(dump_path=str(folder), token_range=list(range(count))))
        generate(model, prompt, count)
        remove_hooks()
    finally:
        reset()
    (rank,) = folder.glob("*/torch_tensors/*")
    return rank


def capture_native(model, prompt, count, folder: Path) -> Path:
    import assay

    with assay.capture(model, str(folder), steps=list(range(count))):
        generate(model, prompt, count)
    return folder


def dump_host(folder: Path, *arguments) -> Path:
    """Runs the host under `assay dump`; returns the msit_dump_... folder."""
    words = ["--host", "atb", "--layout", "strict", "--type", "tensor", "model", "layer", "-er", "all"]
    done = run("dump", *words, "-o", folder, "--", host_program(), *arguments)
    assert done.returncode == 0, done.stderr
    (root,) = folder.glob("msit_dump_*")
    return root


# ---- what a tensor is ----
#
# Two tensors belong together exactly when their meanings are equal: "h0" are the hidden states before layer 0, "0.q" is
# what its q_proj returns, "last normed" the last row of the final norm, and so on.

_PARTS = {  # of a torch layer: what goes in, what comes out
    "": ("h{i}", "h{next}"),
    "input_layernorm": ("h{i}", "{i}.normed"),
    "self_attn": ("{i}.normed", "{i}.attention"),
    "self_attn.q_proj": ("{i}.normed", "{i}.q"),
    "self_attn.k_proj": ("{i}.normed", "{i}.k"),
    "self_attn.v_proj": ("{i}.normed", "{i}.v"),
    "self_attn.o_proj": ("{i}.attended", "{i}.attention"),
    "post_attention_layernorm": ("{i}.residual", "{i}.normed again"),
    "mlp": ("{i}.normed again", "{i}.mlp"),
    "mlp.gate_proj": ("{i}.normed again", "{i}.gate"),
    "mlp.up_proj": ("{i}.normed again", "{i}.up"),
    "mlp.act_fn": ("{i}.gate", "{i}.activated"),
    "mlp.down_proj": ("{i}.gated", "{i}.mlp"),
}


def golden_meaning(module: str, role: str, slot: str, layers: int) -> str | None:
    """What a tensor of the torch model is; None for what is not in the tables.

    module: "model.layers.0.mlp", "" for the root; role: "input" or "output"; slot: "0", "1", "kwargs.x", "" for "0".
    """
    if slot.startswith("kwargs.position_embeddings."):
        return {"0": "cos", "1": "sin"}[slot[-1]]
    if slot.startswith("kwargs."):
        slot = {"input_ids": "ids", "position_ids": "positions", "hidden_states": "0"}.get(slot[7:], "unknown")
        if slot != "0":
            return None if slot == "unknown" else slot
    slot = slot or "0"
    if match := re.fullmatch(r"model\.layers\.(\d+)\.?(.*)", module):
        i = int(match[1])
        if slot != "0" or match[2] not in _PARTS:
            return None
        return _PARTS[match[2]][role == "output"].format(i=i, next=i + 1)
    return {
        ("model.embed_tokens", "input", "0"): "ids",
        ("model.embed_tokens", "output", "0"): "h0",
        ("model.rotary_emb", "input", "0"): "h0",
        ("model.rotary_emb", "output", "0"): "cos",
        ("model.rotary_emb", "output", "1"): "sin",
        ("model.norm", "input", "0"): f"h{layers}",
        ("model.norm", "output", "0"): "normed",
        ("model", "output", "last_hidden_state"): "normed",
        ("lm_head", "input", "0"): "last normed",
        ("lm_head", "output", "0"): "logits",
        ("", "output", "logits"): "logits",
    }.get((module, role, slot))


_STEP = {
    "Prefill": ["cos", "sin", "slots", "seq_len", "mask"],
    "Decoder": ["cos", "sin", "slots", "seq_len", "block_tables", "context_lens"],
}


class HostModel:
    """Where the host computes what: {node path: (meanings of its inputs, of its outputs)}, without the ids in front.

    A part of a tensor that is spread over ranks has the meaning of the whole.
    """

    def __init__(self, layers=2, packed=False, bias=True, quantised=False, ranks=1):
        self.layers, self.packed, self.bias, self.quantised, self.ranks = layers, packed, bias, quantised, ranks
        # ids: the embeddings, the layers, with --packed the final norm, the head, the sort inside it
        self.operations = layers + (5 if packed else 4)

    def weights(self, i, *stems):
        names = []
        for stem in stems:
            names += [f"{i}.{stem} weight"]
            names += [f"{i}.{stem} bias"] * (self.bias and stem in ("q", "k", "v", "qkv"))
            names += [f"{i}.{stem} scale"] * self.quantised
        return names

    def linear(self, nodes, path, i, stem, source, target):
        name = "LinearQuantOperation" if self.quantised else "LinearOperation"
        nodes[path + name] = ([source, *self.weights(i, stem)], [target])

    def row_parallel(self, nodes, folder, number, i, stem, source, target):
        self.linear(nodes, f"{folder}{number}_", i, stem, source, target)
        if self.ranks > 1:
            nodes[f"{folder}{number + 1}_AllReduceOperation"] = ([target], [target])

    def layer(self, i, phase):
        nodes = {}
        step, caches = _STEP[phase], [f"{i}.key_cache", f"{i}.value_cache"]
        projections = ["qkv"] if self.packed else ["q", "k", "v"]
        attention = self.weights(i, *projections, "o")
        mlp = self.weights(i, *(["gate_up"] if self.packed else ["gate", "up"]), "down")
        norms = [f"{i}.input_norm weight"], [f"{i}.post_norm weight"]
        nodes[""] = ([f"h{i}", *norms[0], *attention, *norms[1], *mlp, *step, *caches], [f"h{i + 1}"])
        normed, again = f"{i}.normed", f"{i}.normed again"
        rope = ([f"{i}.q", f"{i}.k", "cos", "sin", "seq_len"], [f"{i}.q rotated", f"{i}.k rotated"])
        if self.packed:
            att, ffn = "0_Attention/", "2_Mlp/"
            pack = att + "0_QKVLinearSplitPack"
            linear = self.weights(i, "qkv")
            nodes["0_Attention"] = ([f"h{i}", *norms[0], *attention, *step, *caches], [f"{i}.attention"])
            nodes[pack] = ([f"h{i}", *norms[0], *linear], [f"{i}.q", f"{i}.k", f"{i}.v"])
            nodes[pack + "/0_NormLinear"] = ([f"h{i}", *norms[0], *linear], [f"{i}.qkv"])
            nodes[pack + "/0_NormLinear/0_RmsNormOperation"] = ([f"h{i}", *norms[0]], [normed])
            self.linear(nodes, pack + "/0_NormLinear/1_", i, "qkv", normed, f"{i}.qkv")
            nodes[pack + "/1_SplitOperation"] = ([f"{i}.qkv"], [f"{i}.q", f"{i}.k", f"{i}.v"])
            nodes[att + "1_RotaryPositionEmbedding"] = rope
            nodes[att + "1_RotaryPositionEmbedding/0_RopeOperation"] = rope
            first = 2
            nodes["1_ElewiseOperation"] = ([f"h{i}", f"{i}.attention"], [f"{i}.residual"])
            nodes["2_Mlp"] = ([f"{i}.residual", *norms[1], *mlp], [f"{i}.mlp"])
            nodes[ffn + "0_RmsNormOperation"] = ([f"{i}.residual", *norms[1]], [again])
            self.linear(nodes, ffn + "1_", i, "gate_up", again, f"{i}.gate_up")
            nodes[ffn + "2_SplitOperation"] = ([f"{i}.gate_up"], [f"{i}.gate", f"{i}.up"])
            nodes["3_ElewiseOperation"] = ([f"{i}.residual", f"{i}.mlp"], [f"h{i + 1}"])
        else:
            att, ffn = "1_Attention/", "4_Mlp/"
            nodes["0_RmsNormOperation"] = ([f"h{i}", *norms[0]], [normed])
            nodes["1_Attention"] = ([normed, *attention, *step, *caches], [f"{i}.attention"])
            for number, stem in enumerate("qkv"):
                self.linear(nodes, f"{att}{number}_", i, stem, normed, f"{i}.{stem}")
            nodes[att + "3_RopeOperation"] = rope
            first = 4
            nodes["2_ElewiseOperation"] = ([f"h{i}", f"{i}.attention"], [f"{i}.residual"])
            nodes["3_RmsNormOperation"] = ([f"{i}.residual", *norms[1]], [again])
            nodes["4_Mlp"] = ([again, *mlp], [f"{i}.mlp"])
            self.linear(nodes, ffn + "0_", i, "gate", again, f"{i}.gate")
            self.linear(nodes, ffn + "1_", i, "up", again, f"{i}.up")
            nodes["5_ElewiseOperation"] = ([f"{i}.residual", f"{i}.mlp"], [f"h{i + 1}"])
        cached = [f"{i}.k rotated", f"{i}.v", *caches, "slots"]
        nodes[f"{att}{first}_ReshapeAndCacheOperation"] = (cached, [f"{i}.new key_cache", f"{i}.new value_cache"])
        core = f"{att}{first + 1}_" + ("SelfAttentionOperation" if phase == "Prefill" else "PagedAttentionOperation")
        if phase == "Prefill":
            ins = [f"{i}.q rotated", f"{i}.k rotated", f"{i}.v", "mask", "seq_len"]
        else:
            ins = [f"{i}.q rotated", f"{i}.new key_cache", f"{i}.new value_cache", "block_tables", "context_lens"]
        nodes[core] = (ins, [f"{i}.attended"])
        self.row_parallel(nodes, att, first + 2, i, "o", f"{i}.attended", f"{i}.attention")
        start = 3 if self.packed else 2
        nodes[f"{ffn}{start}_ActivationOperation"] = ([f"{i}.gate"], [f"{i}.activated"])
        nodes[f"{ffn}{start + 1}_ElewiseOperation"] = ([f"{i}.activated", f"{i}.up"], [f"{i}.gated"])
        self.row_parallel(nodes, ffn, start + 2, i, "down", f"{i}.gated", f"{i}.mlp")
        return nodes

    def head(self):
        nodes = {}
        last, final = f"last h{self.layers}", "last normed"
        if self.packed:
            nodes[""] = (["normed", "head weight"], ["logits", "next"])
            nodes["0_IfOperation"] = (["normed"], [final])
        else:
            nodes[""] = ([f"h{self.layers}", "norm weight", "head weight"], ["logits", "next"])
            nodes["0_IfOperation"] = ([f"h{self.layers}"], [last])
            nodes["1_RmsNormOperation"] = ([last, "norm weight"], [final])
        at = 1 if self.packed else 2
        nodes[f"{at}_LinearOperation"] = ([final, "head weight"], ["logits"])
        nodes[f"{at + 1}_GreedySearch"] = (["logits"], ["next"])
        return nodes

    def meaning(self, path: str, role: str, index: int) -> str | None:
        """path: "2_Prefill_layer/1_Attention/0_LinearOperation", also of a kernel below an operation."""
        first, _, inside = path.partition("/")
        number, name = first.split("_", 1)
        decoding = int(number) >= self.operations
        place = int(number) % self.operations
        phase = "Decoder" if decoding else "Prefill"
        if name.endswith("_layer"):
            nodes = self.layer(place - 2, phase)
        elif name == "LmHead":
            nodes = self.head()
        else:
            embedding = (["cos table", "sin table", "positions"], ["cos", "sin"])
            words = (["embedding", "ids"], ["h0"])
            nodes = {
                "WordEmbedding": {"": words, "0_GatherOperation": words},
                "PositionalEmbedding": {
                    "": embedding,
                    "0_GatherOperation": (["cos table", "positions"], ["cos"]),
                    "1_GatherOperation": (["sin table", "positions"], ["sin"]),
                },
                "RmsNormOperation": {"": ([f"h{self.layers}", "norm weight"], ["normed"])},
                "SortOperation": {"": (["logits"], ["best logit", "next"])},
            }[name]
        node, kernel = inside, ""
        if inside.endswith("Kernel"):
            node, _, kernel = inside.rpartition("/")
        ins, outs = nodes[node]
        if kernel and self.has_two_kernels(ins):
            product = outs[0] + " product"
            scale = ins[3:]
            ins, outs = (ins[:2] + scale, [product]) if kernel.startswith("0_") else ([product, ins[2]], outs)
        text = (ins if role == "input" else outs)[index]
        # A step of one token has no other rows than the last.
        return text.removeprefix("last ") if decoding else text

    def has_two_kernels(self, ins):
        return self.bias and len(ins) > 2 and ins[2].endswith(" bias")
