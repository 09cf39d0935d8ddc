# SPDX-License-Identifier: Apache-2.0
"""Capture what every module of a PyTorch model receives and returns: :func:`capture`.

The extended mode of assay. The files are described in docs/formats/native.md, the mechanism in
docs/design/torch-capture.md.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Optional, Union

import torch

import assay
from assay import _capture, _manifest
from assay._interrupts import interrupts_held
from assay._parallel import Parallel, parse_parallel, places_of_rank
from assay._ranks import Ranks, asked_ranks
from assay._run_id import id_of_job
from assay._steps import parse_steps
from assay.errors import Error, FormatError, make_error
from assay.torch import _flat, _packed, _topology
from assay.torch._device import DevicePath
from assay.torch._topology import Pattern

__all__ = ["Capture", "capture"]

Models = Union[torch.nn.Module, Mapping[str, torch.nn.Module], Sequence[torch.nn.Module]]
Steps = Union[None, int, str, Iterable[int], Callable[[int], bool]]

DEFAULT_QUEUE_BYTES = 64 << 20
_DATA_LEVELS = ("full", "stats", "none")
_LEVELS = ("module", "operator")
_TOOL = f"assay {assay.__version__}"

# Captures that are still open when the interpreter ends are closed then.
_open: set[Capture] = set()
_open_lock = threading.Lock()


def _close_open_captures() -> None:
    with interrupts_held():
        for handle in list(_open):
            handle.remove()


# After the host's threads have been joined: a worker may run the model to its very end.
atexit.register(_close_open_captures)


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _warn(sentence: str) -> None:
    try:
        print(f"assay: warning: {sentence}", file=sys.stderr)
    except (OSError, ValueError):  # the host has closed its stderr
        return


def _let_injection_step_back(who: str) -> None:
    """Ends the capture that `assay dump` started in this process: the script has one of its own."""
    injection = sys.modules.get("assay.inject.outermost")
    if injection is not None:
        injection.step_back(who)


def _fp32_precision() -> str:
    """What torch computes float32 products in where that is not float32: "mkldnn.matmul bf16, cudnn.conv tf32"."""
    found = []
    libraries = [("mkldnn", "matmul"), ("mkldnn", "conv")]
    if torch.cuda.is_available():
        libraries += [("cuda", "matmul"), ("cudnn", "conv")]
    for library, kind in libraries:
        place = getattr(getattr(torch.backends, library), kind, None)
        try:
            precision = getattr(place, "fp32_precision", "none")  # torch 2.9 and later
        except RuntimeError:  # settings of the old kind and of the new one were mixed
            continue
        if precision not in ("none", "ieee"):
            found.append(f"{library}.{kind} {precision}")
    return ", ".join(found)


def _named_models(models: Models) -> dict[str, torch.nn.Module]:
    if isinstance(models, torch.nn.Module):
        return {"": models}
    named = dict(models) if isinstance(models, Mapping) else {str(i): model for i, model in enumerate(models)}
    for name, model in named.items():
        if not isinstance(model, torch.nn.Module):
            raise FormatError("Usage", f"model {name!r} is a {type(model).__name__}, not a torch.nn.Module")
        if not name or "/" in name:
            raise FormatError("Usage", f"model name {name!r} must not be empty or contain '/'")
    if not named:
        raise FormatError("Usage", "there is no model to capture")
    return named


def _patterns(value: Union[Pattern, Sequence[Pattern], None]) -> list[Pattern]:
    if value is None:
        return []
    patterns = [value] if isinstance(value, (str, type)) else list(value)
    return [_manifest.printable(p) if isinstance(p, str) else p for p in patterns]  # as the names are


def _step_test(steps: Steps) -> tuple[Optional[Callable[[int], bool]], Any]:
    """Returns the test that the native half asks once a step, and its description for the manifest."""
    if steps is None:
        return None, None
    if callable(steps):
        return steps, getattr(steps, "__name__", "predicate")
    if isinstance(steps, str):
        try:
            ranges = parse_steps(steps)
        except ValueError as error:
            raise FormatError("Usage", str(error)) from None
        return ranges, None if ranges is None else ranges.__name__
    if isinstance(steps, int):
        steps = [steps]
    wanted = steps if isinstance(steps, range) else frozenset(steps)
    if any(not isinstance(step, int) or step < 0 for step in wanted):
        raise FormatError("Usage", f"steps must be whole numbers from 0, got {sorted(map(str, wanted))}")
    return wanted.__contains__, sorted(wanted) if len(wanted) <= 1000 else repr(wanted)


# Stands in the plans of a capture that must not keep the host's modules alive.
_NO_MODULE = torch.nn.Identity()


# Key of the configuration in a top-level manifest that a process made whose own is in its rank's folder.
_BESIDE = "beside"


def _config_of(manifest: Path) -> Any:
    try:
        return json.loads(manifest.read_text())["config"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _writer_of(manifest: Path) -> str:
    """Who is still writing a run; empty when nobody is."""
    try:
        content = json.loads(manifest.read_text())
        pid, hostname = int(content["host"]["pid"]), content["host"]["hostname"]
        if content["complete"] or not _manifest.process_is_alive(pid, hostname):
            return ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return "another capture of this process" if pid == os.getpid() else f"process {pid} of {hostname}"


def _end_forgotten_captures(root: Path) -> None:
    """Ends captures of this process into a folder that no `with` block ends: a notebook's cell that runs again."""
    for handle in list(_open):
        if handle._folder.root == root and not handle._in_block:
            handle.remove()


