# SPDX-License-Identifier: Apache-2.0
"""`assay invariance -- CMD`: the program is run once a scenario. What is found in models: tests/python."""

from __future__ import annotations

import json

import pytest
import warm_python
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
    for scenario in invariance.load_scenarios():
        for tokens in scenario.calls() + scenario.calls()[: fault == "once more"]:
            print("computed", model(torch.tensor(tokens)).shape)
"""


@pytest.fixture
def invariance(tmp_path):
    script = tmp_path / "engine.py"
    script.write_text(PROGRAM)

    def call(fault: str, *words: object):
        options = ["--host", "torch", "--batch", "2", "--decode", "0", "--no-padding", *words]
        return run("invariance", *options, "--", warm_python.python(), script, fault, cwd=tmp_path)

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


def test_one_process_runs_all_scenarios_and_finds_the_same(invariance, tmp_path):
    done = invariance("mean", "-o", "runs", "--one-process", "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    validator("invariance").validate(found)
    # equal-1 to -3, neighbours-a to -c, chunks and prefix of two calls, two of threads, first-a and -b
    assert len(found["scenarios"]) == 12 and done.stderr.count("computed") == 14
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"scenarios", "scenarios.json"}
    (leak,) = found["leaks"]
    assert (leak["module"], leak["operator"], leak["step"]) == ("1", "aten.sub.Tensor", 0)
    # neighbours-a is the fourth scenario.
    assert found["next"] == "assay show runs/scenarios 1::aten.sub.Tensor.0 --step 3"
    shown = run(*found["next"].split()[1:], cwd=tmp_path)
    assert shown.returncode == 0 and "aten.sub.Tensor" in shown.stdout


@pytest.mark.parametrize(
    "words",
    [pytest.param([], id="alone", marks=pytest.mark.slow), pytest.param(["--one-process"], id="one process")],
)
def test_other_forward_calls_than_asked_for_cannot_be_judged(invariance, tmp_path, words):
    done = invariance("once more", *words, "--json", "--length", "3")
    assert done.returncode == 125, done.stderr
    answer = json.loads(done.stdout)
    validator("invariance").validate(answer)
    # Each scenario has one call more than it should; chunks and prefix have two.
    said = "made 26 forward calls, its scenarios have 14" if words else "made 3 forward calls in the scenario chunks"
    assert said in answer["sentence"]
    assert {path.name for path in tmp_path.iterdir()} == {"engine.py"}


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
