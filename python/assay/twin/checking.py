# SPDX-License-Identifier: Apache-2.0
"""Loads a twin, runs it and says whether it is what it was made to be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from assay import twin
from assay.twin import files, making, measure, prompt_set

OUTLIER = 5.0  # a channel stands out from here on
ERASED = 0.3  # what is left of a channel at the end, at most
SPREAD = 0.3  # of the logarithm of gains; drawn with 0.5
NEAR_LIMIT = 1e4


@dataclass(frozen=True)
class Finding:
    """One row of the table: what was looked at, what was seen, and whether it is as it should be (None: not asked)."""

    what: str
    seen: str
    good: Optional[bool]


def check(folder: Path) -> list[Finding]:
    """All rows.

    Raises:
        ValueError, OSError: the folder is no twin or does not load.
    """
    values = files.read(folder)
    model: Any = twin.load(folder)
    asked = [prompt_set.Prompt(**one) for one in values["prompts"]]
    left_out = "".join(f"; {one['name']}: {one['why']}" for one in values["left_out"])
    rows = [Finding("prompts", ", ".join(prompt.name for prompt in asked) + left_out, bool(asked))]
    rows += [_finite(model, kind, asked, values) for kind in measure.TYPES]
    rows += _outliers(model, asked, values["shaped"]["written"])
    spread = measure.gain_spread(model)
    rows.append(
        Finding("gains of norms", "none" if spread is None else f"log-normal, {spread:.2f}", _above(spread, SPREAD))
    )
    rows.append(_attention(folder, asked))
    ties = values["ties"]
    rows.append(Finding("router ties", f"{len(ties)} declared" if ties else "none", None))
    rows.append(_gguf(folder, values.get("gguf")))
    return rows


def _above(value: Optional[float], least: float) -> Optional[bool]:
    return None if value is None else value > least


def _finite(model: Any, kind: str, asked: list[prompt_set.Prompt], values: dict[str, Any]) -> Finding:
    """Logits are finite; in float16 the largest activation is near the limit, when one was made so."""
    largest, where, finite = measure.largest_activation(model, kind, asked)
    seen = f"{'finite' if finite else 'not finite'}, largest {largest:.3g} at {where}"
    good = finite
    if kind == "float16":
        good &= largest < making.LARGEST_FLOAT16
        good &= values["shaped"]["large"] is None or largest > NEAR_LIMIT
    return Finding(kind, seen, good)


def _outliers(model: Any, asked: list[prompt_set.Prompt], written: Optional[dict[str, Any]]) -> list[Finding]:
    ratios = measure.outliers(model, asked)
    largest = max(max(layer) for layer in ratios)
    rows = [Finding("outlier channels", f"{largest:.0f} times the usual channel", largest > OUTLIER)]
    if written is None:
        return [*rows, Finding("written early, erased late", "no", None)]
    channel, early, late = written["channel"], written["early"], written["late"]
    course = [layer[channel] for layer in ratios]
    seen = f"channel {channel}: " + " ".join(f"{ratio:.1f}" for ratio in course) + " after each layer"
    good = course[early] > OUTLIER and course[late] < ERASED * max(course[early:late] or course)
    return [*rows, Finding("written early, erased late", seen, good)]


def _attention(folder: Path, asked: list[prompt_set.Prompt]) -> Finding:
    try:
        eager = twin.load(folder, attention="eager")
    except ValueError:
        return Finding("attention", "transformers shows none", None)
    seen = measure.attention(eager, asked[0])
    if seen is None:
        return Finding("attention", "transformers shows none", None)
    text = (
        f"first token takes {100 * seen['largest_share_of_first_token']:.0f} % in one head and most in "
        f"{100 * seen['heads_on_first_token']:.0f} % of heads; {100 * seen['saturated_heads']:.0f} % saturated"
    )
    return Finding("attention", text, None)


def _gguf(folder: Path, values: Optional[dict[str, Any]]) -> Finding:
    if values is None:
        return Finding("GGUF", "not asked for", None)
    if "left_out" in values:
        return Finding("GGUF", values["left_out"], None)
    try:
        import gguf
    except ImportError:
        return Finding("GGUF", "not opened: the package gguf is not installed", None)
    path = folder / values["file"]
    if not path.exists():
        return Finding("GGUF", f"{path} is not there", False)
    same = files.digest(path) == values["sha256"]
    tensors = len(gguf.GGUFReader(path).tensors)
    return Finding("GGUF", f"{tensors} tensors" + ("" if same else ", but its digest is another"), same and tensors > 0)
