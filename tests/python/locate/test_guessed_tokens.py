# SPDX-License-Identifier: Apache-2.0
"""Guessed tokens that were refused are no choices: their rows stand at the end of a step and lead nowhere."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
import torch

import assay
from assay.__main__ import find_command

transformers = pytest.importorskip("transformers")


def model(dtype: torch.dtype):
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=False, initializer_range=0.2,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval().to(dtype)


def generate(of, seed: int, **options):
    ids = torch.randint(2, 10, (1, 12), generator=torch.Generator().manual_seed(seed)).repeat(1, 2)
    with torch.no_grad():
        made = of.generate(
            ids, max_new_tokens=8, do_sample=False, pad_token_id=0, prompt_lookup_num_tokens=4, **options
        )
    return made[0, ids.shape[1] :].tolist()


@pytest.mark.parametrize("seed", range(12))
def test_a_refused_token_is_no_choice(tmp_path, seed):
    chosen = []
    for name, dtype in (("golden", torch.float32), ("mine", torch.bfloat16)):
        of = model(dtype)
        with assay.capture(of, tmp_path / name, weights=True, level="operator" if name == "golden" else "module"):
            chosen.append(generate(of, seed))
    words = [find_command(), "locate", "--json", str(tmp_path / "golden"), str(tmp_path / "mine")]
    said = json.loads(subprocess.run(words, capture_output=True, text=True, check=False).stdout)
    found = re.search(r"first choose other tokens in step \d+: (\d+) and (\d+)", said["sentence"])
    if chosen[0] == chosen[1]:
        assert found is None, said["sentence"]
    else:
        first = next(pair for pair in zip(*chosen) if pair[0] != pair[1])
        assert found is None or tuple(map(int, found.groups())) == first, said["sentence"]
