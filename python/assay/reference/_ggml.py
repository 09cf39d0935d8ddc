# SPDX-License-Identifier: Apache-2.0
"""Operators of ggml by name, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from assay import _opcheck
from assay.reference._aten import _argument, aten

__all__ = ["ggml", "ggml_operators", "ggml_rounding"]


def ggml(name: str, /, *, jobs: int = 1, **arguments: Any) -> np.ndarray:
    """The result of one node of a ggml graph, without ggml.

    Args:
        name: ``"ggml."`` and the operator in lower case: ``"ggml.mul_mat"``.
        jobs: threads of large products; never changes a result.
        arguments: as a capture of a ggml program writes them: ``src0`` ... ``src9`` are arrays in row-major shapes
            (ggml's sizes reversed; quantised weights as their values), parameters go by name (``eps``, ``n_dims``,
            ``mode``, ``op="SWIGLU"`` ...) or as the 16 words ``op_params``; ``ne`` holds the four sizes of the result
            where nothing else says them (views, reshapes, repeats). docs/reference-ggml.md has all.

    Returns:
        The result in row-major shape without leading ones. Views keep the element type; other reals are float64,
        integers int64.

    Raises:
        assay.Error: no reference for the operator, operands that do not fit.

    Example:
        >>> import numpy
        >>> from assay import reference
        >>> reference.ggml("ggml.mul_mat", src0=numpy.array([[1.0, 2.0], [3.0, 4.0]]), src1=numpy.ones((1, 2))).tolist()
        [3.0, 7.0]
    """
    result: np.ndarray = aten(name, jobs=jobs, **arguments)[0]
    return result


def ggml_operators() -> list[str]:
    """Everything that :func:`ggml` knows, by name."""
    return list(_opcheck.ggml_operators())


def ggml_rounding(name: str, /, *, jobs: int = 1, **arguments: Any) -> tuple[np.ndarray, np.ndarray]:
    """What ggml's CPU kernels may err in one call, beside the rounding of the result.

    Args:
        name: as :func:`ggml`.
        jobs: as :func:`ggml`.
        arguments: as :func:`ggml`; ``src0_type`` names the type in which a weight was stored (``"q4_K"``, ``"f16"``).

    Returns:
        The largest error allowed of every element, and its expected square; shape of the result.

    Raises:
        assay.Error: an operator that rounds once or not at all; operands that do not fit.
    """
    given = {key: _argument(value) for key, value in arguments.items()}
    allowed, variance = _opcheck.ggml_rounding(name, given, jobs)
    return allowed, variance
