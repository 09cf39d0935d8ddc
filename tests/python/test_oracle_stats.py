# SPDX-License-Identifier: Apache-2.0
"""assay.stats against exact sums: thousands of generated tensors of every dtype, shape and layout.

Oracle: torch widens the elements to float64, math.fsum adds them without rounding.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import assay

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
FLOATS_8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.uint8, torch.uint16, torch.uint32, torch.bool]
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

SIZES = st.lists(st.integers(0, 7), max_size=4) | st.tuples(st.integers(1, 40_000)).map(list)


def random_bits(dtype: torch.dtype, count: int, seed: int) -> torch.Tensor:
    """Elements from random bytes: every exponent, subnormals, infinities and NaN occur; bool gets 0 and 1."""
    raw = np.random.default_rng(seed).bytes(count * dtype.itemsize)
    storage = torch.frombuffer(bytearray(raw), dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8)
    return storage % 2 == 1 if dtype == torch.bool else storage.view(dtype)


def like_a_model(dtype: torch.dtype, count: int, seed: int) -> torch.Tensor:
    """Normal values with a few non-finite ones, as activations have them."""
    values = torch.randn(count, generator=torch.Generator().manual_seed(seed)).to(dtype)
    rng = np.random.default_rng(seed)
    for special in (math.nan, math.inf, -math.inf, 0.0, 1e-42):
        if count and rng.random() < 0.3:
            values[int(rng.integers(count))] = special
    return values


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    dtype = draw(st.sampled_from(FLOATS + FLOATS_8 + INTEGERS))
    shape = draw(SIZES)
    seed = draw(st.integers(0, 2**32 - 1))
    count = math.prod(shape)
    make = like_a_model if dtype in FLOATS and draw(st.booleans()) else random_bits
    layout = draw(st.sampled_from(["dense", "permuted", "sliced", "expanded", "offset"]))
    if layout == "sliced" and shape:
        return make(dtype, count * 2, seed).reshape(*shape[:-1], shape[-1] * 2)[..., ::2]
    if layout == "expanded":
        return make(dtype, count, seed).reshape(shape).unsqueeze(0).expand(3, *shape)
    if layout == "offset":
        return make(dtype, count + 3, seed)[3:].reshape(shape)
    tensor = make(dtype, count, seed).reshape(shape)
    return tensor.permute(tuple(reversed(range(tensor.dim())))) if layout == "permuted" else tensor


@settings(max_examples=3000, deadline=None)
@given(tensors())
def test_statistics_agree_with_exact_sums(tensor: torch.Tensor):
    wide = tensor.to(torch.float64).contiguous().numpy().ravel()
    finite = wide[np.isfinite(wide)]

    got = assay.stats(tensor)

    assert (got.count, got.nan_count) == (wide.size, int(np.isnan(wide).sum()))
    assert (got.positive_inf_count, got.negative_inf_count) == (
        int((wide == math.inf).sum()),
        int((wide == -math.inf).sum()),
    )
    if finite.size == 0:
        assert math.isnan(got.min) and math.isnan(got.max) and math.isnan(got.mean) and got.l2_norm == 0
        return
    assert (got.min, got.max) == (finite.min(), finite.max())
    # Scaled by a power of two, so that the oracle's own squares of float64 data stay in range; exact.
    scale = 2.0 ** -max(math.frexp(float(np.abs(finite).max()))[1], -1000)
    scaled = finite * scale
    norm = math.sqrt(math.fsum(scaled * scaled)) / scale
    assert got.l2_norm == pytest.approx(norm, rel=1e-12, abs=5e-324)
    # A sum that cancels keeps its absolute accuracy: 1e-12 of the mean magnitude, which is 1e-12 relative without
    # cancellation.
    mean, magnitude = math.fsum(scaled) / finite.size / scale, math.fsum(np.abs(scaled)) / finite.size / scale
    assert abs(got.mean - mean) <= 1e-12 * magnitude + 5e-324


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_more_than_two_to_the_31_elements(dtype: torch.dtype):
    # Expanded from one row, so the test needs a row of memory and still walks past 2^31 in the counts.
    row = torch.ones(1 << 16, dtype=dtype)
    huge = row.expand(1 << 16, 1 << 16)

    got = assay.stats(huge)

    assert got.count == 1 << 32
    assert (got.mean, got.l2_norm) == (1.0, 65536.0)  # sqrt(2^32)
