# SPDX-License-Identifier: Apache-2.0
"""Runs a native command whose parts are done on a Ray cluster. Started by ``assay COMMAND ... --ray``."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from assay.ray import files
from assay.ray import nodes as on_node
from assay.ray.files import DRIVER, FileServer, Reader, Readers, Tree
from assay.ray.nodes import Node
from assay.ray.parts import End, Part, PartSocket

CPUS_OF_A_PART = 1  # a node with fewer, such as a head that only manages, has none
IN_FLIGHT_PER_CPU = 2  # parts that are sent before the ones in front of them are done
MOST_TRIES = 4  # of a part whose worker or node is lost
OVERHEAD_BYTES = 64 << 20  # that a part needs beside the payload
SECONDS_TO_CONNECT = 5.0
READER = {"num_cpus": 0, "max_concurrency": 8, "max_restarts": 2, "max_task_retries": 2}  # the actor of a node
# Commands that go on to a report when their parts are stopped; the others are told of Ctrl-C themselves.
ENDS_BY_ITS_PARTS = frozenset({"compare"})
USAGE = 2
INTERRUPTED = 130


class DriverError(Exception):
    """One sentence for the user."""


def main(words: Sequence[str]) -> int:
    """Returns the exit status of the command."""
    options = _parse(words)
    try:
        with _cluster(options.address):
            return Driver(options).run()
    except DriverError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("interrupted: no report was written", file=sys.stderr)
        return INTERRUPTED


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="assay --ray")
    parser.add_argument("--program", required=True)
    parser.add_argument("--address", default="")
    parser.add_argument("--map-host", action="append", default=[])
    parser.add_argument("--resume", default="")
    parser.add_argument("--run", action="append", default=[])
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(words)
    options.command = options.command[1:] if options.command[:1] == ["--"] else options.command
    return options


@contextlib.contextmanager
def _cluster(address: str) -> Any:
    """Connected to the cluster, without what Ray prints."""
    wanted = address or os.environ.get("RAY_ADDRESS", "") or "auto"
    _check_address(wanted)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        ray.init(address=wanted, logging_level=logging.ERROR, log_to_driver=False, include_dashboard=False)
    except ConnectionError as error:
        where = f"at {address}" if address else "on this host"
        raise DriverError(
            f"there is no Ray cluster {where} ({_first_line(error)}); ray start --head begins one, "
            "--ray ADDRESS names one"
        ) from error
    except (ValueError, RuntimeError, TimeoutError) as error:
        raise DriverError(f"cannot join the Ray cluster at {wanted}: {_first_line(error)}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Ray itself asks for a minute and more."""
    host, _, port = address.rpartition("//")[2].partition("/")[0].rpartition(":")
    if not (host and port.isdigit()):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS_TO_CONNECT).close()
    except OSError as error:
        raise DriverError(
            f"there is no Ray cluster at {address} ({error.strerror or error}); ray start --head begins one"
        ) from error


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__


