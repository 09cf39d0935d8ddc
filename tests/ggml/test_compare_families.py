# SPDX-License-Identifier: Apache-2.0
"""Families whose graphs are no plain Llama's, Hugging Face against ggml: norms of each head, fused projections."""

from __future__ import annotations

import json

import pytest
from hugging_face import load
from planted_faults import Fault, Weights
from test_compare_engines import FLASH, PROMPT, capture_engine, capture_model, largest_difference, pairs_of
from tiny_llama import write_models

import assay
from assay.twin.gguf_file import convert


@pytest.mark.parametrize("family", ["qwen3", "qwen3moe"])
@pytest.mark.parametrize("types", ["f32", "q8_0"])
def test_queries_and_keys_with_norms_of_their_own(family, types, llama_engine, tmp_path):
    models = write_models(tmp_path / "models", family, types=(types,))
    golden = capture_model(load(models["hf"]), tmp_path / "golden")
    mine = capture_engine(models[types], tmp_path / "mine")

    comparison = assay.compare(golden, mine)

    rows = pairs_of(comparison)
    assert json.loads(rows[0, "Qcur_normed-1", "MUL"]["my_shape"]) == [1, len(PROMPT), 4, 64]
    assert json.loads(rows[0, "Kcur_normed-1", "MUL"]["my_shape"]) == [1, len(PROMPT), 2, 64]
    if family == "qwen3moe":
        assert json.loads(rows[0, "ffn_moe_down-1", "MUL_MAT_ID"]["my_shape"]) == [len(PROMPT) * 3, 256]
    assert types != "f32" or largest_difference(comparison) < 1e-5
    verdict = assay.locate(golden, mine)
    assert verdict.outcome == "clean", verdict
    assert ("quantisation, as expected" in verdict.sentence) == (types != "f32")


def drop_key_norm(config: dict, weights: Weights) -> None:
    weights["model.layers.2.self_attn.k_norm.weight"][:] = 1


def swap_keys_and_values(config: dict, weights: Weights) -> None:
    fused = weights["model.layers.1.self_attn.qkv_proj.weight"]
    fused[256:] = fused[256:].roll(128, 0)


def test_a_dropped_norm_of_the_keys_is_named(llama_engine, tmp_path):
    models = write_models(tmp_path / "models", "qwen3", types=())
    fault = Fault("", drop_key_norm, "model.layers.2.self_attn.k_norm", ("Kcur_normed-2", "MUL"))
    convert(fault.plant(models["hf"], tmp_path / "hf"), tmp_path / "faulty.gguf", "q8_0")

    verdict = assay.locate(
        capture_model(load(models["hf"]), tmp_path / "golden"),
        capture_engine(tmp_path / "faulty.gguf", tmp_path / "mine"),
    )

    assert verdict.outcome == "first_wrong", verdict
    assert verdict.first_bad.module == fault.module, verdict


@pytest.fixture(scope="module")
def phi3_models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("phi3"), "phi3", types=("f32", "q8_0"))


@pytest.fixture(scope="module")
def phi3_golden(phi3_models, llama_engine, tmp_path_factory):
    return capture_model(load(phi3_models["hf"]), tmp_path_factory.mktemp("phi3_golden") / "run")


@pytest.mark.parametrize("options", [(), (*FLASH, "f16"), (*FLASH, "q4_0")], ids=["chain", "flash", "blocks"])
@pytest.mark.parametrize("types", ["f32", "q8_0"])
def test_values_beside_queries_and_keys(types, options, phi3_models, phi3_golden, tmp_path):
    """Where attention errs in values, the rest of the fused projection is held as strictly as ever."""
    mine = capture_engine(phi3_models[types], tmp_path / "mine", *options)

    comparison = assay.compare(phi3_golden, mine)

    assert json.loads(pairs_of(comparison)[0, "wqkv-1", "MUL_MAT"]["my_shape"]) == [1, len(PROMPT), 512]
    assert types != "f32" or options or largest_difference(comparison) < 1e-5
    verdict = assay.locate(phi3_golden, mine)
    assert verdict.outcome == "clean", verdict
    assert "(all " in verdict.sentence  # operators replayed


@pytest.mark.parametrize("options", [(), (*FLASH, "f16")], ids=["chain", "flash"])
def test_swapped_keys_and_values_are_named(options, phi3_models, phi3_golden, tmp_path):
    fault = Fault("", swap_keys_and_values, "model.layers.1.self_attn.qkv_proj", ("wqkv-1", "MUL_MAT"))
    convert(fault.plant(phi3_models["hf"], tmp_path / "hf"), tmp_path / "faulty.gguf", "q8_0")

    verdict = assay.locate(phi3_golden, capture_engine(tmp_path / "faulty.gguf", tmp_path / "mine", *options))

    assert verdict.outcome == "first_wrong", verdict
    assert verdict.first_bad.module == fault.module, verdict
