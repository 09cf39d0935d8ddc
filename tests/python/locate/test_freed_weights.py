# SPDX-License-Identifier: Apache-2.0
"""Engines that pack weights for their products and free them: what is not there is said, and accuses nobody."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import assay


class Packs(nn.Linear):
    """Keeps its weight transposed, and an empty one under the name that it had."""

    def pack(self) -> None:
        self.packed = self.weight.detach().t().contiguous()
        self.weight = nn.Parameter(torch.empty(0), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ (self.packed if hasattr(self, "packed") else self.weight.t()) + self.bias


@pytest.mark.parametrize("level", ["module", "operator"])
@pytest.mark.parametrize("wrong", [False, True])
def test_a_freed_weight_is_said_and_accuses_nobody(tmp_path: Path, level: str, wrong: bool) -> None:
    # Given golden with its weights, and a program that had packed the second one before it was captured
    torch.manual_seed(5)
    model, x = nn.Sequential(Packs(16, 16), nn.ReLU(), Packs(16, 8)), torch.randn(4, 16)
    with torch.no_grad(), assay.capture(model, tmp_path / "golden", level="operator", weights=True):
        model(x)
    model[2].pack()
    if wrong:
        model[2].packed *= 1.1
    with torch.no_grad(), assay.capture(model, tmp_path / "mine", level=level, weights=True):
        model(x)
    # When they are judged, then nobody is clean or named by a weight that nobody has
    found = assay.locate(tmp_path / "golden", tmp_path / "mine")
    said = " ".join([found.sentence, *found.notes])
    assert "freed" in said and "shards" not in said
    if not wrong:
        assert found.outcome == "cannot_judge" and not found.candidates
