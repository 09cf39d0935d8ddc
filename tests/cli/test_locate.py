# SPDX-License-Identifier: Apache-2.0
"""`assay locate` on runs written by hand: every outcome and every kind of sentence, statuses, JSON, options."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import torch
import warm_python
from assay_command import run
from operator_runs import write_run
from test_answers import refusal, validator


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    """The reference: float32, with operators."""
    return write_run(tmp_path_factory.mktemp("golden") / "run", dtype=torch.float32)


def sentence_of(done: subprocess.CompletedProcess) -> str:
    """The sentence behind the remarks, its lines joined."""
    starts = ("first bad: ", "clean: ", "cannot judge: ", "golden itself is not clean: ")
    *lines, following = done.stdout.splitlines()
    assert following.startswith("next: ") and not any("next: " in line for line in lines), done.stdout
    first = next(i for i, line in enumerate(lines) if line.startswith(starts))
    return " ".join(line.strip() for line in lines[first:])


def twice(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * 2


def one_element(tensor: torch.Tensor) -> torch.Tensor:
    tensor[3, 5] = tensor[3, 5] * 1.25 + 1
    return tensor


CASES = {
    "healthy": ({}, 0, "clean: all 10 operators are exact to rounding; all 7 weights are golden's; errors above "),
    "float32": ({"dtype": torch.float32}, 0, "clean: all 10 operators are exact to rounding"),
    "float16": ({"dtype": torch.float16}, 0, "clean: all 10 operators are exact to rounding"),
    "weight": (
        {"gains": {1: 1.03}},
        1,
        "first bad: blocks.1.norm (ScaleNorm: aten.mul.Tensor, step 0): weight differs from golden by a constant"
        " factor 1.03 (3 % relative L2); inputs were clean",
    ),
    "attribute": (
        {"scales": {1: 0.51}},
        1,
        "first bad: blocks.1.norm (ScaleNorm: aten.mul.Tensor, step 0): other 0.51 against golden's 0.5;"
        " inputs were clean (errors above 0.3 % of a value would have been seen); 10 operators exact to rounding;"
        " confidence high",
    ),
    "dense kernel": (
        {"kernels": {"blocks.1.proj": lambda t: t * 1.03}},
        1,
        "first bad: blocks.1.proj (Projection: aten.mm.default, step 0): a constant factor 1.03; its own error is ",
    ),
    "sparse kernel": (
        {"kernels": {"blocks.1.proj": one_element}},
        1,
        "first bad: blocks.1.proj (Projection: aten.mm.default, step 0): only element [3, 5] differs: ",
    ),
    "wiring": ({"stale": 1}, 1, "first bad: blocks.1.proj"),
    "another program": ({"extra": 1}, 0, "clean: all 11 operators are exact to rounding"),
    "unknown operators": (
        {"unknown": True},
        125,
        "cannot judge: no fault was found in 6 of 10 operators, the others were not judged"
        " (mylib.product.default: no reference: 4)",
    ),
    "systematic": (
        {"scales": {0: 0.51, 1: 0.51, 2: 0.51}},
        1,
        "the same in all 3 layers, so systematic; inputs were clean (errors above 0.3 % of a value would have been"
        " seen); 2 more candidates",
    ),
    "modules": ({"level": "module"}, 0, "clean: 22 captured values of mine are golden's function of the ones before"),
    "modules, kernel": (
        {"level": "module", "kernels": {"blocks.1.proj": lambda t: t * 1.03}},
        1,
        "first bad: blocks.1.proj (Projection, step 0): a constant factor 1.03; golden's function of the run's own"
        " values gives something else",
    ),
    "modules, weight": (
        {"level": "module", "gains": {1: 1.03}},
        1,
        "first bad: blocks.1.norm (ScaleNorm, step 0): weight differs from golden by a constant factor 1.03",
    ),
    "no weights": (
        {"level": "module", "weights": False},
        125,
        "cannot judge: no fault was found in 10 operators, but no weights of mine were captured",
    ),
    "statistics": (
        {"level": "module", "weights": False, "statistics": True},
        125,
        "cannot judge: mine holds statistics only, and how far healthy runs differ was not measured",
    ),
    "other shapes": ({"rows": 8, "extra": 1}, 125, "cannot judge: mine was not given what golden was: "),
}


@pytest.mark.parametrize("case", CASES)
def test_sentence_and_status(golden, tmp_path, case):
    plan, status, sentence = CASES[case]
    done = run("locate", golden, write_run(tmp_path / "mine", **plan))
    assert (done.returncode, done.stderr) == (status, "")
    assert sentence in sentence_of(done)


def test_golden_without_operators_says_what_to_capture(tmp_path):
    golden = write_run(tmp_path / "golden", ("python", "my script.py"), dtype=torch.float32, level="module")
    done = run("locate", golden, write_run(tmp_path / "mine", level="module"))
    assert done.returncode == 125
    assert done.stdout == (
        "cannot judge: golden was captured without operators, and how far healthy runs\n"
        "  differ was not measured\n"
        "next: assay dump --level operator -o golden-operators --next"
        f" 'assay locate golden-operators {tmp_path}/mine' -- python 'my script.py'\n"
    )


def test_operators_of_mine_are_judged_without_golden_but_never_called_clean(tmp_path):
    golden = write_run(tmp_path / "golden", dtype=torch.float32, level="module")
    done = run("locate", golden, write_run(tmp_path / "mine"))
    assert "only a golden with operators can tell" in sentence_of(done)
    done = run("locate", golden, write_run(tmp_path / "wrong", kernels={"blocks.2.proj": twice}))
    assert sentence_of(done).startswith(
        "first bad: blocks.2.proj (Projection: aten.mm.default, step 0): a constant factor 2; its own error"
    )


def test_equal_bits_need_no_program(tmp_path):
    golden = write_run(tmp_path / "golden", level="module")
    done = run("locate", golden, write_run(tmp_path / "mine", level="module"))
    assert done.returncode == 0
    assert sentence_of(done) == "clean: all 11 captured values of mine are golden's, bit for bit; confidence high"


def test_golden_that_is_wrong_itself_is_said_first(tmp_path):
    golden = write_run(tmp_path / "golden", dtype=torch.float32, kernels={"blocks.0.proj": twice})
    sentence = sentence_of(run("locate", golden, write_run(tmp_path / "mine")))
    assert sentence.startswith("golden itself is not clean: blocks.0.proj (Projection: aten.mm.default, step 0): ")


def test_several_candidates_are_listed_in_order(golden, tmp_path):
    mine = write_run(tmp_path / "mine", gains={2: 1.03}, scales={1: 0.51})
    done = run("locate", golden, mine)
    assert sentence_of(done).startswith("first bad: blocks.1.norm")
    assert done.stdout.startswith("then: blocks.2.norm (ScaleNorm: aten.mul.Tensor, step 0): weight differs")


def test_slices_leave_out_what_the_output_does_not_depend_on(golden, tmp_path):
    mine = write_run(tmp_path / "mine", gains={1: 1.03})
    assert sentence_of(run("locate", golden, mine, "--slice", "blocks.0")).startswith("clean: ")
    assert sentence_of(run("locate", golden, mine, "--slice", "blocks.0.proj:")).startswith("clean: ")
    for inside in ("blocks.1", "head", "step 0", "token 0"):
        assert sentence_of(run("locate", golden, mine, "--slice", inside)).startswith("first bad: blocks.1.norm")


def test_json_has_the_keys_of_the_document(golden, tmp_path):
    done = run("locate", golden, write_run(tmp_path / "mine", gains={1: 1.03}), "--json")
    assert done.returncode == 1
    verdict = json.loads(done.stdout)
    assert (verdict["version"], verdict["outcome"], verdict["level"], verdict["token"]) == (1, "first_wrong", "O", 0)
    assert verdict["coverage"] == {
        "my_ops": 10,
        "matched": 10,
        "judged": 10,
        "judgeable": 10,
        "values": 0,
        "judged_around": 0,
        "without_partner": 0,
        "weights": 7,
        "weights_compared": 7,
        "weights_by_function": 0,
        "unjudged": {},
    }
    first = verdict["first_bad"]
    assert (first["module"], first["slot"], first["verdict"], first["confidence"]) == (
        "blocks.1.norm",
        "weight",
        "weight",
        "high",
    )
    assert first["e_out"] == pytest.approx(0.03, rel=0.1)
    assert first["golden"] == "blocks.1.norm::aten.mul.Tensor.0"
    assert [link["my"] for link in verdict["chain"]] == ["blocks.1", "blocks.2", ""]
    assert all(link["e_out"] == pytest.approx(0.03, rel=0.2) for link in verdict["chain"])
    assert set(verdict) == documented_keys()
    validator("locate").validate(verdict)


def documented_keys() -> set[str]:
    """The first column of the JSON table of docs/commands/locate.md."""
    text = (Path(__file__).parents[2] / "docs" / "commands" / "locate.md").read_text().split("## JSON")[1]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {key for row in rows for key in re.findall(r"`(\w+)`", row)}


def test_the_verdict_is_the_same_for_any_number_of_threads(golden, tmp_path):
    mine = write_run(tmp_path / "mine", kernels={"blocks.1.proj": one_element})
    texts = {run("locate", golden, mine, "--json", "-j", jobs).stdout for jobs in (1, 2, 5)}
    assert len(texts) == 1


def test_own_errors_can_be_left_out(golden, tmp_path):
    mine = write_run(tmp_path / "mine", kernels={"blocks.1.proj": twice})
    done = run("locate", golden, mine, "--own-error", "off")
    assert "its own error" not in done.stdout
    assert (
        "first bad: blocks.1.proj (Projection, step 0): a constant factor 2; golden's function of the run's own"
        in sentence_of(done)
    )
    done = run("locate", golden, write_run(tmp_path / "same"), "--own-error", "off")
    assert done.returncode == 0 and "confidence medium" in sentence_of(done)  # its kernels were not looked at
    done = run("locate", golden, mine, "--own-error", "inferred")
    assert "no ground for a verdict" in done.stderr


def test_wrong_options_are_one_sentence_and_status_2(golden, tmp_path):
    for arguments, sentence in [
        ([], "the golden run is missing: assay locate GOLDEN MINE"),
        ([golden], "the run to judge is missing: assay locate GOLDEN MINE"),
        ([golden, golden, "--mine", "true"], "either two runs or --golden and --mine, not both"),
        (["--mine", "true"], '--golden "COMMAND" is missing beside --mine'),
        ([golden, tmp_path / "none"], "none"),
        ([golden, golden, "--slice", "blocks.9"], "--slice blocks.9: mine has no such module, operator or step"),
        ([golden, golden, "--slice", "step x"], "mine has no such module, operator or step"),
        ([golden, golden, "--own-error", "maybe"], "maybe"),
        ([golden, golden, "--max-memory", "lots"], "is no size"),
    ]:
        assert sentence in refusal("locate", *arguments)


def test_exit_zero_and_a_full_disk(golden, tmp_path):
    mine = write_run(tmp_path / "mine", gains={1: 1.03})
    assert run("locate", golden, mine, "--exit-zero").returncode == 0
    with open("/dev/full", "w") as full:
        done = run("locate", golden, mine, stdout=full)
    assert done.returncode == 2
    assert done.stderr == "error: standard output: cannot write: No space left on device\n"


def test_a_damaged_run_is_judged_by_what_is_left(golden, tmp_path):
    mine = write_run(tmp_path / "mine")
    records = mine / "rank0" / "records.jsonl"
    lines = records.read_text().splitlines(keepends=True)
    records.write_text("".join(lines[:20]) + '{"n": 20, "step"')
    done = run("locate", golden, mine)
    assert done.returncode == 125
    assert "the last line is incomplete" in done.stderr
    assert sentence_of(done).startswith("cannot judge: ")


# ---- two command lines ----

PROGRAM = """
import sys, torch
torch.manual_seed(0)

