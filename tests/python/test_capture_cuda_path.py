# SPDX-License-Identifier: Apache-2.0
"""The CUDA path of the capture (src/capture/torch/cuda_path.cpp) over a driver that works on memory of the host.

tests/device runs the same on a real device. Here the oracle is a capture of the same tensors without that path.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any, Optional

import pytest

torch = pytest.importorskip("torch")

from bench import record_lines  # noqa: E402

import assay  # noqa: E402
from assay.torch import _cuda, _device  # noqa: E402
from assay.torch.capture import Capture  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]

if torch.cuda.is_available():
    pytest.skip("a real driver is here", allow_module_level=True)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    library = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
    source = ROOT / "tests" / "capture" / "cuda_stand_in.cpp"
    command = [compiler, "-std=c++20", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([*command, f"-I{ROOT / 'src'}", "-o", str(library), str(source)], check=True)
    loaded = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    for name in ("stand_in_stream", "stand_in_merge", "stand_in_kernel"):
        getattr(loaded, name).restype = ctypes.c_void_p
    return loaded


class StandIn:
    """What assay.torch._cuda.CudaDevice is to the native half."""

    def __init__(self, driver: ctypes.CDLL) -> None:
        self._driver = driver
        self.context = 1
        self.stream = driver.stand_in_stream()
        self.merge = driver.stand_in_merge()
        self.current_stream = lambda index: 0
        self.asked: list[tuple[str, int]] = []
        self.most = {"device": 1 << 40, "pinned": 1 << 40}  # largest piece of memory that there is
        self.memory: list[Any] = []
        self.closed = 0

    def kernel(self, dtype: str) -> int:
        return self._driver.stand_in_kernel(dtype.encode()) or 0

    def _memory(self, kind: str, size_bytes: int) -> int:
        self.asked.append((kind, size_bytes))
        if size_bytes > self.most[kind]:
            raise MemoryError
        self.memory.append(ctypes.create_string_buffer(b"\xcd" * 64, size_bytes))
        return ctypes.addressof(self.memory[-1])

    def device_memory(self, size_bytes: int) -> int:
        return self._memory("device", size_bytes)

    def pinned_memory(self, size_bytes: int) -> int:
        return self._memory("pinned", size_bytes)

    def close(self) -> None:
        self.closed += 1
        self.memory.clear()


@pytest.fixture
def device(driver: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn(driver)
    monkeypatch.setattr(_device.DevicePath, "open_cuda", lambda self, index: stand_in)
    return stand_in


class Passes(torch.nn.Module):
    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tensors


def capture_of(folder: Path, inputs: list[torch.Tensor], on_device: bool, steps: int = 1, **more: Any) -> list[Any]:
    options: dict[str, Any] = {
        **{"steps": None, "data": "full", "include": None, "exclude": None, "inputs": True, "outputs": True},
        **{"weights": False, "caches": False, "digest": False, "queue_bytes": 8 << 20, "on_full": "wait"},
        **{"disk_limit": None, "verify": False, **more},
    }
    model = Passes()
    with torch.no_grad(), Capture(model, folder, _force_device=on_device, **options):
        for _ in range(steps):
            model(*inputs)
    assert assay.open(folder).verify() == ()
    return record_lines.read(folder / "rank0" / "records.jsonl")


def tensors() -> list[torch.Tensor]:
    """Of all types that have a kernel, and some that have none, in all layouts, with values of all kinds."""
    torch.manual_seed(27)
    values = 30 * torch.randn(700, 100)
    values.view(-1)[:8] = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e-40, 0.0, -0.0, 3.0, 4.0])
    made = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool):
        base = values.nan_to_num().to(dtype) if not dtype.is_floating_point else values.to(dtype)
        made += [base, base.t(), base[:, 3:90], base[::3], base[:, 3:90].t(), base[0, 0], base[:0]]
        made.append(base[:, None, :].expand(-1, 4, -1))
        made.append(base[10:74] if dtype == torch.bool else base[10:74].clamp(min=0))  # many zeros
    made += [values.double(), values.to(torch.complex64), values.to(torch.float8_e4m3fn)]
    made.append(torch._neg_view(values[:100]))
    return made


@pytest.mark.parametrize("options", [{"data": "stats"}, {"data": "full"}, {"data": "stats", "digest": True}], ids=str)
def test_records_are_those_of_the_same_tensors_in_memory(tmp_path: Path, device: StandIn, options: Any) -> None:
    inputs = tensors()
    mine = capture_of(tmp_path / "device", inputs, True, **options)
    golden = capture_of(tmp_path / "memory", inputs, False, **options)
    assert len(mine) == len(golden) and device.closed == 1 and not device.memory
    exact = {"float32", "float16", "bfloat16", "int64", "int32", "bool"}
    for left, right in zip(mine, golden):
        for key in ("node", "role", "slot", "dtype", "shape", "strides", "digest", "same_as"):
            assert left.get(key) == right.get(key), (key, left)
        if left["dtype"] in exact:
            assert left["stats"] == right["stats"]
        else:
            assert left["stats"]["l2"] == pytest.approx(right["stats"]["l2"], rel=1e-9)
    if options["data"] == "full":
        for left, right in zip(assay.open(tmp_path / "device").records, assay.open(tmp_path / "memory").records):
            a, b = left.torch().contiguous(), right.torch().contiguous()
            assert torch.equal(a.view(-1).view(torch.uint8), b.view(-1).view(torch.uint8))


def test_many_blocks_are_merged_in_chunks_as_the_host_does(tmp_path: Path, device: StandIn) -> None:
    torch.manual_seed(1)
    inputs = [torch.randn(600 * 8192 + 77).bfloat16()]
    mine = capture_of(tmp_path / "device", inputs, True, data="stats")
    golden = capture_of(tmp_path / "memory", inputs, False, data="stats")
    assert [r["stats"] for r in mine] == [r["stats"] for r in golden]


@pytest.mark.parametrize(
    ("kind", "most", "reason", "asked"),
    [
        ("pinned", 8 << 20, "no pinned memory", 1),
        ("device", 32 << 20, "no memory on the device for a copy", 1),
        ("device", 0, "no memory on the device for its statistics", 1),
    ],
)
def test_memory_that_is_not_there_is_asked_for_once_a_step(
    tmp_path: Path, device: StandIn, kind: str, most: int, reason: str, asked: int
) -> None:
    device.most[kind] = most
    inputs = [torch.randn(100), torch.randn(200)]
    records = capture_of(tmp_path / "run", inputs, True, steps=3)
    assert len(records) == 12 and all(r["kind"] == "skipped" and reason in r.values() for r in records)
    assert sum(k == kind and size > most for k, size in device.asked) == 3 * asked
    # and what was had of the other kind is kept for the next time
    assert sum(k == "pinned" and size == 64 << 20 for k, size in device.asked) <= 3


def test_what_the_device_refuses_is_said(tmp_path: Path, device: StandIn, driver: ctypes.CDLL) -> None:
    try:
        driver.stand_in_fail(1, 0)
        records = capture_of(tmp_path / "launch", [torch.randn(100)], True)
        assert all("the device refused the launch" in r.values() for r in records)
        driver.stand_in_fail(0, 1)
        records = capture_of(tmp_path / "wait", [torch.randn(100)], True)
        assert all("the device refused the copy" in r.values() for r in records)
    finally:
        driver.stand_in_fail(0, 0)


@pytest.mark.parametrize("in_order", [True, False])
def test_packed_tensors_have_each_element_once(in_order: bool) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    packed, times, row_major = _cuda.pack(base[:, 1:4].t()[:, None, :].expand(-1, 5, -1), in_order)
    assert packed.is_contiguous()
    if in_order:
        assert (tuple(packed.shape), times, row_major) == ((3, 5, 4), 1, True)
        return
    assert (times, row_major) == (5, False)
    assert packed.flatten().tolist() == base[:, 1:4].flatten().tolist()


def test_a_torch_without_cuda_opens_no_device(capsys: Any) -> None:
    said: list[str] = []
    opened: Optional[_cuda.CudaDevice] = _cuda.opened(0, "", said.append)
    assert opened is None and (torch.version.cuda is not None or not said)
