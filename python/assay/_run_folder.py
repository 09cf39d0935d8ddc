# SPDX-License-Identifier: Apache-2.0
"""Where runs go that are captured on behalf of a caller."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Optional, Union

__all__ = ["run_folder"]


@contextmanager
def run_folder(path: Optional[Union[str, Path]], prefix: str) -> Iterator[Path]:
    """The caller's folder, which stays; without one a temporary folder, which goes with the runs.

    Args:
        prefix: of the temporary folder's name.
    """
    if path is not None:
        yield Path(path)
        return
    made = tempfile.mkdtemp(prefix=prefix)
    try:
        yield Path(made)
    finally:
        shutil.rmtree(made, ignore_errors=True)
