# SPDX-License-Identifier: Apache-2.0
"""Pages with rows that no run made: a real page whose table is exchanged. docs/formats/page.md"""

from __future__ import annotations

import array
import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any

from page_file import BLOB

EMPTY_INTEGER = -(2**31)


def planes(values: array.array[Any]) -> bytes:
    data = values.tobytes()
    return b"".join(data[plane::4] for plane in range(4))


def words(cells: list[str]) -> bytes:
    known = {"": 0}
    indices = array.array("I", (known.setdefault(cell, len(known)) for cell in cells))
    texts = json.dumps(list(known)).encode()
    return struct.pack("<I", len(texts)) + texts + planes(indices)


def packed_column(cells: list[Any]) -> tuple[str, bytes]:
    """Form and bytes; None is an empty cell."""
    known = [cell for cell in cells if cell is not None]
    if all(isinstance(cell, str) for cell in known):
        return "words", words([cell or "" for cell in cells])
    if all(isinstance(cell, int) for cell in known):
        return "integer", planes(array.array("i", (EMPTY_INTEGER if cell is None else cell for cell in cells)))
    return "number", planes(array.array("f", (float("nan") if cell is None else cell for cell in cells)))


def blob(name: str, data: bytes) -> str:
    text = base64.b64encode(zlib.compress(data, 1)).decode()
    return f'<script type="text/plain" id="blob-{name}">{text}</script>\n'


def invent(template: Path, page: Path, columns: dict[str, list[Any]], **content: Any) -> Path:
    """Writes a page with the scripts of `template` and with these columns; `content` replaces keys of its object."""
    text = template.read_text()
    found = {match[1]: match for match in BLOB.finditer(text)}
    document = json.loads(zlib.decompress(base64.b64decode(found["page"][2])))
    blobs = ""
    described: list[dict[str, str]] = []
    for name, cells in columns.items():
        form, data = packed_column(cells)
        described.append({"name": name, "form": form, "blob": f"c{len(described)}"})
        blobs += blob(f"c{len(described) - 1}", data)
    (length,) = {len(cells) for cells in columns.values()}
    document |= content
    document["table"] = {"rows": length, "columns": described}
    begin = min(match.start() for match in found.values())
    end = max(match.end() for match in found.values())
    kept = found["licences"][0] + "\n"
    page.write_text(text[:begin] + blob("page", json.dumps(document).encode()) + blobs + kept + text[end:])
    return page
