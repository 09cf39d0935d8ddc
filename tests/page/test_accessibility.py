# SPDX-License-Identifier: Apache-2.0
"""axe-core finds nothing serious on any view, wide and narrow, light and dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()


def serious_faults(page: Any) -> list[str]:
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_serious_fault(small, open_page, width, dark):
    page = open_page(small.page, width=width, dark=dark).page
    tabs = page.locator('[role="tab"]')
    for place in range(tabs.count()):
        tabs.nth(place).click()
        page.wait_for_timeout(100)
        assert serious_faults(page) == [], tabs.nth(place).inner_text()


def test_a_fault_would_be_found(small, open_page):
    page = open_page(small.page).page
    page.evaluate("document.body.append(document.createElement('button'))")
    assert serious_faults(page) != []
