# SPDX-License-Identifier: Apache-2.0
"""A dispatch mode beneath the capture's: kernels that compute something else than what the records say.

The capture pushes its mode when the model is called, above this one: it sees the call as the program made it, and the
result as this mode left it. So a fault planted here adds no operator, and the records claim the golden weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Optional

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

# (call on, operator, arguments, keyword arguments) -> result
Kernel = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")


def name_of(func: Any) -> str:
    """`mm` of aten.mm.default."""
    return str(func.overloadpacket.__name__)


class Kernels(TorchDispatchMode):
    """Runs `kernel` for every operator that runs inside `module` (and not inside one of its children when `own`).

    Attributes:
        applied: how often the kernel changed something: a fault that never ran is no case.
    """

    def __init__(self, model: torch.nn.Module, module: str, kernel: Kernel, own: bool = False) -> None:
        super().__init__()
        self._kernel = kernel
        self._own = own
        self._depth = 0
        self._children = 0
        self._hooks: list[Any] = []
        self.applied = 0
        target = model.get_submodule(module) if module else model
        self._watch(target, "_depth")
        if own:
            for child in target.children():
                self._watch(child, "_children")

    def _watch(self, module: torch.nn.Module, counter: str) -> None:
        def enter(*_: Any) -> None:
            setattr(self, counter, getattr(self, counter) + 1)

        def leave(*_: Any) -> None:
            setattr(self, counter, getattr(self, counter) - 1)

        self._hooks.append(module.register_forward_pre_hook(enter))
        self._hooks.append(module.register_forward_hook(leave, always_call=True))

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Optional[dict[str, Any]] = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._depth == 0 or (self._own and self._children > 0):
            return func(*args, **kwargs)
        return self._kernel(func, func, args, kwargs)

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        for hook in self._hooks:
            hook.remove()


def with_weight(parameter: torch.Tensor, wrong: torch.Tensor) -> Kernel:
    """Operators compute with `wrong` where they are given `parameter` or a view of it; views stay as they are."""
    start = parameter.untyped_storage().data_ptr()
    wrong = wrong.contiguous()

    def replaced(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.untyped_storage().data_ptr() != start:
            return value
        return wrong.as_strided(value.shape, value.stride(), value.storage_offset() - parameter.storage_offset())

    def kernel(call: Any, func: Any, args: Any, kwargs: Any) -> Any:
        if func.is_view:
            return call(*args, **kwargs)
        return call(*tree_map(replaced, args), **tree_map(replaced, kwargs))

    return kernel


def on_result(names: Sequence[str], change: Callable[[torch.Tensor], torch.Tensor], once: bool = False) -> Kernel:
    """Changes the (first) result of the named operators; with `once` only that of the first one in each run."""
    done = [False]

    def kernel(call: Any, func: Any, args: Any, kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        if name_of(func) not in names or (once and done[0]):
            return result
        done[0] = True
        if isinstance(result, tuple):
            return (change(result[0]), *result[1:])
        return change(result)

    return kernel


def on_arguments(names: Sequence[str], change: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> Kernel:
    """Runs `change(func, args, kwargs)` -> result in place of the named operators."""

    def kernel(call: Any, func: Any, args: Any, kwargs: Any) -> Any:
        if name_of(func) in names:
            return change(call, args, kwargs)
        return call(*args, **kwargs)

    return kernel


def _partial_sums(a: torch.Tensor, b: torch.Tensor, parts: int) -> torch.Tensor:
    """a @ b with sums of `parts` blocks of the inner dimension kept in the operands' type."""
    total = None
    for left, right in zip(a.chunk(parts, dim=-1), b.chunk(parts, dim=-2)):
        part = left @ right
        total = part if total is None else total + part
    assert total is not None
    return total


