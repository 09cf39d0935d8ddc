# SPDX-License-Identifier: Apache-2.0
"""Statistics and metrics with torch and NumPy on one core; prints {name: {bytes, seconds}} as JSON, medians.

python -m bench.rivals.kernels [REPETITIONS]
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Callable

import numpy
import torch

from bench.measure import median
from bench.rivals.numpy_compare import metrics

SIZES = (1 << 20, 1 << 24)


def torch_statistics(tensor: torch.Tensor) -> None:
    """The four reductions of a hook script; half types are widened first, as all of them do."""
    values = tensor.float()
    values.min().item()
    values.max().item()
    values.mean().item()
    values.norm().item()


def timed(work: Callable[[], Any], repetitions: int) -> float:
    """Returns the median CPU time of `work` in seconds: one thread runs, and neighbours do not count."""
    work()
    times = []
    for _ in range(repetitions):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return median(times)


def main() -> None:
    """Measures and prints."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    torch.set_num_threads(1)
    result = {}
    generator = torch.Generator().manual_seed(0)
    for size in SIZES:
        values = torch.randn(size, generator=generator)
        for dtype in (torch.float32, torch.bfloat16):
            tensor = values.to(dtype)
            seconds = timed(lambda tensor=tensor: torch_statistics(tensor), repetitions)  # type: ignore[misc]
            name = str(dtype).replace("torch.", "")
            result[f"torch: four reductions/{name}/{size}"] = {"bytes": tensor.nbytes, "seconds": seconds}
        golden = values.numpy()
        mine = golden + numpy.float32(1e-3)
        seconds = timed(lambda g=golden, m=mine: metrics(g, m), max(3, repetitions // 3))  # type: ignore[misc]
        result[f"numpy: all metrics of a pair/float32/{size}"] = {"bytes": 2 * golden.nbytes, "seconds": seconds}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
