#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes down what a build is made of: for `assay --version --verbose`, as an SBOM, and with the licences.

    build_facts.py --out FOLDER --version 0.1.0 --compiler g++ [--include FOLDER ...] [--d3 FILE ...]

Below FOLDER: build_facts.hpp, sboms/assay.cdx.json (CycloneDX 1.6), licenses/third-party/NAME.txt. A file is written
only when its content changed. Versions are asked of the headers that the compiler finds; where they cannot be had they
are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
import uuid
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = Path("/usr/share/doc")  # of Debian's packages; licences lie nowhere else that is known


class Component(NamedTuple):
    """Somebody else's work inside of ours.

    Attributes:
        licence: an SPDX expression
        package: Debian's, which has the text of the licence
        header: with the macros of `version`, which the preprocessor replaces
    """

    name: str
    licence: str
    purl: str
    package: str
    header: str = ""
    version: str = ""


LIBRARIES = [
    Component("OpenBLAS", "BSD-3-Clause", "pkg:github/OpenMathLib/OpenBLAS", "libopenblas-serial-dev",
              "openblas_config.h", "OPENBLAS_VERSION"),
    Component("zlib", "Zlib", "pkg:github/madler/zlib", "zlib1g-dev", "zlib.h", "ZLIB_VERSION"),
    Component("xxHash", "BSD-2-Clause", "pkg:github/Cyan4973/xxHash", "libxxhash-dev", "xxhash.h",
              "XXH_VERSION_MAJOR . XXH_VERSION_MINOR . XXH_VERSION_RELEASE"),
    Component("nlohmann-json", "MIT", "pkg:github/nlohmann/json", "nlohmann-json3-dev", "nlohmann/json.hpp",
              "NLOHMANN_JSON_VERSION_MAJOR . NLOHMANN_JSON_VERSION_MINOR . NLOHMANN_JSON_VERSION_PATCH"),
    Component("protozero", "BSD-2-Clause", "pkg:github/mapbox/protozero", "libprotozero-dev", "protozero/version.hpp",
              "PROTOZERO_VERSION_MAJOR . PROTOZERO_VERSION_MINOR . PROTOZERO_VERSION_PATCH"),
    Component("expected", "CC0-1.0", "pkg:github/TartanLlama/expected", "libexpected-dev", "tl/expected.hpp",
              "TL_EXPECTED_VERSION_MAJOR . TL_EXPECTED_VERSION_MINOR . TL_EXPECTED_VERSION_PATCH"),
]  # fmt: skip
LIBSTDCXX = Component("libstdc++", "GPL-3.0-or-later WITH GCC-exception-3.1", "pkg:generic/gcc", "g++-12")
LIBGCC = Component("libgcc", "GPL-3.0-or-later WITH GCC-exception-3.1", "pkg:generic/gcc", "g++-12")
# Its layout of graphs, dagre, stands in the pages.
NETRON = Component("netron", "MIT", "pkg:pypi/netron", "")
D3_LICENCE = "BSD-3-Clause"


def preprocessed(compiler: list[str], header: str, macros: str) -> str:
    """What the preprocessor makes of macros, without blanks and quotes; empty when the header is not there."""
    text = f"#include <{header}>\nassay_asks {macros}\n"
    done = subprocess.run(
        [*compiler, "-E", "-P", "-std=c++20", "-x", "c++", "-"], input=text, text=True, capture_output=True, check=False
    )
    found = re.search(r"^assay_asks (.*)$", done.stdout, re.MULTILINE) if done.returncode == 0 else None
    return re.sub(r"OpenBLAS|[\s\"]|(?<=\d)[uUlL]+", "", found[1]) if found else ""


def d3_component(file: Path) -> Component:
    """Of the first line of a part of d3: `// https://d3js.org/d3-array/ v3.2.0 Copyright ...`."""
    name = file.name.removesuffix(".min.js")
    found = re.search(r"\bv(\d[\d.]*)", file.read_text().split("\n", 1)[0])
    return Component(name, D3_LICENCE, f"pkg:npm/{name}", f"node-{name}", version=found[1] if found else "")


