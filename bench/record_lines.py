# SPDX-License-Identifier: Apache-2.0
"""The lines of a records.jsonl as whole objects: what a line leaves to an earlier one (`like`) is put into it.

Written from docs/formats/native.md alone, so that tests hold the reader of the program against it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# What every line says for itself; the rest is the earlier line's.
OWN = {"run", "n", "step", "device", "file", "offset", "bytes", "view", "same_as", "stats", "digest"}
OWN |= {"vid", "storage", "storage_offset", "version", "from"}
# Of the record that `same_as` names, unless the line has them.
SHARED = ("file", "offset", "bytes", "view", "stats", "digest")


def whole(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Returns the object of each line; a line without its newline is left out."""
    records: list[dict[str, Any]] = []
    by_number: dict[int, dict[str, Any]] = {}
    for line in lines:
        if not line.endswith("\n") or not line.strip():
            continue
        record = json.loads(line)
        like = record.pop("like", None)
        if like is not None:
            taken = {key: value for key, value in by_number[like].items() if key not in OWN}
            if "same_as" in record:
                shared = by_number[record["same_as"]]
                taken.update((key, shared[key]) for key in SHARED if key in shared)
            record = {**taken, **record}
            if "view" in record and "of" in record["view"]:
                record.pop("same_as", None)
        by_number[record["n"]] = record
        records.append(record)
    return records


def read(path: Path) -> list[dict[str, Any]]:
    """Returns the records of a records.jsonl."""
    with open(path, encoding="utf-8") as file:
        return whole(file)
