# SPDX-License-Identifier: Apache-2.0
"""Layouts that do not tell the order of execution: it comes from the other run, or nothing is called the first.

The model registers its modules in another order than it calls them, as Hugging Face's decoder layers do.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from assay_command import run
from torch import nn

import assay


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(32))

    def forward(self, x):
        return x * self.weight * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(32, 32, bias=False)

    def forward(self, x):
        return self.q_proj(x)


class Layer(nn.Module):
    """Registered: attention, norm. Called: norm, attention."""

    def __init__(self):
        super().__init__()
        self.attn = Attention()
        self.input_layernorm = Norm()

    def forward(self, x):
        return x + self.attn(self.input_layernorm(x))


class Model(nn.Module):
    """Registered, and in the alphabet: head before the layers. Called last."""

    def __init__(self):
        super().__init__()
        self.a_head = nn.Linear(32, 16, bias=False)
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.a_head(x)


def make_model(faulty: bool) -> Model:
    torch.manual_seed(3)
    model = Model().eval()
    if faulty:
        model.layers[0].input_layernorm.register_forward_hook(lambda _module, _inputs, output: output * 1.5)
    return model


def call(model):
    with torch.no_grad():
        model(torch.randn(4, 32, generator=torch.Generator().manual_seed(7)))


def native(path, faulty=False, **options):
    model = make_model(faulty)
    with assay.capture(model, str(path), **options):
        call(model)
    return path


def outputs_of(faulty):
    """(name, input, output) of every module, by torch's own hooks."""
    model = make_model(faulty)
    seen = []
    for name, module in model.named_modules():
        if not isinstance(module, nn.ModuleList):
            module.register_forward_hook(
                lambda _module, inputs, output, name=name: seen.append((name, inputs[0].clone(), output.clone()))
            )
    call(model)
    return seen


def tree_of(module, name="root"):
    children = [tree_of(child, f"{name}.{key}") for key, child in module.named_children()]
    return {"name": name, "type": type(module).__name__, "children": children}


def strict(path, faulty=False):
    """A hook dump of the old API: model_tree.json has the modules as they were registered."""
    rank = path / "msit_dump_20250220_083154" / "torch_tensors" / "cpu_1"
    for name, before, after in outputs_of(faulty):
        folder = rank / "0" / (f"root.{name}" if name else "root")
        folder.mkdir(parents=True)
        torch.save(before, folder / "input_0.pth")
        torch.save(after, folder / "output.pth")
    (rank / "model_tree.json").write_text(json.dumps(tree_of(make_model(False))))
    return rank


def arrays(path, faulty=False):
    """Somebody's own hooks: one array a module."""
    path.mkdir()
    for name, _before, after in outputs_of(faulty):
        if name:
            np.save(path / f"{name}.npy", after.numpy())
    return path


def compared(golden, mine, tmp_path, *more):
    done = run("compare", golden, mine, "-o", tmp_path / "report", "-cl", "api", "--rel-l2", "1e-3", *more)
    assert done.returncode == 1, done
    return done.stdout


@pytest.mark.parametrize("write", [strict, arrays])
def test_mine_takes_the_order_of_a_golden_that_knows_it(tmp_path, write):
    out = compared(native(tmp_path / "golden"), write(tmp_path / "mine", faulty=True), tmp_path)
    # The norm is called before the attention, and everything before the head.
    assert "first beyond its limit, in execution order:\n  step 0  layers.0.input_layernorm output" in out


def test_rows_stand_in_golden_s_order(tmp_path):
    compared(native(tmp_path / "golden"), strict(tmp_path / "mine", faulty=True), tmp_path, "--jsonl")
    (report,) = (tmp_path / "report").glob("*.jsonl")
    nodes = [json.loads(line)["node"].removesuffix(" output") for line in report.open()]
    outputs = [node for node in nodes if " input" not in node]
    assert [name or "(model)" for name, _before, _after in outputs_of(False)] == outputs


def test_a_tensor_without_a_namesake_leaves_the_order_open(tmp_path):
    mine = arrays(tmp_path / "mine", faulty=True)
    np.save(mine / "extra.npy", np.ones(5, np.float32))
    out = compared(native(tmp_path / "golden"), mine, tmp_path)
    assert "in execution order" not in out


@pytest.mark.parametrize("write", [strict, arrays])
def test_without_an_order_on_either_side_none_is_called_the_first(tmp_path, write):
    out = compared(write(tmp_path / "golden"), write(tmp_path / "mine", faulty=True), tmp_path)
    assert "in execution order" not in out
    assert "the first is not known (no order of execution)" in out


def test_a_tree_that_numbers_its_modules_has_an_order(tmp_path):
    golden, mine = strict(tmp_path / "golden"), strict(tmp_path / "mine", faulty=True)
    calls = {name: number for number, (name, _before, _after) in enumerate(outputs_of(False))}

    def number(node):
        node["exec_order"] = calls.get(node["name"].removeprefix("root").removeprefix("."), 0)
        for child in node["children"]:
            number(child)
        return node

    (mine / "model_tree.json").write_text(json.dumps(number(tree_of(make_model(False)))))
    (golden / "model_tree.json").write_text((mine / "model_tree.json").read_text())
    out = compared(golden, mine, tmp_path)
    assert "first beyond its limit, in execution order:\n  step 0  layers.0.input_layernorm output" in out


def test_locate_names_the_module_that_ran_first(tmp_path):
    golden = native(tmp_path / "golden", level="operator", weights=True)
    verdict = json.loads(run("locate", golden, strict(tmp_path / "mine", faulty=True), "--json").stdout)
    assert verdict["order_known"] is True
    assert verdict["first_bad"]["module"] == "layers.0.input_layernorm"


def test_locate_without_an_order_calls_nothing_the_first(tmp_path):
    golden = strict(tmp_path / "golden")
    mine = strict(tmp_path / "mine")
    broken = mine / "0" / "root.layers.1.attn.q_proj" / "output.pth"
    torch.save(torch.full((4, 32), float("nan")), broken)
    done = run("locate", golden, mine, "--json")
    verdict = json.loads(done.stdout)
    assert done.returncode == 1
    assert (verdict["order_known"], verdict["outcome"], verdict["first_bad"]) == (False, "wrong", None)
    assert [finding["module"] for finding in verdict["candidates"]] == ["layers.1.attn.q_proj"]
    assert verdict["sentence"].startswith("bad: layers.1.attn.q_proj")
    assert "which operator ran first is not known" in verdict["sentence"]


def test_healthy_runs_without_an_order_name_no_first_value(tmp_path):
    def noisy(path, seed, size):
        rank = strict(path)
        generator = torch.Generator().manual_seed(seed)
        for file in rank.glob("0/*/*.pth"):
            value = torch.load(file)
            torch.save(value * (1 + size * torch.randn(value.shape, generator=generator)), file)
        return rank

    golden = strict(tmp_path / "golden")
    floors = [f"--floor-run={golden}:{noisy(tmp_path / f'healthy{seed}', seed, 1e-5)}" for seed in range(5)]
    done = run("locate", golden, noisy(tmp_path / "mine", 9, 1e-2), *floors)
    assert "cannot judge: values differ more from golden than healthy runs do" in " ".join(done.stdout.split())
    assert "first bad" not in done.stdout
