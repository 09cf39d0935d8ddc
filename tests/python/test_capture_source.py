# SPDX-License-Identifier: Apache-2.0
"""File and line of the code of a module: from its class into topology.json, `assay show` and the verdict."""

from __future__ import annotations

import functools
import inspect
import json
import sys
import types
from collections import OrderedDict
from pathlib import Path
from typing import Any, Optional

import pytest
import torch
from torch import nn

import assay
from assay.torch._source import ForwardSources

sys.path.insert(0, str(Path(__file__).parent.parent / "cli"))
from assay_command import run as run_command


class Plain(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class Decorated(nn.Module):
    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 2


class Inherited(Plain):
    pass


def replaced(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return x + 3


def line_of(function: Any) -> str:
    """As the interpreter's own `inspect` says it."""
    function = inspect.unwrap(function)
    return f"{inspect.getsourcefile(function)}:{inspect.getsourcelines(function)[1]}"


def source_of(module: nn.Module) -> Optional[str]:
    return ForwardSources().of(module)


def test_the_line_is_that_of_the_function_which_runs() -> None:
    assert source_of(Plain()) == line_of(Plain.forward)
    assert source_of(Inherited()) == line_of(Plain.forward)
    assert source_of(Decorated()) == line_of(Decorated.forward)
    patched = Plain()
    patched.forward = types.MethodType(replaced, patched)  # type: ignore[method-assign]
    wrapped = Plain()
    wrapped.forward = functools.update_wrapper(  # type: ignore[method-assign]  # as accelerate does
        functools.partial(lambda old, x: old(x), wrapped.forward), wrapped.forward
    )
    sources = ForwardSources()  # one of the class must not stand for what one module was given
    assert [sources.of(module) for module in (Plain(), patched, Plain(), wrapped)] == [
        line_of(Plain.forward), line_of(replaced), line_of(Plain.forward), line_of(Plain.forward),
    ]  # fmt: skip


def test_installed_packages_are_named_relative_to_their_folder() -> None:
    line = inspect.getsourcelines(nn.Linear.forward)[1]
    assert source_of(nn.Linear(1, 1)) == f"torch/nn/modules/linear.py:{line}"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_module_was_made_of_its_class() -> None:
    line = inspect.getsourcelines(nn.ReLU.forward)[1]
    assert source_of(torch.jit.script(nn.ReLU())) == f"torch/nn/modules/activation.py:{line}"


class Odd:
    """A callable that no tool of `inspect` can make anything of."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no attributes here")

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_what_is_no_python_function_has_none() -> None:
    assert source_of(nn.ModuleList()) is None
    odd, endless = Plain(), Plain()
    odd.forward = Odd()  # type: ignore[method-assign]

    def loop(x: torch.Tensor) -> torch.Tensor:
        return x

    loop.__wrapped__ = loop  # type: ignore[attr-defined]
    endless.forward = loop  # type: ignore[method-assign]
    assert source_of(odd) is None
    assert source_of(endless) is None


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source") / "run"
    model = nn.Sequential(OrderedDict(plain=Plain(), mild=Decorated()))
    with assay.capture(model, folder, level="operator"):
        model(torch.ones(3))
    return folder


def test_it_stands_in_the_topology_and_in_the_tree(run: Path) -> None:
    tree = json.loads((run / "rank0/topology.json").read_text())
    assert [child["source"] for child in tree["children"]] == [line_of(Plain.forward), line_of(Decorated.forward)]
    opened = assay.open(run).tree
    assert opened is not None
    assert [node.source for node in opened.walk()] == [
        f"torch/nn/modules/container.py:{inspect.getsourcelines(nn.Sequential.forward)[1]}",
        line_of(Plain.forward),
        line_of(Decorated.forward),
    ]


def test_show_tells_it_of_one_module(run: Path) -> None:
    def show(*words: str) -> list[str]:
        return run_command("show", run, *words, "--width", 1000).stdout.splitlines()

    assert f"source    {line_of(Decorated.forward)}" in show("mild.output")
    assert f"  source: {line_of(Plain.forward)}" in show("plain")
    assert f"source    {line_of(Plain.forward)}" in show("plain::aten.add.Tensor.0.output")
    assert not any(".py:" in line for line in [*show(), *show("*")])
