# SPDX-License-Identifier: Apache-2.0
"""GraphDump: every kind of tensor, name and failure; files read by a reader of bytes that stands here."""

from __future__ import annotations

import csv
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

import numpy as np
import pytest

torch = pytest.importorskip("torch")
_capture = pytest.importorskip("assay._capture")

# Numbers of the header for element types, from the public ge_ir.proto.
HEADER_TYPES = {
    torch.float32: 1, torch.float16: 2, torch.int8: 3, torch.uint8: 4, torch.int16: 5, torch.uint16: 6,
    torch.int32: 7, torch.int64: 8, torch.uint32: 9, torch.uint64: 10, torch.bool: 11, torch.float64: 12,
    torch.complex64: 16, torch.complex128: 17, torch.bfloat16: 27, torch.complex32: 32,
    torch.float8_e5m2: 34, torch.float8_e4m3fn: 35, torch.float8_e8m0fnu: 36,
}  # fmt: skip


# ---- an independent reader: protobuf's wire format and the table of fields --------------------------------------


def wire(message: bytes) -> list[tuple[int, Any]]:
    """(field number, integer or bytes) in the order of the message."""

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    at = 0
    fields: list[tuple[int, Any]] = []
    while at < len(message):
        key = varint()
        if key & 7 == 0:
            fields.append((key >> 3, varint()))
        else:
            assert key & 7 == 2, f"wire type {key & 7}"
            size = varint()
            fields.append((key >> 3, message[at : at + size]))
            assert at + size <= len(message)
            at += size
    return fields


def one(fields: list[tuple[int, Any]], number: int, otherwise: Any = 0) -> Any:
    found = [value for field_number, value in fields if field_number == number]
    assert len(found) <= 1
    return found[0] if found else otherwise


def packed(message: bytes) -> list[int]:
    """The varints of a Shape."""
    values, value, shift = [], 0, 0
    for byte in one(wire(message), 1, b""):
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            values.append(value)
            value = shift = 0
    return values


@dataclass
class Operand:
    data_type: int
    shape: list[int]
    size: int
    arg_index: int
    origin: Optional[tuple[str, int, int]]
    data: bytes = b""


@dataclass
class DumpFile:
    time: int
    name: str
    message: str
    attributes: dict[str, str]
    inputs: list[Operand] = field(default_factory=list)
    outputs: list[Operand] = field(default_factory=list)


def read_dump(path: str | Path) -> DumpFile:
    """Parses a whole dump file and holds its length against the sizes."""
    content = Path(path).read_bytes()
    length = int.from_bytes(content[:8], "little")
    fields = wire(content[8 : 8 + length])
    assert one(fields, 1) == b"2.0"
    dump = DumpFile(
        time=one(fields, 2),
        name=one(fields, 6, b"").decode(),
        message=one(fields, 9, b"").decode(),
        attributes={one(wire(a), 1).decode(): one(wire(a), 2, b"").decode() for n, a in fields if n == 7},
    )
    for number, message in fields:
        if number not in (3, 4):
            continue
        item = wire(message)
        is_output = number == 3
        size_field, shape_field, index_field = (6, 7, 12) if is_output else (5, 6, 10)
        assert one(item, 2) == 2, "format ND"
        assert packed(one(item, 3, None)) == packed(one(item, shape_field, None))
        origin = wire(one(item, 4)) if is_output and one(item, 4, None) else None
        operand = Operand(
            data_type=one(item, 1),
            shape=packed(one(item, 3)),
            size=one(item, size_field),
            arg_index=one(item, index_field),
            origin=(one(origin, 1).decode(), one(origin, 2), one(origin, 3)) if origin is not None else None,
        )
        (dump.outputs if is_output else dump.inputs).append(operand)
    at = 8 + length
    for operand in [*dump.inputs, *dump.outputs]:
        operand.data = content[at : at + operand.size]
        at += operand.size
    assert at == len(content)
    return dump


def payload(tensor: torch.Tensor) -> bytes:
    """The values of a tensor in C order, by torch alone."""
    dense = tensor.detach().resolve_conj().resolve_neg().contiguous().clone()
    return dense.reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.fixture
def dump() -> Iterator[Any]:
    writer = _capture.GraphDump()
    yield writer
    writer.close()


