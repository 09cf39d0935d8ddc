# SPDX-License-Identifier: Apache-2.0
"""Faults that leave every operator exact: what stands between operators is not what the golden program puts there."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from bench import record_lines, sealing

import assay

WIDTH, HEADS, LAYERS, WINDOW = 64, 4, 4, 6
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
NEXT = [5, 3, 5]  # one step each, the same in both runs


class Attention(nn.Module):
    """Causal attention with keys and values in a preallocated cache, written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.v_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.o_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.keys: Optional[torch.Tensor] = None
        self.values: Optional[torch.Tensor] = None
        self.around_softmax: Callable[[torch.Tensor], torch.Tensor] = lambda p: p

    def forward(self, x: torch.Tensor, start: int) -> torch.Tensor:
        """[batch, tokens, WIDTH] at positions start and on."""
        batch, tokens, _ = x.shape
        q, k, v = (proj(x).view(batch, tokens, HEADS, -1) for proj in (self.q_proj, self.k_proj, self.v_proj))
        if self.keys is None or self.values is None:
            self.keys = torch.zeros(batch, len(PROMPT) + len(NEXT), *k.shape[2:], dtype=x.dtype)
            self.values = torch.zeros_like(self.keys)
        self.keys[:, start : start + tokens] = k
        self.values[:, start : start + tokens] = v
        keys, values = self.keys[:, : start + tokens], self.values[:, : start + tokens]
        scores = torch.einsum("bqhd,bkhd->bhqk", q, keys) / math.sqrt(q.shape[-1])
        hidden = torch.arange(start + tokens)[None] > torch.arange(start, start + tokens)[:, None]
        p = self.around_softmax(torch.softmax(scores.masked_fill(hidden, -1e4), -1))
        return self.o_proj(torch.einsum("bhqk,bkhd->bqhd", p, values).reshape(batch, tokens, WIDTH))


class Window(Attention):
    """The same with caches that grow and keep the last WINDOW positions."""

    kept = WINDOW

    def forward(self, x: torch.Tensor, start: int) -> torch.Tensor:
        """As of Attention."""
        batch, tokens, _ = x.shape
        q, k, v = (proj(x).view(batch, tokens, HEADS, -1) for proj in (self.q_proj, self.k_proj, self.v_proj))
        self.keys = k if self.keys is None else torch.cat([self.keys, k], 1)[:, -self.kept :]
        self.values = v if self.values is None else torch.cat([self.values, v], 1)[:, -self.kept :]
        scores = torch.einsum("bqhd,bkhd->bhqk", q, self.keys) / math.sqrt(q.shape[-1])
        seen = scores.shape[-1]
        hidden = torch.arange(seen)[None] > torch.arange(seen - tokens, seen)[:, None]
        p = torch.softmax(scores.masked_fill(hidden, -1e4), -1)
        return self.o_proj(torch.einsum("bhqk,bkhd->bqhd", p, self.values).reshape(batch, tokens, WIDTH))


class Block(nn.Module):
    def __init__(self, attention: type[Attention]) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)
        self.attn = attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.SiLU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor, start: int) -> torch.Tensor:
        x = x + self.attn(self.norm(x), start)
        return x + self.mlp(x)


class Model(nn.Module):
    def __init__(self, attention: type[Attention]) -> None:
        super().__init__()
        self.embed = nn.Embedding(16, WIDTH)
        self.layers = nn.ModuleList(Block(attention) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 16, bias=False)

    def forward(self, input_ids: torch.Tensor, start: int) -> torch.Tensor:
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x, start)
        return self.head(x)


def capture(
    folder: Path,
    dtype: torch.dtype,
    level: str,
    fault: Callable[[Model], Any] = lambda model: None,
    between: Callable[[Model], Any] = lambda model: None,
    attention: type[Attention] = Attention,
    **options: Any,
) -> Path:
    """fault: changes the model before the first step; between: before the last."""
    torch.manual_seed(11)
    model = Model(attention).bfloat16().to(dtype).eval()
    fault(model)
    with torch.no_grad(), assay.capture(model, folder, level=level, weights=True, **options):
        model(torch.tensor([PROMPT]), 0)
        for i, token in enumerate(NEXT):
            if i == len(NEXT) - 1:
                between(model)
            model(torch.tensor([[token]]), len(PROMPT) + i)
    return folder


