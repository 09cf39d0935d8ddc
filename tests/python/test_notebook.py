# SPDX-License-Identifier: Apache-2.0
"""What a notebook shows; tensors by name; cells that run twice; the end of a kernel."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
import types
import webbrowser
from collections import OrderedDict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
import torch
from torch import nn

import assay
from assay import _page

sys.path.insert(0, str(Path(__file__).parent.parent / "cli"))
from operator_runs import write_run
from test_hostile_names import OBEYED

# Ends a script element, opens an image, leaves an attribute, clears a screen, turns the direction of writing.
HOSTILE = "</script><img src=x onerror=alert(1)>\"'&amp;\x1b[2J\x9b\u202e"
SHOWN = "</script><img src=x onerror=alert(1)>\"'&amp;\\x1b[2J\\x9b\\u202e"
LONG = "n" * 250 + "m" * 250

ALLOWED = {
    "div": {"style"}, "p": set(), "strong": set(), "code": set(), "span": {"title"}, "ul": set(), "li": set(),
    "table": set(), "caption": {"style"}, "thead": set(), "tbody": set(), "tr": set(), "td": {"style"},
    "th": {"style", "scope"},
}  # fmt: skip


class Fragment(HTMLParser):
    """A fragment as a browser takes it apart, held against what a fragment may have."""

    def __init__(self, markup: str):
        super().__init__()
        self.words: list[str] = []
        self.titles: list[str] = []
        self.cells: list[list[str]] = []
        self._open: list[str] = []
        markup.encode("utf-8")  # no half surrogates
        assert not OBEYED.search(markup)
        self.feed(markup)
        self.close()
        assert not self._open
        self.text = "".join(self.words)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        given = dict(attrs)
        assert set(given) <= ALLOWED[tag], (tag, given)
        style = given.get("style", "")
        assert not re.search(r"url|(^|;)color|background", style), style  # of the reader's theme
        self._open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")
        if "title" in given:
            self.titles.append(given["title"])

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if "td" in self._open or "th" in self._open:
            self.cells[-1][-1] += data

    def facts(self) -> dict[str, str]:
        return {row[0]: row[1] for row in self.cells if len(row) == 2}


def hostile_class() -> type[nn.Module]:
    return type("Type" + HOSTILE, (nn.ReLU,), {})


def model_of(gain: float) -> nn.Module:
    torch.manual_seed(1)
    model = nn.Sequential(OrderedDict({HOSTILE: nn.Linear(4, 4), LONG: hostile_class()(), "norm": nn.RMSNorm(4)}))
    with torch.no_grad():
        model[0].weight.mul_(gain)
    return model.eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("notebook")


@pytest.fixture(scope="module")
def golden(folder: Path) -> Path:
    path = folder / HOSTILE.replace("/", "\\")
    with assay.capture(model_of(1.0), path, level="operator", weights=True):
        model_of(1.0)  # a model that is not captured
    model = model_of(1.0)
    with assay.capture(model, path, level="operator", weights=True, overwrite=True):
        model(torch.arange(8.0).reshape(2, 4))
    return path


@pytest.fixture(scope="module")
def mine(folder: Path) -> Path:
    model = model_of(1.03)
    with assay.capture(model, folder / "mine", level="operator", weights=True):
        model(torch.arange(8.0).reshape(2, 4))
    return folder / "mine"


def fragment_of(shown: Any) -> Fragment:
    return Fragment(shown._repr_html_())


def test_a_run_tells_where_it_is_from_and_what_its_modules_are(golden: Path) -> None:
    run = assay.open(golden)
    shown = fragment_of(run)
    facts = shown.facts()
    assert f"{golden.parent}/{SHOWN.replace('/', chr(92))}" in [facts["path"], *shown.titles]
    assert (facts["PyTorch"], facts["Python"]) == (torch.__version__, ".".join(map(str, sys.version_info[:3])))
    assert (facts["level"], facts["steps"], facts["ranks"], facts["captured"]) == ("operator", "0", "0", "4 of 4 nodes")
    assert f"native, {len(run)} records, complete" in shown.text
    row = next(row for row in shown.cells if row[0] == SHOWN)
    # Of the Linear: input, output, weight, bias.
    assert row[1:4] == ["Linear", "4", "float32 [2, 4]"]
    assert row[4].startswith("torch/nn/modules/linear.py:")
    assert ["(model)", "Sequential", "2", "float32 [2, 4]"] in [row[:4] for row in shown.cells]
    assert LONG in shown.titles
    assert not any("::" in row[0] for row in shown.cells if len(row) == 5)  # operators are no modules


def test_a_run_that_is_not_whole_says_so(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    with assay.capture(model, tmp_path / "run") as handle:
        model(torch.ones(1, 2))
        handle.flush()
        shutil.copytree(tmp_path / "run", tmp_path / "killed")
    assert "native, 4 records, incomplete" in fragment_of(assay.open(tmp_path / "killed")).text
    payload = tmp_path / "run" / "rank0" / "step-000000.safetensors"
    payload.write_bytes(payload.read_bytes()[:-8])
    assert "damaged" in fragment_of(assay.open(tmp_path / "run")).text


def test_a_run_without_a_tree_lists_its_nodes(tmp_path: Path) -> None:
    name = os.fsdecode(b"a\xff<b>&\"'\x1b[2J")  # no UTF-8
    np.save(tmp_path / f"{name}.npy", np.arange(3.0))
    (tmp_path / "broken.npy").write_bytes(b"no array")
    shown = fragment_of(assay.open(tmp_path))
    assert ["a\\udcff<b>&\"'\\x1b[2J", "1", "float64 [3]"] in shown.cells  # no types: the column is left out
    assert any(row[0] == "broken" and "is no tensor file" in row[-1] for row in shown.cells)


def test_a_comparison_shows_the_worst_rows_first(golden: Path, mine: Path) -> None:
    result = assay.compare(golden, mine)
    shown = fragment_of(result)
    counts = result.counts
    assert html.unescape(result.verdict) in shown.text
    assert {key: int(shown.facts()[key]) for key in ("pairs", "identical", "unmatched")} == {
        "pairs": len(result.rows),
        "identical": sum(row["max_absolute_error"] == 0 for row in result.rows),
        "unmatched": len(result.unmatched),
    }
    assert counts["beyond_limits"] == counts["unreadable"] == 0
    heads = next(row for row in shown.cells if row[0] == "step")
    assert heads == ["step", "tensor", "rel L2", "cosine", "max abs", "type"]  # there is no note
    rows = [dict(zip(heads, row)) for row in shown.cells if len(row) == len(heads) and row[0] != "step"]
    assert len(rows) == 10
    assert f"worst rows, 10 of {counts['pairs'] - counts['identical']}" in shown.text
    distances = [float(row["rel L2"]) for row in rows]
    assert distances == sorted(distances, reverse=True)
    assert distances[0] == float(f"{max(row['relative_euclidean_distance'] for row in result.rows):.4g}")
    weight = next(row for row in rows if row["tensor"] == f"{SHOWN} weight weight")
    assert (weight["step"], weight["rel L2"], weight["type"]) == ("", "0.03", "float32 [4, 4]")  # times 1.03
    assert "first bad" not in shown.text  # a verdict costs time, and nobody has asked for it
    assert result.located is not None
    assert result.located.sentence.rpartition("; ")[2] in fragment_of(result).text  # to its end


def test_the_worst_rows_are_those_of_the_table(golden: Path, mine: Path) -> None:
    result = assay.compare(golden, mine)
    worst = result.worst(4)
    assert len(worst) == 4
    assert all(row in result.rows for row in worst)
    largest = max(row["relative_euclidean_distance"] for row in result.rows)
    assert worst[0]["relative_euclidean_distance"] == largest


def test_limits_decide_about_the_mark(golden: Path, mine: Path) -> None:
    beyond, within = (assay.compare(golden, mine, rel_l2=limit)._repr_html_() for limit in (0.01, 0.5))
    marks = [re.search("#[0-9a-f]{6}", markup) for markup in (beyond, within)]
    assert [mark and mark[0] for mark in marks] == ["#e0454b", "#2e9e5b"]
    assert "differs: " in Fragment(beyond).text and "within the limits: " in Fragment(within).text  # in words as well


def test_statistics_have_a_distance_too(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    for name, scale in (("a", 1.0), ("b", 2.0)):
        with assay.capture(model, tmp_path / name, data="stats"):
            model(scale * torch.ones(1, 4))
    shown = fragment_of(assay.compare(tmp_path / "a", tmp_path / "b", stats=True))
    heads = next(row for row in shown.cells if row[0] == "step")
    assert "L2 norm, relative" in heads and "cosine" not in heads
    # The input is doubled: | |2x| - |x| | / |x| = 1.
    rows = [dict(zip(heads, row)) for row in shown.cells if len(row) == len(heads)]
    assert next(row for row in rows if row["tensor"] == "0 input 0")["L2 norm, relative"] == "1"


def test_a_verdict_says_what_where_and_what_follows(golden: Path, mine: Path) -> None:
    verdict = assay.locate(golden, mine)
    shown = fragment_of(verdict)
    facts = shown.facts()
    assert verdict.first_bad is not None
    assert facts["module"] == SHOWN and facts["type"] == "Linear" and facts["tensor"] == "weight"
    assert facts["code"] == verdict.first_bad.source
    assert facts["confidence"] == "high"
    chain = [row for row in shown.cells if len(row) == 3 and row[1] == "0"]
    assert [row[0] for row in chain][-1] == "(model)"
    assert float(chain[-1][2]) == pytest.approx(verdict.to_dict()["chain"][-1]["e_out"], rel=1e-3)


def test_a_verdict_that_cannot_be_given_says_what_would_help(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "x.npy", np.arange(3.0) + (name == "b"))
    verdict = assay.locate(tmp_path / "a", tmp_path / "b")
    shown = fragment_of(verdict)
    assert verdict.outcome == "cannot_judge" and "cannot judge" in shown.text
    assert html.unescape(verdict.next[:40]) in shown.text


def test_an_opcheck_shows_what_failed(golden: Path, tmp_path: Path) -> None:
    operators = len(assay.open(golden).operations)
    report = assay.opcheck(golden)
    shown = fragment_of(report)
    assert report.passed and f"{operators} of {operators} operations pass, none failed" in shown.text
    # The kernel of one product gives twice what its inputs say; a name is a name whatever is in it.
    wrong = write_run(tmp_path / "wrong", kernels={"blocks.1.proj": lambda result: result * 2})
    report = assay.opcheck(wrong)
    shown = fragment_of(report)
    assert len(report.failures()) == 1 == int(shown.facts()["failed"])
    assert f"1 of {len(report.rows)} operations failed" in shown.text
    (row,) = (row for row in shown.cells if "FAILED" in row)
    assert row[:3] == [report.failures()[0]["node"], "aten.mm.default", "FAILED"]


def test_an_operation_that_cannot_be_read_is_shown_with_its_reason(golden: Path, tmp_path: Path) -> None:
    shutil.copytree(golden, tmp_path / "copy")
    payload = tmp_path / "copy" / "rank0" / "step-000000.safetensors"
    payload.write_bytes(payload.read_bytes()[:-64])
    report = assay.opcheck(tmp_path / "copy")
    shown = fragment_of(report)
    rows = [row for row in shown.cells if "ERROR" in row]
    assert len(rows) == len(report.failures()) == int(shown.facts()["errors"]) > 0
    assert all("the record says" in row[3] for row in rows)


# ---- tensors by name ----


class TwoOutputs(nn.Module):
    def forward(self, x: torch.Tensor, flag: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
        return x + 1, x * 2


class Looping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.both = nn.LayerNorm(3), TwoOutputs()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.norm(x))
        first, second = self.both(x, flag=False)
        return first + second


@pytest.fixture(scope="module")
def looped(tmp_path_factory: pytest.TempPathFactory) -> tuple[assay.Run, list[dict[str, torch.Tensor]]]:
    """Two steps, 3 and 5, of a model with a module that is called twice and one with two outputs; what they gave."""
    model, path = Looping(), tmp_path_factory.mktemp("looped") / "run"
    norm = nn.LayerNorm(3)  # as the model's
    seen: list[dict[str, torch.Tensor]] = []
    with assay.capture(model, path, steps=[3, 5], weights=True):
        for step in range(6):
            x = torch.arange(6.0).reshape(2, 3) ** (1 + step / 10)
            model(x)
            seen.append({"x": x, "norm0": norm(x).detach(), "norm1": norm(norm(x)).detach()})
    return assay.open(path), seen


def same(array: Any, tensor: torch.Tensor) -> bool:
    return isinstance(array, np.ndarray) and np.array_equal(array, tensor.numpy())


def test_one_output_is_its_array(golden: Path) -> None:
    run = assay.open(golden)
    expected = run.records.select("norm", role="output")[0].numpy()
    assert np.array_equal(run["norm"], expected)
    assert np.array_equal(run["norm.output"], expected)
    assert np.array_equal(run["norm.weight"], np.ones(4, np.float32))
    assert np.array_equal(run[HOSTILE + ".input.0"], np.arange(8.0, dtype=np.float32).reshape(2, 4))
    assert np.array_equal(run[HOSTILE + ".input"], run[HOSTILE + ".input.0"])
    assert np.array_equal(run[""], expected)  # the model returns what its norm returns
    assert run[0].order == 0 and len(run[1:3]) == 2
    assert "norm" in run and "norm.weight" in run and "nrom" not in run


def test_several_tensors_are_chosen_by_step_then_call_then_slot(looped: Any) -> None:
    run, seen = looped
    norm = run["norm"]
    assert isinstance(norm, assay.Selection)
    assert repr(norm) == "<Selection 'norm': 4 tensors; step 3, 5; call 0, 1: choose with [step]>"
    assert repr(norm[3]) == "<Selection 'norm': 2 tensors; call 0, 1: choose with [call]>"
    assert same(norm[3][0], seen[3]["norm0"])
    assert same(norm[5][1], seen[5]["norm1"])
    assert same(norm.at(call=0, step=5), seen[5]["norm0"])
    both = run["both"]
    assert repr(both) == "<Selection 'both': 4 tensors; step 3, 5; slot '0', '1': choose with [step] or [slot]>"
    assert np.array_equal(both[3]["1"], both["1"][3])
    assert np.array_equal(both[3]["1"], norm[3][1] * np.float32(2))
    assert {(record.step, record.slot) for record in both} == {(3, "0"), (3, "1"), (5, "0"), (5, "1")}
    assert isinstance(run["norm.input"], assay.Selection)
    assert same(run["norm.input.0"][5][0], seen[5]["x"])


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda run: run["nrom"], "no node or tensor 'nrom' in .*; nearest: 'norm'"),
        (lambda run: run["0"], "no node or tensor '0' in [^;]*$"),
        (lambda run: run["\ud800"], "no node or tensor"),
        (lambda run: run["norm"][4], "'norm' has no step 4, but 3, 5"),
        (lambda run: run["norm"][3][7], "'norm' has no call 7, but 0, 1"),
        (lambda run: run["both"][3]["2"], "'both' has no slot '2', but '0', '1'"),
        (lambda run: run["both"][3][0], "one rank, step and call; slot '0', '1': choose with .slot."),
        (lambda run: run["both.input.kwargs.flag"], "has values and no tensor: False, False"),
    ],
)
def test_a_wrong_key_is_answered_with_what_there_is(looped: Any, wrong: Callable[[Any], Any], sentence: str) -> None:
    with pytest.raises(KeyError, match=sentence):
        wrong(looped[0])


def test_members_of_a_file_are_names_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", **{"a.weight": np.ones(2), "b": np.zeros(1)})
    run = assay.open(tmp_path / "x.npz")
    assert np.array_equal(run["a.weight"], np.ones(2))
    assert np.array_equal(run["b"], np.zeros(1))
    assert run.nodes == ["a", "b"]


def test_what_has_no_bytes_says_so(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    with assay.capture(model, tmp_path / "run", data="stats"):
        model(torch.ones(1, 2))
    with pytest.raises(assay.Error):
        assay.open(tmp_path / "run")["0"]


def test_tables_have_numbers_in_every_column_of_numbers(looped: Any, tmp_path: Path) -> None:
    run, _ = looped
    table = run.to_pandas()
    assert len(table) == len(run) and list(table.index) == list(range(len(run)))
    assert set(table[table.node == "norm"].step) == {-1, 3, 5}
    np.save(tmp_path / "x.npy", np.ones(2))  # nobody wrote statistics
    for other in (assay.open(tmp_path).to_pandas(), run.records.select("nothing").to_pandas()):
        assert other.dtypes[["rank", "step", "call", "order"]].eq("int64").all()
        assert other.dtypes[["min", "max", "mean", "l2_norm"]].eq("float64").all()
        assert str(other.dtypes["nan_count"]) == "Int64"
        assert list(other.columns) == list(table.columns)


# ---- pages ----


class Kernel:
    """Stands for IPython in a kernel: what `show` asks it and tells it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, shell: Any):
        self.shown: list[str] = []
        ipython, display = types.ModuleType("IPython"), types.ModuleType("IPython.display")
        ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
        display.HTML = lambda markup: markup  # type: ignore[attr-defined]
        display.display = self.shown.append  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", display)


