# SPDX-License-Identifier: Apache-2.0
"""What the probe for the acceleration library costs the program it is loaded into, per captured tensor and per step.

The program is examples/atb_host: it really computes, and copies each tensor for the probe as the library does. A run is
a process; the variants alternate in random order, and medians over the rounds are compared. CPU time is that of all
threads of the process, so a queue hides nothing.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench import record_lines
from bench.measure import iqr, load_average, machine, median, shuffled
from bench.report import FAILED, NOT_AVAILABLE, Row, Section
from bench.scratch import empty, scratch_folder

COLUMNS = [
    "",
    "CPU us a tensor",
    "of naive",
    "CPU ms a step",
    "IQR",
    "ms a step until returned",
    "tensors a step",
    "MB a step",
    "n",
    "goal",
    "met",
]
GOAL_OF_NAIVE = 0.2  # CPU time of a captured tensor beside the naive probe
GOAL_OFF = 1.01  # CPU time of a step with the probe loaded and off, beside no probe

# Prompt and steps such that a run lasts long beside the start of the process.
_LARGE = ["--layers", "2", "--hidden", "512", "--heads", "8", "--prompt", "16"]
SHAPES = {
    "small": ["--layers", "4", "--hidden", "64", "--prompt", "16", "--steps", "24"],
    "large": [*_LARGE, "--steps", "8"],
    "large, disk": [*_LARGE, "--steps", "2"],
}
MEMORY = Path("/dev/shm")  # a file system in memory: what the code and the system calls cost, without a disk

_ON = {
    "ATB_DUMP_TYPE": "tensor",
    "ATB_SAVE_TENSOR": "1",
    "ATB_SAVE_TENSOR_TIME": "1",
    "ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER": "1",
    "ATB_SAVE_TENSOR_RANGE": "0,1000000",
    "ATB_SAVE_TENSOR_PART": "2",
    "ATB_SAVE_CHILD": "1",
    "ATB_AIT_LOG_LEVEL": "3",
}
_FILES = {**_ON, "ATB_OUTPUT_DIR": "OUT/"}
_NATIVE = {**_FILES, "ASSAY_PROBE_LAYOUT": "native"}


@dataclass
class Variant:
    """One way to run the host. `library` is relative to the build folder; OUT in a value becomes a fresh folder."""

    name: str
    library: str = ""
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def leaves_files(self) -> bool:
        """True when a run that left fewer files than tensors has measured less than was asked for."""
        mode = self.environment.get("NAIVE_PROBE_MODE", "files")
        return bool(self.environment) and mode in ("files", "statistics", "rawfiles")


OURS = "lib/assay/libatb_probe.so"
NAIVE = "examples/atb_host/naive_probe_abi1.so"
ASKED = "asked, nothing written"
NAIVE_NAME = "naive probe"
NAIVE_STATISTICS = "naive probe, statistics"
VARIANTS = [
    Variant("no probe"),
    Variant("assay off", OURS),
    Variant(ASKED, NAIVE, {"NAIVE_PROBE_DIR": "OUT", "NAIVE_PROBE_MODE": "none"}),
    Variant("assay statistics", OURS, {**_NATIVE, "ATB_SAVE_TENSOR_STATISTICS": "1"}),
    Variant("assay full", OURS, _NATIVE),
    Variant("assay statistics, a file a tensor", OURS, {**_FILES, "ATB_SAVE_TENSOR_STATISTICS": "1"}),
    Variant("assay full, a file a tensor", OURS, _FILES),
    Variant("assay full, equal ones linked", OURS, {**_FILES, "ATB_SAVE_SYMLINK": "1"}),
    Variant("raw write, one file", NAIVE, {"NAIVE_PROBE_DIR": "OUT", "NAIVE_PROBE_MODE": "raw"}),
    Variant("raw write, a file a tensor", NAIVE, {"NAIVE_PROBE_DIR": "OUT", "NAIVE_PROBE_MODE": "rawfiles"}),
    Variant(NAIVE_STATISTICS, NAIVE, {"NAIVE_PROBE_DIR": "OUT", "NAIVE_PROBE_MODE": "statistics"}),
    Variant(NAIVE_NAME, NAIVE, {"NAIVE_PROBE_DIR": "OUT"}),
]


@dataclass
class Run:
    """One process.

    Attributes:
        cpu: seconds of all its threads, user and system.
        step: median seconds of a decoding step until it returned.
        steps: forward passes, the prompt included.
        tensors: inputs and outputs of all nodes, once each.
        size: their bytes.
        output: what the host printed: tokens and checksum.
    """

    cpu: float
    step: float
    steps: int
    tensors: int
    size: int
    output: str


def run_once(build: Path, shape: list[str], variant: Variant, out: Path) -> Run:
    """Runs the host once; raises RuntimeError with its last words when it fails."""
    out.mkdir(parents=True)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("ATB_", "ASSAY_", "LD_PRE"))}
    environment.update({key: value.replace("OUT", str(out)) for key, value in variant.environment.items()})
    if variant.library:
        environment["LD_PRELOAD"] = str(build / variant.library)
    command = [str(build / "examples/atb_host/atb_host_abi1"), *shape, "--host-time"]
    with (out / "stdout").open("w+") as stdout, (out / "stderr").open("w+") as stderr:
        child = subprocess.Popen(command, env=environment, stdout=stdout, stderr=stderr)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        stdout.seek(0)
        stderr.seek(0)
        said = stderr.read()
        output = stdout.read()
    if child.returncode != 0:
        raise RuntimeError(f"exit status {child.returncode}: {said[-1000:]}")
    steps = [float(text) * 1e-3 for text in re.findall(r"^step \d+: ([0-9.]+) ms", said, re.MULTILINE)]
    offered = re.search(r"^offered to the probe: (\d+) tensors, (\d+) bytes", said, re.MULTILINE)
    assert offered, said
    # The host offers every tensor before and after; of the two, inputs before and outputs after are kept.
    tensors, size = (int(text) // 2 for text in offered.groups())
    return Run(usage.ru_utime + usage.ru_stime, median(steps[1:]), len(steps), tensors, size, output)


def captured_tensors(folder: Path) -> int:
    """Counts the tensor files a run left, and the lines of tensors."""
    count = sum(name.endswith(".bin") for _, _, names in os.walk(folder) for name in names)
    for records in folder.rglob("records.jsonl"):
        count += sum(line.get("kind") != "operator" for line in record_lines.read(records))
    return count


def measure(build: Path, name: str, work: Path, rounds: int, budget: float) -> list[Row]:
    """Returns one row a variant for one shape of the model."""
    runs: dict[str, list[Run]] = {variant.name: [] for variant in VARIANTS}
    reasons: dict[str, tuple[str, str]] = {}
    generator = random.Random(20260101)
    end = time.monotonic() + budget
    for round_number in range(rounds):
        if time.monotonic() > end and round_number >= 3:
            break
        for variant in shuffled(VARIANTS, generator):
            if variant.name in reasons:
                continue
            if variant.library and not (build / variant.library).exists():
                reasons[variant.name] = (NOT_AVAILABLE, f"{variant.library} is not built")
                continue
            out = work / f"{VARIANTS.index(variant)}-{round_number}"
            try:
                run = run_once(build, SHAPES[name], variant, out)
                if variant.leaves_files and captured_tensors(out) != run.tensors:
                    raise RuntimeError(f"{captured_tensors(out)} tensors instead of {run.tensors}")
                runs[variant.name].append(run)
            except RuntimeError as error:
                reasons[variant.name] = (FAILED, str(error))
            finally:
                empty(out)
    return [make_row(name, variant.name, runs, reasons) for variant in VARIANTS]


def make_row(shape: str, name: str, runs: dict[str, list[Run]], reasons: dict[str, tuple[str, str]]) -> Row:
    """Turns the runs of one variant into a row; the cost of a tensor is beyond what the host spends when asked."""
    label = f"{shape}: {name}"
    if name in reasons:
        status, reason = reasons[name]
        return Row(label, status=status, reason=reason)
    own = runs[name]
    steps = own[0].steps
    step_cpu = [run.cpu / steps for run in own]
    row = Row(label, seconds=median(step_cpu) * 100, unit="100 steps")
    row.cells = {
        "CPU ms a step": f"{median(step_cpu) * 1e3:.2f}",
        "IQR": f"{iqr(step_cpu) * 1e3:.2f}",
        "ms a step until returned": f"{median([run.step for run in own]) * 1e3:.2f}",
        "n": str(len(own)),
    }
    row.data = {"cpu_step": median(step_cpu), "step": median([run.step for run in own])}
    outputs = {run.output for each in runs.values() for run in each}
    if len(outputs) != 1:
        return Row(label, status=FAILED, reason="the host's output differs between variants")

    def cpu(of: str) -> float:
        return median([run.cpu for run in runs[of]])

    if name == "assay off" and runs["no probe"]:
        ratio = cpu(name) / cpu("no probe")
        row.judge(f"{ratio:.2f}", f"{GOAL_OFF:.2f} of no probe", round(ratio, 2) <= GOAL_OFF)
        row.data["of_no_probe"] = ratio
    tensors = own[0].tensors
    if tensors and name != ASKED and runs[ASKED]:
        per_tensor = (cpu(name) - cpu(ASKED)) / tensors
        row.cells["CPU us a tensor"] = f"{per_tensor * 1e6:.1f}"
        row.data["cpu_tensor"] = per_tensor
        rival = NAIVE_STATISTICS if "statistics" in name else NAIVE_NAME
        if runs[rival] and rival not in reasons:
            ratio = per_tensor * tensors / (cpu(rival) - cpu(ASKED))
            row.cells["of naive"] = f"{ratio:.2f}"
            row.data["of_naive"] = ratio
            if name in ("assay full", "assay statistics"):
                row.judge(f"{ratio:.2f}", f"{GOAL_OF_NAIVE:.2f} of naive", ratio <= GOAL_OF_NAIVE)
    if tensors:
        row.cells["tensors a step"] = f"{tensors / steps:.0f}"
        row.cells["MB a step"] = f"{own[0].size / steps / 1e6:.1f}"
    return row


def run(build: Path, quick: bool) -> Section:
    """Measures both shapes; `build` holds the host and the probe libraries."""
    section = Section("atb-probe", "What the probe for the acceleration library costs", COLUMNS, machine=machine())
    before = load_average()
    if not (build / "examples/atb_host/atb_host_abi1").exists():
        section.rows.append(Row("atb_host", status=NOT_AVAILABLE, reason="examples/atb_host is not built"))
        return section
    for name in SHAPES:
        print(f"atb-probe: {name} ...", file=sys.stderr, flush=True)
        in_memory = "disk" not in name and MEMORY.is_dir()
        with scratch_folder(MEMORY if in_memory else build / "work") as work:
            section.rows += measure(build, name, work, 3 if quick else 15, 20 if quick else 120)
    section.load = (before, load_average())
    section.notes = [
        "small: 4 layers, hidden size 64, 24 decoding steps; large: 2 layers, 512, 8 steps (disk: 2); float16. As the "
        "dump command does by default: inputs before, outputs after, of each graph, operation and kernel, weights too.",
        "Files go to a file system in memory, except for `disk`, where creating a file costs anything from 20 us to "
        "some ms, depending on what was deleted before (bench/scratch.py).",
        f"`CPU us a tensor`: CPU time of all threads beyond `{ASKED}`, where the host is asked, copies every tensor, "
        "and nothing is done with it. The naive probe makes folders, opens a stream, writes header and data in the "
        "calling thread; with statistics it writes those of a plain loop instead of the data, and stands beside ours. "
        "`a file a tensor`: the layout under the old names; otherwise the native one, where equal values are written "
        "once. "
        "The raw writes have no header; one appends to one open file, the other opens, writes and closes a file a "
        "tensor, in folders that it makes once.",
    ]
    return section