def through(narrow: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: x.to(narrow).to(x.dtype)


def value_through_fp8(model: Model) -> None:
    proj = model.layers[1].attn.v_proj
    plain = proj.forward
    proj.forward = lambda x: through(torch.float8_e4m3fn)(plain(x))


def softmax_through_fp8(model: Model) -> None:
    model.layers[1].attn.around_softmax = through(torch.float8_e4m3fn)


def one_module_under_autocast(model: Model) -> None:
    mlp = model.layers[1].mlp
    plain = mlp.forward

    def forward(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return plain(x).to(x.dtype)

    mlp.forward = forward


def slot_overwritten(model: Model) -> None:
    """What no operator of the model does, as another request that was given the same slot would."""
    keys = model.layers[1].attn.keys
    assert keys is not None
    keys.data[:, 2] = keys.data[:, 5].clone() * -2


FAULTS = {
    "value projection through fp8": (torch.bfloat16, {"fault": value_through_fp8}, "layers.1.attn"),
    "softmax through fp8": (torch.bfloat16, {"fault": softmax_through_fp8}, "layers.1.attn"),
    "one module of fp32 under autocast": (torch.float32, {"fault": one_module_under_autocast}, "layers.1.mlp"),
    "a slot of the cache overwritten": (torch.bfloat16, {"between": slot_overwritten}, "layers.1.attn"),
}


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """float32, every operator, all steps."""
    return capture(tmp_path_factory.mktemp("golden") / "run", torch.float32, "operator")


@pytest.mark.disagrees_with_itself("something writes between its operators")
@pytest.mark.parametrize("level", ["operator", "module"])
@pytest.mark.parametrize("kind", FAULTS)
def test_what_no_operator_shows_is_named(golden: Path, tmp_path: Path, kind: str, level: str) -> None:
    dtype, planted, place = FAULTS[kind]
    verdict = assay.locate(golden, capture(tmp_path / "mine", dtype, level, **planted))
    assert verdict.outcome == "first_wrong", verdict
    assert verdict.first_bad is not None
    assert verdict.first_bad.module.startswith(place), verdict


@pytest.mark.parametrize("level", ["operator", "module"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_same_program_is_clean(golden: Path, tmp_path: Path, dtype: torch.dtype, level: str) -> None:
    verdict = assay.locate(golden, capture(tmp_path / "mine", dtype, level))
    assert verdict.outcome == "clean", verdict


def evicted_too_early(model: Model) -> None:
    model.layers[1].attn.kept = WINDOW - 1


def block_exchanged(model: Model) -> None:
    attn = model.layers[1].attn
    assert attn.keys is not None
    attn.keys = attn.keys.clone().roll(1, 1)


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As golden, with caches that grow and forget."""
    return capture(tmp_path_factory.mktemp("windowed") / "run", torch.float32, "operator", attention=Window)


@pytest.mark.parametrize("options", [{"level": "operator"}, {"level": "module"}, {"level": "module", "inputs": False}])
@pytest.mark.parametrize(
    "planted",
    [{"fault": evicted_too_early}, {"between": slot_overwritten}, {"between": block_exchanged}],
    ids=["evicted too early", "overwritten", "exchanged"],
)
def test_a_cache_that_nobody_was_seen_to_write(
    windowed: Path, tmp_path: Path, planted: dict[str, Any], options: dict[str, Any]
) -> None:
    verdict = assay.locate(windowed, capture(tmp_path / "mine", torch.bfloat16, attention=Window, **options, **planted))
    assert verdict.outcome == "first_wrong", verdict
    assert verdict.first_bad is not None
    assert verdict.first_bad.module.startswith("layers.1.attn"), verdict


def test_outputs_that_nobody_captured_are_not_clean(golden: Path, tmp_path: Path) -> None:
    """98 % of the operators were judged; the fault may be in the others, which make the outputs."""
    mine = capture(tmp_path / "mine", torch.bfloat16, "module")
    records = mine / "rank0" / "records.jsonl"
    lines = record_lines.read(records)
    kept = [line for line in lines if line["node"] not in ("head", "") or line["role"] in ("weight", "buffer")]
    records.write_text("".join(json.dumps(line) + "\n" for line in kept))
    sealing.reseal(mine, files=[])
    verdict = assay.locate(golden, mine)
    assert verdict.outcome == "cannot_judge", verdict
    said = " ".join(str(verdict).split())
    assert "what golden's model returns as its result, step 0 and 3 more, was not captured of mine" in said
