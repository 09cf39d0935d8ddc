# SPDX-License-Identifier: Apache-2.0
"""The same function with other weights, modules or operators is no fault, and hides none.

What is written otherwise is in bench/faults/rewrites.py, which holds the logits of both against each other in torch;
the campaign `rewritten` has all kinds, families and faults.
"""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from bench.faults import captures, lab, rewrites

import assay

SEED = 20261130
# A family that has what it takes for each kind.
FAMILY_OF = {
    "folded-norms": "qwen2",
    "folded-head": "opt",  # its head is its table of tokens
    "scaled-queries": "phi",
    "prescaled-queries": "qwen2",
    "scaled-values": "qwen3",
    "turned-values": "stablelm",
    "permuted-heads": "mixtral",
    "value-bias": "qwen2",
    "key-bias": "opt",
    "scaled-feed-forward": "qwen3",
    "negated-feed-forward": "olmo2",
    "permuted-neurons": "qwen3",
    "permuted-experts": "olmoe",
    "one-plus": "qwen3",
    "transposed": "gpt2",
    "shifted": "phi3",
}


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> lab.Laboratory:
    torch.set_num_threads(1)
    return lab.Laboratory(tmp_path_factory.mktemp("laboratory"), ("O", "M"))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("kind", FAMILY_OF)
def test_what_is_written_otherwise_is_clean(laboratory: lab.Laboratory, kind: str, dtype: str) -> None:
    # given golden, and mine that computes the same in another way; when both levels are judged
    results = list(laboratory.run(lab.Case(FAMILY_OF[kind], SEED, dtype=dtype, pair=kind)))
    # then
    assert [(one.level, one.outcome) for one in results] == [("O", "clean"), ("M", "clean")], results[0].sentence


@pytest.mark.parametrize("kind", ["scaled-values", "permuted-neurons", "transposed"])
def test_a_fault_in_what_is_written_otherwise_is_named(laboratory: lab.Laboratory, kind: str) -> None:
    # given a norm that is too loud in layer 1, in a model that is written otherwise
    for result in laboratory.run(lab.Case("qwen3", SEED, "norm-weight-scaled", "visible", layer=1, pair=kind)):
        # then
        assert result.outcome == "first_wrong" and result.right(), result.sentence


@pytest.mark.parametrize(
    "name",
    [
        # a kernel behind weights that undo each other: up times 5, down by 5
        "llama-699177-float32-last-row-lost-visible-layer4-1-scaled-feed-forward-shaped",
        # an element of a weight whose heads stand in another order
        "opt-431673-bfloat16-weight-one-element-visible-layer1-1-permuted-heads",
        # heads of keys exchanged, beside queries times 4 and keys by 4
        "opt-685178-bfloat16-heads-swapped-visible-layer1-1-scaled-queries",
        # a difference that only the whole model forgets: no mean in what is written to the residual
        "bloom-414445-float32-rows-shifted-visible-layer1-1-centred",
        "bloom-57246-bfloat16-weight-row-zero-visible-layer1-1-centred",
        # tables of later positions, of which every layer sees only differences
        "llama-699177-float32-attention-scale-visible-layer4-1-shifted-shaped",
        # scale of attention in the matrix of queries: at M the module's own argument is not seen
        "opt-685178-float32-stale-input-visible-layer1-1-prescaled-queries",
        # tables that only values read which are written otherwise, and in which they would hardly be seen: clean once
        "llama-91-bfloat16-rope-theta-visible-layer0-1-prescaled-queries",
        "qwen2-91-bfloat16-positions-visible-layer0-1-prescaled-queries",
    ],
)
def test_a_fault_beside_innocent_differences_is_named_first(laboratory: lab.Laboratory, name: str) -> None:
    # given a fault in a module that is written otherwise; when both levels are judged
    for result in laboratory.run(lab.case_of(name)):
        # then the place is the fault's
        assert result.outcome == "first_wrong" and result.right(), f"planted in {result.place}: {result.sentence}"


def test_what_is_wrong_besides_is_said_of_a_weight_that_is_written_otherwise(laboratory: lab.Laboratory) -> None:
    # given an element that is too large in a matrix of keys that was divided by 4; when it is named
    case = lab.case_of("qwen2-447336-float32-weight-one-element-visible-layer4-1-scaled-queries-shaped")
    for result in laboratory.run(case):
        # then the factor is no part of what is wrong
        assert result.right(), result.sentence
        assert "written otherwise, and only element [" in result.sentence


def test_what_does_not_undo_the_other_is_named(laboratory: lab.Laboratory, tmp_path: Path) -> None:
    # given queries times 4, and keys by 5
    case = lab.Case("qwen3", SEED)
    mine = copy.deepcopy(laboratory.model(case))
    attention = mine.get_submodule("model.layers.1.self_attn")
    for name, factor in (("q_norm", 4.0), ("k_norm", 0.2)):
        attention.get_submodule(name).get_parameter("weight").data.mul_(factor)
    captures.capture(mine, laboratory.tokens(case), tmp_path / "mine")
    # when
    verdict = assay.locate(laboratory.golden(case), tmp_path / "mine")
    # then
    assert verdict.outcome == "first_wrong" and verdict.candidates[0].module.startswith("model.layers.1.self_attn")


def test_every_kind_names_a_family_that_has_it() -> None:
    assert set(FAMILY_OF) <= set(rewrites.KINDS)
