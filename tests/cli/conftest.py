# SPDX-License-Identifier: Apache-2.0
"""The native command as a fixture."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Callable

import pytest
from assay_command import binary

Assay = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def assay_command() -> str:
    return binary()


@pytest.fixture(scope="session")
def assay(assay_command: str) -> Assay:
    """Runs `assay ARGUMENTS...` and gives its result; the exit status is the test's to check."""

    def run(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [assay_command, *map(str, arguments)], capture_output=True, text=True, timeout=120, **options
        )

    return run


@pytest.fixture(scope="session")
def atb_homes() -> dict[int, Path]:
    """The stub acceleration library of each string ABI, where the build put it: {0: .../cxx_abi_0, 1: ...}."""
    build = Path(os.environ.get("ASSAY_BUILD_DIR", "build/release")).absolute()
    homes = {abi: build / "examples" / "atb_host" / f"cxx_abi_{abi}" for abi in (0, 1)}
    assert all((home / "lib" / "libatb.so").exists() for home in homes.values()), f"not built: {homes}"
    return homes
