# SPDX-License-Identifier: Apache-2.0
"""The counts of ARCHITECTURE.md's table "One concept, one place": none rises, and each rule finds what it is for."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "count_concepts.py"
LAYOUTS = '{Layout::Native,\n "native"}, {Layout::AtbTree, "atb-tree"}\n'
CODE = """\
if (run.layout == "native") return;                  // layout
if (side.run.layout != run::Layout::AtbTree) return;  // layout
if (descriptor.layout != "ND") return;
// if (run.layout == "native") is a comment
if (error.message.find("random") != npos) return;     // message
if (row.fail_reason.find("shape") != npos) return;    // message
if (verdict.level == 'O') return;                     // verdict
if (verdict.floor == "measured") return;              // verdict
text += ",\\"same_as\\":";                              // native key
const auto made = member(line, "vid");                // native key
return column / tile * rows + column % tile;          // tiles
if (options.msit) return 2;                           // a vendor's name
double relative_l2(double a, double b) {
"""


def count(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, TOOL, root], capture_output=True, text=True)


def small_tree(root: Path, allowed: int) -> Path:
    (root / "src" / "run").mkdir(parents=True)
    (root / "src" / "locate").mkdir()
    (root / "src" / "run" / "layout.cpp").write_text(LAYOUTS + "bool b = run.layout == Layout::Native;")
    (root / "src" / "locate" / "a.cpp").write_text(CODE)
    (root / "src" / "locate" / "a_test.cpp").write_text(CODE)
    for way_in in ("intake", "torch"):
        (root / "src" / "capture" / way_in).mkdir(parents=True)
        (root / "src" / "capture" / way_in / "a.cpp").write_text("append_payload(view);\ncompute_stats(view);\n")
    names = [line[4:].strip() for line in count_of_this_tree().stdout.splitlines()]
    allowed_of = {"production .cpp without a head": 4}  # all of them
    table = "".join(f"| {name} | {allowed_of.get(name, allowed)} | 0 |\n" for name in names)
    (root / "ARCHITECTURE.md").write_text(f"| Concept | Places | Goal |\n| --- | --- | --- |\n{table}")
    return root


@functools.cache
def count_of_this_tree() -> subprocess.CompletedProcess[str]:
    return count(ROOT)


def test_no_concept_of_this_tree_got_another_place():
    done = count_of_this_tree()
    assert done.returncode == 0, done.stderr


def test_each_rule_finds_what_it_is_for(tmp_path):
    found = {line[4:].strip(): int(line[:4]) for line in count(small_tree(tmp_path, 2)).stdout.splitlines()}
    assert found["comparisons of a layout outside src/run"] == 2
    assert found["branches on the text of a message"] == 2
    assert found["comparisons of a level, floor or verdict with text"] == 2
    assert found["keys of the native format spelled outside its home"] == 2
    assert found["files that compute places in tiles"] == 1
    assert found["ways in for a tensor of a host"] == 2
    assert found["definitions of relative_l2()"] == 1
    assert found["files outside its rooms that name ggml"] == 0
    assert found["files outside its rooms that name msit or ait"] == 1


def test_a_number_that_rose_is_named_with_its_places(tmp_path):
    assert count(small_tree(tmp_path / "two", 2)).returncode == 0
    done = count(small_tree(tmp_path / "one", 1))
    assert done.returncode == 1
    assert (
        "comparisons of a layout outside src/run: 2 places, ARCHITECTURE.md allows 1: src/locate/a.cpp:1" in done.stderr
    )
    assert "relative_l2" not in done.stderr


def test_what_is_wrong_with_the_house_is_counted(tmp_path):
    # given a header that two files reach, one of them through another header; a folder of 41 files
    tree = small_tree(tmp_path, 2)
    files = {
        "run/run.hpp": "// SPDX\n// A run.\n",
        "pair/pairs.hpp": '// SPDX\n// Pairs.\n#include "run/run.hpp"\n',
        "pair/pairs.cpp": '// SPDX\n// Pairs.\n#include "pair/pairs.hpp"\nvoid Pairs::put_back(Verdict* out) const {\n',
        "cli/judge.cpp": '// SPDX\n#include "run/run.hpp"\nauto verdict = locate::locate(runs);\nstruct RowSums {\n',
        "stats/sums.cpp": "// SPDX\n// Sums of one tensor.\nstruct SketchSums {\n"
        + "int number;\n\n// comment\n" * 250,
        **{f"base/{number}.hpp": "" for number in range(41)},
    }
    for name, text in files.items():
        (tree / "src" / name).parent.mkdir(exist_ok=True)
        (tree / "src" / name).write_text(text)
    found = {line[4:].strip(): int(line[:4]) for line in count(tree).stdout.splitlines()}
    # then
    assert found["production .cpp behind run/run.hpp"] == 2
    assert found["functions that undo a renaming"] == 1
    assert found["callers of locate() outside its room"] == 1
    assert found["structs of sums"] == 1
    assert found["folders with more than 40 files"] == 1
    assert found["production .cpp without a head"] == 5  # judge.cpp, and those of the small tree
    assert found["hundreds of lines of production C++"] == 2  # 251, and some twenty
