# SPDX-License-Identifier: Apache-2.0
"""What is seen before anything is scrolled or clicked: which runs, what is wrong, where a click leads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import test_kinds
import torch
from operator_runs import write_run
from page_file import PageFile
from page_scenes import assay, compared

HEIGHT = 800


def is_on_first_screen(element: Any) -> bool:
    box = element.bounding_box()
    return box is not None and box["y"] >= 0 and box["y"] + box["height"] <= HEIGHT


def opened_row(page: Any) -> int:
    return int(re.search(r"row=(\d+)", page.url)[1])


@pytest.fixture(scope="module")
def atb_checked(tmp_path_factory):
    return test_kinds.opcheck(tmp_path_factory.mktemp("opcheck"))


@pytest.fixture(scope="module")
def torch_checked(tmp_path_factory):
    return test_kinds.opcheck_operators(tmp_path_factory.mktemp("opcheck_operators"))


@pytest.mark.parametrize("width", [1280, 400])
def test_which_run_is_which_and_when_it_was_captured(small, open_page, width):
    page = open_page(small.page, width=width, height=HEIGHT).page
    lines = page.locator(".banner .runs > div").all()
    assert len(lines) == 2
    for line, name, side in zip(lines, ("golden", "mine"), PageFile(small.page).content["sides"]):
        assert is_on_first_screen(line)
        moment = side["properties"]["started"].replace("T", " ").replace("Z", " UTC")
        assert re.sub(r"\s+", " ", line.inner_text()) == f"{name} {side['path']} captured {moment}"


def test_how_it_was_judged_stands_in_words(small, open_page, tmp_path):
    facts = open_page(small.page).page.locator(".banner .facts").nth(1).inner_text()
    assert "judged by" in facts and "innermost modules" in facts
    assert "what rounding explains" in facts
    assay("compare", small.golden, small.golden, "-o", tmp_path, "--html", tmp_path / "page.html")
    facts = open_page(tmp_path / "page.html").page.locator(".banner .facts").nth(1).inner_text()
    assert "each operator, computed again" in facts
    assert not re.search(r"level|limits from|\b[OL]\b", facts)


def test_the_name_in_the_verdict_opens_the_suspect(small, open_page):
    page = open_page(small.page).page
    name = page.locator("h1 button")
    assert name.inner_text() == "layers.2.norm"
    name.click()
    assert opened_row(page) == PageFile(small.page).content["verdict"]["candidate_rows"][0]
    assert page.locator(".tensor h2").inner_text().startswith("layers.2.norm")


def test_the_operator_in_the_verdict_opens_it_too(open_page, tmp_path):
    # Given runs of operators, of which one product is 3 % too large,
    golden = write_run(tmp_path / "golden", dtype=torch.float32)
    scene = compared(golden, write_run(tmp_path / "mine", kernels={"blocks.1.proj": lambda t: t * 1.03}), tmp_path)
    page = open_page(scene.page).page
    assert page.locator("h1 button").all_inner_texts() == ["blocks.1.proj", "aten.mm.default"]
    # when its operator is clicked, its row is open; and the map has the number of the sentence.
    page.locator("h1 button").last.click()
    row = PageFile(scene.page).rows[opened_row(page)]
    assert (row["module"], row["operator"]) == ("blocks.1.proj", "aten.mm.default.0")
    (times,) = re.findall(r"its own error is ([\d.]+)x what rounding explains", page.inner_text("h1"))
    page.wait_for_selector(".map-grid .map-cell.first")
    on_map = re.search(r"[\d.]+", page.locator(".map-grid .map-cell.first").inner_text())[0]
    assert float(on_map) == pytest.approx(float(times), rel=0.04)


def test_a_suspect_without_a_row_leads_to_its_neighbourhood(small, open_page, tmp_path):
    # Given a verdict on an operator that the table has no row of: the run under test has modules only
    from invented_page import invent

    rows = PageFile(small.page).rows
    columns = {name: [row[name] for row in rows] for name in ("node", "module", "role", "token_id")}
    verdict = PageFile(small.page).content["verdict"] | {"candidate_rows": [None]}
    page = open_page(invent(small.page, tmp_path / "page.html", columns, verdict=verdict)).page
    page.locator("h1 button").click()
    assert "view=modules" in page.url and "q=layers.2.norm" in page.url  # an invented page has no graph
    assert page.locator("[role=treeitem]").first.inner_text().startswith("layers.2.norm")


@pytest.mark.parametrize("width", [1280, 400])
def test_the_banner_is_small_beside_the_other_views(small, open_page, width):
    page = open_page(small.page, width=width).page
    tall = page.locator(".banner").bounding_box()["height"]
    for tab in page.locator("[role=tab]").all()[1:]:
        tab.click()
        assert page.locator(".banner").bounding_box()["height"] < min(80, tall / 3)
        assert page.locator("h1").is_visible() and page.locator("h1 button").is_visible()
    page.locator("[role=tab]").first.click()
    assert page.locator(".banner").bounding_box()["height"] == tall


def test_map_and_panel_have_one_denominator_and_one_confidence(small, open_page):
    file = PageFile(small.page)
    page = open_page(small.page).page
    page.wait_for_selector(".map-grid .map-cell")
    wrong = page.locator(".map-grid .map-cell.wrong:not(.absent)").all()
    assert len(wrong) >= 2
    for number in range(len(wrong)):
        cell = page.locator(".map-grid .map-cell.wrong:not(.absent)").nth(number)
        on_map = float(re.search(r"[\d.]+", cell.inner_text())[0])
        row = file.rows[int(cell.get_attribute("data-row"))]
        cell.click()
        page.wait_for_selector(".tensor:not([hidden]) h2")
        facts = dict(
            zip(
                page.locator(".tensor .facts dt").all_inner_texts(), page.locator(".tensor .facts dd").all_inner_texts()
            )
        )
        explained = float(facts["rounding explains"])
        own = facts.get("own error / rounding", facts["error of this tensor / rounding"])  # of a weight
        assert on_map == pytest.approx(float(own.split()[0]), rel=0.03)
        assert float(own.split()[0]) == pytest.approx((row["err_own"] or row["err_out"]) / explained, rel=1e-3)
        whole = float(facts["error of this tensor / rounding"].split()[0])
        assert whole == pytest.approx(row["relative_euclidean_distance"] / explained, rel=1e-3)
        assert facts["confidence"] == file.content["verdict"]["confidence"]


# ---- opcheck ----


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("kind", ["atb_checked", "torch_checked"])
def test_the_first_failure_of_opcheck_is_on_the_first_screen_and_linked(kind, request, open_page, width):
    path: Path = request.getfixturevalue(kind)
    rows = PageFile(path).rows
    first = next(number for number, row in enumerate(rows) if row["result"] in ("FAILED", "ERROR"))
    page = open_page(path, width=width, height=HEIGHT).page
    for link in (page.locator("h1 button"), page.locator(".found button").first):
        assert is_on_first_screen(link)
        link.click()
        assert opened_row(page) == first
        page.keyboard.press("Escape")
    assert rows[first]["reason"][:20] in page.locator(".found li").first.inner_text()


def test_the_modules_of_opcheck_are_open_at_what_failed(torch_checked, open_page):
    page = open_page(torch_checked, height=HEIGHT).page
    (failed,) = [row for row in PageFile(torch_checked).rows if row["result"] == "FAILED"]
    names = [item.get_attribute("data-name") for item in page.locator("[role=treeitem]").all() if item.is_visible()]
    assert any(name.startswith(f"{failed['module']}::") for name in names), names


@pytest.mark.parametrize("view", ["operations", "table"])
def test_heads_of_opcheck_are_whole_words_in_a_narrow_window(atb_checked, open_page, view):
    page = open_page(atb_checked, width=400, height=HEIGHT, fragment=f"#view={view}").page
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    heads = page.locator("th, [role=columnheader]")
    for head in heads.all():
        fits = head.evaluate(
            """(head) => { const range = document.createRange(); range.selectNodeContents(head);
                 const tops = [...range.getClientRects()].map((box) => box.top);
                 return Math.max(...tops) - Math.min(...tops) < 8 && head.scrollWidth <= head.clientWidth + 1; }"""
        )
        assert fits, head.inner_text()
    # What failed is to be seen without scrolling sideways, and no row is taller than a sentence needs.
    texts = heads.all_inner_texts()
    result = texts.index("failed") if view == "operations" else [text.split(" ")[0] for text in texts].index("result")
    box = heads.nth(result).bounding_box()
    assert box["x"] + box["width"] <= 400
    if view == "operations":
        tallest = max(row.bounding_box()["height"] for row in page.locator("tbody tr").all())
        assert tallest <= 110
        failed = [row["op_name"] for row in PageFile(atb_checked).rows if row["result"] == "FAILED"]
        assert page.locator("tbody td").first.inner_text() in failed
