# SPDX-License-Identifier: Apache-2.0
"""assay.open, records and arrays, held against torch, NumPy and safetensors."""

from __future__ import annotations

import doctest
import gc
import json
import math
import os
import random
import threading

import numpy as np
import pandas
import pytest
import torch
from safetensors.torch import save_file

import assay
import assay._run

ALL_TYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.int64,
    torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
]  # fmt: skip


def sample(dtype: torch.dtype) -> torch.Tensor:
    values = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    if dtype.is_floating_point or dtype.is_complex:
        values = values - 5.5
    return (values > 3) if dtype == torch.bool else values.to(dtype)


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.fixture
def tree(tmp_path):
    """A strict dump of two ranks, two steps, weights, and statistics without files."""
    for rank in ("npu10_3", "npu2_9"):
        folder = tmp_path / "msit_dump_20250220_083154" / "torch_tensors" / rank
        (folder / "weights").mkdir(parents=True)
        (folder / "model_tree.json").write_text(
            json.dumps(
                {
                    "name": "root",
                    "type": "M",
                    "children": [
                        {"name": "root.b", "type": "Linear", "children": []},
                        {"name": "root.a", "type": "Norm", "children": []},
                    ],
                }
            )
        )
        for step in (0, 10):
            for node in ("root.a", "root.b"):
                (folder / str(step) / node).mkdir(parents=True)
                torch.save(torch.full((2, 3), float(step)), folder / str(step) / node / "input_0.pth")
                torch.save(torch.full((2, 3), step + 0.5), folder / str(step) / node / "output.pth")
        torch.save(torch.nn.Parameter(torch.ones(3)), folder / "weights" / "root.a.weight.pth")
        (folder / "0" / "root").mkdir()
        (folder / "0" / "root" / "statistics.csv").write_text(
            "NodeName,NodeType,InputOutput,Index,DataType,Shape,Max,Min,Mean,L2Norm\r\n"
            'root,M,Output,0,torch.float16,"(2, 2)",4.0,-2.0,1.5,5.4772257804870605\r\n',
            newline="",
        )
    return tmp_path


def test_records_come_in_execution_order(tree):
    run = assay.open(tree)
    assert run.layout == "torch-tree"
    assert len(run) == 20
    rank_0 = [f"{r.step_name} {r.node} {r.role} {r.slot}".strip() for r in run.records.select(rank=0)]
    assert rank_0 == [
        "weights root.a weight weight",
        "0 root.b input 0",  # the tree's order, not the alphabet's
        "0 root.b output",
        "0 root.a input 0",
        "0 root.a output",
        "0 root output 0",  # after what it is made of
        "10 root.b input 0",
        "10 root.b output",
        "10 root.a input 0",
        "10 root.a output",
    ]
    assert [r.order for r in run.records] == list(range(20))
    assert "npu2_9" in run.records.select(rank=0)[0].file  # sorted by number


def test_tree_and_coverage(tree):
    run = assay.open(tree)
    assert [(node.name, node.type) for node in run.tree.walk()] == [
        ("root", "M"),
        ("root.b", "Linear"),
        ("root.a", "Norm"),
    ]
    assert run.coverage.complete and run.coverage.captured == 3
    assert run.warnings == []


def test_records_are_a_sequence(tree):
    records = assay.open(tree).records
    assert records[-1].node == "root.a"
    assert [r.order for r in records[2:5]] == [2, 3, 4]
    assert len(records[::2]) == 10
    assert len(records.select("root.*", role="output", step=10)) == 4
    with pytest.raises(IndexError):
        records[20]


def test_statistics_only_records_have_no_bytes(tree):
    (record,) = assay.open(tree).records.select("root", rank=0)
    assert (record.dtype_name, record.shape) == ("float16", (2, 2))
    assert record.stats.l2_norm == 5.4772257804870605
    with pytest.raises(assay.FileError) as error:
        record.numpy()
    assert error.value.code == "NotFound"


