# SPDX-License-Identifier: Apache-2.0
"""Comparison of two captured runs or of two arrays. The loops are native; this file only gives them names."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from . import _core, _html
from ._page import show_page
from ._pairs import PathLike, TokenMap, json_text, token_pairs
from ._pandas import pandas_or_raise
from ._parallel import Parallel, sizes_text
from .errors import Error

if TYPE_CHECKING:
    from assay._locate import Finding, Verdict

__all__ = ["Comparison", "compare", "compare_arrays", "compare_data"]

_MSIT_METRICS = (
    "cosine_similarity",
    "max_relative_error",
    "mean_relative_error",
    "max_absolute_error",
    "mean_absolute_error",
    "kl_divergence",
    "relative_euclidean_distance",
)

Row = dict[str, Union[int, float, str, None]]


class Comparison:
    """What a comparison found. Plain data: it holds no file open."""

    def __init__(
        self, native: _core._Comparison, paths: tuple[str, str] = ("", ""), pairs: Optional[dict[str, Any]] = None
    ):
        self._native = native
        self._rows: Optional[list[Row]] = None
        self._paths = paths
        self._pairs = pairs or {}
        self._located: Optional[Verdict] = None

    @property
    def rows(self) -> list[Row]:
        """One dict a compared pair, in execution order; keys are the report's columns plus ``"level"``.

        A value that does not exist for the pair is None.
        """
        if self._rows is None:
            self._rows = self._native.rows()
        return self._rows

    @property
    def verdict(self) -> str:
        """One sentence: same, or what differs."""
        return self._native.verdict

    @property
    def passed(self) -> Optional[bool]:
        """True where ``assay compare`` ends with 0, and the limits that were given hold; False where it ends with 1: a
        row is beyond its limit, or a wrong operator is named (the verdict is found for it); None where nothing was
        judged: no limits, or runs that are not comparable as a whole (``gaps``).
        """
        passed = self._native.passed
        if passed is False or not self._native.is_open_to_verdict:
            return passed
        try:
            outcome = self.located.outcome
        except Error:  # a verdict is an extra: what it cannot say leaves the table's answer
            return passed
        return False if outcome in ("first_wrong", "wrong") else passed

    @property
    def gaps(self) -> list[str]:
        """Why the runs are not comparable as a whole, one sentence each: unmatched tensors of golden, killed runs."""
        return self._native.gaps

    @property
    def unmatched(self) -> list[Row]:
        """The tensors without partner: ``side``, ``token_id``, ``path``, ``op_type``, ``reason``."""
        return self._native.unmatched()

    @property
    def coverage(self) -> float:
        """Share of both sides' tensors that have a partner, in percent."""
        return self._native.coverage

    @property
    def notes(self) -> list[str]:
        """What was aligned or found out as a whole: a warm-up run, ranks that were put together, a missing token."""
        return self._native.notes

    @property
    def warnings(self) -> list[str]:
        """What was wrong with the runs themselves, one sentence each."""
        return self._native.warnings

    @property
    def located(self) -> Verdict:
        """The verdict on the two runs, found when it is first asked for: `assay.locate` of the same paths and pairs."""
        if self._located is None:
            from assay._locate import locate

            self._located = locate(*self._paths, **self._pairs)
        return self._located

    @property
    def first_bad(self) -> Optional[Finding]:
        """The first wrong operator of mine, None when none is named; ``located`` says why."""
        return self.located.first_bad

    def worst(self, count: int = 10) -> list[Row]:
        """The rows with the largest error, worst first; rows without any difference are never among them."""
        return self._native.worst(count)

    @property
    def counts(self) -> dict[str, int]:
        """``pairs`` of tensors, how many of them are ``identical``, ``beyond_limits``, ``unreadable`` (no numbers), and
        ``unmatched`` tensors of both sides."""
        return self._native.counts()

    def to_pandas(self) -> Any:
        """The rows as a ``pandas.DataFrame``.

        Raises:
            ImportError: pandas is not installed.
        """
        return pandas_or_raise(".rows").DataFrame(self.rows)

    def write(self, path: PathLike) -> None:
        """Writes the report; the ending chooses the format: ``.csv``, ``.xlsx`` or ``.jsonl``.

        Raises:
            assay.errors.Error: another ending, or the file cannot be written.
        """
        self._native.write(os.fspath(path))

    def to_html(self, path: PathLike) -> None:
        """Writes the page of ``assay compare --html``: one file for a browser, without a network.

        Two runs get their verdict, which is found for the page.

        Raises:
            assay.errors.Error: the path does not end with ``.html``, or the file cannot be written.
        """
        self._native.write_page(os.fspath(path))

    def show(self) -> None:
        """Shows the page of :meth:`to_html`: in a notebook below the cell, otherwise in a browser.

        A browser's file is removed when the program ends. Without a browser its path is said on stderr.

        Example:
            >>> assay.compare("golden", "mine").show()  # doctest: +SKIP
        """
        show_page(self.to_html)

    def __str__(self) -> str:
        return self._native.text(100)

    def __repr__(self) -> str:
        return f"<assay.Comparison {self.verdict}>"

    def _repr_html_(self) -> str:
        """For notebooks: the sentence, the counts, the worst rows; the verdict where it has been asked for."""
        counts = self.counts
        known: list[tuple[str, Any]] = [
            *zip(("golden", "mine"), map(_html.code, self._paths)),
            *((name.replace("_", " "), count) for name, count in counts.items()),
            ("with a partner", f"{self.coverage:.1f} %"),
            ("located", _html.prose(self._located and self._located.sentence)),
        ]
        judged = {True: "good", False: "bad", None: ""}[self._native.passed]
        if self._located and self._located.first_bad:
            judged = "bad"  # whatever the limits say
        worst = [_worst_row(row) for row in self.worst(_html.MOST_ROWS)]
        return _html.fragment(
            "Comparison",
            self.verdict,
            _html.facts(known),
            _html.table("worst rows", _WORST_HEADS, worst, counts["pairs"] - counts["identical"]),
            _html.sentences("notes:", self.notes),
            _html.sentences("warnings:", self.warnings),
            tone="open" if judged != "bad" and self.gaps else judged,
        )


