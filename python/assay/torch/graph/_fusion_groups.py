# SPDX-License-Identifier: Apache-2.0
"""Which operators are compiled together in a partitioned run, and the graph of the groups.

A grouping is sound when no group needs, over operators outside of it, what it makes itself: the graph of the groups
has no cycle. Operators that overwrite memory keep their place between all others. Importing this module does not
import torch.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Optional

from assay.torch.graph._model import Graph, Operator

__all__ = ["FUSED_TYPE", "POINTWISE", "FusedKey", "computed", "default_groups", "fuse", "order_groups"]

FUSED_TYPE = "AutomaticBufferFusionOp"


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# One result element from one element of each operand.
POINTWISE = _set(
    "Abs Add Addcdiv Addcmul AxpyV2 BitwiseAnd BitwiseOr BitwiseXor Cast Ceil ClipByValueV2 Cos Elu Equal Erf Exp "
    "Expm1 Fill Floor FloorDiv FloorMod Gelu GeluGrad Greater GreaterEqual HardSwish Invert IsFinite IsInf "
    "IsNan LeakyRelu Less LessEqual Log Log1p LogicalAnd LogicalNot LogicalOr MaskedFill Maximum Minimum Mul Neg "
    "NotEqual OnesLike Pow RealDiv Reciprocal Relu ReluGrad Round Rsqrt SelectV2 Sigmoid SigmoidGrad Sign Sin "
    "SoftplusV2 Sqrt Sub Swish SwishGrad Tanh TanhGrad TensorMove ZerosLike"
)
# The same elements at other indices, nothing computed.
_VIEWS = _set("AsStrided BroadcastTo Identity Reshape Squeeze StridedSlice Transpose Unsqueeze")
_NOT_COMPUTED = frozenset({"Const", "Data", "NetOutput"})


@dataclass(frozen=True)
class FusedKey:
    """``key`` of a fused operator: its inputs and outputs as edges of the graph before fusion."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def computed(graph: Graph) -> list[Operator]:
    """The operators that can be in a group."""
    return [operator for operator in graph if operator.type not in _NOT_COMPUTED]


def default_groups(operators: Sequence[Operator], alone: Collection[str] = ()) -> list[list[str]]:
    """The built-in rule: neighbours in the order of execution that work element by element, and are connected.

    Views between two of them belong to the group, views at its ends do not. Products, attention, embeddings,
    reductions, quantisation and the operators named in `alone` have no group.

    Returns:
        Groups of at least two element-wise operators, names in the order of execution.
    """
    groups: list[list[str]] = []
    run: list[Operator] = []
    for operator in [*operators, None]:
        if operator is not None and operator.name not in alone and operator.type in POINTWISE | _VIEWS:
            run.append(operator)
            continue
        for component in _components(run):
            core = _without_ends(component)
            if sum(member.type in POINTWISE for member in core) >= 2:
                groups.append([member.name for member in core])
        run = []
    return groups


def _components(run: Sequence[Operator]) -> list[list[Operator]]:
    """Connected parts of a stretch of the order of execution; each is convex, as the stretch is."""
    parent = {operator.name: operator.name for operator in run}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for operator in run:
        for producer in _producers(operator):
            if producer in parent:
                parent[root(producer)] = root(operator.name)
    parts: dict[str, list[Operator]] = {}
    for operator in run:
        parts.setdefault(root(operator.name), []).append(operator)
    return list(parts.values())


def _without_ends(component: Sequence[Operator]) -> list[Operator]:
    core = {operator.name: operator for operator in component}
    after_computation: set[str] = set()
    for operator in component:
        if operator.type in POINTWISE or any(producer in after_computation for producer in _producers(operator)):
            after_computation.add(operator.name)
    before_computation: set[str] = set()
    for operator in reversed(component):
        if operator.type in POINTWISE or operator.name in before_computation:
            before_computation.update((operator.name, *_producers(operator)))
    return [operator for name, operator in core.items() if name in after_computation and name in before_computation]


def _producers(operator: Operator) -> Iterable[str]:
    return (edge.rpartition(":")[0] for edge in operator.inputs if edge)


def order_groups(
    graph: Graph,
    groups: Sequence[Sequence[str]],
    barriers: Collection[str] = (),
    sizes: Optional[Mapping[str, Collection[str]]] = None,
) -> list[list[Operator]]:
    """Checks a grouping and puts it into an order in which it can run.

    Args:
        graph: as it was compiled.
        groups: names of operators; an operator in no group is a group of its own.
        barriers: operators that overwrite memory: what comes before them stays before, what comes after stays after.
        sizes: operator name -> operators whose symbolic sizes it uses; edges carry tensors only.

    Returns:
        Every operator but Data, Const and NetOutput once: groups with their members in the order of execution.

    Raises:
        ValueError: all that is wrong: unknown names, an operator in two groups, groups that need each other.
    """
    operators = computed(graph)
    place = {operator.name: index for index, operator in enumerate(operators)}
    group_of, problems = _assign(place, groups)
    if problems:
        raise ValueError("fusion_groups: " + " ".join(problems))
    members: dict[int, list[Operator]] = {}
    for operator in operators:
        group = group_of.setdefault(operator.name, len(groups) + place[operator.name])
        members.setdefault(group, []).append(operator)
    needs: dict[int, set[int]] = {group: set() for group in members}
    last_barrier = ""
    since_barrier: list[str] = []
    for operator in operators:
        group = group_of[operator.name]
        needed = [name for name in (*_producers(operator), *(sizes or {}).get(operator.name, ())) if name in group_of]
        if operator.name in barriers:
            needed += since_barrier
            last_barrier, since_barrier = operator.name, [operator.name]
        else:
            needed += [last_barrier] if last_barrier else []
            since_barrier.append(operator.name)
        needs[group].update(group_of[name] for name in needed if group_of[name] != group)
    order = _topological(needs, {group: place[found[0].name] for group, found in members.items()})
    if len(order) < len(members):
        stuck = [members[group] for group in members if group not in set(order) and len(members[group]) > 1]
        shown = "; ".join(", ".join(operator.name for operator in group) for group in stuck[:3])
        raise ValueError(
            "fusion_groups: these groups need results of operators outside of them that are computed from their own: "
            f"{shown}. Put the operators between into the group, or split it."
        )
    return [members[group] for group in order]


