# SPDX-License-Identifier: Apache-2.0
"""assay opcheck: moves, caches, exchanges between ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from opcheck_dump import check, opcheck, run_folder_of, to_bf16, write_operation

RNG = np.random.default_rng(20250102)


def f16(*shape) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float16)


def i32(*values) -> np.ndarray:
    return np.array(values, np.int32)


def wrong(array: np.ndarray) -> np.ndarray:
    """The array with another last element."""
    changed = np.array(array, order="C")
    changed.reshape(-1)[-1] = 1 if changed.reshape(-1)[-1] == 0 else 0
    return changed


def results(rows) -> list[str]:
    return [row["result"] for row in rows]


def expect(rows, *wanted: str) -> None:
    assert results(rows) == list(wanted), [(row["result"], row["reason"], row["note"]) for row in rows]


X = f16(4, 6)
WIDE = f16(2, 5, 33)
MASK = f16(2, 1, 4, 4)
IDS = np.array([[5, 6, 0, 0], [7, 8, 9, 0]], np.int64)
HIDDEN = f16(5, 3)


def nz_of(x: np.ndarray, c0: int) -> np.ndarray:
    rows, columns = x.shape[-2:]
    padded = np.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, -rows % 16), (0, -columns % c0)])
    return np.ascontiguousarray(np.moveaxis(padded.reshape(*padded.shape[:-1], -1, c0), -2, -3))


# name, operation, parameters, inputs, right outputs
ONE_TO_ONE = [
    ("as_strided", "AsStrided", {"size": [2, 3], "stride": [6, 2], "offset": [1]}, [X], [X[:2, 1::2]]),
    ("as_strided overlapping", "AsStrided", {"size": [3, 4], "stride": [1, 1], "offset": [0]}, [X],
     [np.stack([X.reshape(-1)[i : i + 4] for i in range(3)])]),
    ("concat", "Concat", {"concatDim": -1}, [X, X[:, :2]], [np.concatenate([X, X[:, :2]], 1)]),
    ("concat of three", "Concat", {"concatDim": 0}, [X, X, X[:1]], [np.concatenate([X, X, X[:1]])]),
    ("concat default", "Concat", {}, [X, X], [np.concatenate([X, X])]),
    ("split", "Split", {"splitDim": 1, "splitNum": 2}, [X], [X[:, :3], X[:, 3:]]),
    ("split uneven", "Split", {"splitDim": 0, "splitNum": 3}, [X], [X[:2], X[2:], X[4:]]),
    ("split by sizes", "Split", {"splitDim": -1, "splitNum": 3, "splitSizes": [1, 2, 3]}, [X],
     [X[:, :1], X[:, 1:3], X[:, 3:]]),
    ("slice", "Slice", {"offsets": [1, -2], "size": [2, -1]}, [X], [X[1:3, 4:]]),
    ("slice of rank 5", "Slice", {"offsets": [0, 1, 0, 0, 1], "size": [1, 1, 1, 1, 2]},
     [X.reshape(1, 4, 1, 2, 3)], [X.reshape(1, 4, 1, 2, 3)[:, 1:2, :, :1, 1:]]),
    ("transpose", "Transpose", {"perm": [1, 0]}, [X], [X.T]),
    ("transdata to NZ", "Transdata", {"transdataType": 2}, [WIDE], [nz_of(WIDE, 16)]),
    ("transdata int8 to NZ", "Transdata", {"transdataType": 2}, [WIDE.astype(np.int8)],
     [nz_of(WIDE.astype(np.int8), 32)]),
    ("transdata of a matrix", "Transdata", {"transdataType": 2}, [X], [nz_of(X[None], 16)]),
    ("transdata to ND", "Transdata", {"transdataType": 1, "outCrops": [5, 33]}, [nz_of(WIDE, 16)], [WIDE]),
    ("fill", "Fill", {"withMask": True, "value": [-3.5], "outDim": []}, [X, (X > 0).astype(np.int8)],
     [np.where(X > 0, np.float16(-3.5), X)]),
    ("fill broadcast", "Fill", {"withMask": True, "value": [0.1]}, [X, (X[:1] > 0).astype(np.int8)],
     [np.where(X[:1] > 0, np.float16(0.1), X)]),
    ("fill constant", "Fill", {"withMask": False, "value": [2.0], "outDim": [2, 3]}, [],
     [np.full((2, 3), 2, np.float16)]),
    ("repeat", "Repeat", {"multiples": [2, 1, 3]}, [X], [np.tile(X, (2, 1, 3))]),
    ("where", "Where", None, [(X > 0).astype(np.int8), X, -X], [abs(X)]),
    ("where broadcast", "Where", None, [np.array([[1], [0], [1], [0]], np.int8), X, X[:1]],
     [np.where(np.array([[1], [0], [1], [0]]), X, X[:1])]),
    ("gather", "Gather", {"axis": 0, "batchDims": 0}, [X, i32(3, 0, 0)], [X[[3, 0, 0]]]),
    ("gather int64 axis 1", "Gather", {"axis": 1}, [X, np.array([[1, 2]])], [np.take(X, [[1, 2]], 1)]),
    ("gather batches", "Gather", {"axis": 1, "batchDims": 1}, [X, i32([0, 5], [1, 1], [2, 0], [4, 3])],
     [np.take_along_axis(X, np.array([[0, 5], [1, 1], [2, 0], [4, 3]]), 1)]),
    ("pad", "Pad", None, [HIDDEN, np.zeros((1, 5), np.int32), i32([2], [3]), IDS], [HIDDEN[[1, 4]]]),
    ("unpad", "Unpad", None, [IDS, i32([2], [3]), np.array([[5]]), i32([2], [3])],
     [np.array([[5, 6, 7, 8, 9, 0, 0, 0]]), i32([0], [2]), i32([0, 0, 2, 2, 2, 0, 0, 0])]),
    ("gen attention mask", "GenAttentionMask", {"headNum": 2, "seqLen": [4, 2]}, [MASK],
     [np.concatenate([MASK[0].reshape(-1)] * 2 + [MASK[1, 0, :2, :2].reshape(-1)] * 2)]),
    ("pad with hidden state", "PadWithHiddenState", {"qSeqLen": [2, 3], "maxSeqLen": 4}, [HIDDEN],
     [np.stack([np.pad(HIDDEN[:2], ((0, 2), (0, 0))), np.pad(HIDDEN[2:], ((0, 1), (0, 0)))])]),
    ("unpad with hidden state", "UnpadWithHiddenState", {"qSeqLen": [1, 4], "maxSeqLen": 5}, [WIDE],
     [np.concatenate([WIDE[0, :1], WIDE[1, :4]])]),
]  # fmt: skip


@pytest.mark.parametrize("op, parameters, inputs, outputs", [row[1:] for row in ONE_TO_ONE],
                         ids=[row[0] for row in ONE_TO_ONE])  # fmt: skip
def test_right_outputs_pass_and_one_wrong_element_fails(tmp_path: Path, op, parameters, inputs, outputs):
    expect(check(tmp_path / "right", f"{op}Operation", parameters, inputs, outputs), *["PASS"] * len(outputs))
    for i, output in enumerate(outputs):
        if output.size == 0:
            continue
        broken = [wrong(o) if i == j else o for j, o in enumerate(outputs)]
        rows = check(tmp_path / f"wrong{i}", f"{op}Operation", parameters, inputs, broken)
        assert [row["result"] for row in rows] == ["FAILED" if i == j else "PASS" for j in range(len(outputs))]


def test_bfloat16_moves_compare_bits(tmp_path: Path):
    bits, name = to_bf16(RNG.standard_normal((4, 6)))
    moved = (np.ascontiguousarray(bits.T), name)
    expect(check(tmp_path / "right", "TransposeOperation", {"perm": [1, 0]}, [(bits, name)], [moved]), "PASS")
    one_off = (moved[0] + (np.arange(24).reshape(6, 4) == 23), name)
    one_off = (one_off[0].astype(np.uint16), name)
    expect(check(tmp_path / "wrong", "TransposeOperation", {"perm": [1, 0]}, [(bits, name)], [one_off]), "FAILED")


NOT_SUPPORTED = [
    ("Split", {"splitNum": 4, "splitDim": 0}, [X], [X[:1]] * 4, "splitNum 4"),
    ("Transdata", {"transdataType": 3}, [X], [X], "transdataType 3"),
    ("PadWithHiddenState", {}, [HIDDEN], [HIDDEN], "qSeqLen is not in the dump"),
    ("ReshapeAndCache", {"compressType": 2}, [X], [], "KVHEAD_ROPE"),
    ("ReshapeAndCache", {"compressType": 7}, [X], [], "compressType 7"),
    ("ReshapeAndCache", {"kvCacheCfg": 3}, [X], [], "kvCacheCfg 3"),
    ("ScatterElementsV2", {"reduction": 1}, [X, np.zeros((1, 1), np.int32), X[:1, :1]], [], "needs before data"),
    ("ScatterElementsV2", {"reduction": 2}, [X, np.zeros((1, 1), np.int32), X[:1, :1]], [], "reduction 2"),
]


@pytest.mark.parametrize("op, parameters, inputs, outputs, reason", NOT_SUPPORTED)
def test_what_has_no_golden_is_not_supported(tmp_path: Path, op, parameters, inputs, outputs, reason):
    rows = check(tmp_path, f"{op}Operation", parameters, inputs, outputs)
    assert set(results(rows)) == {"NOT_SUPPORTED"}
    assert reason in rows[0]["reason"]


ERRORS = [
    ("AsStrided", {"size": [4, 100], "stride": [6, 1], "offset": [0]}, [X], [X], "bytes of storage"),
    ("AsStrided", {"size": [2**31, 2**31], "stride": [0, 0], "offset": [0]}, [X], [X], "too large"),
    ("AsStrided", {"size": "x", "stride": [1], "offset": [0]}, [X], [X], "parameter size"),
    ("Concat", {"concatDim": 5}, [X, X], [X], "axis 5"),
    ("Concat", {"concatDim": 0}, [X, X[:, :1]], [X], "cannot be joined"),
    ("Concat", {"concatDim": 0}, [], [X], "nothing to concatenate"),
    ("Split", {"splitNum": 2, "splitSizes": [1, 1], "splitDim": 0}, [X], [X, X], "do not add up"),
    ("Split", {"splitNum": 2, "splitSizes": [1, 1, 2], "splitDim": 0}, [X], [X, X], "for splitNum 2"),
    ("Slice", {"offsets": [0, 7], "size": [1, 1]}, [X], [X], "outside dimension 1"),
    ("Slice", {"offsets": [0], "size": [1]}, [X], [X], "as many dimensions"),
    ("Transpose", {"perm": [0, 0]}, [X], [X], "no permutation"),
    ("Transpose", {"perm": [1, 0]}, [X, X], [X], "takes x; the dump has 2 inputs"),
    ("Transpose", {"perm": [1, 0]}, [None, X], [X], ""),
    ("Transdata", {"transdataType": 1}, [X], [X], "no FRACTAL_NZ shape"),
    ("Transdata", {"transdataType": 1, "outCrops": [99, 99]}, [nz_of(X, 16)], [X], "does not fit into NZ"),
    ("Fill", {"withMask": True, "value": []}, [X, X], [X], "one expected"),
    ("Fill", {"withMask": True, "value": [1]}, [X, f16(3)], [X], "does not broadcast"),
    ("Fill", {"withMask": False, "value": [1], "outDim": [-1]}, [], [X], "[-1]"),
    ("Repeat", {"multiples": [2]}, [X], [X], "too few"),
    ("Where", None, [X, X, f16(5)], [X], "do not broadcast"),
    ("Gather", {"axis": 0}, [X, i32(4)], [X[:1]], "index 4 at place 0 lies outside [0, 4)"),
    ("Gather", {"axis": 0}, [X, X], [X], "indices are float16, no integers"),
    ("Pad", None, [HIDDEN, i32(0), i32([2], [9]), IDS], [HIDDEN[:2]], "length 9"),
    ("Unpad", None, [IDS, i32([2], [3]), np.array([[4]]), i32([2], [3])], [IDS, IDS, IDS], "tokenNum is [4]"),
    ("GenAttentionMask", {"headNum": 1, "seqLen": [9]}, [MASK], [X], "length 9"),
    ("KvCache", None, [X, i32(0), f16(1, 1, 4, 6), i32(9), i32(2)], [], "ends at position 9"),
    ("KvCache", None, [X, i32(1), f16(1, 1, 4, 6), i32(2), i32(2)], [], "layer 1 lies outside"),
    ("KvCache", None, [X, i32(0)], [], "the dump has 2 inputs"),
    ("ReshapeAndCache", {}, [f16(2, 1, 4), f16(2, 1, 4), f16(2, 3, 1, 4), f16(2, 3, 1, 4), i32(0, 6)], [], "slot 6"),
    ("ReshapeAndCache", {}, [f16(2, 1, 4), f16(2, 1, 4), f16(2, 3, 1, 5), f16(2, 3, 1, 4), i32(0, 1)], [], "not fit"),
    ("ReshapeAndCache", {"kvCacheCfg": 1}, [X, X], [], "takes 3 inputs"),
    ("SetValue", {"starts": [0, 0], "ends": [5, 1], "strides": [1, 1]}, [X, X[:, :1]], [], "outside dimension 0"),
    ("SetValue", {"starts": [0, 0], "ends": [2, 1], "strides": [1, 1]}, [X, X], [], "src has [4, 6]"),
    ("AllGather", {"rank": 0}, [X], [X], "rankSize is 0"),
    ("AllGather", {"rank": 2, "rankSize": 2}, [X], [X], "rank 2 of 2"),
    ("AllGather", {"rank": 0, "rankSize": 2}, [X], [X], "rank 1"),
]  # fmt: skip


@pytest.mark.parametrize("op, parameters, inputs, outputs, reason", ERRORS)
def test_what_does_not_fit_is_an_error_with_its_reason(tmp_path: Path, op, parameters, inputs, outputs, reason):
    rows = check(tmp_path, f"{op}Operation", parameters, inputs, outputs)
    assert rows and set(results(rows)) == {"ERROR"}, [(row["result"], row["reason"]) for row in rows]
    assert reason in rows[0]["reason"]


# ---- In place: the state before, or only what was written


def in_place(tmp_path: Path, op: str, parameters, before: list, after: list, outputs=(), nz=()):
    """Rows with before/ dumped, and rows of after/ alone."""
    full = check(tmp_path / "full", f"{op}Operation", parameters, after, list(outputs), before=before, nz=nz)
    part = check(tmp_path / "part", f"{op}Operation", parameters, after, list(outputs), nz=nz)
    return full, part


def replaced(tensors: list, **new) -> list:
    changed = list(tensors)
    for place, tensor in new.items():
        changed[int(place[1:])] = tensor
    return changed


def expect_partial(rows, *wanted: str) -> None:
    expect(rows, *wanted)
    for row in rows:
        assert "written part only" in row["note"]


def test_set_value(tmp_path: Path):
    parameters = {"starts": [1, 2], "ends": [3, 4], "strides": [1, 1]}
    source = f16(2, 2)
    after = X.copy()
    after[1:3, 2:4] = source
    full, part = in_place(tmp_path / "right", "SetValue", parameters, [X, source], [after, source])
    expect(full, "PASS")
    expect_partial(part, "PASS")
    # Row by row, as the original does: dimension 0 alone.
    rows_only = X.copy()
    rows_only[1:3, :2] = source
    full, part = in_place(tmp_path / "rows", "SetValue", parameters, [X, source], [rows_only, source])
    expect(full, "FAILED")
    expect_partial(part, "FAILED")
    # Outside of the region only the state before can tell.
    elsewhere = after.copy()
    elsewhere[0, 0] += 1
    full, part = in_place(tmp_path / "elsewhere", "SetValue", parameters, [X, source], [elsewhere, source])
    expect(full, "FAILED")
    expect_partial(part, "PASS")


def test_kv_cache(tmp_path: Path):
    new, past = f16(3, 4), f16(2, 2, 5, 4)
    before = [new, i32(1), past, i32(4, 1), i32(2, 1)]
    right = past.copy()
    right[1, 0, 2:4] = new[:2]
    right[1, 1, 0] = new[2]
    full, part = in_place(tmp_path / "right", "KvCache", None, before, replaced(before, _2=right))
    expect(full, "PASS")
    expect_partial(part, "PASS")
    off_by_one = past.copy()
    off_by_one[1, 0, 3:5] = new[:2]
    off_by_one[1, 1, 1] = new[2]
    full, part = in_place(tmp_path / "wrong", "KvCache", None, before, replaced(before, _2=off_by_one))
    expect(full, "FAILED")
    expect_partial(part, "FAILED")


def cache_case(heads: int, size: int, dtype=np.float16):
    key, value = f16(3, heads, size).astype(dtype), f16(3, heads, size).astype(dtype)
    caches = [f16(4, 2, heads, size).astype(dtype) for _ in range(2)]
    slots = i32(5, -1, 0)
    after = [cache.copy() for cache in caches]
    for tokens, cache in zip((key, value), after):
        cache[2, 1], cache[0, 0] = tokens[0], tokens[2]
    return [key, value, *caches, slots], [key, value, *after, slots]


def to_nz(cache: np.ndarray, c0: int) -> np.ndarray:
    blocks, block_size = cache.shape[:2]
    return np.ascontiguousarray(cache.reshape(blocks, block_size, -1, c0).transpose(0, 2, 1, 3))


def test_reshape_and_cache(tmp_path: Path):
    before, after = cache_case(2, 16)
    full, part = in_place(tmp_path / "right", "ReshapeAndCache", {"kvCacheCfg": 0, "compressType": 0}, before, after)
    expect(full, "PASS", "PASS")
    expect_partial(part, "PASS", "PASS")
    swapped = replaced(after, _2=after[2][:, :, ::-1])
    full, part = in_place(tmp_path / "heads", "ReshapeAndCache", {}, before, swapped)
    expect(full, "FAILED", "PASS")
    expect_partial(part, "FAILED", "PASS")


def test_reshape_and_cache_reports_listed_outputs(tmp_path: Path):
    before, after = cache_case(1, 4)
    full, part = in_place(tmp_path, "ReshapeAndCache", {}, before, after, outputs=[after[2], wrong(after[3])])
    expect(full, "PASS", "FAILED")
    expect_partial(part, "PASS", "PASS")  # the wrong element was not written


def test_reshape_and_cache_of_keys_only(tmp_path: Path):
    before, after = cache_case(1, 8)
    picked = [0, 2, 4]
    full, part = in_place(
        tmp_path, "ReshapeAndCache", {"kvCacheCfg": 1}, [before[i] for i in picked], [after[i] for i in picked]
    )
    expect(full, "PASS")
    expect_partial(part, "PASS")


@pytest.mark.parametrize("how", ["kvCacheCfg", "header", "shape"])
def test_reshape_and_cache_in_nz(tmp_path: Path, how: str):
    before, after = ([key, value, to_nz(k, 16), to_nz(v, 16), slots] for key, value, k, v, slots in cache_case(3, 16))
    parameters = {"kvCacheCfg": 2 if how == "kvCacheCfg" else 0}
    nz = ("intensor2", "intensor3") if how == "header" else ()
    full, part = in_place(tmp_path / "right", "ReshapeAndCache", parameters, before, after, nz=nz)
    expect(full, "PASS", "PASS")
    expect_partial(part, "PASS", "PASS")
    broken = replaced(after, _3=before[3])
    full, part = in_place(tmp_path / "wrong", "ReshapeAndCache", parameters, before, broken, nz=nz)
    expect(full, "PASS", "FAILED")
    expect_partial(part, "PASS", "FAILED")


def test_int8_keys_in_nz_have_32_columns(tmp_path: Path):
    (key, _, k, _, slots), (_, _, k_after, _, _) = cache_case(2, 32, np.int8)
    (_, value, _, v, _), (_, _, _, v_after, _) = cache_case(2, 32)
    before = [key, value, to_nz(k, 32), to_nz(v, 16), slots]
    after = [key, value, to_nz(k_after, 32), to_nz(v_after, 16), slots]
    full, part = in_place(tmp_path, "ReshapeAndCache", {"kvCacheCfg": 2}, before, after)
    expect(full, "PASS", "PASS")
    expect_partial(part, "PASS", "PASS")


def window_case(omni: bool):
    lengths, heads = [2, 3], 2
    key, value = f16(5, heads, 4), f16(5, heads, 4)
    caches = [f16(4, 5, 1, 4) for _ in range(2)]
    slots, wins, offsets = i32(0, 6, 10, -1), i32(2, 1, 2, 3), i32(-1, 0, 1, 0)
    after = [cache.copy() for cache in caches]
    ends = [2, 5]
    for tokens, cache in zip((key, value), after):
        for i, slot in enumerate(slots):
            end, n = ends[i // heads], lengths[i // heads]
            kept = list(range(end - wins[i], end))
            if omni:
                hole = [] if offsets[i] == -1 else range(offsets[i], offsets[i] + wins[i])
                kept = [end - n + j for j in range(n) if j not in hole]
            for place, token in enumerate(kept if slot >= 0 else []):
                cache[(slot + place) // 5, (slot + place) % 5, 0] = tokens[token, i % heads]
    more = [slots, wins, i32(*lengths)] + ([offsets] if omni else [])
    return [key, value, *caches, *more], [key, value, *after, *more]


@pytest.mark.parametrize("op, omni", [("ReshapeAndCache", False), ("ReshapeAndCacheOmni", True)])
def test_windows_of_heads(tmp_path: Path, op: str, omni: bool):
    before, after = window_case(omni)
    parameters = None if omni else {"compressType": 1, "kvCacheCfg": 0}
    full, part = in_place(tmp_path / "right", op, parameters, before, after)
    expect(full, "PASS", "PASS")
    expect_partial(part, "PASS", "PASS")
    # Entries of the two heads exchanged.
    broken = replaced(after, _2=before[2])
    full, part = in_place(tmp_path / "wrong", op, parameters, before, broken)
    expect(full, "FAILED", "PASS")
    expect_partial(part, "FAILED", "PASS")


def test_reshape_and_cache_with_stride(tmp_path: Path):
    before, after = cache_case(2, 4)
    stored = [np.ascontiguousarray(tokens.transpose(1, 0, 2)) for tokens in before[:2]]
    # [heads, tokens, size] in memory, [tokens, heads, size] by strides.
    where = [np.array([4, 12, 1]), np.array([4, 12, 1]), np.array([0]), np.array([0])]
    before, after = ([s.reshape(3, 2, 4) for s in stored] + side[2:] + where for side in (before, after))
    full, part = in_place(tmp_path, "ReshapeAndCacheWithStride", {"compressType": 0, "kvCacheCfg": 0}, before, after)
    expect(full, "PASS", "PASS")
    expect_partial(part, "PASS", "PASS")


@pytest.mark.parametrize("nz", [False, True])
@pytest.mark.parametrize("summed", [False, True])
def test_paged_cache_load(tmp_path: Path, nz: bool, summed: bool):
    caches = [f16(4, 2, 2, 16) for _ in range(2)]
    tables, lengths = i32([3, 1], [0, 2]), [3, 2]
    picked = [(3, 0), (3, 1), (1, 0), (0, 0), (0, 1)]
    rows = [np.stack([cache[block, place] for block, place in picked]) for cache in caches]
    if nz:
        caches = [to_nz(cache, 16) for cache in caches]
        rows = [row.reshape(5, 32) for row in rows]
    contexts = i32(0, *np.cumsum(lengths)) if summed else i32(*lengths)
    names = ("intensor0", "intensor1") if nz else ()
    before = [*caches, tables, contexts, *[np.zeros_like(row) for row in rows]]
    full = check(tmp_path / "full", "PagedCacheLoadOperation", None, [*before[:4], *rows], [], before=before, nz=names)
    expect(full, "PASS", "PASS")
    broken = [rows[0], wrong(rows[1])]
    part = check(tmp_path / "part", "PagedCacheLoadOperation", {"kvCacheCfg": int(not nz)},
                 [*before[:4], *broken], broken, nz=names)  # fmt: skip
    expect(part, "PASS", "FAILED")


def test_paged_cache_load_from_a_first_token_with_room_to_spare(tmp_path: Path):
    cache = f16(4, 2, 1, 4)
    rows = cache[[2, 2, 0], [0, 1, 0]]
    room = np.concatenate([rows, f16(2, 1, 4)])
    inputs = [cache, cache, i32([1, 2, 0]), i32(3), room, room, i32(2)]
    expect_partial(check(tmp_path / "right", "PagedCacheLoadOperation", None, inputs, []), "PASS", "PASS")
    start_ignored = replaced(inputs, _6=i32(0))
    expect_partial(check(tmp_path / "wrong", "PagedCacheLoadOperation", None, start_ignored, []), "FAILED", "FAILED")


def test_block_copy(tmp_path: Path):
    caches = [f16(6, 2, 1, 4) for _ in range(2)]
    lists = [i32(0, 3), i32(1, 2, 5), i32(2, 3)]
    after = [cache.copy() for cache in caches]
    for cache in after:
        cache[[1, 2]], cache[5] = cache[0], cache[3]
    full, part = in_place(tmp_path / "right", "BlockCopy", None, [*caches, *lists], [*after, *lists])
    expect(full, "PASS", "PASS")
    expect_partial(part, "PASS", "PASS")
    full, part = in_place(tmp_path / "wrong", "BlockCopy", None, [*caches, *lists], [caches[0], after[1], *lists])
    expect(full, "FAILED", "PASS")
    expect_partial(part, "FAILED", "PASS")
    chained = [i32(0, 1), i32(1, 2), i32(1, 2)]
    rows = check(tmp_path / "chained", "BlockCopyOperation", None, [*after, *chained], [])
    assert results(rows) == ["NOT_SUPPORTED"]
    assert "needs before data" in rows[0]["reason"]


def test_scatter_elements(tmp_path: Path):
    indices, updates = i32([0, 5], [2, 2]), f16(2, 2)
    right, added = X.copy(), X.astype(np.float64)
    for i in range(2):
        for j in range(2):
            right[i, indices[i, j]] = updates[i, j]
            added[i, indices[i, j]] += updates[i, j]
    before, lists = [X, indices, updates], [indices, updates]
    full, part = in_place(tmp_path / "replace", "ScatterElementsV2", None, before, [right, *lists])
    expect(full, "PASS")
    expect_partial(part, "PASS")
    full, part = in_place(tmp_path / "wrong", "ScatterElementsV2", {"axis": 1, "reduction": 0}, before, before)
    expect(full, "FAILED")
    expect_partial(part, "FAILED")
    done = check(tmp_path / "add", "ScatterElementsV2Operation", None, [added.astype(np.float16), *lists], [],
                 before=before)  # fmt: skip
    expect(done, "PASS")
    assert "reduction add" in done[0]["note"]


# ---- Several ranks


def ranks(tmp_path: Path, op: str, parameters: list[dict], inputs: list, outputs: list) -> list[list[str]]:
    """Verdicts by rank; inputs[r] and outputs[r] are rank r's."""
    for rank, more in enumerate(parameters):
        write_operation(
            run_folder_of(tmp_path / "dump", device=rank, pid=4711 + rank),
            f"0_{op}Operation",
            {"rank": rank, "rankSize": len(parameters), "rankRoot": 0, "backend": "lccl", **more},
            inputs[rank],
            outputs[rank],
        )
    return [
        [
            f"{row['result']} {row['reason']}".strip()
            for row in opcheck(run_folder_of(tmp_path / "dump", rank, 4711 + rank), tmp_path / f"report{rank}")
        ]
        for rank in range(len(parameters))
    ]


