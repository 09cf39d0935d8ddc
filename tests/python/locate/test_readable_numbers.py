# SPDX-License-Identifier: Apache-2.0
"""No text of a verdict has a share above 1000 % in digits, however far off the program is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import assay

FACTORS = [3.0, 12.0, 2e3, 1e6, 3e10, 1e20, -4e15, 1e-12, 0.0]


def layer_of(draw: torch.Generator, width: int) -> torch.nn.Module:
    kinds = [
        lambda: torch.nn.Linear(width, width, bias=bool(torch.randint(2, (), generator=draw))),
        lambda: torch.nn.LayerNorm(width),
        lambda: torch.nn.RMSNorm(width),
        lambda: torch.nn.Sequential(torch.nn.Linear(width, 16), torch.nn.GELU(), torch.nn.Linear(16, width)),
        torch.nn.Softplus,
        torch.nn.Tanh,
    ]
    return kinds[int(torch.randint(len(kinds), (), generator=draw))]()


def model_of(seed: int) -> torch.nn.Module:
    draw = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    width = 8 * int(torch.randint(1, 5, (), generator=draw))
    layers = [torch.nn.Linear(4, width), *(layer_of(draw, width) for _ in range(5)), torch.nn.Linear(width, 3)]
    return torch.nn.Sequential(*layers).eval()


def capture(model: torch.nn.Module, folder: Path, level: str, scale: float) -> Path:
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(5)) * scale
    with torch.no_grad(), assay.capture(model, folder, level=level, weights=True):
        model(x)
    return folder


def shares_of(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"(?<![\w.])(\d[\d.]*(?:e[+-]?\d+)?) ?%", text)]


@pytest.mark.parametrize("seed", range(12))
def test_a_program_that_is_far_off(tmp_path: Path, seed: int) -> None:
    level = ("operator", "module")[seed % 2]
    scale = (1.0, 1e-3, 1e4)[seed % 3]
    golden = capture(model_of(seed), tmp_path / "golden", "operator", scale)
    faulty = model_of(seed)
    parameters = list(faulty.parameters())
    with torch.no_grad():
        wrong = parameters[seed % len(parameters)]
        wrong.mul_(FACTORS[seed % len(FACTORS)])
        if seed % 4 == 3:
            wrong.add_(torch.randn_like(wrong) * 1e7)  # no factor explains it
    mine = capture(faulty, tmp_path / "mine", level, scale)
    verdict = assay.locate(golden, mine)
    text = str(verdict) + "\n".join(verdict.notes) + verdict.sentence
    assert max(shares_of(text), default=0) <= 1000, text
    assert not re.search(r"\d{9}|e\+\d+ ?%", text.split("next:")[0]), text


def test_shares_are_found() -> None:
    assert shares_of("above 0.4 % of a value, 8545614718777 %, 3e+20 %") == [0.4, 8545614718777, 3e20]
