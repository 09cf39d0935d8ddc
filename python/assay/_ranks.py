# SPDX-License-Identifier: Apache-2.0
"""Which ranks of a job capture: ``--ranks 0,8-15`` and ``assay.capture(..., ranks=)``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Union

from assay.errors import FormatError

__all__ = ["Ranks", "asked_ranks"]

Ranks = Union[None, int, str, Iterable[int]]


def asked_ranks(ranks: Ranks) -> list[range]:
    """Returns the ranks that ``"0,8-15"``, a number or a list of numbers means, as ranges; none for all of them.

    Raises:
        FormatError: it is something else.

    Example:
        >>> asked_ranks("0,8-15")
        [range(0, 1), range(8, 16)]
    """
    if ranks is None or ranks == "" or ranks == "all":
        return []
    if isinstance(ranks, str):
        parts = [re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part) for part in ranks.split(",")]
        asked = [range(int(part[1]), int(part[2] or part[1]) + 1) for part in parts if part is not None]
        if len(asked) != len(parts) or not all(asked):
            raise FormatError("Usage", f"ranks {ranks!r} is no list of ranks like '0,8-15'")
        return asked
    numbers = [ranks] if isinstance(ranks, int) else list(ranks)
    if not numbers or any(not isinstance(rank, int) or rank < 0 for rank in numbers):
        raise FormatError("Usage", f"ranks must be whole numbers from 0, got {numbers}")
    return [range(rank, rank + 1) for rank in numbers]
