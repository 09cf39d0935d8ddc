# SPDX-License-Identifier: Apache-2.0
"""The backend: which files a compiled function leaves, that its results do not change, and what graphs.json says.

Oracle for the values: plain eager torch, operator by operator; for the files an own reader (dump_reading.py).
"""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from dump_reading import index_of, read_dump, run_folder, step_dumps, the_only

from assay.torch.graph import CompilerConfig, get_backend, step
from assay.torch.graph import _files as files
from assay.torch.graph._request import ConfigurationError


def dumping(path: Path, **options: object) -> CompilerConfig:
    """A configuration that dumps to path; options by name, `execution_engine` for execution.engine."""
    config = CompilerConfig()
    config.dump_config.enable_dump = True
    config.dump_config.dump_path = str(path)
    for name, value in options.items():
        if name.startswith("execution_"):
            setattr(config.execution, name.removeprefix("execution_"), value)
        else:
            setattr(config.dump_config, name, value)
    return config


def first_graph(run: Path) -> int:
    return index_of(run)["graphs"][0]["graph"]


def add_mul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x + y) * y


# ---- files -----------------------------------------------------------------------------------------------------------


def test_every_operator_leaves_a_file_with_what_it_saw(tmp_path: Path) -> None:
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    backend = get_backend(dumping(tmp_path))
    assert torch.equal(torch.compile(add_mul, backend=backend)(x, y), torch.tensor([12.0, 24.0]))
    backend.close()

    run = run_folder(tmp_path)
    number = first_graph(run)
    dumps = step_dumps(run, number, 0)
    assert sorted(dumps) == ["Add", "Mul", "arg0_1", "arg1_1"]
    assert [o.tensor.tolist() for o in dumps["Mul"].inputs] == [[4.0, 6.0], [3.0, 4.0]]
    assert [o.tensor.tolist() for o in dumps["Mul"].outputs] == [[12.0, 24.0]]
    assert dumps["arg0_1"].type == "Data" and dumps["arg0_1"].outputs[0].tensor.tolist() == [1.0, 2.0]
    assert [dumps[name].task for name in ("arg0_1", "arg1_1", "Add", "Mul")] == [1, 2, 3, 4]
    assert re.fullmatch(r"\d{14}", run.name) and run.parent.name == "worldsize1_global_rank0"

    index = index_of(run)
    graph = index["graphs"][0]
    assert index["complete"] and index["engine"] == "interpreter" and index["torch"] == torch.__version__
    assert (graph["kind"], graph["planned"], graph["dumped"], graph["steps"], graph["missed"]) == (
        "inference", 4, 4, [0], [],
    )  # fmt: skip
    assert len(graph["texts"]) == 2 and all((run / text).is_file() for text in graph["texts"])


@pytest.mark.parametrize(("mode", "sides"), [("input", (2, 0)), ("output", (0, 1)), ("all", (2, 1))])
def test_dump_mode_chooses_the_side(tmp_path: Path, mode: str, sides: tuple[int, int]) -> None:
    backend = get_backend(dumping(tmp_path, dump_mode=mode))
    torch.compile(add_mul, backend=backend)(torch.ones(2), torch.ones(2))
    backend.close()
    run = run_folder(tmp_path)
    add = step_dumps(run, first_graph(run), 0)["Add"]
    assert (len(add.inputs), len(add.outputs)) == sides


def test_dump_layer_selects_operators_and_the_data_they_read(tmp_path: Path) -> None:
    backend = get_backend(dumping(tmp_path, dump_layer="Mul"))
    torch.compile(add_mul, backend=backend)(torch.ones(2), torch.ones(2))
    backend.close()
    run = run_folder(tmp_path)
    assert sorted(step_dumps(run, first_graph(run), 0)) == ["Mul", "arg1_1"]


def test_statistics_instead_of_tensors(tmp_path: Path) -> None:
    x = torch.tensor([1.0, -2.0, float("nan")])
    backend = get_backend(dumping(tmp_path, dump_data="stats", dump_layer="Add"))
    torch.compile(lambda x: x + x, backend=backend)(x)
    backend.close()
    run = run_folder(tmp_path)
    number = first_graph(run)
    path = the_only(run, f"0/graph_{number}/{number}/0/Add.Add.*.csv")
    rows = [line.split(",") for line in path.read_text().splitlines()]
    assert rows[0][:4] == ["Input/Output", "Index", "Data Size", "Data Type"]
    output = dict(zip(rows[0], rows[-1]))
    assert output["Input/Output"] == "Output" and output["Data Size"] == "12" and output["Shape"] == "3"
    assert float(output["Max Value"]) == 2 and float(output["Min Value"]) == -4 and output["Nan Count"] == "1"


