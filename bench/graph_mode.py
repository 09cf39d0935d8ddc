# SPDX-License-Identifier: Apache-2.0
"""What the graph backend adds to a step of a compiled model, beside an eager dispatch-mode script and raw writes.

    aot_eager                     torch.compile without us: the baseline of the compiled variants
    assay, nothing asked for      get_backend(CompilerConfig())
    assay, other steps            a dump whose dump_step is never reached: a counter and a comparison
    assay, statistics             dump_data="stats", outputs of every operator, native layout: no files
    assay, tensors                outputs of every operator, native layout: one file a step
    assay, a table an operator    dump_data="stats", layout "ge"
    assay, a file an operator     layout "ge"
    raw files                     the files of one step of the latter from memory: open, write, close, rename each
    eager                         the model as it is: the baseline of the scripts
    dispatch mode, nothing        a TorchDispatchMode that only calls on
    dispatch mode, statistics     with min, max, mean and norm of every output, one table in memory
    dispatch mode, torch.save     with torch.save of every output
    inductor; inductor, other steps   the same pair for the engines over Inductor (not in a quick run)

A function of one addition shows what an excluded step costs where a model's step would hide it: `tiny` rows, in the
fastest of many bursts.

Every compiled variant has a code object of its own: they share the model, and none pays for the guards of the others.
"""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Optional

from bench import models, variants
from bench.measure import MAX_WAIT_SHARE, Disturbance, Sample, Series, load_average, machine, shuffled
from bench.report import FAILED, Row, Section
from bench.scratch import empty, scratch_folder

COLUMNS = [
    "",
    "ms a step",
    "IQR",
    "beside",
    "ratio",
    "of minima",
    "CPU ms",
    "of CPU",
    "files",
    "MB",
    "GB/s",
    "n",
    "goal",
    "met",
]
NEVER = "1000000000"
GOAL_OFF = 1.01  # disabled, or outside the wanted steps
GOAL_RAW = 0.9  # of the speed of raw writes
GOALS = {  # ratio to aot_eager
    "assay, nothing asked for": GOAL_OFF,
    "assay, other steps": GOAL_OFF,
    "assay, statistics": 1.25,
    "assay, tensors": 1.5,
    "inductor, other steps": GOAL_OFF,
}

# variant -> what it is compared with
BASE = {
    "assay, nothing asked for": "aot_eager",
    "assay, other steps": "aot_eager",
    "assay, statistics": "aot_eager",
    "assay, tensors": "aot_eager",
    "assay, a table an operator": "aot_eager",
    "assay, a file an operator": "aot_eager",
    "inductor, other steps": "inductor",
    "dispatch mode, nothing": "eager",
    "dispatch mode, statistics": "eager",
    "dispatch mode, torch.save": "eager",
}


