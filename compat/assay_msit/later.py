# SPDX-License-Identifier: Apache-2.0
"""Names of the original that are not served yet."""

from __future__ import annotations

from typing import Callable, NoReturn


def not_yet(module: str, names: tuple[str, ...] = ()) -> Callable[[str], NoReturn]:
    """Returns a module ``__getattr__`` that answers for `names` (all public ones when empty) with one sentence.

    It raises ImportError there, because Python replaces the text of an AttributeError when a name is imported.
    """

    def module_getattr(name: str) -> NoReturn:
        if name in names or (not names and not name.startswith("_")):
            raise ImportError(f"{module}.{name} arrives with a later version of assay.")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return module_getattr
