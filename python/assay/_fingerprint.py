# SPDX-License-Identifier: Apache-2.0
"""What of a golden run is small enough to commit. The work is native; this file only gives it names."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Optional

from ._pairs import PathLike

# Native, without a stub: this file has its types.
_opcheck: Any = importlib.import_module("assay._opcheck")

__all__ = ["Fingerprint", "fingerprint"]


@dataclass(frozen=True)
class Fingerprint:
    """What `fingerprint` wrote.

    Attributes:
        path: the file; ``assay.locate`` and ``assay.open`` take it as a run.
        bytes: its size.
        steps: forward steps of the run.
        operators: of the program; 0 when the run has none.
        statistics: tensors whose statistics are in it.
        weights: tensors of which it has the digest.
        kept: tensors of which it has all values.
    """

    path: str
    bytes: int
    steps: int
    operators: int
    statistics: int
    weights: int
    kept: int


def fingerprint(
    run: PathLike,
    path: PathLike,
    *,
    weights: Optional[PathLike] = None,
    floor_runs: Iterable[tuple[PathLike, PathLike]] = (),
    floor: Optional[PathLike] = None,
    statistics: bool = True,
    program: bool = True,
    most: int = 0,
    jobs: int = 0,
) -> Fingerprint:
    """Writes statistics, digests and the program of a run into one small file that is judged like the run.

    Args:
        run: the golden run, best captured with ``level="operator"``.
        path: the file, ``"golden.json.gz"``.
        weights: a checkpoint, for a run that was captured without its weights.
        floor_runs: pairs (golden, mine) of healthy runs of other prompts; noise is measured on them and kept.
        floor: a profile of statistics kept by ``assay.locate``, instead of `floor_runs`.
        statistics: keep statistics of what modules return.
        program: keep the operators.
        most: bytes that the file may have; 0 means any number.
        jobs: threads; 0 means one a core.

    Returns:
        What is in the file. The same run gives the same bytes.

    Raises:
        assay.errors.Error: the run is damaged, incomplete or of another layout, or the file would be too large.

    Example:
        >>> assay.fingerprint("golden", "golden.json.gz").operators  # doctest: +SKIP
        912
    """
    if floor is not None and floor_runs:
        raise ValueError("floor and floor_runs exclude each other")
    made = _opcheck._fingerprint(
        os.fspath(run),
        os.fspath(path),
        "" if weights is None else os.fspath(weights),
        [(os.fspath(first), os.fspath(second)) for first, second in floor_runs],
        "" if floor is None else os.fspath(floor),
        statistics,
        program,
        most,
        jobs,
    )
    return Fingerprint(os.fspath(path), **made)
