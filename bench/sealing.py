# SPDX-License-Identifier: Apache-2.0
"""Puts the seals of a native run right after a program has changed its files on purpose.

A run that was changed by hand is damaged, and rightly so; a laboratory or a test that means its change to be what a
capture wrote calls `reseal`. What is sealed: docs/formats/native.md.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np

import assay
from bench import record_lines

__all__ = ["replace_payload", "reseal", "unseal", "write_manifest"]

_SEAL = ',\n "seal":'


def reseal(run: Path, files: Optional[Collection[str]] = None) -> None:
    """Writes ids, digests, counts and seals anew, so that the run is as a capture of this content would have left it.

    Runs of earlier versions, which have no id, stay as they are. Statistics of records are not touched.

    Args:
        run: the run's folder.
        files: names of the step files whose payloads were changed; None: any.
    """
    for path, rank in _ranks(run):
        manifest = json.loads(path.read_text())
        manifest.pop("seal", None)
        if "id" in manifest:
            lines = _with_id(rank / "records.jsonl", manifest["id"])
            known = {file["file"]: file for file in manifest.get("files", [])}
            manifest["files"] = [
                _step_file(file, manifest["id"])
                if files is None or file.name in files or file.name not in known
                else known[file.name]
                for file in sorted(rank.glob("*.safetensors"))
            ]
            manifest["files"].append(_entry(rank / "records.jsonl", lines.count("\n"), lines.encode()))
            manifest["steps"] = _steps(lines, manifest.get("steps", []))
        write_manifest(path, manifest)


def replace_payload(run: Path, record: dict[str, Any], content: bytes) -> None:
    """Puts other bytes under a record of a run of one rank, as if they had been captured: with their statistics."""
    rank = run / "rank0"
    file = rank / record["file"]
    whole = bytearray(file.read_bytes())
    whole[record["offset"] : record["offset"] + record["bytes"]] = content
    _replace(file, bytes(whole))
    place = f'"file":"{record["file"]}","offset":{record["offset"]},'
    lines = (rank / "records.jsonl").read_text().splitlines()
    numbers = [i for i, line in enumerate(lines) if place in line.replace(": ", ":").replace(", ", ",")]
    stats = _statistics(record, content)
    for i in numbers:
        lines[i] = json.dumps({**json.loads(lines[i]), "stats": stats})
    _replace(rank / "records.jsonl", "".join(line + "\n" for line in lines))
    reseal(run, [record["file"]])


def _statistics(record: dict[str, Any], content: bytes) -> dict[str, Any]:
    """As a capture has them, without the sketch."""
    import torch

    values = torch.frombuffer(bytearray(content), dtype=getattr(torch, record["dtype"])).double()
    finite = values[values.isfinite()]
    counts = {"nan": values.isnan(), "pos_inf": values.isposinf(), "neg_inf": values.isneginf()}
    return {
        "count": values.numel(),
        **{name: int(which.sum()) for name, which in counts.items()},
        "min": float(finite.min()),
        "max": float(finite.max()),
        "mean": float(finite.mean()),
        "l2": float(finite.norm()),
    }


def unseal(run: Path) -> None:
    """Takes id, digests and seals out: the run is as a version of before them would have left it."""
    for path, rank in _ranks(run):
        manifest = json.loads(path.read_text())
        for key in ("id", "files", "seal"):
            manifest.pop(key, None)
        _replace(path, json.dumps(manifest))
        _with_id(rank / "records.jsonl", None)
        for file in rank.glob("*.safetensors"):
            header, data = _parts(file)
            header.pop("__metadata__", None)
            _write_parts(file, header, data)


def write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    """Writes a manifest with the seal of its text; without one when it names no run."""
    text = json.dumps({key: value for key, value in manifest.items() if key != "seal"})
    if "id" in manifest:
        text = text[:-1]
        text += f'{_SEAL}"{_digest(text.encode())}"}}\n'
    _replace(path, text)


def _ranks(run: Path) -> list[tuple[Path, Path]]:
    """Pairs of a manifest and the folder of the rank that it tells of."""
    pairs = []
    for rank in sorted(run.glob("rank*")):
        own = rank / "manifest.json"
        pairs.append((own if own.exists() else run / "manifest.json", rank))
    return pairs


def _with_id(path: Path, run_id: Optional[str]) -> str:
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines[:]):
        if number == 0 or '"run":' in line:
            record = {key: value for key, value in json.loads(line).items() if key != "run"}
            lines[number] = json.dumps({"run": run_id, **record} if number == 0 and run_id else record)
    text = "".join(line + "\n" for line in lines)
    _replace(path, text)
    return text


def _step_file(path: Path, run_id: str) -> dict[str, Any]:
    header, data = _parts(path)
    said = {"run": run_id, "file": path.name, "digest": _digest(data)}
    if header.get("__metadata__") != said:
        _write_parts(path, {"__metadata__": said, **{k: v for k, v in header.items() if k != "__metadata__"}}, data)
    return _entry(path, sum(not name.startswith("__") for name in header), data)


def _parts(path: Path) -> tuple[dict[str, Any], bytes]:
    content = path.read_bytes()
    size = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:size]), content[size:]


def _write_parts(path: Path, header: dict[str, Any], data: bytes) -> None:
    """The header region keeps its size: records say where the payloads are."""
    size = path.stat().st_size - len(data) - 8
    text = json.dumps(header, separators=(",", ":")).encode().ljust(size)
    if len(text) != size:
        raise ValueError(f"{path}: the header region of {size} bytes is too small for {len(text)}")
    _replace(path, size.to_bytes(8, "little") + text + data)


def _replace(path: Path, content: Union[str, bytes]) -> None:
    """As a new file: the old one may have other names."""
    new = path.with_name(path.name + ".new")
    new.write_bytes(content.encode() if isinstance(content, str) else content)
    os.replace(new, path)


def _entry(path: Path, entries: int, digested: bytes) -> dict[str, Any]:
    return {"file": path.name, "bytes": path.stat().st_size, "entries": entries, "digest": _digest(digested)}


def _digest(content: bytes) -> str:
    return assay.digest(np.frombuffer(content, np.uint8))


def _steps(lines: str, said: list[dict[str, Any]]) -> list[dict[str, Any]]:
    counts: dict[int, Counter[str]] = {}
    for record in record_lines.whole(lines.splitlines(keepends=True)):
        if record["step"] >= 0:
            is_tensor = record.get("kind", "tensor") == "tensor"
            is_stored = is_tensor and "file" in record and "same_as" not in record
            size = record["bytes"] if is_stored else 0
            counts.setdefault(record["step"], Counter()).update(tensors=is_tensor, records=1, bytes=size)
    rest = {step["step"]: step for step in said}
    return [
        {"step": step, "wall_ms": 0.0, "added_ms": 0.0, **rest.get(step, {}), **counts[step]} for step in sorted(counts)
    ]
