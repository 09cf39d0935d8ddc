# SPDX-License-Identifier: Apache-2.0
"""tools/build.py: what a person sees while the compiler works, and when it fails."""

from __future__ import annotations

import importlib.util
import io
import re
import shutil
import subprocess
import sys
import tarfile
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
    unit = folder / "src" / "m" / "m_units" / "a.cpp"
    unit.parent.mkdir(parents=True)
    unit.write_text(f'#include "{folder}/a.cpp"\n#include "{folder}/b.cpp"\n')
    steps = build.Steps(folder, [])
    assert steps.total_work == 3 * build.HEADER_BYTES
    assert steps.work("Building CXX object src/m/CMakeFiles/m.dir/m_units/a.cpp.o") == build.HEADER_BYTES + 1500
    assert steps.work("Linking CXX executable assay") == build.LINK_BYTES


def test_a_build_names_at_once_all_that_it_lacks_as_the_page_does(tmp_path):
    # Given a machine on which nothing is where CMake looks.
    hidden = "-DCMAKE_IGNORE_PREFIX_PATH=/usr;/usr/local;/"
    words = ["cmake", "-S", str(ROOT), "-B", str(tmp_path), "-G", "Ninja", hidden]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    lacking = set(re.findall(r"^ *[\w/.-]+: ([\w.-]+)$", done.stderr, re.MULTILINE))
    assert {"libopenblas-serial-dev", "zlib1g-dev", "libexpected-dev"} <= lacking
    page = (ROOT / "docs" / "install.md").read_text()
    assert all(package in page for package in lacking), lacking


def test_a_source_archive_knows_the_commit_and_has_the_same_bytes_again(tmp_path):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{ROOT}", str(clone)], check=True)
    (clone / ".venv").symlink_to(Path(sys.prefix))
    for folder in ("one", "two"):
        words = [sys.executable, str(clone / "tools" / "build.py"), "--source", str(tmp_path / folder)]
        subprocess.run(words, check=True)
    one, two = (next((tmp_path / folder).glob("assay_llm-*.tar.gz")) for folder in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    with tarfile.open(one) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
        commit = next(name for name in archive.getnames() if name.endswith("/commit.txt"))
        text = archive.extractfile(commit).read().decode()
    head = subprocess.run(["git", "-C", str(clone), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert text == head.stdout
    assert {"CMakeLists.txt", "pyproject.toml", "src/cli/main.cpp", "docs/install.md"} <= set(names)
    assert not [name for name in names if name.startswith(("tests/", "bench/", "build/", ".git/"))]
    assert not (clone / "commit.txt").exists()
