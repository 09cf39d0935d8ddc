# SPDX-License-Identifier: Apache-2.0
"""`assay compare --ray` on clusters of several nodes in this machine, against the same command without."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

ray = pytest.importorskip("ray")
from bench.ray_cluster import NODE, add_node  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

pytestmark = pytest.mark.slow

RANKS, STEPS, LAYERS = 3, 2, 4


def binary() -> str:
    """The command under test."""
    return os.environ.get("ASSAY_BINARY") or str(Path(sys.executable).with_name("assay"))


def write_run(folder: Path, shards: dict[int, list[np.ndarray]], layers: int = LAYERS) -> None:
    """A native run: of each rank its tensors, the outputs of so many layers a step."""
    for rank, tensors in shards.items():
        place = folder / f"rank{rank}"
        place.mkdir(parents=True)
        lines = []
        for number, tensor in enumerate(tensors):
            step, layer = divmod(number, layers)
            file = place / f"step-{step:06}.safetensors"
            with file.open("ab") as out:
                if out.tell() == 0:
                    out.write(bytes(64))
                offset = out.tell()
                out.write(tensor.tobytes())
            line = {"n": number, "step": step, "node": f"layers.{layer}", "type": "Linear", "order": layer}
            line |= {"role": "output", "slot": "", "dtype": "float32", "shape": list(tensor.shape)}
            line |= {"file": file.name, "offset": offset, "bytes": tensor.nbytes}
            lines.append(json.dumps(line))
        (place / "records.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "manifest.json").write_text(json.dumps({"format": "assay-run", "version": 1, "complete": True}))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """golden and mine of RANKS ranks, mine wrong in layer 2 of rank 1; whole and halves: one tensor on two ranks."""
    folder = tmp_path_factory.mktemp("runs")
    draw = np.random.default_rng(5)
    golden = {rank: [draw.standard_normal((8, 16), np.float32) for _ in range(STEPS * LAYERS)] for rank in range(RANKS)}
    mine = {rank: [tensor.copy() for tensor in tensors] for rank, tensors in golden.items()}
    mine[1][2] *= 1.5
    write_run(folder / "golden", golden)
    write_run(folder / "mine", mine)
    write_run(folder / "whole", {0: golden[0]})
    write_run(
        folder / "halves", {half: [np.ascontiguousarray(t[:, half * 8 :][:, :8]) for t in golden[0]] for half in (0, 1)}
    )
    return folder


def wrapper(folder: Path, body: str) -> Path:
    """A command that does `body` before it is `assay`, on every node."""
    path = folder / "assay"
    path.write_text(f"#!{sys.executable}\nimport os, sys, time\nfolder = {str(folder)!r}\n{body}\n")
    with path.open("a") as out:
        out.write(f"os.execv({binary()!r}, ['assay', *sys.argv[1:]])\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


class Nodes:
    """A cluster whose nodes run `command`."""

    def __init__(self, command: str, count: int) -> None:
        os.environ["ASSAY_BINARY"], self._before = command, os.environ.get("ASSAY_BINARY")
        try:
            self.cluster = Cluster()
            self.others = [add_node(self.cluster, **NODE) for _ in range(count)][1:]
        finally:
            self._restore()

    def _restore(self) -> None:
        if self._before is None:
            del os.environ["ASSAY_BINARY"]
        else:
            os.environ["ASSAY_BINARY"] = self._before

    def words(self, *words: object) -> list[str]:
        return [binary(), "compare", *map(str, words), f"--ray={self.cluster.address}"]

    def run(self, *words: object, **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.words(*words), capture_output=True, text=True, timeout=120, **options)

    def close(self) -> None:
        self.cluster.shutdown()


@pytest.fixture(scope="module")
def nodes() -> Nodes:
    made = Nodes(binary(), 3)
    yield made
    made.close()


def alone(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [binary(), "compare", *map(str, words), "--jobs", "1"], capture_output=True, text=True, timeout=120
    )


def report_of(folder: Path) -> dict[str, bytes]:
    """The report's files, by their names without the time: "msit_cmp_report.jsonl"."""
    return {re.sub(r"_\d{14}", "", file.name): file.read_bytes() for file in folder.iterdir()}


def rows_of(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in report_of(folder)["msit_cmp_report.jsonl"].splitlines()]


def said(result: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in result.stdout.splitlines() if not line.startswith("report:")]


