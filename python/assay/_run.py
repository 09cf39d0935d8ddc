# SPDX-License-Identifier: Apache-2.0
"""Captured runs, their records, and single tensors: what ``assay.open`` and its neighbours return."""

from __future__ import annotations

import dataclasses
import fnmatch
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Optional, Union, overload

import numpy as np

from assay import _core
from assay._page import show_page
from assay._pandas import pandas_or_raise
from assay._run_fragment import run_fragment
from assay._selection import Selection, choose, no_such_name
from assay.errors import Error, FormatError

if TYPE_CHECKING:
    import pandas
    import torch

__all__ = ["Coverage", "Record", "Records", "Run", "Selection", "TreeNode", "digest", "open", "read_tensor", "stats"]

Path = Union[str, "os.PathLike[str]"]


@dataclasses.dataclass(frozen=True)
class TreeNode:
    """A module or operator of the captured program.

    Attributes:
        name: dotted path, as in the records' ``node``.
        type: class name.
        children: the modules inside it.
        source: file and line of its code, ``"transformers/models/llama/modeling_llama.py:312"``; empty when unknown.
    """

    name: str
    type: str
    children: tuple[TreeNode, ...]
    source: str = ""

    def walk(self) -> Iterator[TreeNode]:
        """Yields the node and everything below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclasses.dataclass(frozen=True)
class Operation:
    """One execution of an operation, with what it was told besides tensors.

    Attributes:
        rank: rank of the process, from 0.
        step: token id.
        node: as in the records.
        op_type: ``"LinearOperation"``.
        parameters: JSON as the host wrote it.
    """

    rank: int
    step: int
    node: str
    op_type: str
    parameters: str


@dataclasses.dataclass(frozen=True)
class Coverage:
    """What was planned, captured and lost.

    Attributes:
        complete: False when the host was killed or is still writing.
        planned: number of nodes, in an ATB dump of tensors; 0 when the layout does not say.
        captured: the same of what is there.
        missed: tuples of node, reason and count.
    """

    complete: bool
    planned: int
    captured: int
    missed: tuple[tuple[str, str, int], ...]


class Record:
    """One tensor of one execution of one node. Nothing is read from its file until it is asked for.

    Attributes:
        rank: rank of the process, from 0.
        step: token id; -1 for weights and for folders whose name is no number.
        step_name: name of the step's folder: ``"0"``, ``"weights"``.
        node: dotted path of the module or operator.
        name: node, role and slot: ``"model.norm.input.0"``, ``"model.norm.output"``, ``"model.norm.weight"``.
        op_type: class name; empty when it is not known.
        role: ``"input"``, ``"output"``, ``"weight"`` or ``"buffer"``.
        slot: path inside the arguments or the result: ``"0"``, ``"1.0"``, ``"kwargs.mask"``, ``""``.
        call: which call of the node within the step.
        order: position in execution order within the run.
        value: text of an argument that is no tensor; empty otherwise.
        memory_format: order of the values in memory where it is not the plain one, such as ``"fractal_nz"``;
            the shape is that of the memory.
        problem: why the tensor is missing or unusable; empty when all is well.
        file: path of the file that holds the bytes, or None.
        recorded_stats: statistics that the capture wrote, or None.
    """

    def __init__(self, core: _core.Record):
        self._core = core
        self.rank: int = core.rank
        self.step: int = core.step
        self.step_name: str = core.step_name
        self.node: str = core.node
        self.name: str = core.name
        self.op_type: str = core.op_type
        self.role: str = core.role
        self.slot: str = core.slot
        self.call: int = core.call
        self.order: int = core.order
        self.value: str = core.value
        self.memory_format: str = core.memory_format
        self.problem: str = core.problem
        self.file: Optional[str] = core.file
        self.recorded_stats: Optional[_core.TensorStats] = core.recorded_stats

    @property
    def dtype_name(self) -> Optional[str]:
        """Element type, for example ``"bfloat16"``; read from the file's header when the records do not say."""
        return self._core.dtype

    @property
    def shape(self) -> Optional[tuple[int, ...]]:
        """Sizes; read from the file's header when the records do not say."""
        return self._core.shape

    def _type_and_shape(self) -> tuple[Optional[str], Optional[tuple[int, ...]], str]:
        """The third is why the first two are not known: one unreadable file is one row that says so."""
        try:
            return self.dtype_name, self.shape, self.problem
        except Error as error:
            return None, None, self.problem or str(error)

    @property
    def strides(self) -> Optional[tuple[int, ...]]:
        """Steps in elements, as the host had them."""
        return self._core.strides

    @property
    def stats(self) -> _core.TensorStats:
        """Recorded statistics, otherwise computed from the values.

        Raises:
            assay.Error: there are neither statistics nor readable bytes.
        """
        return self.recorded_stats or self._core.load().stats()

    @property
    def digest(self) -> str:
        """XXH3-128 of the elements in C order, 32 hex digits; recorded, otherwise computed.

        Raises:
            assay.Error: there are neither a digest nor readable bytes.
        """
        return self._core.recorded_digest or self._core.load().digest()

    def load(self) -> np.ndarray:
        """The same as :meth:`numpy`."""
        return self.numpy()

    def numpy(self) -> np.ndarray:
        """Maps the tensor.

        Returns:
            A read-only array over the mapped file; no bytes are copied, and the array keeps the mapping alive.
            bfloat16 and float8 have the types of ``ml_dtypes`` when that is installed; otherwise they come as
            unsigned integers and ``dtype_name`` tells what they mean. Packed 4-bit types come as a 1-d array of
            bytes. A tensor saved with torch's lazy conjugate or negative bit is copied. When another process
            makes the file shorter, what it lost becomes zeros in arrays that exist; calls of assay raise.

        Raises:
            assay.Error: the record has no bytes, or they cannot be read.
        """
        return _to_numpy(self._core.load())

    def torch(self) -> torch.Tensor:
        """Copies the tensor into torch.

        Returns:
            A CPU tensor of its own memory, with the original element type: writing to it is safe.

        Raises:
            assay.Error: the record has no bytes, or they cannot be read; or torch has no such type.
            ImportError: torch is not installed.
        """
        return _to_torch(self._core.load())

    def __repr__(self) -> str:
        slot = f" {self.slot}" if self.slot else ""
        return f"<Record step {self.step_name} {self.node} {self.role}{slot}>"


