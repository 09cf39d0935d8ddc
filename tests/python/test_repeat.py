# SPDX-License-Identifier: Apache-2.0
"""assay.repeat: races, reorderings and random operators planted in a model, and models that repeat."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

import assay


class Gate(torch.nn.Module):
    """x times x: the operator that the tests make wrong."""

    def forward(self, x):
        return x * x


def model_of(*middle: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 16), *middle, torch.nn.Linear(16, 4)).eval()


def caller(model: torch.nn.Module):
    inputs = torch.linspace(-1, 1, 64).reshape(4, 16)

    @torch.no_grad()
    def call():
        return model(inputs)

    return call


@pytest.fixture
def kernel(monkeypatch):
    """Puts a kernel of ours in the place of an operator's for the CPU."""
    libraries = []

    def replace(name, function):
        library = torch.library.Library("aten", "IMPL")
        library.impl(name, function, "CPU")
        libraries.append(library)

    yield replace
    for library in libraries:
        library._destroy()


def racing_mul(calls_of_a_race):
    """A multiplication that is wrong in one element in one call of some."""
    calls = 0

    def mul(a, b):
        nonlocal calls
        calls += 1
        out = torch.empty_like(a)
        torch.mul(a, b, out=out)
        if calls % calls_of_a_race == 0:
            out[1, 3] += 0.5
        return out

    return mul


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_race_in_one_of_ten_calls_is_named_and_is_a_wrong_element(kernel):
    kernel("mul.Tensor", racing_mul(10))
    model = model_of(Gate())
    found = assay.repeat(caller(model), n=10)
    assert not found
    first = found.first
    assert (first["cause"], first["module"], first["operator"]) == ("operator", "1", "aten.mul.Tensor")
    assert first["runs"] == [9]
    assert "its inputs are equal bit for bit, its output is not, in run 9" in found.sentence
    assert found.elements["kind"] == "wrong element"
    # The run that is wrong is the second of the two: 0.5 more than what the first has.
    assert (found.elements["count"], found.elements["different"], found.elements["place"]) == (64, 1, "[1, 3]")
    assert found.elements["other"] - found.elements["first"] == pytest.approx(0.5, abs=1e-6)
    assert str(found).count("\nnext: ") == 1


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_sums_in_another_order_are_a_reordering(kernel):
    shuffled = random.Random(1)

    def summed(a, dims=None, keepdim=False, dtype=None):
        values, total = a.numpy(), np.zeros(a.shape[:-1], np.float32)
        for i in shuffled.sample(range(a.shape[-1]), a.shape[-1]):
            total += values[..., i]
        return torch.from_numpy(total)

    class Sum(torch.nn.Module):
        def forward(self, x):
            return x.sum(dim=-1)

    kernel("sum.dim_IntList", summed)
    torch.manual_seed(0)
    inputs = torch.randn(64, 256)
    found = assay.repeat(lambda: model(inputs), (model := Sum()), n=3)
    assert found.first["operator"] == "aten.sum.dim_IntList"
    assert found.elements["kind"] == "reordering"
    assert found.elements["different"] > 16  # most of 64 sums of 256 numbers


def test_dropout_without_a_seed_is_said_to_be_random():
    model = model_of(torch.nn.Dropout(0.5)).train()
    found = assay.repeat(caller(model), model, n=3)
    assert found.first["cause"] == "random"
    assert found.first["module"] == "1"
    assert found.elements is None
    assert found.to_dict()["next"].startswith("assay repeat -seed")


def test_dropout_with_a_seed_repeats():
    model = model_of(torch.nn.Dropout(0.5)).train()

    def call():
        torch.manual_seed(5)
        caller(model)()

    assert assay.repeat(call, model, n=3).repeats


def test_an_input_that_is_another_one_each_time_is_no_operators_fault():
    model = model_of(Gate())
    found = assay.repeat(lambda: model(torch.rand(2, 16)), model, n=3)
    assert found.first["cause"] == "input"
    assert {one["cause"] for one in found.to_dict()["findings"]} == {"input"}


def test_a_healthy_model_repeats_twenty_times_and_its_module_is_found():
    found = assay.repeat(caller(model_of(torch.nn.LayerNorm(16), torch.nn.GELU())), n=20)
    assert found
    # Two products with a transposed weight each, a norm and gelu.
    assert found.sentence == "repeats: 20 runs are equal bit for bit: 6 operators in 1 step"


def test_a_model_that_takes_another_way_is_told(tmp_path):
    calls = iter(range(100))

    class Way(torch.nn.Module):
        def forward(self, x):
            return x.abs() if next(calls) == 1 else x.neg()

    model = model_of(Way())
    found = assay.repeat(caller(model), model, n=2, path=tmp_path / "runs")
    assert found.first["cause"] == "other operators"
    assert assay.open(str(tmp_path / "runs" / "run-1")).records


def test_what_cannot_be_repeated_is_refused():
    with pytest.raises(assay.FormatError, match=r"^nothing was captured: "):
        assay.repeat(lambda: torch.ones(2))
    with pytest.raises(assay.FormatError, match="n must be at least 2"):
        assay.repeat(lambda: None, n=1)
