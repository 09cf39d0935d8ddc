# SPDX-License-Identifier: Apache-2.0
"""The report files of `assay opcheck`, read by the programs that people open them with."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import openpyxl
import pandas
import pytest
import torch
from assay_command import run
from opcheck_dump import check, run_folder_of, to_bf16, write_operation
from page_file import PageFile

RMS_NORM = {
    "layerType": 1,
    "normParam": {
        "quantType": 0,
        "epsilon": 0.000009999999747378752,
        "layerNormEps": 0.000009999999747378752,
        "rstd": False,
        "precisionMode": 0,
        "modelType": 0,
        "dynamicQuantType": 0,
    },
}
MSIT_COLUMNS = [
    "op_id",
    "op_name",
    "op_param",
    "tensor_path",
    "out_tensor_id",
    "precision_standard",
    "precision_result",
    "rel_precision_rate(%)",
    "max_rel_error",
]


def half(*words: str) -> np.ndarray:
    """float16 values of one row, given as the bytes of a dump: "003c" is 1."""
    return np.frombuffer(bytes.fromhex("".join(words)), dtype=np.float16).reshape(1, -1)


X = half("003c", "0040", "00c2", "0044")
GAMMA = half("003c", "003c", "003c", "0038")[0]
GOLDEN = half("d835", "d839", "62bc", "d839")
# Element 1 is off by one unit of the last place, element 2 by three.
WRONG = half("d835", "d939", "65bc", "d839")


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """The worked example, the same with the right output, one without its input, a type that nothing knows."""
    place = run_folder_of(tmp_path / "dump", step=2)
    layer = "0_Prefill_layer"
    write_operation(place, f"{layer}/0_RmsNormOperation", RMS_NORM, [X, GAMMA], [WRONG])
    write_operation(place, f"{layer}/2_RmsNormOperation", RMS_NORM, [X, GAMMA], [GOLDEN])
    write_operation(place, f"{layer}/10_RmsNormOperation", RMS_NORM, [X, None], [GOLDEN])
    write_operation(place, f"{layer}/11_FooOperation", {"<script>": "alert(1)"}, [X], [GOLDEN])
    return place


def report(dump: Path, folder: Path, *options: str, name: str = "assay", status: int = 1):
    folder.mkdir(exist_ok=True)
    arguments = ["llm", "opcheck", "-i", dump] if name != "assay" else ["opcheck", dump]
    done = run(*arguments, "-o", folder, *options, name=name)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done, sorted(folder.iterdir())


def test_the_worked_example_in_every_column(dump: Path, tmp_path: Path) -> None:
    _, (path,) = report(dump, tmp_path / "r", "--format", "csv", "-metric", "abs", "cos_sim", "kl")

    table = pandas.read_csv(path, dtype=str, keep_default_na=False)

    assert re.fullmatch(r"opcheck_result_\d{8}_\d{6}\.csv", path.name)
    assert list(table.columns[:9]) == MSIT_COLUMNS
    assert list(table.columns[9:14]) == [
        "abs_precision_rate(%)",
        "max_abs_error",
        "cosine_similarity",
        "kl_divergence",
        "fail_reason",
    ]
    assert list(table["op_id"]) == ["0_0", "0_2", "0_10", "0_11"]  # natural order
    row = table.iloc[0]
    assert json.loads(row["op_param"]) == RMS_NORM
    assert row["op_param"].startswith('{"layerType": 1, "normParam": {"quantType": 0, ')
    assert row["tensor_path"].endswith("0_Prefill_layer/0_RmsNormOperation")
    assert row["out_tensor_id"] == "0"
    assert row["precision_standard"] == "99.9%(error<0.0009765625)"
    assert row["precision_result"] == "FAILED"
    assert row["rel_precision_rate(%)"] == "75.0000000000000000"
    assert row["max_rel_error"] == "0.0029296875000000"
    assert row["cosine_similarity"] == "0.9999992685"
    # |-1.0986328125 - -1.095703125|, of four values one beyond 2^-10
    assert row["max_abs_error"] == "0.0029296875000000"
    assert row["abs_precision_rate(%)"] == "75.0000000000000000"
    assert row["fail_reason"] == "relative pass rate: 75.0 not met standart: 99.9."
    assert row["atb_rate(%)"] == "75.0"
    assert float(row["error_balance(%)"]) == pytest.approx(51, abs=0.05)
    assert row["worst_index"] == "[0, 2]"
    assert [row[f"ulp_{n}"] for n in ("0", "1", "2", "4", "8", "more")] == ["2", "1", "0", "1", "0", "0"]


def test_rows_without_a_result_carry_the_text_nan_and_a_reason(dump: Path, tmp_path: Path) -> None:
    _, (path,) = report(dump, tmp_path / "r", "--format", "jsonl")

    rows = [json.loads(line) for line in path.read_text().splitlines()]

    assert [row["result"] for row in rows] == ["FAILED", "PASS", "ERROR", "NOT_SUPPORTED"]
    missing = rows[2]
    assert missing["precision_result"] == "FAILED"
    assert missing["out_tensor_id"] == missing["precision_standard"] == missing["max_rel_error"] == "NaN"
    assert "gamma" in missing["reason"] and missing["fail_reason"] == missing["reason"]
    assert missing["max_abs"] is None
    assert rows[3]["precision_result"] == "addition failed"
    assert isinstance(rows[0]["mean_abs"], float) and isinstance(rows[0]["count"], int)
    assert rows[0]["worst_neighbours"].startswith("golden 0.3651481 0.7302963 -1.095444 0.7302963, mine ")


def test_the_workbook_opens_with_its_three_sheets(dump: Path, tmp_path: Path) -> None:
    _, (path,) = report(dump, tmp_path / "r", "-metric", "abs")

    book = openpyxl.load_workbook(path)

    assert book.sheetnames == ["opcheck_result", "addition_failed_cases", "summary"]
    rows = list(book["opcheck_result"].values)
    assert list(rows[0][:9]) == MSIT_COLUMNS
    assert [row[0] for row in rows[1:]] == ["0_0", "0_2", "0_10"]
    assert rows[2][6] == "PASS" and rows[2][7] == "100.0000000000000000"
    failed = list(book["addition_failed_cases"].values)
    assert failed[1][1] == "FooOperation" and failed[1][6] == "addition failed"
    summary = {row[0]: row[1:7] for row in book["summary"].values}
    # cases, outputs, passed, failed, not supported, errors
    assert summary["RmsNormOperation"] == (3, 3, 1, 1, 0, 1)
    assert summary["total"] == (4, 4, 1, 1, 1, 1)
    # The workbook is what pandas reads, too.
    assert list(pandas.read_excel(path)["op_id"]) == ["0_0", "0_2", "0_10"]


def test_the_page_holds_every_output(dump: Path, tmp_path: Path) -> None:
    _, (path,) = report(dump, tmp_path / "r", "--format", "html")

    page = PageFile(path)

    assert [row["result"] for row in page.rows] == ["FAILED", "PASS", "ERROR", "NOT_SUPPORTED"]  # as executed
    assert page.rows[0]["worst_index"] == "[0, 2]"
    assert page.content["sentence"].startswith("wrong: 1 FAILED and 1 ERROR of 4 operations")


def test_the_terminal_names_the_first_wrong_output(dump: Path, tmp_path: Path) -> None:
    done, (path,) = report(dump, tmp_path / "r")

    assert "  0_0  RmsNormOperation  outtensor0  FAILED\n" in done.stdout
    assert "1 of 4 elements is off by more than 2^-9 * max(1, |golden|)" in done.stdout
    assert f"report: {path}\n" in done.stdout
    *_, sentence, command = done.stdout.splitlines()
    assert command.startswith("next: assay show ")
    assert sentence == "wrong: 1 FAILED and 1 ERROR of 4 operations, first 0_0 RmsNormOperation"
    width = max(len(line) for line in done.stdout.splitlines() if not line.startswith(("report: ", "next: ")))
    assert width <= 80


def legacy_by_torch(golden: torch.Tensor, mine: torch.Tensor, etol: float) -> tuple[str, str]:
    """Share and maximum as docs/opcheck.md defines them, in torch's own arithmetic of the type."""
    golden, mine = golden.flatten(), mine.flatten()
    error = torch.where(
        golden.abs() > torch.finfo(torch.float32).eps, (mine / golden - 1).abs(), torch.zeros_like(golden)
    )
    share = (error <= etol).sum() / error.numel()
    return f"{share.item() * 100:.16f}", f"{error.max().item():.16f}"