def verdicts(found: list[list[str]]) -> list[str]:
    return [rows[0].split()[0] for rows in found]


def simple(tmp_path: Path, op: str, parameters: dict, xs: list, outputs: list) -> list[str]:
    return verdicts(ranks(tmp_path, op, [parameters] * len(xs), [[x] for x in xs], [[y] for y in outputs]))


def test_all_gather_and_broadcast(tmp_path: Path):
    xs = [f16(2, 3) for _ in range(3)]
    assert simple(tmp_path / "gather", "AllGather", {}, xs, [np.stack(xs)] * 3) == ["PASS"] * 3
    swapped = np.stack([xs[1], xs[0], xs[2]])
    assert simple(tmp_path / "swapped", "AllGather", {}, xs, [np.stack(xs), swapped, np.stack(xs)]) == [
        "PASS", "FAILED", "PASS"]  # fmt: skip
    assert simple(tmp_path / "root", "Broadcast", {"rankRoot": 2}, xs, [xs[2], xs[2], xs[0]]) == [
        "PASS", "PASS", "FAILED"]  # fmt: skip
    assert simple(tmp_path / "no root", "Broadcast", {"rankRoot": 3}, xs, xs) == ["ERROR"] * 3


def test_all_gather_v(tmp_path: Path):
    xs, counts = [f16(2), f16(3)], np.array([2, 3])
    together = np.concatenate(xs)
    places = [np.array([0, 2]), np.array([3, 0])]
    outputs = [together, np.concatenate([xs[1], xs[0]])]
    inputs = [[x, np.array([x.size]), counts, place, f16(5)] for x, place in zip(xs, places)]
    assert verdicts(ranks(tmp_path / "right", "AllGatherV", [{}, {}], inputs, [[y] for y in outputs])) == ["PASS"] * 2
    found = ranks(tmp_path / "wrong", "AllGatherV", [{}, {}], inputs, [[together], [together]])
    assert verdicts(found) == ["PASS", "FAILED"]


