# SPDX-License-Identifier: Apache-2.0
"""`assay opcheck` on activations, element-wise operations and quantisation: right outputs pass, wrong ones fail."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from opcheck_dump import check, to_bf16

RNG = np.random.default_rng(7)


def normal(*shape, scale=2.0):
    return RNG.normal(size=shape) * scale


def stored(values, dtype):
    """float64 values as a device would write them."""
    return to_bf16(values) if dtype == "bfloat16" else np.asarray(values).astype(dtype)


def loaded(tensor):
    """What the operation really gets: values after they were rounded."""
    if isinstance(tensor, tuple):
        return (tensor[0].astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return np.asarray(tensor).astype(np.float64)


def wrong(tensor, place=0):
    """The same tensor with one element far off."""
    dtype = tensor[1] if isinstance(tensor, tuple) else tensor.dtype.name
    values = loaded(tensor).copy()
    if "float" in dtype:
        values.flat[place] = values.flat[place] * 1.5 + 1
    else:
        values.flat[place] += 3 if values.flat[place] < 100 else -3
    return stored(values, dtype)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu_gradient(a):
    return sigmoid(a) + a * sigmoid(a) * (1 - sigmoid(a))


def torch_gelu(x, form):
    return torch.nn.functional.gelu(torch.from_numpy(x), approximate=form).numpy()


ACTIVATIONS = {
    "relu": ({"activationType": 1}, lambda x: np.maximum(x, 0)),
    "gelu tanh": ({"activationType": 2}, lambda x: torch_gelu(x, "tanh")),
    "gelu erf": ({"activationType": 2}, lambda x: torch_gelu(x, "none")),
    "fast gelu": ({"activationType": 3}, lambda x: x * sigmoid(1.702 * x)),
    "swish": ({"activationType": 4, "scale": 1.5}, lambda x: x * sigmoid(1.5 * x)),
    "log": ({"activationType": 5}, lambda x: np.log(x)),
    "swiglu": (
        {"activationType": 6, "dim": -1},
        lambda x: x[..., :32] * sigmoid(x[..., :32]) * x[..., 32:],
    ),
    "swiglu dim 0": ({"activationType": 6, "dim": 0}, lambda x: x[:2] * sigmoid(x[:2]) * x[2:]),
    "sigmoid": ({"activationType": 8}, sigmoid),
    "faster gelu": ({"activationType": 9}, lambda x: x * sigmoid(1.702 * x)),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activation(tmp_path, name, dtype):
    parameters, formula = ACTIVATIONS[name]
    x = stored(np.abs(normal(4, 64)) if name == "log" else normal(4, 64), dtype)
    y = stored(formula(loaded(x)), dtype)
    row = check(tmp_path / "right", "ActivationOperation", parameters, [x], [y])[0]
    assert row["result"] == "PASS", row
    row = check(tmp_path / "wrong", "ActivationOperation", parameters, [x], [wrong(y, 37)])[0]
    assert row["result"] == "FAILED", row
    assert row["reason"]


def test_gelu_says_which_form_matched(tmp_path):
    x = normal(8, 64).astype(np.float32)
    for form, label in (("tanh", "tanh"), ("none", "erf")):
        y = torch_gelu(x.astype(np.float64), form).astype(np.float32)
        row = check(tmp_path / form, "ActivationOperation", {"activationType": 2}, [x], [y])[0]
        assert row["result"] == "PASS"
        assert label in row["note"]
    # The form in the parameters is binding.
    far = np.linspace(-3, -2, 64).astype(np.float32)
    y = torch_gelu(far.astype(np.float64), "none").astype(np.float32) * np.float32(1.02)
    assert check(tmp_path / "off", "ActivationOperation", {"activationType": 2}, [far], [y])[0]["result"] == "FAILED"


def test_swiglu_backward(tmp_path):
    x, dy = stored(normal(3, 20), "float16"), stored(normal(3, 10), "float16")
    a, b = loaded(x)[:, :10], loaded(x)[:, 10:]
    dx = np.concatenate([loaded(dy) * b * silu_gradient(a), loaded(dy) * a * sigmoid(a)], axis=1).astype(np.float16)
    parameters = {"activationType": 7, "dim": -1}
    assert check(tmp_path / "right", "ActivationOperation", parameters, [dy, x], [dx])[0]["result"] == "PASS"
    swapped = np.concatenate([dx[:, 10:], dx[:, :10]], axis=1)
    assert check(tmp_path / "wrong", "ActivationOperation", parameters, [dy, x], [swapped])[0]["result"] == "FAILED"


def test_a_dropped_swish_scale_fails(tmp_path):
    x = normal(4, 64).astype(np.float16)
    y = (loaded(x) * sigmoid(loaded(x))).astype(np.float16)
    row = check(tmp_path, "ActivationOperation", {"activationType": 4, "scale": 1.1}, [x], [y])[0]
    assert row["result"] == "FAILED"


PAIRS = {
    "add": (8, np.add),
    "mul": (9, np.multiply),
    "realdiv": (10, np.divide),
    "sub": (15, np.subtract),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", sorted(PAIRS))
@pytest.mark.parametrize("shapes", [((4, 32), (4, 32)), ((4, 32), (32,)), ((4, 1), (1, 32))])
def test_arithmetic(tmp_path, name, dtype, shapes):
    number, function = PAIRS[name]
    a, b = stored(normal(*shapes[0]), dtype), stored(np.abs(normal(*shapes[1])) + 0.5, dtype)
    y = stored(function(loaded(a), loaded(b)), dtype)
    parameters = {"elewiseType": number}
    assert check(tmp_path / "right", "ElewiseOperation", parameters, [a, b], [y])[0]["result"] == "PASS"
    row = check(tmp_path / "wrong", "ElewiseOperation", parameters, [a, b], [wrong(y, 5)])[0]
    assert row["result"] == "FAILED"
    other = {"elewiseType": 15 if number == 8 else 8}
    assert check(tmp_path / "other", "ElewiseOperation", other, [a, b], [y])[0]["result"] == "FAILED"


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_are_added_exactly(tmp_path, dtype):
    a = np.array([2**30 + 1, -5, 7], dtype=dtype)
    y = a + a
    assert check(tmp_path / "right", "ElewiseOperation", {"elewiseType": 8}, [a, a], [y])[0]["result"] == "PASS"
    y = y + np.array([0, 1, 0], dtype=dtype)
    assert check(tmp_path / "wrong", "ElewiseOperation", {"elewiseType": 8}, [a, a], [y])[0]["result"] == "FAILED"


@pytest.mark.parametrize("overflow", [np.inf, 65504.0])
def test_products_beyond_float16_are_infinite_or_saturated(tmp_path, overflow):
    a = np.array([300.0, 2.0, -300.0], dtype=np.float16)
    y = np.array([overflow, 4.0, overflow], dtype=np.float16)
    b = np.array([300.0, 2.0, -300.0], dtype=np.float16)
    row = check(tmp_path / "right", "ElewiseOperation", {"elewiseType": 9}, [a, b], [y])[0]
    assert row["result"] == "PASS", row
    y = np.array([1000.0, 4.0, overflow], dtype=np.float16)
    assert check(tmp_path / "wrong", "ElewiseOperation", {"elewiseType": 9}, [a, b], [y])[0]["result"] == "FAILED"


UNARY = {
    "muls": ({"elewiseType": 2, "mulsParam": {"varAttr": 0.125}}, lambda x: x * 0.125),
    "muls, older spelling": ({"elewiseType": 2, "varAttr": -2.5}, lambda x: x * -2.5),
    "cos": ({"elewiseType": 3}, np.cos),
    "sin": ({"elewiseType": 4}, np.sin),
    "neg": ({"elewiseType": 5}, np.negative),
    "tanh": ({"elewiseType": 20}, np.tanh),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", sorted(UNARY))
def test_functions_of_one_tensor(tmp_path, name, dtype):
    parameters, function = UNARY[name]
    x = stored(normal(3, 50), dtype)
    y = stored(function(loaded(x)), dtype)
    assert check(tmp_path / "right", "ElewiseOperation", parameters, [x], [y])[0]["result"] == "PASS"
    assert check(tmp_path / "wrong", "ElewiseOperation", parameters, [x], [wrong(y, 11)])[0]["result"] == "FAILED"


LOGIC = {
    "logical not": (7, lambda a, _: a == 0),
    "logical and": (11, lambda a, b: (a != 0) & (b != 0)),
    "logical or": (12, lambda a, b: (a != 0) | (b != 0)),
    "less": (13, np.less),
    "greater": (14, np.greater),
    "equal": (16, np.equal),
}


@pytest.mark.parametrize("name", sorted(LOGIC))
def test_logic_and_comparisons_are_exact(tmp_path, name):
    number, function = LOGIC[name]
    a, b = (RNG.integers(0, 3, (4, 9)).astype(np.int8) for _ in range(2))
    y = function(a, b).astype(np.int8)
    inputs = [a] if number == 7 else [a, b]
    parameters = {"elewiseType": number}
    assert check(tmp_path / "right", "ElewiseOperation", parameters, inputs, [y])[0]["result"] == "PASS"
    y = y.copy()
    y[2, 3] ^= 1
    assert check(tmp_path / "wrong", "ElewiseOperation", parameters, inputs, [y])[0]["result"] == "FAILED"


CASTS = [("float32", "float16", 1), ("float16", "float32", 0), ("float32", "int32", 3), ("int64", "int32", 3)]


@pytest.mark.parametrize(("source", "target", "number"), CASTS)
def test_cast(tmp_path, source, target, number):
    x = normal(5, 40, scale=40).astype(source)
    y = x.astype(target)
    parameters = {"elewiseType": 1, "outTensorType": number}
    assert check(tmp_path / "right", "ElewiseOperation", parameters, [x], [y])[0]["result"] == "PASS"
    if target == "int32":
        y = np.floor(x).astype(target) if source == "float32" else y + (x == x.flat[3]).astype(target)
    else:
        y = np.nextafter(y, np.array(0, dtype=target), where=np.arange(40) == 3, out=y.copy())
    row = check(tmp_path / "wrong", "ElewiseOperation", parameters, [x], [y])[0]
    assert row["result"] == "FAILED", row


def test_cast_to_bfloat16_rounds_to_even(tmp_path):
    x = normal(5, 40).astype(np.float32)
    parameters = {"elewiseType": 1, "outTensorType": 27}
    assert check(tmp_path / "right", "ElewiseOperation", parameters, [x], [to_bf16(x)])[0]["result"] == "PASS"
    cut = (x.view(np.uint32) >> 16).astype(np.uint16), "bfloat16"
    assert check(tmp_path / "wrong", "ElewiseOperation", parameters, [x], [cut])[0]["result"] == "FAILED"


def test_cast_to_another_type_than_declared(tmp_path):
    x = normal(4).astype(np.float32)
    row = check(tmp_path / "int", "ElewiseOperation", {"elewiseType": 1, "outTensorType": 3}, [x], [x])[0]
    assert row["result"] == "ERROR"
    assert "outTensorType is int32" in row["reason"]
    # Tensors that are judged in another precision come here converted.
    half, parameters = x.astype(np.float16), {"elewiseType": 1, "outTensorType": 0}
    y = half.astype(np.float32)
    row = check(tmp_path / "forced", "ElewiseOperation", parameters, [half], [y], "-pmode", "force_fp16")[0]
    assert row["result"] == "PASS", row
    assert "outTensorType is float32" in row["note"]


def q8(x):
    return np.clip(np.round(x), -128, 127).astype(np.int8)


@pytest.mark.parametrize("uses_parameters", [True, False])
def test_quant_with_and_without_its_parameters(tmp_path, uses_parameters):
    x = normal(6, 30, scale=20).astype(np.float16)
    scale, offset = float(np.float16(3.5)), 2
    y = q8(loaded(x) * scale + offset) if uses_parameters else q8(loaded(x))
    parameters = {"elewiseType": 6, "quantParam": {"inputScale": 3.5, "inputOffset": 2, "asymmetric": False}}
    row = check(tmp_path / "right", "ElewiseOperation", parameters, [x], [y])[0]
    assert row["result"] == "PASS"
    assert row["note"].startswith("with" if uses_parameters else "without") or "inputScale" in row["note"]
    assert check(tmp_path / "wrong", "ElewiseOperation", parameters, [x], [wrong(y, 4)])[0]["result"] == "FAILED"


@pytest.mark.parametrize("with_offset", [True, False])
def test_quant_per_channel(tmp_path, with_offset):
    x = normal(6, 30, scale=5).astype(np.float16)
    scale = (np.abs(normal(30)) / 10 + 0.05).astype(np.float16)
    offset = RNG.integers(-9, 9, 30).astype(np.int8) if with_offset else np.zeros(0, dtype=np.int8)
    y = q8(loaded(x) / loaded(scale) + (offset if with_offset else 0))
    parameters = {"elewiseType": 17}
    inputs = [x, scale, offset]
    assert check(tmp_path / "right", "ElewiseOperation", parameters, inputs, [y])[0]["result"] == "PASS"
    assert check(tmp_path / "wrong", "ElewiseOperation", parameters, inputs, [wrong(y, 9)])[0]["result"] == "FAILED"
    back = np.clip((y.astype(np.float64) - (offset if with_offset else 0)) * loaded(scale), -65504, 65504)
    inputs = [y, scale, offset]
    parameters = {"elewiseType": 18}
    z = back.astype(np.float16)
    assert check(tmp_path / "back", "ElewiseOperation", parameters, inputs, [z])[0]["result"] == "PASS"
    assert check(tmp_path / "off", "ElewiseOperation", parameters, inputs, [wrong(z, 9)])[0]["result"] == "FAILED"


def test_dynamic_quant_symmetric(tmp_path):
    x = normal(6, 30).astype(np.float16)
    scale = np.abs(loaded(x)).max(-1) / 127
    y = q8(loaded(x) / scale[:, None])
    parameters = {"elewiseType": 19, "quantParam": {"asymmetric": False}}
    rows = check(tmp_path / "right", "ElewiseOperation", parameters, [x], [y, scale.astype(np.float32)])
    assert [row["result"] for row in rows] == ["PASS", "PASS"]
    rows = check(tmp_path / "wrong", "ElewiseOperation", parameters, [x], [y, scale.astype(np.float32) * 2])
    assert [row["result"] for row in rows] == ["PASS", "FAILED"]


def test_rows_of_zeros_have_no_quantised_values(tmp_path):
    x = normal(4, 8).astype(np.float16)
    x[2] = 0
    scale = np.abs(loaded(x)).max(-1) / 127
    with np.errstate(invalid="ignore"):
        y = np.where(scale[:, None] > 0, loaded(x) / scale[:, None], 99)
    rows = check(
        tmp_path, "ElewiseOperation", {"elewiseType": 19, "quantParam": {}}, [x], [q8(y), scale.astype(np.float32)]
    )
    assert [row["result"] for row in rows] == ["PASS", "PASS"]
    assert "1 of 4 rows have no scale" in rows[0]["note"]


def test_dynamic_quant_asymmetric(tmp_path):
    x = (normal(6, 30) + 1).astype(np.float16)
    most, least = loaded(x).max(-1), loaded(x).min(-1)
    scale = (most - least) / 255
    offset = -(most + least) / (2 * scale)
    y = q8(np.clip(loaded(x) / scale[:, None] + offset[:, None], -128, 127))
    parameters = {"elewiseType": 19, "quantParam": {"asymmetric": True}}
    outputs = [y, scale.astype(np.float32), offset.astype(np.float32)]
    rows = check(tmp_path / "right", "ElewiseOperation", parameters, [x], outputs)
    assert [row["result"] for row in rows] == ["PASS"] * 3
    outputs[2] = -outputs[2]
    rows = check(tmp_path / "wrong", "ElewiseOperation", parameters, [x], outputs)
    assert [row["result"] for row in rows] == ["PASS", "PASS", "FAILED"]


def hifloat8_values():
    """Finite values by bit pattern, from the published tables: prefix, exponent in sign and magnitude, fraction."""
    values = {0: 0.0}
    for bits in range(1, 128):
        if bits < 8:
            values[bits] = 2.0 ** (bits - 23)
            continue
        text = f"{bits:07b}"
        for prefix, exponent_bits in (("11", 4), ("10", 3), ("01", 2), ("001", 1), ("0001", 0)):
            if text.startswith(prefix):
                field, fraction = text[len(prefix) :][:exponent_bits], text[len(prefix) + exponent_bits :]
                exponent = int("1" + field[1:], 2) * (-1 if field[0] == "1" else 1) if field else 0
                values[bits] = (1 + int(fraction, 2) / 2 ** len(fraction)) * 2.0**exponent
                break
    values.pop(0x6F)  # infinity
    return values


def to_float8(x, dtype):
    if dtype != "hifloat8":
        return torch.from_numpy(x).to(getattr(torch, dtype)).view(torch.uint8).numpy(), dtype
    table = hifloat8_values()
    bits, values = np.array(list(table)), np.array(list(table.values()))
    nearest = bits[np.abs(np.abs(x)[..., None] - values).argmin(-1)]
    return np.where((x < 0) & (nearest != 0), nearest | 0x80, nearest).astype(np.uint8), dtype


@pytest.mark.parametrize(
    ("dtype", "number", "limit"), [("hifloat8", 34, 32768), ("float8_e5m2", 35, 57344), ("float8_e4m3fn", 36, 448)]
)
def test_quantisation_to_8_bit_floats(tmp_path, dtype, number, limit):
    x = normal(6, 30).astype(np.float16)
    scale = np.abs(loaded(x)).max(-1) / limit
    y, _ = to_float8(loaded(x) / scale[:, None], dtype)
    off = y.copy()
    off[2, 3] ^= 0x04
    for parameters, name, right, wrong_bits, more in (
        ({"elewiseType": 19, "outTensorType": number}, "dynamic", y, off, [scale.astype(np.float32)]),
        ({"elewiseType": 6, "outTensorType": number}, "static", to_float8(loaded(x), dtype)[0], None, []),
    ):
        rows = check(tmp_path / name, "ElewiseOperation", parameters, [x], [(right, dtype), *more])
        assert {row["result"] for row in rows} == {"PASS"}, rows
        if wrong_bits is None:
            wrong_bits = right.copy()
            wrong_bits[1, 1] ^= 0x04
        rows = check(tmp_path / f"{name} off", "ElewiseOperation", parameters, [x], [(wrong_bits, dtype), *more])
        assert rows[0]["result"] == "FAILED"


def test_swiglu_quant(tmp_path):
    x = normal(5, 48).astype(np.float16)
    a, b = loaded(x)[:, :24], loaded(x)[:, 24:]
    y = a * sigmoid(a) * b
    scale = np.abs(y).max(-1) / 127
    outputs = [q8(y / scale[:, None]), scale.astype(np.float32)]
    rows = check(tmp_path / "right", "SwigluQuantOperation", {"quantType": 0}, [x], outputs)
    assert [row["result"] for row in rows] == ["PASS", "PASS"]
    rows = check(tmp_path / "wrong", "SwigluQuantOperation", {"quantType": 0}, [x], [wrong(outputs[0], 7), outputs[1]])
    assert [row["result"] for row in rows] == ["FAILED", "PASS"]
    rows = check(tmp_path / "type", "SwigluQuantOperation", {"quantType": 3}, [x], outputs)
    assert {row["result"] for row in rows} == {"NOT_SUPPORTED"}


X = np.ones((2, 6), dtype=np.float16)
BROKEN = [
    ("ActivationOperation", {"activationType": 10}, [X], [X], "NOT_SUPPORTED", "activationType 10 is unknown"),
    ("ActivationOperation", None, [X], [X], "NOT_SUPPORTED", "activationType 0"),
    ("ActivationOperation", {"activationType": "relu"}, [X], [X], "ERROR", "not an integer"),
    ("ActivationOperation", {"activationType": 1}, [X, X], [X], "ERROR", "2 inputs in the dump, 1 expected"),
    ("ActivationOperation", {"activationType": 1}, [None], [X], "ERROR", "0 inputs"),
    ("ActivationOperation", {"activationType": 1}, [X], [], "ERROR", "0 outputs"),
    ("ActivationOperation", {"activationType": 6, "dim": 7}, [X], [X], "ERROR", "axis 7"),
    ("ActivationOperation", {"activationType": 6}, [X[:, :5]], [X], "ERROR", "no halves"),
    ("ActivationOperation", {"activationType": 7}, [X, X], [X], "ERROR", "the gradient has shape [2, 6]"),
    ("ActivationOperation", {"activationType": 2, "geluMode": 5}, [X], [X], "NOT_SUPPORTED", "geluMode 5"),
    ("ElewiseOperation", {"elewiseType": 21}, [X], [X], "NOT_SUPPORTED", "elewiseType 21 is unknown"),
    ("ElewiseOperation", {"elewiseType": 8}, [X], [X], "ERROR", "1 input in the dump, 2 expected"),
    ("ElewiseOperation", {"elewiseType": 8}, [None, X], [X], "ERROR", "intensor0"),
    ("ElewiseOperation", {"elewiseType": 8}, [X, X[:, :4]], [X], "ERROR", "do not broadcast"),
    ("ElewiseOperation", {"elewiseType": 8}, [X, X], [X[:, :4]], "ERROR", "the inputs give [2, 6]"),
    ("ElewiseOperation", {"elewiseType": 2}, [X], [X], "ERROR", "mulsParam.varAttr is missing"),
    ("ElewiseOperation", {"elewiseType": 1, "outTensorType": 99}, [X], [X], "NOT_SUPPORTED", "outTensorType 99"),
    ("ElewiseOperation", {"elewiseType": 17}, [X, X[0, :4], X[0, :0]], [X], "ERROR", "does not broadcast"),
    ("ElewiseOperation", {"elewiseType": 19, "quantParam": {"asymmetric": True}}, [X], [X], "ERROR", "3 expected"),
]


@pytest.mark.parametrize(("op_type", "parameters", "inputs", "outputs", "result", "reason"), BROKEN)
def test_what_cannot_be_computed_is_said(tmp_path, op_type, parameters, inputs, outputs, result, reason):
    rows = check(tmp_path, op_type, parameters, inputs, outputs)
    assert {row["result"] for row in rows} == {result}, rows
    assert reason in rows[0]["reason"]


def test_a_layout_without_rows_is_not_supported(tmp_path):
    rows = check(tmp_path, "ActivationOperation", {"activationType": 6}, [X], [X[:, :3]], nz=("intensor0",))
    assert rows[0]["result"] == "NOT_SUPPORTED"
    assert "FRACTAL_NZ" in rows[0]["reason"]


def test_pointwise_operations_work_on_the_stored_layout(tmp_path):
    x = normal(2, 16, 16).astype(np.float16)  # [columns / 16, rows, 16]
    y = (loaded(x) * 2).astype(np.float16)
    both = ("intensor0", "intensor1", "outtensor0")
    assert check(tmp_path / "add", "ElewiseOperation", {"elewiseType": 8}, [x, x], [y], nz=both)[0]["result"] == "PASS"
    for number, nz in ((10, both), (8, ("intensor0",))):
        rows = check(tmp_path / str(number), "ElewiseOperation", {"elewiseType": number}, [x, x], [y], nz=nz)
        assert rows[0]["result"] == "NOT_SUPPORTED"
        assert "FRACTAL_NZ" in rows[0]["reason"]
