# SPDX-License-Identifier: Apache-2.0
"""Random weights that make every operator of a model matter.

The usual initialisation leaves norms at one and biases at zero, where some faults do nothing: both are drawn.
"""

from __future__ import annotations

import torch

from assay.twin import places


def draw(model: torch.nn.Module, generator: torch.Generator) -> None:
    """Draws the weights in place. Those of no known kind stay as they were made, such as the decay of a state space."""
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            _draw(model, path, parameter, generator)


def _draw(model: torch.nn.Module, path: str, parameter: torch.Tensor, generator: torch.Generator) -> None:
    owner = model.get_submodule(path.rpartition(".")[0])
    draw = torch.randn(parameter.shape, generator=generator)
    if places.is_embedding(owner):
        parameter.copy_(draw * 0.5)
    elif path.endswith("bias") and parameter.dim() == 1:
        parameter.copy_(draw * 0.1)
    elif places.is_norm(owner):
        # Gains are about one; Gemma's are about zero, to which it adds one.
        parameter.copy_(float(parameter.detach().float().mean()).__round__() + draw * 0.1)
    elif places.is_linear(owner) or parameter.dim() == 3 or (path.endswith("weight") and parameter.dim() == 2):
        # Activations keep their size from layer to layer, and heads do not all look alike.
        fan_in = parameter.shape[-2] if places.is_transposed(owner) else parameter.shape[-1]
        parameter.copy_(draw * fan_in**-0.5)
