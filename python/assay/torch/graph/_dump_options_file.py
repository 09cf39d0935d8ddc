# SPDX-License-Identifier: Apache-2.0
"""The dump JSON that one process leaves beside its dump. This module does not import torch."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any, Optional

from assay._manifest import printable
from assay.torch.graph._model import Graph
from assay.torch.graph._plan import scoped_operators
from assay.torch.graph._request import DumpRequest

__all__ = ["DumpOptionsFile"]


class DumpOptionsFile:
    """The dump JSON that one process leaves beside its dump: the options, and one entry for each compiled graph.

    ``{folder}/dump_options_worldsize{W}_rank{R}_pid{PID}.json``. Given back as ``dump_config_path`` it asks for the
    same dump. Two requests with different options in one folder get two files, the second with ``_2`` in its name.

    Args:
        folder: of this run, where the file goes; must exist.
        request: what :func:`resolve` returned.
        dump_path: what the file names as such: ``{dump_path}/worldsize{W}_global_rank{R}``; None for ``folder``.
        rank: global rank.
        world_size: number of ranks.
    """

    def __init__(
        self,
        folder: str,
        request: DumpRequest,
        *,
        dump_path: Optional[str] = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self._folder = folder
        self._dump_path = folder if dump_path is None else dump_path
        self._request = request
        self._stem = f"dump_options_worldsize{world_size}_rank{rank}_pid"
        self._entries: list[dict[str, Any]] = []
        self._pid = 0
        self._path = ""

    @property
    def path(self) -> str:
        """The file's path; another one in a forked child."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._path = self._free_path()
        return self._path

    def _free_path(self) -> str:
        path = os.path.join(self._folder, f"{self._stem}{self._pid}.json")
        number = 2
        while os.path.exists(path):
            path = os.path.join(self._folder, f"{self._stem}{self._pid}_{number}.json")
            number += 1
        return path

    def add_graph(self, graph: Graph) -> None:
        """Appends the entry of ``graph`` and rewrites the file atomically.

        The entry's ``layer`` is the union of the layers asked for and the names of the operators inside
        ``scope.data_dump()``; without either it is left out, which means the whole model.

        Raises:
            OSError: the file cannot be written.
        """
        layers = [name for entry in self._request.entries if entry.concerns(graph.name) for name in entry.layers]
        layers += scoped_operators(graph)
        entry: dict[str, Any] = {"model_name": graph.name}
        if layers:
            entry["layer"] = list(dict.fromkeys(layers))
        self._entries.append(entry)
        # Bytes of the path that are no UTF-8 become JSON's escapes, from which readers have them again.
        _write_atomically(self.path, printable(json.dumps({"dump": self._content()}, indent=4, ensure_ascii=False)))

    def _content(self) -> dict[str, Any]:
        request = self._request
        content: dict[str, Any] = {
            "dump_path": self._dump_path,
            "dump_mode": request.mode,
            "dump_data": request.data,
            "dump_step": str(request.steps),
            "quant_dumpable": "1" if request.quant_dumpable else "0",
            "dump_list": self._entries,
        }
        return {key: value for key, value in content.items() if value != ""}


def _write_atomically(path: str, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=os.path.basename(path), suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
