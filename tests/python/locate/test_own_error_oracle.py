# SPDX-License-Identifier: Apache-2.0
"""Own errors of captured operators against the same formulas in NumPy on torch's fp64 results.

The models are real ones of Hugging Face with random weights, the kernels those of torch on this machine: all of them
round once, so nothing may come near the limits of 2.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
native = pytest.importorskip("assay._opcheck")
pytest.importorskip("assay.torch.capture")

from bench import record_lines  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import assay  # noqa: E402

FORMATS = {  # stored fraction bits, smallest exponent, always allowed
    "bfloat16": (7, -126, 2.0**-126),
    "float16": (10, -14, 2.0**-24),
    "float32": (23, -126, 2.0**-126),
}
U_ACC = 2.0**-24


def llama(attention: str = "sdpa") -> Any:
    config = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=176,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=503,
        attn_implementation=attention,
    )
    return transformers.LlamaForCausalLM(config)


def gpt2(attention: str = "sdpa") -> Any:
    config = transformers.GPT2Config(
        n_embd=64, n_layer=4, n_head=4, vocab_size=503, n_positions=64, attn_implementation=attention
    )
    return transformers.GPT2LMHeadModel(config)


def capture(path: Path, model: Any, dtype: torch.dtype, *, seed: int = 0, inference: bool = False) -> Path:
    torch.manual_seed(seed)
    model = model.to(dtype).eval()
    tokens = torch.randint(0, 503, (1, 23))
    guard = torch.inference_mode if inference else torch.no_grad
    with guard(), assay.capture(model, path, level="operator", data="full"):
        model(input_ids=tokens, use_cache=True)
    return path


def worst(judged: dict[str, Any], measure: str, output: int | None = None) -> dict[str, Any]:
    rows = (row for row in judged["outputs"] if row["state"] == "judged" and output in (None, row["output"]))
    return max(rows, key=lambda row: row[measure])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", [llama, gpt2])
@pytest.mark.parametrize("inference", [False, True], ids=["no_grad", "inference_mode"])
def test_healthy_models_are_exact_to_rounding(
    tmp_path: Path, family: Any, attention: str, dtype: torch.dtype, inference: bool
) -> None:
    run = capture(tmp_path / "run", family(attention), dtype, inference=inference)
    judged = native._own_errors(str(run))
    assert judged["unjudged"] == {}
    assert judged["judged"] == judged["judgeable"] > 60
    assert judged["findings"] == [] and judged["coarse"] == []
    assert all(judged["strict"].values())
    # 280 healthy bf16 pairs gave 1.22 and 1.00. The 23 means of a norm are few: sqrt(3) holds for any.
    assert worst(judged, "z", output=0)["z"] < 1.3, worst(judged, "z", output=0)
    assert worst(judged, "z")["z"] < math.sqrt(3), worst(judged, "z")
    assert worst(judged, "e")["e"] <= 1.05, worst(judged, "e")


def tensors_of(run: Path) -> dict[str, dict[str, Any]]:
    """By operator node: its arguments as torch objects, and its outputs."""
    calls: dict[str, dict[str, Any]] = {}
    for record in record_lines.read(run / "rank0" / "records.jsonl"):
        if "::" not in record["node"]:
            continue
        call = calls.setdefault(record["node"], {"in": {}, "out": []})
        if record.get("kind", "tensor") == "operator":
            call.update(type=record["type"], args=record["args"])
        elif record.get("kind", "tensor") == "tensor":
            place = record.get("view", record)
            with open(run / "rank0" / place["file"], "rb") as file:
                file.seek(place["offset"])
                data = bytearray(file.read(place["bytes"]))
            dtype = getattr(torch, record["dtype"])
            flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
            is_view = "view" in record
            value = flat.as_strided(record["shape"], record["strides"]) if is_view else flat.reshape(record["shape"])
            if record["role"] == "output":
                call["out"].append(value)
            else:
                call["in"][record["slot"]] = value
    return calls


def allowed(kind: str, args: dict[str, Any], y: Any, unit: float) -> tuple[Any, Any]:
    """v and w of the table for the operators that are checked."""
    size = np.abs(y)
    real = isinstance(args.get("other"), float)
    if kind in ("aten.mul.Tensor", "aten.add.Tensor"):
        if not real:
            return 0 * size, 0 * size
        # The scalar's own rounding moves all elements alike.
        scale = size if kind == "aten.mul.Tensor" else size + abs(args["other"])
        return (U_ACC * scale) ** 2, 2 * U_ACC * scale
    if kind in ("aten.rsqrt.default", "aten.exp.default", "aten.sigmoid.default"):
        return (4 * U_ACC * size) ** 2 / 12, 4 * U_ACC * size
    if kind == "aten.cos.default" or kind == "aten.sin.default":
        return 0 * size + (4 * U_ACC) ** 2 / 12, 0 * size + 4 * U_ACC
    if kind == "aten._softmax.default":
        x = args["self"].double().numpy()
        size = size * (1 + (x.max(axis=args["dim"], keepdims=True) - x) / 16)
    if kind in ("aten._softmax.default", "aten.tanh.default"):
        return (16 * U_ACC * size) ** 2 / 12, 16 * U_ACC * size
    if kind == "aten.silu.default":
        bound = np.maximum(size, np.abs(args["self"].double().numpy()))
        return (16 * U_ACC * bound) ** 2 / 12, 16 * U_ACC * bound
    raise KeyError(kind)


def terms(kind: str, args: dict[str, Any]) -> tuple[Any, int]:
    """C and the number of terms of sums."""
    if kind == "aten.mm.default":
        return (args["self"].double().abs() @ args["mat2"].double().abs()).numpy(), args["self"].shape[-1]
    if kind == "aten.bmm.default":
        return (args["self"].double().abs() @ args["mat2"].double().abs()).numpy(), args["self"].shape[-1]
    if kind == "aten.addmm.default":
        c = args["mat1"].double().abs() @ args["mat2"].double().abs() + args["self"].double().abs()
        return c.numpy(), args["mat1"].shape[-1]
    if kind == "aten.mean.dim":
        return args["self"].double().abs().mean(args["dim"], args["keepdim"]).numpy(), args["self"].shape[-1]
    raise KeyError(kind)


def measures(kind: str, args: dict[str, Any], y: Any, m: Any, dtype: str) -> tuple[float, float]:
    bits, smallest, tiny = FORMATS[dtype]
    try:
        v, w = allowed(kind, args, y, 2.0 ** -(bits + 1))
    except KeyError:
        c, count = terms(kind, args)
        w = 2 * math.sqrt(count) * U_ACC * c
        v = w * w / 12
        if kind == "aten.addmm.default" and bits <= 10:  # the product may be rounded before the bias is added
            with np.errstate(divide="ignore"):
                product = np.abs(y - args["self"].double().numpy())
                step = 2.0 ** (np.maximum(np.floor(np.log2(product)), smallest) - bits)
            w, v = w + step / 2, v + step**2 / 12
    largest = torch.finfo(getattr(torch, dtype)).max
    y, m = np.clip(y, -largest, largest), np.clip(m, -largest, largest)
    larger = np.maximum(np.abs(y), np.abs(m))
    counts = larger >= 2.0**smallest
    if not counts.any():
        return 0.0, 0.0
    y, m, v, w, larger = (np.broadcast_to(a, y.shape)[counts] for a in (y, m, v, w, larger))
    unit = 2.0 ** (np.floor(np.log2(larger)) - bits)
    z = math.sqrt(((m - y) ** 2).sum() / (unit**2 / 12 + v).sum())
    return z, float((np.abs(m - y) / (unit / 2 + w + tiny)).max())


CHECKED = {
    *("aten.mul.Tensor", "aten.add.Tensor", "aten.rsqrt.default", "aten.cos.default", "aten.sin.default"),
    *("aten._softmax.default", "aten.silu.default", "aten.tanh.default", "aten.mm.default", "aten.bmm.default"),
    *("aten.addmm.default", "aten.mean.dim"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("family", [llama, gpt2])
def test_measures_are_those_of_numpy(tmp_path: Path, family: Any, dtype: torch.dtype) -> None:
    run = capture(tmp_path / "run", family("eager"), dtype, seed=1)
    judged = {row["node"]: row for row in native._own_errors(str(run))["outputs"] if row["output"] == 0}
    seen = set()
    for node, call in tensors_of(run).items():
        kind = call["type"]
        if kind not in CHECKED or not call["out"][0].is_floating_point():
            continue
        args = {
            name: call["in"][value["tensor"]] if isinstance(value, dict) and "tensor" in value else value
            for name, value in call["args"].items()
            if not (isinstance(value, dict) and "dtype" in value)
        }
        wide = {k: v.double() if torch.is_tensor(v) and v.is_floating_point() else v for k, v in args.items()}
        overload = getattr(getattr(torch.ops.aten, kind.split(".")[1]), kind.split(".")[2])
        y = overload(**wide).numpy()
        m = call["out"][0].double().numpy()
        z, e = measures(kind, args, y, m, str(call["out"][0].dtype).removeprefix("torch."))
        row = judged[node]
        seen.add(kind)
        # Without C where no answer depends on it: from above, and at most 1.5.
        assert row["z"] == pytest.approx(z, rel=1e-6, abs=1e-12) or z <= row["z"] <= 1.5, (node, row, z)
        assert row["e"] == pytest.approx(e, rel=1e-6, abs=1e-12) or e <= row["e"] <= 1, (node, row, e)
    assert len(seen) >= 6


class Coarse(TorchDispatchMode):
    """Products in four partial sums of 16 bits: what other kernels do, and healthy."""

    def __init__(self, spoil: str | None = None) -> None:
        super().__init__()
        self.spoil = spoil
        self.products = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.__name__ != "mm.default":
            return result
        a, b = args[0], args[1]
        total = torch.zeros_like(result)
        for k in range(4):
            part = slice(k * a.shape[1] // 4, (k + 1) * a.shape[1] // 4)
            total = total + (a[:, part] @ b[part]).to(result.dtype)
        self.products += 1
        if self.spoil == "dense" and self.products == 12:
            total[:, ::4] *= 1.06
        if self.spoil == "row" and self.products == 12:
            total[5] *= 1.25
        return total


@pytest.mark.parametrize("spoil", [None, "dense", "row"])
def test_coarse_kernels_are_judged_by_their_other_layers(tmp_path: Path, spoil: str | None) -> None:
    model = llama("eager")
    torch.manual_seed(2)
    model = model.to(torch.bfloat16).eval()
    tokens = torch.randint(0, 503, (1, 23))
    # Below the capture: the records hold what this mode returns, and no operator of its own.
    with torch.no_grad(), Coarse(spoil), assay.capture(model, tmp_path / "run", level="operator", data="full"):
        model(input_ids=tokens)
    judged = native._own_errors(str(tmp_path / "run"))
    assert judged["unjudged"] == {}
    if spoil is None:
        assert judged["findings"] == []
        assert worst(judged, "e")["e"] > 3  # fixed limits would have alarmed
    else:
        assert [finding["operator"] for finding in judged["findings"]] == ["aten.mm.default"]
        assert judged["findings"][0]["confidence"] in ("medium", "high")


def test_missing_inputs_are_never_clean(tmp_path: Path) -> None:
    run = capture(tmp_path / "run", llama(), torch.bfloat16)
    records = run / "rank0" / "records.jsonl"
    lines = record_lines.read(records)
    kept = [r for r in lines if not (r.get("role") == "input" and r.get("type") == "aten.mm.default")]
    assert len(kept) < len(lines)
    records.write_text("".join(json.dumps(record) + "\n" for record in kept))
    judged = native._own_errors(str(run))
    products = [row for row in judged["outputs"] if row["operator"] == "aten.mm.default"]
    assert products and {row["state"] for row in products} == {"not_captured"}, products[0]
    assert judged["judged"] == judged["judgeable"] - len(products)
    assert sum(judged["unjudged"].values()) == len(products)
