# SPDX-License-Identifier: Apache-2.0
"""Ports that store matrices otherwise: int8 and fp8 with a scale a row, LoRA merged into the matrix beside it.

Each healthy port has a twin with a fault in the same place, which must be named.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from bench.faults import captures, families, ports

import assay
from assay.twin import places

FAMILY, SEED = "llama", 1234
LEVELS = ["O", "L", "M"]
CODES = {"int8": torch.int8, "fp8": torch.float8_e4m3fn, "fp8 with a wide range": torch.float8_e5m2}
WHERE = "model.layers.2.self_attn.k_proj"
LORA = "model.layers.2.self_attn.q_proj"  # the first matrix of a layer


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A shaped fp32 model and its run; the same with LoRA unmerged."""
    torch.set_num_threads(1)
    model = families.build(FAMILY, SEED, shaped=True)
    with_lora = ports.with_low_rank(model, SEED)
    tokens = families.prompt(SEED, 17)
    folder = tmp_path_factory.mktemp("ports")
    for name, one in (("golden", model), ("lora", with_lora)):
        captures.capture(one, tokens, folder / name)
    return model, with_lora, tokens, folder


def verdict_of(world: Any, golden: str, mine: torch.nn.Module, level: str, tmp_path: Path) -> assay.Verdict:
    model, _, tokens, folder = world
    captures.capture(mine, tokens, tmp_path / "mine")
    layers = places.of(model).layer.format("")
    return assay.locate(folder / golden, captures.thinned(tmp_path / "mine", level, tmp_path / "thin", layers))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("codes", CODES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["scales in fp32", "scales in bf16"])
def test_matrices_in_codes_are_golden_s_to_their_rounding(world, tmp_path, dtype, codes, level):
    # given a port with the 42 matrices of the layers in codes
    port = ports.quantised(world[0], CODES[codes], dtype)
    # when it is judged
    verdict = verdict_of(world, "golden", port, level, tmp_path)
    # then nothing is accused, and the rounding is named
    assert verdict.outcome == "clean", verdict.sentence
    assert "quantisation, as expected" in verdict.sentence
    assert "42 of 59 weights within the rounding of their types" in verdict.sentence


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("codes", CODES)
def test_a_wrong_scale_among_codes_is_named(world, tmp_path, codes, level):
    port = ports.quantised(world[0], CODES[codes], torch.bfloat16)
    with torch.no_grad():  # more than half a step of e5m2, which is an eighth of a value
        port.get_submodule(WHERE).weight_scale[5] *= 1.3
    verdict = verdict_of(world, "golden", port, level, tmp_path)
    assert verdict.outcome == "first_wrong", verdict.sentence
    assert verdict.first_bad.module == WHERE, verdict.sentence


@pytest.mark.parametrize("level", LEVELS)
def test_a_fault_behind_codes_is_named(world, tmp_path, level):
    # given a port whose codes are right, and that forgets the scale of its inputs in one place
    port = ports.quantised(world[0], torch.int8, torch.bfloat16)
    right = port.get_submodule(WHERE)
    plain = right.forward
    right.forward = lambda x: plain(1.125 * x)
    verdict = verdict_of(world, "golden", port, level, tmp_path)
    # then it is named, by values that the golden program computes with the weights of the run under test
    assert verdict.outcome == "first_wrong", verdict.sentence
    assert verdict.first_bad.module == WHERE, verdict.sentence


@pytest.mark.parametrize("level", LEVELS)
def test_a_merged_matrix_computes_what_golden_s_parts_do(world, tmp_path, level):
    # given six golden matrices with a low-rank part each, which the run under test has merged
    verdict = verdict_of(world, "lora", ports.merged(world[1]).to(torch.bfloat16), level, tmp_path)
    assert verdict.outcome == "clean", verdict.sentence
    assert "53 of 59 weights are golden's, the others compute what other weights of golden's do" in verdict.sentence
    assert verdict.coverage["weights_by_function"] == 6


@pytest.mark.parametrize("level", LEVELS)
def test_a_part_that_was_not_merged_is_named(world, tmp_path, level):
    mine = ports.merged(world[1])
    with torch.no_grad():
        mine.get_submodule(LORA).weight.copy_(world[0].get_submodule(LORA).weight)
    verdict = verdict_of(world, "lora", mine.to(torch.bfloat16), level, tmp_path)
    assert verdict.outcome == "first_wrong", verdict.sentence
    assert verdict.first_bad.module == LORA, verdict.sentence


@pytest.mark.parametrize("codes", CODES)
def test_layers_without_their_weights_do_not_accuse_codes(world, tmp_path, codes):
    # given a port of which only the outputs of layers were captured; the tree of modules says that it holds codes
    verdict = verdict_of(world, "golden", ports.quantised(world[0], CODES[codes], torch.bfloat16), "B", tmp_path)
    # then what the golden weights make of its values is no measure
    assert verdict.outcome == "cannot_judge", verdict.sentence
    assert "weight in codes" in verdict.sentence


def scaled(port: torch.nn.Module) -> None:
    port.get_submodule(WHERE).weight_scale[5, 1] *= 1.3


def moved(port: torch.nn.Module) -> None:
    port.get_submodule(WHERE).weight_zero_point[3] += 1


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("change", [None, scaled, moved], ids=["healthy", "one scale", "zero points of a row"])
def test_packed_codes_in_groups_are_judged_by_their_peers(world, tmp_path, change, level):
    # given a port with 42 matrices as words of eight codes, a scale and a zero point a group; one of them may be wrong
    port = ports.packed(world[0], torch.bfloat16, zeros=True)
    if change is not None:
        with torch.no_grad():
            change(port)
    verdict = verdict_of(world, "golden", port, level, tmp_path)
    # then calibration, which moves all of them, is no excuse for one
    if change is None:
        assert verdict.outcome == "clean", verdict.sentence
        assert "42 int4 per group of 8, asymmetric" in verdict.sentence
    else:
        assert verdict.outcome == "first_wrong", verdict.sentence
        assert verdict.first_bad.module == WHERE, verdict.sentence


def test_calibrated_codes_are_not_accused(world, tmp_path):
    # given a port all of whose scales are a third larger than rounding would have them
    port = ports.packed(world[0], torch.bfloat16)
    with torch.no_grad():
        for module in port.modules():
            if isinstance(module, ports.Packed):
                module.weight_scale *= 1.3
    verdict = verdict_of(world, "golden", port, "O", tmp_path)
    assert verdict.outcome == "cannot_judge", verdict.sentence
    assert any("as calibration may move them" in note for note in verdict.notes)
