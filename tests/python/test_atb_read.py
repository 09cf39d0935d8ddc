# SPDX-License-Identifier: Apache-2.0
"""Dumps of the ATB acceleration library: trees written here, by struct and NumPy, read by the product."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import assay

sys.path.insert(0, str(Path(__file__).parent.parent / "cli"))
from assay_command import run as run_command

# ATB's number, element type as torch knows it.
TYPES = {
    0: torch.float32, 1: torch.float16, 2: torch.int8, 3: torch.int32, 4: torch.uint8, 6: torch.int16, 7: torch.uint16,
    8: torch.uint32, 9: torch.int64, 10: torch.uint64, 11: torch.float64, 12: torch.bool, 16: torch.complex64,
    17: torch.complex128, 27: torch.bfloat16, 35: torch.float8_e5m2, 36: torch.float8_e4m3fn,
}  # fmt: skip


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def record(dtype: int, dims: tuple[int, ...], payload: bytes | None, format: int = 2, **attributes: object) -> bytes:
    """A tensor file as the document describes it: text lines, then the payload."""
    size = 0 if payload is None else len(payload)
    lines = [
        "$Version=1.0",
        f"$Object.Count={0 if payload is None else 1}",
        f"$Object.Length={size}",
        f"format={format}",
        f"dtype={dtype}",
        "dims=" + ",".join(map(str, dims)),
        *(f"{name}={value}" for name, value in attributes.items()),
        *([] if payload is None else [f"$Object.data=0,{size}"]),
        "$End=1",
    ]
    return "".join(line + "\n" for line in lines).encode() + (payload or b"")


def put(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def put_tensor(path: Path, tensor: torch.Tensor, dtype: int = 0) -> Path:
    return put(path, record(dtype, tuple(tensor.shape), bits(tensor)))


def put_llama_step(run: Path, seed: int) -> dict[str, torch.Tensor]:
    """Two layers of one linear operation each with its kernel; returns what went in and out by node."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in range(12):
        node = f"{layer}_Decoder_layer/0_LinearOperation"
        x, w = torch.randn(2, 4, generator=generator), torch.randn(3, 4, generator=generator)
        tensors[node] = x @ w.T
        put_tensor(run / node / "before" / "intensor0.bin", x)
        put_tensor(run / node / "before" / "intensor1.bin", w)
        put_tensor(run / node / "after" / "outtensor0.bin", tensors[node])
        put(run / node / "op_param.json", json.dumps({"hasBias": False, "transposeB": True}) + "\n")
        put_tensor(run / node / "0_MatMulKernel" / "after" / "outtensor0.bin", tensors[node])
    return tensors


@pytest.fixture
def dump(tmp_path):
    """One process, two runs, with -time 3."""
    root = tmp_path / "out" / "msit_dump_20260105_020000"
    for step in (0, 10):
        put_llama_step(root / "tensors" / "0_39943" / str(step), seed=step)
    return root


@pytest.mark.parametrize("number", TYPES)
def test_every_element_type(tmp_path, number):
    dtype = TYPES[number]
    values = torch.arange(6, dtype=torch.float32).reshape(3, 2) - 2
    tensor = (values > 0) if dtype == torch.bool else values.abs().to(dtype)
    path = put_tensor(tmp_path / "intensor0.bin", tensor, number)
    (read,) = assay.open(path).records
    assert read.dtype_name == str(dtype).removeprefix("torch.")
    assert read.shape == (3, 2)
    assert bits(read.torch()) == bits(tensor)
    assert read.torch().dtype == dtype


def test_the_worked_example_of_the_document(tmp_path):
    page = Path(__file__).parents[2] / "docs" / "formats" / "atb-bin.md"
    rows = re.findall(r"^[0-9a-f]{8}  ((?:[0-9a-f]{2} {1,2})+)", page.read_text(), re.MULTILINE)
    path = put(tmp_path / "example.bin", bytes.fromhex("".join(rows)))
    values = assay.open(path).records[0].numpy()
    np.testing.assert_array_equal(values, np.array([[1, -2, 0.5], [0, 3.25, 65504]], dtype=np.float16))


