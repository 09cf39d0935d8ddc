# SPDX-License-Identifier: Apache-2.0
"""The checks of a dump JSON: types, values, constraints, in the order of the vendor's adump and with its codes.

All of them run: an error does not hide the next. What adump would skip and this backend does not use is a warning.
Table of checks, combinations: docs/graph/dump-json.md. Importing this module does not import torch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Optional

from assay.torch.graph._problems import Problem, folder_problems
from assay.torch.graph._steps import StepSet

__all__ = ["EXCEPTION_SCENES", "OPERAND", "check_dump_json"]

MAX_PATH_CHARACTERS = 512
MAX_BLACKLIST_ENTRIES = 100

_ON_OFF = ("on", "off")
EXCEPTION_SCENES = ("lite_exception", "aic_err_brief_dump", "aic_err_norm_dump", "aic_err_detail_dump")
_STATISTICS = ("Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf", "L2norm")
_KERNEL_DATA = ("all", "printf", "tensor", "assert", "timestamp")
_STRINGS = (
    "dump_path",
    "dump_mode",
    "dump_op_switch",
    "dump_debug",
    "dump_scene",
    "dump_data",
    "dump_step",
    "dump_level",
    "dump_kernel_data",
)
# In the order in which values are checked.
_ALLOWED: Mapping[str, tuple[str, ...]] = {
    "dump_mode": ("input", "output", "all"),
    "dump_data": ("tensor", "stats"),
    "dump_op_switch": _ON_OFF,
    "dump_level": ("op", "kernel", "all"),
    "dump_debug": _ON_OFF,
    "dump_scene": (*EXCEPTION_SCENES, "watcher"),
}
_DEFAULTS: Mapping[str, str] = {
    "dump_mode": "output",
    "dump_data": "tensor",
    "dump_op_switch": "off",
    "dump_level": "all",
    "dump_debug": "off",
    "dump_scene": "",
}
_ITEM_KEYS = ("model_name", "layer", "watcher_nodes", "optype_blacklist", "opname_blacklist", "opname_range")
# adump ignores quant_dumpable; the vendor's front end writes it.
_KNOWN = (*_STRINGS, "dump_stats", "dump_list", "quant_dumpable")
OPERAND = re.compile(r"(input|output)([0-9]{1,6})")
_IPV4 = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3}):")


def check_dump_json(document: Any) -> list[Problem]:
    """Every error and warning of a parsed dump JSON, in the order in which the vendor's run time checks."""
    if not isinstance(document, dict):
        reason = f"the root is {_kind(document)}, not an object."
        return [Problem("EP0001", "(root)", reason, 'Write {"dump": {...}}.', original=False)]
    dump = document.get("dump")
    if "dump" not in document or dump == {}:
        return []
    if not isinstance(dump, dict):
        return [Problem("EP0001", "dump", f"is {_kind(dump)}, not an object.")]
    return _Checker(dump).problems()


