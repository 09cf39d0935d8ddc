# SPDX-License-Identifier: Apache-2.0
"""The libFuzzer programs, each for a while, again and again; what they learn is kept from one campaign to the next.

    build/campaign/fuzzing/corpus/<target>/    inputs that reach something new, besides the seeds beside the source
    build/campaign/fuzzing/crashes/<target>/   inputs that crash, hang or take too much memory

`make fuzz` builds the programs.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Optional

from bench.campaign.campaign import FAILED, OK, ROOT, SAMPLE_SEED, Campaign, Case, Result, Workplace, rounds
from bench.measure import NotAvailable
from bench.report import Row

SECONDS_EACH = 30
SAMPLE_RUNS = 2000
SAMPLE_BOUND_S = 5  # for slow programs
LIMITS = ("-rss_limit_mb=4096", "-timeout=20")  # as tools/run_fuzzers.sh


class Fuzzing(Campaign):
    """Every fuzzer that is built.

    Args:
        programs: folder that they lie in or below.
        sources: folder that the seed corpora lie below.
    """

    name = "fuzzing"
    title = "Fuzzing of every reader"
    about = (
        f"Each case is one libFuzzer program (AddressSanitizer, UndefinedBehaviorSanitizer) for {SECONDS_EACH} s, with "
        "a seed of its own, on all that earlier cases and campaigns have found.",
        "*failed*: cases that ended with a crash, a hang of 20 s or more than 4 GiB. *found*: inputs that reached "
        "something new.",
    )
    weight = 2
    timeout_s = SECONDS_EACH + 120  # reading a large corpus comes on top
    least_s = SECONDS_EACH
    columns = ["", "cases", "executions", "found", "failed"]

    def __init__(self, programs: Path, sources: Path = ROOT / "src") -> None:
        self._folder = programs
        self._sources = sources

    def unavailable(self) -> Optional[str]:
        """Without programs."""
        return None if self._programs() else f"no fuzzer is built below {self._folder}; `make fuzz` builds them"

    def cases(self, seed: int) -> Iterator[Case]:
        """All programs before the first comes again."""
        draw = random.Random(seed)
        for target in rounds(self._programs(), draw):
            yield Case(f"{target}-{draw.randrange(1, 2**31)}-{SECONDS_EACH}s")

    def sample(self) -> Iterable[Case]:
        """A fixed number of executions of each."""
        return [Case(f"{target}-{SAMPLE_SEED}-{SAMPLE_RUNS}runs") for target in sorted(self._programs())]

    def case_of(self, name: str) -> Case:
        """From ``<program>-<seed>-<number of s or runs>``."""
        _parse(name)
        return Case(name)

    def run(self, case: Case, work: Workplace) -> Result:
        """Runs one program; a sample starts from the seeds alone."""
        target, options = _parse(case.name)
        program = self._programs().get(target)
        if program is None:
            raise NotAvailable(f"{target} is not built below {self._folder}")
        sample = case.name.endswith("runs")
        corpus = (work.scratch if sample else work.kept) / "corpus" / target
        crashes = work.kept / "crashes" / target
        for folder in (corpus, crashes):
            folder.mkdir(parents=True, exist_ok=True)
        seeds = next((path for path in self._sources.rglob(f"{target}_corpus") if path.is_dir()), None)
        command = [str(program), *options, *LIMITS, "-print_final_stats=1", f"-artifact_prefix={crashes}/", str(corpus)]
        if seeds is not None:
            command.append(str(seeds))
        done = subprocess.run(command, capture_output=True, check=False)
        output = done.stderr.decode(errors="replace")
        result: Result = {
            "outcome": OK,
            "executions": _last_number(r"stat::number_of_executed_units:\s*(\d+)", output),
            "found": _last_number(r"stat::new_units_added:\s*(\d+)", output),
        }
        if done.returncode != 0:
            result.update(outcome=FAILED, reason=_reason(output, done.returncode), **_repeat(program, output))
        return result

    def rows(self, results: list[Result]) -> list[Row]:
        """By program."""
        rows = []
        for target in sorted({_parse(result["case"])[0] for result in results}):
            of_target = [result for result in results if _parse(result["case"])[0] == target]
            counts = Counter({"cases": len(of_target), "failed": sum(r["outcome"] == FAILED for r in of_target)})
            for key in ("executions", "found"):
                counts[key] = sum(result.get(key, 0) for result in of_target)
            rows.append(Row(target, {key: str(count) for key, count in counts.items()}, data=dict(counts)))
        return rows

    def _programs(self) -> dict[str, Path]:
        """Path by name."""
        found = sorted(self._folder.rglob("*_fuzz")) if self._folder.is_dir() else []
        return {path.name: path for path in found if path.is_file() and os.access(path, os.X_OK)}


def _parse(name: str) -> tuple[str, list[str]]:
    """Returns the program of a case and the options that say how long it runs."""
    found = re.fullmatch(r"(?P<target>\w+_fuzz)-(?P<seed>\d+)-(?P<many>\d+)(?P<unit>s|runs)", name)
    if found is None:
        raise ValueError("the name must be a program, a seed and 30s or 2000runs, with dashes between them")
    bounds = [f"-max_total_time={found['many']}"]
    if found["unit"] == "runs":
        bounds = [f"-runs={found['many']}", f"-max_total_time={SAMPLE_BOUND_S}"]
    return found["target"], [f"-seed={found['seed']}", *bounds]


def _last_number(pattern: str, text: str) -> int:
    numbers = re.findall(pattern, text)
    return int(numbers[-1]) if numbers else 0


def _reason(output: str, status: int) -> str:
    """What the sanitizer or libFuzzer says in its summary."""
    summaries = re.findall(r"^SUMMARY: (.*)$", output, re.MULTILINE)
    return summaries[-1] if summaries else f"exit status {status}\n{output.strip()[-1000:]}"


def _repeat(program: Path, output: str) -> dict[str, str]:
    """The command that shows the same crash again, when libFuzzer has kept its input."""
    inputs = re.findall(r"Test unit written to (\S+)", output)
    if not inputs:
        return {}
    return {"repeat": shlex.join(str(_in_checkout(Path(path))) for path in (program, inputs[-1]))}


def _in_checkout(path: Path) -> Path:
    path = path.resolve()
    return path.relative_to(ROOT) if ROOT in path.parents else path
