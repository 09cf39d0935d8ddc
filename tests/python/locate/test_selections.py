# SPDX-License-Identifier: Apache-2.0
"""What selects promises a set, and an order only where it says so: a run is clean against itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import assay

# (taken, of how many)
SIZES = [(2, 3), (3, 8), (4, 16), (8, 64), (16, 128), (64, 512)]


class Selections(torch.nn.Module):
    """Every selection of scores, and what is gathered and added up by it."""

    def forward(self, scores: torch.Tensor, taken: int) -> list[torch.Tensor]:
        results = []
        for ordered in (True, False):
            values, places = torch.topk(scores, taken, dim=-1, sorted=ordered)
            results += [(values / values.sum(-1, keepdim=True)).sum(-1), scores.gather(-1, places).square().sum(-1)]
        results.append(torch.topk(scores, taken, dim=-1, largest=False, sorted=False).values)
        results.append(torch.topk(scores.t().contiguous(), taken, dim=0, sorted=False).values)
        results += [torch.sort(scores, dim=-1).values, torch.sort(scores, dim=-1, stable=True).values]
        results += [scores.gather(-1, torch.argsort(scores, dim=-1))[..., :taken], scores.kthvalue(taken, -1).values]
        return [*results, scores.max(-1).values, scores.median(-1).values, torch.unique(scores).sum()[None]]


def _captured(folder: Path, dtype: torch.dtype) -> Path:
    generator = torch.Generator().manual_seed(6)
    model = Selections()
    with torch.no_grad(), assay.capture(model, folder, level="operator", steps="all"):
        for taken, length in SIZES:
            # Scores of 16 bits have equal ones among 512.
            model(torch.randn(24, length, generator=generator).softmax(-1).to(dtype), taken)
    return folder


def test_selections_agree_with_themselves(tmp_path: Path) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        # given a program that selects, sorted and not; when it is held against itself
        run = _captured(tmp_path / str(dtype), dtype)
        verdict = assay.locate(run, run)
        # then neither side is accused
        assert verdict.outcome == "clean", verdict.sentence
        assert "golden itself is not clean" not in verdict.sentence


class Sharp(torch.nn.Module):
    """A router that is nearly certain of one expert, and gives the two that it takes equal weights."""

    def __init__(self, wrong: bool) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.gate = torch.nn.Parameter(torch.randn(16, 64))
        self.experts = torch.nn.Parameter(torch.randn(16, 64, 64) / 8)
        self.router = Chosen(wrong)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, 64] to the same."""
        places = self.router(x @ self.gate.T)
        every = torch.einsum("td,edf->tef", x, self.experts)
        return every.gather(1, places[..., None].expand(-1, -1, 64)).mean(1)


class Chosen(torch.nn.Module):
    """The places of the two largest probabilities; a wrong one takes the third where the second is small."""

    def __init__(self, wrong: bool) -> None:
        super().__init__()
        self.wrong = wrong

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        """[tokens, experts] to [tokens, 2]."""
        values, places = logits.float().softmax(-1).to(logits.dtype).topk(3 if self.wrong else 2)
        if not self.wrong:
            return places
        small = (values[:, :1] > 0.5) & (values[:, 1:2] < 2**-9) & (values[:, 2:] < values[:, 1:2] / 2)
        assert small.sum() > 10
        return torch.cat([places[:, :1], torch.where(small, places[:, 2:], places[:, 1:2])], -1)


@pytest.mark.parametrize("wrong", [False, True])
def test_the_noise_of_a_large_probability_excuses_no_choice_between_small_ones(tmp_path: Path, wrong: bool) -> None:
    # given probabilities near 1, which bfloat16 rounds by 1 in 500, and beside them two of which one is twice the other
    x = torch.randn(200, 64, generator=torch.Generator().manual_seed(5)).bfloat16()
    with torch.no_grad(), assay.capture(golden := Sharp(False), tmp_path / "golden", level="operator", weights=True):
        golden(x.float())
    with torch.no_grad(), assay.capture(mine := Sharp(wrong).bfloat16(), tmp_path / "mine", weights=True):
        mine(x)
    # when
    verdict = assay.locate(tmp_path / "golden", tmp_path / "mine")
    # then
    assert verdict.outcome == ("first_wrong" if wrong else "clean"), verdict.sentence
    assert not wrong or verdict.candidates[0].module == "router"
