# SPDX-License-Identifier: Apache-2.0
"""Work that can be counted does not grow unseen: calls of the system, bytes, allocations (bench/counted)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench.counted import __main__ as counted  # noqa: E402


@pytest.fixture(scope="module")
def counter(tmp_path_factory) -> counted.Counter:
    made = counted.Counter(tmp_path_factory.mktemp("counted"))
    try:
        made.run(["true"])
    except counted.NoPtrace as error:
        pytest.skip(f"calls cannot be counted here: {error}")
    return made


def test_calls_and_bytes_are_those_that_a_program_makes(counter, tmp_path):
    # given a program that opens a file 40 times, and reads 100 of its bytes each time
    (tmp_path / "file").write_bytes(bytes(1000))
    once = f"fd = os.open({str(tmp_path / 'file')!r}, 0); os.read(fd, 100); os.close(fd)"
    loop = f"import os\nfor i in range({{}}):\n {once}"
    # when it is counted beside one that does so 10 times
    many, few = (counter.run([sys.executable, "-S", "-c", loop.format(count)]) for count in (40, 10))
    # then the difference is 30 times that
    assert many["open"] - few["open"] == 30
    assert many["read"] - few["read"] == 30
    assert many["read bytes"] - few["read bytes"] == 3000


def test_threads_and_children_count_too(counter):
    # given 8 threads and a child that write 10 bytes each
    threads = (
        "import os, threading\nfor i in range(8):\n threading.Thread(target=os.write, args=(1, b'x' * 10)).start()"
    )
    both = f"{threads}\nimport subprocess, sys\nsubprocess.run(['printf', '0123456789'])"
    # then all of it is counted
    assert counter.run([sys.executable, "-S", "-c", both])["written bytes"] == 90


def test_allocations_are_those_of_the_program(counter, tmp_path):
    # given a program of 1000 allocations of 100 bytes
    source = tmp_path / "allocate.cpp"
    source.write_text("#include <cstdlib>\nint main(int n, char**) { for (int i = 0; i < 1000 * (n - 1); ++i) "
                      "{ void* volatile p = std::malloc(100); std::free(p); } }")  # fmt: skip
    subprocess.run(["c++", "-O0", source, "-o", tmp_path / "allocate"], check=True)
    # when it is counted with and without them
    some, none = counter.run([str(tmp_path / "allocate"), "x"]), counter.run([str(tmp_path / "allocate")])
    # then they are the difference
    assert some["allocations"] - none["allocations"] == 1000
    assert some["allocated bytes"] - none["allocated bytes"] == 100_000


def test_instructions_are_those_of_all_threads(counter, tmp_path):
    if not counter.valgrind:
        pytest.skip("valgrind is not installed")
    # given two threads that add a million numbers each, an instruction each at least
    source = tmp_path / "add.cpp"
    source.write_text("#include <thread>\n"
                      "void add(int n) { volatile long s = 0; for (int i = 0; i < n; ++i) s = s + i; }"
                      "int main(int n, char**) { std::thread a(add, 1000000 * (n - 1)), b(add, 1000000 * (n - 1));"
                      " a.join(); b.join(); }")  # fmt: skip
    subprocess.run(["c++", "-O1", "-std=c++20", "-pthread", source, "-o", tmp_path / "add"], check=True)
    # when it is counted with and without them
    program = str(tmp_path / "add")
    some, none = counter.instructions([program, "x"]), counter.instructions([program])
    # then a turn is 4 to 8 instructions: load, add, store, increment, compare, jump
    assert 2 * 1_000_000 * 4 <= some - none <= 2 * 1_000_000 * 8


def test_growth_is_seen_beyond_a_tenth():
    before = {"allocations": 1000, "stat": 5, "page faults": 10}
    assert counted.against(before, {"allocations": 1160, "stat": 60, "page faults": 900}) == ([], [])
    grew, shrank = counted.against(before, {"allocations": 1165, "stat": 70, "page faults": 10})
    assert grew == ["allocations 1000 -> 1165", "stat 5 -> 70"] and shrank == []
    assert counted.against(before, {"allocations": 800, "page faults": 10}) == ([], ["allocations 1000 -> 800"])


@pytest.mark.slow
def test_nothing_asks_more_of_the_system_than_it_did(counter, assay_command):
    done = subprocess.run(
        [sys.executable, "-m", "bench.counted", "--assay", assay_command], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("same") + done.stdout.count("less") >= 12
