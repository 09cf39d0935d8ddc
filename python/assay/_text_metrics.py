# SPDX-License-Identifier: Apache-2.0
"""How near the text a model wrote is to the expected one; the formulas stand in docs/commands/bad-cases.md.

The command `assay casefilter` computes the same in C++; tests hold the two against each other.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Callable, Optional, Union

# Letters and digits of ASCII that stand together, or one character.
_WORD = re.compile(r"[A-Za-z0-9]+(?:\.[0-9]+)?%?|.", re.DOTALL)
_NORMAL = re.compile("[\u4e00-\u9fa50-9a-zA-Z \t\n\r\f\v]+")
_BLANKS = " \t\n\r\f\v"
# Punctuation that takes no part in rates and BLEU; the two wide ones are the Chinese stop and comma.
_LEFT_OUT = frozenset([".", ",", "\u3002", "\uff0c", " ", "(", ")", '"', "'"])
_SMALLEST_RATE = 0.0001  # instead of 0, so that rates can be divided

Group = tuple[str, ...]


def words_of(text: str) -> list[str]:
    """Splits a text: "top1 is 3.14%" has the words "top1", " ", "is", " ", "3.14%"."""
    return _WORD.findall(text)


def _counted_words(text: str) -> list[str]:
    return [word for word in words_of(text) if word not in _LEFT_OUT]


def _rouge_words(text: str) -> list[str]:
    # Dots end sentences, also inside numbers, and blanks only separate.
    words = [word for word in words_of(text) if word not in _BLANKS]
    return [part for word in words for part in word.split(".") if part]


def _groups(words: list[str], size: int) -> list[Group]:
    return [tuple(words[i : i + size]) for i in range(len(words) - size + 1)]


def _accuracy(output: str, expected: str, _: int) -> float:
    return int(output == expected)


def _edit_distance(output: str, expected: str, _: int) -> float:
    row = list(range(len(expected) + 1))
    for i, mine in enumerate(output, 1):
        diagonal, row[0] = row[0], i
        for j, theirs in enumerate(expected, 1):
            best = diagonal if mine == theirs else min(diagonal, row[j], row[j - 1]) + 1
            diagonal, row[j] = row[j], best
    return row[-1]


def _abnormal_rate(text: str) -> float:
    words = _counted_words(text)
    if not words:
        raise ValueError("the text has too few words")
    rate = sum(_NORMAL.fullmatch(word) is None for word in words) / len(words)
    return rate or _SMALLEST_RATE


def _relative_abnormal(output: str, expected: str, _: int) -> float:
    return _abnormal_rate(output) / _abnormal_rate(expected)


def _distinct_rate(text: str, size: int) -> float:
    groups = _groups(_counted_words(text), size)
    if not groups:
        raise ValueError("the text has too few words")
    return len(set(groups)) / len(groups)


def _relative_distinct(output: str, expected: str, size: int) -> float:
    return _distinct_rate(output, size) / _distinct_rate(expected, size)


def _bleu(output: str, expected: str, size: int) -> float:
    mine, theirs = _counted_words(output), _counted_words(expected)
    if not Counter(mine) & Counter(theirs):
        return 0.0
    groups = _groups(mine, size)
    agreeing = sum((Counter(groups) & Counter(_groups(theirs, size))).values())
    if agreeing == 0:
        return 0.0
    penalty = 1.0 if len(mine) > len(theirs) else math.exp(1 - len(theirs) / len(mine))
    return penalty * agreeing / len(groups)


def _f_score(common: int, output_count: int, expected_count: int) -> float:
    if common == 0:
        return 0.0
    precision, recall = common / output_count, common / expected_count
    return 2 * precision * recall / (precision + recall)


def _rouge_sides(output: str, expected: str) -> tuple[list[str], list[str]]:
    mine, theirs = _rouge_words(output), _rouge_words(expected)
    if not mine or not theirs:
        raise ValueError("the text has too few words")
    return mine, theirs


def _rouge(output: str, expected: str, size: int) -> float:
    mine, theirs = (set(_groups(words, size)) for words in _rouge_sides(output, expected))
    return _f_score(len(mine & theirs), len(mine), len(theirs))


def _rouge_l(output: str, expected: str, _: int) -> float:
    mine, theirs = _rouge_sides(output, expected)
    row = [0] * (len(theirs) + 1)
    for word in mine:
        diagonal = 0
        for j, other in enumerate(theirs, 1):
            best = diagonal + 1 if word == other else max(row[j], row[j - 1])
            diagonal, row[j] = row[j], best
    return _f_score(row[-1], len(mine), len(theirs))


@dataclass(frozen=True)
class TextMetric:
    """A metric with its limit."""

    name: str
    score: Callable[[str, str, int], float]
    words: int  # in a group
    threshold: float
    largest_threshold: float
    small_is_good: bool = False

    def of(self, output: str, expected: str) -> float:
        """The score of one case.

        Raises:
            ValueError: a text without words has no rates.
        """
        return self.score(output, expected, self.words)

    def passes(self, score: float) -> bool:
        """True when the score keeps the limit."""
        return score <= self.threshold if self.small_is_good else score >= self.threshold


def _known_metrics() -> dict[str, TextMetric]:
    metrics = [
        TextMetric("accuracy", _accuracy, 1, 1, 1),
        TextMetric("rouge", _rouge, 1, 0.4, 1),
        TextMetric("rouge_1", _rouge, 1, 0.4, 1),
        TextMetric("rouge_2", _rouge, 2, 0.4, 1),
        TextMetric("rouge_l", _rouge_l, 1, 0.4, 1),
        TextMetric("bleu", _bleu, 1, 0.4, 1),
        *(TextMetric(f"bleu_{n}", _bleu, n, 0.4, 1) for n in (1, 2, 3, 4)),
        TextMetric("edit_distance", _edit_distance, 1, 5, math.inf, small_is_good=True),
        TextMetric("relative_abnormal", _relative_abnormal, 1, 1.2, math.inf, small_is_good=True),
        TextMetric("relative_distinct", _relative_distinct, 2, 0.8, math.inf),
        *(TextMetric(f"relative_distinct_{n}", _relative_distinct, n, 0.8, math.inf) for n in (1, 2, 3, 4)),
    ]
    return {metric.name: metric for metric in metrics}


KNOWN_METRICS = _known_metrics()


def get_metric(name: str, threshold: Optional[Union[int, float]] = None) -> TextMetric:
    """Returns the metric of that name, with its own limit or the given one.

    Raises:
        TypeError: `name` is no string, `threshold` no number
        KeyError: no such metric
        ValueError: a limit out of the metric's range
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a metric must be a string, not {type(name).__name__}")
    if threshold is not None and not isinstance(threshold, (int, float)):
        raise TypeError(f"the limit of {name} must be a number, not {type(threshold).__name__}")
    metric = KNOWN_METRICS.get(name)
    if metric is None:
        raise KeyError(f"`{name}` is not supported. Please choose from {list(KNOWN_METRICS)}.")
    if threshold is None:
        return metric
    if not 0 <= threshold <= metric.largest_threshold:
        raise ValueError(f"the limit of {name} must be from 0 to {metric.largest_threshold}, not {threshold}")
    return replace(metric, threshold=threshold)
