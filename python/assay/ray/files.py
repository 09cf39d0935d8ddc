# SPDX-License-Identifier: Apache-2.0
"""Files of runs that lie on the nodes of a cluster: one tree of what all of them have, and who reads it.

A native process of a command has no part of a run that only other hosts have. It asks the FileServer beside it, by the
protocol of ``NodeFiles`` in assay/_remote.py, and that asks the Reader of a node, range by range.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import socket
import stat
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray

DRIVER = ""  # stands for the host of the command where nodes are named by their ids
SECONDS_TO_ANSWER = 60.0  # of a node, until it counts as lost
MANIFEST = "manifest.json"
INDEX = "records.index"  # beside a list, from which it can be made again

Listed = tuple[str, str, int, int]  # name below the run, "file" | "directory" | "other", size, modified_ns


class Refused(Exception):
    """What is said instead of a file's bytes: a kind of assay/_remote.py's Refusal and a sentence."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind


# ---- on a node


def list_run(run: str) -> list[Listed]:
    """All that is below a path of this host, sorted; what cannot be looked at is not there."""
    found: list[Listed] = []

    def visit(path: str, name: str, above: frozenset[tuple[int, int]]) -> None:
        try:
            info = os.stat(path)
            names = sorted(os.listdir(path)) if stat.S_ISDIR(info.st_mode) else []
        except OSError:
            return
        if stat.S_ISDIR(info.st_mode):
            place = (info.st_dev, info.st_ino)
            if place in above:
                return  # a link to a folder that it is in
            found.append((name, "directory", 0, 0))
            for child in names:
                visit(f"{path}/{child}", f"{name}/{child}" if name else child, above | {place})
        elif stat.S_ISREG(info.st_mode):
            found.append((name, "file", info.st_size, info.st_mtime_ns))
        else:
            found.append((name, "other", 0, 0))

    visit(run, "", frozenset())
    return found


def digest_of_list(listed: Sequence[Listed]) -> str:
    """Equal for equal lists; empty when there is nothing."""
    return hashlib.sha256(pickle.dumps(list(listed))).hexdigest() if listed else ""


def read_range(path: str, start: int, end: int) -> tuple[bytes, int, int]:
    """Bytes of a file of this host, and the size and time that it has now."""
    with open(path, "rb") as file:
        data = os.pread(file.fileno(), end - start, start)
        info = os.fstat(file.fileno())
    return data, info.st_size, info.st_mtime_ns


class Reader:
    """The actor of a node that reads its files for other hosts."""

    def read(self, path: str, start: int, end: int) -> tuple[bytes, int, int]:
        return read_range(path, start, end)


def digests_of(paths: Iterable[str]) -> list[str]:
    """Of the contents of files of this host."""
    digests = []
    for path in paths:
        with open(path, "rb") as file:
            digest = hashlib.sha256()
            while piece := file.read(1 << 20):
                digest.update(piece)
        digests.append(digest.hexdigest())
    return digests


# ---- the tree of all nodes


@dataclass
class File:
    """A file of the cluster, and which groups of nodes have it."""

    size: int
    modified_ns: int
    holders: dict[int, int]  # modified_ns there, by number of the group
    kind: str = "file"
    data: bytes | None = None  # of a file that no host has: it was put together

    def info(self) -> dict[str, Any]:
        """As the lists of fsspec say it."""
        if self.kind == "directory":
            return {"type": "directory"}
        digest = hashlib.sha256(self.data).hexdigest() if self.data is not None else ""
        version = digest or f"{self.size} {self.modified_ns}"
        return {"type": self.kind, "size": self.size, "ETag": version, "modified_ns": self.modified_ns}


