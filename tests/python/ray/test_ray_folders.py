# SPDX-License-Identifier: Apache-2.0
"""`assay --ray` on nodes that have folders of their own, against the same command on all folders put together."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

ray = pytest.importorskip("ray")
from own_folders import (  # noqa: E402
    WatchedHosts,
    alone,
    fresh,
    may_have_namespaces,
    own_namespace,
    report_of,
    rows_of,
    said,
    slow_part,
)
from test_ray_compare import LAYERS, STEPS, binary, write_run  # noqa: E402

__all__ = ["fresh", "may_have_namespaces"]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("may_have_namespaces")]
RANKS = 4


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """golden and mine, wrong in layer 1 of rank 2; one and halves: a tensor of one rank, of two."""
    folder = tmp_path_factory.mktemp("whole")
    draw = np.random.default_rng(7)
    golden = {rank: [draw.standard_normal((8, 16), np.float32) for _ in range(STEPS * LAYERS)] for rank in range(RANKS)}
    mine = {rank: [tensor.copy() for tensor in tensors] for rank, tensors in golden.items()}
    mine[2][1] *= 1.5
    write_run(folder / "golden", golden)
    write_run(folder / "mine", mine)
    write_run(folder / "one", {0: golden[0]})
    halves = {half: [np.ascontiguousarray(t[:, half * 8 :][:, :8]) for t in golden[0]] for half in (0, 1)}
    write_run(folder / "halves", halves)
    return folder


@pytest.fixture(scope="module")
def hosts(whole: Path, tmp_path_factory: pytest.TempPathFactory):
    """Ranks 0 and 1 on the first host, 2 and 3 on the second; "one" on the first, of "halves" one each."""
    place = tmp_path_factory.mktemp("hosts")
    made = WatchedHosts(place, 2)
    for run in ("golden", "mine"):
        made.give(0, whole, f"{run}/manifest.json", f"{run}/rank0", f"{run}/rank1")
        made.give(1, whole, f"{run}/manifest.json", f"{run}/rank2", f"{run}/rank3")
    made.give(0, whole, "one", "halves/manifest.json", "halves/rank0")
    made.give(1, whole, "halves/manifest.json", "halves/rank1")
    yield made
    made.close()


@pytest.fixture
def watched(hosts: WatchedHosts) -> WatchedHosts:
    """The same, with no parts done yet."""
    hosts.clear()
    return hosts


@pytest.mark.parametrize(("golden", "mine"), [("golden", "mine"), ("one", "halves")])
def test_hosts_with_ranks_of_their_own_give_the_report_of_all(whole, hosts, tmp_path, golden, mine):
    words = [hosts.data / golden, hosts.data / mine, "-cl", "api", "--jsonl"]
    here = alone(whole, hosts.data, "compare", *words, "-o", tmp_path / "here")
    there = hosts.run("compare", *words, "-o", tmp_path / "there")
    assert there.stderr == here.stderr
    assert (said(there), there.returncode) == (said(here), here.returncode)
    assert report_of(tmp_path / "there") == report_of(tmp_path / "here")
    rows = rows_of(tmp_path / "here")
    assert len(rows) >= STEPS * LAYERS
    assert not any(row["cmp_fail_reason"] for row in rows)


def test_a_page_is_that_of_all(whole, hosts, tmp_path):
    words = [hosts.data / "golden", hosts.data / "mine", "-cl", "api", "-o", tmp_path / "report"]
    alone(whole, hosts.data, "compare", *words, "--html", tmp_path / "here.html")
    hosts.run("compare", *words, "--html", tmp_path / "there.html")
    assert (tmp_path / "there.html").read_bytes() == (tmp_path / "here.html").read_bytes()


def test_what_is_done_is_not_done_again(whole, watched, tmp_path):
    words = [watched.data / "golden", watched.data / "mine", "-cl", "api", "--jsonl"]
    alone(whole, watched.data, "compare", *words, "-o", tmp_path / "here")
    for name in ("first", "second"):
        watched.run("compare", *words, "--resume", tmp_path / "kept", "-o", tmp_path / name)
        assert report_of(tmp_path / name) == report_of(tmp_path / "here")
        assert len(watched.parts()) == RANKS * STEPS


def test_a_worker_that_is_killed_is_replaced(whole, watched, tmp_path):
    (watched.folder / "kill").touch()
    words = [watched.data / "golden", watched.data / "mine", "-cl", "api", "--jsonl"]
    alone(whole, watched.data, "compare", *words, "-o", tmp_path / "here")
    there = watched.run("compare", *words, "-o", tmp_path / "there")
    assert not (watched.folder / "kill").exists()
    assert (there.returncode, there.stderr) == (0, "")
    assert report_of(tmp_path / "there") == report_of(tmp_path / "here")


def give_lists(whole: Path, folder: Path) -> Path:
    """The lists of golden and mine, and nothing else of them, copied at another time."""
    for file in [*whole.glob("*/manifest.json"), *whole.glob("*/*/records.jsonl")]:
        target = folder / file.relative_to(whole)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    return folder


@pytest.fixture(scope="module")
def payloads_only(whole: Path, tmp_path_factory: pytest.TempPathFactory):
    """Hosts without lists: ranks 0 and 1 on the first, 2 and 3 on the second."""
    place = tmp_path_factory.mktemp("payloads")
    made = WatchedHosts(place, 2)
    for run in ("golden", "mine"):
        for rank in range(RANKS):
            for file in (whole / run / f"rank{rank}").glob("*.safetensors"):
                made.give(rank // 2, whole, str(file.relative_to(whole)))
    yield made
    made.close()


@pytest.mark.parametrize("kind", ["hosts", "payloads_only"])
@pytest.mark.parametrize("command", ["compare", "locate", "show"])
def test_the_command_s_host_has_the_lists_only(whole, request, tmp_path, command, kind):
    hosts = request.getfixturevalue(kind)
    lists = give_lists(whole, tmp_path / "lists")
    words = [hosts.data / "golden", *([hosts.data / "mine"] if command != "show" else ["layers.2", "--values"])]
    more = {name: ["--jsonl", "-o", tmp_path / name] if command == "compare" else [] for name in ("here", "there")}
    with own_namespace(whole, hosts.data):
        here = subprocess.run([binary(), command, *map(str, [*words, *more["here"]])], capture_output=True, text=True)
    with own_namespace(lists, hosts.data):
        there = hosts.run(command, *words, *more["there"])
    assert (said(there), there.stderr, there.returncode) == (said(here), here.stderr, here.returncode)
    if command == "compare":
        assert report_of(tmp_path / "there") == report_of(tmp_path / "here")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("show", ["golden"]),
        ("show", ["mine", "layers.1", "--stats", "--rank", "2"]),
        ("show", ["golden", "layers.2", "--values", "--step", "1"]),
        ("locate", ["golden", "mine"]),
        ("locate", ["golden", "golden", "--json"]),
    ],
)
def test_what_is_printed_is_that_of_all(whole, hosts, command, words):
    words = [hosts.data / word if word in ("golden", "mine") else word for word in words]
    with own_namespace(whole, hosts.data):
        here = subprocess.run([binary(), command, *map(str, words)], capture_output=True, text=True, timeout=120)
    there = hosts.run(command, *words)
    assert (there.stdout, there.stderr, there.returncode) == (here.stdout, here.stderr, here.returncode)
    assert here.stdout


def test_golden_on_one_host_and_mine_on_another(whole, fresh, tmp_path):
    hosts = fresh(2)
    hosts.give(0, whole, "golden")
    hosts.give(1, whole, "mine")
    words = [hosts.data / "golden", hosts.data / "mine", "-cl", "api", "--jsonl"]
    here = alone(whole, hosts.data, "compare", *words, "-o", tmp_path / "here")
    there = hosts.run("compare", *words, "-o", tmp_path / "there")
    assert (said(there), there.stderr) == (said(here), here.stderr)
    assert report_of(tmp_path / "there") == report_of(tmp_path / "here")


def test_a_file_that_is_another_one_on_each_host_is_said(whole, fresh):
    hosts = fresh(2)
    hosts.give(0, whole, "golden", "mine")
    hosts.give(1, whole, "golden")
    file = hosts.roots[1] / "golden" / "rank0" / "records.jsonl"
    file.write_bytes(file.read_bytes().replace(b"Linear", b"Conv2d"))
    there = hosts.run("compare", hosts.data / "golden", hosts.data / "mine")
    assert there.returncode == 2
    assert f"{hosts.data}/golden/rank0/records.jsonl: " in there.stderr
    assert there.stderr.endswith(" have another file each; a file of a run is the same on all hosts\n")
    assert len(there.stderr.splitlines()) == 1


def test_equal_files_of_other_times_are_one(whole, fresh, tmp_path):
    hosts = fresh(2)
    for number in (0, 1):
        hosts.give(number, whole, "golden", "mine")
    for file in (hosts.roots[1] / "golden").rglob("*.*"):
        os.utime(file, ns=(1, 1))
    words = [hosts.data / "golden", hosts.data / "mine", "-cl", "api", "--jsonl"]
    alone(whole, hosts.data, "compare", *words, "-o", tmp_path / "here")
    there = hosts.run("compare", *words, "-o", tmp_path / "there")
    assert there.stderr == ""
    assert report_of(tmp_path / "there") == report_of(tmp_path / "here")


CAPTURE = """
import sys, torch, assay
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
with assay.capture(model, sys.argv[1]) as handle:
    model(torch.arange(8.0).reshape(1, 8) * float(sys.argv[2]))
