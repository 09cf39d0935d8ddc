# SPDX-License-Identifier: Apache-2.0
"""`assay compare` ends with the verdict; --verdict gives it as columns, file and exit status."""

from __future__ import annotations

import json
import shutil

import numpy as np
import openpyxl
import pytest
import torch
from assay_command import read_csv, run, the_report, write_torch_tree
from operator_runs import write_run

import assay

COLUMNS = [
    "err_in",
    "err_out",
    "err_own",
    "own_source",
    "noise_floor",
    "amplification",
    "verdict",
    "verdict_confidence",
]


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    """The reference: float32, with operators."""
    return write_run(tmp_path_factory.mktemp("golden") / "run", dtype=torch.float32)


def test_the_sentence_is_the_last_thing_on_the_screen(golden, tmp_path):
    mine = write_run(tmp_path / "mine", gains={1: 1.03}, level="module")
    done = run("compare", golden, mine, "-o", tmp_path / "report")
    assert done.returncode == 1, done
    table, sentence = done.stdout.split("\nfirst bad: ")
    assert "report: " in table
    sentence, following = sentence.split("\nnext: ")
    assert following == f"assay show {mine} blocks.1.norm\n"
    assert " ".join(sentence.split()).endswith("confidence high")
    assert sentence.startswith("blocks.1.norm (ScaleNorm, step 0): weight differs from")
    assert max(map(len, done.stdout.split("\nnext: ")[0].splitlines())) <= 80 + len(str(tmp_path))
    assert not list((tmp_path / "report").glob("*.json"))
    assert list((tmp_path / "report").glob("*.xlsx"))


def test_operators_of_one_side_do_not_drown_the_table(golden, tmp_path):
    mine = write_run(tmp_path / "mine", level="module")
    done = run("compare", golden, mine, "-cl", "api", "-o", tmp_path / "r", "--unmatched")
    assert "40 tensors of operators are not compared" not in done.stderr
    assert "tensors of operators are not compared: the other side has modules only" in done.stdout
    assert "matched 100.0 % of the tensors" in done.stdout
    rows = read_csv(the_report(tmp_path / "r"))
    assert rows
    assert not any("::" in row["node"] for row in rows)


@pytest.mark.parametrize(("plan", "status"), [({}, 0), ({"gains": {1: 1.03}}, 1), ({"unknown": True}, 125)])
def test_verdict_decides_the_exit_status(golden, tmp_path, plan, status):
    mine = write_run(tmp_path / "mine", **plan)
    assert run("compare", golden, mine, "-o", tmp_path / "a", "--verdict").returncode == status
    # A wrong operator is named whether it was asked for or not; that nothing can be judged is told where it was.
    assert run("compare", golden, mine, "-o", tmp_path / "b").returncode == (1 if status == 1 else 0)
    assert run("compare", golden, mine, "-o", tmp_path / "c", "--verdict", "--exit-zero").returncode == 0


LIMITS = {"none": [], "wide": ["--cos", "0.9"], "narrow": ["--rel-l2", "1e-9"]}


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize(
    "plan",
    [{}, {"dtype": torch.float32}, {"gains": {1: 1.03}}, {"unknown": True}],
    ids=["healthy", "same", "wrong", "open"],
)
def test_table_verdict_and_status_are_one_answer(golden, tmp_path, plan, limits):
    mine = write_run(tmp_path / "mine", **plan)
    done = run("compare", golden, mine, "-o", tmp_path / "a", *limits)
    told = json.loads(run("compare", golden, mine, "-o", tmp_path / "b", *limits, "--json").stdout)
    assert told["exit_status"] == done.returncode
    lines = done.stdout.splitlines()
    says = {
        word for word in ("same", "within the limits", "differs") if any(one.startswith(word + ": ") for one in lines)
    }
    verdict = [
        word for word in ("first bad", "clean", "cannot judge") if any(one.startswith(word + ": ") for one in lines)
    ]
    assert ("first bad" in verdict) <= (done.returncode == 1)
    assert "same" not in says or verdict in ([], ["clean"])
    # What programs read is what people read.
    assert told["sentence"].split(": ")[0] in done.stdout
    assert told["outcome"] == {
        "first bad": "beyond_limits" if "differs" in says else "first_wrong",
    }.get("".join(verdict), told["outcome"])
    assert (told["verdict"] is None) == (verdict == [])


