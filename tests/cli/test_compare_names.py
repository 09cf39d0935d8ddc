# SPDX-License-Identifier: Apache-2.0
"""The same modules under other names: wrappers, prefixes, several models called in another order."""

from __future__ import annotations

import pytest
import torch
from assay_command import read_csv, run, the_report
from torch import nn

import assay


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return x + self.proj(self.norm(x))


class Net(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 8)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Wrapper(nn.Module):
    """Hands on what its one child returns, as DDP, torch.compile and the others do."""

    def __init__(self, **child):
        super().__init__()
        ((self.child, module),) = child.items()
        self.add_module(self.child, module)

    def forward(self, x):
        return getattr(self, self.child)(x)


def net(seed=0, width=32, depth=3):
    torch.manual_seed(seed)
    return Net(width, depth).eval()


def capture(path, models, calls, **options):
    """calls: (model, width) in the order of execution."""
    with assay.capture(models, str(path), **options), torch.no_grad():
        for model, width in calls:
            model(torch.randn(4, width, generator=torch.Generator().manual_seed(width)))
    return path


def alone(path, model):
    return capture(path, model, [(model, 32)])


WRAPPINGS = {
    "DDP": lambda model: Wrapper(module=model),
    "torch.compile": lambda model: Wrapper(_orig_mod=model),
    "FSDP": lambda model: Wrapper(_fsdp_wrapped_module=model),
    "two of them": lambda model: Wrapper(module=Wrapper(_orig_mod=model)),
    "PEFT": lambda model: Wrapper(base_model=Wrapper(model=model)),
    "any other": lambda model: Wrapper(tower=model),
}


def layers_wrapped_in(name):
    """Each layer by itself, so that no prefix of the whole model explains its names."""

    def wrapped(model):
        for index, layer in enumerate(model.layers):
            model.layers[index] = Wrapper(**{name: layer})
        return model

    return wrapped


WRAPPINGS |= {
    "checkpointed layers": layers_wrapped_in("_checkpoint_wrapped_module"),
    "compiled layers": layers_wrapped_in("_orig_mod"),
    "FSDP of layers": layers_wrapped_in("_fsdp_wrapped_module"),
    "DeepSpeed of layers": layers_wrapped_in("_forward_module"),
    "adapters of layers": layers_wrapped_in("base_layer"),
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("turned", [False, True])
def test_wrappers_are_seen_through_on_either_side(tmp_path, wrapping, turned):
    plain = alone(tmp_path / "plain", net())
    wrapped = alone(tmp_path / "wrapped", WRAPPINGS[wrapping](net()))
    golden, mine = (wrapped, plain) if turned else (plain, wrapped)
    done = run("compare", golden, mine, "-cl", "api", "-o", tmp_path / "r")
    rows = read_csv(the_report(tmp_path / "r"))
    assert {row["matched_by"] for row in rows} == {"equal names"}
    # 3 layers of 3 modules, the head and the model, an input and an output each.
    assert len(rows) == 22
    assert "22 of 22 pairs equal in every value" in done.stdout
    assert run("locate", golden, mine).stdout.startswith("clean: all ")


def test_another_module_inside_a_wrapper_is_still_a_difference(tmp_path):
    golden = alone(tmp_path / "golden", net())
    mine = alone(tmp_path / "mine", Wrapper(module=net(seed=1)))
    assert "clean" not in run("locate", golden, mine).stdout
    assert "same:" not in run("compare", golden, mine, "-o", tmp_path / "r").stdout


def test_equal_values_under_other_parents_are_not_clean(tmp_path):
    """Names exchanged between two equal layers: values alone would pair everything."""
    golden = alone(tmp_path / "golden", net())
    mine = alone(tmp_path / "mine", net())
    records = mine / "rank0" / "records.jsonl"
    exchanged = records.read_text().replace('"layers.0.', '"layers.X.').replace('"layers.1.', '"layers.0.')
    records.write_text(exchanged.replace('"layers.X.', '"layers.1.'))
    assert "clean" not in run("locate", golden, mine).stdout


@pytest.mark.parametrize("weights", [False, True])
def test_two_models_are_paired_by_shapes_not_by_the_order_of_calls(tmp_path, weights):
    script = tmp_path / "two.py"
    script.write_text(TWO_MODELS)
    python = __import__("sys").executable
    more = ["--weights"] if weights else []
    for order in ("td", "dt"):
        done = run("dump", *more, "-o", tmp_path / order, "--", python, script, order)
        assert done.returncode == 0, done
    done = run("compare", tmp_path / "td", tmp_path / "dt", "-cl", "api", "-o", tmp_path / "r")
    assert "same: " in done.stdout, done.stdout
    assert "matched 100.0 %" in done.stdout
    assert "by weights and shapes" in done.stderr
    assert run("locate", tmp_path / "td", tmp_path / "dt").stdout.startswith("clean: ")


def test_two_towers_of_equal_shapes_are_paired_by_weights(tmp_path):
    script = tmp_path / "two.py"
    script.write_text(TWO_MODELS.replace("Net(16, 2)", "Net(32, 3)").replace("4, 16", "4, 32"))
    python = __import__("sys").executable
    for order in ("td", "dt"):
        assert run("dump", "--weights", "-o", tmp_path / order, "--", python, script, order).returncode == 0
    done = run("compare", tmp_path / "td", tmp_path / "dt", "-cl", "api", "-o", tmp_path / "r")
    assert "same: " in done.stdout, done.stdout


TWO_MODELS = """
import sys, torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, 8)
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

torch.manual_seed(0)
target, draft = Net(32, 3).eval(), Net(16, 2).eval()
generator = torch.Generator().manual_seed(5)
inputs = {"t": torch.randn(4, 32, generator=generator), "d": torch.randn(4, 16, generator=generator)}
with torch.no_grad():
    for letter in sys.argv[1]:
        {"t": target, "d": draft}[letter](inputs[letter])
"""
