# SPDX-License-Identifier: Apache-2.0
"""Whole commands: `assay compare` on warm files beside `cmp` and a NumPy script, start-up times, resident memory.

Each figure is a process of its own, timed from fork to exit; resident memory is the kernel's maximum for that process
(mapped pages included). The commands on the same files alternate at random.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from bench.measure import iqr, load_average, machine, median, shuffled
from bench.report import FAILED, NOT_AVAILABLE, Row, Section
from bench.rivals import tools

COLUMNS = [
    "",
    "pair MB",
    "ms",
    "IQR",
    "fastest",
    "CPU ms",
    "GB/s",
    "best GB/s",
    "GB/CPU s",
    "resident MB",
    "goal",
    "met",
]
MIB = 1 << 20
MAX_RESIDENT = 512 * MIB
NUMPY_SCRIPT = Path(__file__).parent / "rivals" / "numpy_compare.py"
POLYGRAPHY_SCRIPT = Path(__file__).parent / "rivals" / "polygraphy_compare.py"


@dataclass
class Command:
    """A command line to time.

    Attributes:
        accepted: exit statuses that mean it worked (`assay compare` and `cmp` return 1 for a difference).
        repetitions: how often; slow rivals run less often.
        goal_seconds: median wall time to reach.
        rate_goal: GB/s of pair bytes to reach.
        memory_goal: whether the limit on resident memory applies.
    """

    name: str
    words: list[str]
    pair_bytes: int = 0
    accepted: tuple[int, ...] = (0,)
    repetitions: int = 9
    goal_seconds: Optional[float] = None
    rate_goal: Optional[float] = None
    memory_goal: bool = False
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    resident: int = 0
    failed: str = ""


def find_assay(given: Optional[str]) -> Optional[str]:
    """Returns the native command: the given one, the one beside this Python, or the first on PATH."""
    if given:
        return str(Path(given).resolve())
    beside = Path(sys.executable).parent / "assay"
    return str(beside) if beside.exists() else shutil.which("assay")


def run_once(command: Command, folder: Path) -> None:
    """Runs the command once in `folder` and adds its wall and CPU time and its resident memory."""
    with open(os.devnull, "wb") as null, open(folder / "stderr.txt", "w+") as errors:
        start = time.perf_counter()
        process = subprocess.Popen(command.words, stdout=null, stderr=errors, cwd=folder)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in command.accepted:
            errors.seek(0)
            command.failed = f"exit status {process.returncode}: {errors.read()[-500:]}"
            return
    command.wall.append(wall)
    command.cpu.append(usage.ru_utime + usage.ru_stime)
    command.resident = max(command.resident, usage.ru_maxrss * 1024)


def run_group(commands: list[Command], folder: Path) -> None:
    """Runs all commands, alternated at random, until each has its repetitions; the first round only warms up."""
    generator = random.Random(20260103)
    for turn in range(1 + max(command.repetitions for command in commands)):
        for command in shuffled(commands, generator):
            if command.failed or turn > command.repetitions:
                continue
            run_once(command, folder)
            if turn == 0:
                command.wall.clear()
                command.cpu.clear()


def row_of(command: Command) -> Row:
    """Turns a timed command into its row."""
    if command.failed:
        return Row(command.name, status=FAILED, reason=command.failed)
    seconds, fastest = median(command.wall), min(command.wall)
    row = Row(command.name, seconds=seconds, unit="one command")
    row.data = {"wall": command.wall, "cpu": command.cpu, "resident": command.resident, "pair": command.pair_bytes}
    row.cells = {
        "ms": f"{seconds * 1e3:.1f}",
        "IQR": f"{iqr(command.wall) * 1e3:.1f}",
        "fastest": f"{fastest * 1e3:.1f}",
        "CPU ms": f"{median(command.cpu) * 1e3:.1f}",
        "resident MB": f"{command.resident / 1e6:.0f}",
    }
    if command.pair_bytes:
        row.cells["pair MB"] = f"{command.pair_bytes / 1e6:.0f}"
        row.cells["GB/s"] = f"{command.pair_bytes / seconds / 1e9:.2f}"
        row.cells["best GB/s"] = f"{command.pair_bytes / fastest / 1e9:.2f}"
        row.cells["GB/CPU s"] = f"{command.pair_bytes / max(median(command.cpu), 1e-9) / 1e9:.2f}"
    judged: list[tuple[str, str, bool]] = []
    if command.goal_seconds is not None:
        goal = command.goal_seconds
        judged.append((f"{seconds * 1e3:.1f} ms", f"{goal * 1e3:.0f} ms", seconds <= goal))
    if command.rate_goal is not None:
        rate = command.pair_bytes / seconds / 1e9
        judged.append((f"{rate:.2f} GB/s", f"{command.rate_goal:g} GB/s", rate >= command.rate_goal))
    if command.memory_goal:
        judged.append((f"{command.resident / MIB:.0f} MiB", "512 MiB", command.resident <= MAX_RESIDENT))
    if judged:
        figures, goals, met = zip(*judged)
        row.judge(", ".join(figures), ", ".join(goals), all(met))
    return row


def make_pair(kind: str, folder: Path, count: int) -> tuple[Path, Path]:
    """Generates data with bench/pairs.py and returns the golden and the other path.

    In a process of its own: what a process holds when it starts another counts as resident memory of that one, too.
    """
    command = [sys.executable, "-m", "bench.pairs", kind, str(folder), str(count)]
    done = subprocess.run(command, cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"bench.pairs: {done.stderr[-1000:]}")
    golden, mine = done.stdout.splitlines()
    return Path(golden), Path(mine)


def msprobe_group(
    build: Path,
    work: Path,
    compare: Callable[..., list[Command]],
    count: int,
    rivals: bool,
    section: Section,
) -> list[list[Command]]:
    """The same dump of msprobe's format through its own command and ours; nothing without `rivals`."""
    if not rivals:
        return []
    python, reason = tools.install(build, "msprobe")
    if python is None:
        section.rows.append(Row("rival: msprobe compare", status=NOT_AVAILABLE, reason=reason))
        return []
    golden, mine = make_pair("msprobe", work / "msprobe", count)
    words = [
        str(python.parent / "msprobe"),
        "compare",
        "-tp",
        str(mine),
        "-gp",
        str(golden),
        "-o",
        str(work / "msprobe-out"),
    ]
    size = count * 32 * MIB
    return [
        [
            *compare(
                f"assay compare, msprobe dumps of {count} tensors of 16 MiB", golden, mine, size, memory_goal=True
            ),
            Command("rival: msprobe compare, the same dumps", words, size, repetitions=3),
        ]
    ]


