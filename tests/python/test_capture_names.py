# SPDX-License-Identifier: Apache-2.0
"""Names of modules, parameters and buffers that are no Unicode text: Python allows half surrogates, UTF-8 does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("assay.torch.capture")

from torch import nn  # noqa: E402

import assay  # noqa: E402

HALF, BYTE = "bad\ud800", "file\udcff"  # half of a pair; a byte of a file name that is no UTF-8
HALF_SHOWN, BYTE_SHOWN = "bad\\ud800", "file\\udcff"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.add_module(HALF, nn.Linear(4, 4))
        self.add_module("bad\ud801", nn.Tanh())  # another module, so another name
        self.register_parameter(BYTE, nn.Parameter(torch.ones(4)))
        self.register_buffer(f"b{BYTE}", torch.ones(4))

    def forward(self, x):
        x = getattr(self, "bad\ud801")(getattr(self, HALF)(x))
        return {HALF: x * getattr(self, BYTE) + getattr(self, f"b{BYTE}")}


def capture(folder: Path, **options) -> assay.Run:
    torch.manual_seed(0)
    net = Net()
    with torch.no_grad(), assay.capture(net, folder, **options):
        net(torch.randn(2, 4))
    for path in folder.rglob("*.json*"):  # every list is JSON in UTF-8, whatever reads it
        for line in path.read_bytes().decode("utf-8").splitlines() if path.suffix == ".jsonl" else [path.read_text()]:
            json.loads(line)
    return assay.open(folder)


@pytest.mark.parametrize("options", [{}, {"level": "operator"}, {"data": "stats"}], ids=["module", "operator", "stats"])
def test_names_are_printable_and_different(tmp_path, options):
    run = capture(tmp_path / "run", weights=True, **options)
    nodes = {record.node.split("::")[0] for record in run.records}
    assert {HALF_SHOWN, "bad\\ud801"} <= nodes
    weights = {(r.node, r.slot) for r in run.records if r.role in ("weight", "buffer")}
    assert weights == {(HALF_SHOWN, "weight"), (HALF_SHOWN, "bias"), ("", BYTE_SHOWN), ("", f"b{BYTE_SHOWN}")}
    assert run.coverage.complete
    assert [child.name for child in run.tree.children] == [HALF_SHOWN, "bad\\ud801"]


def test_patterns_and_names_of_models_may_hold_them_too(tmp_path):
    run = capture(tmp_path / "run", include=[HALF])
    assert {record.node for record in run.records} == {HALF_SHOWN}
    with assay.capture({HALF: Net()}, tmp_path / "named"):
        pass
    assert json.loads((tmp_path / "named" / "rank0" / "topology.json").read_text())["name"] == HALF_SHOWN


def test_the_old_api_takes_them(tmp_path):
    from assay.torch import strict

    net = Net()
    strict.register_hook(net, strict.DumpConfig(dump_path=str(tmp_path), token_range=[0], dump_weight=True))
    with torch.no_grad():
        net(torch.randn(2, 4))
    run = assay.open(tmp_path)
    assert f"root.{HALF_SHOWN}" in {record.node for record in run.records}