def test_to_pandas_keeps_unreadable_files_as_rows(tree):
    broken = next(tree.rglob("0/root.b/output.pth"))
    broken.write_bytes(b"PK\x03\x04")
    table = assay.open(tree).records.to_pandas()
    assert len(table) == 20
    assert table["problem"].astype(bool).sum() == 1
    row = table[table["problem"].astype(bool)].iloc[0]
    assert str(broken) in row["problem"] and pandas.isna(row["dtype"])
    assert table[table["node"] == "root.a"].iloc[0]["shape"] == (3,)


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
def test_arrays_hold_the_bits_that_torch_saved(tmp_path, dtype):
    tensor = sample(dtype)
    torch.save(tensor, tmp_path / "x.pth")
    record = assay.open(tmp_path / "x.pth").records[0]
    array = record.numpy()
    assert record.dtype_name == str(dtype).removeprefix("torch.")
    assert array.shape == record.shape == (3, 4)
    assert array.tobytes() == bits(tensor)
    assert not array.flags.writeable
    with pytest.raises(ValueError):
        array[0] = 0
    restored = record.torch()
    assert restored.dtype == dtype and bits(restored) == bits(tensor)


def test_ml_dtypes_give_bfloat16_arithmetic_where_installed(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    torch.save(torch.tensor([1.5, -2.0], dtype=torch.bfloat16), tmp_path / "x.pth")
    array = assay.read_tensor(tmp_path / "x.pth")
    assert array.dtype == ml_dtypes.bfloat16
    assert array.astype(np.float32).tolist() == [1.5, -2.0]


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.t(),
        lambda t: t[1:, ::2],
        lambda t: t[0].expand(4, 4),
        lambda t: t[:0],
        lambda t: torch.tensor(7.0),
        lambda t: torch.complex(t, -t).conj(),
        lambda t: torch.complex(t, -t).conj().imag,
    ],
    ids=["transposed", "strided", "expanded", "empty", "0-d", "conj", "neg"],
)
def test_views_show_what_torch_shows(tmp_path, view):
    tensor = view(torch.arange(12.0).reshape(3, 4))
    torch.save(tensor, tmp_path / "x.pth")
    record = assay.open(tmp_path / "x.pth").records[0]
    expected = tensor.resolve_conj().resolve_neg()
    np.testing.assert_array_equal(record.numpy(), expected.numpy())
    assert torch.equal(record.torch(), expected)
    assert record.stats == assay.stats(tensor)
    assert record.digest == assay.digest(tensor) == assay.digest(expected.numpy().copy())


def test_arrays_are_not_copies_and_outlive_their_run(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(1_000_000, dtype=np.float64))
    run = assay.open(tmp_path / "x.npy")
    first, second = run.records[0].numpy(), run.records[0].numpy()
    assert first.ctypes.data == second.ctypes.data
    for i in range(40):  # push the file out of the cache of open files
        np.save(tmp_path / f"other{i}.npy", np.zeros(1))
        assay.read_tensor(tmp_path / f"other{i}.npy")
    os.unlink(tmp_path / "x.npy")
    del run, second
    gc.collect()
    assert first.sum() == 499_999_500_000.0


def test_read_tensor_picks_members(tmp_path):
    torch.save({"k": (torch.ones(2), 3), "l": [torch.zeros(1)]}, tmp_path / "n.pth")
    save_file({"a.b": torch.ones(2, 2)}, tmp_path / "s.safetensors")
    np.savez_compressed(tmp_path / "z.npz", a=np.arange(3), b=np.float32([1]))
    assert assay.read_tensor(tmp_path / "n.pth", "k.0").tolist() == [1, 1]
    assert assay.read_tensor(tmp_path / "s.safetensors").tolist() == [[1, 1], [1, 1]]
    assert assay.read_tensor(tmp_path / "z.npz", "a").tolist() == [0, 1, 2]
    with pytest.raises(assay.FormatError, match="holds 2 tensors"):
        assay.read_tensor(tmp_path / "z.npz")
    with pytest.raises(assay.FormatError, match="is a folder"):
        assay.read_tensor(tmp_path)


def test_nested_values_are_records_with_text(tmp_path):
    torch.save((torch.ones(1), None, "eager", 3, True), tmp_path / "x.pth")
    values = [record.value for record in assay.open(tmp_path / "x.pth").records]
    assert values == ["", "None", "eager", "3", "True"]


