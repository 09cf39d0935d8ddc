# SPDX-License-Identifier: Apache-2.0
"""The FX dump and the captured-graph dump: their files, read with numpy and torch.load."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from dump_reading import index_of, the_only

from assay.torch.graph import CompilerConfig, get_backend, save_tensor


def fx_dumping(path: Path) -> CompilerConfig:
    config = CompilerConfig()
    config.debug.data_dump.type = "npy"
    config.debug.data_dump.path = str(path)
    return config


NAME = re.compile(r"(?P<node>.+?)-(?P<target>[^-]+)\.(?P<slot>(INPUT|OUTPUT)\..+)\.(?P<time>\d{20})\.npy")


def files_of(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """{"add-aten.add.Tensor": {"INPUT.0": array}} of one step."""
    found: dict[str, dict[str, np.ndarray]] = defaultdict(dict)
    times = defaultdict(set)
    for path in folder.iterdir():
        match = NAME.fullmatch(path.name)
        assert match, path.name
        node = f"{match['node']}-{match['target']}"
        found[node][match["slot"]] = np.load(path, allow_pickle=False)
        times[node].add(match["time"])
    assert all(len(of_node) == 1 for of_node in times.values()), "one time for all files of a node"
    return dict(found)


def graph_folder(path: Path) -> Path:
    return the_only(path, "worldsize1_global_rank0/graph_*")


def test_inputs_and_outputs_of_every_node(tmp_path: Path) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x + y, y]) * 2

    backend = get_backend(fx_dumping(tmp_path))
    compiled = torch.compile(function, backend=backend)
    x, y = torch.tensor([1.0]), torch.tensor([3.0])
    for _ in range(2):
        assert compiled(x, y).tolist() == [8.0, 6.0]
    backend.close()
    folder = graph_folder(tmp_path)
    assert sorted(entry.name for entry in folder.iterdir()) == ["0", "1"]
    nodes = files_of(folder / "1")
    assert {name: {slot: array.tolist() for slot, array in slots.items()} for name, slots in nodes.items()} == {
        "add-aten.add.Tensor": {"INPUT.0": [1.0], "INPUT.1": [3.0], "OUTPUT.0": [4.0]},
        "cat-aten.cat.default": {"INPUT.0.0": [4.0], "INPUT.0.1": [3.0], "OUTPUT.0": [4.0, 3.0]},
        "mul-aten.mul.Tensor": {"INPUT.0": [4.0, 3.0], "INPUT.1": 2, "OUTPUT.0": [8.0, 6.0]},
    }
    index = index_of(folder.parent)
    assert index["complete"] and index["graphs"][0]["steps"] == [0, 1]


def test_keywords_lists_of_numbers_and_several_results(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        values, indices = torch.topk(x.view(2, 2).double(), 1)
        return values + indices

    backend = get_backend(fx_dumping(tmp_path))
    torch.compile(function, backend=backend)(torch.tensor([1.0, 2.0, 4.0, 3.0]))
    backend.close()
    nodes = files_of(graph_folder(tmp_path) / "0")
    assert nodes["view-aten.view.default"]["INPUT.1"].tolist() == [2, 2]
    assert nodes["_to_copy-aten._to_copy.default"]["INPUT.dtype"].item() == "torch.float64"
    assert nodes["topk-aten.topk.default"]["OUTPUT.0"].tolist() == [[2.0], [4.0]]
    assert nodes["topk-aten.topk.default"]["OUTPUT.1"].tolist() == [[1], [0]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn], ids=str)
def test_types_numpy_lacks_are_widened_and_named(tmp_path: Path, dtype: torch.dtype) -> None:
    backend = get_backend(fx_dumping(tmp_path))
    torch.compile(lambda x: x.clone(), backend=backend)(torch.tensor([1.5, -2.0]).to(dtype))
    backend.close()
    folder = graph_folder(tmp_path)
    output = files_of(folder / "0")["clone-aten.clone.default"]["OUTPUT.0"]
    assert output.dtype == np.float32 and output.tolist() == [1.5, -2.0]
    dtypes = json.loads((folder / "dtypes.json").read_text())
    assert dtypes["clone-aten.clone.default.OUTPUT.0"] == str(dtype).removeprefix("torch.")


def test_the_filter_chooses_nodes(tmp_path: Path) -> None:
    config = fx_dumping(tmp_path)
    config.debug.data_dump.filter = lambda node: node if node.name in ("add_1", "sub") else None
    backend = get_backend(config)
    torch.compile(lambda x: (x + 1 + 2) - 3, backend=backend)(torch.ones(2))
    backend.close()
    assert set(files_of(graph_folder(tmp_path) / "0")) == {"add_1-aten.add.Tensor", "sub-aten.sub.Tensor"}
    (graph,) = index_of(graph_folder(tmp_path).parent)["graphs"]
    assert graph["planned"] == graph["dumped"] == 2


def test_an_input_that_is_overwritten_keeps_its_old_value(tmp_path: Path) -> None:
    x = torch.tensor([1.0])
    backend = get_backend(fx_dumping(tmp_path))
    torch.compile(lambda x: x.add_(1), backend=backend)(x)
    backend.close()
    copy = files_of(graph_folder(tmp_path) / "0")["copy_-aten.copy_.default"]
    assert (copy["INPUT.0"].tolist(), copy["OUTPUT.0"].tolist(), x.tolist()) == ([1.0], [2.0], [2.0])


def test_the_link_between_the_text_of_a_graph_and_the_files(tmp_path: Path) -> None:
    """_fx_tensor_name of an operator of the GE graph is the name of an FX file up to its time."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.LayerNorm(4)).eval()
    x = torch.randn(2, 4)
    config = fx_dumping(tmp_path)
    config.debug.graph_dump.type = "txt"
    config.debug.graph_dump.path = str(tmp_path)
    backend = get_backend(config)
    with torch.no_grad():
        torch.compile(model, backend=backend)(x)
    backend.close()
    text = the_only(tmp_path, "dynamo_original_graph_*.txt").read_text()
    named = set(re.findall(r's: "([^"]+\.OUTPUT\.\d+)"', text))
    nodes = files_of(graph_folder(tmp_path) / "0")
    assert named and named == {f"{node}.{slot}" for node, slots in nodes.items() for slot in slots if "OUT" in slot}


