# SPDX-License-Identifier: Apache-2.0
"""Reference operators: moves of data, caches, exchanges between ranks.

Definitions: docs/opcheck/movement.md. Nothing is converted: arrays of any element type of whole bytes come back as new
arrays of that type (bfloat16 and 8-bit floats as their bits, where ml_dtypes is not installed). All functions raise
:class:`assay.FormatError` for shapes, indices and slots that do not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Optional, Union

import numpy as np

from assay import _opcheck
from assay.reference._arguments import Array

__all__ = [
    "all_gather",
    "all_to_all",
    "as_strided",
    "concat",
    "copy_blocks",
    "gather",
    "kv_cache",
    "last_tokens",
    "masked_fill",
    "nd_to_nz",
    "nz_to_nd",
    "pad_sequences",
    "paged_cache_load",
    "permute",
    "ragged_masks",
    "reduce_scatter",
    "reshape_and_cache",
    "reshape_and_cache_windows",
    "scatter_elements",
    "set_value",
    "split",
    "stack",
    "take_slice",
    "tile",
    "unpad_ids",
    "unpad_sequences",
    "where",
]


def _integers(values: Any) -> list[int]:
    return [int(value) for value in np.asarray(values).reshape(-1)]


def as_strided(x: Array, size: Sequence[int], stride: Sequence[int], offset: int = 0) -> np.ndarray:
    """y[i0, i1, ...] = x.flat[offset + sum ik * stride[k]], strides in elements of a contiguous x."""
    return _opcheck.as_strided(x, _integers(size), _integers(stride), offset)


def permute(x: Array, perm: Sequence[int]) -> np.ndarray:
    """Dimension i of the result is dimension perm[i] of x; negative numbers count from the end."""
    return _opcheck.permute(x, _integers(perm))


def take_slice(x: Array, offsets: Sequence[int], sizes: Sequence[int]) -> np.ndarray:
    """x[offsets[0] : offsets[0] + sizes[0], ...]; negative offsets count from the end, size -1 is up to the end."""
    return _opcheck.take_slice(x, _integers(offsets), _integers(sizes))


def split(x: Array, parts: Union[int, Sequence[int]], axis: int = 0) -> list[np.ndarray]:
    """Parts of x along an axis.

    Args:
        parts: sizes of the parts, which add up to the dimension; or their number: parts of ceil(size / number), of
            which the last may be smaller.

    Example:
        >>> import numpy
        >>> from assay import reference
        >>> [part.tolist() for part in reference.split(numpy.arange(5), 2)]
        [[0, 1, 2], [3, 4]]
    """
    if isinstance(parts, (int, np.integer)):
        return _opcheck.split_evenly(x, axis, int(parts))
    return _opcheck.split(x, axis, _integers(parts))


def concat(parts: Sequence[Array], axis: int = 0) -> np.ndarray:
    """Arrays of one type one after the other along an axis."""
    return _opcheck.concat(parts, axis)


def stack(parts: Sequence[Array]) -> np.ndarray:
    """[count of parts, ...]: arrays of one shape and type under a new first dimension."""
    return _opcheck.stack(parts)


def tile(x: Array, multiples: Sequence[int]) -> np.ndarray:
    """x multiples[i] times along dimension i; missing leading dimensions of x count as 1."""
    return _opcheck.tile(x, _integers(multiples))


def where(cond: Array, a: Array, b: Array) -> np.ndarray:
    """cond != 0 ? a : b, broadcast; a and b of one type."""
    return _opcheck.where(cond, a, b)


def masked_fill(x: Array, mask: Array, value: float) -> np.ndarray:
    """mask != 0 ? value : x; the mask broadcasts to x, the value is rounded to the type of x."""
    return _opcheck.masked_fill(x, mask, value)


def set_value(
    x: Array,
    source: Array,
    starts: Sequence[int],
    ends: Sequence[int],
    strides: Optional[Sequence[int]] = None,
) -> np.ndarray:
    """A copy of x with x[starts[0] : ends[0] : strides[0], ...] = source, one entry a dimension."""
    steps = [1] * len(starts) if strides is None else _integers(strides)
    return _opcheck.set_value(x, source, _integers(starts), _integers(ends), steps)


def gather(x: Array, indices: Array, axis: int = 0, batch_dims: int = 0) -> np.ndarray:
    """y[b..., i..., j..., k...] = x[b..., i..., indices[b..., j...], k...], the index standing at `axis`.

    Args:
        x: [batch dims..., i..., size, k...].
        indices: integers, [batch dims..., j...], in [0, size).
        axis: of x; not before the batch dims.
        batch_dims: leading dimensions that x and indices share.
    """
    return _opcheck.gather(x, indices, axis, batch_dims)


def scatter_elements(x: Array, indices: Array, updates: Array, axis: int = -1, *, add: bool = False) -> np.ndarray:
    """A copy of x with y[..., indices[p], ...] = updates[p] (or += with `add`) for every place p of indices.

    Returns:
        x's type; with `add` float64, or int64 for integers.
    """
    return _opcheck.scatter_elements(x, indices, updates, axis, add)


def nz_to_nd(x: Array, rows: int = -1, columns: int = -1) -> np.ndarray:
    """FRACTAL_NZ [..., C1, R, c0] as matrices [..., rows, columns]: element (r, c) is x[..., c // c0, r, c % c0].

    Args:
        rows, columns: of the matrix, the rest is padding; -1: all that are stored.
    """
    return _opcheck.nz_to_nd(x, rows, columns)


def nd_to_nz(x: Array) -> np.ndarray:
    """The other way: [..., ceil(columns / c0), rows rounded up to 16, c0], c0 = 32 for types of one byte, else 16."""
    return _opcheck.nd_to_nz(x)


def last_tokens(hidden: Array, lengths: Array) -> np.ndarray:
    """[sequences, ...]: the last token of every sequence in [tokens, ...]; lengths are at least 1."""
    return _opcheck.last_tokens(hidden, _integers(lengths))


def unpad_sequences(x: Array, lengths: Array) -> np.ndarray:
    """[sum of lengths, ...]: the first lengths[b] rows of each x[b], x [batch, padded length, ...]."""
    return _opcheck.unpad_sequences(x, _integers(lengths))


def pad_sequences(x: Array, lengths: Array, padded: int) -> np.ndarray:
    """[sequences, padded, ...] from x [tokens, ...], filled up with zeros."""
    return _opcheck.pad_sequences(x, _integers(lengths), padded)


def unpad_ids(input_ids: Array, cum_offsets: Array, lengths: Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Token ids [batch, s] without padding, and where they came from.

    Args:
        cum_offsets: [batch], padding up to and including each sequence.

    Returns:
        ids [1, batch * s], valid ones first, then zeros; int64 [batch, 1], padding before each sequence; int64
        [1, batch * s], the same for every valid token.
    """
    return _opcheck.unpad_ids(input_ids, _integers(cum_offsets), _integers(lengths))


def ragged_masks(mask: Array, heads: int, lengths: Array) -> np.ndarray:
    """For each sequence `heads` times mask[b, ..., :n, :n] flattened, n = lengths[b], all one after the other."""
    return _opcheck.ragged_masks(mask, heads, _integers(lengths))


def reshape_and_cache(tokens: Array, cache: Array, slots: Array, *, nz: bool = False) -> np.ndarray:
    """A copy of a paged cache with tokens[t] in slot slots[t]; negative slots take nothing.

    Args:
        tokens: [tokens, heads, size].
        cache: [blocks, block size, heads, size]; with `nz` [blocks, heads * size / c0, block size, c0].
    """
    return _opcheck.reshape_and_cache(tokens, cache, _integers(slots), nz)


def reshape_and_cache_windows(
    tokens: Array,
    cache: Array,
    slots: Array,
    wins: Array,
    lengths: Array,
    offset_index: Optional[Array] = None,
) -> np.ndarray:
    """A copy of a paged cache of one head in which each head of each sequence keeps its own window.

    Entry i belongs to sequence i // heads and head i % heads. The last wins[i] tokens of the sequence go into slots[i],
    slots[i] + 1, ...; with offset_index all tokens but wins[i] from offset_index[i] on do (-1: all).

    Args:
        tokens: [tokens, heads, size].
        cache: [blocks, block size, 1, size].
        lengths: tokens of each sequence.
    """
    offsets = None if offset_index is None else _integers(offset_index)
    return _opcheck.reshape_and_cache_windows(
        tokens, cache, _integers(slots), _integers(wins), _integers(lengths), offsets
    )


def paged_cache_load(
    cache: Array, block_tables: Array, lengths: Array, starts: Optional[Array] = None, *, nz: bool = False
) -> np.ndarray:
    """[tokens, row]: the tokens that block tables list, one sequence after the other.

    Args:
        cache: as for :func:`reshape_and_cache`.
        block_tables: integers, [sequences, blocks]; negative blocks are left out.
        starts: first token of each sequence, a multiple of the block size.
    """
    first = [] if starts is None else _integers(starts)
    return _opcheck.paged_cache_load(cache, block_tables, _integers(lengths), first, nz)


def kv_cache(tokens: Array, past: Array, layer: int, token_offset: Array, lengths: Array) -> np.ndarray:
    """A copy of `past` [layers, batch, positions, hidden] with new tokens at the end of each sequence.

    Token j of sequence b goes to position token_offset[b] - lengths[b] + j of the layer.
    """
    return _opcheck.kv_cache(tokens, past, layer, _integers(token_offset), _integers(lengths))


def copy_blocks(cache: Array, sources: Array, targets: Array, cum_sum: Array) -> np.ndarray:
    """A copy of the cache [blocks, ...] with block sources[i] copied to targets[cum_sum[i - 1] : cum_sum[i]]."""
    return _opcheck.copy_blocks(cache, _integers(sources), _integers(targets), _integers(cum_sum))


def all_gather(ranks: Sequence[Array]) -> np.ndarray:
    """[ranks, ...]: x of all ranks; the same as :func:`stack`."""
    return stack(ranks)


def all_to_all(ranks: Sequence[Array], rank: int, *, transposed: bool = False) -> np.ndarray:
    """What one rank receives: its part of every rank's x, cut by rows, or with `transposed` by columns.

    Returns:
        x's shape; with `transposed` [h * ranks, w / ranks] for x [h, w].
    """
    return _opcheck.all_to_all(ranks, rank, transposed)


def reduce_scatter(
    ranks: Sequence[Array], rank: int, reduction: Literal["sum", "max", "min", "prod"] = "sum"
) -> np.ndarray:
    """Part `rank` of the first dimension of all ranks' x, reduced in float64 in the order of the ranks.

    Example:
        >>> import numpy
        >>> from assay import reference
        >>> reference.reduce_scatter([numpy.array([1, 2]), numpy.array([10, 20])], rank=1).tolist()
        [22.0]
    """
    return _opcheck.reduce_scatter(ranks, rank, reduction)
