# SPDX-License-Identifier: Apache-2.0
"""Overflow dump: the operator that made the first Inf or NaN, not those that passed it on."""

from __future__ import annotations

import json
import logging
import math
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from dump_reading import DumpFile, read_dump, run_folder
from transformers import LlamaConfig, LlamaForCausalLM

from assay.torch.graph import CompilerConfig, get_backend, logger
from assay.torch.graph._model import Operator
from assay.torch.graph._overflow import debug_payload, find_overflow

INF, NAN = math.inf, math.nan


@pytest.fixture
def log() -> Any:
    """Messages of the graph mode's logger, which does not hand them on to the root logger."""
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler = Handler()
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)


def overflow_backend(folder: Path) -> Any:
    (folder / "out").mkdir()
    path = folder / "dump.json"
    path.write_text(json.dumps({"dump": {"dump_path": str(folder / "out"), "dump_debug": "on"}}))
    config = CompilerConfig()
    config.dump_config.dump_config_path = str(path)
    return get_backend(config)


def reports_of(folder: Path) -> list[dict[str, Any]]:
    found = sorted(run_folder(folder / "out").glob("0/*/*/*/overflow.json"))
    return [report for path in found for report in json.loads(path.read_text())["reports"]]


def operands_of(folder: Path, name: str) -> DumpFile:
    files = [path for path in run_folder(folder / "out").glob("0/*/*/*/*") if path.name.split(".")[1:2] == [name]]
    assert len(files) == 1, files
    return read_dump(files[0])


