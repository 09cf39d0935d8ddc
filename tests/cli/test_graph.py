# SPDX-License-Identifier: Apache-2.0
"""`assay graph`: topologies as ONNX and Model Explorer files, and their differences."""

from __future__ import annotations

import json

import onnx
import pytest

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
