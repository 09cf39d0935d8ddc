# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C twice: a terminal sends one to the host, and so does the command that started it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("assay.torch.capture")

# The second signal comes from inside what finishes the run.
HOST = """
import atexit, os, signal, sys, time, torch
import assay
torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)])
{capture}
real = {slow}
def slowly(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.05)
    return real(*args, **kwargs)
{slow} = slowly
with torch.no_grad():
    model(torch.ones(64, 512))
os.kill(os.getpid(), signal.SIGINT)
"""


def manifest_below(folder: Path) -> dict:
    (path,) = folder.rglob("manifest.json")
    return json.loads(path.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["native", "strict"])
@pytest.mark.parametrize("injected", [False, True])
def test_a_second_interrupt_does_not_spoil_the_end_of_a_run(layout: str, injected: bool, tmp_path: Path) -> None:
    capture = {
        ("native", False): "handle = assay.capture(model, sys.argv[1])",
        ("strict", False): "from assay.torch.strict import DumpConfig, register_hook\n"
        "register_hook(model, DumpConfig(sys.argv[1]))",
    }.get((layout, injected), "")
    slow = "assay.torch.capture.Capture._write_manifest" if layout == "native" else "hooks.Manifest.finish"
    first = "from assay.torch.strict import hooks\nimport assay.torch.capture\n"
    script = tmp_path / "host.py"
    # The first manifest of a native run is written while the model runs: only the last one is slow.
    script.write_text(
        HOST.format(capture=first + capture, slow=slow).replace("\nreal = ", "\nmodel(torch.ones(64, 512))\nreal = ")
    )
    environment = dict(os.environ)
    if injected:
        (tmp_path / "report").mkdir()
        settings = {
            "output": str(tmp_path / "run"),
            "layout": layout,
            "full": True,
            "report_dir": str(tmp_path / "report"),
        }
        environment["ASSAY_TORCH_DUMP"] = json.dumps(settings)
        import assay

        inject = Path(assay.__file__).parent / "inject"
        environment["PYTHONPATH"] = os.pathsep.join([str(inject), environment.get("PYTHONPATH", "")])

    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        env=environment,
        timeout=100,
    )

    # The traceback of the first one is the host's, and the only one.
    assert done.returncode == -signal.SIGINT, done.stderr
    assert done.stderr.count("Traceback") == 1, done.stderr
    assert done.stderr.count("interrupted again") >= 1
    assert manifest_below(tmp_path / "run")["complete"] is True
    if injected:
        (report,) = (tmp_path / "report").glob("torch_*.json")
        assert json.loads(report.read_text())["stopped"] == ""


HOLDS = """
import sys, threading, torch
import assay, assay.reference
model = torch.nn.Linear(2, 2)
handle = assay.capture(model, sys.argv[1])
model(torch.ones(1, 2))
handle.flush()
run = assay.open(sys.argv[1])
begun = threading.Event()

def hold(*_):
    begun.set()
    threading.Event().wait()

threading.Thread(target=hold, args=(handle, run, run.records), daemon=True).start()
begun.wait()
"""


@pytest.mark.slow
def test_what_a_thread_still_holds_at_the_end_is_not_called_a_leak(tmp_path: Path) -> None:
    # As IPython does: its own thread and the frames of its shell live longer than the interpreter's modules.
    pytest.importorskip("assay._core")
    done = subprocess.run([sys.executable, "-c", HOLDS, str(tmp_path / "run")], capture_output=True, text=True)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert manifest_below(tmp_path / "run")["complete"] is True
