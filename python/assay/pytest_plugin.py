# SPDX-License-Identifier: Apache-2.0
"""The pytest plug-in: a test says that two programs compute the same, and fails with the first wrong operator.

    def test_port(assay):
        assay.same(golden=reference, mine=port, inputs=tokens)

pytest loads it by its entry point. It imports nothing of assay, and no torch, until a test asks for it.
Documented in docs/ci.md.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional, Union

import pytest

GOLDEN_FOLDER = "golden"  # beside the file of the test
_PROPERTY = "assay"  # in front of the names of junit properties


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("assay", "numerics of models (assay)")
    group.addoption("--assay", action="store_true", help="say at the end what every comparison found")
    group.addoption("--assay-update", action="store_true", help="write the kept golden runs anew instead of judging")
    group.addoption(
        "--assay-keep", metavar="DIR", help="folder for the runs of failed tests; default: pytest's temporary one"
    )
    parser.addini(
        "assay_golden",
        f"folder of kept golden runs, relative to a test's file; {GOLDEN_FOLDER!r}",
        default=GOLDEN_FOLDER,
    )


class Numerics:
    """What the fixture `assay` gives to a test."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        self._request = request
        self._folder = folder
        self._count = 0

    def same(
        self,
        golden: Optional[Any] = None,
        mine: Optional[Any] = None,
        inputs: Any = None,
        *,
        kept: bool = False,
        name: str = "",
        **options: Any,
    ) -> Any:
        """Fails the test unless all that two programs differ by is rounding.

        Args:
            golden: the reference, as of `assay.assert_same`. None: a golden run that is kept beside the tests, in
                ``golden/<file>-<test>.json.gz``; ``pytest --assay-update`` makes it of `mine`.
            mine: the program under test.
            inputs: what both are called with.
            kept: golden, too, is kept: it runs with ``--assay-update`` only.
            name: of the kept golden run, instead of the test's.
            options: as of `assay.assert_same`: ``level``, ``seed``, ``floor``, ``map``, ``token_map``, ``jobs``, and
                ``golden_weights``, a checkpoint with the weights of a kept golden run, where mine has another type.

        Returns:
            The verdict (`assay.Verdict`); None when golden was written.
        """
        __tracebackhide__ = True
        if mine is None:
            raise TypeError("assay.same() needs mine: the module or function under test")
        self._count += 1
        folder = self._folder / str(self._count)
        if golden is not None and not kept:
            return self._judge(golden, mine, inputs, folder, options)
        path = self._kept_path(name)
        if self._request.config.getoption("--assay-update"):
            return self._write(path, mine if golden is None else golden, inputs, folder, options)
        if not path.exists():
            pytest.fail(
                f"no golden run is kept in {path}\nnext: pytest --assay-update {self._request.node.nodeid}",
                pytrace=False,
            )
        return self._judge(path, mine, inputs, folder, options)

    def _judge(self, golden: Any, mine: Any, inputs: Any, folder: Path, options: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        import assay

        different: Optional[assay.Different] = None
        try:
            verdict = assay.assert_same(golden, mine, inputs, folder=folder, **options)
        except assay.Different as error:
            different = error
        if different is not None:  # outside of the handler: the message alone is what a person is to read
            self._tell(different.verdict, golden=different.golden, mine=different.mine, next=different.next)
            pytest.fail(str(different), pytrace=False)
        shutil.rmtree(folder, ignore_errors=True)
        self._tell(verdict)
        return verdict

    def _write(self, path: Path, program: Any, inputs: Any, folder: Path, options: dict[str, Any]) -> None:
        import assay
        from assay._same import captured

        run = captured(program, folder / "golden", inputs, seed=options.get("seed", 0))
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{os.getpid()}-{path.name}")
        assay.fingerprint(run, part)
        os.replace(part, path)
        shutil.rmtree(folder, ignore_errors=True)
        self._request.node.user_properties.append((f"{_PROPERTY}.written", str(path)))

    def _kept_path(self, name: str) -> Path:
        node = self._request.node
        number = "" if name or self._count == 1 else f"-{self._count}"
        stem = name or f"{node.path.stem}-{node.name}"
        safe = re.sub(r"[^A-Za-z0-9_.=+-]+", "_", stem).strip("_.")
        folder: str = self._request.config.getini("assay_golden")
        return Path(node.path.parent / folder / f"{safe}{number}.json.gz")

    def _tell(self, verdict: Any, **more: str) -> None:
        known = {"outcome": verdict.outcome, "sentence": verdict.sentence, **more}
        self._request.node.user_properties += [(f"{_PROPERTY}.{key}", value) for key, value in known.items()]


@pytest.fixture
def assay(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Numerics]:
    """Compares programs operator by operator: ``assay.same(golden=..., mine=..., inputs=...)``."""
    name = re.sub(r"\W+", "-", request.node.name)[:40].strip("-")
    keep = request.config.getoption("--assay-keep")
    if keep:
        folder = _new_folder(Path(keep), f"{request.node.path.stem}-{name}")
    else:
        folder = tmp_path_factory.mktemp(f"assay-{name}")
    yield Numerics(request, folder)
    if not any(folder.iterdir()):
        folder.rmdir()


def _new_folder(base: Path, name: str) -> Path:
    """One that no other process has made."""
    base.mkdir(parents=True, exist_ok=True)
    number = 0
    while True:
        folder = base / (f"{name}-{number}" if number else name)
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder.resolve()


@pytest.fixture(scope="session")
def assay_twin(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes small models of the same architecture: ``assay_twin("path/of/config.json")`` is the folder of one.

    Each is made once a session, also by the workers of xdist. The arguments are those of `assay.twin`.
    """
    base = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        base = base.parent

    def make(source: Union[str, os.PathLike[str]], **options: Any) -> Path:
        import hashlib

        import assay

        key = repr((os.path.abspath(source), sorted(options.items())))
        folder = base / f"assay-twin-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        if not folder.exists():
            part = base / f"{folder.name}-{os.getpid()}"
            assay.twin.make(source, part, **options)
            try:
                part.rename(folder)
            except OSError:  # another worker was faster
                shutil.rmtree(part)
        return folder

    return make


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """With ``--assay`` a line for each comparison; which golden runs were written, always."""
    reports = [report for group in terminalreporter.stats.values() for report in group if hasattr(report, "nodeid")]
    lines = []
    for report in reports:
        if getattr(report, "when", "") != "call":
            continue
        for key, value in report.user_properties:
            if key == f"{_PROPERTY}.written":
                lines.append(f"{report.nodeid}: golden written: {value}")
            elif key == f"{_PROPERTY}.sentence" and config.getoption("--assay"):
                lines.append(f"{report.nodeid}: {value}")
    if lines:
        terminalreporter.section("assay")
        for line in sorted(lines):
            terminalreporter.line(line)
