# SPDX-License-Identifier: Apache-2.0
"""How near the text a model wrote is to the expected one; the formulas stand in docs/commands/bad-cases.md."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional, Union

from assay import _core


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@dataclass(frozen=True)
class TextMetric:
    """A metric with its limit."""

    name: str
    threshold: float
    largest_threshold: float
    is_whole: bool
    small_is_good: bool

    def of(self, output: str, expected: str) -> float:
        """The score of one case.

        Raises:
            ValueError: a text without words has no rates.
        """
        score = _core.text_score(self.name, _utf8(output), _utf8(expected))
        return int(score) if self.is_whole else score

    def passes(self, score: float) -> bool:
        """True when the score keeps the limit."""
        return score <= self.threshold if self.small_is_good else score >= self.threshold


KNOWN_METRICS = {row[0]: TextMetric(*row) for row in _core.text_metrics()}


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
