# SPDX-License-Identifier: Apache-2.0
"""Products and sums over ranks against torch in float64, NumPy in int64, and formulas written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import assay
from assay import reference

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
sizes = st.integers(0, 40)
seeds = st.integers(0, 2**31)


def random(generator: np.random.Generator, shape, dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(generator.standard_normal(shape)).to(dtype)


def int8(generator: np.random.Generator, shape) -> np.ndarray:
    return generator.integers(-128, 128, shape).astype(np.int8)


@settings(max_examples=60, deadline=None)
@given(
    m=sizes, k=sizes, n=sizes, batch=st.sampled_from([(), (2,), (3, 1)]), dtype=st.sampled_from(FLOATS), seed=seeds,
    flags=st.tuples(st.booleans(), st.booleans(), st.integers(1, 3)),
)  # fmt: skip
def test_matmul_is_torchs_in_float64(m, k, n, batch, dtype, seed, flags):
    transpose_x, transpose_w, jobs = flags
    generator = np.random.default_rng(seed)
    x = random(generator, (*batch, k, m) if transpose_x else (*batch, m, k), dtype)
    w = random(generator, (n, k) if transpose_w else (k, n), dtype)
    expected = (x.mT if transpose_x else x).double() @ (w.mT if transpose_w else w).double()
    result = reference.matmul(x, w, transpose_x=transpose_x, transpose_w=transpose_w, jobs=jobs)
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, expected.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows", [1, 4, 5, 130])
def test_sizes_beyond_one_block(rows):
    generator = np.random.default_rng(rows)
    x = random(generator, (rows, 1111), torch.float16)
    w = random(generator, (1333, 1111), torch.bfloat16)
    expected = (x.double() @ w.double().T).numpy()
    once = reference.matmul(x, w, transpose_w=True)
    np.testing.assert_allclose(once, expected, rtol=1e-12, atol=1e-11)
    assert np.array_equal(once, reference.matmul(x, w, transpose_w=True, jobs=4))
    turned = reference.matmul(x, w.T.contiguous(), jobs=2)
    np.testing.assert_allclose(turned, expected, rtol=1e-12, atol=1e-11)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), shape=hnp.mutually_broadcastable_shapes(signature="(m,k),(k,n)->(m,n)", max_dims=3))
def test_batches_broadcast_as_numpys(data, shape):
    x, w = (
        np.asarray(data.draw(hnp.arrays(np.int16, each, elements=st.integers(-99, 99)))) for each in shape.input_shapes
    )
    expected = np.matmul(x.astype(np.int64), w.astype(np.int64))
    result = reference.matmul(x, w)
    assert result.shape == expected.shape
    assert np.array_equal(result, expected)


@settings(max_examples=40, deadline=None)
@given(m=sizes, k=sizes, n=sizes, seed=seeds, transposed=st.booleans())
def test_int8_products_are_exact(m, k, n, seed, transposed):
    generator = np.random.default_rng(seed)
    x = int8(generator, (m, k))
    w = int8(generator, (n, k) if transposed else (k, n))
    expected = x.astype(np.int64) @ (w.T if transposed else w).astype(np.int64)
    assert np.array_equal(reference.matmul(x, w, transpose_w=transposed), expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_linear_is_torchs(dtype):
    generator = np.random.default_rng(3)
    x, w, bias = (random(generator, shape, dtype) for shape in ((2, 7, 33), (12, 33), (12,)))
    expected = torch.nn.functional.linear(x.double(), w.double(), bias.double())
    np.testing.assert_allclose(reference.linear(x, w, bias), expected.numpy(), rtol=1e-12, atol=1e-12)


def test_linear_of_batches_has_a_bias_row_for_each():
    generator = np.random.default_rng(4)
    x, w, bias = (random(generator, shape, torch.float32) for shape in ((3, 5, 8), (3, 6, 8), (3, 6)))
    expected = torch.baddbmm(bias.double()[:, None], x.double(), w.double().mT)
    np.testing.assert_allclose(reference.linear(x, w, bias), expected.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("weight_shape, formula", [((8, 6), "mbk,kn->mbn"), ((3, 8, 6), "mbk,bkn->mbn")])
def test_linear_per_batch_is_einsum(weight_shape, formula):
    generator = np.random.default_rng(5)
    x, w, bias = (random(generator, shape, torch.float16) for shape in ((5, 3, 8), weight_shape, (3, 6)))
    expected = torch.einsum(formula, x.double(), w.double()) + bias.double()
    np.testing.assert_allclose(reference.linear_per_batch(x, w, bias), expected.numpy(), rtol=1e-12, atol=1e-12)
    turned = reference.linear_per_batch(x, w.mT.contiguous(), bias, transpose_weight=True)
    np.testing.assert_allclose(turned, expected.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("stored", ["float32", "int64", "uint64"])
@pytest.mark.parametrize("with_bias", [False, True])
def test_quantized_linear(stored, with_bias):
    generator = np.random.default_rng(6)
    x, w = int8(generator, (9, 70)), int8(generator, (11, 70))
    scale = generator.uniform(1e-4, 1e-2, 11).astype(np.float32)
    bias = generator.integers(-(2**20), 2**20, 11).astype(np.int32)
    rows = generator.uniform(0.5, 2, 9).astype(np.float32)
    sums = x.astype(np.int64) @ w.T.astype(np.int64) + (bias if with_bias else 0)
    expected = sums * scale.astype(np.float64) * rows.astype(np.float64)[:, None]
    # 64-bit scales keep a float32 in the low half; what the high half holds does not matter.
    as_stored = scale if stored == "float32" else (scale.view(np.uint32).astype(np.uint64) | (7 << 60)).view(stored)
    result = reference.quantized_linear(x, w, as_stored, bias if with_bias else None, rows)
    np.testing.assert_allclose(result, expected, rtol=1e-13)
    one = reference.quantized_linear(x, w, np.float32([0.5]))
    assert np.array_equal(one, x.astype(np.int64) @ w.T.astype(np.int64) * 0.5)


@settings(max_examples=40, deadline=None)
@given(k=st.integers(1, 40), group=st.integers(0, 50), per_column=st.booleans(), offset=st.booleans(), seed=seeds)
def test_weight_quantized_linear(k, group, per_column, offset, seed):
    generator = np.random.default_rng(seed)
    n = 7
    x, w = generator.standard_normal((3, k)).astype(np.float16), int8(generator, (n, k))
    groups = -(-k // group) if group else 1
    shape = (groups, n) if per_column else (groups, 1)
    scale = generator.uniform(0.01, 0.1, shape).astype(np.float32)
    shift = generator.uniform(-3, 3, shape).astype(np.float32) if offset else None
    index = np.arange(k) // group if group else np.zeros(k, int)
    # w' row by row, as the formula has it
    plain = (w.T.astype(np.float64) + (shift[index] if offset else 0)) * scale.astype(np.float64)[index]
    expected = x.astype(np.float64) @ plain
    result = reference.weight_quantized_linear(x, w, scale, shift, group_size=group)
    np.testing.assert_allclose(result, expected, rtol=1e-10, atol=1e-10)


def test_dynamic_quantized_linear():
    generator = np.random.default_rng(8)
    x = generator.standard_normal((5, 64)).astype(np.float16)
    x[2] = 0  # a row without a scale gives the bias
    w = int8(generator, (6, 64))
    scale = generator.uniform(0.01, 0.02, 6).astype(np.float32)
    bias = generator.standard_normal(6).astype(np.float16)
    step = np.abs(x.astype(np.float64)).max(1, keepdims=True) / 127
    rounded = np.rint(np.divide(x, step, out=np.zeros_like(step * x), where=step > 0))
    expected = rounded @ w.T.astype(np.float64) * step * scale + bias.astype(np.float64)
    np.testing.assert_allclose(reference.dynamic_quantized_linear(x, w, scale, bias), expected, rtol=1e-12, atol=1e-12)


def test_float32_row_scales_decide_half_steps():
    # Where max / 127 rounds up to a float32, half of the maximum is less than 63.5 of it.
    found = 0
    for largest in np.arange(1, 2, 2**-10, dtype=np.float32):
        row = np.float32([[largest, largest / 2]])
        step = np.float32(largest / np.float32(127))
        q = np.rint(row / step)
        result = reference.dynamic_quantized_linear(row, np.int8([[0, 1]]), np.float32([1]), float32_scales=True)
        assert result[0, 0] == q[0, 1] * np.float64(step)
        exact = reference.dynamic_quantized_linear(row, np.int8([[0, 1]]), np.float32([1]))
        assert exact[0, 0] == pytest.approx(64 * float(largest) / 127, rel=1e-14)
        found += q[0, 1] == 63
    assert found


@settings(max_examples=50, deadline=None)
@given(
    ranks=st.integers(1, 4),
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
    dtype=st.sampled_from([np.int8, np.int16, np.int32, np.int64, np.uint8, np.float16, np.float32]),
    seed=seeds,
)
def test_all_reduce_sum_is_numpys_sum_of_ranks(ranks, shape, dtype, seed):
    generator = np.random.default_rng(seed)
    tensors = [(generator.standard_normal(shape) * 100).astype(dtype) for _ in range(ranks)]
    wide = dtype if np.issubdtype(dtype, np.integer) else np.float64  # integers wrap, floats do not round
    result = reference.all_reduce(tensors)
    assert np.array_equal(result, np.sum(np.stack(tensors), axis=0, dtype=wide))
    assert np.array_equal(reference.all_reduce(tensors, "max"), np.max(np.stack(tensors), axis=0))
    assert np.array_equal(reference.all_reduce(tensors, "min"), np.min(np.stack(tensors), axis=0))
    product = np.prod(np.stack(tensors), axis=0, dtype=wide)
    np.testing.assert_allclose(reference.all_reduce(tensors, "prod"), product, rtol=1e-13)


def test_all_reduce_passes_nan_on():
    for operation in ("sum", "max", "min", "prod"):
        for order in ((np.nan, 1.0), (1.0, np.nan)):
            assert np.isnan(reference.all_reduce([np.float32([value]) for value in order], operation))[0], operation


def test_quantized_all_reduce():
    ranks = [np.int8([[1, -2, 3]]), np.int8([[100, 100, 100]])]
    result = reference.quantized_all_reduce(ranks, np.float16([2, 1, 0.5]), np.float16([1, 0, -1]))
    assert result.tolist() == [[(101 + 2) * 2, 98, (103 - 2) * 0.5]]
    assert reference.quantized_all_reduce(ranks, np.float16([2]), np.float16([1])).tolist() == [[206, 200, 210]]


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_strided_batch_matmul(transpose_a, transpose_b):
    # Two batches, three heads interleaved in each row, as attention keeps them.
    heads, m, n, k = 3, [4, 2], [5, 1], [3, 6]
    generator = np.random.default_rng(9)
    parts, expected = {"a": [], "b": []}, []
    for i in range(2):
        a = generator.standard_normal((m[i], heads, k[i]))
        b = generator.standard_normal((k[i], heads, n[i]))
        parts["a"].append((a.transpose(2, 1, 0) if transpose_a else a).ravel())
        parts["b"].append((b.transpose(2, 1, 0) if transpose_b else b).ravel())
        expected.append(np.einsum("mhk,khn->mhn", a, b).ravel())
    width_a = m if transpose_a else k
    width_b = k if transpose_b else n
    result = reference.strided_batch_matmul(
        np.concatenate(parts["a"]), np.concatenate(parts["b"]), m=m, n=n, k=k, heads=heads,
        lda=[heads * w for w in width_a], ldb=[heads * w for w in width_b], ldc=[heads * w for w in n],
        stride_a=width_a, stride_b=width_b, stride_c=n, transpose_a=transpose_a, transpose_b=transpose_b,
    )  # fmt: skip
    np.testing.assert_allclose(result, np.concatenate(expected), rtol=1e-12, atol=1e-12)


def routed(generator, experts, tokens, top_k):
    """For each token top_k different experts: (ends, tokens of rows sorted by expert)."""
    chosen = np.stack([generator.permutation(experts)[:top_k] for _ in range(tokens)])
    rows = [np.flatnonzero((chosen == expert).any(1)) for expert in range(experts)]
    return np.cumsum([len(each) for each in rows]).astype(np.int32), np.concatenate(rows).astype(np.int32)


@pytest.mark.parametrize("quantized", [False, True])
def test_grouped_matmul_with_routing(quantized):
    generator = np.random.default_rng(10)
    experts, tokens, top_k, k, n = 5, 6, 2, 16, 8
    ends, order = routed(generator, experts, tokens, top_k)
    starts = np.concatenate([[0], ends[:-1]])
    values = int8 if quantized else (lambda g, shape: g.standard_normal(shape).astype(np.float16))
    w = values(generator, (experts, n, k))
    columns = generator.uniform(0.1, 1, (experts, n)).astype(np.float32) if quantized else None
    for down in (False, True):
        x = values(generator, (tokens * top_k if down else tokens, k))
        scales = generator.uniform(0.1, 1, len(x)).astype(np.float32) if quantized else None
        expected = np.zeros((tokens if down else tokens * top_k, n))
        for expert in range(experts):
            for row in range(starts[expert], ends[expert]):
                source = row if down else order[row]
                product = x[source].astype(np.float64) @ w[expert].T.astype(np.float64)
                if quantized:
                    product = product * scales[source].astype(np.float64) * columns[expert].astype(np.float64)
                expected[order[row] if down else row] += product
        result = reference.grouped_matmul_with_routing(
            x, w, ends, order, down=down, token_count=tokens, column_scale=columns, row_scale=scales
        )
        np.testing.assert_allclose(result, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("transpose_x", [False, True])
def test_grouped_matmul_add(transpose_x):
    generator = np.random.default_rng(11)
    x, w = generator.standard_normal((4, 9)).astype(np.float16), generator.standard_normal((9, 5)).astype(np.float16)
    ends, accum = np.int64([2, 2, 9]), generator.standard_normal((12, 5)).astype(np.float32)
    wide_x, wide_w = x.astype(np.float64), w.astype(np.float64)
    groups = [wide_x[:, a:b] @ wide_w[a:b] for a, b in ((0, 2), (2, 2), (2, 9))]
    result = reference.grouped_matmul_add(x.T.copy() if transpose_x else x, w, ends, accum, transpose_x=transpose_x)
    np.testing.assert_allclose(result, accum.astype(np.float64) + np.concatenate(groups), rtol=1e-12, atol=1e-12)


ONES = np.ones((2, 3), np.float32)
EXPERTS = np.ones((2, 4, 3), np.float32)


@pytest.mark.parametrize(
    "call",
    [
        lambda: reference.matmul(ONES, ONES),
        lambda: reference.matmul(ONES, np.ones(3)),
        lambda: reference.matmul(np.float32(1), ONES),
        lambda: reference.matmul(np.ones((2, 3), np.complex64), ONES.T),
        lambda: reference.matmul(np.broadcast_to(np.float32(1), (2**30, 2**30)), np.ones((2**10, 1))),
        lambda: reference.matmul(np.broadcast_to(ONES[:1, :1], (2**20, 1)), np.broadcast_to(ONES[:1, :1], (1, 2**20))),
        lambda: reference.linear(ONES, ONES, np.ones(3)),
        lambda: reference.linear_per_batch(EXPERTS, np.ones((3, 3, 1))),
        lambda: reference.linear_per_batch(ONES, ONES),
        lambda: reference.quantized_linear(ONES, ONES, np.ones(5)),
        lambda: reference.quantized_linear(ONES, ONES, np.ones(2), row_scale=np.ones(3)),
        lambda: reference.weight_quantized_linear(ONES, ONES, np.ones(7), group_size=2),
        lambda: reference.weight_quantized_linear(ONES, ONES, np.ones(2), group_size=-1),
        lambda: reference.all_reduce([]),
        lambda: reference.all_reduce([ONES, ONES.T]),
        lambda: reference.all_reduce([ONES, ONES.astype(np.float16)]),
        lambda: reference.all_reduce([ONES], "mean"),
        lambda: reference.quantized_all_reduce([ONES], np.ones(2), np.ones(1)),
        lambda: strided(m=[2, 2]),
        lambda: strided(m=[-1]),
        lambda: strided(k=[2**62], m=[4], lda=[0]),
        lambda: strided(heads=2**60),
        lambda: strided(stride_a=[2**62], heads=3),
        lambda: strided(lda=[2**61]),
        lambda: reference.grouped_matmul_with_routing(ONES, EXPERTS, np.int32([1, 3]), np.int32([0, 1])),
        lambda: reference.grouped_matmul_with_routing(ONES, EXPERTS, np.int32([2, 1]), np.int32([0, 1])),
        lambda: reference.grouped_matmul_with_routing(ONES, EXPERTS, np.int32([1, 2]), np.int32([0, 2])),
        lambda: reference.grouped_matmul_with_routing(ONES, EXPERTS, np.int32([1, 2]), np.int32([0, -1])),
        lambda: reference.grouped_matmul_add(ONES, ONES.T.copy(), np.int64([4]), np.ones((2, 2))),
        lambda: reference.grouped_matmul_add(ONES, ONES.T.copy(), np.int64([1, 3]), np.ones((2, 2))),
    ],
)
def test_hostile_arguments_raise(call):
    with pytest.raises(assay.Error):
        call()


def strided(heads=1, **changes):
    sizes = {"m": [2], "n": [2], "k": [3], "lda": [3], "ldb": [2], "ldc": [2]}
    sizes |= {"stride_a": [0], "stride_b": [0], "stride_c": [0]} | changes
    return reference.strided_batch_matmul(ONES, ONES, heads=heads, size=4, **sizes)


def test_the_plain_strided_call_works():
    assert strided().tolist() == [3, 3, 3, 3]
