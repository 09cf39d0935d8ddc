# SPDX-License-Identifier: Apache-2.0
"""`assay overflow`: debug files and operand dumps are paired, and without debug files values are looked at."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from dump_files import Dump, Operand, old_overflow_payload, overflow_payload

TIME = 1760000000123400


def write(folder, name, values=None, payload=None, inputs=()):
    folder.mkdir(parents=True, exist_ok=True)
    output = Operand(4, (2048,), payload) if payload is not None else Operand.of(values)
    dump = Dump(name.split(".")[1], inputs=[Operand.of(array) for array in inputs], outputs=[output])
    (folder / name).write_bytes(dump.encode())


def the_summary(out) -> str:
    (file,) = out.glob("overflow_summary_*.txt")
    assert len(file.stem.removeprefix("overflow_summary_")) == 14
    return file.read_text()


@pytest.mark.parametrize(
    "payload", [overflow_payload(status=272), old_overflow_payload(status=272)], ids=["new", "old"]
)
def test_a_report_is_paired_with_its_operator(assay, tmp_path, payload):
    dumps = tmp_path / "dump" / "0" / "graph_1" / "1" / "0"
    write(dumps, f"Opdebug.Node_OpDebug.99.3.{TIME + 2}", payload=payload)
    write(dumps, f"Add.Add_1.12.3.{TIME + 1}", np.float32([1, np.inf]), inputs=[np.float32([1, 2])])
    write(dumps, f"Mul.Mul.12.4.{TIME}", np.float32([1]))  # another stream
    write(dumps, f"Sub.Sub.13.3.{TIME}", np.float32([1]))  # another task
    out = tmp_path / "out"
    result = assay("overflow", "-d", tmp_path / "dump", "-out", out)
    assert result.returncode == 1, result.stderr
    text = the_summary(out)
    assert result.stdout == text
    lines = text.splitlines()
    assert lines[0].strip("=") == "[1]"
    assert lines[1] == "[Add] Add_1"
    assert "[TaskId:12][StreamId:3][Status:272]" in lines[2]
    # 272 = 0x10 + 0x100
    assert "integer" in lines[3].lower() and "float16" in text
    assert f" [timestamp:{TIME + 2}]" in lines
    place = lines.index(f" Add.Add_1.12.3.{TIME + 1}.output.0.npy")
    assert "[Format: ND] [Shape: (2,)] [Dtype: float32] [Max: inf] [Min: 1] [Mean: inf]" in lines[place + 1]
    assert sorted(path.suffix for path in out.iterdir()) == [".json", ".npy", ".npy", ".txt"]


def test_the_earliest_come_first_and_n_limits_them(assay, tmp_path):
    dumps = tmp_path / "dump"
    for i, task in enumerate((30, 10, 20)):
        write(dumps, f"Opdebug.Node_OpDebug.{90 + i}.3.{TIME + task}", payload=overflow_payload(task=task))
        write(dumps, f"Add.Add_{task}.{task}.3.{TIME + task}", np.float32([task]))
    result = assay("overflow", "-d", dumps, "-out", tmp_path / "out", "-n", "2")
    assert result.returncode == 1, result.stderr
    named = [line for line in the_summary(tmp_path / "out").splitlines() if line.startswith("[Add]")]
    assert named == ["[Add] Add_10", "[Add] Add_20"]


def test_four_status_words(assay, tmp_path):
    write(tmp_path / "d", f"Opdebug.Node_OpDebug.9.3.{TIME}", payload=overflow_payload(status=0x20, version=1))
    result = assay("overflow", "-d", tmp_path / "d", "-out", tmp_path / "out")
    assert result.returncode == 1, result.stderr
    assert "[Status:[32, 0, 0, 16]]" in the_summary(tmp_path / "out")
    assert "there is no dump of its task" in result.stderr


def test_the_same_task_of_another_graph_is_not_taken(assay, tmp_path):
    one, two = tmp_path / "d" / "graph_1", tmp_path / "d" / "graph_2"
    write(one, f"Add.Add.12.3.{TIME}", np.float32([1]))
    write(two, f"Mul.Mul.12.3.{TIME + 1}", np.float32([1]))
    write(two, f"Opdebug.Node_OpDebug.9.3.{TIME + 2}", payload=overflow_payload())
    assert assay("overflow", "-d", tmp_path / "d", "-out", tmp_path / "out").returncode == 1
    assert "[Mul] Mul" in the_summary(tmp_path / "out")


def test_context_and_thread_of_a_fused_task_tell_its_dumps_apart(assay, tmp_path):
    dumps = tmp_path / "d"
    payload = bytearray(overflow_payload())
    struct.pack_into("<2Q", payload, 24 + 8 * 4, 5, 1)  # context and thread
    write(dumps, f"Opdebug.Node_OpDebug.9.3.{TIME + 9}", payload=bytes(payload))
    for thread in (0, 1):
        write(dumps, f"Add.Add_thread{thread}.12.3.{TIME + thread}.4.5.{thread}.0", np.float32([thread]))
    assert assay("overflow", "-d", dumps, "-out", tmp_path / "out").returncode == 1
    assert "[Add] Add_thread1" in the_summary(tmp_path / "out")


def test_without_reports_the_values_are_looked_at(assay, tmp_path):
    dumps = tmp_path / "d"
    write(dumps, f"Exp.Exp.1.3.{TIME}", np.float16([1, 2]), inputs=[np.float16([0, 1])])
    write(dumps, f"Mul.Mul.2.3.{TIME + 1}", np.float16([65504, 2]), inputs=[np.float16([1, 2])])
    write(dumps, f"Add.Add.3.3.{TIME + 2}", np.float16([np.inf, 2]), inputs=[np.float16([65504, 2])])
    write(dumps, f"Sub.Sub.4.3.{TIME + 3}", np.float32([np.nan]), inputs=[np.float32([np.inf])])
    result = assay("overflow", "-d", dumps, "-out", tmp_path / "out", "-n", "5")
    assert result.returncode == 1, result.stderr
    text = the_summary(tmp_path / "out")
    assert [line for line in text.splitlines() if line.startswith("[")] == ["[Mul] Mul", "[Add] Add", "[Sub] Sub"]
    assert "[output 0: values at the largest float16, 65504]" in text
    assert "[input 0: 1 inf]" in text and "its inputs were so already" in text


def test_nothing_overflowed(assay, tmp_path):
    write(tmp_path / "d", f"Exp.Exp.1.3.{TIME}", np.float16([1, 2]))
    result = assay("overflow", "-d", tmp_path / "d", "-out", tmp_path / "out")
    assert (result.returncode, result.stdout) == (0, "")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-d", "missing", "-out", "out"], "is no folder"),
        (["-d", "empty", "-out", "out"], "holds no dump files"),
        (["-d", "empty"], "required"),
        (["-d", "empty", "-out", "out", "-n", "6"], "invalid choice"),
    ],
)
def test_wrong_requests(assay, tmp_path, arguments, sentence):
    (tmp_path / "empty").mkdir()
    result = assay("overflow", *arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert sentence in result.stderr


def test_a_bad_report_is_named_and_the_rest_goes_on(assay, tmp_path):
    dumps = tmp_path / "d"
    write(dumps, f"Opdebug.Node_OpDebug.1.3.{TIME}", payload=b"\xff" * 100)
    (dumps / f"Opdebug.Node_OpDebug.2.3.{TIME + 1}").write_bytes(b"\xff" * 30)
    write(dumps, f"Opdebug.Node_OpDebug.3.3.{TIME + 2}", payload=overflow_payload())
    write(dumps, f"Add.Add.12.3.{TIME}", np.float32([1]))
    result = assay("overflow", "-d", dumps, "-out", tmp_path / "out", "-n", "3")
    assert result.returncode == 2
    assert "[Add] Add" in the_summary(tmp_path / "out")
    assert "2 files could not be used" in result.stderr
