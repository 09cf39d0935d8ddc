# SPDX-License-Identifier: Apache-2.0
"""Greedy generation in two precisions: a near tie gives mine another token, and from there on nothing can be compared.

What is captured of mine decides what tells that it was given other tokens: the model's inputs (O), those of the
embedding (L), or only what the embedding returned (M).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from bench.faults import captures  # noqa: E402

import assay  # noqa: E402

STEPS = 24


def llama(seed: int) -> Any:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=256,
        max_position_embeddings=128,
        initializer_range=0.1,
    )
    return transformers.LlamaForCausalLM(config).eval()


def generate(model: Any, seed: int) -> list[int]:
    prompt = torch.randint(3, 256, (1, 8), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        out = model.generate(prompt, max_new_tokens=STEPS, do_sample=False, eos_token_id=None, pad_token_id=0)
    return out[0, prompt.shape[1] :].tolist()


def flip_of(seed: int) -> int:
    """The first step in which bfloat16 chooses another token; STEPS: none."""
    golden, mine = generate(llama(seed), seed), generate(llama(seed).bfloat16(), seed)
    return next((step for step in range(STEPS) if golden[step] != mine[step]), STEPS)


def capture(model: Any, seed: int, path: Path) -> Path:
    with assay.capture(model, path, steps=range(STEPS), level="operator", weights=True):
        generate(model, seed)
    return path


@pytest.mark.slow
def test_clean_up_to_the_tie_at_every_level(tmp_path: Path) -> None:
    flips = {}
    for seed in range(32):
        flip = flip_of(seed)
        if 0 < flip < STEPS - 1:
            flips[seed] = flip
        if len(flips) == 2:
            break
    assert len(flips) == 2, flips
    for seed in flips:
        golden = capture(llama(seed), seed, tmp_path / f"golden{seed}")
        mine = capture(llama(seed).bfloat16(), seed, tmp_path / f"mine{seed}")
        for level in "OLM":
            thin = captures.thinned(mine, level, tmp_path / f"thin{seed}{level}", "model.layers.")
            verdict = assay.locate(str(golden), str(thin))
            assert verdict.outcome == "clean", (seed, level, str(verdict))
            # Step s chose the token that step s + 1 is given.
            assert verdict.to_dict()["clean_up_to"] == flips[seed] + 1, (seed, level, str(verdict))
            said = " ".join(str(verdict).split())
            assert f"clean up to step {flips[seed]}, then a near tie" in said
            later = list(range(flips[seed] + 1, STEPS))
            assert verdict.to_dict()["unjudged_steps"] == [{"of": "both", "steps": later}]
            assert f"steps {later[0]} to {later[-1]}, which have other tokens" in said or len(later) == 1


@pytest.mark.slow
def test_a_fault_that_changes_the_choice_is_named(tmp_path: Path) -> None:
    """Not a tie: the head is wrong, so the tokens are."""
    golden = capture(llama(0), 0, tmp_path / "golden")
    broken = llama(0)
    broken.lm_head.register_forward_hook(lambda _module, _inputs, output: output.roll(1, -1))
    mine = capture(broken.bfloat16(), 0, tmp_path / "mine")
    for level in "LM":
        thin = captures.thinned(mine, level, tmp_path / f"thin{level}", "model.layers.")
        verdict = assay.locate(str(golden), str(thin))
        assert verdict.outcome == "first_wrong", str(verdict)
        assert verdict.candidates[0].module == "lm_head", str(verdict)
