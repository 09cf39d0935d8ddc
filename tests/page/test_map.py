# SPDX-License-Identifier: Apache-2.0
"""The map of errors and the plot of depth: what they show is what the report says, and everybody can use them."""

from __future__ import annotations

import csv
import math
import re
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import warm_python
from invented_page import invent
from page_file import PageFile
from page_scenes import assay, compared

ENDS = [4, 10, 30, 100, 1e3, 1e4, 1e5]  # of the classes of colour, in roundings
ACCUSING = {"own_error", "weight", "attribute", "constant", "topology", "edge", "gap", "measured_floor", "nan_origin"}


def times_of(row: dict[str, Any]) -> float:
    """The error of a row in units of what rounding explains of it."""
    return row["relative_euclidean_distance"] / (row["noise_floor"] or row["rounding"])


def level_of(row: dict[str, Any]) -> int:
    """Class of colour of a row: 1 equal, 2 within rounding, 3 ... beyond."""
    return 1 if row["relative_euclidean_distance"] == 0 else 2 + sum(times_of(row) >= end for end in ENDS)


HEALTHY = """
import sys, torch, assay
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=16, num_attention_heads=2,
                     num_key_value_heads=2, vocab_size=64, max_position_embeddings=64, pad_token_id=0)
for side, dtype in (("golden", torch.float32), ("mine", torch.bfloat16)):
    torch.manual_seed(2033)
    model = LlamaForCausalLM(config).eval().to(dtype)
    level = "operator" if side == "golden" else "module"
    with torch.no_grad(), assay.capture(model, sys.argv[1] + "/" + side, level=level, weights=True, steps=[0]):
        model(torch.arange(1, 13).unsqueeze(0))
"""

CELLS = """() => {
  const named = (element) => element.getAttribute('aria-label');
  const heads = [...document.querySelectorAll('.map-grid .heads > *')].map(named);
  const lines = [...document.querySelectorAll('.map-grid .map-line:not(.heads)')];
  const cell = (one) => ({ kind: one.className, row: one.dataset.row === undefined ? null : Number(one.dataset.row),
                           label: named(one), text: one.textContent });
  return lines.flatMap((line) => [...line.children].slice(1).map((one, i) =>
    [named(line.firstChild).replace(/ \\(\\d+ places?\\)$/, ''), heads[i + 1], cell(one)]));
}"""


def shown(page: Any) -> dict[tuple[str, str], Any]:
    """Cells of the map by (place, column): class, row, words, text."""
    page.wait_for_selector(".map-grid .map-cell")
    return {(place, column): cell for place, column, cell in page.evaluate(CELLS)}


def report_rows(scene: Any, folder: Path) -> dict[tuple[str, str], dict[str, str]]:
    """Rows of a csv report by node and step."""
    assay("compare", scene.golden, scene.mine, "-o", folder, "-cl", "api", "--verdict", status=None)
    (path,) = folder.glob("msit_cmp_report_*.csv")
    with open(path, newline="", encoding="utf-8") as file:
        return {(row["node"], row["token_id"]): row for row in csv.DictReader(file)}


def as_shown(text: str) -> Any:
    """Numbers of the page have three digits or four."""
    return pytest.approx(float(text), rel=5.1e-3 if float(text) < 1e-3 else 5.1e-4)


@pytest.mark.parametrize(
    ("scene", "place", "column"),
    [("small", "layers.2.norm", "weights"), ("llama", "model.layers.3.input_layernorm", "weights")],
)
def test_the_marked_cell_is_the_planted_fault(scene, place, column, request, open_page):
    scene = request.getfixturevalue(scene)
    page = open_page(scene.page).page
    marked = {key: cell for key, cell in shown(page).items() if "first" in cell["kind"].split()}
    assert list(marked) == [(place, column)]
    (cell,) = marked.values()
    assert cell["row"] == PageFile(scene.page).content["verdict"]["candidate_rows"][0]
    assert cell["label"].startswith(f"first bad: {place} (weight): ")
    assert "wrong" in cell["kind"].split() and "◆" in cell["text"]
    # The words stand below the ring.
    callout = page.locator(".map-cell.first .map-callout").last
    assert callout.inner_text() == f"first bad: {place} (weight)"
    assert callout.bounding_box()["y"] > page.locator(".map-cell.first").bounding_box()["y"]


