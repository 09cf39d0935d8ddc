# SPDX-License-Identifier: Apache-2.0
"""The socket between a native command and the driver of its parts; its frames are in src/cli/part_pipe.hpp."""

from __future__ import annotations

import enum
import hashlib
import socket
import struct
from dataclasses import dataclass


class End(enum.IntEnum):
    """What became of a part."""

    DONE = 0
    FAILED = 1
    STOPPED = 2  # by the user


@dataclass(frozen=True)
class Part:
    """A part of a command's work: ``body`` is what ``assay part`` reads."""

    number: int
    payload_bytes: int  # that it will read
    crosses_ranks: bool
    files: tuple[str, ...]
    body: bytes

    @property
    def digest(self) -> str:
        """Names the work: equal for the same tasks on the same records."""
        return hashlib.sha256(self.body).hexdigest()


class PartSocket:
    """The driver's end."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._file = end.makefile("rb")
        self.count = 0
        self._received = 0

    def begin(self) -> bool:
        """Waits for the command to ask for some parts; false when it has ended instead."""
        head = self._file.read(4)
        if not head:
            return False
        (self.count,) = struct.unpack("<I", head)
        self._received = 0
        return True

    def receive(self) -> Part | None:
        """The next part; ``None`` behind the last one. The command waits while nobody asks."""
        if self._received == self.count:
            return None
        self._received += 1
        number, size, crosses_ranks, file_count = struct.unpack("<IQBI", self._read(17))
        files = []
        for _ in range(file_count):
            (length,) = struct.unpack("<I", self._read(4))
            files.append(self._read(length).decode("utf-8", "surrogateescape"))
        (length,) = struct.unpack("<Q", self._read(8))
        return Part(number, size, bool(crosses_ranks), tuple(files), self._read(length))

    def answer(self, number: int, end: End, answer: bytes) -> None:
        """What became of a part: the answer of ``assay part``, or a reason as one clause."""
        self._socket.sendall(struct.pack("<IBQ", number, end, len(answer)) + answer)

    def _read(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) != size:
            raise EOFError("the command has ended")
        return data
