# SPDX-License-Identifier: Apache-2.0
"""Where things are in a model: found by what modules are, not by a list of names for each family."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Optional

import torch

_FEED_FORWARD = re.compile(r"(MLP|Mlp|FeedForward|FFN|MoE|MoeBlock|MoeMLP|SparseMoe\w*|TextMoe)$|SparseMoe", re.ASCII)
_ROUTER = re.compile(r"Router|Gate$|Gating|TopK", re.ASCII)
_MIXER = re.compile(r"Attention|Mixer|DeltaNet", re.ASCII)


@dataclass(frozen=True)
class Places:
    """Paths of modules by what they do. Those of a layer are relative to it.

    Attributes:
        layer: path of a decoder layer, with "{}" for its number.
        layers: how many there are.
        norms: with a weight or an epsilon of their own; those right below the layer first.
        linears: one matrix each, in the order of the model: usually queries first, the end of the feed-forward last.
        attention: the module whose forward holds the attention core or the state space; "" without one.
        mlp: the feed-forward part.
        activation: the activation as a module; "" when it is a function.
        router: the module that chooses experts.
        rotary: path in the model of the module that makes the tables of rotary positions.
        biased: linears that have a bias.
        head: path in the model of the matrix that makes the logits.
        embedding: path in the model of the table of tokens.
    """

    layer: str
    layers: int
    norms: tuple[str, ...]
    linears: tuple[str, ...]
    attention: str
    mlp: str
    activation: str
    router: str
    rotary: str
    biased: tuple[str, ...]
    head: str
    embedding: str


def of(model: Any, layer: Optional[int] = None) -> Places:
    """Places of a model; of hybrid ones, as the layer with this number has them (the last but one when None)."""
    path, stack = _layers(model)
    number = max(0, len(stack) - 2) if layer is None else layer
    inside = [(name, module) for name, module in stack[number].named_modules() if name]
    linears = [name for name, module in inside if is_linear(module)]
    return Places(
        layer=path + ".{}",
        layers=len(stack),
        norms=tuple(sorted((name for name, module in inside if is_norm(module)), key=lambda name: name.count("."))),
        linears=tuple(linears),
        attention=_attention(inside),
        mlp=_first(inside, _FEED_FORWARD),
        activation=next((n for n, module in inside if _is_activation(module) and "experts" not in n), ""),
        router=_router(inside),
        rotary=next((name for name, module in model.named_modules() if _is_rotary(module)), ""),
        biased=tuple(name for name in linears if stack[number].get_submodule(name).bias is not None),
        head=_path_of(model, model.get_output_embeddings()),
        embedding=_path_of(model, model.get_input_embeddings()),
    )


def is_linear(module: torch.nn.Module) -> bool:
    """Whether it is one matrix: torch's Linear, or GPT-2's with its weight the other way round."""
    weight = getattr(module, "weight", None)
    named = isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D"
    matrix = isinstance(weight, torch.Tensor) and weight.dim() == 2
    return named and matrix and not _ROUTER.search(type(module).__name__)


def is_norm(module: torch.nn.Module) -> bool:
    """Whether it normalises: a leaf that is called so."""
    return "Norm" in type(module).__name__ and not any(True for _ in module.children())


def is_router(path: str, module: torch.nn.Module) -> bool:
    """Whether it scores experts with one matrix."""
    weight = getattr(module, "weight", None)
    routes = path.rpartition(".")[2] in ("gate", "router") or re.search(r"Router|TopK", type(module).__name__)
    return bool(routes) and isinstance(weight, torch.Tensor) and weight.dim() == 2 and 2 <= weight.shape[0] <= 256


def is_transposed(module: torch.nn.Module) -> bool:
    """Whether its weight is stored [in, out]."""
    return type(module).__name__ == "Conv1D"


def is_embedding(module: torch.nn.Module) -> bool:
    """Whether it is a table: of tokens or positions."""
    return isinstance(module, torch.nn.Embedding)


def _is_rotary(module: torch.nn.Module) -> bool:
    return isinstance(getattr(module, "inv_freq", None), torch.Tensor)


def _is_activation(module: torch.nn.Module) -> bool:
    bare = not any(True for _ in module.children()) and not any(True for _ in module.parameters())
    name = type(module).__name__
    return bare and bool(re.search(r"GELU|SiLU|ReLU|Activation|Tanh|Sigmoid|Mish|Swish", name))


def _layers(model: torch.nn.Module) -> tuple[str, torch.nn.ModuleList]:
    """The list of layers: of all lists of modules the one with the most parameters, and the outermost of these."""
    lists = [
        (sum(p.numel() for p in module.parameters()), -path.count("."), path, module)
        for path, module in model.named_modules()
        if isinstance(module, torch.nn.ModuleList) and len(module)
    ]
    if not lists:
        raise ValueError(f"{type(model).__name__} has no list of layers")
    _, _, path, module = max(lists, key=lambda found: found[:2])
    return path, module


def _attention(inside: list[tuple[str, torch.nn.Module]]) -> str:
    """The innermost module that is called so and is no leaf: BERT's has its projections two levels down."""
    found = [
        (name.count("."), name)
        for name, module in inside
        if _MIXER.search(type(module).__name__) and any(is_linear(child) for child in module.children())
    ]
    return max(found, key=lambda one: one[0], default=(0, ""))[1]


def _first(inside: list[tuple[str, torch.nn.Module]], pattern: re.Pattern[str]) -> str:
    return next((name for name, module in inside if pattern.search(type(module).__name__)), "")


def _router(inside: list[tuple[str, torch.nn.Module]]) -> str:
    for name, module in inside:
        weight = getattr(module, "weight", None)
        last = name.rpartition(".")[2]
        named = last in ("gate", "router") or bool(_ROUTER.search(type(module).__name__))
        if named and isinstance(weight, torch.Tensor) and weight.dim() == 2 and weight.shape[0] <= 64:
            return name
    for name, module in inside:
        if re.search(r"Router|TopK|Gating", type(module).__name__) and any(True for _ in module.parameters()):
            return name
    return ""


def _path_of(model: torch.nn.Module, wanted: Optional[torch.nn.Module]) -> str:
    return next((name for name, module in model.named_modules() if module is wanted), "") if wanted is not None else ""
