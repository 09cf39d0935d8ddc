# SPDX-License-Identifier: Apache-2.0
"""Writes that torch's version counter does not show: what is recorded is what lies there, not what lay there before.

A module writes its child's result in a way that no counter counts. The oracle is a clone taken at each place.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("assay.torch.capture")

from bench import record_lines  # noqa: E402
from torch import nn  # noqa: E402

import assay  # noqa: E402

WRITERS: dict[str, Callable[[Any], None]] = {}


def writer(function: Callable[[Any], None]) -> Callable[[Any], None]:
    WRITERS[function.__name__] = function
    return function


def new_row(y: Any) -> np.ndarray:
    return np.linspace(5, 6, y.shape[-1], dtype=np.float32)


@writer
def data_row(y: Any) -> None:
    y.data[y.shape[0] // 3] = torch.from_numpy(new_row(y))


@writer
def data_of_one_value(y: Any) -> None:
    y.data[0, 1] = 77.0


@writer
def data_copy(y: Any) -> None:
    y.data.copy_(torch.full_like(y, 3))


@writer
def data_fill(y: Any) -> None:
    y.data.fill_(4)


@writer
def data_add(y: Any) -> None:
    y.data += 1


@writer
def data_view(y: Any) -> None:
    y.data.view(-1).neg_()


@writer
def data_as_out(y: Any) -> None:
    torch.add(torch.ones_like(y), 2, out=y.data)


@writer
def numpy_row(y: Any) -> None:
    y.numpy()[-1] = new_row(y)


@writer
def numpy_ravel(y: Any) -> None:
    y.numpy().ravel()[:] = 9


@writer
def numpy_out(y: Any) -> None:
    array = y.numpy()
    np.multiply(array, 3, out=array)


@writer
def numpy_copyto(y: Any) -> None:
    np.copyto(y.numpy(), 8)


@writer
def numpy_transposed(y: Any) -> None:
    y.t().numpy()[:, 1] = new_row(y)


@writer
def numpy_sorted(y: Any) -> None:
    y.numpy().sort(axis=-1)


@writer
def a_tensor_of_the_array(y: Any) -> None:
    torch.from_numpy(y.numpy()).mul_(2)


@writer
def a_tensor_of_the_buffer(y: Any) -> None:
    torch.frombuffer(memoryview(y.numpy()).cast("B"), dtype=torch.float32).add_(1)


@writer
def a_memoryview(y: Any) -> None:
    memoryview(y.numpy()).cast("B").cast("f")[3] = 99.0


@writer
def dlpack(y: Any) -> None:
    torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(y)).mul_(5)


@writer
def dlpack_of_numpy(y: Any) -> None:
    array = np.from_dlpack(y)
    array.flags.writeable or array.setflags(write=True)
    array[0] = new_row(y)


@writer
def ctypes_memset(y: Any) -> None:
    ctypes.memset(y.data_ptr(), 0, y.shape[-1] * 4)


@writer
def ctypes_memmove(y: Any) -> None:
    row = new_row(y)
    ctypes.memmove(y.data_ptr(), row.ctypes.data, row.nbytes)


@writer
def ctypes_one_float(y: Any) -> None:
    ctypes.cast(y.data_ptr(), ctypes.POINTER(ctypes.c_float))[2] = 55.0


@writer
def storage_fill(y: Any) -> None:
    y.untyped_storage().fill_(1)


@writer
def storage_copy(y: Any) -> None:
    y.untyped_storage().copy_(torch.full_like(y, 6).untyped_storage())


@writer
def storage_item(y: Any) -> None:
    y.untyped_storage()[3] = 66


@writer
def a_tensor_set_to_the_storage(y: Any) -> None:
    torch.empty(0).set_(y.untyped_storage(), 0, y.shape).mul_(7)


@writer
def the_counter_is_preserved(y: Any) -> None:
    with torch.autograd._unsafe_preserve_version_counter(y):
        y.mul_(11)


@writer
def another_thread(y: Any) -> None:
    array = y.numpy()
    thread = threading.Thread(target=lambda: np.copyto(array, 12))
    thread.start()
    thread.join()


@writer
def shared_memory(y: Any) -> None:
    y.share_memory_()
    y.numpy()[0] = new_row(y)


@writer
def an_operator_that_does_not_tell(y: Any) -> None:
    torch.ops.hidden_writes.scale(y)


@writer
def a_file_read_into_it(y: Any) -> None:
    with mmap.mmap(-1, y.shape[-1] * 4) as file:
        file.write(new_row(y).tobytes())
        file.seek(0)
        memoryview(y.numpy()).cast("B")[: y.shape[-1] * 4] = file.read()


LIBRARY = torch.library.Library("hidden_writes", "DEF")
LIBRARY.define("scale(Tensor x) -> ()")
LIBRARY.impl("scale", lambda x: _scale(x), "CPU")


def _scale(x: Any) -> None:
    x.numpy()[...] *= 13


class Makes(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2 + 1


class Writes(nn.Module):
    """Writes what its child returned, hands it to another child, and returns it."""

    def __init__(self, write: Callable[[Any], None]) -> None:
        super().__init__()
        self.first, self.second = Makes(), nn.Identity()
        self.write = write
        self.kept: list[tuple[str, str, Any]] = []  # (node, role, value)

    def forward(self, x: Any) -> Any:
        y = self.first(x)
        self.kept.append(("first", "output", y.clone()))
        self.write(y)
        self.kept.append(("second", "input", y.clone()))
        z = self.second(y)
        self.kept.append(("second", "output", z.clone()))
        self.write(z)
        self.kept.append(("", "output", z.clone()))
        return z


def value_of(run: Path, record: dict[str, Any]) -> Any:
    place = record.get("view") or record
    with open(run / "rank0" / place["file"], "rb") as file:
        file.seek(place["offset"])
        data = bytearray(file.read(place["bytes"]))
    flat = torch.frombuffer(data, dtype=torch.float32)
    if "view" in record:
        return flat.as_strided(record["shape"], record["strides"])
    return flat.reshape(record["shape"])


# 300 rows of 1024 floats: a row cannot be missed in the sample that is looked at again.
@pytest.mark.parametrize("level", ["module", "operator"])
@pytest.mark.parametrize("shape", [(3, 8), (300, 1024)], ids=["small", "large"])
@pytest.mark.parametrize("name", WRITERS)
def test_what_is_recorded_is_what_lies_there(name: str, shape: tuple[int, int], level: str, tmp_path: Path) -> None:
    if shape[0] > 3 and name in ("data_of_one_value", "a_memoryview", "ctypes_one_float", "storage_item"):
        pytest.skip("one value of a large tensor lies in the sample by chance")
    model = Writes(WRITERS[name])
    with torch.no_grad(), assay.capture(model, tmp_path / "run", level=level):
        for step in range(2):
            model(torch.linspace(-1, 1, shape[0] * shape[1]).reshape(shape) + step)
    records = [r for r in record_lines.read(tmp_path / "run" / "rank0" / "records.jsonl") if "::" not in r["node"]]
    found = {(r["step"], r["node"], r["role"]): value_of(tmp_path / "run", r) for r in records if r["shape"]}
    steps = [(number // 4, *entry) for number, entry in enumerate(model.kept)]
    for step, node, role, kept in steps:
        assert torch.equal(found[step, node, role], kept), (step, node, role)


@pytest.mark.parametrize("level", ["module", "operator"])
def test_a_parameter_that_is_written_through_data_is_another_value(level: str, tmp_path: Path) -> None:
    # given a product whose weight an adapter is merged into between steps
    torch.manual_seed(0)
    model = nn.Linear(1024, 64)  # rows of 4 KiB: none is missed
    x = torch.randn(2, 1024)
    outputs = []
    with torch.no_grad(), assay.capture(model, tmp_path / "run", level=level):
        outputs.append(model(x))
        model.weight.data.copy_(model.weight + torch.randn(64, 1024))
        outputs.append(model(x))
        model.weight.data[7] = 0
        outputs.append(model(x))
    records = record_lines.read(tmp_path / "run" / "rank0" / "records.jsonl")
    found = [value_of(tmp_path / "run", r) for r in records if r.get("role") == "output" and "::" not in r["node"]]
    assert all(torch.equal(mine, right) for mine, right in zip(found, outputs, strict=True))
    if level == "operator":
        inputs = [r for r in records if r.get("role") == "input" and "::" in r["node"] and r["shape"] == [64, 1024]]
        # then each step's product was given the weight of then, and only the first one is the parameter
        assert len({r["vid"] for r in inputs}) == 3
        assert [r.get("leaf") for r in inputs] == ["weight", None, None]
