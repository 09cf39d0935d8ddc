# SPDX-License-Identifier: Apache-2.0
"""LaserAttention, its gradient and FaUpdate. Oracle: torch in fp64, the gradient by torch's autograd."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from opcheck_dump import check, to_bf16

SCALE = 0.25


def random(*shape, seed):
    """Values that bfloat16 holds exactly, and the same as float64."""
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()
    return to_bf16(values.float().numpy()), values.double()


def forward(q, k, v, mask, window):
    """Scores' maximum, sum of exponentials, output; [batch, heads, rows, size]."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k[..., : q.shape[-1]].transpose(2, 3) * SCALE
    if mask is not None:
        rows = torch.arange(q.shape[2])
        forbidden = mask + (rows[None] <= rows[:, None] - window).double()
        scores = scores + forbidden * -65536
    top = scores.max(-1).values
    return top, (scores - top[..., None]).exp().sum(-1), scores.softmax(-1) @ v


def case(kv_heads=2, masked=True, window=2**31 - 1, d=16, dk=24, dv=8, rows=40):
    (q_bits, q), (k_bits, k), (v_bits, v) = (
        random(2, 4, rows, d, seed=0),
        random(2, kv_heads, rows, dk, seed=1),
        random(2, kv_heads, rows, dv, seed=2),
    )
    mask = torch.triu(torch.ones(rows, rows), 1) if masked else None
    parameters = {"headNum": 4, "inputLayout": "BNSD", "scaleValue": SCALE, "preTokens": window, "innerPrecise": 1}
    inputs = [q_bits, k_bits, v_bits, None, None, None, to_bf16(mask.numpy()) if masked else None]
    while inputs[-1] is None:
        inputs.pop()
    return parameters, inputs, (q, k, v), None if mask is None else mask.double()


VARIANTS = [{}, {"kv_heads": 4}, {"masked": False}, {"window": 16}, {"dk": 16, "rows": 300}]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_forward(tmp_path, variant):
    parameters, inputs, (q, k, v), mask = case(**variant)
    top, total, out = forward(q, k, v, mask, parameters["preTokens"])
    outputs = [top.float().numpy(), total.float().numpy(), to_bf16(np.zeros(3)), to_bf16(out.float().numpy())]
    rows = check(tmp_path / "a", "LaserAttentionOperation", parameters, inputs, outputs)
    assert [(row["output"], row["result"]) for row in rows] == [(f"outtensor{i}", "PASS") for i in range(4)], rows
    wrong = out.clone()
    wrong[1, 2, 5] = out[1, 2, 6]
    outputs[3] = to_bf16(wrong.float().numpy())
    rows = check(tmp_path / "b", "LaserAttentionOperation", parameters, inputs, outputs)
    assert [row["result"] for row in rows] == ["PASS", "PASS", "PASS", "FAILED"]
    assert rows[3]["worst_index"].startswith("[1, 2, 5")


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_gradient(tmp_path, variant):
    parameters, inputs, tensors, mask = case(**variant)
    q, k, v = (x.clone().requires_grad_() for x in tensors)
    top, total, out = forward(q, k, v, mask, parameters["preTokens"])
    upstream_bits, upstream = random(*out.shape, seed=3)
    out.backward(upstream)
    mask_bits = None if mask is None else mask.numpy().astype(np.float16)
    given = [
        *inputs[:3], upstream_bits, None, None, None, mask_bits,
        top.detach().float().numpy(), total.detach().float().numpy(), None, out.detach().float().numpy(),
    ]  # fmt: skip
    right = [to_bf16(x.grad.float().numpy()) for x in (q, k, v)]
    rows = check(tmp_path / "a", "LaserAttentionGradOperation", parameters, given, right)
    assert [row["result"] for row in rows] == ["PASS"] * 3, rows
    wrong = [right[0], to_bf16(-k.grad.float().numpy()), right[2]]
    rows = check(tmp_path / "b", "LaserAttentionGradOperation", parameters, given, wrong)
    assert [row["result"] for row in rows] == ["PASS", "FAILED", "PASS"]


def test_partial_results_put_together(tmp_path):
    rng = np.random.default_rng(0)
    lse, parts = rng.standard_normal((3, 10)).astype(np.float32), rng.standard_normal((3, 10, 8)).astype(np.float32)
    weights = torch.from_numpy(lse).double().softmax(0).numpy()
    right = (weights[..., None] * parts).sum(0).astype(np.float32)
    assert (
        check(tmp_path / "a", "FaUpdateOperation", {"faUpdateType": 0, "sp": 3}, [lse, parts], [right])[0]["result"]
        == "PASS"
    )
    wrong = parts.mean(0)
    assert check(tmp_path / "b", "FaUpdateOperation", {"sp": 3}, [lse, parts], [wrong])[0]["result"] == "FAILED"


@pytest.mark.parametrize(
    ("operation", "changes", "result", "said"),
    [
        ("LaserAttentionOperation", {"inputLayout": "SBH"}, "NOT_SUPPORTED", "SBH"),
        ("LaserAttentionOperation", {"preTokens": 0}, "ERROR", "preTokens"),
        ("LaserAttentionOperation", {"inputLayout": 3}, "ERROR", "inputLayout"),
        ("FaUpdateOperation", {"faUpdateType": 1}, "NOT_SUPPORTED", "faUpdateType 1"),
    ],
)
def test_what_cannot_be_judged_says_why(tmp_path, operation, changes, result, said):
    parameters, inputs, _, _ = case()
    rows = check(tmp_path, operation, {**parameters, **changes}, inputs, [np.zeros((2, 4, 40), np.float32)])
    assert {row["result"] for row in rows} == {result}
    assert said in rows[0]["reason"]


def test_shapes_that_do_not_fit(tmp_path):
    parameters, inputs, _, _ = case()
    for i, wrong in enumerate(([1, 2], [0, 1], [0, 1, 2, 6])):
        broken = [
            None if tensor is None else to_bf16(np.ones((2, 3, 5, 7))) if n in wrong[1:] else tensor
            for n, tensor in enumerate(inputs)
        ]
        rows = check(
            tmp_path / str(i),
            "LaserAttentionOperation",
            parameters,
            broken,
            [np.zeros(math.prod((2, 4, 40)), np.float32)],
        )
        assert {row["result"] for row in rows} == {"ERROR"}, rows
