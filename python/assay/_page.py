# SPDX-License-Identifier: Apache-2.0
"""Pages of HTML before the reader's eyes: in a notebook below the cell, otherwise in a browser."""

from __future__ import annotations

import atexit
import functools
import html
import importlib
import os
import shutil
import sys
import tempfile
import webbrowser
from pathlib import Path
from typing import Any, Callable

__all__ = ["show_page"]

_HEIGHT = "min(90vh, 900px)"
# The page runs its own scripts, and reaches nothing of the notebook around it.
_ALLOWED = "allow-scripts allow-downloads allow-popups allow-modals"


def show_page(write: Callable[[str], Any]) -> None:
    """Shows a page.

    Args:
        write: writes it to the path given, which ends with ``.html``.
    """
    if _is_notebook():
        with tempfile.TemporaryDirectory(prefix="assay-") as folder:
            path = Path(folder, "page.html")
            write(str(path))
            _display(path.read_text(encoding="utf-8"))
        return
    file, path_text = tempfile.mkstemp(prefix="page-", suffix=".html", dir=_folder())
    os.close(file)
    write(path_text)
    if not webbrowser.open(Path(path_text).as_uri()):
        print(f"assay: no browser was found; the page is {path_text} until this program ends", file=sys.stderr)


def _is_notebook() -> bool:
    """Whether a kernel runs this program: IPython in a terminal has none."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def _display(page: str) -> None:
    display: Any = importlib.import_module("IPython.display")
    frame = f'style="width:100%;height:{_HEIGHT};border:0" sandbox="{_ALLOWED}" srcdoc="{html.escape(page)}"'
    # IPython advises against a bare iframe, which could only show a file that its server finds.
    display.display(display.HTML(f'<div><iframe title="assay" {frame}></iframe></div>'))


@functools.cache
def _folder() -> str:
    """A folder of this process, removed when it ends."""
    folder = tempfile.mkdtemp(prefix="assay-")
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # not a forked child, whose parent still shows the page
        shutil.rmtree(folder, ignore_errors=True)
