# SPDX-License-Identifier: Apache-2.0
"""axe-core finds nothing serious on any view, wide and narrow, light and dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from test_invariance_page import judged

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()


def serious_faults(page: Any) -> list[str]:
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


def check_every_view(page: Any) -> None:
    tabs = page.locator('[role="tab"]')
    for place in range(tabs.count()):
        tabs.nth(place).click()
        page.wait_for_timeout(100)
        assert serious_faults(page) == [], tabs.nth(place).inner_text()


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_serious_fault(small, open_page, width, dark):
    check_every_view(open_page(small.page, width=width, dark=dark).page)


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (400, True)], ids=["wide", "narrow and dark"])
def test_no_serious_fault_where_cells_are_words(open_page, tmp_path, width, dark):
    judged(leaks=True).to_html(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html", width=width, dark=dark).page
    check_every_view(page)
    page.locator("[role=tab]").first.click()  # the banner is small beside the others
    page.get_by_role("button", name="Open the suspect").click()
    page.locator("section.tensor").wait_for()
    assert serious_faults(page) == []


def test_a_fault_would_be_found(small, open_page):
    page = open_page(small.page).page
    page.evaluate("document.body.append(document.createElement('button'))")
    assert serious_faults(page) != []