class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(1 + 0.1 * torch.randn(32))

    def forward(self, x):
        return x * self.weight

model = torch.nn.Sequential(torch.nn.Linear(32, 32), Norm(), torch.nn.Linear(32, 32)).eval()
kind = sys.argv[1]
with torch.no_grad():
    if kind == "wrong":
        model[1].weight *= 1.03
    if kind != "golden":
        model = model.bfloat16()
    print(model(torch.ones(4, 32, dtype=model[0].weight.dtype)).sum().item() > -1e9)
if kind == "failing":
    sys.exit(3)
"""


def locate_programs(tmp_path, mine: str, *more):
    (tmp_path / "program.py").write_text(PROGRAM)
    python = warm_python.python()
    return run(
        "locate",
        "--golden",
        f"{python} program.py golden",
        "--mine",
        mine.replace("python", python),
        *more,
        cwd=tmp_path,
    )


def test_two_programs_are_captured_and_judged(tmp_path):
    done = locate_programs(tmp_path, "python program.py wrong", "-o", "runs")
    assert done.returncode == 1, done
    assert sentence_of(done).startswith("first bad: 1 (Norm"), done.stdout
    assert "weight differs from golden" in sentence_of(done)
    assert {path.name for path in (tmp_path / "runs").iterdir()} >= {"golden", "mine"}
    again = locate_programs(tmp_path, "python program.py wrong", "-o", "runs")
    assert again.returncode == 2
    assert "is there already" in again.stderr


def in_short(verdict: dict) -> dict:
    """Without what names a run's folder."""
    return {key: value for key, value in verdict.items() if key not in ("next", "notes")}


