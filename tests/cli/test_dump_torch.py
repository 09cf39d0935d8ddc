# SPDX-License-Identifier: Apache-2.0
"""`assay dump -- python run.py`: a script that knows nothing of us. Details: tests/python/test_inject.py"""

from __future__ import annotations

import json
import sys

import pytest
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


def dump(tmp_path, script, *words):
    return run("dump", "-o", tmp_path / "out", *words, "--", sys.executable, script)


def test_the_first_step_of_an_unedited_script_is_captured(tmp_path, script):
    plain = run("dump", "--host", "atb", "-o", tmp_path / "none", "--", sys.executable, script)
    done = dump(tmp_path, script)
    assert (done.returncode, done.stdout) == (0, plain.stdout)
    captured = assay.open(str(tmp_path / "out"))
    assert {record.node for record in captured.records} == {"", "0", "1", "2"}
    assert {record.step for record in captured.records} == {0}
    assert "the first of 3 steps, --steps all captures every one" in done.stderr
    assert f"next: assay show {tmp_path / 'out'}\n" in done.stderr


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
        f"error: {tmp_path / 'out'}: holds a captured run already; give another folder with -o, or remove it\n"
    )
