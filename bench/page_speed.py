# SPDX-License-Identifier: Apache-2.0
"""The page for a browser: what writing it adds to a comparison, its size, and how soon and smoothly it can be used.

Two pairs: examples/demo.py, and 200 000 rows of bench/many_rows.py. Commands with and without --html alternate. The
browser is Debian's chromium without a screen; its own marks tell the times: navigation to "assay-interactive", a change
of the address to the rows it leads to, and the frames of a window that scrolls.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Optional

from bench.compare_speed import Command, find_assay, run_group
from bench.measure import load_average, machine, median
from bench.report import FAILED, NOT_AVAILABLE, Row, Section

COLUMNS = ["", "value", "without page", "with page", "resident MB", "goal", "met"]
ADDED = 1.15
INTERACTIVE = 2.0  # seconds
ANSWER = 0.3  # seconds to filter or to sort
SIZES = {"demo": 1.5e6, "many": 25e6}  # bytes
ROOT = Path(__file__).resolve().parent.parent

# State of the address -> what it does
ANSWERS = {
    "sort=-relative_euclidean_distance": "sort by a number",
    "sort=node": "sort by a text",
    "q=layers.40": "first search of all texts",
    "q=layers.41+input": "search of two words",
    "level=module": "filter by level",
}

TIMED = """async (hash) => {
  const start = performance.now();
  const heads = document.querySelector(".grid-heads");
  const done = new Promise((seen) => new MutationObserver((_, self) => { self.disconnect(); seen(); })
    .observe(heads, { childList: true, subtree: true }));
  location.hash = hash;
  await done;
  return (performance.now() - start) / 1e3;
}"""

FRAMES = """async () => {
  const grid = document.querySelector("[role=grid]");
  const times = [];
  let last = performance.now();
  for (let i = 0; i < 200; i++) {
    grid.scrollTop += i < 100 ? 300 : 20000;
    await new Promise(requestAnimationFrame);
    times.push((performance.now() - last) / 1e3);
    last = performance.now();
  }
  return times;
}"""


def written(key: str, name: str, commands: list[Command], page: Path) -> list[Row]:
    """Rows of the command without and with the page, and of the page's size."""
    for command in commands:
        if command.failed:
            return [Row(f"{name}: written", status=FAILED, reason=command.failed)]
    plain, paged = (median(command.wall) for command in commands)
    row = Row(f"{name}: written", seconds=paged, unit="one command")
    row.judge(f"{paged / plain:.2f}", f"{ADDED:.2f}", paged / plain <= ADDED)
    row.cells = {"value": f"{paged / plain:.2f}", "without page": f"{plain:.2f} s", "with page": f"{paged:.2f} s"}
    row.cells["resident MB"] = " / ".join(f"{command.resident / 1e6:.0f}" for command in commands)
    row.data = {"wall": [command.wall for command in commands], "cpu": [command.cpu for command in commands]}
    cpu = [median(command.cpu) for command in commands]
    busy = Row(f"{name}: CPU time of writing")
    busy.cells = {"value": f"{cpu[1] / cpu[0]:.2f}", "without page": f"{cpu[0]:.2f} s", "with page": f"{cpu[1]:.2f} s"}
    size, goal = page.stat().st_size, SIZES[key]
    file = Row(f"{name}: size of the file")
    file.judge(f"{size / 1e6:.2f} MB", f"{goal / 1e6:.1f} MB", size <= goal)
    file.cells = {"value": f"{size / 1e6:.2f} MB"}
    return [row, busy, file]


def goal_row(name: str, times: list[float], goal: Optional[float]) -> Row:
    """A row of times in a browser; all in seconds."""
    seconds = median(times)
    row = Row(name, cells={"value": f"{seconds * 1e3:.0f} ms"}, data={"times": times})
    if goal is not None:
        row.judge(f"{seconds * 1e3:.0f} ms", f"{goal * 1e3:.0f} ms", seconds <= goal)
    return row


