#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when a line of a Markdown file is longer than 120 columns and could be broken.

Blocks of code, tables and headings may be longer, and so may a single word, link or piece of code in a line.

    tools/check_markdown.py [FILE ...]      default: all that git knows
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = 120
_UNBROKEN = re.compile(r"\s*(?:\||#|<!--)")
_MARK = re.compile(r"\s*(?:[-*+>] |\d+[.)] )?\s*")


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Number and text of the lines that flow: neither code nor tables nor headings."""
    code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code and not _UNBROKEN.match(line):
            yield number, line


def could_be_broken(line: str) -> bool:
    """There is a blank outside of code, behind the first word."""
    words = re.sub(r"(`+)[^`]*\1", "code", _MARK.sub("", line, count=1)).split()
    return len(words) > 1


def long_lines(path: Path) -> list[str]:
    return [
        f"{path}:{number}: {len(line)} columns"
        for number, line in prose(path.read_text(encoding="utf-8"))
        if len(line) > COLUMNS and could_be_broken(line)
    ]


def main(arguments: list[str]) -> int:
    """Returns the exit status."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [Path(name) for name in arguments] or [ROOT / name for name in listed.stdout.split("\n") if name]
    found = [line for path in paths for line in long_lines(path)]
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
