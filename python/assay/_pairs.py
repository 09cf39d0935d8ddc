# SPDX-License-Identifier: Apache-2.0
"""What the user says corresponds (`map`, `token_map`), as the native code takes it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

PathLike = Union[str, "os.PathLike[str]"]
TokenMap = Union[Mapping[int, int], Iterable[tuple[int, int]]]


def json_text(value: Union[PathLike, Sequence[Mapping[str, Any]], None]) -> str:
    """The content of a JSON file, or of a list as if it stood in one; ``""`` for None."""
    if value is None:
        return ""
    if isinstance(value, (str, os.PathLike)):
        with open(value, encoding="utf-8") as file:
            return file.read()
    return json.dumps(list(value))


def token_pairs(token_map: TokenMap) -> list[tuple[int, int]]:
    """(step of golden, step of mine), in the user's order."""
    pairs = token_map.items() if isinstance(token_map, Mapping) else token_map
    return [(int(golden), int(mine)) for golden, mine in pairs]
