# SPDX-License-Identifier: Apache-2.0
"""The ``torch.compile`` backend: from Dynamo's graph to a callable whose dumped steps leave their files.

    Dynamo graph --scopes--> AOTAutograd --Aten graph--> model, plan, texts --> a runner (_interpreter or _fused)

Every graph of a program passes through :meth:`Backend._instrument`, and a run of it through one of two doors: a step
that is not wanted takes the un-instrumented callable after one increment and one comparison, a wanted one the runner.
Design: docs/graph/backend.md.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional

import torch
from torch import fx

from assay.errors import Error
from assay.torch.graph import _graph_text, _options_dict
from assay.torch.graph._build import build_graph, has_tensors, no_modes
from assay.torch.graph._dump_options_file import DumpOptionsFile
from assay.torch.graph._files import (
    GraphEntry,
    GraphFolder,
    RunFolder,
    next_graph_number,
    return_graph_number,
    step,
)
from assay.torch.graph._interpreter import InterpreterRunner, OperatorObserver, Runner
from assay.torch.graph._log import logger, tell
from assay.torch.graph._model import Graph, Operator
from assay.torch.graph._request import DumpRequest, Plan, resolve
from assay.torch.graph.config import CompilerConfig, rank_and_world, without_effect

__all__ = ["Backend", "backend", "get_backend", "step"]

Compiled = Callable[..., Any]


def get_backend(
    config: Optional[CompilerConfig] = None, *, custom_decompositions: Optional[Mapping[Any, Any]] = None
) -> Backend:
    """Makes a backend. Its run folder, counters and ``graphs.json`` are its own.

    Raises:
        ConfigurationError: all errors of the configuration at once.
        TypeError: ``config`` is no CompilerConfig.
    """
    if config is None:
        config = CompilerConfig()
    if not isinstance(config, CompilerConfig):
        raise TypeError(f"config must be a CompilerConfig, not {config!r} (type {type(config).__name__}).")
    return Backend(config, custom_decompositions or {})


_by_config: list[tuple[CompilerConfig, Backend]] = []
_by_config_lock = threading.Lock()


def backend(
    gm: fx.GraphModule, example_inputs: Sequence[Any], *, options: Optional[Mapping[str, Any]] = None, **kwargs: Any
) -> Compiled:
    """``torch.compile(model, backend="assay", options={...})``.

    Args:
        gm, example_inputs: from Dynamo.
        options: ``{"config": CompilerConfig | dict | path}``, also under the name ``"numdump"``; or options by name:
            ``{"enable_dump": True, "dump_path": "d"}``, ``{"execution.engine": "partition"}``. Without options the
            file named by the environment variable ASSAY_GRAPH_CONFIG counts.
        kwargs: ``mode`` of torch.compile; anything else is an error.

    Raises:
        ValueError: an unknown option, with the known ones.
        ConfigurationError: a value that is not allowed.
    """
    config = _options_dict.config_of(options, **kwargs)
    with _by_config_lock:
        made = next((known for known_config, known in _by_config if known_config == config and known.alive), None)
        if made is None:
            made = get_backend(config)
            _by_config.append((config, made))
    return made(gm, example_inputs)


@dataclass
class _Compilation:
    """What is known of one graph of Dynamo; its Aten graphs have it in common."""

    reason: str = ""
    place: str = ""
    guards: str = ""
    compile_id: str = ""
    frame: str = ""
    forward: Optional[int] = None


class Backend:
    """A backend for ``torch.compile``. One instance may compile any number of models, from any thread.

    Raises:
        ConfigurationError: see :func:`get_backend`.
    """

    def __init__(self, config: CompilerConfig, custom_decompositions: Mapping[Any, Any]) -> None:
        self.config = config
        self.request = resolve(config)
        self._custom_decompositions = dict(custom_decompositions)
        execution = config.execution
        self._level = int(execution.decomposition_level.raw)
        self.engine = _engine_of(config)
        self._fx_dump = bool(config.debug.data_dump.enabled)
        self._captured = bool(config.mode.raw != "max-autotune" and config.dump_config.enable_dump)
        self._engine_graphs = _graph_text.EngineGraphDump.from_environment(with_data=self.request is not None)
        self._first_graph: dict[str, int] = {}  # of every code object that Dynamo compiled, for recompilations
        self.run = self._make_run()
        self._eager: Any = None
        self._options_file: Optional[DumpOptionsFile] = None
        ignored = without_effect(config)
        if ignored:
            logger.warning("these options have no effect here: %s", ", ".join(ignored))
        for warning in self.request.warnings if self.request else ():
            tell(warning)
        if self.request is not None and self.request.operators and self.run is not None:
            from assay.torch.graph import _eager_operators

            self._eager = _eager_operators.install(self.run, self.request)

    def _make_run(self) -> Optional[RunFolder]:
        config = self.config
        execution = config.execution
        properties = {"engine": self.engine, "decomposition_level": self._level}
        queue: dict[str, Any] = {"queue_bytes": execution.queue_bytes.raw, "drop": execution.on_full.raw == "drop"}
        if self._fx_dump:
            folder = os.path.abspath(config.debug.data_dump.folder)
            return RunFolder(folder, {**properties, "engine": "interpreter"}, with_time=False, **queue)
        if self._captured:
            folder = os.path.abspath(str(config.dump_config.dump_path.value))
            return RunFolder(folder, {**properties, "engine": "interpreter"}, with_time=False, **queue)
        if self.request is None:
            return None
        native: Optional[dict[str, Any]] = None
        if execution.layout.raw == "native":
            if self.request.scene or self.request.operators:
                tell('execution.layout is "ge" for scenes and dump_op_switch: their reports are files of that layout.')
            else:
                # Kernels of Inductor and functions without a schema write without telling.
                verify = self.engine != "interpreter" or self._level == 0
                native = {
                    "data": self.request.data,
                    "mode": self.request.mode,
                    "statistics": ",".join(self.request.statistics),
                    "verify": verify,
                }
        return RunFolder(
            self.request.path or os.getcwd(), properties, models=self.request.entries, native=native, **queue
        )

    @property
    def alive(self) -> bool:
        """False when :meth:`close` was called."""
        return self.run is None or self.run.alive

    @property
    def _wants_texts(self) -> bool:
        return bool(self.config.debug.graph_dump.enabled) or self._engine_graphs is not None

    @property
    def _summarises(self) -> bool:
        return bool(self.config.debug.fx_summary.enabled) and self.config.mode.raw == "max-autotune"

    def flush(self) -> None:
        """Returns when everything captured so far is on disk."""
        if self.run is not None:
            self.run.flush()

    def close(self) -> None:
        """Ends the capture: files complete, ``graphs.json`` says so. Compiled models go on un-instrumented."""
        if self._eager is not None:
            self._eager.remove()
            self._eager = None
        if self.run is not None:
            self.run.close()

    # ---- compilation -------------------------------------------------------------------------------------------------

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Compiled:
        from assay.torch.graph.scope import apply_scopes

        apply_scopes(gm)
        if self.run is None and not self._wants_texts and not self._summarises:
            return self._uninstrumented(gm, example_inputs)
        compilation = _describe_compilation(gm)
        if self._level == 0:
            unboxed = self._instrument(gm, example_inputs, "dynamo", compilation)
            return lambda *args: unboxed(list(args))
        from torch._dynamo.backends.common import aot_autograd
        from torch._functorch.partitioners import default_partition

        def compiler(kind: str) -> Compiled:
            return lambda module, inputs: self._instrument(module, inputs, kind, compilation)

        compiled: Compiled = aot_autograd(
            fw_compiler=compiler("forward"),
            bw_compiler=compiler("backward"),
            inference_compiler=compiler("inference"),
            decompositions=self._decompositions(),
            partition_fn=default_partition,
            keep_inference_input_mutations=bool(self.config.experimental_config.keep_inference_input_mutations),
        )(gm, example_inputs)
        return compiled

    def _uninstrumented(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Compiled:
        from torch._dynamo.backends.registry import lookup_backend

        name = "aot_eager" if self.engine == "interpreter" else "inductor"
        made: Compiled = lookup_backend(name)(gm, example_inputs)  # type: ignore[arg-type]
        return made

    def _decompositions(self) -> dict[Any, Any]:
        table: dict[Any, Any] = {}
        if self._level == 2:
            from torch._inductor.decomposition import select_decomp_table

            table.update(select_decomp_table())
        table.update(self._custom_decompositions)
        if self.request is not None and self.request.quant_dumpable:
            table = {target: rule for target, rule in table.items() if "quantize" not in str(target)}
        return table

    def _instrument(
        self, gm: fx.GraphModule, example_inputs: Sequence[Any], kind: str, compilation: _Compilation
    ) -> Compiled:
        """Makes the callable of one graph. It is boxed: called with the list of inputs, which it empties."""
        number = next_graph_number()
        try:
            return self._instrument_as(number, gm, example_inputs, kind, compilation)
        except BaseException:  # also Inductor's wish that Dynamo trace the function again
            return_graph_number(number)
            if self._first_graph.get(compilation.frame) == number:
                del self._first_graph[compilation.frame]
            raise

    def _instrument_as(
        self, number: int, gm: fx.GraphModule, example_inputs: Sequence[Any], kind: str, compilation: _Compilation
    ) -> Compiled:
        self._custom_pass("post_grad_custom_pre_pass", gm)
        self._custom_pass("post_grad_custom_post_pass", gm)
        graph = build_graph(gm, f"graph_{number}")
        if logger.isEnabledFor(10):
            logger.debug("graph_%d (%s) as AOTAutograd gives it:\n%s", number, kind, gm.print_readable(False))
        entry = self._entry(number, kind, compilation)
        plain = _boxed(gm.forward)
        if self._summarises:
            self._write_summary(gm, number)
            if self.config.debug.fx_summary.skip_compile:
                return plain
        if self.run is None:
            self._write_texts(graph, graph, number, entry)
            return plain
        try:
            self.run.open(_device_of(example_inputs))
        except (OSError, Error) as error:
            logger.error("graph_%d is not captured: %s", number, error)
            return plain
        request = self.request or DumpRequest(path="", entries=())
        plan = request.plan(graph)
        folder = GraphFolder(
            self.run, graph, plan, request, entry,
            counter=str(self.config.execution.token_counter.raw),
            synchronous=bool(self.config.execution.synchronous),
        )  # fmt: skip
        for operator in graph:
            if operator.attributes.get("subgraph_name"):
                entry.miss(operator.name, "what happens inside a higher-order operator is not seen")
        runner = self._runner(gm, example_inputs, graph, plan, folder, plain)
        if request.operators:
            from assay.torch.graph._eager_operators import hidden

            runner = hidden(runner)
        if runner.graph is not graph:
            plan = request.plan(runner.graph)
        folder.use(runner.graph, plan)
        if self._fx_dump or self._captured:
            entry.planned = sum(self._leaves_files(operator) for operator in graph)
        entry.warnings += plan.warnings
        for warning in plan.warnings:
            tell(warning)
        with no_modes():
            self._write_texts(graph, runner.graph, number, entry)
            self.run.add(entry)
            self._write_options(runner.graph)
        return _door(folder, runner, request)

    def _leaves_files(self, operator: Operator) -> bool:
        """Of the FX dump and the captured-graph dump, which know nothing of plans."""
        node = operator.key
        if not isinstance(node, fx.Node) or node.op == "output":
            return False
        if self._captured:
            return has_tensors(operator)
        keep = self.config.debug.data_dump.filter.raw
        return node.op.startswith("call_") and (keep is None or keep(node) is not None)

    def _custom_pass(self, name: str, gm: fx.GraphModule) -> None:
        """The user's pass over an Aten graph. There are no passes of ours for it to come before or after."""
        function = getattr(self.config, name).raw
        if function is not None:
            function(gm.graph)
            gm.graph.lint()
            gm.recompile()

    def _runner(
        self,
        gm: fx.GraphModule,
        example_inputs: Sequence[Any],
        graph: Graph,
        plan: Plan,
        folder: GraphFolder,
        plain: Compiled,
    ) -> Runner:
        if self.engine != "interpreter" and not self._fx_dump and not self._captured:
            from assay.torch.graph import _fused

            made: Runner = _fused.make_runner(gm, example_inputs, graph, plan, folder, self.config)
            return made
        if folder.run.is_native:
            from assay.torch.graph._native import NativeRunner

            return NativeRunner(gm, graph, folder, plain)
        return InterpreterRunner(gm, graph, self._observers(graph, plan, folder), plain)

    def _observers(self, graph: Graph, plan: Plan, folder: GraphFolder) -> list[OperatorObserver]:
        if self._fx_dump:
            from assay.torch.graph._fx_dump import FxDumper

            return [FxDumper(folder, self.config.debug.data_dump.filter.raw)]
        if self._captured:
            from assay.torch.graph._captured_graph import TensorSaver

            return [TensorSaver(folder)]
        from assay.torch.graph._scenes import observers_of

        return observers_of(graph, plan, folder)

    # ---- what is known of a graph ------------------------------------------------------------------------------------

    def _entry(self, number: int, kind: str, compilation: _Compilation) -> GraphEntry:
        parent: Optional[int] = None
        if kind == "backward":
            parent = compilation.forward
        else:
            if kind == "forward":
                compilation.forward = number
            first = self._first_graph.setdefault(compilation.frame, number) if compilation.frame else number
            parent = None if first == number else first
        return GraphEntry(
            graph=number,
            name=f"graph_{number}",
            kind=kind,
            parent=parent,
            guards=compilation.guards,
            compile_id=compilation.compile_id,
            break_reason=compilation.reason,
            break_place=compilation.place,
        )

    def _write_options(self, graph: Graph) -> None:
        """The dump JSON of this process, when options and no file ask for the dump."""
        if self.run is None or self.request is None or self.request.source or not self.request.entries:
            return
        try:
            if self._options_file is None:
                self._options_file = DumpOptionsFile(
                    self.run.root,
                    self.request,
                    dump_path=os.path.dirname(self.run.root),
                    rank=self.run.rank,
                    world_size=self.run.world_size,
                )
            self._options_file.add_graph(graph)
        except OSError as error:
            logger.error("the options of %s cannot be written: %s", graph.name, error)

    def _write_summary(self, gm: fx.GraphModule, number: int) -> None:
        from assay.torch.graph._fx_summary import write_summary

        path = self.config.debug.fx_summary.full_path("summary")
        try:
            write_summary(gm, path)
        except OSError as error:
            logger.error("the summary of graph_%d cannot be written: %s", number, error)
            return
        if self.config.debug.fx_summary.skip_compile:
            tell(f"graph_{number} is summarised in {path} and runs eagerly: fx_summary.skip_compile is on")

    def _write_texts(self, original: Graph, executed: Graph, number: int, entry: GraphEntry) -> None:
        """The texts the user asked for, and with a dump always a ``txt`` beside it: comparisons need it."""
        group = self.config.debug.graph_dump
        wanted: list[tuple[str, str]] = []
        if group.enabled:
            wanted.append((os.path.abspath(group.folder), str(group.type.raw)))
        if self.request is not None and self.run is not None and ("txt" not in [suffix for _, suffix in wanted]):
            wanted.append((self.run.root, "txt"))
        try:
            for folder, suffix in wanted:
                for kind, graph in (("original", original), ("optimized", executed)):
                    name = _graph_text.graph_file_name(kind, number, rank_and_world()[0], os.getpid(), None, suffix)
                    path = os.path.join(folder, name)
                    with open(path, "w", encoding="utf-8") as file:
                        file.write(getattr(_graph_text, f"write_{suffix}")(graph))
                    entry.texts.append(path if self.run is None else os.path.relpath(path, self.run.root))
            if self._engine_graphs is not None:
                self._engine_graphs.write(original, "PreRunBegin")
                self._engine_graphs.write(executed, "Build")
        except OSError as error:
            logger.error("the text of graph_%d cannot be written: %s", number, error)


