# SPDX-License-Identifier: Apache-2.0
"""The small program `assay` finds the library in which its commands are, wherever pip has put both."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from assay_command import binary

PROGRAM = Path(binary()).resolve()


def library() -> Path:
    prefix = PROGRAM.parents[1]
    found = [*prefix.glob("lib/assay/libassay.so"), *prefix.glob("lib*/python3*/*-packages/assay/libassay.so")]
    return found[0].resolve()


def start(program: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, env={"LANG": "C.UTF-8"})


@pytest.mark.parametrize(
    "place",
    [
        "lib/assay",  # a build folder
        "lib/python3.9/site-packages/assay",  # an environment
        "lib64/python3.13/site-packages/assay",  # Fedora's
        "local/../lib/python3.11/dist-packages/assay",  # Debian's
        "lib/python3.15/site-packages/assay",  # a Python that does not exist yet
        "assay",  # pip install --target
    ],
)
def test_it_finds_the_library_where_pip_puts_it(tmp_path, place):
    prefix = tmp_path / "with [brackets], a * and blanks"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "local").mkdir()
    program = Path(shutil.copy(PROGRAM, prefix / "bin" / "assay"))
    (prefix / place).mkdir(parents=True)
    (prefix / place / "libassay.so").symlink_to(library())
    link = tmp_path / "assay"
    link.symlink_to(program)
    for started in (program, link):
        done = start(started)
        assert (done.returncode, done.stdout, done.stderr) == (0, "assay 0.1.0\n", "")


def test_without_the_library_it_says_where_it_looked(tmp_path):
    (tmp_path / "bin").mkdir()
    program = Path(shutil.copy(PROGRAM, tmp_path / "bin" / "assay"))
    done = start(program)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: {tmp_path}/bin/../: no libassay.so in lib/assay or in any Python's packages; install assay-llm again\n"
    )


def test_it_takes_the_library_of_its_own_version(tmp_path):
    """Two Pythons of one prefix; the name of the first comes first."""
    other = tmp_path / "lib" / "python3.10" / "site-packages" / "assay" / "libassay.so"
    own = tmp_path / "lib" / "python3.9" / "site-packages" / "assay" / "libassay.so"
    for path in (other, own, tmp_path / "bin" / "assay"):
        path.parent.mkdir(parents=True, exist_ok=True)
    program = Path(shutil.copy(PROGRAM, tmp_path / "bin" / "assay"))
    content = library().read_bytes()
    assert content.count(b"\x000.1.0\x00") > 0
    other.write_bytes(content.replace(b"\x000.1.0\x00", b"\x000.0.9\x00"))
    done = start(program)
    assert (done.returncode, done.stderr) == (
        2,
        f"error: {tmp_path}/bin/../{other.relative_to(tmp_path)}: is of assay 0.0.9, the command of 0.1.0\n",
    )
    own.symlink_to(library())
    assert start(program).stdout == "assay 0.1.0\n"


def test_a_damaged_library_is_one_sentence(tmp_path):
    (tmp_path / "bin").mkdir()
    program = Path(shutil.copy(PROGRAM, tmp_path / "bin" / "assay"))
    (tmp_path / "lib" / "assay").mkdir(parents=True)
    (tmp_path / "lib" / "assay" / "libassay.so").write_bytes(b"\x7fELF but no more")
    done = start(program)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1 and "libassay.so" in done.stderr
