# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face run against a ggml run of the model converted from it: pairs, and the first wrong operator."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hugging_face import LAYERS, load, table
from planted_faults import FAULTS, MODEL_FAULTS, Fault, ModelFault
from tiny_llama import write_models

import assay
from assay.twin.gguf_file import convert

CHAT = Path(__file__).resolve().parents[2] / "examples" / "ggml" / "chat.py"
PROMPT = [1, 50, 60, 70, 300]
LONG_PROMPT = [1, *(3 + 97 * i % 500 for i in range(70))]
STEPS = 3


def capture_model(model, folder: Path, level: str = "operator", prompt: list[int] = PROMPT) -> Path:
    """A prompt and two greedy tokens of a Hugging Face model."""
    import torch

    ids, past = torch.tensor([prompt]), None
    with assay.capture(model, folder, level=level, steps=range(STEPS), weights=True), torch.no_grad():
        for _ in range(STEPS):
            result = model(ids, past_key_values=past, use_cache=True)
            ids, past = result.logits[:, -1:].argmax(-1), result.past_key_values
    return folder


def capture_engine(
    model: Path, folder: Path, *options: str, dump: tuple[str, ...] = (), prompt: list[int] = PROMPT
) -> Path:
    """The same prompt in llama.cpp, with the warm-up graph that its server runs first."""
    words = ",".join(map(str, prompt))
    program = [sys.executable, str(CHAT), str(model), "--tokens", str(STEPS), "--prompt", words, *options]
    command = [os.environ.get("ASSAY_BINARY", "assay"), "dump", "-o", str(folder), "--steps", "0-9", *dump, "--"]
    done = subprocess.run([*command, *program], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def golden(models, llama_engine, tmp_path_factory) -> Path:
    return capture_model(load(models["hf"]), tmp_path_factory.mktemp("golden") / "run")


@pytest.fixture(scope="session")
def engine_run(models, llama_engine, tmp_path_factory) -> Path:
    """The float32 model with a float32 cache and without flash attention, as for an exact comparison."""
    return capture_engine(models["f32"], tmp_path_factory.mktemp("engine") / "run")


def pairs_of(comparison) -> dict[tuple[int, str, str], dict]:
    """Rows by (token, node's name, operator); the row of "Qcur-3::ggml.mul_mat.0 output" is one of Qcur-3, MUL_MAT."""
    found = {}
    for row in comparison.rows:
        name, operator = row["node"].split("::ggml.")
        found[row["token_id"], name, operator.split(".")[0].upper()] = row
    return found


def largest_difference(comparison) -> float:
    """Relative L2 over all rows; infinite when a row could not be compared."""
    return max(
        float("inf") if row["cmp_fail_reason"] else row["relative_euclidean_distance"] for row in comparison.rows
    )


def test_every_tensor_of_the_table_is_paired_and_equal(golden, engine_run):
    comparison = assay.compare(golden, engine_run)

    rows = pairs_of(comparison)
    wanted = {(name, op) for _, name, op, _ in table(biased=False)}
    wanted |= {(f"attn_out-{n}", "MUL_MAT") for n in range(LAYERS)}
    wanted = {(name, op) for name, op in wanted if not name.startswith("(")}
    for step in range(STEPS):
        assert {(name, op) for token, name, op in rows if token == step} >= wanted
    assert largest_difference(comparison) < 1e-5
    assert {row["matched_by"] for row in comparison.rows} == {"engine table"}


@pytest.mark.parametrize("options", [(), ("--flash-attention",)], ids=["chain", "flash"])
def test_windows_of_the_caches_are_compared(golden, models, tmp_path, options):
    """Keys and values of all tokens so far, in every layer and step."""
    mine = capture_engine(models["f32"], tmp_path / "mine", *options, dump=("--caches",))

    rows = [row for row in assay.compare(golden, mine).rows if "cells of the cache" in (row["note"] or "")]

    assert len(rows) == 2 * LAYERS * STEPS
    assert {json.loads(row["my_shape"])[2] for row in rows} == {5, 6, 7}
    # Flash attention multiplies in float16.
    assert max(row["relative_euclidean_distance"] for row in rows) < (1e-3 if options else 1e-5)


@pytest.mark.parametrize("chunk", ["2", "3"])
def test_a_prompt_in_chunks_is_one_step(golden, models, tmp_path, chunk):
    mine = capture_engine(models["f32"], tmp_path / "mine", "--chunk", chunk)

    comparison = assay.compare(golden, mine)

    rows = pairs_of(comparison)
    row = rows[0, "ffn_gate-1", "MUL_MAT"]
    assert json.loads(row["my_shape"]) == [1, len(PROMPT), 512]
    assert largest_difference(comparison) < 1e-5
    verdict = assay.locate(golden, mine)
    assert verdict.outcome == "clean", verdict


@pytest.mark.parametrize("types", ["f32", "f16", "q8_0", "q4_0"])
def test_a_healthy_model_is_clean(golden, models, tmp_path, types):
    mine = capture_engine(models[types], tmp_path / "mine")

    verdict = assay.locate(golden, mine)

    assert verdict.outcome == "clean", verdict
    assert ("quantisation, as expected" in verdict.sentence) == (types != "f32")


def test_the_default_cache_and_flash_attention_are_no_fault(golden, models, tmp_path):
    mine = capture_engine(models["f32"], tmp_path / "mine", "--cache-type", "f16", "--flash-attention")

    verdict = assay.locate(golden, mine)

    assert verdict.outcome == "clean", verdict


FLASH = ("--flash-attention", "--cache-type")
CACHES = [(*FLASH, "q8_0"), (*FLASH, "q4_0"), (*FLASH, "iq4_nl"), (*FLASH, "q5_1"), ("--cache-type", "q4_0")]


@pytest.mark.parametrize("cache", CACHES, ids=lambda words: "-".join(words).replace("--", ""))
def test_a_cache_of_blocks_is_no_fault(cache, golden, models, tmp_path):
    """Queries, keys and values are rotated there, and rounded to blocks. Values in blocks need flash attention."""
    values = () if "--flash-attention" in cache else ("--value-cache-type", "f32")
    mine = capture_engine(models["f32"], tmp_path / "mine", *cache, *values)

    verdict = assay.locate(golden, mine)

    assert verdict.outcome == "clean", verdict
    assert "(all " in verdict.sentence  # operators replayed
    # With four bits a token may be another one, where the steps that can be held against golden's end.
    assert re.match(r"clean( up to step \d+ \(.*?\))?: quantisation, as expected: ", verdict.sentence)
    assert f"keys in {cache[-1]}" in verdict.sentence


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if "attn" in fault.module], ids=lambda fault: fault.name)
@pytest.mark.parametrize("cache", ["q8_0", "q4_0"])
def test_a_fault_in_front_of_a_cache_of_blocks_is_named(fault: Fault, cache, golden, models, tmp_path):
    convert(fault.plant(models["hf"], tmp_path / "hf"), tmp_path / "faulty.gguf", "q8_0")

    verdict = assay.locate(golden, capture_engine(tmp_path / "faulty.gguf", tmp_path / "mine", *FLASH, cache))

    assert verdict.outcome == "first_wrong", verdict
    assert verdict.first_bad.module == fault.module, verdict


