# SPDX-License-Identifier: Apache-2.0
"""Faults of ordinary channels beside one that is a hundred times as large and has nearly all of the noise."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Optional

import pytest
import torch

import assay

TOKENS, WIDTH, OUTLIER = 24, 64, 5


class Block(torch.nn.Module):
    """A product with one large channel, as the second of an MLP in trained models has it."""

    def __init__(self, change: Optional[Callable[[torch.Tensor], torch.Tensor]]) -> None:
        super().__init__()
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH, bias=False)
        self.change = change

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[1, tokens, width] to the same."""
        y = self.down(torch.nn.functional.silu(self.up(x)))
        return y if self.change is None else self.change(y)


def capture(folder: Path, dtype: torch.dtype, change: Optional[Callable[[torch.Tensor], torch.Tensor]] = None) -> Path:
    torch.manual_seed(11)
    model = Block(change).bfloat16().to(dtype).eval()
    x = torch.randn(1, TOKENS, WIDTH).bfloat16().to(dtype)
    with torch.no_grad():
        model.down.weight[OUTLIER] *= 128
        with assay.capture(model, folder, level="module" if change else "operator", weights=True):
            model(x)
    return folder


def scaled(part: slice, factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(y: torch.Tensor) -> torch.Tensor:
        factors = torch.ones(WIDTH, dtype=y.dtype)
        factors[part] = factor
        factors[OUTLIER] = 1
        return y * factors

    return change


@pytest.mark.parametrize(
    "part", [slice(0, None, 4), slice(17, 18), slice(0, None)], ids=["quarter", "one", "all ordinary"]
)
def test_a_fault_beside_an_outlier_channel_is_seen(tmp_path: Path, part: slice) -> None:
    # Given six percent too much in ordinary channels: a 2000th of the result, whose rounding is 1 in 500
    golden = capture(tmp_path / "golden", torch.float32)
    mine = capture(tmp_path / "mine", torch.bfloat16, scaled(part, 1.0625))
    # When judged by the modules of mine
    verdict = assay.locate(golden, mine)
    # Then
    assert verdict.outcome == "first_wrong", verdict.sentence


def test_rounding_beside_an_outlier_channel_is_none(tmp_path: Path) -> None:
    golden = capture(tmp_path / "golden", torch.float32)
    mine = capture(tmp_path / "mine", torch.bfloat16, scaled(slice(0, 0), 1))
    verdict = assay.locate(golden, mine)
    assert verdict.outcome == "clean", verdict.sentence
