# SPDX-License-Identifier: Apache-2.0
"""Infinities of float16 inside a function: harmless where the module's output is golden's, a fault where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import assay


class Cubic(torch.nn.Module):
    """GELU in its tanh form, written out: the cube of 60 is beyond float16, and tanh of infinity is 1."""

    def __init__(self, wrong: bool) -> None:
        super().__init__()
        self.wrong = wrong

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape."""
        inner = torch.pow(x, 3) * 0.044715
        if self.wrong:  # infinity over infinity where the fault is
            return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + inner)) * (inner / inner))
        return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + inner)))


class Mlp(torch.nn.Module):
    def __init__(self, wrong: bool = False) -> None:
        super().__init__()
        self.up = torch.nn.Linear(16, 64, bias=False)
        self.act = Cubic(wrong)
        self.down = torch.nn.Linear(64, 16, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, 16] to [tokens, 16]."""
        return self.down(self.act(self.up(x)))


def capture(folder: Path, dtype: torch.dtype, level: str, wrong: bool = False) -> Path:
    torch.manual_seed(7)
    model = Mlp(wrong).half().to(dtype).eval()
    x = torch.randn(12, 16).half().to(dtype)
    with torch.no_grad():
        model.up.weight[3] *= 80  # one saturated channel
        assert 41 < float(model.up(x)[:, 3].abs().max()) < 1000, "its cube is beyond 65504, itself is not"
        with assay.capture(model, folder, level=level, weights=True):
            model(x)
    return folder


def test_an_infinity_that_the_function_hides_is_no_fault(tmp_path: Path) -> None:
    golden = capture(tmp_path / "golden", torch.float32, "operator")
    mine = capture(tmp_path / "mine", torch.float16, "operator")

    verdict = assay.locate(golden, mine)

    assert verdict.outcome == "clean", verdict.sentence
    assert any("made infinities that its module hides" in note and "act" in note for note in verdict.notes)


@pytest.mark.disagrees_with_itself("it makes a NaN")
@pytest.mark.parametrize("level", ["operator", "module"])
def test_a_nan_made_of_it_is_named(tmp_path: Path, level: str) -> None:
    golden = capture(tmp_path / "golden", torch.float32, "operator")
    mine = capture(tmp_path / "mine", torch.float16, level, wrong=True)

    verdict = assay.locate(golden, mine)

    assert verdict.outcome == "first_wrong"
    assert verdict.first_bad is not None and verdict.first_bad.module == "act", verdict.sentence
