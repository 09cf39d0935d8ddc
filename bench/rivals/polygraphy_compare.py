# SPDX-License-Identifier: Apache-2.0
"""Compares two .npy files, or two folders of same-named ones, with polygraphy's comparator.

    python bench/rivals/polygraphy_compare.py GOLDEN MINE

Needs polygraphy (bench/rivals/tools.py). Its metrics: the largest, mean and median absolute and relative difference of
each pair, min, max and mean of both sides, and a histogram of the differences.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from pathlib import Path

import numpy
from polygraphy.comparator import Comparator, IterationResult, RunResults, SimpleCompareFunc
from polygraphy.logger import G_LOGGER


def main() -> None:
    """Prints how many pairs differ."""
    golden, mine = map(Path, sys.argv[1:3])
    pairs = [("0", golden, mine)]
    if golden.is_dir():
        names = sorted({path.name for path in golden.iterdir()} & {path.name for path in mine.iterdir()})
        pairs = [(name, golden / name, mine / name) for name in names]
    G_LOGGER.module_severity = G_LOGGER.CRITICAL
    results = RunResults()
    for side, place in (("golden", 1), ("mine", 2)):
        outputs = OrderedDict((pair[0], numpy.load(pair[place])) for pair in pairs)
        results.append((side, [IterationResult(outputs)]))
    (verdict,) = Comparator.compare_accuracy(results, compare_func=SimpleCompareFunc(rtol=1e-3, atol=1e-3))
    ((outcomes,),) = verdict.values()
    print(f"{sum(not outcome for outcome in outcomes.values())} of {len(pairs)} differ")


if __name__ == "__main__":
    main()
