# SPDX-License-Identifier: Apache-2.0
"""The same function written otherwise: other weights, other modules, other operators, for healthy pairs.

A rewriting changes a copy of the model in place. It is one only where the logits stay what they were: `rewritten()`
checks that in fp64. What it is about stands in KINDS; families that lack what it needs raise NoFault.
"""

from __future__ import annotations

import copy
import inspect
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Callable

import torch
from torch import nn

from assay.twin.places import Places, is_norm, of
from bench.faults.faults import NoFault

EQUAL = 1e-6  # relative L2 of logits in fp64, of weights in fp32
EQUAL_IN_FP32 = 2e-5
SHIFT = 11  # positions


def is_conv1d(module: nn.Module) -> bool:
    """GPT-2's linear layer, whose weight is [in, out]."""
    return type(module).__name__ == "Conv1D"


def rows_of(linear: nn.Module) -> torch.Tensor:
    """The matrix as [out, in], a view of the parameter."""
    weight = linear.get_parameter("weight").data
    return weight.t() if is_conv1d(linear) else weight


def bias_of(linear: nn.Module) -> torch.Tensor:
    """The bias, [out]; made where there is none."""
    if getattr(linear, "bias", None) is None:
        linear.register_parameter("bias", nn.Parameter(torch.zeros_like(rows_of(linear)[:, 0])))
    return linear.get_parameter("bias").data


@dataclass(frozen=True)
class Attention:
    """The matrices around an attention core, as [out, in], with their biases.

    Attributes:
        heads, groups: of queries, and of keys and values.
    """

    module: nn.Module
    query: nn.Module
    key: nn.Module
    value: nn.Module
    out: nn.Module
    heads: int
    groups: int

    @property
    def width(self) -> int:
        """Of a head of values."""
        return rows_of(self.value).shape[0] // self.groups


def attentions(model: nn.Module) -> Iterator[Attention]:
    """Of every layer that has queries, keys and values in matrices of their own."""
    found = False
    for module in model.modules():
        children = dict(module.named_children())
        query, key, value = (children.get(f"{letter}_proj") for letter in "qkv")
        out = children.get("o_proj") or children.get("out_proj") or children.get("dense")
        if query is None or key is None or value is None or out is None or not hasattr(module, "head_dim"):
            continue
        width = module.head_dim
        heads, groups = rows_of(query).shape[0] // width, rows_of(key).shape[0] // width
        if rows_of(value).shape[0] == groups * width and rows_of(out).shape[1] == heads * width:
            found = True
            yield Attention(module, query, key, value, out, heads, groups)
    if not found:
        raise NoFault("no attention with matrices of its own")


def feed_forwards(model: nn.Module) -> Iterator[tuple[list[nn.Module], nn.Module, nn.Module]]:
    """([matrices whose outputs are multiplied or activated], the one that is linear in the result, the last one)."""
    found = False
    for module in model.modules():
        children = dict(module.named_children())
        gate, up, down = (children.get(f"{name}_proj") for name in ("gate", "up", "down"))
        if all(isinstance(one, nn.Linear) for one in (gate, up, down)):
            assert gate is not None and up is not None and down is not None
            found = True
            yield [gate, up], up, down
    if not found:
        raise NoFault("no gated feed-forward part")


def readers_of_norms(model: nn.Module) -> dict[str, list[str]]:
    """Paths of the linear layers that are given a norm's result as it is, by the norm's path."""
    made: dict[tuple[Any, ...], tuple[str, torch.Tensor]] = {}
    readers: dict[str, list[str]] = {}
    handles = []

    def key(tensor: torch.Tensor) -> tuple[Any, ...]:
        return tensor.data_ptr(), tensor.shape

    def keep(path: str) -> Callable[..., None]:
        return lambda module, inputs, output: made.update({key(output): (path, output)})

    def look(path: str) -> Callable[..., None]:
        def note(_: nn.Module, inputs: tuple[Any, ...]) -> None:
            if key(inputs[0]) in made:
                readers[made[key(inputs[0])][0]].append(path)

        return note

    for path, module in model.named_modules():
        if is_norm(module) and getattr(module, "weight", None) is not None:
            readers[path] = []
            handles.append(module.register_forward_hook(keep(path)))
        elif isinstance(module, nn.Linear) or is_conv1d(module):
            handles.append(module.register_forward_pre_hook(look(path)))
    with torch.no_grad():
        model(input_ids=torch.arange(1, 9)[None], use_cache=False)
    for handle in handles:
        handle.remove()
    return {path: found for path, found in readers.items() if found}


