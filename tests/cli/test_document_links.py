# SPDX-License-Identifier: Apache-2.0
"""Links between documents lead somewhere, and docs/README.md leads to all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md"), *ROOT.glob("compat/*.md")]
)
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def prose_of(text: str) -> str:
    """Without blocks of code, and without code inside a line: neither holds links."""
    return re.sub(r"`[^`\n]*`", "`code`", FENCE.sub("", text))


def links_of(text: str) -> list[str]:
    """Targets of links, those to other sites left out."""
    found: list[str] = re.findall(r"\]\(([^()\s]+)\)", prose_of(text))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def anchors_of(path: Path) -> set[str]:
    """What `#...` may name in a document: its headings, as the pages of a repository write them."""
    headings: list[str] = re.findall(r"^#+ (.*)$", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {word.strip().replace(" ", "-") for word in words}


def dead_links(path: Path, text: str) -> list[str]:
    """Links of a document, which stands at `path`, that lead nowhere."""
    dead = []
    for link in links_of(text):
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors_of(file)):
            dead.append(link)
    return dead


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in DOCUMENTS])
def test_links_lead_to_files_and_headings(path):
    assert dead_links(path, path.read_text(encoding="utf-8")) == []


def test_the_index_names_every_document():
    index = ROOT / "docs" / "README.md"
    named = {(index.parent / link.partition("#")[0]).resolve() for link in links_of(index.read_text(encoding="utf-8"))}
    missing = [path for path in (ROOT / "docs").rglob("*.md") if path not in named and path != index]
    assert [str(path.relative_to(ROOT)) for path in sorted(missing)] == []


def missing_files(text: str) -> list[str]:
    """Files of this repository that code inside a line names and that are not there; a stem stands for its files."""
    named: list[str] = re.findall(r"`((?:src|python|tests|tools|bench|cmake|examples|compat)/[\w./-]+)`", text)
    return [
        name
        for name in named
        if "foo" not in name and not (ROOT / name).exists() and not list(ROOT.glob(name + ".[hcp]*"))
    ]


@pytest.mark.parametrize(
    "name", ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/design/lives.md", "docs/design/engines.md"]
)
def test_files_that_are_named_exist(name):
    assert missing_files((ROOT / name).read_text(encoding="utf-8").replace("src/engines/NAME", "")) == []


def test_a_file_that_is_not_there_is_found():
    text = "`src/run/run.hpp` `src/run/run` `src/run/no_such.hpp` `src/run/no_such` `src/run/foo.cpp`"
    assert missing_files(text) == ["src/run/no_such.hpp", "src/run/no_such"]


def test_dead_links_are_found():
    index = ROOT / "docs" / "README.md"
    text = "[a](graph.md) [b](no-such.md) [c](graph.md#no-such) [d](#glossary) [e](#no-such) `[f](g.md)` [h](https://i)"
    assert dead_links(index, text) == ["no-such.md", "graph.md#no-such", "#no-such"]
