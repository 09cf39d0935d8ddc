# SPDX-License-Identifier: Apache-2.0
"""What is published of measurements: whole tables as JSON, and summaries of them in the pages of docs/benchmarks.

docs/benchmarks/results/speed/KEY.json is a report.Section with the commit in its machine. A page has a summary between
`<!-- table KEY -->` and `<!-- end KEY -->`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bench.report import Row, Section, to_markdown

RESULTS = Path("results", "speed")


@dataclass(frozen=True)
class Summary:
    """What a page shows of a table.

    Attributes:
        columns: titles of those shown.
        rows: regular expression that the names of shown rows match.
        turned: names are "MODEL: variant"; a line a variant, a column a model, further columns in brackets.
    """

    columns: tuple[str, ...]
    rows: str = ""
    turned: bool = False

    def of(self, section: Section) -> Section:
        """The rows and columns shown, without notes."""
        rows = [row for row in section.rows if re.search(self.rows, row.name)]
        if not self.turned:
            return replace(section, columns=["", *self.columns], rows=rows, notes=[])
        titles = dict.fromkeys(row.name.partition(": ")[0] for row in rows)
        lines: dict[str, Row] = {}
        for row in rows:
            model, _, variant = row.name.partition(": ")
            first, *others = (row.cells.get(column, "") for column in self.columns)
            brackets = f" ({', '.join(others)})" if any(others) else ""
            lines.setdefault(variant, Row(variant)).cells[model] = first + brackets
        return replace(section, columns=["", *titles], rows=list(lines.values()), notes=[])


_RATIOS = ("all bytes handed over", "of minima")
SUMMARIES = {
    "atb-probe": Summary(("CPU us a tensor", "of naive"), r"statistics|full|raw|naive", turned=True),
    "capture": Summary(_RATIOS, r": (assay|hooks|msprobe|transformers|strict [sf]|raw files, \w+$)", turned=True),
    "compare": Summary(("ms", "GB/s", "best GB/s", "resident MB")),
    "device": Summary(("ratio", "fastest"), r": (assay|hooks)", turned=True),
    "gate": Summary(("s", "of floor", "found")),
    "ggml": Summary(("of none", "of none (wall)"), r": (off|floor|rival|statistics|full)", turned=True),
    "graph": Summary(("beside", "ratio", "of minima", "files", "MB"), r"^S: (assay|dispatch|raw)"),
    "kernels": Summary(
        ("GB/s", "of memcpy"),
        r"stats/(fp32/1\d|\w+16/16)|memcpy/1\d|compare/(fp32|bf16)/33554432/4096|(torch|numpy): .*/16",
    ),
    "locate": Summary(("ms", "resident MB", "of bound"), r"locate|comparison|rival"),
    "opcheck": Summary(("ms", "of torch", "resident MB")),
    "open": Summary(("us a record", "fastest", "bytes a record")),
    "operators": Summary(_RATIOS, r": (empty|operators|mode|torch)", turned=True),
    "page": Summary(("value",), turned=True),
    "write": Summary(("GB/s", "of raw", "of minima")),
}


def load(folder: Path) -> dict[str, Section]:
    """The published tables of the pages in `folder`, by key."""
    files = sorted((folder / RESULTS).glob("*.json"))
    return {path.stem: Section.from_json(json.loads(path.read_text())) for path in files}


def publish(folder: Path, sections: Mapping[str, Section]) -> None:
    """Puts tables in place of the published ones of the same keys, and draws the pages."""
    (folder / RESULTS).mkdir(parents=True, exist_ok=True)
    for key, section in sections.items():
        (folder / RESULTS / f"{key}.json").write_text(json.dumps(section.to_json(), indent=1) + "\n")
    draw(folder)


def draw(folder: Path) -> None:
    """Puts the summary of each published table into the pages that have a place for it."""
    sections = load(folder)
    for page in sorted(folder.glob("*.md")):
        page.write_text(drawn(page.read_text(), sections))


def drawn(text: str, sections: Mapping[str, Section]) -> str:
    """The text of a page with the summaries of `sections`."""

    def place(found: re.Match[str]) -> str:
        start, key, end = found.groups()
        return f"{start}\n{_shown(sections[key])}\n{end}" if key in sections else found[0]

    return re.sub(r"(<!-- table (\S+) -->\n).*?(<!-- end \2 -->)", place, text, flags=re.DOTALL)


def _shown(section: Section) -> str:
    summary = SUMMARIES.get(section.key)
    if not summary:
        return to_markdown(section)
    link = RESULTS / f"{section.key}.json"
    commit = section.machine.get("commit", "unknown")
    return f"{to_markdown(summary.of(section))}\nCommit {commit}; [all columns and rows]({link.as_posix()}).\n"
