# SPDX-License-Identifier: Apache-2.0
"""A file that another process makes shorter or writes again while it is read costs a sentence, never a signal."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from assay_command import run

SENTENCE = "the file was changed while it was read"
MEGABYTE = 1 << 20


def cut_and_fill(path, content):
    """Makes the file empty and whole again until it is killed."""
    while True:
        time.sleep(0.01)
        with open(path, "r+b") as file:
            file.truncate(0)
            file.write(content)


@pytest.fixture
def restless_npy(tmp_path):
    """mine.npy, which a process truncates in a loop, beside an equal golden.npy that rests."""
    golden, mine = tmp_path / "golden.npy", tmp_path / "mine.npy"
    values = np.random.default_rng(0).normal(size=8 * MEGABYTE).astype(np.float32)
    np.save(golden, values)
    np.save(mine, values)
    writer = multiprocessing.get_context("fork").Process(target=cut_and_fill, args=(mine, mine.read_bytes()))
    writer.start()
    yield golden, mine
    writer.kill()
    writer.join()


@pytest.mark.parametrize("command", ["compare", "show"])
def test_a_truncating_writer_costs_a_sentence_and_status_2(restless_npy, command):
    golden, mine = restless_npy
    for _ in range(40):
        result = run("compare", golden, mine) if command == "compare" else run("show", mine)
        assert result.returncode in (0, 1, 2), (result.returncode, result.stderr)
        if SENTENCE in result.stderr:
            assert result.returncode == 2
            return
    raise AssertionError("was never cut while it was read")


IN_PYTHON = """
import os, signal, sys
import numpy as np
import assay

path = sys.argv[1]
values = np.arange(1 << 20, dtype=np.float32) + 1
np.save(path, values)

def cut():
    os.truncate(path, 4096)

def whole():
    np.save(path, values)
"""


def in_python(tmp_path, code):
    """Runs the code in a Python of its own, which must not end by a signal."""
    result = subprocess.run(
        [sys.executable, "-c", IN_PYTHON + textwrap.dedent(code), str(tmp_path / "x.npy")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, (result.returncode, result.stdout, result.stderr)
    return result.stdout


def test_python_raises_for_a_tensor_that_was_cut(tmp_path):
    out = in_python(
        tmp_path,
        """
        record = assay.open(path).records[0]
        tensor = record._core.load()
        cut()
        try:
            tensor.stats()
            print("no exception")
        except assay.Error as error:
            print(type(error).__name__, error)
        """,
    )
    assert out.startswith("FileError ") and SENTENCE in out


def test_an_array_over_a_file_that_was_cut_shows_zeros_and_the_next_call_raises(tmp_path):
    out = in_python(
        tmp_path,
        """
        record = assay.open(path).records[0]
        tensor = record._core.load()
        array = tensor.raw()
        cut()
        print(array[0], array[-1])  # the first page stays, the last is gone
        try:
            tensor.raw()
        except assay.Error as error:
            print(error)
        whole()
        print(assay.open(path).records[0].numpy()[-1])  # opened again: whole
        """,
    )
    first, sentence, again = out.splitlines()
    assert first == "1.0 0.0" and SENTENCE in sentence and float(again) == 1 << 20


def test_the_handler_from_before_gets_what_is_not_ours_and_comes_back(tmp_path):
    out = in_python(
        tmp_path,
        """
        def caught():
            status = open("/proc/self/status").read()
            return bool(int(status.split("SigCgt:")[1].split()[0], 16) >> (signal.SIGBUS - 1) & 1)

        seen = []
        before = caught()
        signal.signal(signal.SIGBUS, lambda number, frame: seen.append(number))
        tensor = assay.open(path).records[0]._core.load()
        os.kill(os.getpid(), signal.SIGBUS)
        print(before, seen == [signal.SIGBUS])
        """,
    )
    assert out.split() == ["False", "True"]


def test_a_fault_that_is_not_ours_still_ends_the_process(tmp_path):
    (tmp_path / "other").write_bytes(b"x" * (1 << 16))
    code = """
import mmap, os, sys, assay, numpy as np
np.save(sys.argv[1], np.zeros(1 << 20))
tensor = assay.open(sys.argv[1]).records[0]._core.load()
other = open(sys.argv[2], "r+b")
memory = mmap.mmap(other.fileno(), 0)
os.truncate(sys.argv[2], 0)
memory[40000]
"""
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x.npy"), str(tmp_path / "other")],
        capture_output=True,
        timeout=60,
    )
    assert result.returncode == -signal.SIGBUS
