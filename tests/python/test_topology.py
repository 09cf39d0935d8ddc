# SPDX-License-Identifier: Apache-2.0
"""Topology files as ONNX and Model Explorer graphs, with the onnx package as oracle."""

from __future__ import annotations

import importlib
import json
import logging
import struct

import onnx
import onnx.inliner
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import AttributeProto, TensorProto

import assay
from assay.topology import Topology, atb_json_to_onnx, graph_diff, read_topology

RMS = "RmsNormOperation_0_0"
LINEAR = "LinearOperation_0_1_0"
ACTIVATION = "ActivationOperation_0_1_1"
ELEWISE = "ElewiseOperation_0_2"


def operation(name, inputs, outputs, param=None, **more):
    kind = name.rstrip("0123456789_")
    node = {"opName": name, "opType": kind, "param": param, "inTensors": inputs, "outTensors": outputs, **more}
    return {key: value for key, value in node.items() if value is not None}


def decoder_layer(i=0, epsilon=1e-05):
    """The worked example of the format: a norm, an MLP of two operations, an addition."""
    layer = f"Decoder_layer_{i}"
    inner = [
        operation(
            f"LinearOperation_{i}_1_0",
            [f"{layer}_internal_0", f"{layer}_input_2"],
            [f"Mlp_{i}_1_internal_0"],
            {"hasBias": False, "transposeA": False, "transposeB": True},
        ),
        operation(
            f"ActivationOperation_{i}_1_1",
            [f"Mlp_{i}_1_internal_0"],
            [f"{layer}_internal_1"],
            {"activationType": 4, "scale": 1.0},
        ),
    ]
    nodes = [
        operation(
            f"RmsNormOperation_{i}_0",
            [f"{layer}_input_0", f"{layer}_input_1"],
            [f"{layer}_internal_0"],
            {"layerType": 1, "normParam": {"epsilon": epsilon, "quantType": 0}},
        ),
        operation(
            f"Mlp_{i}_1",
            [f"{layer}_internal_0", f"{layer}_input_2"],
            [f"{layer}_internal_1"],
            "",
            internalTensors=[f"Mlp_{i}_1_internal_0"],
            nodes=inner,
        ),
        operation(
            f"ElewiseOperation_{i}_2",
            [f"{layer}_input_0", f"{layer}_internal_1"],
            [f"{layer}_output_0"],
            {"elewiseType": 8},
        ),
    ]
    return operation(
        layer,
        [f"{layer}_input_{k}" for k in range(3)],
        [f"{layer}_output_0"],
        "",
        internalTensors=[f"{layer}_internal_0", f"{layer}_internal_1"],
        nodes=nodes,
    )


def model(layer_count=3):
    """A model file: layers with the model's tensor names."""
    nodes = []
    for i in range(layer_count):
        before = "M_input_0" if i == 0 else f"M_internal_{i - 1}"
        after = "M_output_0" if i == layer_count - 1 else f"M_internal_{i}"
        names = {
            f"Decoder_layer_{i}_input_0": before,
            f"Decoder_layer_{i}_input_1": f"M_weight_{2 * i}",
            f"Decoder_layer_{i}_input_2": f"M_weight_{2 * i + 1}",
            f"Decoder_layer_{i}_output_0": after,
        }
        text = json.dumps(decoder_layer(i))
        for old, new in names.items():
            text = text.replace(f'"{old}"', f'"{new}"')
        nodes.append(json.loads(text))
    return {
        "modelName": "M",
        "nodes": nodes,
        "inTensors": ["M_input_0"],
        "outTensors": ["M_output_0"],
        "weightTensors": [f"M_weight_{i}" for i in range(2 * layer_count)],
    }


@pytest.fixture
def topology(tmp_path):
    """Reads a topology from a dict, through a file."""

    def read(content, **kwargs) -> Topology:
        path = tmp_path / "topology.json"
        path.write_text(json.dumps(content))
        return read_topology(path, **kwargs)

    return read


def checked(content: bytes) -> onnx.ModelProto:
    proto = onnx.load_from_string(content)
    onnx.checker.check_model(proto)
    return proto


