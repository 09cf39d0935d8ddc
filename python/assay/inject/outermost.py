# SPDX-License-Identifier: Apache-2.0
"""Captures a script that does not say which module is its model: every nn.Module call outside any other counts.

:func:`activate` is called when torch has been imported (sitecustomize.py). From then on the native half tells of each
call that is not inside another: its module is captured from this very call on. What it was and what came of it stands
in a report that the command reads. docs/design/inject.md

Invariant: whatever goes wrong in here, the script's call is made, once, and nothing but its own exceptions comes out.
"""

from __future__ import annotations

import atexit
import fnmatch
import functools
import json
import os
import re
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Callable, Optional

import torch

from assay import _capture, _manifest
from assay._interrupts import interrupts_held
from assay._ranks import asked_ranks
from assay._steps import LAST_TOKEN, parse_steps
from assay.torch import _topology
from assay.torch._unseen import unseen

__all__ = ["Settings", "activate", "step_back"]

MAX_MODULES = 250_000  # of all models together: each costs 2 KiB of the host's memory
# Arguments of these types mean that somebody traces the module instead of running it.
_TRACERS = ("FakeTensor", "FunctionalTensor", "Proxy", "MetaProxy")


@dataclass(frozen=True)
class Settings:
    """What the command asked for: the environment variable ASSAY_TORCH_DUMP.

    Attributes:
        output: folder of the run (native), or the folder that the dump's own folder is made in (strict).
        strict: whether the layout is that of the strict API instead of the native one.
        level: "module" or "operator" (native).
        weights: whether parameters and buffers are recorded (native).
        steps: text of the steps to record, "" for all: see :func:`parse_steps`.
        modules: globs over dotted module paths, empty for all; a leading "root." is accepted.
        statistics: whether statistics are wanted; together with `full` both are.
        digest: whether every record gets the digest of its bytes (native).
        full: whether all bytes are wanted; without either, only what ran is recorded (strict: only the tree).
        report_dir: folder of the reports, or "".
        seed: start of all random generators, or None.
        parallel: text of the sizes of the job's parallel groups, or "".
        node_memory: bytes of the queues of all ranks of this host, or 0.
        disk_budget: bytes that all ranks of this host may write, or 0.
        ranks: text of the ranks that capture, "" for all: see :func:`assay._ranks.asked_ranks`.
    """

    output: str
    strict: bool = False
    level: str = "module"
    weights: bool = False
    steps: str = ""
    modules: tuple[str, ...] = ()
    statistics: bool = False
    digest: bool = False
    full: bool = True
    report_dir: str = ""
    seed: Optional[int] = None
    ranks: str = ""
    parallel: str = ""
    node_memory: int = 0
    disk_budget: int = 0

    @staticmethod
    def from_json(text: str) -> Settings:
        """Raises ValueError when `text` is not what the command writes."""
        given = json.loads(text)
        if not isinstance(given, dict) or not isinstance(given.get("output"), str) or not given["output"]:
            raise ValueError("ASSAY_TORCH_DUMP names no output folder")
        if given.get("layout", "native") not in ("native", "strict"):
            raise ValueError(f"ASSAY_TORCH_DUMP: layout {given['layout']!r} is neither native nor strict")
        if given.get("level", "module") not in ("module", "operator"):
            raise ValueError(f"ASSAY_TORCH_DUMP: level {given['level']!r} is neither module nor operator")
        seed = given.get("seed")
        # The folder by its bytes, when they are no text.
        output = os.path.abspath(os.environ.get("ASSAY_DUMP_OUTPUT") or given["output"])
        report_dir = str(given.get("report_dir") or "")
        if "ASSAY_DUMP_OUTPUT" in os.environ and report_dir:
            report_dir = os.path.join(output, os.path.basename(report_dir))
        settings = Settings(
            output=output,
            strict=given.get("layout") == "strict",
            level=given.get("level", "module"),
            weights=bool(given.get("weights")),
            steps=str(given.get("steps") or ""),
            modules=tuple(str(entry) for entry in given.get("modules") or ()),
            statistics=bool(given.get("statistics")),
            digest=bool(given.get("digest")),
            full=bool(given.get("full", not given.get("statistics"))),
            report_dir=report_dir,
            seed=None if seed is None else int(seed),
            ranks=str(given.get("ranks") or ""),
            parallel=str(given.get("parallel") or ""),
            node_memory=int(given.get("node_memory") or 0),
            disk_budget=int(given.get("disk_budget") or 0),
        )
        parse_steps(settings.steps)
        asked_ranks(settings.ranks)
        return settings


