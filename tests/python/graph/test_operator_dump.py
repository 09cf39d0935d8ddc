# SPDX-License-Identifier: Apache-2.0
"""Operator dump: what is launched outside of compiled graphs, in a folder without model and step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from dump_reading import read_dump
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from assay.torch.graph import CompilerConfig, get_backend


@pytest.fixture(autouse=True)
def no_mode_is_left() -> Iterator[None]:
    yield
    assert _get_current_dispatch_mode_stack() == []


def operator_backend(folder: Path, **more: Any) -> Any:
    (folder / "out").mkdir(exist_ok=True)
    path = folder / "dump.json"
    path.write_text(json.dumps({"dump": {"dump_path": str(folder / "out"), "dump_op_switch": "on", **more}}))
    config = CompilerConfig()
    config.dump_config.dump_config_path = str(path)
    return get_backend(config)


def files_of(folder: Path) -> list[Path]:
    found = folder.glob("out/worldsize1_global_rank0/*/0/*.*.*.*.*")
    return sorted(found, key=lambda path: int(path.name.split(".")[2]))


def test_eager_operators_are_stored_without_model_levels(tmp_path: Path) -> None:
    # Given the operator switch
    backend = operator_backend(tmp_path, dump_mode="all")
    # When operators run outside of any graph
    a = torch.tensor([1.0, 2.0])
    b = a + a
    c = (b + 1).reshape(2, 1)  # the view launches nothing
    c.mul_(3)
    backend.close()
    after = a - a  # after the end nothing is seen
    # Then each left its operands, the one in place with the values from before
    assert after.tolist() == [0.0, 0.0]
    names = [path.name.split(".")[:3] for path in files_of(tmp_path)]
    assert [name[:2] for name in names] == [["Add", "Add"], ["Add", "Add_1"], ["Mul", "Mul"]]
    assert [int(name[2]) for name in names] == [1, 2, 3]
    first, _, product = (read_dump(path) for path in files_of(tmp_path))
    assert [operand.tensor.tolist() for operand in first.inputs] == [[1.0, 2.0], [1.0, 2.0]]
    assert product.inputs[0].tensor.tolist() == [[3.0], [5.0]]
    assert product.outputs[0].tensor.tolist() == [[9.0], [15.0]]


def test_default_mode_of_the_file_is_output(tmp_path: Path) -> None:
    backend = operator_backend(tmp_path)
    torch.ones(2).exp()
    backend.close()
    read = read_dump(files_of(tmp_path)[-1])
    assert (read.type, read.inputs) == ("Exp", [])
    assert torch.equal(read.outputs[0].tensor, torch.ones(2).exp())


def test_operators_of_a_compiled_graph_are_the_graphs(tmp_path: Path) -> None:
    backend = operator_backend(tmp_path, dump_list=[{"model_name": "no such model"}])
    compiled = torch.compile(lambda x: torch.tanh(x) * 2, backend=backend)
    x = torch.zeros(3)
    with torch.no_grad():
        result = compiled(x)
    torch.neg(result)
    backend.close()
    types = [path.name.split(".")[0] for path in files_of(tmp_path)]
    assert "Neg" in types
    assert "Tanh" not in types and "Mul" not in types


def test_backward_operators_are_seen(tmp_path: Path) -> None:
    backend = operator_backend(tmp_path)
    x = torch.ones(2, requires_grad=True)
    torch.tanh(x).sum().backward()
    backend.close()
    assert "TanhGrad" in [path.name.split(".")[0] for path in files_of(tmp_path)]


def test_statistics_and_black_list(tmp_path: Path) -> None:
    item = {"optype_blacklist": [{"name": "Add", "pos": ["input1"]}]}
    backend = operator_backend(
        tmp_path, dump_mode="all", dump_data="stats", dump_stats=["Max"], dump_level="op", dump_list=[item]
    )
    torch.tensor([1.0, 4.0]) + torch.tensor([2.0, 2.0])
    backend.close()
    (path,) = (path for path in files_of(tmp_path) if path.name.startswith("Add."))
    assert path.suffix == ".csv"
    rows = [line.split(",") for line in path.read_text().splitlines()]
    assert rows[0][-1] == "Max Value"
    assert [(row[0], row[1], float(row[-1])) for row in rows[1:]] == [("Input", "0", 4.0), ("Output", "0", 6.0)]


def test_inside_another_mode_it_stays_out(tmp_path: Path) -> None:
    class Other(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    with Other(), pytest.warns(UserWarning, match="another dispatch mode"):
        backend = operator_backend(tmp_path)
    torch.ones(2).exp()
    backend.close()
    assert files_of(tmp_path) == []
