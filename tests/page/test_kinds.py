# SPDX-License-Identifier: Apache-2.0
"""A page of every kind of run: every part clicked and reached by keyboard, narrow and wide, light and dark, printed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
import test_invariance_page
import test_repeat_page
import torch
from assay_command import write_torch_tree
from graph_dumps import write_current
from model_pairs import host_program
from operator_runs import write_run
from page_file import PageFile
from page_scenes import assay, compared
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ggml"))

HOSTILE = "</script><b>\"'&\x1b[2J\u202e" + 500 * "x"


def atb_run(folder: Path, *options: str) -> Path:
    assay("dump", "-er", "all", "-o", folder, "--", host_program(), *options)
    return folder


def atb(folder: Path) -> Path:
    """Two runs of ATB operations, of which one has a wrong epsilon."""
    golden = atb_run(folder / "golden")
    return compared(golden, atb_run(folder / "mine", "--fault", "wrong_epsilon"), folder).page


def ranks(folder: Path) -> Path:
    """Two ranks on both sides."""
    golden = atb_run(folder / "golden", "--ranks", "2")
    return compared(golden, atb_run(folder / "mine", "--ranks", "2", "--fault", "wrong_epsilon"), folder).page


def graph(folder: Path) -> Path:
    """Nodes run one by one against the dump of the compiled graph, on two ranks."""
    write_current(folder, ranks=(0, 1))
    return compared(folder / "msit_fx_dump", folder / "msit_ge_dump", folder).page


def hook_dumps(folder: Path) -> Path:
    """The old API's trees of twelve layers and three tokens, all without operators."""
    change = lambda name, tensor: tensor * (1.03 if name == "root.model.layers.5.mlp" else 1)  # noqa: E731
    write_torch_tree(folder / "golden", tokens=(0, 1, 2))
    write_torch_tree(folder / "mine", tokens=(0, 1, 2), change=change, pid=2)
    return compared(folder / "golden", folder / "mine", folder, "--rel-l2", "0.01").page


def operators(folder: Path) -> Path:
    """Operators on both sides, two steps."""
    golden = write_run(folder / "golden", dtype=torch.float32, steps=(0, 1))
    return compared(golden, write_run(folder / "mine", steps=(0, 1), gains={1: 1.03}), folder).page


def statistics(folder: Path) -> Path:
    """Statistics alone."""
    golden = write_run(folder / "golden", level="module", statistics=True)
    return compared(golden, write_run(folder / "mine", level="module", statistics=True, gains={1: 1.03}), folder).page


def quantisation(folder: Path) -> Path:
    """Checkpoints, the second in int8 with a scale for each row."""
    weights = {f"layers.{i}.proj.weight": torch.randn(16, 32, generator=torch.manual_seed(i)) for i in range(4)}
    quantised = {}
    for name, weight in weights.items():
        scale = weight.abs().amax(1, keepdim=True) / 127
        quantised |= {name: (weight / scale).round().to(torch.int8), f"{name}_scale": scale}
    for side, tensors in {"golden": weights, "mine": quantised}.items():
        (folder / side).mkdir()
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / side / "model.safetensors")
    return compared(folder / "golden", folder / "mine", folder, "-w").page


def two_files(folder: Path) -> Path:
    """One tensor on each side."""
    values = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    np.save(folder / "golden.npy", values)
    np.save(folder / "mine.npy", values * np.float32(1.01))
    return compared(folder / "golden.npy", folder / "mine.npy", folder).page


def hostile_names(folder: Path) -> Path:
    """Names that would be markup, commands of a terminal, or far too long."""
    for side, factor in {"golden": 1.0, "mine": 1.01}.items():
        save_file({HOSTILE: torch.ones(2, 3) * factor, "=1+1": torch.ones(2) * factor}, folder / f"{side}.safetensors")
    return compared(folder / "golden.safetensors", folder / "mine.safetensors", folder).page


def opcheck(folder: Path) -> Path:
    """Operations of ATB, recomputed: one is right, one wrong."""
    atb_run(folder / "run", "--fault", "wrong_epsilon")
    assay("opcheck", folder / "run", "-o", folder / "report", "--format", "html", status=None)
    (page,) = (folder / "report").glob("*.html")
    return page


def opcheck_operators(folder: Path) -> Path:
    """Operators of torch, recomputed."""
    run = write_run(folder / "run", kernels={"blocks.1.proj": lambda x: x * 1.01})
    assay("opcheck", run, "-o", folder / "report", "--format", "html", status=None)
    (page,) = (folder / "report").glob("*.html")
    return page