@pytest.mark.parametrize("fault", [pytest.param("", id="healthy"), pytest.param(" --fault", id="weight")])
def test_one_go_judges_all_that_two_captures_are_judged_by(tmp_path, fault):
    program = Path(__file__).parents[2] / "examples" / "small_model.py"
    golden, mine = (f"{warm_python.python()} {program}{options}" for options in ("", " --bfloat16" + fault))
    done = run("locate", "--golden", golden, "--mine", mine, "--json", cwd=tmp_path)
    at_once = json.loads(done.stdout[done.stdout.index("{") :])
    for folder, command in (("golden", golden), ("mine", mine)):
        words = ["dump", "--weights", "--level", "operator" if fault or folder == "golden" else "module"]
        assert run(*words, "-o", folder, "--", *command.split(), cwd=tmp_path).returncode == 0
    in_two = json.loads(run("locate", "golden", "mine", "--json", cwd=tmp_path).stdout)
    assert in_short(at_once) == in_short(in_two)
    assert not any("more place" in note for note in at_once["notes"]), at_once["notes"]


@pytest.mark.slow
def test_a_page_that_cannot_be_written_is_no_fault_of_the_programs(tmp_path):
    page = locate_programs(tmp_path, "python program.py right", "-o", "runs", "--html", "no/such/page.html")
    assert page.returncode == 2
    assert "no/such/page.html" in page.stderr
    assert "judged" not in page.stderr


def test_a_failing_program_ends_the_search(tmp_path):
    done = locate_programs(tmp_path, "python program.py failing")
    assert done.returncode == 2
    assert "the program of mine ended with status 3" in done.stderr


def test_a_program_without_pytorch_is_said(tmp_path):
    done = locate_programs(tmp_path, "true")
    assert done.returncode == 2
    assert "is the program one that computes with PyTorch?" in done.stderr
    assert done.stderr.endswith("\nnext: assay help own-host\n")


def test_why_lists_what_clean_stands_on(golden, tmp_path):
    done = run("locate", golden, write_run(tmp_path / "mine"), "--why")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "holds: inputs are equal" in lines
    assert "holds: every path to the outputs is judged" in lines
    assert any(line.startswith("power: errors above ") for line in lines), done.stdout
    part = run("locate", golden, write_run(tmp_path / "part", unknown=True), "--why")
    assert any(line.startswith("open: operators are judged: ") for line in part.stdout.splitlines()), part.stdout
