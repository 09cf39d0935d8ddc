# SPDX-License-Identifier: Apache-2.0
"""Fused runs: the graph goes through Inductor, and what can still be seen is dumped.

    taps       the whole graph in one piece, the wanted values as additional outputs; operators keep their names
    partition  groups of operators, each compiled by itself; the values between groups are dumped, one file a group

The groups are cut here and not by torch.fx.passes.split_module, which orders its parts by the tensors they hand over
alone: an operator that overwrites memory would move. Design and limits: docs/graph/fused.md.
"""

from __future__ import annotations

import contextlib
import operator as operator_module
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional, Union

import torch
from torch import fx

from assay.torch.graph._build import Number, has_tensors, input_values, is_result_item, no_modes
from assay.torch.graph._files import GraphFolder
from assay.torch.graph._fusion_groups import POINTWISE, FusedKey, computed, default_groups, fuse, order_groups
from assay.torch.graph._interpreter import InterpreterRunner, OperatorObserver, Runner
from assay.torch.graph._log import tell
from assay.torch.graph._model import Graph, Operator
from assay.torch.graph._request import OperandMask, Plan
from assay.torch.graph._scenes import observers_of
from assay.torch.graph.config import CompilerConfig

__all__ = ["PartitionRunner", "TapsRunner", "compile_module", "make_runner"]

Compiled = Callable[[list[Any]], list[Any]]


def make_runner(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    graph: Graph,
    plan: Plan,
    folder: GraphFolder,
    config: CompilerConfig,
) -> Runner:
    """Makes the runner of engine ``taps`` or ``partition``.

    Args:
        gm: Aten graph, functional but for copies into its inputs at its end.
        example_inputs: fake tensors and symbolic sizes.
        graph, plan: of `gm`.
        folder: where dumped steps go.
        config: ``execution.engine`` and ``execution.fusion_groups``.

    Returns:
        A runner whose ``graph`` is the executed one. Where a graph cannot be run fused (Dynamo's own graph, a scene
        that needs every operator) it is the interpreter, and the graph's warnings say so.

    Raises:
        ValueError: ``fusion_groups`` returned groups that cannot be.
    """
    engine = str(config.execution.engine.raw)
    scene = folder.request.scene
    why = ""
    if int(config.execution.decomposition_level.raw) == 0:
        why = "decomposition level 0 keeps Dynamo's graph, which is not functional"
    elif engine == "taps" and scene:
        why = f"scene {scene} looks at every operator"
    if why:
        warning = f"{graph.name} runs on the interpreter: {why}."
        folder.entry.warnings.append(warning)
        tell(warning)
        return InterpreterRunner(gm, graph, observers_of(graph, plan, folder), gm.forward)
    plain: Optional[Compiled] = None
    if folder.request.steps.ranges:
        # Compiled now and not with the first such step: the guards of the graph are made after this call.
        plain = compile_module(gm, folder)
    if engine == "taps":
        return TapsRunner(gm, graph, plan, folder, plain)
    return PartitionRunner(gm, graph, folder, config.execution.fusion_groups.raw, plain)


# ---- Inductor --------------------------------------------------------------------------------------------------------


def compile_module(module: fx.GraphModule, folder: GraphFolder) -> Compiled:
    """Compiles a graph by Inductor; a boxed callable that returns a list.

    A graph that Inductor refuses runs as it is; the graph's warnings say so.
    """
    module = _copy_of(module)
    output = module.graph.output_node()
    results = list(output.args[0]) if isinstance(output.args[0], (list, tuple)) else [output.args[0]]
    kept = [index for index, result in enumerate(results) if isinstance(result, fx.Node)]
    # Inductor's entry takes a flat list of values; a backward graph returns None for what has no gradient.
    output.args = (tuple(results[index] for index in kept),)
    for node in module.graph.nodes:
        if "val" in node.meta:
            node.meta["example_value"] = node.meta["val"]
    module.recompile()
    inputs = [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]
    run = _inductor(module, inputs, folder) if kept else None
    constants = [None if isinstance(result, fx.Node) else result for result in results]

    def call(args: list[Any]) -> list[Any]:
        values = list(args)
        args.clear()
        made = run(*values) if run is not None else module(*values)
        if len(kept) == len(constants):
            return list(made)
        complete = list(constants)
        for index, value in zip(kept, made):
            complete[index] = value
        return complete

    return call