def attributes(node) -> dict:
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def node_of(proto, name):
    return next(node for node in proto.graph.node if node.name == name)


# ---- flat ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "names"),
    [
        (-1, [RMS, LINEAR, ACTIVATION, ELEWISE]),
        (0, ["Decoder_layer_0"]),
        (1, [RMS, "Mlp_0_1", ELEWISE]),
        (2, [RMS, LINEAR, ACTIVATION, ELEWISE]),
        (7, [RMS, LINEAR, ACTIVATION, ELEWISE]),
        (-2, [RMS, "Mlp_0_1", ELEWISE]),  # as in the original: any depth is deep enough
    ],
)
def test_a_level_chooses_the_nodes(topology, level, names):
    proto = checked(topology(decoder_layer()).to_onnx(level=level))
    assert [node.name for node in proto.graph.node] == names
    assert [node.op_type for node in proto.graph.node] == [name.rstrip("0123456789_") for name in names]


def test_wires_attributes_and_the_frame_of_the_file(topology):
    proto = checked(topology(decoder_layer()).to_onnx(document="a test"))
    assert proto.ir_version == 8
    assert [(entry.domain, entry.version) for entry in proto.opset_import] == [("atb", 1)]
    assert proto.graph.name == "Decoder_layer_0"
    assert proto.graph.doc_string == "a test"
    assert [value.name for value in proto.graph.input] == [f"Decoder_layer_0_input_{i}" for i in range(3)]
    assert [value.name for value in proto.graph.output] == ["Decoder_layer_0_output_0"]
    linear = node_of(proto, LINEAR)
    assert list(linear.input) == ["Decoder_layer_0_internal_0", "Decoder_layer_0_input_2"]
    assert list(linear.output) == ["Mlp_0_1_internal_0"]
    assert linear.domain == "atb"
    assert "op_id 0_1_0" in linear.doc_string
    assert attributes(linear) == {"hasBias": 0, "transposeA": 0, "transposeB": 1}
    assert attributes(node_of(proto, RMS)) == {
        "layerType": 1,
        "normParam.epsilon": pytest.approx(1e-05),
        "normParam.quantType": 0,
    }


def test_every_kind_of_parameter_keeps_its_value_and_type(topology):
    param = {
        "zero": 0, "off": False, "none": None, "empty": "", "text": "käse", "float": 0.0, "big": 2**70, "list": [1, 0],
        "floats": [1.5, 2], "texts": ["a", ""], "nothing": [], "mixed": [1, "a", None], "deep": {"a": {"b": {"c": -3}}},
    }  # fmt: skip
    node = node_of(checked(topology(operation("A_0", ["x"], ["y"], param)).to_onnx()), "A_0")
    kinds = {attribute.name: attribute.type for attribute in node.attribute}
    assert attributes(node) == {
        "zero": 0, "off": 0, "empty": b"", "text": "käse".encode(), "float": 0.0, "big": str(2**70).encode(),
        "list": [1, 0], "floats": [1.5, 2.0], "texts": [b"a", b""], "nothing": [], "mixed": [b"1", b"a", b"null"],
        "deep.a.b.c": -3,
    }  # fmt: skip
    assert kinds["zero"] == AttributeProto.INT and kinds["float"] == AttributeProto.FLOAT
    assert kinds["nothing"] == AttributeProto.INTS and kinds["floats"] == AttributeProto.FLOATS


def test_compat_attributes_are_the_original_s_two_types(topology):
    param = {
        "zero": 0,
        "off": False,
        "on": True,
        "none": None,
        "seven": 7,
        "text": "t",
        "list": [1, 0],
        "o": {"x": 0.5},
    }
    node = checked(topology(operation("A_0", ["x"], ["y"], param)).to_onnx(compat=True)).graph.node[0]
    assert attributes(node) == {
        "zero": [], "off": [], "on": [1.0], "none": [], "seven": [7.0], "text": [b"t"], "list": [1.0, 0.0],
        "o.x": [0.5],
    }  # fmt: skip
    assert {attribute.type for attribute in node.attribute} == {AttributeProto.FLOATS, AttributeProto.STRINGS}