class _Folder:
    """The folder of one rank inside a run's folder, and which manifest files this process writes.

    With `beside` the rank's own folder belongs to another process of the same command: this one goes beside it.

    Raises:
        FileError: the folder cannot be made.
        FormatError: it holds a run already that nobody is writing any more.
    """

    def __init__(self, path: Path, beside: bool, overwrite: bool) -> None:
        self.root = root = Path(os.path.abspath(path))  # the host may change its working folder
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            code = {13: "Permission", 2: "NotFound", 28: "NoSpace"}.get(error.errno or 0, "Io")
            raise make_error(code, f"cannot create the folder: {error.strerror}", str(root)) from error
        rank = f"rank{_manifest.rank_of_process()}"
        if overwrite:
            _end_forgotten_captures(root)
            self._remove_old_run(rank)
        if beside or (root / rank / "records.jsonl").exists():
            if not beside:
                self._refuse_old_run(rank)
            rank = f"{rank}-{os.getpid()}"
            if (root / rank / "records.jsonl").exists():
                raise FormatError("Usage", "this process captures into that folder already", str(root))
        self.rank = root / rank
        top = root / "manifest.json"
        host, config = json.dumps(_manifest.describe_host()), json.dumps({_BESIDE: True} if beside else {})
        # A manifest that is there names the run.
        job_id, why = (None, "") if top.exists() else id_of_job()
        self.run_id, is_first = _capture.claim_run(str(top), _TOOL, host, config, job_id or "")
        on_several_hosts = (_manifest.local_world_size() or _manifest.world_size()) < _manifest.world_size()
        if is_first and why and on_several_hosts:
            _warn(f"the run id is that of {root} alone: {why}; ASSAY_RUN_ID gives all hosts of a job the same one")
        # The process that others go beside may be slower than they are: then theirs only names the run.
        own_top = not beside and (is_first or _BESIDE in _config_of(top))
        self.manifests = [root / "manifest.json"] if own_top else []
        if not own_top or _manifest.world_size() > 1:
            self.manifests.append(self.rank / "manifest.json")

    def give_up(self) -> None:
        """Nothing will be captured: takes back the manifest that the run was claimed with."""
        if self.manifests[0].parent == self.root:
            self.manifests[0].unlink(missing_ok=True)

    def _remove_old_run(self, rank: str) -> None:
        """Takes out what this rank has left in earlier runs; of one that somebody still writes nothing."""
        old = [path for path in self.root.glob(f"{rank}*") if path.name == rank or path.name.startswith(f"{rank}-")]
        old = [path for path in old if (path / "records.jsonl").exists()]
        for path in old:
            for manifest in (path / "manifest.json", self.root / "manifest.json"):
                if writer := _writer_of(manifest):
                    raise FormatError("Usage", f"{writer} is still writing the run that it holds", str(self.root))
        for path in old:
            shutil.rmtree(path)
        if old:
            (self.root / "manifest.json").unlink(missing_ok=True)

    def _refuse_old_run(self, rank: str) -> None:
        for path in (self.root / rank / "manifest.json", self.root / "manifest.json"):
            try:
                content = json.loads(path.read_text())
                host = content["host"]
                running = content["finished"] is None and _manifest.process_is_alive(int(host["pid"]), host["hostname"])
            except (OSError, ValueError, KeyError, TypeError):
                continue
            if running and int(host["pid"]) != os.getpid():
                return
            break
        raise FormatError(
            "Usage", "the folder holds a run already; choose another one, or overwrite=True removes it", str(self.root)
        )