@pytest.fixture(scope="session")
def long_golden(models, llama_engine, tmp_path_factory) -> Path:
    return capture_model(load(models["hf"]), tmp_path_factory.mktemp("long") / "run", prompt=LONG_PROMPT)


@pytest.mark.parametrize(
    ("types", "options"),
    [("f32", ()), ("f32", (*FLASH, "f16")), ("q4_0", (*FLASH, "q8_0")), ("q8_0", ("--chunk", "32"))],
    ids=["f32", "flash", "blocks", "chunks"],
)
def test_a_long_prompt_is_clean(types, options, long_golden, models, tmp_path):
    """What grows with the position: angles of the rotary embedding, and sums in halves over all keys."""
    mine = capture_engine(models[types], tmp_path / "mine", *options, prompt=LONG_PROMPT)

    verdict = assay.locate(long_golden, mine)

    assert verdict.outcome == "clean", verdict


IN_ATTENTION = [fault for fault in FAULTS if fault.name in ("wrong_rope_base", "swapped_value_heads")]


@pytest.mark.parametrize("fault", IN_ATTENTION, ids=lambda fault: fault.name)
def test_a_fault_behind_a_long_prompt_is_named(fault: Fault, long_golden, models, tmp_path):
    convert(fault.plant(models["hf"], tmp_path / "hf"), tmp_path / "faulty.gguf", "q8_0")
    mine = capture_engine(tmp_path / "faulty.gguf", tmp_path / "mine", *FLASH, "f16", prompt=LONG_PROMPT)

    verdict = assay.locate(long_golden, mine)

    assert verdict.outcome == "first_wrong", verdict
    assert verdict.first_bad.module == fault.module, verdict