_WORST_HEADS = ("step", "tensor", "rel L2", "cosine", "max abs", "L2 norm, relative", "type", "note")

_WORST_DISTANCES = (
    "relative_euclidean_distance",
    "cosine_similarity",
    "max_absolute_error",
    "l2norm_stat_relative_error",  # of statistics
)


def _worst_row(row: Row) -> list[Any]:
    """A column that the report does not have, as of statistics, stays empty."""
    step = row.get("token_id")
    distances = [row.get(key) for key in _WORST_DISTANCES]
    golden, mine = (
        f"{row.get(f'{side}_dtype') or ''} {row.get(f'{side}_shape') or ''}".replace("torch.", "").strip()
        for side in ("golden", "my")
    )
    remark = row.get("cmp_fail_reason") or row.get("exceeded") or row.get("note")
    return [
        None if step == -1 else step,  # weights
        _html.code(row.get("node")),
        *distances,
        golden if golden == mine else f"{golden} against {mine}",
        _html.prose(remark),
    ]


def compare(
    golden: PathLike,
    mine: PathLike,
    *,
    level: str = "api",
    stats: bool = False,
    weights: bool = False,
    compat: str = "none",
    atol: Optional[float] = None,
    rtol: Optional[float] = None,
    cos: Optional[float] = None,
    rel_l2: Optional[float] = None,
    thresholds: Union[PathLike, Sequence[Mapping[str, Any]], None] = None,
    map: Union[PathLike, Sequence[Mapping[str, str]], None] = None,
    mapping_file: Optional[PathLike] = None,
    algorithms: Sequence[Union[str, Callable[[Any, Any], Any]]] = (),
    token_map: TokenMap = (),
    ranks: Sequence[int] = (),
    parallel: Parallel = None,
    allow_unmatched: Sequence[str] = (),
    jobs: int = 0,
    max_memory: int = 0,
) -> Comparison:
    """Compares two runs, two tensor files, or two checkpoints, tensor by tensor.

    Args:
        golden: the reference: a run folder of any layout, or a tensor file.
        mine: the run under test.
        level: ``"layer"``, ``"module"``, ``"api"`` (every module) or ``"all"``; needs a module tree on both sides.
        stats: compare statistics instead of tensors.
        weights: the paths are checkpoints; quantised weights are de-quantised.
        compat: ``"msit"`` for the rows and values of msit 8.2, defects included; ``"ait-0.2"`` for ait 0.2's report.
        atol, rtol: limit for every element, ``|mine - golden| <= atol + rtol * |golden|``.
        cos: least cosine similarity.
        rel_l2: largest relative L2 distance.
        thresholds: limits by name, type or dtype: a JSON file or its content as a list of dicts.
        map: explicit pairs ``[{"golden": ..., "my": ..., "slice": "[:, -1]", "reduce": "cat:1"}]``, or a JSON file
            with them.
        mapping_file: the user's own table of operation types, ``op_mapping_file.json`` or its folder.
        algorithms: more metrics, one column each: ``"FILE.py:FUNC"``, ``"FILE.so:FUNC"``, or a callable
            ``(golden, mine) -> number | text | (number or text, message)`` of two flat float32 arrays.
        token_map: pairs (step of golden, step of mine); by default equal ids.
        ranks: compare only these.
        parallel: sizes of the parallel groups of mine's job, the fastest first, ``"tp=8,pp=4,dp=2"`` or a dict of that;
            by default what its manifests say.
        allow_unmatched: shell patterns on names of the golden run: tensors that need no partner of their name.
        jobs: threads; 0 means one a core.
        max_memory: bytes of file pages kept in memory; 0 means 256 MiB.

    Returns:
        The comparison, complete.

    Raises:
        assay.errors.Error: a side is no run, or the two have no token or rank in common. A pair that cannot be read is
            no error but a row with its reason in ``cmp_fail_reason``.

    Example:
        >>> result = assay.compare("golden", "mine", rel_l2=0.01)      # doctest: +SKIP
        >>> result.passed, result.worst(1)[0]["node"]                  # doctest: +SKIP
        (False, 'model.layers.5.input_layernorm output')
    """
    map_text = json_text(map)
    pairs: dict[str, Any] = {"token_map": token_pairs(token_map), "ranks": list(ranks)}
    pairs["parallel"] = sizes_text(parallel)
    files = [item for item in algorithms if isinstance(item, str)]
    if files:
        os.environ.setdefault("ASSAY_PYTHON", sys.executable)  # their helper process is one of this Python
    native = _core.compare_runs(
        os.fspath(golden),
        os.fspath(mine),
        level=level,
        stats=stats,
        weights=weights,
        compat=compat,
        atol=atol,
        rtol=rtol,
        cos=cos,
        rel_l2=rel_l2,
        thresholds=json_text(thresholds),
        mapping_file="" if mapping_file is None else os.fspath(mapping_file),
        algorithm_files=files,
        algorithms=[(_column_name(item), item) for item in algorithms if not isinstance(item, str)],
        allow_unmatched=list(allow_unmatched),
        jobs=jobs,
        max_memory=max_memory,
        map=map_text,
        **pairs,
    )
    pairs["map"] = json.loads(map_text or "null")
    return Comparison(native, (os.fspath(golden), os.fspath(mine)), pairs)


