# SPDX-License-Identifier: Apache-2.0
"""Synthesizer, Analyzer and CaseFilter, and their metrics against values worked out by hand and against the command."""

import csv
import logging
import math
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay._text_metrics import KNOWN_METRICS, get_metric
from assay.badcase import Analyzer, CaseFilter, Synthesizer


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def read_rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


# ---- metrics ----


@pytest.mark.parametrize(
    ("name", "output", "expected", "score"),
    [
        ("accuracy", "4", "4", 1),
        ("accuracy", "4 ", "4", 0),
        ("edit_distance", "kitten", "sitting", 3),
        ("edit_distance", "", "你好", 2),
        # Of the words a, $ one is abnormal; of the expected ones none, which counts as 0.0001.
        ("relative_abnormal", "a $", "b c", 0.5 / 0.0001),
        ("relative_abnormal", "$ $ a", "$ a", (2 / 3) / (1 / 2)),
        # 2 of the 3 words stand in the expected text; 3 words against 4 cost exp(1 - 4/3).
        ("bleu", "the the cat", "the cat sat down", math.exp(1 - 4 / 3) * 2 / 3),
        ("bleu_2", "the cat sat", "the cat ran", 1 / 2),
        ("bleu_4", "a b c", "a b c", 0),
        ("bleu", "x", "y", 0),
        # Different words: the, cat against the, cat, sat: P 1, R 2/3.
        ("rouge_1", "the the cat", "the cat sat", 2 * 1 * (2 / 3) / (1 + 2 / 3)),
        ("rouge_2", "a b c", "a b d", 1 / 2),
        ("rouge_1", "one. two", "one two", 1),
        # Longest common subsequence a c d: P 3/4, R 3/3.
        ("rouge_l", "a b c d", "a c d", 2 * 0.75 / 1.75),
        # Pairs of "a a a": one different of two; of "a b c": two of two.
        ("relative_distinct", "a a a", "a b c", 1 / 2),
        ("relative_distinct_1", "a a", "a b", 1 / 2),
    ],
)
def test_scores_worked_out_by_hand(name, output, expected, score):
    assert get_metric(name).of(output, expected) == pytest.approx(score, rel=1e-12)


@pytest.mark.parametrize("name", ["relative_abnormal", "relative_distinct", "rouge", "rouge_l"])
def test_texts_without_words_have_no_rates(name):
    with pytest.raises(ValueError, match="too few words"):
        get_metric(name).of("", "a b c")
    with pytest.raises(ValueError, match="too few words"):
        get_metric(name).of("a b c", " ")


def test_limits():
    assert get_metric("accuracy").passes(1) and not get_metric("accuracy").passes(0)
    assert get_metric("edit_distance").passes(5) and not get_metric("edit_distance").passes(6)
    assert get_metric("relative_abnormal").passes(1.2) and not get_metric("relative_abnormal").passes(1.3)
    assert get_metric("bleu").passes(0.4) and not get_metric("rouge").passes(0.39)
    assert get_metric("relative_distinct").passes(0.8) and not get_metric("relative_distinct", 0.9).passes(0.8)


def test_metrics_refuse_wrong_names_and_limits():
    for name in (1, 1.5, []):
        with pytest.raises(TypeError):
            get_metric(name)
    for name in ("", "acc"):
        with pytest.raises(KeyError):
            get_metric(name)
    with pytest.raises(TypeError):
        get_metric("accuracy", "")
    for name, limit in [("accuracy", 1.1), ("bleu", -0.1), ("edit_distance", -1), ("rouge", math.nan)]:
        with pytest.raises(ValueError):
            get_metric(name, limit)


# ---- CaseFilter ----


