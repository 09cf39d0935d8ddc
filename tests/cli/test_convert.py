# SPDX-License-Identifier: Apache-2.0
"""`assay convert`: what it writes is read back by the programs it is written for."""

from __future__ import annotations

import resource
import signal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

TORCH_TYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.int64,
    torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip


def sample(dtype: torch.dtype, shape: tuple[int, ...] = (2, 3)) -> torch.Tensor:
    count = int(np.prod(shape))
    values = torch.arange(count, dtype=torch.float32) - 1.5
    return (values > 0 if dtype == torch.bool else values.to(dtype)).reshape(shape)


def as_bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


@pytest.mark.parametrize("dtype", TORCH_TYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4), (5,)], ids=str)
def test_pth_to_pth_and_safetensors_keep_every_bit(assay, tmp_path, dtype, shape):
    tensor = sample(dtype, shape)
    torch.save(tensor, tmp_path / "in.pth")
    result = assay("convert", tmp_path / "in.pth", tmp_path / "out.pth")
    assert result.returncode == 0, result.stderr
    loaded = torch.load(tmp_path / "out.pth", weights_only=True)
    assert (loaded.dtype, loaded.shape, as_bits(loaded)) == (dtype, tensor.shape, as_bits(tensor))
    if dtype == torch.complex128:
        return  # safetensors has no such type
    result = assay("convert", tmp_path / "in.pth", tmp_path / "out.safetensors")
    assert result.returncode == 0, result.stderr
    loaded = load_file(tmp_path / "out.safetensors")["in"]
    assert (loaded.dtype, loaded.shape, as_bits(loaded)) == (dtype, tensor.shape, as_bits(tensor))


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.t(),
        lambda t: t[:, 1:],
        lambda t: t[0].expand(4, 3),
        lambda t: torch.complex(t, -t).conj(),
        lambda t: torch.complex(t, -t).conj().imag,  # lazy negative bit
    ],
    ids=["transposed", "slice", "expanded", "conj", "neg"],
)
def test_views_are_written_as_what_they_show(assay, tmp_path, view):
    tensor = view(torch.arange(6.0).reshape(2, 3))
    torch.save(tensor, tmp_path / "in.pth")
    for name in ("out.npy", "out.pth"):
        assert assay("convert", tmp_path / "in.pth", tmp_path / name).returncode == 0
    expected = tensor.resolve_conj().resolve_neg().numpy()
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)
    np.testing.assert_array_equal(torch.load(tmp_path / "out.pth", weights_only=True).numpy(), expected)


@pytest.mark.parametrize("name", ["out.txt", "out.csv"])
def test_text_reads_back_to_the_same_values(assay, tmp_path, name):
    values = np.random.default_rng(1).normal(size=(7, 5)).astype(np.float32)
    values[0, 0], values[0, 1] = np.nan, np.inf
    np.save(tmp_path / "in.npy", values)
    assert assay("convert", tmp_path / "in.npy", tmp_path / name).returncode == 0
    loaded = np.loadtxt(tmp_path / name, delimiter="," if name.endswith("csv") else None, dtype=np.float64)
    np.testing.assert_array_equal(loaded.astype(np.float32), values)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2, torch.bool], ids=str
)
def test_dtype_rounds_as_torch_does(assay, tmp_path, dtype):
    generator = torch.Generator().manual_seed(2)
    scales = torch.tensor([1.0, 1e-3, 1e-7, 1e-40, 6e4, 1e38, 1e300], dtype=torch.float64)
    values = (torch.randn(1000, 7, dtype=torch.float64, generator=generator) * scales).reshape(-1)
    special = [0.0, -0.0, np.inf, -np.inf, 65504.0, 65519.0, 65520.0, 2.0**-24, 2.0**-25, 1 + 2.0**-11, 1 + 2.0**-8]
    values = torch.cat([values, torch.tensor(special, dtype=torch.float64)])
    torch.save(values, tmp_path / "in.pth")
    name = str(dtype).removeprefix("torch.")
    result = assay("convert", tmp_path / "in.pth", tmp_path / "out.pth", "--dtype", name)
    assert result.returncode == 0, result.stderr
    loaded = torch.load(tmp_path / "out.pth", weights_only=True)
    # torch goes to the half types through float32 and rounds twice; a correct single rounding differs from that
    # only where the first rounding made a tie, which these values do not hit except by construction.
    expected = values.to(dtype)
    assert loaded.dtype == dtype
    different = (loaded.double() != expected.double()).nonzero()
    assert len(different) == 0, (values[different[:5]], loaded[different[:5]], expected[different[:5]])


