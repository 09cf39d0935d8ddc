# SPDX-License-Identifier: Apache-2.0
"""execution.layout "native": what its records say is what the dump files of the layout "ge" hold.

Oracles: eager torch, the dump files as dump_reading.py reads them, and the lines and step files as json and numpy do.
"""

from __future__ import annotations

import csv
import itertools
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import warm_python
from bench import record_lines
from dump_reading import read_dump, run_folder
from test_two_ranks import RANK

import assay
from assay.torch.graph import CompilerConfig, get_backend, step
from assay.torch.graph import _files as files

KILLS = 60


class Net(torch.nn.Module):
    """Weights and a view of each, a number, a result with two parts, a buffer that is overwritten."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 8)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> Any:
        self.count.add_(1)
        hidden = torch.relu(self.up(x) * 2.0)
        values, places = hidden.topk(3)
        return self.down(hidden).softmax(-1), values, places, self.count + 1


def dumping(path: Path, layout: str, **options: Any) -> CompilerConfig:
    """Options by name, those of `execution` as `execution_engine`."""
    path.mkdir(parents=True, exist_ok=True)
    config = CompilerConfig()
    config.dump_config.enable_dump = True
    config.dump_config.dump_path = str(path)
    config.execution.layout = layout
    for name, value in options.items():
        group = config.execution if name.startswith("execution_") else config.dump_config
        setattr(group, name.removeprefix("execution_"), value)
    return config


def dump(path: Path, layout: str, run: Callable[[Callable[[Any], Any]], Any], **options: Any) -> Any:
    """Runs `run(compile)` and returns what it returns; the files are complete then."""
    torch._dynamo.reset()
    files._graph_numbers = itertools.count(1)  # as in a new process
    backend = get_backend(dumping(path, layout, **options))
    try:
        return run(lambda function: torch.compile(function, backend=backend))
    finally:
        backend.close()


def net_twice(compile: Callable[[Any], Any]) -> Any:
    compiled = compile(Net())
    with torch.no_grad():
        return [compiled(torch.arange(64.0).reshape(4, 16) / 64 - step) for step in range(2)]


def filled(compile: Callable[[Any], Any]) -> Any:
    """An operator whose only operand is a number."""
    with torch.no_grad():
        return [compile(lambda x: (torch.full((3,), 2.0) + x, x))(torch.ones(3))]


def trained(compile: Callable[[Any], Any]) -> Any:
    net = Net()
    loss = compile(net)(torch.ones(4, 16))[0].square().sum()
    loss.backward()
    return [parameter.grad for parameter in net.parameters()]


def command(*words: Any) -> subprocess.CompletedProcess[str]:
    """Runs the command line."""
    program = os.environ.get("ASSAY_BINARY", "assay")
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True)


def records_of(dump_path: Path) -> list[dict[str, Any]]:
    """The lines of the only native run below a folder."""
    (lines,) = dump_path.glob("*/rank0/records.jsonl")
    return record_lines.read(lines)


def place_of(record: dict[str, Any]) -> dict[str, Any]:
    """Where the elements are: `file`, `offset` and `bytes` of the record or of what it is a view of."""
    return record.get("view", record)


def values_of(folder: Path, record: dict[str, Any]) -> np.ndarray:
    """The elements of a record in the folder of a rank, as integers of their size, in the record's shape."""
    place = place_of(record)
    size = torch.empty(0, dtype=getattr(torch, record["dtype"])).element_size()
    raw = np.fromfile(folder / place["file"], np.uint8, place["bytes"], offset=place["offset"]).view(f"u{size}")
    if "view" not in record:
        return raw.reshape(record["shape"])
    strides = [size * stride for stride in record["strides"]]
    return np.lib.stride_tricks.as_strided(raw, record["shape"], strides)


def bytes_of(dump_path: Path, record: dict[str, Any]) -> bytes:
    (folder,) = dump_path.glob("*/rank0")
    return values_of(folder, record).tobytes()


