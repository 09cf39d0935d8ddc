# SPDX-License-Identifier: Apache-2.0
"""`assay compare --ray` on clusters of several nodes in this machine, against the same command without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ray_hosts import LAYERS, Hosts, alone, binary, files_of, halves_of, rows_of, write_run

pytestmark = pytest.mark.slow

RANKS, STEPS = 3, 2


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
    write_run(folder / "halves", halves_of(golden[0]))
    return folder


@pytest.fixture
def words(runs: Path) -> list[object]:
    """Of a comparison that finds a difference."""
    return [runs / "golden", runs / "mine", "-cl", "api", "--jsonl", "-o", "report"]


@pytest.mark.parametrize(("golden", "mine", "more"), [("whole", "halves", []), ("golden", "mine", ["--stats"])])
def test_the_report_is_that_of_one_process(runs, hosts: Hosts, tmp_path, golden, mine, more):
    words = [runs / golden, runs / mine, "-cl", "api", "--jsonl", *more, "-o", "report"]
    hosts.check_both(tmp_path, "compare", *words)
    assert len(files_of(tmp_path / "here")) >= 2


def test_what_is_done_is_not_done_again(words, hosts: Hosts, tmp_path):
    words = [*words, "--html", "page.html"]
    resume = ("--resume", tmp_path / "kept")
    hosts.check_both(tmp_path, "compare", *words, only_there=resume)
    assert len(files_of(tmp_path / "here")) >= 3
    assert len(hosts.parts()) == RANKS * STEPS
    hosts.forget_parts()
    (tmp_path / "again").mkdir()
    hosts.run("compare", *words, *resume, cwd=tmp_path / "again")
    assert hosts.parts() == []
    assert files_of(tmp_path / "again") == files_of(tmp_path / "here")


def test_a_worker_that_is_killed_is_replaced(words, hosts: Hosts, tmp_path):
    hosts.order("kill")
    there = hosts.check_both(tmp_path, "compare", *words, "--rel-l2", "0.1", "--unmatched")
    assert not hosts.is_ordered("kill")
    assert there.returncode == 1, there.stderr


def test_a_node_that_goes_in_the_middle_is_replaced(words, hosts: Hosts, tmp_path):
    third = hosts.add()
    hosts.order("slow", 1)
    (tmp_path / "here").mkdir()
    alone("compare", *words, cwd=tmp_path / "here")
    command = hosts.start("compare", *words[:-1], tmp_path / "there" / "report", parts=3)
    hosts.lose(third)
    _, errors = command.communicate(timeout=120)
    assert command.returncode == 0, errors
    assert files_of(tmp_path / "there") == files_of(tmp_path / "here")


def test_a_part_that_fails_is_rows_with_the_reason(words, hosts: Hosts, tmp_path):
    hosts.order("fail", b"mine/rank1/step-000000")  # parts are of one rank and step
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    alone("compare", *words, cwd=tmp_path / "here")
    hosts.run("compare", *words, cwd=tmp_path / "there")
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


def test_ctrl_c_leaves_a_report_of_what_is_done(words, hosts: Hosts, tmp_path):
    hosts.order("hang", 2)
    status, out, errors = hosts.interrupt("compare", *words[:-1], tmp_path / "out", parts=4)
    assert status == 130, (out, errors)
    rows = rows_of(tmp_path / "out")
    stopped = [row for row in rows if row["cmp_fail_reason"]]
    assert 0 < len(stopped) < len(rows)
    assert all("stopped by the user" in row["cmp_fail_reason"] for row in stopped)
    assert f"interrupted: {len(stopped)} of {len(rows)} pairs were not compared" in out


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


def test_a_host_that_is_none_of_the_cluster_is_said(runs, hosts: Hosts):
    result = hosts.run("compare", runs / "golden", runs / "mine", "--map-host", "nowhere=/data")
    assert result.returncode == 2
    assert "the cluster has no node nowhere" in result.stderr


def test_parts_that_cannot_be_kept_are_said(runs, hosts: Hosts, tmp_path):
    (tmp_path / "file").write_text("")
    result = hosts.run("compare", runs / "golden", runs / "mine", "--resume", tmp_path / "file")
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
