# SPDX-License-Identifier: Apache-2.0
"""The node cases that ship with onnx."""

from __future__ import annotations

import functools
import warnings

from onnx.backend.test.case.node import collect_testcases


@functools.cache
def all_cases():
    """
    Every case of one node, with its model and its data.

    onnx makes the cases while it imports their modules, and keeps those of the operator that the first caller asked
    for: a second call for another operator finds nothing. So all are collected, once per process.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    return [case for case in found if case.model is not None and len(case.model.graph.node) == 1]
