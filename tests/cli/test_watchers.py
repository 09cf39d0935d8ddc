# SPDX-License-Identifier: Apache-2.0
"""What a program uses that sees its capture is said in one line, and the run keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest
import warm_python
from assay_command import run

START = """
import sys, torch
from torch.utils._python_dispatch import TorchDispatchMode

class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))

class Inside(torch.nn.Module):
    def forward(self, x):
        with Mode():
            return x + 1

def see(*_):
    return None

net, x = torch.nn.Linear(4, 4), torch.ones(2, 4)
"""
PROFILER = """
net(x)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
    net(x)
    net(x)
with torch.autograd.profiler.profile():
    net(x)
"""
MODE_AROUND = "with Mode():\n    net(x)\n    net(x)\n"
MODE_INSIDE = "Inside()(x)\nInside()(x)\n"
PROFILE_FROM_THE_START = "sys.setprofile(see)\nnet(x)\nnet(x)\nsys.setprofile(None)\n"
TRACE_LATER = "net(x)\nsys.settrace(see)\nnet(x)\nnet(x)\nsys.settrace(None)\n"
NONE = "net(x)\nnet(x)\n"

OF_OPERATORS = "torch.profiler: it counts each captured operator twice"
OF_THE_STACK = "a TorchDispatchMode: torch's stack of modes holds one more, that of the capture"
OF_CALLS = "a tracer of Python's calls: it meets functions that are called for the capture alone"


@pytest.mark.parametrize(
    ("program", "level", "said"),
    [
        (NONE, "module", []),
        (NONE, "operator", []),
        (PROFILER, "module", []),
        (PROFILER, "operator", [OF_OPERATORS]),
        (MODE_AROUND, "module", []),
        (MODE_AROUND, "operator", [OF_THE_STACK]),
        (MODE_INSIDE, "operator", [OF_THE_STACK]),
        (PROFILE_FROM_THE_START, "module", [OF_CALLS]),
        (PROFILE_FROM_THE_START, "operator", [OF_CALLS]),
        (TRACE_LATER, "module", []),
        (TRACE_LATER, "operator", [OF_CALLS]),
        (MODE_AROUND + PROFILER + MODE_AROUND, "operator", [OF_THE_STACK, OF_OPERATORS]),
    ],
)
def test_what_sees_a_capture_is_said_once(program: str, level: str, said: list[str], tmp_path: Path) -> None:
    # given a program that uses it, or nothing of the kind
    script = tmp_path / "run.py"
    script.write_text(START + program)
    # when it is captured
    done = run("dump", "--level", level, "-er", "all", "-o", tmp_path / "out", "--", warm_python.python(), script)
    assert done.returncode == 0, done.stderr
    # then there is one line for each kind
    lines = [line for line in done.stderr.splitlines() if "the program uses" in line]
    assert lines == [f"assay: warning: the program uses {sentence}" for sentence in said]
    # and the run tells
    names = sorted(sentence.partition(":")[0] for sentence in said)
    shown = [line for line in run("show", tmp_path / "out").stdout.splitlines() if "watched_by" in line]
    assert [sorted(line.partition(": ")[2].split(", ")) for line in shown] == ([names] if names else [])
