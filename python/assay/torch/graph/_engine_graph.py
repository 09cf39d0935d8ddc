# SPDX-License-Identifier: Apache-2.0
"""The graph engine's dump of graphs: DUMP_GE_GRAPH and its companions, the readable form and ONNX.

Importing this module does not import torch.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from assay.torch.graph._model import Attribute, Graph, TensorDesc
from assay.torch.graph._proto_text import (
    ONNX_NUMBERS,
    PROTO_OF_NUMPY,
    TextWriter,
    attributes_of,
    escape,
    float_text,
    is_bool,
    is_control,
    is_float,
    is_int,
    literal,
)

__all__ = ["EngineGraphDump", "write_ge_onnx", "write_ge_proto", "write_readable"]


def write_ge_proto(graph: Graph, *, weights: bool = True) -> str:
    """The graph inside a ``ModelDef`` of its name, operators numbered in their order.

    Args:
        weights: whether the bytes of constants are written.

    Raises:
        TypeError, ValueError: as :func:`write_txt`.
    """
    text = TextWriter(weights)
    text.optional_string("name", graph.name)
    text.open("graph")
    text.graph_fields(graph, numbered=True)
    text.close()
    return text.take()


# ---- the readable form and ONNX ------------------------------------------------------------------------------------


def write_readable(graph: Graph, *, attributes: bool = True) -> str:
    """One line an operator, in the manner of a printed FX graph.

    Args:
        attributes: False leaves them out, and only who feeds whom is left.
    """
    users: Counter[str] = Counter()
    for operator in graph:
        users.update({graph.producer(edge) for edge in operator.inputs if edge})
    by_name = graph.by_name()

    def value(edge: str) -> str:
        if not edge:
            return "None"
        producer, _, index = edge.rpartition(":")
        operator = by_name.get(producer)
        if operator is not None and len(operator.output_desc) > 1:
            return f"get_element[node=%{producer}]({index})"
        return f"%{producer}"

    lines = [f'graph("{escape(graph.name)}"):']
    for operator in graph:
        named: list[str] = []
        controls: list[str] = []
        for edge in operator.inputs:
            if is_control(edge):
                controls.append(f"%{edge[:-3]}")
                continue
            place = len(named)
            desc = operator.input_desc[place] if place < len(operator.input_desc) else TensorDesc()
            named.append(f"{desc.name or place}={value(edge)}")
        parts = [f"inputs = ({', '.join(named)})"] if named else []
        if controls:
            parts.append(f"controls = ({', '.join(controls)})")
        shown = {key: item for key, item in attributes_of(operator).items() if _is_short(item)}
        if attributes and shown:
            parts.append("attrs = {" + ", ".join(f"{key}: {literal(shown[key])}" for key in sorted(shown)) + "}")
        lines.append(
            f"  %{operator.name} : [#users={users[operator.name]}] = Node[type={operator.type}] ({', '.join(parts)})"
        )
    return "\n".join(lines) + "\n"


def _is_short(value: Attribute) -> bool:
    return not isinstance(value, (np.ndarray, Graph, TensorDesc)) or (
        isinstance(value, np.ndarray) and value.size <= 16
    )


def write_ge_onnx(graph: Graph, *, weights: bool = False, attributes: bool = True) -> str:
    """The graph as the text of an ONNX ``ModelProto``, its operators in the operator set "ge".

    Args:
        weights: whether the bytes of constants are written.
        attributes: False leaves them out, and only who feeds whom is left.
    """
    text = TextWriter(weights)
    text.word("ir_version", "8")
    text.string("producer_name", "assay")
    text.open("graph")
    waited = {edge for operator in graph for edge in operator.inputs if is_control(edge)}
    for operator in graph:
        outputs = [f"{operator.name}:{index}" for index in range(len(operator.output_desc))]
        outputs += [f"{operator.name}:-1"] if f"{operator.name}:-1" in waited else []
        text.open("node")
        for edge in operator.inputs:
            text.string("input", edge)
        for output in outputs:
            text.string("output", output)
        text.string("name", operator.name)
        text.string("op_type", operator.type)
        own = attributes_of(operator) if attributes else {}
        for key in sorted(own):
            _onnx_attribute(text, key, own[key])
        text.string("domain", "ge")
        text.close()
    text.string("name", graph.name or "graph")
    described = {
        f"{operator.name}:{index}": desc for operator in graph for index, desc in enumerate(operator.output_desc)
    }
    results = [edge for operator in graph if operator.type == "NetOutput" for edge in operator.inputs if edge]
    for edge in dict.fromkeys(edge for edge in results if not is_control(edge)):
        _onnx_value(text, "output", edge, described.pop(edge, TensorDesc()))
    for edge, desc in described.items():
        _onnx_value(text, "value_info", edge, desc)
    text.close()
    text.open("opset_import")
    text.string("domain", "ge")
    text.word("version", "1")
    text.close()
    return text.take()


def _onnx_attribute(text: TextWriter, key: str, value: Any) -> None:
    values = value if isinstance(value, (list, tuple)) else None
    if values and all(is_int(item) or is_bool(item) for item in values):
        field, kind, items = "ints", "INTS", [str(int(item)) for item in values]
    elif values and all(is_int(item) or is_float(item) for item in values):
        field, kind, items = "floats", "FLOATS", [float_text(float(item)) for item in values]
    elif values is not None:
        words = [item if isinstance(item, (str, bytes)) else literal(item) for item in values]
        field, kind, items = "strings", "STRINGS", [f'"{escape(word)}"' for word in words]
    elif is_int(value) or is_bool(value):
        field, kind, items = "i", "INT", [str(int(value))]
    elif is_float(value):
        field, kind, items = "f", "FLOAT", [float_text(float(value))]
    elif isinstance(value, np.ndarray) and value.dtype.name in PROTO_OF_NUMPY:
        field, kind, items = "t", "TENSOR", []
    else:
        word = value if isinstance(value, (str, bytes)) else literal(value)
        field, kind, items = "s", "STRING", [f'"{escape(word)}"']
    text.open("attribute")
    text.string("name", key)
    for item in items:
        text.word(field, item)
    if kind == "TENSOR":
        text.onnx_tensor(value)
    text.word("type", kind)
    text.close()


def _onnx_value(text: TextWriter, field: str, name: str, desc: TensorDesc) -> None:
    text.open(field)
    text.string("name", name)
    text.open("type")
    text.open("tensor_type")
    text.word("elem_type", str(ONNX_NUMBERS.get(desc.dtype, 0)))
    text.open("shape")
    for size in desc.shape or []:
        text.open("dim")
        text.word("dim_value", str(size)) if size >= 0 else text.string("dim_param", "?")
        text.close()
    for _ in range(4):
        text.close()


# ---- the engine's dump of graphs -----------------------------------------------------------------------------------

_FORMATS = ("ge_proto", "onnx", "readable")
_FIRST_STAGE = "PreRunBegin"
_LAST_STAGE = "Build"
_numbers = itertools.count()  # of the stages that this process wrote; next() on it is atomic


@dataclass(frozen=True)
class EngineGraphDump:
    """Files ``ge_proto_00000001_Build.txt`` and others, as the environment asks for them."""

    detail: int  # 1 with weights, 2 without, 3 who feeds whom
    stages: str  # "1" all, "2" the usual ones, "3" the last, "4" the first, else parts of names joined by |
    formats: tuple[str, ...]
    folder: str  # "{pid}" and "{device}" stand for the process's
    device: int = 0
    with_data: bool = False  # the text of the build is always written beside a dump: comparisons need it

    @classmethod
    def from_environment(
        cls, environment: Optional[Mapping[str, str]] = None, *, device: int = 0, with_data: bool = False
    ) -> Optional[EngineGraphDump]:
        """What DUMP_GE_GRAPH and its companions say; None when it is absent, empty or 0.

        Args:
            environment: of the process when None.
            device: the device's number, part of the folder's name.
            with_data: whether operators are dumped, too.

        Raises:
            ValueError: a variable has a value that means nothing; all of them are named.
        """
        env = os.environ if environment is None else environment
        wanted = env.get("DUMP_GE_GRAPH", "").strip()
        if wanted in ("", "0"):
            return None
        problems = []
        if wanted not in ("1", "2", "3"):
            problems.append(f"DUMP_GE_GRAPH is {wanted!r}: 1 with weights, 2 without, 3 node relations only")
        stages = env.get("DUMP_GRAPH_LEVEL", "").strip() or "2"
        if stages.isdigit() and stages not in ("1", "2", "3", "4"):
            problems.append(f"DUMP_GRAPH_LEVEL is {stages!r}: 1 to 4, or parts of stage names joined by |")
        words = [word.strip() for word in env.get("DUMP_GRAPH_FORMAT", "").split("|")]
        formats = tuple(word for word in words if word) or ("ge_proto", "onnx")
        unknown = [word for word in formats if word not in _FORMATS]
        if unknown:
            problems.append(f"DUMP_GRAPH_FORMAT has {unknown[0]!r}: {', '.join(_FORMATS)} joined by |")
        if problems:
            raise ValueError("; ".join(problems))
        return cls(int(wanted), stages, formats, _engine_folder(env), device, with_data)

    def write(self, graph: Graph, stage: str) -> list[str]:
        """Writes the stage's files if it is one of those wanted; each appears whole.

        Returns:
            The paths written.

        Raises:
            OSError: the folder or a file cannot be written.
        """
        always = self.with_data and stage == _LAST_STAGE
        if not (self.wants(stage) or always):
            return []
        formats = self.formats if self.wants(stage) else ()
        if always and "ge_proto" not in formats:
            formats = ("ge_proto", *formats)
        folder = self.folder.format(pid=os.getpid(), device=self.device)
        os.makedirs(folder, exist_ok=True)
        number = next(_numbers)
        paths = []
        for kind in formats:
            short, suffix = {"ge_proto": ("proto", "txt"), "onnx": ("onnx", "pbtxt"), "readable": ("readable", "txt")}[
                kind
            ]
            name = f"ge_{short}_{number:08d}_{re.sub(r'[^0-9A-Za-z_-]', '_', stage)}.{suffix}"
            path = os.path.join(folder, name)
            with open(path + ".tmp", "w", encoding="ascii", errors="backslashreplace") as file:
                file.write(self._text(graph, kind))
            os.replace(path + ".tmp", path)
            paths.append(path)
        return paths

    def wants(self, stage: str) -> bool:
        if self.stages in ("1", "2"):
            return True
        if self.stages == "3":
            return stage == _LAST_STAGE
        if self.stages == "4":
            return stage == _FIRST_STAGE
        return any(part and part in stage for part in self.stages.split("|"))

    def _text(self, graph: Graph, kind: str) -> str:
        if kind == "ge_proto":
            return write_ge_proto(graph, weights=self.detail == 1)
        if kind == "onnx":
            return write_ge_onnx(graph, weights=self.detail == 1, attributes=self.detail < 3)
        return write_readable(graph, attributes=self.detail < 3)


def _engine_folder(env: Mapping[str, str]) -> str:
    def literal(path: str) -> str:
        return path.replace("{", "{{").replace("}", "}}")

    if env.get("NPU_COLLECT_PATH"):
        return os.path.join(literal(env["NPU_COLLECT_PATH"]), "extra-info", "graph", "{pid}_{device}")
    for name in ("DUMP_GRAPH_PATH", "ASCEND_WORK_PATH"):
        if env.get(name):
            return os.path.join(literal(env[name]), "pid_{pid}_deviceid_{device}")
    return "."
