# SPDX-License-Identifier: Apache-2.0
"""What must hold of a killed run: it opens, it is right as far as it goes, and it is not called complete."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    import assay

CALLED = ("rank", "step", "node", "role", "slot", "call")  # what a record is called, the same in both runs
STEP = CALLED.index("step")
ASSAY = Path(sys.executable).with_name("assay")


class Wrong(Exception):
    """A promise about killed runs is broken."""


def opened(folder: Path) -> assay.Run:
    """Opens a run as `assay.open` and `assay show` do, who must agree."""
    import assay

    try:
        run = assay.open(folder)
    except assay.Error as error:
        raise Wrong(f"does not open: {error}") from error
    shown = subprocess.run([ASSAY, "show", folder], capture_output=True, text=True, check=False)
    if shown.returncode != 0:
        raise Wrong(f"assay show ends with status {shown.returncode}: {shown.stderr.strip()}")
    if ("INCOMPLETE" in shown.stdout) == run.coverage.complete:
        raise Wrong(f"assay show says: {shown.stdout.partition(chr(10))[0]}; assay.open: {run.coverage}")
    return run


def compare(killed: assay.Run, lived: assay.Run) -> int:
    """Checks that a killed run is right as far as it goes; returns how many records had bytes; raises Wrong."""
    twins = {tuple(getattr(record, key) for key in CALLED): record for record in lived.records}
    seen = set()
    with_bytes = 0
    for record in killed.records:
        if record.file is not None and ".tmp" in Path(record.file).name:
            raise Wrong(f"{record.file} is a temporary file and yet a record")
        called = tuple(getattr(record, key) for key in CALLED)
        if called not in twins or called in seen:
            raise Wrong(f"{called} is {'there twice' if called in seen else 'none of the run that was let live'}")
        seen.add(called)
        with_bytes += _check_record(record, twins[called], called)
    # In a closed run the last step must be whole, too.
    last = math.inf if killed.coverage.complete else max((called[STEP] for called in seen), default=-math.inf)
    lost = [called for called in twins if called not in seen and called[STEP] < last]
    if lost:
        raise Wrong(f"lacks {len(lost)} records before its end, the first is {lost[0]}")
    return with_bytes


def _check_record(record: assay.Record, twin: assay.Record, called: tuple[Any, ...]) -> bool:
    """Holds a record against its twin and against its own bytes; returns whether it has bytes."""
    if record.problem:
        raise Wrong(f"{called} has a problem: {record.problem}")
    for what in ("dtype_name", "shape", "value"):
        if getattr(record, what) != getattr(twin, what):
            raise Wrong(f"{called}: {what} is {getattr(record, what)!r}, in the run that lived {getattr(twin, what)!r}")
    if _figures(record) != _figures(twin):
        raise Wrong(f"{called}: statistics {_figures(record)}, in the run that lived {_figures(twin)}")
    if record.file is None:
        return False
    try:
        values = record.numpy()
    except assay.Error as error:
        raise Wrong(f"{called}: {error}") from error
    if values.tobytes() != twin.numpy().tobytes():
        raise Wrong(f"{called}: the bytes are not those of the run that lived")
    if record.recorded_stats is not None:
        _check_statistics(record, called)
    return True


def _figures(record: assay.Record) -> Optional[tuple[float, ...]]:
    stats = record.recorded_stats
    return None if stats is None else (stats.count, stats.min, stats.max, stats.mean, stats.l2_norm)


def _check_statistics(record: assay.Record, called: tuple[Any, ...]) -> None:
    """Computes the recorded statistics anew, by torch, from the recorded bytes."""
    values = record.torch().double()
    count = values.numel()
    mean, l2_norm = values.sum().item() / count, values.square().sum().sqrt().item()
    own = (count, values.min().item(), values.max().item(), mean, l2_norm)
    recorded = _figures(record)
    assert recorded is not None
    close = math.isclose(recorded[3], mean, rel_tol=1e-9, abs_tol=1e-12)
    if recorded[:3] != own[:3] or not close or not math.isclose(recorded[4], l2_norm, rel_tol=1e-9):
        raise Wrong(f"{called}: statistics {recorded}, those of its bytes are {own}")


def check_step_files(rank: Path) -> None:
    """A step file in the folder of a rank is closed, with a whole header of JSON, or has the zeros it was made with."""
    for path in rank.glob("*.safetensors"):
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            try:
                if length:
                    json.loads(file.read(length))
            except ValueError as error:
                raise Wrong(f"{path.name} has half a header: {error}") from error
