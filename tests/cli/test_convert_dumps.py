# SPDX-License-Identifier: Apache-2.0
"""`assay convert` on dump files of graph mode, in the original's grammar and in ours."""

from __future__ import annotations

import csv
import json
import os
import resource
import signal
import stat
import subprocess
import time
import uuid

import numpy as np
import pytest
import torch
from dump_files import (
    BFLOAT16,
    E4M3FN,
    INT4,
    NUMBERS,
    UINT1,
    Dump,
    Operand,
    old_overflow_payload,
    overflow_payload,
    read_dump,
)
from graph_dumps import graph, write_text
from safetensors.numpy import load_file

NAME = "Add.model_add.3.7.1760000000123456"
NCHW, NHWC, ND, NC1HWC0, FRACTAL_Z, HWCN, FRACTAL_NZ = 0, 1, 2, 3, 4, 16, 29


def worked_example() -> bytes:
    """The 110 bytes of docs/formats/cann-dump.md, as they stand there."""
    return bytes.fromhex(
        "52000000000000000a03322e3010c0c4bff6de9690031a19080110021a030a0102"
        "22070a036164642002300 83a030a01022210080110021a030a010228083203".replace(" ", "")
        + "0a0102220a080110021a00280432003209"
        "6d6f64656c2f6164640000803f000000c00000003f0000c03f0000c0bf"
    )


def names_below(folder) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# ---- the original's grammar ------------------------------------------------------------------------------------------


def test_the_worked_example_gives_the_files_that_the_original_makes(assay, tmp_path):
    (tmp_path / NAME).write_bytes(worked_example())
    result = assay("convert", "-d", tmp_path / NAME, "-out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    out = tmp_path / "out"
    assert names_below(out) == [f"{NAME}.input.0.npy", f"{NAME}.input.1.npy", f"{NAME}.output.0.npy"]
    np.testing.assert_array_equal(np.load(out / f"{NAME}.input.0.npy"), np.float32([1, -2]))
    scalar = np.load(out / f"{NAME}.input.1.npy")
    assert (scalar.shape, scalar.dtype, scalar) == ((), np.float32, 0.5)
    np.testing.assert_array_equal(np.load(out / f"{NAME}.output.0.npy"), np.float32([1.5, -1.5]))
    assert {stat.S_IMODE(path.stat().st_mode) for path in out.iterdir()} == {0o600}


@pytest.mark.parametrize("dtype", [d for d in NUMBERS if d != "bool"])
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)], ids=str)
@pytest.mark.parametrize("kind", ["npy", "bin", "msnpy", "pt"])
def test_every_type_of_numpy_comes_out_as_it_is(assay, tmp_path, dtype, shape, kind):
    values = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    (tmp_path / NAME).write_bytes(Dump("model/add", outputs=[Operand.of(values)]).encode())
    result = assay("convert", "-d", tmp_path / NAME, "-out", tmp_path / "out", "-t", kind)
    assert result.returncode == 0, result.stderr
    stem = f"{NAME}.output.0"
    shape_text = "_".join(map(str, shape))
    expected = {
        "npy": f"{stem}.npy",
        "bin": f"{stem}.{shape_text}.{dtype}.ND.bin",
        "msnpy": "Add.add.3.7.1760000000123456.output.0.ND.npy",
        "pt": f"{stem}.pt",
    }[kind]
    (file,) = (tmp_path / "out").iterdir()
    assert file.name == expected
    if kind == "bin":
        loaded = np.frombuffer(file.read_bytes(), dtype).reshape(shape)
    elif kind == "pt":
        loaded = torch.load(file, weights_only=True).numpy()
    else:
        loaded = np.load(file)
    assert (loaded.dtype, loaded.shape) == (values.dtype, values.shape)
    np.testing.assert_array_equal(loaded, values)


def test_types_that_numpy_lacks_are_widened(assay, tmp_path):
    halves = torch.tensor([1.5, -2.25, float("inf"), 3.0e38], dtype=torch.bfloat16)
    floats8 = torch.tensor([0x00, 0x01, 0x7E, 0x7F, 0xFE, 0xFF], dtype=torch.uint8).view(torch.float8_e4m3fn)
    dump = Dump(
        outputs=[
            Operand(BFLOAT16, (4,), halves.view(torch.uint8).numpy().tobytes()),
            Operand(E4M3FN, (6,), floats8.view(torch.uint8).numpy().tobytes()),
            Operand(INT4, (3,), bytes([0x71, 0x0F])),  # low nibble first: 1, 7, -1
            Operand(UINT1, (10,), bytes([0b10100000, 0b01000000])),
        ]
    )
    (tmp_path / NAME).write_bytes(dump.encode())
    result = assay("convert", "-d", tmp_path / NAME, "-out", tmp_path)
    assert result.returncode == 0, result.stderr

    def loaded(i):
        return np.load(tmp_path / f"{NAME}.output.{i}.npy")

    np.testing.assert_array_equal(loaded(0), halves.float().numpy())
    assert loaded(0).dtype == np.float32
    np.testing.assert_array_equal(loaded(1), floats8.float().numpy())
    assert np.isnan(loaded(1)[[3, 5]]).all()
    np.testing.assert_array_equal(loaded(2), np.int8([1, 7, -1]))
    np.testing.assert_array_equal(loaded(3), [1, 0, 1, 0, 0, 0, 0, 0, 0, 1])