class _Checker:
    def __init__(self, dump: dict[str, Any]) -> None:
        self._dump = dump
        self._found: list[Problem] = []
        self._wrong: set[str] = set()  # items of a wrong type or value: later checks leave them alone
        self._original = True  # False where the vendor's run time has stopped checking
        self._fatal = True

    def problems(self) -> list[Problem]:
        self._check_types()
        self._check_values()
        self._check_constraints()
        self._warn_unknown_keys()
        return self._found

    def _add(self, code: str, item: str, reason: str, advice: str = "", fatal: Optional[bool] = None) -> None:
        fatal = self._fatal if fatal is None else fatal
        self._found.append(Problem(code, item, reason, advice, self._original and fatal, fatal))
        self._wrong.add(item)

    # -- types ---------------------------------------------------------------------------------------------------

    def _check_types(self) -> None:
        for key in _STRINGS:
            if key in self._dump:
                self._is_string(self._dump[key], key)
        if "dump_stats" in self._dump:
            self._is_strings(self._dump["dump_stats"], "dump_stats")
        if "dump_list" in self._dump and self._is_array(self._dump["dump_list"], "dump_list"):
            for index, item in enumerate(self._dump["dump_list"]):
                place = f"dump_list[{index}]"
                if self._is_object(item, place):
                    self._check_item_types(item, place)

    def _check_item_types(self, item: dict[str, Any], place: str) -> None:
        if "model_name" in item:
            self._is_string(item["model_name"], f"{place}.model_name")
        for key in ("layer", "watcher_nodes"):
            if key in item:
                self._is_strings(item[key], f"{place}.{key}")
        for key in ("optype_blacklist", "opname_blacklist"):
            self._check_objects(item, place, key, name=self._is_string, pos=self._is_strings)
        self._check_objects(item, place, "opname_range", begin=self._is_string, end=self._is_string)

    def _check_objects(self, item: dict[str, Any], place: str, key: str, **fields: Any) -> None:
        if key not in item or not self._is_array(item[key], f"{place}.{key}"):
            return
        for index, entry in enumerate(item[key]):
            where = f"{place}.{key}[{index}]"
            if not self._is_object(entry, where):
                continue
            for field, check in fields.items():
                if field in entry:
                    check(entry[field], f"{where}.{field}")
                else:
                    self._add("EP0001", f"{where}.{field}", "is missing.")

    def _is_string(self, value: Any, place: str) -> bool:
        return self._is(value, place, str, "a string")

    def _is_array(self, value: Any, place: str) -> bool:
        return self._is(value, place, list, "an array")

    def _is_object(self, value: Any, place: str) -> bool:
        return self._is(value, place, dict, "an object")

    def _is(self, value: Any, place: str, wanted: type, name: str) -> bool:
        if isinstance(value, wanted):
            return True
        self._add("EP0001", place, f"is {_kind(value)}, not {name}.")
        return False

    def _is_strings(self, value: Any, place: str) -> bool:
        if not self._is(value, place, list, "an array of strings"):
            return False
        fine = [self._is_string(entry, f"{place}[{index}]") for index, entry in enumerate(value)]
        if not all(fine):
            self._wrong.add(place)
        return all(fine)

    # -- values --------------------------------------------------------------------------------------------------

    def _check_values(self) -> None:
        for key, allowed in _ALLOWED.items():
            if self._has(key):
                self._is_one_of(self._dump[key], key, allowed)
        if self._has("dump_kernel_data"):
            for token in self._dump["dump_kernel_data"].split(","):
                self._is_one_of(token, "dump_kernel_data", _KERNEL_DATA)
        if self._has("dump_stats"):
            for index, name in enumerate(self._dump["dump_stats"]):
                self._is_one_of(name, f"dump_stats[{index}]", _STATISTICS)

    def _is_one_of(self, value: str, place: str, allowed: tuple[str, ...]) -> None:
        advice = f"Write one of {'/'.join(allowed)}."
        if value == "":
            self._add("EP0001", place, "is empty.", advice)
        elif value not in allowed:
            self._add("EP0002", place, f"{_shown(value)} is not allowed.", advice)

    # -- constraints ---------------------------------------------------------------------------------------------

    def _check_constraints(self) -> None:
        scene = self._value("dump_scene")
        exception = scene in EXCEPTION_SCENES
        debug = self._value("dump_debug") == "on"
        if scene:
            self._check_scene(scene)
        if exception:
            # The run time looks at nothing else, and neither does this backend: what is wrong is only named.
            self._original = self._fatal = False
        if not exception or "dump_path" in self._dump:
            self._check_path()
        if debug and not exception:
            if self._value("dump_op_switch") == "on" and scene != "watcher":
                self._conflict("dump_debug", "on", "dump_op_switch=on")
            self._original = False
        self._check_step()
        if debug:
            self._fatal = False
        if self._has("dump_list"):
            self._check_list(scene, debug)
        if self._has("dump_stats"):
            self._check_statistics()
        if scene == "watcher" and not self._dump.get("dump_list"):
            self._original = False
            self._add("EP0001", "dump_list", "is missing or empty: nothing is watched.", fatal=False)
        self._warn_what_ge_refuses(scene, debug)
        self._warn_what_has_no_counterpart()

    def _conflict(self, place: str, value: str, other: str) -> None:
        self._add("EP0005", place, f"{_shown(value)} cannot be combined with {other}.", "Leave one of them out.")

    def _check_scene(self, scene: str) -> None:
        if self._value("dump_debug") == "on":
            self._conflict("dump_debug", "on", f"dump_scene={scene}")
        if self._value("dump_op_switch") == "on":
            self._conflict("dump_op_switch", "on", f"dump_scene={scene}")
        if scene == "watcher" and self._value("dump_mode") not in ("output", None):
            self._conflict("dump_mode", str(self._value("dump_mode")), "dump_scene=watcher, which stores outputs only")

    def _check_path(self) -> None:
        if "dump_path" not in self._dump:
            self._add("EP0001", "dump_path", "is missing.", "Give the folder for the dump.")
            return
        if not self._has("dump_path"):
            return
        path = self._dump["dump_path"]
        if path == "":
            self._add("EP0001", "dump_path", "is empty.", "Give the folder for the dump.")
        elif len(path) > MAX_PATH_CHARACTERS:
            reason = f"has {len(path)} characters, at most {MAX_PATH_CHARACTERS} are allowed."
            self._add("EP0003", "dump_path", reason)
        elif _is_remote(path):
            self._check_remote_path(path)
        elif "\0" in path:
            self._add("EP0003", "dump_path", "holds a NUL character.")
        else:
            for problem in folder_problems("dump_path", os.path.abspath(path), "EP0003"):
                self._add(problem.code, problem.item, problem.reason, problem.advice)

    def _check_remote_path(self, path: str) -> None:
        rest = path.partition(":")[2]
        if not rest or rest.endswith(":") or not rest.isprintable():
            self._add("EP0003", "dump_path", f"{_shown(path)}: the part behind the address is no path.")
            return
        was, self._original = self._original, False
        advice = "Give a folder of this machine."
        self._add("EP0003", "dump_path", f"{_shown(path)} is on another machine, which is not supported.", advice)
        self._original = was

    def _check_step(self) -> None:
        if not self._has("dump_step"):
            return
        try:
            StepSet.parse(self._dump["dump_step"])
        except ValueError as error:
            advice = "Write numbers and ranges joined by bars, such as 0|2-5."
            self._add("EP0003", "dump_step", f"{_shown(self._dump['dump_step'])}: {error}", advice)

    def _check_statistics(self) -> None:
        if not self._dump["dump_stats"]:
            self._add("EP0001", "dump_stats", "is empty.", f"Name some of {'/'.join(_STATISTICS)}.")
        if self._value("dump_data") == "tensor":
            self._add("EP0005", "dump_stats", "needs dump_data=stats.", "Set it, or leave dump_stats out.")

    def _check_list(self, scene: Optional[str], debug: bool) -> None:
        items = self._dump["dump_list"]
        if items and (debug or scene in EXCEPTION_SCENES):
            other = "dump_debug=on" if debug else f"dump_scene={scene}"
            self._add("EP0005", "dump_list", f"is ignored beside {other}.", fatal=False)
        for index, item in enumerate(items):
            place = f"dump_list[{index}]"
            if place not in self._wrong:
                self._check_item(item, place, scene)

    def _check_item(self, item: dict[str, Any], place: str, scene: Optional[str]) -> None:
        def fine(key: str) -> bool:
            return key in item and f"{place}.{key}" not in self._wrong

        if self._value("dump_op_switch") == "off":
            if fine("model_name") and item["model_name"] == "":
                self._add("EP0001", f"{place}.model_name", "is empty.", "Leave it out for every model.")
            if fine("layer") and item["layer"] == []:
                self._add("EP0001", f"{place}.layer", "is empty.", "Leave it out for the whole model.")
        nodes = f"{place}.watcher_nodes"
        if scene == "watcher":
            if "watcher_nodes" not in item or item["watcher_nodes"] == []:
                what = "is empty." if "watcher_nodes" in item else "is missing."
                self._add("EP0001", nodes, what, "Name the operators whose outputs are watched.")
            if "model_name" in item:
                self._add("EP0005", f"{place}.model_name", "cannot be combined with dump_scene=watcher.")
        elif fine("watcher_nodes") and item["watcher_nodes"]:
            self._add("EP0005", nodes, "needs dump_scene=watcher.")
        self._check_blacklists(item, place)
        self._check_ranges(item, place)

    def _check_blacklists(self, item: dict[str, Any], place: str) -> None:
        for key in ("optype_blacklist", "opname_blacklist"):
            where = f"{place}.{key}"
            if key not in item or where in self._wrong or not item[key]:
                continue
            if len(item[key]) > MAX_BLACKLIST_ENTRIES:
                reason = f"has {len(item[key])} entries, at most {MAX_BLACKLIST_ENTRIES} are allowed."
                self._add("EP0003", where, reason)
            self._needs_level_op(where)
            for index, entry in enumerate(item[key]):
                pos = f"{where}[{index}].pos"
                if f"{where}[{index}]" not in self._wrong and pos not in self._wrong:
                    self._warn_positions(entry.get("pos", ()), pos)

    def _warn_positions(self, positions: Iterable[str], place: str) -> None:
        for index, position in enumerate(positions):
            if not OPERAND.fullmatch(position):
                reason = f"{_shown(position)} is no operand and is ignored."
                self._add("EP0003", f"{place}[{index}]", reason, "Write input0, output1, ...", fatal=False)

    def _check_ranges(self, item: dict[str, Any], place: str) -> None:
        where = f"{place}.opname_range"
        if "opname_range" not in item or where in self._wrong or not item["opname_range"]:
            return
        self._needs_level_op(where)
        if f"{place}.model_name" not in self._wrong and not item.get("model_name"):
            self._add("EP0001", f"{place}.model_name", "is missing or empty, and opname_range needs it.")
        for index, pair in enumerate(item["opname_range"]):
            for end in ("begin", "end"):
                here = f"{where}[{index}].{end}"
                if isinstance(pair, dict) and here not in self._wrong and pair.get(end) == "":
                    self._add("EP0003", here, "is empty.", "Name an operator.")

    def _needs_level_op(self, place: str) -> None:
        if self._value("dump_level") not in ("op", None):
            self._add("EP0005", place, "needs dump_level=op.", "Set it.")

    # -- warnings ------------------------------------------------------------------------------------------------

    def _warn_what_ge_refuses(self, scene: Optional[str], debug: bool) -> None:
        self._original = self._fatal = False
        for low, high in _equal_ranges(self._dump.get("dump_step")):
            self._add("EP0003", "dump_step", f"GE refuses the range {low}-{high}, whose ends are equal.")
        items = self._dump.get("dump_list")
        if not scene and not debug and self._value("dump_op_switch") == "off" and isinstance(items, list):
            if items and all(item == {} for item in items):
                self._add("EP0001", "dump_list", "GE takes a list of empty items for an empty one and dumps nothing.")
            elif not items:
                self._add("EP0001", "dump_list", "is empty while dump_op_switch is off: GE refuses that.")

    def _warn_what_has_no_counterpart(self) -> None:
        if self._value("dump_level") == "kernel":
            reason = "operators have no kernels of their own here; they are dumped as with 'op'."
            self._add("EP0003", "dump_level", reason)
        if self._has("dump_kernel_data"):
            self._add("EP0003", "dump_kernel_data", "kernels print nothing here; it is not used.")

    def _warn_unknown_keys(self) -> None:
        self._fatal = self._original = False
        places: list[tuple[str, Mapping[str, Any], tuple[str, ...]]] = [("", self._dump, _KNOWN)]
        if isinstance(self._dump.get("dump_list"), list):
            for index, item in enumerate(self._dump["dump_list"]):
                if isinstance(item, dict):
                    places.append((f"dump_list[{index}].", item, _ITEM_KEYS))
        for prefix, mapping, known in places:
            for key in mapping:
                if key not in known:
                    near = get_close_matches(key, known, n=1)
                    hint = f"Did you mean {near[0]}?" if near else ""
                    self._add("EP0003", prefix + key, "is an unknown key and is ignored.", hint)

    def _has(self, key: str) -> bool:
        return key in self._dump and key not in self._wrong

    def _value(self, key: str) -> Optional[str]:
        """The value or its default; None when it is wrong, so that nothing is concluded from it."""
        if key in self._wrong:
            return None
        return str(self._dump.get(key, _DEFAULTS[key]))


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    for kind, name in ((dict, "an object"), (list, "an array"), (str, "a string")):
        if isinstance(value, kind):
            return name
    return "a number"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 100 else text[:97] + "...")


def _is_remote(path: str) -> bool:
    address = _IPV4.match(path)
    return address is not None and all(int(octet) <= 255 for octet in address.groups())


def _equal_ranges(text: Any) -> list[tuple[str, str]]:
    if not isinstance(text, str):
        return []
    pairs = (item.split("-") for item in text.split("|"))
    return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2 and pair[0] == pair[1] and pair[0]]
