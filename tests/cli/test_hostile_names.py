# SPDX-License-Identifier: Apache-2.0
"""Names in files may hold anything; a terminal gets none of what it would obey."""

from __future__ import annotations

import json
import re
import struct
import zipfile

import numpy as np
import pytest
import torch
from assay_command import run
from atb_files import write_bin
from page_file import PageFile

# Sets the title of the window, clears the screen (C0 and C1 forms), rings, deletes, turns the direction of writing.
HOSTILE = "a\x1b]0;owned\x07\x1b[2J\x9b2J\x7f\r\u202egnp\u2066b"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def safetensors(path, header):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))


def hostile_safetensors_key(folder):
    safetensors(folder / "x.safetensors", {HOSTILE: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})
    return folder / "x.safetensors"


def hostile_safetensors_dtype(folder):
    safetensors(folder / "x.safetensors", {"x": {"dtype": HOSTILE, "shape": [2], "data_offsets": [0, 8]}})
    return folder / "x.safetensors"


def hostile_npz_member(folder):
    np.save(folder / "one.npy", np.zeros(2))
    with zipfile.ZipFile(folder / "x.npz", "w") as archive:
        archive.write(folder / "one.npy", HOSTILE + ".npy")
        archive.writestr("broken" + HOSTILE + ".npy", b"no array")
    return folder / "x.npz"


def hostile_npy_dtype(folder):
    header = ("{'descr': '" + HOSTILE + "', 'fortran_order': False, 'shape': (2,), }\n").encode("utf-8")
    (folder / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(8))
    return folder / "x.npy"


def hostile_pth_key(folder):
    torch.save({HOSTILE: torch.zeros(2), "text": HOSTILE}, folder / "x.pth")
    return folder / "x.pth"


def hostile_pth_class(folder):
    name = HOSTILE.replace("\r", "")
    pickle = b"\x80\x02cmod\n" + name.encode() + b"\n)\x81."
    with zipfile.ZipFile(folder / "x.pth", "w") as archive:
        archive.writestr("x/data.pkl", pickle)
        archive.writestr("x/version", b"3\n")
    return folder / "x.pth"


def hostile_folder_name(folder):
    place = folder / "msit_dump_20250220_083154" / "tensors" / "0_1" / "0" / ("0_" + HOSTILE) / "after"
    place.mkdir(parents=True)
    write_bin(place / "outtensor0.bin", np.zeros((2, 8), np.float32))
    return folder / "msit_dump_20250220_083154"


def hostile_records(folder):
    (folder / "rank0").mkdir()
    line = {"n": 0, "node": HOSTILE, "type": HOSTILE, "slot": HOSTILE, "role": "output", "dtype": HOSTILE, "shape": [2]}
    (folder / "rank0" / "records.jsonl").write_text(json.dumps(line) + "\n" + json.dumps({"n": HOSTILE}) + "\n")
    manifest = {"format": "assay-run", "complete": True, "tool": HOSTILE, "host": {"torch": HOSTILE}}
    manifest["coverage"] = {"planned": 2, "captured": 1, "missed": [{"node": HOSTILE, "reason": HOSTILE, "count": 1}]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def hostile_msprobe(folder):
    entry = {"type": "torch.Tensor", "dtype": HOSTILE, "shape": [2], "data_name": HOSTILE + ".pt"}
    data = {f"Module.{HOSTILE}.Linear.forward.0": {"input_args": [entry], "input_kwargs": {}, "output": [entry]}}
    (folder / "dump.json").write_text(json.dumps({"task": HOSTILE, "level": "L0", "data": data}))
    return folder


def hostile_graph(folder):
    (folder / "g.pbtxt").write_text(f'graph {{ op {{ name: "{HOSTILE}" type: "{HOSTILE}" nonsense {HOSTILE} }} }}')
    return folder / "g.pbtxt"


HOSTILES = [value for name, value in sorted(globals().items()) if name.startswith("hostile_")]


@pytest.mark.parametrize("make", HOSTILES, ids=lambda make: make.__name__)
def test_no_control_reaches_the_terminal(tmp_path, make):
    mine, golden = tmp_path / "mine", tmp_path / "golden"
    mine.mkdir()
    golden.mkdir()
    path, other = make(mine), make(golden)
    commands = [("show", path), ("show", path, "--list"), ("show", path, "--json"), ("show", path, HOSTILE)]
    commands += [("compare", other, path), ("locate", other, path), ("opcheck", path), ("graph", path)]
    commands += [("convert", path, tmp_path / "out", "--format", "npy")]
    commands += [("compare", other, path, "--jsonl", "--unmatched", "-o", tmp_path / "reports")]
    commands += [("opcheck", path, "-o", tmp_path, "--format", "xlsx", "csv", "jsonl", "html")]
    for command in commands:
        result = run(*command, cwd=tmp_path)
        found = OBEYED.search(result.stdout + result.stderr)
        assert not found, (command, found, result.stdout, result.stderr)
    # When a report was written, that can be shown, too, and opened by a spreadsheet or a browser.
    for report in reports_below(tmp_path):
        for text in texts_of(report):
            found = OBEYED.search(text)
            assert not found, (report, found, text[max(0, found.start() - 40) :][:90])


def reports_below(folder):
    names = ("*_cmp_report_*", "*unmatched*", "opcheck_result_*", "*.html")
    return sorted({path for name in names for path in folder.rglob(name) if path.is_file()})


def strings(value):
    """Every text in lists and dictionaries."""
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for part in parts for text in strings(part)]


def texts_of(report):
    """The text of a file; of a workbook that of all its parts, of a page with what it has packed."""
    if report.suffix == ".html":
        page = PageFile(report)
        return [report.read_text(), *strings([page.content, page.rows])]
    if report.suffix != ".xlsx":
        return [report.read_text()]
    with zipfile.ZipFile(report) as book:
        return [book.read(name).decode() for name in book.namelist()]


def test_every_kind_of_report_is_among_those_that_are_looked_at(tmp_path):
    """Of the operation with a hostile name: or the test above would look at nothing."""
    path = hostile_folder_name(tmp_path)
    kinds = ("xlsx", "csv", "jsonl", "html")
    run("opcheck", path, "-o", tmp_path, "--format", *kinds)
    found = {report.suffix[1:]: "".join(texts_of(report)) for report in reports_below(tmp_path)}
    assert set(found) == set(kinds)
    assert all("owned" in text for text in found.values())


def test_an_unsupported_dtype_is_named_as_such_with_file_and_tensor(tmp_path):
    safetensors(tmp_path / "x.safetensors", {"w": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}})
    result = run("show", tmp_path / "x.safetensors")
    assert result.returncode == 2
    assert f"{tmp_path}/x.safetensors: " in result.stderr
    assert "dtype 'F99' of tensor 'w' is not supported" in result.stderr


def test_an_unsupported_class_is_named_as_such(tmp_path):
    class Unknown:
        pass

    Unknown.__qualname__ = "Unknown"
    globals()["Unknown"] = Unknown
    torch.save({"a": Unknown()}, tmp_path / "x.pth")
    result = run("show", tmp_path / "x.pth")
    assert result.returncode == 2
    assert "Unknown is not supported" in result.stderr
