# SPDX-License-Identifier: Apache-2.0
"""`assay opcheck --ray`: cases are checked where their files are, and the report is that of one process."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
from ray_hosts import Hosts, files_of, rows_of

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cli"))
from opcheck_dump import run_folder_of, write_operation
from operator_runs import write_run as write_program

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_folders")]
RANKS, STEPS = 3, 2
FORMATS = ["--format", "csv", "jsonl", "html", "xlsx", "-o", "report"]
PARTS = {"dump": RANKS * STEPS + STEPS, "program": 2 * 2}  # one a rank and step; of the sum over ranks one a step


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """dump: of ATB, a sum wrong on rank 1; program: two ranks of operators, a product wrong on the second."""
    folder = tmp_path_factory.mktemp("whole")
    draw = np.random.default_rng(3)
    shards = [draw.standard_normal((4, 8)).astype(np.float16) for _ in range(RANKS)]
    reduced = np.sum(np.stack(shards).astype(np.float64), axis=0).astype(np.float16)
    for rank in range(RANKS):
        for step in range(STEPS):
            place = run_folder_of(folder / "dump", rank, 4711 + rank, step)
            a, b = (draw.standard_normal((4, 8)).astype(np.float16) for _ in range(2))
            added = (a.astype(np.float64) + b).astype(np.float16)
            added = added * 2 if (rank, step) == (1, 1) else added
            write_operation(place, "0_ElewiseOperation", {"elewiseType": 8}, [a, b], [added])
            parameters = {"rank": rank, "rankSize": RANKS, "allReduceType": "sum"}
            write_operation(place, "1_AllReduceOperation", parameters, [shards[rank]], [reduced])
            write_operation(place, "2_NoSuchOperation", None, [a], [b])
    write_program(folder / "program", steps=(0, 1))
    write_program(folder / "second", steps=(0, 1), kernels={"blocks.1.proj": lambda values: values * 1.5})
    shutil.move(folder / "second" / "rank0", folder / "program" / "rank1")
    return folder


@pytest.fixture
def given(whole: Path, hosts: Hosts) -> Hosts:
    tensors = run_folder_of(Path("dump")).parent.parent
    hosts.give(0, whole, f"{tensors}/0_4711", f"{tensors}/1_4712", "program/manifest.json", "program/rank0")
    hosts.give(1, whole, f"{tensors}/2_4713", "program/manifest.json", "program/rank1")
    return hosts


def test_operators_are_checked_where_they_are(whole, given: Hosts, tmp_path):
    done = given.check_both(tmp_path, "opcheck", given.data / "program", "-opname", "mm", *FORMATS, whole=whole)
    assert done.returncode == 1 and "blocks.1.proj" in done.stdout
    assert len(files_of(tmp_path / "here")) == 4
    assert len(given.parts()) == PARTS["program"]


@pytest.mark.parametrize(("run", "finding"), [("dump", " FAILED of 18 operations"), ("program", "blocks.1.proj")])
def test_a_worker_that_is_killed_is_replaced(whole, given: Hosts, tmp_path, run, finding):
    given.order("kill")
    done = given.check_both(tmp_path, "opcheck", given.data / run, *FORMATS, whole=whole)
    assert done.returncode == 1 and finding in done.stdout
    assert len(files_of(tmp_path / "here")) == 4
    assert not given.is_ordered("kill")
    assert len(given.parts()) == PARTS[run] + 1


@pytest.mark.parametrize(("run", "file"), [("dump", b"2_4713/1/0_Elewise"), ("program", b"rank1/step-000000")])
def test_a_part_that_fails_is_rows_with_the_reason(whole, given: Hosts, tmp_path, run, file):
    given.order("fail", file)
    words = [given.data / run, "--format", "jsonl"]
    given.alone(whole, "opcheck", *words, "-o", tmp_path / "here")
    done = given.run("opcheck", *words, "-o", tmp_path / "there")
    assert done.returncode == 1
    rows, healthy = rows_of(tmp_path / "there"), rows_of(tmp_path / "here")
    assert len(rows) == len(healthy)
    failed = [row for row in rows if row["result"] == "ERROR"]
    assert failed
    assert all(re.fullmatch(r"not checked: .*: the disk is on fire", row["reason"]) for row in failed)
    assert all(row in failed or row == other for row, other in zip(rows, healthy))


@pytest.mark.parametrize("run", ["dump", "program"])
def test_ctrl_c_leaves_a_report_of_what_is_done(whole, given: Hosts, tmp_path, run):
    given.order("hang", 2)
    words = [given.data / run, "--format", "jsonl"]
    given.alone(whole, "opcheck", *words, "-o", tmp_path / "here")
    status, out, errors = given.interrupt("opcheck", *words, "-o", tmp_path / "there", parts=3)
    assert status == 130, (out, errors)
    rows, healthy = rows_of(tmp_path / "there"), rows_of(tmp_path / "here")
    assert 0 < len(rows) < len(healthy)
    assert all(row in healthy for row in rows)
    assert "interrupted before the end" in out


def test_what_is_done_is_not_done_again(whole, given: Hosts, tmp_path):
    """Also by metrics, one of them the user's, and precisions that are chosen."""
    algorithm = tmp_path / "algorithm.py"
    algorithm.write_text("def spread(golden, mine):\n    return float(abs(golden - mine).max()), 'a remark'\n")
    words = [given.data / "dump", "-alg", f"{algorithm}:spread", "--standard", "mixed", "-pmode", "force_fp32"]
    words += FORMATS
    metrics, resume = ("-metric", "kl", "abs"), ("--resume", tmp_path / "kept")
    done = given.check_both(tmp_path, "opcheck", *words, *metrics, whole=whole, only_there=resume)
    assert done.returncode == 1 and " FAILED of 18 operations" in done.stdout
    assert len(files_of(tmp_path / "here")) == 4
    assert rows_of(tmp_path / "there")[0]["spread"] is not None
    assert len(given.parts()) == PARTS["dump"]

    given.forget_parts()
    (tmp_path / "again").mkdir()
    given.run("opcheck", *words, *metrics, *resume, cwd=tmp_path / "again")
    assert given.parts() == []
    assert files_of(tmp_path / "again") == files_of(tmp_path / "here")

    given.run("opcheck", *words, *resume, "-o", tmp_path / "third")  # rows of other metrics are other rows
    assert len(given.parts()) == PARTS["dump"]
