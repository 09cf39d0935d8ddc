# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks' figures rest on: the discard rule, the NumPy rival's formulas, the comparison of two results."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import claims, report, tables  # noqa: E402


def load(relative: str):
    """Imports a file of the checkout that is no installed module."""
    path = ROOT / relative
    spec = importlib.util.spec_from_file_location("bench_under_test_" + path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


measure = load("bench/measure.py")


def series(clean: list[float], disturbed: list[float]):
    samples = [measure.Sample(seconds, 2 * seconds) for seconds in clean]
    samples += [measure.Sample(seconds, 2 * seconds, disturbed=True) for seconds in disturbed]
    return measure.Series(samples)


def test_disturbed_samples_do_not_count():
    figures = series([1, 2, 3, 4, 5], [100, 100, 100, 100, 100, 100]).summary()
    assert (figures["returned_median"], figures["handed_over_median"]) == (3, 6)
    assert (figures["used"], figures["discarded"], figures["noisy"]) == (5, 6, False)


def test_too_few_clean_samples_use_all_and_say_so():
    figures = series([1, 2], [3, 4, 5]).summary()
    assert figures["returned_median"] == 3
    assert (figures["used"], figures["discarded"], figures["noisy"]) == (5, 0, True)


def test_a_neighbour_on_the_same_core_is_seen():
    # Both processes on one core: ours waits about half of the time, far above the limit.
    cpu = min(os.sched_getaffinity(0))
    neighbour = subprocess.Popen(
        [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, [{cpu}])\nprint(flush=True)\nwhile True: pass"],
        stdout=subprocess.PIPE,
    )
    affinity = os.sched_getaffinity(0)
    try:
        neighbour.stdout.readline()
        os.sched_setaffinity(0, [cpu])
        disturbance = measure.Disturbance()
        disturbance.start()
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            pass
        share = disturbance.stop()
    finally:
        os.sched_setaffinity(0, affinity)
        neighbour.kill()
        neighbour.wait()
    assert share > measure.MAX_WAIT_SHARE


def test_numpy_rival_agrees_with_the_worked_example():
    # g = [1, 2, 0, -4], m = [1.001, 1.998, 0.5, -4.01]
    numpy = pytest.importorskip("numpy")
    rival = load("bench/rivals/numpy_compare.py")
    golden = numpy.array([1, 2, 0, -4], dtype=numpy.float32)
    mine = numpy.array([1.001, 1.998, 0.5, -4.01], dtype=numpy.float32)
    figures = rival.metrics(golden, mine)
    assert figures["cosine_similarity"] == pytest.approx(0.9941198684, abs=1e-9)
    assert figures["max_absolute_error"] == 0.5
    assert figures["mean_absolute_error"] == pytest.approx(0.1282500625, rel=1e-6)
    assert figures["kl_divergence"] == pytest.approx(0.0117923277, rel=1e-5)
    assert figures["relative_euclidean_distance"] == pytest.approx(0.1091318566, rel=1e-6)
    assert figures["max_relative_error"] == 0.5 / 2**-23


def result(tmp_path: Path, name: str, **seconds: float) -> str:
    rows = [{"name": key, "seconds": value, "unit": "one command"} for key, value in seconds.items()]
    path = tmp_path / name
    path.write_text(json.dumps({"sections": {"compare": {"rows": rows}}}))
    return str(path)


def bench_compare(old: str, new: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "bench_compare.py"), old, new]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_change_needs_ten_percent_and_ten_milliseconds(tmp_path):
    old = result(tmp_path, "old.json", small=0.010, large=1.0, both=0.1)
    # 50 % but 5 ms; 90 ms but 9 %; 20 % and 20 ms
    done = bench_compare(old, result(tmp_path, "new.json", small=0.015, large=1.09, both=0.12))
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "slower  compare/both: 100.0 -> 120.0 ms per one command (1.20x)",
        "3 rows compared, 1 slower, 0 faster, 0 lost",
    ]


def test_a_figure_that_is_gone_is_named(tmp_path):
    done = bench_compare(result(tmp_path, "old.json", a=1.0, b=1.0), result(tmp_path, "new.json", a=0.5))
    assert done.returncode == 1
    assert "lost    compare/b: no such row" in done.stdout
    assert "faster  compare/a: 1000.0 -> 500.0 ms per one command (0.50x)" in done.stdout


def test_another_file_is_refused(tmp_path):
    other = tmp_path / "other.json"
    other.write_text("[]")
    done = bench_compare(str(other), str(other))
    assert done.returncode == 2
    assert str(other) in done.stderr


MACHINE = dict.fromkeys(("date", "cores", "cpu", "simd", "memory", "kernel", "python"), "x")


