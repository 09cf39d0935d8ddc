# SPDX-License-Identifier: Apache-2.0
"""Dump JSON and options on a compiled model: what is asked for is on disk, read by the independent reader."""

import csv
import json
import os
import warnings

import pytest

torch = pytest.importorskip("torch")

from dump_reading import index_of, read_dump, run_folder  # noqa: E402

from assay.torch.graph import CompilerConfig, ConfigurationError, get_backend  # noqa: E402
from assay.torch.graph._options_dict import config_of  # noqa: E402


def model(x, w):
    """MatMul, Add, Relu, Mul: x @ w + 1, then relu, then times x."""
    return torch.relu(x @ w + x) * x


X, W = torch.randn(3, 3), torch.randn(3, 3)


def runs(backend, count=1):
    compiled = torch.compile(model, backend=backend)
    for _ in range(count):
        assert torch.equal(compiled(X, W), model(X, W))
    backend.close()


def backend_of(tmp_path, **dump):
    file = tmp_path / "dump.json"
    file.write_text(json.dumps({"dump": {"dump_path": str(tmp_path), **dump}}))
    config = CompilerConfig()
    config.dump_config.dump_config_path = str(file)
    return get_backend(config)


def dumped(root):
    """{operator name: {step: path}}."""
    found = {}
    for path in root.glob("0/graph_*/*/*/*.*.*.*.*"):
        found.setdefault(path.name.split(".")[1], {})[int(path.parent.name)] = path
    return found


def graph_name():
    """The name that the next graph will have."""
    from assay.torch.graph import _files

    return f"graph_{_files.next_graph_number() + 1}"


def names_in_order(run):
    text = next(path for path in run.glob("dynamo_optimized_graph_*.txt")).read_text()
    return [line.split('"')[1] for line in text.splitlines() if line.startswith("  name: ")]


def test_a_whole_model(tmp_path):
    runs(backend_of(tmp_path, dump_mode="all", dump_list=[{}]))
    found = dumped(run_folder(tmp_path))
    wanted = [name for name in names_in_order(run_folder(tmp_path)) if name != "NetOutput"]
    assert sorted(found) == sorted(wanted) and len(wanted) == 6  # two Data operators and four others
    add = read_dump(found["Add"][0])
    assert torch.equal(add.outputs[0].tensor, X @ W + X)
    assert torch.equal(add.inputs[0].tensor, X @ W) and torch.equal(add.inputs[1].tensor, X)


def test_a_range_includes_both_ends(tmp_path):
    item = {"model_name": graph_name(), "opname_range": [{"begin": "Add", "end": "Relu"}]}
    runs(backend_of(tmp_path, dump_level="op", dump_list=[item]))
    found = dumped(run_folder(tmp_path))
    assert {name for name in found if not name.startswith("arg")} == {"Add", "Relu"}
    assert read_dump(found["Relu"][0]).inputs == []  # the mode of a file is "output" unless it says otherwise


def test_black_lists_leave_operands_out_and_the_others_keep_their_index(tmp_path):
    item = {
        "optype_blacklist": [{"name": "Add", "pos": ["input0"]}],
        "opname_blacklist": [{"name": "Mul", "pos": ["output0"]}],
    }
    runs(backend_of(tmp_path, dump_level="op", dump_mode="all", dump_list=[item]))
    found = dumped(run_folder(tmp_path))
    add, mul = read_dump(found["Add"][0]), read_dump(found["Mul"][0])
    assert [(operand.index, operand.shape) for operand in add.inputs] == [(1, (3, 3))]
    assert torch.equal(add.inputs[0].tensor, X)
    assert len(mul.inputs) == 2 and mul.outputs == []


def test_steps_and_chosen_statistics(tmp_path):
    runs(
        backend_of(
            tmp_path,
            dump_step="1|3-4",
            dump_data="stats",
            dump_stats=["Max", "L2norm"],
            dump_list=[{"layer": ["Add"]}],
        ),
        count=6,
    )
    found = dumped(run_folder(tmp_path))
    assert sorted(found["Add"]) == [1, 3, 4]
    with open(found["Add"][1], newline="") as file:
        (row,) = csv.DictReader(file)
    assert "Min Value" not in row
    expected = X @ W + X
    assert float(row["Max Value"]) == pytest.approx(expected.max().item(), rel=1e-5)
    norm = next(value for key, value in row.items() if key.lower().startswith("l2norm"))
    assert float(norm) == pytest.approx(expected.norm().item(), rel=1e-5)


def test_two_configurations_in_one_process_do_not_meet(tmp_path):
    folders = []
    for name, layer in (("a", "Add"), ("b", "Mul")):
        folder = tmp_path / name
        folder.mkdir()
        config = CompilerConfig()
        config.dump_config.enable_dump = True
        config.dump_config.dump_path = str(folder)
        config.dump_config.dump_layer = layer
        torch._dynamo.reset()
        runs(get_backend(config))
        folders.append(run_folder(folder))
    assert "Add" in dumped(folders[0]) and "Mul" not in dumped(folders[0])
    assert "Mul" in dumped(folders[1]) and "Add" not in dumped(folders[1])


