# SPDX-License-Identifier: Apache-2.0
"""Speed in docs/benchmarks.md: every row with a goal of the published tables (bench/tables.py).

Rows of several models are one line of the page.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from bench import models
from bench.report import Row, Section
from bench.tables import SUMMARIES

BY_HAND = ("device", "gate", "kernels", "page")  # summed up in lines of the page that a person wrote

# (section, beginning of the row's name without its model) -> what limits a figure that misses its goal.
LIMITS: dict[tuple[str, str], str] = {
    (
        "capture",
        "assay off",
    ): "a call of ours around each module; the spread of the bare step is larger",
    ("capture", "assay statistics"): "reading each distinct tensor once, and 1.2 us a record on the model's thread",
    ("capture", "assay full"): "copying each distinct tensor once, and a second thread that writes it",
    (
        "capture",
        "strict statistics",
    ): "scripts read the csv when the call returns: a folder and a file a module, at the kernel's pace",
    ("capture", "strict full"): "scripts read the files when the call returns: a file a tensor, at the kernel's pace",
    ("operators", ""): "torch calls a mode: 3.3 us an operator before anybody looks, 0.2 of a decode step",
    ("atb-probe", "assay full"): "writing the distinct values; raw writes of all bytes stand beside it in the table",
    ("ggml", ""): "the engine starts its threads again at each stop: 1.05 with nothing done there",
    ("graph", "assay, a file an operator"): '717 files a step; `execution.layout = "native"` writes one',
    ("write", "strict full"): "a temporary name and a rename a file",
    ("compare", "assay compare, fp32 pair"): "reading the files: `cmp` on two equal ones is the floor beside it",
    ("compare", "assay compare, two runs"): "reading the files: `cmp` on two equal ones is the floor beside it",
    ("compare", "assay compare, bf16 pair"): "the logarithms and exponentials of KL, an element at half the bytes",
    ("compare", "assay compare, 2 x"): "opening, mapping and closing two files a pair",
    ("open", "assay.open, the first time"): "each line is parsed as text, and the index written once",
    ("open", "assay.open, again"): "an operation, one for three tensors, keeps texts of its own",
    ("kernels", ""): "data in the cache: memcpy there is at 56 GB/s; from memory statistics are faster than memcpy",
    ("opcheck", ""): "opening and reading three files a case",
    ("locate", ""): "fp64 products are two thirds of a verdict; the rest reads, rounds and weighs every value once",
}


@dataclass
class Claim:
    """One line: the same row of all models.

    Attributes:
        met: None when a sample was too disturbed to be judged.
    """

    section: str
    name: str
    models: list[str] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)
    goals: list[str] = field(default_factory=list)
    met: list[Optional[bool]] = field(default_factory=list)

    @property
    def is_reached(self) -> bool:
        """Whether every row was judged and reached its goal."""
        return all(self.met)

    @property
    def limit(self) -> str:
        """What limits it; empty when nobody has said so."""
        if all(met is not False for met in self.met):
            return "too disturbed to be judged"
        found = [
            text for (section, start), text in LIMITS.items() if self.name.startswith(start) and section == self.section
        ]
        return found[0] if found else ""


def fastest(row: Row) -> str:
    """The same ratio of the fastest samples, or ""."""
    return next((row.cells[column] for column in ("of minima", "best GB/s") if row.cells.get(column)), "")


def commit_of(root: Path) -> str:
    """Abbreviated hash of the checkout, with a + when it has changes."""
    words = ["git", "describe", "--always", "--dirty=+", "--abbrev=8", "--exclude=*"]
    return subprocess.run(words, cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def claims_of(sections: Mapping[str, Section]) -> list[Claim]:
    """The judged rows in the order of the sections."""
    found: dict[tuple[str, str], Claim] = {}
    for key, section in sections.items():
        turned = key in SUMMARIES and SUMMARIES[key].turned
        for row in section.rows:
            if not row.goal or key in BY_HAND:
                continue
            model, colon, name = row.name.partition(": ")
            if not colon or not (turned or model in models.MODELS):
                model, name = "", row.name
            claim = found.setdefault((key, name), Claim(key, name))
            claim.models.append(model)
            beside = fastest(row)
            claim.figures.append(row.figure + (f" ({beside})" if beside else ""))
            claim.goals.append(row.goal)
            claim.met.append(row.met)
    return list(found.values())


def table(sections: Mapping[str, Section], reached: bool) -> str:
    """The claims that reached their goals, or the others with what limits them."""
    titles = ["Claim", "Measured (fastest)", "Goal", "Command", "Commit, date"] + (
        [] if reached else ["What limits it"]
    )
    lines = ["| " + " | ".join(titles) + " |", "|" + " --- |" * len(titles)]
    for claim in claims_of(sections):
        if claim.is_reached != reached:
            continue
        machine = sections[claim.section].machine
        named = [model for model in claim.models if model]
        names = ("; " if any("," in model for model in named) else ", ").join(named)
        cells = [
            f"{claim.name}{': ' if names else ''}{names}",
            ", ".join(claim.figures),
            claim.goals[0] if len(set(claim.goals)) == 1 else ", ".join(claim.goals),
            f"`bench {claim.section}`",
            f"{machine['commit']}, {machine['date'][5:10]}",
        ]
        cells += [] if reached else [claim.limit or "-"]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def write_page(sections: Mapping[str, Section], page: Path) -> None:
    """Replaces what `page` has between `<!-- claims missed -->` and `<!-- end missed -->`, and so for `reached`."""
    text = page.read_text()
    for name in ("missed", "reached"):
        start, end = f"<!-- claims {name} -->\n", f"<!-- end {name} -->"
        head, rest = text.split(start, 1)
        text = head + start + "\n" + table(sections, name == "reached") + "\n" + end + rest.split(end, 1)[1]
    page.write_text(text)
