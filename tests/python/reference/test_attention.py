# SPDX-License-Identifier: Apache-2.0
"""assay.reference's attention against torch's scaled_dot_product_attention in fp64 and against ONNX's node cases."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_nodes
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import assay
from assay import reference


def sdpa(q, k, v, mask=None, scale=None):
    """[rows, heads, size] in and out."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    q, k, v = (x.double().transpose(0, 1)[None] for x in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, scale=scale)[0].transpose(0, 1).numpy()


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


shapes = st.tuples(
    st.integers(1, 9),
    st.integers(1, 40),
    st.sampled_from([(1, 1), (4, 4), (6, 2), (8, 1)]),
    st.integers(1, 12),
    st.integers(1, 9),
)


@settings(max_examples=60, deadline=None)
@given(
    shapes,
    st.sampled_from([torch.float16, torch.bfloat16, torch.float32]),
    st.booleans(),
    st.booleans(),
    st.integers(1, 3),
)
def test_one_sequence_is_torchs(sizes, dtype, causal, masked, jobs):
    m, n, (heads, kv_heads), d, dv = sizes
    n = max(n, m)
    q, k, v = (
        random(m, heads, d, dtype=dtype),
        random(n, kv_heads, d, seed=1, dtype=dtype),
        random(n, kv_heads, dv, seed=2, dtype=dtype),
    )
    mask = random(heads, m, n, seed=3) if masked else None
    bias = torch.zeros(heads, m, n, dtype=torch.float64) if mask is None else mask.clone()
    if causal:  # torch's is_causal aligns to the first key
        seen = torch.arange(n)[None] <= torch.arange(m)[:, None] + n - m
        bias = bias.masked_fill(~seen, -np.inf)
    expected = sdpa(q, k, v, bias[None])
    got = reference.attention(q, k, v, causal=causal, mask=mask, jobs=jobs)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)


def test_sequences_do_not_see_each_other():
    q_lens, kv_lens = [3, 1, 5], [7, 4, 5]
    q, k, v = random(9, 4, 8), random(16, 2, 8, seed=1), random(16, 2, 6, seed=2)
    got = reference.attention(q, k, v, q_lens=q_lens, kv_lens=kv_lens, scale=0.3)
    q_first = kv_first = 0
    for m, n in zip(q_lens, kv_lens):
        part = sdpa(q[q_first : q_first + m], k[kv_first : kv_first + n], v[kv_first : kv_first + n], scale=0.3)
        np.testing.assert_allclose(got[q_first : q_first + m], part, rtol=1e-12)
        q_first, kv_first = q_first + m, kv_first + n


def test_windows_clamps_and_slopes_are_what_their_formulas_say():
    q, k, v = random(6, 2, 4), random(6, 2, 4, seed=1), random(6, 2, 4, seed=2)
    i, j = np.mgrid[:6, :6]
    scores = np.einsum("ihd,jhd->hij", q, k) * 0.5
    slopes = np.array([-0.5, -0.25])

    def expect(values):
        weights = np.exp(values - values.max(-1, keepdims=True))
        return np.einsum("hij,jhd->ihd", weights / weights.sum(-1, keepdims=True), v)

    allowed = (j <= i) & (j > i - 3)
    np.testing.assert_allclose(
        reference.attention(q, k, v, scale=0.5, causal=True, window=3),
        expect(np.where(allowed, scores, -np.inf)),
        rtol=1e-12,
    )
    np.testing.assert_allclose(
        reference.attention(q, k, v, scale=0.5, clamp=(-0.2, 0.3)), expect(scores.clip(-0.2, 0.3)), rtol=1e-12
    )
    biased = np.where(j <= i, scores + slopes[:, None, None] * (i - j), -np.inf)
    np.testing.assert_allclose(
        reference.attention(q, k, v, scale=0.5, causal=True, slopes=slopes), expect(biased), rtol=1e-12
    )


