# SPDX-License-Identifier: Apache-2.0
"""The plan of one graph: which operands of which operators a request means.

Selection rules: docs/graph/dump-json.md. This module does not import torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Optional

from assay.torch.graph._model import Graph, Operator

if TYPE_CHECKING:
    from assay.torch.graph._request import DumpRequest

__all__ = ["ModelEntry", "OperandMask", "Plan", "make_plan", "models_not_met", "scoped_operators"]


@dataclass(frozen=True)
class ModelEntry:
    """One item of ``dump_list``: a model (None: every model) and what of it.

    ``layers`` and ``ranges`` both empty: the whole model.
    """

    model_name: Optional[str] = None
    layers: tuple[str, ...] = ()
    ranges: tuple[tuple[str, str], ...] = ()  # (begin, end), both dumped
    type_blacklist: Mapping[str, frozenset[tuple[str, int]]] = field(default_factory=dict)
    name_blacklist: Mapping[str, frozenset[tuple[str, int]]] = field(default_factory=dict)
    watcher_nodes: tuple[str, ...] = ()

    def concerns(self, graph_name: str) -> bool:
        return self.model_name is None or self.model_name == graph_name


@dataclass(frozen=True)
class OperandMask:
    """Which operands of one operator are stored; ``left_out`` are ("input", 0) of black lists."""

    inputs: bool
    outputs: bool
    left_out: frozenset[tuple[str, int]] = frozenset()


@dataclass
class Plan:
    """The answer of a request for one graph.

    Attributes:
        operands: operator name -> what to store, in the order of execution. Data operators that feed a selected
            operator are among them. Empty in the overflow scene and in an exception scene asked for by a file, where
            what happens at run time decides, and in the watcher scene, where the watcher writes its own files.
        watched: operators whose outputs are watched; layers: operators after which they are looked at again.
        warnings: sentences for the user: names that match nothing with the nearest names, ranges that went wrong.
    """

    operands: dict[str, OperandMask] = field(default_factory=dict)
    watched: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    warnings: list[str] = field(default_factory=list)


# Operators that never leave a file: nothing is computed, or nothing comes out.
_WITHOUT_FILE = frozenset({"NetOutput", "NoOp", "Send", "Recv", "StreamActive", "StreamSwitch", "ControlTrigger"})
_CONSTANT = frozenset({"Const", "Constant", "ConstPlaceHolder", "FileConstant"})
_SCOPE_ATTRIBUTE = "torchair_enable_data_dump"


def make_plan(request: DumpRequest, graph: Graph) -> Plan:
    """Says which operands of which operators of ``graph`` are dumped. Never fails: what is wrong is a warning."""
    return _Planner(request, graph).plan()


def scoped_operators(graph: Graph) -> list[str]:
    """Names of the operators that were made inside ``scope.data_dump()``, in their order."""
    return [
        operator.name
        for operator in graph
        if str(operator.attributes.get(_SCOPE_ATTRIBUTE)) == "True" and operator.type not in _WITHOUT_FILE
    ]


def _collective(operator: Operator) -> tuple[bool, bool]:
    """Whether an operator starts a functional collective, and whether it waits for one.

    Until that has happened what the first returns and the second is given may be written; src/capture/torch,
    ``starts_collective``.
    """
    name = str(getattr(operator.key, "target", ""))
    is_functional = name.startswith(("_c10d_functional.", "c10d_functional."))
    waits = is_functional and ".wait_tensor." in name
    return is_functional and not waits, waits


def models_not_met(entries: Iterable[ModelEntry], graph_names: Iterable[str]) -> dict[str, str]:
    """Returns a sentence for every model name of a request that none of a run's graphs has, with the nearest."""
    graphs = list(dict.fromkeys(graph_names))
    sentences: dict[str, str] = {}
    for name in dict.fromkeys(entry.model_name for entry in entries):
        if name is None or name in graphs:
            continue
        near = get_close_matches(name, graphs, n=1, cutoff=0.5)
        known = f"did you mean {near[0]!r}?" if near else "the graphs are " + ", ".join(graphs[:3]) if graphs else ""
        sentences[name] = f"model_name {name!r} is no graph of this run" + (f"; {known}" if known else "")
    return sentences


