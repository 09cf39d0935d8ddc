# SPDX-License-Identifier: Apache-2.0
"""What looks at the operators of a run: the dump itself, and the scene of the dump JSON."""

from __future__ import annotations

import json
import threading
from typing import Any

from assay.torch.graph._exception import ExceptionObserver
from assay.torch.graph._files import GraphFolder
from assay.torch.graph._interpreter import OperatorObserver, Tensors
from assay.torch.graph._model import Graph, Operator
from assay.torch.graph._overflow import OverflowObserver, run_time_dtype
from assay.torch.graph._request import Plan
from assay.torch.graph._watcher import WatcherObserver

__all__ = ["DumpObserver", "observers_of"]


class DumpObserver(OperatorObserver):
    """Hands the planned operands of every operator to the graph's folder; outputs of a group name their origin."""

    def __init__(self, folder: GraphFolder) -> None:
        self._folder = folder
        self._step = threading.local()

    def wants(self, operator: Operator) -> bool:
        return self._folder.mask(operator) is not None

    def begin_step(self, step: int) -> None:
        self._step.number = step

    def copies_inputs(self, operator: Operator) -> bool:
        mask = self._folder.mask(operator)
        return mask is not None and mask.inputs

    def after(self, operator: Operator, inputs: Tensors, outputs: Tensors) -> None:
        if self._folder.mask(operator) is not None:
            self._folder.write_operator(operator, inputs, outputs, self._step.number, **_origins(operator, outputs))

    def end_of_step(self) -> None:
        self._folder.end_of_step()


def _origins(operator: Operator, outputs: Tensors) -> dict[str, Any]:
    if not operator.members:
        return {}
    origins = [
        (
            desc.attributes["_datadump_origin_name"],
            desc.attributes["_datadump_origin_output_index"],
            run_time_dtype(out.dtype),
        )
        if out is not None
        else None
        for desc, out in zip(operator.output_desc, outputs)
    ]
    return {"origins": origins, "attributes": [("_datadump_original_op_names", json.dumps(operator.members))]}


def observers_of(graph: Graph, plan: Plan, folder: GraphFolder) -> list[OperatorObserver]:
    """The observers that a request asks for; the dump is the last of them where operands are planned."""
    request = folder.request
    observers: list[OperatorObserver] = []
    if request.scene == "overflow":
        observers.append(OverflowObserver(graph, plan, folder, request))
    elif request.scene == "watcher":
        observers.append(WatcherObserver(graph, plan, folder, request))
    elif request.scene:
        observers.append(ExceptionObserver(graph, plan, folder, request))
    if plan.operands and folder.run.is_native:
        from assay.torch.graph._native import NativeObserver

        observers.append(NativeObserver(folder))
    elif plan.operands:
        observers.append(DumpObserver(folder))
    return observers
