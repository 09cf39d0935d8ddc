#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the places of concepts that should have one, and fails when there are more than ARCHITECTURE.md records.

Each row of the table "One concept, one place" there names a count of this file. Only what a simple rule finds is
counted, in production code: src/ without tests, fuzz targets and benchmarks, and python/assay.

    tools/count_concepts.py [ROOT]          compare with the table
    tools/count_concepts.py --list NAME     the places behind one count
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from pathlib import Path

_TESTS = ("_test.cpp", "_fuzz.cpp", "_bench.cpp")
_TEXT_CALL = r"(?:find|rfind|starts_with|ends_with|contains|compare)\("


@functools.cache
def _files(root: Path) -> list[tuple[str, str]]:
    """Path below `root` and text of each file of production code."""
    return [
        (path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))
        for folder, patterns in (("src", ("*.cpp", "*.hpp")), ("python/assay", ("*.py",)))
        for path in sorted(file for pattern in patterns for file in (root / folder).rglob(pattern))
        if not path.name.endswith(_TESTS) and not path.name.startswith("test_")
    ]


@functools.cache
def _code(root: Path) -> list[tuple[str, int, str]]:
    """Path, number and text of each line that holds more than a comment, without its comment."""
    comment = re.compile(r"\s*(?://|#(?! *include)).*")
    lines = ((path, number, line) for path, text in _files(root) for number, line in enumerate(text.splitlines(), 1))
    return [(path, number, code) for path, number, line in lines if (code := comment.sub("", line))]


def _lines(root: Path, pattern: str, outside: tuple[str, ...] = ()) -> list[str]:
    """PATH:LINE of what matches; comments do not count."""
    rule = re.compile(pattern)
    return [
        f"{path}:{number}" for path, number, code in _code(root) if rule.search(code) and not path.startswith(outside)
    ]


def _layouts(root: Path) -> list[str]:
    """Comparisons with a layout of src/run/layout.cpp, by its name or its enumerator."""
    table = (root / "src/run/layout.cpp").read_text(encoding="utf-8")
    names = [name for row in re.findall(r'\{Layout::(\w+),\s*"([\w-]*)"', table) for name in row if name]
    of_layout = rf'(?:"(?:{"|".join(names)})"|(?:run::)?Layout::(?:{"|".join(names)})\b)'
    return _lines(
        root,
        rf"\blayout\b *(?:==|!=| in \() *{of_layout}|\bcase (?:run::)?Layout::(?:{'|'.join(names)})\b",
        ("src/run/",),
    )


def _messages(root: Path) -> list[str]:
    """What is done depends on the words of an error, of a note or of why a row or a tensor is no good."""
    sentence = r"\b(?:message|fail_reason|problem|note)(?:\(\))?"
    cpp = rf"{sentence}(?:\.|->){_TEXT_CALL}|{sentence} *[!=]= *(?:\"|k[A-Z])"
    # A rule of protobuf's text has a field of that name.
    found = _lines(root, cpp, ("python/", "src/topology/", "src/formats/"))
    return found + _lines(root, r"\bin (?:str\(error\)|error\.message)\b", ("src/",))


def _rules(root: Path) -> list[str]:
    """What is done depends on the name of the rule that made a pair."""
    return _lines(root, r"\b(?:reason|matched_by|rule|policy) *[!=]= *(?:\"|(?:\w+::)?k[A-Z])", ("python/",))


def _pairing(root: Path) -> list[str]:
    """Folders with types that decide what corresponds to what. An engine's own stands behind pair's interface."""
    places = _lines(
        root,
        r"^\s*(?:class|struct) \w*(?:Matcher|Matching|Alignment|Pairing|Correspondence)\b(?!.*(?:;|: pair::))",
        ("src/engines/", "python/"),
    )
    return sorted({place.rsplit("/", 1)[0] for place in places})


def _operator_marks(root: Path) -> list[str]:
    """The mark between a module and its operator, spelled out."""
    return _lines(root, r'"::"', ("python/",))


def _native_keys(root: Path) -> list[str]:
    """Members of the native format's JSON that are spelled outside its home; `assay show` has an output of its own."""
    keys = "same_as|vid|pos_inf|neg_inf|wall_ms|added_ms|__metadata__"
    return _lines(root, rf'"(?:{keys})\\?"', ("src/formats/native/", "src/formats/safetensors", "src/cli/", "python/"))


