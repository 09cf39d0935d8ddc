# SPDX-License-Identifier: Apache-2.0
"""`assay --ray` on nodes that have folders of their own, against the same command on all folders put together."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ray_hosts import LAYERS, Hosts, binary, files_of, halves_of, rows_of, write_run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_folders")]
STEPS = 2
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
    write_run(folder / "halves", halves_of(golden[0]))
    return folder


@pytest.fixture
def given(whole: Path, hosts: Hosts) -> Hosts:
    """Ranks 0 and 1 on the first host, 2 and 3 on the second; "one" on the first, of "halves" one each."""
    for run in ("golden", "mine"):
        hosts.give(0, whole, f"{run}/manifest.json", f"{run}/rank0", f"{run}/rank1")
        hosts.give(1, whole, f"{run}/manifest.json", f"{run}/rank2", f"{run}/rank3")
    hosts.give(0, whole, "one", "halves/manifest.json", "halves/rank0")
    hosts.give(1, whole, "halves/manifest.json", "halves/rank1")
    return hosts


def comparison(hosts: Hosts) -> list[object]:
    """Its words, for golden and mine."""
    return [hosts.data / "golden", hosts.data / "mine", "-cl", "api", "--jsonl", "-o", "report"]


def test_shards_of_several_hosts_give_the_report_of_all(whole, given: Hosts, tmp_path):
    words = [given.data / "one", given.data / "halves", "-cl", "api", "--jsonl", "-o", "report"]
    given.check_both(tmp_path, "compare", *words, whole=whole)
    rows = rows_of(tmp_path / "here")
    assert len(rows) >= STEPS * LAYERS
    assert not any(row["cmp_fail_reason"] for row in rows)


def test_what_is_done_is_not_done_again(whole, given: Hosts, tmp_path):
    """But for the part of a worker that is killed."""
    given.order("kill")
    words = [*comparison(given), "--html", "page.html"]
    resume = ("--resume", tmp_path / "kept")
    there = given.check_both(tmp_path, "compare", *words, whole=whole, only_there=resume)
    assert (there.returncode, there.stderr) == (0, "")
    assert not given.is_ordered("kill")
    rows = rows_of(tmp_path / "here")
    assert len(rows) >= STEPS * LAYERS
    assert not any(row["cmp_fail_reason"] for row in rows)
    assert len(given.parts()) == RANKS * STEPS + 1
    given.forget_parts()
    (tmp_path / "again").mkdir()
    given.run("compare", *words, *resume, cwd=tmp_path / "again")
    assert given.parts() == []
    assert files_of(tmp_path / "again") == files_of(tmp_path / "here")


def give_lists(whole: Path, folder: Path) -> Path:
    """The lists of golden and mine, and nothing else of them, copied at another time."""
    for file in [*whole.glob("*/manifest.json"), *whole.glob("*/*/records.jsonl")]:
        target = folder / file.relative_to(whole)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    return folder


def give_payloads(whole: Path, hosts: Hosts) -> None:
    """No lists: of ranks 0 and 1 to the first host, of 2 and 3 to the second."""
    for file in whole.glob("*/rank*/*.safetensors"):
        hosts.give(int(file.parent.name[4:]) // 2, whole, str(file.relative_to(whole)))


@pytest.mark.parametrize("has_lists", [True, False])
@pytest.mark.parametrize("command", ["compare", "locate", "show"])
def test_the_command_s_host_has_the_lists_only(whole, hosts: Hosts, request, tmp_path, command, has_lists):
    """The hosts have them, too, or have only what they are of."""
    if has_lists:
        request.getfixturevalue("given")
    else:
        give_payloads(whole, hosts)
    lists = give_lists(whole, tmp_path / "lists")
    golden, mine = hosts.data / "golden", hosts.data / "mine"
    words = {
        "compare": [golden, mine, "--jsonl", "-o", "report"],
        "locate": [golden, mine],
        "show": [golden, "layers.2", "--values"],
    }[command]
    hosts.check_both(tmp_path, command, *words, whole=whole, at_the_command=lists)
    assert bool(files_of(tmp_path / "here")) == (command == "compare")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("show", ["golden"]),
        ("show", ["mine", "layers.1", "--stats", "--values", "--rank", "0,2", "--step", "1"]),
        ("locate", ["golden", "mine"]),
        ("locate", ["golden", "golden", "--json"]),
    ],
)
def test_what_is_printed_is_that_of_all(whole, given: Hosts, tmp_path, command, words):
    words = [given.data / word if word in ("golden", "mine") else word for word in words]
    assert given.check_both(tmp_path, command, *words, whole=whole).stdout


def test_golden_on_one_host_and_mine_on_another(whole, hosts: Hosts, tmp_path):
    hosts.give(0, whole, "golden")
    hosts.give(1, whole, "mine")
    hosts.check_both(tmp_path, "compare", *comparison(hosts), whole=whole)


def test_a_file_that_is_another_one_on_each_host_is_said(whole, hosts: Hosts):
    hosts.give(0, whole, "golden", "mine")
    hosts.give(1, whole, "golden")
    file = hosts.roots[1] / "golden" / "rank0" / "records.jsonl"
    file.write_bytes(file.read_bytes().replace(b"Linear", b"Conv2d"))
    there = hosts.run("compare", hosts.data / "golden", hosts.data / "mine")
    assert there.returncode == 2
    assert f"{hosts.data}/golden/rank0/records.jsonl: " in there.stderr
    assert there.stderr.endswith(" have another file each; a file of a run is the same on all hosts\n")
    assert len(there.stderr.splitlines()) == 1


def test_equal_files_of_other_times_are_one(whole, hosts: Hosts, tmp_path):
    for number in (0, 1):
        hosts.give(number, whole, "golden", "mine")
    for file in (hosts.roots[1] / "golden").rglob("*.*"):
        os.utime(file, ns=(1, 1))
    assert hosts.check_both(tmp_path, "compare", *comparison(hosts), whole=whole).stderr == ""


# RANK, id and folder of each capture: as jobs of two ranks leave them. torch is imported once for all of them.
CAPTURE = """
import os, sys, torch, assay
for rank, run_id, folder in zip(sys.argv[1::3], sys.argv[2::3], sys.argv[3::3]):
    if os.fork():
        assert os.wait()[1] == 0
        continue
    os.environ.update(RANK=rank, WORLD_SIZE="2", ASSAY_RUN_ID=run_id)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    with assay.capture(model, folder) as handle:
        model(torch.arange(8.0).reshape(1, 8) * (int(rank) + 1))
    break
