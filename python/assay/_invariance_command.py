# SPDX-License-Identifier: Apache-2.0
"""What `assay invariance -- CMD` runs: the program once a scenario, captured by `assay dump`, then the comparison.

    python -m assay._invariance_command COMMAND OPTIONS -- CMD ARGS ...

COMMAND is the native command, OPTIONS one JSON object, as src/cli/dump/cmd_invariance.cpp writes it.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay import invariance
from assay.errors import Error

SAME, DIFFERS, USAGE, CANNOT_JUDGE, INTERRUPTED = 0, 1, 2, 125, 130
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class ProgramFailed(Exception):
    """The program under test ended otherwise than well: nothing can be judged."""


def _dump(
    command: str, target: Path, program: Sequence[str], host: str, environment: dict[str, str], what: str
) -> None:
    """Runs the program, captured; what it prints goes to standard error."""
    words = ["dump", "-o", str(target), "--host", host, "--level", "operator", "--digest", "--steps", "all"]
    done = subprocess.run(
        [command, *words, "--log-level", "warning", "--", *program],
        env={**os.environ, **environment},
        stdout=sys.stderr.fileno(),
        check=False,
    )
    if done.returncode == INTERRUPTED:
        raise KeyboardInterrupt
    if done.returncode != 0:
        raise ProgramFailed(f"the program ended with status {done.returncode} in {what}")
    if not (target / "manifest.json").exists():
        raise ProgramFailed(f"nothing was captured of the program in {what}")


def _run_each(
    command: str, wanted: Sequence[invariance.Scenario], folder: Path, program: Sequence[str], host: str
) -> dict[str, invariance.ScenarioRun]:
    """The program once a scenario."""
    runs = {}
    for scenario in wanted:
        file = folder / f"{scenario.name}.json"
        scenario.write(file)
        threads = {name: str(scenario.threads) for name in _THREADS} if scenario.threads else {}
        target = folder / scenario.name
        _dump(command, target, program, host, {"ASSAY_SCENARIO": str(file), **threads}, f"the scenario {scenario.name}")
        runs[scenario.name] = invariance.ScenarioRun(str(target))
    return runs


def _run_all(
    command: str, wanted: Sequence[invariance.Scenario], folder: Path, program: Sequence[str], host: str
) -> dict[str, invariance.ScenarioRun]:
    """The program once; its steps are the forward calls of one scenario after the other."""
    file, target = folder / "scenarios.json", folder / "scenarios"
    invariance.write_scenarios(wanted, file)
    _dump(command, target, program, host, {"ASSAY_SCENARIOS": str(file)}, "one process for all scenarios")
    return invariance.runs_of_one_process(wanted, target)


def _next(found: invariance.Invariance, runs: dict[str, invariance.ScenarioRun], kept: bool, again: str) -> str:
    """The command that shows the first leak."""
    if not kept:
        return again.replace("invariance", "invariance -o runs", 1)
    leak = found.leaks[0]
    run = runs["neighbours-a"]
    step = ["--step", str(leak["step"] + run.first)] if run.steps >= 0 else []
    return shlex.join(["assay", "show", run.path, leak["node"], *step])


def _answer(outcome: str, status: int, sentence: str, following: str) -> dict[str, Any]:
    """The members that every command has with --json: docs/agents.md."""
    return {
        "version": 1,
        "command": "invariance",
        "outcome": outcome,
        "exit_status": status,
        "sentence": sentence,
        "next": following,
    }


def _outcome(found: invariance.Invariance, require_invariant: bool) -> str:
    if not found:
        return "leaks"
    return "not_invariant" if require_invariant and found.not_invariant else "no_leak"


def run(command: str, options: dict[str, Any], program: Sequence[str]) -> int:
    """Runs all scenarios and prints what came of them; returns the exit status."""
    names = ("vocabulary", "length", "batch", "decode", "seed", "padding")
    wanted = invariance.scenarios(**{name: options[name] for name in names})
    again = f"assay invariance{' --one-process' if options['one_process'] else ''} -- {shlex.join(program)}"
    run_all = _run_all if options["one_process"] else _run_each
    runs = run_all(command, wanted, Path(options["output"]), program, options["host"])
    more = again.replace("invariance", f"invariance --batch {options['batch'] * 2}", 1)
    found = invariance.judge(runs, wanted, more)
    if found.leaks:
        found = found.with_next(_next(found, runs, options["kept"], again))
    if options["html"]:
        found.to_html(options["html"])
    outcome = _outcome(found, options["require_invariant"])
    status = SAME if outcome == "no_leak" else DIFFERS
    if options["json"]:
        fields = found.to_dict()
        print(json.dumps({**_answer(outcome, status, found.sentence, fields["next"]), **fields}, indent=2))
    else:
        print(found, end="")
    return status


def main() -> int:
    """Returns 0 no leak, 1 leaks, 125 the program failed or nothing was captured, 2 wrong options, 130 interrupted."""
    command, text, _, *program = sys.argv[1:]
    options = json.loads(text)
    try:
        return run(command, options, program)
    except KeyboardInterrupt:
        print("interrupted: not all scenarios were run", file=sys.stderr)
        return INTERRUPTED
    except ProgramFailed as failure:
        sentence, following = f"cannot judge: {failure}", f"assay dump -o dump -- {shlex.join(program)}"
        answer = _answer("cannot_judge", CANNOT_JUDGE, sentence, following)
        print(json.dumps(answer) if options["json"] else f"{sentence}\nnext: {following}")
        return CANNOT_JUDGE
    except Error as error:
        status = USAGE if error.code == "Usage" else CANNOT_JUDGE
        print(f"error: {error}", file=sys.stderr)
        answer = _answer("error", status, str(error), "assay help invariance")
        print(json.dumps(answer)) if options["json"] else print(f"next: {answer['next']}", file=sys.stderr)
        return status


if __name__ == "__main__":
    sys.exit(main())
