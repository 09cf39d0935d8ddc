# SPDX-License-Identifier: Apache-2.0
"""The distribution assay-msit: old package names and commands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
COMPAT = ROOT / "compat"

pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def old_names_importable(monkeypatch):
    monkeypatch.syspath_prepend(str(COMPAT))


def run(code, **environment):
    path = os.pathsep.join([str(COMPAT), *sys.path])
    return subprocess.run(
        [sys.executable, "-c", code],
        env=dict(os.environ, PYTHONPATH=path, **environment),
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("package", ["msit_llm", "ait_llm", "llm"])
def test_imports_of_every_age(package):
    code = f"""
from {package} import DumpConfig, register_hook, seed_all, read_atb_data
from {package} import Analyzer, CaseFilter, Synthesizer
from {package}.dump.torch_dump import DumpConfig as A, register_hook as B
from {package}.dump.manual_dump import dump_data
from {package}.dump import torchair_dump
from components.utils.tool import (get_bin_data_from_dir, read_bin_data, read_dump_data, convert_bin_data_to_pt,
    convert_bin_data_to_npy, save_torch_data, save_npy_data)
import assay.torch.strict as strict
assert DumpConfig is A is strict.DumpConfig and register_hook is B is strict.register_hook
assert dump_data is strict.dump_data and read_bin_data is strict.read_bin_data
import sys
assert "pandas" not in sys.modules and "torch" not in sys.modules
"""
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_compare_data_gives_the_originals_metrics_of_one_pair():
    import msit_llm

    # given the worked example of msit 8.2, when two tensors are compared, then its values come by their columns' names
    golden = torch.tensor([1.0, 2.0, 0.0, -4.0])
    found = msit_llm.compare_data(golden, torch.tensor([1.001, 1.998, 0.5, -4.01]))
    assert found["cosine_similarity"] == pytest.approx(0.9941198684, abs=1e-10)
    assert found["max_absolute_error"] == pytest.approx(0.0100002289, abs=1e-9)
    assert found["relative_euclidean_distance"] == pytest.approx(0.1091318566, rel=1e-6)
    assert found["cmp_fail_reason"] == ""
    assert msit_llm.compare_data(golden, torch.ones(3)) == {"cmp_fail_reason": "data shape doesn't match."}
    reason = msit_llm.compare_data(golden, torch.full((4,), float("nan")))["cmp_fail_reason"]
    assert reason == "my_data includes NAN or inf."


def test_unknown_names_are_attribute_errors():
    import msit_llm

    with pytest.raises(AttributeError):
        _ = msit_llm.no_such_name
    assert not hasattr(msit_llm, "__wrapped__")


@pytest.mark.parametrize("name", ["msit", "ait"])
def test_command_becomes_assay_under_its_old_name(tmp_path, name):
    program = tmp_path / "assay"
    spy = tmp_path / "spy.c"
    spy.write_text("#include <stdio.h>\nint main(int c, char** v) { while (c--) puts(*v++); return 7; }\n")
    subprocess.run(["cc", "-o", str(program), str(spy)], check=True)
    code = (
        f"import sys; sys.argv = ['{name}', 'llm', 'compare', '-gp', 'a b'];"
        f"sys.executable = '/nowhere/python'; from assay_msit.cli import {name}; {name}()"
    )
    done = run(code, PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert done.stdout.splitlines() == [name, "llm", "compare", "-gp", "a b"] and done.returncode == 7


def test_the_command_beside_the_interpreter_wins(tmp_path, monkeypatch):
    from assay_msit import cli

    for folder in ("bin", "path"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "assay").write_text("#!/bin/sh\n")
        (tmp_path / folder / "assay").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert cli.find_assay() == str(tmp_path / "bin" / "assay")
    (tmp_path / "bin" / "assay").chmod(0o644)
    assert cli.find_assay() == str(tmp_path / "path" / "assay")


def test_no_native_command_is_one_sentence_and_a_hint(tmp_path):
    code = "import sys; sys.executable = '/nowhere/python'; from assay_msit.cli import msit; msit()"
    done = run(code, PATH=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and "next: pip install assay-llm" in done.stderr
