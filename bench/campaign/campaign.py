# SPDX-License-Identifier: Apache-2.0
"""What a campaign is: cases made from a seed, how one of them is run, and what a line of its table says."""

from __future__ import annotations

import ctypes
import os
import random
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from bench import report

ROOT = Path(__file__).resolve().parent.parent.parent
SAMPLE_SEED = 20261123  # of --sample; all its verdicts were right when it was chosen

# Outcomes of a case.
OK = "ok"
MISTAKE = "mistake"  # a figure of the campaign; a failure only in the sample
FAILED = "failed"
SKIPPED = "not available"  # this machine lacks something, such as room on the disk

Result = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One thing to try.

    Attributes:
        name: unique within its campaign and all that is needed to run it again: letters, digits and ``-_.@``.
        group: a few cases that follow each other with the same group run in one process, one after the other, and may
            share what is dear to make; "" is alone.
    """

    name: str
    group: str = ""


@dataclass(frozen=True)
class Workplace:
    """Folders of a case.

    Attributes:
        scratch: emptied before and after; cases of one process share it.
        kept: outlives the campaign: corpora, and what a failed case left.
        keep: leave all output in `scratch`: somebody wants to look at it.
    """

    scratch: Path
    kept: Path
    keep: bool = False


class Campaign(ABC):
    """One campaign. Objects are cheap: torch and the like are imported when a case is drawn or run.

    Attributes:
        name: of its folder and option.
        title: of its table.
        about: what it does and what the columns mean, in sentences.
        weight: share of the time, relative to the other campaigns.
        timeout_s: seconds after which a case has failed.
        least_s: seconds that must be left of the time for another case to begin: about what one takes.
        columns: titles of the table; the first, of the lines' names, is usually "".
    """

    name: str
    title: str
    about: tuple[str, ...]
    weight: float
    timeout_s: float
    least_s: float = 0.0
    columns: list[str]

    def unavailable(self) -> Optional[str]:
        """Why this machine cannot run it, None when it can."""
        return None

    @abstractmethod
    def cases(self, seed: int) -> Iterator[Case]:
        """Cases in an order drawn from the seed, so that any beginning is a fair sample; may never end."""

    @abstractmethod
    def sample(self) -> Iterable[Case]:
        """The fixed cases of `--sample`: a few, which take a minute at most."""

    @abstractmethod
    def case_of(self, name: str) -> Case:
        """The case of a name; raises ValueError when there is none."""

    @abstractmethod
    def run(self, case: Case, work: Workplace) -> Result:
        """Runs one case in a process of the campaign's own.

        Returns:
            "outcome", with "reason" unless it is OK (its first line goes into the page), and whatever `rows` reads.
            With "listed" a case that is OK has a reason and its line of the page, too.
            "repeat" is the command that repeats a failure when that is not the campaign itself.
        """

    @abstractmethod
    def rows(self, results: list[Result]) -> list[report.Row]:
        """The lines of the table, from the results of all cases that ended."""


def rounds(names: Iterable[str], draw: random.Random) -> Iterator[str]:
    """All names in a drawn order, then all again in another, without an end."""
    ordered = sorted(names)
    while True:
        yield from draw.sample(ordered, len(ordered))


def die_with_parent(parent: int) -> None:
    """Has the kernel kill this process when process `parent`, which made it, ends in whatever way."""
    death_signal_of_parent = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None, use_errno=True).prctl(death_signal_of_parent, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
