# SPDX-License-Identifier: Apache-2.0
"""`assay show` and `assay convert` of .gguf files that the gguf package wrote; its decoders are the oracle."""

from __future__ import annotations

import ctypes
import importlib.util
import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from assay_command import run
from safetensors.numpy import load_file

TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
TYPES += ["IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4", "NVFP4"]
TYPES += ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"]
ROWS = 7


def write(path, tensors, metadata=lambda writer: None, architecture="llama", **kwargs):
    """tensors: {name: array, or (raw blocks, type)}"""
    writer = gguf.GGUFWriter(str(path), architecture, **kwargs)
    metadata(writer)
    for name, tensor in tensors.items():
        if isinstance(tensor, tuple):
            writer.add_tensor(name, tensor[0], raw_dtype=tensor[1])
        else:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def values(path, tmp_path):
    out = tmp_path / "values.safetensors"
    done = run("convert", path, out, "--force")
    assert done.returncode == 0, done.stderr
    return load_file(out)


def random_blocks(name, seed=5):
    """Any bits at all, also scales that are not finite."""
    kind = gguf.GGMLQuantizationType[name]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    row_bytes = 1024 // block * size
    return np.random.default_rng(seed).integers(0, 256, (ROWS, row_bytes), dtype=np.uint8), kind


@pytest.mark.parametrize("name", TYPES)
def test_blocks_have_the_bits_of_the_gguf_package(tmp_path, name):
    blocks, kind = random_blocks(name)
    path = write(tmp_path / "m.gguf", {"w": (blocks, kind)})
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(blocks, kind).astype(np.float32)

    found = values(path, tmp_path)["w"]

    assert found.shape == expected.shape == (ROWS, 1024)
    is_nan = np.isnan(expected)
    assert (np.isnan(found) == is_nan).all() and is_nan.mean() < 0.5
    # The bits, so that -0 is not 0.
    assert (found.view(np.uint32)[~is_nan] == expected.view(np.uint32)[~is_nan]).all()


class TypeTraits(ctypes.Structure):
    """struct ggml_type_traits, the same in every version since 2024."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("block", ctypes.c_int64),
        ("interleave", ctypes.c_int64),
        ("size", ctypes.c_size_t),
        ("quantised", ctypes.c_bool),
        ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)),
    ]


def converter(engine, name):
    """An engine's function from blocks to float32, or a skip where it does not know the type."""
    kind = gguf.GGMLQuantizationType[name]
    if engine == "pywhispercpp" and kind > gguf.GGMLQuantizationType.MXFP4:
        pytest.skip("ggml 0.13.1 ends with mxfp4, and stops the process when it is asked for more")
    library = {"pywhispercpp": whisper_library, "xllamacpp": llama_library}[engine]()
    library.ggml_get_type_traits.restype = ctypes.POINTER(TypeTraits)
    found = library.ggml_get_type_traits(int(kind)).contents
    assert found.name.decode().lower() == name.lower()
    assert (found.block, found.size) == gguf.GGML_QUANT_SIZES[kind]
    if found.to_float:
        return found.to_float
    exported = library[f"dequantize_row_{found.name.decode()}"]  # of q8_K
    exported.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    return exported


def whisper_library():
    found = importlib.util.find_spec("_pywhispercpp")
    if found is None:
        pytest.skip("pywhispercpp is not installed")
    (path,) = (Path(found.origin).parent / "pywhispercpp.libs").glob("libggml-base-*.so*")
    return ctypes.CDLL(str(path))


def llama_library():
    xllamacpp = pytest.importorskip("xllamacpp")  # built for AVX2: only where it is needed
    return ctypes.CDLL(xllamacpp.xllamacpp.__file__)


@pytest.mark.parametrize("engine", ["pywhispercpp", "xllamacpp"])
@pytest.mark.parametrize("name", [*TYPES, "Q1_0", "Q8_K"])
def test_blocks_have_the_bits_of_the_engine(tmp_path, name, engine):
    blocks, kind = random_blocks(name, seed=6)
    if name == "Q8_K":
        blocks.reshape(-1, 292)[:, 3] &= 0x3F  # finite scales
    path = write(tmp_path / "m.gguf", {"w": (blocks, kind)})
    expected = np.zeros((ROWS, 1024), dtype=np.float32)
    converter(engine, name)(blocks.ctypes.data, expected.ctypes.data, expected.size)

    found = values(path, tmp_path)["w"]

    is_nan = np.isnan(expected)
    assert (np.isnan(found) == is_nan).all() and is_nan.mean() < 0.5
    assert (found.view(np.uint32)[~is_nan] == expected.view(np.uint32)[~is_nan]).all()


@pytest.mark.parametrize("order", [gguf.GGUFEndian.LITTLE, gguf.GGUFEndian.BIG])
def test_plain_types_in_both_byte_orders(tmp_path, order):
    expected = {
        "f32": np.arange(12, dtype=np.float32).reshape(3, 4) / 7,
        "f16": np.arange(6, dtype=np.float16).reshape(2, 3),
        "f64": np.array([1e300, -0.1]),
        "i8": np.array([-128, 127], dtype=np.int8),
        "i16": np.array([-300, 300], dtype=np.int16),
        "i32": np.array([1 << 30], dtype=np.int32),
        "i64": np.array([-1 << 62], dtype=np.int64),
    }
    path = write(tmp_path / "m.gguf", expected, endianess=order)

    found = values(path, tmp_path)

    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        np.testing.assert_array_equal(found[name], tensor)


