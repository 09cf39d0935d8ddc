# SPDX-License-Identifier: Apache-2.0
"""The checked-in stub of assay._core says what the module has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

STUB = Path(__file__).resolve().parents[2] / "python" / "assay" / "_core.pyi"


def test_the_stub_is_what_stubgen_writes_for_the_installed_module(tmp_path):
    fresh = tmp_path / "_core.pyi"
    command = [sys.executable, "-m", "nanobind.stubgen", "-P", "-q", "-m", "assay._core", "-o", str(fresh)]
    subprocess.run(command, check=True)
    assert STUB.read_text() == fresh.read_text(), f"renew it with: {' '.join(command[:-1])} {STUB}"
