# SPDX-License-Identifier: Apache-2.0
"""dump_data and the read and save helpers."""

import argparse
import json
import os
import struct
import subprocess

import numpy
import pytest
import warm_python

torch = pytest.importorskip("torch")

from assay.torch.strict import (  # noqa: E402
    convert_bin_data_to_npy,
    convert_bin_data_to_pt,
    dump_data,
    get_bin_data_from_dir,
    read_atb_data,
    read_bin_data,
    read_dump_data,
    reset,
    save_npy_data,
    save_torch_data,
)


@pytest.fixture(autouse=True)
def fresh_process_state(monkeypatch):
    monkeypatch.delenv("ATB_TIMESTAMP", raising=False)
    reset()
    yield
    reset()


# ---- dump_data


def test_tokens_of_one_data_id_are_merged(tmp_path):
    mine = tmp_path / "outtensor0.bin"
    mine.write_bytes(b"x")
    out = tmp_path / "out"
    values = {(0, 1): torch.ones(2), (1, 1): torch.zeros(3), (0, 2): torch.arange(4).reshape(2, 2).t()}
    for (token, data), value in values.items():
        assert dump_data(token, data, value, str(mine), str(out)) is None
    (stamp,) = os.listdir(out)
    assert stamp.startswith("msit_dump_")
    root = out / stamp / f"{os.getpid()}_-1" / "golden_tensor"
    metadata = json.loads((root / "metadata.json").read_text())
    assert metadata == {
        "1": {"0": [f"{root}/0/1_tensor.pth", str(mine)], "1": [f"{root}/1/1_tensor.pth", str(mine)]},
        "2": {"0": [f"{root}/0/2_tensor.pth", str(mine)]},
    }
    for (token, data), value in values.items():
        saved = torch.load(root / str(token) / f"{data}_tensor.pth", weights_only=True)
        assert torch.equal(saved, value) and saved.is_contiguous()


@pytest.mark.parametrize(
    ("arguments", "warning"),
    [
        ({}, "Please check whether token_id passed in are correct"),
        ({"token_id": 0}, "Please check whether data_id passed in are correct"),
        ({"token_id": 0, "data_id": 0, "golden_data": [1]}, "The golden_data is not a torch tensor!"),
        (
            {"token_id": 0, "data_id": 0, "golden_data": torch.ones(1)},
            "Please check whether my_path passed in are correct",
        ),
    ],
)
def test_missing_arguments_are_logged_and_nothing_is_written(tmp_path, caplog, arguments, warning):
    assert dump_data(**arguments, output_path=str(tmp_path)) is None
    assert [(record.levelname, record.message) for record in caplog.records] == [("WARNING", warning)]
    assert os.listdir(tmp_path) == []


def test_my_path_must_be_a_file_and_output_path_legal(tmp_path):
    with pytest.raises(argparse.ArgumentTypeError):
        dump_data(0, 0, torch.ones(1), str(tmp_path / "absent"), str(tmp_path))
    with pytest.raises(argparse.ArgumentTypeError):
        dump_data(0, 0, torch.ones(1), __file__, str(tmp_path / "a b"))


# ---- ATB .bin


def atb_file(path, header, payload):
    path.write_bytes("".join(f"{line}\n" for line in header).encode() + payload)
    return str(path)


def test_atb_examples_of_the_document(tmp_path):
    bf16 = atb_file(
        tmp_path / "a.bin",
        [
            "$Version=1.0",
            "$Object.Count=1",
            "$Object.Length=4",
            "format=2",
            "dtype=27",
            "dims=1,2",
            "$Object.data=0,4",
            "$End=1",
        ],
        bytes.fromhex("803f00c0"),
    )
    tensor_bin = read_bin_data(bf16)
    assert (tensor_bin.dtype, tensor_bin.format, tensor_bin.dims) == (27, 2, [1, 2])
    assert convert_bin_data_to_pt(tensor_bin).equal(torch.tensor([[1.0, -2.0]], dtype=torch.bfloat16))
    fp16 = atb_file(
        tmp_path / "b.bin",
        [
            "$Version=1.0",
            "$Object.Count=1",
            "$Object.Length=12",
            "format=2",
            "dtype=1",
            "dims=2,3",
            "$Object.data=0,12",
            "$End=1",
        ],
        bytes.fromhex("003c00c00038 00008042ff7b".replace(" ", "")),
    )
    assert read_atb_data(fp16).equal(torch.tensor([[1, -2, 0.5], [0, 3.25, 65504]], dtype=torch.float16))


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (0, "float32"), (2, "int8"), (3, "int32"), (4, "uint8"), (6, "int16"), (7, "uint16"), (8, "uint32"),
        (9, "int64"), (10, "uint64"), (11, "float64"), (12, "bool"), (16, "complex64"), (17, "complex128"),
    ],
)  # fmt: skip
def test_every_acl_type_numpy_has(tmp_path, number, dtype):
    values = numpy.array([0, 1, 1]).astype(dtype)
    path = atb_file(
        tmp_path / "x.bin", ["$Version=1.0", f"dtype={number}", "format=2", "dims=3", "$End=1"], values.tobytes()
    )
    data = read_bin_data(path).get_data()
    assert str(data.dtype) == f"torch.{dtype}" and (data.numpy() == values).all()


