# SPDX-License-Identifier: Apache-2.0
"""The page inside of a notebook: a frame that has the page's text, no address, and no way to what is around it."""

from __future__ import annotations

import sys
import types

import assay

OUTSIDE = "() => { try { return parent.document.title; } catch (error) { return error.name; } }"


def test_the_page_works_in_a_frame_and_reaches_nothing_around_it(small, open_page, tmp_path, monkeypatch):
    # Given a notebook in which a comparison was shown,
    shown = []
    ipython, display = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    display.HTML, display.display = str, shown.append
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    assay.compare(small.golden, small.mine).show()
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f'<!DOCTYPE html><html data-ready="true"><title>secret</title>{shown[0]}</html>')
    # when it is opened,
    opened = open_page(notebook)
    opened.page.frame_locator("iframe").locator("html[data-ready=true]").wait_for(timeout=30_000)
    frame = opened.page.frames[1]
    # then the page is drawn by its scripts, and its scripts do not see the notebook.
    assert frame.inner_text("h1").startswith("first bad: layers.2.norm")
    assert frame.evaluate(OUTSIDE) == "SecurityError"
    opened.requests = [address for address in opened.requests if address != "about:srcdoc"]