@pytest.mark.parametrize("reduction", ["sum", "max", "min", "prod"])
def test_reduce_scatter(tmp_path: Path, reduction: str):
    xs = [f16(4, 3) for _ in range(2)]
    reduce = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}[reduction]
    whole = reduce(*[x.astype(np.float64) for x in xs]).astype(np.float16)
    parameters = {"reduceType": reduction}
    outputs = [whole[:2], whole[2:]]
    assert simple(tmp_path / "right", "ReduceScatter", parameters, xs, outputs) == ["PASS"] * 2
    assert simple(tmp_path / "swapped", "ReduceScatter", parameters, xs, outputs[::-1]) == ["FAILED"] * 2
    assert simple(tmp_path / "kind", "ReduceScatter", {"reduceType": "mean"}, xs, outputs) == ["NOT_SUPPORTED"] * 2


def test_reduce_scatter_v_of_int8_is_exact(tmp_path: Path):
    xs = [RNG.integers(-20, 20, 5, dtype=np.int8) for _ in range(2)]
    whole = xs[0] + xs[1]
    inputs = [[x, np.array([2, 3]), np.array([0, 2]), np.array([n]), f16(n)] for x, n in zip(xs, (2, 3))]
    parameters = [{"reduceType": "sum", "recvCount": n} for n in (2, 3)]
    outputs = [[whole[:2]], [whole[2:]]]
    assert verdicts(ranks(tmp_path / "right", "ReduceScatterV", parameters, inputs, outputs)) == ["PASS"] * 2
    outputs = [[whole[:2]], [whole[2:] + np.int8(1)]]
    assert verdicts(ranks(tmp_path / "wrong", "ReduceScatterV", parameters, inputs, outputs)) == ["PASS", "FAILED"]


