# SPDX-License-Identifier: Apache-2.0
"""Runs of msprobe against each other and against a hook dump; lists and files are written here with json and torch."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import torch
from assay_command import read_csv, run, the_report

import assay

LAYERS = 3


def entry(tensor, task, name):
    """What msprobe writes for one tensor: docs/formats/msprobe.md"""
    floating = tensor.float()
    leaf = {
        "type": "torch.Tensor",
        "dtype": str(tensor.dtype),
        "shape": list(tensor.shape),
        "Max": floating.max().item(),
        "Min": floating.min().item(),
        "Mean": floating.mean().item(),
        "Norm": floating.norm().item(),
        "requires_grad": False,
    }
    if task == "md5":
        leaf["md5"] = f"{zlib.crc32(tensor.contiguous().numpy().tobytes()):08x}"
    if task == "tensor":
        leaf["data_name"] = f"{name}.pt"
    return leaf


def values(step, change=lambda name, tensor: tensor, rank=0):
    """Outputs of a small model: name of the module -> tensor."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    names = [f"layers.{i}{part}" for i in range(LAYERS) for part in (".fc", ".norm", "")] + ["head"]
    return {name: change(name, torch.randn(2, 8, generator=generator)) for name in names}


CLASSES = {"fc": "Linear", "norm": "LayerNorm", "head": "Linear"}


def class_of(name):
    return CLASSES.get(name.rsplit(".", 1)[-1], "Block")


def write_msprobe(root: Path, task="tensor", steps=(0,), ranks=(0,), change=lambda name, tensor: tensor):
    for step in steps:
        for rank in ranks:
            folder = root / f"step{step}" / f"rank{rank}"
            (folder / "dump_tensor_data").mkdir(parents=True)
            data, construct = {}, {}
            for place, (name, tensor) in enumerate(values(step, change, rank).items()):
                call = f"Module.{name}.{class_of(name)}.forward.0"
                parent = name.rsplit(".", 1)[0]
                construct[call] = f"Module.{parent}.Block.forward.0" if name.count(".") == 2 else None
                output = entry(tensor, task, f"{call}.output.0")
                data[call] = {"input_args": [{"type": "int", "value": 3}], "input_kwargs": {}, "output": [output]}
                api = f"Functional.silu.{place}.forward"
                data[api] = {"input_args": [], "input_kwargs": {}, "output": [entry(tensor, task, f"{api}.output.0")]}
                construct[api] = call
                if task == "tensor":
                    for file in (call, api):
                        torch.save(tensor, folder / "dump_tensor_data" / f"{file}.output.0.pt")
            head = {"task": "tensor" if task == "tensor" else "statistics", "level": "mix", "framework": "pytorch"}
            (folder / "dump.json").write_text(json.dumps({**head, "dump_data_dir": None, "data": data}))
            (folder / "construct.json").write_text(json.dumps(construct))
    return root


def double_head(name, tensor):
    return tensor * 2 if name == "head" else tensor


