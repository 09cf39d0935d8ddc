# SPDX-License-Identifier: Apache-2.0
"""The plug-in of pytest in a project of its own: what passes and fails, what a failure says, xdist, junit."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = """
import copy, pytest, torch


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = torch.nn.Linear(32, 64), torch.nn.LayerNorm(64), torch.nn.Linear(64, 32)

    def forward(self, x):
        return self.down(torch.nn.functional.gelu(self.norm(self.up(x))))


@pytest.fixture(scope="module")
def block():
    torch.manual_seed(0)
    return Block()


def ported(block, gain=1.0):
    port = copy.deepcopy(block).bfloat16()
    port.norm.weight.data *= gain
    return lambda x: port(x.bfloat16())


X = torch.arange(96.0).reshape(3, 32) / 64


def test_port(assay, block):
    assert assay.same(golden=block, mine=ported(block), inputs=X).confidence == "high"


@pytest.mark.parametrize("what", ["a/../b", "two"])
def test_wrong(assay, block, what):
    assay.same(golden=block, mine=ported(block), inputs=X)
    assay.same(golden=block, mine=ported(block, gain=1.03), inputs=X)


def test_other(assay, block):
    assay.same(golden=block, mine=lambda x: block(x + 1), inputs=X)
"""


@dataclass
class Session:
    status: int
    output: str
    report: ElementTree.Element

    def case(self, name: str) -> ElementTree.Element:
        found = [case for case in self.report.iter("testcase") if case.get("name") == name]
        assert len(found) == 1
        return found[0]

    def properties(self, name: str) -> dict[str, str]:
        return {p.get("name", ""): p.get("value", "") for p in self.case(name).iter("property")}


def run_pytest(project: Path, *words: str) -> Session:
    """In a process of its own, with no other plug-in than xdist."""
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    report = project / "report.xml"
    command = [sys.executable, "-m", "pytest", "-p", "assay.pytest_plugin", "-p", "xdist", f"--junit-xml={report}"]
    done = subprocess.run(
        [*command, *words], cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return Session(done.returncode, done.stdout, ElementTree.parse(report).getroot())


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "tests").mkdir()
    (folder / "tests" / "test_port.py").write_text(PROJECT)
    return folder


@pytest.fixture(scope="module")
def session(project: Path) -> Session:
    return run_pytest(project, "-n", "2", "--assay", "--assay-keep", "kept")


def test_what_is_the_same_passes_and_what_is_wrong_fails(session):
    assert session.status == 1
    assert "3 failed, 1 passed" in session.output
    failures = {case.get("name") for case in session.report.iter("testcase") if case.find("failure") is not None}
    assert failures == {"test_wrong[a/../b]", "test_wrong[two]", "test_other"}


def test_a_failure_says_what_where_how_sure_and_what_next(session):
    failure = session.case("test_wrong[two]").find("failure")
    assert failure is not None
    sentence, _golden, _mine, code, command = str(failure.text).splitlines()
    assert sentence.startswith("first bad: norm (LayerNorm")  # what and where
    assert sentence.endswith("confidence high")  # how sure
    assert code.startswith("code:   torch/nn/modules/normalization.py:")
    assert command.startswith("next: assay compare ")
    # Nothing of pytest's or ours stands around it.
    for noise in ("Traceback", "_same.py", "During handling", "traceback entries"):
        assert noise not in session.output


def test_the_runs_of_failures_are_kept_and_those_of_passes_are_not(session, project):
    told = session.properties("test_wrong[two]")
    assert told["assay.outcome"] == "first_wrong"
    for side in ("assay.golden", "assay.mine"):
        assert Path(told[side]).is_relative_to(project / "kept")
        assert (Path(told[side]) / "manifest.json").exists()
    # The name of a test makes no path, and the comparison that passed left nothing.
    kept = sorted(path.relative_to(project / "kept") for path in (project / "kept").glob("*/*"))
    assert [str(path) for path in kept] == [
        "test_port-test_other/1",
        "test_port-test_wrong-a-b/2",
        "test_port-test_wrong-two/2",
    ]


def test_cannot_judge_is_a_failure_with_its_reason(session):
    failure = session.case("test_other").find("failure")
    assert failure is not None
    assert str(failure.text).startswith("cannot judge: mine was not given what golden was")
    assert str(failure.text).splitlines()[-1].startswith("next: assay locate ")


def test_every_sentence_is_told_in_the_end_on_request(session, project):
    assert "test_port.py::test_port: clean: all 6 operators are exact to rounding" in session.output
    plain = run_pytest(project, "-k", "test_port", "--deselect", "tests/test_port.py::test_other")
    assert "clean: " not in plain.output


def test_no_golden_is_kept(project):
    (project / "tests" / "test_kept.py").write_text(
        "import torch\n\n\ndef test_it(assay):\n    assay.same(mine=torch.nn.Linear(2, 2), inputs=torch.ones(1, 2))\n"
    )
    session = run_pytest(project, "tests/test_kept.py")
    path = project / "tests" / "golden" / "test_kept-test_it.json.gz"
    failure = session.case("test_it").find("failure")
    assert failure is not None
    assert str(failure.text) == (
        f"no golden run is kept in {path}\nnext: pytest --assay-update tests/test_kept.py::test_it"
    )


def test_loading_the_plug_in_loads_nothing_else():
    code = "import sys, assay.pytest_plugin; print({'torch', 'numpy', 'assay._core'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


KEPT = """
import copy, pytest, torch


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.LayerNorm(32), torch.nn.Linear(32, 32))


X = torch.arange(64.0).reshape(2, 32) / 64


@pytest.mark.parametrize("gain", [1.0, GAIN])
def test_kept(assay, gain):
    mine = model()
    mine[1].weight.data *= gain
    assay.same(mine=mine, inputs=X)


def test_golden_runs_for_the_file_only(assay, tmp_path_factory):
    def golden(x):
        golden.calls += 1
        return model()(x)

    golden.calls = 0
    assay.same(golden=golden, mine=model(), inputs=X, kept=True, name="by name")
    assert golden.calls == UPDATES
"""


def test_a_kept_golden_run_is_written_and_judged(tmp_path):
    tests = tmp_path / "tests"
    tests.mkdir()
    file = tests / "test_kept.py"
    file.write_text(KEPT.replace("GAIN", "0.5").replace("UPDATES", "1"))
    updated = run_pytest(tmp_path, "--assay-update", "-n", "2")
    assert updated.status == 0, updated.output
    kept = sorted(path.name for path in (tests / "golden").iterdir())
    assert kept == ["by_name.json.gz", "test_kept-test_kept_0.5.json.gz", "test_kept-test_kept_1.0.json.gz"]
    assert all((tests / "golden" / name).stat().st_size < 10_000 for name in kept)
    assert "golden written: " in updated.output
    # When nothing has changed, all is clean, and golden does not run;
    file.write_text(KEPT.replace("GAIN", "0.5").replace("UPDATES", "0"))
    assert run_pytest(tmp_path).status == 0
    # and a weight that has changed since is named.
    file.write_text(KEPT.replace("GAIN", "0.5").replace("*= gain", "*= gain * 1.03").replace("UPDATES", "0"))
    changed = run_pytest(tmp_path, "-k", "test_kept[")
    assert changed.status == 1
    failure = changed.case("test_kept[1.0]").find("failure")
    assert failure is not None
    assert "weight" in str(failure.text) and str(failure.text).splitlines()[-1].startswith("next: assay ")
