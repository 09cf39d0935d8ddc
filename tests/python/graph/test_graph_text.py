# SPDX-License-Identifier: Apache-2.0
"""Texts of graphs, read back by google.protobuf through a proto of the tests' own (tests/formats/ge_graph.proto)."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.torch.graph._graph_text import graph_file_name, write_txt
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
    [(["a", "b"], "s"), ([1, 2], "i"), ([True, False], "b"), ([b"\x01"], "bt"), ([0.5, -0.25], "f")],
)
def test_lists(value: list[object], field: str) -> None:
    message = attribute(one(a=value), "a")
    expected = [item.encode() if isinstance(item, str) else item for item in value]
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


@pytest.mark.parametrize("value", [object(), 2**63, ["a", 1], None])
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
