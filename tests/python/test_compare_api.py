# SPDX-License-Identifier: Apache-2.0
"""assay.compare and compare_arrays against a NumPy fp64 oracle over generated arrays."""

from __future__ import annotations

import json
import math
import threading
import time

import numpy as np
import openpyxl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import assay
from assay._compare import compare_arrays

FLOAT_DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGER_DTYPES = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool]
SPECIAL = [0.0, -0.0, math.nan, math.inf, -math.inf, 1e-45, -3e-39, 1e-7, 1.1920929e-07, 6e-8, 65504.0]


def oracle(golden, mine):
    """The corrected metrics, straight from their formulas; `golden` and `mine` are flat float64."""
    finite = np.isfinite(golden) & np.isfinite(mine)
    nan_g, nan_m, inf_g, inf_m = np.isnan(golden), np.isnan(mine), np.isinf(golden), np.isinf(mine)
    out = {
        "value_count": golden.size,
        "compared_count": finite.sum(),
        "nan_only_in_golden": (nan_g & ~nan_m).sum(),
        "nan_only_in_mine": (nan_m & ~nan_g).sum(),
        "nan_in_both": (nan_g & nan_m).sum(),
        "inf_in_both": (inf_g & inf_m).sum(),
        "inf_sign_mismatches": (inf_g & inf_m & (golden != mine)).sum(),
    }
    g, m = golden[finite], mine[finite]
    if g.size == 0:
        return out
    error = np.abs(m - g)
    relative = error / np.maximum(np.abs(g), 2.0**-23)
    norm_g = np.sqrt((g * g).sum())
    zero = int(not g.any()) + int(not m.any())
    # Scaled, because squares of subnormal numbers vanish.
    unit_g, unit_m = (x / max(np.abs(x).max(), 5e-324) for x in (g, m))
    cosine = (unit_g * unit_m).sum() / (np.linalg.norm(unit_g) * np.linalg.norm(unit_m) or 1.0)
    out |= {
        "masked_count": (np.abs(g) <= 2.0**-23).sum(),
        "cosine_similarity": [cosine, 0.0, 1.0][zero],
        "max_relative_error": relative.max(),
        "mean_relative_error": relative.sum() / g.size,
        "max_absolute_error": error.max(),
        "mean_absolute_error": error.sum() / g.size,
    }
    if norm_g > 2.0**-23:
        out["relative_euclidean_distance"] = np.sqrt(((m - g) ** 2).sum()) / norm_g
    return out


def check(golden, mine):
    expected = oracle(
        golden.detach().to(torch.float64).numpy().ravel(), mine.detach().to(torch.float64).numpy().ravel()
    )
    found = compare_arrays(golden, mine)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-12, abs=1e-300 if name != "cosine_similarity" else 1e-13), (
            name
        )


@st.composite
def pairs(draw):
    dtype = draw(st.sampled_from(FLOAT_DTYPES + INTEGER_DTYPES))
    shape = draw(st.lists(st.integers(0, 7), max_size=4))
    count = math.prod(shape)
    if dtype in FLOAT_DTYPES:
        limit = 2.0**15 if dtype == torch.float16 else 2.0**60
        values = st.floats(-limit, limit, width=32) | st.sampled_from(SPECIAL)
    elif dtype == torch.bool:
        values = st.booleans()
    else:
        info = torch.iinfo(dtype)
        values = st.integers(max(info.min, -(2**50)), min(info.max, 2**50))
    sides = []
    for _ in range(2):
        tensor = torch.tensor(draw(st.lists(values, min_size=count, max_size=count))).to(dtype).reshape(shape)
        if draw(st.booleans()) and tensor.dim() >= 2:
            tensor = tensor.transpose(0, 1).contiguous().transpose(0, 1)  # same values, other strides
        if draw(st.booleans()) and tensor.dim() >= 1:
            tensor = tensor.repeat_interleave(2, dim=-1)[..., ::2]
        sides.append(tensor)
    return tuple(sides)


