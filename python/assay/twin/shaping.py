# SPDX-License-Identifier: Apache-2.0
"""Makes the random weights of a `transformers` model resemble trained ones.

Trained models have what random ones lack, and it is what makes rounding large in some places: a few channels of the
residual stream that are 20 to 100 times the others, gains of norms that spread like a log-normal, a first token that
most heads look at, heads that look at one place only, and experts that a router can hardly tell apart.

Everything is drawn from the seed, and whatever depends on the size of activations is set while one pass through the
model shows them, in fp32. The model stays what it is: only values of its parameters change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Optional

import torch

from assay.twin import places

OUTLIER = (20.0, 100.0)  # channels of the residual, times the root mean square of the others
SINK = 4.0  # what the first position adds to the scores, before the softmax
SHARP = 4.0  # factor of the queries of saturated heads
NEAR = 0.15  # what is left of the differences between rows of a router


@dataclass(frozen=True)
class Shape:
    """What was done; a test holds the model against it.

    Attributes:
        constant: the channel that every token has about the same of.
        first: the channel that only the first token has.
        outliers: all channels of the residual that stand out, these two among them.
    """

    constant: int
    first: int
    outliers: tuple[int, ...]


def shape(model: Any, seed: int, first_token: int, vocabulary: int, saturated: Optional[float] = None) -> Shape:
    """Changes the weights in place.

    Args:
        model: in fp32 and eval mode, with randomly drawn weights.
        first_token: what prompts begin with; it becomes the attention sink.
        vocabulary: tokens below it are drawn for the pass that shows activations.
        saturated: how far the scores of every third head spread; None: its queries are multiplied by SHARP.
    """
    draw = torch.Generator().manual_seed(seed)
    embedding: Any = model.get_input_embeddings()
    width = embedding.weight.shape[1]
    channels = torch.randperm(width, generator=draw)[: max(3, width // 64 + 2)].tolist()
    found = Shape(channels[0], channels[1], tuple(channels))
    with torch.no_grad():
        _embed(embedding.weight, found, first_token, draw)
        _gains(model, width, found, draw)
        _routers(model, draw)
        with _Calibration(model, found, draw, saturated) as calibration:
            ids = torch.randint(2, vocabulary, (1, 24), generator=draw)
            ids[0, 0] = first_token
            calibration.run(ids)
    return found


def _embed(weight: torch.Tensor, found: Shape, first_token: int, draw: torch.Generator) -> None:
    """Outlier channels of all tokens, and one that only the first token has."""
    usual = float(weight.pow(2).mean().sqrt())
    low, high = OUTLIER
    for channel in found.outliers:
        factor = low + (high - low) * float(torch.rand((), generator=draw)) * 0.5
        spread = 1 + 0.1 * torch.randn(weight.shape[0], generator=draw)
        weight[:, channel] = factor * usual * spread
    weight[:, found.first] = 0.3 * usual * torch.randn(weight.shape[0], generator=draw)
    weight[first_token, found.first] = high * usual


def _gains(model: torch.nn.Module, width: int, found: Shape, draw: torch.Generator) -> None:
    """Log-normal gains; those of outlier channels are small, as training makes them."""
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if "Norm" not in type(module).__name__ or not isinstance(weight, torch.Tensor) or weight.dim() != 1:
            continue
        centre = round(float(weight.mean()))  # Gemma's are about zero: one is added to them
        gains = torch.exp(0.5 * torch.randn(weight.shape, generator=draw))
        if weight.shape[0] == width:
            gains[list(found.outliers)] *= 0.1
        weight.copy_(gains - (1 - centre))


def _routers(model: torch.nn.Module, draw: torch.Generator) -> None:
    """Rows of routers are nearly parallel: scores of experts lie close together."""
    for path, module in model.named_modules():
        if places.is_router(path, module):
            weight: Any = module.weight
            common = torch.randn(weight.shape[1:], generator=draw) * weight.shape[1] ** -0.5
            weight.copy_(common + NEAR * weight)


# How queries and keys are told in one matrix: (rows of queries, rows of keys) of its outputs, given the head's width.
_Split = Callable[[int, int, Any], tuple[torch.Tensor, torch.Tensor]]


def _split_in_blocks(outputs: int, head: int, config: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries of all heads, then keys, then values."""
    heads = int(config.num_attention_heads)
    keys = 1 if getattr(config, "multi_query", False) else int(getattr(config, "num_key_value_heads", None) or heads)
    rows = torch.arange(outputs)
    return rows[: heads * head], rows[heads * head : (heads + keys) * head]


