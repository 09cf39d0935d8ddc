# SPDX-License-Identifier: Apache-2.0
"""assay.capture(level="operator"): every record against an independent Python dispatch mode.

The oracle keeps every storage it sees alive, so an address names one; it clones the inputs before the call and
the outputs after it, counts writes by the schema, and knows modules by ordinary hooks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("assay.torch.capture")

from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import assay  # noqa: E402

Record = dict[str, Any]
FLOAT_NAMES = {math.inf: "inf", -math.inf: "-inf"}


def records_of(run: Path) -> list[Record]:
    return [json.loads(line) for line in (run / "rank0" / "records.jsonl").read_text().splitlines()]


def tensor_of(run: Path, record: Record) -> torch.Tensor:
    with open(run / "rank0" / record["file"], "rb") as file:
        file.seek(record["offset"])
        data = bytearray(file.read(record["bytes"]))
    dtype = getattr(torch, record["dtype"])
    return torch.frombuffer(data, dtype=dtype).reshape(record["shape"]) if data else torch.empty(record["shape"])


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    left, right = left.detach().contiguous().reshape(-1), right.detach().contiguous().reshape(-1)
    return torch.equal(left.view(torch.uint8), right.view(torch.uint8))


@dataclass
class Call:
    """One operator as it was written down, or as the oracle saw it."""

    name: str
    module: str
    call: int
    index: int = 0
    args: dict[str, Any] = field(default_factory=dict)
    inputs: list[tuple[str, Any]] = field(default_factory=list)
    outputs: list[tuple[str, Any]] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)


def recorded_calls(run: Path, step: int = 0) -> list[Call]:
    """The operators of a step with the lines of their tensors; fails when other operators stand in between."""
    calls: list[Call] = []
    node = ""
    for record in records_of(run):
        if record["step"] != step or "::" not in record["node"]:
            continue
        if record.get("kind") == "operator":
            node = record["node"]
            path, _, rest = node.partition("::")
            assert rest == f"{record['type']}.{rest.rpartition('.')[2]}" and record["module"] == path
            call = Call(record["type"], path, record.get("call", 0), int(rest.rpartition(".")[2]), record["args"])
            call.writes = record.get("writes", [])
            calls.append(call)
        else:
            assert record["node"] == node and record["type"] == calls[-1].name
            assert record.get("call", 0) == calls[-1].call
            side = calls[-1].inputs if record["role"] == "input" else calls[-1].outputs
            side.append((record["slot"], record))
    return calls


def leaves_of_result(value: Any, slot: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            yield from leaves_of_result(item, f"{slot}.{i}" if slot else str(i))
    else:
        yield slot, value


class Oracle(TorchDispatchMode):
    """Writes down every operator, in Python and with everything kept alive."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.kept: list[Any] = []
        self.writes: dict[int, int] = {}  # storage address -> writes
        self.made_by: dict[Any, tuple[int, str]] = {}  # value -> (operator, slot of its output)
        self.seen: set[Any] = set()
        self.stack: list[tuple[str, int]] = []
        self.counts: dict[str, int] = {}
        self.within: dict[tuple[str, int, str], int] = {}
        self.hooks = [
            hook
            for name, module in model.named_modules()
            for hook in (
                module.register_forward_pre_hook(self._enter(name)),
                module.register_forward_hook(self._leave, always_call=True),
            )
        ]

    def _enter(self, name: str) -> Callable[..., None]:
        def enter(*_: Any) -> None:
            self.stack.append((name, self.counts.get(name, 0)))
            self.counts[name] = self.stack[-1][1] + 1

        return enter

    def _leave(self, *_: Any) -> None:
        self.stack.pop()

    def detach(self) -> None:
        for hook in self.hooks:
            hook.remove()

    def _value(self, tensor: torch.Tensor) -> Any:
        storage = tensor.untyped_storage()
        self.kept.append(storage)  # not the tensor: torch makes another one of a factory result that somebody holds
        written = self.writes.get(storage._cdata, 0)
        place = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        return (storage._cdata, written, *place)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        module, number = self.stack[-1]
        call = Call(str(func), module, number)
        key = (module, number, call.name)
        call.index = self.within[key] = self.within.get(key, -1) + 1
        schema = func._schema.arguments
        passed = {**{schema[i].name: value for i, value in enumerate(args)}, **kwargs}
        for argument in schema:
            if argument.name not in passed:
                continue
            value = passed[argument.name]
            call.args[argument.name] = value
            for slot, leaf in leaves_of_result(value, argument.name):
                if isinstance(leaf, torch.Tensor):
                    value_key = self._value(leaf)
                    self.seen.add(value_key)
                    call.inputs.append((slot, (leaf.clone(), value_key, self.made_by.get(value_key))))
            if argument.alias_info is not None and argument.alias_info.is_write:
                call.writes.append(argument.name)
        result = func(*args, **kwargs)
        for name in call.writes:
            written = passed[name]
            for tensor in written if isinstance(written, list) else [written]:
                address = tensor.untyped_storage()._cdata
                self.writes[address] = self.writes.get(address, 0) + 1
        for slot, leaf in leaves_of_result(result):
            if isinstance(leaf, torch.Tensor):
                value_key = self._value(leaf)
                if value_key not in self.seen:
                    self.made_by[value_key] = (len(self.calls), slot)
                self.seen.add(value_key)
                call.outputs.append((slot, (leaf.clone(), value_key)))
            else:
                call.outputs.append((slot, leaf))
        self.calls.append(call)
        return result


