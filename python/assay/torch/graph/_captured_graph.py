# SPDX-License-Identifier: Apache-2.0
"""The dump of the captured-graph modes: the result of every node as a ``.pt`` file of torch.save.

    {dir}/worldsize{W}_global_rank{R}/{node}_device_{device}_{count}.pt

Graph inputs are ``arg0_1_...``, the members of an operator with several results ``getitem_...``. The count of a node
is its number of runs so far. Nodes of a second graph have the same names as those of the first: their names begin with
``graph_{N}_`` from the second graph on. Layout: docs/formats/captured-graph.md.
"""

from __future__ import annotations

import io
import itertools
import os
import threading
from typing import Any

import torch
from torch import fx
from torch.fx.node import has_side_effect

from assay.torch.graph._build import is_result_item
from assay.torch.graph._files import GraphFolder, refusal
from assay.torch.graph._interpreter import OperatorObserver, Tensors
from assay.torch.graph._log import logger
from assay.torch.graph._model import Operator

__all__ = ["TensorSaver", "save_tensor"]


class TensorSaver(OperatorObserver):
    """Saves the inputs of the graph and the results of all its nodes."""

    def __init__(self, folder: GraphFolder) -> None:
        self._folder = folder
        self._local = threading.local()
        first = folder.run.entries[0].graph if folder.run.entries else folder.entry.graph
        self._prefix = "" if folder.entry.graph == first else f"{folder.graph.name}_"

    def begin_step(self, step: int) -> None:
        self._local.step = step

    def after(self, operator: Operator, inputs: Tensors, outputs: Tensors) -> None:
        node = operator.key
        if not isinstance(node, fx.Node):
            return
        members = {user.args[1]: user.name for user in node.users if is_result_item(user)}
        for index, output in enumerate(outputs):
            name = members.get(index) if members else node.name if len(outputs) == 1 else f"{node.name}_{index}"
            if output is not None and name is not None:
                self._save(operator, name, output)

    def end_of_step(self) -> None:
        self._folder.end_of_step()

    def _save(self, operator: Operator, name: str, tensor: torch.Tensor) -> None:
        folder = self._folder
        if not folder.run.alive:
            return
        reason = refusal(tensor)
        if reason:
            folder.entry.miss(operator.name, reason)
            return
        path = os.path.join(folder.run.root, f"{self._prefix}{name}_device_{_device(tensor)}_{self._local.step}.pt")
        folder.run.writer.write_array(path, tensor.detach().cpu())
        folder.entry.dumped.add(operator.name)
        folder.entry.steps[self._local.step] = None


def _device(tensor: torch.Tensor) -> int:
    return tensor.device.index or 0


def _pt_bytes(tensor: torch.Tensor) -> bytes:
    # Its own storage: a view would save everything that it is a view of.
    buffer = io.BytesIO()
    torch.save(tensor.detach().cpu().clone(memory_format=torch.contiguous_format), buffer)
    return buffer.getvalue()


# ---- one tensor, by a call in the model ------------------------------------------------------------------------------

_counts: dict[tuple[str, int], Any] = {}
_counts_lock = threading.Lock()


def save_tensor(x: torch.Tensor, save_path: str = "./tensor.pt") -> None:
    """Saves a tensor each time this is reached, inside a compiled function too: the call becomes part of the graph.

    Args:
        x: of any dtype and device.
        save_path: ``d/t.pt`` leaves ``d/t_device_{device}_{count}.pt``, count from 0. Another ending is kept and holds
            the same bytes.

    The folder must exist; what cannot be written is logged and the model goes on.
    """
    torch.ops.assay_graph.save_tensor(x, _operator_text(save_path))


_BYTES_FOLLOW = "\0"  # no path has one


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _operator_text(path: str) -> str:
    """Returns the path as torch takes it, whose texts are UTF-8: where it is none, a character a byte."""
    if path == path.encode(errors="replace").decode():
        return path
    return _BYTES_FOLLOW + os.fsencode(path).decode("latin-1")


def _path_of(text: str) -> str:
    if not text.startswith(_BYTES_FOLLOW):
        return text
    return os.fsdecode(text.removeprefix(_BYTES_FOLLOW).encode("latin-1"))


def _save_now(x: torch.Tensor, save_path: str) -> None:
    save_path = _path_of(save_path)
    device = _device(x)
    with _counts_lock:
        count = next(_counts.setdefault((save_path, device), itertools.count()))
    stem, suffix = os.path.splitext(save_path)
    path = f"{stem}_device_{device}_{count}{suffix or '.pt'}"
    try:
        with open(f"{path}.tmp", "wb") as file:
            file.write(_pt_bytes(x))
        os.replace(f"{path}.tmp", path)
    except (OSError, RuntimeError) as error:
        logger.error("save_tensor cannot write %s: %s", path, error)


def _save_fake(x: torch.Tensor, save_path: str) -> None:
    """While a graph is traced there is nothing to save."""


_library: Any = torch.library.Library("assay_graph", "FRAGMENT")  # type: ignore[no-untyped-call]
_library.define("save_tensor(Tensor x, str save_path) -> ()")
_library.impl("save_tensor", _save_now, "CompositeExplicitAutograd")
_library.impl("save_tensor", _save_fake, "Meta")
has_side_effect(torch.ops.assay_graph.save_tensor.default)