def test_the_options_file_of_a_run_asks_for_the_same_dump(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    config = CompilerConfig()
    config.dump_config.enable_dump = True
    config.dump_config.dump_path = str(first)
    config.dump_config.dump_mode = "output"
    config.dump_config.dump_layer = "Add Mul"
    runs(get_backend(config))
    (options,) = run_folder(first).glob(f"dump_options_worldsize1_rank0_pid{os.getpid()}.json")
    document = json.loads(options.read_text())
    assert document["dump"]["dump_path"] == str(first / "worldsize1_global_rank0")

    second.mkdir()
    document["dump"]["dump_path"] = str(second)
    document["dump"]["dump_list"][0]["model_name"] = graph_name()  # the same model is another graph now
    (tmp_path / "again.json").write_text(json.dumps(document))
    again = CompilerConfig()
    again.dump_config.dump_config_path = str(tmp_path / "again.json")
    torch._dynamo.reset()
    runs(get_backend(again))
    assert set(dumped(run_folder(second))) == set(dumped(run_folder(first)))


@pytest.mark.parametrize(
    "options",
    [
        {"enable_dump": True},
        {"enable_dump": True, "execution.layout": "native"},
        {"enable_dump": True, "dump_data": "stats"},
        {"enable_dump": True, "execution.engine": "taps"},
        {"debug.data_dump.type": "npy"},
        {"debug.graph_dump.type": "txt"},
        {"debug.graph_dump.type": "py"},
        {"debug.fx_summary.type": "csv"},
        {"mode": "npugraph_ex", "enable_dump": True},
    ],
    ids=lambda options: " ".join(f"{name}={value}" for name, value in options.items()),
)
def test_a_folder_whose_name_is_no_utf8_holds_the_dump(options, tmp_path, monkeypatch):
    # given a folder that the system takes and no text names
    folder = os.path.join(os.fsencode(tmp_path), b"caf\xe9")
    os.mkdir(folder)
    paths = [name for name in options if name.startswith("debug.")]
    paths = [f"{name.rpartition('.')[0]}.path" for name in paths] or ["dump_path"]
    backend = get_backend(config_of({**options, **{name: os.fsdecode(folder) for name in paths}}))
    # when a model runs, then it computes what it computes, and what is said of it is text
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        runs(backend)
    assert all(str(warning.message).encode() for warning in said)
    # and its files are in that folder
    files = [os.path.join(where, name) for where, _, names in os.walk(folder) for name in names]
    assert files
    assert not [file for file in files if file.endswith(b".tmp")]
    # and what is written for the next run asks for the same folder
    for file in files:
        if os.path.basename(file).startswith(b"dump_options_"):
            with open(file, encoding="utf-8") as text:
                assert os.fsencode(json.load(text)["dump"]["dump_path"]).startswith(folder)
            again = CompilerConfig()
            again.dump_config.dump_config_path = os.fsdecode(file)
            backend = get_backend(again)
            assert os.fsencode(backend.request.path).startswith(folder)
            backend.close()


def test_a_layer_that_matches_nothing_is_said_and_recorded(tmp_path):
    backend = backend_of(tmp_path, dump_list=[{"layer": ["Ad", "Relu"]}])
    with pytest.warns(UserWarning, match="'Ad' matches no operator of graph_.*nearest: Add"):
        runs(backend)
    (entry,) = index_of(run_folder(tmp_path))["graphs"]
    assert any("'Ad'" in warning for warning in entry["warnings"])


def test_a_wrong_file_stops_before_anything_is_compiled_or_written(tmp_path):
    with pytest.raises(ConfigurationError) as caught:
        backend_of(tmp_path, dump_mode="none", dump_step="5-2", dump_list=[{}])
    assert [problem.item for problem in caught.value.problems] == ["dump_mode", "dump_step"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dump.json"]


def test_a_file_that_asks_for_nothing_costs_nothing(tmp_path):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        runs(backend_of(tmp_path, dump_list=[]))
    assert any("asks for no dump" in str(warning.message) for warning in said)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dump.json"]


def test_a_model_name_that_no_graph_has_is_said_with_the_nearest(tmp_path):
    name = graph_name()
    backend = backend_of(tmp_path, dump_mode="all", dump_list=[{"model_name": "grahp"}, {"model_name": name}])
    with pytest.warns(UserWarning, match=f"model_name 'grahp' is no graph of this run; did you mean '{name}'"):
        runs(backend)
    (missed,) = index_of(run_folder(tmp_path))["missed"]
    assert missed["node"] == "grahp"
