# SPDX-License-Identifier: Apache-2.0
"""A command that a signal ends leaves no files under temporary names."""

from __future__ import annotations

import signal
import subprocess
import time

import numpy as np
import pytest
from assay_command import binary


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_removes_the_file_that_is_being_written(tmp_path, number):
    np.save(tmp_path / "x.npy", np.zeros(16 << 20, np.float32))  # 64 MiB in blocks of 4 MiB
    for _ in range(20):
        process = subprocess.Popen(
            ["assay", "convert", tmp_path / "x.npy", tmp_path / "y.txt", "--force"], executable=binary()
        )
        deadline = time.monotonic() + 10
        while process.poll() is None and not list(tmp_path.glob("*.tmp*")) and time.monotonic() < deadline:
            time.sleep(0.001)
        seen = list(tmp_path.glob("*.tmp*"))
        process.send_signal(number)
        status = process.wait(timeout=30)
        assert list(tmp_path.glob("*.tmp*")) == []
        if seen and status == -number:
            return
    raise AssertionError("was never ended while it wrote")