def test_size_may_exceed_the_shape(assay, tmp_path):
    values = np.arange(3, dtype=np.float32)
    operand = Operand(1, (3,), values.tobytes() + b"\xee" * 20)
    (tmp_path / NAME).write_bytes(Dump(inputs=[operand], outputs=[Operand.of(values * 2)]).encode())
    assert assay("convert", "-d", tmp_path / NAME, "-out", tmp_path).returncode == 0
    np.testing.assert_array_equal(np.load(tmp_path / f"{NAME}.input.0.npy"), values)
    np.testing.assert_array_equal(np.load(tmp_path / f"{NAME}.output.0.npy"), values * 2)


def test_buffers_spaces_and_logs(assay, tmp_path):
    dump = Dump(
        outputs=[Operand.of(np.ones(2, np.float32))], buffers=[b"\1\2\3"], spaces=[b"first line\n\0\0", b"\xff\1"]
    )
    (tmp_path / NAME).write_bytes(dump.encode())
    assert assay("convert", "-d", tmp_path / NAME, "-out", tmp_path / "out").returncode == 0
    out = tmp_path / "out"
    assert names_below(out) == [
        f"{NAME}.{rest}" for rest in ("0.log", "l1buffer.0.bin", "output.0.npy", "space.0.bin", "space.1.bin")
    ]
    assert (out / f"{NAME}.l1buffer.0.bin").read_bytes() == b"\1\2\3"
    assert (out / f"{NAME}.space.1.bin").read_bytes() == b"\xff\1"
    assert (out / f"{NAME}.0.log").read_text() == "first line\n"


