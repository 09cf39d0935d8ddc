# SPDX-License-Identifier: Apache-2.0
"""Tensors on an accelerator by torch's own operators: statistics reduced there, bytes copied, one wait for everything.

A synchronisation per tensor would stop the device after every module. Here each tensor costs some asynchronous
launches; :meth:`DevicePath.fetch` waits once a step. CUDA devices have a faster way for most tensors
(src/capture/torch/cuda_path.hpp); the code here is for all others, and for the types that way has no kernel for. It
uses only operations that every backend has, so it runs on the CPU as well, which is how it is tested.
"""

from __future__ import annotations

import sys
from typing import Any, Optional

import torch

from assay import _capture
from assay.torch import _cuda

__all__ = ["DevicePath"]

Stats = tuple[float, float, float, float, float, float, float, float]
_IN_GRAPH = "inside a CUDA graph"


def warn(sentence: str) -> None:
    """Says something on stderr, if the host has one."""
    try:
        print(f"assay: warning: {sentence}", file=sys.stderr)
    except (OSError, ValueError):
        return


class DevicePath:
    """Collects tensors in the order of :meth:`send` and hands their results back in that order.

    Args:
        stats: whether statistics are wanted.
        data: whether the bytes are wanted.
    """

    def __init__(self, stats: bool, data: bool) -> None:
        self._stats = stats
        self._data = data
        self._rows: list[Optional[torch.Tensor]] = []
        self._copies: list[Optional[torch.Tensor]] = []
        self._side_streams: dict[torch.device, Any] = {}
        self._used_streams: set[Any] = set()  # of the model, on which there is work of ours
        self.in_graph_capture = 0  # tensors met while a CUDA graph was being recorded

    def open_cuda(self, index: int) -> Optional[_cuda.CudaDevice]:
        """Called once a device by the native half, which then does without this class for most tensors."""
        return _cuda.opened(index, _capture.device_statistics_source(), warn)

    pack = staticmethod(_cuda.pack)

    def send(self, tensor: torch.Tensor) -> Optional[str]:
        """Starts the work for one tensor; returns before it is done. Nothing of the tensor is kept alive.

        Returns:
            Why it was refused, or None. While a CUDA graph is recorded, any work of ours would become part of it, or
            break it.
        """
        if tensor.is_cuda:
            if torch.cuda.is_current_stream_capturing():
                self.in_graph_capture += 1
                if self.in_graph_capture == 1:
                    warn("modules inside a CUDA graph are out of sight")
                return _IN_GRAPH
            self._used_streams.add(torch.cuda.current_stream(tensor.device))
        with torch.no_grad():
            source = tensor.detach()
            if source.is_conj() or source.is_neg():
                source = source.resolve_conj().resolve_neg()
            self._rows.append(self._reduce(source) if self._stats else None)
            self._copies.append(self._start_copy(source) if self._data else None)
        return None

    def fetch(self) -> list[tuple[Optional[Stats], Optional[torch.Tensor]]]:
        """Waits for everything sent so far and forgets it.

        Returns:
            One pair a tensor: count, NaN, +Inf, -Inf, min, max, mean, L2 over the finite values; and a CPU tensor.
        """
        rows, copies = self._rows, self._copies
        if not rows:
            return []
        self._rows, self._copies = [], []
        # Rows may have been made on several streams of the model; the one that is current now knows nothing of them.
        for stream in (*self._used_streams, *self._side_streams.values()):
            stream.synchronize()
        self._used_streams.clear()
        stats = self._fetch_rows(rows)
        return list(zip(stats, copies))

    @staticmethod
    def _fetch_rows(rows: list[Optional[torch.Tensor]]) -> list[Optional[Stats]]:
        # One transfer a device, not one a tensor.
        by_device: dict[torch.device, list[int]] = {}
        for index, row in enumerate(rows):
            if row is not None:
                by_device.setdefault(row.device, []).append(index)
        result: list[Optional[Stats]] = [None] * len(rows)
        for indices in by_device.values():
            fetched = torch.stack([row for i in indices if (row := rows[i]) is not None]).cpu().tolist()
            for index, values in zip(indices, fetched):
                count, nan, pos_inf, neg_inf, low, high, total, squares, scale = values
                finite = count - nan - pos_inf - neg_inf
                mean = total / finite / scale if finite else float("nan")
                empty = finite == 0
                result[index] = (
                    count, nan, pos_inf, neg_inf,
                    float("nan") if empty else low, float("nan") if empty else high,
                    mean, squares**0.5 / scale,
                )  # fmt: skip
        return result

    @staticmethod
    def _reduce(tensor: torch.Tensor) -> torch.Tensor:
        # MPS and some others have no float64; their sums are then float32.
        wide = torch.float32 if tensor.device.type == "mps" else torch.float64
        if tensor.is_complex():  # absolute values, of parts that are wide already
            values = tensor.to(torch.complex64 if wide == torch.float32 else torch.complex128).abs()
        else:
            values = tensor.to(wide)
        count = torch.full((), float(values.numel()), dtype=wide, device=values.device)
        one = torch.ones((), dtype=wide, device=values.device)
        if values.numel() == 0:
            zero = torch.zeros((), dtype=wide, device=values.device)
            return torch.stack([count, zero, zero, zero, zero, zero, zero, zero, one])
        finite = torch.isfinite(values)
        kept = torch.where(finite, values, torch.zeros((), dtype=wide, device=values.device))
        infinity = float("inf")  # as a scalar: a tensor would be a transfer, hence a wait
        scale = one
        if tensor.dtype in (torch.float64, torch.complex128):
            # A power of two where squares would leave the range of a double, as src/stats does: the mantissa is kept.
            largest = kept.abs().amax()
            _, exponent = torch.frexp(largest)
            fits = ((largest == 0) | (largest > 1e-140)) & (largest < 1e140)
            scale = torch.where(fits, one, torch.exp2((-exponent).clamp(-1000, 1000).to(wide)))
            kept = kept * scale
        return torch.stack(
            [
                count,
                torch.isnan(values).sum().to(wide),
                (values == infinity).sum().to(wide),
                (values == -infinity).sum().to(wide),
                torch.where(finite, values, infinity).min(),
                torch.where(finite, values, -infinity).max(),
                kept.sum(),
                (kept * kept).sum(),
                scale,
            ]
        )

    def _start_copy(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type == "cpu":
            return tensor.clone(memory_format=torch.contiguous_format)
        if tensor.device.type != "cuda":
            return tensor.to("cpu", copy=True)  # no pinned staging known: correct, and it waits
        stream = self._side_streams.get(tensor.device)
        if stream is None:
            stream = self._side_streams[tensor.device] = torch.cuda.Stream(tensor.device)  # type: ignore[no-untyped-call]
        # The copy on the device happens in the model's stream, before anything can overwrite the tensor.
        staged = tensor.clone(memory_format=torch.contiguous_format)
        host = torch.empty(staged.shape, dtype=staged.dtype, device="cpu", pin_memory=True)
        stream.wait_stream(torch.cuda.current_stream(tensor.device))
        with torch.cuda.stream(stream):
            host.copy_(staged, non_blocking=True)
        staged.record_stream(stream)
        return host
