# SPDX-License-Identifier: Apache-2.0
"""Faults of a program: too narrow types, caches, routers, positions, and inputs that are not those of golden.

Most of these were found in public bug reports. They are planted in the model itself; what they change is what a port
would have changed.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Optional

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from assay.twin.places import Places
from bench.faults import kernels
from bench.faults.faults import KINDS, Kind, NoFault, Site

INPUTS = "inputs"  # the group of kinds that make the runs no pair at all: nothing is wrong, and nothing is clean


def _values(places: Places) -> Optional[str]:
    """The projection of the values, or what has it among others."""
    found = [name for name in places.linears if name.rpartition(".")[2] in ("v_proj", "value")]
    return found[0] if found else places.linears[0] if places.linears else None


def _last(places: Places) -> Optional[str]:
    return places.linears[-1] if places.linears else None


def _attention(places: Places) -> Optional[str]:
    return places.attention or None


def _router(places: Places) -> Optional[str]:
    return places.router or None


def _rotary(places: Places) -> Optional[str]:
    return f"/{places.rotary}" if places.rotary else None


def _head(places: Places) -> Optional[str]:
    return f"/{places.head}" if places.head else None


def _root(_: Places) -> Optional[str]:
    return "/"


def _hooked(target: Callable[[Places], Optional[str]], change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The module's result after a change."""

    @contextlib.contextmanager
    def plant(site: Site) -> Iterator[Optional[kernels.Kernels]]:
        module = site.module(str(target(site.family)))
        handle = module.register_forward_hook(lambda _, __, result: change(result))
        try:
            yield None
        finally:
            handle.remove()

    return plant


def _through_fp8(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float8_e4m3fn).to(x.dtype)


@contextlib.contextmanager
def _narrow_module(site: Site) -> Iterator[Optional[kernels.Kernels]]:
    """One matrix computes in bf16 inside of a program in fp32."""
    module = site.module(str(_last(site.family)))
    forward = module.forward

    def narrow(x: torch.Tensor) -> torch.Tensor:
        weight: Any = module.weight
        bias: Any = module.bias
        if type(module).__name__ == "Conv1D":
            weight = weight.t()
        bias = None if bias is None else bias.bfloat16()
        return torch.nn.functional.linear(x.bfloat16(), weight.bfloat16(), bias).to(x.dtype)

    module.forward = narrow
    try:
        yield None
    finally:
        module.forward = forward


