# SPDX-License-Identifier: Apache-2.0
"""Dumps that transformers' own model_addition_debugger writes: shown, compared with each other and with our capture.

The oracle is torch: forward hooks on the same model keep what each leaf module returned.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from assay_command import read_csv, run, the_report

import assay

transformers = pytest.importorskip("transformers")
debugging = pytest.importorskip("transformers.model_debugging_utils")


def make_model(layers: int = 4):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return transformers.LlamaForCausalLM(config).eval()


IDS = torch.tensor([[1, 7, 3, 9, 2]])


def dump(folder: Path, model, use_repr: bool, prune: bool = False) -> Path:
    with debugging.model_addition_debugger_context(
        model, debug_path=str(folder), do_prune_layers=prune, use_repr=use_repr
    ):
        model(input_ids=IDS, use_cache=False)
    return folder


def hooked(model) -> dict[str, torch.Tensor]:
    """What each leaf module returned; of one that is called several times the last."""
    outputs: dict[str, torch.Tensor] = {}
    hooks = [
        module.register_forward_hook(lambda m, i, out, name=name: outputs.__setitem__(name, out))
        for name, module in model.named_modules()
        if not list(module.children())
    ]
    with torch.no_grad():
        outputs["logits"] = model(input_ids=IDS, use_cache=False).logits
    for hook in hooks:
        hook.remove()
    return outputs


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture(scope="module")
def files(model, tmp_path_factory) -> Path:
    return dump(tmp_path_factory.mktemp("files"), model, use_repr=False)


@pytest.fixture(scope="module")
def printed(model, tmp_path_factory) -> Path:
    return dump(tmp_path_factory.mktemp("printed"), model, use_repr=True)


def test_tensors_are_those_that_the_modules_returned(files, model):
    opened = assay.open(files)
    assert opened.layout == "transformers-debug"
    outputs = {r.node: r for r in opened.records if r.role == "output" and r.slot == ""}
    expected = hooked(model)
    logits = expected.pop("logits")
    assert outputs.keys() == {name for name, value in expected.items() if torch.is_tensor(value)}
    for name, record in outputs.items():
        assert torch.equal(torch.from_numpy(record.numpy().copy()), expected[name]), name
    [whole] = [r for r in opened.records if r.node == "" and r.role == "output"]
    assert whole.slot == "logits" and torch.equal(torch.from_numpy(whole.numpy().copy()), logits)
    [ids] = [r for r in opened.records if r.slot == "kwargs.input_ids" and r.node == ""]
    assert ids.numpy().tolist() == IDS.tolist()


def test_records_stand_in_the_order_of_the_calls(files, model):
    called: list[str] = []
    hooks = [
        module.register_forward_pre_hook(lambda m, args, name=name: called.append(name))
        for name, module in model.named_modules()
        if not list(module.children())
    ]
    with torch.no_grad():
        model(input_ids=IDS, use_cache=False)
    for hook in hooks:
        hook.remove()
    outputs = [r.node for r in assay.open(files).records if r.role == "output" and r.slot in ("", "0") and r.node]
    assert outputs == called


def test_show_says_what_it_is(files, printed, tmp_path, model):
    done = run("show", files)
    assert done.returncode == 0 and "transformers-debug" in done.stdout and "q_proj" in done.stdout
    done = run("show", printed)
    assert "use_repr=False keeps them" in done.stdout
    pruned = dump(tmp_path, model, use_repr=True, prune=True)
    done = run("show", pruned)
    assert "missed 2 x model.layers.1 to 2: left out when the tree was written (do_prune_layers)" in done.stdout


def test_statistics_are_those_of_torch(printed, model):
    expected = hooked(model)
    for record in assay.open(printed).records:
        if record.role != "output" or record.slot != "" or record.node not in expected:
            continue
        value = expected[record.node].double()
        for name, number in (("min", value.min()), ("max", value.max()), ("l2_norm", value.norm())):
            assert getattr(record.stats, name) == pytest.approx(float(number), rel=2e-4, abs=1e-6), record.node


def test_it_equals_our_own_capture(files, model, tmp_path):
    with assay.capture(model, tmp_path / "run"), torch.no_grad():
        model(input_ids=IDS, use_cache=False)
    done = run("compare", files, tmp_path / "run", "-o", tmp_path / "report", "-cl", "api")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = read_csv(the_report(tmp_path / "report"))
    products = [row for row in rows if row["node"].endswith("_proj output")]
    assert len(products) >= 4 * 7
    assert {row["max_absolute_error"] for row in products} == {"0.0"}


@pytest.mark.parametrize("use_repr", [False, True])
def test_the_first_wrong_module_is_named(files, printed, tmp_path, use_repr):
    changed = make_model()
    with torch.no_grad():
        changed.model.layers[2].mlp.up_proj.weight.mul_(1.5)
    mine = dump(tmp_path / "mine", changed, use_repr=use_repr)
    done = run("compare", printed if use_repr else files, mine, "-o", tmp_path / "report", "-cl", "api")
    assert done.returncode == 0, done.stderr
    rows = read_csv(sorted((tmp_path / "report").glob("*_cmp_report_*.csv"))[0])
    column = "l2norm_stat_relative_error" if use_repr else "relative_euclidean_distance"
    first = next(row for row in rows if row[column] and float(row[column]) > 1e-4)
    assert first["node"] == "model.layers.2.mlp.up_proj output"


def test_a_module_that_is_called_twice_overwrote_its_file(tmp_path):
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = torch.nn.Tanh()

        def forward(self, x):
            return self.act(self.act(x))

    with debugging.model_addition_debugger_context(Twice(), debug_path=str(tmp_path), use_repr=False) as twice:
        twice(torch.ones(3))
    first, second = [r for r in assay.open(tmp_path).records if r.node == "act" and r.role == "output"]
    assert (first.call, second.call) == (0, 1)
    assert "written again by a later call" in first.problem
    assert torch.equal(torch.from_numpy(second.numpy().copy()), torch.tanh(torch.tanh(torch.ones(3))))
