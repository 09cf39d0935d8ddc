# SPDX-License-Identifier: Apache-2.0
"""Verdicts without a golden program: floors measured on healthy pairs, and modules of known classes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from assay_command import run
from operator_runs import write_run

PROMPTS = range(1, 7)


def louder(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * 1.03


def pair(folder: Path, seed: int, **plan: object) -> tuple[Path, Path]:
    """Golden and mine of one prompt, captured at module level; mine has what `plan` says."""
    both = {key: plan.pop(key) for key in ("statistics", "weights") if key in plan}
    golden = write_run(folder / "golden", dtype=torch.float32, level="module", seed=seed, **both)
    return golden, write_run(folder / "mine", level="module", seed=seed, **both, **plan)


@pytest.fixture(scope="module")
def floors(tmp_path_factory) -> list[str]:
    """--floor-run of healthy pairs."""
    folder = tmp_path_factory.mktemp("healthy")
    options = []
    for seed in PROMPTS:
        golden, mine = pair(folder / str(seed), seed)
        options += ["--floor-run", f"{golden}:{mine}"]
    return options


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_healthy_run_is_clean_with_low_confidence(tmp_path, floors):
    golden, mine = pair(tmp_path, 0)
    done = run("locate", golden, mine, *floors)
    assert done.returncode == 0, done.stdout + done.stderr
    text = words(done.stdout)
    assert "captured values differ no more from golden than healthy runs do" in text
    assert "all 7 weights are golden's" in text
    assert "confidence low" in text


def test_the_first_module_beyond_its_floor_is_named(tmp_path, floors):
    golden, mine = pair(tmp_path, 0, kernels={"blocks.1.norm": louder})
    done = run("locate", golden, mine, *floors)
    assert done.returncode == 1
    assert "first bad: blocks.1.norm (ScaleNorm, step 0): a constant factor 1.03; differs" in words(done.stdout)
    assert "confidence low" in words(done.stdout)


def test_a_floor_file_that_is_missing_is_an_input_error(tmp_path):
    for name in ("g", "m"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "t.npy", np.ones(3, np.float32))
    done = run("compare", "g", "m", "--floor", "none.json", "-o", "out", cwd=tmp_path)
    assert (done.returncode, "none.json" in done.stderr) == (2, True)
    assert not (tmp_path / "out").exists()


def test_without_floors_nothing_is_claimed(tmp_path):
    golden, mine = pair(tmp_path, 0, kernels={"blocks.1.norm": louder})
    done = run("locate", golden, mine)
    assert done.returncode == 125
    assert "cannot judge: golden was captured without operators" in words(done.stdout)


def test_a_module_of_a_known_class_needs_no_floor(tmp_path):
    golden, mine = pair(tmp_path, 0, kernels={"blocks.1.proj": louder})
    records = mine / "rank0" / "records.jsonl"
    records.write_text(records.read_text().replace('"Projection"', '"Linear"'))
    done = run("locate", golden, mine)
    assert done.returncode == 1
    assert "first bad: blocks.1.proj (Linear, step 0): its own error is " in words(done.stdout)


def test_a_kept_profile_judges_as_the_runs_do(tmp_path, floors):
    golden, mine = pair(tmp_path, 0, kernels={"blocks.1.norm": louder})
    kept = tmp_path / "floor.json"
    measured = run("locate", golden, mine, "--json", *floors, "--save-floor", kept)
    again = run("locate", golden, mine, "--json", "--floor", kept)
    assert measured.returncode == again.returncode == 1, measured.stderr + again.stderr
    assert measured.stdout == again.stdout
    profile = json.loads(kept.read_text())
    assert (profile["format"], profile["level"], profile["pairs"]) == ("assay floor profile", "N", len(PROMPTS))
    assert len(profile["floors"]["blocks.0.norm call 0 step 0 output"]) == 5


def test_statistics_have_floors_of_their_own(tmp_path):
    options = []
    for seed in PROMPTS:
        golden, mine = pair(tmp_path / str(seed), seed, statistics=True)
        options += ["--floor-run", f"{golden}:{mine}"]
    golden, healthy = pair(tmp_path / "healthy", 0, statistics=True)
    _, wrong = pair(tmp_path / "wrong", 0, statistics=True, kernels={"blocks.1.norm": lambda t: t * 1.5})
    clean = run("locate", golden, healthy, *options)
    assert clean.returncode == 0, clean.stdout + clean.stderr
    done = run("locate", golden, wrong, *options)
    assert done.returncode == 1
    assert "first bad: blocks.1.norm (ScaleNorm, step 0): differs" in words(done.stdout)


def test_two_healthy_pairs_are_said_to_be_few(tmp_path, floors):
    golden, mine = pair(tmp_path, 0)
    done = run("locate", golden, mine, *floors[:4])
    assert "2 healthy pairs" in words(done.stdout + done.stderr)


@pytest.mark.parametrize("content", ["", "{}", '{"format": "assay floor profile", "version": 2, "level": "N"}'])
def test_a_file_that_is_no_profile_is_refused(tmp_path, content):
    golden, mine = pair(tmp_path, 0)
    (tmp_path / "floor.json").write_text(content)
    done = run("locate", golden, mine, "--floor", tmp_path / "floor.json")
    assert done.returncode == 2
    assert "floor.json" in done.stderr


def test_nan_is_named_where_it_begins(tmp_path):
    def overflow(tensor: torch.Tensor) -> torch.Tensor:
        tensor[0, 0] = float("nan")
        return tensor

    golden, mine = pair(tmp_path, 0, weights=False, kernels={"blocks.1.norm": overflow})
    done = run("locate", golden, mine)
    assert done.returncode == 1
    assert "first bad: blocks.1.norm (ScaleNorm, step 0): 1 NaN out of finite inputs" in words(done.stdout)
