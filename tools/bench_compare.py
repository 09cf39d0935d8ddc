#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares two results of bench/run.py:   tools/bench_compare.py old.json new.json

Rows are paired by section and name, and their median times of the unit of work (100 steps, 10 GB, one command) are
compared. A change is reported only beyond 10 % and 10 ms: less is noise. Exit status: 0 nothing became slower,
1 something did, or was measured before and is not any more; 2 a file cannot be used.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

SHARE = 0.10
SECONDS = 0.010


def rows_of(path: Path) -> dict[str, dict[str, Any]]:
    """Returns {"section/name": row} of a results.json; raises ValueError when the file is something else."""
    try:
        sections = json.loads(path.read_text())["sections"]
        return {f"{key}/{row['name']}": row for key, section in sections.items() for row in section["rows"]}
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a result of bench/run.py: {error!r}") from error


def compare(old: dict[str, dict[str, Any]], new: dict[str, dict[str, Any]]) -> tuple[list[str], bool]:
    """Returns (lines to print, whether anything became slower or was lost)."""
    slower, faster, lost = [], [], []
    compared = 0
    for name, before in old.items():
        if before.get("seconds") is None:
            continue
        after = new.get(name)
        if after is None or after.get("seconds") is None:
            reason = "no such row" if after is None else f"{after['status']}: {after['reason'].strip()[-200:]}"
            lost.append(f"lost    {name}: {reason}")
            continue
        compared += 1
        change = after["seconds"] - before["seconds"]
        if abs(change) <= SECONDS or abs(change) <= SHARE * before["seconds"]:
            continue
        ratio = after["seconds"] / before["seconds"]
        figures = (
            f"{before['seconds'] * 1e3:.1f} -> {after['seconds'] * 1e3:.1f} ms per {before['unit']} ({ratio:.2f}x)"
        )
        (slower if change > 0 else faster).append(f"{'slower' if change > 0 else 'faster'}  {name}: {figures}")
    lines = slower + lost + faster
    lines.append(f"{compared} rows compared, {len(slower)} slower, {len(faster)} faster, {len(lost)} lost")
    return lines, bool(slower or lost)


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    arguments = parser.parse_args()
    try:
        lines, worse = compare(rows_of(arguments.old), rows_of(arguments.new))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
