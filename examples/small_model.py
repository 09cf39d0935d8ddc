#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small model runs one step: in float32, in bfloat16, or in bfloat16 with one norm that the port got wrong.

python examples/small_model.py [--bfloat16] [--fault]
"""

import sys

import torch


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp = torch.nn.LayerNorm(64), torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.nn.functional.gelu(self.mlp(self.norm(x)))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*(Layer() for _ in range(4)))
        self.head = torch.nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x))


torch.manual_seed(0)
model, x = Model(), torch.randn(4, 64)
if "--fault" in sys.argv:
    model.layers[2].norm.weight.data *= 1.03
if "--bfloat16" in sys.argv:
    model, x = model.bfloat16(), x.bfloat16()
with torch.no_grad():
    print("answer:", model(x).argmax(-1).tolist())