def _inductor(module: fx.GraphModule, inputs: list[Any], folder: GraphFolder) -> Callable[..., Any]:
    import torch._inductor

    # Inside a compiled function nothing is differentiated again.
    with torch.no_grad():
        examples = [value.detach() if isinstance(value, torch.Tensor) else value for value in inputs]
        try:
            with _scalars_left_alone():
                made: Callable[..., Any] = torch._inductor.standalone_compile(
                    module, examples, dynamic_shapes="from_graph"
                )
            return made
        except Exception as error:  # whatever a compiler raises: the host's run goes on without fusion
            if _restarts_dynamo(error):
                raise
            line = (str(error).splitlines() or [type(error).__name__])[0]
            warning = f"Inductor cannot compile a part of {folder.graph.name}, which runs unfused: {line}"
            folder.entry.warnings.append(warning)
            tell(warning)
            return module


@contextlib.contextmanager
def _scalars_left_alone() -> Iterator[None]:
    """Without torch's pass that turns symbolic floats into tensors: the whole graph has been through it.

    In a part of a graph the pass takes the symbols of the other parts for floats that it has to fix, and demands that
    Dynamo trace everything again - unless a cache already holds the part, so that graphs would differ from run to run.
    """
    name = "TENSORIFY_PYTHON_SCALARS"
    before = os.environ.get(name)
    os.environ[name] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _restarts_dynamo(error: Exception) -> bool:
    """Whether it is no failure: Inductor learnt something, and Dynamo is to trace the function again knowing it."""
    try:
        from torch._dynamo.exc import RestartAnalysis
    except ImportError:
        return False
    return isinstance(error, RestartAnalysis)


def _copy_of(module: fx.GraphModule) -> fx.GraphModule:
    graph = fx.Graph()
    values: dict[fx.Node, fx.Node] = {}
    result = graph.graph_copy(module.graph, values)
    output = module.graph.output_node()
    graph.output(result).meta = dict(output.meta)
    return fx.GraphModule(module, graph)


# ---- taps ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Argument:
    """A graph input, as it was before the run (`after`: as it is then)."""

    index: int
    after: bool = False


@dataclass(frozen=True)
class _Tap:
    """An output of the compiled graph."""

    index: int


_Source = Union[_Argument, _Tap, torch.Tensor, None]


