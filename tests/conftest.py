# SPDX-License-Identifier: Apache-2.0
"""What holds for all tests."""

from __future__ import annotations

import os
import signal
import zlib

import pytest

# A shell starts what it runs in the background (`make test &`) with Ctrl-C ignored, `nohup` with SIGHUP, and commands
# inherit that: those that tests interrupt would go on.
for _number, _handler in {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}.items():
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _handler)


def _has_room(folder: str) -> bool:
    """Whether the folder is in memory, may hold programs, and has room: tests write up to 3 GiB at the same time."""
    try:
        with open("/proc/mounts") as mounts, open("/proc/meminfo") as memory:
            kinds = {fields[1]: (fields[2], "noexec" in fields[3].split(",")) for fields in map(str.split, mounts)}
            available = next(int(line.split()[1]) for line in memory if line.startswith("MemAvailable:"))
        free = os.statvfs(folder)
    except (OSError, StopIteration):
        return False
    has_space = free.f_bavail * free.f_frsize >= 6 << 30 and available >= 12 << 20  # of the machine, in KiB
    return has_space and kinds.get(folder) == ("tmpfs", False)


# The temporary folders of tests are in memory where that is possible: a disk's file system may take a millisecond of a
# processor for each new file, when thousands were just removed.
if not {"TMPDIR", "PYTEST_DEBUG_TEMPROOT"} & set(os.environ) and _has_room("/dev/shm"):
    os.environ["PYTEST_DEBUG_TEMPROOT"] = "/dev/shm"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--parts", metavar="I,J,.../N", help="of N parts, some 1/N of the tests each, only these: 0,3/8")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests of parts that were not asked for. A test is always of the same part."""
    asked = config.getoption("--parts")
    if not asked:
        return
    chosen, _, count = asked.partition("/")
    parts = {int(part) for part in chosen.split(",")}
    kept, left = [], []
    for item in items:
        (kept if zlib.crc32(item.nodeid.encode()) % int(count) in parts else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept
