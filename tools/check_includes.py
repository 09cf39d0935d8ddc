#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when a module under src/ includes a module that ARCHITECTURE.md does not allow it to include.

The same table stands in ARCHITECTURE.md, folder by folder: data flows one way, and what runs inside a host
process (writer, capture) never meets the analysis (run, compare, report).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

_CORE = {"base", "tensor"}
ALLOWED: dict[str, set[str]] = {
    "base": set(),
    "tensor": {"base"},
    "stats": _CORE,
    "measure": _CORE | {"stats"},
    "remote": _CORE | {"stats"},
    "formats": _CORE | {"stats"},
    "topology": _CORE | {"formats"},
    "reference": _CORE,
    "writer": _CORE | {"stats", "formats", "topology"},
    "capture": _CORE | {"stats", "formats", "writer"},
    "run": _CORE | {"stats", "formats", "topology"},
    "pair": _CORE | {"stats", "formats", "topology", "run"},
    "compare": _CORE | {"stats", "measure", "formats", "topology", "reference", "run", "pair"},
    "opcheck": _CORE | {"stats", "measure", "formats", "topology", "reference", "run"},
    "locate": _CORE | {"stats", "measure", "formats", "topology", "reference", "run", "pair", "compare", "opcheck"},
    "repeat": _CORE | {"stats", "measure", "topology", "reference", "run", "pair", "locate"},
    "engines": _CORE
    | {"stats", "measure", "formats", "topology", "reference", "run", "pair", "compare", "opcheck", "locate"},
    "report": _CORE
    | {"stats", "measure", "formats", "topology", "run", "pair", "compare", "opcheck", "locate", "repeat"},
    "vendor": _CORE | {"measure", "formats", "run", "pair", "compare", "report"},
    "app": _CORE | {"measure", "formats", "run", "pair", "compare", "locate", "engines", "report"},
    "cli": _CORE
    | {
        "stats",
        "measure",
        "formats",
        "topology",
        "run",
        "pair",
        "reference",
        "compare",
        "opcheck",
        "locate",
        "repeat",
        "engines",
        "report",
        "vendor",
        "app",
        "remote",
    },
    "python": _CORE
    | {
        "stats",
        "measure",
        "formats",
        "topology",
        "reference",
        "run",
        "pair",
        "compare",
        "opcheck",
        "locate",
        "repeat",
        "engines",
        "report",
        "vendor",
        "app",
        "remote",
    },
}
# Rooms of a module, in the order in which data passes through them: each may include those before it, none beside it.
ROOMS: dict[str, tuple[tuple[str, ...], ...]] = {
    "capture": (("common",), ("intake",), ("atb", "ggml", "torch")),
    "locate": (("program",), ("noise",), ("judge",), ("replay",), ("verdict",)),
}
_ROOM = re.compile(r'^\s*#\s*include\s+"(\w+)/(\w+)/', re.MULTILINE)
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"/]+)/', re.MULTILINE)


def violations(source_root: Path) -> list[str]:
    """Returns one line a forbidden include, and one for a folder that the table does not know."""
    found = []
    for path in sorted(source_root.rglob("*.[ch]pp")):
        module = path.relative_to(source_root).parts[0]
        if module not in ALLOWED:
            found.append(f"{path}: module '{module}' is not in the table of tools/check_includes.py")
            continue
        found += _upward(path, path.relative_to(source_root).parts)
        # A test may look at its module through its neighbours; only what is shipped has a direction.
        if path.name.endswith(("_test.cpp", "_fuzz.cpp", "_bench.cpp")):
            continue
        for target in _INCLUDE.findall(path.read_text()):
            if target != module and target not in ALLOWED[module]:
                found.append(f"{path}: '{module}' must not include '{target}'")
    return found


def _upward(path: Path, parts: tuple[str, ...]) -> list[str]:
    """Returns one line for each include of a room by one before it, or beside it; tests count."""
    floors = {room: floor for floor, rooms in enumerate(ROOMS.get(parts[0], ())) for room in rooms}
    if not floors:
        return []
    if len(parts) < 3 or parts[1] not in floors:
        return [f"{path}: '{parts[0]}' has rooms ({', '.join(floors)}), and this file is in none"]
    return [
        f"{path}: '{parts[0]}/{parts[1]}' must not include '{module}/{room}'"
        for module, room in _ROOM.findall(path.read_text())
        if module == parts[0] and room != parts[1] and floors.get(room, -1) >= floors[parts[1]]
    ]


def check(violations: Callable[[Path], list[str]]) -> int:
    """Prints what `violations` finds in the src/ folder beside this script's, or in the one named on the command line.

    Returns the exit status: 1 when there is something.
    """
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent / "src"
    found = violations(root)
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(check(violations))
