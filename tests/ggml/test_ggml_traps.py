# SPDX-License-Identifier: Apache-2.0
"""Programs that fork, nest, stop and run out of room under the probe: they do what they do without it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from bench import record_lines
from test_ggml_capture import capture, ggml_probe, plain_run  # noqa: F401 - a fixture


@pytest.fixture(scope="module")
def trap_host(build_folder) -> Path:
    return build_folder / "tests" / "ggml" / "trap_host"


def second(step: int, count: int = 8) -> np.ndarray:
    """rms_norm(x) + x of the host's graph `step`."""
    x = (np.arange(count) + step).reshape(-1, 4)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.25) + x


def check_run(run, steps=range(3)):
    outputs = {(out.step, out.name): out for out in run.outputs()}
    for step in steps:
        mine = np.frombuffer(outputs[step, "second"].raw, np.float32)
        np.testing.assert_allclose(mine, second(step).reshape(-1), rtol=1e-6)


@pytest.mark.parametrize("kind", ["fork", "fork-quietly"])
def test_a_child_forked_in_the_middle_of_a_graph_goes_on(kind, trap_host, ggml_probe, tmp_path):  # noqa: F811
    mine = capture(ggml_probe, tmp_path / "out", [trap_host, kind])

    # Four calls of the callback a graph, a child at every third: each goes on to the last graph and ends with 7.
    assert mine.stdout == plain_run([trap_host, kind])
    assert mine.stdout.count("child 7\n") == 4
    assert "assay" not in mine.stderr
    check_run(mine)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["complete"] and [step["step"] for step in manifest["steps"]] == [0, 1, 2]
    # A child's folder is its own and holds what it computed after the graph that it was born in.
    for folder in (tmp_path / "out").glob("rank0-*"):
        lines = record_lines.read(folder / "records.jsonl")
        assert {line["step"] for line in lines} <= {1, 2}


def test_quick_exit_keeps_everything(trap_host, ggml_probe, tmp_path):  # noqa: F811
    mine = capture(ggml_probe, tmp_path / "out", [trap_host, "quick"])

    assert mine.stdout == plain_run([trap_host, "quick"])
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["complete"]
    check_run(mine)


def test_a_callback_that_computes_on_another_scheduler(trap_host, ggml_probe, tmp_path):  # noqa: F811
    mine = capture(ggml_probe, tmp_path / "out", [trap_host, "nested"])

    assert mine.stdout == plain_run([trap_host, "nested"])
    # Graphs are counted as they begin: the outer one, then one inside of each of its two asks.
    names = {out.step: out.name for out in mine.outputs()}
    assert [names[step] for step in range(9)] == ["second", "sched1/second", "sched1/second"] * 3
    outputs = {(out.step, out.name): out for out in mine.outputs()}
    for step in (0, 3, 6):
        values = np.frombuffer(outputs[step, "second"].raw, np.float32)
        np.testing.assert_allclose(values, second(step // 3).reshape(-1), rtol=1e-6)


def test_graphs_without_a_scheduler_are_counted_and_told(trap_host, ggml_probe, tmp_path):  # noqa: F811
    (tmp_path / "reports").mkdir()

    mine = capture(ggml_probe, tmp_path / "out", [trap_host, "direct"], report_dir=str(tmp_path / "reports"))

    assert mine.stdout == plain_run([trap_host, "direct"])
    (report,) = (tmp_path / "reports").glob("ggml_*.json")
    message = json.loads(report.read_text())["message"]
    assert message.startswith("3 ggml graphs were computed without a scheduler")
    assert not (tmp_path / "out").exists()


def test_a_limit_on_files_stops_the_capture_alone(trap_host, ggml_probe, tmp_path):  # noqa: F811
    # 1 MiB a file; a graph has 12 MiB. Without blocking, SIGXFSZ would end the program.
    command = ["bash", "-c", f"ulimit -f 1024; exec '{trap_host}' large"]

    mine = capture(ggml_probe, tmp_path / "out", command)

    assert mine.stdout == plain_run([trap_host, "large"])
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert "File too large" in manifest["sink"]["stopped"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_folder_that_cannot_be_made_leaves_the_program_alone(trap_host, ggml_probe):  # noqa: F811
    mine = capture(ggml_probe, Path("/dev/full/out"), [trap_host, "quick"])

    assert mine.stdout == plain_run([trap_host, "quick"])
    assert mine.stderr.count("capture off, the run continues") == 1


def test_a_static_program_is_told_at_the_end(build_folder, tmp_path):
    from_command = os.environ.get("ASSAY_BINARY")
    if not from_command:
        pytest.skip("ASSAY_BINARY names no command")
    program = build_folder / "tests" / "ggml" / "fake_host_static"

    done = subprocess.run(
        [from_command, "dump", "--host", "ggml", "-o", tmp_path / "out", "--", program],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert done.returncode == 0
    assert done.stdout == plain_run([program])
    assert "linked statically" in done.stderr or "statically linked" in done.stderr


def test_a_disk_error_stands_in_everything_that_is_said(trap_host, ggml_probe, tmp_path):  # noqa: F811
    command = ["bash", "-c", f"ulimit -f 1024; exec '{trap_host}' large"]

    capture(ggml_probe, tmp_path / "out", command, report_dir=str(tmp_path))

    for path in [tmp_path / "out" / "manifest.json", *(tmp_path / "out").glob("rank*/manifest.json")]:
        manifest = json.loads(path.read_text())
        assert manifest["complete"] is False and "File too large" in manifest["sink"]["stopped"]
    (report,) = tmp_path.glob("ggml_*.json")
    assert "File too large" in json.loads(report.read_text())["message"]


def test_a_manifest_is_whole_or_not_there(trap_host, ggml_probe, tmp_path):  # noqa: F811
    # No file may grow at all: the manifest cannot be written, and its name is not taken without it.
    command = ["bash", "-c", f"ulimit -f 0; exec '{trap_host}' large"]

    mine = capture(ggml_probe, tmp_path / "out", command)

    assert mine.stdout == plain_run([trap_host, "large"])
    assert "manifest.json" in mine.stderr and "File too large" in mine.stderr
    assert not list((tmp_path / "out").rglob("*.tmp*"))
    assert not list((tmp_path / "out").rglob("manifest.json"))


@pytest.mark.parametrize("after_ms", [0, 5, 20, 60])
def test_a_killed_host_leaves_no_empty_manifest(after_ms, trap_host, ggml_probe, tmp_path):  # noqa: F811
    command = ["bash", "-c", f"timeout -s KILL {0.001 + after_ms / 1000} '{trap_host}' large; true"]

    capture(ggml_probe, tmp_path / "out", command)

    for path in tmp_path.rglob("manifest.json"):
        assert json.loads(path.read_text())["format"] == "assay-run"


def test_the_command_s_last_lines_do_not_contradict_a_disk_error(trap_host, ggml_probe, tmp_path):  # noqa: F811
    command = os.environ.get("ASSAY_BINARY")
    if not command:
        pytest.skip("ASSAY_BINARY names no command")
    host = ["bash", "-c", f"ulimit -f 1024; exec '{trap_host}' large"]

    done = subprocess.run(
        [command, "dump", "--host", "ggml", "--steps", "all", "-o", tmp_path / "out", "--", *host],
        capture_output=True,
        text=True,
    )

    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if " ggml nodes (" in line]
    assert "incomplete, not all of it is on disk" in line and "File too large" in line
