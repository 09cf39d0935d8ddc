# SPDX-License-Identifier: Apache-2.0
"""The loop: hands cases to processes of their own until the time is up, and keeps each result as it comes.

A case runs in a worker, a forked process that serves one case after the other. So a case that crashes or never ends
costs itself and its worker, not the campaign. A worker leads a session: ending it ends what its case has started, too.
"""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import itertools
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Callable, Optional

from bench.campaign.campaign import FAILED, MISTAKE, OK, SKIPPED, Campaign, Case, Result, Workplace, die_with_parent
from bench.campaign.state import State
from bench.measure import NotAvailable

PROGRESS_S = 10.0
END_S = 5.0  # until an idle worker has tidied up
MAX_LOG_CHARS = 2000

Say = Callable[[str], None]
_fork = multiprocessing.get_context("fork")


class Worker:
    """One process that runs cases of a campaign.

    Attributes:
        batch: cases of the group in hand that have not begun.
        case: what it runs, None while it is idle.
        overdue_at: when the case has failed, by time.monotonic().
    """

    def __init__(self, campaign: Campaign, folder: Path, number: int) -> None:
        self.batch: collections.deque[Case] = collections.deque()
        self.case: Optional[Case] = None
        self.overdue_at = 0.0
        self._begun_at = 0.0
        self._campaign = campaign
        self._work = Workplace(folder / "scratch" / str(number), folder)
        self._log = folder / f"worker-{number}.log"
        self._process: Optional[multiprocessing.process.BaseProcess] = None
        self.pipe: Any = None

    def give(self, case: Case) -> None:
        """Starts a case."""
        if self._process is None:
            # What it wrote to the screen is there for the reason of a crash.
            self._log.write_bytes(b"")
            self.pipe, theirs = _fork.Pipe()
            arguments = (self._campaign, self._work, theirs, self._log, os.getpid())
            process = _fork.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            self._process = process
            theirs.close()
        self.case = case
        self._begun_at = time.monotonic()
        self.overdue_at = self._begun_at + self._campaign.timeout_s
        try:
            self.pipe.send(case)
        except OSError:
            pass  # it has died: take() says so

    def take(self) -> Result:
        """The result of the case, which has ended or died."""
        assert self.case is not None
        try:
            result = self.pipe.recv()
        except (EOFError, OSError):
            status = self._end(kill=True)
            result = {"outcome": FAILED, "reason": f"the process of the case died, {status}\n{self._last_words()}"}
        return self._named(result)

    def give_up(self) -> Result:
        """Ends a case that takes too long."""
        self._end(kill=True)
        return self._named({"outcome": FAILED, "reason": f"took longer than {self._campaign.timeout_s:g} s"})

    def close(self, kill: bool = False) -> None:
        """Ends the process, with the case in hand when `kill`."""
        if self._process is not None:
            self._end(kill)
        shutil.rmtree(self._work.scratch, ignore_errors=True)

    def _named(self, result: Result) -> Result:
        assert self.case is not None
        seconds = round(time.monotonic() - self._begun_at, 3)
        named = {"case": self.case.name, "seconds": seconds, **result}
        self.case = None
        return named

    def _end(self, kill: bool) -> str:
        """Ends the process; with `kill` at once, and what its case has started. Returns how it ended, for a person."""
        process, self._process = self._process, None
        assert process is not None and process.pid is not None
        with contextlib.suppress(OSError):
            self.pipe.send(None)
        self.pipe.close()
        if not kill:
            process.join(END_S)
        if kill or process.is_alive():
            with contextlib.suppress(ProcessLookupError):  # it does not lead its session yet, or all have ended
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.join()
        status = process.exitcode or 0
        return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"

    def _last_words(self) -> str:
        said = self._log.read_bytes().decode(errors="replace").strip()
        return said if len(said) <= MAX_LOG_CHARS else f"{said[: MAX_LOG_CHARS // 2]} ... {said[-MAX_LOG_CHARS // 2 :]}"


