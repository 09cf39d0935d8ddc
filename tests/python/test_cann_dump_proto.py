# SPDX-License-Identifier: Apache-2.0
"""google.protobuf, compiled from the field table, reads the dump files that we write, and we read those that it writes.

NumPy and ml_dtypes say what the bytes of each element type are worth. Needs the test program cann_dump_tool, which
every build with ASSAY_BUILD_TESTS makes.
"""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]
UNKNOWN_OUTPUT = 2**32 - 1  # -1 in 32 bits


def find_tool() -> str:
    """ASSAY_CANN_DUMP_TOOL, or the newest one in build/."""
    named = os.environ.get("ASSAY_CANN_DUMP_TOOL")
    if named:
        return named
    built = sorted(ROOT.glob("build/*/src/formats/cann_dump_tool"), key=lambda path: path.stat().st_mtime)
    if not built:
        pytest.skip("cann_dump_tool is not built: cmake --workflow --preset dev", allow_module_level=True)
    return str(built[-1])


def dump_data_class() -> Any:
    """The class of message DumpData."""
    folder = ROOT / "tests" / "formats"
    with tempfile.NamedTemporaryFile(suffix=".pb") as out:
        command = ["protoc", f"-I{folder}", f"--descriptor_set_out={out.name}", str(folder / "dump_data.proto")]
        subprocess.run(command, check=True, timeout=60)
        files = descriptor_pb2.FileDescriptorSet.FromString(Path(out.name).read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("dump.DumpData"))


TOOL = find_tool()
DumpData = dump_data_class()


# ---- a dump as both sides see it --------------------------------------------------------------------------------


@dataclass
class Tensor:
    """One input or output."""

    data_type: int = 1
    format: int = 2
    sub_format: int = 0
    shape: tuple[int, ...] = ()
    original_shape: tuple[int, ...] | None = ()
    address: int = 0
    offset: int = 0
    arg_index: int = 0
    input_type: int = 0  # of inputs
    origin: tuple[str, int, int, int] | None = None  # of outputs
    data: bytes = b""


@dataclass
class Dump:
    """What stands in a file."""

    time: int = 0
    op_name: str = ""
    message: str = ""
    attributes: tuple[tuple[str, str], ...] = ()
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    buffers: tuple[tuple[int, bytes], ...] = ()
    workspaces: tuple[tuple[int, int, bytes], ...] = ()

    def payload(self) -> bytes:
        tensors = b"".join(tensor.data for tensor in (*self.inputs, *self.outputs))
        buffers = b"".join(data for _, data in self.buffers)
        workspaces = b"".join(data for *_, data in self.workspaces)
        return tensors + (workspaces + buffers if self.message else buffers + workspaces)


def hexadecimal(text: str) -> str:
    return text.encode().hex()


def shape_cell(shape: tuple[int, ...] | None) -> str:
    if shape is None:
        return "none"
    return "x".join(map(str, shape)) or "-"


def tensor_line(kind: str, tensor: Tensor) -> str:
    last = str(tensor.input_type)
    if kind == "output":
        last = "none"
        if tensor.origin is not None:
            name, *numbers = tensor.origin
            last = ":".join([hexadecimal(name), *map(str, numbers)])
    cells = [kind, tensor.data_type, tensor.format, tensor.sub_format, shape_cell(tensor.shape)]
    cells += [shape_cell(tensor.original_shape), tensor.address, tensor.offset, tensor.arg_index, last]
    return "\t".join(map(str, [*cells, tensor.data.hex()]))


def lines_of(dump: Dump) -> list[str]:
    """The lines of cann_dump_tool."""
    lines = ["\t".join(["dump", str(dump.time), hexadecimal(dump.op_name), hexadecimal(dump.message), "0"])]
    lines += ["\t".join(["attribute", hexadecimal(name), hexadecimal(value)]) for name, value in dump.attributes]
    lines += [tensor_line("input", tensor) for tensor in dump.inputs]
    lines += [tensor_line("output", tensor) for tensor in dump.outputs]
    lines += [f"buffer\t{kind}\t{data.hex()}" for kind, data in dump.buffers]
    return lines + [f"workspace\t{kind}\t{arg}\t{data.hex()}" for kind, arg, data in dump.workspaces]


