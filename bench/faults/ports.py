# SPDX-License-Identifier: Apache-2.0
"""Healthy ports of a model's matrices: in codes of 8 bits with scales, or with a low-rank part beside them.

A port computes what the model does, with matrices that differ by the rounding of their type. Merging a low-rank part
changes nothing but rounding.
"""

from __future__ import annotations

import copy

import torch

from assay.twin.places import of
from bench.faults import faults
from bench.faults.families import narrowed

INT8_LARGEST = 127
RANK = 4
GROUP = 8
PROMPT = 48  # tokens, so that every expert is asked


class Quantised(torch.nn.Module):
    """A linear layer whose matrix is codes with one scale a row, as compressed-tensors names them.

    Args:
        linear: [out, in], floating.
        codes: int8 or a float of 8 bits.
        scales: their type, and that of the bias.
    """

    def __init__(self, linear: torch.nn.Linear, codes: torch.dtype, scales: torch.dtype) -> None:
        super().__init__()
        whole = codes == torch.int8
        largest = INT8_LARGEST if whole else torch.finfo(codes).max
        matrix = linear.weight.detach().float()
        scale = matrix.abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / largest
        steps = matrix / scale
        self.weight = torch.nn.Parameter((steps.round() if whole else steps).to(codes), requires_grad=False)
        self.weight_scale = torch.nn.Parameter(scale.to(scales), requires_grad=False)
        self.bias = None if linear.bias is None else torch.nn.Parameter(linear.bias.detach().to(scales))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in] to [..., out]; the matrix is restored in the type of `x`."""
        return torch.nn.functional.linear(x, self.weight.to(x.dtype) * self.weight_scale.to(x.dtype), self.bias)


class Packed(torch.nn.Module):
    """A linear layer of codes of four bits, eight a word, with a scale a group: compressed-tensors' packing.

    Args:
        linear: [out, in], in a multiple of GROUP.
        scales: their type, and that of the bias.
        zeros: groups have a zero point, too.
    """

    def __init__(self, linear: torch.nn.Linear, scales: torch.dtype, zeros: bool = False) -> None:
        super().__init__()
        out, into = linear.weight.shape
        groups = linear.weight.detach().float().view(out, into // GROUP, GROUP)
        if zeros:
            low, high = groups.amin(-1).clamp_max(0), groups.amax(-1).clamp_min(0)
            scale = ((high - low) / 15).clamp_min(1e-9).to(scales)
            zero = (-low / scale.float()).round().clamp(0, 15) - 8
        else:
            scale = (groups.abs().amax(-1) / 7).clamp_min(1e-9).to(scales)
            zero = torch.zeros(scale.shape)
        codes = (groups / scale.float()[..., None] + zero[..., None]).round().clamp(-8, 7).long() + 8
        words = sum(codes.view(out, into // 8, 8)[:, :, place] << (4 * place) for place in range(8))
        assert isinstance(words, torch.Tensor)

        def kept(values: torch.Tensor) -> torch.nn.Parameter:
            return torch.nn.Parameter(values, requires_grad=False)

        self.weight_packed = kept(torch.where(words >= 2**31, words - 2**32, words).to(torch.int32))
        self.weight_scale = kept(scale)
        self.weight_shape = kept(torch.tensor([out, into]))
        self.weight_zero_point = kept(zero.to(torch.int8)) if zeros else None
        self.bias = None if linear.bias is None else kept(linear.bias.detach().to(scales))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in] to [..., out]; the matrix is restored in the type of `x`."""
        out, groups = self.weight_scale.shape
        shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=x.device)
        codes = ((self.weight_packed[..., None] >> shifts) & 15).view(out, groups, GROUP).to(x.dtype) - 8
        if self.weight_zero_point is not None:
            codes = codes - self.weight_zero_point.to(x.dtype)[..., None]
        matrix = (codes * self.weight_scale.to(x.dtype)[..., None]).view(out, groups * GROUP)
        return torch.nn.functional.linear(x, matrix, self.bias)