def _serve(campaign: Campaign, work: Workplace, pipe: Any, log: Path, parent: int) -> None:
    """The worker's side: runs what it is given until nobody gives anything any more."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with_parent(parent)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    faulthandler.enable(file=2)
    shutil.rmtree(work.scratch, ignore_errors=True)
    work.scratch.mkdir(parents=True)
    for case in iter(pipe.recv, None):
        os.truncate(log, 0)
        pipe.send(run_case(campaign, case, work))
    shutil.rmtree(work.scratch, ignore_errors=True)


def run_case(campaign: Campaign, case: Case, work: Workplace) -> Result:
    """Runs a case here and now; whatever it raises is a failure of the case."""
    begin = time.monotonic()
    try:
        result = campaign.run(case, work)
    except NotAvailable as why:
        result = {"outcome": SKIPPED, "reason": str(why)}
    except Exception:
        lines = traceback.format_exc().strip().splitlines()
        result = {"outcome": FAILED, "reason": "\n".join([lines[-1], *lines[:-1]])}
    return {**result, "seconds": round(time.monotonic() - begin, 3)}


def _batches(cases: Iterable[Case], finished: frozenset[str]) -> Iterator[list[Case]]:
    """Cases that are left, by group; what has no group is alone."""
    numbered = enumerate(case for case in cases if case.name not in finished)
    for _, batch in itertools.groupby(numbered, key=lambda item: item[1].group or item[0]):
        yield [case for _, case in batch]


class Loop:
    """Runs cases of one campaign.

    Args:
        state: open; results go there.
        cases: in their order; those that are finished are left out.
        until: time.monotonic() at which the time is up: no case begins any more. None: all cases are run.
        jobs: workers at a time.
        say: takes what a person should read now.
        command_of: the command that repeats a case.
    """

    def __init__(
        self,
        campaign: Campaign,
        state: State,
        cases: Iterable[Case],
        until: Optional[float],
        jobs: int,
        say: Say,
        command_of: Callable[[Result], str],
    ) -> None:
        self._campaign = campaign
        self._state = state
        self._batches = _batches(cases, state.finished)
        self._until = until
        self._say = say
        self._command_of = command_of
        self._begin = self._said_at = time.monotonic()
        self._workers = [Worker(campaign, state.folder, number) for number in range(jobs)]

    def run(self) -> None:
        """Returns when the time is up or no case is left, and no case is in hand."""
        shutil.rmtree(self._state.folder / "scratch", ignore_errors=True)  # of a killed campaign
        try:
            while self._step():
                self._say_progress()
        finally:
            for worker in self._workers:
                worker.close(kill=worker.case is not None)

    def _step(self) -> bool:
        """Hands out cases and waits for something to happen; False when nothing is left to wait for."""
        for worker in self._workers:
            case = None if worker.case is not None else self._next(worker)
            if case is not None:
                worker.give(case)
        busy = {worker.pipe: worker for worker in self._workers if worker.case is not None}
        if not busy:
            return False
        now = time.monotonic()
        patience = min(self._said_at + PROGRESS_S, *(worker.overdue_at for worker in busy.values())) - now
        ready = multiprocessing.connection.wait(list(busy), timeout=max(0.0, patience))
        for pipe in ready:
            self._keep(busy[pipe].take())
        for pipe, worker in busy.items():
            if pipe not in ready and time.monotonic() >= worker.overdue_at:
                self._keep(worker.give_up())
        return True

    def _next(self, worker: Worker) -> Optional[Case]:
        if self._until is not None and time.monotonic() + self._campaign.least_s >= self._until:
            return None
        if not worker.batch:
            worker.batch.extend(next(self._batches, []))
        return worker.batch.popleft() if worker.batch else None

    def _keep(self, result: Result) -> None:
        self._state.add(result)
        if result["outcome"] in (FAILED, MISTAKE):
            self._say(
                f"! {self._campaign.name}/{result['case']}: {result['outcome']}: {result['reason'].strip()}\n"
                f"  repeat: {self._command_of(result)}"
            )

    def _say_progress(self) -> None:
        now = time.monotonic()
        if now - self._said_at < PROGRESS_S:
            return
        self._said_at = now
        bound = "" if self._until is None else f" of {clock(self._until - self._begin)}"
        outcomes = collections.Counter(result["outcome"] for result in self._state.results)
        mistakes = f", {outcomes[MISTAKE]} mistakes" if outcomes[MISTAKE] else ""
        self._say(
            f"{self._campaign.name}: {sum(outcomes.values())} cases, {clock(now - self._begin)}{bound}, "
            f"{outcomes[FAILED]} failed{mistakes}"
        )


def clock(seconds: float) -> str:
    """Minutes and seconds for a person."""
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02}"


def say_on_stderr(text: str) -> None:
    """The `say` of the command."""
    print(text, file=sys.stderr, flush=True)


def outcomes_of(results: Iterable[Result]) -> dict[str, int]:
    """How many cases ended how; every outcome is a key."""
    counted = collections.Counter(result["outcome"] for result in results)
    return {outcome: counted[outcome] for outcome in (OK, MISTAKE, FAILED, SKIPPED)}
