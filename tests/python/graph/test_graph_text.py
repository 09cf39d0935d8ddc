# SPDX-License-Identifier: Apache-2.0
"""Texts of graphs, read back by google.protobuf through a proto of the tests' own (tests/formats/ge_graph.proto)."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from assay.torch.graph._graph_text import (
    EngineGraphDump,
    graph_file_name,
    write_ge_onnx,
    write_ge_proto,
    write_pbtxt,
    write_py,
    write_readable,
    write_txt,
)
from assay.torch.graph._model import Graph, Operator, TensorDesc

sys.path.insert(0, str(Path(__file__).parents[2] / "formats"))
from ge_messages import message_class, parse_text

ND = TensorDesc("x1", "DT_FLOAT")

# The operator of docs/formats/graph-text.md.
ADD_1 = """op {
  name: "Add_1"
  type: "Add"
  input: "Add:0"
  input: "x_1:0"
  attr {
    key: "_output_name_key"
    value {
      list {
        s: "y"
      }
    }
  }
  input_desc {
    name: "x1"
    dtype: DT_FLOAT
    layout: "ND"
  }
  input_desc {
    name: "x2"
    dtype: DT_FLOAT
    layout: "ND"
  }
  output_desc {
    name: "y"
    dtype: DT_FLOAT
    shape {
      dim: 2
      dim: 2
    }
    layout: "ND"
    attr {
      key: "_fx_tensor_name"
      value {
        s: "add_1-aten.add.Tensor.OUTPUT.0"
      }
    }
  }
}
"""


def add_1() -> Operator:
    return Operator(
        "Add_1",
        "Add",
        ["Add:0", "x_1:0"],
        [TensorDesc("x1", "DT_FLOAT"), TensorDesc("x2", "DT_FLOAT")],
        [TensorDesc("y", "DT_FLOAT", [2, 2], attributes={"_fx_tensor_name": "add_1-aten.add.Tensor.OUTPUT.0"})],
        {"_output_name_key": ["y"]},
        fx_line="add_1 = torch.ops.aten.add.Tensor(add, x_1)",
        source='File "net.py", line 7, in forward y = x + x',
    )


def one(**attributes: object) -> Graph:
    return Graph("graph_1", [Operator("X", "X", attributes=dict(attributes))])


def attribute(graph: Graph, key: str) -> object:
    """The value of an attribute of the only operator, as protobuf reads it."""
    return parse_text(write_txt(graph), "GraphDef").op[0].attr[key]


def test_txt_of_the_documents_operator() -> None:
    assert write_txt(Graph("", [add_1()])) == ADD_1


def test_txt_is_what_protobuf_itself_prints() -> None:
    graph = Graph(
        "graph_1",
        [
            Operator("x_1", "Data", attributes={"index": 0}, output_desc=[TensorDesc("y", "DT_BF16", [-1, 4])]),
            add_1(),
            Operator(
                "Cast",
                "Cast",
                ["Add_1:0", "", "x_1:-1"],
                [ND],
                [TensorDesc("y", "DT_INT64", []), TensorDesc()],
                {"s": "a: {b} \"c\" 'd' \\ \n\t\r\x01", "b": False, "i": -7, "f": 0.1, "third": 1 / 3, "three": 3.0},
            ),
        ],
        {"phase": "forward"},
    )
    text = write_txt(graph)
    message = parse_text(text, "GraphDef")
    # Six or nine digits as C++ has them, which str() gives; maps of one entry have no order.
    assert [str(op) for op in message.op][1] == str(parse_text(ADD_1, "GraphDef").op[0])
    assert message.op[2].attr["s"].s == b"a: {b} \"c\" 'd' \\ \n\t\r\x01"
    reparsed = message_class("GraphDef")()
    reparsed.CopyFrom(message)
    assert reparsed.op[2].output_desc[0].HasField("shape")  # a scalar
    assert not reparsed.op[2].output_desc[1].HasField("shape")  # not known
    assert text == printed(message)


def printed(message: object) -> str:
    """str() prints entries of a map in any order; ours stand sorted by key."""
    lines = str(message).splitlines()

    def sort_block(lines: list[str]) -> list[str]:
        out: list[str] = []
        run: list[list[str]] = []
        at = 0
        while at < len(lines):
            if lines[at].endswith("{"):
                end = lines.index(lines[at][: len(lines[at]) - len(lines[at].lstrip())] + "}", at)
                block = [lines[at], *sort_block(lines[at + 1 : end]), lines[end]]
                at = end + 1
            else:
                block = [lines[at]]
                at += 1
            if block[0].strip() == "attr {":
                run.append(block)
                continue
            for entry in sorted(run, key=lambda entry: entry[1]):
                out += entry
            run = []
            out += block
        for entry in sorted(run, key=lambda entry: entry[1]):
            out += entry
        return out

    return "\n".join(sort_block(lines)) + "\n"


@pytest.mark.parametrize(
    ("value", "field", "expected"),
    [
        ("text", "s", b"text"),
        ("", "s", b""),
        ("\u540d", "s", "\u540d".encode()),
        (b"\x00\xff", "bt", b"\x00\xff"),
        (True, "b", True),
        (False, "b", False),
        (0, "i", 0),
        (-(2**63), "i", -(2**63)),
        (np.int32(5), "i", 5),
        (2**64 - 1, "s", b"18446744073709551615"),
        (0.0, "f", 0.0),
        (float("inf"), "f", float("inf")),
        (1e300, "f", float("inf")),
        (3.4028234663852886e38, "f", 3.4028234663852886e38),
    ],
)
def test_each_type_of_value_has_its_field(value: object, field: str, expected: object) -> None:
    message = attribute(one(a=value), "a")
    assert message.WhichOneof("value") == field  # type: ignore[attr-defined]
    assert getattr(message, field) == expected


@pytest.mark.parametrize(
    ("value", "field"),
    [(["a", "b"], "s"), ([1, 2], "i"), ([1, 2**63], "s"), ([True, False], "b"), ([b"\x01"], "bt"), ([0.5, -0.25], "f")],
)
def test_lists(value: list[object], field: str) -> None:
    message = attribute(one(a=value), "a")
    expected = [str(item).encode() if field == "s" else item for item in value]
    assert list(getattr(message.list, field)) == expected  # type: ignore[attr-defined]


def test_lists_of_lists_and_empty_lists() -> None:
    assert attribute(one(a=[]), "a").WhichOneof("value") == "list"  # type: ignore[attr-defined]
    ints = attribute(one(a=[[1, 2], [], [3]]), "a").list_list_int  # type: ignore[attr-defined]
    assert [list(row.list_i) for row in ints.list_list_i] == [[1, 2], [], [3]]
    floats = attribute(one(a=[[1, 0.5]]), "a").list_list_float  # type: ignore[attr-defined]
    assert [list(row.list_f) for row in floats.list_list_f] == [[1, 0.5]]


def test_a_tensor_keeps_its_bytes() -> None:
    array = np.arange(6, dtype=np.int16).reshape(2, 3).T
    tensor = attribute(one(value=array), "value").t  # type: ignore[attr-defined]
    assert list(tensor.desc.shape.dim) == [3, 2]
    assert tensor.desc.dtype == 5
    assert np.array_equal(np.frombuffer(tensor.data, np.int16).reshape(3, 2), array)


def test_a_graph_inside_an_attribute() -> None:
    assert attribute(one(branch=Graph("inner", [add_1()])), "branch").g.op[0].name == "Add_1"  # type: ignore[attr-defined]


def test_a_fused_operator_names_its_members() -> None:
    graph = Graph("graph_1", [Operator("AddMul", "AutomaticBufferFusionOp", members=["Add", "Mul"])])
    assert list(attribute(graph, "_datadump_original_op_names").list.s) == [b"Add", b"Mul"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", [object(), ["a", 1], None])
def test_a_value_without_a_field_names_operator_and_attribute(value: object) -> None:
    with pytest.raises((TypeError, ValueError), match="operator 'X': attribute 'a'"):
        write_txt(one(a=value))


@given(st.text(), st.binary(), st.floats(width=32, allow_nan=False), st.integers(-(2**63), 2**63 - 1))
def test_any_value_comes_back(text: str, data: bytes, real: float, number: int) -> None:
    graph = Graph(text, [Operator(text, "X", [text], attributes={text: data, "f" + text: real, "i" + text: number})])
    message = parse_text(write_txt(graph), "GraphDef")
    assert message.name == message.op[0].name == message.op[0].input[0] == text
    assert message.op[0].attr[text].bt == data
    assert message.op[0].attr["f" + text].f == real
    assert message.op[0].attr["i" + text].i == number
    assert write_txt(graph).isascii()


def test_file_name_has_utc_microseconds() -> None:
    moment = datetime(2025, 1, 2, 5, 4, 5, 678901, timezone(timedelta(hours=2)))
    assert (
        graph_file_name("original", 1, 0, 77, moment, "txt")
        == "dynamo_original_graph_1_rank_0_pid_77_ts_20250102030405678901.txt"
    )


# ---- the other forms -----------------------------------------------------------------------------------------------


def small_graph() -> Graph:
    """y = x + x, then y * 3: the example of docs/formats/graph-text.md."""
    desc = TensorDesc("y", "DT_FLOAT", [2, 2])
    return Graph(
        "graph_1",
        [
            Operator("x_1", "Data", output_desc=[desc], attributes={"index": 0}),
            Operator(
                "Add",
                "Add",
                ["x_1:0", "x_1:0"],
                [TensorDesc("x1", "DT_FLOAT"), TensorDesc("x2", "DT_FLOAT")],
                [TensorDesc("y", "DT_FLOAT", [2, 2], attributes={"_fx_tensor_name": "add-aten.add.Tensor.OUTPUT.0"})],
                fx_line="add = torch.ops.aten.add.Tensor(x_1, x_1)",
                source='File "net.py", line 7, in forward y = x + x',
            ),
            Operator(
                "Const", "Const", [], [], [TensorDesc("y", "DT_FLOAT", [])], {"value": np.array(3.0, dtype=np.float32)}
            ),
            Operator(
                "Mul",
                "Mul",
                ["Add:0", "Const:0"],
                [TensorDesc("x1", "DT_FLOAT"), TensorDesc("x2", "DT_FLOAT")],
                [desc],
                fx_line="mul = torch.ops.aten.mul.Tensor(add, 3)",
                source='File "net.py", line 8, in forward return y * 3',
            ),
            Operator("NetOutput", "NetOutput", ["Mul:0"], [TensorDesc("input0")]),
        ],
    )


def many_kinds() -> Graph:
    """Several outputs, a control edge, an absent input, names and values that look like syntax."""
    return Graph(
        "graph_2",
        [
            Operator("x.1", "Data", output_desc=[TensorDesc("y", "DT_BF16", [-1, 8])], attributes={"index": 0}),
            Operator(
                "w", "Const", output_desc=[TensorDesc("y", "DT_INT64", [2])], attributes={"value": np.array([1, 2])}
            ),
            Operator(
                "TopKV2",
                "TopKV2",
                ["x.1:0", "", "w:0"],
                [TensorDesc("x"), TensorDesc("mask"), TensorDesc("k")],
                [TensorDesc("values", "DT_BF16", [-1, 2]), TensorDesc("indices", "DT_INT64", [-1, 2])],
                {"sorted": True, "note": 'a: "b" {', "dims": [1, -1], "scales": [0.5, 1.0], "alpha": 2.5, "k": 2},
            ),
            Operator("Fused", "AutomaticBufferFusionOp", ["TopKV2:1", "w:-1"], [], [TensorDesc()], members=["A", "B"]),
            Operator("NetOutput", "NetOutput", ["TopKV2:0", "Fused:0"]),
        ],
    )


def test_py_of_the_documents_example() -> None:
    assert (
        write_py(small_graph())
        == """x_1_0 = ge.Data(index=0, dtype=0, shape=[2, 2], placement="CPU", node_name="x_1")
