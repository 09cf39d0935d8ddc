# SPDX-License-Identifier: Apache-2.0
"""The nodes of a cluster: what each has of the files, and work on one of them."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata

from assay.ray.files import FileServer, Readers, digest_of_list, list_run

VERSION_UNKNOWN = "unknown"


@dataclass(frozen=True)
class Node:
    """A node of the cluster and what it sees."""

    id: str  # of Ray
    host: str
    address: str
    version: str  # of assay there
    mapped: frozenset[str] = frozenset()  # paths that it has, as the user says

    def is_told(self, file: str) -> bool:
        """Whether the user says that the node has the file."""
        return any(_is_below(file, folder) for folder in self.mapped)


@dataclass(frozen=True)
class Seen:
    """What a probe found on its node."""

    host: str
    version: str
    command: str  # the native command there; empty: none
    lists: tuple[str, ...] = ()  # digests of what it has of each run; empty: nothing


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


def look_around(runs: Iterable[str]) -> Seen:
    """What this node has of the runs: a task of every node."""
    lists = tuple(digest_of_list(list_run(run)) for run in runs)
    return Seen(socket.gethostname(), assay_version(), find_native_command(), lists)


def do_part(body: bytes, jobs: int, folder: str, elsewhere: Sequence[str], readers: Readers | None) -> bytes:
    """What the native command of this node answers to a part.

    Args:
        folder: that relative paths of the part are of
        elsewhere: files that this node has not; `readers` reads them

    Raises:
        RuntimeError: with the command's own sentence.
    """
    command = find_native_command()
    if not command:
        raise RuntimeError("assay is not installed on this node")
    words = [command, "part", "--jobs", str(jobs)]
    place = folder if os.path.isdir(folder) else None
    server = FileServer(readers, elsewhere, folder) if readers else None
    try:
        environment = {**os.environ, "ASSAY_NODE_FILES": server.name} if server else None
        done = subprocess.run(words, input=body, capture_output=True, check=False, cwd=place, env=environment)
    finally:
        if server:
            server.close()
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
    return Node(node.id, node.host, node.address, node.version, frozenset(said))
