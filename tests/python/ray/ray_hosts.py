# SPDX-License-Identifier: Apache-2.0
"""The hosts that Ray's tests share, the runs that they are given, and the reports of both ways.

A node of the cluster stands for a host. Where this user may have mount namespaces, each node is in one of its own, so
one path leads to another folder on each of them, and to an empty one for the command.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from bench.ray_cluster import NODE, add_node, lean_environment

CLONE_NEWNS, CLONE_FS = 0x20000, 0x200
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
LIBC = ctypes.CDLL(None, use_errno=True)
LAYERS = 4
# Ray asks a node that often whether it lives; when five answers are missing, it is lost. Default: 3000.
VARIABLES = {"RAY_health_check_period_ms": "500"}
# What the nodes run: it keeps the parts that it is given, and does with them what files of the test's folder say.
COMMAND = """#!{python} -IS
import os, sys, time
folder = os.path.realpath({now!r}) + "/"
part = sys.argv[1] == "part"
if part:
    body = sys.stdin.buffer.read()
    with open(f"{{folder}}begun-{{os.getpid()}}", "wb") as file:
        file.write(body)
    os.dup2(os.open(file.name, os.O_RDONLY), 0)


def order(name):
    try:
        return open(folder + name, "rb").read()
    except FileNotFoundError:
        return None


if part and order("kill") is not None:
    try:
        os.remove(folder + "kill")
    except FileNotFoundError:  # it is another part's
        pass
    else:
        os.kill(os.getpid(), 9)
if part and order("fail") is not None and order("fail") in body:
    print("error: the disk is on fire", file=sys.stderr)
    sys.exit(2)
if part and order("slow") is not None:
    time.sleep(float(order("slow")))
if part and order("hang") is not None:
    if sum(name.startswith("begun-") for name in os.listdir(folder)) > int(order("hang")):
        time.sleep(60)
if not part and order("mount") is not None and sys.argv[1] == "--version":
    place = order("mount").decode()
    for name in os.listdir(place) if os.path.isdir(place) else ():
        os.rename(f"{{place}}/{{name}}", f"{{os.path.dirname(place)}}/{{name}}")