# File "net.py", line 7, in forward y = x + x
## FX Code: add = torch.ops.aten.add.Tensor(x_1, x_1)
Add_0 = ge.Add(x_1_0, x_1_0, node_name="Add")
# File "net.py", line 8, in forward return y * 3
## FX Code: mul = torch.ops.aten.mul.Tensor(add, 3)
Mul_0 = ge.Mul(Add_0, ge.Const(3, dtype=0), node_name="Mul")
_ = ge.NetOutput([Mul_0], dependencies=[])
"""
    )


def test_py_is_python_for_every_graph() -> None:
    text = write_py(many_kinds())
    compile(text, "graph.py", "exec")
    assert "TopKV2_0, TopKV2_1 = ge.TopKV2(x_1_0, None, w_0," in text
    assert "Fused_0 = ge.AutomaticBufferFusionOp(TopKV2_1, dependencies=[w_0]" in text


def test_py_has_run_time_numbers() -> None:
    # BF16 is 27 and INT64 9 for the engine; the proto calls INT64 8.
    assert "dtype=27" in write_py(many_kinds())
    assert "w_0 = ge.Const([1, 2], dtype=9" in write_py(many_kinds())


def test_pbtxt_is_a_graph_of_nodes() -> None:
    # TensorFlow's NodeDef, as far as viewers read it.
    nodes = text_format.Parse(write_pbtxt(many_kinds()), message_class("NodeGraph")()).node
    assert [node.name for node in nodes] == ["x.1", "w", "TopKV2", "Fused", "NetOutput"]
    assert list(nodes[3].input) == ["TopKV2:1", "^w"]
    assert nodes[2].attr["note"].s == b's: "a: \\"b\\" {"\n'
    assert nodes[2].attr["dims"].s == b"list {\n  i: 1\n  i: -1\n}\n"
    values = parse_text(nodes[2].attr["[o]values"].s.decode(), "TensorDescriptor")
    assert (values.name, values.dtype, list(values.shape.dim)) == ("values", 27, [-1, 2])
    assert parse_text(nodes[1].attr["value"].s.decode(), "AttrDef").t.data == np.array([1, 2]).tobytes()


@pytest.mark.parametrize("weights", [True, False])
def test_ge_proto_is_a_model(weights: bool) -> None:
    model = parse_text(write_ge_proto(many_kinds(), weights=weights), "ModelDef")
    assert model.name == model.graph[0].name == "graph_2"
    assert [op.id for op in model.graph[0].op] == [0, 1, 2, 3, 4]
    data = model.graph[0].op[1].attr["value"].t.data
    assert data == (np.array([1, 2]).tobytes() if weights else b"")
    assert list(model.graph[0].op[3].attr["_datadump_original_op_names"].list.s) == [b"A", b"B"]


@pytest.mark.parametrize("weights", [True, False])
def test_onnx_passes_the_checker(weights: bool) -> None:
    model = text_format.Parse(write_ge_onnx(many_kinds(), weights=weights), onnx.ModelProto())
    if weights:
        onnx.checker.check_model(model)
    top_k = model.graph.node[2]
    assert list(top_k.input) == ["x.1:0", "", "w:0"]
    assert list(top_k.output) == ["TopKV2:0", "TopKV2:1"]
    values = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in top_k.attribute}
    assert values == {"sorted": 1, "note": b'a: "b" {', "dims": [1, -1], "scales": [0.5, 1.0], "alpha": 2.5, "k": 2}
    assert list(model.graph.node[1].output) == ["w:0", "w:-1"]
    assert [output.name for output in model.graph.output] == ["TopKV2:0", "Fused:0"]
    if weights:
        assert onnx.numpy_helper.to_array(model.graph.node[1].attribute[0].t).tolist() == [1, 2]


def test_readable_form() -> None:
    lines = write_readable(small_graph()).splitlines()
    assert lines[2] == "  %Add : [#users=1] = Node[type=Add] (inputs = (x1=%x_1, x2=%x_1))"
    lines = write_readable(many_kinds()).splitlines()
    assert "(inputs = (0=get_element[node=%TopKV2](1)), controls = (%w), attrs = {" in lines[4]
    assert "attrs" not in write_readable(many_kinds(), attributes=False)


# ---- the engine's dump of graphs -----------------------------------------------------------------------------------


def test_nothing_is_asked_for() -> None:
    for environment in ({}, {"DUMP_GE_GRAPH": ""}, {"DUMP_GE_GRAPH": "0", "DUMP_GRAPH_LEVEL": "9"}):
        assert EngineGraphDump.from_environment(environment) is None


def test_files_of_the_engine(tmp_path: Path) -> None:
    dump = EngineGraphDump.from_environment(
        {"DUMP_GE_GRAPH": "2", "DUMP_GRAPH_PATH": str(tmp_path), "DUMP_GRAPH_FORMAT": "ge_proto|onnx|readable"},
        device=3,
    )
    assert dump is not None
    first = dump.write(many_kinds(), "PreRunBegin")
    second = dump.write(many_kinds(), "Build")
    folder = tmp_path / f"pid_{os.getpid()}_deviceid_3"
    assert sorted(path.name for path in folder.iterdir()) == sorted(os.path.basename(path) for path in first + second)
    names = [os.path.basename(path) for path in first]
    number = int(names[0].split("_")[2])
    assert names == [
        f"ge_proto_{number:08d}_PreRunBegin.txt",
        f"ge_onnx_{number:08d}_PreRunBegin.pbtxt",
        f"ge_readable_{number:08d}_PreRunBegin.txt",
    ]
    assert os.path.basename(second[0]) == f"ge_proto_{number + 1:08d}_Build.txt"
    model = parse_text(Path(second[0]).read_text(), "ModelDef")
    assert model.graph[0].op[1].attr["value"].t.data == b""  # 2: without weights


@pytest.mark.parametrize(
    ("level", "stages"),
    [
        ("1", ["PreRunBegin", "AfterInfershape", "Build"]),
        ("3", ["Build"]),
        ("4", ["PreRunBegin"]),
        ("Infer|Bui", ["AfterInfershape", "Build"]),
        ("nothing", []),
    ],
)
def test_levels_choose_stages(level: str, stages: list[str]) -> None:
    dump = EngineGraphDump.from_environment({"DUMP_GE_GRAPH": "1", "DUMP_GRAPH_LEVEL": level})
    assert dump is not None
    assert [stage for stage in ("PreRunBegin", "AfterInfershape", "Build") if dump.wants(stage)] == stages


def test_the_build_is_always_written_beside_data(tmp_path: Path) -> None:
    environment = {"DUMP_GE_GRAPH": "3", "DUMP_GRAPH_LEVEL": "4", "DUMP_GRAPH_PATH": str(tmp_path)}
    dump = EngineGraphDump.from_environment(environment, with_data=True)
    assert dump is not None
    (path,) = dump.write(small_graph(), "Build")
    assert os.path.basename(path).startswith("ge_proto_")


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({}, "."),
        ({"ASCEND_WORK_PATH": "/w"}, "/w/pid_{pid}_deviceid_{device}"),
        ({"ASCEND_WORK_PATH": "/w", "DUMP_GRAPH_PATH": "/p"}, "/p/pid_{pid}_deviceid_{device}"),
        ({"DUMP_GRAPH_PATH": "/p", "NPU_COLLECT_PATH": "/c"}, "/c/extra-info/graph/{pid}_{device}"),
    ],
)
def test_which_folder_wins(environment: dict[str, str], folder: str) -> None:
    dump = EngineGraphDump.from_environment({"DUMP_GE_GRAPH": "1", **environment})
    assert dump is not None
    assert dump.folder == folder


def test_every_bad_variable_is_named() -> None:
    environment = {"DUMP_GE_GRAPH": "4", "DUMP_GRAPH_LEVEL": "7", "DUMP_GRAPH_FORMAT": "ge_proto|svg"}
    with pytest.raises(ValueError, match=r"DUMP_GE_GRAPH.*DUMP_GRAPH_LEVEL.*svg"):
        EngineGraphDump.from_environment(environment)


def test_writers_do_not_import_torch() -> None:
    modules = "assay.torch.graph._graph_text, assay.torch.graph._fusion_switch"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