def write_native(folder, count):
    """A native run of `count` one-row tensors as docs/formats/native.md has it; returns the text of records.jsonl."""
    rank = folder / "rank0"
    rank.mkdir(parents=True)
    (folder / "manifest.json").write_text('{"format": "assay-run", "version": 1, "complete": true}')
    data, lines = bytearray(4096), []
    for n in range(count):
        record = {"n": n, "step": n // 10, "node": f"layers.{n % 10}", "type": "Block", "order": n % 10}
        record |= {"role": "output", "slot": "", "dtype": "float32", "shape": [4], "strides": [1]}
        record |= {"file": "step-000000.safetensors", "offset": len(data), "bytes": 16}
        counts = {"count": 4, "nan": 0, "pos_inf": 0, "neg_inf": 0}
        record["stats"] = {**counts, "min": n, "max": n, "mean": n, "l2": 2 * n}
        lines.append(json.dumps(record))
        data += np.full(4, n, np.float32).tobytes().ljust(64, b"\0")
    text = "".join(line + "\n" for line in lines)
    (rank / "step-000000.safetensors").write_bytes(bytes(data))
    (rank / "records.jsonl").write_text(text)
    return text


def test_native_runs_of_killed_hosts_are_right_as_far_as_they_go(tmp_path):
    text = write_native(tmp_path / "golden", 30)
    run = assay.open(tmp_path / "golden")
    assert len(run) == 30 and run.coverage.complete and run.warnings == []
    rng = random.Random(3)
    for cut in [0, 1, len(text) - 1, *(rng.randrange(len(text)) for _ in range(40))]:
        (tmp_path / "golden/rank0/records.jsonl").write_text(text[:cut])
        run = assay.open(tmp_path / "golden")
        assert len(run) == text[:cut].count("\n")
        assert run.coverage.complete == (cut == 0 or text[cut - 1] == "\n")
        for n, record in enumerate(run.records):
            assert (record.step, record.node) == (n // 10, f"layers.{n % 10}")
            assert record.numpy().tolist() == [n] * 4
            assert record.stats.l2_norm == 2 * n


def test_a_step_file_cut_short_costs_only_its_tail(tmp_path):
    write_native(tmp_path / "golden", 30)
    step_file = tmp_path / "golden/rank0/step-000000.safetensors"
    step_file.write_bytes(step_file.read_bytes()[: 4096 + 64 * 20])
    run = assay.open(tmp_path / "golden")
    assert [bool(record.problem) for record in run.records] == [False] * 20 + [True] * 10
    assert run.records[19].numpy().tolist() == [19.0] * 4
    with pytest.raises(assay.FormatError) as error:
        run.records[20].numpy()
    assert error.value.code == "Truncated" and error.value.offset == 4096 + 64 * 20


@pytest.mark.parametrize("seed", range(8))
def test_damaged_runs_give_records_or_errors_but_never_crash(tmp_path, tree, seed):
    """Random bytes in random files of a tree and of a native run."""
    rng = random.Random(seed)
    write_native(tmp_path / "native", 20)
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    for _ in range(25):
        victim = rng.choice(files)
        original = victim.read_bytes()
        damaged = bytearray(original)
        for _ in range(rng.randint(1, 8)):
            if damaged:
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        victim.write_bytes(damaged[: rng.randint(0, len(damaged))] if rng.random() < 0.3 else damaged)
        for path in (tmp_path / "msit_dump_20250220_083154", tmp_path / "native"):
            try:
                run = assay.open(path)
            except assay.Error:
                continue
            for record in run.records:
                try:
                    record.numpy()
                except assay.Error as error:
                    assert str(error)
        victim.write_bytes(original)


def test_errors_carry_code_path_and_offset(tmp_path):
    with pytest.raises(assay.FileError) as missing:
        assay.open(tmp_path / "nothing")
    assert missing.value.code == "NotFound" and missing.value.path == str(tmp_path / "nothing")
    (tmp_path / "cut.npy").write_bytes(b"\x93NUMPY\x01\x00\xff\xff{")
    with pytest.raises(assay.FormatError) as cut:
        assay.open(tmp_path / "cut.npy")
    assert cut.value.code == "Truncated" and cut.value.offset is not None


def test_unreadable_folder_is_a_warning_not_a_failure(tmp_path):
    folder = tmp_path / "cpu_1" / "0"
    (folder / "root.a").mkdir(parents=True)
    torch.save(torch.ones(1), folder / "root.a" / "output.pth")
    os.symlink("root.loop", folder / "root.loop")
    os.mkfifo(folder / "root.pipe")
    run = assay.open(tmp_path)
    assert len(run) == 1
    assert len(run.warnings) == 2


def test_names_that_are_no_utf8_survive(tmp_path):
    path = os.fsencode(tmp_path) + b"/caf\xe9.npy"
    with open(path, "wb") as file:
        np.save(file, np.ones(2))
    record = assay.open(tmp_path).records[0]
    assert os.fsencode(record.file) == path and os.fsencode(record.node) == b"caf\xe9"
    assert assay.read_tensor(record.file).tolist() == [1, 1]
    with pytest.raises(assay.FileError) as error:
        assay.open(record.file + "x")
    assert error.value.path == record.file + "x"


# ---- statistics and digests ----------------------------------------------------------------------


def oracle(array: np.ndarray) -> dict[str, float]:
    values = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64).reshape(-1)
    values = np.abs(values) if array.dtype.kind == "c" else values
    finite = values[np.isfinite(values)]
    return {
        "count": values.size,
        "nan_count": int(np.isnan(values).sum()),
        "min": finite.min() if finite.size else math.nan,
        "max": finite.max() if finite.size else math.nan,
        "mean": math.fsum(finite) / finite.size if finite.size else math.nan,
        "l2_norm": math.sqrt(math.fsum(finite * finite)),
    }


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "u2", "u4", "u8", "?", "c8", "c16"])
def test_stats_agree_with_numpy(dtype):
    rng = np.random.default_rng(4)
    for shape in [(), (0,), (1,), (1000,), (7, 11, 13)]:
        array = np.asarray(rng.normal(scale=50, size=shape)).astype(dtype)
        for view in (array, array.T, array[..., ::-1] if shape else array, array[::2] if shape else array):
            found = assay.stats(view)
            for key, value in oracle(view).items():
                assert getattr(found, key) == pytest.approx(value, rel=1e-12, nan_ok=True), (key, shape)


