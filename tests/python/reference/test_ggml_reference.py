# SPDX-License-Identifier: Apache-2.0
"""Operators of ggml in float64: against formulas, torch and transformers, and against ggml's own CPU kernels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from ggml_engine import Engine, Tensor, find_libraries

from assay import reference

RNG_SEED = 20
needs_engine = pytest.mark.skipif(find_libraries() is None, reason="pywhispercpp is not installed")


def random(*shape: int, seed: int = RNG_SEED, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)


def close(found: np.ndarray, expected: Any, rtol: float = 1e-12) -> None:
    expected = np.asarray(expected, dtype=np.float64)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol)


# ---- Against formulas, torch and transformers ----------------------------------------------------


def test_mul_mat_is_torchs_product_of_grouped_heads() -> None:
    w, x = random(2, 7, 16), random(6, 5, 16, seed=1)  # 2 heads of W for 6 of x
    expected = torch.tensor(wide(x)) @ torch.tensor(wide(w)).repeat_interleave(3, 0).transpose(-1, -2)
    close(reference.ggml("ggml.mul_mat", src0=w, src1=x), expected)


def test_mul_mat_id_takes_the_experts_of_each_token() -> None:
    experts, x = random(4, 7, 8), random(5, 1, 8, seed=1)
    ids = np.random.default_rng(2).integers(0, 4, (5, 2)).astype(np.int32)
    expected = np.einsum("teoi,ti->teo", wide(experts)[ids], wide(x[:, 0]))
    close(reference.ggml("ggml.mul_mat_id", src0=experts, src1=x, src2=ids), expected)


@pytest.mark.parametrize("mode", [0, 2])
@pytest.mark.parametrize("n_dims", [8, 6])
def test_rope_turns_as_complex_numbers_do(mode: int, n_dims: int) -> None:
    x, positions = random(5, 3, 8), np.array([0, 3, 1, 100, 7], dtype=np.int32)
    angles = positions[:, None] * 500.0 ** (-np.arange(0, n_dims, 2) / n_dims)
    expected = wide(x).copy()
    half = n_dims // 2
    a, b = (slice(0, n_dims, 2), slice(1, n_dims, 2)) if mode == 0 else (slice(0, half), slice(half, n_dims))
    turned = (wide(x)[..., a] + 1j * wide(x)[..., b]) * np.exp(1j * angles)[:, None]
    expected[..., a], expected[..., b] = turned.real, turned.imag
    found = reference.ggml("ggml.rope", src0=x, src1=positions, n_dims=n_dims, mode=mode, freq_base=500.0)
    close(found, expected, 1e-11)


def test_rope_of_halves_is_transformers_rotary_embedding() -> None:
    from transformers.models.llama.configuration_llama import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    config = LlamaConfig(hidden_size=32, num_attention_heads=2, head_dim=16)
    q, positions = random(2, 4, 16), torch.arange(4)[None]  # [heads, tokens, channels]
    cos, sin = LlamaRotaryEmbedding(config)(torch.tensor(q)[None], positions)
    expected, _ = apply_rotary_pos_emb(torch.tensor(q)[None], torch.tensor(q)[None], cos, sin)
    found = reference.ggml(
        "ggml.rope", src0=q.transpose(1, 0, 2), src1=np.arange(4, dtype=np.int32), n_dims=16, mode=2, freq_base=10000.0
    )
    close(found, expected[0].transpose(0, 1).numpy(), 1e-6)  # transformers works in float32


def alibi_slopes(heads: int, max_bias: float) -> np.ndarray:
    power = 2 ** math.floor(math.log2(heads))
    m0, m1 = 2 ** (-max_bias / power), 2 ** (-max_bias / 2 / power)
    return np.array([m0 ** (h + 1) if h < power else m1 ** (2 * (h - power) + 1) for h in range(heads)])


def test_soft_max_is_torchs_with_mask_and_alibi() -> None:
    x, mask = random(3, 4, 9, scale=3), random(4, 9, seed=1).astype(np.float16)
    mask[:, 7:] = -np.inf
    slopes = alibi_slopes(3, 8.0)[:, None, None]
    scores = torch.tensor(wide(x) * 0.5 + slopes * wide(mask))
    found = reference.ggml("ggml.soft_max", src0=x, src1=mask, scale=0.5, max_bias=8.0)
    close(found, torch.nn.functional.softmax(scores, -1))


def test_sinks_take_a_share_of_every_row() -> None:
    x, sinks = random(2, 3, 5), np.array([0.5, -1.0], dtype=np.float32)
    scores = np.concatenate([wide(x), np.broadcast_to(wide(sinks)[:, None, None], (2, 3, 1))], -1)
    expected = torch.nn.functional.softmax(torch.tensor(scores), -1)[..., :5]
    close(reference.ggml("ggml.soft_max", src0=x, src2=sinks, scale=1.0), expected)


@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_flash_attention_is_torchs(softcap: float) -> None:
    q, k, v = random(4, 3, 8), random(2, 6, 8, seed=1), random(2, 6, 10, seed=2)
    mask = np.triu(np.full((3, 6), -np.inf, dtype=np.float32), 4).astype(np.float16)
    keys = torch.tensor(wide(k)).repeat_interleave(2, 0)
    values = torch.tensor(wide(v)).repeat_interleave(2, 0)
    if softcap == 0:
        expected = torch.nn.functional.scaled_dot_product_attention(
            torch.tensor(wide(q)), keys, values, attn_mask=torch.tensor(wide(mask)), scale=0.25
        )
    else:
        scores = softcap * torch.tanh(torch.tensor(wide(q)) @ keys.transpose(-1, -2) * 0.25 / softcap)
        expected = torch.softmax(scores + torch.tensor(wide(mask)), -1) @ values
    found = reference.ggml(
        "ggml.flash_attn_ext", src0=q, src1=k, src2=v, src3=mask, scale=0.25, max_bias=0.0, logit_softcap=softcap
    )
    close(found, expected.transpose(0, 1))  # [tokens, heads, channels]


def test_norms_are_torchs() -> None:
    x = random(3, 4, 16)
    t = torch.tensor(wide(x))
    eps = float(np.float32(1e-3))
    close(reference.ggml("ggml.rms_norm", src0=x, eps=1e-3), torch.nn.functional.rms_norm(t, (16,), eps=eps))
    close(reference.ggml("ggml.norm", src0=x, eps=1e-3), torch.nn.functional.layer_norm(t, (16,), eps=eps))
    close(reference.ggml("ggml.l2_norm", src0=x, eps=1e-3), torch.nn.functional.normalize(t, dim=-1, eps=eps))
    image = random(2, 6, 3, 5)
    expected = torch.nn.functional.group_norm(torch.tensor(wide(image)), 3, eps=eps)
    close(reference.ggml("ggml.group_norm", src0=image, groups=3, eps=1e-3), expected)


FUNCTIONS = {
    "GELU": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "GELU_ERF": torch.nn.functional.gelu,
    "GELU_QUICK": lambda x: x * torch.sigmoid(1.702 * x),
    "SILU": torch.nn.functional.silu,
    "RELU": torch.nn.functional.relu,
    "HARDSWISH": torch.nn.functional.hardswish,
    "HARDSIGMOID": torch.nn.functional.hardsigmoid,
    "SIGMOID": torch.sigmoid,
    "TANH": torch.tanh,
    "ELU": torch.nn.functional.elu,
    "EXP": torch.exp,
    "NEG": torch.neg,
    "SGN": torch.sign,
    "ABS": torch.abs,
    "STEP": lambda x: (x > 0).double(),
    "SOFTPLUS": torch.nn.functional.softplus,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_unary_functions_are_torchs(name: str) -> None:
    x = np.concatenate([random(64, scale=3), np.float32([0.0, -12.0, 12.0])])
    close(reference.ggml("ggml.unary", src0=x, op=name), FUNCTIONS[name](torch.tensor(wide(x))), 1e-11)


GATES = {"REGLU": "RELU", "GEGLU": "GELU", "SWIGLU": "SILU", "GEGLU_ERF": "GELU_ERF", "GEGLU_QUICK": "GELU_QUICK"}


@pytest.mark.parametrize("name", GATES)
def test_gated_units_apply_the_function_to_the_gate(name: str) -> None:
    gate, up = random(3, 8), random(3, 8, seed=1)
    expected = FUNCTIONS[GATES[name]](torch.tensor(wide(gate))) * torch.tensor(wide(up))
    close(reference.ggml("ggml.glu", src0=gate, src1=up, op=name), expected, 1e-11)
    joined = np.concatenate([gate, up], -1)
    close(reference.ggml("ggml.glu", src0=joined, op=name, swapped=False), expected, 1e-11)
    joined = np.concatenate([up, gate], -1)
    close(reference.ggml("ggml.glu", src0=joined, op=name, swapped=True), expected, 1e-11)


def test_broadcasts_repeats_and_joins() -> None:
    x, row = random(2, 3, 4), random(4, seed=1)
    for name, expected in {
        "add": wide(x) + row, "sub": wide(x) - row, "mul": wide(x) * row, "div": wide(x) / row,
    }.items():  # fmt: skip
        close(reference.ggml(f"ggml.{name}", src0=x, src1=row), expected)
    close(reference.ggml("ggml.scale", src0=x, scale=0.5, bias=-2.0), wide(x) * 0.5 - 2)
    close(reference.ggml("ggml.repeat", src0=row, ne=[8, 3, 1, 1]), np.tile(wide(row), (3, 2)))
    close(reference.ggml("ggml.concat", src0=x, src1=x, dim=1), np.concatenate([x, x], 1))
    close(reference.ggml("ggml.sum_rows", src0=x), wide(x).sum(-1, keepdims=True))


def test_pictures_are_torchs() -> None:
    image, kernel = random(2, 3, 9, 8), random(5, 3, 3, 2, seed=1)
    t = torch.tensor(wide(image))
    columns = torch.nn.functional.unfold(t, (3, 2), dilation=(2, 1), padding=(1, 1), stride=(1, 2))
    found = reference.ggml("ggml.im2col", src0=kernel, src1=image, s0=2, s1=1, p0=1, p1=1, d0=1, d1=2, is_2d=True)
    close(found.reshape(2, -1, 18).transpose(0, 2, 1), columns)
    pooled = torch.nn.functional.avg_pool2d(t, (3, 2), stride=(2, 1), padding=(1, 0))
    given = {"kernel": [2, 3], "stride": [1, 2], "padding": [0, 1]}
    close(reference.ggml("ggml.pool_2d", src0=image, kind=1, **given), pooled)
    largest = torch.nn.functional.max_pool2d(t, (3, 2), stride=(2, 1), padding=(1, 0))
    close(reference.ggml("ggml.pool_2d", src0=image, kind=0, **given), largest)
    twice = torch.nn.functional.interpolate(t, scale_factor=2, mode="bilinear")
    close(reference.ggml("ggml.upscale", src0=image, ne=[16, 18, 3, 2], mode=1), twice)
    padded = torch.nn.functional.pad(t, (1, 2, 0, 3))
    close(reference.ggml("ggml.pad", src0=image, padding=[1, 2, 0, 3, 0, 0, 0, 0]), padded)


def test_every_operator_is_listed_once() -> None:
    names = reference.ggml_operators()
    assert names == sorted(set(names))
    assert {"ggml.mul_mat", "ggml.rope", "ggml.flash_attn_ext", "ggml.set_rows"} <= set(names)
    assert not any(one.name.startswith("ggml.") for one in reference.aten_overloads())


# ---- Against ggml itself ---------------------------------------------------------------------------


@pytest.fixture
def engine() -> Iterator[Engine]:
    one = Engine()
    yield one
    one.close()


def ulp(values: np.ndarray) -> np.ndarray:
    return wide(np.spacing(np.abs(values).astype(np.float32)))


def judge(engine: Engine, name: str, node: Tensor, *sources: Tensor | None, **arguments: Any) -> tuple[float, float]:
    """z and e of the engine's result on the reference, as docs/localisation.md has them. The engine's own op_params."""
    mine = engine.compute(node)
    for i, source in enumerate(sources):
        if source is None:
            continue
        arguments[f"src{i}"] = source.values
        if source.type_name not in ("f32", "f16", "i32", "i64"):
            arguments[f"src{i}_type"] = source.type_name
    arguments = {"op_params": node.op_params(), "ne": node.sizes(), **arguments}
    expected = reference.ggml(name, **arguments)
    assert expected.shape == mine.shape
    try:
        allowed, variance = reference.ggml_rounding(name, **arguments)
    except Exception as error:
        assert "no rounding errors" in str(error)
        allowed = variance = np.zeros_like(expected)
    unit = np.maximum(ulp(mine), ulp(expected))
    error = np.abs(mine - expected)
    z = float(np.sqrt((error**2).sum() / (unit**2 / 12 + variance).sum()))
    e = float((error / (unit / 2 + allowed + 2.0**-126)).max())
    return z, e


def assert_healthy(measures: tuple[float, float]) -> None:
    assert measures[0] <= 2 and measures[1] <= 2, measures


@needs_engine
@pytest.mark.parametrize(
    "type_name",
    ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K"],
)
def test_engine_mul_mat(engine: Engine, type_name: str) -> None:
    w = engine.tensor(random(48, 512, scale=0.05), type_name)
    x = engine.tensor(random(7, 512, seed=1))
    assert_healthy(judge(engine, "ggml.mul_mat", engine.node("mul_mat", w, x), w, x))


@needs_engine
def test_engine_faults_stand_out_of_a_quantised_product(engine: Engine) -> None:
    w = engine.tensor(random(48, 512, scale=0.05), "q8_0")
    x = engine.tensor(random(7, 512, seed=1))
    node = engine.node("mul_mat", w, x)
    assert w.values is not None
    w.values[:, :32] *= -1  # what the reference believes: one block of every row has the other sign
    z, _ = judge(engine, "ggml.mul_mat", node, w, x)
    assert z > 10


@needs_engine
def test_engine_mul_mat_of_grouped_heads(engine: Engine) -> None:
    k, q = engine.tensor(random(2, 9, 64), "f16"), engine.tensor(random(6, 5, 64, seed=1))
    assert_healthy(judge(engine, "ggml.mul_mat", engine.node("mul_mat", k, q), k, q))


@needs_engine
def test_engine_mul_mat_id(engine: Engine) -> None:
    experts, x = engine.tensor(random(4, 40, 64), "q4_0"), engine.tensor(random(6, 1, 64, seed=1))
    ids = engine.tensor(np.random.default_rng(2).integers(0, 4, (6, 2)), "i32")
    assert_healthy(judge(engine, "ggml.mul_mat_id", engine.node("mul_mat_id", experts, x, ids), experts, x, ids))


YARN = (4096, 10000.0, 0.25, 1.0, 1.2, 32.0, 1.0)
PLAIN = (0, 10000.0, 1.0, 0.0, 1.0, 32.0, 1.0)


@needs_engine
@pytest.mark.parametrize("scaling", [PLAIN, YARN, (512, 500000.0, 0.5, 0.0, 1.0, 32.0, 1.0)])
@pytest.mark.parametrize(("mode", "n_dims"), [(0, 64), (0, 48), (2, 64), (2, 32)])
@pytest.mark.parametrize("factors", [False, True])
def test_engine_rope(engine: Engine, mode: int, n_dims: int, scaling: tuple[Any, ...], factors: bool) -> None:
    x = engine.tensor(random(6, 4, 64))
    positions = engine.tensor(np.array([0, 1, 2, 77, 1000, 4000]), "i32")
    factor = engine.tensor(1 + np.abs(random(n_dims // 2, seed=3))) if factors else None
    node = engine.node("rope_ext", x, positions, factor, n_dims, mode, *scaling)
    assert_healthy(judge(engine, "ggml.rope", node, x, positions, factor))


@needs_engine
@pytest.mark.parametrize("mode", [8, 24, 40])
def test_engine_rope_by_sections(engine: Engine, mode: int) -> None:
    import ctypes

    x = engine.tensor(random(5, 2, 64))
    positions = engine.tensor(np.random.default_rng(4).integers(0, 90, 20), "i32")
    sections = (ctypes.c_int * 4)(*((16, 16, 0, 0) if mode == 24 else (12, 10, 10, 0)))
    node = engine.node("rope_multi", x, positions, None, 32 if mode == 24 else 64, sections, mode, *PLAIN)
    assert_healthy(judge(engine, "ggml.rope", node, x, positions))


@needs_engine
@pytest.mark.parametrize("max_bias", [0.0, 8.0])
@pytest.mark.parametrize("mask_type", [None, "f16", "f32"])
@pytest.mark.parametrize("sinks", [False, True])
def test_engine_soft_max(engine: Engine, mask_type: str | None, max_bias: float, sinks: bool) -> None:
    if max_bias > 0 and mask_type is None:
        pytest.skip("ggml wants a mask for ALiBi")
    x = engine.tensor(random(6, 8, 100, scale=5))
    bias = random(8, 100, seed=1)
    bias[:, 90:] = -np.inf
    mask = None if mask_type is None else engine.tensor(bias, mask_type)
    node = engine.node("soft_max_ext", x, mask, 0.125, max_bias)
    sink = engine.tensor(random(6, seed=2)) if sinks else None
    if sink is not None:
        engine.base.ggml_soft_max_add_sinks(_pointer(node), _pointer(sink))
    assert_healthy(judge(engine, "ggml.soft_max", node, x, mask, sink))


def _pointer(tensor: Tensor) -> Any:
    import ctypes

    return ctypes.c_void_p(tensor.pointer)


@needs_engine
@pytest.mark.parametrize("cache", ["f32", "f16", "q8_0", "q4_0"])
@pytest.mark.parametrize(("softcap", "max_bias"), [(0.0, 0.0), (5.0, 0.0), (0.0, 8.0)])
@pytest.mark.parametrize("tokens", [1, 40])
def test_engine_flash_attention(engine: Engine, cache: str, softcap: float, max_bias: float, tokens: int) -> None:
    q = engine.tensor(random(4, tokens, 64))
    k, v = engine.tensor(random(2, 256, 64, seed=1), cache), engine.tensor(random(2, 256, 64, seed=2), cache)
    hidden = np.triu(np.full((64, 256), -np.inf, dtype=np.float32), 257 - tokens)
    mask = engine.tensor(hidden, "f16")
    node = engine.node("flash_attn_ext", q, k, v, mask, 0.125, max_bias, softcap)
    assert_healthy(judge(engine, "ggml.flash_attn_ext", node, q, k, v, mask))


@needs_engine
def test_engine_norms(engine: Engine) -> None:
    x = engine.tensor(random(3, 5, 512))
    for name in ("rms_norm", "norm", "l2_norm"):
        assert_healthy(judge(engine, f"ggml.{name}", engine.node(name, x, 1e-5), x))
    image = engine.tensor(random(2, 6, 8, 8))
    assert_healthy(judge(engine, "ggml.group_norm", engine.node("group_norm", image, 3, 1e-5), image))


@needs_engine
def test_engine_gated_units(engine: Engine) -> None:
    gate, up = engine.tensor(random(7, 256, scale=2)), engine.tensor(random(7, 256, seed=1))
    both = engine.tensor(random(7, 512, scale=2))
    for kind in (0, 1, 2, 4, 5):
        name = engine.base.ggml_glu_op_name(kind).decode()
        assert name in GATES
        node = engine.node("glu_split", gate, up, kind)
        assert_healthy(judge(engine, "ggml.glu", node, gate, up, op=name))
        for swapped in (False, True):
            node = engine.node("glu", both, kind, swapped)
            assert_healthy(judge(engine, "ggml.glu", node, both, op=name))
    node = engine.node("swiglu_oai", gate, up, 1.702, 1.5)
    assert_healthy(judge(engine, "ggml.glu", node, gate, up, op="SWIGLU_OAI"))


@needs_engine
def test_engine_unary_functions(engine: Engine) -> None:
    x = engine.tensor(random(5, 300, scale=3))
    for kind in range(15):
        name = engine.base.ggml_unary_op_name(kind).decode()
        assert_healthy(judge(engine, "ggml.unary", engine.node("unary", x, kind), x, op=name))


@needs_engine
def test_engine_elements_and_moves(engine: Engine) -> None:
    x, row = engine.tensor(random(2, 6, 64)), engine.tensor(random(64, seed=1))
    picks = engine.tensor(np.array([[2, 0, 5], [1, 1, 4]]), "i32")
    for name in ("add", "sub", "mul", "div"):
        assert_healthy(judge(engine, f"ggml.{name}", engine.node(name, x, row), x, row))
    cases = {
        "scale": engine.node("scale_bias", x, 0.3, 0.7),
        "sqr": engine.node("sqr", x),
        "leaky_relu": engine.node("leaky_relu", x, 0.1, False),
        "sum_rows": engine.node("sum_rows", x),
        "mean": engine.node("mean", x),
        "cont": engine.node("cont", engine.node("permute", x, 1, 0, 2, 3)),
        "pad": engine.node("pad", x, 3, 2, 1, 0),
    }
    for name, node in cases.items():
        given = x
        if name == "cont":
            assert x.values is not None
            given = Tensor(0, x.values.transpose(0, 2, 1), "f32")
        assert_healthy(judge(engine, f"ggml.{name}", node, given))
    limited = engine.tensor(random(2, 6, 64, seed=5))  # clamp writes its source
    assert_healthy(judge(engine, "ggml.clamp", engine.node("clamp", limited, -0.5, 0.25), limited))
    assert_healthy(judge(engine, "ggml.concat", engine.node("concat", x, x, 1), x, x))
    assert_healthy(judge(engine, "ggml.get_rows", engine.node("get_rows", x, picks), x, picks))
    node = engine.node("diag_mask_inf", x, 3)
    expected = reference.ggml("ggml.diag_mask_inf", src0=x.values, op_params=node.op_params())
    np.testing.assert_array_equal(engine.compute(node), expected)
    table = engine.tensor(random(2, 6, 64), "q4_0")
    assert_healthy(judge(engine, "ggml.get_rows", engine.node("get_rows", table, picks), table, picks))


@needs_engine
def test_engine_pictures(engine: Engine) -> None:
    image, kernel = engine.tensor(random(2, 3, 9, 8)), engine.tensor(random(5, 3, 3, 2, seed=1))
    node = engine.node("im2col", kernel, image, 2, 1, 1, 1, 1, 2, True, 0)
    assert_healthy(judge(engine, "ggml.im2col", node, kernel, image))
    for kind in (0, 1):
        node = engine.node("pool_2d", image, kind, 2, 3, 1, 2, 0.0, 1.0)
        assert_healthy(judge(engine, "ggml.pool_2d", node, image))
    for mode in (0, 1):
        node = engine.node("upscale", image, 2, mode)
        assert_healthy(judge(engine, "ggml.upscale", node, image))


@needs_engine
def test_engine_order(engine: Engine) -> None:
    x = engine.tensor(random(5, 40))
    for order in (0, 1):
        node = engine.node("argsort", x, order)
        mine = engine.compute(node, np.int32)
        np.testing.assert_array_equal(reference.ggml("ggml.argsort", src0=x.values, order=order), mine)
