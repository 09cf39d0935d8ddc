# SPDX-License-Identifier: Apache-2.0
"""register_hook: installs the recording hooks of one model."""

from __future__ import annotations

import atexit
import contextlib
import inspect
import json
import numbers
import os
import time
import weakref
from difflib import get_close_matches
from typing import Any, Optional

import assay
from assay import _capture
from assay._interrupts import interrupts_held
from assay._manifest import describe_host, printable
from assay.torch.strict.apis import ApiWrappers
from assay.torch.strict.dense import dense_cpu_tensor
from assay.torch.strict.log import logger, warn_once
from assay.torch.strict.paths import dump_stamp, warn_if_writable_by_others

_registered_type: Optional[str] = None
_registration: Optional[Registration] = None


def register_hook(model: Any, config: Any, hook_type: str = "dump_data", **old_spelling: str) -> None:
    """Dumps what the modules of `model` take and return, from now on, as `config` says.

    Call it once, after the weights are on their device and before the first forward. A second call warns and does
    nothing. A wrong `model` or `config` is logged and nothing is installed.

    Args:
        model: a torch.nn.Module; its calls count the tokens: the n-th call is token n - 1.
        config: what DumpConfig(...) returned.
        hook_type: only "dump_data" installs anything. `hook_name` is accepted for it.
    """
    global _registered_type, _registration
    hook_type = old_spelling.pop("hook_name", hook_type)
    if old_spelling:
        raise TypeError(f"register_hook got an unexpected keyword argument {next(iter(old_spelling))!r}")
    if _registered_type is not None:
        logger.warning("%s has been register in model.", _registered_type)
        return
    import torch

    if not isinstance(model, torch.nn.Module):
        logger.error("model must be a torch.nn.Module, not %s.", type(model).__name__)
        return
    if type(config).__name__ != "DumpConfig":
        logger.error("config must be a DumpConfig, not %s.", type(config).__name__)
        return
    _registered_type = hook_type
    device = _device_text(model)
    if config.device_id is not None and device != "cpu":
        wanted = "".join(char for char in device if not char.isdigit()) + str(config.device_id)
        config.is_dump_cur_device = device == wanted
    if not config.is_dump_cur_device:
        return
    stamp = dump_stamp(config.dump_path)
    config.dump_dir = _dump_dir(config.dump_path, stamp, device)
    _make_dump_dir(config.dump_dir)
    if hook_type != "dump_data":
        return
    try:
        _registration = Registration(model, config, device)
    except BaseException:
        _registered_type = None
        raise
    config.registration = _registration


def remove_hooks() -> None:
    """Removes every hook and wrapper, finishes the files, and lets register_hook() be called again."""
    global _registered_type, _registration
    registration, _registration, _registered_type = _registration, None, None
    if registration is not None:
        registration.remove()


def _device_text(model: Any) -> str:
    device = "cpu"
    for parameter in model.parameters():
        device = str(parameter.device).replace(":", "")
    return device


def _dump_dir(dump_path: str, stamp: str, device: str) -> str:
    return os.path.join(dump_path, f"msit_dump_{stamp}", "torch_tensors", f"{device}_{os.getpid()}")


def _make_dump_dir(path: str) -> None:
    warn_if_writable_by_others(os.path.dirname(path))
    os.makedirs(path, mode=0o750, exist_ok=True)


def _tree(model: Any) -> dict[str, Any]:
    root: list[dict[str, Any]] = []
    pending = [(model, "root", root)]
    while pending:  # a host deep in its own calls has few frames left for a recursion
        module, name, siblings = pending.pop()
        children: list[dict[str, Any]] = []
        siblings.append({"name": name, "type": type(module).__name__, "children": children})
        pending += [
            (child, f"{name}.{printable(child_name)}", children)
            for child_name, child in reversed(list(module.named_children()))
        ]
    return root[0]


def _write_whole_file(dump_dir: str, name: str, text: str) -> None:
    path = os.path.join(dump_dir, name)
    temporary = f"{path}.tmp{os.getpid()}"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise OSError(error.errno, f"cannot be written: {os.strerror(error.errno or 0)}", path) from error


