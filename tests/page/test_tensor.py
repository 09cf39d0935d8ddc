# SPDX-License-Identifier: Apache-2.0
"""The panel of one pair of tensors: its numbers are those that torch gets from the runs; keyboard; hostile names."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import numpy as np
import pytest
import torch
import warm_python
from page_file import PageFile
from page_scenes import Scene, assay, compared, until
from test_accessibility import serious_faults

import assay as assay_module

DIGITS = 5e-3  # numbers below 0.001 are shown with three digits
NAMES = ["</script><script>document['title']='x'</script>", "\"quoted' & <b>", "escape \x1b[31m red", "n" * 500]


class Rows:
    """The rows of a scene's page, and the tensors behind them as torch reads them from the runs."""

    def __init__(self, scene: Scene) -> None:
        self.file = PageFile(scene.page)
        self.runs = [assay_module.open(scene.golden), assay_module.open(scene.mine)]

    def find(self, **wanted: Any) -> int:
        """The only row with these cells."""
        found = [i for i, row in enumerate(self.file.rows) if all(row[name] == value for name, value in wanted.items())]
        assert len(found) == 1, found
        return found[0]

    def tensors(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """golden and mine in double precision."""
        row = self.file.rows[index]
        node, slot = row["module"], row["slot"] or ""
        chosen = [run.records.select(node, step=row["token_id"], role=row["role"], slot=slot) for run in self.runs]
        assert [len(records) for records in chosen] == [1, 1]
        golden, mine = (records[0].torch().double() for records in chosen)
        return golden, mine

    @property
    def suspect(self) -> int:
        return int(self.file.content["verdict"]["candidate_rows"][0])


@pytest.fixture(scope="module")
def llama_rows(llama):
    return Rows(llama)


def mlp_row(rows: Rows) -> int:
    return rows.find(module="model.layers.3.mlp", role="output", token_id=0)


def opened(open_page: Any, scene: Scene, row: int, extra: str = "", **options: Any) -> Any:
    page = open_page(scene.page, fragment=f"#row={row}{extra}", **options).page
    page.wait_for_selector(".heat canvas")
    return page


def numbers(text: str) -> list[float]:
    return [float(word) for word in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", text)]


def small_table(page: Any, caption: str) -> list[list[str]]:
    rows = page.locator("table", has=page.locator("caption", has_text=caption)).locator("tbody tr")
    return [rows.nth(i).locator("td").all_inner_texts() for i in range(rows.count())]


def test_from_verdict_to_element_in_three_clicks(small, open_page):
    page = open_page(small.page).page
    page.click("text=Open the suspect")  # 1: the panel, with the worst elements in it
    page.wait_for_selector(".tensor .heat")
    assert page.inner_text(".tensor h2").startswith("layers.2.norm")
    page.locator(".worst button").first.click()  # 2
    ring = page.locator(".heat .pointed")
    ring.wait_for()
    # The first worst element of the details is the one that is ringed.
    rows = Rows(small)
    details = json.loads(rows.file.blobs[f"details-{rows.suspect}"])
    index = details["worst"][0]["index"]
    assert page.locator(".readout").inner_text().startswith("Ringed: ")
    assert ring.get_attribute("data-column") == str(index[-1])
    assert "element=0" in page.url


def test_statistics_are_those_of_torch(llama, llama_rows, open_page):
    row = mlp_row(llama_rows)
    page = opened(open_page, llama, row)
    golden, mine = llama_rows.tensors(row)
    told = {cells[0]: cells[1:] for cells in small_table(page, "both sides")}
    assert told["dtype"] == ["torch.float32", "torch.bfloat16"]
    assert told["shape"] == ["[1, 12, 64]"] * 2
    for name, value in [("min", torch.min), ("max", torch.max), ("mean", torch.mean), ("L2 norm", torch.norm)]:
        expected = [float(value(golden)), float(value(mine))]
        assert [float(cell) for cell in told[name]] == pytest.approx(expected, rel=DIGITS), name
    assert told["NaN"] == told["infinite"] == ["0", "0"]
    # Measured: relative L2 distance, largest difference.
    facts = page.locator(".tensor .facts").all_inner_texts()
    text = "\n".join(facts)
    distance = float((mine - golden).norm() / golden.norm())
    assert numbers(text.split("relative L2 distance")[1])[0] == pytest.approx(distance, rel=DIGITS)
    largest = float((mine - golden).abs().max())
    assert numbers(text.split("largest |mine - golden|")[1])[0] == pytest.approx(largest, rel=DIGITS)


def test_worst_elements_are_those_of_torch(llama, llama_rows, open_page):
    row = mlp_row(llama_rows)
    page = opened(open_page, llama, row, "&element=1")
    golden, mine = llama_rows.tensors(row)
    difference = (mine - golden).abs()
    shown = small_table(page, "largest first")
    expected = difference.flatten().sort(descending=True).values[: len(shown)]
    assert len(shown) == 8
    for cells, error in zip(shown, expected):
        index = tuple(int(place) for place in json.loads(cells[0]))
        told = [float(cell) for cell in cells[1:4]]
        assert told == pytest.approx([float(golden[index]), float(mine[index]), float(error)], rel=DIGITS)
    # Neighbours of the second one, along the last axis.
    index = json.loads(shown[1][0])
    near = {cells[0]: [float(cell) for cell in cells[1:]] for cells in small_table(page, "around")}
    first, last = max(0, index[2] - 3), min(63, index[2] + 3)
    line = slice(first, last + 1)
    assert near["golden"] == pytest.approx(golden[index[0], index[1], line].tolist(), rel=DIGITS)
    assert near["mine"] == pytest.approx(mine[index[0], index[1], line].tolist(), rel=DIGITS)


def point(page: Any, down: int, rows: int, across: int, columns: int) -> str:
    """Points at the middle of a cell of the heat map; returns what is said of it."""
    box = page.locator(".heat canvas").bounding_box()
    page.mouse.move(box["x"] + (across + 0.5) * box["width"] / columns, box["y"] + (down + 0.5) * box["height"] / rows)
    return str(page.inner_text(".readout"))


@pytest.mark.parametrize("width", [1280, 400])
def test_a_hover_tells_what_torch_says(llama, llama_rows, open_page, width):
    row = mlp_row(llama_rows)
    page = opened(open_page, llama, row, width=width)
    golden, mine = llama_rows.tensors(row)
    difference = (mine - golden).abs()[0]  # 12 x 64: each cell is one element
    page.locator(".heat canvas").scroll_into_view_if_needed()
    for down, across in [(0, 0), (5, 17), (11, 63)]:
        said = point(page, down, 12, across, 64)
        assert said.startswith(f"axis 1 {down}, axis 2 {across}: ")
        told, true = numbers(said)[-1], float(difference[down, across])
        assert "no difference" in said if true == 0 else told == pytest.approx(true, rel=0.05)  # codes: 1/8 octave


def test_other_axes_are_joined(llama, llama_rows, open_page):
    # Given the queries of four heads, when heads are chosen down and channels across,
    row = next(
        i
        for i in range(len(llama_rows.file.rows))
        if llama_rows.file.rows[i]["my_shape"] == "[1, 12, 64]" and f"details-{i}" in llama_rows.file.blobs
    )
    page = opened(open_page, llama, row)
    golden, mine = llama_rows.tensors(row)
    difference = (mine - golden).abs()[0]
    # then the profile along an axis is the largest over all others, and the RMS over them.
    titles = page.locator(".profile").nth(1).locator("title").all_text_contents()
    assert len(titles) == 64
    for channel in (0, 31, 63):
        place, largest, rms = numbers(titles[channel].replace("axis 2 ", ""))
        assert place == channel
        assert largest == pytest.approx(float(difference[:, channel].max()), rel=0.05)
        assert rms == pytest.approx(float(difference[:, channel].square().mean().sqrt()), rel=0.05)


def test_histograms_count_every_value(llama, llama_rows, open_page):
    row = mlp_row(llama_rows)
    page = opened(open_page, llama, row)
    golden, mine = llama_rows.tensors(row)
    ulp, values = (page.locator(".histogram").nth(i).locator(".hit title").all_text_contents() for i in (0, 1))
    assert sum(int(re.search(r"ULP: (\d+)", title).group(1)) for title in ulp) == golden.numel()
    for title in values:
        low, high, ours, theirs = numbers(title.replace(" to ", " "))
        if ours + theirs == 0:
            continue
        slack = 1e-3 * max(abs(low), abs(high))  # edges are told with four digits
        for tensor, count in ((golden, ours), (mine, theirs)):
            assert int(((tensor > low + slack) & (tensor < high - slack)).sum()) <= count
            assert int(((tensor >= low - slack) & (tensor <= high + slack)).sum()) >= count


def test_keyboard_only(small, open_page):
    page = open_page(small.page).page
    page.focus("text=Open the suspect")
    page.keyboard.press("Enter")
    until(page, "document.activeElement.tagName === 'H2'")  # focus goes in
    assert page.evaluate("document.querySelector('.tensor').contains(document.activeElement)")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate(
            "document.activeElement.closest('.worst') !== null && document.activeElement.tagName === 'BUTTON'"
        ):
            break
    page.keyboard.press("Enter")
    page.wait_for_selector(".heat .pointed")
    page.focus(".heat-plot")
    ringed = page.locator(".heat .pointed").get_attribute("data-column")
    page.keyboard.press("ArrowRight" if ringed == "0" else "ArrowLeft")
    assert page.locator(".heat .cursor").get_attribute("data-column") != ringed
    page.keyboard.press("Escape")
    page.wait_for_selector(".tensor", state="hidden")
    assert page.evaluate("document.activeElement.textContent") == "Open the suspect"  # and comes back
    assert "row=" not in page.url and "element=" not in page.url


def test_rows_before_and_after_and_other_steps(llama, llama_rows, open_page):
    row = mlp_row(llama_rows)
    page = opened(open_page, llama, row)
    page.focus("#tensor-after")
    page.keyboard.press("Enter")
    after = llama_rows.file.rows[row + 1]["node"]
    until(page, "text => document.querySelector('.tensor h2').textContent === text", after)
    assert page.evaluate("document.activeElement.id") == "tensor-after"  # the reader goes on with Enter
    page.click("#tensor-before")
    # The link changes at once, the panel when its data are unpacked: the choice of steps is the panel's.
    before = llama_rows.file.rows[row]["node"]
    until(page, "text => document.querySelector('.tensor h2').textContent === text", before)
    assert f"row={row}" in page.url
    options = page.locator("#tensor-step option").all_inner_texts()
    assert options == ["0", "1", "2"]
    page.select_option("#tensor-step", label="2")
    other = llama_rows.find(module="model.layers.3.mlp", role="output", token_id=2)
    until(page, f"location.hash.includes('row={other}')")


def test_the_word_of_the_verdict_is_explained(llama, llama_rows, open_page):
    row = mlp_row(llama_rows)
    page = opened(open_page, llama, row)
    word = llama_rows.file.rows[row]["verdict"].replace("_", " ")
    assert page.inner_text(".judgement").lower().startswith(word)
    assert len(page.inner_text(".judgement")) > len(word) + 20
    told = page.locator(".tensor .facts").nth(1).inner_text()
    assert numbers(told.split("error of this tensor")[1])[0] == pytest.approx(
        llama_rows.file.rows[row]["err_out"], rel=DIGITS
    )


def test_a_row_without_details_says_how_to_get_them(small, open_page, tmp_path):
    # Given a page with the details of no row but those asked for,
    rows = Rows(small)
    without = next(i for i in range(len(rows.file.rows)) if f"details-{i}" not in rows.file.blobs)
    page = open_page(small.page, fragment=f"#row={without}").page
    assert "--details '" in page.inner_text(".tensor .next code")


def test_details_of_rows_that_are_asked_for(small, tmp_path):
    scene = compared(small.golden, small.mine, tmp_path, "--details", "layers.0.*")
    file = PageFile(scene.page)
    asked = [
        i
        for i, row in enumerate(file.rows)
        if (row["module"] or "").startswith("layers.0.") and row["max_absolute_error"]
    ]
    assert asked != []
    assert [i for i in asked if f"details-{i}" not in file.blobs] == []
    done = assay("compare", small.golden, small.mine, "-o", tmp_path, "--details", "x", status=2)
    assert "--html" in done.stderr


HOSTILE = """
import sys, json, torch, assay
names = json.loads(sys.argv[2])
for side in ("golden", "mine"):
    torch.manual_seed(0)
    model = torch.nn.Sequential()
    for name in names:
        model.add_module(name, torch.nn.Linear(8, 8))
    if side == "mine":
        model[1].weight.data[3] *= 1.5
    with torch.no_grad(), assay.capture(model, sys.argv[1] + "/" + side, level="operator", weights=True):
        model(torch.ones(2, 8))
"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Modules whose names try to be markup, quotes, escapes of a terminal, or are long."""
    folder = tmp_path_factory.mktemp("hostile")
    subprocess.run(
        [warm_python.python(), "-c", HOSTILE, str(folder), json.dumps(NAMES)], check=True, capture_output=True
    )
    return compared(folder / "golden", folder / "mine", folder)


def test_names_stay_text(hostile, open_page):
    file = PageFile(hostile.page)
    for i, row in enumerate(file.rows):
        if row["role"] != "output":
            continue
        page = open_page(hostile.page, width=1280, fragment=f"#row={i}").page
        for width in (1280, 400):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.text_content(".tensor h2") == row["node"]
            assert page.title().startswith("assay: ")
            # Charts are drawn again in the frame after the window's width has changed.
            page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width, timeout=10_000)
    assert [name for name in NAMES if not any(name[:6] in row["node"] for row in file.rows)] == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_400_pixels(llama, llama_rows, open_page, dark):
    page = opened(open_page, llama, mlp_row(llama_rows), width=400, dark=dark)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    # Over the lower half of the window, not beside the views, which can be scrolled to their end.
    panel = page.locator(".tensor").bounding_box()
    height = page.viewport_size["height"]
    assert (panel["x"], panel["width"]) == (0, 400)
    assert panel["y"] > 0.4 * height and panel["y"] + panel["height"] == height
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    last = page.locator(".views").bounding_box()
    assert last["y"] + last["height"] <= panel["y"]


def test_beside_the_views_where_there_is_room(llama, llama_rows, open_page):
    page = opened(open_page, llama, mlp_row(llama_rows))
    views, panel = (page.locator(name).bounding_box() for name in (".views", ".tensor"))
    assert panel["x"] >= views["x"] + views["width"]


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """Pairs of files: a NaN and an infinity on one side, a single number, five axes."""
    folder = tmp_path_factory.mktemp("odd")
    generator = np.random.default_rng(7)
    pairs = {name: generator.standard_normal(shape) for name, shape in (("nan", (6, 7)), ("five", (2, 3, 16, 40, 8)))}
    pairs["number"] = np.array(1.5)
    for side in ("golden", "mine"):
        (folder / side).mkdir()
        for name, values in pairs.items():
            changed = values.copy()
            if side == "mine":
                changed = changed + generator.standard_normal(values.shape) * 0.01
                if name == "nan":
                    changed[2, 3], changed[5, 5] = np.nan, np.inf
            np.save(folder / side / f"{name}.npy", changed)
    return compared(folder / "golden", folder / "mine", folder)


def odd_row(odd, name):
    return next(i for i, row in enumerate(PageFile(odd.page).rows) if row["module"] == name)


def test_axes_can_be_chosen(odd, open_page):
    # Given five axes, when the second goes down and the fourth across,
    page = opened(open_page, odd, odd_row(odd, "five"))
    page.get_by_label("down").select_option(label="axis 1 (3)")
    page.get_by_label("across").select_option(label="axis 3 (40)")
    golden, mine = (np.load(folder / "five.npy") for folder in (odd.golden, odd.mine))
    details = json.loads(PageFile(odd.page).blobs[f"details-{odd_row(odd, 'five')}"])
    width = -(-40 // details["bins"][3])  # positions of a bin
    largest = np.abs(mine - golden).max(axis=(0, 2, 4))
    # then each cell is the largest over the other three.
    page.locator(".heat canvas").scroll_into_view_if_needed()
    for down, across in [(0, 0), (1, 7), (2, details["bins"][3] - 1)]:
        said = point(page, down, 3, across, details["bins"][3])
        assert said.startswith(f"axis 1 {down}, axis 3 {across * width}")
        true = largest[down, across * width : (across + 1) * width].max()
        assert numbers(said)[-1] == pytest.approx(true, rel=0.05)
    # and with the RMS chosen, that of all their values.
    page.get_by_label("each cell shows").select_option(label="the RMS")
    page.locator(".heat canvas").scroll_into_view_if_needed()
    block = (mine - golden)[:, 1, :, 7 * width : 8 * width]
    assert numbers(point(page, 1, 3, 7, details["bins"][3]))[-1] == pytest.approx(np.sqrt((block**2).mean()), rel=0.05)


def test_what_is_not_finite_is_told(odd, open_page):
    page = opened(open_page, odd, odd_row(odd, "nan"))
    page.locator(".heat canvas").scroll_into_view_if_needed()
    assert point(page, 2, 6, 3, 7) == "axis 0 2, axis 1 3: NaN or infinity on one side only"
    assert "NaN or infinity" in page.inner_text(".heat-legend")
    shown = small_table(page, "largest first")
    assert {shown[0][0], shown[1][0]} == {"[2, 3]", "[5, 5]"}
    told = {cells[0]: cells[1:] for cells in small_table(page, "both sides")}
    assert told["NaN"] == ["0", "1"] and told["infinite"] == ["0", "1"]
    assert told["mean"][1] == "NaN"


def test_a_single_number_has_a_picture(odd, open_page):
    page = opened(open_page, odd, odd_row(odd, "number"), "&element=0")
    assert small_table(page, "largest first")[0][:2] == ["[]", "1.5"]
    assert page.inner_text(".readout").startswith("Ringed: axis 0 0: ")


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_serious_fault_of_accessibility(llama, llama_rows, open_page, width, dark):
    page = opened(open_page, llama, mlp_row(llama_rows), "&element=0&view=graph", width=width, dark=dark)
    assert serious_faults(page) == []


def test_a_row_that_is_not_there(small, open_page):
    page = open_page(small.page, fragment="#row=123456").page
    assert page.inner_text(".tensor h2") == "This page has no row 123456"
