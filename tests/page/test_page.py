# SPDX-License-Identifier: Apache-2.0
"""The page of two runs: its top, its runs, its file."""

from __future__ import annotations

import re
from pathlib import Path

from page_file import PageFile
from page_scenes import assay

import assay as assay_module


def test_the_sentence_stands_on_top(small, open_page):
    # Given two runs of which one has a fault, when their page is opened,
    page = open_page(small.page).page
    # then its first heading is the sentence of the terminal, which breaks lines where it likes.
    heading = page.inner_text("h1")
    assert heading.startswith("first bad: layers.2.norm (LayerNorm, step 0)")
    assert heading in re.sub(r"\s+", " ", small.said)
    assert page.title() == f"assay: {small.mine} against {small.golden}"


def test_the_sentence_is_there_without_scripts(small, browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(small.page.as_uri())
    assert page.inner_text("h1").startswith("first bad: layers.2.norm")
    context.close()


def test_differences_of_the_environments_come_first(small, open_page):
    page = open_page(small.page, fragment="#view=runs").page
    captions = page.locator("caption").all_inner_texts()
    assert captions[:2] == ["the runs", "what differs between the environments"]
    different = page.locator("table", has=page.locator("caption", has_text="what differs")).inner_text()
    assert "small_model.py --bfloat16 --fault\n" in different  # the command


def test_a_page_ends_with_html(small, tmp_path):
    done = assay("compare", small.golden, small.mine, "-o", tmp_path, "--html", tmp_path / "page.txt", status=2)
    assert "a page ends with .html" in done.stderr
    assert not (tmp_path / "page.txt").exists()


def test_python_writes_the_same_page(small, tmp_path):
    # Given the comparison of the command, when Python compares the same runs,
    result = assay_module.compare(small.golden, small.mine, level="all")
    result.to_html(tmp_path / "page.html")
    # then its page has the same rows and the same verdict.
    ours, theirs = PageFile(tmp_path / "page.html"), PageFile(small.page)
    assert ours.rows == theirs.rows
    assert ours.content["verdict"] == theirs.content["verdict"]


def test_the_page_of_one_run(small, open_page, tmp_path):
    assay("show", small.golden, "--weights", "--html", tmp_path / "command.html")
    assay_module.open(small.golden).to_html(tmp_path / "python.html")
    command, python = (PageFile(tmp_path / f"{name}.html") for name in ("command", "python"))
    assert command.rows == python.rows
    run = assay_module.open(small.golden)
    assert [(row["node"] or "", row["role"]) for row in command.rows] == [(one.node, one.role) for one in run.records]
    assert open_page(tmp_path / "command.html").page.inner_text("h1").startswith("assay run with")


def test_locate_writes_the_page_with_its_verdict(small, tmp_path):
    assay("locate", small.golden, small.mine, "--html", tmp_path / "page.html", status=1)
    page = PageFile(tmp_path / "page.html")
    assert page.content["sentence"].startswith("first bad: layers.2.norm")
    assert len(page.rows) == page.content["counts"]["pairs"] > 0


def test_the_readme_shows_a_picture_of_at_most_200_kb():
    root = Path(__file__).resolve().parents[2]
    assert "](docs/page.png)" in (root / "README.md").read_text()
    assert (root / "docs" / "page.png").stat().st_size <= 200_000