def opened(browser: Any, page: Path, view: str) -> tuple[Any, float]:
    """A page in a context of its own, and seconds from navigation to its mark."""
    tab = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    tab.goto(f"{page.resolve().as_uri()}#view={view}")
    tab.wait_for_selector("html[data-ready=true]", timeout=120_000)
    return tab, tab.evaluate("performance.getEntriesByName('assay-interactive')[0].startTime") / 1e3


def used(browser: Any, name: str, page: Path, turns: int) -> list[Row]:
    """Rows of how soon the page can be used, and of its table."""
    rows = []
    for view, what in (("", "first view"), ("table", "table")):
        times = []
        for _ in range(turns):
            tab, seconds = opened(browser, page, view)
            times.append(seconds)
            tab.context.close()
        rows.append(goal_row(f"{name}: interactive, {what}", times, INTERACTIVE))
    answers: dict[str, list[float]] = {}
    frames: list[float] = []
    for _ in range(turns):
        tab, _ = opened(browser, page, "table")
        for state in ANSWERS:
            answers.setdefault(state, []).append(tab.evaluate(TIMED, f"view=table&{state}"))
        tab.evaluate(TIMED, "view=table")
        frames += tab.evaluate(FRAMES)
        tab.context.close()
    rows += [goal_row(f"{name}: {ANSWERS[state]}", times, ANSWER) for state, times in answers.items()]
    smooth = goal_row(f"{name}: frame while scrolling", frames, None)
    smooth.cells["value"] += f", 99 %: {sorted(frames)[len(frames) * 99 // 100] * 1e3:.0f} ms"
    return [*rows, smooth]


def used_in_chromium(pages: dict[str, Path], turns: int) -> list[Row]:
    """The rows of all pages; one that says why, where there is no browser."""
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        return [Row("in a browser", status=NOT_AVAILABLE, reason="no chromium, or no playwright")]
    rows = []
    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, page in pages.items():
            rows += used(browser, name, page, turns)
        browser.close()
    return rows


def make_runs(folder: Path, rows: int) -> dict[str, tuple[str, Path]]:
    """Key -> name and folder of golden and mine. Generators are processes of their own."""
    subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py"), str(folder / "demo")], check=True, capture_output=True
    )
    many = [sys.executable, "-m", "bench.many_rows", str(folder / "many"), str(rows)]
    subprocess.run(many, check=True, capture_output=True, cwd=ROOT)
    return {"demo": ("demo", folder / "demo"), "many": (f"{rows:,} rows", folder / "many")}


def run(build: Path, quick: bool, given: Optional[str]) -> Section:
    """Makes the runs below `build`/work, writes and opens their pages, and deletes all of it."""
    section = Section("page", "Pages for a browser", COLUMNS, machine=machine())
    assay = find_assay(given)
    if not assay:
        section.rows.append(Row("assay compare --html", status=NOT_AVAILABLE, reason="no `assay` command is installed"))
        return section
    before = load_average()
    work = build / "work" / f"page-{os.getpid()}"
    work.mkdir(parents=True)
    try:
        pages = {}
        for key, (name, folder) in make_runs(work, 20_000 if quick else 200_000).items():
            page = work / f"{key}.html"
            words = [assay, "compare", str(folder / "golden"), str(folder / "mine"), "-o", str(work / "report")]
            turns = 3 if quick else {"demo": 15, "many": 5}[key]
            commands = [
                Command(name, words, accepted=(0, 1), repetitions=turns),
                Command(name, [*words, "--html", str(page)], accepted=(0, 1), repetitions=turns),
            ]
            print(f"page: {name} ...", file=sys.stderr, flush=True)
            run_group(commands, work)
            section.rows += written(key, name, commands, page)
            pages[name] = page
        section.rows += used_in_chromium(pages, 2 if quick else 5)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    section.load = (before, load_average())
    section.notes = [
        "Medians, no sample discarded. Written: the command with `--html` beside the one without, which writes a "
        "workbook of three sheets. In the browser: navigation to the mark `assay-interactive`; a change of the address "
        "to the table that it leads to.",
    ]
    return section
