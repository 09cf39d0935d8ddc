# SPDX-License-Identifier: Apache-2.0
"""assay.reference.aten: views, casts, creation, moves, indexing, elementwise and comparison against torch itself.

Every overload of these families has a case below that draws its arguments, and torch runs the same overload: in the
operands' own types where the result must be exact, in fp64 where it is arithmetic.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import assay
from assay import _opcheck, reference

SOURCES = Path(__file__).resolve().parents[3] / "src" / "reference" / "aten"
FAMILIES = [
    "views", "casts", "creation", "movement", "indexing", "elementwise", "elementwise_functions",
    "elementwise_activations", "elementwise_complex", "comparison",
]  # fmt: skip
KINDS = {overload.name: overload.kind for overload in reference.aten_overloads()}
# Rows of the families' tables: overloads that one function computes stand in one string.
ROWS = {
    f"aten.{word}"
    for family in FAMILIES
    for words in re.findall(r'"([\w. ]+)"', (SOURCES / f"{family}.cpp").read_text())
    for word in words.split()
    if f"aten.{word}" in KINDS
}
assert len(ROWS) > 300, "the tables are written otherwise"
VARIANTS = {name: of for name, of, _, _ in _opcheck.aten_variants()}

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


class Draw:
    """Draws what the cases need."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def pick(self, options: Any) -> Any:
        options = list(options)
        return options[self.int(0, len(options) - 1)]

    def int(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high, endpoint=True))

    def bool(self) -> bool:
        return self.int(0, 1) == 1

    def order(self, count: int) -> list[int]:
        return [int(i) for i in self.random.permutation(count)]

    def shape(self, low: int = 0, high: int = 4, smallest: int = 0) -> list[int]:
        return [self.int(smallest, 4) for _ in range(self.int(low, high))]

    def dtype(self, kinds: str = "fib") -> torch.dtype:
        choices = {"f": FLOATS, "i": INTEGERS, "b": [torch.bool]}
        return self.pick([dtype for kind in kinds for dtype in choices[kind]])

    def values(self, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
        if dtype == torch.bool:
            return torch.from_numpy(self.random.integers(0, 2, shape).astype(bool))
        if dtype.is_floating_point:
            return torch.from_numpy(np.asarray(self.random.standard_normal(shape) * 2)).to(dtype)
        low = 0 if dtype == torch.uint8 else -9
        return torch.from_numpy(np.asarray(self.random.integers(low, 10, shape))).to(dtype)

    def tensor(
        self, shape: list[int] | None = None, kinds: str = "fib", dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """Contiguous, or with strides of a permuted, stepped or expanded tensor."""
        shape = self.shape() if shape is None else list(shape)
        dtype = dtype or self.dtype(kinds)
        layout = self.pick(["contiguous", "contiguous", "permuted", "stepped", "expanded"])
        if layout == "permuted" and len(shape) > 1:
            order = self.random.permutation(len(shape))
            made = self.values([shape[i] for i in order], dtype)
            return made.permute([int(i) for i in np.argsort(order)])
        if layout == "stepped" and shape:
            return self.values([*shape[:-1], 2 * shape[-1] + 1], dtype)[..., 1::2][..., : shape[-1]]
        if layout == "expanded" and shape:
            at = self.int(0, len(shape) - 1)
            return self.values([1 if i == at else n for i, n in enumerate(shape)], dtype).expand(shape)
        return self.values(shape, dtype)

    def special(self, shape: list[int] | None = None, kinds: str = "fib") -> torch.Tensor:
        """With NaN, infinities and zeros of both signs among floats."""
        tensor = self.tensor(shape, kinds)
        if not tensor.dtype.is_floating_point or not tensor.numel():
            return tensor
        odd = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 0.5, 2.0], dtype=tensor.dtype)
        chosen = odd[torch.from_numpy(np.asarray(self.random.integers(0, 7, tensor.shape)))]
        return torch.where(torch.from_numpy(np.asarray(self.random.random(tensor.shape) < 0.3)), chosen, tensor)

    def like(self, shape: Any) -> list[int]:
        """A shape that broadcasts with the other."""
        kept = list(shape)[self.int(0, len(shape)) :]
        return [1 if self.bool() else n for n in kept]

    def dim(self, rank: int) -> int:
        return self.int(-max(rank, 1), max(rank, 1) - 1)

    def number(self, kinds: str = "if") -> Any:
        if "i" in kinds and ("f" not in kinds or self.bool()):
            return self.int(-3, 4)
        return self.pick([0.1, -0.7, 2.0, 0.5, -3.25, 1e-3])


Case = Callable[[Draw], "dict[str, Any]"]
CASES: dict[str, Case] = {}


def case(*names: str) -> Callable[[Case], Case]:
    def add(function: Case) -> Case:
        for name in names:
            CASES[f"aten.{name}"] = function
        return function

    return add


# ---- Views ------------------------------------------------------------------------------------------------------


def new_shape(d: Draw, x: torch.Tensor) -> list[int]:
    """Of the same number of elements."""
    shape = d.pick([list(x.shape), [x.numel()], [1, *x.shape], [*x.shape, 1]])
    if x.dim() >= 2:
        at = d.int(0, x.dim() - 2)
        shape = d.pick([shape, [*x.shape[:at], x.shape[at] * x.shape[at + 1], *x.shape[at + 2 :]]])
    if x.dim() and x.shape[-1] == 4:
        shape = d.pick([shape, [*x.shape[:-1], 2, 2]])
    if x.numel() and shape and d.bool():
        shape = list(shape)
        shape[d.int(0, len(shape) - 1)] = -1
    return list(shape)


@case("view.default", "_unsafe_view.default")
def _(d):
    x = d.tensor().contiguous()
    return dict(self=x, size=new_shape(d, x))


@case("reshape.default")
def _(d):
    x = d.tensor()
    return dict(self=x, shape=new_shape(d, x))


@case("_reshape_alias.default")
def _(d):
    x = d.tensor().contiguous()
    y = x.reshape(new_shape(d, x))
    return dict(self=x, size=list(y.shape), stride=list(y.stride()))


@case("view_as.default")
def _(d):
    x = d.tensor().contiguous()
    return dict(self=x, other=torch.empty(x.reshape(new_shape(d, x)).shape))


@case("view.dtype")
def _(d):
    x = d.values([*d.shape(0, 2, 1), 4], d.dtype("fi"))
    return dict(self=x, dtype=d.pick([torch.int8, torch.int16, torch.int32, torch.float32, torch.float16]))


@case("alias.default", "detach.default", "lift_fresh.default", "conj.default", "real.default")
def _(d):
    return dict(self=d.tensor())


@case("mT.default", "adjoint.default")
def _(d):
    return dict(self=d.tensor(d.shape(2, 4)))


@case("numpy_T.default", "t.default")
def _(d):
    return dict(self=d.tensor(d.shape(2, 2)))


@case("ravel.default", "squeeze.default")
def _(d):
    return dict(self=d.tensor())


