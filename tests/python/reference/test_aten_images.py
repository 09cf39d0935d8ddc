# SPDX-License-Identifier: Apache-2.0
"""assay.reference.aten: pooling, resizing and patches against torch itself, in fp64 or, where values are only moved, in
their own type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import assay
from assay import reference

NAMES = [
    "max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool1d", "max_pool2d", "max_pool3d",
    "adaptive_max_pool2d", "adaptive_max_pool3d",
    "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d",
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "im2col",
    "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "col2im",
    "_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa", "upsample_bicubic2d", "upsample_bilinear2d",
    "upsample_linear1d", "upsample_trilinear3d",
]  # fmt: skip
EXACT = {row.name for row in reference.aten_overloads() if row.kind == "move"}


def doubles(value: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(value, dtype=np.float64))


def overload(name: str) -> Any:
    return getattr(torch.ops.aten, name).default


def planes(data: Any, axes: int, batched: bool = False) -> torch.Tensor:
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=axes, max_size=axes))
    outer = [data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3))]
    dtype = data.draw(st.sampled_from([torch.float64, torch.float32, torch.bfloat16]))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 999)))
    x = torch.randn([*outer[0 if batched else data.draw(st.integers(0, 1)) :], *sizes], generator=generator).to(dtype)
    if x.ndim == axes + 2 == 4 and data.draw(st.booleans()):
        x = x.to(memory_format=torch.channels_last)
    return x


def each(data: Any, axes: int, least: int, most: int) -> list[int]:
    return data.draw(st.lists(st.integers(least, most), min_size=axes, max_size=axes))


def arguments_of(data: Any, name: str) -> dict[str, Any]:
    """What torch's schema of the overload wants, drawn."""
    axes = next((int(letter) for letter in name if letter.isdigit() and "2col" not in name and "2im" not in name), 2)
    if name in ("im2col", "col2im"):
        kernel, dilation, padding, stride = (each(data, 2, *range_) for range_ in ((1, 3), (1, 2), (0, 1), (1, 3)))
        x = planes(data, 2, batched=True)
        windows = {"kernel_size": kernel, "dilation": dilation, "padding": padding, "stride": stride}
        if name == "im2col":
            return {"self": x, **windows}
        try:
            patches = overload("im2col")(x, *windows.values())
        except RuntimeError:  # the kernel is larger than the plane: nothing that could be put back
            patches = x.flatten(2)
        return {"self": patches, "output_size": list(x.shape[2:]), **windows}
    if "upsample" in name:
        x = planes(data, axes, batched=True)
        if "aa" in name:  # of one column torch 2.13 makes every row the first
            x = torch.cat([x, x], -1)
        if x.dtype == torch.bfloat16:  # kernels of other types have other neighbours
            x = x.float()
        factor = data.draw(st.sampled_from([None, 2.0, 0.5, 1.5, 0.75]))
        sizes = [max(1, int(size * factor)) for size in x.shape[2:]] if factor else each(data, axes, 1, 12)
        if "aa" in name:
            sizes = [max(2, size) for size in sizes]
        names = ["scales"] if axes == 1 else ["scales_d", "scales_h", "scales_w"][3 - axes :]
        given = {"self": x, "output_size": sizes, **dict.fromkeys(names, factor)}
        return given if "nearest" in name else given | {"align_corners": data.draw(st.booleans())}
    x = planes(data, axes)
    if "adaptive" in name:
        return {"self": x, "output_size": each(data, axes, 1, 7)}
    kernel = each(data, axes, 1, 3)
    given = {
        "self": x,
        "kernel_size": kernel,
        "stride": data.draw(st.sampled_from([[], each(data, axes, 1, 3)])),
        "padding": [data.draw(st.integers(0, size // 2)) for size in kernel],
        "ceil_mode": data.draw(st.booleans()),
    }
    if "max" in name:
        return given | {"dilation": each(data, axes, 1, 2)}
    given["count_include_pad"] = data.draw(st.booleans())
    return given if axes == 1 else given | {"divisor_override": data.draw(st.sampled_from([None, 3, -2]))}


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_it_is_torchs(name, data):
    # given drawn planes, windows and sizes
    arguments = arguments_of(data, name)
    exact = f"aten.{name}.default" in EXACT
    own = dict(arguments)
    if not exact:
        own["self"] = own["self"].double()
    try:
        expected = overload(name)(**own)
    except RuntimeError:
        assume(False)  # what torch refuses
    expected = expected if isinstance(expected, tuple) else (expected,)
    assume(not expected[0].isinf().any())  # a window with padding alone
    # when
    found = reference.aten(f"aten.{name}.default", **arguments)
    # then moved values and places are equal, sums are those of fp64
    for ours, theirs in zip([doubles(value) for value in found], expected, strict=True):
        assert ours.shape == theirs.shape
        if exact:
            assert torch.equal(ours, theirs.double())
        else:
            assert torch.allclose(ours, theirs, rtol=1e-12, atol=1e-6 if "aa" in name else 1e-12)


def test_the_largest_value_is_the_first_and_a_nan_wins():
    x = torch.tensor([[[[1.0, 3, 3, 3], [float("nan"), 0, 2, float("nan")]]]])
    values, places = map(doubles, reference.aten("aten.max_pool2d_with_indices.default", self=x, kernel_size=[2, 2]))
    assert values.isnan().tolist() == [[[[True, True]]]] and places.tolist() == [[[[4, 7]]]]
    values, places = map(
        doubles, reference.aten("aten.max_pool2d_with_indices.default", self=x[..., :1, :], kernel_size=[1, 4])
    )
    assert (values.item(), places.item()) == (3, 1)


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("max_pool2d_with_indices", {"kernel_size": [9, 9]}),
        ("max_pool2d_with_indices", {"kernel_size": [2, 2], "stride": [2**62, 1]}),
        ("max_pool2d_with_indices", {"kernel_size": [2, 2], "stride": [0, 1]}),
        ("max_pool2d_with_indices", {"kernel_size": [2, 2, 2]}),
        ("avg_pool2d", {"kernel_size": [2**40, 1], "padding": [2**39, 0]}),
        ("avg_pool2d", {"kernel_size": [2, 2], "divisor_override": 0}),
        ("avg_pool2d", {"kernel_size": [0, 2]}),
        ("_adaptive_avg_pool2d", {"output_size": [2**60, 2**60]}),
        ("upsample_nearest2d", {"output_size": [-1, 4]}),
        ("upsample_bilinear2d", {"output_size": [2**40, 2**40], "align_corners": False}),
        ("im2col", {"kernel_size": [3, 3], "dilation": [2**62, 1], "padding": [0, 0], "stride": [1, 1]}),
        ("col2im", {"output_size": [2**40, 5], "kernel_size": [1, 1]}),
    ],
)  # fmt: skip
def test_hostile_sizes_are_refused(name, arguments):
    with pytest.raises(assay.errors.Error):
        reference.aten(f"aten.{name}.default", self=torch.zeros(1, 2, 5, 5), **arguments)
