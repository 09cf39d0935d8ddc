# SPDX-License-Identifier: Apache-2.0
"""Other software judges our formats: torch, NumPy, safetensors, zipfile and csv open what we write, and we read what
torch.save writes. Needs the test program formats_tool, which every build with ASSAY_BUILD_TESTS makes."""

import csv
import os
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]


def find_tool() -> str:
    """ASSAY_FORMATS_TOOL, or the newest one in build/."""
    named = os.environ.get("ASSAY_FORMATS_TOOL")
    if named:
        return named
    built = sorted(ROOT.glob("build/*/src/formats/formats_tool"), key=lambda path: path.stat().st_mtime)
    if not built:
        pytest.skip("formats_tool is not built: cmake --workflow --preset dev", allow_module_level=True)
    return str(built[-1])


TOOL = find_tool()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("formats")
    subprocess.run([TOOL, "write", str(folder)], check=True)
    return folder


SHAPES = [(2, 3), (), (0, 3), (1, 1, 2, 300)]
# Everything torch can hold in a plain tensor; the other types are refused by pth_supports().
TORCH_TYPES = [
    *("bfloat16", "bits16", "bits1x8", "bits2x4", "bits4x2", "bits8", "bool"),
    *("complex128", "complex32", "complex64", "float16", "float32", "float4_e2m1fn_x2", "float64"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("int16", "int32", "int64", "int8", "uint16", "uint32", "uint64", "uint8"),
]


def raw_bytes(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.detach().contiguous().untyped_storage()[: tensor.numel() * tensor.element_size()])


def test_torch_types_are_all_covered(written: Path) -> None:
    assert sorted({path.stem.rsplit("_", 1)[0] for path in written.glob("*.pth")}) == TORCH_TYPES


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("dtype", TORCH_TYPES)
def test_torch_loads_what_we_write(written: Path, dtype: str, mmap: bool) -> None:
    for number, shape in enumerate(SHAPES):
        tensor = torch.load(written / f"{dtype}_{number}.pth", weights_only=True, mmap=mmap)
        assert tensor.dtype == getattr(torch, dtype)
        assert tuple(tensor.shape) == shape
        assert tensor.is_contiguous()
        assert not tensor.requires_grad
        assert raw_bytes(tensor) == (written / f"{dtype}_{number}.raw").read_bytes()


@pytest.mark.parametrize("dtype", TORCH_TYPES)
def test_torch_loads_parameters(written: Path, dtype: str) -> None:
    parameter = torch.load(written / f"{dtype}_0.parameter", weights_only=True)
    assert type(parameter) is torch.nn.Parameter
    assert not parameter.requires_grad
    assert raw_bytes(parameter.data) == (written / f"{dtype}_0.raw").read_bytes()


@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16", "float8_e4m3fn", "uint32", "bool", "complex64"])
@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_our_pickle_is_torchs_byte_for_byte(written: Path, tmp_path: Path, dtype: str, number: int) -> None:
    stem = f"{dtype}_{number}"
    tensor = torch.load(written / f"{stem}.pth", weights_only=True)
    torch.save(tensor, tmp_path / f"{stem}.pth")
    with zipfile.ZipFile(written / f"{stem}.pth") as ours, zipfile.ZipFile(tmp_path / f"{stem}.pth") as theirs:
        assert ours.read(f"{stem}/data.pkl") == theirs.read(f"{stem}/data.pkl")
        assert ours.testzip() is None  # every CRC is right


def test_numpy_loads_what_we_write(written: Path) -> None:
    files = sorted(written.glob("*.npy"))
    assert len(files) >= 4 * 16
    for path in files:
        dtype, number = path.stem.rsplit("_", 1)
        array = np.load(path)
        assert array.shape == SHAPES[int(number)]
        assert array.flags.c_contiguous
        if array.dtype.kind == "V":  # NumPy has no such type: ml_dtypes gives the bytes their meaning
            assert array.dtype.itemsize == (2 if dtype == "bfloat16" else 1)
        else:
            assert array.dtype == np.dtype(dtype)
        raw = written / f"{path.stem}.raw"
        if raw.exists():
            assert array.tobytes() == raw.read_bytes()


def test_safetensors_loads_what_we_write(written: Path) -> None:
    with safetensors.safe_open(written / "all.safetensors", "pt") as file:
        assert file.metadata() == {"made by": 'formats_tool "test"'}
        names = set(file.keys())
        assert {"float32", "bfloat16", "float8_e4m3fn", "bool", "uint64", "complex64"} <= names
        for name in names:
            tensor = file.get_tensor(name)
            assert tensor.dtype == getattr(torch, name)
            assert raw_bytes(tensor) == (written / f"{name}_0.raw").read_bytes()


def test_zipfile_opens_what_we_write(written: Path) -> None:
    with zipfile.ZipFile(written / "entries.zip") as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["stored.txt", "müll/deflated.txt", "empty"]
        assert archive.read("müll/deflated.txt") == b"x" * 100_000
        assert archive.getinfo("müll/deflated.txt").compress_size < 1000


def test_csv_equals_pythons(written: Path, tmp_path: Path) -> None:
    rows = [["plain", "a,b", 'say "hi"', "two\nlines", ""], [""], ["ü", "cr\r", " "]]
    with open(tmp_path / "cells.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    assert (written / "cells.csv").read_bytes() == (tmp_path / "cells.csv").read_bytes()


# ---- reading what torch writes ----------------------------------------------------------------------------------

dtypes = st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.uint16])
shapes = st.lists(st.integers(0, 3), max_size=4).map(tuple)


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Contiguous, permuted or sliced: what a saved tensor's strides and offset can be."""
    shape = draw(shapes)
    tensor = torch.arange(int(np.prod(shape)), dtype=torch.float32).reshape(shape).to(draw(dtypes))
    if shape and draw(st.booleans()):
        tensor = tensor.permute(*draw(st.permutations(range(len(shape)))))
    if tensor.dim() and tensor.shape[0] > 1 and draw(st.booleans()):
        tensor = tensor[1:]
    return tensor


leaves = tensors() | st.integers(-(2**40), 2**40) | st.booleans() | st.none() | st.text(max_size=5)
keys = st.text("abcxyz_", min_size=1, max_size=5)
objects = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=8,
)


def flattened(value: object, path: str = "") -> list[tuple[str, str, str, str]]:
    def below(key: object) -> str:
        return f"{path}.{key}" if path else str(key)

    if isinstance(value, torch.Tensor):
        return [(path, str(value.dtype), str(list(value.shape)), raw_bytes(value.clone()).hex())]
    if isinstance(value, (list, tuple)):
        return [line for index, item in enumerate(value) for line in flattened(item, below(index))]
    if isinstance(value, dict):
        return [line for key, item in value.items() for line in flattened(item, below(key))]
    return [(path, type(value).__name__, "", str(value).encode().hex())]


@settings(max_examples=60, deadline=None)
@given(value=objects, protocol=st.sampled_from([2, 3, 4, 5]), legacy=st.booleans())
def test_we_read_what_torch_saves(
    tmp_path_factory: pytest.TempPathFactory, value: object, protocol: int, legacy: bool
) -> None:
    path = tmp_path_factory.mktemp("saved") / "value.pth"
    torch.save(value, path, pickle_protocol=protocol, _use_new_zipfile_serialization=not legacy)
    out = subprocess.run([TOOL, "read", str(path)], check=True, capture_output=True, text=True).stdout
    assert [tuple(line.split("\t")) for line in out.split("\n")[:-1]] == flattened(value)
