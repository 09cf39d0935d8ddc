# SPDX-License-Identifier: Apache-2.0
"""Other spellings of PyTorch's overloads (src/reference/aten/variants.cpp), held against the schemas of torch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from assay import _opcheck, reference  # noqa: E402

VARIANTS = {name: tuple(rest) for name, *rest in _opcheck.aten_variants()}
KNOWN = {overload.name for overload in reference.aten_overloads() if overload.name.startswith("aten.")}
# Arguments that an overload with "out" lacks, as its result has a type and a place already.
HOST = {"dtype", "layout", "device", "pin_memory", "memory_format", "generator", "unsafe"}


def schemas(base: str) -> dict[str, Any]:
    packet = getattr(torch.ops.aten, base, None)
    overloads = packet.overloads() if packet is not None else []
    return {f"aten.{base}.{name}": getattr(packet, name)._schema for name in overloads}


def schema_of(name: str) -> Any:
    return schemas(name.split(".")[1])[name]


def written(schema: Any) -> list[str]:
    return [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]


def signature(schema: Any) -> list[tuple[str, str]]:
    """Names and types of what an operator reads."""
    outputs = {a.name for a in schema.arguments if a.kwarg_only and a.name in written(schema)}
    return [(a.name, str(a.type)) for a in schema.arguments if a.name not in outputs | HOST]


def test_each_is_an_overload_of_torch_that_writes_and_shares_what_the_table_says() -> None:
    for name, (of, target, view) in VARIANTS.items():
        schema = schema_of(name)
        shares = any(a.alias_info is not None and not a.alias_info.is_write for a in schema.arguments)
        assert (target, view) == ((written(schema) or [""])[0], shares), name
        assert of in KNOWN and of not in VARIANTS, name


def test_no_overload_that_writes_what_a_known_one_computes_is_missing() -> None:
    missing = set()
    for name in KNOWN:
        wanted = signature(schema_of(name))
        base = name.split(".")[1]
        for other, schema in {**schemas(base), **schemas(base + "_")}.items():
            if written(schema) and signature(schema) == wanted and not written(schema_of(name)):
                missing |= {other} - KNOWN
    assert not missing


def test_spellings_lead_to_the_row_that_computes_them() -> None:
    assert len(VARIANTS) == 725
    for name, expected in {
        "aten.add_.Tensor": ("aten.add.Tensor", "self", False),
        "aten.add.out": ("aten.add.Tensor", "out", False),
        "aten.eq.Scalar_out": ("aten.eq.Scalar", "out", False),
        "aten.greater_equal_.Scalar": ("aten.ge.Scalar", "self", False),
        "aten.view_copy.dtype_out": ("aten.view.dtype", "out", False),
        "aten.moveaxis.int": ("aten.movedim.int", "", True),
        "aten.native_layer_norm.out": ("aten.native_layer_norm.default", "out0", False),
        "aten.squeeze.dims": ("aten.squeeze.default", "", True),
    }.items():
        assert VARIANTS[name] == expected
    # What the rules would give if torch had it.
    assert not {"aten.mm_.default", "aten.special_erf_.default", "aten.multiply.Scalar_out"} & KNOWN
