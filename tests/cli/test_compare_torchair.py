# SPDX-License-Identifier: Apache-2.0
"""`assay compare` of graph mode: GE against FX and GE fused against GE, in every layout of the dumps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from assay_command import read_csv, run, the_report
from graph_dumps import (
    Op,
    fused,
    ge_dump,
    ge_file_name,
    graph,
    write_current,
    write_fx_token,
    write_ge_token,
    write_text,
)

# Every tensor of the graph but the constants, which are numbers in FX.
ALL_OPERANDS = [
    ("MatMulV2", "inputs,0", "mm-aten.mm.default.INPUT.0"),
    ("MatMulV2", "inputs,1", "mm-aten.mm.default.INPUT.1"),
    ("MatMulV2", "outputs,0", "mm-aten.mm.default.OUTPUT.0"),
    ("Add", "inputs,0", "add-aten.add.Tensor.INPUT.0"),
    ("Add", "inputs,1", "add-aten.add.Tensor.INPUT.1"),
    ("Add", "outputs,0", "add-aten.add.Tensor.OUTPUT.0"),
    ("Mul", "inputs,0", "mul-aten.mul.Tensor.INPUT.0"),
    ("Mul", "outputs,0", "mul-aten.mul.Tensor.OUTPUT.0"),
    ("TopK", "inputs,0", "topk-aten.topk.default.INPUT.0"),
    ("TopK", "outputs,0", "topk-aten.topk.default.OUTPUT.0"),
    ("TopK", "outputs,1", "topk-aten.topk.default.OUTPUT.1"),
]


def compare(golden, mine, out, *more, name="assay", status=0):
    done = run("compare", "-gp", golden, "-mp", mine, "-o", out, *more, name=name)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def operands(rows):
    """(operator, "inputs,0", FX file without its time) of each row."""
    found = []
    for row in rows:
        file, role, index = row["my_data_path"].split(",")
        golden = Path(row["golden_data_path"]).name
        found.append((Path(file).name.split(".")[1], f"{role},{index}", golden.rsplit(".", 2)[0]))
    return found


def all_equal(rows):
    return all(float(row["relative_euclidean_distance"]) == 0 and row["cmp_fail_reason"] == "" for row in rows)


def test_ge_against_fx_pairs_every_tensor_in_the_order_of_execution(tmp_path):
    ge, fx = write_current(tmp_path, seeds=(0, 1))
    compare(fx, ge, tmp_path / "out")
    rows = read_csv(the_report(tmp_path / "out", "*.csv"))
    assert [row["token_id"] for row in rows] == ["0"] * 11 + ["1"] * 11
    assert operands(rows) == ALL_OPERANDS * 2
    assert all_equal(rows)
    assert rows[0]["my_op_type"] == "MatMulV2"
    assert rows[0]["golden_op_type"] == "aten.mm.default"
    assert rows[0]["my_shape"] == "[2, 3]"


@pytest.mark.parametrize(
    ("mine", "golden"),
    [
        ("{}/dump_20240222_095519", "{}/data_dump"),  # the documents of ait and of the first msit
        ("{}/dump_*", "{}/gm_20240222095519_dump"),  # a pattern of the shell that matched nothing
        ("{}/msit_ge_dump/dump_20240222_095519/", "{}/msit_fx_dump/data_dump"),
        ("{}/msit_ge_dump", "{}/msit_fx_dump"),
    ],
)
@pytest.mark.parametrize("place", ["dump", "."])
def test_the_folders_that_the_documents_print_are_found(tmp_path, mine, golden, place):
    write_current(tmp_path / place)
    words = ("-mp", mine.format(place), "-gp", golden.format(place).removeprefix("./"), "-o", "out")
    done = run("llm", "compare", *words, name="ait", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert operands(read_csv(the_report(tmp_path / "out", "*.csv"))) == ALL_OPERANDS
    assert ("is not there" in done.stderr) == ("msit_" not in golden.rsplit("/", 1)[-1])


@pytest.mark.parametrize(
    "words", [("compare", "{fx}", "{ge}"), ("locate", "{fx}", "{ge}"), ("show", "{ge}"), ("verify", "{fx}")]
)
def test_every_command_finds_the_folders_that_the_documents_print(tmp_path, words):
    write_current(tmp_path)
    real = run(*(word.format(fx="msit_fx_dump", ge="msit_ge_dump") for word in words), cwd=tmp_path)
    found = run(*(word.format(fx="data_dump", ge="dump_20240222_095519/") for word in words), cwd=tmp_path)
    assert found.returncode == real.returncode and real.returncode != 2, found.stderr
    said = "is not there; msit_" in found.stdout + found.stderr
    assert said and "is not there" not in real.stdout + real.stderr
    if words[0] in ("locate", "verify"):
        assert found.stdout.replace("data_dump", "msit_fx_dump").splitlines()[0] == real.stdout.splitlines()[0]


def test_a_folder_that_is_not_there_is_not_taken_for_another_one(tmp_path):
    write_current(tmp_path)
    done = run("llm", "compare", "-mp", "ge", "-gp", "fx", "-o", "out", name="msit", cwd=tmp_path)
    assert done.returncode == 1 and not (tmp_path / "out").exists()
    (tmp_path / "dump_1").mkdir()  # the user's own
    done = run("llm", "compare", "-mp", "dump_1", "-gp", "msit_fx_dump", "-o", "out", name="msit", cwd=tmp_path)
    assert "msit_ge_dump" not in done.stderr and not (tmp_path / "out").exists()


def test_a_fault_shows_in_the_operator_that_has_it_and_behind_it(tmp_path):
    ge, fx = write_current(tmp_path, ge=lambda seed: graph(seed, scale=4.5))  # instead of 3: Mul is wrong
    compare(fx, ge, tmp_path / "out")
    rows = read_csv(the_report(tmp_path / "out", "*.csv"))
    wrong = [i for i, row in enumerate(rows) if float(row["relative_euclidean_distance"]) > 1e-6]
    assert operands(rows)[wrong[0]][:2] == ("Mul", "outputs,0")
    assert float(rows[wrong[0]]["relative_euclidean_distance"]) == pytest.approx(0.5, rel=1e-5)
    assert {operands(rows)[i][0] for i in wrong} == {"Mul", "TopK"}


def test_tiled_tensors_are_compared_in_their_original_shape(tmp_path):
    ge, fx = write_current(tmp_path, tiled=True)
    compare(fx, ge, tmp_path / "out")
    rows = read_csv(the_report(tmp_path / "out", "*.csv"))
    assert operands(rows) == ALL_OPERANDS
    assert all_equal(rows)
    assert rows[1]["my_shape"] == "[3, 20]"


@pytest.mark.parametrize("first_token", [1, 2])
def test_dumps_of_7_1_0_and_before(tmp_path, first_token):
    # No level of ranks; FX counts tokens from 1.
    write_text(tmp_path / "ge", graph())
    for token in (0, 1):
        write_ge_token(tmp_path / "ge" / "20250102030405" / "0" / "graph" / "1" / str(token), graph(token))
    for token in range(first_token - 1, 2):
        write_fx_token(tmp_path / "data_dump" / str(token + 1) / f"gm_2024010100000{token}_dump", graph(token))
    said = compare(tmp_path / "data_dump", tmp_path / "ge", tmp_path / "out")
    rows = read_csv(the_report(tmp_path / "out", "msit_cmp_report_2*.csv"))
    tokens = [str(token) for token in range(first_token - 1, 2)]
    assert [row["token_id"] for row in rows] == [token for token in tokens for _ in ALL_OPERANDS]
    assert operands(rows) == ALL_OPERANDS * len(tokens)
    assert all_equal(rows)
    assert ("My token_id 0 not found in golden dump data" in said) == (first_token == 2)


def test_dumps_of_the_first_versions(tmp_path):
    root = tmp_path / "dump_20240302_101112"
    write_text(root, graph())
    write_ge_token(root / "20240302101112" / "0" / "graph" / "1" / "1", graph(5))
    write_fx_token(tmp_path / "fx" / "gm_20240101000000_dump" / "1", graph(5))
    compare(tmp_path / "fx", root, tmp_path / "out")
    rows = read_csv(the_report(tmp_path / "out", "*.csv"))
    assert operands(rows) == ALL_OPERANDS
    assert all_equal(rows)
    assert {row["token_id"] for row in rows} == {"1"}


def test_a_time_folder_finds_the_text_above_it(tmp_path):
    root = tmp_path / "dump"
    write_text(root, graph())
    write_ge_token(root / "20240302101112" / "0" / "graph" / "1" / "1", graph(5))
    write_fx_token(tmp_path / "fx" / "gm_20240101000000_dump" / "1", graph(5))
    said = compare(tmp_path / "fx", root / "20240302101112", tmp_path / "out")
    rows = read_csv(the_report(tmp_path / "out", "*.csv"))
    assert operands(rows) == ALL_OPERANDS
    assert f"the texts of the graphs are from the folder above: {root}" in said


@pytest.mark.parametrize("inside", ["0", "0/graph", "0/graph/1", "0/graph/1/1"])
def test_a_folder_inside_a_time_folder_says_which_one_to_open(tmp_path, inside):
    # Two graphs: inside of the time folder nothing tells which of the texts belongs to the numbers of one model
    root, time = tmp_path / "dump", tmp_path / "dump" / "20240302101112"
    for number in (1, 2):
        write_text(root, graph(), graph=number)
        write_ge_token(time / "0" / "graph" / f"{number}" / "1", graph(5 * number))
    write_fx_token(tmp_path / "fx" / "gm_20240101000000_dump" / "1", graph(5))
    said = compare(tmp_path / "fx", time / inside, tmp_path / "out")
    assert f"the texts of its graphs are in {root}, and which of them is its own is known in {time}: open that" in said
    assert "no text of a graph (dynamo_original_graph_*.txt) belongs to it" in said
    # and following it pairs by the text
    assert "no text of a graph" not in compare(tmp_path / "fx", time, tmp_path / "followed")


def test_operators_as_golden_against_nodes_say_what_they_are_paired_by(tmp_path):
    ge, fx = write_current(tmp_path)
    assert "golden's operators are paired with nodes by their values" in compare(ge, fx, tmp_path / "exchanged")
    assert "paired with nodes by their values" not in compare(fx, ge, tmp_path / "out")


def test_an_operator_dump_without_text_says_what_it_is_paired_by(tmp_path):
    write_ge_token(tmp_path / "ge" / "20240302101112" / "0" / "graph" / "1" / "1", graph(5))
    write_fx_token(tmp_path / "fx" / "gm_20240101000000_dump" / "1", graph(5))
    said = compare(tmp_path / "fx", tmp_path / "ge", tmp_path / "out")
    assert "no text of a graph" in said


def test_each_rank_has_a_report(tmp_path):
    ge, fx = write_current(tmp_path, ranks=(0, 10))
    compare(fx, ge, tmp_path / "out")
    for rank in (0, 10):
        rows = read_csv(the_report(tmp_path / "out", f"msit_cmp_report_rank{rank}_*.csv"))
        assert operands(rows) == ALL_OPERANDS
        assert all_equal(rows)
        assert all(f"_global_rank{rank}/" in row["golden_data_path"] for row in rows)


def test_ranks_can_be_chosen(tmp_path):
    ge, fx = write_current(tmp_path, ranks=(0, 1))
    compare(fx, ge, tmp_path / "out", "-r", "1")
    the_report(tmp_path / "out", "msit_cmp_report_rank1_*.csv")
    assert len(list((tmp_path / "out").glob("*.csv"))) == 1


def test_without_a_common_rank_there_is_nothing_to_compare(tmp_path):
    ge, _ = write_current(tmp_path / "a", ranks=(0, 1))
    _, fx = write_current(tmp_path / "b", ranks=(2, 3))
    said = compare(fx, ge, tmp_path / "out", status=2)
    assert "No common rank data in golden_path and my_path." in said


def test_each_graph_has_a_report(tmp_path):
    ge, fx = write_current(tmp_path, graphs=(1, 2))
    compare(fx, ge, tmp_path / "out")
    reports = sorted((tmp_path / "out").glob("msit_cmp_report_rank0_*.csv"))
    assert len(reports) == 2
    assert all("_graph" in report.name for report in reports)
    for number, report in enumerate(reports, 1):
        rows = read_csv(report)
        assert operands(rows) == ALL_OPERANDS
        assert all_equal(rows)
        assert all(f"/graph_{number}/" in row["golden_data_path"] for row in rows)


def test_fused_against_fx(tmp_path):
    ge, fx = write_current(tmp_path, ge=lambda seed: fused(graph(seed)))
    compare(fx, ge, tmp_path / "out")
    rows = read_csv(the_report(tmp_path / "out", "*.csv"))
    assert [row for row in operands(rows) if row[0] == "AddMul"] == [
        ("AddMul", "inputs,0", "add-aten.add.Tensor.INPUT.0"),
        ("AddMul", "inputs,1", "add-aten.add.Tensor.INPUT.1"),
        ("AddMul", "outputs,0", "mul-aten.mul.Tensor.OUTPUT.0"),
    ]
    assert all_equal(rows)


def write_fusion_pair(tmp_path, mine_ops, golden_ops=None):
    for side, ops in (("golden", golden_ops or graph()), ("mine", mine_ops)):
        write_text(tmp_path / side, graph())
        write_ge_token(tmp_path / side / "20250102030405" / "0" / "graph" / "1" / "0", ops)
    return tmp_path / "golden", tmp_path / "mine"


def ge_operands(rows):
    def short(path):
        parts = path.split(",")
        return ",".join([Path(parts[0]).name.split(".")[1], *parts[1:]])

    return [(short(row["my_data_path"]), short(row["golden_data_path"])) for row in rows]


FUSED_OPERANDS = [
    ("MatMulV2,inputs,0", "MatMulV2,inputs,0"),
    ("MatMulV2,inputs,1", "MatMulV2,inputs,1"),
    ("MatMulV2,outputs,0", "MatMulV2,outputs,0"),
    ("AddMul,inputs,0", "Add,inputs,0"),
    ("AddMul,inputs,1", "Add,inputs,1"),
    ("AddMul,inputs,2", "Mul,inputs,1"),
    ("AddMul,outputs,0", "Mul,outputs,0"),
    ("TopK,inputs,0", "TopK,inputs,0"),
    ("TopK,inputs,1", "TopK,inputs,1"),
    ("TopK,outputs,0", "TopK,outputs,0"),
    ("TopK,outputs,1", "TopK,outputs,1"),
]


def test_fused_against_unfused(tmp_path):
    golden, mine = write_fusion_pair(tmp_path, fused(graph()))
    compare(golden, mine, tmp_path / "out")
    rows = read_csv(the_report(tmp_path / "out", "*.csv"))
    assert ge_operands(rows) == FUSED_OPERANDS
    assert all_equal(rows)


def test_fused_against_unfused_by_the_metadata_of_the_optimised_graph(tmp_path):
    # The name says nothing about the members.
    golden, mine = write_fusion_pair(tmp_path, fused(graph(), "te_fused_7"))
    optimised = [Op("te_fused_7", "AutomaticBufferFusionOp", ["MatMulV2:0", "b_1:0"], outputs=[np.zeros(1)])]
    write_text(mine, optimised, kind="optimized", metadata={"te_fused_7": (["Add", "Mul"], [("Mul", 0)])})
    compare(golden, mine, tmp_path / "out")
    rows = read_csv(the_report(tmp_path / "out", "*.csv"))
    assert ge_operands(rows) == [(m.replace("AddMul", "te_fused_7"), g) for m, g in FUSED_OPERANDS]
    assert all_equal(rows)


def test_fused_against_unfused_by_what_the_dump_file_says(tmp_path):
    ops = graph()
    golden, mine = write_fusion_pair(tmp_path, ops)
    token = mine / "20250102030405" / "0" / "graph" / "1" / "0"
    place = next(i for i, op in enumerate(ops) if op.name == "Mul")
    (token / ge_file_name(ops[place], place)).unlink()
    renamed = Op("partition0_rank1_new", "MulFused", [])
    (token / ge_file_name(renamed, place)).write_bytes(
        ge_dump(renamed.name, [ops[place].inputs[0]], ops[place].outputs, origins=[("Mul", 0)])
    )
    compare(golden, mine, tmp_path / "out")
    rows = read_csv(the_report(tmp_path / "out", "*.csv"))
    assert ("partition0_rank1_new,outputs,0", "Mul,outputs,0") in ge_operands(rows)
    assert ("partition0_rank1_new,inputs,0", "Mul,inputs,0") in ge_operands(rows)
    assert all_equal(rows)


@pytest.mark.parametrize("said_by", ["file", "text"])
def test_the_unfused_side_may_have_names_of_its_own(tmp_path, said_by):
    golden, mine = write_fusion_pair(tmp_path, fused(graph()))
    (file,) = golden.rglob("Mul.Mul.*")
    mul = next(op for op in graph() if op.name == "Mul")
    origins = [("Mul", 0)] if said_by == "file" else []
    file.with_name(file.name.replace("Mul.Mul", "Mul.compiled_4")).write_bytes(
        ge_dump("compiled_4", mul.inputs, mul.outputs, origins=origins)
    )
    file.unlink()
    if said_by == "text":
        compiled = Op("compiled_4", "Mul", [], outputs=mul.outputs)
        write_text(golden, [compiled], kind="optimized", metadata={"compiled_4": (["Mul"], [("Mul", 0)])})
    compare(golden, mine, tmp_path / "out")
    rows = read_csv(the_report(tmp_path / "out", "*.csv"))
    assert ("AddMul,outputs,0", "compiled_4,outputs,0") in ge_operands(rows)
    assert all_equal(rows)


def test_a_member_without_a_file_is_replaced_by_what_made_its_input(tmp_path):
    golden_ops = graph()
    next(op for op in golden_ops if op.name == "Add").dumped = False
    golden, mine = write_fusion_pair(tmp_path, fused(graph()), golden_ops)
    said = compare(golden, mine, tmp_path / "out")
    rows = read_csv(the_report(tmp_path / "out", "*.csv"))
    assert "No dump data for op: Add." in said
    assert [pair for pair in ge_operands(rows) if pair[0].startswith("AddMul")] == [
        ("AddMul,inputs,0", "MatMulV2,outputs,0"),  # what Add took
        ("AddMul,inputs,2", "Mul,inputs,1"),
        ("AddMul,outputs,0", "Mul,outputs,0"),
    ]
    assert all_equal(rows)


def test_an_operator_that_golden_lacks_is_named(tmp_path):
    extra = Op("Relu", "Relu", [], [np.ones(3, np.float32)], [np.ones(3, np.float32)])
    golden, mine = write_fusion_pair(tmp_path, [*graph(), extra])
    said = compare(golden, mine, tmp_path / "out")
    assert "Golden data missing, My tensor name: Relu" in said
    assert all_equal(read_csv(the_report(tmp_path / "out", "*.csv")))


def test_fx_data_that_is_missing_is_named(tmp_path):
    ge, fx = write_current(tmp_path)
    for file in fx.rglob("add-aten.add.Tensor.*"):
        file.unlink()
    said = compare(fx, ge, tmp_path / "out")
    assert "FX data missing, GE tensor name: Add, FX tensor name: add-aten.add.Tensor" in said
    rows = read_csv(the_report(tmp_path / "out", "*.csv"))
    assert operands(rows) == [row for row in ALL_OPERANDS if row[0] != "Add"]


def test_a_damaged_file_is_a_row_with_its_reason(tmp_path):
    ge, fx = write_current(tmp_path)
    (damaged,) = ge.rglob("Mul.Mul.*")
    damaged.write_bytes(damaged.read_bytes()[:40])
    compare(fx, ge, tmp_path / "out")
    rows = read_csv(the_report(tmp_path / "out", "*.csv"))
    (row,) = [row for row in rows if row["my_data_path"].startswith(str(damaged))]
    assert row["cmp_fail_reason"] != ""
    assert len(rows) == len(ALL_OPERANDS) - 1
    assert all_equal(other for other in rows if other is not row)


def test_the_larger_of_two_files_of_an_operator_is_taken(tmp_path):
    ge, fx = write_current(tmp_path)
    (file,) = ge.rglob("Mul.Mul.*")
    twin = file.with_name("Mul.Mul.99.3.1735786845999999")
    twin.write_bytes(file.read_bytes()[:60])
    said = compare(fx, ge, tmp_path / "out")
    assert f"duplicated op name: Mul. [{twin.name}, {file.name}]. Will keep the larger one {file.name}." in said
    assert operands(read_csv(the_report(tmp_path / "out", "*.csv"))) == ALL_OPERANDS


@pytest.mark.parametrize("kind", ["Cast", "TransData"])
def test_an_inserted_cast_is_held_against_its_own_input(tmp_path, kind):
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    inserted = Op(f"trans_{kind}_7", kind, [], [value], [value.astype(np.float16)])
    ge, fx = write_current(tmp_path, ge=lambda seed: [*graph(seed), inserted])
    compare(fx, ge, tmp_path / "out")
    rows = read_csv(the_report(tmp_path / "out", "*.csv"))
    (row,) = [row for row in rows if "trans_" in row["my_data_path"]]
    assert row["my_data_path"].endswith(",outputs,0")
    assert row["golden_data_path"] == row["my_data_path"].replace(",outputs,0", ",inputs,0")
    assert (row["golden_dtype"], row["my_dtype"]) == ("torch.float32", "torch.float16")
    assert float(row["relative_euclidean_distance"]) == 0


def test_inputs_in_another_number_are_aligned_by_their_shapes(tmp_path):
    # The engine folded a constant into MatMul: an operand more than the graph has.
    def with_bias(seed):
        ops = graph(seed)
        mm = next(op for op in ops if op.name == "MatMulV2")
        mm.inputs = [mm.inputs[0], np.zeros(7, np.float32), mm.inputs[1]]
        return ops

    ge, fx = write_current(tmp_path, ge=with_bias)
    compare(fx, ge, tmp_path / "out")
    rows = read_csv(the_report(tmp_path / "out", "*.csv"))
    assert [row for row in operands(rows) if row[0] == "MatMulV2"] == [
        ("MatMulV2", "inputs,0", "mm-aten.mm.default.INPUT.0"),
        ("MatMulV2", "inputs,2", "mm-aten.mm.default.INPUT.1"),
        ("MatMulV2", "outputs,0", "mm-aten.mm.default.OUTPUT.0"),
    ]
    assert all_equal(rows)


def test_compat_gives_the_rows_of_the_original(tmp_path):
    ge, fx = write_current(tmp_path)
    compare(fx, ge, tmp_path / "out", "--compat", "msit")
    rows = read_csv(the_report(tmp_path / "out", "*.csv"))
    # Constants are paired with numbers because they stand in the same place.
    found = operands(rows)
    assert ("Mul", "inputs,1", "mul-aten.mul.Tensor.INPUT.1") in found
    assert ("TopK", "inputs,1", "topk-aten.topk.default.INPUT.1") in found
    keys = [row["my_data_path"].rsplit(".", 1)[1] for row in rows]
    assert keys == sorted(keys)


def test_compat_labels_fused_rows_as_the_original(tmp_path):
    golden, mine = write_fusion_pair(tmp_path, fused(graph()))
    compare(golden, mine, tmp_path / "out", "--compat", "msit")
    rows = dict(ge_operands(read_csv(the_report(tmp_path / "out", "*.csv"))))
    assert rows["MatMulV2,inputs,1"] == "MatMulV2"
    assert rows["MatMulV2,outputs,0"] == "MatMulV2,inputs,0,outputs,0"
    assert rows["TopK,outputs,1"] == "TopK,inputs,0,outputs,0,outputs,1"
    assert rows["AddMul,inputs,2"] == "Mul,inputs,1"
    assert rows["AddMul,outputs,0"] == "Mul,inputs,0,outputs,0"


def write_ops(tmp_path, ops):
    write_text(tmp_path / "ge", ops)
    write_ge_token(tmp_path / "ge" / "20250102030405" / "0" / "graph" / "1" / "0", ops)
    write_fx_token(tmp_path / "fx" / "graph_1" / "0", ops)
    return tmp_path / "ge", tmp_path / "fx"


def concatenation(count):
    parts = [np.full(3, i, np.float32) for i in range(count)]
    edges = [f"x_{i}:0" for i in range(count)] + ["Const:0"]
    return [
        Op("Const", "Const", [], dumped=False),
        Op(
            "ConcatV2",
            "ConcatV2",
            edges,
            [*parts, np.array([0], np.int32)],
            [np.concatenate(parts)],
            "cat-aten.cat.default",
            [parts, 0],
        ),
    ]


def test_a_list_of_tensors_keeps_its_order(tmp_path):
    ge, fx = write_ops(tmp_path, concatenation(12))
    compare(fx, ge, tmp_path / "out")
    rows = read_csv(the_report(tmp_path / "out", "*.csv"))
    assert operands(rows) == [
        *(("ConcatV2", f"inputs,{i}", f"cat-aten.cat.default.INPUT.0.{i}") for i in range(12)),
        ("ConcatV2", "outputs,0", "cat-aten.cat.default.OUTPUT.0"),
    ]
    assert all_equal(rows)


def test_compat_sorts_fx_files_as_text(tmp_path):
    ge, fx = write_ops(tmp_path, concatenation(12))
    compare(fx, ge, tmp_path / "out", "--compat", "msit")
    found = operands(read_csv(the_report(tmp_path / "out", "*.csv")))
    assert ("ConcatV2", "inputs,2", "cat-aten.cat.default.INPUT.0.10") in found


def test_every_output_is_compared_with_the_value_that_its_descriptor_names(tmp_path):
    a, b = np.arange(4, dtype=np.float32), np.arange(6, dtype=np.float32)
    values = ["first-aten.neg.default.OUTPUT.0", "second-aten.abs.default.OUTPUT.0"]
    ops = [
        Op("Both", "Both", ["x:0"], [a], [a, b], "first-aten.neg.default", [a], fx_values=values),
        Op("other", "Other", [], [b], [b], "second-aten.abs.default", [b], dumped=False),
    ]
    ge, fx = write_ops(tmp_path, ops)
    for file in (fx / "graph_1" / "0").glob("first-*.OUTPUT.1.*"):
        file.unlink()
    compare(fx, ge, tmp_path / "out")
    rows = read_csv(the_report(tmp_path / "out", "*.csv"))
    assert operands(rows) == [
        ("Both", "inputs,0", "first-aten.neg.default.INPUT.0"),
        ("Both", "outputs,0", "first-aten.neg.default.OUTPUT.0"),
        ("Both", "outputs,1", "second-aten.abs.default.OUTPUT.0"),
    ]
    assert all_equal(rows)
    # The original kept the rows of the last descriptor only, and paired its values in order.
    compare(fx, ge, tmp_path / "msit", "--compat", "msit")
    found = operands(read_csv(the_report(tmp_path / "msit", "*.csv")))
    assert {golden.split(".")[0] for _, _, golden in found} <= {"second-aten"}


def test_files_reduced_to_minimum_and_maximum(tmp_path):
    ge, fx = write_current(tmp_path)
    for file in [*ge.rglob("*.1735786845*")]:
        op = next(op for op in graph(10) if op.name == file.name.split(".")[1])
        reduced = {
            name: np.array([[a.min(), a.max()] for a in arrays], np.float32)
            for name, arrays in (("inputs", op.inputs), ("outputs", op.outputs))
        }
        np.savez(f"{file}_min_max.npz", **reduced)
        file.unlink()
    for file in [*fx.rglob("*.npy")]:
        array = np.load(file)
        if array.ndim:
            np.save(str(file).replace(".npy", "_min_max.npy"), np.array([array.min(), array.max()], array.dtype))
            file.unlink()
    compare(fx, ge, tmp_path / "out")
    rows = read_csv(the_report(tmp_path / "out", "*.csv"))
    found = [(Path(row["my_data_path"]).name.split(".")[1], row["my_data_path"].split(",", 1)[1]) for row in rows]
    assert found == [row[:2] for row in ALL_OPERANDS]
    assert {row["my_shape"] for row in rows} == {"[2]"}
    assert all_equal(rows)


def test_a_dump_file_can_be_shown_and_converted(tmp_path):
    ge, _ = write_current(tmp_path, tiled=True)
    (file,) = ge.rglob("Add.Add.*")
    shown = run("show", file)
    assert shown.returncode == 0, shown.stderr
    assert "inputs.1" in shown.stdout and "outputs.0" in shown.stdout
    done = run("convert", file, tmp_path / "npy", "--format", "npy")
    assert done.returncode == 0, done.stderr
    add = next(op for op in graph(10) if op.name == "Add")
    np.testing.assert_array_equal(np.load(tmp_path / "npy" / f"{file.name}.output.0.npy"), add.outputs[0])