class Manifest:
    """``manifest.json`` beside ``model_tree.json``: what was planned, captured and missed, and why.

    The keys are those of docs/formats/native.md. ``complete`` is false while the process dumps, and stays so when it is
    killed. No reader of the original looks at this file.
    """

    def __init__(self, config: Any, dump_dir: str):
        self._folder = _identity(dump_dir)
        self._content: dict[str, Any] = {
            "format": "assay-torch-tree",
            "version": 1,
            "tool": f"assay {assay.__version__}",
            "complete": False,
            "host": describe_host(),
            "config": {
                "token_range": _token_text(config.token_range),
                "mode": list(config.mode),
                "tensor_part": int(config.tensor_part),
                "dump_statistics_mode": int(config.dump_statistics_mode),
                "dump_last_logits": bool(config.dump_last_logits),
                "layer_name": config.layer_name,
            },
            "started": _now(),
            "finished": None,
        }

    def write(self, dump_dir: str) -> None:
        """Writes the manifest of a dump that goes on."""
        _write_whole_file(dump_dir, "manifest.json", json.dumps(self._content, indent=1))

    def finish(self, dump_dir: str, planned: list[str], counters: dict[str, Any]) -> None:
        """Writes the final manifest; a folder that cannot be written is left as it is, the host's end is not disturbed.

        Args:
            dump_dir: the folder of the process.
            planned: names of the modules that the configuration selects.
            counters: what the writer did, from ``StrictDumper.counters()``.
        """
        try:
            captured: set[str] = set()
            for token in filter(str.isdigit, os.listdir(dump_dir)):
                captured.update(os.listdir(os.path.join(dump_dir, token)))
            missed = [
                {"node": name, "reason": "not called in a dumped token", "count": 1}
                for name in planned
                if _capture.torch_tree_name(name) not in captured
            ]
            stopped = counters["first_error"] or None
            if stopped is None and _identity(dump_dir) != self._folder:
                stopped = f"{dump_dir}: was removed or replaced during the dump"
            self._content.update(
                complete=stopped is None,
                finished=_now(),
                coverage={"planned": len(planned), "captured": len(planned) - len(missed), "missed": missed},
                sink={
                    "bytes": counters["bytes"],
                    "failed": counters["failed"],
                    "waited_ms": round(counters["waited_ms"], 3),
                    "stopped": stopped,
                },
            )
            self.write(dump_dir)
        except OSError as error:
            logger.warning("manifest.json could not be finished: %s", error)


