# SPDX-License-Identifier: Apache-2.0
"""Where the captures of a bench go, and how they are cleared without slowing the next one down.

ext4 without a journal does not give an inode out again for up to six minutes after its file was deleted, and looks at
each such inode whenever a file is created near it: after a bench had deleted some ten thousand files, creating one
took 1 to 3 ms, against some 20 us on tmpfs. So files are emptied between samples and deleted at the end, and
the folders of the samples are spread over the disk.
"""

from __future__ import annotations

import array
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602  # FS_IOC_GETFLAGS, FS_IOC_SETFLAGS
_TOP_OF_HIERARCHY = 0x00020000  # FS_TOPDIR_FL: sub-folders are unrelated, so ext4 spreads them


def _spread(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        flags = array.array("l", [0])
        fcntl.ioctl(descriptor, _GET_FLAGS, flags, True)
        flags[0] |= _TOP_OF_HIERARCHY
        fcntl.ioctl(descriptor, _SET_FLAGS, flags, True)
    except OSError:
        pass  # another file system: nothing to spread
    finally:
        os.close(descriptor)


@contextmanager
def scratch_folder(work: Path) -> Iterator[Path]:
    """Yields a fresh folder below `work`, deleted at the end with all that is in it."""
    folder = work / f"scratch-{os.getpid()}"
    folder.mkdir(parents=True)
    _spread(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def empty(folder: Path) -> None:
    """Gives back the bytes of all files below `folder`, not their inodes."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            if os.stat(path).st_size > 0:
                os.truncate(path, 0)
