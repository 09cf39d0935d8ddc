# SPDX-License-Identifier: Apache-2.0
"""assay.capture of models on an accelerator; skipped where there is none.

The oracle for bytes is torch (the same tensors fetched one by one), the oracle for statistics is a capture of the same
tensors on the CPU, whose statistics the tests of src/stats hold against plain loops, and NumPy.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")


def accelerator() -> str:
    """The type of this machine's accelerator; empty when there is none, or torch is too old to say."""
    of_torch = getattr(torch, "accelerator", None)
    if of_torch is None:
        return "cuda" if torch.cuda.is_available() else ""
    return str(of_torch.current_accelerator().type) if of_torch.is_available() else ""


DEVICE = accelerator()
if not DEVICE:
    pytest.skip("no accelerator", allow_module_level=True)

from bench import record_lines  # noqa: E402

import assay  # noqa: E402
from assay.torch import _cuda, _device  # noqa: E402

needs_cuda = pytest.mark.skipif(DEVICE != "cuda" or torch.version.cuda is None, reason="no device of CUDA")


class Passes(torch.nn.Module):
    """Returns what it is given, as tensors of its own."""

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tensors


def bytes_of(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def captured(model: torch.nn.Module, folder: Path, *inputs: Any, **options: Any) -> Any:
    """Runs a model once below a capture; returns its result and the records."""
    with torch.no_grad(), assay.capture(model, folder, **options):
        result = model(*inputs)
    run = assay.open(folder)
    assert run.verify() == ()
    return result, list(run.records)


def raw_records(folder: Path) -> list[dict[str, Any]]:
    return record_lines.read(folder / "rank0" / "records.jsonl")


def statistics_of(folder: Path) -> list[Any]:
    """Of each record, as its line has them: all digits, and the sketch."""
    return [(r["node"], r["role"], r["slot"], r.get("stats")) for r in raw_records(folder)]


def tiny_llama(dtype: torch.dtype) -> torch.nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4, vocab_size=512
    )
    return transformers.LlamaForCausalLM(config).eval().to(dtype)


FLOATS = [torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
OTHERS = [torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2]
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "whole": lambda x: x,
    "transposed": lambda x: x.t(),
    "columns": lambda x: x[:, 3:90],
    "every third row": lambda x: x[::3],
    "transposed columns": lambda x: x[:, 3:90].t(),
    "expanded": lambda x: x[:, None, :].expand(-1, 4, -1),
    "one": lambda x: x[0, 0],
    "none": lambda x: x[:0],
}


def values_of(dtype: torch.dtype, shape: tuple[int, int]) -> torch.Tensor:
    """Values of a type; where it has such, with NaN, infinities, subnormals and zeros of both signs."""
    torch.manual_seed(27)
    values = 30 * torch.randn(shape, dtype=torch.complex128 if dtype.is_complex else torch.float64)
    if dtype.is_floating_point:
        flat = values.view(-1)
        flat[3], flat[17], flat[170] = float("nan"), float("inf"), -float("inf")
        flat[5], flat[6], flat[7] = 1e-40, 0.0, -0.0
    return values.to(dtype)


@pytest.mark.parametrize("data", ["stats", "full"])
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + OTHERS, ids=str)
def test_the_records_are_those_of_the_same_tensors_on_the_cpu(tmp_path: Path, dtype: torch.dtype, data: str) -> None:
    base = values_of(dtype, (700, 100))  # nine blocks of most types
    exact = dtype not in OTHERS
    on_cpu = [layout(base) for layout in LAYOUTS.values()]
    on_device = [layout(base.to(DEVICE)) for layout in LAYOUTS.values()]
    _, expected = captured(Passes(), tmp_path / "cpu", *on_cpu, data=data)
    _, actual = captured(Passes(), tmp_path / "device", *on_device, data=data)
    assert len(actual) == len(expected)
    if exact:
        assert statistics_of(tmp_path / "device") == statistics_of(tmp_path / "cpu")
    for mine, golden in zip(actual, expected):
        assert (mine.slot, mine.shape, mine.dtype_name) == (golden.slot, golden.shape, golden.dtype_name)
        place = (golden.role, list(LAYOUTS)[int(golden.slot)])
        if data == "full":
            assert bytes_of(mine.torch()) == bytes_of(golden.torch()), place
        for name in ("count", "nan_count", "positive_inf_count", "negative_inf_count"):
            assert getattr(mine.stats, name) == getattr(golden.stats, name), place
        for name in ("min", "max", "mean", "l2_norm"):
            expected_value = pytest.approx(getattr(golden.stats, name), rel=1e-12, nan_ok=True)
            assert getattr(mine.stats, name) == expected_value, place


