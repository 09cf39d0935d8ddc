# SPDX-License-Identifier: Apache-2.0
"""A second Ctrl-C while a run is being finished: a terminal and the command that started the host send one each."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["interrupts_held"]


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """SIGINT is told instead of raised meanwhile: at the end of the interpreter it could only leave half a run behind.

    SIGTERM and SIGQUIT still end the process. On threads other than the main one, and where the host handles SIGINT
    outside of Python, nothing is held.
    """
    told = False

    def tell(*_: Any) -> None:
        nonlocal told
        if not told:
            told = True
            with contextlib.suppress(OSError, ValueError, AttributeError):
                sys.stderr.write("assay: interrupted again; what was captured is being finished\n")

    before = signal.getsignal(signal.SIGINT)
    try:
        held = before is not None and signal.signal(signal.SIGINT, tell) is not None
    except ValueError:  # not the main thread
        held = False
    try:
        yield
    finally:
        if held:
            signal.signal(signal.SIGINT, before)