class _Planner:
    def __init__(self, request: DumpRequest, graph: Graph) -> None:
        self._request = request
        self._graph = graph
        self._by_name = graph.by_name()
        self._entries = [entry for entry in request.entries if entry.concerns(graph.name)]
        self._warnings: list[str] = []
        # Post-fusion names and, behind them, the names before fusion.
        self._owners: dict[str, list[str]] = {}
        for operator in graph:
            for name in dict.fromkeys([operator.name, *_names_before_fusion(operator)]):
                self._owners.setdefault(name, []).append(operator.name)

    def plan(self) -> Plan:
        if self._request.scene == "watcher":
            return self._watcher_plan()
        if self._request.scene == "overflow" or not self._entries:
            return Plan()
        selected = self._selected()
        self._add_feeding_data(selected)
        blacklist = _Blacklist(self._entries)
        masks: dict[str, OperandMask] = {}
        for operator in self._graph:
            if operator.name in selected:
                masks[operator.name] = self._mask(operator, blacklist)
        self._warn_unused_blacklists(blacklist)
        return Plan(operands=masks, warnings=self._warnings)

    def _mask(self, operator: Operator, blacklist: _Blacklist) -> OperandMask:
        # A Data operator has no input of its own: what it hands on is its output.
        mode = "output" if operator.type == "Data" else self._request.mode
        starts, waits = _collective(operator)
        inputs, outputs = mode in ("input", "all") and not waits, mode in ("output", "all") and not starts
        return OperandMask(inputs, outputs, blacklist.left_out(operator))

    def _selected(self) -> set[str]:
        scoped = set(scoped_operators(self._graph))
        selected: set[str] = set()
        for entry in self._entries:
            if entry.ranges:
                for begin, end in entry.ranges:
                    selected |= self._in_range(begin, end)
            elif not entry.layers and not (scoped and self._request.scope_narrows):
                selected |= {op.name for op in self._graph if self._dumped_with_the_model(op)}
            selected |= self._matching(entry.layers, "dump_layer" if not self._request.source else "layer")
        return selected | scoped

    def _dumped_with_the_model(self, operator: Operator) -> bool:
        if operator.type in _CONSTANT:
            return self._request.constants
        return operator.type not in _WITHOUT_FILE and operator.type != "Data"

    def _matching(self, names: Iterable[str], option: str) -> set[str]:
        found: set[str] = set()
        missing: list[str] = []
        for name in names:
            owners = self._owners.get(name)
            if owners is None and ("*" in name or "?" in name):
                fits = _wildcard(name)
                owners = [owner for known, all_ in self._owners.items() if fits.fullmatch(known) for owner in all_]
            if not owners:
                missing.append(name)
                continue
            silent = [owner for owner in owners if self._by_name[owner].type in _WITHOUT_FILE]
            found.update(set(owners) - set(silent))
            if silent and len(silent) == len(owners):
                self._warnings.append(f"{option} {name!r}: {self._by_name[silent[0]].type} operators leave no file.")
        for name in missing[:20]:
            self._warnings.append(f"{option} {name!r} matches no operator of {self._graph.name}{self._nearest(name)}.")
        if len(missing) > 20:
            self._warnings.append(f"{option}: {len(missing) - 20} more names match no operator of {self._graph.name}.")
        return found

    def _nearest(self, name: str) -> str:
        """ "; nearest: ..." or "", for the end of a sentence about a name that is no operator's."""
        if name in self._owners:
            return f" (a name from before fusion; its operator is {', '.join(self._owners[name])})"
        near = get_close_matches(name, self._owners, n=3, cutoff=0.5)
        if not near:
            lowered = name.lower()
            near = [known for known in self._owners if lowered in known.lower()][:3]
        return "; nearest: " + ", ".join(near) if near else ""

    def _in_range(self, begin: str, end: str) -> set[str]:
        found: set[str] = set()
        state = "Init"
        for operator in self._graph:
            named = operator.name in (begin, end)
            if not named and (operator.type in _WITHOUT_FILE | _CONSTANT or operator.type == "Data"):
                continue
            was = state
            state = _next_state(state, operator.name == begin, operator.name == end)
            if state == "Error" and was != "Error":
                reason = "its end comes before its begin" if was == "Init" else "its begin follows directly on its end"
                self._warnings.append(
                    f"opname_range {begin!r} to {end!r} of {self._graph.name}: {reason} (at {operator.name!r}); "
                    "it selects nothing from there on."
                )
            if state in ("Active", "Stopped") and operator.type not in _WITHOUT_FILE:
                found.add(operator.name)
        for name in dict.fromkeys((begin, end)):
            if name not in self._by_name:
                what = "it selects nothing" if name == begin else "it reaches to the end of the model"
                self._warnings.append(
                    f"opname_range {begin!r} to {end!r}: {name!r} is no operator of {self._graph.name}"
                    f"{self._nearest(name)}; {what}."
                )
        return found

    def _add_feeding_data(self, selected: set[str]) -> None:
        for name in list(selected):
            for edge in self._by_name[name].inputs:
                producer = self._by_name.get(self._graph.producer(edge))
                if producer is not None and producer.type == "Data" and not edge.endswith(":-1"):
                    selected.add(producer.name)

    def _warn_unused_blacklists(self, blacklist: _Blacklist) -> None:
        for name in blacklist.names:
            if name not in self._by_name:
                self._warnings.append(
                    f"opname_blacklist {name!r} matches no operator of {self._graph.name}{self._nearest(name)}."
                )

    def _watcher_plan(self) -> Plan:
        watched: list[str] = []
        layers: list[str] = []
        every_layer = False
        for entry in self._entries:
            for name in entry.watcher_nodes:
                if name in self._by_name:
                    watched.append(name)
                else:
                    self._warnings.append(
                        f"watcher_nodes {name!r} matches no operator of {self._graph.name}{self._nearest(name)}."
                    )
            matching = self._matching(entry.layers, "layer")
            layers += [op.name for op in self._graph if op.name in matching]
            every_layer = every_layer or not entry.layers
        if every_layer:
            layers = [op.name for op in self._graph if self._dumped_with_the_model(op)]
        unwatched = [
            name
            for name in dict.fromkeys(layers)
            if name not in watched and not self._by_name[name].type.startswith("Hcom")
        ]
        return Plan(watched=tuple(dict.fromkeys(watched)), layers=tuple(unwatched), warnings=self._warnings)


