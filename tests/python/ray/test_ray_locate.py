# SPDX-License-Identifier: Apache-2.0
"""`assay locate --ray`: operators are judged where their files are, and the verdict is that of one process."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
from ray_hosts import Hosts, files_of, rows_of

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cli"))
from operator_runs import write_run as write_program

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_folders")]
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


@pytest.fixture
def given(whole: Path, hosts: Hosts) -> Hosts:
    """A rank on each host."""
    for run in RUNS:
        for rank in range(RANKS):
            hosts.give(rank, whole, f"{run}/manifest.json", f"{run}/rank{rank}")
    return hosts


@pytest.mark.parametrize(("mine", "more", "status"), [("same", ["--why"], 0), ("mine", ["--own-error", "off"], 1)])
def test_the_verdict_is_that_of_one_process(whole, given: Hosts, tmp_path, mine, more, status):
    words = [given.data / "golden", given.data / mine, *more]
    there = given.check_both(tmp_path, "locate", *words, whole=whole)
    assert there.returncode == status, there.stdout
    assert len(given.parts()) == (0 if "off" in more else 2 * PARTS_OF_A_RUN)


def test_what_is_done_is_not_done_again(whole, given: Hosts, tmp_path):
    words = [given.data / "golden", given.data / "mine", "--html", "page.html"]
    resume = ("--resume", tmp_path / "kept")
    first = given.check_both(tmp_path, "locate", *words, whole=whole, only_there=resume)
    assert first.returncode == 1 and list(files_of(tmp_path / "here")) == ["page.html"]
    assert len(given.parts()) == 2 * PARTS_OF_A_RUN
    given.forget_parts()
    (tmp_path / "again").mkdir()
    second = given.run("locate", *words, *resume, cwd=tmp_path / "again")
    assert given.parts() == []
    assert (second.stdout, second.returncode) == (first.stdout, first.returncode)
    assert files_of(tmp_path / "again") == files_of(tmp_path / "here")


def test_a_worker_that_is_killed_is_replaced(whole, given: Hosts, tmp_path):
    given.order("kill")
    words = [given.data / "golden", given.data / "mine", "--json"]
    there = given.check_both(tmp_path, "locate", *words, whole=whole)
    assert there.returncode == 1
    assert not given.is_ordered("kill")


def test_a_comparison_has_its_operators_judged_there_as_well(whole, given: Hosts, tmp_path):
    words = [given.data / "golden", given.data / "mine", "--jsonl", "-o", "report"]
    given.check_both(tmp_path, "compare", *words, whole=whole)
    assert len(files_of(tmp_path / "here")) >= 2
    assert sum(b"assay operators" in part for part in given.parts()) == 2 * PARTS_OF_A_RUN
    assert sum(b"assay pairs" in part for part in given.parts()) >= PARTS_OF_A_RUN


def test_a_part_that_fails_is_said(given: Hosts):
    given.order("fail", b"same/rank1/step-000000")
    there = given.run("locate", given.data / "golden", given.data / "same")
    text = " ".join(there.stdout.split())
    why = "20 operators of the run under test could not be judged on their own inputs: "
    assert re.search(f"note: {why}.*: the disk is on fire", there.stderr), there.stderr
    assert "20 of 40 operators are exact to rounding" in text and "confidence high" not in text


def test_ctrl_c_ends_it_without_a_verdict(given: Hosts):
    given.order("hang", 2)
    status, out, errors = given.interrupt("locate", given.data / "golden", given.data / "mine", parts=3)
    assert (status, out) == (130, ""), errors
    assert "interrupted" in errors and "no verdict" in errors


def test_ctrl_c_leaves_the_rows_of_a_comparison(given: Hosts, tmp_path):
    given.order("hang", 2)
    words = [given.data / "golden", given.data / "mine", "--jsonl", "-o", tmp_path / "out"]
    status, out, errors = given.interrupt("compare", *words, parts=3)
    assert status == 130, (out, errors)
    assert "no verdict: stopped by the user" in out + errors
    rows = rows_of(tmp_path / "out")
    assert rows and all("stopped by the user" in row["cmp_fail_reason"] for row in rows)
