# SPDX-License-Identifier: Apache-2.0
"""Products narrower than what stores them, and matrices in codes: expected when healthy, named when not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from bench.faults import lab


def judged(name: str, levels: str, folder: Path) -> list[lab.Result]:
    torch.set_num_threads(1)
    found = list(lab.Laboratory(folder, tuple(levels)).run(lab.case_of(name)))
    assert [result.level for result in found] == list(levels), found
    return found


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("llama-0-bfloat16-products-bf16", "products in bf16, as expected"),
        ("gpt2-0-bfloat16-products-cut", "products in TF32, as expected"),
        ("llama-0-bfloat16-inplace8", "int8 per channel, in place"),
        ("gpt2-0-bfloat16-inplace-nf4", "nf4 per group of 64, in place"),
        ("llama-0-bfloat16-own-names", "int8 per channel"),
        ("llama-0-bfloat16-bnb4", "nf4 per block of 64"),
        ("llama-0-bfloat16-gptq", "GPTQ int4 per group of 32, asymmetric"),
    ],
)
def test_what_is_narrow_everywhere_is_expected(tmp_path: Path, name: str, says: str) -> None:
    for result in judged(name, "OM", tmp_path):
        assert result.outcome == "clean", result.sentence
        assert says in result.sentence


@pytest.mark.parametrize(
    "name",
    [
        "llama-0-bfloat16-weight-row-zero-hidden-layer1-1-products-bf16",
        "llama-0-bfloat16-columns-scaled-hidden-layer4-1-products-tf32",
        "llama-0-bfloat16-code-reciprocal-visible-layer1-1-inplace8",
        "llama-0-bfloat16-code-columns-visible-layer4-1-own-names",
        "llama-0-bfloat16-code-exchanged-visible-layer1-1-bnb4",
        "llama-0-bfloat16-code-zero-points-visible-layer4-1-awq",
    ],
)
def test_a_fault_among_them_is_named(tmp_path: Path, name: str) -> None:
    for result in judged(name, "OM", tmp_path):
        assert result.right(), f"planted in {result.place}: {result.sentence}"


@pytest.mark.parametrize("fault", ["float32-module-in-bf16", "bfloat16-weight-quantised"])
def test_what_is_narrow_alone_is_not_expected(tmp_path: Path, fault: str) -> None:
    for result in judged(f"llama-0-{fault}-visible-layer1-1", "OM", tmp_path):
        assert result.right(), result.sentence
