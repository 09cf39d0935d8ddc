# SPDX-License-Identifier: Apache-2.0
# The native half of the PyTorch capture (src/capture/torch). Private: use assay.capture and assay.torch.strict.
from collections.abc import Sequence
from typing import Any, Callable, Optional

def look(tensor: Any) -> dict[str, Any]: ...
def use_exchange_table(use: bool) -> bool: ...
def host_threads(ignore_load: bool) -> bool: ...
def device_statistics_source() -> str: ...
def utc_now() -> str: ...
def torch_tree_name(name: str, suffix_bytes: int = ..., /) -> str: ...
def write_file(path: str, text: str, /) -> None: ...
def claim_run(path: str, tool: str, host_json: str, config_json: str, job_id: str, /) -> tuple[str, bool]: ...
def write_manifest(
    session: Session,
    path: str,
    run_id: str,
    tool: str,
    host_json: str,
    config_json: str,
    started: str,
    finished: Optional[str],
    planned_captured: tuple[int, int],
    missed: list[tuple[str, str, int]],
    stopped: str,
    /,
) -> None: ...
def set_watcher(function: Optional[Callable[[Any, tuple[Any, ...], Optional[dict[str, Any]]], None]], /) -> None: ...
def in_watched_call() -> bool: ...
def is_captured(module: Any, /) -> bool: ...

class ModuleCall:
    def install(self, attribute: str, /) -> None: ...
    def remove(self) -> None: ...

class GraphRun:
    """One run of a compiled graph; the functions below tell it of its operators, by their numbers."""

    def end(self) -> None: ...

def graph_input(run: GraphRun, number: int, value: Any, /) -> None: ...
def graph_before(run: GraphRun, number: int, /, *inputs: Any) -> None: ...
def graph_after(run: GraphRun, number: int, result: Any, /, *inputs: Any) -> None: ...
def graph_wrote(run: GraphRun, /, *tensors: Any) -> None: ...

class Session:
    def __new__(
        cls,
        folder: str,
        *,
        data: str = ...,
        inputs: bool = ...,
        outputs: bool = ...,
        caches: bool = ...,
        digest: bool = ...,
        verify: bool = ...,
        wanted: Optional[Callable[[int], bool]] = ...,
        device: Any = ...,
        force_device: bool = ...,
        queue_bytes: int = ...,
        drop: bool = ...,
        disk_limit: Optional[int] = ...,
        threads: int = ...,
        outermost: bool = ...,
        operators: bool = ...,
        run_id: str = ...,
    ) -> Session: ...
    live: bool
    def add_node(self, name: str, type: str, is_root: bool, wanted: bool, opaque: bool = ..., /) -> int: ...
    def add_leaf(self, name: str, tensor: Any, /) -> None: ...
    def module_call(self, module: Any, node: int, /) -> ModuleCall: ...
    def add_graph_operator(
        self,
        node: int,
        inputs: bool,
        outputs: bool,
        left_out_inputs: tuple[bool, ...],
        left_out_outputs: tuple[bool, ...],
        constants: tuple[tuple[int, Any], ...],
        /,
    ) -> int: ...
    def graph_run(self, graph: int, step: int, /) -> GraphRun: ...
    def weights(self, entries: list[tuple[int, str, Any, bool]], /) -> None: ...
    def flush(self) -> None: ...
    def wait_for_collectives(self) -> None: ...
    def close(self) -> None: ...
    def stats(self) -> dict[str, Any]: ...
    def executed(self) -> list[int]: ...
    def tallies(self) -> list[tuple[int, int]]: ...
    def unread(self) -> dict[str, int]: ...
    def watched_by(self, functions: bool, /) -> str: ...

class GraphDump:
    """The files of a graph-mode dump: docs/formats/ge-tree.md. One thread writes them, behind a bounded queue.

    Args:
        queue_bytes: bytes of tensors that may wait to be written.
        drop: a full queue drops an operator and counts it; otherwise the caller waits.
        threads: how many threads the host computes with, for statistics of large tensors; 0 leaves that as it is.
    """

    def __new__(cls, *, queue_bytes: int = ..., drop: bool = ..., threads: int = ...) -> GraphDump: ...
    live: bool
    """False when nothing more is written: closed, in a forked child, disk full."""
    def write_operator(
        self,
        folder: str,
        op_type: str,
        op_name: str,
        task_id: int,
        stream_id: int,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        *,
        origins: Sequence[Optional[tuple[str, int, int]]] = ...,
        left_out: Sequence[tuple[str, int]] = ...,
        statistics: Optional[Sequence[str]] = ...,
        message: str = ...,
        attributes: Sequence[tuple[str, str]] = ...,
        extra_name: str = ...,
    ) -> str:
        """Queues one operator's dump file, or the table of its statistics. The tensors may be overwritten afterwards.

        An operand that cannot be read (sparse, fake, on a device ...) is left out of the file and told by
        :meth:`take_missed`; the others keep their indices.

        Args:
            folder: absolute; made when the file is written.
            op_type, op_name: parts of the file's name, some characters replaced; the header has the name as it is.
            task_id, stream_id: further parts of the name.
            inputs, outputs: tensors in host memory; None where an optional operand is absent.
            origins: for each output the tensor before fusion: name, output index, data type in run-time numbering.
            left_out: operands that are not stored, such as ``("input", 0)``.
            statistics: names such as ``"Max"`` for a table of these; empty for the six of the classic header.
            message, attributes: go into the header.
            extra_name: stands in the file's name for ``op_name``.

        Returns:
            The file's path; ``""`` when the operator was dropped or nothing is written any more.

        Raises:
            TypeError, ValueError: an argument of the wrong kind, a path that is not absolute, an unknown statistic.
        """
    def write_array(self, path: str, tensor: Any, *, widen_bfloat16: bool = ...) -> None:
        """Queues one tensor as ``.npy``, or in torch.save's format when the path ends in ``.pth`` or ``.pt``.

        bfloat16 is stored as ``<V2``, as ml_dtypes does, or as float32 when ``widen_bfloat16``. A tensor that cannot
        be read, or that the format cannot hold, is told by :meth:`take_missed`.
        """
    def write_bytes(self, path: str, data: bytes) -> None:
        """Queues a whole file, which replaces one that is there."""
    def take_missed(self) -> list[tuple[str, str, str, int]]:
        """(folder, operator or file name, reason, count) of what could not be read since the last call."""
    def flush(self) -> None: ...
    def close(self) -> None: ...
    def stats(self) -> dict[str, Any]:
        """``files``, ``bytes`` of their content, ``dropped``, ``failed``, ``first_error``, ``waited_ms``."""

# The strict mode's functions are typed where they are used.
def __getattr__(name: str) -> Any: ...
