# SPDX-License-Identifier: Apache-2.0
"""Workbooks open on their summary, colour what is wrong and run nothing; read by openpyxl and by LibreOffice."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import zipfile

import numpy as np
import openpyxl
import pytest
import torch
from assay_command import read_csv, run, the_report, write_torch_tree
from openpyxl.utils import range_boundaries
from operator_runs import write_run
from safetensors.numpy import save_file

import assay

RED, AMBER, GREEN = "FFFFC7CE", "FFFFEB9C", "FFC6EFCE"
# What a spreadsheet would run, were it typed in; the last two start with white space that is removed first.
FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(1,1)", '=HYPERLINK("http://a.example","x")', "\t=1+1", "\r=1+1"]


def colour(cell) -> str:
    return cell.fill.fgColor.rgb if cell.fill.fill_type == "solid" else ""


def rows_of(sheet, header_row=1) -> list[dict]:
    """The cells of each row by the name of their column."""
    names = [cell.value for cell in sheet[header_row]]
    return [dict(zip(names, row)) for row in sheet.iter_rows(min_row=header_row + 1)]


def section(rows, name) -> dict:
    """Of a summary: the cells "value" of a section by their name."""
    return {row["name"].value: row["value"] for row in rows if row["section"].value == name}


def target_of(book, cell):
    """The row of another sheet that a link leads to."""
    sheet, row = re.fullmatch(r"'(.+)'!A(\d+)", cell.hyperlink.location).groups()
    return book[sheet], int(row)


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    """Two runs of which the second has a wrong operator: the folder, and what `compare` said."""
    folder = tmp_path_factory.mktemp("wrong")
    golden = write_run(folder / "golden", dtype=torch.float32)
    mine = write_run(folder / "mine", kernels={"blocks.1.proj": lambda t: t * 1.03})
    return folder, run("compare", golden, mine, "-o", folder / "report", "--rel-l2", "0.001")


@pytest.fixture(scope="module")
def book(wrong):
    return openpyxl.load_workbook(the_report(wrong[0] / "report", "*.xlsx"))


def test_it_opens_on_the_summary_which_begins_with_the_sentence(wrong, book):
    assert book.active.title == "summary"
    assert [sheet.title for sheet in book if sheet.sheet_view.tabSelected] == ["summary"]
    title = book["summary"]["A1"]
    said, following = wrong[1].stdout.split("\nnext: ")
    assert " ".join(said.split()).endswith(title.value)
    assert list(section(rows_of(book["summary"], 2), "next")) == [following.strip()]
    assert title.value.startswith("first bad: blocks.1.proj ")
    assert colour(title) == RED and title.alignment.wrap_text and title.font.bold
    (merged,) = book["summary"].merged_cells.ranges
    assert merged.coord.startswith("A1:") and merged.max_row == 1


def test_sheets_of_scripts_keep_their_place_and_their_first_row(book):
    assert book.sheetnames == ["layer", "module", "api", "summary"]
    for sheet in book.worksheets[:3]:
        assert [cell.value for cell in sheet[1]][:3] == ["token_id", "data_id", "golden_data_path"]
        assert sheet.freeze_panes == "A2" and sheet.auto_filter.ref.startswith("A1:")
    assert book["summary"].freeze_panes == "A3" and book["summary"].auto_filter.ref.startswith("A2:")


def test_the_summary_counts_what_the_sheets_hold(book):
    pairs = {row["node"].value: row for name in ("layer", "module", "api") for row in rows_of(book[name])}
    failed = [row for row in pairs.values() if row["result"].value == "fail"]
    counts = section(rows_of(book["summary"], 2), "count")
    assert counts["pairs"].value == len(pairs)
    assert counts["beyond limits"].value == len(failed) > 0 and colour(counts["beyond limits"]) == RED
    assert counts["unmatched"].value == counts["unreadable"].value == 0 and not colour(counts["unmatched"])
    assert section(rows_of(book["summary"], 2), "coverage percent")["api"].value == 100


def test_links_lead_to_the_rows_they_name(book):
    rows = rows_of(book["summary"], 2)
    first = next(row for row in rows if row["section"].value == "first bad")
    assert first["worst_node"].value == "blocks.1.proj::aten.mm.default.0 output"
    linked = [row for row in rows if row["worst_node"].value]
    assert {"first bad", "worst", "worst by metric", "operator type", "layer"} <= {
        row["section"].value for row in linked
    }
    for row in linked:
        sheet, number = target_of(book, row["worst_node"])
        found = rows_of(sheet)[number - 2]
        assert (found["node"].value, found["my_data_path"].value) == (
            row["worst_node"].value,
            row["my_data_path"].value,
        )
        if row["section"].value == "worst by metric":
            assert found[row["name"].value].value == row["value"].value
    heads = [row["name"] for row in rows if row["section"].value == "coverage percent"]
    assert [target_of(book, cell) for cell in heads] == [(book[cell.value], 1) for cell in heads]


def test_the_worst_rows_are_the_largest_errors(book):
    rows = rows_of(book["summary"], 2)
    worst = [row["value"].value for row in rows if row["section"].value == "worst"]
    every = {
        row["node"].value: row["relative_euclidean_distance"].value
        for name in ("layer", "module", "api")
        for row in rows_of(book[name])
    }
    assert worst == sorted(every.values(), reverse=True)[:10]


def test_failed_rows_are_red(book):
    results = [row["result"] for row in rows_of(book["api"])]
    assert {cell.value: colour(cell) for cell in results} == {"fail": RED, "pass": ""}


def test_numbers_keep_their_digits_and_tiny_ones_are_shown_as_powers_of_ten(wrong, book):
    golden, mine = wrong[0] / "golden", wrong[0] / "mine"
    run("compare", golden, mine, "-o", wrong[0] / "csv", "-cl", "api", "--rel-l2", "0.001")
    texts = read_csv(the_report(wrong[0] / "csv"))
    formats = set()
    for row, text in zip(rows_of(book["api"]), texts):
        for cell in row.values():
            if isinstance(cell.value, float):
                tiny = 0 < abs(cell.value) < 1e-3
                assert cell.number_format == ("0.00E+00" if tiny else "General"), cell
                formats.add(tiny)
        assert float(text["max_absolute_error"]) == row["max_absolute_error"].value
    assert formats == {True, False}


def test_verdicts_that_accuse_are_red(wrong, tmp_path):
    golden, mine = wrong[0] / "golden", wrong[0] / "mine"
    run("compare", golden, mine, "-o", tmp_path, "--verdict")
    verdicts = [row["verdict"] for row in rows_of(openpyxl.load_workbook(the_report(tmp_path, "*.xlsx"))["api"])]
    colours = {"own_error": RED, "amplified": AMBER, "drift": AMBER, "inherited": "", "noise": "", "equal": ""}
    assert {cell.value: colour(cell) for cell in verdicts if cell.value} == colours


def test_a_clean_run_is_green_and_what_cannot_be_judged_amber(tmp_path):
    golden = write_torch_tree(tmp_path / "g", layer_count=2)
    same = write_torch_tree(tmp_path / "s", layer_count=2, pid=2)
    other = write_torch_tree(
        tmp_path / "m", layer_count=2, pid=3, change=lambda name, t: t[:, :3] if name.endswith("layers.1") else t
    )
    run("compare", golden, same, "-o", tmp_path / "same")
    run("compare", golden, other, "-o", tmp_path / "other")
    assert colour(openpyxl.load_workbook(the_report(tmp_path / "same", "*.xlsx"))["summary"]["A1"]) == GREEN
    book = openpyxl.load_workbook(the_report(tmp_path / "other", "*.xlsx"))
    reasons = [row["cmp_fail_reason"] for row in rows_of(book["api"])]
    assert {bool(cell.value): colour(cell) for cell in reasons} == {True: AMBER, False: ""}
    unreadable = section(rows_of(book["summary"], 2), "count")["unreadable"]
    assert unreadable.value > 0 and colour(unreadable) == AMBER


@pytest.fixture(scope="module")
def formulas(tmp_path_factory):
    """A workbook and a csv whose names are formulas."""
    folder = tmp_path_factory.mktemp("formulas")
    for side, factor in (("g", 1), ("m", 1.5)):
        save_file({name: np.full(4, factor, np.float32) for name in FORMULAS}, folder / f"{side}.safetensors")
    result = assay.compare(folder / "g.safetensors", folder / "m.safetensors")
    result.write(folder / "names.xlsx")
    result.write(folder / "names.csv")
    return folder


def shown(name: str) -> str:
    """Control characters are shown as question marks."""
    return name.replace("\t", "?").replace("\r", "?")


def test_names_that_are_formulas_stay_texts(formulas):
    book = openpyxl.load_workbook(formulas / "names.xlsx")
    names = {shown(name) for name in FORMULAS}
    nodes = [row["node"] for row in rows_of(book["api"])]
    worst = [row["worst_node"] for row in rows_of(book["summary"], 2) if row["section"].value == "worst"]
    for cells in (nodes, worst):
        assert {cell.value for cell in cells} == names
        assert {cell.data_type for cell in cells} == {"s"}
    with zipfile.ZipFile(formulas / "names.xlsx") as package:
        sheets = [package.read(name).decode() for name in package.namelist() if "worksheets" in name]
    assert len(sheets) == 2 and not any("<f>" in sheet or "<f " in sheet for sheet in sheets)


def test_a_csv_marks_names_that_are_formulas(formulas):
    with (formulas / "names.csv").open(newline="") as file:
        nodes = {row["node"] for row in csv.DictReader(file)}
    assert nodes == {shown(name) if shown(name).startswith("?") else f"'{name}" for name in FORMULAS}


def soffice(*arguments, folder) -> None:
    """Runs LibreOffice with a profile of its own, so that an open one of the user does not answer instead."""
    program = shutil.which("soffice")
    if program is None:
        pytest.skip("no soffice on PATH (Debian: libreoffice-calc-nogui); openpyxl alone reads the workbooks")
    profile = f"-env:UserInstallation={(folder / 'profile').as_uri()}"
    subprocess.run([program, profile, "--headless", *map(str, arguments)], cwd=folder, check=True, timeout=120)


# All sheets, each to a file, commas, UTF-8, texts in quotes, cells as they are shown.
EACH_SHEET = "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,true,true,false,false,false,-1"


def test_libreoffice_shows_the_names_and_runs_none(formulas, tmp_path):
    soffice("--convert-to", EACH_SHEET, formulas / "names.xlsx", folder=tmp_path)
    with (tmp_path / "names-summary.csv").open(newline="") as file:
        summary = list(csv.reader(file))
    assert summary[0][0].startswith("7 of 7 pairs differ")
    assert summary[1][:2] == ["section", "name"]
    assert {row[6] for row in summary[2:] if row[0] == "worst"} == {shown(name) for name in FORMULAS}


def test_libreoffice_prints_the_summary_as_wide_as_a_page(wrong, tmp_path):
    soffice("--convert-to", "pdf", the_report(wrong[0] / "report", "*.xlsx"), folder=tmp_path)
    (page,) = tmp_path.glob("*.pdf")
    assert page.read_bytes().startswith(b"%PDF-")


def test_the_old_report_is_what_it_was(wrong, tmp_path):
    """Its styles, its first sheet: `--compat` is to the letter."""
    golden, mine = wrong[0] / "golden", wrong[0] / "mine"
    run("compare", golden, mine, "-o", tmp_path, "--compat", "msit", "--rel-l2", "0.001")
    path = the_report(tmp_path, "*.xlsx")
    book = openpyxl.load_workbook(path)
    assert book.sheetnames == ["layer", "module", "api"] and book.active.title == "layer"
    assert not any(colour(cell) for row in book["api"].iter_rows() for cell in row)
    with zipfile.ZipFile(path) as package:
        assert b'<cellXfs count="2">' in package.read("xl/styles.xml")
        assert b"bookViews" not in package.read("xl/workbook.xml")
        assert re.search(rb' s="(?!1")', package.read("xl/worksheets/sheet3.xml")) is None


def test_the_workbook_of_opcheck_opens_on_its_verdict(wrong, tmp_path):
    done = run("opcheck", wrong[0] / "mine", "-o", tmp_path)
    book = openpyxl.load_workbook(the_report(tmp_path, "*.xlsx"))
    assert book.sheetnames == ["opcheck_result", "summary"] and book.active.title == "summary"
    title = book["summary"]["A1"]
    assert title.value.startswith("wrong: 1 FAILED of ") and colour(title) == RED
    assert " ".join(done.stdout[: done.stdout.rindex("\nnext: ")].split()).endswith(title.value)
    rows = {row["op_name"].value: row for row in rows_of(book["summary"], 2)}
    matrix = rows["aten.mm.default"]
    assert matrix["failed"].value == 1 and colour(matrix["failed"]) == RED
    sheet, number = target_of(book, matrix["first_reason"])
    found = rows_of(sheet)[number - 2]
    assert matrix["first_reason"].value.startswith(found["node"].value + " output ")
    assert found["result"].value == "FAILED" and colour(found["result"]) == RED
    assert found["reason"].value in matrix["first_reason"].value
    left, top, right, bottom = range_boundaries(book["summary"].auto_filter.ref)
    assert (left, top, right, bottom) == (1, 2, len(matrix), book["summary"].max_row)