@case("squeeze.dim", "squeeze_copy.dim", "squeeze_.dim")
def _(d):
    x = d.tensor()
    return dict(self=x, dim=d.dim(x.dim()))


@case("squeeze.dims", "squeeze_copy.dims", "squeeze_.dims")
def _(d):
    x = d.tensor()
    return dict(self=x, dim=[i - (x.dim() if d.bool() else 0) for i in range(x.dim()) if d.bool()])


@case("unsqueeze.default")
def _(d):
    x = d.tensor()
    return dict(self=x, dim=d.dim(x.dim() + 1))


@case("transpose.int")
def _(d):
    x = d.tensor()
    return dict(self=x, dim0=d.dim(x.dim()), dim1=d.dim(x.dim()))


@case("swapaxes.default")
def _(d):
    x = d.tensor()
    return dict(self=x, axis0=d.dim(x.dim()), axis1=d.dim(x.dim()))


@case("permute.default")
def _(d):
    x = d.tensor()
    order = d.order(x.dim())
    return dict(self=x, dims=[i - (x.dim() if d.bool() else 0) for i in order])


@case("movedim.int")
def _(d):
    x = d.tensor(d.shape(1))
    return dict(self=x, source=d.dim(x.dim()), destination=d.dim(x.dim()))


@case("movedim.intlist", "moveaxis.intlist")
def _(d):
    x = d.tensor(d.shape(1))
    count = d.int(1, x.dim())
    return dict(self=x, source=d.order(x.dim())[:count], destination=d.order(x.dim())[:count])


@case("expand.default")
def _(d):
    x = d.tensor(d.shape(0, 3))
    size = [d.int(0, 3) if n == 1 else d.pick([n, -1]) for n in x.shape]
    return dict(self=x, size=[*d.shape(0, 2), *size])


@case("expand_as.default")
def _(d):
    shape = d.shape(0, 3)
    return dict(self=d.tensor(d.like(shape)), other=torch.empty(shape))


@case("broadcast_tensors.default")
def _(d):
    shape = d.shape(0, 3)
    return dict(tensors=[d.tensor(d.like(shape)) for _ in range(d.int(1, 3))])


@case("meshgrid.default")
def _(d):
    dtype = d.dtype()
    return dict(tensors=[d.tensor(d.shape(0, 1), dtype=dtype) for _ in range(d.int(1, 3))])


@case("meshgrid.indexing")
def _(d):
    dtype = d.dtype()
    return dict(
        tensors=[d.tensor(d.shape(0, 1), dtype=dtype) for _ in range(d.int(1, 3))], indexing=d.pick(["ij", "xy"])
    )


@case("flatten.using_ints")
def _(d):
    x = d.tensor()
    last = max(x.dim(), 1) - 1
    first = d.int(0, last)
    return dict(self=x, start_dim=first, end_dim=d.int(first, last) - (last + 1 if d.bool() else 0))


@case("unflatten.int")
def _(d):
    parts = d.shape(1, 3, 1)
    x = d.tensor([*d.shape(0, 2, 1), int(np.prod(parts))])
    if d.bool():
        parts[d.int(0, len(parts) - 1)] = -1
    return dict(self=x, dim=-1, sizes=parts)


@case("slice.Tensor")
def _(d):
    x = d.tensor(d.shape(1))
    return dict(
        self=x, dim=d.dim(x.dim()), start=d.pick([None, 0, 1, -2, 9, -9]), end=d.pick([None, 0, 3, -1, 2**63 - 1]),
        step=d.int(1, 3),
    )  # fmt: skip


@case("select.int")
def _(d):
    x = d.tensor(d.shape(1, 4, 1))
    dim = d.dim(x.dim())
    return dict(self=x, dim=dim, index=d.int(-x.shape[dim], x.shape[dim] - 1))


@case("narrow.default")
def _(d):
    x = d.tensor(d.shape(1))
    dim = d.dim(x.dim())
    start = d.int(0, x.shape[dim])
    return dict(self=x, dim=dim, start=start, length=d.int(0, x.shape[dim] - start))


@case("narrow.Tensor")
def _(d):
    x = d.tensor(d.shape(1))
    dim = d.dim(x.dim())
    start = d.int(0, x.shape[dim])
    return dict(self=x, dim=dim, start=torch.tensor(start), length=d.int(0, x.shape[dim] - start))


@case("split.Tensor")
def _(d):
    x = d.tensor(d.shape(1))
    return dict(self=x, split_size=d.int(1, 5), dim=d.dim(x.dim()))


def sizes(d: Draw, x: torch.Tensor, dim: int) -> list[int]:
    first = d.int(0, x.shape[dim])
    return [first, x.shape[dim] - first]


@case("split_with_sizes.default", "split.default")
def _(d):
    x = d.tensor(d.shape(1))
    dim = d.dim(x.dim())
    return dict(self=x, split_sizes=sizes(d, x, dim), dim=dim)


@case("split.sizes")
def _(d):
    x = d.tensor(d.shape(1))
    dim = d.dim(x.dim())
    return dict(self=x, split_size=sizes(d, x, dim), dim=dim)


@case("chunk.default")
def _(d):
    x = d.tensor(d.shape(1))
    return dict(self=x, chunks=d.int(1, 5), dim=d.dim(x.dim()))


@case("tensor_split.sections")
def _(d):
    x = d.tensor(d.shape(1))
    return dict(self=x, sections=d.int(1, 5), dim=d.dim(x.dim()))


@case("tensor_split.indices")
def _(d):
    x = d.tensor(d.shape(1))
    return dict(self=x, indices=[d.int(-4, 5) for _ in range(d.int(0, 3))], dim=d.dim(x.dim()))


@case("unbind.int")
def _(d):
    x = d.tensor(d.shape(1))
    return dict(self=x, dim=d.dim(x.dim()))


@case("diagonal.default")
def _(d):
    x = d.tensor(d.shape(2))
    first, second = d.order(x.dim())[:2]
    return dict(self=x, offset=d.int(-5, 5), dim1=first, dim2=second - (x.dim() if d.bool() else 0))


@case("unfold.default")
def _(d):
    x = d.tensor(d.shape(1, 3))
    dim = d.dim(x.dim())
    return dict(self=x, dimension=dim, size=d.int(0, x.shape[dim]), step=d.int(1, 3))


@case("as_strided.default")
def _(d):
    x = d.values([12], d.dtype())
    offset = d.int(0, 3)
    return dict(self=x, size=[d.int(0, 3), d.int(1, 2)], stride=[d.int(0, 3), d.int(0, 2)], storage_offset=offset)


# ---- Casts ------------------------------------------------------------------------------------------------------


@case("clone.default", "contiguous.default", "_cast_Float.default", "_cast_Half.default", "_cast_Long.default")
def _(d):
    return dict(self=d.tensor())


@case("_to_copy.default", "to.dtype", "to.dtype_layout")
def _(d):
    return dict(self=d.tensor(), dtype=d.dtype())


@case("to.device")
def _(d):
    return dict(self=d.tensor(), device=torch.device("cpu"), dtype=d.dtype())