class Driver:
    """One command: starts it, hands its parts out, and its answers back."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._resume = Path(options.resume) if options.resume else None
        self._keeps_parts = self._resume is not None
        self._do_part = ray.remote(max_retries=0)(on_node.do_part)
        self._nodes: list[Node] = []
        self._folder = os.getcwd()
        paths = {self._absolute(run) for run in options.run if "://" not in run}
        self._runs = sorted(path for path in paths if not any(path.startswith(f"{one}/") for one in paths))
        self._tree = Tree()
        self._readers = Readers(self._tree, {}, {})
        self._busy: dict[str, int] = {}  # parts in flight, by node
        self._waiting: dict[Any, tuple[Part, Node, int]] = {}  # by Ray's reference
        self._interrupted = False
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Returns the exit status of the command."""
        if self._resume is not None:
            try:
                self._resume.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise DriverError(f"{self._resume}: parts cannot be kept there: {error.strerror}") from error
        self._nodes = self._find_nodes()
        elsewhere = self._runs_elsewhere()
        server = FileServer(self._readers, elsewhere, self._folder) if elsewhere else None
        try:
            return self._run_command({"ASSAY_NODE_FILES": server.name} if server else {})
        finally:
            if server:
                server.close()

    def _run_command(self, environment: dict[str, str]) -> int:
        ours, theirs = socket.socketpair()
        child = self._child = subprocess.Popen(
            [self._options.program, *self._options.command],
            pass_fds=[theirs.fileno()],
            env={**os.environ, **environment, "ASSAY_PARTS": str(theirs.fileno())},
            preexec_fn=_in_the_child,
        )
        theirs.close()
        previous = signal.signal(signal.SIGINT, self._stop)
        try:
            self._serve(ours)
            status = child.wait()
            if status == -signal.SIGINT and self._interrupted:
                raise KeyboardInterrupt
            if status < 0:
                raise DriverError(f"assay {self._options.command[0]} was ended by signal {-status}")
            return status
        except BaseException:
            child.terminate()
            child.wait()
            raise
        finally:
            signal.signal(signal.SIGINT, previous)
            ours.close()

    def _stop(self, *_: object) -> None:
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = True
        if self._child is not None and self._options.command[0] not in ENDS_BY_ITS_PARTS:
            self._child.send_signal(signal.SIGINT)

    def _find_nodes(self) -> list[Node]:
        """The nodes that can do parts, and the tree of what they have."""
        probe = ray.remote(num_cpus=0, max_retries=1)(on_node.look_around)
        alive = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= CPUS_OF_A_PART]
        looks = [
            probe.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(
                self._runs
            )
            for node in alive
        ]
        found = []
        lists: dict[str, tuple[str, ...]] = {}
        for node, look in zip(alive, looks):
            try:
                seen = ray.get(look, timeout=60)
            except ray.exceptions.RayError as error:
                name = node["NodeManagerHostname"]
                raise DriverError(
                    f"node {name} cannot run assay ({_first_line(error)}); install assay-llm there"
                ) from error
            if not seen.command:
                raise DriverError(f"node {seen.host} has no command assay; install assay-llm there")
            found.append(Node(node["NodeID"], seen.host, node["NodeManagerAddress"], seen.version))
            lists[node["NodeID"]] = seen.lists
        if not found:
            raise DriverError("no node of the Ray cluster has a CPU for tasks")
        self._check_versions(found)
        host_paths: dict[str, set[str]] = {}
        for text in self._options.map_host:
            host, _, path = text.partition("=")
            if not path:
                raise DriverError(f"--map-host {text}: expected HOST=PATH")
            if not any(host in (node.host, node.address) for node in found):
                names = ", ".join(sorted({node.host for node in found}))
                raise DriverError(f"--map-host {text}: the cluster has no node {host}; its nodes: {names}")
            host_paths.setdefault(host, set()).add(path)
        found = [on_node.mapped(host_paths, node) for node in found]
        self._plant(found, lists)
        return found

    # ---- files

    def _absolute(self, path: str) -> str:
        return os.path.normpath(os.path.join(self._folder, path))

    def _plant(self, nodes: Sequence[Node], lists: dict[str, tuple[str, ...]]) -> None:
        """Makes the tree of all that the nodes and this host have."""
        list_run = ray.remote(num_cpus=0, max_retries=1)(files.list_run)
        for number, run in enumerate(self._runs):
            own = files.list_run(run)
            groups: dict[str, list[str]] = {}
            if own:
                groups[files.digest_of_list(own)] = [DRIVER]
            for node in nodes:
                if digest := lists[node.id][number]:
                    groups.setdefault(digest, []).append(node.id)
            for members in groups.values():
                listed = own
                if members[0] != DRIVER:
                    listed = ray.get(list_run.options(scheduling_strategy=_only_on(members[0])).remote(run))
                self._tree.add(run, members, listed)
            for node in nodes:
                for path in sorted(map(self._absolute, node.mapped)):
                    if path.startswith(f"{run}/"):  # what is mounted when it is asked for is in no list of the run
                        listed = ray.get(list_run.options(scheduling_strategy=_only_on(node.id)).remote(path))
                        self._tree.add_below(run, path, [node.id], listed)
        hosts = {node.id: node.host for node in nodes} | {DRIVER: "this host"}
        self._readers = Readers(self._tree, {}, hosts)
        everybody = len(nodes) + 1
        if any(len(group) != everybody for group in self._tree.groups):
            reader: Any = ray.remote(Reader)
            self._readers.actors = {
                node.id: reader.options(**READER, scheduling_strategy=_only_on(node.id)).remote() for node in nodes
            }
        self._settle()

    def _settle(self) -> None:
        """One file a path, where hosts have their own."""
        tree, readers = self._tree, self._readers
        digests_of = ray.remote(num_cpus=0, max_retries=1)(files.digests_of)

        def digests(node: str, paths: Sequence[str]) -> Sequence[str]:
            if node == DRIVER:
                return files.digests_of(paths)
            return ray.get(digests_of.options(scheduling_strategy=_only_on(node)).remote(list(paths)))

        def read(path: str, group: int) -> bytes:
            file = tree.differing.get(path, {}).get(group, tree.files[path])
            return readers.read_from(tree.groups[group][0], path, 0, file.size)[0]

        def join(run: str, joined: Path, sources: list[Path]) -> str:
            words = [self._options.program, "join", str(joined), *map(str, sources)]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return ""
            said = (done.stderr.strip().splitlines() or ["assay join failed"])[0].removeprefix("error: ")
            for group, source in zip(sorted(tree.differing[f"{run}/{files.MANIFEST}"]), sources):
                said = said.replace(str(source), f"{readers.hosts[tree.groups[group][0]]}:{run}")
            return said

        problem = files.settle(tree, digests, readers.hosts.__getitem__)
        if problem:
            raise DriverError(problem)
        for run in self._runs:
            has_several = f"{run}/{files.MANIFEST}" in tree.differing and not files.take_joined_manifests(tree, run)
            if has_several and (problem := files.join_manifests(tree, run, read, join)):
                raise DriverError(f"the parts of {run} on the hosts are not one run: {problem}")
        for path in tree.differing:  # manifests that are not at the top of a run
            hosts = [readers.hosts[tree.groups[group][0]] for group in tree.differing[path]][:2]
            raise DriverError(f"{path}: {hosts[0]} and {hosts[1]} have another file each")

    def _runs_elsewhere(self) -> list[str]:
        """The runs, as the user names them, of which this host has not everything."""
        lacking = []
        for named in self._options.run:
            run = self._absolute(named)
            paths = [run, *self._tree.walk(run)] if run in self._tree.files else []
            if any(DRIVER not in self._tree.nodes_with(path) for path in paths):
                lacking.append(named)
        return lacking

    @staticmethod
    def _check_versions(found: list[Node]) -> None:
        ours = on_node.assay_version()
        for node in found:
            if node.version != ours:
                raise DriverError(f"node {node.host} has {node.version}, this host has {ours}; install one of them")

    # ---- parts

    def _serve(self, end: socket.socket) -> None:
        """Does what the command asks for, until it asks for no more; why it ended before it says itself."""
        parts = PartSocket(end)
        in_flight = IN_FLIGHT_PER_CPU * max(1, int(ray.cluster_resources().get("CPU", 1)))
        try:
            while parts.begin():
                self._do_all(parts, in_flight)
        except (EOFError, OSError):
            for reference in self._waiting:
                ray.cancel(reference, force=True)

    def _do_all(self, parts: PartSocket, in_flight: int) -> None:
        more = parts.count > 0
        while more or self._waiting:
            while more and len(self._waiting) < in_flight:
                part = parts.receive()
                if part is None:
                    more = False
                elif self._interrupted:
                    parts.answer(part.number, End.STOPPED, b"stopped by the user")
                else:
                    self._begin(part, parts)
            if self._waiting:
                self._finish_one(parts)

    def _begin(self, part: Part, parts: PartSocket, tries: int = 1) -> None:
        known = self._known_answer(part)
        if known is not None:
            parts.answer(part.number, End.DONE, known)
            return
        paths = {file: self._absolute(file) for file in part.files}
        having = {file: having_nodes(self._tree, path, self._nodes) for file, path in paths.items()}
        if missing := next((file for file, ids in having.items() if not ids), ""):
            parts.answer(part.number, End.FAILED, nobody_sees(missing, self._tree, paths[missing]).encode())
            return
        node = best_node(self._nodes, having, {file: self._size(path) for file, path in paths.items()}, self._busy)
        elsewhere = [file for file, ids in having.items() if node.id not in ids]
        readers = None
        if elsewhere:
            few = self._tree.some(paths[file] for file in elsewhere)
            wanted = {one for file in elsewhere for one in having[file]}
            actors = {one: actor for one, actor in self._readers.actors.items() if one in wanted}
            readers = Readers(few, actors, self._readers.hosts, set(self._readers.lost), node.id)
        reference = self._do_part.options(
            num_cpus=CPUS_OF_A_PART,
            memory=OVERHEAD_BYTES,
            scheduling_strategy=_only_on(node.id),
        ).remote(part.body, 1, self._folder, elsewhere, readers)
        self._busy[node.id] = self._busy.get(node.id, 0) + 1
        self._waiting[reference] = (part, node, tries)

    def _finish_one(self, parts: PartSocket) -> None:
        ready, _ = ray.wait(list(self._waiting), num_returns=1, timeout=0.5)
        if self._interrupted:
            for reference, (part, _, _) in self._waiting.items():
                if reference not in ready:
                    ray.cancel(reference, force=True)
                    parts.answer(part.number, End.STOPPED, b"stopped by the user")
            self._waiting = {reference: self._waiting[reference] for reference in ready}
        for reference in ready:
            part, node, tries = self._waiting.pop(reference)
            self._busy[node.id] -= 1
            try:
                answer = ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                cause = error.cause
                if isinstance(cause, ChildProcessError):
                    self._again(part, node, tries, str(cause), parts)
                else:
                    parts.answer(part.number, End.FAILED, f"{node.host}: {_first_line(cause)}".encode())
            except ray.exceptions.RayError as error:  # the worker or its node is lost
                self._again(part, node, tries, _first_line(error), parts)
            else:
                self._keep(part, answer)
                parts.answer(part.number, End.DONE, answer)

    def _again(self, part: Part, node: Node, tries: int, why: str, parts: PartSocket) -> None:
        alive = {one["NodeID"] for one in ray.nodes() if one["Alive"]}
        self._nodes = [one for one in self._nodes if one.id in alive]
        if self._interrupted:
            parts.answer(part.number, End.STOPPED, b"stopped by the user")
        elif tries == MOST_TRIES:
            parts.answer(part.number, End.FAILED, f"{node.host}: lost {tries} times: {why}".encode())
        else:
            self._begin(part, parts, tries + 1)

    def _size(self, path: str) -> int:
        file = self._tree.files.get(path)
        return file.size if file else 1

    # ---- parts that are done already

    def _known_answer(self, part: Part) -> bytes | None:
        if self._resume is None:
            return None
        path = self._resume / f"{part.digest}.rows"
        return path.read_bytes() if path.is_file() else None

    def _keep(self, part: Part, answer: bytes) -> None:
        if self._resume is None or not self._keeps_parts:
            return
        unfinished: Path | None = None
        try:
            with tempfile.NamedTemporaryFile(dir=self._resume, delete=False) as file:
                unfinished = Path(file.name)
                file.write(answer)
            unfinished.replace(self._resume / f"{part.digest}.rows")
        except OSError as error:  # it is only there to be faster
            if unfinished is not None:
                unfinished.unlink(missing_ok=True)
            print(f"warning: {self._resume}: parts are not kept any more: {error.strerror}", file=sys.stderr)
            self._keeps_parts = False


def _in_the_child() -> None:
    """Between fork and exec of the native command."""
    os.setpgrp()  # Ctrl-C is for the driver, which has the report written
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a limit on files is an error like a full disk, and is said


def _only_on(node: str) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node, soft=False)


def having_nodes(tree: Tree, path: str, nodes: Sequence[Node]) -> set[str]:
    """Those of the nodes that have a file."""
    having = set(tree.nodes_with(path))
    return {node.id for node in nodes if node.id in having or node.is_told(path)}


def best_node(
    nodes: Sequence[Node], having: Mapping[str, set[str]], sizes: Mapping[str, int], busy: Mapping[str, int]
) -> Node:
    """The one that has most bytes of the files; of several the one that has least to do."""

    def bytes_at(node: Node) -> int:
        return sum(sizes[file] for file, ids in having.items() if node.id in ids)

    return min(nodes, key=lambda node: (-bytes_at(node), busy.get(node.id, 0), node.id))


def nobody_sees(file: str, tree: Tree, path: str) -> str:
    """Why no node that is alive has a file, as a clause."""
    if any(node != DRIVER for node in tree.nodes_with(path)):
        return f"the node that has {file} is lost"
    return f"no node sees {file}; --map-host HOST=PATH says which one does"