@pytest.mark.parametrize("count", [1, 15, 64, 65, 4096, 8192, 8193, 100_003, 256 * 8192, 600 * 8192 + 77])
def test_statistics_are_numpy_s_and_have_the_bits_of_the_cpu_s(tmp_path: Path, count: int) -> None:
    torch.manual_seed(count)
    x = (torch.randn(count) * 3 + 0.1).bfloat16()
    _, (mine, *_) = captured(Passes(), tmp_path / "device", x.to(DEVICE), data="stats")
    captured(Passes(), tmp_path / "cpu", x, data="stats")
    assert statistics_of(tmp_path / "device") == statistics_of(tmp_path / "cpu")
    wide = x.double().numpy()
    assert (mine.stats.min, mine.stats.max) == (wide.min(), wide.max())
    assert mine.stats.mean == pytest.approx(wide.mean(), rel=1e-9, abs=1e-12)
    assert mine.stats.l2_norm == pytest.approx(np.linalg.norm(wide), rel=1e-12)


@needs_cuda
def test_statistics_do_not_need_torch_s_operators(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    # The fast path is the one that is tested above: no tensor of a common type takes the other one.
    def refuse(self: Any, tensor: torch.Tensor) -> None:
        raise AssertionError(f"{tensor.dtype} {tuple(tensor.shape)} went to torch's operators")

    monkeypatch.setattr(_device.DevicePath, "send", refuse)
    inputs = [values_of(dtype, (64, 100)).to(DEVICE) for dtype in FLOATS + INTEGERS]
    _, records = captured(Passes(), tmp_path / "run", *inputs)
    assert all(record.recorded_stats is not None for record in records) and len(records) == 2 * len(inputs)
    assert capsys.readouterr().err == ""


@needs_cuda
def test_a_device_without_our_kernels_says_so_and_records_the_same(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    def refuse(*arguments: Any) -> bytes:
        raise RuntimeError("no such compiler")

    monkeypatch.setattr(_cuda, "compile_kernels", refuse)
    x = torch.randn(300, 100, device=DEVICE)
    _, records = captured(Passes(), tmp_path / "run", x)
    assert capsys.readouterr().err.count("taken by torch's operators, which is slower: no such compiler") == 1
    assert bytes_of(records[0].torch()) == bytes_of(x)
    assert records[0].stats.l2_norm == pytest.approx(float(x.double().norm()), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("level", ["module", "operator"])
@pytest.mark.parametrize("data", ["none", "stats", "full"])
def test_the_model_computes_the_same_bits(tmp_path: Path, data: str, level: str, dtype: torch.dtype) -> None:
    model = tiny_llama(dtype).to(DEVICE)
    tokens = torch.arange(48, device=DEVICE).reshape(2, 24)
    with torch.no_grad():
        plain = model(tokens).logits
        with assay.capture(model, tmp_path / "run", data=data, level=level):
            seen = model(tokens).logits
        after = model(tokens).logits
    assert torch.equal(plain, seen) and torch.equal(plain, after)
    run = assay.open(tmp_path / "run")
    assert run.verify() == ()
    if data != "none":
        tensors = [record for record in run.records if record.shape is not None and not record.problem]
        assert tensors and all(record.recorded_stats is not None for record in tensors)


class Spins(torch.nn.Module):
    """Keeps the device busy for a second, then calls modules; `busy` says whether it still was when they had run."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(50))
        self.busy = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.cuda._sleep(2_000_000_000)
        done = torch.cuda.Event()
        done.record()
        for layer in self.layers:
            x = layer(x).relu()
        self.busy = not done.query()
        return x


@needs_cuda
@pytest.mark.parametrize("level", ["module", "operator"])
@pytest.mark.parametrize("data", ["stats", "full"])
def test_no_tensor_waits_for_the_device(tmp_path: Path, data: str, level: str) -> None:
    model = Spins().to(DEVICE)
    x = torch.randn(32, 64, device=DEVICE)
    with torch.no_grad(), assay.capture(model, tmp_path / "run", data=data, level=level):
        model(x)  # compiles the kernels and makes memory, once
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            model(x)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert model.busy
    assert assay.open(tmp_path / "run").verify() == ()


class Overwrites(torch.nn.Module):
    """Every output is overwritten right after its module has returned, and its memory given to others."""

    def __init__(self) -> None:
        super().__init__()
        self.passes = Passes()
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.cuda._sleep(100_000_000)  # what reads later than the model's stream reads the wrong thing
        for i in range(20):
            y = x + i
            self.seen.append(y.clone())
            self.passes(y)
            y.fill_(-1.0)
            del y
            torch.full_like(x, 77.0)
        return x


@needs_cuda
@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
def test_tensors_are_recorded_as_they_were_when_the_module_returned(tmp_path: Path, guard: Any) -> None:
    model = Overwrites()
    x = torch.randn(1000, 700, device=DEVICE)
    with guard(), assay.capture(model, tmp_path / "run"):
        model(x)
    run = assay.open(tmp_path / "run")
    outputs = [r for r in run.records if r.role == "output" and r.node == "passes"]
    assert len(outputs) == 20 and run.verify() == ()
    for record, seen in zip(outputs, model.seen):
        assert bytes_of(record.torch()) == bytes_of(seen)
        assert record.stats.max == float(seen.max())


class OnTwoStreams(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = Passes(), Passes()
        self.streams = [torch.cuda.Stream(), torch.cuda.Stream()]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        results = []
        for number, (stream, module) in enumerate(zip(self.streams, (self.left, self.right))):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                torch.cuda._sleep(200_000_000 * (2 - number))
                for i in range(5):
                    y = x * (number + 2) + i
                    module(y)
                    results.append(y)
        for stream in self.streams:
            torch.cuda.current_stream().wait_stream(stream)
        return torch.stack(results)


@needs_cuda
@pytest.mark.parametrize("own_kernels", [True, False])
def test_work_on_two_streams_is_recorded_from_both(tmp_path: Path, monkeypatch: Any, own_kernels: bool) -> None:
    if not own_kernels:
        monkeypatch.setattr(_device.DevicePath, "open_cuda", lambda self, index: None)
    model = OnTwoStreams()
    x = torch.randn(500, 300, device=DEVICE)
    results, records = captured(model, tmp_path / "run", x)
    left = [r for r in records if r.node == "left" and r.role == "input"]
    right = [r for r in records if r.node == "right" and r.role == "input"]
    for record, tensor in zip(left + right, results):
        assert bytes_of(record.torch()) == bytes_of(tensor)
        assert record.stats.l2_norm == pytest.approx(float(tensor.double().norm()), rel=1e-12)
    assert len(left) == len(right) == 5


@needs_cuda
def test_a_graph_that_is_recorded_below_a_capture_is_whole_and_named(tmp_path: Path, capsys: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).to(DEVICE)
    x = torch.randn(8, 64, device=DEVICE)
    with torch.no_grad():
        expected = model(x)
        with assay.capture(model, tmp_path / "run"):
            seen = model(x)
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                model(x)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                recorded = model(x)
            graph.replay()
            torch.cuda.synchronize()
    assert torch.equal(expected, recorded) and torch.equal(expected, seen)
    assert capsys.readouterr().err.count("modules inside a CUDA graph are out of sight") == 1
    missed = json.loads((tmp_path / "run" / "manifest.json").read_text())["coverage"]["missed"]
    assert any(entry["reason"] == "inside a CUDA graph" and entry["count"] > 0 for entry in missed)
    # then the two steps outside are whole, and the one inside says why it has nothing; the replay is no step
    records = raw_records(tmp_path / "run")
    assert {r["step"] for r in records} == {0, 1, 2}
    assert all(("stats" in r) == (r["step"] != 2) for r in records)
    assert all("inside a CUDA graph" in r.values() for r in records if r["step"] == 2)


@needs_cuda
def test_without_pinned_memory_the_model_goes_on_and_the_records_say_why(tmp_path: Path, monkeypatch: Any) -> None:
    pinned = _cuda.CudaDevice.pinned_memory

    def of_a_host_that_has_little(self: Any, size_bytes: int) -> int:
        if size_bytes > 8 << 20:
            raise MemoryError
        return pinned(self, size_bytes)

    monkeypatch.setattr(_cuda.CudaDevice, "pinned_memory", of_a_host_that_has_little)
    model = torch.nn.Linear(64, 64).to(DEVICE)
    x = torch.randn(8, 64, device=DEVICE)
    with torch.no_grad(), assay.capture(model, tmp_path / "run"):
        result = model(x)
    assert torch.equal(result, model(x))
    records = raw_records(tmp_path / "run")
    assert records and all("no pinned memory" in r.values() for r in records)


@needs_cuda
def test_without_memory_the_device_is_asked_once_and_the_records_say_why(tmp_path: Path, monkeypatch: Any) -> None:
    asked: list[int] = []

    def of_a_full_device(self: Any, size_bytes: int) -> int:
        asked.append(size_bytes)
        raise torch.OutOfMemoryError

    monkeypatch.setattr(_cuda.CudaDevice, "device_memory", of_a_full_device)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).to(DEVICE)
    x = torch.randn(8, 64, device=DEVICE)
    with torch.no_grad(), assay.capture(model, tmp_path / "run"):
        result = model(x)
    assert torch.equal(result, model(x)) and len(asked) == 1
    records = raw_records(tmp_path / "run")
    assert records and all("no memory on the device for its statistics" in r.values() for r in records)


@needs_cuda
def test_more_bytes_than_may_be_on_their_way_come_in_parts(tmp_path: Path) -> None:
    model = torch.nn.Sequential(*[torch.nn.LeakyReLU(0.5) for _ in range(12)])
    x = torch.randn(1024, 20_000, device=DEVICE)  # 82 MB, more than one piece of staging memory
    expected = [x]
    with torch.no_grad():
        for layer in model:
            expected.append(layer(expected[-1]))
    _, records = captured(model, tmp_path / "run", x)
    outputs = [r for r in records if r.role == "output" and r.node]
    assert len(outputs) == 12
    for record, tensor in zip(outputs, expected[1:]):
        assert bytes_of(record.torch()) == bytes_of(tensor)


@needs_cuda
def test_captures_give_their_memory_back(tmp_path: Path) -> None:
    model = torch.nn.Linear(64, 64).to(DEVICE)
    x = torch.randn(8, 64, device=DEVICE)
    allocated = []
    for number in range(3):
        captured(model, tmp_path / str(number), x)
        torch.cuda.synchronize()
        allocated.append(torch.cuda.memory_allocated())
    assert allocated[0] == allocated[1] == allocated[2]


@needs_cuda
def test_a_thread_that_works_on_another_device_or_none_is_served(tmp_path: Path) -> None:
    index = torch.cuda.device_count() - 1
    model = torch.nn.Linear(64, 64).to(f"cuda:{index}")
    x = torch.randn(8, 64, device=f"cuda:{index}")
    with torch.no_grad(), assay.capture(model, tmp_path / "run"):
        results: list[torch.Tensor] = []

        def work() -> None:
            with torch.no_grad():
                results.append(model(x))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    (output,) = [r for r in assay.open(tmp_path / "run").records if r.role == "output"]
    assert bytes_of(output.torch()) == bytes_of(results[0])


def test_digests_are_those_of_the_cpu(tmp_path: Path) -> None:
    x = torch.randn(100, 100)
    _, mine = captured(Passes(), tmp_path / "device", x.to(DEVICE), x.to(DEVICE).t(), data="stats", digest=True)
    _, golden = captured(Passes(), tmp_path / "cpu", x, x.t(), data="stats", digest=True)
    digests = [[r["digest"] for r in raw_records(tmp_path / folder)] for folder in ("device", "cpu")]
    assert digests[0] == digests[1] and len(digests[0]) == len(mine) == len(golden)


def test_a_run_on_the_cpu_compares_with_one_on_the_device(tmp_path: Path) -> None:
    model = tiny_llama(torch.float32)
    tokens = torch.arange(48).reshape(2, 24)
    captured(model, tmp_path / "cpu", tokens)
    captured(model.to(DEVICE), tmp_path / "device", tokens.to(DEVICE))
    command = os.environ.get("ASSAY_BINARY") or str(Path(sys.executable).with_name("assay"))
    done = subprocess.run(
        [command, "compare", str(tmp_path / "cpu"), str(tmp_path / "device")],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    print(done.stdout[-1500:])
