# SPDX-License-Identifier: Apache-2.0
"""From an fx graph to the model that its texts, its files and its selection are made from.

One operator a node that computes something. Three kinds of node have none of their own: ``getitem`` of a result is
the edge ``"TopKV2:1"``, a number that stands for a tensor is a ``Const`` before its consumer, the output node is
``NetOutput``.
"""

from __future__ import annotations

import contextlib
import operator as operator_module
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Optional, Union

import numpy as np
import torch
from torch import fx

from assay.torch.graph._model import Attribute, Graph, Operator, TensorDesc
from assay.torch.graph._names import OperatorNames, formal_names, ge_type, pack_name

__all__ = [
    "Number",
    "build_graph",
    "dtype_name",
    "fx_tensor_name",
    "has_tensors",
    "input_values",
    "is_result_item",
    "no_modes",
]

# Attributes of operators inside the blocks of scope.py, and the keys in a node's meta["custom"].
SCOPE_ATTRIBUTES = (
    *("torchair_enable_data_dump", "_user_stream_label", "_user_stream_priority", "_enable_inner_parallel"),
    *("_super_kernel_scope", "_super_kernel_options", "_op_aicore_num", "_op_vectorcore_num"),
    "_op_exec_never_timeout",
)

_ND = 2  # number of the format ND
_LARGEST_CONSTANT = 1024  # elements; the values of larger constants stay out of the texts

_DTYPES = {
    torch.float32: "DT_FLOAT",
    torch.float16: "DT_FLOAT16",
    torch.bfloat16: "DT_BF16",
    torch.float64: "DT_DOUBLE",
    torch.int8: "DT_INT8",
    torch.int16: "DT_INT16",
    torch.int32: "DT_INT32",
    torch.int64: "DT_INT64",
    torch.uint8: "DT_UINT8",
    torch.bool: "DT_BOOL",
    torch.complex64: "DT_COMPLEX64",
    torch.complex128: "DT_COMPLEX128",
    torch.qint8: "DT_QINT8",
    torch.quint8: "DT_QUINT8",
    torch.qint32: "DT_QINT32",
}
for _torch_name, _proto_name in {
    "uint16": "DT_UINT16",
    "uint32": "DT_UINT32",
    "uint64": "DT_UINT64",
    "complex32": "DT_COMPLEX32",
    "float8_e5m2": "DT_FLOAT8_E5M2",
    "float8_e4m3fn": "DT_FLOAT8_E4M3FN",
    "float8_e8m0fnu": "DT_FLOAT8_E8M0",
}.items():
    if hasattr(torch, _torch_name):  # younger than the oldest torch that is supported
        _DTYPES[getattr(torch, _torch_name)] = _proto_name


@dataclass(frozen=True)
class Number:
    """A number at the place of a tensor operand, as the 0-d tensor that the operator sees."""

    value: Union[bool, int, float, complex]
    dtype: torch.dtype


InputValue = Union[fx.Node, Number, None]


def dtype_name(dtype: torch.dtype) -> str:
    """Name in the proto's enumeration; DT_UNDEFINED for a type it does not have."""
    return _DTYPES.get(dtype, "DT_UNDEFINED")


def is_result_item(node: fx.Node) -> bool:
    """Whether a node only takes one result of a node with several."""
    if node.op != "call_function" or node.target is not operator_module.getitem:
        return False
    source = node.args[0]
    return isinstance(source, fx.Node) and isinstance(_value(source), (list, tuple))


def input_values(node: fx.Node) -> list[InputValue]:
    """The operands of a node in the order of its signature, lists spread out.

    Returns:
        One entry an input of the operator: the node that makes the tensor, a number that stands for one, or None for
        an optional tensor that is absent before one that is there. Symbolic sizes count only where a node computes
        with nothing else.
    """
    found: list[InputValue] = [value for _, value in _operands(node)]
    while found and found[-1] is None:
        found.pop()
    return found


def has_tensors(operator: Operator) -> bool:
    """Whether an operator makes a tensor; one that computes with symbolic sizes alone leaves no file."""
    key = operator.key[0] if isinstance(operator.key, tuple) else operator.key
    return not isinstance(key, fx.Node) or isinstance(operator.key, tuple) or _is_tensor(key)


def reads_tensors(operator: Operator) -> bool:
    """Whether an operator has a tensor, or a number in the place of one, among its inputs."""
    if not isinstance(operator.key, fx.Node) or not operator.key.op.startswith("call_"):
        return operator.type != "Data"
    return any(
        isinstance(value, Number) or _is_tensor(value) for value in input_values(operator.key) if value is not None
    )


