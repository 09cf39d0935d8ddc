# SPDX-License-Identifier: Apache-2.0
"""Tables of measurements: one row model for the terminal, results.json and the pages of docs/benchmarks."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

MEASURED = "measured"
NOT_AVAILABLE = "not available"
FAILED = "failed"


@dataclass
class Row:
    """One line of a table.

    Attributes:
        name: unique within its section, stable between versions: tools/bench_compare.py pairs rows by it.
        cells: column title -> text.
        seconds: median time of the unit of work named in `unit`, large enough to be noticed by a person
            (100 steps, 10 GB, one command); None when nothing was measured.
        figure: what was measured, as text, of which `goal` speaks; empty without a goal.
        goal: the figure to reach, as text; empty for floors and rivals.
        met: whether it was reached; None without a goal or a measurement.
        status: "measured", "not available" or "failed"; `reason` says why for the last two.
        data: the raw figures.
    """

    name: str
    cells: dict[str, str] = field(default_factory=dict)
    seconds: Optional[float] = None
    unit: str = ""
    figure: str = ""
    goal: str = ""
    met: Optional[bool] = None
    status: str = MEASURED
    reason: str = ""
    data: dict[str, Any] = field(default_factory=dict)

    def judge(self, figure: str, goal: str, met: Optional[bool]) -> None:
        """Sets what was measured beside its goal."""
        self.figure, self.goal, self.met = figure, goal, met


@dataclass
class Section:
    """One table with the circumstances it was measured in.

    Attributes:
        key: one of SECTIONS in bench/run.py.
        columns: titles in order; "goal" and "met" are filled from the rows.
        notes: sentences under the table.
        load: load averages before and after.
    """

    key: str
    title: str
    columns: list[str]
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    machine: dict[str, str] = field(default_factory=dict)
    load: tuple[float, float] = (0.0, 0.0)

    @property
    def failed(self) -> bool:
        """True when a part that is installed failed."""
        return any(row.status == FAILED for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """Returns plain data for results.json."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Section:
        """Rebuilds a section from results.json."""
        copy = dict(data)
        copy["rows"] = [Row(**row) for row in copy["rows"]]
        copy["load"] = tuple(copy["load"])
        return Section(**copy)


def _cells(section: Section, row: Row) -> list[str]:
    values = {"": row.name, **row.cells, "goal": row.goal}
    values["met"] = "" if row.met is None else "yes" if row.met else "NO"
    texts = [values.get(column, "") for column in section.columns]
    if row.status != MEASURED:
        last = row.reason.strip().splitlines()[-1] if row.reason.strip() else ""
        texts = [row.name if column == "" else "" for column in section.columns]
        texts[1] = f"{row.status}: {last}"
    return texts


def to_text(section: Section) -> str:
    """Returns the table for a terminal: first column left, the others right."""
    lines = [section.columns] + [_cells(section, row) for row in section.rows]
    measured = [lines[0]] + [line for line, row in zip(lines[1:], section.rows) if row.status == MEASURED]
    widths = [max(len(line[i]) for line in measured) for i in range(len(section.columns))]
    widths[0] = max(len(line[0]) for line in lines)

    def join(line: list[str]) -> str:
        first, *rest = line
        return "  ".join([first.ljust(widths[0])] + [text.rjust(width) for text, width in zip(rest, widths[1:])])

    body = [join(lines[0]), "-" * len(join(lines[0]))]
    for line, row in zip(lines[1:], section.rows):
        body.append(join(line).rstrip() if row.status == MEASURED else f"{line[0].ljust(widths[0])}  {line[1]}")
    return "\n".join([section.title, "", *body, "", *section.notes, ""])


def to_markdown(section: Section) -> str:
    """Returns the table for a page of docs/benchmarks, with the circumstances above and the notes below."""
    info = section.machine
    device = f", {info['device']}" if "device" in info else ""
    load = f"load {section.load[0]:.1f} to {section.load[1]:.1f}"
    head = f"Measured {info['date']}: {info['cores']} cores {info['cpu']} ({info['simd']}){device}, {load}."
    rows = ["| " + " | ".join(section.columns) + " |", "|" + " --- |" * len(section.columns)]
    rows += [
        "| " + " | ".join(text.replace("|", "\\|") for text in _cells(section, row)) + " |" for row in section.rows
    ]
    notes = [wrapped("- " + note) for note in section.notes]
    return "\n".join([wrapped(head), "", *rows, "", *notes]).rstrip() + "\n"


def wrapped(text: str) -> str:
    """A paragraph, or a note that begins with "- ", in lines of at most 120 columns; code in a line stays whole."""
    code = [word.replace(" ", "\0") if number % 2 else word for number, word in enumerate(text.split("`"))]
    lines = textwrap.wrap(
        "`".join(code),
        width=120,
        subsequent_indent="  " if text.startswith("- ") else "",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace("\0", " ")
