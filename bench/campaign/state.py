# SPDX-License-Identifier: Apache-2.0
"""What a campaign has done so far: results.jsonl, one line a finished case, which a later run goes on from.

build/campaign/<name>/
  results.jsonl                  of this commit and seed; its first line says which
  results-<commit>-<seed>.jsonl  of others; taken up again when their commit and seed come back
  sample.jsonl                   of the last --sample, always made anew
  scratch/                       of cases in hand
  lock                           held while a campaign runs
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Optional

from bench.campaign.campaign import ROOT, Result
from bench.measure import load_average, machine


class Busy(Exception):
    """Another process runs this campaign in the same folder."""


@dataclass(frozen=True)
class Identity:
    """What results may be counted together.

    Attributes:
        commit: as `git describe --always --dirty` names the checkout.
        version: of the package assay.
    """

    commit: str
    version: str
    seed: int

    @property
    def dirty(self) -> bool:
        """Whether the checkout had changes that no commit holds."""
        return self.commit.endswith("-dirty")


def commit_of_checkout() -> str:
    """Names the commit; "unknown" outside of a git checkout."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def utc_now() -> str:
    """The time as the lines and the header have it."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())


class State:
    """The folder of one campaign while it runs. Use it as a context manager: it holds the lock.

    Invariant: results.jsonl is a header and whole lines, each of them flushed when its case had ended.

    Attributes:
        folder: of the campaign.
        results: of finished cases, in the order in which they ended.
    """

    def __init__(self, folder: Path, identity: Identity, sample: bool = False) -> None:
        self.folder = folder
        self.results: list[Result] = []
        self.header: dict[str, Any] = {}
        self._identity = identity
        self._sample = sample
        self._path = folder / ("sample.jsonl" if sample else "results.jsonl")
        self._lock: Optional[int] = None
        self._file: Optional[int] = None

    def __enter__(self) -> State:
        self.folder.mkdir(parents=True, exist_ok=True)
        # A record lock is not inherited: a case that outlives a killed campaign does not keep the next one away.
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise Busy(f"another campaign runs in {self.folder}") from None
        if self._sample:
            self._path.unlink(missing_ok=True)
        else:
            self._take_up()
        self._read()
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        if not self.header:
            self.header = {
                **asdict(self._identity),
                "started": utc_now(),
                "machine": machine(),
                "load": load_average(),
            }
            self._write(self.header)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets another campaign run here."""
        for descriptor in (self._file, self._lock):
            if descriptor is not None:
                os.close(descriptor)
        self._file = self._lock = None

    @property
    def finished(self) -> frozenset[str]:
        """Names of the cases that have ended."""
        return frozenset(result["case"] for result in self.results)

    def add(self, result: Result) -> None:
        """Keeps the result of a case that has ended."""
        result["at"] = utc_now()
        self._write(result)
        self.results.append(result)

    def _write(self, line: dict[str, Any]) -> None:
        assert self._file is not None
        content = json.dumps(line).encode() + b"\n"
        if os.write(self._file, content) != len(content):  # one call: a signal comes before it or behind it
            raise OSError(f"{self._path}: no room for a result")

    def _take_up(self) -> None:
        """Puts the results of other commits and seeds aside, and those of this one in place."""
        found = _header(self._path)
        if self._path.exists() and not self._fits(found):
            self._path.replace(self._kept(found))
        kept = self._kept(asdict(self._identity))
        if not self._path.exists() and self._fits(_header(kept)):
            kept.replace(self._path)

    def _fits(self, header: dict[str, Any]) -> bool:
        return all(header.get(key) == value for key, value in asdict(self._identity).items())

    def _kept(self, header: dict[str, Any]) -> Path:
        # A file without a header is one that was killed before it was written: nothing is lost with it.
        return self.folder / f"results-{header.get('commit', 'none')}-{header.get('seed', 'none')}.jsonl"

    def _read(self) -> None:
        """Reads header and results; from a line on that a killed run or machine has half written, all is cut off."""
        if not self._path.exists():
            return
        whole = 0
        lines = []
        with open(self._path, "rb") as file:
            for line in file:
                found = _parsed(line)
                if not found:
                    os.truncate(self._path, whole)
                    break
                lines.append(found)
                whole += len(line)
        if lines:
            self.header, self.results = lines[0], lines[1:]


def _parsed(line: bytes) -> dict[str, Any]:
    """The object of a line; empty when the line is not whole."""
    try:
        found = json.loads(line) if line.endswith(b"\n") else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _header(path: Path) -> dict[str, Any]:
    """The first line of a file; empty when there is none."""
    try:
        with open(path, "rb") as file:
            return _parsed(file.readline())
    except OSError:
        return {}
