# SPDX-License-Identifier: Apache-2.0
"""assay.reference: reductions, sorting, indexing and sampling against torch, libc and formulas in NumPy."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import assay
from assay import reference

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int8, torch.uint8]


@st.composite
def tensors(draw, dtypes=None, least=0, least_size=0):
    shape = tuple(draw(st.lists(st.integers(least_size, 6), min_size=least, max_size=4)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    dtype = draw(st.sampled_from(dtypes or FLOATS))
    # Few different values, so that there are equal ones.
    tensor = (torch.randn(shape, generator=generator, dtype=torch.float64) * 8).round().clamp(0, 100).to(dtype) / (
        1 if dtype in INTEGERS else 8
    )
    tensor = tensor.to(dtype)
    return tensor.transpose(0, -1) if len(shape) > 1 and draw(st.booleans()) else tensor


def wide(x):
    return x.long() if x.dtype in INTEGERS else x.double()


@settings(max_examples=80, deadline=None)
@given(tensors(FLOATS + INTEGERS, least=1), st.data())
def test_cumsum_is_that_of_torch(x, data):
    axis = data.draw(st.integers(-x.dim(), x.dim() - 1))
    golden = torch.cumsum(wide(x), axis)
    np.testing.assert_array_equal(reference.cumsum(x, axis), golden.numpy())
    exclusive = golden - wide(x)  # exact: few bits
    np.testing.assert_array_equal(reference.cumsum(x, axis, exclusive=True), exclusive.numpy())
    backwards = torch.cumsum(wide(x).flip(axis), axis).flip(axis)
    np.testing.assert_array_equal(reference.cumsum(x, axis, reverse=True), backwards.numpy())
    both = backwards - wide(x)
    np.testing.assert_array_equal(reference.cumsum(x, axis, True, True), both.numpy())


@settings(max_examples=120, deadline=None)
@given(tensors(FLOATS + INTEGERS), st.data())
def test_reductions_are_those_of_torch(x, data):
    axes = data.draw(st.sets(st.integers(0, x.dim() - 1)) if x.dim() else st.just(set()))
    golden = torch.sum(wide(x), sorted(axes)) if axes else torch.sum(wide(x))
    mine = reference.sum(x, sorted(axes))
    assert mine.dtype == (np.int64 if x.dtype in INTEGERS else np.float64)
    np.testing.assert_allclose(mine, golden.numpy(), rtol=1e-14)
    if x.numel():
        np.testing.assert_array_equal(reference.amax(x, sorted(axes)), torch.amax(wide(x), sorted(axes)).numpy())
        np.testing.assert_array_equal(reference.amin(x, sorted(axes)), torch.amin(wide(x), sorted(axes)).numpy())


@settings(max_examples=80, deadline=None)
@given(tensors(least=1), st.data())
def test_softmax_is_that_of_torch_and_its_rows_sum_to_one(x, data):
    first = data.draw(st.integers(0, x.dim() - 1))
    last = data.draw(st.integers(first, x.dim() - 1))
    axes = list(range(first, last + 1))
    flat = x.double().flatten(first, last)
    golden = torch.softmax(flat, first).reshape(x.shape)
    mine = reference.softmax(x, axes)
    np.testing.assert_allclose(mine, golden.numpy(), rtol=1e-13)
    if x.numel():
        np.testing.assert_allclose(mine.sum(axis=tuple(axes)), 1, rtol=1e-14)


def test_softmax_of_large_and_infinite_values():
    x = np.array([[1e4, 1e4, -np.inf], [-np.inf, -np.inf, -np.inf]])
    y = reference.softmax(x)
    assert y[0].tolist() == [0.5, 0.5, 0.0]
    assert np.isnan(y[1]).all()


@settings(max_examples=80, deadline=None)
@given(tensors(FLOATS + INTEGERS, least=1), st.data())
def test_top_k_is_a_stable_sort_of_torch(x, data):
    k = data.draw(st.integers(0, x.shape[-1]))
    values, indices = torch.sort(wide(x), dim=-1, descending=True, stable=True)
    mine_values, mine_indices = reference.top_k(x, k)
    np.testing.assert_array_equal(mine_values, values[..., :k].numpy())
    np.testing.assert_array_equal(mine_indices, indices[..., :k].numpy())


@settings(max_examples=50, deadline=None)
@given(tensors(INTEGERS))
def test_nonzero_is_that_of_torch_with_zeros_behind(x):
    indices, count = reference.nonzero(x)
    golden = np.zeros((x.dim(), x.numel()), dtype=np.int64)
    found = torch.nonzero(x).T.numpy()
    golden[:, : found.shape[1]] = found
    assert count == found.shape[1]
    np.testing.assert_array_equal(indices, golden)


@settings(max_examples=50, deadline=None)
@given(tensors(INTEGERS), st.integers(101, 110), st.data())
def test_one_hot_is_that_of_torch_with_the_axis_moved(x, depth, data):
    axis = data.draw(st.integers(-1, x.dim()))
    golden = torch.movedim(torch.nn.functional.one_hot(x.long(), depth), -1, axis)
    np.testing.assert_array_equal(reference.one_hot(x, depth, axis=axis), golden.numpy())
    np.testing.assert_array_equal(reference.one_hot(x, depth, 5, 2, axis), golden.numpy() * 3 + 2)


@settings(max_examples=60, deadline=None)
@given(tensors(least=1, least_size=1), st.data())
def test_index_add_is_that_of_torch(x, data):
    axis = data.draw(st.integers(-x.dim(), x.dim() - 1))
    places = data.draw(st.lists(st.integers(0, x.shape[axis] - 1), max_size=9))
    shape = list(x.shape)
    shape[axis] = len(places)
    updates = torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape).to(x.dtype)
    indices = torch.tensor(places, dtype=torch.int32)
    golden = torch.index_add(x.double(), axis, indices, updates.double(), alpha=0.5)
    np.testing.assert_allclose(reference.index_add(x, axis, indices, updates, 0.5), golden.numpy(), rtol=1e-14)
    count = data.draw(st.integers(0, len(places)))
    part = torch.index_add(x.double(), axis, indices[:count], updates.double().narrow(axis, 0, count))
    np.testing.assert_allclose(reference.index_add(x, axis, indices, updates, count=count), part.numpy(), rtol=1e-14)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 4), st.sets(st.integers(0, 5)))
def test_gating_is_its_definition(experts, per_token, device):
    numbers = np.arange(len(experts))[::-1].copy()
    token, sums, original, valid = reference.gating(
        np.array(experts, dtype=np.int32), numbers, per_token, 6, sorted(device)
    )
    kept = [e for e in range(6) if not device or e in device]
    entries = [i for expert in kept for i, e in enumerate(experts) if e == expert]
    golden = np.zeros(len(experts), dtype=np.int64)
    golden[: len(entries)] = numbers[entries]
    np.testing.assert_array_equal(original, golden)
    np.testing.assert_array_equal(token[: len(entries)], golden[: len(entries)] // per_token)
    assert not token[len(entries) :].any()
    assert sums.tolist() == np.cumsum([experts.count(e) for e in kept]).tolist()
    assert valid == len(entries)


@settings(max_examples=30, deadline=None)
@given(st.integers(-(2**31), 2**31 - 1))
def test_random_numbers_are_those_of_libc(seed):
    libc = ctypes.CDLL("libc.so.6")
    libc.srand(seed)
    golden = [libc.rand() / 2147483647 for _ in range(40)]
    assert reference.glibc_random(seed, 40).tolist() == golden


def probabilities(batch, values, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(torch.randn(batch, values, generator=generator, dtype=torch.float64) * 2, -1).half()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(1, 40), st.integers(0, 1000))
def test_multinomial_adds_up_in_the_type_of_the_probabilities(batch, values, seed):
    probs = probabilities(batch, values, seed)
    fractions = reference.glibc_random(seed, 7)
    sums = np.cumsum(probs.numpy(), axis=-1, dtype=np.float16).astype(np.float64)
    golden = [[next((i for i, c in enumerate(row) if c > r), 0) for r in fractions] for row in sums]
    np.testing.assert_array_equal(reference.multinomial(probs, fractions), golden)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(2, 40), st.integers(0, 1000), st.floats(0.05, 1.0), st.booleans())
def test_top_p_sampling_is_its_definition(batch, values, seed, top_p, inclusive):
    probs = probabilities(batch, values, seed)
    fractions = np.random.default_rng(seed).uniform(size=batch)
    places = np.random.default_rng(seed).integers(0, values, batch)
    indices, picked = reference.top_p_sample(probs, [top_p], fractions, places, inclusive=inclusive)
    for row in range(batch):
        order = np.argsort(-probs[row].double().numpy(), kind="stable")
        p = probs[row].double().numpy()[order]
        p = np.where(p < p[places[row]], 0, p)
        c = np.cumsum(p)
        m = max(int((c < top_p).sum()) - 1, 0)
        v = c[m] * fractions[row]
        k = min(int((c <= v).sum() if inclusive else (c < v).sum()), values - 1)
        assert indices[row] == order[k]
        assert picked[row] == probs[row, order[k]].item()


@pytest.mark.parametrize(("top_p", "fraction"), [(0.9, 0.1), (0.9, 0.6), (0.9, 0.99), (0.3, 0.5)])
def test_what_is_kept_ends_with_the_block_that_holds_the_target(top_p, fraction):
    values = 40000  # blocks of 16384 places
    probs = np.sort(np.random.default_rng(3).dirichlet(np.ones(values)))[None, ::-1].copy()
    indices, _ = reference.top_p_sample(probs, [top_p], [fraction])
    c = np.cumsum(probs[0])
    ends = [16384, 32768, values]
    end = next(end for end in ends if c[end - 1] >= top_p * fraction)
    m = min(int((c < top_p).sum()) - 1, end - 1)
    assert abs(indices[0] - (c < c[m] * fraction).sum()) <= 1  # NumPy adds in another order


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(2, 40), st.integers(0, 1000), st.floats(0.05, 1.0))
def test_exponential_sampling_is_its_definition(batch, values, seed, top_p):
    probs = probabilities(batch, values, seed)
    noise = np.random.default_rng(seed).exponential(size=(batch, values))
    indices, _ = reference.top_p_sample_exponential(probs, [top_p], noise)
    for row in range(batch):
        order = np.argsort(-probs[row].double().numpy(), kind="stable")
        p = probs[row].double().numpy()[order]
        kept = np.where(np.cumsum(p) > top_p, 0, p)
        assert indices[row] == order[int(np.argmax(kept / noise[row]))]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.integers(0, 1000), st.data())
def test_group_top_k_keeps_the_best_groups(tokens, groups, size, seed, data):
    keep, largest = data.draw(st.integers(0, groups)), data.draw(st.integers(1, size))
    x = np.random.default_rng(seed).normal(size=(tokens, groups * size)).astype(np.float16)
    golden = x.astype(np.float64).reshape(tokens, groups, size).copy()
    scores = np.sort(golden, -1)[..., ::-1][..., :largest].sum(-1)
    for token in range(tokens):
        golden[token, np.argsort(-scores[token], kind="stable")[keep:]] = 0
    np.testing.assert_array_equal(reference.group_top_k(x, groups, keep, largest), golden.reshape(x.shape))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.integers(0, 1000), st.booleans())
def test_routing_is_its_definition(tokens, seed, normalize):
    rng = np.random.default_rng(seed)
    x, bias = rng.normal(size=(tokens, 12)), rng.normal(size=12)
    weights, experts = reference.route_to_experts(x, bias, 3, 4, 2, 2, normalize, 1.5)
    gate = 1 / (1 + np.exp(-x))
    scores = (gate + bias).reshape(tokens, 4, 3)
    best = np.argsort(-np.sort(scores, -1)[..., 1:].sum(-1), axis=-1, kind="stable")
    for token in range(tokens):
        row = scores[token].copy()
        row[best[token, 2:]] = 0
        chosen = np.argsort(-row.ravel(), kind="stable")[:3]
        assert experts[token].tolist() == chosen.tolist()
        golden = gate[token, chosen]
        golden = golden / golden.sum() * 1.5 if normalize else golden
        np.testing.assert_allclose(weights[token], golden, rtol=1e-12)


def test_what_does_not_fit_is_named():
    x = np.zeros((2, 3), dtype=np.float32)
    cases = [
        (lambda: reference.cumsum(x, 2), "axis 2 of a tensor with 2 dimensions"),
        (lambda: reference.softmax(x[None], (0, 2)), "do not follow each other"),
        (lambda: reference.amax(np.zeros((2, 0)), 1), "no largest"),
        (lambda: reference.sum(x, (1, 1)), "listed twice"),
        (lambda: reference.top_k(x, 4), "the 4 largest of 3"),
        (lambda: reference.top_k(np.float32(1), 1), "without dimensions"),
        (lambda: reference.index_add(x, 0, np.array([5]), x[:1]), "index 5 of 2"),
        (lambda: reference.index_add(x, 0, np.array([-1]), x[:1]), "index -1 of 2"),
        (lambda: reference.index_add(x, 0, np.array([0]), x), "updates have shape"),
        (lambda: reference.one_hot(x, 3), "no integers"),
        (lambda: reference.one_hot(np.array([1]), 1 << 40), "too large"),
        (lambda: reference.gating(np.array([3]), np.array([0]), 1, 2), "expert 3 of 2"),
        (lambda: reference.gating(np.array([1]), np.array([0]), 0, 2), "topkExpertNum 0"),
        (lambda: reference.multinomial(x[0], [0.5]), "probabilities have shape"),
        (lambda: reference.top_p_sample(x, [0.5], [0.5]), "1 random numbers for 2 rows"),
        (lambda: reference.top_p_sample(x, [0.5], [0.5, 0.5], [3, 0]), "top k 3 of 3"),
        (lambda: reference.top_p_sample_exponential(x, [0.5], x[:1]), "noise has shape"),
        (lambda: reference.group_top_k(x, 2, 1), "2 groups of 3 experts"),
        (lambda: reference.route_to_experts(x, np.zeros(4), 1), "does not broadcast"),
        (lambda: reference.softmax(np.zeros(2, dtype=np.complex128)), "real values"),
    ]
    for call, sentence in cases:
        with pytest.raises(assay.FormatError, match=sentence):
            call()