@case("to.other", "type_as.default")
def _(d):
    return dict(self=d.tensor(), other=torch.empty(2, dtype=d.dtype()))


@case("copy.default")
def _(d):
    shape = d.shape()
    return dict(self=torch.zeros(shape, dtype=d.dtype()), src=d.tensor(d.like(shape)))


@case("copy_.Tensor")
def _(d):
    shape = d.shape()
    return dict(self=torch.zeros(shape, dtype=d.dtype()), other=d.tensor(d.like(shape)))


@case("copy_.int")
def _(d):
    return dict(self=torch.zeros(d.shape(), dtype=d.dtype("i")), other=d.int(-3, 3))


@case("copy_.float")
def _(d):
    return dict(self=torch.zeros(d.shape(), dtype=torch.float64), other=0.25)


# ---- Creation ---------------------------------------------------------------------------------------------------


@case("zeros.default", "ones.default", "empty.memory_format")
def _(d):
    return dict(size=d.shape(), **({"dtype": d.dtype()} if d.bool() else {}))


@case("zeros_like.default", "ones_like.default", "empty_like.default")
def _(d):
    return dict(self=d.tensor(), **({"dtype": d.dtype()} if d.bool() else {}))


@case("zero.default")
def _(d):
    return dict(self=d.tensor())


@case("new_zeros.default", "new_ones.default", "new_empty.default")
def _(d):
    return dict(self=d.tensor(), size=d.shape(), **({"dtype": d.dtype()} if d.bool() else {}))


@case("empty_strided.default")
def _(d):
    return dict(size=[2, 3], stride=[1, 2])


@case("new_empty_strided.default")
def _(d):
    return dict(self=d.tensor(), size=[2, 3], stride=[1, 2])


@case("empty_permuted.default")
def _(d):
    return dict(size=[2, 3], physical_layout=[1, 0])


@case("full.default")
def _(d):
    value = d.pick([0.1, 3, True, -2.5])
    return dict(size=d.shape(), fill_value=value, **({"dtype": d.dtype("fi")} if d.bool() else {}))


@case("full_like.default")
def _(d):
    return dict(self=d.tensor(kinds="fi"), fill_value=d.number("i"))


@case("new_full.default")
def _(d):
    return dict(self=d.tensor(kinds="f"), size=d.shape(), fill_value=d.number())


@case("fill.Scalar")
def _(d):
    return dict(self=d.tensor(kinds="fi"), value=d.pick([1, 2.0, 3]))


@case("fill.Tensor")
def _(d):
    return dict(self=d.tensor(kinds="fi"), value=torch.tensor(d.pick([1, 2.0, 3])))


@case("scalar_tensor.default")
def _(d):
    return dict(s=d.pick([1, 0.25, True]), **({"dtype": d.dtype("fi")} if d.bool() else {}))


@case("arange.default")
def _(d):
    return dict(end=d.pick([0, 5, 7.5, 1e-3]), **({"dtype": d.pick([torch.int32, torch.float32])} if d.bool() else {}))


@case("arange.start")
def _(d):
    return dict(start=d.pick([-3, 0.5]), end=d.pick([5, 7.25]))


@case("arange.start_step")
def _(d):
    step = d.pick([1, 2, 3, 0.5, -1, -2, -0.75])
    start, end = (0, d.int(0, 9)) if step > 0 else (d.int(0, 9), -1)
    return dict(start=start, end=end, step=step)


def ends(d: Draw) -> list[float]:
    return [d.pick([-1.0, 0.0, 2.5, 3]), d.pick([1.0, -4.25, 7])]


@case("linspace.default")
def _(d):
    start, end = ends(d)
    return dict(start=start, end=end, steps=d.int(0, 9))


@case("linspace.Tensor_Tensor")
def _(d):
    start, end = ends(d)
    return dict(start=torch.tensor(start), end=torch.tensor(end), steps=d.int(0, 9))


@case("linspace.Tensor_Scalar")
def _(d):
    start, end = ends(d)
    return dict(start=torch.tensor(start), end=end, steps=d.int(0, 9))


@case("linspace.Scalar_Tensor")
def _(d):
    start, end = ends(d)
    return dict(start=start, end=torch.tensor(end), steps=d.int(0, 9))


@case("eye.default")
def _(d):
    return dict(n=d.int(0, 5))


@case("eye.m")
def _(d):
    return dict(n=d.int(0, 5), m=d.int(0, 5), dtype=d.dtype())


@case("tril_indices.default", "triu_indices.default")
def _(d):
    return dict(row=d.int(0, 5), col=d.int(0, 5), offset=d.int(-6, 6))


@case("dropout.default", "native_dropout.default")
def _(d):
    p, train = d.pick([(0.0, True), (0.5, False)])
    return dict(input=d.tensor(d.shape(smallest=1), kinds="f"), p=p, train=train)


@case("dropout_.default")
def _(d):
    p, train = d.pick([(0.0, True), (0.5, False)])
    return dict(self=d.tensor(kinds="f"), p=p, train=train)


# ---- Moves ------------------------------------------------------------------------------------------------------


@case("cat.default")
def _(d):
    shape = d.shape(1)
    dim = d.dim(len(shape))
    dtypes = d.pick([[d.dtype()], FLOATS, INTEGERS])
    parts = []
    for _ in range(d.int(1, 3)):
        shape[dim] = d.int(0, 3)
        parts.append(d.tensor(shape, dtype=d.pick(dtypes)))
    if d.bool():
        parts.append(torch.empty(0, dtype=parts[0].dtype))
    return dict(tensors=parts, dim=dim)


@case("stack.default")
def _(d):
    shape, dtype = d.shape(0, 3), d.dtype()
    return dict(tensors=[d.tensor(shape, dtype=dtype) for _ in range(d.int(1, 3))], dim=d.dim(len(shape) + 1))


@case("hstack.default", "vstack.default", "dstack.default", "column_stack.default")
def _(d):
    shape, dtype = d.shape(0, 3, 1), d.dtype()
    return dict(tensors=[d.tensor(shape, dtype=dtype) for _ in range(d.int(1, 3))])


@case("repeat.default")
def _(d):
    x = d.tensor(d.shape(0, 3))
    return dict(self=x, repeats=[d.int(0, 3) for _ in range(x.dim() + d.int(0, 2))])


@case("tile.default")
def _(d):
    return dict(self=d.tensor(d.shape(0, 3)), dims=[d.int(0, 3) for _ in range(d.int(0, 4))])


@case("repeat_interleave.self_int")
def _(d):
    x = d.tensor(d.shape(0, 3))
    return dict(self=x, repeats=d.int(0, 3), dim=d.pick([None, d.dim(x.dim())]) if x.dim() else None)


@case("repeat_interleave.self_Tensor")
def _(d):
    x = d.tensor(d.shape(1, 3))
    dim = d.dim(x.dim())
    counts = [d.int(0, 3) for _ in range(x.shape[dim])]
    return dict(self=x, repeats=torch.tensor(counts, dtype=torch.int64), dim=dim)