@pytest.mark.parametrize("dtype, etol", [(torch.float16, 2**-10), (torch.bfloat16, 2**-8), (torch.float32, 2**-20)])
def test_the_legacy_numbers_are_torchs(tmp_path: Path, dtype: torch.dtype, etol: float) -> None:
    generator = torch.Generator().manual_seed(7)
    # Magnitudes from subnormal to large, errors from none to a few units of the last place and beyond.
    exponents = torch.randint(-20, 12, (37, 53), generator=generator)
    golden = (torch.randn(37, 53, generator=generator) * 2.0**exponents).to(dtype)
    noise = 1 + torch.randn(37, 53, generator=generator) * torch.finfo(dtype).eps
    mine = (golden.float() * noise).to(dtype)
    golden[0, :5], mine[0, :3] = 0, 1

    def tensor(values: torch.Tensor):
        return to_bf16(values.float().numpy()) if dtype == torch.bfloat16 else values.numpy()

    # A transposition: its golden is the input, moved.
    moved = tensor(golden.T.contiguous())
    (row,) = check(tmp_path, "TransposeOperation", {"perm": [1, 0]}, [moved], [tensor(mine)], "-metric", "abs")

    rate, largest = legacy_by_torch(golden, mine, etol)
    assert (row["rel_precision_rate(%)"], row["max_rel_error"]) == (rate, largest)
    difference = (golden.double() - mine.double()).abs()
    counted = torch.where(golden.double().abs() > torch.finfo(torch.float32).eps, difference, 0.0)
    assert row["max_abs_error"] == f"{counted.max().item():.16f}"
    assert row["max_abs"] == difference.max().item()
    assert row["result"] == "FAILED" and "must be met exactly" in row["reason"]