"""


def capture(folder: Path, rank: int, run_id: str = "0123456789abcdef" * 2) -> None:
    """A rank of a job of two, as it is left on the rank's host."""
    pytest.importorskip("torch")
    variables = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "ASSAY_RUN_ID": run_id}
    command = [sys.executable, "-c", CAPTURE, str(folder), str(rank + 1)]
    subprocess.run(command, env=variables, check=True, timeout=120)


def test_manifests_of_the_hosts_are_joined(fresh, tmp_path):
    hosts = fresh(2)
    parts = [root / "job" for root in hosts.roots]
    for rank, part in enumerate(parts):
        capture(part, rank)
    (tmp_path / "whole").mkdir()
    joined = [binary(), "join", str(tmp_path / "whole" / "job"), *map(str, parts)]
    subprocess.run(joined, check=True, capture_output=True)
    for command, count in (("show", 1), ("locate", 2)):
        runs = [hosts.data / "job"] * count
        with own_namespace(tmp_path / "whole", hosts.data):
            here = subprocess.run([binary(), command, *map(str, runs)], capture_output=True, text=True)
        there = hosts.run(command, *runs)
        assert (there.stdout, there.stderr, there.returncode) == (here.stdout, here.stderr, here.returncode)
        assert here.returncode == 0
    words = [*runs, "-cl", "api", "--jsonl"]
    alone(tmp_path / "whole", hosts.data, "compare", *words, "-o", tmp_path / "here")
    hosts.run("compare", *words, "-o", tmp_path / "there")
    assert report_of(tmp_path / "there") == report_of(tmp_path / "here")
    assert {row["rank"] for row in rows_of(tmp_path / "here")} == {0, 1}


