# SPDX-License-Identifier: Apache-2.0
"""What stands behind a tensor that has no memory of its own: shards of a DTensor, the parts of other wrapper classes.

The native half asks :func:`parts_of` for each such tensor; what comes back is recorded in its place or beside it.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Optional

import torch

__all__ = ["collective_members", "local_tensor_of", "parts_of"]

# What parts are to their wrapper: `Parts` in recorder.cpp.
_BESIDE_IT, _SHARD, _IT_ITSELF, _ON_ITS_WAY, _OVERWRITTEN = range(5)

# (what follows the slot, tensor, further members of its line as JSON without braces)
Part = tuple[str, torch.Tensor, str]

_MAX_PARTS = 16  # of one wrapper


def parts_of(
    tensor: torch.Tensor, may_wait: bool, since: Any = None, waited: Optional[torch.Tensor] = None
) -> tuple[int, list[Part], Any]:
    """Returns what the parts are to the tensor, the parts, and write counters for ``since``.

    A DTensor is its local shard, and a result of a collective what has arrived. For one that has not the answer is
    ``_ON_ITS_WAY``, to be asked again with the counters of the first time; ``_OVERWRITTEN`` when the program has done
    that meanwhile. The parts of other classes, as ``__tensor_flatten__`` tells them, are recorded beside a line that
    says what they are parts of. The list is empty for what is no wrapper.

    Args:
        may_wait: wait for a collective, since the program is about to.
        waited: what it has just waited for.
    """
    local, has_arrived = _local_tensor(tensor, may_wait, waited)
    if local is not None:
        kind = _SHARD if hasattr(tensor, "placements") else _IT_ITSELF
        counters = None
        if not has_arrived:
            kind, counters = _ON_ITS_WAY, _counters(tensor, local)
        elif since not in (None, _counters(tensor, local)):
            kind = _OVERWRITTEN
        return kind, [("", local, _members(tensor))], counters
    flatten = getattr(type(tensor), "__tensor_flatten__", None)
    if flatten is None:
        return _BESIDE_IT, [], None
    names = flatten(tensor)[0]
    inner = [(name, getattr(tensor, name, None)) for name in names[:_MAX_PARTS] if isinstance(name, str)]
    return _BESIDE_IT, [(f".{name}", part, "") for name, part in inner if isinstance(part, torch.Tensor)], None


def local_tensor_of(tensor: torch.Tensor) -> Optional[torch.Tensor]:
    """Returns what this process holds of a DTensor or of a result of a collective, which is waited for; else None."""
    return _local_tensor(tensor, True)[0]


def collective_members(arguments: tuple[Any, ...], options: Any) -> str:
    """Returns what an operator that starts a collective does not say of itself, as JSON without braces.

    Args:
        arguments: its own. The group is an object of C++ among them, or a name.
        options: what the method of the group that calls it was given, or None: it has the kind of reduction.
    """
    members: dict[str, Any] = {}
    for argument in arguments:
        group = _group_of(argument)
        if group is not None:
            members["ranks"] = torch.distributed.get_process_group_ranks(group)
    reduction = getattr(getattr(options, "reduceOp", None), "op", None)
    if reduction is not None:
        members["reduces"] = reduction.name.lower()
    return json.dumps(members, separators=(",", ":"))[1:-1]


def _group_of(argument: Any) -> Any:
    distributed: Any = torch.distributed
    try:
        if isinstance(argument, torch.ScriptObject):
            return distributed.ProcessGroup.unbox(argument)
        if isinstance(argument, str):
            return distributed.distributed_c10d._resolve_process_group(argument)
    except (AttributeError, RuntimeError, TypeError, ValueError):
        pass  # another object, the kind of reduction, or a torch that cannot say it
    return argument if isinstance(argument, distributed.ProcessGroup) else None


def _local_tensor(
    tensor: torch.Tensor, may_wait: bool, waited: Optional[torch.Tensor] = None
) -> tuple[Optional[torch.Tensor], bool]:
    """Returns the tensor with memory behind a wrapper, and whether all that was on its way to it has arrived."""
    found: Any = tensor
    has_arrived = True
    for _ in range(2):  # the shard may be on its way itself
        if hasattr(found, "trigger_wait"):
            has_arrived = may_wait or found.elem is waited or _has_arrived(found)
            found = found.trigger_wait() if may_wait else found.elem
        elif hasattr(found, "_local_tensor"):
            found = found._local_tensor
    return (found if found is not tensor and isinstance(found, torch.Tensor) else None), has_arrived


def _has_arrived(result: Any) -> bool:
    """Whether the program has waited for a result of a functional collective: no wait of ours."""
    if getattr(result, "completed", False):
        return True
    # wait() does not say so, but leaves nothing behind that somebody could wait for.
    in_flight = getattr(torch._C._distributed_c10d, "_get_work_registry_size", None)
    return in_flight is not None and in_flight() == 0


def _counters(wrapper: torch.Tensor, local: torch.Tensor) -> tuple[int, int]:
    """Returns torch's counters of writes through the wrapper, and of others to what it wraps.

    The latter says nothing on a CPU: gloo's threads count there when they copy what has come.
    """
    return _version(wrapper), 0 if local.device.type == "cpu" else _version(local)


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


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
