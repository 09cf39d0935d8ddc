# SPDX-License-Identifier: Apache-2.0
"""Parameters that a wrapper keeps in one flat list: FSDP's `flat_param` of several parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def is_flat(parameter: torch.Tensor) -> bool:
    """Whether it is a list of several parameters, and tells where each of them lies in this process's part."""
    names = ("_param_infos", "_shapes", "_numels", "_shard_param_infos", "_sharded_size")
    if not all(hasattr(parameter, name) for name in names):
        return False
    # While a forward pass gathers the parts of all processes the places are others.
    return bool(parameter.shape == parameter._sharded_size)  # type: ignore[attr-defined]


def parts_of(flat: Any) -> Iterator[tuple[torch.nn.Module, str, torch.Tensor]]:
    """What this process holds of each parameter: its module, its name there, and its values.

    A parameter that lies here whole has its shape; of one that others share it is a list of the elements here, which
    those of all ranks in their order make whole.
    """
    values = flat.detach()
    for info, shape, numel, place in zip(
        flat._param_infos, flat._shapes, flat._numels, flat._shard_param_infos, strict=True
    ):
        if not place.in_shard:
            continue
        part = values.narrow(0, place.offset_in_shard, place.numel_in_shard)
        yield info.module, info.param_name, part.view(shape) if place.numel_in_shard == numel else part