def test_case_filter_writes_the_bad_cases_in_the_order_in_which_metrics_found_them():
    cases = CaseFilter()
    cases.add_metrics(edit_distance=2, accuracy=None, bleu=None)
    path = cases.apply(["q0", "q1", "q2", "q3"], ["a b", "ab", "abcd ef", "=1+x"], ["a b", "ac", "x y", "=1+x"], "out")
    assert re.fullmatch(r"out/msit_filter_result_\d{14}\.csv", path)
    assert read_rows(path) == [
        ["model input", "model output", "gold standard", "edit_distance", "accuracy", "bleu"],
        ["q2", "abcd ef", "x y", "6.0", "0", "0.0"],
        ["q1", "ab", "ac", "PASSED", "0", "0.0"],
    ]
    assert os.stat(path).st_mode & 0o137 == 0


def test_case_filter_leaves_out_what_has_no_score_and_says_so(caplog):
    cases = CaseFilter()
    cases.add_metrics(relative_distinct=None)
    with caplog.at_level(logging.WARNING, "msit_llm_logger"):
        assert cases.apply(["q"], [""], ["a b"]) is None
    assert "case 0 has no relative_distinct" in caplog.text and "no file will be created" in caplog.text
    assert list(Path().iterdir()) == []


def test_case_filter_defuses_formulas():
    cases = CaseFilter()
    cases.add_metrics(accuracy=None)
    path = cases.apply(["=cmd()"], ["-5"], ["@x"])
    assert read_rows(path)[1] == ["'=cmd()", "-5", "'@x", "0"]


def test_case_filter_refuses_wrong_arguments():
    cases = CaseFilter()
    with pytest.raises(RuntimeError):
        cases.apply(["a"], ["b"], ["c"])
    cases.add_metrics(accuracy=None)
    for error, arguments in [
        (TypeError, (("a",), ["b"], ["c"])),
        (TypeError, (["a"], [1], ["c"])),
        (TypeError, (["a"], ["b"], ["c"], 3)),
        (ValueError, (["a"], ["b", "c"], ["d"])),
        (ValueError, ([], [], [])),
    ]:
        with pytest.raises(error):
            cases.apply(*arguments)


def assay_binary():
    named = os.environ.get("ASSAY_BINARY")
    beside = Path(sys.executable).with_name("assay")
    return named or (str(beside) if beside.exists() else shutil.which("assay"))


