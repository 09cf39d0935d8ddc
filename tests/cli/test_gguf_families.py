# SPDX-License-Identifier: Apache-2.0
"""`assay compare -w` of GGUF files of other families than Llama's.

The oracle of names is the gguf package's own table from Hugging Face's to GGUF's. What llama.cpp's converter does
to the numbers (order of rows, stacked experts, norms plus one) is done here by torch.
"""

from __future__ import annotations

import re

import gguf
import numpy as np
import pytest
import torch
import transformers
from assay_command import read_csv, run, the_report
from safetensors.torch import load_file, save_file
from test_gguf import write

ARCH = gguf.MODEL_ARCH
LAYERS, HEADS, KEY_HEADS, EXPERTS = 2, 4, 2, 3
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEY_HEADS,
    "vocab_size": 128,
    "max_position_embeddings": 64,
}
MOE = {**SIZES, "num_experts": EXPERTS, "moe_intermediate_size": 32}
NEOX = {name: SIZES[name] for name in SIZES if name != "num_key_value_heads"}

FAMILIES = {
    "mixtral": (ARCH.LLAMA, transformers.MixtralConfig, {**SIZES, "num_local_experts": EXPERTS}),
    "qwen2_moe": (ARCH.QWEN2MOE, transformers.Qwen2MoeConfig, {**MOE, "shared_expert_intermediate_size": 32}),
    "qwen3": (ARCH.QWEN3, transformers.Qwen3Config, {**SIZES, "head_dim": 16}),
    "qwen3_moe": (ARCH.QWEN3MOE, transformers.Qwen3MoeConfig, {**MOE, "head_dim": 16}),
    "phi3": (ARCH.PHI3, transformers.Phi3Config, {**SIZES, "pad_token_id": 0}),
    "gemma": (ARCH.GEMMA, transformers.GemmaConfig, {**SIZES, "head_dim": 16}),
    "gemma2": (ARCH.GEMMA2, transformers.Gemma2Config, {**SIZES, "head_dim": 16}),
    "gemma3": (ARCH.GEMMA3, transformers.Gemma3TextConfig, {**SIZES, "head_dim": 16}),
    "gpt_neox": (ARCH.GPTNEOX, transformers.GPTNeoXConfig, NEOX),
    "starcoder2": (ARCH.STARCODER2, transformers.Starcoder2Config, SIZES),
}
EXPERT = re.compile(r"(.*layers\.\d+\.(?:mlp|block_sparse_moe)\.experts)\.(\d+)\.(.*)")


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """The folder of a family's checkpoint as transformers saves it, random down to norms and biases."""
    made = {}

    def folder(family):
        if family not in made:
            _, config_class, sizes = FAMILIES[family]
            torch.manual_seed(1)
            model = transformers.AutoModelForCausalLM.from_config(config_class(**sizes))
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.normal_()
            made[family] = tmp_path_factory.mktemp(family)
            model.save_pretrained(made[family])
        return made[family]

    return folder


def as_stored(family, name, values):
    """What llama.cpp's converter makes of one parameter."""
    if family == "mixtral" and (heads := {"q_proj": HEADS, "k_proj": KEY_HEADS}.get(name.split(".")[-2])):
        # Neighbours, where the checkpoint pairs halves.
        return values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
    if family.startswith("gemma") and name.endswith("norm.weight"):
        return values + 1
    if "query_key_value" in name:  # head by head to all of Q, all of K, all of V
        return values.reshape(HEADS, 3, -1, *values.shape[1:]).swapaxes(0, 1).reshape(values.shape)
    if "shared_expert_gate" in name:  # axes of one are left out
        return values.squeeze()
    return values


def tensors_of(family, folder):
    """{name in the file: float32 array}"""
    names = gguf.get_tensor_name_map(FAMILIES[family][0], LAYERS)
    out, stacks = {}, {}
    for name, values in load_file(folder / "model.safetensors").items():
        values = as_stored(family, name, values)
        if expert := EXPERT.fullmatch(name):
            stacks.setdefault(f"{expert[1]}.{expert[3]}", {})[int(expert[2])] = values
            continue
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert stored, name
        out[stored] = values.float().numpy()
    for name, experts in stacks.items():
        stored = names.get_name(name, try_suffixes=(".weight",))
        assert stored, name
        out[stored] = torch.stack([experts[i] for i in range(EXPERTS)]).float().numpy()
    return out


def metadata(writer):
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)


