# SPDX-License-Identifier: Apache-2.0
"""Which parallel groups of its job a rank is in: ``host.parallel`` of the manifest.

Read from what the host has loaded already, nothing is imported: torch's device meshes, Megatron, vLLM, SGLang. Or told:
``--parallel tp=2,pp=2,dp=2``. docs/formats/native.md
"""

from __future__ import annotations

import gc
import math
import re
import sys
from collections.abc import Mapping
from typing import Any, Optional, Union

from assay import _manifest
from assay.errors import FormatError

__all__ = ["Parallel", "parse_parallel", "places_of_rank", "sizes_text", "told_places"]

Parallel = Union[None, str, Mapping[str, int]]
Places = dict[str, dict[str, int]]

_KINDS = {
    "tp": ("tp", "tensor", "tensor_parallel", "model", "mp"),
    "pp": ("pp", "pipe", "pipeline", "pipeline_parallel", "stage"),
    "dp": ("dp", "data", "data_parallel", "fsdp", "dp_shard", "replicate", "dp_replicate", "shard"),
    "ep": ("ep", "expert", "expert_parallel", "experts"),
    "cp": ("cp", "context", "context_parallel", "sp", "sequence", "seq"),
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names}

# Module, and the functions or the group that tell of a kind of group: rank, size.
_MEGATRON = {
    "tp": ("get_tensor_model_parallel_rank", "get_tensor_model_parallel_world_size"),
    "pp": ("get_pipeline_model_parallel_rank", "get_pipeline_model_parallel_world_size"),
    "dp": ("get_data_parallel_rank", "get_data_parallel_world_size"),
    "ep": ("get_expert_model_parallel_rank", "get_expert_model_parallel_world_size"),
    "cp": ("get_context_parallel_rank", "get_context_parallel_world_size"),
}
_COORDINATORS = {"tp": "get_tp_group", "pp": "get_pp_group", "dp": "get_dp_group", "ep": "get_ep_group"}
_COORDINATORS_OF_SGLANG = {"tp": "get_tp_group", "pp": "get_pp_group", "ep": "get_moe_ep_group"}


def parse_parallel(parallel: Parallel) -> dict[str, int]:
    """Returns the sizes by kind, the fastest first, of ``"tp=2,pp=2,dp=2"`` or a dict of that.

    Raises:
        FormatError: it is something else.

    Example:
        >>> parse_parallel("tensor=2,dp=4")
        {'tp': 2, 'dp': 4}
    """
    if not parallel:
        return {}
    if isinstance(parallel, str):
        matches = [re.fullmatch(r"\s*(\w+)\s*=\s*(\d+)\s*", part) for part in parallel.split(",")]
        pairs = [(match[1], int(match[2])) for match in matches if match is not None]
        if len(pairs) != len(matches):
            raise FormatError("Usage", f"parallel {parallel!r} is not like 'tp=2,pp=2,dp=2'")
    else:
        pairs = [(str(name), int(size)) for name, size in parallel.items()]
    sizes: dict[str, int] = {}
    for name, size in pairs:
        kind = _KIND_OF.get(name.lower())
        if kind is None or size < 1 or kind in sizes:
            why = "is no kind of group (tp, pp, dp, ep, cp)" if kind is None else "is there twice, or smaller than 1"
            raise FormatError("Usage", f"parallel {parallel!r}: {name!r} {why}")
        sizes[kind] = size
    return sizes


def sizes_text(parallel: Parallel) -> str:
    """What was told as the native code takes it.

    Raises:
        FormatError: it is something else.

    Example:
        >>> sizes_text({"tensor": 2, "data": 4})
        'tp=2,dp=4'
    """
    return ",".join(f"{kind}={size}" for kind, size in parse_parallel(parallel).items())


