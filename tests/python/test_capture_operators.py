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

from bench import record_lines  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import assay  # noqa: E402

Record = dict[str, Any]


def records_of(run: Path) -> list[Record]:
    return record_lines.read(run / "rank0" / "records.jsonl")


def tensor_of(run: Path, record: Record) -> torch.Tensor:
    view = record.get("view")
    place = view or record
    with open(run / "rank0" / place["file"], "rb") as file:
        file.seek(place["offset"])
        data = bytearray(file.read(place["bytes"]))
    dtype = getattr(torch, record["dtype"])
    if view:
        assert "file" not in record and "same_as" not in record
        assert len(data) == dtype.itemsize * (
            1 + sum((size - 1) * stride for size, stride in zip(record["shape"], record["strides"]))
        )
        return torch.frombuffer(data, dtype=dtype).as_strided(record["shape"], record["strides"])
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
        left = [passed[name] for name in call.writes] if result is None else []  # what it has done is its result
        for slot, leaf in leaves_of_result(left[0] if len(left) == 1 else left or result):
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
        return {"float": str(value)}
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


class Program(nn.Module):
    """A model that is one function of its inputs, with parameters to use."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.arange(9.0).reshape(3, 3))
        self.register_buffer("table", torch.arange(3.0))

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


def write_through_views(m: Program, x: torch.Tensor) -> Any:
    y = x + 1
    row = y.view(-1)[:3]
    row.add_(2)  # writes y
    torch.mul(y, 2, out=y)
    y[1] = m.table
    return y * m.weight, row.neg()


def lists_and_tuples(m: Program, x: torch.Tensor) -> Any:
    values, places = torch.topk(x, 2)
    parts = x.split(1)
    chosen = x[:, None, [0, 1]]
    masked = x.masked_fill(x > 0, float("-inf"))
    torch._foreach_add_([parts[0], parts[2]], 1.5)
    half = torch.cat([values, values]).to(torch.bfloat16, memory_format=torch.preserve_format)
    return half, places + chosen.shape[0], masked, torch.full((2,), float("nan")), torch.empty(0) + 1


def reused_addresses(m: Program, x: torch.Tensor) -> Any:
    for step in range(60):
        x = (x * 1.01).sin() + step  # every intermediate is freed, its address handed out again
    return x


def the_same_twice(m: Program, x: torch.Tensor) -> Any:
    same = x.contiguous().reshape(x.shape)  # x itself, or a view of it
    return same.t() @ m.weight + m.weight.t() @ m.weight.t() + same


@pytest.mark.parametrize("mode", ["no_grad", "grad", "inference"])
@pytest.mark.parametrize("function", [write_through_views, lists_and_tuples, reused_addresses, the_same_twice])
def test_a_program_is_what_an_independent_mode_saw(tmp_path: Path, function: Any, mode: str) -> None:
    torch.manual_seed(3)
    x = torch.randn(3, 3)
    model = Program(function)
    with grad_mode(mode):
        oracle, _ = both(model, tmp_path / "run", x)
    check_against_oracle(tmp_path / "run", oracle)


def capture_calls(run: Path, model: nn.Module, *inputs: Any, **options: Any) -> list[Call]:
    with assay.capture(model, run, level="operator", **options):
        model(*inputs)
    return recorded_calls(run)


def test_a_write_through_a_view_makes_new_values_of_one_storage(tmp_path: Path) -> None:
    def program(m: Program, x: torch.Tensor) -> Any:
        y = x + 1
        y.view(-1).add_(1)
        return y * 2

    with torch.no_grad():
        add, view, write, mul = capture_calls(tmp_path / "run", Program(program), torch.zeros(2, 2))
    (_, y), (_, flat), (_, written), (_, again) = add.outputs[0], view.outputs[0], write.outputs[0], mul.inputs[0]
    assert [c.name for c in (add, view, write, mul)] == [
        "aten.add.Tensor",
        "aten.view.default",
        "aten.add_.Tensor",
        "aten.mul.Tensor",
    ]
    assert write.writes == ["self"] and write.inputs[0][1]["vid"] == flat["vid"]
    assert write.inputs[0][1]["from"] == flat["n"] and view.inputs[0][1]["from"] == y["n"]
    assert len({y["vid"], flat["vid"], written["vid"], again["vid"]}) == 4
    assert len({y["storage"], flat["storage"], written["storage"], again["storage"]}) == 1
    # y after the write: nobody returned that value, but its storage was written once.
    assert "from" not in again and "leaf" not in again and again["version"] == written["version"] == 1
    assert torch.equal(tensor_of(tmp_path / "run", again), torch.full((2, 2), 2.0))


def test_leaves_are_named_after_the_first_of_tied_weights(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(5, 3)
            self.head = nn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight
            self.register_buffer("scale", torch.tensor(2.0))

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.embed(ids)) * self.scale

    with torch.no_grad():
        calls = capture_calls(tmp_path / "run", Tied(), torch.tensor([1, 2]), weights=True)
    leaves = {(c.name, slot): r.get("leaf") for c in calls for slot, r in c.inputs}
    assert leaves[("aten.embedding.default", "weight")] == "embed.weight"
    assert leaves[("aten.t.default", "self")] == "embed.weight"
    assert leaves[("aten.mul.Tensor", "other")] == "scale"
    assert leaves[("aten.embedding.default", "indices")] is None
    weights = [r for r in records_of(tmp_path / "run") if r["step"] == -1]
    assert {(r["node"], r["slot"], r["leaf"]) for r in weights} >= {("embed", "weight", "embed.weight")}
    matmul = next(c for c in calls if c.name == "aten.mm.default")
    assert (
        dict(matmul.inputs)["mat2"]["from"] == next(c for c in calls if c.name == "aten.t.default").outputs[0][1]["n"]
    )


@pytest.mark.parametrize("mode", ["no_grad", "inference"])
def test_lazily_negated_views_are_told_from_what_they_lie_upon(tmp_path: Path, mode: str) -> None:
    # Views of one place that differ in the lazy neg bit alone. Objects of before are gone, their addresses come back.
    def negate(m: Program, x: torch.Tensor) -> Any:
        y, z = x + 0, torch.complex(x, x)
        sums = [z.imag + 1, z.conj().imag + 1]
        for _ in range(6):
            y = torch._neg_view(y)
            sums.append(y + 1)
        return sums

    with grad_mode(mode):
        for data in ("full", "stats"):
            calls = capture_calls(tmp_path / data, Program(negate), torch.tensor([1.0, 2.0, 6.0]), data=data)
            added = [call for call in calls if call.name == "aten.add.Tensor" and call.args["other"] == 1]
            # mean of [1, 2, 6] is 3, of the negated values -3; one more after the addition
            assert [call.inputs[0][1]["stats"]["mean"] for call in added] == [3, -3] + 3 * [-3, 3]
            assert [call.outputs[0][1]["stats"]["mean"] for call in added] == [4, -2] + 3 * [-2, 4]
            if data == "full":
                firsts = [float(tensor_of(tmp_path / data, call.inputs[0][1])[0]) for call in added]
                assert firsts == [1, -1] + 3 * [-1, 1]


def test_a_written_buffer_is_no_leaf_any_more(tmp_path: Path) -> None:
    def program(m: Program, x: torch.Tensor) -> Any:
        before = m.table + x
        m.table.mul_(3)
        return before + m.table

    with torch.no_grad():
        add, write, last = capture_calls(tmp_path / "run", Program(program), torch.ones(3))
    assert add.inputs[0][1]["leaf"] == "table" == write.inputs[0][1]["leaf"]
    assert "leaf" not in last.inputs[1][1] and last.inputs[1][1]["from"] == write.outputs[0][1]["n"]


def test_a_module_called_twice_keeps_its_calls_apart(tmp_path: Path) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(torch.relu(self.inner(x)))

    with torch.no_grad():
        calls = capture_calls(tmp_path / "run", Twice(), torch.ones(2, 3))
    assert [(c.name, c.module, c.call, c.index) for c in calls] == [
        ("aten.t.default", "inner", 0, 0),
        ("aten.addmm.default", "inner", 0, 0),
        ("aten.relu.default", "", 0, 0),
        ("aten.t.default", "inner", 1, 0),
        ("aten.addmm.default", "inner", 1, 0),
    ]
    assert calls[4].inputs[1][1]["from"] == calls[2].outputs[0][1]["n"]
    # The second transposition returns a value that is there already: its maker is the first.
    assert calls[4].inputs[2][1]["from"] == calls[0].outputs[0][1]["n"]


def test_a_cache_that_grows_keeps_its_values_across_steps(tmp_path: Path) -> None:
    model = tiny("llama")
    with torch.no_grad():
        expected = model(torch.arange(5)[None], use_cache=True)
        expected = model(torch.tensor([[7]]), past_key_values=expected.past_key_values, use_cache=True).logits
        with assay.capture(model, tmp_path / "run", level="operator"):
            first = model(torch.arange(5)[None], use_cache=True)
            second = model(torch.tensor([[7]]), past_key_values=first.past_key_values, use_cache=True)
    assert same_bits(second.logits, expected)
    records = {r["n"]: r for r in records_of(tmp_path / "run")}
    grown = [
        dict(c.inputs)
        for c in recorded_calls(tmp_path / "run", 1)
        if c.name == "aten.cat.default"
        and c.module.endswith("self_attn")
        and dict(c.inputs)["tensors.0"]["shape"][2] == 5
    ]
    assert len(grown) == 4  # keys and values of two layers
    for inputs in grown:
        made_by = records[inputs["tensors.0"]["from"]]
        assert made_by["step"] == 0 and made_by["type"] == "aten.cat.default"
        assert made_by["vid"] == inputs["tensors.0"]["vid"]
    # The empty tensor that the first step's cat began with has no bytes, but is a value.
    empty = [r for r in records.values() if r.get("shape") == [0]]
    assert empty and all(r["bytes"] == 0 and "vid" in r for r in empty)


class FixedCache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cache = torch.zeros(4, 3)

    def forward(self, place: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        self.cache.index_copy_(0, place, x)
        return self.cache.sum(0)


@pytest.mark.parametrize("reset", [False, True])
def test_a_fixed_cache_is_one_storage_and_writes_between_steps_are_noticed(tmp_path: Path, reset: bool) -> None:
    model = FixedCache()
    with torch.no_grad(), assay.capture(model, tmp_path / "run", level="operator"):
        model(torch.tensor([0]), torch.ones(1, 3))
        if reset:
            model.cache.zero_()  # outside of any captured call
        model(torch.tensor([1]), torch.ones(1, 3))
    (write0, _), (write1, sum1) = (recorded_calls(tmp_path / "run", step) for step in (0, 1))
    before = dict(write1.inputs)["self"]
    assert before["storage"] == dict(write0.inputs)["self"]["storage"]
    assert before.get("from") == (None if reset else write0.outputs[0][1]["n"])
    assert before["version"] == (2 if reset else 1)
    assert torch.equal(tensor_of(tmp_path / "run", before)[0], torch.zeros(3) if reset else torch.ones(3))
    assert sum1.inputs[0][1]["from"] == write1.outputs[0][1]["n"]


# --- what is left out ---------------------------------------------------------------------------------------------


def test_include_and_exclude_choose_operators_by_their_module(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
    with torch.no_grad():
        calls = capture_calls(tmp_path / "run", model, torch.ones(2, 3), include=["1", "1.*"], exclude="1.1")
    assert {c.module for c in calls} == {"1.0"}
    # The value comes from an operator that nobody recorded.
    assert "from" not in calls[1].inputs[1][1] and calls[1].inputs[1][0] == "mat1"
    assert {r["node"].split("::")[0] for r in records_of(tmp_path / "run")} == {"1", "1.0"}


def test_writes_of_operators_that_are_left_out_count(tmp_path: Path) -> None:
    class Writer(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.add_(1)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.writer = Writer()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            self.writer(y)
            return y * 3

    with torch.inference_mode():
        _, last = capture_calls(tmp_path / "run", Outer(), torch.ones(2), exclude="writer")
    assert last.inputs[0][1]["version"] == 1 and "from" not in last.inputs[0][1]
    assert torch.equal(tensor_of(tmp_path / "run", last.inputs[0][1]), torch.full((2,), 3.0))


@pytest.mark.parametrize("data", ["stats", "none"])
def test_without_bytes_edges_and_statistics_are_the_same(tmp_path: Path, data: str) -> None:
    model = tiny("llama")
    ids = torch.arange(6)[None]
    with torch.no_grad():
        full = capture_calls(tmp_path / "full", model, ids)
        less = capture_calls(tmp_path / "less", model, ids, data=data)
    assert [(c.name, c.module, c.args) for c in full] == [(c.name, c.module, c.args) for c in less]
    numbers_full = {r["n"]: i for i, r in enumerate(records_of(tmp_path / "full"))}
    numbers_less = {r["n"]: i for i, r in enumerate(records_of(tmp_path / "less"))}
    for mine, other in zip(full, less):
        for (_, left), (_, right) in zip(mine.inputs + mine.outputs, other.inputs + other.outputs):
            assert left["shape"] == right["shape"] and "file" not in right
            assert left["stats"] == right["stats"] if data == "stats" else "stats" not in right
            assert numbers_full.get(left.get("from")) == numbers_less.get(right.get("from"))
    assert not list((tmp_path / "less" / "rank0").glob("step*"))


def test_inputs_and_outputs_can_be_left_out(tmp_path: Path) -> None:
    model = Program(lambda m, x: (x + 1) * 2)
    with torch.no_grad():
        outputs = capture_calls(tmp_path / "outputs", model, torch.ones(2), inputs=False)
        inputs = capture_calls(tmp_path / "inputs", model, torch.ones(2), outputs=False)
    assert [len(c.inputs) for c in outputs] == [0, 0] and [len(c.outputs) for c in outputs] == [1, 1]
    assert [len(c.inputs) for c in inputs] == [1, 1] and [len(c.outputs) for c in inputs] == [0, 0]


def test_long_lists_and_foreign_objects_do_not_make_long_lines(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)

    def program(m: Program, x: torch.Tensor) -> Any:
        noise = torch.randn(4, generator=generator)
        return x.new_zeros(1) + noise, torch.ops.aten.split_with_sizes(torch.zeros(70000), [1] * 70000)[0]

    with torch.no_grad():
        calls = capture_calls(tmp_path / "run", Program(program), torch.ones(4), data="none", outputs=False)
    by_name = {c.name: c.args for c in calls}
    assert by_name["aten.split_with_sizes.default"]["split_sizes"] == {"other": "list of 70000"}
    assert any(args.get("generator") == {"other": "Generator"} for args in by_name.values())
    lines = (tmp_path / "run" / "rank0" / "records.jsonl").read_text().splitlines()
    assert max(map(len, lines)) < 1 << 20


def test_skipped_tensors_have_a_reason(tmp_path: Path) -> None:
    def program(m: Program, x: torch.Tensor) -> Any:
        return (x.to_sparse() * 2).to_dense(), torch.ones(3, device="meta") + 1

    with torch.no_grad():
        calls = capture_calls(tmp_path / "run", Program(program), torch.eye(3))
    skipped = [r["reason"] for c in calls for _, r in c.inputs + c.outputs if r.get("kind") == "skipped"]
    # The sentence about layouts depends on how tensors are read: torch's table of functions, or attributes.
    assert "meta tensor" in skipped and any("sparse" in reason for reason in skipped), skipped


# --- the host does not notice -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["no_grad", "grad", "inference"])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("data", ["full", "stats"])
def test_logits_are_the_same_bits(tmp_path: Path, mode: str, autocast: bool, data: str) -> None:
    model = tiny("llama", torch.float32 if autocast else torch.bfloat16)
    ids = torch.arange(8)[None]
    with grad_mode(mode), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        expected = model(ids).logits
        with assay.capture(model, tmp_path / "run", level="operator", data=data):
            result = model(ids).logits
        after = model(ids).logits
    assert same_bits(result, expected) and same_bits(after, expected)
    assert result.requires_grad == (mode == "grad")
    assert recorded_calls(tmp_path / "run")


def test_gradients_are_the_same_bits(tmp_path: Path) -> None:
    model = tiny("gpt2")
    ids = torch.arange(8)[None]
    model(ids).logits.sum().backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    with assay.capture(model, tmp_path / "run", level="operator"):
        loss = model(ids).logits.sum()
        loss.backward()
    assert all(same_bits(p.grad, expected[name]) for name, p in model.named_parameters())
    assert not any("backward" in c.name for c in recorded_calls(tmp_path / "run"))


class Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_modes_of_the_program_stay_where_they_were(tmp_path: Path) -> None:
    def program(m: Program, x: torch.Tensor) -> Any:
        with inner:
            y = x * 2
        return y + 1

    inner, outer = Counting(), Counting()
    model = Program(program)
    with torch.no_grad(), outer:
        calls = capture_calls(tmp_path / "run", model, torch.ones(2))
        assert torch._C._len_torch_dispatch_stack() == 1
    assert [c.name for c in calls] == ["aten.mul.Tensor", "aten.add.Tensor"]
    assert inner.names == ["aten.mul.Tensor"] and outer.names[-2:] == ["aten.mul.Tensor", "aten.add.Tensor"]


def test_a_mode_that_the_model_forgets_stays_and_ours_goes(tmp_path: Path) -> None:
    forgotten = Counting()

    def program(m: Program, x: torch.Tensor) -> Any:
        forgotten.__enter__()
        return x * 2

    with torch.no_grad(), assay.capture(model := Program(program), tmp_path / "run", level="operator"):
        model(torch.ones(2))
        assert torch._C._len_torch_dispatch_stack() == 1
        torch.ones(2) + 1
        forgotten.__exit__(None, None, None)
    assert forgotten.names == ["aten.mul.Tensor", "aten.ones.default", "aten.add.Tensor"]
    assert len(recorded_calls(tmp_path / "run")) == 1


@pytest.mark.parametrize("where", ["operator", "module", "mode"])
def test_exceptions_pass_and_leave_nothing_behind(tmp_path: Path, where: str) -> None:
    def program(m: Program, x: torch.Tensor) -> Any:
        if not fails:
            return x + 1
        if where == "operator":
            return torch.mm(x, torch.ones(7, 7))
        with Counting() if where == "mode" else torch.no_grad():
            x = x * 2
            raise ValueError("no")

    fails = True
    model = Program(program)
    with torch.no_grad(), assay.capture(model, tmp_path / "run", level="operator"):
        with pytest.raises(RuntimeError if where == "operator" else ValueError):
            model(torch.ones(3, 3))
        assert torch._C._len_torch_dispatch_stack() == 0
        fails = False
        model(torch.ones(3, 3))
    if where == "operator":
        last = recorded_calls(tmp_path / "run", 0)[-1]
        assert last.name == "aten.mm.default" and last.outputs[0][1]["reason"] == "the call raised"
        assert [slot for slot, _ in last.inputs] == ["self", "mat2"]
    assert [c.name for c in recorded_calls(tmp_path / "run", 1)] == ["aten.add.Tensor"]


def test_a_nested_root_call_and_two_captures(tmp_path: Path) -> None:
    def program(m: Program, x: torch.Tensor) -> Any:
        return x + 1 if depth.pop() else model(x * 2) * 3

    depth = [True, False, True, False]
    model = Program(program)
    with torch.no_grad(), assay.capture(model, tmp_path / "one", level="operator"):
        with assay.capture(model, tmp_path / "two", level="operator"):
            model(torch.ones(2))
        model(torch.ones(2))
    expected = [("aten.mul.Tensor", 0, 0), ("aten.add.Tensor", 1, 0), ("aten.mul.Tensor", 0, 1)]
    for run, steps in (("one", 2), ("two", 1)):
        for step in range(steps):
            calls = recorded_calls(tmp_path / run, step)
            assert [(c.name, c.call, c.index) for c in calls] == expected
    assert torch._C._len_torch_dispatch_stack() == 0


def test_modules_that_need_ordinary_hooks_and_lazy_parameters(tmp_path: Path) -> None:
    class OwnCall(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lazy = nn.LazyLinear(2)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return super().__call__(*args, **kwargs)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lazy(x) + 1

    model = OwnCall()
    with torch.no_grad(), assay.capture(model, tmp_path / "run", level="operator"):
        model(torch.ones(1, 3))
        model(torch.ones(1, 3))
        assert torch._C._len_torch_dispatch_stack() == 0
    second = recorded_calls(tmp_path / "run", 1)
    assert [(c.name, c.module) for c in second] == [
        ("aten.t.default", "lazy"),
        ("aten.addmm.default", "lazy"),
        ("aten.add.Tensor", ""),
    ]


def test_operators_with_functions_among_their_arguments_pass(tmp_path: Path) -> None:
    def program(m: Program, x: torch.Tensor) -> Any:
        return torch.ops.higher_order.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))

    model = Program(program)
    x = torch.ones(2)
    with torch.no_grad(), assay.capture(model, tmp_path / "run", level="operator"):
        assert torch.equal(model(x), x + 1)
    calls = recorded_calls(tmp_path / "run")
    assert [c.name for c in calls] == ["aten.sum.default", "aten.gt.Scalar", "cond"]
    assert calls[2].args["1"] == {"other": "function"} and calls[2].inputs[1][0] == "3.0"


def test_threads_of_a_model_are_captured_where_modules_run(tmp_path: Path) -> None:
    import threading

    class Threads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            results: list[Any] = [None, None]

            def work(i: int) -> None:
                with torch.no_grad():
                    results[i] = self.parts[i](x)

            threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return results[0] + results[1]

    model = Threads()
    x = torch.randn(2, 3)
    with torch.no_grad():
        expected = model(x)
        with assay.capture(model, tmp_path / "run", level="operator"):
            assert same_bits(model(x), expected)
    operators = [r for r in records_of(tmp_path / "run") if r.get("kind") == "operator"]
    assert sorted((r["module"], r["type"]) for r in operators) == [
        ("", "aten.add.Tensor"),
        ("parts.0", "aten.addmm.default"),
        ("parts.0", "aten.t.default"),
        ("parts.1", "aten.addmm.default"),
        ("parts.1", "aten.t.default"),
    ]


def test_steps_that_are_not_wanted_run_without_the_mode(tmp_path: Path) -> None:
    sizes: list[int] = []

    def program(m: Program, x: torch.Tensor) -> Any:
        sizes.append(torch._C._len_torch_dispatch_stack())
        return x + 1

    model = Program(program)
    with torch.no_grad(), assay.capture(model, tmp_path / "run", level="operator", steps=[1]):
        for _ in range(3):
            model(torch.ones(2))
    assert sizes == [0, 1, 0]
    assert {r["step"] for r in records_of(tmp_path / "run")} == {1}


def test_tracers_are_not_disturbed(tmp_path: Path) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    def function(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    def program(m: Program, x: torch.Tensor) -> Any:
        with FakeTensorMode():
            shape = (torch.ones(3) @ torch.ones(3, 2)).shape
        traced = make_fx(function)(x)
        assert len(traced.graph.nodes) == 4
        return traced(x) + shape[0]

    model = Program(program)
    x = torch.randn(3)
    with torch.no_grad():
        calls = capture_calls(tmp_path / "run", model, x)
        assert [c.name for c in calls] == ["aten.sin.default", "aten.add.Tensor", "aten.add.Tensor"]
        inner = Program(lambda m, x: function(x))
        with assay.capture(inner, tmp_path / "traced", level="operator"):
            assert same_bits(torch.jit.trace(inner, x)(x), function(x))
            assert same_bits(torch.export.export(inner, (x,)).module()(x), function(x))
    skipped = [r for r in records_of(tmp_path / "traced") if r.get("kind", "tensor") == "tensor"]
    assert all("vid" in r for r in skipped)


def test_function_transforms_compute_the_same(tmp_path: Path) -> None:
    from torch.func import grad, vmap

    def program(m: Program, x: torch.Tensor) -> Any:
        return vmap(lambda row: (row * row).sum())(x), grad(lambda y: (y * y).sum())(x)

    x = torch.randn(2, 3)
    with torch.no_grad():
        model = Program(program)
        with assay.capture(model, tmp_path / "run", level="operator"):
            rows, slope = model(x)
    assert torch.allclose(rows, (x * x).sum(1)) and same_bits(slope, 2 * x)


@pytest.mark.slow
def test_compiled_parts_run_compiled_and_are_left_out(tmp_path: Path) -> None:
    import torch._dynamo

    @torch.compile
    def fused(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ x) * 2 + 1

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.compile(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
            self.own = nn.Linear(3, 3)
            self.own.compile()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return fused(x) + self.inner(x) + self.own(x)

    torch.manual_seed(0)
    model = Mixed()
    x = torch.randn(3, 3)
    frames = torch._dynamo.utils.counters["frames"]
    with torch.no_grad():
        torch._dynamo.reset()
        frames.clear()
        expected = model(x)
        compiled = frames["ok"]
        torch._dynamo.reset()
        frames.clear()
        for name in ("cold", "warm"):
            with assay.capture(model, tmp_path / name, level="operator"):
                assert same_bits(model(x), expected)
            calls = recorded_calls(tmp_path / name)
            assert [c.name for c in calls] == ["aten.add.Tensor", "aten.add.Tensor"]
        assert frames["ok"] == compiled > 1  # and nothing was compiled anew
    assert torch._C._len_torch_dispatch_stack() == 0


def test_a_compiled_write_to_an_inference_tensor_makes_a_new_value(tmp_path: Path) -> None:
    class Hidden(nn.Module):  # what torch.compile leaves: a callable that nobody looks into
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.numpy()[:] = 5
            return x

    hidden = Hidden()
    hidden._compiled_call_impl = hidden._call_impl
    model = nn.Sequential()
    model.append(hidden)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = hidden

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x + 1
            self.hidden(y)
            return y * 2

    with torch.inference_mode():
        add, mul = capture_calls(tmp_path / "run", Outer(), torch.ones(2))
    assert mul.inputs[0][1]["vid"] != add.outputs[0][1]["vid"]
    assert torch.equal(tensor_of(tmp_path / "run", mul.inputs[0][1]), torch.full((2,), 5.0))


@pytest.mark.parametrize("option", ["digest", "verify"])
def test_digests_and_distrust_work_at_operator_level(tmp_path: Path, option: str) -> None:
    def program(m: Program, x: torch.Tensor) -> Any:
        y = x + 1
        y.numpy()[0] = 9  # nobody counts this write
        return y * 2

    with torch.no_grad():
        add, *_, mul = capture_calls(tmp_path / "run", Program(program), torch.ones(2), **{option: True})
    assert all("digest" in r for c in (add, mul) for _, r in c.inputs + c.outputs)
    # what was written is another value, which no operator made
    (_, made), (_, given) = add.outputs[0], mul.inputs[0]
    assert given["vid"] != made["vid"] and given["storage"] == made["storage"]
    assert "from" not in given
    assert tensor_of(tmp_path / "run", given).tolist() == [9, 2]


def stored_bytes(run: Path, step: int) -> int:
    return sum(r["bytes"] for r in records_of(run) if r["step"] == step and "file" in r and "same_as" not in r)


@pytest.mark.parametrize("mode", ["no_grad", "grad", "inference_mode"])
def test_views_of_what_is_stored_are_stored_as_their_place(tmp_path: Path, mode: str) -> None:
    # given transposes and slices of a weight, of a result of an operator, and of what is written to in between
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            product = y @ self.weight.t()
            left, right = product[:, :3], product[:, 3:]
            turned = y.view(4, 2, 4).transpose(0, 1)[:, 1:, ::2]
            z = y.clone()
            before = z.t() + 1
            z.mul_(3)
            return left.sum() + right.sum() + turned.sum() + before.sum() + (z.t() + 1).sum() + y[1].sum()

    torch.manual_seed(1)
    model, inputs = Views(), [torch.randn(4, 8) for _ in range(2)]
    with getattr(torch, mode)() if mode != "grad" else torch.enable_grad():
        for name, verify in (("run", False), ("copies", True)):
            with assay.capture(model, tmp_path / name, level="operator", verify=verify):
                for x in inputs:
                    model(x)
    # then every record reads as the copy that a capture without identities stored
    run, copies = assay.open(tmp_path / "run"), assay.open(tmp_path / "copies")
    assert run.verify() == () and not run.warnings
    assert len(run.records) == len(copies.records)
    for one, copy in zip(run.records, copies.records):
        assert (one.name, one.shape, one.strides) == (copy.name, copy.shape, copy.strides)
        if one.value is None:
            assert same_bits(one.torch(), copy.torch()), one.name
    assert assay.compare(tmp_path / "copies", tmp_path / "run").verdict.startswith("same: ")
    # and places stand where a copy stood
    records = records_of(tmp_path / "run")
    views = {(r["step"], r["type"], r.get("version", 0)) for r in records if "view" in r}
    assert not any("view" in r for r in records_of(tmp_path / "copies"))
    for step in (0, 1):
        named = {(kind, version) for at, kind, version in views if at == step}
        assert named >= {
            ("aten.t.default", 0),
            ("aten.slice.Tensor", 0),
            ("aten.transpose.int", 0),
            ("aten.t.default", 1),
        }
        assert {r["view"]["of"] < r["n"] for r in records if "view" in r} == {True}
    # Of the second step: x, y and the clone of 32 floats each, the written clone, both sums of 32 with 1, the product
    # of 4 x 6, six sums and five additions of one float.
    places = (6 * 32 + 24) * 4
    assert places <= stored_bytes(tmp_path / "run", 1) <= places + 4 * 32


def test_what_the_host_writes_between_steps_is_read_again(tmp_path: Path) -> None:
    # given a cache that a step reads as the one before left it, and writes between steps, two of which nobody counts
    class Growing(nn.Module):
        cache: Any = None

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            self.cache = batch * 1 if self.cache is None else torch.cat([self.cache, batch])
            return self.cache * 2

    model = Growing()
    batch = torch.zeros(2, 3)
    at_start, results = [], []
    with torch.no_grad(), assay.capture(model, tmp_path / "run", level="operator"):
        for step in range(5):
            batch.numpy()[:] = step + 1
            if step == 3:
                model.cache.add_(10)
            if step == 4:
                model.cache.data[0] = -5
            at_start.append(None if model.cache is None else model.cache.clone())
            results.append((model(batch).clone(), model.cache.clone()))
    # then every record has the bytes of its moment
    run = assay.open(tmp_path / "run")
    assert run.verify() == ()
    for step in range(1, 5):
        read = {r.slot: r for r in run.records if r.step == step and r.op_type == "aten.cat.default"}
        assert torch.equal(read["tensors.0"].torch(), at_start[step])
        assert torch.equal(read["tensors.1"].torch(), torch.full((2, 3), step + 1.0))
        assert torch.equal(read[""].torch(), results[step][1])


@pytest.mark.parametrize("level", ["module", "operator"])
@pytest.mark.parametrize("data", ["full", "stats"])
def test_later_steps_are_told_by_the_lines_they_are_like(tmp_path: Path, level: str, data: str) -> None:
    # given a model whose third step is another than the first two, and captures that begin with each step
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, flag: bool = True) -> torch.Tensor:
            return torch.relu(self.linear(x)) + self.linear(x)[:, :1]

    torch.manual_seed(3)
    model = nn.Sequential(Layer(), Layer())
    inputs = [torch.randn(2, 4), torch.randn(2, 4), torch.randn(3, 4), torch.randn(3, 4)]
    for first in range(4):
        with torch.no_grad(), assay.capture(model, tmp_path / f"from{first}", level=level, data=data, digest=True) as _:
            for x in inputs[first:]:
                model(x)
    lines = [json.loads(line) for line in (tmp_path / "from0" / "rank0" / "records.jsonl").read_text().splitlines()]
    tensors = [line for line in lines if "value" not in line and line.get("kind") != "value"]
    refer = [sum("like" in line for line in tensors if line["step"] == step) for step in range(4)]
    count = sum(line["step"] == 1 for line in tensors)
    # then all lines of the second and the fourth step refer to the step before, and of the third those of weights and
    # operators, which have no sizes of the batch
    assert refer[0] == 0 and refer[1] == refer[3] == count and refer[2] < count
    assert {line["like"] for line in tensors if line["step"] == 1} <= {line["n"] for line in lines if line["step"] == 0}
    # and they say what a capture says that has only their step
    said = ("node", "type", "call", "order", "role", "slot", "kind", "dtype", "shape", "strides", "args", "leaf")
    whole = assay.open(tmp_path / "from0")
    assert not whole.warnings and whole.verify() == ()
    for step in range(4):
        alone = [r for r in records_of(tmp_path / f"from{step}") if r["step"] == 0]
        among = [r for r in records_of(tmp_path / "from0") if r["step"] == step]
        assert len(alone) == len(among)
        for one, other in zip(alone, among):
            assert {k: one[k] for k in (*said, "stats", "digest") if k in one} == {
                k: other[k] for k in (*said, "stats", "digest") if k in other
            }
        single = assay.open(tmp_path / f"from{step}")
        ours = [r for r in whole.records if r.step == step]
        theirs = [r for r in single.records if r.step == 0]
        assert len(ours) == len(theirs) > 0
        for r, t in zip(ours, theirs):
            assert (r.name, r.op_type, r.call, r.shape, r.strides) == (
                t.name, t.op_type, t.call, t.shape, t.strides,
            )  # fmt: skip
            assert r.stats == t.stats
            if data == "full" and r.value is None:
                assert same_bits(r.torch(), t.torch())


def device_capture(model: Any, path: Path, device: bool, **more: Any) -> Any:
    """A capture that treats the host's tensors as an accelerator's when `device` says so."""
    from assay.torch.capture import Capture

    options: dict[str, Any] = {
        "steps": None,
        "data": "full",
        "level": "operator",
        "include": None,
        "exclude": None,
        "inputs": True,
        "outputs": True,
        "weights": False,
        "caches": False,
        "digest": False,
        "queue_bytes": 8 << 20,
        "on_full": "wait",
        "disk_limit": None,
        "verify": False,
        **more,
    }
    return Capture(model, path, _force_device=device, **options)


def written(m: Program, x: torch.Tensor) -> torch.Tensor:
    """Writes of all kinds: whole, in part, by a mask, through a view, and twice."""
    zeros = torch.zeros(4, 3)
    zeros[1:3] = x[:2]
    zeros.scatter_(1, torch.tensor([[2]]), 7.0)
    zeros.index_put_((torch.tensor([0, 3]),), x[2])
    view = zeros.t()
    view.mul_(2.0)
    zeros.masked_fill_(zeros > 5, -1.0)
    norm = zeros / 3
    norm /= norm.abs().sum(-1, keepdim=True)
    return norm + zeros.t().contiguous().t()


PROGRAMS = {
    "products and views": lambda m, x: ((x + 1).t() @ m.weight).topk(2)[0],
    "writes": written,
}


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_device_tensors_take_the_device_path_with_their_edges(tmp_path: Path, program: str, guard: Any) -> None:
    model = Program(PROGRAMS[program])
    x = torch.randn(3, 3)

    def run(path: Path, device: bool) -> list[Call]:
        with guard(), device_capture(model, path, device):
            model(x)
        return recorded_calls(path)

    on_device, plain = run(tmp_path / "device", True), run(tmp_path / "plain", False)
    assert [(c.name, c.args) for c in on_device] == [(c.name, c.args) for c in plain]
    makers = [{r["n"]: i for i, c in enumerate(calls) for _, r in c.outputs} for calls in (on_device, plain)]
    for left, right in zip(on_device, plain):
        for (slot, a), (other, b) in zip(left.inputs + left.outputs, right.inputs + right.outputs):
            assert slot == other and a["vid"] == b["vid"] and a.get("leaf") == b.get("leaf")
            assert a["version"] == b["version"] if "version" in b else "version" not in a
            assert same_bits(tensor_of(tmp_path / "device", a), tensor_of(tmp_path / "plain", b)), left.name
            assert makers[0].get(a.get("from")) == makers[1].get(b.get("from"))


@pytest.mark.parametrize("data", ["full", "stats"])
def test_a_device_s_weights_are_fetched_once(tmp_path: Path, data: str) -> None:
    # given a model that reads its weight of 400 x 400 floats in three steps, as it is and transposed
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(400, 400))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight + x @ self.weight.t()

    model = Twice()
    sent: list[int] = []
    with torch.no_grad(), device_capture(model, tmp_path / "run", True, weights=True, data=data) as capture:
        send = capture._device.send
        capture._device.send = lambda tensor: (sent.append(tensor.numel()), send(tensor))[1]
        for _ in range(3):
            model(torch.randn(2, 400))
    # then its bytes had come with its record, and everything else refers to that
    assert sent.count(160_000) == 0
    run = assay.open(tmp_path / "run")
    assert run.verify() == ()
    read = [r for r in run.records if r.role == "input" and r.shape == (400, 400)]
    assert len(read) >= 9
    weight = model.weight.detach()
    assert all(abs(r.stats.l2_norm - float(weight.double().norm())) < 1e-6 for r in read)
    if data == "full":
        for r in read:
            assert torch.equal(r.torch(), weight if r.torch()[0, 1] == weight[0, 1] else weight.t())


def test_a_forked_child_computes_without_the_parents_capture(tmp_path: Path) -> None:
    import os

    def program(m: Program, x: torch.Tensor) -> Any:
        y = x + 1
        pid = os.fork()
        if pid == 0:
            os._exit(0 if torch.equal(y * 2, torch.full((2,), 4.0)) else 1)
        status.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        return y * 3

    status: list[int] = []
    with torch.no_grad():
        calls = capture_calls(tmp_path / "run", Program(program), torch.ones(2))
    assert status == [0] and [c.name for c in calls] == ["aten.add.Tensor", "aten.mul.Tensor"]


def test_a_killed_process_leaves_a_run_that_opens(tmp_path: Path) -> None:
    import subprocess
    import sys

    program = f"""
