# SPDX-License-Identifier: Apache-2.0
"""`assay graph`: topologies as ONNX and Model Explorer files, and their differences."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf.descriptor import FieldDescriptor

sys.path.insert(0, str(Path(__file__).parents[1] / "formats"))
from ge_messages import message_class, print_text

HEADER = (
    "CaseNum|CaseName|OpName|OpParam|InNum|InDType|InFormat|InShape|OutNum|OutDType|OutFormat|OutShape|DataGenType|"
    "DataGenRange|InTensorFile|OutTensorFile|TestType|TestLevel|FromModel|SocVersion|ExpectedError\n"
)
ROW = (
    '1|LinearOperation_0_01|LinearOperation_0_0|{"transposeB":true}|2|float16;float16|nd;nd|1,64;64,64|1|float16|nd|1,64'
    "|customize;customize| |a|b| | | | |NO_ERROR\n"
)


def layer(i=0, transpose=True):
    """Two operations, the second inside a graph."""
    name = f"Decoder_layer_{i}"
    inner = {
        "opName": f"ActivationOperation_{i}_1_0",
        "opType": "ActivationOperation",
        "param": {"activationType": 4},
        "inTensors": [f"{name}_internal_0"],
        "outTensors": [f"{name}_output_0"],
    }
    return {
        "opName": name,
        "opType": "Decoder_layer",
        "param": "",
        "inTensors": [f"{name}_input_0", f"{name}_input_1"],
        "outTensors": [f"{name}_output_0"],
        "internalTensors": [f"{name}_internal_0"],
        "nodes": [
            {
                "opName": f"LinearOperation_{i}_0",
                "opType": "LinearOperation",
                "param": {"transposeB": transpose},
                "inTensors": [f"{name}_input_0", f"{name}_input_1"],
                "outTensors": [f"{name}_internal_0"],
            },
            {
                "opName": f"Mlp_{i}_1",
                "opType": "Mlp",
                "param": "",
                "inTensors": [f"{name}_internal_0"],
                "outTensors": [f"{name}_output_0"],
                "nodes": [inner],
            },
        ],
    }


@pytest.fixture
def dump(tmp_path):
    """Two layer files of process 4711 and its operation list."""
    root = tmp_path / "msit_dump_20260105_100000"
    (root / "layer" / "4711").mkdir(parents=True)
    (root / "operation_io_tensors" / "4711").mkdir(parents=True)
    (root / "operation_io_tensors" / "4711" / "operation_tensors_0.csv").write_text(HEADER + ROW)
    for i in (0, 1):
        (root / "layer" / "4711" / f"Decoder_layer_{i}.json").write_text(json.dumps(layer(i)))
    return root


def names(path):
    proto = onnx.load(path)
    onnx.checker.check_model(proto)
    return [node.name for node in proto.graph.node]


def test_the_onnx_file_stands_beside_the_topology_with_shapes_of_its_process(assay, dump):
    source = dump / "layer" / "4711" / "Decoder_layer_0.json"
    result = assay("graph", source)
    assert result.returncode == 0, result.stderr
    target = source.with_suffix(".onnx")
    assert result.stdout == f"{target}  2 nodes, 1 tensor without shape\n"
    assert names(target) == ["LinearOperation_0_0", "ActivationOperation_0_1_0"]
    shape = onnx.load(target).graph.input[1].type.tensor_type
    assert (shape.elem_type, [d.dim_value for d in shape.shape.dim]) == (onnx.TensorProto.FLOAT16, [64, 64])
    assert assay("graph", source, "--csv", "none").stdout.endswith("2 nodes, 4 tensors without shape\n")


def test_headers_of_saved_tensors_fill_what_no_list_knows(assay, dump):
    # The list has a row of the linear operation only; the output of the activation was saved.
    folder = dump / "tensors" / "0_4711" / "0" / "0_Decoder_layer" / "1_Mlp" / "0_ActivationOperation" / "after"
    folder.mkdir(parents=True)
    description = "$Version=1.0\n$Object.Count=0\n$Object.Length=0\nformat=2\ndtype=27\ndims=1,64\n$End=1\n"
    (folder / "outtensor0.bin").write_text(description)
    source = dump / "layer" / "4711" / "Decoder_layer_0.json"
    result = assay("graph", source)
    assert result.stdout.endswith("  2 nodes\n")
    output = onnx.load(source.with_suffix(".onnx")).graph.output[0].type.tensor_type
    assert (output.elem_type, [d.dim_value for d in output.shape.dim]) == (onnx.TensorProto.BFLOAT16, [1, 64])


def test_level_style_and_output_are_as_asked(assay, dump, tmp_path):
    source = dump / "layer" / "4711" / "Decoder_layer_0.json"
    assert assay("graph", source, "--level", "1", "-o", tmp_path / "x.onnx").returncode == 0
    assert names(tmp_path / "x.onnx") == ["LinearOperation_0_0", "Mlp_0_1"]
    assert assay("graph", source, "--style", "all", "-o", tmp_path / "out").returncode == 0
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "Decoder_layer_0.hier.onnx",
        "Decoder_layer_0.me.json",
        "Decoder_layer_0.onnx",
    ]
    assert [f.name for f in onnx.load(tmp_path / "out" / "Decoder_layer_0.hier.onnx").functions] == ["Mlp_0_1"]
    assert json.loads((tmp_path / "out" / "Decoder_layer_0.me.json").read_text())["label"] == "Decoder_layer_0"


def test_a_model_is_completed_from_the_layer_files_of_its_process(assay, dump):
    (dump / "model" / "4711").mkdir(parents=True)
    nodes = [
        {"opName": "Decoder_layer_0", "opType": "Decoder_layer", "inTensors": ["x", "w"], "outTensors": ["y"]},
        {"opName": "LmHead_1", "opType": "LmHead", "inTensors": ["y"], "outTensors": ["z"]},
    ]
    model = {"modelName": "M", "inTensors": ["x"], "outTensors": ["z"], "weightTensors": ["w"], "nodes": nodes}
    source = dump / "model" / "4711" / "M.json"
    source.write_text(json.dumps(model))
    assert assay("graph", source).returncode == 0
    assert names(source.with_suffix(".onnx")) == ["LinearOperation_0_0", "ActivationOperation_0_1_0", "LmHead_1"]
    linear, activation, _ = onnx.load(source.with_suffix(".onnx")).graph.node
    assert (list(linear.input), list(activation.output)) == (["x", "w"], ["y"])


def test_a_folder_is_converted_whole_and_goes_on_past_a_bad_file(assay, dump):
    folder = dump / "layer" / "4711"
    (folder / "Broken_7.json").write_text('{"opName": "Broken_7", "nodes": [')
    result = assay("graph", dump / "layer", "--json")
    assert result.returncode == 2
    assert [entry["nodes"] for entry in json.loads(result.stdout)] == [2, 2]
    assert "Broken_7.json: at byte 33: the JSON text ends" in result.stderr
    assert "1 of 3 files could not be converted" in result.stderr
    assert sorted(file.name for file in folder.glob("*.onnx")) == ["Decoder_layer_0.onnx", "Decoder_layer_1.onnx"]


def test_a_second_conversion_leaves_the_results_of_the_first_alone(assay, dump):
    assert assay("graph", dump / "layer", "--style", "all").returncode == 0
    again = assay("graph", dump / "layer", "--style", "all")
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("\n") == 6


def test_module_trees_are_topologies_too(assay, tmp_path):
    tree = {"name": "root", "type": "Lm", "children": [{"name": "root.head", "type": "Linear", "children": []}]}
    (tmp_path / "model_tree.json").write_text(json.dumps(tree))
    assert assay("graph", tmp_path / "model_tree.json").returncode == 0
    assert names(tmp_path / "model_tree.onnx") == ["root.head"]


def test_equal_structures_have_status_0_and_others_1(assay, dump, tmp_path):
    golden = dump / "layer" / "4711" / "Decoder_layer_0.json"
    same = assay("graph", golden, "--diff", dump / "layer" / "4711" / "Decoder_layer_1.json")
    assert (same.returncode, same.stdout) == (0, "same structure, 4 nodes\n")
    mine = tmp_path / "mine.json"
    content = layer(0, transpose=False)
    content["nodes"][1]["nodes"] = []
    mine.write_text(json.dumps(content))
    other = assay("graph", golden, "--diff", mine)
    assert other.returncode == 1
    assert other.stdout.splitlines() == [
        "~ LinearOperation_0_0 (LinearOperation): transposeB true -> false",
        "- ActivationOperation_0_1_0 (ActivationOperation) in Mlp_0_1",
        "2 differences, 3 nodes on both sides",
    ]
    found = json.loads(assay("graph", golden, "--diff", mine, "--json").stdout)
    assert [entry["kind"] for entry in found["differences"]] == ["parameters", "removed"]
    assert found["differences"][0]["parameters"] == {"transposeB": ["true", "false"]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "at byte 0: the JSON text ends where a value is expected"),
        ('{"a": 1}', 'has none of "opName", "modelName" and "children"'),
        ('{"opName": "A_0", "inTensors": 5}', 'at byte 31: "inTensors" is no list'),
        ('{"nodes": ' + '[{"nodes": ' * 10_000, "nested deeper than"),
    ],
)
def test_malformed_input_is_a_sentence_with_the_place(assay, tmp_path, text, words):
    path = tmp_path / "bad.json"
    path.write_text(text)
    result = assay("graph", path)
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: {path}: ")
    assert words in result.stderr
    assert assay("graph", path, "--diff", path).returncode == 2


def test_what_cannot_be_read_or_written_is_said(assay, dump, tmp_path):
    source = dump / "layer" / "4711" / "Decoder_layer_0.json"
    assert assay("graph", tmp_path / "none.json").returncode == 2
    (tmp_path / "empty").mkdir()
    empty = assay("graph", tmp_path / "empty")
    assert (empty.returncode, "holds no topology file" in empty.stderr) == (2, True)
    notes = source.with_suffix(".onnx")
    notes.write_text("my notes")
    refused = assay("graph", source)
    assert refused.returncode == 2
    assert "is another kind of file; it was left alone" in refused.stderr
    assert notes.read_text() == "my notes"
    no_list = assay("graph", source, "--csv", source, "-o", tmp_path / "x.onnx")
    assert (no_list.returncode, "holds no row of an operation list" in no_list.stderr) == (2, True)
    assert assay("graph", source, "--style", "round").returncode == 2


# ---- texts of graphs -------------------------------------------------------------------------------------------------

TEXT_NAME = "dynamo_original_graph_1_rank_0_pid_77_ts_20250102030405678901.txt"


def add_op(graph, name, op_type, *inputs, shape=(2, -1), outputs=1, **attributes):
    op = graph.op.add(name=name, type=op_type, input=inputs)
    for i in range(outputs):
        desc = op.output_desc.add(name=f"y{i}", dtype=1, layout="ND")
        desc.shape.dim.extend(shape)
    for key, value in attributes.items():
        if isinstance(value, list):
            op.attr[key].list.s.extend(text.encode() for text in value)
        elif isinstance(value, str):
            op.attr[key].s = value.encode()
        else:
            op.attr[key].i = value
    return op


def graph_message(alpha=1):
    """x -> TopK (two outputs) -> Add -> Mul, with a control edge and a value that looks like syntax."""
    graph = message_class("GraphDef")(name="graph_1")
    add_op(graph, "x_1", "Data", index=0)
    add_op(graph, "TopKV2", "TopKV2", "x_1:0", outputs=2, note='a: "b" } {')
    add_op(graph, "Add", "Add", "TopKV2:0", "TopKV2:1", alpha=alpha)
    add_op(graph, "Mul", "Mul", "Add:0", "x_1:0", "TopKV2:-1")
    graph.op.add(name="NetOutput", type="NetOutput", input=["Mul:0"])
    return graph


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / TEXT_NAME
    path.write_text(print_text(graph_message()))
    return path


def test_a_text_becomes_onnx_and_model_explorer(assay, text_file):
    result = assay("graph", text_file, "--style", "all")
    assert result.returncode == 0, result.stderr
    stem = str(text_file)[: -len(".txt")]
    assert result.stdout.splitlines() == [
        f"{stem}.onnx  5 nodes, 1 tensor without shape",
        f"{stem}.hier.onnx  5 nodes, 1 tensor without shape",
        f"{stem}.me.json  5 nodes, 1 tensor without shape",
    ]
    assert names(f"{stem}.onnx") == ["x_1", "TopKV2", "Add", "Mul", "NetOutput"]
    proto = onnx.load(f"{stem}.onnx")
    assert {node.domain for node in proto.graph.node} == {"ge"}
    assert list(proto.graph.node[3].input) == ["Add:0", "x_1:0", "TopKV2:-1"]
    assert [(d.dim_value, d.dim_param) for d in proto.graph.output[0].type.tensor_type.shape.dim] == [(2, ""), (0, "?")]
    nodes = {node["id"]: node for node in json.loads(Path(f"{stem}.me.json").read_text())["graphs"][0]["nodes"]}
    assert nodes["Add"]["incomingEdges"] == [
        {"sourceNodeId": "TopKV2", "sourceNodeOutputId": "0", "targetNodeInputId": "0"},
        {"sourceNodeId": "TopKV2", "sourceNodeOutputId": "1", "targetNodeInputId": "1"},
    ]
    assert {"key": "note", "value": 'a: "b" } {'} in nodes["TopKV2"]["attrs"]


# Of the rules of docs/formats/graph-text.md, by the descriptors that protoc made.
def as_json(message):
    out = {}
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            out[field.name] = {key: as_json(entry) for key, entry in value.items()}
        elif field.is_repeated:
            out[field.name] = [json_value(field, item) for item in value]
        else:
            out[field.name] = json_value(field, value)
    return out


def json_value(field, value):
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return as_json(value)
    if field.type == FieldDescriptor.TYPE_ENUM:
        return field.enum_type.values_by_number[value].name
    if field.type == FieldDescriptor.TYPE_BYTES:
        try:
            if field.name != "data":
                return value.decode()
        except UnicodeDecodeError:
            pass
        return {"base64": base64.b64encode(value).decode()}
    if field.type == FieldDescriptor.TYPE_FLOAT:
        # The shortest digits of a float32, as they stand in the text.
        return float(str(np.float32(value))) if np.isfinite(value) else str(value)
    return value


def test_json_has_every_field_that_protobuf_has(assay, tmp_path):
    model = message_class("ModelDef")(name="m", version=3, custom_version="v")
    model.attr["top"].b = False
    model.graph.add().CopyFrom(graph_message())
    op = model.graph[0].op[2]
    op.id, op.stream_id, op.has_out_attr = -(2**63), 2**63 - 1, True
    op.src_index.extend([0, -1])
    op.is_input_const.extend([True, False])
    op.subgraph_name.append("a\\\"'\n\u540d")
    op.attr["t"].t.data = bytes(range(256))
    op.attr["t"].t.desc.dtype = 27
    op.attr["none"].list.val_type = 1
    op.attr["f"].list.f.extend([0.1, 1 / 3, 1e-30, float("inf"), float("-inf"), float("nan"), -0.0])
    op.attr["b"].list.b.extend([True, False])
    op.attr["bt"].bt = b"\xff\x00"
    op.attr["g"].g.CopyFrom(graph_message())
    op.attr["func"].func.name = "body"
    op.attr["func"].func.attr["k"].dt = 5
    op.attr["lists"].list_list_int.list_list_i.add(list_i=[1, 2])
    op.attr["lists"].list_list_int.list_list_i.add()
    op.attr["empty"].td.SetInParent()
    op.output_desc[0].shape.Clear()
    op.output_desc[0].shape.SetInParent()
    path = tmp_path / "ge_proto_00000001_Build.txt"
    path.write_text(print_text(model))
    result = assay("graph", path, "-o", tmp_path / "x.json")
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "x.json").read_text()) == as_json(model)


def test_fused_operators_become_groups_of_the_graph_before(assay, text_file, tmp_path):
    fused = message_class("GraphDef")(name="graph_1")
    add_op(fused, "x_1", "Data")
    add_op(fused, "AddMul", "AutomaticBufferFusionOp", "x_1:0", _datadump_original_op_names=["Add", "Mul"])
    (tmp_path / "optimized.txt").write_text(print_text(fused))
    result = assay("graph", text_file, "--groups", tmp_path / "optimized.txt", "--style", "all", "-o", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    stem = TEXT_NAME[: -len(".txt")]
    onnx.checker.check_model(onnx.load(tmp_path / "out" / f"{stem}.hier.onnx"))
    (function,) = onnx.load(tmp_path / "out" / f"{stem}.hier.onnx").functions
    assert (function.name, function.domain) == ("AddMul", "ge.graph")
    assert [node.name for node in function.node] == ["Add", "Mul"]
    nodes = json.loads((tmp_path / "out" / f"{stem}.me.json").read_text())["graphs"][0]["nodes"]
    assert [node["id"] for node in nodes if node["namespace"] == "graph_1/AddMul"] == ["Add", "Mul"]


def test_texts_are_told_apart(assay, text_file, tmp_path):
    other = graph_message(alpha=2)
    add_op(other, "Relu", "Relu", "Mul:0")
    (tmp_path / "other.txt").write_text(print_text(other))
    assert assay("graph", text_file, "--diff", text_file).stdout == "same structure, 6 nodes\n"
    result = assay("graph", text_file, "--diff", tmp_path / "other.txt")
    assert result.returncode == 1
    assert result.stdout.splitlines() == [
        "~ Add (Add): alpha 1 -> 2",
        "+ Relu (Relu) in graph_1",
        "2 differences, 6 nodes on both sides",
    ]


def test_a_folder_of_texts_is_converted_past_a_damaged_one(assay, text_file):
    whole = text_file.read_bytes()
    damaged = text_file.with_name("dynamo_optimized_graph_1_rank_0_pid_77_ts_20250102030405678902.txt")
    damaged.write_bytes(whole[: whole.index(b"}") // 2])
    text_file.with_name("notes.txt").write_text("no graph")
    result = assay("graph", text_file.parent, "--style", "me")
    assert result.returncode == 2
    assert [line.rpartition("/")[2] for line in result.stdout.splitlines()] == [
        f"{TEXT_NAME[:-4]}.me.json  5 nodes, 1 tensor without shape"
    ]
    assert f"{damaged}: at byte " in result.stderr
    # Its own results are no input of the next time.
    assert assay("graph", text_file, "--style", "json").returncode == 0
    damaged.unlink()
    assert assay("graph", text_file.parent).stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "at byte 0: "),
        ('op { name: "x" ', "the text ends before a closing }"),
        ('name: "x"', "the text holds no operator"),
        ("op { a" * 100_000, "nested deeper than 64"),
        ('op { name: "\\q" }', "an unknown escape"),
        ("some words of prose", "at byte 0: "),
    ],
)
def test_damaged_texts_are_a_sentence(assay, tmp_path, text, words):
    path = tmp_path / "x.txt"
    path.write_text(text)
    result = assay("graph", path)
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: {path}: ")
    assert words in result.stderr


def test_json_is_of_texts_only(assay, dump):
    result = assay("graph", dump / "layer" / "4711" / "Decoder_layer_0.json", "--style", "json")
    assert result.returncode == 2
    assert "is no text of a graph" in result.stderr


def test_what_the_capture_writes_can_be_read(assay, tmp_path):
    text = pytest.importorskip("assay.torch.graph._graph_text")
    model = pytest.importorskip("assay.torch.graph._model")
    desc = model.TensorDesc("y", "DT_FLOAT16", [2, -1])
    operators = [
        model.Operator("x_1", "Data", output_desc=[desc], attributes={"index": 0}),
        model.Operator("Const", "Const", output_desc=[desc], attributes={"value": np.arange(6, dtype=np.float16)}),
        model.Operator("Add", "Add", ["x_1:0", "Const:0", ""], [desc, desc], [desc], {"axes": [1, 2], "name": "a: {"}),
        model.Operator("NetOutput", "NetOutput", ["Add:0", "Const:-1"]),
    ]
    graph = model.Graph("graph_1", operators)
    files = {
        "a.txt": text.write_txt(graph),
        "b.pbtxt": text.write_pbtxt(graph),
        "c.txt": text.write_ge_proto(graph),
        "d.pbtxt": text.write_ge_onnx(graph),
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        result = assay("graph", tmp_path / name, "-o", tmp_path / "x.onnx")
        assert result.returncode == 0, result.stderr
        assert names(tmp_path / "x.onnx") == ["x_1", "Const", "Add", "NetOutput"], name
        proto = onnx.load(tmp_path / "x.onnx")
        assert list(proto.graph.node[2].input) == ["x_1:0", "Const:0", ""], name
        values = {a.name: onnx.helper.get_attribute_value(a) for a in proto.graph.node[2].attribute}
        assert (values["axes"], values["name"]) == ([1, 2], b"a: {"), name
        assert proto.graph.value_info[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16, name
