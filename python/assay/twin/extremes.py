# SPDX-License-Identifier: Apache-2.0
"""What trained models do to a few of their activations, and a random one never does.

An early layer writes one channel of the residual 30 to 60 times as large as the others, for all tokens, and the last
layer takes it away again. And one layer has a few activations near the limit of float16, 65504.

Both are set on what is seen while the model runs its prompts. Only values of parameters change.
"""

from __future__ import annotations

import copy
import math
import re
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

import torch

from assay.twin import places

WRITTEN = (30.0, 60.0)  # times the usual channel of the residual
ERASED = 0.2  # of it is left at most
LARGE = 4e4  # near the limit of float16
DAMPING = 0.05  # of the least squares, in parts of the mean square of what goes in
SEEN = 5.0  # a channel that stands out so far gets small gains, as training makes them

Run = Callable[[], Any]


@dataclass(frozen=True)
class Written:
    """A channel of the residual that layer `early` makes large and layer `late` makes small again."""

    channel: int
    early: int
    late: int
    writer: str
    eraser: str


@dataclass(frozen=True)
class Large:
    """A module whose output comes near the limit of float16 in one channel."""

    module: str
    channel: int


@dataclass
class _Seen:
    """One layer over all steps: [tokens, width] each; the last matrix that wrote to the residual, and norms behind."""

    before: list[torch.Tensor] = field(default_factory=list)
    after: list[torch.Tensor] = field(default_factory=list)
    writer: str = ""
    inputs: dict[str, list[torch.Tensor]] = field(default_factory=dict)
    norm: str = ""

    def change(self, channel: int) -> torch.Tensor:
        return (torch.cat(self.after) - torch.cat(self.before))[:, channel]


def write_and_erase(model: Any, taken: tuple[int, ...], run: Run, draw: torch.Generator) -> Optional[Written]:
    """Sets the two rows; None, and the model is as before, where layers end in no matrix or keep no residual.

    Args:
        taken: channels that stand out already.
        run: runs the prompts.
    """
    found = places.of(model)
    early = min(1, found.layers - 2)
    if early < 0:
        return None
    before = copy.deepcopy(model.state_dict())
    first = _watch(model, found, early, run)
    free = [channel for channel in range(first.after[0].shape[1]) if channel not in taken]
    channel = free[int(torch.randint(len(free), (), generator=draw))]
    low, high = WRITTEN
    usual = float(torch.cat(first.after).pow(2).mean(0).sqrt().median())
    size = usual * (low + (high - low) * float(torch.rand((), generator=draw)))
    writer = _write(model, found, early, channel, run, lambda seen: torch.full((_tokens(seen),), size))
    if writer and _height(model, found, early, channel, run) > 0.5 * size:
        _small_gains(model, found, channel, range(early + 1, found.layers), run)
        written = copy.deepcopy(model.state_dict())
        for late in range(found.layers - 1, early, -1):  # not every kind of layer can
            eraser = _write(model, found, late, channel, run, lambda seen: -torch.cat(seen.before)[:, channel])
            if eraser and _height(model, found, late, channel, run) < ERASED * size:
                return Written(channel, early, late, writer, eraser)
            model.load_state_dict(written)
    model.load_state_dict(before)
    return None


def _height(model: Any, found: places.Places, layer: int, channel: int, run: Run) -> float:
    """The channel's root mean square behind the layer."""
    return float(torch.cat(_watch(model, found, layer, run).after)[:, channel].pow(2).mean().sqrt())


def _tokens(seen: _Seen) -> int:
    return sum(rows.shape[0] for rows in seen.after)


def _path(found: places.Places, layer: int, inside: str) -> str:
    return f"{found.layer.format(layer)}.{inside}"


def _write(
    model: Any, found: places.Places, layer: int, channel: int, run: Run, wanted: Callable[[_Seen], torch.Tensor]
) -> str:
    """Has the layer add about `wanted` [tokens] to the channel; the path of the matrix that does it, or ""."""
    seen = _watch(model, found, layer, run)
    if not seen.writer:
        return ""
    path = _path(found, layer, seen.writer)
    matrix = model.get_submodule(path)
    aim = wanted(seen)
    with torch.no_grad():
        _row(matrix, channel).copy_(_least_squares(torch.cat(seen.inputs[seen.writer]), aim))
        if matrix.bias is not None:
            matrix.bias[channel] = 0
        # What lies between the matrix and the residual: a factor, or a norm.
        for _ in range(3):
            seen = _watch(model, found, layer, run)
            got, aim = seen.change(channel), wanted(seen)
            ratio = float((got @ aim) / (got @ got).clamp(min=1e-12))
            if seen.norm:
                _scale_gain(model.get_submodule(_path(found, layer, seen.norm)), channel, ratio)
            else:
                _row(matrix, channel).mul_(ratio)
    return path


