# SPDX-License-Identifier: Apache-2.0
"""A mixture of experts of Hugging Face against a ggml run of it: what the router chose, what each expert made of its
tokens, and the first wrong operator."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hugging_face import LAYERS, load
from planted_faults import EXPERT_FAULTS, Fault
from test_compare_engines import PROMPT, STEPS, capture_engine, capture_model, largest_difference, pairs_of
from tiny_llama import write_models

import assay
from assay.twin.gguf_file import convert

USED = 2  # experts of a token
OF_EXPERTS = {
    ("ffn_moe_logits", "MUL_MAT"): 4,  # channels
    ("ffn_moe_argsort", "ARGSORT"): USED,
    ("ffn_moe_weights_norm", "DIV"): USED,
    ("ffn_moe_gate", "MUL_MAT_ID"): 512,
    ("ffn_moe_up", "MUL_MAT_ID"): 512,
    ("ffn_moe_swiglu", "GLU"): 512,
    ("ffn_moe_down", "MUL_MAT_ID"): 256,
    ("ffn_moe_out", "ADD"): 256,
}


@pytest.fixture(scope="session")
def golden(mixtral_models, llama_engine, tmp_path_factory) -> Path:
    return capture_model(load(mixtral_models["hf"]), tmp_path_factory.mktemp("golden") / "run")


@pytest.fixture(scope="session")
def engine_run(mixtral_models, llama_engine, tmp_path_factory) -> Path:
    return capture_engine(mixtral_models["f32"], tmp_path_factory.mktemp("engine") / "run")


def row_count(token: int, layer: int, name: str) -> int:
    """Behind the attention of the last layer llama.cpp computes the last token alone."""
    tokens = len(PROMPT) if token == 0 and layer < LAYERS - 1 else 1
    return tokens * USED if name in ("ffn_moe_gate", "ffn_moe_up", "ffn_moe_swiglu", "ffn_moe_down") else tokens


def test_every_tensor_of_the_experts_is_paired_and_equal(golden, engine_run):
    comparison = assay.compare(golden, engine_run)

    rows = pairs_of(comparison)
    for token in range(STEPS):
        for layer in range(LAYERS):
            for (name, op), channels in OF_EXPERTS.items():
                shape = json.loads(rows[token, f"{name}-{layer}", op]["my_shape"])
                assert int(np.prod(shape)) == row_count(token, layer, name) * channels, (token, layer, name)
    assert largest_difference(comparison) < 1e-5


def test_a_prompt_in_chunks_is_one_step(golden, mixtral_models, tmp_path):
    mine = capture_engine(mixtral_models["f32"], tmp_path / "mine", "--chunk", "2")

    comparison = assay.compare(golden, mine)

    assert json.loads(pairs_of(comparison)[0, "ffn_moe_down-1", "MUL_MAT_ID"]["my_shape"]) == [10, 256]
    assert largest_difference(comparison) < 1e-5
    assert assay.locate(golden, mine).outcome == "clean"


@pytest.mark.parametrize("types", ["f32", "f16", "q8_0", "q4_0"])
def test_a_healthy_model_is_clean(golden, mixtral_models, tmp_path, types):
    mine = capture_engine(mixtral_models[types], tmp_path / "mine")

    verdict = assay.locate(golden, mine)

    assert verdict.outcome == "clean", verdict
    # Embedding, head, and in each layer four norms and projections, the router and two stacks of experts.
    weights = 3 + LAYERS * (2 + 4 + 1 + 2)
    if types == "f32":
        assert f"all {weights} weights are golden's" in " ".join(verdict.sentence.split())
    else:
        in_blocks = 2 + LAYERS * (4 + 2)
        assert f"{in_blocks} of {weights} weights" in " ".join(verdict.sentence.split())


@pytest.mark.parametrize("types", ["q8_0", "f32"])
@pytest.mark.parametrize("fault", EXPERT_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_in_the_engine_is_named(fault: Fault, golden, mixtral_models, tmp_path, types):
    convert(fault.plant(mixtral_models["hf"], tmp_path / "hf"), tmp_path / "faulty.gguf", types)

    verdict = assay.locate(golden, capture_engine(tmp_path / "faulty.gguf", tmp_path / "mine"))

    assert verdict.outcome == "first_wrong", verdict
    assert verdict.first_bad.module == fault.module, verdict
    assert fault.node[0] in str(verdict.first_bad), verdict


def test_the_number_of_experts_is_the_explanation(golden, mixtral_models, tmp_path):
    (fault,) = (fault for fault in EXPERT_FAULTS if fault.name == "one_expert_too_few")
    convert(fault.plant(mixtral_models["hf"], tmp_path / "hf"), tmp_path / "faulty.gguf")

    verdict = assay.locate(golden, capture_engine(tmp_path / "faulty.gguf", tmp_path / "mine"))

    assert "experts of a token 1 where golden has 2" in " ".join(verdict.sentence.split()), verdict


@pytest.mark.parametrize("fault", EXPERT_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_in_the_model_is_named(fault: Fault, engine_run, mixtral_models, tmp_path):
    golden = capture_model(load(fault.plant(mixtral_models["hf"], tmp_path / "hf")), tmp_path / "golden")

    verdict = assay.locate(golden, engine_run)

    assert verdict.outcome == "first_wrong", verdict
    assert verdict.first_bad.module == fault.module, verdict


@pytest.mark.parametrize("types", ["f32", "q8_0"])
def test_an_expert_that_all_tokens_share(types, llama_engine, tmp_path):
    models = write_models(tmp_path / "models", "qwen2moe", types=(types,))
    golden = capture_model(load(models["hf"]), tmp_path / "golden")
    mine = capture_engine(models[types], tmp_path / "mine")

    comparison = assay.compare(golden, mine)

    rows = pairs_of(comparison)
    for name, op in [("ffn_gate-1", "MUL_MAT"), ("ffn_shexp-1", "MUL_MAT"), ("ffn_shexp_gate_inp-1", "MUL_MAT"),
                     ("ffn_moe_weights-1", "GET_ROWS"), ("ffn_out-1", "ADD")]:  # fmt: skip
        assert json.loads(rows[0, name, op]["my_shape"])[-2] == len(PROMPT), name
    assert types != "f32" or largest_difference(comparison) < 1e-5
    verdict = assay.locate(golden, mine)
    assert verdict.outcome == "clean", verdict
    # The shared expert's router is a vector in the file and a matrix of one row in the checkpoint.
    assert "67 weights" in " ".join(verdict.sentence.split())


def test_weights_of_unknown_names_are_not_judged(golden, mixtral_models, tmp_path):
    """What a matrix of blocks errs is no fault of the engine, whether we know its name or not."""
    model = tmp_path / "model.gguf"
    model.write_bytes(mixtral_models["q4_0"].read_bytes())
    mine = capture_engine(model, tmp_path / "mine")
    known, unknown = b"ffn_down_exps.weight", b"ffn_last_exps.weight"
    model.write_bytes(model.read_bytes().replace(known, unknown))

    verdict = assay.locate(golden, mine)

    assert verdict.outcome == "cannot_judge", verdict
    assert "mlp.experts.down_proj is not known" in " ".join(verdict.sentence.split()), verdict
    assert "ffn_last" in verdict.sentence


def test_the_engine_may_be_golden(golden, engine_run):
    assert assay.locate(engine_run, golden).outcome == "clean"
