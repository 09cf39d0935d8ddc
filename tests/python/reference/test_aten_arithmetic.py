# SPDX-License-Identifier: Apache-2.0
"""Arithmetic operators of PyTorch in float64, against torch itself on operands widened to float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import assay
from assay import reference

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
floats = st.sampled_from(FLOATS)
sizes = st.integers(0, 9)
seeds = st.integers(0, 2**31)
NAN, INF = math.nan, math.inf


def random(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def widened(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return type(value)(widened(item) for item in value)
    if isinstance(value, torch.dtype) and value.is_floating_point:
        return torch.float64
    return value


def overload(name: str) -> Any:
    _, base, suffix = name.split(".")
    return getattr(getattr(torch.ops.aten, base), suffix)


def torch_results(name: str, arguments: dict[str, Any]) -> list[torch.Tensor]:
    results = overload(name)(**{key: widened(value) for key, value in arguments.items()})
    results = list(results) if isinstance(results, (list, tuple)) else [results]
    return [one if isinstance(one, torch.Tensor) else torch.tensor(one) for one in results]


def check(name: str, scale: Any = None, rtol: float = 1e-13, oracle: dict[str, Any] | None = None, **arguments: Any):
    """Results are torch's in float64; `scale` is what the tolerance is relative to, |result| when there is none."""
    expected = torch_results(name, {**arguments, **(oracle or {})})
    found = reference.aten(name, **arguments)
    assert len(found) == len(expected)
    for mine, right in zip(found, expected, strict=True):
        if mine is None:
            continue
        assert mine.shape == tuple(right.shape)
        if right.is_floating_point():
            golden = right.double().numpy()
            size = np.abs(golden) if scale is None else np.asarray(scale)
            limit = rtol * np.where(np.isfinite(size), size, 0) + 1e-300
            assert np.array_equal(np.isfinite(mine), np.isfinite(golden))
            finite = np.isfinite(golden)
            np.testing.assert_array_equal(np.asarray(mine)[~finite], golden[~finite])
            error = np.abs(np.asarray(mine)[finite] - golden[finite])
            assert (error <= np.broadcast_to(limit, golden.shape)[finite]).all()
        else:
            np.testing.assert_array_equal(np.asarray(mine, dtype=np.int64), right.numpy().astype(np.int64))
    return found


def product_size(x: torch.Tensor, w: torch.Tensor) -> np.ndarray:
    return (x.double().abs() @ w.double().abs()).numpy()


# ---- Products ---------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(m=sizes, k=sizes, n=sizes, dtype=floats, turned=st.booleans(), seed=seeds)
def test_mm_and_linear(m, k, n, dtype, turned, seed):
    generator = seeded(seed)
    x = random(generator, m, k, dtype=dtype)
    w = random(generator, n, k, dtype=dtype).t() if turned else random(generator, k, n, dtype=dtype)
    size = product_size(x, w)
    check("aten.mm.default", scale=size, self=x, mat2=w)
    check("aten.matmul.default", scale=size, self=x, other=w)
    bias = random(generator, n, dtype=dtype)
    both = size + bias.double().abs().numpy()
    check("aten.linear.default", scale=both, input=x, weight=w.t(), bias=bias)
    check("aten.addmm.default", scale=3 * both, self=bias, mat1=x, mat2=w, alpha=2, beta=-3)
    check("aten.addmm.default", scale=both, self=torch.full((n,), NAN), mat1=x, mat2=w, beta=0)


@settings(max_examples=60, deadline=None)
@given(
    batch=st.sampled_from([(), (2,), (3, 1), (2, 3)]),
    other=st.sampled_from([(), (1,), (3,), (2, 3)]),
    m=sizes,
    k=sizes,
    n=sizes,
    vectors=st.sampled_from(["none", "left", "right", "both"]),
    dtype=floats,
    seed=seeds,
)
def test_matmul_broadcasts_as_torchs(batch, other, m, k, n, vectors, dtype, seed):
    generator = seeded(seed)
    x = (
        random(generator, k, dtype=dtype)
        if vectors in ("left", "both")
        else random(generator, *batch, m, k, dtype=dtype)
    )
    w = (
        random(generator, k, dtype=dtype)
        if vectors in ("right", "both")
        else random(generator, *other, k, n, dtype=dtype)
    )
    try:
        size = product_size(x, w)
    except RuntimeError:
        with pytest.raises(assay.Error):
            reference.aten("aten.matmul.default", self=x, other=w)
        return
    check("aten.matmul.default", scale=size, self=x, other=w)


@settings(max_examples=40, deadline=None)
@given(b=st.integers(0, 4), m=sizes, k=sizes, n=sizes, dtype=floats, seed=seeds)
def test_products_of_batches(b, m, k, n, dtype, seed):
    generator = seeded(seed)
    x, w = random(generator, b, m, k, dtype=dtype), random(generator, b, k, n, dtype=dtype)
    size = product_size(x, w)
    check("aten.bmm.default", scale=size, self=x, mat2=w)
    c = random(generator, b, m, n, dtype=dtype)
    check("aten.baddbmm.default", scale=2 * (size + c.double().abs().numpy()), self=c, batch1=x, batch2=w, beta=2)
    one = random(generator, m, n, dtype=dtype)
    total = size.sum(0) + one.double().abs().numpy()
    check("aten.addbmm.default", scale=total, self=one, batch1=x, batch2=w)


def test_products_of_vectors():
    generator = seeded(3)
    a, v, u = random(generator, 5, 7), random(generator, 7), random(generator, 5)
    size = (a.double().abs() @ v.double().abs()).numpy()
    check("aten.mv.default", scale=size, self=a, vec=v)
    check("aten.addmv.default", scale=size + 10, self=u, mat=a, vec=v, alpha=0.5)
    check("aten.dot.default", scale=10.0, self=v, tensor=v)
    check("aten.vdot.default", scale=10.0, self=v, other=v)
    check("aten.outer.default", self=u, vec2=v)
    check("aten.ger.default", self=u, vec2=v)
    check("aten.addr.default", scale=20.0, self=a, vec1=u, vec2=v, beta=3)
    check("aten.inner.default", scale=20.0, self=a, other=random(generator, 2, 3, 7))
    check("aten.inner.default", scale=20.0, self=v, other=v)
    check("aten.linear.default", scale=20.0, input=random(generator, 2, 3, 7), weight=v)
    check("aten.linear.default", scale=20.0, input=v, weight=a, bias=u)
    check("aten.linalg_matmul.default", scale=20.0, self=a, other=v)
    check(
        "aten.tensordot.default",
        scale=40.0,
        self=random(generator, 2, 3, 4),
        other=random(generator, 4, 5, 2),
        dims_self=[2, 0],
        dims_other=[0, 2],
    )
    check("aten._addmm_activation.default", scale=20.0, self=u, mat1=random(generator, 2, 7), mat2=a.t())
    check("aten._addmm_activation.default", scale=20.0, self=u, mat1=random(generator, 2, 7), mat2=a.t(), use_gelu=True)


def test_integers_stay_exact():
    generator = np.random.default_rng(1)
    a = torch.from_numpy(generator.integers(-128, 128, (20, 30)).astype(np.int8))
    b = torch.from_numpy(generator.integers(-128, 128, (30, 16)).astype(np.int8))
    (found,) = reference.aten("aten._int_mm.default", self=a, mat2=b)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, a.numpy().astype(np.int64) @ b.numpy().astype(np.int64))
    large = torch.tensor([[2**40 + 1, -(2**33)], [3, 2**62]])
    check("aten.mm.default", self=large, mat2=large)  # sums wrap at 2^64
    check(
        "aten.matmul.default", self=torch.tensor([3, 4], dtype=torch.int8), other=torch.tensor([5, 6], dtype=torch.int8)
    )