def test_show_lists_metadata_and_tensors(tmp_path):
    def metadata(writer):
        writer.add_block_count(3)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_token_list([f"t{i}" for i in range(500)])
        writer.add_chat_template("x" * 5000)

    blocks, kind = random_blocks("Q4_K")
    tensors = {"blk.0.attn_q.weight": (blocks, kind), "output_norm.weight": np.ones(8, dtype=np.float32)}
    path = write(tmp_path / "m.gguf", tensors, metadata)

    shown = run("show", path)

    assert shown.returncode == 0, shown.stderr
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert "general.architecture llama" in lines
    assert "llama.block_count 3" in lines
    assert "llama.attention.layer_norm_rms_epsilon 1e-05" in lines
    (tokens,) = [line for line in lines if line.startswith("tokenizer.ggml.tokens")]
    assert tokens.startswith('tokenizer.ggml.tokens ["t0", "t1",') and tokens.endswith(", ...] (500)")
    assert any(line.endswith("(5000 bytes)") for line in lines)
    assert any("blk.0.attn_q.weight q4_K [7, 1024] 4.0 kB" in line for line in lines)
    assert any("output_norm.weight float32 [8] 32 B" in line for line in lines)
    assert "min" not in shown.stdout


def test_show_as_json(tmp_path):
    blocks, kind = random_blocks("Q8_0")
    path = write(tmp_path / "m.gguf", {"w": (blocks, kind)}, lambda writer: writer.add_block_count(3))

    done = run("show", path, "--json", "--stats")

    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["properties"]["gguf:llama.block_count"] == "3"
    (record,) = shown["records"]
    assert (record["block_type"], record["block"], record["block_bytes"]) == ("q8_0", 32, 34)
    assert (record["dtype"], record["shape"], record["bytes"]) == ("float32", [7, 1024], ROWS * 32 * 34)
    with np.errstate(all="ignore"):
        decoded = gguf.quants.dequantize(blocks, kind)
    finite = np.isfinite(decoded)
    assert record["stats"]["nan"] == np.isnan(decoded).sum()
    assert record["stats"]["count"] == decoded.size
    if finite.all():
        assert record["stats"]["max"] == decoded.max()


def test_one_digest_of_all_weights(tmp_path):
    def digest_of(path):
        (line,) = [line for line in run("show", path, "--stats").stdout.splitlines() if "digest of all" in line]
        return line.split()[-1]

    weights = {"a": np.ones((2, 3), dtype=np.float32), "b": np.zeros(4, dtype=np.float16)}
    first = digest_of(write(tmp_path / "a.gguf", weights))
    # Neither metadata nor the order of tensors take part; names, types, shapes and bytes do.
    same = write(tmp_path / "b.gguf", dict(reversed(weights.items())), lambda writer: writer.add_block_count(9))
    assert digest_of(same) == first
    assert digest_of(write(tmp_path / "c.gguf", {**weights, "a": np.ones((3, 2), dtype=np.float32)})) != first
    assert digest_of(write(tmp_path / "d.gguf", {**weights, "b": np.ones(4, dtype=np.float16)})) != first


def test_a_file_that_was_cut_off_is_an_error_with_its_offset(tmp_path):
    path = write(tmp_path / "m.gguf", {"w": np.ones((64, 64), dtype=np.float32)})
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - 1000])

    done = run("show", path)

    assert done.returncode == 2
    assert f"at byte {len(whole) - 1000}" in done.stderr or str(len(whole) - 1000) in done.stderr
    assert "tensor 'w' has 16384 bytes" in done.stderr


def write_shards(folder, tensors, count=3):
    """A model in shards as gguf writes them: all metadata in the first."""
    writer = gguf.GGUFWriter(folder / "m.gguf", "llama", split_max_tensors=-(-len(tensors) // count))
    writer.add_block_count(9)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    paths = sorted(folder.glob("*.gguf"))
    assert [path.name for path in paths] == [f"m-{i + 1:05}-of-{count:05}.gguf" for i in range(count)]
    return paths


@pytest.mark.parametrize("named", [0, 1])
def test_shards_are_shown_as_one_model(tmp_path, named):
    tensors = {f"t{i}": np.full((2, 4), i, dtype=np.float32) for i in range(6)}
    paths = write_shards(tmp_path, tensors)

    done = run("show", paths[named], "--json", "--stats")

    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["properties"]["gguf:llama.block_count"] == "9"
    assert [record["stats"]["max"] for record in shown["records"]] == [0, 1, 2, 3, 4, 5]
    found = values(paths[named], tmp_path)
    assert found.keys() == tensors.keys() and all((found[name] == tensors[name]).all() for name in tensors)


def test_a_missing_shard_is_named(tmp_path):
    paths = write_shards(tmp_path, {f"t{i}": np.zeros(4, dtype=np.float32) for i in range(6)})
    paths[1].unlink()

    done = run("show", paths[2])

    assert done.returncode == 0
    assert "shard 2 of 3 is not there" in done.stdout + done.stderr
    # And one whose name no longer says so.
    alone = paths[2].rename(tmp_path / "alone.gguf")
    assert "is one of 3 shards" in (lambda d: d.stdout + d.stderr)(run("show", alone))
