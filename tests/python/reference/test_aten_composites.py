# SPDX-License-Identifier: Apache-2.0
"""assay.reference.aten: operators with a whole module in them, against torch's own in fp64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import assay
from assay import reference

BATCH, TOKENS, WIDTH, HEADS = 2, 5, 12, 3


def doubles(value: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(value, dtype=np.float64))


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def attention_arguments() -> dict[str, Any]:
    torch.manual_seed(4)
    return {
        "num_head": HEADS,
        "qkv_weight": draw(3 * WIDTH, WIDTH),
        "qkv_bias": draw(3 * WIDTH),
        "proj_weight": draw(WIDTH, WIDTH),
        "proj_bias": draw(WIDTH),
    }


MASKS = {
    "none": (None, None),
    "pairs": (torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1), 0),
    "keys": (torch.arange(TOKENS)[None] >= torch.tensor([[4], [3]]), 1),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("need_weights, average", [(False, True), (True, True), (True, False)])
def test_attention_with_its_projections(mask, need_weights, average):
    # given tokens that attend to themselves
    x = draw(BATCH, TOKENS, WIDTH)
    hidden, kind = MASKS[mask]
    arguments = {
        "query": x, "key": x, "value": x, "embed_dim": WIDTH, **attention_arguments(),
        "mask": hidden, "need_weights": need_weights, "average_attn_weights": average, "mask_type": kind,
    }  # fmt: skip
    # when
    expected = torch.ops.aten._native_multi_head_attention.default(**arguments)
    found = reference.aten("aten._native_multi_head_attention.default", **arguments)
    # then both outputs are torch's; without weights there is none
    assert torch.allclose(doubles(found[0]), expected[0], rtol=1e-12, atol=1e-12)
    assert (found[1] is None) == (not need_weights)
    if need_weights:
        assert torch.allclose(doubles(found[1]), expected[1], rtol=1e-12, atol=1e-12)


def test_attention_to_other_tokens():
    # given queries, keys and values of their own, of which torch's kernel takes equal shapes only
    query, key, value = draw(BATCH, 3, WIDTH), draw(BATCH, TOKENS, WIDTH), draw(BATCH, TOKENS, WIDTH)
    with_ = attention_arguments()
    found = reference.aten(
        "aten._native_multi_head_attention.default",
        query=query, key=key, value=value, embed_dim=WIDTH, **with_, need_weights=False,
    )  # fmt: skip
    expected, _ = torch.nn.functional.multi_head_attention_forward(
        query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1), WIDTH, HEADS,
        with_["qkv_weight"], with_["qkv_bias"], None, None, False, 0.0, with_["proj_weight"], with_["proj_bias"],
    )  # fmt: skip
    assert torch.allclose(doubles(found[0]), expected.transpose(0, 1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_a_layer_of_an_encoder(mask, gelu, norm_first):
    with_ = attention_arguments()
    hidden, kind = MASKS[mask]
    arguments = {
        "src": draw(BATCH, TOKENS, WIDTH), "embed_dim": WIDTH, "num_heads": with_.pop("num_head"), **with_,
        "use_gelu": gelu, "norm_first": norm_first, "eps": 1e-3,
        "norm_weight_1": draw(WIDTH), "norm_bias_1": draw(WIDTH),
        "norm_weight_2": draw(WIDTH), "norm_bias_2": draw(WIDTH),
        "ffn_weight_1": draw(20, WIDTH), "ffn_bias_1": draw(20),
        "ffn_weight_2": draw(WIDTH, 20), "ffn_bias_2": draw(WIDTH),
        "mask": hidden, "mask_type": kind,
    }  # fmt: skip
    expected = torch.ops.aten._transformer_encoder_layer_fwd.default(**arguments)
    (found,) = reference.aten("aten._transformer_encoder_layer_fwd.default", **arguments)
    assert torch.allclose(doubles(found), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_a_layer_of_an_lstm(reverse, bias):
    # given a layer of torch, whose own operators are the oracle in fp64
    torch.manual_seed(5)
    lstm = torch.nn.LSTM(6, 4, bias=bias).double()
    x, hx, cx = draw(7, 2, 6), draw(1, 2, 4), draw(1, 2, 4)
    with torch.no_grad():
        expected, (hy, cy) = lstm(x.flip(0) if reverse else x, (hx, cx))
    weights = [getattr(lstm, name) for name in lstm._flat_weights_names]
    # when
    out, h, c, kept = reference.aten(
        "aten.mkldnn_rnn_layer.default",
        input=x, weight0=weights[0], weight1=weights[1],
        weight2=weights[2] if bias else torch.zeros(0), weight3=weights[3] if bias else torch.zeros(0),
        hx_=hx, cx_=cx, reverse=reverse, batch_sizes=[], mode=2, hidden_size=4, num_layers=1, has_biases=bias,
        bidirectional=False, batch_first=False, train=False,
    )  # fmt: skip
    # then
    for ours, theirs in ((out, expected.flip(0) if reverse else expected), (h, hy), (c, cy)):
        assert torch.allclose(doubles(ours), theirs, rtol=1e-12, atol=1e-12)
    assert kept is None


def test_what_does_not_fit_is_refused():
    x = draw(BATCH, TOKENS, WIDTH)
    for wrong in ({"num_head": 5}, {"num_head": 0}, {"qkv_weight": draw(WIDTH, WIDTH)}, {"query": draw(WIDTH)}):
        arguments = {"query": x, "key": x, "value": x, "embed_dim": WIDTH, **attention_arguments(), **wrong}
        with pytest.raises(assay.errors.Error):
            reference.aten("aten._native_multi_head_attention.default", **arguments)
