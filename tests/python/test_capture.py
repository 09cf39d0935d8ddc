# SPDX-License-Identifier: Apache-2.0
"""assay.capture on small models: what is recorded, that it is right, and that the model does not notice.

The oracle for values is torch itself: clones taken by ordinary forward hooks, statistics by fp64 reductions. The
oracle for files is the safetensors package and Python's json.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import inspect
import io
import json
import math
import os
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Optional

import numpy as np
import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors")
assay_capture = pytest.importorskip("assay.torch.capture")

from bench import record_lines  # noqa: E402
from safetensors import safe_open  # noqa: E402
from torch import nn  # noqa: E402

import assay  # noqa: E402

Record = dict[str, Any]


def records_of(run: Path, rank: str = "rank0") -> list[Record]:
    return record_lines.read(run / rank / "records.jsonl")


def manifest_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "manifest.json").read_text())


def tensor_of(run: Path, record: Record, rank: str = "rank0") -> torch.Tensor:
    """The payload of a record, by offset alone."""
    with open(run / rank / record["file"], "rb") as file:
        file.seek(record["offset"])
        data = bytearray(file.read(record["bytes"]))
    dtype = getattr(torch, record["dtype"])
    if not data:
        return torch.empty(record["shape"], dtype=dtype)
    return torch.frombuffer(data, dtype=dtype).reshape(record["shape"])


def select(records: list[Record], **wanted: Any) -> list[Record]:
    defaults = {"call": 0, "kind": "tensor"}
    return [r for r in records if all(r.get(k, defaults.get(k)) == v for k, v in wanted.items())]


def only(records: list[Record], **wanted: Any) -> Record:
    found = select(records, **wanted)
    assert len(found) == 1, f"{wanted}: {len(found)} records"
    return found[0]


def assert_same_bits(left: torch.Tensor, right: torch.Tensor) -> None:
    assert left.dtype == right.dtype and left.shape == right.shape
    left, right = left.detach().contiguous().reshape(-1), right.detach().contiguous().reshape(-1)
    assert torch.equal(left.view(torch.uint8), right.view(torch.uint8))


def check_files(run: Path, rank: str = "rank0") -> None:
    """Every step file opens with the safetensors package and holds each first copy under its name."""
    for path in sorted((run / rank).glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            names = set(file.keys())
            for record in records_of(run, rank):
                if record.get("file") == path.name and "same_as" not in record and record.get("kind") is None:
                    name = f"{record['n']}:{record['node']}.{record['role']}.{record['slot']}"
                    assert name in names
                    if record["dtype"] in ("float32", "bfloat16", "int64", "bool", "float16", "float64"):
                        assert_same_bits(file.get_tensor(name), tensor_of(run, record, rank))


class Mlp(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.act = nn.ReLU()
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.act(self.up(x)))


def tiny_llama(dtype: torch.dtype = torch.float32) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=128
    )
    return transformers.LlamaForCausalLM(config).eval().to(dtype)


def run_model(model: nn.Module, run: Path, x: Any, **options: Any) -> list[Record]:
    with assay.capture(model, run, **options):
        model(x)
    return records_of(run)


# --- what is recorded -------------------------------------------------------------------------------------------


def test_every_output_equals_what_torch_hooks_saw(tmp_path: Path) -> None:
    model = tiny_llama()
    ids = torch.arange(7).reshape(1, 7)
    seen: dict[str, torch.Tensor] = {}
    hooks = []
    for name, module in model.named_modules():

        def hook(_: nn.Module, __: Any, output: Any, name: str = name) -> None:
            if isinstance(output, torch.Tensor):
                seen[name] = output.clone()

        hooks.append(module.register_forward_hook(hook))
    with torch.no_grad():
        model(ids)
        for handle in hooks:
            handle.remove()
        records = run_model(model, tmp_path / "run", ids)
    outputs = {r["node"]: r for r in select(records, role="output", slot="")}
    assert len(seen) > 20 and set(seen) <= set(outputs)
    for name, expected in seen.items():
        assert_same_bits(tensor_of(tmp_path / "run", outputs[name]), expected)
    check_files(tmp_path / "run")


def test_statistics_equal_fp64_reductions(tmp_path: Path) -> None:
    model = nn.Identity()
    x = torch.randn(1000)
    x[3], x[5], x[7] = math.nan, math.inf, -math.inf
    stats = only(run_model(model, tmp_path / "run", x, data="stats"), role="output")["stats"]
    finite = x[torch.isfinite(x)].double()
    assert (stats["count"], stats["nan"], stats["pos_inf"], stats["neg_inf"]) == (1000, 1, 1, 1)
    assert stats["min"] == finite.min().item() and stats["max"] == finite.max().item()
    assert stats["mean"] == pytest.approx(finite.mean().item(), rel=1e-12)
    assert stats["l2"] == pytest.approx(finite.norm().item(), rel=1e-12)


def test_statistics_of_nothing_but_nan_are_texts(tmp_path: Path) -> None:
    stats = only(run_model(nn.Identity(), tmp_path / "run", torch.tensor([math.nan]), data="stats"), role="output")
    assert stats["stats"]["min"] == "NaN" and stats["stats"]["mean"] == "NaN"


def test_statistics_do_not_depend_on_how_the_host_treats_subnormal_numbers(tmp_path: Path) -> None:
    subnormal = np.float32(1e-40)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor flushes no subnormal numbers")
    try:
        x = torch.from_numpy(np.full(4, subnormal))
        record = only(run_model(nn.Identity(), tmp_path / "run", x), role="output")
    finally:
        torch.set_flush_denormal(False)
    assert tensor_of(tmp_path / "run", record).tolist() == [float(subnormal)] * 4
    assert record["stats"]["max"] == float(subnormal)


def test_statistics_only_makes_no_step_file(tmp_path: Path) -> None:
    records = run_model(Mlp(), tmp_path / "run", torch.ones(2, 8), data="stats")
    assert not list((tmp_path / "run").rglob("*.safetensors"))
    assert all("file" not in r and "stats" in r for r in records)


def test_metadata_only(tmp_path: Path) -> None:
    records = run_model(Mlp(), tmp_path / "run", torch.ones(2, 8), data="none")
    assert all("stats" not in r and "file" not in r for r in records)
    assert only(records, node="up", role="output")["shape"] == [2, 16]


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
     torch.uint8, torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced", "expanded", "scalar", "empty"])
def test_payload_of_every_dtype_and_layout(tmp_path: Path, dtype: torch.dtype, layout: str) -> None:
    base = torch.randint(0, 2, (6, 10)).to(dtype)
    x = {
        "contiguous": base,
        "transposed": base.t(),
        "sliced": base[1:5, 2:9:2],
        "expanded": base[:1].expand(4, 10),
        "scalar": base[0, 0],
        "empty": base[:0],
    }[layout]
    record = only(run_model(nn.Identity(), tmp_path / "run", x), role="input")
    assert record["dtype"] == str(dtype).replace("torch.", "")
    assert record["shape"] == list(x.shape) and record["strides"] == list(x.stride())
    assert record["offset"] % 64 == 0
    assert_same_bits(tensor_of(tmp_path / "run", record), x)
    check_files(tmp_path / "run")


def test_lazy_conjugate_and_negative_bits_are_applied(tmp_path: Path) -> None:
    x = torch.randn(5, dtype=torch.complex64)
    records = run_model(nn.Identity(), tmp_path / "run", [x.conj(), x.conj().imag])
    assert_same_bits(tensor_of(tmp_path / "run", only(records, role="input", slot="0.0")), x.conj().resolve_conj())
    assert_same_bits(tensor_of(tmp_path / "run", only(records, role="input", slot="0.1")), x.conj().imag.resolve_neg())


Pair = collections.namedtuple("Pair", ["left", "right"])


@dataclasses.dataclass
class Result:
    logits: torch.Tensor
    hidden: list[torch.Tensor]
    note: str


class Structured(nn.Module):
    def forward(self, x: torch.Tensor, mask: Any = None, *, scale: float = 1.0, nested: Any = None) -> Result:
        return Result(logits=x + 1, hidden=[x, x * 2], note="done")


def test_structures_become_slots(tmp_path: Path) -> None:
    x = torch.ones(2)
    with assay.capture(Structured(), tmp_path / "run") as handle:
        handle._plans[0].module(x, Pair(x + 3, None), scale=0.5, nested={"a": {"b": (x * 4,)}, 7: x})
    records = records_of(tmp_path / "run")
    inputs = {r["slot"]: r for r in select(records, role="input")}
    assert list(inputs) == ["0", "1.0", "1.1", "kwargs.scale", "kwargs.nested.a.b.0", "kwargs.nested.7"]
    assert inputs["1.1"]["value"] is None and inputs["kwargs.scale"]["value"] == 0.5
    assert_same_bits(tensor_of(tmp_path / "run", inputs["kwargs.nested.a.b.0"]), x * 4)
    outputs = [r["slot"] for r in records if r["role"] == "output"]
    assert outputs == ["logits", "hidden.0", "hidden.1", "note"]
    assert only(records, slot="note", kind="value")["value"] == "done"


def test_recursive_and_deep_values_end(tmp_path: Path) -> None:
    loop: list[Any] = [torch.ones(1)]
    loop.append(loop)
    deep: Any = torch.ones(1)
    for _ in range(20):
        deep = [deep]
    records = run_model(nn.Identity(), tmp_path / "run", [loop, deep])
    assert [r["slot"] for r in select(records, role="input")] == ["0.0.0"]


def test_model_output_and_cache_contents(tmp_path: Path) -> None:
    model = tiny_llama()
    ids = torch.arange(5).reshape(1, 5)
    with torch.no_grad():
        with assay.capture(model, tmp_path / "plain"):
            model(ids)
        with assay.capture(model, tmp_path / "caches", caches=True, include="", exclude="*.*"):
            output = model(ids)
    assert not [r for r in records_of(tmp_path / "plain") if "layers." in r["slot"]]
    records = records_of(tmp_path / "caches")
    keys = only(records, node="", role="output", slot="past_key_values.layers.1.keys")
    assert_same_bits(tensor_of(tmp_path / "caches", keys), output.past_key_values.layers[1].keys)
    assert only(records, node="", role="output", slot="logits")["shape"] == [1, 5, 128]


def test_inputs_are_those_before_the_call(tmp_path: Path) -> None:
    class InPlace(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.add_(1)

    records = run_model(InPlace(), tmp_path / "run", torch.zeros(3))
    assert tensor_of(tmp_path / "run", only(records, role="input")).tolist() == [0, 0, 0]
    assert tensor_of(tmp_path / "run", only(records, role="output")).tolist() == [1, 1, 1]


def test_order_and_call_counts(tmp_path: Path) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.f(self.f(x))

    records = run_model(Twice(), tmp_path / "run", torch.ones(1, 4))
    assert [(r["node"], r.get("call", 0), r["order"], r["role"]) for r in records] == [
        ("", 0, 0, "input"), ("f", 0, 1, "input"), ("f", 0, 1, "output"),
        ("f", 1, 2, "input"), ("f", 1, 2, "output"), ("", 0, 0, "output"),
    ]  # fmt: skip


def test_shared_module_is_one_node_with_aliases(tmp_path: Path) -> None:
    shared = nn.Linear(4, 4)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    records = run_model(model, tmp_path / "run", torch.ones(1, 4))
    assert {r["node"] for r in records} == {"", "0", "1"}
    assert {r.get("call", 0) for r in select(records, node="0")} | {1} == {0, 1}
    tree = json.loads((tmp_path / "run/rank0/topology.json").read_text())
    assert tree["children"][0]["aliases"] == ["2"] and len(tree["children"]) == 2
    assert tree["children"][0]["parameters"][0] == {"name": "weight", "dtype": "float32", "shape": [4, 4]}


def test_several_models_share_the_step_count(tmp_path: Path) -> None:
    encoder, decoder = Mlp(), Mlp()
    with assay.capture({"encoder": encoder, "decoder": decoder}, tmp_path / "run"):
        decoder(encoder(torch.ones(1, 8)))
    records = records_of(tmp_path / "run")
    assert {r["node"] for r in records if r["step"] == 0} == {"encoder", "encoder/up", "encoder/act", "encoder/down"}
    assert {r["node"] for r in records if r["step"] == 1} == {"decoder", "decoder/up", "decoder/act", "decoder/down"}


def test_weights_are_recorded_once(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    with assay.capture(model, tmp_path / "run", weights=True):
        model(torch.ones(1, 4))
        model(torch.ones(1, 4))
    weights = select(records_of(tmp_path / "run"), step=-1)
    assert [(r["node"], r["role"], r["slot"]) for r in weights] == [
        ("0", "weight", "weight"), ("0", "weight", "bias"), ("1", "weight", "weight"), ("1", "weight", "bias"),
        ("1", "buffer", "running_mean"), ("1", "buffer", "running_var"), ("1", "buffer", "num_batches_tracked"),
    ]  # fmt: skip
    assert {r["file"] for r in weights} == {"weights.safetensors"}
    assert_same_bits(tensor_of(tmp_path / "run", weights[0]), model[0].weight)
    check_files(tmp_path / "run")


def test_tied_weights_are_stored_once(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    with assay.capture(model, tmp_path / "run", weights=True):
        pass
    first, second = records_of(tmp_path / "run")
    assert second["same_as"] == first["n"] and second["offset"] == first["offset"]


# --- selection --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps, expected",
    [(None, [0, 1, 2, 3]), (2, [2]), ([0, 3], [0, 3]), (range(1, 3), [1, 2]), (lambda step: step % 2 == 1, [1, 3])],
    ids=["all", "int", "list", "range", "predicate"],
)
def test_steps(tmp_path: Path, steps: Any, expected: list[int]) -> None:
    model = Mlp()
    with assay.capture(model, tmp_path / "run", steps=steps) as handle:
        for _ in range(4):
            model(torch.ones(1, 8))
    assert sorted({r["step"] for r in records_of(tmp_path / "run")}) == expected
    assert handle.stats["steps"] == 4
    manifest = manifest_of(tmp_path / "run")
    assert [s["step"] for s in manifest["steps"]] == expected
    assert all(s["tensors"] == 8 for s in manifest["steps"])


def test_a_failing_predicate_ends_the_capture_not_the_run(tmp_path: Path, capsys: Any) -> None:
    def predicate(step: int) -> bool:
        raise ValueError("mine")

    model, caught = Mlp(), []
    old, sys.unraisablehook = sys.unraisablehook, caught.append
    try:
        with assay.capture(model, tmp_path / "run", steps=predicate):
            model(torch.ones(1, 8))
            model(torch.ones(1, 8))
    finally:
        sys.unraisablehook = old
    assert len(caught) == 1
    assert manifest_of(tmp_path / "run")["sink"]["stopped"] == "the steps predicate raised"


def test_include_and_exclude(tmp_path: Path) -> None:
    model = nn.Sequential(collections.OrderedDict(a=Mlp(), b=Mlp()))
    x = torch.ones(1, 8)
    nodes = lambda run: {r["node"] for r in records_of(tmp_path / run)}  # noqa: E731
    run_model(model, tmp_path / "1", x, include="a.*")
    assert nodes("1") == {"a.up", "a.act", "a.down"}
    run_model(model, tmp_path / "2", x, include=nn.Linear, exclude="b*")
    assert nodes("2") == {"a.up", "a.down"}
    run_model(model, tmp_path / "3", x, exclude=[nn.Linear, nn.ReLU])
    assert nodes("3") == {"", "a", "b"}


def test_inputs_or_outputs_alone(tmp_path: Path) -> None:
    assert {r["role"] for r in run_model(Mlp(), tmp_path / "1", torch.ones(1, 8), inputs=False)} == {"output"}
    assert {r["role"] for r in run_model(Mlp(), tmp_path / "2", torch.ones(1, 8), outputs=False)} == {"input"}


def test_calls_before_the_root_belong_to_the_next_step(tmp_path: Path) -> None:
    model = Mlp()
    with assay.capture(model, tmp_path / "run"):
        model.up(torch.ones(1, 8))
        model(torch.ones(1, 8))
        model.up(torch.ones(1, 8))
    ups = select(records_of(tmp_path / "run"), node="up", role="input")
    assert [(r["step"], r.get("call", 0)) for r in ups] == [(0, 0), (0, 1), (1, 0)]
    check_files(tmp_path / "run")


# --- sharing ----------------------------------------------------------------------------------------------------


def test_a_consumers_input_is_stored_once(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    with torch.no_grad():
        records = run_model(model, tmp_path / "run", torch.ones(4, 8))
    produced = only(records, node="0", role="output")
    consumed = only(records, node="1", role="input")
    assert consumed["same_as"] == produced["n"] and consumed["offset"] == produced["offset"]
    assert consumed["stats"] == produced["stats"]
    assert sum("same_as" not in r for r in records) == 4


def test_reused_memory_is_not_taken_for_the_same_tensor(tmp_path: Path) -> None:
    class Churn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.probe = nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for i in range(50):
                self.probe(torch.full((64,), float(i)))  # freed at once; the next one gets its address
            return x

    with torch.no_grad():
        run_model(Churn(), tmp_path / "run", torch.zeros(1))
    inputs = [r for r in records_of(tmp_path / "run") if r["node"] == "probe" and r["role"] == "input"]
    assert [tensor_of(tmp_path / "run", r)[0].item() for r in inputs] == list(range(50))


@pytest.mark.parametrize(
    "change, shared",
    [
        (lambda x: x, True),
        (lambda x: x.detach(), True),
        (lambda x: x.view(2, 32), True),
        (lambda x: x.add_(1), False),
        (lambda x: x.view(-1)[0:1].fill_(9), False),
        (lambda x: x.data.mul_(2), False),
    ],
    ids=["same", "detach", "view", "in place", "in place through a view", "data alias looked at"],
)
def test_what_counts_as_the_same_bytes(tmp_path: Path, change: Callable[[Any], Any], shared: bool) -> None:
    class Change(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Identity(), nn.Identity()

        def forward(self, x: torch.Tensor) -> Any:
            self.first(x)
            changed = change(x)
            self.second(changed if changed.numel() == x.numel() else x)

    with torch.no_grad():
        x = torch.arange(64.0)
        run_model(Change(), tmp_path / "run", x)
    record = only(records_of(tmp_path / "run"), node="second", role="input")
    assert ("same_as" in record) == shared
    expected = x if record["shape"] == [64] else x.view(2, 32)
    assert_same_bits(tensor_of(tmp_path / "run", record), expected)


def test_verify_sees_writes_that_bump_no_version(tmp_path: Path) -> None:
    class Sneaky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Identity(), nn.Identity()

        def forward(self, x: torch.Tensor) -> None:
            self.first(x)
            x.numpy()[:] = 5
            self.second(x)

    run_model(Sneaky(), tmp_path / "run", torch.zeros(4), verify=True)
    record = only(records_of(tmp_path / "run"), node="second", role="input")
    assert tensor_of(tmp_path / "run", record).tolist() == [5, 5, 5, 5] and "digest" in record


def test_inference_mode_shares_by_content(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    with torch.inference_mode():
        records = run_model(model, tmp_path / "run", torch.ones(4, 8))
    assert only(records, node="1", role="input")["same_as"] == only(records, node="0", role="output")["n"]


def test_weights_seen_as_inputs_point_at_the_weights_file(tmp_path: Path) -> None:
    class Shows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Linear(4, 4, bias=False)
            self.probe = nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.probe(self.f.weight)

    model = Shows()
    with assay.capture(model, tmp_path / "run", weights=True):
        model(torch.ones(1))
        model(torch.ones(1))
    probes = [r for r in records_of(tmp_path / "run") if r["node"] == "probe" and r["role"] == "input"]
    assert [r["file"] for r in probes] == ["weights.safetensors"] * 2


def test_digests_are_those_of_the_bytes(tmp_path: Path) -> None:
    records = run_model(nn.Identity(), tmp_path / "run", torch.ones(4), digest=True)
    other = run_model(nn.Identity(), tmp_path / "other", torch.ones(2, 2).t(), digest=True)
    assert len(records[0]["digest"]) == 32 and records[0]["digest"] == other[0]["digest"]


# --- the host does not notice -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mode", ["no_grad", "grad", "inference_mode"])
def test_results_are_bit_identical(tmp_path: Path, dtype: torch.dtype, mode: str) -> None:
    model = tiny_llama(dtype)
    ids = torch.arange(9).reshape(1, 9)
    context = {"no_grad": torch.no_grad, "grad": torch.enable_grad, "inference_mode": torch.inference_mode}[mode]

    def run() -> tuple[torch.Tensor, list[torch.Tensor]]:
        model.zero_grad()
        with context():
            logits = model(ids).logits
        if mode == "grad":
            logits.float().square().sum().backward()
        return logits, [p.grad.clone() for p in model.parameters() if p.grad is not None]

    expected, expected_gradients = run()
    for data in ("full", "stats"):
        with assay.capture(model, tmp_path / data, data=data):
            logits, gradients = run()
        assert_same_bits(logits, expected)
        assert len(gradients) == len(expected_gradients)
        for left, right in zip(gradients, expected_gradients):
            assert_same_bits(left, right)


def test_generate_with_cache_gives_the_same_tokens(tmp_path: Path) -> None:
    model = tiny_llama()
    ids = torch.arange(6).reshape(1, 6)
    expected = model.generate(ids, max_new_tokens=4, do_sample=False)
    with assay.capture(model, tmp_path / "run", steps=[0, 2]) as handle:
        tokens = model.generate(ids, max_new_tokens=4, do_sample=False)
    assert torch.equal(tokens, expected)
    assert handle.stats["steps"] == 4
    logits = [r for r in records_of(tmp_path / "run") if r["node"] == "" and r["slot"] == "logits"]
    assert [r["step"] for r in logits] == [0, 2]
    check_files(tmp_path / "run")


def test_autocast_dtypes_are_recorded(tmp_path: Path) -> None:
    model = Mlp()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        expected = model(torch.ones(2, 8))
        records = run_model(model, tmp_path / "run", torch.ones(2, 8))
    assert only(records, node="up", role="output")["dtype"] == "bfloat16"
    assert_same_bits(tensor_of(tmp_path / "run", only(records, node="", role="output")), expected)


def test_a_raising_module_is_recorded_and_the_next_step_is_right(tmp_path: Path) -> None:
    class Raises(nn.Module):
        armed = True

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.armed:
                raise RuntimeError("mine")
            return x

    model = nn.Sequential(nn.Linear(4, 4), Raises())
    with assay.capture(model, tmp_path / "run"):
        with pytest.raises(RuntimeError, match="mine"):
            model(torch.ones(1, 4))
        model[1].armed = False
        model(torch.ones(1, 4))
    records = records_of(tmp_path / "run")
    assert only(records, step=0, node="1", role="output", kind="skipped")["reason"] == "the call raised"
    assert only(records, step=0, node="", role="output", kind="skipped")["reason"] == "the call raised"
    assert {r["node"] for r in records if r["step"] == 1 and r["role"] == "output"} == {"", "0", "1"}
    assert [s["step"] for s in manifest_of(tmp_path / "run")["steps"]] == [0, 1]


def test_removal_leaves_nothing_and_is_idempotent(tmp_path: Path) -> None:
    model = Mlp()
    before = [dict(m.__dict__) for m in model.modules()]
    handle = assay.capture(model, tmp_path / "run")
    model(torch.ones(1, 8))
    handle.remove()
    count = len(records_of(tmp_path / "run"))
    handle.remove()
    model(torch.ones(1, 8))
    assert [set(m.__dict__) for m in model.modules()] == [set(d) for d in before]
    assert len(records_of(tmp_path / "run")) == count
    assert manifest_of(tmp_path / "run")["complete"] is True


def test_two_captures_of_one_model_and_removal_in_either_order(tmp_path: Path) -> None:
    for name, first_out in (("outer", 0), ("inner", 1)):
        model = Mlp()
        handles = [assay.capture(model, tmp_path / name / str(i)) for i in (0, 1)]
        model(torch.ones(1, 8))
        handles[first_out].remove()
        model(torch.ones(1, 8))
        handles[1 - first_out].remove()
        model(torch.ones(1, 8))
        assert inspect.isfunction(nn.Module.__dict__["_call_impl"])
        counts = [max(r["step"] for r in records_of(tmp_path / name / str(i))) + 1 for i in (0, 1)]
        assert counts[first_out] == 1 and counts[1 - first_out] == 2


def test_copies_and_pickles_of_a_captured_model_work_on_their_own(tmp_path: Path) -> None:
    model = Mlp()
    x = torch.ones(1, 8)
    expected = model(x)
    with assay.capture(model, tmp_path / "run") as handle:
        buffer = io.BytesIO()
        torch.save(model, buffer)
        copies = {
            "deepcopy": copy.deepcopy(model),
            "pickle": pickle.loads(pickle.dumps(model)),
            "torch.save": torch.load(io.BytesIO(buffer.getvalue()), weights_only=False),
        }
        for name, other in copies.items():
            assert torch.equal(other(x), expected), name
            with torch.no_grad():
                other.up.weight.zero_()
                other.up.bias.zero_()
            assert not torch.equal(other(x), expected), f"{name} runs the original"
        assert handle.stats["records"] == 0
    for other in copies.values():
        records = run_model(other, tmp_path / f"copy{id(other)}", x)
        assert {r["node"] for r in records} == {"", "up", "act", "down"}


def test_a_shallow_copy_runs_its_own_forward(tmp_path: Path) -> None:
    class Scale(nn.Module):
        factor = 1.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    model = Scale()
    with assay.capture(model, tmp_path / "run") as handle:
        replica = copy.copy(model)
        replica.factor = 3.0
        assert replica(torch.ones(1)).item() == 3.0
        assert model(torch.ones(1)).item() == 1.0
        assert handle.stats["steps"] == 1


def test_forward_replaced_as_accelerate_does(tmp_path: Path) -> None:
    model = Mlp()
    with assay.capture(model, tmp_path / "run"):
        old = model.up.forward
        model.up.forward = lambda x: old(x) + 1
        output = model.up(torch.ones(1, 8))
    record = only(records_of(tmp_path / "run"), node="up", role="output")
    assert_same_bits(tensor_of(tmp_path / "run", record), output)


def test_signatures_and_attributes_stay(tmp_path: Path) -> None:
    model = tiny_llama()
    before = inspect.signature(model.forward), set(model.state_dict()), repr(model)
    with assay.capture(model, tmp_path / "run"):
        assert (inspect.signature(model.forward), set(model.state_dict()), repr(model)) == before
        assert callable(model) and isinstance(model, nn.Module)


def test_other_peoples_hooks_still_run(tmp_path: Path) -> None:
    model = Mlp()
    model.up.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    model.up.register_forward_hook(lambda module, args, output: output + 1)
    expected = model(torch.ones(1, 8))
    with assay.capture(model, tmp_path / "run"):
        assert torch.equal(model(torch.ones(1, 8)), expected)
    records = records_of(tmp_path / "run")
    assert tensor_of(tmp_path / "run", only(records, node="up", role="input")).tolist() == [[1.0] * 8]


def test_global_hooks_still_run(tmp_path: Path) -> None:
    model, calls = Mlp(), []
    with assay.capture(model, tmp_path / "run"):
        handle = nn.modules.module.register_module_forward_hook(lambda *_: calls.append(1))
        try:
            model(torch.ones(1, 8))
        finally:
            handle.remove()
    assert len(calls) == 4 and len(records_of(tmp_path / "run")) == 8


def test_a_class_with_its_own_call_is_seen(tmp_path: Path) -> None:
    class Own(nn.Linear):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return super().__call__(*args, **kwargs)

    class RaisesOnce(Own):
        armed = True

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.armed:
                raise ValueError("mine")
            return super().forward(x)

    model = nn.Sequential(Own(4, 4), RaisesOnce(4, 4))
    with assay.capture(model, tmp_path / "run"):
        with pytest.raises(ValueError):
            model(torch.ones(1, 4))
        model[1].armed = False
        model(torch.ones(1, 4))
    assert not model[0]._forward_hooks and not model[0]._forward_pre_hooks
    records = records_of(tmp_path / "run")
    assert only(records, step=0, node="1", role="output", kind="skipped")["reason"] == "the call raised"
    assert only(records, step=1, node="1", role="output")["shape"] == [1, 4]
    assert [r["node"] for r in select(records, step=1, role="input")] == ["", "0", "1"]


def test_a_root_with_its_own_call_counts_its_steps(tmp_path: Path) -> None:
    class Own(Mlp):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return super().__call__(*args, **kwargs)

    model = Own()
    with assay.capture(model, tmp_path / "run", steps=[1]) as handle:
        for _ in range(3):
            model(torch.ones(1, 8))
    assert handle.stats["steps"] == 3
    assert {r["step"] for r in records_of(tmp_path / "run")} == {1}


@pytest.mark.parametrize("text, wanted", [("all", {0, 1, 2}), ("1-", {1, 2}), ("0, 2", {0, 2}), ("0-1", {0, 1})])
def test_steps_in_the_words_of_the_command(text: str, wanted: set[int], tmp_path: Path) -> None:
    model = Mlp()
    with assay.capture(model, tmp_path / "run", steps=text):
        for _ in range(3):
            model(torch.ones(1, 8))
    assert {r["step"] for r in records_of(tmp_path / "run")} == wanted


def test_steps_that_are_no_steps_are_named(tmp_path: Path) -> None:
    with pytest.raises(assay.FormatError, match="'some' is neither a number nor a range"):
        assay.capture(Mlp(), tmp_path / "run", steps="some")


def test_modules_called_while_we_read_are_not_recorded(tmp_path: Path) -> None:
    helper = nn.Identity()

    @dataclasses.dataclass
    class Lazy:
        x: Any

        def __getattribute__(self, name: str) -> Any:
            if name == "x":
                helper(torch.ones(1))
            return object.__getattribute__(self, name)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.helper = helper

        def forward(self, value: Lazy) -> torch.Tensor:
            return torch.zeros(1)

    model = Model()
    with assay.capture(model, tmp_path / "run"):
        model(Lazy(torch.ones(2)))
    assert {r["node"] for r in records_of(tmp_path / "run")} == {""}


def test_threads_each_get_their_steps(tmp_path: Path) -> None:
    model = Mlp()
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for i in range(20):
                x = torch.full((3, 8), float(seed * 100 + i))
                model(x)
        except BaseException as error:
            failures.append(error)

    with torch.no_grad(), assay.capture(model, tmp_path / "run", queue_bytes=1) as handle:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures and handle.stats["steps"] == 80
    records = records_of(tmp_path / "run")
    roots = [r for r in records if r["node"] == "" and r["role"] == "input"]
    assert sorted(r["step"] for r in roots) == list(range(80))
    assert sorted(tensor_of(tmp_path / "run", r)[0, 0].item() for r in roots) == sorted(
        float(s * 100 + i) for s in range(4) for i in range(20)
    )
    for step in range(80):
        inputs = {r["node"]: r for r in records if r["step"] == step and r["role"] == "input"}
        x = tensor_of(tmp_path / "run", inputs[""])
        assert_same_bits(tensor_of(tmp_path / "run", inputs["down"]), model.act(model.up(x)).detach())
    check_files(tmp_path / "run")


def test_a_forked_child_captures_nothing_and_touches_no_file(tmp_path: Path) -> None:
    model = Mlp()
    with assay.capture(model, tmp_path / "run") as handle:
        model(torch.ones(1, 8))
        handle.flush()
        before = {p.name: p.read_bytes() for p in (tmp_path / "run/rank0").iterdir()}
        child = os.fork()
        if child == 0:
            status = 1
            try:
                model(torch.ones(1, 8))
                handle.flush()
                handle.remove()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert {p.name: p.read_bytes() for p in (tmp_path / "run/rank0").iterdir()} == before
        assert not manifest_of(tmp_path / "run")["complete"]
        model(torch.ones(1, 8))
    assert {r["step"] for r in records_of(tmp_path / "run")} == {0, 1}
    check_files(tmp_path / "run")


class _Squares(torch.utils.data.Dataset):
    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        with torch.no_grad():
            return self.model(torch.full((8,), float(index)))


def test_data_loader_workers(tmp_path: Path) -> None:
    model = Mlp()
    with assay.capture(model, tmp_path / "run") as handle:
        loader = torch.utils.data.DataLoader(_Squares(model), num_workers=2, multiprocessing_context="fork")
        batches = list(loader)
        assert len(batches) == 8 and handle.stats["steps"] == 0
        model(torch.ones(1, 8))
    assert {r["step"] for r in records_of(tmp_path / "run")} == {0}


def test_a_capture_that_is_never_removed_ends_with_the_process(tmp_path: Path) -> None:
    program = (
        "import sys, torch, assay\n"
        "model = torch.nn.Linear(4, 4)\n"
        "assay.capture(model, sys.argv[1])\n"
        "model(torch.ones(1, 4))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "run")], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "" and done.stdout == ""
    assert manifest_of(tmp_path / "run")["complete"] and len(records_of(tmp_path / "run")) == 2
    check_files(tmp_path / "run")


def test_a_worker_that_outlives_the_main_thread_is_captured_to_its_end(tmp_path: Path) -> None:
    program = (
        "import sys, threading, torch, assay\n"
        "model = torch.nn.Linear(4, 4)\n"
        "assay.capture(model, sys.argv[1])\n"
        "main = threading.main_thread()\n"
        "def work():\n"
        "    main.join()\n"
        "    model(torch.ones(1, 4))\n"
        "threading.Thread(target=work).start()\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "run")], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""
    assert manifest_of(tmp_path / "run")["complete"] and len(records_of(tmp_path / "run")) == 2


def test_a_model_that_dies_under_its_capture(tmp_path: Path) -> None:
    model: Optional[nn.Module] = Mlp()
    handle = assay.capture(model, tmp_path / "run")
    model(torch.ones(1, 8))
    del model
    handle.remove()
    assert manifest_of(tmp_path / "run")["complete"]


# --- what cannot be seen ----------------------------------------------------------------------------------------


def test_a_compiled_model_says_what_is_hidden(tmp_path: Path, capfd: Any) -> None:
    model = torch.compile(Mlp(), backend="eager")
    expected = model(torch.ones(1, 8))
    with assay.capture(model, tmp_path / "run"):
        assert torch.equal(model(torch.ones(1, 8)), expected)
    message = capfd.readouterr().err
    assert message.count("assay: warning:") == 1 and "torch.compile" in message
    missed = manifest_of(tmp_path / "run")["coverage"]["missed"]
    assert {"node": "_orig_mod.up", "reason": "compiled by torch.compile", "count": 1} in missed
    records = records_of(tmp_path / "run")
    assert_same_bits(tensor_of(tmp_path / "run", only(records, node="", role="output")), expected)


def test_module_compile_is_seen_from_outside(tmp_path: Path, capfd: Any) -> None:
    model = nn.Sequential(Mlp(), nn.ReLU())
    model[0].compile(backend="eager")
    expected = model(torch.ones(1, 8))
    with assay.capture(model, tmp_path / "run"):
        assert torch.equal(model(torch.ones(1, 8)), expected)
    assert torch.equal(model(torch.ones(1, 8)), expected)
    records = records_of(tmp_path / "run")
    assert {r["node"] for r in records} == {"", "0", "1"}
    assert "torch.compile" in capfd.readouterr().err


def test_compiling_a_captured_model_still_computes(tmp_path: Path) -> None:
    model = Mlp()
    expected = model(torch.ones(1, 8))
    with assay.capture(model, tmp_path / "run"):
        compiled = torch.compile(model, backend="eager")
        assert torch.equal(compiled(torch.ones(1, 8)), expected)
    assert torch.equal(model(torch.ones(1, 8)), expected)


def test_a_script_module_says_what_is_hidden(tmp_path: Path, capfd: Any) -> None:
    model = nn.Sequential(torch.jit.script(Mlp()), nn.ReLU())
    expected = model(torch.ones(1, 8))
    with assay.capture(model, tmp_path / "run"):
        assert torch.equal(model(torch.ones(1, 8)), expected)
    assert "ScriptModule" in capfd.readouterr().err
    missed = {m["node"]: m["reason"] for m in manifest_of(tmp_path / "run")["coverage"]["missed"]}
    assert missed["0.up"] == "inside a ScriptModule" and "1" not in missed


def test_tracing_works_under_a_capture(tmp_path: Path) -> None:
    model = Mlp()
    with assay.capture(model, tmp_path / "run"):
        traced = torch.jit.trace(model, torch.ones(1, 8))
    assert torch.equal(traced(torch.ones(1, 8)), model(torch.ones(1, 8)))


def test_modules_that_never_ran_are_listed(tmp_path: Path) -> None:
    model = Mlp()
    model.unused = nn.Linear(2, 2)
    run_model(model, tmp_path / "run", torch.ones(1, 8))
    coverage = manifest_of(tmp_path / "run")["coverage"]
    assert (coverage["planned"], coverage["captured"]) == (5, 4)
    (missed,) = coverage["missed"]
    assert (missed["node"], missed["count"]) == ("unused", 1)
    assert missed["reason"].startswith("not called in a captured step")


# --- limits and failures ----------------------------------------------------------------------------------------


def test_tensors_larger_than_the_queue(tmp_path: Path) -> None:
    x = torch.arange(6_000_000, dtype=torch.int64)  # 48 MB through a queue of 8 MiB
    records = run_model(nn.Identity(), tmp_path / "run", x, queue_bytes=1)
    assert_same_bits(tensor_of(tmp_path / "run", only(records, role="input")), x)
    check_files(tmp_path / "run")


def test_drop_when_full_is_counted(tmp_path: Path) -> None:
    model = nn.Identity()
    with assay.capture(model, tmp_path / "run", queue_bytes=1, on_full="drop") as handle:
        model([torch.ones(1), torch.zeros(4_000_000), torch.ones(2)])
    assert handle.stats["dropped"] >= 1 and handle.stats["dropped_bytes"] >= 16_000_000
    records = records_of(tmp_path / "run")
    dropped = only(records, role="input", slot="0.1", kind="skipped")
    assert "dropped" in dropped["reason"] and dropped["shape"] == [4_000_000]
    assert only(records, role="input", slot="0.2")["bytes"] == 8
    assert manifest_of(tmp_path / "run")["sink"]["dropped"] == handle.stats["dropped"]


def test_the_disk_limit_stops_the_capture_and_not_the_model(tmp_path: Path, capfd: Any) -> None:
    model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(10)])
    with torch.no_grad(), assay.capture(model, tmp_path / "run", disk_limit=1_000_000) as handle:
        for _ in range(4):
            model(torch.ones(100, 256))
    assert "disk limit" in handle.stats["stopped"]
    assert capfd.readouterr().err.count("capture stopped") == 1
    assert sum(p.stat().st_size for p in (tmp_path / "run/rank0").iterdir()) < 1_200_000
    assert manifest_of(tmp_path / "run")["sink"]["stopped"] == handle.stats["stopped"]
    check_files(tmp_path / "run")


def test_a_failing_write_is_said_once_and_the_model_goes_on(tmp_path: Path) -> None:
    # RLIMIT_FSIZE makes the kernel refuse to let any file grow past it: a full disk without a disk.
    program = """