def test_two_runs_pair_by_name_and_call(tmp_path):
    golden = write_msprobe(tmp_path / "golden", steps=(0, 1), ranks=(0, 1))
    mine = write_msprobe(tmp_path / "mine", steps=(0, 1), ranks=(0, 1), change=double_head)
    done = run("compare", golden, mine, "-cl", "api", "-o", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = read_csv(the_report(tmp_path))
    assert len(rows) == 2 * 2 * 2 * (3 * LAYERS + 1)
    for row in rows:
        golden_file, my_file = Path(row["golden_data_path"]), Path(row["my_data_path"])
        assert golden_file.relative_to(golden) == my_file.relative_to(mine)
        one, two = torch.load(golden_file), torch.load(my_file)
        expected = ((two - one).norm() / one.norm()).item()
        assert float(row["relative_euclidean_distance"]) == pytest.approx(expected, rel=1e-6, abs=1e-12)
    differing = {Path(row["my_data_path"]).name for row in rows if float(row["max_absolute_error"]) > 0}
    assert differing == {"Module.head.Linear.forward.0.output.0.pt", "Functional.silu.9.forward.output.0.pt"}


@pytest.mark.parametrize(("golden_task", "my_task"), [("statistics", "tensor"), ("tensor", "md5"), ("md5", "md5")])
def test_statistics_of_any_two_tasks(tmp_path, golden_task, my_task):
    golden = write_msprobe(tmp_path / "golden", golden_task)
    mine = write_msprobe(tmp_path / "mine", my_task, change=double_head)
    done = run("compare", golden, mine, "-st", "-o", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = read_csv(the_report(tmp_path, "statistics_cmp_report_*.csv"))
    assert len(rows) == 2 * (3 * LAYERS + 1)
    heads = [row for row in rows if float(row["l2norm_stat_absolute_error"]) > 1e-5]
    assert len(heads) == 2
    norm = values(0)["head"].norm().item()
    for row in heads:
        assert float(row["l2norm_stat_absolute_error"]) == pytest.approx(norm, rel=1e-5)
        assert float(row["l2norm_stat_relative_error"]) == pytest.approx(1.0, rel=1e-5)


def test_a_side_with_statistics_only_is_compared_by_them(tmp_path):
    golden = write_msprobe(tmp_path / "golden", "statistics")
    mine = write_msprobe(tmp_path / "mine")
    done = run("compare", golden, mine, "-cl", "api", "-o", tmp_path)
    assert done.returncode == 0 and "a side holds statistics only" in done.stderr
    rows = read_csv(the_report(tmp_path, "statistics_cmp_report_*.csv"))
    assert len(rows) == 2 * (3 * LAYERS + 1)
    assert {row["max_stat_absolute_error"] for row in rows} == {"0.0"}


def write_hook_dump(root: Path, change=lambda name, tensor: tensor):
    """The same values in the tree of register_hook: docs/formats/torch-tree.md"""

    def node(name, kind, *children):
        return {"name": name, "type": kind, "children": list(children)}

    layers = [
        node(
            f"root.layers.{i}",
            "Block",
            node(f"root.layers.{i}.fc", "Linear"),
            node(f"root.layers.{i}.norm", "LayerNorm"),
        )
        for i in range(LAYERS)
    ]
    tree = node("root", "Model", node("root.layers", "ModuleList", *layers), node("root.head", "Linear"))
    rank = root / "torch_tensors" / "cpu_1"
    rank.mkdir(parents=True)
    (rank / "model_tree.json").write_text(json.dumps(tree))
    for name, tensor in values(0, change).items():
        folder = rank / "0" / f"root.{name}"
        folder.mkdir(parents=True)
        torch.save(tensor, folder / "output.pth")
    return root


def test_a_run_meets_a_hook_dump_module_by_module(tmp_path):
    golden = write_hook_dump(tmp_path / "golden")
    mine = write_msprobe(tmp_path / "mine", change=double_head)
    done = run("compare", golden, mine, "-cl", "api", "-o", tmp_path, "--unmatched")
    assert done.returncode == 0, done.stderr
    rows = read_csv(the_report(tmp_path))
    pairs = {
        Path(row["golden_data_path"]).parent.name: Path(row["my_data_path"]).name
        for row in rows
        if Path(row["my_data_path"]).name.startswith("Module.")
    }
    assert pairs == {f"root.{name}": f"Module.{name}.{class_of(name)}.forward.0.output.0.pt" for name in values(0)}
    for row in rows:
        if "root.head" in row["golden_data_path"]:
            assert float(row["relative_euclidean_distance"]) == pytest.approx(1.0, rel=1e-6)
        else:
            assert float(row["max_absolute_error"]) == 0


def test_a_cut_list_and_a_missing_file_are_named(tmp_path):
    golden = write_msprobe(tmp_path / "golden", ranks=(0, 1))
    mine = write_msprobe(tmp_path / "mine", ranks=(0, 1))
    cut = mine / "step0" / "rank1" / "dump.json"
    cut.write_text(cut.read_text()[:500])
    gone = mine / "step0" / "rank0" / "dump_tensor_data" / "Module.head.Linear.forward.0.output.0.pt"
    gone.unlink()
    done = run("compare", golden, mine, "-cl", "api", "-o", tmp_path, "--unmatched")
    assert "rank1/dump.json: at byte" in done.stdout and "rank 1 is in golden only" in done.stdout
    rows = read_csv(the_report(tmp_path))
    bad = [row for row in rows if row["cmp_fail_reason"]]
    assert [row["cmp_fail_reason"] for row in bad] == [f"my_data_path: {gone} is not a file."]
    assert len(rows) == 2 * (3 * LAYERS + 1)


def test_a_list_may_be_named_itself(tmp_path):
    golden = write_msprobe(tmp_path / "golden") / "step0" / "rank0" / "dump.json"
    mine = (
        write_msprobe(tmp_path / "mine", change=lambda name, tensor: tensor + math.pi) / "step0" / "rank0" / "dump.json"
    )
    done = run("compare", golden, mine, "-cl", "api", "-o", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = read_csv(the_report(tmp_path))
    assert {round(float(row["max_absolute_error"]), 5) for row in rows} == {round(math.pi, 5)}


def converted(tmp_path, run_folder, name):
    """The run as `assay convert --to msprobe` writes it."""
    result = run("convert", run_folder, tmp_path / name, "--to", "msprobe")
    assert result.returncode == 0, result.stderr
    return tmp_path / name


def test_a_hook_dump_becomes_a_run_of_msprobe(tmp_path):
    hook = write_hook_dump(tmp_path / "hook")
    out = converted(tmp_path, hook, "out")
    (folder,) = out.glob("step*/rank*")
    dump = json.loads((folder / "dump.json").read_text())
    assert (dump["task"], dump["framework"]) == ("tensor", "pytorch")
    assert list(json.loads((folder / "construct.json").read_text())) == list(dump["data"])
    saved = {}
    for name, call in dump["data"].items():
        assert re.fullmatch(r"Module\..+\.\w+\.forward\.0", name), name
        for entry in call["output"]:
            tensor = torch.load(folder / "dump_tensor_data" / entry["data_name"], weights_only=True)
            assert entry["shape"] == list(tensor.shape) and entry["dtype"] == str(tensor.dtype)
            # Statistics of float32 by torch in fp64; ours are written from doubles.
            assert entry["Max"] == tensor.double().max().item()
            assert entry["Norm"] == pytest.approx(tensor.double().norm().item(), rel=1e-12)
            saved[name] = tensor
    assert saved
    result = run("compare", hook, out, "-o", tmp_path / "report")
    assert result.returncode == 0, result.stdout + result.stderr


class Leaf(torch.nn.Module):
    def forward(self, x, flag=None, **more):
        return {
            "nan": x / 0 * 0,
            "i": (x * 10).long(),
            "b": x > 0,
            "e": x[:0],
            "bf": x.bfloat16(),
            "l": [x, (x * 2, None)],
        }


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.leaf = Leaf()
        self.lin = torch.nn.Linear(4, 4)

    def forward(self, x):
        self.leaf(x, 0.5, scale=3, name="text", causal=True, mask=[x, {"k": x}])
        self.leaf(x, None)
        return self.lin(x)


def strict_json(path):
    """JSON without the words that Python adds to it."""

    def refuse(word):
        raise AssertionError(f"{path}: {word}")

    return json.loads(path.read_text(), parse_constant=refuse)


def check_entry(entry, folder):
    """What msprobe's readers index without asking; its own lists were the model."""
    if entry is None:
        return
    if isinstance(entry, list):
        for item in entry:
            check_entry(item, folder)
    elif entry.get("type") == "torch.Tensor":
        assert {"dtype", "shape", "Max", "Min", "Mean", "Norm", "requires_grad"} <= entry.keys()
        assert all(isinstance(size, int) for size in entry["shape"])
        assert entry["dtype"].startswith("torch.") and hasattr(torch, entry["dtype"].removeprefix("torch."))
        if "data_name" in entry:
            tensor = torch.load(folder / "dump_tensor_data" / entry["data_name"], weights_only=True)
            assert list(tensor.shape) == entry["shape"] and str(tensor.dtype) == entry["dtype"]
    elif "type" in entry:
        assert {"int": int, "float": float, "bool": bool, "str": str}[entry["type"]] is type(entry["value"])
    else:
        for item in entry.values():
            check_entry(item, folder)


@pytest.mark.parametrize("options", [{"weights": True}, {"level": "operator"}, {"data": "stats"}], ids=str)
def test_lists_have_the_shape_that_msprobe_reads(tmp_path, options):
    net = Net()
    with torch.no_grad(), assay.capture(net, tmp_path / "net", **options):
        net(torch.randn(3, 4))
    folder = converted(tmp_path, tmp_path / "net", "out") / "step0" / "rank0"
    dump, construct, stack = (strict_json(folder / f"{name}.json") for name in ("dump", "construct", "stack"))
    assert dump["task"] == ("statistics" if "data" in options else "tensor") and dump["framework"] == "pytorch"
    assert list(construct) == list(dump["data"]) == stack["0"][0]
    for name, call in dump["data"].items():
        assert re.fullmatch(r"Module\..*\.\w+\.forward\.\d+|Functional\.[^.]+\.\d+\.forward", name), name
        assert isinstance(call["input_args"], list) and isinstance(call["input_kwargs"], dict)
        assert isinstance(call["output"], list)
        for key in ("input_args", "input_kwargs", "output", "parameters"):
            check_entry(call.get(key), folder)
        assert construct[name] is None or construct[name] in dump["data"]
    keywords = dump["data"]["Module.leaf.Leaf.forward.0"]["input_kwargs"]
    assert (keywords["scale"], keywords["name"]) == ({"type": "int", "value": 3}, {"type": "str", "value": "text"})
    assert keywords["causal"] == {"type": "bool", "value": True}
    assert dump["data"]["Module.leaf.Leaf.forward.0"]["input_args"][1] == {"type": "float", "value": 0.5}
    outputs = dump["data"]["Module.leaf.Leaf.forward.0"]["output"]
    assert len(outputs) == 1 and outputs[0].keys() >= {"nan", "i", "b", "e", "bf", "l"}  # one dict
    if options.get("level") == "operator":  # below the module that called it
        assert construct["Functional.lin::aten_addmm_default_0.0.forward"] == "Module.lin.Linear.forward.0"


def test_msprobe_itself_compares_what_we_wrote(tmp_path):
    """The judge: `msprobe compare` of mindstudio-probe, where that is installed."""
    pytest.importorskip("msprobe")
    golden = converted(tmp_path, write_hook_dump(tmp_path / "a"), "golden")
    mine = converted(tmp_path, write_hook_dump(tmp_path / "b", change=double_head), "mine")
    lists = [next(side.glob("step*/rank*")) / "dump.json" for side in (mine, golden)]
    command = [
        sys.executable,
        "-c",
        "from msprobe.msprobe import main; main()",
        "compare",
        "-tp",
        lists[0],
        "-gp",
        lists[1],
    ]
    result = subprocess.run([*command, "-o", tmp_path / "table"], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    tables = list((tmp_path / "table").rglob("compare_result*"))
    assert tables, result.stdout + result.stderr
