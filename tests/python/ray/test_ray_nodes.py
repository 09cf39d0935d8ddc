# SPDX-License-Identifier: Apache-2.0
"""Which nodes of a cluster are given parts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from bench.ray_cluster import NODE, add_node
from ray_hosts import alone, binary, files_of, write_two_ranks

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

pytestmark = pytest.mark.slow


@pytest.fixture
def manager() -> Iterator[Cluster]:
    """A cluster whose head has no CPU for tasks, as on Kubernetes with `num-cpus: "0"`."""
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    add_node(cluster, **{**NODE, "num_cpus": 0})
    yield cluster
    cluster.shutdown()


def compare(cluster: Cluster, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [binary(), "compare", *map(str, words), f"--ray={cluster.address}"], capture_output=True, text=True, timeout=120
    )


def test_a_head_that_only_manages_is_given_no_parts(manager, tmp_path):
    """Without a node that has a CPU this is said; with one it does them all."""
    words = [*write_two_ranks(tmp_path), "-cl", "api", "--jsonl"]
    there = compare(manager, *words, "-o", tmp_path / "there")
    assert (there.returncode, there.stdout) == (2, "")
    assert there.stderr == "error: no node of the Ray cluster has a CPU for tasks\n"

    add_node(manager, **NODE)
    here = alone("compare", *words, "-o", tmp_path / "here")
    there = compare(manager, *words, "-o", tmp_path / "there")
    assert (there.returncode, there.stderr) == (here.returncode, "") and here.returncode in (0, 1)
    assert files_of(tmp_path / "there") == files_of(tmp_path / "here")