def nz(matrix: np.ndarray, tile=16) -> np.ndarray:
    rows, columns = (-(-size // tile) * tile for size in matrix.shape[-2:])
    filled = np.full((*matrix.shape[:-2], rows, columns), 9, matrix.dtype)
    filled[..., : matrix.shape[-2], : matrix.shape[-1]] = matrix
    split = filled.reshape(*matrix.shape[:-2], rows // tile, tile, columns // tile, tile)
    return np.ascontiguousarray(np.moveaxis(split, -2, -4))


def nc1hwc0(nchw: np.ndarray, tile=16) -> np.ndarray:
    n, c, h, w = nchw.shape
    filled = np.zeros((n, -(-c // tile) * tile, h, w), nchw.dtype)
    filled[:, :c] = nchw
    return np.ascontiguousarray(filled.reshape(n, -1, tile, h, w).transpose(0, 1, 3, 4, 2))


def fractal_z(nchw: np.ndarray, tile=16) -> np.ndarray:
    n, c, h, w = nchw.shape
    n1, c1 = -(-n // tile), -(-c // tile)
    filled = np.zeros((n1 * tile, c1 * tile, h, w), nchw.dtype)
    filled[:n, :c] = nchw
    split = filled.reshape(n1, tile, c1, tile, h, w).transpose(2, 4, 5, 0, 1, 3)
    return np.ascontiguousarray(split.reshape(c1 * h * w, n1, tile, tile))


IMAGE = np.arange(2 * 5 * 3 * 4, dtype=np.float32).reshape(2, 5, 3, 4)
TO_NHWC, TO_HWCN = (0, 2, 3, 1), (2, 3, 1, 0)


@pytest.mark.parametrize(
    ("stored", "format", "original", "target", "expected"),
    [
        (IMAGE, NCHW, None, "NHWC", IMAGE.transpose(TO_NHWC)),
        (IMAGE, NCHW, None, "HWCN", IMAGE.transpose(TO_HWCN)),
        (IMAGE, NCHW, None, "NCHW", IMAGE),
        (np.ascontiguousarray(IMAGE.transpose(TO_NHWC)), NHWC, None, "NCHW", IMAGE),
        (np.ascontiguousarray(IMAGE.transpose(TO_HWCN)), HWCN, None, "NCHW", IMAGE),
        (nc1hwc0(IMAGE), NC1HWC0, IMAGE.shape, "NCHW", IMAGE),
        (nc1hwc0(IMAGE), NC1HWC0, (2, 3, 4, 5), "NCHW", IMAGE),  # the framework's shape is NHWC
        (nc1hwc0(IMAGE), NC1HWC0, IMAGE.shape, "NHWC", IMAGE.transpose(TO_NHWC)),
        (nc1hwc0(IMAGE), NC1HWC0, IMAGE.shape, "HWCN", IMAGE.transpose(TO_HWCN)),
        (fractal_z(IMAGE), FRACTAL_Z, IMAGE.shape, "NCHW", IMAGE),
        (fractal_z(IMAGE), FRACTAL_Z, (3, 4, 5, 2), "HWCN", IMAGE.transpose(TO_HWCN)),
        (nz(IMAGE), FRACTAL_NZ, IMAGE.shape, "ND", IMAGE),
        (nz(IMAGE), FRACTAL_NZ, IMAGE.shape, "NCHW", IMAGE),
        (nz(IMAGE[0, 0]), FRACTAL_NZ, (3, 4), "ND", IMAGE[0, 0]),
        (IMAGE, ND, None, "NCHW", IMAGE),  # no named axes: as it is
        (IMAGE[0], NCHW, None, "NHWC", IMAGE[0]),  # three dimensions cannot be NCHW
    ],
)
def test_layouts(assay, tmp_path, stored, format, original, target, expected):
    (tmp_path / NAME).write_bytes(Dump(outputs=[Operand.of(stored, format, original)]).encode())
    result = assay("convert", "-d", tmp_path / NAME, "-out", tmp_path / "out", "-f", target)
    assert result.returncode == 0, result.stderr
    (file,) = (tmp_path / "out").iterdir()
    assert file.name == f"{NAME}.output.0.{'x'.join(map(str, expected.shape))}.npy"
    np.testing.assert_array_equal(np.load(file), expected)


def test_a_shape_and_one_operand_can_be_named(assay, tmp_path):
    stored = nc1hwc0(IMAGE)
    dump = Dump(inputs=[Operand.of(stored, NC1HWC0, ())], outputs=[Operand.of(IMAGE)])
    (tmp_path / NAME).write_bytes(dump.encode())
    result = assay("convert", "-d", tmp_path / NAME, "-out", tmp_path / "o", "-f", "NHWC", "-s", "2,3,4,5", "-i", "0")
    assert result.returncode == 0, result.stderr
    assert names_below(tmp_path / "o") == [f"{NAME}.input.0.2x3x4x5.npy"]
    np.testing.assert_array_equal(np.load(tmp_path / "o" / f"{NAME}.input.0.2x3x4x5.npy"), IMAGE.transpose(TO_NHWC))


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["-o", "0"], 6, "-o takes effect only together with -f"),
        (["-s", "1,2"], 6, "-s takes effect only together with -f"),
        (["-c", "."], 6, "-c takes effect only together with -f"),
        (["-f", "NCWH"], 6, "'NCWH' is no memory format"),
        (["-f", "ND", "-s", "1x2"], 6, "is no shape"),
        (["-f", "ND", "-o", "3"], 6, "there is no output 3"),
        (["-f", "ND", "-o", "-1"], 6, "takes a number from 0 on"),
        (["-f", "ND", "-o", "0", "-i", "0"], 2, "not allowed with argument"),
        (["-t", "txt"], 2, "invalid choice"),
        (["-f", "NDHWC"], 22, "no conversion from NCHW to NDHWC"),
        (["-f", "ND", "-c", "missing"], 3, "is no folder"),
    ],
)
def test_wrong_requests_give_the_original_s_codes(assay, tmp_path, options, code, sentence):
    (tmp_path / NAME).write_bytes(Dump(outputs=[Operand.of(IMAGE, NCHW)]).encode())
    result = assay("convert", "-d", NAME, "-out", "out", *options, cwd=tmp_path)
    assert result.returncode == code, result.stderr
    assert sentence in result.stderr
    assert names_below(tmp_path) == [NAME]


@pytest.mark.parametrize(
    ("path", "code", "sentence"),
    [("missing", 3, "no such file"), ("empty", 6, "no dump files"), ("texts", 2, "no dump files"), ("bad", 4, "bytes")],
)
def test_paths_that_hold_no_dumps(assay, tmp_path, path, code, sentence):
    (tmp_path / "empty").mkdir()
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("no dump")
    (tmp_path / "bad").write_bytes(b"\xff" * 20)
    result = assay("convert", "-d", path, "-out", "out", cwd=tmp_path)
    assert result.returncode == code, result.stderr
    assert sentence in result.stderr


def test_a_folder_goes_on_past_bad_files_and_lists_them(assay, tmp_path):
    folder = tmp_path / "dumps"
    folder.mkdir()
    good = Dump(outputs=[Operand.of(np.ones(2, np.float32))]).encode()
    (folder / NAME).write_bytes(good)
    foreign, cut = "Mul.Mul.4.7.1760000000123457", "Sub.Sub.5.7.1760000000123458"
    (folder / foreign).write_bytes(b"\x89PNG" * 10)
    (folder / cut).write_bytes(good[:-3])
    (folder / "mapping.csv").write_text("1,2\n")
    (folder / "old.output.0.npy").write_bytes(b"")  # not a dump by its name
    (folder / "sub").mkdir()
    (folder / "sub" / NAME).write_bytes(good)
    out = tmp_path / "out"
    out.mkdir()
    (out / "convert_failed_file_list.txt").write_text("stale\n")
    result = assay("convert", "-d", folder, "-out", out)
    assert result.returncode in (4, 39), result.stderr
    assert "2 of 4 files could not be converted completely" in result.stderr
    assert result.stderr.count("warning:") >= 2
    listed = sorted((out / "convert_failed_file_list.txt").read_text().splitlines())
    assert listed == [str(folder / foreign), f"{folder / cut},output:0"]
    assert names_below(out) == [f"{NAME}.output.0.npy", "convert_failed_file_list.txt", f"sub/{NAME}.output.0.npy"]


def test_several_files_with_commas(assay, tmp_path):
    names = [NAME, "Mul.Mul.4.7.1760000000123457"]
    for name in names:
        (tmp_path / name).write_bytes(Dump(outputs=[Operand.of(np.ones(2, np.float32))]).encode())
    result = assay("convert", "-d", ",".join(names), "-out", "out", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert names_below(tmp_path / "out") == sorted(f"{name}.output.0.npy" for name in names)


def test_long_names_become_uuids_that_the_mapping_explains(assay, tmp_path):
    name = f"Add.{'x' * 220}.3.7.1760000000123456"
    assert len(name) < 255 <= len(f"{name}.output.0.npy")
    dump = Dump(outputs=[Operand.of(np.float32([i])) for i in range(2)])
    (tmp_path / name).write_bytes(dump.encode())
    for _ in range(2):  # a second conversion adds no second line
        result = assay("convert", "-d", tmp_path / name, "-out", tmp_path / "out")
        assert result.returncode == 0, result.stderr
    with open(tmp_path / "out" / "mapping.csv", newline="") as file:
        mapping = {old: new for new, old in csv.reader(file)}
    for i in range(2):
        old = f"{name}.output.{i}.npy"
        assert mapping[old] == uuid.uuid3(uuid.NAMESPACE_DNS, old).hex + ".npy"
        np.testing.assert_array_equal(np.load(tmp_path / "out" / mapping[old]), [i])
    assert len(mapping) == len((tmp_path / "out" / "mapping.csv").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("payload", "check"),
    [
        (
            overflow_payload(status=0x110),
            lambda j: j["acc_list"]["data"]["task_id"] == 12 and j["acc_list"]["acc_type"] == "AIC",
        ),
        (
            old_overflow_payload(),
            lambda j: j["AI Core"]["status"] in (272, "0x110") and j["DHA Atomic Add"]["task_id"] == 0,
        ),
    ],
    ids=["new", "old"],
)
def test_debug_files_become_json(assay, tmp_path, payload, check):
    name = "Opdebug.Node_OpDebug.99.3.1760000000123456"
    dump = Dump("Node_OpDebug", outputs=[Operand(4, (2048,), payload)]).encode()
    (tmp_path / name).write_bytes(dump)
    result = assay("convert", "-d", tmp_path / name, "-out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert names_below(tmp_path / "out") == [f"{name}.output.0.json"]
    assert check(json.loads((tmp_path / "out" / f"{name}.output.0.json").read_text()))


def test_a_fused_task_has_the_shape_of_its_thread(assay, tmp_path):
    name = f"{NAME}.4.5.1.0"  # kind, context 5, thread 1, device
    slices = [
        [[{"lower": 0, "higher": 4}, {"lower": 0, "higher": 3}]],
        [[{"lower": 4, "higher": 6}, {"lower": 0, "higher": 3}]],
    ]
    values = np.arange(6, dtype=np.float32)
    dump = Dump(
        outputs=[Operand(1, (6, 3), values.tobytes())],
        attributes={"_sgt_json_info": json.dumps({"input_tensor_slice": [], "output_tensor_slice": slices})},
    )
    (tmp_path / name).write_bytes(dump.encode())
    result = assay("convert", "-d", tmp_path / name, "-out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "out" / f"{name}.output.0.npy"), values.reshape(2, 3))


def test_a_script_of_the_user_converts_formats(assay, tmp_path, monkeypatch):
    import sys

    monkeypatch.setenv("ASSAY_PYTHON", sys.executable)
    scripts = tmp_path / "scripts" / "format_convert"
    scripts.mkdir(parents=True)
    (scripts / "convert_NC1KHKWHWC0_to_ND.py").write_text(
        "def convert(shape_from, shape_to, array):\n"
        "    assert array.ndim == 1 and shape_from == [2, 3] and shape_to == [3, 2]\n"
        "    return array.reshape(shape_from).T * 2\n"
    )
    (scripts / "convert_MD_to_ND.py").write_text("def convert(shape_from, shape_to, array):\n    return 'no array'\n")
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    (tmp_path / NAME).write_bytes(Dump(outputs=[Operand.of(values, 17, (3, 2)), Operand.of(values, 26)]).encode())
    result = assay("convert", "-d", tmp_path / NAME, "-out", tmp_path / "out", "-f", "ND", "-c", tmp_path / "scripts")
    assert result.returncode == 22, result.stderr
    assert "convert() returned str, not an array of numbers" in result.stderr
    assert names_below(tmp_path / "out") == [f"{NAME}.output.0.3x2.npy"]
    np.testing.assert_array_equal(np.load(tmp_path / "out" / f"{NAME}.output.0.3x2.npy"), values.T * 2)


def test_operands_that_were_left_out_keep_their_numbers(assay, tmp_path):
    values = [np.float32([i]) for i in range(2)]
    dump = Dump(
        inputs=[Operand(1, (1,), values[0].tobytes(), arg_index=1)],
        outputs=[Operand(1, (1,), values[1].tobytes(), arg_index=2)],
        attributes={"assay_operand_index": "arg_index"},
    )
    (tmp_path / NAME).write_bytes(dump.encode())
    expected = [f"{NAME}.input.1.npy", f"{NAME}.output.2.npy"]
    assert assay("convert", "-d", tmp_path / NAME, "-out", tmp_path / "old").returncode == 0
    assert names_below(tmp_path / "old") == expected
    assert assay("convert", tmp_path / NAME, f"{tmp_path}/new/", "--format", "npy").returncode == 0
    assert names_below(tmp_path / "new") == expected
    options = ["-f", "ND", "-o", "2"]
    assert assay("convert", "-d", tmp_path / NAME, "-out", tmp_path / "one", *options).returncode == 0
    assert names_below(tmp_path / "one") == [f"{NAME}.output.2.1.npy"]


# ---- the grammar before it -------------------------------------------------------------------------------------------


def test_numpy_to_dump_and_back_with_the_first_converter(assay, tmp_path):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "Add.model_add.3.1760000000123456.0.npy", values)
    result = assay("convert", "-target", "dump", "-type", "offline", "-i", tmp_path, "-o", tmp_path / "dumps")
    assert result.returncode == 0, result.stderr
    assert names_below(tmp_path / "dumps") == ["Add.model_add.3.1760000000123456"]
    _, inputs, outputs = read_dump((tmp_path / "dumps" / "Add.model_add.3.1760000000123456").read_bytes())
    assert inputs == [] and outputs == [(1, ND, (2, 3), values.tobytes())]
    result = assay("convert", "-target", "numpy", "-type", "offline", "-i", tmp_path / "dumps", "-o", tmp_path / "back")
    assert result.returncode == 0, result.stderr
    assert names_below(tmp_path / "back") == ["model_add.output.0.npy"]
    np.testing.assert_array_equal(np.load(tmp_path / "back" / "model_add.output.0.npy"), values)


@pytest.mark.parametrize(("kind", "ending"), [("tf", "pb"), ("caffe", "pb"), ("quant", "quant")])
def test_golden_files_of_other_frameworks(assay, tmp_path, kind, ending):
    values = np.arange(3, dtype=np.int64)
    np.save(tmp_path / "conv1.0.1760000000123456.npy", values)
    source = tmp_path / "conv1.0.1760000000123456.npy"
    assert assay("convert", "-target", "dump", "-type", kind, "-i", source, "-o", tmp_path / "d").returncode == 0
    assert names_below(tmp_path / "d") == [f"conv1.0.1760000000123456.{ending}"]
    assert (
        assay("convert", "-target", "numpy", "-type", kind, "-i", tmp_path / "d", "-o", tmp_path / "n").returncode == 0
    )
    assert names_below(tmp_path / "n") == ["conv1.0.npy"]
    np.testing.assert_array_equal(np.load(tmp_path / "n" / "conv1.0.npy"), values)


def test_names_that_say_nothing_are_refused(assay, tmp_path):
    np.save(tmp_path / "x.npy", np.ones(2))
    result = assay("convert", "-target", "dump", "-type", "tf", "-i", tmp_path / "x.npy", "-o", tmp_path / "o")
    assert result.returncode == 18
    assert "is not named {name}.{output}.{time}.npy" in result.stderr


# ---- our grammar -----------------------------------------------------------------------------------------------------


def tree(root):
    folder = root / "20250102030405" / "0" / "graph_1" / "1"
    for step in range(2):
        (folder / str(step)).mkdir(parents=True)
        for i, name in enumerate(("Add.Add_1", "Mul.Mul")):
            values = np.full((2, 3), 10 * step + i, np.float32)
            halves = Operand(BFLOAT16, (2,), torch.ones(2, dtype=torch.bfloat16).view(torch.uint8).numpy().tobytes())
            dump = Dump(name.split(".")[1], inputs=[Operand.of(values)], outputs=[Operand.of(values + 0.5), halves])
            (folder / str(step) / f"{name}.{i + 1}.0.{1760000000000000 + 10 * step + i}").write_bytes(dump.encode())
    return folder


@pytest.mark.parametrize("kind", ["npy", "pth", "safetensors", "txt", "bin"])
def test_a_run_becomes_a_tree_of_the_same_shape(assay, tmp_path, kind):
    tree(tmp_path / "dump")
    result = assay("convert", tmp_path / "dump", f"{tmp_path}/out/", "--format", kind)
    assert result.returncode == 0, result.stderr
    files = names_below(tmp_path / "out")
    assert len(files) == 2 * 2 * 3
    stem = "20250102030405/0/graph_1/1/1/Add.Add_1.1.0.1760000000000010"
    ending = {"bin": ".2_3.float32.ND.bin"}.get(kind, f".{kind}")
    first = tmp_path / "out" / f"{stem}.output.0{ending}"
    loaded = {
        "npy": np.load,
        "pth": lambda path: torch.load(path).numpy(),
        "safetensors": lambda path: next(iter(load_file(path).values())),
        "txt": lambda path: np.loadtxt(path, dtype=np.float32),
        "bin": lambda path: np.fromfile(path, np.float32).reshape(2, 3),
    }[kind](first)
    np.testing.assert_array_equal(loaded, np.full((2, 3), 10.5, np.float32))
    if kind == "pth":
        assert torch.load(tmp_path / "out" / f"{stem}.output.1.pth").dtype == torch.bfloat16


def test_reports_become_json_and_statistics_are_named_in_a_tree(assay, tmp_path):
    folder = tree(tmp_path / "dump") / "0"
    report = "Opdebug.Node_OpDebug.99.0.1760000000000005"
    payload = Operand(4, (2048,), overflow_payload())
    (folder / report).write_bytes(Dump("Node_OpDebug", outputs=[payload]).encode())
    (folder / "Sub.Sub.3.0.1760000000000006.csv").write_text(CLASSIC)
    result = assay("convert", tmp_path / "dump", f"{tmp_path}/out/", "--format", "npy", "--step", "0")
    assert result.returncode == 0, result.stderr
    assert "hold statistics only" in result.stderr
    written = names_below(tmp_path / "out")
    assert f"20250102030405/0/graph_1/1/0/{report}.output.0.json" in written
    assert not any("Sub" in name for name in written) and len(written) == 2 * 3 + 1


def test_records_can_be_chosen(assay, tmp_path):
    tree(tmp_path / "dump")
    result = assay("convert", tmp_path / "dump", f"{tmp_path}/out/", "--format", "npy", "--step", "1", "--name", "Mul")
    assert result.returncode == 0, result.stderr
    stem = "20250102030405/0/graph_1/1/1/Mul.Mul.2.0.1760000000000011"
    assert names_below(tmp_path / "out") == [f"{stem}.{rest}.npy" for rest in ("input.0", "output.0", "output.1")]


def test_one_dump_file_into_a_folder_or_a_container(assay, tmp_path):
    (tmp_path / NAME).write_bytes(worked_example())
    assert assay("convert", tmp_path / NAME, f"{tmp_path}/out/", "--format", "npy").returncode == 0
    assert names_below(tmp_path / "out") == [f"{NAME}.input.0.npy", f"{NAME}.input.1.npy", f"{NAME}.output.0.npy"]
    assert assay("convert", tmp_path / NAME, tmp_path / "all.safetensors").returncode == 0
    loaded = load_file(tmp_path / "all.safetensors")
    assert sorted(loaded) == ["inputs.0", "inputs.1", "outputs.0"]
    np.testing.assert_array_equal(loaded["outputs.0"], np.float32([1.5, -1.5]))


@pytest.mark.parametrize(
    "dtype",
    ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int16", "int8",
     "uint8", "bool", "complex64", "complex128"],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)], ids=str)
def test_text_keeps_type_shape_and_every_value(assay, tmp_path, dtype, shape):
    torch_type = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(shape, dtype=torch.float64, generator=generator) * 3
    tensor = torch.complex(values, -values).to(torch_type) if torch_type.is_complex else values.to(torch_type)
    if dtype == "int64" and tensor.numel():
        tensor.view(-1)[0] = 2**62 + 1
    if torch_type.is_floating_point and tensor.numel() > 2:
        tensor.view(-1)[0], tensor.view(-1)[1] = float("nan"), -0.0
    torch.save(tensor, tmp_path / "in.pth")
    assert assay("convert", tmp_path / "in.pth", tmp_path / "x.txt").returncode == 0
    assert (tmp_path / "x.txt").read_text().splitlines()[0] == f"# dtype={dtype} shape={','.join(map(str, shape))}"
    result = assay("convert", tmp_path / "x.txt", tmp_path / "back.pth")
    assert result.returncode == 0, result.stderr
    back = torch.load(tmp_path / "back.pth", weights_only=True)
    assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
    wide = torch.complex128 if torch_type.is_complex else torch.float64 if torch_type.is_floating_point else torch_type
    torch.testing.assert_close(back.to(wide), tensor.to(wide), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("# dtype=float33 shape=2\n1 2\n", "unknown type 'float33'"),
        ("# dtype=float32\n1 2\n", "no ' shape='"),
        ("# dtype=float32 shape=2,x\n1 2\n", "is no shape"),
        ("# dtype=float32 shape=3\n1 2\n", "needs 3 values, there are 2"),
        ("# dtype=float32 shape=1\n1 2\n", "more values than the 1"),
        ("# dtype=int8 shape=1\n300\n", "'300' is no value of int8"),
        ("# dtype=int8 shape=1\n\x1b[2J\n", "'?[2J' is no value of int8"),
        ("# dtype=float32 shape=9223372036854775807\n1\n", "needs more values"),
    ],
)
def test_text_that_is_wrong(assay, tmp_path, text, sentence):
    (tmp_path / "x.txt").write_text(text)
    result = assay("convert", tmp_path / "x.txt", tmp_path / "y.npy")
    assert result.returncode == 2
    assert sentence in result.stderr
    assert names_below(tmp_path) == ["x.txt"]


def test_arrays_become_a_dump_file(assay, tmp_path):
    arrays = {name: np.random.default_rng(4).normal(size=(2, 3)).astype(np.float32) for name in "xyz"}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    torch.save(torch.arange(6.0).reshape(2, 3).t(), tmp_path / "strided.pth")
    result = assay(
        "convert", "z.npy", "z.dump", "--format", "cann", "--input", "x.npy", "--input", "strided.pth",
        "--op-name", "model/add", cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    op_name, inputs, outputs = read_dump((tmp_path / "z.dump").read_bytes())
    assert op_name == "model/add"
    assert inputs[0] == (1, ND, (2, 3), arrays["x"].tobytes())
    assert inputs[1] == (
        1,
        ND,
        (3, 2),
        np.ascontiguousarray(np.arange(6.0, dtype=np.float32).reshape(2, 3).T).tobytes(),
    )
    assert outputs == [(1, ND, (2, 3), arrays["z"].tobytes())]
    assert assay("convert", "z.npy", "z.dump", "--format", "cann", cwd=tmp_path).returncode == 2  # exists
    result = assay(
        "convert", "z.npy", "out/", "--format", "cann", "--op-type", "Add", "--op-name", "a/b.c", cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    (name,) = names_below(tmp_path / "out")
    assert name.startswith("Add.a_b_c.0.0.") and len(name.split(".")[-1]) == 16


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e5m2", "int64", "bool", "complex64"])
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)], ids=str)
def test_a_dump_file_reads_back_equal(assay, tmp_path, dtype, shape):
    tensor = torch.ones(shape).to(getattr(torch, dtype))
    torch.save(tensor, tmp_path / "in.pth")
    dump = tmp_path / NAME
    assert assay("convert", tmp_path / "in.pth", dump, "--format", "cann").returncode == 0
    assert assay("convert", dump, tmp_path / "out.pth").returncode == 0
    back = torch.load(tmp_path / "out.pth", weights_only=True)
    assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
    assert back.view(-1).view(torch.uint8).tolist() == tensor.view(-1).view(torch.uint8).tolist()


def test_converted_tensors_become_the_same_dump_again(assay, tmp_path):
    (tmp_path / NAME).write_bytes(worked_example())
    assert assay("convert", tmp_path / NAME, f"{tmp_path}/npy/", "--format", "npy").returncode == 0
    result = assay("convert", tmp_path / "npy", tmp_path / "again", "--format", "cann", "--op-name", "model/add")
    assert result.returncode == 0, result.stderr
    assert read_dump((tmp_path / "again").read_bytes()) == read_dump(worked_example())


def test_options_of_dump_files_need_their_format(assay, tmp_path):
    np.save(tmp_path / "x.npy", np.ones(2))
    result = assay("convert", tmp_path / "x.npy", tmp_path / "y.npy", "--op-name", "a")
    assert result.returncode == 2 and "only with --format cann" in result.stderr


CLASSIC = (
    "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count,"
    "Negative Inf Count,Positive Inf Count\n"
    "Input,0,8,DT_FLOAT,ND,2,1,-2,-0.5,2,0,0,0\n"
    "Output,0,8,DT_FLOAT,ND,2,1.5,-1.5,0,2,0,0,0\n"
)


def test_statistics_of_all_operators_become_one_table(assay, tmp_path):
    folder = tmp_path / "dump" / "0"
    folder.mkdir(parents=True)
    (folder / "Add.Add_1.12.3.1735786845123456.csv").write_text(CLASSIC)
    values = np.array([[1, np.nan, -np.inf], [4, 5, 6]], np.float32)
    mul = Dump("Mul", outputs=[Operand.of(values)]).encode()
    (folder / "Mul.Mul.11.3.1735786845123455").write_bytes(mul)  # earlier, and without a table
    result = assay("convert", tmp_path / "dump", tmp_path / "statistic.csv")
    assert result.returncode == 0, result.stderr
    with open(tmp_path / "statistic.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[:11] == [
        "Op Type", "Op Name", "Task ID", "Stream ID", "Timestamp", "Input/Output", "Slot", "Data Size", "Data Type",
        "Format", "Shape",
    ]  # fmt: skip
    assert [(row["Op Name"], row["Input/Output"], row["Slot"]) for row in rows] == [
        ("Mul", "output", "0"), ("Add_1", "input", "0"), ("Add_1", "output", "0"),
    ]  # fmt: skip
    assert (rows[1]["Task ID"], rows[1]["Stream ID"], rows[1]["Shape"]) == ("12", "3", "2")
    assert [float(rows[1][name]) for name in ("Max Value", "Min Value", "Avg Value")] == [1, -2, -0.5]
    assert (rows[0]["Data Type"], rows[0]["Shape"], rows[0]["Data Size"]) == ("DT_FLOAT", "2x3", "24")
    assert [float(rows[0][name]) for name in ("Max Value", "Min Value", "Avg Value")] == [6, -np.inf, -np.inf]
    assert [rows[0][name] for name in ("NaN Count", "Negative Inf Count", "Positive Inf Count")] == ["1", "1", "0"]
    assert rows[0]["File"] == "0/Mul.Mul.11.3.1735786845123455"


@pytest.mark.parametrize(
    ("name", "task", "stream"),
    [
        ("Add.Add_1.12.3.1735786845123456", "12", "3"),
        ("Add.Add_1.12.1735786845123456", "12", ""),  # before streams
        ("Add.Add_1.77.12.3.1735786845123456", "12", "3"),  # with the number of the dump
        ("Add.Add_1.12.3.1735786845123456.4.5.1.0", "12", "3"),  # of a fused task
        ("Add.Add_1.77.12.3.1735786845123456.FFTSPLUS.5.1.0", "12", "3"),
    ],
)
def test_names_of_all_versions_tell_operator_task_and_stream(assay, tmp_path, name, task, stream):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / f"{name}.csv").write_text(CLASSIC)
    result = assay("convert", tmp_path / "d", tmp_path / "statistic.csv")
    assert result.returncode == 0, result.stderr
    with open(tmp_path / "statistic.csv", newline="") as file:
        row = next(csv.DictReader(file))
    assert [row[key] for key in ("Op Type", "Op Name", "Task ID", "Stream ID", "Timestamp")] == [
        "Add", "Add_1", task, stream, "1735786845123456",
    ]  # fmt: skip


