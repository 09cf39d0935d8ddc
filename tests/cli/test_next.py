# SPDX-License-Identifier: Apache-2.0
"""What comes next: every outcome of `locate` and `compare` ends with one command that runs as it is printed, and with
--json keeps to the published schema. Following these commands, and nothing else, leads to the operator."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
import torch
import warm_python
from assay_command import run, write_native_run, write_torch_tree
from operator_runs import write_run
from test_answers import answers, refusal, validator


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("golden") / "run", dtype=torch.float32)


def next_of(done: subprocess.CompletedProcess[str]) -> str:
    """The one next command, which is the last line of its stream."""
    said = done.stderr if done.returncode == 2 else done.stdout
    assert (done.stdout + done.stderr).count("next: ") == 1, done
    assert said.splitlines()[-1].startswith("next: "), done
    return said.splitlines()[-1].removeprefix("next: ")


def follow(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    program, *words = shlex.split(command)
    assert program == "assay"
    return run(*words, cwd=cwd)


def one_element(tensor: torch.Tensor) -> torch.Tensor:
    tensor[3, 5] = tensor[3, 5] * 1.25 + 1
    return tensor


def damaged(folder: Path) -> Path:
    payload = write_run(folder) / "rank0" / "step-000000.safetensors"
    with payload.open("r+b") as file:
        file.truncate(payload.stat().st_size // 2)
    return folder


def unfinished(folder: Path) -> Path:
    records = write_run(folder) / "rank0" / "records.jsonl"
    lines = records.read_text().splitlines(keepends=True)
    records.write_text("".join(lines[:20]) + '{"n": 20, "step"')
    return folder


def wrapped(folder: Path) -> Path:
    """The model behind the wrapper of torch.compile."""
    write_run(folder, gains={1: 1.03})
    for name in ("records.jsonl", "topology.json"):
        file = folder / "rank0" / name
        file.write_text(re.sub(r'"(blocks|head)', r'"_orig_mod.\1', file.read_text()))
    return folder


def made(**plan: Any) -> Callable[[Path], Path]:
    return lambda folder: write_run(folder, **plan)


def other_model(folder: Path) -> Path:
    return write_native_run(folder, [{"node": f"other.{n}", "value": 1.0} for n in range(4)])


# What is captured of mine, the options of locate, and what follows; {m} is mine, {g} golden.
AFTER_LOCATE = {
    "clean": (made(), [], 0, "assay locate {g} {m} --why"),
    "clean, asked why": (made(), ["--why"], 0, "assay compare {g} {m} --html page.html"),
    "clean, with a page": (made(), ["--why", "--html", "a.html"], 0, "assay show {m}"),
    "operator": (made(gains={1: 1.03}), [], 1, "assay show {m} blocks.1.norm::aten.mul.Tensor.0"),
    "operator, asked why": (made(gains={1: 1.03}), ["--why"], 1, "assay show {m} blocks.1.norm::aten.mul.Tensor.0"),
    "weight of a module": (made(level="module", gains={1: 1.03}), [], 1, "assay show {m} blocks.1.norm"),
    "one module of a compiled model": (wrapped, [], 1, "assay show {m} _orig_mod.blocks.1.norm::aten.mul.Tensor.0"),
    "unknown operators": (made(unknown=True), [], 125, "assay locate {g} {m} --why"),
    "unknown operators, asked why": (made(unknown=True), ["--why"], 125, "assay compare {g} {m} --html page.html"),
    "other inputs": (made(rows=8), [], 125, "assay compare {g} {m}"),
    "damage": (damaged, [], 125, "assay verify {m}"),
    "not finished": (unfinished, [], 125, "assay verify {m}"),
    "rank and steps": (made(), ["--ranks", "0", "--token-map", "0:0"], 0,
                       "assay locate {g} {m} --ranks 0 --token-map 0:0 --why"),
    "slice": (made(), ["--slice", "step 0"], 0, "assay locate {g} {m} --slice 'step 0' --why"),
}  # fmt: skip


@pytest.mark.parametrize("case", AFTER_LOCATE)
def test_what_follows_a_verdict(golden, tmp_path, case):
    write, options, status, expected = AFTER_LOCATE[case]
    mine = write(tmp_path / "mine")
    words = ["locate", golden, mine, *options]
    done = run(*words, cwd=tmp_path)
    assert done.returncode == status, done
    following = next_of(done)
    options_in = expected.replace(" --why", "").replace(" --html page.html", "")
    assert following.replace(str(mine), "{m}").replace(str(golden), "{g}").startswith(options_in.split(" --")[0])
    assert sorted(shlex.split(following)) == sorted(shlex.split(expected.format(m=mine, g=golden)))
    assert shlex.split(following)[1:] != [str(word) for word in words]
    assert next_of(run(*words, cwd=tmp_path)) == following
    followed = follow(following, tmp_path)
    assert followed.returncode in (0, 1, 125), followed.stderr
    assert status != 1 or "aten.mul.Tensor" in followed.stdout or "blocks.1.norm" in followed.stdout


@pytest.mark.parametrize(
    ("plan", "folder", "following"),
    [
        ({"level": "module", "weights": False}, "mine-operators", "assay locate {g} mine-operators"),
        ({"level": "module", "weights": False, "steps": (0, 1)}, "mine-operators", "assay compare {g} {m}"),
    ],
)
def test_what_is_captured_next(golden, tmp_path, plan, folder, following):
    mine = write_run(tmp_path / "mine", ("python", "my script.py"), **plan)
    words = shlex.split(next_of(run("locate", golden, mine, cwd=tmp_path)))
    following = following.format(g=golden, m=mine)
    if words[1] == "compare":  # golden has one step
        assert shlex.join(words) == following
        return
    assert words == [
        *("assay", "dump", "--level", "operator", "-o", folder),
        *("--next", following, "--", "python", "my script.py"),
    ]
    # A folder that is taken already is not proposed again.
    (tmp_path / folder).mkdir()
    again = shlex.split(next_of(run("locate", golden, mine, cwd=tmp_path)))
    assert again[again.index("-o") + 1] == f"{folder}-2"
    assert again[again.index("--next") + 1] == f"{following}-2"


def test_runs_of_several_steps_are_captured_again_with_all_of_them(tmp_path):
    for side in ("golden", "mine"):
        write_run(tmp_path / side, level="module", steps=(0, 1), dtype=[torch.float32, torch.bfloat16][side == "mine"])
    following = next_of(run("locate", "golden", "mine", cwd=tmp_path))
    assert following.startswith("assay dump --level operator --steps all -o golden-operators --next ")


def test_exchanged_sides_are_put_right(golden, tmp_path):
    mine = write_run(tmp_path / "mine")
    done = run("locate", mine, golden)
    assert done.returncode == 125, done.stdout
    assert next_of(done) == f"assay locate {golden} {mine}"
    assert follow(next_of(done), tmp_path).returncode == 0


# ---- compare ----


def test_compare_ends_with_the_command_behind_its_verdict(golden, tmp_path):
    mine = write_run(tmp_path / "mine", gains={1: 1.03})
    answer, text = answers("compare", golden, mine, "-o", tmp_path / "report", status=1)
    assert (answer["outcome"], answer["exit_status"]) == ("first_wrong", 1)
    assert answer["next"] == answer["verdict"]["next"] == f"assay show {mine} blocks.1.norm::aten.mul.Tensor.0"
    assert answer["verdict"]["sentence"] in " ".join(text.split())
    assert answer["verdicts"]["weight"] >= 1
    assert sum(answer["verdicts"].values()) == answer["sheets"][-1]["pairs"]
    assert all(Path(file).exists() for file in answer["files"])


def test_compare_of_equal_runs_goes_on_to_what_that_stands_on(golden, tmp_path):
    answer, _ = answers("compare", golden, golden, "-o", tmp_path)
    assert (answer["outcome"], answer["next"]) == ("same", f"assay locate {golden} {golden} --why")
    assert answer["counts"]["identical"] == answer["counts"]["pairs"]
    page = ["--html", tmp_path / "page.html"]
    assert answers("compare", golden, golden, "-o", tmp_path, "--why", *page)[0]["next"] == f"assay show {golden}"


OUTCOMES_OF_LIMITS = {
    "within": (made(), ["--rel-l2", "0.1"], 0, "within_limits"),
    "beyond": (made(gains={1: 1.03}), ["--rel-l2", "0.001"], 1, "beyond_limits"),
    "verdict": (made(gains={1: 1.03}), ["--verdict"], 1, "first_wrong"),
    "verdict and a limit": (made(gains={1: 1.03}), ["--verdict", "--rel-l2", "0.001"], 1, "beyond_limits"),
    "clean": (made(), ["--verdict"], 0, "clean"),
    "cannot judge": (made(unknown=True), ["--verdict"], 125, "cannot_judge"),
    "damage": (damaged, [], 125, "not_comparable"),
    "exit zero": (made(gains={1: 1.03}), ["--rel-l2", "0.001", "--exit-zero"], 0, "beyond_limits"),
}


@pytest.mark.parametrize("case", OUTCOMES_OF_LIMITS)
def test_the_outcome_is_what_the_status_says(golden, tmp_path, case):
    write, options, status, outcome = OUTCOMES_OF_LIMITS[case]
    words = ("compare", golden, write(tmp_path / "mine"), "-o", tmp_path / "report", *options)
    answer, _ = answers(*words, status=status)
    assert (answer["outcome"], answer["exit_status"]) == (outcome, status)
    assert (answer["counts"]["beyond_limits"] is None) == ("--rel-l2" not in options)
    assert follow(answer["next"], tmp_path).returncode in (0, 1, 125)


def without_order(folder: Path) -> None:
    for side in ("golden", "mine"):
        write_torch_tree(folder / side, layer_count=2, pid=1 + (side == "mine"))


def two_files(folder: Path) -> None:
    np.save(folder / "golden", np.ones(4))
    np.save(folder / "mine", np.full(4, 1.5))
    for side in ("golden", "mine"):
        (folder / f"{side}.npy").rename(folder / side)


def checkpoints(folder: Path) -> None:
    from safetensors.torch import save_file

    for side, value in (("golden", 1.0), ("mine", 2.0)):
        (folder / side).mkdir()
        save_file({"model.a.weight": torch.full((4,), value)}, folder / side / "model.safetensors")


def statistics(folder: Path) -> None:
    for side in ("golden", "mine"):
        write_run(folder / side, statistics=True)


# What there is, the options of compare, what follows, and what follows a page.
AFTER_COMPARE = {
    "tree": (without_order, [], "assay locate golden mine --why", "assay locate golden mine --why"),
    "two files": (two_files, [], "assay compare golden mine --html page.html", "assay show mine"),
    "checkpoints": (checkpoints, [], "assay compare -w golden mine --html page.html", "assay show mine"),
    "old report": (without_order, ["--compat", "msit"], "assay locate golden mine", "assay locate golden mine"),
    "logits": (without_order, ["-cl", "logits"], "assay locate golden mine", "assay locate golden mine"),
}


@pytest.mark.parametrize("case", AFTER_COMPARE)
def test_what_follows_a_table(tmp_path, case):
    prepare, options, expected, after_page = AFTER_COMPARE[case]
    prepare(tmp_path)
    words = ["compare", "golden", "mine", "-o", "report", *options]
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    following = next_of(done)
    assert following == expected
    answer = json.loads(run(*words, "--json", cwd=tmp_path).stdout)
    validator("compare").validate(answer)
    assert answer["next"] == following
    assert follow(following, tmp_path).returncode in (0, 125)
    paged = run(*words, "--html", "page.html", cwd=tmp_path)
    assert next_of(paged) == after_page
    assert follow(after_page, tmp_path).returncode in (0, 125)


def test_runs_with_nothing_in_common(tmp_path, golden):
    done = run("compare", golden, other_model(tmp_path / "mine"), "-o", tmp_path)
    assert done.returncode in (0, 125), done
    assert follow(next_of(done), tmp_path).returncode in (0, 1, 125)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the golden run is missing"),
        (["golden"], "the run to compare with golden is missing"),
        (["golden", "nowhere"], "nowhere"),
        (["golden", "golden", "--rel-l2", "x"], "--rel-l2"),
        (["golden", "golden", "--frob"], "unknown option --frob"),
        (["golden", "golden", "--slice", "nothing"], "--slice nothing"),
        (["golden", "golden/rank0/records.jsonl"], "must both be directory or file"),
    ],
)
def test_wrong_words_of_compare_are_one_sentence_and_one_command(tmp_path, golden, words, said):
    (tmp_path / "golden").symlink_to(golden)
    assert said in refusal("compare", *words, cwd=tmp_path)


def test_the_old_names_say_nothing_of_it(tmp_path):
    without_order(tmp_path)
    words = ("llm", "compare", "-gp", tmp_path / "golden", "-mp", tmp_path / "mine", "-o", tmp_path / "report")
    for name in ("msit", "ait"):
        done = run(*words, name=name)
        assert done.returncode == 0
        assert "next:" not in done.stdout + done.stderr
    assert "next:" not in run("llm", "compare", "-gp", tmp_path, name="msit").stderr


# ---- following ----

PROGRAM = """
import sys, warnings, torch
warnings.simplefilter("ignore")
torch.manual_seed(0)
fault = sys.argv[1]