def test_a_second_write_gets_a_version_of_its_own(topology):
    layer = operation(
        "L_0", ["x"], ["x"], nodes=[operation("A_0_0", ["x"], ["x"]), operation("B_0_1", ["x"], ["x"])]
    )  # fmt: skip
    proto = checked(topology(layer).to_onnx())
    assert [(list(node.input), list(node.output)) for node in proto.graph.node] == [
        (["x"], ["x@1"]),
        (["x@1"], ["x@2"]),
    ]
    assert [value.name for value in proto.graph.output] == ["x@2"]


def test_operations_without_outputs_show_what_they_write(topology):
    nodes = [
        operation("KvCacheOperation_0_0", ["kv", "layer", "cache", "length"], []),
        operation("ReshapeAndCacheOperation_0_1", ["k", "v", "kc", "vc", "slots"], []),
        operation("SetValueOperation_0_2", ["dst", "src"], []),
        operation("ReadOperation_0_3", ["cache", "kc", "vc", "dst"], ["y"]),
    ]
    proto = checked(topology(operation("L_0", ["cache"], ["y"], nodes=nodes)).to_onnx())
    assert [list(node.output) for node in proto.graph.node] == [["cache@1"], ["kc@1", "vc@1"], ["dst@1"], ["y"]]
    assert list(proto.graph.node[3].input) == ["cache@1", "kc@1", "vc@1", "dst@1"]


def test_producers_come_first_whatever_the_order_of_the_file(topology):
    layer = operation(
        "L_0", ["x"], ["z"], nodes=[operation("B_0_1", ["y"], ["z"]), operation("A_0_0", ["x"], ["y"])]
    )  # fmt: skip
    assert [node.name for node in checked(topology(layer).to_onnx()).graph.node] == ["A_0_0", "B_0_1"]


def test_a_model_has_its_weights_as_inputs_and_one_node_at_level_0(topology):
    read = topology(model(2))
    whole = checked(read.to_onnx(level=0)).graph
    assert [(node.name, node.op_type) for node in whole.node] == [("M", "M")]
    names = [value.name for value in checked(read.to_onnx()).graph.input]
    assert names == ["M_input_0", "M_weight_0", "M_weight_1", "M_weight_2", "M_weight_3"]


def test_a_model_without_lists_at_the_root_gets_them_from_its_nodes(topology):
    bare = {key: value for key, value in model(2).items() if key in ("modelName", "nodes")}
    read = topology(bare)
    graph = checked(read.to_onnx()).graph
    assert [value.name for value in graph.output] == ["M_output_0"]
    assert {value.name for value in graph.input} == {"M_input_0", *(f"M_weight_{i}" for i in range(4))}
    assert "taken from the nodes" in read.notes[0]


def test_missing_lists_null_parameters_plugins_and_lost_ids_are_drawn(topology):
    nodes = [
        {"opName": "FillOperation_0_0", "opType": "FillOperation", "param": None, "outTensors": ["x"]},
        {"name": "PluginOperation", "inTensors": ["x"], "outTensors": ["y"]},
        {"opName": "LostOperation_0_2", "opType": "LostOperation", "param": {"a": 1}},
        {"opName": "EmptyGraph_0_3", "opType": "EmptyGraph", "inTensors": ["y"], "outTensors": ["z"], "nodes": []},
    ]
    layer = operation("L_0", [], ["z"], nodes=nodes)
    read = topology(layer)
    proto = checked(read.to_onnx())
    assert [node.name for node in proto.graph.node] == [
        "FillOperation_0_0", "PluginOperation", "LostOperation_0_2", "EmptyGraph_0_3",
    ]  # fmt: skip
    assert "truncated" in node_of(proto, "LostOperation_0_2").doc_string
    assert [node.ids for node in read.nodes()] == ["0", "0_0", "0_1", "0_2", "0_3"]
    checked(read.to_onnx(style="hierarchical"))