def as_json(value: Any, slot: str) -> Any:
    """What docs/formats/native.md says of `args`."""
    if isinstance(value, torch.Tensor):
        return {"tensor": slot}
    if isinstance(value, (list, tuple)):
        return [as_json(item, f"{slot}.{i}") for i, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": FLOAT_NAMES[value]}
    for kind in ("dtype", "device", "layout", "memory_format"):
        if isinstance(value, getattr(torch, kind)):
            return {kind: str(value).replace("torch.", "")}
    return value


def check_against_oracle(run: Path, oracle: Oracle, step: int = 0) -> None:
    """Every operator: names, arguments, bytes before and after, who made what, which storages are one."""
    calls = recorded_calls(run, step)
    assert [(c.name, c.module, c.call, c.index) for c in calls] == [
        (c.name, c.module, c.call, c.index) for c in oracle.calls
    ]
    made_by = {record["n"]: (number, slot) for number, call in enumerate(calls) for slot, record in call.outputs}
    values: dict[int, Any] = {}  # value id -> the oracle's value
    ids: dict[Any, int] = {}
    storages: dict[int, int] = {}
    for mine, seen in zip(calls, oracle.calls):
        assert mine.args == {name: as_json(value, name) for name, value in seen.args.items()}
        assert mine.writes == seen.writes
        assert [slot for slot, _ in mine.inputs] == [slot for slot, _ in seen.inputs]
        assert [slot for slot, _ in mine.outputs] == [slot for slot, _ in seen.outputs]
        for (_, record), (_, (before, value, maker)) in zip(mine.inputs, seen.inputs):
            assert same_bits(tensor_of(run, record), before), record
            assert record["shape"] == list(before.shape)
            assert (made_by[record["from"]] if "from" in record else None) == maker, record
            assert values.setdefault(record["vid"], value) == value
            assert ids.setdefault(value, record["vid"]) == record["vid"]
            assert storages.setdefault(record["storage"], value[0]) == value[0]
        for (_, record), (_, expected) in zip(mine.outputs, seen.outputs):
            if not isinstance(expected, tuple):
                assert record["kind"] == "value" and record["value"] == expected
                continue
            after, value = expected
            assert same_bits(tensor_of(run, record), after), record
            assert values.setdefault(record["vid"], value) == value
            assert ids.setdefault(value, record["vid"]) == record["vid"]
            assert record.get("version", 0) == value[1] and record.get("storage_offset", 0) == value[2]


def both(model: nn.Module, run: Path, *inputs: Any, **options: Any) -> tuple[Oracle, Any]:
    """Runs `model` with the oracle and, the second time, with a capture; returns the oracle and the second result."""
    oracle = Oracle(model)
    # Storages whose contents change belong to one of the two runs: arguments are cloned.
    cloned = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
    with oracle:
        expected = model(*cloned)
    oracle.detach()
    with assay.capture(model, run, level="operator", **options):
        result = model(*[x.clone() if isinstance(x, torch.Tensor) else x for x in inputs])
    for left, right in zip(leaves_of_result(tuple(_tensors(expected))), leaves_of_result(tuple(_tensors(result)))):
        assert same_bits(left[1], right[1])
    return oracle, result


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [value.logits] if hasattr(value, "logits") else [t for t in value if isinstance(t, torch.Tensor)]


def tiny(kind: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if kind == "llama":
        config = transformers.LlamaConfig(
            hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=128
        )
        return transformers.LlamaForCausalLM(config).eval().to(dtype)
    config = transformers.GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=128, n_positions=64)
    return transformers.GPT2LMHeadModel(config).eval().to(dtype)


def grad_mode(name: str) -> Any:
    return {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}[name]()


@pytest.mark.parametrize("mode", ["no_grad", "grad", "inference"])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_every_operator_of_a_model_is_what_an_independent_mode_saw(tmp_path: Path, kind: str, mode: str) -> None:
    model = tiny(kind)
    ids = torch.arange(9).reshape(1, 9)
    with grad_mode(mode):
        oracle, _ = both(model, tmp_path / "run", ids)
    assert len(oracle.calls) > 60
    check_against_oracle(tmp_path / "run", oracle)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["config"]["level"] == "operator" and manifest["complete"]
