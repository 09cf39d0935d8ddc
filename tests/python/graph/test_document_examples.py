# SPDX-License-Identifier: Apache-2.0
"""The example programs of the vendor's documents on graph mode: they run with assay.compat.install() as the only
added line, and leave the files that the documents promise. The calls are the documents'; models that a document leaves
out, and paths, are the tests'.
"""

import csv
import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy
import pytest

torch = pytest.importorskip("torch")

import assay.compat  # noqa: E402

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is not None for name in ("torchair", "torch_npu")),
    reason="the vendor's packages are installed: its own backend would run",
)


@pytest.fixture(autouse=True)
def a_script_in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch._dynamo.reset()
    assay.compat.install(quiet=True)
    yield
    assay.compat.uninstall()
    torch._dynamo.reset()


class Model(torch.nn.Module):
    """Add, Add_1, Mul, Sub on two inputs."""

    def forward(self, x, y):
        x = x + y
        x = x + 2 * y
        return x * y - 1


def operator_files(root):
    """{operator name: [paths]} of the binary and csv files below a worldsize folder."""
    found = {}
    for path in sorted(Path(root).rglob("*")):
        if path.is_file() and path.suffix not in (".txt", ".json", ".py", ".pbtxt"):
            parts = path.name.split(".")
            found.setdefault(parts[1], []).append(path)
    return found


def run_twice(model, backend):
    compiled = torch.compile(model, backend=backend)
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    for _ in range(2):
        assert torch.equal(compiled(x, y), model(x, y))
    backend.flush()
    return x, y


# -- operator data dump --------------------------------------------------------------------------------------------


def test_all_options_at_once(tmp_path):
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump_config.json").write_text('{"dump": {"dump_path": "/nowhere", "dump_list": [{}]}}')
    model = Model()

    import torch_npu  # noqa: F401
    import torchair

    config = torchair.CompilerConfig()
    config.dump_config.enable_dump = True
    config.dump_config.dump_mode = "all"
    config.dump_config.dump_path = str(tmp_path / "dump")
    config.dump_config.quant_dumpable = True
    config.dump_config.dump_step = "0|1"
    config.dump_config.dump_layer = "Add_1 Mul_1"
    config.dump_config.dump_data = "stats"
    config.dump_config.dump_config_path = str(tmp_path / "dump_config.json")
    with pytest.warns(UserWarning, match="dump_config_path is not used"):
        npu_backend = torchair.get_npu_backend(compiler_config=config)
    run_twice(model, npu_backend)

    files = operator_files(tmp_path / "dump")
    assert {"Add_1", "Mul_1"} <= set(files) and "Add" not in files and "Sub" not in files
    relative = files["Add_1"][0].relative_to(tmp_path / "dump").parts
    assert relative[0] == "worldsize1_global_rank0" and re.fullmatch(r"\d{14}", relative[1])
    assert relative[2] == "0" and relative[3].startswith("graph_")
    assert sorted(path.parent.name for path in files["Add_1"]) == ["0", "1"]  # data_index is the step
    with open(files["Add_1"][0], newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["Input/Output"] for row in rows] == ["Input", "Input", "Output"]
    assert {row["Data Type"] for row in rows} == {"DT_FLOAT"} and {row["Shape"] for row in rows} == {"2x3"}


def test_the_layers_of_the_document_miss_a_blank(tmp_path):
    import torchair

    config = torchair.CompilerConfig()
    config.dump_config.enable_dump = True
    config.dump_config.dump_layer = "Add_1Mul_1 Add2"
    backend = torchair.get_npu_backend(compiler_config=config)
    with pytest.warns(UserWarning, match=r"'Add_1Mul_1' matches no operator.*nearest: .*Add_1"):
        run_twice(Model(), backend)
    assert operator_files(tmp_path) == {}