def told_places(sizes: dict[str, int], rank: int, world_size: int) -> Places:
    """Returns the places of a rank in groups of the sizes told, the fastest first.

    Raises:
        FormatError: their product is not the size of the job.

    Example:
        >>> told_places({"tp": 2, "pp": 2}, 2, 4)
        {'tp': {'rank': 0, 'size': 2}, 'pp': {'rank': 1, 'size': 2}}
    """
    if sizes and math.prod(sizes.values()) != world_size:
        text = ",".join(f"{kind}={size}" for kind, size in sizes.items())
        raise FormatError("Usage", f"parallel {text}: the product is not {world_size}, the size of the job")
    places: Places = {}
    for kind, size in sizes.items():
        places[kind] = {"rank": rank % size, "size": size}
        rank //= size
    return places


def _place(rank: Any, size: Any) -> Optional[dict[str, int]]:
    """A place in a group, if that is one; a group of one tells nothing."""
    rank, size = int(rank), int(size)
    return {"rank": rank, "size": size} if 0 <= rank < size and size > 1 else None


def _from_functions(module: Any, functions: Mapping[str, tuple[str, str]]) -> Places:
    places: Places = {}
    for kind, (rank, size) in functions.items():
        try:
            place = _place(getattr(module, rank)(), getattr(module, size)())
        except Exception:  # such a group has not been made
            continue
        if place is not None:
            places[kind] = place
    return places


def _from_coordinators(module: Any, functions: Mapping[str, str]) -> Places:
    places: Places = {}
    for kind, function in functions.items():
        try:
            group = getattr(module, function)()
            place = _place(group.rank_in_group, group.world_size)
        except Exception:  # such a group has not been made
            continue
        if place is not None:
            places[kind] = place
    return places


def _from_meshes() -> Places:
    """Of all device meshes with named dimensions that live: those that span most ranks count first."""
    mesh_type = getattr(sys.modules.get("torch.distributed.device_mesh"), "DeviceMesh", None)
    if mesh_type is None:
        return {}
    meshes = [found for found in gc.get_objects() if type(found) is mesh_type and found.mesh_dim_names]
    named: dict[str, list[tuple[str, dict[str, int]]]] = {}
    for mesh in sorted(meshes, key=lambda found: -found.mesh.numel()):
        coordinate = mesh.get_coordinate()
        if coordinate is None:  # this rank is not in it
            continue
        for name, rank, size in zip(mesh.mesh_dim_names, coordinate, mesh.mesh.shape):
            kind = _KIND_OF.get(name.lower())
            place = _place(rank, size)
            if kind is None or place is None or any(name == known for known, _ in named.get(kind, [])):
                continue
            if kind in named and not _belongs_beside(mesh, named[kind]):
                continue
            named.setdefault(kind, []).append((name, place))
    places: Places = {}
    for kind, dimensions in named.items():
        rank, size = 0, 1
        for _, place in dimensions:  # replicas of shards: the later dimension is the faster one
            rank, size = rank * place["size"] + place["rank"], size * place["size"]
        places[kind] = {"rank": rank, "size": size}
    return places


def _belongs_beside(mesh: Any, dimensions: list[tuple[str, dict[str, int]]]) -> bool:
    """Whether the dimensions of one kind that are known are all of this mesh: dp_replicate beside dp_shard."""
    return all(name in mesh.mesh_dim_names for name, _ in dimensions)


def places_of_rank(sizes: dict[str, int]) -> Places:
    """Returns the places of this process: as told, else as the host's libraries know them by now. Never raises
    but for sizes that cannot be.

    Raises:
        FormatError: the product of `sizes` is not the size of the job.
    """
    if sizes:
        return told_places(sizes, _manifest.rank_of_process(), _manifest.world_size())
    if _manifest.world_size() < 2:
        return {}
    for name, functions in (
        ("vllm.distributed.parallel_state", _COORDINATORS),
        ("sglang.srt.distributed.parallel_state", _COORDINATORS_OF_SGLANG),
    ):
        module = sys.modules.get(name)
        if module is not None and (places := _from_coordinators(module, functions)):
            return places
    megatron = sys.modules.get("megatron.core.parallel_state")
    if megatron is not None and (places := _from_functions(megatron, _MEGATRON)):
        return places
    try:
        return _from_meshes()
    except Exception:  # a mesh of another version of torch
        return {}