def message_of(dump: Dump) -> Any:
    """The header as google.protobuf holds it."""
    header = DumpData(version="2.0", dump_time=dump.time, op_name=dump.op_name, dfx_message=dump.message)
    for kind, tensors in (("input", dump.inputs), ("output", dump.outputs)):
        for tensor in tensors:
            field = getattr(header, kind).add(size=len(tensor.data))
            for name in ("data_type", "format", "sub_format", "address", "offset", "arg_index"):
                setattr(field, name, getattr(tensor, name))
            field.shape.SetInParent()
            field.shape.dim.extend(tensor.shape)
            if tensor.original_shape is not None:
                field.original_shape.SetInParent()
                field.original_shape.dim.extend(tensor.original_shape)
            if kind == "input":
                field.input_type = tensor.input_type
            elif tensor.origin is not None:
                original = field.original_op
                original.name, index, original.data_type, original.format = tensor.origin
                original.output_index = UNKNOWN_OUTPUT if index < 0 else index
    for name, value in dump.attributes:
        header.attr.add(name=name, value=value)
    for kind, data in dump.buffers:
        header.buffer.add(buffer_type=kind, size=len(data))
    for kind, arg_index, data in dump.workspaces:
        header.space.add(type=kind, arg_index=arg_index, size=len(data))
    return header


def file_by_protobuf(dump: Dump) -> bytes:
    header = message_of(dump).SerializeToString(deterministic=True)
    return struct.pack("<Q", len(header)) + header + dump.payload()


# ---- our side ---------------------------------------------------------------------------------------------------


def write(dump: Dump, folder: Path) -> bytes:
    path = folder / "written"
    text = "\n".join(lines_of(dump)) + "\n"
    subprocess.run([TOOL, "write", str(path)], input=text, text=True, check=True, timeout=60)
    return path.read_bytes()


def read(file: bytes, folder: Path) -> list[str]:
    path = folder / "read"
    path.write_bytes(file)
    done = subprocess.run([TOOL, "read", str(path)], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


def without_values(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith(("value\t", "problem\t"))]


# ---- the worked example -----------------------------------------------------------------------------------------

ADD = Dump(
    time=1760000000123456,
    op_name="model/add",
    inputs=(
        Tensor(shape=(2,), original_shape=(2,), data=struct.pack("<2f", 1, -2)),
        Tensor(data=struct.pack("<f", 0.5)),
    ),
    outputs=(Tensor(shape=(2,), original_shape=(2,), origin=("add", 0, 0, 2), data=struct.pack("<2f", 1.5, -1.5)),),
)


def test_both_write_the_documents_example(tmp_path: Path) -> None:
    document = (ROOT / "docs" / "formats" / "cann-dump.md").read_text()
    rows = [line for line in document.splitlines() if line[:4].isalnum() and line[4:6] == "  "]
    expected = bytes.fromhex("".join(row[6:54] for row in rows))
    assert len(expected) == 110
    assert file_by_protobuf(ADD) == expected
    assert write(ADD, tmp_path) == expected


# ---- any dump ---------------------------------------------------------------------------------------------------

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
SHAPES = st.lists(st.integers(0, 5), max_size=5).map(tuple)
NAMES = st.text(max_size=12)
ORIGINS = st.tuples(st.text(min_size=1, max_size=12), st.integers(-1, 2**31), st.integers(0, 42), st.integers(0, 49))


@st.composite
def tensors(draw: st.DrawFn, is_input: bool) -> Tensor:
    return Tensor(
        data_type=draw(st.integers(0, 43)),
        format=draw(st.integers(0, 50)),
        sub_format=draw(st.integers(-(2**31), 2**31 - 1)),
        shape=draw(SHAPES),
        original_shape=draw(st.none() | SHAPES),
        address=draw(st.just(0) | U64),
        offset=draw(st.just(0) | U64),
        arg_index=draw(st.just(0) | U32),
        input_type=draw(U32) if is_input else 0,
        origin=None if is_input else draw(st.none() | ORIGINS),
        data=draw(st.binary(max_size=40)),
    )


DUMPS = st.builds(
    Dump,
    time=U64,
    op_name=NAMES,
    message=NAMES,
    attributes=st.lists(st.tuples(NAMES, NAMES), max_size=3).map(tuple),
    inputs=st.lists(tensors(True), max_size=4).map(tuple),
    outputs=st.lists(tensors(False), max_size=4).map(tuple),
    buffers=st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=9)), max_size=2).map(tuple),
    workspaces=st.lists(st.tuples(st.integers(0, 3), U32, st.binary(max_size=9)), max_size=2).map(tuple),
)