@settings(max_examples=2000, deadline=None)
@given(pairs())
def test_metrics_agree_with_numpy_for_every_dtype_shape_and_stride(pair):
    check(*pair)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(FLOAT_DTYPES), st.integers(1, 200_000))
def test_large_arrays_agree_with_numpy_and_do_not_depend_on_threads(seed, dtype, count):
    generator = torch.Generator().manual_seed(seed)
    golden = torch.randn(count, generator=generator).to(dtype)
    mine = (golden + 0.01 * torch.randn(count, generator=generator)).to(dtype)
    check(golden, mine)
    assert compare_arrays(golden, mine, jobs=1) == compare_arrays(golden, mine, jobs=3)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 50), st.integers(1, 50))
def test_kl_divergence_agrees_with_numpy(seed, rows, columns):
    random = np.random.default_rng(seed)
    golden = random.normal(size=(rows, columns)) * 5
    mine = golden + random.normal(size=golden.shape)

    def log_softmax(x, axis):
        shifted = x - x.max(axis=axis, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))

    def kl(axis):
        log_p, log_q = log_softmax(golden, axis), log_softmax(mine, axis)
        return (np.exp(log_p) * (log_p - log_q)).sum(axis=axis)

    found = compare_arrays(golden, mine)
    assert found["kl_divergence"] == pytest.approx(kl(None), rel=1e-9, abs=1e-12)
    assert found["kl_row_mean"] == pytest.approx(kl(1).mean(), rel=1e-9, abs=1e-12)
    assert found["kl_row_max"] == pytest.approx(kl(1).max(), rel=1e-9, abs=1e-12)


def test_arrays_of_every_kind_are_taken_without_a_copy():
    golden = np.arange(6, dtype=np.float32)
    assert compare_arrays(golden, torch.arange(6.0))["identical"]
    assert compare_arrays(golden[::-1], golden[::-1].copy())["identical"]  # negative strides
    assert compare_arrays(golden, torch.arange(6.0, requires_grad=True))["identical"]
    golden.flags.writeable = False
    assert compare_arrays(memoryview(golden), golden)["identical"]
    assert compare_arrays(np.float32(3).reshape(()), torch.tensor(3.0))["identical"]
    assert compare_arrays(golden, golden[:5])["state"] == "count_mismatch"
    assert compare_arrays(golden[:0], golden[:0])["state"] == "empty"


def test_the_gil_is_released():
    array = np.random.default_rng(0).normal(size=20_000_000).astype(np.float32)
    ticks = []
    stop = threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.perf_counter()
    compare_arrays(array, array)
    end = time.perf_counter()
    stop.set()
    thread.join()
    # The other thread went on in the middle of the comparison.
    assert any(start + 0.25 * (end - start) < t < start + 0.75 * (end - start) for t in ticks)


@pytest.fixture
def folders(tmp_path):
    arrays = {"a": np.array([1.0, 2.0]), "b": np.array([3.0, 4.0]), "c": np.array([5.0])}
    changed = {"a": np.array([1.0, 2.0]), "b": np.array([3.0, 4.5])}
    for side, content in (("g", arrays), ("m", changed)):
        (tmp_path / side).mkdir()
        for name, array in content.items():
            np.save(tmp_path / side / f"{name}.npy", array)
    return tmp_path / "g", tmp_path / "m"


def test_compare_gives_rows_verdict_worst_and_unmatched(folders):
    result = assay.compare(*folders, rel_l2=0.01)
    assert [row["max_absolute_error"] for row in result.rows] == [0.0, 0.5]
    assert result.passed is False
    alone = "1 tensor of golden has no partner in mine, first c output"
    assert result.verdict == f"differs: 1 of 2 pairs beyond the limits; {alone}"
    assert result.gaps == [alone]
    assert [row["golden_data_path"] for row in result.worst(5)] == [str(folders[0] / "b.npy")]
    assert [(row["side"], row["path"]) for row in result.unmatched] == [("golden", str(folders[0] / "c.npy"))]
    assert result.coverage == pytest.approx(80.0)
    assert "worst rows" in str(result)
    assert assay.compare(*folders).passed is None