class Records(Sequence[Record]):
    """Records in execution order: a sequence that makes each record when it is asked for."""

    def __init__(self, core: _core.Run, indices: Optional[Sequence[int]] = None):
        self._core = core
        self._indices: Sequence[int] = range(len(core)) if indices is None else indices

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Records: ...
    def __getitem__(self, index: Union[int, slice]) -> Union[Record, Records]:
        if isinstance(index, slice):
            return Records(self._core, self._indices[index])
        return Record(self._core.record(self._indices[index]))

    def select(
        self,
        node: Optional[str] = None,
        *,
        step: Optional[int] = None,
        rank: Optional[int] = None,
        role: Optional[str] = None,
        slot: Optional[str] = None,
    ) -> Records:
        """The records that fit every given condition.

        Args:
            node: name or pattern such as ``"*.mlp"``.
            step: token id.
            rank: rank of the process.
            role: ``"input"``, ``"output"``, ``"weight"`` or ``"buffer"``.
            slot: path inside the arguments or the result.

        Example:
            >>> import assay, numpy, os, tempfile
            >>> folder = tempfile.mkdtemp()
            >>> numpy.save(os.path.join(folder, "x.npy"), numpy.arange(3.0))
            >>> [record.node for record in assay.open(folder).records.select("x*")]
            ['x']
        """
        kept = []
        for index in self._indices:
            record = self._core.record(index)
            if node is not None and not fnmatch.fnmatchcase(record.node, node):
                continue
            wanted = ((step, "step"), (rank, "rank"), (role, "role"), (slot, "slot"))
            if all(value is None or getattr(record, key) == value for value, key in wanted):
                kept.append(index)
        return Records(self._core, kept)

    def to_pandas(self) -> pandas.DataFrame:
        """A table with one row a record; element types and shapes are read from the files' headers.

        The index is the place in these records, the columns are those of :class:`Record`; ``shape`` holds tuples, the
        statistics are NaN and ``nan_count`` is ``<NA>`` where the capture wrote none.

        Raises:
            ImportError: pandas is not installed.

        Example:
            >>> table = assay.open("golden").to_pandas()  # doctest: +SKIP
            >>> table[table.role == "output"].groupby("op_type").l2_norm.median()  # doctest: +SKIP
        """
        table = pandas_or_raise("the list of records").DataFrame(
            [_row(record) for record in self], columns=list(_COLUMNS)
        )
        return table.astype(_COLUMN_TYPES)

    def __repr__(self) -> str:
        return f"<{len(self)} records>"


