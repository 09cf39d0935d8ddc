# SPDX-License-Identifier: Apache-2.0
"""Counts what commands and captures ask of the system, and holds it against what they asked before.

    python -m bench.counted [--update] [--only WORD] [--assay PROGRAM]

Time on a shared machine is noise; system calls, bytes, allocations and instructions are not. `limits.json` beside this
file has the counts of the last version that was looked at. A count that is larger by 10 % and more is an error, one
that is smaller by as much is said: `--update` writes the counts of now. Page faults are written down and not judged:
how large a page is, the machine decides. Instructions are counted where valgrind is installed, of native commands and
their threads; it runs the AVX2 code on every machine. Commands run with one job. Exit status: 0 nothing grew, 1
something did, 2 calls cannot be counted on this machine (no ptrace).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy

from bench import many_rows

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("ASSAY_BUILD_DIR", HERE.parents[1] / "build" / "release")).resolve()
ATB_HOST = BUILD / "examples" / "atb_host" / "atb_host_abi1"
LIMITS = HERE / "limits.json"
SHARE = 0.10
# What may come and go: a watcher that looks at memory now and then, the length of a path, a page.
SLACK = {
    "read bytes": 16384,
    "written bytes": 4096,
    "allocated bytes": 65536,
    "allocations": 64,
    "instructions": 200_000,
}
NOT_JUDGED = frozenset({"page faults"})
OTHER_SLACK = 64  # calls
SMALL_FILES = 300
ROWS = 4000
STEPS = 20

CAPTURE = """
import sys, torch, assay
steps, data, level, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
torch.manual_seed(0); torch.set_num_threads(1)
layer = lambda: torch.nn.Sequential(torch.nn.LayerNorm(64), torch.nn.Linear(64, 64), torch.nn.GELU())
model, x = torch.nn.Sequential(*(layer() for _ in range(8))), torch.randn(4, 64)
with torch.no_grad():
    if data == "plain":
        for _ in range(steps): model(x)
    else:
        with assay.capture(model, folder, data=data, level=level):
            for _ in range(steps): model(x)
