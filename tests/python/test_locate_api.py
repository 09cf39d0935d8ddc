# SPDX-License-Identifier: Apache-2.0
"""assay.locate and Comparison.first_bad on real captures of a small model with a planted fault."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import assay


def capture(folder: Path, dtype: torch.dtype, level: str = "operator", gain: float = 1.0) -> Path:
    """A model of three modules, the middle one an RMSNorm whose weight is multiplied by `gain`."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Linear(48, 48, bias=False), torch.nn.RMSNorm(48, eps=1e-6), torch.nn.Linear(48, 48, bias=False)
    )
    with torch.no_grad():
        model[1].weight *= gain
        model = model.to(dtype).eval()
        x = torch.randn(8, 48).bfloat16().to(dtype)
        with assay.capture(model, folder, level=level, weights=True):
            model(x)
    return folder


def run(*words: object) -> subprocess.CompletedProcess[str]:
    """The command line."""
    command = os.environ.get("ASSAY_BINARY") or str(Path(sys.executable).with_name("assay"))
    return subprocess.run([command, *map(str, words)], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference: float32, with operators."""
    return capture(tmp_path_factory.mktemp("golden") / "run", torch.float32)


@pytest.mark.parametrize("level", ["operator", "module"])
def test_a_healthy_run_is_clean(golden: Path, tmp_path: Path, level: str) -> None:
    verdict = assay.locate(golden, capture(tmp_path / "mine", torch.bfloat16, level))
    assert verdict.outcome == "clean", verdict
    assert verdict.first_bad is None
    assert verdict.candidates == []
    assert verdict.coverage["weights_compared"] == 3
    assert verdict.sentence.startswith("clean: ")


@pytest.mark.parametrize("level", ["operator", "module"])
def test_a_wrong_weight_is_named(golden: Path, tmp_path: Path, level: str) -> None:
    verdict = assay.locate(golden, capture(tmp_path / "mine", torch.bfloat16, level, gain=1.03))
    assert verdict.outcome == "first_wrong"
    first = verdict.first_bad
    assert first is not None
    assert (first.module, first.slot, first.kind, first.step, first.rank) == ("1", "weight", "weight", 0, 0)
    line = inspect.getsourcelines(torch.nn.RMSNorm.forward)[1]
    assert (first.module_type, first.source) == ("RMSNorm", f"torch/nn/modules/normalization.py:{line}")
    assert first.confidence == verdict.confidence == "high"
    assert first.ratio is not None
    assert first.ratio > 2.1
    assert verdict.candidates[0].to_dict() == first.to_dict()
    assert str(first) in verdict.sentence
    *text, following = str(verdict).splitlines()
    assert " ".join(" ".join(text).split()).endswith("confidence high")
    assert following == f"next: {verdict.next}" and verdict.next.startswith("assay show ")


def test_the_dictionary_is_a_copy_of_the_json(golden: Path, tmp_path: Path) -> None:
    verdict = assay.locate(golden, capture(tmp_path / "mine", torch.bfloat16, gain=1.03))
    fields = verdict.to_dict()
    assert json.loads(json.dumps(fields)) == fields
    fields["first_bad"]["module"] = "changed"
    assert verdict.first_bad is not None
    assert verdict.first_bad.module == "1"


def test_a_comparison_finds_the_verdict_when_it_is_asked(golden: Path, tmp_path: Path) -> None:
    result = assay.compare(golden, capture(tmp_path / "mine", torch.bfloat16, gain=1.03))
    assert result._located is None
    assert result.first_bad is not None
    assert result.first_bad.module == "1"
    assert result.located is result.located


class Other(torch.nn.Sequential):
    """Another model's class."""


def test_the_verdict_has_the_notes_of_the_command(golden: Path, tmp_path: Path) -> None:
    model = Other(*[torch.nn.Linear(2, 2)])
    with assay.capture(model, tmp_path / "mine", level="operator"), torch.no_grad():
        model(torch.ones(1, 2))
    verdict = assay.locate(golden, tmp_path / "mine")
    command = run("locate", golden, tmp_path / "mine", "--json")
    note = "golden's model is a Sequential, mine's a Other"
    assert note in verdict.notes and note in str(verdict)
    assert f"note: {note}" in command.stderr and note in json.loads(command.stdout)["notes"]
    assert json.loads(command.stdout)["notes"] == verdict.notes


@pytest.mark.parametrize(
    ("gain", "limits", "passed", "status"),
    [
        (1.03, {}, False, 1),  # a wrong operator is named
        (1.03, {"cos": 0.5}, False, 1),  # though the rows are within the limits
        (1.0, {"cos": 0.5}, True, 0),
        (1.0, {"rel_l2": 1e-9}, False, 1),  # bfloat16 is beyond it
        (1.0, {}, None, 0),  # nothing was asked
    ],
)
def test_a_comparison_passes_as_the_command_does(golden, tmp_path, gain, limits, passed, status) -> None:
    mine = capture(tmp_path / "mine", torch.bfloat16, gain=gain)
    words = [word for name, value in limits.items() for word in (f"--{name.replace('_', '-')}", value)]
    command = run("compare", golden, mine, *words, "-o", tmp_path / "report")
    assert command.returncode == status, command.stdout
    assert assay.compare(golden, mine, **limits).passed is passed


def test_what_decides_the_verdict_goes_along_with_the_next_command(golden: Path, tmp_path: Path) -> None:
    mine = capture(tmp_path / "a run", torch.bfloat16)
    steps = iter([(0, 0)])
    verdict = assay.locate(golden, mine, token_map=steps, ranks=[0], slice="step 0")
    options = "--token-map 0:0 --ranks 0 --slice 'step 0'"
    assert verdict.next == f"assay locate {golden} '{mine}' {options} --why"
    assert str(verdict).endswith(f"\nnext: {verdict.next}\n")


def test_a_slice_leaves_later_faults_out(golden: Path, tmp_path: Path) -> None:
    mine = capture(tmp_path / "mine", torch.bfloat16, gain=1.03)
    assert assay.locate(golden, mine, slice="0").outcome == "clean"
    with pytest.raises(assay.Error, match="no such module"):
        assay.locate(golden, mine, slice="9")


def test_errors_are_those_of_the_package(golden: Path, tmp_path: Path) -> None:
    with pytest.raises(assay.Error):
        assay.locate(golden, tmp_path / "none")
    with pytest.raises(ValueError, match="exclude each other"):
        assay.locate(golden, golden, floor="a.json", floor_runs=[(golden, golden)])