def test_a_model_with_biases_and_halves_is_clean(qwen2_models, llama_engine, tmp_path):
    golden = capture_model(load(qwen2_models["hf"]), tmp_path / "golden")
    mine = capture_engine(qwen2_models["f32"], tmp_path / "mine")

    assert largest_difference(assay.compare(golden, mine)) < 1e-5
    verdict = assay.locate(golden, mine)

    assert verdict.outcome == "clean", verdict


LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def test_long_waves_are_divided_as_in_llama_3(llama_engine, tmp_path):
    models = write_models(tmp_path / "models", types=("f32", "q8_0"), rope_parameters=LLAMA_3)
    golden = capture_model(load(models["hf"]), tmp_path / "golden", prompt=LONG_PROMPT)

    for types in ("f32", "q8_0"):
        mine = capture_engine(models[types], tmp_path / types, prompt=LONG_PROMPT)
        assert assay.locate(golden, mine).outcome == "clean"

    # A converter that knows nothing of them
    config = json.loads((models["hf"] / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": 500000.0}
    (models["hf"] / "config.json").write_text(json.dumps(config))
    convert(models["hf"], tmp_path / "faulty.gguf", "q8_0")
    verdict = assay.locate(golden, capture_engine(tmp_path / "faulty.gguf", tmp_path / "mine", prompt=LONG_PROMPT))

    assert verdict.first_bad.module == "model.layers.0.self_attn", verdict
    explanation = "divisor of the longest wave of the rotary embedding 1 where golden has 8"
    assert explanation in " ".join(verdict.sentence.split()), verdict


def assert_shows_the_first(verdict: assay.Verdict) -> None:
    """The next command is about the operator, in the run under test, by the name that it has there."""
    command, show, *words = shlex.split(verdict.next)
    assert (command, show, len(words)) == ("assay", "show", 2), verdict.next
    done = subprocess.run([os.environ.get("ASSAY_BINARY", "assay"), show, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert words[1] in done.stdout


# Weights of blocks are judged by another rule than plain ones, faults of the program by the same.
IN_BLOCKS = [(fault, "q8_0") for fault in FAULTS]
PLAIN = [(fault, "f32") for fault in FAULTS if fault.name in ("wrong_rope_base", "missing_scale", "transposed_output")]
COARSE = [(fault, "q4_0") for fault in FAULTS if fault.name in ("wrong_epsilon", "bad_block", "swapped_value_heads")]


@pytest.mark.parametrize(
    ("fault", "types"), [*IN_BLOCKS, *PLAIN, *COARSE], ids=lambda value: getattr(value, "name", value)
)
def test_a_fault_in_the_engine_is_named(fault: Fault, golden, models, tmp_path, types):
    convert(fault.plant(models["hf"], tmp_path / "hf"), tmp_path / "faulty.gguf", types)

    verdict = assay.locate(golden, capture_engine(tmp_path / "faulty.gguf", tmp_path / "mine"))

    assert verdict.outcome == "first_wrong", verdict
    assert verdict.first_bad.module == fault.module, verdict
    assert fault.node[0] in str(verdict.first_bad), verdict
    assert_shows_the_first(verdict)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_in_the_model_is_named(fault: Fault, engine_run, models, tmp_path):
    golden = capture_model(load(fault.plant(models["hf"], tmp_path / "hf")), tmp_path / "golden")

    verdict = assay.locate(golden, engine_run)

    assert verdict.outcome == "first_wrong", verdict
    assert verdict.first_bad.module == fault.module, verdict
    assert_shows_the_first(verdict)


@pytest.mark.parametrize("fault", MODEL_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_of_the_port_is_named(fault: ModelFault, engine_run, models, tmp_path):
    model = load(models["hf"])
    fault.apply(model)

    verdict = assay.locate(capture_model(model, tmp_path / "golden"), engine_run)

    assert verdict.outcome == "first_wrong", verdict
    assert fault.place.split(":")[0].startswith(verdict.first_bad.module), verdict


def test_the_engine_may_be_golden(golden, engine_run):
    verdict = assay.locate(engine_run, golden)

    assert verdict.outcome == "clean", verdict
