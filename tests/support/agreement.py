# SPDX-License-Identifier: Apache-2.0
"""A run agrees with itself: `compare X X` is same, `locate X X` accuses nobody.

What every test that leaves runs behind ends with (tests/conftest.py).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

FORMATS = ('"assay-run"', '"assay-atb-dump"')
MOST_RUNS = 4  # of one test
MOST_BYTES = 8 << 20  # of one run
MOST_FOLDERS = 400  # that are looked into


def command() -> Optional[str]:
    """The native command that the tests use; None where it is not installed."""
    beside = Path(sysconfig.get_path("scripts")) / "assay"
    return os.environ.get("ASSAY_BINARY") or (str(beside) if beside.exists() else shutil.which("assay"))


def _is_run(folder: str, names: set[str]) -> bool:
    if "manifest.json" not in names:
        return False
    try:
        with open(os.path.join(folder, "manifest.json"), errors="replace") as file:
            start = file.read(64)
    except OSError:
        return False
    return any(form in start for form in FORMATS)


def _size(folder: Path) -> int:
    return sum(entry.stat().st_size for entry in folder.rglob("*") if entry.is_file())


def runs_below(folder: Path) -> Iterator[Path]:
    """Runs in a folder, the newest first: those that are small enough to be judged beside each test."""
    found = []
    for looked, (path, folders, files) in enumerate(os.walk(folder)):
        if looked >= MOST_FOLDERS:
            break
        if _is_run(path, set(files)):
            folders.clear()
            found.append(Path(path))
    found.sort(key=lambda run: (-(run / "manifest.json").stat().st_mtime_ns, run))
    for run in found[:MOST_RUNS]:
        try:
            if _size(run) <= MOST_BYTES:
                yield run
        except OSError:  # the test took its permissions
            continue


def _answer(assay: str, *words: object) -> tuple[int, dict[str, Any]]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ASSAY_")}
    line = [assay, *map(str, words), "--json"]
    with tempfile.TemporaryDirectory() as here:  # for reports
        done = subprocess.run(
            line, capture_output=True, text=True, errors="replace", timeout=120, env=environment, cwd=here
        )
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:
        return done.returncode, {"sentence": (done.stdout + done.stderr).strip()}


def disagreement(assay: str, run: Path, other: Optional[Path] = None, *, wrong_kernels: bool = False) -> str:
    """What is said against a run that is compared with itself, or with another one of the same program.

    Empty when they agree, and when the run is damaged. With `wrong_kernels` operators may be wrong by themselves, which
    is no matter of a comparison: tests plant such faults.
    """
    said = []
    mine = run if other is None else other
    status, located = _answer(assay, "locate", run, mine)
    planted = wrong_kernels and "its own error is" in located.get("sentence", "")
    if not planted and (status not in (0, 125) or located.get("candidates")):
        said.append(f"locate ({status}): {located.get('sentence')}")
    elif status == 125 and not located.get("sentence", "").strip():
        said.append("locate cannot judge and does not say why")
    status, compared = _answer(assay, "compare", run, mine)
    differs = compared.get("outcome") == "differs" and not compared.get("sentence", "").startswith("0 of ")
    if status not in (0, 125) or differs:
        said.append(f"compare ({status}): {compared.get('sentence')}")
    if said and _answer(assay, "verify", run)[0] in (1, 2):  # damaged, or nothing that opens
        return ""
    return "; ".join(said)