class _Blacklist:
    """The black lists of all entries that concern one graph, united."""

    def __init__(self, entries: Iterable[ModelEntry]) -> None:
        self.types: dict[str, set[tuple[str, int]]] = {}
        self.names: dict[str, set[tuple[str, int]]] = {}
        for entry in entries:
            for name, operands in entry.type_blacklist.items():
                self.types.setdefault(name, set()).update(operands)
            for name, operands in entry.name_blacklist.items():
                self.names.setdefault(name, set()).update(operands)

    def left_out(self, operator: Operator) -> frozenset[tuple[str, int]]:
        return frozenset(self.types.get(operator.type, set()) | self.names.get(operator.name, set()))


def _names_before_fusion(operator: Operator) -> Iterator[str]:
    yield from operator.members
    recorded = operator.attributes.get("_datadump_original_op_names")
    if isinstance(recorded, (list, tuple)):
        yield from (name.decode() if isinstance(name, bytes) else str(name) for name in recorded)


def _wildcard(pattern: str) -> re.Pattern[str]:
    # Adjacent stars are one: "**" would make the match cubic, and mean the same.
    parts = re.split(r"(\*+|\?)", pattern)
    return re.compile("".join("." if p == "?" else ".*" if p.startswith("*") else re.escape(p) for p in parts))


def _next_state(state: str, is_begin: bool, is_end: bool) -> str:
    """The state machine of one range, one executed operator on."""
    if state == "Error":
        return "Error"
    if is_begin and is_end:
        return "Stopped" if state == "Init" else "Error" if state == "Stopped" else state
    if state == "Init":
        return "Active" if is_begin else "Error" if is_end else "Init"
    if state == "Active":
        return "Stopped" if is_end else "Active"
    return "Error" if is_begin else "Stopped" if is_end else "Init"
