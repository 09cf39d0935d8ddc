# SPDX-License-Identifier: Apache-2.0
"""Single nodes computed by ggml itself: the libraries that the wheel pywhispercpp brings, through ctypes."""

from __future__ import annotations

import ctypes
import site
import struct
from pathlib import Path
from typing import Any

import numpy as np

TYPES = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "q2_K": 10, "q3_K": 11, "q4_K": 12,
    "q5_K": 13, "q6_K": 14, "iq4_nl": 20, "i32": 26, "i64": 27, "bf16": 30,
}  # fmt: skip
NUMPY = {"f32": np.float32, "f16": np.float16, "i32": np.int32, "i64": np.int64}
ARENA_BYTES = 64 << 20
# Of ggml 0.13.1 on x86-64; a release that moved them fails the tests.
NE_OFFSET, OP_PARAMS_OFFSET = 16, 84


class InitParams(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


class Traits(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("block", ctypes.c_int64),
        ("interleave", ctypes.c_int64),
        ("bytes", ctypes.c_size_t),
        ("quantised", ctypes.c_bool),
        ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)),
    ]


def find_libraries() -> tuple[Path, Path] | None:
    """libggml-base and libggml-cpu, or None where pywhispercpp is not installed."""
    for folder in site.getsitepackages():
        base = sorted(Path(folder, "pywhispercpp.libs").glob("libggml-base-*.so*"))
        cpu = sorted(Path(folder, "pywhispercpp.libs").glob("libggml-cpu-*.so*"))
        if base and cpu:
            return base[0], cpu[0]
    return None


class Engine:
    """ggml with one arena: tensors are made from arrays, a node is computed, its result read."""

    def __init__(self) -> None:
        found = find_libraries()
        assert found is not None
        self.base = ctypes.CDLL(str(found[0]), mode=ctypes.RTLD_GLOBAL)
        self.cpu = ctypes.CDLL(str(found[1]), mode=ctypes.RTLD_GLOBAL)
        for name in ("ggml_init", "ggml_new_tensor_4d", "ggml_get_data", "ggml_new_graph", "ggml_get_type_traits"):
            getattr(self.base, name).restype = ctypes.c_void_p
        self.base.ggml_get_type_traits.restype = ctypes.POINTER(Traits)
        self.base.ggml_nbytes.restype = ctypes.c_size_t
        self.base.ggml_quantize_chunk.restype = ctypes.c_size_t
        for name in ("ggml_unary_op_name", "ggml_glu_op_name", "ggml_op_name"):
            getattr(self.base, name).restype = ctypes.c_char_p
        self.base.ggml_init.argtypes = [InitParams]
        self.context = ctypes.c_void_p(self.base.ggml_init(InitParams(ARENA_BYTES, None, False)))

    def close(self) -> None:
        self.base.ggml_free(self.context)

    def tensor(self, array: np.ndarray, type_name: str = "f32") -> Tensor:
        """A tensor of a row-major array; `values` holds what it stores after rounding or quantising."""
        sizes = [1] * (4 - array.ndim) + list(array.shape)
        pointer = self.base.ggml_new_tensor_4d(self.context, TYPES[type_name], *map(ctypes.c_int64, reversed(sizes)))
        data = ctypes.c_void_p(self.base.ggml_get_data(ctypes.c_void_p(pointer)))
        if type_name in NUMPY:
            stored = np.ascontiguousarray(array, dtype=NUMPY[type_name])
            ctypes.memmove(data, stored.ctypes.data, stored.nbytes)
            return Tensor(pointer, stored, type_name)
        source = np.ascontiguousarray(array, dtype=np.float32)
        rows = source.size // source.shape[-1]
        self.base.ggml_quantize_chunk(
            TYPES[type_name], ctypes.c_void_p(source.ctypes.data), data, ctypes.c_int64(0), ctypes.c_int64(rows),
            ctypes.c_int64(source.shape[-1]), None,
        )  # fmt: skip
        values = np.empty_like(source)
        traits = self.base.ggml_get_type_traits(TYPES[type_name]).contents
        traits.to_float(data, values.ctypes.data, source.size)
        return Tensor(pointer, values, type_name)

    def node(self, function: str, *arguments: Any) -> Tensor:
        """Calls ggml_<function>(context, ...): tensors, None, ints, and floats as C floats."""
        build = getattr(self.base, "ggml_" + function)
        build.restype = ctypes.c_void_p
        given = [_c_argument(one) for one in arguments]
        return Tensor(build(self.context, *given), None, "")

    def compute(self, node: Tensor, dtype: Any = np.float32, threads: int = 2) -> np.ndarray:
        """The node's result in its row-major shape without leading ones."""
        graph = ctypes.c_void_p(self.base.ggml_new_graph(self.context))
        self.base.ggml_build_forward_expand(graph, ctypes.c_void_p(node.pointer))
        assert self.cpu.ggml_graph_compute_with_ctx(self.context, graph, threads) == 0
        sizes = list(reversed(node.sizes()))
        while len(sizes) > 1 and sizes[0] == 1:
            sizes.pop(0)
        count = int(np.prod(sizes))
        bytes_ = ctypes.string_at(
            self.base.ggml_get_data(ctypes.c_void_p(node.pointer)), count * np.dtype(dtype).itemsize
        )
        return np.frombuffer(bytes_, dtype=dtype).reshape(sizes).copy()


class Tensor:
    def __init__(self, pointer: int, values: np.ndarray | None, type_name: str) -> None:
        self.pointer = pointer
        self.values = values
        self.type_name = type_name

    def sizes(self) -> list[int]:
        return list(struct.unpack("<4q", ctypes.string_at(self.pointer + NE_OFFSET, 32)))

    def op_params(self) -> list[int]:
        return list(struct.unpack("<16i", ctypes.string_at(self.pointer + OP_PARAMS_OFFSET, 64)))


def _c_argument(value: Any) -> Any:
    if value is None:
        return ctypes.c_void_p(None)
    if isinstance(value, Tensor):
        return ctypes.c_void_p(value.pointer)
    if isinstance(value, bool):
        return ctypes.c_bool(value)
    if isinstance(value, float):
        return ctypes.c_float(value)
    return value