_COLUMNS = (
    "rank", "step", "step_name", "node", "op_type", "role", "slot", "call", "order", "dtype", "shape",
    "min", "max", "mean", "l2_norm", "nan_count", "file", "value", "problem",
)  # fmt: skip


# Whatever the rows are: a table without a single statistic, or without a row, has the same columns of numbers.
_COLUMN_TYPES: dict[str, Any] = {
    **dict.fromkeys(("rank", "step", "call", "order"), "int64"),
    **dict.fromkeys(("min", "max", "mean", "l2_norm"), "float64"),
    "nan_count": "Int64",
}


def _row(record: Record) -> dict[str, Any]:
    row = {name: vars(record)[name] for name in _COLUMNS if name in vars(record)}
    row["dtype"], row["shape"], row["problem"] = record._type_and_shape()
    for name in ("min", "max", "mean", "l2_norm", "nan_count"):
        row[name] = getattr(record.recorded_stats, name) if record.recorded_stats else None
    return row


class Run:
    """One captured run, whatever wrote it.

    ``run["model.norm"]`` is what that node returned: an array when it is one tensor, otherwise a :class:`Selection` to
    index further. A key may also name a tensor: ``"model.norm.input.0"``, ``"model.norm.weight"``. ``run[0]`` is the
    first record.

    Attributes:
        path: as it was given to :func:`open`.
        layout: ``"native"``, ``"native-graph"``, ``"torch-tree"``, ``"atb-tree"``, ``"flat"`` or ``"file"``.
        records: every tensor and value, in execution order.
        tree: the module tree, or None when the layout has none.
        coverage: what was planned, captured and lost.
        warnings: sentences about what could not be read.
        properties: what the capture says about its host and configuration.
        layer_type: class of the repeated layers of the model; empty when there are none.
    """

    def __init__(self, core: _core.Run):
        self._core = core
        self.path: str = core.path
        self.layout: str = core.layout
        self.records: Records = Records(core)
        self.warnings: list[str] = core.warnings
        self.properties: dict[str, str] = core.properties
        self.layer_type: str = core.layer_type
        tree = core.tree
        self.tree: Optional[TreeNode] = None if tree is None else _tree_node(tree)
        coverage = core.coverage
        self.coverage = Coverage(
            coverage["complete"], coverage["planned"], coverage["captured"], tuple(coverage["missed"])
        )

    @property
    def damage(self) -> tuple[tuple[str, str], ...]:
        """What is not as the capture left it: tuples of file and fault. Payloads count when they have been read."""
        return tuple(self._core.damage)

    def verify(self) -> tuple[tuple[str, str], ...]:
        """Reads everything and returns all of the damage, like ``assay verify``; empty when the run is whole.

        Example:
            >>> import assay, numpy, os, tempfile
            >>> folder = tempfile.mkdtemp()
            >>> numpy.save(os.path.join(folder, "x.npy"), numpy.arange(3.0))
            >>> assay.open(folder).verify()
            ()
        """
        return tuple(self._core.verify())

    @property
    def operations(self) -> tuple[Operation, ...]:
        """What operations were told besides tensors, where the layout knows it; by rank, step and node."""
        return tuple(Operation(*operation) for operation in self._core.operations)

    def to_html(self, path: Path) -> None:
        """Writes the page of ``assay show --html``: one file for a browser, without a network.

        Raises:
            assay.errors.Error: the path does not end with ``.html``, or the file cannot be written.
        """
        self._core.write_page(os.fspath(path))

    def show(self) -> None:
        """Shows the page of :meth:`to_html`: in a notebook below the cell, otherwise in a browser.

        A browser's file is removed when the program ends.
        """
        show_page(self.to_html)

    def to_pandas(self) -> pandas.DataFrame:
        """The table of all records: :meth:`Records.to_pandas`."""
        return self.records.to_pandas()

    @property
    def nodes(self) -> list[str]:
        """Names of the modules and operators that have records, in the order of their first ones."""
        return self._core.nodes

    @property
    def steps(self) -> list[int]:
        """Token ids, ascending; weights have none."""
        return self._core.steps

    @property
    def ranks(self) -> list[int]:
        """Ranks of the processes, ascending."""
        return self._core.ranks

    @overload
    def __getitem__(self, key: int) -> Record: ...
    @overload
    def __getitem__(self, key: slice) -> Records: ...
    @overload
    def __getitem__(self, key: str) -> Union[np.ndarray, Selection]: ...
    def __getitem__(self, key: Union[int, slice, str]) -> Union[Record, Records, np.ndarray, Selection]:
        """A record by its place, or tensors by name.

        Of a node its output tensors count, or, when it has none, all of its tensors. A name that no node has is the
        name of tensors: ``"model.norm.input"``, ``"model.norm.input.0"``, ``"model.norm.weight"``; in a run of files
        also a member of one.

        Returns:
            Of a name the array of :meth:`Record.numpy` when it means one tensor, else a :class:`Selection`.

        Raises:
            KeyError: nothing has that name; the nearest names are in the sentence.
            IndexError: there are fewer records.
            assay.Error: the one tensor has no bytes, or they cannot be read.

        Example:
            >>> import assay, numpy, os, tempfile
            >>> folder = tempfile.mkdtemp()
            >>> numpy.save(os.path.join(folder, "x.npy"), numpy.arange(3.0))
            >>> assay.open(folder)["x"]
            array([0., 1., 2.])
        """
        if not isinstance(key, str):
            return self.records[key]
        named = self.named(key)
        if not named:
            raise no_such_name(key, self.path, self._names())
        tensors = [record for record in named if not record.value]
        if not tensors:
            raise KeyError(f"{key!r} has values and no tensor: {', '.join(record.value for record in named[:3])}")
        outputs = [record for record in tensors if record.node == key and record.role == "output"]
        return choose(key, outputs or tensors)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and bool(self.named(key))

    def named(self, name: str) -> Records:
        """The records of a node, of one of its roles, or of one tensor, as ``run[name]`` understands the name."""
        try:
            return Records(self._core, self._core.named(name.encode("utf-8", "surrogateescape")))
        except UnicodeEncodeError:  # no file and no capture can have written such a name
            return Records(self._core, [])

    def _names(self) -> list[str]:
        """What a wrong name may have meant: modules before operators."""
        return [*(node.name for node in self.tree.walk()), *self.nodes] if self.tree else self.nodes

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __repr__(self) -> str:
        return f"<Run {self.path!r}: {self.layout}, {len(self.records)} records>"

    def _repr_html_(self) -> str:
        """For notebooks: what was captured, where, whether all of it is there, and the first modules."""
        return run_fragment(self)