def tensor(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


ADD = Operator("Add", "Add")


@pytest.mark.parametrize(
    ("inputs", "output", "kind", "status"),
    [
        ([tensor(1.0, 2.0)], tensor(1.0, INF), "inf", 0x20),
        ([tensor(1.0, 2.0)], tensor(1.0, -INF), "inf", 0x20),
        ([tensor(1.0, 2.0)], tensor(1.0, NAN), "nan", 0x20),
        ([tensor(INF, 2.0)], tensor(1.0, NAN), "nan", 0x20),  # Inf - Inf: the NaN is new
        ([tensor(INF, 2.0)], tensor(INF, 2.0), None, 0),  # passed on
        ([tensor(NAN, 2.0)], tensor(NAN, INF), None, 0),
        ([tensor(NAN, 2.0)], tensor(NAN, 2.0), None, 0),
        ([tensor(1.0, 2.0)], tensor(3.4028235e38, 0.0), None, 0),  # float32: no saturation known
        ([tensor(6e4, dtype=torch.float16)] * 2, tensor(65504.0, dtype=torch.float16), "saturation", 0x20),
        ([tensor(65504.0, dtype=torch.float16)], tensor(65504.0, dtype=torch.float16), None, 0),
        ([tensor(1e6)], tensor(INF, dtype=torch.float16), "inf", 0x120),  # a cast: narrowing
        ([tensor(65500.0)], tensor(65504.0, dtype=torch.float16), "saturation", 0x100),
        ([tensor(7e4)], tensor(-65504.0, dtype=torch.float16), "saturation", 0x100),  # clamped by the cast
        ([tensor(3.3e38)], tensor(3.3895313892515355e38, dtype=torch.bfloat16), "saturation", 0x100),
        ([torch.tensor([70000])], tensor(INF, dtype=torch.float16), "inf", 0x120),
        ([tensor(1.0)], torch.tensor([2, 3]), None, 0),
        ([tensor(1.0)], torch.empty(0), None, 0),
        ([tensor(1.0)], torch.tensor([complex(0, INF)]), "inf", 0x20),
        ([], tensor(-INF), None, 0),  # a mask that is made so
    ],
)
def test_report_where_an_overflow_is_made(
    inputs: list[torch.Tensor], output: torch.Tensor, kind: str | None, status: int
) -> None:
    report = find_overflow(ADD, list(inputs), [output])
    if kind is None:
        assert report is None
    else:
        assert report is not None
        assert (report.kind, report.status, report.output) == (kind, status, 0)


def test_number_that_is_infinite_on_purpose_is_an_operand() -> None:
    # Given masked_fill(x, mask, -inf), whose number is an argument of the node
    graph = torch.fx.Graph()
    x, mask = graph.placeholder("x"), graph.placeholder("mask")
    node = graph.call_function(torch.ops.aten.masked_fill.Scalar, (x, mask, -INF))
    operator = Operator("MaskedFill", "MaskedFill", key=node)
    # Then the -Inf is no overflow, and a NaN would be
    assert find_overflow(operator, [tensor(1.0), torch.tensor([True])], [tensor(-INF)]) is None
    assert find_overflow(operator, [tensor(1.0), torch.tensor([True])], [tensor(NAN)]) is not None


def test_uninitialised_memory_is_not_reported() -> None:
    graph = torch.fx.Graph()
    node = graph.call_function(torch.ops.aten.empty_like.default, (graph.placeholder("x"),))
    assert find_overflow(Operator("EmptyLike", "EmptyLike", key=node), [tensor(1.0)], [tensor(NAN)]) is None


def test_second_output_is_named() -> None:
    report = find_overflow(ADD, [tensor(1.0)], [tensor(1.0), None, tensor(NAN)])
    assert report is not None
    assert report.output == 2


def test_payload_by_its_offsets() -> None:
    # docs/formats/overflow-report.md, new form: head of two u32, block of four u32, then u64 fields
    payload = debug_payload(graph=3, task=17, status=0x110)
    assert len(payload) == 2048
    assert struct.unpack_from("<II", payload, 0) == (0x5A5A5A5A, 0)
    assert struct.unpack_from("<IIII", payload, 8) == (1, 0, 0, 88)
    assert struct.unpack_from("<11Q", payload, 24) == (3, 0, 17, 0, 0, 0, 0, 0, 0, 0, 0x110)
    assert not any(payload[24 + 88 :])


class ExpOfProduct(torch.nn.Module):
    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        mask = torch.full((2, 2), -INF).triu(1)  # Inf that is meant
        return torch.exp(x * scale) + torch.softmax(mask + x, -1)


def test_first_overflow_of_a_compiled_function(tmp_path: Path, log: list[str]) -> None:
    backend = overflow_backend(tmp_path)
    compiled = torch.compile(ExpOfProduct(), backend=backend)
    with torch.no_grad():
        sound = compiled(torch.tensor([[1.0, 2.0]]), torch.tensor(1.0))
        assert torch.isfinite(sound).all()
        assert not log
        compiled(torch.tensor([[1.0, 2.0]]), torch.tensor(1e3))  # exp(1000) = Inf
    backend.close()
    reports = reports_of(tmp_path)
    assert [(report["operator"], report["kind"]) for report in reports] == [("Exp", "inf")]
    assert "Exp" in log[0] and "step 1" in log[0]
    # The operands are there, both sides
    operands = operands_of(tmp_path, "Exp")
    assert operands.inputs[0].tensor.tolist() == [[1000.0, 2000.0]]
    assert operands.outputs[0].tensor.tolist() == [[INF, INF]]
    assert operands.task == reports[0]["acc_list"][0]["task_id"]
    # and the debug file names the operator by its task, the graph by its number
    debug = next(run_folder(tmp_path / "out").glob("0/*/*/1/Opdebug.*"))
    assert debug.name.split(".")[1] == "Node_OpDebug"
    read = read_dump(debug)
    assert read.inputs == []
    assert (read.outputs[0].dtype, read.outputs[0].shape) == (torch.uint8, (2048,))
    payload = bytes(read.outputs[0].tensor.numpy())
    assert struct.unpack_from("<3Q", payload, 24) == (int(debug.parent.parent.name), 0, operands.task)
    assert payload[24 + 80] == 0x20
    assert b"Exp" in debug.read_bytes()  # original_op


def test_fault_planted_in_a_llama_is_found(tmp_path: Path, log: list[str]) -> None:
    # Given a model of two layers with a weight that makes finite operands overflow, in the second layer's MLP
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    weight = model.model.layers[1].mlp.down_proj.weight
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight.mul_(1e4)  # large, and harmless in itself
        weight.fill_(3e38)
    backend = overflow_backend(tmp_path)
    # When a prompt runs through the compiled model
    with torch.no_grad():
        torch.compile(model, backend=backend)(torch.arange(8)[None], use_cache=False)
    backend.close()
    # Then the first report is the product with that weight
    reports = reports_of(tmp_path)
    first = operands_of(tmp_path, reports[0]["operator"])
    assert first.type in ("MatMulV2", "Addmm", "BatchMatMulV2")
    assert all(torch.isfinite(operand.tensor).all() for operand in first.inputs)
    assert not torch.isfinite(first.outputs[0].tensor).all()
    assert any(torch.equal(operand.tensor, weight.t()) for operand in first.inputs)
    assert reports[0]["operator"] in log[0]
    assert "down_proj" in reports[0]["source"]
