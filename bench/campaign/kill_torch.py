# SPDX-License-Identifier: Apache-2.0
"""Hosts of PyTorch: modules, operators, the strict mode and compiled graphs."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import traceback
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional

from bench.campaign.campaign import die_with_parent
from bench.campaign.kill_checks import Wrong, check_step_files
from bench.campaign.kill_hosts import Host, Plan, Running

if TYPE_CHECKING:
    import torch

    import assay

LIFETIME_S = 60  # a host that nobody kills ends by itself
QUEUE_BYTES = 8 << 20


class Forked(Running):
    """A fork of this process.

    Args:
        descriptor: one byte can be read from it at the moment that the plan counts from.
    """

    def __init__(self, process: int, descriptor: int) -> None:
        self._process = process
        self._descriptor = descriptor

    def wait_until_begun(self) -> None:
        with open(self._descriptor, "rb", buffering=0) as file:
            file.read(1)

    def kill(self) -> bool:
        os.kill(self._process, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(self._process, 0)[1])
        if status != -signal.SIGKILL:
            raise Wrong(f"the host ended by itself, status {status}")
        return True

    def finish(self) -> int:
        self.wait_until_begun()
        return os.waitstatus_to_exitcode(os.waitpid(self._process, 0)[1])

    def check_words(self, run: assay.Run) -> None:
        """Nobody says anything."""


class TorchHost(Host):
    """Forks this process, which has loaded torch, and captures a model of three modules.

    Attributes:
        first_step: an endless host signals before this one.
    """

    first_step = 0

    @abstractmethod
    def capturing(self, model: torch.nn.Module, folder: Path, plan: Plan) -> AbstractContextManager[Any]:
        """Captures within; gives what is called in the model's place, or nothing."""

    def start(self, plan: Plan, folder: Path, steps: Optional[int], stay: bool) -> Running:
        """Forks."""
        begun, started = os.pipe()
        parent = os.getpid()
        host = os.fork()
        if host == 0:
            status = 1
            try:
                os.close(begun)
                signal.alarm(LIFETIME_S)
                die_with_parent(parent)
                self._live(plan, folder, steps, lambda: os.write(started, b"x"))
                if stay:
                    signal.pause()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(started)
        return Forked(host, begun)

    def _live(self, plan: Plan, folder: Path, steps: Optional[int], say: Callable[[], object]) -> None:
        import torch

        torch.manual_seed(plan.number % 2**63)
        model = torch.nn.Sequential(torch.nn.Linear(63, 64), torch.nn.ReLU(), torch.nn.Linear(64, 7))
        model.to(getattr(torch, plan.dtype))
        last = self.first_step if steps is None else steps - 1
        with torch.no_grad(), self.capturing(model, folder, plan) as instead:
            for step in itertools.count() if steps is None else range(steps):
                if step == last:
                    say()
                (instead or model)(torch.randn(plan.rows, 63).to(getattr(torch, plan.dtype)))


class Extended(TorchHost):
    """`assay.capture` with some options."""

    def __init__(self, name: str, about: str, **options: Any) -> None:
        self.name = name
        self.about = about
        self._options = options

    @contextlib.contextmanager
    def capturing(self, model: torch.nn.Module, folder: Path, plan: Plan) -> Iterator[None]:
        """The extended mode."""
        import assay

        with assay.capture(model, folder, queue_bytes=QUEUE_BYTES, **self._options):
            yield

    def check_files(self, folder: Path) -> None:
        """Step files."""
        check_step_files(folder / "rank0")


class Strict(TorchHost):
    """`register_hook` of the strict mode."""

    name = "strict"
    about = "register_hook, one .pth a tensor"

    @contextlib.contextmanager
    def capturing(self, model: torch.nn.Module, folder: Path, plan: Plan) -> Iterator[None]:
        """The strict mode; a host does this once."""
        from assay.torch.strict import DumpConfig, register_hook, remove_hooks

        folder.mkdir()
        register_hook(model, DumpConfig(dump_path=str(folder), token_range=list(range(100_000))))
        try:
            yield
        finally:
            remove_hooks()

    def check_files(self, folder: Path) -> None:
        """Files appear whole: torch loads each."""
        import torch

        for path in folder.rglob("*.pth"):
            try:
                torch.load(path, weights_only=True)
            except Exception as error:  # of pickle, zipfile or torch
                raise Wrong(f"torch does not load {path.name}: {error}") from error


class Graph(TorchHost):
    """The backend of torch.compile, dumping as the graph engine does or as the FX interpreter."""

    name = "graph"
    about = "torch.compile, one file an operator or a tensor"
    first_step = 1  # in the first, it is compiled

    @contextlib.contextmanager
    def capturing(self, model: torch.nn.Module, folder: Path, plan: Plan) -> Iterator[Any]:
        """Compiles with the first call."""
        import torch

        from assay.torch.graph import CompilerConfig, get_backend

        folder.mkdir()
        config = CompilerConfig()
        if plan.other:
            config.debug.data_dump.type = "npy"
            config.debug.data_dump.path = str(folder)
        else:
            config.dump_config.enable_dump = True
            config.dump_config.dump_path = str(folder)
            config.dump_config.dump_mode = "all"
        backend = get_backend(config)
        yield torch.compile(model, backend=backend, dynamic=False)
        backend.close()

    def start(self, plan: Plan, folder: Path, steps: Optional[int], stay: bool) -> Running:
        """Forks with Dynamo loaded, and runs a step more, that the last one never compiles."""
        import torch._dynamo
        import torch._functorch.aot_autograd  # noqa: F401

        return super().start(plan, folder, None if steps is None else steps + 1, stay)

    def check_files(self, folder: Path) -> None:
        """What is no temporary file is whole: NumPy, torch and json read it."""
        import numpy
        import torch

        readers = {".npy": numpy.load, ".pth": torch.load, ".json": lambda path: json.loads(path.read_text())}
        for path in folder.rglob("*"):
            if path.suffix in readers:
                try:
                    readers[path.suffix](path)
                except Exception as error:  # of pickle, zipfile, json, NumPy or torch
                    raise Wrong(f"{path.name} is not whole: {error}") from error