@case("repeat_interleave.Tensor")
def _(d):
    return dict(repeats=torch.tensor([d.int(0, 3) for _ in range(d.int(0, 5))], dtype=torch.int64))


@case("flip.default")
def _(d):
    x = d.tensor()
    return dict(self=x, dims=[i - (x.dim() if d.bool() else 0) for i in range(x.dim()) if d.bool()])


@case("fliplr.default", "flipud.default")
def _(d):
    return dict(self=d.tensor(d.shape(2)))


@case("rot90.default")
def _(d):
    x = d.tensor(d.shape(2))
    return dict(self=x, k=d.int(-5, 5), dims=d.order(x.dim())[:2])


@case("roll.default")
def _(d):
    x = d.tensor()
    if not x.dim() or d.bool():
        return dict(self=x, shifts=[d.int(-9, 9)])
    return dict(self=x, shifts=[d.int(-9, 9), d.int(-9, 9)], dims=[d.dim(x.dim()), d.dim(x.dim())])


def padding(d: Draw, x: torch.Tensor) -> list[int]:
    return [d.int(-1, 2) for n in reversed(x.shape) if n >= 2 for _ in (0, 1)] if all(n >= 2 for n in x.shape) else []


@case("constant_pad_nd.default")
def _(d):
    x = d.tensor(d.shape(1, 3))
    return dict(self=x, pad=padding(d, x), value=d.number("i") % 2)


@case("pad.default")
def _(d):
    x = d.tensor(d.shape(1, 3), kinds="f")
    return dict(self=x, pad=padding(d, x), mode="constant", value=d.pick([None, 0.1, 2.0]))


@case("tril.default", "triu.default")
def _(d):
    return dict(self=d.tensor(d.shape(2)), diagonal=d.int(-5, 5))


@case("diag_embed.default")
def _(d):
    return dict(self=d.tensor(d.shape(1, 3)), offset=d.int(-2, 2), dim1=d.pick([0, -2]), dim2=-1)


@case("where.self")
def _(d):
    shape = d.shape(0, 3)
    kinds = d.pick(["f", "i", "b"])
    return dict(
        condition=d.tensor(d.like(shape), "b"), self=d.tensor(shape, kinds), other=d.tensor(d.like(shape), kinds)
    )


@case("where.ScalarOther")
def _(d):
    shape = d.shape(0, 3)
    return dict(condition=d.tensor(shape, "b"), self=d.tensor(d.like(shape), "f"), other=d.number())


@case("where.ScalarSelf")
def _(d):
    shape = d.shape(0, 3)
    return dict(condition=d.tensor(shape, "b"), self=d.number("i"), other=d.tensor(d.like(shape), "fi"))


@case("where.Scalar")
def _(d):
    return dict(condition=d.tensor(kinds="b"), self=d.int(-3, 3), other=d.int(-3, 3))


@case("where.default")
def _(d):
    return dict(condition=d.tensor(d.shape(1)))


@case("masked_fill.Scalar")
def _(d):
    x = d.tensor()
    value = d.number() if x.dtype.is_floating_point else d.bool() if x.dtype == torch.bool else d.int(0, 3)
    return dict(self=x, mask=d.tensor(d.like(x.shape), "b"), value=value)


@case("masked_fill.Tensor")
def _(d):
    x = d.tensor(kinds="f")
    return dict(self=x, mask=d.tensor(d.like(x.shape), "b"), value=torch.tensor(d.number(), dtype=torch.float32))


# ---- Indexing ---------------------------------------------------------------------------------------------------


def line(d: Draw, count: int, size: int, low: int = 0) -> torch.Tensor:
    if size == 0:
        return torch.empty(0, dtype=torch.int64)
    return torch.tensor([d.int(low, size - 1) for _ in range(count)], dtype=d.pick([torch.int64, torch.int32]))


@case("index_select.default")
def _(d):
    x = d.tensor()
    dim = d.dim(x.dim())
    return dict(self=x, dim=dim, index=line(d, d.int(0, 5), x.shape[dim] if x.dim() else 1))


@case("embedding.default")
def _(d):
    weight = d.tensor([d.int(1, 5), d.int(0, 3)], "f")
    indices = torch.from_numpy(np.asarray(d.random.integers(0, len(weight), d.shape(0, 3))))
    return dict(weight=weight, indices=indices)


def along(d: Draw, x: torch.Tensor, dim: int) -> torch.Tensor:
    """Indices for gather and scatter."""
    shape = [d.int(0, n) for n in x.shape]
    if x.dim():
        shape[dim] = d.int(0, 5)
        if x.shape[dim] == 0:
            shape[dim] = 0
    size = x.shape[dim] if x.dim() else 1
    return torch.from_numpy(np.asarray(d.random.integers(0, max(size, 1), shape)))


@case("gather.default")
def _(d):
    x = d.tensor()
    dim = d.dim(x.dim())
    return dict(self=x, dim=dim, index=along(d, x, dim))


@case("take_along_dim.default")
def _(d):
    x = d.tensor(d.shape(1, 3, 1))
    if d.bool():
        return dict(self=x, indices=torch.from_numpy(d.random.integers(0, x.numel(), [5])))
    dim = d.dim(x.dim())
    shape = [n if i == dim % x.dim() else d.pick([1, n]) for i, n in enumerate(x.shape)]
    return dict(self=x, indices=torch.from_numpy(d.random.integers(0, x.shape[dim], shape)), dim=dim)


@case("take.default")
def _(d):
    x = d.tensor(d.shape(0, 3, 1))
    return dict(self=x, index=torch.from_numpy(np.asarray(d.random.integers(-x.numel(), x.numel(), d.shape(0, 2)))))


def distinct(d: Draw, x: torch.Tensor, dim: int) -> torch.Tensor:
    """Indices that write no place twice."""
    if not x.dim():
        return torch.tensor(0)
    other = [n for i, n in enumerate(x.shape) if i != dim % x.dim()]
    places = d.random.permuted(np.broadcast_to(np.arange(x.shape[dim]), [*other, x.shape[dim]]), axis=-1)
    return torch.from_numpy(np.moveaxis(places, -1, dim).copy())


def scatter_base(d: Draw, kinds: str = "fi") -> dict[str, Any]:
    x = d.tensor(d.shape(0, 3), kinds)
    return dict(self=x, dim=d.dim(x.dim()))


@case("scatter.src")
def _(d):
    base = scatter_base(d)
    index = distinct(d, base["self"], base["dim"])
    src = d.tensor([n + d.int(0, 1) for n in index.shape], dtype=base["self"].dtype)
    return dict(**base, index=index, src=src)


@case("scatter.value")
def _(d):
    base = scatter_base(d)
    return dict(**base, index=along(d, base["self"], base["dim"]), value=d.int(0, 3))


@case("scatter.reduce")
def _(d):
    base = scatter_base(d)
    index = along(d, base["self"], base["dim"])
    src = d.tensor(list(index.shape), dtype=base["self"].dtype)
    return dict(**base, index=index, src=src, reduce=d.pick(["add", "multiply"]))


