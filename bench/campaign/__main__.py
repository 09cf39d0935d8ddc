# SPDX-License-Identifier: Apache-2.0
"""Runs campaigns: `make campaign MINUTES=60`, or python -m bench.campaign [options].

    python -m bench.campaign --only kills --minutes 10      one campaign; a second call goes on where this one ended
    python -m bench.campaign --repeat kills/operators-17    one case again; its output is kept
    python -m bench.campaign --sample                       a few fixed cases of each: what CI runs
    python -m bench.campaign --minutes 0 --publish          puts the results so far into docs/benchmarks

Exit status: 0; 1 when a case failed, with --sample also when a verdict is wrong; 2 for wrong arguments; 130 after
Ctrl-C or SIGTERM. How it works and what the figures mean: docs/benchmarks/campaign.md.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Optional

import assay
from bench.campaign import page
from bench.campaign.agrees import Agrees
from bench.campaign.campaign import FAILED, MISTAKE, OK, ROOT, SAMPLE_SEED, Campaign, Case, Result, Workplace
from bench.campaign.damage import DamageOfRuns
from bench.campaign.engine import Loop, clock, run_case, say_on_stderr
from bench.campaign.factors import Factors
from bench.campaign.fuzzing import Fuzzing
from bench.campaign.gates import FaultyGates, HealthyGates
from bench.campaign.jobs import Jobs
from bench.campaign.kills import Kills
from bench.campaign.large import Large
from bench.campaign.ranks import Ranks
from bench.campaign.state import Busy, Identity, State, commit_of_checkout
from bench.campaign.suites import Suites
from bench.campaign.trained import Trained
from bench.campaign.verdicts import HealthyPairs, Rewritten, Verdicts
from bench.measure import load_average
from bench.report import NOT_AVAILABLE, Row, Section, to_text

DEFAULT_SEED = 1
INTERRUPTED = 130


class Interrupted(BaseException):
    """Ctrl-C or SIGTERM: what is in hand is given up."""


def _interrupt(*_: object) -> NoReturn:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the end takes a moment and must not be interrupted again
    raise Interrupted


def _python() -> str:
    """This Python as one types it in the checkout."""
    path = Path(sys.executable)
    return str(path.relative_to(ROOT)) if ROOT in path.parents else str(path)


def command_of(campaign: Campaign, result: Result) -> str:
    """The command that repeats a case."""
    if "repeat" in result:
        return str(result["repeat"])
    return f"{_python()} -m bench.campaign --repeat {shlex.quote(campaign.name + '/' + result['case'])}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.campaign", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", metavar="NAME", help="only this campaign; may be repeated")
    parser.add_argument("--minutes", type=float, default=60, help="for all chosen campaigns together (60)")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED, help=f"of the cases ({DEFAULT_SEED})")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time (1)")
    parser.add_argument("--sample", action="store_true", help="fixed cases, whatever time they take")
    parser.add_argument("--repeat", metavar="CAMPAIGN/CASE", help="only this case; its output is kept")
    parser.add_argument("--publish", action="store_true", help="put the results into docs/benchmarks")
    parser.add_argument("--page", action="store_true", help="only make docs/benchmarks/campaign.md anew")
    parser.add_argument("--state", type=Path, default=ROOT / "build" / "campaign", help="folder of the results")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs" / "benchmarks", help="folder of what is published")
    parser.add_argument("--fuzzers", type=Path, default=ROOT / "build" / "fuzz", help="folder of the fuzzers")
    return parser


def _campaigns(options: argparse.Namespace) -> Sequence[Campaign]:
    # Those with long cases first: what they take too long, the others have less.
    return (
        Large(),
        Ranks(),
        Jobs(),
        Fuzzing(options.fuzzers),
        Kills(),
        Agrees(),
        DamageOfRuns(),
        Suites(),
        Trained(),
        Verdicts(),
        HealthyPairs(),
        Rewritten(),
        Factors(),
        HealthyGates(),
        FaultyGates(),
    )


def _chosen(
    parser: argparse.ArgumentParser, campaigns: Sequence[Campaign], only: Optional[list[str]]
) -> list[Campaign]:
    names = [campaign.name for campaign in campaigns]
    for name in only or ():
        if name not in names:
            parser.error(f"there is no campaign {name!r}; there are {', '.join(names)}")
    return [campaign for campaign in campaigns if not only or campaign.name in only]


def _repeat(parser: argparse.ArgumentParser, campaigns: Sequence[Campaign], name: str, state: Path) -> int:
    of, _, case_name = name.partition("/")
    (campaign,) = _chosen(parser, campaigns, [of])
    try:
        case = campaign.case_of(case_name)
    except ValueError as why:
        parser.error(f"--repeat {name}: {why}")
    folder = state / campaign.name
    scratch = folder / "repeat" / case.name
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    result = run_case(campaign, case, Workplace(scratch, folder, keep=True))
    print(json.dumps({"case": case.name, **result}, indent=1))
    say_on_stderr(f"output: {scratch}")
    return 0 if result["outcome"] == OK else 1


class Session:
    """One call of the command: the chosen campaigns one after the other, and what is said at the end.

    Attributes:
        failed: whether something happened that the exit status must tell.
        interrupted: whether Ctrl-C or SIGTERM ended it.
    """

    def __init__(self, options: argparse.Namespace, identity: Identity) -> None:
        self.failed = False
        self.interrupted = False
        self._options = options
        self._identity = identity
        self._overview = Section("campaigns", "Campaigns", ["", "cases", "ok", "mistakes", "failed", "minutes"])

    def run(self, campaigns: Sequence[Campaign]) -> None:
        """Runs all of them, or as far as Ctrl-C lets it; what one leaves of its time is for those behind it."""
        end = time.monotonic() + 60 * self._options.minutes
        try:
            for index, campaign in enumerate(campaigns):
                weights = [each.weight for each in campaigns[index:]]
                now = time.monotonic()
                self._run_one(campaign, now + max(0.0, end - now) * weights[0] / sum(weights))
                if self.interrupted:
                    break
        except Interrupted:  # between two campaigns
            self.interrupted = True
        self._overview.notes = ["What the columns mean: docs/benchmarks/campaign.md"]
        print(to_text(self._overview).rstrip())

    def _run_one(self, campaign: Campaign, until: float) -> None:
        options = self._options
        begin = time.monotonic()
        with State(options.state / campaign.name, self._identity, options.sample) as state:
            cases: Iterable[Case] = ()
            why_not = campaign.unavailable()
            if why_not is not None:
                say_on_stderr(f"{campaign.name}: not available: {why_not}")
            else:
                cases = campaign.sample() if options.sample else campaign.cases(self._identity.seed)
            bound = None if options.sample else until
            loop = Loop(campaign, state, cases, bound, options.jobs, say_on_stderr, partial(command_of, campaign))
            try:
                loop.run()
            except Interrupted:
                self.interrupted = True
            data = page.summary(campaign, state.header, state.results, partial(command_of, campaign), load_average())
        self._judge(data, why_not, time.monotonic() - begin)

    def _judge(self, data: dict[str, Any], why_not: Optional[str], seconds: float) -> None:
        """Prints what a campaign has found, keeps it for the page, and decides about the exit status."""
        name, outcomes = data["campaign"], data["outcomes"]
        if data["cases"] == 0 and why_not is not None:
            self._overview.rows.append(Row(name, status=NOT_AVAILABLE, reason=why_not))
            return
        table = Section.from_json(data["table"])
        table.notes = []  # the page has them
        print(to_text(table))
        counts = {"cases": data["cases"], "ok": outcomes[OK], "mistakes": outcomes[MISTAKE], "failed": outcomes[FAILED]}
        cells = {title: str(count) for title, count in counts.items()}
        self._overview.rows.append(Row(name, {**cells, "minutes": clock(seconds)}))
        if outcomes[FAILED] or (self._options.sample and outcomes[MISTAKE]):
            self.failed = True
        if self._options.publish and data["cases"] and not self.interrupted:
            say_on_stderr(f"published: {page.write_summary(self._options.docs / 'results', data)}")


def main(
    arguments: Optional[Sequence[str]] = None,
    campaigns: Optional[Sequence[Campaign]] = None,
    commit: Optional[str] = None,
) -> int:
    """Runs the command.

    Args:
        arguments: without the program's name; the default is those of the process.
        campaigns: the ones to choose from, instead of those of this package.
        commit: what the results are of, instead of the checkout's.

    Returns:
        The exit status.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    options = parser.parse_args(given)
    options.state, options.fuzzers = options.state.resolve(), options.fuzzers.resolve()
    if options.sample and options.publish:
        parser.error("--publish is for the results of a campaign, not for --sample")
    if options.jobs < 1 or options.minutes < 0:
        parser.error("--jobs must be at least 1 and --minutes not negative")
    known = _campaigns(options) if campaigns is None else campaigns
    chosen = _chosen(parser, known, options.only)
    docs_page = options.docs / "campaign.md"
    if options.page:
        page.write_page(options.docs / "results", docs_page)
        return 0
    if options.repeat is not None:
        return _repeat(parser, known, options.repeat, options.state)
    seed = SAMPLE_SEED if options.sample else options.seed
    session = Session(options, Identity(commit or commit_of_checkout(), assay.__version__, seed))
    handlers = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        session.run(chosen)
    except Busy as why:
        print(f"error: {why}\nhint: wait for it, or give this one its own folder with --state", file=sys.stderr)
        return 2
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if session.interrupted:
        say_on_stderr(f"stopped; this goes on: {shlex.join([_python(), '-m', 'bench.campaign', *given])}")
        return INTERRUPTED
    if options.publish:
        page.write_page(options.docs / "results", docs_page)
        say_on_stderr(f"page: {docs_page}")
    return 1 if session.failed else 0


if __name__ == "__main__":
    sys.exit(main())
