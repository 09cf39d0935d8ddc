# SPDX-License-Identifier: Apache-2.0
"""The rivals: a fixed limit on the difference of module outputs; the first module beyond it is named."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Optional

import numpy as np

import assay

Limit = Callable[[np.ndarray, np.ndarray], bool]


def _cosine(limit: float) -> Limit:
    def beyond(golden: np.ndarray, mine: np.ndarray) -> bool:
        norms = float(np.linalg.norm(golden) * np.linalg.norm(mine))
        return norms > 0 and float(golden @ mine) / norms < limit

    return beyond


def _relative_l2(limit: float) -> Limit:
    return lambda g, m: float(np.linalg.norm(m - g)) > limit * max(float(np.linalg.norm(g)), 1e-30)


def _nmse(limit: float) -> Limit:
    return lambda g, m: float(((m - g) ** 2).sum()) > limit * max(float((g**2).sum()), 1e-30)


def _statistics(limit: float) -> Limit:
    """Any of minimum, maximum, mean and norm off by the share `limit`."""

    def beyond(golden: np.ndarray, mine: np.ndarray) -> bool:
        for of in (np.min, np.max, np.mean, np.linalg.norm):
            right, other = float(of(golden)), float(of(mine))
            if abs(other - right) > limit * max(abs(right), 1e-9):
                return True
        return False

    return beyond


LIMITS: dict[str, Limit] = {
    "cosine 0.99": _cosine(0.99),
    "cosine 0.999": _cosine(0.999),
    "relative L2 1e-3": _relative_l2(1e-3),
    "relative L2 2e-2": _relative_l2(2e-2),
    "NMSE 1e-2": _nmse(1e-2),
    "statistics 50 %": _statistics(0.5),
}


def outputs(folder: Path) -> list[tuple[str, np.ndarray]]:
    """Module outputs of a run, (path, values as fp64), in the order in which they were made."""
    found = []
    for record in assay.open(folder).records.select(role="output"):
        if "::" not in record.node and str(record.dtype_name).startswith(("float", "bfloat")):
            found.append((record.node, record.numpy().astype(np.float64).reshape(-1)))
    return found


def first_beyond(golden: list[tuple[str, np.ndarray]], mine: list[tuple[str, np.ndarray]]) -> dict[str, Optional[str]]:
    """By name of the limit, the first module whose output is beyond it; None when none is."""
    named: dict[str, Optional[str]] = {}
    for name, beyond in LIMITS.items():
        named[name] = next(
            (
                path
                for (path, right), (_, other) in zip(golden, mine)
                if right.shape == other.shape and beyond(right, other)
            ),
            None,
        )
    return named
