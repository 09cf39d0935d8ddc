# SPDX-License-Identifier: Apache-2.0
"""Every cell of the csv report stands in the page, numbers to five digits. page_file.py unpacks pages by itself."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest
import torch
from page_file import PageFile
from page_scenes import assay
from safetensors.torch import save_file


def report_and_page(folder: Path, *arguments: object) -> tuple[list[dict[str, str]], PageFile]:
    assay("compare", *arguments, "-o", folder, "--html", folder / "page.html", status=None)
    report = min(folder.glob("*_cmp_report_*.csv"))  # one of statistics has two names
    with report.open(newline="") as file:
        return list(csv.DictReader(file)), PageFile(folder / "page.html")


def is_same(cell: str, value: object) -> bool:
    if value is None:
        return cell == ""
    if isinstance(value, str):
        return cell == value
    return math.isclose(float(cell), value, rel_tol=5e-6, abs_tol=1e-44)


def check_cells(report: list[dict[str, str]], page: PageFile, key: str) -> None:
    rows = {str(row[key]): row for row in page.rows}
    assert len(rows) == len(report) > 0
    different = [
        (line[key], name, cell, rows[line[key]][name])
        for line in report
        for name, cell in line.items()
        if not is_same(cell, rows[line[key]][name])
    ]
    assert different == []


@pytest.mark.parametrize("options", [["--verdict"], ["-st"]], ids=["tensors", "statistics"])
def test_every_cell_of_the_csv_is_in_the_page(small, tmp_path, options):
    report, page = report_and_page(tmp_path, small.golden, small.mine, "-cl", "api", *options)
    check_cells(report, page, "data_id")


def test_every_cell_of_weights_is_in_the_page(tmp_path):
    weights = {f"layers.{layer}.weight": torch.randn(8, 8) for layer in range(12)}
    for side, gain in (("golden", 1.0), ("mine", 1.001)):
        (tmp_path / side).mkdir()
        save_file({name: one * gain for name, one in weights.items()}, tmp_path / side / "model.safetensors")
    report, page = report_and_page(tmp_path, "-w", tmp_path / "golden", tmp_path / "mine")
    check_cells(report, page, "weight_name")


def test_the_rows_of_a_page_are_in_execution_order(small):
    page = PageFile(small.page)
    layers = [row["module"] for row in page.rows if row["role"] == "output" and row["level"].startswith("layer")]
    assert layers == sorted(layers) != []


def test_a_pair_of_several_sheets_is_one_row(small):
    page = PageFile(small.page)
    sizes = {one["name"]: one["pairs"] for one in page.content["levels"]}
    for name, size in sizes.items():
        assert sum(name in row["level"].split() for row in page.rows) == size
