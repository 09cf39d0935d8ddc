# SPDX-License-Identifier: Apache-2.0
"""The unfused run: one node of the compiled graph after the other, each shown to observers.

A :class:`Program` is the graph made ready once; a run keeps all its values in local variables, so several threads may
run one program at the same time. Values are released at their last use, as in the generated code, and every node is
called exactly as the generated code calls it: outputs have the same bits as those of the backend ``aot_eager``.
"""

from __future__ import annotations

import operator as operator_module
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional, Protocol, Union

import torch
from torch import fx

from assay.torch.graph._build import InputValue, Number, input_values, is_result_item
from assay.torch.graph._model import Graph, Operator

__all__ = ["InterpreterRunner", "OperatorObserver", "Program", "Runner", "overwrites_inputs", "tensors_of"]

Tensors = list[Optional[torch.Tensor]]

_IN_PLACE_OPERATORS = frozenset(
    getattr(operator_module, name)
    for name in (
        *("iadd", "isub", "imul", "imatmul", "itruediv", "ifloordiv", "imod", "ipow"),
        *("iand", "ior", "ixor", "ilshift", "irshift", "setitem"),
    )
)


class OperatorObserver:
    """Sees every operator of a dumped step. The methods here do nothing: override what is needed.

    What an observer raises reaches the host program: an observer catches its own errors.
    """

    def wants(self, operator: Operator) -> bool:
        """Whether the other methods are called for `operator`. Asked once, before the first step that is dumped."""
        return True

    def begin_step(self, step: int) -> None:
        """Before the first operator of a step that is dumped."""

    def before(self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before an operator runs, with the real arguments. Not called for ``Data``."""

    def after(self, operator: Operator, inputs: Tensors, outputs: Tensors) -> None:
        """After an operator ran.

        Args:
            operator: of the graph's model; ``operator.key`` is the fx node.
            inputs: its tensor inputs in the order of ``operator.inputs``; None where one is absent. An operator that
                overwrites an input is shown the values from before, when :meth:`copies_inputs` asks for it.
            outputs: its results; None for a result that is no tensor. Valid until this call returns: a later
                operator may overwrite the memory.
        """

    def failed(self, operator: Operator, inputs: Tensors, error: BaseException) -> None:
        """An operator raised `error`, which goes on to the host after this call."""

    def copies_inputs(self, operator: Operator) -> bool:
        """Whether :meth:`after` needs the values of inputs that `operator` overwrites."""
        return False

    def end_of_step(self) -> None:
        """After the last operator, also when the step ended with an error."""


class Runner(Protocol):
    """One engine's way to run a compiled graph. Calls are boxed: the list of inputs is emptied."""

    graph: Graph  # as it is executed: fused operators under their fused names

    def plain(self, args: list[Any]) -> Any:
        """A step that is not dumped: the un-instrumented code."""

    def dumped(self, args: list[Any], step: int) -> Any:
        """A step that is dumped."""


def tensors_of(arguments: Any) -> Tensors:
    """The tensors among nested arguments, depth first; other values are left out."""
    found: Tensors = []
    _collect(arguments, found)
    return found


def _collect(value: Any, found: Tensors) -> None:
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _collect(item, found)
    elif isinstance(value, dict):
        for item in value.values():
            _collect(item, found)


@dataclass(frozen=True)
class _Slot:
    index: int


class _Constant:
    """A number that an operator has in the place of a tensor."""

    def __init__(self, operator: Operator, number: Number) -> None:
        self.operator = operator
        self._number = number
        self._tensor: Optional[torch.Tensor] = None

    @property
    def tensor(self) -> torch.Tensor:
        # Made when it is first asked for: while a graph is compiled every new tensor is a fake one.
        if self._tensor is None:
            self._tensor = torch.tensor(self._number.value, dtype=self._number.dtype)
        return self._tensor


class _Template:
    """Arguments of a node, with a _Slot where the value of a node belongs."""

    def __init__(self, arguments: Any) -> None:
        self._arguments = arguments
        self._constant = not _has_slot(arguments)
        # The common case without a function call for each argument: nothing is nested.
        self._flat: Optional[list[tuple[int, Any]]] = None
        if isinstance(arguments, tuple) and all(isinstance(item, _Slot) or not _has_slot(item) for item in arguments):
            self._flat = [(item.index, None) if isinstance(item, _Slot) else (-1, item) for item in arguments]

    def filled(self, values: list[Any]) -> Any:
        if self._constant:
            return self._arguments
        if self._flat is not None:
            return tuple([item if index < 0 else values[index] for index, item in self._flat])
        return fx.node.map_aggregate(self._arguments, lambda item: _resolve_one(item, values))


def _has_slot(arguments: Any) -> bool:
    found = False

    def look(item: Any) -> Any:
        nonlocal found
        found = found or isinstance(item, _Slot)
        return item

    fx.node.map_aggregate(arguments, look)
    return found


@dataclass
class _Instruction:
    index: int  # of the node: where its value goes
    op: str
    name: str  # of the node, for messages
    target: Any
    args: _Template
    kwargs: _Template
    released: tuple[int, ...]  # values not used after this instruction
    operator: Optional[Operator]
    mutates: bool
    input_slots: tuple[Any, ...]  # one an input of the operator: a _Slot, a _Constant, None absent
    constants: tuple[_Constant, ...]  # its numbers


Audience = list[tuple[OperatorObserver, ...]]  # who is shown an instruction, one entry each


class Program:
    """An fx graph made ready to be run node by node.

    Args:
        module: the graph module; its parameters and constants are looked up when a program runs.
        graph: the model built from it, whose operators carry their node in ``key``.
    """

    def __init__(self, module: fx.GraphModule, graph: Graph) -> None:
        self._module = module
        self._modules = dict(module.named_modules())
        operators = {op.key: op for op in graph if op.key is not None}
        nodes = list(module.graph.nodes)
        slots: dict[fx.Node, Any] = {node: _Slot(index) for index, node in enumerate(nodes)}
        last_use: dict[fx.Node, int] = {}
        for index, node in enumerate(nodes):
            for used in node.all_input_nodes:
                last_use[used] = index
        released: dict[int, list[int]] = {}
        for node, index in last_use.items():
            released.setdefault(index, []).append(slots[node].index)
        self._size = len(nodes)
        self._instructions: list[_Instruction] = []
        for index, node in enumerate(nodes):
            operator = operators.get(node)
            numbers = {
                index: _Constant(operators[node, index], value)
                for index, value in enumerate(_inputs_of(node))
                if isinstance(value, Number)
            }
            self._instructions.append(
                _Instruction(
                    index=index,
                    op=node.op,
                    name=node.name,
                    target=node.target,
                    args=_Template(fx.node.map_arg(node.args, slots.__getitem__)),
                    kwargs=_Template(fx.node.map_arg(node.kwargs, slots.__getitem__)),
                    released=tuple(released.get(index, ())) + (() if node in last_use else (index,)),
                    operator=operator,
                    mutates=overwrites_inputs(node),
                    input_slots=tuple(_input_slots(node, slots, numbers)),
                    constants=tuple(numbers.values()),
                )
            )

    def audience(self, observers: Sequence[OperatorObserver]) -> Audience:
        """Asks every observer which operators it wants."""
        return [
            tuple(observer for observer in observers if step.operator is not None and _wants(observer, step))
            for step in self._instructions
        ]

    def run(self, args: list[Any], audience: Optional[Audience] = None) -> Any:
        """Runs the graph on `args`, which is emptied, and returns what its output node returns."""
        values: list[Any] = [None] * self._size
        inputs = args[::-1]  # taken from the end, so that nothing here keeps an input alive
        args.clear()
        nobody: tuple[OperatorObserver, ...] = ()
        for step in self._instructions:
            observers = nobody if audience is None else audience[step.index]
            if step.op == "placeholder":
                values[step.index] = value = inputs.pop()
                if step.operator is not None and isinstance(value, torch.Tensor):
                    for observer in observers:
                        observer.after(step.operator, [value], [value])
                del value
            elif step.op == "output":
                return step.args.filled(values)[0]
            elif step.op == "get_attr":
                values[step.index] = _attribute(self._module, step.target)
                if step.operator is not None and isinstance(values[step.index], torch.Tensor):
                    for observer in observers:
                        observer.after(step.operator, [], [values[step.index]])
            else:
                values[step.index] = self._call(step, values, observers)
            for index in step.released:
                values[index] = None
        raise AssertionError("a graph without output node")

    def _call(self, step: _Instruction, values: list[Any], observers: Sequence[OperatorObserver]) -> Any:
        args = step.args.filled(values)
        kwargs = step.kwargs.filled(values)
        operator = step.operator
        if operator is None or not observers:
            return self._invoke(step, args, kwargs)
        for constant in step.constants:
            for observer in observers:
                observer.after(constant.operator, [], [constant.tensor])
        for observer in observers:
            observer.before(operator, args, kwargs)
        inputs: Tensors = [
            value if isinstance(value := _resolve_one(slot, values), torch.Tensor) else None
            for slot in step.input_slots
        ]
        if step.mutates and any(observer.copies_inputs(operator) for observer in observers):
            inputs = [None if tensor is None else tensor.detach().clone() for tensor in inputs]
        try:
            result = self._invoke(step, args, kwargs)
        except BaseException as error:
            for observer in observers:
                observer.failed(operator, inputs, error)
            raise
        outputs = [
            value if isinstance(value, torch.Tensor) else None
            for value in (result if isinstance(result, (list, tuple)) else (result,))
        ]
        for observer in observers:
            observer.after(operator, inputs, outputs)
        return result

    def _invoke(self, step: _Instruction, args: Any, kwargs: Any) -> Any:
        if step.op == "call_function":
            return step.target(*args, **kwargs)
        if step.op == "call_method":
            return getattr(args[0], step.target)(*args[1:], **kwargs)
        if step.op == "call_module":
            return self._modules[step.target](*args, **kwargs)
        raise AssertionError(f"node {step.name}: unknown kind {step.op}")


class InterpreterRunner:
    """Engine ``interpreter``: excluded steps run the generated code, dumped steps run node by node."""

    def __init__(
        self, module: fx.GraphModule, graph: Graph, observers: Sequence[OperatorObserver], plain: Callable[..., Any]
    ) -> None:
        self.graph = graph
        self._program = Program(module, graph)
        self._observers = tuple(observers)
        self._audience: Optional[Audience] = None
        self._plain = plain

    def plain(self, args: list[Any]) -> Any:
        return self._plain(args)

    def dumped(self, args: list[Any], step: int) -> Any:
        for observer in self._observers:
            observer.begin_step(step)
        try:
            if self._audience is None:
                self._audience = self._program.audience(self._observers)
            return self._program.run(args, self._audience)
        finally:
            for observer in self._observers:
                observer.end_of_step()


def _wants(observer: OperatorObserver, step: _Instruction) -> bool:
    # A number is shown with its consumer.
    operators = [step.operator, *(constant.operator for constant in step.constants)]
    return any(observer.wants(operator) for operator in operators if operator is not None)


def _resolve_one(item: Any, values: list[Any]) -> Any:
    if isinstance(item, _Slot):
        return values[item.index]
    return item.tensor if isinstance(item, _Constant) else item


def _attribute(module: fx.GraphModule, path: Any) -> Any:
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    return value


def overwrites_inputs(node: fx.Node) -> bool:
    """Whether a node may overwrite one of its inputs."""
    if node.op == "call_function":
        schema = getattr(node.target, "_schema", None)
        if schema is not None:
            return bool(schema.is_mutable)
        name = getattr(node.target, "__name__", "")
        in_place = name.endswith("_") and not name.endswith("__")
        return in_place or node.target in _IN_PLACE_OPERATORS or "out" in node.kwargs
    if node.op == "call_method":
        return str(node.target).endswith("_") or str(node.target) == "__setitem__"
    return node.op == "call_module"


def _inputs_of(node: fx.Node) -> list[InputValue]:
    return input_values(node) if node.op.startswith("call_") and not is_result_item(node) else []


def _input_slots(
    node: fx.Node, slots: dict[fx.Node, Any], numbers: dict[int, _Constant]
) -> Iterator[Union[_Slot, _Constant, None]]:
    for index, value in enumerate(_inputs_of(node)):
        yield slots[value] if isinstance(value, fx.Node) else numbers.get(index)