def test_a_report_that_no_probe_converted_is_read_too(topology):
    report = {
        "inTensorNum": 1, "opName": "L_3", "opType": "L", "outTensorNum": 1, "param": "",
        "nodes": [{"inTensorIds": [0], "opName": "A_3_0", "opType": "A", "outTensorIds": [1]}],
    }  # fmt: skip
    proto = checked(topology(report).to_onnx())
    assert list(proto.graph.node[0].input) == ["L_3_input_0"]


# ---- hierarchical -------------------------------------------------------------------------------------------------


def test_graphs_become_functions_that_call_each_other(topology):
    proto = checked(topology(model(2)).to_onnx(style="hierarchical"))
    assert [node.name for node in proto.graph.node] == ["Decoder_layer_0", "Decoder_layer_1"]
    functions = {function.name: function for function in proto.functions}
    assert set(functions) == {"Mlp_0_1", "Decoder_layer_0", "Mlp_1_1", "Decoder_layer_1"}
    for node in proto.graph.node:
        assert node.domain == "atb.graph"
        assert len(node.input) == len(functions[node.op_type].input)
        assert len(node.output) == len(functions[node.op_type].output)
    assert [node.name for node in functions["Decoder_layer_1"].node] == [
        "RmsNormOperation_1_0", "Mlp_1_1", "ElewiseOperation_1_2",
    ]  # fmt: skip


def test_equal_graphs_share_a_function_and_different_ones_do_not(topology):
    content = model(100)
    content["nodes"][7]["nodes"][0]["param"]["normParam"]["epsilon"] = 1e-06
    proto = checked(topology(content).to_onnx(style="hierarchical", share_functions=True))
    assert [function.name for function in proto.functions] == ["Mlp", "Decoder_layer", "Decoder_layer#2"]
    assert [node.op_type for node in proto.graph.node].count("Decoder_layer") == 99
    assert proto.graph.node[7].op_type == "Decoder_layer#2"
    assert proto.graph.node[7].name == "Decoder_layer_7"
    plain = topology(content).to_onnx(style="hierarchical")
    assert len(proto.SerializeToString()) < len(plain) / 4


def test_inlining_the_functions_gives_the_flat_graph(topology):
    """The inliner of the onnx package is the oracle of the calls' wiring."""
    read = topology(model(3))
    hierarchical = checked(read.to_onnx(style="hierarchical"))
    inlined = onnx.inliner.inline_local_functions(hierarchical)
    flat = checked(read.to_onnx())

    def shape(proto):
        """Each node's type, attributes, and for each input where it comes from."""
        source = {value.name: value.name for value in proto.graph.input}
        found = []
        for i, node in enumerate(proto.graph.node):
            found.append((node.op_type, attributes(node), [source[name] for name in node.input]))
            source.update({name: (i, k) for k, name in enumerate(node.output)})
        return found, [source[value.name] for value in proto.graph.output]

    assert shape(inlined) == shape(flat)


def test_a_cache_written_inside_a_function_leaves_it(topology):
    layer = operation(
        "L_0", ["x", "cache"], ["z"],
        nodes=[
            operation("G_0_0", ["x", "cache"], ["y"], nodes=[
                operation("KvCacheOperation_0_0_0", ["x", "x", "cache"], []),
                operation("A_0_0_1", ["x"], ["y"]),
            ]),
            operation("B_0_1", ["y", "cache"], ["z"]),
        ],
    )  # fmt: skip
    proto = checked(topology(layer).to_onnx(style="hierarchical"))
    call, reader = proto.graph.node
    assert list(call.output) == ["y", "cache@1"]
    assert list(reader.input) == ["y", "cache@1"]


# ---- shapes -------------------------------------------------------------------------------------------------------

HEADER = (
    "CaseNum|CaseName|OpName|OpParam|InNum|InDType|InFormat|InShape|OutNum|OutDType|OutFormat|OutShape|DataGenType|"
    "DataGenRange|InTensorFile|OutTensorFile|TestType|TestLevel|FromModel|SocVersion|ExpectedError\n"
)


