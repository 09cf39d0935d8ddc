# SPDX-License-Identifier: Apache-2.0
"""Quantised matrices as people keep them, and what goes wrong with their codes and scales.

Each world stores the same codes in its own way: put back in place, under the names of a library, or under names of its
own. A fault changes the codes, the scales or the zero points of one matrix before they are stored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Callable, Optional

import torch

from assay.twin.places import of
from bench.faults import faults
from bench.faults.families import narrowed

NF4 = torch.tensor(
    [
        *(-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.091050036, 0.0),
        *(0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0),
    ]
)


@dataclass(frozen=True)
class Codes:
    """A matrix in codes: (codes - zeros) * scales, or NF4[codes] * scales, group by group.

    Attributes:
        codes: [groups, values of a group], integers.
        scales: [groups, 1].
        zeros: [groups, 1]; None of symmetric codes.
        shape: of the matrix.
        normal: the codes are numbers of NF4's levels.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    zeros: Optional[torch.Tensor]
    shape: torch.Size
    normal: bool = False

    def matrix(self) -> torch.Tensor:
        """What they stand for, float32."""
        if self.normal:
            return (NF4[self.codes.long()] * self.scales).reshape(self.shape)
        zeros = 0 if self.zeros is None else self.zeros
        return ((self.codes.float() - zeros) * self.scales).reshape(self.shape)


def symmetric(matrix: torch.Tensor, group: int, bits: int) -> Codes:
    """Codes of both signs, the largest value of a group at the largest code."""
    groups = matrix.detach().float().reshape(-1, group)
    largest = 2 ** (bits - 1) - 1
    scales = groups.abs().amax(1, keepdim=True).clamp_min(1e-12) / largest
    return Codes((groups / scales).round().clamp(-largest, largest), scales, None, matrix.shape)


def asymmetric(matrix: torch.Tensor, group: int, bits: int) -> Codes:
    """Codes from 0 on with a zero point."""
    groups = matrix.detach().float().reshape(-1, group)
    low, high = groups.amin(1, keepdim=True).clamp_max(0), groups.amax(1, keepdim=True).clamp_min(0)
    scales = ((high - low) / (2**bits - 1)).clamp_min(1e-12)
    zeros = (-low / scales).round()
    return Codes((groups / scales + zeros).round().clamp(0, 2**bits - 1), scales, zeros, matrix.shape)


def normal(matrix: torch.Tensor, group: int, _bits: int = 4) -> Codes:
    """The nearest of NF4's levels, times the largest value of a group."""
    groups = matrix.detach().float().reshape(-1, group)
    scales = groups.abs().amax(1, keepdim=True).clamp_min(1e-12)
    codes = (groups / scales)[..., None].sub(NF4).abs().argmin(-1)
    return Codes(codes, scales, None, matrix.shape, normal=True)


# ---- how codes are stored ------------------------------------------------------------------------------------------


