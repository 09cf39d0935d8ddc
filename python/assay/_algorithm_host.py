# SPDX-License-Identifier: Apache-2.0
"""Runs the comparing algorithms of `assay compare -alg FILE.py:FUNC` in a process of their own.

The native command holds the text of this file and starts it with `python -c`; it must run on any Python from 3.8 on
and need nothing of assay. src/compare/python_algorithms.cpp is the other side.

    argv       file descriptors: socket, golden, mine
    socket     one JSON object a line, a request and its answer in turn
    golden, mine   files without a name that hold the float32 values of the pair being compared

    {"load": "/d/f.py", "directory": "/d", "function": "F", "spec": "f.py:F"}   {"ok": true} | {"error": "sentence"}
    {"call": 0, "golden": 64, "mine": 64}     {"type": "float", "value": "0.5", "message": ""} | {"error": "sentence"}

Numbers travel as text, because JSON has neither NaN nor infinities. A function gets flat arrays that are valid during
the call; what it writes into them stays in this process.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import mmap
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

FLOAT_BYTES = 4
MAX_SENTENCE = 1000


class Refusal(Exception):
    """What the user is told instead of a result."""


def one_line(text: str) -> str:
    return " ".join(text.split())[:MAX_SENTENCE]


def import_numpy() -> Any:
    try:
        import numpy
    except ImportError as problem:
        raise Refusal(
            f"the Python at {sys.executable} has no numpy, which custom algorithms need; "
            "name another one in the environment variable ASSAY_PYTHON"
        ) from problem
    return numpy


def import_torch() -> Any:
    import torch

    return torch


# ---- one function of the user ----


def annotated_kind(function: Callable[..., Any]) -> str:
    """'torch', 'numpy', or '' when the parameters say neither."""
    kinds = set()
    for parameter in inspect.signature(function).parameters.values():
        annotation = parameter.annotation
        if not isinstance(annotation, str):
            annotation = f"{getattr(annotation, '__module__', '')}.{getattr(annotation, '__qualname__', '')}"
        if "torch" in annotation or annotation == "Tensor":
            kinds.add("torch")
        elif "numpy" in annotation or "ndarray" in annotation:
            kinds.add("numpy")
    return kinds.pop() if len(kinds) == 1 else ""


def uses_torch(module: Any) -> bool:
    """True when the module has torch, or something of torch, among its names."""
    for value in vars(module).values():
        home = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
        if isinstance(home, str) and home.split(".")[0] == "torch":
            return True
    return False


def kinds_to_try(function: Callable[..., Any], module: Any) -> list[str]:
    """What the function is called with; the second only when the first raises on the trial call."""
    annotated = annotated_kind(function)
    if annotated:
        return [annotated]
    return ["torch"] if uses_torch(module) else ["numpy", "torch"]


def plain_result(name: str, result: Any) -> tuple[Any, str]:
    complaint = f"function {name} should return 2 value in type ((float, int, str), str)"
    if not isinstance(result, (list, tuple)) or len(result) != 2:
        raise Refusal(complaint)
    value, message = result
    numpy = import_numpy()
    if isinstance(value, numpy.generic):
        value = value.item()
    if not isinstance(value, (float, int, str)) or not isinstance(message, str):
        raise Refusal(complaint)
    return value, message


class Algorithm:
    def __init__(self, name: str, function: Callable[..., Any], module: Any):
        self.name = name
        self.function = function
        self.kind = self.choose_kind(kinds_to_try(function, module))

    def choose_kind(self, kinds: list[str]) -> str:
        numpy = import_numpy()
        problems = []
        for kind in kinds:
            try:
                ones = [numpy.ones(1, dtype=numpy.float32) for _ in range(2)]
                result = self.function(*self.arguments(kind, ones))
            except BaseException:
                problems.append(traceback.format_exc())
                continue
            plain_result(self.name, result)
            return kind
        sys.stderr.write("".join(problems))
        raise Refusal(f"function {self.name} should recieve 2 torch tensor parameters")

    @staticmethod
    def arguments(kind: str, arrays: list[Any]) -> list[Any]:
        if kind == "numpy":
            return arrays
        torch = import_torch()
        return [torch.from_numpy(array) for array in arrays]

    def __call__(self, arrays: list[Any]) -> tuple[Any, str]:
        return plain_result(self.name, self.function(*self.arguments(self.kind, arrays)))


# ---- loading ----


class Loader:
    def __init__(self) -> None:
        self.modules: dict[str, Any] = {}

    def load(self, request: dict[str, Any]) -> Algorithm:
        import_numpy()
        path = request["load"]
        name = request["function"]
        module = self.module(path, request["directory"])
        function = getattr(module, name, None)
        if function is None:
            raise Refusal(f"getting {name} from {request['spec']} failed")
        try:
            count = len(inspect.signature(function).parameters)
        except (TypeError, ValueError):
            count = -1
        if count != 2:
            raise Refusal(f"function {name} signature should have exact two parameters")
        return Algorithm(name, function, module)

    def module(self, path: str, shown_directory: str) -> Any:
        if path in self.modules:
            return self.modules[path]
        name = os.path.basename(path)[: -len(".py")]
        is_free = name not in sys.modules
        directory = os.path.dirname(path)
        if directory not in sys.path:
            sys.path.append(directory)
        try:
            # By its path: a file called test.py must not lose against the standard library.
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            if is_free:
                sys.modules[name] = module
            spec.loader.exec_module(module)
        except BaseException as problem:
            if is_free:
                sys.modules.pop(name, None)
            traceback.print_exc()
            raise Refusal(f"import {name} from {shown_directory} failed") from problem
        self.modules[path] = module
        return module


# ---- requests ----


class Host:
    def __init__(self, golden_fd: int, mine_fd: int):
        self.fds = (golden_fd, mine_fd)
        self.loader = Loader()
        self.algorithms: list[Algorithm] = []

    def array(self, fd: int, count: int) -> Any:
        numpy = import_numpy()
        if count == 0:
            return numpy.empty(0, dtype=numpy.float32)
        # A private mapping: nothing is copied before the function writes.
        return numpy.frombuffer(mmap.mmap(fd, count * FLOAT_BYTES, access=mmap.ACCESS_COPY), dtype=numpy.float32)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "load" in request:
            self.algorithms.append(self.loader.load(request))
            return {"ok": True}
        algorithm = self.algorithms[request["call"]]
        arrays = [self.array(fd, request[side]) for fd, side in zip(self.fds, ("golden", "mine"))]
        try:
            value, message = algorithm(arrays)
        except Refusal:
            raise
        except BaseException as problem:
            raise Refusal(f"{algorithm.name}: {type(problem).__name__}: {problem}") from problem
        if isinstance(value, str):
            return {"type": "str", "value": value, "message": message}
        if isinstance(value, int):
            return {"type": "int", "value": str(int(value)), "message": message}
        return {"type": "float", "value": repr(float(value)), "message": message}

    def answer_line(self, line: str) -> str:
        try:
            return json.dumps(self.answer(json.loads(line)))
        except Refusal as refusal:
            return json.dumps({"error": one_line(str(refusal))})


def end_with_parent(parent: int) -> None:
    """Ends this process once its parent is gone, even in the middle of a function that never returns."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def main() -> None:
    socket_fd, golden_fd, mine_fd = (int(text) for text in sys.argv[1:4])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command decides what an interrupt means
    threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()
    # What functions print is for people: standard output belongs to the command's report.
    os.dup2(2, 1)
    for entry in ("", os.getcwd()):
        if entry in sys.path[:1]:
            del sys.path[0]
    host = Host(golden_fd, mine_fd)
    with socket.socket(fileno=socket_fd) as connection, connection.makefile("rw", encoding="utf-8") as stream:
        for line in stream:
            stream.write(host.answer_line(line) + "\n")
            stream.flush()


if __name__ == "__main__":
    main()