def partial_sum_product(parts: int) -> Kernel:
    """Matrix products whose accumulator is of the operands' type, in `parts` steps."""

    def kernel(call: Any, func: Any, args: Any, kwargs: Any) -> Any:
        name = name_of(func)
        if name in ("mm", "bmm"):
            return _partial_sums(args[0], args[1], parts)
        if name == "addmm":
            return _partial_sums(args[1], args[2], parts) + args[0]
        return call(*args, **kwargs)

    return kernel


def coarse(call: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Healthy kernels as devices have them: partial sums, probabilities and intermediates of 16 bits."""
    name = name_of(func)
    low = [a for a in args if isinstance(a, torch.Tensor) and a.dtype in (torch.bfloat16, torch.float16)]
    if not low:
        return call(*args, **kwargs)
    if name in ("mm", "bmm", "addmm"):
        return partial_sum_product(4)(call, func, args, kwargs)
    if name == "silu":
        return args[0] * torch.sigmoid(args[0])
    if name == "gelu":
        x = args[0]
        if kwargs.get("approximate") == "tanh":
            inner = (x + 0.044715 * x * x * x) * 0.7978845608028654
            return 0.5 * x * (1 + torch.tanh(inner))
        return x * 0.5 * (1 + torch.erf(x * 0.7071067811865476))
    if name == "_scaled_dot_product_flash_attention_for_cpu":
        return _coarse_attention(call, args, kwargs)
    if name == "native_layer_norm":
        x, _shape, weight, bias, eps = args
        mean = x.float().mean(-1, keepdim=True)
        rstd = torch.rsqrt(x.float().var(-1, keepdim=True, unbiased=False) + eps)
        normal = (x - mean.to(x.dtype)) * rstd.to(x.dtype)
        result = normal if weight is None else normal * weight
        return (result if bias is None else result + bias, *call(*args, **kwargs)[1:])
    return call(*args, **kwargs)


def flash_attention(call: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Attention as flash kernels compute it: scores and sums wide, probabilities that are not normalised yet narrow."""
    if name_of(func) != "_scaled_dot_product_flash_attention_for_cpu":
        return call(*args, **kwargs)
    scores, value = _scores(args, kwargs, torch.float32)
    powers = torch.exp(scores - scores.amax(-1, keepdim=True).clamp_min(torch.finfo(torch.float32).min))
    sums = powers.to(args[0].dtype).float() @ value.float()
    result = (sums / powers.sum(-1, keepdim=True)).nan_to_num(0.0)  # of a row that sees nothing
    return (result.to(args[0].dtype), *call(*args, **kwargs)[1:])


def attention_with(change: Callable[[torch.Tensor], torch.Tensor], call: Any, args: Any, kwargs: Any) -> Any:
    """Attention of a flash kernel whose products are of operands after a change, probabilities included."""
    query, key, value = (change(one) for one in args[:3])
    scores, value = _scores((query, key, value, *args[3:]), kwargs, torch.float32)
    powers = torch.exp(scores - scores.amax(-1, keepdim=True).clamp_min(torch.finfo(torch.float32).min))
    result = (change(powers) @ value) / powers.sum(-1, keepdim=True)
    return (result.nan_to_num(0.0), *call(*args, **kwargs)[1:])


def _coarse_attention(call: Any, args: Any, kwargs: Any) -> Any:
    scores, value = _scores(args, kwargs, args[0].dtype)
    weights = torch.softmax(scores.float(), dim=-1).to(args[0].dtype)
    return (weights @ value, *call(*args, **kwargs)[1:])


def _scores(args: Any, kwargs: Any, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Masked scores computed in a type, and values with a head for each head of the queries."""
    query, key, value = args[:3]
    causal = args[4] if len(args) > 4 else kwargs.get("is_causal", False)
    mask = kwargs.get("attn_mask")
    scale = kwargs.get("scale")
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    if key.shape[1] != query.shape[1]:
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        value = value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)
    scores = (query.to(dtype) @ key.to(dtype).transpose(-1, -2)) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    if causal:
        rows, columns = scores.shape[-2:]
        scores = scores.masked_fill(torch.ones(rows, columns, dtype=torch.bool).triu(1), float("-inf"))
    return scores, value
