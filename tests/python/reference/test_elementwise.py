# SPDX-License-Identifier: Apache-2.0
"""assay.reference: activations, arithmetic, casts and quantisation against torch and NumPy in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import assay
from assay import reference

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


@st.composite
def shapes(draw, least=0, most=4):
    return tuple(draw(st.lists(st.integers(0, 7), min_size=least, max_size=most)))


@st.composite
def tensors(draw, dtypes=None, least=0, spread=4.0):
    """A torch tensor of a float type; sometimes a transposed view."""
    shape = draw(shapes(least))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    dtype = draw(st.sampled_from(dtypes or FLOATS))
    tensor = (torch.randn(shape, generator=generator, dtype=torch.float64) * spread).to(dtype)
    return tensor.transpose(0, -1) if len(shape) > 1 and draw(st.booleans()) else tensor


def agree(mine, golden, rtol=1e-13, atol=1e-300):
    golden = np.asarray(golden)
    assert mine.shape == golden.shape
    np.testing.assert_allclose(mine, golden, rtol=rtol, atol=atol)


TORCH_FORMS = {
    "relu": torch.relu,
    "silu": torch.nn.functional.silu,
    "sigmoid": torch.sigmoid,
    "log": torch.log,
    "cos": torch.cos,
    "sin": torch.sin,
    "tanh": torch.tanh,
    "negative": torch.neg,
    "fast_gelu": lambda x: x * torch.sigmoid(1.702 * x),
}


@settings(max_examples=60, deadline=None)
@given(tensors(), st.sampled_from(sorted(TORCH_FORMS)))
def test_functions_of_one_tensor_are_those_of_torch(x, name):
    agree(getattr(reference, name)(x), TORCH_FORMS[name](x.double()))


@settings(max_examples=30, deadline=None)
@given(tensors(), st.sampled_from(["none", "tanh"]))
def test_gelu_is_that_of_torch(x, form):
    # torch adds 1 to erf and tanh, so its tail is only good to the units of 1.
    golden = torch.nn.functional.gelu(x.double(), approximate=form)
    agree(reference.gelu(x, form), golden, rtol=1e-12, atol=2e-15)


def test_gelu_where_torch_has_no_digits_left():
    x = np.array([-9.0, -7.0])
    golden = [value * 0.5 * math.erfc(-value / math.sqrt(2)) for value in x]
    agree(reference.gelu(x), golden)


@pytest.mark.parametrize("name", ["relu", "silu", "sigmoid", "cos", "tanh", "log", "fast_gelu"])
def test_not_finite_values_come_out_as_torch_has_them(name):
    x = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 0.0], dtype=torch.float16)
    golden = TORCH_FORMS[name](x.double())
    np.testing.assert_array_equal(getattr(reference, name)(x), golden.numpy())


@settings(max_examples=30, deadline=None)
@given(tensors(), st.floats(-3, 3))
def test_swish_with_a_scale(x, scale):
    wide = x.double()
    agree(reference.swish(x, scale), wide * torch.sigmoid(scale * wide), rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(tensors(least=1), st.data())
def test_swiglu_and_its_gradient_are_those_of_torch(x, data):
    axis = data.draw(st.integers(-x.dim(), x.dim() - 1))
    x = torch.cat([x, -x.flip(0) / 2], dim=axis)
    wide = x.double().clone().requires_grad_()
    a, b = wide.chunk(2, dim=axis) if x.shape[axis] else (wide, wide)
    y = torch.nn.functional.silu(a) * b
    agree(reference.swiglu(x, axis), y.detach())
    dy = torch.arange(y.numel(), dtype=torch.float64).reshape(y.shape) / 8 - 1
    y.backward(dy)
    golden = wide.grad if wide.grad is not None else torch.zeros_like(wide)
    agree(reference.swiglu_backward(dy, x, axis), golden, rtol=1e-12, atol=1e-14)


@st.composite
def broadcast_pairs(draw):
    shape = draw(shapes())
    parts = []
    for _ in range(2):
        part = [1 if draw(st.integers(0, 3)) == 0 else size for size in shape]
        parts.append(tuple(part[draw(st.integers(0, len(part))) :] if part else part))
    return parts


ARITHMETIC = {"add": torch.add, "subtract": torch.subtract, "multiply": torch.multiply, "divide": torch.true_divide}


@settings(max_examples=120, deadline=None)
@given(broadcast_pairs(), st.sampled_from(sorted(ARITHMETIC)), st.sampled_from(FLOATS), st.sampled_from(FLOATS))
def test_arithmetic_broadcasts_as_torch_does(pair, name, left, right):
    a, b = torch.randn(pair[0], dtype=torch.float64).to(left), torch.randn(pair[1], dtype=torch.float64).to(right)
    golden = ARITHMETIC[name](a.double(), b.double())
    mine = getattr(reference, name)(a, b)
    assert mine.dtype == np.float64
    np.testing.assert_array_equal(mine, golden.numpy())


@settings(max_examples=60, deadline=None)
@given(
    broadcast_pairs(),
    st.sampled_from(["add", "subtract", "multiply"]),
    st.sampled_from([torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]),
)
def test_integers_wrap_as_torch_has_it(pair, name, dtype):
    limits = torch.iinfo(dtype)
    a, b = (torch.randint(max(limits.min, -(2**62)), min(limits.max, 2**62), part).to(dtype) for part in pair)
    mine = getattr(reference, name)(a, b)
    assert mine.dtype == np.int64
    np.testing.assert_array_equal(mine, ARITHMETIC[name](a, b).numpy().astype(np.int64))


@settings(max_examples=80, deadline=None)
@given(broadcast_pairs(), st.sampled_from(["less", "greater", "equal", "logical_and", "logical_or"]), st.booleans())
def test_comparisons_and_logic_are_those_of_torch(pair, name, real):
    a, b = (torch.randint(-2, 3, part).to(torch.float16 if real else torch.int8) for part in pair)
    golden = getattr(torch, {"equal": "eq"}.get(name, name))(a, b)
    np.testing.assert_array_equal(getattr(reference, name)(a, b), golden.numpy().astype(np.int64))
    np.testing.assert_array_equal(reference.logical_not(a), torch.logical_not(a).numpy().astype(np.int64))


@settings(max_examples=80, deadline=None)
@given(tensors(spread=70.0), st.sampled_from(["float16", "float32", "int32", "int64", "int8", "bfloat16"]))
def test_casts_are_those_of_torch(x, dtype):
    target = getattr(torch, dtype)
    x = x.float().double()  # torch goes by way of float32: a double just beside a tie would be rounded twice
    if dtype == "int8":
        x = x.clamp(-128, 127)  # beyond, conversions of C are undefined and ours clamps
    golden = x.to(target)
    mine = reference.cast(x, dtype)
    assert mine.dtype == (np.float64 if dtype == "bfloat16" else golden.numpy().dtype)
    np.testing.assert_array_equal(mine, golden.double().numpy() if dtype == "bfloat16" else golden.numpy())


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.sampled_from(["int32", "int8", "uint8", "bool", "float32"]))
def test_casts_of_integers_are_those_of_numpy(values, dtype):
    x = np.array(values, dtype=np.int64)
    np.testing.assert_array_equal(reference.cast(x, dtype), x.astype(dtype))


@settings(max_examples=60, deadline=None)
@given(tensors(least=1), st.booleans(), st.booleans())
def test_quantisation_per_channel_is_its_formula(x, per_channel, with_offset):
    columns = x.shape[-1] if per_channel else 1
    scale = np.random.default_rng(columns).uniform(0.01, 0.2, columns)
    offset = np.arange(columns, dtype=np.int8) - 3 if with_offset else np.zeros(0, dtype=np.int8)
    wide = x.double().numpy()
    golden = np.clip(np.round(wide / scale + (offset if with_offset else 0)), -128, 127)
    np.testing.assert_array_equal(reference.quantize_per_channel(x, scale, offset), golden)
    back = np.clip((golden - (offset if with_offset else 0)) * scale, -65504, 65504)
    agree(reference.dequantize_per_channel(golden.astype(np.int8), scale, offset), back)


@settings(max_examples=60, deadline=None)
@given(tensors(least=1), st.booleans())
def test_dynamic_quantisation_is_its_formula(x, asymmetric):
    wide = x.double().numpy()
    q, scale, offset = reference.dynamic_quantize(x, asymmetric)
    assert scale.shape == wide.shape[:-1]
    rows = wide.reshape(-1, wide.shape[-1]) if wide.size else wide.reshape(0, 1)
    for row, ours, s, o in zip(rows, q.reshape(rows.shape), scale.ravel(), (offset if asymmetric else scale).ravel()):
        if asymmetric:
            expected = (row.max() - row.min()) / 255
            assert s == pytest.approx(expected, rel=1e-14)
            if expected == 0:
                continue
            assert o == pytest.approx(-(row.max() + row.min()) / (2 * expected), rel=1e-12, abs=1e-12)
            golden = np.round(np.clip(row / s + o, -128, 127))
        else:
            assert s == pytest.approx(np.abs(row).max() / 127, rel=1e-14)
            if s == 0:
                assert not ours.any()
                continue
            golden = np.round(row / s)
        np.testing.assert_array_equal(ours, golden)
        assert np.abs(row / s + (o if asymmetric else 0) - ours).max() <= 0.5 + 1e-9


@pytest.mark.parametrize(("dtype", "limit"), [("float8_e4m3fn", 448), ("float8_e5m2", 57344)])
def test_dynamic_quantisation_to_8_bit_floats(dtype, limit):
    x = torch.randn(5, 33, dtype=torch.float64)
    q, scale, offset = reference.dynamic_quantize(x, dtype=dtype)
    assert offset is None
    agree(scale, x.abs().amax(-1) / limit)
    np.testing.assert_array_equal(q, (x / torch.from_numpy(scale.copy())[:, None]).to(getattr(torch, dtype)).double())


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(assay.FormatError, match=r"\[2, 3\] and \[4\] do not broadcast"):
        reference.add(np.zeros((2, 3)), np.zeros(4))
    with pytest.raises(assay.FormatError, match="no halves"):
        reference.swiglu(np.zeros((2, 3)))
    with pytest.raises(assay.FormatError, match="axis 5"):
        reference.swiglu(np.zeros((2, 4)), 5)
    with pytest.raises(assay.FormatError, match="does not broadcast"):
        reference.quantize_per_channel(np.zeros((2, 4)), np.ones(3))
    with pytest.raises(assay.FormatError, match="without dimensions"):
        reference.dynamic_quantize(np.float32(1))
    with pytest.raises(assay.FormatError, match="real values"):
        reference.relu(np.zeros(2, dtype=np.complex64))
    with pytest.raises(assay.Error):
        reference.cast(np.zeros(2), "no such type")
    with pytest.raises(ValueError, match="approximate"):
        reference.gelu(np.zeros(2), "exact")


def test_a_large_broadcast_is_refused_before_it_is_allocated():
    wide = np.broadcast_to(np.float32(0), (1 << 20, 1))
    with pytest.raises(assay.FormatError, match="too large"):
        reference.add(wide, np.broadcast_to(np.float32(0), (1 << 20,)))


def field_of_structures() -> np.ndarray:
    """Elements at strides that are no multiple of their size."""
    rows = np.zeros(4, dtype=[("code", "i1"), ("value", "f4")])
    rows["value"] = np.arange(4)
    return rows["value"]


@pytest.mark.parametrize(
    "x",
    [
        np.arange(4, dtype=">f4"),
        np.arange(4, dtype=">i8"),
        field_of_structures(),
        np.arange(6.0)[::-2],
        np.arange(6.0).reshape(2, 3).T,
        np.broadcast_to(np.float32(2), (2, 3)),
        np.array(3.5),
        np.zeros((0, 4), np.float16),
        np.arange(3, dtype=np.longlong),
    ],
)
def test_arrays_of_any_order_are_read_as_their_plain_copies(x: np.ndarray) -> None:
    plain = np.ascontiguousarray(x, dtype=x.dtype.newbyteorder("=")).reshape(x.shape)
    plain.setflags(write=False)
    wide = -plain.astype(np.int64 if plain.dtype.kind == "i" else np.float64)
    np.testing.assert_array_equal(reference.negative(x), wide, strict=True)
    np.testing.assert_array_equal(reference.negative(plain), wide, strict=True)
