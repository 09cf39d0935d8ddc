# SPDX-License-Identifier: Apache-2.0
"""The native layout of a dump: one file a step and lines of records, in place of a file an operator.

    {path}/{time}/manifest.json
    {path}/{time}/rank0/records.jsonl, step-000000.safetensors ...     docs/formats/native.md, "Compiled graphs"
    {path}/{time}/rank0/graphs.json, dynamo_*.txt                      docs/formats/ge-tree.md

Operands go to the session of ``assay._capture`` that captures of modules and operators go to: it knows which storages
hold what was seen before. The interpreter's graph is not interpreted for it: its code is generated once more, with a
call of ours behind every operator that is wanted.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable, Optional

import torch
from torch import fx

import assay
from assay import _capture, _manifest
from assay.errors import Error
from assay.torch._device import DevicePath
from assay.torch.capture import _Folder
from assay.torch.graph._build import Number, has_tensors, input_values, is_result_item, reads_tensors
from assay.torch.graph._interpreter import OperatorObserver, Tensors, overwrites_inputs
from assay.torch.graph._log import logger
from assay.torch.graph._model import Graph, Operator

__all__ = ["LEVEL", "NativeObserver", "NativeRun", "NativeRunner"]

LEVEL = "graph"  # of the configuration in the manifest: what readers tell such a run by


class NativeRun:
    """The native run of one backend: what :class:`GraphDump` is to the layout of a file an operator.

    Args:
        path: folder of the run; made.
        properties: for the manifest.
        data: "tensor" or "stats".
        mode: which operands the request asked for, for conversions.
        statistics: names of ``dump_stats``, joined by commas, for conversions.
        verify: never trust that bytes of a storage are those of before: for code that writes without telling.
        queue_bytes, drop: of the sink.

    Raises:
        OSError, assay.FileError: the folder cannot be made.
    """

    def __init__(
        self,
        path: str,
        properties: dict[str, Any],
        *,
        data: str,
        mode: str,
        statistics: str,
        verify: bool,
        queue_bytes: int,
        drop: bool,
    ) -> None:
        self._folder = _Folder(Path(path), beside=False, overwrite=False)
        full = data == "tensor"
        self._config = {
            "level": LEVEL,
            "data": "full" if full else "stats",
            "mode": mode,
            "statistics": statistics,
            "verify": verify,
            **properties,
        }
        self._device = DevicePath(stats=True, data=full)
        self.session = _capture.Session(
            folder=str(self._folder.rank),
            data=str(self._config["data"]),
            verify=verify,
            device=self._device,
            queue_bytes=queue_bytes,
            drop=drop,
            threads=torch.get_num_threads(),
            operators=True,
            run_id=self._folder.run_id,
        )
        self.root = str(self._folder.rank)
        self._started = _capture.utc_now()
        self._write_manifest(None)

    def flush(self) -> None:
        self.session.flush()

    def close(self) -> None:
        """Ends the capture and completes the manifest."""
        self.session.close()
        self._write_manifest(_capture.utc_now())

    def mark(self, concluded: bool) -> None:
        """Says in the manifest that the capture came to its end, or not yet."""
        self._write_manifest(_capture.utc_now() if concluded else None)

    def stats(self) -> dict[str, Any]:
        """As those of GraphDump; `files` are those of steps and of records."""
        counters = self.session.stats()
        return {
            "files": len(list(self._folder.rank.glob("*.safetensors"))) + 1,
            "bytes": counters["bytes"],
            "dropped": counters["dropped"],
            "failed": int(bool(counters["stopped"])),
            "first_error": counters["stopped"],
            "waited_ms": counters["waited_ms"],
        }

    def take_missed(self) -> list[tuple[str, str, str, int]]:
        """What could not be read has a record that says so."""
        return []

    def _write_manifest(self, finished: Optional[str]) -> None:
        host = json.dumps(_manifest.describe_host())
        for path in self._folder.manifests:
            try:
                _capture.write_manifest(
                    self.session, str(path), self._folder.run_id, f"assay {assay.__version__}", host,
                    json.dumps(self._config), self._started, finished, (0, 0), [], self.session.stats()["stopped"],
                )  # fmt: skip
            except Error as error:
                logger.error("%s", error)


class _Operators:
    """The operators of one graph as its session knows them."""

    def __init__(self, folder: Any) -> None:
        self._folder = folder
        self._session = folder.run.writer.session
        self.graph_node = self._session.add_node(folder.graph.name, "graph", False, False)
        self.names: list[str] = []  # of those that have tensors to record

    def is_recorded(self, operator: Operator) -> bool:
        mask = self._folder.mask(operator)
        return mask is not None and (
            (mask.outputs and has_tensors(operator)) or (mask.inputs and reads_tensors(operator))
        )

    def reads_inputs(self, operator: Operator) -> bool:
        mask = self._folder.mask(operator)
        return mask is not None and mask.inputs and operator.type not in ("Data", "Const")

    def add(self, operator: Operator, constants: Sequence[tuple[int, torch.Tensor]] = ()) -> int:
        """Returns the operator's number. `constants`: numbers among its inputs; of a Const its value."""
        mask = self._folder.mask(operator)
        assert mask is not None
        left_out = {"input": set[int](), "output": set[int]()}
        for side, index in mask.left_out:
            left_out[side].add(index)
        node = self._session.add_node(f"{self._folder.graph.name}/{operator.name}", operator.type, False, True)
        self.names.append(operator.name)
        return int(
            self._session.add_graph_operator(
                node, self.reads_inputs(operator), mask.outputs,
                *(tuple(i in sides for i in range(max(sides, default=-1) + 1)) for sides in left_out.values()),
                tuple(constants),
            )
        )  # fmt: skip

    def begin(self, step: int) -> Any:
        return self._session.graph_run(self.graph_node, step)

    def end(self, run: Any, step: int, is_whole: bool) -> None:
        run.end()
        entry = self._folder.entry
        if is_whole:
            entry.dumped.update(self.names)
        entry.steps[step] = None
        self._folder.end_of_step()