def csv_row(number, name, inputs, outputs):
    def cells(tensors):
        kinds, shapes = zip(*tensors) if tensors else ((), ())
        return f"{len(tensors)}|{';'.join(kinds)}|{';'.join('nd' for _ in tensors)}|{';'.join(shapes)}"

    gen = ";".join("customize" for _ in inputs)
    return f"{number}|{name}{number}|{name}|{{}}|{cells(inputs)}|{cells(outputs)}|{gen}| |a|b| | | | |NO_ERROR\n"


@pytest.fixture
def dump(tmp_path):
    """A dump of process 4711 with one layer and the operation lists of two rounds."""
    root = tmp_path / "msit_dump_20260105_100000"
    layers = root / "layer" / "4711"
    lists = root / "operation_io_tensors" / "4711"
    layers.mkdir(parents=True)
    lists.mkdir(parents=True)
    (layers / "Decoder_layer_0.json").write_text(json.dumps(decoder_layer()))
    for step, length in enumerate((37, 1)):
        (lists / f"operation_tensors_{step}.csv").write_text(
            HEADER
            + csv_row(1, RMS, [("float16", f"{length},64"), ("bf16", "64")], [("float16", f"{length},64")])
            + csv_row(2, LINEAR, [("float16", f"{length},64"), ("float", "64,64")], [("bf16", f"{length},64")])
            + csv_row(3, ACTIVATION, [("bf16", f"{length},64")], [("bool", "")])
            + csv_row(4, ELEWISE, [("float16", f"{length},64"), ("hifloat8", "1")], [("int64", "2")])
        )
    return root


def test_shapes_come_from_all_rounds_of_the_operation_list(dump):
    path = dump / "layer" / "4711" / "Decoder_layer_0.json"
    cache = {}
    written = atb_json_to_onnx(path, -1, cache)
    proto = onnx.load(written.path)
    onnx.checker.check_model(proto)
    types = {}
    for value in [*proto.graph.input, *proto.graph.output, *proto.graph.value_info]:
        tensor = value.type.tensor_type
        types[value.name] = (tensor.elem_type, [d.dim_param or d.dim_value for d in tensor.shape.dim])
    assert types == {
        "Decoder_layer_0_input_0": (TensorProto.FLOAT16, ["1|37", 64]),
        "Decoder_layer_0_input_1": (TensorProto.BFLOAT16, [64]),
        "Decoder_layer_0_input_2": (TensorProto.FLOAT, [64, 64]),
        "Decoder_layer_0_internal_0": (TensorProto.FLOAT16, ["1|37", 64]),
        "Mlp_0_1_internal_0": (TensorProto.BFLOAT16, ["1|37", 64]),
        "Decoder_layer_0_internal_1": (TensorProto.BOOL, []),
        "Decoder_layer_0_output_0": (TensorProto.INT64, [2]),
    }
    assert written.untyped_tensors == 0 and written.nodes == 4
    assert len(cache) == 1
    assert "process 4711" in proto.graph.doc_string


def test_the_cache_saves_reading_the_list_again(dump):
    path = dump / "layer" / "4711" / "Decoder_layer_0.json"
    cache = {}
    atb_json_to_onnx(path, -1, cache)
    for csv in (dump / "operation_io_tensors" / "4711").iterdir():
        csv.unlink()
    assert atb_json_to_onnx(path, -1, cache).untyped_tensors == 0
    assert atb_json_to_onnx(path, -1, {}).untyped_tensors == 7
    assert atb_json_to_onnx(path).untyped_tensors == 7


# ---- the old call -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "module",
    [
        "llm",
        "ait_llm",
        "msit_llm",
        "llm.common.json_fitter",
        "ait_llm.common.json_fitter",
        "msit_llm.common.json_fitter",
    ],
)
def test_the_old_import_paths_give_the_same_function(module):
    assert importlib.import_module(module).atb_json_to_onnx is atb_json_to_onnx


