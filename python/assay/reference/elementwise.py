# SPDX-License-Identifier: Apache-2.0
"""Reference operators: activations, arithmetic, casts, quantisation.

Formulas: docs/opcheck/elementwise.md. All functions raise :class:`assay.FormatError` for shapes that do not fit and for
element types without real values.
"""

from __future__ import annotations

from typing import Literal, Optional

import numpy as np

from assay import _opcheck
from assay.reference._arguments import Array

__all__ = [
    "add",
    "cast",
    "cos",
    "dequantize_per_channel",
    "divide",
    "dynamic_quantize",
    "equal",
    "fast_gelu",
    "gelu",
    "greater",
    "less",
    "log",
    "logical_and",
    "logical_not",
    "logical_or",
    "multiply",
    "negative",
    "quantize_per_channel",
    "relu",
    "scale",
    "sigmoid",
    "silu",
    "sin",
    "subtract",
    "swiglu",
    "swiglu_backward",
    "swish",
    "tanh",
]


def relu(x: Array) -> np.ndarray:
    """max(x, 0); NaN stays NaN. Any shape, returns float64 of that shape."""
    return _opcheck.relu(x)


def gelu(x: Array, approximate: Literal["none", "tanh"] = "none") -> np.ndarray:
    """0.5 x (1 + erf(x / sqrt 2)), or with "tanh" 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).

    Example:
        >>> import numpy
        >>> from assay import reference
        >>> reference.gelu(numpy.array([0.0, 1.0])).round(6).tolist()
        [0.0, 0.841345]
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f'approximate must be "none" or "tanh", not {approximate!r}')
    return _opcheck.gelu(x, approximate == "tanh")


def fast_gelu(x: Array) -> np.ndarray:
    """x sigmoid(1.702 x)."""
    return _opcheck.fast_gelu(x)


def swish(x: Array, scale: float = 1.0) -> np.ndarray:
    """x sigmoid(scale x)."""
    return _opcheck.swish(x, scale)


def silu(x: Array) -> np.ndarray:
    """x sigmoid(x)."""
    return _opcheck.swish(x, 1.0)


def sigmoid(x: Array) -> np.ndarray:
    """1 / (1 + e^-x) without overflow."""
    return _opcheck.sigmoid(x)


def log(x: Array) -> np.ndarray:
    """Natural logarithm: -inf of 0, NaN of negative numbers."""
    return _opcheck.log(x)


def swiglu(x: Array, axis: int = -1) -> np.ndarray:
    """a sigmoid(a) b with (a, b) the halves of x along ``axis``.

    Args:
        x: the size of ``axis`` is even; it halves in the result.

    Example:
        >>> from assay import reference
        >>> reference.swiglu([[0.0, 1.0, 5.0, 2.0]]).round(6).tolist()
        [[0.0, 1.462117]]
    """
    return _opcheck.swiglu(x, axis)


def swiglu_backward(dy: Array, x: Array, axis: int = -1) -> np.ndarray:
    """The gradient of :func:`swiglu` with respect to ``x``, of its shape; ``dy`` has the shape of ``swiglu(x)``."""
    return _opcheck.swiglu_backward(dy, x, axis)


def cos(x: Array) -> np.ndarray:
    """Cosine."""
    return _opcheck.cos(x)


def sin(x: Array) -> np.ndarray:
    """Sine."""
    return _opcheck.sin(x)


def tanh(x: Array) -> np.ndarray:
    """Hyperbolic tangent."""
    return _opcheck.tanh(x)


def negative(x: Array) -> np.ndarray:
    """-x: int64 for integers (wrapped to their type), float64 otherwise."""
    return _opcheck.negative(x)


def scale(x: Array, factor: float) -> np.ndarray:
    """x times a number."""
    return _opcheck.scale(x, factor)


def logical_not(x: Array) -> np.ndarray:
    """1 where x is 0, otherwise 0; int64."""
    return _opcheck.logical_not(x)


def add(a: Array, b: Array) -> np.ndarray:
    """a + b, broadcast; exact int64 for two integer arrays (wrapped to their type when both have the same)."""
    return _opcheck.add(a, b)


def subtract(a: Array, b: Array) -> np.ndarray:
    """a - b; as :func:`add`."""
    return _opcheck.subtract(a, b)


def multiply(a: Array, b: Array) -> np.ndarray:
    """a b; as :func:`add`."""
    return _opcheck.multiply(a, b)


def divide(a: Array, b: Array) -> np.ndarray:
    """a / b, broadcast; always float64."""
    return _opcheck.divide(a, b)


def less(a: Array, b: Array) -> np.ndarray:
    """1 where a < b, otherwise 0; int64, broadcast. Integers are compared exactly."""
    return _opcheck.less(a, b)


def greater(a: Array, b: Array) -> np.ndarray:
    """1 where a > b; as :func:`less`."""
    return _opcheck.greater(a, b)


def equal(a: Array, b: Array) -> np.ndarray:
    """1 where a == b; as :func:`less`."""
    return _opcheck.equal(a, b)


def logical_and(a: Array, b: Array) -> np.ndarray:
    """1 where neither is 0, otherwise 0; int64, broadcast."""
    return _opcheck.logical_and(a, b)


def logical_or(a: Array, b: Array) -> np.ndarray:
    """1 where one is not 0, otherwise 0; int64, broadcast."""
    return _opcheck.logical_or(a, b)


def cast(x: Array, dtype: str) -> np.ndarray:
    """The values in another type: "float16", "bfloat16", "int32" ...

    Floats are rounded to nearest even. Floats become integers by truncation, clamped to the type's range (NaN: 0);
    integers become narrower ones by their low bits.

    Returns:
        An array of that type; float64 with the rounded values for types that NumPy lacks.
    """
    return _opcheck.cast(x, dtype)


def quantize_per_channel(x: Array, scale: Array, offset: Optional[Array] = None) -> np.ndarray:
    """clamp(rne(x / scale + offset), -128, 127) as float64.

    Args:
        x: any shape.
        scale: broadcasts to x.
        offset: the same; None or an empty array: 0.
    """
    return _opcheck.quantize_per_channel(x, scale, offset)


def dequantize_per_channel(y: Array, scale: Array, offset: Optional[Array] = None) -> np.ndarray:
    """clamp((y - offset) scale, -65504, 65504); arguments as :func:`quantize_per_channel`."""
    return _opcheck.dequantize_per_channel(y, scale, offset)


def dynamic_quantize(
    x: Array, asymmetric: bool = False, dtype: str = "int8"
) -> tuple[np.ndarray, np.ndarray, Optional[np.ndarray]]:
    """Each row (last dimension) quantised with a scale of its own.

    Symmetric: s = max|x| / limit, q = rne(x / s); the limit is 127 for "int8", 448 "float8_e4m3fn", 57344
    "float8_e5m2", 32768 "hifloat8", whose values are rounded to that type. Asymmetric (int8 only):
    s = (max - min) / 255, o = -(max + min) / (2 s), q = rne(clamp(x / s + o, -128, 127)).

    Returns:
        q as float64 of x's shape, s without the last dimension, o likewise or None. Rows with s = 0 are 0.
    """
    values, scales, offsets = _opcheck.dynamic_quantize(x, asymmetric, dtype)
    return values, scales, offsets if asymmetric else None
