# SPDX-License-Identifier: Apache-2.0
"""The writers alone, beside raw writes of the same bytes.

The model of this bench computes nothing: each of its modules returns a tensor that exists already, of the sizes the
outputs of S and M have. What a step costs with a capture is then what hooks, statistics and files cost.
    raw files      the same files as the strict layout, from memory: open, write, close; renamed: rename each
    raw buffered   the bytes of the native layout into one file, 4 MiB a write
    raw O_DIRECT   the same past the page cache, after posix_fallocate
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import models, variants
from bench.measure import MAX_WAIT_SHARE, Disturbance, NotAvailable, Sample, Series, load_average, machine, shuffled
from bench.report import FAILED, NOT_AVAILABLE, Row, Section
from bench.scratch import empty, scratch_folder

COLUMNS = ["", "files", "MB", "ms", "IQR", "GB/s", "of raw", "of minima", "n", "goal", "met"]
BLOCK = 4 << 20


def output_sizes(spec: models.ModelSpec) -> list[int]:
    """Returns the float counts of all module outputs of one step of a bench model."""
    hidden = spec.prompt * spec.hidden
    layer = [hidden] * 10 + [spec.prompt * spec.feed_forward] * 3
    return layer * spec.layers + [hidden, hidden] + [spec.prompt * spec.vocabulary] * 2


def echo_model(spec: models.ModelSpec) -> Any:
    """Returns a module with one child per output of `spec`; each child returns its own finished tensor."""
    import torch

    class Echo(torch.nn.Module):
        def __init__(self, count: int) -> None:
            super().__init__()
            self.value = torch.randn(count)

        def forward(self) -> Any:
            return self.value

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = torch.nn.ModuleList(Echo(count) for count in output_sizes(spec))

        def forward(self) -> None:
            for part in self.parts:
                part()

    return Model().eval()


class RawBlocks(variants.Variant):
    """One file written block by block."""

    def __init__(self, name: str, size: int, direct: bool) -> None:
        self.name = name
        self._size = size
        self._direct = direct
        self._path = ""
        self._memory = mmap.mmap(-1, (size + BLOCK - 1) // BLOCK * BLOCK)  # page-aligned, as O_DIRECT asks for
        self._memory.write(os.urandom(BLOCK) * (len(self._memory) // BLOCK))

    def attach(self, model: Any, folder: Path) -> None:
        """Remembers the path."""
        self._path = str(folder / "raw.bin")

    def end_step(self) -> None:
        """Writes the file."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | (os.O_DIRECT if self._direct else 0)
        descriptor = os.open(self._path, flags, 0o640)
        os.posix_fallocate(descriptor, 0, len(self._memory))
        with memoryview(self._memory) as view:
            for start in range(0, self._size, BLOCK):
                end = start + BLOCK if self._direct else min(start + BLOCK, self._size)
                if os.write(descriptor, view[start:end]) != end - start:
                    raise OSError(f"short write: {self._path}")
        os.ftruncate(descriptor, self._size)
        os.close(descriptor)


def one_step(variant: variants.Variant, model: Any, folder: Path, disturbance: Disturbance) -> tuple[Sample, int, int]:
    """Captures one step into a fresh folder; returns the sample, the number of files and their bytes."""
    # A version bump a tensor, as a new step has: nothing may be taken for the tensor of the step before.
    for part in model.parts:
        part.value[:1].add_(1)
    folder.mkdir(parents=True)
    try:
        variant.attach(model, folder)
        try:
            gc.collect()
            disturbance.start()
            start = time.perf_counter()
            model()
            variant.end_step()
            returned = time.perf_counter()
            variant.flush()
            finished = time.perf_counter()
            share = disturbance.stop()
        finally:
            variant.detach()
        files, size = variants.tree_bytes(folder)
    finally:
        empty(folder)
    return Sample(returned - start, finished - start, share > MAX_WAIT_SHARE, share), files, size