@case("scatter.value_reduce")
def _(d):
    base = scatter_base(d)
    index = along(d, base["self"], base["dim"])
    return dict(**base, index=index, value=d.int(0, 3), reduce=d.pick(["add", "multiply"]))


@case("scatter_add.default")
def _(d):
    base = scatter_base(d)
    index = along(d, base["self"], base["dim"])
    return dict(**base, index=index, src=d.tensor(list(index.shape), dtype=base["self"].dtype))


@case("scatter_reduce.two")
def _(d):
    base = scatter_base(d)
    index = along(d, base["self"], base["dim"])
    src = d.tensor(list(index.shape), dtype=base["self"].dtype)
    reduce = d.pick(["sum", "prod", "mean", "amax", "amin"])
    return dict(**base, index=index, src=src, reduce=reduce, include_self=d.bool())


def indices(d: Draw, x: torch.Tensor) -> list[Any]:
    """Integers that broadcast against each other, masks, and axes left alone."""
    if d.pick([True, False, False]):  # one mask over the first axes
        count = d.int(1, x.dim())
        return [d.tensor(list(x.shape[:count]), "b")]
    shape = d.shape(0, 2)
    chosen: list[Any] = []
    for n in x.shape:
        if d.bool():
            chosen.append(None)
        else:
            chosen.append(torch.from_numpy(np.asarray(d.random.integers(-n, n, d.like(shape)))))
    if all(one is None for one in chosen):
        chosen[0] = torch.tensor([0])
    return chosen


@case("index.Tensor")
def _(d):
    x = d.tensor(d.shape(1, 4, 1))
    return dict(self=x, indices=indices(d, x))


@case("index.Tensor_hacked_twin", "_unsafe_index.Tensor_hacked_twin")
def _(d):
    x = d.tensor(d.shape(1, 4, 1))
    return dict(self=x, indices=[line(d, 3, x.shape[0])])


def index_put(d: Draw, chosen: Callable[[torch.Tensor], list[Any]]) -> dict[str, Any]:
    x = d.tensor(d.shape(1, 4, 1), "fi").clone()
    accumulate = d.bool()
    where = chosen(x)
    shape = list(x[tuple(slice(None) if i is None else i for i in where)].shape)
    # Which of several values stays is not defined unless they are summed: then all are equal.
    values = d.tensor(d.like(shape) if accumulate else [1] * len(shape), dtype=x.dtype)
    return dict(self=x, indices=where, values=values, accumulate=accumulate)


@case("index_put.default")
def _(d):
    return index_put(d, lambda x: indices(d, x))


@case("index_put.hacked_twin", "_unsafe_index_put.hacked_twin", "index_put_.hacked_twin")
def _(d):
    return index_put(d, lambda x: [line(d, 3, x.shape[0])])


def rows(d: Draw, kinds: str = "fi") -> dict[str, Any]:
    x = d.tensor(d.shape(1, 3), kinds)
    dim = d.dim(x.dim())
    order = d.random.permutation(x.shape[dim])[: d.int(0, x.shape[dim])]
    return dict(self=x, dim=dim, index=torch.from_numpy(order))


def row_source(d: Draw, base: dict[str, Any]) -> torch.Tensor:
    shape = list(base["self"].shape)
    shape[base["dim"]] = len(base["index"])
    return d.tensor(shape, dtype=base["self"].dtype)


@case("index_copy.default")
def _(d):
    base = rows(d)
    return dict(**base, source=row_source(d, base))


@case("index_add.default")
def _(d):
    base = rows(d)
    alpha = d.number() if base["self"].dtype.is_floating_point else d.int(-2, 2)
    return dict(**base, source=row_source(d, base), alpha=alpha)


@case("index_fill.int_Scalar")
def _(d):
    return dict(**rows(d), value=d.int(0, 3))


@case("index_fill.int_Tensor")
def _(d):
    return dict(**rows(d), value=torch.tensor(d.int(0, 3)))


@case("put.default")
def _(d):
    x = d.tensor(d.shape(0, 3, 1), "fi")
    count = d.int(0, x.numel())
    places = torch.from_numpy(d.random.permutation(x.numel())[:count] - (x.numel() if d.bool() else 0))
    return dict(self=x, index=places, source=d.tensor([count], dtype=x.dtype), accumulate=d.bool())


@case("masked_select.default")
def _(d):
    x = d.tensor()
    return dict(self=x, mask=d.tensor(d.like(x.shape), "b"))


@case("masked_scatter.default")
def _(d):
    x = d.tensor()
    return dict(self=x, mask=d.tensor(d.like(x.shape), "b"), source=d.tensor([x.numel() + 2], dtype=x.dtype))


@case("slice_scatter.default")
def _(d):
    x = d.tensor(d.shape(1))
    dim, start, end, step = d.dim(x.dim()), d.pick([None, 0, 1, -2]), d.pick([None, 3, -1, 9]), d.int(1, 2)
    part = torch.ops.aten.slice(x, dim, start, end, step)
    return dict(self=x, src=d.tensor(list(part.shape), dtype=x.dtype), dim=dim, start=start, end=end, step=step)


@case("select_scatter.default")
def _(d):
    x = d.tensor(d.shape(1, 4, 1))
    dim = d.dim(x.dim())
    index = d.int(-x.shape[dim], x.shape[dim] - 1)
    return dict(self=x, src=d.tensor(list(x.select(dim, index).shape), dtype=x.dtype), dim=dim, index=index)


@case("diagonal_scatter.default")
def _(d):
    x = d.tensor(d.shape(2, 3))
    offset = d.int(-2, 2)
    return dict(self=x, src=d.tensor(list(x.diagonal(offset).shape), dtype=x.dtype), offset=offset)


@case("one_hot.default")
def _(d):
    x = torch.from_numpy(np.asarray(d.random.integers(0, 5, d.shape(0, 2, 1))))
    return dict(self=x, num_classes=d.pick([-1, 5, 7]))


# ---- Elementwise ------------------------------------------------------------------------------------------------


def pair(d: Draw, kinds: str = "fi") -> dict[str, Any]:
    shape = d.shape(0, 3)
    return dict(self=d.tensor(shape, kinds), other=d.tensor(d.like(shape), kinds))


@case("add.Tensor", "sub.Tensor", "rsub.Tensor")
def _(d):
    operands = pair(d)
    real = any(x.dtype.is_floating_point for x in operands.values())
    return dict(**operands, alpha=d.pick([1, d.number() if real else d.int(-2, 3)]))


@case("add.Scalar", "sub.Scalar", "rsub.Scalar")
def _(d):
    x = d.tensor(kinds="fi")
    return dict(self=x, other=d.number(), alpha=d.int(-2, 3))


@case("mul.Tensor")
def _(d):
    return pair(d, "fib")


@case("mul.Scalar")
def _(d):
    return dict(self=d.tensor(), other=d.number())


def nonzero(d: Draw, shape: list[int], kinds: str = "fi") -> torch.Tensor:
    x = d.tensor(shape, kinds)
    return torch.where(x == 0, torch.ones((), dtype=x.dtype), x)


