# SPDX-License-Identifier: Apache-2.0
"""`assay compare -w` of GGUF files against the Hugging Face models they were converted from.

The conversions are those of examples/ggml, with the gguf package's quantisers and the engine's own.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from assay_command import read_csv, run, the_report
from safetensors.numpy import load_file, save_file
from test_gguf import llama_library, whisper_library, write

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ggml"))
from tiny_llama import write_models

Q_WEIGHT = "model.layers.1.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"))


def compare(tmp_path, golden, mine, *more, status=0):
    out = tmp_path / "out"
    done = run("compare", "-w", "-gp", golden, "-mp", mine, "-o", out, *more)
    assert done.returncode == status, done.stderr
    rows = {row["weight_name"]: row for row in read_csv(the_report(out))}
    assert rows
    return rows


def rewrite(path, target, change):
    """A copy of a GGUF file; change(name, raw data) gives what is stored."""
    reader = gguf.GGUFReader(str(path))
    fields = {name: field.contents() for name, field in reader.fields.items()}

    def metadata(writer):
        writer.add_head_count(fields["llama.attention.head_count"])
        writer.add_head_count_kv(fields["llama.attention.head_count_kv"])

    tensors = {tensor.name: (change(tensor.name, tensor.data.copy()), tensor.tensor_type) for tensor in reader.tensors}
    return write(target, tensors, metadata)


@pytest.mark.parametrize("reverse", [False, True])
def test_float32_is_equal_bit_for_bit(tmp_path, models, reverse):
    sides = [models["hf"], models["f32"]]
    rows = compare(tmp_path, *(sides[::-1] if reverse else sides))

    # 9 weights a layer, embedding, last norm, head.
    assert len(rows) == 4 * 9 + 3
    for name, row in rows.items():
        assert float(row["max_absolute_error"]) == 0, name
        assert row["matched_by"] == "names of GGUF", name
        assert row["quantisation"] == ""
    side = "golden" if reverse else "my"
    assert rows[Q_WEIGHT]["note"].startswith(
        f"{side}: blk.1.attn_q.weight, rows brought back from rope's order (4 heads)"
    )
    assert "(2 heads)" in rows[Q_WEIGHT.replace("q_proj", "k_proj")]["note"]
    assert "rows" not in rows[Q_WEIGHT.replace("q_proj", "v_proj")]["note"]


@pytest.mark.parametrize(("kind", "within"), [("f16", "float16"), ("q8_0", "q8_0"), ("q4_0", "q4_0")])
def test_healthy_conversions_are_within_rounding(tmp_path, models, kind, within):
    rows = compare(tmp_path, models["hf"], models[kind])

    assert len(rows) == 39
    quantised = [row for row in rows.values() if row["quantisation"]]
    assert len(quantised) == 30  # all but the nine norms
    for row in quantised:
        assert row["quantisation"].startswith(within + ", within"), row
    if kind != "q4_0":  # q4_0 clips the number opposite to the largest
        assert all(row["quantisation"] == within + ", within half a step" for row in quantised)


@pytest.mark.parametrize(("kind", "block_bytes"), [("q8_0", 34), ("q4_0", 18)])
@pytest.mark.parametrize("reverse", [False, True])
def test_one_bad_block_is_named(tmp_path, models, kind, block_bytes, reverse):
    row, block_of_row = 77, 3  # of the file, whose rows have 8 blocks

    def damage(name, data):
        if name == "blk.1.attn_q.weight":
            at = block_of_row * block_bytes
            data[row, at : at + 2] = np.frombuffer(np.float16(3).tobytes(), dtype=np.uint8)  # its scale
        return data

    bad = rewrite(models[kind], tmp_path / "bad.gguf", damage)
    sides = [models["hf"], bad]
    rows = compare(tmp_path, *(sides[::-1] if reverse else sides))

    text = rows[Q_WEIGHT]["quantisation"]
    assert "unexplained in 1 block;" in text, text
    assert f"worst: block {row * 8 + block_of_row} (row {row})" in text, text
    others = [r["quantisation"] for name, r in rows.items() if name != Q_WEIGHT and r["quantisation"]]
    assert len(others) == 29 and not any("unexplained" in other for other in others)


def test_a_bad_block_fails_a_row_that_the_limits_let_pass(tmp_path, models):
    def damage(name, data):
        if name == "blk.0.ffn_up.weight":
            data[5, 2:34] = 0  # 32 codes of 131072
        return data

    bad = rewrite(models["q8_0"], tmp_path / "bad.gguf", damage)
    name = "model.layers.0.mlp.up_proj.weight"

    healthy = compare(tmp_path / "a", models["hf"], models["q8_0"], "--cos", "0.99", status=0)
    rows = compare(tmp_path / "b", models["hf"], bad, "--cos", "0.99", status=1)

    assert healthy[name]["result"] == "pass"
    assert float(rows[name]["cosine_similarity"]) > 0.99
    assert rows[name]["result"] == "fail"
    assert "values beyond rounding" in rows[name]["exceeded"]


def test_a_converter_that_forgot_the_order_of_heads_is_seen(tmp_path, models):
    def forget(name, data):
        if name.endswith("attn_q.weight"):  # 4 heads of 64 rows: [heads, 32, 2] back to [heads, 2, 32]
            return data.reshape(4, 32, 2, -1).swapaxes(1, 2).reshape(data.shape).copy()
        return data

    wrong = rewrite(models["f32"], tmp_path / "wrong.gguf", forget)
    rows = compare(tmp_path, models["hf"], wrong)

    assert float(rows[Q_WEIGHT]["cosine_similarity"]) < 0.5
    assert rows[Q_WEIGHT]["note"].endswith("the converter did not put them into rope's order")
    assert float(rows[Q_WEIGHT.replace("q_proj", "k_proj")]["max_absolute_error"]) == 0


def test_architectures_with_halves_keep_their_rows(tmp_path):
    models = write_models(tmp_path / "qwen2", family="qwen2", types=("f32",))
    rows = compare(tmp_path, models["hf"], models["f32"])

    assert all(float(row["max_absolute_error"]) == 0 for row in rows.values())
    assert "rows" not in rows[Q_WEIGHT]["note"]
    assert rows[Q_WEIGHT.replace("weight", "bias")]["matched_by"] == "names of GGUF"


def test_a_tied_head_is_the_embedding(tmp_path):
    models = write_models(tmp_path / "tied", types=("f32",), tie_word_embeddings=True)
    rows = compare(tmp_path, models["hf"], models["f32"])
    assert all(float(row["max_absolute_error"]) == 0 for row in rows.values())

    # A checkpoint that has both, equal.
    weights = load_file(models["hf"] / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].copy()
    both = tmp_path / "both"
    both.mkdir()
    save_file(weights, both / "model.safetensors")
    rows = compare(tmp_path / "again", both, models["f32"])
    assert rows["lm_head.weight"]["matched_by"] == "tied embedding"
    assert float(rows["lm_head.weight"]["max_absolute_error"]) == 0


def test_two_gguf_files_by_their_own_names(tmp_path, models):
    rows = compare(tmp_path, models["f32"], models["q8_0"])

    assert rows["blk.1.attn_q.weight"]["quantisation"] == "q8_0, within half a step"
    assert rows["blk.1.attn_q.weight"]["matched_by"] == "equal names"


def test_a_model_in_shards(tmp_path, models):
    reader = gguf.GGUFReader(str(models["q8_0"]))
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=-(-len(reader.tensors) // 3))
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data.copy(), raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    last = tmp_path / "m-00003-of-00003.gguf"

    rows = compare(tmp_path, models["hf"], last)

    assert len(rows) == 39  # with the order of heads from the first shard's metadata
    assert rows[Q_WEIGHT]["quantisation"] == "q8_0, within half a step"

    (tmp_path / "m-00002-of-00003.gguf").unlink()
    done = run("compare", "-w", "-gp", models["hf"], "-mp", last, "-o", tmp_path / "less")
    assert "shard 2 of 3 is not there" in done.stdout + done.stderr


def test_what_only_the_gguf_file_has_is_unmatched(tmp_path, models):
    path = rewrite(models["f32"], tmp_path / "more.gguf", lambda name, data: data)
    reader = gguf.GGUFReader(str(path))
    tensors = {tensor.name: (tensor.data.copy(), tensor.tensor_type) for tensor in reader.tensors}
    tensors["rope_freqs.weight"] = np.ones(32, dtype=np.float32)

    def metadata(writer):
        writer.add_head_count(4)
        writer.add_head_count_kv(2)

    more = write(tmp_path / "with_freqs.gguf", tensors, metadata)
    out = tmp_path / "out"
    done = run("compare", "-w", "-gp", models["hf"], "-mp", more, "-o", out, "--unmatched")
    assert done.returncode == 0, done.stderr
    unmatched = the_report(out, "msit_cmp_unmatched_*.csv").read_text()
    assert "rope_freqs.weight" in unmatched


def engine(name):
    """An engine with a quantiser of the type; the gguf package only decodes most of them."""
    library = llama_library() if name in NEW_TYPES else whisper_library()
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = (
        [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [ctypes.c_void_p]
    )
    return library


ENGINE_TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"]
ENGINE_TYPES += ["TQ1_0", "TQ2_0", "MXFP4"]
# These choose points of several values, so only whole blocks can be judged.
ENGINE_TYPES += ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"]
NEW_TYPES = ["NVFP4", "Q1_0"]  # newer than ggml 0.13.1


@pytest.mark.parametrize("distribution", ["normal", "outliers", "offset", "tiny"])
@pytest.mark.parametrize("name", ENGINE_TYPES + NEW_TYPES)
def test_what_the_engine_rounds_is_explained(tmp_path, name, distribution):
    generator = np.random.default_rng(11)
    numbers = generator.normal(size=(64, 512)).astype(np.float32)
    if distribution == "outliers":
        numbers[generator.random(numbers.shape) < 0.01] *= 50
    if distribution == "offset":
        numbers = numbers * 0.1 + 1
    if distribution == "tiny":
        numbers = numbers * 1e-6
    kind = gguf.GGMLQuantizationType[name]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.zeros((64, 512 // block * size), dtype=np.uint8)
    # How much each column matters: the smallest types insist on being told.
    columns = np.ones(512, dtype=np.float32)
    importance = columns.ctypes.data if name.startswith(("IQ1", "IQ2", "IQ3")) else None
    written = engine(name).ggml_quantize_chunk(
        int(kind), numbers.ctypes.data, blocks.ctypes.data, 0, 64, 512, importance
    )
    assert written == blocks.nbytes
    mine = write(tmp_path / "m.gguf", {"blk.0.ffn_up.weight": (blocks, kind)})
    golden = tmp_path / "golden"
    golden.mkdir()
    save_file({"model.layers.0.mlp.up_proj.weight": numbers}, golden / "model.safetensors")

    (row,) = compare(tmp_path, golden, mine).values()
    assert row["quantisation"].startswith(gguf_name(name) + ", within"), row["quantisation"]

    if distribution in ("offset", "tiny"):  # blocks of some types are all alike there
        return
    if importance and distribution == "outliers":  # a few large numbers of one block hide the rest of another
        return
    # And a block of another place is not.
    blocks[9, size : 2 * size] = blocks[20, :size]
    (row,) = compare(
        tmp_path / "bad", golden, write(tmp_path / "bad.gguf", {"blk.0.ffn_up.weight": (blocks, kind)})
    ).values()
    assert f"unexplained in 1 block; worst: block {9 * (512 // block) + 1} (row 9)" in row["quantisation"]


def gguf_name(name):
    return name.lower().replace("_k", "_K")