import resource, sys, torch, assay
resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(10)])
with torch.no_grad(), assay.capture(model, sys.argv[1]) as handle:
    for _ in range(8):
        model(torch.ones(1000, 256))
print(handle.stats["stopped"])
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "run")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("assay: error:") == 1 and "step-000000.safetensors" in done.stderr
    assert "step-000000.safetensors" in done.stdout
    for record in records_of(tmp_path / "run"):
        if "file" in record:
            assert (tmp_path / "run/rank0" / record["file"]).stat().st_size >= record["offset"] + record["bytes"]


def test_a_folder_that_cannot_be_made_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(assay.FileError) as caught:
        assay.capture(Mlp(), tmp_path / "file" / "run")
    assert caught.value.path == str(tmp_path / "file" / "run")


def test_an_old_run_is_never_overwritten(tmp_path: Path) -> None:
    model = Mlp()
    run_model(model, tmp_path / "run", torch.ones(1, 8))
    before = (tmp_path / "run/rank0/records.jsonl").read_bytes()
    with pytest.raises(assay.FormatError, match="holds a run"):
        assay.capture(model, tmp_path / "run")
    assert (tmp_path / "run/rank0/records.jsonl").read_bytes() == before
    assert inspect.isfunction(nn.Module.__dict__["_call_impl"])


