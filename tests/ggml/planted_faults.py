# SPDX-License-Identifier: Apache-2.0
"""Faults of conversions and ports, each planted in one place of the tiny Llama.

A fault edits a checkpoint of Hugging Face. What is converted from it is a faulty GGUF beside a healthy checkpoint; the
edited checkpoint itself is a faulty model beside a healthy GGUF.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tiny_llama import SIZES

HEAD = SIZES["hidden_size"] // SIZES["num_attention_heads"]

Weights = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Fault:
    name: str
    edit: Callable[[dict, Weights], None]  # of config.json, of the parameters
    module: str  # where the Hugging Face model goes wrong first
    node: tuple[str, str]  # where the ggml graph does: name, operator

    def plant(self, healthy: Path, folder: Path) -> Path:
        """Writes the faulty checkpoint; returns its folder."""
        shutil.copytree(healthy, folder)
        config = json.loads((healthy / "config.json").read_text())
        weights = load_file(healthy / "model.safetensors")
        self.edit(config, weights)
        (folder / "config.json").write_text(json.dumps(config))
        save_file({name: value.contiguous() for name, value in weights.items()}, folder / "model.safetensors",
                  metadata={"format": "pt"})  # fmt: skip
        return folder


def set_rope_base(config: dict, weights: Weights) -> None:
    config["rope_parameters"]["rope_theta"] = 50000.0


def set_epsilon(config: dict, weights: Weights) -> None:
    config["rms_norm_eps"] = 1e-2


def swap_heads(name: str):
    def edit(config: dict, weights: Weights) -> None:
        rows = weights[name].clone()
        weights[name][:HEAD], weights[name][HEAD : 2 * HEAD] = rows[HEAD : 2 * HEAD], rows[:HEAD]

    return edit


def zero_block(name: str):
    """One block of 32 values in the middle of one row, as a torn file has it."""

    def edit(config: dict, weights: Weights) -> None:
        weights[name][weights[name].shape[0] // 2, 64:96] = 0

    return edit


def scale(name: str, factor: float):
    def edit(config: dict, weights: Weights) -> None:
        weights[name] *= factor

    return edit


def drop_norm_weight(config: dict, weights: Weights) -> None:
    weights["model.layers.2.post_attention_layernorm.weight"][:] = 1


def swap_gate_and_up(config: dict, weights: Weights) -> None:
    gate, up = (f"model.layers.1.mlp.{which}_proj.weight" for which in ("gate", "up"))
    weights[gate], weights[up] = weights[up], weights[gate]


def transpose_output(config: dict, weights: Weights) -> None:
    weights["model.layers.1.self_attn.o_proj.weight"] = weights["model.layers.1.self_attn.o_proj.weight"].T


def shift_embeddings(config: dict, weights: Weights) -> None:
    weights["model.embed_tokens.weight"] = weights["model.embed_tokens.weight"].roll(1, 0)


FAULTS = [
    Fault("wrong_rope_base", set_rope_base, "model.layers.0.self_attn", ("Qcur-0", "ROPE")),
    Fault("wrong_epsilon", set_epsilon, "model.layers.0.input_layernorm", ("norm-0", "RMS_NORM")),
    Fault("swapped_query_heads", swap_heads("model.layers.2.self_attn.q_proj.weight"),
          "model.layers.2.self_attn.q_proj", ("Qcur-2", "MUL_MAT")),
    Fault("swapped_key_heads", swap_heads("model.layers.1.self_attn.k_proj.weight"),
          "model.layers.1.self_attn.k_proj", ("Kcur-1", "MUL_MAT")),
    Fault("swapped_value_heads", swap_heads("model.layers.3.self_attn.v_proj.weight"),
          "model.layers.3.self_attn.v_proj", ("Vcur-3", "MUL_MAT")),
    Fault("bad_block", zero_block("model.layers.1.mlp.down_proj.weight"),
          "model.layers.1.mlp.down_proj", ("ffn_out-1", "MUL_MAT")),
    Fault("bad_block_of_the_head", zero_block("lm_head.weight"), "lm_head", ("result_output", "MUL_MAT")),
    Fault("missing_scale", scale("model.layers.2.mlp.up_proj.weight", 1.1),
          "model.layers.2.mlp.up_proj", ("ffn_up-2", "MUL_MAT")),
    Fault("dropped_norm_weight", drop_norm_weight, "model.layers.2.post_attention_layernorm", ("ffn_norm-2", "MUL")),
    Fault("swapped_gate_and_up", swap_gate_and_up, "model.layers.1.mlp.gate_proj", ("ffn_gate-1", "MUL_MAT")),
    Fault("transposed_output", transpose_output, "model.layers.1.self_attn.o_proj", ("attn_out-1", "MUL_MAT")),
    Fault("shifted_embeddings", shift_embeddings, "model.embed_tokens", ("embd", "GET_ROWS")),
]  # fmt: skip


def expert(layer: int, number: int, matrix: str) -> str:
    return f"model.layers.{layer}.block_sparse_moe.experts.{number}.{matrix}.weight"


def exchange(pairs: list[tuple[str, str]]):
    def edit(config: dict, weights: Weights) -> None:
        for one, other in pairs:
            weights[one], weights[other] = weights[other], weights[one]

    return edit


def roll_router(config: dict, weights: Weights) -> None:
    weights["model.layers.2.block_sparse_moe.gate.weight"] = weights[
        "model.layers.2.block_sparse_moe.gate.weight"
    ].roll(1, 0)


def use_one_expert(config: dict, weights: Weights) -> None:
    config["num_experts_per_tok"] = 1


# Of a Mixtral with four experts, of which a token uses two.
EXPERT_FAULTS = [
    Fault("experts_in_another_order", exchange([(expert(1, 0, "w2"), expert(1, 3, "w2"))]),
          "model.layers.1.mlp.experts", ("ffn_moe_out-1", "ADD")),
    Fault("swapped_gate_and_up_of_experts",
          exchange([(expert(2, number, "w1"), expert(2, number, "w3")) for number in range(4)]),
          "model.layers.2.mlp.experts", ("ffn_moe_out-2", "ADD")),
    Fault("bad_block_of_an_expert", zero_block(expert(1, 2, "w1")),
          "model.layers.1.mlp.experts", ("ffn_moe_out-1", "ADD")),
    Fault("missing_scale_of_an_expert", scale(expert(3, 1, "w3"), 1.1),
          "model.layers.3.mlp.experts", ("ffn_moe_out-3", "ADD")),
    Fault("router_of_other_experts", roll_router, "model.layers.2.mlp.gate", ("ffn_moe_logits-2", "MUL_MAT")),
    Fault("one_expert_too_few", use_one_expert, "model.layers.0.mlp.experts", ("ffn_moe_weights-0", "GET_ROWS")),
]  # fmt: skip


@dataclass(frozen=True)
class ModelFault:
    """A fault of a port: the loaded model of Hugging Face computes wrongly, its weights are right."""

    name: str
    apply: Callable[[torch.nn.Module], None]
    place: str  # of hugging_face.table()


def see_the_future(model: torch.nn.Module) -> None:
    def hook(module, arguments, named):
        return arguments, {**named, "attention_mask": torch.zeros_like(named["attention_mask"])}

    model.model.layers[1].self_attn.register_forward_pre_hook(hook, with_kwargs=True)


def forget_scale(model: torch.nn.Module) -> None:
    model.model.layers[2].self_attn.scaling = 1.0


def gelu_for_silu(model: torch.nn.Module) -> None:
    model.model.layers[1].mlp.act_fn = torch.nn.GELU()


def drop_residual(model: torch.nn.Module) -> None:
    def hook(module, arguments, output):
        return output - arguments[0]

    model.model.layers[2].register_forward_hook(hook)


def add_epsilon_outside(model: torch.nn.Module) -> None:
    norm = model.model.layers[1].post_attention_layernorm
    norm.forward = lambda x: norm.weight * x / (x.pow(2).mean(-1, keepdim=True).sqrt() + 0.01)


MODEL_FAULTS = [
    ModelFault("missing_mask", see_the_future, "model.layers.1.self_attn.o_proj:in"),
    ModelFault("missing_attention_scale", forget_scale, "model.layers.2.self_attn.o_proj:in"),
    ModelFault("gelu_for_silu", gelu_for_silu, "model.layers.1.mlp.down_proj:in"),
    ModelFault("dropped_residual", drop_residual, "model.layers.2"),
    ModelFault("epsilon_outside_the_root", add_epsilon_outside, "model.layers.1.post_attention_layernorm"),
]