class Variant:
    """One way to run the model; `run` is one step, `flush` waits until all bytes are handed over."""

    def __init__(self, name: str, run: Callable[[], Any], flush: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self.run = run
        self.flush = flush


def own_code(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A copy of a function with a code object of its own, which is what torch.compile keeps its results by."""
    assert isinstance(function, types.FunctionType)
    code = function.__code__.replace(co_name=name.replace(" ", "_").replace(",", ""))
    return types.FunctionType(code, function.__globals__, name, function.__defaults__, function.__closure__)


def compiled_variants(model: Any, prompt: Any, folder: Path, quick: bool) -> list[Variant]:
    """Compiles everything; what compiling costs is not measured."""
    import torch

    from assay.torch.graph import CompilerConfig, get_backend

    def forward() -> Any:
        return model(prompt, use_cache=False)

    made: list[Variant] = [Variant("eager", forward)]

    def add(name: str, backend: Any) -> None:
        run = torch.compile(own_code(forward, name), backend=backend)
        made.append(Variant(name, run, getattr(backend, "flush", lambda: None)))

    def config(engine: str = "interpreter", layout: str = "native", **options: Any) -> Any:
        value = CompilerConfig()
        value.execution.engine = engine
        value.execution.layout = layout
        if options:
            value.dump_config.enable_dump = True
            value.dump_config.dump_path = str(folder)
            value.dump_config.dump_mode = "output"
        for name, option in options.items():
            setattr(value.dump_config, name, option)
        return get_backend(value)

    add("aot_eager", "aot_eager")
    add("assay, nothing asked for", config())
    add("assay, other steps", config(dump_step=NEVER))
    add("assay, statistics", config(dump_data="stats"))
    add("assay, tensors", config(dump_data="tensor"))
    add("assay, a table an operator", config(layout="ge", dump_data="stats"))
    add("assay, a file an operator", config(layout="ge", dump_data="tensor"))
    if not quick:
        add("inductor", "inductor")
        add("inductor, other steps", config("taps", dump_step=NEVER, dump_layer="NoOperator"))
    return made


def script_variants(model: Any, prompt: Any, folder: Path) -> list[Variant]:
    """The scripts people write: a dispatch mode around the eager model."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Nothing(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, (tuple, list)) else (result,):
                if isinstance(tensor, torch.Tensor):
                    self.see(str(func), tensor)
            return result

        def see(self, name: str, tensor: Any) -> None:
            pass

    class Statistics(Nothing):
        def __init__(self) -> None:
            super().__init__()
            self.rows: list[Any] = []

        def see(self, name: str, tensor: Any) -> None:
            if tensor.is_floating_point() and tensor.numel():
                values = tensor.float()
                self.rows.append(
                    (name, values.min().item(), values.max().item(), values.mean().item(), values.norm().item())
                )

    class Save(Nothing):
        def __init__(self) -> None:
            super().__init__()
            self.folder = tempfile.mkdtemp(dir=folder)
            self.count = 0

        def see(self, name: str, tensor: Any) -> None:
            self.count += 1
            torch.save(tensor.clone(), os.path.join(self.folder, f"{self.count}.{name}.pt"))

    def with_mode(kind: type) -> Callable[[], Any]:
        def run() -> Any:
            with kind():
                return model(prompt, use_cache=False)

        return run

    return [
        Variant("dispatch mode, nothing", with_mode(Nothing)),
        Variant("dispatch mode, statistics", with_mode(Statistics)),
        Variant("dispatch mode, torch.save", with_mode(Save)),
    ]


def raw_variant(folder: Path, template: list[tuple[str, bytes]]) -> Variant:
    """Writes the files of one step of `assay, a file an operator` once more, under a temporary name and renamed."""
    count = 0

    def run() -> None:
        nonlocal count
        count += 1
        target = folder / f"raw-{count}"
        target.mkdir()
        for name, content in template:
            path = os.path.join(target, name)
            descriptor = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
            if os.write(descriptor, content) != len(content):
                raise OSError(f"short write: {path}")
            os.close(descriptor)
            os.rename(path + ".tmp", path)

    return Variant("raw files", run)


def step_files(folder: Path) -> list[tuple[str, bytes]]:
    """The dump files of the newest step below `folder`."""
    steps = [path.parent for path in folder.rglob("*.*.*.*.*") if path.stat().st_size > 0 and path.suffix != ".csv"]
    if not steps:
        return []
    newest = max(set(steps), key=lambda path: int(path.name))
    return [(path.name, path.read_bytes()) for path in sorted(newest.iterdir())]


def measure(spec: models.ModelSpec, work: Path, rounds: int, budget: float, quick: bool) -> list[Row]:
    """Measures all variants in random order; every sample is a burst of steps after one step that is not timed."""
    import torch

    torch.set_num_threads(models.THREADS)
    model = models.build(spec)
    prompt = torch.randint(0, spec.vocabulary, (1, spec.prompt), generator=torch.Generator().manual_seed(1))
    tensors = work / "tensors"
    tensors.mkdir()
    series: dict[str, Series] = {}
    sizes: dict[str, tuple[int, int]] = {}
    work_done: dict[str, list[float]] = {}
    generator = random.Random(20260103)
    with torch.no_grad():
        active = compiled_variants(model, prompt, tensors, quick) + script_variants(model, prompt, work)
        template: list[tuple[str, bytes]] = []
        for variant in active:
            variant.run()
            variant.flush()
            if variant.name == "assay, a file an operator":
                template = step_files(tensors)
            empty(work)
        active.append(raw_variant(work, template))
        disturbance = Disturbance()
        end = time.monotonic() + budget
        for done in range(rounds):
            if time.monotonic() > end and done >= 2:
                break
            for variant in shuffled(active, generator):
                entry = series.setdefault(variant.name, Series())
                if entry.failed:
                    continue
                try:
                    sample, sizes[variant.name], cpu = one_sample(variant, spec.burst, work, disturbance)
                    entry.samples.append(sample)
                    work_done.setdefault(variant.name, []).append(cpu)
                except Exception as error:  # shown in the table; the other variants go on
                    entry.failed = f"{type(error).__name__}: {error}"
    rows = rows_of(spec, [variant.name for variant in active], series, sizes)
    least = {name: min(values) for name, values in work_done.items()}
    for row in rows:
        name = row.name.partition(": ")[2]
        if name in least:
            row.cells["CPU ms"] = f"{least[name] * 1e3:.1f}"
            row.data["cpu"] = least[name]
            if BASE.get(name) in least:
                row.cells["of CPU"] = f"{least[name] / least[BASE[name]]:.3f}"
    return rows


def tiny_rows(folder: Path) -> list[Row]:
    """Microseconds of a compiled function of one addition: fastest of many bursts, the three variants in turn."""
    import torch

    from assay.torch.graph import CompilerConfig, get_backend

    value = torch.ones(4)

    def add_one() -> Any:
        return value + 1

    def backend(dump: bool) -> Any:
        config = CompilerConfig()
        if dump:
            config.dump_config.enable_dump = True
            config.dump_config.dump_path = str(folder)
            config.dump_config.dump_step = NEVER
        return get_backend(config)

    backends = {
        "aot_eager": "aot_eager",
        "assay, nothing asked for": backend(False),
        "assay, other steps": backend(True),
    }
    compiled = {name: torch.compile(own_code(add_one, f"tiny {name}"), backend=made) for name, made in backends.items()}
    fastest = dict.fromkeys(compiled, float("inf"))
    with torch.no_grad():
        for _ in range(200):
            for name, run in compiled.items():
                start = time.perf_counter()
                for _ in range(50):
                    run()
                fastest[name] = min(fastest[name], (time.perf_counter() - start) / 50)
    rows = []
    for name, seconds in fastest.items():
        row = Row(f"tiny: {name}", seconds=seconds * 100_000, unit="100 000 steps", data={"fastest": seconds})
        row.cells = {"ms a step": f"{seconds * 1e3:.4f}", "beside": BASE.get(name, "")}
        if name != "aot_eager":
            row.cells["of minima"] = f"{seconds / fastest['aot_eager']:.3f}"
        rows.append(row)
    return rows


def one_sample(
    variant: Variant, burst: int, work: Path, disturbance: Disturbance
) -> tuple[Sample, tuple[int, int], float]:
    """Returns a sample, the files and bytes of one step, and the CPU seconds of a step in all threads."""
    variant.run()
    variant.flush()
    empty(work)
    gc.collect()
    before = variants.tree_bytes(work)
    disturbance.start()
    cpu = time.process_time()
    start = time.perf_counter()
    for _ in range(burst):
        variant.run()
    returned = time.perf_counter()
    variant.flush()
    finished = time.perf_counter()
    cpu = (time.process_time() - cpu) / burst
    share = disturbance.stop()
    after = variants.tree_bytes(work)
    empty(work)
    size = ((after[0] - before[0]) // burst, (after[1] - before[1]) // burst)
    sample = Sample((returned - start) / burst, (finished - start) / burst, share > MAX_WAIT_SHARE, share)
    return sample, size, cpu


def rows_of(
    spec: models.ModelSpec, names: list[str], series: dict[str, Series], sizes: dict[str, tuple[int, int]]
) -> list[Row]:
    """Turns samples into rows."""
    figures = {name: entry.summary() for name, entry in series.items() if entry.samples and not entry.failed}
    rows = []
    for name in names:
        if name not in figures:
            reason = series[name].failed if name in series else "no sample"
            rows.append(Row(f"{spec.name}: {name}", status=FAILED, reason=str(reason)))
            continue
        figure = figures[name]
        files, size = sizes[name]
        seconds = figure["handed_over_median"]
        kept = f"{figure['used']}" + (f" (-{figure['discarded']})" if figure["discarded"] else "")
        row = Row(f"{spec.name}: {name}", seconds=seconds * 100, unit="100 steps", data=dict(figure))
        row.cells = {"ms a step": f"{seconds * 1e3:.1f}", "IQR": f"{figure['handed_over_iqr'] * 1e3:.1f}"}
        row.cells["n"] = kept + ("!" if figure["noisy"] else "")
        if size > 0:
            row.cells.update({"files": str(files), "MB": f"{size / 1e6:.1f}"})
        base = figures.get(BASE.get(name, ""))
        if base is not None:
            ratio = seconds / base["handed_over_median"]
            row.cells.update({"beside": BASE[name], "ratio": f"{ratio:.3f}"})
            row.cells["of minima"] = f"{figure['handed_over_min'] / base['handed_over_min']:.3f}"
            row.data["ratio"] = ratio
            if name in GOALS:
                met = None if figure["noisy"] or base["noisy"] else round(ratio, 3) <= GOALS[name]
                row.judge(f"{ratio:.3f}", f"{GOALS[name]:.2f}", met)
        rows.append(row)
    _add_write_rate(rows, figures, sizes, spec)
    return rows


def _add_write_rate(
    rows: list[Row], figures: dict[str, Any], sizes: dict[str, tuple[int, int]], spec: models.ModelSpec
) -> None:
    """Bytes a second of what a step has more than the same step without files, beside the raw writes of the files."""
    if not {"raw files", "assay, a file an operator", "aot_eager"} <= set(figures):
        return
    by_name = {row.name.partition(": ")[2]: row for row in rows}
    size = sizes["assay, a file an operator"][1]
    raw = figures["raw files"]["handed_over_median"]
    added = figures["assay, a file an operator"]["handed_over_median"] - figures["aot_eager"]["handed_over_median"]
    by_name["raw files"].cells["GB/s"] = f"{sizes['raw files'][1] / raw / 1e9:.2f}"
    row = by_name["assay, a file an operator"]
    row.cells["GB/s"] = f"{size / added / 1e9:.2f}" if added > 0 else "hidden"
    row.data["share_of_raw"] = raw / added if added > 0 else None
    noisy = any(figures[name]["noisy"] for name in ("raw files", "assay, a file an operator", "aot_eager"))
    met = None if noisy else added <= 0 or raw / added >= GOAL_RAW
    row.judge(f"{raw / added:.0%}" if added > 0 else "hidden", f"{GOAL_RAW:.0%} of raw", met)


def measure_in_child(name: str, work: Path, rounds: int, budget: float, quick: bool) -> list[Row]:
    """Runs measure() in a process of its own, where no other section has touched torch."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "rows.json")
        command = [sys.executable, "-m", "bench.graph_mode", name, str(work), str(rounds), str(budget), str(out)]
        command += ["quick"] if quick else []
        environment = {**os.environ, "OMP_NUM_THREADS": str(models.THREADS)}
        done = subprocess.run(
            command, cwd=Path(__file__).parent.parent, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0 or not out.exists():
            return [Row(f"{name}: graph mode", status=FAILED, reason=(done.stderr or done.stdout)[-2000:])]
        return [Row(**row) for row in json.loads(out.read_text())]


def run(build: Path, quick: bool, only_models: Optional[list[str]] = None) -> Section:
    """Measures the graph mode on S and, in a full run, on M."""
    section = Section("graph", "What the graph backend adds to a step of a compiled model", COLUMNS, machine=machine())
    before = load_average()
    work = build / "work"
    work.mkdir(parents=True, exist_ok=True)
    for name in ("S",) if quick else ("S", "M"):
        if only_models and name not in only_models:
            continue
        print(f"graph: {name} ...", file=sys.stderr, flush=True)
        section.rows += measure_in_child(name, work, 4 if quick else 15, 60 if quick else 240, quick)
    section.load = (before, load_average())
    section.notes = [
        "A sample is a burst of steps after one that is not timed, then one wait until every byte was handed over; "
        "figures are per step, compiling is not timed. `ratio`: of medians, to the variant under `beside`.",
        "CPU ms: of all threads of the process, least of the samples: what neighbours disturb little. It is not wall "
        "time: a writer may find an idle core.",
        "GB/s of `assay, a file an operator`: the bytes of a step over the time it has more than aot_eager.",
    ]
    return section


def main() -> None:
    """The child of measure_in_child()."""
    name, work, rounds, budget, out = sys.argv[1:6]
    with scratch_folder(Path(work)) as folder:
        rows = measure(models.MODELS[name], folder, int(rounds), float(budget), "quick" in sys.argv[6:])
        rows += tiny_rows(folder) if name == "S" else []
    Path(out).write_text(json.dumps([asdict(row) for row in rows]))


if __name__ == "__main__":
    main()
