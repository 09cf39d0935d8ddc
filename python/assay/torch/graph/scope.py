# SPDX-License-Identifier: Apache-2.0
"""Marks around parts of a compiled function: ``with scope.data_dump(): ...`` selects the operators inside.

    def forward(self, x):
        y = self.attention(x)
        with scope.data_dump():
            z = self.mlp(y)
        return z

Outside of ``torch.compile`` a mark does nothing. While Dynamo traces the function it leaves two calls in the graph;
the backend turns them into an attribute of every operator between them (:func:`apply_scopes`) and removes them, so
nothing of them is executed. The attribute follows an operator through AOTAutograd into the backward graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.node import has_side_effect

__all__ = [
    "apply_scopes",
    "data_dump",
    "limit_core_num",
    "npu_stream_switch",
    "npu_wait_tensor",
    "op_never_timeout",
    "super_kernel",
]

_library: Any = torch.library.Library("assay_graph", "FRAGMENT")  # type: ignore[no-untyped-call]
_library.define("scope_enter(str[] keys, str[] values) -> ()")
_library.define("scope_exit() -> ()")
has_side_effect(torch.ops.assay_graph.scope_enter.default)
has_side_effect(torch.ops.assay_graph.scope_exit.default)


def _enter(keys: Sequence[str], values: Sequence[str]) -> None:
    """Run outside of a graph, or while one is traced with fake tensors: nothing to do."""


def _exit() -> None:
    """As above."""


_library.impl("scope_enter", _enter, "CompositeExplicitAutograd")
_library.impl("scope_exit", _exit, "CompositeExplicitAutograd")

_ENTER = (torch.ops.assay_graph.scope_enter, torch.ops.assay_graph.scope_enter.default)
_EXIT = (torch.ops.assay_graph.scope_exit, torch.ops.assay_graph.scope_exit.default)


class _Scope:
    """A context manager that Dynamo traces through."""

    def __init__(self, keys: list[str], values: list[str]) -> None:
        self.keys = keys
        self.values = values

    def __enter__(self) -> None:
        torch.ops.assay_graph.scope_enter(self.keys, self.values)

    def __exit__(self, *error: object) -> None:
        torch.ops.assay_graph.scope_exit()


def data_dump() -> _Scope:
    """Selects the operators inside the block, beside those that ``dump_layer`` names. Needs ``enable_dump``.

    Raises:
        RuntimeError: when the function is compiled, a graph break lies inside the block.
    """
    return _Scope(["torchair_enable_data_dump"], ["True"])


# The vendor's other scopes steer its compiler. Here they are attributes in the graph's text and nothing more.


def npu_stream_switch(stream_tag: str, stream_priority: int = 0, enable_inner_parallel: bool = True) -> _Scope:
    """Attributes ``_user_stream_label``, ``_user_stream_priority``, ``_enable_inner_parallel``."""
    keys = ["_user_stream_label", "_user_stream_priority", "_enable_inner_parallel"]
    return _Scope(keys, [stream_tag, str(stream_priority), str(enable_inner_parallel)])


def super_kernel(scope: str, options: str = "") -> _Scope:
    """Attributes ``_super_kernel_scope`` and ``_super_kernel_options``."""
    return _Scope(["_super_kernel_scope", "_super_kernel_options"], [scope or "", options])


def limit_core_num(op_aicore_num: int, op_vectorcore_num: int) -> _Scope:
    """Attributes ``_op_aicore_num`` and ``_op_vectorcore_num``."""
    return _Scope(["_op_aicore_num", "_op_vectorcore_num"], [str(op_aicore_num), str(op_vectorcore_num)])


def op_never_timeout(enable: bool = True) -> _Scope:
    """Attribute ``_op_exec_never_timeout``.

    Raises:
        TypeError: ``enable`` is no bool.
    """
    if not isinstance(enable, bool):
        raise TypeError(f"op_never_timeout(enable=...) takes a bool, not {enable!r} (type {type(enable).__name__}).")
    return _Scope(["_op_exec_never_timeout"], [str(enable)])


def npu_wait_tensor(self: torch.Tensor, dependency: torch.Tensor) -> torch.Tensor:
    """Orders streams on the vendor's devices; returns `self`."""
    return self


def apply_scopes(module: fx.GraphModule) -> bool:
    """Turns the marks in a graph of Dynamo into ``node.meta["custom"]`` and removes them.

    Returns:
        Whether there were any.

    Raises:
        RuntimeError: a block begins or ends outside of this graph: a graph break lies inside it.
    """
    stack: list[dict[str, str]] = []
    marks = []
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target in _ENTER:
            keys, values = _arguments(node)
            stack.append(dict(zip(keys, values)))
            marks.append(node)
        elif node.op == "call_function" and node.target in _EXIT:
            if not stack:
                raise RuntimeError(_BROKEN)
            stack.pop()
            marks.append(node)
        elif stack and node.op.startswith("call_"):
            custom = node.meta.get("custom")
            merged: dict[str, Any] = dict(custom) if isinstance(custom, dict) else {}
            for attributes in stack:
                merged.update(attributes)
            node.meta["custom"] = merged
    if stack:
        raise RuntimeError(_BROKEN)
    for node in marks:
        module.graph.erase_node(node)
    if marks:
        module.recompile()
    return bool(marks)


_BROKEN = (
    "a block of assay.torch.graph.scope begins or ends outside of this graph: a graph break lies inside the block. "
    "Move what breaks the graph out of the block; TORCH_LOGS=graph_breaks shows what it is, and "
    "torch.compile(fullgraph=True) stops there."
)


def _arguments(node: fx.Node) -> tuple[list[str], list[str]]:
    values = [node.kwargs.get("keys"), node.kwargs.get("values")]
    values[: len(node.args)] = node.args
    keys, texts = values
    return [str(key) for key in keys], [str(text) for text in texts]  # type: ignore[union-attr]
