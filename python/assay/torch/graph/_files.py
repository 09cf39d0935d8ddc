# SPDX-License-Identifier: Apache-2.0
"""Where the files of a capture go, and what of it happened: run folder, graph folders, steps, ``graphs.json``.

    {path}/worldsize{W}_global_rank{R}/{time}/graphs.json
    {path}/worldsize{W}_global_rank{R}/{time}/{device}/graph_1/1/0/Add.Add_1.12.0.1735786845123456
                                                        name/id/step

Bytes are written by ``assay._capture.GraphDump``, which has copied them when a call returns. Layout and fields:
docs/formats/ge-tree.md.
"""

from __future__ import annotations

import atexit
import heapq
import itertools
import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

import torch

import assay
from assay import _capture
from assay._interrupts import interrupts_held
from assay.torch._device import DevicePath
from assay.torch.graph._build import has_tensors, no_modes, reads_tensors
from assay.torch.graph._log import logger, tell
from assay.torch.graph._model import Graph, Operator
from assay.torch.graph._plan import ModelEntry, models_not_met
from assay.torch.graph._request import DumpRequest, OperandMask, Plan
from assay.torch.graph.config import rank_and_world, rank_folder

__all__ = [
    "GraphEntry",
    "GraphFolder",
    "RunFolder",
    "next_graph_number",
    "refusal",
    "return_graph_number",
    "step",
    "steps_taken",
]

_REWRITE_SECONDS = 1.0  # graphs.json is at most this much behind the files, also when the process is killed
_AT_ONCE = 64  # graphs; rewriting everything for each of many is quadratic
_MAX_MISSED = 1000  # entries of one graph; the rest is counted

_graph_numbers = itertools.count(1)
_returned_numbers: list[int] = []
_numbers_lock = threading.Lock()
_run_numbers = itertools.count(0)


def next_graph_number() -> int:
    """N of the next ``graph_N``: from 1, process-wide; safe for threads."""
    with _numbers_lock:
        return heapq.heappop(_returned_numbers) if _returned_numbers else next(_graph_numbers)


def return_graph_number(number: int) -> None:
    """Gives a number back whose graph did not come to be: Dynamo traces the function again."""
    with _numbers_lock:
        heapq.heappush(_returned_numbers, number)


# ---- steps -----------------------------------------------------------------------------------------------------------


class _Tokens:
    count = 0
    used = False


def step() -> int:
    """Advances the global token counter and returns the number of the token that begins.

    Call it between two tokens of a generation: prefill and decode are different graphs, and only this counter is
    common to them. The first token is 0 and needs no call.
    """
    _Tokens.used = True
    _Tokens.count += 1
    return _Tokens.count


def steps_taken() -> Optional[int]:
    """The number of the current token, or None while :func:`step` was never called."""
    return _Tokens.count if _Tokens.used else None


def _reset_steps() -> None:
    """For tests: as in a new process."""
    _Tokens.count, _Tokens.used = 0, False


# ---- graphs.json -----------------------------------------------------------------------------------------------------


@dataclass
class GraphEntry:
    """What ``graphs.json`` says about one graph. Lists of steps stay small: consecutive ones are kept as ranges."""

    graph: int
    name: str
    kind: str  # inference | forward | backward | dynamo
    parent: Optional[int] = None  # backward: the forward graph; a recompilation: the first graph of the same code
    guards: str = ""
    compile_id: str = ""
    texts: list[str] = field(default_factory=list)
    operators: int = 0
    planned: int = 0
    break_reason: str = ""
    break_place: str = ""
    warnings: list[str] = field(default_factory=list)
    runs: int = 0
    dumped: set[str] = field(default_factory=set)
    steps: dict[int, None] = field(default_factory=dict)
    missed: dict[tuple[str, str], int] = field(default_factory=dict)
    missed_more: int = 0

    def miss(self, node: str, reason: str, count: int = 1) -> None:
        key = (node, reason)
        if key in self.missed or len(self.missed) < _MAX_MISSED:
            self.missed[key] = self.missed.get(key, 0) + count
        else:
            self.missed_more += count

    def as_json(self) -> dict[str, Any]:
        missed = [{"node": node, "reason": why, "count": count} for (node, why), count in list(self.missed.items())]
        if self.missed_more:
            missed.append({"node": "", "reason": "more", "count": self.missed_more})
        return {
            "graph": self.graph,
            "name": self.name,
            "kind": self.kind,
            "parent": self.parent,
            "guards": self.guards,
            "compile_id": self.compile_id,
            "texts": list(self.texts),
            "operators": self.operators,
            "planned": self.planned,
            "dumped": len(self.dumped),
            "runs": self.runs,
            "steps": list(self.steps),
            "break_reason": self.break_reason,
            "break_place": self.break_place,
            "warnings": list(self.warnings),
            "missed": missed,
        }


