# SPDX-License-Identifier: Apache-2.0
"""The direction of includes: the real tree is clean, and a wrong include is found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "check_includes.py"


def test_the_tree_includes_only_in_the_direction_of_the_data_flow():
    done = subprocess.run([sys.executable, TOOL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_include_against_the_direction_is_named(tmp_path):
    (tmp_path / "capture").mkdir()
    (tmp_path / "capture" / "hook.cpp").write_text('#include "base/log.hpp"\n#include "run/run.hpp"\n')
    done = subprocess.run([sys.executable, TOOL, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "'capture' must not include 'run'" in done.stderr
    assert "base" not in done.stderr


def test_an_unknown_module_is_named(tmp_path):
    (tmp_path / "misc").mkdir()
    (tmp_path / "misc" / "a.hpp").write_text("#pragma once\n")
    done = subprocess.run([sys.executable, TOOL, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "module 'misc'" in done.stderr