def test_the_level_is_taken_by_position_and_under_both_names(dump):
    path = str(dump / "layer" / "4711" / "Decoder_layer_0.json")
    for call in (
        lambda: atb_json_to_onnx(path, 1),
        lambda: atb_json_to_onnx(path, target_level=1),
        lambda: atb_json_to_onnx(path, model_level=1),
    ):
        assert call().nodes == 3
        assert len(onnx.load(path[:-5] + ".onnx").graph.node) == 3


def test_a_missing_file_is_logged_and_gives_none(tmp_path, caplog):
    with caplog.at_level(logging.ERROR, "assay"):
        assert atb_json_to_onnx(tmp_path / "none.json") is None
    assert "none.json is no readable file" in caplog.text


def test_the_suffix_is_replaced_only_when_it_is_json(tmp_path):
    (tmp_path / "layer.json").write_text(json.dumps(decoder_layer()))
    (tmp_path / "layer.topo").write_text(json.dumps(decoder_layer()))
    assert atb_json_to_onnx(tmp_path / "layer.json").path == str(tmp_path / "layer.onnx")
    assert atb_json_to_onnx(tmp_path / "layer.topo").path == str(tmp_path / "layer.topo.onnx")
    assert (tmp_path / "layer.onnx").stat().st_mode & 0o777 == 0o640


def test_an_onnx_file_is_replaced_and_another_file_is_not(tmp_path):
    (tmp_path / "layer.json").write_text(json.dumps(decoder_layer()))
    (tmp_path / "layer.onnx").write_bytes(b"\x3a\x00 of the original")
    assert atb_json_to_onnx(tmp_path / "layer.json").nodes == 4
    (tmp_path / "layer.onnx").write_text("my notes")
    with pytest.raises(assay.FormatError, match="left alone"):
        atb_json_to_onnx(tmp_path / "layer.json")
    assert (tmp_path / "layer.onnx").read_text() == "my notes"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["layer.json", "layer.onnx"]


def test_the_bytes_depend_on_the_input_only(tmp_path, topology):
    (tmp_path / "layer.json").write_text(json.dumps(decoder_layer()))
    first = atb_json_to_onnx(tmp_path / "layer.json")
    content = (tmp_path / "layer.onnx").read_bytes()
    atb_json_to_onnx(tmp_path / "layer.json")
    assert (tmp_path / "layer.onnx").read_bytes() == content
    assert first.nodes == 4


@pytest.mark.parametrize(
    ("text", "offset", "words"),
    [
        ("", 0, "ends"),
        ('{"opName": "A_0", ', 18, "ends"),
        ('{"opName": "A_0"} tail', 18, "follows"),
        ("[1, 2]", 0, "no JSON object"),
        ('{"a": 1}', 0, "no topology"),
        ('{"opName": 5}', 11, "no text"),
        ('{"opName": "A_0", "inTensors": [1]}', 32, "no name"),
        ('{"opName": "A_0", "inTensors": "x"}', 31, "no list"),
        ('{"opName": "A_0", "nodes": {}}', 27, "no list"),
        ('{"opName": "A_0", "nodes": [3]}', 28, "no object"),
        ('{"opName": "A_0", "nodes": ' + '[{"opName": "B", "nodes": ' * 10_000, None, "nested deeper"),
        ('{"x": ' + "[" * 10_000, None, "nested deeper"),
        ('{"opName": "A\\x"}', 14, "expected"),
        ('{"opName": 01}', 12, "leading zero"),
    ],
)
def test_malformed_files_are_a_sentence_with_the_place(tmp_path, text, offset, words):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(assay.FormatError, match=words) as raised:
        atb_json_to_onnx(path)
    assert raised.value.path == str(path)
    if offset is not None:
        assert raised.value.offset == offset
    assert not (tmp_path / "bad.onnx").exists()


# ---- any topology -------------------------------------------------------------------------------------------------

names = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=6)
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, width=32) | names
nested = st.recursive(
    scalars | st.lists(scalars, max_size=3), lambda inner: st.dictionaries(names, inner, max_size=3), max_leaves=5
)
params = st.none() | st.just("") | st.dictionaries(names, nested, max_size=4)
tensors = st.lists(st.sampled_from(["", *(f"t{i}" for i in range(6))]), max_size=4)


