# SPDX-License-Identifier: Apache-2.0
"""The node cases that ship with onnx."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Collection

from onnx.backend.test.case import node


def cases_of(operators: Collection[str]) -> list:
    """
    Every case of one node of these operators, with its model and its data.

    onnx makes the cases of an operator while it imports the module of that name (`and_` where the name is a word of
    Python). All of them take 8 s of a processor, nearly all for poolings.
    """
    modules = {operator.lower() for operator in operators}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in pkgutil.iter_modules(node.__path__):
            if module.name.rstrip("_") in modules:
                importlib.import_module(f"{node.__name__}.{module.name}")
    found = [case for case in node._NodeTestCases if case.model is not None and len(case.model.graph.node) == 1]
    return [case for case in found if case.model.graph.node[0].op_type in operators]