def _one(norm: nn.Module) -> float:
    """What a norm's weight is that does nothing: 0 where it adds one to it."""
    probe = copy.deepcopy(norm).double()
    weight = probe.get_parameter("weight").data
    x = torch.linspace(-1, 2, weight.shape[0], dtype=torch.float64)[None]
    with torch.no_grad():
        weight.fill_(0)
        if getattr(probe, "bias", None) is not None:
            probe.get_parameter("bias").data.fill_(0)
        return 0.0 if float(probe(x).abs().max()) > 0 else 1.0


def _fold(norm: nn.Module, linears: list[nn.Module], into: float = 0.0) -> None:
    """Moves the norm's weight into the matrices behind it; `into` is what is left of it, 0 for ones."""
    one = _one(norm)
    weight = norm.get_parameter("weight").data
    factor = (weight + (1 - one)) / (into or 1.0)
    shift = norm.get_parameter("bias").data.clone() if getattr(norm, "bias", None) is not None else None
    for linear in linears:
        if shift is not None and not into:
            bias_of(linear).add_(rows_of(linear) @ shift)
        rows_of(linear).mul_(factor)
    weight.fill_((into or 1.0) - (1 - one))
    if shift is not None and not into:
        norm.get_parameter("bias").data.zero_()
    elif shift is not None:
        norm.get_parameter("bias").data.div_(factor)


def _untied(model: Any) -> None:
    head, table = model.get_output_embeddings(), model.get_input_embeddings()
    if head is not None and head.weight is table.weight:
        head.weight = nn.Parameter(head.weight.detach().clone())


def folded_norms(model: nn.Module, places: Places) -> None:
    """Norms' weights in the matrices behind them."""
    _untied(model)
    found = {path: names for path, names in readers_of_norms(model).items() if path.startswith(places.layer[:-2])}
    if not found:
        raise NoFault("no norm in front of matrices")
    for path, names in found.items():
        _fold(model.get_submodule(path), [model.get_submodule(name) for name in names])


def folded_head(model: nn.Module, places: Places) -> None:
    """The last norm's weight in the matrix that makes the logits."""
    _untied(model)
    found = {path: names for path, names in readers_of_norms(model).items() if names == [places.head]}
    if not found:
        raise NoFault("no norm in front of the head")
    for path, names in found.items():
        _fold(model.get_submodule(path), [model.get_submodule(name) for name in names])


def scaled_queries(model: nn.Module, _: Places) -> None:
    """Queries times 4, keys by 4."""
    for one in attentions(model):
        for linear, factor in ((one.query, 4.0), (one.key, 0.25)):
            rows_of(linear).mul_(factor)
            if getattr(linear, "bias", None) is not None:
                bias_of(linear).mul_(factor)


def prescaled_queries(model: nn.Module, _: Places) -> None:
    """The scale of attention in the matrix of queries."""
    for one in attentions(model):
        if not isinstance(getattr(one.module, "scaling", None), float):
            raise NoFault("no scale")
        rows_of(one.query).mul_(one.module.scaling)
        if getattr(one.query, "bias", None) is not None:
            bias_of(one.query).mul_(one.module.scaling)
        one.module.scaling = 1.0


def scaled_values(model: nn.Module, _: Places) -> None:
    """Values times 3, what mixes them by 3."""
    for one in attentions(model):
        rows_of(one.value).mul_(3.0)
        if getattr(one.value, "bias", None) is not None:
            bias_of(one.value).mul_(3.0)
        rows_of(one.out).div_(3.0)


def turned_values(model: nn.Module, _: Places) -> None:
    """Values of each head in another basis."""
    generator = torch.Generator().manual_seed(5)
    for one in attentions(model):
        turn, _r = torch.linalg.qr(torch.randn(one.width, one.width, generator=generator).double())
        turn = turn.to(rows_of(one.value).dtype)
        for group in range(one.groups):
            part = slice(group * one.width, (group + 1) * one.width)
            rows_of(one.value)[part] = turn @ rows_of(one.value)[part]
            if getattr(one.value, "bias", None) is not None:
                bias_of(one.value)[part] = turn @ bias_of(one.value)[part]
        for head in range(one.heads):
            part = slice(head * one.width, (head + 1) * one.width)
            rows_of(one.out)[:, part] = rows_of(one.out)[:, part] @ turn.t()


