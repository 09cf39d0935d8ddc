# SPDX-License-Identifier: Apache-2.0
"""What the verdict says of tokens and distributions, against torch: choices, margins, noise, KL, padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import assay  # noqa: E402

VOCABULARY = 300
STEPS = 3


class Model(torch.nn.Module):
    """Logits that are nearly equal, so that bfloat16 chooses other tokens here and there."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.embed = torch.nn.Embedding(VOCABULARY, 48)
        self.mix = torch.nn.Linear(48, 48)
        self.lm_head = torch.nn.Linear(48, VOCABULARY, bias=False)

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        return self.lm_head(torch.tanh(self.mix(self.embed(input_ids))))


def inputs(step: int) -> tuple[Any, Any]:
    """Two sequences; the second begins with two tokens of padding."""
    ids = torch.randint(1, VOCABULARY, (2, 150), generator=torch.Generator().manual_seed(step))
    mask = torch.ones_like(ids)
    mask[1, :2] = 0
    return ids, mask


def capture(dtype: Any, path: Path) -> list[Any]:
    model = Model().to(dtype)
    logits = []
    with torch.no_grad(), assay.capture(model, path, steps=range(STEPS), level="operator", weights=True):
        for step in range(STEPS):
            ids, mask = inputs(step)
            logits.append(model(input_ids=ids, attention_mask=mask).double())
    return logits


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[Any], list[Any]]:
    folder = tmp_path_factory.mktemp("tokens")
    golden = capture(torch.float32, folder / "golden")
    mine = capture(torch.bfloat16, folder / "mine")
    return assay.locate(str(folder / "golden"), str(folder / "mine")), golden, mine


def rows_of(logits: list[Any]) -> tuple[Any, Any]:
    """All rows that are no padding, and (step, sequence, position) of each."""
    rows, places = [], []
    for step, values in enumerate(logits):
        mask = inputs(step)[1]
        for sequence, position in torch.nonzero(mask).tolist():
            rows.append(values[sequence, position])
            places.append((step, sequence, position))
    return torch.stack(rows), places


def test_choices_margins_and_noise_are_those_of_torch(case: tuple[Any, list[Any], list[Any]]) -> None:
    verdict, golden, mine = case
    tokens = verdict.tokens
    assert verdict.outcome == "clean", str(verdict)
    g, places = rows_of(golden)
    m, _ = rows_of(mine)
    assert tokens["positions"] == len(g) == STEPS * 298
    assert tokens["padding"] == STEPS * 2
    other = torch.nonzero(g.argmax(-1) != m.argmax(-1)).flatten().tolist()
    assert len(other) >= 2, "the case must have near ties"
    assert tokens["other_choices"] == tokens["near_ties"] == len(other)
    difference = m - g
    spread = (difference - difference.mean(-1, keepdim=True)).square().mean(-1)
    for choice, row in zip(tokens["choices"], other, strict=True):
        assert (choice["step"], choice["sequence"], choice["position"]) == places[row]
        assert choice["golden_token"] == g[row].argmax()
        assert choice["my_token"] == m[row].argmax()
        best = g[row].topk(2).values
        assert choice["margin"] == pytest.approx((best[0] - best[1]).item(), rel=1e-6)
        # bfloat16 has 8 bits: the step at 2^e is 2^(e - 7)
        step = 2.0 ** (torch.frexp(m[row].max()).exponent.item() - 8)
        assert choice["noise"] == pytest.approx((spread[row].item() + step**2 / 12) ** 0.5, rel=1e-3)
    largest = max(choice["margin"] / choice["noise"] for choice in tokens["choices"])
    assert tokens["largest_margin_of_noise"] == pytest.approx(largest)
    assert f"; {len(other)} near ties chose other tokens, margin {largest:.2g} of the noise" in verdict.sentence


def test_divergence_is_that_of_torch(case: tuple[Any, list[Any], list[Any]]) -> None:
    verdict, golden, mine = case
    tokens = verdict.tokens
    g, _ = rows_of(golden)
    m, _ = rows_of(mine)
    kl = torch.nn.functional.kl_div(m.log_softmax(-1), g.log_softmax(-1), reduction="none", log_target=True).sum(-1)
    same = g.argmax(-1) == m.argmax(-1)
    assert tokens["kl_mean"] == pytest.approx(kl.mean().item(), rel=1e-6)
    assert tokens["kl_max"] == pytest.approx(kl.max().item(), rel=1e-6)
    assert tokens["kl_mean_without_ties"] == pytest.approx(kl[same].mean().item(), rel=1e-6)
    assert tokens["kl_max_without_ties"] == pytest.approx(kl[same].max().item(), rel=1e-6)
