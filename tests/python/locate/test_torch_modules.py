# SPDX-License-Identifier: Apache-2.0
"""Modules of torch.nn that no language model has: images, recurrent layers, fused layers of encoders."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import assay


def images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(16, 16, 3, padding=1), nn.AvgPool2d(3, 1, 1), nn.Upsample(scale_factor=2),
        nn.Conv2d(16, 16, 1), nn.Upsample(scale_factor=1.5, mode="bicubic"), nn.Unfold(2, stride=2), nn.Linear(144, 10),
    )  # fmt: skip


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 24)
        self.recurrent = nn.LSTM(24, 32, 2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(64, 50)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.recurrent(self.embed(ids))[0])


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(64, 4, 96, dropout=0.0, batch_first=True, norm_first=True, activation="gelu")
    return nn.Sequential(
        nn.Linear(64, 64), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(64, 9)
    )


# Model, input, and the module that is made one third too loud.
WORLDS = {
    "images": (images, lambda: torch.randn(2, 3, 16, 16), "4"),
    "recurrent": (Recurrent, lambda: torch.randint(0, 50, (2, 9)), "recurrent"),
    "encoder": (encoder, lambda: torch.randn(2, 9, 64), "1.layers.1"),
}


def capture(folder: Path, world: str, dtype: torch.dtype, level: str, fault: bool = False) -> Path:
    torch.manual_seed(7)
    make, inputs, faulty = WORLDS[world]
    model = make().to(dtype).eval()
    x = inputs()
    if fault:
        model.get_submodule(faulty).register_forward_hook(
            lambda _module, _inputs, y: (y[0] * 4 / 3, *y[1:]) if isinstance(y, tuple) else y * 4 / 3
        )
    with torch.no_grad(), assay.capture(model, folder, level=level, weights=True):
        model(x.to(dtype) if x.is_floating_point() else x)
    return folder


@pytest.mark.parametrize("level", ["operator", "module"])
@pytest.mark.parametrize("world", WORLDS)
def test_healthy_ones_are_clean_and_a_loud_module_is_named(tmp_path: Path, world: str, level: str) -> None:
    golden = capture(tmp_path / "golden", world, torch.float32, "operator")
    healthy = assay.locate(golden, capture(tmp_path / "mine", world, torch.bfloat16, level))
    assert healthy.outcome == "clean", healthy.sentence
    faulty = assay.locate(golden, capture(tmp_path / "faulty", world, torch.bfloat16, level, fault=True))
    assert faulty.outcome == "first_wrong" and faulty.first_bad is not None, faulty.sentence
    assert faulty.first_bad.module == WORLDS[world][2], faulty.sentence