def of_files(dump_path: Path) -> dict[tuple[Any, ...], bytes]:
    """(graph, step, operator type, name, role, index) -> bytes, from the dump files. Graphs are counted from 0."""
    run = run_folder(dump_path)
    found: dict[tuple[Any, ...], bytes] = {}
    graphs = sorted((path for path in (run / "0").iterdir()), key=lambda path: int(path.name.split("_")[1]))
    for place, graph in enumerate(graphs):
        for path in graph.glob("*/*/*.*"):
            content = read_dump(path)
            for role, operands in (("input", content.inputs), ("output", content.outputs)):
                for position, operand in enumerate(operands):
                    index = position if operand.index is None else operand.index
                    raw = operand.tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
                    found[place, int(path.parent.name), content.type, content.name, role, index] = raw
    return found


def of_records(dump_path: Path) -> dict[tuple[Any, ...], bytes]:
    """The same from the lines of a native run."""
    records = records_of(dump_path)
    graphs = sorted({int(re.match(r"graph_(\d+)/", record["node"])[1]) for record in records})
    found: dict[tuple[Any, ...], bytes] = {}
    for record in records:
        graph, _, name = record["node"].partition("/")
        place = graphs.index(int(graph.removeprefix("graph_")))
        key = (place, record["step"], record["type"], name, record["role"], int(record["slot"]))
        assert key not in found, f"two records of {key}"
        found[key] = bytes_of(dump_path, record)
    return found


# ---- the same as the layout of a file an operator --------------------------------------------------------------------