def test_statistics_go_on_past_what_cannot_be_read(assay, tmp_path):
    (tmp_path / "Add.Add_1.12.3.1735786845123456.csv").write_text(CLASSIC)
    (tmp_path / "Mul.Mul.11.3.1735786845123455.csv").write_text("a,b\n1,2\n")
    result = assay("convert", tmp_path, tmp_path / "all.csv", "--format", "statistics")
    assert result.returncode == 2
    assert "Mul.Mul.11.3.1735786845123455.csv" in result.stderr
    assert (tmp_path / "all.csv").read_text().count("Add_1") == 4  # two rows, with name and file


# ---- texts of graphs -------------------------------------------------------------------------------------------------


def test_a_graph_s_text_becomes_json_onnx_and_model_explorer(assay, tmp_path):
    onnx = pytest.importorskip("onnx")
    write_text(tmp_path, graph())
    (text,) = tmp_path.iterdir()
    for name in ("g.json", "g.onnx", "g.me.json"):
        result = assay("convert", text, tmp_path / name)
        assert result.returncode == 0, result.stderr
    names = [op.name for op in graph()]
    assert [op["name"] for op in json.loads((tmp_path / "g.json").read_text())["op"]] == names
    assert {node.name for node in onnx.load(tmp_path / "g.onnx").graph.node} <= set(names)
    assert '"MatMulV2"' in (tmp_path / "g.me.json").read_text()
    assert assay("convert", text, tmp_path / "g.json").returncode == 2  # exists
    text.write_text(text.read_text()[:-30])
    result = assay("convert", text, tmp_path / "h.json")
    assert result.returncode == 2 and text.name in result.stderr


