# SPDX-License-Identifier: Apache-2.0
"""Watcher: the operator that tramples on another one's output is named, with the content before and after."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from dump_reading import read_dump, run_folder

from assay.torch.graph import CompilerConfig, get_backend, logger
from assay.torch.graph._watcher import same_bytes


@torch.library.custom_op("assay_watcher_test::peek", mutates_args=())
def peek(x: torch.Tensor) -> torch.Tensor:
    """Says that it only reads, and writes."""
    x.view(-1)[1] = 42.0
    return x.sum()


@peek.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(())


_kept: list[torch.Tensor] = []


@torch.library.custom_op("assay_watcher_test::remember", mutates_args=())
def remember(x: torch.Tensor) -> torch.Tensor:
    _kept.append(x.view(-1))
    return x.clone()


@remember.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("assay_watcher_test::late", mutates_args=())
def late(x: torch.Tensor) -> torch.Tensor:
    """Writes through a view that another operator left behind."""
    _kept.pop()[0] = -1.0
    return x + 1


@late.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@pytest.fixture
def log() -> Any:
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler = Handler()
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)


def watcher_backend(folder: Path, watched: list[str], layers: list[str] | None = None, level: int = 1) -> Any:
    (folder / "out").mkdir()
    item: dict[str, Any] = {"watcher_nodes": watched}
    if layers is not None:
        item["layer"] = layers
    dump = {"dump_path": str(folder / "out"), "dump_mode": "output", "dump_scene": "watcher", "dump_list": [item]}
    path = folder / "dump.json"
    path.write_text(json.dumps({"dump": dump}))
    config = CompilerConfig()
    config.dump_config.dump_config_path = str(path)
    config.execution.decomposition_level = level
    return get_backend(config)


def files_of(folder: Path) -> list[Path]:
    found = run_folder(folder / "out").glob("0/*/*/0/*")
    return sorted(found, key=lambda path: int(path.name.split(".")[4]))


def trampled(x: torch.Tensor) -> torch.Tensor:
    h = torch.relu(x)
    a = h * 2
    total = torch.ops.assay_watcher_test.peek(h)
    return a + h + total


def test_operator_that_lies_about_mutation_is_named(tmp_path: Path, log: list[str]) -> None:
    # Given relu's output watched after every operator
    backend = watcher_backend(tmp_path, ["Relu"])
    # When an operator overwrites it that says it does not
    with torch.no_grad():
        torch.compile(trampled, backend=backend)(torch.tensor([1.0, 2.0, 3.0]))
    backend.close()
    # Then there are W's own file and one L_To_W, with the content before and after
    own, changed = files_of(tmp_path)
    assert own.name.startswith("Relu.Relu.")
    names = changed.name.split(".")
    assert names[0] == "Relu" and names[1].endswith("_To_Relu")
    trampler = names[1].removesuffix("_To_Relu")
    assert "eek" in trampler
    assert read_dump(own).outputs[0].tensor.tolist() == [1.0, 2.0, 3.0]
    assert read_dump(changed).outputs[0].tensor.tolist() == [1.0, 42.0, 3.0]
    assert read_dump(own).inputs == []
    # the task of the second file is the trampler's
    assert int(names[2]) > int(own.name.split(".")[2])
    assert len(log) == 1
    assert f"output 0 of Relu changed in {trampler}" in log[0]
    assert "does not say" in log[0]


def test_stale_view_is_found_where_it_is_written(tmp_path: Path, log: list[str]) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        h = torch.sigmoid(x)
        kept = torch.ops.assay_watcher_test.remember(h)
        y = torch.ops.assay_watcher_test.late(kept * 3)
        return y + h

    backend = watcher_backend(tmp_path, ["Sigmoid"])
    with torch.no_grad():
        torch.compile(model, backend=backend)(torch.zeros(2))
    backend.close()
    own, changed = files_of(tmp_path)
    assert "ate_To_Sigmoid" in changed.name
    assert read_dump(own).outputs[0].tensor.tolist() == [0.5, 0.5]
    assert read_dump(changed).outputs[0].tensor.tolist() == [-1.0, 0.5]


def test_only_chosen_layers_look_and_say_what_they_did_not_see(tmp_path: Path, log: list[str]) -> None:
    backend = watcher_backend(tmp_path, ["Relu"], layers=["Add_1"])
    with torch.no_grad():
        torch.compile(trampled, backend=backend)(torch.tensor([1.0, 2.0, 3.0]))
    backend.close()
    assert [path.name.split(".")[1] for path in files_of(tmp_path)] == ["Relu", "Add_1_To_Relu"]
    assert "ran since the last look" in log[0]
    assert "eek" in log[0]


def test_functional_graph_leaves_one_file_and_no_message(tmp_path: Path, log: list[str]) -> None:
    # At level 1 AOTAutograd has made add_ functional: nothing can trample.
    def model(x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(x)
        view = h[:1]
        view.add_(5)
        return h * 2

    backend = watcher_backend(tmp_path, ["Relu"])
    with torch.no_grad():
        result = torch.compile(model, backend=backend)(torch.tensor([1.0, 2.0]))
    backend.close()
    assert result.tolist() == [12.0, 4.0]
    assert [path.name.split(".")[1] for path in files_of(tmp_path)] == ["Relu"]
    assert log == []


def test_graph_of_dynamo_shows_in_place_operators(tmp_path: Path, log: list[str]) -> None:
    # At level 0 the same program writes through a view.
    def model(x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(x)
        view = h[:1]
        view.add_(5)
        return h * 2

    backend = watcher_backend(tmp_path, ["Relu"], level=0)
    with torch.no_grad():
        result = torch.compile(model, backend=backend)(torch.tensor([1.0, 2.0]))
    backend.close()
    assert result.tolist() == [12.0, 4.0]
    own, changed = files_of(tmp_path)
    assert read_dump(own).outputs[0].tensor.tolist() == [1.0, 2.0]
    assert read_dump(changed).outputs[0].tensor.tolist() == [6.0, 2.0]


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (torch.tensor([float("nan")]), torch.tensor([float("nan")]), True),
        (torch.tensor([0.0]), torch.tensor([-0.0]), False),
        (torch.tensor(3), torch.tensor(3), True),
        (torch.tensor([True, False]), torch.tensor([True, True]), False),
        (torch.empty(0), torch.empty(0), True),
        (torch.ones(2, 3).t(), torch.ones(3, 2), True),
        (torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.bfloat16), True),
        (torch.tensor([2 + 1j]).conj(), torch.tensor([2 - 1j]), True),
    ],
)
def test_bytes_decide(left: torch.Tensor, right: torch.Tensor, same: bool) -> None:
    assert same_bytes(left, right) is same