def test_equal_values_are_an_answer_where_no_verdict_can_judge(tmp_path):
    for name, kind in (("golden", np.float64), ("mine", np.float32)):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "a.npy", np.arange(6, dtype=kind))
    done = run("compare", "golden", "mine", "-o", "report", cwd=tmp_path)
    assert done.returncode == 0
    assert "\nsame: 1 of 1 pair equal in every value\n" in done.stdout
    assert "cannot judge" not in done.stdout
    assert done.stdout.endswith("\nnext: assay compare golden mine --html page.html\n")
    asked = run("compare", "golden", "mine", "-o", "report", "--verdict", cwd=tmp_path)
    assert asked.returncode == 125
    assert "same: " not in asked.stdout
    assert "\ncannot judge: " in asked.stdout


def test_verdict_columns_stand_at_the_right_end(golden, tmp_path):
    mine = write_run(tmp_path / "mine", kernels={"blocks.1.proj": lambda t: t * 1.03})
    done = run("compare", golden, mine, "-cl", "api", "-o", tmp_path / "r", "--verdict", "--jsonl")
    assert done.returncode == 1
    rows = read_csv(the_report(tmp_path / "r"))
    assert list(rows[0])[-len(COLUMNS) :] == COLUMNS
    of_node = {row["node"]: row for row in rows}
    wrong = of_node["blocks.1.proj::aten.mm.default.0 output"]
    assert wrong["verdict"] == "own_error"
    assert wrong["own_source"] == "exact"
    assert float(wrong["err_own"]) == pytest.approx(0.03, rel=0.1)
    assert float(wrong["err_own"]) > 5 * float(wrong["noise_floor"])
    right = of_node["blocks.2.proj::aten.mm.default.0 output"]
    assert right["verdict"] == "inherited"
    assert float(right["err_own"]) < 2 * float(right["noise_floor"])
    assert float(right["err_in"]) == pytest.approx(float(right["err_out"]), rel=0.5)
    before = of_node["blocks.0.proj::aten.mm.default.0 output"]
    assert before["verdict"] == "noise"
    lines = [json.loads(line) for line in the_report(tmp_path / "r", "msit_cmp_report_*.jsonl").open()]
    assert [line["verdict"] for line in lines] == [row["verdict"] or None for row in rows]


def test_verdict_columns_are_in_the_workbook_and_the_file_beside_it(golden, tmp_path):
    mine = write_run(tmp_path / "mine", gains={1: 1.03}, level="module")
    assert run("compare", golden, mine, "-o", tmp_path / "r", "--verdict").returncode == 1
    book = openpyxl.load_workbook(the_report(tmp_path / "r", "*.xlsx"))
    header = [cell.value for cell in book["api"][1]]
    assert header[-len(COLUMNS) :] == COLUMNS
    first_bad = json.loads(the_report(tmp_path / "r", "msit_cmp_first_bad_*.json").read_text())
    assert first_bad["first_bad"]["module"] == "blocks.1.norm"
    located = json.loads(run("locate", golden, mine, "--json").stdout)
    assert (located.pop("command"), located.pop("exit_status")) == ("locate", 1)
    assert first_bad == located


def test_old_reports_and_pairs_of_files_have_no_verdict(golden, tmp_path):
    mine = write_run(tmp_path / "mine", gains={1: 1.03}, level="module")
    done = run("compare", golden, mine, "-o", tmp_path / "r", "--compat", "msit")
    assert "first bad" not in done.stdout
    np.save(tmp_path / "a.npy", np.ones(3))
    done = run("compare", tmp_path / "a.npy", tmp_path / "a.npy")
    assert done.returncode == 0
    assert "clean" not in done.stdout


def test_a_slice_that_names_nothing_is_an_error(golden, tmp_path):
    done = run("compare", golden, golden, "-o", tmp_path / "r", "--slice", "nothing")
    assert done.returncode == 2
    assert "--slice nothing" in done.stderr
    assert not (tmp_path / "r").exists()


def equal_values(compared) -> tuple[bool, bool]:
    """What the table says, and what the verdict."""
    return "equal in every value" in compared.stdout, "golden's, bit for bit" in " ".join(compared.stdout.split())


def test_folders_of_one_step_each_are_the_same_step_for_table_and_verdict(tmp_path):
    golden = write_torch_tree(tmp_path / "golden", layer_count=2, tokens=(0,)) / "0"
    mine = write_torch_tree(tmp_path / "mine", layer_count=2, tokens=(5,)) / "5"
    assert equal_values(run("compare", golden, mine, "--verdict", "-o", tmp_path / "out")) == (True, True)


def test_single_processes_are_the_same_for_table_and_verdict_whatever_their_number(tmp_path):
    golden, mine = tmp_path / "golden", tmp_path / "mine"
    model = torch.nn.Linear(3, 2)
    with assay.capture(model, str(golden), level="module"):
        model(torch.ones(1, 3))
    shutil.copytree(golden, mine)
    (mine / "rank0").rename(mine / "rank3")
    assert equal_values(run("compare", golden, mine, "--verdict", "-o", tmp_path / "out")) == (True, True)
