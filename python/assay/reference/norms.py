# SPDX-License-Identifier: Apache-2.0
"""Reference operators: norms, rotary embeddings, softmax of unpadded scores.

Formulas: docs/opcheck/norms.md. All functions take arrays of any real element type and give new float64 arrays; they
raise :class:`assay.FormatError` for shapes that do not fit and for element types without real values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import numpy as np

from assay import _opcheck
from assay.reference._arguments import Array

__all__ = [
    "block_softmax",
    "block_softmax_backward",
    "layer_norm",
    "reciprocal_rms",
    "rms_norm",
    "rms_norm_backward",
    "rope",
    "rope_concat",
    "rope_gradient",
    "rotary_tables",
]


def rms_norm(
    x: Array,
    gamma: Optional[Array] = None,
    eps: float = 1e-5,
    *,
    residual: Optional[Array] = None,
    bias: Optional[Array] = None,
    unit_offset: bool = False,
    round_to_float16: bool = False,
) -> np.ndarray:
    """s * gamma' / sqrt(mean(s^2) + eps) with s = x + bias + residual.

    Args:
        x: [..., normalised].
        gamma: [normalised], one or more of the last dimensions, which are normalised together; None stands for ones
            over the last dimension.
        eps: added to the mean square.
        residual: added to x; its shape.
        bias: added to every row of x; sizes that x ends with.
        unit_offset: gamma' = 1 + gamma, as Gemma stores its weights.
        round_to_float16: rounds s / rms to float16 before gamma, as fast kernels do.

    Returns:
        float64 of the shape of x.

    Example:
        >>> import numpy
        >>> from assay import reference
        >>> reference.rms_norm(numpy.array([1.0, 2.0, -3.0, 4.0]), eps=0.0).round(3).tolist()
        [0.365, 0.73, -1.095, 1.461]
    """
    return _opcheck.rms_norm(x, gamma, eps, residual, bias, unit_offset, round_to_float16)


def reciprocal_rms(x: Array, dims: int = 1, eps: float = 1e-5) -> np.ndarray:
    """1 / sqrt(mean(x^2) + eps) over the last `dims` dimensions, which stay as ones."""
    return _opcheck.reciprocal_rms(x, dims, eps)


def rms_norm_backward(dy: Array, x: Array, rstd: Array, gamma: Array) -> tuple[np.ndarray, np.ndarray]:
    """The gradient of x * rstd * gamma, where rstd is :func:`reciprocal_rms` of x.

    Args:
        dy: gradient of the result, shape of x.
        x: [..., normalised].
        rstd: one value a row, in any shape.
        gamma: [normalised].

    Returns:
        dx = dy * gamma * rstd - x * mean(dy * gamma * rstd^3 * x), and dgamma = the sum over rows of dy * x * rstd.
    """
    return _opcheck.rms_norm_backward(dy, x, rstd, gamma)


def layer_norm(
    x: Array,
    gamma: Optional[Array] = None,
    beta: Optional[Array] = None,
    eps: float = 1e-5,
    *,
    dims: int = 1,
    residual: Optional[Array] = None,
    residual_scale: float = 1.0,
) -> np.ndarray:
    """(s - mean) / sqrt(var + eps) * gamma + beta with s = x + residual_scale * residual and the biased variance.

    Args:
        x: any shape with at least `dims` dimensions.
        gamma: sizes that x ends with, fewer or more than are normalised (one gamma a head); None stands for 1.
        beta: the same; None stands for 0.
        eps: added to the variance.
        dims: how many of the last dimensions are normalised together.
        residual: shape of x.
        residual_scale: its factor.

    Returns:
        float64 of the shape of x.

    Example:
        >>> import numpy
        >>> from assay import reference
        >>> reference.layer_norm(numpy.array([[1.0, 3.0], [0.0, 4.0]]), eps=0.0).tolist()
        [[-1.0, 1.0], [-1.0, 1.0]]
    """
    return _opcheck.layer_norm(x, gamma, beta, eps, dims, residual, residual_scale)


def rope(x: Array, cos: Array, sin: Array, *, groups: int = 1, interleaved: bool = False) -> np.ndarray:
    """Rotary position embedding: (u, v) becomes (u cos_u - v sin_u, v cos_v + u sin_v).

    Args:
        x: [tokens, heads * d], [tokens, heads, d], [batch, seq, heads * d] or [batch, seq, heads, d].
        cos: d values in the last dimension for each token of x in C order, or for each position of a 4-d x, shared by
            the batch.
        sin: the same.
        groups: parts of a head that are rotated on their own; u and v are the halves of a part. 1: GPT-NeoX and LLaMA,
            2: ChatGLM-6B.
        interleaved: u and v are neighbours, with the table's elements at even places (GPT-J).

    Returns:
        float64 of the shape of x.

    Example:
        >>> import numpy
        >>> from assay import reference
        >>> reference.rope(numpy.array([[1.0, 2.0]]), numpy.array([[0.0, 0.0]]), numpy.array([[1.0, 1.0]])).tolist()
        [[-2.0, 1.0]]
    """
    return _opcheck.rope(x, cos, sin, groups, interleaved)


def rope_gradient(gradient: Array, cos: Array, sin: Array, seq_lens: Sequence[int]) -> np.ndarray:
    """gradient * (cos + (sin_v, -sin_u)) element by element, as training kernels for Ascend define it.

    The adjoint of :func:`rope` is rope(gradient, cos, -sin).

    Args:
        gradient: [tokens, heads * d].
        cos: [positions, d]; every sequence starts at row 0.
        sin: the same.
        seq_lens: tokens of each sequence; their sum is `tokens`.
    """
    return _opcheck.rope_gradient(gradient, cos, sin, list(seq_lens))


def rope_concat(q: Array, cos: Array, sin: Array, other: Array) -> np.ndarray:
    """[rope(q) | other] for each token and head: the query of multi-head latent attention.

    Args:
        q: [tokens, heads * d].
        cos: [tokens, d].
        sin: [tokens, d].
        other: [tokens, heads, e].

    Returns:
        [tokens, heads, d + e].
    """
    return _opcheck.rope_concat(q, cos, sin, other)


def rotary_tables(positions: Array, inv_freq: Array, seq_lens: Array) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin of position * inverse frequency, the frequencies twice beside each other.

    Args:
        positions: integers [tokens], the sequences one after the other.
        inv_freq: [batch, d / 2], frequencies of each sequence.
        seq_lens: integers [batch]; rows after the last sequence stay 0.

    Returns:
        cos and sin, [tokens, d]. The angle is one float32 product, as models compute it.
    """
    return _opcheck.rotary_tables(positions, inv_freq, seq_lens)


def block_softmax(x: Array, heads: int, seq_lens: Sequence[int]) -> np.ndarray:
    """Softmax of attention scores that lie without padding one after the other.

    Args:
        x: for each sequence `heads` blocks of s * s scores, flat or in any shape.
        heads: blocks of a sequence.
        seq_lens: s of each sequence.

    Returns:
        float64 of the shape of x; every row of s sums to 1.
    """
    return _opcheck.block_softmax(x, heads, list(seq_lens))


def block_softmax_backward(y: Array, dy: Array, heads: int, seq_lens: Sequence[int]) -> np.ndarray:
    """y * (dy - the row's sum of y * dy), where y is the result of :func:`block_softmax`."""
    return _opcheck.block_softmax_backward(y, dy, heads, list(seq_lens))
