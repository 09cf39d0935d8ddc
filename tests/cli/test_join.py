# SPDX-License-Identifier: Apache-2.0
"""`assay join`: the folders of several hosts become one run.

The oracle is a capture of the same program into one shared folder.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import warm_python
from assay_command import run
from test_answers import refusal, validator

pytest.importorskip("torch")
assay_package = pytest.importorskip("assay")

# One rank of a job: the values depend on the rank, the model does not.
CAPTURE = """
import sys, torch, assay
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
scale = float(sys.argv[2])
with assay.capture(model, sys.argv[1]) as handle:
    for step in range(2):
        model(torch.arange(8.0).reshape(1, 8) * scale + step)
"""
ID = "0123456789abcdef" * 2


def capture(folder: Path, rank: int, *, run_id: str = ID, world_size: int = 2, scale: float = 0.0) -> None:
    variables = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world_size), "ASSAY_RUN_ID": run_id}
    command = [warm_python.python(), "-c", CAPTURE, str(folder), str(scale or rank + 1)]
    subprocess.run(command, env=variables, check=True, timeout=120)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Two folders with a rank each."""
    folder = tmp_path_factory.mktemp("hosts")
    for rank in range(2):
        capture(folder / f"node{rank}", rank)
    return folder


@pytest.fixture
def nodes(hosts, tmp_path):
    for rank in range(2):
        shutil.copytree(hosts / f"node{rank}", tmp_path / f"node{rank}")
    return [tmp_path / f"node{rank}" for rank in range(2)]


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def manifest(folder: Path) -> dict[str, object]:
    return json.loads((folder / "manifest.json").read_text())


def test_two_hosts_become_one_run_that_is_whole(nodes, tmp_path, assay):
    before = [content(node) for node in nodes]

    done = assay("join", tmp_path / "run", *nodes, "--json")

    answer = json.loads(done.stdout)
    assert (answer["outcome"], answer["ranks"], answer["missing"], answer["id"]) == ("joined", [0, 1], [], ID)
    assert [content(node) for node in nodes] == before
    for rank, node in enumerate(nodes):
        for path in (tmp_path / "run" / f"rank{rank}").iterdir():
            source = node / f"rank{rank}" / path.name
            assert path.read_bytes() == source.read_bytes()
            assert path.name == "manifest.json" or path.samefile(source)  # hard links
    top = manifest(tmp_path / "run")
    hostname = manifest(nodes[0])["host"]["hostname"]
    assert (top["complete"], top["id"]) == (True, ID)
    assert top["joined"] == {
        "world_size": 2, "ranks": [0, 1], "missing": [], "hosts": [{"hostname": hostname, "ranks": [0, 1]}]
    }  # fmt: skip
    verified = assay("verify", tmp_path / "run")
    assert verified.returncode == 0 and verified.stdout.startswith("whole: 12 tensors")  # 3 distinct a step and rank


def test_a_comparison_of_it_is_that_of_a_shared_folder(nodes, tmp_path, assay):
    for rank in range(2):
        capture(tmp_path / "shared", rank)
        capture(tmp_path / "mine", rank, run_id="f" * 32, scale=3.0 if rank else 1.0)
    assert assay("join", tmp_path / "joined", *reversed(nodes)).returncode == 0

    tables = {}
    for golden in ("shared", "joined"):
        done = assay("compare", tmp_path / golden, tmp_path / "mine", "-o", tmp_path / f"table-{golden}", "--jsonl")
        assert done.returncode == 0, done.stderr
        (table,) = (tmp_path / f"table-{golden}").glob("*.jsonl")
        tables[golden] = table.read_text().replace(f"/{golden}/", "/golden/")
    assert tables["joined"] == tables["shared"]
    assert len(tables["joined"].splitlines()) >= 24  # 6 tensors, 2 steps, 2 ranks
    assert "rank1" in tables["joined"]


