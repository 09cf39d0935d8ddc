# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C inside one large tensor or pair: every command ends within a second, says so, and leaves nothing half made."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import numpy as np
import pytest
from assay_command import binary, has_mapped, write_sparse_npy

FLOATS = 1 << 32  # 16 GiB of holes: several seconds for each command


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    for name in ("g.npy", "m.npy", "golden/x.npy", "mine/x.npy"):
        write_sparse_npy(folder / name, FLOATS)
    write_sparse_npy(folder / "shorter.npy", FLOATS - 2)
    for name in ("complex_g.npy", "complex_m.npy"):
        write_sparse_npy(folder / name, FLOATS // 2, "<c8")
    with open(folder / "mine" / "x.npy", "r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(np.float32(1).tobytes())
    return folder


@pytest.mark.parametrize(
    "words",
    [
        "compare g.npy m.npy -o {out}",
        "compare g.npy m.npy -o {out} --jobs 1",
        "compare g.npy m.npy -o {out} --stats",
        "compare g.npy m.npy -o {out} --compat msit",
        "compare g.npy m.npy -o {out} --compat ait-0.2",
        "compare g.npy shorter.npy -o {out}",
        "compare complex_g.npy complex_m.npy -o {out}",
        "compare golden mine -o {out}",
        "locate golden golden",
        "locate golden mine",
        "show g.npy --values --all",
        "show g.npy --histogram",
        "show g.npy --stats",
        "convert g.npy {out}.txt",
        "convert g.npy {out}.npy --dtype float16",
        "convert g.npy {out} --format cann",
        "convert golden {out} --to msprobe",
    ],
)
def test_ctrl_c_inside_one_large_tensor_ends_within_a_second(large, tmp_path, words):
    command = [word.format(out=tmp_path / "out") for word in words.split()]
    process = subprocess.Popen(
        [binary(), *command], cwd=large, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        while not has_mapped(process.pid, large):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.001)
        time.sleep(0.3)
        assert process.poll() is None, "it was faster than Ctrl-C"
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
        took = time.monotonic() - sent
    finally:
        process.kill()
    assert took < 1, f"{took:.1f} s; {said}"
    # What only prints ends by the signal, as `cat` does; a shell reports both as 130.
    assert process.returncode == (-signal.SIGINT if command[0] == "show" else 130), said
    assert command[0] == "show" or "interrupted" in said
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert left == []
