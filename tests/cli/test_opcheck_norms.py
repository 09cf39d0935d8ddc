# SPDX-License-Identifier: Apache-2.0
"""`assay opcheck` of norms, rotary embeddings and softmax of unpadded scores: every variant, right and wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from opcheck_dump import check, from_bf16, opcheck, run_folder_of, to_bf16, write_operation

EPS = 0.000009999999747378752
F16, F32 = np.float16, np.float32


def values(*shape, seed=0, scale=1.0, dtype=F16):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def positive(*shape, seed=0):
    """Like gamma: around one, so that no result hides near zero."""
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(F16)


def wide(array):
    return np.asarray(from_bf16(array) if isinstance(array, tuple) else array).astype(np.float64)


def rms(x, gamma, eps=EPS):
    return torch.nn.functional.rms_norm(torch.from_numpy(x), (x.shape[-1],), torch.from_numpy(gamma), eps).numpy()


def ln(x, gamma, beta, eps=EPS, dims=1):
    tensors = (torch.from_numpy(np.ascontiguousarray(a)) for a in (x, gamma, beta))
    x, gamma, beta = tensors
    return (torch.nn.functional.layer_norm(x, x.shape[-dims:], None, None, eps) * gamma + beta).numpy()


def q8(x):
    return np.clip(np.rint(x), -128, 127).astype(np.int8)


def dynamic(y, asymmetric):
    """int8, scales and offsets as numpy has them."""
    if not asymmetric:
        scale = np.abs(y).max(-1) / 127
        return [q8(y / scale[..., None]), scale.astype(F32)]
    high, low = y.max(-1), y.min(-1)
    scale = (high - low) / 255
    offset = -(high + low) / (2 * scale)
    return [q8(y / scale[..., None] + offset[..., None]), scale.astype(F32), offset.astype(F32)]


def spoiled(tensor):
    """The same with one element far off."""
    if isinstance(tensor, tuple):
        bits = tensor[0].copy()
        bits.reshape(-1)[bits.size // 2] ^= 0x4000
        return bits, tensor[1]
    wrong = tensor.copy()
    flat = wrong.reshape(-1)
    flat[flat.size // 2] += 5 if flat[flat.size // 2] < 100 else -5
    return wrong


def judge(tmp_path, op_type, parameters, inputs, outputs, variant, **more):
    """The right outputs pass; each of them spoiled fails alone. Returns the rows of the right ones."""
    rows = check(tmp_path / "right", op_type, parameters, inputs, outputs, **more)
    assert [row["result"] for row in rows] == ["PASS"] * len(outputs), rows
    assert {row["variant"] for row in rows} == {variant}
    for number in range(len(outputs)):
        wrong = [spoiled(t) if i == number else t for i, t in enumerate(outputs)]
        found = check(tmp_path / f"wrong{number}", op_type, parameters, inputs, wrong, **more)
        verdicts = [row["result"] for row in found]
        assert verdicts == ["FAILED" if i == number else "PASS" for i in range(len(outputs))], found
        assert all(row["reason"] for row in found if row["result"] == "FAILED")
    return rows


def refused(tmp_path, op_type, parameters, inputs, outputs, result, *words, **more):
    """All rows have that result, and a reason with these words."""
    rows = check(tmp_path, op_type, parameters, inputs, outputs, **more)
    assert rows and all(row["result"] == result for row in rows), rows
    for word in words:
        assert word in rows[0]["reason"], rows[0]["reason"]


def section(name, **keys):
    layer = {"normParam": 1, "preNormParam": 2, "postNormParam": 3}[name]
    return {"layerType": layer, name: {"quantType": 0, "epsilon": EPS, **keys}}


# ---- RmsNorm


def test_worked_example_of_a_norm(tmp_path):
    # Given the fp16 bytes of a worked example
    parameters = {
        "layerType": 1,
        "normParam": {
            "quantType": 0, "epsilon": EPS, "layerNormEps": EPS, "rstd": False, "precisionMode": 0, "modelType": 0,
            "dynamicQuantType": 0,
        },
    }  # fmt: skip
    x = np.frombuffer(bytes.fromhex("003c004000c20044"), F16).reshape(1, 4)
    gamma = np.frombuffer(bytes.fromhex("003c003c003c0038"), F16)
    y = np.frombuffer(bytes.fromhex("d835d93965bcd839"), F16).reshape(1, 4)
    place = run_folder_of(tmp_path / "dump", step=2)
    write_operation(place, "0_Prefill_layer/0_RmsNormOperation", parameters, [x, gamma], [y])
    # When
    rows = opcheck(place, tmp_path / "out")
    # Then: one of four elements is beyond 2^-9 max(1, |g|), which is the third
    assert len(rows) == 1
    row = rows[0]
    assert (row["op_id"], row["op_name"], row["result"]) == ("0_0", "RmsNormOperation", "FAILED")
    assert row["variant"] == "norm"
    assert row["rel_precision_rate(%)"] == "75.0000000000000000"
    assert row["max_rel_error"] == "0.0029296875000000"
    assert row["precision_standard"] == "99.9%(error<0.0009765625)"
    assert row["fail_reason"] == "relative pass rate: 75.0 not met standart: 99.9."
    assert (row["precision_type"], row["atb_rate(%)"], row["worst_index"]) == ("VECTOR_FUSION", 75.0, "[0, 2]")
    assert row["error_balance(%)"] == pytest.approx(100 * 4.98e-4 * 2**10, abs=0.1)
    assert row["cosine"] == pytest.approx(0.9999992685, abs=1e-10)
    assert row["max_abs"] == pytest.approx(3.188e-3, abs=1e-6)
    # and the correctly rounded result passes
    right = np.frombuffer(bytes.fromhex("d835d83962bcd839"), F16).reshape(1, 4)
    assert check(tmp_path / "right", "RmsNormOperation", parameters, [x, gamma], [right])[0]["result"] == "PASS"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_rms_norm(tmp_path, dtype):
    cast = {"float16": lambda a: a.astype(F16), "bfloat16": to_bf16, "float32": lambda a: a.astype(F32)}[dtype]
    x, gamma = cast(values(6, 96, seed=1)), cast(positive(96, seed=2))
    y = cast(rms(wide(x), wide(gamma)))
    judge(tmp_path, "RmsNormOperation", section("normParam"), [x, gamma], [y], "norm")


def test_rms_norm_of_gemma_and_of_high_performance(tmp_path):
    x, gamma = values(6, 96, seed=1), positive(1, 96, seed=2)
    gemma = rms(wide(x), 1 + wide(gamma[0])).astype(F16)
    judge(tmp_path / "g", "RmsNormOperation", section("normParam", modelType=1), [x, gamma], [gemma], "norm, gemma")
    half = (rms(wide(x), np.ones(96)).astype(F16) * gamma).astype(F16)
    variant = "norm, high performance"
    judge(tmp_path / "h", "RmsNormOperation", section("normParam", precisionMode=1), [x, gamma], [half], variant)


def test_rms_norm_with_rstd_over_two_dimensions(tmp_path):
    x, gamma = values(5, 4, 24, seed=1, dtype=F32), positive(4, 24, seed=2).astype(F32)
    rstd = 1 / np.sqrt((wide(x) ** 2).mean((1, 2), keepdims=True) + EPS)
    outputs = [(wide(x) * rstd * wide(gamma)).astype(F32), rstd.astype(F32)]
    judge(tmp_path, "RmsNormOperation", section("normParam", rstd=True), [x, gamma], outputs, "norm, rstd")


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("name", ["preNormParam", "postNormParam"])
def test_rms_norm_of_a_sum(tmp_path, name, with_bias):
    x, res, bias, gamma = values(6, 96, seed=1), values(6, 96, seed=2), values(96, seed=3), positive(96, seed=4)
    total = wide(x) + wide(res) + (wide(bias) if with_bias else 0)
    outputs = [rms(total, wide(gamma)).astype(F16), total.astype(F16)]
    variant = name.replace("NormParam", "norm") + (", bias" if with_bias else "")
    inputs = [x, bias, res, gamma] if with_bias else [x, res, gamma]
    count = 2 if name == "preNormParam" else 1
    judge(tmp_path, "RmsNormOperation", section(name, hasBias=with_bias), inputs, outputs[:count], variant)


def test_rms_norm_to_int8(tmp_path):
    x, gamma, beta = values(6, 96, seed=1), positive(96, seed=2), values(96, seed=3, scale=0.1)
    scale, offset = np.array([0.03], F16), np.array([-4], np.int8)
    y = (rms(wide(x), wide(gamma)) + wide(beta)) / wide(scale) + wide(offset)
    inputs = [x, gamma, beta, scale, offset]
    judge(tmp_path, "RmsNormOperation", section("normParam", quantType=2), inputs, [q8(y)], "norm, int8")
    # One step beside is noise of the kernel, two steps are not.
    for steps, verdict in ((1, "PASS"), (2, "FAILED")):
        near = q8(y)
        near[2, 50] += steps if near[2, 50] < 0 else -steps
        rows = check(tmp_path / str(steps), "RmsNormOperation", section("normParam", quantType=2), inputs, [near])
        assert rows[0]["result"] == verdict, rows


@pytest.mark.parametrize("asymmetric", [False, True])
def test_rms_norm_to_int8_with_a_scale_a_row(tmp_path, asymmetric):
    x, gamma, beta = values(6, 96, seed=1), positive(96, seed=2), values(96, seed=3, scale=0.1)
    outputs = dynamic(rms(wide(x), wide(gamma)) + wide(beta), asymmetric)
    kind = "asymmetric" if asymmetric else "symmetric"
    parameters = section("normParam", quantType=2, dynamicQuantType=2 if asymmetric else 1)
    judge(tmp_path, "RmsNormOperation", parameters, [x, gamma, beta], outputs, f"norm, int8 dynamic {kind}")


def test_rms_norm_of_a_row_of_zeros_has_no_scale(tmp_path):
    x, gamma, beta = values(4, 32, seed=1), positive(32, seed=2), np.zeros(32, F16)
    x[2] = 0
    y = rms(wide(x), wide(gamma))
    scale = np.abs(y).max(-1) / 127
    outputs = [q8(y / np.where(scale > 0, scale, 1)[:, None]), scale.astype(F32)]
    parameters = section("normParam", quantType=2, dynamicQuantType=1)
    rows = check(tmp_path, "RmsNormOperation", parameters, [x, gamma, beta], outputs)
    assert [row["result"] for row in rows] == ["PASS", "PASS"]
    assert "1 rows have no scale" in rows[0]["note"]


def test_rms_norm_of_a_sum_to_int8(tmp_path):
    x, res, gamma = values(6, 96, seed=1), values(6, 96, seed=2), positive(96, seed=3)
    beta, scale, offset = values(96, seed=4, scale=0.1), np.array([0.04], F16), np.array([3], np.int8)
    total = wide(x) + wide(res)
    y = rms(total, wide(gamma))
    pre = q8((y + wide(beta)) / wide(scale) + 3)
    inputs = [x, res, gamma, beta, scale, offset]
    parameters = section("preNormParam", quantType=2)
    judge(tmp_path / "pre", "RmsNormOperation", parameters, inputs, [pre, total.astype(F16)], "prenorm, int8")

    # The second output of a postnorm is one of two things, and the row says which.
    post = q8(y / wide(scale) + 3)
    inputs = [x, res, gamma, scale, offset]
    parameters = section("postNormParam", quantType=2)
    for number, (second, words) in enumerate([(y, "normalised values"), (total, "sum of x and res_in")]):
        outputs = [post, second.astype(F16)]
        rows = judge(tmp_path / f"post{number}", "RmsNormOperation", parameters, inputs, outputs, "postnorm, int8")
        assert words in rows[1]["note"]


def test_rms_norm_of_early_2024(tmp_path):
    # Unused sub-objects are null, scale and offset stand in the parameters.
    x, gamma, beta = values(6, 96, seed=1), positive(96, seed=2), values(96, seed=3, scale=0.1)
    parameters = {
        "layerType": 1,
        "normParam": {"quantType": 2, "epsilon": EPS, "quantInputScale": 0.05, "quantInputOffset": 2},
        "preNormParam": None,
        "postNormParam": None,
    }
    y = (rms(wide(x), wide(gamma)) + wide(beta)) / 0.05 + 2
    judge(tmp_path, "RmsNormOperation", parameters, [x, gamma, beta], [q8(y)], "norm, int8")


def test_rms_norm_finds_wrong_kernels(tmp_path):
    x, gamma = values(64, 512, seed=1, scale=0.02), positive(512, seed=2)
    wrong = {
        "epsilon": rms(wide(x), wide(gamma), 1e-3),
        "no gamma": rms(wide(x), np.ones(512)),
        "layer norm": ln(wide(x), wide(gamma), np.zeros(512)) + 0.02,
        "rows swapped": np.roll(rms(wide(x), wide(gamma)), 1, axis=0),
        "one of 32768": None,
    }
    right = rms(wide(x), wide(gamma))
    one = right.copy()
    one[40, 300] += 0.02 * max(1, abs(one[40, 300]))
    wrong["one of 32768"] = one
    for number, (name, y) in enumerate(wrong.items()):
        rows = check(tmp_path / str(number), "RmsNormOperation", section("normParam"), [x, gamma], [y.astype(F16)])
        assert rows[0]["result"] == "FAILED", name


@pytest.mark.parametrize(
    ("parameters", "result", "words"),
    [
        ({}, "NOT_SUPPORTED", ["layerType 0"]),
        ({"layerType": 7}, "NOT_SUPPORTED", ["layerType 7"]),
        (section("normParam", quantType=4), "NOT_SUPPORTED", ["quantType 4"]),
        (section("normParam", modelType=2), "NOT_SUPPORTED", ["modelType 2"]),
        (section("normParam", precisionMode=5), "NOT_SUPPORTED", ["precisionMode 5"]),
        (section("normParam", quantType=2, dynamicQuantType=3), "NOT_SUPPORTED", ["dynamicQuantType 3"]),
        (section("normParam", quantType=2, rstd=True), "NOT_SUPPORTED", ["rstd"]),
        (section("preNormParam", quantType=2, hasBias=True), "NOT_SUPPORTED", ["hasBias"]),
        (section("normParam", epsilon="x"), "ERROR", ["epsilon"]),
        (section("normParam", quantType=2), "ERROR", ["takes x, gamma, beta, scale, offset", "2 inputs"]),
        (section("preNormParam"), "ERROR", ["takes x, res_in, gamma", "2 inputs"]),
    ],
)
def test_rms_norm_says_why_it_cannot_judge(tmp_path, parameters, result, words):
    x, gamma = values(2, 8), positive(8)
    refused(tmp_path, "RmsNormOperation", parameters, [x, gamma], [x], result, *words)


def test_rms_norm_of_wrong_shapes_and_missing_tensors(tmp_path):
    x = values(2, 8)
    refused(tmp_path / "a", "RmsNormOperation", section("normParam"), [x, positive(7)], [x], "ERROR", "[7]", "[2, 8]")
    refused(tmp_path / "b", "RmsNormOperation", section("normParam"), [None, positive(8)], [x], "ERROR", "intensor0")
    nz = values(1, 1, 16, 16)
    more = {"nz": ("intensor0",)}
    refused(
        tmp_path / "z", "RmsNormOperation", section("normParam"), [nz, x], [x], "NOT_SUPPORTED", "FRACTAL_NZ", **more
    )
    place = run_folder_of(tmp_path / "broken")
    folder = write_operation(place, "0_RmsNormOperation", {}, [x, positive(8)], [x])
    (folder / "op_param.json").write_text('{"layerType": 1, ')
    rows = opcheck(place, tmp_path / "report")
    assert rows[0]["result"] == "ERROR" and rows[0]["reason"]
    # NaN inputs give NaN goldens, which no output hides.
    x[0, 3] = np.nan
    y = rms(wide(values(2, 8)), np.ones(8)).astype(F16)
    rows = check(tmp_path / "nan", "RmsNormOperation", section("normParam"), [x, np.ones(8, F16)], [y])
    assert rows[0]["result"] == "FAILED" and rows[0]["reason"]


# ---- LayerNorm


@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_layer_norm(tmp_path, axis):
    dims = 3 - axis if axis >= 0 else 1
    x = values(4, 3, 40, seed=1)
    gamma, beta = positive(*x.shape[-dims:], seed=2), values(*x.shape[-dims:], seed=3)
    y = ln(wide(x), wide(gamma), wide(beta), dims=dims).astype(F16)
    parameters = section("normParam", beginNormAxis=axis, beginParamsAxis=0)
    judge(tmp_path, "LayerNormOperation", parameters, [x, gamma, beta], [y], "norm")


def test_layer_norm_to_int8(tmp_path):
    x, gamma, beta = values(6, 96, seed=1), positive(1, 96, seed=2), values(1, 96, seed=3, scale=0.1)
    scale, offset = np.array([30], F16), np.array([-4], np.int8)
    y = ln(wide(x), wide(gamma), wide(beta)).astype(F16)
    inputs = [x, gamma, beta, scale, offset]
    outputs = [q8(wide(y) * 30 - 4)]
    judge(tmp_path / "s", "LayerNormOperation", section("normParam", quantType=2), inputs, outputs, "norm, int8")
    # Neither the file nor anything else tells of the dynamic forms but the outputs.
    for asymmetric, kind in ((False, "symmetric"), (True, "asymmetric")):
        variant = f"norm, int8 dynamic {kind}"
        outputs = dynamic(wide(y), asymmetric)
        parameters = section("normParam", quantType=2)
        judge(tmp_path / kind, "LayerNormOperation", parameters, inputs[:3], outputs, variant)


@pytest.mark.parametrize("name", ["preNormParam", "postNormParam"])
def test_layer_norm_of_a_scaled_sum(tmp_path, name):
    x1, x2 = values(6, 96, seed=1), values(6, 96, seed=2)
    gamma, beta = positive(96, seed=3), values(96, seed=4)
    total = wide(x1) + 0.5 * wide(x2)
    outputs = [ln(total, wide(gamma), wide(beta)).astype(F16), total.astype(F16)][: 2 if name[1] == "r" else 1]
    variant = name.replace("NormParam", "norm")
    parameters = section(name, opMode=0, zoomScaleValue=0.5)
    judge(tmp_path, "LayerNormOperation", parameters, [x1, x2, gamma, beta], outputs, variant)


def test_layer_norm_of_a_sum_to_int8(tmp_path):
    x1, x2 = values(6, 96, seed=1), values(6, 96, seed=2)
    gamma, beta = positive(96, seed=3), values(96, seed=4)
    scale, offset = np.array([25], F16), np.array([2], np.int8)
    z = ln(wide(x1) + wide(x2), wide(gamma), wide(beta)).astype(F16)
    outputs = [z, q8(wide(z) * 25 + 2)]
    inputs = [x1, x2, gamma, beta, scale, offset]
    parameters = section("postNormParam", quantType=2)
    judge(tmp_path, "LayerNormOperation", parameters, inputs, outputs, "postnorm, int8")


def test_layer_norm_says_why_it_cannot_judge(tmp_path):
    x, gamma = values(2, 8), positive(8)
    norm = [x, gamma, gamma]
    op = "LayerNormOperation"
    refused(tmp_path / "0", op, {"layerType": 0}, norm, [x], "NOT_SUPPORTED", "layerType 0")
    refused(tmp_path / "1", op, section("preNormParam", quantType=2), norm, [x], "NOT_SUPPORTED", "prenorm")
    refused(tmp_path / "2", op, section("normParam", quantType=-1), norm, [x], "NOT_SUPPORTED", "quantType -1")
    refused(tmp_path / "3", op, section("normParam", beginNormAxis=2), norm, [x], "ERROR", "axis 2", "2 dimensions")
    refused(tmp_path / "4", op, section("normParam", beginNormAxis=1), norm[:2], [x], "ERROR", "x, gamma, beta")
    wrong = [x, gamma, positive(3)]
    refused(tmp_path / "5", op, section("normParam", beginNormAxis=1), wrong, [x], "ERROR", "beta has shape [3]")


# ---- Rope


def rotate(x, cos, sin, groups):
    tokens, size = cos.shape
    parts = wide(x).reshape(tokens, -1, groups, size // groups)
    table = (tokens, 1, groups, size // groups)
    u, v = np.split(parts, 2, axis=-1)
    turned = parts * wide(cos).reshape(table) + np.concatenate([-v, u], -1) * wide(sin).reshape(table)
    return turned.reshape(x.shape)


def rotate_pairs(x, cos, sin):
    tokens, size = cos.shape
    pairs = wide(x).reshape(tokens, -1, size // 2, 2) @ np.array([1, 1j])
    turned = pairs * (wide(cos)[:, ::2] + 1j * wide(sin)[:, ::2])[:, None]
    return np.stack([turned.real, turned.imag], -1).reshape(x.shape)


def tables(tokens, size, dtype=F16):
    angle = np.arange(tokens)[:, None] / 100.0 ** (np.arange(size // 2) / size)
    return np.cos(angle), np.sin(angle), dtype


@pytest.mark.parametrize(("coefficient", "variant"), [(2, "halves"), (4, "halves in two groups")])
@pytest.mark.parametrize("table_type", [F16, F32])
def test_rope_in_halves(tmp_path, coefficient, variant, table_type):
    # Two sequences of different length, four query heads on two key heads.
    tokens, size = 9, 32
    q, k = values(tokens, 4 * size, seed=1), values(tokens, 2 * size, seed=2)
    cos, sin = (np.tile(t, (1, 2)).astype(table_type) for t in tables(tokens, size)[:2])
    outputs = [rotate(x, cos, sin, coefficient // 2).astype(F16) for x in (q, k)]
    inputs = [q, k, cos, sin, np.array([4, 5], np.int32)]
    judge(tmp_path, "RopeOperation", {"rotaryCoeff": coefficient, "cosFormat": 0}, inputs, outputs, variant)


@pytest.mark.parametrize("four_dimensions", [False, True])
def test_rope_of_pairs(tmp_path, four_dimensions):
    batch, seq, size = 2, 3, 32
    q, k = values(batch * seq, 4 * size, seed=1), values(batch * seq, 2 * size, seed=2)
    cos, sin = (np.repeat(t, 2, 1).astype(F16) for t in tables(batch * seq, size)[:2])
    outputs = [rotate_pairs(x, cos, sin).astype(F16) for x in (q, k)]
    if four_dimensions:
        q, k, *outputs = (x.reshape(batch, seq, -1, size) for x in (q, k, *outputs))
    inputs = [q, k, cos, sin, np.array([seq] * batch, np.int32)]
    judge(tmp_path, "RopeOperation", {"rotaryCoeff": size // 2}, inputs, outputs, "interleaved pairs")


def test_rope_of_bfloat16(tmp_path):
    tokens, size = 5, 16
    q, k = to_bf16(values(tokens, 2 * size, seed=1)), to_bf16(values(tokens, size, seed=2))
    cos, sin = (to_bf16(np.tile(t, (1, 2))) for t in tables(tokens, size)[:2])
    outputs = [to_bf16(rotate(wide(x), wide(cos), wide(sin), 1)) for x in (q, k)]
    inputs = [q, k, cos, sin, np.array([tokens], np.int32)]
    judge(tmp_path, "RopeOperation", {"rotaryCoeff": 2}, inputs, outputs, "halves")


def test_rope_finds_wrong_kernels(tmp_path):
    tokens, size = 9, 32
    q, k = values(tokens, 4 * size, seed=1), values(tokens, 4 * size, seed=2)
    cos, sin = (np.tile(t, (1, 2)).astype(F16) for t in tables(tokens, size)[:2])
    right = rotate(k, cos, sin, 1).astype(F16)
    wrong = {
        "position off by one": rotate(q, np.roll(cos, 1, 0), np.roll(sin, 1, 0), 1),
        "pairs for halves": rotate_pairs(q, cos, sin),
        "other direction": rotate(q, cos, -sin, 1),
        "heads swapped": np.roll(rotate(q, cos, sin, 1).reshape(tokens, 4, size), 1, 1).reshape(q.shape),
    }
    inputs = [q, k, cos, sin, np.array([tokens], np.int32)]
    for number, (name, y) in enumerate(wrong.items()):
        rows = check(tmp_path / str(number), "RopeOperation", {"rotaryCoeff": 2}, inputs, [y.astype(F16), right])
        assert [row["result"] for row in rows] == ["FAILED", "PASS"], name


def test_rope_says_why_it_cannot_judge(tmp_path):
    x, table, lengths = values(3, 16), values(3, 8), np.array([3], np.int32)
    op, outputs = "RopeOperation", [x, x]
    inputs = [x, x, table, table, lengths]
    refused(tmp_path / "0", op, {"rotaryCoeff": 0}, inputs, outputs, "NOT_SUPPORTED", "rotaryCoeff 0")
    refused(tmp_path / "1", op, {"rotaryCoeff": 2}, inputs[:4], outputs, "ERROR", "seqLen", "4 inputs")
    short = [x, x, values(2, 8), values(2, 8), lengths]
    refused(tmp_path / "2", op, {"rotaryCoeff": 2}, short, outputs, "ERROR", "q: x has shape [3, 16]", "[2, 8]")
    odd = [values(3, 12), values(3, 12), values(3, 6), values(3, 6), lengths]
    refused(tmp_path / "3", op, {"rotaryCoeff": 4}, odd, [odd[0]] * 2, "ERROR", "a head of 6 elements", "2 groups")


@pytest.mark.parametrize("key", ["c_qSeqLen", "qSeqLen"])
def test_rope_grad(tmp_path, key):
    lengths = [3, 5]
    dq, dk = values(8, 2 * 128, seed=1), values(8, 128, seed=2)
    cos, sin = (np.tile(t, (1, 2)).astype(F16) for t in tables(6, 128)[:2])
    turned = wide(cos) + np.concatenate([wide(sin)[:, 64:], -wide(sin)[:, :64]], 1)
    factor = np.concatenate([turned[:n] for n in lengths])
    outputs = [(wide(dq) * np.tile(factor, (1, 2))).astype(F16), (wide(dk) * factor).astype(F16)]
    judge(tmp_path / "r", "RopeGradOperation", {key: lengths}, [dq, dk, cos, sin], outputs, "element by element")
    refused(tmp_path / "0", "RopeGradOperation", {}, [dq, dk, cos, sin], outputs, "ERROR", "qSeqLen")
    wrong = {key: [3, 4]}
    refused(tmp_path / "1", "RopeGradOperation", wrong, [dq, dk, cos, sin], outputs, "ERROR", "[3, 4]", "add up")


# ---- Softmax of unpadded scores


def test_fast_softmax_and_its_gradient(tmp_path):
    heads, lengths = 2, [3, 6]
    parameters = {"headNum": heads, "qSeqLen": lengths}
    x = values(heads * (9 + 36), seed=1, scale=3)
    dy = values(x.size, seed=2)
    y, dx, start = np.empty_like(x), np.empty_like(x), 0
    for s in lengths:
        block = slice(start, start := start + heads * s * s)
        rows = torch.softmax(torch.from_numpy(wide(x[block])).reshape(-1, s), -1).numpy()
        y[block] = rows.reshape(-1)
        kept = wide(y[block]).reshape(-1, s)
        jacobians = np.stack([np.diag(row) - np.outer(row, row) for row in kept])
        dx[block] = np.einsum("rij,rj->ri", jacobians, wide(dy[block]).reshape(-1, s)).reshape(-1)
    judge(tmp_path / "f", "FastSoftMaxOperation", parameters, [x], [y], "forward")
    judge(tmp_path / "b", "FastSoftMaxGradOperation", parameters, [y, dy], [dx], "backward")
    refused(tmp_path / "0", "FastSoftMaxOperation", {"qSeqLen": lengths}, [x], [y], "ERROR", "headNum")
    refused(tmp_path / "1", "FastSoftMaxOperation", {"headNum": 2}, [x], [y], "ERROR", "qSeqLen")
    wrong = {"headNum": 2, "qSeqLen": [3, 5]}
    refused(tmp_path / "2", "FastSoftMaxOperation", wrong, [x], [y], "ERROR", "90 elements", "[3, 5]")
    refused(tmp_path / "3", "FastSoftMaxGradOperation", parameters, [y, dy[:3]], [dx], "ERROR", "dy has shape [3]")


# ---- Beyond the original's table


def test_rms_norm_backward(tmp_path):
    x, dy, gamma = values(5, 40, seed=1), values(5, 40, seed=2), positive(40, seed=3)
    leaf, weight = (torch.from_numpy(wide(a)).requires_grad_() for a in (x, gamma))
    torch.nn.functional.rms_norm(leaf, (40,), weight, 1e-6).backward(torch.from_numpy(wide(dy)))
    rstd = (1 / np.sqrt((wide(x) ** 2).mean(-1, keepdims=True) + 1e-6)).astype(F32)
    outputs = [leaf.grad.numpy().astype(F16), weight.grad.numpy().astype(F32)]
    judge(tmp_path, "RmsNormBackwardOperation", None, [dy, x, rstd, gamma], outputs, "backward")
    wrong = [dy, x, rstd[:4], gamma]
    refused(tmp_path / "0", "RmsNormBackwardOperation", None, wrong, outputs, "ERROR", "rstd has shape [4, 1]")


def test_strided_norms(tmp_path):
    x, gamma, beta = values(4, 6, 32, seed=1), positive(32, seed=2), values(32, seed=3)
    offset = np.array([0], np.int64)
    # Rows of 32 elements from every 32nd on: the strides of ATB's own tests overlap for three dimensions.
    strides = np.array([32, 32, 1], np.int64)
    view = np.lib.stride_tricks.as_strided(wide(x), x.shape, [32 * 8, 32 * 8, 8])
    y = ln(view, wide(gamma), wide(beta)).astype(F16)
    inputs = [x, gamma, beta, strides, offset]
    judge(tmp_path / "l", "LayerNormWithStrideOperation", section("normParam"), inputs, [y], "norm, strided")
    strides = np.array([6 * 32, 32, 1], np.int64)
    y = rms(wide(x), wide(gamma)).astype(F16)
    inputs = [x, gamma, strides, offset]
    judge(tmp_path / "r", "RmsNormWithStrideOperation", section("normParam"), inputs, [y], "norm, strided")
    beyond = [x, gamma, strides, np.array([1], np.int64)]
    op = "RmsNormWithStrideOperation"
    refused(tmp_path / "0", op, section("normParam"), beyond, [y], "NOT_SUPPORTED", "not in the dump")
    refused(tmp_path / "1", op, section("normParam", quantType=2), inputs, [y], "NOT_SUPPORTED", "quantisation")
    wrong = [x, gamma, strides[:2], offset]
    refused(tmp_path / "2", op, section("normParam"), wrong, [y], "ERROR", "[2]", "[4, 6, 32]")


def test_cohere_layer_norm(tmp_path):
    x, weight = values(5, 3, 32, seed=1), positive(3, 32, seed=2)
    y = ln(wide(x), wide(weight), np.zeros(32)).astype(F16)
    judge(tmp_path, "CohereLayerNormOperation", {"epsilon": EPS}, [x, weight], [y], "norm of every head")


def test_gather_pre_rms_norm(tmp_path):
    x, res, gamma = values(5, 32, seed=1), values(9, 32, seed=2), positive(1, 32, seed=3)
    indices = np.array([8, 0, 3, 3, 1], np.int32)
    total = wide(x) + wide(res)[indices]
    outputs = [rms(total, wide(gamma)[0]).astype(F32), total.astype(F16)]
    op, parameters = "GatherPreRmsNormOperation", {"epsilon": EPS}
    judge(tmp_path / "r", op, parameters, [x, res, indices, gamma], outputs, "gather, add, norm")
    far = np.array([8, 0, 9, 3, 1], np.int32)
    refused(tmp_path / "0", op, parameters, [x, res, far, gamma], outputs, "ERROR", "index 9 at place 2", "[0, 9)")


def test_norm_rope_reshape(tmp_path):
    tokens, front, back = 4, 32, 16
    x, gamma, key = values(tokens, 1, front, seed=1), positive(front, seed=2), values(tokens, back, seed=3)
    cos, sin = (np.tile(t, (1, 2)).astype(F16) for t in tables(tokens, back)[:2])
    slots = np.array([5, -1, 0, 6], np.int32)
    cache = values(2, 4, 1, front + back, seed=4)
    rows = np.concatenate([rms(wide(x), wide(gamma)), rotate(key, cos, sin, 1)[:, None]], -1).astype(F16)
    after = cache.copy()
    for token, slot in enumerate(slots):
        if slot >= 0:
            after[slot // 4, slot % 4] = rows[token]
    op, parameters = "NormRopeReshapeOperation", {"precisionMode": 0, "rotaryCoeff": 2, "epsilon": EPS}
    before = [x, gamma, key, cos, sin, slots, cache]
    variant = "norm, rotated key, cache"
    judge(tmp_path / "b", op, parameters, [*before[:6], after], [after], variant, before=before)
    # After only: what was written is judged, and the row says that it is no more.
    rows = check(tmp_path / "a", op, parameters, [*before[:6], after], [after])
    assert rows[0]["result"].startswith("PASS") and "written part only" in rows[0]["note"] + rows[0]["result"]
    wrong = after.copy()
    wrong[1, 1, 0, 3] += 1
    rows = check(tmp_path / "w", op, parameters, [*before[:6], wrong], [wrong])
    assert rows[0]["result"] == "FAILED"
    far = [*before[:5], np.array([5, 8, 0, 6], np.int32), after]
    refused(tmp_path / "0", op, parameters, far, [after], "ERROR", "slot 8 of token 1")
    refused(tmp_path / "1", op, {"rotaryCoeff": 4}, before, [after], "NOT_SUPPORTED", "rotaryCoeff 4")


def test_rope_q_concat(tmp_path):
    q, other = values(5, 3 * 16, seed=1), values(5, 3, 8, seed=2)
    cos, sin = (np.tile(t, (1, 2)).astype(F16) for t in tables(5, 16)[:2])
    y = np.concatenate([rotate(q, cos, sin, 1).reshape(5, 3, 16), wide(other)], -1).astype(F16)
    judge(tmp_path, "RopeQConcatOperation", None, [q, cos, sin, other], [y], "halves")
    inputs = [q, cos, sin, other[:, :2]]
    refused(tmp_path / "0", "RopeQConcatOperation", None, inputs, [y], "ERROR", "[5, 48]", "[5, 2, 8]")


def test_dynamic_ntk(tmp_path):
    positions = np.array([0, 1, 2, 3, 60000], np.int32)
    inv_freq, lengths = np.random.default_rng(1).random((2, 8)).astype(F32), np.array([3, 2], np.int32)
    angle = np.tile(positions.astype(F32)[:, None] * np.repeat(inv_freq, lengths, 0), (1, 2)).astype(np.float64)
    outputs = [np.sin(angle).astype(F16), np.cos(angle).astype(F16)]
    inputs = [positions, inv_freq, lengths]
    judge(tmp_path, "DynamicNTKOperation", {"outputType": 1}, inputs, outputs, "tables")
    inputs = [positions, inv_freq, np.array([3, 3], np.int32)]
    refused(tmp_path / "0", "DynamicNTKOperation", {"outputType": 1}, inputs, outputs, "ERROR", "[3, 3]")


def test_every_operation_of_this_family_is_in_the_list(tmp_path: Path):
    from assay_command import run

    listed = run("opcheck", "--ops-list").stdout
    for name in (
        "RmsNorm", "LayerNorm", "Rope", "RopeGrad", "FastSoftMax", "FastSoftMaxGrad", "RmsNormBackward",
        "RmsNormWithStride", "LayerNormWithStride", "CohereLayerNorm", "GatherPreRmsNorm", "NormRopeReshape",
        "RopeQConcat", "DynamicNTK",
    ):  # fmt: skip
        assert f"{name}Operation" in listed