def permuted_heads(model: nn.Module, _: Places) -> None:
    """Heads in another order, with the output's columns."""
    for one in attentions(model):
        if one.groups < 2:
            raise NoFault("one head")
        order = torch.arange(one.groups).roll(1)
        share = one.heads // one.groups
        for linear, per_group in ((one.query, share * one.width), (one.key, one.width), (one.value, one.width)):
            rows = rows_of(linear).clone().unflatten(0, (one.groups, per_group))[order].flatten(0, 1)
            rows_of(linear).copy_(rows)
            if getattr(linear, "bias", None) is not None:
                bias_of(linear).copy_(bias_of(linear).clone().view(one.groups, per_group)[order].flatten())
        columns = rows_of(one.out).clone().unflatten(1, (one.groups, share * one.width))[:, order]
        rows_of(one.out).copy_(columns.flatten(1, 2))


def value_bias_folded(model: nn.Module, _: Places) -> None:
    """The bias of values in the bias behind attention: its weights sum to one."""
    for one in attentions(model):
        if getattr(one.value, "bias", None) is None:
            raise NoFault("no bias of values")
        bias = bias_of(one.value).unflatten(0, (one.groups, one.width)).repeat_interleave(one.heads // one.groups, 0)
        bias_of(one.out).add_(rows_of(one.out) @ bias.flatten())
        bias_of(one.value).zero_()


def key_bias_dropped(model: nn.Module, _: Places) -> None:
    """No bias of keys: it adds the same to all scores of a row, where keys are not turned by position."""
    for one in attentions(model):
        if getattr(one.key, "bias", None) is None:
            raise NoFault("no bias of keys")
        bias_of(one.key).zero_()


def scaled_feed_forward(model: nn.Module, _: Places) -> None:
    """Up times 5, down by 5."""
    for _first, up, down in feed_forwards(model):
        rows_of(up).mul_(5.0)
        if getattr(up, "bias", None) is not None:
            bias_of(up).mul_(5.0)
        rows_of(down).div_(5.0)


def negated_feed_forward(model: nn.Module, _: Places) -> None:
    """Up and down with the other sign."""
    for _first, up, down in feed_forwards(model):
        rows_of(up).neg_()
        if getattr(up, "bias", None) is not None:
            bias_of(up).neg_()
        rows_of(down).neg_()


def permuted_neurons(model: nn.Module, _: Places) -> None:
    """Neurons of the feed-forward part in another order."""
    for first, _up, down in feed_forwards(model):
        order = torch.arange(rows_of(down).shape[1]).flip(0)
        for linear in first:
            rows_of(linear).copy_(rows_of(linear)[order].clone())
            if getattr(linear, "bias", None) is not None:
                bias_of(linear).copy_(bias_of(linear)[order].clone())
        rows_of(down).copy_(rows_of(down)[:, order].clone())


def centred(model: nn.Module, places: Places) -> None:
    """No mean over channels in what is written to a residual that only LayerNorm reads."""
    norms = [module for module in model.modules() if is_norm(module)]
    if not all(isinstance(norm, nn.LayerNorm) for norm in norms) or not norms:
        raise NoFault("norms that see the mean")
    _untied(model)
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            module.weight.data.sub_(module.weight.data.mean(1, keepdim=True))
    width = model.get_submodule(places.embedding).weight.shape[1]
    for number in range(places.layers):
        layer = model.get_submodule(places.layer.format(number))
        for path in places.linears:
            linear = layer.get_submodule(path)
            last = path.rpartition(".")[2]
            if rows_of(linear).shape[0] != width or last not in _WRITERS:
                continue
            rows_of(linear).sub_(rows_of(linear).mean(0, keepdim=True))
            if getattr(linear, "bias", None) is not None:
                bias_of(linear).sub_(bias_of(linear).mean())


_WRITERS = ("c_proj", "o_proj", "out_proj", "dense", "dense_4h_to_h", "fc2", "fc_out", "down_proj")


class OnePlus(nn.Module):
    """RMSNorm with one added to its weight, all in float32, as Gemma has it."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight - 1)
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., width]."""
        wide = x.float() if x.dtype != torch.float64 else x
        made = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (made * (1.0 + self.weight.to(wide.dtype))).type_as(x)


class Plain(nn.Module):
    """RMSNorm with its weight as it is, in one operator."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone())
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., width]."""
        return nn.functional.rms_norm(x, self.weight.shape, self.weight, self.eps)


def _rms_norms(model: nn.Module) -> Iterator[tuple[str, torch.Tensor, float]]:
    """(path, weight, epsilon) of every RMSNorm with a weight."""
    found = False
    for path, module in list(model.named_modules()):
        if "RMSNorm" not in type(module).__name__ or getattr(module, "weight", None) is None:
            continue
        eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
        # Of a mixer there is one that is given a gate, too.
        if eps is None or len(inspect.signature(module.forward).parameters) != 1:
            continue
        found = True
        yield path, module.get_parameter("weight").data + (1 - _one(module)), float(eps)
    if not found:
        raise NoFault("no RMSNorm")


def one_plus(model: nn.Module, _: Places) -> None:
    """Norms that add one to their weight, with weights less one."""
    for path, weight, eps in _rms_norms(model):
        if _one(model.get_submodule(path)) == 0:
            raise NoFault("they add one already")
        model.set_submodule(path, OnePlus(weight, eps))


def one_operator(model: nn.Module, _: Places) -> None:
    """Norms as one operator, their weight as it is."""
    for path, weight, eps in _rms_norms(model):
        model.set_submodule(path, Plain(weight, eps))


class ByParts(nn.Module):
    """LayerNorm of several operators: E[x^2] - E[x]^2."""

    def __init__(self, norm: nn.LayerNorm) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., width]."""
        wide = x.float() if x.dtype != torch.float64 else x
        centred_x = wide - wide.mean(-1, keepdim=True)
        made = centred_x / torch.sqrt(centred_x.square().mean(-1, keepdim=True) + self.eps)
        return (made * self.weight + (0 if self.bias is None else self.bias)).type_as(x)


def norm_by_parts(model: nn.Module, _: Places) -> None:
    """LayerNorm written as several operators."""
    paths = [path for path, one in model.named_modules() if isinstance(one, nn.LayerNorm) and one.weight is not None]
    if not paths:
        raise NoFault("no LayerNorm")
    for path in paths:
        norm = model.get_submodule(path)
        assert isinstance(norm, nn.LayerNorm)
        model.set_submodule(path, ByParts(norm))


class Transposed(nn.Module):
    """A linear layer whose weight is [in, out]; `linear` is torch's or GPT-2's, the result the other one."""

    def __init__(self, linear: nn.Module) -> None:
        super().__init__()
        self.weight = nn.Parameter(rows_of(linear).t().contiguous())
        bias = getattr(linear, "bias", None)
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in] to [..., out]."""
        made = x @ self.weight
        return made if self.bias is None else made + self.bias


