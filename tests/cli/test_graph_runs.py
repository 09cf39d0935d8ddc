# SPDX-License-Identifier: Apache-2.0
"""What lies beside tensors in a dump of graph mode, in `assay show` and `assay compare`; and dumps that our own backend
made of a model under torch.compile: GE against FX, fused against unfused, several graphs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
import warm_python
from assay_command import read_csv, run, the_report
from dump_files import BFLOAT16, Dump, Operand
from graph_dumps import (
    GE_TIME,
    Op,
    ge_dump,
    ge_file_name,
    graph,
    write_fx_token,
    write_ge_token,
    write_text,
)

LEVEL = "worldsize1_global_rank0/20250102030405/0"


def compare(golden, mine, out, *more, status=0):
    done = run("compare", "-gp", golden, "-mp", mine, "-o", out, *more)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def show(path, *more):
    done = run("show", path, *more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def token(root, graph_number=1, step=0):
    return Path(root) / LEVEL / f"graph_{graph_number}" / str(graph_number) / str(step)


def write_ge(root, ops, graph_number=1, steps=(0,), **options):
    write_text(root, graph(), graph_number)
    for step in steps:
        write_ge_token(token(root, graph_number, step), ops(step), **options)
    return root


def short(path):
    """(operator, "inputs,0") of a GE row, the file's name without its time of an FX row."""
    file, _, operand = path.partition(",")
    parts = Path(file).name.split(".")
    return (parts[1], operand) if operand else ".".join(parts[:-2])


def distances(rows):
    """Of the rows with values: an empty cache is an empty tensor."""
    return [float(row["relative_euclidean_distance"]) for row in rows if row["note"] != "empty"]


# ---- statistics ------------------------------------------------------------------------------------------------------


def test_statistics_are_compared_with_statistics_and_with_tensors(tmp_path):
    golden = write_ge(tmp_path / "golden", graph)
    same = write_ge(tmp_path / "same", graph, statistics=True)
    wrong = write_ge(tmp_path / "wrong", lambda step: graph(step, scale=4.5), statistics=True)
    for other, name in ((golden, "tensors"), (same, "tables")):
        compare(other, same, tmp_path / f"same_{name}", "--rtol", "1e-5")
        said = compare(other, wrong, tmp_path / f"wrong_{name}", "--rtol", "1e-5", status=1)
        assert "statistics are compared" in said
        rows = read_csv(the_report(tmp_path / f"wrong_{name}", "*.csv"))
        failed = [short(row["my_data_path"]) for row in rows if row["result"] == "fail"]
        assert failed[0] == ("Mul", "inputs,1")  # the factor itself
        assert ("Mul", "outputs,0") in failed
        assert {name for name, _ in failed} == {"Mul", "TopK"}


def test_statistics_are_shown(tmp_path):
    root = write_ge(tmp_path / "dump", graph, statistics=True)
    lines = show(root, "MatMulV2", "--stats").splitlines()
    x = graph()[5].inputs[0]
    (line,) = [line for line in lines if "MatMulV2 input 0" in line]
    assert "float32 [2, 3]" in line and "statistics only" in line
    assert f"max {x.max():.4g}"[:8] in line
    assert " l2 " not in line  # the classic table does not have it


# ---- what a run found by itself --------------------------------------------------------------------------------------


def test_the_operator_that_changed_a_watched_output_is_named(tmp_path):
    golden = write_ge(tmp_path / "golden", graph)
    mine = write_ge(tmp_path / "mine", graph)
    add = next(op for op in graph() if op.name == "Add")
    changed = [add.outputs[0] + 1]
    for place, (name, outputs) in enumerate((("Mul_To_Add", add.outputs), ("TopK_To_Add", changed)), 20):
        again = Op(name, add.type, [])
        (token(mine) / ge_file_name(again, place)).write_bytes(ge_dump("Add", [], outputs))
    sentence = "graph_1 step 0: output 0 of Add was changed by TopK (TopK_To_Add)"
    assert f"found: {sentence}" in show(mine)
    said = compare(golden, mine, tmp_path / "out")
    assert f"mine: {sentence}" in said
    rows = read_csv(the_report(tmp_path / "out"))
    assert {short(row["my_data_path"])[0] for row in rows} == {"MatMulV2", "Add", "Mul", "TopK"}
    assert set(distances(rows)) == {0.0}