# ---- many and large ones ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2])
def test_random_dumps_come_back_through_arrays(assay, tmp_path, seed):
    rng = np.random.default_rng(seed)
    (tmp_path / "dumps").mkdir()
    expected = {}
    for i in range(60):
        sides = []
        for _ in range(2):
            shapes = [tuple(rng.integers(0, 5, rng.integers(0, 5))) for _ in range(rng.integers(0, 4))]
            arrays = [
                rng.integers(0, 2, shape).astype(rng.choice([d for d in NUMBERS if d != "bool"])) for shape in shapes
            ]
            sides.append(arrays)
        name = f"Add.Add_{i}.{i}.0.{1760000000000000 + i}"
        (tmp_path / "dumps" / name).write_bytes(
            Dump(f"Add_{i}", *[[Operand.of(array) for array in side] for side in sides]).encode()
        )
        for side, arrays in zip(("input", "output"), sides):
            expected.update({f"{name}.{side}.{k}.npy": array for k, array in enumerate(arrays)})
    result = assay("convert", "-d", tmp_path / "dumps", "-out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert names_below(tmp_path / "out") == sorted(expected)
    for name, array in expected.items():
        loaded = np.load(tmp_path / "out" / name)
        assert (loaded.dtype, loaded.shape) == (array.dtype, array.shape), name
        np.testing.assert_array_equal(loaded, array, err_msg=name)


def test_a_tensor_behind_five_gibibytes(assay, tmp_path):
    size = 5 << 30
    values = np.arange(3, dtype=np.float32)
    last = Operand.of(values)
    head = Dump(inputs=[Operand(4, (size,), b"", size=size)], outputs=[last]).encode()
    head, tail = head[: -values.nbytes], head[-values.nbytes :]
    with open(tmp_path / NAME, "wb") as file:
        file.write(head)
        file.seek(len(head) + size)  # sparse
        file.write(tail)
    result = assay("convert", "-d", tmp_path / NAME, "-out", tmp_path / "out", "-f", "ND", "-o", "0")
    (tmp_path / NAME).unlink()
    assert result.returncode == 0, result.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "out" / f"{NAME}.output.0.3.npy"), values)