def _tree_node(tree: dict[str, Any]) -> TreeNode:
    children = tuple(_tree_node(child) for child in tree["children"])
    return TreeNode(tree["name"], tree["type"], children, tree["source"])


def open(path: Path) -> Run:
    """Opens a captured run; reads the list of records and no payload.

    Args:
        path: a run folder of any supported layout, a step or module folder of a torch dump, a process or run folder
            of an ATB dump, a folder of tensor files, or one tensor file.

    Raises:
        assay.FileError: the path does not exist or cannot be read.
        assay.FormatError: nothing there that can be read, or several runs.

    Example:
        >>> import assay, numpy, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "x.npy")
        >>> numpy.save(path, numpy.arange(3.0))
        >>> run = assay.open(path)
        >>> run.records[0].numpy()
        array([0., 1., 2.])
    """
    return Run(_core.open_run(os.fsencode(path)))


def read_tensor(path: Path, member: Optional[str] = None) -> np.ndarray:
    """Maps one tensor of a file.

    Args:
        path: .npy, .npz, .pth, .pt, .safetensors or ATB's .bin.
        member: key of a container file, or path such as ``"1.0"`` in a nested .pth; not needed when there is
            one tensor.

    Returns:
        As :meth:`Record.numpy`.

    Raises:
        assay.Error: no such file, no such member, several members, or unreadable bytes.

    Example:
        >>> import assay, numpy, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "x.npz")
        >>> numpy.savez(path, a=numpy.ones(2), b=numpy.zeros(1))
        >>> assay.read_tensor(path, "a")
        array([1., 1.])
    """
    core = _core.open_run(os.fsencode(path))
    records = [core.record(index) for index in range(len(core))]
    tensors = [r for r in records if r.has_bytes and member in (None, r.slot, r.member)]
    if not core.is_file or len(tensors) != 1:
        names = ", ".join(repr(r.member or r.slot) for r in records[:5] if r.has_bytes)
        what = f"holds {len(tensors)} tensors that fit, among: {names}" if core.is_file else "is a folder"
        raise FormatError("Usage", what, os.fspath(path))
    return _to_numpy(tensors[0].load())