def test_graph_inputs_that_were_numbered_anew_are_not_compared_by_name(tmp_path):
    """One input more in front moves all the others: arg1_1 is w in golden and x in mine."""
    x, w = np.ones((2, 3), np.float32), np.full((3, 3), 2, np.float32)
    read = Op("MatMulV2", "MatMulV2", [], [x, w], [x @ w])
    inputs = {"golden": [x, w], "mine": [np.ones((1,), np.float32), x, w]}
    for side, arrays in inputs.items():
        ops = [Op(f"arg{i}_1", "Data", [], [], [array]) for i, array in enumerate(arrays)]
        write_ge(tmp_path / side, lambda _, ops=ops: [*ops, read])
    compare(tmp_path / "golden", tmp_path / "mine", tmp_path / "out")
    rows = read_csv(the_report(tmp_path / "out"))
    assert [short(row["my_data_path"]) for row in rows] == [
        ("MatMulV2", "inputs,0"), ("MatMulV2", "inputs,1"), ("MatMulV2", "outputs,0"),
    ]  # fmt: skip
    assert set(distances(rows)) == {0.0}


def test_operators_of_several_graphs_are_told_apart(tmp_path):
    for number in (1, 2):
        write_ge(tmp_path, lambda _: graph(), number)
    tree = show(tmp_path).splitlines()
    assert [line for line in tree if line.startswith("graph_")] == ["graph_1", "graph_2"]
    assert sum(line.startswith("MatMulV2 ") for line in tree) == 2
    lines = show(tmp_path, "--list")
    assert "step 0  graph_1  MatMulV2 input 0" in lines
    assert "step 0  graph_2  MatMulV2 input 0" in lines


def test_coverage_and_graph_breaks_of_graphs_json_are_shown(tmp_path):
    root = write_ge(tmp_path / "dump", graph)
    entry = {
        "graph": 1,
        "name": "graph_1",
        "kind": "inference",
        "operators": 10,
        "planned": 5,
        "dumped": 4,
        "steps": [0],
    }
    entry |= {"break_reason": "print", "break_place": "net.py:12", "warnings": ["no operator is called Addd"]}
    entry["missed"] = [{"node": "Sparse_1", "reason": "a sparse tensor", "count": 2}]
    document = {"assay": "0.1.0", "torch": "2.13.0", "engine": "interpreter", "complete": False, "graphs": [entry]}
    (root / "worldsize1_global_rank0/20250102030405/graphs.json").write_text(json.dumps(document))
    said = show(root)
    assert "INCOMPLETE" in said
    assert "captured 4 of 5 nodes" in said
    assert "missed 2 x graph_1 Sparse_1: a sparse tensor" in said
    assert "found: graph break at graph_1, net.py:12: print" in said
    assert "graph_1: inference, 10 operators, 4 of 5 planned, steps 0" in said
    assert "warning: graph_1: no operator is called Addd" in said


# ---- matching --------------------------------------------------------------------------------------------------------


def test_inputs_of_a_fused_operator_are_found_by_the_values_they_are(tmp_path):
    # Two inputs of one shape, in another order than the members take them: only the edges tell them apart.
    a, b, c = (np.random.default_rng(i).standard_normal(4).astype(np.float32) for i in range(3))
    ops = [
        Op("a", "Data", [], dumped=False),
        Op("b", "Data", [], dumped=False),
        Op("c", "Data", [], dumped=False),
        Op("Sub", "Sub", ["a:0", "b:0"], [a, b], [a - b]),
        Op("Mul", "Mul", ["Sub:0", "c:0"], [a - b, c], [(a - b) * c]),
    ]
    fused = Op("SubMul", "AutomaticBufferFusionOp", ["c:0", "b:0", "a:0"], [c, b, a], [(a - b) * c])
    for side, written in (("golden", ops), ("mine", [*ops[:3], fused])):
        write_text(tmp_path / side, ops)
        write_ge_token(token(tmp_path / side), written)
    write_text(
        tmp_path / "mine", [*ops[:3], fused], kind="optimized", metadata={"SubMul": (["Sub", "Mul"], [("Mul", 0)])}
    )
    compare(tmp_path / "golden", tmp_path / "mine", tmp_path / "out")
    rows = read_csv(the_report(tmp_path / "out"))
    assert [(short(row["my_data_path"]), short(row["golden_data_path"])) for row in rows] == [
        (("SubMul", "inputs,0"), ("Mul", "inputs,1")),
        (("SubMul", "inputs,1"), ("Sub", "inputs,1")),
        (("SubMul", "inputs,2"), ("Sub", "inputs,0")),
        (("SubMul", "outputs,0"), ("Mul", "outputs,0")),
    ]
    assert set(distances(rows)) == {0.0}


