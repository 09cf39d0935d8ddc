# SPDX-License-Identifier: Apache-2.0
"""Every way to damage a native run in one place: a line, a file, an entry of the manifest, a payload.

For the test that tries them all on a small run, and for the campaign that draws some on larger ones.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from bench import record_lines

__all__ = [
    "Damaged", "changed_entries", "changed_files", "changed_lines", "changed_payloads", "content_of", "copied",
    "overwrite", "payloads",
]  # fmt: skip

Change = Callable[[Path], None]


@dataclass(frozen=True)
class Damaged:
    what: str
    file: str  # below the run's folder
    change: Change  # of a copy of the run
    of_payload: bool = False  # seen only by those who read the payload


def copied(run: Path, target: Path, changed: str) -> Path:
    """A copy in links; the file that will be changed is one of its own."""
    shutil.rmtree(target, ignore_errors=True)
    (target / "rank0").mkdir(parents=True)
    for path in run.rglob("*"):
        if path.is_file():
            name = path.relative_to(run)
            make: Callable[[Path, Path], Any] = shutil.copyfile if str(name) == changed else os.link
            make(path, target / name)
    return target


def put(name: str, content: bytes) -> Change:
    return lambda run: (run / name).write_bytes(content) and None


def changed_lines(run: Path, other: Path) -> Iterator[Damaged]:
    name = "rank0/records.jsonl"
    lines = (run / name).read_bytes().splitlines(keepends=True)
    others = (other / name).read_bytes().splitlines(keepends=True)
    for i, line in enumerate(lines):
        rest = lines[i + 1 :]
        following = lines[i + 1] if rest else lines[0]
        variants = {
            "removed": lines[:i] + rest,
            "cut": [*lines[:i], line[: len(line) // 2] + b"\n", *rest],
            "the last, cut": [*lines[:i], line[: len(line) // 2]],
            "the last": lines[: i + 1],
            "exchanged with its neighbour": [*lines[:i], following, line, *rest[1:]],
            "exchanged with that of another run": [*lines[:i], others[i % len(others)], *rest],
            "twice": [*lines[:i], line, line, *rest],
            "of nothing": [*lines[:i], emptied(line), *rest],
        }
        for what, variant in variants.items():
            if variant != lines:
                yield Damaged(f"line {i} {what}", name, put(name, b"".join(variant)))


def emptied(line: bytes) -> bytes:
    record = json.loads(line)
    return json.dumps({**record, "shape": [0], "bytes": 0}).encode() + b"\n" if "bytes" in record else line


def changed_files(run: Path, other: Path) -> Iterator[Damaged]:
    names = [f"rank0/{path.name}" for path in sorted((run / "rank0").glob("*.safetensors"))]
    names += ["rank0/records.jsonl", "manifest.json"]
    for i, name in enumerate(names):
        content = (run / name).read_bytes()
        neighbour = (run / names[i - 1]).read_bytes()
        foreign = (other / name).read_bytes() if (other / name).exists() else b""
        yield Damaged(f"{name} removed", name, lambda folder, name=name: (folder / name).unlink())
        yield Damaged(f"{name} empty", name, put(name, b""))
        yield Damaged(f"{name} cut", name, put(name, content[: len(content) // 2]))
        yield Damaged(f"{name} is {names[i - 1]}", name, put(name, neighbour))
        yield Damaged(f"{name} of another run", name, put(name, foreign))
        yield Damaged(f"{name} longer", name, put(name, content + content[-64:]))
        if name.endswith(".safetensors"):
            copy_name = name.replace(".safetensors", "-7.safetensors")
            yield Damaged(f"{name} twice", copy_name, put(copy_name, content))


def entries_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    keys: Any = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield (*path, key)
        yield from entries_of(value[key], (*path, key))


def changed_entries(run: Path, other: Path) -> Iterator[Damaged]:
    """Every entry of the manifest, at any depth: removed, emptied, doubled, that of another run."""
    manifest = json.loads((run / "manifest.json").read_text())
    foreign = json.loads((other / "manifest.json").read_text())
    for path in entries_of(manifest):
        for what in ("removed", "nothing", "twice", "of another run"):
            changed = copy.deepcopy(manifest)
            parent = parent_of(changed, path)
            if what == "removed":
                del parent[path[-1]]
            elif what == "nothing":
                parent[path[-1]] = type(parent[path[-1]])() if parent[path[-1]] is not None else 0
            elif what == "twice" and isinstance(parent, list):
                parent.append(parent[path[-1]])
            elif what == "of another run" and has(foreign, path):
                parent[path[-1]] = parent_of(foreign, path)[path[-1]]
            if changed != manifest:
                name = "manifest.json"
                text = json.dumps(changed).encode()
                yield Damaged(f"{'.'.join(map(str, path))} {what}", name, put(name, text))


def parent_of(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        value = value[key]
    return value


def has(value: Any, path: tuple[Any, ...]) -> bool:
    return path in set(entries_of(value))


def payloads(run: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """One record of each, by file and offset."""
    return {(r["file"], r["offset"]): r for r in reversed(_stored(run))}


def overwrite(run: Path, record: dict[str, Any], content: bytes) -> None:
    with open(run / "rank0" / record["file"], "r+b") as file:
        file.seek(record["offset"])
        file.write(content)


def content_of(run: Path, record: dict[str, Any]) -> bytes:
    with open(run / "rank0" / record["file"], "rb") as file:
        file.seek(record["offset"])
        return file.read(record["bytes"])


def changed_payloads(run: Path, other: Path) -> Iterator[Damaged]:
    """Each distinct payload that is not all zeros: zeroed, and with the bytes that another run has for its place."""
    place = ("step", "node", "role", "slot")
    theirs = {tuple(r.get(key) for key in place): r for r in _stored(other)}
    for record in payloads(run).values():
        content = content_of(run, record)
        name = f"rank0/{record['file']}"
        twin = theirs.get(tuple(record.get(key) for key in place))
        variants = {"zeroed": bytes(len(content)), "exchanged": content_of(other, twin) if twin else content}
        for what, variant in variants.items():
            if variant != content and len(variant) == len(content):
                yield Damaged(f"{record['node']} {record['role']} {what}", name, _overwriting(record, variant), True)


def _overwriting(record: dict[str, Any], content: bytes) -> Change:
    return lambda run: overwrite(run, record, content)


def _stored(run: Path) -> list[dict[str, Any]]:
    return [r for r in record_lines.read(run / "rank0" / "records.jsonl") if "file" in r]
