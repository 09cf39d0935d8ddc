# SPDX-License-Identifier: Apache-2.0
"""Watcher (``dump_scene=watcher``): which operator tramples on the output of another one.

Every watched operator's outputs are written once, kept alive, and looked at again after each layer operator. When
their bytes have changed the new content is written as ``{type of W}.{L}_To_{W}...`` and the first such L is logged.

Keeping an output alive keeps its memory from being used again, so an operator that writes into memory which was
already given back is not seen: docs/graph/watcher.md.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Optional

import torch

from assay.torch.graph._files import GraphFolder
from assay.torch.graph._interpreter import OperatorObserver, Tensors
from assay.torch.graph._log import logger
from assay.torch.graph._model import Graph, Operator
from assay.torch.graph._request import DumpRequest, OperandMask, Plan

__all__ = ["WatcherObserver", "same_bytes"]


@dataclass
class _Watched:
    operator: Operator
    outputs: Tensors  # the program's own tensors
    content: Tensors  # their content when they were last looked at


class _Local(threading.local):
    def __init__(self) -> None:
        self.step = 0
        self.watched: list[_Watched] = []
        self.unseen: list[str] = []  # operators that ran since the last look


class WatcherObserver(OperatorObserver):
    """Watches the outputs of ``plan.watched`` after each of ``plan.layers`` in one graph."""

    def __init__(self, graph: Graph, plan: Plan, folder: GraphFolder, request: DumpRequest) -> None:
        self._folder = folder
        self._graph = graph
        self._watched = frozenset(plan.watched)
        self._layers = frozenset(plan.layers)
        self._local = _Local()

    def begin_step(self, step: int) -> None:
        self._local.step = step
        self._local.watched, self._local.unseen = [], []

    def after(self, operator: Operator, inputs: Tensors, outputs: Tensors) -> None:
        local = self._local
        local.unseen.append(operator.name)
        if operator.name in self._layers:
            for watched in local.watched:
                self._look(watched, operator)
            local.unseen.clear()
        if operator.name in self._watched:
            self._folder.write_operator(operator, [], outputs, local.step, OperandMask(False, True))
            local.watched.append(_Watched(operator, list(outputs), [_copy(tensor) for tensor in outputs]))

    def end_of_step(self) -> None:
        self._local.watched, self._local.unseen = [], []
        self._folder.end_of_step()

    def _look(self, watched: _Watched, layer: Operator) -> None:
        changed = [
            index
            for index, (now, before) in enumerate(zip(watched.outputs, watched.content))
            if now is not None and before is not None and not same_bytes(now, before)
        ]
        if not changed:
            return
        local = self._local
        victim = watched.operator
        watched.content = [_copy(tensor) for tensor in watched.outputs]
        between = [name for name in local.unseen if name not in (layer.name, victim.name)]
        logger.error(
            "watcher: step %d, %s: output %s of %s changed %s",
            local.step, self._graph.name, ", ".join(map(str, changed)), victim.name, _when(layer, between),
        )  # fmt: skip
        self._folder.write_operator(
            victim, [], watched.content, local.step, OperandMask(False, True),
            op_name=f"{layer.name}_To_{victim.name}", task_id=self._folder.task_id(layer),
        )  # fmt: skip


def _when(layer: Operator, between: list[str]) -> str:
    declared = getattr(getattr(layer.key, "target", None), "_schema", None)
    if between:
        shown = ", ".join(between[-5:]) + (", ..." if len(between) > 5 else "")
        return f"up to {layer.name} ({layer.type}); the operators {shown} ran since the last look"
    if declared is not None and declared.is_mutable:
        return f"in {layer.name} ({layer.type}), which says that it overwrites an input"
    where = f" ({layer.source})" if layer.source else ""
    return f"in {layer.name} ({layer.type}), which does not say that it overwrites anything{where}"


def _copy(tensor: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    return None if tensor is None else tensor.detach().clone()


def same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors of one shape and dtype hold the same bits; NaN equals itself, 0.0 differs from -0.0."""
    if left.is_complex():
        left, right = torch.view_as_real(left.resolve_conj()), torch.view_as_real(right.resolve_conj())
    if left.is_neg() or right.is_neg():
        left, right = left.resolve_neg(), right.resolve_neg()
    return torch.equal(_bytes(left), _bytes(right))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
