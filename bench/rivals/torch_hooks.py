# SPDX-License-Identifier: Apache-2.0
"""Dump scripts as people write them for one afternoon: forward hooks in Python.

Every input and output of every module is taken, as the tool under test does; nothing is shared between them.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def tensors_of(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (slot path, tensor) of nested tuples, lists and dicts."""
    import torch

    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors_of(item, f"{path}.{key}")
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from tensors_of(item, f"{path}.{index}")


class HookScript:
    """Registers one forward hook a module and hands every tensor to `take`."""

    def __init__(self, model: Any, folder: Path) -> None:
        self.folder = folder
        self.step = 0
        self._handles = [
            module.register_forward_hook(self._hook(name or "root"), with_kwargs=True)
            for name, module in model.named_modules()
        ]

    def _hook(self, name: str) -> Any:
        def hook(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            for role, value in (("input", args), ("kwargs", kwargs), ("output", output)):
                for slot, tensor in tensors_of(value):
                    self.take(f"{name}.{role}{slot}", tensor)

        return hook

    def take(self, name: str, tensor: Any) -> None:
        """Records one tensor."""
        raise NotImplementedError

    def end_step(self) -> None:
        """What the script does when a step is over; part of the step's time."""
        self.step += 1

    def close(self) -> None:
        """Writes what is still held."""

    def remove(self) -> None:
        """Removes the hooks."""
        for handle in self._handles:
            handle.remove()


class StatisticsScript(HookScript):
    """Four torch reductions a tensor, a row in memory each, one csv file at the end."""

    def __init__(self, model: Any, folder: Path) -> None:
        super().__init__(model, folder)
        self.rows: list[tuple[Any, ...]] = []

    def take(self, name: str, tensor: Any) -> None:
        """Appends (step, name, min, max, mean, L2 norm)."""
        values = tensor.float()
        self.rows.append(
            (
                self.step,
                name,
                values.min().item(),
                values.max().item(),
                values.mean().item(),
                values.norm().item(),
            )
        )

    def close(self) -> None:
        """Appends to statistics.csv."""
        with open(self.folder / "statistics.csv", "a", newline="") as file:
            csv.writer(file).writerows(self.rows)
        self.rows.clear()


class TorchSaveScript(HookScript):
    """`torch.save`, one file a tensor."""

    def take(self, name: str, tensor: Any) -> None:
        """Writes <step>/<name>.pth."""
        import torch

        folder = self.folder / str(self.step)
        os.makedirs(folder, exist_ok=True)
        torch.save(tensor.detach().cpu(), folder / f"{name}.pth")


class SafetensorsScript(HookScript):
    """Clones in memory, one safetensors file a step, written when the step is over."""

    def __init__(self, model: Any, folder: Path) -> None:
        super().__init__(model, folder)
        self.held: dict[str, Any] = {}

    def take(self, name: str, tensor: Any) -> None:
        """Keeps a contiguous copy."""
        self.held[name] = tensor.detach().cpu().clone().contiguous()

    def end_step(self) -> None:
        """Writes step-<n>.safetensors."""
        from safetensors.torch import save_file

        save_file(self.held, self.folder / f"step-{self.step}.safetensors")
        self.held.clear()
        super().end_step()