class RunFolder:
    """The files of one backend in one process: a time, a writer, and ``graphs.json``.

    Args:
        path: ``dump_path``, absolute. The folder below it is made with the first graph, when rank and world are known.
        properties: of ``graphs.json``: engine, decomposition level.
        queue_bytes, drop: of the writer.
        with_time: whether there is a level ``{time}``; the FX dump has none.
        native: arguments of a NativeRun, for the native layout; None: a file an operator.
    """

    def __init__(
        self,
        path: str,
        properties: dict[str, Any],
        *,
        queue_bytes: int = 256 << 20,
        drop: bool = False,
        with_time: bool = True,
        models: Sequence[ModelEntry] = (),
        native: Optional[dict[str, Any]] = None,
    ) -> None:
        self._path = path
        self._native = native
        self._models = models
        self._properties = properties
        self._queue_bytes = queue_bytes
        self._drop = drop
        self._with_time = with_time
        self._number = next(_run_numbers)
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._writer: Any = None
        self._root = ""
        self._entries: list[GraphEntry] = []
        self._outside = GraphEntry(0, "", "")  # what is missed outside of every graph
        self._breaks_before = _graph_breaks()
        self._written = 0.0
        self._closed = False
        self._concluding = False
        self._concluded = False  # every step that was asked for is on disk
        self.time = ""
        self.rank, self.world_size = 0, 1
        self.device = "cpu"
        _close_at_exit(self)

    @property
    def writer(self) -> Any:
        """The ``GraphDump`` or ``NativeRun``; made, as the folder is, when it is first needed."""
        self._open()
        return self._writer

    @property
    def root(self) -> str:
        """``{path}/worldsize{W}_global_rank{R}[/{time}]``, native ``{path}/{time}/rank{R}``."""
        self._open()
        return self._root

    @property
    def is_native(self) -> bool:
        return self._native is not None

    @property
    def alive(self) -> bool:
        """False after close() and in a forked child: nothing is captured there."""
        return not self._closed and os.getpid() == self._pid

    @property
    def entries(self) -> list[GraphEntry]:
        return list(self._entries)

    def open(self, device: str) -> None:
        """Makes the folder and the writer, when they are not there yet. Graphs run on `device`, such as "cuda:0".

        Raises:
            OSError: the folder cannot be made.
        """
        self.device = device
        self._open()

    def _open(self) -> None:
        with self._lock:
            if self._writer is not None:
                return
            self.rank, self.world_size = rank_and_world()
            folder = self._path if self._native is not None else rank_folder(self._path)
            os.makedirs(folder, exist_ok=True)
            if self._with_time:
                self.time = self._make_time_folder(folder)
                folder = os.path.join(folder, self.time)
            if self._native is None:
                self._root = folder
                self._writer = _capture.GraphDump(queue_bytes=self._queue_bytes, drop=self._drop)
            else:
                self._writer = self._native_run(folder, self._native)
                self._root = self._writer.root
            info = os.stat(self._root)
            self._identity = (info.st_dev, info.st_ino)

    def _native_run(self, folder: str, options: dict[str, Any]) -> Any:
        from assay.torch.graph._native import NativeRun

        with no_modes():  # a graph is being compiled: tensors made now would be fake ones
            return NativeRun(folder, self._properties, queue_bytes=self._queue_bytes, drop=self._drop, **options)

    def _make_time_folder(self, folder: str) -> str:
        if self.world_size > 1:
            agreed = _agreed_time(f"{self._number}", time.strftime("%Y%m%d%H%M%S"))
            os.makedirs(os.path.join(folder, agreed), exist_ok=True)
            return agreed
        second = time.time()
        while True:
            name = time.strftime("%Y%m%d%H%M%S", time.localtime(second))
            try:
                os.mkdir(os.path.join(folder, name))
                return name
            except FileExistsError:
                second += 1.0  # another run began in this second; its files are not ours

    def add(self, entry: GraphEntry) -> None:
        """Makes a graph known; on disk at once, or with many graphs within a second of steps."""
        with self._lock:
            self._entries.append(entry)
        if len(self._entries) <= _AT_ONCE:
            self.write_index()
        else:
            self.step_ended()

    def __del__(self) -> None:
        # Nobody can add a graph any more: the backend and all that it compiled are gone.
        if not getattr(self, "_closed", True):
            self.close()

    def _note_missed(self) -> None:
        """Takes over what the writer could not read; the folder tells the graph."""
        if self._writer is None:
            return
        by_name = {entry.name: entry for entry in self._entries}
        for folder, node, reason, count in self._writer.take_missed():
            parts = os.path.relpath(folder, self._root).split(os.sep)
            entry = next((by_name[part] for part in parts if part in by_name), self._outside)
            entry.miss(node, reason, count)

    def _new_breaks(self) -> list[dict[str, Any]]:
        return [
            {"reason": reason, "count": count - self._breaks_before.get(reason, 0)}
            for reason, count in _graph_breaks().items()
            if count > self._breaks_before.get(reason, 0)
        ]

    def step_ended(self) -> None:
        """Rewrites ``graphs.json`` when it is out of date."""
        if time.monotonic() - self._written >= _REWRITE_SECONDS:
            self.write_index()

    def write_index(self, complete: bool = False) -> None:
        """Writes ``graphs.json`` by way of a temporary file. A failure is logged; the host goes on."""
        if os.getpid() != self._pid or not self._root:
            return
        with self._lock:
            self._written = time.monotonic()
            self._note_missed()
            document = {
                "assay": assay.__version__,
                "torch": torch.__version__,
                "time": self.time,
                "rank": self.rank,
                "world_size": self.world_size,
                "device": self.device,
                **self._properties,
                "complete": (complete or self._concluded) and self._is_whole(),
                "writer": self._writer.stats() if self._writer is not None else {},
                "breaks": self._new_breaks(),
                "missed": self._outside.as_json()["missed"],
                "graphs": [entry.as_json() for entry in self._entries],
            }
            path = os.path.join(self._root, "graphs.json")
            try:
                with open(f"{path}.tmp", "w", encoding="utf-8") as file:
                    json.dump(document, file, indent=1)
                    file.write("\n")
                os.replace(f"{path}.tmp", path)
            except OSError as error:
                logger.error("%s cannot be written: %s", path, error)

    def _is_whole(self) -> bool:
        """Whether every file was written, and the folder is still the one that they were written to."""
        failed = self._writer is not None and self._writer.stats().get("failed")
        try:
            info = os.stat(self._root)
        except OSError:
            return False
        return not failed and (info.st_dev, info.st_ino) == self._identity

    def flush(self) -> None:
        """Returns when everything handed over so far is on disk and ``graphs.json`` says so."""
        if self._writer is not None and self.alive:
            self._writer.flush()
            self.write_index()

    def conclude(self, is_over: bool) -> None:
        """Marks the run as complete when the steps that were asked for are over and on disk: how the program ends no
        longer matters. Of a step that comes after all (of another graph) the mark is taken back.

        The program waits for nothing: a thread of ours does.
        """
        if is_over == self._concluding:
            return
        with self._lock:
            if is_over == self._concluding or self._writer is None or not self.alive:
                return
            self._concluding = is_over
            if not is_over:
                self._mark(False)
                return
        threading.Thread(target=self._conclude, name="assay-conclude", daemon=True).start()

    def _conclude(self) -> None:
        self._writer.flush()
        with self._lock:
            if self._concluding and self.alive:
                self._mark(True)

    def _mark(self, concluded: bool) -> None:
        self._concluded = concluded
        if self._native is not None:
            self._writer.mark(concluded)
        self.write_index()

    def close(self) -> None:
        """Writes everything that is left and marks the run as complete. A second call does nothing.

        A run without a graph leaves nothing, unless Dynamo broke every graph: then ``graphs.json`` says so.
        """
        if os.getpid() != self._pid:
            self._closed = True
            return
        with self._lock:
            if self._closed:
                return
            if self._writer is None and self._new_breaks():
                try:
                    self._open()
                except OSError as error:
                    logger.error("%s: %s", self._path, error)
            self._closed = True
            if self._writer is None:
                return
        self._writer.close()
        self._say_which_models_never_came()
        self.write_index(complete=True)
        stats = self._writer.stats()
        if stats.get("failed"):
            logger.error(
                "%d files of the dump in %s could not be written; the first: %s",
                stats["failed"], self._root, stats.get("first_error", ""),
            )  # fmt: skip

    def _say_which_models_never_came(self) -> None:
        for name, sentence in models_not_met(self._models, [entry.name for entry in self._entries]).items():
            self._outside.miss(name, sentence)
            tell(sentence)