def test_another_standard_decides(dump: Path, tmp_path: Path) -> None:
    _, (path,) = report(dump, tmp_path / "r", "--format", "jsonl", "--standard", "mixed", "-ids", "0_0,0_2")

    rows = [json.loads(line) for line in path.read_text().splitlines()]

    # 3.2e-3 is beyond 2^-10 (1 + 1.095) in one of four elements
    assert [row["result"] for row in rows] == ["FAILED", "PASS"]
    assert rows[0]["standard"] == "mixed" and "1 % may be" in rows[0]["reason"]


def test_two_reports_of_one_second_do_not_overwrite_each_other(dump: Path, tmp_path: Path) -> None:
    for _ in range(3):
        report(dump, tmp_path / "r", "--format", "csv", "jsonl")

    assert len(list((tmp_path / "r").glob("*.csv"))) == 3
    assert len(list((tmp_path / "r").glob("*.jsonl"))) == 3


def test_a_custom_algorithm_is_a_column_and_its_message_a_reason(dump: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "metrics.py"
    plugin.write_text("def spread(golden, mine):\n    return float(abs(golden - mine).max()), 'too wide'\n")

    _, (path,) = report(dump, tmp_path / "r", "--format", "csv", "-ids", "0_0", "-alg", f"{plugin}:spread")

    (row,) = pandas.read_csv(path).to_dict("records")
    assert row["spread"] == 0.0029296875
    assert row["fail_reason"] == "relative pass rate: 75.0 not met standart: 99.9., spread: too wide"


def test_the_old_name_writes_the_workbook_and_ends_with_0(dump: Path, tmp_path: Path) -> None:
    done, (path,) = report(dump, tmp_path / "r", name="msit", status=0)

    assert path.suffix == ".xlsx"
    assert re.search(r"Total cases: \d+; Total time: \d+\.\d\d seconds", done.stdout)
