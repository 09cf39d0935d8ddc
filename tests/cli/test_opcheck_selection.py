# SPDX-License-Identifier: Apache-2.0
"""`assay opcheck` on reductions, sorting, indexing, sampling and experts: right outputs pass, wrong ones fail."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch
from opcheck_dump import check, from_bf16, to_bf16

RNG = np.random.default_rng(11)


def normal(*shape, scale=2.0):
    return RNG.normal(size=shape) * scale


def results(rows):
    return [row["result"] for row in rows]


def stored(values, dtype):
    return to_bf16(values) if dtype == "bfloat16" else np.asarray(values).astype(dtype)


def loaded(tensor):
    values = from_bf16(tensor) if isinstance(tensor, tuple) else np.asarray(tensor)
    return values.astype(np.float64)


def libc_fractions(seed, count):
    libc = ctypes.CDLL("libc.so.6")
    libc.srand(seed)
    return [libc.rand() / 0x7FFFFFFF for _ in range(count)]


def wrong(array, place, by=1):
    array = array.copy()
    array.flat[place] += array.dtype.type(by)
    return array


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("exclusive", "reverse"), [(False, False), (True, False), (False, True), (True, True)])
def test_cumsum(tmp_path, dtype, exclusive, reverse):
    x = stored(normal(3, 40), dtype)
    wide = loaded(x)[:, ::-1] if reverse else loaded(x)
    y = np.cumsum(wide, -1) - (wide if exclusive else 0)
    y = y[:, ::-1] if reverse else y
    parameters = {"axes": [1], "exclusive": exclusive, "reverse": reverse}
    assert results(check(tmp_path / "right", "CumsumOperation", parameters, [x], [stored(y, dtype)])) == ["PASS"]
    y = y.copy()
    y[1, 20] += 1
    assert results(check(tmp_path / "wrong", "CumsumOperation", parameters, [x], [stored(y, dtype)])) == ["FAILED"]
    other = {"axes": [0], "exclusive": exclusive, "reverse": reverse}
    assert results(check(tmp_path / "axis", "CumsumOperation", other, [x], [stored(y, dtype)])) == ["FAILED"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("number", "function"), [(1, np.max), (2, np.min), (3, np.sum)])
def test_reduce(tmp_path, dtype, number, function):
    x = stored(normal(3, 4, 5), dtype)
    y = stored(function(loaded(x), axis=(0, 2)), dtype)
    parameters = {"reduceType": number, "axis": [0, 2]}
    assert results(check(tmp_path / "right", "ReduceOperation", parameters, [x], [y])) == ["PASS"]
    other = {"reduceType": number % 3 + 1, "axis": [0, 2]}
    assert results(check(tmp_path / "other", "ReduceOperation", other, [x], [y])) == ["FAILED"]


def test_a_maximum_must_be_met_exactly(tmp_path):
    x = normal(3, 50).astype(np.float16)
    y = x.max(-1)
    y[1] = np.nextafter(y[1], np.float16(0))
    assert results(check(tmp_path, "ReduceOperation", {"reduceType": 1, "axis": [-1]}, [x], [y])) == ["FAILED"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("axes", [[-1], [0], [1, 2]])
def test_softmax(tmp_path, dtype, axes):
    x = stored(normal(3, 6, 7), dtype)
    e = np.exp(loaded(x) - loaded(x).max())
    y = e / e.sum(axis=tuple(axes), keepdims=True)
    parameters = {"axes": axes}
    assert results(check(tmp_path / "right", "SoftmaxOperation", parameters, [x], [stored(y, dtype)])) == ["PASS"]
    wider = e / e.sum()
    assert results(check(tmp_path / "wrong", "SoftmaxOperation", parameters, [x], [stored(wider, dtype)])) == ["FAILED"]


def test_sort_accepts_any_order_of_equal_values(tmp_path):
    x = np.array([[1, 5, 5, 2, 0], [3, 3, 3, -1, 9]], dtype=np.float16)
    values = np.array([[5, 5, 2], [9, 3, 3]], dtype=np.float16)
    indices = np.array([[2, 1, 3], [4, 2, 0]], dtype=np.int32)
    parameters = {"num": [3]}
    rows = check(tmp_path / "right", "SortOperation", parameters, [x], [values, indices])
    assert results(rows) == ["PASS", "PASS"]
    assert [row["dtype"] for row in rows] == [str(values.dtype), str(indices.dtype)]
    # An index that points at another value, one that is repeated, one that points nowhere.
    for name, place, index in (("value", 0, 3), ("repeated", 0, 1), ("outside", 5, 7)):
        off = indices.copy()
        off.flat[place] = index
        rows = check(tmp_path / name, "SortOperation", parameters, [x], [values, off])
        assert results(rows) == ["PASS", "FAILED"], name
    rows = check(tmp_path / "wrong", "SortOperation", parameters, [x], [wrong(values, 2), indices])
    assert results(rows) == ["FAILED", "PASS"]


def test_sort_of_a_vocabulary(tmp_path):
    x = to_bf16(normal(2, 5000))
    values, indices = torch.topk(torch.from_numpy(loaded(x)), 50)
    outputs = [to_bf16(values.numpy()), indices.numpy().astype(np.int32)]
    assert results(check(tmp_path, "SortOperation", {"num": [50]}, [x], outputs)) == ["PASS", "PASS"]


def test_nonzero(tmp_path):
    x = RNG.integers(0, 2, (4, 5)).astype(np.int64)
    found = np.stack(np.nonzero(x))
    indices = np.zeros((2, x.size), dtype=np.int64)
    indices[:, : found.shape[1]] = found
    count = np.array([found.shape[1]], dtype=np.int64)
    assert results(check(tmp_path / "right", "NonzeroOperation", None, [x], [indices, count])) == ["PASS", "PASS"]
    outputs = [wrong(indices, 3), wrong(count, 0)]
    assert results(check(tmp_path / "wrong", "NonzeroOperation", None, [x], outputs)) == ["FAILED", "FAILED"]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_onehot(tmp_path, dtype):
    x = RNG.integers(0, 5, (3, 4)).astype(dtype)
    one, zero = np.array([3], dtype=dtype), np.array([1], dtype=dtype)
    y = np.where(x[..., None] == np.arange(5), 3, 1).astype(dtype)
    inputs = [x, one, zero]
    for axis in (-1, 0):  # kernels put the depth last whatever the parameter says
        rows = check(tmp_path / str(axis), "OnehotOperation", {"axis": axis, "depth": 5}, inputs, [y])
        assert results(rows) == ["PASS"], rows
    front = np.moveaxis(y, -1, 0).copy()
    rows = check(tmp_path / "front", "OnehotOperation", {"axis": 0, "depth": 5}, inputs, [front])
    assert results(rows) == ["PASS"]
    rows = check(tmp_path / "wrong", "OnehotOperation", {"axis": -1, "depth": 5}, inputs, [wrong(y, 7)])
    assert results(rows) == ["FAILED"]
    rows = check(tmp_path / "depth", "OnehotOperation", {"axis": -1, "depth": 6}, inputs, [y])
    assert results(rows) == ["ERROR"]


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("kind", [1, 2])
def test_index_add(tmp_path, kind, listed):
    var = normal(6, 8).astype(np.float16)
    indices = np.array([4, 1, 4, 0], dtype=np.int32)
    updates = normal(4, 8).astype(np.float16)
    last = np.array([0.5], dtype=np.float16) if kind == 1 else np.array([3], dtype=np.int32)
    golden = torch.from_numpy(loaded(var))
    if kind == 1:
        golden.index_add_(0, torch.from_numpy(indices), torch.from_numpy(loaded(updates)), alpha=0.5)
    else:
        golden.index_add_(0, torch.from_numpy(indices[:3]), torch.from_numpy(loaded(updates)[:3]))
    after = golden.numpy().astype(np.float16)
    parameters = {"indexType": kind, "axis": 0}
    before = [var, indices, updates, last]

    def run(name, result, before_inputs=before):
        outputs = [result] if listed else []
        inputs = [result, indices, updates, last]
        return check(tmp_path / name, "IndexAddOperation", parameters, inputs, outputs, before=before_inputs)

    assert results(run("right", after)) == ["PASS"]
    assert results(run("wrong", wrong(after, 12))) == ["FAILED"]
    assert results(run("untouched", var)) == ["FAILED"]
    rows = run("after", after, None)
    assert results(rows) == ["NOT_SUPPORTED"]
    assert "needs before data" in rows[0]["reason"]


def gating_golden(experts, numbers, per_token, count, device):
    order = np.argsort(experts, kind="stable")
    original, token = numbers[order], numbers[order] // per_token
    counts = np.bincount(experts, minlength=count)
    if not device:
        return [token, np.cumsum(counts), original]
    kept = np.isin(experts[order], device)
    valid = int(kept.sum())
    pad = len(experts) - valid
    return [
        np.pad(token[kept], (0, pad)),
        np.cumsum(counts[sorted(device)]),
        np.pad(original[kept], (0, pad)),
        np.array([valid]),
    ]


@pytest.mark.parametrize("sums", [np.int32, np.int64])
@pytest.mark.parametrize("device", [[], [5, 1]])
def test_gating(tmp_path, device, sums):
    experts = RNG.integers(0, 8, 24).astype(np.int32)
    numbers = np.arange(24, dtype=np.int32)
    outputs = [part.astype(np.int32) for part in gating_golden(experts, numbers, 2, 8, device)]
    outputs[1] = outputs[1].astype(sums)
    parameters = {"topkExpertNum": 2, "cumSumNum": 8}
    if device:
        parameters["deviceExpert"] = device
    rows = check(tmp_path / "right", "GatingOperation", parameters, [experts, numbers], outputs)
    assert results(rows) == ["PASS"] * len(outputs)
    rows = check(tmp_path / "wrong", "GatingOperation", parameters, [experts, numbers], [wrong(o, 0) for o in outputs])
    assert results(rows) == ["FAILED"] * len(outputs)


def test_gating_without_sums(tmp_path):
    experts = RNG.integers(0, 8, 12).astype(np.int32)
    numbers = np.arange(12, dtype=np.int32)
    zeros = np.zeros(12, dtype=np.int32)
    original = numbers[np.argsort(experts, kind="stable")]
    parameters = {"topkExpertNum": 2, "cumSumNum": 0}
    rows = check(tmp_path, "GatingOperation", parameters, [experts, numbers], [zeros, zeros[:1], original])
    assert results(rows) == ["PASS"] * 3


def probabilities(batch, values, dtype="float16"):
    x = normal(batch, values)
    e = np.exp(x - x.max(-1, keepdims=True))
    return stored(e / e.sum(-1, keepdims=True), dtype)


def test_multinomial(tmp_path):
    probs = probabilities(4, 30)
    fractions = libc_fractions(42, 6)
    sums = np.cumsum(probs, axis=-1, dtype=np.float16).astype(np.float64)
    y = np.array([[int(np.argmax(row > r)) for r in fractions] for row in sums], dtype=np.int32)
    parameters = {"numSamples": 6, "randSeed": 42}
    assert results(check(tmp_path / "right", "MultinomialOperation", parameters, [probs], [y])) == ["PASS"]
    far = y.copy()
    far[2, 3] = (far[2, 3] + 15) % 30
    assert results(check(tmp_path / "wrong", "MultinomialOperation", parameters, [probs], [far])) == ["FAILED"]
    other = {"numSamples": 6, "randSeed": 43}
    assert results(check(tmp_path / "seed", "MultinomialOperation", other, [probs], [y])) == ["FAILED"]


class Nucleus:
    """The sampler in NumPy, with exact sums."""

    def __init__(self, probs, top_k, top_p):
        p = loaded(probs)
        self.order = np.argsort(-p, axis=-1, kind="stable")
        self.p = np.take_along_axis(p, self.order, -1)
        masked = self.p.copy()
        if top_k is not None:
            masked[masked < np.take_along_axis(self.p, top_k.astype(np.int64), -1)] = 0
        self.masked, self.c, self.top_p = masked, np.cumsum(masked, -1), loaded(top_p).reshape(-1, 1)
        self.last = np.maximum((self.c < self.top_p).sum(-1, keepdims=True) - 1, 0)

    def multinomial(self, fractions, inclusive=False):
        v = np.take_along_axis(self.c, self.last, -1) * np.reshape(fractions, (-1, 1))
        return ((self.c <= v) if inclusive else (self.c < v)).sum(-1, keepdims=True)

    def exponential(self, noise):
        kept = np.where(self.c > self.top_p, 0, self.masked)
        kept_mask = (self.c <= self.top_p) & (self.masked > 0)
        kept_mask[:, 0] = True
        self.last = kept_mask.sum(-1, keepdims=True) - 1
        return np.argmax(kept / loaded(noise), -1)[:, None]

    def outputs(self, place, dtype):
        indices = np.take_along_axis(self.order, place, -1).astype(np.int32)
        return [indices, stored(np.take_along_axis(self.p, place, -1), dtype)]

    def log_probs(self, size):
        logs = np.log(self.p[:, :size] / np.take_along_axis(self.c, self.last, -1))
        return np.where(np.arange(size) <= self.last, logs, -9999).astype(np.float32)


def moved(indices, values):
    """Indices of quite other places."""
    return ((indices + values // 2) % values).astype(indices.dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4])
def test_topk_topp_sampling(tmp_path, kind, dtype):
    batch, values = 4, 50
    probs = probabilities(batch, values, dtype)
    top_p = stored(np.full((batch, 1), 0.8), dtype)
    top_k = np.array([[10], [30], [49], [20]], dtype=np.int32)
    parameters = {"topkToppSamplingType": kind}
    if kind == 0:
        parameters.update({"topk": 40, "randSeed": 7})
        nucleus = Nucleus(probs, None, top_p)
        inputs, place = [probs, top_p], nucleus.multinomial(libc_fractions(7, batch), inclusive=True)
    elif kind in (1, 3):
        seeds = [1, 42, 1234, 5]
        fractions = [libc_fractions(seed, 1)[0] for seed in seeds]
        nucleus = Nucleus(probs, top_k, top_p)
        inputs, place = [probs, top_k, top_p], nucleus.multinomial(fractions)
        if kind == 1:
            parameters["randSeeds"] = seeds
        else:
            inputs.append(np.array(fractions, dtype=np.float32).reshape(-1, 1))
    else:
        noise = stored(RNG.exponential(size=(batch, values)) + 0.01, dtype)
        nucleus = Nucleus(probs, top_k, top_p)
        inputs, place = [probs, top_k, top_p, noise], nucleus.exponential(noise)
    outputs = nucleus.outputs(place, dtype)
    if kind in (3, 4):
        parameters["logProbsSize"] = 20
        outputs.append(nucleus.log_probs(20))
    rows = check(tmp_path / "right", "TopkToppSamplingOperation", parameters, inputs, outputs)
    assert results(rows) == ["PASS"] * len(outputs), rows
    # Other indices with the old probabilities: neither fits.
    off = [moved(outputs[0], values), outputs[1]] + [part * np.float32(1.1) for part in outputs[2:]]
    rows = check(tmp_path / "wrong", "TopkToppSamplingOperation", parameters, inputs, off)
    assert results(rows) == ["FAILED"] * len(outputs)


def test_a_sum_close_to_its_target_is_a_tie(tmp_path):
    # Sums 0.5, 0.75, 1; r = 0.49993 of a nucleus that keeps all three: 0.5 lies within 2^-10.
    probs = np.array([[0.5, 0.25, 0.25]], dtype=np.float16)
    inputs = [
        probs,
        np.array([[2]], dtype=np.int32),
        np.array([[1.0]], dtype=np.float16),
        np.array([[0.66657]], dtype=np.float32),
    ]
    parameters = {"topkToppSamplingType": 3, "logProbsSize": 2}
    logs = np.log(np.array([[0.5 / 0.75, 0.25 / 0.75]])).astype(np.float32)
    for name, index, expected in (("ours", 0, "PASS"), ("tie", 1, "PASS"), ("far", 2, "FAILED")):
        outputs = [np.array([[index]], dtype=np.int32), probs[:, index : index + 1].copy(), logs]
        row = check(tmp_path / name, "TopkToppSamplingOperation", parameters, inputs, outputs)[0]
        assert row["result"] == expected, (name, row)
        assert ("tie" in (row["note"] or "")) == (name == "tie")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_group_topk(tmp_path, dtype):
    x = stored(RNG.uniform(size=(5, 16)), dtype)
    numbers = np.arange(16, dtype=np.int32)
    for name, parameters, largest in (
        ("max", {"groupNum": 4, "k": 2, "groupMultiFlag": 0, "n": 3}, 1),
        ("sum", {"groupNum": 4, "k": 2, "groupMultiFlag": 1, "n": 2}, 2),
    ):
        groups = loaded(x).reshape(5, 4, 4).copy()
        scores = np.sort(groups, -1)[..., ::-1][..., :largest].sum(-1)
        for token in range(5):
            groups[token, np.argsort(-scores[token], kind="stable")[2:]] = 0
        y = stored(groups.reshape(5, 16), dtype)
        inputs = [x, numbers]
        assert results(check(tmp_path / name, "GroupTopkOperation", parameters, inputs, [y])) == ["PASS"]
        more = dict(parameters, k=3)
        assert results(check(tmp_path / f"{name} k", "GroupTopkOperation", more, inputs, [y])) == ["FAILED"]
        rows = check(tmp_path / f"{name} in place", "GroupTopkOperation", parameters, [y, numbers], [y])
        assert results(rows) == ["NOT_SUPPORTED"]
        rows = check(
            tmp_path / f"{name} before", "GroupTopkOperation", parameters, [y, numbers], [y], before=[x, numbers]
        )
        assert results(rows) == ["PASS"]


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("mapping", [True, False])
def test_fused_add_topk_div(tmp_path, normalise, mapping):
    tokens, count, k = 6, 16, 4
    x, bias = normal(tokens, count).astype(np.float32), normal(count).astype(np.float32)
    gate = 1 / (1 + np.exp(-loaded(x)))
    scores = (gate + loaded(bias)).reshape(tokens, 4, 4)
    best = np.argsort(-np.sort(scores, -1)[..., 2:].sum(-1), axis=-1, kind="stable")
    for token in range(tokens):
        scores[token, best[token, 2:]] = 0
    experts = np.argsort(-scores.reshape(tokens, count), axis=-1, kind="stable")[:, :k]
    weights = np.take_along_axis(gate, experts, -1)
    if normalise:
        weights = weights / weights.sum(-1, keepdims=True) * 2.5
    parameters = {"groupNum": 4, "groupTopk": 2, "n": 2, "k": k, "activationType": 8, "isNorm": normalise, "scale": 2.5}
    inputs = [x, bias]
    if mapping:
        parameters["enableExpertMapping"] = True
        copies = RNG.integers(1, 4, count).astype(np.int32)
        table = RNG.integers(0, 64, (count, 4)).astype(np.int32)
        inputs += [copies, table]
        experts = np.array([[table[e, t % copies[e]] for e in row] for t, row in enumerate(experts)])
    outputs = [weights.astype(np.float32), experts.astype(np.int32)]
    rows = check(tmp_path / "right", "FusedAddTopkDivOperation", parameters, inputs, outputs)
    assert results(rows) == ["PASS", "PASS"], rows
    off = outputs[1].copy()
    off[2, 0], off[2, 3] = off[2, 3] + 1, off[2, 0]
    rows = check(tmp_path / "wrong", "FusedAddTopkDivOperation", parameters, inputs, [wrong(outputs[0], 5), off])
    assert results(rows) == ["FAILED", "FAILED"]


def test_experts_with_nearly_equal_scores_may_change_places(tmp_path):
    gate = 1 / (1 + np.exp(-np.array([0.0, 1.0, -4.0, -5.0])))
    x = np.array([[0.0, 1.0, -4.0, -5.0]], dtype=np.float32)
    bias = np.array([gate[1] - gate[0], 0, 0, 0], dtype=np.float32)  # 0 and 1 score the same but for rounding
    parameters = {"groupNum": 1, "groupTopk": 1, "n": 1, "k": 2, "activationType": 8, "isNorm": False}
    for name, order, expected in (
        ("one", [0, 1], ["PASS", "PASS"]),
        ("other", [1, 0], ["PASS", "PASS"]),
        ("far", [0, 2], ["FAILED", "FAILED"]),
    ):
        outputs = [gate[None, order].astype(np.float32), np.array([order], dtype=np.int32)]
        rows = check(tmp_path / name, "FusedAddTopkDivOperation", parameters, [x, bias], outputs)
        assert results(rows) == expected, (name, rows)


X = np.ones((2, 6), dtype=np.float16)
I4 = np.arange(4, dtype=np.int32)
BROKEN = [
    ("CumsumOperation", {}, [X], [X], "ERROR", "axes lists no axis"),
    ("CumsumOperation", {"axes": [0, 1]}, [X], [X], "NOT_SUPPORTED", "2 axes"),
    ("CumsumOperation", {"axes": [5]}, [X], [X], "ERROR", "axis 5"),
    ("ReduceOperation", {"reduceType": 4, "axis": [0]}, [X], [X[0]], "NOT_SUPPORTED", "reduceType 4"),
    ("ReduceOperation", {"reduceType": 1, "axis": [0, 0]}, [X], [X[0]], "ERROR", "listed twice"),
    ("ReduceOperation", {"reduceType": 1, "axis": [1]}, [X[:, :0]], [X[:, 0]], "NOT_SUPPORTED", "no elements"),
    ("SoftmaxOperation", {"axes": [0, 2]}, [X[None]], [X[None]], "ERROR", "do not follow each other"),
    ("SoftmaxOperation", {"axes": "all"}, [X], [X], "ERROR", "axes"),
    ("SortOperation", {"num": [9]}, [X], [X, X.astype(np.int32)], "ERROR", "the 9 largest of 6"),
    ("SortOperation", {}, [X], [X, X.astype(np.int32)], "ERROR", "num lists 0"),
    ("SortOperation", {"num": [1]}, [X], [X[:, :1]], "ERROR", "1 output in the dump, 2 expected"),
    ("NonzeroOperation", None, [], [X, X], "ERROR", "0 inputs"),
    ("OnehotOperation", {"axis": -1, "depth": 3}, [I4, I4, I4[:1]], [np.zeros((4, 3), np.int32)], "ERROR", "one value"),
    ("IndexAddOperation", {"indexType": 3}, [X, I4, X, X], [X], "NOT_SUPPORTED", "indexType 3"),
    ("GatingOperation", {"topkExpertNum": 1, "cumSumNum": 3}, [I4, I4], [I4, I4, I4], "ERROR", "expert 3 of 3"),
    ("GatingOperation", {"topkExpertNum": 0, "cumSumNum": 4}, [I4, I4], [I4, I4, I4], "ERROR", "topkExpertNum 0"),
    ("GatingOperation", {"topkExpertNum": 1, "cumSumNum": 1 << 50}, [I4, I4], [I4] * 3, "ERROR", "experts"),
    ("GatingOperation", {"deviceExpert": [1]}, [I4, I4], [I4] * 4, "NOT_SUPPORTED", "no public golden"),
    ("MultinomialOperation", {"numSamples": 65}, [X], [X.astype(np.int32)], "NOT_SUPPORTED", "65 samples"),
    ("MultinomialOperation", {"numSamples": 0}, [X], [X.astype(np.int32)], "ERROR", "numSamples is 0"),
    ("TopkToppSamplingOperation", {"topkToppSamplingType": 5}, [X], [X], "NOT_SUPPORTED", "topkToppSamplingType 5"),
    (
        "TopkToppSamplingOperation",
        {"topkToppSamplingType": 1, "randSeeds": [1]},
        [X, I4[:2, None], X[:, :1]],
        [I4[:2, None], X[:, :1]],
        "ERROR",
        "randSeeds lists 1 seeds for 2 rows",
    ),
    (
        "TopkToppSamplingOperation",
        {"topkToppSamplingType": 1, "randSeeds": [1, 2]},
        [X, I4[:2, None] + 6, X[:, :1]],
        [I4[:2, None], X[:, :1]],
        "ERROR",
        "points outside rows of 6",
    ),
    ("GroupTopkOperation", {"groupNum": 4, "k": 1}, [X], [X + 1], "ERROR", "4 groups of 6 experts"),
    ("GroupTopkOperation", {"groupNum": 2, "groupMultiFlag": 2}, [X], [X], "NOT_SUPPORTED", "groupMultiFlag 2"),
    ("FusedAddTopkDivOperation", {"activationType": 1}, [X, X], [X, X], "NOT_SUPPORTED", "activationType 1"),
]


@pytest.mark.parametrize(("op_type", "parameters", "inputs", "outputs", "result", "reason"), BROKEN)
def test_what_cannot_be_computed_is_said(tmp_path, op_type, parameters, inputs, outputs, result, reason):
    rows = check(tmp_path, op_type, parameters, inputs, outputs)
    assert set(results(rows)) == {result}, rows
    assert reason in rows[0]["reason"]