def _graph_breaks() -> dict[str, int]:
    """Dynamo's count of graph breaks in this process by reason, those that left no graph included."""
    module = sys.modules.get("torch._dynamo.utils")
    counters = getattr(module, "counters", {})
    return {
        " ".join(str(reason).split()): int(count) for reason, count in dict(counters.get("graph_break", {})).items()
    }


def _close_at_exit(run: RunFolder) -> None:
    reference = weakref.ref(run)

    def close() -> None:
        alive = reference()
        if alive is not None:
            with interrupts_held():
                alive.close()

    atexit.register(close)


def _agreed_time(key: str, proposal: str) -> str:
    """One time for all ranks: the first to come writes it into the store of the process group, the others read it.

    The store needs no collective: a rank that compiles nothing lets nobody wait.
    """
    try:
        from torch.distributed.distributed_c10d import _get_default_store

        agreed = _get_default_store().compare_set(f"assay/graph_dump_time/{key}", "", proposal)
        return bytes(agreed).decode("ascii")
    except (ImportError, AttributeError, RuntimeError, NotImplementedError):
        box = [proposal]
        torch.distributed.broadcast_object_list(box, src=0)
        return str(box[0])


# ---- one graph -------------------------------------------------------------------------------------------------------


class GraphFolder:
    """The files of one graph.

    Args:
        run: of the backend.
        graph: as it is executed.
        plan: which operands; may be replaced when the executed graph is known (:meth:`use`).
        request: what the user asked for.
        entry: the graph's part of ``graphs.json``.
        counter: "auto", "graph" or "token": what a step is.
    """

    def __init__(
        self,
        run: RunFolder,
        graph: Graph,
        plan: Plan,
        request: DumpRequest,
        entry: GraphEntry,
        counter: str = "auto",
        synchronous: bool = False,
    ) -> None:
        self.run = run
        self.entry = entry
        self.request = request
        self._counter = counter
        self._synchronous = synchronous
        self._runs = itertools.count(0)
        self._last_token = -1
        self._warned_of_repeat = False
        self._local = threading.local()
        self._statistics = request.statistics if request.data == "stats" else None
        self.graph = graph
        self.plan = plan
        self._task_ids: dict[str, int] = {}
        self.use(graph, plan)

    def use(self, graph: Graph, plan: Plan) -> None:
        """Takes the graph as it is executed, with its plan: operators fused, names changed."""
        self.graph = graph
        self.plan = plan
        self._task_ids = {operator.name: index for index, operator in enumerate(graph, 1)}
        self.entry.operators = len(graph.operators)
        by_name = graph.by_name()
        self.entry.planned = sum(
            name in by_name
            and ((mask.outputs and has_tensors(by_name[name])) or (mask.inputs and reads_tensors(by_name[name])))
            for name, mask in plan.operands.items()
        )

    def next_step(self) -> int:
        """Counts one run of the graph and returns the number of its step."""
        run = next(self._runs)
        self.entry.runs = run + 1
        if self._counter == "graph":
            return run
        token = steps_taken()
        if token is None:
            token = run if self._counter == "auto" else 0
        elif token == self._last_token and not self._warned_of_repeat:
            self._warned_of_repeat = True
            self.entry.warnings.append(
                f"{self.graph.name} ran more than once in step {token}: the files of these runs lie in one folder; "
                'execution.token_counter = "graph" gives each run its own.'
            )
        self._last_token = token
        return token

    def step_path(self, step: int) -> str:
        """``{root}/{device}/{model name}/{model id}/{step}``; the folder is made with its first file."""
        name = self.graph.name.translate(_MODEL_NAME)
        return os.path.join(self.run.root, self._device_index(), name, str(self.entry.graph), str(step))

    def _device_index(self) -> str:
        return self.run.device.partition(":")[2] or "0"

    def task_id(self, operator: Operator) -> int:
        """Position of an operator in its graph, from 1; 0 for one that is not in it."""
        return self._task_ids.get(operator.name, 0)

    def mask(self, operator: Operator) -> Optional[OperandMask]:
        """Which operands of an operator are stored; None for none."""
        return self.plan.operands.get(operator.name)

    def write_operator(
        self,
        operator: Operator,
        inputs: Sequence[Optional[torch.Tensor]],
        outputs: Sequence[Optional[torch.Tensor]],
        step: int,
        mask: Optional[OperandMask] = None,
        **more: Any,
    ) -> None:
        """Stores one operator's operands as tensors or statistics, as the request says. Never raises.

        Args:
            operator: gives type, name and task id.
            inputs, outputs: tensors; None where there is none. They may change after the call.
            step: names the folder.
            mask: which of them; None asks the plan, and an operator that is not planned is not stored.
            more: ``folder``, ``op_type``, ``op_name``, ``task_id``, ``statistics`` in the place of what follows from
                the above; ``origins``, ``message``, ``attributes``, ``extra_name`` of GraphDump.write_operator.
        """
        mask = mask or self.mask(operator)
        if mask is None or not self.run.alive:
            return
        kept_inputs = self._kept(operator, "input", inputs, mask) if mask.inputs else []
        kept_outputs = self._kept(operator, "output", outputs, mask) if mask.outputs else []
        tensors = [tensor for tensor in (*kept_inputs, *kept_outputs) if tensor is not None]
        if not tensors:
            return
        call = _Call(operator, kept_inputs, kept_outputs, step, mask, more)
        if all(map(_on_host, tensors)):
            self._write(call)
            return
        self._send(call)

    def _kept(
        self, operator: Operator, side: str, tensors: Sequence[Optional[torch.Tensor]], mask: OperandMask
    ) -> list[Optional[torch.Tensor]]:
        kept: list[Optional[torch.Tensor]] = []
        for index, tensor in enumerate(tensors):
            if tensor is not None and (side, index) in mask.left_out:
                tensor = None
            reason = "" if tensor is None else refusal(tensor)
            if reason:
                self.entry.miss(operator.name, f"{side} {index}: {reason}")
            kept.append(None if reason else tensor)
        return kept

    def end_of_step(self) -> None:
        """Writes what waits for a device; brings ``graphs.json`` up to date."""
        self._fetch()
        if self._synchronous and self.run.alive:
            self.run.writer.flush()
        self.run.step_ended()

    def _write(self, call: _Call) -> None:
        more = dict(call.more)
        operator = call.operator
        try:
            path = self.run.writer.write_operator(
                more.pop("folder", None) or self.step_path(call.step),
                more.pop("op_type", operator.type),
                more.pop("op_name", operator.name),
                more.pop("task_id", self.task_id(operator)),
                0,
                call.inputs,
                call.outputs,
                left_out=sorted(call.mask.left_out),
                statistics=more.pop("statistics", self._statistics),
                **more,
            )
        except (ValueError, TypeError, RuntimeError, OSError, MemoryError) as error:
            self.entry.miss(operator.name, f"{type(error).__name__}: {error}")
            return
        if not path:
            self.entry.miss(operator.name, "dropped: the queue was full, or nothing is written any more")
            return
        self.entry.dumped.add(operator.name)
        self.entry.steps[call.step] = None

    # Tensors on a device: copied on a side stream, one wait for many.

    def _send(self, call: _Call) -> None:
        pending = self._pending()
        path: DevicePath = self._local.path
        try:
            for tensor in (*call.inputs, *call.outputs):
                if tensor is not None:
                    path.send(tensor)
                    self._local.bytes += tensor.nbytes
        except RuntimeError as error:  # inside the capture of a CUDA graph
            self.entry.miss(call.operator.name, str(error))
            self._local.path = DevicePath(stats=False, data=True)
            return
        pending.append(call.without_tensors())
        if self._local.bytes >= _DEVICE_BYTES or self._synchronous:
            self._fetch()

    def _pending(self) -> list[_Call]:
        if not hasattr(self._local, "pending"):
            self._local.pending = []
            self._local.path = DevicePath(stats=False, data=True)
            self._local.bytes = 0
        pending: list[_Call] = self._local.pending
        return pending

    def _fetch(self) -> None:
        if not getattr(self._local, "pending", None):
            return
        pending: list[_Call] = self._local.pending
        copies = iter([copy for _, copy in self._local.path.fetch()])
        self._local.pending, self._local.bytes = [], 0
        for call in pending:
            self._write(call.with_tensors(copies))