def test_stats_take_every_kind_of_array(tmp_path):
    values = np.float32([1, -2, np.nan, 4])
    expected = assay.stats(values)
    assert (expected.count, expected.nan_count, expected.min, expected.max) == (4, 1, -2, 4)
    assert assay.stats(torch.from_numpy(values)) == expected
    assert assay.stats(torch.from_numpy(values).requires_grad_()) == expected
    assert assay.stats(memoryview(values)) == expected
    assert assay.stats(values.astype(">f4")) == expected
    assert assay.stats([1.0, -2.0, math.nan, 4.0]) == expected
    frozen = values.copy()
    frozen.flags.writeable = False
    assert assay.stats(frozen) == expected
    pairs = np.zeros(4, dtype=[("a", "u1"), ("b", "<f4")])
    pairs["b"] = values
    assert assay.stats(pairs["b"]) == expected
    with pytest.raises(assay.FormatError):
        assay.stats(np.array(["text"]))


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
def test_stats_and_digest_of_torch_tensors_of_every_type(dtype):
    tensor = sample(dtype)
    found = assay.stats(tensor)
    wide = tensor.abs().to(torch.float64) if dtype.is_complex else tensor.to(torch.float64)
    assert found.count == 12
    assert found.mean == pytest.approx(wide.mean().item(), rel=1e-12)
    assert found.l2_norm == pytest.approx(wide.norm().item(), rel=1e-12)
    assert assay.digest(tensor) == assay.digest(np.frombuffer(bits(tensor), np.uint8))
    assert assay.digest(tensor.t()) == assay.digest(tensor.t().contiguous())


def test_digest_is_xxh3_128():
    # The published value for no input and seed 0: Cyan4973/xxHash, tests/sanity_test_vectors.h.
    assert assay.digest(np.zeros(0, np.uint8)) == "99aa06d3014798d86001c324468d497f"


def test_work_runs_without_the_interpreter_lock(tmp_path):
    """A thread that only counts must go on while another computes statistics of 200 MB."""
    values = np.ones(25_000_000)
    ticks, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            ticks[0] += 1

    counter = threading.Thread(target=count)
    counter.start()
    before = ticks[0]
    core_seconds = [assay.stats(values).count for _ in range(3)]
    during = ticks[0] - before
    stop.set()
    counter.join()
    assert core_seconds == [25_000_000] * 3
    assert during > 1000


def test_threads_may_share_a_run(tree):
    run = assay.open(tree)
    failures = []

    def work():
        try:
            for record in run.records:
                if record.file:
                    assert record.shape is not None and record.numpy().size == record.stats.count
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_examples_in_docstrings_run():
    assert doctest.testmod(assay._run).failed == 0
    assert doctest.testmod(assay._run).attempted > 0
