# SPDX-License-Identifier: Apache-2.0
"""Runs Python blocks of a document in one interpreter, as cells of a notebook: python document_session.py BLOCKS.json.

What a scene left as before.py runs in front and defines what the blocks take for granted. For each expression that
stands alone a line of JSON is printed: the source's last line and what the value shows.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path


def show(value: object) -> str:
    """As a notebook does, which asks for HTML as well."""
    if hasattr(value, "_repr_html_"):
        assert value._repr_html_().startswith("<div"), value
    return repr(value)


def main() -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    before = Path("before.py")
    if before.exists():
        exec(compile(before.read_text(), str(before), "exec"), names)
    for block in json.loads(Path(sys.argv[1]).read_text()):
        lines = block.split("\n")
        for statement in ast.parse(block).body:
            if not isinstance(statement, ast.Expr):
                exec(compile(ast.Module([statement], []), "block", "exec"), names)
                continue
            value = eval(compile(ast.Expression(statement.value), "block", "eval"), names)
            print(json.dumps([lines[statement.end_lineno - 1], show(value)]), flush=True)


if __name__ == "__main__":
    main()
