# SPDX-License-Identifier: Apache-2.0
"""A command with its time and the most memory that it held."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench.campaign.campaign import ROOT

# Runs a command and writes its exit status and the most memory it held into a file. A process of its own, with little
# memory: what a process holds when it starts another counts as resident memory of that one, too.
_MEASURE = """
import os, sys
process = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(process, 0)
with open(sys.argv[1], "w") as file:
    print(os.waitstatus_to_exitcode(status), usage.ru_maxrss, file=file)
"""


@dataclass
class Done:
    """A command that has ended: exit status, what it printed, seconds, and the most memory it held, in bytes."""

    status: int
    output: str
    seconds: float
    resident: int


def run_measured(words: list[str], usage: Path) -> Done:
    """Runs a command in the root of the checkout; `usage` is a file for what is measured."""
    measured = [sys.executable, "-I", "-S", "-c", _MEASURE, str(usage), *words]
    begin = time.monotonic()
    ended = subprocess.run(measured, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
    status, resident = map(int, usage.read_text().split())
    return Done(status, ended.stdout, time.monotonic() - begin, resident << 10)