@pytest.mark.parametrize("block", [1, 4, 16])
def test_paged_is_plain_over_the_gathered_rows(block):
    contexts, q_lens = [5, 0, 9], [1, 1, 3]
    blocks, table_size = 24, -(-9 // block)
    k_cache, v_cache = (
        random(blocks, block, 2, 8, dtype=torch.float16),
        random(blocks, block, 2, 8, seed=1, dtype=torch.float16),
    )
    tables = torch.from_numpy(
        np.random.default_rng(0).permutation(blocks)[: 3 * table_size].reshape(3, -1).astype(np.int32)
    )
    if tables.shape[1] < table_size:
        pytest.skip("too few blocks")
    q = random(5, 4, 8, seed=2)
    got = reference.paged_attention(q, k_cache, v_cache, tables, contexts, q_lens=q_lens, causal=True)
    first = 0
    for b, (n, m) in enumerate(zip(contexts, q_lens)):
        rows = [(int(tables[b, j // block]), j % block) for j in range(n)]
        if not rows:
            np.testing.assert_array_equal(got[first : first + m], 0)
        else:
            k = torch.stack([k_cache[r] for r in rows])
            v = torch.stack([v_cache[r] for r in rows])
            np.testing.assert_array_equal(
                got[first : first + m], reference.attention(q[first : first + m], k, v, causal=True)
            )
        first += m


def test_the_model_of_a_kernel_is_off_by_rounding_only():
    q, k, v = (random(300, 4, 32, seed=s, dtype=torch.float16) for s in range(3))
    exact = reference.attention(q, k, v, causal=True)
    for name, unit in (("float16", 2.0**-11), ("bfloat16", 2.0**-8), ("float32", 2.0**-24)):
        modelled = reference.attention(q, k, v, causal=True, as_dtype=name)
        error = np.abs(modelled - exact).max()
        assert 0 < error < 8 * unit * np.abs(exact).max(), name


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_gradients_are_autograds(kv_heads):
    q, k, v = random(2, 4, 7, 5), random(2, kv_heads, 7, 6, seed=1), random(2, kv_heads, 7, 3, seed=2)
    upstream, mask = random(2, 4, 7, 3, seed=3), torch.triu(torch.ones(7, 7), 1)
    for x in (q, k, v):
        x.requires_grad_()
    group = 4 // kv_heads
    keys, values = k[..., :5].repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ keys.transpose(2, 3) * 0.3 + mask.double() * -65536
    expected = scores.softmax(-1) @ values
    expected.backward(upstream)
    plain = [x.detach() for x in (q, k, v)]
    out, top, total = reference.attention_with_statistics(*plain, scale=0.3, mask=mask)
    np.testing.assert_allclose(out, expected.detach().numpy(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(top + np.log(total), scores.logsumexp(-1).detach().numpy(), rtol=1e-12)
    found = reference.attention_gradients(*plain, upstream, top, total, out, scale=0.3, mask=mask)
    for got, tensor in zip(found, (q, k, v)):
        np.testing.assert_allclose(got, tensor.grad.numpy(), rtol=1e-11, atol=1e-13)


def test_parts_of_the_keys_put_together_are_the_whole():
    q, k, v = random(1, 2, 6, 4), random(1, 2, 6, 4, seed=1), random(1, 2, 6, 3, seed=2)
    whole = reference.attention(*(x[0].transpose(0, 1) for x in (q, k, v)), scale=0.5)
    parts, lse = [], []
    for part in (slice(0, 2), slice(2, 6)):
        scores = (q @ k[:, :, part].transpose(2, 3) * 0.5)[0]
        parts.append((scores.softmax(-1) @ v[0][:, part]).transpose(0, 1).reshape(12, 3))
        lse.append(scores.logsumexp(-1).transpose(0, 1).reshape(12))
    got = reference.combine_attention(torch.stack(lse), torch.stack(parts))
    np.testing.assert_allclose(got, whole.reshape(12, 3), rtol=1e-12)


def test_slopes_are_the_papers():
    np.testing.assert_array_equal(reference.alibi_slopes(8), 2.0 ** -np.arange(1, 9))
    np.testing.assert_allclose(reference.alibi_slopes(12)[8:], 2.0 ** (-4 * (2 * np.arange(1, 5) - 1) / 8))


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((np.ones((2, 2)), np.ones((2, 1, 3)), np.ones((2, 1, 3))), {}),
        ((np.ones((2, 4, 3)), np.ones((2, 3, 3)), np.ones((2, 3, 3))), {}),  # 3 kv heads, 4 heads
        ((np.ones((2, 4, 3)), np.ones((2, 1, 5)), np.ones((2, 1, 5))), {}),
        ((np.ones((2, 1, 3)), np.ones((2, 1, 3)), np.ones((3, 1, 3))), {}),
        ((np.ones((2, 1, 3)),) * 3, {"q_lens": [1]}),
        ((np.ones((2, 1, 3)),) * 3, {"q_lens": [3, -1]}),
        ((np.ones((2, 1, 3)),) * 3, {"mask": np.ones((1, 2))}),
        ((np.ones((2, 1, 3)),) * 3, {"slopes": [1.0, 2.0]}),
        ((np.ones((2, 1, 3)),) * 3, {"as_dtype": "int8"}),
    ],
)
def test_what_does_not_fit_is_refused(arguments, options):
    with pytest.raises(assay.Error):
        reference.attention(*arguments, **options)


def test_blocks_out_of_range_are_refused():
    cache, q = np.ones((2, 4, 1, 3)), np.ones((1, 1, 3))
    for tables, contexts in (([[2]], [1]), ([[-1]], [1]), ([[0]], [5]), ([[0]], [-1]), ([[0]], [1, 1])):
        with pytest.raises(assay.Error):
            reference.paged_attention(q, cache, cache, np.array(tables, np.int32), contexts)


def onnx_cases():
    return [case for case in onnx_nodes.cases_of(["Attention"]) if len(case.data_sets[0][1]) == 1]


def test_onnx_has_cases_of_attention():
    assert len(onnx_cases()) > 30


@pytest.mark.parametrize("case", onnx_cases(), ids=lambda case: case.name)
def test_onnx_node_case(case):
    """q, k, v of [batch, heads, rows, size], [batch, rows, heads * size] in part; a mask; causal from the first key."""
    node = case.model.graph.node[0]
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    inputs, (expected,) = case.data_sets[0]
    present = iter(inputs)
    q, k, v, mask, *rest = [next(present) if name else None for name in node.input] + [None] * (4 - len(node.input))
    other = attributes.get("softcap") or attributes.get("softmax_precision") or "window" in case.name
    if any(x is not None for x in rest) or other:
        pytest.skip("a cache, padding, a soft cap, a window that is not at the end")
    if q.ndim == 3:
        heads, kv_heads = attributes["q_num_heads"], attributes["kv_num_heads"]
        q, k, v = (
            x.reshape(*x.shape[:2], h, -1).transpose(0, 2, 1, 3) for x, h in ((q, heads), (k, kv_heads), (v, kv_heads))
        )
    m, n = q.shape[2], k.shape[2]
    bias = np.zeros((m, n))
    if attributes.get("is_causal"):
        bias = np.where(np.arange(n)[None] <= np.arange(m)[:, None], 0, -np.inf)
    if mask is not None:
        added = np.where(mask, 0, -np.inf) if mask.dtype == bool else mask.astype(np.float64)
        if added.shape[-1] < n:  # keys beyond the mask are not seen
            missing = [(0, 0)] * (added.ndim - 1) + [(0, n - added.shape[-1])]
            added = np.pad(added, missing, constant_values=-np.inf)
        bias = bias + added
    bias = np.broadcast_to(bias, (q.shape[0], q.shape[1], m, n))
    rows = [
        reference.attention(
            *(x[b].transpose(1, 0, 2) for x in (q, k, v)),
            mask=np.ascontiguousarray(bias[b]),
            scale=attributes.get("scale"),
        )
        for b in range(q.shape[0])
    ]
    got = np.stack(rows)  # [batch, rows, heads, size]
    got = got.reshape(expected.shape) if expected.ndim == 3 else got.transpose(0, 2, 1, 3)
    tolerance = {"float16": 1e-3, "bfloat16": 1e-2}.get(q.dtype.name, 1e-5)
    np.testing.assert_allclose(got, expected, rtol=max(case.rtol, tolerance), atol=tolerance)
