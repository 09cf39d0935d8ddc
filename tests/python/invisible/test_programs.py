# SPDX-License-Identifier: Apache-2.0
"""Programs that look at themselves see no capture: what they compute and find is what they find without one."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
from programs import PROGRAMS, numbers

from assay.inject.outermost import captured_calls

# What cannot be hidden from a program: docs/design/torch-capture.md, "What a program can see".
SEEN = {
    "operator": set(),
    "module": set(),
}


@pytest.mark.parametrize("level", ["module", "operator"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_finds_what_it_finds_without_a_capture(name: str, level: str, tmp_path: Path) -> None:
    plain = repr(numbers(PROGRAMS[name]()))
    with captured_calls(str(tmp_path / "run"), level):
        captured = repr(numbers(PROGRAMS[name]()))
    assert captured == plain
