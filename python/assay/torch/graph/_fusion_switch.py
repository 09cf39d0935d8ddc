# SPDX-License-Identifier: Apache-2.0
"""The fusion switch file: which of the engine's fusion passes run.

    {"Switch": {"GraphFusion": {"ALL": "off", "SoftmaxFusionPass": "on"}, "UBFusion": {"ALL": "off"}}}

The passes are the vendor's; here only their sum counts: a file that turns both groups off asks for the unfused run.
The older form has one ``pass:on`` or ``pass:off`` a line. Importing this module does not import torch.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["FusionSwitch", "FusionSwitchError"]

GROUPS = ("GraphFusion", "UBFusion")
_ALL = "ALL"
_EXAMPLE = '{"Switch": {"GraphFusion": {"ALL": "off"}, "UBFusion": {"ALL": "off"}}}'
_LINE = re.compile(r"\s*([\w.-]+)\s*:\s*(on|off)\s*", re.ASCII)
_MAX_BYTES = 10 << 20


class FusionSwitchError(ValueError):
    """A file that is no fusion switch.

    Attributes:
        path: the file.
        problems: every mistake as "place: reason".
    """

    def __init__(self, path: str, problems: list[str]):
        self.path = path
        self.problems = problems
        super().__init__(f"{path}: {'; '.join(problems)}. A file that turns fusion off: {_EXAMPLE}")


@dataclass(frozen=True)
class FusionSwitch:
    """What a file says of each group: names of passes, and ``"ALL"``, with True for on."""

    groups: Mapping[str, Mapping[str, bool]]

    @classmethod
    def load(cls, path: str) -> FusionSwitch:
        """Reads and validates a file.

        Raises:
            OSError: it cannot be read.
            FusionSwitchError: it is none; all mistakes at once.

        Example:
            >>> FusionSwitch.load("fusion_switch.json").turns_fusion_off  # doctest: +SKIP
            True
        """
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise FusionSwitchError(path, ["the file has more than 10 MiB"])
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise FusionSwitchError(path, [f"byte {error.start}: no UTF-8"]) from None
        lines = [line for line in text.splitlines() if line.strip()]
        old_form = [_LINE.fullmatch(line) for line in lines]
        if lines and all(old_form):
            return cls({GROUPS[0]: {match[1]: match[2] == "on" for match in old_form if match}})
        return cls(_read_json(path, text))

    def is_off(self, group: str) -> bool:
        """Whether the group is off as a whole; single passes of it may be on all the same."""
        return not self.groups.get(group, {}).get(_ALL, True)

    def passes_on(self, group: str) -> list[str]:
        """Passes that are switched on by name."""
        return [name for name, is_on in self.groups.get(group, {}).items() if is_on and name != _ALL]

    def passes_off(self, group: str) -> list[str]:
        """Passes that are switched off by name."""
        return [name for name, is_on in self.groups.get(group, {}).items() if not is_on and name != _ALL]

    @property
    def turns_fusion_off(self) -> bool:
        """Both groups are off as a whole: the run that a fused one is compared with."""
        return all(self.is_off(group) for group in GROUPS)


class _Members(dict[str, Any]):
    """A JSON object that remembers the names it has twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        names = [name for name, _ in pairs]
        self.repeated = sorted({name for name in names if names.count(name) > 1}) if len(self) < len(names) else []


def _read_json(path: str, text: str) -> dict[str, dict[str, bool]]:
    try:
        document = json.loads(text, object_pairs_hook=_Members)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise FusionSwitchError(path, [f"{place}: no JSON, {error.msg[:1].lower()}{error.msg[1:]}"]) from None
    except RecursionError:
        raise FusionSwitchError(path, ["objects are nested too deep"]) from None
    problems: list[str] = []
    groups = _read_groups(document, problems)
    if problems:
        raise FusionSwitchError(path, problems)
    return groups


def _read_groups(document: Any, problems: list[str]) -> dict[str, dict[str, bool]]:
    if not isinstance(document, _Members):
        problems.append(f"the file holds {_kind(document)} where an object is expected")
        return {}
    switch = document.get("Switch")
    if not isinstance(switch, _Members):
        found = f"it is {_kind(switch)}" if "Switch" in document else _missing("Switch", list(document))
        problems.append(f"Switch: {found} where an object is expected")
        return {}
    _check_repeated(document, "", problems)
    _check_repeated(switch, "Switch", problems)
    groups: dict[str, dict[str, bool]] = {}
    for group, passes in switch.items():
        place = f"Switch.{group}"
        if group not in GROUPS:
            near = difflib.get_close_matches(group, GROUPS, 1, 0.5)
            problems.append(f"{place}: no group of this name" + (f", {near[0]} is meant" if near else ""))
        elif not isinstance(passes, _Members):
            problems.append(f"{place}: it is {_kind(passes)} where an object is expected")
        else:
            _check_repeated(passes, place, problems)
            groups[group] = {}
            for name, value in passes.items():
                if value not in ("on", "off"):
                    problems.append(f'{place}.{name}: {json.dumps(value)[:60]} is neither "on" nor "off"')
                groups[group][name] = value == "on"
    return groups


def _missing(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, 1, 0.5)
    return "it is missing" + (f" ({near[0]} is there)" if near else "")


def _check_repeated(members: _Members, place: str, problems: list[str]) -> None:
    for name in members.repeated:
        problems.append(f"{place}.{name}".lstrip(".") + ": it stands there twice")


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
