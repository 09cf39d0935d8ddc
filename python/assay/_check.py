# SPDX-License-Identifier: Apache-2.0
"""The operations of a dump recomputed and judged. The work is native; this file only gives it names."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any, Optional, Union

from . import _html
from ._pandas import pandas_or_raise

# Native, without a stub: this file has its types.
_opcheck: Any = importlib.import_module("assay._opcheck")

__all__ = ["OpcheckReport", "opcheck", "opcheck_operators"]

PathLike = Union[str, "os.PathLike[str]"]
Row = dict[str, Union[int, float, str, None]]


class OpcheckReport:
    """What `opcheck` found. Plain data: it holds no file open."""

    def __init__(self, native: Any):
        self._native = native
        self._rows: Optional[list[Row]] = None

    @property
    def rows(self) -> list[Row]:
        """One dict an output, by rank, run count and natural order of ids; keys are the report's columns.

        Operators of a captured run stand in the order of their execution and have columns of their own.

        ``"result"`` is ``"PASS"``, ``"FAILED"``, ``"NOT_SUPPORTED"`` or ``"ERROR"``, ``"reason"`` says why.
        """
        if self._rows is None:
            self._rows = self._native.rows()
        return self._rows

    @property
    def counts(self) -> dict[str, int]:
        """Operations ``passed``, ``failed``, ``not_supported``, ``errors``, and their ``outputs``."""
        return dict(self._native.counts())

    @property
    def passed(self) -> bool:
        """True when something passed, and nothing failed or could not be read."""
        counts = self.counts
        return counts["passed"] > 0 and counts["failed"] == 0 and counts["errors"] == 0

    @property
    def warnings(self) -> list[str]:
        """What was wrong with the dump itself, one sentence each."""
        return self._native.warnings

    def failures(self) -> list[Row]:
        """The rows that failed or could not be read, in the order of the report."""
        return [row for row in self.rows if row["result"] in ("FAILED", "ERROR")]

    def to_pandas(self) -> Any:
        """The rows as a ``pandas.DataFrame``.

        Raises:
            ImportError: pandas is not installed.
        """
        return pandas_or_raise(".rows").DataFrame(self.rows)

    def write(self, folder: PathLike, formats: Sequence[str] = ("xlsx",)) -> list[str]:
        """Writes ``opcheck_result_{time}`` in the formats ``xlsx``, ``csv``, ``jsonl``, ``html``; returns the paths.

        Raises:
            assay.errors.Error: a file cannot be written.
        """
        return self._native.write(os.fspath(folder), list(formats))

    def __str__(self) -> str:
        return self._native.text(100)

    def _repr_html_(self) -> str:
        """For notebooks: the counts, and the rows that failed or could not be read."""
        counts = self.counts
        bad = counts["failed"] + counts["errors"]
        failures = self.failures() if bad else []
        rows = [
            (
                _html.code(row.get("node") or row.get("op_id")),
                _html.code(row.get("operator") or row.get("op_name")),
                row["result"],
                _html.prose(row["reason"]),
            )
            for row in failures[: _html.MOST_ROWS]
        ]
        operations = sum(counts[key] for key in ("passed", "failed", "not_supported", "errors"))
        return _html.fragment(
            "Opcheck",
            f"{bad} of {operations} operations failed or could not be read" if bad else self._none_failed(operations),
            _html.facts((name.replace("_", " "), count) for name, count in counts.items()),
            _html.table("failed", ("operation", "type", "result", "reason"), rows, len(failures)),
            _html.sentences("warnings:", self.warnings),
            tone="bad" if bad else "good" if self.passed else "open",
        )

    def _none_failed(self, operations: int) -> str:
        return f"{self.counts['passed']} of {operations} operations pass, none failed"

    def __repr__(self) -> str:
        counts = self.counts
        return f"OpcheckReport(passed={counts['passed']}, failed={counts['failed']}, errors={counts['errors']})"


def opcheck(
    run: PathLike,
    *,
    ids: Sequence[str] = (),
    names: Sequence[str] = (),
    csv: Optional[PathLike] = None,
    kernels: bool = True,
    standard: str = "atb",
    precision_mode: str = "keep_origin_dtype",
    kl_divergence: bool = False,
    jobs: int = 0,
    max_memory: int = 0,
) -> OpcheckReport:
    """Recomputes every captured operation of an ATB dump in fp64 from its own inputs and judges its outputs.

    A run captured at operator level is judged, too, each operator by what rounding explains: then only
    `names`, `jobs` and `max_memory` have a meaning.

    Args:
        run: a dump, or any folder inside one down to that of one operation; or a run with operators.
        ids: only these operations and all below them: ``["24_1"]``.
        names: only types whose name contains one of these, in any case.
        csv: list of operations (``operation_tensors_N.csv``): its rows are checked.
        kernels: also the kernels of operations, where they were captured.
        standard: limits that decide: ``"atb"``, ``"legacy-o4"``, ``"legacy-o4-strict"``, ``"legacy-o1"``, ``"mixed"``.
        precision_mode: ``"force_fp16"`` or ``"force_fp32"`` converts float tensors before anything is computed.
        kl_divergence: also the KL divergence, which costs a second pass.
        jobs: threads; 0 means one a core. Results do not depend on it.
        max_memory: bytes of working memory; 0 means 2 GiB.

    Raises:
        assay.errors.Error: the path holds neither operations nor operators. An operation that cannot be read or
            computed is no error but a row with its reason.

    Example:
        >>> report = assay.opcheck("dump/msit_dump_20250102_030405")     # doctest: +SKIP
        >>> report.passed, report.failures()                             # doctest: +SKIP
        (True, [])
    """
    native = _opcheck.check_run(
        os.fspath(run),
        ids=list(ids),
        names=list(names),
        csv="" if csv is None else os.fspath(csv),
        kernels=kernels,
        standard=standard,
        precision_mode=precision_mode,
        kl_divergence=kl_divergence,
        jobs=jobs,
        max_memory=max_memory,
    )
    return OpcheckReport(native)


def opcheck_operators() -> list[dict[str, str]]:
    """The operations that can be checked: ``name``, ``variants``, ``parameters``, ``outputs``, ``precision``."""
    return _opcheck.operators()
