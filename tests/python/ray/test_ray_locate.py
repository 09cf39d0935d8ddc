# SPDX-License-Identifier: Apache-2.0
"""`assay locate --ray`: operators are judged where their files are, and the verdict is that of one process."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("torch")
from own_folders import WatchedHosts, alone, may_have_namespaces, report_of, rows_of, said  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cli"))
from operator_runs import write_run as write_program  # noqa: E402

__all__ = ["may_have_namespaces"]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("may_have_namespaces")]
RUNS, RANKS, STEPS = ("golden", "mine", "same"), 2, 2
PARTS_OF_A_RUN = RANKS * STEPS


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """golden, mine and same: two ranks of operators; in mine a product is wrong on the second."""
    folder = tmp_path_factory.mktemp("whole")
    for run in RUNS:
        for rank in range(RANKS):
            wrong = {"blocks.1.proj": lambda values: values * 1.5} if (run, rank) == ("mine", 1) else {}
            write_program(folder / "one", steps=tuple(range(STEPS)), kernels=wrong)
            shutil.move(folder / "one" / "rank0", folder / run / f"rank{rank}")
            shutil.copy(folder / "one" / "manifest.json", folder / run / "manifest.json")
            shutil.rmtree(folder / "one")
    return folder


@pytest.fixture(scope="module")
def cluster(whole: Path, tmp_path_factory: pytest.TempPathFactory):
    """A rank on each host."""
    made = WatchedHosts(tmp_path_factory.mktemp("hosts"), RANKS)
    for run in RUNS:
        for rank in range(RANKS):
            made.give(rank, whole, f"{run}/manifest.json", f"{run}/rank{rank}")
    yield made
    made.close()


@pytest.fixture
def hosts(cluster: WatchedHosts) -> WatchedHosts:
    cluster.clear()
    return cluster


@pytest.mark.parametrize(
    ("mine", "more", "status"),
    [("mine", [], 1), ("mine", ["--json"], 1), ("same", ["--why"], 0), ("mine", ["--own-error", "off"], 1)],
)
def test_the_verdict_is_that_of_one_process(whole, hosts, mine, more, status):
    words = [hosts.data / "golden", hosts.data / mine, *more]
    here = alone(whole, hosts.data, "locate", *words)
    there = hosts.run("locate", *words)
    assert (there.stdout, there.stderr, there.returncode) == (here.stdout, here.stderr, here.returncode)
    assert here.returncode == status, here.stdout
    assert len(hosts.parts()) == (0 if "off" in more else 2 * PARTS_OF_A_RUN)


def test_a_page_is_that_of_one_process(whole, hosts, tmp_path):
    words = [hosts.data / "golden", hosts.data / "mine"]
    alone(whole, hosts.data, "locate", *words, "--html", tmp_path / "here.html")
    hosts.run("locate", *words, "--html", tmp_path / "there.html")
    assert (tmp_path / "there.html").read_bytes() == (tmp_path / "here.html").read_bytes()


def test_a_comparison_has_its_operators_judged_there_as_well(whole, hosts, tmp_path):
    words = [hosts.data / "golden", hosts.data / "mine", "--jsonl"]
    here = alone(whole, hosts.data, "compare", *words, "-o", tmp_path / "here")
    there = hosts.run("compare", *words, "-o", tmp_path / "there")
    assert (said(there), there.stderr, there.returncode) == (said(here), here.stderr, here.returncode)
    assert report_of(tmp_path / "there") == report_of(tmp_path / "here")
    assert sum(b"assay operators" in part for part in hosts.parts()) == 2 * PARTS_OF_A_RUN
    assert sum(b"assay pairs" in part for part in hosts.parts()) >= PARTS_OF_A_RUN


def test_a_worker_that_is_killed_is_replaced(whole, hosts):
    (hosts.folder / "kill").touch()
    words = [hosts.data / "golden", hosts.data / "mine"]
    here = alone(whole, hosts.data, "locate", *words)
    there = hosts.run("locate", *words)
    assert not (hosts.folder / "kill").exists()
    assert (there.stdout, there.stderr, there.returncode) == (here.stdout, here.stderr, here.returncode)


def test_a_part_that_fails_is_said(hosts):
    (hosts.folder / "fail").write_bytes(b"same/rank1/step-000000")
    there = hosts.run("locate", hosts.data / "golden", hosts.data / "same")
    text = " ".join(there.stdout.split())
    why = "20 operators of the run under test could not be judged on their own inputs: "
    assert re.search(f"note: {why}.*: the disk is on fire", there.stderr), there.stderr
    assert "20 of 40 operators are exact to rounding" in text and "confidence high" not in text


def test_what_is_done_is_not_done_again(hosts, tmp_path):
    words = [hosts.data / "golden", hosts.data / "mine", "--resume", tmp_path / "kept"]
    first = hosts.run("locate", *words)
    assert len(hosts.parts()) == 2 * PARTS_OF_A_RUN
    hosts.clear()
    second = hosts.run("locate", *words)
    assert hosts.parts() == []
    assert (second.stdout, second.returncode) == (first.stdout, first.returncode)


def stopped(hosts: WatchedHosts, *words: object) -> tuple[int, str, str]:
    """Status, output and errors of a command that gets Ctrl-C while its parts hang."""
    (hosts.folder / "hang").touch()
    command = subprocess.Popen(hosts.words(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(hosts.parts()) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    command.send_signal(signal.SIGINT)
    out, errors = command.communicate(timeout=30)
    return command.returncode, out, errors


def test_ctrl_c_ends_it_without_a_verdict(hosts):
    status, out, errors = stopped(hosts, "locate", hosts.data / "golden", hosts.data / "mine")
    assert (status, out) == (130, ""), errors
    assert "interrupted" in errors and "no verdict" in errors


def test_ctrl_c_leaves_the_rows_of_a_comparison(hosts, tmp_path):
    words = ["compare", hosts.data / "golden", hosts.data / "mine", "--jsonl", "-o", tmp_path / "out"]
    status, out, errors = stopped(hosts, *words)
    assert status == 130, (out, errors)
    assert "no verdict: stopped by the user" in out + errors
    rows = rows_of(tmp_path / "out")
    assert rows and all("stopped by the user" in row["cmp_fail_reason"] for row in rows)
