# SPDX-License-Identifier: Apache-2.0
"""What is large costs time by its size, and what is only said to be large costs none."""

from __future__ import annotations

import json
import os
import struct
import time
import zipfile

import numpy as np
import pytest
import torch
from assay_command import run

TEBIBYTE = 1 << 40
ENTRIES = 60_000


def timed(*command):
    begin = time.monotonic()
    result = run(*command)
    return result, time.monotonic() - begin


def npz(path, count):
    array = b"\x93NUMPY\x01\x00\x36\x00" + b"{'descr': '|u1', 'fortran_order': False, 'shape': ()}\n"
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(count):
            archive.writestr(f"member_{i}.npy", array + bytes([i % 256]))


def pth(path, count):
    torch.save({f"tensor_{i}": torch.tensor([i % 7]) for i in range(count)}, path)


def safetensors(path, count):
    header = {f"t{i}": {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i in range(count)}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(count))


@pytest.mark.slow
@pytest.mark.parametrize("make, name", [(npz, "x.npz"), (pth, "x.pth"), (safetensors, "x.safetensors")])
def test_many_members_take_time_by_their_number(tmp_path, make, name):
    make(tmp_path / name, ENTRIES)
    for command in (("show", tmp_path / name), ("compare", tmp_path / name, tmp_path / name)):
        result, seconds = timed(*command)
        assert result.returncode == 0, result.stderr
        # About 1 s here; what takes time by the square of the number took over 20.
        assert seconds < 15, (command, seconds)


def statistics_csv(path, count):
    """One module of the old API with as many tensors, statistics only."""
    folder = path / "msit_dump_20250220_083154" / "torch_tensors" / "cpu_1" / "0" / "root.big"
    folder.mkdir(parents=True)
    rows = ["NodeName,NodeType,InputOutput,Index,DataType,Shape,Max,Min,Mean,L2Norm"]
    rows += [f'root.big,Big,Output,{i},torch.float16,"(2, 2)",4.0,-2.0,1.5,5.5' for i in range(count)]
    (folder / "statistics.csv").write_text("\r\n".join(rows) + "\r\n")
    return path