def _layer_linears(model: nn.Module, places: Places) -> list[str]:
    return [
        f"{places.layer.format(number)}.{path}" for number in range(places.layers) for path in of(model, number).linears
    ]


def transposed(model: nn.Module, places: Places) -> None:
    """Matrices of layers stored the other way round."""
    for path in _layer_linears(model, places):
        linear = model.get_submodule(path)
        if is_conv1d(linear):
            turned = nn.Linear(*rows_of(linear).t().shape)
            turned.weight, turned.bias = nn.Parameter(rows_of(linear).contiguous()), linear.bias
            model.set_submodule(path, turned)
        elif type(linear) is nn.Linear:
            model.set_submodule(path, Transposed(linear))


class Pieces(nn.Module):
    """One matrix as several, put together again."""

    def __init__(self, linear: nn.Module, sizes: list[int]) -> None:
        super().__init__()
        bias = getattr(linear, "bias", None)
        biases = [None] * len(sizes) if bias is None else list(bias.detach().split(sizes))
        self.parts = nn.ModuleList()
        for rows, one in zip(rows_of(linear).split(sizes), biases):
            part = nn.Linear(rows.shape[1], rows.shape[0], bias=one is not None)
            part.weight = nn.Parameter(rows.clone().contiguous())
            if one is not None:
                part.bias = nn.Parameter(one.clone())
            self.parts.append(part)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in] to [..., out]."""
        return torch.cat([part(x) for part in self.parts], dim=-1)


_FUSED = ("qkv_proj", "c_attn", "gate_up_proj", "query_key_value", "Wqkv")


def split_matrices(model: nn.Module, places: Places) -> None:
    """Matrices of queries, keys and values in parts."""
    fused = [path for path in _layer_linears(model, places) if path.rpartition(".")[2] in _FUSED]
    if not fused:
        raise NoFault("no matrix of several parts")
    for path in fused:
        linear = model.get_submodule(path)
        count = rows_of(linear).shape[0]
        parts = 2 if path.endswith("gate_up_proj") or count % 3 else 3
        model.set_submodule(path, Pieces(linear, [count // parts] * parts))


def merged_feed_forward(model: nn.Module, _: Places) -> None:
    """Gate and up as one matrix."""
    for module in list(model.modules()):
        children = dict(module.named_children())
        gate, up, down = (children.get(f"{name}_proj") for name in ("gate", "up", "down"))
        act = children.get("act_fn") or getattr(module, "act_fn", None)
        if not all(isinstance(one, nn.Linear) for one in (gate, up, down)) or act is None or len(children) > 4:
            continue
        assert isinstance(gate, nn.Linear) and isinstance(up, nn.Linear)
        both = nn.Linear(gate.in_features, 2 * gate.out_features, bias=gate.bias is not None)
        both.weight = nn.Parameter(torch.cat([gate.weight.data, up.weight.data]))
        if gate.bias is not None:
            both.bias = nn.Parameter(torch.cat([gate.bias.data, up.bias.data]))
        module.gate_up_proj = both
        del module.gate_proj, module.up_proj

        def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
            first, second = self.gate_up_proj(x).chunk(2, dim=-1)
            return torch.as_tensor(self.down_proj(self.act_fn(first) * second))

        module.forward = types.MethodType(forward, module)
    if not any(name.endswith("gate_up_proj") for name, _m in model.named_modules()):
        raise NoFault("no gated feed-forward part")


class InParts(nn.Module):
    """A matrix whose products are added up half by half."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in] to [..., out]."""
        half = x.shape[-1] // 2
        made = x[..., :half] @ self.weight[:, :half].t() + x[..., half:] @ self.weight[:, half:].t()
        return made if self.bias is None else made + self.bias