class TapsRunner:
    """The whole graph by Inductor, with every planned operand as an additional output.

    Each tap is a tensor that must be stored although fusion would not: take few.
    """

    def __init__(
        self, module: fx.GraphModule, graph: Graph, plan: Plan, folder: GraphFolder, plain: Optional[Compiled]
    ) -> None:
        self.graph = graph
        self._folder = folder
        self._observers = observers_of(graph, plan, folder)
        self._operands: list[tuple[Operator, list[_Source], list[_Source]]] = []
        self._placeholders = {
            node: index
            for index, node in enumerate(node for node in module.graph.nodes if node.op == "placeholder")
        }  # fmt: skip
        self._mutates = any(_overwrites(node) for node in module.graph.nodes)
        tapped = _copy_of(module)
        twins = dict(zip(module.graph.nodes, tapped.graph.nodes))
        output = tapped.graph.output_node()
        self._results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
        self._returned = len(self._results)
        self._positions = {node: index for index, node in enumerate(self._results) if isinstance(node, fx.Node)}
        with tapped.graph.inserting_before(output):
            for operator in graph:
                mask = plan.operands.get(operator.name)
                if mask is not None and has_tensors(operator):
                    inputs, outputs = self._sources_of(operator, mask, twins, tapped.graph)
                    self._operands.append((operator, inputs, outputs))
        output.args = (tuple(self._results),)
        tapped.recompile()
        self._tapped = compile_module(tapped, folder)
        self._plain = plain
        sources = [source for _, inputs, outputs in self._operands for source in (*inputs, *outputs)]
        self._kept_arguments = {source.index for source in sources if isinstance(source, _Argument)}

    def plain(self, args: list[Any]) -> Any:
        if self._plain is not None:
            return self._plain(args)
        return self._tapped(args)[: self._returned]

    def dumped(self, args: list[Any], step: int) -> Any:
        after = {index: args[index] for index in self._kept_arguments}
        before = {index: _copied(value) for index, value in after.items()} if self._mutates else after
        results = self._tapped(args)

        def value_of(source: _Source) -> Optional[torch.Tensor]:
            if isinstance(source, _Argument):
                value = (after if source.after else before)[source.index]
            else:
                value = results[source.index] if isinstance(source, _Tap) else source
            return value if isinstance(value, torch.Tensor) else None

        for observer in self._observers:
            observer.begin_step(step)
            for operator, inputs, outputs in self._operands:
                observer.after(operator, list(map(value_of, inputs)), list(map(value_of, outputs)))
            observer.end_of_step()
        if not self._observers:
            self._folder.end_of_step()
        return results[: self._returned]

    def _sources_of(
        self, operator: Operator, mask: OperandMask, twins: dict[fx.Node, fx.Node], graph: fx.Graph
    ) -> tuple[list[_Source], list[_Source]]:
        key = operator.key
        if isinstance(key, tuple):  # a number
            number = input_values(key[0])[key[1]]
            assert isinstance(number, Number)
            return [], [_number_tensor(number)]
        if key.op == "placeholder":
            source = _Argument(self._placeholders[key])
            return [source], [source]
        inputs: list[_Source] = []
        if mask.inputs and key.op != "get_attr":
            inputs = [self._source_of(value, twins) for value in input_values(key)]
        return inputs, self._outputs_of(key, twins, graph) if mask.outputs else []

    def _outputs_of(self, node: fx.Node, twins: dict[fx.Node, fx.Node], graph: fx.Graph) -> list[_Source]:
        value = node.meta.get("val")
        if not isinstance(value, (list, tuple)):
            return [self._source_of(node, twins)]
        outputs: list[_Source] = []
        for index, item in enumerate(value):
            if not isinstance(item, torch.Tensor):
                outputs.append(None)
                continue
            taken = graph.call_function(operator_module.getitem, (twins[node], index))
            taken.meta["val"] = item
            outputs.append(self._tap(taken))
        return outputs

    def _source_of(self, value: Any, twins: dict[fx.Node, fx.Node]) -> _Source:
        if isinstance(value, Number):
            return _number_tensor(value)
        if value is None:
            return None
        if value in self._placeholders:
            return _Argument(self._placeholders[value])
        if _overwrites(value) and value.args[0] in self._placeholders:
            return _Argument(self._placeholders[value.args[0]], after=True)
        return self._tap(twins[value])

    def _tap(self, node: fx.Node) -> _Source:
        if node not in self._positions:
            self._positions[node] = len(self._results)
            self._results.append(node)
        return _Tap(self._positions[node])


# ---- partition -------------------------------------------------------------------------------------------------------


@dataclass
class _Unit:
    """One group as it runs: `run` takes the values of `reads` and returns those of `writes`."""

    operator: Operator
    run: Compiled
    reads: list[fx.Node]
    writes: list[fx.Node]
    inputs: list[Any]  # what an observer is shown: a node's value, a number's tensor, None
    outputs: list[Optional[fx.Node]]
    constants: list[tuple[Operator, torch.Tensor]]
    overwrites: bool
    released: list[fx.Node]