_MODEL_NAME = str.maketrans({".": "_", "/": "_", "\\": "_", " ": "_"})
_DEVICE_BYTES = 64 << 20  # of copies that wait before the host waits for them


@dataclass
class _Call:
    operator: Operator
    inputs: list[Any]  # tensors or None; while a device works, True stands for a tensor
    outputs: list[Any]
    step: int
    mask: OperandMask
    more: dict[str, Any]

    def without_tensors(self) -> _Call:
        return _Call(
            self.operator,
            [None if tensor is None else True for tensor in self.inputs],
            [None if tensor is None else True for tensor in self.outputs],
            self.step, self.mask, self.more,
        )  # fmt: skip

    def with_tensors(self, copies: Iterator[Optional[torch.Tensor]]) -> _Call:
        self.inputs = [None if mark is None else next(copies) for mark in self.inputs]
        self.outputs = [None if mark is None else next(copies) for mark in self.outputs]
        return self


def _on_host(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


def refusal(tensor: torch.Tensor) -> str:
    """Why a tensor has no bytes that could be stored; "" when it has."""
    kind = type(tensor)
    if kind is not torch.Tensor and kind is not torch.nn.Parameter:
        return f"a {kind.__name__} is a tensor subclass: what its bytes are only it knows"
    if tensor.layout is not torch.strided:
        return f"layout {str(tensor.layout).removeprefix('torch.')} is not dense"
    if tensor.is_quantized:
        return "a quantised tensor's scale and zero point have no place in the file"
    if tensor.device.type == "meta":
        return "a tensor on the device meta has no data"
    return ""
