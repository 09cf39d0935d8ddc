# SPDX-License-Identifier: Apache-2.0
"""A stand-in for sys.executable that does not import torch anew each time.

:func:`python` gives the path of a command `python`. Started as `python FILE ...`, `python -c ...` or `python -m ...` it
sends what it was started with to a server (warm_server.py), which forks a process from an interpreter that has torch in
memory, but not yet in sys.modules; the command lives as long as that process and ends as it does. What cannot be told
to a process that runs already makes it a start of the real Python: see warm_client.py.

It is not for tests of processes: the program's parent is the server, its process group is its own, below its code stand
two frames of the server, and all programs of a server have the same hash seed.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import warm_client

KINDS = ("torch", "transformers")
_SUPPORT = Path(__file__).parent


@cache
def _broker(of_process: int) -> Path:
    """Starts what starts servers; it ends with this process, however that ends. Returns its folder."""
    folder = Path(tempfile.mkdtemp(prefix="warm_python_"))
    ours_ends, alive = os.pipe()
    listening_ends, listening = os.pipe()
    words = [
        sys.executable,
        "-ISE",
        _SUPPORT / "warm_server.py",
        folder,
        sys.executable,
        ours_ends,
        listening,
    ]
    quiet = subprocess.DEVNULL
    broker = subprocess.Popen(
        list(map(str, words)),
        pass_fds=[ours_ends, listening],
        stdin=quiet,
        stdout=quiet,
        stderr=quiet,
        start_new_session=True,
    )
    os.close(ours_ends)
    os.close(listening)
    os.read(listening_ends, 1)
    os.close(listening_ends)

    def end() -> None:
        if os.getpid() == of_process:
            os.close(alive)
            try:
                broker.wait(20)
            except subprocess.TimeoutExpired:  # a program goes on, whose starter does as well
                broker.kill()
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return folder


@cache
def _command(of_process: int, kind: str) -> str:
    folder = _broker(of_process)
    place = folder / kind
    place.mkdir()
    command = place / "python"
    arguments = (str(folder), kind, sys.executable, warm_client.place())
    command.write_text(
        f"#!{sys.executable} -ISE\nimport sys\nsys.path.append({str(_SUPPORT)!r})\n"
        f"import warm_client\nwarm_client.main{arguments!r}\n"
    )
    command.chmod(0o755)
    return str(command)


def python(kind: str = "torch") -> str:
    """The path of a command that stands in for sys.executable.

    kind: "transformers" for programs that run Hugging Face models; these have torch._dynamo imported early, which
        `assay dump` of a program that compiles does not see then.
    """
    assert kind in KINDS, kind
    return _command(os.getpid(), kind)
