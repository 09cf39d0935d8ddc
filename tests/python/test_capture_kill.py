# SPDX-License-Identifier: Apache-2.0
"""SIGKILL at random moments: what is left opens, and every record that is there is right.

A helper process imports torch once and forks a host a kill, which captures in a loop until it dies. Each surviving
record is checked against its own bytes: statistics recomputed from the file must equal those of the line.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("assay.torch.capture")

from bench import record_lines

KILLS = 50

HELPER = """
import os, random, signal, sys, time
import torch, assay
torch.set_num_threads(1)
folder, seed, kills = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
chance = random.Random(seed)
for kill in range(kills):
    delay = chance.choice([chance.uniform(0, 0.005), chance.uniform(0, 0.2)])
    rows = chance.choice([1, 50, 3000])  # few bytes: buffered tails only; many: direct blocks
    begun, started = os.pipe()
    host = os.fork()
    if host == 0:
        try:
            os.close(begun)
            torch.manual_seed(kill)
            model = torch.nn.Sequential(torch.nn.Linear(63, 64), torch.nn.ReLU(), torch.nn.Linear(64, 7))
            with torch.no_grad(), assay.capture(model, f"{folder}/{kill:02}", queue_bytes=8 << 20):
                os.write(started, b"x")
                while True:
                    model(torch.randn(rows, 63))
        finally:
            os._exit(9)
    os.close(started)
    os.read(begun, 1)
    time.sleep(delay)
    os.kill(host, signal.SIGKILL)
    _, status = os.waitpid(host, 0)
    os.close(begun)
    assert os.WIFSIGNALED(status), f"host {kill} ended by itself with {status}"
"""


def check_run(run: Path) -> int:
    """Returns how many records were checked against their bytes."""
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["complete"] is False and manifest["finished"] is None
    json.loads((run / "rank0/topology.json").read_text())
    text = (run / "rank0/records.jsonl").read_bytes()
    complete = text[: text.rfind(b"\n") + 1]
    records = record_lines.whole(complete.decode().splitlines(keepends=True))
    assert [r["n"] for r in records] == list(range(len(records)))
    for record in records:
        path = run / "rank0" / record["file"]
        assert path.stat().st_size >= record["offset"] + record["bytes"], record
        values = np.fromfile(path, np.float32, record["bytes"] // 4, offset=record["offset"]).astype(np.float64)
        assert values.size == int(np.prod(record["shape"])) == record["stats"]["count"]
        assert values.min() == record["stats"]["min"] and values.max() == record["stats"]["max"]
        assert np.isclose(values.sum() / values.size, record["stats"]["mean"], rtol=1e-9, atol=1e-12)
        assert np.isclose(np.sqrt((values**2).sum()), record["stats"]["l2"], rtol=1e-9)
        if "same_as" in record:
            assert records[record["same_as"]]["offset"] == record["offset"]
    # A step file is either closed, with a header of its own length, or still has the zeros it was reserved with.
    for path in (run / "rank0").glob("*.safetensors"):
        head = path.read_bytes()[:8]
        length = int.from_bytes(head, "little")
        if length:
            with open(path, "rb") as file:
                file.seek(8)
                json.loads(file.read(length))
    return len(records)


def test_fifty_kills_leave_runs_that_are_right_as_far_as_they_go(tmp_path: Path) -> None:
    seed = int(os.environ.get("ASSAY_TEST_SEED", random.randrange(2**32)))
    print(f"seed: ASSAY_TEST_SEED={seed}")
    done = subprocess.run(
        [sys.executable, "-c", HELPER, str(tmp_path), str(seed), str(KILLS)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    runs = sorted(tmp_path.iterdir())
    assert len(runs) == KILLS
    checked = [check_run(run) for run in runs]
    # Most hosts live long enough to leave something; a test in which none did would show nothing.
    assert sum(checked) > KILLS


def test_a_killed_run_opens(tmp_path: Path) -> None:
    pytest.importorskip("assay._core")
    import assay

    seed = int(os.environ.get("ASSAY_TEST_SEED", random.randrange(2**32)))
    print(f"seed: ASSAY_TEST_SEED={seed}")
    subprocess.run([sys.executable, "-c", HELPER, str(tmp_path), str(seed), "5"], check=True)
    for path in sorted(tmp_path.iterdir()):
        lines = (path / "rank0/records.jsonl").read_bytes().count(b"\n")
        assert len(assay.open(str(path)).records) == lines


GRAPH_HOST = """
import os, signal, sys
import torch
from assay.torch.graph import CompilerConfig, get_backend
config = CompilerConfig()
if sys.argv[2] == "fx":
    config.debug.data_dump.type, config.debug.data_dump.path = "npy", sys.argv[1]
else:
    config.dump_config.enable_dump, config.dump_config.dump_path = True, sys.argv[1]
backend = get_backend(config)
def compile_and_die(graph, inputs):
    backend(graph, inputs)
    os.kill(os.getpid(), signal.SIGKILL)
compiled = torch.compile(lambda x: x * 2, backend=compile_and_die)
with torch.no_grad():
    compiled(torch.ones(3))
"""


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["fx", "ge"])
def test_a_run_killed_between_compiling_and_the_first_operator_opens(tmp_path: Path, layout: str) -> None:
    pytest.importorskip("assay._core")
    import assay

    # Given a program that was killed when its first graph was compiled, and had not run
    done = subprocess.run([sys.executable, "-c", GRAPH_HOST, str(tmp_path), layout], capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} <= {".json", ".txt"}
    # When it is opened
    run = assay.open(tmp_path)
    # Then it has no record, and does not claim to be whole
    assert (run.layout, list(run.records), run.coverage.complete) == (f"{layout}-tree", [], False)
