# SPDX-License-Identifier: Apache-2.0
"""What `clean` says of differences whose effect is smaller than what can be seen, and when that is too much for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import assay

WIDTH = 32


class Rotary(torch.nn.Module):
    """Cosines of positions, in the type of what they are for."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("inv_freq", 1 / 100 ** (torch.arange(0, WIDTH, 2) / WIDTH))

    def forward(self, hidden: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """[tokens, WIDTH], [tokens] to [tokens, WIDTH]."""
        assert isinstance(self.inv_freq, torch.Tensor)
        angles = positions.float()[:, None] * self.inv_freq.float()
        return torch.cat([angles, angles], -1).cos().to(hidden.dtype)


class Model(torch.nn.Module):
    """A table of positions between two matrices, and an activation."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.rotary = Rotary()
        self.up = torch.nn.Linear(WIDTH, WIDTH)
        self.act = torch.nn.GELU(approximate)
        self.down = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """[tokens, WIDTH], [tokens] to [tokens, WIDTH]."""
        return self.down(self.act(self.up(hidden) * self.rotary(hidden, positions)))


def made(dtype: torch.dtype = torch.float32, approximate: str = "none") -> Model:
    """All of it in that type, the buffer, too."""
    torch.manual_seed(3)
    return Model(approximate).eval().to(dtype)


def held(model: Model, dtype: torch.dtype, through: torch.dtype) -> Model:
    """The same with a buffer in that type, rounded to another before."""
    frequencies = made().rotary.inv_freq
    assert isinstance(frequencies, torch.Tensor)
    model.rotary.inv_freq = frequencies.to(through).to(dtype)
    return model


def capture(folder: Path, model: Model, first: int = 0, level: str = "operator") -> Path:
    """24 tokens from position `first` on."""
    dtype = model.up.weight.dtype
    hidden = torch.randn(24, WIDTH, generator=torch.Generator().manual_seed(8)).to(torch.bfloat16).to(dtype)
    with torch.no_grad(), assay.capture(model, folder, level=level, weights=True):
        model(hidden, torch.arange(first, first + 24))
    return folder


def moved(first: int) -> float:
    """Which share of the table the rounding of the buffer to bfloat16 moves."""
    exact = made().rotary.inv_freq
    assert isinstance(exact, torch.Tensor)
    positions = torch.arange(first, first + 24).double()[:, None]
    right, rounded = (positions * exact.double()).cos(), (positions * exact.bfloat16().double()).cos()
    return float((right - rounded).norm() / right.norm())


@pytest.mark.parametrize("level", ["operator", "module"])
def test_a_buffer_narrower_than_every_parameter_is_judged_by_its_effect(tmp_path: Path, level: str) -> None:
    golden = capture(tmp_path / "golden", made(), first=200)
    mine = held(made(), torch.bfloat16, torch.bfloat16)
    assert moved(200) > 1e-3
    verdict = assay.locate(golden, capture(tmp_path / "mine", mine, 200, level))
    assert verdict.outcome == "first_wrong", verdict
    assert verdict.candidates[0].module == "rotary"
    assert "rotary.inv_freq is held in bfloat16, golden's in float32" in verdict.sentence


@pytest.mark.parametrize("level", ["operator", "module"])
def test_a_buffer_in_the_type_of_the_run_is_clean_while_its_rounding_moves_little(tmp_path: Path, level: str) -> None:
    golden = capture(tmp_path / "golden", made())
    verdict = assay.locate(golden, capture(tmp_path / "mine", made(torch.bfloat16), 0, level))
    assert verdict.outcome == "clean", verdict
    # The table is on the way to the output: what the buffer's rounding moved it by would not have been seen.
    assert moved(0) <= verdict.to_dict()["power"]["error"] < 0.05


@pytest.mark.parametrize("level", ["operator", "module"])
def test_a_table_that_its_buffer_moves_far_leaves_a_run_without_a_verdict(tmp_path: Path, level: str) -> None:
    assert moved(2000) > 0.05
    golden = capture(tmp_path / "golden", made(), first=2000)
    verdict = assay.locate(golden, capture(tmp_path / "mine", made(torch.bfloat16), 2000, level))
    assert verdict.outcome == "cannot_judge", verdict
    assert "in rotary, step 0, errors up to" in verdict.sentence
    assert verdict.sentence.endswith(
        "would pass for rounding: rotary.inv_freq is held in bfloat16, golden's in float32"
    )
    whole = held(made(torch.bfloat16), torch.float32, torch.float32)
    healthy = assay.locate(golden, capture(tmp_path / "healthy", whole, 2000, level))
    assert healthy.outcome == "clean", healthy


def test_an_argument_that_differs_is_said_of_a_clean_run(tmp_path: Path) -> None:
    golden = capture(tmp_path / "golden", made())
    said = "approximate 'tanh' against golden's default"
    clean = assay.locate(golden, capture(tmp_path / "bf16", made(torch.bfloat16, "tanh")))
    assert clean.outcome == "clean", clean
    assert f"{said} in act changes no more than rounding does" in clean.sentence
    # gelu and its approximation are up to 5e-4 apart: bfloat16 rounds by more, float32 by less.
    wrong = assay.locate(golden, capture(tmp_path / "fp32", made(torch.float32, "tanh")))
    assert wrong.outcome == "first_wrong", wrong
    assert wrong.candidates[0].module == "act"
    assert said in wrong.sentence
    same = assay.locate(golden, capture(tmp_path / "same", made(torch.bfloat16)))
    assert "approximate" not in same.sentence
