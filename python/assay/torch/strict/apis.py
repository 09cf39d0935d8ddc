# SPDX-License-Identifier: Apache-2.0
"""Mode "api": the functions that are replaced by recording wrappers while hooks are installed."""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any, Callable

from assay.torch.strict.log import warn_once

if TYPE_CHECKING:
    import re


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


API_NAMES = {
    "torch.nn.functional": _names(
        """
        threshold threshold_ relu relu_ glu hardtanh hardtanh_ relu6 elu elu_ selu selu_ celu celu_ leaky_relu
        leaky_relu_ prelu rrelu rrelu_ logsigmoid gelu hardshrink tanhshrink softsign softplus softmin softmax
        gumbel_softmax log_softmax softshrink tanh sigmoid hardsigmoid silu hardswish pixel_shuffle pixel_unshuffle
        channel_shuffle upsample_nearest upsample_bilinear grid_sample affine_grid pdist one_hot
        """
    ),
    "torch": _names(
        """
        abs absolute acos arccos acosh arccosh add addcdiv addcmul angle asin arcsin asinh arcsinh atan arctan atanh
        arctanh atan2 arctan2 bitwise_not bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift
        ceil clamp clip conj_physical copysign cos cosh deg2rad div divide digamma erf erfc erfinv exp exp2 expm1
        fake_quantize_per_channel_affine fake_quantize_per_tensor_affine fix float_power floor floor_divide fmod
        frac frexp gradient imag ldexp lerp lgamma log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not
        logical_or logical_xor logit hypot i0 igamma igammac mul multiply mvlgamma nan_to_num neg negative nextafter
        polygamma positive pow quantized_batch_norm quantized_max_pool1d quantized_max_pool2d rad2deg real
        reciprocal remainder round rsqrt sigmoid sign sgn signbit sin sinc sinh softmax sqrt square sub subtract tan
        tanh true_divide trunc xlogy addbmm addmm addmv addr baddbmm bmm chain_matmul cholesky cholesky_inverse
        cholesky_solve dot geqrf ger inner inverse det logdet slogdet lu lu_solve lu_unpack matmul matrix_power
        matrix_exp mm mv orgqr ormqr outer pinverse qr svd svd_lowrank pca_lowrank lobpcg trapz trapezoid
        cumulative_trapezoid triangular_solve vdot
        """
    ),
    "torch.distributed": _names(
        """
        send recv broadcast all_reduce reduce all_gather gather isend irecv scatter reduce_scatter
        """
    ),
    "torch_npu": _names(
        """
        fast_gelu npu_mish npu_scaled_masked_softmax npu_dropout_with_add_softmax npu_random_choice_with_mask
        npu_roi_align npu_roi_alignbk npu_all_gather_base_mm
        """
    ),
}


class ApiWrappers:
    """Replaces the functions of API_NAMES that this torch has; remove() puts every one back.

    Only calls that look the function up afterwards are seen: not methods, operators, names imported earlier, nor
    calls from C++.
    """

    def __init__(self, dumper: Any, node_type: str, layer_pattern: re.Pattern[str], api_list: list[Any]):
        self._dumper = dumper
        self._node_type = node_type
        self._layer_pattern = layer_pattern
        self._api_list = api_list
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        for module_name, names in API_NAMES.items():
            try:
                module = importlib.import_module(module_name)
            except ImportError:
                warn_once(("api", module_name), f"{module_name} cannot be imported: its functions are not dumped.")
                continue
            for name in names:
                function = getattr(module, name, None)
                if callable(function) and self._is_listed(module_name, name, function):
                    wrapper = self._wrap(name, function)
                    setattr(module, name, wrapper)
                    self._replaced.append((module, name, function, wrapper))

    def remove(self) -> None:
        """Restores the functions, except where somebody else has put a wrapper around ours in the meantime."""
        for module, name, function, wrapper in reversed(self._replaced):
            if getattr(module, name, None) is wrapper:
                setattr(module, name, function)
        self._replaced.clear()

    def _is_listed(self, module_name: str, name: str, function: Any) -> bool:
        spellings = (name, f"{module_name}.{name}")
        return not self._api_list or any(
            entry is function or (isinstance(entry, str) and entry in spellings) for entry in self._api_list
        )

    def _wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        dumper, node_type, matches = self._dumper, self._node_type, self._layer_pattern.match
        api_name = getattr(function, "__name__", name)

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            if dumper.wants_apis():
                folder = f"{dumper.current_module()}.{api_name}"
                if matches(folder):
                    dumper.dump_api(folder, node_type, args, result)
            return result

        return recorded
