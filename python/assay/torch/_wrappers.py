# SPDX-License-Identifier: Apache-2.0
"""What stands behind a tensor that has no memory of its own: shards of a DTensor, the parts of other wrapper classes.

The native half asks :func:`parts_of` for each such tensor; what comes back is recorded in its place or beside it.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Optional

import torch

__all__ = ["local_tensor_of", "parts_of"]

# (what follows the slot, tensor, further members of its line as JSON without braces)
Part = tuple[str, torch.Tensor, str]

_MAX_PARTS = 16  # of one wrapper


def parts_of(tensor: torch.Tensor) -> tuple[bool, list[Part]]:
    """Returns whether the parts stand for the tensor, and the parts; the list is empty for what is no wrapper.

    A DTensor is its local shard, and a result of a collective what has arrived. The parts of other classes, as
    ``__tensor_flatten__`` tells them, are recorded beside a line that says what they are parts of.
    """
    local = local_tensor_of(tensor)
    if local is not None:
        return True, [("", local, _members(tensor))]
    flatten = getattr(type(tensor), "__tensor_flatten__", None)
    if flatten is None:
        return False, []
    names = flatten(tensor)[0]
    inner = [(name, getattr(tensor, name, None)) for name in names[:_MAX_PARTS] if isinstance(name, str)]
    return False, [(f".{name}", part, "") for name, part in inner if isinstance(part, torch.Tensor)]


def local_tensor_of(tensor: torch.Tensor) -> Optional[torch.Tensor]:
    """Returns what this process holds of a DTensor or of a result of a collective, which is waited for; else None."""
    found: Any = tensor
    for _ in range(2):  # the shard may be on its way itself
        if hasattr(found, "trigger_wait"):
            found = found.trigger_wait()
        elif hasattr(found, "_local_tensor"):
            found = found._local_tensor
    return found if found is not tensor and isinstance(found, torch.Tensor) else None


def _members(tensor: Any) -> str:
    members: dict[str, Any] = {"class": type(tensor).__name__}
    if hasattr(tensor, "placements"):
        mesh = tensor.device_mesh
        members["shard"] = {
            "mesh": [int(size) for size in mesh.shape],
            "names": list(mesh.mesh_dim_names) if mesh.mesh_dim_names else None,
            "coordinate": mesh.get_coordinate(),
            "placements": [repr(placement) for placement in tensor.placements],
            "shape": [int(size) for size in tensor.shape],
            "offset": _offset_in_whole(tensor),
        }
    return json.dumps(members, separators=(",", ":"))[1:-1]


def _offset_in_whole(tensor: Any) -> Optional[list[int]]:
    utils = sys.modules.get("torch.distributed.tensor._utils")
    compute = getattr(utils, "compute_local_shape_and_global_offset", None)
    if compute is None:
        return None
    try:
        return [int(start) for start in compute(tensor.shape, tensor.device_mesh, tensor.placements)[1]]
    except (RuntimeError, TypeError, ValueError, NotImplementedError, AssertionError):
        return None  # strided shards and the like have no single place