def test_scaled_products_of_small_floats():
    generator = seeded(5)
    x = random(generator, 16, 32).to(torch.float8_e4m3fn)
    w = random(generator, 48, 32).to(torch.float8_e4m3fn).t()
    rows, columns = torch.rand(16, 1) + 0.5, torch.rand(1, 48) + 0.5
    plain = x.double() @ w.double()
    for a, b in [(torch.tensor(0.5), torch.tensor(2.0)), (rows, columns)]:
        (found,) = reference.aten(
            "aten._scaled_mm.default", self=x, mat2=w, scale_a=a, scale_b=b, out_dtype=torch.float32
        )
        np.testing.assert_allclose(found, (plain * a.double() * b.double()).numpy(), rtol=1e-12, atol=1e-12)
    with pytest.raises(assay.Error, match="blocks"):
        reference.aten("aten._scaled_mm.default", self=x, mat2=w, scale_a=torch.ones(16, 2), scale_b=torch.ones(2, 48))
    weight = torch.randint(-128, 128, (48, 32), dtype=torch.int8)
    (found,) = reference.aten("aten._weight_int8pack_mm.default", self=x, mat2=weight, scales=columns[0])
    np.testing.assert_allclose(
        found, ((x.double() @ weight.double().t()) * columns[0].double()).numpy(), rtol=1e-12, atol=1e-10
    )


@settings(max_examples=80, deadline=None)
@given(
    n=sizes,
    sides=sizes,
    batches=st.sampled_from([((), ()), ((2,), ()), ((2,), (1,)), ((3, 1), (2,)), ((), (2, 3)), ((1, 3), (2, 1))]),
    upper=st.booleans(),
    left=st.booleans(),
    unit=st.booleans(),
    dtype=floats,
    seed=seeds,
)
def test_triangular_systems(n, sides, batches, upper, left, unit, dtype, seed):
    batch, other = batches
    generator = seeded(seed)
    # Small values beside a diagonal around 2 keep the system well-conditioned; the other triangle is not read.
    matrix = (random(generator, *batch, n, n) / 8 + 2 * torch.eye(n)).to(dtype)
    values = random(generator, *other, *((n, sides) if left else (sides, n)), dtype=dtype)
    check(
        "aten.linalg_solve_triangular.default",
        scale=10.0,
        self=matrix,
        B=values,
        upper=upper,
        left=left,
        unitriangular=unit,
    )


def test_a_triangular_system_of_other_sizes_is_refused():
    with pytest.raises(assay.Error, match="do not fit"):
        reference.aten("aten.linalg_solve_triangular.default", self=torch.eye(3), B=torch.ones(2, 2), upper=True)
    (found,) = reference.aten(
        "aten.linalg_solve_triangular.default", self=torch.zeros(1, 1), B=torch.ones(1, 1), upper=True
    )
    assert found[0, 0] == INF  # as torch


@pytest.mark.parametrize("cut", ["rows", "columns", "depth", "batches"])
def test_grouped_products(cut):
    generator = seeded(7)
    ends = torch.tensor([4, 4, 13], dtype=torch.int32)
    dense = lambda *shape: random(generator, *shape, dtype=torch.bfloat16)  # noqa: E731
    pieces = [(0, 4), (4, 4), (4, 13)]
    if cut == "rows":
        x, w = dense(13, 8), dense(3, 8, 16)
        expected = torch.cat([x[a:b].double() @ w[g].double() for g, (a, b) in enumerate(pieces)])
    elif cut == "columns":
        x, w = dense(3, 5, 8), dense(8, 13)
        expected = torch.cat([x[g].double() @ w[:, a:b].double() for g, (a, b) in enumerate(pieces)], 1)
    elif cut == "depth":
        x, w = dense(5, 13), dense(13, 6)
        expected = torch.stack([x[:, a:b].double() @ w[a:b].double() for a, b in pieces])
    else:
        x, w = dense(3, 5, 8), dense(3, 8, 6)
        expected = x.double() @ w.double()
    offsets = {} if cut == "batches" else {"offs": ends}
    (found,) = reference.aten("aten._grouped_mm.default", self=x, mat2=w, **offsets)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-13, atol=1e-12)
    with pytest.raises(assay.Error, match="ends"):
        reference.aten(
            "aten._grouped_mm.default", self=dense(13, 8), mat2=dense(3, 8, 16), offs=torch.tensor([9, 4, 13])
        )


@settings(max_examples=80, deadline=None)
@given(
    data=st.data(),
    spatial=st.integers(1, 3),
    groups=st.sampled_from([1, 2, 4]),
    transposed=st.booleans(),
    seed=seeds,
    dtype=floats,
)
def test_convolutions(data, spatial, groups, transposed, seed, dtype):
    generator = seeded(seed)
    draw = lambda low, high: [data.draw(st.integers(low, high)) for _ in range(spatial)]  # noqa: E731
    kernel, stride, padding, dilation = draw(1, 3), draw(1, 3), draw(0, 2), draw(1, 2)
    inputs, outputs = 4 * data.draw(st.integers(1, 2)), 4 * data.draw(st.integers(1, 2))
    x = random(generator, data.draw(st.integers(1, 2)), inputs, *draw(5, 8), dtype=dtype)
    first, second = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
    weight = random(generator, first, second, *kernel, dtype=dtype)
    extra = [min(1, s - 1) for s in stride] if transposed else [0] * spatial
    bias = random(generator, outputs, dtype=dtype) if data.draw(st.booleans()) else None
    check(
        "aten.convolution.default",
        scale=1e3,
        input=x,
        weight=weight,
        bias=bias,
        stride=stride,
        padding=padding,
        dilation=dilation,
        transposed=transposed,
        output_padding=extra,
        groups=groups,
    )


