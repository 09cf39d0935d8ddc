# SPDX-License-Identifier: Apache-2.0
"""`assay opcheck` on products: right outputs pass, wrong ones fail, the rest says why."""

from __future__ import annotations

import numpy as np
import pytest
from opcheck_dump import check, from_bf16, opcheck, run_folder_of, to_bf16, write_operation

M, K, N = 5, 48, 32


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def floats(shape, seed: int) -> np.ndarray:
    return generator(seed).standard_normal(shape).astype(np.float16)


def int8(shape, seed: int) -> np.ndarray:
    return generator(seed).integers(-128, 128, shape).astype(np.int8)


def wide(tensor) -> np.ndarray:
    return np.asarray(from_bf16(tensor) if isinstance(tensor, tuple) else tensor).astype(np.float64)


def to_nz(matrix: np.ndarray) -> np.ndarray:
    """[rows, columns] as [1, columns / c0, rows, c0], filled up with zeros."""
    c0 = 32 if matrix.dtype == np.int8 else 16
    rows, columns = -(-matrix.shape[0] // 16) * 16, -(-matrix.shape[1] // c0) * c0
    padded = np.zeros((rows, columns), matrix.dtype)
    padded[: matrix.shape[0], : matrix.shape[1]] = matrix
    return padded.reshape(1, rows, columns // c0, c0).transpose(0, 2, 1, 3).copy()


def result_of(rows: list) -> str:
    assert len(rows) == 1, rows
    return rows[0]["result"]


def passes_and_fails(tmp_path, op_type, parameters, inputs, output, variant=None, **more) -> dict:
    """The right output passes; with one element moved by 3 % and by at least 1 / 16 it fails."""
    rows = check(tmp_path / "right", op_type, parameters, inputs, [output], **more)
    assert [row["result"] for row in rows] == ["PASS"], rows
    if variant is not None:
        assert rows[0]["variant"] == variant
    array, name = output if isinstance(output, tuple) else (output, None)
    place = slice(array.size // 2, array.size // 2 + 1)
    if name == "bfloat16":
        value = from_bf16((array.reshape(-1)[place], name))
        wrong = array.copy()
        wrong.reshape(-1)[place] = to_bf16(value * 1.06 + np.copysign(0.125, value))[0]
        wrong = (wrong, name)
    else:
        wrong = array.copy()
        value = wrong.reshape(-1)[place].astype(np.float64)
        wrong.reshape(-1)[place] = value * 1.03 + np.copysign(0.0625, value)
    failed = check(tmp_path / "wrong", op_type, parameters, inputs, [wrong], **more)
    assert result_of(failed) == "FAILED", failed
    assert failed[0]["reason"]
    return rows[0]


def refused(tmp_path, op_type, parameters, inputs, outputs, result, text, **more) -> None:
    rows = check(tmp_path, op_type, parameters, inputs, outputs, **more)
    assert result_of(rows) == result, rows
    assert text in rows[0]["reason"], rows[0]["reason"]


LINEAR = {
    "transposeA": False,
    "transposeB": True,
    "hasBias": False,
    "outDataType": -1,
    "enAccum": False,
    "matmulType": 0,
    "quantMode": 0,
}
X, W, BIAS = floats((M, K), 1), floats((N, K), 2), floats((N,), 3)
PRODUCT = wide(X) @ wide(W).T
X8, W8 = int8((M, K), 4), int8((N, K), 5)
PRODUCT8 = X8.astype(np.int64) @ W8.astype(np.int64).T
BIAS8 = generator(6).integers(-5000, 5000, N).astype(np.int32)
SCALE = generator(7).uniform(1e-4, 1e-3, N).astype(np.float32)
ROW_SCALE = generator(8).uniform(0.5, 2, M).astype(np.float32)


def half(values) -> np.ndarray:
    return np.asarray(values).astype(np.float16)


def bits(scale: np.ndarray) -> np.ndarray:
    """float32 in the low half of 64-bit integers."""
    return scale.view(np.uint32).astype(np.uint64)


# ---- Linear -----------------------------------------------------------------------------------


@pytest.mark.parametrize("transpose_x", [False, True])
@pytest.mark.parametrize("transpose_w", [False, True])
def test_linear_of_floats(tmp_path, transpose_x, transpose_w):
    parameters = {**LINEAR, "transposeA": transpose_x, "transposeB": transpose_w}
    inputs = [X.T.copy() if transpose_x else X, W if transpose_w else W.T.copy()]
    passes_and_fails(tmp_path, "LinearOperation", parameters, inputs, half(PRODUCT))


def test_linear_with_bias(tmp_path):
    parameters = {**LINEAR, "hasBias": True}
    passes_and_fails(tmp_path, "LinearOperation", parameters, [X, W, BIAS], half(PRODUCT + wide(BIAS)), "float, bias")
    assert (
        result_of(check(tmp_path / "dropped", "LinearOperation", parameters, [X, W, BIAS], [half(PRODUCT)])) == "FAILED"
    )


def test_linear_without_a_parameter_file_counts_its_inputs(tmp_path):
    for inputs, output in (([X, W], PRODUCT), ([X, W, BIAS], PRODUCT + wide(BIAS))):
        place = tmp_path / str(len(inputs))
        assert result_of(check(place, "LinearOperation", None, inputs, [half(output)])) == "PASS"


def test_a_bf16_bias_is_added_to_the_rounded_product(tmp_path):
    x, w, bias = to_bf16(X), to_bf16(W), to_bf16(BIAS)
    product = wide(to_bf16(wide(x) @ wide(w).T))
    output = to_bf16(product + wide(bias))
    passes_and_fails(tmp_path, "LinearOperation", {**LINEAR, "hasBias": True}, [x, w, bias], output)
    # A bias that cancels the product leaves only what the rounding left: nothing of it, with equal rows.
    x = to_bf16(np.repeat(from_bf16(x)[:1], M, axis=0))
    product = to_bf16(wide(x) @ wide(w).T)
    bias = to_bf16(-wide(product)[0])
    row = check(tmp_path / "cancelled", "LinearOperation", {**LINEAR, "hasBias": True}, [x, w, bias],
                [to_bf16(np.zeros((M, N)))])  # fmt: skip
    assert result_of(row) == "PASS"


def test_linear_of_batches_and_of_leading_dimensions(tmp_path):
    x = floats((3, M, K), 10)
    w, bias = floats((3, N, K), 11), floats((3, N), 12)
    expected = wide(x) @ wide(w).transpose(0, 2, 1)
    passes_and_fails(tmp_path / "batches", "LinearOperation", LINEAR, [x, w], half(expected))
    with_bias = half(expected + wide(bias)[:, None])
    passes_and_fails(tmp_path / "bias", "LinearOperation", {**LINEAR, "hasBias": True}, [x, w, bias], with_bias)
    passes_and_fails(tmp_path / "one", "LinearOperation", LINEAR, [x, W], half(wide(x) @ wide(W).T))


@pytest.mark.parametrize("transpose_w", [False, True])
@pytest.mark.parametrize("columns", [N, 25])
def test_nz_weights_are_cropped(tmp_path, transpose_w, columns):
    w = W[:columns]
    expected = half(PRODUCT[:, :columns])
    parameters = {**LINEAR, "transposeB": transpose_w}
    inputs = [X, to_nz(w if transpose_w else w.T.copy())]
    row = passes_and_fails(tmp_path, "LinearOperation", parameters, inputs, expected, nz=("intensor1",))
    assert row["variant"] == "float, NZ weight"
    assert "300I Duo" in row["note"]


def test_linear_accumulates_in_place(tmp_path):
    accum = generator(13).standard_normal((M, N)).astype(np.float32)
    after = (accum.astype(np.float64) + PRODUCT).astype(np.float32)
    parameters = {**LINEAR, "enAccum": True}
    before = [X, W, accum]
    passes_and_fails(tmp_path / "out", "LinearOperation", parameters, [X, W, after], after, before=before)
    rows = check(tmp_path / "in place", "LinearOperation", parameters, [X, W, after], [], before=before)
    assert result_of(rows) == "PASS"
    rows = check(tmp_path / "forgotten", "LinearOperation", parameters, [X, W, accum], [], before=before)
    assert result_of(rows) == "FAILED"
    refused(
        tmp_path / "after only",
        "LinearOperation",
        parameters,
        [X, W, after],
        [after],
        "NOT_SUPPORTED",
        "needs before data",
    )


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("to_bfloat16", [False, True])
def test_linear_of_int8(tmp_path, with_bias, to_bfloat16):
    parameters = {**LINEAR, "hasBias": with_bias, "outDataType": 27 if to_bfloat16 else 1}
    expected = (PRODUCT8 + (BIAS8 if with_bias else 0)) * SCALE.astype(np.float64)
    inputs = [X8, W8, *([BIAS8] if with_bias else []), SCALE if to_bfloat16 else bits(SCALE)]
    passes_and_fails(
        tmp_path, "LinearOperation", parameters, inputs, to_bf16(expected) if to_bfloat16 else half(expected)
    )
    if not to_bfloat16:  # the same scale as int64, and a float32 as the oldest chips have it
        for number, scale in enumerate((bits(SCALE).view(np.int64), SCALE)):
            inputs[-1] = scale
            rows = check(tmp_path / f"scale{number}", "LinearOperation", parameters, inputs, [half(expected)])
            assert result_of(rows) == "PASS"


def test_a_dropped_scale_fails(tmp_path):
    parameters = {**LINEAR, "outDataType": 1}
    wrong = half(PRODUCT8 * np.float64(SCALE[0]))
    assert result_of(check(tmp_path, "LinearOperation", parameters, [X8, W8, bits(SCALE)], [wrong])) == "FAILED"


def test_linear_with_scales_of_tokens(tmp_path):
    parameters = {**LINEAR, "outDataType": 1, "quantMode": 2}
    expected = half(PRODUCT8 * SCALE.astype(np.float64) * ROW_SCALE.astype(np.float64)[:, None])
    passes_and_fails(tmp_path, "LinearOperation", parameters, [X8, W8, SCALE, ROW_SCALE], expected,
                     "int8, dequantised, per token")  # fmt: skip


def test_an_int8_nz_weight(tmp_path):
    parameters = {**LINEAR, "outDataType": 1}
    expected = half(PRODUCT8 * SCALE.astype(np.float64))
    passes_and_fails(tmp_path, "LinearOperation", parameters, [X8, to_nz(W8), bits(SCALE)], expected, nz=("intensor1",))


@pytest.mark.parametrize("shape, formula", [((K, N), "mbk,kn->mbn"), ((3, K, N), "mbk,bkn->mbn")])
def test_linear_per_batch(tmp_path, shape, formula):
    x, w, bias = floats((M, 3, K), 14), floats(shape, 15), floats((3, N), 16)
    expected = np.einsum(formula, wide(x), wide(w))
    parameters = {**LINEAR, "transposeB": False, "matmulType": 1}
    passes_and_fails(tmp_path / "plain", "LinearOperation", parameters, [x, w], half(expected), "float, EIN_SUM")
    with_bias = half(expected + wide(bias))
    passes_and_fails(tmp_path / "bias", "LinearOperation", {**parameters, "hasBias": True}, [x, w, bias], with_bias)


def test_linear_type_of_older_files(tmp_path):
    parameters = {"transposeA": False, "transposeB": True, "hasBias": True, "linearType": 2}
    expected = half((PRODUCT8 + BIAS8) * SCALE.astype(np.float64))
    passes_and_fails(tmp_path, "LinearOperation", parameters, [X8, W8, BIAS8, bits(SCALE)], expected)


OUT = half(PRODUCT)


@pytest.mark.parametrize(
    "changes, inputs, output, result, text",
    [
        ({"matmulType": 7}, [X, W], OUT, "NOT_SUPPORTED", "matmulType 7"),
        ({"quantMode": 5}, [X8, W8, SCALE], OUT, "NOT_SUPPORTED", "quantMode 5"),
        ({"outDataType": 3}, [X8, W8, SCALE], OUT, "NOT_SUPPORTED", "outDataType 3"),
        ({"hasBias": True, "enAccum": True}, [X, W, BIAS], OUT, "NOT_SUPPORTED", "enAccum"),
        ({"matmulType": 1, "transposeA": True}, [X, W], OUT, "NOT_SUPPORTED", "transposeA"),
        ({}, [X, W8], OUT, "NOT_SUPPORTED", "weight of type int8"),
        ({"outDataType": 1}, [X, W, SCALE], OUT, "ERROR", "int8"),
        ({"hasBias": True}, [X, W], OUT, "ERROR", "takes x, weight, bias; the dump has 2 inputs"),
        ({}, [X, W, BIAS], OUT, "ERROR", "3 inputs"),
        ({"outDataType": 1}, [X8, W8], OUT, "ERROR", "deqScale"),
        ({}, [X, None], OUT, "ERROR", ""),
        ({}, [X, W[:, :40].copy()], OUT, "ERROR", "does not fit"),
        ({}, [X, W], OUT[:, :20].copy(), "ERROR", "outtensor0"),
        ({"hasBias": True}, [X, W, BIAS[:7].copy()], OUT, "ERROR", "bias"),
        ({"outDataType": 1}, [X8, W8, SCALE[:5].copy()], OUT, "ERROR", "scale"),
        ({"outDataType": 1, "quantMode": 2}, [X8, W8, SCALE, ROW_SCALE[:2].copy()], OUT, "ERROR", "rows"),
        ({"hasBias": "maybe"}, [X, W], OUT, "ERROR", "hasBias"),
        ({"matmulType": 1}, [X, W], OUT, "ERROR", "EIN_SUM needs"),
        ({}, [X[0].copy(), W], OUT, "ERROR", "two dimensions"),
    ],
)  # fmt: skip
def test_linear_says_why_not(tmp_path, changes, inputs, output, result, text):
    refused(tmp_path, "LinearOperation", {**LINEAR, **changes}, inputs, [output], result, text)


def test_linear_sparse(tmp_path):
    parameters = {"transposeA": False, "transposeB": True, "tilingK": 8, "tilingN": 8}
    expected = half((PRODUCT8 + BIAS8) * SCALE.astype(np.float64))
    index = np.zeros(16, np.int8)
    passes_and_fails(
        tmp_path / "dense", "LinearSparseOperation", parameters, [X8, W8, BIAS8, bits(SCALE), index], expected
    )
    refused(tmp_path / "stream", "LinearSparseOperation", parameters, [X8, W8.ravel(), BIAS8, bits(SCALE), index],
            [expected], "NOT_SUPPORTED", "compressed")  # fmt: skip


# ---- Operations that Linear replaced ------------------------------------------------------------


def test_matmul(tmp_path):
    passes_and_fails(tmp_path / "kn", "MatmulOperation", {}, [X, W.T.copy()], OUT)
    passes_and_fails(tmp_path / "nk", "MatmulOperation", {"transposeA": False, "transposeB": True}, [X, W], OUT)


def test_linear_quant(tmp_path):
    expected = half((PRODUCT8 + BIAS8) * SCALE.astype(np.float64))
    inputs = [X8, W8.T.copy(), BIAS8, bits(SCALE)]
    passes_and_fails(tmp_path / "bias", "LinearQuantOperation", {"hasBias": True}, inputs, expected)
    plain = half(PRODUCT8 * SCALE.astype(np.float64))
    passes_and_fails(tmp_path / "plain", "LinearQuantOperation", {"hasBias": False}, [X8, W8.T.copy(), SCALE], plain)


def test_linear_quant_of_a_float_activation(tmp_path):
    step = np.abs(wide(X)).max(1, keepdims=True) / 127
    rounded = np.rint(wide(X) / step)
    expected = half(rounded @ W8.T.astype(np.float64) * step * SCALE + wide(BIAS))
    parameters = {"transposeA": False, "transposeB": True, "hasBias": True, "outDataType": -1}
    passes_and_fails(tmp_path, "LinearQuantOperation", parameters, [X, W8, BIAS, SCALE], expected,
                     "dynamic per-token quantised activation, bias")  # fmt: skip


def test_half_steps_go_where_float32_sends_them(tmp_path):
    def integers(row):
        return np.rint(row / np.float32(row.max() / np.float32(127)))

    rows = [np.float32([largest, largest / 2] * (K // 2)) for largest in np.arange(1, 2, 2**-10, dtype=np.float32)]
    row = next(row for row in rows if integers(row)[1] == 63)  # 63.5 of exact steps, which would become 64
    ones, scale = np.ones((1, K), np.int8), np.float32([1])
    parameters = {"transposeA": False, "transposeB": True, "hasBias": False}
    for name, q in (("float32", integers(row).sum()), ("exact", (127 + 64) * K / 2)):
        output = half([[q * np.float64(row.max()) / 127]])
        report = check(tmp_path / name, "LinearQuantOperation", parameters, [half([row]), ones, scale], [output])
        assert result_of(report) == "PASS", report
        assert name in report[0]["note"]


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS = {
    1: lambda x: np.maximum(x, 0),
    2: gelu,
    3: lambda x: x / (1 + np.exp(-1.702 * x)),
    4: lambda x: x / (1 + np.exp(-x)),
    5: np.log,
}


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_linear_activation(tmp_path, kind):
    x, w = (np.abs(X), np.abs(W)) if kind == 5 else (X, W)
    expected = half(ACTIVATIONS[kind](wide(x) @ wide(w).T + wide(np.abs(BIAS))))
    parameters = {"transposeA": False, "transposeB": True, "hasBias": True, "activationFuncType": kind}
    rows = check(tmp_path / "right", "LinearActivationOperation", parameters, [x, w, np.abs(BIAS)], [expected])
    assert result_of(rows) == "PASS", rows
    other = half(wide(x) @ wide(w).T + wide(np.abs(BIAS)) + 0.5)
    rows = check(tmp_path / "wrong", "LinearActivationOperation", parameters, [x, w, np.abs(BIAS)], [other])
    assert result_of(rows) == "FAILED", rows


def test_linear_activation_quant(tmp_path):
    parameters = {"transposeB": False, "hasBias": False, "activationFuncType": 1}
    expected = half(np.maximum(PRODUCT8 * SCALE.astype(np.float64), 0))
    inputs = [X8, W8.T.copy(), bits(SCALE)]
    assert result_of(check(tmp_path, "LinearActivationQuantOperation", parameters, inputs, [expected])) == "PASS"
    refused(tmp_path / "kind", "LinearActivationQuantOperation", {**parameters, "activationFuncType": 9}, inputs,
            [expected], "NOT_SUPPORTED", "activationFuncType 9")  # fmt: skip


# ---- All ranks ----------------------------------------------------------------------------------


def check_ranks(tmp_path, op_type, parameters, shards, outputs) -> list:
    """One process a rank; rows of all of them."""
    for rank, (inputs, output) in enumerate(zip(shards, outputs)):
        place = run_folder_of(tmp_path / "dump", device=rank, pid=4711 + rank)
        own = {**parameters, "rank": rank, "rankSize": len(shards)}
        write_operation(place, f"0_{op_type}", own, inputs, output)
    return opcheck(tmp_path / "dump", tmp_path / "report")


def results(rows) -> list:
    return [row["result"] for row in rows]


@pytest.mark.parametrize("operation", ["sum", "max", "min", "prod"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32])
def test_all_reduce(tmp_path, operation, dtype):
    shards = [(generator(rank).standard_normal((4, 6)) * 3).astype(dtype) for rank in range(3)]
    fold = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}[operation]
    exact = np.float64 if np.issubdtype(dtype, np.floating) else np.int64
    expected = fold(np.stack(shards).astype(exact), axis=0).astype(dtype)
    parameters = {"allReduceType": operation, "backend": "hccl", "quantType": 0}
    rows = check_ranks(
        tmp_path / "right", "AllReduceOperation", parameters, [[each] for each in shards], [[expected]] * 3
    )
    assert results(rows) == ["PASS"] * 3, rows
    wrong = expected.copy()
    wrong[2, 3] += 1
    rows = check_ranks(tmp_path / "wrong", "AllReduceOperation", parameters, [[each] for each in shards],
                       [[expected], [wrong], [expected]])  # fmt: skip
    assert sorted(results(rows)) == ["FAILED", "PASS", "PASS"], rows


def test_quantised_all_reduce(tmp_path):
    shards = [int8((4, 6), rank) for rank in range(2)]
    scale, offset = np.float16([0.01] * 6), np.float16([1, 2, 3, 4, 5, 6])
    total = sum(each.astype(np.int64) for each in shards)
    expected = half((total + wide(offset) * 2) * wide(scale))
    parameters = {"allReduceType": "sum", "quantType": 2, "outDataType": 1}
    inputs = [[each, scale, offset] for each in shards]
    assert (
        results(check_ranks(tmp_path / "right", "AllReduceOperation", parameters, inputs, [[expected]] * 2))
        == ["PASS"] * 2
    )
    without = half(total * wide(scale))
    assert (
        results(check_ranks(tmp_path / "wrong", "AllReduceOperation", parameters, inputs, [[without]] * 2))
        == ["FAILED"] * 2
    )


def test_all_reduce_says_why_not(tmp_path):
    x = floats((2, 3), 0)
    parameters = {"allReduceType": "sum", "rank": 0, "rankSize": 2}
    refused(tmp_path / "rank", "AllReduceOperation", parameters, [x], [x], "ERROR", "rank 1")
    for number, (changes, result, text) in enumerate((
        ({"allReduceType": "mean"}, "NOT_SUPPORTED", "mean"),
        ({"quantType": 3}, "NOT_SUPPORTED", "quantType 3"),
        ({"quantType": 1, "allReduceType": "max"}, "NOT_SUPPORTED", "only sums"),
        ({"rankSize": 0}, "ERROR", "rankSize is 0"),
        ({"rankSize": 2**60}, "ERROR", "rankSize"),
        ({"rank": 5}, "ERROR", "rank 5"),
    )):  # fmt: skip
        refused(tmp_path / str(number), "AllReduceOperation", {**parameters, **changes}, [x], [x], result, text)
    rows = check_ranks(
        tmp_path / "shapes", "AllReduceOperation", {"allReduceType": "sum"}, [[x], [x.T.copy()]], [[x], [x.T.copy()]]
    )
    assert results(rows) == ["ERROR"] * 2 and "rank 1 has" in rows[0]["reason"], rows


PARALLEL = {"transWeight": True, "hasResidual": False, "backend": "lcoc", "type": 0, "keepIntermediate": False,
            "quantType": -1, "quantGroupSize": 0, "outDataType": -1}  # fmt: skip
XS, WS = [floats((4, K), 20 + rank) for rank in range(2)], [floats((N, K), 30 + rank) for rank in range(2)]
RESIDUAL = floats((4, N), 40)
LINS = [wide(x) @ wide(w).T for x, w in zip(XS, WS)]


def parallel(tmp_path, changes, shards, outputs):
    return check_ranks(tmp_path, "LinearParallelOperation", {**PARALLEL, **changes}, shards, outputs)


@pytest.mark.parametrize("backend", ["lcoc", "hccl"])
def test_linear_all_reduce(tmp_path, backend):
    shards = [[x, w, RESIDUAL] for x, w in zip(XS, WS)]
    output = half(sum(LINS) + wide(RESIDUAL))
    changes = {"hasResidual": True, "backend": backend}
    rows = parallel(tmp_path / "right", changes, shards, [[output]] * 2)
    assert results(rows) == ["PASS"] * 2, rows
    assert rows[0]["variant"] == "all reduce, residual"
    twice = half(sum(LINS) + 2 * wide(RESIDUAL))  # the residual of every rank added
    assert results(parallel(tmp_path / "wrong", changes, shards, [[twice]] * 2)) == ["FAILED"] * 2


def test_linear_reduce_scatter(tmp_path):
    output = half(sum(LINS))
    shards = [[x, w] for x, w in zip(XS, WS)]
    parts = [[output[:2].copy()], [output[2:].copy()]]
    assert results(parallel(tmp_path / "right", {"type": 1}, shards, parts)) == ["PASS"] * 2
    assert results(parallel(tmp_path / "swapped", {"type": 1}, shards, parts[::-1])) == ["FAILED"] * 2


def test_all_gather_linear(tmp_path):
    gathered = np.concatenate(XS)
    outputs = [[half(wide(gathered) @ wide(w).T), gathered] for w in WS]
    shards = [[x, w] for x, w in zip(XS, WS)]
    rows = parallel(tmp_path / "right", {"type": 2, "keepIntermediate": True}, shards, outputs)
    assert results(rows) == ["PASS"] * 4, rows
    outputs[1][1] = gathered[::-1].copy()
    rows = parallel(tmp_path / "wrong", {"type": 2, "keepIntermediate": True}, shards, outputs)
    assert sorted(results(rows)) == ["FAILED", "PASS", "PASS", "PASS"]


def test_pure_linear_with_quantised_operands(tmp_path):
    rows = parallel(tmp_path / "float", {"type": 3}, [[XS[0], WS[0]]], [[half(LINS[0])]])
    assert results(rows) == ["PASS"], rows
    both = half((PRODUCT8 + BIAS8) * SCALE.astype(np.float64))
    shard = [X8, W8, BIAS8, bits(SCALE).view(np.int64)]
    rows = parallel(tmp_path / "int8", {"type": 3, "quantType": 1, "outDataType": 1}, [shard], [[both]])
    assert results(rows) == ["PASS"], rows
    tokens = half((PRODUCT8 + BIAS8) * SCALE.astype(np.float64) * ROW_SCALE.astype(np.float64)[:, None])
    changes = {"type": 3, "quantType": 3, "outDataType": 1}
    shard = [X8, W8, BIAS8, SCALE, ROW_SCALE]
    rows = parallel(tmp_path / "token", changes, [shard], [[tokens]])
    assert results(rows) == ["PASS"], rows
    assert results(parallel(tmp_path / "no token", changes, [shard], [[both]])) == ["FAILED"]


@pytest.mark.parametrize("group", [0, 16, 20])
def test_pure_linear_with_a_quantised_weight(tmp_path, group):
    groups = -(-K // group) if group else 1
    scale = generator(41).uniform(0.001, 0.01, (groups, N)).astype(np.float16)
    offset = generator(42).integers(-9, 9, N).astype(np.float16)
    index = np.arange(K) // group if group else np.zeros(K, int)
    w = (W8.T.astype(np.float64) + wide(offset)) * wide(scale)[index]
    output = half(wide(X) @ w)
    changes = {"type": 3, "quantType": 2 if group else 1, "quantGroupSize": group}
    shard = [X, W8, offset, scale if group else scale[0].copy()]
    assert results(parallel(tmp_path / "right", changes, [shard], [[output]])) == ["PASS"]
    wrong = half(wide(X) @ (W8.T.astype(np.float64) * wide(scale)[index]))
    assert results(parallel(tmp_path / "wrong", changes, [shard], [[wrong]])) == ["FAILED"]


@pytest.mark.parametrize(
    "changes, result, text",
    [
        ({"type": 4}, "NOT_SUPPORTED", "type 4"),
        ({"type": 5}, "NOT_SUPPORTED", "type 5"),
        ({"type": 6}, "NOT_SUPPORTED", "type 6"),
        ({"type": 9}, "NOT_SUPPORTED", "type 9"),
        ({"quantType": 8}, "NOT_SUPPORTED", "quantType 8"),
        ({"hasResidual": True}, "ERROR", "residual"),
        ({"quantType": 2}, "ERROR", "quantGroupSize"),
        ({"quantType": 1}, "ERROR", "scale"),
    ],
)  # fmt: skip
def test_linear_parallel_says_why_not(tmp_path, changes, result, text):
    rows = parallel(tmp_path, changes, [[XS[0], WS[0]]], [[half(LINS[0])]])
    assert results(rows) == [result], rows
    assert text in rows[0]["reason"], rows[0]["reason"]


# ---- Batches and experts --------------------------------------------------------------------------


def strided_case(spelling):
    heads, sizes = 2, {"m": [4, 2], "n": [5, 3], "k": [3, 6]}
    a = [
        generator(50 + i).standard_normal((m, heads, k)).astype(np.float16)
        for i, (m, k) in enumerate(zip(sizes["m"], sizes["k"]))
    ]
    b = [
        generator(60 + i).standard_normal((k, heads, n)).astype(np.float16)
        for i, (k, n) in enumerate(zip(sizes["k"], sizes["n"]))
    ]
    c = np.concatenate([half(np.einsum("mhk,khn->mhn", wide(x), wide(y))).ravel() for x, y in zip(a, b)])
    parameters = {spelling[0]: False, spelling[1]: False, spelling[2]: heads, "batch": 2, **sizes}
    parameters |= {"lda": [heads * k for k in sizes["k"]], "ldb": [heads * n for n in sizes["n"]]}
    parameters |= {"ldc": [heads * n for n in sizes["n"]]}
    parameters |= {"strideA": sizes["k"], "strideB": sizes["n"], "strideC": sizes["n"]}
    flat = [np.concatenate([each.ravel() for each in operand]) for operand in (a, b)]
    return parameters, flat, c


@pytest.mark.parametrize(
    "spelling",
    [("transposeA", "transposeB", "headNum"), ("transA", "transB", "headNum"), ("trans_a", "trans_b", "head_num")],
)
def test_strided_batch_matmul(tmp_path, spelling):
    parameters, inputs, c = strided_case(spelling)
    passes_and_fails(tmp_path, "StridedBatchMatmulOperation", parameters, inputs, c, "2 batches, 2 heads")


def test_elements_that_no_head_writes_are_left_out(tmp_path):
    parameters, inputs, c = strided_case(("transposeA", "transposeB", "headNum"))
    longer = np.concatenate([c, np.float16([np.nan, 7])])
    rows = check(tmp_path / "tail", "StridedBatchMatmulOperation", parameters, inputs, [longer])
    assert result_of(rows) == "PASS", rows
    assert "2 of 54 elements" in rows[0]["note"]
    longer[3] += 1
    assert result_of(check(tmp_path / "wrong", "StridedBatchMatmulOperation", parameters, inputs, [longer])) == "FAILED"


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"batch": 3}, "batch is 3"),
        ({"m": [4]}, "m has 1"),
        ({"lda": [6, 2**61]}, "do not fit"),
        ({"ldc": [2, 6]}, "do not fit"),
        ({"headNum": 2**60}, ""),
        ({"k": [-3, 6]}, "-3"),
        ({"n": "many"}, "n is"),
    ],
)
def test_strided_batch_matmul_says_why_not(tmp_path, changes, text):
    parameters, inputs, c = strided_case(("transposeA", "transposeB", "headNum"))
    refused(tmp_path, "StridedBatchMatmulOperation", {**parameters, **changes}, inputs, [c], "ERROR", text)


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("quantised", [False, True])
def test_grouped_matmul_with_routing(tmp_path, down, quantised):
    experts, tokens, top_k = 4, 6, 2
    chosen = np.stack([generator(70 + token).permutation(experts)[:top_k] for token in range(tokens)])
    rows_of = [np.flatnonzero((chosen == expert).any(1)) for expert in range(experts)]
    order = np.concatenate(rows_of).astype(np.int32)
    ends = np.cumsum([len(each) for each in rows_of]).astype(np.int32)
    make = int8 if quantised else floats
    x, w = make((tokens * top_k if down else tokens, K), 71), make((experts, N, K), 72)
    columns = generator(73).uniform(1e-4, 1e-3, (experts, N)).astype(np.float32)
    scales = generator(74).uniform(0.5, 1, len(x)).astype(np.float32)
    output = np.zeros((tokens if down else tokens * top_k, N))
    for row, expert in enumerate(np.repeat(np.arange(experts), np.diff(ends, prepend=0))):
        source = row if down else order[row]
        product = wide(x[source]) @ wide(w[expert]).T
        output[order[row] if down else row] += product * (scales[source] * wide(columns[expert]) if quantised else 1)
    parameters = {
        "transposeB": True,
        "topK": top_k,
        "groupedMatmulType": int(down),
        "outDataType": 1 if quantised else -1,
    }
    inputs = [x, w, ends, order, *([columns, scales] if quantised else [])]
    passes_and_fails(tmp_path / "ok", "GroupedMatmulWithRoutingOperation", parameters, inputs, half(output))
    inputs[3] = order + 100
    refused(
        tmp_path / "token", "GroupedMatmulWithRoutingOperation", parameters, inputs, [half(output)], "ERROR", "token"
    )


def test_grouped_matmul_inplace_add(tmp_path):
    ends = np.int64([20, K])
    x, w = floats((K, M), 80), floats((K, N), 81)
    accum = generator(82).standard_normal((2 * M, N)).astype(np.float32)
    products = np.concatenate([wide(x[:20]).T @ wide(w[:20]), wide(x[20:]).T @ wide(w[20:])])
    after = (accum + products).astype(np.float32)
    parameters = {"transposeA": True, "transposeB": False}
    passes_and_fails(tmp_path / "ok", "GroupedMatmulInplaceAddOperation", parameters, [x, w, ends, after], after,
                     before=[x, w, ends, accum])  # fmt: skip
    refused(tmp_path / "after", "GroupedMatmulInplaceAddOperation", parameters, [x, w, ends, after], [after],
            "NOT_SUPPORTED", "needs before data")  # fmt: skip