def test_a_copy_of_the_joined_lists_is_enough_where_the_command_runs(fresh, tmp_path):
    """As `assay join` has left them; the hosts have what their ranks wrote."""
    hosts = fresh(2)
    parts = [root / "job" for root in hosts.roots]
    for rank, part in enumerate(parts):
        capture(part, rank)
    (tmp_path / "whole").mkdir()
    joined = [binary(), "join", str(tmp_path / "whole" / "job"), *map(str, parts)]
    subprocess.run(joined, check=True, capture_output=True)
    lists = shutil.copytree(tmp_path / "whole", tmp_path / "lists", ignore=shutil.ignore_patterns("*.safetensors"))
    words = [hosts.data / "job", hosts.data / "job"]
    with own_namespace(tmp_path / "whole", hosts.data):
        here = subprocess.run([binary(), "compare", *map(str, words), "-o", tmp_path / "here"], capture_output=True,
                              text=True)  # fmt: skip
    with own_namespace(lists, hosts.data):
        there = hosts.run("compare", *words, "-o", tmp_path / "there")
    assert (said(there), there.stderr, there.returncode) == (said(here), here.stderr, here.returncode)
    assert report_of(tmp_path / "there") == report_of(tmp_path / "here")


def test_manifests_of_other_runs_are_not(fresh):
    hosts = fresh(2)
    for rank, root in enumerate(hosts.roots):
        capture(root / "job", rank, run_id=f"{rank}" * 32)
    there = hosts.run("show", hosts.data / "job")
    assert there.returncode == 2
    assert f"the parts of {hosts.data}/job on the hosts are not one run: " in there.stderr
    assert "is of another run than" in there.stderr
    assert len(there.stderr.splitlines()) == 1