class LowRank(torch.nn.Module):
    """A linear layer and a low-rank part beside it, with PEFT's names: y = W x + B (A x)."""

    def __init__(self, linear: torch.nn.Linear, generator: torch.Generator) -> None:
        super().__init__()
        out, into = linear.weight.shape
        down = torch.nn.Linear(into, RANK, bias=False)
        up = torch.nn.Linear(RANK, out, bias=False)
        with torch.no_grad():
            size = 0.3 * float(linear.weight.norm()) / (RANK * out * into) ** 0.5 * into**0.5
            down.weight.copy_(torch.randn(RANK, into, generator=generator) / into**0.5)
            up.weight.copy_(size * torch.randn(out, RANK, generator=generator))
        self.base_layer = linear
        self.lora_A = torch.nn.ModuleDict({"default": down.to(linear.weight)})
        self.lora_B = torch.nn.ModuleDict({"default": up.to(linear.weight)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in] to [..., out]."""
        part: torch.Tensor = self.lora_B["default"](self.lora_A["default"](x))
        return torch.as_tensor(self.base_layer(x)) + part

    def merged(self) -> torch.nn.Linear:
        """One matrix that computes the same."""
        with torch.no_grad():
            self.base_layer.weight += self.lora_B["default"].weight @ self.lora_A["default"].weight
        return self.base_layer


def quantised(model: torch.nn.Module, codes: torch.dtype, dtype: torch.dtype) -> torch.nn.Module:
    """A copy in `dtype`, with codes and scales in the place of every matrix of the decoder's layers.

    Raises:
        NoFault: the layers have no matrices that are called.
    """
    port = narrowed(model, dtype)
    for path in (path for layer in _linears(model) for path in layer):
        linear = model.get_submodule(path)
        assert isinstance(linear, torch.nn.Linear)
        port.set_submodule(path, Quantised(linear, codes, dtype))
    return port


def packed(model: torch.nn.Module, dtype: torch.dtype, zeros: bool = False) -> torch.nn.Module:
    """A copy in `dtype`, with packed codes of four bits in the place of every matrix of the decoder's layers.

    Raises:
        NoFault: as quantised().
    """
    port = narrowed(model, dtype)
    for path in (path for layer in _linears(model) for path in layer):
        linear = model.get_submodule(path)
        assert isinstance(linear, torch.nn.Linear)
        if linear.in_features % GROUP == 0:
            port.set_submodule(path, Packed(linear, dtype, zeros))
    return port


def with_low_rank(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    """A copy with a low-rank part beside the first matrix of each layer; the same for one seed.

    Raises:
        NoFault: as quantised().
    """
    generator = torch.Generator().manual_seed(seed)
    port = copy.deepcopy(model)
    for path in (layer[0] for layer in _linears(model) if layer):
        linear = port.get_submodule(path)
        assert isinstance(linear, torch.nn.Linear)
        port.set_submodule(path, LowRank(linear, generator))
    return port


def merged(model: torch.nn.Module) -> torch.nn.Module:
    """A copy with all low-rank parts merged into their matrices."""
    port = copy.deepcopy(model)
    for path, module in list(port.named_modules()):
        if isinstance(module, LowRank):
            port.set_submodule(path, module.merged())
    return port


def _linears(model: torch.nn.Module) -> list[list[str]]:
    """Paths of torch's Linear in each layer; subclasses and matrices that are read elsewhere stay as they are."""
    found = of(model)
    read = _read_elsewhere(model)
    linears = []
    for number in range(found.layers):
        layer = found.layer.format(number)
        inside = model.get_submodule(layer).named_modules()
        linears.append([f"{layer}.{path}" for path, one in inside if type(one) is torch.nn.Linear and one not in read])
    if not any(linears):
        raise faults.NoFault("no layer has a torch.nn.Linear")
    return linears


def _read_elsewhere(model: torch.nn.Module) -> set[torch.nn.Module]:
    """Matrices that another module multiplies with, as Mamba's mixers do: of a prompt, they are never called."""
    uncalled = {module for module in model.modules() if type(module) is torch.nn.Linear}
    handles = [module.register_forward_pre_hook(lambda module, _: uncalled.discard(module)) for module in uncalled]
    with torch.no_grad():
        model(input_ids=torch.arange(1, PROMPT + 1)[None], use_cache=False)
    for handle in handles:
        handle.remove()
    return uncalled
