# SPDX-License-Identifier: Apache-2.0
"""`assay invariance -- CMD`: the program is run once a scenario. What is found in models: tests/python."""

from __future__ import annotations

import json
import sys

import pytest
from assay_command import run
from test_answers import refusal, validator

PROGRAM = """
import sys, torch
from assay import invariance
fault = sys.argv[1]
if fault == "failing":
    raise SystemExit(5)

class Head(torch.nn.Module):
    def forward(self, x):
        return x - x.mean(0, keepdim=True) if fault == "mean" else x * 2

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Embedding(256, 8), Head())
with torch.no_grad():
    for tokens in invariance.load_scenario().calls():
        print("computed", model(torch.tensor(tokens)).shape)
"""


@pytest.fixture
def invariance(tmp_path):
    script = tmp_path / "engine.py"
    script.write_text(PROGRAM)

    def call(fault: str, *words: object):
        options = ["--host", "torch", "--batch", "2", "--decode", "0", *words]
        return run("invariance", *options, "--", sys.executable, script, fault, cwd=tmp_path)

    return call


@pytest.mark.slow
def test_a_healthy_program_leaves_nothing_and_ends_with_0(invariance, tmp_path):
    done = invariance("none", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    validator("invariance").validate(found)
    assert (found["outcome"], found["exit_status"]) == ("no_leak", 0)
    # embedding, times two
    assert (found["leaks"], found["judged"], found["unsplit"]) == ([], 2, 0)
    assert done.stderr.count("computed") >= len(found["scenarios"])
    assert {path.name for path in tmp_path.iterdir()} == {"engine.py"}


@pytest.mark.slow
def test_a_mean_over_the_batch_is_a_leak(invariance, tmp_path):
    done = invariance("mean", "-o", "runs")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("leaks: 1 (aten.sub.Tensor, step 0; ")
    assert done.stdout.endswith("next: assay show runs/neighbours-a 1::aten.sub.Tensor.0\n")
    assert run("show", "runs/neighbours-a", "1::aten.sub.Tensor.0", cwd=tmp_path).returncode == 0
    found = json.loads(invariance("mean", "--json").stdout)
    validator("invariance").validate(found)
    assert (found["outcome"], found["exit_status"]) == ("leaks", 1)
    assert found["sentence"] == done.stdout.splitlines()[0]


def test_a_program_that_fails_cannot_be_judged_and_leaves_nothing(invariance, tmp_path):
    done = invariance("failing")
    assert done.returncode == 125
    assert done.stdout.startswith(
        "cannot judge: the program ended with status 5 in the scenario equal-1\nnext: assay dump"
    )
    assert {path.name for path in tmp_path.iterdir()} == {"engine.py"}
    answer = json.loads(invariance("failing", "--json").stdout)
    validator("invariance").validate(answer)
    assert (answer["outcome"], answer["exit_status"]) == ("cannot_judge", 125)
    assert done.stdout == f"{answer['sentence']}\nnext: {answer['next']}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--batch", "1", "--", "true"], "expected a whole number from 2"),
        (["--length", "2", "--", "true"], "expected a whole number from 3"),
        (["-o", ".", "--", "true"], "is there already"),
        ([], "no program was given"),
    ],
)
def test_wrong_options_end_with_2(tmp_path, words, said):
    assert said in refusal("invariance", *words, cwd=tmp_path)