def convert(family, tensors, path, kind=gguf.GGMLQuantizationType.F32):
    """kind: of the matrices and stacked matrices"""
    blocks = {
        name: (gguf.quants.quantize(values, kind if values.ndim > 1 else gguf.GGMLQuantizationType.F32),
               kind if values.ndim > 1 else gguf.GGMLQuantizationType.F32)
        for name, values in tensors.items()
    }  # fmt: skip
    return write(path, blocks, metadata, gguf.MODEL_ARCH_NAMES[FAMILIES[family][0]])


def compare(tmp_path, golden, mine, status=0):
    done = run("compare", "-w", "-gp", golden, "-mp", mine, "-o", tmp_path / "out", "--unmatched")
    assert done.returncode == status, done.stderr
    rows = {row["weight_name"]: row for row in read_csv(the_report(tmp_path / "out"))}
    return rows, read_csv(the_report(tmp_path / "out", "msit_cmp_unmatched_*.csv"))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_meets_its_own(tmp_path, checkpoints, family):
    folder = checkpoints(family)
    mine = convert(family, tensors_of(family, folder), tmp_path / "m.gguf")

    rows, unmatched = compare(tmp_path, folder, mine)

    assert unmatched == []
    saved = load_file(folder / "model.safetensors")
    assert set(saved) <= set(rows)
    assert all(extra.endswith("lm_head.weight") for extra in set(rows) - set(saved))  # tied
    for name, row in rows.items():
        # The one that norms have added costs a rounding of float32.
        limit = 1e-6 if family.startswith("gemma") and "norm" in name else 0
        assert float(row["max_absolute_error"]) <= limit, row


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "gpt_neox"])
def test_a_bad_block_is_named_in_its_matrix(tmp_path, checkpoints, family):
    folder = checkpoints(family)
    tensors = tensors_of(family, folder)
    mine = convert(family, tensors, tmp_path / "m.gguf", gguf.GGMLQuantizationType.Q8_0)
    healthy, _ = compare(tmp_path, folder, mine)
    assert all("unexplained" not in row["quantisation"] for row in healthy.values())

    stack, row_of_stack = ("blk.1.attn_qkv.weight", 65) if family == "gpt_neox" else ("blk.1.ffn_down_exps.weight", 65)
    damaged = tensors[stack].reshape(-1, tensors[stack].shape[-1])
    damaged[row_of_stack, :32] *= -1
    mine = convert(family, tensors, tmp_path / "bad.gguf", gguf.GGMLQuantizationType.Q8_0)
    rows, _ = compare(tmp_path / "bad", folder, mine)

    bad = {name: row["quantisation"] for name, row in rows.items() if "unexplained" in row["quantisation"]}
    (name,) = bad
    if family == "gpt_neox":
        assert name == "gpt_neox.layers.1.attention.query_key_value.weight"
        assert "(row 65)" in bad[name]
    else:  # the second expert's second row
        assert name.startswith("model.layers.1") and ".experts.1." in name
        assert "(row 1)" in bad[name]


def test_fused_experts_of_a_state_dict(tmp_path, checkpoints):
    """transformers 5 keeps the experts of a layer in two tensors, and someone may save these."""
    folder = checkpoints("qwen3_moe")
    mine = convert("qwen3_moe", tensors_of("qwen3_moe", folder), tmp_path / "m.gguf")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    fused = tmp_path / "fused"
    fused.mkdir()
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, fused / "model.safetensors")
    assert "model.layers.0.mlp.experts.gate_up_proj" in load_file(fused / "model.safetensors")

    rows, unmatched = compare(tmp_path, fused, mine)

    assert unmatched == []
    assert len([name for name in rows if ".experts." in name]) == LAYERS * EXPERTS * 3
    assert all(float(row["max_absolute_error"]) == 0 for row in rows.values())


def test_swapped_experts_are_seen(tmp_path, checkpoints):
    folder = checkpoints("mixtral")
    tensors = tensors_of("mixtral", folder)
    tensors["blk.0.ffn_up_exps.weight"] = tensors["blk.0.ffn_up_exps.weight"][np.array([1, 0, 2])]

    rows, _ = compare(tmp_path, folder, convert("mixtral", tensors, tmp_path / "m.gguf"))

    far = {name for name, row in rows.items() if float(row["cosine_similarity"]) < 0.5}
    assert far == {f"model.layers.0.block_sparse_moe.experts.{i}.w3.weight" for i in (0, 1)}
