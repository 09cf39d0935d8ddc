#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Configures build/release and builds targets in it, with a count of steps and an estimate of the time that is left.

    tools/build.py [--tests] [TARGET ...]      default: everything that is configured
    tools/build.py --wheels dist               that, and the wheels made of it

Nothing is compiled twice. Once configured with --tests the folder stays so. What the compiler says is shown when a
step fails, and is in build/release/build.log.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Optional, TextIO

ROOT = Path(__file__).resolve().parent.parent
STEP = re.compile(r"^\[(\d+)/(\d+)\] (.*)$")
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
        unit = self._build / description.split()[-1].removesuffix(".o")
        if unit.suffix == ".cxx" and unit.is_file():
            files = re.findall(r'#include "(.*)"', unit.read_text())
            return HEADER_BYTES + sum(Path(file).stat().st_size for file in files if Path(file).is_file())
        folder, _, name = description.split()[-1].partition("CMakeFiles/")
        source = ROOT / folder / name.partition(".dir/")[2].removesuffix(".o")
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


def options(tests: bool) -> dict[str, str]:
    """What pyproject.toml takes from the environment, as well, so that the wheel finds everything built."""
    return {
        "ASSAY_BUILD_EXAMPLES": "ON",
        "ASSAY_BUILD_TESTS": "ON" if tests else "OFF",
        "ASSAY_WERROR": "ON" if os.environ.get("CI") else "OFF",
    }


def configure(build: Path, chosen: dict[str, str], log: Path) -> int:
    """Runs CMake; returns its status."""
    python = f"-DPython_EXECUTABLE={ROOT / '.venv/bin/python'}"
    fixed = ["-DCMAKE_BUILD_TYPE=Release", "-DASSAY_BUILD_PYTHON=ON", python]
    defined = [f"-D{name}={value}" for name, value in chosen.items()]
    return run(["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja", *fixed, *defined], log)


def cached(build: Path, name: str) -> str:
    """A variable of CMake's cache; empty when it is not there."""
    found = re.search(rf"^{name}:\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE)
    return found[1] if found else ""


def wheel_environment(build: Path) -> dict[str, str]:
    """What gives a wheel its platform, and the same bytes each time: the time of the commit for every file in it."""
    wanted = {}
    oldest = cached(build, "ASSAY_GLIBC")
    if oldest and (build / f"glibc-{oldest}").is_dir():
        # What sysconfig, and with it the build backend, takes for the platform. smoke_test.py holds the files to it.
        wanted["_PYTHON_HOST_PLATFORM"] = f"manylinux_{oldest.replace('.', '_')}_{os.uname().machine}"
    if "SOURCE_DATE_EPOCH" not in os.environ:
        git = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
        when = subprocess.run(git, text=True, capture_output=True, check=False)
        if when.returncode == 0:
            wanted["SOURCE_DATE_EPOCH"] = when.stdout.strip()
    return wanted


def make_wheels(build: Path, chosen: dict[str, str], folder: Path, log: Path) -> int:
    """Makes both wheels in a fresh folder; returns the status of pip."""
    shutil.rmtree(folder, ignore_errors=True)
    pip = [str(ROOT / ".venv/bin/pip"), "wheel", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    where = ["-C", f"build-dir={build}", "-w", str(folder), str(ROOT), str(ROOT / "compat")]
    return run([*pip, *where], log, **{**chosen, **wheel_environment(build)})


def main() -> int:
    """Returns the exit status: that of the step that failed, 130 when interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", action="store_true", help="configure with the unit tests")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", help="folder to build in")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="make the wheels in this folder, emptied before")
    parser.add_argument("targets", nargs="*")
    given = parser.parse_args()
    given.build.mkdir(parents=True, exist_ok=True)
    log = given.build / "build.log"
    log.write_text("")
    tests = given.tests or (given.build / "tests").is_dir()
    chosen = options(tests)
    status = configure(given.build, chosen, log)
    if status == 0:
        progress = Progress(sys.stderr, Steps(given.build, given.targets))
        status = run(["cmake", "--build", str(given.build), *(f"--target={t}" for t in given.targets)], log, progress)
        progress.end()
    if status == 0 and given.wheels:
        status = make_wheels(given.build, chosen, given.wheels, log)
    return status


if __name__ == "__main__":
    sys.exit(main())
