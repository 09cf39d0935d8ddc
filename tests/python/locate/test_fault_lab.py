# SPDX-License-Identifier: Apache-2.0
"""A sample of the fault laboratory (bench/faults): every planted fault is named, no healthy pair alarms."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from bench.faults import lab

# At least one of each group, in both forms, over three families.
FAULTS = [
    lab.Case("llama", 0, "norm-weight-scaled", "visible", 4),
    lab.Case("llama", 0, "norm-weight-scaled", "hidden", 4),
    lab.Case("llama", 0, "one-element", "hidden", 1),
    lab.Case("llama", 0, "attention-scale", "hidden", 1),
    lab.Case("llama", 0, "query-key-swapped", "hidden", 4),
    lab.Case("llama", 0, "rope-theta", "visible", 0),
    lab.Case("gpt2", 0, "columns-scaled", "visible", 1),
    lab.Case("gpt2", 0, "epsilon", "hidden", 4),
    lab.Case("gpt2", 0, "stale-input", "visible", 1),
    lab.Case("gpt2", 0, "bias-scaled", "hidden", 1),
    lab.Case("mixtral", 0, "heads-swapped", "visible", 4),
    lab.Case("mixtral", 0, "mask-row", "hidden", 1),
    # in a step of one token there is one query and there are many keys: only the prompt's can be swapped
    lab.Case("persimmon", 20201, "query-key-swapped", "hidden", 1, decode=4),
]
HEALTHY = [
    *(lab.Case(family, 0, pair=pair) for family in ("llama", "gpt2", "mixtral") for pair in ("precision", "fused")),
    # 48 tokens in a window of 24: one side has a mask of truth values, the other one that is added
    lab.Case("mistral", 7, pair="decomposed"),
    # scores of 20, which a chain of operators stores in bf16 and the fused kernel never does
    lab.Case("gpt2", 22, pair="decomposed"),
]


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lab.Laboratory]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so that results do not depend on the machine
    yield lab.Laboratory(tmp_path_factory.mktemp("faults"), ("O", "L", "M"))
    torch.set_num_threads(threads)


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case.name)
def test_a_planted_fault_is_named_at_every_level(laboratory: lab.Laboratory, case: lab.Case) -> None:
    for result in laboratory.run(case):
        assert result.right(), f"{result.level}: planted in {result.place}: {result.sentence}"


@pytest.mark.parametrize("case", HEALTHY, ids=lambda case: case.name)
def test_a_healthy_pair_is_not_accused(laboratory: lab.Laboratory, case: lab.Case) -> None:
    outcomes = {result.level: result for result in laboratory.run(case)}
    for level, result in outcomes.items():
        assert result.outcome != "first_wrong", f"{level}: {result.sentence}"
    assert outcomes["O"].outcome == "clean", outcomes["O"].sentence


def test_the_size_of_a_fault_is_not_that_of_roundings_that_fall_otherwise(laboratory: lab.Laboratory) -> None:
    # In bf16 the smallest change has all that follows rounded anew: the run is 0.73 % off the healthy one.
    case = lab.Case("nemotron", 743429, "epsilon", "visible", 1, 0.5, shaped=True)
    for result in laboratory.run(case):
        assert 5e-4 < result.size < 2e-3 < result.rounding
        assert result.outcome == "first_wrong" or result.size < result.power
