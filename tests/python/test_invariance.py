# SPDX-License-Identifier: Apache-2.0
"""assay.invariance: leaks between rows planted in models of seven families, kernels by brute force, healthy models.

All combinations: `python -m bench.faults.leaks`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

import assay

sys.path.insert(0, str(Path(__file__).parents[2]))
invariance = assay.invariance
families = pytest.importorskip("bench.faults.families")
leaks = pytest.importorskip("bench.faults.leaks")


@pytest.fixture(autouse=True)
def one_thread():
    """Threads that wait for each other make a busy machine slow."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_a_scenario_says_its_forward_calls_and_is_read_back(tmp_path, monkeypatch):
    scenario = invariance.Scenario("x", [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]], chunks=[2, 1], prefix=2, decode=[[11, 12]])
    assert scenario.calls() == [[[1, 2], [6, 7]], [[3, 4], [8, 9]], [[5], [10]], [[11], [12]]]
    scenario.write(tmp_path / "s.json")
    monkeypatch.setenv("ASSAY_SCENARIO", str(tmp_path / "s.json"))
    assert invariance.load_scenario() == scenario
    (tmp_path / "s.json").write_text(json.dumps({"version": 2}))
    with pytest.raises(assay.FormatError, match="version 2"):
        invariance.load_scenario()
    monkeypatch.delenv("ASSAY_SCENARIO")
    with pytest.raises(assay.FormatError, match="ASSAY_SCENARIO names no scenario"):
        invariance.load_scenario()


def test_the_same_row_is_in_every_scenario():
    wanted = invariance.scenarios(vocabulary=50, length=7, batch=4, decode=1, seed=3)
    looked_at = {(tuple(one.rows[one.row]), one.decode[0][one.row]) for one in wanted}
    assert len(looked_at) == 1
    assert all(sum(one.chunks) + one.prefix in (0, 3, 7) for one in wanted)
    near = [one for one in wanted if one.name.startswith("neighbours-")]
    assert len({json.dumps(one.rows) for one in near}) == len(near) == 3
    assert all(len(one.rows) == 4 and 0 < one.row < 3 for one in near)


def shallow(name: str) -> torch.nn.Module:
    """A model of the family with two layers."""
    return leaks.shortened(families.build(name, 1, width=64), name, 2)


PLANTED = [
    ("llama", "neighbour's key"),
    ("llama", "shared cache slot"),
    ("llama", "expert capacity"),
    ("gpt2", "statistics over the batch"),
    ("neox", "mask off by one row"),
    ("mixtral", "stale buffer"),
]


@pytest.mark.parametrize(("name", "kind"), PLANTED)
def test_a_planted_leak_is_named(name, kind):
    model, batch = shallow(name), leaks.Batch()
    with leaks.planted(model, families.places_of(name), kind, 1, batch) as module:
        found = invariance(leaks.driven(model, batch), vocabulary=families.VOCABULARY)
    assert not found
    assert found.leaks[0]["module"] == module
    assert found.sentence.startswith(f"leaks: {module} (")
    assert str(found).count("\nnext: ") == 1


@pytest.mark.parametrize("name", ["llama", "mixtral"])
def test_no_leak_is_claimed_in_a_healthy_model(name):
    found = invariance(invariance.hugging_face(shallow(name)), vocabulary=families.VOCABULARY)
    assert found.leaks == []
    fields = found.to_dict()
    assert fields["judged"] > 100
    # Which tokens an expert gets depends on the whole batch: such modules are judged from outside.
    assert all("experts" in module for module in fields["content_dependent"])
    assert bool(fields["content_dependent"]) == (name == "mixtral")
    compared = {one["scenario"] for one in fields["logits"]}
    assert compared == {one for one in fields["scenarios"] if one != "equal-1"}


class Kernels(torch.nn.Module):
    """Kernels side by side on the same values, so that none hides another."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(64, 64)
        self.kernels = torch.nn.ModuleDict(
            {
                "wide": torch.nn.Linear(64, 200),
                "square": torch.nn.Linear(64, 64, bias=False),
                "narrow": torch.nn.Linear(64, 32, bias=False),
                "norm": torch.nn.LayerNorm(64),
                "gelu": torch.nn.GELU(),
                "softmax": torch.nn.Softmax(-1),
            }
        )

    def forward(self, ids):
        x = self.table(ids)
        return torch.cat([kernel(x) for kernel in self.kernels.values()], -1)


def test_the_kernels_that_are_not_invariant_are_those_that_brute_force_finds():
    model, largest = Kernels().eval(), 9

    @torch.no_grad()
    def run(scenario):
        for tokens in scenario.calls():
            result = model(torch.tensor(tokens))
        return result

    found = invariance(run, vocabulary=64, length=3, batch=largest, decode=0)
    row = torch.tensor(invariance.scenarios(vocabulary=64, length=3, batch=largest, decode=0)[0].rows)
    expected = {}
    with torch.no_grad():
        for name, kernel in model.kernels.items():
            alone = kernel(model.table(row))
            for count in range(2, largest + 1):
                if not torch.equal(kernel(model.table(row.expand(count, -1)))[:1], alone):
                    expected[f"kernels.{name}"] = count
                    break
    if not expected:
        pytest.skip("every kernel of this CPU is invariant")
    assert {one["module"]: one["from_batch"] for one in found.not_invariant} == expected
    assert found.leaks == []


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_kernel_that_asks_for_the_number_of_threads_is_listed():
    class Net(torch.nn.Module):
        def forward(self, ids):
            return -ids.float()[..., None]

    library = torch.library.Library("aten", "IMPL")
    library.impl("neg", lambda x: torch.mul(x, -float(torch.get_num_threads())), "CPU")
    model = Net()

    def run(scenario):
        torch.set_num_threads(scenario.threads or 1)
        return [model(torch.tensor(tokens)) for tokens in scenario.calls()]

    try:
        found = invariance(run, decode=0)
    finally:
        library._destroy()
    (listed,) = found.to_dict()["threads"]
    assert (listed["operator"], listed["places"]) == ("aten.neg.default", 1)
    assert found and "depends on the number of threads: aten.neg.default in " in str(found)


def test_a_program_that_calls_no_module_is_refused():
    with pytest.raises(assay.FormatError, match="nothing was captured"):
        invariance(lambda scenario: None)


@pytest.mark.parametrize("wrong", [{"length": 2}, {"batch": 1}, {"vocabulary": 2}])
def test_scenarios_that_cannot_be_are_refused(wrong):
    with pytest.raises(assay.FormatError, match="a prompt has at least 3 tokens, a batch 2 rows"):
        invariance.scenarios(**wrong)
