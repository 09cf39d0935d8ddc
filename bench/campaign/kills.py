# SPDX-License-Identifier: Apache-2.0
"""SIGKILL at random moments of captures: what is left opens, is right as far as it goes, and is not called complete.

The number in a case's name decides everything but the machine's speed: model, values, how many steps, and how long
after the start of the capture the signal comes. What the killed host left is held against a run of the same number that
was let live. A new kind of host is one more class (kill_torch.py, kill_programs.py) and a line in HOSTS.
"""

from __future__ import annotations

import itertools
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.campaign.campaign import FAILED, OK, SAMPLE_SEED, Campaign, Case, Result, Workplace, rounds
from bench.campaign.kill_checks import Wrong, compare, opened
from bench.campaign.kill_hosts import Host, Plan, plan_of
from bench.campaign.kill_programs import Atb, AtbNative, Ggml
from bench.campaign.kill_torch import Extended, Graph, Strict
from bench.report import Row

SAMPLE_SIZE = 24

HOSTS = {
    host.name: host
    for host in (
        Extended("full", "modules, all bytes", weights=True),
        Extended("statistics", "modules, statistics only", data="stats"),
        Extended("operators", "operators, all bytes", level="operator", weights=True),
        Strict(),
        Graph(),
        Atb(),
        AtbNative(),
        Ggml(),
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
        "type, shape and bytes, its statistics those of its bytes. No step before the last may lack a record, no "
        "temporary file may be one, and `assay show` must agree.",
        "Hosts of ATB and ggml run under `assay dump`, which is killed with every second of them; else what it says "
        "at the end must be true.",
        "*complete*: closed before the signal came; all others must say that they are not. *empty*: killed before "
        "the first record. A repeated case has the same values and delay; the machine decides the rest.",
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
    closing = None if plan.steps is None else min(plan.steps, host.most_steps)
    running = host.start(plan, killed, closing, stay=True)
    running.wait_until_begun()
    time.sleep(plan.delay_s)
    was_killed = running.kill()
    run = opened(killed)
    host.check_files(killed)
    running.check_words(run)
    if run.coverage.complete and was_killed and closing is None:
        raise Wrong("called complete, but it was killed while it captured")
    if not run.coverage.complete and not was_killed:
        raise Wrong("not called complete, but it ended by itself")
    steps = 1 + max((record.step for record in run.records), default=-1)
    lived = folder / "lived"
    status = host.start(plan, lived, closing or max(steps, 1), stay=False).finish()
    if status != 0:
        raise Wrong(f"the host that was let live ended with status {status}")
    return {
        "records": len(run.records),
        "with bytes": compare(run, opened(lived)),
        "steps": steps,
        "empty": int(not run.records),
        "complete": int(run.coverage.complete),
    }
