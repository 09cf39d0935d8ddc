"""Native half of assay for offline work: runs, tensor files, comparison."""

from collections.abc import Sequence
from typing import Any

ReadOnlyArray = Any  # NumPy's, or with __dlpack__(), or a buffer; in memory of the CPU

class _LentMemory:
    """Memory of a tensor, as NumPy asks for it."""

    @property
    def __array_struct__(self) -> object: ...

class TensorStats:
    """
    Statistics of the values of one tensor. Non-finite values are counted and left out of min, max, mean and l2_norm.
    """

    @property
    def count(self) -> int:
        """All values, NaN and infinities included."""

    @property
    def nan_count(self) -> int: ...

    @property
    def positive_inf_count(self) -> int: ...

    @property
    def negative_inf_count(self) -> int: ...

    @property
    def min(self) -> float:
        """NaN when there is no finite value."""

    @property
    def max(self) -> float: ...

    @property
    def mean(self) -> float: ...

    @property
    def l2_norm(self) -> float: ...

    @property
    def finite_count(self) -> int: ...

    @property
    def has_non_finite(self) -> bool: ...

    def with_non_finite(self) -> TensorStats:
        """The numbers that IEEE arithmetic over all values gives, as torch and NumPy do."""

    def __eq__(self, other: object) -> bool: ...

    def __repr__(self) -> str: ...

class Tensor:
    """A tensor in a mapped file. It and its arrays keep the file mapped."""

    @property
    def dtype(self) -> str:
        """Name of the element type, for example 'bfloat16'."""

    @property
    def shape(self) -> tuple: ...

    @property
    def strides(self) -> tuple:
        """In elements."""

    @property
    def conjugate(self) -> bool:
        """True when torch saved the tensor with its lazy conjugate bit set."""

    @property
    def negative(self) -> bool:
        """True when torch saved the tensor with its lazy negative bit set."""

    def raw(self) -> object:
        """Read-only array over the file's bytes; types that NumPy lacks as unsigned integers."""

    def stats(self) -> TensorStats: ...

    def digest(self) -> str: ...

def stats_of_array(array: ReadOnlyArray, dtype: str) -> TensorStats:
    """Statistics of an array whose elements are of the named type."""

def digest_of_array(array: ReadOnlyArray, dtype: str) -> str:
    """XXH3-128 of the elements in C order, 32 hex digits."""

class Record:
    """One tensor of one execution of one node."""

    @property
    def rank(self) -> int: ...

    @property
    def step(self) -> int: ...

    @property
    def step_name(self) -> str: ...

    @property
    def node(self) -> str: ...

    @property
    def name(self) -> str:
        """Node, role and slot joined by dots."""

    @property
    def op_type(self) -> str: ...

    @property
    def role(self) -> str: ...

    @property
    def slot(self) -> str: ...

    @property
    def member(self) -> str: ...

    @property
    def call(self) -> int: ...

    @property
    def order(self) -> int: ...

    @property
    def value(self) -> str: ...

    @property
    def memory_format(self) -> str: ...

    @property
    def problem(self) -> str: ...

    @property
    def has_bytes(self) -> bool: ...

    @property
    def file(self) -> str | None: ...

    @property
    def dtype(self) -> str | None: ...

    @property
    def shape(self) -> tuple[int, ...] | None: ...

    @property
    def strides(self) -> tuple[int, ...] | None: ...

    @property
    def recorded_stats(self) -> TensorStats | None: ...

    @property
    def recorded_digest(self) -> str | None: ...

    def load(self) -> Tensor:
        """Maps the tensor."""