def stats(array: Any) -> _core.TensorStats:
    """Statistics of an array: sums in fp64, NaN and infinities counted and left out.

    Args:
        array: NumPy array, torch tensor on any device, or anything with ``__dlpack__`` or the buffer protocol.
            The memory is read where it is; only tensors on a device are copied.

    Example:
        >>> import assay, numpy
        >>> assay.stats(numpy.array([[1.0, -2.0], [3.0, 4.0]])).mean
        1.5
    """
    raw, dtype = _as_raw(array)
    return _core.stats_of_array(raw, dtype)


def digest(array: Any) -> str:
    """XXH3-128 of the elements in C order, 32 hex digits; shape and type take no part.

    Args:
        array: as for :func:`stats`.

    Example:
        >>> import assay, numpy
        >>> assay.digest(numpy.arange(4)) == assay.digest(numpy.arange(4).reshape(2, 2))
        True
    """
    raw, dtype = _as_raw(array)
    return _core.digest_of_array(raw, dtype)


def _ml_dtype(name: str) -> Any:
    """The NumPy type for a torch name that NumPy lacks, or None."""
    if not name.startswith(("bfloat16", "float8_")):
        return None
    try:
        import ml_dtypes
    except ImportError:
        return None
    return getattr(ml_dtypes, name, None)


_SIGN_BITS = {1: 0x80, 2: 0x8000}


def _to_numpy(tensor: _core.Tensor) -> np.ndarray:
    array: Any = tensor.raw()
    name = tensor.dtype
    if tensor.negative:
        if array.dtype.kind == "u":  # a float type that NumPy lacks
            array = array ^ array.dtype.type(_SIGN_BITS[array.dtype.itemsize])
        else:
            array = -array
    if tensor.conjugate:
        array = np.conj(array)
    special = _ml_dtype(name)
    typed: np.ndarray = array if special is None else array.view(special)
    return typed


def _to_torch(tensor: _core.Tensor) -> torch.Tensor:
    import torch

    raw = tensor.raw()
    target = getattr(torch, tensor.dtype, None)
    if target is None:
        raise FormatError("Unsupported", f"torch has no type {tensor.dtype}")
    # A copy: the mapping is read-only, and a torch tensor could be written to.
    bits = torch.from_numpy(np.array(raw, order="C").reshape(-1).view(np.uint8))
    result = bits.view(target).reshape(tensor.shape) if bits.numel() else torch.empty(tensor.shape, dtype=target)
    if tensor.negative:
        result = -result
    return result.conj().resolve_conj() if tensor.conjugate else result


_RAW_TYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def _as_raw(array: Any) -> tuple[np.ndarray, str]:
    """An array that the native half takes, and the name of its element type."""
    if type(array).__module__.partition(".")[0] == "torch" or hasattr(array, "untyped_storage"):
        return _torch_as_raw(array)
    if not isinstance(array, np.ndarray):
        array = np.from_dlpack(array) if hasattr(array, "__dlpack__") else np.asarray(array)
    if array.dtype.kind in "OSUVMm" and array.dtype.name not in _ML_NAMES:
        raise FormatError("Unsupported", f"an array of {array.dtype} has no numbers")
    if array.dtype.name in _ML_NAMES:
        return array.view(_RAW_TYPES[array.dtype.itemsize]), array.dtype.name
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if any(stride % array.dtype.itemsize for stride in array.strides):
        array = np.ascontiguousarray(array)  # fields of structures
    return array, array.dtype.name


_ML_NAMES = frozenset(
    ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
)


def _torch_as_raw(tensor: torch.Tensor) -> tuple[np.ndarray, str]:
    import torch

    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    tensor = tensor.resolve_conj().resolve_neg()
    name = str(tensor.dtype).partition(".")[2]
    try:
        return tensor.numpy(), name
    except (TypeError, RuntimeError):
        pass  # a type that NumPy lacks: hand over its bits
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(tensor.element_size())
    if bits is None:
        raise FormatError("Unsupported", f"cannot read a tensor of {tensor.dtype}")
    return tensor.view(bits).numpy(), name
