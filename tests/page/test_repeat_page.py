# SPDX-License-Identifier: Apache-2.0
"""`assay repeat --html`: the sentence and the next command on top, and which operator differs in which run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import warm_python
from page_file import PageFile
from page_scenes import assay
from test_map import shown

# Four blocks of a product, a multiplication that goes wrong in some runs, and a product. Counts its own runs in a file.
PROGRAM = """
import json, sys, warnings, torch
from pathlib import Path
warnings.simplefilter("ignore")
name, *wrong = sys.argv[1:]
name = json.loads(name)
number = int(Path("counter").read_text()) if Path("counter").exists() else 0
Path("counter").write_text(str(number + 1))
torch.manual_seed(0)

def mul(a, b):
    out = torch.empty_like(a)
    torch.mul(a, b, out=out)
    if str(number) in wrong:
        out[1, 3] += 0.5
    return out

library = torch.library.Library("aten", "IMPL")
library.impl("mul.Tensor", mul, "CPU")

class Gate(torch.nn.Module):
    def forward(self, x):
        return x * x

def block():
    made = torch.nn.Sequential(torch.nn.Linear(8, 8))
    made.add_module(name, Gate())
    made.add_module("out", torch.nn.Linear(8, 8))
    return made

with torch.no_grad():
    torch.nn.Sequential(*[block() for _ in range(3)])(torch.ones(2, 8))
"""


def repeated(folder: Path, name: str, runs: int, *wrong: int) -> dict[str, Any]:
    """Writes page.html and returns what --json says."""
    (folder / "run.py").write_text(PROGRAM)
    words = ["--host", "torch", "-n", runs, "--html", "page.html", "--json", "--"]
    program = [warm_python.python(), "run.py", json.dumps(name), *wrong]
    return json.loads(assay("repeat", *words, *program, status=None, cwd=folder).stdout)


@pytest.fixture(scope="module")
def race(tmp_path_factory) -> tuple[Path, dict[str, Any]]:
    """Of runs 0 to 4 the first and the third are wrong; of those that keep values, 5 to 9, the last."""
    folder = tmp_path_factory.mktemp("race")
    return folder / "page.html", repeated(folder, "gate", 5, 1, 3, 6)


def test_the_top_says_what_json_says(race, open_page):
    path, found = race
    page = open_page(path).page
    assert page.locator("h1").inner_text() == found["sentence"]
    assert page.locator(".next code").inner_text() == found["next"]
    (first,) = page.locator(".found li").all()
    assert first.locator("button").inner_text() == found["first"]["module"] == "0.gate"
    facts = dict(zip(first.locator("dt").all_inner_texts(), first.locator("dd").all_inner_texts()))
    # One element of [2, 8], as planted.
    assert facts["elements that differ"] == "1 of 16"
    assert float(facts["worst ULP"]) == pytest.approx(found["elements"]["largest_ulp"], rel=5e-3)
    assert (facts["at"], facts["runs that differ"]) == ("[1, 3]", "2")


def test_the_grid_has_each_operator_in_each_run(race, open_page):
    path, found = race
    page = open_page(path).page
    cells = shown(page)
    # The block with the first operator is open; of the gates behind it the inputs differ already.
    assert {run for _, run in cells} == {"run 1", "run 2", "run 3", "run 4"}
    for run in range(1, 5):
        is_wrong = run in found["first"]["runs"]
        before, gate, behind = (
            cells[place, f"run {run}"]["kind"].split() for place in ("0.0", "0.gate::aten.mul.Tensor.0", "2")
        )
        assert ("wrong" in gate) == is_wrong
        assert ("level-1" in behind) != is_wrong
        assert "level-1" in before
    marked = [place for place, cell in cells.items() if "first" in cell["kind"].split()]
    assert marked == [("0.gate::aten.mul.Tensor.0", "run 1")]
    assert len(PageFile(path).rows) == 4 * found["operators"]


def test_a_cell_opens_the_operator_with_its_reason(race, open_page):
    path, found = race
    page = open_page(path).page
    page.get_by_role("button", name="Open the suspect").click()
    panel = page.locator("section.tensor")
    panel.wait_for()
    assert "Its inputs are equal bit for bit, its output is not." in panel.inner_text()
    assert found["first"]["text"] in panel.inner_text()


def test_a_program_that_repeats_has_a_page_without_a_difference(open_page, tmp_path):
    found = repeated(tmp_path, "gate", 3)
    page = open_page(tmp_path / "page.html").page
    assert found["repeats"]
    assert page.locator(".banner.good h1").inner_text() == found["sentence"]
    assert page.locator(".found").count() == 0
    assert {kind for cell in shown(page).values() for kind in cell["kind"].split()} == {"map-cell", "level-1"}


def test_hostile_names_stay_text(open_page, tmp_path):
    name = "</script><b>\"'&\x1b[2J\u202e"
    found = repeated(tmp_path, name, 2, 1)
    # Standard output has nothing that turns the direction of writing.
    assert found["first"]["module"] == f"0.{name}".replace("\u202e", "?")
    page = open_page(tmp_path / "page.html", fragment="#view=table").page
    assert page.locator("main b").count() == 0
    assert "\x1b" not in page.content() and "\u202e" not in page.content()


@pytest.mark.parametrize(("path", "said"), [("page.txt", "a page ends with .html"), ("no/page.html", "no such folder")])
def test_a_page_that_cannot_be_written_is_refused_before_anything_runs(tmp_path, path, said):
    words = ["--html", path, "--", sys.executable, "-c", "open('ran', 'w')"]
    done = assay("repeat", *words, status=2, cwd=tmp_path)
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_operator_that_only_some_runs_have_is_a_line_of_the_map(tmp_path, open_page):
    """Given a program whose third run copies once more, then the copy is a line of the map, wrong in that run."""
    (tmp_path / "run.py").write_text(
        "import torch\nfrom pathlib import Path\n"
        "number = int(Path('counter').read_text()) if Path('counter').exists() else 0\n"
        "Path('counter').write_text(str(number + 1))\n"
        "class Copy(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x.clone() if number == 2 else x\n"
        "with torch.no_grad():\n"
        "    torch.nn.Sequential(torch.nn.ReLU(), Copy())(torch.ones(2, 8))\n"
    )
    words = ["--host", "torch", "-n", 3, "--html", "page.html", "--", warm_python.python(), "run.py"]
    said = " ".join(assay("repeat", *words, status=None, cwd=tmp_path).stdout.split())
    assert "one of the runs has no such operator, in run 2" in said
    rows = PageFile(tmp_path / "page.html").rows
    of_copy = {row["run"]: row["verdict"] for row in rows if "clone" in row["node"]}
    assert of_copy == {1: "same", 2: "other operators"}
    page = open_page(tmp_path / "page.html").page
    assert page.locator(".map").get_by_text("clone").count() > 0
