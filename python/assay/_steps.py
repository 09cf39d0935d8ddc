# SPDX-License-Identifier: Apache-2.0
"""Which steps are wanted, in the words of the command line."""

from __future__ import annotations

import re
from typing import Optional

__all__ = ["LAST_TOKEN", "StepRanges", "parse_steps"]

LAST_TOKEN = 65535  # a strict dump lists its tokens; an open range ends here


class StepRanges:
    """A set of steps: some ranges, the last of which may be open. Called with a step it tells whether it is in."""

    def __init__(self, ranges: list[tuple[int, Optional[int]]], text: str) -> None:
        self._ranges = ranges
        self.__name__ = text  # what the manifest says of it

    def __call__(self, step: int) -> bool:
        return any(first <= step and (last is None or step <= last) for first, last in self._ranges)

    def tokens(self) -> list[int]:
        """All steps of it, open ranges up to 65535."""
        chosen: set[int] = set()
        for first, last in self._ranges:
            chosen.update(range(first, (LAST_TOKEN if last is None else last) + 1))
        return sorted(chosen)

    def unreached(self, steps: int) -> str:
        """What of it lies behind the first `steps` steps, in the same notation."""
        parts = []
        for first, last in self._ranges:
            begin = max(first, steps)
            if last is None and first >= steps:
                parts.append(f"{first}-")
            elif last is not None and last >= steps:
                parts.append(str(last) if begin == last else f"{begin}-{last}")
        return ",".join(parts)

    @property
    def last(self) -> Optional[int]:
        """The last step of it, None when a range is open."""
        ends = [last for _, last in self._ranges]
        return None if None in ends else max(end for end in ends if end is not None)


def parse_steps(text: str) -> Optional[StepRanges]:
    """Returns the steps of ``"0,2-4,9-"`` (both ends included, no end: open), or None for ``"all"`` and ``""``.

    Raises:
        ValueError: `text` is something else.

    Example:
        >>> [step for step in range(12) if parse_steps("0,2-4,9-")(step)]
        [0, 2, 3, 4, 9, 10, 11]
    """
    if text.strip() in ("", "all"):
        return None
    ranges: list[tuple[int, Optional[int]]] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:(-)\s*(\d*)\s*)?", part)
        if match is None:
            raise ValueError(f"steps {text!r}: {part.strip()!r} is neither a number nor a range such as 2-4 or 5-")
        first = int(match[1])
        last = first if match[2] is None else int(match[3]) if match[3] else None
        if last is not None and last < first:
            raise ValueError(f"steps {text!r}: {part.strip()!r} ends before it begins")
        ranges.append((first, last))
    return StepRanges(ranges, text)
