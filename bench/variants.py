# SPDX-License-Identifier: Apache-2.0
"""The ways to capture that bench/capture_overhead.py compares: ours and the rivals', behind one interface.

A variant is measured in visits: attach, one step that is not timed, `burst` timed steps, flush, detach. What each
variant does in the timed part:

    nothing                     the model alone
    assay off                   capture installed, the steps are outside the wanted ones
    assay statistics, full      assay.capture in the native layout; flush waits for its writer
    strict statistics, full     register_hook of msit_llm; flush waits for its writer
    raw files                   the files of such a step, from memory, after the step: what they cost at least
    hook scripts                bench/rivals/torch_hooks.py; flush writes what they still hold
    tools that others publish   bench/rivals/tools.py
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Optional

from bench import record_lines
from bench.measure import NotAvailable
from bench.models import ModelSpec, Stepper
from bench.rivals import torch_hooks
from bench.scratch import empty

NEVER = 1_000_000_000  # a step no bench reaches


class Variant:
    """No capture at all; the base of every other variant.

    Attributes:
        name: key in tables and on the command line.
        own_model: True when the hooks stay for the life of the process; such a variant gets a model of its own over
            the same parameters.
        own_folder: True when it writes to a place of its own, or to memory: check() looks before `detach`.
    """

    name = "none"
    own_model = False
    own_folder = False

    def prepare(self, model: Any, spec: ModelSpec) -> None:
        """Called once, before the first visit. Raises NotAvailable when the variant cannot run here."""

    def attach(self, model: Any, folder: Path) -> None:
        """Starts capturing `model` into the empty `folder`. Not timed with the steps."""

    def step(self, stepper: Stepper, model: Any) -> None:
        """Runs one step of `model`."""
        stepper.step(model)

    def end_step(self) -> None:
        """Called after each step, inside its time."""

    def flush(self) -> None:
        """Returns when every captured byte was handed to the operating system. Timed."""

    def detach(self) -> None:
        """Ends the capture. Not timed with the steps."""

    def check(self, folder: Path, steps: int, spec: ModelSpec) -> None:
        """Raises RuntimeError when `folder` does not hold what `steps` steps must have left there."""


def tree_bytes(folder: Path) -> tuple[int, int]:
    """Returns (number of files, sum of their sizes) below `folder`."""
    files = size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            files += 1
            size += os.stat(os.path.join(parent, name)).st_size
    return files, size


# Distinct tensors of one step in MB and all inputs and outputs, as bench/models.py states them; decode: one token.
DISTINCT_BYTES = {"S": 24_413_184, "S-decode": 300_000, "M": 149_620_736}
# Strict mode sees positional arguments only: fewer than these.
STRICT_SHARE = 0.6
TENSORS = {"S": 270, "S-decode": 270, "M": 398}


def require_bytes(folder: Path, wanted: int, what: str) -> None:
    """Raises RuntimeError when the files below `folder` hold fewer bytes than `wanted`."""
    found = tree_bytes(folder)[1]
    if found < wanted:
        raise RuntimeError(f"{what}: {folder} holds {found} bytes, at least {wanted} were expected")


class AssayCapture(Variant):
    """`assay.capture` in the native layout."""

    def __init__(self, name: str, data: str, steps: Optional[Sequence[int]] = None) -> None:
        self.name = name
        self._data = data
        self._steps = steps
        self._capture: Any = None

    def prepare(self, model: Any, spec: ModelSpec) -> None:
        """Imports assay.capture."""
        try:
            from assay.torch import capture  # noqa: F401
        except ImportError as error:
            raise NotAvailable(f"assay.capture is not installed: {error}") from error

    def attach(self, model: Any, folder: Path) -> None:
        """Starts the capture."""
        import assay

        self._capture = assay.capture(model, str(folder), steps=self._steps, data=self._data)
        self._capture.__enter__()

    def flush(self) -> None:
        """Waits for the writer."""
        self._capture.flush()

    def detach(self) -> None:
        """Closes the capture."""
        self._capture.__exit__(None, None, None)
        self._capture = None

    def check(self, folder: Path, steps: int, spec: ModelSpec) -> None:
        """Counts records and bytes."""
        records = [record for path in folder.rglob("records.jsonl") for record in record_lines.read(path)]
        tensors = sum(record.get("kind", "tensor") == "tensor" for record in records)
        wanted = 0 if self._steps is not None else steps * TENSORS[spec.name]
        if (tensors != 0) if wanted == 0 else (tensors < wanted * 0.9):
            raise RuntimeError(f"{self.name}: {tensors} tensor records for {steps} steps, expected {wanted}")
        if wanted and not all("stats" in record for record in records if record.get("kind", "tensor") == "tensor"):
            raise RuntimeError(f"{self.name}: a tensor record has no statistics")
        if wanted and self._data == "full":
            require_bytes(folder, steps * DISTINCT_BYTES[spec.name], self.name)


class StrictHook(Variant):
    """`msit_llm.register_hook`, installed and removed around each visit."""

    def __init__(self, name: str, statistics_mode: int, off: bool = False) -> None:
        self.name = name
        self._mode = statistics_mode
        self._off = off
        self._config: Any = None

    def prepare(self, model: Any, spec: ModelSpec) -> None:
        """Imports the strict mode, under its old name where that is installed."""
        try:
            from assay import _capture  # noqa: F401
            from assay.torch import strict
        except ImportError as error:
            raise NotAvailable(f"strict mode is not installed: {error}") from error
        self._strict = strict

    def attach(self, model: Any, folder: Path) -> None:
        """Registers the hooks with a token range that covers (or never meets) the visit."""
        tokens = [NEVER] if self._off else list(range(64))
        self._strict.reset()
        self._config = self._strict.DumpConfig(
            dump_path=str(folder), token_range=tokens, dump_statistics_mode=self._mode
        )
        self._strict.register_hook(model, self._config)

    def flush(self) -> None:
        """Waits for the writer."""
        self._config.registration.dumper.flush()

    def detach(self) -> None:
        """Removes the hooks."""
        self._strict.reset()

    def check(self, folder: Path, steps: int, spec: ModelSpec) -> None:
        """Counts .pth files or csv rows."""
        wanted = 0 if self._off else int(steps * TENSORS[spec.name] * STRICT_SHARE)
        if self._mode == 1:
            found = sum(max(0, len(path.read_text().splitlines()) - 1) for path in folder.rglob("statistics.csv"))
        else:
            found = sum(1 for _ in folder.rglob("*.pth"))
        if found < wanted or (self._off and found):
            raise RuntimeError(f"{self.name}: found {found} tensors, expected {wanted}")


class RawFiles(Variant):
    """The files of one strict step, written once more from memory: folders, files, hard links.

    With `renamed`, each file has another name until it is whole.
    """

    def __init__(self, name: str, statistics_mode: int, renamed: bool) -> None:
        self.name = name
        self._strict = StrictHook(name, statistics_mode)
        self._renamed = renamed
        self._files: list[tuple[str, bytes]] = []
        self._links: list[tuple[str, str]] = []
        self._folder = Path()
        self._template: Optional[Path] = None
        self._steps = 0

    def prepare(self, model: Any, spec: ModelSpec) -> None:
        """Needs the strict mode, whose files these are."""
        self._strict.prepare(model, spec)

    def load(self, folder: Path) -> None:
        """Reads the files of the token's folder `folder`."""
        first: dict[int, str] = {}
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            relative, inode = str(path.relative_to(folder)), path.stat().st_ino
            if inode in first:
                self._links.append((first[inode], relative))
            else:
                self._files.append((relative, path.read_bytes()))
                first[inode] = relative

    def attach(self, model: Any, folder: Path) -> None:
        """Captures the untimed step of the first visit, to know its files."""
        self._folder = folder
        if not self._files:
            self._template = folder / "template"
            self._template.mkdir()
            self._strict.attach(model, self._template)

    def end_step(self) -> None:
        """Writes the files of the step."""
        if self._template is not None:
            self._strict.flush()
            self._strict.detach()
            self.load(next(self._template.glob("*/torch_tensors/*/0")))
            self._template = None
            return
        self._steps += 1
        made = set()
        root = os.path.join(self._folder, str(self._steps))

        def placed(relative: str) -> str:
            """The path of a file whose folder exists from now on."""
            path = os.path.join(root, relative)
            parent = os.path.dirname(path)
            if parent not in made:
                os.makedirs(parent, exist_ok=True)
                made.add(parent)
            return path

        for relative, content in self._files:
            path = placed(relative)
            name = path + ".tmp" if self._renamed else path
            descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
            if os.write(descriptor, content) != len(content):
                raise OSError(f"short write: {path}")
            os.close(descriptor)
            if self._renamed:
                os.rename(name, path)
        for source, relative in self._links:
            os.link(os.path.join(root, source), placed(relative))

    def check(self, folder: Path, steps: int, spec: ModelSpec) -> None:
        """Counts what each of the timed steps left."""
        files, _ = tree_bytes(folder / str(self._steps))
        if files != len(self._files) + len(self._links) or files < TENSORS[spec.name] * STRICT_SHARE / 2:
            raise RuntimeError(f"{self.name}: {files} files a step")


