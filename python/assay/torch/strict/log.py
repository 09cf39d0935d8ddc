# SPDX-License-Identifier: Apache-2.0
"""The logger of the strict names. It has no handler: warnings and errors reach stderr through Python's last resort,
and a host that configures logging gets everything."""

from __future__ import annotations

import logging

logger = logging.getLogger("msit_llm_logger")
logger.setLevel(logging.INFO)

_said: set[object] = set()


def warn_once(key: object, message: str) -> None:
    """Logs `message` the first time `key` is seen in this process."""
    if key not in _said:
        _said.add(key)
        logger.warning(message)


def forget_warnings() -> None:
    """Makes every :func:`warn_once` speak again."""
    _said.clear()
