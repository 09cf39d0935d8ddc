# SPDX-License-Identifier: Apache-2.0
"""What is large costs time by its size, and what is only said to be large costs none."""

from __future__ import annotations

import json
import os
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
