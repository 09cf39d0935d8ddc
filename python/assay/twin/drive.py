# SPDX-License-Identifier: Apache-2.0
"""How a model is run: a prompt, and then steps of one token each through a cache.

The tokens of all steps are given, so that two runs see the same ones whatever they would have answered.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Optional

import torch

Between = Callable[[int, Any], None]


def run(
    model: torch.nn.Module,
    tokens: torch.Tensor,
    steps: int = 0,
    *,
    first: int = 0,
    static: bool = False,
    cached: bool = False,
    padding: int = 0,
    counted: bool = False,
    between: Optional[Between] = None,
) -> torch.Tensor:
    """Runs the model; returns the logits of all steps, one after the other.

    Args:
        tokens: [batch, all of them]; the last `steps` are given one by one.
        first: position of the first token.
        static: the cache is a static one.
        cached: ask for a cache although nothing is read from it.
        padding: tokens in front that a mask hides.
        counted: positions are counted from the first token behind the padding, where the model takes positions.
        between: called before each step of one token, with its number from 1 and the cache.
    """
    accepts = inspect.signature(model.forward).parameters
    placed = functools.partial(_placed, accepts, tokens.device, first=first, padding=padding, counted=counted)
    count = tokens.shape[1] - steps
    given: dict[str, Any] = {"use_cache": bool(steps) or cached} if "use_cache" in accepts else {}
    if static:
        given["past_key_values"] = _static(model, tokens.shape[1])
    result = model(input_ids=tokens[:, :count], **given, **placed(0, count))
    logits: list[torch.Tensor] = [result[0]]
    for step in range(1, steps + 1):
        name = "past_key_values" if result.get("past_key_values") is not None else "cache_params"
        cache = result[name]
        if between is not None:
            between(step, cache)
        at = count + step - 1
        more = {**given, name: cache, **placed(at, 1)}
        result = model(input_ids=tokens[:, at : at + 1], **more)
        logits.append(result[0])
    return torch.cat(logits, dim=1)


def _placed(
    accepts: Any, device: torch.device, at: int, count: int, first: int, padding: int, counted: bool
) -> dict[str, Any]:
    """Positions and the mask, where they are not what the model assumes."""
    placed: dict[str, Any] = {}
    if (first or (padding and counted)) and "position_ids" in accepts:
        hidden = padding if counted else 0
        positions = torch.arange(at - hidden, at - hidden + count, device=device).clamp(min=0)
        placed["position_ids"] = first + positions[None]
    if padding:
        mask = torch.ones(1, at + count, dtype=torch.long, device=device)
        mask[:, :padding] = 0
        placed["attention_mask"] = mask
    return placed


def _static(model: torch.nn.Module, length: int) -> Any:
    from transformers import StaticCache

    config: Any = model.config
    return StaticCache(config=config, max_cache_len=length)