def test_an_operator_that_overwrites_its_input_is_dumped_with_the_value_from_before(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    x = torch.tensor([1.0])
    backend = get_backend(dumping(tmp_path))
    result = torch.compile(function, backend=backend)(x)
    backend.close()
    assert result.tolist() == [4.0] and x.tolist() == [2.0]
    run = run_folder(tmp_path)
    assign = step_dumps(run, first_graph(run), 0)["Assign"]
    assert [o.tensor.tolist() for o in assign.inputs] == [[1.0], [2.0]]  # the old value, what it becomes
    assert assign.outputs[0].tensor.tolist() == [2.0]


def test_views_and_their_base_are_stored_as_they_were_when_the_operator_ran(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        row = y[0]
        row.mul_(10)  # changes y as well
        return y.sum()

    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    backend = get_backend(dumping(tmp_path))
    assert torch.compile(function, backend=backend)(x).item() == 20 + 30 + 4 + 5
    backend.close()
    run = run_folder(tmp_path)
    dumps = step_dumps(run, first_graph(run), 0)
    assert dumps["Add"].outputs[0].tensor.tolist() == [[2.0, 3.0], [4.0, 5.0]]
    assert dumps["ReduceSum"].inputs[0].tensor.tolist() == [[20.0, 30.0], [4.0, 5.0]]


DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64, torch.bool]
DTYPES += [torch.uint8, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_keep_dtype_shape_and_bits(tmp_path: Path, dtype: torch.dtype) -> None:
    base = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 0.0]]).to(dtype)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.t().clone(), x[:, 1].clone(), x.reshape(-1)[0].clone(), x[:0].clone()

    backend = get_backend(dumping(tmp_path))
    expected = function(base)
    results = torch.compile(function, backend=backend)(base)
    backend.close()
    run = run_folder(tmp_path)
    number = first_graph(run)
    dumps = step_dumps(run, number, 0)
    clones = [dumps[name] for name in ("TensorMove", "TensorMove_1", "TensorMove_2", "TensorMove_3")]
    for clone, result, wanted in zip(clones, results, expected):
        # The input is a view: transposed, a column, 0-d, empty.
        for stored in (clone.inputs[0], clone.outputs[0]):
            assert stored.dtype == dtype and stored.shape == tuple(wanted.shape)
            assert stored.size == wanted.numel() * dtype.itemsize
            assert torch.equal(stored.tensor.contiguous().view(-1), wanted.contiguous().view(-1))
        assert torch.equal(result.contiguous().view(-1), wanted.contiguous().view(-1))


def test_names_and_files_of_the_graph_text_and_the_dump_agree(tmp_path: Path) -> None:
    backend = get_backend(dumping(tmp_path))
    torch.compile(lambda x: torch.softmax(x @ x, -1) + x, backend=backend)(torch.ones(2, 2))
    backend.close()
    run = run_folder(tmp_path)
    text = the_only(run, "dynamo_optimized_graph_*.txt").read_text()
    named = re.findall(r'^op \{\n  name: "([^"]+)"\n  type: "([^"]+)"', text, re.M)
    dumped = {(dump.name, dump.type) for dump in step_dumps(run, first_graph(run), 0).values()}
    assert dumped == {(name, kind) for name, kind in named if kind not in ("NetOutput", "Const")}


# ---- steps -----------------------------------------------------------------------------------------------------------


def test_steps_are_runs_of_the_graph_and_the_filter_leaves_the_others_out(tmp_path: Path) -> None:
    backend = get_backend(dumping(tmp_path, dump_step="1|3-4"))
    compiled = torch.compile(add_mul, backend=backend)
    for run_number in range(6):
        x = torch.full((2,), float(run_number))
        assert torch.equal(compiled(x, x), add_mul(x, x))
    backend.close()
    run = run_folder(tmp_path)
    graph = index_of(run)["graphs"][0]
    assert graph["steps"] == [1, 3, 4] and graph["runs"] == 6
    number = graph["graph"]
    assert sorted(path.name for path in (run / "0" / f"graph_{number}" / str(number)).iterdir()) == ["1", "3", "4"]
    assert step_dumps(run, number, 3)["arg0_1"].outputs[0].tensor.tolist() == [3.0, 3.0]


