#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants faults, and prints how often the first wrong operator is named, beside what fixed thresholds name.

    python bench/faults/run.py                      every family, kind and level: minutes
    python bench/faults/run.py --families llama --kinds epsilon --levels O,L --keep
    python bench/faults/run.py --healthy            healthy pairs only: every verdict is a false alarm

A mistake is printed with the command that repeats it. results go to build/bench/faults.json.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Optional

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[0] = str(ROOT)

from bench.faults import captures, faults, lab, rewrites, thresholds  # noqa: E402
from bench.faults.families import DRAWN, FAMILIES, LARGER, WIDTH  # noqa: E402

Job = tuple[lab.Case, ...]


def _list(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", type=_list, default=LARGER, help="comma-separated, or all")
    parser.add_argument("--kinds", type=_list, default=tuple(faults.KINDS))
    parser.add_argument("--levels", type=_list, default=("O", "L", "M", "B"), help="of O, L, M, B, N, S")
    parser.add_argument("--forms", type=_list, default=("visible", "hidden"))
    parser.add_argument("--seeds", type=_list, default=("0",))
    parser.add_argument("--pairs", type=_list, default=tuple(pair for pair in lab.PAIRS if pair != "compiled"))
    parser.add_argument("--strengths", type=_list, default=("1", "0.5"))
    parser.add_argument("--coarse", action="store_true", help="mine runs on emulated coarse kernels")
    parser.add_argument("--healthy", action="store_true", help="healthy pairs only")
    parser.add_argument(
        "--rewritten", type=_list, default=(), help="kinds of bench/faults/rewrites.py, or all: only these"
    )
    parser.add_argument("--faulty", action="store_true", help="faults only")
    parser.add_argument("--world", default="precision", help="the pair that faults are planted in")
    parser.add_argument("--device", action="store_true", help="mine runs on this machine's accelerator")
    parser.add_argument("--width", type=int, default=WIDTH, help="of the models")
    parser.add_argument("--layers", type=_list, default=())
    parser.add_argument("--keep", type=Path, help="folder to keep every capture in")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--limit", type=int, default=0, help="stop after so many cases")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "faults.json")
    parser.add_argument("--fingerprint", action="store_true", help="golden is judged by its fingerprint and weights")
    parser.add_argument("--shaped", action="store_true", help="weights resemble trained ones")
    parser.add_argument("--decode", type=int, default=0, help="steps of one token after the prompt")
    options = parser.parse_args()
    if options.families == ("all",):
        options.families = DRAWN
    if options.device:
        if lab.DEVICE is None:
            parser.error("--device: torch finds no accelerator")
        options.pairs = ("device",)
    for given, known in (
        (options.families, FAMILIES),
        (options.kinds, faults.KINDS),
        (options.levels, captures.LEVELS),
    ):
        for name in given:
            if name not in known:
                parser.error(f"{name!r} is none of {', '.join(known)}")
    return options


def _cases(options: argparse.Namespace) -> list[lab.Case]:
    seeds = tuple(int(seed) for seed in options.seeds)
    run = (options.coarse, options.shaped, options.decode)
    found: list[lab.Case] = []
    if options.rewritten:
        kinds = tuple(rewrites.KINDS) if options.rewritten == ("all",) else options.rewritten
        return list(lab.rewritten_cases(options.families, seeds, kinds, options.shaped, options.decode))
    if not options.faulty:
        found += lab.healthy_cases(options.families, seeds, options.pairs, *run)
    if not options.healthy:
        strengths = tuple(float(strength) for strength in options.strengths)
        pair = "device" if options.device else options.world
        found += lab.fault_cases(options.families, seeds, options.kinds, strengths, options.forms, *run, pair)
    if options.layers:
        found = [case for case in found if not case.kind or str(case.layer) in options.layers]
    if options.width != WIDTH:
        found = [dataclasses.replace(case, width=options.width) for case in found]
    return found[: options.limit or None]


def _by_model(cases: Iterable[lab.Case]) -> list[Job]:
    groups: dict[tuple[str, int], list[lab.Case]] = collections.defaultdict(list)
    for case in cases:
        groups[case.family, case.seed].append(case)
    return [tuple(group) for group in groups.values()]


_levels: tuple[str, ...] = ()
_keep: Optional[Path] = None
_fingerprint = False


def _work(job: Job) -> list[dict[str, Any]]:
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="assay-faults-") as scratch:
        folder = _keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        laboratory = lab.Laboratory(
            folder, _levels, keep=_keep is not None, width=job[0].width, fingerprint=_fingerprint
        )
        results = []
        for case in job:
            for result in laboratory.run(case):
                results.append(result.to_json())
                _say(result)
    return results


