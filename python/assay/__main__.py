# SPDX-License-Identifier: Apache-2.0
"""``python -m assay`` is the command ``assay`` of this Python's environment."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path


def find_command() -> str:
    """The native command beside this Python, else the one on PATH."""
    beside = Path(sysconfig.get_path("scripts")) / "assay"
    if beside.is_file():
        return str(beside)
    found = shutil.which("assay")
    if found is None:
        sys.exit(f"error: the command assay is neither {beside} nor on PATH\nhint: install assay-llm again")
    return found


def main() -> None:
    """Becomes the command: its output, its signals and its exit status."""
    os.execv(find_command(), ["assay", *sys.argv[1:]])


if __name__ == "__main__":
    main()