def test_all_to_all(tmp_path: Path):
    xs = [f16(4, 6) for _ in range(2)]
    rows = [np.concatenate([x[r * 2 : r * 2 + 2] for x in xs]) for r in range(2)]
    columns = [np.concatenate([x[:, r * 3 : r * 3 + 3] for x in xs]) for r in range(2)]
    assert simple(tmp_path / "rows", "AllToAll", {}, xs, rows) == ["PASS"] * 2
    assert simple(tmp_path / "columns", "AllToAll", {}, xs, columns) == ["PASS"] * 2
    assert simple(tmp_path / "said", "AllToAll", {"transpose": True}, xs, columns) == ["PASS"] * 2
    assert simple(tmp_path / "wrong", "AllToAll", {"transpose": False}, xs, rows[::-1]) == ["FAILED"] * 2


@pytest.mark.parametrize("version", ["AllToAllV", "AllToAllVV2"])
def test_all_to_all_v(tmp_path: Path, version: str):
    # Rank 0 sends 1 element to itself and 2 to rank 1; rank 1 sends 3 and 1.
    xs = [f16(3), f16(4)]
    counts = [
        {"sendCounts": [1, 2], "sdispls": [0, 1], "recvCounts": [1, 3], "rdispls": [3, 0]},
        {"sendCounts": [3, 1], "sdispls": [1, 0], "recvCounts": [2, 1], "rdispls": [0, 2]},
    ]
    outputs = [np.concatenate([xs[1][1:], xs[0][:1]]), np.concatenate([xs[0][1:], xs[1][:1]])]
    inputs = [[x] for x in xs]
    parameters = counts
    if version == "AllToAllVV2":
        inputs = [[x, *[np.array(c) for c in count.values()], f16(3)] for x, count in zip(xs, counts)]
        parameters = [{}, {}]
    found = ranks(tmp_path / "right", version, parameters, inputs, [[y] for y in outputs])
    assert verdicts(found) == ["PASS"] * 2, found
    found = ranks(tmp_path / "wrong", version, parameters, inputs, [[outputs[0]], [outputs[1][::-1].copy()]])
    assert verdicts(found) == ["PASS", "FAILED"], found


def test_ranks_that_do_not_agree_are_errors(tmp_path: Path):
    counts = {"sendCounts": [1, 2], "sdispls": [0, 1], "recvCounts": [1, 3], "rdispls": [0, 1]}
    found = ranks(tmp_path, "AllToAllV", [counts, counts], [[f16(3)], [f16(3)]], [[f16(4)], [f16(4)]])
    assert verdicts(found) == ["ERROR"] * 2
    assert "rank 1 sends 1 elements, rank 0 expects 3" in found[0][0]
