# SPDX-License-Identifier: Apache-2.0
"""What must hold before a run is called clean: nothing that was judged is wrong, and something is open."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Optional

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from bench import sealing

import assay

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


class Tiny(torch.nn.Module):
    """Embedding, a masked mean over positions, a norm and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(16, 32)
        self.mix = torch.nn.Linear(32, 32, bias=False)
        self.norm = torch.nn.RMSNorm(32, eps=1e-6)
        self.head = torch.nn.Linear(32, 16, bias=False)

    def forward(self, input_ids: torch.Tensor, attention_mask: Optional[torch.Tensor] = None) -> torch.Tensor:
        """[batch, positions] to [batch, positions, 16]."""
        hidden = self.embed(input_ids)
        if attention_mask is not None:
            hidden = hidden * attention_mask.unsqueeze(-1).to(hidden.dtype)
        return self.head(self.norm(hidden + self.mix(hidden)))


def capture(
    folder: Path, *prompts: list[int], dtype: torch.dtype = torch.bfloat16, level: str = "operator", **options: Any
) -> Path:
    """One step a prompt."""
    mask: Optional[list[int]] = options.pop("mask", None)
    change = options.pop("change", None)
    torch.manual_seed(5)
    model = Tiny().bfloat16().to(dtype).eval()
    if change is not None:
        change(model)
    with torch.no_grad(), assay.capture(model, folder, level=level, weights=True, **options):
        for prompt in prompts or (PROMPT,):
            given = {"input_ids": torch.tensor([prompt])}
            if mask is not None:
                given["attention_mask"] = torch.tensor([mask])
            model(**given)
    return folder


def said(verdict: assay.Verdict) -> str:
    """Its text in one line."""
    return " ".join(str(verdict).split())


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """float32, every operator, one step."""
    return capture(tmp_path_factory.mktemp("golden") / "run", dtype=torch.float32)


def test_a_healthy_copy_is_clean_and_says_what_that_stands_on(golden: Path, tmp_path: Path) -> None:
    verdict = assay.locate(golden, capture(tmp_path / "mine"))
    assert verdict.outcome == "clean", verdict
    obligations = verdict.to_dict()["obligations"]
    assert [one["name"] for one in obligations if not one["holds"]] == []
    assert {"runs are complete", "inputs are equal", "steps are the same", "weights are golden's"} <= {
        one["name"] for one in obligations
    }


@pytest.mark.parametrize("level", ["operator", "module"])
@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        ([3, 1, 4, 7, 5, 9, 2, 6], "input_ids differs first at [0, 3]: 7 against golden's 1"),
        (PROMPT[:5], "input_ids has shape [1, 5] against golden's [1, 8]"),
    ],
    ids=["another token", "a shorter prompt"],
)
def test_another_prompt_is_no_fault_and_not_clean(
    golden: Path, tmp_path: Path, level: str, prompt: list[int], why: str
) -> None:
    verdict = assay.locate(golden, capture(tmp_path / "mine", prompt, level=level))
    assert verdict.outcome == "cannot_judge", verdict
    assert f"mine was not given what golden was: {why}" in said(verdict)


@pytest.mark.parametrize("level", ["operator", "module"])
def test_a_mask_that_mine_was_not_given(tmp_path: Path, level: str) -> None:
    padded = capture(tmp_path / "golden", dtype=torch.float32, mask=[0, 0, 1, 1, 1, 1, 1, 1])
    verdict = assay.locate(padded, capture(tmp_path / "mine", level=level))
    assert verdict.outcome == "cannot_judge", verdict
    assert "golden was given attention_mask, mine was not" in said(verdict)


@pytest.mark.parametrize("level", ["operator", "module"])
def test_a_step_that_mine_does_not_have(tmp_path: Path, level: str) -> None:
    golden = capture(tmp_path / "golden", PROMPT, [7], dtype=torch.float32)
    verdict = assay.locate(golden, capture(tmp_path / "mine", PROMPT, level=level))
    assert verdict.outcome == "cannot_judge", verdict
    assert "mine has no step 1, which golden has" in said(verdict)


def test_equal_bits_of_a_part_of_the_modules(tmp_path: Path) -> None:
    golden = capture(tmp_path / "golden", level="module")
    assert assay.locate(golden, capture(tmp_path / "same", level="module")).outcome == "clean"
    part = assay.locate(golden, capture(tmp_path / "part", level="module", include="embed"))
    assert part.outcome == "cannot_judge", part
    assert "were not captured of mine, first mix, step 0" in said(part)


