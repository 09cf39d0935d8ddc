# SPDX-License-Identifier: Apache-2.0
"""The table of all rows: found, sorted and saved as Python finds, sorts and reads them."""

from __future__ import annotations

import csv
import io
import math
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import warm_python
from page_file import PageFile
from page_scenes import assay

import assay as assay_module

GRID = '[role="grid"]'
ROWS = '.grid-body > [role="row"]:not([hidden])'


def wait_until(page: Any, condition: str) -> None:
    """Playwright's own way evaluates a text inside the page, which the page's policy forbids."""
    for _ in range(200):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(25)
    raise AssertionError(f"never true: {condition}")


def wait_for_count(page: Any, count: int) -> None:
    wait_until(page, f"document.querySelector('.grid-count').textContent.startsWith('{count:,} ')")


def count_of(page: Any) -> int:
    return int(page.inner_text(".grid-count").split()[0].replace(",", ""))


def shown_cells(page: Any, title: str) -> list[str]:
    """The texts of a column, from the top, of the rows in the window."""
    heads = [text.strip(" ▼▲\xa0") for text in page.locator('[role="columnheader"]').all_inner_texts()]
    rows = page.locator(ROWS).evaluate_all(
        """(rows, place) => rows.map((row) =>
             [Number(row.getAttribute("aria-rowindex")), row.children[place].textContent])""",
        heads.index(title),
    )
    return [text for _, text in sorted(rows)]


def saved_rows(page: Any) -> list[dict[str, str]]:
    with page.expect_download() as download:
        page.click("text=Save these rows as csv")
    text = Path(download.value.path()).read_text()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def fragment(**keys: str) -> str:
    return "#view=table&" + "&".join(f"{key}={value}" for key, value in keys.items())


def test_every_word_must_be_in_some_text_of_a_row(llama, open_page):
    # Given the rows in which Python finds both words,
    rows = PageFile(llama.page).rows
    texts = [" ".join(cell.lower() for cell in row.values() if isinstance(cell, str)) for row in rows]
    expected = [row["data_id"] for row, text in zip(rows, texts) if "layers.3" in text and "mlp" in text]
    # when they are written into the field,
    page = open_page(llama.page, fragment="#view=table").page
    assert count_of(page) == len(rows)
    page.fill('input[type="search"]', "MLP layers.3")
    wait_for_count(page, len(expected))
    assert "q=MLP+layers.3" in page.url
    # then these are the rows, and the address says it.
    assert 0 < len(expected) < len(rows)
    assert [int(row["data_id"]) for row in saved_rows(page)] == expected


@pytest.mark.parametrize("name", ["relative_euclidean_distance", "data_id", "cosine_similarity", "err_in"])
@pytest.mark.parametrize("descending", [False, True])
def test_numbers_are_sorted_as_numbers_and_empty_cells_come_last(llama, open_page, name, descending):
    rows = PageFile(llama.page).rows
    page = open_page(llama.page, fragment=fragment(sort=("-" if descending else "") + name)).page
    saved = [float(row[name]) if row[name] else None for row in saved_rows(page)]
    expected = sorted((row[name] for row in rows if row[name] is not None), reverse=descending)
    expected += [None] * (len(rows) - len(expected))
    assert len(saved) == len(expected)
    for one, other in zip(saved, expected):
        assert one == other or math.isclose(one, other, rel_tol=1e-5)


def test_texts_are_sorted_with_their_numbers_by_size(llama, open_page):
    page = open_page(llama.page, fragment=fragment(sort="node")).page
    saved = [row["node"] for row in saved_rows(page)]
    natural = [[int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)] for text in saved]
    assert natural == sorted(natural)


def test_a_click_on_a_head_sorts_and_a_third_one_ends_it(llama, open_page):
    page = open_page(llama.page, fragment="#view=table").page
    head = page.locator('[role="columnheader"]', has_text="rel L2")
    assert head.get_attribute("aria-sort") == "none"
    before = shown_cells(page, "node")
    head.locator("button").click()
    page.wait_for_selector('[role="columnheader"][aria-sort="descending"]')
    worst = max(row["relative_euclidean_distance"] or 0 for row in PageFile(llama.page).rows)
    assert math.isclose(float(shown_cells(page, "rel L2")[0]), worst, rel_tol=1e-3)
    head.locator("button").click()
    page.wait_for_selector('[role="columnheader"][aria-sort="ascending"]')
    head.locator("button").click()
    wait_until(page, "!location.hash.includes('sort')")
    assert shown_cells(page, "node") == before


def test_filters_by_level_and_verdict(llama, open_page):
    rows = PageFile(llama.page).rows
    page = open_page(llama.page, fragment="#view=table").page
    words = sorted({row["verdict"] for row in rows if row["verdict"]})
    for verdict in words:
        page.select_option("label:has-text('verdict') select", verdict)
        expected = sum(row["verdict"] == verdict for row in rows)
        wait_for_count(page, expected)
    page.select_option("label:has-text('verdict') select", "")
    page.select_option("label:has-text('level') select", "layer")
    expected = sum("layer" in row["level"].split() for row in rows)
    wait_for_count(page, expected)


def test_no_row_is_said_in_words(small, open_page):
    page = open_page(small.page, fragment=fragment(q="nosuchword")).page
    assert count_of(page) == 0
    page.click("text=show all rows")
    wait_until(page, "!location.hash.includes('q=')")
    assert count_of(page) == len(PageFile(small.page).rows)