def summed_in_parts(model: nn.Module, _: Places) -> None:
    """The last matrix of the feed-forward part as a sum of two products."""
    for _first, _up, down in list(feed_forwards(model)):
        path = next(name for name, one in model.named_modules() if one is down)
        assert isinstance(down, nn.Linear)
        model.set_submodule(path, InParts(down))


def beside(model: nn.Module, places: Places) -> None:
    """A low-rank part of the first matrix of each layer beside it."""
    from bench.faults import ports

    generator = torch.Generator().manual_seed(9)
    for number in range(places.layers):
        path = f"{places.layer.format(number)}.{places.linears[0]}"
        linear = model.get_submodule(path)
        if type(linear) is not nn.Linear:
            raise NoFault("no torch.nn.Linear")
        part = ports.LowRank(linear, generator)
        linear.weight.data.sub_(part.lora_B["default"].weight.data @ part.lora_A["default"].weight.data)
        model.set_submodule(path, part)


def exact_tables(model: nn.Module, _: Places) -> None:
    """Tables of rotary positions computed in fp64 and rounded once."""
    found = False
    for module in model.modules():
        if not isinstance(getattr(module, "inv_freq", None), torch.Tensor) or not hasattr(module, "attention_scaling"):
            continue
        if "Llama4" in type(module).__name__:  # one table, of complex numbers
            continue
        found = True

        def forward(self: Any, x: torch.Tensor, position_ids: torch.Tensor, **_k: Any) -> tuple[torch.Tensor, ...]:
            angles = position_ids[..., None].double() * self.inv_freq.double()
            both = torch.cat((angles, angles), dim=-1)
            scale = self.attention_scaling
            return (both.cos() * scale).to(x.dtype), (both.sin() * scale).to(x.dtype)

        module.forward = types.MethodType(forward, module)
    if not found:
        raise NoFault("no tables")


