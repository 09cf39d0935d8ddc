# SPDX-License-Identifier: Apache-2.0
"""The same function with other weights, modules or operators is no fault, and hides none.

What is written otherwise is in bench/faults/rewrites.py, which holds the logits of both against each other in torch;
the campaign `rewritten` has all kinds, families and faults.
"""

from __future__ import annotations

import pytest
import torch
from bench.faults import lab, rewrites

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


def test_every_kind_names_a_family_that_has_it() -> None:
    assert set(FAMILY_OF) <= set(rewrites.KINDS)