def fx_tensor_name(node: fx.Node, index: int) -> str:
    """``add_1-aten.add.Tensor.OUTPUT.0``: what a GE output and an FX file have in common."""
    return f"{node.name}-{pack_name(node.target)[2]}.OUTPUT.{index}"


def build_graph(module: fx.GraphModule, name: str) -> Graph:
    """Builds the model of one compiled graph.

    Args:
        module: Aten nodes after AOTAutograd, or a graph of Dynamo. Values are known by ``meta["val"]`` or
            ``meta["example_value"]``, fake tensors whose sizes may be symbols.
        name: "graph_1".

    Returns:
        Operators in the order of execution; ``key`` is the fx node, of a number's Const ``(node, input index)``.
    """
    return _Builder(name).build(module)


class _Builder:
    def __init__(self, name: str) -> None:
        self._graph = Graph(name=name)
        self._names = OperatorNames()
        self._edges: dict[fx.Node, str] = {}  # the edge that carries a node's value
        self._module: Optional[fx.GraphModule] = None

    def build(self, module: fx.GraphModule) -> Graph:
        self._module = module
        inputs = 0
        for node in module.graph.nodes:
            if node.op == "placeholder":
                self._data(node, inputs)
                inputs += 1
            elif node.op == "output":
                self._net_output(node)
            elif node.op == "get_attr":
                self._constant(node)
            elif is_result_item(node):
                source, index = node.args
                self._edges[node] = f"{self._edges[source].rpartition(':')[0]}:{index}"
            else:
                self._call(node)
        return self._graph

    def _add(self, operator: Operator, node: Optional[fx.Node]) -> None:
        if node is not None:
            self._edges[node] = f"{operator.name}:0"
            custom = node.meta.get("custom")
            if isinstance(custom, dict):
                operator.attributes.update({key: str(custom[key]) for key in SCOPE_ATTRIBUTES if key in custom})
        self._graph.operators.append(operator)

    def _data(self, node: fx.Node, index: int) -> None:
        value = _value(node)
        descs = [_describe("x", value), _describe("y", value, meta=True)]
        operator = Operator(
            name=self._names.take("Data", node.name),
            type="Data",
            input_desc=descs[:1],
            output_desc=descs[1:],
            attributes={"index": index},
            key=node,
        )
        self._add(operator, node)

    def _net_output(self, node: fx.Node) -> None:
        results: list[fx.Node] = []
        fx.node.map_arg(node.args, results.append)
        operator = Operator(
            name=self._names.take("NetOutput"),
            type="NetOutput",
            inputs=[self._edges[result] for result in results],
            input_desc=[_describe(f"input{index}", _value(result)) for index, result in enumerate(results)],
            key=node,
        )
        self._add(operator, None)

    def _constant(self, node: fx.Node) -> None:
        value: Any = self._module
        for part in str(node.target).split("."):
            value = getattr(value, part, None)
        if not isinstance(value, torch.Tensor):
            return  # the body of a higher-order operator
        operator = Operator(name=self._names.take("Const"), type="Const", key=node)
        operator.output_desc.append(_describe("y", value, meta=True))
        if (array := _small_array(value)) is not None:
            operator.attributes["value"] = array
        operator.fx_line = f"{node.name} = self.{node.target}"
        self._add(operator, node)

    def _number(self, consumer: fx.Node, index: int, number: Number) -> str:
        wide = torch.float32 if number.dtype == torch.bfloat16 else number.dtype  # numpy has no bfloat16
        array = np.array(number.value, dtype=str(wide).removeprefix("torch."))
        operator = Operator(
            name=self._names.take("Const"),
            type="Const",
            output_desc=[TensorDesc(name="y", dtype=dtype_name(wide), shape=[])],
            attributes={"value": array},
            key=(consumer, index),
        )
        self._add(operator, None)
        return f"{operator.name}:0"

    def _call(self, node: fx.Node) -> None:
        namespace, short, full = pack_name(node.target)
        if node.op == "call_module":
            short = full = type(self._submodule(node)).__name__
        operands = _operands(node)
        while operands and operands[-1][1] is None:
            operands.pop()
        edges = []
        for index, (_, value) in enumerate(operands):
            if value is None:
                edges.append("")
            elif isinstance(value, Number):
                edges.append(self._number(node, index, value))
            else:
                edges.append(self._edges[value])
        kind = ge_type(short, namespace, node.kwargs.get("alpha", 1))
        results = _value(node)
        outputs = list(results) if isinstance(results, (list, tuple)) else [results]
        if results is None:
            outputs = []
        names, result_names = formal_names(kind, [argument for argument, _ in operands], len(outputs))
        operator = Operator(
            name=self._names.take(kind),
            type=kind,
            inputs=edges,
            fx_line=_fx_line(node, full),
            source=_source(node),
            key=node,
        )
        for formal, (_, value) in zip(names, operands):
            operator.input_desc.append(_describe_input(formal, value))
        for index, (formal, value) in enumerate(zip(result_names, outputs)):
            desc = _describe(formal, value, meta=True)
            desc.attributes["_fx_tensor_name"] = fx_tensor_name(node, index)
            operator.output_desc.append(desc)
        operator.attributes.update(_attributes(node))
        bodies = [
            str(used.target) for used in node.all_input_nodes if used.op == "get_attr" and used not in self._edges
        ]
        if bodies:
            operator.attributes["subgraph_name"] = bodies
        operator.attributes["_input_name_key"] = list(names)
        operator.attributes["_input_name_value"] = list(range(len(names)))
        operator.attributes["_output_name_key"] = list(result_names)
        operator.attributes["_output_name_value"] = list(range(len(result_names)))
        self._add(operator, node)

    def _submodule(self, node: fx.Node) -> Any:
        assert self._module is not None
        return self._module.get_submodule(str(node.target))


