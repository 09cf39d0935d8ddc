# SPDX-License-Identifier: Apache-2.0
"""Rotary positions: tables that golden computes in float32 may be rounded once, not computed in a narrower type."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import assay

WIDTH, HEADS = 64, 4
HALF = WIDTH // HEADS // 2
FIRST = 15_900  # the position of the first token


class Rotary(nn.Module):
    """cos and sin of [tokens, HALF] angles, in the type of x; the angles in ``computed``."""

    inv_freq: torch.Tensor
    computed = torch.float32

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("inv_freq", 10_000.0 ** -(torch.arange(HALF) / HALF), persistent=False)

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angles = positions[:, None].to(self.computed) * self.inv_freq.to(self.computed)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).view(x.shape[0], 3, HEADS, 2, HALF).unbind(1)

        def turn(t: torch.Tensor) -> torch.Tensor:
            a, b = t.unbind(2)
            return torch.cat([a * cos[:, None] - b * sin[:, None], a * sin[:, None] + b * cos[:, None]], -1)

        scores = torch.einsum("qhd,khd->hqk", turn(q), turn(k)) * (2 * HALF) ** -0.5
        return self.out(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v.flatten(2)).flatten(1))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, WIDTH)
        self.rotary = Rotary()
        self.layers = nn.ModuleList(Attention() for _ in range(2))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)
        self.head = nn.Linear(WIDTH, 32, bias=False)

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.embed(input_ids)
        cos, sin = self.rotary(x, positions)
        for layer in self.layers:
            x = x + layer(x, cos, sin)
        return self.head(self.norm(x))


def capture(folder: Path, dtype: torch.dtype, level: str, computed: torch.dtype = torch.float32) -> Path:
    torch.manual_seed(2)
    model = Model().bfloat16().to(dtype).eval()
    model.rotary = Rotary()  # as transformers makes it: in float32, whatever the model is in
    model.rotary.computed = computed
    with torch.no_grad(), assay.capture(model, folder, level=level, weights=True):
        model(torch.arange(12) * 7 % 32, FIRST + torch.arange(12))
    return folder


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return capture(tmp_path_factory.mktemp("golden") / "run", torch.float32, "operator")


@pytest.mark.parametrize("level", ["operator", "module"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_tables_that_are_rounded_once_are_clean(golden: Path, tmp_path: Path, dtype: torch.dtype, level: str) -> None:
    verdict = assay.locate(golden, capture(tmp_path / "mine", dtype, level))
    assert verdict.outcome == "clean", verdict


@pytest.mark.parametrize("level", ["operator", "module"])
def test_positions_in_a_narrow_type_are_named(golden: Path, tmp_path: Path, level: str) -> None:
    """bfloat16 has no 15 901: it makes 15 872 or 15 936 of it, tens of turns beside the right angle"""
    mine = capture(tmp_path / "mine", torch.bfloat16, level, computed=torch.bfloat16)
    verdict = assay.locate(golden, mine)
    assert verdict.outcome == "first_wrong", verdict
    assert verdict.first_bad is not None
    assert verdict.first_bad.module == "rotary", verdict
