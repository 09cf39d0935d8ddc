# SPDX-License-Identifier: Apache-2.0
"""Faults of quiet tokens beside one that is fifteen times as large, as the first token of trained models is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import assay

WIDTH, LOUDER = 64, 15


def capture(folder: Path, dtype: torch.dtype, tokens: int, factor: float = 1) -> Path:
    """A product of a few tokens, of which the first is loud; `factor` is that of the others."""
    torch.manual_seed(11)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH, bias=False)).bfloat16().to(dtype).eval()
    x = torch.randn(1, tokens, WIDTH).bfloat16().to(dtype)
    x[:, 0] *= LOUDER
    factors = torch.full((tokens, 1), factor, dtype=dtype)
    factors[0] = 1
    if factor != 1:
        model[0].register_forward_hook(lambda _module, _inputs, y: y * factors)
    with (
        torch.no_grad(),
        assay.capture(model, folder, level="module" if dtype != torch.float32 else "operator", weights=True),
    ):
        model(x)
    return folder


@pytest.mark.parametrize("tokens", [2, 4, 7, 24])
def test_a_fault_in_the_quiet_tokens_is_seen(tmp_path: Path, tokens: int) -> None:
    # Given 1.6 percent too much in all tokens but the first, whose rounding alone is as large
    golden = capture(tmp_path / "golden", torch.float32, tokens)
    mine = capture(tmp_path / "mine", torch.bfloat16, tokens, 1 + 2**-6)
    # When
    verdict = assay.locate(golden, mine)
    # Then
    assert verdict.outcome == "first_wrong", verdict.sentence
    assert verdict.candidates[0].module == "0"


@pytest.mark.parametrize("tokens", [2, 4, 7, 24])
def test_the_rounding_of_the_quiet_tokens_is_none(tmp_path: Path, tokens: int) -> None:
    golden = capture(tmp_path / "golden", torch.float32, tokens)
    mine = capture(tmp_path / "mine", torch.bfloat16, tokens)
    verdict = assay.locate(golden, mine)
    assert verdict.outcome == "clean", verdict.sentence