# ---- values and their descriptions -----------------------------------------------------------------------------------


def _value(node: fx.Node) -> Any:
    meta = node.meta
    return meta["val"] if "val" in meta else meta.get("example_value")


def _is_tensor(node: fx.Node) -> bool:
    value = _value(node)
    if isinstance(value, (list, tuple)):
        return any(isinstance(item, torch.Tensor) for item in value)
    return isinstance(value, torch.Tensor)


def _describe(name: str, value: Any, meta: bool = False) -> TensorDesc:
    desc = TensorDesc(name=name)
    if isinstance(value, torch.Tensor):
        desc.dtype = dtype_name(value.dtype)
        desc.shape = [size if isinstance(size, int) else -1 for size in value.shape]
    elif isinstance(value, (bool, torch.SymBool)):
        desc.dtype, desc.shape = "DT_BOOL", []
    elif isinstance(value, (int, torch.SymInt)):
        desc.dtype, desc.shape = "DT_INT64", []
    elif isinstance(value, (float, torch.SymFloat)):
        desc.dtype, desc.shape = "DT_DOUBLE", []
    if meta:
        desc.attributes["_meta"] = _meta_text(value)
        desc.attributes["format_for_int"] = _ND
    return desc


def _describe_input(name: str, value: InputValue) -> TensorDesc:
    if isinstance(value, Number):
        return TensorDesc(name=name, dtype=dtype_name(value.dtype))
    desc = _describe(name, None if value is None else _value(value))
    desc.shape = None  # the producer's descriptor says it
    return desc


def _meta_text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        sizes = ", ".join(str(size) for size in value.shape)
        return f"FakeTensor(dtype={value.dtype}, size=[{sizes}], device='{value.device}')"
    return repr(value)


def _small_array(tensor: torch.Tensor) -> Optional[Any]:
    if type(tensor) is not torch.Tensor or tensor.layout != torch.strided or tensor.device.type == "meta":
        return None
    if tensor.numel() > _LARGEST_CONSTANT:
        return None
    try:
        with no_modes():
            return np.array(tensor.detach().cpu().resolve_conj().resolve_neg().numpy())
    except (TypeError, RuntimeError):  # a type that numpy has not
        return None


# ---- arguments -------------------------------------------------------------------------------------------------------


def _arguments(node: fx.Node) -> Iterator[tuple[str, str, Any]]:
    """(name, schema type, value) of every argument that is given, in the order of the signature."""
    schema = getattr(node.target, "_schema", None)
    if node.op == "call_function" and schema is not None:
        for index, argument in enumerate(schema.arguments):
            if index < len(node.args):
                yield argument.name, str(argument.type), node.args[index]
            elif argument.name in node.kwargs:
                yield argument.name, str(argument.type), node.kwargs[argument.name]
        return
    for index, value in enumerate(node.args):
        yield f"x{index + 1}", "", value
    for name, value in node.kwargs.items():
        yield name, "", value


def _operands(node: fx.Node) -> list[tuple[str, InputValue]]:
    arguments = list(_arguments(node))
    symbolic = not _is_tensor(node) and not any(_is_tensor(used) for used in node.all_input_nodes)
    found: list[tuple[str, InputValue]] = []
    for name, kind, value in arguments:
        _operand(name, kind, value, node, symbolic, found)
    return found