def one_run(folder: Path) -> Path:
    """A run alone."""
    assay("show", write_run(folder / "run"), "--weights", "--html", folder / "page.html")
    return folder / "page.html"


def repeated(folder: Path) -> Path:
    """Runs of one program that do not repeat."""
    found = test_repeat_page.repeated(folder, "gate", 3, 1, 4)
    assert not found["repeats"]
    return folder / "page.html"


def scenarios(folder: Path) -> Path:
    """A program of which one row depends on the others."""
    test_invariance_page.judged(leaks=True).to_html(folder / "page.html")
    return folder / "page.html"


def ggml(folder: Path) -> Path:
    """Hugging Face's modules against llama.cpp's graph."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed")
    from tiny_llama import write_models  # first: it finds the converter
    from hugging_face import load  # isort: skip
    from test_compare_engines import capture_engine, capture_model  # isort: skip

    models = write_models(folder)
    golden = capture_model(load(models["hf"]), folder / "golden")
    return compared(golden, capture_engine(models["q8_0"], folder / "mine"), folder).page


KINDS: list[Callable[[Path], Path]] = [
    atb,
    ranks,
    graph,
    hook_dumps,
    operators,
    statistics,
    quantisation,
    two_files,
    hostile_names,
    opcheck,
    opcheck_operators,
    one_run,
    repeated,
    scenarios,
    ggml,
]


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.__name__)
def page_path(request, tmp_path_factory) -> Path:
    return request.param(tmp_path_factory.mktemp(request.param.__name__))


def opened_folds(page: Any) -> None:
    page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")


def click_everything(page: Any, most: int = 60) -> int:
    """Clicks every button that is there, view by view; returns how many."""
    clicked = 0
    tabs = page.locator('[role="tab"]')
    for place in range(tabs.count()):
        tabs.nth(place).click()
        page.wait_for_timeout(50)
        opened_folds(page)
        buttons = page.locator("[role=tabpanel]:not([hidden]) button, aside button, header button")
        for at in range(min(buttons.count(), most)):
            button = buttons.nth(at)
            if button.is_visible() and button.is_enabled():
                button.click(timeout=5_000)
                clicked += 1
    return clicked


def overflow(page: Any) -> int:
    """Pixels that the page is wider than its window."""
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


@pytest.mark.slow
@pytest.mark.parametrize("width, dark", [(1280, False), (400, True)], ids=["wide", "narrow and dark"])
def test_every_part_is_clicked(page_path, open_page, width, dark):
    page = open_page(page_path, width=width, dark=dark).page
    clicked = click_everything(page)
    assert clicked > 0
    assert overflow(page) <= 0


@pytest.mark.slow
def test_tab_reaches_every_view_and_the_page_prints(page_path, open_page, tmp_path):
    page = open_page(page_path).page
    seen = set()
    for _ in range(200):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.getAttribute('role') ?? document.activeElement.tagName"))
        if page.evaluate("document.activeElement === document.body"):
            break
    assert "tab" in seen and "SUMMARY" in seen
    tabs = page.locator('[role="tab"]')
    tabs.first.focus()
    for _ in range(tabs.count()):
        page.keyboard.press("ArrowRight")
    assert tabs.first.get_attribute("aria-selected") == "true"
    page.pdf(path=tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").stat().st_size > 5_000


def test_hostile_names_stay_text(open_page, tmp_path):
    page = open_page(hostile_names(tmp_path), fragment="#view=runs").page
    assert page.locator("main b").count() == 0
    assert "\x1b" not in page.content()


def test_weights_are_grouped_by_their_quantisation(open_page, tmp_path):
    path = quantisation(tmp_path)
    page = open_page(path, fragment="#view=quantisation").page
    (first,) = page.locator("tbody tr").all()
    cells = first.locator("td").all_inner_texts()
    rows = PageFile(path).rows
    worst = max(rows, key=lambda row: row["relative_euclidean_distance"])
    assert cells[:2] == [rows[0]["quantisation"], "4"]
    assert cells[4].startswith(worst["weight_name"])


def test_failures_come_first_on_the_page_of_opcheck(open_page, tmp_path):
    path = opcheck_operators(tmp_path)
    page = open_page(path, fragment="#view=table").page
    heads = page.locator("[role=columnheader]").all_inner_texts()
    first = page.locator("[role=row][aria-rowindex='2'] [role=gridcell]").all_inner_texts()
    (failed,) = [row for row in PageFile(path).rows if row["result"] == "FAILED"]
    shown = dict(zip([head.split(" ")[0] for head in heads], first))
    assert (shown["module"], shown["result"]) == (failed["module"], "FAILED")
