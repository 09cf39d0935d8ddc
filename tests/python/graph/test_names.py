# SPDX-License-Identifier: Apache-2.0
"""Names: GE types of Aten operators, unique operator names, the model of a graph."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

from assay.torch.graph._build import build_graph, input_values
from assay.torch.graph._graph_text import write_txt
from assay.torch.graph._model import Graph
from assay.torch.graph._names import OperatorNames, formal_names, ge_type, pack_name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add", "Add"),
        ("mm", "MatMulV2"),
        ("bmm", "BatchMatMulV2"),
        ("_softmax", "SoftmaxV2"),
        ("native_layer_norm", "LayerNormV4"),
        ("gelu", "Gelu"),
        ("embedding", "GatherV2"),
        ("_to_copy", "Cast"),
        ("mul_", "Mul"),  # in place: the type of the operator that computes the same
        ("foo_bar", "FooBar"),
        ("_foo.bar-2", "FooBar2"),  # a dot or dash cannot stand in a type
        ("3d_thing", "Op3dThing"),
    ],
)
def test_type_of_an_aten_operator(name: str, expected: str) -> None:
    assert ge_type(name) == expected


def test_add_with_a_factor_is_an_axpy() -> None:
    assert ge_type("add", alpha=2) == "AxpyV2"
    assert ge_type("add", alpha=1.0) == "Add"


def test_an_operator_of_another_library_keeps_its_own_name() -> None:
    assert ge_type("add", namespace="mylib") == "Add"
    assert ge_type("mm", namespace="mylib") == "Mm"


def test_names_are_numbered_by_type_and_skip_what_is_taken() -> None:
    names = OperatorNames()
    assert [names.take("Add"), names.take("Add"), names.take("Mul")] == ["Add", "Add_1", "Mul"]
    assert names.take("Data", "Add_2") == "Add_2"
    assert names.take("Add") == "Add_3"


@pytest.mark.parametrize("explicit", ["", "  ", "Add"])
def test_an_explicit_name_must_be_there_and_free(explicit: str) -> None:
    names = OperatorNames()
    names.take("Add")
    with pytest.raises(AssertionError):
        names.take("Add", explicit)


def test_formal_names_come_from_the_table_the_signature_or_a_number() -> None:
    assert formal_names("Add", ["self", "other"], 1) == (["x1", "x2"], ["y"])
    assert formal_names("LayerNormV4", ["input", "weight", "bias"], 3) == (
        ["x", "gamma", "beta"],
        ["y", "mean", "rstd"],
    )
    assert formal_names("Unknown", ["query", ""], 2) == (["query", "x1"], ["y0", "y1"])
    assert formal_names("ConcatD", ["tensors"] * 3, 1)[0] == ["x0", "x1", "x2"]
    assert formal_names("SplitD", ["self"], 2)[1] == ["y0", "y1"]


def test_pack_name_of_overloads_functions_and_methods() -> None:
    assert pack_name(torch.ops.aten.add.Tensor) == ("aten", "add", "aten.add.Tensor")
    assert pack_name(torch.add)[1] == "add"
    assert pack_name("mul_") == ("torch", "mul_", "mul_")


# ---- the model of a graph --------------------------------------------------------------------------------------------


def aten_graph(function, *args, dynamic: bool = False) -> Graph:
    """The model of the only Aten graph of a function."""
    built: list[Graph] = []

    def compiler(gm, inputs):
        built.append(build_graph(gm, "graph_1"))
        return make_boxed_func(gm.forward)

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=compiler, keep_inference_input_mutations=True)
    with torch.no_grad():
        torch.compile(function, backend=backend, dynamic=dynamic)(*args)
    assert len(built) == 1
    return built[0]


def test_operators_edges_and_numbers() -> None:
    graph = aten_graph(lambda x, y: (x + y) * 3 + y, torch.ones(2, 2), torch.ones(2, 2))
    assert [(op.name, op.type, op.inputs) for op in graph] == [
        ("arg0_1", "Data", []),
        ("arg1_1", "Data", []),
        ("Add", "Add", ["arg0_1:0", "arg1_1:0"]),
        ("Const", "Const", []),
        ("Mul", "Mul", ["Add:0", "Const:0"]),
        ("Add_1", "Add", ["Mul:0", "arg1_1:0"]),
        ("NetOutput", "NetOutput", ["Add_1:0"]),
    ]
    by_name = graph.by_name()
    assert by_name["Const"].attributes["value"] == 3 and by_name["Const"].output_desc[0].dtype == "DT_FLOAT"
    desc = by_name["Add_1"].output_desc[0]
    assert (desc.name, desc.dtype, desc.shape) == ("y", "DT_FLOAT", [2, 2])
    assert desc.attributes["_fx_tensor_name"] == "add_1-aten.add.Tensor.OUTPUT.0"
    assert "size=[2, 2]" in desc.attributes["_meta"]
    assert by_name["Add_1"].attributes["_input_name_key"] == ["x1", "x2"]
    assert by_name["Add_1"].fx_line == "add_1 = torch.ops.aten.add.Tensor(mul, arg1_1)"
    assert by_name["Add_1"].source.startswith('File "') and "test_names.py" in by_name["Add_1"].source


def test_results_of_one_operator_are_edges_with_their_index() -> None:
    def function(x):
        values, indices = torch.topk(x, 2)
        return values.sin(), indices.float()

    graph = aten_graph(function, torch.ones(3, 4))
    by_name = graph.by_name()
    assert by_name["Sin"].inputs == ["TopKV2:0"] and by_name["Cast"].inputs == ["TopKV2:1"]
    assert [desc.dtype for desc in by_name["TopKV2"].output_desc] == ["DT_FLOAT", "DT_INT64"]
    assert by_name["TopKV2"].attributes["k"] == 2


def test_symbols_are_minus_one_in_the_shape_and_named_in_the_meta() -> None:
    graph = aten_graph(lambda x: x.sin(), torch.ones(3, 4), dynamic=True)
    desc = graph.by_name()["Sin"].output_desc[0]
    assert desc.shape == [-1, -1]
    assert "size=[s" in desc.attributes["_meta"]


def test_an_absent_optional_input_before_another_one_is_an_empty_edge() -> None:
    x = torch.ones(2, 4)

    def function(x, bias):
        return torch.ops.aten.native_layer_norm(x, [4], None, bias, 1e-5)[0]

    graph = aten_graph(function, x, torch.ones(4))
    assert graph.by_name()["LayerNormV4"].inputs == ["arg0_1:0", "", "arg1_1:0"]


def test_a_list_of_tensors_is_spread_out() -> None:
    graph = aten_graph(lambda x, y: torch.cat([x, y, x]), torch.ones(2), torch.ones(2))
    concat = graph.by_name()["ConcatD"]
    assert concat.inputs == ["arg0_1:0", "arg1_1:0", "arg0_1:0"]
    assert [desc.name for desc in concat.input_desc] == ["x0", "x1", "x2"]


def test_input_values_follow_the_signature_whatever_way_arguments_are_given() -> None:
    graph = torch.fx.Graph()
    a, b = graph.placeholder("a"), graph.placeholder("b")
    for node in (a, b):
        node.meta["val"] = torch.ones(2)
    call = graph.call_function(torch.ops.aten.add.Tensor, (), {"other": b, "self": a})
    call.meta["val"] = torch.ones(2)
    assert input_values(call) == [a, b]


def test_the_text_of_a_graph_parses_as_a_graph_def() -> None:
    graph = aten_graph(lambda x: torch.softmax(x @ x, -1), torch.ones(2, 2))
    text = write_txt(graph)
    assert text.startswith('name: "graph_1"') or "op {" in text
    assert 's: "mm-aten.mm.default.OUTPUT.0"' in text
