# SPDX-License-Identifier: Apache-2.0
"""One activation that all layers share, called in another order than in golden: equal names, other values."""

from __future__ import annotations

import pytest
import torch
from assay_command import read_csv, run, the_report

import assay


class Model(torch.nn.Module):
    """Three branches through one `act_fn`; `order` is the one in which they are computed."""

    def __init__(self, order):
        super().__init__()
        torch.manual_seed(2)
        self.order = order
        self.act_fn = torch.nn.SiLU()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64, bias=False) for _ in range(3))
        self.head = torch.nn.Linear(64, 16)

    def forward(self, x):
        parts = {i: self.act_fn(self.layers[i](x)) for i in self.order}
        return self.head(parts[0] + parts[1] + parts[2])


@pytest.mark.parametrize("data", ["full", "stats"])
def test_calls_of_a_shared_module_in_another_order(tmp_path, data):
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(3))
    for side, order in (("golden", (0, 1, 2)), ("mine", (2, 0, 1))):
        model = Model(order).eval()
        with torch.no_grad(), assay.capture(model, tmp_path / side, data=data):
            model(x)
    more, pattern = (["--stats"], "statistics_cmp_report_*.csv") if data == "stats" else ([], "msit_cmp_report_*.csv")
    done = run("compare", tmp_path / "golden", tmp_path / "mine", "-o", tmp_path / "r", "-cl", "api", *more)
    assert done.returncode in (0, 1), done
    rows = [row for row in read_csv(the_report(tmp_path / "r", pattern)) if row["node"].startswith("act_fn")]
    assert rows
    assert any("contradict the pair" in row["note"] and float(row["confidence"]) == 0.2 for row in rows)


def test_views_of_a_static_and_of_a_growing_cache(tmp_path):
    """The k-th view of a step is another one in each: a static cache makes its mask of the places that are filled."""
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=128, max_position_embeddings=64,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    caches = {
        "golden": transformers.DynamicCache(config=config),
        "mine": transformers.StaticCache(config=config, max_cache_len=32),
    }
    for side, cache in caches.items():
        with torch.no_grad(), assay.capture(model, tmp_path / side, level="operator", steps=[0, 1]):
            model(torch.arange(3, 15).reshape(1, -1), past_key_values=cache, use_cache=True)
            model(torch.tensor([[20]]), past_key_values=cache, use_cache=True)
    run("compare", tmp_path / "golden", tmp_path / "mine", "-o", tmp_path / "r", "-cl", "api")
    rows = read_csv(the_report(tmp_path / "r"))
    far = [row for row in rows if float(row["relative_euclidean_distance"] or 0) > 0.5]
    assert any("aten.view.default" in row["node"] for row in far)
    assert all("contradict the pair" in row["note"] and float(row["confidence"]) <= 0.2 for row in far), far
