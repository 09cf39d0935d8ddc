# SPDX-License-Identifier: Apache-2.0
"""What holds for all tests."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import agreement
import pytest

# jsonschema imports it where it is there, and it makes 38 parsers of addresses: formats that no schema of ours has.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

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


_PASSED = pytest.StashKey[bool]()
# Tests of captures, whose hosts compute rightly; others write runs with wrong kernels.
_OF_CAPTURES = ("test_capture", "test_dump", "test_inject", "test_finished", "test_persistent")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if call.when == "call":
        item.stash[_PASSED] = report.passed
    return report


@pytest.fixture(autouse=True)
def _runs_agree_with_themselves(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every run that a test leaves in its folder is held against itself.

    Runs that a test has damaged are left alone when `assay verify` says so, else with the marker
    ``disagrees_with_itself("why")``.
    """
    if "tmp_path" not in request.fixturenames:
        yield
        return
    folder = request.getfixturevalue("tmp_path")
    yield
    assay = agreement.command()
    marked = request.node.get_closest_marker("disagrees_with_itself")
    if assay is None or marked is not None or not request.node.stash.get(_PASSED, False):
        return
    wrong_kernels = not request.node.path.name.startswith(_OF_CAPTURES)
    found = [
        (run, agreement.disagreement(assay, run, wrong_kernels=wrong_kernels)) for run in agreement.runs_below(folder)
    ]
    said = [f"{run}: {text}" for run, text in found if text]
    assert not said, "a run does not agree with itself:\n" + "\n".join(said)


@pytest.fixture(scope="session")
def _chromium() -> Iterator[Any]:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium on PATH; tools/setup.sh installs Debian's as root")
    with pytest.importorskip("playwright.sync_api").sync_playwright() as engine:
        chromium = engine.chromium.launch(executable_path=program, args=["--no-sandbox"])
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        yield chromium, loop
        asyncio._set_running_loop(loop)
        chromium.close()


@pytest.fixture
def browser(_chromium: Any) -> Iterator[Any]:
    """One for all tests. Its loop runs in a greenlet of this thread, where only a test that asks for it may find it."""
    chromium, loop = _chromium
    asyncio._set_running_loop(loop)
    yield chromium
    asyncio._set_running_loop(None)
