# SPDX-License-Identifier: Apache-2.0
"""The nodes of a cluster: what each has of the files, and work on one of them."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

VERSION_UNKNOWN = "unknown"


@dataclass(frozen=True)
class Node:
    """A node of the cluster and what it sees."""

    id: str  # of Ray
    host: str
    address: str
    version: str  # of assay there
    folders: frozenset[str]  # of those that were asked for

    def sees(self, files: Iterable[str]) -> bool:
        """Whether all files are in folders of the node."""
        return all(any(_is_below(file, folder) for folder in self.folders) for file in files)


@dataclass(frozen=True)
class Seen:
    """What a probe found on its node."""

    host: str
    version: str
    command: str  # the native command there; empty: none
    folders: frozenset[str] = field(default_factory=frozenset)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def assay_version() -> str:
    """The version of the installed distribution, with the commit where the command tells it."""
    command = find_native_command()
    if command:
        told = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
        if told.returncode == 0:
            return told.stdout.strip()
    try:
        return metadata.version("assay-llm")
    except metadata.PackageNotFoundError:
        return VERSION_UNKNOWN


def find_native_command() -> str:
    """The native command on this node; empty when there is none."""
    given = os.environ.get("ASSAY_BINARY", "")
    if given and os.access(given, os.X_OK):
        return given
    from assay.__main__ import find_command

    try:
        return find_command()
    except SystemExit:
        return ""


def look_around(folders: Iterable[str]) -> Seen:
    """What this node has of the folders: a task of every node."""
    there = frozenset(folder for folder in folders if Path(folder).exists())
    return Seen(socket.gethostname(), assay_version(), find_native_command(), there)


def rank_folders(run: str) -> list[str]:
    """The folders that may lie on hosts of their own: those of the ranks, else the run itself."""
    path = Path(run)
    ranks = sorted(str(entry) for entry in path.glob("rank*") if entry.is_dir()) if path.is_dir() else []
    return ranks or [run]


def compare_part(body: bytes, jobs: int) -> bytes:
    """Rows of a part, by the native command of this node.

    Raises:
        RuntimeError: with the command's own sentence.
    """
    command = find_native_command()
    if not command:
        raise RuntimeError("assay is not installed on this node")
    done = subprocess.run([command, "part", "--jobs", str(jobs)], input=body, capture_output=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
        reason = lines[0].removeprefix("error: ")
        if done.returncode < 0:
            raise ChildProcessError(f"assay part was ended by signal {-done.returncode}")
        raise RuntimeError(reason)
    return done.stdout


def mapped(host_paths: Mapping[str, set[str]], node: Node) -> Node:
    """The node with the folders that the user says it has."""
    said = host_paths.get(node.host, set()) | host_paths.get(node.address, set())
    if not said:
        return node
    return Node(node.id, node.host, node.address, node.version, frozenset(node.folders | said))
