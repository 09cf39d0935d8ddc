# SPDX-License-Identifier: Apache-2.0
"""`assay doctor` with environments made for the test."""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time
from importlib.metadata import version

import pytest


def program(path: pathlib.Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def checks(assay, tmp_path):
    """Runs the doctor with only /…/bin on PATH and gives its findings by subject."""

    def run(*arguments: str, **variables: str) -> dict[str, dict[str, str]]:
        environment = {"PATH": str(tmp_path / "bin"), **variables}
        result = assay("doctor", "--json", *arguments, env=environment, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        return {check["check"]: check for check in json.loads(result.stdout)["checks"]}

    return run


def test_says_something_about_every_host(checks):
    found = checks()
    assert list(found) == ["cpu", "memory", "disk", "probes", "python", "libgomp", "cuda", "cann", "atb"]
    assert found["cpu"]["state"] == "ok"
    assert f"{len(os.sched_getaffinity(0))} cores usable" in found["cpu"]["detail"]
    assert found["python"]["state"] == "missing"
    assert "ATB_HOME_PATH not set" in found["atb"]["detail"]
    assert all(check["why"] for check in found.values() if check["state"] != "ok")


def test_reports_the_packages_of_each_python(checks, tmp_path):
    program(tmp_path / "bin/python3", "echo 'python 3.11.7'; echo 'torch 2.13.0+cpu'; echo 'assay 0.1.0'")
    found = checks()["torch"]
    assert found["state"] == "ok"
    assert "python 3.11.7, torch 2.13.0+cpu, assay 0.1.0" in found["detail"]
    assert found["why"] == ""


def test_finds_what_is_installed_in_the_environment_of_these_tests(checks):
    pytest.importorskip("torch")
    found = checks(PATH=os.path.dirname(sys.executable))["torch"]
    assert found["state"] == "ok"
    assert f", assay {version('assay-llm')}" in found["detail"] and ", torch 2" in found["detail"]


def test_explains_what_an_older_torch_costs(checks, tmp_path):
    program(tmp_path / "bin/python3", "echo 'python 3.9.1'; echo 'torch 2.9.1'; echo 'assay 0.1.0'")
    assert "torch below 2.10" in checks()["torch"]["why"]


def test_a_python_without_torch_is_missing_it(checks, tmp_path):
    program(tmp_path / "bin/python3", "echo 'python 3.11.7'")
    found = checks()["torch"]
    assert found["state"] == "missing" and "no torch" in found["detail"]


def test_prefers_the_active_environment_and_asks_each_folder_once(checks, tmp_path):
    program(tmp_path / "env/bin/python3", "echo 'python 3.12.0'")
    program(tmp_path / "env/bin/python", "echo 'python 3.12.0'")
    found = checks(VIRTUAL_ENV=str(tmp_path / "env"), PATH=str(tmp_path / "env/bin"))
    assert "env/bin/python3" in found["torch"]["detail"]


def test_a_python_that_hangs_or_fails_is_a_finding(checks, tmp_path):
    program(tmp_path / "bin/python3", "/bin/sleep 30 & wait")
    start = time.monotonic()
    assert "did not answer" in checks("--timeout", "0.5")["python"]["detail"]
    assert time.monotonic() - start < 10
    program(tmp_path / "bin/python3", "exit 3")
    assert "ended with status 3" in checks()["python"]["detail"]


def test_checks_the_vendor_folders(checks, tmp_path):
    home = tmp_path / "atb"
    assert checks(ATB_HOME_PATH=str(home))["atb"]["state"] == "problem"
    (home / "lib").mkdir(parents=True)
    assert "has no lib/libatb.so" in checks(ATB_HOME_PATH=str(home))["atb"]["detail"]
    (home / "lib/libatb.so").write_bytes(b"")
    assert checks(ATB_HOME_PATH=str(home))["atb"]["state"] == "ok"


def test_finds_libraries_on_the_library_path(checks, tmp_path):
    (tmp_path / "libgomp.so.1").write_bytes(b"")
    assert checks(LD_LIBRARY_PATH=str(tmp_path))["libgomp"]["detail"] == str(tmp_path / "libgomp.so.1")


def test_text_has_no_colour_in_a_pipe(assay):
    result = assay("doctor")
    assert result.returncode == 0
    assert "\x1b" not in result.stdout
    assert result.stdout.startswith("ok       cpu ")