def _assign(place: dict[str, int], groups: Sequence[Sequence[str]]) -> tuple[dict[str, int], list[str]]:
    group_of: dict[str, int] = {}
    problems: list[str] = []
    for index, group in enumerate(groups):
        for name in group:
            if name not in place:
                near = get_close_matches(str(name), place, n=3)
                problems.append(f"{name!r} is no operator" + (f"; nearest: {', '.join(near)}." if near else "."))
            elif group_of.setdefault(name, index) != index:
                problems.append(f"{name!r} is in group {group_of[name]} and in group {index}.")
    return group_of, problems


def _topological(needs: dict[int, set[int]], rank: dict[int, int]) -> list[int]:
    waiting = {group: len(needed) for group, needed in needs.items()}
    users: dict[int, list[int]] = {group: [] for group in needs}
    for group, needed in needs.items():
        for used in needed:
            users[used].append(group)
    ready = [(rank[group], group) for group, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, group = heapq.heappop(ready)
        order.append(group)
        for user in users[group]:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, (rank[user], user))
    return order


def fuse(
    graph: Graph, order: Sequence[Sequence[Operator]], exported: Callable[[Sequence[Operator]], Sequence[str]]
) -> Graph:
    """The graph as it is executed: one operator a group, named by its members in their order.

    Args:
        graph: as it was compiled.
        order: of :func:`order_groups`.
        exported: for the members of a group, the edges "Mul_1:0" that are read outside of it.

    Returns:
        A graph with a new operator for every group of several members, the others as they were, in the order given.
        A fused operator has the inputs its members take from outside, each once, without numbers, which are part of
        the compiled code. Its outputs and attributes say where they come from, as in GE's fused graphs.
    """
    constants = {operator.name: operator for operator in graph if operator.type == "Const"}
    taken = {operator.name for operator in graph}
    renamed: dict[str, str] = {}
    executed: list[Operator] = []
    for group in order:
        operator = group[0]
        if len(group) > 1:
            edges = list(exported(group))
            operator = _fused_operator(group, edges, constants, taken)
            renamed.update((edge, f"{operator.name}:{index}") for index, edge in enumerate(edges))
        executed.append(operator)
    fused = Graph(name=graph.name, attributes=dict(graph.attributes))
    fused.operators += [operator for operator in graph if operator.type == "Data"]
    placed: set[str] = set()
    for operator in [*executed, *(operator for operator in graph if operator.type == "NetOutput")]:
        for producer in _producers(operator):
            if producer in constants and producer not in placed:
                placed.add(producer)
                fused.operators.append(constants[producer])
        fused.operators.append(replace(operator, inputs=[renamed.get(edge, edge) for edge in operator.inputs]))
    return fused


def _fused_operator(
    group: Sequence[Operator], exported: Sequence[str], constants: Collection[str], taken: set[str]
) -> Operator:
    inside = {member.name: member for member in group}
    names = list(inside)
    name = "".join(names)
    while name in taken:  # "Add" + "Add_1" can be one operator's own name
        name += "_fused"
    taken.add(name)
    fused = Operator(name=name, type=FUSED_TYPE, members=names, source=group[0].source)
    fused.fx_line = "; ".join(member.fx_line for member in group)
    for member in group:
        for edge, desc in zip(member.inputs, member.input_desc):
            producer = edge.rpartition(":")[0]
            if edge and producer not in inside and producer not in constants and edge not in fused.inputs:
                fused.inputs.append(edge)
                fused.input_desc.append(replace(desc, name=f"x{len(fused.inputs) - 1}"))
        if "torchair_enable_data_dump" in member.attributes:
            fused.attributes["torchair_enable_data_dump"] = member.attributes["torchair_enable_data_dump"]
    for index, edge in enumerate(exported):
        producer, _, number = edge.rpartition(":")
        desc = inside[producer].output_desc[int(number)]
        origin = {
            "_datadump_origin_name": producer,
            "_datadump_origin_output_index": int(number),
            "_datadump_origin_format": desc.layout,
            "_datadump_is_multiop": True,
        }
        fused.output_desc.append(replace(desc, name=f"y{index}", attributes={**desc.attributes, **origin}))
    fused.attributes["_datadump_original_op_names"] = names
    fused.key = FusedKey(tuple(fused.inputs), tuple(exported))
    return fused