class Capture:
    """A running capture: the handle that :func:`capture` returns.

    Attributes:
        path: the run's folder.
    """

    def __init__(
        self,
        models: Models,
        path: Union[str, os.PathLike[str]],
        *,
        steps: Steps,
        data: str,
        level: str = "module",
        include: Union[Pattern, Sequence[Pattern], None],
        exclude: Union[Pattern, Sequence[Pattern], None],
        inputs: bool,
        outputs: bool,
        weights: bool,
        caches: bool,
        digest: bool,
        queue_bytes: int,
        on_full: str,
        disk_limit: Optional[int],
        verify: bool,
        overwrite: bool = False,
        parallel: Parallel = None,
        _force_device: bool = False,
        _outermost: bool = False,
        _beside: bool = False,
    ) -> None:
        if data not in _DATA_LEVELS:
            raise FormatError("Usage", f"data must be one of {', '.join(_DATA_LEVELS)}, got {data!r}")
        if level not in _LEVELS:
            raise FormatError("Usage", f"level must be one of {', '.join(_LEVELS)}, got {level!r}")
        if on_full not in ("wait", "drop"):
            raise FormatError("Usage", f"on_full must be 'wait' or 'drop', got {on_full!r}")
        if queue_bytes <= 0 or (disk_limit is not None and disk_limit < 0):
            raise FormatError("Usage", "queue_bytes must be positive and disk_limit not negative")
        self._parallel = parse_parallel(parallel)
        self._places = places_of_rank(self._parallel)
        named = _named_models(models)
        step_test, step_text = _step_test(steps)
        self._wanted = step_test
        self.path = Path(path)
        self._pid = os.getpid()
        self._removed = False
        self._in_block = False  # of a `with` statement, which removes it
        self._failure = ""  # why the run cannot be whole, beside what the sink says
        self._folder = _Folder(self.path, beside=_beside, overwrite=overwrite)
        self._outermost = _outermost
        self._operators = level == "operator"
        self._patterns = (_patterns(include), _patterns(exclude))
        self._config = {
            "level": level,
            "data": data,
            "steps": step_text,
            "include": [str(p) for p in _patterns(include)],
            "exclude": [str(p) for p in _patterns(exclude)],
            "inputs": inputs,
            "outputs": outputs,
            "weights": weights,
            "caches": caches,
            "digest": digest,
            "verify": verify,
            "on_full": on_full,
            "grad_enabled": torch.is_grad_enabled(),
            "inference_mode": torch.is_inference_mode_enabled(),
            "dropout": None,
            "fp32_precision": _fp32_precision(),
        }
        self._plans: list[_topology.NodePlan] = []
        self._trees: list[dict[str, Any]] = []
        self._model_count = 0
        self._written_trees = 0
        self._device = DevicePath(stats=data != "none", data=data == "full" or digest)
        try:
            self._session = _capture.Session(
                folder=str(self._folder.rank),
                data=data,
                inputs=inputs,
                outputs=outputs,
                caches=caches,
                digest=digest,
                verify=verify,
                wanted=step_test,
                device=self._device,
                force_device=_force_device,
                queue_bytes=queue_bytes,
                drop=on_full == "drop",
                disk_limit=disk_limit,
                threads=torch.get_num_threads(),
                outermost=_outermost,
                operators=self._operators,
                run_id=self._folder.run_id,
            )
        except BaseException:
            self._folder.give_up()
            raise
        self._started = _capture.utc_now()
        self._calls: list[Any] = []
        self._attributes: list[str] = []  # through which each of them is made
        try:
            self._plan(named)
            self._write_manifest(finished=None)
            if weights:
                self._record_weights(range(len(self._plans)))
            self._install(range(len(self._plans)))
        except BaseException as error:
            self._fail(f"the capture could not start: {_first_line(error)}")
            self.remove()
            raise
        if _outermost:  # the command says the rest when the program has ended
            self._release_modules(range(len(self._plans)))
        else:
            self._say_what_is_hidden(self._plans)
            self._say_what_matches_nothing(include, exclude)
        with _open_lock:
            _open.add(self)

    def _plan(self, named: dict[str, torch.nn.Module]) -> range:
        """Plans the nodes of some models and writes the topology of all; returns the numbers of the new nodes."""
        plans = _topology.plan_nodes(named, *self._patterns)
        self._config["dropout"] = self._config["dropout"] or _topology.first_dropout(named)
        nodes = range(len(self._plans), len(self._plans) + len(plans))
        self._trees += _topology.trees_of(named, plans)
        self._model_count += len(named)
        # All of it each time: for a script with thousands of models, when it has grown by an eighth.
        if len(self._trees) * 8 >= self._written_trees * 9:
            self._write_topology()
        for plan in plans:
            self._session.add_node(
                plan.name, _topology.class_name(plan.module), plan.is_root, plan.planned, plan.opaque
            )
            self._plans.append(plan)
        if self._operators:
            for name, tensor in _topology.leaves_of(named):
                self._session.add_leaf(name, tensor)
        return nodes

    def _write_topology(self) -> None:
        self._written_trees = len(self._trees)
        topology = _topology.to_json(_topology.joined(self._trees, self._model_count))
        _capture.write_file(str(self._folder.rank / "topology.json"), topology)

    def _add_model(self, name: str, model: torch.nn.Module) -> None:
        """Captures one more model of a script that does not say which ones it has."""
        nodes = self._plan({name: model})
        if self._config["weights"]:
            self._record_weights(nodes)
        self._install(nodes)
        self._release_modules(nodes)

    def _fail(self, why: str) -> None:
        """What was captured stays, but is not the whole of what was asked for."""
        self._failure = self._failure or why

    def _release_modules(self, nodes: range) -> None:
        """Keeps the modules of installed nodes no longer alive than the host does."""
        for number in nodes:
            self._plans[number] = replace(self._plans[number], module=_NO_MODULE)

    def _set_aside(self) -> Callable[[], None]:
        """Sees no calls for a while; the function returned goes on."""
        for call in self._calls:
            call.remove()

        def put_back() -> None:
            if self._removed:
                return
            for call, attribute in zip(self._calls, self._attributes):
                try:
                    call.install(attribute)
                except TypeError:  # the host has freed that module
                    continue

        return put_back

    def _record_weights(self, nodes: range) -> None:
        entries: list[tuple[int, str, torch.Tensor, bool]] = []
        numbers = {id(self._plans[number].module): number for number in nodes}
        for number in nodes:
            plan = self._plans[number]
            if not plan.planned and _topology._has_forward(plan.module):
                continue  # left out by include or exclude
            for name, parameter in plan.module.named_parameters(recurse=False):
                if not _flat.is_flat(parameter):
                    entries.append((number, _manifest.printable(name), parameter, False))
                    continue
                for module, own_name, part in _flat.parts_of(parameter):
                    owner = numbers.get(id(module), number)
                    entries.append((owner, _manifest.printable(own_name), part, False))
            entries += [(number, name, part, False) for name, part in _packed.parts_of(plan.module)]
            buffers = plan.module.named_buffers(recurse=False)
            entries += [(number, _manifest.printable(n), b, True) for n, b in buffers]
        self._session.weights(entries)

    def _install(self, nodes: range) -> None:
        for number in nodes:
            plan = self._plans[number]
            # Any call may turn out to be an outermost one, and ours is cheaper than torch's own.
            may_be_step = plan.is_root or (self._outermost and plan.via == _topology.VIA_CALL_IMPL)
            # Operators are named after the innermost module, whether that one is wanted or not.
            if plan.via is None or not (plan.planned or may_be_step or self._operators):
                continue
            self._calls.append(self._session.module_call(plan.module, number))
            self._attributes.append(plan.via)
            self._calls[-1].install(plan.via)

    @staticmethod
    def _hidden(plans: Iterable[_topology.NodePlan]) -> list[tuple[str, str, int]]:
        """Returns (first node, reason, number of modules) of what cannot be seen."""
        groups: dict[str, tuple[str, int]] = {}
        for plan in plans:
            if plan.hidden and plan.planned:
                first, count = groups.get(plan.hidden, (plan.name, 0))
                groups[plan.hidden] = (first, count + 1)
        return [(first, reason, count) for reason, (first, count) in groups.items()]

    def _say_what_is_hidden(self, plans: Iterable[_topology.NodePlan]) -> None:
        for first, reason, count in self._hidden(plans):
            modules = "1 module is" if count == 1 else f"{count} modules are"
            _warn(
                f"{modules} out of sight, {first!r} first ({reason}); "
                f"{self.path / 'manifest.json'} lists what was captured"
            )

    def _say_what_matches_nothing(self, *given: Union[Pattern, Sequence[Pattern], None]) -> None:
        names = [name for plan in self._plans for name in (plan.name, *plan.aliases)]
        for option, patterns in zip(("include", "exclude"), given):
            for pattern in _patterns(patterns):
                if any(_topology.matches(plan.name, plan.module, [pattern]) for plan in self._plans):
                    continue
                if isinstance(pattern, str):
                    _warn(f"{option}: {_topology.matches_nothing(pattern, names)}")
                else:
                    _warn(f"{option}: no module is a {pattern.__name__}")

    def _say_when_nothing_was_recorded(self) -> None:
        stats = self._session.stats()
        if stats["records"] or stats["stopped"] or self._outermost:
            return
        calls = stats["steps"]
        if not calls:
            _warn(f"nothing was captured in {self.path}: the model was not called")
        elif self._wanted is not None and not any(self._wanted(step) for step in range(calls)):
            asked = self._config["steps"]
            _warn(f"nothing was captured in {self.path}: steps {asked} were not reached; there were {calls}")
        else:
            _warn(f"nothing was captured in {self.path}: no module that ran was to be recorded")

    def _missed(self) -> list[tuple[str, str, int]]:
        missed = [(p.name, p.hidden, 1) for p in self._plans if p.hidden and p.planned]
        if self._device.in_graph_capture:
            missed.append(("", "inside a CUDA graph", self._device.in_graph_capture))
        if self._session.stats()["steps"]:
            executed = self._session.executed()
            why = "not called in a captured step"
            if _topology.something_was_compiled():
                why += f", or {_topology.COMPILED}"
            missed += [
                (plan.name, why, 1)
                for number, plan in enumerate(self._plans)
                if plan.planned and not plan.hidden and not executed[number]
            ]
        return missed

    def _why_compiled(self) -> str:
        """A sentence on the modules that compiled code hides, and what shows them; empty when there are none."""
        hidden = [(name, reason) for name, reason, _ in self._missed() if _topology.COMPILED in reason]
        if not hidden:
            return ""
        modules = "1 module was" if len(hidden) == 1 else f"{len(hidden)} modules were"
        return (
            f"{modules} {hidden[0][1]}, {hidden[0][0]!r} first; "
            "TORCHDYNAMO_DISABLE=1 shows what runs inside (vLLM: --enforce-eager)"
        )

    def _why_unread(self) -> str:
        """A sentence on tensors that have a record without values; empty when there are none."""
        unread = sorted(self._session.unread().items(), key=lambda item: -item[1])
        if not unread or self._config["data"] == "none":
            return ""
        total = sum(count for _, count in unread)
        reasons = ", ".join(f"{reason} ({count})" for reason, count in unread)
        return f"{total} {'tensor has' if total == 1 else 'tensors have'} a record without values: {reasons}"

    def _host(self) -> dict[str, Any]:
        """What the manifest says of this process; its groups as they are known by now."""
        self._places = self._places or places_of_rank(self._parallel)
        host = _manifest.describe_host()
        if watchers := self._session.watched_by(False):
            host["watched_by"] = watchers
        return {**host, "parallel": self._places} if self._places else host

    def _write_manifest(self, finished: Optional[str]) -> None:
        host = json.dumps(self._host())
        executed = self._session.executed()
        planned = sum(plan.planned for plan in self._plans)
        captured = sum(bool(executed[n]) for n, plan in enumerate(self._plans) if plan.planned)
        for path in self._folder.manifests:
            _capture.write_manifest(
                self._session,
                str(path),
                self._folder.run_id,
                _TOOL,
                host,
                json.dumps(self._config),
                self._started,
                finished,
                (planned, captured),
                self._missed(),
                self.stats["stopped"],
            )

    @property
    def stats(self) -> dict[str, Any]:
        """Counters so far.

        Keys: ``steps`` (root calls seen), ``records``, ``bytes`` (payload stored), ``shared`` (records whose bytes were
        there already), ``dropped``, ``dropped_bytes``, ``waited_ms`` (time the model waited for the writer),
        ``queue_bytes``, ``stopped`` (why nothing more is recorded, empty while all is well).
        """
        counters = dict(self._session.stats())
        counters["stopped"] = counters["stopped"] or self._failure
        return counters

    def flush(self) -> None:
        """Waits until everything recorded so far is on disk. Inside a step the step's file is closed and goes on in
        ``step-...-1.safetensors``."""
        self._session.flush()

    def remove(self) -> None:
        """Takes the capture out of the model, waits for the writer and completes the manifest. Idempotent.

        In a forked child only the model is freed; the files belong to the parent.
        """
        with _open_lock:
            if self._removed:
                return
            self._removed = True
            was_open = self in _open
            _open.discard(self)
        for call in self._calls:
            call.remove()
        self._calls.clear()
        self._attributes.clear()
        if os.getpid() != self._pid:
            return
        self._session.close()
        if was_open:
            self._say_when_nothing_was_recorded()
            if not self._outermost and (sentence := self._why_unread()):  # `assay dump` says it for all processes
                _warn(f"{sentence}; {self.path}")
        try:
            if self._written_trees < len(self._trees):
                self._write_topology()
            self._write_manifest(finished=_capture.utc_now())
        except Error as error:
            print(f"assay: error: {error}; the run opens, but counts as incomplete", file=sys.stderr)

    def __enter__(self) -> Capture:
        self._in_block = True
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if kind is None:  # the program goes on with what the model returned last
            self._session.wait_for_collectives()
        self.remove()