def test_each_cell_is_the_worst_of_its_place_and_step(llama, open_page):
    # Given the rows of the page by layer (or module outside of layers) and step, read without a browser,
    rows = PageFile(llama.page).rows
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for number, row in enumerate(rows):
        layer = re.match(r"model\.layers\.\d+", row["module"] or "")
        step = "weights" if row["token_id"] == -1 else f"step {row['token_id']}"
        groups[layer[0] if layer else (row["module"] or "(model)"), step].append(row | {"number": number})
    # when no layer is open,
    cells = shown(open_page(llama.page, fragment="#open=-").page)
    # then there is a cell for each group, coloured by the worst row in it, and no other.
    assert {key for key, cell in cells.items() if cell["row"] is not None} == set(groups)
    for key, group in groups.items():
        kinds = cells[key]["kind"].split()
        accused = [row for row in group if row["verdict"] in ACCUSING]
        if accused:
            assert "wrong" in kinds, key
            assert cells[key]["row"] in {row["number"] for row in accused}
        else:
            assert f"level-{max(map(level_of, group))}" in kinds, key
            assert math.isclose(times_of(rows[cells[key]["row"]]), max(map(times_of, group)), rel_tol=1e-4)


def test_numbers_are_those_of_the_csv_report(llama, open_page, tmp_path):
    report = report_rows(llama, tmp_path)
    page = open_page(llama.page).page
    rows = PageFile(llama.page).rows
    page.wait_for_selector(".map-grid .map-cell")
    checked = 0
    for cell in page.locator(".map-grid .map-cell[data-row]").all():
        row = rows[int(cell.get_attribute("data-row"))]
        expected = report[row["node"], str(row["token_id"])]
        cell.hover()
        tip = dict(zip(page.locator(".tip dt").all_inner_texts(), page.locator(".tip dd").all_inner_texts()))
        assert float(tip["error"].removesuffix(" relative L2")) == as_shown(expected["relative_euclidean_distance"])
        assert tip["verdict"] == expected["verdict"].replace("_", " ")
        if expected["err_own"]:
            assert float(tip["own error"]) == as_shown(expected["err_own"])
        checked += 1
        if checked == 40:
            break
    assert checked == 40


def test_own_errors_are_shown_apart(llama, open_page):
    page = open_page(llama.page).page
    before = shown(page)
    # Behind the fault everything inherits it,
    assert "level-" in before["model.layers.4", "step 0"]["kind"]
    page.get_by_role("button", name="own error").click()
    assert "errors=own" in page.url
    after = shown(page)
    # but adds nothing of its own; the place of the fault stays marked.
    assert "level-2" in after["model.layers.4", "step 0"]["kind"].split()
    assert [key for key, cell in after.items() if "wrong" in cell["kind"].split()] == [
        key for key, cell in before.items() if "wrong" in cell["kind"].split()
    ]
    page.go_back()
    assert shown(page) == before