def test_a_notebook_shows_the_page_below_the_cell(golden: Path, mine: Path, monkeypatch: Any, tmp_path: Path) -> None:
    kernel = Kernel(monkeypatch, types.SimpleNamespace(kernel=object()))
    monkeypatch.setattr(webbrowser, "open", lambda *_: pytest.fail("a kernel has no browser"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert assay.compare(golden, mine).show() is None
    (markup,) = kernel.shown
    frame = re.fullmatch(r'<div><iframe title="assay" style="[^"]*" sandbox="([^"]*)" srcdoc="([^"]*)"></iframe></div>',
                         markup)  # fmt: skip
    assert frame and "allow-same-origin" not in frame[1]
    page = html.unescape(frame[2])
    assert page.startswith("<!doctype html>") or page.startswith("<!DOCTYPE html>")
    assert page.rstrip().endswith("</html>")
    assert list(tmp_path.iterdir()) == []  # nothing stays behind
    assay.open(mine).show()
    assert len(kernel.shown) == 2


@pytest.mark.parametrize("shell", ["no IPython", "IPython in a terminal"])
def test_elsewhere_a_browser_shows_it(shell: str, golden: Path, monkeypatch: Any, tmp_path: Path, capsys: Any) -> None:
    opened: list[str] = []
    if shell != "no IPython":
        assert Kernel(monkeypatch, types.SimpleNamespace()).shown == []
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    _page._folder.cache_clear()
    answers = iter([True, False])
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or next(answers))
    result = assay.compare(golden, golden)
    result.show()
    assert capsys.readouterr() == ("", "")
    result.show()  # no browser this time
    assert opened[0] != opened[1] and all(re.fullmatch(r"file:///.*\.html", address) for address in opened)
    assert "no browser was found; the page is " in capsys.readouterr().err
    (folder,) = tmp_path.iterdir()
    assert len(list(folder.iterdir())) == 2
    _page._remove(str(folder), os.getpid() + 1)  # as in a forked child
    assert folder.exists()
    _page._remove(str(folder), os.getpid())
    assert not folder.exists()
    _page._folder.cache_clear()


# ---- cells ----


def test_a_cell_with_a_capture_runs_again(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    for _ in range(2):
        with assay.capture(model, tmp_path / "run", overwrite=True):
            model(torch.ones(1, 2))
    with pytest.raises(assay.FormatError, match="choose another one, or overwrite=True removes it"):
        assay.capture(model, tmp_path / "run")


def test_a_cell_that_left_its_capture_open_runs_again(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    first = assay.capture(model, tmp_path / "run", overwrite=True)
    model(torch.ones(1, 2))
    elsewhere = assay.capture(model, tmp_path / "other")
    second = assay.capture(model, tmp_path / "run", overwrite=True)  # the first one's cell, again
    model(torch.ones(1, 2))
    assert first.stats["steps"] == second.stats["steps"] == 1
    for handle in (first, second, elsewhere):
        handle.remove()
    assert elsewhere.stats["steps"] == 1
    run = assay.open(tmp_path / "run")
    assert run.coverage.complete and run.verify() == () and run.steps == [0]


def test_every_other_writer_takes_the_same_path_twice(golden: Path, mine: Path, tmp_path: Path) -> None:
    result, report = assay.compare(golden, mine), assay.opcheck(mine)
    for _ in range(2):
        for ending in ("csv", "xlsx", "jsonl"):
            result.write(tmp_path / f"report.{ending}")
        result.to_html(tmp_path / "page.html")
        assay.open(mine).to_html(tmp_path / "run.html")
        report.write(tmp_path / "opcheck", ["csv", "html"])
        assert assay.atb_json_to_onnx(mine / "rank0" / "topology.json") is not None
    assert len(list((tmp_path / "opcheck").iterdir())) == 4  # each report has its time in its name


CELLS = """
import code, faulthandler, sys, threading

class Cells(code.InteractiveInterpreter):
    def write(self, text):  # of a traceback, which a notebook shows below the cell
        print(text)

cells = Cells({"folder": sys.argv[1]})
for cell in sys.stdin.read().split("# ---"):
    cells.runcode(compile(cell, "<cell>", "exec"))
"""

SESSION = """
import threading, torch, assay
model, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), torch.ones(2, 4)
# ---
assay.capture(model, folder + "/open", level="operator", weights=True)
model(x)
# ---
with assay.capture(model, folder + "/block"):
    model(x)
    1 / 0
# ---
handle = assay.capture(model, folder + "/handle")
model(x)
assay.open("/nowhere")
# ---
run = assay.open(folder + "/block")
array, records, tensor = run["0"], list(run.records), run[0].torch()
result = assay.compare(folder + "/block", folder + "/block")
verdict = result.located
rows = result.rows, result.worst(), run._repr_html_()
# ---
def hold(frame_of_an_error=run, more=array):
    raise ValueError("a traceback that keeps a run until the very end")
hold()
# ---
busy, main = torch.nn.Linear(4, 4), threading.main_thread()
assay.capture(busy, folder + "/busy")
def work():  # until the interpreter waits for this thread, and some steps more
    while main.is_alive():
        busy(x)
    for _ in range(20):
        busy(x)
threading.Thread(target=work).start()
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


def test_the_end_of_the_interpreter_is_silent(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", CELLS, str(tmp_path)]
    done = subprocess.run(command, input=SESSION, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    assert done.returncode == 0
    errors = re.findall(r"^(\w[\w.]*): ", done.stdout, re.MULTILINE)
    assert errors == ["ZeroDivisionError", "assay.errors.FileError", "ValueError"], done.stdout
    for name in ("open", "block", "handle", "busy"):
        run = assay.open(tmp_path / name)
        assert run.coverage.complete and len(run) > 0, name
        assert run.verify() == ()


@pytest.mark.parametrize("make", ["comparison", "records", "opcheck"])
def test_tables_without_pandas_say_what_to_install(tmp_path, monkeypatch, make):
    run = write_run(tmp_path / "run")
    made = {"comparison": lambda: assay.compare(run, run), "records": lambda: assay.open(run),
            "opcheck": lambda: assay.opcheck(run)}[make]()  # fmt: skip
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"needs pandas: pip install pandas; without it .* has the same"):
        made.to_pandas()