class _LeftOut(Capture):
    """The handle of a rank that is not to capture: nothing is in its modules, and nothing is written."""

    def __init__(self, path: Union[str, os.PathLike[str]]) -> None:
        self.path = Path(path)
        self._in_block = False

    @property
    def stats(self) -> dict[str, Any]:
        """The counters of a capture, all zero."""
        names = ("steps", "records", "bytes", "shared", "dropped", "dropped_bytes", "waited_ms", "queue_bytes")
        return {**dict.fromkeys(names, 0), "stopped": ""}

    def flush(self) -> None:
        return

    def remove(self) -> None:
        return

    def __exit__(self, *_: object) -> None:
        return


def capture(
    models: Models,
    path: Union[str, os.PathLike[str]],
    *,
    steps: Steps = None,
    data: str = "full",
    level: str = "module",
    include: Union[Pattern, Sequence[Pattern], None] = None,
    exclude: Union[Pattern, Sequence[Pattern], None] = None,
    inputs: bool = True,
    outputs: bool = True,
    weights: bool = False,
    caches: bool = False,
    digest: bool = False,
    queue_bytes: int = DEFAULT_QUEUE_BYTES,
    on_full: str = "wait",
    disk_limit: Optional[int] = None,
    verify: bool = False,
    overwrite: bool = False,
    ranks: Ranks = None,
    parallel: Parallel = None,
) -> Capture:
    """Captures what every module of a model receives and returns, from now on until ``remove()``.

    A *step* is one call of a root model; steps are counted from 0 for each capture. Inputs are read before the call,
    outputs after it, so modules that work in place are recorded right. The model computes the same bits as without.
    Arguments are seen before other forward pre-hooks and results after other forward hooks.

    Args:
        models: one model, or several as a dict (name -> model) or a list.
        path: folder of the run; made if missing, must not hold a run (see `overwrite`).
        steps: which steps to record: None for all, one number, a list or range, text as the command takes it
            (``"all"``, ``"0,2-4,9-"``), or a test ``step -> bool`` that is asked once a step.
        data: ``"full"``: statistics and all bytes; ``"stats"``: statistics only; ``"none"``: only what ran, with
            shapes and dtypes.
        level: ``"module"``: what modules receive and return; ``"operator"``: every dispatched operator as well, with
            its arguments and with value ids that say which operator made which input: such a run can be replayed.
        include: globs over dotted module paths (``"model.layers.*.mlp"``), classes, or a list of both. Of operators the
            innermost module decides.
        exclude: the same, taken out again.
        inputs: whether arguments are recorded.
        outputs: whether results are recorded.
        weights: whether parameters and buffers are recorded once, as step -1.
        caches: whether key/value caches among arguments and results are recorded.
        digest: whether every record gets the XXH3-128 digest of its bytes.
        queue_bytes: bound of the memory for bytes on their way to disk, in bytes (at least 8 MiB are taken).
        on_full: ``"wait"``: the model waits for the disk when that memory is full; ``"drop"``: tensors are left out
            and counted.
        disk_limit: most bytes to write; then the capture stops and the model goes on. Independent of it, it stops
            before the disk is full.
        verify: read every tensor every time instead of trusting version counters, which writes through ``x.data`` or
            custom kernels do not bump.
        overwrite: whether a run that the folder holds is removed first, as a notebook's cell that runs again needs;
            nothing else in it is touched. An earlier capture of this process into the folder ends, unless it is in a
            ``with`` block; a run that somebody else is still writing is refused.
        ranks: which ranks of the job capture: None or ``"all"`` for all, one number, a list, or text such as
            ``"0,8-15"``. In the others nothing is captured, written or slower.
        parallel: sizes of the parallel groups, the fastest first, as ``"tp=2,pp=2,dp=2"`` or a dict; their product is
            the size of the job. None: as the host's libraries tell (docs/formats/native.md).

    Returns:
        The handle; also a context manager that removes itself.

    Raises:
        assay.FormatError: an argument is wrong or the folder holds a run.
        assay.FileError: the folder cannot be written.

    Example:
        >>> import tempfile, torch, assay
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        >>> with assay.capture(model, tempfile.mkdtemp() + "/run") as handle:
        ...     _ = model(torch.ones(1, 4))
        >>> handle.stats["steps"]
        1
    """
    _let_injection_step_back("assay.capture()")
    asked = asked_ranks(ranks)
    if asked and not any(_manifest.rank_of_process() in part for part in asked):
        return _LeftOut(path)
    return Capture(
        models,
        path,
        steps=steps,
        data=data,
        level=level,
        include=include,
        exclude=exclude,
        inputs=inputs,
        outputs=outputs,
        weights=weights,
        caches=caches,
        digest=digest,
        queue_bytes=queue_bytes,
        on_full=on_full,
        disk_limit=disk_limit,
        verify=verify,
        overwrite=overwrite,
        parallel=parallel,
    )