@contextlib.contextmanager
def _autocast_module(site: Site) -> Iterator[Optional[kernels.Kernels]]:
    """The attention runs under autocast, the rest does not."""
    module = site.module(str(_attention(site.family)))
    forward = module.forward

    def narrow(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            result = forward(*args, **kwargs)
        return tree_map(lambda x: x.float() if isinstance(x, torch.Tensor) and x.is_floating_point() else x, result)

    module.forward = narrow
    try:
        yield None
    finally:
        module.forward = forward


class _Functions(TorchFunctionMode):
    """Replaces functions of torch that are called inside a module: the records show what was called instead."""

    def __init__(self, module: torch.nn.Module, names: Sequence[str], change: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__()
        self._names = names
        self._change = change
        self._inside = False
        self._hooks = [
            module.register_forward_pre_hook(lambda *_: setattr(self, "_inside", True)),
            module.register_forward_hook(lambda *_: setattr(self, "_inside", False), always_call=True),
        ]

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._inside and getattr(func, "__name__", "") in self._names:
            return self._change(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        for hook in self._hooks:
            hook.remove()


def _replaced(target: Callable[[Places], Optional[str]], names: Sequence[str], change: Any) -> Any:
    @contextlib.contextmanager
    def plant(site: Site) -> Iterator[Optional[kernels.Kernels]]:
        with _Functions(site.module(str(target(site.family))), names, change):
            yield None

    return plant


def _smallest(func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **{**kwargs, "largest": False})


def _one_fewer(func: Any, args: Any, kwargs: Any) -> Any:
    args, kwargs = list(args), dict(kwargs)
    if "k" in kwargs:
        kwargs["k"] = max(1, kwargs["k"] - 1)
    else:
        args[1] = max(1, args[1] - 1)
    return func(*args, **kwargs)


def _row_before(func: Any, args: Any, kwargs: Any) -> Any:
    values, indices = func(*args, **kwargs)
    return values, indices.roll(1, 0)


def _not_normalised(func: Any, args: Any, kwargs: Any) -> Any:
    return args[0]


@contextlib.contextmanager
def _slot_overwritten(site: Site) -> Iterator[Optional[kernels.Kernels]]:
    """A key and a value of the cache are overwritten between two steps, where no operator is seen."""

    def overwrite(step: int, cache: Any) -> None:
        layer = _layer_of(cache, site.layer)
        if step == 2:
            layer.keys.data[:, :, 1] = layer.keys.data[:, :, 3]
            layer.values.data[:, :, 1] = layer.values.data[:, :, 3]

    site.between = overwrite
    yield None


@contextlib.contextmanager
def _evicted(site: Site) -> Iterator[Optional[kernels.Kernels]]:
    """The oldest key and value leave the cache one step too early."""

    def evict(step: int, cache: Any) -> None:
        layer = _layer_of(cache, site.layer)
        if step == 2:
            layer.keys.data[:, :, 0] = 0
            layer.values.data[:, :, 0] = 0

    site.between = evict
    yield None


def _layer_of(cache: Any, number: int) -> Any:
    layers = getattr(cache, "layers", None)
    if not layers or not isinstance(getattr(layers[number], "keys", None), torch.Tensor):
        raise NoFault("the cache has no keys")
    return layers[number]


def _attribute(names: tuple[str, ...], change: Callable[[Any], Any], absent: str) -> Any:
    """Changes the attributes of these names wherever the layer has them."""

    @contextlib.contextmanager
    def plant(site: Site) -> Iterator[Optional[kernels.Kernels]]:
        changed = 0
        for module in site.module(str(_attention(site.family))).modules():
            for name in names:
                value = getattr(module, name, None)
                if value is not None:
                    setattr(module, name, change(value))
                    changed += 1
        if not changed:
            raise NoFault(absent)
        yield None

    return plant


@contextlib.contextmanager
def _head_of_row_before(site: Site) -> Iterator[Optional[kernels.Kernels]]:
    """The head reads the hidden state of the row before."""
    head = site.model.get_submodule(site.family.head)
    handle = head.register_forward_pre_hook(lambda _, args: (args[0].roll(1, -2), *args[1:]))
    try:
        yield None
    finally:
        handle.remove()


@contextlib.contextmanager
def _narrow_positions(site: Site) -> Iterator[Optional[kernels.Kernels]]:
    """Positions are rounded to bf16 before the angles are made of them."""
    rotary = site.model.get_submodule(site.family.rotary)
    forward = rotary.forward

    def narrow(_: Any, x: torch.Tensor, position_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return forward(x, position_ids.to(torch.bfloat16), *args, **kwargs)

    rotary.forward = types.MethodType(narrow, rotary)
    try:
        yield None
    finally:
        del rotary.forward


@contextlib.contextmanager
def _narrow_frequencies(site: Site) -> Iterator[Optional[kernels.Kernels]]:
    """The table of frequencies is rounded to bf16 in a program in fp32."""
    rotary: Any = site.model.get_submodule(site.family.rotary)
    rotary.inv_freq = rotary.inv_freq.bfloat16().float()
    yield None


@contextlib.contextmanager
def _slightly_scaled(site: Site) -> Iterator[Optional[kernels.Kernels]]:
    """A matrix is 2 % too large, or a share of that."""
    weight: Any = site.module(str(_last(site.family))).weight
    with torch.no_grad():
        weight.mul_(1 + 0.02 * site.strength)
    yield None


def _given(change: Callable[[Site], None]) -> Any:
    """Mine is given something else."""

    @contextlib.contextmanager
    def plant(site: Site) -> Iterator[Optional[kernels.Kernels]]:
        change(site)
        yield None

    return plant


def _other_tokens(site: Site) -> None:
    assert site.tokens is not None
    site.tokens = site.tokens.clone()
    site.tokens[0, 3] = site.tokens[0, 3] % 200 + 1


def _shorter(site: Site) -> None:
    assert site.tokens is not None
    site.tokens = site.tokens[:, 1:]


def _padded(site: Site) -> None:
    assert site.tokens is not None
    site.tokens = torch.cat([torch.zeros_like(site.tokens[:, :2]), site.tokens], dim=1)


def _fewer_steps(site: Site) -> None:
    assert site.tokens is not None
    site.tokens = site.tokens[:, :-1]
    site.steps -= 1


def _visible(name: str, group: str, target: Any, plant: Any, needs: str = "", sized: bool = False) -> Kind:
    return Kind(name, group, target, plant, sized, ("visible",), needs)


_LIMIT = "no limit of time steps"
KINDS.update(
    (kind.name, kind)
    for kind in (
        _visible("projection-through-fp8", "type", _values, _hooked(_values, _through_fp8)),
        _visible("module-in-bf16", "type", _last, _narrow_module, "float32"),
        _visible("module-under-autocast", "type", _attention, _autocast_module, "float32"),
        _visible("frequencies-in-bf16", "type", _rotary, _narrow_frequencies, "float32"),
        _visible("positions-in-bf16", "type", _rotary, _narrow_positions, "far"),
        _visible("slot-overwritten", "cache", _attention, _slot_overwritten, "decode"),
        _visible("evicted-too-early", "cache", _attention, _evicted, "decode"),
        _visible("router-smallest", "router", _router, _replaced(_router, ("topk",), _smallest)),
        _visible("router-one-fewer", "router", _router, _replaced(_router, ("topk",), _one_fewer)),
        _visible("router-row-before", "router", _router, _replaced(_router, ("topk",), _row_before)),
        _visible(
            "router-not-normalised",
            "router",
            _router,
            _replaced(_router, ("__itruediv__", "__truediv__", "div", "div_", "true_divide"), _not_normalised),
        ),
        _visible("head-row-before", "position", _head, _head_of_row_before),
        _visible("weight-slightly-scaled", "weight", _last, _slightly_scaled, sized=True),
        _visible(
            "time-step-limit",
            "constant",
            _attention,
            _attribute(("time_step_limit",), lambda _: (0.0, 0.02), _LIMIT),
        ),
        _visible(
            "soft-cap-dropped",
            "constant",
            _attention,
            _attribute(("attn_logit_softcapping",), lambda _: None, "no soft cap"),
        ),
        _visible("other-tokens", INPUTS, _root, _given(_other_tokens)),
        _visible("shorter-prompt", INPUTS, _root, _given(_shorter)),
        _visible("padding-without-mask", INPUTS, _root, _given(_padded)),
        _visible("fewer-steps", INPUTS, _root, _given(_fewer_steps), "decode"),
    )
)
