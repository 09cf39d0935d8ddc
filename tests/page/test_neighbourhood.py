# SPDX-License-Identifier: Apache-2.0
"""The graph around the suspect: what is drawn is what the runs tell, and every node opens its row."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from page_file import PageFile
from page_scenes import until
from test_tensor import hostile  # noqa: F401  a fixture


def graph_of(scene: Any) -> dict[str, Any]:
    return json.loads(PageFile(scene.page).blobs["graph"])


def shown(open_page: Any, scene: Any, **options: Any) -> Any:
    page = open_page(scene.page, fragment="#view=graph", **options).page
    page.wait_for_selector("svg.graph")
    return page


def place(page: Any, node: dict[str, Any]) -> dict[str, float]:
    return page.locator(f'.graph .node[data-id="{node["id"]}"] rect').bounding_box()


def test_the_centre_is_the_suspect(llama, open_page):
    page = shown(open_page, llama)
    first = PageFile(llama.page).content["verdict"]["first_bad"]["module"]
    centre = page.locator(".graph .centre")
    assert centre.count() == 1
    assert first in centre.locator("title").text_content()
    # It is in sight although the graph is larger than its box.
    box, outer = centre.locator("rect").bounding_box(), page.locator(".graph-box").bounding_box()
    assert outer["x"] <= box["x"] and box["x"] + box["width"] <= outer["x"] + outer["width"]
    assert outer["y"] <= box["y"] and box["y"] + box["height"] <= outer["y"] + outer["height"]


def test_data_flow_downwards(llama, open_page):
    # Producers stand above their consumers, and no two nodes overlap.
    page, graph = shown(open_page, llama), graph_of(llama)
    boxes = {node["id"]: place(page, node) for node in graph["nodes"]}
    for edge in graph["edges"]:
        assert boxes[edge["from"]]["y"] < boxes[edge["to"]]["y"], edge
    for name, one in boxes.items():
        for other_name, other in boxes.items():
            apart = (
                one["x"] + one["width"] <= other["x"]
                or other["x"] + other["width"] <= one["x"]
                or one["y"] + one["height"] <= other["y"]
                or other["y"] + other["height"] <= one["y"]
            )
            assert name == other_name or apart, (name, other_name)


def test_edges_tell_types_and_shapes(llama, open_page):
    page, graph = shown(open_page, llama), graph_of(llama)
    told = " ".join(page.locator(".graph g.edge title").all_text_contents())
    for edge in graph["edges"]:
        assert edge["label"] in told
    # The norm of layer 3 reads what layer 2 gave: 12 tokens of 64 channels.
    assert "bfloat16 [1, 12, 64]" in page.locator(".graph g.edge text").all_text_contents()


def test_a_click_opens_the_row(llama, open_page):
    page, graph = shown(open_page, llama), graph_of(llama)
    file = PageFile(llama.page)
    node = next(node for node in graph["nodes"] if node["row"] is not None and node["id"] != graph["centre"])
    page.locator(f'.graph .node[data-id="{node["id"]}"]').click()
    page.wait_for_selector(".tensor h2")
    assert page.inner_text(".tensor h2") == file.rows[node["row"]]["node"]
    assert f"row={node['row']}" in page.url


def test_keyboard_goes_from_producers_to_consumers(llama, open_page):
    page = shown(open_page, llama)
    page.focus(".graph-box")
    seen = []
    top = "document.activeElement.getBBox().y"
    count = page.locator('.graph [role="button"]').count()
    for _ in range(count):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(top))
    # Nodes of one layer differ in height.
    assert count > 3 and all(one <= other + 40 for one, other in zip(seen, seen[1:])), seen
    focused = page.evaluate("document.activeElement.dataset.id")
    page.keyboard.press("Enter")
    page.wait_for_selector(".tensor h2")
    node = next(node for node in graph_of(llama)["nodes"] if node["id"] == focused)
    assert f"row={node['row']}" in page.url
    page.keyboard.press("Escape")
    page.wait_for_selector(".tensor", state="hidden")
    assert page.evaluate("document.activeElement.dataset.id") == focused


def test_links_of_a_row_lead_to_producers_and_consumers(llama, open_page):
    # Given the row of the norm's result, when its panel is open,
    file = PageFile(llama.page)
    rows = [row for row in file.rows]
    row = next(
        i
        for i, one in enumerate(rows)
        if one["module"] == "model.layers.3.input_layernorm" and one["role"] == "output" and one["token_id"] == 0
    )
    page = open_page(llama.page, fragment=f"#row={row}").page
    links = page.locator(".tensor ul.plain button").all_inner_texts()
    # then the projections that read it are links, and one of them opens the row of that projection.
    wanted = [f"model.layers.3.self_attn.{name}_proj" for name in "qkv"]
    assert set(wanted) <= set(links)
    page.click(f'.tensor ul.plain button:text-is("{wanted[0]}")')
    until(page, "name => document.querySelector('.tensor h2').textContent.startsWith(name)", wanted[0])


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_scrolls_in_its_own_box(llama, open_page, dark):
    page = shown(open_page, llama, width=400, dark=dark)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.evaluate("document.querySelector('.graph-box').scrollWidth") > 400


def test_what_is_cut_is_counted(llama, open_page):
    page, graph = shown(open_page, llama), graph_of(llama)
    marks = page.locator(".graph .cut").all_text_contents()
    counts = sorted(
        node[key] for node in graph["nodes"] for key in ("more_producers", "more_consumers") if node[key] > 0
    )
    assert sorted(int(re.match(r"\+(\d+) more", mark).group(1)) for mark in marks) == counts


def test_hostile_names_are_text_in_the_graph(hostile, open_page):  # noqa: F811
    page, graph = shown(open_page, hostile), graph_of(hostile)
    for node in graph["nodes"]:
        drawn = page.locator(f'.graph .node[data-id="{node["id"]}"]')
        assert node["name"] in drawn.locator("title").text_content()
        for line in drawn.locator("text").all_text_contents():
            assert len(line) <= 45
    assert page.title().startswith("assay: ")
