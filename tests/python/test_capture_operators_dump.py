# SPDX-License-Identifier: Apache-2.0
"""`assay dump --level operator --weights` on the PyTorch side: the settings that the command hands to the script."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import warm_python

pytest.importorskip("torch")
assay = pytest.importorskip("assay")

from bench import record_lines  # noqa: E402

PACKAGES = Path(assay.__file__).parent.parent

SCRIPT = """
import sys, torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.register_buffer("scale", torch.tensor(2.0))
    def forward(self, x, state=None):
        y = self.body(x) * self.scale
        return y if state is None else torch.cat([state, y])
def decode(model):
    with torch.no_grad():
        state = None
        for _ in range(3):
            state = model(torch.ones(1, 4), state)
    return state.tolist()
model = Net()
"""


def run(tmp_path: Path, script: str, *arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "script.py"
    path.write_text(script)
    site = tmp_path / "site"
    site.mkdir(exist_ok=True)
    shutil.copy(PACKAGES / "assay" / "inject" / "sitecustomize.py", site)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "ASSAY", "ATB_"))}
    environment["ASSAY_RUN_ID"] = "5" * 32  # the id is the only thing that two captures of one program differ in
    environment["PYTHONPATH"] = os.pathsep.join([*([str(site)] if settings else []), str(PACKAGES)])
    if settings:
        environment["ASSAY_TORCH_DUMP"] = json.dumps(settings)
    return subprocess.run(
        [warm_python.python(), str(path), *arguments], env=environment, capture_output=True, text=True, timeout=240
    )


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_an_injected_run_is_byte_for_byte_that_of_the_script_edited_by_hand(tmp_path: Path) -> None:
    by_hand = (
        SCRIPT + "import assay\n"
        "with assay.capture(model, sys.argv[1], level='operator', weights=True):\n    print(decode(model))\n"
    )
    plain = run(tmp_path, SCRIPT + "print(decode(model))\n")
    edited = run(tmp_path, by_hand, str(tmp_path / "edited"))
    injected = run(
        tmp_path, SCRIPT + "print(decode(model))\n", output=str(tmp_path / "injected"), level="operator", weights=True
    )
    assert (plain.returncode, edited.returncode, injected.returncode) == (0, 0, 0), injected.stderr
    assert plain.stdout == edited.stdout == injected.stdout and injected.stderr == ""
    ours, theirs = files_of(tmp_path / "injected" / "rank0"), files_of(tmp_path / "edited" / "rank0")
    assert ours == theirs and "weights.safetensors" in ours
    assert json.loads((tmp_path / "injected" / "manifest.json").read_text())["config"]["level"] == "operator"
    records = record_lines.whole(ours["records.jsonl"].decode().splitlines(keepends=True))
    operators = [r["type"] for r in records if r.get("kind") == "operator" and r["step"] == 1]
    assert operators == [
        "aten.t.default",
        "aten.addmm.default",
        "aten.relu.default",
        "aten.mul.Tensor",
        "aten.cat.default",
    ]
    state = next(r for r in records if r["step"] == 1 and r.get("slot") == "tensors.0")
    assert records[state["from"]]["type"] == "aten.mul.Tensor" and records[state["from"]]["step"] == 0


def test_weights_of_every_model_of_a_script_are_recorded_at_module_level(tmp_path: Path) -> None:
    script = SCRIPT + "decode(model)\nother = nn.Linear(4, 2)\nother(torch.ones(1, 4))\n"
    done = run(tmp_path, script, output=str(tmp_path / "run"), weights=True)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "run" / "rank0" / "records.jsonl").read_text().splitlines()
    weights = [(r["node"], r["slot"]) for r in map(json.loads, lines) if r["step"] == -1]
    assert weights == [
        ("", "scale"),
        ("body.0", "weight"),
        ("body.0", "bias"),
        ("Linear", "weight"),
        ("Linear", "bias"),
    ]
    assert not any(json.loads(line).get("kind") == "operator" for line in lines)


def test_an_unknown_level_is_said_and_the_script_runs(tmp_path: Path) -> None:
    done = run(tmp_path, SCRIPT + "print(decode(model))\n", output=str(tmp_path / "run"), level="kernel")
    assert done.returncode == 0 and "level 'kernel' is neither module nor operator" in done.stderr
    assert not (tmp_path / "run").exists()
