# SPDX-License-Identifier: Apache-2.0
"""The FX dump: every input and output of every node as ``.npy``.

    {path}/worldsize{W}_global_rank{R}/graph_{N}/{step}/{node}-{target}.INPUT.{i}[.{j}].{time}.npy
                                                        {node}-{target}.INPUT.{keyword}[.{j}].{time}.npy
                                                        {node}-{target}.OUTPUT.{i}.{time}.npy

``i`` counts the positional arguments, numbers and lists of numbers included; ``j`` the tensors of a list. The time is
UTC with microseconds, one for all files of a node. bfloat16 and 8-bit floats, which NumPy lacks, are widened to float32
without rounding; ``dtypes.json`` in the folder of the graph names what they were. Layout: docs/formats/fx-tree.md.
"""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Iterator
from typing import Any, Callable, Optional

import numpy as np
import torch
from torch import fx

from assay.torch._device import DevicePath
from assay.torch.graph._files import GraphFolder, refusal
from assay.torch.graph._graph_text import utc_stamp
from assay.torch.graph._interpreter import OperatorObserver, Tensors
from assay.torch.graph._model import Operator
from assay.torch.graph._names import pack_name

__all__ = ["FxDumper"]

_WIDENED = frozenset(
    getattr(torch, name)
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
    if hasattr(torch, name)
)

Filter = Callable[[fx.Node], Optional[fx.Node]]


class FxDumper(OperatorObserver):
    """Writes the arguments of a node before it runs and its results afterwards.

    Args:
        folder: of the graph.
        keep: the user's filter: node -> a node, whose name the files get, or None for a node that is not dumped.
    """

    def __init__(self, folder: GraphFolder, keep: Optional[Filter]) -> None:
        self._folder = folder
        self._keep = keep
        self._local = threading.local()
        self._dtypes: dict[str, str] = {}

    def begin_step(self, step: int) -> None:
        self._local.step = step
        self._local.stem = ""

    def before(self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._local.stem = ""
        node = operator.key
        if not isinstance(node, fx.Node):
            return
        kept = node if self._keep is None else self._keep(node)
        if kept is None:
            return
        target = pack_name(node.target)[2]
        self._local.stem = f"{kept.name}-{target}".replace("/", "_")
        self._local.time = utc_stamp()
        for name, value in _arguments(args, kwargs):
            self._save(operator, f"INPUT.{name}", value)

    def after(self, operator: Operator, inputs: Tensors, outputs: Tensors) -> None:
        node = operator.key
        if not self._local.stem or not isinstance(node, fx.Node) or not node.op.startswith("call_"):
            return
        for index, output in enumerate(outputs):
            if output is not None:
                self._save(operator, f"OUTPUT.{index}", output)
        self._local.stem = ""

    def end_of_step(self) -> None:
        self._write_dtypes()
        self._folder.end_of_step()

    def _save(self, operator: Operator, slot: str, value: Any) -> None:
        folder = self._folder
        if not folder.run.alive:
            return
        name = f"{self._local.stem}.{slot}"
        directory = os.path.join(folder.run.root, folder.graph.name, str(self._local.step))
        path = os.path.join(directory, f"{name}.{self._local.time}.npy")
        try:
            if isinstance(value, torch.Tensor):
                self._save_tensor(operator, name, path, value)
            else:
                folder.run.writer.write_bytes(path, _npy_of(value))
        except (ValueError, TypeError, RuntimeError, OSError, MemoryError) as error:
            folder.entry.miss(operator.name, f"{slot}: {type(error).__name__}: {error}")
            return
        folder.entry.dumped.add(operator.name)
        folder.entry.steps[self._local.step] = None

    def _save_tensor(self, operator: Operator, name: str, path: str, tensor: torch.Tensor) -> None:
        reason = refusal(tensor)
        if reason:
            self._folder.entry.miss(operator.name, reason)
            return
        if tensor.dtype in _WIDENED:
            self._note_dtype(name, tensor.dtype)
            tensor = tensor.detach().to(torch.float32)
        if tensor.device.type != "cpu":
            device = DevicePath(stats=False, data=True)
            if refused := device.send(tensor):
                self._folder.entry.miss(operator.name, refused)
                return
            ((_, copy),) = device.fetch()
            assert copy is not None
            tensor = copy
        self._folder.run.writer.write_array(path, tensor.detach())

    def _note_dtype(self, name: str, dtype: torch.dtype) -> None:
        if name not in self._dtypes:
            self._dtypes[name] = str(dtype).removeprefix("torch.")
            self._local.new_dtypes = True

    def _write_dtypes(self) -> None:
        # Later steps have the same nodes, so this happens in the first ones only.
        if not getattr(self._local, "new_dtypes", False) or not self._folder.run.alive:
            return
        self._local.new_dtypes = False
        path = os.path.join(self._folder.run.root, self._folder.graph.name, "dtypes.json")
        self._folder.run.writer.write_bytes(path, (json.dumps(self._dtypes, indent=1) + "\n").encode())


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    named = [*((str(index), value) for index, value in enumerate(args)), *kwargs.items()]
    for name, value in named:
        if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
            for index, item in enumerate(value):
                if item is not None:
                    yield f"{name}.{index}", item
        elif value is not None:
            yield name, value


def _npy_of(value: Any) -> bytes:
    """A ``.npy`` of a number, a list of numbers, or the text of anything else."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        value = value.node.hint
    try:
        array = np.array(value)
    except Exception:  # what an argument's conversion raises is its own affair
        array = np.array(str(value))
    if array.dtype.hasobject:
        array = np.array(str(value))
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
