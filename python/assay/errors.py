# SPDX-License-Identifier: Apache-2.0
"""The exceptions of assay. Every failure is an :class:`Error` with a code, a path and a byte offset."""

from __future__ import annotations

from typing import Optional

__all__ = ["Error", "FileError", "FormatError", "make_error"]


class Error(Exception):
    """A failure that assay reports.

    Attributes:
        code: a short name such as ``"Truncated"`` or ``"NotFound"`` (docs/commands/assay.md lists them).
        path: the file or folder concerned, or None.
        offset: the byte offset in that file, or None.
        message: one sentence without path and offset; ``str(error)`` has all three.
    """

    def __init__(self, code: str, message: str, path: Optional[str] = None, offset: Optional[int] = None):
        self.code = code
        self.message = message
        self.path = path
        self.offset = offset
        where = f"{path}: " if path else ""
        at = f"at byte {offset}: " if offset is not None else ""
        super().__init__(f"{where}{at}{message}")


class FileError(Error, OSError):
    """The operating system refused: missing file, permission, disk full."""


class FormatError(Error, ValueError):
    """The bytes or the arguments are wrong."""


_FILE_CODES = frozenset({"NotFound", "Permission", "NoSpace", "Io"})


def make_error(code: str, message: str, path: Optional[str] = None, offset: Optional[int] = None) -> Error:
    """Returns the exception for a code of the native half: FileError or FormatError."""
    kind = FileError if code in _FILE_CODES else FormatError
    return kind(code, message, path, offset)
