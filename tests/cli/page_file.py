# SPDX-License-Identifier: Apache-2.0
"""Reads what a page holds, without a browser: docs/formats/page.md in Python's standard library."""

from __future__ import annotations

import array
import base64
import json
import math
import re
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

BLOB = re.compile(r'<script type="text/plain" id="blob-([a-z0-9-]+)">([^<]*)</script>')
TYPES = {"number": "f", "integer": "i", "words": "I"}


class PageFile:
    """`content` is the object `page`, `rows` the table as dictionaries by column; empty cells are None."""

    def __init__(self, path: Path) -> None:
        found = BLOB.findall(path.read_text())
        self.blobs = {name: zlib.decompress(base64.b64decode(text, validate=True)) for name, text in found}
        self.content: dict[str, Any] = json.loads(self.blobs["page"])
        table = self.content["table"]
        columns = {one["name"]: self._column(one, table["rows"]) for one in table["columns"]}
        self.rows = [dict(zip(columns, cells)) for cells in zip(*columns.values())]

    def _column(self, column: dict[str, Any], count: int) -> list[Any]:
        if column["form"] == "constant":
            return [column["value"]] * count
        data = self.blobs[column["blob"]]
        words: list[str] = []
        if column["form"] == "words":
            (size,) = struct.unpack_from("<I", data)
            words, data = json.loads(data[4 : 4 + size]), data[4 + size :]
        assert sys.byteorder == "little"
        planes = [data[plane * count : (plane + 1) * count] for plane in range(4)]
        values = array.array(TYPES[column["form"]], bytes(byte for four in zip(*planes) for byte in four))
        if column["form"] == "words":
            return [words[value] or None for value in values]
        if column["form"] == "integer":
            return [None if value == -(2**31) else value for value in values]
        return [None if math.isnan(value) else value for value in values]
