# SPDX-License-Identifier: Apache-2.0
"""How tensors are looked at without linking torch: a test for each row of the table in docs/design/torch-capture.md,
through the DLPack exchange table and through attributes as on torch before 2.10."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
capture_native = pytest.importorskip("assay._capture")


@pytest.fixture(params=["table", "attributes"])
def look(request: Any) -> Iterator[Any]:
    use_table = request.param == "table"
    if not capture_native.use_exchange_table(use_table) and use_table:
        pytest.skip("this torch has no exchange table")
    yield capture_native.look
    capture_native.use_exchange_table(True)


def quiet(make: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


READABLE = {
    "requires grad": lambda: torch.ones(3, requires_grad=True),
    "non-leaf": lambda: torch.ones(3, requires_grad=True) * 2,
    "parameter": lambda: torch.nn.Parameter(torch.ones(3)),
    "transposed": lambda: torch.ones(3, 4).t(),
    "sliced": lambda: torch.ones(6, 8)[1:5:2, ::3],
    "expanded": lambda: torch.ones(1, 4).expand(3, 4),
    "odd strides of size-1 dimensions": lambda: torch.ones(8).as_strided((1, 4), (77, 2)),
    "scalar": lambda: torch.tensor(3.0),
    "empty": lambda: torch.empty(0, 5),
    "lazy clone": lambda: torch._lazy_clone(torch.ones(3)),
    **{
        str(dtype): lambda dtype=dtype: torch.zeros(3).to(dtype)
        for dtype in (
            torch.float64,
            torch.float32,
            torch.float16,
            torch.bfloat16,
            torch.bool,
            torch.int64,
            torch.int32,
            torch.int16,
            torch.int8,
            torch.uint8,
            torch.uint16,
            torch.uint32,
            torch.uint64,
            torch.complex32,
            torch.complex64,
            torch.complex128,
            torch.float8_e4m3fn,
            torch.float8_e4m3fnuz,
            torch.float8_e5m2,
            torch.float8_e5m2fnuz,
            torch.float8_e8m0fnu,
        )
    },
    **{
        str(dtype): lambda dtype=dtype: torch.empty(3, dtype=dtype)
        for dtype in (torch.float4_e2m1fn_x2, torch.int4, torch.int1, torch.uint7)
    },
}


@pytest.mark.parametrize("name", READABLE)
def test_readable_tensors(look: Any, name: str) -> None:
    tensor = quiet(READABLE[name])
    seen = look(tensor)
    assert seen["readable"] == "memory", seen
    assert seen["dtype"] == str(tensor.dtype).replace("torch.", "")
    assert seen["shape"] == tuple(tensor.shape) and seen["strides"] == tuple(tensor.stride())
    assert seen["device"] == "cpu" and seen["covered"]
    if tensor.numel():
        assert seen["data"] == tensor.data_ptr()
    assert seen["version"] == tensor._version


def fake() -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(3)


def freed() -> Any:
    tensor = torch.ones(3)
    tensor.untyped_storage().resize_(0)
    return tensor


NOT_READABLE = {
    "meta": (lambda: torch.empty(3, device="meta"), ("meta tensor", "no storage")),
    "quantised": (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8), ("quantised",)),
    "bits8": (lambda: torch.empty(3, dtype=torch.bits8), ("bits",)),
    "sparse": (lambda: torch.ones(3).to_sparse(), ("sparse",)),
    "sparse csr": (lambda: torch.ones(3, 3).to_sparse_csr(), ("sparse",)),
    "mkldnn": (lambda: torch.ones(3).to_mkldnn(), ("sparse",)),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), ("nested",)),
    "jagged": (
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        ("nested", "sparse"),
    ),
    "fake": (fake, ("no storage",)),
    "freed storage": (freed, ("no storage",)),
    "uninitialised parameter": (lambda: torch.nn.parameter.UninitializedParameter(), ("",)),
}


@pytest.mark.parametrize("name", NOT_READABLE)
def test_tensors_without_bytes_have_a_reason(look: Any, name: str) -> None:
    make, reasons = NOT_READABLE[name]
    tensor = quiet(make)
    for _ in range(2):  # the second look may take the remembered refusal
        seen = quiet(lambda: look(tensor))
        if name == "uninitialised parameter":
            assert seen["readable"] == "nothing" or seen["shape"] == (0,)
            continue
        assert seen["readable"] == "nothing" and seen["data"] == 0
        assert any(reason in seen["reason"] for reason in reasons), seen["reason"]


def test_refusals_do_not_spread_to_other_tensors(look: Any) -> None:
    for make, _ in NOT_READABLE.values():
        quiet(lambda make=make: look(make()))
    assert look(torch.ones(3))["readable"] == "memory"


def test_inside_vmap_nothing_is_read(look: Any) -> None:
    seen = []
    torch.func.vmap(lambda x: (seen.append(quiet(lambda: look(x))), x)[1])(torch.ones(2, 3))
    assert seen[0]["readable"] == "nothing"
    assert look(torch.ones(3))["readable"] == "memory"


def test_conjugate_and_negative_bits(look: Any) -> None:
    x = torch.ones(3, dtype=torch.complex64).conj()
    assert (look(x)["conjugate"], look(x)["negative"]) == (True, False)
    assert (look(x.imag)["conjugate"], look(x.imag)["negative"]) == (False, True)
    assert (look(x.resolve_conj())["conjugate"], look(torch.ones(3))["negative"]) == (False, False)


def test_inference_tensors_have_no_version(look: Any) -> None:
    with torch.inference_mode():
        tensor = torch.ones(3)
    seen = look(tensor)
    assert seen["readable"] == "memory" and seen["version"] == -1


def test_a_storage_resized_under_its_tensor_is_noticed(look: Any) -> None:
    tensor = torch.ones(1000)
    tensor.untyped_storage().resize_(16)
    seen = look(tensor)
    assert seen["readable"] == "memory" and not seen["covered"]


def test_a_subclass_is_a_tensor_and_others_are_refused(look: Any) -> None:
    class Sub(torch.Tensor):
        pass

    assert look(torch.ones(3).as_subclass(Sub))["readable"] == "memory"
    with pytest.raises(TypeError):
        look([1.0])


def test_a_look_leaves_a_pending_function_mode_unbothered_by_the_view() -> None:
    from torch.overrides import TorchFunctionMode

    names = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    tensor = torch.ones(3)
    with Mode():
        seen = capture_native.look(tensor)
    assert seen["shape"] == (3,) and "data_ptr" not in names and "stride" not in names
