# SPDX-License-Identifier: Apache-2.0
"""Operators of a captured ggml graph, whose weights stand in the model's file: a hand-written run, judged by locate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import assay

gguf = pytest.importorskip("gguf")

TOKENS, WIDTH, ROWS = 3, 64, 48


def as_blocks(values: np.ndarray) -> np.ndarray:
    """What a CPU kernel makes of an activation before it meets blocks of 32: 8 bits of one float16 scale."""
    blocks = values.reshape(-1, 32).astype(np.float64)
    scales = np.abs(blocks).max(-1, keepdims=True) / 127
    return (np.round(blocks / scales) * scales.astype(np.float16)).reshape(values.shape)


class HandWrittenRun:
    """A native run at operator level, line by line."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.rank = folder / "rank0"
        self.rank.mkdir(parents=True)
        self.lines: list[dict[str, Any]] = []
        self.bytes = b""
        manifest = {
            "format": "assay-run", "version": 1, "tool": "assay", "complete": True,
            "host": {"kind": "ggml", "program": ["chat", f"--model={model}"]},
            "config": {"level": "operator", "data": "full"},
        }  # fmt: skip
        (folder / "manifest.json").write_text(json.dumps(manifest))

    def line(self, **fields: Any) -> int:
        number = len(self.lines)
        self.lines.append({"n": number, "step": 0, **fields})
        return number

    def tensor(self, node: str, role: str, slot: str, array: np.ndarray | None, **fields: Any) -> int:
        record = {"node": node, "type": node.split("::")[1].rsplit(".", 1)[0], "role": role, "slot": slot, **fields}
        if array is not None:
            record |= {
                "dtype": str(array.dtype), "shape": list(array.shape), "file": "step-000000.safetensors",
                "strides": [stride // array.itemsize for stride in array.strides],
                "offset": len(self.bytes), "bytes": array.nbytes,
            }  # fmt: skip
            self.bytes += array.tobytes()
        return self.line(**record)

    def operator(self, node: str, sources: int) -> None:
        arguments: dict[str, Any] = {f"src{i}": {"tensor": f"src{i}"} for i in range(sources)}
        if "permute" in node:
            arguments["axes"] = [1, 0, 2, 3]
        module, kind = node.split("::")
        self.line(node=node, type=kind.rsplit(".", 1)[0], kind="operator", module=module, order=0, args=arguments)

    def close(self) -> None:
        (self.rank / "step-000000.safetensors").write_bytes(self.bytes)
        (self.rank / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in self.lines))


@pytest.fixture
def model(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """A GGUF file of one Q8_0 weight, and its values."""
    weight = np.random.default_rng(1).standard_normal((ROWS, WIDTH)).astype(np.float32)
    blocks = gguf.quantize(weight, gguf.GGMLQuantizationType.Q8_0)
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_tensor("blk.0.attn_q.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tmp_path / "model.gguf", gguf.dequantize(blocks, gguf.GGMLQuantizationType.Q8_0)


def write_run(folder: Path, model: tuple[Path, np.ndarray], fault: float = 0.0) -> Path:
    """Qcur = x W^T by quantised products, its transposed view without bytes, and a copy of that."""
    run = HandWrittenRun(folder, model[0])
    x = np.random.default_rng(2).standard_normal((TOKENS, WIDTH)).astype(np.float32)
    y = (as_blocks(x) @ model[1].astype(np.float64).T).astype(np.float32)
    y[1, 5] += fault
    product, view, copy = "Qcur-0::ggml.mul_mat.0", "Qcur-0 (permuted)::ggml.permute.0", "Qcur-0 (cont)::ggml.cont.0"
    run.operator(product, 2)
    run.tensor(
        product, "input", "src0", None, dtype="q8_0", shape=[ROWS, WIDTH], ne=[WIDTH, ROWS, 1, 1], block=32,
        block_bytes=34, vid=0, storage=0, leaf="blk.0.attn_q.weight",
    )  # fmt: skip
    run.tensor(product, "input", "src1", x, vid=1, storage=1, leaf="x")
    made = run.tensor(product, "output", "", y, vid=2, storage=2)
    run.operator(view, 1)
    again = {key: run.lines[made][key] for key in ("dtype", "shape", "strides", "file", "offset", "bytes")}
    run.tensor(view, "input", "src0", None, vid=2, storage=2, same_as=made, **{"from": made}, **again)
    viewed = {"dtype": "float32", "shape": [ROWS, TOKENS], "strides": [1, ROWS], "vid": 3, "storage": 2}
    alias = run.tensor(view, "output", "", None, **viewed)
    run.operator(copy, 1)
    run.tensor(copy, "input", "src0", None, **{"from": alias}, **viewed)
    run.tensor(copy, "output", "", np.ascontiguousarray(y.T), vid=4, storage=4)
    run.close()
    return folder


def test_products_are_judged_with_the_weights_of_the_models_file(model, tmp_path):
    golden = write_run(tmp_path / "golden", model)
    mine = write_run(tmp_path / "mine", model, fault=4.0)
    verdict = assay.locate(golden, mine)
    # The view moved nothing and has no bytes: product and copy are what there is to judge.
    assert (verdict.coverage["judged"], verdict.coverage["judgeable"]) == (2, 2), verdict.coverage
    assert verdict.first_bad is not None
    assert verdict.first_bad.module == "Qcur-0"


def test_without_the_file_products_are_not_judged(model, tmp_path):
    golden = write_run(tmp_path / "golden", model)
    mine = write_run(tmp_path / "mine", model, fault=4.0)
    model[0].unlink()
    verdict = assay.locate(golden, mine)
    assert verdict.coverage["judged"] == 1
    assert any("ggml.mul_mat" in reason for reason in verdict.coverage["unjudged"])
