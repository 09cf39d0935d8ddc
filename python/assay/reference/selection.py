# SPDX-License-Identifier: Apache-2.0
"""Reference operators: reductions, sorting, indexing, sampling, choice of experts.

Formulas: docs/opcheck/selection.md. All functions raise :class:`assay.FormatError` for shapes that do not fit and for
indices out of range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional, Union

import numpy as np

from assay import _opcheck
from assay.reference._arguments import Array

__all__ = [
    "amax",
    "amin",
    "cumsum",
    "gating",
    "glibc_random",
    "group_top_k",
    "index_add",
    "multinomial",
    "nonzero",
    "one_hot",
    "route_to_experts",
    "softmax",
    "sum",
    "top_k",
    "top_p_sample",
    "top_p_sample_exponential",
]

Axes = Union[int, Sequence[int], None]


def _axes(axis: Axes) -> list[int]:
    return [] if axis is None else [axis] if isinstance(axis, int) else list(axis)


def cumsum(x: Array, axis: int = -1, exclusive: bool = False, reverse: bool = False) -> np.ndarray:
    """Running sums along an axis; float64, or exact int64 of integers.

    Args:
        exclusive: each element is the sum of those before it.
        reverse: from the end of the axis.
    """
    return _opcheck.cumsum(x, axis, exclusive, reverse)


def amax(x: Array, axis: Axes = None) -> np.ndarray:
    """The largest values; the axes disappear. NaN wins. float64, or int64 of integers."""
    return _opcheck.amax(x, _axes(axis))


def amin(x: Array, axis: Axes = None) -> np.ndarray:
    """The smallest values; as :func:`amax`."""
    return _opcheck.amin(x, _axes(axis))


def sum(x: Array, axis: Axes = None) -> np.ndarray:
    """Sums in float64, or exact in int64 of integers; the axes disappear."""
    return _opcheck.sum(x, _axes(axis))


def softmax(x: Array, axis: Union[int, Sequence[int]] = -1) -> np.ndarray:
    """exp(x - max) over its sum; several axes, which must follow each other, count as one.

    Example:
        >>> from assay import reference
        >>> reference.softmax([[0.0, 0.0]]).tolist()
        [[0.5, 0.5]]
    """
    return _opcheck.softmax(x, _axes(axis))


def top_k(x: Array, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k largest values of each row (last dimension), descending, and their indices.

    Of equal values the first comes first; NaN counts as larger than everything.
    """
    return _opcheck.top_k(x, k)


def nonzero(x: Array) -> tuple[np.ndarray, int]:
    """Coordinates of the elements that are not 0, ``[rank, elements]`` padded with 0, and how many they are."""
    return _opcheck.nonzero(x)


def one_hot(x: Array, depth: int, one: int = 1, zero: int = 0, axis: int = -1) -> np.ndarray:
    """``one`` where x equals the place along a new axis of size ``depth``, otherwise ``zero``; int64."""
    return _opcheck.one_hot(x, depth, one, zero, axis)


def index_add(
    x: Array, axis: int, indices: Array, updates: Array, alpha: float = 1.0, count: Optional[int] = None
) -> np.ndarray:
    """x with alpha * updates added at ``indices`` along an axis; x itself stays as it is.

    Args:
        indices: ``[n]``, each in [0, x.shape[axis]); they may repeat.
        updates: x's shape with n at the axis.
        count: only that many of them count; None: all.
    """
    return _opcheck.index_add(x, axis, indices, updates, alpha, -1 if count is None else count)


def gating(
    experts: Array, indices: Array, topk_expert_num: int, expert_count: int, device_experts: Sequence[int] = ()
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Entries of a mixture of experts, sorted by expert.

    Args:
        experts: ``[n]``, expert of each entry.
        indices: ``[n]``, number of each entry.
        topk_expert_num: experts a token.
        expert_count: 0 counts nothing.
        device_experts: only these experts' entries are kept, in front; empty: all.

    Returns:
        Token of each entry ``[n]``, entries up to each expert, number of each entry ``[n]``, entries that are kept.
    """
    return _opcheck.gating(experts, indices, topk_expert_num, expert_count, list(device_experts))


def glibc_random(seed: int, count: int) -> np.ndarray:
    """What ``srand(seed)`` and ``count`` calls of glibc's ``rand()`` give, over 2^31 - 1."""
    return _opcheck.glibc_random(seed & 0xFFFFFFFF, count)


def multinomial(probs: Array, fractions: Array) -> np.ndarray:
    """For each row and each number r the first place whose cumulative sum exceeds r, 0 without one.

    Args:
        probs: ``[batch, values]``; partial sums are rounded to its type, as kernels do.
        fractions: ``[samples]``, numbers of [0, 1] shared by all rows.

    Returns:
        int64 ``[batch, samples]``.
    """
    return _opcheck.multinomial(probs, fractions)


def top_p_sample(
    probs: Array,
    top_p: Array,
    fractions: Array,
    top_k: Optional[Sequence[int]] = None,
    kept: Optional[int] = None,
    inclusive: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Samples of the nucleus: with c the cumulative sums of the sorted row and m the last place with c < top_p, the
    number of sums below c[m] r.

    Args:
        probs: ``[batch, values]``.
        top_p: ``[batch]`` or one for all.
        fractions: ``[batch]``, r of each row.
        top_k: ``[batch]``, place of the smallest probability that counts in the sorted row; None: all count.
        kept: only that many of each sorted row are looked at; None: all.
        inclusive: the number of sums up to c[m] r, not below it.

    Returns:
        Indices into the rows and their probabilities, each ``[batch]``.
    """
    places = [] if top_k is None else [int(place) for place in top_k]
    return _opcheck.top_p_sample(probs, top_p, fractions, places, -1 if kept is None else kept, inclusive)


def top_p_sample_exponential(
    probs: Array, top_p: Array, noise: Array, top_k: Optional[Sequence[int]] = None
) -> tuple[np.ndarray, np.ndarray]:
    """The largest p / noise of the sorted entries whose cumulative sum does not exceed top_p, the first without one.

    Args:
        noise: ``[batch, values]``, in the order of the sorted rows.

    Returns:
        As :func:`top_p_sample`.
    """
    places = [] if top_k is None else [int(place) for place in top_k]
    return _opcheck.top_p_sample_exponential(probs, top_p, noise, places)


def group_top_k(x: Array, groups: int, keep: int, largest: int = 1) -> np.ndarray:
    """``[tokens, experts]`` with all but the ``keep`` best groups at 0; a group's score is the sum of its ``largest``
    largest values."""
    return _opcheck.group_top_k(x, groups, keep, largest)


def route_to_experts(
    x: Array,
    bias: Array,
    top_k: int,
    groups: int = 1,
    group_top_k: int = 1,
    largest: int = 1,
    normalize: bool = True,
    scale: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Experts of each token by sigmoid(x) + bias within the best groups, and their weights.

    Args:
        x: ``[tokens, experts]``.
        bias: broadcasts to x; it takes part in the choice, not in the weights.
        normalize: weights are divided by their sum and multiplied by ``scale``.

    Returns:
        Weights float64 ``[tokens, top_k]``, experts int64 ``[tokens, top_k]``, best first.
    """
    return _opcheck.route_to_experts(x, bias, top_k, groups, group_top_k, largest, normalize, scale)
