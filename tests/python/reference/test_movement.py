# SPDX-License-Identifier: Apache-2.0
"""assay.reference: moves of data and caches against NumPy, torch and plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import assay
from assay import reference

DTYPES = [np.float16, np.float32, np.float64, np.int8, np.uint8, np.int16, np.int32, np.int64, np.bool_]
dtypes = st.sampled_from(DTYPES)
shapes = npst.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5)


def random(rng: np.random.Generator, shape, dtype) -> np.ndarray:
    """Any bits except NaN patterns, which == cannot compare."""
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if np.issubdtype(dtype, np.floating):
        return rng.standard_normal(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


def same(found: np.ndarray, expected) -> None:
    expected = np.asarray(expected)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


@st.composite
def arrays(draw, *, dims=(1, 4), side=(0, 5)):
    shape = draw(npst.array_shapes(min_dims=dims[0], max_dims=dims[1], min_side=side[0], max_side=side[1]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    array = random(rng, shape, draw(dtypes))
    if draw(st.booleans()):
        array = np.asfortranarray(array)  # strides that are not C's
    return array


class TestViews:
    @given(arrays(), st.data())
    def test_permute_is_numpys_transpose(self, x, data):
        perm = data.draw(st.permutations(range(x.ndim)))
        same(reference.permute(x, perm), np.transpose(x, perm))

    @given(arrays(), st.data())
    def test_take_slice(self, x, data):
        offsets, sizes, index = [], [], []
        for extent in x.shape:
            first = data.draw(st.integers(0, extent))
            size = data.draw(st.integers(-1, extent - first))
            negative = first < extent and data.draw(st.booleans())
            offsets.append(first - extent if negative else first)
            sizes.append(size)
            index.append(slice(first, extent if size == -1 else first + size))
        same(reference.take_slice(x, offsets, sizes), x[tuple(index)])

    @given(arrays(dims=(1, 3), side=(1, 5)), st.data())
    def test_as_strided_is_torchs(self, x, data):
        size = data.draw(st.lists(st.integers(0, 4), min_size=0, max_size=3))
        stride = data.draw(st.lists(st.integers(0, 3), min_size=len(size), max_size=len(size)))
        offset = data.draw(st.integers(0, 3))
        last = offset + sum((n - 1) * s for n, s in zip(size, stride))
        if 0 not in size and last >= x.size:
            with pytest.raises(assay.Error):
                reference.as_strided(x, size, stride, offset)
            return
        tensor = torch.from_numpy(np.ascontiguousarray(x))
        same(reference.as_strided(x, size, stride, offset), torch.as_strided(tensor, size, stride, offset).numpy())

    @given(arrays(), st.integers(1, 4), st.data())
    def test_split_evenly_gives_parts_of_the_rounded_up_size(self, x, count, data):
        axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
        parts = reference.split(x, count, axis)
        assert len(parts) == count
        size = math.ceil(x.shape[axis] / count)
        assert [part.shape[axis] for part in parts] == [
            max(0, min(size, x.shape[axis] - i * size)) for i in range(count)
        ]
        same(np.concatenate(parts, axis), x)

    @given(arrays(), st.data())
    def test_split_by_sizes_and_concat_are_inverse(self, x, data):
        axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
        cut = data.draw(st.integers(0, x.shape[axis]))
        first, second = reference.split(x, [cut, x.shape[axis] - cut], axis)
        expected = np.split(x, [cut], axis)
        same(first, expected[0])
        same(second, expected[1])
        same(reference.concat([first, second], axis), x)

    def test_results_do_not_follow_the_argument(self):
        x = np.arange(6).reshape(2, 3)
        y = reference.take_slice(x, [0, 0], [2, 2])
        z = reference.permute(x, [0, 1])
        x[:] = 0
        assert y.tolist() == [[0, 1], [3, 4]]
        assert z.tolist() == [[0, 1, 2], [3, 4, 5]]

    def test_bfloat16_keeps_its_bits(self):
        x = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
        y = reference.permute(x, [1, 0])
        bits = y.view(np.uint16)
        assert (bits == x.t().contiguous().view(torch.int16).numpy().view(np.uint16)).all()

    @pytest.mark.parametrize(
        "call",
        [
            lambda x: reference.permute(x, [0, 0]),
            lambda x: reference.permute(x, [0]),
            lambda x: reference.permute(x, [0, 2]),
            lambda x: reference.take_slice(x, [0, 0], [2, 4]),
            lambda x: reference.take_slice(x, [0, -5], [1, 1]),
            lambda x: reference.take_slice(x, [0], [1]),
            lambda x: reference.take_slice(x, [2**62, 0], [2**62, 1]),
            lambda x: reference.take_slice(x, [0, 0], [-2, 1]),
            lambda x: reference.split(x, [1, 2]),
            lambda x: reference.split(x, [-1, 3]),
            lambda x: reference.split(x, [2**62, 2**62, 2**62]),
            lambda x: reference.split(x, 2, 5),
            lambda x: reference.split(x, 0),
            lambda x: reference.as_strided(x, [2**60], [1]),
            lambda x: reference.as_strided(x, [2**32, 2**32], [0, 0]),
            lambda x: reference.as_strided(x, [2], [-1]),
            lambda x: reference.as_strided(x, [2], [1, 1]),
            lambda x: reference.as_strided(x, [-2], [1]),
            lambda x: reference.as_strided(x, [1], [1], -1),
            lambda x: reference.as_strided(x, [1], [1], 2**63 - 1),
            lambda x: reference.tile(x, [2**40, 2**40]),
            lambda x: reference.tile(x, [2]),
            lambda x: reference.tile(x, [2, -1]),
            lambda x: reference.concat([]),
            lambda x: reference.concat([x, x[:, :1]]),
            lambda x: reference.concat([x, x.astype(np.float16)]),
            lambda x: reference.stack([x, x[:1]]),
        ],
    )
    def test_hostile_arguments_raise(self, call):
        with pytest.raises(assay.FormatError):
            call(np.arange(6.0).reshape(2, 3))


class TestAssembly:
    @given(arrays(), st.integers(1, 3), st.data())
    def test_concat_and_stack(self, x, count, data):
        axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
        parts = [x] * count
        same(reference.concat(parts, axis), np.concatenate(parts, axis))
        same(reference.stack(parts), np.stack(parts))

    @given(arrays(dims=(1, 3), side=(0, 3)), st.data())
    def test_tile(self, x, data):
        multiples = data.draw(st.lists(st.integers(0, 3), min_size=x.ndim, max_size=x.ndim + 2))
        same(reference.tile(x, multiples), np.tile(x, multiples))

    @given(
        npst.mutually_broadcastable_shapes(num_shapes=3, max_dims=3, min_side=0, max_side=4),
        dtypes,
        st.integers(0, 2**32),
    )
    def test_where_broadcasts(self, found, dtype, seed):
        rng = np.random.default_rng(seed)
        of_cond, of_a, of_b = found.input_shapes
        cond = rng.integers(0, 2, of_cond).astype(np.int8)
        a, b = random(rng, of_a, dtype), random(rng, of_b, dtype)
        same(reference.where(cond, a, b), np.where(cond != 0, a, b))

    def test_where_beyond_one_block(self):
        rng = np.random.default_rng(0)
        a, b = random(rng, (300, 100), np.float16), random(rng, (100,), np.float16)
        cond = rng.integers(0, 2, (300, 1)).astype(np.int8)
        same(reference.where(cond, a, b), np.where(cond != 0, a, b))

    @given(arrays(), st.sampled_from([0.0, 1.0, -3.0]), st.booleans())
    def test_masked_fill(self, x, value, shared):
        if x.dtype == np.bool_ or x.dtype == np.uint8:
            value = abs(value)
        mask = np.indices(x.shape).sum(axis=0) % 2 == 0
        if shared and x.shape[0] > 0:
            mask = mask[:1]
        expected = np.where(mask, np.asarray(value).astype(x.dtype), x)
        same(reference.masked_fill(x, mask, value), expected)

    @given(arrays(), st.data())
    def test_set_value_in_all_dimensions_together(self, x, data):
        starts, ends, strides = [], [], []
        for extent in x.shape:
            starts.append(data.draw(st.integers(0, extent)))
            ends.append(data.draw(st.integers(starts[-1], extent)))
            strides.append(data.draw(st.integers(1, 3)))
        index = tuple(map(slice, starts, ends, strides))
        source = np.zeros_like(x[index])
        expected = x.copy()
        expected[index] = source
        same(reference.set_value(x, source, starts, ends, strides), expected)

    @pytest.mark.parametrize(
        "starts, ends, strides, source",
        [
            ([0, 0], [2, 4], [1, 1], (2, 4)),
            ([-1, 0], [2, 3], [1, 1], (3, 3)),
            ([1, 0], [0, 3], [1, 1], (0, 3)),
            ([0, 0], [2, 3], [0, 1], (2, 3)),
            ([0, 0], [2, 3], [1, 1], (3, 2)),
            ([0], [2], [1], (2, 3)),
        ],
    )
    def test_set_value_refuses_what_does_not_fit(self, starts, ends, strides, source):
        with pytest.raises(assay.FormatError):
            reference.set_value(np.zeros((2, 3)), np.zeros(source), starts, ends, strides)


class TestGather:
    @given(arrays(side=(1, 4)), st.data())
    def test_takes_along_an_axis(self, x, data):
        axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
        shape = data.draw(npst.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=4))
        kind = data.draw(st.sampled_from([np.int32, np.int64, np.uint8]))
        indices = data.draw(npst.arrays(kind, shape, elements=st.integers(0, x.shape[axis] - 1)))
        same(reference.gather(x, indices, axis), np.take(x, indices, axis))

    @given(st.integers(0, 3), st.integers(0, 2), st.integers(1, 4), st.integers(0, 3), st.integers(0, 99))
    def test_batch_dimensions(self, batch, middle, size, inner, seed):
        rng = np.random.default_rng(seed)
        x = random(rng, (batch, middle, size, inner), np.float32)
        indices = rng.integers(0, size, (batch, 5))
        expected = np.stack([np.take(x[b], indices[b], 1) for b in range(batch)]) if batch else x[:, :, :0].repeat(5, 2)
        found = reference.gather(x, indices, 2, 1)
        assert found.shape == (batch, middle, 5, inner)
        np.testing.assert_array_equal(found.reshape(-1), expected.reshape(-1))

    @pytest.mark.parametrize("index", [-1, 3, 2**40])
    def test_an_index_outside_is_named(self, index):
        with pytest.raises(assay.FormatError, match=f"index {index} at place 1 lies outside"):
            reference.gather(np.zeros((3, 2)), np.array([0, index]))

    def test_shapes_that_do_not_fit_raise(self):
        x = np.zeros((2, 3))
        for indices, axis, batch in [
            (np.zeros(2, np.int64), 2, 0),
            (np.zeros((3, 1), np.int64), 1, 1),
            (np.zeros(2, np.int64), 0, 1),
            (np.zeros(2), 0, 0),
        ]:
            with pytest.raises(assay.FormatError):
                reference.gather(x, indices, axis, batch)

    @given(arrays(dims=(1, 3), side=(1, 4)), st.booleans(), st.data())
    def test_scatter_elements_is_a_loop(self, x, add, data):
        if x.dtype == np.bool_:
            x = x.astype(np.int8)
        axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
        shape = tuple(data.draw(st.integers(0, n)) for n in x.shape)
        indices = data.draw(npst.arrays(np.int32, shape, elements=st.integers(0, x.shape[axis] - 1)))
        updates = np.full(shape, 3, x.dtype) + np.arange(np.prod(shape), dtype=np.int8).reshape(shape).astype(x.dtype)
        wide = np.int64 if np.issubdtype(x.dtype, np.integer) else np.float64
        expected = x.astype(wide) if add else x.copy()
        with np.errstate(over="ignore"):
            for place in np.ndindex(shape):
                target = list(place)
                target[axis] = indices[place]
                if add:
                    expected[tuple(target)] += updates[place].astype(wide)
                else:
                    expected[tuple(target)] = updates[place]
        same(reference.scatter_elements(x, indices, updates, axis, add=add), expected)

    def test_scatter_refuses_what_does_not_fit(self):
        x = np.zeros((2, 3))
        with pytest.raises(assay.FormatError):
            reference.scatter_elements(x, np.array([[3]]), np.ones((1, 1)))
        with pytest.raises(assay.FormatError):
            reference.scatter_elements(x, np.array([0]), np.ones(1))
        with pytest.raises(assay.FormatError):
            reference.scatter_elements(x, np.zeros((2, 2), int), np.ones((1, 2)))


class TestNz:
    @given(
        npst.array_shapes(min_dims=2, max_dims=4, min_side=0, max_side=40).filter(lambda s: np.prod(s) < 20000),
        dtypes,
        st.integers(0, 99),
    )
    @settings(deadline=None)
    def test_is_the_blocked_layout_and_back(self, shape, dtype, seed):
        x = random(np.random.default_rng(seed), shape, dtype)
        c0 = 32 if x.dtype.itemsize == 1 else 16
        rows, columns = shape[-2:]
        padding = [(0, 0)] * (x.ndim - 2) + [(0, -rows % 16), (0, -columns % c0)]
        padded = np.pad(x, padding)
        blocks = padded.reshape(*padded.shape[:-1], -1 if padded.size else (columns + c0 - 1) // c0, c0)
        nz = reference.nd_to_nz(x)
        same(nz, np.moveaxis(blocks, -2, -3))
        same(reference.nz_to_nd(nz, rows, columns), x)

    def test_the_other_way_round_too(self):
        nz = np.arange(2 * 3 * 32 * 16, dtype=np.float32).reshape(2, 3, 32, 16)
        same(reference.nd_to_nz(reference.nz_to_nd(nz)), nz)


class TestSequences:
    @given(st.lists(st.integers(0, 5), min_size=1, max_size=5), st.integers(0, 3), dtypes)
    def test_pad_and_unpad_are_inverse(self, lengths, hidden, dtype):
        x = random(np.random.default_rng(1), (sum(lengths), hidden), dtype)
        padded = reference.pad_sequences(x, lengths, 6)
        assert padded.shape == (len(lengths), 6, hidden)
        for b, n in enumerate(lengths):
            first = sum(lengths[:b])
            same(padded[b, :n], x[first : first + n])
            assert not padded[b, n:].any()
        same(reference.unpad_sequences(padded, lengths), x)

    @given(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    def test_last_tokens(self, lengths):
        hidden = random(np.random.default_rng(2), (sum(lengths) + 1, 4), np.float16)
        same(reference.last_tokens(hidden, lengths), hidden[np.cumsum(lengths) - 1])

    @given(st.lists(st.integers(0, 6), min_size=1, max_size=4))
    def test_unpad_ids(self, lengths):
        batch, padded = len(lengths), 6
        ids = np.random.default_rng(3).integers(1, 1000, (batch, padded))
        cum_offsets = np.cumsum(padded - np.array(lengths))
        before = np.concatenate([[0], cum_offsets[:-1]])
        valid = np.concatenate([row[:n] for row, n in zip(ids, lengths)])
        places = np.repeat(before, lengths)
        fill = batch * padded - len(valid)
        found = reference.unpad_ids(ids, cum_offsets, lengths)
        same(found[0], np.pad(valid, (0, fill))[None])
        same(found[1], before[:, None])
        same(found[2], np.pad(places, (0, fill))[None])

    @given(st.lists(st.integers(0, 4), min_size=0, max_size=3), st.integers(0, 3))
    def test_ragged_masks(self, lengths, heads):
        mask = random(np.random.default_rng(4), (3, 1, 4, 4), np.float16)
        parts = [mask[b, 0, :n, :n].reshape(-1) for b, n in enumerate(lengths) for _ in range(heads)]
        same(reference.ragged_masks(mask, heads, lengths), np.concatenate(parts or [mask[0, 0, 0, :0]]))

    def test_lengths_that_do_not_fit_raise(self):
        x = np.zeros((2, 3, 4))
        for call in [
            lambda: reference.unpad_sequences(x, [1]),
            lambda: reference.unpad_sequences(x, [1, 4]),
            lambda: reference.unpad_sequences(x, [1, -1]),
            lambda: reference.pad_sequences(x, [2, 1], 2),
            lambda: reference.pad_sequences(x, [2], 1),
            lambda: reference.pad_sequences(x, [1], 2**60),
            lambda: reference.last_tokens(x, [0, 1]),
            lambda: reference.last_tokens(x, [2, 1]),
            lambda: reference.ragged_masks(x, 1, [5]),
            lambda: reference.ragged_masks(x, 2**62, [3, 3]),
            lambda: reference.ragged_masks(x, 1, [1, 1, 1]),
            lambda: reference.unpad_ids(np.zeros((2, 3), int), [1], [1, 1]),
        ]:
            with pytest.raises(assay.FormatError):
                call()


class TestCaches:
    @given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 2), st.integers(0, 6), dtypes, st.data())
    def test_reshape_and_cache(self, blocks, block_size, heads, tokens, dtype, data):
        rng = np.random.default_rng(5)
        cache = random(rng, (blocks, block_size, heads, 16), dtype)
        new = random(rng, (tokens, heads, 16), dtype)
        slots = data.draw(st.lists(st.integers(-2, blocks * block_size - 1), min_size=tokens, max_size=tokens))
        expected = cache.copy()
        for token, slot in enumerate(slots):
            if slot >= 0:
                expected[slot // block_size, slot % block_size] = new[token]
        same(reference.reshape_and_cache(new, cache, slots), expected)
        # The same in NZ: c0 consecutive elements of a row, then the next token.
        nz = np.ascontiguousarray(cache.reshape(blocks, block_size, heads, 16).transpose(0, 2, 1, 3))
        found = reference.reshape_and_cache(new, nz, slots, nz=True)
        same(found.transpose(0, 2, 1, 3), expected)

    @given(st.lists(st.integers(0, 4), min_size=1, max_size=3), st.integers(1, 2), st.booleans(), st.data())
    def test_windows_of_heads(self, lengths, heads, omni, data):
        rng = np.random.default_rng(6)
        new = random(rng, (sum(lengths), heads, 4), np.float16)
        entries = len(lengths) * heads
        cache = random(rng, (entries + 1, 5, 1, 4), np.float16)
        slots = [-1 if data.draw(st.integers(0, 4)) == 0 else 5 * i + 1 for i in range(entries)]
        wins = [data.draw(st.integers(0, lengths[i // heads])) for i in range(entries)]
        offsets = [data.draw(st.integers(-1, 4)) for _ in range(entries)] if omni else None
        expected = cache.copy()
        ends = np.cumsum(lengths)
        for i, slot in enumerate(slots):
            end, n, head = int(ends[i // heads]), lengths[i // heads], i % heads
            if slot < 0:
                continue
            kept = range(end - wins[i], end)
            if offsets is not None:
                kept = [
                    end - n + j for j in range(n) if offsets[i] == -1 or j < offsets[i] or j >= offsets[i] + wins[i]
                ]
            for place, token in enumerate(kept):
                expected[(slot + place) // 5, (slot + place) % 5, 0] = new[token, head]
        same(reference.reshape_and_cache_windows(new, cache, slots, wins, lengths, offsets), expected)

    @given(st.lists(st.integers(0, 7), min_size=1, max_size=3), st.booleans(), st.data())
    def test_paged_cache_load_reads_what_tables_list(self, lengths, nz, data):
        cache = random(np.random.default_rng(7), (4, 3, 2, 16), np.int8)
        tables = data.draw(npst.arrays(np.int32, (len(lengths), 4), elements=st.integers(-1, 3)))
        starts = [data.draw(st.sampled_from([0, 3])) for _ in lengths]
        rows = [
            cache[tables[b, starts[b] // 3 + j // 3], j % 3].reshape(-1)
            for b, n in enumerate(lengths)
            for j in range(n)
            if tables[b, starts[b] // 3 + j // 3] >= 0
        ]
        stored = cache.transpose(0, 2, 1, 3) if nz else cache
        found = reference.paged_cache_load(stored, tables, lengths, starts, nz=nz)
        same(found, np.array(rows, np.int8).reshape(len(rows), 32))

    def test_kv_cache_appends_at_the_end_of_each_sequence(self):
        past = np.zeros((2, 2, 5, 3), np.float16)
        new = np.arange(1, 10, dtype=np.float16).reshape(3, 3)
        found = reference.kv_cache(new, past, 1, [4, 1], [2, 1])
        expected = past.copy()
        expected[1, 0, 2:4] = new[:2]
        expected[1, 1, 0] = new[2]
        same(found, expected)

    def test_copy_blocks(self):
        cache = random(np.random.default_rng(8), (6, 2, 3), np.int8)
        expected = cache.copy()
        expected[[1, 2]] = cache[0]
        expected[5] = cache[3]
        same(reference.copy_blocks(cache, [0, 3], [1, 2, 5], [2, 3]), expected)

    def test_hostile_slots_and_tables_raise(self):
        cache, new = np.zeros((2, 3, 1, 4)), np.ones((2, 1, 4))
        for call in [
            lambda: reference.reshape_and_cache(new, cache, [0, 6]),
            lambda: reference.reshape_and_cache(new, cache, [0, 2**62]),
            lambda: reference.reshape_and_cache(new, cache, [0, 1, 2]),
            lambda: reference.reshape_and_cache(np.ones((2, 3)), cache, [0, 1]),
            lambda: reference.reshape_and_cache(new.astype(np.float32), cache, [0, 1]),
            lambda: reference.reshape_and_cache(new, np.zeros((2, 12)), [0], nz=True),
            lambda: reference.reshape_and_cache_windows(new, cache, [0], [3], [2]),
            lambda: reference.reshape_and_cache_windows(new, cache, [5], [2], [2]),
            lambda: reference.reshape_and_cache_windows(new, cache, [0], [1], [2**62]),
            lambda: reference.reshape_and_cache_windows(new, cache, [0], [1], [2], [-2]),
            lambda: reference.reshape_and_cache_windows(new, cache, [0], [1], [3], [-1]),
            lambda: reference.paged_cache_load(cache, np.array([[2]]), [1]),
            lambda: reference.paged_cache_load(cache, np.array([[2**62]]), [1]),
            lambda: reference.paged_cache_load(cache, np.array([[0]]), [4]),
            lambda: reference.paged_cache_load(cache, np.array([[0]]), [1], [3]),
            lambda: reference.paged_cache_load(cache, np.array([[0]]), [-1]),
            lambda: reference.paged_cache_load(cache, np.array([0]), [1]),
            lambda: reference.kv_cache(new, cache, 2, [1], [1]),
            lambda: reference.kv_cache(new, cache, 0, [1], [2]),
            lambda: reference.kv_cache(new, cache, 0, [2], [1]),
            lambda: reference.copy_blocks(cache, [2], [1], [1]),
            lambda: reference.copy_blocks(cache, [0], [2], [1]),
            lambda: reference.copy_blocks(cache, [0], [1], [2]),
            lambda: reference.copy_blocks(cache, [0, 1], [1, 0], [2, 1]),
        ]:
            with pytest.raises(assay.FormatError):
                call()


class TestRanks:
    @given(st.integers(1, 4), st.integers(0, 3), st.integers(0, 3), dtypes)
    def test_all_to_all(self, ranks, h, w, dtype):
        rng = np.random.default_rng(9)
        xs = [random(rng, (h * ranks, w * ranks), dtype) for _ in range(ranks)]
        for rank in range(ranks):
            rows = [x[rank * h : (rank + 1) * h] for x in xs]
            same(reference.all_to_all(xs, rank), np.concatenate(rows))
            columns = [x[:, rank * w : (rank + 1) * w] for x in xs]
            same(reference.all_to_all(xs, rank, transposed=True), np.concatenate(columns))

    @given(st.integers(1, 4), st.integers(0, 3), st.sampled_from(["sum", "max", "min", "prod"]))
    def test_reduce_scatter_is_numpys_reduction_of_the_ranks(self, ranks, rows, reduction):
        rng = np.random.default_rng(10)
        xs = [rng.standard_normal((rows * ranks, 3)).astype(np.float16) for _ in range(ranks)]
        reduce = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}[reduction]
        expected = reduce.reduce(np.stack(xs).astype(np.float64))
        for rank in range(ranks):
            same(reference.reduce_scatter(xs, rank, reduction), expected[rank * rows : (rank + 1) * rows])

    def test_nan_of_any_rank_stays(self):
        nan = np.array([np.nan, 1.0])
        for reduction in ("sum", "max", "min", "prod"):
            for xs in ([nan, np.ones(2)], [np.ones(2), nan]):
                assert np.isnan(reference.reduce_scatter(xs, 0, reduction)).all()

    def test_unknown_reductions_raise_as_all_reduce_does(self):
        for reduce in (reference.all_reduce, lambda xs, how: reference.reduce_scatter(xs, 0, how)):
            with pytest.raises(assay.Error, match='"mean" is no reduction'):
                reduce([np.ones(2), np.ones(2)], "mean")

    def test_ranks_that_do_not_fit_raise(self):
        x = np.zeros((4, 2))
        for call in [
            lambda: reference.all_to_all([x, x[:2]], 0),
            lambda: reference.all_to_all([x, x], 2),
            lambda: reference.all_to_all([x[:1, :1], x[:1, :1]], 0),
            lambda: reference.all_to_all([x[0], x[0]], 0, transposed=True),
            lambda: reference.reduce_scatter([x, x, x], 0),
            lambda: reference.reduce_scatter([x, x], 2),
            lambda: reference.reduce_scatter([x, x.astype(np.float32)], 0),
        ]:
            with pytest.raises(assay.FormatError):
                call()