def _tiles(root: Path) -> list[str]:
    """Files that compute where an element of a tile lies."""
    places = _lines(root, r"/ (?:axis\.)?tile\b.*% (?:axis\.)?tile\b", ("python/",))
    return sorted({place.rsplit(".", 1)[0] for place in places})  # header and source are one


def _verdicts(root: Path) -> list[str]:
    """Levels, floors, sources and judgements that are compared with a letter or a text."""
    return _lines(root, r"\b(?:level|verdict|floor|own_source)(?:\(\))? *[!=]= *[\"']", ("python/",))


def _ggml(root: Path) -> list[str]:
    """Files that name the engine outside its own rooms."""
    rooms = (
        "src/capture/ggml/",  # the probe
        "src/reference/",  # dialects of operators
        "src/engines/",
        "src/cli/dump/",  # starts hosts of each kind
        "src/formats/gguf",  # the file format, whose types of blocks are ggml's
        "python/assay/twin/gguf_file",  # what writes it
        "src/tensor/block_types",
        "src/python/reference/",
        "python/assay/reference/",
    )
    return [path for path, text in _files(root) if not path.startswith(rooms) and "ggml" in text.lower()]


def _vendors(root: Path) -> list[str]:
    """Files that name another program's conventions outside the vendor's rooms and the edges that choose them.

    Names of files, folders and options stay: they are what users see.
    """
    rooms = ("src/vendor/", "src/cli/", "src/capture/", "python/")  # probes and strict hooks keep exported names
    name = re.compile(r"msit|\bait(?:_?02)?\b|ait_?02", re.IGNORECASE)
    hidden = re.compile(r"//.*|\"(?:[^\"\\\n]|\\.)*\"|#include.*")
    return [
        path
        for path, text in _files(root)
        if not path.startswith(rooms) and any(name.search(hidden.sub("", line)) for line in text.splitlines())
    ]


def _binders(root: Path) -> list[str]:
    """Files that convert arguments of reference operators by hand, beside the generic binder and that of aten."""
    rows = (root / "src/python/reference").glob("*.cpp")
    by_hand = (
        path
        for path in rows
        if path.stem not in ("operators", "bind_aten") and re.search(r"\b(?:py|binding)::", path.read_text("utf-8"))
    )
    return sorted(path.relative_to(root).as_posix() for path in by_hand)


def _intakes(root: Path) -> list[str]:
    """Folders of captures that read, copy or store elements of tensors, or note which they have seen."""
    taken = r"\b(?:compute_stats|gather_bytes|apply_lazy_bits|append_payload)\(|\bclass Identity\w* "
    places = [place for place in _lines(root, taken) if place.startswith("src/capture/")]
    return sorted({place.rsplit("/", 1)[0] for place in places})


def _grammars(root: Path) -> list[str]:
    """Files that take a command line apart: by a library, or by a parser of ours."""
    libraries = r"#include <(?:CLI/|getopt|boost/program_options)|\bgetopt(?:_long)?\("
    ours = r"\bparse_arguments\([^;]*\{$"
    places = _lines(root, f"{libraries}|{ours}", ("python/",))
    return sorted({place.rsplit(":", 1)[0] for place in places})


def _helper(name: str) -> Callable[[Path], list[str]]:
    """Definitions of a function of that name."""
    head = r"^ *(?:\[\[[\w:]+\]\] |static |inline |constexpr )*[A-Za-z_][\w:<>,* ]*[&*]? "
    return lambda root: _lines(root, head + rf"{name}\((?!.*;\s*$)|^def {name}\(")


def _judges(root: Path) -> list[str]:
    """Doors that put a verdict together themselves: they call locate()."""
    return _lines(root, r"\blocate::locate\(", ("src/locate/", "python/"))


def _put_backs(root: Path) -> list[str]:
    """Functions that undo a renaming of records in a finished verdict."""
    return _lines(
        root, r"^(?:void|Status) (?:\w+::)?(?:put_back|put_on_sides|use_names_of_mine)\([^;]*$", ("src/cli/",)
    )


