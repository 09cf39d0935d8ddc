# SPDX-License-Identifier: Apache-2.0
"""From a data set's score to the cases that went wrong: the original's Synthesizer, Analyzer and CaseFilter.

    results = Synthesizer(queries=questions, input_token_ids=prompts, output_token_ids=answers, passed=verdicts)
    results.to_csv()
    Analyzer.analyze("gpu.csv", results)     # cases that passed on one side only

    cases = CaseFilter()
    cases.add_metrics(edit_distance=5, rouge_1=0.5)
    cases.apply(prompts, answers, expected, "out")

The same from the command line: docs/commands/bad-cases.md.
"""

from __future__ import annotations

import csv
import logging
import os
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any, Optional, Union

from assay._pandas import pandas_or_raise
from assay._text_metrics import TextMetric, get_metric

__all__ = ["Analyzer", "CaseFilter", "Synthesizer"]

_FOLDER = "msit_bad_case"
_CHINA = timezone(timedelta(hours=8))  # the clock of the original's file names
_FILE_MODE = 0o640
_FOLDER_MODE = 0o750
_SHOWN_UNMATCHED = 5
# What pandas, with which these tables are usually written, takes for a missing value.
_MISSING = frozenset(["", "NA", "N/A", "NaN", "nan", "None", "null", "NULL"])

logger = logging.getLogger("msit_llm_logger")

Table = dict[str, list[str]]


def _save(columns: list[str], rows: Iterable[Iterable[object]], folder: str, name: str) -> str:
    """Writes {folder}/{name}.csv; a taken name gets "_1", "_2" ... Returns the path."""
    os.makedirs(folder, mode=_FOLDER_MODE, exist_ok=True)
    number = 0
    while True:
        path = os.path.join(folder, name + (f"_{number}" if number else "") + ".csv")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
            break
        except FileExistsError:
            number += 1
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_defused(cell) for cell in row] for row in rows)
    return path


def _defused(cell: object) -> object:
    """A text that a spreadsheet would run as a formula gets a quote in front."""
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return "'" + cell
    return cell


def _stamp(zone: timezone) -> str:
    return datetime.now(tz=zone).strftime("%Y%m%d%H%M%S")


class Synthesizer:
    """Collects what an evaluation asked, got and judged, each of the four as soon as it is known.

    Args:
        queries: one question or several
        input_token_ids: token ids of each question; any object with a text
        output_token_ids: token ids of each answer
        passed: the verdicts, "Correct" and "Wrong" or True and False

    A string or an object that cannot be iterated is one entry, anything else one entry an item.
    """

    HEADER = ["queries", "input_token_ids", "output_token_ids", "passed"]
    SYNTHESIZER_FOLDER_NAME = os.path.join(_FOLDER, "synthesizer")

    def __init__(
        self, *, queries: Any = None, input_token_ids: Any = None, output_token_ids: Any = None, passed: Any = None
    ) -> None:
        self._info: Table = {name: [] for name in self.HEADER}
        self.from_args(
            queries=queries, input_token_ids=input_token_ids, output_token_ids=output_token_ids, passed=passed
        )

    def from_args(
        self, *, queries: Any = None, input_token_ids: Any = None, output_token_ids: Any = None, passed: Any = None
    ) -> None:
        """Appends entries; what is None is left as it was."""
        given = {
            "queries": queries,
            "input_token_ids": input_token_ids,
            "output_token_ids": output_token_ids,
            "passed": passed,
        }
        for name, value in given.items():
            if value is None:
                continue
            if isinstance(value, str) or not hasattr(value, "__iter__"):
                self._info[name].append(str(value))
            else:
                self._info[name].extend(str(item) for item in value)

    def table(self, errors: str = "trunc") -> Table:
        """The columns with equal lengths.

        Args:
            errors: what to do with columns of different lengths: "trunc" cuts them to the shortest, "pad" fills them
                with empty cells, "strict" refuses them.

        Raises:
            RuntimeError: nothing was collected
            ValueError: another value of `errors`, or different lengths with "strict"
        """
        lengths = [len(column) for column in self._info.values()]
        if not any(lengths):
            raise RuntimeError("'from_args' should be called first before invoking this method")
        if errors not in ("trunc", "pad", "strict"):
            raise ValueError(f"Expected 'errors' to be either 'pad', 'trunc' or 'strict', got {errors!r}")
        if errors == "strict" and len(set(lengths)) > 1:
            raise ValueError(f"the columns have different lengths: {dict(zip(self.HEADER, lengths))}")
        size = max(lengths) if errors == "pad" else min(lengths)
        return {name: column[:size] + [""] * (size - len(column)) for name, column in self._info.items()}

    def to_df(self, *, errors: str = "trunc") -> Any:
        """The same as a pandas data frame; needs pandas."""
        return pandas_or_raise("table()").DataFrame(self.table(errors))

    def to_csv(self, *, errors: str = "trunc") -> Optional[str]:
        """Writes msit_bad_case/synthesizer/{time in China}.csv and returns its path; nothing for an empty table.

        Raises:
            RuntimeError, ValueError: as :meth:`table`
        """
        table = self.table(errors)
        rows = list(zip(*table.values()))
        if not rows:
            logger.warning("'Synthesizer' detected that there is no data to save. Hence no result is saved")
            return None
        path = _save(self.HEADER, rows, self.SYNTHESIZER_FOLDER_NAME, _stamp(_CHINA))
        logger.info("'Synthesizer' has successfully finished the synthesis, the result is stored at %r", path)
        return path