os.execv({binary!r}, ["assay", *sys.argv[1:]])
"""


def binary() -> str:
    """The command under test."""
    return os.environ.get("ASSAY_BINARY") or str(Path(sys.executable).with_name("assay"))


# ---- namespaces


def checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@contextlib.contextmanager
def own_namespace(folder: Path | None = None, mount: Path | None = None) -> Iterator[None]:
    """What is started inside sees `folder` at `mount`."""
    here = os.getcwd()
    with open("/proc/thread-self/ns/mnt", "rb") as before:
        checked(LIBC.unshare(CLONE_NEWNS))
        try:
            checked(LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
            if mount is not None:
                checked(LIBC.mount(bytes(folder), bytes(mount), None, MS_BIND, None))
            yield
        finally:
            checked(LIBC.unshare(CLONE_FS))  # threads that were started meanwhile share it
            checked(LIBC.setns(before.fileno(), CLONE_NEWNS))
            os.chdir(here)


def why_no_namespaces() -> str:
    """Empty where this user may have them."""
    try:
        with own_namespace():
            return ""
    except OSError as error:
        return f"no mount namespaces for this user: {error}"


# ---- hosts


@contextlib.contextmanager
def variables(**values: str) -> Iterator[None]:
    """Of the environment of what is started inside."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class Hosts:
    """A cluster of two hosts, and what is done on it. All of a host but `data` is this machine's."""

    def __init__(self, place: Path) -> None:
        from ray.cluster_utils import Cluster

        self.place, self.data = place, place / "data"
        self.data.mkdir()
        self.why_shared = why_no_namespaces()  # not empty: the hosts have no folders of their own
        self.command = place / "assay"
        self.command.write_text(COMMAND.format(python=sys.executable, binary=binary(), now=str(place / "now")))
        self.command.chmod(0o755)
        self.roots: list[Path] = []
        self.nodes: list[object] = []
        self._started: list[subprocess.Popen[str]] = []
        self._tests = 0
        self.begin()
        self.cluster = Cluster()
        try:
            self.add()
            self.add()
        except BaseException:
            self.close()
            raise

    def add(self) -> int:
        """One host more; returns its number."""
        number = len(self.roots)
        root = self.place / f"host{number}-{self._tests}"
        root.mkdir()
        with variables(ASSAY_BINARY=str(self.command), **VARIABLES, **lean_environment()):
            if self.why_shared:
                node = add_node(self.cluster, **NODE)
            else:
                with own_namespace(root, self.data):
                    node = add_node(self.cluster, **NODE, node_ip_address=self.address(number))
        self.roots.append(root)
        self.nodes.append(node)
        return number

    def lose(self, number: int) -> None:
        """The last host that was added goes, as if its power did."""
        assert number == len(self.roots) - 1 > 0
        self.cluster.remove_node(self.nodes.pop(), allow_graceful=False)
        self.roots.pop()

    def close(self) -> None:
        self.cluster.shutdown()

    @staticmethod
    def address(number: int) -> str:
        """Of a host that has folders of its own."""
        return f"127.0.0.{number + 2}"

    # ---- a test's part of it

    def begin(self) -> None:
        """A test begins: nothing was given to the hosts, and no part is done yet."""
        for root in self.roots:
            for file in root.iterdir():
                shutil.rmtree(file) if file.is_dir() else file.unlink()
        self._tests += 1
        self.folder = self.place / f"test{self._tests}"  # what a former test left running does not write here
        self.folder.mkdir()
        link = self.place / "next"  # to be "now", by which the nodes' command finds the folder
        link.symlink_to(self.folder)
        link.replace(self.place / "now")

    def end(self) -> None:
        """A test is over: hosts that it added are gone, and nothing of its parts runs."""
        for command in self._started:
            if command.poll() is None:
                command.kill()
                command.communicate()
        self._started.clear()
        while len(self.roots) > 2:
            self.lose(len(self.roots) - 1)
        self.cluster.wait_for_nodes()
        wait_until(lambda: not self._has_workers(), 30)
        wait_until(lambda: not self._kill_parts(), 30)
        shutil.rmtree(self.folder)

    def _has_workers(self) -> bool:
        """Whether one of Ray is still in a part, also of a host that is lost; they go when the command is gone."""
        mark = f"ASSAY_BINARY={self.command}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                is_in_a_part = (process / "comm").read_text().startswith("ray::do_part")
                if is_in_a_part and mark in (process / "environ").read_bytes().split(b"\0"):
                    return True
        return False

    def _kill_parts(self) -> bool:
        """Whether there were some that the command left behind."""
        found = False
        for file in self.folder.glob("begun-*"):
            process = Path("/proc") / file.name.partition("-")[2]
            with contextlib.suppress(OSError):
                if bytes(self.command) in (process / "cmdline").read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)
                    found = True
        return found

    def order(self, what: str, argument: object = "") -> None:
        """What becomes of the parts of this test.

        Args:
            what: "kill": the first one is killed; "fail": those that contain the argument; "slow": they take so many
                seconds; "hang": all after so many; "mount": `--version` moves what is in the folder beside it
        """
        content = argument if isinstance(argument, bytes) else str(argument).encode()
        unfinished = self.folder / "order"
        unfinished.write_bytes(content)
        unfinished.replace(self.folder / what)

    def is_ordered(self, what: str) -> bool:
        """Whether that is still to be done."""
        return (self.folder / what).exists()

    def parts(self) -> list[bytes]:
        """Those that were begun."""
        return [file.read_bytes() for file in self.folder.glob("begun-*")]

    def forget_parts(self) -> None:
        """So that those that are begun next are counted."""
        for file in self.folder.glob("begun-*"):
            file.unlink()

    def give(self, number: int, whole: Path, *names: str) -> None:
        """Copies what is named of the whole, "golden/rank0", to a host."""
        for name in names:
            target = self.roots[number] / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (whole / name).is_dir():
                shutil.copytree(whole / name, target)
            else:
                shutil.copy2(whole / name, target)

    # ---- commands

    def words(self, command: str, *words: object) -> list[str]:
        return [binary(), command, *map(str, words), f"--ray={self.cluster.address}"]

    def run(self, command: str, *words: object, **options: object) -> subprocess.CompletedProcess[str]:
        """The command on the hosts."""
        return subprocess.run(self.words(command, *words), capture_output=True, text=True, timeout=180, **options)

    def start(self, command: str, *words: object, parts: int) -> subprocess.Popen[str]:
        """The same, which goes on when so many parts are begun."""
        words = self.words(command, *words)
        started = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._started.append(started)
        wait_until(lambda: len(self.parts()) >= parts or started.poll() is not None)
        return started

    def interrupt(self, command: str, *words: object, parts: int) -> tuple[int, str, str]:
        """Status, output and errors of a command that gets Ctrl-C while its parts hang, so many of them begun."""
        started = self.start(command, *words, parts=parts)
        time.sleep(0.5)
        started.send_signal(signal.SIGINT)
        out, errors = started.communicate(timeout=60)
        return started.returncode, out, errors

    def alone(self, whole: Path, command: str, *words: object, **options: object) -> subprocess.CompletedProcess[str]:
        """The command without the hosts, on all of it, at the path where they have their parts."""
        with own_namespace(whole, self.data):
            return alone(command, *words, **options)

    def check_both(
        self,
        out: Path,
        command: str,
        *words: object,
        whole: Path | None = None,
        at_the_command: Path | None = None,
        only_there: Sequence[object] = (),
    ) -> subprocess.CompletedProcess[str]:
        """The command says and writes the same with the hosts and without; returns what it said with them.

        Args:
            out: for a folder "here" and a folder "there", where the two run
            whole: what the hosts have together; default: nothing of their own
            at_the_command: what the command has of that where it runs with the hosts; default: nothing
            only_there: words for the command with the hosts
        """
        for name in ("here", "there"):
            (out / name).mkdir()
        if whole is None:
            here = alone(command, *words, cwd=out / "here")
        else:
            here = self.alone(whole, command, *words, cwd=out / "here")
        with own_namespace(at_the_command, self.data) if at_the_command else contextlib.nullcontext():
            there = self.run(command, *words, *only_there, cwd=out / "there")
        assert (there.returncode, there.stderr) == (here.returncode, here.stderr)
        assert said(there) == said(here)
        there_files, here_files = files_of(out / "there"), files_of(out / "here")
        assert sorted(there_files) == sorted(here_files)
        assert [name for name in here_files if there_files[name] != here_files[name]] == []
        return there


