#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when files that are compiled together would mean something else by a name than each of them alone.

The files of a UNIT (cmake/add_module.cmake) are one translation unit. What one of them declares in an anonymous
namespace is seen by those after it: a second declaration of the name may become an overload, and a name that a header
declares is hidden. The compiler accepts both when types allow.

    tools/check_units.py [SOURCE_ROOT]
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from check_includes import check

# Behind a comment that ends a namespace is what tells an anonymous one.
_UNREAD = re.compile(r'R"(\w*)\((?:.|\n)*?\)\1"|"(?:\\.|[^"\\\n])*"|//(?! namespace$)[^\n]*', re.MULTILINE)
_SKIPPED = re.compile(r"(?:TEST|RC_|TYPED_|INSTANTIATE_|MATCHER|extern |friend |namespace |#)")
_TYPE = re.compile(r"(?:template\s*<.*>\s*)?(?:struct|class|enum class|enum|union) (?:alignas\(\w+\) )?(\w+)")
_ALIAS = re.compile(r"using (\w+) =|typedef .*?\b(\w+)(?: __attribute__.*)?;")
_VARIABLE = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)*(?:=|\{|;)")
_FUNCTION = re.compile(r"([A-Za-z_]\w*)\(")


def _declared(line: str) -> str:
    """The name that a line at the left margin declares, or ""."""
    if not line or line[0] in " \t}/):" or _SKIPPED.match(line):
        return ""
    if line.startswith("using ") and "=" not in line:
        return ""
    for pattern in (_TYPE, _ALIAS):
        found = pattern.match(line)
        if found:
            return next(name for name in found.groups() if name)
    equals, bracket = line.find("="), line.find("(")
    if equals >= 0 and (bracket < 0 or equals < bracket):
        found = _VARIABLE.search(line)
        return found[1] if found else ""
    found = _FUNCTION.search(line)
    if found:
        return "" if line.startswith("template") or "::" + found[1] in line else found[1]
    found = _VARIABLE.search(line)
    return found[1] if found else ""


def _names(text: str, anonymous: bool) -> set[str]:
    """Names declared at the left margin (sources are formatted), inside or outside anonymous namespaces."""
    inside = False
    names = set()
    for line in text.splitlines():
        if line == "namespace {":
            inside = True
        elif line == "}  // namespace":
            inside = False
        elif inside == anonymous or (anonymous and line.startswith("static ")):
            names.add(_declared(line))
    return names - {""}


def _units(source_root: Path) -> list[list[Path]]:
    """The lists behind UNIT in every CMakeLists.txt below a folder."""
    found = []
    for path in sorted(source_root.rglob("CMakeLists.txt")):
        for call in re.findall(r"assay_add_(?:module|sources|unit_test)\(([^)]*)\)", path.read_text()):
            for part in re.split(r"\bUNIT\b", call)[1:]:
                words = re.split(r"\b(?:DEPENDS|LIBRARIES)\b", part)[0].split()
                files = [path.parent / word for word in words if (path.parent / word).is_file()]
                if len(files) > 1:
                    found.append(files)
    return found


def _text(path: Path) -> str:
    """A source without its comments and what stands in quotes."""
    return _UNREAD.sub('""', path.read_text())


def violations(source_root: Path) -> list[str]:
    """Returns one line a name."""
    in_headers: dict[tuple[Path, str], Path] = {}
    for header in sorted(source_root.rglob("*.hpp")):
        for name in _names(_text(header), anonymous=False):
            in_headers.setdefault((header.parent, name), header)
    found = []
    for unit in _units(source_root):
        seen: dict[str, Path] = {}
        for path in unit:
            text = _text(path)
            for name, first in seen.items():
                # A folder is a namespace: headers of its own and of those around it can be hidden.
                header = next((h for folder in path.parents if (h := in_headers.get((folder, name)))), None)
                if header and re.search(rf"(?<![\w.:>]){name}\b", text):
                    found.append(f"{path}: '{name}' of {header.name} is hidden by that of {first.name}, of its unit")
            for name in _names(text, anonymous=True):
                if name in seen:
                    found.append(f"{path}: '{name}' is declared by {seen[name].name}, too, of its unit")
                seen.setdefault(name, path)
    return found


if __name__ == "__main__":
    sys.exit(check(violations))
