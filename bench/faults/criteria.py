# SPDX-License-Identifier: Apache-2.0
"""What tests of engines ask of logits today: limits on a difference, and choices among the best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    import torch

Criterion = Callable[["torch.Tensor", "torch.Tensor"], bool]


def _close(limit: float) -> Criterion:
    return lambda golden, mine: bool(((mine - golden).abs() <= limit + limit * golden.abs()).all())


def _cosine(golden: torch.Tensor, mine: torch.Tensor) -> bool:
    return float((golden * mine).sum()) >= 0.99 * float(golden.norm() * mine.norm())


def _among_best(golden: torch.Tensor, mine: torch.Tensor) -> bool:
    """Each one's choice is among the other's five best, at every position."""
    best = [side.topk(5, dim=-1).indices for side in (golden, mine)]
    return all(bool((one[..., :1] == other).any(-1).all()) for one, other in (best, best[::-1]))


# True where they are satisfied: (golden, mine), [token, vocabulary] in fp64.
CRITERIA: Mapping[str, Criterion] = {
    "allclose 1e-3": _close(1e-3),
    "allclose 1e-2": _close(1e-2),
    "cosine 0.99": _cosine,
    "relative L2 2e-2": lambda golden, mine: float((mine - golden).norm()) <= 2e-2 * float(golden.norm()),
    "NMSE 1e-2": lambda golden, mine: float((mine - golden).square().sum()) <= 1e-2 * float(golden.square().sum()),
    "top 5 of each other": _among_best,
}
NAMES = tuple(CRITERIA)
