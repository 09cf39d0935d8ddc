# SPDX-License-Identifier: Apache-2.0
"""A norm that is written by hand and computes in bfloat16 what libraries compute in float32."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import assay


class Norm(torch.nn.Module):
    """Over the channels of images; mean and variance are rounded, and what they are taken off or divide is, too."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(1 + 0.1 * torch.randn(1, channels, 1, 1))
        self.bias = torch.nn.Parameter(0.1 * torch.randn(1, channels, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        variance = torch.var(x, dim=1, unbiased=False, keepdim=True)
        return (x - x.mean(dim=1, keepdim=True)) / (variance + 1e-5).sqrt() * self.weight + self.bias


def capture(folder: Path, dtype: torch.dtype, seed: int, level: str = "operator", factor: float = 1) -> Path:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Conv2d(8, 32, 3, padding=1), torch.nn.ReLU(), Norm(32)).to(dtype).eval()
    # The mean is some three times the deviation, as behind max pooling.
    x = torch.randn(2, 8, 8, 8).to(dtype)
    with torch.no_grad():
        model[0].bias += 3
    if factor != 1:
        model[2].register_forward_hook(lambda _module, _inputs, y: y * factor)
    with torch.no_grad(), assay.capture(model, folder, level=level, weights=True):
        model(x)
    return folder


@pytest.mark.parametrize("level", ["operator", "module"])
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_its_rounded_mean_is_rounding(tmp_path: Path, seed: int, level: str) -> None:
    golden = capture(tmp_path / "golden", torch.float32, seed)
    mine = capture(tmp_path / "mine", torch.bfloat16, seed, level)
    verdict = assay.locate(golden, mine)
    assert verdict.outcome == "clean", verdict.sentence


@pytest.mark.parametrize("level", ["operator", "module"])
def test_three_percent_too_much_is_named(tmp_path: Path, level: str) -> None:
    golden = capture(tmp_path / "golden", torch.float32, 1)
    mine = capture(tmp_path / "mine", torch.bfloat16, 1, level, factor=1.03)
    verdict = assay.locate(golden, mine)
    assert verdict.outcome == "first_wrong" and verdict.first_bad.module == "2", verdict.sentence
