#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rebuilds the golden files of tests/data with the software that owns each format.

    python tools/make_golden.py [FOLDER ...]        # folders of tests/data: pth npy safetensors
    python tools/make_golden.py seeds               # the fuzzers' seeds in src/formats, from those files

The same versions give the same bytes, except in legacy.pth (its storage keys are addresses) and mixed.safetensors (its
metadata has no order). Every folder gets a VERSIONS file naming what wrote it. The unit tests know the values: most
tensors are 1, 2, 3 ...
"""

import io
import platform
import sys
import types
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import safetensors
import safetensors.torch
import torch

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"


def counting(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """[1, 2, 3, ...] in the given shape."""
    count = int(np.prod(shape))
    return torch.arange(1, count + 1, dtype=torch.float64).reshape(shape).to(dtype)


def torch_bytes(value: object, **options: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


def five_records(tensor: torch.Tensor, path: Path) -> None:
    """The record set of torch 2.1: no .format_version, no .storage_alignment. The writer names the directory itself."""
    with zipfile.ZipFile(io.BytesIO(torch_bytes(tensor))) as archive:
        pickle_bytes = archive.read("archive/data.pkl")
        payload = archive.read("archive/data/0")
    writer = torch._C.PyTorchFileWriter(str(path))
    writer.write_record("data.pkl", pickle_bytes, len(pickle_bytes))
    writer.write_record("byteorder", b"little", 6)
    writer.write_record("data/0", payload, len(payload))
    writer.write_end_of_file()


def repacked(source: bytes, change: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """The same records with some replaced, written by Python's zipfile."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(source)) as old, zipfile.ZipFile(buffer, "w", method) as new:
        for info in old.infolist():
            record = info.filename.split("/", 1)[1]
            entry = zipfile.ZipInfo(info.filename, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = method
            new.writestr(entry, change.get(record, old.read(info)))
    return buffer.getvalue()


class Reduced:
    """Pickles as a call of a function that need not exist here."""

    def __init__(self, module: str, name: str, arguments: tuple) -> None:
        parts = module.split(".")
        for end in range(1, len(parts) + 1):
            parent = ".".join(parts[:end])
            holder = sys.modules.setdefault(parent, types.ModuleType(parent))
        if not hasattr(holder, name):

            def function(*_: object) -> None: ...

            function.__module__, function.__qualname__, function.__name__ = module, name, name
            setattr(holder, name, function)
        self.function, self.arguments = getattr(holder, name), arguments

    def __reduce__(self) -> tuple:
        return self.function, self.arguments


def npu_tensor(tensor: torch.Tensor, offset: int, size: tuple, stride: tuple, npu_format: int) -> Reduced:
    storage = torch.storage.TypedStorage(wrap_storage=tensor.untyped_storage(), dtype=tensor.dtype, _internal=True)
    from collections import OrderedDict

    arguments = (storage, offset, size, stride, False, OrderedDict(), npu_format)
    return Reduced("torch_npu.utils.storage", "_rebuild_npu_tensor", arguments)


def make_pth(folder: Path) -> None:
    five_records(counting(2, 3), folder / "input_0.pth")
    base = counting(4, 6)
    with_state = torch.nn.Parameter(counting(2))
    with_state.loader = Reduced("serving.loaders", "row_parallel", (print, 1))
    unsupported = {
        "sparse": torch.eye(2).to_sparse(),
        "quantised": torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.qint8),
        "meta": torch.empty(2, device="meta"),
        "unknown_class": Reduced("os", "system", ("true",)),
    }
    files: dict[str, bytes] = {
        "recent": torch_bytes(counting(2, 3)),
        "bfloat16": torch_bytes(counting(3, dtype=torch.bfloat16)),
        "float8_e4m3fn": torch_bytes(counting(3, dtype=torch.float8_e4m3fn)),
        "uint16": torch_bytes(counting(3, dtype=torch.uint16)),
        "scalar": torch_bytes(torch.tensor(7, dtype=torch.int64)),
        "no_elements": torch_bytes(torch.empty(0, 3)),
        "permuted_view": torch_bytes(base[1:3].t()),
        "expanded": torch_bytes(counting(2, 1).expand(2, 3)),
        "conjugate": torch_bytes(torch.tensor([1 + 2j, 3 - 4j]).conj()),
        "negative": torch_bytes(torch.tensor([1 + 2j, 3 - 4j]).conj().imag),
        "parameter": torch_bytes(torch.nn.Parameter(counting(2, 3))),
        "parameter_with_state": torch_bytes(with_state),
        "nested": torch_bytes(
            {
                "hidden": (counting(2), [counting(3), None]),
                "count": 3,
                "rate": 0.5,
                "big": 1 << 70,
                "name": "layer",
                "flag": True,
                "raw": b"\x00\xff",
                4: torch.bfloat16,
                "place": torch.device("cuda", 1),
                "shape": torch.Size([2, 3]),
                "set": {5},
            }
        ),
        "state_dict": torch_bytes(torch.nn.Linear(2, 1).state_dict()),
        "legacy": torch_bytes(
            {"a": counting(2, 3), "b": counting(2, dtype=torch.bfloat16)}, _use_new_zipfile_serialization=False
        ),
        "protocol4": torch_bytes((counting(2), "text", b"\x01"), pickle_protocol=4),
        "protocol5": torch_bytes((counting(2), "text", b"\x01"), pickle_protocol=5),
        "npu": torch_bytes(npu_tensor(counting(2, 3), 0, (2, 3), (3, 1), 29)),
        "npu_compacted": torch_bytes(npu_tensor(counting(2, 3), 6, (2, 3), (12, 2), 2)),
        **{f"unsupported_{name}": torch_bytes(value) for name, value in unsupported.items()},
    }
    plain = files["recent"]
    swapped = counting(2, 3).numpy().astype(">f4").tobytes()
    files["big_endian"] = repacked(plain, {"byteorder": b"big", "data/0": swapped})
    files["deflated"] = repacked(torch_bytes(counting(100).remainder(2)), {}, zipfile.ZIP_DEFLATED)
    script = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Identity()), script)
    files["unsupported_torchscript"] = script.getvalue()
    for name, content in files.items():
        (folder / f"{name}.pth").write_bytes(content)


