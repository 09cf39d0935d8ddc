# SPDX-License-Identifier: Apache-2.0
"""Compares two .npy files, or two folders of same-named ones, with the metrics of `assay compare`, in plain NumPy.

    python bench/rivals/numpy_compare.py GOLDEN MINE > table.csv

Whole-array operations in fp64, as one writes them in a notebook; formulas: docs/metrics.md. Not defended against NaN.
"""

from __future__ import annotations

import csv
import os
import sys
from typing import Any

import numpy

FLOOR = 2.0**-23  # relative errors divide by at least this

COLUMNS = (
    "cosine_similarity",
    "max_relative_error",
    "mean_relative_error",
    "max_absolute_error",
    "mean_absolute_error",
    "kl_divergence",
    "relative_euclidean_distance",
    "max_golden",
    "min_golden",
    "mean_golden",
    "max_mine",
    "min_mine",
    "mean_mine",
)


def metrics(golden: Any, mine: Any) -> dict[str, float]:
    """Returns the seven metrics and three statistics a side of two float arrays with equal numbers of elements."""
    g = golden.astype(numpy.float64).reshape(-1)
    m = mine.astype(numpy.float64).reshape(-1)
    absolute = numpy.abs(m - g)
    relative = absolute / numpy.maximum(numpy.abs(g), FLOOR)
    log_p = g - g.max()
    log_p -= numpy.log(numpy.exp(log_p).sum())
    log_q = m - m.max()
    log_q -= numpy.log(numpy.exp(log_q).sum())
    golden_norm = numpy.linalg.norm(g)
    return {
        "cosine_similarity": float(g @ m / (golden_norm * numpy.linalg.norm(m))),
        "max_relative_error": float(relative.max()),
        "mean_relative_error": float(relative.mean()),
        "max_absolute_error": float(absolute.max()),
        "mean_absolute_error": float(absolute.mean()),
        "kl_divergence": float((numpy.exp(log_p) * (log_p - log_q)).sum()),
        "relative_euclidean_distance": float(numpy.linalg.norm(m - g) / golden_norm),
        "max_golden": float(g.max()),
        "min_golden": float(g.min()),
        "mean_golden": float(g.mean()),
        "max_mine": float(m.max()),
        "min_mine": float(m.min()),
        "mean_mine": float(m.mean()),
    }


def main() -> None:
    """Prints one csv row a pair."""
    golden, mine = sys.argv[1:3]
    if os.path.isdir(golden):
        names = sorted(set(os.listdir(golden)) & set(os.listdir(mine)))
        pairs = [(name, os.path.join(golden, name), os.path.join(mine, name)) for name in names]
    else:
        pairs = [(os.path.basename(golden), golden, mine)]
    out = csv.DictWriter(sys.stdout, ["name", *COLUMNS])
    out.writeheader()
    for name, left, right in pairs:
        out.writerow({"name": name, **metrics(numpy.load(left), numpy.load(right))})


if __name__ == "__main__":
    main()