@st.composite
def any_node(draw, depth=0):
    node = {}
    if draw(st.booleans()) or depth == 0:
        node["opName"] = draw(names) + f"_{draw(st.integers(0, 3))}"
        node["opType"] = draw(names | st.sampled_from(["KvCacheOperation", "SetValueOperation"]))
    else:
        node["name"] = draw(names)
    for key in ("inTensors", "outTensors"):
        if draw(st.integers(0, 4)):
            node[key] = draw(tensors)
    if draw(st.booleans()):
        node["param"] = draw(params)
    if depth < 3 and draw(st.booleans()):
        node["nodes"] = draw(st.lists(any_node(depth + 1), max_size=3))
    return node


@given(any_node(), st.integers(-2, 4))
@settings(max_examples=150, deadline=None)
def test_the_checker_accepts_whatever_the_topology(node, level):
    graph = assay._core.read_graph(json.dumps(node).encode())
    flat = checked(graph.onnx(level=level))
    assert len(flat.graph.node) == len(graph.nodes_at_level(level))
    checked(graph.onnx(hierarchical=True))
    checked(graph.onnx(hierarchical=True, share_functions=True))
    checked(graph.onnx(compat_attributes=True))
    drawn = json.loads(graph.model_explorer(level))["graphs"][0]["nodes"]
    ids = {entry["id"] for entry in drawn}
    assert len(ids) == len(drawn)
    assert all(edge["sourceNodeId"] in ids for entry in drawn for edge in entry.get("incomingEdges", []))
    assert assay._core.graph_diff(graph, graph)[0] == []


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_floats_are_rounded_once(value):
    text = json.dumps({"opName": "A_0", "opType": "A", "param": {"f": value}})
    attribute = checked(assay._core.read_graph(text.encode()).onnx()).graph.node[0].attribute[0]
    assert struct.pack("<f", attribute.f) == struct.pack("<f", value)


# ---- Model Explorer -----------------------------------------------------------------------------------------------


def test_model_explorer_nodes_are_the_operations_ids_inside_their_graphs(topology):
    collection = json.loads(topology(decoder_layer()).to_model_explorer())
    (graph,) = collection["graphs"]
    found = {node["id"]: node for node in graph["nodes"]}
    assert [(i, node["label"], node["namespace"]) for i, node in found.items()] == [
        ("GraphInputs", "inputs", "Decoder_layer_0"),
        ("0_0", "RmsNormOperation", "Decoder_layer_0"),
        ("0_1_0", "LinearOperation", "Decoder_layer_0/Mlp_0_1"),
        ("0_1_1", "ActivationOperation", "Decoder_layer_0/Mlp_0_1"),
        ("0_2", "ElewiseOperation", "Decoder_layer_0"),
    ]
    assert found["0_1_0"]["incomingEdges"] == [
        {"sourceNodeId": "0_0", "sourceNodeOutputId": "0", "targetNodeInputId": "0"},
        {"sourceNodeId": "GraphInputs", "sourceNodeOutputId": "2", "targetNodeInputId": "1"},
    ]
    assert {"key": "normParam.epsilon", "value": "1e-05"} in found["0_0"]["attrs"]


def test_model_explorer_shows_types_and_shapes(dump):
    read = read_topology(dump / "layer" / "4711" / "Decoder_layer_0.json", {})
    nodes = {node["id"]: node for node in json.loads(read.to_model_explorer())["graphs"][0]["nodes"]}
    (output,) = nodes["0_0"]["outputsMetadata"]
    assert {"key": "tensor_shape", "value": "float16[1|37,64]"} in output["attrs"]


# ---- PyTorch ------------------------------------------------------------------------------------------------------