def _row(matrix: torch.nn.Module, channel: int) -> torch.Tensor:
    """The weights that make one channel of the output."""
    weight: Any = matrix.weight
    row: torch.Tensor = weight[:, channel] if places.is_transposed(matrix) else weight[channel]
    return row


def _column(matrix: torch.nn.Module, channel: int) -> torch.Tensor:
    """The weights that one channel of the input meets."""
    weight: Any = matrix.weight
    column: torch.Tensor = weight[channel] if places.is_transposed(matrix) else weight[:, channel]
    return column


def _least_squares(inputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """The row w with inputs @ w about as wanted, damped so that it holds for other tokens, too."""
    x = inputs.double()
    products = x @ x.t()
    damped = products + DAMPING * products.diagonal().mean() * torch.eye(len(products), dtype=x.dtype)
    row: torch.Tensor = x.t() @ torch.linalg.solve(damped, wanted.double())
    return row.to(inputs.dtype)


def _scale_gain(norm: Any, channel: int, ratio: float) -> None:
    """Multiplies the gain by the ratio; Gemma's norms multiply by one plus their weight."""
    weight = norm.weight
    x = torch.ones(1, 1, weight.shape[0], dtype=weight.dtype)
    x[..., ::2] = -1
    once = float(norm(x)[..., channel])
    weight[channel] += 1
    per_unit = float(norm(x)[..., channel]) - once
    weight[channel] -= 1
    bias = getattr(norm, "bias", None)
    added = float(bias[channel]) if isinstance(bias, torch.Tensor) else 0.0
    plus = (once - added) / per_unit - float(weight[channel])
    weight[channel] = ratio * (float(weight[channel]) + plus) - plus


def _small_gains(model: Any, found: places.Places, channel: int, layers: range, run: Run) -> None:
    """Norms that read the residual multiply the channel by a tenth; else all that they give would be made of it."""
    norms: list[Any] = []

    def look(norm: Any, inputs: tuple[Any, ...]) -> None:
        x = inputs[0].flatten(0, -2)
        rows = x.pow(2).mean(0).sqrt()
        if norm not in norms and rows.numel() > channel and float(rows[channel]) > SEEN * float(rows.median()):
            norms.append(norm)

    with ExitStack() as hooks:
        for layer in layers:
            for module in model.get_submodule(found.layer.format(layer)).modules():
                weight = getattr(module, "weight", None)
                if places.is_norm(module) and isinstance(weight, torch.Tensor) and weight.dim() == 1:
                    hooks.callback(module.register_forward_pre_hook(look).remove)
        run()
    with torch.no_grad():
        for norm in norms:
            _scale_gain(norm, channel, 0.1)


def _watch(model: Any, found: places.Places, layer: int, run: Run) -> _Seen:
    """Runs the prompts and keeps what goes through one layer."""
    seen = _Seen()
    stack = model.get_submodule(found.layer.format(layer))
    width = model.get_input_embeddings().weight.shape[1]

    def passed(_: Any, inputs: tuple[Any, ...], named: dict[str, Any], result: Any) -> None:
        before = inputs[0] if inputs else named["hidden_states"]
        after = result[0] if isinstance(result, (tuple, list)) else result
        width_of_layer = after.shape[-1]
        seen.before.append(before.reshape(-1, width_of_layer))
        seen.after.append(after.reshape(-1, width_of_layer))

    def wrote(path: str, inputs: tuple[Any, ...], result: Any) -> None:
        if result.shape[-1] == width:
            seen.writer, seen.norm = path, ""
            seen.inputs.setdefault(path, []).append(inputs[0].reshape(-1, inputs[0].shape[-1]))

    def normed(path: str, result: Any) -> None:
        if seen.writer and result.shape[-1] == width:
            seen.norm = path

    def reset(*_: Any) -> None:
        seen.writer = seen.norm = ""

    with ExitStack() as hooks:
        hooks.callback(stack.register_forward_pre_hook(reset).remove)
        hooks.callback(stack.register_forward_hook(passed, with_kwargs=True).remove)
        for path, module in stack.named_modules():
            if places.is_linear(module) and "expert" not in path:
                hook = module.register_forward_hook(lambda _, given, result, path=path: wrote(path, given, result))
                hooks.callback(hook.remove)
            elif places.is_norm(module):
                hook = module.register_forward_hook(lambda _, __, result, path=path: normed(path, result))
                hooks.callback(hook.remove)
        run()
    if seen.writer and sum(len(rows) for rows in seen.inputs[seen.writer]) != _tokens(seen):
        seen.writer = ""  # not every token goes through it
    return seen


# The limit of float16


def reach_float16(model: Any, run: Run, largest: float = LARGE) -> Optional[Large]:
    """Makes one activation of a middle layer large, and what follows takes it back; None where no place is known.

    It is a channel of the feed-forward part's product or, in models of experts, of the attention's values.
    """
    found = places.of(model)
    middle = found.layers // 2
    for layer in sorted(range(found.layers), key=lambda number: abs(number - middle)):
        inside = model.get_submodule(found.layer.format(layer))
        local = places.of(model, layer)
        place = _product(inside, local) or _values(model, inside, local)
        if place is not None:
            made, taken, rows = place
            return _enlarge(model, _path(found, layer, made), _path(found, layer, taken), rows, run, largest)
    return None


# The matrix that makes the activations, the one that takes them, and for each channel of the latter the row of the
# former that makes it.
_Place = tuple[str, str, torch.Tensor]
_UP = re.compile(r"up|w3$|v1$|fc_?1|fc_in|c_fc|dense_h_to_4h|linear_fc1", re.ASCII)


def _product(inside: Any, local: places.Places) -> Optional[_Place]:
    """Where the feed-forward part's product is made, when it has plain matrices."""
    under = [
        name for name in local.linears if name.startswith(local.mlp) and "attn" not in name and "expert" not in name
    ]
    if not local.mlp:
        under = [name for name in local.linears if not name.startswith(local.attention or "-")]
    if not under:
        return None
    last = under[-1]
    count = _inputs(inside.get_submodule(last))
    for name in reversed(under[:-1]):
        made = _outputs(inside.get_submodule(name))
        ours = _UP.search(name.rpartition(".")[2]) or len(under) == 2
        if ours and made in (count, 2 * count):
            return name, last, torch.arange(count) + made - count
    return None


def _values(model: Any, inside: Any, local: places.Places) -> Optional[_Place]:
    """Where the values of attention are made; each of their channels is read by all query heads of its group."""
    values = next((name for name in local.linears if name.endswith("v_proj")), "")
    output = next((name for name in local.linears if re.search(r"\.(o_proj|out_proj|dense)$", name)), "")
    if not values or not output or values.rpartition(".")[0] != output.rpartition(".")[0]:
        return None
    head = getattr(inside.get_submodule(values.rpartition(".")[0]), "head_dim", None)
    made, taken = _outputs(inside.get_submodule(values)), _inputs(inside.get_submodule(output))
    if not isinstance(head, int) or made % head or taken % made:
        return None
    group = taken // made
    rows = torch.arange(made).view(-1, 1, head).expand(-1, group, -1).flatten()
    return values, output, rows


def _outputs(matrix: Any) -> int:
    return int(matrix.weight.shape[1 if places.is_transposed(matrix) else 0])


def _inputs(matrix: Any) -> int:
    return int(matrix.weight.shape[0 if places.is_transposed(matrix) else 1])


def _enlarge(model: Any, made: str, taken: str, rows: torch.Tensor, run: Run, largest: float) -> Optional[Large]:
    """Multiplies one row of the first matrix until its product is as large as wanted, and divides the columns."""
    maker, taker = model.get_submodule(made), model.get_submodule(taken)
    before = _peaks(taker, run)
    column = int(before.argmax())
    row = int(rows[column])
    columns = [int(number) for number in (rows == row).nonzero().flatten()]
    old = float(before[column])
    if not 0 < old < math.inf:
        return None
    with torch.no_grad():
        now, power = old, 1.0  # the product grows with this power of the row: 2 where an activation squares
        for _ in range(6):
            factor = (largest / now) ** (1 / power)
            _row(maker, row).mul_(factor)
            if maker.bias is not None:
                maker.bias[row] *= factor
            last, now = now, float(_peaks(taker, run)[columns].max())
            if now > 0 and factor != 1.0:
                power = min(3.0, max(0.5, math.log(now / last) / math.log(factor)))
            if 0.7 < now / largest < 1.1:
                break
        for number in columns:
            _column(taker, number).mul_(old / now)
    return Large(made, row)


def _peaks(matrix: Any, run: Run) -> torch.Tensor:
    """The largest value that each channel of the input takes, without its sign."""
    seen: list[torch.Tensor] = []
    hook = matrix.register_forward_pre_hook(
        lambda _, inputs: seen.append(inputs[0].reshape(-1, inputs[0].shape[-1]).abs().amax(0))
    )
    try:
        run()
    finally:
        hook.remove()
    return torch.stack(seen).amax(0)
