# SPDX-License-Identifier: Apache-2.0
"""Opening a run: time and resident memory a record, beside reading its lines and beside a script with `json`.

Three runs: the lines of bench/many_rows.py, and two captures of bench/campaign/large.py (modules, whose later lines
refer to earlier ones, and operators). The first time there is no records.index yet, and it is written; again it is
read. Each sample is a process of its own that has opened a small run before, so neither start-up nor the pages of the
library are counted; samples of the contenders alternate at random.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench import many_rows
from bench.measure import iqr, load_average, machine, median, shuffled
from bench.report import FAILED, Row, Section

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = ["", "records", "MB of lines", "us a record", "IQR", "fastest", "CPU us", "bytes a record", "goal", "met"]
MOST_MICROSECONDS, MOST_BYTES = 3.0, 300

# Prints records, seconds, seconds of the processor and resident bytes; mapped pages count.
TIMED = """
import sys, time
from bench.measure import resident_kib
{read}
small = read(sys.argv[1])
before, cpu, start = resident_kib(), time.process_time(), time.perf_counter()
run = read(sys.argv[2])
count, seconds, cpu = len(run), time.perf_counter() - start, time.process_time() - cpu
print(count, seconds, cpu, (resident_kib() - before) * 1024)
"""
FIRST = "assay.open, the first time"
OPEN = "import assay\nread = assay.open"
CONTENDERS = {
    FIRST: OPEN,
    "assay.open, again": OPEN,
    "floor: reading the lines": """
class Lines:
    def __init__(self, path):
        with open(path + "/rank0/records.jsonl", "rb") as file:
            self.count = sum(piece.count(b"\\n") for piece in iter(lambda: file.read(1 << 20), b""))
    def __len__(self):
        return self.count
read = Lines""",
    "rival: json.loads of each line": """
import json
def read(path):
    with open(path + "/rank0/records.jsonl") as file:
        return [json.loads(line) for line in file]""",
}


@dataclass
class _Samples:
    """What one contender took for one run."""

    records: int = 0
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    resident: list[float] = field(default_factory=list)
    failed: str = ""

    def add(self, contender: str, small: Path, run: Path) -> None:
        if contender == FIRST:
            (run / "rank0" / "records.index").unlink(missing_ok=True)
        script = TIMED.replace("{read}", CONTENDERS[contender])
        words = [sys.executable, "-c", script, str(small.resolve()), str(run.resolve())]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self.failed = done.stderr[-1000:]
            return
        count, seconds, cpu, resident = done.stdout.split()
        self.records = int(count)
        self.seconds.append(float(seconds))
        self.cpu.append(float(cpu))
        self.resident.append(float(resident))

    def row(self, name: str, line_bytes: int, is_judged: bool) -> Row:
        if self.failed:
            return Row(name, status=FAILED, reason=self.failed)
        micros = [seconds / self.records * 1e6 for seconds in self.seconds]
        held = median(self.resident) / self.records
        # Enough records for a person to notice.
        row = Row(name, seconds=median(micros), unit="10^6 records")
        row.data = {"seconds": self.seconds, "cpu": self.cpu, "resident": self.resident, "records": self.records}
        row.cells = {
            "records": str(self.records),
            "MB of lines": f"{line_bytes / 1e6:.0f}",
            "us a record": f"{median(micros):.2f}",
            "IQR": f"{iqr(micros):.2f}",
            "fastest": f"{min(micros):.2f}",
            "CPU us": f"{median(self.cpu) / self.records * 1e6:.2f}",
            "bytes a record": f"{held:.0f}",
        }
        if is_judged:
            figure = f"{median(micros):.2f} us, {held:.0f} bytes"
            goal = f"{MOST_MICROSECONDS:g} us, {MOST_BYTES} bytes"
            row.judge(figure, goal, median(micros) <= MOST_MICROSECONDS and held <= MOST_BYTES)
        return row


def _captured(kind: str, steps: int) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        # In a process of its own: torch stays out of this one.
        words = [sys.executable, "-m", "bench.campaign.large", kind, str(steps), str(folder.resolve())]
        subprocess.run(words, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)

    return write


def run(build: Path, quick: bool) -> Section:
    """Writes the runs below `build`/work, opens them and deletes them."""
    section = Section("open", "Opening a run", COLUMNS, machine=machine())
    before = load_average()
    work = build / "work" / f"open-{os.getpid()}"
    work.mkdir(parents=True)
    shrink, repetitions = (10, 3) if quick else (1, 9)
    writers: dict[str, Callable[[Path], None]] = {
        "lines of 80 layers": lambda folder: many_rows.write_run(folder, True, 200_000 // shrink),
        "a capture of modules": _captured("small", 2000 // shrink),
        "a capture of operators": _captured("operators", 100 // shrink),
    }
    generator = random.Random(20261127)
    try:
        small = work / "small"
        _captured("operators", 1)(small)
        for number, (about, write) in enumerate(writers.items()):
            print(f"open: {about} ...", file=sys.stderr, flush=True)
            folder = work / str(number)
            write(folder)
            _Samples().add(FIRST, small, folder)  # leaves an index for the next
            samples = {name: _Samples() for name in CONTENDERS}
            for _ in range(repetitions):
                for name in shuffled(list(CONTENDERS), generator):
                    if not samples[name].failed:
                        samples[name].add(name, small, folder)
            size = (folder / "rank0" / "records.jsonl").stat().st_size
            for name, taken in samples.items():
                section.rows.append(taken.row(f"{name}, {about}", size, CONTENDERS[name] == OPEN))
            shutil.rmtree(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    section.load = (before, load_average())
    section.notes = [
        "Medians of one process a sample, files in the page cache, no sample discarded. Resident memory is what the "
        "process holds more behind the opening than before it, mapped pages included; the run is still open. Records "
        "are those of tensors; operations, of which a capture of operators has one for three tensors, come on top.",
    ]
    return section