@pytest.mark.parametrize("level", ["operator", "module"])
def test_a_killed_run_is_not_clean(golden: Path, tmp_path: Path, level: str) -> None:
    mine = capture(tmp_path / "mine", level=level)
    (mine / "manifest.json").unlink()
    verdict = assay.locate(golden, mine)
    assert verdict.outcome == "cannot_judge", verdict
    assert "the capture of mine did not finish" in said(verdict)


def test_a_run_that_lost_tensors_is_not_clean(golden: Path, tmp_path: Path) -> None:
    mine = capture(tmp_path / "mine", level="module")
    manifest = json.loads((mine / "manifest.json").read_text())
    manifest["sink"]["dropped"] = 3
    sealing.write_manifest(mine / "manifest.json", manifest)
    verdict = assay.locate(golden, mine)
    assert verdict.outcome == "cannot_judge", verdict
    assert "the capture of mine lost 3 tensors" in said(verdict)


@pytest.mark.parametrize("level", ["operator", "module"])
def test_weights_that_mine_has_nothing_for(golden: Path, tmp_path: Path, level: str) -> None:
    verdict = assay.locate(golden, capture(tmp_path / "mine", level=level, exclude="mix"))
    assert verdict.outcome == "cannot_judge", verdict
    assert "1 weight of golden's had no partner in the run under test, first mix.weight" in said(verdict)


def test_modules_that_were_not_seen_to_run_lower_the_confidence(golden: Path, tmp_path: Path) -> None:
    """As of compiled modules: their weights are captured, their operators are not."""
    from torch.utils._python_dispatch import _disable_current_modes

    def hidden(model: Tiny) -> None:
        for module in (model.mix, model.norm):
            plain = module.forward

            def forward(x: torch.Tensor, plain: Any = plain) -> torch.Tensor:
                with _disable_current_modes():
                    return plain(x)

            module.forward = forward

    verdict = assay.locate(golden, capture(tmp_path / "mine", change=hidden))
    assert verdict.outcome == "clean", verdict
    assert verdict.confidence != "high"
    assert "more are judged by the values around them" in said(verdict)
    assert verdict.coverage["without_partner"] > 0
    wrong = assay.locate(golden, capture(tmp_path / "wrong", change=lambda model: (hidden(model), halve(model.norm))))
    assert wrong.first_bad is not None
    assert wrong.first_bad.module == "norm", wrong


def halve(module: torch.nn.Module) -> None:
    plain = module.forward
    module.forward = lambda x: plain(x) * 0.5


@pytest.mark.parametrize("level", ["operator", "module"])
def test_clean_says_which_error_would_have_been_seen(golden: Path, tmp_path: Path, level: str) -> None:
    """An error twice as large is named, and one a tenth as large is not; bfloat16 rounds to 0.2 %."""

    def louder(share: float) -> Any:
        return lambda model: model.head.register_forward_hook(
            lambda _, __, result: (result.float() * (1 + share)).bfloat16()
        )

    healthy = assay.locate(golden, capture(tmp_path / "mine", level=level))
    power = healthy.to_dict()["power"]
    assert 0.002 < power["error"] < 0.02
    assert "of a value would have been seen" in said(healthy)
    if level == "module":
        named = assay.locate(golden, capture(tmp_path / "twice", level=level, change=louder(2 * power["error"])))
        assert named.outcome == "first_wrong", named
    unseen = assay.locate(golden, capture(tmp_path / "tenth", level=level, change=louder(power["error"] / 10)))
    assert unseen.outcome == "clean", unseen


