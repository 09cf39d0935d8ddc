# SPDX-License-Identifier: Apache-2.0
"""Ray clusters on this machine, also where it is slow or busy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}
# Processes of a head that nothing here asks: each imports all of Ray while the node starts.
LEAN = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
TRIES = 3


def lean_environment() -> dict[str, str]:
    """Variables of Ray's processes, with which they start within a third of the time."""
    folders = [str(Path(__file__).with_name("lean_imports")), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, folders))}


def add_node(cluster: Cluster, **options: object) -> object:
    """Starts a node, of an empty cluster the head.

    Ray ends a node whose agent does not begin within 15 s, and has no option for that.
    """
    if cluster.head_node is None:
        options = {**LEAN, **options}
    for _ in range(TRIES - 1):
        try:
            return cluster.add_node(**options)
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
    return cluster.add_node(**options)
