# SPDX-License-Identifier: Apache-2.0
"""Healthy runs whose products are narrower than what stores them: float32 operands that kernels round first."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch

from bench.faults.kernels import Kernel, attention_with, name_of

TF32_DROPPED = 13  # bits of a float32


def _bits(values: torch.Tensor) -> torch.Tensor:
    return values.float().contiguous().view(torch.int32)


def bf16(values: torch.Tensor) -> torch.Tensor:
    """To the nearest bfloat16."""
    return values.to(torch.bfloat16).to(values.dtype)


def tf32(values: torch.Tensor) -> torch.Tensor:
    """To the nearest value of ten bits of fraction, ties away from zero, as NVIDIA's conversion does."""
    mask = -(1 << TF32_DROPPED)
    return ((_bits(values) + (1 << (TF32_DROPPED - 1))) & mask).view(torch.float32)


def tf32_cut(values: torch.Tensor) -> torch.Tensor:
    """Without rounding, as a tensor core that is given float32."""
    return (_bits(values) & -(1 << TF32_DROPPED)).view(torch.float32)


_FACTORS = {"mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2), "convolution": (0, 1)}
_FLASH = "_scaled_dot_product_flash_attention_for_cpu"


def rounded_operands(change: Any) -> Kernel:
    """Products and fused attention on operands after a change; probabilities are operands, too."""

    def kernel(call: Any, func: Any, args: Any, kwargs: Any) -> Any:
        name = name_of(func)
        if name == _FLASH and args[0].dtype == torch.float32:
            return attention_with(change, call, args, kwargs)
        places = _FACTORS.get(name, ())
        if not places or args[places[0]].dtype != torch.float32:
            return call(*args, **kwargs)
        return call(*[change(arg) if i in places else arg for i, arg in enumerate(args)], **kwargs)

    return kernel


def pairs_of_bf16(call: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Each operand as a sum of two bfloat16, in three products: the rests are not multiplied with each other."""
    places = _FACTORS.get(name_of(func), ())
    if not places or args[places[0]].dtype != torch.float32:
        return call(*args, **kwargs)
    large = [bf16(arg) if i in places else arg for i, arg in enumerate(args)]
    rest = [bf16(arg - bf16(arg)) if i in places else arg for i, arg in enumerate(args)]
    first, second = places

    def product(one: Any, other: Any, addend: bool = False) -> Any:
        some = list(args)
        some[first], some[second] = one[first], other[second]
        if first == 1 and not addend:
            some[0] = torch.zeros((), dtype=torch.float32)
        if name_of(func) == "convolution" and not addend:
            some[2] = None
        return call(*some, **kwargs)

    return product(large, large, addend=True) + product(large, rest) + product(rest, large)


PRODUCTS: dict[str, tuple[str, Kernel]] = {
    "products-bf16": ("mine in fp32, operands of products rounded to bf16", rounded_operands(bf16)),
    "products-tf32": ("mine in fp32, operands of products rounded to TF32", rounded_operands(tf32)),
    "products-cut": ("mine in fp32, operands of products cut to TF32", rounded_operands(tf32_cut)),
    "products-pairs": ("mine in fp32, operands of products as pairs of bf16", pairs_of_bf16),
}


def dynamic(model: torch.nn.Module) -> torch.nn.Module:
    """A copy whose linear layers hold int8 and round what they are given to int8, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch points to a successor
        port: torch.nn.Module = torch.ao.quantization.quantize_dynamic(
            copy.deepcopy(model), {torch.nn.Linear}, dtype=torch.qint8
        )
    return port
