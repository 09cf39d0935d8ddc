# SPDX-License-Identifier: Apache-2.0
"""One line in a test: two programs, or a program and a kept run, must compute the same up to rounding."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Optional, Union

from assay._locate import Verdict, locate
from assay._pairs import PathLike, TokenMap
from assay.errors import FormatError

__all__ = ["Different", "assert_same", "captured"]

Program = Union[Callable[..., Any], PathLike]

CLEAN = "clean"
CANNOT_JUDGE = "cannot_judge"


class Different(AssertionError):
    """What `assert_same` raises: the sentence, where both runs are kept, and the command to go on with.

    Attributes:
        verdict: all that was found.
        golden, mine: folders of the runs.
    """

    def __init__(self, verdict: Verdict, golden: PathLike, mine: PathLike):
        self.verdict = verdict
        self.golden, self.mine = os.fspath(golden), os.fspath(mine)
        super().__init__("\n".join([verdict.sentence, *self._where(), f"next: {self.next}"]))

    @property
    def next(self) -> str:
        """The one command that tells more."""
        runs = f"{shlex.quote(self.golden)} {shlex.quote(self.mine)}"
        if self.verdict.outcome == CANNOT_JUDGE:
            return f"assay locate {runs} --why"
        return f"assay compare {runs} --html page.html"

    def _where(self) -> list[str]:
        first = self.verdict.first_bad
        source = [] if first is None or first.source is None else [f"code:   {first.source}"]
        return [f"golden: {self.golden}", f"mine:   {self.mine}", *source]


def assert_same(
    golden: Program,
    mine: Program,
    inputs: Any = None,
    *,
    level: str = "operator",
    seed: int = 0,
    folder: Optional[PathLike] = None,
    golden_weights: Optional[PathLike] = None,
    floor: Optional[PathLike] = None,
    map: Union[PathLike, Sequence[Mapping[str, str]], None] = None,
    token_map: TokenMap = (),
    jobs: int = 0,
) -> Verdict:
    """Runs both programs, captures them, and raises unless all that they differ by is rounding.

    No tolerance is given: each operator of `mine` is judged on its own inputs (docs/localisation.md). Tokens that
    rounding decides, near ties, are no difference.

    Args:
        golden: the reference: a module, a function, or the path of a run or fingerprint. Of a function the modules
            that it calls are captured; one that calls none is captured itself, for which it is called once more.
        mine: the program under test, likewise.
        inputs: what both are called with, each with a copy of its own: a tensor or a tuple of arguments, a dict of
            keyword arguments, or a list of these: a call for each. None: called once, without arguments.
        level: what of `mine` is captured, ``"operator"`` or ``"module"`` (quicker; a fault inside a module is found,
            but not which operator has it). Golden is captured with its operators.
        seed: of all random generators, before each of the two; their states are put back.
        folder: where the runs go, ``folder/golden`` and ``folder/mine``, and stay; it must hold none. By default a
            temporary folder, which is removed unless something is wrong.
        golden_weights, floor, map, token_map, jobs: as of `assay.locate`.

    Returns:
        The verdict, which is clean.

    Raises:
        Different: something is wrong, or it cannot be judged; an AssertionError.
        assay.errors.Error: a path is no run, nothing was captured.

    Example:
        >>> import torch, assay
        >>> norm = torch.nn.LayerNorm(8)
        >>> assay.assert_same(norm, norm.bfloat16(), torch.ones(1, 8)).outcome  # doctest: +SKIP
        'clean'
    """
    __tracebackhide__ = True
    if level not in ("operator", "module"):
        raise FormatError("Usage", f"level must be 'operator' or 'module', got {level!r}")
    base = Path(tempfile.mkdtemp(prefix="assay-same-") if folder is None else folder)
    with removed_unless_different(base, temporary=folder is None):
        golden_run = captured(golden, base / "golden", inputs, seed=seed)
        mine_run = captured(mine, base / "mine", inputs, level=level, seed=seed)
        verdict = locate(
            golden_run,
            mine_run,
            golden_weights=golden_weights,
            floor=floor,
            map=map,
            token_map=token_map,
            jobs=jobs,
        )
        if verdict.outcome != CLEAN:
            raise Different(verdict, golden_run, mine_run)
    return verdict


@contextmanager
def removed_unless_different(folder: Path, temporary: bool) -> Iterator[None]:
    """Leaves a temporary folder behind only for those who will look at a difference."""
    try:
        yield
    except Different:
        raise
    except BaseException:
        if temporary:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if temporary:
        shutil.rmtree(folder, ignore_errors=True)


def captured(program: Program, folder: Path, inputs: Any = None, *, level: str = "operator", seed: int = 0) -> PathLike:
    """Runs a program with its operators or modules captured, and weights; returns the folder of the run.

    The path of a run is that run.

    Raises:
        assay.FormatError: the program is neither callable nor a path, or nothing of it was captured.
    """
    if isinstance(program, (str, os.PathLike)):
        return program
    if not callable(program):
        raise FormatError("Usage", f"a {type(program).__name__} is neither a module, a function nor the path of a run")
    import torch

    calls = _calls(inputs)
    with _seeded(seed):
        if isinstance(program, torch.nn.Module):
            _capture_module(program, folder, calls, level)
        else:
            missing = _capture_modules_called(program, folder, calls, level)
    if not folder.exists():  # no module was called
        with _seeded(seed):
            _capture_module(_as_module(program), folder, calls, "operator")
        _refuse_without_operators(folder, missing)
    return folder


def _capture_module(module: Any, folder: Path, calls: list[tuple[tuple[Any, ...], dict[str, Any]]], level: str) -> None:
    import assay

    with assay.capture(module, folder, level=level, weights=True):
        for args, kwargs in calls:
            module(*_copied(args), **_copied(kwargs))


def _capture_modules_called(
    function: Callable[..., Any], folder: Path, calls: list[tuple[tuple[Any, ...], dict[str, Any]]], level: str
) -> str:
    from assay.inject import outermost

    with outermost.captured_calls(str(folder), level, weights=True) as injection:
        for args, kwargs in calls:
            function(*_copied(args), **_copied(kwargs))
    return injection.missing


def _as_module(function: Callable[..., Any]) -> Any:
    import torch

    name = getattr(function, "__name__", "")
    module = type(name if name.isidentifier() else "Function", (torch.nn.Module,), {})()
    module.forward = function  # so that findings bear its file and line
    return module


def _refuse_without_operators(folder: Path, missing: str) -> None:
    import assay

    if not any("::" in record.node for record in assay.open(folder).records):
        raise FormatError("NotCaptured", f"nothing was captured: {missing}, and no operator of PyTorch ran")


def _calls(inputs: Any) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    if isinstance(inputs, list):
        return [_call(one) for one in inputs]
    return [_call(inputs)]


def _call(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if inputs is None:
        return (), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs), {}) if isinstance(inputs, tuple) else ((inputs,), {})


def _copied(value: Any) -> Any:
    """The same with tensors of its own: a program may write to what it is given."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_copied(item) for item in value)
    return value


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Fixed random numbers inside the block; the generators go on after it as if nothing had been drawn."""
    import torch

    numpy = sys.modules.get("numpy")
    python_state = random.getstate()
    numpy_state = numpy.random.get_state() if numpy is not None else None
    with torch.random.fork_rng(devices=_devices()):
        random.seed(seed)
        if numpy is not None:
            numpy.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python_state)
            if numpy is not None:
                numpy.random.set_state(numpy_state)


def _devices() -> list[int]:
    import torch

    return list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
