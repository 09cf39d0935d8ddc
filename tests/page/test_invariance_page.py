# SPDX-License-Identifier: Apache-2.0
"""`assay invariance --html`: leaks and kernels that are not invariant on top, operators in all scenarios below."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from page_file import PageFile
from page_scenes import assay
from test_map import shown

from assay import invariance

HOSTILE = "</script><b>\"'&\x1b[2J\u202e"


class Head(torch.nn.Module):
    """x less the mean of the batch where it `leaks`."""

    def __init__(self, leaks: bool) -> None:
        super().__init__()
        self.leaks = leaks

    def forward(self, x):
        return x - x.mean(0, keepdim=True) if self.leaks else x * 2


def judged(leaks: bool, name: str = "head", kernel: bool = False) -> Any:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(256, 8))
    model.add_module(name, Head(leaks))
    if kernel:
        model.add_module("rows", Counting())

    @torch.no_grad()
    def run(scenario):
        for tokens in scenario.calls():
            model(torch.tensor(tokens))

    return invariance(run, decode=0)


class Counting(torch.nn.Module):
    """A kernel below the capture that adds one part in a million where there is more than one row."""

    def forward(self, x):
        return -x


@pytest.fixture
def counting_kernel():
    library = torch.library.Library("aten", "IMPL")
    library.impl("neg", lambda x: torch.mul(x, -1 - 1e-6 * (len(x) > 1)), "CPU")
    yield
    library._destroy()


def facts(item: Any) -> dict[str, str]:
    return dict(zip(item.locator("dt").all_inner_texts(), item.locator("dd").all_inner_texts()))


def test_a_leak_stands_on_top_and_in_the_grid(open_page, tmp_path):
    found = judged(leaks=True)
    found.to_html(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html").page
    assert page.locator(".banner.bad h1").inner_text() == found.sentence
    assert page.locator(".next code").inner_text() == found.to_dict()["next"]
    (leak,) = page.locator("details:has(summary:text('Leaks (1)')) li").all()
    assert leak.locator("button").inner_text() == "head"
    said = facts(leak)
    assert said["operator"] == "aten.sub.Tensor"
    assert int(said["elements that differ"]) == found.leaks[0]["different"]
    cells = shown(page)
    wrong = {(place, column) for (place, column), cell in cells.items() if "wrong" in cell["kind"].split()}
    # Beside other neighbours of the same number, at each place; against the row alone it is another shape.
    assert {place for place, _ in wrong} == {"head", "head::aten.sub.Tensor.0"}
    columns = {column.removeprefix("scenario ") for _, column in wrong}
    assert {"neighbours-b", "neighbours-c", "first-b", "last-b", "padded-left-b"} <= columns
    assert columns.isdisjoint({"chunks", "threads-2"})


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_kernel_that_is_not_invariant_is_told_with_its_size_and_distance(open_page, tmp_path, counting_kernel):
    found = judged(leaks=False, kernel=True)
    found.to_html(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html").page
    assert page.locator(".banner.open h1").inner_text() == found.sentence
    (kernel,) = page.locator("details:has(summary:text('Not invariant (1)')) li").all()
    said = facts(kernel)
    assert (said["operator"], said["from rows"]) == ("aten.neg.default", "2")
    # 1e-6 is 8.4 units of 2^-23 of a number below 2, 16.8 of one just above 1.
    assert 8 <= float(said["worst ULP"]) <= 17
    assert float(said["relative L2"]) == pytest.approx(1e-6, rel=0.1)
    cells = shown(page)
    assert "level-6" in cells["rows::aten.neg.default.0", "scenario equal-2 / alone"]["kind"].split()
    assert "level-1" in cells["rows::aten.neg.default.0", "scenario neighbours-b"]["kind"].split()
    rows = [row for row in PageFile(tmp_path / "page.html").rows if row["verdict"] == "not invariant"]
    assert {row["node"] for row in rows} == {"rows::aten.neg.default.0"}


def test_a_healthy_program_has_a_page_without_a_difference(open_page, tmp_path):
    found = judged(leaks=False)
    found.to_html(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html").page
    assert page.locator(".banner.good h1").inner_text() == found.sentence
    assert page.locator(".found").count() == 0
    kinds = {cell["kind"] for cell in shown(page).values()}
    assert all("wrong" not in kind for kind in kinds)


def test_hostile_names_stay_text(open_page, tmp_path):
    found = judged(leaks=True, name=HOSTILE)
    assert found.leaks[0]["module"] == HOSTILE
    found.to_html(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", fragment="#view=table").page
    assert page.locator("main b").count() == 0
    assert "\x1b" not in page.content() and "\u202e" not in page.content()


def test_a_page_that_cannot_be_written_is_refused_before_anything_runs(tmp_path):
    words = ["--html", "page.txt", "--", sys.executable, "-c", "open('ran', 'w')"]
    done = assay("invariance", *words, status=2, cwd=tmp_path)
    assert "a page ends with .html" in done.stderr
    assert list(Path(tmp_path).iterdir()) == []