def test_convolutions_of_causal_models_and_of_names():
    generator = seeded(11)
    x, weight, bias = random(generator, 2, 6, 17), random(generator, 6, 1, 4), random(generator, 6)
    check("aten.conv1d.default", scale=20.0, input=x, weight=weight, bias=bias, padding=[3], groups=6)  # of Mamba
    check("aten.conv1d.padding", scale=20.0, input=x, weight=weight, padding="same", groups=6)
    check("aten.conv1d.padding", scale=20.0, input=x[0], weight=weight, padding="valid", groups=6)
    image, patches = random(generator, 1, 3, 9, 9), random(generator, 5, 3, 3, 3)
    check("aten.conv2d.default", scale=90.0, input=image, weight=patches, stride=[3, 3])  # of vision towers
    check("aten.conv2d.padding", scale=90.0, input=image, weight=patches, padding="same", dilation=[2, 1])
    check(
        "aten.conv3d.default",
        scale=90.0,
        input=random(generator, 1, 2, 4, 4, 4),
        weight=random(generator, 3, 2, 2, 2, 2),
    )
    check(
        "aten.conv3d.padding",
        scale=90.0,
        input=random(generator, 1, 2, 4, 4, 4),
        weight=random(generator, 3, 2, 2, 2, 2),
        padding="valid",
    )
    check("aten.conv_transpose1d.default", scale=90.0, input=x, weight=random(generator, 6, 2, 3), stride=[2], groups=2)
    check("aten.conv_transpose2d.input", scale=90.0, input=image, weight=random(generator, 3, 2, 2, 2), padding=[1, 0])
    check(
        "aten.conv_transpose3d.input",
        scale=90.0,
        input=random(generator, 2, 4, 4, 4),
        weight=random(generator, 2, 1, 2, 2, 2),
    )
    full = {"stride": [1], "padding": [3], "dilation": [1], "transposed": False, "output_padding": [0], "groups": 6}
    flags = {"benchmark": False, "deterministic": False, "cudnn_enabled": True}
    check("aten._convolution.deprecated", scale=20.0, input=x, weight=weight, bias=bias, **full, **flags)
    check("aten._convolution.default", scale=20.0, input=x, weight=weight, bias=bias, **full, **flags, allow_tf32=True)
    with pytest.raises(assay.Error, match="larger than the input"):
        reference.aten("aten.conv1d.default", input=x[:, :, :2], weight=weight, groups=6)
    # The kernels' own entries, by the convolution they stand for.
    (expected,) = reference.aten("aten.conv2d.default", input=image, weight=patches, stride=[2, 2], padding=[1, 1])
    for name, arguments in {
        "aten.thnn_conv2d.default": {"kernel_size": [3, 3]},
        "aten._slow_conv2d_forward.default": {"kernel_size": [3, 3]},
        "aten.mkldnn_convolution.default": {"dilation": [1, 1], "groups": 1},
    }.items():
        (found,) = reference.aten(
            name, self=image, weight=patches, bias=None, stride=[2, 2], padding=[1, 1], **arguments
        )
        np.testing.assert_array_equal(found, expected)


EQUATIONS = [
    ("ij,jk->ik", [(3, 4), (4, 5)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("bhqk,bkhd->bqhd", [(2, 3, 4, 5), (2, 5, 3, 6)]),
    ("i,j", [(3,), (4,)]),
    ("ii->i", [(4, 4)]),
    ("ij->", [(3, 4)]),
    ("ij->ji", [(3, 4)]),
    ("...d,dk->...k", [(2, 3, 4), (4, 5)]),
    ("...ij,...jk", [(2, 3, 4), (1, 4, 5)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
    ("bi,bi->b", [(3, 4), (3, 4)]),
    ("abc,cd->bd", [(2, 3, 4), (4, 5)]),
    ("i,i->", [(5,), (5,)]),
    ("iij,j->i", [(3, 3, 4), (4,)]),
    ("bn,nd->bnd", [(2, 3), (3, 4)]),
    ("abcd,cdef->efab", [(2, 3, 2, 4), (2, 4, 3, 2)]),
    ("bi,jk->bk", [(1, 3), (2, 4)]),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_einsum(equation, shapes, dtype):
    generator = seeded(len(equation))
    tensors = [random(generator, *shape, dtype=dtype) for shape in shapes]
    check("aten.einsum.default", scale=200.0, equation=equation, tensors=tensors)


def test_einsum_refuses_what_torch_refuses():
    for equation, shapes in [
        ("ij,jk->ik", [(3, 4), (5, 6)]),
        ("ij->ik", [(3, 4)]),
        ("ij", [(3,)]),
        ("i,j->ij", [(3,)]),
        ("i->ii", [(3,)]),
    ]:
        with pytest.raises(assay.Error):
            reference.aten("aten.einsum.default", equation=equation, tensors=[torch.ones(shape) for shape in shapes])


def test_the_turned_weight_of_a_layer_is_read_where_it_lies():
    generator = seeded(13)
    weight = random(generator, 300, 700, dtype=torch.bfloat16)
    x = random(generator, 33, 700, dtype=torch.bfloat16)
    for jobs in (1, 3):
        found = reference.aten("aten.mm.default", self=x, mat2=weight.t(), jobs=jobs)[0]
        expected = (x.double() @ weight.double().t()).numpy()
        assert (np.abs(found - expected) <= 1e-13 * product_size(x, weight.t())).all()


# ---- Reductions -------------------------------------------------------------------------------

DIMS = [None, [0], [-1], [1, 0], [0, 1, 2], []]


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(sizes, sizes, sizes),
    dim=st.sampled_from(DIMS),
    keepdim=st.booleans(),
    dtype=floats,
    seed=seeds,
    turned=st.booleans(),
)
def test_sums_and_means(shape, dim, keepdim, dtype, seed, turned):
    x = random(seeded(seed), *shape, dtype=dtype)
    if turned:
        x = x.permute(2, 0, 1)
    size = 1000.0
    for name in ("sum.dim_IntList", "mean.dim"):
        check(f"aten.{name}", scale=size, self=x, dim=dim, keepdim=keepdim)
    for name in ("nansum", "nanmean"):
        check(f"aten.{name}.default", scale=size, self=x, dim=dim, keepdim=keepdim)
    check("aten.sum.default", scale=size, self=x)
    check("aten.mean.default", scale=size, self=x)
    check("aten.prod.default", rtol=1e-12, self=x)
    check("aten.prod.dim_int", rtol=1e-12, self=x, dim=1, keepdim=keepdim)
    for order in (2, 1, 0, 3, -1.5, INF, -INF):
        if x.numel() and math.prod(shape):
            check("aten.linalg_vector_norm.default", rtol=1e-12, self=x, ord=order, dim=dim, keepdim=keepdim)
    check("aten.norm.Scalar", rtol=1e-12, self=x, p=2)
    check("aten.norm.ScalarOpt_dim", rtol=1e-12, self=x, p=None, dim=[1], keepdim=keepdim)
    check("aten.norm.ScalarOpt_dim_dtype", rtol=1e-12, self=x, p=1, dim=[1], keepdim=keepdim, dtype=torch.float32)
    check("aten.norm.ScalarOpt_dtype", rtol=1e-12, self=x, p=3, dtype=torch.float64)
    check("aten.frobenius_norm.dim", rtol=1e-12, self=x, dim=[0, 2], keepdim=keepdim)


def test_sums_of_integers_are_exact_and_dtypes_convert():
    x = torch.tensor([[2**62, 2**62, 3], [-5, 7, 1]])
    for name in ("sum", "prod", "nansum"):
        check(f"aten.{name}.default", self=x)
    check("aten.sum.default", self=torch.tensor([True, True, False]))
    check("aten.sum.dim_IntList", self=x, dim=[1], dtype=torch.int32)
    check("aten.sum.default", self=torch.tensor([1.7, -2.5, 3.0]), dtype=torch.int64)
    check("aten.sum.default", self=torch.tensor([1, 2], dtype=torch.int8), dtype=torch.float16)
    check("aten.mean.default", self=torch.tensor([1, 2]), dtype=torch.float32)
    check("aten.cumsum.default", self=x, dim=1)
    check("aten.cumprod.default", self=torch.tensor([1.5, 2.5]), dim=0, dtype=torch.int32)
    check("aten.nansum.default", self=torch.tensor([1.0, NAN, 4.0]))
    check("aten.nanmean.default", self=torch.tensor([1.0, NAN, 4.0]))
    check("aten.trace.default", self=x)
    check("aten.trace.default", scale=10.0, self=torch.rand(4, 3))


@pytest.mark.filterwarnings("ignore:.*degrees of freedom.*")
@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(sizes, sizes),
    dim=st.sampled_from([None, [0], [1], [0, 1]]),
    correction=st.sampled_from([0, 1, 2.5]),
    dtype=floats,
    seed=seeds,
)
def test_variances(shape, dim, correction, dtype, seed):
    x = random(seeded(seed), *shape, dtype=dtype) + 3
    for name in ("var", "std", "var_mean", "std_mean"):
        check(f"aten.{name}.correction", scale=100.0, self=x, dim=dim, correction=correction)
        check(f"aten.{name}.default", scale=100.0, self=x, unbiased=bool(seed % 2))
        if dim is not None:
            check(f"aten.{name}.dim", scale=100.0, self=x, dim=dim, unbiased=bool(seed % 2), keepdim=True)


@settings(max_examples=40, deadline=None)
@given(shape=st.tuples(sizes, sizes, st.integers(1, 5)), dim=st.sampled_from([0, 1, 2, -1]), dtype=floats, seed=seeds)
def test_running_results(shape, dim, dtype, seed):
    x = random(seeded(seed), *shape, dtype=dtype)
    check("aten.cumsum.default", scale=100.0, self=x, dim=dim)
    check("aten.cumprod.default", rtol=1e-12, self=x, dim=dim)
    check("aten.logcumsumexp.default", scale=20.0, self=x, dim=dim)
    if x.numel():
        coarse = (x * 2).round()  # with equal values
        check("aten.cummax.default", self=coarse, dim=dim)
        check("aten.cummin.default", self=coarse, dim=dim)
        check("aten.diff.default", scale=20.0, self=x, dim=dim)
        check("aten.diff.default", scale=20.0, self=x, dim=dim, prepend=x, append=x * 2)
    check("aten.diff.default", self=(x * 5).to(torch.int32), dim=dim, n=2)


def test_running_results_meet_special_values():
    x = torch.tensor([[1.0, NAN, 2.0, NAN], [-INF, -INF, 3.0, INF], [INF, -INF, 1.0, 0.0]])
    for name in ("cummax", "cummin", "cumsum", "cumprod", "logcumsumexp"):
        check(f"aten.{name}.default", rtol=1e-12, self=x, dim=1)
    check("aten.diff.default", self=torch.tensor([True, False, True]))
    with pytest.raises(assay.Error, match="rounded differences"):
        reference.aten("aten.diff.default", self=x, n=2)


SPECIAL = torch.tensor([[3.0, NAN, 3.0, -1.0], [INF, -INF, INF, 0.0], [-0.0, 0.0, 2.0, 2.0]])


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4)),
    dim=st.sampled_from([0, 1, -1]),
    keepdim=st.booleans(),
    dtype=st.sampled_from([*FLOATS, torch.int64, torch.int8, torch.bool, torch.uint8]),
    seed=seeds,
)
def test_extremes(shape, dim, keepdim, dtype, seed):
    x = (random(seeded(seed), *shape) * 2).round()
    x = (x > 0) if dtype == torch.bool else x.abs().to(dtype) if dtype == torch.uint8 else x.to(dtype)
    for name in ("amax", "amin"):
        check(f"aten.{name}.default", self=x, dim=[dim], keepdim=keepdim)
        check(f"aten.{name}.default", self=x)
    check("aten.aminmax.default", self=x, dim=dim, keepdim=keepdim)
    check("aten.aminmax.default", self=x)
    for name in ("max", "min"):
        check(f"aten.{name}.default", self=x)
        check(f"aten.{name}.dim", self=x, dim=dim, keepdim=keepdim)
        check(f"aten.{name}.other", self=x, other=x.flip(0))
    for name in ("all", "any"):
        check(f"aten.{name}.default", self=x)
        check(f"aten.{name}.dim", self=x, dim=dim, keepdim=keepdim)
        check(f"aten.{name}.dims", self=x, dim=[dim, 1] if dim != 1 else [1], keepdim=keepdim)
        check(f"aten.{name}.dims", self=x, dim=None)
    check("aten.count_nonzero.default", self=x, dim=dim)
    check("aten.count_nonzero.dim_IntList", self=x, dim=[0, 2])
    if dtype != torch.bool:
        check("aten.argmax.default", self=x, dim=dim, keepdim=keepdim)
        check("aten.argmin.default", self=x, dim=None, keepdim=keepdim)