class Script(Variant):
    """A hook script of bench/rivals/torch_hooks.py."""

    def __init__(self, name: str, script: type[torch_hooks.HookScript]) -> None:
        self.name = name
        self._type = script
        self._script: Any = None

    def attach(self, model: Any, folder: Path) -> None:
        """Registers the hooks."""
        self._script = self._type(model, folder)

    def end_step(self) -> None:
        """Tells the script that a step is over."""
        self._script.end_step()

    def flush(self) -> None:
        """Writes what the script still holds."""
        self._script.close()

    def detach(self) -> None:
        """Removes the hooks."""
        self._script.remove()
        self._script = None

    def check(self, folder: Path, steps: int, spec: ModelSpec) -> None:
        """Counts rows or bytes."""
        if self._type is torch_hooks.StatisticsScript:
            rows = len((folder / "statistics.csv").read_text().splitlines())
            if rows != steps * TENSORS[spec.name]:
                raise RuntimeError(f"{self.name}: {rows} rows for {steps} steps")
        else:
            require_bytes(folder, steps * DISTINCT_BYTES[spec.name], self.name)


GROUPS: dict[str, list[Any]] = {
    "extended": [
        lambda: Variant(),
        lambda: AssayCapture("assay off", "full", [NEVER]),
        lambda: AssayCapture("assay statistics", "stats"),
        lambda: AssayCapture("assay full", "full"),
        lambda: Script("hooks, four torch reductions", torch_hooks.StatisticsScript),
        lambda: Script("hooks, torch.save", torch_hooks.TorchSaveScript),
        lambda: Script("hooks, safetensors", torch_hooks.SafetensorsScript),
    ],
    "strict": [
        lambda: Variant(),
        lambda: StrictHook("strict off", 0, off=True),
        lambda: StrictHook("strict statistics", 1),
        lambda: StrictHook("strict full", 0),
        lambda: RawFiles("raw files, statistics", 1, renamed=False),
        lambda: RawFiles("raw files, full", 0, renamed=False),
        lambda: RawFiles("raw files, full, renamed", 0, renamed=True),
    ],
}