@pytest.mark.parametrize(
    "options", [{"level": "module", "inputs": False}, {"level": "module", "include": ["embed", "head"]}]
)
def test_other_tokens_show_in_what_was_looked_up(golden: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    other = [3, 1, 4, 7, 5, 9, 2, 6]
    verdict = assay.locate(golden, capture(tmp_path / "mine", other, **options))
    assert verdict.outcome == "cannot_judge", verdict
    assert "mine was not given what golden was" in said(verdict)
    assert "7 " in said(verdict)


def test_statistics_of_the_tokens_tell_that_they_are_others(tmp_path: Path) -> None:
    floors = []
    for number in range(5):
        prompt = [(3 * place + number) % 16 for place in range(8)]
        sides = [
            capture(tmp_path / f"{name}{number}", prompt, dtype=dtype, level="module", data="stats")
            for name, dtype in (("golden", torch.float32), ("mine", torch.bfloat16))
        ]
        floors.append((sides[0], sides[1]))
    golden = capture(tmp_path / "golden", dtype=torch.float32, level="module", data="stats")
    other = capture(tmp_path / "other", [3, 1, 4, 7, 5, 9, 2, 6], level="module", data="stats")
    verdict = assay.locate(golden, other, floor_runs=floors)
    assert verdict.outcome == "cannot_judge", verdict
    assert "input_ids has other values than golden's, by its statistics" in said(verdict)


class BothWays(torch.nn.Module):
    """Each position reads all others, as in an encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.wte = torch.nn.Embedding(16, 32)
        self.mix = torch.nn.Linear(32, 32, bias=False)
        self.head = torch.nn.Linear(32, 16, bias=False)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """[batch, positions] to [batch, positions, 16]."""
        hidden = self.wte(input_ids)
        return self.head(hidden + self.mix(hidden.mean(1, keepdim=True)))


@pytest.mark.parametrize("level", ["operator", "module"])
def test_other_tokens_of_an_encoder_are_no_step_cut_elsewhere(tmp_path: Path, level: str) -> None:
    # The first three tokens are those of golden, but what is made of them is not: it depends on the others, too.
    torch.manual_seed(5)
    model = BothWays().bfloat16().eval()
    for name, tokens, form in (("golden", PROMPT, "operator"), ("mine", [3, 1, 4, 7, 5, 9, 2, 6], level)):
        with torch.no_grad(), assay.capture(model, tmp_path / name, level=form, weights=True):
            model(input_ids=torch.tensor([tokens]))
    verdict = assay.locate(tmp_path / "golden", tmp_path / "mine")
    assert verdict.outcome == "cannot_judge", verdict
    assert "input_ids differs first at [0, 3]: 7 against golden's 1" in said(verdict)


class Turning(torch.nn.Module):
    """Rotates its values by angles of their positions, as pairs of complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(16, 32)
        self.turn = torch.nn.Module()
        self.turn.forward = lambda places: torch.polar(
            torch.ones(8, 16), places[:, None] * (10.0 ** -torch.arange(16.0))
        )
        self.head = torch.nn.Linear(32, 16, bias=False)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """[1, 8] to [1, 8, 16]."""
        x = self.embed(input_ids)
        pairs = torch.view_as_complex(x.float().reshape(1, 8, 16, 2)) * self.turn(torch.arange(8.0))
        return self.head(torch.view_as_real(pairs).flatten(2).to(x.dtype))


@pytest.mark.parametrize("options", [{"level": "operator"}, {"level": "module"}, {"level": "module", "inputs": False}])
def test_complex_numbers_are_judged(tmp_path: Path, options: dict[str, Any]) -> None:
    def turned(folder: Path, dtype: torch.dtype, wrong: bool = False, **chosen: Any) -> Path:
        torch.manual_seed(5)
        model = Turning().bfloat16().to(dtype).eval()
        if wrong:
            right = model.turn.forward
            model.turn.forward = lambda places: right(places + 1)
        with torch.no_grad(), assay.capture(model, folder, weights=True, **chosen):
            model(torch.tensor([PROMPT]))
        return folder

    golden = turned(tmp_path / "golden", torch.float32, level="operator")
    healthy = assay.locate(golden, turned(tmp_path / "mine", torch.bfloat16, **options))
    assert healthy.outcome == "clean", healthy
    wrong = assay.locate(golden, turned(tmp_path / "wrong", torch.bfloat16, wrong=True, **options))
    assert wrong.first_bad is not None
    assert wrong.first_bad.module == "turn", wrong


@pytest.mark.parametrize("inputs", [True, False])
def test_more_tokens_are_told_by_the_embedding_alone(golden: Path, tmp_path: Path, inputs: bool) -> None:
    """The root module was not captured, so only the module that looks tokens up was seen to get two more of them."""
    mine = capture(
        tmp_path / "mine", [0, 0, *PROMPT], level="module", include=["embed", "mix", "norm", "head"], inputs=inputs
    )
    verdict = assay.locate(golden, mine)
    assert verdict.outcome == "cannot_judge"
    which = "input" if inputs else "output"
    assert f"the {which} of embed has shape [1, 10" in said(verdict)