@dataclass
class _Model:
    """One outermost module: how it is called in the run, and which nodes of the capture are its."""

    name: str
    class_name: str
    nodes: range


def _never() -> bool:
    return False


def _nothing() -> None:
    return


class Injection:
    """The one injection of a process."""

    def __init__(self, settings: Settings, import_watch: Any) -> None:
        self.settings = settings
        self._import_watch = import_watch  # sitecustomize's class
        self._dynamo_watch: Any = None
        self.armed = False
        self._steps = parse_steps(settings.steps)
        self._ranks = asked_ranks(settings.ranks)
        self._module: Any = torch.nn.modules.module.Module
        self._original_compile: Any = None
        self._compile_trap: Any = None
        self._pid = self._first_pid = os.getpid()
        self._forget_everything()

    def _forget_everything(self) -> None:
        self._lock = threading.RLock()
        self._capture: Any = None
        self._registration: Any = None  # of a strict dump
        self._strict_config: Any = None
        self._strict_counters: Any = None
        self._models: list[_Model] = []
        self._names: set[str] = set()  # of the models
        self._named_after: dict[str, int] = {}  # class -> the last number behind its name
        self._node_names: list[str] = []  # of all modules of the models
        self._known: dict[int, weakref.ref[Any]] = {}
        self._passed_over: dict[str, int] = {}  # class -> outermost calls that were not captured
        self._rank: Optional[int] = None
        self._not_asked = False  # the rank is none of those that capture
        self._message = ""
        self.missing = ""  # a sentence, known at the end
        self._in_the_way = 0  # compilers at work
        self._put_back: Callable[[], None] = _nothing
        self._ignored = ""  # the first outermost call that was none of the model at work
        self._reported = False
        self._starting = False  # the configuration being made is ours

    # --- the trap

    def install(self) -> None:
        """For the rest of the process."""
        self.watch()
        os.register_at_fork(after_in_child=self._after_fork)
        atexit.register(self.finish)

    def watch(self) -> None:
        """Until `uninstall`."""
        self._original_compile = getattr(self._module, "compile", None)
        if self._original_compile is not None:
            self._compile_trap = _make_compile_trap(self, self._original_compile)
        self._watch()

    def _watch(self) -> None:
        _capture.set_watcher(self.consider)
        if self._compile_trap is not None:
            self._module.compile = self._compile_trap
        self.armed = True

    def uninstall(self) -> None:
        """Makes module calls as cheap as they were; what is being captured goes on."""
        if self.armed:
            _capture.set_watcher(None)
        self.armed = False
        if self._compile_trap is not None and self._module.__dict__.get("compile") is self._compile_trap:
            self._module.compile = self._original_compile

    def consider(self, module: Any, args: tuple[Any, ...], kwargs: Optional[dict[str, Any]]) -> None:
        """Captures the module of an outermost call from now on, unless there is a reason not to."""
        if _is_compiling():
            return
        try:
            with self._lock, unseen():
                known = self._known.get(id(module))
                if (known is not None and known() is module) or not self.armed:
                    return
                reason = _not_a_run(module, args, kwargs or {})
                owner = module if reason else _owner_of(module)
                if owner is None:
                    reason = "called while a module is being made"
                if reason:
                    self._ignored = self._ignored or f"{type(module).__name__} was only {reason}"
                    return
                if self._capture is None and self._registration is None and self._leaves_rank_out():
                    return
                if self.settings.strict:
                    self._begin_strict(owner)
                else:
                    self._begin_native(owner)
                self._remember(owner)
        except Exception as error:
            self._give_up(f"{type(error).__name__}: {error}")

    def _leaves_rank_out(self) -> bool:
        """Whether this rank is not to capture: then nothing of ours stays in its calls.

        Asked at the first outermost call, when the host knows its rank.
        """
        rank = _manifest.rank_of_process()
        if not self._ranks or any(rank in part for part in self._ranks):
            return False
        self._rank, self._not_asked = rank, True
        self.uninstall()
        self.announce()
        return True

    def forget(self, module: Any) -> None:
        """The module becomes another: what was captured of it cannot be seen any more, its new calls can."""
        self._known.pop(id(module), None)

    def _remember(self, model: Any) -> None:
        for _, module in _topology.modules_of(model):
            self._known[id(module)] = weakref.ref(module)

    # --- the native layout

    def _begin_native(self, model: Any) -> None:
        if self._models and self._models[-1].nodes.stop >= MAX_MODULES:
            self._pass_over(model)
            return
        from assay.torch.capture import Capture

        name = self._free_name(model)
        if self._capture is None:
            wanted = self._steps
            few = wanted is not None and wanted.last is not None and len(wanted.tokens()) <= 1000
            self._capture = Capture(
                {name: model} if name else model,
                self.settings.output,
                steps=wanted.tokens() if few and wanted is not None else wanted,
                data="full" if self.settings.full else "stats" if self.settings.statistics else "none",
                level=self.settings.level,
                include=self._include() or None,
                exclude=None,
                inputs=True,
                outputs=True,
                weights=self.settings.weights,
                caches=False,
                digest=self.settings.digest,
                queue_bytes=self.settings.node_memory // self._sharers() or 64 << 20,
                on_full="wait",
                disk_limit=self.settings.disk_budget // self._sharers() if self.settings.disk_budget else None,
                parallel=self.settings.parallel,
                verify=False,
                _outermost=True,
                _beside=not self._is_first_of_rank(),
            )
            self._rank = _manifest.rank_of_process()
            self._finish_with_multiprocessing()
            self._give_way_to_compilers()
            self.announce()
            first = 0
        else:
            first = self._models[-1].nodes.stop
            self._capture._add_model(name, model)
        self._capture._session.watched_by(True)  # all of this is seen by who traces Python's calls
        nodes = range(first, len(self._capture._plans))
        self._node_names += [plan.name for plan in self._capture._plans[first:]]
        self._models.append(_Model(name, _topology.class_name(model), nodes))
        self._names.add(name)

    def _sharers(self) -> int:
        """How many ranks of this host capture: they share its budgets in equal parts."""
        local = _manifest.local_world_size() or 1
        local_rank = os.environ.get("LOCAL_RANK", "")
        if not self._ranks or not local_rank.isdigit():  # where the others are is not known
            return local
        first = _manifest.rank_of_process() - int(local_rank)  # torchrun numbers a host's ranks in a row
        asked = sum(any(rank in part for part in self._ranks) for rank in range(first, first + local))
        return max(asked, 1)

    def _is_first_of_rank(self) -> bool:
        """Whether no other process of this command captures as this rank: the others go beside the first one.

        The first is refused a folder with a run in it; that run is one of an earlier command.
        """
        if not self.settings.report_dir:
            return True
        claim = os.path.join(self.settings.report_dir, f"rank{_manifest.rank_of_process()}.claim")
        try:
            os.close(os.open(claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except (FileExistsError, FileNotFoundError):  # no folder: the command has ended, and others came before us
            return False
        except OSError:
            return True
        return True

    def _free_name(self, model: Any) -> str:
        """The first module that holds weights is the model and has the bare paths; others go by their class."""
        if "" not in self._names and _has_state(model):
            return ""
        base = _topology.class_name(model)
        number = self._named_after.get(base, 0)
        while True:
            number += 1
            name = base if number == 1 else f"{base}-{number}"
            if name not in self._names:  # a class may be called as another one's second model
                self._named_after[base] = number
                return name

    def _include(self) -> list[str]:
        return list(dict.fromkeys(glob for pattern in self.settings.modules for glob in _spellings(pattern)))

    # --- the strict layout

    def _begin_strict(self, model: Any) -> None:
        if not _has_state(model):
            self._pass_over(model)
            return
        from assay.torch.strict import config as strict_config
        from assay.torch.strict import hooks

        if strict_config._instance is not None or hooks._registered_type is not None:
            self._step_back("DumpConfig()")
            return
        # A rule of the original stays: one model, one configuration a process.
        self.uninstall()
        settings = self.settings
        tokens = self._steps.tokens() if self._steps is not None else list(range(LAST_TOKEN + 1))
        self._starting = True
        try:
            config = strict_config.DumpConfig(
                dump_path=settings.output,
                token_range=tokens,
                dump_statistics_mode=0 if not settings.statistics else 2 if settings.full else 1,
            )
        finally:
            self._starting = False
        if not settings.full and not settings.statistics:
            config.layer_pattern = re.compile("(?!)")  # matches no name
        elif settings.modules:
            bare = [pattern[5:] if pattern.startswith("root.") else pattern for pattern in settings.modules]
            texts = [strict_config.name_pattern(p).pattern for b in bare for p in (b, f"root.{b}")]
            config.layer_name = ",".join(settings.modules)
            config.layer_pattern = re.compile("|".join(f"(?:{text})" for text in texts))
        hooks.register_hook(model, config)
        self._registration, self._strict_config = hooks._registration, config
        self._rank = _manifest.rank_of_process()
        self._models.append(_Model("", _topology.class_name(model), range(0)))
        self._node_names = [name for name, _ in model.named_modules()]
        self._finish_with_multiprocessing()
        self._give_way_to_compilers()
        self.announce()
        last = self._steps.last if self._steps is not None else None
        if last is not None:
            check = _RemoveAfter(self._registration, last)
            self._registration._handles.append(model.register_forward_pre_hook(check))

    # --- compilers

    def _give_way_to_compilers(self) -> None:
        """torch.compile, export and scripting look into modules and stop at objects they do not know: ours."""
        if "torch._dynamo.convert_frame" in sys.modules:
            self._wrap_dynamo()
        elif self._dynamo_watch is None and self._import_watch is not None:
            self._dynamo_watch = self._import_watch("torch._dynamo.convert_frame", self._wrap_dynamo)
            sys.meta_path.insert(0, self._dynamo_watch)
        self._wrap(sys.modules.get("torch.jit._recursive"), "create_script_module")
        self._wrap(getattr(torch.fx, "Tracer", None), "trace")  # also make_fx, and with it torch.export

    def _wrap_dynamo(self) -> None:
        self._wrap(sys.modules.get("torch._dynamo.convert_frame"), "_fullgraph_capture_frame")  # torch.export
        # Everything else. Callbacks could be registered here, but torch._dynamo.reset() forgets them.
        handler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
        install = getattr(handler, "install_callbacks", None)
        if handler is None or install is None or hasattr(install, "_assay"):
            return

        @contextmanager
        def install_callbacks(*args: Any, **kwargs: Any) -> Iterator[None]:
            with _out_of_the_way(), install(*args, **kwargs):
                yield

        install_callbacks._assay = True  # type: ignore[attr-defined]
        handler.install_callbacks = install_callbacks

    def _wrap(self, namespace: Any, name: str) -> None:
        function = getattr(namespace, name, None)
        if function is None or hasattr(function, "_assay"):
            return

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with _out_of_the_way():
                return function(*args, **kwargs)

        wrapper._assay = True  # type: ignore[attr-defined]
        setattr(namespace, name, wrapper)

    @contextmanager
    def out_of_the_way(self) -> Iterator[None]:
        """Nothing of ours is in the modules meanwhile, on any thread."""
        try:
            with self._lock:
                self._in_the_way += 1
                if self._in_the_way == 1:
                    self._put_back = self._set_aside()
        except Exception as error:
            self._give_up(f"{type(error).__name__}: {error}")
        try:
            yield
        finally:
            try:
                with self._lock:
                    self._in_the_way -= 1
                    if self._in_the_way == 0:
                        put_back, self._put_back = self._put_back, _nothing
                        put_back()
            except Exception as error:
                self._give_up(f"{type(error).__name__}: {error}")

    def _set_aside(self) -> Callable[[], None]:
        if self._capture is not None:
            return self._capture._set_aside()  # type: ignore[no-any-return]
        registration = self._registration
        if registration is None:
            return _nothing
        from assay.torch import _hooks
        from assay.torch.strict import hooks

        put_back = _hooks.set_aside(registration._handles)
        return lambda: put_back() if hooks._registration is registration else None

    # --- the end

    def _pass_over(self, model: Any) -> None:
        name = _topology.class_name(model)
        self._passed_over[name] = self._passed_over.get(name, 0) + 1

    def _give_up(self, why: str) -> None:
        self.uninstall()
        self._message = why
        if self._capture is not None:
            self._capture._fail(why)
        _say(f"error: {why}; the capture is off, the script goes on")
        try:
            self._close()
        except Exception as error:
            _say(f"error: the run could not be finished: {error}")

    def step_back(self, who: str) -> None:
        with self._lock:
            if self._starting:
                return
            if self.armed or self._capture is not None or self._registration is not None:
                self._step_back(who)

    def _step_back(self, who: str) -> None:
        self.uninstall()
        self._message = f"the script captures by itself with {who}; assay dump stepped back"
        self._close()

    def _close(self) -> None:
        if self._dynamo_watch in sys.meta_path:
            sys.meta_path.remove(self._dynamo_watch)
        if self._capture is not None:
            self._capture.remove()
        elif self._registration is not None:
            registration, self._registration = self._registration, None
            from assay.torch.strict import config, hooks

            if hooks._registration is registration:
                config.reset()
            else:
                registration.remove()

    def _after_fork(self) -> None:
        """A forked child starts from nothing: the parent's run is not its to write, but it may have one of its own."""
        try:
            self._pid = os.getpid()
            if self.armed:
                _capture.set_watcher(self.consider)  # the child is in no call that the parent was told of
            if self._registration is not None:
                self._free_from_strict(self._registration)
            if self._capture is not None:
                for call in self._capture._calls:
                    call.remove()
            if self._not_asked:  # its rank may be another
                self._watch()
            self._forget_everything()
        except Exception as error:
            self.armed = False
            _say(f"error: {error}; nothing is captured in this process")

    def _free_from_strict(self, registration: Any) -> None:
        from assay.torch.strict import config, hooks  # loaded already

        for handle in registration._handles:
            handle.remove()
        atexit.unregister(registration._close_at_exit)
        if hooks._registration is registration:
            hooks._registration, hooks._registered_type = None, None
            config._instance, config._arguments = None, {}
            self._watch()

    def _finish_with_multiprocessing(self) -> None:
        # Children of multiprocessing leave through os._exit() and run only their own list of finalizers.
        process = sys.modules.get("multiprocessing.process")
        if process is not None and process.parent_process() is not None:
            from multiprocessing import util

            util.Finalize(None, self.finish, exitpriority=-100)

    def finish(self) -> None:
        """Completes the run and writes the report. At the end of the process; idempotent."""
        if self._reported or (os.getpid() != self._first_pid and not self._models):
            return
        self._reported = True
        self.armed = False
        try:
            self.end()
        except Exception as error:
            _say(f"error: {error}")

    def end(self) -> None:
        """Completes the run and writes the report; `missing` says what of what was asked for did not come."""
        with interrupts_held():
            tallies = self._tallies()
            self._close()
            models = [
                {"name": model.name, "class": model.class_name, "steps": steps, "tensors": tensors}
                for model, (steps, tensors) in zip(self._models, tallies)
            ]
            self.missing = self._why_little(models)
            self._write_report(models, self.missing, ended=True)

    def announce(self) -> None:
        """Leaves a first report: all there will be when a signal or os._exit() ends the process."""
        try:
            self._write_report([], "", ended=False)
        except OSError:  # the report at the end will tell
            return

    def _tallies(self) -> list[tuple[int, int]]:
        """(steps, tensors) of each model."""
        if self._capture is not None:
            by_node = self._capture._session.tallies()
            of_models = [[by_node[number] for number in model.nodes] for model in self._models]
            return [(max(s for s, _ in nodes), sum(t for _, t in nodes)) for nodes in of_models]
        if self._strict_config is not None and self._registration is not None:
            dumper = self._registration.dumper
            dumper.close()
            counters = self._strict_counters = dumper.counters()
            return [(dumper.token_id + 1, counters["tensors"])]
        return [(0, 0) for _ in self._models]

    def _write_report(self, models: list[dict[str, Any]], message: str, *, ended: bool) -> None:
        folder = self.settings.report_dir
        if not os.path.isdir(folder):  # the command has ended, or never asked
            return
        output = None
        if self._capture is not None:
            output = str(self._capture._folder.rank)
        elif self._strict_config is not None:
            output = os.path.abspath(self._strict_config.dump_dir)
        report = {
            "pid": os.getpid(),
            "program": _manifest.printable(sys.executable),
            "argv": [_manifest.printable(word) for word in sys.argv],
            "rank": _manifest.rank_of_process() if self._rank is None else self._rank,
            "world_size": _manifest.world_size(),
            "not_asked": self._not_asked,
            "torch": str(torch.__version__),
            "models": models,
            "output": None if output is None else _manifest.printable(output),
            # For the command, which knows the output folder by its bytes: they may be no text.
            "folder": None if output is None else os.path.relpath(output, self.settings.output),
            "message": message,
            "stopped": self._why_not_whole(),
            "idle": output is None and not self._message and not self._not_asked,
            "ended": ended,
        }
        path = os.path.join(folder, f"torch_{os.getpid()}.json")
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump(report, file)
        os.replace(path + ".part", path)

    def _why_not_whole(self) -> str:
        if self._capture is not None:
            return str(self._capture.stats["stopped"])
        if self._strict_counters is not None:
            return str(self._strict_counters["first_error"])
        return ""

    def _why_little(self, models: list[dict[str, Any]]) -> str:
        """A sentence on what is missing, or an empty string."""
        sentences = [self._message] if self._message else []
        if self._capture is not None:
            stopped = self._capture.stats["stopped"]
            if stopped:
                sentences.append(f"the capture stopped: {stopped}")
        if models and not sentences:
            sentences = self._what_was_not_there(models)
        if self._passed_over:
            names = ", ".join(f"{name} ({count})" for name, count in self._passed_over.items())
            what = (
                "a strict dump holds one model; passed over"
                if self.settings.strict
                else f"more than {MAX_MODULES} modules; passed over"
            )
            sentences.append(f"{what}: {names}")
        if not models and not sentences and not self._not_asked:
            sentences.append(
                self._ignored
                if self._ignored
                else "the modules ran inside functions that torch.compile compiled; set TORCHDYNAMO_DISABLE=1"
                if _topology.something_was_compiled()
                else "torch was imported, but no nn.Module was called"
            )
        return "; ".join(sentences)

    def _what_was_not_there(self, models: list[dict[str, Any]]) -> list[str]:
        """Sentences on what was asked for and did not come."""
        sentences = [
            _topology.matches_nothing(pattern, self._node_names)
            for pattern in self.settings.modules
            if not any(fnmatch.fnmatchcase(n, p) for p in _spellings(pattern) for n in self._node_names)
        ]
        called = max(model["steps"] for model in models)
        unreached = self._steps.unreached(called) if self._steps is not None else ""
        if unreached:
            sentences.append(f"the steps {unreached} were not reached: there were {called}")
        asked_for_tensors = not self.settings.strict or self.settings.full or self.settings.statistics
        if asked_for_tensors and not sentences and not any(model["tensors"] for model in models):
            asked = ", ".join(self.settings.modules)
            sentences.append(f"no module that ran matches {asked}" if asked else "no module took or returned a tensor")
        if self._capture is not None:
            sentences += [why for why in (self._capture._why_compiled(), self._capture._why_unread()) if why]
        return sentences


def _spellings(pattern: str) -> list[str]:
    """The globs that a pattern of the command line means: with and without "root.", in any model."""
    bare = pattern[5:] if pattern.startswith("root.") else "" if pattern == "root" else pattern
    return [pattern, bare, f"*/{bare}"]


def _make_compile_trap(injection: Injection, original: Any) -> Any:
    """``module.compile()`` makes calls bypass ``_call_impl``: what it made is wrapped until the first such call."""

    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        with injection.out_of_the_way():
            result = original(self, *args, **kwargs)
        injection.forget(self)
        compiled = self.__dict__.get("_compiled_call_impl")
        reference = weakref.ref(self)

        def first_call(*call_args: Any, **call_kwargs: Any) -> Any:
            module = reference()
            if _is_compiling() or module is None or module.__dict__.get("_compiled_call_impl") is not first_call:
                return compiled(*call_args, **call_kwargs)
            module.__dict__["_compiled_call_impl"] = compiled
            if injection.armed and not _capture.in_watched_call():
                injection.consider(module, call_args, call_kwargs)
            return module._compiled_call_impl(*call_args, **call_kwargs)

        if injection.armed and compiled is not None:
            self.__dict__["_compiled_call_impl"] = first_call
        return result

    compile.__doc__ = original.__doc__
    compile.__qualname__ = getattr(original, "__qualname__", "Module.compile")
    compile.__module__ = getattr(original, "__module__", "torch.nn.modules.module")
    return compile


_is_compiling: Callable[[], bool] = getattr(getattr(torch, "compiler", None), "is_compiling", None) or _never


def _has_state(module: Any) -> bool:
    return any(True for _ in _topology.leaves_of({"": module}))


def _not_a_run(module: Any, args: Any, kwargs: Any) -> str:
    """Why a call is not one of the model at work, or an empty string."""
    if type(module).__name__ == "ONNXTracedModule":  # the exporter's wrapper; it traces inside
        return "traced, not run"
    if torch._C._get_tracing_state() is not None or any(
        type(leaf).__name__ in _TRACERS for leaf in (*args, *kwargs.values())
    ):
        return "traced, not run"
    data = sys.modules.get("torch.utils.data")
    if data is not None and data.get_worker_info() is not None:
        return "called in a DataLoader worker"
    return ""


def _owner_of(module: Any) -> Any:
    """The outermost module one of whose methods makes this call of a part of it: generate() calls an encoder.

    None when the call is made by the constructor of a module, which tries out its parts.
    """
    owner = module
    # Above are consider() and perhaps first_call(): frames of ours have no module as `self`.
    frame: Any = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_argcount and code.co_varnames[0] == "self":
            candidate = frame.f_locals.get("self")
            if isinstance(candidate, torch.nn.Module) and candidate is not owner:
                if code.co_name == "__init__":
                    return None
                if any(part is owner for _, part in _topology.modules_of(candidate)):
                    owner = candidate
        frame = frame.f_back
    return owner


class _RemoveAfter:
    """A forward pre-hook of a strict dump: takes all hooks out when the call after the last wanted one begins."""

    def __init__(self, registration: Any, last: int) -> None:
        self._registration = registration
        self._last = last

    def __call__(self, *_: Any) -> None:
        if self._registration.dumper.token_id > self._last:
            self._registration.remove()

    def __reduce__(self) -> Any:
        # A copied or pickled model has nothing of ours to take out: a function that takes anything and does nothing.
        return getattr, (nullcontext(), "__exit__")


def _say(text: str) -> None:
    try:
        sys.stderr.write(f"assay: {text}\n")
    except Exception:  # stderr may be closed or None; there is nobody else to tell
        return


_injection: Optional[Injection] = None


def _out_of_the_way() -> Any:
    """Of the injection at work: what is wrapped once in torch outlives the one that wrapped it."""
    return nullcontext() if _injection is None else _injection.out_of_the_way()


@contextmanager
def captured_calls(output: str, level: str, **more: Any) -> Iterator[Injection]:
    """Captures the outermost modules of all calls that are made inside the block, in this process.

    Args:
        output: folder of the run, which is made when the first module is called; it must hold none.
        level: "module" or "operator".
        more: other fields of Settings.

    Raises:
        AttributeError: this torch has no replaceable module call (before 2.0).
    """
    global _injection
    if _injection is not None:
        _injection.step_back("a capture of this function alone")
    before, _injection = _injection, Injection(Settings(output=output, level=level, **more), None)
    _injection.watch()
    try:
        yield _injection
    finally:
        _injection.uninstall()
        _injection.end()
        _injection = before


def activate(import_watch: Any = None) -> None:
    """Starts to look for outermost calls in this process, as ASSAY_TORCH_DUMP says. A second call does nothing.

    Args:
        import_watch: (module, action) -> a finder for sys.meta_path that tells when the module has been imported;
            None from the start-up file of an older command.

    Raises:
        ValueError: the variable is malformed.
        AttributeError: this torch has no replaceable module call (before 2.0).
    """
    global _injection
    if _injection is not None:
        return
    settings = Settings.from_json(os.environ["ASSAY_TORCH_DUMP"])
    if not hasattr(torch.nn.modules.module.Module, "_wrapped_call_impl"):
        raise AttributeError(f"torch {torch.__version__} is too old; assay.capture() works from 2.0 on")
    if settings.seed is not None:
        from assay.torch.strict.determinism import seed_all

        seed_all(settings.seed)
    _injection = Injection(settings, import_watch)
    _injection.install()
    _injection.announce()


def step_back(who: str) -> None:
    """Ends what was started here, because the script captures by itself with `who`."""
    if _injection is not None:
        try:
            _injection.step_back(who)
        except Exception as error:
            _say(f"error: {error}")
