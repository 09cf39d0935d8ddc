# SPDX-License-Identifier: Apache-2.0
"""Tensors whose bytes the native dumper cannot reach: other devices, lazy bits, exotic layouts."""

from __future__ import annotations

import os
from typing import Any, Optional

from assay.torch.strict.log import warn_once


def dense_cpu_tensor(tensor: Any, path: Optional[str]) -> Optional[Any]:
    """Returns a strided CPU tensor of the same values, or None when there is none.

    Args:
        tensor: any tensor.
        path: where its file belongs, or None when only statistics are asked for. A tensor that no dense one stands
            for (quantised, sparse) is saved there by torch itself.
    """
    import torch
    from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

    from assay.torch._wrappers import local_tensor_of

    with torch.no_grad():
        local = local_tensor_of(tensor)
        plain = tensor.detach() if local is None else local.detach()
        if plain.device.type == "meta" or isinstance(plain, (UninitializedParameter, UninitializedBuffer)):
            _skip(tensor, "it has no data")
            return None
        is_values = not str(plain.dtype).startswith(("torch.bits", "torch.q"))
        if plain.layout == torch.strided and is_values and not plain.is_nested:
            dense = plain.cpu().resolve_conj().resolve_neg()
            if dense.numel() > 0 and not _has_memory(dense):
                _skip(tensor, "its class keeps no storage")
                return None
            return dense
        if path is None:
            _skip(tensor, "it is quantised, sparse or nested")
            return None
        os.makedirs(os.path.dirname(path), mode=0o750, exist_ok=True)
        torch.save(plain.cpu(), path)
        return None


def _has_memory(tensor: Any) -> bool:
    if type(tensor).__name__ == "FakeTensor":  # torch warns when its address is asked for
        return False
    try:
        return bool(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):
        return False


def _skip(tensor: Any, reason: str) -> None:
    warn_once(
        ("skipped", type(tensor), tensor.layout, reason),
        f"A {type(tensor).__name__} of {tensor.dtype} is not dumped: {reason}.",
    )
