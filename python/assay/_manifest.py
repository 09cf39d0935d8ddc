# SPDX-License-Identifier: Apache-2.0
"""What a run says about the process that made it: the ``host`` object of ``manifest.json``."""

from __future__ import annotations

import functools
import json
import os
import platform
import sys
from typing import Any, Optional

__all__ = ["describe_host", "local_world_size", "printable", "process_is_alive", "rank_of_process", "world_size"]


def _int_from_environment(*names: str) -> Optional[int]:
    for name in names:
        text = os.environ.get(name, "")
        if text.isdigit():
            return int(text)
    return None


def rank_of_process() -> int:
    """Returns the rank of this process: torch.distributed's when it is initialised, else ``RANK``, else 0."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return _int_from_environment("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID") or 0


def world_size() -> int:
    """Returns the number of processes of the job: torch.distributed's, else ``WORLD_SIZE``, else 1."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    return _int_from_environment("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS") or 1


def local_world_size() -> Optional[int]:
    """Returns the number of processes of the job on this host as its launcher says it; None when it does not."""
    return _int_from_environment("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE")


def printable(text: str) -> str:
    """Returns text that fits into JSON and UTF-8, which have no half surrogates: each becomes its escape, ``\\udcff``.

    Different texts stay different; bytes of a file name that are no UTF-8 are half surrogates, too.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _words_of_process(pid: int) -> list[str]:
    """The command line of a process; empty when the system does not tell."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


def _parent(pid: int) -> int:
    """The process that started another one; 0 when that is not known."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _own_words() -> list[str]:
    """What was typed to start this process, or the one that it is a worker of; empty for a notebook or a prompt."""
    pid, words = os.getpid(), list(getattr(sys, "orig_argv", ())) or _words_of_process(os.getpid())
    while "--multiprocessing-fork" in words or any("multiprocessing.forkserver" in word for word in words):
        pid = _parent(pid)
        words = _words_of_process(pid)
    is_repeatable = len(words) > 1 and "-" not in words and not any("ipykernel" in word for word in words)
    return words if is_repeatable else []


def _words_of_launcher(words: list[str]) -> list[str]:
    """The command line of the ancestor that started several of this process; empty when none is seen to have."""
    typed = words[-len(sys.argv) :]  # from the script on: the launcher may have chosen the interpreter's options
    pid = os.getpid()
    for _ in range(8):
        pid = _parent(pid)
        if pid <= 1:
            break
        found = _words_of_process(pid)
        if len(found) > len(typed) and found[-len(typed) :] == typed and "--multiprocessing-fork" not in found:
            return found
    return []


@functools.lru_cache(maxsize=1)
def _started_command(_pid: int) -> dict[str, Any]:
    """How the program is started again: ``host.command`` of the manifest (docs/formats/native.md)."""
    try:
        given = json.loads(os.environ.get("ASSAY_DUMP_COMMAND", "null"))
    except ValueError:
        given = None
    if isinstance(given, dict):
        return given
    words = _own_words()
    command: dict[str, Any] = {"words": words}
    try:
        command["folder"] = printable(os.getcwd())
    except OSError:  # somebody has removed it
        return {"words": []}
    is_one_of_several = (_int_from_environment("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE") or 1) > 1
    if words and is_one_of_several:
        launcher = _words_of_launcher(words)
        # An empty list: there is a launcher, and nobody knows which.
        command = {**command, "words": launcher} if launcher else {**command, "launcher": []}
    command["words"] = [printable(word) for word in command["words"]]
    return command


def describe_host() -> dict[str, Any]:
    """Returns program, versions of what is loaded, machine, process and rank as JSON-ready values."""
    torch = sys.modules.get("torch")
    transformers = sys.modules.get("transformers")
    host: dict[str, Any] = {
        "program": [printable(word) for word in (os.path.basename(sys.executable or "python"), *sys.argv)],
        "command": _started_command(os.getpid()),
        "python": platform.python_version(),
    }
    if torch is not None:
        host["torch"] = str(torch.__version__)
    if transformers is not None:
        host["transformers"] = str(transformers.__version__)
    host["hostname"] = platform.node()
    host["pid"] = os.getpid()
    host["rank"] = rank_of_process()
    host["world_size"] = world_size()
    if torch is not None:
        host["threads"] = torch.get_num_threads()
    return host


def process_is_alive(pid: int, hostname: str) -> bool:
    """Returns whether a process of this machine still runs; True for other machines, where nobody can tell."""
    if hostname != platform.node():
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
