# SPDX-License-Identifier: Apache-2.0
"""A compiled graph as text: what TorchAir writes, and the name of the file.

``txt`` is a bare ``GraphDef``, byte for byte what protobuf's own printer would give for the message, but that all that
is not ASCII is octal. Which field and attribute means what: docs/formats/graph-text.md. Importing this module does not
import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Optional

from assay.torch.graph._engine_graph import EngineGraphDump, write_ge_onnx, write_ge_proto, write_readable
from assay.torch.graph._graph_source import write_py
from assay.torch.graph._model import Attribute, Graph
from assay.torch.graph._proto_text import TextWriter, attributes_of, is_control

__all__ = [
    "EngineGraphDump",
    "graph_file_name",
    "utc_stamp",
    "write_ge_onnx",
    "write_ge_proto",
    "write_pbtxt",
    "write_py",
    "write_readable",
    "write_txt",
]


def utc_stamp(time: Optional[datetime] = None) -> str:
    """20 digits: UTC date and time with microseconds. A time without zone is local; None is now."""
    moment = datetime.now(timezone.utc) if time is None else time.astimezone(timezone.utc)
    return moment.strftime("%Y%m%d%H%M%S%f")


def graph_file_name(kind: str, graph_id: int, rank: int, pid: int, time: Optional[datetime], suffix: str) -> str:
    """Name of one text of a graph.

    Args:
        kind: "original" (before the passes) or "optimized" (behind them).
        graph_id: N of graph_N.
        rank: of the process, 0 without torch.distributed.
        pid: of the process.
        time: None is now.
        suffix: "txt", "pbtxt" or "py".
    """
    return f"dynamo_{kind}_graph_{graph_id}_rank_{rank}_pid_{pid}_ts_{utc_stamp(time)}.{suffix}"


def write_txt(graph: Graph) -> str:
    """The graph as a ``GraphDef`` in protobuf's text format.

    Raises:
        TypeError, ValueError: an attribute has a value that the format cannot hold; names operator and attribute.
    """
    text = TextWriter()
    text.graph_fields(graph)
    return text.take()


def write_pbtxt(graph: Graph) -> str:
    """The graph as TensorFlow's viewers read it.

    A node has ``name``, ``op`` and ``input``, a control edge as ``^name``; each attribute is the text of its AttrDef,
    each operand an attribute ``[i]x1`` or ``[o]y`` with the text of its descriptor.

    Raises:
        TypeError, ValueError: as :func:`write_txt`.
    """
    text = TextWriter()

    def attribute(key: str, value: str) -> None:
        text.open("attr")
        text.string("key", key)
        text.open("value")
        text.string("s", value)
        text.close()
        text.close()

    for operator in graph:
        text.open("node")
        text.string("name", operator.name)
        text.string("op", operator.type)
        for edge in operator.inputs:
            text.string("input", f"^{edge[:-3]}" if is_control(edge) else edge)
        attributes = attributes_of(operator)
        for key in sorted(attributes):
            attribute(key, _value_text(attributes, key))
        for mark, descs in (("[i]", operator.input_desc), ("[o]", operator.output_desc)):
            for desc in descs:
                inner = TextWriter()
                inner.descriptor_fields(desc)
                attribute(mark + desc.name, inner.take())
        text.close()
    return text.take()


def _value_text(attributes: Mapping[str, Attribute], key: str) -> str:
    """The fields of one attribute's AttrDef."""
    inner = TextWriter()
    inner.attributes({key: attributes[key]})
    # Between "attr {", the key and "value {" in front and two brackets behind.
    return "".join(line[4:] + "\n" for line in inner.take().splitlines()[3:-2])
