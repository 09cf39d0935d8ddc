# SPDX-License-Identifier: Apache-2.0
"""What a twin is like, measured while it runs its prompts: outliers, gains, attention, the largest activation."""

from __future__ import annotations

import copy
from contextlib import ExitStack
from typing import Any, Optional

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from assay.twin import places, prompt_set

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def outliers(model: Any, wanted: list[prompt_set.Prompt]) -> list[list[float]]:
    """For each layer the channels of its output, their root mean square in parts of the usual channel's."""
    found = places.of(model)
    seen: list[list[torch.Tensor]] = [[] for _ in range(found.layers)]
    with ExitStack() as hooks:
        for number in range(found.layers):
            hook = model.get_submodule(found.layer.format(number)).register_forward_hook(
                lambda _, __, result, number=number: seen[number].append(_rows(result))
            )
            hooks.callback(hook.remove)
        for prompt in wanted:
            prompt_set.run(model, prompt)
    sizes = [torch.cat(rows).pow(2).mean(0).sqrt() for rows in seen]
    return [(size / size.median().clamp(min=1e-12)).tolist() for size in sizes]


def _rows(result: Any) -> torch.Tensor:
    tensor: torch.Tensor = result[0] if isinstance(result, (tuple, list)) else result
    return tensor.float().reshape(-1, tensor.shape[-1])


def gain_spread(model: Any) -> Optional[float]:
    """The median norm's standard deviation of the logarithm of its gains; None without norms that have gains."""
    spreads = []
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if places.is_norm(module) and isinstance(weight, torch.Tensor) and weight.dim() == 1:
            plain = weight.detach()
            gains = plain.abs() if float(plain.median()) > 0.4 else (1 + plain).abs()  # Gemma adds one
            spreads.append(float(gains.clamp(min=1e-3).log().std()))
    return sorted(spreads)[len(spreads) // 2] if spreads else None


def attention(eager: Any, prompt: prompt_set.Prompt) -> Optional[dict[str, float]]:
    """How heads look: the share of heads that give the first token most, and of those that look at one place only.

    None where attention gives no probabilities (state spaces).
    """
    with torch.no_grad():
        tokens = torch.tensor([prompt.tokens])
        try:
            seen = eager(input_ids=tokens, output_attentions=True).get("attentions")
        except (RuntimeError, TypeError, ValueError, AttributeError):
            return None  # transformers cannot give them for this architecture
    size = len(prompt.tokens)
    maps = [one[0].float() for one in seen or () if isinstance(one, torch.Tensor) and one.shape[2:] == (size, size)]
    if not maps:
        return None
    heads = torch.cat([one[:, 4:] for one in maps])  # [heads of all layers, later queries, keys]
    to_first = heads[..., 0].mean(-1)
    sharpest = heads.amax(-1).median(-1)[0]
    return {
        "largest_share_of_first_token": round(float(to_first.max()), 3),
        "heads_on_first_token": round(float((to_first > 0.5).float().mean()), 3),
        "saturated_heads": round(float((sharpest > 0.9).float().mean()), 3),
    }


class _Infinities(TorchDispatchMode):
    """Notes whether an operator makes a positive infinity of float16; negative ones are those of masks."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float16:
                self.found = self.found or bool(torch.isposinf(tensor).any())
        return result


def overflows(model: Any, wanted: list[prompt_set.Prompt]) -> bool:
    """Whether an operator inside a module passes the limit of float16, as a cube in front of a tanh that hides it."""
    half = copy.deepcopy(model).to(torch.float16)
    seen = _Infinities()
    with seen:
        for prompt in wanted:
            prompt_set.run(half, prompt)
    return seen.found


def largest_activation(model: Any, kind: str, wanted: list[prompt_set.Prompt]) -> tuple[float, str, bool]:
    """The largest value that a module takes or gives, where, and whether all logits of tokens are finite."""
    typed = copy.deepcopy(model).to(TYPES[kind])
    largest, where = 0.0, ""

    def look(path: str, inputs: tuple[Any, ...], result: Any) -> None:
        nonlocal largest, where
        for value in (*inputs, *(result if isinstance(result, tuple) else (result,))):
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
                peak = float(value.detach().abs().nan_to_num(float("inf")).max())
                if peak > largest:
                    largest, where = peak, path

    finite = True
    with ExitStack() as hooks:
        for path, module in typed.named_modules():
            if path and not any(True for _ in module.children()):
                hook = module.register_forward_hook(lambda _, given, result, path=path: look(path, given, result))
                hooks.callback(hook.remove)
        for prompt in wanted:
            finite &= bool(prompt_set.run(typed, prompt)[:, prompt.padding :].isfinite().all())
    return largest, where, finite