# ---- memory, interruption --------------------------------------------------------------------------------------------


def test_a_big_tensor_is_not_held_in_memory(assay, tmp_path):
    size = 256 << 20
    head = Dump(outputs=[Operand(4, (size,), b"", size=size)]).encode()
    with open(tmp_path / NAME, "wb") as file:
        file.write(head)
        file.truncate(len(head) + size)  # sparse
    usage = subprocess.run(
        [os.sys.executable, "-c", "import resource, subprocess, sys; r = subprocess.run(sys.argv[1:]).returncode;"
         "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(r)",
         assay_path(), "convert", "-d", tmp_path / NAME, "-out", tmp_path / "out", "-t", "bin"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    (file,) = (tmp_path / "out").iterdir()
    assert file.stat().st_size == size
    # Mapped pages of the file count while they are cached; what we hold ourselves is a few MB.
    assert int(usage.stdout) < 2 * (size >> 10)
    file.unlink()


def assay_path() -> str:
    from assay_command import binary

    return binary()


def test_ctrl_c_leaves_only_whole_files(tmp_path):
    folder = tmp_path / "dumps"
    folder.mkdir()
    size = 32 << 20
    for i in range(40):
        head = Dump(outputs=[Operand(1, (size // 4,), b"", size=size)]).encode()
        with open(folder / f"Add.Add_{i}.{i}.0.17600000001234{i:02}", "wb") as file:
            file.write(head)
            file.truncate(len(head) + size)
    out = tmp_path / "out"
    process = subprocess.Popen(
        [assay_path(), "convert", "-d", folder, "-out", out], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        while process.poll() is None and not (out.exists() and any(path.suffix == ".npy" for path in out.iterdir())):
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, stderr
    assert "interrupted" in stderr
    assert {path.suffix for path in out.iterdir()} == {".npy"}
    assert {path.stat().st_size for path in out.iterdir()} == {size + 128}
    assert len(list(out.iterdir())) < 40


def test_a_full_disk_is_a_sentence_and_leaves_nothing(assay, tmp_path):
    (tmp_path / NAME).write_bytes(Dump(outputs=[Operand.of(np.zeros(1_000_000, np.float32))]).encode())

    def prepare() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    result = assay("convert", "-d", tmp_path / NAME, "-out", tmp_path / "out", preexec_fn=prepare)
    assert result.returncode == 19, result.stderr
    assert "File too large" in result.stderr
    assert names_below(tmp_path / "out") == []
