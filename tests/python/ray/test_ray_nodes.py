# SPDX-License-Identifier: Apache-2.0
"""Which nodes of a cluster are given parts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

ray = pytest.importorskip("ray")
from bench.ray_cluster import NODE, add_node  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402
from test_ray_compare import LAYERS, alone, binary, report_of, write_run  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """golden and mine of two ranks and one step."""
    folder = tmp_path_factory.mktemp("runs")
    golden = {rank: [np.full(8, layer + 1, np.float32) for layer in range(LAYERS)] for rank in range(2)}
    write_run(folder / "golden", golden)
    write_run(folder / "mine", {0: golden[0], 1: [tensor * 2 for tensor in golden[1]]})
    return [folder / "golden", folder / "mine"]


@pytest.fixture
def manager() -> Cluster:
    """A cluster whose head has no CPU for tasks, as on Kubernetes with `num-cpus: "0"`."""
    cluster = Cluster()
    add_node(cluster, **{**NODE, "num_cpus": 0})
    yield cluster
    cluster.shutdown()


def compare(cluster: Cluster, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [binary(), "compare", *map(str, words), f"--ray={cluster.address}"], capture_output=True, text=True, timeout=120
    )


def test_a_head_that_only_manages_is_given_no_parts(runs, manager, tmp_path):
    add_node(manager, **NODE)
    words = [*runs, "-cl", "api", "--jsonl"]
    alone(*words, "-o", tmp_path / "here")
    there = compare(manager, *words, "-o", tmp_path / "there")
    assert (there.returncode, there.stderr) == (0, "")
    assert report_of(tmp_path / "there") == report_of(tmp_path / "here")


def test_a_cluster_without_a_cpu_is_said(runs, manager, tmp_path):
    there = compare(manager, *runs, "-o", tmp_path / "there")
    assert (there.returncode, there.stdout) == (2, "")
    assert there.stderr == "error: no node of the Ray cluster has a CPU for tasks\n"