@pytest.mark.parametrize(
    ("golden", "mine", "more"),
    [
        ("golden", "mine", []),
        ("golden", "mine", ["--rel-l2", "0.1", "--unmatched"]),
        ("whole", "halves", []),
        ("golden", "mine", ["--stats"]),
    ],
)
def test_the_report_is_that_of_one_process(runs, nodes, tmp_path, golden, mine, more):
    words = [runs / golden, runs / mine, "-cl", "api", "--jsonl", *more]
    here = alone(*words, "-o", tmp_path / "here")
    there = nodes.run(*words, "-o", tmp_path / "there")
    assert there.stderr == here.stderr
    assert (said(there), there.returncode) == (said(here), here.returncode)
    assert report_of(tmp_path / "there") == report_of(tmp_path / "here")
    assert len(report_of(tmp_path / "here")) >= 2


def test_a_page_is_that_of_one_process(runs, nodes, tmp_path):
    words = [runs / "golden", runs / "mine", "-cl", "api", "-o", tmp_path / "report"]
    alone(*words, "--html", tmp_path / "here.html")
    nodes.run(*words, "--html", tmp_path / "there.html")
    assert (tmp_path / "there.html").read_bytes() == (tmp_path / "here.html").read_bytes()


def test_a_worker_that_is_killed_is_replaced(runs, tmp_path):
    # The first part that each process of the cluster is given ends by SIGKILL.
    body = (
        "if sys.argv[1] == 'part':\n"
        "    try:\n"
        "        os.close(os.open(folder + '/killed', os.O_CREAT | os.O_EXCL))\n"
        "    except FileExistsError:\n"
        "        pass\n"
        "    else:\n"
        "        os.kill(os.getpid(), 9)\n"
    )
    words = [runs / "golden", runs / "mine", "-cl", "api", "--jsonl"]
    alone(*words, "-o", tmp_path / "here")
    made = Nodes(str(wrapper(tmp_path, body)), 2)
    try:
        there = made.run(*words, "-o", tmp_path / "there")
    finally:
        made.close()
    assert (tmp_path / "killed").exists()
    assert there.returncode == 0, there.stderr
    assert report_of(tmp_path / "there") == report_of(tmp_path / "here")


def test_a_node_that_goes_in_the_middle_is_replaced(runs, tmp_path):
    body = "if sys.argv[1] == 'part':\n    open(folder + f'/begun-{os.getpid()}', 'w').close()\n    time.sleep(1)\n"
    words = [runs / "golden", runs / "mine", "-cl", "api", "--jsonl"]
    alone(*words, "-o", tmp_path / "here")
    made = Nodes(str(wrapper(tmp_path, body)), 3)
    try:
        command = subprocess.Popen(
            made.words(*words, "-o", tmp_path / "there"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("begun-*"))) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        made.cluster.remove_node(made.others[0], allow_graceful=False)
        _, errors = command.communicate(timeout=120)
    finally:
        made.close()
    assert command.returncode == 0, errors
    assert report_of(tmp_path / "there") == report_of(tmp_path / "here")


def test_a_part_that_fails_is_rows_with_the_reason(runs, tmp_path):
    # Parts are of one rank and step: those with the file of rank 1's step 0 fail.
    body = (
        "if sys.argv[1] == 'part':\n"
        "    import io, subprocess\n"
        "    part = sys.stdin.buffer.read()\n"
        "    if b'mine/rank1/step-000000' in part:\n"
        "        print('error: the disk is on fire', file=sys.stderr)\n"
        "        sys.exit(2)\n"
        f"    sys.exit(subprocess.run([{binary()!r}, *sys.argv[1:]], input=part).returncode)\n"
    )
    words = [runs / "golden", runs / "mine", "-cl", "api", "--jsonl"]
    alone(*words, "-o", tmp_path / "here")
    made = Nodes(str(wrapper(tmp_path, body)), 2)
    try:
        made.run(*words, "-o", tmp_path / "there")
    finally:
        made.close()
    rows = rows_of(tmp_path / "there")
    healthy = rows_of(tmp_path / "here")
    assert len(rows) == len(healthy) == RANKS * STEPS * LAYERS
    for row, other in zip(rows, healthy):
        if (row["rank"], row["token_id"]) == (1, 0):
            assert row["cmp_fail_reason"].startswith("not compared: ")
            assert row["cmp_fail_reason"].endswith("the disk is on fire.")
            assert row["cosine_similarity"] is None
        else:
            assert row == other


