# SPDX-License-Identifier: Apache-2.0
"""The verdict beside the plain comparison and the fp64 products it needs: time and resident memory of whole commands.

Golden is model M in fp32, captured at operator level with all bytes and weights; mine is the same in bf16, captured
at operator level, as inputs and outputs of leaf modules with weights, and as module outputs. The goal: the verdict
takes no longer than twice the plain comparison of the same two runs and the products together.

    python -m bench.locate_speed make M FOLDER            captures golden, operators, leaves, outputs
    python -m bench.locate_speed plain GOLDEN MINE CSV    compares and writes the table, without a verdict
    python -m bench.locate_speed products RUN ...         the captured products in fp64 by the reference library, alone
    python -m bench.locate_speed torch RUN ...            rival: the same by torch, and the largest difference of each

The last three print the seconds and the CPU seconds of the work itself; the interpreter and its imports do not count.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from bench import models
from bench.compare_speed import find_assay
from bench.measure import iqr, load_average, machine, median, shuffled
from bench.report import FAILED, NOT_AVAILABLE, Row, Section

COLUMNS = ["", "ms", "IQR", "CPU ms", "resident MB", "of bound", "of bound, CPU", "goal", "met"]
GOALS_OF_BOUND = {"operators": 1.0, "leaf modules": 1.0, "module outputs": 0.8}
PRODUCTS = {"aten.mm.default": ("self", "mat2"), "aten.bmm.default": ("self", "mat2")}
LEVELS = {
    # name -> folder of mine, and how often the verdict needs the products of golden and of mine: own errors of
    # both, or own errors of golden and its program on the values of mine
    "operators": ("operators", ["golden", "operators"]),
    "leaf modules": ("leaves", ["golden", "golden"]),
    "module outputs": ("outputs", ["golden", "golden"]),
}


def make(name: str, folder: Path) -> None:
    """Captures model `name` four times below `folder`."""
    import torch

    import assay

    spec = models.MODELS[name]
    torch.set_num_threads(models.THREADS)
    model = models.build(spec)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, spec.vocabulary, (1, spec.prompt), generator=generator)
    leaves = [path for path, module in model.named_modules() if not list(module.children())]

    def capture(run: str, **options: Any) -> None:
        with torch.no_grad(), assay.capture(model, folder / run, **options):
            model(tokens, use_cache=False)

    capture("golden", level="operator", weights=True)
    model.to(torch.bfloat16)
    capture("operators", level="operator", weights=True)
    capture("leaves", include=leaves, weights=True)
    capture("outputs", inputs=False)


def products_of(run: Path) -> list[dict[str, Any]]:
    """Returns the operands and the result of every captured product, by slot, and its name as "name"; mapped."""
    import assay

    calls: dict[str, dict[str, Any]] = {}
    opened = assay.open(run)
    for record in opened.records:
        if record.op_type in PRODUCTS:
            slot = record.slot if record.role == "input" else "result"
            calls.setdefault(record.node, {"name": record.op_type})[slot] = record.torch()
    return list(calls.values())


def timed_work(words: list[str]) -> tuple[float, float]:
    """Runs one of the commands of this module; returns seconds and CPU seconds."""
    kind, *paths = words
    import assay

    if kind == "plain":
        start = time.perf_counter(), time.process_time()
        assay.compare(paths[0], paths[1]).write(paths[2])
    elif kind == "products":
        from assay import reference

        loaded = {path: products_of(Path(path)) for path in set(paths)}
        jobs = len(os.sched_getaffinity(0))
        start = time.perf_counter(), time.process_time()
        for path in paths:
            for call in loaded[path]:
                operands = {slot: call[slot] for slot in PRODUCTS[call["name"]]}
                reference.aten(call["name"], jobs=jobs, **operands)
    elif kind == "torch":
        import torch

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        start = time.perf_counter(), time.process_time()
        for path in paths:
            for call in products_of(Path(path)):
                first, second = (call[slot].double() for slot in PRODUCTS[call["name"]])
                (torch.matmul(first, second) - call["result"].double()).abs().max().item()
    else:
        raise SystemExit(__doc__)
    return time.perf_counter() - start[0], time.process_time() - start[1]


@dataclass
class Command:
    """A command line to time.

    Attributes:
        times_itself: it prints its seconds and CPU seconds as the last line; otherwise from fork to exit.
        accepted: exit statuses that mean it worked (1: differences; 125: cannot judge).
    """

    name: str
    words: list[str]
    times_itself: bool = False
    accepted: tuple[int, ...] = (0,)
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    resident: int = 0
    failed: str = ""

    def run(self, folder: Path, counts: bool) -> None:
        """Runs it once in `folder`; without `counts` only to warm up."""
        output = folder / "stdout.txt"
        with open(output, "w") as out, open(folder / "stderr.txt", "w+") as errors:
            start = time.perf_counter()
            process = subprocess.Popen(self.words, stdout=out, stderr=errors, cwd=folder)
            _, status, usage = os.wait4(process.pid, 0)
            wall, cpu = time.perf_counter() - start, usage.ru_utime + usage.ru_stime
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode not in self.accepted:
                errors.seek(0)
                self.failed = f"exit status {process.returncode}: {errors.read()[-500:]}"
                return
        if self.times_itself:
            wall, cpu = map(float, output.read_text().split()[-2:])
        if counts:
            self.wall.append(wall)
            self.cpu.append(cpu)
        self.resident = max(self.resident, usage.ru_maxrss * 1024)

    def row(self) -> Row:
        """The row without its bound."""
        if self.failed:
            return Row(self.name, status=FAILED, reason=self.failed)
        row = Row(self.name, seconds=median(self.wall), unit="one command")
        row.data = {"wall": self.wall, "cpu": self.cpu, "resident": self.resident}
        row.cells = {
            "ms": f"{median(self.wall) * 1e3:.0f}",
            "IQR": f"{iqr(self.wall) * 1e3:.0f}",
            "CPU ms": f"{median(self.cpu) * 1e3:.0f}",
            "resident MB": f"{self.resident / 1e6:.0f}",
        }
        return row


def commands_of(level: str, runs: Path, assay: Optional[str], out: Path) -> dict[str, Command]:
    """The commands of one level, by what they are."""
    folder, multiplied = LEVELS[level]
    golden, mine = str(runs / "golden"), str(runs / folder)
    child = [sys.executable, "-m", "bench.locate_speed"]
    products = [str(runs / name) for name in multiplied]
    commands = {
        "plain": Command(f"{level}: plain comparison", [*child, "plain", golden, mine, str(out / "plain.csv")], True),
        "products": Command(f"{level}: fp64 products alone", [*child, "products", *products], True),
    }
    if assay:
        commands["verdict"] = Command(f"{level}: assay locate", [assay, "locate", golden, mine], accepted=(0, 1, 125))
        words = [assay, "compare", golden, mine, "--verdict", "-o", str(out / "report")]
        commands["both"] = Command(f"{level}: assay compare --verdict", words, accepted=(0, 1, 125))
    if level == "operators":
        commands["torch"] = Command("rival: torch, products in fp64 only", [*child, "torch", golden, mine], True)
    return commands


def rows_of(commands: dict[str, Command]) -> list[Row]:
    """Rows of one level; the verdict's has the goal."""
    rows = {key: command.row() for key, command in commands.items()}
    if any(rows[key].status == FAILED for key in rows):
        return list(rows.values())
    for key in ("verdict", "both"):
        if key not in commands:
            continue
        for column, values in (("of bound", "wall"), ("of bound, CPU", "cpu")):
            plain, products, own = (median(rows[name].data[values]) for name in ("plain", "products", key))
            rows[key].cells[column] = f"{own / (2 * plain + products):.2f}"
    if "verdict" in rows:
        plain, products, own = (median(rows[name].data["wall"]) for name in ("plain", "products", "verdict"))
        share = own / (2 * plain + products)
        goal = GOALS_OF_BOUND[rows["verdict"].name.partition(":")[0]]
        rows["verdict"].judge(f"{share:.2f}", f"{goal:.2f} of bound", share <= goal)
    return list(rows.values())


