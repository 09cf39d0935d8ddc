# SPDX-License-Identifier: Apache-2.0
"""Exception scenes: the operands of an operator that raised, written before the error reaches the host.

    {root}/extra-info/data-dump/{device}/exception_info.{stream}.{task}.{time us}                    brief
                                         {operator type}.{stream}.{task}.0.0.{time us}              norm: and attributes
                                         call_stack.custom.{time us}                                detail: brief and it

root: ASCEND_DUMP_PATH, else ASCEND_WORK_PATH, else ``dump_path``, else the current directory. The files are ordinary
dump files (docs/formats/cann-dump.md) with ``dfx_message`` and ``arg_index``, readable for their owner only.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from typing import Optional

import torch

from assay import _capture
from assay.torch.graph._files import GraphFolder
from assay.torch.graph._interpreter import OperatorObserver, Tensors
from assay.torch.graph._log import logger, tell
from assay.torch.graph._model import Graph, Operator
from assay.torch.graph._request import DumpRequest, Plan

__all__ = ["ExceptionObserver", "root_folder"]

_MODE = 0o400
_MAX_MESSAGE = 4096  # characters of the error in the header
_REPLACED = str.maketrans(" ./\\", "____")


def root_folder(configured: str, environment: Mapping[str, str]) -> str:
    """Where exception files go.

    ASCEND_DUMP_PATH before ASCEND_WORK_PATH before `configured` before the current directory. A folder named by the
    environment is created; one that cannot be is skipped with a warning.
    """
    for variable in ("ASCEND_DUMP_PATH", "ASCEND_WORK_PATH"):
        path = environment.get(variable, "")
        if not path:
            continue
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            tell(f"{variable}={path!r} is skipped: {error.strerror}.")
            continue
        if os.access(path, os.W_OK | os.X_OK):
            return os.path.abspath(path)
        tell(f"{variable}={path!r} is skipped: it is not writable.")
    return os.path.abspath(configured or ".")


class ExceptionObserver(OperatorObserver):
    """Writes the operands of the operator that raised. Nothing is written while nothing fails."""

    def __init__(self, graph: Graph, plan: Plan, folder: GraphFolder, request: DumpRequest) -> None:
        self._folder = folder
        self._graph = graph
        self._request = request

    def copies_inputs(self, operator: Operator) -> bool:
        return True

    def failed(self, operator: Operator, inputs: Tensors, error: BaseException) -> None:
        try:
            path = self._write(operator, inputs, error)
        except (OSError, RuntimeError, ValueError, TypeError, MemoryError) as problem:
            logger.error("operands of %s, which raised, cannot be written: %s", operator.name, problem)
            return
        logger.error(
            "%s (%s) of %s raised %s: %s; its operands are in %s",
            operator.name, operator.type, self._graph.name, type(error).__name__, _first_line(error), path,
        )  # fmt: skip

    def _write(self, operator: Operator, inputs: Tensors, error: BaseException) -> str:
        folder = os.path.join(self._root(), "extra-info", "data-dump", self._device())
        brief = self._request.scene != "aic_err_norm_dump"
        task = self._folder.task_id(operator)
        attributes = [] if brief else [(key, str(value)) for key, value in operator.attributes.items()]
        # A writer of its own: the error may come before the run has a folder, and the files must be whole now.
        writer = _capture.GraphDump()
        try:
            made = writer.write_operator(
                folder, "exception_info" if brief else operator.type, operator.name, task, 0,
                [_on_host(tensor) for tensor in inputs], [],
                message=f"{type(error).__name__}: {error}"[:_MAX_MESSAGE], attributes=attributes,
            )  # fmt: skip
        finally:
            writer.close()
        stats = writer.stats()
        if stats["failed"]:
            raise OSError(str(stats["first_error"]))
        time = made.rpartition(".")[2]
        name = f"exception_info.0.{task}.{time}" if brief else f"{_sanitised(operator.type)}.0.{task}.0.0.{time}"
        path = os.path.join(folder, name)
        os.replace(made, path)
        os.chmod(path, _MODE)
        if self._request.scene == "aic_err_detail_dump":
            self._write_call_stack(folder, time, error)
        return path

    def _write_call_stack(self, folder: str, time: str, error: BaseException) -> None:
        path = os.path.join(folder, f"call_stack.custom.{time}")
        with open(path, "x", encoding="utf-8") as file:
            file.write("".join(traceback.format_stack()[:-3]))
            file.write("".join(traceback.format_exception(type(error), error, error.__traceback__)))
        os.chmod(path, _MODE)

    def _root(self) -> str:
        return root_folder(self._request.path, os.environ)

    def _device(self) -> str:
        # Processes without an accelerator share device 0; their ranks keep them apart.
        _, _, index = self._folder.run.device.partition(":")
        return index or str(self._folder.run.rank)


def _on_host(tensor: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    return None if tensor is None else tensor.detach().cpu()


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else ""


def _sanitised(name: str) -> str:
    return name.translate(_REPLACED)