def timed_visit(
    variant: Variant,
    model: Any,
    stepper: Any,
    spec: ModelSpec,
    folder: Path,
    disturbance: Any,
    clock: Callable[[], float] = time.perf_counter,
) -> Any:
    """Runs one visit and returns its Sample. `folder` must not exist; its files are emptied at the end.

    The caller holds `torch.no_grad()`. `clock` is wall time, or `time.process_time` for CPU time of all threads.
    """
    from bench.measure import Sample

    folder.mkdir(parents=True)
    try:
        stepper.begin()
        variant.attach(model, folder)
        try:
            variant.step(stepper, model)
            variant.end_step()
            variant.flush()
            disturbance.start()
            start = clock()
            for _ in range(spec.burst):
                variant.step(stepper, model)
                variant.end_step()
            returned = clock()
            variant.flush()
            finished = clock()
            share = disturbance.stop()
            # Once is enough: every visit does the same, and reading a dump back disturbs the next sample.
            is_checked = getattr(variant, "checked", False)
            if variant.own_folder and not is_checked:
                variant.check(folder, spec.burst + 1, spec)
        finally:
            variant.detach()
        if not is_checked:
            # Captures complete their files when they are detached.
            if not variant.own_folder:
                variant.check(folder, spec.burst + 1, spec)
            variant.checked = True  # type: ignore[attr-defined]
            variant.bytes_per_step = tree_bytes(folder)[1] / (spec.burst + 1)  # type: ignore[attr-defined]
    finally:
        empty(folder)
    return Sample((returned - start) / spec.burst, (finished - start) / spec.burst, False, share)
