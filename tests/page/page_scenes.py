# SPDX-License-Identifier: Apache-2.0
"""Runs and the pages made of them, by the command."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cli"))

import warm_python
from assay_command import binary

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def assay(*arguments: object, status: int | None = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the command; `status` None takes any."""
    done = subprocess.run(
        [binary(), *map(str, arguments)], capture_output=True, text=True, timeout=300, cwd=cwd, check=False
    )
    assert status is None or done.returncode == status, done.stdout + done.stderr
    return done


@dataclass(frozen=True)
class Scene:
    """Two runs and the page that compares them."""

    golden: Path
    mine: Path
    page: Path
    said: str  # by the command


def compared(golden: Path, mine: Path, folder: Path, *options: object) -> Scene:
    page = folder / "page.html"
    done = assay("compare", golden, mine, "-o", folder / "report", "--html", page, *options, status=None)
    assert page.exists(), done.stdout + done.stderr
    return Scene(golden, mine, page, done.stdout)


def dumped(folder: Path, level: str, *program: str) -> Path:
    assay("dump", "--level", level, "--weights", "-o", folder, "--", warm_python.python(), *program)
    return folder


def until(page: Any, expression: str, argument: Any = None) -> None:
    """Waits until the expression holds. Playwright's own wait needs eval, which the policy of the page forbids."""
    end = time.monotonic() + 20
    while not page.evaluate(expression, argument):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(20)