import os, signal, torch, assay
from torch import nn
class Killed(nn.Module):
    def forward(self, x):
        for i in range(2000):
            x = (x * 1.001).sin()
            if i == 1500:
                handle.flush()
        os.kill(os.getpid(), signal.SIGKILL)
model = Killed()
with torch.no_grad():
    handle = assay.capture(model, {str(tmp_path / "run")!r}, level="operator")
    model(torch.ones(1000))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == -9, done.stderr
    calls = recorded_calls(tmp_path / "run")
    assert len(calls) >= 3000
    assert calls[100].inputs[0][1]["from"] == calls[99].outputs[0][1]["n"]
    assert torch.equal(tensor_of(tmp_path / "run", calls[1].outputs[0][1]), (torch.ones(1000) * 1.001).sin())
    run = assay.open(tmp_path / "run")
    assert len(run.records) > 3000


def test_memory_does_not_grow_with_the_values_seen(tmp_path: Path) -> None:
    import gc
    import weakref

    alive: list[Any] = []

    def program(m: Program, x: torch.Tensor) -> Any:
        for _ in range(50):
            x = x + 1
            alive.append(weakref.ref(x))
        return x.sum()

    with torch.no_grad(), assay.capture(model := Program(program), tmp_path / "run", level="operator", data="stats"):
        model(torch.ones(10))
        gc.collect()
        assert not any(reference() is not None for reference in alive)


@pytest.mark.parametrize("level", ["operators", "", None])
def test_unknown_levels_are_refused(tmp_path: Path, level: Any) -> None:
    with pytest.raises(assay.FormatError, match="level must be one of module, operator"):
        assay.capture(nn.Linear(1, 1), tmp_path / "run", level=level)


@pytest.mark.parametrize("device", [False, True])
def test_digests_without_data_are_those_of_the_data(tmp_path: Path, device: bool) -> None:
    # Transposed views and values seen before share the record of the first: not its digest, unless the bytes agree.
    class Products(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x @ x.t() + x @ x).relu() @ x.t()

    x = torch.arange(16.0).reshape(4, 4)
    for data in ("none", "stats", "full"):
        model, folder = Products(), tmp_path / data
        with device_capture(model, folder, device, level="operator", data=data, digest=True):
            model(x)
    runs = {data: list(assay.open(str(tmp_path / data)).records) for data in ("none", "stats", "full")}
    expected = [assay.digest(record.numpy()) for record in runs["full"]]
    assert len(expected) > 10 and len(set(expected)) > 4
    for records in runs.values():
        assert [record.digest for record in records] == expected