def values_and_places(name: str, places: int = 1, **arguments: Any) -> None:
    """Values as torch's, and places that select them: which of equal ones is not said."""
    self = arguments["self"]
    expected = torch_results(name, arguments)
    found = reference.aten(name, **arguments)
    np.testing.assert_array_equal(
        found[0], expected[0].double().numpy() if self.is_floating_point() else expected[0].numpy()
    )
    dim = arguments.get("dim", -1)
    keep = found[places].ndim == self.dim()
    index = torch.tensor(found[places])
    selected = self.gather(dim, index if keep else index.unsqueeze(dim))
    selected = selected if keep else selected.squeeze(dim)
    np.testing.assert_array_equal(selected.double().numpy(), np.asarray(found[0], dtype=np.float64))


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 6), st.integers(1, 9)),
    dim=st.sampled_from([0, 1]),
    largest=st.booleans(),
    data=st.data(),
    dtype=st.sampled_from([*FLOATS, torch.int64]),
    seed=seeds,
)
def test_places_in_order(shape, dim, largest, data, dtype, seed):
    x = (random(seeded(seed), *shape) * 2).round().to(dtype)
    k = data.draw(st.integers(0, shape[dim]))
    values_and_places("aten.topk.default", self=x, k=k, dim=dim, largest=largest)
    check("aten.sort.stable", self=x, stable=True, dim=dim, descending=largest)
    values_and_places("aten.sort.default", self=x, dim=dim, descending=largest)
    check("aten.argsort.stable", self=x, stable=True, dim=dim, descending=largest)
    check("aten.msort.default", self=x)
    for name in ("median", "mode", "nanmedian"):
        suffix = "default" if name == "mode" else "dim"
        values_and_places(f"aten.{name}.{suffix}", self=x, dim=dim, keepdim=True)
    check("aten.median.default", self=x)
    check("aten.nanmedian.default", self=x)
    values_and_places("aten.kthvalue.default", self=x, k=data.draw(st.integers(1, shape[dim])), dim=dim)


def test_orders_meet_special_values():
    for name, arguments in {
        "amax.default": {"dim": [1]},
        "amin.default": {"dim": [0]},
        "max.dim": {"dim": 1},
        "min.dim": {"dim": 1},
        "argmax.default": {"dim": 1},
        "argmin.default": {"dim": 1},
        "sort.stable": {"stable": True},
        "median.default": {},
        "nanmedian.default": {},
        "max.default": {},
        "topk.default": {"k": 1},
        "all.default": {},
        "any.dim": {"dim": 0},
        "count_nonzero.default": {},
        "nonzero.default": {},
    }.items():
        check(f"aten.{name}", self=SPECIAL, **arguments)
    check("aten.max.other", self=SPECIAL, other=SPECIAL.flip(1))
    check("aten.all.dims", self=SPECIAL, dim=[])
    for empty in (torch.empty(0), torch.empty(2, 0)):
        with pytest.raises(assay.Error, match="no values"):
            reference.aten("aten.amax.default", self=empty, dim=[-1])
    check("aten.sort.default", self=torch.tensor(3.0), dim=0)
    check("aten.max.dim", self=torch.tensor(3.0), dim=0)
    check("aten.cumsum.default", self=torch.tensor(3.0), dim=0)