def test_the_token_counter_gives_prefill_and_decode_their_own_tokens(tmp_path: Path) -> None:
    backend = get_backend(dumping(tmp_path))
    compiled = torch.compile(lambda x: x.sin(), backend=backend, dynamic=False)
    compiled(torch.ones(4))  # prefill: token 0
    for _ in range(2):
        step()
        compiled(torch.ones(1))  # decode: its own graph, tokens 1 and 2
    backend.close()
    graphs = index_of(run_folder(tmp_path))["graphs"]
    assert [graph["steps"] for graph in graphs] == [[0], [1, 2]]


def test_two_runs_in_one_token_share_a_folder_and_graphs_json_says_so(tmp_path: Path) -> None:
    backend = get_backend(dumping(tmp_path))
    compiled = torch.compile(lambda x: x.sin(), backend=backend)
    step()
    compiled(torch.ones(1))
    compiled(torch.ones(1))
    backend.close()
    run = run_folder(tmp_path)
    (graph,) = index_of(run)["graphs"]
    assert graph["steps"] == [1] and graph["runs"] == 2
    assert len(list(run.glob("0/*/*/1/Sin.Sin.*"))) == 2
    assert "ran more than once in step 1" in graph["warnings"][0]


def test_the_graph_counter_can_be_asked_for(tmp_path: Path) -> None:
    step()
    backend = get_backend(dumping(tmp_path, execution_token_counter="graph"))
    torch.compile(lambda x: x.sin(), backend=backend)(torch.ones(1))
    backend.close()
    assert index_of(run_folder(tmp_path))["graphs"][0]["steps"] == [0]


def test_a_step_outside_of_the_filter_runs_the_generated_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.torch.graph._interpreter import Program

    def never(*args: object) -> None:
        raise AssertionError("the interpreter ran in a step that is not dumped")

    backend = get_backend(dumping(tmp_path, dump_step="7"))
    compiled = torch.compile(add_mul, backend=backend)
    monkeypatch.setattr(Program, "run", never)
    assert compiled(torch.ones(2), torch.ones(2)).tolist() == [2.0, 2.0]


def test_without_a_dump_the_callable_is_that_of_aot_eager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.backends import registry

    seen: list[object] = []
    real = registry.lookup_backend
    monkeypatch.setattr(registry, "lookup_backend", lambda name: (seen.append(name), real(name))[1])
    monkeypatch.chdir(tmp_path)
    assert torch.compile(add_mul, backend=get_backend())(torch.ones(2), torch.ones(2)).tolist() == [2.0, 2.0]
    assert [name for name in seen if isinstance(name, str)] == ["aot_eager"] and list(tmp_path.iterdir()) == []


def test_a_closed_backend_lets_the_model_go_on(tmp_path: Path) -> None:
    backend = get_backend(dumping(tmp_path))
    compiled = torch.compile(add_mul, backend=backend)
    compiled(torch.ones(2), torch.ones(2))
    backend.close()
    assert compiled(torch.ones(2), torch.ones(2)).tolist() == [2.0, 2.0]
    assert index_of(run_folder(tmp_path))["graphs"][0]["steps"] == [0]


def test_a_backend_that_is_gone_has_closed_its_run(tmp_path: Path) -> None:
    backend = get_backend(dumping(tmp_path))
    torch.compile(add_mul, backend=backend)(torch.ones(2), torch.ones(2))
    assert index_of(run_folder(tmp_path))["complete"] is False
    del backend
    torch._dynamo.reset()
    gc.collect()
    index = index_of(run_folder(tmp_path))
    assert index["complete"] and index["graphs"][0]["dumped"] == 4


# ---- several graphs --------------------------------------------------------------------------------------------------


