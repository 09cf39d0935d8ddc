# SPDX-License-Identifier: Apache-2.0
"""tools/build.py: what a person sees while the compiler works, and when it fails."""

from __future__ import annotations

import importlib.util
import io
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("assay_build_tool", ROOT / "tools" / "build.py")
build = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = build
SPEC.loader.exec_module(build)

pytestmark = pytest.mark.skipif(shutil.which("ninja") is None, reason="ninja is not installed")

RULES = """
rule touch
  command = touch $out
  description = Building CXX object $out
rule fail
  command = echo 'a.cpp:3: error: no such thing' && false
  description = Building CXX object $out
build one.o: touch
build two.o: touch
build three.o: touch
build all: phony one.o two.o three.o
build bad: fail
default all
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "ROOT", tmp_path)
    (tmp_path / "build.ninja").write_text(RULES)
    return tmp_path


def test_every_step_is_counted_and_the_last_line_says_how_many_there_were(folder):
    text = io.StringIO()
    progress = build.Progress(text, build.Steps(folder, []))
    assert build.run(["ninja", "-C", str(folder)], folder / "log", progress) == 0
    progress.end()
    assert text.getvalue() == "build: 3 steps in 0 s\n"
    assert "[3/3]" in (folder / "log").read_text()


def test_nothing_to_do_says_nothing(folder):
    assert build.run(["ninja", "-C", str(folder)], folder / "log") == 0
    text = io.StringIO()
    progress = build.Progress(text, build.Steps(folder, []))
    assert build.run(["ninja", "-C", str(folder)], folder / "log", progress) == 0
    progress.end()
    assert text.getvalue() == ""


def test_a_step_that_fails_is_shown_with_what_the_compiler_said_and_where_the_log_is(folder, capfd):
    assert build.run(["ninja", "-C", str(folder), "bad"], folder / "log") == 1
    shown = capfd.readouterr().err
    assert "a.cpp:3: error: no such thing" in shown
    assert shown.endswith("build: ninja failed with 1; the log is log\n")


def test_the_estimate_follows_the_work_and_not_the_number_of_steps():
    # A quarter of the work took a minute, so three quarters take three, whatever the count says.
    assert build.Progress.text(1, 100, 0.25, 60.0) == "build: [1/100] 1 min 00 s, about 3 min 00 s left"
    assert build.Progress.text(100, 100, 1.0, 61.4) == "build: [100/100] 1 min 01 s"
    assert build.Progress.text(1, 100, 0.25, 2.0) == "build: [1/100] 2 s"


def test_a_unit_is_as_much_work_as_its_files(folder):
    (folder / "a.cpp").write_text("x" * 1000)
    (folder / "b.cpp").write_text("x" * 500)
    (folder / "unit.cxx").write_text(f'#include "{folder}/a.cpp"\n#include "{folder}/b.cpp"\n')
    steps = build.Steps(folder, [])
    assert steps.total_work == 3 * build.HEADER_BYTES
    assert steps.work("Building CXX object unit.cxx.o") == build.HEADER_BYTES + 1500
    assert steps.work("Linking CXX executable assay") == build.LINK_BYTES