def _operand(
    name: str, kind: str, value: Any, node: fx.Node, symbolic: bool, found: list[tuple[str, InputValue]]
) -> None:
    if isinstance(value, fx.Node):
        if symbolic or _is_tensor(value):
            found.append((name, value))
    elif isinstance(value, (list, tuple)):
        for item in value:
            if isinstance(item, fx.Node):
                _operand(name, kind, item, node, symbolic, found)
            elif item is None and "Tensor" in kind:
                found.append((name, None))
            elif isinstance(item, (list, tuple, dict)):
                _operand(name, kind, item, node, symbolic, found)
    elif isinstance(value, dict):
        for item in value.values():
            _operand(name, kind, item, node, symbolic, found)
    elif value is None:
        if "Tensor" in kind:
            found.append((name, None))
    elif isinstance(value, (bool, int, float, complex)) and not symbolic and _stands_for_tensor(name, kind, node):
        found.append((name, Number(value, _number_dtype(value, node))))


# Numbers in the formula of an operator, not operands that broadcast.
_FACTORS = frozenset({"alpha", "beta"})


def _stands_for_tensor(name: str, kind: str, node: fx.Node) -> bool:
    if kind:
        return name not in _FACTORS and kind in ("Tensor", "Optional[Tensor]", "number", "Optional[number]")
    # torch functions and methods have no schema here: the second operand of an arithmetic operator.
    short = pack_name(node.target)[1]
    return name in ("x1", "x2") and ge_type(short) in _ARITHMETIC


_ARITHMETIC = frozenset(
    (
        *("Add", "AxpyV2", "Sub", "Mul", "RealDiv", "FloorDiv", "FloorMod", "Pow", "Maximum", "Minimum", "Equal"),
        *("NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual", "BitwiseAnd", "BitwiseOr", "BitwiseXor"),
    )
)


def _number_dtype(value: Any, node: fx.Node) -> torch.dtype:
    own: torch.dtype
    if isinstance(value, bool):
        own = torch.bool
    elif isinstance(value, int):
        own = torch.int64
    else:
        own = torch.complex64 if isinstance(value, complex) else torch.float32
    for used in node.all_input_nodes:
        tensor = _value(used)
        if isinstance(tensor, torch.Tensor) and tensor.dtype in _DTYPES and not tensor.dtype.is_complex:
            if tensor.dtype.is_floating_point and not isinstance(value, complex):
                return tensor.dtype if tensor.dtype.itemsize > 1 else torch.float32
            if not tensor.dtype.is_floating_point and isinstance(value, int) and tensor.dtype != torch.bool:
                return tensor.dtype if torch.iinfo(tensor.dtype).min <= value <= torch.iinfo(tensor.dtype).max else own
            break
    return own


def _attributes(node: fx.Node) -> dict[str, Attribute]:
    """The arguments that are no tensors, by their names."""
    result: dict[str, Attribute] = {}
    for name, kind, value in _arguments(node):
        if isinstance(value, fx.Node):
            if not _is_tensor(value):
                result[name] = value.name
        elif isinstance(value, (bool, int, float, str)):
            if not _stands_for_tensor(name, kind, node):
                result[name] = value
        elif isinstance(value, (list, tuple)):
            items = list(value)
            if not items or any(isinstance(item, fx.Node) and _is_tensor(item) for item in items):
                continue
            same = {type(item) for item in items}
            if same <= {int} or same <= {float} or same <= {bool}:
                result[name] = items
            elif all(not isinstance(item, (list, tuple, dict)) for item in items):
                result[name] = [str(item) for item in items]
        elif value is not None and not isinstance(value, dict):
            result[name] = str(value)
    return result


# ---- where it comes from ---------------------------------------------------------------------------------------------


def _fx_line(node: fx.Node, full: str) -> str:
    def show(value: Any) -> str:
        if isinstance(value, fx.Node):
            return value.name
        if isinstance(value, (list, tuple)):
            inner = ", ".join(show(item) for item in value)
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
        return repr(value)

    arguments = [show(value) for value in node.args]
    arguments += [f"{name} = {show(value)}" for name, value in node.kwargs.items()]
    target = f"torch.ops.{full}" if hasattr(node.target, "_schema") else full
    return f"{node.name} = {target}({', '.join(arguments)})"


def _source(node: fx.Node) -> str:
    trace = node.stack_trace
    if not trace:
        return ""
    _, found, last = trace.rpartition('File "')
    lines = [line for line in last.splitlines() if line.strip(" ^~")]  # Python's marks below the code say nothing here
    return " ".join((found + " ".join(lines)).split()) if found else ""


@contextlib.contextmanager
def no_modes() -> Iterator[None]:
    """Without the fake-tensor and proxy modes that are active while a graph is compiled: real tensors can be read."""
    try:
        from torch.utils._python_dispatch import _disable_current_modes
    except ImportError:
        yield
        return
    with _disable_current_modes():
        yield
