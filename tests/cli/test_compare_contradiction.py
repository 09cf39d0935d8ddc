# SPDX-License-Identifier: Apache-2.0
"""Pairs whose own values say that they do not belong together are not called sure."""

from __future__ import annotations

import numpy as np
import pytest
from assay_command import read_csv, run, the_report

RNG = np.random.default_rng(11)
GOLDEN = RNG.standard_normal((16, 64)).astype(np.float32)
OTHER = RNG.standard_normal((16, 64)).astype(np.float32)

# r of golden with what is named, by hand: cov / (sigma sigma).
RELATED = {
    "noise of a tenth": GOLDEN + 0.1 * OTHER,  # r = 1 / sqrt(1.01)
    "scale": 3 * GOLDEN,  # r = 1, relative L2 2
    "sign": -GOLDEN,  # r = -1, relative L2 2
    "offset": GOLDEN + 5,  # r = 1, relative L2 5
    "as much noise as the limit leaves": GOLDEN + 0.9 * OTHER,  # r^2 = 1 / 1.81 = 0.55
}
CONTRADICTED = {
    "unrelated": OTHER,  # relative L2 sqrt(2)
    "more noise than value": GOLDEN + 1.2 * OTHER,  # r^2 = 1 / 2.44 = 0.41
    "unrelated small ones": 0.1 * OTHER,  # relative L2 1.005
    "unrelated large ones": 3 * OTHER,  # relative L2 3.2
}


def row_of(tmp_path, golden, mine):
    for side, value in (("golden", golden), ("mine", mine)):
        (tmp_path / side).mkdir()
        np.save(tmp_path / side / "act_fn.npy", value)
        np.save(tmp_path / side / "other.npy", np.arange(8, dtype=np.float32))
    done = run("compare", tmp_path / "golden", tmp_path / "mine", "-o", tmp_path / "r")
    assert done.returncode == 0, done
    return next(row for row in read_csv(the_report(tmp_path / "r")) if row["node"].startswith("act_fn"))


@pytest.mark.parametrize("case", CONTRADICTED)
def test_equal_names_are_not_sure_when_values_contradict(tmp_path, case):
    row = row_of(tmp_path, GOLDEN, CONTRADICTED[case])
    assert (row["matched_by"], float(row["confidence"])) == ("equal names", 0.2)
    assert "values contradict the pair" in row["note"]


@pytest.mark.parametrize("case", RELATED)
def test_faults_that_keep_golden_s_pattern_contradict_nothing(tmp_path, case):
    row = row_of(tmp_path, GOLDEN, RELATED[case])
    assert (row["matched_by"], float(row["confidence"])) == ("equal names", 1.0)
    assert "contradict" not in row["note"]


def statistics_row(tmp_path, golden, mine):
    for side, value in (("golden", golden), ("mine", mine)):
        (tmp_path / side).mkdir()
        np.save(tmp_path / side / "act_fn.npy", value)
        np.save(tmp_path / side / "other.npy", np.arange(8, dtype=np.float32))
    done = run("compare", tmp_path / "golden", tmp_path / "mine", "-o", tmp_path / "r", "--stats")
    assert done.returncode == 0, done
    report = the_report(tmp_path / "r", "statistics_cmp_report_*.csv")
    return next(row for row in read_csv(report) if row["node"].startswith("act_fn"))


RECTIFIED = np.maximum(GOLDEN, 0)
PEAKED = np.where(np.arange(GOLDEN.size).reshape(GOLDEN.shape) == 77, 40 * GOLDEN.max(), GOLDEN).astype(np.float32)


@pytest.mark.parametrize("mine", [OTHER, 3 * OTHER, PEAKED, GOLDEN[:8]], ids=["unrelated", "large", "peak", "shape"])
def test_statistics_contradict(tmp_path, mine):
    row = statistics_row(tmp_path, GOLDEN, mine)
    assert (row["matched_by"], float(row["confidence"])) == ("equal names", 0.2)
    assert "contradict the pair" in row["note"]


@pytest.mark.parametrize(
    "mine",
    [GOLDEN + 0.1 * OTHER, 3 * GOLDEN, -GOLDEN, GOLDEN + 5, RECTIFIED],
    ids=["noise of a tenth", "scale", "sign", "offset", "rectified"],
)
def test_statistics_of_a_related_tensor_contradict_nothing(tmp_path, mine):
    row = statistics_row(tmp_path, GOLDEN, mine)
    assert (row["matched_by"], float(row["confidence"])) == ("equal names", 1.0)
    assert "contradict" not in row["note"]


def test_a_common_mean_is_no_relation(tmp_path):
    """cosine 0.99 of two tensors that have nothing in common but their mean."""
    row = row_of(tmp_path, GOLDEN + 10, OTHER + 10)
    assert float(row["cosine_similarity"]) > 0.98
    assert "values contradict the pair" in row["note"]


def test_other_shapes_contradict_too(tmp_path):
    row = row_of(tmp_path, GOLDEN, GOLDEN[:8])
    assert float(row["confidence"]) == 0.2
    assert "shapes contradict the pair" in row["note"]


def test_constants_and_few_values_say_nothing(tmp_path):
    row = row_of(tmp_path, np.ones((16, 64), np.float32), OTHER)
    assert float(row["confidence"]) == 1.0


def test_pairs_by_place_are_not_called_by_values(tmp_path):
    """Names that say nothing; one tensor of a chain differs altogether and has only its place."""
    chain = [RNG.standard_normal((8, 32)).astype(np.float32) for _ in range(5)]
    for side in ("golden", "mine"):
        (tmp_path / side).mkdir()
        for index, value in enumerate(chain):
            other = side == "mine" and index == 4
            np.save(tmp_path / side / f"{side}{index}.npy", OTHER[:8, :32] if other else value)
    run("compare", tmp_path / "golden", tmp_path / "mine", "-o", tmp_path / "r")
    rows = read_csv(the_report(tmp_path / "r"))
    assert [row["matched_by"] for row in rows] == ["values"] * 4 + ["order and shape"]
    assert float(rows[-1]["confidence"]) <= 0.2
    assert "values contradict the pair" in rows[-1]["note"]