def test_ctrl_c_leaves_a_report_of_what_is_done(runs, tmp_path):
    body = (
        "if sys.argv[1] == 'part':\n"
        "    open(folder + f'/begun-{os.getpid()}', 'w').close()\n"
        "    time.sleep(0.1 if len(os.listdir(folder)) < 4 else 60)\n"
    )
    made = Nodes(str(wrapper(tmp_path, body)), 2)
    try:
        words = made.words(runs / "golden", runs / "mine", "-cl", "api", "--jsonl", "-o", tmp_path / "out")
        command = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("begun-*"))) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        command.send_signal(signal.SIGINT)
        out, errors = command.communicate(timeout=60)
    finally:
        made.close()
    assert command.returncode == 130, (out, errors)
    rows = rows_of(tmp_path / "out")
    stopped = [row for row in rows if row["cmp_fail_reason"]]
    assert 0 < len(stopped) < len(rows)
    assert all("stopped by the user" in row["cmp_fail_reason"] for row in stopped)
    assert f"interrupted: {len(stopped)} of {len(rows)} pairs were not compared" in out


def test_what_is_done_is_not_done_again(runs, tmp_path):
    body = "if sys.argv[1] == 'part':\n    open(folder + f'/begun-{os.getpid()}', 'w').close()\n"
    made = Nodes(str(wrapper(tmp_path, body)), 2)
    words = [runs / "golden", runs / "mine", "-cl", "api", "--jsonl", "--resume", tmp_path / "parts"]
    try:
        made.run(*words, "-o", tmp_path / "first")
        begun = len(list(tmp_path.glob("begun-*")))
        made.run(*words, "-o", tmp_path / "second")
    finally:
        made.close()
    assert begun == RANKS * STEPS
    assert len(list(tmp_path.glob("begun-*"))) == begun
    assert report_of(tmp_path / "second") == report_of(tmp_path / "first")


def test_a_wrong_address_is_one_sentence(runs):
    result = subprocess.run(
        [binary(), "compare", runs / "golden", runs / "mine", "--ray=127.0.0.1:1"],
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert "Ray cluster at 127.0.0.1:1" in result.stderr


def test_without_ray_it_says_what_to_install(runs, tmp_path):
    # A Python that has nothing but its own library.
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {sys.base_prefix}/bin/python3 -S -E "$@"\n')
    python.chmod(0o755)
    result = subprocess.run(
        [binary(), "compare", runs / "golden", runs / "mine", "--ray"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "ASSAY_PYTHON": str(python)},
    )
    assert result.returncode == 2
    assert "pip install 'assay-llm[ray]'" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_host_that_is_none_of_the_cluster_is_said(runs, nodes):
    result = nodes.run(runs / "golden", runs / "mine", "--map-host", "nowhere=/data")
    assert result.returncode == 2
    assert "the cluster has no node nowhere" in result.stderr


def test_parts_that_cannot_be_kept_are_said(runs, nodes, tmp_path):
    (tmp_path / "file").write_text("")
    result = nodes.run(runs / "golden", runs / "mine", "--resume", tmp_path / "file")
    assert result.returncode == 2
    assert f"{tmp_path / 'file'}: parts cannot be kept there" in result.stderr


def test_versions_that_differ_are_said():
    from assay.ray.driver import Driver, DriverError
    from assay.ray.nodes import Node

    other = Node("1", "host7", "10.0.0.7", "assay 0.0.1")
    with pytest.raises(DriverError, match=r"node host7 has assay 0\.0\.1, this host has "):
        Driver._check_versions([other])


def test_files_of_no_node_are_said():
    from assay.ray.driver import nobody_sees
    from assay.ray.files import DRIVER, Tree

    tree = Tree()
    tree.add("/g", [DRIVER], [("", "directory", 0, 0), ("file", "file", 3, 1)])
    tree.add("/m", ["1"], [("", "directory", 0, 0), ("file", "file", 3, 1)])
    assert nobody_sees("file", tree, "/g/file") == "no node sees file; --map-host HOST=PATH says which one does"
    assert nobody_sees("file", tree, "/m/file") == "the node that has file is lost"


def test_the_node_with_most_bytes_does_a_part():
    from assay.ray.driver import best_node
    from assay.ray.nodes import Node

    nodes = [Node(name, name, name, "v") for name in "abc"]
    having = {"x": {"a", "b"}, "y": {"b"}, "z": {"c"}}
    assert best_node(nodes, having, {"x": 10, "y": 1, "z": 10}, {"b": 5}).id == "b"
    assert best_node(nodes, having, {"x": 10, "y": 1, "z": 12}, {}).id == "c"
    assert best_node(nodes, {"x": {"a", "b"}}, {"x": 1}, {"a": 1}).id == "b"
