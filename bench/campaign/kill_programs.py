# SPDX-License-Identifier: Apache-2.0
"""Hosts that are programs under `assay dump`, with a probe preloaded: ATB's and ggml's."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import time
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Optional

from bench.campaign.campaign import ROOT, die_with_parent
from bench.campaign.kill_checks import ASSAY, Wrong, check_step_files
from bench.campaign.kill_hosts import Host, Plan, Running

if TYPE_CHECKING:
    import assay

POLL_S = 0.0002
CELLS = 512  # of the cache of the ggml host
BUILD = Path(os.environ.get("ASSAY_BUILD_DIR", ROOT / "build" / "release")).resolve()


class Commanded(Running):
    """A program under `assay dump`.

    Args:
        has_begun: whether the moment that the plan counts from is over.
        with_command: whether the command is killed with the program.
        words: file with what the command says.
        check_count: holds the number of tensors in these words against the run; raises Wrong.
    """

    def __init__(
        self,
        command: subprocess.Popen[bytes],
        has_begun: Callable[[], bool],
        with_command: bool,
        words: Path,
        check_count: Callable[[assay.Run, str], None],
    ) -> None:
        self._command = command
        self._has_begun = has_begun
        self._with_command = with_command
        self._words = words
        self._check_count = check_count

    def wait_until_begun(self) -> None:
        while self._command.poll() is None and not self._has_begun():
            time.sleep(POLL_S)

    def kill(self) -> bool:
        process = self._command.pid
        if self._command.poll() not in (None, 0):
            raise Wrong(f"the command ended with status {self._command.returncode}: {self._words.read_text()}")
        try:
            children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        except OSError:  # all have ended
            children = []
        if self._with_command:
            self._command.kill()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        status = self._command.wait()
        if not self._with_command and status not in (0, 128 + signal.SIGKILL):
            raise Wrong(f"the command ended with status {status}: {self._words.read_text()}")
        while any(map(_is_alive, children)):
            time.sleep(POLL_S)
        return status != 0

    def finish(self) -> int:
        return self._command.wait()

    def check_words(self, run: assay.Run) -> None:
        if self._with_command:
            return
        words = self._words.read_text()
        killed = self._command.returncode != 0
        if ("the program was ended by signal 9" in words) != killed:
            raise Wrong(f"the command does not know how the program ended: {words}")
        self._check_count(run, words)
        named = re.search(r"next: assay (?:show|opcheck|compare GOLDEN) (\S+)", words)
        # One record may have come between its file and its count.
        if (named is None and len(run.records) > 1) or (named is not None and not Path(named[1]).is_dir()):
            raise Wrong(f"the run has {len(run.records)} records, but: {words}")


def _is_alive(process: str) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


class Program(Host):
    """A program under `assay dump`, with a probe preloaded."""

    host: str  # as the command calls it
    options: tuple[str, ...] = ()

    @abstractmethod
    def program(self, plan: Plan, steps: Optional[int]) -> list[str]:
        """The command; with as many steps as fit into its life when there is no number."""

    @abstractmethod
    def has_begun(self, folder: Path, step: int) -> bool:
        """Whether the capture of a step has begun, by what is on the disk."""

    @abstractmethod
    def check_count(self, run: assay.Run, words: str) -> None:
        """Holds what the command says of its catch against the run; raises Wrong."""

    def start(self, plan: Plan, folder: Path, steps: Optional[int], stay: bool) -> Running:
        """Starts the command, which starts the program."""
        words = folder.with_suffix(".words")
        command = [str(ASSAY), "dump", "--host", self.host, *self.options, "-o", str(folder), "--"]
        parent = os.getpid()
        with open(words, "wb") as file:
            process = subprocess.Popen(
                [*command, *self.program(plan, steps)],
                stdout=subprocess.DEVNULL,
                stderr=file,
                preexec_fn=lambda: die_with_parent(parent),
            )
        last = 0 if steps is None else steps - 1
        return Commanded(process, lambda: self.has_begun(folder, last), plan.other, words, self.check_count)


class Atb(Program):
    """The example host, which plays the acceleration library, in the layout of the original."""

    name = "atb"
    host = "atb"
    about = "ATB's probe, one .bin a tensor"
    most_steps = 3  # each has hundreds of files
    options = ("--layout", "strict", "--type", "tensor", "-er", "all")

    def program(self, plan: Plan, steps: Optional[int]) -> list[str]:
        """A step is a prompt with one token after it: each operation runs once."""
        host = BUILD / "examples" / "atb_host" / f"atb_host_abi{plan.number // 2 % 2}"
        sizes = ["--layers", "1", "--prompt", str(min(plan.rows, 16))]
        dtype = ["--dtype", "bf16" if plan.dtype == "bfloat16" else "fp16"]
        requests = ["--requests", str(steps or 10_000), "--steps", "1"]
        return [str(host), "--seed", str(plan.number), *dtype, *sizes, *requests]

    def has_begun(self, folder: Path, step: int) -> bool:
        """Each run of an operation has a folder."""
        return any(folder.glob(f"msit_dump_*/tensors/*/{step}"))

    def check_count(self, run: assay.Run, words: str) -> None:
        """The page of counters is one behind when the signal came between the last file and its count."""
        told = re.search(r"assay: (\d+) tensors? \(", words)
        if (int(told[1]) if told else 0) not in (len(run.records) - 1, len(run.records)):
            raise Wrong(f"there are {len(run.records)} tensors, but: {words}")

    def check_files(self, folder: Path) -> None:
        """Files appear whole, with as many bytes as the header says; parameters and lists, too."""
        for path in folder.rglob("*.json"):
            try:
                json.loads(path.read_text())
            except ValueError as error:
                raise Wrong(f"{path.name} is not whole: {error}") from error
        for path in folder.rglob("*.bin"):
            header, _, payload = path.read_bytes().partition(b"$End=1\n")
            length = re.search(rb"\$Object\.Length=(\d+)", header)
            if length is None or int(length[1]) != len(payload):
                raise Wrong(f"{path.name} is not whole")


class AtbNative(Atb):
    """The same in the native layout."""

    name = "atb-native"
    about = "ATB's probe, native layout"
    most_steps = 30
    options = ("--layout", "native", "--type", "tensor", "-er", "all")

    def has_begun(self, folder: Path, step: int) -> bool:
        """The file of a run count begins with its first new value; the next one's may hold the last of it."""
        return any(folder.glob(f"msit_dump_*/tensors/*/step-{step:06}*.safetensors"))

    def check_count(self, run: assay.Run, words: str) -> None:
        """Lines are counted when they are on the disk, many at once."""
        told = re.search(r"assay: (\d+) tensors? \(", words)
        if (int(told[1]) if told else 0) > len(run.records):
            raise Wrong(f"there are {len(run.records)} tensors, but: {words}")

    def check_files(self, folder: Path) -> None:
        """Step files, and parameters as JSON in their lines."""
        for process in folder.glob("msit_dump_*/tensors/*"):
            check_step_files(process)
        for path in folder.rglob("*.bin"):
            raise Wrong(f"{path.name} is a file of its own")


