# SPDX-License-Identifier: Apache-2.0
"""pandas, which is used only where a caller asks for a table of it."""

from __future__ import annotations

from types import ModuleType

__all__ = ["pandas_or_raise"]


def pandas_or_raise(instead: str) -> ModuleType:
    """Returns the module.

    Args:
        instead: what has the same without pandas: ``".rows"``.

    Raises:
        ImportError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError as missing:
        raise ImportError(f"needs pandas: pip install pandas; without it {instead} has the same") from missing
    return pandas  # type: ignore[no-any-return]
