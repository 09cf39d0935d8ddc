# SPDX-License-Identifier: Apache-2.0
"""Commands ``msit`` and ``ait``: the native ``assay`` command, called by its old names."""

from __future__ import annotations

import os
import shutil
import sys
from typing import NoReturn, Optional


def msit() -> NoReturn:
    """Entry point of ``msit``."""
    _become_assay("msit")


def ait() -> NoReturn:
    """Entry point of ``ait``."""
    _become_assay("ait")


def find_assay() -> Optional[str]:
    """Returns the path of the native command: beside the running interpreter, else on PATH, else None."""
    beside = os.path.join(os.path.dirname(sys.executable), "assay")
    if os.access(beside, os.X_OK) and os.path.isfile(beside):
        return beside
    return shutil.which("assay")


def _become_assay(name: str) -> NoReturn:
    path = find_assay()
    if path is None:
        print("error: the command 'assay' is neither beside this Python nor on PATH", file=sys.stderr)
        print("next: pip install assay-llm", file=sys.stderr)
        raise SystemExit(2)
    # The native command tells by its own name that the old grammar is meant.
    os.execv(path, [name, *sys.argv[1:]])