def test_operands_that_were_left_out_do_not_shift_the_others(tmp_path):
    golden = write_ge(tmp_path / "golden", graph)
    mine = write_ge(tmp_path / "mine", graph)
    ops = graph()
    place = next(i for i, op in enumerate(ops) if op.name == "TopK")
    topk = ops[place]
    # Input 0 and output 0 left out.
    data = ge_dump("TopK", topk.inputs[1:], topk.outputs[1:], indices=[1, 1])
    (token(mine) / ge_file_name(topk, place)).write_bytes(data)
    compare(golden, mine, tmp_path / "out")
    rows = read_csv(the_report(tmp_path / "out"))
    pairs = [(short(row["my_data_path"]), short(row["golden_data_path"])) for row in rows]
    assert [pair for pair in pairs if pair[0][0] == "TopK"] == [
        (("TopK", "inputs,1"), ("TopK", "inputs,1")),
        (("TopK", "outputs,1"), ("TopK", "outputs,1")),
    ]
    assert set(distances(rows)) == {0.0}


def test_a_token_of_a_graph_that_was_compiled_again_finds_its_counterpart(tmp_path):
    # Golden decodes both tokens with graph_2; mine compiled the same code again for the second.
    for step, number in ((0, 1), (1, 2), (2, 2)):
        write_ge(tmp_path / "golden", lambda step: graph(step), number, [step])
        write_fx_token(tmp_path / "fx/worldsize1_global_rank0" / f"graph_{number}" / str(step), graph(step))
    for step, number in ((0, 1), (1, 2), (2, 3)):
        write_ge(tmp_path / "mine", lambda step: graph(step), number, [step])
    for golden in ("golden", "fx"):
        said = compare(tmp_path / golden, tmp_path / "mine", tmp_path / f"out_{golden}")
        assert "step 2 ran in graphs of different numbers" in said
        reports = sorted((tmp_path / f"out_{golden}").glob("*.csv"))
        rows = [row for report in reports for row in read_csv(report)]
        assert {row["token_id"] for row in rows} == {"0", "1", "2"}
        assert len({sum(row["token_id"] == str(step) for row in rows) for step in range(3)}) == 1
        assert set(distances(rows)) == {0.0}


def test_a_damaged_text_is_named_and_names_of_operators_tell_the_rest(tmp_path):
    golden = write_ge(tmp_path / "golden", graph)
    mine = write_ge(tmp_path / "mine", graph)
    (text,) = mine.glob("dynamo_original_*")
    text.write_text(text.read_text()[:200])
    said = compare(golden, mine, tmp_path / "out")
    assert text.name in said
    rows = read_csv(the_report(tmp_path / "out"))
    assert {short(row["my_data_path"])[0] for row in rows} == {"MatMulV2", "Add", "Mul", "TopK"}


def test_values_of_a_captured_graph_are_compared_by_node_and_count(tmp_path):
    import torch

    for side, factor in (("golden", 1.0), ("mine", 2.0)):
        folder = tmp_path / side / "worldsize1_global_rank0"
        folder.mkdir(parents=True)
        for count in (0, 1):
            torch.save(torch.arange(3.0) + count, folder / f"add_device_0_{count}.pt")
            torch.save((torch.arange(3.0) + count + 1) * factor, folder / f"mul_1_device_0_{count}.pt")
    assert "captured-graph, 4 records, steps 0-1" in show(tmp_path / "mine")
    compare(tmp_path / "golden", tmp_path / "mine", tmp_path / "out", "--rtol", "1e-5", status=1)
    rows = read_csv(the_report(tmp_path / "out"))
    assert sorted((row["token_id"], Path(row["my_data_path"]).name, row["result"]) for row in rows) == [
        ("0", "add_device_0_0.pt", "pass"),
        ("0", "mul_1_device_0_0.pt", "fail"),
        ("1", "add_device_0_1.pt", "pass"),
        ("1", "mul_1_device_0_1.pt", "fail"),
    ]


def test_an_operator_that_overflowed_is_shown_with_its_cause(tmp_path):
    import struct

    root = write_ge(tmp_path / "dump", graph)
    place = next(i for i, op in enumerate(graph()) if op.name == "Mul")
    payload = struct.pack("<6I11Q", 0x5A5A5A5A, 0, 1, 0, 0, 88, 1, 3, place, 0, 0, 0, 0, 0, 0, 0, 0x20)
    report = ge_dump("Node_OpDebug", [], [np.frombuffer(payload.ljust(2048, b"\0"), np.int32)])
    (token(root) / f"Opdebug.Node_OpDebug.90.5.{GE_TIME + 50}").write_bytes(report)
    said = show(root)
    assert f"found: overflow, graph_1 step 0: Mul (AI Core, task {place}, stream 3)" in said
    assert "floating" in said


# ---- our own dumps ---------------------------------------------------------------------------------------------------

# Of one tensor, |fused - unfused| / |unfused| in L2; measured 3e-7.
FUSED_RTOL = 1e-5