def _split_by_head(outputs: int, head: int, config: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries, key and value of the first group of heads, then those of the second; most have groups of one head."""
    groups = int(config.num_attention_heads)
    if getattr(config, "new_decoder_architecture", False):
        groups = int(config.num_kv_heads)
    elif getattr(config, "multi_query", False):
        groups = 1
    rows = torch.arange(outputs).view(groups, -1, head)
    return rows[:, :-2].flatten(), rows[:, -2].flatten()


_FUSED: dict[str, _Split] = {
    "qkv_proj": _split_in_blocks,
    "c_attn": _split_in_blocks,
    "Wqkv": _split_in_blocks,
    "query_key_value": _split_by_head,
}
_QUERIES = ("q_proj", "query")
_KEYS = ("k_proj", "key")
# Of latent attention (DeepSeek): queries of a small latent, and the rotary part of the keys, which all heads share.
_LATENT_QUERIES = "q_b_proj"
_LATENT_KEYS = "kv_a_proj_with_mqa"


class _Calibration:
    """One pass in which each projection is set when its input is known: so what layers before it do is in it."""

    def __init__(self, model: torch.nn.Module, found: Shape, draw: torch.Generator, saturated: Optional[float]) -> None:
        self._model = model
        self._saturated = saturated
        self._found = found
        self._draw = draw
        self._hooks: list[Any] = []
        embedding: Any = model.get_input_embeddings()  # type: ignore[operator]
        self._width = int(embedding.weight.shape[1])

    def __enter__(self) -> _Calibration:
        for path, module in self._model.named_modules():
            weight = getattr(module, "weight", None)
            if isinstance(weight, torch.Tensor) and weight.dim() == 2 and self._attends(path):
                self._hooks.append(module.register_forward_pre_hook(self._set))
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def run(self, ids: torch.Tensor) -> None:
        """The pass."""
        self._names = {module: path.rpartition(".")[2] for path, module in self._model.named_modules()}
        self._model(input_ids=ids)

    def _attends(self, path: str) -> bool:
        if not hasattr(self._config(), "num_attention_heads"):
            return False  # RWKV has keys, but no attention
        last = path.rpartition(".")[2]
        return last in (*_QUERIES, *_KEYS, *_FUSED, _LATENT_QUERIES, _LATENT_KEYS)

    def _set(self, module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        x = inputs[0] if inputs else None
        weight: Any = module.weight
        rows = weight.t() if type(module).__name__ == "Conv1D" else weight
        if not isinstance(x, torch.Tensor) or rows.shape[1] != x.shape[-1]:
            return
        name = self._names[module]
        head = self._head()
        of = torch.arange(rows.shape[0])
        if name == _LATENT_QUERIES:  # no channel of a latent stands out, but its mean does
            self._queries(rows, x, of, head, x.flatten(0, -2).mean(0))
            return
        if x.shape[-1] <= max(self._found.outliers):
            return
        constant = torch.zeros(x.shape[-1])
        constant[self._found.constant] = x[..., self._found.constant].mean()
        if name in _FUSED:
            queries, keys = _FUSED[name](rows.shape[0], head, self._config())
            self._queries(rows, x, queries, head, constant)
            self._keys(rows, x, keys, head)
        elif name in _QUERIES:
            self._queries(rows, x, of, head, constant)
        elif name == _LATENT_KEYS:
            rotary = int(self._config().qk_rope_head_dim)
            self._keys(rows, x, of[-rotary:], rotary, head)
        else:
            self._keys(rows, x, of, head)

    def _queries(self, rows: torch.Tensor, x: torch.Tensor, of: torch.Tensor, head: int, usual_x: torch.Tensor) -> None:
        """Has the slowest component of each head be the same for all tokens: that of what all have in common."""
        if of.numel() % head or of.numel() < head:
            return
        usual = self._quieten(rows, x, of)
        heads = of.view(-1, head)
        if self._saturated is not None:
            self._spread(rows, x, heads, self._saturated)
        if float(usual_x.norm()) < 1e-6:
            return
        direction = usual_x / usual_x.square().sum()
        lean = (SINK * head**0.5) ** 0.5 * max(1.0, usual) * direction
        there = usual_x != 0
        for number, row in enumerate(heads[:, -1].tolist()):
            # Rotary positions turn the last one least. Some heads look elsewhere, too.
            rows[row, there] = lean[there] * (0.3 if number % 3 == 1 else 1.0)
        if self._saturated is None:
            rows[heads[2::3, :-1].flatten()] *= SHARP

    def _keys(
        self, rows: torch.Tensor, x: torch.Tensor, of: torch.Tensor, part: int, head: Optional[int] = None
    ) -> None:
        """Has the slowest component of each head be large for the first token.

        Args:
            part: components of a head in these rows.
            head: all that its score is a sum over; None: `part`.
        """
        if of.numel() % part or of.numel() < part:
            return
        self._quieten(rows, x, of)
        heads = of.view(-1, part)
        if self._saturated is not None:
            self._spread(rows, x, heads, 1.0)
        seen = x[..., 0, self._found.first].mean()
        if float(seen.abs()) >= 1e-6:
            rows[heads[:, -1], self._found.first] = (SINK * (head or part) ** 0.5) ** 0.5 / seen

    def _quieten(self, rows: torch.Tensor, x: torch.Tensor, of: torch.Tensor) -> float:
        """Takes outliers out of queries or keys, else they would be all that these are made of; the size before."""
        usual = float((x.flatten(0, -2) @ rows[of].t()).pow(2).mean().sqrt())
        if x.shape[-1] > max(self._found.outliers) and x.shape[-1] == self._width:
            rows[of[:, None], torch.tensor(self._found.outliers)] *= 0.02
        return usual

    def _spread(self, rows: torch.Tensor, x: torch.Tensor, heads: torch.Tensor, wanted: float) -> None:
        """Gives all keys (wanted is 1) or the queries of every third head this root mean square."""
        ours = (heads if wanted == 1.0 else heads[2::3])[:, :-1].flatten()
        if ours.numel():
            rows[ours] *= wanted / float((x.flatten(0, -2) @ rows[ours].t()).pow(2).mean().sqrt().clamp(min=1e-6))

    def _config(self) -> Any:
        config: Any = self._model.config
        return config.get_text_config() if hasattr(config, "get_text_config") else config

    def _head(self) -> int:
        config = self._config()
        if getattr(config, "kv_lora_rank", None):
            return int(config.qk_nope_head_dim) + int(config.qk_rope_head_dim)
        given = getattr(config, "head_dim", None)
        return int(given or config.hidden_size // config.num_attention_heads)
