# SPDX-License-Identifier: Apache-2.0
"""One process of bench/capture_overhead.py: one model, one group of variants, alternated at random.

    python -m bench.capture_child --model S --group extended --rounds 21 --budget 120 --work DIR --out FILE

Every round visits each variant once, in a new random order. A disturbed sample (bench/measure.py) is repeated at most
`--retries` times; what stays disturbed is kept as such. The rounds end early when the budget is spent.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import models, operator_capture, variants
from bench.measure import MAX_WAIT_SHARE, Disturbance, NotAvailable, Series, load_average, shuffled
from bench.rivals import tools
from bench.scratch import scratch_folder

GROUPS = {**variants.GROUPS, "operators": operator_capture.VARIANTS, **tools.GROUPS}


def run(
    spec: models.ModelSpec, group: str, rounds: int, budget: float, work: Path, cpu: bool, retries: int
) -> dict[str, Any]:
    """Returns {variant: {status, samples ...}} of one group of variants on one model.

    With `cpu`: one thread for the model and CPU time of all threads instead of wall time. Nothing is disturbed then,
    so nothing is repeated.
    """
    import torch

    torch.set_num_threads(1 if cpu else models.THREADS)
    model = models.build(spec)
    stepper = models.Stepper(spec, model)
    result: dict[str, Any] = {}
    active: list[tuple[variants.Variant, Any, Series]] = []
    for make in GROUPS[group]:
        variant = make()
        result[variant.name] = entry = {"status": "measured", "samples": []}
        try:
            target = models.twin(model) if variant.own_model else model
            variant.prepare(target, spec)
        except NotAvailable as reason:
            entry.update(status="not available", reason=str(reason))
            continue
        active.append((variant, target, Series()))

    generator = random.Random(20260101)
    clock = time.process_time if cpu else time.perf_counter
    with torch.no_grad():
        for _ in range(3):
            stepper.begin()
            stepper.step(model)
        disturbance = Disturbance()
        end = time.monotonic() + budget
        visit = 0
        done = 0
        for _ in range(rounds):
            if time.monotonic() > end and done >= 2:
                break
            for variant, target, series in shuffled(active, generator):
                if series.failed:
                    continue
                for _ in range(1 + retries):
                    visit += 1
                    gc.collect()
                    gc.disable()
                    try:
                        folder = work / f"visit-{os.getpid()}-{visit}"
                        sample = variants.timed_visit(variant, target, stepper, spec, folder, disturbance, clock)
                    except Exception:  # the table shows which tool failed; the others go on
                        series.failed = traceback.format_exc()
                        break
                    finally:
                        gc.enable()
                    sample.disturbed = not cpu and sample.wait_share > MAX_WAIT_SHARE
                    series.samples.append(sample)
                    if not sample.disturbed or time.monotonic() > end:
                        break
            done += 1
    for variant, _, series in active:
        entry = result[variant.name]
        entry["samples"] = [asdict(sample) for sample in series.samples]
        entry["bytes_per_step"] = getattr(variant, "bytes_per_step", 0)
        if series.failed:
            entry.update(status="failed", reason=series.failed)
    return {"variants": result, "rounds": done, "load": load_average(), "torch": torch.__version__}


def main() -> int:
    """Runs one group and writes its result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(models.MODELS), required=True)
    parser.add_argument("--group", choices=sorted(GROUPS), required=True)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--budget", type=float, default=120, help="seconds after which no round is started")
    parser.add_argument("--cpu", action="store_true", help="one thread, CPU time instead of wall time")
    parser.add_argument("--retries", type=int, default=3)
    parser.add_argument("--work", type=Path, required=True, help="folder on the disk that is measured")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    spec = models.MODELS[arguments.model]
    with scratch_folder(arguments.work) as work:
        os.environ["ASSAY_BENCH_WORK"] = str(work)
        result = run(spec, arguments.group, arguments.rounds, arguments.budget, work, arguments.cpu, arguments.retries)
    arguments.out.write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