def components(compiler: str, include: list[str], d3: list[Path]) -> list[Component]:
    """All of them, with their versions."""
    asked = [compiler, *(f"-I{folder}" for folder in include)]
    found = [one._replace(version=preprocessed(asked, one.header, one.version)) for one in LIBRARIES]
    done = subprocess.run([compiler, "-dumpfullversion"], text=True, capture_output=True, check=False)
    # clang does not know that word, and takes both from the GCC that it finds.
    gcc = done.stdout.strip() if done.returncode == 0 else preprocessed([compiler], "version", "_GLIBCXX_RELEASE")
    found += [LIBSTDCXX._replace(version=gcc), LIBGCC._replace(version=gcc)]
    found += [d3_component(file) for file in d3]
    try:
        found.append(NETRON._replace(version=metadata.version("netron")))
    except metadata.PackageNotFoundError:
        found.append(NETRON)
    return found


def git(*words: str) -> str:
    """What git says of the checkout; empty outside of one."""
    done = subprocess.run(["git", "-C", str(ROOT), *words], text=True, capture_output=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def commit() -> str:
    """Of the sources, with a plus where they were changed since; empty where neither checkout nor archive tells."""
    if git("rev-parse", "--show-toplevel") != str(ROOT):
        note = ROOT / "commit.txt"  # of a source archive, by tools/build.py
        return note.read_text().strip() if note.is_file() else ""
    return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")


def compiler_name(compiler: str) -> str:
    """The first line of `g++ --version`, under whichever of its names it was called."""
    done = subprocess.run([compiler, "--version"], text=True, capture_output=True, check=True)
    return re.sub(r"^c\+\+ ", "g++ ", done.stdout.split("\n", 1)[0])


def sbom(version: str, of_commit: str, parts: list[Component]) -> str:
    """CycloneDX 1.6 as JSON. The same sources and libraries give the same bytes."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct") or "0"
    application = {
        "type": "application", "bom-ref": "assay", "name": "assay-llm", "version": version,
        "licenses": [{"license": {"id": "Apache-2.0"}}], "purl": f"pkg:pypi/assay-llm@{version}",
    }  # fmt: skip
    listed = []
    for part in parts:
        one = {"type": "library", "bom-ref": part.name, "name": part.name, "version": part.version}
        licence = {"expression": part.licence} if " " in part.licence else {"license": {"id": part.licence}}
        at = f"@{part.version}" if part.version else ""
        listed.append({**one, "licenses": [licence], "purl": part.purl + at})
    content = {
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(epoch))),
            "component": application,
            "properties": [{"name": "assay:commit", "value": of_commit or "unknown"}],
        },
        "components": listed,
        "dependencies": [{"ref": "assay", "dependsOn": [part.name for part in parts]}],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    header = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}", "version": 1,
    }  # fmt: skip
    return json.dumps({**header, **content}, indent=2) + "\n"


def cpp_string(text: str) -> str:
    """As a C++ literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def header(of_commit: str, compiler: str, parts: list[Component]) -> str:
    """build_facts.hpp."""
    names = [f"{part.name} {part.version}".rstrip() for part in parts]
    rows = "".join(f"    {cpp_string(name)},\n" for name in names)
    return (
        "// Written by cmake/build_facts.py.\n#pragma once\n#include <array>\n#include <string_view>\n\n"
        "namespace assay::cli {\n"
        f"inline constexpr std::string_view kCommit = {cpp_string(of_commit)};\n"
        f"inline constexpr std::string_view kCompiler = {cpp_string(compiler)};\n"
        f"inline constexpr std::array<std::string_view, {len(names)}> kComponents = {{\n{rows}}};\n"
        "}  // namespace assay::cli\n"
    )


def write(path: Path, text: str) -> None:
    """Leaves a file alone that has this text: nothing that depends on it is made again."""
    if not path.is_file() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main() -> int:
    """Returns 0 when the files are there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--include", nargs="*", default=[])
    parser.add_argument("--d3", type=Path, nargs="*", default=[])
    given = parser.parse_args()
    parts = components(given.compiler, given.include, given.d3)
    of_commit = commit()
    write(given.out / "build_facts.hpp", header(of_commit, compiler_name(given.compiler), parts))
    write(given.out / "sboms" / "assay.cdx.json", sbom(given.version, of_commit, parts))
    for part in parts:
        text = DOCUMENTS / part.package / "copyright"
        if part.package and text.is_file():
            write(given.out / "licenses" / "third-party" / f"{part.name}.txt", text.read_text())
    page = ROOT / "src" / "report" / "html" / "licences.txt"
    write(given.out / "licenses" / "third-party" / "page.txt", page.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