@settings(max_examples=60, deadline=None)
@given(dump=DUMPS)
def test_protobuf_reads_what_we_write(dump: Dump, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = write(dump, tmp_path_factory.getbasetemp())
    (length,) = struct.unpack_from("<Q", file)
    assert DumpData.FromString(file[8 : 8 + length]) == message_of(dump)
    assert file[8 + length :] == dump.payload()
    assert file == file_by_protobuf(dump)  # canonical: fields in order, defaults left out


@settings(max_examples=60, deadline=None)
@given(dump=DUMPS)
def test_we_read_what_protobuf_writes(dump: Dump, tmp_path_factory: pytest.TempPathFactory) -> None:
    lines = read(file_by_protobuf(dump), tmp_path_factory.getbasetemp())
    assert without_values(lines) == lines_of(dump)  # and no warning


def test_we_read_old_files_with_their_data_inside_the_header(tmp_path: Path) -> None:
    header = DumpData(version="1.0", op_name="add")
    header.input.add(data_type=1, format=2, data=struct.pack("<2f", 5, 6)).shape.dim.append(2)
    header.output.add(data_type=7, format=2, data=struct.pack("<i", 11)).shape.SetInParent()
    lines = read(header.SerializeToString(), tmp_path)
    assert lines[2] == f"value\tfloat32\t2\t{struct.pack('<2f', 5, 6).hex()}"
    assert lines[4] == f"value\tint32\t-\t{struct.pack('<i', 11).hex()}"
    assert len(lines) == 5


# ---- element types ----------------------------------------------------------------------------------------------

WHOLE_BYTES = {
    1: np.float32,
    2: np.float16,
    3: np.int8,
    4: np.uint8,
    5: np.int16,
    6: np.uint16,
    7: np.int32,
    8: np.int64,
    9: np.uint32,
    10: np.uint64,
    12: np.float64,
    16: np.complex64,
    17: np.complex128,
    27: ml_dtypes.bfloat16,
    34: ml_dtypes.float8_e5m2,
    35: ml_dtypes.float8_e4m3fn,
    36: ml_dtypes.float8_e8m0fnu,
}


@pytest.mark.parametrize(("data_type", "dtype"), WHOLE_BYTES.items())
def test_whole_elements_keep_type_and_bytes(data_type: int, dtype: Any, tmp_path: Path) -> None:
    data = bytes(range(1, 6 * np.dtype(dtype).itemsize + 1))
    dump = Dump(inputs=(Tensor(data_type=data_type, shape=(3, 2), original_shape=(3, 2), data=data + b"padding"),))
    kind, name, shape, worth = read(write(dump, tmp_path), tmp_path)[2].split("\t")
    assert (kind, shape) == ("value", "3x2")
    assert name == np.dtype(dtype).name
    assert bytes.fromhex(worth) == data


def bits_of(data: bytes, width: int) -> np.ndarray:
    """Numbers of `width` bits, the lowest bits of a byte first."""
    stream = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").reshape(-1, width)
    return (stream << np.arange(width, dtype=np.uint8)).sum(axis=1).astype(np.uint8)


def e1m2(bits: np.ndarray) -> np.ndarray:
    return np.where(bits & 8, -1, 1) * (bits & 7) / 4


PACKED = {
    28: (4, "int4", lambda bits: np.where(bits & 8, bits.astype(np.int16) - 16, bits).astype(np.int8)),
    30: (2, "int8", lambda bits: np.where(bits & 2, bits.astype(np.int16) - 4, bits).astype(np.int8)),
    31: (2, "uint8", lambda bits: bits),
    37: (6, "float32", lambda bits: bits.view(ml_dtypes.float6_e3m2fn).astype(np.float32)),
    38: (6, "float32", lambda bits: bits.view(ml_dtypes.float6_e2m3fn).astype(np.float32)),
    39: (4, "float32", lambda bits: bits.view(ml_dtypes.float4_e2m1fn).astype(np.float32)),
    40: (4, "float32", lambda bits: e1m2(bits).astype(np.float32)),
}


@pytest.mark.parametrize("data_type", PACKED)
def test_packed_elements_are_worth_what_ml_dtypes_says(data_type: int, tmp_path: Path) -> None:
    width, expected_name, decode = PACKED[data_type]
    data = bytes(range(256)) * 3  # every pattern at every place of a byte
    expected = decode(bits_of(data, width))
    dump = Dump(outputs=(Tensor(data_type=data_type, shape=expected.shape, original_shape=None, data=data),))
    _, name, shape, worth = read(write(dump, tmp_path), tmp_path)[2].split("\t")
    assert (name, shape) == (expected_name, str(expected.size))
    if name == "int4":  # kept as it is
        assert bytes.fromhex(worth) == data
    else:
        np.testing.assert_array_equal(np.frombuffer(bytes.fromhex(worth), expected.dtype), expected)


def test_bits_are_unpacked_as_numpy_unpacks_them(tmp_path: Path) -> None:
    data = bytes(range(256))
    dump = Dump(inputs=(Tensor(data_type=29, shape=(2047,), original_shape=(2047,), data=data),))
    worth = read(write(dump, tmp_path), tmp_path)[2].split("\t")[3]
    assert bytes.fromhex(worth) == np.unpackbits(np.frombuffer(data, np.uint8))[:2047].tobytes()


@pytest.mark.parametrize("data_type", [13, 24, 25, 26, 41, 42, 43])
def test_types_without_numbers_are_named(data_type: int, tmp_path: Path) -> None:
    tensor = Tensor(data_type=data_type, shape=(1,), original_shape=(1,), data=b"12345678")
    kind, text = read(write(Dump(inputs=(tensor, ADD.inputs[1])), tmp_path), tmp_path)[2].split("\t")
    assert kind == "problem"
    assert f"element type {data_type} (DT_" in text


# ---- what is wrong with a file ----------------------------------------------------------------------------------


def test_a_cut_file_keeps_the_tensors_before_its_end(tmp_path: Path) -> None:
    lines = read(file_by_protobuf(ADD)[:-1], tmp_path)
    assert lines[2].startswith("value\tfloat32\t2\t")
    assert lines[4].startswith("value\tfloat32\t-\t")
    assert lines[6].split("\t")[0] == "problem" and "the file ends before the tensor" in lines[6]
    assert lines[7].split("\t")[0] == "warning" and "the header announces 20 bytes, the file has 19" in lines[7]


@settings(max_examples=40, deadline=None)
@given(dump=DUMPS, cut=st.integers(0, 400))
def test_a_cut_file_gives_a_sentence_or_what_is_left(
    dump: Dump, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut"
    path.write_bytes(file_by_protobuf(dump)[:cut])
    done = subprocess.run([TOOL, "read", str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    assert (done.returncode == 0) == bool(done.stdout)
    assert done.returncode == 0 or done.stderr.startswith("error: ")
