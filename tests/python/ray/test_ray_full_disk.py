# SPDX-License-Identifier: Apache-2.0
"""`assay compare --ray` when the disk of its own host is full.

A limit on the size of files stands for the full disk: a write fails with EFBIG where it would with ENOSPC. It holds for
the driver and the native command that it starts; the nodes have none.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ray_hosts import Hosts, alone, files_of, write_run

pytestmark = pytest.mark.slow

TENSORS = 400  # one part: its rows take 200 kB, the report 130 kB


def limit_of_files(size: int) -> Callable[[], None]:
    """What a process does before its program starts."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    golden = np.arange(1, TENSORS * 4 + 1, dtype=np.float32).reshape(TENSORS, 4)
    mine = golden.copy()
    mine[7] *= 1.5
    write_run(folder / "golden", {0: list(golden)}, layers=TENSORS)
    write_run(folder / "mine", {0: list(mine)}, layers=TENSORS)
    return [folder / "golden", folder / "mine"]


def test_a_report_that_does_not_fit_is_status_2_and_leaves_nothing(runs, hosts: Hosts, tmp_path):
    words = [*runs, "-cl", "api"]
    there = hosts.run("compare", *words, "-o", tmp_path / "there", preexec_fn=limit_of_files(50_000))
    here = alone("compare", *words, "-o", tmp_path / "here", preexec_fn=limit_of_files(50_000))
    assert (there.returncode, here.returncode) == (2, 2), there
    assert there.stdout == here.stdout == ""
    sentence, following = there.stderr.splitlines()
    assert sentence.startswith(f"error: {tmp_path / 'there'}/") and sentence.endswith("File too large")
    assert following == here.stderr.splitlines()[1]
    assert list((tmp_path / "there").iterdir()) == []


def test_a_comparison_goes_on_when_its_parts_cannot_be_kept(runs, hosts: Hosts, tmp_path):
    words = [*runs, "-cl", "api"]
    alone("compare", *words, "-o", tmp_path / "here")
    size = len(files_of(tmp_path / "here")["msit_cmp_report.csv"])
    parts = tmp_path / "parts"
    words += ["--resume", parts, "-o", tmp_path / "there"]
    there = hosts.run("compare", *words, preexec_fn=limit_of_files(size + 4096))
    assert there.returncode == 0, there
    assert there.stderr == f"warning: {parts}: parts are not kept any more: File too large\n"
    assert files_of(tmp_path / "there") == files_of(tmp_path / "here")
    assert list(parts.iterdir()) == []


def test_that_parts_cannot_be_kept_is_said_once(tmp_path, capsys):
    from assay.ray.driver import Driver
    from assay.ray.parts import Part

    options = argparse.Namespace(run=[], resume=str(tmp_path))
    driver = Driver(options)
    first, second, third = (Part(number, 1, False, (), bytes([number])) for number in range(3))
    driver._keep(first, b"rows" * 100)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1][1]))
    try:
        driver._keep(second, b"rows" * 100)
        driver._keep(third, b"rows" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before[1])
        signal.signal(signal.SIGXFSZ, before[0])
    assert capsys.readouterr().err == f"warning: {tmp_path}: parts are not kept any more: File too large\n"
    assert [file.name for file in tmp_path.iterdir()] == [f"{first.digest}.rows"]
    assert driver._known_answer(first) == b"rows" * 100


def child_of(process: int) -> int:
    """The only one."""
    (child,) = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return int(child)


def test_a_command_that_is_killed_is_said(runs, hosts: Hosts, tmp_path):
    # As the kernel does it where memory is short: SIGKILL for the native command while its part is on a node.
    hosts.order("slow", 2)
    command = hosts.start("compare", *runs, "-cl", "api", "-o", tmp_path / "out", parts=1)
    driver = child_of(command.pid)
    os.kill(child_of(driver), signal.SIGKILL)
    out, errors = command.communicate(timeout=60)
    assert (command.returncode, out, errors) == (2, "", "error: assay compare was ended by signal 9\n")
