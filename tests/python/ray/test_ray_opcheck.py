# SPDX-License-Identifier: Apache-2.0
"""`assay opcheck --ray`: cases are checked where their files are, and the report is that of one process."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("torch")
from own_folders import WatchedHosts, alone, may_have_namespaces  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cli"))
from opcheck_dump import run_folder_of, write_operation  # noqa: E402
from operator_runs import write_run as write_program  # noqa: E402

__all__ = ["may_have_namespaces"]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("may_have_namespaces")]
RANKS, STEPS, KINDS = 3, 2, 3
FORMATS = ["--format", "csv", "jsonl", "html", "xlsx"]


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


@pytest.fixture(scope="module")
def cluster(whole: Path, tmp_path_factory: pytest.TempPathFactory):
    made = WatchedHosts(tmp_path_factory.mktemp("hosts"), 2)
    tensors = run_folder_of(Path("dump")).parent.parent
    made.give(0, whole, f"{tensors}/0_4711", f"{tensors}/1_4712", "program/manifest.json", "program/rank0")
    made.give(1, whole, f"{tensors}/2_4713", "program/manifest.json", "program/rank1")
    yield made
    made.close()


@pytest.fixture
def hosts(cluster: WatchedHosts) -> WatchedHosts:
    cluster.clear()
    return cluster


def said(result: subprocess.CompletedProcess[str]) -> str:
    """But for the time that it took, and the names of files."""
    return re.sub(r"^report: .*\n|in \d+\.\d\d s", "", result.stdout, flags=re.MULTILINE)


def files_of(folder: Path) -> dict[str, bytes]:
    """The report's files, by their names without the time."""
    return {re.sub(r"_\d{8}_\d{6}", "", file.name): file.read_bytes() for file in folder.iterdir()}


def rows_of(folder: Path) -> list[dict[str, object]]:
    (file,) = folder.glob("*.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def check_both(whole: Path, hosts: WatchedHosts, out: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """The report of the hosts is that of one process; returns what was said."""
    here = alone(whole, hosts.data, "opcheck", *words, *FORMATS, "-o", out / "here")
    there = hosts.run("opcheck", *words, *FORMATS, "-o", out / "there")
    assert (there.returncode, there.stderr) == (here.returncode, here.stderr)
    assert said(there) == said(here)
    there_files, here_files = files_of(out / "there"), files_of(out / "here")
    assert sorted(there_files) == sorted(here_files)
    assert [name for name in here_files if there_files[name] != here_files[name]] == []
    assert len(here_files) == 4
    return there


@pytest.mark.parametrize("more", [[], ["--standard", "mixed", "-metric", "kl", "abs", "-pmode", "force_fp32"]])
def test_operations_are_checked_where_they_are(whole, hosts, tmp_path, more):
    done = check_both(whole, hosts, tmp_path, hosts.data / "dump", *more)
    assert done.returncode == 1 and " FAILED of 18 operations" in done.stdout
    # One part a rank and step, and of the sum over ranks one a step.
    assert len(hosts.parts()) == RANKS * STEPS + STEPS


def test_metrics_of_the_user_are_computed_there(whole, hosts, tmp_path):
    algorithm = tmp_path / "algorithm.py"
    algorithm.write_text("def spread(golden, mine):\n    return float(abs(golden - mine).max()), 'a remark'\n")
    check_both(whole, hosts, tmp_path, hosts.data / "dump", "-alg", f"{algorithm}:spread")
    assert rows_of(tmp_path / "there")[0]["spread"] is not None
    assert len(hosts.parts()) == RANKS * STEPS + STEPS


@pytest.mark.parametrize("more", [[], ["-opname", "mm"]])
def test_operators_are_checked_where_they_are(whole, hosts, tmp_path, more):
    done = check_both(whole, hosts, tmp_path, hosts.data / "program", *more)
    assert done.returncode == 1 and "blocks.1.proj" in done.stdout
    assert len(hosts.parts()) == 2 * 2  # of one rank and step


@pytest.mark.parametrize("run", ["dump", "program"])
def test_a_worker_that_is_killed_is_replaced(whole, hosts, tmp_path, run):
    (hosts.folder / "kill").touch()
    check_both(whole, hosts, tmp_path, hosts.data / run)
    assert not (hosts.folder / "kill").exists()


@pytest.mark.parametrize(("run", "file"), [("dump", b"2_4713/1/0_Elewise"), ("program", b"rank1/step-000000")])
def test_a_part_that_fails_is_rows_with_the_reason(whole, hosts, tmp_path, run, file):
    (hosts.folder / "fail").write_bytes(file)
    words = [hosts.data / run, "--format", "jsonl"]
    alone(whole, hosts.data, "opcheck", *words, "-o", tmp_path / "here")
    done = hosts.run("opcheck", *words, "-o", tmp_path / "there")
    assert done.returncode == 1
    rows, healthy = rows_of(tmp_path / "there"), rows_of(tmp_path / "here")
    assert len(rows) == len(healthy)
    failed = [row for row in rows if row["result"] == "ERROR"]
    assert failed
    assert all(re.fullmatch(r"not checked: .*: the disk is on fire", row["reason"]) for row in failed)
    assert all(row in failed or row == other for row, other in zip(rows, healthy))


@pytest.mark.parametrize(("run", "noun"), [("dump", "operations"), ("program", "operators")])
def test_ctrl_c_leaves_a_report_of_what_is_done(whole, hosts, tmp_path, run, noun):
    (hosts.folder / "hang").touch()
    words = [hosts.data / run, "--format", "jsonl"]
    alone(whole, hosts.data, "opcheck", *words, "-o", tmp_path / "here")
    command = subprocess.Popen(
        hosts.words("opcheck", *words, "-o", tmp_path / "there"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while len(hosts.parts()) < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    command.send_signal(signal.SIGINT)
    out, errors = command.communicate(timeout=60)
    assert command.returncode == 130, (out, errors)
    rows, healthy = rows_of(tmp_path / "there"), rows_of(tmp_path / "here")
    assert 0 < len(rows) < len(healthy)
    assert all(row in healthy for row in rows)
    assert "interrupted before the end" in out


def test_what_is_done_is_not_done_again(hosts, tmp_path):
    words = [hosts.data / "dump", *FORMATS, "--resume", tmp_path / "kept"]
    hosts.run("opcheck", *words, "-o", tmp_path / "first")
    assert len(hosts.parts()) == RANKS * STEPS + STEPS
    hosts.clear()
    hosts.run("opcheck", *words, "-o", tmp_path / "second")
    assert hosts.parts() == []
    assert files_of(tmp_path / "second") == files_of(tmp_path / "first")
    hosts.run("opcheck", *words, "-metric", "kl", "-o", tmp_path / "third")  # rows of other metrics are other rows
    assert len(hosts.parts()) == RANKS * STEPS + STEPS