def test_places_that_are_found():
    sorted_ = torch.tensor([[1.0, 2.0, 2.0, 5.0], [0.0, 1.0, 7.0, NAN]])
    values = torch.tensor([[2.0, 0.0, 9.0], [7.0, NAN, -1.0]])
    for right in (False, True):
        check("aten.searchsorted.Tensor", sorted_sequence=sorted_, self=values, right=right)
        check("aten.searchsorted.Scalar", sorted_sequence=sorted_[0], self=2.0, right=right)
        check("aten.bucketize.Tensor", self=values, boundaries=sorted_[0], right=right)
        check("aten.bucketize.Scalar", self=2, boundaries=torch.tensor([1, 2, 2]), right=right)
    check(
        "aten.searchsorted.Tensor",
        sorted_sequence=sorted_[:1].flip(1),
        self=values[:1],
        side="right",
        sorter=torch.tensor([[3, 2, 1, 0]]),
    )
    check("aten.nonzero.default", self=torch.tensor([[0, 3], [True, 0]]))
    check("aten.nonzero.default", self=torch.tensor(2.0))
    for size in (1, 4):
        check("aten.nonzero_static.default", self=torch.tensor([[0, 3], [1, 0]]), size=size, fill_value=-7)
    x = torch.tensor([[3.0, 1.0, 2.5], [1.0, 3.0, NAN]])
    for inverse in (False, True):
        check("aten._unique.default", self=x, return_inverse=inverse)
        for counts in (False, True):
            check(
                "aten._unique2.default",
                self=torch.tensor([[3, 1], [1, 2]]),
                return_inverse=inverse,
                return_counts=counts,
            )
            check(
                "aten.unique_consecutive.default",
                self=torch.tensor([1, 1, 2, 2, 1]),
                return_inverse=inverse,
                return_counts=counts,
            )
    check("aten.bincount.default", self=torch.tensor([1, 1, 3]), minlength=6)
    check("aten.bincount.default", self=torch.tensor([1, 1, 3]), weights=torch.tensor([0.5, 1.0, 2.0]))
    check("aten.histc.default", self=torch.tensor([1.0, 2.0, 3.0, 3.0, 9.0]), bins=4)
    check("aten.histc.default", self=torch.tensor([1.0, 2.0, 3.0]), bins=4, min=1, max=2.5)
    check("aten.histc.default", self=torch.tensor([1.0, 2.0]), bins=4, min=1, max=1)
    with pytest.raises(assay.Error):
        reference.aten("aten.bincount.default", self=torch.tensor([2**62]))


def test_what_leaves_the_tensors():
    check("aten.item.default", self=torch.tensor([[2.5]]))
    check("aten._local_scalar_dense.default", self=torch.tensor(7))
    check("aten.is_nonzero.default", self=torch.tensor([NAN]))
    check("aten.equal.default", self=torch.tensor([1.0, 2.0]), other=torch.tensor([1.0, 2.0]))
    check("aten.equal.default", self=torch.tensor([2**60]), other=torch.tensor([2**60 + 1]))
    check("aten.equal.default", self=torch.tensor([NAN]), other=torch.tensor([NAN]))
    check("aten.equal.default", self=torch.ones(2), other=torch.ones(2, 1))
    x, y = torch.rand(3, 4), torch.rand(3, 4)
    check("aten.dist.default", rtol=1e-12, self=x, other=y, p=3)
    check("aten.cosine_similarity.default", rtol=1e-12, x1=x, x2=y)
    with pytest.raises(assay.Error, match="no single value"):
        reference.aten("aten.item.default", self=x)


# ---- Softmax and norms ------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(sizes, sizes, sizes),
    dim=st.sampled_from([0, 1, -1]),
    dtype=floats,
    spread=st.sampled_from([1, 50]),
    seed=seeds,
)
def test_softmax(shape, dim, dtype, spread, seed):
    x = random(seeded(seed), *shape, dtype=dtype) * spread
    for name in ("softmax", "log_softmax"):
        check(f"aten._{name}.default", rtol=3e-13, self=x, dim=dim, half_to_float=False)
        check(f"aten.{name}.int", rtol=3e-13, self=x, dim=dim, dtype=torch.float32)
        check(f"aten.special_{name}.default", rtol=3e-13, self=x, dim=dim)
    check("aten._safe_softmax.default", rtol=3e-13, self=x, dim=dim)
    if x.numel():
        check("aten.logsumexp.default", scale=10.0 * spread, self=x, dim=[dim], keepdim=True)
        check("aten.special_logsumexp.default", scale=10.0 * spread, self=x, dim=[0, 1])


def test_softmax_of_masked_rows():
    x = torch.tensor([[-INF, -INF], [1.0, -INF], [INF, 1.0], [NAN, 1.0], [INF, INF]])
    check("aten._safe_softmax.default", self=x, dim=1)
    for dim in (0, 1):
        check("aten._softmax.default", self=x, dim=dim, half_to_float=False)
        check("aten._log_softmax.default", self=x, dim=dim, half_to_float=False)
        check("aten.logsumexp.default", rtol=1e-12, self=x, dim=[dim])
    check("aten.softmax.int", self=torch.tensor(2.0), dim=0)


def affine(generator, shape, dtype, which):
    weight, bias = random(generator, *shape, dtype=dtype) + 1, random(generator, *shape, dtype=dtype)
    return {"weight": weight if which & 1 else None, "bias": bias if which & 2 else None}


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(2, 9)),
    dims=st.integers(1, 2),
    which=st.integers(0, 3),
    dtype=floats,
    seed=seeds,
    turned=st.booleans(),
)
def test_layer_and_rms_norm(shape, dims, which, dtype, seed, turned):
    generator = seeded(seed)
    x = random(generator, *shape, dtype=dtype) * 3 + 1
    if turned:
        x = x.transpose(0, 1)
    over = list(x.shape[-dims:])
    given_ = affine(generator, over, dtype, which)
    check("aten.native_layer_norm.default", scale=1e3, input=x, normalized_shape=over, eps=1e-5, **given_)
    check("aten.layer_norm.default", scale=1e3, input=x, normalized_shape=over, eps=1e-3, **given_)
    check("aten.rms_norm.default", scale=1e3, input=x, normalized_shape=over, eps=1e-6, weight=given_["weight"])
    check("aten._fused_rms_norm.default", scale=1e3, input=x, normalized_shape=over, eps=1e-6, weight=given_["weight"])


@pytest.mark.parametrize("dtype", FLOATS)
def test_rms_norm_without_eps_takes_that_of_the_type_it_computes_in(dtype):
    x = torch.full((1, 4), 1e-3, dtype=torch.float64).to(dtype)  # eps decides here
    (found,) = reference.aten("aten.rms_norm.default", input=x, normalized_shape=[4])
    computed = torch.ops.aten.rms_norm(x, [4]).double().numpy()
    np.testing.assert_allclose(found, computed, rtol=torch.finfo(dtype).eps)
    assert reference.aten("aten._fused_rms_norm.default", input=x, normalized_shape=[4], weight=None, eps=None)[
        1
    ].shape == (1, 1)