@case(
    "div.Tensor", "true_divide.Tensor", "floor_divide.default", "remainder.Tensor", "fmod.Tensor",
)  # fmt: skip
def _(d):
    shape = d.shape(0, 3)
    return dict(self=d.tensor(shape, "fi"), other=nonzero(d, d.like(shape)))


@case("div.Scalar", "true_divide.Scalar", "floor_divide.Scalar", "remainder.Scalar", "fmod.Scalar")
def _(d):
    return dict(self=d.tensor(kinds="fi"), other=d.number() or 2)


@case("remainder.Scalar_Tensor")
def _(d):
    return dict(self=d.number(), other=nonzero(d, d.shape()))


@case("div.Tensor_mode")
def _(d):
    shape = d.shape(0, 3)
    mode = d.pick([None, "floor", "trunc"])
    return dict(self=d.tensor(shape, "fi"), other=nonzero(d, d.like(shape)), rounding_mode=mode)


@case("div.Scalar_mode")
def _(d):
    return dict(self=d.tensor(kinds="fi"), other=d.number() or 2, rounding_mode=d.pick([None, "floor", "trunc"]))


@case("addcmul.default", "addcdiv.default")
def _(d):
    shape = d.shape(0, 3)
    return dict(
        self=d.tensor(shape, "f"), tensor1=d.tensor(d.like(shape), "f"), tensor2=nonzero(d, d.like(shape), "f"),
        value=d.number(),
    )  # fmt: skip


@case("lerp.Tensor")
def _(d):
    shape, dtype = d.shape(0, 3), d.dtype("f")
    return dict(
        self=d.tensor(shape, dtype=dtype), end=d.tensor(d.like(shape), dtype=dtype),
        weight=d.tensor(d.like(shape), dtype=dtype),
    )  # fmt: skip


@case("lerp.Scalar")
def _(d):
    shape, dtype = d.shape(0, 3), d.dtype("f")
    return dict(self=d.tensor(shape, dtype=dtype), end=d.tensor(d.like(shape), dtype=dtype), weight=d.number("f"))


@case("pow.Tensor_Tensor", "float_power.Tensor_Tensor")
def _(d):
    shape = d.shape(0, 3)
    if d.bool():
        return dict(self=d.tensor(shape, "i"), exponent=d.tensor(d.like(shape), "i"))
    return dict(self=d.tensor(shape, "f").abs(), exponent=d.tensor(d.like(shape), "f"))


@case("pow.Tensor_Scalar", "float_power.Tensor_Scalar")
def _(d):
    if d.bool():
        return dict(self=d.tensor(kinds="i"), exponent=d.int(0, 4))
    return dict(self=d.special(kinds="f"), exponent=d.pick([0.5, 2, 3, -1, -2, -0.5, 2.5, 0, 1, 2.0]))


@case("pow.Scalar", "float_power.Scalar")
def _(d):
    if d.bool():
        return dict(self=d.int(-3, 3), exponent=d.tensor(kinds="i").abs())
    return dict(self=d.pick([2.0, 0.5, 10000.0]), exponent=d.tensor(kinds="f"))


@case("minimum.default", "maximum.default", "fmin.default", "fmax.default")
def _(d):
    shape = d.shape(0, 3)
    return dict(self=d.special(shape), other=d.special(d.like(shape)))


@case("clamp.default")
def _(d):
    x = d.special(kinds="fi")
    low, high = d.number() if x.dtype.is_floating_point else d.int(0, 2), 2
    return dict(self=x, **d.pick([{"min": low}, {"max": high}, {"min": low, "max": high}]))


@case("clamp.Tensor")
def _(d):
    x = d.special(kinds="f")
    low, high = (d.special(d.like(x.shape), "f").to(x.dtype) for _ in range(2))
    return dict(self=x, **d.pick([{"min": low}, {"max": high}, {"min": low, "max": high}]))


@case("clamp_min.default")
def _(d):
    return dict(self=d.special(kinds="f"), min=d.number())


@case("clamp_max.default")
def _(d):
    return dict(self=d.special(kinds="f"), max=d.number())


@case("clamp_min.Tensor")
def _(d):
    x = d.special(kinds="fi")
    return dict(self=x, min=d.tensor(d.like(x.shape), dtype=x.dtype))


@case("clamp_max.Tensor")
def _(d):
    x = d.special(kinds="fi")
    return dict(self=x, max=d.tensor(d.like(x.shape), dtype=x.dtype))


@case(
    "atan2.default", "hypot.default", "logaddexp.default", "logaddexp2.default", "copysign.Tensor", "xlogy.Tensor",
)  # fmt: skip
def _(d):
    shape, dtype = d.shape(0, 3), d.dtype("f")
    return dict(self=d.special(shape, "f").to(dtype), other=d.special(d.like(shape), "f").to(dtype))


@case("copysign.Scalar", "xlogy.Scalar_Other")
def _(d):
    return dict(self=d.special(kinds="f"), other=d.number())


@case("xlogy.Scalar_Self")
def _(d):
    return dict(self=d.number(), other=d.special(kinds="f"))


@case("heaviside.default")
def _(d):
    shape, dtype = d.shape(0, 3), d.dtype("f")
    return dict(self=d.special(shape, "f").to(dtype), values=d.tensor(d.like(shape), dtype=dtype))


@case(*(
    f"{name}.default" for name in [
        "reciprocal", "rsqrt", "sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan",
        "tanh", "asin", "acos", "atan", "sinh", "cosh", "sigmoid", "erf", "erfc", "deg2rad", "special_entr", "isnan",
        "isinf", "isfinite", "isposinf", "isneginf", "signbit", "logical_not",
    ]
))  # fmt: skip
def _(d):
    return dict(self=d.special(kinds="fi"))


@case(
    *(f"{name}.default" for name in ["neg", "abs", "square", "floor", "ceil", "round", "trunc", "sign", "nan_to_num"])
)
def _(d):
    return dict(self=d.special(kinds="fi"))


@case("frac.default")
def _(d):
    return dict(self=d.tensor(kinds="f"))


@case("round.decimals")
def _(d):
    return dict(self=d.tensor(kinds="f"), decimals=d.int(-2, 3))


@case("logit.default")
def _(d):
    return dict(self=torch.sigmoid(d.tensor(kinds="f").double()), eps=d.pick([None, 0.125]))


@case(*(
    f"{name}.default" for name in [
        "silu", "mish", "selu", "celu", "elu", "leaky_relu", "softplus", "hardswish", "hardsigmoid", "relu6",
        "log_sigmoid", "log_sigmoid_forward", "hardshrink", "softshrink",
    ]
))  # fmt: skip
def _(d):
    return dict(self=d.tensor(kinds="f") * d.pick([1, 4]))


@case("relu.default")
def _(d):
    return dict(self=d.special(kinds="fi"))


@case("gelu.default")
def _(d):
    return dict(self=d.tensor(kinds="f"), approximate=d.pick(["none", "tanh"]))


@case("glu.default")
def _(d):
    return dict(self=d.tensor([*d.shape(0, 2), 4], "f"), dim=-1)