def test_the_program_with_a_scope(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import assay.compat; assay.compat.install()\n"
        """
import torch
import torchair
import logging
from torchair import logger
logger.setLevel(logging.DEBUG)

class Network(torch.nn.Module):
    def forward(self, first, second):
        total = torch.add(first, second)
        with torchair.scope.data_dump():
            difference = torch.sub(first, second)
        return total, difference

first = torch.randn(2, 2, dtype=torch.float16).npu()
second = torch.randn(2, 2, dtype=torch.float16).npu()
config = torchair.CompilerConfig()
config.dump_config.enable_dump = True
config.dump_config.dump_layer = "Add"
npu_backend = torchair.get_npu_backend(compiler_config=config)
model = Network().npu()
model = torch.compile(model, fullgraph=True, backend=npu_backend, dynamic=False)
out = model(first, second)
"""
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert set(operator_files(tmp_path / "worldsize1_global_rank0")) == {"arg0_1", "arg1_1", "Add", "Sub"}
    assert "torch.ops.aten.sub.Tensor" in done.stderr  # DEBUG shows the graph before it is converted
    (options,) = tmp_path.rglob("dump_options_worldsize1_rank0_pid*.json")
    (entry,) = json.loads(options.read_text())["dump"]["dump_list"]
    assert entry == {"model_name": "graph_1", "layer": ["Add", "Sub"]}


# -- dump_config_path ----------------------------------------------------------------------------------------------


def backend_of_file(tmp_path, dump):
    import torchair

    (tmp_path / "dump_config.json").write_text(json.dumps({"dump": dump}))
    config = torchair.CompilerConfig()
    config.dump_config.dump_config_path = "./dump_config.json"
    return torchair.get_npu_backend(compiler_config=config)


def graph_name_of_the_next_graph():
    from assay.torch.graph import _files

    return f"graph_{_files.next_graph_number() + 1}"


def test_a_model_dump_by_file(tmp_path):
    name = graph_name_of_the_next_graph()
    backend = backend_of_file(
        tmp_path,
        {
            "dump_list": [{"model_name": "ResNet-101"}, {"model_name": name, "layer": ["Add_1", "Sub"]}],
            "dump_path": str(tmp_path),
            "dump_mode": "output",
            "dump_op_switch": "off",
            "dump_data": "tensor",
        },
    )
    run_twice(Model(), backend)
    files = operator_files(tmp_path / "worldsize1_global_rank0")
    assert {"Add_1", "Sub"} <= set(files) and "Add" not in files
    assert {path.parts[-4] for paths in files.values() for path in paths} == {name}


def test_a_single_operator_dump_by_file(tmp_path):
    backend = backend_of_file(
        tmp_path, {"dump_path": str(tmp_path), "dump_list": [], "dump_op_switch": "on", "dump_data": "tensor"}
    )
    try:
        torch.sigmoid(torch.ones(3))  # launched eagerly, outside of any graph
        run_twice(Model(), backend)
    finally:
        backend.close()
    files = [path for paths in operator_files(tmp_path).values() for path in paths]
    eager = [path for path in files if re.fullmatch(r"\d{14}", path.parent.parent.name)]
    assert any(path.name.startswith("Sigmoid.") for path in eager)


def test_an_overflow_dump_by_file(tmp_path):
    (tmp_path / "output").mkdir()
    backend = backend_of_file(tmp_path, {"dump_path": "output", "dump_debug": "on"})

    def divide(x):
        return (x / (x - x)) + 1  # the division makes the first Inf

    compiled = torch.compile(divide, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled(torch.ones(4))
    backend.flush()
    types = {path.name.partition(".")[0] for path in (tmp_path / "output").rglob("*.*.*.*.*")}
    assert "Opdebug" in types and any(name.startswith(("RealDiv", "Div")) for name in types)
    assert not any(name.startswith("Sub") for name in types)


def test_a_watch_by_file(tmp_path):
    backend = backend_of_file(
        tmp_path,
        {
            "dump_list": [{"layer": ["Mul", "Add_1"], "watcher_nodes": ["Add", "Sub"]}],
            "dump_path": str(tmp_path),
            "dump_mode": "output",
            "dump_scene": "watcher",
        },
    )
    run_twice(Model(), backend)
    files = operator_files(tmp_path / "worldsize1_global_rank0")
    assert {"Add", "Sub"} <= set(files) and "Mul" not in files  # nothing tramples, so no file of the second kind
    assert not [name for name in files if "_To_" in name]


# -- data dump in eager mode, graph structure ----------------------------------------------------------------------


def test_the_eager_dump(tmp_path):
    (tmp_path / "test").mkdir()
    model = Model()

    import torch_npu  # noqa: F401
    import torchair

    config = torchair.CompilerConfig()
    config.debug.data_dump.type = "npy"
    config.debug.data_dump.path = "./test"
    config.debug.data_dump.filter = lambda n: n if n.name in ["add_1", "sub"] else None
    npu_backend = torchair.get_npu_backend(compiler_config=config)
    x, y = run_twice(model, npu_backend)

    (graph,) = [path for path in (tmp_path / "test" / "worldsize1_global_rank0").iterdir() if path.is_dir()]
    assert graph.name.startswith("graph_")
    assert {path.name for path in graph.iterdir() if path.is_dir()} == {"0", "1"}
    arrays = {re.sub(r"\.\d{20}\.npy$", "", path.name): path for path in (graph / "0").iterdir()}
    assert {name.partition("-")[0] for name in arrays} == {"add_1", "sub"}
    for name in ("add_1-aten.add.Tensor.INPUT.0", "add_1-aten.add.Tensor.INPUT.1", "add_1-aten.add.Tensor.OUTPUT.0"):
        assert name in arrays
    total = numpy.load(arrays["add_1-aten.add.Tensor.OUTPUT.0"])
    numpy.testing.assert_array_equal(total, (x + y + 2 * y).numpy())


@pytest.mark.parametrize("kind", ["pbtxt", "txt", "py"])
def test_the_graph_dump(tmp_path, kind):
    (tmp_path / "test").mkdir()

    import torchair

    config = torchair.CompilerConfig()
    config.debug.graph_dump.type = "py"
    config.debug.graph_dump.type = kind  # the last one counts
    config.debug.graph_dump.path = "./test"
    npu_backend = torchair.get_npu_backend(compiler_config=config)
    compiled = torch.compile(Model(), backend=npu_backend)
    compiled(torch.ones(2), torch.ones(2))
    names = sorted(path.name for path in (tmp_path / "test").iterdir())
    for name, stage in zip(names, ("optimized", "original")):
        pattern = rf"dynamo_{stage}_graph_\d+_rank_0_pid_{os.getpid()}_ts_\d{{20}}\.{kind}"
        assert re.fullmatch(pattern, name)
        assert "Add_1" in (tmp_path / "test" / name).read_text()
    assert len(names) == 2


def test_python_logging(capsys):
    import torchair
    from torchair import logger

    level = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        config = torchair.CompilerConfig()
        config.debug.graph_dump.type = "txt"
        torch.compile(Model(), backend=torchair.get_npu_backend(compiler_config=config))(torch.ones(2), torch.ones(2))
    finally:
        logger.setLevel(level)
    lines = capsys.readouterr().err
    assert re.search(r"^\[DEBUG\] TORCHAIR\(\d+,[\w.]+\):", lines, re.MULTILINE)
    assert "torch.ops.aten.mul.Tensor" in lines


# -- the captured-graph backend ------------------------------------------------------------------------------------


def flush_the_named_backend():
    from assay.torch.graph import _backend

    _backend._by_config[-1][1].flush()


@pytest.mark.parametrize("stage", ["optimized", "original"])
def test_the_captured_graph_dump(tmp_path, stage):
    (tmp_path / "dump").mkdir()
    model = torch.compile(
        Model(),
        backend="npugraph_ex",
        options={"dump_tensor_data": True, "data_dump_dir": str(tmp_path / "dump"), "data_dump_stage": stage},
        dynamic=False,
    )
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    assert torch.equal(model(x, y), Model()(x, y))
    flush_the_named_backend()
    folder = tmp_path / "dump" / "worldsize1_global_rank0"
    names = {path.name for path in folder.glob("*.pt")}
    assert {"arg0_1_device_0_0.pt", "add_device_0_0.pt", "add_1_device_0_0.pt", "sub_device_0_0.pt"} <= names
    assert torch.equal(torch.load(folder / "add_device_0_0.pt"), x + y)


def test_a_tensor_saved_from_inside_the_graph(tmp_path):
    import torch_npu

    class Squares(torch.nn.Module):
        def forward(self, x0, x1):
            torch_npu.save_npugraph_tensor(x1, save_path="./test1.pt")
            square = torch.square(x0)
            torch_npu.save_npugraph_tensor(square, save_path="./test2.pt")
            return torch.mm(x0, torch.add(x1, square))

    x0 = torch.randn([10, 10]).npu()
    x1 = torch.randn([10, 10]).npu()
    model = torch.compile(Squares(), backend="npugraph_ex")
    assert torch.allclose(model(x0, x1), x0 @ (x1 + x0 * x0), atol=1e-4)
    assert torch.equal(torch.load("test1_device_0_0.pt"), x1)
    assert torch.equal(torch.load("test2_device_0_0.pt"), x0 * x0)


# -- the early document: two runs by the helper functions ----------------------------------------------------------


def test_the_helper_functions_of_the_early_document(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[3] / "compat"))
    for name in [name for name in sys.modules if name.partition(".")[0] == "msit_llm"]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "fusion_switch.json").write_text(
        '{"Switch": {"GraphFusion": {"ALL": "off"}, "UBFusion": {"ALL": "off"}}}'
    )
    import torchair

    from msit_llm.dump.torchair_dump import get_fx_dump_config, get_ge_dump_config

    ge = get_ge_dump_config(dump_path="dump", fusion_switch_file="fusion_switch.json")
    run_twice(Model(), torchair.get_npu_backend(compiler_config=ge))
    folder = tmp_path / "dump" / "msit_ge_dump"
    assert len(list(folder.glob("dynamo_original_graph_*.txt"))) == 1
    assert {"Add", "Add_1", "Mul", "Sub"} <= set(operator_files(folder / "worldsize1_global_rank0"))

    torch._dynamo.reset()
    run_twice(Model(), torchair.get_npu_backend(compiler_config=get_fx_dump_config()))
    assert list(
        (tmp_path / "msit_fx_dump" / "worldsize1_global_rank0").glob("graph_*/0/add-aten.add.Tensor.OUTPUT.0.*")
    )
