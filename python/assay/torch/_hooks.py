# SPDX-License-Identifier: Apache-2.0
"""Forward hooks that give way for a while."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable

__all__ = ["set_aside"]


def set_aside(handles: Iterable[Any]) -> Callable[[], None]:
    """Takes the hooks of `handles` (what register_forward_hook() returned) out; the result puts them back.

    They come last among their module's hooks then. A handle may be removed in the meantime, not its hook put back.
    """
    taken = []
    for handle in handles:
        hooks = handle.hooks_dict_ref()
        if hooks is not None and handle.id in hooks:
            taken.append((hooks, handle.id, hooks.pop(handle.id)))

    def put_back() -> None:
        for hooks, number, hook in taken:
            hooks[number] = hook

    return put_back
