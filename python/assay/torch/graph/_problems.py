# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a configuration: one problem, and the exception that holds all of them.

This module does not import torch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

__all__ = ["ConfigurationError", "Problem", "folder_problems"]


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a configuration.

    Attributes:
        code: "EP0001" ... "EP0005" of docs/graph/dump-json.md.
        item: the place: "dump_list[0].layer[1]", "dump_config.dump_path".
        reason: what was expected and found.
        advice: what to write instead.
        original: whether the vendor's run time reports it too; it stops at the first one.
        fatal: False for a warning: the value is not used, or only GE refuses it.
    """

    code: str
    item: str
    reason: str
    advice: str = ""
    original: bool = True
    fatal: bool = True

    def __str__(self) -> str:
        return f"{self.code} {self.item}: {self.reason}" + (f" {self.advice}" if self.advice else "")


class ConfigurationError(ValueError):
    """Everything that is wrong with a configuration, found before anything is compiled.

    Attributes:
        problems: all of them, in the order in which the vendor's run time checks.
        path: the file they are in, or "".
    """

    def __init__(self, problems: Sequence[Problem], path: str = "") -> None:
        self.problems = tuple(problems)
        self.path = path
        count = len(self.problems)
        head = f"{path}: " if path else ""
        errors = "1 error" if count == 1 else f"{count} errors"
        super().__init__(f"{head}{errors} in the dump configuration\n  " + "\n  ".join(map(str, self.problems)))

    @property
    def first(self) -> Optional[Problem]:
        """The one that the vendor's run time would report; None when it would report none of them."""
        return next((problem for problem in self.problems if problem.original), None)


def folder_problems(item: str, path: str, code: str) -> list[Problem]:
    """Why ``path`` cannot take a dump: missing, not a directory, not readable and writable."""
    advice = "Give a folder that exists and that this user can read and write."
    if not os.path.exists(path):
        return [Problem(code, item, f"{path!r} does not exist.", advice)]
    if not os.path.isdir(path):
        return [Problem(code, item, f"{path!r} is not a directory.", advice)]
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return [Problem(code, item, f"{path!r} is not readable and writable.", advice)]
    return []