CAPTURE = """
import sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from assay.torch.graph import CompilerConfig, get_backend, step

folder, engine = sys.argv[1:]
torch.manual_seed(0)
sizes = dict(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2)
model = LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=1, max_position_embeddings=32)).eval()
config = CompilerConfig()
if engine == "fx":
    config.debug.data_dump.type = "npy"
    config.debug.data_dump.path = folder
else:
    config.dump_config.enable_dump = True
    config.dump_config.dump_path = folder
    config.execution.engine = engine
config.execution.token_counter = "token"
compiled = torch.compile(model, backend=get_backend(config))
with torch.no_grad():
    out = compiled(input_ids=torch.arange(5)[None], use_cache=True)
    step()
    compiled(input_ids=out.logits[:, -1:].argmax(-1), past_key_values=out.past_key_values, use_cache=True)
"""


def capture(folder, engine):
    folder.mkdir(parents=True)
    done = subprocess.run(
        [warm_python.python("transformers"), "-c", CAPTURE, str(folder), engine],
        capture_output=True,
        text=True,
        timeout=500,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def unfused(tmp_path_factory):
    pytest.importorskip("transformers")
    return capture(tmp_path_factory.mktemp("llama") / "unfused", "interpreter")


def all_rows(folder):
    reports = sorted(Path(folder).glob("*.csv"))
    assert len(reports) == 2  # prefill and decode are graphs of their own
    return [row for report in reports for row in read_csv(report)]


def unmatched(said):
    return [line for line in said.splitlines() if "aligned by shape" in line]


@pytest.mark.slow
def test_a_llama_against_its_fx_dump_pairs_every_tensor_and_all_are_equal(unfused, tmp_path):
    fx = capture(tmp_path / "fx", "fx")
    done = run("compare", "-gp", fx, "-mp", unfused, "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    rows = all_rows(tmp_path / "out")
    assert {row["token_id"] for row in rows} == {"0", "1"}
    assert set(distances(rows)) == {0.0}
    assert {row["cmp_fail_reason"] for row in rows} == {""}
    # Every tensor that an operator made is there; graph inputs have no file of their own in FX.
    records = json.loads(run("show", unfused, "--json").stdout)["records"]
    made = [r for r in records if r["role"] == "output" and r["type"] not in ("Data", "Const") and 0 not in r["shape"]]
    outputs = [row for row in rows if ",outputs," in row["my_data_path"]]
    assert len(outputs) >= len(made)


def test_coverage_of_a_llama_is_complete(unfused):
    report = json.loads(run("show", unfused, "--json").stdout)
    coverage = report["coverage"]
    assert coverage["complete"]
    assert coverage["planned"] == coverage["captured"] > 100
    assert coverage["missed"] == []
    assert report["properties"]["config.engine"] == "interpreter"


@pytest.mark.slow
def test_a_fused_llama_against_the_unfused_one_differs_by_rounding_only(unfused, tmp_path):
    fused = capture(tmp_path / "fused", "partition")
    done = run("compare", "-gp", unfused, "-mp", fused, "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    rows = all_rows(tmp_path / "out")
    assert {row["cmp_fail_reason"] for row in rows} == {""}
    assert 0 < max(distances(rows)) < FUSED_RTOL
    # Every operand of every fused group has its counterpart among the members.
    paired = {row["my_data_path"] for row in rows}
    groups = [path for path in fused.rglob("AutomaticBufferFusionOp.*")]
    assert len(groups) > 10
    records = [r for r in json.loads(run("show", fused, "--json").stdout)["records"] if "AutomaticBuffer" in r["type"]]
    labels = {f"{r['file']},{r['role']}s,{r['slot']}" for r in records}
    assert labels <= paired


# ---- types ----


@pytest.mark.parametrize(("compat", "dtype"), [([], "torch.bfloat16"), (["--compat", "msit"], "torch.float32")])
def test_the_dtype_of_a_device_dump_is_that_of_the_file(tmp_path, compat, dtype):
    """docs/commands/compare.md and docs/formats/cann-dump.md. The original's CANN reader had widened bfloat16."""
    values = torch.tensor([1.0, -2.5, 3.0]).to(torch.bfloat16)  # exact in the type
    for side in ("golden", "mine"):
        folder = token(tmp_path / side)
        folder.mkdir(parents=True)
        operand = Operand(BFLOAT16, (3,), values.view(torch.int16).numpy().tobytes())
        (folder / "Add.Add_1.12.3.1760000000123400").write_bytes(Dump("Add_1", outputs=[operand]).encode())
    compare(tmp_path / "golden", tmp_path / "mine", tmp_path / "out", *compat)
    (row,) = read_csv(the_report(tmp_path / "out"))
    assert (row["golden_dtype"], row["my_dtype"]) == (dtype, dtype)
    assert (row["golden_max_value"], row["golden_min_value"]) == ("3.0", "-2.5")
