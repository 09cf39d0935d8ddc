# SPDX-License-Identifier: Apache-2.0
"""`assay opcheck` of runs at operator level: one row an output, judged by what rounding explains.

The runs are captured from torch, or written by hand (operator_runs). A wrong operator is one whose stored output is not
what torch computes in float64 from its stored inputs; which one that is the test decides, and torch confirms it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from assay_command import read_csv, run, the_report
from operator_runs import write_run
from page_file import PageFile
from torch import nn

import assay


class Net(nn.Module):
    """Products and elementwise operators; `wrong` makes the second product's kernel a little off."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(32, 64)
        self.down = nn.Linear(64, 32)

    def forward(self, x):
        return torch.tanh(self.down(torch.relu(self.up(x)))) * 0.5


@pytest.fixture(scope="module")
def captured(tmp_path_factory) -> Path:
    """A healthy run of torch's own kernels."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("net") / "run"
    net = Net()
    with torch.no_grad(), assay.capture(net, folder, level="operator"):
        net(torch.randn(5, 32))
    return folder


@pytest.fixture(scope="module")
def wrong(tmp_path_factory) -> Path:
    """Everything right but one product, which is 3 percent too large."""
    return write_run(tmp_path_factory.mktemp("wrong") / "run", kernels={"blocks.1.proj": lambda t: t * 1.03})


def records_of(run_folder: Path):
    for line in (run_folder / "rank0" / "records.jsonl").read_text().splitlines():
        yield json.loads(line)


def tensor_of(run_folder: Path, record) -> torch.Tensor:
    place = record.get("view", record)
    data = (run_folder / "rank0" / place["file"]).read_bytes()[place["offset"] :][: place["bytes"]]
    values = torch.frombuffer(bytearray(data), dtype=getattr(torch, record["dtype"]))
    return (
        values.as_strided(record["shape"], record["strides"]) if "view" in record else values.reshape(record["shape"])
    )


def wrong_products(run_folder: Path) -> list[str]:
    """Nodes of products whose output torch computes otherwise from the stored inputs: the oracle."""
    inputs: dict[str, dict[str, torch.Tensor]] = {}
    nodes = []
    for record in records_of(run_folder):
        if record.get("type") != "aten.mm.default" or "role" not in record:
            continue
        if record["role"] == "input":
            inputs.setdefault(record["node"], {})[record["slot"]] = tensor_of(run_folder, record)
            continue
        operands = inputs[record["node"]]
        expected = operands["self"].double() @ operands["mat2"].double()
        mine = tensor_of(run_folder, record)
        if not torch.allclose(mine.double(), expected, rtol=2 * torch.finfo(mine.dtype).eps, atol=1e-6):
            nodes.append(record["node"])
    return nodes


def check(run_folder: Path, report: Path, *options: str, status: int):
    done = run("opcheck", run_folder, "-o", report, "--format", "csv", *options)
    assert done.returncode == status, done.stdout + done.stderr
    return read_csv(the_report(report, "opcheck_result_*.csv")), done.stdout


def test_a_healthy_run_passes(captured, tmp_path):
    rows, text = check(captured, tmp_path, status=0)
    outputs = [r for r in records_of(captured) if r.get("role") == "output" and "::" in r["node"]]
    assert len(rows) == len(outputs)  # one row an output
    assert {row["result"] for row in rows} == {"PASS"}
    products = [row for row in rows if row["operator"] == "aten.addmm.default"]
    assert [row["module"] for row in products] == ["up", "down"]
    assert all(float(row["z"]) <= 2 and float(row["e"]) <= 2 for row in products)
    assert products[0]["shape"] == "[5, 64]" and products[0]["dtype"] == "float32" and products[0]["step"] == "0"
    *_, sentence, command = text.rstrip().splitlines()
    assert sentence == f"right: {len(rows)} of {len(rows)} operators pass"
    assert command == f"next: assay compare GOLDEN {captured}"
    assert "judged by what rounding explains" in text and "operators that produce floats were judged" in text


def test_the_wrong_operator_fails_alone(wrong, tmp_path):
    [node] = wrong_products(wrong)  # torch says which
    rows, text = check(wrong, tmp_path, status=1)
    failed = [row for row in rows if row["result"] == "FAILED"]
    assert [(row["node"], row["operator"], row["module"]) for row in failed] == [
        (node, "aten.mm.default", "blocks.1.proj")
    ]
    assert float(failed[0]["z"]) > 2 and "x its rounding" in failed[0]["reason"]
    assert failed[0]["worst_index"].startswith("[")
    *_, sentence, command = text.rstrip().splitlines()
    assert sentence.startswith("wrong: 1 FAILED of 10 operators, first " + node)
    assert command == f"next: assay show {wrong} {node}"


def test_every_format_and_python_say_the_same(wrong, tmp_path):
    done = run("opcheck", wrong, "-o", tmp_path, "--format", "csv", "json", "html", "xlsx")
    assert done.returncode == 1, done.stderr
    names = sorted(path.suffix for path in tmp_path.iterdir())
    assert names == [".csv", ".html", ".jsonl", ".xlsx"]
    lines = [json.loads(line) for line in next(tmp_path.glob("*.jsonl")).read_text().splitlines()]
    table = read_csv(next(tmp_path.glob("*.csv")))
    assert [row["node"] for row in table] == [line["node"] for line in lines]
    report = assay.opcheck(wrong)
    assert report.rows == lines
    assert report.counts == {"passed": 9, "failed": 1, "not_supported": 0, "errors": 0, "outputs": 10}
    assert not report.passed and [row["module"] for row in report.failures()] == ["blocks.1.proj"]
    page = PageFile(next(tmp_path.glob("*.html")))
    assert [(row["node"], row["z"] is None) for row in page.rows] == [
        (line["node"], line["z"] is None) for line in lines
    ]


def test_what_cannot_be_judged_is_a_row_with_its_reason(tmp_path):
    unknown = write_run(tmp_path / "run", unknown=True)
    rows, text = check(unknown, tmp_path / "report", status=0)
    unjudged = [row for row in rows if row["result"] == "NOT_SUPPORTED"]
    assert {row["operator"] for row in unjudged} == {"mylib.product.default"}
    assert {row["reason"] for row in unjudged} == {"no reference"}
    assert all(row["z"] == "" for row in unjudged)
    assert "6 of 10 operators that produce floats were judged" in text
    # Nothing judged at all is neither right nor wrong.
    only, text = check(unknown, tmp_path / "only", "-opname", "product", status=125)
    assert len(only) == 4 and "nothing judged" in text


def test_names_choose_operators(wrong, tmp_path):
    rows, _ = check(wrong, tmp_path, "-opname", "MUL", status=0)
    assert len(rows) == 6 and {row["operator"] for row in rows} == {"aten.mul.Tensor"}
    assert [row["module"] for row in assay.opcheck(wrong, names=["mm."]).failures()] == ["blocks.1.proj"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--standard", "mixed"], "another standard: only for dumps of ATB"),
        (["-ids", "0_1"], "ids: only for dumps of ATB"),
        (["-metric", "abs"], "--precision-metric: only for dumps of ATB"),
        (["-pmode", "force_fp32"], "a precision mode: only for dumps of ATB"),
    ],
)
def test_options_that_mean_nothing_here_are_refused(captured, tmp_path, options, message):
    done = run("opcheck", captured, "-o", tmp_path / "out", *options)
    assert done.returncode == 2 and message in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_run_of_modules_says_how_to_capture_operators(tmp_path):
    modules = write_run(tmp_path / "run", level="module")
    done = run("opcheck", modules, "-o", tmp_path / "out")
    assert done.returncode == 2
    assert "holds no operators" in done.stderr and "assay dump --level operator" in done.stderr
    with pytest.raises(assay.errors.Error, match="holds no operators"):
        assay.opcheck(modules)
    # The old names check dumps of ATB and nothing else.
    (tmp_path / "old").mkdir()
    old = run("llm", "opcheck", "-i", modules, "-o", tmp_path / "old", name="msit")
    assert old.returncode == 0 and not list((tmp_path / "old").iterdir())
