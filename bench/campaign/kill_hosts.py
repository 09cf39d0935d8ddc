# SPDX-License-Identifier: Apache-2.0
"""What a host is that the campaign `kills` kills, and what a number stands for."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    import assay


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

    @property
    def other(self) -> bool:
        """The second of two ways that a host may have: of graphs the layout, of programs whether the command dies."""
        return self.number % 2 == 1


def plan_of(number: int) -> Plan:
    """Draws what a number stands for."""
    draw = random.Random(number)
    rows = draw.choice([1, 50, 3000])
    dtype = draw.choice(["float32", "bfloat16", "float16"])
    if draw.random() < 0.25:
        return Plan(number, rows, dtype, draw.uniform(0, 0.02), draw.randint(1, 20))
    return Plan(number, rows, dtype, draw.choice([draw.uniform(0, 0.005), draw.uniform(0, 0.1)]), None)


class Running(ABC):
    """A host that has been started."""

    @abstractmethod
    def wait_until_begun(self) -> None:
        """Returns at the moment that the plan counts from, or when the host has ended."""

    @abstractmethod
    def kill(self) -> bool:
        """Sends SIGKILL; False when the host had ended well before. Raises Wrong when it had ended otherwise."""

    @abstractmethod
    def finish(self) -> int:
        """Lets it live; returns its exit status."""

    @abstractmethod
    def check_words(self, run: assay.Run) -> None:
        """Holds what was said at the end against what is there; raises Wrong."""


class Host(ABC):
    """A kind of program that captures.

    Attributes:
        name: begins the names of its cases: letters.
        about: for the table.
        most_steps: of a plan that has a number of them.
    """

    name: str
    about: str
    most_steps = 20

    @abstractmethod
    def start(self, plan: Plan, folder: Path, steps: Optional[int], stay: bool) -> Running:
        """Starts it with a capture into `folder`.

        Args:
            steps: instead of the plan's.
            stay: whether it goes on living, idle, when it has closed its capture, where it can.
        """

    @abstractmethod
    def check_files(self, folder: Path) -> None:
        """Has other software open what is left; raises Wrong."""
