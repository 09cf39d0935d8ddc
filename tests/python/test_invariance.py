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
    (tmp_path / "s.json").write_text(json.dumps({"version": 3}))
    with pytest.raises(assay.FormatError, match="version 3"):
        invariance.load_scenario()
    monkeypatch.delenv("ASSAY_SCENARIO")
    with pytest.raises(assay.FormatError, match="ASSAY_SCENARIO names no scenario"):
        invariance.load_scenario()


def test_a_padded_scenario_says_what_is_padding_and_where_tokens_are():
    left = invariance.Scenario("x", [[0, 0, 5], [1, 2, 3]], decode=[[6, 7]], padding="left", lengths=[1, 3])
    assert left.masks() == [[[0, 0, 1], [1, 1, 1]], [[0, 0, 1, 1], [1, 1, 1, 1]]]
    assert left.positions() == [[[0, 0, 0], [0, 1, 2]], [[1], [3]]]
    right = invariance.Scenario("x", [[5, 0, 0], [1, 2, 3]], padding="right", lengths=[1, 3])
    assert right.masks() == [[[1, 0, 0], [1, 1, 1]]]


def test_all_scenarios_of_one_process_are_read_back(tmp_path, monkeypatch):
    wanted = invariance.scenarios()
    invariance.write_scenarios(wanted, tmp_path / "all.json")
    monkeypatch.setenv("ASSAY_SCENARIOS", str(tmp_path / "all.json"))
    assert invariance.load_scenarios() == wanted
    monkeypatch.delenv("ASSAY_SCENARIOS")
    wanted[3].write(tmp_path / "one.json")
    monkeypatch.setenv("ASSAY_SCENARIO", str(tmp_path / "one.json"))
    assert invariance.load_scenarios() == [wanted[3]]


def test_the_same_row_is_in_every_scenario():
    wanted = invariance.scenarios(vocabulary=50, length=7, batch=4, decode=1, seed=3)
    looked_at = {tuple(token for token in one.rows[one.row] if token != 0) for one in wanted}
    assert len(looked_at) == 1
    assert len({one.decode[0][one.row] for one in wanted if one.decode}) == 1
    assert all(sum(one.chunks) + one.prefix in (0, 3, 7) for one in wanted)
    places = {one.name: one.row for one in wanted}
    assert (places["first-a"], places["last-a"], places["neighbours-a"]) == (0, 3, 2)
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


class OnlyTheLastRow(torch.nn.Module):
    """The last row of a batch reads the first one: a loop that wraps around."""

    def forward(self, x):
        return torch.cat([x[:-1], x[-1:] + 0.5 * x[:1] * (len(x) > 1)])


def test_a_leak_into_the_last_row_alone_is_named():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(256, 8), OnlyTheLastRow())

    @torch.no_grad()
    def run(scenario):
        return [model(torch.tensor(tokens)) for tokens in scenario.calls()]

    found = invariance(run, decode=0)
    assert {one["module"] for one in found.leaks} == {"1"}
    assert {one["times"] for one in found.leaks} == {1}  # last-a against last-b


class Restarting(torch.nn.Module):
    """An engine that counts the positions of every chunk from 0; those of decoded tokens are right."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids, past_key_values, use_cache):
        count = input_ids.shape[1]
        past = past_key_values.get_seq_length() if past_key_values is not None and count == 1 else 0
        positions = torch.arange(past, past + count)[None]
        return self.model(
            input_ids=input_ids, past_key_values=past_key_values, use_cache=use_cache, position_ids=positions
        )


def test_positions_that_a_chunk_counts_anew_are_beyond_rounding_and_only_there():
    drive = invariance.hugging_face(Restarting(shallow("llama")))
    found = invariance(drive, vocabulary=families.VOCABULARY, padding=False)
    assert found.leaks == []
    wrong = [one for one in found.not_invariant if one["beyond_rounding"]]
    assert wrong[0]["module"] == "model.model.rotary_emb"  # what is made of the positions
    assert {name for one in wrong for name in one["scenarios"]} == {"chunks", "prefix"}
    assert "by more than rounding explains" in found.sentence


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_padding_that_nothing_hides_is_beyond_rounding_in_the_attention(name):
    model = shallow(name)

    @torch.no_grad()
    def run(scenario):
        cache = None
        for tokens, positions in zip(scenario.calls(), scenario.positions()):
            result = model(input_ids=torch.tensor(tokens), past_key_values=cache, position_ids=torch.tensor(positions))
            cache = result.past_key_values

    found = invariance(run, vocabulary=families.VOCABULARY)
    assert found.leaks == []  # the padding is the row's own
    wrong = [one for one in found.not_invariant if one["beyond_rounding"]]
    assert [(one["module"].rsplit(".", 1)[-1][-4:], one["scenarios"]) for one in wrong] == [("attn", ["padded-left-a"])]
    healthy = invariance(invariance.hugging_face(model), vocabulary=families.VOCABULARY)
    assert not any(one["beyond_rounding"] for one in healthy.not_invariant)
    assert "beyond" not in healthy.sentence and "more than rounding" not in healthy.sentence


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


NAMES = ("chunks", "padded-left-a")


def test_the_kernels_that_are_not_invariant_are_those_that_brute_force_finds():
    model, largest = Kernels().eval(), 9

    @torch.no_grad()
    def run(scenario):
        for tokens in scenario.calls():
            result = model(torch.tensor(tokens))
        return result

    found = invariance(run, vocabulary=64, length=3, batch=largest, decode=0)
    wanted = invariance.scenarios(vocabulary=64, length=3, batch=largest, decode=0)
    row = torch.tensor(wanted[0].rows)
    expected = {}
    with torch.no_grad():
        for name, kernel in model.kernels.items():
            alone = kernel(model.table(row))
            for count in range(2, largest + 1):
                if not torch.equal(kernel(model.table(row.expand(count, -1)))[:1], alone):
                    expected[f"kernels.{name}"] = count
                    break
    in_chunks, padded = set(), set()
    with torch.no_grad():
        for name, kernel in model.kernels.items():
            whole = kernel(model.table(row))
            if not torch.equal(torch.cat([kernel(model.table(row[:, a:b])) for a, b in ((0, 2), (2, 3))], 1), whole):
                in_chunks.add(f"kernels.{name}")
            (wide,) = [one for one in wanted if one.name == "padded-left-a"]
            behind = kernel(model.table(torch.tensor(wide.rows)))[wide.row : wide.row + 1, 1:]
            if not torch.equal(behind, whole):
                padded.add(f"kernels.{name}")
    if not expected:
        pytest.skip("every kernel of this CPU is invariant")
    assert {one["module"]: one["from_batch"] for one in found.not_invariant if one["from_batch"]} == expected
    listed = {name: {one["module"] for one in found.not_invariant if name in one["scenarios"]} for name in NAMES}
    assert (listed["chunks"], listed["padded-left-a"]) == (in_chunks, padded)
    assert in_chunks and padded
    assert not any(one["beyond_rounding"] for one in found.not_invariant)
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