def test_rank_0_and_empty_tensors(tmp_path):
    scalar = put_tensor(tmp_path / "scalar.bin", torch.tensor(2.5))
    empty = put_tensor(tmp_path / "empty.bin", torch.empty(0, 3))
    assert assay.open(scalar).records[0].numpy().tolist() == 2.5
    assert assay.open(empty).records[0].numpy().shape == (0, 3)


def test_a_run_in_execution_order(dump):
    run = assay.open(dump)
    assert run.layout == "atb-tree"
    assert run.warnings == [] and run.coverage.complete
    first = [r for r in run.records if r.step == 0]
    assert [(r.node, r.role, r.slot) for r in first[:4]] == [
        ("0_Decoder_layer/0_LinearOperation", "input", "0"),
        ("0_Decoder_layer/0_LinearOperation", "input", "1"),
        ("0_Decoder_layer/0_LinearOperation/0_MatMulKernel", "output", "0"),
        ("0_Decoder_layer/0_LinearOperation", "output", "0"),
    ]
    # Layer 10 comes behind layer 9, run 10 behind run 0.
    assert [r.node.split("_")[0] for r in first[::4]] == [str(layer) for layer in range(12)]
    assert [r.step for r in run.records[::48]] == [0, 10]
    for step in (0, 10):
        expected = put_llama_step(dump.parent / "again" / str(step), seed=step)
        for r in run.records:
            if r.step == step and r.role == "output":
                node = r.node.removesuffix("/0_MatMulKernel")
                np.testing.assert_array_equal(r.numpy(), expected[node].numpy())


def test_operations_keep_their_parameters(dump):
    operations = assay.open(dump).operations
    assert len(operations) == 24
    first = operations[0]
    assert (first.rank, first.step, first.op_type) == (0, 0, "LinearOperation")
    assert first.node == "0_Decoder_layer/0_LinearOperation"
    assert json.loads(first.parameters) == {"hasBias": False, "transposeB": True}


def test_the_order_of_the_listing_does_not_matter(dump, tmp_path):
    """The same files created in another order give the same run."""
    files = [path for path in dump.rglob("*") if path.is_file()]
    random.Random(7).shuffle(files)
    other = tmp_path / "other" / dump.name
    for path in files:
        put(other / path.relative_to(dump), path.read_bytes())

    def listing(root: Path) -> list[tuple]:
        return [(r.rank, r.step, r.node, r.role, r.slot, r.order) for r in assay.open(root).records]

    assert listing(other) == listing(dump)


@pytest.mark.parametrize("part", ["..", "", "tensors", "tensors/0_39943", "tensors/0_39943/10"])
def test_any_level_of_the_tree_opens(dump, part):
    records = assay.open(dump / part).records
    assert len(records) == (48 if part.endswith("10") else 96)
    assert records[-1].step == 10


def test_ranks_are_sorted_by_device_and_process(dump):
    for name in ("10_5", "2_100", "2_99"):
        put_tensor(dump / "tensors" / name / "0" / "0_A" / "after" / "outtensor0.bin", torch.zeros(1))
    run = assay.open(dump)
    assert [run.properties[f"rank{rank}.pid"] for rank in range(4)] == ["39943", "99", "100", "5"]
    assert run.properties["rank3.device"] == "10"


def test_statistics_and_descriptions(tmp_path):
    node = tmp_path / "msit_dump" / "tensors" / "0_1" / "0" / "0_Op"
    values = np.array([[1.5, -2.0, 0.25]], dtype=np.float32)
    put(
        node / "before" / "intensor0.bin",
        record(
            0, (1, 3), None, max=f"{values.max():.9g}", min=f"{values.min():.9g}",
            mean=f"{values.mean(dtype=np.float64):.17g}", l2norm=f"{np.linalg.norm(values.astype(np.float64)):.17g}",
            nan_count=0, inf_count=0,
        ),
    )  # fmt: skip
    put(node / "after" / "outtensor0.bin", record(27, (4, 8), None))
    statistics, description = assay.open(tmp_path).records
    assert statistics.recorded_stats.max == 1.5
    assert statistics.recorded_stats.min == -2.0
    assert statistics.recorded_stats.mean == values.mean(dtype=np.float64)
    assert statistics.recorded_stats.l2_norm == np.linalg.norm(values.astype(np.float64))
    assert (description.dtype_name, description.shape) == ("bfloat16", (4, 8))
    with pytest.raises(assay.Error, match="the record has no bytes"):
        description.numpy()


