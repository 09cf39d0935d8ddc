# SPDX-License-Identifier: Apache-2.0
"""A capture is finished when the steps that it was asked for are there, however its program ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import warm_python
from assay_command import binary, run

# A server: it answers until somebody ends it.
SERVER = """
import pathlib, sys, time, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 4))
with torch.no_grad():
    for step in range(10_000):
        model(torch.full((2, 8), float(step)))
        pathlib.Path("step").write_text(str(step))
        time.sleep(0.02)
"""


def serve(folder: Path, end: signal.Signals, *options: str, steps: int, name: str = "run") -> Path:
    """Captures the server until it has come so far, and ends it."""
    (folder / "server.py").write_text(SERVER)
    (folder / "step").unlink(missing_ok=True)
    (folder / "pid").unlink(missing_ok=True)
    words = [binary(), "dump", "-o", name, *options, "--", warm_python.python(), "-c"]
    program = "import os, pathlib; pathlib.Path('pid').write_text(str(os.getpid())); exec(open('server.py').read())"
    host = subprocess.Popen([*words, program], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    records = folder / name / "rank0" / "records.jsonl"
    endless = "all" in options or "0-500" in options

    def has_come() -> bool:
        try:
            written = records.read_text().count("\n")
            return int((folder / "step").read_text() or 0) >= steps and written > 0 and (endless or is_still(records))
        except (OSError, ValueError):
            return False

    limit = time.monotonic() + 60
    while not has_come():
        assert time.monotonic() < limit and host.poll() is None
        time.sleep(0.02)
    os.kill(int((folder / "pid").read_text()), end)
    host.communicate(timeout=60)
    return folder / name


def is_still(records: Path) -> bool:
    before = records.stat().st_size
    time.sleep(0.1)
    return records.stat().st_size == before


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "options", [[], ["--level", "operator", "--steps", "1,3-4"], ["--statistics", "--steps", "0-2"]]
)
def test_a_server_that_is_ended_behind_its_steps(tmp_path, options, end):
    finished = serve(tmp_path, end, "--weights", *options, steps=8)
    whole = serve(tmp_path, signal.SIGINT, "--weights", *options, steps=8, name="whole")
    for golden, mine in ((whole, finished), (finished, whole), (finished, finished)):
        said = json.loads(run("locate", golden, mine, "--json", cwd=tmp_path).stdout)
        assert said["outcome"] == ("cannot_judge" if "--statistics" in options else "clean"), said["sentence"]
        assert "did not finish" not in said["sentence"]
    verified = run("verify", finished)
    assert verified.returncode == 0 and verified.stdout.startswith("whole: "), verified


@pytest.mark.parametrize(
    ("options", "steps"),
    [(["--steps", "0-500"], 3), (["--modules", "2"], 3), (["--steps", "all"], 3)],
    ids=["steps are missing", "the model itself is not recorded", "all steps"],
)
def test_a_capture_of_which_something_is_missing_or_not_known(tmp_path, options, steps):
    unfinished = serve(tmp_path, signal.SIGKILL, *options, steps=steps)
    said = json.loads(run("locate", unfinished, unfinished, "--json", cwd=tmp_path).stdout)
    assert said["outcome"] == "cannot_judge"
    assert "did not finish" in said["sentence"]
    assert run("verify", unfinished).returncode == 125