def test_the_command_finds_the_same_cases():
    """Random texts through both ways in: equal rows, equal digits."""
    assert assay_binary(), "the command assay is not installed; set ASSAY_BINARY"
    source = random.Random(5)
    pieces = ["a", "b", "top1", "3.14", "80%", " ", "  ", ". ", ", ", "$", "#", "你", "好", "。", "\n", '"', "é", "x.y"]

    def text():
        return "".join(source.choices(pieces, k=source.randrange(0, 12)))

    cases = [(f"q{i}", text(), text()) for i in range(400)]
    with open("cases.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["model input", "model output", "gold standard"], *cases])
    for name in KNOWN_METRICS:
        limit = 2.0 if name.startswith("relative_distinct") else None  # beyond most scores
        filtered = CaseFilter()
        filtered.add_metrics(**{name: limit})
        mine = filtered.apply(*map(list, zip(*cases)), f"python_{name}")
        words = [assay_binary(), "casefilter", "-i", "cases.csv", "-m", name, "-o", f"command_{name}"]
        if limit:
            words[5] += f"={limit}"
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1, done.stderr
        theirs = next(Path(f"command_{name}").iterdir())
        assert read_rows(mine) == read_rows(theirs), name
        assert len(read_rows(mine)) > 10, name


# ---- Synthesizer and Analyzer ----


def test_synthesizer_collects_piece_by_piece():
    import numpy

    results = Synthesizer(queries="Question 1", passed=True)
    results.from_args(input_token_ids=[[1, 2], numpy.array([3])], output_token_ids=5)
    results.from_args(queries=("Question 2", "Question 3"), passed=["Wrong", "Correct"])
    assert results.table("trunc") == {
        "queries": ["Question 1"],
        "input_token_ids": ["[1, 2]"],
        "output_token_ids": ["5"],
        "passed": ["True"],
    }
    assert results.table("pad")["input_token_ids"] == ["[1, 2]", "[3]", ""]
    with pytest.raises(ValueError, match="different lengths"):
        results.table("strict")
    with pytest.raises(ValueError):
        results.to_csv(errors="cut")
    path = results.to_csv()
    assert re.fullmatch(r"msit_bad_case/synthesizer/\d{14}\.csv", path)
    assert read_rows(path) == [Synthesizer.HEADER, ["Question 1", "[1, 2]", "5", "True"]]
    again = results.to_csv()
    assert again != path and len(os.listdir("msit_bad_case/synthesizer")) == 2


def test_synthesizer_without_entries():
    with pytest.raises(RuntimeError, match="should be called first"):
        Synthesizer().to_csv()
    assert Synthesizer(queries="only a question").to_csv() is None
    assert not Path("msit_bad_case").exists()


def test_synthesizer_as_data_frame():
    frame = Synthesizer(queries=["a"], input_token_ids=[1], output_token_ids=[2], passed=["Correct"]).to_df()
    assert frame.to_dict("list") == {
        "queries": ["a"],
        "input_token_ids": ["1"],
        "output_token_ids": ["2"],
        "passed": ["Correct"],
    }


def results_of(verdicts, **changes):
    count = len(verdicts)
    columns = dict(queries=[f"Q{i}" for i in range(count)], input_token_ids=range(count), output_token_ids=range(count))
    return Synthesizer(**{**columns, "passed": verdicts, **changes})


def test_analyzer_names_the_cases_of_different_verdict(caplog):
    golden = results_of(["Correct", "Wrong", "Correct", "Wrong"])
    mine = results_of([True, True, "Wrong"], queries=["Q0", "Q1", "Q2"], output_token_ids=[7, 8, 9]).to_csv()
    with caplog.at_level(logging.WARNING, "msit_llm_logger"):
        path = Analyzer.analyze(golden, mine)
    assert re.fullmatch(r"msit_bad_case/analyzer/\d{14}\.csv", path)
    assert read_rows(path) == [
        [
            "queries",
            "input_token_ids_golden",
            "input_token_ids_test",
            "output_token_ids_golden",
            "output_token_ids_test",
            "passed_golden",
            "passed_test",
        ],
        ["Q1", "1", "1", "1", "8", "Wrong", "True"],
        ["Q2", "2", "2", "2", "9", "Correct", "Wrong"],
    ]
    assert "There are '1' quer(ies) not matched" in caplog.text and "['Q3']" in caplog.text


def test_analyzer_agrees_with_the_command(tmp_path):
    golden = results_of(["Correct", "Wrong", "Correct"]).to_csv()
    mine = results_of(["Wrong", "Wrong", "Wrong"]).to_csv()
    by_python = read_rows(Analyzer.from_csv(golden, mine))
    other = tmp_path / "other"
    other.mkdir()
    words = [assay_binary(), "analyze", "-g", os.path.abspath(golden), "-t", os.path.abspath(mine)]
    subprocess.run(words, cwd=other, check=False, timeout=60)
    assert read_rows(next((other / "msit_bad_case" / "analyzer").iterdir())) == by_python


def test_analyzer_without_a_difference(caplog):
    with caplog.at_level(logging.WARNING, "msit_llm_logger"):
        assert Analyzer.analyze(results_of(["Correct"]), results_of(["True"])) is None
    assert "there is no difference" in caplog.text
    assert not Path("msit_bad_case").exists()


def test_analyzer_refuses_what_is_no_result():
    with pytest.raises(ValueError, match="only path with suffix"):
        Analyzer.analyze("results.txt", "results.csv")
    with pytest.raises(ValueError):
        Analyzer.analyze(2, "results.csv")
    with pytest.raises(FileNotFoundError):
        Analyzer.analyze("none.csv", "none.csv")
    Path("wrong.csv").write_text("queries,passed\nQ,True\n")
    with pytest.raises(KeyError, match="Unmatched csv columns"):
        Analyzer.analyze("wrong.csv", "wrong.csv")
