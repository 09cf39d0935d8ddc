# SPDX-License-Identifier: Apache-2.0
"""Reference operators: matrix products and sums over ranks.

Formulas: docs/opcheck/products.md. Products and sums are float64; weights are widened in blocks, so a layer of 4096 x
11008 needs a few MB beside its result. Results have the same bits for any number of jobs (threads; 0: one per core).
All functions raise :class:`assay.FormatError` for shapes that do not fit and for element types without real values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Optional

import numpy as np

from assay import _opcheck
from assay.reference._arguments import Array

__all__ = [
    "all_reduce",
    "dynamic_quantized_linear",
    "grouped_matmul_add",
    "grouped_matmul_with_routing",
    "linear",
    "linear_per_batch",
    "matmul",
    "quantized_all_reduce",
    "quantized_linear",
    "strided_batch_matmul",
    "weight_quantized_linear",
]


def matmul(x: Array, w: Array, *, transpose_x: bool = False, transpose_w: bool = False, jobs: int = 1) -> np.ndarray:
    """x . w, as numpy.matmul, in float64.

    Args:
        x: [..., m, k] or [k]; [..., k, m] with transpose_x.
        w: [..., k, n]; [..., n, k] with transpose_w. Leading sizes broadcast.
        jobs: threads.

    Returns:
        [..., m, n]; exact for integers as long as sums stay below 2^53.

    Example:
        >>> import numpy
        >>> from assay import reference
        >>> reference.matmul(numpy.array([[1, 2], [3, 4]]), numpy.array([[5, 6], [7, 8]])).tolist()
        [[19.0, 22.0], [43.0, 50.0]]
    """
    return _opcheck.matmul(x, w, transpose_x, transpose_w, jobs)


def linear(
    x: Array,
    weight: Array,
    bias: Optional[Array] = None,
    *,
    transpose_x: bool = False,
    transpose_weight: bool = True,
    jobs: int = 1,
) -> np.ndarray:
    """x . weight^T + bias, as torch.nn.functional.linear.

    Args:
        x: [..., m, k].
        weight: [n, k] or [b, n, k]; [k, n] or [b, k, n] without transpose_weight.
        bias: [n] or any shape that broadcasts to the result; [b, n] for a product of batches.

    Returns:
        [..., m, n], float64.

    Example:
        >>> import numpy
        >>> from assay import reference
        >>> reference.linear(numpy.array([[1.0, 2.0]]), numpy.array([[3.0, 4.0]]), numpy.array([0.5])).tolist()
        [[11.5]]
    """
    return _opcheck.linear(x, weight, bias, transpose_x, transpose_weight, jobs)


def linear_per_batch(
    x: Array, weight: Array, bias: Optional[Array] = None, *, transpose_weight: bool = False, jobs: int = 1
) -> np.ndarray:
    """y[m, b, n] = sum over k of x[m, b, k] weight[b, k, n], plus bias[b, n].

    Args:
        x: [m, b, k].
        weight: [b, k, n] or [k, n]; [b, n, k] or [n, k] with transpose_weight.
        bias: broadcasts to [m, b, n].
    """
    return _opcheck.linear_per_batch(x, weight, bias, transpose_weight, jobs)


def quantized_linear(
    x: Array,
    weight: Array,
    scale: Array,
    bias: Optional[Array] = None,
    row_scale: Optional[Array] = None,
    *,
    transpose_weight: bool = True,
    jobs: int = 1,
) -> np.ndarray:
    """(x . weight^T + bias) scale row_scale of int8 operands; sums and bias are exact.

    Args:
        x: [..., m, k], integers.
        weight: [n, k], integers.
        scale: one value or [n]; 64-bit integers hold a float32 in their low 32 bits.
        bias: [n], integers.
        row_scale: one value for each row of the result.
    """
    return _opcheck.quantized_linear(x, weight, bias, scale, row_scale, transpose_weight, jobs)


def weight_quantized_linear(
    x: Array,
    weight: Array,
    scale: Array,
    offset: Optional[Array] = None,
    *,
    group_size: int = 0,
    transpose_weight: bool = True,
    jobs: int = 1,
) -> np.ndarray:
    """x . ((weight + offset) scale)^T: only the weight is quantised.

    Args:
        x: [..., m, k], floats.
        weight: [n, k], integers.
        scale: one value or [n]; with groups [groups] or [groups, n].
        offset: as scale.
        group_size: values along k that share a scale; 0: no groups.
    """
    return _opcheck.weight_quantized_linear(x, weight, offset, scale, group_size, transpose_weight, jobs)


def dynamic_quantized_linear(
    x: Array,
    weight: Array,
    scale: Array,
    bias: Optional[Array] = None,
    *,
    float32_scales: bool = False,
    transpose_weight: bool = True,
    jobs: int = 1,
) -> np.ndarray:
    """(q . weight^T) s scale + bias, with s = max|row| / 127 and q = round(x / s) for each row of x.

    Args:
        x: [..., m, k], floats.
        weight: [n, k], integers.
        scale: one value or [n].
        bias: [n].
        float32_scales: s and x / s are computed in float32, as kernels do. It decides what becomes of x = max / 2,
            which is 63.5 s exactly.
    """
    return _opcheck.dynamic_quantized_linear(x, weight, scale, bias, float32_scales, transpose_weight, jobs)


def strided_batch_matmul(
    a: Array,
    b: Array,
    *,
    m: Sequence[int],
    n: Sequence[int],
    k: Sequence[int],
    lda: Sequence[int],
    ldb: Sequence[int],
    ldc: Sequence[int],
    stride_a: Sequence[int],
    stride_b: Sequence[int],
    stride_c: Sequence[int],
    heads: int = 1,
    transpose_a: bool = False,
    transpose_b: bool = False,
    size: Optional[int] = None,
) -> np.ndarray:
    """Products of batches of different sizes, heads interleaved; every list has a value for each batch.

    Row r of head j in batch i of A starts at base + stride_a[i] j + lda[i] r; the base advances by m[i] k[i] heads.

    Args:
        a: any shape, read flat; m rows of k values, with transpose_a k rows of m.
        b: the same; k rows of n values, with transpose_b n rows of k.
        size: elements of the result; by default what the batches hold.

    Returns:
        The flat C, [size]; elements that no head writes are 0.
    """
    if size is None:
        size = sum(rows * columns for rows, columns in zip(m, n)) * heads
    lists = [list(values) for values in (m, n, k, lda, ldb, ldc, stride_a, stride_b, stride_c)]
    return _opcheck.strided_batch_matmul(a, b, size, heads, *lists, transpose_a, transpose_b)


def grouped_matmul_with_routing(
    x: Array,
    weight: Array,
    group_ends: Array,
    tokens: Array,
    *,
    down: bool = False,
    token_count: int = 0,
    column_scale: Optional[Array] = None,
    row_scale: Optional[Array] = None,
    transpose_weight: bool = True,
    jobs: int = 1,
) -> np.ndarray:
    """Products of experts: rows are gathered by token, or with `down` added to their token.

    Args:
        x: [tokens, k]; with down [rows, k].
        weight: [experts, n, k].
        group_ends: [experts], rows of the experts up to each.
        tokens: [rows], the token of each row, sorted by expert.
        token_count: rows of the result of `down`.
        column_scale: [experts, n], of integers.
        row_scale: one value for each row of x, of integers.

    Returns:
        [rows, n]; with down [token_count, n].
    """
    return _opcheck.grouped_matmul_with_routing(
        x, weight, group_ends, tokens, down, token_count, column_scale, row_scale, transpose_weight, jobs
    )


def grouped_matmul_add(
    x: Array, weight: Array, group_ends: Array, accum: Array, *, transpose_x: bool = False, jobs: int = 1
) -> np.ndarray:
    """accum[g] + x[:, group g] . weight[group g, :], groups of k.

    Args:
        x: [m, k]; [k, m] with transpose_x.
        weight: [k, n].
        group_ends: [groups], k of the groups up to each.
        accum: groups m n elements.

    Returns:
        The shape of accum.
    """
    return _opcheck.grouped_matmul_add(x, weight, group_ends, accum, transpose_x, jobs)


def all_reduce(tensors: Sequence[Array], operation: Literal["sum", "max", "min", "prod"] = "sum") -> np.ndarray:
    """One tensor out of those of all ranks, element by element.

    Args:
        tensors: one a rank, equal shapes and types.

    Returns:
        float64, or int64 for integers, wrapped to their type. NaN is passed on.

    Example:
        >>> import numpy
        >>> from assay import reference
        >>> reference.all_reduce([numpy.array([1.0, 2.0]), numpy.array([10.0, 20.0])]).tolist()
        [11.0, 22.0]
    """
    return _opcheck.all_reduce(tensors, operation)


def quantized_all_reduce(tensors: Sequence[Array], scale: Array, offset: Array) -> np.ndarray:
    """(sum of the ranks + offset ranks) scale, of int8 tensors.

    Args:
        tensors: one a rank.
        scale: [1], or one value a channel (last dimension); offset the same.
    """
    return _opcheck.quantized_all_reduce(tensors, scale, offset)
