# SPDX-License-Identifier: Apache-2.0
"""Which steps, and which names: the two texts of ``dump_config`` that have a form of their own.

This module does not import torch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["EVERY_STEP", "LAYER_PATTERN", "STEP_PATTERN", "StepSet", "check_layer_text", "split_layers"]

# The documented forms, shown in messages. They are not matched: the vendor's step expression backtracks exponentially.
STEP_PATTERN = r"^(\d+(-\d+)?(\|\d+(-\d+)?)*)?$"
LAYER_PATTERN = "names of printable characters separated by blanks, * and ? as wildcards"
MAX_STEP = 2**63 - 1
MAX_STEP_ITEMS = 100


@dataclass(frozen=True)
class StepSet:
    """Steps as sorted, disjoint, inclusive ranges; no range means every step."""

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, text: str) -> StepSet:
        """Reads ``"0|2-5"``: numbers and inclusive ranges joined by bars, "" for all. Linear in the length.

        Raises:
            ValueError: the position (from 0) and the reason: an empty item, a character that is no digit, a third
                part, a reversed range, more than 100 items, a step above 2**63 - 1.
        """
        if not text:
            return cls()
        items = text.split("|")
        found: list[tuple[int, int]] = []
        position = 0
        for item in items:
            found.append(_parse_step_item(item, position, at_end=position + len(item) == len(text)))
            position += len(item) + 1
        if len(items) > MAX_STEP_ITEMS:
            raise ValueError(f"{len(items)} items, at most {MAX_STEP_ITEMS} are allowed.")
        return cls(_merged(found))

    def contains(self, step: int) -> bool:
        if not self.ranges:
            return True
        index = bisect_right(self.ranges, (step, MAX_STEP + 1)) - 1
        return index >= 0 and step <= self.ranges[index][1]

    __contains__ = contains

    def __str__(self) -> str:
        return "|".join(str(low) if low == high else f"{low}-{high}" for low, high in self.ranges)


EVERY_STEP = StepSet()


def _parse_step_item(item: str, position: int, at_end: bool) -> tuple[int, int]:
    if not item:
        where = "after the last bar" if at_end else "between two bars or before the first"
        raise ValueError(f"at position {position}: a number is missing {where}.")
    parts = item.split("-")
    if len(parts) > 2:
        third = position + len(parts[0]) + len(parts[1]) + 1
        raise ValueError(f"at position {third}: a second '-' in one item; a bar belongs between two items.")
    numbers: list[int] = []
    for part in parts:
        numbers.append(_parse_step(part, position))
        position += len(part) + 1
    low, high = numbers[0], numbers[-1]
    if low > high:
        raise ValueError(f"at position {position - len(item) - 1}: the range {low}-{high} is reversed.")
    return low, high


def _parse_step(digits: str, position: int) -> int:
    if not digits:
        raise ValueError(f"at position {position}: a number is missing beside '-'.")
    bad = next((i for i, c in enumerate(digits) if not "0" <= c <= "9"), None)
    if bad is not None:
        raise ValueError(f"at position {position + bad}: {digits[bad]!r} is no digit.")
    # Python's int() is quadratic and refuses more than 4300 digits.
    significant = digits.lstrip("0") or "0"
    if len(significant) > 19 or int(significant) > MAX_STEP:
        raise ValueError(f"at position {position}: a number of {len(digits)} digits is above {MAX_STEP}.")
    return int(significant)


def _merged(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    result: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if result and low <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return tuple(result)


def check_layer_text(text: str) -> None:
    """Raises ValueError, with the position, where ``text`` has a character that cannot be part of a name or a blank."""
    for position, character in enumerate(text):
        if not character.isprintable():
            raise ValueError(f"at position {position}: {character!r} is not printable; separate names by blanks.")


def split_layers(text: str) -> tuple[str, ...]:
    """The names in a ``dump_layer`` text, each once, in their order."""
    return tuple(dict.fromkeys(text.split()))
