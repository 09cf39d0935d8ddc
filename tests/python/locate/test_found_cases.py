# SPDX-License-Identifier: Apache-2.0
"""Cases on which the laboratory of faults once found a verdict wrong, each under the name that repeats it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from bench.faults import lab

HEALTHY = [
    # a kernel of oneDNN that rounds the product before it adds the bias
    ("recurrent_gemma-282105-bfloat16-inference", "O"),
    # elements of a state's output whose terms nearly cancel: more noise than their row and their column
    ("mamba-685180-float16", "OL"),
    # weights of another type than in the run under test hid that a choice of experts was close
    ("llama4_text-980058-bfloat16-int8-shaped", "OLM"),
    # experts that one side's rounding gives a row more
    ("dbrx-77-bfloat16", "OLM"),
    # positions that are counted in floats: the noise of a sum must not move them
    ("opt-627249-bfloat16-shaped", "M"),
    # few modules whose values autocast narrows: the products tell
    ("granitemoe-162482-bfloat16-autocast-shaped", "O"),
    # an expert that all tokens chose: as many rows as tokens, in another order
    ("dbrx-355102-bfloat16-chunked-shaped", "OL"),
    # the number of an expert is an argument of the loop over experts
    pytest.param("dbrx-431503-bfloat16-int8-decode32", "O", marks=pytest.mark.slow),
    # a factor that all elements share, rounded to float32 before it is used
    pytest.param("diffllama-889360-bfloat16-threads-decode32", "OL", marks=pytest.mark.slow),
    # and in the operator's own error
    ("diffllama-485240-bfloat16-autocast-shaped-decode4", "O"),
    # a scalar in a tensor of its own, in front of the product: torch rounds it to the other's type
    ("diffllama-589257-bfloat16-autocast-shaped", "O"),
    # two weights of experts whose noise is nearly a common factor, which cancels: few draws show none
    pytest.param("deepseek_v3-980775-bfloat16-lora-decode32", "M", marks=pytest.mark.slow),
    # one element of a step has nearly all of the step's noise
    pytest.param("falcon_mamba-289724-bfloat16-fp8-decode32", "OL", marks=pytest.mark.slow),
    # a merged weight is rounded in another way than its parts, alike for all rows of a column
    ("bert-12194-bfloat16-lora-shaped", "OLM"),
    # a column of GELU that is tiny for all tokens: its kernel errs by a part of the input
    ("roberta-156502-bfloat16-threads", "OLM"),
    # most of the weights are stored the other way round: they are of no other model
    ("llama-3-bfloat16-transposed", "OM"),
    # a residual in float32 that is recorded as norms are given it, and a large channel that cancels
    ("mamba2-947504-bfloat16-lora-shaped-decode4", "L"),
]
# Healthy, and not judged at some levels.
NOT_ACCUSED = [
    # a loop over experts, whose record has the golden numbers: the run under test has others behind a close choice
    pytest.param("dbrx-38019-bfloat16-fp8-decode32", "OLM", marks=pytest.mark.slow),
]
NAMED = [
    # the only layer with attention, in bf16 among float32: it has no peers that say what is usual
    ("jamba-53659-float32-module-under-autocast-visible-layer1-1", "OLM"),
    # what GELU errs in tiny columns in front of the fault
    ("neox-192166-float32-module-in-bf16-visible-layer1-1", "OLM"),
    # a bias that a mixer reads of a module that is never called
    ("falcon_mamba-705132-bfloat16-bias-scaled-visible-layer1-1-decode4", "OLM"),
]
NOT_CLEAN = [
    # other tokens, which the model views before it looks them up; the steps behind them are not to be accused
    ("gpt2-434549-bfloat16-padding-without-mask-visible-layer0-1-decode4", "OLM"),
    # one expert fewer, which moves less than rounding does; only the shape of what the router returns tells
    ("qwen2_moe-239391-bfloat16-router-one-fewer-visible-layer1-1-shaped", "OLM"),
]


def verdicts_of(name: str, levels: str, folder: Path) -> dict[str, lab.Result]:
    torch.set_num_threads(1)
    case = lab.case_of(name)
    laboratory = lab.Laboratory(folder, tuple(levels), width=case.width)
    return {result.level: result for result in laboratory.run(case)}


@pytest.mark.parametrize(("name", "levels"), HEALTHY)
def test_a_healthy_pair_is_clean(tmp_path: Path, name: str, levels: str) -> None:
    found = verdicts_of(name, levels, tmp_path)
    assert set(found) == set(levels)
    for level, result in found.items():
        assert result.outcome == "clean", f"{level}: {result.sentence}"


@pytest.mark.parametrize(("name", "levels"), NOT_ACCUSED)
def test_a_healthy_pair_is_not_accused(tmp_path: Path, name: str, levels: str) -> None:
    found = verdicts_of(name, levels, tmp_path)
    assert set(found) == set(levels)
    for level, result in found.items():
        assert result.outcome != "first_wrong", f"{level}: {result.sentence}"


@pytest.mark.parametrize(("name", "levels"), NAMED)
def test_a_fault_is_named(tmp_path: Path, name: str, levels: str) -> None:
    found = verdicts_of(name, levels, tmp_path)
    assert set(found) == set(levels)
    for level, result in found.items():
        assert result.right(), f"{level}: {result.sentence}"


@pytest.mark.parametrize(("name", "levels"), NOT_CLEAN)
def test_a_fault_is_not_called_clean(tmp_path: Path, name: str, levels: str) -> None:
    found = verdicts_of(name, levels, tmp_path)
    assert set(found) == set(levels)
    for level, result in found.items():
        assert result.outcome != "clean", f"{level}: {result.sentence}"
        assert result.outcome != "first_wrong" or result.right(), f"{level}: {result.sentence}"
