# SPDX-License-Identifier: Apache-2.0
"""What selects promises a set, and an order only where it says so: a run is clean against itself."""

from __future__ import annotations

from pathlib import Path

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
