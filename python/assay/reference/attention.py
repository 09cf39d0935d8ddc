# SPDX-License-Identifier: Apache-2.0
"""Reference operators: attention.

Formulas: docs/opcheck/attention.md. Arrays may be of any real element type; results are new float64 arrays. Sequences
stand one behind the other without padding, as inference engines hold them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import numpy as np

from assay import _opcheck
from assay.reference._arguments import Array

__all__ = [
    "alibi_slopes",
    "attention",
    "attention_gradients",
    "attention_with_statistics",
    "combine_attention",
    "paged_attention",
]


def _list(values: Any) -> list[Any]:
    return [] if values is None else np.asarray(values).ravel().tolist()


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    q_lens: Optional[Sequence[int]] = None,
    kv_lens: Optional[Sequence[int]] = None,
    scale: Optional[float] = None,
    mask: Optional[Array] = None,
    causal: bool = False,
    window: int = 0,
    slopes: Optional[Sequence[float]] = None,
    clamp: Optional[tuple[float, float]] = None,
    as_dtype: str = "",
    jobs: int = 1,
) -> np.ndarray:
    """softmax(clamp(Q K^T * scale) + mask) V for every sequence and head.

    Query row i of a sequence with m query and n key rows stands at position i + n - m of the keys.

    Args:
        q: [query rows, heads, d].
        k: [key rows, kv heads, d]; kv heads divides heads, query head h uses kv head h // (heads // kv heads).
        v: [key rows, kv heads, dv].
        q_lens: query rows of each sequence; default: one sequence.
        kv_lens: key rows of each sequence; default: as q_lens.
        scale: of the scores; default 1 / sqrt(d).
        mask: added to the scores, [m, n] or [heads, m, n] or larger, shared by the sequences.
        causal: a row sees only keys up to its own position.
        window: above 0: only the last so many of them.
        slopes: one a head: adds slope * (position - key) to the scores of visible keys (ALiBi has positive
            distances and negative slopes there).
        clamp: lower and upper bound of the scaled scores.
        as_dtype: "float16", "bfloat16" or "float32": the result as a tiled kernel of that type computes it, with
            running maxima over 128 keys and weights rounded before they meet the values. Default: fp64 throughout.
        jobs: threads; never changes a result.

    Returns:
        [query rows, heads, dv], float64. Rows without any visible key are 0.

    Raises:
        assay.FormatError: shapes or lengths that do not fit each other.

    Example:
        >>> q = np.ones((2, 1, 4), np.float16)
        >>> attention(q, q, np.array([[[1.0]], [[3.0]]]), causal=True).ravel().tolist()
        [1.0, 2.0]
    """
    return _opcheck.attention(
        q, k, v, _list(q_lens), _list(kv_lens), scale, mask, causal, window, _list(slopes), clamp, as_dtype, jobs
    )


def paged_attention(
    q: Array,
    k_cache: Array,
    v_cache: Array,
    block_tables: Array,
    context_lens: Sequence[int],
    *,
    q_lens: Optional[Sequence[int]] = None,
    scale: Optional[float] = None,
    mask: Optional[Array] = None,
    causal: bool = False,
    slopes: Optional[Sequence[float]] = None,
    as_dtype: str = "",
    jobs: int = 1,
) -> np.ndarray:
    """Attention of new tokens against keys and values in blocks of a cache.

    Args:
        q: [query rows, heads, d].
        k_cache: [blocks, block size, kv heads, d].
        v_cache: [blocks, block size, kv heads, dv].
        block_tables: integers [sequences, blocks of a sequence]: key j of a sequence lies in block
            block_tables[sequence, j // block size] at place j % block size.
        context_lens: keys of each sequence, new tokens included; 0: its rows are 0.
        q_lens: query rows of each sequence; default 1.
        scale, mask, causal, slopes, as_dtype, jobs: as `attention`.

    Returns:
        [query rows, heads, dv], float64.

    Raises:
        assay.FormatError: shapes, blocks or lengths that do not fit.
    """
    return _opcheck.paged_attention(
        q,
        k_cache,
        v_cache,
        block_tables,
        _list(context_lens),
        _list(q_lens),
        scale,
        mask,
        causal,
        _list(slopes),
        as_dtype,
        jobs,
    )


def attention_with_statistics(
    q: Array,
    k: Array,
    v: Array,
    *,
    scale: float,
    mask: Optional[Array] = None,
    mask_value: float = -65536.0,
    pre_tokens: int = 2**31 - 1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Attention of training: softmax(Q K^T * scale + mask * mask_value) V, with what its gradient needs.

    Args:
        q: [batch, heads, s, d].
        k: [batch, kv heads, s, dk]; the first d columns count.
        v: [batch, kv heads, s, dv].
        mask: [s, s], 1 where a key is forbidden.
        pre_tokens: together with a mask: a row sees at most so many keys up to its own.

    Returns:
        output [batch, heads, s, dv]; largest score and sum of e^(score - largest) of each row [batch, heads, s].

    Raises:
        assay.FormatError: shapes that do not fit.
    """
    return _opcheck.attention_with_statistics(q, k, v, scale, mask, mask_value, pre_tokens)


def attention_gradients(
    q: Array,
    k: Array,
    v: Array,
    output_gradient: Array,
    maximum: Array,
    sum: Array,
    output: Array,
    *,
    scale: float,
    mask: Optional[Array] = None,
    mask_value: float = -65536.0,
    pre_tokens: int = 2**31 - 1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of q, k and v from a gradient of the output and what `attention_with_statistics` gave.

    Returns:
        Arrays of the shapes of q, k and v; columns of k beyond d have no gradient.

    Raises:
        assay.FormatError: shapes that do not fit.
    """
    return _opcheck.attention_gradients(
        q, k, v, output_gradient, maximum, sum, output, scale, mask, mask_value, pre_tokens
    )


def combine_attention(lse: Array, outputs: Array) -> np.ndarray:
    """Results over parts of the keys as one: sum over parts of softmax(lse over parts) * output.

    Args:
        lse: [parts, rows], logarithms of the sums of exponentials.
        outputs: [parts, rows, d].

    Returns:
        [rows, d].
    """
    return _opcheck.combine_attention(lse, outputs)


def alibi_slopes(heads: int) -> np.ndarray:
    """Slopes of ALiBi: 2^(-8k/n) for k = 1 ... n, n the largest power of two in `heads`, then 2^(-4(2k-1)/n).

    Source: O. Press, N. Smith, M. Lewis, "Train Short, Test Long", ICLR 2022.
    """
    return np.asarray(_opcheck.alibi_slopes(heads))