class PartitionRunner:
    """Groups of operators, each compiled by Inductor; the graph of the groups is interpreted.

    Groups of the same code over the same shapes are compiled once. An operator that is a group of its own is called as
    it is when compiling it would change nothing: a product, attention, a view, one that works element by element.
    """

    def __init__(
        self,
        module: fx.GraphModule,
        graph: Graph,
        folder: GraphFolder,
        fusion_groups: Optional[Callable[[list[Operator]], list[list[str]]]],
        plain: Optional[Compiled],
    ) -> None:
        self._module = module
        self._folder = folder
        self._plain = plain
        barriers = {op.name for op in graph if isinstance(op.key, fx.Node) and _overwrites(op.key)}
        symbolic = {op.name for op in graph if not has_tensors(op)}
        operators = [operator for operator in computed(graph) if operator.name not in symbolic]
        if fusion_groups is None:
            groups = default_groups(operators, barriers)
        else:
            groups = [list(group) for group in fusion_groups(operators)]
        order = order_groups(graph, groups, barriers, _sizes_used(graph))
        node_groups = [_nodes_of(group) for group in order]
        edges = _edges(graph)
        nodes_of = {group[0].name: nodes for group, nodes in zip(order, node_groups)}
        self.graph = fuse(graph, order, lambda group: [edges[node] for node in _written(nodes_of[group[0].name])])
        self._node_of = {edge: node for node, edge in edges.items()}
        self._placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        self._constants = [node for node in module.graph.nodes if node.op == "get_attr"]
        self._output = module.graph.output_node()
        self._operator_of = {op.key: op for op in graph if op.key is not None}
        self._symbols = _symbols(self._placeholders)
        self._compiled: dict[str, Compiled] = {}
        executed = {(op.members or [op.name])[0]: op for op in self.graph}
        self._units = [self._unit(executed[group[0].name], nodes) for group, nodes in zip(order, node_groups)]
        self._release_at_last_use()
        plan = folder.request.plan(self.graph)
        self._observers = observers_of(self.graph, plan, folder)

    def plain(self, args: list[Any]) -> Any:
        return self._plain(args) if self._plain is not None else self._run(args, [])

    def dumped(self, args: list[Any], step: int) -> Any:
        for observer in self._observers:
            observer.begin_step(step)
        try:
            return self._run(args, self._observers)
        finally:
            for observer in self._observers:
                observer.end_of_step()

    # ---- running -----------------------------------------------------------------------------------------------------

    def _run(self, args: list[Any], observers: Sequence[OperatorObserver]) -> Any:
        values: dict[fx.Node, Any] = dict(zip(self._placeholders, args))
        args.clear()
        for node in self._placeholders:
            value = values[node]
            if isinstance(value, torch.Tensor):
                for observer in observers:
                    observer.after(self._operator_of[node], [value], [value])
        for node in self._constants:
            values[node] = constant = _attribute(self._module, str(node.target))
            if isinstance(constant, torch.Tensor):
                for observer in observers:
                    observer.after(self._operator_of[node], [], [constant])
        for unit in self._units:
            self._run_unit(unit, values, observers)
            for node in unit.released:
                del values[node]
        return fx.node.map_arg(self._output.args[0], values.__getitem__)

    def _run_unit(self, unit: _Unit, values: dict[fx.Node, Any], observers: Sequence[OperatorObserver]) -> None:
        arguments = [values[node] for node in unit.reads]
        if not observers:
            values.update(zip(unit.writes, unit.run(arguments)))
            return
        operator = unit.operator
        for constant, tensor in unit.constants:
            for observer in observers:
                observer.after(constant, [], [tensor])
        inputs = [_shown(value, values) for value in unit.inputs]
        for observer in observers:
            observer.before(operator, tuple(arguments), {})
        if unit.overwrites and any(observer.copies_inputs(operator) for observer in observers):
            inputs = [_copied(tensor) for tensor in inputs]
        try:
            results = unit.run(arguments)
        except BaseException as error:
            for observer in observers:
                observer.failed(operator, inputs, error)
            raise
        values.update(zip(unit.writes, results))
        outputs = [_shown(node, values) for node in unit.outputs]
        for observer in observers:
            observer.after(operator, inputs, outputs)

    # ---- cutting -----------------------------------------------------------------------------------------------------

    def _unit(self, operator: Operator, nodes: list[fx.Node]) -> _Unit:
        writes = _written(nodes)
        if isinstance(operator.key, FusedKey):
            reads, module = self._submodule(nodes, writes)
            inputs: list[Any] = [self._node_of[edge] for edge in operator.key.inputs]
            outputs: list[Optional[fx.Node]] = list(writes)
            return _Unit(operator, self._compile(module), reads, writes, inputs, outputs, [], False, [])
        first = nodes[0]
        inputs = []
        constants: list[tuple[Operator, torch.Tensor]] = []
        for index, value in enumerate(input_values(first)):
            inputs.append(_number_tensor(value) if isinstance(value, Number) else value)
            if isinstance(value, Number):
                constants.append((self._operator_of[first, index], inputs[-1]))
        if _is_tensor(first) and not writes:
            writes = [first]  # a copy into an input: nothing reads its result
        outputs = _outputs_of(first, nodes)
        if operator.type in _CALLED_AS_THEY_ARE or _overwrites(first) or not has_tensors(operator):
            reads, module = self._submodule(nodes, writes, with_symbols=False)
            run: Compiled = _unboxed(module)
        else:
            reads, module = self._submodule(nodes, writes)
            run = self._compile(module)
        return _Unit(operator, run, reads, writes, inputs, outputs, constants, _overwrites(first), [])

    def _submodule(
        self, nodes: list[fx.Node], writes: list[fx.Node], with_symbols: bool = True
    ) -> tuple[list[fx.Node], fx.GraphModule]:
        """The nodes of one group as a module of their own. Names say nothing of the whole graph: equal groups agree."""
        inside = set(nodes)
        used = list(dict.fromkeys(used for node in nodes for used in node.all_input_nodes if used not in inside))
        bodies = [node for node in used if self._is_body(node)]  # of a higher-order operator: code, not a value
        reads = [node for node in used if node not in bodies]
        if with_symbols:
            # Inductor finds a size only among the inputs; a tensor of size 2*s does not tell s.
            for symbol in _free_symbols([*reads, *nodes]):
                node = self._symbols.get(symbol)
                if node is not None and node not in reads:
                    reads.append(node)
        graph = fx.Graph()
        twins: dict[fx.Node, fx.Node] = {}
        twins.update((node, graph.get_attr(str(node.target))) for node in bodies)
        for index, node in enumerate(reads):
            twins[node] = graph.placeholder(f"in_{index}")
            twins[node].meta = {key: node.meta[key] for key in ("val", "example_value") if key in node.meta}
        for index, node in enumerate(nodes):
            twins[node] = graph.create_node(
                node.op,
                node.target,
                fx.node.map_arg(node.args, twins.__getitem__),
                fx.node.map_arg(node.kwargs, twins.__getitem__),
                name=f"n_{index}",
            )
            twins[node].meta = {key: node.meta[key] for key in ("val", "example_value") if key in node.meta}
        graph.output(tuple(twins[node] for node in writes))
        return reads, fx.GraphModule(self._module, graph)

    def _is_body(self, node: fx.Node) -> bool:
        return node.op == "get_attr" and isinstance(_attribute(self._module, str(node.target)), torch.nn.Module)

    def _compile(self, module: fx.GraphModule) -> Compiled:
        kinds = [_signature(node.meta.get("val")) for node in module.graph.nodes]
        key = f"{module.code}\n{kinds}"
        if key not in self._compiled:
            self._compiled[key] = compile_module(module, self._folder)
        return self._compiled[key]

    def _release_at_last_use(self) -> None:
        last: dict[fx.Node, int] = {}
        for index, unit in enumerate(self._units):
            shown = [value for value in (*unit.inputs, *unit.outputs) if isinstance(value, fx.Node)]
            for node in (*unit.reads, *unit.writes, *shown):
                last[node] = index
        returned = set(self._output.all_input_nodes)
        for node, index in last.items():
            if node not in returned:
                self._units[index].released.append(node)