def dump_json(path, count):
    """msprobe's list of calls."""
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3]}
    tensor |= {"Max": 1.0, "Min": 0.0, "Mean": 0.5, "Norm": 2.0, "requires_grad": False}
    call = {"input_args": [tensor], "input_kwargs": {}, "output": [tensor]}
    data = {f"Module.layers.{i}.proj.Linear.forward.0": call for i in range(count // 2)}
    folder = path / "step0" / "rank0"
    folder.mkdir(parents=True)
    head = {"task": "statistics", "level": "L0", "framework": "pytorch", "dump_data_dir": None}
    (folder / "dump.json").write_text(json.dumps(head | {"data": data}))
    return path


def gguf(path, count):
    """float32 tensors of one value each, 32 bytes apart."""
    infos = []
    for i in range(count):
        name = f"blk.{i}.x.weight".encode()
        infos.append(struct.pack("<Q", len(name)) + name + struct.pack("<IQIQ", 1, 1, 0, 32 * i))
    head = b"GGUF" + struct.pack("<IQQ", 3, count, 0) + b"".join(infos)
    path = path.with_suffix(".gguf")
    path.write_bytes(head + bytes(-len(head) % 32) + bytes(32 * count))
    return path


ATB_COLUMNS = (
    "CaseNum|CaseName|OpName|OpParam|InNum|InDType|InFormat|InShape|OutNum|OutDType|OutFormat|OutShape|DataGenType"
    "|DataGenRange|InTensorFile|OutTensorFile|TestType|TestLevel|FromModel|SocVersion|ExpectedError"
)


def atb_list(path, count):
    """Half of the tensors are inputs of one operation, the others of one each."""
    half = count // 2

    def row(number, inputs):
        words = [";".join([word] * inputs) for word in ("float16", "nd", "1,4", "customize")]
        name = f"Linear_{number}"
        cells = [str(number), name, name, "{}", str(inputs), *words[:3], "0", " ", " ", " ", words[3], *" " * 7]
        return "|".join([*cells, "NO_ERROR"])

    folder = path / "ait_dump" / "operation_io_tensors" / "77"
    folder.mkdir(parents=True)
    (path / "ait_dump" / "tensors").mkdir()
    rows = [ATB_COLUMNS, row(1, half), *(row(i, 1) for i in range(2, half + 2))]
    (folder / "operation_tensors_0.csv").write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("make", [statistics_csv, dump_json, gguf, atb_list])
def test_eight_times_as_many_entries_take_no_square_of_the_time(tmp_path, make):
    seconds = {}
    for count in (ENTRIES // 8, ENTRIES):
        path = make(tmp_path / str(count), count)
        result, seconds[count] = timed("show", path)
        assert result.returncode == 0, result.stderr
        assert str(count) in result.stdout.splitlines()[0]
        if make is gguf:  # every member is looked up by its name
            result, more = timed("compare", path, path, "-o", tmp_path / "report")
            assert result.returncode == 0, result.stderr
            seconds[count] += more
    # By the number of entries it is 8 times, by its square 64; a start of 0.1 s counts for little.
    assert seconds[ENTRIES] < 24 * max(seconds[ENTRIES // 8], 0.1), seconds


def sparse(path, start=b""):
    path.write_bytes(start)
    os.truncate(path, TEBIBYTE)


@pytest.mark.parametrize("start", [b"", b'{"format": "assay-run", ', b'{"tool": "'])
def test_a_manifest_with_a_hole_of_a_tebibyte_is_not_scanned(tmp_path, start):
    (tmp_path / "rank0").mkdir()
    (tmp_path / "rank0" / "records.jsonl").write_text("")
    sparse(tmp_path / "manifest.json", start)
    result, seconds = timed("show", tmp_path)
    assert "manifest.json: " in result.stdout + result.stderr
    assert seconds < 5


@pytest.mark.parametrize("start", [b"", b'{"n": 0, "node": "a'])
def test_records_with_a_hole_of_a_tebibyte_are_not_scanned(tmp_path, start):
    (tmp_path / "rank0").mkdir()
    sparse(tmp_path / "rank0" / "records.jsonl", start)
    result, seconds = timed("show", tmp_path)
    assert "records.jsonl: line 1: is longer than 1.0 MB" in result.stdout
    assert seconds < 5


@pytest.mark.parametrize(
    "name, start",
    [
        ("dump.json", b'{"task": "tensor", "data": {'),
        ("x.pth", b"\x80\x02"),
        ("x.npz", b"PK\x03\x04"),
        ("x.safetensors", (1 << 39).to_bytes(8, "little") + b"{"),
        ("x.bin", b"$Version=1.0\n"),
        ("x.gguf", b"GGUF\x03\0\0\0" + (1 << 40).to_bytes(8, "little") * 2),
        ("g.pbtxt", b"graph {"),
    ],
)
def test_holes_in_other_files_are_refused_soon(tmp_path, name, start):
    sparse(tmp_path / name, start)
    result, seconds = timed("show", tmp_path / name)
    assert result.returncode == 2, result.stdout
    assert seconds < 5


def test_values_of_a_tebibyte_read_only_what_is_printed(tmp_path):
    path = tmp_path / "x.npy"
    path.write_bytes(np.lib.format.magic(1, 0))
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (TEBIBYTE // 4,)})
        header_bytes = file.tell()
    os.truncate(path, header_bytes + TEBIBYTE)
    result, seconds = timed("show", path, "--values")
    assert result.returncode == 0
    assert f"{TEBIBYTE // 4 - 24} more" in result.stdout
    assert "--stats reads all of it" in result.stdout
    assert seconds < 5
