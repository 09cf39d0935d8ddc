# SPDX-License-Identifier: Apache-2.0
"""Many ranks at a glance: which differ from their peers, and what they have in common."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from assay_command import run

RANKS, LAYERS = 16, 3


def write_job(folder: Path, wrong: set[int]) -> Path:
    """A native run of RANKS ranks without groups in its manifest; layer 1 of `wrong` ranks is 30 % too large."""
    for rank in range(RANKS):
        draw = np.random.default_rng(rank)
        place = folder / f"rank{rank}"
        place.mkdir(parents=True)
        payload, lines = bytearray(64), []
        for layer in range(LAYERS):
            tensor = draw.standard_normal((4, 16)).astype(np.float32)
            if rank in wrong and layer == 1:
                tensor *= np.float32(1.3)
            line = {"n": layer, "step": 0, "node": f"layers.{layer}", "type": "Linear", "order": layer}
            line |= {"role": "output", "slot": "", "dtype": "float32", "shape": [4, 16]}
            line |= {"file": "step-000000.safetensors", "offset": len(payload), "bytes": tensor.nbytes}
            payload += tensor.tobytes()
            lines.append(json.dumps(line))
        (place / "step-000000.safetensors").write_bytes(payload)
        (place / "records.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "manifest.json").write_text(json.dumps({"format": "assay-run", "version": 1, "complete": True}))
    return folder


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """golden, and mine wrong in the ranks 4, 5, 6, 7 of 16: with tp=4 those of one place of dp."""
    folder = tmp_path_factory.mktemp("jobs")
    return write_job(folder / "golden", set()), write_job(folder / "mine", {4, 5, 6, 7})


def ranks_of(jobs, out, *options):
    done = run("compare", *jobs, "-cl", "api", "--json", "-o", out, *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["ranks"]


def test_told_groups_name_what_the_ranks_have_in_common(jobs, tmp_path):
    plain = ranks_of(jobs, tmp_path)
    assert plain["sentence"].startswith("ranks 4-7 differ from their 12 peers, from layers.1 output of step 0 on: 0.3 ")
    told = ranks_of(jobs, tmp_path, "--parallel", "tp=4,dp=4")
    assert told["sentence"].startswith("the 4 ranks of dp 1 differ from their 12 peers")
    assert [one["groups"] for one in told["beside_peers"]] == [{"dp": 1, "tp": rank} for rank in range(4)]
    other = ranks_of(jobs, tmp_path, "--parallel", "tp=2,pp=2,dp=4")  # neighbours of four are one replica there, too
    assert other["sentence"].startswith("the 4 ranks of dp 1 differ")


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ("tp=4,dp=2", "parallel tp=4,dp=2 is a job of 8 ranks, and {mine} has a rank 8"),
        ("tp=4,qp=4", "'qp' is no kind of group (tp, pp, dp, ep, cp)"),
        ("tp:4", "is not like 'tp=2,pp=2,dp=2'"),
    ],
)
def test_groups_that_are_none_of_the_job_are_refused(jobs, tmp_path, sizes, said):
    done = run("compare", *jobs, "-o", tmp_path, "--parallel", sizes)
    assert done.returncode == 2
    assert said.format(mine=jobs[1]) in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())