def _verdict(cell: str) -> str:
    return {"correct": "true", "wrong": "false"}.get(cell.lower(), cell.lower())


class Analyzer:
    """Names the cases whose verdict differs between two evaluations."""

    ANALYZER_FOLDER_NAME = os.path.join(_FOLDER, "analyzer")

    @staticmethod
    def analyze(golden: Union[str, Synthesizer], test: Union[str, Synthesizer]) -> Optional[str]:
        """Joins the two by `queries` and writes the differing cases to msit_bad_case/analyzer/{time in China}.csv.

        Args:
            golden, test: a csv file, or what was collected; columns queries, input_token_ids, output_token_ids and
                passed (or pass). "Correct" and "True" are one verdict, "Wrong" and "False" the other.

        Returns:
            the path of the report, nothing when no verdict differs

        Raises:
            ValueError: a path that does not end in .csv
            KeyError: a column is missing
            OSError: a file cannot be read
        """
        tables = [Analyzer._complete(Analyzer._load(side), side) for side in (golden, test)]
        logger.info("Analyzing...")
        places: dict[str, list[int]] = {}
        for row, query in enumerate(tables[1]["queries"]):
            places.setdefault(query, []).append(row)
        shown = Synthesizer.HEADER[1:]
        rows, unmatched = [], []
        for i, query in enumerate(tables[0]["queries"]):
            if query not in places:
                unmatched.append(query)
            for j in places.get(query, []):
                if _verdict(tables[0]["passed"][i]) != _verdict(tables[1]["passed"][j]):
                    rows.append([query, *(table[name][k] for name in shown for table, k in zip(tables, (i, j)))])
        path = Analyzer._save_result(shown, rows)
        if unmatched:
            logger.warning(
                "There are '%s' quer(ies) not matched, below is a partial display of these unmatched queries: %s",
                len(unmatched),
                unmatched[:_SHOWN_UNMATCHED],
            )
        return path

    @staticmethod
    def from_csv(golden_csv_path: str, test_csv_path: str) -> Optional[str]:
        """The name that :meth:`analyze` had for two files."""
        return Analyzer.analyze(golden_csv_path, test_csv_path)

    @staticmethod
    def _load(side: Union[str, Synthesizer]) -> Table:
        if isinstance(side, Synthesizer):
            return side.table("trunc")
        logger.info("Checking if path %r is valid...", side)
        if not isinstance(side, str) or not side.endswith(".csv"):
            raise ValueError(f"Invalid csv path, only path with suffix '.csv' is allowed: {side!r}")
        with open(side, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            columns = next(reader, [])
            rows = [row for row in reader if len(row) == len(columns)]
        return {name: [row[i] for row in rows] for i, name in enumerate(columns)}

    @staticmethod
    def _complete(table: Table, side: object) -> Table:
        logger.info("Checking if the header of csv is valid...")
        if "pass" in table:
            table.setdefault("passed", table["pass"])
        if any(name not in table for name in Synthesizer.HEADER):
            raise KeyError(
                "Unmatched csv columns, expected to have 'queries', 'input_token_ids', 'output_token_ids' and 'passed'"
            )
        rows = list(zip(*(table[name] for name in Synthesizer.HEADER)))
        kept = [row for row in rows if not any(cell in _MISSING for cell in row)]
        if len(kept) != len(rows):
            name = side if isinstance(side, str) else "the collected result"
            logger.warning("%s: %d rows have an empty cell and were left out", name, len(rows) - len(kept))
        return {name: [row[i] for row in kept] for i, name in enumerate(Synthesizer.HEADER)}

    @staticmethod
    def _save_result(shown: list[str], rows: list[list[str]]) -> Optional[str]:
        if not rows:
            logger.warning(
                "'Analyzer' detected that there is no difference between the given golden result and test result. "
                "Hence no result is saved"
            )
            return None
        columns = ["queries", *(f"{name}_{side}" for name in shown for side in ("golden", "test"))]
        path = _save(columns, rows, Analyzer.ANALYZER_FOLDER_NAME, _stamp(_CHINA))
        logger.info("'Analyzer' has successfully finished the analysis, the result is stored at %r", path)
        return path


class CaseFilter:
    """Names the cases whose text misses a limit."""

    def __init__(self) -> None:
        self._metrics: list[TextMetric] = []

    def add_metrics(self, **metrics: Optional[float]) -> None:
        """Adds metrics by name, with a limit of one's own or None for the usual one.

        accuracy (1), edit_distance (5), relative_abnormal (1.2), bleu, bleu_1 ... bleu_4 and rouge, rouge_1, rouge_2,
        rouge_l (0.4), relative_distinct, relative_distinct_1 ... relative_distinct_4 (0.8). A score above the limit of
        edit_distance and relative_abnormal is bad, a score below the limit of the others.

        Raises:
            KeyError: no such metric
            TypeError, ValueError: no number, or one out of the metric's range
        """
        self._metrics.extend([get_metric(name, threshold) for name, threshold in metrics.items()])

    def apply(
        self, ins: list[str], outs: list[str], refs: list[str], output_dir: Optional[str] = None
    ) -> Optional[str]:
        """Writes {output_dir}/msit_filter_result_{UTC time}.csv with the bad cases.

        Args:
            ins: what the model was asked
            outs: what it wrote
            refs: what was expected; the three have equal lengths
            output_dir: the current folder by default; made when it is missing

        Returns:
            the path of the report, nothing when all cases pass

        Raises:
            TypeError: not lists of strings
            ValueError: empty lists, or different lengths
            RuntimeError: no metric was added
        """
        for texts in (ins, outs, refs):
            if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
                raise TypeError("ins, outs and refs must be lists of strings")
        if not ins or not len(ins) == len(outs) == len(refs):
            raise ValueError("Input sequences must have the same length, and at least one entry.")
        if not self._metrics:
            raise RuntimeError("Metrics must be added first before calling apply.")
        if output_dir is not None and not isinstance(output_dir, str):
            raise TypeError(f"output_dir should be a string, but got a {type(output_dir)}")
        scores = self._scores(outs, refs)
        if not scores:
            logger.warning(
                "Bad cases are unexpectedly empty: No data to save and hence no file will be created. "
                "If this is normal, please ignore."
            )
            return None
        columns = ["model input", "model output", "gold standard", *(metric.name for metric in self._metrics)]
        texts_of = [(ins[row], outs[row], refs[row]) for row in scores]
        rows = [[*texts, *cells] for texts, cells in zip(texts_of, self._cells(scores))]
        path = _save(columns, rows, output_dir or ".", f"msit_filter_result_{_stamp(timezone.utc)}")
        logger.info("Filtering finished.")
        return path

    def _scores(self, outs: list[str], refs: list[str]) -> dict[int, list[Optional[float]]]:
        """Scores of the cases that missed a limit, in the order in which the metrics found them."""
        bad: dict[int, list[Optional[float]]] = {}
        for place, metric in enumerate(self._metrics):
            logger.info("Current metrics: %s", metric.name)
            for row, (output, expected) in enumerate(zip(outs, refs)):
                try:
                    score = metric.of(output, expected)
                except ValueError as error:
                    logger.error("case %d has no %s: %s", row, metric.name, error)
                    continue
                if not metric.passes(score):
                    bad.setdefault(row, [None] * len(self._metrics))[place] = score
        return bad

    @staticmethod
    def _cells(scores: dict[int, list[Optional[float]]]) -> list[list[object]]:
        """Five decimals, PASSED where the limit was kept. Whole numbers show as such where a column is full of them,
        as pandas writes it."""
        columns = []
        for column in zip(*scores.values()):
            whole = all(isinstance(score, int) for score in column)
            columns.append(
                ["PASSED" if score is None else score if whole else round(float(score), 5) for score in column]
            )
        return [list(row) for row in zip(*columns)]
