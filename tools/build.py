#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Configures build/release and builds targets in it, with a count of steps and an estimate of the time that is left.

    tools/build.py [--tests] [TARGET ...]               default: everything that is configured
    tools/build.py --wheels dist                        that, and the wheels made of it
    tools/build.py --machine aarch64 --wheels FOLDER    in build/aarch64, for another processor than this one
    tools/build.py --source dist                        the source archive alone, nothing is built

Nothing is compiled twice. Once configured with --tests the folder stays so. What the compiler says is shown when a
step fails, and is in build/release/build.log.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Optional, TextIO

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "cmake"))

import build_facts  # noqa: E402

STEP = re.compile(r"^\[(\d+)/(\d+)\] (.*)$")
# Of which a toolchain file in cmake/ has the compiler where it is not this one.
MACHINES = sorted({os.uname().machine, "aarch64"})
LINES_SHOWN = 60  # of the log, when a step fails
SECONDS_BETWEEN_LINES = 20.0  # without a terminal
SECONDS_BEFORE_ESTIMATE = 5.0
HEADER_BYTES = 14_000
LINK_BYTES = 5_000


class Steps:
    """What a build is going to do, and how much of it a step is.

    The time of a step is taken to grow with the text that it compiles, a unit's files together, from a constant: the
    headers. Counting steps alone, the large units at the beginning would promise twice the time.
    """

    def __init__(self, build: Path, targets: Sequence[str]) -> None:
        self._build = build
        plan = subprocess.run(["ninja", "-C", str(build), "-n", *targets], text=True, capture_output=True, check=False)
        found = [STEP.search(line) for line in plan.stdout.splitlines()]
        self.total_work = sum(self.work(match[3]) for match in found if match)

    def work(self, description: str) -> int:
        """Bytes of source that count for one step, `Building CXX object src/a/CMakeFiles/b.dir/c.cpp.o`."""
        if not description.endswith(".o"):
            return LINK_BYTES
        folder, _, name = description.split()[-1].partition("CMakeFiles/")
        name = name.partition(".dir/")[2].removesuffix(".o")
        unit = self._build / folder / name
        if unit.is_file():  # written by cmake/add_module.cmake
            files = [ROOT / "src" / file for file in re.findall(r'#include "(.*)"', unit.read_text())]
            return HEADER_BYTES + sum(file.stat().st_size for file in files if file.is_file())
        source = ROOT / folder / name
        return HEADER_BYTES + (source.stat().st_size if source.is_file() else 0)


class Progress:
    """Turns ninja's `[132/310]` into one line that is rewritten; without a terminal, into a line now and then."""

    def __init__(self, stream: TextIO, steps: Steps) -> None:
        self._stream = stream
        self._steps = steps
        self._is_terminal = stream.isatty()
        self._begin = time.monotonic()
        self._shown = self._begin
        self._done = 0
        self._work_done = 0

    def step(self, done: int, total: int, description: str) -> None:
        """Takes note of a finished step."""
        now = time.monotonic()
        self._done = done
        self._work_done += self._steps.work(description)
        share = min(self._work_done / max(self._steps.total_work, 1), 1.0)
        if self._is_terminal:
            self._stream.write("\r\x1b[K" + self.text(done, total, share, now - self._begin))
        elif now - self._shown >= SECONDS_BETWEEN_LINES:
            self._shown = now
            self._stream.write(self.text(done, total, share, now - self._begin) + "\n")
        self._stream.flush()

    @staticmethod
    def text(done: int, total: int, share: float, seconds: float) -> str:
        """`build: [132/310] 1 min 02 s, about 1 min 20 s left`; `share` of the work is done."""
        line = f"build: [{done}/{total}] {_duration(seconds)}"
        if seconds >= SECONDS_BEFORE_ESTIMATE and 0 < share < 1:
            line += f", about {_duration(seconds / share * (1 - share))} left"
        return line

    def end(self) -> None:
        """Leaves the last line in place when there was something to do."""
        if self._done:
            seconds = time.monotonic() - self._begin
            start = "\r\x1b[K" if self._is_terminal else ""
            self._stream.write(f"{start}build: {self._done} steps in {_duration(seconds)}\n")
            self._stream.flush()


def _duration(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60:02} s" if whole >= 60 else f"{whole} s"


def run(command: Sequence[str], log: Path, progress: Optional[Progress] = None, **environment: str) -> int:
    """Runs a command with its output appended to a log; on failure shows the end of that output. Returns its status."""
    lines: list[str] = []
    with log.open("a") as file:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **environment}, text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            for line in process.stdout:
                file.write(line)
                found = STEP.search(line.rstrip())
                if found and progress:
                    progress.step(int(found[1]), int(found[2]), found[3])
                lines.append(line)
        except KeyboardInterrupt:
            process.wait()
            print(
                f"\nbuild: interrupted; what is built stays. The log is {os.path.relpath(log, ROOT)}", file=sys.stderr
            )
            return 130
    status = process.wait()
    if status != 0:
        first = next((i for i, line in enumerate(lines) if line.startswith("FAILED")), max(len(lines) - LINES_SHOWN, 0))
        sys.stderr.write("\n" + "".join(lines[first : first + LINES_SHOWN]))
        print(f"build: {command[0]} failed with {status}; the log is {os.path.relpath(log, ROOT)}", file=sys.stderr)
    return status


