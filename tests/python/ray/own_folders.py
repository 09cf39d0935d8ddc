# SPDX-License-Identifier: Apache-2.0
"""Clusters whose nodes have folders of their own.

Every node is in a mount namespace of its own, so one path leads to another folder on each of them, and to an empty one
for the command. A test module that uses `Hosts` has `pytestmark = pytest.mark.usefixtures("may_have_namespaces")`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ray = pytest.importorskip("ray")
from bench.ray_cluster import NODE, add_node  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402
from test_ray_compare import binary  # noqa: E402

CLONE_NEWNS, CLONE_FS = 0x20000, 0x200
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
LIBC = ctypes.CDLL(None, use_errno=True)
# What the nodes run: it keeps the parts that it is given, and does with them what files of its folder say.
COMMAND = """#!{python}
import os, subprocess, sys, time
if sys.argv[1] != "part":
    os.execv({binary!r}, ["assay", *sys.argv[1:]])
os.chdir({folder!r})
part = sys.stdin.buffer.read()
with open(f"begun-{{os.getpid()}}", "wb") as file:
    file.write(part)
if os.path.exists("kill"):
    os.remove("kill")
    os.kill(os.getpid(), 9)
if os.path.exists("fail") and open("fail", "rb").read() in part:
    sys.exit("error: the disk is on fire")
if os.path.exists("hang") and len(os.listdir(".")) > 3:
    time.sleep(60)
sys.exit(subprocess.run([{binary!r}, *sys.argv[1:]], input=part, cwd={data!r}).returncode)
"""


def checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@contextlib.contextmanager
def own_namespace(folder: Path | None = None, mount: Path | None = None):
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


@pytest.fixture(scope="module")
def may_have_namespaces():
    """Skips tests where this user has none."""
    try:
        with own_namespace():
            pass
    except OSError as error:
        pytest.skip(f"no mount namespaces for this user: {error}")


class Hosts:
    """A cluster of a node a folder. At `data` each sees its own; the command sees nothing there."""

    def __init__(self, place: Path, data: Path, count: int, command: str = "") -> None:
        self.data = data
        self.roots = [place / f"host{number}" for number in range(count)]
        for folder in (data, *self.roots):
            folder.mkdir(parents=True, exist_ok=True)
        self.cluster = Cluster()
        before = os.environ.get("ASSAY_BINARY")
        os.environ["ASSAY_BINARY"] = command or binary()
        try:
            self.nodes = []
            for number, root in enumerate(self.roots):
                with own_namespace(root, data):
                    self.nodes.append(add_node(self.cluster, **NODE, node_ip_address=self.address(number)))
        finally:
            del os.environ["ASSAY_BINARY"]
            if before is not None:
                os.environ["ASSAY_BINARY"] = before

    @staticmethod
    def address(number: int) -> str:
        """Of a host."""
        return f"127.0.0.{number + 2}"

    def give(self, number: int, whole: Path, *names: str) -> None:
        """Copies what is named of the whole, "golden/rank0", to a host."""
        for name in names:
            target = self.roots[number] / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (whole / name).is_dir():
                shutil.copytree(whole / name, target)
            else:
                shutil.copy2(whole / name, target)

    def words(self, command: str, *words: object) -> list[str]:
        return [binary(), command, *map(str, words), f"--ray={self.cluster.address}"]

    def run(self, command: str, *words: object, **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.words(command, *words), capture_output=True, text=True, timeout=180, **options)

    def close(self) -> None:
        self.cluster.shutdown()


class WatchedHosts(Hosts):
    """Hosts that keep the parts that they are given, and do with them what files in `folder` say."""

    def __init__(self, place: Path, count: int) -> None:
        self.folder = place / "parts"
        self.folder.mkdir(parents=True)
        command = place / "assay"
        names = {"python": sys.executable, "binary": binary(), "folder": str(self.folder), "data": str(place / "data")}
        command.write_text(COMMAND.format(**names))
        command.chmod(0o755)
        super().__init__(place, place / "data", count, str(command))

    def clear(self) -> None:
        shutil.rmtree(self.folder)
        self.folder.mkdir()

    def parts(self) -> list[bytes]:
        return [file.read_bytes() for file in self.folder.glob("begun-*")]


def alone(whole: Path, data: Path, command: str, *words: object) -> subprocess.CompletedProcess[str]:
    """The command on all of it, at the path where the hosts have their parts."""
    with own_namespace(whole, data):
        return subprocess.run(
            [binary(), command, *map(str, words), "--jobs", "1"], capture_output=True, text=True, timeout=120
        )


def report_of(folder: Path) -> dict[str, bytes]:
    """The report's files, by their names without the time."""
    return {re.sub(r"_\d{14}", "", file.name): file.read_bytes() for file in folder.iterdir()}


def said(result: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in result.stdout.splitlines() if not line.startswith("report:")]


def rows_of(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in report_of(folder)["msit_cmp_report.jsonl"].splitlines()]


@pytest.fixture
def fresh(tmp_path: Path):
    """Makes a cluster of a test of its own."""
    made: list[Hosts] = []

    def make(count: int, command: str = "") -> Hosts:
        made.append(Hosts(tmp_path / "hosts", tmp_path / "hosts" / "data", count, command))
        return made[-1]

    yield make
    for one in made:
        one.close()


def slow_part(folder: Path) -> str:
    """A command of the nodes whose parts say that they have begun, and take a second."""
    path = folder / "slow-assay"
    path.write_text(
        f"#!{sys.executable}\nimport os, sys, time\n"
        f"if sys.argv[1] == 'part':\n    open(f'{folder}/begun-{{os.getpid()}}', 'w').close()\n    time.sleep(1)\n"
        f"os.execv({binary()!r}, ['assay', *sys.argv[1:]])\n"
    )
    path.chmod(0o755)
    return str(path)