def test_options_may_be_python_values(folders):
    rules = [{"match": "*b*", "rel_l2": 0.5}, {"rel_l2": 0.0}]
    assert assay.compare(*folders, thresholds=rules).passed is None, "golden's c has no partner: 125"
    assert assay.compare(*folders, thresholds=rules, allow_unmatched=["c"]).passed is True
    pairs_ = [{"golden": "a.npy", "my": "b.npy"}]
    (row,) = assay.compare(*folders, map=pairs_).rows
    assert row["matched_by"] == "explicit"
    assert len(assay.compare(*folders, token_map={0: 0}).rows) in (0, 2)


def test_results_become_frames_and_files(folders, tmp_path):
    result = assay.compare(*folders)
    frame = result.to_pandas()
    assert list(frame["max_absolute_error"]) == [0.0, 0.5]
    result.write(tmp_path / "r.xlsx")
    assert openpyxl.load_workbook(tmp_path / "r.xlsx")["api"].max_row == 3
    result.write(tmp_path / "r.jsonl")
    assert [json.loads(line)["level"] for line in (tmp_path / "r.jsonl").read_text().splitlines()] == ["api"] * 2
    result.write(tmp_path / "r.csv")
    with pytest.raises(assay.Error, match="ends with"):
        result.write(tmp_path / "r.txt")


def test_errors_have_code_and_path(folders, tmp_path):
    with pytest.raises(assay.FileError) as caught:
        assay.compare(folders[0], tmp_path / "none")
    assert caught.value.code == "NotFound"
    with pytest.raises(assay.FormatError, match="unknown key"):
        assay.compare(*folders, thresholds=[{"x": 1}])
    with pytest.raises(assay.FormatError, match="level must be"):
        assay.compare(*folders, level="token")


def test_the_planted_fault_is_the_first_row_beyond_its_limit(tmp_path):
    """The life of a tensor: a model, two captures of generate(), the comparison, one wrong RMSNorm weight."""
    pytest.importorskip("assay._capture", reason="the capture half is not built")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4, vocab_size=128
    )
    model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.arange(8)[None]
    with assay.capture(model, str(tmp_path / "golden")):
        model.generate(ids, max_new_tokens=2, do_sample=False)
    with torch.no_grad():
        model.model.layers[1].input_layernorm.weight *= 1.03
    model = model.to(torch.bfloat16)
    with assay.capture(model, str(tmp_path / "mine")):
        model.generate(ids, max_new_tokens=2, do_sample=False)

    result = assay.compare(tmp_path / "golden", tmp_path / "mine", rel_l2=0.02)

    assert result.coverage == 100.0
    failed = [row["node"] for row in result.rows if row["result"] == "fail"]
    assert failed[0] == "model.layers.1.input_layernorm output"
    layers = assay.compare(tmp_path / "golden", tmp_path / "mine", level="layer").rows
    assert len(layers) == 3 * 2  # layers, tokens


def test_a_callable_is_one_more_column_and_its_message_joins_the_reason(folders):
    golden, mine = folders

    def largest(golden_values, my_values):
        assert golden_values.dtype == np.float32 and golden_values.ndim == 1
        return float(np.abs(golden_values - my_values).max()), "looked at"

    def broken(golden_values, my_values):
        raise ValueError("no such metric")

    rows = assay.compare(golden, mine, algorithms=[largest, broken]).rows
    for row in rows:
        assert row["largest"] == pytest.approx(row["max_absolute_error"], rel=1e-6)
        assert row["broken"] is None
        assert "looked at" in row["cmp_fail_reason"] and "no such metric" in row["cmp_fail_reason"]
