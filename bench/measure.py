# SPDX-License-Identifier: Apache-2.0
"""How a time becomes a number: samples, the rule that discards disturbed ones, medians, and the machine they came from.

The discard rule (`Disturbance`): a sample is disturbed when the threads that run the model waited longer for a core
than 5 % of the sample's wall time, not counting what our own background threads and the kernel's threads can explain
by the CPU time they used. A tool whose writer takes cores away keeps its sample; a neighbour's compiler does not.
"""

from __future__ import annotations

import os
import platform
import random
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

MAX_WAIT_SHARE = 0.05  # of wall time, summed over the model's threads
MIN_CLEAN_SAMPLES = 5  # below this, disturbed samples are used as well, and the row says so


class NotAvailable(Exception):
    """A part that is measured does not exist on this machine; the message is the reason shown in the table."""


def median(values: list[float]) -> float:
    """Returns the median; raises statistics.StatisticsError for an empty list."""
    return statistics.median(values)


def iqr(values: list[float]) -> float:
    """Returns the distance between the first and third quartile; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return high - low


@dataclass
class Sample:
    """One timed burst of steps.

    Attributes:
        returned: seconds a step until the last step of the burst returned to the caller.
        handed_over: seconds a step until every captured byte was also handed to the operating system.
        disturbed: True when the discard rule of this module applies.
        wait_share: unexplained waiting of the model's threads, as a share of wall time.
    """

    returned: float
    handed_over: float
    disturbed: bool = False
    wait_share: float = 0.0


@dataclass
class Series:
    """All samples of one variant."""

    samples: list[Sample] = field(default_factory=list)
    failed: Optional[str] = None

    @property
    def discarded(self) -> int:
        """Number of samples left out of the figures."""
        return len(self.samples) - len(self.used())

    @property
    def noisy(self) -> bool:
        """True when too few undisturbed samples exist and the figures come from all of them."""
        return sum(not s.disturbed for s in self.samples) < min(MIN_CLEAN_SAMPLES, len(self.samples))

    def used(self) -> list[Sample]:
        """Returns the samples the figures are computed from."""
        return self.samples if self.noisy else [s for s in self.samples if not s.disturbed]

    def summary(self) -> dict[str, Any]:
        """Returns medians, minima and spreads in seconds; raises ValueError without samples."""
        used = self.used()
        if not used:
            raise ValueError("no samples")
        returned = [s.returned for s in used]
        handed_over = [s.handed_over for s in used]
        return {
            "returned_median": median(returned),
            "returned_min": min(returned),
            "returned_iqr": iqr(returned),
            "handed_over_median": median(handed_over),
            "handed_over_min": min(handed_over),
            "handed_over_iqr": iqr(handed_over),
            "used": len(used),
            "discarded": self.discarded,
            "noisy": self.noisy,
        }


def _schedstat(path: str) -> tuple[int, int]:
    """Returns (ns on a core, ns waiting for one) of a task; zeros when it has ended."""
    try:
        with open(path) as file:
            run, wait, _ = file.read().split()
    except OSError:
        return 0, 0
    return int(run), int(wait)


def _kernel_threads() -> list[str]:
    """Returns the ids of the kernel's threads: they have no command line."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    if not file.read(1):
                        found.append(entry)
            except OSError:
                continue  # ended meanwhile
    return found


class Disturbance:
    """Decides whether neighbours took cores away from a piece of work of this process.

    Create it after the model ran once, so that the threads alive then are the model's own. Threads that appear later
    are counted as background threads of the tool under test. Where the kernel has no schedstat nothing is disturbed.
    """

    def __init__(self) -> None:
        self._model_threads = frozenset(self._tasks())
        self._kernel: list[str] = []
        self._start = (0.0, 0, 0)

    @staticmethod
    def _tasks() -> list[str]:
        try:
            return os.listdir("/proc/self/task")
        except OSError:
            return []

    def _read(self) -> tuple[float, int, int]:
        waited = 0
        explained = 0
        for task in self._tasks():
            run, wait = _schedstat(f"/proc/self/task/{task}/schedstat")
            if task in self._model_threads:
                waited += wait
            else:
                explained += run
        for task in self._kernel:
            explained += _schedstat(f"/proc/{task}/schedstat")[0]
        return time.perf_counter(), waited, explained

    def start(self) -> None:
        """Call directly before the timed part."""
        self._kernel = _kernel_threads()
        self._start = self._read()

    def stop(self) -> float:
        """Call directly after the timed part; returns the share of wall time that neighbours took."""
        then, waited_before, explained_before = self._start
        now, waited, explained = self._read()
        unexplained = (waited - waited_before) - max(0, explained - explained_before)
        return max(0.0, unexplained * 1e-9 / (now - then))


def shuffled(values: list[Any], generator: random.Random) -> list[Any]:
    """Returns a copy in random order."""
    copy = list(values)
    generator.shuffle(copy)
    return copy


def load_average() -> float:
    """Returns the load average of the last minute."""
    return os.getloadavg()[0]


def _first_match(path: str, key: str) -> str:
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(key):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return "unknown"


def machine() -> dict[str, str]:
    """Returns what a reader needs to judge the numbers: processor, cores, memory, kernel, versions, date."""
    info = {
        "cpu": _first_match("/proc/cpuinfo", "model name"),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }
    flags = _first_match("/proc/cpuinfo", "flags").split()
    info["simd"] = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else platform.machine()
    return info


def resident_kib() -> int:
    """Resident memory of this process as the kernel counts it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError("/proc/self/status has no VmRSS")