"""


class NoPtrace(Exception):
    """Calls cannot be counted here; the message says why."""


@dataclass
class Case:
    """What is counted.

    Attributes:
        name: in the table and in limits.json.
        command: with {out} for a folder of its own.
        minus: what is taken away, count by count, and `per`, by which the rest is divided.
        not_judged: counts that the machine decides.
    """

    name: str
    command: list[str]
    minus: list[str] = field(default_factory=list)
    per: int = 1
    not_judged: frozenset[str] = NOT_JUDGED

    @property
    def is_native(self) -> bool:
        """Whether its instructions are counted: valgrind is too slow for torch, and starts no other programs."""
        return not self.minus


class Counter:
    """Runs commands and counts.

    Args:
        folder: for the two helpers, which are compiled with the machine's compiler, and what commands write.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.valgrind = shutil.which("valgrind") or ""
        self._calls, self._allocations = folder / "count_calls", folder / "count_allocations.so"
        compiler = [os.environ.get("CXX", "c++"), "-std=c++20", "-O1"]
        subprocess.run([*compiler, HERE / "count_calls.cpp", "-o", self._calls], check=True)
        shared = ["-shared", "-fPIC", HERE / "count_allocations.cpp", "-o", self._allocations]
        subprocess.run([*compiler, *shared], check=True)

    def run(self, command: list[str]) -> dict[str, int]:
        """Counts of one run.

        Raises:
            NoPtrace: the system does not let a process be traced.
            RuntimeError: the command did not end with 0 or 1; with what it printed.
        """
        result, lines, out = self._folder / "calls.json", self._folder / "allocations", self._folder / "out"
        for path in (result, lines):
            path.unlink(missing_ok=True)
        shutil.rmtree(out, ignore_errors=True)
        preload = [f"LD_PRELOAD={self._allocations}", f"ASSAY_COUNTED_ALLOCATIONS={lines}"]
        words = [word.replace("{out}", str(out)) for word in command]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ASSAY_")}
        done = subprocess.run(
            [str(self._calls), str(result), "env", *preload, *words],
            capture_output=True, text=True, env=environment | {"OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode == 126:
            raise NoPtrace(done.stderr.strip())
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{' '.join(words)}: status {done.returncode}: {done.stderr[-2000:]}")
        counts: dict[str, int] = json.loads(result.read_text())
        written = lines.read_text()
        pairs = [[int(number) for number in line.split()] for line in written.splitlines()]
        counts["written bytes"] -= len(written)  # by what was preloaded
        counts["write"] -= len(pairs)
        counts["open"] -= len(pairs)
        counts["allocations"] = sum(calls for calls, _ in pairs)
        counts["allocated bytes"] = sum(size for _, size in pairs)
        return counts

    def instructions(self, command: list[str]) -> int:
        """Instructions of one run and all its threads, as valgrind's cachegrind counts them.

        Raises:
            RuntimeError: the command did not end with 0 or 1, or valgrind said no number.
        """
        out = self._folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        count = [self.valgrind, "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
        words = [word.replace("{out}", str(out)) for word in command]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ASSAY_")}
        done = subprocess.run(
            [*count, *words], capture_output=True, text=True, env=environment | {"OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        found = re.search(r"== I +refs: +([\d,]+)", done.stderr)
        if done.returncode not in (0, 1) or found is None:
            raise RuntimeError(f"{' '.join(words)} in valgrind: status {done.returncode}: {done.stderr[-2000:]}")
        return int(found[1].replace(",", ""))

    def count(self, case: Case) -> dict[str, int]:
        """Counts of a case; counts below 0 are 0."""
        counts = self.run(case.command)
        if case.is_native and self.valgrind:
            counts["instructions"] = self.instructions(case.command)
        if case.minus:
            less = self.run(case.minus)
            counts = {name: max(0, round((value - less.get(name, 0)) / case.per)) for name, value in counts.items()}
        return counts


def write_files(folder: Path) -> None:
    """Two folders of small tensors, and two tensors of 16 KiB."""
    random = numpy.random.default_rng(0)
    for i in range(SMALL_FILES):
        values = random.standard_normal(256).astype(numpy.float32)
        for side, factor in (("golden", 1), ("mine", 1.001)):
            (folder / "files" / side).mkdir(parents=True, exist_ok=True)
            numpy.save(folder / "files" / side / f"t{i:04}.npy", values * numpy.float32(factor))
    for side in ("golden", "mine"):
        numpy.save(folder / f"{side}.npy", random.standard_normal(4096).astype(numpy.float32))


def cases(folder: Path, assay: str) -> Iterator[Case]:
    """All cases, over data that it makes below `folder`."""
    write_files(folder)
    for side in ("golden", "mine"):
        many_rows.write_run(folder / "rows" / side, side == "golden", ROWS)
        operators = [sys.executable, "-c", CAPTURE, "2", "full", "operator", str(folder / "operators" / side)]
        subprocess.run(operators, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    rows = [str(folder / "rows" / side) for side in ("golden", "mine")]
    operators = [str(folder / "operators" / side) for side in ("golden", "mine")]
    one = ["--jobs", "1"]
    yield Case("--version", [assay, "--version"])
    yield Case("compare, two files", [assay, "compare", f"{folder}/golden.npy", f"{folder}/mine.npy", *one])
    files = [f"{folder}/files/golden", f"{folder}/files/mine"]
    yield Case(f"compare, {SMALL_FILES} files", [assay, "compare", *files, "-o", "{out}", *one])
    yield Case(f"show, {ROWS} records", [assay, "show", rows[0], "model.layers.3.mlp"])
    yield Case(f"verify, {ROWS} records", [assay, "verify", rows[0], *one])
    yield Case(f"compare, {ROWS} pairs, csv", [assay, "compare", *rows, "-cl", "api", "-o", "{out}", *one])
    page = ["-o", "{out}", "--html", "{out}/page.html"]
    yield Case(f"compare, {ROWS} pairs, workbook and page", [assay, "compare", *rows, *page, *one])
    yield Case("locate, operators", [assay, "locate", *operators, *one])
    yield Case("opcheck, operators", [assay, "opcheck", operators[1], "--format", "csv", "--output", "{out}", *one])

    def capture(steps: int, data: str, level: str) -> list[str]:
        return [sys.executable, "-c", CAPTURE, str(steps), data, level, "{out}"]

    for data, level in (("stats", "module"), ("full", "module"), ("stats", "operator")):
        name = f"a step of a capture, {data}, {level}s"
        # How far buffers grow, the pace of the writer's thread decides.
        free = NOT_JUDGED | {"allocated bytes"}
        yield Case(name, capture(2 * STEPS, data, level), capture(STEPS, data, level), STEPS, free)
    if not ATB_HOST.exists():
        return

    def atb(steps: int, words: list[str]) -> list[str]:
        command = [assay, "dump", "--host", "atb", "-er", "all", "--type", "tensor", *words, "-o", "{out}", "--"]
        return [*command, str(ATB_HOST), "--layers", "1", "--steps", str(steps)]

    for data, words in (("full", []), ("statistics", ["--statistics"])):
        free = NOT_JUDGED | {"allocated bytes"}
        yield Case(f"a step of ATB, {data}", atb(2 * STEPS, words), atb(STEPS, words), STEPS, free)


def against(
    limits: dict[str, int], counts: dict[str, int], not_judged: frozenset[str] = NOT_JUDGED
) -> tuple[list[str], list[str]]:
    """What grew, and what shrank, by more than it may: sentences."""
    grew, shrank = [], []
    for name in sorted(limits.keys() | counts.keys()):
        before, now = limits.get(name, 0), counts.get(name, 0)
        allowed = SHARE * before + SLACK.get(name, OTHER_SLACK)
        if abs(now - before) > allowed and name not in not_judged:
            (grew if now > before else shrank).append(f"{name} {before} -> {now}")
    return grew, shrank


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="write the counts of now into limits.json")
    parser.add_argument("--only", default="", help="cases whose name has this")
    parser.add_argument("--assay", default=shutil.which("assay", path=Path(sys.executable).parent) or "assay")
    arguments = parser.parse_args()
    limits: dict[str, dict[str, int]] = json.loads(LIMITS.read_text()) if LIMITS.exists() else {}
    status = 0
    with tempfile.TemporaryDirectory() as folder:
        try:
            counter = Counter(Path(folder))
            for case in cases(Path(folder), arguments.assay):
                if arguments.only not in case.name:
                    continue
                counts = counter.count(case)
                before = limits.get(case.name, {})
                if "instructions" not in counts:
                    before = {name: value for name, value in before.items() if name != "instructions"}
                grew, shrank = against(before, counts, case.not_judged)
                if arguments.update:
                    limits[case.name] = counts
                elif grew:
                    status = 1
                verdict = "GREW" if grew else "less" if shrank else "same"
                print(f"{verdict}  {case.name}", *("      " + line for line in grew + shrank), sep="\n")
        except NoPtrace as error:
            print(f"calls cannot be counted here: {error}", file=sys.stderr)
            return 2
    if arguments.update:
        LIMITS.write_text(json.dumps(limits, indent=1) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
