# SPDX-License-Identifier: Apache-2.0
"""What a capture of modules adds to a step of a model on a CUDA device, and what the link would allow.

    python -m bench.device_capture [--rounds N] [--model NAME] [--variant NAME] [--work FOLDER] [--out results.json]

Random-weight Llama models in bf16, made on the device. The variants alternate at random in one process; a sample is:
install the capture, one step that is not timed, a burst of timed steps, wait until every byte was handed over, remove.
The published table is docs/benchmarks/results/speed/device.json, with the commit in its `machine`;
`bench/run.py --no-run --publish` draws its page.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from bench.measure import load_average, machine, median, shuffled  # noqa: E402
from bench.report import NOT_AVAILABLE, Row, Section, to_text  # noqa: E402

COLUMNS = ["", "ms a step", "ratio", "fastest", "tensors", "MB read", "MB written", "GB/s", "n", "goal", "met"]
GOAL = 1.05  # statistics: ratio of medians


@dataclass(frozen=True)
class DeviceModel:
    """One model and step.

    Attributes:
        prompt: tokens of a step, or in the cache before the first one when `decode`.
        burst: steps of a sample.
    """

    name: str
    hidden: int
    layers: int
    heads: int
    feed_forward: int
    prompt: int
    decode: bool
    burst: int


MODELS = (
    DeviceModel("1B prefill 2048", 2048, 22, 32, 5632, 2048, False, 4),
    DeviceModel("1B decode", 2048, 22, 32, 5632, 512, True, 10),
    DeviceModel("7B prefill 2048", 4096, 32, 32, 11008, 2048, False, 2),
    DeviceModel("7B decode", 4096, 32, 32, 11008, 512, True, 10),
)


def build(spec: DeviceModel) -> Any:
    """Returns the LlamaForCausalLM of `spec` on the device."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=spec.hidden,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        num_key_value_heads=spec.heads,
        intermediate_size=spec.feed_forward,
        vocab_size=32000,
        max_position_embeddings=4096,
        attn_implementation="sdpa",
    )
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            return LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(before)


class Stepper:
    """Runs steps; the cache of decode steps is cut back after each burst."""

    def __init__(self, spec: DeviceModel, model: Any) -> None:
        import torch

        self._spec = spec
        self._prompt = torch.randint(0, 32000, (1, spec.prompt), device="cuda")
        self._token = self._prompt[:, :1].clone()
        self._cache: Any = None
        if spec.decode:
            self._cache = model(self._prompt, use_cache=True).past_key_values

    def step(self, model: Any) -> Any:
        """One step; returns its logits."""
        if not self._spec.decode:
            return model(self._prompt, use_cache=False).logits
        return model(self._token, past_key_values=self._cache, use_cache=True).logits

    def rewind(self) -> None:
        """The next burst finds the cache of the first."""
        surplus = self._cache.get_seq_length() - self._spec.prompt if self._cache is not None else 0
        if surplus > 0:
            self._cache.crop(-surplus)


class HookScript:
    """A dump script as people write them: four reductions of each input and output, fetched once a step."""

    def __init__(self, model: Any, path: Path) -> None:
        self._rows: list[Any] = []
        self._model = model
        self._handles = [module.register_forward_hook(self._hook) for module in model.modules()]
        self._handles.append(model.register_forward_hook(self._end))

    def _hook(self, module: Any, args: Any, output: Any) -> None:
        import torch

        for value in (*args, *(output if isinstance(output, tuple) else (output,))):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                wide = value.detach().float()
                self._rows.append(torch.stack([wide.min(), wide.max(), wide.mean(), wide.norm()]))

    def _end(self, module: Any, args: Any, output: Any) -> None:
        import torch

        torch.stack(self._rows).cpu()
        self._rows.clear()

    def flush(self) -> None:
        """Nothing is written."""

    def remove(self) -> None:
        """Takes the hooks out."""
        for handle in self._handles:
            handle.remove()


class Nothing:
    """No capture."""

    def __init__(self, model: Any, path: Path) -> None:
        pass

    def flush(self) -> None:
        """Nothing to wait for."""

    def remove(self) -> None:
        """Nothing to take out."""