def mul(a, b):
    out = torch.empty_like(a)
    torch.mul(a, b, out=out)
    out[1, 3] += 0.05
    return out

class Gate(torch.nn.Module):
    def forward(self, x):
        y = torch.nn.functional.silu(x)
        return y * x

class Norm(torch.nn.LayerNorm):
    pass

layers = [layer for _ in range(3) for layer in (torch.nn.Linear(16, 16), Norm(16), Gate())]
model = torch.nn.Sequential(*layers)
if fault == "kernel":
    library = torch.library.Library("aten", "IMPL")
    library.impl("mul.Tensor", mul, "CPU")
if fault == "weight":
    model[4].weight.data *= 1.03
with torch.no_grad():
    model(torch.randn(4, 16))
"""

OPERATORS = {
    "kernel": ("2 (Gate: aten.mul.Tensor", "2::aten.mul.Tensor.0"),
    "weight": ("4 (Norm: aten.native_layer_norm.default", "4::aten.native_layer_norm.default.0"),
}


@pytest.mark.parametrize("fault", OPERATORS)
@pytest.mark.parametrize("level", ["operator", "module"])
@pytest.mark.parametrize("command", ["locate", "compare"])
def test_next_alone_leads_from_modules_to_the_operator(tmp_path, monkeypatch, fault, level, command):
    (tmp_path / "run.py").write_text(PROGRAM)
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(warm_python.python()).parent), os.environ["PATH"]]))
    for side, kind, captured in (("golden", "none", level), ("mine", fault, "module")):
        dump = ["dump", "--level", captured, "-o", side, "--", warm_python.python(), "run.py", kind]
        assert run(*dump, cwd=tmp_path).returncode == 0
    place, node = OPERATORS[fault]
    done = run(command, "golden", "mine", cwd=tmp_path)
    taken = []
    while True:
        (following,) = [line for line in (done.stdout + done.stderr).splitlines() if "next: " in line]
        command = following.partition("next: ")[2]
        if command.startswith("assay show "):
            break
        taken.append(command)
        assert len(taken) <= 4, taken
        done = follow(command, tmp_path)
    assert f"first bad: {place}" in done.stdout, (taken, done)
    shown = follow(command, tmp_path)
    assert shown.returncode == 0, (taken, shown)
    assert node in shown.stdout, (taken, shown.stdout)


def test_a_capture_names_what_it_is_told_to(tmp_path):
    (tmp_path / "run.py").write_text(PROGRAM)
    words = ["dump", "-o", "mine", "--next", "assay show mine", "--", warm_python.python(), "run.py", "none"]
    assert run(*words, cwd=tmp_path).stderr.endswith("assay: next: assay show mine\n")
    shutil.rmtree(tmp_path / "mine")
    nothing = run("dump", "-o", "mine", "--next", "assay show mine", "--", "true", cwd=tmp_path)
    assert nothing.stderr.endswith("assay: next: assay help own-host\n")


def test_folders_of_arrays_lead_to_the_tables_and_no_capture(tmp_path):
    for name, value in (("golden", 1.0), ("mine", 1.5)):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "a.npy", np.full(64, value, np.float32))
        np.save(tmp_path / name / "b.npy", np.arange(64, dtype=np.float32))
    done = run("locate", "golden", "mine", cwd=tmp_path)
    assert done.returncode == 125
    taken = []
    while True:
        (following,) = [line for line in done.stdout.splitlines() if line.startswith("next: ")]
        taken.append(following.removeprefix("next: "))
        if taken[-1].startswith("assay show "):
            break
        assert len(taken) <= 4, taken
        done = follow(taken[-1], tmp_path)
        assert done.returncode in (0, 125), done
    assert taken[:2] == ["assay compare golden mine", "assay compare golden mine --html page.html"]
    assert not any("dump" in one or "PROGRAM" in one for one in taken), taken