@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(1, 3),
    groups=st.integers(1, 3),
    each=st.integers(1, 3),
    spatial=st.sampled_from([(5,), (2, 3)]),
    which=st.integers(0, 3),
    dtype=floats,
    seed=seeds,
)
def test_group_and_batch_norm(batch, groups, each, spatial, which, dtype, seed):
    generator = seeded(seed)
    channels = groups * each
    x = random(generator, batch, channels, *spatial, dtype=dtype) * 2 + 1
    given_ = affine(generator, [channels], dtype, which)
    check("aten.group_norm.default", scale=1e3, input=x, num_groups=groups, **given_)
    check(
        "aten.native_group_norm.default",
        scale=1e3,
        input=x,
        N=batch,
        C=channels,
        HxW=math.prod(spatial),
        group=groups,
        eps=1e-5,
        **given_,
    )
    running = {"running_mean": random(generator, channels), "running_var": random(generator, channels).abs() + 0.5}
    common = {"momentum": 0.1, "eps": 1e-5}
    for training in (False, True):
        check(
            "aten.batch_norm.default",
            scale=1e3,
            input=x,
            training=training,
            cudnn_enabled=True,
            **given_,
            **running,
            **common,
        )
        check("aten.native_batch_norm.default", scale=1e3, input=x, training=training, **given_, **running, **common)
        check(
            "aten._native_batch_norm_legit.default",
            scale=1e3,
            input=x,
            training=training,
            **given_,
            **running,
            **common,
        )
        check(
            "aten.instance_norm.default",
            scale=1e3,
            input=x,
            use_input_stats=training,
            cudnn_enabled=True,
            **given_,
            **running,
            **common,
        )
    check("aten._native_batch_norm_legit.no_stats", scale=1e3, input=x, training=True, **given_, **common)
    check("aten._native_batch_norm_legit_no_training.default", scale=1e3, input=x, **given_, **running, **common)
    check("aten._batch_norm_no_update.default", scale=1e3, input=x, **given_, **running, **common)
    check("aten._batch_norm_with_update.default", scale=1e3, input=x, **given_, **running, **common)
    plain = reference.aten("aten.native_batch_norm.default", input=x, training=True, **given_, **running, **common)
    for name in ("cudnn_batch_norm", "miopen_batch_norm"):  # of devices that are not here
        device = reference.aten(
            f"aten.{name}.default",
            input=x,
            training=True,
            **given_,
            **running,
            exponential_average_factor=0.1,
            epsilon=1e-5,
        )
        np.testing.assert_array_equal(device[0], plain[0])


# ---- Attention --------------------------------------------------------------------------------