# ---- the captured-graph modes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["reduce-overhead", "npugraph_ex"])
def test_results_of_every_node_as_pt(tmp_path: Path, mode: str) -> None:
    config = CompilerConfig()
    config.mode = mode
    config.dump_config.enable_dump = True
    config.dump_config.dump_path = str(tmp_path)
    backend = get_backend(config)

    def function(x: torch.Tensor) -> torch.Tensor:
        values, indices = torch.topk(x, 1)
        return values + indices

    compiled = torch.compile(function, backend=backend)
    for _ in range(2):
        compiled(torch.tensor([1.0, 5.0]).bfloat16())
    backend.close()
    folder = tmp_path / "worldsize1_global_rank0"
    names = {path.name: torch.load(path, weights_only=True) for path in folder.glob("*.pt")}
    nodes = ("add", "arg0_1", "getitem", "getitem_1")
    assert sorted(names) == sorted(f"{node}_device_0_{count}.pt" for node in nodes for count in (0, 1))
    assert names["getitem_device_0_0.pt"].tolist() == [5.0] and names["getitem_1_device_0_0.pt"].tolist() == [1]
    assert names["add_device_0_1.pt"].dtype == torch.bfloat16
    (graph,) = index_of(folder)["graphs"]
    assert graph["planned"] == graph["dumped"] == 3  # the input, topk, add


def test_the_options_of_the_captured_graph_backend(tmp_path: Path) -> None:
    import assay.torch.graph._backend as module

    torch._dynamo.register_backend(module.backend, name="assay_captured")
    options = {"dump_tensor_data": True, "data_dump_stage": "original", "data_dump_dir": str(tmp_path)}
    torch.compile(lambda x: x.sin(), backend="assay_captured", options=options)(torch.ones(2))
    module._by_config[-1][1].close()
    assert (tmp_path / "worldsize1_global_rank0" / "sin_device_0_0.pt").is_file()


@pytest.mark.parametrize("folder", [b"plain", b"no utf-8 \xff", "\N{SNOWMAN}".encode()])
@pytest.mark.parametrize("compiled", [False, True])
def test_save_tensor_in_a_model(tmp_path: Path, compiled: bool, folder: bytes) -> None:
    tmp_path = tmp_path / os.fsdecode(folder)
    tmp_path.mkdir()
    path = str(tmp_path / "t.pt")

    def function(x: torch.Tensor) -> torch.Tensor:
        squared = torch.square(x)
        save_tensor(squared, save_path=path)
        return squared + 1

    run = torch.compile(function, backend=get_backend()) if compiled else function
    for value in (2.0, 3.0):
        assert run(torch.tensor([value])).tolist() == [value * value + 1]
    found = sorted(tmp_path.iterdir())
    assert [path.name for path in found] == ["t_device_0_0.pt", "t_device_0_1.pt"]
    assert [torch.load(path, weights_only=True).tolist() for path in found] == [[4.0], [9.0]]


def test_save_tensor_in_training(tmp_path: Path) -> None:
    path = str(tmp_path / "t.pt")

    def function(x: torch.Tensor) -> torch.Tensor:
        squared = torch.square(x)
        save_tensor(squared, path)
        return squared.sum()

    x = torch.tensor([3.0], requires_grad=True)
    torch.compile(function, backend=get_backend())(x).backward()
    assert x.grad.tolist() == [6.0]
    assert torch.load(the_only(tmp_path, "t_device_0_*.pt"), weights_only=True).tolist() == [9.0]