def _door(folder: GraphFolder, runner: Runner, request: DumpRequest) -> Compiled:
    wanted = request.steps.contains
    run = folder.run
    last = request.steps.ranges[-1][1] if request.steps.ranges else None

    def call(args: list[Any]) -> Any:
        step = folder.next_step()
        if wanted(step) and run.alive:
            run.conclude(False)
            return runner.dumped(args, step)
        if last is not None and step > last:
            run.conclude(True)
        return runner.plain(args)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def _boxed(forward: Compiled) -> Compiled:
    from functorch.compile import make_boxed_func

    made: Compiled = make_boxed_func(forward)
    return made


def _engine_of(config: CompilerConfig) -> str:
    engine = str(config.execution.engine.raw)
    switch = config.fusion_config.fusion_switch_file.value
    if switch is not None and engine != "interpreter":
        from assay.torch.graph._fusion_switch import FusionSwitch

        if FusionSwitch.load(switch).turns_fusion_off:
            return "interpreter"
    return engine


def _device_of(example_inputs: Sequence[Any]) -> str:
    for value in example_inputs:
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            return str(value.device)
    return "cpu"


def _describe_compilation(gm: fx.GraphModule) -> _Compilation:
    """Why Dynamo ended this graph, where, and under which guards; fields stay empty where torch does not tell."""
    made = _Compilation()
    reason = getattr(gm, "compile_subgraph_reason", None)
    if reason is not None and getattr(reason, "graph_break", False):
        made.reason = " ".join(str(reason.reason).split())
        stack = getattr(reason, "user_stack", None)
        if stack:
            made.place = f"{stack[-1].filename}:{stack[-1].lineno}"
    try:
        from torch._guards import CompileContext, TracingContext

        compile_id = CompileContext.current_compile_id()
        if compile_id is not None:
            made.compile_id = str(compile_id)
            made.frame = str(getattr(compile_id, "frame_id", "") or made.compile_id.partition("/")[0])
        context = TracingContext.try_get()
        if context is not None:
            texts = sorted(f"{guard.name}:{guard.create_fn_name()}" for guard in context.guards_context.dynamo_guards)
            made.guards = "sha256:" + hashlib.sha256("\n".join(texts).encode()).hexdigest()
    except (ImportError, AttributeError):  # another torch version's private names
        pass
    return made
