# SPDX-License-Identifier: Apache-2.0
"""Kinds of faults, each planted in two forms.

visible  the model itself is changed: a weight, an attribute, a hook. The records show it: another weight, other or more
         operators.
hidden   a kernel computes something else (bench.faults.kernels): no operator more, and the records claim golden
         weights and arguments. What a wrong kernel looks like.

`strength` is 1 for the strong form of a kind; half of it is the weak one, 0.1 a tenth.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Callable, Optional

import torch

from assay.twin.places import Places
from bench.faults import kernels

Plant = Callable[["Site"], contextlib.AbstractContextManager[Optional[kernels.Kernels]]]


@dataclass
class Site:
    """Where and how strongly a fault is planted.

    Attributes:
        model: mine; changed in place by visible faults (it is a copy of its own).
        family: where things are in the layer.
        layer: number of the decoder layer.
        tokens, steps: what mine is run on; a fault may change it.
        between: called before each step of one token with its number and the cache.
    """

    model: torch.nn.Module
    family: Places
    layer: int
    strength: float
    hidden: bool
    tokens: Optional[torch.Tensor] = None
    steps: int = 0
    between: Optional[Callable[[int, Any], None]] = None

    @property
    def path(self) -> str:
        """Path of the decoder layer."""
        return self.family.layer.format(self.layer)

    def module(self, name: str) -> torch.nn.Module:
        """A module of the layer."""
        return self.model.get_submodule(f"{self.path}.{name}")


@dataclass(frozen=True)
class Kind:
    """One kind of fault.

    Attributes:
        target: where it sits: path below the layer; "" the layer itself; a path with "/" in front is one of the model.
        plant: context manager within which the model is captured.
        sized: whether `strength` means anything.
        forms: "visible", "hidden".
        needs: "decode", a cache; "far", large positions; "float32", mine in that type; "" nothing.
    """

    name: str
    group: str
    target: Callable[[Places], Optional[str]]
    plant: Plant
    sized: bool = True
    forms: tuple[str, ...] = ("visible", "hidden")
    needs: str = ""

    def place(self, site: Site) -> str:
        """Path of the module that the fault sits in."""
        target = self.target(site.family)
        assert target is not None
        if target.startswith("/"):
            return target[1:]
        return f"{site.path}.{target}" if target else site.path


@contextlib.contextmanager
def _beneath(site: Site, module: str, kernel: kernels.Kernel, own: bool = False) -> Iterator[kernels.Kernels]:
    with kernels.Kernels(site.model, module, kernel, own) as mode:
        yield mode


def _changed_weight(
    target: Callable[[Places], Optional[str]], name: str, change: Callable[[torch.Tensor, float], None]
) -> Plant:
    """`change` works in place on a copy of the parameter; visible: of the model's own."""

    @contextlib.contextmanager
    def plant(site: Site) -> Iterator[Optional[kernels.Kernels]]:
        path = target(site.family)
        module = site.model.get_submodule(f"{site.path}.{path}")
        parameter = getattr(module, name, None)
        if parameter is None:
            raise NoFault(f"no {name}")
        wrong = parameter.detach().clone()
        change(wrong, site.strength)
        if torch.equal(wrong, parameter):
            raise NoFault("rounded away")
        if not site.hidden:
            with torch.no_grad():
                parameter.copy_(wrong)
            yield None
        else:
            with _beneath(site, f"{site.path}.{path}", kernels.with_weight(parameter, wrong)) as mode:
                yield mode

    return plant


class NoFault(Exception):
    """The fault changes nothing here: no case."""


def _scale(weight: torch.Tensor, strength: float) -> None:
    weight.mul_(1 + 0.06 * strength)


def _scale_columns(weight: torch.Tensor, strength: float) -> None:
    weight[..., ::4] *= 1 + 0.2 * strength


