# SPDX-License-Identifier: Apache-2.0
"""What looks at every operator of a run beside the dump: the scene of the dump JSON."""

from __future__ import annotations

from assay.torch.graph._exception import ExceptionObserver
from assay.torch.graph._files import GraphFolder
from assay.torch.graph._interpreter import OperatorObserver
from assay.torch.graph._model import Graph
from assay.torch.graph._overflow import OverflowObserver
from assay.torch.graph._request import Plan
from assay.torch.graph._watcher import WatcherObserver

__all__ = ["observers_of"]


def observers_of(graph: Graph, plan: Plan, folder: GraphFolder, dumper: OperatorObserver) -> list[OperatorObserver]:
    """The observers that a request asks for; `dumper` is the last of them where operands are planned."""
    request = folder.request
    observers: list[OperatorObserver] = []
    if request.scene == "overflow":
        observers.append(OverflowObserver(graph, plan, folder, request))
    elif request.scene == "watcher":
        observers.append(WatcherObserver(graph, plan, folder, request))
    elif request.scene:
        observers.append(ExceptionObserver(graph, plan, folder, request))
    if plan.operands:
        observers.append(dumper)
    return observers