def _say(result: lab.Result) -> None:
    case = result.case
    if result.level == "":
        print(f"- {case.name}: {result.outcome}", flush=True)
    elif case.kind and not result.right():
        print(
            f"! {case.name} [{result.level}]: planted in {result.place}; {result.sentence}\n"
            f"  bench/faults/run.py --families {case.family} --seeds {case.seed} --kinds {case.kind} "
            f"--forms {case.form} --strengths {case.strength:g} --layers {case.layer} --levels {result.level} --faulty"
            f"{' --coarse' if case.coarse else ''}{f' --width {case.width}' if case.width != WIDTH else ''}"
            " --keep FOLDER",
            flush=True,
        )
    elif not case.kind and result.outcome == "first_wrong":
        print(f"! {case.name} [{result.level}]: false alarm: {result.sentence}", flush=True)


def _percent(part: int, whole: int) -> str:
    return "-" if whole == 0 else f"{100 * part / whole:.1f} %"


def _table(title: str, head: list[str], rows: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    print(f"\n{title}")
    for row in [head, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def report(results: list[dict[str, Any]]) -> None:
    """Prints top-1, top-3 and false alarms, by kind and level, and the same of fixed thresholds."""
    judged = [r for r in results if r["level"]]
    faulty = [r for r in judged if r["case"]["kind"]]
    healthy = [r for r in judged if not r["case"]["kind"]]
    levels = [level for level in captures.LEVELS if any(r["level"] == level for r in judged)]
    rows = []
    for kind in [k for k in faults.KINDS if any(r["case"]["kind"] == k for r in faulty)]:
        mine = [r for r in faulty if r["case"]["kind"] == kind]
        cells = [kind, faults.KINDS[kind].group, str(len({r["name"] for r in mine}))]
        for level in levels:
            at = [r for r in mine if r["level"] == level]
            cells.append(_percent(sum(r["right"] for r in at), len(at)))
        rows.append(cells)
    total = ["all", "", str(len({r["name"] for r in faulty}))]
    top3 = ["all, top-3", "", ""]
    for level in levels:
        at = [r for r in faulty if r["level"] == level]
        total.append(_percent(sum(r["right"] for r in at), len(at)))
        top3.append(_percent(sum(r["top3"] for r in at), len(at)))
    if faulty:
        _table("right at the first place", ["kind", "group", "cases", *levels], [*rows, total, top3])
    rows = []
    for pair in [p for p in (*lab.PAIRS, *rewrites.KINDS) if any(r["case"]["pair"] == p for r in healthy)]:
        of_pair = [r for r in healthy if r["case"]["pair"] == pair]
        rows.append([pair, *[_outcomes(of_pair, level, "first_wrong") for level in levels]])
        rows.append(["  called clean", *[_outcomes(of_pair, level, "clean") for level in levels]])
    if healthy:
        _table("healthy pairs: false alarms", ["", *levels], rows)
    _rivals(faulty, healthy)
    seconds = sorted(r["seconds"] for r in judged)
    if seconds:
        print(f"\n{len(judged)} verdicts, median {seconds[len(seconds) // 2]:.2f} s, longest {seconds[-1]:.2f} s")


def _outcomes(healthy: list[dict[str, Any]], level: str, outcome: str) -> str:
    at = [r for r in healthy if r["level"] == level]
    return f"{sum(r['outcome'] == outcome for r in at)} of {len(at)}"


def _rivals(faulty: list[dict[str, Any]], healthy: list[dict[str, Any]]) -> None:
    """Module outputs judged by a limit: the same captures, each once."""
    once = list({r["name"]: r for r in faulty}.values())
    well = list({r["name"]: r for r in healthy if r["case"]["pair"] in ("precision", "fp64")}.values())
    rows = []
    for name in thresholds.LIMITS:
        right = sum(r["rivals"][name] is not None and lab.inside(r["place"], r["rivals"][name], "M") for r in once)
        alarms = sum(r["rivals"][name] is not None for r in well)
        rows.append([name, _percent(right, len(once)), f"{alarms} of {len(well)}"])
    if once or well:
        _table("fixed thresholds on module outputs, the same captures", ["limit", "right", "false alarms"], rows)


def main() -> int:
    """Runs the cases; the exit status does not depend on the figures."""
    options = _options()
    global _levels, _keep, _fingerprint
    _levels, _keep, _fingerprint = options.levels, options.keep, options.fingerprint
    jobs = _by_model(_cases(options))
    if options.jobs > 1:
        with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
            results = [result for part in pool.imap_unordered(_work, jobs) for result in part]
    else:
        results = [result for job in jobs for result in _work(job)]
    results.sort(key=lambda r: (r["name"], r["level"]))
    report(results)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"version": 1, "results": results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
