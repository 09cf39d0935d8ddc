# SPDX-License-Identifier: Apache-2.0
"""Names of operators: a GE type for every Aten operator, formal operand names, unique operator names in one graph.

The tables hold the types whose GE operator computes what the Aten operator computes. An Aten operator that is not in
them is named by its own name in CamelCase: ``aten.foo_bar`` -> ``FooBar``. Importing this module does not import torch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Optional

__all__ = ["OperatorNames", "formal_names", "ge_type", "known_type", "pack_name"]

# Aten name without overload -> GE type.
_TYPES = {
    "_adaptive_avg_pool2d": "AdaptiveAvgPool2d",
    "_log_softmax": "LogSoftmaxV2",
    "_log_softmax_backward_data": "LogSoftmaxGrad",
    "_scaled_dot_product_efficient_attention": "FlashAttentionScore",
    "_scaled_dot_product_flash_attention": "FlashAttentionScore",
    "_scaled_dot_product_flash_attention_for_cpu": "FlashAttentionScore",
    "_scaled_dot_product_flash_attention_for_cpu_backward": "FlashAttentionScoreGrad",
    "_softmax": "SoftmaxV2",
    "_softmax_backward_data": "SoftmaxGrad",
    "_to_copy": "Cast",
    "_unsafe_view": "Reshape",
    "abs": "Abs",
    "add": "Add",
    "addbmm": "Addbmm",
    "addcdiv": "Addcdiv",
    "addcmul": "Addcmul",
    "addmm": "Addmm",
    "alias": "Identity",
    "all": "ReduceAll",
    "amax": "ReduceMax",
    "amin": "ReduceMin",
    "any": "ReduceAny",
    "arange": "Range",
    "argmax": "ArgMaxV2",
    "argmin": "ArgMin",
    "as_strided": "AsStrided",
    "baddbmm": "Baddbmm",
    "batch_norm": "BatchNorm",
    "bernoulli": "StatelessBernoulli",
    "bitwise_and": "BitwiseAnd",
    "bitwise_not": "Invert",
    "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor",
    "bmm": "BatchMatMulV2",
    "cat": "ConcatD",
    "ceil": "Ceil",
    "clamp": "ClipByValueV2",
    "clamp_max": "Minimum",
    "clamp_min": "Maximum",
    "clone": "TensorMove",
    "constant_pad_nd": "PadV3",
    "convolution": "Conv2D",
    "copy": "TensorMove",
    "copy_": "Assign",
    "cos": "Cos",
    "cumsum": "Cumsum",
    "detach": "Identity",
    "dequantize": "AscendDequant",
    "dequantize_per_channel": "AscendDequant",
    "dequantize_per_tensor": "AscendDequant",
    "dequantize_per_token": "AscendDequant",
    "div": "RealDiv",
    "dropout": "DropOutDoMaskV3",
    "elu": "Elu",
    "embedding": "GatherV2",
    "embedding_dense_backward": "EmbeddingDenseGrad",
    "empty": "Empty",
    "eq": "Equal",
    "erf": "Erf",
    "exp": "Exp",
    "expand": "BroadcastTo",
    "expm1": "Expm1",
    "eye": "Eye",
    "fill": "Fill",
    "flip": "ReverseV2",
    "floor": "Floor",
    "floor_divide": "FloorDiv",
    "fmod": "FloorMod",
    "full": "Fill",
    "full_like": "Fill",
    "gather": "GatherElements",
    "ge": "GreaterEqual",
    "gelu": "Gelu",
    "gelu_backward": "GeluGrad",
    "group_norm": "GroupNorm",
    "gt": "Greater",
    "hardswish": "HardSwish",
    "index": "Index",
    "index_copy": "ScatterUpdate",
    "index_put": "IndexPutV2",
    "index_put_": "IndexPutV2",
    "index_select": "GatherV2",
    "isfinite": "IsFinite",
    "isinf": "IsInf",
    "isnan": "IsNan",
    "layer_norm": "LayerNormV4",
    "le": "LessEqual",
    "leaky_relu": "LeakyRelu",
    "lift_fresh_copy": "TensorMove",
    "linear": "MatMulV2",
    "log": "Log",
    "log1p": "Log1p",
    "log_softmax": "LogSoftmaxV2",
    "logical_and": "LogicalAnd",
    "logical_not": "LogicalNot",
    "logical_or": "LogicalOr",
    "lt": "Less",
    "masked_fill": "MaskedFill",
    "matmul": "BatchMatMulV2",
    "max": "ReduceMax",
    "max_pool2d_with_indices": "MaxPoolWithArgmaxV2",
    "maximum": "Maximum",
    "mean": "ReduceMean",
    "min": "ReduceMin",
    "minimum": "Minimum",
    "mm": "MatMulV2",
    "mul": "Mul",
    "multinomial": "MultinomialWithReplacement",
    "native_batch_norm": "BatchNorm",
    "native_dropout": "DropOutDoMaskV3",
    "native_group_norm": "GroupNorm",
    "native_layer_norm": "LayerNormV4",
    "native_layer_norm_backward": "LayerNormGradV3",
    "ne": "NotEqual",
    "neg": "Neg",
    "new_empty": "Empty",
    "new_full": "Fill",
    "new_ones": "Fill",
    "new_zeros": "Fill",
    "nll_loss_backward": "NLLLossGrad",
    "nll_loss_forward": "NLLLoss",
    "nonzero": "NonZero",
    "ones": "Fill",
    "ones_like": "OnesLike",
    "permute": "Transpose",
    "pow": "Pow",
    "prod": "ReduceProd",
    "quantize_per_channel": "AscendQuant",
    "quantize_per_tensor": "AscendQuant",
    "quantize_per_token": "AscendQuant",
    "reciprocal": "Reciprocal",
    "relu": "Relu",
    "remainder": "FloorMod",
    "repeat": "Tile",
    "reshape": "Reshape",
    "rms_norm": "RmsNorm",
    "round": "Round",
    "rsqrt": "Rsqrt",
    "scalar_tensor": "Fill",
    "scaled_dot_product_attention": "FlashAttentionScore",
    "scatter": "ScatterElements",
    "scatter_add": "ScatterElements",
    "select": "GatherV2",
    "select_backward": "SelectGrad",
    "select_scatter": "SelectScatter",
    "sigmoid": "Sigmoid",
    "sigmoid_backward": "SigmoidGrad",
    "sign": "Sign",
    "silu": "Swish",
    "silu_backward": "SwishGrad",
    "sin": "Sin",
    "slice": "StridedSlice",
    "slice_backward": "StridedSliceGrad",
    "slice_scatter": "StridedSliceAssign",
    "softmax": "SoftmaxV2",
    "softplus": "SoftplusV2",
    "sort": "Sort",
    "split": "SplitD",
    "split_with_sizes": "SplitVD",
    "sqrt": "Sqrt",
    "squeeze": "Squeeze",
    "stack": "Pack",
    "sub": "Sub",
    "sum": "ReduceSum",
    "t": "Transpose",
    "tanh": "Tanh",
    "tanh_backward": "TanhGrad",
    "threshold_backward": "ReluGrad",
    "topk": "TopKV2",
    "transpose": "Transpose",
    "tril": "Tril",
    "triu": "Triu",
    "unbind": "Unpack",
    "unsqueeze": "Unsqueeze",
    "upsample_nearest2d": "ResizeNearestNeighborV2",
    "var": "ReduceVar",
    "view": "Reshape",
    "where": "SelectV2",
    "zeros": "Fill",
    "zeros_like": "ZerosLike",
}

# GE type -> formal names of inputs and outputs. Operators with more operands than names number the rest.
_BINARY = (("x1", "x2"), ("y",))
_UNARY = (("x",), ("y",))


def _words(text: str) -> list[str]:
    return text.split()


_FORMAL: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **dict.fromkeys(
        _words(
            "Add Sub Mul RealDiv FloorDiv FloorMod Maximum Minimum Equal NotEqual Greater GreaterEqual Less LessEqual "
            "LogicalAnd LogicalOr BitwiseAnd BitwiseOr BitwiseXor Pow"
        ),
        _BINARY,
    ),
    **dict.fromkeys(
        _words(
            "Abs Cast Ceil Cos Erf Exp Floor Gelu HardSwish Identity Invert IsFinite IsInf IsNan Log LogicalNot Neg "
            "OnesLike Reciprocal ReduceMax ReduceMean ReduceMin ReduceSum Relu Reshape Round Rsqrt Sigmoid Sign Sin "
            "SoftmaxV2 Sqrt Squeeze Swish Tanh TensorMove Tril Triu Unsqueeze ZerosLike StridedSlice Transpose "
            "BroadcastTo"
        ),
        _UNARY,
    ),
    "Addmm": (("self", "mat1", "mat2"), ("y",)),
    "Assign": (("ref", "value"), ("ref",)),
    "AxpyV2": (("x1", "x2", "alpha"), ("y",)),
    "BatchMatMulV2": (("x1", "x2", "bias"), ("y",)),
    "Data": (("x",), ("y",)),
    "FlashAttentionScore": (("query", "key", "value", "atten_mask"), ("attention_out", "softmax_lse")),
    "GatherElements": (("x", "index"), ("y",)),
    "GatherV2": (("x", "indices"), ("y",)),
    "IndexPutV2": (("x", "value"), ("x",)),
    "LayerNormV4": (("x", "gamma", "beta"), ("y", "mean", "rstd")),
    "LogSoftmaxV2": (("logits",), ("logsoftmax",)),
    "MaskedFill": (("x", "mask", "value"), ("y",)),
    "MatMulV2": (("x1", "x2", "bias"), ("y",)),
    "RmsNorm": (("x", "gamma"), ("y", "rstd")),
    "SelectV2": (("condition", "then", "else"), ("result",)),
    "TopKV2": (("x", "k"), ("values", "indices")),
}
# Types whose operands come as a list: x0, x1, ...
_LISTED_INPUTS = frozenset({"ConcatD", "Pack"})
_LISTED_OUTPUTS = frozenset({"SplitD", "SplitVD", "Unpack"})

_WORD = re.compile(r"[^A-Za-z0-9]+")


def ge_type(name: str, namespace: str = "aten", alpha: Any = 1) -> str:
    """The operator type for one operator.

    Args:
        name: without overload: "add", "_to_copy", "copy_".
        namespace: "aten"; operators of another one are named by their own name.
        alpha: of ``aten.add`` and ``aten.sub``; another factor than 1 makes an Add an AxpyV2.
    """
    if name == "add" and not _is_one(alpha):
        return "AxpyV2"
    known = known_type(name, namespace)
    if known is not None:
        return known
    words = [word for word in _WORD.split(name.replace("_", " ")) if word]
    camel = "".join(word[0].upper() + word[1:] for word in words)
    return camel if camel and not camel[0].isdigit() else f"Op{camel}"


def known_type(name: str, namespace: str = "aten") -> Optional[str]:
    """The GE type that computes what an operator computes, in place or not; None when the table has none."""
    if namespace not in ("aten", "torch", "prims", "quantized_decomposed"):
        return None
    known = _TYPES.get(name)
    if known is None and name.endswith("_") and not name.endswith("__"):
        known = _TYPES.get(name[:-1])
    return known


def _is_one(value: Any) -> bool:
    return isinstance(value, (int, float)) and value == 1


def formal_names(ge: str, inputs: Sequence[str], output_count: int) -> tuple[list[str], list[str]]:
    """Names of the operands of one operator.

    Args:
        ge: its type.
        inputs: names of the arguments in the operator's own signature, one a tensor input; "" where it has none.
        output_count: how many results it has.
    """
    table_inputs, table_outputs = _FORMAL.get(ge, ((), ()))
    names = []
    for index, own in enumerate(inputs):
        if ge in _LISTED_INPUTS:
            names.append(f"x{index}")
        elif len(inputs) <= len(table_inputs):
            names.append(table_inputs[index])
        else:
            names.append(own or f"x{index}")
    results = []
    for index in range(output_count):
        if index < len(table_outputs) and ge not in _LISTED_OUTPUTS:
            results.append(table_outputs[index])
        else:
            results.append("y" if output_count == 1 else f"y{index}")
    return names, results


class OperatorNames:
    """Gives every operator of one graph a name of its own: ``Add``, ``Add_1``, ``Add_2`` ..."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._next: dict[str, int] = {}

    def take(self, ge: str, explicit: str | None = None) -> str:
        """Returns the next free name of the type, or `explicit`.

        Raises:
            AssertionError: `explicit` is blank or in use.
        """
        if explicit is not None:
            if not explicit.strip():
                raise AssertionError("an operator's name must not be blank")
            if explicit in self._used:
                raise AssertionError(f"there is an operator {explicit!r} already; names are unique in a graph")
            self._used.add(explicit)
            return explicit
        number = self._next.get(ge, 0)
        while (name := ge if number == 0 else f"{ge}_{number}") in self._used:
            number += 1
        self._next[ge] = number + 1
        self._used.add(name)
        return name


