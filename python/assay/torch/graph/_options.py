# SPDX-License-Identifier: Apache-2.0
"""Options that check what is assigned to them, and groups of options.

A group holds leaves. ``group.name = value`` calls the leaf's setter, reading ``group.name`` gives the leaf itself:
its truth value is that of what was assigned, ``.value`` is the text that scripts and the engine see ("1", "0", a str,
or None). A wrong value raises the leaf's exception with the place, the reason and what to write instead.

The kinds and their exceptions are those of the vendor's ``CompilerConfig``. This module does not import torch.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

__all__ = [
    "Choice",
    "Dictionary",
    "ExistingDirectory",
    "ExistingFile",
    "ExistingJsonFile",
    "Function",
    "IntegerList",
    "IntegerRange",
    "Leaf",
    "OptionGroup",
    "RealPath",
    "Text",
    "TextPattern",
    "explain",
]

Options = dict[str, Any]


class Leaf:
    """One option: a default and the value assigned last.

    ``None`` is accepted whenever it is the documented default, so that an option can be set back.
    """

    def __init__(self, default: Any = None) -> None:
        self._default = default
        self._value = default

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._value!r})"

    @property
    def default(self) -> Any:
        return self._default

    @property
    def optional(self) -> Optional[Sequence[Any]]:
        """The allowed values, or None where a rule decides."""
        return None

    @property
    def raw(self) -> Any:
        """What was assigned, unchanged."""
        return self._value

    @property
    def value(self) -> Any:
        """None, "1" for True, "0" for False, else the text of the value."""
        if self._value is None:
            return None
        if isinstance(self._value, bool):
            return "1" if self._value else "0"
        return str(self._value)

    @value.setter
    def value(self, value: Any) -> None:
        self._value = self._checked(value)

    @property
    def changed(self) -> bool:
        return bool(self._value != self._default)

    def _checked(self, value: Any) -> Any:
        return value


class Choice(Leaf):
    """One of a list, found with ``in``: where True is allowed, 1 is as well."""

    def __init__(self, default: Any, allowed: Sequence[Any]) -> None:
        super().__init__(default)
        self._allowed = list(allowed)

    @property
    def optional(self) -> Sequence[Any]:
        return list(self._allowed)

    def _checked(self, value: Any) -> Any:
        if value is None and self._default is None:
            return None
        if value not in self._allowed:
            raise ValueError(
                f"{value!r} (type {type(value).__name__}) is not allowed. "
                f"Choose one of {self._allowed!r} (type {type(self._allowed[0]).__name__})."
            )
        # 1 for True and 0 for False become the member itself, so that .value is the same for both.
        return self._allowed[self._allowed.index(value)]


class IntegerRange(Leaf):
    """An int in [low, high]."""

    def __init__(self, default: Optional[int], low: int, high: int) -> None:
        super().__init__(default)
        self._low = low
        self._high = high

    def _checked(self, value: Any) -> Any:
        if value is None and self._default is None:
            return None
        if not isinstance(value, int):
            raise ValueError(f"{value!r} (type {type(value).__name__}) is not an int.")
        if not self._low <= value <= self._high:
            raise ValueError(f"{value} is out of range: choose an int from {self._low} to {self._high}.")
        return value


class IntegerList(Leaf):
    """A list of int, or None."""

    @property
    def value(self) -> Any:
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        if value is not None and not isinstance(value, (list, tuple)):
            raise TypeError(f"{value!r} (type {type(value).__name__}) is not a list of int.")
        for item in value or ():
            if not isinstance(item, int):
                raise TypeError(f"the list holds {item!r} (type {type(item).__name__}), which is not an int.")
        self._value = [] if value is None else value


class Text(Leaf):
    """A str, or None."""

    def _checked(self, value: Any) -> Any:
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{value!r} (type {type(value).__name__}) is not a str.")
        return value


class Dictionary(Leaf):
    """A dict, or None; handed on as it is."""

    @property
    def value(self) -> Any:
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        if value is not None and not isinstance(value, dict):
            raise TypeError(f"{value!r} (type {type(value).__name__}) is not a dict.")
        self._value = value


class Function(Leaf):
    """A callable, or None; handed on as it is."""

    @property
    def value(self) -> Any:
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        if value is not None and not callable(value):
            raise TypeError(f"{value!r} (type {type(value).__name__}) cannot be called.")
        self._value = value


class ExistingDirectory(Leaf):
    """A directory that is there when it is assigned."""

    def _checked(self, value: Any) -> Any:
        text = _path_text(value)
        if text is None or not os.path.exists(text):
            raise FileNotFoundError(f"{value!r} is not found. Give a directory that exists.")
        if not os.path.isdir(text):
            raise FileNotFoundError(f"{value!r} is not a directory. Give a directory that exists.")
        return text


class ExistingFile(Leaf):
    """A regular file that is there when it is assigned, or None."""

    def _checked(self, value: Any) -> Any:
        if value is None:
            return None
        text = _path_text(value)
        if text is None or not os.path.isfile(text):
            raise FileNotFoundError(f"{value!r} is not found or not a file. Give a file that exists.")
        return text


class ExistingJsonFile(Leaf):
    """A regular file that is there when it is assigned and whose name ends in ``.json``, or None."""

    def _checked(self, value: Any) -> Any:
        if value is None:
            return None
        if value == "":
            raise ValueError("The path is empty. Give a .json file that exists, or None.")
        text = _path_text(value)
        if text is None or not os.path.isfile(text) or not text.endswith(".json"):
            raise FileNotFoundError(f"{value!r} is not found or not a '.json' file. Give a .json file that exists.")
        return text


class RealPath(Leaf):
    """A path, made absolute and free of links when it is assigned; need not exist yet."""

    def _checked(self, value: Any) -> Any:
        return None if value is None else os.path.realpath(value)


class TextPattern(Leaf):
    """A str of a documented form, checked by a function that raises ValueError.

    Args:
        default: the value before any assignment; ``None`` sets it back.
        check: raises ValueError with position and reason.
        pattern: the form as a regular expression, shown in the message only (matching it could take exponential time).
        example: a correct value, shown in the message.
    """

    def __init__(self, default: str, check: Callable[[str], Any], pattern: str, example: str) -> None:
        super().__init__(default)
        self._check = check
        self._pattern = pattern
        self._example = example

    def _checked(self, value: Any) -> Any:
        if value is None:
            return self._default
        if not isinstance(value, str):
            raise TypeError(f"{value!r} (type {type(value).__name__}) is not a str.")
        try:
            self._check(value)
        except ValueError as error:
            shown = value if len(value) <= 120 else value[:117] + "..."
            raise ValueError(
                f"{shown!r} is not legal: {error} Its form is {self._pattern}, correct example: {self._example}"
            ) from None
        return value


def _path_text(value: Any) -> Optional[str]:
    if not isinstance(value, (str, os.PathLike)):
        return None
    text = os.fspath(value)
    # A NUL inside a path makes os.path raise instead of answering.
    return text if isinstance(text, str) and text and "\0" not in text else None


def explain(error: BaseException) -> str:
    """The last line of a configuration error: time, process and a category of the vendor's table.

    With the vendor's torch_npu in the process its own function gives the line, device and rank included.
    """
    vendor = _vendor_line(error)
    if vendor is not None:
        return vendor
    now = time.strftime("%Y-%m-%d-%H:%M:%S", time.localtime())
    return f"\n[ERROR] {now} (PID:{os.getpid()}, Device:-1, RankID:-1) ERR03005 GRAPH internal error"


def _vendor_line(error: BaseException) -> Optional[str]:
    if "torch_npu" not in sys.modules:
        return None
    try:
        from torch_npu.utils._error_code import ErrCode, graph_error  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    code = ErrCode.INTERNAL
    if isinstance(error, NotImplementedError):
        code = ErrCode.NOT_SUPPORT
    elif isinstance(error, (ValueError, AssertionError)):
        code = ErrCode.PARAM
    elif isinstance(error, FileNotFoundError):
        code = ErrCode.NOT_FOUND
    return str(graph_error(code))


class OptionGroup:
    """Options and smaller groups. Names are fixed once ``super().__init__()`` ran, at the end of each ``__init__``."""

    _names: tuple[str, ...]
    # Spelling in assignments -> name of the leaf, where they differ.
    _aliases: Mapping[str, str] = {}

    def __init__(self) -> None:
        object.__setattr__(self, "_names", tuple(vars(self)))

    def __setattr__(self, name: str, value: Any) -> None:
        if "_names" not in vars(self):
            object.__setattr__(self, name, value)
            return
        try:
            self._assign(self._aliases.get(name, name), name, value)
        except Exception as error:
            text = "\n".join([str(error), traceback.format_exc(), explain(error)])
            raise type(error)(text) from None

    def _assign(self, name: str, spelled: str, value: Any) -> None:
        if name not in self._names:
            from difflib import get_close_matches

            back = {option: alias for alias, option in self._aliases.items()}
            known = [back.get(option, option) for option in self._names]
            near = get_close_matches(spelled, known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise ValueError(f"{type(self).__name__}: unknown option {spelled!r}.{hint} Known options: {known}")
        current = vars(self)[name]
        if isinstance(current, Leaf):
            try:
                current.value = value
            except Exception as error:
                raise type(error)(f"{type(self).__name__}.{spelled}: {error}") from None
        elif isinstance(value, type(current)):
            object.__setattr__(self, name, value)
        else:
            raise ValueError(
                f"{type(self).__name__}.{spelled} is a group of options, not a value: set one of its options "
                f"{list(current._names)}"
            )

    def __repr__(self) -> str:
        changed = ", ".join(f"{path}={leaf.raw!r}" for path, leaf in self.leaves() if leaf.changed)
        return f"{type(self).__name__}({changed})"

    def leaves(self, prefix: str = "") -> list[tuple[str, Leaf]]:
        """Every option below this group as ("dump_config.dump_mode", leaf), in the order of definition."""
        found: list[tuple[str, Leaf]] = []
        for name in self._names:
            value = vars(self)[name]
            if isinstance(value, OptionGroup):
                found += value.leaves(f"{prefix}{name}.")
            elif isinstance(value, Leaf):
                found.append((prefix + name, value))
        return found

    def as_dict(self, mode: str = "max-autotune") -> tuple[Options, Options]:
        """Returns (local, global) engine options of this group: here every leaf that is not None, under its name."""
        local: Options = {}
        global_: Options = {}
        for name in self._names:
            value = vars(self)[name]
            if isinstance(value, OptionGroup):
                below = value.as_dict(mode)
                local.update(below[0])
                global_.update(below[1])
            elif isinstance(value, Leaf) and value.value is not None:
                local[name] = value.value
        return local, global_
