# SPDX-License-Identifier: Apache-2.0
"""Tools that others publish for the same work, as variants of bench/variants.py.

    msprobe                  mindstudio-probe's PrecisionDebugger at level L0 (modules); stop and step are in the flush
    transformers debugger    model_addition_debugger_context: one tree of modules, which each step writes again; text of
                             tensors as torch prints them, or a safetensors file for each tensor
    torch DebugMode          every operator, in memory: L1 norms of inputs and outputs, or clones of outputs
    torchlens                trace(): every function of torch with its output, in memory

Those of another package need `make bench RIVALS=1`, which installs them into an environment of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Optional

from bench.measure import NotAvailable
from bench.models import ModelSpec, Stepper
from bench.scratch import empty
from bench.variants import DISTINCT_BYTES, Variant, require_bytes

PACKAGES = {"msprobe": "mindstudio-probe==26.2.0", "torchlens": "torchlens==2.36.1", "polygraphy": "polygraphy==0.53.6"}


def install(build: Path, tool: str) -> tuple[Optional[Path], str]:
    """Installs one of PACKAGES into an environment in `build`, which sees the packages of this one.

    Returns (its Python, ""), or (None, the reason why it cannot be had).
    """
    package = PACKAGES[tool]
    name, version = package.split("==")
    python = build / "rivals-venv" / "bin" / "python"
    probe = [str(python), "-c", f"import importlib.metadata as m; assert m.version({name!r}) == {version!r}"]
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(build / "rivals-venv")], check=True)
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        # torch and transformers come from this environment by a .pth file: the same build for both sides.
        code = "import sysconfig; print(sysconfig.get_path('purelib'))"
        ours, theirs = (
            subprocess.run([str(path), "-c", code], capture_output=True, text=True, check=True).stdout.strip()
            for path in (sys.executable, python)
        )
        Path(theirs, "zz_bench_parent.pth").write_text(ours + "\n")
        command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", package]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            return None, f"pip install {package}: {lines[-1] if lines else 'failed'}"
    return python, ""


class Msprobe(Variant):
    """PrecisionDebugger. One a process, so its folder is fixed."""

    own_model = True
    own_folder = True

    def __init__(self, name: str, task: str) -> None:
        self.name = name
        self._task = task
        self._debugger: Any = None
        self._folder = Path()

    def prepare(self, model: Any, spec: ModelSpec) -> None:
        """Creates the debugger."""
        import sys

        arguments = sys.argv
        sys.argv = sys.argv[:1]  # it parses the host's command line on import
        try:
            from msprobe.pytorch import PrecisionDebugger
        except ImportError as error:
            raise NotAvailable(f"mindstudio-probe is not installed: {error}") from error
        finally:
            sys.argv = arguments
        self._folder = Path(os.environ["ASSAY_BENCH_WORK"]) / f"msprobe-{os.getpid()}"
        self._folder.mkdir(parents=True)
        config = {
            "task": self._task,
            "dump_path": str(self._folder / "dump"),
            "rank": [],
            "step": [],
            "level": "L0",
            "statistics": {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"},
            "tensor": {"scope": [], "list": [], "data_mode": ["all"]},
        }
        path = self._folder / "config.json"
        path.write_text(json.dumps(config))
        self._debugger = PrecisionDebugger(config_path=str(path))

    def attach(self, model: Any, folder: Path) -> None:
        """Remembers the model: `start` is needed for every step."""
        self._model = model
        self._debugger.start(model=model)

    def end_step(self) -> None:
        """Ends the step and starts the next, as its documentation asks for."""
        self._debugger.stop()
        self._debugger.step()
        self._debugger.start(model=self._model)

    def detach(self) -> None:
        """Stops and empties what was written."""
        self._debugger.stop()
        empty(self._folder / "dump")

    def check(self, folder: Path, steps: int, spec: ModelSpec) -> None:
        """Requires a dump.json a step."""
        found = sum(1 for _ in (self._folder / "dump").rglob("dump.json"))
        if found < steps:
            raise RuntimeError(f"{self.name}: {found} dump.json files for {steps} steps")


class TransformersDebugger(Variant):
    """`model_addition_debugger_context`, in which every module stays."""

    own_model = True

    def __init__(self, name: str, is_full: bool) -> None:
        self.name = name
        self._is_full = is_full
        self._context: Any = None

    def prepare(self, model: Any, spec: ModelSpec) -> None:
        """Imports it."""
        try:
            from transformers.model_debugging_utils import model_addition_debugger_context
        except ImportError as error:
            raise NotAvailable(f"this transformers has no debugger: {error}") from error
        self._make = model_addition_debugger_context

    def attach(self, model: Any, folder: Path) -> None:
        """Wraps the modules."""
        self._context = self._make(model, str(folder), do_prune_layers=False, use_repr=not self._is_full)
        self._context.__enter__()

    def detach(self) -> None:
        """Unwraps them."""
        self._context.__exit__(None, None, None)

    def check(self, folder: Path, steps: int, spec: ModelSpec) -> None:
        """Requires the tree of the last step, and half of what a step has: outputs of leaves and all inputs."""
        if not list(folder.glob("*_SUMMARY.json")):
            raise RuntimeError(f"{self.name}: no tree in {folder}")
        if self._is_full:
            require_bytes(folder, DISTINCT_BYTES[spec.name] // 2, self.name)


class DebugMode(Variant):
    """`torch.utils._debug_mode.DebugMode`. What it holds is let go with each burst."""

    own_folder = True

    def __init__(self, name: str, is_full: bool) -> None:
        self.name = name
        self._is_full = is_full

    def prepare(self, model: Any, spec: ModelSpec) -> None:
        """Imports it."""
        try:
            from torch.utils._debug_mode import DebugMode as TorchMode
        except ImportError as error:
            raise NotAvailable(f"this torch has no DebugMode: {error}") from error
        self._type = TorchMode

    def attach(self, model: Any, folder: Path) -> None:
        """Enters the mode and its hook."""
        self._stack = contextlib.ExitStack()
        self._mode = self._stack.enter_context(self._type())
        hook = self._type.record_outputs() if self._is_full else self._type.log_tensor_hashes(hash_inputs=True)
        self._stack.enter_context(hook)

    def detach(self) -> None:
        """Leaves both."""
        self._stack.close()
        self._mode.reset()

    def check(self, folder: Path, steps: int, spec: ModelSpec) -> None:
        """Requires 300 operators a step with what was asked for."""
        key = "record" if self._is_full else "log"
        found = sum(1 for call in self._mode.logs if getattr(call, key, None))
        if found < steps * 300:
            raise RuntimeError(f"{self.name}: {found} operators with a {key} in {steps} steps")


class TorchLens(Variant):
    """`torchlens.trace`, which runs the model itself; a trace is let go with the next step."""

    own_folder = True

    def __init__(self, name: str) -> None:
        self.name = name
        self._trace: Any = None

    def prepare(self, model: Any, spec: ModelSpec) -> None:
        """Imports it."""
        try:
            import torchlens
        except ImportError as error:
            raise NotAvailable(f"torchlens is not installed: {error}") from error
        self._lens = torchlens
        self._options = torchlens.options.CaptureOptions(layers_to_save="all")

    def step(self, stepper: Stepper, model: Any) -> None:
        """Runs one step inside trace()."""

        def traced(*args: Any, **kwargs: Any) -> None:
            self._trace = self._lens.trace(model, list(args), kwargs, capture=self._options)

        stepper.step(traced)

    def detach(self) -> None:
        """Lets the last trace go."""
        self._trace = None

    def check(self, folder: Path, steps: int, spec: ModelSpec) -> None:
        """Requires 300 layers of the last step."""
        found = len(self._trace.layer_list)
        if found < 300:
            raise RuntimeError(f"{self.name}: {found} layers in a step")


GROUPS: dict[str, list[Any]] = {
    "msprobe-statistics": [lambda: Variant(), lambda: Msprobe("msprobe statistics", "statistics")],
    "msprobe-full": [lambda: Variant(), lambda: Msprobe("msprobe full", "tensor")],
    "transformers-debugger": [
        lambda: Variant(),
        lambda: TransformersDebugger("transformers debugger, text", is_full=False),
        lambda: TransformersDebugger("transformers debugger, full", is_full=True),
    ],
    "debug-mode": [
        lambda: Variant(),
        lambda: DebugMode("torch DebugMode, norms of inputs and outputs", is_full=False),
        lambda: DebugMode("torch DebugMode, outputs in memory", is_full=True),
    ],
    "torchlens": [lambda: Variant(), lambda: TorchLens("torchlens, outputs in memory")],
}