def polygraphy(
    build: Path, what: str, golden: Path, mine: Path, pair_bytes: int, rivals: bool, section: Section
) -> list[Command]:
    """The same files through polygraphy's comparator; nothing without `rivals`."""
    if not rivals:
        return []
    name = f"rival: polygraphy's comparator, {what}"
    python, reason = tools.install(build, "polygraphy")
    if python is None:
        section.rows.append(Row(name, status=NOT_AVAILABLE, reason=reason))
        return []
    return [Command(name, [str(python), str(POLYGRAPHY_SCRIPT), str(golden), str(mine)], pair_bytes, repetitions=3)]


def run(build: Path, quick: bool, given: Optional[str], rivals: bool = False) -> Section:
    """Generates the data below `build`/work, times the commands and deletes the data."""
    section = Section("compare", "Whole commands, warm files", COLUMNS, machine=machine())
    before = load_average()
    work = build / "work" / f"compare-{os.getpid()}"
    work.mkdir(parents=True)
    assay = find_assay(given)
    shrink = 16 if quick else 1
    repetitions = 3 if quick else 9

    def compare(name: str, golden: Path, mine: Path, pair_bytes: int, **goals: object) -> list[Command]:
        if not assay:
            return []
        words = [assay, "compare", str(golden), str(mine), "-o", str(work / "report")]
        # 1: the files differ beyond the limits, which they do
        return [Command(name, words, pair_bytes, (0, 1), repetitions, **goals)]  # type: ignore[arg-type]

    try:
        groups: list[list[Command]] = []
        launch = [Command("floor: /bin/true", ["/bin/true"], repetitions=50)]
        tiny = make_pair("npy", work / "tiny", 4096)
        if assay:
            launch.append(Command("assay --version", [assay, "--version"], repetitions=50, goal_seconds=0.003))
            words = [assay, "compare", str(tiny[0]), str(tiny[1]), "-o", str(work / "report")]
            launch.append(
                Command("assay compare, two files of 16 KiB", words, 0, (0, 1), repetitions=30, goal_seconds=0.050)
            )
        launch.append(
            Command(
                "rival: NumPy script, two files of 16 KiB",
                [sys.executable, str(NUMPY_SCRIPT), *map(str, tiny)],
                repetitions=9,
            )
        )
        groups.append(launch)

        elements = 128 * MIB // shrink
        golden, mine = make_pair("npy-and-copy", work / "one", elements)
        size = elements * 8
        groups.append(
            [
                *compare("assay compare, fp32 pair", golden, mine, size, rate_goal=8, memory_goal=True),
                Command(
                    "floor: cmp of two equal files", ["cmp", "-s", str(golden), str(work / "one" / "copy.npy")], size
                ),
                Command(
                    "rival: NumPy script, fp32 pair",
                    [sys.executable, str(NUMPY_SCRIPT), str(golden), str(mine)],
                    size,
                    repetitions=3,
                ),
                *polygraphy(build, "fp32 pair", golden, mine, size, rivals, section),
            ]
        )
        golden, mine = make_pair("bf16", work / "bf16", elements)
        groups.append(compare("assay compare, bf16 pair", golden, mine, elements * 4, rate_goal=6, memory_goal=True))
        elements = 384 * MIB // shrink
        golden, mine = make_pair("npy", work / "big", elements)
        groups.append(
            compare("assay compare, pair six times the memory limit", golden, mine, elements * 8, memory_goal=True)
        )
        count = 128 // shrink
        golden, mine = make_pair("run", work / "run", count)
        groups.append(
            compare(
                f"assay compare, two runs of {count} tensors of 64 MiB",
                golden,
                mine,
                count * 128 * MIB,
                rate_goal=8,
                memory_goal=True,
            )
        )
        groups.extend(msprobe_group(build, work, compare, 64 // shrink, rivals, section))
        count = 2000 // shrink
        golden, mine = make_pair("small", work / "small", count)
        groups.append(
            [
                *compare(
                    f"assay compare, 2 x {count} files of 16 KiB",
                    golden,
                    mine,
                    count * 32768,
                    rate_goal=1,
                    memory_goal=True,
                ),
                Command(
                    f"rival: NumPy script, 2 x {count} files",
                    [sys.executable, str(NUMPY_SCRIPT), str(golden), str(mine)],
                    count * 32768,
                    repetitions=3,
                ),
                *polygraphy(build, f"2 x {count} files", golden, mine, count * 32768, rivals, section),
            ]
        )
        for group in groups:
            if not group:
                continue
            print(f"compare: {group[0].name} ...", file=sys.stderr, flush=True)
            run_group(group, work)
            for command in group:
                section.rows.append(row_of(command))
        if not assay:
            section.rows.append(Row("assay compare", status=NOT_AVAILABLE, reason="no `assay` command is installed"))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    section.load = (before, load_average())
    section.notes = [
        "Medians, from fork to exit, files in the page cache, no sample discarded; `CPU ms` is what neighbours cannot "
        "change. Pair bytes are those of both files. `assay compare` computes every metric of the report incl. KL and "
        "writes it; all cores. Resident memory counts mapped pages.",
    ]
    return section
