# SPDX-License-Identifier: Apache-2.0
"""One compiled graph in memory, from which its texts, its dump files and its selection are made.

The form is that of GE's ``GraphDef``: operators with unique names, edges ``"producer:output"``. Importing this
module does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Optional, Union

__all__ = ["Attribute", "Graph", "Operator", "TensorDesc"]

# str -> s, bool -> b, int -> i, float -> f, a list of one of them -> list, numpy.ndarray -> t, bytes -> bt
Attribute = Union[str, bool, int, float, bytes, list[Any], Any]


@dataclass
class TensorDesc:
    """What is known of one input or output when the graph is compiled."""

    name: str = ""  # formal name: "x1", "y"
    dtype: str = "DT_UNDEFINED"  # name of the proto's enumeration: "DT_FLOAT"
    shape: Optional[list[int]] = None  # -1: dynamic; None: not known
    layout: str = "ND"
    attributes: dict[str, Attribute] = field(default_factory=dict)


@dataclass
class Operator:
    """One node. ``key`` is what made it (an fx node); texts never show it."""

    name: str
    type: str
    inputs: list[str] = field(default_factory=list)  # "Add:0"; "Add:-1" is a control edge; "" an absent one
    input_desc: list[TensorDesc] = field(default_factory=list)
    output_desc: list[TensorDesc] = field(default_factory=list)
    attributes: dict[str, Attribute] = field(default_factory=dict)
    members: list[str] = field(default_factory=list)  # of a fused operator: names before fusion, in their order
    fx_line: str = ""  # "add = torch.ops.aten.add.Tensor(x_1, x_1)"
    source: str = ""  # 'File "net.py", line 7, in forward y = x + x'
    key: Any = None


@dataclass
class Graph:
    """Operators in the order of execution; ``Data`` operators first, ``NetOutput`` last."""

    name: str  # "graph_1"
    operators: list[Operator] = field(default_factory=list)
    attributes: dict[str, Attribute] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Operator]:
        return iter(self.operators)

    def by_name(self) -> dict[str, Operator]:
        return {operator.name: operator for operator in self.operators}

    def producer(self, edge: str) -> str:
        """``"Add_1:0"`` -> ``"Add_1"``."""
        return edge.rpartition(":")[0]
