# SPDX-License-Identifier: Apache-2.0
"""Operators of PyTorch by name, in float64."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from assay import _opcheck
from assay._run import _as_raw

__all__ = ["AtenOverload", "aten", "aten_overloads"]


class AtenOverload(NamedTuple):
    """An overload that has a reference.

    Attributes:
        name: ``"aten.add.Tensor"``.
        kind: what decides how large its rounding error may be: ``"move"``, ``"product"`` ...
        view: its results share the bytes of an operand.
    """

    name: str
    kind: str
    view: bool


def _argument(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (np.bool_, np.integer, np.floating)):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [_argument(item) for item in value]
    if type(value).__name__ == "dtype" or (isinstance(value, type) and issubclass(value, np.generic)):
        return ("dtype", str(value) if type(value).__module__ == "torch" else np.dtype(value).name)
    return ("tensor", *_as_raw(value))


def aten(name: str, /, *, jobs: int = 1, **arguments: Any) -> list[Any]:
    """The results of one call of an operator of PyTorch, without torch.

    Args:
        name: overload, ``"aten.add.Tensor"``.
        jobs: threads of large products; never changes a result.
        arguments: by the names of the schema. Tensors are NumPy arrays, torch tensors, or objects with ``__dlpack__``;
            dtypes those of NumPy or torch. Absent arguments have their default.

    Returns:
        One array an output; None for one that nobody can predict (a seed). Moves keep the element type; other reals
        are float64, integers int64.

    Raises:
        assay.Error: no reference for the overload, random values, operands that do not fit.

    Example:
        >>> import numpy
        >>> from assay import reference
        >>> reference.aten("aten.mul.Scalar", self=numpy.array([1.0, 2.0]), other=3)[0].tolist()
        [3.0, 6.0]
    """
    given = {key: _argument(value) for key, value in arguments.items()}
    return _opcheck.aten(name, given, jobs)


def aten_overloads() -> list[AtenOverload]:
    """Everything that :func:`aten` knows, by name."""
    return [AtenOverload(*row) for row in _opcheck.aten_overloads()]
