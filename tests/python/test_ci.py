# SPDX-License-Identifier: Apache-2.0
""".ci/run: what it runs, in what order, and what a slow machine leaves out; with a `make` that takes no time."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIRST = ["demo", "demo", "test SLOW=0", "lint"]
SLOW_TESTS = "test SLOW=1 OPTIONS=--maxfail=1"
IF_TIME = ["smoke", "asan", "fuzz", "tsan", SLOW_TESTS, "campaign SAMPLE=1", "aarch64"]


@pytest.fixture
def run(tmp_path):
    """Runs a copy of .ci/run. `make TARGET` writes down its arguments and does what `behaviour` has for the target."""

    def start(behaviour="true", **environment):
        (tmp_path / ".ci").mkdir()
        shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
        programs = {
            tmp_path / "bin" / "make": f'echo "$@" >> {tmp_path}/made\ncase $1 in {behaviour} esac\n',
            tmp_path / "tools" / "setup.sh": "true\n",
        }
        for path, text in programs.items():
            path.parent.mkdir()
            path.write_text("#!/bin/bash\n" + text)
            path.chmod(0o755)
        paths = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", tmp_path / ".ci" / "run"], env={**os.environ, **paths, **environment},
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        return done, (tmp_path / "made").read_text().splitlines()

    return start


def test_with_enough_time_everything_runs(run):
    done, made = run("*) ;;")
    assert done.returncode == 0
    assert made == [*FIRST, *IF_TIME]
    assert "NOT RUN" not in done.stdout


def test_what_a_slow_machine_has_no_time_for_is_left_out_and_named(run):
    # The sections before took 2 of 1191 s that are expected: others take hundredths of what they take elsewhere.
    done, made = run("demo) sleep 1 ;; *) ;;", ASSAY_CI_SECONDS="1")
    assert done.returncode == 0
    assert made == FIRST
    missing = done.stdout.partition("== NOT RUN")[2]
    for command in IF_TIME:
        if command != SLOW_TESTS:
            assert f"`make {command}` takes some 0 s here, 0 s are left" in missing
    assert re.search(r"slow tests, 2 of 8 parts: `make test SLOW=1 .*` takes some 0 s here, 0 s are left", missing)
    assert "slow tests: 6 of 8 parts" in missing


def test_where_not_all_slow_tests_fit_parts_of_them_run_and_the_others_come_next(run, tmp_path):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    git("init", "-q")
    for _ in range(5):
        git("commit", "-q", "--allow-empty", "-m", "one more")
    # 900 s of slow tests and 625 s behind them: of 975 s, 350 are left for three of eight parts. Four commits before
    # this one ran 0 to 2, 3 to 5 and so on up to 4; this is the fifth: 5 * 3 = 15, the last part of the second round.
    done, made = run("*) ;;", ASSAY_CI_SECONDS="975", ASSAY_CI_SLOWNESS="100")
    assert done.returncode == 0
    assert "test SLOW=1 OPTIONS=--maxfail=1 --parts=7,0,1/8" in made
    assert made[-2:] == ["campaign SAMPLE=1", "aarch64"]
    assert "slow tests: 5 of 8 parts, next in the rotation" in done.stdout.partition("== NOT RUN")[2]


def test_every_test_is_of_one_part():
    spec = importlib.util.spec_from_file_location("tests_conftest", ROOT / "tests" / "conftest.py")
    conftest = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conftest)

    def chosen(parts):
        items = [SimpleNamespace(nodeid=f"tests/a.py::test_one[{number}]") for number in range(50)]
        left = []
        hook = SimpleNamespace(pytest_deselected=lambda items: left.extend(items))
        all_of_them = {item.nodeid for item in items}
        conftest.pytest_collection_modifyitems(SimpleNamespace(getoption=lambda _: parts, hook=hook), items)
        kept = {item.nodeid for item in items}
        assert kept | {item.nodeid for item in left} == all_of_them
        return kept

    quarters = [chosen(f"{part}/4") for part in range(4)]
    assert sum(map(len, quarters)) == len(set().union(*quarters)) == 50
    assert all(quarters)
    assert chosen("0,2/4") == quarters[0] | quarters[2]
    assert len(chosen(None)) == 50


def test_a_section_that_takes_longer_than_is_left_is_stopped_and_the_others_are_left_out(run):
    done, made = run("smoke) sleep 60 ;; *) ;;", ASSAY_CI_SECONDS="4", ASSAY_CI_GRACE="1")
    assert done.returncode == 0
    assert made == [*FIRST, *IF_TIME[:1]]
    missing = done.stdout.partition("== NOT RUN")[2]
    assert re.search(r"`make smoke` was stopped after [1-9] s", missing)
    assert "`make aarch64` takes" in missing


@pytest.mark.slow
def test_a_section_that_does_not_heed_that_it_is_stopped_is_killed(run):
    # What is killed 20 s after it was asked to end has run out of time as well: that is no failure.
    done, _ = run("smoke) trap '' TERM; while :; do sleep 1; done ;; *) ;;", ASSAY_CI_SECONDS="4", ASSAY_CI_GRACE="1")
    assert done.returncode == 0
    stopped = re.search(r"`make smoke` was stopped after (\d+) s", done.stdout.partition("== NOT RUN")[2])
    assert stopped is not None
    assert 20 <= int(stopped[1]) < 30


@pytest.mark.parametrize("target", ["demo", "test", "lint", "smoke", "campaign", "fuzz", "asan", "tsan", "aarch64"])
def test_a_section_that_fails_fails_the_run(run, target):
    done, _ = run(f"{target}) exit 3 ;; *) ;;")
    assert done.returncode != 0
    assert "== times" in done.stdout