def test_one_member_and_all_members(assay, tmp_path):
    torch.save({"k": (torch.ones(2), 3), "l": [torch.zeros(1)]}, tmp_path / "n.pth")
    result = assay("convert", tmp_path / "n.pth", tmp_path / "one.npy", "--member", "k.0")
    assert result.returncode == 0, result.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "one.npy"), np.ones(2))
    assert assay("convert", tmp_path / "n.pth", tmp_path / "all.safetensors").returncode == 0
    assert set(load_file(tmp_path / "all.safetensors")) == {"k.0", "l.0"}
    assert assay("convert", tmp_path / "n.pth", tmp_path / "folder", "--format", "npy").returncode == 0
    assert sorted(p.name for p in (tmp_path / "folder").iterdir()) == ["k.0.npy", "l.0.npy"]
    result = assay("convert", tmp_path / "n.pth", tmp_path / "two.npy")
    assert result.returncode == 2
    assert "holds 2 tensors, one file takes one" in result.stderr


def test_a_record_of_a_run_and_a_whole_run(assay, tmp_path):
    folder = tmp_path / "dump" / "cpu_1"
    for step in (0, 1):
        (folder / str(step) / "root.norm").mkdir(parents=True)
        torch.save(torch.full((2,), float(step)), folder / str(step) / "root.norm" / "output.pth")
    result = assay("convert", folder, tmp_path / "x.npy", "--name", "norm.output", "--step", "1")
    assert result.returncode == 0, result.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), [1, 1])
    assert assay("convert", folder, f"{tmp_path}/all/", "--format", "npy").returncode == 0
    files = sorted(str(p.relative_to(tmp_path / "all")) for p in (tmp_path / "all").rglob("*.npy"))
    assert files == ["rank0/0/root.norm/output.npy", "rank0/1/root.norm/output.npy"]


def test_nothing_is_overwritten_without_force(assay, tmp_path):
    np.save(tmp_path / "in.npy", np.zeros(2))
    (tmp_path / "out.npy").write_text("precious")
    result = assay("convert", tmp_path / "in.npy", tmp_path / "out.npy")
    assert result.returncode == 2
    assert "exists already" in result.stderr and "; --force" in result.stderr
    assert (tmp_path / "out.npy").read_text() == "precious"
    assert assay("convert", tmp_path / "in.npy", tmp_path / "out.npy", "--force").returncode == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), np.zeros(2))


def test_names_from_files_stay_inside_the_folder(assay, tmp_path):
    save_file({"../../evil": torch.ones(1), "/abs": torch.ones(1), "..": torch.ones(1)}, tmp_path / "w.safetensors")
    result = assay("convert", tmp_path / "w.safetensors", tmp_path / "a" / "b", "--format", "npy")
    assert result.returncode == 0, result.stderr
    written = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.npy"))
    assert written == ["a/b/.._.._evil.npy", "a/b/_.npy", "a/b/_abs.npy"]


def test_a_failed_write_leaves_nothing_behind(assay, tmp_path):
    np.save(tmp_path / "in.npy", np.zeros(1_000_000))

    def prepare() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    result = assay("convert", tmp_path / "in.npy", tmp_path / "out.npy", preexec_fn=prepare)
    assert result.returncode == 2
    assert "File too large" in result.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.npy"]


def test_one_unreadable_file_of_a_folder_is_named(assay, tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    np.save(source / "good.npy", np.ones(2))
    (source / "bad.npy").write_bytes(b"\x93NUMPY\x01\x00")
    result = assay("convert", source, tmp_path / "out", "--format", "pth")
    assert result.returncode == 2
    assert "bad.npy" in result.stderr and "1 of 2 tensors could not be converted" in result.stderr
    assert torch.equal(torch.load(tmp_path / "out" / "good.pth"), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["in.npy", "out.xyz"], "does not say which format"),
        (["in.npy", "out.npy", "--format", "xls"], "is none of"),
        (["in.npy", "out.npy", "--dtype", "float33"], "unknown type"),
        (["missing.npy", "out.npy"], "No such file"),
        (["in.npy", "out.npy", "--name", "nothing"], "no tensor fits"),
        (["in.npy", "no/such/folder/out.npy"], "No such file or directory"),
    ],
)
def test_wrong_requests_are_one_sentence(assay, tmp_path, arguments, sentence):
    np.save(tmp_path / "in.npy", np.zeros(2))
    result = assay("convert", *arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert sentence in result.stderr.splitlines()[0]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.npy"]


def test_an_npz_file_is_read_as_a_tensor_a_key(assay, tmp_path):
    one = {"hidden": np.arange(6, dtype=np.float32).reshape(2, 3), "logits": np.zeros(4, np.float16)}
    np.savez(tmp_path / "a.npz", **one)
    np.savez_compressed(tmp_path / "b.npz", **{**one, "logits": one["logits"] + np.float16(1)})
    shown = assay("show", tmp_path / "a.npz", "--list").stdout
    assert "\nhidden  float32 [2, 3]" in shown and "\nlogits  float16 [4]" in shown
    done = assay("compare", tmp_path / "a.npz", tmp_path / "b.npz", "--atol", "0.5")
    assert done.returncode == 1
    assert "1 of 2 pairs beyond the limits" in done.stdout
    assert assay("convert", tmp_path / "b.npz", tmp_path / "h.npy", "--member", "hidden").returncode == 0
    np.testing.assert_array_equal(np.load(tmp_path / "h.npy"), one["hidden"])