def table(path: str | Path) -> list[list[str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def rows_of(path: str | Path) -> list[dict[str, str]]:
    header, *rows = table(path)
    return [dict(zip(header, row)) for row in rows]


def write(writer: Any, folder: Path, inputs: Any = (), outputs: Any = (), **more: Any) -> str:
    path = writer.write_operator(str(folder), "Add", "Add_1", 3, 7, inputs, outputs, **more)
    writer.flush()
    return str(path)


# ---- bytes ------------------------------------------------------------------------------------------------------


def test_worked_example(dump: Any, tmp_path: Path) -> None:
    """docs/formats/cann-dump.md: 110 bytes, of which only the time is the clock's."""
    expected = bytes.fromhex(
        "5200000000000000 0a03322e30 10c0c4bff6de969003 1a19080110021a030a0102 22070a036164642002 30083a030a0102"
        "2210080110021a030a0102 2808 32030a0102 220a080110021a00 2804 3200 32096d6f64656c2f616464"
        "0000803f 000000c0 0000003f 0000c03f 0000c0bf".replace(" ", "")
    )
    x, half = torch.tensor([1.0, -2.0]), torch.tensor(0.5)

    path = dump.write_operator(str(tmp_path), "Add", "model/add", 3, 7, [x, half], [x + half], origins=[("add", 0, 0)])
    dump.flush()

    content = Path(path).read_bytes()
    assert len(content) == 110
    assert content[:0x0E] + content[0x16:] == expected[:0x0E] + expected[0x16:]
    head, _, time = os.path.basename(path).rpartition(".")
    assert head == "Add.model_add.3.7"
    assert len(time) == 16 and read_dump(path).time == int(time)


@pytest.mark.parametrize("dtype", HEADER_TYPES, ids=str)
def test_every_dtype(dump: Any, tmp_path: Path, dtype: torch.dtype) -> None:
    size = torch.empty(0, dtype=dtype).element_size()
    raw = torch.randint(0, 2 if dtype == torch.bool else 256, (6 * size,), dtype=torch.uint8)
    tensor = raw.view(dtype).reshape(2, 3)

    dumped = read_dump(write(dump, tmp_path, [tensor], [tensor[:, 1]]))

    assert [operand.data_type for operand in dumped.inputs + dumped.outputs] == [HEADER_TYPES[dtype]] * 2
    assert [operand.shape for operand in dumped.inputs + dumped.outputs] == [[2, 3], [2]]
    assert dumped.inputs[0].data == raw.numpy().tobytes()
    assert dumped.outputs[0].data == payload(tensor[:, 1])
    assert dumped.attributes == {}


def test_a_type_that_the_header_lacks_is_named_in_an_attribute(dump: Any, tmp_path: Path) -> None:
    tensor = torch.arange(4, dtype=torch.uint8).view(torch.float8_e4m3fnuz)
    dumped = read_dump(write(dump, tmp_path, [], [tensor]))
    assert dumped.outputs[0].data_type == 0
    assert dumped.outputs[0].data == b"\0\1\2\3"
    assert dumped.attributes == {"assay_dtype.output.0": "float8_e4m3fnuz"}


LAYOUTS = {
    "transposed": lambda: torch.randn(3, 5).t(),
    "permuted": lambda: torch.randn(2, 3, 4, 5).permute(2, 0, 3, 1),
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "every other": lambda: torch.randn(7, 9)[::2, 1::3],
    "expanded": lambda: torch.randn(1, 4).expand(3, 4),
    "offset": lambda: torch.randn(10)[3:7],
    "scalar": lambda: torch.tensor(2.5),
    "empty": lambda: torch.empty(0, 4),
    "empty in the middle": lambda: torch.randn(3, 4)[:, 4:],
    "conjugate": lambda: torch.randn(3, 2, dtype=torch.complex64).conj(),
    "conjugate half": lambda: torch.randn(4, dtype=torch.complex32).t().conj(),
    "negative": lambda: torch.randn(3, dtype=torch.complex64).conj().imag,
    "negative integers": lambda: torch._neg_view(torch.tensor([1, -2, 0])),
    "requires gradient": lambda: torch.randn(3, requires_grad=True),
    "parameter": lambda: torch.nn.Parameter(torch.randn(3)),
    "many dimensions": lambda: torch.randn([1, 2] * 6),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("queue_bytes", [1 << 20, 1], ids=["copied", "written in place"])
def test_every_layout(tmp_path: Path, name: str, queue_bytes: int) -> None:
    """A queue smaller than the operator makes the writer read the tensor's own memory."""
    writer = _capture.GraphDump(queue_bytes=queue_bytes)
    tensor = LAYOUTS[name]()

    dumped = read_dump(write(writer, tmp_path, [tensor, torch.ones(2)], [tensor]))

    assert [operand.shape for operand in dumped.inputs] == [list(tensor.shape), [2]]
    assert dumped.inputs[0].data == dumped.outputs[0].data == payload(tensor)
    assert dumped.inputs[1].data == payload(torch.ones(2))
    writer.close()


def test_what_changes_after_the_call_is_not_in_the_file(dump: Any, tmp_path: Path) -> None:
    tensors = [torch.full((n,), 7.0) for n in (1, 1000, 1_000_000)]
    path = dump.write_operator(str(tmp_path), "Add", "Add", 1, 0, tensors, [])
    for tensor in tensors:
        tensor.zero_()
    dump.flush()
    assert all(set(np.frombuffer(operand.data, "<f4")) == {7.0} for operand in read_dump(path).inputs)


def test_an_operator_larger_than_the_queue_is_on_disk_at_once(tmp_path: Path) -> None:
    writer = _capture.GraphDump(queue_bytes=1 << 20)
    large = torch.randn(3000, 1000)
    path = writer.write_operator(str(tmp_path), "Add", "Add", 1, 0, [large.t()], [large])
    dumped = read_dump(path)
    assert dumped.inputs[0].data == payload(large.t())
    assert dumped.outputs[0].data == payload(large)
    writer.close()


@pytest.mark.slow
def test_sizes_beyond_2_gib(tmp_path: Path) -> None:
    """One byte of memory, expanded: only the file is large."""
    count = (1 << 31) + 7
    writer = _capture.GraphDump()
    path = writer.write_operator(
        str(tmp_path), "Add", "Add", 1, 0, [torch.tensor([3], dtype=torch.uint8).expand(count), torch.ones(1)], []
    )
    writer.close()
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        inputs = [wire(message) for number, message in wire(file.read(length)) if number == 4]
        assert [one(item, 5) for item in inputs] == [count, 4]
        file.seek(8 + length + count - 2)
        assert file.read() == b"\3\3" + b"\0\0\x80\x3f"
    os.unlink(path)


# ---- operands that are not there --------------------------------------------------------------------------------


def test_indices_do_not_shift(dump: Any, tmp_path: Path) -> None:
    a, b, c = (torch.full((2,), float(i)) for i in range(3))

    dumped = read_dump(write(dump, tmp_path, [a, None, c, a], [a, b], left_out=[("input", 0), ("output", 0)]))

    assert [(operand.arg_index, operand.data) for operand in dumped.inputs] == [(2, payload(c)), (3, payload(a))]
    assert [(operand.arg_index, operand.data) for operand in dumped.outputs] == [(1, payload(b))]
    assert dumped.attributes == {"assay_operand_index": "arg_index"}


def fake_tensor() -> torch.Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.empty(3)


UNREADABLE = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "meta": lambda: torch.empty(3, device="meta"),
    "fake": fake_tensor,
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "resized away": lambda: _without_storage(torch.ones(300)),
}


def _without_storage(tensor: torch.Tensor) -> torch.Tensor:
    tensor.untyped_storage().resize_(8)
    return tensor


@pytest.mark.parametrize("name", UNREADABLE)
@pytest.mark.parametrize("statistics", [None, ()], ids=["tensors", "statistics"])
def test_what_cannot_be_read_is_told_and_the_rest_is_stored(
    dump: Any, tmp_path: Path, name: str, statistics: Any
) -> None:
    unreadable = UNREADABLE[name]()
    path = write(dump, tmp_path, [unreadable, torch.ones(2)], [torch.ones(2)], statistics=statistics)

    ((folder, node, reason, count),) = dump.take_missed()

    assert (folder, node, count) == (str(tmp_path), "Add_1", 1)
    assert reason.startswith("input 0: ") and len(reason) > 12
    assert dump.take_missed() == []
    if statistics is None:
        dumped = read_dump(path)
        assert [operand.arg_index for operand in dumped.inputs] == [1]
        assert dumped.inputs[0].data == payload(torch.ones(2))
        assert dumped.attributes["assay_missing.input.0"] == reason.removeprefix("input 0: ")
    else:
        rows = rows_of(path)
        assert [row["Max Value"] for row in rows] == ["NA", "1", "1"]
        assert [row["Index"] for row in rows] == ["0", "1", "0"]


# ---- statistics -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32])
@pytest.mark.parametrize("special", ["", "nan", "inf"])
@pytest.mark.parametrize("transposed", [False, True])
def test_statistics_are_numpys(dump: Any, tmp_path: Path, dtype: torch.dtype, special: str, transposed: bool) -> None:
    """NaN is counted and left out, infinities take part."""
    if special and not dtype.is_floating_point:
        pytest.skip("integers have neither")
    torch.manual_seed(1)
    values = (torch.randn(37, 53) * 100).to(dtype)
    if special == "nan":
        values[0, 0] = values[1, 5] = float("nan")
    elif special == "inf":
        values[1, 1], values[2, 2], values[3, 3] = float("inf"), float("nan"), float("inf")
    tensor = values.t() if transposed else values
    choice = ["Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf", "L2norm"]

    path = write(dump, tmp_path, [], [tensor], statistics=choice)

    assert path.endswith(".csv")
    (row,) = rows_of(path)
    wide = tensor.to(torch.float64).numpy()
    known = wide[~np.isnan(wide)]
    assert row["Shape"] == "x".join(map(str, tensor.shape))
    assert int(row["Data Size"]) == tensor.nbytes
    assert int(row["Count"]) == wide.size
    assert int(row["Nan Count"]) == np.isnan(wide).sum()
    assert int(row["Positive Inf Count"]) == np.isposinf(wide).sum()
    assert int(row["Negative Inf Count"]) == np.isneginf(wide).sum()
    # Printed with the digits of float32, except for types that are wider than that.
    read = float if dtype in (torch.float64, torch.int32) else np.float32
    assert (read(row["Max Value"]), read(row["Min Value"])) == (known.max(), known.min())
    tolerance = 1e-12 if dtype in (torch.float64, torch.int32) else 1e-7
    np.testing.assert_allclose(float(row["l2norm"]), np.sqrt((known**2).sum()), rtol=tolerance)
    np.testing.assert_allclose(float(row["Avg Value"]), known.mean(), rtol=tolerance)


def test_statistics_of_a_tensor_that_would_fill_the_memory(dump: Any, tmp_path: Path) -> None:
    tensor = torch.tensor([2.0]).expand(1 << 32)
    (row,) = rows_of(write(dump, tmp_path, [tensor], [], statistics=["Max", "Avg"]))
    assert row["Data Size"] == str(1 << 34)
    assert (row["Count"], row["Max Value"], row["Avg Value"]) == (str(1 << 32), "2", "2")


# ---- names ------------------------------------------------------------------------------------------------------


def test_long_and_unsafe_names(dump: Any, tmp_path: Path) -> None:
    names = ['layers.0/attn: "q"<0>|?*\\', "a," + "x" * 300, "\u00e4" * 130, "plain"]
    paths = {}
    for name in names:
        paths[name] = dump.write_operator(str(tmp_path), "aten.mm", name, 1, 0, [torch.ones(1)], [])
        dump.write_operator(str(tmp_path), "aten.mm", name, 1, 0, [torch.ones(1)], [], statistics=())
    dump.flush()

    assert {name: read_dump(path).name for name, path in paths.items()} == {name: name for name in names}
    rows = table(tmp_path / "mapping.csv")
    assert rows[0] == ["file", "name"]
    full_names = dict(rows[1:])
    files = [path.name for path in tmp_path.iterdir()]
    assert len(files) == 2 * len(names) + 1
    assert all(len(file.encode()) <= 255 and not set(file) & set('<>:"/\\|?* ') for file in files)
    for name in names:
        file = os.path.basename(paths[name])
        full = full_names.get(file, file)
        assert full.startswith("aten_mm." + name.translate({ord(c): "_" for c in '<>:"/\\|?*. '}) + ".1.0.")
        assert (file in full_names) == (len(full.encode()) > 255)
    assert sorted(name.endswith(".csv") for name in full_names) == [False] * 2 + [True] * 2


def test_the_name_of_the_file_alone_can_be_another(dump: Any, tmp_path: Path) -> None:
    path = write(dump, tmp_path, [], [torch.ones(1)], extra_name="Mul_To_Add_1", message="why")
    assert os.path.basename(path).startswith("Add.Mul_To_Add_1.3.7.")
    assert (read_dump(path).name, read_dump(path).message) == ("Add_1", "why")


def test_files_of_one_operator_from_several_threads_do_not_collide(dump: Any, tmp_path: Path) -> None:
    def work(number: int) -> None:
        for _ in range(300):
            dump.write_operator(str(tmp_path), "Add", "Add", 1, 0, [torch.full((3,), float(number))], [])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    dump.flush()

    values = [np.frombuffer(read_dump(path).inputs[0].data, "<f4")[0] for path in tmp_path.iterdir()]
    assert sorted(values) == [0.0] * 300 + [1.0] * 300 + [2.0] * 300 + [3.0] * 300


# ---- arrays and other files -------------------------------------------------------------------------------------


def test_arrays(dump: Any, tmp_path: Path) -> None:
    matrix = torch.randn(3, 4)
    narrow = torch.tensor([1.5, -3.25, float("inf"), float("nan")], dtype=torch.bfloat16)
    dump.write_array(str(tmp_path / "new" / "t.npy"), matrix.t())
    dump.write_array(str(tmp_path / "wide.npy"), narrow, widen_bfloat16=True)
    dump.write_array(str(tmp_path / "narrow.npy"), narrow)
    dump.write_array(str(tmp_path / "t.pt"), narrow)
    dump.write_array(str(tmp_path / "scalar.npy"), torch.tensor(7))
    dump.flush()

    assert np.array_equal(np.load(tmp_path / "new" / "t.npy"), matrix.t().numpy())
    np.testing.assert_array_equal(np.load(tmp_path / "wide.npy"), narrow.float().numpy())
    assert np.load(tmp_path / "narrow.npy").view("<u2").tolist() == narrow.view(torch.uint16).tolist()
    loaded = torch.load(tmp_path / "t.pt", weights_only=True)
    assert loaded.dtype == torch.bfloat16
    assert torch.equal(loaded.view(torch.int16), narrow.view(torch.int16))
    assert np.load(tmp_path / "scalar.npy").shape == ()
    assert dump.take_missed() == []


def test_an_array_that_the_format_cannot_hold_is_told(dump: Any, tmp_path: Path) -> None:
    dump.write_array(str(tmp_path / "c.npy"), torch.zeros(2, dtype=torch.complex32))
    ((folder, name, reason, _),) = dump.take_missed()
    assert (folder, name) == (str(tmp_path), "c.npy")
    assert "complex32" in reason
    assert list(tmp_path.iterdir()) == []


def test_bytes_replace_a_file(dump: Any, tmp_path: Path) -> None:
    for content in (b"first, longer", b"", b"{}"):
        dump.write_bytes(str(tmp_path / "graphs.json"), content)
        dump.flush()
        assert (tmp_path / "graphs.json").read_bytes() == content


# ---- failures ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "more", "error", "words"),
    [
        (("relative", "Add", "Add", 0, 0, [], []), {}, ValueError, "absolute"),
        (("/x\0y", "Add", "Add", 0, 0, [], []), {}, ValueError, "null"),
        (("/x", "Add", "Add", 0, 0, [1.0], []), {}, TypeError, "input 0 is a float"),
        (("/x", "Add", "Add", 0, 0, [], ["y"]), {}, TypeError, "output 0 is a str"),
        (("/x", "Add", 3, 0, 0, [], []), {}, TypeError, "op_name"),
        (("/x", "Add", "Add", 0, 0, 5, []), {}, TypeError, "iterable"),
        (("/x", "Add", "Add", 0, 0, [], []), {"statistics": ["max"]}, ValueError, "'max'; known are Max"),
        (("/x", "Add", "Add", 0, 0, [], []), {"left_out": [("in", 0)]}, ValueError, "input"),
        (("/x", "Add", "Add", 0, 0, [], []), {"attributes": [("a", 1)]}, TypeError, "value"),
        (("/x", "Add", "Add", 0, 0, [], [torch.ones(1)]), {"origins": ["add"]}, TypeError, "origins"),
        (("/x", "Add", "Add", 0, 0, [], []), {"unknown": 1}, TypeError, "unknown"),
    ],
)
def test_wrong_arguments(dump: Any, arguments: Any, more: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        dump.write_operator(*arguments, **more)
    assert dump.stats()["files"] == 0


def test_a_folder_that_cannot_be_made_costs_its_files_only(
    dump: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for _ in range(3):
        write(dump, tmp_path / "file" / "0", [torch.ones(1)])
    good = write(dump, tmp_path / "good", [torch.ones(1)])

    stats = dump.stats()

    assert (stats["failed"], stats["files"], stats["dropped"]) == (3, 1, 0)
    assert str(tmp_path / "file") in stats["first_error"]
    assert read_dump(good).inputs[0].size == 4
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1 and "the run continues" in lines[0]


def test_a_full_queue_drops_and_counts(tmp_path: Path) -> None:
    writer = _capture.GraphDump(queue_bytes=3 << 20, drop=True)
    tensor = torch.ones(1 << 18)  # 1 MiB
    paths = [writer.write_operator(str(tmp_path), "Add", "Add", i, 0, [tensor], []) for i in range(100)]
    writer.close()
    stats = writer.stats()
    assert paths.count("") == stats["dropped"]
    assert sorted(filter(None, paths)) == sorted(str(path) for path in tmp_path.iterdir())
    assert stats["files"] + stats["dropped"] == 100


def test_nothing_is_written_after_close(tmp_path: Path) -> None:
    writer = _capture.GraphDump()
    write(writer, tmp_path, [torch.ones(1)])
    writer.close()
    writer.close()
    assert not writer.live
    assert write(writer, tmp_path, [torch.ones(1)]) == ""
    writer.write_array(str(tmp_path / "x.npy"), torch.ones(1))
    writer.write_bytes(str(tmp_path / "x"), b"x")
    assert len(list(tmp_path.iterdir())) == writer.stats()["files"] == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork in a process with threads
def test_a_forked_child_writes_nothing(dump: Any, tmp_path: Path) -> None:
    write(dump, tmp_path, [torch.ones(1)])
    child = os.fork()
    if child == 0:
        status = 1
        try:
            made = dump.write_operator(str(tmp_path), "Add", "Child", 1, 0, [torch.ones(1)], [])
            dump.flush()
            dump.close()
            status = 0 if made == "" and not dump.live else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    write(dump, tmp_path, [torch.ones(1)])
    assert sorted(path.name.split(".")[1] for path in tmp_path.iterdir()) == ["Add_1", "Add_1"]


HOST = """
import sys, torch
from assay import _capture
writer = _capture.GraphDump(queue_bytes=8 << 20)
print("begun", flush=True)
step = 0
while True:
    for rows in (1, 30, 3000):
        tensor = torch.full((rows, 64), float(rows))
        writer.write_operator(f"{sys.argv[1]}/{step}", "Add", f"Add_{rows}", 1, 0, [tensor.t()], [tensor])
        writer.write_operator(f"{sys.argv[1]}/{step}", "Add", "x" * 300 + str(rows), 1, 0, [tensor], [])
    step += 1
"""


def test_a_killed_host_leaves_whole_files_only(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, str(tmp_path)], stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert host.stdout is not None and host.stdout.readline() == b"begun\n"
    while not any(tmp_path.glob("*/Add.*")):
        assert host.poll() is None
    try:
        host.wait(random.Random(seed).uniform(0.05, 0.5))
    except subprocess.TimeoutExpired:
        host.send_signal(signal.SIGKILL)
    host.wait()

    files = [path for path in tmp_path.glob("*/*") if path.name != "mapping.csv" and not path.name.endswith(".tmp")]
    assert files
    for path in files:
        dumped = read_dump(path)
        rows = int(dumped.name.rpartition("_")[2] if "_" in dumped.name else dumped.name[300:])
        assert np.frombuffer(dumped.inputs[0].data, "<f4").tolist() == [float(rows)] * rows * 64
    for mapping in tmp_path.glob("*/mapping.csv"):
        stored = {path.name for path in mapping.parent.iterdir() if "." not in path.name}
        assert stored <= {row[0] for row in table(mapping)}
