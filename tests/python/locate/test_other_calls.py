# SPDX-License-Identifier: Apache-2.0
"""The same model called in another way: through a static cache of `generate`, for the last logits only. Healthy ones
are clean, faults are named, and hints about a fault are true of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from bench.faults import captures, families, kernels  # noqa: E402

import assay  # noqa: E402

TOKENS = families.prompt(3, 24)
NEW = 4


@pytest.fixture(scope="module")
def model() -> Any:
    made = families.build("llama", 3)
    made.generation_config.pad_token_id = 0
    return made


def captured(model: Any, folder: Path, run: Callable[[Any], Any]) -> Path:
    with torch.no_grad(), assay.capture(model, folder, level="operator", weights=True):
        run(model)
    return folder


def verdict(golden: Path, mine: Path, level: str) -> Any:
    thin = captures.thinned(mine, level, mine.with_name(f"{mine.name}-{level}"), "model.layers.")
    return assay.locate(golden, thin)


def answer(model: Any, mask: Any = None, **more: Any) -> Any:
    prompt = TOKENS[:, :16]
    mask = torch.ones_like(prompt) if mask is None else mask
    return model.generate(input_ids=prompt, attention_mask=mask, max_new_tokens=NEW, do_sample=False, **more)


def last_logits(model: Any) -> Any:
    return model(input_ids=TOKENS, use_cache=False, logits_to_keep=1)


def all_logits(model: Any) -> Any:
    return model(input_ids=TOKENS, use_cache=False)


# ---- static caches: their mask hides the cells that are empty yet, which hides nothing


@pytest.mark.parametrize("level", ["O", "M"])
def test_a_static_cache_of_generate_is_clean(tmp_path: Path, model: Any, level: str) -> None:
    golden = captured(model, tmp_path / "golden", answer)
    static = captured(model, tmp_path / "mine", lambda one: answer(one, cache_implementation="static"))
    found = verdict(golden, static, level)
    assert found.outcome == "clean", found.sentence


def test_a_mask_that_hides_a_token_is_another_input(tmp_path: Path, model: Any) -> None:
    golden = captured(model, tmp_path / "golden", answer)
    mask = torch.ones_like(TOKENS[:, :16])
    mask[:, 1] = 0
    hidden = captured(model, tmp_path / "mine", lambda one: answer(one, mask, cache_implementation="static"))
    found = verdict(golden, hidden, "O")
    assert found.outcome == "cannot_judge"
    assert "mine was not given what golden was" in found.sentence


# ---- logits of the last token alone


@pytest.mark.parametrize("level", ["O", "L", "M"])
def test_the_last_logits_alone_are_clean(tmp_path: Path, model: Any, level: str) -> None:
    golden = captured(model, tmp_path / "golden", all_logits)
    mine = captured(families.narrowed(model, torch.bfloat16), tmp_path / "mine", last_logits)
    found = verdict(golden, mine, level)
    assert found.outcome == "clean", found.sentence


@pytest.mark.parametrize("level", ["L", "M"])
def test_logits_of_another_token_are_wrong(tmp_path: Path, model: Any, level: str) -> None:
    golden = captured(model, tmp_path / "golden", all_logits)
    mine = families.narrowed(model, torch.bfloat16)
    head = mine.lm_head
    # The head is given the token before the last one.
    rows = mine.model.register_forward_hook(
        lambda _, __, result: type(result)(last_hidden_state=result.last_hidden_state.roll(1, 1))
    )
    run = captured(mine, tmp_path / "mine", last_logits)
    rows.remove()
    assert head is mine.lm_head
    assert verdict(golden, run, level).outcome == "first_wrong"


# ---- hints are about golden's function of mine's own values


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (lambda x: 2 * x, "a constant factor 2"),
        (lambda x: x + 1, "a constant 1 is added"),
        (lambda x: 0 * x, "all values are zero"),
    ],
)
def test_a_hint_undoes_what_was_done(tmp_path: Path, model: Any, wrong: Callable[[Any], Any], hint: str) -> None:
    golden = captured(model, tmp_path / "golden", all_logits)
    mine = families.narrowed(model, torch.bfloat16)
    mine.model.layers[3].mlp.register_forward_hook(lambda _, __, result: wrong(result))
    found = verdict(golden, captured(mine, tmp_path / "mine", all_logits), "M")
    assert found.candidates[0].module == "model.layers.3.mlp", found.sentence
    assert f"{hint};" in found.sentence.replace("1.0 is", "1 is"), found.sentence


@pytest.mark.parametrize("level", ["O", "M"])
def test_a_weight_of_zeros_is_said_to_be_zero(tmp_path: Path, model: Any, level: str) -> None:
    golden = captured(model, tmp_path / "golden", all_logits)
    mine = families.narrowed(model, torch.bfloat16)
    with torch.no_grad():
        mine.model.layers[2].mlp.up_proj.weight.zero_()
    found = verdict(golden, captured(mine, tmp_path / "mine", all_logits), level)
    assert "weight differs from golden's: all values are zero" in found.sentence


def test_the_owner_is_a_module_that_is_called(tmp_path: Path, model: Any) -> None:
    golden = captured(model, tmp_path / "golden", all_logits)
    mine = families.narrowed(model, torch.bfloat16)
    adds: list[int] = []

    def half_of_first(call: Any, args: Any, kwargs: Any) -> Any:
        adds.append(1)
        return call(0.5 * args[0] if len(adds) == 1 else args[0], *args[1:], **kwargs)

    wrong = kernels.on_arguments(("add",), half_of_first)
    with kernels.Kernels(mine, "model.layers.1", wrong, own=True):
        run = captured(mine, tmp_path / "mine", all_logits)
    found = verdict(golden, run, "L")
    # Not model.layers, which is a list: the sum is the layer's.
    assert "first bad: model.layers.1 (LlamaDecoderLayer, step 0)" in found.sentence


def test_a_wrong_scale_is_not_said_to_be_positions(tmp_path: Path, model: Any) -> None:
    golden = captured(model, tmp_path / "golden", all_logits)
    mine = families.narrowed(model, torch.bfloat16)
    mine.model.layers[2].self_attn.scaling *= 1.25
    found = verdict(golden, captured(mine, tmp_path / "mine", all_logits), "M")
    assert found.outcome == "first_wrong"
    assert "position" not in found.sentence and "mask" not in found.sentence
