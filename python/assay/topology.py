# SPDX-License-Identifier: Apache-2.0
"""Topologies: reading ATB's layer and model files and PyTorch's module trees, ONNX for viewers, differences."""

from __future__ import annotations

import dataclasses
import errno
import logging
import os
import tempfile
from collections.abc import Iterator, MutableMapping
from typing import Any, Optional, Union

from assay import _core
from assay.errors import Error, FormatError, make_error

__all__ = [
    "Difference",
    "GraphDiff",
    "GraphFile",
    "Node",
    "Topology",
    "atb_json_to_onnx",
    "graph_diff",
    "read_topology",
]

Path = Union[str, "os.PathLike[str]"]

_log = logging.getLogger("assay")
_FILE_MODE = 0o640  # as all files of a dump
_STYLES = ("flat", "hierarchical", "me")


@dataclasses.dataclass(frozen=True)
class Node:
    """An operation, a graph of operations, or a module.

    Attributes:
        name: ``opName`` ("LinearOperation_0_1_0"), or a module's dotted path.
        type: ``opType``, or the module's class.
        ids: "0_1_0": its place below the layer; "" when the name has none.
        depth: 0 for the root.
        parent: name's index of the enclosing graph, None for the root.
        is_graph: it holds other nodes.
        truncated: the probe did not know all its tensors.
        inputs: names of tensors.
        outputs: names of tensors.
        parameters: by dotted name; null is None.
    """

    name: str
    type: str
    ids: str
    depth: int
    parent: Optional[int]
    is_graph: bool
    truncated: bool
    inputs: list[str]
    outputs: list[str]
    parameters: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class GraphFile:
    """A file that was written.

    Attributes:
        path: the file.
        nodes: number of nodes drawn at the chosen level.
        untyped_tensors: tensors of that level without type and shape.
    """

    path: str
    nodes: int
    untyped_tensors: int


@dataclasses.dataclass(frozen=True)
class Difference:
    """One difference between two structures.

    Attributes:
        kind: "added", "removed", "parameters" or "wiring".
        golden: the node's name in the golden structure, "" where it has none.
        mine: the same in the other one.
        type: its type.
        inside: the graph around it.
        parameters: for "parameters": name -> (golden text, mine text), None where one side has none.
        detail: for "wiring": a sentence.
    """

    kind: str
    golden: str
    mine: str
    type: str
    inside: str
    parameters: dict[str, tuple[Optional[str], Optional[str]]]
    detail: str


@dataclasses.dataclass(frozen=True)
class GraphDiff:
    """What differs between two structures.

    Attributes:
        differences: in the golden structure's order.
        same_nodes: (golden name, mine name) of nodes that stand for each other.
    """

    differences: list[Difference]
    same_nodes: list[tuple[str, str]]

    def __bool__(self) -> bool:
        """True when something differs."""
        return bool(self.differences)


class Topology:
    """The structure of a model or of one layer.

    Example:
        >>> import json, pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "Add_0.json").write_text(json.dumps(
        ...     {"opName": "Add_0", "opType": "Add", "inTensors": ["x", "y"], "outTensors": ["z"]}))
        >>> topology = read_topology(folder / "Add_0.json")
        >>> [node.type for node in topology.nodes()]
        ['Add']
    """

    def __init__(self, graph: _core.Graph):
        self._graph = graph

    @property
    def name(self) -> str:
        """Name of the layer, the model, or the module tree's root."""
        return self._graph.name

    @property
    def notes(self) -> list[str]:
        """What had to be guessed, one sentence each."""
        return self._graph.notes

    def nodes(self, level: Optional[int] = None) -> Iterator[Node]:
        """Yields nodes in file order.

        Args:
            level: None for every node with all graphs; -1 leaves; 0 the root; N graphs at depth N as one node.
        """
        indices = range(self._graph.node_count) if level is None else self._graph.nodes_at_level(level)
        for index in indices:
            yield Node(**self._graph.node(index))

    def to_onnx(self, *, level: int = -1, style: str = "flat", share_functions: bool = False,
                compat: bool = False, document: str = "") -> bytes:  # fmt: skip
        """Returns the bytes of a ModelProto that ``onnx.checker`` accepts.

        Args:
            level: as for :meth:`nodes`; of the flat style only.
            style: "flat", or "hierarchical" with a local function for every graph.
            share_functions: graphs that differ in their numbers only become one function.
            compat: attributes as the original wrote them, FLOATS and STRINGS, zero and false empty.
            document: the graph's description.

        Raises:
            FormatError: unknown style.
        """
        if style not in _STYLES[:2]:
            raise FormatError("Usage", f"style is 'flat' or 'hierarchical', not {style!r}")
        return self._graph.onnx(
            level=level,
            hierarchical=style == "hierarchical",
            share_functions=share_functions,
            compat_attributes=compat,
            document=document,
        )

    def to_model_explorer(self, level: int = -1) -> str:
        """Returns Model Explorer's JSON, node ids equal to the operations' ids."""
        return self._graph.model_explorer(level)


