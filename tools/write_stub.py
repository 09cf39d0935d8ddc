#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the stub of assay._core, from what the built module says of itself.

    PYTHONPATH=build/release/python tools/write_stub.py > python/assay/_core.pyi

tests/python/test_stub.py holds the stub in the repository against the module.
"""

from __future__ import annotations

import sys
import textwrap
from types import ModuleType

COLUMNS = 120
HEAD = """
from collections.abc import Sequence
from typing import Any

ReadOnlyArray = Any  # NumPy's, or with __dlpack__(), or a buffer; in memory of the CPU
"""


def _document(text: str, indent: str) -> str:
    line = f'{indent}"""{text}"""\n'
    if len(line) <= COLUMNS + 1:
        return line
    body = textwrap.fill(text, COLUMNS, initial_indent=indent, subsequent_indent=indent)
    return f'{indent}"""\n{body}\n{indent}"""\n'


def _definition(kind: str, name: str, signature: str, document: str, indent: str) -> str:
    """A function, method or property."""
    head = f"{indent}def {name}{signature if kind == 'def' else f'(self) -> {signature}'}:"
    if kind == "property":
        head = f"{indent}@property\n{head}"
    return f"{head}\n{_document(document, indent + ' ' * 4)}" if document else f"{head} ...\n"


def stub(module: ModuleType) -> str:
    """The text of its .pyi file."""
    parts = [f'"""{module.__doc__}"""\n{HEAD}']
    for kind, name, signature, document, *members in module._description:
        if kind == "class":
            inside = [_document(document, " " * 4)] if document else []
            inside += [_definition(*member, indent=" " * 4) for member in members[0]]
            parts.append(f"class {name}:\n" + "\n".join(inside))
        else:
            parts.append(_definition(kind, name, signature, document, indent=""))
    return "\n".join(parts)


if __name__ == "__main__":
    from assay import _core

    sys.stdout.write(stub(_core))