class Ggml(Program):
    """A graph on an engine from a wheel; without the wheel on an engine that tests made up."""

    name = "ggml"
    host = "ggml"
    about = "ggml's probe, all bytes"
    options = ("--steps", "all")

    def program(self, plan: Plan, steps: Optional[int]) -> list[str]:
        """A step is a graph of one token."""
        host = BUILD / "examples" / "ggml" / "ggml_host"
        if not host.exists() or importlib.util.find_spec("_pywhispercpp") is None:
            fake = BUILD / "tests" / "ggml" / "fake_host_shuffled"
            return [str(fake), str(steps or 20_000), str(plan.number % 1000)]
        prompt = min(plan.rows, 20)
        tokens = CELLS - prompt if steps is None else steps - 1
        sizes = ["--cells", str(CELLS), "--prompt", str(prompt), "--steps", str(tokens)]
        return [str(host), "--seed", str(plan.number), *sizes]

    def check_count(self, run: assay.Run, words: str) -> None:
        """The run and its folder are named; nodes are counted when the program ends by itself."""
        if run.records and "ggml node" not in words:
            raise Wrong(f"there are {len(run.records)} records, but: {words}")

    def has_begun(self, folder: Path, step: int) -> bool:
        """Each step has a file."""
        return (folder / "rank0" / f"step-{step:06}.safetensors").exists()

    def check_files(self, folder: Path) -> None:
        """Step files."""
        check_step_files(folder / "rank0")