def build_folder(machine: str) -> Path:
    """Where what runs on this processor is built."""
    return ROOT / "build" / ("release" if machine == os.uname().machine else machine)


def options(tests: bool) -> dict[str, str]:
    """What pyproject.toml takes from the environment, as well, so that the wheel finds everything built."""
    return {
        "ASSAY_BUILD_EXAMPLES": "ON",
        "ASSAY_BUILD_TESTS": "ON" if tests else "OFF",
        "ASSAY_WERROR": "ON" if os.environ.get("CI") else "OFF",
    }


def configure(build: Path, machine: str, chosen: dict[str, str], log: Path) -> int:
    """Runs CMake; returns its status."""
    python = f"-DPython_EXECUTABLE={ROOT / '.venv/bin/python'}"
    fixed = ["-DCMAKE_BUILD_TYPE=Release", "-DASSAY_BUILD_PYTHON=ON", python]
    if machine != os.uname().machine:
        fixed.append(f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'cmake' / machine}.cmake")
    defined = [f"-D{name}={value}" for name, value in chosen.items()]
    return run(["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja", *fixed, *defined], log)


def cached(build: Path, name: str) -> str:
    """A variable of CMake's cache; empty when it is not there."""
    found = re.search(rf"^{name}:\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE)
    return found[1] if found else ""


def commit_time() -> dict[str, str]:
    """The time that files in an archive get, unless the environment has one: that of the commit."""
    when = build_facts.git("log", "-1", "--format=%ct")
    return {"SOURCE_DATE_EPOCH": when} if when and "SOURCE_DATE_EPOCH" not in os.environ else {}


def wheel_environment(build: Path, machine: str) -> dict[str, str]:
    """What gives a wheel its platform, and the same bytes each time: the time of the commit for every file in it."""
    wanted = {}
    oldest = cached(build, "ASSAY_GLIBC")
    if oldest and (build / f"glibc-{oldest}").is_dir():
        # What sysconfig, and with it the build backend, takes for the platform. smoke_test.py holds the files to it.
        wanted["_PYTHON_HOST_PLATFORM"] = f"manylinux_{oldest.replace('.', '_')}_{machine}"
    return {**wanted, **commit_time()}


def make_wheels(given: argparse.Namespace, chosen: dict[str, str], log: Path) -> int:
    """Makes both wheels in place of those that are in the folder; returns the status of pip."""
    build, folder = given.build, given.wheels
    for stale in folder.glob("*.whl"):
        stale.unlink()
    pip = [str(ROOT / ".venv/bin/pip"), "wheel", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    if given.targets:
        # What goes into a wheel without being a target of its own is made by this one.
        pip += ["-C", f"build.targets={';'.join(given.targets)};assay_shared"]
    where = ["-C", f"build-dir={build}", "-w", str(folder), str(ROOT), str(ROOT / "compat")]
    return run([*pip, *where], log, **{**chosen, **wheel_environment(build, given.machine)})


def make_source_archive(folder: Path, log: Path) -> int:
    """Makes the archive that pip installs from; returns the status of the build backend."""
    for stale in folder.glob("*.tar.gz"):
        stale.unlink()
    # No checkout is around where it is unpacked: cmake/build_facts.py reads this there.
    note = ROOT / "commit.txt"
    note.write_text(build_facts.commit() + "\n")
    try:
        hook = f"from scikit_build_core.build import build_sdist; build_sdist({str(folder.absolute())!r})"
        return run([str(ROOT / ".venv/bin/python"), "-c", hook], log, **commit_time())
    finally:
        note.unlink()


def main() -> int:
    """Returns the exit status: that of the step that failed, 130 when interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", action="store_true", help="configure with the unit tests")
    parser.add_argument("--build", type=Path, help="folder to build in, build/release or build/MACHINE")
    parser.add_argument("--machine", choices=MACHINES, default=os.uname().machine, help="what the result runs on")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="make the wheels in this folder")
    parser.add_argument("--source", type=Path, metavar="FOLDER", help="make the source archive in this folder")
    parser.add_argument("targets", nargs="*")
    given = parser.parse_args()
    given.build = given.build or build_folder(given.machine)
    given.build.mkdir(parents=True, exist_ok=True)
    log = given.build / "build.log"
    log.write_text("")
    if given.source:
        return make_source_archive(given.source, log)
    tests = given.tests or (given.build / "tests").is_dir()
    chosen = options(tests)
    status = configure(given.build, given.machine, chosen, log)
    if status == 0:
        progress = Progress(sys.stderr, Steps(given.build, given.targets))
        status = run(["cmake", "--build", str(given.build), *(f"--target={t}" for t in given.targets)], log, progress)
        progress.end()
    if status == 0 and given.wheels:
        status = make_wheels(given, chosen, log)
    return status


if __name__ == "__main__":
    sys.exit(main())
