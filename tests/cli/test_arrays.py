# SPDX-License-Identifier: Apache-2.0
"""Arrays with names, a file each in a folder or all in one npz: docs/formats/arrays.md."""

from __future__ import annotations

import json

import numpy as np
import pytest
import warm_python
from assay_command import run

import assay

NAMES = {
    "layers.0.mlp.output": ("layers.0.mlp", "output", ""),
    "layers.0.mlp.input.0": ("layers.0.mlp", "input", "0"),
    "layers.0.mlp.input.kwargs.mask": ("layers.0.mlp", "input", "kwargs.mask"),
    "layers.0.mlp.weight": ("layers.0.mlp", "weight", "weight"),
    "layers.0.mlp.bias": ("layers.0.mlp", "weight", "bias"),
    "layers.0.output_proj": ("layers.0.output_proj", "output", ""),
    "encoder.output.dense": ("encoder.output.dense", "output", ""),
    "logits": ("logits", "output", ""),
    "logits.output": ("logits.output", "output", ""),  # a second output of that node keeps its name
}


def write(path, form: str, arrays: dict[str, np.ndarray]):
    """The arrays as one npz, as a file each, or both ways mixed; returns the run's path."""
    if form == "npz":
        np.savez(path.with_suffix(".npz"), **arrays)
        return path.with_suffix(".npz")
    path.mkdir()
    names = sorted(arrays)
    if form == "mixed":
        np.savez(path / "most.npz", **{name: arrays[name] for name in names[2:]})
        names = names[:2]
    for name in names:
        np.save(path / f"{name}.npy", arrays[name])
    return path


def values(names, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {name: random.standard_normal((4, 8)).astype(np.float32) for name in names}


@pytest.mark.parametrize("form", ["npz", "files", "mixed"])
def test_a_name_says_node_role_and_slot(tmp_path, form):
    arrays = values(NAMES)
    if form == "npz":  # two keys of one file are told apart by it
        del arrays["logits.output"]
    opened = assay.open(write(tmp_path / "run", form, arrays))
    found = {(record.node, record.role, record.slot): record.numpy() for record in opened.records}
    assert found.keys() == {NAMES[name] for name in arrays}
    for name, array in arrays.items():
        assert np.array_equal(found[NAMES[name]], array), name
    assert np.array_equal(opened["layers.0.mlp.weight"], arrays["layers.0.mlp.weight"])
    shown = run("show", opened.path, "layers.0.mlp.input.0")
    assert (shown.returncode, shown.stderr) == (0, "")


@pytest.mark.parametrize(
    ("golden_form", "my_form"), [("npz", "files"), ("files", "npz"), ("mixed", "npz"), ("npz", "npz")]
)
def test_one_file_and_many_are_compared_alike(tmp_path, golden_form, my_form):
    names = [name for name in NAMES if name != "logits.output"]
    arrays = values(names)
    golden = write(tmp_path / "golden", golden_form, arrays)
    mine = write(tmp_path / "mine", my_form, {**arrays, "logits": arrays["logits"] * 1.5})
    done = run("compare", golden, mine, "-o", tmp_path / "report", "--json")
    answer = json.loads(done.stdout)
    assert answer["counts"] | {"pairs": len(names), "identical": len(names) - 1} == answer["counts"], answer
    assert answer["sheets"][0]["unmatched"] == 0
    assert [row["name"].split()[0] for row in answer["worst"]] == ["logits"]


def test_keys_that_two_files_have_stand_behind_the_name_of_their_file(tmp_path):
    for name in ("step0", "step1"):
        np.savez(tmp_path / f"{name}.npz", **{"norm.output": np.ones(3, np.float32)})
    assert [record.node for record in assay.open(tmp_path).records] == ["step0/norm", "step1/norm"]


def test_arrays_are_held_against_the_modules_of_a_model(tmp_path):
    """Golden is captured; mine comes from a program that saves what it likes."""
    (tmp_path / "run.py").write_text(
        "import numpy as np, torch\n"
        "torch.manual_seed(0)\n"
        "model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8))\n"
        "x = torch.randn(4, 8)\n"
        "with torch.no_grad():\n"
        "    seen = []\n"
        "    model[0].register_forward_hook(lambda module, inputs, output: seen.append(output))\n"
        "    a, b = model(x) * 1.03, seen[0]\n"
        "np.savez('mine.npz', **{'0.output': b.numpy(), '1.output': a.numpy(), '1.weight': model[1].weight.detach()})\n"
    )
    words = ["dump", "--level", "operator", "--weights", "-o", "golden", "--", warm_python.python(), "run.py"]
    assert run(*words, cwd=tmp_path).returncode == 0
    done = run("compare", "golden", "mine.npz", "-o", "report", "--json", cwd=tmp_path)
    worst = json.loads(done.stdout)["worst"]
    assert [row["name"] for row in worst][:1] == ["1 output"], done.stdout


@pytest.mark.parametrize("form", ["npz", "files"])
def test_what_is_converted_keeps_its_name(tmp_path, form):
    names = ["layers.0.mlp.input.0", "layers.0.mlp.weight", "logits"]
    arrays = values(names)
    opened = write(tmp_path / "run", form, arrays)
    assert run("convert", opened, tmp_path / "out", "--format", "npy").returncode == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(f"{name}.npy" for name in names)
    for name, array in arrays.items():
        assert np.array_equal(np.load(tmp_path / "out" / f"{name}.npy"), array)
