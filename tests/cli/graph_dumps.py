# SPDX-License-Identifier: Apache-2.0
"""Writes what TorchAir and CANN leave of a small graph: texts, GE dump files, FX arrays.

The bytes are put together by hand, from the layout in docs/formats/cann-dump.md; nothing of the reader is used.
The graph is `topk((x @ w + b) * 3, 2)`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

DATA_TYPES = {"float32": 1, "float16": 2, "int32": 7, "int64": 8}
ND = 2
FRACTAL_NZ = 29
FX_TIME = "20240125031118{:06d}"
GE_TIME = 1735786845000000


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def number(tag: int, value: int) -> bytes:
    return varint(tag << 3) + varint(value)


def content(tag: int, value: bytes) -> bytes:
    return varint(tag << 3 | 2) + varint(len(value)) + value


def shape_message(shape) -> bytes:
    return content(1, b"".join(varint(size) for size in shape)) if len(shape) else b""


def to_fractal_nz(array: np.ndarray, tile: int = 16) -> np.ndarray:
    """[N, C] -> [C1, N1, N0, C0], filled with 77."""
    rows, columns = (-(-size // tile) * tile for size in array.shape)
    filled = np.full((rows, columns), 77, array.dtype)
    filled[: array.shape[0], : array.shape[1]] = array
    return np.ascontiguousarray(filled.reshape(rows // tile, tile, columns // tile, tile).transpose(2, 0, 1, 3))


def ge_dump(op_name, inputs, outputs, tiled=False, origins=(), indices=None) -> bytes:
    """origins: (name, output index) of each output before fusion.

    indices: of inputs, then outputs, among the operator's operands, when others were left out.
    """
    places = iter(indices or ())

    def fields(array, tags, origin=None):
        stored = to_fractal_nz(array) if tiled and array.ndim == 2 else np.ascontiguousarray(array)
        out = number(1, DATA_TYPES[str(array.dtype)]) + number(2, FRACTAL_NZ if stored.ndim == 4 else ND)
        out += content(3, shape_message(stored.shape))
        if origin is not None:
            out += content(4, content(1, origin[0].encode()) + number(2, origin[1]))
        out += number(tags[0], stored.nbytes) + content(tags[1], shape_message(array.shape)) + number(tags[2], 4096)
        if indices is not None:
            out += number(tags[3], next(places))
        return out, stored.tobytes()

    described_inputs = [fields(array, (5, 6, 8, 10)) for array in inputs]
    described_outputs = [
        fields(array, (6, 7, 9, 12), origins[i] if i < len(origins) else None) for i, array in enumerate(outputs)
    ]
    header = content(1, b"2.0")
    header += b"".join(content(3, head) for head, _ in described_outputs)
    header += b"".join(content(4, head) for head, _ in described_inputs)
    header += content(6, op_name.encode())
    if indices is not None:
        header += content(7, content(1, b"assay_operand_index") + content(2, b"arg_index"))
    payload = b"".join(data for _, data in described_inputs + described_outputs)
    return struct.pack("<Q", len(header)) + header + payload


STATISTICS_HEADER = (
    "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,"
    "Nan Count,Negative Inf Count,Positive Inf Count\n"
)


def ge_statistics(inputs, outputs) -> str:
    """The classic table of an operator's operands, six digits a number."""
    rows = [STATISTICS_HEADER]
    types = {"float32": "DT_FLOAT", "float16": "DT_FLOAT16", "int32": "DT_INT32", "int64": "DT_INT64"}
    for role, arrays in (("Input", inputs), ("Output", outputs)):
        for index, array in enumerate(arrays):
            shape = "x".join(map(str, array.shape)) or "-"
            values = array.astype(np.float64)
            rows.append(
                f"{role},{index},{array.nbytes},{types[str(array.dtype)]},ND,{shape},"
                f"{values.max():.6g},{values.min():.6g},{values.mean():.6g},{array.size},0,0,0\n"
            )
    return "".join(rows)


@dataclass
class Op:
    name: str
    type: str
    edges: list[str]
    inputs: list[np.ndarray] = field(default_factory=list)
    outputs: list[np.ndarray] = field(default_factory=list)
    fx: str = ""  # "mm-aten.mm.default"
    fx_inputs: list = field(default_factory=list)  # a list among them is a list of tensors
    dumped: bool = True
    fx_values: list[str] = field(default_factory=list)  # of each output, when it is not {fx}.OUTPUT.{i}


def graph(seed=0, scale=3.0) -> list[Op]:
    rng = np.random.default_rng(seed)
    x, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3), (3, 20), (20,)))
    mm = x @ w
    add = mm + b
    mul = add * np.float32(scale)
    order = np.argsort(-mul, axis=1, kind="stable")[:, :2]
    values = np.take_along_axis(mul, order, 1)
    const = np.array([scale], np.float32)
    return [
        Op("x_1", "Data", [], dumped=False),
        Op("w_1", "Data", [], dumped=False),
        Op("b_1", "Data", [], dumped=False),
        Op("Const", "Const", [], dumped=False),
        Op("Const_1", "Const", [], dumped=False),
        Op("MatMulV2", "MatMulV2", ["x_1:0", "w_1:0", "", "x_1:-1"], [x, w], [mm], "mm-aten.mm.default", [x, w]),
        Op("Add", "Add", ["MatMulV2:0", "b_1:0"], [mm, b], [add], "add-aten.add.Tensor", [mm, b]),
        Op("Mul", "Mul", ["Add:0", "Const:0"], [add, const], [mul], "mul-aten.mul.Tensor", [add, scale]),
        Op(
            "TopK",
            "TopKV2",
            ["Mul:0", "Const_1:0"],
            [mul, np.array([2], np.int32)],
            [values, order.astype(np.int32)],
            "topk-aten.topk.default",
            [mul, 2],
        ),
        Op("NetOutput", "NetOutput", ["TopK:0", "TopK:1"], dumped=False),
    ]


