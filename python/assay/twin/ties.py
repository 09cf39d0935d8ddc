# SPDX-License-Identifier: Apache-2.0
"""Where a router of experts can hardly choose: between two of them lies less than rounding moves their scores.

At such a token a healthy program may take the other expert, and all that follows differs. A twin says where its own
prompts have such ties.
"""

from __future__ import annotations

import copy
import dataclasses
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from assay.twin import places, prompt_set

ROUNDING = torch.bfloat16  # the coarsest type that programs compute in
SPREADS = 3.0  # so many root mean squares of what rounding does


@dataclass(frozen=True)
class Tie:
    """One token at one router.

    Attributes:
        prompt: its name.
        token: its number in the prompt's tokens.
        router: path of the module.
        experts: the last that is chosen, and the first that is not.
        margin: between their scores.
        rounding: how far bfloat16 moves such a margin, root mean square over the prompt.
    """

    prompt: str
    token: int
    router: str
    experts: tuple[int, int]
    margin: float
    rounding: float

    def values(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def find(model: Any, wanted: list[prompt_set.Prompt]) -> list[Tie]:
    """The ties of all prompts; of models without routers none."""
    routers = [
        path
        for path, module in model.named_modules()
        if places.is_router(path, module) or path.endswith(".router.layer")  # the latter is DBRX's
    ]
    per_token = _per_token(model.config.to_dict())
    if not routers or not per_token:
        return []
    rounded = copy.deepcopy(model).to(ROUNDING)
    groups, kept = getattr(model.config, "n_group", None) or 1, getattr(model.config, "topk_group", None) or 1
    found: list[Tie] = []
    for prompt in wanted:
        exact, moved = _scores(model, routers, prompt), _scores(rounded, routers, prompt)
        for router in routers:
            if groups > 1:  # DeepSeek's: first groups are chosen, then experts in them
                found += _of_groups(prompt, router, exact[router], moved[router], groups, kept)
                exact[router] = _in_groups(exact[router], groups, kept)
            found += _of_router(prompt, router, exact[router], moved[router], per_token)
    return found


def _per_token(config: dict[str, Any]) -> int:
    """How many experts a token takes; DBRX says so one level down."""
    for values in (config, config.get("ffn_config")):
        for name in ("num_experts_per_tok", "moe_top_k"):
            if isinstance(values, dict) and isinstance(values.get(name), int):
                return int(values[name])
    return 0


def _of_router(
    prompt: prompt_set.Prompt, router: str, exact: torch.Tensor, moved: torch.Tensor, per_token: int
) -> list[Tie]:
    """Ties of [tokens, experts]: the last that is chosen and the first that is not could change places.

    What counts is how far rounding moves the difference of the two: what moves all scores alike changes no choice.
    """
    if per_token >= exact.shape[1]:
        return []
    order = exact.argsort(dim=1, descending=True)
    pairs = order[:, per_token - 1 : per_token + 1]
    margins, moved_margins = (-scores.gather(1, pairs).diff(dim=1)[:, 0] for scores in (exact, moved))
    rounding = float((margins - moved_margins)[prompt.padding :].pow(2).mean().sqrt())
    return [
        Tie(prompt.name, token, router, (int(pairs[token, 0]), int(pairs[token, 1])), float(margins[token]), rounding)
        for token in range(prompt.padding, exact.shape[0])
        if float(margins[token]) < SPREADS * rounding or float(moved_margins[token]) < 0
    ]


def _group_scores(scores: torch.Tensor, groups: int) -> torch.Tensor:
    """[tokens, groups]: the sum of the two best of each."""
    return scores.sigmoid().view(scores.shape[0], groups, -1).topk(2, dim=-1)[0].sum(-1)


def _in_groups(scores: torch.Tensor, groups: int, kept: int) -> torch.Tensor:
    """The scores of experts in groups that are chosen; those of others are minus infinity."""
    chosen = _group_scores(scores, groups).topk(kept, dim=-1)[1]
    out = torch.ones(scores.shape[0], groups, dtype=torch.bool).scatter_(1, chosen, False)
    return scores.masked_fill(out.repeat_interleave(scores.shape[1] // groups, dim=1), float("-inf"))


def _of_groups(
    prompt: prompt_set.Prompt, router: str, exact: torch.Tensor, moved: torch.Tensor, groups: int, kept: int
) -> list[Tie]:
    """Ties between groups, named by the best expert of each."""
    size = exact.shape[1] // groups
    best = exact.view(exact.shape[0], groups, size).argmax(-1)
    found = []
    for tie in _of_router(prompt, router, _group_scores(exact, groups), _group_scores(moved, groups), kept):
        first, second = (group * size + int(best[tie.token, group]) for group in tie.experts)
        found.append(dataclasses.replace(tie, experts=(first, second)))
    return found


def _scores(model: Any, routers: list[str], prompt: prompt_set.Prompt) -> dict[str, torch.Tensor]:
    """What each router makes of its input, [tokens, experts]: the product with its weights, in float32."""
    seen: dict[str, list[torch.Tensor]] = {path: [] for path in routers}

    def look(path: str, router: Any, inputs: tuple[Any, ...]) -> None:
        x = inputs[0].reshape(-1, inputs[0].shape[-1]).float()
        bias = getattr(router, "bias", None)
        seen[path].append(torch.nn.functional.linear(x, router.weight.float(), None if bias is None else bias.float()))

    with ExitStack() as hooks:
        for path in routers:
            router = model.get_submodule(path)
            hook = router.register_forward_pre_hook(lambda module, inputs, path=path: look(path, module, inputs))
            hooks.callback(hook.remove)
        prompt_set.run(model, prompt)
    return {path: torch.cat(scores) if scores else torch.zeros(0, 0) for path, scores in seen.items()}