# Libraries compute them, or nothing is computed; element by element there is one way to do it. Compiled alone they
# give what they give without, after seconds of compilation each.
_CALLED_AS_THEY_ARE = POINTWISE | frozenset(
    (
        *("Addbmm", "Addmm", "AsStrided", "Baddbmm", "BatchMatMulV2", "BroadcastTo", "Conv2D", "FlashAttentionScore"),
        *("FlashAttentionScoreGrad", "Identity", "MatMulV2", "Range", "Reshape", "Squeeze", "StridedSlice"),
        *("Transpose", "Unsqueeze"),
    )
)


def _nodes_of(group: Sequence[Operator]) -> list[fx.Node]:
    """The nodes of a group in their order, each followed by the nodes that take its single results."""
    nodes: list[fx.Node] = []
    for operator in group:
        nodes.append(operator.key)
        nodes += [user for user in operator.key.users if is_result_item(user)]
    return nodes


def _written(nodes: Sequence[fx.Node]) -> list[fx.Node]:
    """The nodes that are read outside of their group."""
    inside = set(nodes)
    return [node for node in nodes if any(user not in inside for user in node.users)]


def _outputs_of(node: fx.Node, nodes: Sequence[fx.Node]) -> list[Optional[fx.Node]]:
    value = node.meta.get("val")
    if not isinstance(value, (list, tuple)):
        return [node]
    taken = {int(item.args[1]): item for item in nodes[1:]}  # type: ignore[arg-type]
    return [taken.get(index) for index in range(len(value))]