@dataclass
class Tree:
    """Files by their absolute paths. Nodes that have the same of a run are one group."""

    groups: list[tuple[str, ...]] = field(default_factory=list)  # ids of nodes
    files: dict[str, File] = field(default_factory=dict)
    below: dict[str, set[str]] = field(default_factory=dict)  # names in a folder
    differing: dict[str, dict[int, File]] = field(default_factory=dict)  # by group, where they are not one file

    def add(self, run: str, nodes: Sequence[str], listed: Iterable[Listed]) -> None:
        """What these nodes, all of them, have of a run."""
        group = len(self.groups)
        self.groups.append(tuple(nodes))
        for name, kind, size, modified_ns in listed:
            path = f"{run}/{name}" if name else run
            file = File(size, modified_ns, {group: modified_ns}, kind)
            known = self.files.get(path)
            is_same = known is not None and (known.size, known.modified_ns, known.kind) == (size, modified_ns, kind)
            if known is None:
                self.put(path, file)
            elif is_same and path not in self.differing:
                known.holders[group] = modified_ns
            else:
                first = {one: File(known.size, known.modified_ns, {one: at}) for one, at in known.holders.items()}
                self.differing.setdefault(path, first)[group] = file

    def add_below(self, run: str, path: str, nodes: Sequence[str], listed: Iterable[Listed]) -> None:
        """What these nodes have of a folder or file below a run, where they did not list it as a part of the run."""
        listed = list(listed)
        if not listed:
            return
        self.add(path, nodes, listed)
        above = path.rpartition("/")[0]
        while above not in self.files and len(above) >= len(run):
            self.put(above, File(0, 0, {len(self.groups) - 1: 0}, "directory"))
            above = above.rpartition("/")[0]

    def put(self, path: str, file: File) -> None:
        self.files[path] = file
        folder, _, name = path.rpartition("/")
        self.below.setdefault(folder, set()).add(name)

    def remove(self, path: str) -> None:
        del self.files[path]
        folder, _, name = path.rpartition("/")
        self.below[folder].discard(name)

    def walk(self, path: str) -> Iterator[str]:
        for name in sorted(self.below.get(path, ())):
            yield f"{path}/{name}"
            yield from self.walk(f"{path}/{name}")

    def nodes_with(self, path: str) -> list[str]:
        file = self.files.get(path)
        return [node for group in file.holders for node in self.groups[group]] if file else []

    def some(self, paths: Iterable[str]) -> Tree:
        """A tree of these files only."""
        few = Tree(self.groups)
        for path in paths:
            if path in self.files:
                few.put(path, self.files[path])
        return few


def settle(tree: Tree, digests: Callable[[str, Sequence[str]], Sequence[str]], name_of: Callable[[str], str]) -> str:
    """Files that nodes have at other times: equal ones become one, and an index that is not is left out.

    Args:
        digests: of files of a node
        name_of: a node, for people

    Returns:
        What is wrong, as one sentence, when two hosts have another file at the same path. Manifests of a run are left
        in ``tree.differing``.
    """
    wanted: dict[str, list[str]] = {}
    for path, files in tree.differing.items():
        if path.endswith("/" + INDEX):
            continue
        if len({(file.size, file.kind) for file in files.values()}) == 1:
            for group in files:
                wanted.setdefault(tree.groups[group][0], []).append(path)
    found = {node: dict(zip(paths, digests(node, paths))) for node, paths in wanted.items()}
    for path, files in list(tree.differing.items()):
        if path.endswith("/" + INDEX):
            tree.remove(path)
            del tree.differing[path]
            continue
        said = {(file.size, file.kind, found.get(tree.groups[group][0], {}).get(path)) for group, file in files.items()}
        if len(said) == 1:
            tree.files[path].holders = {group: file.modified_ns for group, file in files.items()}
            del tree.differing[path]
        elif path.rpartition("/")[2] != MANIFEST:
            hosts = [name_of(tree.groups[group][0]) for group in files][:2]
            return f"{path}: {hosts[0]} and {hosts[1]} have another file each; a file of a run is the same on all hosts"
    return ""


def skeleton(tree: Tree, run: str, group: int, folder: Path, read: Callable[[str, int], bytes]) -> None:
    """What `assay join` looks at of a group's part of a run, in a folder.

    Args:
        read: the content of a path as the group has it
    """
    folder.mkdir(parents=True)
    (folder / MANIFEST).write_bytes(read(f"{run}/{MANIFEST}", group))
    for name in sorted(tree.below.get(run, ())):
        path = f"{run}/{name}"
        if tree.files[path].kind != "directory":
            continue
        for file in sorted(tree.below.get(path, ())):
            if not _has(tree, f"{path}/{file}", group):
                continue
            (folder / name).mkdir(exist_ok=True)
            if file == MANIFEST:
                (folder / name / file).write_bytes(read(f"{path}/{file}", group))
            elif file == "topology.json":
                (folder / name / file).touch()


def _has(tree: Tree, path: str, group: int) -> bool:
    return group in tree.differing.get(path, {}) or group in tree.files[path].holders


def take_joined_manifests(tree: Tree, run: str) -> bool:
    """Of hosts with ranks of their own and one that has the lists of all of them, the latter's manifests are the run's.

    Returns:
        whether there is such a host
    """
    ranks = [path for name in tree.below.get(run, ()) if tree.files[path := f"{run}/{name}"].kind == "directory"]
    whole = [
        group
        for group in tree.differing[f"{run}/{MANIFEST}"]
        if all(group in tree.files[rank].holders for rank in ranks)
    ]
    of_driver = [group for group in whole if DRIVER in tree.groups[group]]
    if len(whole) != 1 and not of_driver:
        return False
    chosen = (of_driver or whole)[0]
    for path in [path for path in tree.differing if path.startswith(f"{run}/") and path.endswith(f"/{MANIFEST}")]:
        if chosen in tree.differing[path]:
            tree.put(path, tree.differing.pop(path)[chosen])
    return True


