# SPDX-License-Identifier: Apache-2.0
"""The folder of a twin.   Format: docs/formats/twin.md

It appears as a whole: written beside its place, then renamed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAME = "twin.json"
WEIGHTS = "model.safetensors"
GGUF = "model.gguf"
FORMAT = "assay twin"
VERSION = 1


@contextmanager
def appearing(output: Path) -> Iterator[Path]:
    """A folder to write into, which becomes `output` when nothing failed, and is gone otherwise.

    Raises:
        FileExistsError: there is something at `output` already.
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise FileExistsError(f"{output} is there already; give another folder with -o")
    new_parents = [parent for parent in output.parents if not parent.exists()]
    output.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    try:
        yield folder
        for path, mode in ((folder, 0o777), *((file, 0o666) for file in folder.iterdir())):
            path.chmod(mode & ~_umask())
        os.replace(folder, output)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for parent in new_parents:  # innermost first; with something in it, it stays
            if not any(parent.iterdir()):
                parent.rmdir()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write(folder: Path, values: dict[str, Any]) -> None:
    """Writes twin.json, with the digest of the weights beside it."""
    all_values = {"format": FORMAT, "version": VERSION, **values, "weights": _weights(folder)}
    (folder / NAME).write_text(_text(all_values), encoding="utf-8")


def _text(values: dict[str, Any]) -> str:
    """JSON with one line for each prompt and tie."""
    lines = []
    for name, value in values.items():
        if isinstance(value, list) and value:
            inner = ",\n".join("    " + json.dumps(entry) for entry in value)
            lines.append(f"  {json.dumps(name)}: [\n{inner}\n  ]")
        else:
            lines.append(f"  {json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _weights(folder: Path) -> dict[str, str]:
    return {"file": WEIGHTS, "sha256": digest(folder / WEIGHTS)}


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            found.update(block)
    return found.hexdigest()


def read(folder: Path) -> dict[str, Any]:
    """The values of twin.json.

    Raises:
        ValueError, OSError: it is no twin, one of a later version, or its weights were changed.
    """
    path = folder / NAME
    if not path.exists():
        raise FileNotFoundError(f"{folder} has no {NAME}, so it is no twin")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as why:
        raise ValueError(f"{path} is not JSON: {why}") from None
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise ValueError(f"{path} is not the description of a twin")
    if values.get("version") != VERSION:
        raise ValueError(f"{path} is of version {values.get('version')}; this Assay reads version {VERSION}")
    weights = folder / WEIGHTS
    if not weights.exists():
        raise FileNotFoundError(f"{folder} has no {WEIGHTS}")
    if digest(weights) != values["weights"]["sha256"]:
        raise ValueError(f"{weights} is not the file that {NAME} describes: its digest is another")
    return values
