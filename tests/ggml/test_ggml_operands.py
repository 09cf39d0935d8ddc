# SPDX-License-Identifier: Apache-2.0
"""Weights and caches on request: the records have what the GGUF file holds and what was written into the cache."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from test_ggml_capture import CHAT, capture, ggml_probe, plain_run  # noqa: F401 - a fixture

gguf = pytest.importorskip("gguf")
DTYPES = {"float32": np.float32, "float16": np.float16, "int32": np.int32, "int64": np.int64}
BLOCKED = {"q8_0": gguf.GGMLQuantizationType.Q8_0, "q4_0": gguf.GGMLQuantizationType.Q4_0}


def payload(run, line) -> bytes:
    with (run.folder / line["file"]).open("rb") as file:
        file.seek(line["offset"])
        return file.read(line["bytes"])


def values(run, line) -> np.ndarray:
    """Float32 of the record's shape."""
    raw = payload(run, line)
    if line["dtype"] in DTYPES:
        return np.frombuffer(raw, DTYPES[line["dtype"]]).reshape(line["shape"])
    kind = BLOCKED[line["dtype"]]
    *rows, width = line["shape"]
    stored = np.frombuffer(raw, np.uint8).reshape(*rows, width // line["block"] * line["block_bytes"])
    return gguf.dequantize(stored, kind)


def manifest(run) -> dict:
    return json.loads((run.folder / "manifest.json").read_text())


@pytest.mark.parametrize("kind", ["f32", "q8_0"])
def test_weights_are_those_of_the_file(kind, models, llama_engine, ggml_probe, tmp_path):  # noqa: F811
    command = [sys.executable, CHAT, models[kind], "--tokens", 2]

    mine = capture(ggml_probe, tmp_path / "out", command, weights=True)

    assert mine.stdout == plain_run(command)
    golden = {tensor.name: tensor for tensor in gguf.GGUFReader(models[kind]).tensors}
    weights = {line["leaf"]: line for line in mine.lines if line.get("role") == "weight"}
    assert set(weights) == set(golden)
    for name, line in weights.items():
        assert (line["step"], f"{line['node']}.{line['slot']}") == (-1, name)
        assert payload(mine, line) == golden[name].data.tobytes(), name
    # Each is stored once, and its consumers point there.
    uses = [line for line in mine.lines if line.get("leaf") in weights and line.get("role") == "input"]
    assert uses and all(line["same_as"] == weights[line["leaf"]]["n"] for line in uses)
    assert all(line["vid"] == weights[line["leaf"]]["vid"] for line in uses)


def test_repacked_weights_are_refused_by_name(models, llama_engine, ggml_probe, tmp_path):  # noqa: F811
    command = [sys.executable, CHAT, models["q4_0"], "--tokens", 2]

    mine = capture(ggml_probe, tmp_path / "out", command, weights=True)

    assert mine.stdout == plain_run(command)
    missed = {entry["node"]: entry["reason"] for entry in manifest(mine)["coverage"]["missed"]}
    read = {line["leaf"] for line in mine.lines if line.get("role") == "weight"}
    assert "CPU_REPACK" in missed["blk.0.attn_q.weight"]
    assert "blk.0.attn_norm.weight" in read
    names = {tensor.name for tensor in gguf.GGUFReader(models["q4_0"]).tensors}
    assert read | {name for name in missed if name} == names and not read & set(missed)


def test_statistics_of_weights_need_no_bytes(models, llama_engine, ggml_probe, tmp_path):  # noqa: F811
    command = [sys.executable, CHAT, models["f32"], "--tokens", 1]

    mine = capture(ggml_probe, tmp_path / "out", command, weights=True, full=False, statistics=True)

    golden = {tensor.name: tensor.data for tensor in gguf.GGUFReader(models["f32"]).tensors}
    weights = [line for line in mine.lines if line.get("role") == "weight"]
    assert len(weights) == len(golden)
    for line in weights:
        assert line["stats"]["max"] == golden[line["leaf"]].max()
    assert not list(mine.folder.glob("*.safetensors"))


CACHES = [
    "--cache-type f32",
    "--cache-type f16",
    "--cache-type f16 --flash-attention",
    "--cache-type q8_0 --flash-attention",
    "--cache-type q4_0 --flash-attention",
]


@pytest.mark.parametrize("arguments", CACHES)
def test_attention_reads_what_was_written_into_the_cache(arguments, models, llama_engine, ggml_probe, tmp_path):  # noqa: F811
    # 512 cells, of which the graphs use 256.
    command = [sys.executable, CHAT, models["f32"], "--tokens", 3, "--context", 512, *arguments.split()]

    mine = capture(ggml_probe, tmp_path / "out", command, caches=True)

    assert mine.stdout == plain_run(command)
    kind = arguments.split()[1]
    limit = {"f32": 0, "f16": 2**-11, "q8_0": 1 / 127, "q4_0": 1 / 7}[kind]
    rows = {}  # of cache_k_l1, by cell
    checked = 0
    for line in mine.lines:
        slot = (line.get("role"), line.get("slot"))
        name = line["node"]
        of_layer = "cache_k_l1" in name or name.startswith(("kq-1:", "(Qcur-1"))
        if line["step"] < 0 or not of_layer:
            continue
        if name.startswith("cache_k_l1 (view)::ggml.set_rows"):
            if slot == ("input", "src0"):
                new = values(mine, line).reshape(-1, 128)
            elif slot == ("input", "src1"):
                cells = values(mine, line).reshape(-1)
            elif slot == ("input", "src2"):
                before = values(mine, line)
            elif slot == ("output", ""):
                after = values(mine, line)
                assert after.shape == before.shape == (256, 128)
                rows.update(zip(cells.tolist(), new))
                kept = [cell for cell in range(256) if cell not in cells]
                assert np.array_equal(after[kept], before[kept])
                assert np.abs(after[cells] - new).max() <= limit * np.abs(new).max()
        elif slot[0] == "input" and line["shape"] == [2, 256, 64] and "file" in line and "soft_max" not in name:
            # (head, cell, channel): K as the product takes it. V of a transposed cache has channels before cells.
            keys = values(mine, line)
            if slot[1] != ("src1" if "flash_attn_ext" in name else "src0"):
                continue
            for cell, row in rows.items():
                assert np.abs(keys[:, cell].reshape(-1) - row).max() <= limit * np.abs(row).max()
            checked += 1
    # The warm-up, the prompt and one or more tokens, each with its product or its flash attention.
    assert checked >= 4
    assert len(rows) >= 7


def test_nothing_of_a_cache_is_read_unasked(models, llama_engine, ggml_probe, tmp_path):  # noqa: F811
    mine = capture(ggml_probe, tmp_path / "out", [sys.executable, CHAT, models["f32"], "--tokens", 1])

    caches = [line for line in mine.lines if "cache_" in line.get("leaf", "") or "::ggml.set_rows" in line["node"]]
    assert caches
    assert not any("file" in line for line in caches if line.get("slot") in ("src2", ""))


def test_a_new_text_does_not_inherit_the_cache_of_the_one_before(models, llama_engine, ggml_probe, tmp_path):  # noqa: F811
    # Graph 0 is the warm-up, behind which the host clears the cache; graph 1 the prompt, graph 2 its first token.
    mine = capture(ggml_probe, tmp_path / "out", [sys.executable, CHAT, models["f32"], "--tokens", 3], caches=True)

    before = {
        line["step"]: line
        for line in mine.lines
        if line["node"] == "cache_k_l0 (view)::ggml.set_rows.0" and line.get("slot") == "src2"
    }
    assert not np.frombuffer(payload(mine, before[1]), np.float32).any()
    assert "from" not in before[1]
    maker = next(line for line in mine.lines if line["n"] == before[2]["from"])
    assert (maker["step"], maker["node"]) == (1, "cache_k_l0 (view)::ggml.set_rows.0")
    assert payload(mine, maker) == payload(mine, before[2])