def test_a_module_tree_nests_by_its_modules(topology):
    tree = {
        "name": "root", "type": "Lm",
        "children": [
            {"name": "root.layers", "type": "ModuleList",
             "children": [{"name": "root.layers.0", "type": "Layer", "children": [], "exec_order": 1}]},
            {"name": "root.head", "type": "Linear", "children": []},
        ],
    }  # fmt: skip
    read = topology(tree)
    assert [(node.name, node.depth) for node in read.nodes()] == [
        ("root", 0), ("root.layers", 1), ("root.layers.0", 2), ("root.head", 1),
    ]  # fmt: skip
    assert [node.op_type for node in checked(read.to_onnx()).graph.node] == ["Layer", "Linear"]
    hierarchical = checked(read.to_onnx(style="hierarchical"))
    assert [f.name for f in hierarchical.functions] == ["root.layers"]
    assert [node.doc_string for node in hierarchical.graph.node] == ["ModuleList", ""]
    nodes = json.loads(read.to_model_explorer())["graphs"][0]["nodes"]
    assert [(node["id"], node["namespace"]) for node in nodes] == [
        ("root.layers.0", "root/layers"), ("root.head", "root"),
    ]  # fmt: skip


# ---- difference ---------------------------------------------------------------------------------------------------


def kinds(diff):
    return [(entry.kind, entry.golden or entry.mine) for entry in diff.differences]


def test_equal_structures_with_other_numbers_are_the_same(topology):
    diff = graph_diff(topology(decoder_layer(0)), topology(decoder_layer(7)))
    assert not diff
    assert ("LinearOperation_0_1_0", "LinearOperation_7_1_0") in diff.same_nodes


def test_a_changed_parameter_is_named_with_both_values(topology):
    (entry,) = graph_diff(topology(decoder_layer()), topology(decoder_layer(epsilon=1e-06))).differences
    assert (entry.kind, entry.golden, entry.type) == ("parameters", RMS, "RmsNormOperation")
    assert entry.parameters == {"normParam.epsilon": ("1e-05", "1e-06")}


def test_a_layer_left_out_in_the_middle_is_one_removal_and_its_readers_new_wire(topology):
    golden, mine = model(5), model(5)
    for content in (golden, mine):
        for i, layer in enumerate(content["nodes"]):
            layer["param"] = {"index": i}  # tells the layers apart
    del mine["nodes"][2]
    mine["nodes"][2] = json.loads(json.dumps(mine["nodes"][2]).replace("M_internal_2", "M_internal_1"))
    del mine["weightTensors"][4:6]
    diff = graph_diff(topology(golden), topology(mine))
    # The inputs of layer 3 came from layer 2, which is gone; the weights of the others moved and are the same.
    assert kinds(diff) == [("removed", "Decoder_layer_2")]


def test_swapped_weights_are_new_wires(topology):
    mine = json.loads(json.dumps(model(2)).replace("M_weight_1", "M_weight_9"))
    mine["weightTensors"] = ["M_weight_0", "M_weight_9", "M_weight_2", "M_weight_3"]
    assert not graph_diff(topology(model(2)), topology(mine))
    mine["weightTensors"] = ["M_weight_0", "M_weight_3", "M_weight_2", "M_weight_9"]
    assert kinds(graph_diff(topology(model(2)), topology(mine))) == [
        ("wiring", LINEAR),
        ("wiring", "LinearOperation_1_1_0"),
    ]


def test_an_added_operation_and_new_wires_are_found(topology):
    mine = decoder_layer()
    mine["nodes"].insert(1, operation("CastOperation_0_9", ["Decoder_layer_0_internal_0"], ["cast"]))
    mine["nodes"][2]["nodes"][0]["inTensors"][0] = "cast"
    diff = graph_diff(topology(decoder_layer()), topology(mine))
    assert kinds(diff) == [("added", "CastOperation_0_9"), ("wiring", LINEAR)]
    assert "input 0 comes from cast instead of Decoder_layer_0_internal_0" in diff.differences[1].detail
    swapped = decoder_layer()
    swapped["nodes"][2]["inTensors"].reverse()
    assert kinds(graph_diff(topology(decoder_layer()), topology(swapped))) == [("wiring", ELEWISE)]