def make_npy(folder: Path) -> None:
    counting_array = np.arange(1, 7).reshape(2, 3)
    for dtype in ("float64", "float32", "float16", "int64", "int8", "uint16", "bool", "complex64"):
        np.save(folder / f"{dtype}.npy", counting_array.astype(dtype))
    np.save(folder / "bfloat16.npy", counting_array.astype(ml_dtypes.bfloat16))
    np.save(folder / "fortran.npy", np.asfortranarray(counting_array.astype("float32")))
    np.save(folder / "big_endian.npy", counting_array.astype(">i4"))
    np.save(folder / "scalar.npy", np.float32(7))
    np.save(folder / "no_elements.npy", np.zeros((0, 3), "float32"))
    np.save(folder / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(folder / "structured.npy", np.zeros(1, dtype=[("a", "<f4")]))
    for version in ((2, 0), (3, 0)):
        with open(folder / f"version{version[0]}.npy", "wb") as file:
            np.lib.format.write_array(file, counting_array.astype("float32"), version)
    np.savez(folder / "two.npz", inputs=counting_array.astype("float32"), outputs=np.int64(5))
    np.savez_compressed(folder / "compressed.npz", zeros=np.zeros(1000, "float32"))


def make_safetensors(folder: Path) -> None:
    tensors = {
        "a.weight": counting(2, 3),
        "b": counting(3, dtype=torch.bfloat16),
        "empty": torch.empty(0, 2),
        "scalar": torch.tensor(7, dtype=torch.int64),
        "f8": counting(3, dtype=torch.float8_e5m2),
        "flag": torch.tensor([True, False]),
    }
    safetensors.torch.save_file(tensors, folder / "mixed.safetensors", {"format": "pt", "note": 'quote " here'})


# ---- seeds of the fuzzers: golden files and hostile ones -------------------------------------------------------


def pickle_bomb() -> bytes:
    """A list that holds the list before it twice, forty times over."""
    stream = b"\x80\x02]q\x00Na"
    for index in range(40):
        stream += b"]q%c(h%ch%ce" % (index + 1, index, index)
    return stream + b"."


def zip_with_central_patch(offset: int, value: bytes) -> bytes:
    """A deflated archive whose first directory entry is overwritten at `offset`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("a/data.pkl", "../../escape"):
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), b"x" * 500, zipfile.ZIP_DEFLATED)
    content = bytearray(buffer.getvalue())
    at = content.index(b"PK\x01\x02") + offset
    content[at : at + len(value)] = value
    return bytes(content)


def safetensors_bytes(header: str, data: bytes = b"") -> bytes:
    return len(header).to_bytes(8, "little") + header.encode() + data


def npy_bytes(header: str, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data


def make_seeds() -> None:
    source = DATA.parent.parent / "src" / "formats"
    one = '{"dtype":"U8","shape":[%s],"data_offsets":[%d,%d]}'
    recent = (DATA / "pth" / "recent.pth").read_bytes()
    with zipfile.ZipFile(DATA / "pth" / "nested.pth") as archive:
        nested_pickle = archive.read("archive/data.pkl")
    golden = {
        "pth": ["pth/*.pth"],
        "zip": ["npy/*.npz", "pth/deflated.pth", "pth/input_0.pth"],
        "npy": ["npy/float32.npy", "npy/big_endian.npy", "npy/fortran.npy", "npy/version2.npy", "npy/scalar.npy"],
        "safetensors": ["safetensors/*.safetensors"],
        "csv": [],
    }
    hostile = {
        "pth": {
            "bomb": pickle_bomb(),
            "cycle": b"\x80\x02]q\x00h\x00a.",
            "deep": b"\x80\x02" + b"]" * 300 + b"a" * 299 + b".",
            "truncated": recent[:700],
            "nested_pickle": nested_pickle,
            "huge_text": b"\x80\x02X\xff\xff\xff\xff.",
            "huge_storage": nested_pickle.replace(b"K\x02tq\x07", b"J\xff\xff\xff\x7ftq\x07", 1),
            "huge_long": b"\x80\x02\x8b\xff\xff\xff\x7f.",
        },
        "zip": {
            "overlap": zip_with_central_patch(46 + 10 + 42, b"\0\0\0\0"),
            "bomb": zip_with_central_patch(24, b"\xff\xff\xff\x7f"),
            "far": zip_with_central_patch(42, b"\xff\xff\xff\x7f"),
            "zip64_without_extra": zip_with_central_patch(24, b"\xff\xff\xff\xff"),
            "truncated": recent[:1000],
            "entries_claimed": b"PK\5\6\0\0\0\0\xff\xff\xff\xff\0\0\0\0\0\0\0\0\0\0",
        },
        "npy": {
            "huge": npy_bytes("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }"),
            "short": npy_bytes("{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }", b"1234"),
            "object": npy_bytes("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", b"\x80\x04K\x01."),
            "header_beyond": b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
        },
        "safetensors": {
            "overlap": safetensors_bytes('{"a":' + one % ("2", 0, 2) + ',"b":' + one % ("2", 1, 3) + "}", b"123"),
            "hole": safetensors_bytes('{"a":' + one % ("2", 1, 3) + "}", b"123"),
            "twice": safetensors_bytes('{"a":' + one % ("1", 0, 1) + ',"a":' + one % ("1", 0, 1) + "}", b"1"),
            "overflow": safetensors_bytes('{"a":' + one % ("4294967296,4294967296,4", 0, 0) + "}"),
            "deep": safetensors_bytes('{"a":' + "[" * 200 + "]" * 200 + "}"),
            "huge_header": b"\xff" * 8 + b"{}",
            "unfinished": bytes(64),
            "dots": safetensors_bytes('{"../../x":' + one % ("0", 0, 0) + "}      "),
        },
        "csv": {
            "statistics": b'NodeName,Shape,Max\r\na,"(1, 5)",4.0\r\n',
            "quotes": b'\xef\xbb\xbf"a""b",c"d\n"x\ny",\r"open',
            "formula": b"=1+1,-2,@x\n",
        },
    }
    for name, patterns in golden.items():
        folder = source / f"{name}_fuzz_corpus"
        folder.mkdir(exist_ok=True)
        for path in [path for pattern in patterns for path in sorted(DATA.glob(pattern))]:
            (folder / path.name).write_bytes(path.read_bytes())
        for label, content in hostile[name].items():
            (folder / f"hostile_{label}").write_bytes(content)


MAKERS = {"pth": make_pth, "npy": make_npy, "safetensors": make_safetensors}


def main() -> None:
    torch.manual_seed(0)
    if sys.argv[1:] == ["seeds"]:
        make_seeds()
        return
    for name in sys.argv[1:] or MAKERS:
        folder = DATA / name
        folder.mkdir(parents=True, exist_ok=True)
        MAKERS[name](folder)
        (folder / "VERSIONS").write_text(
            f"made by tools/make_golden.py with Python {platform.python_version()}, torch {torch.__version__}, "
            f"NumPy {np.__version__}, ml_dtypes {ml_dtypes.__version__}, safetensors {safetensors.__version__}\n"
        )


if __name__ == "__main__":
    main()
