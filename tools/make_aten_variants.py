#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/reference/aten/variants.cpp: overloads that are another spelling of one that has a reference.

The schemas of the installed torch decide: in-place and out overloads belong to the row whose other arguments they
share; synonyms are listed here. Run it after a row was added, from any folder:

    python tools/make_aten_variants.py
"""

from __future__ import annotations

import re
from pathlib import Path

import torch

FOLDER = Path(__file__).resolve().parents[1] / "src" / "reference" / "aten"

# Operators with the arguments of another one.
SYNONYMS = {
    "absolute": "abs", "alias_copy": "alias", "arccos": "acos", "arcsin": "asin", "arctan": "atan",
    "as_strided_copy": "as_strided", "clip": "clamp", "concat": "cat", "concatenate": "cat", "detach_copy": "detach",
    "diagonal_copy": "diagonal", "divide": "div", "expand_copy": "expand", "fix": "trunc", "greater": "gt",
    "greater_equal": "ge", "less": "lt", "less_equal": "le", "lift": "lift_fresh", "lift_fresh_copy": "lift_fresh",
    "moveaxis": "movedim", "multiply": "mul", "narrow_copy": "narrow", "negative": "neg", "not_equal": "ne",
    "permute_copy": "permute", "positive": "alias", "reshape_as": "view_as", "resolve_conj": "alias",
    "resolve_neg": "alias", "select_copy": "select", "slice_copy": "slice", "special_erf": "erf",
    "special_exp2": "exp2", "special_expit": "sigmoid", "special_expm1": "expm1", "special_log1p": "log1p",
    "special_logit": "logit", "split_copy": "split", "split_with_sizes_copy": "split_with_sizes",
    "squeeze_copy": "squeeze", "subtract": "sub", "swapdims": "transpose", "t_copy": "t", "transpose_copy": "transpose",
    "unbind_copy": "unbind", "unfold_copy": "unfold", "unsafe_chunk": "chunk", "unsafe_split": "split",
    "unsafe_split_with_sizes": "split_with_sizes", "unsqueeze_copy": "unsqueeze", "view_copy": "view",
    "__iand__": "__and__", "__ior__": "__or__", "__ixor__": "__xor__", "__ilshift__": "__lshift__",
    "__irshift__": "__rshift__", "_unsafe_index": "index", "_unsafe_index_put": "index_put",
    "_index_put_impl_": "index_put_", "bitwise_left_shift": "__lshift__", "bitwise_right_shift": "__rshift__",
    "special_softmax": "softmax", "special_log_softmax": "log_softmax", "special_logsumexp": "logsumexp",
    "sgn": "sign", "matrix_H": "adjoint", "data": "alias",
}  # fmt: skip
# Overloads whose arguments have other names or types, which the evaluator reads all the same.
OVERLOADS = {
    "aten.__and__.Scalar": "aten.bitwise_and.Scalar", "aten.__and__.Tensor": "aten.bitwise_and.Tensor",
    "aten.__or__.Scalar": "aten.bitwise_or.Scalar", "aten.__or__.Tensor": "aten.bitwise_or.Tensor",
    "aten.__xor__.Scalar": "aten.bitwise_xor.Scalar", "aten.__xor__.Tensor": "aten.bitwise_xor.Tensor",
    "aten.broadcast_to.default": "aten.expand.default", "aten.broadcast_to": "aten.expand.default",
    "aten.meshgrid.indexing": "aten.meshgrid.default", "aten.mT.a": "aten.mT.default",
    "aten.movedim.intlist": "aten.movedim.int", "aten.moveaxis.intlist": "aten.movedim.int",
    "aten.narrow.Tensor": "aten.narrow.default", "aten.numpy_T.a": "aten.numpy_T.default",
    "aten.matrix_H.a": "aten.adjoint.default",
    "aten.split.default": "aten.split_with_sizes.default", "aten.split.sizes": "aten.split_with_sizes.default",
    "aten.squeeze.dim": "aten.squeeze.default", "aten.squeeze.dims": "aten.squeeze.default",
    "aten.tensor_split.indices": "aten.tensor_split.sections",
    "aten._unsafe_index_put.hacked_twin": "aten.index_put.default",
    "aten.index_put.hacked_twin": "aten.index_put.default",
    "aten.index.Tensor_hacked_twin": "aten.index.Tensor",
    "aten._unsafe_index.Tensor_hacked_twin": "aten.index.Tensor",
}  # fmt: skip


def schemas(base: str) -> dict[str, torch._C.FunctionSchema]:
    packet = getattr(torch.ops.aten, base, None)
    if packet is None:
        return {}
    return {f"aten.{base}.{name}": getattr(packet, name)._schema for name in packet.overloads()}


def written(schema: torch._C.FunctionSchema) -> list[str]:
    return [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]


def signature(schema: torch._C.FunctionSchema, without_out: bool = False) -> list[tuple[str, str]]:
    # Of an out overload the type of the result is that of the argument; dtype, layout and so on fall away.
    host = {"dtype", "layout", "device", "pin_memory", "memory_format", "generator"}
    return [
        (a.name, str(a.type))
        for a in schema.arguments
        if not (without_out and a.kwarg_only and a.alias_info is not None and a.alias_info.is_write)
        and a.name not in host
        and a.name != "unsafe"
    ]


def shares(schema: torch._C.FunctionSchema) -> bool:
    return any(a.alias_info is not None and not a.alias_info.is_write for a in schema.arguments)


def main() -> None:
    sources = [path for path in sorted(FOLDER.glob("*.cpp")) if not path.name.endswith(("variants.cpp", "_test.cpp"))]
    text = "".join(path.read_text() for path in sources)
    rows = set(re.findall(r'\{"(aten\.[A-Za-z0-9_]+\.[A-Za-z0-9_]+)"', text))
    known = dict.fromkeys(rows)
    variants: dict[str, tuple[str, str, bool]] = {}

    def base_of(name: str) -> str:
        return name.split(".")[1]

    def add(name: str, of: str) -> None:
        of = variants[of][0] if of in variants else of
        if name in known or name in variants or of not in known:
            return
        schema = schemas(base_of(name)).get(name)
        if schema is None:
            return
        targets = written(schema)
        variants[name] = (of, targets[0] if targets else "", shares(schema))

    def add_written(base: str, name: str, schema: torch._C.FunctionSchema) -> None:
        wanted = signature(schema)
        for other, found in [*schemas(base).items(), *schemas(base + "_").items()]:
            if written(found) and signature(found, without_out=True) == wanted:
                add(other, name)

    def add_all_written() -> None:
        for name in sorted([*known, *variants]):
            schema = schemas(base_of(name)).get(name)
            if schema is None:
                raise SystemExit(f"torch has no {name}")
            if not written(schema):
                add_written(base_of(name), name, schema)

    add_all_written()
    for name, of in OVERLOADS.items():
        add(name, of)
    for _ in range(2):  # synonyms of variants
        for base, of in SYNONYMS.items():
            for suffix in ("", "_") if not base.startswith("__") else ("",):
                mine = schemas(base + suffix)
                theirs = [*schemas(of + suffix).items(), *schemas(of).items()]
                for name, schema in mine.items():
                    for other, found in theirs:
                        positional = [t for _, t in signature(schema, True)] == [t for _, t in signature(found, True)]
                        same_names = signature(schema, True) == signature(found, True)
                        if same_names or (positional and base in ("swapdims", "__iand__")):
                            add(name, other)
        add_all_written()

    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        "// Made by tools/make_aten_variants.py from the schemas of torch "
        + torch.__version__.split("+")[0]
        + "; run it again after a row of a family was added.",
        '#include "reference/aten/registry.hpp"',
        "",
        "namespace assay::reference::aten {",
        "namespace {",
        "",
        "// clang-format off",
        "constexpr Variant kVariants[] = {",
        *(
            f'    {{"{name}", "{of}", "{target}"{", true" if view else ""}}},'
            for name, (of, target, view) in sorted(variants.items())
        ),
        "};",
        "// clang-format on",
        "",
        "}  // namespace",
        "",
        "std::span<const Variant> variants() { return kVariants; }",
        "",
        "}  // namespace assay::reference::aten",
        "",
    ]
    (FOLDER / "variants.cpp").write_text("\n".join(lines))
    print(f"{len(rows)} rows, {len(variants)} variants")


if __name__ == "__main__":
    main()