@pytest.mark.parametrize(
    "options", [{"data": "all"}, {"on_full": "explode"}, {"queue_bytes": 0}, {"steps": [-1]}, {"disk_limit": -5}]
)
def test_wrong_arguments(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(assay.FormatError):
        assay.capture(Mlp(), tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("models", [[], {}, {"": Mlp()}, {"a/b": Mlp()}, ["no module"]])
def test_wrong_models(tmp_path: Path, models: Any) -> None:
    with pytest.raises(assay.FormatError):
        assay.capture(models, tmp_path / "run")


def test_flush_in_a_step_makes_everything_readable(tmp_path: Path) -> None:
    class Flushes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
            self.seen = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.a(x)
            handle.flush()
            self.seen = len(records_of(tmp_path / "run"))
            return self.b(x)

    model = Flushes()
    with assay.capture(model, tmp_path / "run") as handle:
        model(torch.ones(1, 4))
    assert model.seen == 3
    assert {p.name for p in (tmp_path / "run/rank0").glob("*.safetensors")} == {
        "step-000000.safetensors", "step-000000-1.safetensors"
    }  # fmt: skip
    check_files(tmp_path / "run")


def test_ranks_write_beside_each_other(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        with assay.capture(model := Mlp(), tmp_path / "run"):
            model(torch.ones(1, 8))
    assert len(records_of(tmp_path / "run", "rank0")) == len(records_of(tmp_path / "run", "rank1")) == 8
    assert manifest_of(tmp_path / "run")["host"]["rank"] == 0
    assert json.loads((tmp_path / "run/rank1/manifest.json").read_text())["host"]["rank"] == 1


# --- device tensors (the same code on the CPU) --------------------------------------------------------------------


def test_the_device_path_records_the_same(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 8))
    x = torch.randn(4, 8)
    with torch.no_grad():
        direct = run_model(model, tmp_path / "direct", x)
        with assay_capture.Capture(
            model, tmp_path / "device", steps=None, data="full", include=None, exclude=None, inputs=True, outputs=True,
            weights=False, caches=False, digest=False, queue_bytes=1, on_full="wait", disk_limit=None, verify=False,
            _force_device=True,
        ):  # fmt: skip
            model(x)
    device = records_of(tmp_path / "device")
    key = lambda r: (r["order"], r["role"], r["slot"])  # noqa: E731
    assert sorted(map(key, device)) == sorted(map(key, direct))
    for left, right in zip(sorted(direct, key=key), sorted(device, key=key)):
        assert_same_bits(tensor_of(tmp_path / "direct", left), tensor_of(tmp_path / "device", right))
        for name in ("count", "min", "max"):
            assert left["stats"][name] == right["stats"][name]
        assert left["stats"].get("nan") == right["stats"].get("nan")
        assert right["stats"]["l2"] == pytest.approx(left["stats"]["l2"], rel=1e-12)
    assert any("same_as" in r for r in device)
    check_files(tmp_path / "device")


DEVICE_DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.complex64, torch.complex128, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
]


@pytest.mark.parametrize("dtype", DEVICE_DTYPES, ids=str)
def test_a_device_s_statistics_are_those_of_memory(tmp_path: Path, dtype: torch.dtype) -> None:
    from assay.torch._device import DevicePath

    # given 1000 values of a type, some of them not finite where the type has such
    values = 30 * torch.randn(2, 500, dtype=torch.complex128 if dtype.is_complex else torch.float64)
    if dtype.is_floating_point:
        values[0, 3], values[1, 7] = math.nan, -math.inf
    tensor = values.to(dtype)
    path = DevicePath(stats=True, data=False)
    path.send(tensor)
    (count, nan, positive, negative, low, high, mean, l2), _ = path.fetch()[0]
    # then they are numpy's, over the finite values; of complex numbers over their absolute values in float64
    wide = tensor.to(torch.complex128).numpy() if dtype.is_complex else tensor.to(torch.float64).numpy()
    sizes = np.hypot(wide.real, wide.imag) if dtype.is_complex else wide
    finite = sizes[np.isfinite(sizes)]
    assert count == 1000 and nan == np.isnan(sizes).sum()
    assert (positive, negative) == ((sizes == np.inf).sum(), (sizes == -np.inf).sum())
    places = 1e-15 if dtype.is_complex else 0
    assert low == pytest.approx(finite.min(), rel=places, abs=0) and high == pytest.approx(
        finite.max(), rel=places, abs=0
    )
    assert mean == pytest.approx(finite.mean(), rel=1e-9, abs=1e-12)
    assert l2 == pytest.approx(np.linalg.norm(finite), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("size", [1e-200, 1e-310, 1e200, 1e307])
def test_a_device_s_sums_stay_in_range(size: float, dtype: torch.dtype) -> None:
    # given values whose squares no double holds
    from assay.torch._device import DevicePath

    values = torch.tensor([3.0, -4.0, 0.0], dtype=torch.float64) * size
    path = DevicePath(stats=True, data=False)
    path.send(values.to(dtype))
    (*_, mean, l2), _ = path.fetch()[0]
    # then mean and norm are those of 3, -4 and 0, or of their absolute values
    assert l2 == pytest.approx(5 * size, rel=1e-12 if size > 1e-300 else 1e-8)
    assert mean == pytest.approx((7 if dtype.is_complex else -1) / 3 * size, rel=1e-12 if size > 1e-300 else 1e-8)


def test_numpy_agrees_with_safetensors_padding(tmp_path: Path) -> None:
    # Payloads of odd sizes leave gaps; safetensors' "no holes" rule is checked by its own reader.
    xs = [torch.full((n,), n, dtype=torch.uint8) for n in (1, 63, 64, 65, 0, 127)]
    run_model(nn.Identity(), tmp_path / "run", xs)
    with safe_open(tmp_path / "run/rank0/step-000000.safetensors", "np") as file:
        names = list(file.keys())
        values = [file.get_tensor(name) for name in names if not name.startswith("__pad")]
    assert sorted(map(len, values)) == [0, 1, 63, 64, 65, 127]
    assert all(np.all(value == len(value)) for value in values)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"include": "1.waight*"}, "include: '1.waight*' matches no module"),
        ({"include": ["0", "mpl.0"]}, "include: 'mpl.0' matches no module; did you mean 'mlp.0'?"),
        ({"exclude": "haed"}, "exclude: 'haed' matches no module; did you mean 'head'?"),
        ({"include": torch.nn.Conv2d}, "include: no module is a Conv2d"),
        ({"steps": [50]}, "steps [50] were not reached; there were 1"),
        ({"include": "mlp.9"}, "no module that ran was to be recorded"),
    ],
)
def test_what_was_asked_for_and_did_not_come_is_said(tmp_path, capsys, options, sentence):
    model = torch.nn.ModuleDict({"mlp": torch.nn.Sequential(torch.nn.Linear(2, 2)), "head": torch.nn.ReLU()})
    model.forward = lambda x: model["head"](model["mlp"](x))

    with assay.capture(model, tmp_path / "run", **options):
        model(torch.ones(1, 2))

    assert sentence in capsys.readouterr().err