def join_manifests(
    tree: Tree, run: str, read: Callable[[str, int], bytes], join: Callable[[str, Path, list[Path]], str]
) -> str:
    """Of hosts that have written their own: the ones that `assay join` would leave.

    Args:
        join: makes one folder of the run of its sources; returns what is wrong

    Returns:
        what is wrong
    """
    groups = sorted(tree.differing[f"{run}/{MANIFEST}"])
    place = Path(tempfile.mkdtemp(prefix="assay-join-"))
    try:
        sources = [place / str(group) for group in groups]
        for group, source in zip(groups, sources):
            skeleton(tree, run, group, source, read)
        problem = join(run, place / "joined", sources)
        if problem:
            return problem
        for made in sorted((place / "joined").rglob(MANIFEST)):
            data = made.read_bytes()
            path = f"{run}/{made.relative_to(place / 'joined')}"
            tree.put(path, File(len(data), 0, {}, data=data))
            tree.differing.pop(path, None)
    finally:
        shutil.rmtree(place)
    return ""


# ---- reading


@dataclass
class Readers:
    """Reads files of a tree where they are."""

    tree: Tree
    actors: Mapping[str, Any]  # by node
    hosts: Mapping[str, str]  # names for people, by node
    lost: set[str] = field(default_factory=set)
    here: str = DRIVER  # the node of this process
    bytes_read: int = 0

    def read(self, path: str, start: int, end: int) -> bytes:
        """A range of a file.

        Raises:
            Refused: nobody can read it
        """
        file = self.tree.files.get(path)
        if file is None or file.kind == "directory":
            raise Refused("NotFound", "there is no such file")
        if file.data is not None:
            return file.data[start:end]
        why = Refused("NotFound", "no node has it")
        for group, modified_ns in file.holders.items():
            for node in self.tree.groups[group]:
                if node in self.lost:
                    why = Refused("Io", f"{self.hosts[node]}, which has it, is lost")
                    continue
                try:
                    data, size, at = self.read_from(node, path, start, end)
                except Refused as refused:
                    why = refused
                    continue
                if (size, at) != (file.size, modified_ns):
                    raise Refused("Io", "the file was changed while it was read")
                self.bytes_read += len(data)
                return data
        raise why

    def read_from(self, node: str, path: str, start: int, end: int) -> tuple[bytes, int, int]:
        host = self.hosts.get(node, node)
        try:
            if node == self.here:
                return read_range(path, start, end)
            if node not in self.actors:
                raise Refused("Io", f"{host} is not asked for files")
            got: tuple[bytes, int, int] = ray.get(
                self.actors[node].read.remote(path, start, end), timeout=SECONDS_TO_ANSWER
            )
            return got
        except OSError as error:
            raise Refused("Io", f"{host}: {error.strerror or error}") from error
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            text = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
            raise Refused("Io", f"{host}: {text}") from error
        except ray.exceptions.RayError as error:
            self.lost.add(node)
            raise Refused("Io", f"{host}, which has it, is lost") from error


class FileServer:
    """Answers a native process's questions about files of a tree."""

    def __init__(self, readers: Readers, paths: Sequence[str], folder: str) -> None:
        """
        Args:
            paths: that are read here, as the process writes them
            folder: that relative ones are of
        """
        self._readers = readers
        self._place = tempfile.mkdtemp(prefix="assay-nodes-")
        path = os.path.join(self._place, "socket")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(64)
        self.name = os.path.join(self._place, "files.json")
        with open(self.name, "w", encoding="utf-8") as file:
            json.dump({"folder": folder, "paths": list(paths), "socket": path}, file)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        shutil.rmtree(self._place, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rwb") as stream:
                for line in stream:
                    try:
                        answer, data = self._answer(json.loads(line))
                    except Refused as refused:
                        answer, data = {"error": str(refused), "kind": refused.kind}, b""
                    stream.write(json.dumps(answer).encode() + b"\n" + data)
                    stream.flush()
        except OSError:
            return  # the process has ended

    def _answer(self, question: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
        if "read" in question:
            data = self._readers.read(question["read"], question["start"], question["end"])
            return {"size": len(data)}, data
        tree = self._readers.tree
        path = next(question[what] for what in ("info", "list", "tree") if what in question)
        if path not in tree.files:
            raise Refused("NotFound", "there is no such file or folder")
        if "info" in question:
            return {"entries": [["", tree.files[path].info()]]}, b""
        children = (f"{path}/{name}" for name in sorted(tree.below.get(path, ())))
        named = tree.walk(path) if "tree" in question else children
        return {"entries": [[one[len(path) + 1 :], tree.files[one].info()] for one in named]}, b""
