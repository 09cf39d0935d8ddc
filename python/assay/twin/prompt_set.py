# SPDX-License-Identifier: Apache-2.0
"""The prompts of a twin: few tokens, at places where faults hide.

Positions are reached by an offset, not by length. All tokens are given, those of decoding steps, too, so two programs
see the same ones whatever they would have answered.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Optional

import torch

from assay.twin import drive

PADDING = 5
NEAR = 300
FAR = 16_000


@dataclass(frozen=True)
class Prompt:
    """One sequence.

    Attributes:
        name: "plain", "padded", "offset" or "far".
        tokens: padding, the prompt and the decoded tokens.
        decoded: how many of the last tokens are given one by one, from a cache.
        first: position of the first token behind the padding.
        padding: tokens in front that the mask hides.
    """

    name: str
    tokens: list[int]
    decoded: int
    first: int = 0
    padding: int = 0

    def values(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class LeftOut:
    """What a family cannot do: the prompt's name, and a sentence."""

    name: str
    why: str

    def values(self) -> dict[str, Any]:
        return asdict(self)


def draw(model: torch.nn.Module, generator: torch.Generator, first_token: int) -> tuple[list[Prompt], list[LeftOut]]:
    """The prompts that this model can run, and those that it cannot."""
    made: list[Prompt] = []
    left_out: list[LeftOut] = []
    cached = True
    for prompt in _wanted(model, generator, first_token):
        found = prompt if isinstance(prompt, LeftOut) else _tried(model, prompt)
        if isinstance(found, LeftOut):
            left_out.append(found)
        else:
            made.append(found)
            cached &= found.decoded > 0
    if made and not cached:
        left_out.append(LeftOut("decoding", "the model keeps no cache"))
    return made, left_out


def run(model: Any, prompt: Prompt, between: Optional[drive.Between] = None) -> torch.Tensor:
    """Logits of all tokens, [1, tokens, vocabulary]; those at padding mean nothing."""
    device = next(model.parameters()).device
    tokens = torch.tensor([prompt.tokens], device=device)
    options = {"first": prompt.first, "padding": prompt.padding, "counted": True, "between": between}
    with torch.no_grad():
        return drive.run(model, tokens, prompt.decoded, **options)  # type: ignore[arg-type]


def _wanted(model: Any, generator: torch.Generator, first_token: int) -> Iterator[Prompt | LeftOut]:
    config = model.config
    accepts = inspect.signature(model.forward).parameters
    vocabulary = int(config.vocab_size)
    window = _window(config)

    def tokens(count: int, padding: int = 0) -> list[int]:
        drawn = torch.randint(min(3, vocabulary - 1), vocabulary, (count,), generator=generator).tolist()
        return [first_token] * padding + [first_token, *drawn[1:]]

    yield Prompt("plain", tokens(16 + 3), 3)
    padded = Prompt("padded", tokens(10 + 2, PADDING), 2, padding=PADDING)
    yield padded if "attention_mask" in accepts else LeftOut("padded", "the model takes no attention mask")
    length = max(24, window + 6) + 1
    offset, far = tokens(12 + 1), tokens(length)
    if "position_ids" not in accepts:
        for name in ("offset", "far"):
            yield LeftOut(name, "the model takes no positions")
        if window:
            yield Prompt("long", far, 1)
        return
    end = _positions(config)
    yield (
        Prompt("offset", offset, 1, NEAR)
        if end >= NEAR + len(offset)
        else LeftOut("offset", f"its positions end at {end}")
    )
    first = min(FAR, end - length)
    yield Prompt("far", far, 1, first) if first > 2 * NEAR else LeftOut("far", f"its positions end at {end}")


def _window(config: Any) -> int:
    """The tokens that a sliding window or a chunk of attention reaches back; 0 without one."""
    names = ("sliding_window", "attention_window_size", "window_size", "attention_chunk_size")
    windows = [getattr(config, name, None) for name in names]
    return max((window for window in windows if isinstance(window, int) and window <= 64), default=0)


def _positions(config: Any) -> int:
    """Where positions end: a table is so long, or the model was meant for so many."""
    for name in ("max_position_embeddings", "n_positions", "max_seq_len"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return 2**31


def _tried(model: torch.nn.Module, prompt: Prompt) -> Prompt | LeftOut:
    """The prompt as far as the model runs it: without decoding where it keeps no cache."""
    steps: list[int] = []
    try:
        run(model, prompt, lambda step, _: steps.append(step))
        return prompt
    except KeyError:
        if steps:
            raise
        return _tried(model, Prompt(prompt.name, prompt.tokens, 0, prompt.first, prompt.padding))
    except (IndexError, RuntimeError, TypeError, ValueError, AttributeError) as why:
        return LeftOut(prompt.name, f"transformers fails on it: {type(why).__name__}: {str(why).splitlines()[0][:150]}")
