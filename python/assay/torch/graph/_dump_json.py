# SPDX-License-Identifier: Apache-2.0
"""The dump JSON of ``dump_config_path``: from the file to a request.

    bytes --limits, JSON--> document --_dump_json_checks--> problems, or DumpRequest

Schema: docs/graph/dump-json.md. Importing this module does not import torch.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Optional

from assay.torch.graph._dump_json_checks import EXCEPTION_SCENES, OPERAND, check_dump_json
from assay.torch.graph._log import tell
from assay.torch.graph._plan import ModelEntry
from assay.torch.graph._problems import ConfigurationError, Problem, folder_problems
from assay.torch.graph._request import DumpRequest
from assay.torch.graph._steps import StepSet

__all__ = ["read_dump_json"]

MAX_FILE_BYTES = 10 << 20
MAX_NESTED_OBJECTS = 10
MAX_NESTED_ARRAYS = 10


def read_dump_json(path: str) -> Optional[DumpRequest]:
    """Reads the file of ``dump_config_path``.

    Returns:
        What it asks for, or None when it asks for nothing: no ``dump``, an empty one, or nothing that arms a dump.

    Raises:
        ConfigurationError: every error of the file; ``.first`` is the one that the vendor's run time reports.
    """
    path = os.path.abspath(path)
    document, repeated = _load(path)
    problems = check_dump_json(document) + repeated
    errors = [problem for problem in problems if problem.fatal]
    if errors:
        raise ConfigurationError(errors, path)
    dump = document.get("dump")
    if not dump or not _is_armed(dump):
        tell(
            f"{path} asks for no dump: it takes a dump_list with an item, dump_op_switch=on, dump_debug=on or a "
            "dump_scene."
        )
        return None
    return _request(dump, path, [f"{path}: {problem}" for problem in problems])


def _load(path: str) -> tuple[Any, list[Problem]]:
    """The parsed file, and a warning for each key that an object has twice."""
    try:
        size = os.path.getsize(path)
        if size > MAX_FILE_BYTES:
            reason = f"the file has {size} bytes, at most {MAX_FILE_BYTES} are read."
            raise ConfigurationError([Problem("EP0004", "(file)", reason)], path)
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([Problem("EP0004", "(file)", f"cannot be read: {error}.")], path) from None
    deep = _too_deep(text)
    if deep:
        raise ConfigurationError([Problem("EP0004", "(file)", deep)], path)
    repeated: list[Problem] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in pairs:
            if key in made:
                reason = "stands twice in one object; the last one counts."
                repeated.append(Problem("EP0003", key, reason, original=False, fatal=False))
            made[key] = value
        return made

    try:
        document = json.loads(text, object_pairs_hook=members, parse_constant=_no_constant, parse_int=_short_int)
        return document, repeated
    except ValueError as error:
        advice = "Write JSON: double quotes, no comment, no comma before a closing bracket."
        raise ConfigurationError([Problem("EP0004", "(file)", f"is not JSON: {error}.", advice)], path) from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _short_int(digits: str) -> Any:
    # int() refuses more than 4300 digits with a message about Python; no key takes a number anyway.
    return int(digits) if len(digits) < 20 else float("inf")


def _too_deep(text: str) -> str:
    """The limits of nesting, checked before the parser recurses; "" when kept."""
    objects = arrays = 0
    for token in re.finditer(r'"(?:[^"\\]+|\\.)*"?|[][{}]', text):
        mark = token.group()
        objects += (mark == "{") - (mark == "}")
        arrays += (mark == "[") - (mark == "]")
        if objects > MAX_NESTED_OBJECTS or arrays > MAX_NESTED_ARRAYS:
            kind = "objects" if objects > MAX_NESTED_OBJECTS else "arrays"
            line = text.count("\n", 0, token.start()) + 1
            return f"more than {MAX_NESTED_OBJECTS} {kind} inside each other at line {line}."
    return ""


def _is_armed(dump: Mapping[str, Any]) -> bool:
    return bool(
        dump.get("dump_list")
        or dump.get("dump_op_switch") == "on"
        or dump.get("dump_debug") == "on"
        or dump.get("dump_scene")
    )


def _request(dump: Mapping[str, Any], source: str, warnings: list[str]) -> DumpRequest:
    """The request of a checked ``dump`` object without errors."""
    overflow = dump.get("dump_debug") == "on"
    scene = "overflow" if overflow else str(dump.get("dump_scene", ""))
    exception = scene in EXCEPTION_SCENES
    operators = dump.get("dump_op_switch") == "on"
    items = [] if overflow or exception else list(dump.get("dump_list", []))
    entries = tuple(_entry(item) for item in items)
    if operators and not any(items):
        entries = (ModelEntry(),)  # operator dump without a list: every model as well
    path = os.path.abspath(dump["dump_path"]) if dump.get("dump_path") else ""
    if exception and path and folder_problems("dump_path", path, "EP0003"):
        path = ""
    return DumpRequest(
        path=path,
        mode="all" if overflow else str(dump.get("dump_mode", "output")),
        data=str(dump.get("dump_data", "tensor")),
        statistics=() if overflow or exception else tuple(dump.get("dump_stats", ())),
        steps=StepSet() if exception else StepSet.parse(dump.get("dump_step", "")),
        entries=entries,
        scene=scene,
        operators=operators,
        level=str(dump.get("dump_level", "all")),
        quant_dumpable=dump.get("quant_dumpable") in ("1", 1, True),
        warnings=tuple(warnings),
        source=source,
    )


def _entry(item: Mapping[str, Any]) -> ModelEntry:
    return ModelEntry(
        model_name=item.get("model_name") or None,
        layers=tuple(dict.fromkeys(item.get("layer", ()))),
        ranges=tuple((pair["begin"], pair["end"]) for pair in item.get("opname_range", ())),
        type_blacklist=_operands(item.get("optype_blacklist", ())),
        name_blacklist=_operands(item.get("opname_blacklist", ())),
        watcher_nodes=tuple(dict.fromkeys(item.get("watcher_nodes", ()))),
    )


def _operands(blacklist: Iterable[Mapping[str, Any]]) -> dict[str, frozenset[tuple[str, int]]]:
    found: dict[str, frozenset[tuple[str, int]]] = {}
    for entry in blacklist:
        matches = (OPERAND.fullmatch(position) for position in entry["pos"])
        operands = frozenset((match.group(1), int(match.group(2))) for match in matches if match)
        found[entry["name"]] = found.get(entry["name"], frozenset()) | operands
    return found