def run(build: Path, quick: bool, given: Optional[str]) -> Section:
    """Captures the model below `build`/work, times the commands and deletes the captures."""
    section = Section("locate", "Naming the first wrong operator", COLUMNS, machine=machine())
    before = load_average()
    work = (build / "work" / f"locate-{os.getpid()}").resolve()
    work.mkdir(parents=True)
    root = Path(__file__).parent.parent
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    assay = find_assay(given)
    repetitions = 1 if quick else 5
    try:
        made = subprocess.run(
            [sys.executable, "-m", "bench.locate_speed", "make", "S" if quick else "M", str(work)],
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode != 0:
            raise RuntimeError(f"bench.locate_speed make: {made.stderr[-1000:]}")
        groups = {level: commands_of(level, work, assay, work) for level in LEVELS}
        for level, group in groups.items():
            print(f"locate: {level} ...", file=sys.stderr, flush=True)
            generator = random.Random(20261122)
            for turn in range(1 + repetitions):
                for command in shuffled(list(group.values()), generator):
                    if not command.failed:
                        command.run(work, counts=turn > 0)
            section.rows += rows_of(group)
        if not assay:
            section.rows.append(Row("assay locate", status=NOT_AVAILABLE, reason="no `assay` command is installed"))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    section.load = (before, load_average())
    section.notes = [
        "Bound: twice the plain comparison, and the products. Plain comparison: `assay.compare(...)` and its table, "
        "every metric of every pair, no verdict. Products: the matrix products that the verdict needs, by "
        "`assay.reference.aten` on the captured operands: those of golden and of mine; where mine has no operators "
        "those of golden twice, once on its own values and once on the values of mine.",
        "Whole commands from fork to exit; those of Python without interpreter and imports. Files in the page cache, "
        "all cores, order alternated at random, medians, no sample discarded. Resident memory counts mapped pages.",
    ]
    return section


def main() -> None:
    """Runs one of the commands named at the top."""
    if sys.argv[1] == "make":
        make(sys.argv[2], Path(sys.argv[3]))
    else:
        print(*timed_work(sys.argv[1:]))


if __name__ == "__main__":
    main()