def with_capture(**options: Any) -> Callable[[Any, Path], Any]:
    """Returns what installs a capture."""

    def install(model: Any, path: Path) -> Any:
        import assay

        return assay.capture(model, path, **options)

    return install


def with_operators_of_torch(model: Any, path: Path) -> Any:
    """A capture of statistics without our kernels: how devices of other makers are served."""
    import assay

    handle = assay.capture(model, path, data="stats")
    handle._device.open_cuda = lambda index: None
    return handle


VARIANTS: dict[str, Callable[[Any, Path], Any]] = {
    "none": Nothing,
    "assay shapes only": with_capture(data="none"),
    "assay statistics": with_capture(data="stats"),
    "assay statistics, torch's operators": with_operators_of_torch,
    "assay digests": with_capture(data="stats", digest=True),
    "assay full": with_capture(data="full", queue_bytes=1 << 30),
    "hooks, four torch reductions": HookScript,
}


# Of variants whose steps take longer than this, only a few short samples are taken.
SLOW_STEP_SECONDS = 0.5


def link_rate() -> float:
    """GB/s of a large copy from the device into pinned memory."""
    import torch

    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)
    times = []
    for _ in range(6):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        target.copy_(source, non_blocking=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return (1 << 30) / median(times[1:]) / 1e9


def file_rate(folder: Path) -> float:
    """GB/s of one thread that writes 1 GiB in pieces of 4 MiB into a new file, without waiting for a disk."""
    source = memoryview(bytearray(1 << 30))
    path = folder / "rate"
    times = []
    for _ in range(4):
        begin = time.perf_counter()
        with open(path, "wb", buffering=0) as file:
            for at in range(0, 1 << 30, 4 << 20):
                file.write(source[at : at + (4 << 20)])
        times.append(time.perf_counter() - begin)
        path.unlink()
    return (1 << 30) / median(times[1:]) / 1e9


def sample(burst: int, model: Any, stepper: Stepper, variant: str, work: Path) -> tuple[float, float, dict[str, int]]:
    """Returns seconds a step until the last one returned, until all was handed over, and the counters of a step."""
    import torch

    folder = Path(tempfile.mkdtemp(dir=work))
    handle = VARIANTS[variant](model, folder / "run")
    try:
        stepper.step(model)
        torch.cuda.synchronize()
        handle.flush()
        begin = time.perf_counter()
        for _ in range(burst):
            stepper.step(model)
        torch.cuda.synchronize()
        returned = time.perf_counter()
        handle.flush()
        handed_over = time.perf_counter()
        stats = getattr(handle, "stats", None)
        steps = burst + 1
        counts = {"records": stats["records"] // steps, "bytes": stats["bytes"] // steps} if stats else {}
    finally:
        handle.remove()
        stepper.rewind()
        shutil.rmtree(folder)
    return (returned - begin) / burst, (handed_over - begin) / burst, counts


def bytes_read(spec: DeviceModel, model: Any, stepper: Stepper, work: Path) -> tuple[int, int]:
    """Number and bytes of the distinct tensors of one step, from the shapes of its records."""
    import torch

    folder = Path(tempfile.mkdtemp(dir=work))
    import assay

    with assay.capture(model, folder / "run", data="stats"):
        stepper.step(model)
    stepper.rewind()
    count = total = 0
    for line in (folder / "run" / "rank0" / "records.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record.get("kind", "tensor") == "tensor" and "same_as" not in record:
            elements = 1
            for size in record["shape"]:
                elements *= size
            count += 1
            total += elements * getattr(torch, record["dtype"]).itemsize
    shutil.rmtree(folder)
    return count, total


def measure_model(spec: DeviceModel, variants: list[str], rounds: int, slow_rounds: int, work: Path) -> list[Row]:
    """Measures the variants on one model; the first one is the base."""
    import torch

    with torch.no_grad():
        model = build(spec)
        stepper = Stepper(spec, model)
        for _ in range(3):
            stepper.step(model)
        stepper.rewind()
        count, read = bytes_read(spec, model, stepper, work)
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
        counters: dict[str, dict[str, int]] = {}
        generator = random.Random(0)
        # The first round, in which memory is touched that nobody had touched, is not counted.
        slow = set()
        for name in variants:
            returned, handed_over, counters[name] = sample(1, model, stepper, name, work)
            slow |= {name} if handed_over > SLOW_STEP_SECONDS else set()
        for number in range(rounds):
            for name in shuffled(variants, generator):
                if name in slow and number >= slow_rounds:
                    continue
                burst = 1 if name in slow else spec.burst
                returned, handed_over, counters[name] = sample(burst, model, stepper, name, work)
                times[name].append((returned, handed_over))
        del model, stepper
        torch.cuda.empty_cache()
    base = median([handed_over for _, handed_over in times[variants[0]]])
    fastest = min(handed_over for _, handed_over in times[variants[0]])
    rows = []
    for name, samples in times.items():
        middle = median([handed_over for _, handed_over in samples])
        written = counters[name].get("bytes", 0)
        moved = read if name == "assay digests" else written  # over the link
        is_judged = name == "assay statistics"
        rows.append(
            Row(
                f"{spec.name}: {name}",
                cells={
                    "ms a step": f"{middle * 1e3:.2f}",
                    "ratio": "1" if name == "none" else f"{middle / base:.3f}",
                    "fastest": f"{min(h for _, h in samples) / fastest:.3f}",
                    "tensors": str(count) if name == "assay statistics" else "",
                    "MB read": f"{read / 1e6:.1f}" if name == "assay statistics" else "",
                    "MB written": f"{written / 1e6:.1f}" if written else "",
                    "GB/s": f"{moved / middle / 1e9:.2f}" if moved else "",
                    "n": str(len(samples)),
                },
                seconds=middle * 100,
                unit="100 steps",
                goal=f"{GOAL:.2f}" if is_judged else "",
                met=round(middle / base, 2) <= GOAL if is_judged else None,
                data={"samples": samples, "records": counters[name].get("records", 0), "read": read},
            )
        )
    return rows


def run(rounds: int, slow_rounds: int, only: list[str], variants: list[str], work: Path) -> Section:
    """Measures all models and variants, or those named beside "none"; `work` is where runs are written."""
    import torch

    section = Section("device", "What a capture of modules adds to a step on a CUDA device", COLUMNS)
    section.machine = machine()
    before = load_average()
    if not torch.cuda.is_available():
        section.rows = [Row("device", status=NOT_AVAILABLE, reason="no CUDA device")]
        return section
    section.machine["device"] = torch.cuda.get_device_name()
    link, file = link_rate(), file_rate(work)
    wanted = [name for name in VARIANTS if not variants or name == "none" or name in variants]
    for spec in MODELS:
        if not only or spec.name in only:
            print(f"device: {spec.name} ...", file=sys.stderr, flush=True)
            section.rows += measure_model(spec, wanted, rounds, slow_rounds, work)
    section.load = (before, load_average())
    section.notes = [
        f"Device: {torch.cuda.get_device_name()}, torch {torch.__version__}, bf16, SDPA, `no_grad`. The link: "
        f"{link:.1f} GB/s from the device into pinned memory; a thread writes new files of the folder at {file:.1f} "
        "GB/s.",
        "`ratio`: of medians, until all bytes were handed over, to `none` of the same process; `fastest`: of the "
        "fastest samples. `tensors`, `MB read`: distinct ones of a step, whose statistics are taken.",
    ]
    return section


def main() -> int:
    """Prints the table, and writes it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11, help="samples of each variant")
    parser.add_argument("--slow-rounds", type=int, default=2, help="of those with steps of half a second")
    parser.add_argument("--model", action="append", default=[], help="only this model; may be repeated")
    parser.add_argument("--variant", action="append", default=[], help="only this one and none; may be repeated")
    parser.add_argument("--work", type=Path, default=Path("/dev/shm"), help="where runs are written")
    parser.add_argument("--out", type=Path, help="the table as JSON")
    options = parser.parse_args()
    section = run(options.rounds, options.slow_rounds, options.model, options.variant, options.work)
    print(to_text(section))
    if options.out:
        options.out.write_text(json.dumps(section.to_json(), indent=1) + "\n")
    return 1 if section.failed else 0


if __name__ == "__main__":
    sys.exit(main())
