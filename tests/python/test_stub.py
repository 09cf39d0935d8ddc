# SPDX-License-Identifier: Apache-2.0
"""The checked-in stub of assay._core says what the module has."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from assay import _core

ROOT = Path(__file__).resolve().parents[2]
STUB = ROOT / "python" / "assay" / "_core.pyi"
STATEMENTS = ast.parse(STUB.read_text()).body
CLASSES = {node.name: node for node in STATEMENTS if isinstance(node, ast.ClassDef)}
FUNCTIONS = {node.name: node for node in STATEMENTS if isinstance(node, ast.FunctionDef)}
METHODS = [
    (name, member)
    for name, node in CLASSES.items()
    for member in node.body
    if isinstance(member, ast.FunctionDef) and not member.decorator_list and member.name != "__init__"
]


def test_the_stub_is_what_the_installed_module_says_of_itself():
    command = [sys.executable, str(ROOT / "tools" / "write_stub.py")]
    fresh = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert STUB.read_text() == fresh, f"renew it with: tools/write_stub.py > {STUB.relative_to(ROOT)}"


def test_the_stub_has_every_name_of_the_module_and_no_other():
    ours = {name for name in vars(_core) if not name.startswith("__") and name != "_description"}
    assert {*CLASSES, *FUNCTIONS} == ours
    for name, node in CLASSES.items():
        said = {member.name for member in node.body if isinstance(member, ast.FunctionDef)} - {"__init__"}
        # __slotnames__ is what Python's copyreg leaves in a class that somebody tried to copy.
        unsaid = {"__doc__", "__module__", "__new__", "__slotnames__"}
        assert said == set(vars(getattr(_core, name))) - unsaid, name


def _parameters(node: ast.FunctionDef) -> list[tuple[str, str, str]]:
    """Name, kind and default of each."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    kinds = ["positional-only"] * len(arguments.posonlyargs) + ["positional or keyword"] * len(arguments.args)
    rows = list(zip(positional, kinds, defaults))
    rows += [(one, "keyword-only", value) for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    return [(one.arg, kind, ast.unparse(value) if value else "") for one, kind, value in rows]


def _signature(function: object) -> list[tuple[str, str, str]]:
    """The same as inspect reads it from the built function."""
    parameters = inspect.signature(function).parameters.values()
    return [
        (one.name, one.kind.description, "" if one.default is one.empty else repr(one.default)) for one in parameters
    ]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_the_parameters_of_the_stub(name):
    assert _parameters(FUNCTIONS[name]) == _signature(getattr(_core, name))


@pytest.mark.parametrize(("owner", "node"), METHODS, ids=lambda value: getattr(value, "name", value))
def test_a_method_has_the_parameters_of_the_stub(owner, node):
    found = _signature(getattr(getattr(_core, owner), node.name))
    assert found == [("self", "positional-only", ""), *_parameters(node)[1:]]
