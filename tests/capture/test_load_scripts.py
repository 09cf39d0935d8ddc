# SPDX-License-Identifier: Apache-2.0
"""load_atb_probe.sh and unload_atb_probe.sh: the probe without the dump command around it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

BUILD = Path(os.environ.get("ASSAY_BUILD_DIR", "build/release")).absolute()
LIBRARY = BUILD / "lib" / "assay"
HOST = BUILD / "examples" / "atb_host" / "atb_host"


def shell(script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ATB_", "LD_PRELOAD"))}
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=cwd, env=environment, timeout=60)


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "c.json"

    def write(**changes: object) -> Path:
        choice = {"task": "tensor", "dump_enable": True, "exec_range": "0,0", "ids": "1", "save_child": False}
        path.write_text(json.dumps({**choice, **changes}))
        path.chmod(0o640)
        return path

    return write


def test_what_the_shell_starts_is_captured_until_it_is_unloaded(tmp_path, config):
    choice = config()
    done = shell(
        f"source {LIBRARY}/load_atb_probe.sh --output={tmp_path}/out --config={choice}; {HOST} >/dev/null; "
        f"source {LIBRARY}/unload_atb_probe.sh; {HOST} >/dev/null; env | grep -E '^(ATB_|LD_PRELOAD)'",
        tmp_path,
    )
    assert done.stdout == "", done.stderr
    (root,) = (tmp_path / "out").iterdir()
    assert root.name == "msit_dump"
    assert len(list((root / "tensors").iterdir())) == 1  # one process, the first
    tops = {path.parent.parent.name for path in (root / "tensors").rglob("*.bin")}
    assert len(tops) == 1
    assert tops.pop().startswith("1_")


def test_statistics_are_a_task_of_the_configuration(tmp_path, config):
    choice = config(task="statistics")
    shell(f"source {LIBRARY}/load_atb_probe.sh --output={tmp_path}/out --config={choice}; {HOST}", tmp_path)
    files = list((tmp_path / "out").rglob("*tensor*.bin"))
    assert files
    assert all(b"$Object.Count=0\n" in path.read_bytes() and b"l2norm=" in path.read_bytes() for path in files)


def test_nothing_is_captured_while_it_is_not_enabled(tmp_path, config):
    choice = config(dump_enable=False)
    shell(f"source {LIBRARY}/load_atb_probe.sh --output={tmp_path}/out --config={choice}; {HOST}", tmp_path)
    assert not list((tmp_path / "out").rglob("*.bin"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--outptu=x", "unknown option '--outptu=x'"),
        ("--output=a --config=b c", "expected at most"),
        ("--config=/nonexistent.json", "/nonexistent.json cannot be read"),
    ],
)
def test_wrong_options_leave_the_shell_as_it_was(tmp_path, words, message):
    done = shell(f"source {LIBRARY}/load_atb_probe.sh {words}; echo $?; env | grep -cE '^(ATB_|LD_PRELOAD)'", tmp_path)
    assert message in done.stderr
    assert done.stdout.split() == ["1", "0"]


def test_other_preloaded_libraries_stay(tmp_path, config):
    choice = config()
    done = shell(
        f"export LD_PRELOAD=/nonexistent/other.so; source {LIBRARY}/load_atb_probe.sh --config={choice}; "
        f"source {LIBRARY}/load_atb_probe.sh --config={choice}; echo $LD_PRELOAD; "
        f"source {LIBRARY}/unload_atb_probe.sh; echo $LD_PRELOAD",
        tmp_path,
    )
    assert done.stdout.split() == [f"{LIBRARY}/libatb_probe.so:/nonexistent/other.so", "/nonexistent/other.so"]
