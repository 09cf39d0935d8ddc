# SPDX-License-Identifier: Apache-2.0
"""``scope.data_dump()``: which operators it selects, and what happens when its block is broken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from dump_reading import index_of, run_folder, step_dumps, the_only

from assay.torch.graph import CompilerConfig, get_backend, scope


def dumped_names(path: Path, function: Callable[..., object], *args: torch.Tensor, layer: str = "") -> set[str]:
    """Operators with a file in the first graph."""
    config = CompilerConfig()
    config.dump_config.enable_dump = True
    config.dump_config.dump_path = str(path)
    config.dump_config.dump_layer = layer
    backend = get_backend(config)
    torch.compile(function, backend=backend)(*args)
    backend.close()
    run = run_folder(path)
    return set(step_dumps(run, index_of(run)["graphs"][0]["graph"], 0))


def test_operators_inside_the_block_are_selected_by_name(tmp_path: Path) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        first = x - y
        with scope.data_dump():
            second = first - y  # Sub_1, whose type is the name of the first one
        return second * 2

    assert dumped_names(tmp_path, function, torch.ones(2), torch.ones(2)) == {"Sub_1", "arg1_1"}
    text = the_only(run_folder(tmp_path), "dynamo_original*.txt").read_text()
    assert text.count('key: "torchair_enable_data_dump"') == 1


def test_the_selection_is_the_union_with_dump_layer(tmp_path: Path) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        added = torch.add(x, y)
        with scope.data_dump():
            subtracted = torch.sub(x, y)
        return added, subtracted * 2

    names = dumped_names(tmp_path, function, torch.ones(2), torch.ones(2), layer="Add")
    assert names == {"Add", "Sub", "arg0_1", "arg1_1"}


def test_blocks_may_be_nested_and_have_several_operators(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with scope.data_dump():
            x = x.sin()
            with scope.data_dump():
                x = x.cos()
            x = x.exp()
        return x.tanh()

    assert dumped_names(tmp_path, function, torch.ones(2)) == {"Sin", "Cos", "Exp", "arg0_1"}


def test_the_block_reaches_into_the_backward_graph(tmp_path: Path) -> None:
    config = CompilerConfig()
    config.dump_config.enable_dump = True
    config.dump_config.dump_path = str(tmp_path)

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        with scope.data_dump():
            y = y.tanh()
        return y.sum()

    backend = get_backend(config)
    torch.compile(function, backend=backend)(torch.ones(2, requires_grad=True)).backward()
    backend.close()
    run = run_folder(tmp_path)
    forward, backward = index_of(run)["graphs"]
    names = set(step_dumps(run, forward["graph"], 0))
    assert "Tanh" in names and "Sin" not in names
    types = {dump.type for dump in step_dumps(run, backward["graph"], 0).values()}
    assert "TanhGrad" in types and "Cos" not in types


def test_nothing_of_a_scope_is_left_in_the_graph(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with scope.data_dump():
            return x.sin()

    dumped_names(tmp_path, function, torch.ones(2))
    assert "scope" not in the_only(run_folder(tmp_path), "dynamo_optimized*.txt").read_text().lower()


def test_outside_of_a_graph_a_scope_does_nothing() -> None:
    with scope.data_dump():
        assert torch.ones(1).sin().item() == pytest.approx(0.841471)


def test_the_other_scopes_are_attributes_of_the_text(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with scope.limit_core_num(4, 8), scope.npu_stream_switch("s1", 2):
            return x.sin()

    dumped_names(tmp_path, function, torch.ones(2))
    text = the_only(run_folder(tmp_path), "dynamo_original*.txt").read_text()
    assert '"_op_aicore_num"' in text and '"_user_stream_label"' in text
    with pytest.raises(TypeError, match="takes a bool"):
        scope.op_never_timeout(1)  # type: ignore[arg-type]


def test_a_graph_break_inside_the_block_raises(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with scope.data_dump():
            y = x.sin()
            torch._dynamo.graph_break()
            y = y.cos()
        return y

    with pytest.raises(RuntimeError, match="graph break"):
        dumped_names(tmp_path, function, torch.ones(2))


@pytest.mark.parametrize("begins", [True, False])
def test_a_block_that_does_not_end_or_begin_raises(tmp_path: Path, begins: bool) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        block = scope.data_dump()
        if begins:
            block.__enter__()
        else:
            block.__exit__(None, None, None)
        return x.sin()

    with pytest.raises(RuntimeError, match="graph break lies inside"):
        dumped_names(tmp_path, function, torch.ones(2))
