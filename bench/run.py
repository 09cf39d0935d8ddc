# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmarks: `make bench`, or bench/run.py [--rivals] [--quick] [--only NAME] [--publish].

Prints one table a section with goals and ratios, and writes build/bench/results.json (a run with --only keeps the
other sections of that file). --publish puts the tables into docs/benchmarks (bench/tables.py) and the rows with a goal
into docs/benchmarks.md (bench/claims.py). Parts that are not built are shown as not available; the exit
status is 1 when a part that is there fails, and does not depend on the figures.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Optional

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # a script's own folder would stand first; the modules are bench.*

from bench import (  # noqa: E402
    atb_probe,
    capture_overhead,
    claims,
    compare_speed,
    gate_speed,
    ggml_capture,
    graph_mode,
    kernels,
    locate_speed,
    opcheck_speed,
    open_speed,
    operator_capture,
    page_speed,
    report,
    tables,
    write_path,
)

SECTIONS = (
    "capture",
    "capture-cpu",
    "operators",
    "operators-cpu",
    "atb-probe",
    "ggml",
    "kernels",
    "write",
    "compare",
    "open",
    "locate",
    "opcheck",
    "graph",
    "page",
    "gate",
)


def load(path: Path) -> dict[str, report.Section]:
    """Reads results.json; an absent file has no sections."""
    if not path.exists():
        return {}
    return {key: report.Section.from_json(data) for key, data in json.loads(path.read_text())["sections"].items()}


def save(path: Path, sections: dict[str, report.Section]) -> None:
    """Writes results.json."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {"version": 1, "sections": {key: section.to_json() for key, section in sections.items()}}
    path.write_text(json.dumps(data, indent=1) + "\n")


def main(arguments: Optional[list[str]] = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rivals", action="store_true", help="install and measure other people's tools as well")
    parser.add_argument("--quick", action="store_true", help="few samples and small data: does it run at all")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="only this section; may be repeated")
    parser.add_argument("--model", action="append", help="capture, graph: only this model; may be repeated")
    parser.add_argument("--publish", action="store_true", help="put the tables into the pages of docs/benchmarks")
    parser.add_argument("--no-run", action="store_true", help="only print (and publish) what results.json holds")
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build" / "bench", help="build folder of the bench programs"
    )
    parser.add_argument("--assay", help="the native command; default: beside this Python, else on PATH")
    options = parser.parse_args(arguments)
    results = options.build / "results.json"
    sections = load(results)
    wanted = options.only or list(SECTIONS)
    runners: dict[str, Callable[[], report.Section]] = {
        "capture": lambda: capture_overhead.run(options.build, options.rivals, options.quick, options.model),
        "capture-cpu": lambda: capture_overhead.run(options.build, False, options.quick, options.model, cpu=True),
        "operators": lambda: operator_capture.run(options.build, options.quick, options.model, rivals=options.rivals),
        "operators-cpu": lambda: operator_capture.run(
            options.build, options.quick, options.model, cpu=True, rivals=options.rivals
        ),
        "atb-probe": lambda: atb_probe.run(options.build, options.quick),
        "ggml": lambda: ggml_capture.run(options.build, options.quick),
        "kernels": lambda: kernels.run(options.build, options.quick),
        "write": lambda: write_path.run(options.build, options.quick),
        "compare": lambda: compare_speed.run(options.build, options.quick, options.assay, options.rivals),
        "open": lambda: open_speed.run(options.build, options.quick),
        "locate": lambda: locate_speed.run(options.build, options.quick, options.assay),
        "opcheck": lambda: opcheck_speed.run(options.build, options.quick, options.assay),
        "page": lambda: page_speed.run(options.build, options.quick, options.assay),
        "gate": lambda: gate_speed.run(options.build, options.quick, options.assay),
        "graph": lambda: graph_mode.run(options.build, options.quick, options.model),
    }
    failed = False
    for key in wanted:
        if not options.no_run:
            try:
                section = runners[key]()
            except Exception:  # a section that breaks must not lose the others; the exit status tells
                traceback.print_exc()
                failed = True
                continue
            if key.startswith(("capture", "graph", "operators")) and options.model and key in sections:
                others = [row for row in sections[key].rows if row.name.split(":")[0] not in options.model]
                section.rows = others + section.rows
            section.machine["commit"] = claims.commit_of(ROOT)
            sections[key] = section
            save(results, sections)
        if key in sections:
            print(report.to_text(sections[key]))
            failed = failed or sections[key].failed
            for row in sections[key].rows:
                if row.status == report.FAILED:
                    print(f"{row.name}: {row.reason}", file=sys.stderr)
    if options.publish:
        docs = ROOT / "docs"
        shown = {key: sections[key] for key in wanted if key in sections}
        tables.publish(docs / "benchmarks", shown)
        claims.write_page(tables.load(docs / "benchmarks"), docs / "benchmarks.md")
        print("published: " + ", ".join(shown), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
