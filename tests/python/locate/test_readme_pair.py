# SPDX-License-Identifier: Apache-2.0
"""The README's two captures of a plain bfloat16 copy are clean: operators of one run, modules and weights of the other.

A rotary embedding keeps a second copy of its frequencies, and some kinds make new ones on the way: buffers that nothing
reads, or that are rewritten before they are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import assay  # noqa: E402

BASE = {"rope_theta": 10_000.0}
ROTARY: dict[str, Optional[dict[str, Any]]] = {
    "default": None,
    "linear": {"rope_type": "linear", "factor": 2.0, **BASE},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0, **BASE},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, **BASE},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
        **BASE,
    },
    "longrope": {
        "rope_type": "longrope",
        "short_factor": [1.0 + 0.1 * i for i in range(8)],
        "long_factor": [1.0 + 0.5 * i for i in range(8)],
        "factor": 4.0,
        "original_max_position_embeddings": 32,
        **BASE,
    },
}
SHORT, LONG = 16, 48  # within and beyond the 32 positions that the kinds were made for


def llama(kind: str) -> Any:
    """Random weights, gains that are not all one."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
        max_position_embeddings=32 if kind == "dynamic" else 128,
        initializer_range=0.1,
        rope_parameters=ROTARY[kind],
    )
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def tokens(count: int) -> Any:
    return torch.randint(0, 64, (1, count), generator=torch.Generator().manual_seed(count))


def capture(model: Any, path: Path, count: int, warm_up: Sequence[int] = (), **options: Any) -> str:
    with torch.no_grad():
        for other in warm_up:
            model(tokens(other), use_cache=False)
        with assay.capture(model, path, **options):
            model(tokens(count), use_cache=False)
    return str(path)


def check_clean(golden: str, mine: str) -> None:
    verdict = assay.locate(golden, mine)
    assert verdict.outcome == "clean", verdict


@pytest.mark.parametrize("count", [SHORT, LONG])
@pytest.mark.parametrize("kind", ROTARY)
def test_a_plain_copy_is_clean(tmp_path: Path, kind: str, count: int) -> None:
    golden = capture(llama(kind), tmp_path / "golden", count, level="operator")
    check_clean(golden, capture(llama(kind).bfloat16(), tmp_path / "mine", count, weights=True))
    check_clean(golden, capture(llama(kind).bfloat16(), tmp_path / "all", count, level="operator", weights=True))


class Mean(torch.nn.Module):
    """A layer whose name is not the same in all versions of a program."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        torch.manual_seed(1)
        self.add_module(name, torch.nn.Linear(32, 32))
        self.head = torch.nn.Linear(32, 16)
        self.register_buffer("spare", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(getattr(self, self.name)(x))


def test_a_weight_that_may_be_golden_s_under_another_name_still_counts(tmp_path: Path) -> None:
    """By what it computes: its two tensors are not said to be those of golden, and a wrong one is named."""
    x = torch.randn(4, 32, generator=torch.Generator().manual_seed(2))
    for name, options in (("mix", {"level": "operator"}), ("blend", {"weights": True}), ("wrong", {"weights": True})):
        model = Mean(name)
        with torch.no_grad(), assay.capture(model, tmp_path / name, **options):
            if name == "wrong":
                model.wrong.weight *= 1.01
            model(x)
    verdict = assay.locate(tmp_path / "mix", tmp_path / "blend")
    assert (verdict.outcome, verdict.confidence) == ("clean", "medium"), verdict
    assert "2 of 5 weights are golden's, the others compute what other weights" in " ".join(str(verdict).split())
    # What lies between the values around it is told by its golden name.
    accused = assay.locate(tmp_path / "mix", tmp_path / "wrong")
    assert (accused.outcome, accused.first_bad.module) == ("first_wrong", "mix"), accused
    assert "a constant factor 1.01" in " ".join(str(accused).split())