def test_fractal_nz_keeps_the_order_of_the_memory(tmp_path):
    """A 2 x 20 fp16 matrix in 16 x 16 tiles: element (1, 17) is the value at 273 of the memory."""
    matrix = np.arange(40, dtype=np.float16).reshape(2, 20)
    padded = np.zeros((16, 32), dtype=np.float16)
    padded[:2, :20] = matrix
    tiles = padded.reshape(16, 2, 16).transpose(1, 0, 2)
    path = put(tmp_path / "intensor0.bin", record(1, (2, 20), tiles.tobytes(), format=29))
    assert assay.open(path).records[0].memory_format == "fractal_nz"
    read = assay.open(path).records[0].numpy()
    assert read.shape == (2, 16, 16)
    assert read.reshape(-1)[273] == matrix[1, 17]


def test_a_moved_dump_keeps_its_links(dump):
    tensors = dump / "tensors" / "0_39943" / "0"
    target = tensors / "0_Decoder_layer" / "0_LinearOperation" / "after" / "outtensor0.bin"
    folder = tensors / "20_B" / "before"
    folder.mkdir(parents=True)
    (folder / "intensor0.bin").symlink_to(os.path.relpath(target, folder))
    (folder / "intensor1.bin").symlink_to(target)
    producer = assay.open(dump).records.select(node="0_Decoder_layer/0_LinearOperation", role="output")
    expected = producer[0].numpy().copy()
    moved = dump.parent / "moved" / dump.name
    moved.parent.mkdir()
    shutil.move(dump, moved)
    links = assay.open(moved).records.select(node="20_B")
    assert [r.problem for r in links] == ["", ""]
    for r in links:
        np.testing.assert_array_equal(r.numpy(), expected)


def test_a_truncated_file_is_one_bad_record(dump):
    victim = dump / "tensors/0_39943/0/3_Decoder_layer/0_LinearOperation/after/outtensor0.bin"
    victim.write_bytes(victim.read_bytes()[:-1])
    run = assay.open(dump)
    bad = [r for r in run.records if r.problem]
    assert [r.file for r in bad] == [str(victim)]
    assert "at byte" in bad[0].problem
    with pytest.raises(assay.Error):
        bad[0].numpy()


def test_topology_of_model_and_layers(dump):
    layer = {
        "opName": "Decoder_layer_1", "opType": "Decoder_layer", "param": "", "inTensors": ["a"], "outTensors": ["b"],
        "nodes": [{"opName": "LinearOperation_1_0", "opType": "LinearOperation", "param": None,
                   "inTensors": ["a"], "outTensors": ["b"]}],
    }  # fmt: skip
    put(dump / "layer" / "39943" / "Decoder_layer_1.json", json.dumps(layer))
    tree = assay.open(dump).tree
    assert [(node.name, node.type) for node in tree.walk()][1:] == [
        ("1_Decoder_layer", "Decoder_layer"),
        ("1_Decoder_layer/0_LinearOperation", "LinearOperation"),
    ]


def test_hundreds_of_runs_of_msprobe(tmp_path):
    """Statistics only: one table a run."""
    head = (
        "Device and PID,Execution Count,Op Name,Op Type,Op Id,Input/Output,Index,Dtype,Format,Shape,Max,Min,Mean,Norm,"
        "Tensor Path\n"
    )
    for step in range(3):
        rows = "".join(
            f"0_7,{step},Layer/Op,Op,{layer}_0,output,0,float16,nd,2x3,{layer}.5,0,0,1,N/A\n" for layer in range(11)
        )
        put(tmp_path / "atb_dump_data" / "data" / "0_7" / str(step) / "statistic.csv", head + rows)
    records = assay.open(tmp_path).records
    assert len(records) == 33
    assert [r.recorded_stats.max for r in records[:11]] == [layer + 0.5 for layer in range(11)]
    assert records[10].node == "10_Layer/0_Op"
    assert records[0].shape == (2, 3)


