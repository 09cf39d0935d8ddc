# SPDX-License-Identifier: Apache-2.0
"""bcanalyze, analyze, casefilter and logitsdump; tables are written by csv and pandas."""

from __future__ import annotations

import ast
import csv
import os
import re
import stat
import sys
from pathlib import Path

import pandas
import pytest
from assay_command import run


def write_csv(path: Path, columns, *rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *rows])


def read_rows(path: Path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def tool(cwd, *words, name="msit", status=0):
    done = run(*(["llm"] if name != "assay" else []), *words, name=name, cwd=cwd)
    assert done.returncode == status, done.stderr
    return done


def the_only(folder: Path, pattern: str):
    found = [path for path in folder.iterdir() if re.fullmatch(pattern, path.name)]
    assert len(found) == 1 == len(list(folder.iterdir())), list(folder.iterdir())
    return found[0]


@pytest.fixture
def verdicts(tmp_path):
    columns = ["key", "queries", "input_token_ids", "output_token_ids", "passed"]
    ids = ["[1, 2]", "[3]", "[4, 5, 6]", "[7]"]
    queries = ["How are you?", "Hello, all", "=SUM(A1)", "What time is it?"]
    golden = pandas.DataFrame(zip(range(4), queries, ids, ids, ["Correct", "Wrong", "Correct", "Correct"]))
    mine = pandas.DataFrame(zip(range(4), queries, ids, ids, [False, True, False, True]))
    golden.to_csv(tmp_path / "golden.csv", header=columns, index=False)
    mine.to_csv(tmp_path / "mine.csv", header=[*columns[:-1], "pass"], index=False)
    return tmp_path


# ---- bcanalyze and analyze ----


def test_bcanalyze_writes_the_cases_whose_verdicts_differ(verdicts):
    tool(verdicts, "bcanalyze", "-gp", "golden.csv", "-mp", "mine.csv")
    path = the_only(verdicts / "msit_bad_case" / "analyzer", r"msit_bad_case_result_\d{14}\.csv")
    assert read_rows(path) == [
        [
            "key",
            "queries",
            "input_token_ids_golden",
            "input_token_ids_test",
            "output_token_ids_golden",
            "output_token_ids_test",
            "passed_golden",
            "passed_test",
        ],
        ["0", "How are you?", "[1, 2]", "[1, 2]", "[1, 2]", "[1, 2]", "true", "false"],
        ["1", "Hello, all", "[3]", "[3]", "[3]", "[3]", "false", "true"],
        # A cell that a spreadsheet would run is defused.
        ["2", "'=SUM(A1)", "[4, 5, 6]", "[4, 5, 6]", "[4, 5, 6]", "[4, 5, 6]", "true", "false"],
    ]
    assert stat.S_IMODE(path.stat().st_mode) & 0o137 == 0


def test_bcanalyze_joins_as_pandas_does(tmp_path):
    golden = [("1", "True"), ("2", "True"), ("3", "False"), ("3", "True"), ("5", "")]
    mine = [("2", "False"), ("1", "True"), ("3", "True"), ("3", "False"), ("4", "True")]
    write_csv(tmp_path / "a.csv", ["key", "passed"], *golden)
    write_csv(tmp_path / "b.csv", ["key", "passed"], *mine)
    done = tool(tmp_path, "bcanalyze", "-gp", "a.csv", "-mp", "b.csv")
    assert "a.csv: 1 rows have an empty cell and were left out" in done.stderr
    rows = read_rows(next((tmp_path / "msit_bad_case" / "analyzer").iterdir()))
    left = pandas.DataFrame(golden[:4], columns=["key", "passed"])
    right = pandas.DataFrame(mine, columns=["key", "passed"])
    joined = left.merge(right, on="key", how="left", suffixes=("_golden", "_test"), indicator=True)
    bad = joined[(joined._merge == "both") & (joined.passed_golden != joined.passed_test)]
    expected = [[key, a.lower(), b.lower()] for key, a, b in zip(bad.key, bad.passed_golden, bad.passed_test)]
    assert rows == [["key", "passed_golden", "passed_test"], *expected]


def test_bcanalyze_names_the_cases_of_one_side(tmp_path):
    write_csv(tmp_path / "a.csv", ["key", "passed"], *((str(i), "True") for i in range(8)))
    write_csv(tmp_path / "b.csv", ["key", "passed"], ("0", "False"), ("7.0", "True"))
    done = tool(tmp_path, "bcanalyze", "-gp", "a.csv", "-mp", "b.csv")
    assert "There are '6' quer(ies) not matched" in done.stderr
    assert "'1', '2', '3', '4', '5'" in done.stderr and "'6'," not in done.stderr


def test_no_difference_writes_nothing(tmp_path):
    write_csv(tmp_path / "a.csv", ["key", "passed"], ("0", "Correct"))
    write_csv(tmp_path / "b.csv", ["key", "passed"], ("0", "true"))
    done = tool(tmp_path, "bcanalyze", "-gp", "a.csv", "-mp", "b.csv")
    assert "there is no difference between the given golden result and test result" in done.stderr
    assert not (tmp_path / "msit_bad_case").exists()


def test_analyze_joins_by_the_question(verdicts):
    tool(verdicts, "analyze", "-g", "golden.csv", "-t", "mine.csv")
    path = the_only(verdicts / "msit_bad_case" / "analyzer", r"\d{14}\.csv")
    rows = read_rows(path)
    assert rows[0][0] == "queries" and rows[0][-2:] == ["passed_golden", "passed_test"]
    assert [row[0] for row in rows[1:]] == ["How are you?", "Hello, all", "'=SUM(A1)"]
    assert [row[-2:] for row in rows[1:]] == [["Correct", "False"], ["Wrong", "True"], ["Correct", "False"]]


def test_analyses_refuse_what_is_no_result(tmp_path):
    write_csv(tmp_path / "a.csv", ["key", "verdict"], ("0", "True"))
    done = tool(tmp_path, "bcanalyze", "-gp", "a.csv", "-mp", "a.csv", status=1)
    assert "Unmatched csv columns, expected to have 'key' and 'passed'" in done.stderr
    done = tool(tmp_path, "bcanalyze", "-gp", "a.txt", "-mp", "a.csv", status=1)
    assert "Invalid csv path, only path with suffix '.csv' is allowed: 'a.txt'" in done.stderr
    assert "b.csv" in tool(tmp_path, "analyze", "-g", "b.csv", "-t", "a.csv", status=1).stderr
    done = tool(tmp_path, "analyze", "-t", "a.csv", status=2)
    assert "the following arguments are required: --golden/-g" in done.stderr


def test_statuses_under_our_name(verdicts):
    words = ["bcanalyze", "-gp", "golden.csv", "-mp"]
    assert "the result is stored at" in tool(verdicts, *words, "mine.csv", name="assay", status=1).stderr
    tool(verdicts, *words, "golden.csv", name="assay")
    assert tool(verdicts, *words, "none.csv", name="assay", status=2).stderr.startswith("error: none.csv")


# ---- casefilter ----


def test_casefilter_writes_the_cases_that_miss_a_limit(tmp_path):
    write_csv(
        tmp_path / "cases.csv",
        ["model input", "model output", "gold standard", "note"],
        ("q1", "the cat sat", "the cat sat", "equal"),
        ("q2", "kitten", "sitting", "three edits"),
        ("q3", "a b c d", "x y z w", "nothing in common"),
    )
    done = tool(tmp_path, "casefilter", "-i", "cases.csv", "-m", "edit_distance=2", "rouge_1", "-o", "out")
    assert "2 cases in" in done.stderr
    path = the_only(tmp_path / "out", r"msit_filter_result_\d{14}\.csv")
    assert read_rows(path) == [
        ["model input", "model output", "gold standard", "edit_distance", "rouge_1"],
        ["q2", "kitten", "sitting", "3", "0.0"],
        ["q3", "a b c d", "x y z w", "4", "0.0"],
    ]
    tool(tmp_path, "casefilter", "-i", "cases.csv", "-m", "accuracy=0", name="assay")
    tool(tmp_path, "casefilter", "-i", "cases.csv", "-m", "accuracy", name="assay", status=1)


def test_casefilter_refuses_unknown_metrics_and_tables(tmp_path):
    write_csv(tmp_path / "cases.csv", ["model input", "model output"], ("q", "a"))
    for metric, sentence in [
        ("perplexity", "'perplexity' is not supported. Please choose from accuracy, rouge"),
        ("rouge=2", "the limit of 'rouge=2' is not a number from 0 to 1"),
        ("edit_distance=-1", "the limit of 'edit_distance=-1' is not a number from 0 on"),
    ]:
        assert sentence in tool(tmp_path, "casefilter", "-i", "cases.csv", "-m", metric, status=2).stderr
    done = tool(tmp_path, "casefilter", "-i", "cases.csv", "-m", "bleu", status=1)
    assert "has no column 'gold standard'" in done.stderr


# ---- logitsdump ----


@pytest.fixture
def modeltest(tmp_path, monkeypatch):
    """A program called modeltest that writes down what it was given."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "modeltest"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys\n"
        "names = ['BAD_CASE_LOGITS_DUMP', 'LOGITS_DUMP_TOKEN_MAX_LENGTH', 'BAD_CASE_LIST']\n"
        "json.dump([sys.argv[1:], [os.environ.get(name) for name in names]], open('seen.json', 'w'))\n"
        "sys.exit(int(os.environ.get('MODELTEST_STATUS', '0')))\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def seen(folder):
    import json

    return json.loads((folder / "seen.json").read_text())


def dump(folder, keys, *options, status=0, name="msit"):
    pandas.DataFrame({"key": keys, "passed_golden": True}).to_csv(folder / "bad.csv", index=False)
    return tool(folder, "logitsdump", "-bcr", "bad.csv", *options, status=status, name=name)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([3, 0, 12], [3, 0, 12]),
        (["HumanEval/7", "HumanEval/0"], [7, 0]),
        (["Java/4", "CPP/1", "Python/9", "CPP/2"], [[1, 2], [], [4], [], [9]]),
    ],
)
def test_logitsdump_hands_the_cases_over(modeltest, keys, expected):
    dump(modeltest, keys, "-e", "modeltest --tp 1 --name 'a b'", "-tr", "10")
    words, (switch, length, cases) = seen(modeltest)
    assert words == ["--tp", "1", "--name", "a b"]
    assert (switch, length) == ("True", "10")
    assert ast.literal_eval(cases) == expected and cases == repr(expected)


def test_logitsdump_takes_the_command_behind_dashes(modeltest):
    dump(modeltest, [1], "--", "modeltest", "a b", name="assay")
    assert seen(modeltest) == [["a b"], ["True", "1", "[1]"]]


def test_logitsdump_says_when_the_program_failed(modeltest, monkeypatch):
    monkeypatch.setenv("MODELTEST_STATUS", "5")
    assert "error code: 5" in dump(modeltest, [1], "-e", "modeltest", status=1).stderr
    dump(modeltest, [1], "-e", "modeltest", status=5, name="assay")


@pytest.mark.parametrize(
    ("keys", "command", "sentence"),
    [
        ([1], "python run.py", "needs to start with either 'torchrun' or 'modeltest'"),
        ([-1], "modeltest", "must be of the int type and greater than or equal to 0"),
        (["a"], "modeltest", "or all be integers"),
        (["Rust/1"], "modeltest", "only the HumanEval and HumanEvalX datasets are supported"),
        (["CPP/1", "Rust/2"], "modeltest", "(got Rust/2)"),
        (["HumanEval/x"], "modeltest", "The format of key column is wrong"),
        ([], "modeltest", "Bad case list is empty"),
    ],
)
def test_logitsdump_starts_nothing_for_wrong_input(modeltest, keys, command, sentence):
    assert sentence in dump(modeltest, keys, "-e", command, status=1).stderr
    assert not (modeltest / "seen.json").exists()


def test_logitsdump_wants_a_token(modeltest):
    done = dump(modeltest, [1], "-e", "modeltest", "-tr", "0", status=2)
    assert "argument --token-range/-tr: invalid check_token_range value: '0'" in done.stderr


@pytest.mark.parametrize("name", ["logitscmp", "logitsdump", "bcanalyze", "analyze", "casefilter"])
def test_every_tool_explains_itself(tmp_path, name):
    for program in ("msit", "ait", "assay"):
        done = tool(tmp_path, name, "--help", name=program)
        prefix = f"{program} {'llm ' if program != 'assay' else ''}{name}"
        assert done.stdout.startswith(f"usage: {prefix} ") and "example:" in done.stdout