def test_move_leaves_only_the_joined_run(nodes, tmp_path, assay):
    (nodes[1] / "notes.txt").write_text("mine")
    done = assay("join", tmp_path / "run", *nodes, "--move")

    assert done.returncode == 0, done.stderr
    assert not nodes[0].exists()  # nothing else was in it
    assert [path.name for path in nodes[1].iterdir()] == ["notes.txt"]
    assert assay("verify", tmp_path / "run").returncode == 0


def test_copies_are_no_links(nodes, tmp_path, assay):
    assert assay("join", tmp_path / "run", *nodes, "--copy").returncode == 0
    assert all(path.stat().st_nlink == 1 for path in (tmp_path / "run").rglob("*") if path.is_file())


def test_ranks_that_are_missing_are_said(nodes, tmp_path):
    capture(tmp_path / "node3", 3, world_size=6)
    answer, text = answers_of(nodes, tmp_path)
    assert (answer["outcome"], answer["missing"], answer["world_size"]) == ("incomplete", [2, 4, 5], 6)
    assert "ranks 0-1,3 of 6 from 1 host are one run of" in text and "; missing: ranks 2,4-5" in text
    assert manifest(tmp_path / "run")["joined"]["missing"] == [2, 4, 5]


def answers_of(nodes: list[Path], tmp_path: Path) -> tuple[dict[str, object], str]:

    sources = [*nodes, tmp_path / "node3"]
    told = run("join", tmp_path / "told", *sources)
    answer = json.loads(run("join", tmp_path / "run", *sources, "--json").stdout)
    validator("join").validate(answer)
    assert told.stdout.endswith(f"next: assay verify {tmp_path / 'told'}\n")
    assert answer["sentence"] in told.stdout
    return answer, told.stdout


def test_what_is_not_one_run_is_refused_and_nothing_is_written(nodes, tmp_path):
    capture(tmp_path / "other", 1, run_id="e" * 32)
    capture(tmp_path / "again", 1)
    (tmp_path / "empty").mkdir()
    shutil.copytree(nodes[1], tmp_path / "changed")
    for path in (tmp_path / "changed").rglob("manifest.json"):
        path.write_text(path.read_text().replace('"world_size": 2', '"world_size": 9'))
    joined = tmp_path / "run"
    existing = nodes[0]

    assert f"is of another run than {nodes[0]}/rank0: {'e' * 32}, not {ID}" in refusal(
        "join", joined, nodes[0], tmp_path / "other"
    )
    assert f"is rank 1, which {nodes[1]} has, too" in refusal("join", joined, *nodes, tmp_path / "again")
    assert "has no folder of a rank" in refusal("join", joined, nodes[0], tmp_path / "empty")
    assert "is not as it was written" in refusal("join", joined, nodes[0], tmp_path / "changed")
    assert "exists already" in refusal("join", existing, nodes[1])
    assert "exclude each other" in refusal("join", joined, *nodes, "--copy", "--move")
    assert "nowhere" in refusal("join", joined, tmp_path / "nowhere")
    assert not joined.exists() and not list(tmp_path.glob("run.part*"))


def test_a_run_that_is_still_written_is_refused_and_a_dead_one_is_incomplete(nodes, tmp_path, assay):
    script = CAPTURE + "    print('captured', flush=True)\n    sys.stdin.read()\n"
    variables = {**os.environ, "RANK": "2", "WORLD_SIZE": "3", "ASSAY_RUN_ID": ID}
    command = [sys.executable, "-c", script, str(tmp_path / "node2"), "3"]
    writer = subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout.readline() == "captured\n"
        sentence = refusal("join", tmp_path / "run", *nodes, tmp_path / "node2")
        assert f"process {writer.pid} is still writing it" in sentence
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.communicate()

    done = assay("join", tmp_path / "run", *nodes, tmp_path / "node2")
    assert done.returncode == 0 and "; not every capture came to its end" in done.stdout
    assert manifest(tmp_path / "run")["complete"] is False
    assert assay("verify", tmp_path / "run").returncode == 125