def _zero_row(weight: torch.Tensor, strength: float) -> None:
    weight[weight.shape[0] // 3] *= 1 - min(1.0, strength)


def _one_element(weight: torch.Tensor, strength: float) -> None:
    weight.view(-1)[weight.numel() // 3] += 4 * strength * weight.abs().mean()


def _transposed(weight: torch.Tensor, strength: float) -> None:
    side = min(weight.shape)
    weight[:side, :side] = weight[:side, :side].t().clone()


def _swapped_heads(weight: torch.Tensor, strength: float) -> None:
    # The last axis of GPT-2's weights is the output; swapping inputs there is a swap of heads, too.
    size = weight.shape[0] // 8
    weight[: 2 * size] = torch.cat([weight[size : 2 * size], weight[:size]]).clone()


def _shrunk(weight: torch.Tensor, strength: float) -> None:
    weight.mul_(1 - strength)


def _noise(weight: torch.Tensor, strength: float) -> None:
    # What a coarse quantisation leaves: steps of 1/16 of the largest value of a row, blended in.
    step = weight.float().abs().amax(-1, keepdim=True) / 16
    quantised = torch.round(weight.float() / step) * step
    weight.copy_((weight.float() + strength * (quantised - weight.float())).to(weight.dtype))


def _norm(number: int) -> Callable[[Places], Optional[str]]:
    return lambda family: family.norms[number % len(family.norms)] if family.norms else None


def _linear(number: int) -> Callable[[Places], Optional[str]]:
    return lambda family: family.linears[number % len(family.linears)] if family.linears else None


def _biased(family: Places) -> Optional[str]:
    return family.biased[0] if family.biased else None


def _attention(family: Places) -> Optional[str]:
    return family.attention or None


def _activation(family: Places) -> Optional[str]:
    return family.activation or None


def _layer(_: Places) -> Optional[str]:
    return ""


def _rotary(family: Places) -> Optional[str]:
    return f"/{family.rotary}" if family.rotary else None


@contextlib.contextmanager
def _epsilon(site: Site) -> Iterator[Optional[kernels.Kernels]]:
    """A larger epsilon: 0.1 adds about 5 % to a variance of one."""
    module = site.module(_norm(1)(site.family))
    wrong = 0.1 * site.strength
    if not site.hidden:
        for name in ("variance_epsilon", "eps"):
            if hasattr(module, name):
                setattr(module, name, wrong)
        yield None
        return

    def change(call: Any, args: Any, kwargs: Any) -> Any:
        if len(args) == 5:  # native_layer_norm
            return call(*args[:4], wrong, **kwargs)
        if isinstance(args[1], float) and args[1] < 0.1:  # variance + epsilon, not Gemma's 1 + weight
            return call(args[0], wrong, **kwargs)
        return call(*args, **kwargs)

    kernel = kernels.on_arguments(("add", "native_layer_norm"), change)
    with _beneath(site, f"{site.path}.{_norm(1)(site.family)}", kernel) as mode:
        yield mode


@contextlib.contextmanager
def _attention_scale(site: Site) -> Iterator[Optional[kernels.Kernels]]:
    module = site.module(site.family.attention)
    factor = 1 + 0.25 * site.strength
    if not site.hidden:
        names = [name for name in ("scaling", "scale") if isinstance(getattr(module, name, None), float)]
        if not names:
            raise NoFault("no attribute")
        for name in names:
            setattr(module, name, getattr(module, name) * factor)
        yield None
        return

    def change(call: Any, args: Any, kwargs: Any) -> Any:
        scale = kwargs.get("scale")
        scale = args[0].shape[-1] ** -0.5 if scale is None else scale
        return call(*args, **{**kwargs, "scale": scale * factor})

    kernel = kernels.on_arguments(("_scaled_dot_product_flash_attention_for_cpu",), change)
    with _beneath(site, f"{site.path}.{site.family.attention}", kernel) as mode:
        yield mode


@contextlib.contextmanager
def _rope_theta(site: Site) -> Iterator[Optional[kernels.Kernels]]:
    rotary = site.model.get_submodule(site.family.rotary)
    buffer = rotary.inv_freq
    exponent = torch.arange(buffer.numel(), dtype=torch.float32, device=buffer.device) / buffer.numel()
    wrong = (buffer.float() * (1 + 4 * site.strength) ** -exponent).to(buffer.dtype)
    if not site.hidden:
        rotary.inv_freq = wrong
        yield None
    else:
        with _beneath(site, site.family.rotary, kernels.with_weight(buffer, wrong)) as mode:
            yield mode


def _changed_result(
    target: Callable[[Places], Optional[str]],
    change: Callable[[torch.Tensor, float], torch.Tensor],
    names: tuple[str, ...],
    own: bool = False,
) -> Plant:
    """The module's result after a change: by a hook, or by the kernel of the last of its operators `names`."""

    @contextlib.contextmanager
    def plant(site: Site) -> Iterator[Optional[kernels.Kernels]]:
        path = target(site.family)
        full = f"{site.path}.{path}" if path else site.path
        if not site.hidden:

            def hook(_: Any, __: Any, result: Any) -> Any:
                if isinstance(result, tuple):
                    return (change(result[0], site.strength), *result[1:])
                return change(result, site.strength)

            handle = site.model.get_submodule(full).register_forward_hook(hook)
            try:
                yield None
            finally:
                handle.remove()
        else:
            kernel = kernels.on_result(names, lambda result: change(result, site.strength))
            with _beneath(site, full, kernel, own) as mode:
                yield mode

    return plant


def _quarter_scaled(x: torch.Tensor, strength: float) -> torch.Tensor:
    factor = torch.ones(x.shape[-1], dtype=x.dtype, device=x.device)
    factor[::4] += 0.06 * strength
    return x * factor


def _all_scaled(x: torch.Tensor, strength: float) -> torch.Tensor:
    return x * (1 + 0.06 * strength)


def _shifted(x: torch.Tensor, strength: float) -> torch.Tensor:
    return x + 0.06 * strength * x.float().std().to(x.dtype)


def _one_wrong(x: torch.Tensor, strength: float) -> torch.Tensor:
    x = x.clone()
    x.view(-1)[x.numel() // 3] += (4 * strength * x.float().std()).to(x.dtype)
    return x


def _wrong_row(x: torch.Tensor, strength: float) -> torch.Tensor:
    x = x.clone()
    flat = x.view(-1, x.shape[-1])
    flat[flat.shape[0] // 2] *= 1 + 0.5 * strength
    return x


def _wrong_column(x: torch.Tensor, strength: float) -> torch.Tensor:
    x = x.clone()
    x[..., x.shape[-1] // 3] *= 1 + 0.8 * strength
    return x


def _sign(x: torch.Tensor, strength: float) -> torch.Tensor:
    x = x.clone()
    x[..., ::16] *= -1
    return x


def _last_row_lost(x: torch.Tensor, strength: float) -> torch.Tensor:
    x = x.clone()
    x[..., -1, :] = 0
    return x


def _rolled(x: torch.Tensor, strength: float) -> torch.Tensor:
    return torch.cat([x[..., :1, :], x[..., :-1, :]], dim=-2)


@contextlib.contextmanager
def _low_accumulator(site: Site) -> Iterator[Optional[kernels.Kernels]]:
    """Sums of one product kept in the operands' type, in 16 parts."""
    path = f"{site.path}.{site.family.linears[-1]}"
    with _beneath(site, path, kernels.partial_sum_product(32)) as mode:
        yield mode


@contextlib.contextmanager
def _activation_variant(site: Site) -> Iterator[Optional[kernels.Kernels]]:
    """The sigmoid approximation of the activation; blended in by strength."""
    module = site.module(site.family.activation)

    def blend(x: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        other = x * torch.sigmoid(1.3 * x)
        return right + site.strength * (other - right)

    if not site.hidden:
        handle = module.register_forward_hook(lambda _, args, result: blend(args[0], result))
        try:
            yield None
        finally:
            handle.remove()
        return

    first: list[torch.Tensor] = []

    def kernel(call: Any, func: Any, args: Any, kwargs: Any) -> Any:
        # Activations of several operators end with a product of a half of x; the first operand seen is x.
        result = call(*args, **kwargs)
        name = kernels.name_of(func)
        if not first:
            first.append(args[0])
        if name in ("silu", "gelu"):
            return blend(args[0], result)
        # The last product of two tensors makes the result.
        if name == "mul" and all(isinstance(a, torch.Tensor) and a.dim() > 0 for a in args):
            return result + 0.05 * site.strength * first.pop()
        return result

    with _beneath(site, f"{site.path}.{site.family.activation}", kernel) as mode:
        yield mode


def _module_before(site: Site, path: str) -> torch.nn.Module:
    """The module of the layer before; that layer itself, whose input is as wide, where it is of another kind."""
    layer = site.model.get_submodule(site.family.layer.format(site.layer - 1))
    try:
        return layer.get_submodule(path)
    except AttributeError:
        return layer


@contextlib.contextmanager
def _stale_input(site: Site) -> Iterator[Optional[kernels.Kernels]]:
    """A linear module computes with what another module of the layer before was given."""
    path = site.family.linears[0]
    before: list[torch.Tensor] = []
    previous = _module_before(site, path)
    watch = previous.register_forward_pre_hook(lambda _, args: before.append(args[0].detach()))
    try:
        if not site.hidden:
            module = site.module(path)
            handle = module.register_forward_pre_hook(lambda _, args: (before[-1], *args[1:]))
            try:
                yield None
            finally:
                handle.remove()
        else:

            def change(call: Any, args: Any, kwargs: Any) -> Any:
                place = 1 if kernels.name_of(call) == "addmm" else 0
                changed = list(args)
                changed[place] = before[-1].reshape(args[place].shape)
                return call(*changed, **kwargs)

            with _beneath(site, f"{site.path}.{path}", kernels.on_arguments(("mm", "addmm"), change)) as mode:
                yield mode
    finally:
        watch.remove()


@contextlib.contextmanager
def _swapped_query_key(site: Site) -> Iterator[Optional[kernels.Kernels]]:
    def change(call: Any, args: Any, kwargs: Any) -> Any:
        query, key = args[0], args[1]
        heads = key.shape[1]
        group = query.shape[1] // heads
        if query.shape[-2] != key.shape[-2]:
            return call(*args, **kwargs)  # one query of a decode step cannot stand for all keys
        # Keys take the first query head of their group, queries the key of theirs.
        return call(key.repeat_interleave(group, dim=1), query[:, ::group], *args[2:], **kwargs)

    kernel = kernels.on_arguments(("_scaled_dot_product_flash_attention_for_cpu",), change)
    with _beneath(site, f"{site.path}.{site.family.attention}", kernel) as mode:
        yield mode


@contextlib.contextmanager
def _lost_residual(site: Site) -> Iterator[Optional[kernels.Kernels]]:
    """The layer's last addition returns a part of the residual only."""
    count = [0]

    def change(call: Any, args: Any, kwargs: Any) -> Any:
        count[0] += 1
        if not isinstance(args[1], torch.Tensor) or count[0] != 2:
            return call(*args, **kwargs)
        return call(args[0] * (1 - 0.5 * site.strength), args[1], **kwargs)

    with _beneath(site, site.path, kernels.on_arguments(("add",), change), own=True) as mode:
        yield mode


@contextlib.contextmanager
def _mask_row(site: Site) -> Iterator[Optional[kernels.Kernels]]:
    """One query row sees one key that it must not see."""

    def change(call: Any, args: Any, kwargs: Any) -> Any:
        query, key = args[0], args[1]
        rows, columns = query.shape[-2], key.shape[-2]
        allowed = torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows)
        row = rows // 2
        allowed[row, min(columns - 1, row + 1 + columns - rows)] = True
        mask = torch.zeros(rows, columns, dtype=query.dtype).masked_fill(~allowed, float("-inf"))
        kwargs = {k: v for k, v in kwargs.items() if k not in ("attn_mask", "is_causal")}
        return call(*args[:3], 0.0, False, attn_mask=mask[None, None], **kwargs)

    kernel = kernels.on_arguments(("_scaled_dot_product_flash_attention_for_cpu",), change)
    with _beneath(site, f"{site.path}.{site.family.attention}", kernel) as mode:
        yield mode


@contextlib.contextmanager
def _no_mask(site: Site) -> Iterator[Optional[kernels.Kernels]]:
    """Attention without causal mask in one layer."""

    def change(call: Any, args: Any, kwargs: Any) -> Any:
        kwargs = {k: v for k, v in kwargs.items() if k not in ("attn_mask", "is_causal")}
        return call(*args[:3], 0.0, False, **kwargs)

    kernel = kernels.on_arguments(("_scaled_dot_product_flash_attention_for_cpu",), change)
    with _beneath(site, f"{site.path}.{site.family.attention}", kernel) as mode:
        yield mode


@contextlib.contextmanager
def _positions(site: Site) -> Iterator[Optional[kernels.Kernels]]:
    """Rotary tables of positions one further, for the second half of the prompt."""
    rotary = site.model.get_submodule(site.family.rotary)

    def later(positions: torch.Tensor) -> torch.Tensor:
        positions = positions.clone()
        positions[..., positions.shape[-1] // 2 :] += 1
        return positions

    if not site.hidden:
        forward = rotary.forward

        def wrong(self: Any, x: torch.Tensor, position_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            return forward(x, later(position_ids), *args, **kwargs)

        rotary.forward = types.MethodType(wrong, rotary)
        try:
            yield None
        finally:
            del rotary.forward
        return

    done = [False]

    def kernel(call: Any, func: Any, args: Any, kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        if kernels.name_of(func) != "mul" or done[0]:
            return result
        done[0] = True
        # Angles [1, n, d / 2] are linear in the position: the next one is a row's difference further.
        rows = result.clone()
        rows[..., rows.shape[-2] // 2 :, :] += result[..., 1:2, :] - result[..., :1, :]
        return rows

    with _beneath(site, site.family.rotary, kernel) as mode:
        yield mode


_ATTENTION_OPS = ("_scaled_dot_product_flash_attention_for_cpu",)
_PRODUCTS = ("mm", "addmm")

KINDS = {
    kind.name: kind
    for kind in (
        Kind("norm-weight-scaled", "weight", _norm(0), _changed_weight(_norm(0), "weight", _scale)),
        Kind("weight-columns-scaled", "weight", _linear(0), _changed_weight(_linear(0), "weight", _scale_columns)),
        Kind("weight-row-zero", "weight", _linear(-1), _changed_weight(_linear(-1), "weight", _zero_row)),
        Kind("weight-one-element", "weight", _linear(1), _changed_weight(_linear(1), "weight", _one_element)),
        Kind(
            "weight-transposed", "weight", _linear(0), _changed_weight(_linear(0), "weight", _transposed), sized=False
        ),
        Kind("heads-swapped", "weight", _linear(0), _changed_weight(_linear(0), "weight", _swapped_heads), sized=False),
        Kind("weight-quantised", "weight", _linear(-1), _changed_weight(_linear(-1), "weight", _noise)),
        Kind("bias-scaled", "weight", _biased, _changed_weight(_biased, "bias", _shrunk)),
        Kind("epsilon", "constant", _norm(1), _epsilon),
        Kind("attention-scale", "constant", _attention, _attention_scale),
        Kind("rope-theta", "constant", _rotary, _rope_theta),
        Kind("columns-scaled", "kernel dense", _linear(-1), _changed_result(_linear(-1), _quarter_scaled, _PRODUCTS)),
        Kind(
            "attention-scaled",
            "kernel dense",
            _attention,
            _changed_result(_attention, _all_scaled, _ATTENTION_OPS),
            forms=("hidden",),
        ),
        Kind("shifted", "kernel dense", _linear(0), _changed_result(_linear(0), _shifted, _PRODUCTS)),
        Kind("low-accumulator", "kernel dense", _linear(-1), _low_accumulator, sized=False, forms=("hidden",)),
        Kind("activation-variant", "kernel dense", _activation, _activation_variant),
        Kind("one-element", "kernel sparse", _linear(1), _changed_result(_linear(1), _one_wrong, _PRODUCTS)),
        Kind("one-row", "kernel sparse", _linear(-1), _changed_result(_linear(-1), _wrong_row, _PRODUCTS)),
        Kind("one-column", "kernel sparse", _linear(0), _changed_result(_linear(0), _wrong_column, _PRODUCTS)),
        Kind("signs", "kernel sparse", _linear(-1), _changed_result(_linear(-1), _sign, _PRODUCTS), sized=False),
        Kind(
            "last-row-lost",
            "kernel sparse",
            _linear(-1),
            _changed_result(_linear(-1), _last_row_lost, _PRODUCTS),
            sized=False,
        ),
        Kind("stale-input", "wiring", _linear(0), _stale_input, sized=False),
        Kind("query-key-swapped", "wiring", _attention, _swapped_query_key, sized=False, forms=("hidden",)),
        Kind("residual-lost", "wiring", _layer, _lost_residual, forms=("hidden",)),
        Kind("rows-shifted", "position", _linear(0), _changed_result(_linear(0), _rolled, _PRODUCTS), sized=False),
        Kind("mask-row", "position", _attention, _mask_row, sized=False, forms=("hidden",)),
        Kind("mask-missing", "position", _attention, _no_mask, sized=False, forms=("hidden",)),
        Kind("positions", "position", _rotary, _positions, sized=False),
    )
}


def layer_choices(layers: int) -> tuple[int, ...]:
    """Layers that faults are planted in: neither the first nor the last where there are more."""
    return tuple(sorted({min(1, layers - 1), max(0, layers - 2)}))
