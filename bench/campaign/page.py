# SPDX-License-Identifier: Apache-2.0
"""What is published: one JSON file a campaign, and the page docs/benchmarks/campaign.md made of all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable

from bench.campaign.campaign import FAILED, MISTAKE, OK, SKIPPED, Campaign, Result
from bench.campaign.engine import clock, outcomes_of
from bench.report import Section, to_markdown, wrapped

_HEAD = """\
<!-- Made by `python -m bench.campaign --page` from docs/benchmarks/results/*.json. Do not edit. -->
# Campaigns

What takes too long for CI: thousands of verdicts, hundreds of kills, long fuzzing, large runs.

    make campaign MINUTES=60                                           all campaigns, one hour together
    .venv/bin/python -m bench.campaign --only kills --minutes 10       one of them
    .venv/bin/python -m bench.campaign --repeat CAMPAIGN/CASE          one case again; its output is kept
    .venv/bin/python -m bench.campaign --sample                        what CI runs: a few fixed cases of each
    .venv/bin/python -m bench.campaign --minutes 0 --publish           puts the results so far into this page

## How it works

A campaign is a list of cases made from a seed, in a shuffled order: any beginning of it is a fair sample. A case has a
name that says all it needs to be run again. It runs in a process of its campaign, with a time limit; a crash or a
time-out is a failure.

`--minutes` bounds all campaigns together: then no case begins any more. Each result is a line of
`build/campaign/<campaign>/results.jsonl` at once, so a killed run loses only the cases in hand. A later run of the same
commit and seed goes on after them; another one begins anew.

A *failure* breaks a promise: a killed run that does not open, a crash, too much memory. A *mistake* is a wrong verdict.
The sample fails with either. Each is in the JSON file of its campaign with the command that repeats it. Counts that are
0 in every row of a table have no column in it.
"""

# Beginnings of the rows that split the first ones up, by what is varied, and of columns; they stay in the JSON file.
_BREAKDOWNS = ("family ", "fault ", "pair ", "port ")
_AUDIT = "clean at "
_BAD_SHOWN = 2
_CLAUSES = 2  # of a verdict's sentence


def summary(
    campaign: Campaign, header: dict[str, Any], results: list[Result], command_of: Callable[[Result], str], load: float
) -> dict[str, Any]:
    """What is kept of a campaign: circumstances, counters, table, and the cases that did not end well.

    Args:
        header: first line of results.jsonl.
        command_of: the command that repeats a case.
        load: load average now.
    """
    machine = {**header["machine"], "date": results[-1]["at"] if results else header["started"]}
    section = Section(campaign.name, campaign.title, campaign.columns, machine=machine, load=(header["load"], load))
    section.rows = campaign.rows([result for result in results if result["outcome"] != SKIPPED])
    section.notes = list(campaign.about)
    bad = sorted(
        (r for r in results if r["outcome"] in (FAILED, MISTAKE) or r.get("listed")),
        key=lambda r: (r["outcome"], r["case"]),
    )
    return {
        "version": 1,
        "campaign": campaign.name,
        "commit": header["commit"],
        "dirty": header["commit"].endswith("-dirty"),
        "assay": header["version"],
        "seed": header["seed"],
        "machine": machine,
        "started": header["started"],
        "date": machine["date"],
        "cases": len(results),
        "outcomes": outcomes_of(results),
        "seconds": round(sum(result["seconds"] for result in results), 1),
        "table": section.to_json(),
        "bad": [
            {"case": r["case"], "outcome": r["outcome"], "reason": r["reason"], "command": command_of(r)} for r in bad
        ],
    }


def write_summary(folder: Path, data: dict[str, Any]) -> Path:
    """Writes the JSON file of one campaign."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{data['campaign']}.json"
    path.write_text(json.dumps(data, indent=1) + "\n")
    return path


def write_page(folder: Path, page: Path) -> None:
    """Makes the page of all JSON files in `folder`."""
    summaries = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(render(summaries))


def render(summaries: list[dict[str, Any]]) -> str:
    """Returns the page."""
    parts = [_HEAD, *(_chapter(data) for data in summaries)]
    if not summaries:
        parts.append("## Results\n\nNothing has been published yet.\n")
    return "\n".join(parts)


def _chapter(data: dict[str, Any]) -> str:
    section = Section.from_json(data["table"])
    whole = len(section.rows)
    section.rows = [row for row in section.rows if not row.name.startswith(_BREAKDOWNS)]
    section.columns = [title for title in section.columns if not title or _is_shown(section, title)]
    dirty = ", with changes that are not committed" if data["dirty"] else ""
    outcomes = data["outcomes"]
    circumstances = (
        f"Commit `{data['commit']}`{dirty}, assay {data['assay']}, seed {data['seed']}: {data['cases']} cases in "
        f"{clock(data['seconds'])} minutes of one process; {outcomes[OK]} well, {outcomes[MISTAKE]} mistakes, "
        f"{outcomes[FAILED]} failed."
    )
    if outcomes[SKIPPED]:
        circumstances += f" {outcomes[SKIPPED]} more could not be run on this machine."
    file = f"results/{data['campaign']}.json"
    parts = [f"## {section.title}\n", f"{wrapped(circumstances)}\n", to_markdown(section)]
    bad = [bad for bad in data["bad"] if bad["outcome"] != OK][:_BAD_SHOWN]
    if bad:
        parts.append("| what | why | the command that repeats it |\n| --- | --- | --- |")
        parts += [*(_bad_line(each) for each in bad), ""]
    more = [f"{whole - len(section.rows)} more rows by kind and family"] if len(section.rows) < whole else []
    more += [f"all {len(data['bad'])} listed cases"] if len(data["bad"]) > len(bad) else []
    if more:
        parts.append(f"[{file}]({file}) has {' and '.join(more)}.\n")
    return "\n".join(parts)


def _is_shown(section: Section, title: str) -> bool:
    return not title.startswith(_AUDIT) and any(row.cells.get(title) for row in section.rows)


def _bad_line(bad: dict[str, str]) -> str:
    why = "; ".join(bad["reason"].partition("\n")[0].split("; ")[:_CLAUSES])
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in (bad["outcome"], why, f"`{bad['command']}`")) + " |"