def test_with_the_keyboard_alone(llama, open_page):
    page = open_page(llama.page, fragment="#open=-").page
    page.wait_for_selector(".map-grid .map-cell")
    page.locator("#tab-map").focus()
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('role')") == "grid":
            break
    active = page.locator("#map-active")
    assert page.evaluate("document.activeElement.getAttribute('aria-activedescendant')") == "map-active"
    # To the head of the line of layer 3, which Enter opens,
    page.keyboard.press("Home")
    while not active.get_attribute("aria-label").startswith("model.layers.3"):
        page.keyboard.press("ArrowDown")
    assert active.get_attribute("aria-expanded") == "false"
    page.keyboard.press("Enter")
    assert active.get_attribute("aria-expanded") == "true"
    # down to the norm, and right to the weights: Enter opens the row.
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert active.get_attribute("aria-label").startswith("first bad: model.layers.3.input_layernorm")
    assert page.locator(".tip dl").is_visible()
    outline = page.evaluate("getComputedStyle(document.querySelector('#map-active')).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    assert f"row={PageFile(llama.page).content['verdict']['candidate_rows'][0]}" in page.url
    # Escape leads back. Up to the head of a step, which the plot is of then.
    page.keyboard.press("Escape")
    assert "row=" not in page.url
    assert page.evaluate("document.activeElement.getAttribute('role')") == "grid"
    assert active.get_attribute("aria-label").startswith("first bad: model.layers.3.input_layernorm")
    page.keyboard.press("End")
    for _ in range(60):
        page.keyboard.press("ArrowUp")
    assert active.get_attribute("role") == "columnheader"
    page.keyboard.press("Enter")
    assert "step=2" in page.url
    assert page.locator(".plot-part h3").inner_text() == "Error against depth, step 2"


def test_a_click_on_a_layer_opens_it_and_closes_the_other(llama, open_page):
    page = open_page(llama.page).page
    places = {place for place, _ in shown(page)}
    assert "model.layers.3.mlp" in places and "model.layers.1.mlp" not in places
    page.get_by_role("rowheader", name="model.layers.1").click()
    places = {place for place, _ in shown(page)}
    assert "model.layers.1.mlp" in places and "model.layers.3.mlp" not in places
    assert "open=model.layers.1" in page.url


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_every_colour_is_in_the_legend(llama, open_page, width, dark):
    page = open_page(llama.page, width=width, dark=dark).page
    kinds = {kind for cell in shown(page).values() for kind in cell["kind"].split()}
    used = {kind for kind in kinds if kind.startswith(("level", "wrong"))}
    colours = page.evaluate(
        """(kinds) => kinds.map((kind) => ['.map-grid', '.map-legend'].map((part) =>
             getComputedStyle(document.querySelector(`${part} .map-cell.${kind}`)).background))""",
        sorted(used),
    )
    assert len(used) >= 3
    assert all(in_map == in_legend for in_map, in_legend in colours)
    assert len({in_map for in_map, _ in colours}) == len(used)  # different words, different colours
    # Nothing is wider than the window.
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_plot_tells_its_facts_and_answers_to_keys(llama, open_page, tmp_path):
    report = report_rows(llama, tmp_path)
    page = open_page(llama.page).page
    plot = page.locator("svg.depth[aria-label]")  # drawn when its width is known
    words = plot.get_attribute("aria-label")
    assert words.startswith("Error against depth, step 0: ")
    assert "first bad: model.layers.3.input_layernorm (weight)" in words
    assert page.locator("svg.depth .first-line").count() == 1
    # The cursor begins at the first bad one; keys move it and tell the value.
    plot.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    expected = report["model.layers.3.input_layernorm output", "0"]["relative_euclidean_distance"]
    said = page.locator(".plot-part [role=status]").inner_text()
    place, _, value = said.partition(": error ")
    assert place == "model.layers.3.input_layernorm" and float(value) == as_shown(expected)
    page.keyboard.press("Enter")
    opened = PageFile(llama.page).rows[int(re.search(r"row=(\d+)", page.url)[1])]
    assert opened["node"] == "model.layers.3.input_layernorm output" and opened["token_id"] == 0
    # Another step is another plot.
    page.locator("select[name=step]").select_option("1")
    assert page.locator("svg.depth").get_attribute("aria-label").startswith("Error against depth, step 1: ")


def test_equal_runs_are_equal_everywhere(small, open_page, tmp_path):
    page = tmp_path / "page.html"
    assay("compare", small.golden, small.golden, "-o", tmp_path, "--html", page)
    cells = shown(open_page(page).page)
    kinds = {cell["kind"] for cell in cells.values()}
    assert kinds == {"map-cell level-1", "map-cell absent"}
    assert {cell["label"].split(": ")[1] for cell in cells.values()} == {"equal", "not captured"}
    assert {row["verdict"] for row in PageFile(page).rows} == {"equal"}


def test_a_clean_run_is_not_blue(open_page, tmp_path):
    # Given a run that is healthy, of another type, whose errors add up to more than four roundings,
    subprocess.run([warm_python.python(), "-c", HEALTHY, str(tmp_path)], check=True, capture_output=True)
    scene = compared(tmp_path / "golden", tmp_path / "mine", tmp_path)
    file = PageFile(scene.page)
    assert file.content["tone"] == "good", scene.said
    assert max(times_of(row) for row in file.rows if row["rounding"]) > 4
    # then no cell and no line of the legend says that it is beyond.
    page = open_page(scene.page).page
    kinds = {kind for cell in shown(page).values() for kind in cell["kind"].split()}
    assert kinds <= {"map-cell", "absent", "level-0", "level-1", "level-2"}
    legend = page.locator(".map-legend").first.inner_text()
    assert "explained by rounding" in legend and "times what rounding explains" not in legend


@pytest.mark.parametrize("width", [1280, 400])
def test_a_click_moves_nothing_and_the_tip_covers_nothing(llama, open_page, width):
    page = open_page(llama.page, width=width, height=900).page
    page.wait_for_selector(".map-grid .map-cell")
    cell = page.locator(".map-grid .map-cell[data-row]").nth(4)
    cell.scroll_into_view_if_needed()
    cell.hover()
    tip, grid = (page.locator(name).bounding_box() for name in (".tip", ".map-grid"))
    apart = [
        tip["x"] >= grid["x"] + grid["width"],
        tip["y"] >= grid["y"] + grid["height"],
        tip["y"] + tip["height"] <= grid["y"],
    ]
    assert any(apart), (tip, grid)
    every = (
        "[...document.querySelectorAll('.map-grid .map-cell')].map((one) => { const b = one.getBoundingClientRect();"
    )
    every += " return [b.x, b.y, b.width]; })"
    before = page.evaluate(every)
    cell.click()
    page.wait_for_selector(".tensor:not([hidden]) h2")
    page.wait_for_timeout(200)  # for what answers to another width
    assert page.evaluate(every) == before
    assert not page.locator(".tip").is_visible()
    heading = page.locator(".tensor h2").bounding_box()
    assert 0 <= heading["y"] < 900 - heading["height"]


# ---- runs of other kinds ----


def rows_of(*places: tuple[Any, ...], **others: Any) -> dict[str, list[Any]]:
    """Columns of rows (step, rank, module, operator, times rounding, verdict); `others` are the same in all rows."""
    names = ["token_id", "rank", "module", "operator", "times", "verdict"]
    columns: dict[str, list[Any]] = {name: [place[i] for place in places] for i, name in enumerate(names)}
    times = columns.pop("times")
    columns["relative_euclidean_distance"] = [None if one is None else one * 1e-3 for one in times]
    columns["node"] = [f"{module} output" for module in columns["module"]]
    fixed = {"role": "output", "rounding": 1e-3} | others
    return columns | {name: [value] * len(places) for name, value in fixed.items()}


@pytest.fixture
def invented(small, open_page, tmp_path):
    """invented(rows, **content of the page) opens a page with these rows."""

    def open_rows(columns: dict[str, list[Any]], fragment: str = "", **content: Any) -> Any:
        content = {"verdict": None, "sentence": "invented", "tone": "open"} | content
        page = invent(small.page, tmp_path / "invented.html", columns, **content)
        return open_page(page, fragment=fragment).page

    return open_rows


def test_what_a_cell_can_be(invented):
    page = invented(
        rows_of(
            (0, 0, "equal", "", 0.0, "noise"),
            (0, 0, "within", "", 3.9, "noise"),
            (0, 0, "beyond", "", 4.1, "drift"),
            (0, 0, "far", "", 2e5, "inherited"),
            (0, 0, "unread", "", None, ""),
            (0, 0, "broken", "", 1.0, "nan_inherited"),
            (0, 0, "origin", "", 1.0, "nan_origin"),
            (0, 0, "grown", "", 50.0, "amplified"),
            (1, 0, "equal", "", 0.0, "noise"),
        )
    )
    cells = {place: (cell["kind"], cell["text"]) for (place, column), cell in shown(page).items() if column == "step 0"}
    assert cells == {
        "equal": ("map-cell level-1", ""),
        "within": ("map-cell level-2", ""),
        "beyond": ("map-cell level-3", "4.1"),
        "far": ("map-cell level-9", "2e5"),
        "unread": ("map-cell level-0", ""),
        "broken": ("map-cell level-10", "✕"),
        "origin": ("map-cell wrong", "◆"),
        "grown": ("map-cell level-5", "▴50"),
    }
    assert shown(page)["far", "step 1"]["kind"] == "map-cell absent"
    legend = page.locator(".map-legend").first.inner_text()
    words = "wrong by itself|equal|within rounding|grew here|NaN or infinity|not judged|not captured"
    assert [one for one in words.split("|") if one not in legend] == []


def test_layers_of_every_engine_are_folded(invented):
    page = invented(
        rows_of(
            (0, 0, "model.layers.10.mlp", "", 5.0, "drift"),
            (0, 0, "model.layers.10", "", 5.0, "drift"),
            (0, 0, "model.layers.2.experts.7.up", "", 5.0, "drift"),
            (0, 0, "model.layers.2.experts.7.down", "", 5.0, "drift"),
            (0, 0, "model.layers.2.norm", "", 5.0, "drift"),
            (0, 0, "3_Prefill_layer/0_Norm", "", 5.0, "drift"),
            (0, 0, "3_Prefill_layer/1_Mlp/0_Linear", "", 5.0, "drift"),
            (0, 0, "3_Prefill_layer", "", 5.0, "drift"),
            (0, 0, "attn_norm-4", "ggml.mul.0", 5.0, "drift"),
            (0, 0, "cache_k_l4 (view)", "ggml.set_rows.0", 5.0, "drift"),
            (0, 0, "blk.5.attn.weight", "", 5.0, "drift"),
            (0, 0, "blk.5.norm.weight", "", 5.0, "drift"),
            (0, 0, "norm", "aten.mul.Tensor.0", 5.0, "drift"),
            (0, 0, "norm", "aten.rsqrt.default.0", 5.0, "drift"),
            (0, 0, "", "", 5.0, "drift"),
        )
    )
    assert list(dict.fromkeys(place for place, _ in shown(page))) == [
        "model.layers.10", "model.layers.2", "3_Prefill_layer", "layer 4", "blk.5", "norm", "(model)",
    ]  # fmt: skip
    page.get_by_role("rowheader", name="model.layers.2").click()
    assert [place for place, _ in shown(page)][1:4] == [
        "model.layers.2", "model.layers.2.experts.7", "model.layers.2.norm",
    ]  # fmt: skip


def test_places_that_only_later_steps_have_stand_where_they_run(invented):
    first = [(0, 0, name, "", 1.0, "noise") for name in ("a", "c")]
    second = [(1, 0, name, "", 1.0, "noise") for name in ("a", "b", "c")]
    page = invented(rows_of(*first, *second))
    assert list(dict.fromkeys(place for place, _ in shown(page))) == ["a", "b", "c"]


def test_an_unknown_order_is_said(invented):
    page = invented(rows_of((0, 0, "a", "", 1.0, "noise")), order_known=False)
    page.wait_for_selector(".map-grid .map-cell")
    assert "that of execution is not known" in page.inner_text(".map")
    assert "order of the report" in page.locator("svg.depth").text_content()


def test_names_stay_text(invented):
    name = "</script><img src=x onerror=alert(1)>\x1b[31m" + "x" * 500
    page = invented(rows_of((0, 0, name, "", 40.0, "own_error"), (0, 0, "b", "", 1.0, "noise")))
    assert (name, "step 0") in shown(page)
    page.locator(".map-grid .map-cell.wrong").hover()
    assert page.locator(".tip").is_visible()
    assert page.locator("img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_several_ranks_stand_side_by_side(invented):
    page = invented(
        rows_of(*[(step, rank, "a", "", 50.0 if rank == 1 else 1.0, "noise") for step in (0, 1) for rank in (0, 1)])
    )
    kinds = {column: cell["kind"] for (_, column), cell in shown(page).items()}
    assert kinds == {
        "step 0, rank 0": "map-cell level-2", "step 0, rank 1": "map-cell level-5",
        "step 1, rank 0": "map-cell level-2", "step 1, rank 1": "map-cell level-5",
    }  # fmt: skip
    page.locator("select[name=rank]").select_option("1")
    assert page.locator(".plot-part h3").inner_text() == "Error against depth, step 0, rank 1"


def test_a_thousand_steps_share_columns_and_a_click_shows_them(invented):
    # Given 100 layers over 1000 steps, of which one step of one layer is wrong,
    rows = [
        (step, 0, f"layers.{layer}", "", 50.0 if wrong else 1.0, "own_error" if wrong else "noise")
        for step in range(1000)
        for layer in range(100)
        for wrong in [step == 777 and layer == 42]
    ]
    page = invented(rows_of(*rows))
    cells = shown(page)
    # then columns are of neighbouring steps, and the wrong one is seen.
    columns = list(dict.fromkeys(column for _, column in cells))
    assert 20 < len(columns) < 80
    ((place, column),) = [key for key, cell in cells.items() if "wrong" in cell["kind"].split()]
    assert place == "layers.42"
    first, last = map(int, re.fullmatch(r"steps (\d+)-(\d+)", column).groups())
    assert first <= 777 <= last
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    # When its head is clicked each step has a column; a button leads back.
    page.locator(f'.map-column-head[aria-label="{column}"]').click()
    cells = shown(page)
    assert [key for key, cell in cells.items() if "wrong" in cell["kind"].split()] == [("layers.42", "step 777")]
    page.get_by_role("button", name="show all steps").click()
    assert list(dict.fromkeys(column for _, column in shown(page))) == columns


def test_thousands_of_places_without_layers_come_in_parts(invented):
    page = invented(rows_of(*[(0, 0, f"Add_{i}", "", 200.0 if i == 1234 else 1.0, "noise") for i in range(3000)]))
    lines = [(place, cell["kind"]) for (place, _), cell in shown(page).items()]
    assert len(lines) == 60
    assert [place for place, kind in lines if kind != "map-cell level-2"] == ["Add_1200 … Add_1249"]
    page.get_by_role("rowheader", name="Add_1200 … Add_1249").click()
    assert shown(page)["Add_1234", "step 0"]["kind"] == "map-cell level-6"


def test_weights_have_a_column_of_their_own(invented):
    columns = rows_of((None, None, "blk.0.a.weight", "", 50.0, ""), (None, None, "blk.0.b.weight", "", 0.0, ""))
    columns["weight_name"] = columns.pop("node")
    page = invented(columns)
    assert shown(page)["blk.0", "weights"]["kind"] == "map-cell level-5"
    assert page.locator(".plot-part h3").inner_text() == "Error against depth, weights"