@pytest.mark.parametrize("has_copy", [True, False])
def test_a_host_that_is_lost(whole, fresh, tmp_path, has_copy):
    # Of ranks 0 and 1, which the lost host has, another one has a copy, or has not.
    hosts = fresh(3, slow_part(tmp_path))
    for run in ("golden", "mine"):
        hosts.give(0, whole, f"{run}/manifest.json", f"{run}/rank2", f"{run}/rank3")
        for number in (1, 2)[: 2 if has_copy else 1]:
            hosts.give(number, whole, f"{run}/manifest.json", f"{run}/rank0", f"{run}/rank1")
    words = [hosts.data / "golden", hosts.data / "mine", "-cl", "api", "--jsonl"]
    alone(whole, hosts.data, "compare", *words, "-o", tmp_path / "here")
    command = subprocess.Popen(
        hosts.words("compare", *words, "-o", tmp_path / "there"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("begun-*"))) < (3 if has_copy else 2) and time.monotonic() < deadline:
        time.sleep(0.05)
    hosts.cluster.remove_node(hosts.nodes[1], allow_graceful=False)
    _, errors = command.communicate(timeout=200)
    assert "Traceback" not in errors
    rows, healthy = rows_of(tmp_path / "there"), rows_of(tmp_path / "here")
    assert len(rows) == len(healthy) == RANKS * STEPS * LAYERS
    if has_copy:
        assert report_of(tmp_path / "there") == report_of(tmp_path / "here")
        return
    lost = [row for row in rows if row["cmp_fail_reason"]]
    assert lost
    assert {row["rank"] for row in lost} <= {0, 1}
    assert all(re.search(r"the node that has .* is lost", row["cmp_fail_reason"]) for row in lost)
    assert [row for row in rows if row["rank"] in (2, 3)] == [row for row in healthy if row["rank"] in (2, 3)]


def test_the_user_says_what_a_host_has(whole, fresh, tmp_path):
    """Ranks 2 and 3 of the second host are not there when it lists its runs, as where they are mounted on demand."""
    command = tmp_path / "assay"
    command.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        f"for run in ('golden', 'mine'):\n"
        f"    if sys.argv[1] == '--version' and os.path.isdir(f'{tmp_path}/hosts/data/later/{{run}}'):\n"
        f"        os.rename(f'{tmp_path}/hosts/data/later/{{run}}', f'{tmp_path}/hosts/data/{{run}}')\n"
        f"os.execv({binary()!r}, ['assay', *sys.argv[1:]])\n"
    )
    command.chmod(0o755)
    hosts = fresh(2, str(command))
    later = hosts.roots[1] / "later"
    for run in ("golden", "mine"):
        hosts.give(0, whole, f"{run}/manifest.json", f"{run}/rank0", f"{run}/rank1")
        hosts.give(0, whole, f"{run}/rank2/records.jsonl", f"{run}/rank3/records.jsonl")
        for rank in ("rank2", "rank3"):
            shutil.copytree(whole / run / rank, later / run / rank)
    words = [hosts.data / "golden", hosts.data / "mine", "-cl", "api", "--jsonl"]
    here = alone(whole, hosts.data, "compare", *words, "-o", tmp_path / "here")
    hosts.run("compare", *words, "-o", tmp_path / "without")
    unseen = [row for row in rows_of(tmp_path / "without") if "no node sees" in (row["cmp_fail_reason"] or "")]
    assert {row["rank"] for row in unseen} == {2, 3}
    for run in ("golden", "mine"):
        (hosts.roots[1] / run).rename(later / run)
    told = [
        f"--map-host={hosts.address(1)}={hosts.data}/{run}/{rank}"
        for run in ("golden", "mine")
        for rank in ("rank2", "rank3")
    ]
    there = hosts.run("compare", *words, *told, "-o", tmp_path / "there")
    assert (said(there), there.stderr, there.returncode) == (said(here), here.stderr, here.returncode)
    assert report_of(tmp_path / "there") == report_of(tmp_path / "here")


def test_a_run_that_no_host_has_is_said(hosts):
    there = hosts.run("compare", hosts.data / "nothing", hosts.data / "mine")
    assert there.returncode == 2
    assert f"{hosts.data}/nothing" in there.stderr
    assert "Traceback" not in there.stderr
