# SPDX-License-Identifier: Apache-2.0
"""SIGKILL at random moments of captures: what is left opens, is right as far as it goes, and is not called complete.

The number in a case's name decides everything but the machine's speed: model, values, how many steps, and how long
after the start of the capture the signal comes. What the killed host left is held against a run of the same number that
was let live. A new kind of host is one more class in HOSTS.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import random
import shutil
import signal
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional

from bench.campaign.campaign import FAILED, OK, SAMPLE_SEED, Campaign, Case, Result, Workplace, die_with_parent, rounds
from bench.report import Row

if TYPE_CHECKING:
    import torch

    import assay

SAMPLE_SIZE = 24
LIFETIME_S = 60  # a host that nobody kills ends by itself
QUEUE_BYTES = 8 << 20
CALLED = ("step", "node", "role", "slot", "call")  # what a record is called, the same in both runs


class Wrong(Exception):
    """A promise about killed runs is broken."""


@dataclass(frozen=True)
class Plan:
    """One kill.

    Attributes:
        number: the case's; seeds the weights and inputs.
        rows: of each input. Few bytes are buffered; many are written directly.
        delay_s: from the host's signal to SIGKILL.
        steps: the host signals before the last of these steps and then closes its capture; None: it signals when the
            capture begins, and captures until it is killed.
    """

    number: int
    rows: int
    dtype: str
    delay_s: float
    steps: Optional[int]


def plan_of(number: int) -> Plan:
    """Draws what a number stands for."""
    draw = random.Random(number)
    rows = draw.choice([1, 50, 3000])
    dtype = draw.choice(["float32", "bfloat16", "float16"])
    if draw.random() < 0.25:
        return Plan(number, rows, dtype, draw.uniform(0, 0.02), draw.randint(1, 20))
    return Plan(number, rows, dtype, draw.choice([draw.uniform(0, 0.005), draw.uniform(0, 0.1)]), None)


class Host(ABC):
    """A kind of program that captures.

    Attributes:
        name: begins the names of its cases: letters.
        about: for the table.
    """

    name: str
    about: str

    @abstractmethod
    def start(self, plan: Plan, folder: Path, steps: Optional[int], stay: bool) -> tuple[int, int]:
        """Starts it with a capture into `folder`.

        Args:
            steps: instead of the plan's.
            stay: whether it goes on living, idle, when it has closed its capture.

        Returns:
            Its process id, and a descriptor that one byte can be read from at the moment that the plan counts from.
        """

    @abstractmethod
    def check_files(self, folder: Path) -> None:
        """Has other software open what is left; raises Wrong."""


class TorchHost(Host):
    """Forks this process, which has loaded torch, and captures a model of three modules."""

    @abstractmethod
    def capturing(self, model: torch.nn.Module, folder: Path) -> AbstractContextManager[Any]:
        """Captures within."""

    def start(self, plan: Plan, folder: Path, steps: Optional[int], stay: bool) -> tuple[int, int]:
        """Forks."""
        begun, started = os.pipe()
        parent = os.getpid()
        host = os.fork()
        if host == 0:
            status = 1
            try:
                os.close(begun)
                signal.alarm(LIFETIME_S)
                die_with_parent(parent)
                self._live(plan, folder, steps, lambda: os.write(started, b"x"))
                if stay:
                    signal.pause()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(started)
        return host, begun

    def _live(self, plan: Plan, folder: Path, steps: Optional[int], say: Callable[[], object]) -> None:
        import torch

        torch.manual_seed(plan.number % 2**63)
        model = torch.nn.Sequential(torch.nn.Linear(63, 64), torch.nn.ReLU(), torch.nn.Linear(64, 7))
        model.to(getattr(torch, plan.dtype))
        with torch.no_grad(), self.capturing(model, folder):
            for step in itertools.count() if steps is None else range(steps):
                if step == (steps or 1) - 1:
                    say()
                model(torch.randn(plan.rows, 63).to(getattr(torch, plan.dtype)))


class Extended(TorchHost):
    """`assay.capture` with some options."""

    def __init__(self, name: str, about: str, **options: Any) -> None:
        self.name = name
        self.about = about
        self._options = options

    def capturing(self, model: torch.nn.Module, folder: Path) -> AbstractContextManager[Any]:
        """The extended mode."""
        import assay

        return assay.capture(model, folder, queue_bytes=QUEUE_BYTES, **self._options)

    def check_files(self, folder: Path) -> None:
        """A step file is closed, with a whole header of JSON, or has the zeros that it was reserved with."""
        for path in (folder / "rank0").glob("*.safetensors"):
            with open(path, "rb") as file:
                length = int.from_bytes(file.read(8), "little")
                try:
                    if length:
                        json.loads(file.read(length))
                except ValueError as error:
                    raise Wrong(f"{path.name} has half a header: {error}") from error


class Strict(TorchHost):
    """`register_hook` of the strict mode."""

    name = "strict"
    about = "register_hook, one .pth a tensor"

    @contextlib.contextmanager
    def capturing(self, model: torch.nn.Module, folder: Path) -> Iterator[None]:
        """The strict mode; a host does this once."""
        from assay.torch.strict import DumpConfig, register_hook, remove_hooks

        folder.mkdir()
        register_hook(model, DumpConfig(dump_path=str(folder), token_range=list(range(100_000))))
        try:
            yield
        finally:
            remove_hooks()

    def check_files(self, folder: Path) -> None:
        """Files appear whole: torch loads each."""
        import torch

        for path in folder.rglob("*.pth"):
            try:
                torch.load(path, weights_only=True)
            except Exception as error:  # of pickle, zipfile or torch
                raise Wrong(f"torch does not load {path.name}: {error}") from error


HOSTS = {
    host.name: host
    for host in (
        Extended("full", "modules, all bytes", weights=True),
        Extended("statistics", "modules, statistics only", data="stats"),
        Extended("operators", "operators, all bytes", level="operator", weights=True),
        Strict(),
    )
}


class Kills(Campaign):
    """Kills of every kind of host."""

    name = "kills"
    title = "SIGKILL in the middle of captures"
    about = (
        "Each case is a host that captures a small model and is killed at a random moment: three quarters while they "
        "capture, one quarter while they close their capture.",
        "What is left must open. Every record must be one of a run of the same seed that was let live, with the same "
        "type, shape, statistics and bytes, and its statistics must be those of its bytes. No step before the last may "
        "lack a record.",
        "*complete*: runs that had been closed before the signal came; they lack nothing. All others must say that "
        "they are not complete. *empty*: killed before the first record.",
        "A repeated case has the same values and the same delay, but the machine decides what happens meanwhile.",
    )
    weight = 2
    timeout_s = 120
    columns = ["", "kills", "failed", "records", "with bytes", "steps", "longest", "empty", "complete"]

    def cases(self, seed: int) -> Iterator[Case]:
        """All hosts before the first comes again."""
        draw = random.Random(seed)
        for host in rounds(HOSTS, draw):
            yield Case(f"{host}-{draw.randrange(2**32)}")

    def sample(self) -> Iterable[Case]:
        """Each host a few times."""
        return itertools.islice(self.cases(SAMPLE_SEED), SAMPLE_SIZE)

    def case_of(self, name: str) -> Case:
        """From ``<host>-<number>``."""
        host, _, number = name.rpartition("-")
        if host not in HOSTS or not number.isdigit():
            raise ValueError(f"the name must be one of {', '.join(HOSTS)}, a dash and a number")
        return Case(name)

    def run(self, case: Case, work: Workplace) -> Result:
        """Kills, lets another one live as long, and compares; what a failed case left is kept."""
        import torch

        torch.set_num_threads(1)  # the same bits in both hosts; and a process with more cannot be forked
        name, _, number = case.name.rpartition("-")
        folder = work.scratch / case.name
        folder.mkdir()
        result: Result = {"outcome": OK}
        try:
            result.update(_kill_and_check(HOSTS[name], plan_of(int(number)), folder))
        except Wrong as why:
            result.update(outcome=FAILED, reason=str(why))
        if result["outcome"] != OK and not work.keep:
            evidence = work.kept / "failed" / case.name
            shutil.rmtree(evidence, ignore_errors=True)
            evidence.parent.mkdir(exist_ok=True)
            shutil.move(str(folder), str(evidence))
            result["reason"] += f"; see {evidence}"
        elif not work.keep:
            shutil.rmtree(folder)
        return result

    def rows(self, results: list[Result]) -> list[Row]:
        """By host."""
        rows = []
        for name, host in HOSTS.items():
            of_host = [result for result in results if result["case"].startswith(f"{name}-")]
            counts = Counter({"kills": len(of_host), "failed": sum(r["outcome"] == FAILED for r in of_host)})
            for key in ("records", "with bytes", "steps", "empty", "complete"):
                counts[key] = sum(result.get(key, 0) for result in of_host)
            counts["longest"] = max((result.get("steps", 0) for result in of_host), default=0)
            cells = {key: str(count) for key, count in counts.items()}
            rows.append(Row(f"{name}: {host.about}", cells, data=dict(counts)))
        return rows


def _kill_and_check(host: Host, plan: Plan, folder: Path) -> dict[str, int]:
    """Returns counters; raises Wrong."""
    killed = folder / "killed"
    process, descriptor = host.start(plan, killed, plan.steps, stay=True)
    _wait_for_byte(descriptor)
    time.sleep(plan.delay_s)
    os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
        raise Wrong(f"the host ended by itself, status {status}")
    run = _opened(killed)
    host.check_files(killed)
    steps = 1 + max((record.step for record in run.records), default=-1)
    counters = {
        "records": len(run.records),
        "steps": steps,
        "with bytes": 0,
        "empty": int(not run.records),
        "complete": int(run.coverage.complete),
    }
    if run.coverage.complete and plan.steps is None:
        raise Wrong("called complete, but it was killed while it captured")
    lived = folder / "lived"
    process, descriptor = host.start(plan, lived, plan.steps or max(steps, 1), stay=False)
    _wait_for_byte(descriptor)
    _, status = os.waitpid(process, 0)
    if status != 0:
        raise Wrong(f"the host that was let live ended with status {status}")
    counters["with bytes"] = compare(run, _opened(lived))
    return counters


def _wait_for_byte(descriptor: int) -> None:
    """Returns when the host has said what it had to say, or has ended."""
    with open(descriptor, "rb", buffering=0) as file:
        file.read(1)


def _opened(folder: Path) -> assay.Run:
    import assay

    try:
        return assay.open(folder)
    except assay.Error as error:
        raise Wrong(f"does not open: {error}") from error


def compare(killed: assay.Run, lived: assay.Run) -> int:
    """Checks that a killed run is right as far as it goes; returns how many records had bytes; raises Wrong."""
    twins = {tuple(getattr(record, key) for key in CALLED): record for record in lived.records}
    seen = set()
    with_bytes = 0
    for record in killed.records:
        called = tuple(getattr(record, key) for key in CALLED)
        if called not in twins or called in seen:
            raise Wrong(f"{called} is {'there twice' if called in seen else 'none of the run that was let live'}")
        seen.add(called)
        with_bytes += _check_record(record, twins[called], called)
    # In a closed run the last step must be whole, too.
    last = math.inf if killed.coverage.complete else max((called[0] for called in seen), default=0)
    lost = [called for called in twins if called not in seen and called[0] < last]
    if lost:
        raise Wrong(f"lacks {len(lost)} records before its end, the first is {lost[0]}")
    return with_bytes


def _check_record(record: assay.Record, twin: assay.Record, called: tuple[Any, ...]) -> bool:
    """Holds a record against its twin and against its own bytes; returns whether it has bytes."""
    if record.problem:
        raise Wrong(f"{called} has a problem: {record.problem}")
    for what in ("dtype_name", "shape", "value"):
        if getattr(record, what) != getattr(twin, what):
            raise Wrong(f"{called}: {what} is {getattr(record, what)!r}, in the run that lived {getattr(twin, what)!r}")
    if _figures(record) != _figures(twin):
        raise Wrong(f"{called}: statistics {_figures(record)}, in the run that lived {_figures(twin)}")
    if record.file is None:
        return False
    if record.numpy().tobytes() != twin.numpy().tobytes():
        raise Wrong(f"{called}: the bytes are not those of the run that lived")
    if record.recorded_stats is not None:
        _check_statistics(record, called)
    return True


def _figures(record: assay.Record) -> Optional[tuple[float, ...]]:
    stats = record.recorded_stats
    return None if stats is None else (stats.count, stats.min, stats.max, stats.mean, stats.l2_norm)


def _check_statistics(record: assay.Record, called: tuple[Any, ...]) -> None:
    """Computes the recorded statistics anew, by torch, from the recorded bytes."""
    values = record.torch().double()
    count = values.numel()
    mean, l2_norm = values.sum().item() / count, values.square().sum().sqrt().item()
    own = (count, values.min().item(), values.max().item(), mean, l2_norm)
    recorded = _figures(record)
    assert recorded is not None
    close = math.isclose(recorded[3], mean, rel_tol=1e-9, abs_tol=1e-12)
    if recorded[:3] != own[:3] or not close or not math.isclose(recorded[4], l2_norm, rel_tol=1e-9):
        raise Wrong(f"{called}: statistics {recorded}, those of its bytes are {own}")