def read_topology(path: Path, cache_csv_file: Optional[MutableMapping[str, Any]] = None) -> Topology:
    """Reads a layer or model file of an ATB dump, or a PyTorch ``model_tree.json`` or ``topology.json``.

    Args:
        path: the file.
        cache_csv_file: a dictionary: types and shapes come from the operation lists of the same process, which are
            kept in it for the next call. None: no shapes.

    Raises:
        FileError: the file cannot be read.
        FormatError: it is no topology; the message has the byte offset.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            text = file.read()
    except OSError as error:
        raise _file_error(error, name) from error
    try:
        graph = _core.read_graph(text)
    except FormatError as error:
        raise make_error(error.code, error.message, name, error.offset) from None
    if cache_csv_file is not None:
        graph.add_shapes(_shapes_beside(name, cache_csv_file))
    return Topology(graph)


def atb_json_to_onnx(
    atb_json_path: Path,
    target_level: int = -1,
    cache_csv_file: Optional[MutableMapping[str, Any]] = None,
    compat: bool = False,
    *,
    model_level: Optional[int] = None,
) -> Optional[GraphFile]:
    """Writes one topology file as ONNX beside it: ``X.json`` becomes ``X.onnx``.

    Args:
        atb_json_path: a layer or model file of an ATB dump. A name that does not end in ``.json`` keeps all of it
            and gets ``.onnx`` behind.
        target_level: -1 all operations, 0 the whole as one node, N graphs at depth N as one node.
        cache_csv_file: a dictionary: types and shapes come from the operation lists of the same process
            (``../../operation_io_tensors/<pid>/operation*.csv``), which it keeps for the next call. None: no shapes.
        compat: attributes as the original wrote them, see :meth:`Topology.to_onnx`.
        model_level: another name of target_level.

    Returns:
        The file written, or None, with an error in the log, when there is no readable file of that name.

    Raises:
        FormatError: the file is no topology, or the target is a file of another kind.
        FileError: the target cannot be written.
    """
    name = os.fspath(atb_json_path)
    if not os.path.isfile(name) or not os.access(name, os.R_OK):
        _log.error("%s is no readable file; nothing was converted", name)
        return None
    level = target_level if model_level is None else model_level
    topology = read_topology(name, cache_csv_file)
    target = (name[: -len(".json")] if name.endswith(".json") else name) + ".onnx"
    content = topology.to_onnx(level=level, compat=compat, document=_document_of(name))
    _write(target, content)
    return GraphFile(target, len(topology._graph.nodes_at_level(level)), topology._graph.untyped_count(level))


def graph_diff(golden: Union[Path, Topology], mine: Union[Path, Topology]) -> GraphDiff:
    """Compares two structures: operations added, removed, with other parameters, or wired otherwise.

    Nodes stand for each other when they have the same type at the same place; names and ids may differ.

    Args:
        golden: a topology or its file.
        mine: the other one.

    Raises:
        FileError, FormatError: as :func:`read_topology`.
    """
    first = golden if isinstance(golden, Topology) else read_topology(golden)
    second = mine if isinstance(mine, Topology) else read_topology(mine)
    differences, same_nodes = _core.graph_diff(first._graph, second._graph)
    return GraphDiff([Difference(**difference) for difference in differences], same_nodes)


def _shapes_beside(json_path: str, cache: MutableMapping[str, Any]) -> _core.ShapeTable:
    process = os.path.dirname(os.path.abspath(json_path))
    folder = os.path.normpath(
        os.path.join(process, os.pardir, os.pardir, "operation_io_tensors", os.path.basename(process))
    )
    known = cache.get(folder)
    if isinstance(known, _core.ShapeTable):
        return known
    shapes = _core.ShapeTable()
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for name in names:
        if name.startswith("operation") and name.endswith(".csv"):
            with open(os.path.join(folder, name), "rb") as file:
                shapes.add_op_csv(file.read())
    cache[folder] = shapes
    return shapes


def _document_of(json_path: str) -> str:
    folder, name = os.path.split(os.path.abspath(json_path))
    process = os.path.basename(folder)
    of_process = f" of process {process}" if process.replace("_", "").isdigit() else ""
    return f"Topology file {name}{of_process}"


def _write(path: str, content: bytes) -> None:
    """Replaces an ONNX file or writes a new one; never over anything else."""
    try:
        if os.path.exists(path):
            with open(path, "rb") as file:
                first = file.read(1)
            if first not in (b"", b"\x08", b"\x3a"):  # ir_version in ours, graph first in the original's
                raise FormatError("Usage", "is there already and is another kind of file; it was left alone", path)
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(path) or ".", delete=False) as temporary:
            try:
                temporary.write(content)
                temporary.flush()
                os.fchmod(temporary.fileno(), _FILE_MODE)
                os.replace(temporary.name, path)
            except BaseException:
                os.unlink(temporary.name)
                raise
    except FormatError:
        raise
    except OSError as error:
        raise _file_error(error, path) from error


def _file_error(error: OSError, path: str) -> Error:
    codes: dict[type, str] = {FileNotFoundError: "NotFound", PermissionError: "Permission"}
    code = "NoSpace" if error.errno == errno.ENOSPC else codes.get(type(error), "Io")
    return make_error(code, error.strerror or str(error), path)