@case("hardtanh.default")
def _(d):
    return dict(self=d.special(kinds="f"), min_val=d.pick([-1, -0.1]), max_val=d.pick([1, 0.7]))


@case("threshold.default")
def _(d):
    return dict(self=d.special(kinds="f"), threshold=d.number(), value=d.number())


@case("prelu.default")
def _(d):
    dtype = d.dtype("f")
    x = d.tensor(d.shape(2, 3, 1), dtype=dtype)
    return dict(self=x, weight=d.tensor([d.pick([1, x.shape[1]])], dtype=dtype))


@case("_prelu_kernel.default")
def _(d):
    dtype = d.dtype("f")
    x = d.tensor(d.shape(2, 3, 1), dtype=dtype)
    return dict(self=x, weight=d.tensor([1] * x.dim(), dtype=dtype))


@case("polar.default")
def _(d):
    shape, dtype = d.shape(0, 3), d.pick([torch.float32, torch.float64])
    return dict(abs=d.tensor(shape, dtype=dtype), angle=d.tensor(d.like(shape), dtype=dtype))


@case("view_as_complex.default")
def _(d):
    x = d.values([*d.shape(0, 3, 1), 4], d.pick([torch.float32, torch.float64]))
    return dict(self=d.pick([x[..., :2], x[..., 2:]]))


@case("view_as_real.default")
def _(d):
    return dict(self=torch.view_as_complex(d.values([*d.shape(0, 3, 1), 2], torch.float32)))


# ---- Comparison -------------------------------------------------------------------------------------------------


@case(*(f"{name}.Tensor" for name in ["eq", "ne", "lt", "le", "gt", "ge"]))
def _(d):
    shape = d.shape(0, 3)
    kinds = d.pick(["f", "i", "b"])
    return dict(self=d.special(shape, kinds), other=d.special(d.like(shape), kinds))


@case(*(f"{name}.Scalar" for name in ["eq", "ne", "lt", "le", "gt", "ge"]))
def _(d):
    number = d.number()
    x = d.special()
    if x.dtype.is_floating_point and x.numel() and d.bool():
        x = torch.where(d.tensor(list(x.shape), "b"), torch.tensor(number, dtype=x.dtype), x)
    return dict(self=x, other=number)


@case("logical_and.default", "logical_or.default", "logical_xor.default")
def _(d):
    shape = d.shape(0, 3)
    return dict(self=d.special(shape), other=d.special(d.like(shape)))


@case("bitwise_and.Tensor", "bitwise_or.Tensor", "bitwise_xor.Tensor")
def _(d):
    return pair(d, "ib")


@case("bitwise_and.Scalar", "bitwise_or.Scalar", "bitwise_xor.Scalar")
def _(d):
    x = d.tensor(kinds="ib")
    return dict(self=x, other=d.bool() if x.dtype == torch.bool else d.int(0, 9))


@case("bitwise_and.Scalar_Tensor", "bitwise_or.Scalar_Tensor", "bitwise_xor.Scalar_Tensor")
def _(d):
    return dict(self=d.int(0, 9), other=d.tensor(kinds="i"))


@case("bitwise_not.default")
def _(d):
    return dict(self=d.tensor(kinds="ib"))


@case("__lshift__.Tensor", "__rshift__.Tensor", "bitwise_left_shift.Tensor", "bitwise_right_shift.Tensor")
def _(d):
    shape, dtype = d.shape(0, 3), d.dtype("i")
    return dict(self=d.tensor(shape, dtype=dtype), other=d.tensor(d.like(shape), dtype=dtype))


@case("__lshift__.Scalar", "__rshift__.Scalar", "bitwise_left_shift.Tensor_Scalar", "bitwise_right_shift.Tensor_Scalar")
def _(d):
    return dict(self=d.tensor(kinds="i"), other=d.int(0, 5))


@case("bitwise_left_shift.Scalar_Tensor", "bitwise_right_shift.Scalar_Tensor")
def _(d):
    return dict(self=d.int(-5, 5), other=d.tensor(kinds="i").abs())


@case("isclose.default")
def _(d):
    x = d.special(kinds="f").double()
    return dict(self=x, other=x + d.pick([0.0, 1e-9, 1e-3]), rtol=1e-5, atol=1e-8, equal_nan=d.bool())


@case("isin.Tensor_Tensor")
def _(d):
    dtype = d.pick([torch.int64, torch.float32])
    return dict(elements=d.tensor(dtype=dtype), test_elements=d.tensor(dtype=dtype), invert=d.bool())


@case("isin.Tensor_Scalar")
def _(d):
    return dict(elements=d.tensor(kinds="i"), test_element=d.int(0, 5), invert=d.bool())


@case("isin.Scalar_Tensor")
def _(d):
    return dict(element=d.int(0, 5), test_elements=d.tensor(kinds="i"), invert=d.bool())


# ---- The tests --------------------------------------------------------------------------------------------------


def mapped(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, list):
        return [mapped(item, function) for item in value]
    return value


def as_list(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (list, tuple)) else [results]


def in_torch(name: str, arguments: dict[str, Any], wide: bool) -> list[Any]:
    """What torch gives; with `wide` floats are fp64, and dtype arguments that name one too."""
    overload = getattr(getattr(torch.ops.aten, name.split(".")[1]), name.split(".")[2])

    def operand(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.double() if wide and tensor.dtype.is_floating_point else tensor
        return tensor.clone() if name_is_in_place(name) else tensor

    given = {key: mapped(value, operand) for key, value in arguments.items()}
    if wide and isinstance(given.get("dtype"), torch.dtype) and given["dtype"].is_floating_point:
        given["dtype"] = torch.float64
    # What integers become in a function of reals.
    torch.set_default_dtype(torch.float64 if wide else torch.float32)
    try:
        return as_list(overload(**given))
    finally:
        torch.set_default_dtype(torch.float32)


def name_is_in_place(name: str) -> bool:
    schema = getattr(getattr(torch.ops.aten, name.split(".")[1]), name.split(".")[2])._schema
    return any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)


def written_outputs(name: str) -> list[str]:
    schema = getattr(getattr(torch.ops.aten, name.split(".")[1]), name.split(".")[2])._schema
    return [a.name for a in schema.arguments if a.kwarg_only and a.alias_info is not None and a.alias_info.is_write]


def check(found: list[np.ndarray], expected: list[Any], kind_of_operator: str) -> None:
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected):
        if mine is None:
            continue
        theirs = torch.as_tensor(theirs)
        assert list(mine.shape) == list(theirs.shape)
        if theirs.is_complex():
            np.testing.assert_allclose(mine, theirs.numpy(), rtol=4e-15, atol=1e-15)
            continue
        kind = {"b": "b", "i": "i", "u": "i"}.get(np.asarray(mine).dtype.kind, "f")
        assert kind == ("b" if theirs.dtype == torch.bool else "f" if theirs.dtype.is_floating_point else "i")
        if kind != "f":
            np.testing.assert_array_equal(mine.astype(np.int64), theirs.to(torch.int64).numpy())
        elif kind_of_operator == "cast":  # our values, rounded as torch did
            rounded = torch.from_numpy(np.asarray(mine.astype(np.float64))).to(theirs.dtype)
            np.testing.assert_array_equal(rounded.double().numpy(), theirs.double().numpy())
        elif kind_of_operator == "move":
            np.testing.assert_array_equal(mine.astype(np.float64), theirs.double().numpy())
        else:
            np.testing.assert_allclose(mine.astype(np.float64), theirs.double().numpy(), rtol=4e-15, atol=1e-15)