class Run:
    """One captured run."""

    @property
    def path(self) -> str: ...

    @property
    def layout(self) -> str: ...

    @property
    def is_file(self) -> bool: ...

    @property
    def warnings(self) -> list: ...

    @property
    def properties(self) -> dict: ...

    @property
    def damage(self) -> list:
        """Tuples of file and fault, as far as they are known."""

    def verify(self) -> list:
        """Reads everything; all of the damage."""

    @property
    def coverage(self) -> dict: ...

    @property
    def tree(self) -> dict | None: ...

    @property
    def nodes(self) -> list:
        """Names of the nodes, in the order of their first records."""

    @property
    def steps(self) -> list[int]:
        """Token ids, ascending."""

    @property
    def ranks(self) -> list[int]:
        """Ascending."""

    def named(self, name: bytes) -> list[int]:
        """Indices of the records of a node, of one of its roles, or of one tensor."""

    @property
    def layer_type(self) -> str:
        """Class of the repeated layers, empty when there are none."""

    @property
    def operations(self) -> list:
        """Tuples of rank, step, node, operator type, parameters."""

    def write_page(self, path: str) -> None: ...

    def __len__(self) -> int: ...

    def record(self, index: int) -> Record: ...

def open_run(path: bytes) -> Run:
    """Opens a run of any layout."""

class _Comparison:
    def rows(self) -> list: ...

    def unmatched(self) -> list: ...

    def worst(self, count: int) -> list: ...

    def counts(self) -> dict: ...

    @property
    def coverage(self) -> float: ...

    @property
    def verdict(self) -> str: ...

    @property
    def passed(self) -> bool | None: ...

    @property
    def is_open_to_verdict(self) -> bool: ...

    @property
    def gaps(self) -> list[str]: ...

    @property
    def warnings(self) -> list[str]: ...

    @property
    def notes(self) -> list[str]: ...

    def text(self, width: int) -> str: ...

    def write(self, path: str) -> None: ...

    def write_page(self, path: str) -> None: ...

def compare_runs(golden: str, mine: str, *, level: str = 'api', stats: bool = False, weights: bool = False, compat: str = 'none', atol: float | None = None, rtol: float | None = None, cos: float | None = None, rel_l2: float | None = None, thresholds: str = '', map: str = '', mapping_file: str = '', algorithm_files: Sequence[str] = [], algorithms: Sequence[tuple[str, object]] = [], token_map: Sequence[tuple[int, int]] = [], ranks: Sequence[int] = [], parallel: str = '', allow_unmatched: Sequence[str] = [], jobs: int = 0, max_memory: int = 0) -> _Comparison:
    """Compares two runs by path; thresholds and map are JSON texts."""

def compare_arrays(golden: ReadOnlyArray, mine: ReadOnlyArray, *, compat: str = 'none', kl_divergence: bool = True, jobs: int = 1) -> dict:
    """All metrics of one pair of arrays as a dict. Nothing is copied; the GIL is released."""

def text_metrics() -> list:
    """Each metric of texts: name, limit, largest limit, whether scores are whole, whether small is good."""

def text_score(name: str, output: bytes, expected: bytes) -> float:
    """The score of a text, both in UTF-8. ValueError: a text without words has no rates."""

class ShapeTable:
    """Types and shapes from operation lists."""

    def __init__(self) -> None: ...

    def add_op_csv(self, text: bytes) -> None:
        """Adds the content of one operation_tensors_<n>.csv."""

    def __len__(self) -> int: ...

class Graph:
    """The structure of a model or of one layer."""

    @property
    def name(self) -> str: ...

    @property
    def node_count(self) -> int: ...

    @property
    def weights(self) -> list[str]: ...

    @property
    def notes(self) -> list[str]: ...

    def node(self, index: int) -> dict: ...

    def nodes_at_level(self, level: int) -> list[int]: ...

    def add_shapes(self, shapes: ShapeTable) -> None: ...

    def untyped_count(self, level: int) -> int:
        """Tensors of a level without type and shape."""

    def onnx(self, *, level: int = -1, hierarchical: bool = False, share_functions: bool = False, compat_attributes: bool = False, document: str = '') -> bytes:
        """The bytes of a ModelProto."""

    def model_explorer(self, level: int = -1) -> str:
        """JSON of Model Explorer."""

def read_graph(text: bytes) -> Graph:
    """Reads a topology file's content."""

def graph_diff(golden: Graph, mine: Graph) -> tuple[list[dict], list[tuple[str, str]]]:
    """Differences, and the names of the nodes that stand for each other."""