VARIANTS = {
    "all operands": (net_twice, {}),
    "outputs": (net_twice, {"dump_mode": "output"}),
    "inputs": (net_twice, {"dump_mode": "input"}),
    "some operators": (net_twice, {"dump_layer": "SoftmaxV2 Assign"}),
    "one step": (net_twice, {"dump_step": "1"}),
    "numbers": (net_twice, {"execution_dump_constants": True}),
    "Dynamo's graph": (net_twice, {"execution_decomposition_level": 0}),
    "decomposed": (net_twice, {"execution_decomposition_level": 2}),
    "backward": (trained, {}),
    "only a number": (filled, {"dump_mode": "input"}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_records_hold_what_the_dump_files_hold(tmp_path: Path, name: str) -> None:
    run, options = VARIANTS[name]
    of_ge = dump(tmp_path / "ge", "ge", run, **options)
    of_native = dump(tmp_path / "native", "native", run, **options)
    expected = of_files(tmp_path / "ge")
    found = of_records(tmp_path / "native")
    assert expected and found.keys() == expected.keys()
    assert [key for key in expected if found[key] != expected[key]] == []
    for a, b in zip(of_ge, of_native):
        for x, y in zip(a, b):
            assert torch.equal(x, y)


def test_results_are_those_of_aot_eager(tmp_path: Path) -> None:
    expected = net_twice(lambda function: torch.compile(function, backend="aot_eager"))
    for results, wanted in zip(dump(tmp_path, "native", net_twice), expected):
        assert all(torch.equal(result, one) for result, one in zip(results, wanted))


def operands(path: Path) -> list[tuple[Any, ...]]:
    run = assay.open(path)
    return [(r.node, r.op_type, r.role, r.slot, r.step, r.call, r.dtype_name, r.shape) for r in run.records]


@pytest.mark.parametrize("name", ["all operands", "backward"])
def test_a_run_reads_as_the_tree_of_its_operators(tmp_path: Path, name: str) -> None:
    run, options = VARIANTS[name]
    for layout in ("ge", "native"):
        dump(tmp_path / layout, layout, run, **options)
    ge, native = assay.open(tmp_path / "ge"), assay.open(tmp_path / "native")
    # The names, in their order, and the graph's topology
    assert operands(tmp_path / "native") == operands(tmp_path / "ge") != []
    nodes = [[n.name for n in run.tree.walk() if "graph_" not in n.name] for run in (native, ge)]
    assert nodes[0] == nodes[1] and "Addmm_1" in nodes[0]
    assert (native.layout, native.coverage.captured, native.coverage.planned) == (
        "native-graph", ge.coverage.captured, ge.coverage.planned,
    )  # fmt: skip
    assert native.coverage.complete and not native.warnings and native.verify() == ()
    # Compared with it, and with itself
    for golden, mine in (("ge", "native"), ("native", "ge"), ("native", "native")):
        result = assay.compare(tmp_path / golden, tmp_path / mine)
        assert result.verdict == assay.compare(tmp_path / "ge", tmp_path / "ge").verdict
        assert result.verdict.startswith("same: ") and len(result.rows) >= len(ge.records) - 2
        assert (result.gaps, result.unmatched) == ([], [])
        located = command("locate", tmp_path / golden, tmp_path / mine)
        assert (located.returncode, "bit for bit" in located.stdout) == (0, True), located.stdout


@pytest.mark.parametrize("engine", ["partition", "taps"])
def test_fused_engines(tmp_path: Path, engine: str) -> None:
    options: dict[str, Any] = {"execution_engine": engine}
    if engine == "taps":
        options["dump_layer"] = "Mul SoftmaxV2"
    for layout in ("ge", "native"):
        dump(tmp_path / layout, layout, net_twice, **options)
    expected, found = of_files(tmp_path / "ge"), of_records(tmp_path / "native")
    assert expected and found.keys() == expected.keys()
    assert [key for key in expected if found[key] != expected[key]] == []


# ---- conversion ------------------------------------------------------------------------------------------------------


def long_name(path: Path) -> str:
    """The name of a file, also where the file system did not take it."""
    if not re.fullmatch(r"[0-9a-f]{32}(\.csv)?", path.name):
        return path.name
    rows = list(csv.reader((path.parent / "mapping.csv").read_text().splitlines()))
    assert rows[0] == ["file", "name"]
    return dict(rows[1:])[path.name]


def without_times(root: Path) -> dict[str, list[bytes]]:
    """Content by name; times are cut out of both: the 14 digits of the folder, the 16 of a file and its header."""
    found: dict[str, list[bytes]] = {}
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        if path.name in ("graphs.json", "mapping.csv") or path.name.startswith("dump_options"):
            continue  # they speak of files and folders
        name = re.sub(r"/\d{14}/", "/", f"/{path.relative_to(root).with_name(long_name(path))}")
        name = re.sub(r"graph_\d+/\d+/|graph_\d+|_pid_\d+_ts_\d+", "", name)
        content = path.read_bytes()
        if (time := re.search(r"\.(\d{16})(\.csv)?$", name)) is not None:
            name = name.replace(time[1], "")
            value, varint = int(time[1]), b""
            while value:
                varint += bytes([value & 127 | (128 if value > 127 else 0)])
                value >>= 7
            content = content.replace(varint, b"", 1)
        found.setdefault(name, []).append(content)
    return found


def long_chain(compile: Callable[[Any], Any]) -> Any:
    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(40):
            x = x * 1.5 - 1
        return x

    with torch.no_grad():
        return compile(chain)(torch.ones(4))


CONVERTED = {
    "tensors": (net_twice, {}),
    "outputs": (net_twice, {"dump_mode": "output"}),
    "statistics": (net_twice, {"dump_data": "stats"}),
    "groups": (net_twice, {"execution_engine": "partition"}),
    "backward": (trained, {"dump_mode": "input"}),
    "long names": (long_chain, {"execution_engine": "partition"}),
}


@pytest.mark.parametrize("name", CONVERTED)
def test_converted_to_the_tree_of_operators(tmp_path: Path, name: str) -> None:
    run, options = CONVERTED[name]
    for layout in ("ge", "native"):
        dump(tmp_path / layout, layout, run, **options)
    assert command("convert", tmp_path / "native", tmp_path / "converted", "--to", "ge-tree").stderr == ""
    expected, found = without_times(tmp_path / "ge"), without_times(tmp_path / "converted")
    hashed = [path for path in (tmp_path / "converted").rglob("*") if re.fullmatch(r"[0-9a-f]{32}", path.name)]
    assert bool(hashed) == (name == "long names")
    texts = [name for name in expected if name.endswith(".txt")]
    assert len(expected) > len(texts) > 0 and found.keys() == expected.keys()
    assert [name for name in expected if name not in texts and found[name] != expected[name]] == []


def test_only_runs_of_graphs_become_a_tree(tmp_path: Path) -> None:
    with assay.capture(torch.nn.ReLU(), tmp_path / "run") as handle:
        torch.nn.ReLU()(torch.ones(1))
    assert handle is not None
    done = command("convert", tmp_path / "run", tmp_path / "out", "--to", "ge-tree")
    assert done.returncode == 2 and not (tmp_path / "out").exists()


# ---- what is stored, and what is not ---------------------------------------------------------------------------------


def test_weights_and_views_are_stored_once(tmp_path: Path) -> None:
    dump(tmp_path, "native", net_twice)
    weight = 32 * 16 * 4
    places = [place for place in map(place_of, records_of(tmp_path)) if place["bytes"] == weight]
    # The weight as Data, its transposed view, and that as input of the product, in two steps.
    assert len(places) > 6
    assert len({(place["file"], place["offset"]) for place in places}) == 1
    assert {place["file"] for place in places} == {"step-000000.safetensors"}


def test_a_weight_that_is_overwritten_between_steps_is_stored_again(tmp_path: Path) -> None:
    def run(compile: Callable[[Any], Any]) -> None:
        net = torch.nn.Linear(16, 16, bias=False)
        compiled = compile(net)
        for number in range(3):
            with torch.no_grad():
                if number == 1:
                    net.weight.mul_(3)
                compiled(torch.ones(1, 16))

    dump(tmp_path, "native", run, dump_mode="output", dump_layer="Transpose")
    data = [r for r in records_of(tmp_path) if r["type"] == "Data"]
    first, second, third = (bytes_of(tmp_path, r) for r in data)
    assert np.allclose(np.frombuffer(second, np.float32), np.frombuffer(first, np.float32) * 3)
    assert second == third and place_of(data[1])["offset"] == place_of(data[2])["offset"]


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_what_an_operator_overwrites_is_read_before_and_after(tmp_path: Path, mode: str) -> None:
    # A kept tensor that the graph itself adds to, step by step; in inference mode nothing counts versions.
    def run(compile: Callable[[Any], Any]) -> None:
        def add_to(kept: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            kept.add_(x)
            return kept * 2

        with getattr(torch, mode)():
            kept = torch.zeros(64)
            compiled = compile(add_to)
            for _ in range(3):
                compiled(kept, torch.ones(64))

    dump(tmp_path, "native", run)
    values: dict[tuple[int, str], list[float]] = {}
    for record in records_of(tmp_path):
        if record["type"] == "Assign":
            value = np.frombuffer(bytes_of(tmp_path, record), np.float32)[0]
            values.setdefault((record["step"], record["role"]), []).append(float(value))
    assert values == {
        (0, "input"): [0, 1], (0, "output"): [1], (1, "input"): [1, 2], (1, "output"): [2],
        (2, "input"): [2, 3], (2, "output"): [3],
    }  # fmt: skip


def test_statistics_leave_no_files(tmp_path: Path) -> None:
    dump(tmp_path, "native", net_twice, dump_data="stats")
    assert list(tmp_path.rglob("*.safetensors")) == list(tmp_path.rglob("*.csv")) == []
    (softmax,) = [r for r in records_of(tmp_path) if r["type"] == "SoftmaxV2" and r["role"] == "output" and r["step"]]
    assert softmax["stats"]["count"] == 32 and softmax["stats"]["mean"] == pytest.approx(1 / 8)


def test_a_black_list_and_its_conversion(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    request = {"dump_path": str(tmp_path / "data"), "dump_mode": "all"}
    request["dump_list"] = [{"layer": ["Mul"], "opname_blacklist": [{"name": "Mul", "pos": ["input0"]}]}]
    (tmp_path / "dump.json").write_text(json.dumps({"dump": {**request, "dump_level": "op"}}))
    config = CompilerConfig()
    config.dump_config.dump_config_path = str(tmp_path / "dump.json")
    config.execution.layout = "native"
    backend = get_backend(config)
    torch.compile(lambda x, y: (x + y) * y, backend=backend)(torch.ones(2), torch.ones(2))
    backend.close()
    operands = [(r["role"], r["slot"]) for r in records_of(tmp_path / "data") if r["type"] == "Mul"]
    assert operands == [("input", "1"), ("output", "0")]
    assert command("convert", tmp_path / "data", tmp_path / "out", "--to", "ge-tree").returncode == 0
    (file,) = (tmp_path / "out").rglob("Mul.Mul.*")
    assert [operand.index for operand in read_dump(file).inputs] == [1]


# ---- steps, runs, scenes ---------------------------------------------------------------------------------------------


def test_graphs_of_one_token_share_its_step(tmp_path: Path) -> None:
    def run(compile: Callable[[Any], Any]) -> None:
        first, second = compile(lambda x: x + 1), compile(lambda x: x * 2)
        for token in range(2):
            if token:
                step()
            first(torch.ones(3))
            second(torch.ones(3))
            second(torch.ones(3))

    dump(tmp_path, "native", run, dump_mode="output", execution_token_counter="token")
    called = [(r["node"].partition("/")[2], r["step"], r.get("call", 0)) for r in records_of(tmp_path)]
    assert [c for c in called if c[0] in ("Add", "Mul")] == [
        ("Add", 0, 0), ("Mul", 0, 0), ("Mul", 0, 1), ("Add", 1, 0), ("Mul", 1, 0), ("Mul", 1, 1),
    ]  # fmt: skip
    assert assay.open(tmp_path).verify() == ()


def test_a_second_run_has_a_folder_of_its_own(tmp_path: Path) -> None:
    for factor in (2, 3):
        dump(tmp_path, "native", lambda compile, by=factor: compile(lambda x: x * by)(torch.ones(2)))
    run = assay.open(tmp_path)
    (product,) = [r for r in run.records if r.op_type == "Mul" and r.role == "output"]
    assert product.numpy().tolist() == [3, 3]
    assert ["earlier" in warning for warning in run.warnings] == [True]


@pytest.mark.slow
def test_two_ranks_are_one_run(tmp_path: Path) -> None:
    program = RANK.replace("backend = get", 'config.execution.layout = "native"\nbackend = get')
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), OMP_NUM_THREADS="1")
    words = [[warm_python.python("transformers"), "-c", program, str(rank), str(tmp_path)] for rank in (0, 1)]
    ranks = [subprocess.Popen(one, env=environment, stderr=subprocess.PIPE, text=True) for one in words]
    for process in ranks:
        _, errors = process.communicate(timeout=180)
        assert process.returncode == 0, errors
    run = assay.open(tmp_path)
    assert (run.layout, run.ranks, run.coverage.complete, run.verify()) == ("native-graph", [0, 1], True, ())
    results = [r.numpy().tolist() for r in run.records if r.op_type == "Add" and r.role == "output"]
    assert results == [[1.0] * 3, [3.0] * 3]  # 0 * 2 + 1 and 1 * 2 + 1
    assert command("convert", tmp_path, tmp_path / "out", "--to", "ge-tree").returncode == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "worldsize2_global_rank0", "worldsize2_global_rank1",
    ]  # fmt: skip


def test_scenes_keep_the_layout_of_their_files(tmp_path: Path) -> None:
    (tmp_path / "dump.json").write_text(json.dumps({"dump": {"dump_path": str(tmp_path), "dump_debug": "on"}}))
    config = CompilerConfig()
    config.dump_config.dump_config_path = str(tmp_path / "dump.json")
    config.execution.layout = "native"
    with pytest.warns(UserWarning, match="layout"):
        backend = get_backend(config)
    with torch.no_grad():
        torch.compile(lambda x: x / 0, backend=backend)(torch.ones(2))
    backend.close()
    assert list(tmp_path.rglob("Opdebug.*")) and not list(tmp_path.rglob("records.jsonl"))


# ---- killed ----------------------------------------------------------------------------------------------------------

HELPER = """
import os, random, signal, sys, time
import torch
from assay.torch.graph import CompilerConfig, get_backend
torch.set_num_threads(1)
folder, seed, kills = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(2))
chance = random.Random(seed)
for kill in range(kills):
    delay = chance.choice([chance.uniform(0, 0.005), chance.uniform(0, 0.2)])
    rows = chance.choice([1, 50, 3000])
    begun, started = os.pipe()
    host = os.fork()
    if host == 0:
        try:
            os.close(begun)
            torch.manual_seed(kill)
            model = torch.nn.Sequential(torch.nn.Linear(63, 64), torch.nn.ReLU(), torch.nn.Linear(64, 7))
            os.mkdir(f"{folder}/{kill:02}")
            config = CompilerConfig()
            config.dump_config.enable_dump = True
            config.dump_config.dump_path = f"{folder}/{kill:02}"
            config.execution.layout = "native"
            config.execution.queue_bytes = 8 << 20
            compiled = torch.compile(model, backend=get_backend(config))
            with torch.no_grad():
                compiled(torch.randn(rows, 63))
                os.write(started, b"x")
                while True:
                    compiled(torch.randn(rows, 63))
        finally:
            os._exit(9)
    os.close(started)
    os.read(begun, 1)
    time.sleep(delay)
    os.kill(host, signal.SIGKILL)
    _, status = os.waitpid(host, 0)
    os.close(begun)
    assert os.WIFSIGNALED(status), f"host {kill} ended by itself with {status}"
"""


def check_killed(folder: Path) -> int:
    """Returns how many records were checked against their bytes."""
    (run,) = folder.iterdir()
    assert json.loads((run / "manifest.json").read_text())["complete"] is False
    records = record_lines.read(run / "rank0/records.jsonl")
    assert [r["n"] for r in records] == list(range(len(records)))
    for record in records:
        place = place_of(record)
        assert (run / "rank0" / place["file"]).stat().st_size >= place["offset"] + place["bytes"], record
        values = values_of(run / "rank0", record).copy().view(np.float32).astype(np.float64)
        assert values.size == int(np.prod(record["shape"])) == record["stats"]["count"]
        assert values.min() == record["stats"]["min"] and values.max() == record["stats"]["max"]
        assert np.isclose(np.sqrt((values**2).sum()), record["stats"]["l2"], rtol=1e-9)
    opened = assay.open(folder)
    assert len(opened.records) == len(records) and not opened.coverage.complete
    return len(records)


@pytest.mark.slow
def test_sixty_kills_leave_runs_that_are_right_as_far_as_they_go(tmp_path: Path) -> None:
    seed = int(os.environ.get("ASSAY_TEST_SEED", random.randrange(2**32)))
    print(f"seed: ASSAY_TEST_SEED={seed}")
    done = subprocess.run(
        [sys.executable, "-c", HELPER, str(tmp_path), str(seed), str(KILLS)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    folders = sorted(tmp_path.iterdir())
    assert len(folders) == KILLS
    # Most hosts live long enough to leave something; a test in which none did would show nothing.
    assert sum(check_killed(folder) for folder in folders) > KILLS


# ---- memory ----------------------------------------------------------------------------------------------------------

LONG_HOST = """
import resource, sys
import torch
from assay.torch.graph import CompilerConfig, get_backend
torch.set_num_threads(1)
config = CompilerConfig()
config.dump_config.enable_dump = True
config.dump_config.dump_path = sys.argv[1]
config.execution.layout = "native"
config.execution.queue_bytes = 8 << 20
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))
compiled = torch.compile(model, backend=get_backend(config))
peaks = []
with torch.no_grad():
    for step in range(90):
        compiled(torch.randn(1024, 256))
        if step in (9, 89):
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(*peaks)
"""


@pytest.mark.slow
def test_memory_is_bounded_however_many_steps(tmp_path: Path) -> None:
    # given 90 steps of 6 MB each through a buffer of 8 MiB
    done = subprocess.run([sys.executable, "-c", LONG_HOST, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    early, late = (int(peak) / 1024 for peak in done.stdout.split())
    assert sum(file.stat().st_size for file in tmp_path.rglob("*.safetensors")) > 500e6
    # then 80 more of them, 480 MB, need nothing more: what glibc keeps is holes between results of 1 and 2 MB
    assert late - early < 100