def formula(q, k, v, mask, causal, scale):
    """softmax(q k^T scale + mask) v in NumPy, one head after the other; rows that see nothing are 0."""
    q, k, v = (one.double().numpy() for one in (q, k, v))
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    size, squares, logs = np.zeros_like(out), np.zeros_like(out), np.zeros(q.shape[:-1])
    weights = np.zeros((*q.shape[:-1], k.shape[-2]))
    group = q.shape[1] // k.shape[1]
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            scores = q[b, h] @ k[b, h // group].T * scale
            if mask is not None:
                bias = np.broadcast_to(mask, (q.shape[0], q.shape[1], *scores.shape))[b, h]
                scores = scores + (np.where(bias, 0.0, -INF) if bias.dtype == bool else bias.astype(np.float64))
            if causal:
                scores = np.where(np.tri(*scores.shape, dtype=bool), scores, -INF)
            seen = ~np.isneginf(scores).all(-1)
            top = np.where(seen, scores.max(-1, initial=-INF), 0.0)
            p = np.exp(scores - top[:, None])
            total = p.sum(-1)
            p = p / np.where(seen, total, 1)[:, None]
            values = v[b, h // group]
            out[b, h], size[b, h], squares[b, h] = p @ values, p @ np.abs(values), p**2 @ values**2
            weights[b, h] = p
            logs[b, h] = np.where(seen, top + np.log(np.where(seen, total, 1)), -INF)
    return out, size, squares, logs, weights


@settings(max_examples=80, deadline=None)
@given(
    batch=st.integers(1, 2),
    kv_heads=st.integers(1, 2),
    group=st.integers(1, 3),
    m=st.integers(1, 20),
    n=st.integers(1, 20),
    d=st.integers(1, 9),
    dv=st.integers(1, 9),
    kind=st.sampled_from(["none", "causal", "float", "bool", "per head"]),
    scale=st.sampled_from([None, 0.3]),
    dtype=floats,
    seed=seeds,
    turned=st.booleans(),
)
def test_attention(batch, kv_heads, group, m, n, d, dv, kind, scale, dtype, seed, turned):
    generator = seeded(seed)
    heads = kv_heads * group

    def operand(count, rows, size):
        if turned:
            return random(generator, batch, rows, count, size, dtype=dtype).transpose(1, 2)
        return random(generator, batch, count, rows, size, dtype=dtype)

    q, k, v = operand(heads, m, d), operand(kv_heads, n, d), operand(kv_heads, n, dv)
    mask = {
        "none": None,
        "causal": None,
        "float": random(generator, m, n, dtype=dtype),
        "bool": random(generator, batch, 1, m, n) > 0,
        "per head": random(generator, heads, m, n, dtype=dtype),
    }[kind]
    causal = kind == "causal"
    expected, size, _, _, weights = formula(
        q, k, v, None if mask is None else (mask if mask.dtype == torch.bool else mask.double()).numpy(), causal, scale
    )
    arguments = {"query": q, "key": k, "value": v, "is_causal": causal, "scale": scale}
    (found,) = reference.aten(
        "aten.scaled_dot_product_attention.default", **arguments, attn_mask=mask, enable_gqa=group > 1
    )
    assert (np.abs(found - expected) <= 1e-13 * (1 + size)).all()
    oracle = torch.nn.functional.scaled_dot_product_attention(
        q.double(),
        k.double(),
        v.double(),
        mask if mask is None or mask.dtype == torch.bool else mask.double(),
        is_causal=causal,
        scale=scale,
        enable_gqa=group > 1,
    )
    np.testing.assert_allclose(found, oracle.numpy(), rtol=1e-12, atol=1e-13)
    if kind != "bool":
        for name in ("", "_for_mps"):
            both = reference.aten(
                f"aten._scaled_dot_product_attention_math{name}.default", **arguments, attn_mask=mask, enable_gqa=True
            )
            np.testing.assert_array_equal(both[0], found)
            np.testing.assert_allclose(both[1], weights, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_of_kernels(causal, masked):
    generator = seeded(17)
    q, k, v = (random(generator, 2, 3, 7, 8, dtype=torch.bfloat16) for _ in range(3))
    mask = torch.zeros(7, 7).masked_fill(torch.rand(7, 7, generator=generator) < 0.3, -INF) if masked else None
    if masked:
        mask[2] = -INF  # sees nothing
    name = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    found = reference.aten(name, query=q, key=k, value=v, is_causal=causal, attn_mask=mask)
    if not (masked and causal):  # torch's kernel takes one of them
        right = overload(name)(
            q.double(), k.double(), v.double(), is_causal=causal, attn_mask=None if mask is None else mask.double()
        )
        for mine, golden in zip(found, right, strict=True):
            np.testing.assert_allclose(mine, golden.numpy(), rtol=1e-12, atol=1e-13)
    if mask is None:
        gpu = reference.aten(
            "aten._scaled_dot_product_flash_attention.default", query=q, key=k, value=v, is_causal=causal
        )
        assert len(gpu) == 9
        np.testing.assert_array_equal(gpu[0], found[0])
        np.testing.assert_array_equal(gpu[1], found[1])
        assert gpu[2:] == [None] * 7
        low = [one.transpose(1, 2) for one in (q, k, v)]
        flash = reference.aten(
            "aten._flash_attention_forward.default",
            query=low[0],
            key=low[1],
            value=low[2],
            cum_seq_q=None,
            cum_seq_k=None,
            max_q=7,
            max_k=7,
            dropout_p=0.0,
            is_causal=causal,
            return_debug_mask=False,
        )
        np.testing.assert_array_equal(flash[0], found[0].transpose(0, 2, 1, 3))
        np.testing.assert_array_equal(flash[1], found[1])
        efficient = reference.aten(
            "aten._efficient_attention_forward.default",
            query=low[0],
            key=low[1],
            value=low[2],
            bias=None,
            dropout_p=0.0,
            custom_mask_type=int(causal),
        )
        np.testing.assert_array_equal(efficient[0], flash[0])
    for device, count in {"efficient_attention": 4, "cudnn_attention": 9, "fused_attention_overrideable": 9}.items():
        extra = {} if device.startswith("fused") else {"compute_log_sumexp": True}
        results = reference.aten(
            f"aten._scaled_dot_product_{device}.default",
            query=q,
            key=k,
            value=v,
            attn_bias=mask,
            is_causal=causal,
            **extra,
        )
        assert len(results) == count
        np.testing.assert_array_equal(results[0], found[0])


def test_attention_sees_windows_from_the_end():
    generator = seeded(19)
    q, k, v = random(generator, 1, 2, 3, 4), random(generator, 1, 5, 1, 4), random(generator, 1, 5, 1, 4)
    rows, columns = np.arange(2)[:, None] + 3, np.arange(5)[None]
    visible = (columns <= rows) & (columns >= rows - 1)
    expected = formula(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), visible, False, None)[0]
    found = reference.aten(
        "aten._flash_attention_forward.default",
        query=q,
        key=k,
        value=v,
        cum_seq_q=None,
        cum_seq_k=None,
        max_q=2,
        max_k=5,
        dropout_p=0.0,
        is_causal=True,
        return_debug_mask=False,
        window_size_left=1,
    )
    np.testing.assert_allclose(found[0].transpose(0, 2, 1, 3), expected, rtol=1e-12, atol=1e-14)


def test_attention_of_other_ranks_and_of_nothing():
    generator = seeded(23)
    for shape in [(5, 4), (3, 5, 4), (2, 1, 2, 5, 4)]:
        q, k, v = (random(generator, *shape) for _ in range(3))
        (found,) = reference.aten("aten.scaled_dot_product_attention.default", query=q, key=k, value=v)
        right = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double())
        np.testing.assert_allclose(found, right.numpy(), rtol=1e-12)
    empty = random(generator, 1, 2, 0, 4)
    q = random(generator, 1, 2, 3, 4)
    assert reference.aten("aten.scaled_dot_product_attention.default", query=empty, key=q, value=q)[0].shape == (
        1,
        2,
        0,
        4,
    )
    np.testing.assert_array_equal(
        reference.aten("aten.scaled_dot_product_attention.default", query=q, key=empty, value=empty)[0], 0
    )
    with pytest.raises(assay.Error, match="random"):
        reference.aten("aten.scaled_dot_product_attention.default", query=q, key=q, value=q, dropout_p=0.1)
    with pytest.raises(assay.Error, match="do not fit"):
        reference.aten("aten.scaled_dot_product_attention.default", query=q, key=q[..., :3], value=q)
    with pytest.raises(assay.Error, match="do not fit"):
        reference.aten("aten.scaled_dot_product_attention.default", query=random(generator, 1, 6, 3, 4), key=q, value=q)


# ---- Every overload ---------------------------------------------------------------------------

MATRIX = torch.tensor([[1.5, -2.0, 0.25], [3.0, 4.0, -1.0]])
VECTOR = torch.tensor([0.5, -1.0, 2.0])
SQUARE = torch.tensor([[1.0, 2.0], [3.0, -4.0]])
BATCHES = torch.arange(12.0).reshape(3, 2, 2)
IMAGE, KERNEL = torch.arange(18.0).reshape(1, 2, 3, 3), torch.arange(8.0).reshape(1, 2, 2, 2)
SIGNAL, TAPS = torch.arange(8.0).reshape(1, 2, 4), torch.arange(4.0).reshape(1, 2, 2)
VOLUME, CUBE = torch.arange(16.0).reshape(1, 2, 2, 2, 2), torch.arange(4.0).reshape(1, 2, 1, 1, 2)
CHANNELS = {"weight": torch.tensor([2.0, 3.0]), "bias": torch.tensor([0.5, -0.5])}
RUNNING = {"running_mean": torch.tensor([0.1, 0.2]), "running_var": torch.tensor([1.0, 2.0])}
CONVOLUTION = {"stride": [1], "padding": [1], "dilation": [1], "transposed": False, "output_padding": [0], "groups": 1}
FLAGS = {"benchmark": False, "deterministic": False, "cudnn_enabled": True}
ROWS = {"self": MATRIX, "dim": [1], "keepdim": True}
ALONG = {"self": MATRIX, "dim": 1}
NORM = {"input": MATRIX, "normalized_shape": [3], "weight": VECTOR, "eps": 1e-5}
BATCH_NORM = {"input": SIGNAL, "momentum": 0.1, "eps": 1e-5, **CHANNELS}
HEADS = BATCHES.reshape(1, 3, 2, 2)
# Arguments by operator; each overload gets the ones that its schema names.
EXAMPLES: dict[str, dict[str, Any]] = {
    "addmm": {"self": SQUARE, "mat1": SQUARE, "mat2": SQUARE.t(), "alpha": 2, "beta": 3, "out_dtype": torch.float64},
    "_addmm_activation": {"self": SQUARE, "mat1": SQUARE, "mat2": SQUARE, "use_gelu": True},
    "mm": {"self": SQUARE, "mat2": SQUARE, "out_dtype": torch.float64},
    "bmm": {"self": BATCHES, "mat2": BATCHES, "out_dtype": torch.float64},
    "baddbmm": {"self": BATCHES, "batch1": BATCHES, "batch2": BATCHES, "beta": 2, "out_dtype": torch.float64},
    "addbmm": {"self": SQUARE, "batch1": BATCHES, "batch2": BATCHES},
    "addmv": {"self": SQUARE[0], "mat": SQUARE, "vec": SQUARE[1]},
    "linalg_solve_triangular": {"self": SQUARE, "B": SQUARE, "upper": True},
    "addr": {"self": SQUARE, "vec1": SQUARE[0], "vec2": SQUARE[1]},
    "mv": {"self": SQUARE, "vec": SQUARE[1]},
    "dot": {"self": VECTOR, "tensor": VECTOR},
    "vdot": {"self": VECTOR, "other": VECTOR},
    "inner": {"self": MATRIX, "other": VECTOR},
    "outer": {"self": VECTOR, "vec2": VECTOR},
    "ger": {"self": VECTOR, "vec2": VECTOR},
    "matmul": {"self": MATRIX, "other": VECTOR},
    "linalg_matmul": {"self": MATRIX, "other": VECTOR},
    "linear": {"input": MATRIX, "weight": MATRIX},
    "tensordot": {"self": MATRIX, "other": MATRIX, "dims_self": [1], "dims_other": [1]},
    "einsum": {"equation": "ij,kj->ik", "tensors": [MATRIX, MATRIX]},
    "_int_mm": {"self": torch.ones(32, 32, dtype=torch.int8), "mat2": torch.ones(32, 32, dtype=torch.int8)},
    "convolution": {"input": SIGNAL, "weight": TAPS, "bias": None, **CONVOLUTION},
    "_convolution": {"input": SIGNAL, "weight": TAPS, "bias": None, **CONVOLUTION, **FLAGS, "allow_tf32": True},
    "conv1d": {"input": SIGNAL, "weight": TAPS},
    "conv2d": {"input": IMAGE, "weight": KERNEL},
    "conv3d": {"input": VOLUME, "weight": CUBE},
    "conv_transpose1d": {"input": SIGNAL, "weight": TAPS.transpose(0, 1)},
    "conv_transpose2d": {"input": IMAGE, "weight": KERNEL.transpose(0, 1)},
    "conv_transpose3d": {"input": VOLUME, "weight": CUBE.transpose(0, 1)},
    "_slow_conv2d_forward": {
        "self": IMAGE,
        "weight": KERNEL,
        "kernel_size": [2, 2],
        "bias": None,
        "stride": [1, 1],
        "padding": [0, 0],
    },
    "thnn_conv2d": {"self": IMAGE, "weight": KERNEL, "kernel_size": [2, 2]},
    "slow_conv3d": {"self": VOLUME, "weight": CUBE, "kernel_size": [1, 1, 2]},
    **{name: ROWS for name in ("mean", "sum", "nansum", "nanmean", "amax", "amin", "logsumexp", "special_logsumexp")},
    **{name: {**ROWS, "unbiased": True, "correction": 1} for name in ("var", "std", "var_mean", "std_mean")},
    **{name: ROWS for name in ("all", "any", "count_nonzero")},
    **{
        name: {**ROWS, "p": 2, "ord": 2, "dtype": torch.float64}
        for name in ("norm", "linalg_vector_norm", "frobenius_norm")
    },
    **{name: ALONG for name in ("prod", "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "diff", "aminmax")},
    **{name: {**ALONG, "other": MATRIX.flip(0)} for name in ("max", "min")},
    **{name: ALONG for name in ("argmax", "argmin", "median", "nanmedian", "mode", "msort", "trace", "nonzero")},
    **{name: {**ALONG, "k": 2, "stable": True} for name in ("kthvalue", "topk", "sort", "argsort")},
    "nonzero_static": {"self": MATRIX, "size": 3},
    "dist": {"self": MATRIX, "other": MATRIX + 1},
    "cosine_similarity": {"x1": MATRIX, "x2": MATRIX + 1},
    "bincount": {"self": torch.tensor([1, 1, 3])},
    "histc": {"self": VECTOR, "bins": 3},
    "searchsorted": {"sorted_sequence": torch.tensor([0.0, 1.0]), "self": VECTOR},
    "bucketize": {"self": VECTOR, "boundaries": torch.tensor([0.0, 1.0])},
    "unique_consecutive": {"self": VECTOR},
    "_unique": {"self": VECTOR},
    "_unique2": {"self": VECTOR},
    "item": {"self": torch.tensor(2.0)},
    "_local_scalar_dense": {"self": torch.tensor(2.0)},
    "is_nonzero": {"self": torch.tensor(2.0)},
    "equal": {"self": VECTOR, "other": VECTOR},
    **{name: {**ALONG, "half_to_float": False} for name in ("_softmax", "_log_softmax", "softmax", "log_softmax")},
    **{name: ALONG for name in ("special_softmax", "special_log_softmax", "_safe_softmax")},
    **{name: {**NORM, "bias": VECTOR} for name in ("native_layer_norm", "layer_norm")},
    **{name: NORM for name in ("rms_norm", "_fused_rms_norm")},
    "group_norm": {"input": SIGNAL, "num_groups": 1, **CHANNELS},
    "native_group_norm": {"input": SIGNAL, "N": 1, "C": 2, "HxW": 4, "group": 1, "eps": 1e-5, **CHANNELS},
    **{
        name: {**BATCH_NORM, **RUNNING, "training": False, "use_input_stats": True, "cudnn_enabled": False}
        for name in (
            "batch_norm",
            "native_batch_norm",
            "instance_norm",
            "_native_batch_norm_legit",
            "_native_batch_norm_legit_no_training",
            "_batch_norm_no_update",
            "_batch_norm_with_update",
        )
    },
    **{
        name: {"query": HEADS, "key": HEADS, "value": HEADS}
        for name in (
            "scaled_dot_product_attention",
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_attention_math",
            "_scaled_dot_product_attention_math_for_mps",
        )
    },
}
# Kernels of devices that are not here, or of types without one on the CPU in float64; cases above.
ELSEWHERE = {
    "_efficient_attention_forward",
    "_flash_attention_forward",
    "_grouped_mm",
    "_scaled_grouped_mm",
    "_scaled_mm",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_attention_math_for_mps",
    "_scaled_dot_product_fused_attention_overrideable",
    "_weight_int8pack_mm",
    "cudnn_batch_norm",
    "miopen_batch_norm",
    "mkldnn_convolution",
    "mkldnn_linear",
    "convolution_overrideable",
    "_int_mm",
}


def base_of(name: str) -> str:
    return name.split(".")[1].removesuffix("_")


def test_every_operator_has_an_example():
    own = {
        base_of(row.name)
        for row in reference.aten_overloads()
        if row.kind in ("product", "norm", "attention") or "softmax" in row.name or "logsumexp" in row.name
    }
    assert own <= EXAMPLES.keys() | ELSEWHERE


@pytest.mark.parametrize(
    "name", [row.name for row in reference.aten_overloads() if base_of(row.name) in EXAMPLES.keys() - ELSEWHERE]
)
def test_every_overload_is_torchs(name):
    base = base_of(name)
    schema = overload(name)._schema
    arguments = {one.name: EXAMPLES[base][one.name] for one in schema.arguments if one.name in EXAMPLES[base]}
    for one in schema.arguments:
        if one.name == "dim" and str(one.type) in ("int", "Optional[int]") and isinstance(arguments.get("dim"), list):
            arguments["dim"] = arguments["dim"][0]
        if one.name == "dim" and "List" in str(one.type) and isinstance(arguments.get("dim"), int):
            arguments["dim"] = [arguments["dim"]]
    if name.endswith(".padding"):
        arguments["padding"] = "valid"
    if ".Scalar" in name and base in ("searchsorted", "bucketize"):
        arguments["self"] = 0.5
    if "no_stats" in name:
        arguments["training"] = True
    written = {one.name: one for one in schema.arguments if one.alias_info is not None and one.alias_info.is_write}
    outputs = [one for one in written if one not in arguments]
    if outputs:
        plain = reference.aten(name, **arguments)
        arguments |= {
            one: torch.empty(0, dtype=torch.uint8 if value is None else torch.tensor(value).dtype)
            for one, value in zip(outputs, plain, strict=True)
        }
    # Copies: torch writes into some of them.
    wide = {key: widened(value) for key, value in arguments.items()}
    wide = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in wide.items()}
    found = reference.aten(name, **arguments)
    try:
        results = overload(name)(**wide)
    except NotImplementedError:  # of devices only: types of the result that differ from the operands'
        assert ".dtype" in name
        results = overload(f"aten.{base}.default")(
            **{key: wide[key] for key in wide if key not in ("out", "out_dtype")}
        )
    results = list(results) if isinstance(results, (list, tuple)) else [results]
    for mine, right in zip(found, results, strict=True):
        if mine is not None:
            right = right if isinstance(right, torch.Tensor) else torch.tensor(right)
            assert mine.shape == tuple(right.shape)
            np.testing.assert_allclose(
                np.asarray(mine, dtype=np.float64), right.double().numpy(), rtol=1e-12, atol=1e-12
            )