def _identity(folder: str) -> tuple[int, int]:
    info = os.stat(folder)
    return info.st_dev, info.st_ino


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Registration:
    """The hooks of one model and the dumper behind them.

    Invariant: every hook object belongs to `dumper`; after remove() the model and torch are as they were before.
    """

    def __init__(self, model: Any, config: Any, device: str):
        import torch

        from assay.torch._topology import to_json

        self._config = config
        self._device = device
        self._handles: list[Any] = []
        self._named: list[Any] = []
        self._apis: Optional[ApiWrappers] = None
        self._planned: list[str] = []
        self._names: list[str] = []  # of all modules
        self._weights = 0  # that were dumped
        self._manifest: Optional[Manifest] = None  # until every hook is installed
        self._pid = os.getpid()
        self._dump_dir: str = os.path.abspath(config.dump_dir)  # the host may change its working folder
        self._tree = to_json(_tree(model))
        _write_whole_file(self._dump_dir, "model_tree.json", self._tree)
        self.dumper = _capture.StrictDumper(
            dump_dir=self._dump_dir,
            dump_dir_text=config.dump_dir,
            analyze_path=self._analyze_path() if config.analyze is True else "",
            token_range=_token_ids(config.token_range),
            tensor_part=int(config.tensor_part),
            statistics_mode=int(config.dump_statistics_mode),
            dump_modules="module" in config.mode,
            dump_apis="api" in config.mode,
            last_logits=bool(config.dump_last_logits),
            host_threads=torch.get_num_threads(),
            module_list=tuple(config.module_list),
            to_dense=dense_cpu_tensor,
            warn_once=warn_once,
            after_fork=self._after_fork,
        )
        try:
            self._hook_modules(model)
            if "api" in config.mode:
                self._apis = ApiWrappers(self.dumper, _class_text(model), config.layer_pattern, config.api_list)
            if config.dump_weight:
                self._dump_weights(model)
        except BaseException:
            self.remove()
            raise
        manifest = Manifest(config, self._dump_dir)
        try:
            manifest.write(self._dump_dir)
        except BaseException:
            self.remove()
            raise
        self._manifest = manifest
        atexit.register(self._close_at_exit)
        _say_what_hides_modules(model)
        if "api" not in config.mode:  # names of functions are known when they are called
            self._say_what_matches_nothing()

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._apis is not None:
            self._apis.remove()
        for reference in self._named:
            module = reference()
            if module is not None and "msit_name" in module.__dict__:
                del module.msit_name
        self._named.clear()
        self._close()
        atexit.unregister(self._close_at_exit)

    def _close_at_exit(self) -> None:
        with interrupts_held():
            self._close()

    def _close(self) -> None:
        self.dumper.close()
        # A forked child that never ran the model shares the folder with its parent, whose manifest it must not finish.
        if os.getpid() == self._pid and self._manifest is not None:
            self._manifest.finish(self._dump_dir, self._planned, self.dumper.counters())
            if "api" in self._config.mode and self.dumper.counters()["bytes"] == 0:
                self._say_what_matches_nothing()

    def _hook_modules(self, model: Any) -> None:
        # A post hook that torch also calls after an exception keeps the name stack balanced; older torch versions
        # lack the option, there the stack is put right at the next root call.
        can_always_call = "always_call" in inspect.signature(model.register_forward_hook).parameters
        always = {"always_call": True} if can_always_call else {}
        import torch

        stack_names = "api" in self._config.mode
        seen: set[int] = set()
        pending = [("root", model)]
        while pending:
            name, module = pending.pop()
            # What is inside a scripted module runs where nobody sees it.
            inside = [] if isinstance(module, torch.jit.ScriptModule) else list(module.named_children())
            pending += [(f"{name}.{printable(child_name)}", child) for child_name, child in reversed(inside)]
            if id(module) in seen:  # shared by two parents: one pair of hooks under the first name
                continue
            seen.add(id(module))
            is_root = module is model
            self._names.append(name)
            selected = self._config.layer_pattern.match(name) is not None
            if selected and self._takes(module):
                self._planned.append(name)
            enter, leave = self.dumper.module_hooks(name, _class_text(module), selected, is_root)
            if isinstance(module, torch.jit.ScriptModule):  # torch refuses hooks there
                self._handles.append(_CallAround(module, enter, leave))
            elif is_root or stack_names:
                self._handles.append(module.register_forward_pre_hook(enter))
                self._handles.append(module.register_forward_hook(leave, **always))
            else:
                self._handles.append(module.register_forward_hook(leave))
            try:
                module.msit_name = name
            except Exception:  # a class that forbids new attributes; the name is only a service to scripts
                continue
            self._named.append(weakref.ref(module))

    def _takes(self, module: Any) -> bool:
        if self._config.dump_last_logits:  # which module is the last is known only in the run
            return False
        classes = self._config.module_list
        # What is no class raises in the forward, as it always did; here it selects nothing.
        wanted = tuple(entry for entry in classes if isinstance(entry, type))
        return "module" in self._config.mode and (not classes or isinstance(module, wanted))

    def _say_what_matches_nothing(self) -> None:
        config = self._config
        if self._planned or self._weights > 0 or config.dump_last_logits:
            return
        if config.layer_name is not None and not any(map(config.layer_pattern.match, self._names)):
            near = get_close_matches(config.layer_name.replace("*", ""), self._names, n=3, cutoff=0.5)
            hint = f"the nearest are {', '.join(map(repr, near))}" if near else "they begin with 'root'"
            warn_once(
                ("layer_name", config.layer_name),
                f"layer_name {config.layer_name!r} matches no name of this model, and nothing is dumped: {hint}; "
                "'*' stands for any characters, and the whole name must match.",
            )
        elif config.module_list and "module" in config.mode:
            classes = ", ".join(getattr(entry, "__name__", repr(entry)) for entry in config.module_list)
            warn_once(
                ("module_list", classes),
                f"no module that is asked for is one of module_list ({classes}), and nothing is dumped.",
            )

    def _dump_weights(self, model: Any) -> None:
        folder = os.path.join(self._dump_dir, "weights")
        os.makedirs(folder, exist_ok=True)
        for name, parameter in model.named_parameters():
            full_name = printable(f"root.{name}")
            file_name = _capture.torch_tree_name(full_name, len(".pth.tmp")) + ".pth"
            if self._config.layer_pattern.match(full_name):
                self._weights += 1
                self.dumper.write_pth(os.path.join(folder, file_name), parameter.detach())
        self.dumper.flush()

    def _analyze_path(self) -> str:
        stamp_dir = os.path.dirname(os.path.dirname(self._config.dump_dir))
        return os.path.abspath(os.path.join(stamp_dir, "tensor_analyze.csv"))

    def _after_fork(self) -> str:
        """Gives a forked child that runs the model a dump folder of its own."""
        self._config.dump_dir = _dump_dir(self._config.dump_path, os.environ.get("ATB_TIMESTAMP", "0"), self._device)
        # Beside the parent's folder, wherever the process works now.
        self._dump_dir = os.path.join(os.path.dirname(self._dump_dir), os.path.basename(self._config.dump_dir))
        _make_dump_dir(self._dump_dir)
        _write_whole_file(self._dump_dir, "model_tree.json", self._tree)
        self._pid = os.getpid()
        if self._manifest is not None:
            self._manifest = Manifest(self._config, self._dump_dir)
            self._manifest.write(self._dump_dir)
        return str(self._dump_dir)