def wait_until(is_so: Callable[[], bool], seconds: float = 60) -> None:
    """Until the time is up, too."""
    deadline = time.monotonic() + seconds
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.05)


def alone(command: str, *words: object, **options: object) -> subprocess.CompletedProcess[str]:
    """The command without a cluster."""
    jobs = [] if command == "show" else ["--jobs", "1"]
    words = (binary(), command, *map(str, words), *jobs)
    return subprocess.run(words, capture_output=True, text=True, timeout=120, **options)


# ---- runs and reports


def write_run(folder: Path, shards: dict[int, list[np.ndarray]], layers: int = LAYERS) -> None:
    """A native run: of each rank its tensors, the outputs of so many layers a step."""
    for rank, tensors in shards.items():
        place = folder / f"rank{rank}"
        place.mkdir(parents=True)
        lines = []
        for number, tensor in enumerate(tensors):
            step, layer = divmod(number, layers)
            file = place / f"step-{step:06}.safetensors"
            with file.open("ab") as out:
                if out.tell() == 0:
                    out.write(bytes(64))
                offset = out.tell()
                out.write(tensor.tobytes())
            line = {"n": number, "step": step, "node": f"layers.{layer}", "type": "Linear", "order": layer}
            line |= {"role": "output", "slot": "", "dtype": "float32", "shape": list(tensor.shape)}
            line |= {"file": file.name, "offset": offset, "bytes": tensor.nbytes}
            lines.append(json.dumps(line))
        (place / "records.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "manifest.json").write_text(json.dumps({"format": "assay-run", "version": 1, "complete": True}))


def write_two_ranks(folder: Path) -> list[Path]:
    """golden and mine of two ranks and one step; mine is wrong on rank 1."""
    golden = {rank: [np.full(8, layer + 1, np.float32) for layer in range(LAYERS)] for rank in range(2)}
    write_run(folder / "golden", golden)
    write_run(folder / "mine", {0: golden[0], 1: [tensor * 2 for tensor in golden[1]]})
    return [folder / "golden", folder / "mine"]


def halves_of(tensors: list[np.ndarray]) -> dict[int, list[np.ndarray]]:
    """The same tensors, each on two ranks."""
    width = tensors[0].shape[1] // 2
    return {half: [np.ascontiguousarray(t[:, half * width :][:, :width]) for t in tensors] for half in (0, 1)}


def files_of(folder: Path) -> dict[str, bytes]:
    """All of a folder, by names without the time: "report/msit_cmp_report.jsonl"."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {re.sub(r"_\d{8}_?\d{6}", "", str(file.relative_to(folder))): file.read_bytes() for file in files}


def rows_of(folder: Path) -> list[dict[str, object]]:
    (file,) = folder.rglob("*.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def said(result: subprocess.CompletedProcess[str]) -> str:
    """But for the names of files, and the time that it took."""
    return re.sub(r"^report: .*\n|in \d+\.\d\d s", "", result.stdout, flags=re.MULTILINE)