def _sums(root: Path) -> list[str]:
    """Structs that gather sums over pairs of values."""
    return _lines(root, r"^\s*struct \w*Sums\b(?!.*;)", ("src/stats/", "src/reference/", "python/"))


def _reached_by_run(root: Path) -> list[str]:
    """Production files that are compiled again when run/run.hpp changes."""
    included = {
        path.removeprefix("src/"): set(re.findall(r'^#include "(.*)"', text, re.MULTILINE))
        for path, text in _files(root)
        if path.startswith("src/")
    }
    reached = {"run/run.hpp"}
    while more := {path for path, names in included.items() if path not in reached and names & reached}:
        reached |= more
    return sorted(path for path in reached if path.endswith(".cpp"))


def _full_folders(root: Path) -> list[str]:
    """Folders of src with more than 40 files, tests among them."""
    folders = [root / "src", *(path for path in (root / "src").rglob("*") if path.is_dir())]
    return [
        folder.relative_to(root).as_posix()
        for folder in sorted(folders)
        if sum(path.is_file() for path in folder.iterdir()) > 40
    ]


def _headless(root: Path) -> list[str]:
    """Production .cpp whose second line does not say what the file does."""
    return [
        path
        for path, text in _files(root)
        if path.endswith(".cpp") and not "".join(text.splitlines()[1:2]).startswith("//")
    ]


def _size(root: Path) -> list[str]:
    """Every hundredth line of production C++ that is neither blank nor a comment alone."""
    lines = [f"{path}:{number}" for path, number, code in _code(root) if path.startswith("src/") and code.strip()]
    return lines[99::100]


def _some(places: list[str]) -> str:
    """The first places, and how many more there are."""
    more = len(places) - 20
    return ", ".join(places[:20]) + (f" and {more} more" if more > 0 else "")


COUNTS: dict[str, Callable[[Path], list[str]]] = {
    "comparisons of a layout outside src/run": _layouts,
    "branches on the text of a message": _messages,
    "branches on the name of a pairing rule": _rules,
    "comparisons of a level, floor or verdict with text": _verdicts,
    "rooms that pair": _pairing,
    "spellings of the mark in front of an operator": _operator_marks,
    "keys of the native format spelled outside its home": _native_keys,
    "files that compute places in tiles": _tiles,
    "files outside its rooms that name ggml": _ggml,
    "files outside its rooms that name msit or ait": _vendors,
    "binders of reference operators by hand": _binders,
    "ways in for a tensor of a host": _intakes,
    "grammars of command lines": _grammars,
    "callers of locate() outside its room": _judges,
    "functions that undo a renaming": _put_backs,
    "structs of sums": _sums,
    "production .cpp behind run/run.hpp": _reached_by_run,
    "folders with more than 40 files": _full_folders,
    "production .cpp without a head": _headless,
    "hundreds of lines of production C++": _size,
    **{f"definitions of {name}()": _helper(name) for name in ("add_lanes", "exists", "shape_text", "relative_l2")},
}


def recorded(root: Path) -> dict[str, int]:
    """The table of ARCHITECTURE.md: "| concept | places | goal |"."""
    text = (root / "ARCHITECTURE.md").read_text(encoding="utf-8")
    return {
        name.strip(): int(count) for name, count in re.findall(r"^\| ([^|]+) \| (\d+) \| \d+ \|", text, re.MULTILINE)
    }


def problems(root: Path, counted: dict[str, list[str]]) -> list[str]:
    """One line for each count that rose, and for each that the table does not have."""
    table = recorded(root)
    found = []
    for name, places in counted.items():
        if name not in table:
            found.append(f"{name}: {len(places)}, and no row in ARCHITECTURE.md")
        elif len(places) > table[name]:
            found.append(f"{name}: {len(places)} places, ARCHITECTURE.md allows {table[name]}: {_some(places)}")
    return found


def main(arguments: list[str]) -> int:
    """Returns the exit status: 1 when a count rose."""
    root = Path(__file__).resolve().parents[1]
    if arguments[:1] == ["--list"]:
        print("\n".join(COUNTS[arguments[1]](root)))
        return 0
    if arguments:
        root = Path(arguments[0])
    counted = {name: count(root) for name, count in COUNTS.items()}
    print("".join(f"{len(places):4} {name}\n" for name, places in counted.items()), end="")
    found = problems(root, counted)
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