def test_a_capture_of_a_model_that_was_not_called_says_so(tmp_path, capsys):
    with assay.capture(torch.nn.Linear(2, 2), tmp_path / "run"):
        pass

    assert "nothing was captured in" in capsys.readouterr().err


def test_overwrite_removes_the_run_in_the_folder_and_nothing_else(tmp_path):
    model = torch.nn.Linear(2, 2)
    for _ in range(2):
        with assay.capture(model, tmp_path / "run", overwrite=True):
            model(torch.ones(1, 2))
        (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(assay.FormatError, match="overwrite=True removes it"):
        assay.capture(model, tmp_path / "run")
    assert {record.step for record in assay.open(tmp_path / "run").records} == {0}
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"


def test_overwrite_leaves_a_run_that_is_being_written(tmp_path):
    model = torch.nn.Linear(2, 2)
    with (
        assay.capture(model, tmp_path / "run"),
        pytest.raises(assay.FormatError, match="another capture of this process is still writing"),
    ):
        assay.capture(torch.nn.Linear(2, 2), tmp_path / "run", overwrite=True)


def test_the_manifest_has_the_versions_of_what_was_loaded(tmp_path):
    transformers = pytest.importorskip("transformers")
    model = torch.nn.Linear(2, 2)
    with assay.capture(model, tmp_path / "run", level="operator", weights=True):
        model(torch.ones(1, 2))
    assay.fingerprint(tmp_path / "run", tmp_path / "golden.json.gz")
    for run in ("run", "golden.json.gz"):
        properties = assay.open(tmp_path / run).properties
        assert properties["host.torch"] == torch.__version__
        assert properties["host.transformers"] == transformers.__version__


def test_a_capture_that_cannot_begin_leaves_no_manifest(tmp_path):
    with pytest.raises(assay.Error):
        assay.capture(torch.nn.Linear(2, 2), tmp_path / "run", queue_bytes=1 << 62)  # no machine has it
    assert not (tmp_path / "run" / "manifest.json").exists()


class WithStrangeInputs(nn.Module):
    def forward(self, sparse: torch.Tensor, shapes: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.sparse.mm(sparse, x)


def test_tensors_without_values_are_counted_by_reason(tmp_path: Path, capsys: Any) -> None:
    model = WithStrangeInputs()
    inputs = torch.eye(2).to_sparse(), torch.ones(3, device="meta"), torch.ones(2, 2)
    for data in ("full", "none"):  # where no values were asked for, none are missing
        with assay.capture(model, tmp_path / data, data=data):
            model(*inputs)
            model(*inputs)
    (line,) = capsys.readouterr().err.splitlines()  # the dense input and output are no reason for a word
    assert re.fullmatch(
        r"assay: warning: 4 tensors have a record without values: .*meta tensor \(2\).*; "
        + re.escape(str(tmp_path / "full")),
        line,
    ), line
    assert re.search(r"sparse[^,]* \(2\)", line), line
