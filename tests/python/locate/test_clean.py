# SPDX-License-Identifier: Apache-2.0
"""What must hold before a run is called clean: nothing that was judged is wrong, and something is open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Optional

import pytest
import torch

import assay

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


class Tiny(torch.nn.Module):
    """Embedding, a masked mean over positions, a norm and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(16, 32)
        self.mix = torch.nn.Linear(32, 32, bias=False)
        self.norm = torch.nn.RMSNorm(32, eps=1e-6)
        self.head = torch.nn.Linear(32, 16, bias=False)

    def forward(self, input_ids: torch.Tensor, attention_mask: Optional[torch.Tensor] = None) -> torch.Tensor:
        """[batch, positions] to [batch, positions, 16]."""
        hidden = self.embed(input_ids)
        if attention_mask is not None:
            hidden = hidden * attention_mask.unsqueeze(-1).to(hidden.dtype)
        return self.head(self.norm(hidden + self.mix(hidden)))


def capture(
    folder: Path, *prompts: list[int], dtype: torch.dtype = torch.bfloat16, level: str = "operator", **options: Any
) -> Path:
    """One step a prompt."""
    mask: Optional[list[int]] = options.pop("mask", None)
    torch.manual_seed(5)
    model = Tiny().bfloat16().to(dtype).eval()
    with torch.no_grad(), assay.capture(model, folder, level=level, weights=True, **options):
        for prompt in prompts or (PROMPT,):
            given = {"input_ids": torch.tensor([prompt])}
            if mask is not None:
                given["attention_mask"] = torch.tensor([mask])
            model(**given)
    return folder


def said(verdict: assay.Verdict) -> str:
    """Its text in one line."""
    return " ".join(str(verdict).split())


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """float32, every operator, one step."""
    return capture(tmp_path_factory.mktemp("golden") / "run", dtype=torch.float32)


def test_a_healthy_copy_is_clean_and_says_what_that_stands_on(golden: Path, tmp_path: Path) -> None:
    verdict = assay.locate(golden, capture(tmp_path / "mine"))
    assert verdict.outcome == "clean", verdict
    obligations = verdict.to_dict()["obligations"]
    assert [one["name"] for one in obligations if not one["holds"]] == []
    assert {"runs are complete", "inputs are equal", "steps are the same", "weights are golden's"} <= {
        one["name"] for one in obligations
    }


@pytest.mark.parametrize("level", ["operator", "module"])
@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        ([3, 1, 4, 7, 5, 9, 2, 6], "input_ids differs first at [0, 3]: 7 against golden's 1"),
        (PROMPT[:5], "input_ids has shape [1, 5] against golden's [1, 8]"),
    ],
    ids=["another token", "a shorter prompt"],
)
def test_another_prompt_is_no_fault_and_not_clean(
    golden: Path, tmp_path: Path, level: str, prompt: list[int], why: str
) -> None:
    verdict = assay.locate(golden, capture(tmp_path / "mine", prompt, level=level))
    assert verdict.outcome == "cannot_judge", verdict
    assert f"mine was not given what golden was: {why}" in said(verdict)


@pytest.mark.parametrize("level", ["operator", "module"])
def test_a_mask_that_mine_was_not_given(tmp_path: Path, level: str) -> None:
    padded = capture(tmp_path / "golden", dtype=torch.float32, mask=[0, 0, 1, 1, 1, 1, 1, 1])
    verdict = assay.locate(padded, capture(tmp_path / "mine", level=level))
    assert verdict.outcome == "cannot_judge", verdict
    assert "golden was given attention_mask, mine was not" in said(verdict)


@pytest.mark.parametrize("level", ["operator", "module"])
def test_a_step_that_mine_does_not_have(tmp_path: Path, level: str) -> None:
    golden = capture(tmp_path / "golden", PROMPT, [7], dtype=torch.float32)
    verdict = assay.locate(golden, capture(tmp_path / "mine", PROMPT, level=level))
    assert verdict.outcome == "cannot_judge", verdict
    assert "mine has no step 1, which golden has" in said(verdict)


def test_equal_bits_of_a_part_of_the_modules(tmp_path: Path) -> None:
    golden = capture(tmp_path / "golden", level="module")
    assert assay.locate(golden, capture(tmp_path / "same", level="module")).outcome == "clean"
    part = assay.locate(golden, capture(tmp_path / "part", level="module", include="embed"))
    assert part.outcome == "cannot_judge", part
    assert "were not captured of mine, first mix, step 0" in said(part)


@pytest.mark.parametrize("level", ["operator", "module"])
def test_a_killed_run_is_not_clean(golden: Path, tmp_path: Path, level: str) -> None:
    mine = capture(tmp_path / "mine", level=level)
    (mine / "manifest.json").unlink()
    verdict = assay.locate(golden, mine)
    assert verdict.outcome == "cannot_judge", verdict
    assert "the capture of mine did not finish" in said(verdict)


def test_a_run_that_lost_tensors_is_not_clean(golden: Path, tmp_path: Path) -> None:
    mine = capture(tmp_path / "mine", level="module")
    manifest = json.loads((mine / "manifest.json").read_text())
    manifest["sink"]["dropped"] = 3
    (mine / "manifest.json").write_text(json.dumps(manifest))
    verdict = assay.locate(golden, mine)
    assert verdict.outcome == "cannot_judge", verdict
    assert "the capture of mine lost 3 tensors" in said(verdict)