def fused(ops: list[Op], name="AddMul") -> list[Op]:
    """The same run with Add and Mul as one operator."""
    by_name = {op.name: op for op in ops}
    add, mul = by_name["Add"], by_name["Mul"]
    both = Op(name, "AutomaticBufferFusionOp", [], [*add.inputs, mul.inputs[1]], mul.outputs)
    return [both if op.name == "Add" else op for op in ops if op.name != "Mul"]


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def attribute(key: str, value: str) -> str:
    return f"attr {{ key: {quoted(key)} value {{ {value} }} }}"


def graph_text(ops: list[Op], metadata=None) -> str:
    """metadata: for an operator's name its names before fusion and, for each output, (name, index)."""
    lines = ['name: "graph_1"']
    for op in ops:
        lines += ["op {", f"  name: {quoted(op.name)}", f"  type: {quoted(op.type)}"]
        lines += [f"  input: {quoted(edge)}" for edge in op.edges]
        names, origins = (metadata or {}).get(op.name, (None, []))
        if names is not None:
            listed = " ".join(f"s: {quoted(name)}" for name in names)
            lines.append("  " + attribute("_datadump_original_op_names", f"list {{ {listed} }}"))
        for i in range(max(len(op.outputs), 1)):
            lines.append('  output_desc {\n    name: "y"\n    dtype: DT_FLOAT\n    layout: "ND"')
            lines.append("    " + attribute("_meta", "s: " + quoted("Tensor(dtype=torch.float32, size={2, 3})")))
            if op.fx:
                value = op.fx_values[i] if op.fx_values else f"{op.fx}.OUTPUT.{i}"
                lines.append("    " + attribute("_fx_tensor_name", "s: " + quoted(value)))
            if i < len(origins):
                lines.append("    " + attribute("_datadump_origin_name", "s: " + quoted(origins[i][0])))
                lines.append("    " + attribute("_datadump_origin_output_index", f"i: {origins[i][1]}"))
            lines.append("  }")
        lines.append("}")
    return "\n".join(lines) + "\n"


def write_text(folder, ops, graph=1, rank=0, kind="original", metadata=None):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    name = f"dynamo_{kind}_graph_{graph}_rank_{rank}_pid_77_ts_20250102030405{graph:06d}.txt"
    (folder / name).write_text(graph_text(ops, metadata))


def ge_file_name(op: Op, place: int) -> str:
    return f"{op.type}.{op.name}.{place}.3.{GE_TIME + place}"


def write_ge_token(folder, ops, tiled=False, statistics=False):
    """One token: a file for each operator, named in the order of execution."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for place, op in enumerate(ops):
        if op.dumped and statistics:
            (folder / f"{ge_file_name(op, place)}.csv").write_text(ge_statistics(op.inputs, op.outputs))
        elif op.dumped:
            (folder / ge_file_name(op, place)).write_bytes(ge_dump(op.name, op.inputs, op.outputs, tiled))
    return folder


def write_fx_token(folder, ops):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for place, op in enumerate(ops):
        if not op.fx:
            continue
        time = FX_TIME.format(place)
        for i, value in enumerate(op.fx_inputs):
            if isinstance(value, list):
                for j, element in enumerate(value):
                    np.save(folder / f"{op.fx}.INPUT.{i}.{j}.{time}.npy", element)
            else:
                np.save(folder / f"{op.fx}.INPUT.{i}.{time}.npy", np.array(value))
        for i, value in enumerate(op.outputs):
            # FX indices are int64, GE's are int32.
            in_fx = value.astype(np.int64) if value.dtype == np.int32 else value
            np.save(folder / f"{op.fx}.OUTPUT.{i}.{time}.npy", in_fx)
    return folder


def write_current(root, seeds=(0,), ranks=(0,), graphs=(1,), tiled=False, ge=graph):
    """Dumps of TorchAir after 7.1.0, one token for each seed: (GE folder, FX folder)."""
    root = Path(root)
    ge_root, fx_root = root / "msit_ge_dump", root / "msit_fx_dump"
    for rank in ranks:
        level = f"worldsize{len(ranks)}_global_rank{rank}"
        for number_ in graphs:
            write_text(ge_root, graph(), number_, rank)
            for token, seed in enumerate(seeds):
                unique = seed + 100 * rank + 10 * number_
                write_ge_token(
                    ge_root / level / "20250102030405" / str(rank) / f"graph_{number_}" / str(number_) / str(token),
                    ge(unique),
                    tiled,
                )
                write_fx_token(fx_root / level / f"graph_{number_}" / str(token), graph(unique))
    return ge_root, fx_root
