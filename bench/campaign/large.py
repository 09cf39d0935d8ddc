# SPDX-License-Identifier: Apache-2.0
"""Large runs: captured, opened, compared with themselves and with a copy in which one bit is another.

    python -m bench.campaign.large KIND COUNT FOLDER     captures one and prints its size as JSON

Each step is a process of its own, whose time and resident memory are taken. Memory must stay below bounds that grow
with the number of records and not with their bytes.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import record_lines, sealing
from bench.campaign.campaign import FAILED, OK, Campaign, Case, Result, Workplace, rounds
from bench.campaign.measured import Done, run_measured
from bench.compare_speed import find_assay
from bench.measure import NotAvailable
from bench.report import Row

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# Bounds of resident memory: pages of the files, and what is known of a record. They are what is kept today, with a
# fifth to spare; the aim is 300 bytes a record.
OPEN_BASE, OPEN_A_RECORD = 192 * MIB, 2 * KIB
COMPARE_BASE, COMPARE_A_RECORD = 512 * MIB, 10 * KIB


@dataclass(frozen=True)
class Kind:
    """A shape of large runs.

    Attributes:
        about: what a step of it captures.
        steps: least and most of a campaign.
        sample: steps of `--sample`.
        step_bytes: about what a step takes on the disk.
    """

    about: str
    steps: tuple[int, int]
    sample: int
    step_bytes: int


KINDS = {
    "small": Kind("102 records of 64 bytes", (1000, 4000), 100, 72 * KIB),
    "big": Kind("18 records of 16 MiB", (4, 30), 1, 145 * MIB),
    "operators": Kind("every operator of a Llama of 6 layers", (50, 300), 5, 3 * MIB),
}


class Large(Campaign):
    """Runs of many records, of many bytes, and at operator level."""

    name = "large"
    title = "Large runs"
    about = (
        "Each case is a run that is captured, opened by `assay.open`, and compared by `assay compare`: with itself, "
        "where every pair must be equal and the verdict *clean*, and with a copy in which one bit of one tensor is "
        "another, where that must be seen.",
        "Resident memory is the kernel's maximum for the whole command, mapped pages included. Its bound is "
        f"{OPEN_BASE // MIB} MiB and {OPEN_A_RECORD // KIB} KiB a record to open, {COMPARE_BASE // MIB} MiB and "
        f"{COMPARE_A_RECORD // KIB} KiB a record to compare; beyond it a case has failed.",
    )
    weight = 1
    timeout_s = 1200
    least_s = 120
    columns = ["", "records", "MB", "capture s", "open s", "open MB", "compare s", "compare MB", "bound MB"]

    def cases(self, seed: int) -> Iterator[Case]:
        """All kinds before the first comes again, in sizes that are drawn."""
        draw = random.Random(seed)
        for kind in rounds(KINDS, draw):
            yield Case(f"{kind}-{draw.randint(*KINDS[kind].steps)}-{draw.randrange(2**32)}")

    def sample(self) -> Iterable[Case]:
        """A small one of every kind."""
        return [Case(f"{name}-{kind.sample}-1") for name, kind in KINDS.items()]

    def case_of(self, name: str) -> Case:
        """From ``<kind>-<steps>-<number>``."""
        _parse(name)
        return Case(name)

    def run(self, case: Case, work: Workplace) -> Result:
        """Captures, opens, compares; deletes the run."""
        kind, steps, number = _parse(case.name)
        assay = find_assay(None)
        if assay is None:
            raise NotAvailable("no `assay` command is installed")
        room = shutil.disk_usage(work.scratch).free - 4 * GIB
        if room < 3 * steps * KINDS[kind].step_bytes:
            raise NotAvailable(f"{steps} steps of {kind!r} need more room than there is on the disk")
        folder = work.scratch / case.name
        folder.mkdir()
        try:
            return _Trial(folder, assay).run(kind, steps, number)
        finally:
            if not work.keep:
                shutil.rmtree(folder)

    def rows(self, results: list[Result]) -> list[Row]:
        """Each case; the smallest run of a kind first."""
        rows = []
        for result in sorted(results, key=lambda result: _parse(result["case"])):
            kind, steps, _ = _parse(result["case"])
            cells = {key: f"{value:.1f}" if isinstance(value, float) else str(value) for key, value in result.items()}
            rows.append(Row(f"{kind}, {steps} steps of {KINDS[kind].about}", cells, data=dict(result)))
        return rows


class _Trial:
    """The steps of one case; `_problems` are the promises that they broke."""

    def __init__(self, folder: Path, assay: str) -> None:
        self._folder = folder
        self._assay = assay
        self._problems: list[str] = []

    def run(self, kind: str, steps: int, number: int) -> Result:
        """Returns the result of the case."""
        golden = self._folder / "golden"
        made = self._command([sys.executable, "-m", "bench.campaign.large", kind, str(steps), str(golden)], 0)
        if made.status != 0:
            return {"outcome": FAILED, "reason": f"the capture failed\n{made.output[-1000:]}"}
        run = json.loads(made.output)
        records = run["records"]

        script = "import assay, sys; print(len(assay.open(sys.argv[1])))"
        opened = self._command([sys.executable, "-c", script, str(golden)], OPEN_BASE + OPEN_A_RECORD * records)
        if opened.output.strip() != str(records):
            self._problems.append(f"assay.open does not list {records} records: {opened.output[-1000:]}")

        bound = COMPARE_BASE + COMPARE_A_RECORD * records
        same = self._command(self._compare(golden, golden), bound)
        if same.status != 0 or "within the limits: all " not in same.output or "\nclean: " not in same.output:
            self._problems.append(f"compared with itself, exit status {same.status}: {same.output[-1000:]}")
        twin = self._folder / "twin"
        called = _copy_with_another_bit(golden, twin, random.Random(number))
        differs = self._command(self._compare(golden, twin), bound)
        if differs.status != 1 or "\ndiffers: " not in differs.output:
            self._problems.append(f"a changed bit of {called} is not seen, exit status {differs.status}")
        return {
            "outcome": FAILED if self._problems else OK,
            "reason": "; ".join(self._problems),
            "records": records,
            "MB": run["bytes"] / 1e6,
            "capture s": run["seconds"],
            "open s": opened.seconds,
            "open MB": opened.resident / 1e6,
            "compare s": same.seconds,
            "compare MB": max(same.resident, differs.resident) / 1e6,
            "bound MB": bound / 1e6,
        }

    def _compare(self, golden: Path, mine: Path) -> list[str]:
        report = str(self._folder / "report")
        limits = ["--atol", "0", "--rtol", "0"]
        return [self._assay, "compare", str(golden), str(mine), "-o", report, "--cmp-level", "api", *limits]

    def _command(self, words: list[str], bound: int) -> Done:
        """Runs a command; more memory than a bound other than 0 is a problem."""
        done = run_measured(words, self._folder / "usage.txt")
        if bound and done.resident > bound:
            what = " ".join(words[:2])
            self._problems.append(f"{what} held {done.resident // MIB} MiB, the bound is {bound // MIB} MiB")
        return done


def _parse(name: str) -> tuple[str, int, int]:
    """Returns kind, steps and number of a case."""
    kind, _, numbers = name.partition("-")
    steps, _, number = numbers.partition("-")
    if kind not in KINDS or not steps.isdigit() or not number.isdigit():
        raise ValueError(f"the name must be one of {', '.join(KINDS)}, a number of steps and a number, with dashes")
    return kind, int(steps), int(number)


def _copy_with_another_bit(golden: Path, twin: Path, draw: random.Random) -> str:
    """Makes a copy, with links where it can, that differs in one bit of a payload; returns whose."""
    (twin / "rank0").mkdir(parents=True)
    with open(golden / "rank0" / "records.jsonl", encoding="utf-8") as file:
        # Of module outputs: every comparison has them.
        payloads = [
            record for record in record_lines.whole(file) if record.get("role") == "output" and "file" in record
        ]
    chosen = draw.choice([record for record in payloads if "::" not in record["node"]])
    for path in golden.rglob("*"):
        if path.is_file():
            os.link(path, twin / path.relative_to(golden))
    # The lowest bit of a value; all are little-endian floats.
    with open(twin / "rank0" / chosen["file"], "rb") as file:
        file.seek(chosen["offset"])
        content = bytearray(file.read(chosen["bytes"]))
    size = chosen["stats"]["count"]
    content[draw.randrange(size) * (chosen["bytes"] // size)] ^= 1
    sealing.replace_payload(twin, chosen, bytes(content))
    return f"step {chosen['step']} {chosen['node']} output"


def make(kind: str, steps: int, folder: Path) -> dict[str, float]:
    """Captures a run; returns how many records and payload bytes it has, and the seconds of model and capture."""
    import torch

    import assay
    from bench.faults import families

    torch.set_num_threads(1)
    level = "operator" if kind == "operators" else "module"
    if kind == "operators":
        model = families.build("llama", 1)
        inputs: Iterable[dict[str, Any]] = (
            {"input_ids": families.prompt(step, 8), "use_cache": False} for step in range(steps)
        )
    elif kind == "small":
        model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(50)])
        inputs = ({"input": torch.randn(1, 16)} for _ in range(steps))
    else:
        # Cheap and exact, and every module makes new bytes.
        model = torch.nn.Sequential(*[torch.nn.Threshold(step + 0.5, step + 0.5) for step in range(8)])
        inputs = ({"input": torch.rand(4096, 1024) * 8} for _ in range(steps))
    begin = time.monotonic()
    with torch.no_grad(), assay.capture(model, folder, level=level, weights=level == "operator") as handle:
        for arguments in inputs:
            model(**arguments)
        handle.flush()
        size = handle.stats["bytes"]
    seconds = time.monotonic() - begin
    return {"records": len(assay.open(folder)), "bytes": size, "seconds": seconds}


def main() -> None:
    """Captures one run."""
    kind, steps, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    print(json.dumps(make(kind, steps, folder)))


if __name__ == "__main__":
    main()
