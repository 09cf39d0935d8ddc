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


def test_a_room_sees_those_before_it_and_none_beside_it(tmp_path):
    (tmp_path / "capture" / "ggml").mkdir(parents=True)
    (tmp_path / "capture" / "ggml" / "probe.cpp").write_text(
        '#include "capture/atb/probe.hpp"\n#include "capture/common/a.hpp"\n#include "capture/ggml/engine.hpp"\n'
    )
    (tmp_path / "capture" / "intake").mkdir()
    (tmp_path / "capture" / "intake" / "take.cpp").write_text('#include "capture/torch/session.hpp"\n')
    done = subprocess.run([sys.executable, TOOL, str(tmp_path)], capture_output=True, text=True)
    assert [line.split(": ")[1] for line in done.stderr.splitlines()] == [
        "'capture/ggml' must not include 'capture/atb'",
        "'capture/intake' must not include 'capture/torch'",
    ]


def test_an_unknown_module_is_named(tmp_path):
    (tmp_path / "misc").mkdir()
    (tmp_path / "misc" / "a.hpp").write_text("#pragma once\n")
    done = subprocess.run([sys.executable, TOOL, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "module 'misc'" in done.stderr


UNITS = ROOT / "tools" / "check_units.py"


def check_units(root: Path) -> tuple[int, str]:
    done = subprocess.run([sys.executable, UNITS, str(root)], capture_output=True, text=True)
    return done.returncode, done.stderr


def test_no_file_of_the_tree_hides_a_name_from_its_unit():
    assert check_units(ROOT / "src") == (0, "")


def test_a_name_that_two_files_of_a_unit_keep_to_themselves_is_named(tmp_path):
    (tmp_path / "CMakeLists.txt").write_text("assay_add_module(m\n  UNIT a.cpp b.cpp\n  UNIT c.cpp\n  DEPENDS base)\n")
    for name, parameter in (("a", "int"), ("b", "double"), ("c", "long")):
        # As overloads of one function both compile, and b.cpp's calls with an int would go to the function of a.cpp.
        (tmp_path / f"{name}.cpp").write_text(
            f"namespace {{\n\nint rounded({parameter} x) {{\n  return 0;\n}}\n\n}}  // namespace\n"
        )
    status, text = check_units(tmp_path)
    assert status == 1
    assert text == f"{tmp_path / 'b.cpp'}: 'rounded' is declared by a.cpp, too, of its unit\n"


def test_a_name_of_a_header_that_a_file_of_the_unit_hides_is_named(tmp_path):
    (tmp_path / "CMakeLists.txt").write_text("assay_add_module(m\n  UNIT a.cpp b.cpp c.cpp)\n")
    (tmp_path / "m.hpp").write_text("inline constexpr double kMask = 1e4;\n")
    (tmp_path / "a.cpp").write_text("namespace {\n\nconstexpr double kMask = -1e30;\n\n}  // namespace\n")
    (tmp_path / "b.cpp").write_text("double mask() { return kMask; }\n")
    (tmp_path / "c.cpp").write_text('const char* text() { return "kMask"; }  // kMask\n')
    status, text = check_units(tmp_path)
    assert status == 1
    assert text == f"{tmp_path / 'b.cpp'}: 'kMask' of m.hpp is hidden by that of a.cpp, of its unit\n"
