# SPDX-License-Identifier: Apache-2.0
"""Pairs that dump_data() names: metadata.json of the writer, tensors of torch and numpy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest
import torch
from assay_command import read_csv, run, the_report

from assay.torch.strict import dump_data


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    """Two tokens of pair 1 and one of pair 7; returns the folder that holds golden_tensor."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(3)
    golden = torch.randn(2, 5)
    torch.save((golden * 1.5).half(), "mine.pth")
    numpy.save("mine.npy", (golden + 1).numpy())
    for token, data, mine in [(0, 1, "mine.pth"), (1, 1, "mine.npy"), (0, 7, "mine.npy")]:
        dump_data(token_id=token, data_id=data, golden_data=golden, my_path=mine, output_path="dump")
    (metadata,) = tmp_path.glob("dump/*/*/golden_tensor/metadata.json")
    return metadata.parent.parent


def check(rows):
    assert [(row["token_id"], row["data_id"]) for row in rows] == [("0", "1"), ("1", "1"), ("0", "7")]
    assert [row["my_dtype"] for row in rows] == ["torch.float16", "torch.float32", "torch.float32"]
    assert float(rows[0]["relative_euclidean_distance"]) == pytest.approx(0.5, rel=1e-3)
    for row in rows[1:]:
        assert float(row["max_absolute_error"]) == pytest.approx(1, rel=1e-6)
    assert [row["cmp_fail_reason"] for row in rows] == ["", "", ""]


def test_every_token_of_every_pair_is_a_row(pairs, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    done = run("llm", "compare", "-gp", pairs, "-mp", pairs, "-o", "out", name="msit")
    assert done.returncode == 0, done.stderr
    check(read_csv(the_report(elsewhere / "out")))
    done = run("compare", pairs / "golden_tensor", pairs, "-o", "second")
    assert done.returncode == 0, done.stderr
    check(read_csv(the_report(elsewhere / "second")))


def test_a_dump_may_be_moved_as_a_whole(pairs, tmp_path):
    moved = tmp_path / "moved"
    moved.mkdir()
    (tmp_path / "dump").rename(moved / "dump")
    done = run("compare", moved / pairs.relative_to(tmp_path), moved, "-o", moved)
    assert done.returncode == 0, done.stderr
    check(read_csv(the_report(moved)))


def test_what_is_missing_or_no_pair_is_named(pairs, tmp_path):
    (tmp_path / "mine.pth").unlink()
    path = pairs / "golden_tensor" / "metadata.json"
    metadata = json.loads(path.read_text())
    metadata["9"] = {"4": ["alone.pth"]}
    path.write_text(json.dumps(metadata))
    done = run("llm", "compare", "-gp", pairs, "-mp", pairs, "-o", tmp_path, name="msit")
    assert "Invalid data in golden metadata.json, data_id: 9, token_id: 4" in done.stderr
    rows = read_csv(the_report(tmp_path))
    assert [row["cmp_fail_reason"] for row in rows] == [
        f"my_data_path: {tmp_path / 'mine.pth'} is not a file.",
        "",
        "",
    ]


def test_a_cut_metadata_file_is_an_error_with_its_place(tmp_path):
    folder = Path(tmp_path, "golden_tensor")
    folder.mkdir()
    (folder / "metadata.json").write_text('{"1": {"0": ["a"')
    done = run("compare", tmp_path, tmp_path, "-o", tmp_path)
    assert done.returncode == 2 and "metadata.json: at byte 16" in done.stderr
