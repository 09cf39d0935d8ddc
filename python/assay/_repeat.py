# SPDX-License-Identifier: Apache-2.0
"""Whether a computation gives the same bits each time: :func:`repeat`. The comparison is native."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from typing import Any, Callable, Optional, Union

from assay._run_folder import run_folder
from assay.errors import FormatError
from assay.inject import outermost
from assay.torch.capture import Models, capture

# Native, without a stub: this file has its types.
_opcheck: Any = importlib.import_module("assay._opcheck")

__all__ = ["Repetition", "repeat"]


class Repetition:
    """What came of running something several times. True when all runs are equal bit for bit."""

    def __init__(self, fields: dict[str, Any], text: str, write_page: Callable[[str], Any]):
        self._fields = fields
        self._text = text
        self._write_page = write_page

    def __bool__(self) -> bool:
        return self.repeats

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<Repetition: {self.sentence}>"

    @property
    def repeats(self) -> bool:
        """Whether all runs are equal bit for bit."""
        return bool(self._fields["repeats"])

    @property
    def sentence(self) -> str:
        """One sentence that names the first operator that differs."""
        return str(self._fields["sentence"])

    @property
    def first(self) -> Optional[dict[str, Any]]:
        """The first operator that differs, with ``cause``, ``module``, ``operator``, ``step``, ``runs``."""
        found = self._fields["first"]
        return None if found is None else dict(found)

    @property
    def elements(self) -> Optional[dict[str, Any]]:
        """Of an operator that differs though its inputs are equal: ``kind``, ``different``, ``largest_ulp`` ..."""
        found = self._fields["elements"]
        return None if found is None else dict(found)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as ``assay repeat --json`` prints it."""
        return dict(self._fields)

    def to_html(self, path: Union[str, Path]) -> None:
        """Writes one page to open in a browser, as ``assay repeat --html`` does; `path` ends with ``.html``."""
        self._write_page(str(path))


class _Repeated:
    """A function that is called and captured again and again."""

    def __init__(self, fn: Callable[[], Any], model: Optional[Models]) -> None:
        self._fn = fn
        self._model = model

    def run(self, folder: Path) -> str:
        """Calls the function; the run has digests and no data."""
        if self._model is None:
            with outermost.captured_calls(str(folder), "operator", digest=True, full=False) as injection:
                self._fn()
            if not folder.exists():
                raise FormatError("NotCaptured", f"nothing was captured: {injection.missing}")
        else:
            with capture(self._model, folder, level="operator", data="none", digest=True):
                self._fn()
        return str(folder)

    def run_with_values(self, folder: Path, module: str, step: int) -> str:
        """Calls the function; the run has digests and data of the operators of one module in one step."""
        if self._model is None:
            wanted = (module or "root",)
            with outermost.captured_calls(str(folder), "operator", digest=True, modules=wanted, steps=str(step)):
                self._fn()
        else:
            with capture(self._model, folder, level="operator", digest=True, include=[module], steps=step):
                self._fn()
        return str(folder)


def _look_at_values(runs: Any, repeated: _Repeated, first: dict[str, Any], folder: Path, tries: int) -> str:
    """Runs again with the values of the operator until these differ; returns why they are not known."""
    module, step = str(first["module"]), int(first["step"])
    golden = repeated.run_with_values(folder / "values-0", module, step)
    for number in range(1, tries + 1):
        other = repeated.run_with_values(folder / f"values-{number}", module, step)
        if runs.look_at_values(golden, other):
            return ""
        shutil.rmtree(other)
    return f"it did not differ again in {tries + 1} runs that kept them"


def repeat(
    fn: Callable[[], Any],
    model: Optional[Models] = None,
    n: int = 10,
    *,
    path: Optional[Union[str, Path]] = None,
) -> Repetition:
    """Calls `fn` n times and says whether every operator of the model computed the same bits each time.

    Args:
        fn: runs the model; called without arguments.
        model: the module (or modules, as :func:`assay.capture` takes them) that it runs; without one all that it calls.
        n: how often, at least 2.
        path: a folder for the runs that differ; without one they are not kept.

    Returns:
        The outcome, which is true when all calls were equal and prints as ``assay repeat`` does.

    Raises:
        assay.FormatError: n is too small, or nothing was captured.

    Example:
        >>> import torch, assay
        >>> model = torch.nn.Linear(4, 4)
        >>> bool(assay.repeat(lambda: model(torch.ones(1, 4)), n=3))
        True
    """
    if n < 2:
        raise FormatError("Usage", f"n must be at least 2, got {n}")
    repeated = _Repeated(fn, model)
    with run_folder(path, "assay_repeat_") as folder:
        runs: Any = None
        for number in range(n):
            target = repeated.run(folder / f"run-{number}")
            if runs is None:
                runs = _opcheck._RepeatedRuns(target)
            elif runs.add(target):
                shutil.rmtree(target)
        fields = json.loads(runs.json("", ""))
        if fields["operators"] == 0:
            raise FormatError("Usage", "no operator was captured; does the function run the model?")
        first, note = fields["first"], ""
        if first is not None and first["cause"] == "operator":
            note = _look_at_values(runs, repeated, first, folder, n)
        advice = _next(first)
        text = runs.text(note, advice)
        return Repetition(json.loads(runs.json(note, advice)), text, lambda page: runs.write_page(note, advice, page))


def _next(first: Optional[dict[str, Any]]) -> str:
    if first is None:
        return "assay repeat --threads 1,2 -- python PROGRAM"
    if first["cause"] in ("random", "weight", "input"):
        return "assay repeat -seed -- python PROGRAM"
    return "assay repeat --until-different -o runs -- python PROGRAM"
