# SPDX-License-Identifier: Apache-2.0
"""Routers of experts: rounding excuses a token whose experts are nearly equal, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import assay

WIDTH, EXPERTS, TAKEN, LAYERS, TOKENS = 48, 8, 2, 3, 24
Chosen = tuple[torch.Tensor, torch.Tensor]  # weights and numbers of experts, [tokens, TAKEN] each


def best(scores: torch.Tensor) -> Chosen:
    """What every router should take, its weights normalised again."""
    weights, numbers = torch.topk(scores, TAKEN, -1)
    return weights / weights.sum(-1, keepdim=True), numbers


class Router(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(EXPERTS, WIDTH) * 0.2)
        self.choose: Callable[[torch.Tensor], Chosen] = best

    def scores(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(nn.functional.linear(x, self.weight).float(), -1)

    def forward(self, x: torch.Tensor) -> Chosen:
        return self.choose(self.scores(x))


class Scores(Router):
    """Its parent chooses, so that no module returns the numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return self.scores(x)


class Experts(nn.Module):
    def __init__(self, router: type[Router]) -> None:
        super().__init__()
        self.gate = router()
        self.inner = nn.Parameter(torch.randn(EXPERTS, WIDTH, WIDTH) * 0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[1, tokens, WIDTH], through the experts that are hit."""
        rows = x.reshape(-1, WIDTH)
        routed = self.gate(rows)
        weights, numbers = self.gate.choose(routed) if isinstance(self.gate, Scores) else routed
        out = torch.zeros_like(rows)
        for expert in range(EXPERTS):
            token, place = torch.where(numbers == expert)
            made = nn.functional.silu(rows[token] @ self.inner[expert])
            out.index_add_(0, token, (made * weights[token, place, None]).to(out.dtype))
        return out.reshape(x.shape)


class Model(nn.Module):
    def __init__(self, router: type[Router]) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, WIDTH)
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH, eps=1e-6) for _ in range(LAYERS))
        self.layers = nn.ModuleList(Experts(router) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 64, bias=False)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(input_ids)
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x))
        return self.head(x)


def smallest(scores: torch.Tensor) -> Chosen:
    weights, numbers = torch.topk(scores, TAKEN, -1, largest=False)
    return weights / weights.sum(-1, keepdim=True), numbers


def one_fewer(scores: torch.Tensor) -> Chosen:
    weights, numbers = torch.topk(scores, TAKEN - 1, -1)
    return weights / weights.sum(-1, keepdim=True), numbers


def of_the_row_before(scores: torch.Tensor) -> Chosen:
    weights, numbers = best(scores)
    return weights, numbers.roll(1, 0)


def not_normalised(scores: torch.Tensor) -> Chosen:
    weights, numbers = torch.topk(scores, TAKEN, -1)
    return weights, numbers


# As modules, every value; and only what they return.
CAPTURES: dict[str, dict[str, Any]] = {"O": {"level": "operator"}, "L": {}, "M": {"inputs": False}}


def capture(
    folder: Path, router: type[Router], seed: int, level: str, choose: Callable[[torch.Tensor], Chosen] = best
) -> Path:
    """Golden (float32) is at level "golden"; mine is in bfloat16, and its middle layer chooses as given."""
    torch.manual_seed(seed)
    model = Model(router).bfloat16().to(torch.float32 if level == "golden" else torch.bfloat16).eval()
    model.layers[1].gate.choose = choose
    tokens = torch.randint(0, 64, (1, TOKENS), generator=torch.Generator().manual_seed(seed))
    options = CAPTURES["O" if level == "golden" else level]
    with torch.no_grad(), assay.capture(model, folder, weights=True, **options):
        model(tokens)
    return folder


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Callable[[type[Router], int], Path]:
    """Captured once a router and seed."""
    kept: dict[tuple[str, int], Path] = {}

    def of(router: type[Router], seed: int) -> Path:
        key = (router.__name__, seed)
        if key not in kept:
            kept[key] = capture(tmp_path_factory.mktemp("golden") / "run", router, seed, "golden")
        return kept[key]

    return of


@pytest.mark.disagrees_with_itself("its choices do not follow from its scores")
@pytest.mark.parametrize("level", CAPTURES)
@pytest.mark.parametrize("router", [Router, Scores])
@pytest.mark.parametrize("choose", [smallest, one_fewer, of_the_row_before, not_normalised])
def test_another_choice_is_no_tie(
    golden: Callable[[type[Router], int], Path],
    tmp_path: Path,
    choose: Callable[[torch.Tensor], Chosen],
    router: type[Router],
    level: str,
) -> None:
    verdict = assay.locate(golden(router, 3), capture(tmp_path / "mine", router, 3, level, choose))
    assert verdict.outcome == "first_wrong", verdict
    assert verdict.first_bad is not None
    assert verdict.first_bad.module.startswith("layers.1"), verdict


@pytest.mark.parametrize("level", CAPTURES)
@pytest.mark.parametrize("router", [Router, Scores])
def test_healthy_ties_are_clean(
    golden: Callable[[type[Router], int], Path], tmp_path: Path, router: type[Router], level: str
) -> None:
    for seed in range(5):
        verdict = assay.locate(golden(router, seed), capture(tmp_path / str(seed), router, seed, level))
        assert verdict.outcome == "clean", (seed, verdict)