"""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """rank0 and rank1 of a job, and other, which is rank 1 of another one; each with a folder "job" as its host has it.

    whole/job: the two joined.
    """
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("jobs")
    words = [("0", "01" * 16, "rank0"), ("1", "01" * 16, "rank1"), ("1", "02" * 16, "other")]
    command = [sys.executable, "-c", CAPTURE]
    for rank, run_id, name in words:
        command += [rank, run_id, str(folder / name / "job")]
    subprocess.run(command, check=True, timeout=180)
    (folder / "whole").mkdir()
    parts = [str(folder / name / "job") for name in ("rank0", "rank1")]
    subprocess.run([binary(), "join", str(folder / "whole" / "job"), *parts], check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("command", ["show", "locate", "compare"])
def test_manifests_of_the_hosts_are_joined(jobs, hosts: Hosts, tmp_path, command):
    for number in (0, 1):
        hosts.give(number, jobs / f"rank{number}", "job")
    job = hosts.data / "job"
    words = {"show": [job], "locate": [job, job], "compare": [job, job, "-cl", "api", "--jsonl", "-o", "report"]}
    done = hosts.check_both(tmp_path, command, *words[command], whole=jobs / "whole")
    assert done.returncode == 0
    if command == "compare":
        assert {row["rank"] for row in rows_of(tmp_path / "here")} == {0, 1}


def test_a_copy_of_the_joined_lists_is_enough_where_the_command_runs(jobs, hosts: Hosts, tmp_path):
    """As `assay join` has left them; the hosts have what their ranks wrote."""
    for number in (0, 1):
        hosts.give(number, jobs / f"rank{number}", "job")
    lists = shutil.copytree(jobs / "whole", tmp_path / "lists", ignore=shutil.ignore_patterns("*.safetensors"))
    words = [hosts.data / "job", hosts.data / "job", "-o", "report"]
    hosts.check_both(tmp_path, "compare", *words, whole=jobs / "whole", at_the_command=lists)
    assert files_of(tmp_path / "here")


def test_manifests_of_other_runs_are_not(jobs, hosts: Hosts):
    hosts.give(0, jobs / "rank0", "job")
    hosts.give(1, jobs / "other", "job")
    there = hosts.run("show", hosts.data / "job")
    assert there.returncode == 2
    assert f"the parts of {hosts.data}/job on the hosts are not one run: " in there.stderr
    assert "is of another run than" in there.stderr
    assert len(there.stderr.splitlines()) == 1


@pytest.mark.parametrize("has_copy", [True, False])
def test_a_host_that_is_lost(whole, hosts: Hosts, tmp_path, has_copy):
    # Of ranks 0 and 1, which the lost host has, another one has a copy, or has not.
    lost = hosts.add()
    for run in ("golden", "mine"):
        hosts.give(0, whole, f"{run}/manifest.json", f"{run}/rank2", f"{run}/rank3")
        for number in (lost, 1)[: 2 if has_copy else 1]:
            hosts.give(number, whole, f"{run}/manifest.json", f"{run}/rank0", f"{run}/rank1")
    words = comparison(hosts)[:-1]
    hosts.alone(whole, "compare", *words, tmp_path / "here")
    hosts.order("slow", 1)
    command = hosts.start("compare", *words, tmp_path / "there", parts=3 if has_copy else 2)
    hosts.lose(lost)
    _, errors = command.communicate(timeout=200)
    assert "Traceback" not in errors
    rows, healthy = rows_of(tmp_path / "there"), rows_of(tmp_path / "here")
    assert len(rows) == len(healthy) == RANKS * STEPS * LAYERS
    if has_copy:
        assert files_of(tmp_path / "there") == files_of(tmp_path / "here")
        return
    unread = [row for row in rows if row["cmp_fail_reason"]]
    assert unread
    assert {row["rank"] for row in unread} <= {0, 1}
    assert all(re.search(r"the node that has .* is lost", row["cmp_fail_reason"]) for row in unread)
    assert [row for row in rows if row["rank"] in (2, 3)] == [row for row in healthy if row["rank"] in (2, 3)]


def test_the_user_says_what_a_host_has(whole, hosts: Hosts, tmp_path):
    """Ranks 2 and 3 of the second host are not there when it lists its runs, as where they are mounted on demand."""
    later = hosts.roots[1] / "later"
    hosts.order("mount", hosts.data / "later")
    for run in ("golden", "mine"):
        hosts.give(0, whole, f"{run}/manifest.json", f"{run}/rank0", f"{run}/rank1")
        hosts.give(0, whole, f"{run}/rank2/records.jsonl", f"{run}/rank3/records.jsonl")
        for rank in ("rank2", "rank3"):
            shutil.copytree(whole / run / rank, later / run / rank)
    words = comparison(hosts)
    hosts.run("compare", *words[:-1], tmp_path / "without")
    unseen = [row for row in rows_of(tmp_path / "without") if "no node sees" in (row["cmp_fail_reason"] or "")]
    assert {row["rank"] for row in unseen} == {2, 3}
    for run in ("golden", "mine"):
        (hosts.roots[1] / run).rename(later / run)
    told = [
        f"--map-host={hosts.address(1)}={hosts.data}/{run}/{rank}"
        for run in ("golden", "mine")
        for rank in ("rank2", "rank3")
    ]
    hosts.check_both(tmp_path, "compare", *words, whole=whole, only_there=told)


def test_a_run_that_no_host_has_is_said(given: Hosts):
    there = given.run("compare", given.data / "nothing", given.data / "mine")
    assert there.returncode == 2
    assert f"{given.data}/nothing" in there.stderr
    assert "Traceback" not in there.stderr
