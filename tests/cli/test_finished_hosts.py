# SPDX-License-Identifier: Apache-2.0
"""A capture of ggml or ATB is finished when what it was asked for is there, however its program ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from assay_command import binary, run

BUILD = Path(os.environ.get("ASSAY_BUILD_DIR", "build/release")).absolute()
# Each goes on until somebody ends it; that of ggml prints a line for each graph.
SERVERS = {
    "ggml": [BUILD / "tests" / "ggml" / "fake_host_shuffled", 1_000_000_000],
    "atb": [
        BUILD / "examples" / "atb_host" / "atb_host_abi1",
        *("--layers", 1, "--hidden", 32, "--prompt", 8, "--steps", 3, "--requests", 1_000_000),
    ],
}
ENDS = [signal.SIGKILL, signal.SIGINT]


def serve(folder: Path, host: str, end: signal.Signals, *options: str, lines: int = 100) -> tuple[Path, str]:
    """Captures the server until it has printed so much and what was captured is still, and ends it. Returns the run
    and what the command said."""
    program = f"echo $$ > pid; exec {' '.join(map(str, SERVERS[host]))}"
    words = [binary(), "dump", "--host", host, "-o", "run", *options, "--", "sh", "-c", program]
    with open(folder / "said", "w") as said, open(folder / "printed", "w") as printed:
        command = subprocess.Popen(words, cwd=folder, stdout=printed, stderr=said)
    limit = time.monotonic() + 60
    least = lines if host == "ggml" else 0
    while (folder / "printed").read_text().count("\n") < least or not is_still(folder / "run", options):
        assert time.monotonic() < limit and command.poll() is None, (folder / "said").read_text()
        time.sleep(0.02)
    os.kill(int((folder / "pid").read_text()), end)
    command.wait(timeout=60)
    (root,) = [*(folder / "run").glob("msit_dump_*")] or [folder / "run"]
    return root, (folder / "said").read_text()


def is_still(run_folder: Path, options: tuple[str, ...]) -> bool:
    """Of a capture that has an end; of others something is there."""

    def sizes() -> dict[Path, tuple[int, int]]:
        files = (path for path in run_folder.rglob("*") if path.is_file() and "probe_status" not in path.name)
        return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in files}

    before = sizes()
    if "all" in options or any("900" in option for option in options):
        return any("records" in path.name or path.suffix == ".bin" for path in before)
    time.sleep(0.5)
    return any("rank0" in str(path) or "tensors" in str(path) for path in before) and before == sizes()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    ("host", "options"),
    [
        ("ggml", ()),
        ("ggml", ("--steps", "1,3-4")),
        ("ggml", ("--steps", "0-2", "--statistics")),
        ("atb", ("-er", "0,0")),
        ("atb", ("-er", "1,1,3,4")),
        ("atb", ("-er", "0,1", "--layout", "strict")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_a_server_that_is_ended_behind_its_steps(tmp_path, host, options, end):
    finished, said = serve(tmp_path, host, end, *options)
    verified = run("verify", finished)
    assert verified.returncode == 0 and verified.stdout.startswith("whole: "), verified.stdout
    located = json.loads(run("locate", finished, finished, "--json").stdout)
    assert "did not finish" not in located["sentence"] and located["exit_status"] != 1
    assert "INCOMPLETE" not in run("show", finished).stdout
    assert "complete" not in said, said  # "before its capture was complete"


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    ("host", "options"),
    [
        ("ggml", ("--steps", "0,900000000")),
        ("ggml", ("--steps", "all")),
        ("atb", ("-er", "0,0,900000000,900000001")),
        ("atb", ("-er", "all", "--layout", "strict")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_a_server_that_is_ended_before_its_steps(tmp_path, host, options, end):
    unfinished, said = serve(tmp_path, host, end, *options, lines=5)
    assert run("verify", unfinished).returncode == 125
    located = json.loads(run("locate", unfinished, unfinished, "--json").stdout)
    assert located["outcome"] == "cannot_judge"
    assert "INCOMPLETE" in run("show", unfinished).stdout
    assert "complete" in said


def test_a_host_that_is_killed_between_a_header_and_its_length(tmp_path):
    # Given a run whose host is killed far behind its first step: what is written then is whole.
    unfinished, _ = serve(tmp_path, "ggml", signal.SIGKILL, "--steps", "all", lines=2000)
    step = min(unfinished.rglob("step-*.safetensors"))
    # When the length of its header is not there, which is written last, but the header and its digest are.
    with open(step, "r+b") as file:
        assert int.from_bytes(file.read(8), "little") > 0 and b'"digest"' in file.read(1024)
        file.seek(0)
        file.write(bytes(8))
    # Then the run ends there and is not damaged.
    verified = run("verify", unfinished)
    assert verified.returncode == 125 and verified.stdout.startswith("incomplete: "), verified.stdout


def test_a_step_that_comes_after_all_opens_the_dump_again(tmp_path):
    # A prompt's model runs once a request, the decoder three times: behind the prompt's second run (1, not asked for)
    # the decoder begins with runs that are.
    finished, _ = serve(tmp_path, "atb", signal.SIGKILL, "-er", "0,0,4,5")
    assert run("verify", finished).returncode == 0
    steps = {line.split()[1] for line in run("show", finished, "--all").stdout.splitlines() if line.startswith("step ")}
    assert steps <= {"0", "4", "5"}
