# SPDX-License-Identifier: Apache-2.0
"""SelfAttention and PagedAttention of dumps: every variant passes with a right output and fails with a wrong one.

The oracle is torch in float64, one head at a time; masks and ALiBi are written out here.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Optional

import numpy as np
import pytest
import torch
from opcheck_dump import check, from_bf16, to_bf16

BF16 = "bfloat16"


class Tensors:
    """Random tensors of one element type, with their exact values."""

    def __init__(self, dtype: str = "float16", seed: int = 0) -> None:
        self.dtype = dtype
        self.random = np.random.default_rng(seed)

    def __call__(self, *shape: int, scale: float = 1.0):
        return self.stored(self.random.uniform(-1, 1, shape) * scale)

    def stored(self, values) -> Any:
        return to_bf16(values) if self.dtype == BF16 else np.asarray(values).astype(self.dtype)


def wide(tensor) -> np.ndarray:
    return (from_bf16(tensor) if isinstance(tensor, tuple) else np.asarray(tensor)).astype(np.float64)


def int32(*values) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def attend(q, k, v, scale: float, add=None) -> np.ndarray:
    """q [m, H, d], k and v [n, Hk, .] of one sequence; add [H, m, n] or what broadcasts to it."""
    group = q.shape[1] // k.shape[1]
    q, k, v = (torch.from_numpy(np.ascontiguousarray(x.transpose(1, 0, 2))) for x in (q, k, v))
    k, v = k.repeat_interleave(group, dim=0), v.repeat_interleave(group, dim=0)
    mask = None if add is None else torch.from_numpy(np.broadcast_to(add, (len(q), q.shape[1], k.shape[1])).copy())
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    return out.numpy().transpose(1, 0, 2)


def causal(m: int, n: int, forbidden: float = -math.inf) -> np.ndarray:
    i, j = np.arange(m)[:, None], np.arange(n)[None, :]
    return np.where(j <= i + n - m, 0.0, forbidden)


def wrong(tensors: Tensors, right: np.ndarray) -> np.ndarray:
    """One element of the result is off by half of the largest."""
    damaged = right.copy()
    damaged.flat[right.size // 2] += 0.15 * max(1.0, float(np.abs(right).max()))
    return damaged


def verify(
    tmp_path,
    op: str,
    parameters: dict,
    inputs: list,
    right,
    tensors: Tensors,
    variant: str = "",
    note: str = "",
    **more,
):
    """A right output passes, one wrong element fails, and so do rows in reverse order."""
    (row,) = check(tmp_path / "right", op, parameters, inputs, [tensors.stored(right)], **more)
    assert row["result"] == "PASS", row
    assert variant in row["variant"], row["variant"]
    assert note in row["note"], row["note"]
    (row,) = check(tmp_path / "wrong", op, parameters, inputs, [tensors.stored(wrong(tensors, right))], **more)
    assert row["result"] == "FAILED", row
    if right.shape[0] > 1 and not np.array_equal(right, right[::-1]):
        (row,) = check(tmp_path / "rows", op, parameters, inputs, [tensors.stored(right[::-1] * 1.0)], **more)
        assert row["result"] == "FAILED", row


def verdict(tmp_path, op: str, parameters: Optional[dict], inputs: list, outputs: list, **more) -> tuple[str, str]:
    (row,) = check(tmp_path, op, parameters, inputs, outputs, **more)
    return row["result"], row["reason"]


SELF = "SelfAttentionOperation"
PAGED = "PagedAttentionOperation"


# ---- SelfAttention, PA_ENCODER -------------------------------------------------------------------


class Prompt:
    """Sequences of a prompt without caches."""

    def __init__(self, dtype="float16", lengths=(5, 3), heads=4, kv_heads=2, d=16, dv=16, seed=1) -> None:
        self.t = Tensors(dtype, seed)
        self.lengths, self.heads, self.kv_heads, self.d, self.dv = lengths, heads, kv_heads, d, dv
        tokens = sum(lengths)
        self.q, self.k, self.v = self.t(tokens, heads, d), self.t(tokens, kv_heads, d), self.t(tokens, kv_heads, dv)
        self.seq_len = int32(*lengths)
        self.scale = 1 / math.sqrt(d)
        self.parameters = {"headNum": heads, "kvHeadNum": kv_heads, "qkScale": self.scale, "calcType": 3, "maskType": 0}

    def right(self, add: Callable[[int, int], Any] = lambda b, s: None, scale=None) -> np.ndarray:
        rows, first = [], 0
        for b, s in enumerate(self.lengths):
            part = slice(first, first + s)
            rows.append(
                attend(wide(self.q)[part], wide(self.k)[part], wide(self.v)[part], scale or self.scale, add(b, s))
            )
            first += s
        return np.concatenate(rows)


@pytest.mark.parametrize("dtype", ["float16", BF16, "float32"])
def test_prompt_without_a_mask(tmp_path, dtype):
    p = Prompt(dtype)
    verify(tmp_path, SELF, p.parameters, [p.q, p.k, p.v, p.seq_len], p.right(), p.t, "PA_ENCODER, no mask, GQA")


@pytest.mark.parametrize("dtype, value", [("float16", -10000.0), (BF16, 1.0), (BF16, -1e38), ("float32", 1.0)])
def test_prompt_with_a_triangle_of_models(tmp_path, dtype, value):
    p = Prompt(dtype)
    mask = p.t.stored(np.triu(np.ones((8, 8)), 1) * value)
    verify(
        tmp_path,
        SELF,
        {**p.parameters, "maskType": 1},
        [p.q, p.k, p.v, mask, p.seq_len],
        p.right(lambda b, s: causal(s, s)),
        p.t,
        "NORM mask",
    )


def test_high_precision_kernels_take_zero_and_one_as_they_are(tmp_path):
    p = Prompt(BF16)
    ones = np.triu(np.ones((8, 8)), 1)
    parameters = {**p.parameters, "maskType": 1, "kernelType": 1}
    right = p.right(lambda b, s: ones[:s, :s])
    verify(tmp_path, SELF, parameters, [p.q, p.k, p.v, p.t.stored(ones), p.seq_len], right, p.t)


def test_prompt_with_one_mask_a_sequence(tmp_path):
    p = Prompt()
    masks = p.t(2, 6, 6)
    verify(
        tmp_path,
        SELF,
        {**p.parameters, "maskType": 1},
        [p.q, p.k, p.v, masks, p.seq_len],
        p.right(lambda b, s: wide(masks)[b, :s, :s]),
        p.t,
    )


def test_flat_queries_give_flat_results(tmp_path):
    p = Prompt()
    flat = [np.asarray(x).reshape(len(x), -1) for x in (p.q, p.k, p.v)]
    right = p.right().reshape(8, -1)
    verify(tmp_path, SELF, p.parameters, [*flat, p.seq_len], right, p.t)


def test_kv_heads_of_zero_are_as_many_as_query_heads(tmp_path):
    p = Prompt(kv_heads=4)
    verify(tmp_path, SELF, {**p.parameters, "kvHeadNum": 0}, [p.q, p.k, p.v, p.seq_len], p.right(), p.t)


def test_a_long_prompt_with_a_mask_of_128_rows(tmp_path):
    p = Prompt(lengths=(150,), heads=2, kv_heads=1)
    mask = p.t.stored(np.triu(np.full((128, 128), -10000.0), 1))
    for mask_type in (1, 3):
        verify(
            tmp_path / str(mask_type),
            SELF,
            {**p.parameters, "maskType": mask_type},
            [p.q, p.k, p.v, mask, p.seq_len],
            p.right(lambda b, s: causal(s, s)),
            p.t,
        )


@pytest.mark.parametrize("shape", ["heads", "batch and heads"])
def test_alibi_masks(tmp_path, shape):
    p = Prompt()
    mask = p.t(4, 8, 8, scale=3) if shape == "heads" else p.t(2, 4, 8, 8, scale=3)
    values = wide(mask)
    add = (lambda b, s: values[:, :s, :s]) if shape == "heads" else (lambda b, s: values[b, :, :s, :s])
    verify(
        tmp_path,
        SELF,
        {**p.parameters, "maskType": 2},
        [p.q, p.k, p.v, mask, p.seq_len],
        p.right(add),
        p.t,
        "ALIBI mask",
        "scale before mask",
    )


def test_the_other_order_of_mask_and_scale_is_named(tmp_path):
    p = Prompt()
    mask = p.t(4, 8, 8, scale=3)
    right = p.right(lambda b, s: wide(mask)[:, :s, :s] * p.scale)
    (row,) = check(
        tmp_path, SELF, {**p.parameters, "maskType": 2}, [p.q, p.k, p.v, mask, p.seq_len], [p.t.stored(right)]
    )
    assert (row["result"], "mask before scale" in row["note"]) == ("PASS", True), row


@pytest.mark.parametrize("mask_type, distance", [(4, lambda d: d), (5, np.sqrt)])
def test_compressed_alibi_by_slopes(tmp_path, mask_type, distance):
    p = Prompt()
    slopes = -np.array([2**-2, 2**-4, 2**-6, 2**-8], dtype=np.float32)  # as ALiBi has them for four heads
    i, j = np.arange(256)[:, None], np.arange(256)[None, :]
    mask = p.t.stored(np.where(j <= i, distance(np.maximum(i - j, 0)), 60000))

    def add(b, s):
        i, j = np.arange(s)[:, None], np.arange(s)[None, :]
        return np.where(j <= i, slopes[:, None, None] * distance(np.maximum(i - j, 0.0)), -math.inf)

    parameters = {**p.parameters, "maskType": mask_type}
    verify(tmp_path / "a", SELF, parameters, [p.q, p.k, p.v, mask, p.seq_len, slopes], p.right(add), p.t)
    # Without the slopes they are those of the number of heads.
    verify(tmp_path / "b", SELF, parameters, [p.q, p.k, p.v, mask, p.seq_len], p.right(add), p.t)


def test_left_aligned_alibi(tmp_path):
    p = Prompt()
    slopes = np.array([0.5, 0.25, 0.125, 0.0625], dtype=np.float32)
    mask = p.t.stored(np.zeros((256, 256)))
    right = p.right(lambda b, s: slopes[:, None, None] * np.arange(s) + causal(s, s))
    verify(tmp_path, SELF, {**p.parameters, "maskType": 6}, [p.q, p.k, p.v, mask, p.seq_len, slopes], right, p.t)


def test_alibi_compressed_to_128_columns(tmp_path):
    p = Prompt(lengths=(200,), heads=2, kv_heads=2)
    slopes = np.array([2**-4, 2**-8])
    i, j = np.arange(200)[:, None], np.arange(200)[None, :]
    full = np.where(j <= i, -slopes[:, None, None] * (i - j), -10000.0)
    mask = p.t.stored(full[:, :, :128])
    stored = wide(mask)
    whole = np.full_like(full, -math.inf)
    whole[:, :, :128] = stored
    whole[:, 128:, 128:] = stored[:, : 200 - 128, : 200 - 128]
    right = p.right(lambda b, s: whole)
    verify(tmp_path, SELF, {**p.parameters, "maskType": 4}, [p.q, p.k, p.v, mask, p.seq_len], right, p.t)


@pytest.mark.parametrize("mask_type, rows", [(7, 20), (8, 512)])
def test_sliding_windows(tmp_path, mask_type, rows):
    p = Prompt(lengths=(20, 7), heads=2, kv_heads=1)

    def add(b, s):
        i, j = np.arange(s)[:, None], np.arange(s)[None, :]
        return np.where((j <= i) & (j > i - 6), 0.0, -math.inf)

    parameters = {**p.parameters, "maskType": mask_type, "windowSize": 6}
    mask = p.t.stored(np.zeros((rows, rows)))
    verify(tmp_path, SELF, parameters, [p.q, p.k, p.v, mask, p.seq_len], p.right(add), p.t, "SLIDING_WINDOW")


def test_a_mask_made_inside(tmp_path):
    p = Prompt()
    parameters = {**p.parameters, "maskType": 9}
    verify(tmp_path, SELF, parameters, [p.q, p.k, p.v, p.seq_len], p.right(lambda b, s: causal(s, s)), p.t, "CAUSAL")


def nz(values: np.ndarray) -> np.ndarray:
    """[..., r, c] in blocks of 16 x 16: [..., c / 16, r, 16], padded with zeros."""
    r, c = values.shape[-2:]
    padded = np.zeros((*values.shape[:-2], -(-r // 16) * 16, -(-c // 16) * 16), values.dtype)
    padded[..., :r, :c] = values
    split = padded.reshape(*padded.shape[:-1], -1, 16)
    return np.ascontiguousarray(np.swapaxes(split, -3, -2))


def test_masks_in_blocks(tmp_path):
    p = Prompt()
    mask = p.t.stored(np.triu(np.full((1, 16, 16), -10000.0), 1))
    verify(
        tmp_path,
        SELF,
        {**p.parameters, "maskType": 1},
        [p.q, p.k, p.v, nz(mask), p.seq_len],
        p.right(lambda b, s: causal(s, s)),
        p.t,
        nz=("intensor3",),
    )


def test_log_n_scales_each_row(tmp_path):
    p = Prompt()
    logn = np.array([1, 1.5, 2, 0.5, 3], dtype=np.float32)
    rows, first = [], 0
    for s in p.lengths:
        part = slice(first, first + s)
        rows.append(attend(wide(p.q)[part] * logn[:s, None, None], wide(p.k)[part], wide(p.v)[part], p.scale))
        first += s
    parameters = {**p.parameters, "scaleType": 1}
    verify(tmp_path, SELF, parameters, [p.q, p.k, p.v, p.seq_len, logn], np.concatenate(rows), p.t, "logN")


def test_values_inside_keys(tmp_path):
    p = Prompt(kv_heads=1, d=24, dv=16)
    p.v = (p.k[0][..., :16], BF16) if isinstance(p.k, tuple) else p.k[..., :16]
    parameters = {**p.parameters, "mlaVHeadSize": 16}
    verify(tmp_path, SELF, parameters, [p.q, p.k, p.seq_len], p.right(), p.t, "values inside keys")


def test_heads_before_rows(tmp_path):
    p = Prompt(BF16, lengths=(4, 4))
    bnsd = []
    for x in (p.q, p.k, p.v):
        bits = x[0].reshape(2, 4, *x[0].shape[1:]).transpose(0, 2, 1, 3)
        bnsd.append((np.ascontiguousarray(bits), BF16))
    right = p.right().reshape(2, 4, 4, 16).transpose(0, 2, 1, 3)
    verify(tmp_path, SELF, {**p.parameters, "inputLayout": 1}, [*bnsd, p.seq_len], right, p.t, "BNSD")


# ---- Int8 prompts --------------------------------------------------------------------------------


def int8_attend(q, k, v, scale, add, qk, vd, p_scale=None, multiply=False):
    """The definition, element by element, in NumPy: weights in int8, per head."""
    m, heads, _ = q.shape
    out = np.zeros((m, heads, v.shape[2]))
    for h in range(heads):
        g = h * k.shape[1] // heads
        s = (q[:, h] @ k[:, g].T) * qk[h] * scale + add
        weights = np.exp(s - s.max(axis=1, keepdims=True))
        if p_scale is None:
            p8, unit = np.rint(weights / (weights.max(axis=1, keepdims=True) / 127)), 1 / 127
        elif multiply:
            p8, unit = np.rint(weights * p_scale[h]), 1.0
        else:
            p8, unit = np.rint(weights / p_scale[h]), p_scale[h]
        out[:, h] = p8 @ v[:, g] * unit * vd[h] / weights.sum(axis=1, keepdims=True)
    return out


@pytest.mark.parametrize("way", ["online", "divide", "multiply"])
def test_int8_prompts(tmp_path, way):
    random = np.random.default_rng(3)
    q, k, v = (random.integers(-90, 90, (6, h, 32)).astype(np.int8) for h in (4, 2, 2))
    qk, vd = (random.uniform(0.5, 1.5, 4).astype(np.float32) * f for f in (2e-3, 1e-2))
    qk, vd = qk.astype(np.float32), vd.astype(np.float32)
    zeros = np.zeros(4, np.int32)
    p_scale = (random.uniform(20, 60, 4) if way == "multiply" else random.uniform(1 / 127, 3 / 127, 4)).astype(
        np.float32
    )
    mask = np.triu(np.full((6, 6), -10000.0), 1).astype(np.float16)
    scale = 1 / math.sqrt(32)
    parameters = {
        "headNum": 4,
        "kvHeadNum": 2,
        "qkScale": scale,
        "calcType": 3,
        "maskType": 1,
        "quantType": 3 if way == "online" else 2,
        "outDataType": 1,
    }
    inputs = [q, k, v, mask, int32(6), qk, zeros, vd, zeros] + ([] if way == "online" else [p_scale])
    right = int8_attend(
        *(x.astype(np.float64) for x in (q, k, v)),
        scale,
        causal(6, 6),
        qk.astype(np.float64),
        vd.astype(np.float64),
        None if way == "online" else p_scale.astype(np.float64),
        way == "multiply",
    )
    note = {"online": "online", "divide": "p / pScale", "multiply": "p * pScale"}[way]
    verify(tmp_path, SELF, parameters, inputs, right, Tensors(), "int8", note)


# ---- SelfAttention with caches -------------------------------------------------------------------


class Cached:
    """Two sequences with past rows in caches [layers, batch, rows, columns]."""

    def __init__(self, new=(1, 1), past=(3, 6), heads=4, kv_heads=2, d=16, dtype="float16", max_rows=16) -> None:
        self.t = t = Tensors(dtype, 5)
        self.new, self.past, self.heads, self.kv_heads, self.d = new, past, heads, kv_heads, d
        tokens = sum(new)
        self.q, self.k, self.v = t(tokens, heads * d), t(tokens, kv_heads * d), t(tokens, kv_heads * d)
        self.cache_k, self.cache_v = t(2, 2, max_rows, kv_heads * d), t(2, 2, max_rows, kv_heads * d)
        self.offsets = int32(*(n + p for n, p in zip(new, past)))
        self.seq_len, self.layer = int32(*new), int32(1)
        self.parameters = {
            "headNum": heads,
            "kvHeadNum": kv_heads,
            "qScale": 1 / math.sqrt(d),
            "qkScale": 1.0,
            "calcType": 0,
            "maskType": 0,
            "kvcacheCfg": 0,
        }

    def keys(self, b: int, first: int) -> tuple[np.ndarray, np.ndarray]:
        part = slice(first, first + self.new[b])
        both = []
        for cache, rows in ((self.cache_k, self.k), (self.cache_v, self.v)):
            joined = np.concatenate([wide(cache)[1, b, : self.past[b]], wide(rows)[part]])
            both.append(joined.reshape(len(joined), self.kv_heads, self.d))
        return both[0], both[1]

    def right(self, add=lambda b, m, n: None, running=(1, 1)) -> np.ndarray:
        rows, first = [], 0
        for b, m in enumerate(self.new):
            k, v = self.keys(b, first)
            q = wide(self.q)[first : first + m].reshape(m, self.heads, self.d)
            out = attend(q, k, v, self.parameters["qScale"], add(b, m, len(k))) if running[b] else np.zeros(q.shape)
            rows.append(out.reshape(m, -1))
            first += m
        return np.concatenate(rows)


def test_fused_decoder_without_a_mask(tmp_path):
    c = Cached()
    inputs = [c.q, c.k, c.v, c.cache_k, c.cache_v, c.offsets, c.seq_len, c.layer]
    verify(tmp_path, SELF, c.parameters, inputs, c.right(), c.t, "fused, no mask, GQA")


def test_fused_with_a_mask_of_zeros_though_there_is_none(tmp_path):
    c = Cached()
    mask = c.t.stored(np.zeros((16, 16)))
    inputs = [c.q, c.k, c.v, c.cache_k, c.cache_v, mask, c.offsets, c.seq_len, c.layer]
    verify(tmp_path, SELF, c.parameters, inputs, c.right(), c.t)


def test_fused_encoder_with_a_mask_and_clamp(tmp_path):
    c = Cached(new=(4, 6), past=(0, 0))
    mask = c.t.stored(np.triu(np.full((16, 16), -10000.0), 1))
    inputs = [c.q, c.k, c.v, c.cache_k, c.cache_v, mask, c.offsets, c.seq_len, c.layer]
    right = c.right(lambda b, m, n: causal(m, n))
    verify(tmp_path / "mask", SELF, {**c.parameters, "maskType": 1, "calcType": 1}, inputs, right, c.t, "fused encoder")
    # Scores lie within [-2, 2]: a clamp that wide changes nothing, a narrow one does.
    clamp = {**c.parameters, "maskType": 1, "clampType": 1, "clampMin": -9.0, "clampMax": 9.0}
    verify(tmp_path / "clamp", SELF, clamp, inputs, right, c.t, "clamp")
    narrow = {**clamp, "clampMin": -0.01, "clampMax": 0.01}
    assert verdict(tmp_path / "narrow", SELF, narrow, inputs, [c.t.stored(right)])[0] == "FAILED"


def test_fused_decoder_with_a_mask_a_sequence(tmp_path):
    c = Cached()
    mask = c.t(2, 1, 16)
    inputs = [c.q, c.k, c.v, c.cache_k, c.cache_v, mask, c.offsets, c.seq_len, c.layer]
    right = c.right(lambda b, m, n: wide(mask)[b, :, :n])
    verify(tmp_path, SELF, {**c.parameters, "maskType": 1, "calcType": 2}, inputs, right, c.t, "fused decoder")


def test_sequences_that_do_not_run_have_rows_of_zeros(tmp_path):
    c = Cached()
    inputs = [c.q, c.k, c.v, c.cache_k, c.cache_v, c.offsets, c.seq_len, c.layer, int32(1, 0)]
    right = c.right(running=(1, 0))
    verify(tmp_path, SELF, {**c.parameters, "batchRunStatusEnable": True}, inputs, right, c.t)


def test_bypass_finds_new_rows_in_the_cache(tmp_path):
    c = Cached(past=(3, 6), new=(1, 1))
    k, v = wide(c.cache_k).copy(), wide(c.cache_v).copy()
    for b in range(2):
        k[1, b, c.past[b]], v[1, b, c.past[b]] = wide(c.k)[b], wide(c.v)[b]
    parameters = {**c.parameters, "kvcacheCfg": 1}
    inputs = [c.q, c.t.stored(k), c.t.stored(v), c.offsets, c.seq_len, c.layer]
    verify(tmp_path / "given", SELF, parameters, inputs, c.right(), c.t, "bypass")
    # ATB's own golden scales by 1 / sqrt(d) whatever the parameters say.
    (row,) = check(tmp_path / "other", SELF, {**parameters, "qScale": 1.0}, inputs, [c.t.stored(c.right())])
    assert (row["result"], "1/sqrt(head size)" in row["note"]) == ("PASS", True), row


def test_caches_in_blocks(tmp_path):
    c = Cached()
    inputs = [c.q, c.k, c.v, nz(c.cache_k), nz(c.cache_v), c.offsets, c.seq_len, c.layer]
    verify(tmp_path, SELF, c.parameters, inputs, c.right(), c.t, nz=("intensor3", "intensor4"))


def test_caches_of_one_layer(tmp_path):
    c = Cached()
    c.layer = int32(0)
    inputs = [c.q, c.k, c.v, c.cache_k[1], c.cache_v[1], c.offsets, c.seq_len, c.layer]
    verify(tmp_path, SELF, c.parameters, inputs, c.right(), c.t)


# ---- PagedAttention and PREFIX_ENCODER -----------------------------------------------------------


class Paged:
    """Sequences whose keys lie in blocks of a shared cache."""

    def __init__(
        self, context=(5, 0, 9), rows=None, heads=4, kv_heads=2, d=16, dv=16, block=4, dtype="float16"
    ) -> None:
        self.t = t = Tensors(dtype, 7)
        self.context, self.rows = context, rows or (1,) * len(context)
        self.heads, self.kv_heads, self.d, self.dv, self.block = heads, kv_heads, d, dv, block
        self.q = t(sum(self.rows), heads, d)
        self.k, self.v = t(12, block, kv_heads, d), t(12, block, kv_heads, dv)
        # -1 behind the last block, and every block somewhere else
        self.table = np.full((len(context), 4), -1, np.int32)
        free = iter(np.random.default_rng(1).permutation(12))
        for b, n in enumerate(context):
            for at in range(-(-n // block)):
                self.table[b, at] = next(free)
        self.lens = int32(*context)
        self.scale = 1 / math.sqrt(d)
        self.parameters = {"headNum": heads, "kvHeadNum": kv_heads, "qkScale": self.scale, "maskType": 0}

    def gathered(self, cache, b: int) -> np.ndarray:
        n = self.context[b]
        blocks = [cache[self.table[b, at]] for at in range(-(-n // self.block))]
        return np.concatenate(blocks)[:n] if blocks else np.zeros((0, *cache.shape[2:]))

    def right(self, add=lambda b, m, n: None, k=None, v=None, running=None, logn=None) -> np.ndarray:
        k, v = (wide(self.k) if k is None else k), (wide(self.v) if v is None else v)
        out, first = [], 0
        for b, m in enumerate(self.rows):
            q = wide(self.q)[first : first + m]
            n = self.context[b]
            if n == 0 or (running and not running[b]):
                out.append(np.zeros((m, self.heads, v.shape[3])))
            else:
                scale = self.scale * (1 if logn is None else float(logn[b]))
                out.append(attend(q, self.gathered(k, b), self.gathered(v, b), scale, add(b, m, n)))
            first += m
        return np.concatenate(out)

    def inputs(self, *more) -> list:
        return [self.q, self.k, self.v, self.table, self.lens, *more]


@pytest.mark.parametrize("dtype", ["float16", BF16])
def test_paged_without_a_mask(tmp_path, dtype):
    p = Paged(dtype=dtype)
    verify(tmp_path, PAGED, p.parameters, p.inputs(), p.right(), p.t, "no mask, GQA")


def test_paged_with_masks(tmp_path):
    p = Paged()
    mask = p.t(3, 1, 12)
    right = p.right(lambda b, m, n: wide(mask)[b, :, :n])
    verify(tmp_path / "norm", PAGED, {**p.parameters, "maskType": 1}, p.inputs(mask), right, p.t, "NORM mask")
    alibi = p.t(3, 4, 1, 12, scale=4)
    right = p.right(lambda b, m, n: wide(alibi)[b, :, :, :n])
    verify(tmp_path / "alibi", PAGED, {**p.parameters, "maskType": 2}, p.inputs(alibi), right, p.t, "ALIBI mask")


def test_paged_with_several_rows_a_sequence(tmp_path):
    p = Paged(context=(5, 9), rows=(2, 3))
    lengths = int32(2, 3)
    mask = p.t.stored(np.triu(np.full((12, 12), -10000.0), 1))
    right = p.right(causal_of)
    parameters = {**p.parameters, "calcType": 1}
    verify(tmp_path / "norm", PAGED, {**parameters, "maskType": 1}, p.inputs(mask, lengths), right, p.t, "several rows")
    spec = p.t(5, 12)
    rows = {0: slice(0, 2), 1: slice(2, 5)}
    right_spec = p.right(lambda b, m, n: wide(spec)[rows[b], :n])
    verify(tmp_path / "spec", PAGED, {**parameters, "maskType": 3}, p.inputs(spec, lengths), right_spec, p.t, "SPEC")
    for mask_type in (4, 5):
        small = p.t.stored(np.zeros((128, 128)))
        verify(
            tmp_path / str(mask_type),
            PAGED,
            {**parameters, "maskType": mask_type},
            p.inputs(small, lengths),
            right,
            p.t,
        )


def causal_of(b: int, m: int, n: int) -> np.ndarray:
    return causal(m, n)


@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("bits", [False, True])
def test_paged_with_int8_caches(tmp_path, offset, bits):
    p = Paged()
    random = np.random.default_rng(2)
    k8, v8 = (random.integers(-127, 127, (12, 4, 2, 16)).astype(np.int8) for _ in range(2))
    k_scale, v_scale = (random.uniform(0.005, 0.015, 32).astype(np.float32) for _ in range(2))
    k_offset, v_offset = (random.integers(-9, 9, 32).astype(np.int32) for _ in range(2))

    def dequantised(x, scale, shift):
        return (x.astype(np.float64) + (shift.reshape(2, 16) if offset else 0)) * scale.astype(np.float64).reshape(
            2, 16
        )

    right = p.right(k=dequantised(k8, k_scale, k_offset), v=dequantised(v8, v_scale, v_offset))
    stored = [x.view(np.uint32).astype(np.int64) if bits else x for x in (k_scale, v_scale)]
    more = [stored[0], k_offset, stored[1], v_offset] if offset else stored
    parameters = {**p.parameters, "quantType": 1, "hasQuantOffset": offset}
    verify(tmp_path, PAGED, parameters, [p.q, k8, v8, p.table, p.lens, *more], right, p.t, "int8 caches")


@pytest.mark.parametrize("way", ["online", "divide", "multiply"])
def test_paged_in_int8(tmp_path, way):
    p = Paged(context=(5, 9))
    random = np.random.default_rng(2)
    q8 = random.integers(-90, 90, (2, 4, 16)).astype(np.int8)
    k8, v8 = (random.integers(-90, 90, (12, 4, 2, 16)).astype(np.int8) for _ in range(2))
    qk, vd = random.uniform(1e-3, 3e-3, 4).astype(np.float32), random.uniform(0.005, 0.02, 4).astype(np.float32)
    p_scale = (random.uniform(20, 60, 4) if way == "multiply" else random.uniform(1 / 127, 3 / 127, 4)).astype(
        np.float32
    )
    right = np.concatenate(
        [
            int8_attend(
                q8[b : b + 1].astype(float),
                p.gathered(k8, b).astype(float),
                p.gathered(v8, b).astype(float),
                p.scale,
                0.0,
                qk.astype(float),
                vd.astype(float),
                None if way == "online" else p_scale.astype(float),
                way == "multiply",
            )
            for b in range(2)
        ]
    )
    parameters = {**p.parameters, "quantType": 3 if way == "online" else 2, "outDataType": 1}
    inputs = [q8, k8, v8, p.table, p.lens, qk, vd] + ([] if way == "online" else [p_scale])
    verify(tmp_path, PAGED, parameters, inputs, right, p.t, "int8 o")


@pytest.mark.parametrize("razor", [False, True])
def test_paged_with_a_cache_without_heads(tmp_path, razor):
    # Each of the two kv heads of a token is a sequence of its own.
    p = Paged(context=(5, 3, 9, 1), rows=(1,) * 4, heads=2, kv_heads=1)
    q = p.t(2, 4, 16)
    p.q = np.ascontiguousarray(q.reshape(4, 2, 16))
    offsets = p.t.random.uniform(-1, 1, (12, 4)).astype(np.float32)

    def add(b, m, n):
        return p.gathered(offsets.astype(float)[:, :, None], b)[:, 0] * p.scale if razor else None

    right = p.right(add).reshape(2, 4, 16)
    parameters = {**p.parameters, "headNum": 4, "kvHeadNum": 2, "compressType": 2 if razor else 1}
    inputs = [q, p.k, p.v, p.table, p.lens] + ([offsets] if razor else [])
    verify(tmp_path, PAGED, parameters, inputs, right, p.t, "KVHEAD_ROPE" if razor else "KVHEAD")
    if not razor:
        mask = p.t(2, 1, 12)  # one row a token
        right = p.right(lambda b, m, n: wide(mask)[b // 2, :, :n]).reshape(2, 4, 16)
        inputs = [q, p.k, p.v, p.table, p.lens, mask]
        verify(tmp_path / "mask", PAGED, {**parameters, "maskType": 1}, inputs, right, p.t)


def test_paged_values_inside_keys(tmp_path):
    p = Paged(kv_heads=1, d=24)
    right = p.right(v=wide(p.k)[..., :16])
    parameters = {**p.parameters, "mlaVHeadSize": 16}
    verify(tmp_path, PAGED, parameters, [p.q, p.k, p.table, p.lens], right, p.t, "values inside keys")


def test_paged_log_n_and_status(tmp_path):
    p = Paged()
    logn = np.array([1.5, 2, 0.5], np.float32)
    verify(tmp_path / "logn", PAGED, p.parameters, p.inputs(logn), p.right(logn=logn), p.t, "logN")
    parameters = {**p.parameters, "batchRunStatusEnable": True}
    verify(tmp_path / "status", PAGED, parameters, p.inputs(int32(0, 1, 1)), p.right(running=(0, 1, 1)), p.t)


def test_paged_caches_in_blocks_of_sixteen(tmp_path):
    p = Paged(block=16, context=(5, 30))
    blocks = [np.ascontiguousarray(x.reshape(12, 16, 2, 16).transpose(0, 2, 1, 3)) for x in (p.k, p.v)]
    inputs = [p.q, *blocks, p.table, p.lens]
    verify(tmp_path, PAGED, p.parameters, inputs, p.right(), p.t, nz=("intensor1", "intensor2"))


@pytest.mark.parametrize("mask_type", [9, 1, 4])
def test_prompts_behind_a_cached_prefix(tmp_path, mask_type):
    p = Paged(context=(5, 9), rows=(2, 4))
    slopes = np.array([-0.25, -0.0625, -(2.0**-6), -(2.0**-8)], np.float32)

    def alibi(b, m, n):
        distance = np.arange(m)[:, None] + n - m - np.arange(n)[None, :]
        return np.where(distance >= 0, slopes[:, None, None] * distance, -math.inf)

    masks = {9: [], 1: [p.t.stored(np.triu(np.full((12, 12), -10000.0), 1))], 4: [p.t.stored(np.zeros((256, 256)))]}
    inputs = [p.q, p.k, p.v, p.table, *masks[mask_type], int32(2, 4), p.lens] + ([slopes] if mask_type == 4 else [])
    parameters = {**p.parameters, "calcType": 4, "maskType": mask_type}
    verify(
        tmp_path,
        SELF,
        parameters,
        inputs,
        p.right(alibi if mask_type == 4 else causal_of),
        p.t,
        "PREFIX_ENCODER",
        "derived",
    )


# ---- Faults of kernels ---------------------------------------------------------------------------


def test_faults_of_kernels_are_found(tmp_path):
    p = Prompt(lengths=(40,), heads=4, kv_heads=2, d=64, dv=64)
    mask = p.t.stored(np.triu(np.full((40, 40), -10000.0), 1))
    inputs = [p.q, p.k, p.v, mask, p.seq_len]
    parameters = {**p.parameters, "maskType": 1}
    right = p.right(lambda b, s: causal(s, s))
    assert verdict(tmp_path / "0", SELF, parameters, inputs, [p.t.stored(right)])[0] == "PASS"
    faults = {
        "scale dropped": p.right(lambda b, s: causal(s, s), scale=1.0),
        "mask row missing": p.right(lambda b, s: np.where(np.arange(s)[:, None] == 3, 0.0, causal(s, s))),
        "mask one off": p.right(lambda b, s: np.triu(np.full((s, s), -math.inf), 2)),
        "heads exchanged": right[:, [1, 0, 2, 3]],
        "kv heads exchanged": right[:, [2, 3, 0, 1]],
    }
    for name, output in faults.items():
        assert verdict(tmp_path / name, SELF, parameters, inputs, [p.t.stored(output)])[0] == "FAILED", name


# ---- What cannot be judged -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"calcType": 7}, "calcType 7 is not known"),
        ({"maskType": 10}, "maskType 10 is not known"),
        ({"quantType": 1}, "reserved"),
        ({"calcType": 0, "quantType": 2}, "PA_ENCODER only"),
    ],
)
def test_variants_that_are_not_supported(tmp_path, changes, reason):
    p = Prompt()
    result, text = verdict(
        tmp_path, SELF, {**p.parameters, **changes}, [p.q, p.k, p.v, p.seq_len], [p.t.stored(p.right())]
    )
    assert (result, reason in text) == ("NOT_SUPPORTED", True), text


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"headNum": 0}, "headNum is 0"),
        ({"kvHeadNum": 3}, "kvHeadNum 3 does not divide headNum 4"),
        ({"headNum": "x"}, "not an integer"),
        ({"headNum": 3, "kvHeadNum": 0}, "query has shape [8, 4, 16]"),
        ({"maskType": 1}, "inputs"),
        ({"mlaVHeadSize": -1}, "mlaVHeadSize"),
        ({"clampType": 1, "clampMin": 1.0, "clampMax": 0.0}, "clampMin is above clampMax"),
    ],
)
def test_broken_parameters(tmp_path, changes, reason):
    p = Prompt()
    result, text = verdict(
        tmp_path, SELF, {**p.parameters, **changes}, [p.q, p.k, p.v, p.seq_len], [p.t.stored(p.right())]
    )
    assert (result, reason in text) == ("ERROR", True), text


def test_broken_inputs(tmp_path):
    p = Prompt()
    out = [p.t.stored(p.right())]
    cases = {
        "missing": ([p.q, None, p.v, p.seq_len], "intensor1 is not in the dump"),
        "count": ([p.q, p.k, p.v, p.seq_len, p.seq_len], "the dump has 5 inputs"),
        "lengths": ([p.q, p.k, p.v, int32(5, 4)], "seqLen adds up to 9, query has 8 tokens"),
        "negative": ([p.q, p.k, p.v, int32(9, -1)], "seqLen holds -1"),
        "key": ([p.q, p.k[:7], p.v, p.seq_len], "key 7"),
        "sizes": ([p.q, p.t(8, 2, 8), p.v, p.seq_len], "key rows have shape"),
    }
    for name, (inputs, reason) in cases.items():
        result, text = verdict(tmp_path / name, SELF, p.parameters, inputs, out)
        assert (result, reason in text) == ("ERROR", True), (name, text)
    mask = p.t(4, 4)
    result, text = verdict(
        tmp_path / "mask", SELF, {**p.parameters, "maskType": 2}, [p.q, p.k, p.v, mask, p.seq_len], out
    )
    assert (result, "smaller than the scores" in text) == ("ERROR", True), text


def test_broken_block_tables(tmp_path):
    p = Paged(context=(5, 9))
    out = [p.t.stored(p.right())]

    def of(table=p.table, lens=p.lens):
        return [p.q, p.k, p.v, table, lens]

    def with_block(value):
        table = p.table.copy()
        table[1, 2] = value
        return table

    cases = {
        "beyond": (of(with_block(12)), "names block 12; the cache has 12"),
        "before": (of(with_block(-1)), "names block -1"),
        "long": (of(lens=int32(5, 17)), "sequence 1 has 17 keys"),
        "huge": (of(lens=int32(5, 2**31 - 1)), "keys"),
        "negative": (of(lens=int32(5, -9)), "contextLens holds -9"),
        "batch": (of(table=p.table[:1]), "blockTables has shape [1, 4]"),
        "tokens": ([p.t(3, 4, 16), *of()[1:]], "query has 3 rows, the sequences 2"),
    }
    for name, (inputs, reason) in cases.items():
        result, text = verdict(tmp_path / name, PAGED, p.parameters, inputs, out)
        assert (result, reason in text) == ("ERROR", True), (name, text)
    result, text = verdict(tmp_path / "mode", PAGED, {**p.parameters, "compressType": 3}, of(), out)
    assert (result, text) == ("NOT_SUPPORTED", "compressType 3 is not known")