def pack_name(target: Any) -> tuple[str, str, str]:
    """(namespace, name without overload, full name) of what an fx node calls.

    ``aten.add.Tensor`` -> ("aten", "add", "aten.add.Tensor"); ``torch.add`` -> ("torch", "add", "torch.add");
    ``operator.add`` -> ("torch", "add", "operator.add"); method "view" -> ("torch", "view", "view").
    """
    if isinstance(target, str):
        return "torch", target.rpartition(".")[2], target
    schema = getattr(target, "_schema", None)
    if schema is not None:
        namespace, _, name = schema.name.partition("::")
        return namespace, name, str(target)
    name = getattr(target, "__name__", None) or type(target).__name__
    module = getattr(target, "__module__", None) or ""
    if module in ("_operator", "operator"):
        return "torch", _OPERATOR_NAMES.get(name, name), f"operator.{name}"
    if module.startswith("torch._higher_order_ops") or type(target).__module__.startswith("torch._higher_order_ops"):
        return "higher_order", name, f"higher_order.{name}"
    return "torch", name, f"{module.partition('.')[0] or 'torch'}.{name}"


# Python's operators and the tensor operator each one calls.
_OPERATOR_NAMES = {
    "truediv": "div",
    "itruediv": "div",
    "floordiv": "floor_divide",
    "ifloordiv": "floor_divide",
    "mod": "remainder",
    "imod": "remainder",
    "iadd": "add",
    "isub": "sub",
    "imul": "mul",
    "ipow": "pow",
    "imatmul": "matmul",
    "and_": "bitwise_and",
    "iand": "bitwise_and",
    "or_": "bitwise_or",
    "ior": "bitwise_or",
    "xor": "bitwise_xor",
    "ixor": "bitwise_xor",
    "invert": "bitwise_not",
    "setitem": "index_put",
}