def through_logarithms(model: nn.Module, _: Places) -> None:
    """Frequencies as exp(t) with t in float32, as engines make them: several ULP from a power's."""
    found = False
    for module in model.modules():
        frequencies = getattr(module, "inv_freq", None)
        if isinstance(frequencies, torch.Tensor):
            found = True
            frequencies.copy_(frequencies.double().log().float().exp())
    if not found:
        raise NoFault("no frequencies")


def biased_from_the_end(model: nn.Module, _: Places) -> None:
    """ALiBi counted from the last key: what is added differs by the same in each row."""
    found = False
    for module in model.modules():
        for name in ("build_alibi_tensor", "build_mpt_alibi_tensor"):
            made = getattr(module, name, None)
            if made is None:
                continue
            found = True

            def build(self: Any, *args: Any, _made: Callable[..., torch.Tensor] = made, **more: Any) -> torch.Tensor:
                alibi = _made(*args, **more)
                return alibi - (alibi[..., -1:] if alibi[..., -1:].abs().max() > 0 else alibi[..., :1])

            setattr(module, name, types.MethodType(build, module))
    if not found:
        raise NoFault("no ALiBi")


def permuted_experts(model: nn.Module, _: Places) -> None:
    """Experts in another order, with the router's rows."""
    found = False
    for module in model.modules():
        experts, gate = getattr(module, "experts", None), getattr(module, "gate", getattr(module, "router", None))
        stacked = {} if experts is None else dict(experts.named_parameters(recurse=False))
        if not stacked or gate is None or getattr(gate, "weight", None) is None:
            continue
        found = True
        order = torch.arange(gate.weight.shape[0]).roll(1)
        for parameter in [*stacked.values(), *gate.parameters(recurse=False)]:
            parameter.data.copy_(parameter.data[order].clone())
    if not found:
        raise NoFault("no stacked experts")


def interleaved(model: nn.Module, _: Places) -> None:
    """Rotary positions of neighbours, with the rows of queries and keys in that order."""
    source = sys.modules[type(model).__module__]
    for one in attentions(model):
        if not hasattr(one.module, "o_proj") or hasattr(one.module, "q_norm") or hasattr(one.module, "rotary_ndims"):
            raise NoFault("no attention as in Llama")
        width = one.module.head_dim
        order = torch.arange(width).view(2, width // 2).t().flatten()  # 0, d/2, 1, d/2 + 1 ...
        for linear in (one.query, one.key):
            heads = rows_of(linear).shape[0] // width
            rows_of(linear).copy_(rows_of(linear).clone().unflatten(0, (heads, width))[:, order].flatten(0, 1))
            if getattr(linear, "bias", None) is not None:
                bias_of(linear).copy_(bias_of(linear).clone().view(heads, width)[:, order].flatten())

        def forward(self: Any, hidden_states: torch.Tensor, position_embeddings: Any = None, **more: Any) -> Any:
            q = self.q_proj(hidden_states).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            k = self.k_proj(hidden_states).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            v = self.v_proj(hidden_states).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            half = self.head_dim // 2
            cos, sin = (table[:, None, :, :half].repeat_interleave(2, dim=-1) for table in position_embeddings)

            def turned(x: torch.Tensor) -> torch.Tensor:
                return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)

            q, k = ((x * cos + turned(x) * sin).to(v.dtype) for x in (q, k))
            cache = more.get("past_key_values")
            if cache is not None:
                k, v = cache.update(k, v, self.layer_idx)
            attend = source.ALL_ATTENTION_FUNCTIONS.get_interface(
                self.config._attn_implementation, source.eager_attention_forward
            )
            window = {"sliding_window": self.sliding_window} if hasattr(self, "sliding_window") else {}
            made, weights = attend(
                self, q, k, v, more.get("attention_mask"), dropout=0.0, scaling=self.scaling, **window
            )
            return self.o_proj(made.flatten(-2)), weights

        one.module.forward = types.MethodType(forward, one.module)


class Given:
    """A model that is called with more arguments; `drive.run` takes it for one."""

    def __init__(self, model: Any, **more: Any) -> None:
        self._model, self._more = model, more
        self.forward, self.config = model.forward, model.config

    def __call__(self, **given: Any) -> Any:
        """What the model returns."""
        return self._model(**given, **self._more)


def masked(model: Any, tokens: torch.Tensor) -> Given:
    """Called with a mask that hides nothing."""
    return Given(model, attention_mask=torch.ones_like(tokens))