def measure(spec: models.ModelSpec, work: Path, rounds: int, budget: float) -> list[Row]:
    """Measures all writers with the output sizes of one model."""
    import torch

    torch.set_num_threads(models.THREADS)
    model = echo_model(spec)
    payload = 4 * sum(output_sizes(spec))
    strict = variants.StrictHook("strict full", 0)
    native = variants.AssayCapture("assay full", "full")
    raw_files = [
        variants.RawFiles("raw files", 0, renamed=False),
        variants.RawFiles("raw files, renamed", 0, renamed=True),
    ]
    rows: dict[str, Row] = {}
    active: list[variants.Variant] = [
        RawBlocks("raw buffered", payload, False),
        RawBlocks("raw O_DIRECT", payload, True),
    ]
    for variant in (native, strict):
        try:
            variant.prepare(model, spec)
            active.append(variant)
        except NotAvailable as reason:
            rows[variant.name] = Row(f"{spec.name}: {variant.name}", status=NOT_AVAILABLE, reason=str(reason))
    series: dict[str, Series] = {}
    sizes: dict[str, tuple[int, int]] = {}
    generator = random.Random(20260102)
    with torch.no_grad():
        model()
        disturbance = Disturbance()
        if strict in active:
            folder = work / f"template-{os.getpid()}"
            folder.mkdir(parents=True)
            strict.attach(model, folder)
            model()
            strict.flush()
            strict.detach()
            for raw in raw_files:
                raw.load(next(folder.glob("*/torch_tensors/*/0")))
                active.append(raw)
        end = time.monotonic() + budget
        visit = 0
        for done in range(rounds):
            if time.monotonic() > end and done >= 2:
                break
            for variant in shuffled(active, generator):
                entry = series.setdefault(variant.name, Series())
                if entry.failed:
                    continue
                for _ in range(4):
                    visit += 1
                    try:
                        sample, files, size = one_step(
                            variant, model, work / f"write-{os.getpid()}-{visit}", disturbance
                        )
                    except Exception as error:  # shown in the table; the other writers go on
                        entry.failed = f"{type(error).__name__}: {error}"
                        break
                    if done:  # the first round warms up
                        entry.samples.append(sample)
                    sizes[variant.name] = (files, size)
                    if not sample.disturbed or time.monotonic() > end:
                        break
    figures = {name: entry.summary() for name, entry in series.items() if entry.samples and not entry.failed}
    floor_of = {"strict full": ["raw files", "raw files, renamed"], "assay full": ["raw buffered", "raw O_DIRECT"]}
    order = ["raw buffered", "raw O_DIRECT", "assay full", "raw files", "raw files, renamed", "strict full"]
    for name, entry in series.items():
        if entry.failed or name not in figures:
            rows[name] = Row(f"{spec.name}: {name}", status=FAILED, reason=entry.failed or "no sample")
            continue
        figure = figures[name]
        files, size = sizes[name]
        if name in ("assay full", "strict full") and size < payload:
            reason = f"{size} bytes on disk, the step has {payload}"
            rows[name] = Row(f"{spec.name}: {name}", status=FAILED, reason=reason)
            continue
        seconds = figure["handed_over_median"]
        kept = f"{figure['used']}" + (f" (-{figure['discarded']})" if figure["discarded"] else "")
        row = Row(f"{spec.name}: {name}", seconds=seconds * 10, unit="10 steps", data=figure)
        row.cells = {
            "files": str(files),
            "MB": f"{size / 1e6:.1f}",
            "ms": f"{seconds * 1e3:.1f}",
            "IQR": f"{figure['handed_over_iqr'] * 1e3:.1f}",
            "GB/s": f"{size / seconds / 1e9:.2f}",
            "n": kept + ("!" if figure["noisy"] else ""),
        }
        floors = [figures[floor] for floor in floor_of.get(name, []) if floor in figures]
        if floors:
            share = min(floor["handed_over_median"] for floor in floors) / seconds
            row.cells["of raw"] = f"{share:.0%}"
            row.cells["of minima"] = f"{min(f['handed_over_min'] for f in floors) / figure['handed_over_min']:.0%}"
            row.data["share_of_raw"] = share
            if name == "strict full":
                met = None if figure["noisy"] or floors[0]["noisy"] else share >= 0.87
                row.judge(f"{share:.0%} of raw", "87 %", met)  # 1.15 times the time of the faster of the two
        rows[name] = row
    return [rows[name] for name in order if name in rows]


def measure_in_child(name: str, work: Path, rounds: int, budget: float) -> list[Row]:
    """Runs measure() in a process of its own, where no other section has touched torch."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "rows.json")
        command = [sys.executable, "-m", "bench.write_path", name, str(work), str(rounds), str(budget), str(out)]
        done = subprocess.run(command, cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return [Row(f"{name}: writers", status=FAILED, reason=(done.stderr or done.stdout)[-2000:])]
        return [Row(**row) for row in json.loads(out.read_text())]


def run(build: Path, quick: bool) -> Section:
    """Measures the writers with the outputs of S and of M."""
    section = Section("write", "Writing one step, beside raw writes of the same bytes", COLUMNS, machine=machine())
    before = load_average()
    work = build / "work"
    for name in ("S",) if quick else ("S", "M"):
        print(f"write: {name} ...", file=sys.stderr, flush=True)
        section.rows += measure_in_child(name, work, 3 if quick else 15, 20 if quick else 150)
    section.load = (before, load_average())
    section.notes = [
        "A step of a model that computes nothing and returns the tensors S (M) has as module outputs; with hooks and, "
        "in the native layout, statistics. Until every byte was handed over. `of raw`: speed beside the raw writes "
        "(for the native layout the faster of the two); files are emptied after each sample (bench/scratch.py).",
    ]
    return section


def main() -> None:
    """The child of measure_in_child()."""
    name, work, rounds, budget, out = sys.argv[1:6]
    with scratch_folder(Path(work)) as folder:
        rows = measure(models.MODELS[name], folder, int(rounds), float(budget))
    Path(out).write_text(json.dumps([asdict(row) for row in rows]))


if __name__ == "__main__":
    main()