class Stored(torch.nn.Module):
    """A linear layer whose matrix is restored from what `store` registers."""

    def __init__(self, bias: Optional[torch.Tensor], codes: Codes, world: World, dtype: torch.dtype) -> None:
        super().__init__()
        self.bias = None if bias is None else torch.nn.Parameter(bias.detach().to(dtype), requires_grad=False)
        self._shape = codes.shape
        self._restore = world.restore
        self.fill(codes, world, dtype)

    def fill(self, codes: Codes, world: World, dtype: torch.dtype) -> None:
        """Registers the parts of the codes."""
        for name, part in world.store(codes, dtype).items():
            self.register_buffer(name, part)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in] to [..., out]; the matrix is restored in the type of `x`."""
        return torch.nn.functional.linear(x, self._restore(self, self._shape, x.dtype), self.bias)


Store = Callable[[Codes, torch.dtype], dict[str, torch.Tensor]]
Restore = Callable[[Any, torch.Size, torch.dtype], torch.Tensor]


@dataclass(frozen=True)
class World:
    """One way of keeping matrices in codes.

    Attributes:
        make: codes of a matrix, given the length of a group and the bits.
        group: values of a group; 0: a row; -1: the whole matrix.
        store: the buffers of a module; None: the matrix is put back in place.
        restore: the matrix out of them.
    """

    name: str
    about: str
    make: Callable[[torch.Tensor, int, int], Codes]
    group: int
    bits: int
    store: Any = None
    restore: Any = None

    def codes(self, matrix: torch.Tensor) -> Codes:
        """Of one matrix."""
        length = {0: matrix.shape[-1], -1: matrix.numel()}.get(self.group, self.group)
        return self.make(matrix, length, self.bits)


def _words(codes: torch.Tensor, bits: int, axis: int) -> torch.Tensor:
    """int32 words of codes along an axis, the lowest bits first."""
    per = 32 // bits
    shape = list(codes.shape)
    shape[axis : axis + 1] = [shape[axis] // per, per]
    parts = codes.long().reshape(shape)
    words = sum(parts.select(axis + 1, i) << (bits * i) for i in range(per))
    assert isinstance(words, torch.Tensor)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def _codes_of(words: torch.Tensor, bits: int, axis: int) -> torch.Tensor:
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    parts = torch.stack([(words >> shift) & (2**bits - 1) for shift in shifts], dim=axis + 1)
    return parts.flatten(axis, axis + 1)


def _own(codes: Codes, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {"grid": codes.codes.reshape(codes.shape).to(torch.int8), "pitch": codes.scales[:, 0].to(dtype)}


def _torchao(codes: Codes, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    rows = (codes.shape[0], -1)
    assert codes.zeros is not None
    return {
        "qdata": (codes.codes - 128).reshape(codes.shape).to(torch.int8),
        "scale": codes.scales.reshape(rows).to(dtype),
        "zero_point": (codes.zeros - 128).reshape(rows).to(torch.int8),
    }


def _from_torchao(module: Any, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    groups = module.qdata.to(dtype).reshape(*module.scale.shape, -1)
    return ((groups - module.zero_point.to(dtype)[..., None]) * module.scale.to(dtype)[..., None]).reshape(shape)


def _bnb8(codes: Codes, _: torch.dtype) -> dict[str, torch.Tensor]:
    return {"weight": codes.codes.reshape(codes.shape).to(torch.int8), "SCB": codes.scales[:, 0] * 127}


def _bnb4(codes: Codes, _: torch.dtype) -> dict[str, torch.Tensor]:
    flat = codes.codes.reshape(-1).to(torch.uint8)
    return {
        "weight": (flat[::2] << 4 | flat[1::2])[:, None],
        "absmax": codes.scales[:, 0].clone(),
        "quant_map": NF4.clone(),
    }


def _from_bnb4(module: Any, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    bytes_ = module.weight[:, 0]
    codes = torch.stack([bytes_ >> 4, bytes_ & 15], dim=1).reshape(module.absmax.shape[0], -1)
    return (module.quant_map[codes.long()] * module.absmax[:, None]).reshape(shape).to(dtype)


def _gptq(codes: Codes, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    out = codes.shape[0]
    assert codes.zeros is not None
    return {
        "qweight": _words(codes.codes.reshape(codes.shape).t(), 4, 0),
        "qzeros": _words(codes.zeros.reshape(out, -1).t() - 1, 4, 1),
        "scales": codes.scales.reshape(out, -1).t().contiguous().to(dtype),
    }


def _from_gptq(module: Any, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    codes = _codes_of(module.qweight, 4, 0).reshape(module.scales.shape[0], -1, shape[0])
    zeros = _codes_of(module.qzeros, 4, 1) + 1
    matrix = (codes - zeros[:, None]).to(dtype) * module.scales.to(dtype)[:, None]
    restored: torch.Tensor = matrix.reshape(shape[1], shape[0]).t()
    return restored


def _awq(codes: Codes, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])  # of eight outputs, those in the places of a word
    out = codes.shape[0]
    assert codes.zeros is not None

    def words(values: torch.Tensor) -> torch.Tensor:
        return _words(values.reshape(values.shape[0], -1, 8)[:, :, order].reshape(values.shape), 4, 1)

    return {
        "qweight": words(codes.codes.reshape(codes.shape).t()),
        "qzeros": words(codes.zeros.reshape(out, -1).t()),
        "scales": codes.scales.reshape(out, -1).t().contiguous().to(dtype),
    }


def _from_awq(module: Any, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    places = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])

    def values(words: torch.Tensor) -> torch.Tensor:
        codes = _codes_of(words, 4, 1)
        return codes.reshape(codes.shape[0], -1, 8)[:, :, places].reshape(codes.shape)

    codes = values(module.qweight).reshape(module.scales.shape[0], -1, shape[0])
    matrix = (codes - values(module.qzeros)[:, None]).to(dtype) * module.scales.to(dtype)[:, None]
    restored: torch.Tensor = matrix.reshape(shape[1], shape[0]).t()
    return restored


def _from_own(module: Any, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    restored: torch.Tensor = module.grid.to(dtype) * module.pitch.to(dtype)[:, None]
    return restored


def _from_bnb8(module: Any, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    restored: torch.Tensor = module.weight.to(dtype) * (module.SCB / 127).to(dtype)[:, None]
    return restored


WORLDS = {
    world.name: world
    for world in (
        World("inplace8", "matrices of int8 with a scale a row, put back in place", symmetric, 0, 8),
        World("inplace8-tensor", "the same with one scale and zero point", asymmetric, -1, 8),
        World("inplace4", "matrices of int4 with a scale and zero point a group of 32, put back", asymmetric, 32, 4),
        World("inplace-nf4", "matrices of nf4 in blocks of 64, put back in place", normal, 64, 4),
        World("own-names", "int8 with a scale a row, under other names", symmetric, 0, 8, _own, _from_own),
        World("torchao", "torchao's names, int8 in groups of 32", asymmetric, 32, 8, _torchao, _from_torchao),
        World("bnb8", "bitsandbytes' names, int8 with the largest of a row", symmetric, 0, 8, _bnb8, _from_bnb8),
        World("bnb4", "bitsandbytes' names, nf4 in blocks of 64", normal, 64, 4, _bnb4, _from_bnb4),
        World("gptq", "GPTQ's words, int4 in groups of 32", asymmetric, 32, 4, _gptq, _from_gptq),
        World("awq", "AWQ's words, int4 in groups of 32", asymmetric, 32, 4, _awq, _from_awq),
    )
}


def _is_matrix(module: torch.nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return type(module).__name__ in ("Linear", "Conv1D") and weight is not None and weight.numel() % 64 == 0


def ported(name: str, model: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    """A copy in `dtype` with the matrices of its layers in codes.

    Raises:
        NoFault: the layers have no matrices that the world can hold.
    """
    world = WORLDS[name]
    port = narrowed(model, dtype)
    layer = of(model).layer.format("")
    known: dict[str, Codes] = {}
    for path, module in list(model.named_modules()):
        if not path.startswith(layer) or not _is_matrix(module):
            continue
        if world.store is not None and (type(module) is not torch.nn.Linear or module.weight.shape[1] % 32 != 0):
            continue
        known[path] = world.codes(module.weight)
        put(port, path, known[path], world, dtype)
    if not known:
        raise faults.NoFault("no layer has a matrix that can be held so")
    port.__dict__["known_codes"] = (world, known, dtype)
    return port


def put(port: torch.nn.Module, path: str, codes: Codes, world: World, dtype: torch.dtype) -> None:
    """Stores the codes of one matrix."""
    module = port.get_submodule(path)
    if world.store is None:
        with torch.no_grad():
            module.weight.copy_(codes.matrix())  # type: ignore[operator, union-attr]
    elif isinstance(module, Stored):
        module.fill(codes, world, dtype)
    else:
        bias = module.bias
        port.set_submodule(path, Stored(bias if isinstance(bias, torch.Tensor) else None, codes, world, dtype))


# ---- what goes wrong with them --------------------------------------------------------------------------------------


def _reciprocal(codes: Codes) -> Codes:
    return replace(codes, scales=1 / codes.scales)


def _times_four(codes: Codes) -> Codes:
    return replace(codes, scales=4 * codes.scales)


def _tiny(codes: Codes) -> Codes:
    return replace(codes, scales=codes.scales * 2.0**-112)


def _exchanged(codes: Codes) -> Codes:
    return replace(codes, codes=codes.codes.reshape(-1, 2).flip(1).reshape(codes.codes.shape))


def _zero_points(codes: Codes) -> Codes:
    if codes.zeros is None:
        raise faults.NoFault("no zero points")
    return replace(codes, zeros=codes.zeros + torch.where(codes.zeros >= 8, -3, 3))


def _columns(codes: Codes) -> Codes:
    zero = torch.zeros(()) if codes.zeros is None else codes.zeros
    if codes.normal:
        zero = torch.tensor(7)
    whole = codes.codes.reshape(codes.shape).clone()
    whole[..., ::8] = zero.expand(codes.codes.shape).reshape(codes.shape)[..., ::8].to(whole.dtype)
    return replace(codes, codes=whole.reshape(codes.codes.shape))


def _planted(change: Callable[[Codes], Codes]) -> faults.Plant:
    @contextlib.contextmanager
    def plant(site: faults.Site) -> Iterator[None]:
        world, known, dtype = site.model.__dict__.get("known_codes", (None, {}, None))
        path = f"{site.path}.{_target(site.family)}"
        if path not in known:
            raise faults.NoFault("not in codes")
        put(site.model, path, change(known[path]), world, dtype)
        yield None

    return plant


def _target(family: Any) -> Optional[str]:
    return family.linears[0] if family.linears else None


KINDS = {
    "code-" + name: faults.Kind("code-" + name, "codes", _target, _planted(change), False, ("visible",), "codes")
    for name, change in (
        ("reciprocal", _reciprocal),
        ("times-four", _times_four),
        ("tiny", _tiny),
        ("exchanged", _exchanged),
        ("zero-points", _zero_points),
        ("columns", _columns),
    )
}
faults.KINDS.update(KINDS)
