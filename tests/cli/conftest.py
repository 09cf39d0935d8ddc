# SPDX-License-Identifier: Apache-2.0
"""The native command as a fixture."""

from __future__ import annotations

import subprocess
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