class _CallAround:
    """Our two hooks around the calls of a module that takes none: in place of its ``_call_impl``.

    Looks like the handle of a hook to whoever takes hooks out for a while.
    """

    id = "_call_impl"

    def __init__(self, module: Any, enter: Any, leave: Any) -> None:
        self._module = weakref.ref(module)
        original = module._call_impl

        def call(*args: Any, **kwargs: Any) -> Any:
            enter(module, args)
            result = original(*args, **kwargs)
            leave(module, args, result)
            return result

        module.__dict__[self.id] = call

    def hooks_dict_ref(self) -> Optional[dict[str, Any]]:
        module = self._module()
        return None if module is None else module.__dict__

    def remove(self) -> None:
        (self.hooks_dict_ref() or {}).pop(self.id, None)


def _token_ids(token_range: list[Any]) -> list[int]:
    """The entries that a token id can be equal to; NumPy integers and 1.0 are such, "1" is not."""
    return [int(float(token)) for token in token_range if isinstance(token, numbers.Real) and float(token).is_integer()]


def _token_text(token_range: list[Any]) -> Any:
    """The ids, or "first-last" for a long run of consecutive ones."""
    ids = _token_ids(token_range)
    if len(ids) > 1000 and ids == list(range(ids[0], ids[0] + len(ids))):
        return f"{ids[0]}-{ids[-1]}"
    return ids


def _class_text(module: Any) -> str:
    """The class name that the module's repr starts with."""
    name = module._get_name()
    return name if isinstance(name, str) else type(module).__name__


def _say_what_hides_modules(model: Any) -> None:
    compiled = type(model).__name__ == "OptimizedModule" or any(
        getattr(module, "_compiled_call_impl", None) is not None or type(module).__name__ == "OptimizedModule"
        for module in model.modules()
    )
    if compiled:
        warn_once(
            "compiled",
            "torch.compile hides modules from hooks: what is compiled already is not dumped. "
            "Register before compiling, or run eagerly (TORCHDYNAMO_DISABLE=1).",
        )
