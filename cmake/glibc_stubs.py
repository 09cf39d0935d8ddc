#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes libraries to link with that look like those of an older glibc, from the names and versions in this machine's.

    glibc_stubs.py FLOOR FOLDER COMPILER...      for example 2.28 build/glibc-2.28 g++

A program linked with `-L FOLDER` asks for no symbol version above FLOOR and so loads on every glibc from there on; a
function that came later is missing when it is linked (src/base/older_glibc.cpp has those that we and the C++ run time
need). The libraries of FOLDER hold names and versions, no code. Functions that moved into libc with 2.32 and 2.34 stand
where they were, in libpthread and libdl, which a newer glibc still has.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

SYMBOL = re.compile(r"^\s*\d+: \w+ +(\w+) +(\w+) +(\w+) +\w+ +(\w+) +([\w.]+)@@?GLIBC_([0-9.]+)$", re.MULTILINE)
# Where what has moved into libc was: the rest of it in libpthread.
IN_LIBDL = {"dladdr", "dladdr1", "dlclose", "dlerror", "dlinfo", "dlmopen", "dlopen", "dlsym", "dlvsym"}
IN_LIBPTHREAD = re.compile(r"_*(?:pthread|sem)_\w+")

Version = tuple[int, ...]


class Symbol(NamedTuple):
    """One name of a library, in the newest version that is old enough."""

    name: str
    is_object: bool
    size_bytes: int
    version: Version
    has_newer: bool


def version_of(text: str) -> Version:
    """`2.2.5` as (2, 2, 5)."""
    return tuple(int(part) for part in text.split("."))


def symbols_of(library: str, floor: Version) -> list[Symbol]:
    """What a shared library has shown since `floor` or earlier, by name."""
    text = subprocess.run(
        ["readelf", "--dyn-syms", "--wide", library], check=True, text=True, capture_output=True
    ).stdout
    found: dict[str, list[tuple[Version, str, int]]] = {}
    for size, kind, binding, section, name, version in SYMBOL.findall(text):
        if section != "UND" and section != "ABS" and binding in ("GLOBAL", "WEAK") and kind != "TLS":
            found.setdefault(name, []).append((version_of(version), kind, int(size, 0)))
    symbols = []
    for name, versions in sorted(found.items()):
        old_enough = [one for one in versions if one[0] <= floor]
        if old_enough:
            version, kind, size = max(old_enough)
            symbols.append(Symbol(name, kind == "OBJECT", size, version, len(old_enough) < len(versions)))
    return symbols


def write_library(path: Path, symbols: list[Symbol], compiler: list[str]) -> None:
    """Links a shared library whose soname is the name of `path`."""
    source, script = path.with_suffix(".s"), path.with_suffix(".map")
    lines, nodes = [], dict[Version, list[str]]()
    for symbol in symbols:
        section, kind = (".data", "object") if symbol.is_object else (".text", "function")
        size = max(symbol.size_bytes, 1) if symbol.is_object else 1
        lines += [section, f".globl {symbol.name}", f".type {symbol.name},%{kind}"]
        lines += [f".size {symbol.name},{size}", f"{symbol.name}: .zero {size}"]
        nodes.setdefault(symbol.version, []).append(symbol.name)
    source.write_text('.section .note.GNU-stack,"",%progbits\n' + "\n".join(lines) + "\n")
    script.write_text(
        "".join(
            f"GLIBC_{'.'.join(map(str, version))} {{ global: {'; '.join(names)}; }};\n"
            for version, names in sorted(nodes.items())
        )
    )
    links = ["-shared", "-nostdlib", f"-Wl,-soname,{path.name}", f"-Wl,--version-script={script}"]
    subprocess.run([*compiler, *links, "-x", "assembler", str(source), "-o", str(path)], check=True)


def main() -> int:
    """Returns 0 when the libraries are there."""
    floor, folder, compiler = version_of(sys.argv[1]), Path(sys.argv[2]).resolve(), sys.argv[3:]
    folder.mkdir(parents=True, exist_ok=True)

    def file_of(name: str) -> str:
        command = [*compiler, f"-print-file-name={name}"]
        return subprocess.run(command, check=True, text=True, capture_output=True).stdout.strip()

    libc: list[Symbol] = []
    libpthread: list[Symbol] = []
    libdl: list[Symbol] = []
    for symbol in symbols_of(file_of("libc.so.6"), floor):
        if symbol.has_newer and symbol.name in IN_LIBDL:
            libdl.append(symbol)
        elif symbol.has_newer and IN_LIBPTHREAD.fullmatch(symbol.name):
            libpthread.append(symbol)
        else:
            libc.append(symbol)
    parts = {"libc.so.6": libc, "libpthread.so.0": libpthread, "libdl.so.2": libdl}
    parts["libm.so.6"] = symbols_of(file_of("libm.so.6"), floor)
    for name, symbols in parts.items():
        write_library(folder / name, symbols, compiler)
    # What `-lc` finds is a script, which also names the static part of the C library, and the loader.
    script = Path(file_of("libc.so")).read_text()
    moved = f" AS_NEEDED ( {folder / 'libpthread.so.0'} {folder / 'libdl.so.2'} ) "
    script = re.sub(r"\S+/libc\.so\.6", str(folder / "libc.so.6") + moved, script)
    (folder / "libc.so").write_text(script)
    (folder / "libm.so").write_text(f"GROUP ( {folder / 'libm.so.6'} )\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
