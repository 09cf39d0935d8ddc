# SPDX-License-Identifier: Apache-2.0
"""A dump of graph mode is complete when the steps that it was asked for are on disk, however its program ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import warm_python

# A server of two graphs; the second one is met later.
SERVER = """
import sys, time, torch
from assay.torch.graph import CompilerConfig, get_backend

config = CompilerConfig()
config.dump_config.enable_dump = True
config.dump_config.dump_path, config.execution.layout, config.dump_config.dump_step = sys.argv[1:]
backend = get_backend(config)
first = torch.compile(lambda x: torch.relu(x * 2) + 1, backend=backend)
second = torch.compile(lambda x: torch.sigmoid(x) - 1, backend=backend)
for call in range(1_000_000):
    first(torch.ones(64))
    if call >= 4:
        second(torch.ones(64))
    print(call, flush=True)
    time.sleep(0.02)
"""


def serve(folder: Path, layout: str, steps: str, end: signal.Signals, calls: int = 12) -> Path:
    """Ends the server when it has come so far and its files are still. Returns the run."""
    words = [warm_python.python(), "-c", "import os; print(os.getpid(), flush=True)\n" + SERVER, folder, layout, steps]
    host = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    pid = int(host.stdout.readline())
    while int(host.stdout.readline()) < calls:
        pass
    limit = time.monotonic() + 30
    while (before := sizes(folder)) != (time.sleep(0.3) or sizes(folder)):
        assert before and time.monotonic() < limit
    os.kill(pid, end)
    host.communicate(timeout=30)
    (index,) = folder.rglob("graphs.json")
    return index.parent


def sizes(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.suffix != ".json"}


def verify(run: Path) -> subprocess.CompletedProcess[str]:
    command = os.environ.get("ASSAY_BINARY") or str(Path(sys.executable).with_name("assay"))
    return subprocess.run([command, "verify", run], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("layout", ["native", "ge"])
def test_a_server_that_is_ended_behind_its_steps(tmp_path: Path, layout: str, end: signal.Signals) -> None:
    run = serve(tmp_path, layout, "0|2", end)
    index = json.loads((run / "graphs.json").read_text())
    assert index["complete"] is True
    assert [graph["steps"] for graph in index["graphs"]] == [[0, 2], [0, 2]]
    verified = verify(run)
    assert verified.returncode == 0 and verified.stdout.startswith("whole: "), verified.stdout


@pytest.mark.parametrize("layout", ["native", "ge"])
def test_a_server_that_is_ended_before_its_steps(tmp_path: Path, layout: str) -> None:
    run = serve(tmp_path, layout, "0|900000", signal.SIGKILL)
    assert json.loads((run / "graphs.json").read_text())["complete"] is False
    assert verify(run).returncode == 125
