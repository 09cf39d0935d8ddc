# SPDX-License-Identifier: Apache-2.0
"""The reference operators against the node cases of the ONNX standard: inputs, outputs, tolerances are onnx's own."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_nodes
import pytest

from assay import reference


def attributes_of(node):
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def optional(inputs, index):
    return inputs[index] if len(inputs) > index and inputs[index] is not None and np.size(inputs[index]) else None


def normalised(x, axis):
    """The dims from `axis` on as one."""
    axis %= x.ndim
    return x.reshape(*x.shape[:axis], -1)


def softmax(inputs, attributes):
    return [reference.softmax(inputs[0], attributes.get("axis", -1))]


def layer_norm(inputs, attributes):
    x, gamma = inputs[0], inputs[1]
    axis = attributes.get("axis", -1)
    flat = normalised(x, axis)
    beta = optional(inputs, 2)
    beta = np.zeros_like(gamma) if beta is None else beta
    return [
        reference.layer_norm(flat, gamma.reshape(-1), beta.reshape(-1), attributes.get("epsilon", 1e-5)).reshape(
            x.shape
        )
    ]


def rms_norm(inputs, attributes):
    x, gamma = inputs
    flat = normalised(x, attributes.get("axis", -1))
    return [reference.rms_norm(flat, gamma.reshape(-1), eps=attributes.get("epsilon", 1e-5)).reshape(x.shape)]


def rotary_embedding(inputs, attributes):
    """Tables of half the width; x is [batch, heads, tokens, size] or [batch, tokens, heads * size]."""
    x, cos, sin = inputs[:3]
    if optional(inputs, 3) is not None:
        cos, sin = cos[inputs[3]], sin[inputs[3]]
    interleaved = bool(attributes.get("interleaved", 0))
    if x.ndim == 3:
        heads = attributes["num_heads"]
        x4 = x.reshape(*x.shape[:2], heads, -1)
    else:
        x4 = x.transpose(0, 2, 1, 3)
    size = x4.shape[-1]
    width = attributes.get("rotary_embedding_dim", 0) or size
    repeat = (
        (lambda table: np.repeat(table, 2, -1)) if interleaved else (lambda table: np.concatenate([table, table], -1))
    )
    rows = x4[..., :width].reshape(-1, x4.shape[2] * width)
    turned = reference.rope(
        rows, repeat(cos).reshape(-1, width), repeat(sin).reshape(-1, width), interleaved=interleaved
    ).reshape(*x4.shape[:3], width)
    result = np.concatenate([turned, x4[..., width:]], -1)
    return [result.reshape(x.shape) if x.ndim == 3 else result.transpose(0, 2, 1, 3)]


def top_k(inputs, attributes):
    if attributes.get("axis", -1) not in (-1, inputs[0].ndim - 1) or not attributes.get("largest", 1):
        return None
    return list(reference.top_k(inputs[0], int(inputs[1][0])))


def cumsum(inputs, attributes):
    return [
        reference.cumsum(
            inputs[0],
            int(inputs[1]),
            exclusive=bool(attributes.get("exclusive")),
            reverse=bool(attributes.get("reverse")),
        )
    ]


def one_hot(inputs, attributes):
    indices, depth, values = inputs
    indices = np.asarray(indices)
    off, on = (int(value) for value in values)
    wrapped = np.where(indices < 0, indices + int(np.ravel(depth)[0]), indices).astype(np.int64)
    return [reference.one_hot(wrapped, int(np.ravel(depth)[0]), on, off, attributes.get("axis", -1))]


def reduction(function):
    def compute(inputs, attributes):
        axes = optional(inputs, 1)
        if inputs[0].size == 0:
            return None  # onnx has a value for the extremum of nothing
        if axes is None and attributes.get("noop_with_empty_axes", 0):
            return None
        result = function(inputs[0], None if axes is None else [int(axis) for axis in axes])
        return [np.reshape(result, np.shape(result))]

    return compute


def gather(inputs, attributes):
    indices = inputs[1]
    axis = attributes.get("axis", 0)
    indices = np.where(indices < 0, indices + inputs[0].shape[axis], indices)
    return [reference.gather(inputs[0], indices, axis)]


def scatter(inputs, attributes):
    how = attributes.get("reduction", b"none")
    if how not in (b"none", b"add"):
        return None
    axis = attributes.get("axis", 0)
    indices = np.where(inputs[1] < 0, inputs[1] + inputs[0].shape[axis], inputs[1])
    return [reference.scatter_elements(inputs[0], indices, inputs[2], axis, add=how == b"add")]


def slice_(inputs, attributes):
    x, starts, ends = inputs[:3]
    axes = optional(inputs, 3)
    axes = range(len(starts)) if axes is None else axes
    steps = optional(inputs, 4)
    if steps is not None and not (np.asarray(steps) == 1).all():
        return None
    offsets, sizes = [0] * x.ndim, list(x.shape)
    for axis, start, end in zip(axes, starts, ends):
        first, last, _ = slice(int(start), int(end)).indices(x.shape[axis])
        offsets[axis], sizes[axis] = first, max(0, last - first)
    return [reference.take_slice(x, offsets, sizes)]


def matmul(inputs, attributes):
    a, b = inputs
    return [reference.matmul(a, b)] if a.ndim >= 2 and b.ndim == 2 else None


def gelu(inputs, attributes):
    return [reference.gelu(inputs[0], attributes.get("approximate", b"none").decode())]


def transpose(inputs, attributes):
    return [reference.permute(inputs[0], attributes.get("perm", list(range(inputs[0].ndim))[::-1]))]


def of_one(function):
    return lambda inputs, attributes: [function(inputs[0])]


def of_two(function):
    return lambda inputs, attributes: [function(inputs[0], inputs[1])]


OPERATORS = {
    "Softmax": softmax,
    "LayerNormalization": layer_norm,
    "RMSNormalization": rms_norm,
    "RotaryEmbedding": rotary_embedding,
    "TopK": top_k,
    "CumSum": cumsum,
    "OneHot": one_hot,
    "ReduceMax": reduction(reference.amax),
    "ReduceMin": reduction(reference.amin),
    "ReduceSum": reduction(reference.sum),
    "Gather": gather,
    "ScatterElements": scatter,
    "Slice": slice_,
    "MatMul": matmul,
    "Gelu": gelu,
    "Transpose": transpose,
    "Concat": lambda inputs, attributes: [reference.concat(inputs, attributes["axis"])],
    "Tile": of_two(reference.tile),
    "Where": lambda inputs, attributes: [reference.where(*inputs)],
    "Swish": lambda inputs, attributes: [reference.swish(inputs[0], attributes.get("alpha", 1.0))],
    "Relu": of_one(reference.relu),
    "Sigmoid": of_one(reference.sigmoid),
    "Log": of_one(reference.log),
    "Cos": of_one(reference.cos),
    "Sin": of_one(reference.sin),
    "Tanh": of_one(reference.tanh),
    "Neg": of_one(reference.negative),
    "Add": of_two(reference.add),
    "Sub": of_two(reference.subtract),
    "Mul": of_two(reference.multiply),
    "Div": of_two(reference.divide),
    "Less": of_two(reference.less),
    "Greater": of_two(reference.greater),
    "Equal": of_two(reference.equal),
    "And": of_two(reference.logical_and),
    "Or": of_two(reference.logical_or),
    "Not": of_one(reference.logical_not),
}


def node_cases():
    for case in onnx_nodes.cases_of(OPERATORS):
        arrays = [a for inputs, outputs in case.data_sets for a in [*inputs, *outputs]]
        is_numeric = all(isinstance(a, (np.ndarray, np.generic)) and a.dtype.kind in "fiub" for a in arrays)
        operator = case.model.graph.node[0].op_type
        is_integer_arithmetic = operator in ("Add", "Sub", "Mul", "Div") and arrays[0].dtype.kind in "iu"
        if is_numeric and not is_integer_arithmetic:
            yield case


CASES = list(node_cases())


def test_most_operators_have_cases():
    covered = {case.model.graph.node[0].op_type for case in CASES}
    assert covered >= set(OPERATORS) - {"Swish"}
    assert len(CASES) > 150


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_node_case(case):
    node = case.model.graph.node[0]
    present = iter(range(len(case.data_sets[0][0])))
    places = [next(present) if name else None for name in node.input]
    for arrays, expected in case.data_sets:
        inputs = [None if place is None else arrays[place] for place in places]
        computed = OPERATORS[node.op_type](inputs, attributes_of(node))
        if computed is None:
            pytest.skip("a variant that the operators of this library do not have")
        for got, wanted in zip(computed, expected):
            got = np.asarray(got)
            # Reduced dims may be kept there.
            np.testing.assert_allclose(
                got.reshape(wanted.shape).astype(np.float64),
                wanted.astype(np.float64),
                rtol=max(case.rtol, 1e-5),
                atol=max(case.atol, 1e-6),
            )