def shifted(model: Any, tokens: torch.Tensor) -> Given:
    """Called with later positions, of which attention sees only differences."""
    return Given(model, position_ids=SHIFT + torch.arange(tokens.shape[1])[None])


def _nothing(model: nn.Module, places: Places) -> None:
    """Only the call differs."""


def _rotary_only(model: nn.Module, places: Places) -> None:
    if not places.rotary:
        raise NoFault("no rotary positions")


@dataclass(frozen=True)
class Rewriting:
    """A way to write the same function.

    Attributes:
        about: what mine has, in a few words.
        apply: changes mine in place, in fp32.
        called: how mine is called, where that differs.
    """

    about: str
    apply: Callable[[nn.Module, Places], None]
    called: Callable[[Any, torch.Tensor], Any] = lambda model, tokens: model


KINDS: Mapping[str, Rewriting] = {
    "folded-norms": Rewriting("norms folded into the matrices behind them", folded_norms),
    "folded-head": Rewriting("the last norm folded into the head", folded_head),
    "scaled-queries": Rewriting("queries times 4, keys by 4", scaled_queries),
    "prescaled-queries": Rewriting("attention's scale in the matrix of queries", prescaled_queries),
    "scaled-values": Rewriting("values times 3, the output's matrix by 3", scaled_values),
    "turned-values": Rewriting("values of each head in another basis", turned_values),
    "permuted-heads": Rewriting("heads in another order", permuted_heads),
    "value-bias": Rewriting("the bias of values behind attention", value_bias_folded),
    "key-bias": Rewriting("no bias of keys", key_bias_dropped),
    "scaled-feed-forward": Rewriting("up times 5, down by 5", scaled_feed_forward),
    "negated-feed-forward": Rewriting("up and down with the other sign", negated_feed_forward),
    "permuted-neurons": Rewriting("neurons in another order", permuted_neurons),
    "centred": Rewriting("what is written to the residual without its mean", centred),
    "one-plus": Rewriting("norms that add one to their weights", one_plus),
    "one-operator": Rewriting("norms as one operator", one_operator),
    "norm-by-parts": Rewriting("LayerNorm of several operators", norm_by_parts),
    "transposed": Rewriting("matrices stored the other way round", transposed),
    "split-matrices": Rewriting("queries, keys and values in matrices of their own", split_matrices),
    "merged-feed-forward": Rewriting("gate and up as one matrix", merged_feed_forward),
    "summed-in-parts": Rewriting("down as a sum of two products", summed_in_parts),
    "beside": Rewriting("a low-rank part of a matrix beside it", beside),
    "exact-tables": Rewriting("rotary tables in fp64, rounded once", exact_tables),
    "through-logarithms": Rewriting("frequencies through logarithms", through_logarithms),
    "from-the-end": Rewriting("ALiBi counted from the other end", biased_from_the_end),
    "permuted-experts": Rewriting("experts in another order", permuted_experts),
    "interleaved": Rewriting("rotary positions of neighbours", interleaved),
    "masked": Rewriting("called with a mask that hides nothing", _nothing, masked),
    "shifted": Rewriting("called with later positions", _rotary_only, shifted),
}


def _logits(called: Any, tokens: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(called(input_ids=tokens, use_cache=False)[0])


def rewritten(kind: str, model: nn.Module, tokens: torch.Tensor) -> nn.Module:
    """A copy of a model in fp32 that computes the same, written otherwise.

    Raises:
        NoFault: the model has nothing to write so, or computes something else then, as one with norms in between.
    """
    rewriting = KINDS[kind]
    port = copy.deepcopy(model)
    with torch.no_grad():
        rewriting.apply(port, of(port))
        try:
            wide = copy.deepcopy(port).double()
            made = _logits(rewriting.called(wide, tokens), tokens)
            right = _logits(copy.deepcopy(model).double(), tokens)
        except RuntimeError:  # grouped products have no fp64 kernel
            made, right = _logits(rewriting.called(port, tokens), tokens), _logits(model, tokens)
        difference = float((made - right).norm() / right.norm())
    if not difference < (EQUAL if right.dtype == torch.float64 else EQUAL_IN_FP32):
        raise NoFault(f"it computes something else ({difference:.2g})")
    return port