class NativeRunner:
    """Engine ``interpreter`` with the native layout: dumped steps run the graph's code with calls of ours in it."""

    def __init__(self, module: fx.GraphModule, graph: Graph, folder: Any, plain: Callable[..., Any]) -> None:
        self.graph = graph
        self._module = module
        self._folder = folder
        self._plain = plain
        self._lock = threading.Lock()
        self._operators: Optional[_Operators] = None
        self._forward: Optional[Callable[..., Any]] = None

    def plain(self, args: list[Any]) -> Any:
        return self._plain(args)

    def dumped(self, args: list[Any], step: int) -> Any:
        with self._lock:
            if self._forward is None:  # not while the graph is compiled: every new tensor is a fake one then
                self._operators = _Operators(self._folder)
                self._forward = _instrumented(self._module, self.graph, self._operators)
        assert self._operators is not None
        run = self._operators.begin(step)
        values = tuple(args)
        args.clear()
        is_whole = False
        try:
            result = self._forward(run, *values)
            is_whole = True
            return result
        finally:
            self._operators.end(run, step, is_whole)


def _instrumented(module: fx.GraphModule, graph: Graph, operators: _Operators) -> Callable[..., Any]:
    """Generates the code of `module` with calls that show a run its operands; the run is the first argument."""
    by_key = {operator.key: operator for operator in graph if operator.key is not None}
    copied = fx.Graph()
    run = copied.placeholder("assay_run")
    new: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        if node.op == "output":
            copied.output(fx.node.map_arg(node.args[0], new.__getitem__))
            break
        operator = by_key.get(node)
        wanted = operator if operator is not None and operators.is_recorded(operator) else None
        if not node.op.startswith("call_"):
            new[node] = copied.node_copy(node, new.__getitem__)
            if wanted is not None:
                copied.call_function(_capture.graph_input, (run, operators.add(wanted), new[node]))
            continue
        written = _written_by(node)
        inputs: list[Optional[fx.Node]] = []
        constants: list[tuple[int, torch.Tensor]] = []
        for index, value in enumerate([] if is_result_item(node) else input_values(node)):
            if isinstance(value, Number):
                tensor = torch.tensor(value.value, dtype=value.dtype)
                constants.append((index, tensor))
                constant = by_key[node, index]
                if operators.is_recorded(constant):
                    copied.call_function(_capture.graph_input, (run, operators.add(constant, [(0, tensor)]), None))
            inputs.append(new[value] if isinstance(value, fx.Node) else None)
        number = -1
        if wanted is not None:
            reads = operators.reads_inputs(wanted)
            number = operators.add(wanted, constants if reads else ())
            if reads and written:
                copied.call_function(_capture.graph_before, (run, number, *inputs))
            if not reads or written:
                inputs = []
        new[node] = copied.node_copy(node, new.__getitem__)
        if written:
            copied.call_function(_capture.graph_wrote, (run, *(new[value] for value in written)))
        if wanted is not None:
            copied.call_function(_capture.graph_after, (run, number, new[node], *inputs))
    return fx.GraphModule(module, copied).forward


def _written_by(node: fx.Node) -> list[fx.Node]:
    """The values that a node may overwrite: those its schema marks; where there is none, and it may, all of them."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        may = isinstance(node.target, torch._ops.HigherOrderOperator) or overwrites_inputs(node)
        return [value for value in node.all_input_nodes if value.op != "get_attr"] if may else []
    written: list[fx.Node] = []
    for index, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
            fx.node.map_arg(value, written.append)
    return written


class NativeObserver(OperatorObserver):
    """Hands the operands of an engine's operators to the session: groups of fused operators, and taps."""

    def __init__(self, folder: Any) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._operators: Optional[_Operators] = None
        self._numbers: dict[str, int] = {}
        self._local = threading.local()

    def wants(self, operator: Operator) -> bool:
        return self._folder.mask(operator) is not None

    def copies_inputs(self, operator: Operator) -> bool:
        mask = self._folder.mask(operator)
        return mask is not None and mask.inputs

    def begin_step(self, step: int) -> None:
        with self._lock:
            if self._operators is None:
                self._operators = _Operators(self._folder)
        self._local.step, self._local.failed = step, False
        self._local.run = self._operators.begin(step)

    def after(self, operator: Operator, inputs: Tensors, outputs: Tensors) -> None:
        assert self._operators is not None
        mask = self._folder.mask(operator)
        if mask is None or not any(tensor is not None for tensor in (*inputs, *outputs)):
            return
        with self._lock:
            number = self._numbers.get(operator.name)
            if number is None:
                number = self._numbers[operator.name] = self._operators.add(operator)
        reads = self._operators.reads_inputs(operator)
        _capture.graph_after(self._local.run, number, tuple(outputs), *(inputs if reads else ()))

    def failed(self, operator: Operator, inputs: Tensors, error: BaseException) -> None:
        self._local.failed = True

    def end_of_step(self) -> None:
        assert self._operators is not None
        self._operators.end(self._local.run, self._local.step, is_whole=not self._local.failed)