def test_scalars_offsets_trailing_records_and_unknown_lines(tmp_path):
    header = ["$Version=1.0", "$Some=thing", "dtype=0", "format=2", "dims=", "max=1.5", "$Object.data=4,4", "$End=1"]
    path = atb_file(tmp_path / "x.bin", header, struct.pack("<3f", 1, 2, 3))
    tensor_bin = read_bin_data(path)
    assert tensor_bin.get_data().shape == () and tensor_bin.get_data().item() == 2
    assert tensor_bin.attributes["max"] == "1.5"
    empty = atb_file(tmp_path / "y.bin", ["dtype=1", "dims=0,3", "$End=1"], b"")
    assert read_bin_data(empty).get_data().shape == (0, 3)


@pytest.mark.parametrize(
    ("header", "payload", "message"),
    [
        (["dtype=0", "dims=a", "$End=1"], b"", "Unsupported tensorbin file"),
        (["dtype=0=1", "$End=1"], b"", "we need data format is 'attr_name=attr_value'."),
        (["no sign", "$End=1"], b"", "Unsupported tensorbin file"),
        (["dtype=0", "dims=1"], b"", "Unsupported tensorbin file"),
        (["dtype=99", "dims=1", "$End=1"], b"abcd", "Unsupported dtype 99"),
        (["dtype=0", "dims=2", "$End=1"], b"abcd", "need 8 bytes, the file has 4"),
        (["dtype=0", "dims=-1", "$End=1"], b"abcd", "negative"),
    ],
)
def test_damaged_atb_files(tmp_path, header, payload, message):
    path = atb_file(tmp_path / "x.bin", header, payload)
    with pytest.raises(ValueError, match=message):
        read_bin_data(path).get_data()


@pytest.mark.parametrize("read", [read_bin_data, read_atb_data])
def test_only_bin_files_are_atb(read):
    with pytest.raises(ValueError):
        read("x.npy")


def test_bin_files_below_a_folder(tmp_path):
    for name in ("b.bin", "sub/a.bin", "sub/deep/c.bin", "sub/x.npy"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    link = tmp_path.parent / f"{tmp_path.name}-link"
    link.symlink_to(tmp_path)
    expected = [str(tmp_path / name) for name in ("b.bin", "sub/a.bin", "sub/deep/c.bin")]
    assert get_bin_data_from_dir(str(link)) == expected
    assert get_bin_data_from_dir(str(tmp_path), max_depth=3) == expected
    with pytest.raises(RecursionError):
        get_bin_data_from_dir(str(tmp_path), max_depth=2)


# ---- CANN dump files

# Operator Add, inputs [1, -2] and 0.5, output [1.5, -1.5]; bytes of docs/formats/torch-tree.md's source example.
ADD_DUMP = bytes.fromhex(
    "52000000000000000a03322e3010c0c4bff6de9690031a190801100"
    "21a030a010222070a036164642002300"
    "83a030a010222100801100"
    "21a030a010228083203"
    "0a0102220a080110021a0028043200"
    "32096d6f64656c2f616464"
    "0000803f000000c00000003f0000c03f0000c0bf"
)


def test_cann_dump_of_an_addition(tmp_path):
    assert len(ADD_DUMP) == 110
    path = tmp_path / "Add.model_add.3.7.1760000000123456"
    path.write_bytes(ADD_DUMP)
    dump = read_dump_data(str(path))
    assert (dump.version, dump.dump_time, dump.op_name) == ("2.0", 1760000000123456, "model/add")
    assert [tensor.shape for tensor in dump.input] == [(2,), ()] and dump.output[0].original_shape == (2,)
    inputs, outputs = convert_bin_data_to_npy(dump, "float32")
    assert [values.tolist() for values in inputs] == [[1.0, -2.0], [0.5]] and outputs[0].tolist() == [1.5, -1.5]
    raw, _ = convert_bin_data_to_npy(dump)
    assert raw[1].dtype == numpy.uint8 and raw[1].tolist() == [0, 0, 0, 0x3F]


@pytest.mark.parametrize("cut", [0, 5, 8, 30, 89, 100, 109])
def test_truncated_cann_dumps(cut, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(ADD_DUMP[:cut])
    with pytest.raises(ValueError):
        read_dump_data(str(path))


# ---- saving


def test_saving(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_torch_data(torch.arange(3), "bare.pth")
    save_torch_data({"a": torch.ones(1)}, "new/folder/x.pt")
    save_npy_data("bare.npy", numpy.arange(3))
    save_npy_data("other/folder/x.npy", [1.5])
    assert torch.load("bare.pth").tolist() == [0, 1, 2] and torch.load("new/folder/x.pt")["a"].item() == 1
    assert numpy.load("bare.npy").tolist() == [0, 1, 2] and numpy.load("other/folder/x.npy").tolist() == [1.5]
    with pytest.raises(ValueError):
        save_torch_data(torch.ones(1), "x.bin")
    with pytest.raises(ValueError):
        save_npy_data("x.npz", numpy.ones(1))


def test_the_manifest_says_what_was_planned_captured_and_missed(tmp_path):
    script = """
import sys, torch
from assay.torch.strict import DumpConfig, register_hook
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
model.add_module("spare", torch.nn.Linear(2, 2))
model.forward = lambda x: model[1](model[0](x))
register_hook(model, DumpConfig(dump_path=sys.argv[1]))
model(torch.ones(1, 2))
"""
    subprocess.run([warm_python.python(), "-c", script, str(tmp_path)], check=True)
    (path,) = tmp_path.glob("msit_dump_*/torch_tensors/*/manifest.json")
    manifest = json.loads(path.read_text())
    assert manifest["complete"] is True
    assert manifest["coverage"] == {
        "planned": 4,
        "captured": 3,
        "missed": [{"node": "root.spare", "reason": "not called in a dumped token", "count": 1}],
    }
    assert manifest["sink"]["failed"] == 0 and manifest["sink"]["stopped"] is None