def compare(name: str, seed: int, drawn_from: str) -> bool:
    """False where torch refuses the arguments."""
    arguments = CASES[drawn_from](Draw(seed))
    kind = KINDS[name]
    if arguments.get("accumulate"):
        kind = "reduction"
    exact = kind in ("move", "integer", "cast")
    try:
        expected = in_torch(name, with_outputs(name, arguments, drawn_from), wide=not exact)
    except (RuntimeError, NotImplementedError, IndexError):
        return False  # a type that the kernel lacks, a result that does not fit an argument
    given = with_outputs(name, arguments, drawn_from)
    given.pop("device", None)
    found = reference.aten(name, **given)
    if kind == "allocation":
        assert [list(x.shape) for x in found] == [list(x.shape) for x in expected]
        return True
    if expected in ([], [None]) and written_outputs(name):  # lists of outputs are returned by us only
        expected = in_torch(drawn_from, arguments, wide=not exact)
    check(found, expected, kind)
    return True


def with_outputs(name: str, arguments: dict[str, Any], functional: str) -> dict[str, Any]:
    """The arguments with tensors for out=, as large as the results."""
    outputs = written_outputs(name)
    given = dict(arguments)
    if not outputs:
        return given
    results = in_torch(functional, arguments, wide=False)
    given.pop("dtype", None) if "view" not in name else None
    schema = getattr(getattr(torch.ops.aten, name.split(".")[1]), name.split(".")[2])._schema
    is_list = any(a.name == outputs[0] and "List" in str(a.type) for a in schema.arguments)
    if is_list:
        given[outputs[0]] = [torch.empty_like(result) for result in results]
        return given
    for output, result in zip(outputs, results):
        given[output] = torch.empty_like(torch.as_tensor(result), memory_format=torch.contiguous_format)
    return given


def case_of(name: str) -> str:
    """The overload whose case draws the arguments."""
    functional = name.removesuffix("_out")
    return name if name in CASES else functional if functional in CASES else VARIANTS[name]


RANDOM = sorted(name for name in ROWS if KINDS[name] == "random")
COVERED = sorted(ROWS - set(RANDOM))
OWN_VARIANTS = sorted(name for name, of in VARIANTS.items() if of in ROWS and KINDS[name] != "random")
seeds = st.integers(0, 2**32 - 1)
# The arguments come from the seed, so there is nothing to shrink.
quick = {"deadline": None, "derandomize": True, "database": None, "phases": [Phase.generate]}


@pytest.mark.parametrize("name", COVERED)
@given(seed=seeds)
@settings(max_examples=25, **quick)
def test_overload_is_torchs(name: str, seed: int) -> None:
    assert name in CASES, "an overload without a case"
    compare(name, seed, name)


@pytest.mark.parametrize("name", OWN_VARIANTS)
@given(seed=seeds)
@settings(max_examples=6, **quick)
def test_variant_is_torchs(name: str, seed: int) -> None:
    compare(name, seed, case_of(name))


@pytest.mark.parametrize("name", RANDOM)
def test_random_values_are_refused(name: str) -> None:
    with pytest.raises(assay.Error, match="random"):
        reference.aten(name, self=torch.zeros(2), input=torch.zeros(2), size=[2])


def test_dropout_in_training_is_random() -> None:
    with pytest.raises(assay.Error, match="random"):
        reference.aten("aten.dropout.default", input=torch.zeros(2), p=0.5, train=True)


def test_unknown_overload_is_refused() -> None:
    with pytest.raises(assay.Error, match=r"no reference for aten\.foo\.bar"):
        reference.aten("aten.foo.bar", self=torch.zeros(2))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("aten.add.Tensor", dict(self=torch.zeros(2), other=torch.zeros(3))),
        ("aten.add.Tensor", dict(self=torch.zeros(2))),
        ("aten.view.default", dict(self=torch.zeros(6), size=[4])),
        ("aten.view.default", dict(self=torch.zeros(6), size=[2**62, 4])),
        ("aten.select.int", dict(self=torch.zeros(2), dim=0, index=2)),
        ("aten.transpose.int", dict(self=torch.zeros(2), dim0=0, dim1=1)),
        ("aten.split_with_sizes.default", dict(self=torch.zeros(4), split_sizes=[3, 3])),
        ("aten.expand.default", dict(self=torch.zeros(3), size=[4])),
        ("aten.embedding.default", dict(weight=torch.zeros(3, 2), indices=torch.tensor([3]))),
        ("aten.index.Tensor", dict(self=torch.zeros(3), indices=[torch.tensor([-4])])),
        ("aten.gather.default", dict(self=torch.zeros(3), dim=0, index=torch.tensor([3]))),
        ("aten.floor_divide.default", dict(self=torch.tensor([1]), other=torch.tensor([0]))),
        ("aten.zeros.default", dict(size=[2**40, 2**40])),
        ("aten.full.default", dict(size=[-1], fill_value=1)),
        ("aten.arange.start_step", dict(start=0, end=1, step=0)),
        ("aten.cat.default", dict(tensors=[torch.zeros(2, 2), torch.zeros(3)], dim=0)),
        ("aten.slice.Tensor", dict(self=torch.zeros(3), dim=0, step=0)),
        ("aten.slice.Tensor", dict(self=torch.zeros(3), dim="x")),
        ("aten.unfold.default", dict(self=torch.zeros(3), dimension=0, size=4, step=1)),
        ("aten.as_strided.default", dict(self=torch.zeros(3), size=[4], stride=[1])),
    ],
)
def test_operands_that_do_not_fit_are_named(name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(assay.Error, match=re.escape(name)):
        reference.aten(name, **arguments)


def test_scalar_of_a_comparison_is_rounded_as_torch_does() -> None:
    x = torch.tensor([0.1, 0.2], dtype=torch.bfloat16)
    assert reference.aten("aten.eq.Scalar", self=x, other=0.1)[0].tolist() == torch.eq(x, 0.1).tolist()
    assert reference.aten("aten.clamp.default", self=x, min=0.15)[0].tolist() == torch.clamp(x, min=0.15).tolist()


def test_complex_numbers_are_multiplied_as_rotary_positions_do() -> None:
    x = torch.view_as_complex(torch.randn(2, 5, 3, 4, 2, generator=torch.Generator().manual_seed(0)))
    angles = torch.polar(torch.ones(5, 1, 4), torch.arange(20.0).reshape(5, 1, 4))
    found = reference.aten("aten.mul.Tensor", self=x, other=angles)[0]
    expected = x.to(torch.complex128) * angles.to(torch.complex128)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-14)