def _column_name(function: Callable[[Any, Any], Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def compare_arrays(
    golden: Any, mine: Any, *, compat: str = "none", kl_divergence: bool = True, jobs: int = 1
) -> dict[str, Any]:
    """All metrics of one pair of arrays: NumPy, torch, or anything with DLPack or the buffer protocol, on the CPU.

    Args:
        golden: the reference, any shape, strides and dtype.
        mine: the array under test; the shapes may differ as long as the numbers of elements agree.
        compat: ``"msit"`` for the values of msit 8.2, and ``"cmp_fail_reason"``.
        kl_divergence: False leaves out the three KL values, which cost two exponentials an element.
        jobs: threads; 0 means one a core.

    Returns:
        A dict with the metric columns of the report, the counts of NaN and infinities, and ``"state"``:
        ``"compared"``, ``"empty"``, ``"count_mismatch"`` or ``"non_finite"``. Undefined numbers are NaN.
        Nothing is copied; the GIL is released.

    Example:
        >>> import numpy
        >>> compare_arrays(numpy.array([1.0, 2.0]), numpy.array([1.0, 2.5]))["max_absolute_error"]
        0.5
    """
    return _core.compare_arrays(_plain(golden), _plain(mine), compat=compat, kl_divergence=kl_divergence, jobs=jobs)


def compare_data(golden_data: Any, my_data: Any) -> dict[str, Any]:
    """The seven metrics of msit 8.2 for one pair of tensors, by their columns' names, and ``cmp_fail_reason``.

    Args:
        golden_data: the reference: a torch tensor, an array, anything `compare_arrays` takes.
        my_data: the tensor under test, with as many elements.

    Returns:
        Metrics that msit leaves blank (NaN, infinities, other sizes) are absent; the reason says why.

    Example:
        >>> import numpy
        >>> compare_data(numpy.ones(2), numpy.ones(3))
        {'cmp_fail_reason': "data shape doesn't match."}
    """
    metrics = compare_arrays(golden_data, my_data, compat="msit")
    found: dict[str, Any] = {name: metrics[name] for name in _MSIT_METRICS if metrics[name] == metrics[name]}
    found["cmp_fail_reason"] = metrics["cmp_fail_reason"]
    return found


def _plain(array: Any) -> Any:
    # A tensor that takes part in autograd refuses DLPack; detaching shares its memory.
    return array.detach() if hasattr(array, "detach") else array
