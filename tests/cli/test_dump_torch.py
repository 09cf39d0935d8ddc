# SPDX-License-Identifier: Apache-2.0
"""`assay dump -- python run.py`: a script that knows nothing of us. Details: tests/python/test_inject.py"""

from __future__ import annotations

import json
import os
import re
import sys

import pytest
import warm_python
from assay_command import run

import assay

SCRIPT = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
for step in range(3):
    print(net(torch.full((2, 4), float(step))).tolist())
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "run.py"
    path.write_text(SCRIPT)
    return path


def dump(tmp_path, script, *words, python=None):
    return run("dump", "-o", tmp_path / "out", *words, "--", python or warm_python.python(), script)


def test_the_first_step_of_an_unedited_script_is_captured(tmp_path, script):
    plain = run("dump", "--host", "atb", "-o", tmp_path / "none", "--", sys.executable, script)
    done = dump(tmp_path, script, python=sys.executable)
    assert (done.returncode, done.stdout) == (0, plain.stdout)
    captured = assay.open(str(tmp_path / "out"))
    assert {record.node for record in captured.records} == {"", "0", "1", "2"}
    assert {record.step for record in captured.records} == {0}
    assert "the first of 3 steps, --steps all captures every one" in done.stderr
    assert done.stderr.endswith(f"next: assay compare GOLDEN {tmp_path / 'out'}\n")


def test_steps_modules_and_statistics_choose(tmp_path, script):
    done = dump(tmp_path, script, "--steps", "1-2", "--modules", "2", "--statistics")
    captured = assay.open(str(tmp_path / "out"))
    assert done.returncode == 0
    assert {record.node for record in captured.records} == {"2"}
    assert {record.step for record in captured.records} == {1, 2}
    assert all(record.stats is not None for record in captured.records)


def test_the_strict_layout_is_that_of_the_hook_dump(tmp_path, script):
    dump(tmp_path, script, "--layout", "strict", "-er", "0,1")
    (rank,) = (tmp_path / "out").glob("msit_dump_*/torch_tensors/cpu_*")
    assert {path.name for path in rank.iterdir() if path.is_dir()} == {"0", "1"}
    assert json.loads((rank / "model_tree.json").read_text())["type"] == "Sequential"
    assert (rank / "0" / "root.0" / "output.pth").exists()


def test_a_script_without_a_module_call_is_told_why(tmp_path):
    script = tmp_path / "run.py"
    script.write_text("import torch; print(torch.ones(2).sum().item())")
    done = dump(tmp_path, script)
    assert (done.returncode, done.stdout) == (0, "2.0\n")
    assert "nothing was captured in process" in done.stderr
    assert "no nn.Module was called" in done.stderr


def test_a_failing_script_keeps_its_traceback_and_status(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(SCRIPT + "raise SystemExit(5)\n")
    done = dump(tmp_path, script)
    assert done.returncode == 5
    assert assay.open(str(tmp_path / "out")).records


def test_a_folder_with_a_run_in_it_is_refused_before_the_script_starts(tmp_path, script):
    dump(tmp_path, script)
    done = dump(tmp_path, script)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: {tmp_path / 'out'}: holds a captured run already; "
        "give another folder with -o, or --force to remove it\nnext: assay help dump\n"
    )


@pytest.mark.slow
def test_force_removes_the_run_in_the_folder_and_nothing_else(tmp_path, script):
    dump(tmp_path, script, "--host", "torch", "--steps", "all")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    refused = dump(tmp_path, script, "--host", "torch")
    assert refused.returncode == 1 and "or --force to remove it" in refused.stderr
    done = dump(tmp_path, script, "--host", "torch", "--force")
    assert done.returncode == 0, done.stderr
    assert {record.step for record in assay.open(str(tmp_path / "out")).records} == {0}
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


@pytest.mark.slow
def test_a_folder_whose_name_is_no_text_holds_the_run(tmp_path, script):
    done = run(
        "dump", "-o", b"raw\xff", "--host", "torch", "--require", "--", warm_python.python(), script, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    (folder,) = [p for p in os.listdir(os.fsencode(tmp_path)) if p.startswith(b"raw")]
    assert folder == b"raw\xff"
    assert sorted(os.listdir(os.fsencode(tmp_path) + b"/raw\xff")) == [b"manifest.json", b"rank0"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--steps", "50"], "the steps 50 were not reached: there were 3"),
        (["--modules", "sven"], "'sven' matches no module"),
        (["--modules", "0", "22"], "'22' matches no module; did you mean '2'?"),
    ],
)
def test_what_was_asked_for_and_did_not_come_fails_with_require(tmp_path, script, words, why):
    done = dump(tmp_path, script, "--host", "torch", "--require", *words)
    assert done.returncode == 125
    assert why in done.stderr


def test_tensors_that_nobody_can_read_are_said_with_the_reason(tmp_path):
    (tmp_path / "run.py").write_text("""
import torch
class Mix(torch.nn.Module):
    def forward(self, sparse, x):
        return torch.sparse.mm(sparse, x)
Mix()(torch.eye(2).to_sparse(), torch.ones(2, 2))
""")
    done = dump(tmp_path, tmp_path / "run.py", "--require")
    assert done.returncode == 125  # less than asked, though the program ended with 0
    assert "2 tensors of 1 PyTorch model" in done.stderr
    assert re.search(r"process \d+: 1 tensor has a record without values: sparse[^,]* \(1\)\n", done.stderr), (
        done.stderr
    )
