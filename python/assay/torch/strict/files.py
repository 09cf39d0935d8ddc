# SPDX-License-Identifier: Apache-2.0
"""The read and save helpers of ``components.utils.tool``: ATB .bin files, CANN dump files, .pt and .npy."""

from __future__ import annotations

import os
from typing import Any, Optional

from assay.torch.strict.cann import CannDump, parse_cann_dump

_MAX_HEADER_LINES = 8000
# ACL element types of an ATB file (CANN dump files number theirs differently: cann.py).
_TORCH_NAME_OF_ACL = {
    0: "float32",
    1: "float16",
    2: "int8",
    3: "int32",
    4: "uint8",
    6: "int16",
    7: "uint16",
    8: "uint32",
    9: "int64",
    10: "uint64",
    11: "float64",
    12: "bool",
    16: "complex64",
    17: "complex128",
    27: "bfloat16",
}
_BAD_LINE = "Unsupported tensorbin file, we need data format is 'attr_name=attr_value'."


class TensorBinFile:
    """One ATB tensor file: a text header of ``name=value`` lines up to ``$End=1``, then raw little-endian bytes.

    Attributes:
        file_path: the file.
        dtype: ACL number of the element type (0 float32, 1 float16, 27 bfloat16 ...).
        format: ACL number of the layout (2 ND, 29 FRACTAL_NZ ...); the data stay in stored order.
        dims: shape as the header gives it, [] for a 0-d tensor.
        attributes: every line without leading ``$``, in file order; statistics records have max, min ... here.
    """

    def __init__(self, file_path: str):
        self.file_path = file_path
        self.dtype = 0
        self.format = 0
        self.dims: list[int] = []
        self.attributes: dict[str, str] = {}
        self._offset = 0
        self._length: Optional[int] = None
        self._parse()

    def get_data(self) -> Any:
        """Returns the values as a CPU torch.Tensor of shape `dims`; it owns its memory.

        Raises:
            ValueError: an element type nobody knows, or fewer bytes than the header announces.
        """
        import torch

        name = _TORCH_NAME_OF_ACL.get(self.dtype)
        dtype = getattr(torch, name, None) if name else None
        if dtype is None:
            raise ValueError(f"Unsupported dtype {self.dtype}")
        count = 1
        for size in self.dims:
            count *= size
        wanted = count * torch.empty((), dtype=dtype).element_size()
        with open(self.file_path, "rb") as file:
            file.seek(self._offset)
            content = bytearray(file.read(wanted if self._length is None else min(wanted, self._length)))
        if len(content) < wanted:
            raise ValueError(
                f"{self.file_path}: dims {self.dims} of {name} need {wanted} bytes, the file has {len(content)}."
            )
        if count == 0:
            return torch.empty(self.dims, dtype=dtype)
        return torch.frombuffer(content, dtype=dtype, count=count).reshape(self.dims)

    def _parse(self) -> None:
        pair = None
        with open(self.file_path, "rb") as file:
            for _ in range(_MAX_HEADER_LINES):
                line = file.readline(1 << 20)
                name, equals, value = line.rstrip(b"\n").partition(b"=")
                if not line.endswith(b"\n") or not equals or b"=" in value:
                    raise ValueError(_BAD_LINE)
                key, text = name.decode("utf-8", "replace"), value.decode("utf-8", "replace")
                if key == "$End":
                    break
                if key.startswith("$Object.") and key not in ("$Object.Count", "$Object.Length"):
                    pair = text
                elif not key.startswith("$"):
                    self.attributes[key] = text
            else:
                raise ValueError(f"{self.file_path}: no $End line in the first {_MAX_HEADER_LINES} lines.")
            self._offset = file.tell()
        try:
            self.dtype = int(self.attributes.get("dtype", "0"))
            self.format = int(self.attributes.get("format", "0"))
            self.dims = [int(size) for size in self.attributes.get("dims", "").split(",") if size]
            if pair is not None:
                offset, _, length = pair.partition(",")
                self._offset += int(offset)
                self._length = int(length)
        except ValueError as error:
            raise ValueError(_BAD_LINE) from error
        if any(size < 0 for size in self.dims):
            raise ValueError(f"{self.file_path}: negative size in dims {self.dims}.")


def get_bin_data_from_dir(dump_data_dir: str, max_depth: int = 20) -> list[str]:
    """Returns the paths of all ``*.bin`` files below the folder, links of the folder itself resolved.

    Raises:
        RecursionError: a folder lies `max_depth` or more levels down.
    """
    root = os.path.realpath(dump_data_dir)
    found = []
    for folder, subfolders, names in os.walk(root):
        relative = os.path.relpath(folder, root)
        depth = 0 if relative == os.curdir else relative.count(os.sep) + 1
        if depth >= max_depth:
            raise RecursionError(f"{folder} lies {depth} levels below {root}; at most {max_depth - 1} are searched.")
        subfolders.sort()
        found += [os.path.join(folder, name) for name in sorted(names) if name.endswith(".bin")]
    return found


def read_bin_data(path: str) -> TensorBinFile:
    """Reads the header of an ATB ``.bin`` file; ``.get_data()`` reads the values.

    Raises:
        ValueError: another suffix, or a header that is not of that format.
    """
    if not path.endswith(".bin"):
        raise ValueError(f"{path} does not end with .bin: only ATB tensor files are read here.")
    return TensorBinFile(path)


def read_atb_data(path: str) -> Any:
    """Returns the tensor in an ATB ``.bin`` file, on the CPU.

    Raises:
        ValueError: another suffix, or not such a file.
    """
    return read_bin_data(path).get_data()


def convert_bin_data_to_pt(tensor_bin: TensorBinFile) -> Any:
    """Returns the values of what read_bin_data() returned as a CPU tensor."""
    return tensor_bin.get_data().cpu()


def read_dump_data(path: str) -> CannDump:
    """Parses a CANN operator dump file. CANN itself is not needed.

    Raises:
        ValueError: not such a file.
    """
    with open(path, "rb") as file:
        return parse_cann_dump(file.read(), path)


def convert_bin_data_to_npy(dump: CannDump, dtype: str = "uint8") -> tuple[list[Any], list[Any]]:
    """Returns (inputs, outputs) of a CANN dump: 1-d arrays of the raw bytes, viewed as `dtype`."""
    import numpy

    def view(tensors: list[Any]) -> list[Any]:
        return [numpy.frombuffer(tensor.data, dtype=dtype) for tensor in tensors]

    return view(dump.input), view(dump.output)


def save_torch_data(pt_data: Any, path: str) -> None:
    """torch.save() to a path ending in .pt or .pth; missing folders are made.

    Raises:
        ValueError: another suffix.
    """
    import torch

    if not path.endswith((".pt", ".pth")):
        raise ValueError(f"{path} must end with .pt or .pth.")
    _make_parents(path)
    torch.save(pt_data, path)


def save_npy_data(npy_file_path: str, npy_data: Any) -> None:
    """numpy.save() to a path ending in .npy; missing folders are made. The path comes first here.

    Raises:
        ValueError: another suffix.
    """
    import numpy

    if not npy_file_path.endswith(".npy"):
        raise ValueError(f"{npy_file_path} must end with .npy.")
    _make_parents(npy_file_path)
    numpy.save(npy_file_path, npy_data)


def _make_parents(path: str) -> None:
    parent = os.path.dirname(path)
    if parent:
        os.makedirs(parent, exist_ok=True)
