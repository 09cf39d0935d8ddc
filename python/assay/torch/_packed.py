# SPDX-License-Identifier: Apache-2.0
"""Weights that torch's quantised modules hold packed for their kernels, which are no parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

import torch


def parts_of(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Codes, scales and zero points of a module whose `weight` is a function, and its bias; else nothing."""
    if not type(module).__module__.startswith("torch.ao.nn."):  # of others a method may do anything
        return
    weight = _called(module, "weight")
    if weight is None or not weight.is_quantized:
        return
    yield "weight", weight.int_repr()
    if weight.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        yield "weight_scale", torch.tensor([weight.q_scale()])
        yield "weight_zero_point", torch.tensor([weight.q_zero_point()])
    else:
        yield "weight_scale", weight.q_per_channel_scales()
        yield "weight_zero_point", weight.q_per_channel_zero_points()
    bias = _called(module, "bias")
    if bias is not None:
        yield "bias", bias


def _called(module: torch.nn.Module, name: str) -> Optional[torch.Tensor]:
    function = getattr(module, name, None)
    if isinstance(function, torch.Tensor) or not callable(function):
        return None
    value = function()
    return value if isinstance(value, torch.Tensor) else None