# ---- the commands ------------------------------------------------------------------------------------------------


def test_show(dump):
    result = run_command("show", dump)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == f"{dump}: atb-tree, 96 records, steps 0, 10"
    assert lines[1:] == [
        "0-11_Decoder_layer (12 times)",
        "  0_LinearOperation  LinearOperation: 6 tensors, 208 B, float32, steps 0, 10",
        "    0_MatMulKernel   MatMulKernel: 2 tensors, 48 B, float32, steps 0, 10",
        "11 layers that equal others are left out: --all shows every line",
    ]
    every = [line.split()[0] for line in run_command("show", dump, "--all").stdout.splitlines()[1:]]
    assert every == [name for i in range(12) for name in (f"{i}_Decoder_layer", "0_LinearOperation", "0_MatMulKernel")]
    kernels = run_command("show", dump, "0_MatMulKernel")
    assert len(kernels.stdout.splitlines()) == 1 + 24, "a name may be the tail of the full one"
    one = run_command("show", dump, "11_Decoder_layer/0_LinearOperation", "--step", "10", "--stats")
    assert one.returncode == 0, one.stderr
    assert "step 10  11_Decoder_layer/0_LinearOperation input 0  float32 [2, 4]  32 B  min " in one.stdout


def test_convert_one_file_and_a_dump(dump, tmp_path):
    source = dump / "tensors/0_39943/0/3_Decoder_layer/0_LinearOperation/before/intensor1.bin"
    result = run_command("convert", source, tmp_path / "x.npy")
    assert result.returncode == 0, result.stderr
    expected = np.frombuffer(source.read_bytes()[-48:], dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), expected)
    result = run_command("convert", dump, tmp_path / "all.safetensors", "--step", "0")
    assert result.returncode == 0, result.stderr
    from safetensors.numpy import load_file

    assert len(load_file(tmp_path / "all.safetensors")) == 48


def test_compare_two_dumps(dump, tmp_path):
    other = tmp_path / "other" / "ait_dump"
    shutil.copytree(dump / "tensors", other / "tensors")
    (other / "tensors" / "0_39943").rename(other / "tensors" / "3_5")
    same = run_command("compare", dump, other, cwd=tmp_path)
    assert same.returncode == 0, same.stdout + same.stderr
    assert "96 pairs" in same.stdout
    victim = other / "tensors/3_5/0/4_Decoder_layer/0_LinearOperation/after/outtensor0.bin"
    put_tensor(victim, torch.full((2, 3), 9.0))
    differs = run_command("compare", dump, other, cwd=tmp_path)
    assert "1 of 96 pairs differ" in differs.stdout
    assert "4_Decoder_layer/0_LinearOperation" in differs.stdout


def test_a_folder_that_holds_two_dumps(dump):
    shutil.copytree(dump, dump.parent / "msit_dump_20260105_030000")
    result = run_command("show", dump.parent)
    assert result.returncode == 2
    assert "holds 2 runs, name one of them" in result.stderr


def test_opening_does_not_read_payloads(tmp_path):
    """A hole of 4 GiB stays a hole: the record is there at once, the mapping costs nothing."""
    path = tmp_path / "msit_dump" / "tensors" / "0_1" / "0" / "0_A" / "after" / "outtensor0.bin"
    size = 4 << 30
    header = record(2, (size,), b"").replace(b"$Object.Length=0", b"$Object.Length=%d" % size)
    header = header.replace(b"$Object.data=0,0", b"$Object.data=0,%d" % size)
    put(path, header)
    os.truncate(path, len(header) + size)
    script = (
        "import assay, sys; r = assay.open(sys.argv[1]).records[0];"
        "a = r.numpy(); assert a.shape == (4 << 30,) and a[-1] == 0;"
        # Not ru_maxrss: that begins with what the parent had when it forked.
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    result = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) < 512 << 10, "kB"