def _edges(graph: Graph) -> dict[fx.Node, str]:
    edges: dict[fx.Node, str] = {}
    for operator in graph:
        if isinstance(operator.key, fx.Node) and operator.type != "NetOutput":
            edges[operator.key] = f"{operator.name}:0"
            for user in operator.key.users:
                if is_result_item(user):
                    edges[user] = f"{operator.name}:{user.args[1]}"
    return edges


def _sizes_used(graph: Graph) -> dict[str, list[str]]:
    """Operator name -> the operators that compute the symbolic sizes it uses."""
    owner = {op.key: op.name for op in graph if isinstance(op.key, fx.Node) and op.type != "NetOutput"}
    used: dict[str, list[str]] = {}
    for operator in graph:
        if isinstance(operator.key, fx.Node) and operator.type != "NetOutput":
            sources = operator.key.all_input_nodes
            used[operator.name] = [owner[node] for node in sources if node in owner and not _is_tensor(node)]
    return used


# ---- nodes and values ------------------------------------------------------------------------------------------------


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _overwrites(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and bool(schema.is_mutable)


def _attribute(module: fx.GraphModule, path: str) -> Any:
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    return value


def _number_tensor(number: Number) -> torch.Tensor:
    with no_modes():  # while a graph is compiled every new tensor is a fake one
        return torch.tensor(number.value, dtype=number.dtype)


def _shown(value: Any, values: dict[fx.Node, Any]) -> Optional[torch.Tensor]:
    if isinstance(value, fx.Node):
        value = values.get(value)
    return value if isinstance(value, torch.Tensor) else None


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _unboxed(module: fx.GraphModule) -> Compiled:
    def call(args: list[Any]) -> list[Any]:
        return list(module(*args))

    return call


def _symbols(placeholders: Sequence[fx.Node]) -> dict[Any, fx.Node]:
    """Symbol -> the graph input that carries it."""
    found: dict[Any, fx.Node] = {}
    for node in placeholders:
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            found.setdefault(value.node.expr, node)
    return found


def _free_symbols(nodes: Sequence[fx.Node]) -> list[Any]:
    from torch.fx.experimental.symbolic_shapes import free_symbols

    found: dict[Any, None] = {}
    for node in nodes:
        value = node.meta.get("val")
        if value is not None:
            found.update((symbol, None) for symbol in sorted(free_symbols(value), key=str))
    return list(found)


def _signature(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), str(tuple(value.shape)), str(value.stride()), str(value.device))
    return [_signature(item) for item in value] if isinstance(value, (list, tuple)) else str(value)
