# SPDX-License-Identifier: Apache-2.0
"""The tree of modules: what is alike stands together, what is wrong apart; names, types and verdicts are found."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from invented_page import invent
from page_file import PageFile
from page_scenes import assay

LINES = """() => [...document.querySelectorAll('[role=treeitem]')].filter((one) => one.checkVisibility()).map((item) =>
  '  '.repeat(item.getAttribute('aria-level') - 1)
  + [...item.firstChild.children].slice(1).map((part) => part.textContent).join(' | '))"""


def lines(page: Any) -> list[str]:
    """Lines that are seen: indentation by level, name, and what stands behind it."""
    page.wait_for_selector('[role="tree"]')
    return page.evaluate(LINES)


def names(page: Any) -> list[str]:
    return [line.split(" | ")[0] for line in lines(page)]


def test_equal_layers_stand_together_and_the_wrong_one_apart(llama, open_page):
    page = open_page(llama.page, fragment="#view=modules").page
    assert [line.strip() for line in names(page)] == [
        "model", "embed_tokens", "rotary_emb", "layers", "0-2 (3 alike)", "3", "input_layernorm", "self_attn",
        "post_attention_layernorm", "mlp", "4", "5", "norm", "lm_head", "(model)",
    ]  # fmt: skip
    norm = next(line for line in lines(page) if line.strip().startswith("input_layernorm"))
    assert "LlamaRMSNorm" in norm and "◆" in norm
    # Each level counts what is wrong below; the other norm has nothing.
    assert sum("◆" in line for line in lines(page)) == 4  # model, layers, 3, input_layernorm


def test_a_badge_has_the_worst_error_below(llama, open_page):
    page = open_page(llama.page, fragment="#view=modules").page
    worst = max(
        row["relative_euclidean_distance"] / row["rounding"]
        for row in PageFile(llama.page).rows
        if (row["module"] or "").startswith("model.layers.3.mlp")
    )
    line = next(line for line in lines(page) if line.strip().startswith("mlp"))
    assert float(re.search(r"([\d.]+) . rounding", line)[1]) == pytest.approx(worst, rel=6e-3)


def test_a_click_opens_the_worst_row(llama, open_page):
    page = open_page(llama.page, fragment="#view=modules").page
    page.get_by_text("input_layernorm", exact=True).click()
    row = PageFile(llama.page).rows[int(re.search(r"row=(\d+)", page.url)[1])]
    assert row["module"] == "model.layers.3.input_layernorm" and row["verdict"] in ("weight", "own_error")


def test_with_the_keyboard_alone(llama, open_page):
    page = open_page(llama.page, fragment="#view=modules").page
    page.wait_for_selector('[role="tree"]')
    page.locator("#tab-modules").focus()
    for _ in range(8):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('role')") == "treeitem":
            break
    focused = "document.activeElement.querySelector('.name').textContent"
    assert page.evaluate(focused) == "model"
    for name in ("embed_tokens", "rotary_emb", "layers", "0-2 (3 alike)"):
        page.keyboard.press("ArrowDown")
        assert page.evaluate(focused) == name
    page.keyboard.press("ArrowRight")  # opens
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    page.keyboard.press("ArrowRight")  # goes in
    assert page.evaluate(focused) == "0"
    page.keyboard.press("ArrowLeft")  # goes out
    page.keyboard.press("ArrowLeft")  # closes
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "false"
    page.keyboard.press("End")
    assert page.evaluate(focused) == "(model)"
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    assert "row=" in page.url


def test_search_by_words_type_and_verdict(llama, open_page):
    page = open_page(llama.page, fragment="#view=modules").page
    page.get_by_label("search", exact=True).fill("LAYERS.4 proj")
    products = [*(f"self_attn.{letter}" for letter in "qkvo"), "mlp.gate", "mlp.up", "mlp.down"]
    assert set(names(page)) == {f"model.layers.4.{product}_proj" for product in products}
    assert "q=LAYERS.4+proj" in page.url
    page.get_by_label("search", exact=True).fill("")
    page.locator("select[name=type]").select_option("LlamaRMSNorm")
    assert len(names(page)) == 13  # two in each of six layers, and the last
    page.locator("select[name=verdict]").select_option("weight")
    assert names(page) == ["model.layers.3.input_layernorm"]
    assert page.locator(".modules [role=status]").inner_text() == "1 module found"


def test_a_run_alone_has_its_tree(llama, open_page, tmp_path):
    assay("show", llama.mine, "--html", tmp_path / "run.html")
    page = open_page(tmp_path / "run.html", fragment="#view=modules").page
    assert [line.strip() for line in names(page)][:2] == ["model", "embed_tokens"]
    assert page.locator(".badge").count() == 0


def test_five_thousand_modules_stay_fast(small, open_page, tmp_path):
    modules = [f"model.layers.{layer}.experts.{expert}.up" for layer in range(50) for expert in range(100)]
    times = [50.0 if module == "model.layers.30.experts.7.up" else 1.0 for module in modules]
    columns = {
        "token_id": [0] * len(modules), "rank": [0] * len(modules), "module": modules, "operator": [""] * len(modules),
        "role": ["output"] * len(modules), "rounding": [1e-3] * len(modules),
        "relative_euclidean_distance": [1e-3 * one for one in times],
        "verdict": ["own_error" if one > 4 else "noise" for one in times], "my_op_type": ["Linear"] * len(modules),
    }  # fmt: skip
    page = invent(small.page, tmp_path / "page.html", columns, verdict=None)
    start = time.monotonic()
    page = open_page(page, fragment="#view=modules").page
    assert [line.strip() for line in names(page)] == [
        "model", "layers", "0-29 (30 alike)", "30", "experts", "0-6 (7 alike)", "7", "up", "8-99 (92 alike)",
        "31-49 (19 alike)",
    ]  # fmt: skip
    page.get_by_label("search", exact=True).fill("experts.99")
    assert len(names(page)) == 100  # the expert and its product in each layer
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_a_telephone(llama, open_page, dark):
    page = open_page(llama.page, width=400, dark=dark, fragment="#view=modules").page
    lines(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