def test_tables_are_published_into_the_pages_that_have_a_place_for_them(tmp_path):
    pages = {"a.md": "# A\n<!-- table one -->\nold\n<!-- end one -->\nafter\n", "b.md": "# B\n"}
    for name, text in pages.items():
        (tmp_path / name).write_text(text)
    note = "a note " * 20 + "with `code in one piece`"
    section = report.Section("one", "One", ["", "ms"], [report.Row("r", {"ms": "1"})], [note], MACHINE)
    tables.publish(tmp_path, {"one": section, "other": report.Section("other", "Other", ["", "ms"], machine=MACHINE)})
    published = (tmp_path / "a.md").read_text()
    assert "| r | 1 |" in published and "old" not in published and published.endswith("<!-- end one -->\nafter\n")
    assert max(len(line) for line in published.splitlines()) <= 120 and "`code in one piece`" in published
    assert (tmp_path / "b.md").read_text() == pages["b.md"]
    assert tables.load(tmp_path)["one"] == section and list(tables.load(tmp_path)) == ["one", "other"]


def test_a_summary_has_a_line_a_variant_and_a_column_a_model():
    rows = [
        report.Row("S: none", {"ratio": "1"}),
        report.Row("S: full", {"ratio": "1.2", "fastest": "1.1", "MB": "3"}, goal="1.0"),
        report.Row("M: full", {"ratio": "1.3"}),
    ]
    section = report.Section("one", "One", ["", "ratio", "fastest", "MB"], rows, ["a note"], MACHINE)
    shown = tables.Summary(("ratio", "fastest"), ": full", turned=True).of(section)
    assert report.to_markdown(shown).splitlines()[2:] == [
        "|  | S | M |",
        "| --- | --- | --- |",
        "| full | 1.2 (1.1) | 1.3 |",
    ]
    plain = tables.Summary(("MB",)).of(section)
    assert report.to_markdown(plain).splitlines()[2:] == [
        "|  | MB |", "| --- | --- |", "| S: none |  |", "| S: full | 3 |", "| M: full |  |"
    ]  # fmt: skip


def test_claims_are_the_judged_rows_of_what_was_published_last(tmp_path):
    machine = {"date": "2026-01-02 03:04 UTC", "commit": "0123abcd", "cores": "2", "cpu": "a CPU"}

    def section(key, *rows, cells=None):
        found = report.Section(key, "Title", ["", "ms"], machine=machine)
        for name, figure, goal, met in rows:
            found.rows.append(report.Row(name, cells=(cells or {}).get(name, {})))
            if goal:
                found.rows[-1].judge(figure, goal, met)
        return found

    page = tmp_path.parent / f"{tmp_path.name}.md"
    page.write_text(
        "A\n<!-- claims missed -->\nold\n<!-- end missed -->\nB\n<!-- claims reached -->\n<!-- end reached -->\nC\n"
    )
    again = section(
        "old",
        ("S: full", "1.20", "1.10", False),
        ("M: full", "1.00", "1.10", True),
        ("S: none", "", "", None),
        ("S: statistics", "1.01", "1.10", None),
        cells={"S: full": {"of minima": "1.15"}},
    )
    tables.publish(
        tmp_path,
        {
            "old": section("old", ("gone", "1", "2", True)),
            "write": section("write", ("strict full", "9 %", "8 %", True)),
        },
    )
    # A section that is measured again takes the place of what it had.
    tables.publish(tmp_path, {"old": again})
    claims.write_page(tables.load(tmp_path), page)
    text = page.read_text()
    missed, reached = text.split("B\n")
    assert missed.startswith("A\n") and reached.endswith("C\n") and "gone" not in text and "none" not in text
    assert "| full: S, M | 1.20 (1.15), 1.00 | 1.10 | `bench old` | 0123abcd, 01-02 | - |" in missed
    assert "| statistics: S | 1.01 | 1.10 | `bench old` | 0123abcd, 01-02 | too disturbed to be judged |" in missed
    assert "| strict full | 9 % | 8 % | `bench write` | 0123abcd, 01-02 |" in reached and "full: S" not in reached


def test_the_published_pages_are_made_from_the_published_figures(tmp_path):
    folder = ROOT / "docs" / "benchmarks"
    sections = tables.load(folder)
    made = tmp_path / "benchmarks.md"
    made.write_text((ROOT / "docs" / "benchmarks.md").read_text())
    claims.write_page(sections, made)
    assert made.read_text() == (ROOT / "docs" / "benchmarks.md").read_text()
    for page in folder.glob("*.md"):
        assert tables.drawn(page.read_text(), sections) == page.read_text(), page
    missed = [claim for claim in claims.claims_of(sections) if not claim.is_reached]
    assert [claim.name for claim in missed if not claim.limit] == []
