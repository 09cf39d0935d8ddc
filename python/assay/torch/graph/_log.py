# SPDX-License-Identifier: Apache-2.0
"""The logger of graph mode: one line a record, with the level EVENT between WARNING and ERROR.

    [WARNING] TORCHAIR(4711,python):2025-01-02 03:04:05.678.901 [_backend.py:120]4711 the message

The logger is called ``torchair``, as scripts that set its level by name expect; where the vendor's package is
installed that name is its own, and ours is ``assay.torch.graph``.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import threading
import time
import warnings

from assay._manifest import printable

__all__ = ["EVENT", "logger", "tell"]

EVENT = 35  # between WARNING (30) and ERROR (40)


class _LineFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        microseconds = int(record.created * 1_000_000) % 1_000_000
        executable = os.path.basename(sys.executable) or "python"
        line = (
            f"[{record.levelname}] TORCHAIR({record.process},{executable}):{seconds}."
            f"{microseconds // 1000:03d}.{microseconds % 1000:03d} "
            f"[{record.filename}:{record.lineno}]{threading.get_native_id()} {record.getMessage()}"
        )
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class _StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to whatever sys.stderr is when a line comes: stdout is the host's."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> object:
        return sys.stderr

    @stream.setter
    def stream(self, value: object) -> None:
        pass


def _vendor_is_installed() -> bool:
    try:
        return importlib.util.find_spec("torchair") is not None
    except (ImportError, ValueError):
        return False


def _make_logger() -> logging.Logger:
    logging.addLevelName(EVENT, "EVENT")
    made = logging.getLogger("assay.torch.graph" if _vendor_is_installed() else "torchair")
    if not any(isinstance(handler, _StderrHandler) for handler in made.handlers):
        handler = _StderrHandler()
        handler.setFormatter(_LineFormatter())
        made.addHandler(handler)
        made.propagate = False
        made.setLevel(logging.DEBUG if os.environ.get("TORCH_COMPILE_DEBUG", "0") == "1" else logging.ERROR)
    return made


logger = _make_logger()


def tell(message: str) -> None:
    """Warns through the logger, or as a UserWarning when the logger's level (ERROR by default) would hide it.

    Bytes of a path that are no UTF-8 are escaped: what collects warnings may not be able to send them.
    """
    message = printable(message)
    if logger.isEnabledFor(logging.WARNING):
        logger.warning("%s", message)
    else:
        warnings.warn(message, UserWarning, stacklevel=3)
