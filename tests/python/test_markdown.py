# SPDX-License-Identifier: Apache-2.0
"""The length of lines in documents: long prose is found, what cannot be broken is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "check_markdown.py"
LONG = "word " * 25 + "word"  # 129 columns


def check(*paths: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, TOOL, *paths], capture_output=True, text=True)


def test_no_document_has_a_line_of_more_than_120_columns():
    done = check()
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", [LONG, f"- {LONG}", f"1. {LONG}", f"```\n```\n{LONG}", f"short `code`\n{LONG}"])
def test_prose_that_is_too_long_is_named(tmp_path, text):
    path = tmp_path / "a.md"
    path.write_text(text + "\n")
    done = check(path)
    assert done.returncode == 1
    assert done.stderr == f"{path}:{text.count(chr(10)) + 1}: {len(text.splitlines()[-1])} columns\n"


@pytest.mark.parametrize(
    "text", [f"```\n{LONG}\n```", f"| {LONG} |", f"# {LONG}", "x" * 130, f"- `{LONG}`", "[a](" + "b" * 130 + ")"]
)
def test_what_cannot_be_broken_may_be_longer(tmp_path, text):
    path = tmp_path / "a.md"
    path.write_text(text + "\n")
    assert check(path).returncode == 0
