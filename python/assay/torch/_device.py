# SPDX-License-Identifier: Apache-2.0
"""Tensors on an accelerator: statistics reduced there, bytes copied on a side stream, one wait for everything.

A synchronisation per tensor would stop the device after every module. Here each tensor costs some asynchronous
launches; :meth:`DevicePath.fetch` waits once a step. The code uses only operations that every backend has, so it runs
on the CPU as well, which is how it is tested.
"""

from __future__ import annotations

import sys
from typing import Any, Optional

import torch

__all__ = ["DevicePath"]

Stats = tuple[float, float, float, float, float, float, float, float]


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
        self._streams: dict[torch.device, Any] = {}
        self.in_graph_capture = 0  # tensors met while a CUDA graph was being recorded

    def send(self, tensor: torch.Tensor) -> None:
        """Starts the work for one tensor; returns before it is done. Nothing of the tensor is kept alive.

        Raises:
            RuntimeError: a CUDA graph is being recorded: any work of ours would become part of it, or break it.
        """
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            self.in_graph_capture += 1
            if self.in_graph_capture == 1:
                print("assay: warning: modules inside a CUDA graph are out of sight", file=sys.stderr)
            raise RuntimeError("inside the capture of a CUDA graph")
        with torch.no_grad():
            source = tensor.detach()
            if source.is_conj() or source.is_neg():
                source = source.resolve_conj().resolve_neg()
            self._rows.append(self._reduce(source) if self._stats else None)
            self._copies.append(self._start_copy(source) if self._data else None)

    def fetch(self) -> list[tuple[Optional[Stats], Optional[torch.Tensor]]]:
        """Waits for everything sent so far and forgets it.

        Returns:
            One pair a tensor: count, NaN, +Inf, -Inf, min, max, mean, L2 over the finite values; and a CPU tensor.
        """
        rows, copies = self._rows, self._copies
        if not rows:
            return []
        self._rows, self._copies = [], []
        for stream in self._streams.values():
            stream.synchronize()
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
                count, nan, pos_inf, neg_inf, low, high, total, squares = values
                finite = count - nan - pos_inf - neg_inf
                mean = total / finite if finite else float("nan")
                empty = finite == 0
                result[index] = (
                    count, nan, pos_inf, neg_inf,
                    float("nan") if empty else low, float("nan") if empty else high,
                    mean, squares**0.5,
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
        finite = torch.isfinite(values)
        kept = torch.where(finite, values, torch.zeros((), dtype=wide, device=values.device))
        infinity = float("inf")  # as a scalar: a tensor would be a transfer, hence a wait
        count = torch.full((), float(values.numel()), dtype=wide, device=values.device)
        if values.numel() == 0:
            zero = torch.zeros((), dtype=wide, device=values.device)
            return torch.stack([count, zero, zero, zero, zero, zero, zero, zero])
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
            ]
        )

    def _start_copy(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type == "cpu":
            return tensor.clone(memory_format=torch.contiguous_format)
        if tensor.device.type != "cuda":
            return tensor.to("cpu", copy=True)  # no pinned staging known: correct, and it waits
        stream = self._streams.get(tensor.device)
        if stream is None:
            stream = self._streams[tensor.device] = torch.cuda.Stream(tensor.device)  # type: ignore[no-untyped-call]
        # The copy on the device happens in the model's stream, before anything can overwrite the tensor.
        staged = tensor.clone(memory_format=torch.contiguous_format)
        host = torch.empty(staged.shape, dtype=staged.dtype, device="cpu", pin_memory=True)
        stream.wait_stream(torch.cuda.current_stream(tensor.device))
        with torch.cuda.stream(stream):
            host.copy_(staged, non_blocking=True)
        staged.record_stream(stream)
        return host