def test_each_piece_of_a_broken_graph_is_a_graph_and_the_break_is_named(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    backend = get_backend(dumping(tmp_path))
    assert torch.compile(function, backend=backend)(torch.ones(2)).tolist() == [4.0, 4.0]
    backend.close()
    index = index_of(run_folder(tmp_path))
    first, second = index["graphs"]
    assert first["graph"] + 1 == second["graph"]
    assert "graph_break" in first["break_reason"] and second["break_reason"] == ""
    line = function.__code__.co_firstlineno + 2
    assert first["break_place"] == f"{__file__}:{line}"
    run = run_folder(tmp_path)
    assert "Add" in step_dumps(run, first["graph"], 0) and "Mul" in step_dumps(run, second["graph"], 0)


def test_a_recompilation_is_a_graph_with_the_first_one_as_parent(tmp_path: Path) -> None:
    backend = get_backend(dumping(tmp_path))
    compiled = torch.compile(add_mul, backend=backend, dynamic=False)
    for size in (2, 3):
        compiled(torch.ones(size), torch.ones(size))
    backend.close()
    first, second = index_of(run_folder(tmp_path))["graphs"]
    assert first["parent"] is None and second["parent"] == first["graph"]
    assert first["guards"].startswith("sha256:") and second["compile_id"].endswith("/1")


def test_dynamic_shapes_use_one_graph_and_files_have_the_real_shapes(tmp_path: Path) -> None:
    backend = get_backend(dumping(tmp_path))
    compiled = torch.compile(add_mul, backend=backend, dynamic=True)
    for size in (5, 7):
        compiled(torch.ones(size), torch.ones(size))
    backend.close()
    run = run_folder(tmp_path)
    (graph,) = index_of(run)["graphs"]
    assert graph["planned"] == graph["dumped"]
    shapes = [step_dumps(run, graph["graph"], number)["Mul"].outputs[0].shape for number in (0, 1)]
    assert shapes == [(5,), (7,)]
    text = the_only(run, "dynamo_original*.txt").read_text()
    assert "dim: -1" in text and "size=[s" in text


def test_arithmetic_on_sizes_is_in_the_text_and_leaves_no_file(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.new_zeros(x.shape[0] + 3) + x.sum()

    backend = get_backend(dumping(tmp_path))
    torch.compile(function, backend=backend, dynamic=True)(torch.ones(4))
    backend.close()
    run = run_folder(tmp_path)
    (graph,) = index_of(run)["graphs"]
    assert graph["planned"] == graph["dumped"] and graph["missed"] == []
    names = set(step_dumps(run, graph["graph"], 0))
    text = the_only(run, "dynamo_original*.txt").read_text()
    sizes = re.findall(r'name: "(Add[_0-9]*)"\n  type: "Add"', text)
    assert len(sizes) == 2 and len(names & set(sizes)) == 1, "one Add of tensors, one of sizes"


def test_an_operator_that_only_reads_is_planned_where_inputs_are_dumped(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x[0] = 5.0  # at level 0 setitem, which returns nothing
        return x * 1

    for mode, expected in (("all", {"IndexPutV2", "Mul"}), ("output", {"Mul"})):
        path = tmp_path / mode
        path.mkdir()
        torch._dynamo.reset()
        backend = get_backend(dumping(path, dump_mode=mode, execution_decomposition_level=0))
        assert torch.compile(function, backend=backend)(torch.ones(2)).tolist() == [5.0, 1.0]
        backend.close()
        run = run_folder(path)
        (graph,) = index_of(run)["graphs"]
        dumps = step_dumps(run, graph["graph"], 0)
        assert {dump.type for dump in dumps.values()} == {"Data", *expected}
        assert graph["planned"] == graph["dumped"] == len(dumps)


def test_training_gives_a_forward_and_a_backward_graph(tmp_path: Path) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    backend = get_backend(dumping(tmp_path))
    torch.compile(lambda x: (x * x).sum(), backend=backend)(x).backward()
    backend.close()
    assert x.grad.tolist() == [2.0, 4.0]
    run = run_folder(tmp_path)
    forward, backward = index_of(run)["graphs"]
    assert (forward["kind"], backward["kind"], backward["parent"]) == ("forward", "backward", forward["graph"])
    assert backward["steps"] == [0] and backward["planned"] == backward["dumped"]
    gradients = [o.tensor.tolist() for dump in step_dumps(run, backward["graph"], 0).values() for o in dump.outputs]
    assert [2.0, 4.0] in gradients


@pytest.mark.parametrize("level", [0, 1, 2])
def test_decomposition_levels(tmp_path: Path, level: int) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(torch.nn.functional.linear(x, w), [4])

    x, w = torch.randn(2, 4), torch.randn(4, 4)
    backend = get_backend(dumping(tmp_path, execution_decomposition_level=level))
    with torch.no_grad():
        result = torch.compile(function, backend=backend)(x, w)
        expected = function(x, w)
    backend.close()
    run = run_folder(tmp_path)
    index = index_of(run)
    (graph,) = index["graphs"]
    assert index["decomposition_level"] == level
    names = set(step_dumps(run, graph["graph"], 0))
    if level == 0:
        assert graph["kind"] == "dynamo" and {"MatMulV2", "LayerNormV4"} <= names and torch.equal(result, expected)
    elif level == 1:
        assert {"MatMulV2", "Transpose", "LayerNormV4"} <= names and torch.equal(result, expected)
    else:
        # native_layer_norm is made of mean, variance, rsqrt ...: the same formula, other rounding.
        assert "LayerNormV4" not in names and "Rsqrt" in names
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6)


def test_quant_dumpable_keeps_quantise_operators_out_of_the_decompositions(tmp_path: Path) -> None:
    from torch.ao.quantization.fx import _decomposed

    quantize = torch.ops.quantized_decomposed.quantize_per_tensor.default

    def function(x: torch.Tensor) -> torch.Tensor:
        return quantize(x * 2, 0.5, 0, -128, 127, torch.int8)

    names = {}
    for dumpable in (False, True):
        torch._dynamo.reset()
        path = tmp_path / str(dumpable)
        path.mkdir()
        backend = get_backend(
            dumping(path, quant_dumpable=dumpable), custom_decompositions={quantize: _decomposed.quantize_per_tensor}
        )
        assert torch.compile(function, backend=backend)(torch.ones(2)).tolist() == [4, 4]
        backend.close()
        run = run_folder(path)
        names[dumpable] = step_dumps(run, first_graph(run), 0)
    assert "AscendQuant" in names[True] and "AscendQuant" not in names[False]
    assert names[True]["AscendQuant"].inputs[0].tensor.tolist() == [2.0, 2.0]  # before quantisation


def test_a_custom_decomposition_is_used(tmp_path: Path) -> None:
    backend = get_backend(
        dumping(tmp_path), custom_decompositions={torch.ops.aten.silu.default: lambda x: x * torch.sigmoid(x)}
    )
    torch.compile(torch.nn.functional.silu, backend=backend)(torch.ones(2))
    backend.close()
    run = run_folder(tmp_path)
    assert {"Sigmoid", "Mul"} <= set(step_dumps(run, first_graph(run), 0))


def test_threads_run_one_graph_at_the_same_time(tmp_path: Path) -> None:
    backend = get_backend(dumping(tmp_path))
    compiled = torch.compile(add_mul, backend=backend)
    compiled(torch.zeros(64), torch.zeros(64))
    wrong: list[float] = []

    def work(value: float) -> None:
        x = torch.full((64,), value)
        for _ in range(10):
            if not torch.equal(compiled(x, x.clone()), add_mul(x, x)):
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(float(value),)) for value in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    backend.close()
    run = run_folder(tmp_path)
    (graph,) = index_of(run)["graphs"]
    assert not wrong and sorted(graph["steps"]) == list(range(41))
    for number in graph["steps"]:
        dumps = step_dumps(run, graph["graph"], number)
        x = dumps["arg0_1"].outputs[0].tensor
        assert torch.equal(dumps["Mul"].outputs[0].tensor, add_mul(x, x)), "operands of one run lie in one folder"


# ---- what is not seen is named ---------------------------------------------------------------------------------------


def test_the_body_of_a_higher_order_operator_is_named_as_unseen(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,)) + 1

    backend = get_backend(dumping(tmp_path))
    result = torch.compile(function, backend=backend)(torch.ones(2))
    backend.close()
    assert torch.equal(result, torch.ones(2).sin() + 1)
    run = run_folder(tmp_path)
    (graph,) = index_of(run)["graphs"]
    assert [(miss["node"], miss["count"]) for miss in graph["missed"]] == [("Cond", 1)]
    assert "higher-order" in graph["missed"][0]["reason"]
    assert torch.equal(step_dumps(run, graph["graph"], 0)["Cond"].outputs[0].tensor, torch.ones(2).sin())


