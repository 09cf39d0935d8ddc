# SPDX-License-Identifier: Apache-2.0
"""Gates on twins (bench/faults/twins.py): pairs that were accused wrongly once, and one planted fault."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))
from bench.faults import criteria, twins


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory) -> twins.Twins:
    return twins.Twins(tmp_path_factory.mktemp("twins"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("port", "family", "seed"),
    [
        ("eager-fp32", "llama", 900001),  # padding, which each kernel fills as it likes
        ("sdpa-of-eager-fp32", "mixtral", 900001),
        # One channel is near the limit of float16 and has most of the error: a lucky draw of its noise was the floor.
        ("columns-fp32", "qwen2", 900002),
    ],
)
def test_a_healthy_port_is_clean(laboratory, port, family, seed):
    gate = laboratory.healthy(twins.PORTS[port], family, seed)
    assert gate.outcome == "clean", gate.sentence


@pytest.mark.slow
def test_frequencies_that_are_cast_with_the_model_leave_long_texts_without_a_verdict(laboratory):
    """Their rounding moves the table by 19 % there; `from_pretrained` keeps them in float32, as the other port does."""
    cast = laboratory.healthy(twins.PORTS["eager-bf16"], "llama", 900001)
    assert cast.outcome == "cannot_judge"
    assert "model.rotary_emb.inv_freq is held in bfloat16, golden's in float32" in cast.sentence
    kept = laboratory.healthy(twins.PORTS["loaded-bf16"], "llama", 900001)
    assert kept.outcome == "clean", kept.sentence


@pytest.mark.slow
def test_an_engine_whose_conversion_is_most_of_one_result_is_clean(laboratory):
    pytest.importorskip("xllamacpp")
    gate = laboratory.healthy(twins.PORTS["llama.cpp-f16"], "llama", 900001)
    assert gate.outcome == "clean", gate.sentence


@pytest.mark.slow
def test_a_planted_fault_is_red_at_its_place(laboratory):
    form, layer = next(twins.planted("one-column", "llama", 900001, laboratory))
    gate = laboratory.faulty("one-column", "llama", 900001, form, layer)
    assert gate.outcome == "first_wrong"
    assert gate.at_first_place, gate.sentence
    # The tests of engines look at logits: some of them are satisfied by this one, or by no healthy port either.
    assert set(gate.satisfied) == set(criteria.NAMES)
