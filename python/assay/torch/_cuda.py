# SPDX-License-Identifier: Apache-2.0
"""What the native half needs of one CUDA device: our kernels, a stream of its own, and memory.

The kernels are compiled for the device at hand by the NVRTC that torch itself brings; no compiler and no CUDA toolkit
is asked for. Everything is called from inside the model's step, so nothing here goes through torch's dispatcher.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Optional

import torch

__all__ = ["CudaDevice", "pack"]

# The kernel's class for each type, by the native half's name of the type.
_TYPES = {
    "float32": "AssayFloat32",
    "float16": "AssayFloat16",
    "bfloat16": "AssayBFloat16",
    "int64": "AssayInteger<long long>",
    "int32": "AssayInteger<int>",
    "int16": "AssayInteger<short>",
    "int8": "AssayInteger<signed char>",
    "uint64": "AssayInteger<unsigned long long>",
    "uint32": "AssayInteger<unsigned>",
    "uint16": "AssayInteger<unsigned short>",
    "uint8": "AssayInteger<unsigned char>",
    "bool": "AssayBool",
}
_PINNED_FLAGS = 1 | 2  # portable, mapped into the device's addresses

_programs: dict[tuple[str, str], bytes] = {}  # by architecture and type
_modules: dict[tuple[int, str], int] = {}  # loaded ones, by context and type: captures to come use them, too


class _Refused(Exception):
    """A call of the driver or of NVRTC failed."""


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _compiler() -> ctypes.CDLL:
    """NVRTC, by way of the library of torch that is linked with it and knows where it lies."""
    beside = Path(torch.__file__).parent / "lib" / "libcaffe2_nvrtc.so"
    return ctypes.CDLL(str(beside) if beside.exists() else f"libnvrtc.so.{str(torch.version.cuda).split('.')[0]}")


def _call(library: ctypes.CDLL, name: str, *arguments: Any) -> None:
    status = getattr(library, name)(*arguments)
    if status != 0:
        raise _Refused(f"{name}: error {status}")


def compile_kernels(library: ctypes.CDLL, source: str, architecture: str, dtype: str) -> bytes:
    """Compiles our kernels for one type into the machine code of `architecture`, as `sm_90`; once a process.

    Raises:
        _Refused: NVRTC does not know the architecture, or refuses the source.
    """
    known = _programs.get((architecture, dtype))
    if known is not None:
        return known
    program = ctypes.c_void_p()
    _call(library, "nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"assay.cu", 0, None, None)
    try:
        options = [f"--gpu-architecture={architecture}".encode(), b"--fmad=false", b"--std=c++17"]
        options.append(f"--define-macro=ASSAY_TYPE={_TYPES[dtype]}".encode())
        given = (ctypes.c_char_p * len(options))(*options)
        status = library.nvrtcCompileProgram(program, len(options), given)
        if status != 0:
            size = ctypes.c_size_t()
            _call(library, "nvrtcGetProgramLogSize", program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            _call(library, "nvrtcGetProgramLog", program, log)
            raise _Refused(f"NVRTC, {architecture}: {log.value.decode(errors='replace')[:2000]}")
        size = ctypes.c_size_t()
        _call(library, "nvrtcGetCUBINSize", program, ctypes.byref(size))
        code = ctypes.create_string_buffer(size.value)
        _call(library, "nvrtcGetCUBIN", program, code)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    _programs[architecture, dtype] = code.raw
    return code.raw


class CudaDevice:
    """One device of this process, opened when the first tensor of it is met.

    Attributes:
        context: the device's primary context, an address.
        merge: the address of the function that joins the blocks of tensors.
        stream: the address of a stream that waits for no other.
        current_stream: index of a device -> the address of torch's current stream on it.

    Raises:
        Exception: with the reason in its text; tensors of the device are then reduced by torch's own operators.
    """

    def __init__(self, index: int, source: str, warn: Callable[[str], None]) -> None:
        self._index = index
        self._compiler = _compiler()
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._source = source
        self._warn = warn
        major, minor = torch.cuda.get_device_capability(index)
        self._architecture = f"sm_{major}{minor}"
        context = ctypes.c_void_p()
        _call(self._driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), index)
        self.context: int = context.value or 0
        self._stream = torch.cuda.Stream(index)  # type: ignore[no-untyped-call]
        self.stream: int = self._stream.cuda_stream
        self.current_stream: Callable[[int], int] = torch._C._cuda_getCurrentRawStream
        self._device_memory: list[int] = []
        self._pinned_memory: list[int] = []
        self.merge = self._function("float32", b"assay_merge")

    def kernel(self, dtype: str) -> int:
        """The address of the function that sums the blocks of a type; 0 for a type that has none."""
        if dtype not in _TYPES:
            return 0
        try:
            return self._function(dtype, b"assay_blocks")
        except Exception as error:  # whatever the host's libraries say, torch's operators are left
            self._warn(f"statistics of {dtype} are taken by torch's operators, which is slower: {_first_line(error)}")
            return 0

    def _function(self, dtype: str, name: bytes) -> int:
        code = compile_kernels(self._compiler, self._source, self._architecture, dtype)
        module, function = ctypes.c_void_p(_modules.get((self.context, dtype))), ctypes.c_void_p()
        with self._current_context():
            if not module:
                _call(self._driver, "cuModuleLoadData", ctypes.byref(module), code)
                _modules[self.context, dtype] = module.value or 0
            _call(self._driver, "cuModuleGetFunction", ctypes.byref(function), module, name)
        return function.value or 0

    @contextmanager
    def _current_context(self) -> Iterator[None]:
        _call(self._driver, "cuCtxPushCurrent_v2", ctypes.c_void_p(self.context))
        try:
            yield
        finally:
            self._driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    def device_memory(self, size_bytes: int) -> int:
        """Memory of torch's own allocator; raises torch.OutOfMemoryError when there is none."""
        address = torch.cuda.caching_allocator_alloc(size_bytes, self._index, self.stream)
        self._device_memory.append(address)
        # Torch shares its streams out again: work of somebody else on ours may still use what it has freed, and we
        # write from the model's streams. Of the model nothing is waited for.
        _call(self._driver, "cuStreamSynchronize", ctypes.c_void_p(self.stream))
        return int(address)

    def pinned_memory(self, size_bytes: int) -> int:
        """Memory of the host that the device writes by itself; raises when the host has none."""
        address = ctypes.c_void_p()
        with self._current_context():
            _call(self._driver, "cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(size_bytes), _PINNED_FLAGS)
        self._pinned_memory.append(address.value or 0)
        return address.value or 0

    def close(self) -> None:
        """Gives the memory back. Nothing of ours may be on its way."""
        for address in self._device_memory:
            torch.cuda.caching_allocator_delete(address)  # type: ignore[no-untyped-call]
        with self._current_context():
            for address in self._pinned_memory:
                self._driver.cuMemFreeHost(ctypes.c_void_p(address))
        self._device_memory.clear()
        self._pinned_memory.clear()


def pack(tensor: torch.Tensor, in_order: bool) -> tuple[torch.Tensor, int, bool]:
    """Makes a tensor of elements that lie one after the other, without a wait.

    Args:
        tensor: any strided tensor.
        in_order: in row-major order; otherwise as memory lies, each element of it once, which is how statistics are
            taken (src/stats/tensor_stats.cpp).

    Returns:
        The tensor, how often each of its elements occurs, and whether they are in row-major order.
    """
    with torch.no_grad():
        source = tensor.detach().resolve_neg()
        if in_order:
            return source.contiguous(), 1, True
        times, row_major = 1, True
        for axis, (size, stride) in reversed(list(enumerate(zip(source.shape, source.stride())))):
            if stride == 0 and size > 1:
                source, times, row_major = source.select(axis, 0), times * size, False
        order = [axis for axis in range(source.dim()) if source.shape[axis] != 1]
        strides = source.stride()
        by_stride = sorted(order, key=lambda axis: -strides[axis])
        row_major = row_major and by_stride == order
        ones = [axis for axis in range(source.dim()) if source.shape[axis] == 1]
        return source.permute(*ones, *by_stride).contiguous(), times, row_major


def opened(index: int, source: str, warn: Callable[[str], None]) -> Optional[CudaDevice]:
    """The device, or None after one sentence to `warn`: then torch's operators take its statistics.

    A torch without CUDA is asked by tests alone, which give host tensors as a device's: it has no such device.
    """
    if torch.version.cuda is None:
        return None
    try:
        return CudaDevice(index, source, warn)
    except Exception as error:  # whatever the host's libraries say, the capture goes on without them
        warn(f"statistics on cuda:{index} are taken by torch's operators, which is slower: {_first_line(error)}")
        return None
