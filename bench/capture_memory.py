# SPDX-License-Identifier: Apache-2.0
"""Whether a capture of millions of records keeps its memory: resident size of the process as the records grow.

A tiny module is called again and again with statistics only; each call makes six records. One line of JSON an
interval: records so far, resident KiB, seconds, bytes of records.jsonl.

    python -m bench.capture_memory --records 3000000 --data stats --folder /tmp/run
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from pathlib import Path

import torch

import assay
from bench.measure import resident_kib


class Tiny(torch.nn.Module):
    """Three modules, so that a call of the root has records of its own and of its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.second = torch.nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Both parts, one after the other."""
        return self.second(self.first(x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--data", choices=("full", "stats", "none"), default="stats")
    parser.add_argument("--level", choices=("module", "operator"), default="module")
    parser.add_argument("--calls-a-step", type=int, default=1, help="calls of the module within one step")
    parser.add_argument("--folder", required=True)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    tiny = Tiny()
    model = tiny if arguments.calls_a_step == 1 else Repeated(tiny, arguments.calls_a_step)
    options = {"data": arguments.data, "level": arguments.level}
    start = time.perf_counter()
    with torch.no_grad(), assay.capture(model, arguments.folder, **options) as handle:
        next_line = 0
        value = 0.0
        while (records := handle.stats["records"]) < arguments.records:
            for _ in range(1000 // arguments.calls_a_step + 1):
                value += 1.0
                model(torch.full((1, 4), value))
            if records >= next_line:
                gc.collect()
                file = next(Path(arguments.folder).glob("rank*/records.jsonl"))
                told = {"records": records, "rss_kib": resident_kib()}
                told |= {"seconds": round(time.perf_counter() - start, 1), "file_bytes": file.stat().st_size}
                print(json.dumps(told), flush=True)
                next_line += arguments.records // 10
    print(json.dumps({"records": records, "rss_kib": resident_kib(), "closed": True}))


class Repeated(torch.nn.Module):
    """Calls its part many times: many records of one step."""

    def __init__(self, part: torch.nn.Module, count: int) -> None:
        super().__init__()
        self.part = part
        self.count = count

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of the results."""
        total = x
        for index in range(self.count):
            total = total + self.part(x + index)
        return total


if __name__ == "__main__":
    main()