def test_a_function_that_dynamo_does_not_compile_is_named_too(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x

    backend = get_backend(dumping(tmp_path))
    torch.compile(function, backend=backend)(torch.ones(2))
    backend.close()
    index = index_of(run_folder(tmp_path))
    assert index["graphs"] == [] and [item["count"] for item in index["breaks"]] == [1]


def test_tensors_without_plain_bytes_are_refused_with_a_reason() -> None:
    class Marked(torch.Tensor):
        pass

    x = torch.ones(2).as_subclass(Marked)
    assert "tensor subclass" in files.refusal(x)
    assert files.refusal(torch.nn.Parameter(torch.ones(2))) == ""
    assert "no data" in files.refusal(torch.ones(2, device="meta"))
    assert "sparse_coo is not dense" in files.refusal(torch.ones(2).to_sparse())


def test_an_operand_without_bytes_is_left_out_and_named_and_the_others_are_stored(tmp_path: Path) -> None:
    from assay.torch.graph._model import Graph, Operator
    from assay.torch.graph._request import DumpRequest, OperandMask, Plan

    operator = Operator("Add", "Add")
    run_of = files.RunFolder(str(tmp_path), {})
    run_of.open("cpu")
    entry = files.GraphEntry(7, "graph_7", "inference")
    plan = Plan({"Add": OperandMask(True, True)})
    folder = files.GraphFolder(run_of, Graph("graph_7", [operator]), plan, DumpRequest(path=str(tmp_path)), entry)
    run_of.add(entry)
    folder.write_operator(operator, [torch.ones(2).to_sparse(), torch.ones(2)], [torch.ones(2)], step=9)
    run_of.close()
    run = run_folder(tmp_path)
    add = step_dumps(run, 7, 9)["Add"]
    assert len(add.inputs) == 1 and add.inputs[0].index == 1 and len(add.outputs) == 1
    (missed,) = index_of(run)["graphs"][0]["missed"]
    assert (missed["node"], missed["count"]) == ("Add", 1)
    assert missed["reason"] == "input 0: layout sparse_coo is not dense"


def test_breaks_are_counted_also_where_they_leave_no_graph(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()  # nothing before it: no graph of its own
        return x.sin()

    backend = get_backend(dumping(tmp_path))
    torch.compile(function, backend=backend)(torch.ones(2))
    backend.close()
    index = index_of(run_folder(tmp_path))
    assert len(index["graphs"]) == 1 and [item["count"] for item in index["breaks"]] == [1]
    assert "graph_break" in index["breaks"][0]["reason"]


def test_names_that_match_nothing_are_warned_about(tmp_path: Path) -> None:
    backend = get_backend(dumping(tmp_path, dump_layer="Mull"))
    with pytest.warns(UserWarning, match=r"'Mull' matches no operator of graph_\d+; nearest: Mul"):
        torch.compile(add_mul, backend=backend)(torch.ones(2), torch.ones(2))
    backend.close()
    assert "nearest: Mul" in index_of(run_folder(tmp_path))["graphs"][0]["warnings"][0]


def test_a_file_in_the_place_of_the_folder_stops_the_capture_and_not_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = get_backend(dumping(tmp_path))
    (tmp_path / "worldsize1_global_rank0").write_text("in the way")
    assert torch.compile(add_mul, backend=backend)(torch.ones(2), torch.ones(2)).tolist() == [2.0, 2.0]
    assert "is not captured" in capsys.readouterr().err


def test_tensors_of_a_device_are_copied_aside_and_written_after_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of device tensors, on the CPU: it uses operations of every device only."""

    def function(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        y = x * 2
        x.add_(1)  # what was copied aside stays what it was
        return y

    monkeypatch.setattr(files, "_on_host", lambda tensor: False)
    backend = get_backend(dumping(tmp_path, execution_decomposition_level=0))
    x = torch.tensor([1.0])
    assert torch.compile(function, backend=backend)(x).tolist() == [4.0] and x.tolist() == [3.0]
    backend.close()
    run = run_folder(tmp_path)
    dumps = step_dumps(run, first_graph(run), 0)
    assert [o.tensor.item() for o in dumps["Add"].inputs + dumps["Add"].outputs] == [1.0, 1.0, 2.0]
    assert [o.tensor.tolist() for o in dumps["Mul"].outputs] == [[4.0]]
    assert [o.tensor.item() for o in dumps["Add_1"].inputs + dumps["Add_1"].outputs] == [2.0, 1.0, 3.0]


# ---- texts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["txt", "pbtxt", "py"])
def test_texts_alone_change_nothing_else(tmp_path: Path, suffix: str) -> None:
    config = CompilerConfig()
    config.debug.graph_dump.type = suffix
    config.debug.graph_dump.path = str(tmp_path)
    backend = get_backend(config)
    assert torch.compile(add_mul, backend=backend)(torch.ones(2), torch.ones(2)).tolist() == [2.0, 2.0]
    names = sorted(re.sub(r"\d+", "N", path.name) for path in tmp_path.iterdir())
    stem = f"graph_N_rank_N_pid_N_ts_N.{suffix}"
    assert names == [f"dynamo_optimized_{stem}", f"dynamo_original_{stem}"]
    text = the_only(tmp_path, "dynamo_original*").read_text()
    if suffix == "py":
        assert "## FX Code: mul = torch.ops.aten.mul.Tensor(add, arg1_1)" in text
        assert 'Mul_0 = ge.Mul(Add_0, arg1_1_0, node_name="Mul")' in text
        assert re.search(r'^# File ".*test_backend.py", line \d+, in add_mul return \(x \+ y\) \* y$', text, re.M)
    else:
        assert 'name: "Mul"' in text


def test_the_engine_graph_dump_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUMP_GE_GRAPH", "2")
    monkeypatch.setenv("DUMP_GRAPH_FORMAT", "ge_proto")
    monkeypatch.setenv("DUMP_GRAPH_PATH", str(tmp_path))
    torch.compile(add_mul, backend=get_backend())(torch.ones(2), torch.ones(2))
    names = [re.sub(r"\d{8}", "N", path.name) for path in tmp_path.glob("pid_*_deviceid_0/*")]
    assert sorted(names) == ["ge_proto_N_Build.txt", "ge_proto_N_PreRunBegin.txt"]
    assert 'name: "Mul"' in the_only(tmp_path, "*/*_Build.txt").read_text()


def test_a_pass_of_the_user_changes_what_is_run_and_what_is_dumped(tmp_path: Path) -> None:
    def doubled(graph: torch.fx.Graph) -> None:
        for node in graph.nodes:
            if node.target is torch.ops.aten.add.Tensor:
                node.target = torch.ops.aten.sub.Tensor

    config = dumping(tmp_path)
    config.post_grad_custom_pre_pass = doubled
    backend = get_backend(config)
    assert torch.compile(add_mul, backend=backend)(torch.ones(2), torch.ones(2)).tolist() == [0.0, 0.0]
    backend.close()
    run = run_folder(tmp_path)
    assert "Sub" in step_dumps(run, first_graph(run), 0)


# ---- options by name -------------------------------------------------------------------------------------------------


def test_the_backend_by_name_with_flat_options(tmp_path: Path) -> None:
    import assay.torch.graph._backend as module

    torch._dynamo.register_backend(module.backend, name="assay_by_name")
    options = {"enable_dump": True, "dump_path": str(tmp_path), "execution.dump_constants": True}
    torch.compile(lambda x: x * 3, backend="assay_by_name", options=options)(torch.ones(2))
    module._by_config[-1][1].close()
    run = run_folder(tmp_path)
    assert step_dumps(run, first_graph(run), 0)["Const"].outputs[0].tensor.item() == 3


@pytest.mark.parametrize("name", ["config", "numdump"])
def test_options_may_hold_a_config_a_tree_or_a_file(tmp_path: Path, name: str) -> None:
    from assay.torch.graph._options_dict import config_of

    tree = {"dump_config": {"enable_dump": True, "dump_path": str(tmp_path), "dump_step": "1"}}
    (tmp_path / "c.json").write_text(json.dumps(tree))
    for value in (dumping(tmp_path, dump_step="1"), tree, str(tmp_path / "c.json")):
        config = config_of({name: value})
        assert config.dump_config.enable_dump.raw is True and config.dump_config.dump_step.value == "1"


def test_a_dump_json_may_be_given_as_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.torch.graph._options_dict import ENVIRONMENT, config_of

    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"dump": {"dump_path": str(tmp_path), "dump_list": [{}]}}))
    monkeypatch.setenv(ENVIRONMENT, str(path))
    assert config_of(None).dump_config.dump_config_path.value == str(path)


def test_unknown_options_name_the_known_ones() -> None:
    from assay.torch.graph._options_dict import config_of

    with pytest.raises(ValueError, match=r"unknown option 'dump_pat'.*Nearest: dump_path.*Known options: config"):
        config_of({"dump_pat": "d"})
    with pytest.raises(ValueError, match="takes options= and mode="):
        config_of({}, disable=True)


def test_all_wrong_values_are_reported_at_once() -> None:
    from assay.torch.graph._options_dict import config_of

    with pytest.raises(ConfigurationError) as caught:
        config_of({"dump_mode": "both", "dump_step": "1|", "execution.engine": "fast"})
    assert [problem.item for problem in caught.value.problems] == [
        "dump_config.dump_mode", "dump_config.dump_step", "execution.engine",
    ]  # fmt: skip


# ---- processes -------------------------------------------------------------------------------------------------------

CHILD = """
import sys, torch
from assay.torch.graph import CompilerConfig, get_backend
config = CompilerConfig()
config.dump_config.enable_dump = True
config.dump_config.dump_path = sys.argv[1]
backend = get_backend(config)
compiled = torch.compile(lambda x: (x + 1) * 2, backend=backend)
"""


def child(source: str, path: Path) -> subprocess.Popen[str]:
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    command = [sys.executable, "-c", CHILD + source, str(path)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_killed_process_leaves_whole_files_and_an_index(tmp_path: Path) -> None:
    process = child("while True: compiled(torch.ones(4096)); print(end='.', flush=True)", tmp_path)
    assert process.stdout is not None

    def whole_files() -> list[Path]:
        return [path for path in tmp_path.glob("*/*/0/*/*/*/*") if ".tmp" not in path.name]

    while len(whole_files()) <= 20:
        assert process.stdout.read(1) == ".", "it runs until it is killed"
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    process.stdout.close()
    run = run_folder(tmp_path)
    index = index_of(run)
    assert index["complete"] is False and index["graphs"][0]["planned"] == 3
    assert len(whole_files()) > 20
    for path in whole_files():
        read_dump(path)


@pytest.mark.slow
def test_a_forked_child_writes_nothing_and_its_parent_closes_the_run(tmp_path: Path) -> None:
    source = """
import os
compiled(torch.ones(2))
backend.flush()
child = os.fork()
if child == 0:
    ok = compiled(torch.ones(2)).tolist() == [4.0, 4.0]
    os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"""
    process = child(source, tmp_path)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0 and output.split() == ["0"]
    run = run_folder(tmp_path)
    index = index_of(run)
    assert index["graphs"][0]["steps"] == [0] and len(list(run.glob("0/*/*/*"))) == 1
    assert index["complete"] and index["graphs"][0]["dumped"] == index["graphs"][0]["planned"] == 3


# ---- cost ------------------------------------------------------------------------------------------------------------


def test_an_excluded_step_costs_only_a_counter(tmp_path: Path) -> None:
    """The door itself: well under the cost of one small operator. bench/graph_mode.py measures whole models."""
    from assay.torch.graph._backend import _door
    from assay.torch.graph._files import GraphEntry, GraphFolder, RunFolder
    from assay.torch.graph._model import Graph
    from assay.torch.graph._request import DumpRequest, Plan, StepSet

    class Nothing:
        graph = Graph("graph_1")

        def plain(self, args: list[object]) -> None: ...

        def dumped(self, args: list[object], step: int) -> None: ...

    request = DumpRequest(path=str(tmp_path), steps=StepSet.parse("1000000"))
    folder = GraphFolder(RunFolder(str(tmp_path), {}), Graph("graph_1"), Plan(), request, GraphEntry(1, "graph_1", ""))
    door = _door(folder, Nothing(), request)

    def best(call: Callable[[list[object]], object]) -> float:
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            for _ in range(2000):
                call([])
            times.append((time.perf_counter() - begin) / 2000)
        return min(times)

    assert best(door) - best(Nothing().plain) < 20e-6  # about 1 us on an idle machine