def test_keys_move_open_and_copy(llama, open_page):
    opened = open_page(llama.page, fragment="#view=table")
    page = opened.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    grid = page.locator(GRID)
    grid.focus()

    def active() -> int:
        return int(page.locator(f"#{grid.get_attribute('aria-activedescendant')}").get_attribute("aria-rowindex")) - 2

    total = count_of(page)
    assert int(grid.get_attribute("aria-rowcount")) == total + 1
    assert active() == 0
    for key, place in [("ArrowDown", 1), ("ArrowDown", 2), ("ArrowUp", 1), ("End", total - 1), ("Home", 0)]:
        page.keyboard.press(key)
        assert active() == place
    page.keyboard.press("PageDown")
    assert 5 < active() < total
    place = active()
    page.keyboard.press("PageUp")
    page.keyboard.press("PageDown")
    assert active() == place
    # The open row is marked, and stands in the address.
    page.keyboard.press("Enter")
    wait_until(page, f"location.hash.includes('row={place}')")
    assert page.locator(f'{ROWS}[aria-selected="true"]').get_attribute("aria-rowindex") == str(place + 2)
    # A copy is two lines between tabs.
    grid.focus()
    page.keyboard.press("c")
    page.wait_for_selector(f"text=row {place} is copied")
    names, cells = page.evaluate("navigator.clipboard.readText()").rstrip("\n").split("\n")
    copied = dict(zip(names.split("\t"), cells.split("\t")))
    row = PageFile(llama.page).rows[place]
    assert copied["node"] == row["node"]
    assert copied["data_id"] == str(row["data_id"])


def test_a_link_leads_to_its_row(llama, open_page):
    total = len(PageFile(llama.page).rows)
    page = open_page(llama.page, fragment=fragment(row=str(total - 1))).page
    open_row = page.locator(f'{ROWS}[aria-selected="true"]')
    assert open_row.get_attribute("aria-rowindex") == str(total + 1)
    assert open_row.is_visible()


def test_columns_are_chosen(small, open_page):
    page = open_page(small.page, fragment="#view=table").page
    page.click("summary:has-text('Columns')")
    page.locator(".grid-chooser label", has_text="kl divergence").locator("input").check()
    wait_until(page, "location.hash.includes('kl_divergence')")
    wait_until(page, "document.querySelector('.grid-head').textContent.includes('kl divergence')")
    page.click("text=the usual ones")
    wait_until(page, "!location.hash.includes('columns')")
    wait_until(page, "!document.querySelector('.grid-head').textContent.includes('kl divergence')")


def rows_of_csv(folder, golden, mine, *options):
    """The csv of the command, by data_id; the page of the same comparison is folder/page.html."""
    page = folder / "page.html"
    assay("compare", golden, mine, "-cl", "api", *options, "-o", folder, "--html", page, status=None)
    (report,) = folder.glob("msit_cmp_report_*.csv")
    with report.open(newline="") as file:
        return {row["data_id"]: row for row in csv.DictReader(file)}


def test_the_saved_csv_is_the_csv_of_the_command(small, open_page, tmp_path):
    # Given the csv that the command writes, and the same comparison's page,
    expected = rows_of_csv(tmp_path, small.golden, small.mine, "--verdict")
    # when the page saves all of its rows,
    saved = saved_rows(open_page(tmp_path / "page.html", fragment="#view=table").page)
    # then columns and cells are the same, numbers to five digits.
    assert len(saved) == len(expected)
    for row in saved:
        for name, cell in expected[row["data_id"]].items():
            if row[name] != cell:
                assert math.isclose(float(row[name]), float(cell), rel_tol=1e-5), (row["data_id"], name)


HOSTILE = """
import sys, torch, assay
names = ["=HYPERLINK(1)", "+1+1", "-2+3", "@SUM(A1)", "</script><b>", 'quote", comma', "x" * 500]
model = torch.nn.Sequential()
for name in names:
    model.add_module(name, torch.nn.Linear(4, 4))
with torch.no_grad(), assay.capture(model, sys.argv[1], level="module"):
    model(torch.ones(2, 4))
"""


def test_names_that_a_spreadsheet_would_run_are_defused(open_page, tmp_path):
    # Given runs with hostile names of modules,
    for side in ("golden", "mine"):
        subprocess.run([warm_python.python(), "-c", HOSTILE, str(tmp_path / side)], check=True, capture_output=True)
    rows = rows_of_csv(tmp_path, tmp_path / "golden", tmp_path / "mine")
    expected = {data_id: row["node"] for data_id, row in rows.items()}
    page = open_page(tmp_path / "page.html", fragment="#view=table").page
    # then the saved csv defuses them as the command's does,
    saved = {row["data_id"]: row["node"] for row in saved_rows(page)}
    assert saved == expected
    assert sum(name.startswith("'") for name in saved.values()) >= 8
    # and the page shows them as they are.
    texts = shown_cells(page, "node")
    assert any(text.startswith("</script><b>") for text in texts)
    assert any(text.startswith("=HYPERLINK(1)") for text in texts)


def test_the_table_of_one_run(small, open_page, tmp_path):
    assay_module.open(small.golden).to_html(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", fragment="#view=table").page
    assert count_of(page) == len(PageFile(tmp_path / "page.html").rows)
    assert page.locator('[role="columnheader"]').all_inner_texts()[:4] == ["step", "node", "role", "slot"]


def test_only_rows_in_the_window_are_elements(llama, open_page):
    page = open_page(llama.page, width=400, dark=True, fragment="#view=table").page
    total = count_of(page)
    assert total > 300
    assert page.locator(ROWS).count() < 80
    page.evaluate("document.querySelector('[role=grid]').scrollTop = 1e7")
    page.wait_for_selector(f'[role="row"][aria-rowindex="{total + 1}"]')
