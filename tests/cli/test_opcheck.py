# SPDX-License-Identifier: Apache-2.0
"""`assay opcheck`, `msit llm opcheck`, `ait llm opcheck`: which operations are checked, with which parameters, and what
the command says. The oracle of the values is the RMS norm in NumPy's float64, rounded to float16."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from assay_command import binary, run
from atb_files import node, write_topology
from opcheck_dump import check, opcheck, run_folder_of, write_operation, write_tensor
from operator_runs import write_run

import assay

NORM = {"layerType": 1, "normParam": {"quantType": 0, "epsilon": 0.000009999999747378752, "rstd": False}}
HEADER = (
    "CaseNum|CaseName|OpName|OpParam|InNum|InDType|InFormat|InShape|OutNum|OutDType|OutFormat|OutShape|DataGenType|"
    "DataGenRange|InTensorFile|OutTensorFile|TestType|TestLevel|FromModel|SocVersion|ExpectedError"
)


def rms_norm(x, gamma, eps):
    x = x.astype(np.float64)
    return x * gamma.astype(np.float64) / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def norm_tensors(seed=0, eps=1e-5, shape=(4, 64)):
    """Inputs and the right output of a norm; another eps gives a wrong one."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(shape) * 0.01).astype(np.float16)  # small: the epsilon counts
    gamma = (1 + 0.1 * rng.standard_normal(shape[-1])).astype(np.float16)
    return [x, gamma], [rms_norm(x, gamma, eps).astype(np.float16)]


def write_norm(place, folder, right=True, parameters=NORM, **more):
    inputs, outputs = norm_tensors(eps=1e-5 if right else 1e-3)
    return write_operation(place, folder, parameters, inputs, outputs, **more)


@pytest.fixture
def dump(tmp_path):
    """Norms in two graphs; 0_1 is wrong."""
    place = run_folder_of(tmp_path / "dump")
    write_norm(place, "0_Prefill_layer/0_RmsNormOperation")
    write_norm(place, "0_Prefill_layer/1_RmsNormOperation", right=False)
    write_norm(place, "0_Prefill_layer/2_RmsNormOperation")
    write_norm(place, "0_Prefill_layer/10_RmsNormOperation")
    write_norm(place, "1_Prefill_layer/0_RmsNormOperation")
    return place


def verdicts(rows):
    return {row["op_id"]: row["result"] for row in rows}


# ---- which operations ----


def test_every_operation_has_one_row_in_natural_order(dump, tmp_path):
    rows = opcheck(dump, tmp_path / "r", status=1)
    assert [(row["op_id"], row["result"]) for row in rows] == [
        ("0_0", "PASS"),
        ("0_1", "FAILED"),
        ("0_2", "PASS"),
        ("0_10", "PASS"),
        ("1_0", "PASS"),
    ]
    wrong = rows[1]
    assert wrong["op_name"] == "RmsNormOperation"
    assert json.loads(wrong["op_param"]) == NORM
    assert wrong["tensor_path"] == str(dump / "0_Prefill_layer" / "1_RmsNormOperation")
    assert wrong["reason"]


@pytest.mark.parametrize("above", [0, 1, 2, 3, 4])
def test_any_folder_of_the_dump_will_do(dump, tmp_path, above):
    path = dump
    for _ in range(above):
        path = path.parent
    assert len(opcheck(path, tmp_path / "r", status=1)) == 5


def test_a_folder_below_the_run_count_keeps_the_ids_of_the_whole(dump, tmp_path):
    assert verdicts(opcheck(dump / "0_Prefill_layer", tmp_path / "a", status=1)) == {
        "0_0": "PASS",
        "0_1": "FAILED",
        "0_2": "PASS",
        "0_10": "PASS",
    }
    one = opcheck(dump / "0_Prefill_layer" / "2_RmsNormOperation", tmp_path / "b", status=0)
    assert verdicts(one) == {"0_2": "PASS"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["-ids", "0_1"], ["0_1"]),  # not 0_10
        (["-ids", "0"], ["0_0", "0_1", "0_2", "0_10"]),
        (["-ids", "1,0_2"], ["0_2", "1_0"]),
        (["-opname", "rmsnorm"], ["0_0", "0_1", "0_2", "0_10", "1_0"]),
        (["-opname", "linear,RMS", "-ids", "1_0"], ["1_0"]),
    ],
)
def test_filters(dump, tmp_path, options, expected):
    assert [row["op_id"] for row in opcheck(dump, tmp_path / "r", *options)] == expected


def test_an_input_that_is_stored_with_another_operation_belongs_to_its_own(tmp_path):
    # msprobe writes a tensor once; elsewhere it names the file: {ids of the operation}_{file}
    place = run_folder_of(tmp_path / "dump")
    inputs, outputs = norm_tensors()
    write_operation(place, "0_layer/0_RmsNormOperation", NORM, [], outputs, before=inputs)
    gamma = inputs[1]
    second = write_operation(
        place, "0_layer/1_RmsNormOperation", NORM, [], [rms_norm(outputs[0], gamma, 1e-5).astype(np.float16)],
        before=[None, gamma],
    )  # fmt: skip
    (second / "before" / "intensor0.bin").write_text(
        "$Version=1.0\n$Object.Count=0\n$Object.Length=0\nformat=2\ndtype=1\ndims=4,64\n"
        "data=0_0_outtensor0.bin\n$End=1\n"
    )
    rows = opcheck(place, tmp_path / "r", status=0)
    assert verdicts(rows) == {"0_0": "PASS", "0_1": "PASS"}
    assert rows[1]["tensor_path"] == str(second)


def test_a_filter_that_leaves_nothing_is_an_error(dump, tmp_path):
    done = run("opcheck", dump, "-ids", "7", "-o", tmp_path)
    assert done.returncode == 2
    assert (
        "nothing was checked: no operation matches -ids '7'; these ids ran: 0_0, 0_1, 0_2, 0_10, 1_0\n" in done.stderr
    )


MEANT = "no operation matches -opname 'rmsnrom'; did you mean -opname rmsnorm? these ran: RmsNormOperation"


def test_a_mistyped_name_is_answered_with_the_nearest(dump, tmp_path):
    done = run("opcheck", dump, "-opname", "rmsnrom", "-o", tmp_path)
    assert (done.returncode, f"nothing was checked: {MEANT}\n" in done.stderr) == (2, True), done.stderr


def test_the_old_command_and_python_say_it_too(dump, tmp_path):
    done = run("llm", "opcheck", "-i", dump, "-opname", "rmsnrom", "-o", tmp_path, name="msit")
    assert (done.returncode, MEANT in done.stderr + done.stdout) == (0, True), done.stderr
    report = assay.opcheck(dump, names=["rmsnrom"])
    assert list(report.warnings) == [f"nothing was checked: {MEANT}"]


def test_operators_of_torch_are_named_by_the_parts_of_their_names(tmp_path):
    golden = write_run(tmp_path / "run")
    done = run("opcheck", golden, "-opname", "mull", "-o", tmp_path)
    said = "no operation matches -opname 'mull'; did you mean -opname mul? these ran: aten.mul.Tensor"
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_operations_that_no_table_lists_are_named(dump, tmp_path):
    write_operation(dump, "2_MlaPreprocessOperation", {"a": 1}, [np.ones(3, np.float16)], [np.ones(3, np.float16)])
    row = opcheck(dump, tmp_path / "r", "-ids", "2", status=125)[0]
    assert row["result"] == "NOT_SUPPORTED"
    assert "MlaPreprocessOperation is not in the table of operations" in row["reason"]
    assert run("opcheck", dump, "-ids", "2", "-o", tmp_path, "--fail-on", "not_supported").returncode == 1


def test_a_kernel_that_is_its_whole_operation_is_checked_like_it(dump, tmp_path):
    inputs, outputs = norm_tensors(eps=1e-3)
    write_operation(dump, "1_Prefill_layer/0_RmsNormOperation/0_RmsNormKernel", None, inputs, outputs)
    rows = opcheck(dump, tmp_path / "a", "-ids", "1_0", status=1)
    assert [(row["op_name"], row["result"]) for row in rows] == [
        ("RmsNormOperation", "PASS"),
        ("RmsNormKernel", "FAILED"),
    ]
    assert len(opcheck(dump, tmp_path / "b", "-ids", "1_0", "--no-kernels", status=0)) == 1


# ---- parameters ----


def test_parameters_from_the_topology_when_there_is_no_file(tmp_path):
    place = run_folder_of(tmp_path / "dump")
    write_norm(place, "0_Layer/0_RmsNormOperation", right=False, parameters=None)
    layer = node(
        "Layer_0",
        "Layer",
        {**node("RmsNormOperation_0_0", "RmsNormOperation"), "param": dict(NORM, **{"normParam": {"epsilon": 1e-3}})},
    )
    write_topology(place.parents[2], 4711, "Model_Decoder", [layer])
    row = opcheck(place, tmp_path / "r")[0]
    assert json.loads(row["op_param"])["normParam"]["epsilon"] == 1e-3
    assert row["result"] == "PASS"  # right for this epsilon


def test_keys_that_nobody_knows_are_listed(tmp_path):
    inputs, outputs = norm_tensors()
    parameters = {**NORM, "normParam": {**NORM["normParam"], "flavour": 3}, "future": [1]}
    row = check(tmp_path, "RmsNormOperation", parameters, inputs, outputs)[0]
    assert row["result"] == "PASS"
    assert row["unknown_parameters"] == "normParam.flavour, future"


@pytest.mark.parametrize("text", ["{broken", "[1, 2]", "\x00\x01", '{"layerType": "one"}', '{"layerType": 17}'])
def test_a_broken_parameter_file_is_a_row_and_the_rest_goes_on(dump, tmp_path, text):
    (dump / "0_Prefill_layer/0_RmsNormOperation/op_param.json").write_text(text)
    rows = opcheck(dump, tmp_path / "r", status=1)
    assert rows[0]["result"] in ("ERROR", "NOT_SUPPORTED")
    assert rows[0]["reason"]
    assert verdicts(rows[1:]) == {"0_1": "FAILED", "0_2": "PASS", "0_10": "PASS", "1_0": "PASS"}


# ---- the list of operations ----


def csv_row(number, name, parameters):
    text = json.dumps(parameters, separators=(",", ":")) if parameters is not None else ""
    return (
        f"{number}|{name}{number}|{name}|{text}|2|float16;float16|nd;nd|4,64;64|1|float16|nd|4,64|customize;customize"
        "| | | | | | | |NO_ERROR"
    )


@pytest.mark.parametrize("program", ["ait", "msit", "assay"])
def test_the_list_gives_cases_and_parameters(tmp_path, program):
    place = tmp_path / "4711_4712" / "0"  # the oldest layout: process and thread
    write_norm(place, "0_Layer/0_RmsNormOperation", parameters=None)
    write_norm(place, "0_Layer/1_RmsNormOperation", parameters=None, right=False)
    write_norm(place, "0_Layer/2_RmsNormOperation", parameters=None)
    listed = [csv_row(i + 1, f"RmsNormOperation_0_{i}", NORM) for i in (0, 1)]
    listed += [csv_row(9, "RmsNormOperation_0_9", NORM), csv_row(10, "NoIds", NORM), "", "damaged|line"]
    table = tmp_path / "operation_tensors_0.csv"
    table.write_text("\n".join([HEADER, *listed]) + "\n")
    out = tmp_path / "out"
    out.mkdir()
    command = ["opcheck"] if program == "assay" else ["llm", "opcheck"]
    done = run(*command, "-i", place, "-c", table, "-o", out, "--format", "jsonl", name=program)
    assert done.returncode == (1 if program == "assay" else 0), done.stderr
    rows = [json.loads(line) for line in next(out.glob("*.jsonl")).read_text().splitlines()]
    assert [(row["op_id"], row["result"]) for row in rows] == [("0_0", "PASS"), ("0_1", "FAILED")]
    assert "1 of 3 operations of the csv have no tensors in the dump" in done.stdout + done.stderr


def test_a_list_in_other_columns_order_is_read_by_its_header(dump, tmp_path):
    table = tmp_path / "list.csv"
    table.write_text("OutDType|OpName\nfloat16|RmsNormOperation_0_1\n|RmsNormOperation_0_2\n")
    assert verdicts(opcheck(dump, tmp_path / "r", "-c", str(table), status=1)) == {"0_1": "FAILED"}


def test_a_list_without_the_needed_columns_is_refused(dump, tmp_path):
    table = tmp_path / "list.csv"
    table.write_text("CaseNum|OpName\n1|RmsNormOperation_0_1\n")
    done = run("opcheck", dump, "-c", table, "-o", tmp_path)
    assert done.returncode == 2
    assert "Cannot find enough info in csv file" in done.stderr


# ---- tensors that cannot be used ----


def test_damaged_tensors_are_rows_with_their_reason(dump, tmp_path):
    layer = dump / "0_Prefill_layer"
    (layer / "0_RmsNormOperation/after/intensor0.bin").unlink()
    truncated = layer / "2_RmsNormOperation/after/intensor0.bin"
    truncated.write_bytes(truncated.read_bytes()[:-7])
    (layer / "10_RmsNormOperation/after/outtensor0.bin").write_bytes(b"not a tensor")
    write_tensor(dump / "1_Prefill_layer/0_RmsNormOperation/after/intensor1.bin", np.ones(63, np.float16))
    rows = {row["op_id"]: row for row in opcheck(dump, tmp_path / "r", status=1)}
    assert {row["result"] for op_id, row in rows.items() if op_id != "0_1"} == {"ERROR"}
    assert "intensor0 is not in the dump" in rows["0_0"]["reason"]
    assert "intensor0" in rows["0_2"]["reason"]
    assert "outtensor0" in rows["0_10"]["reason"]
    assert "63" in rows["1_0"]["reason"]


def test_a_dump_of_descriptions_only_says_so(tmp_path):
    place = run_folder_of(tmp_path / "dump")
    folder = place / "0_RmsNormOperation/after"
    folder.mkdir(parents=True)
    (folder.parent / "op_param.json").write_text(json.dumps(NORM))
    head = "$Version=1.0\n$Object.Count=0\n$Object.Length=0\nformat=2\ndtype=1\ndims=4,64\n$End=1\n"
    for name in ("intensor0", "intensor1", "outtensor0"):
        (folder / f"{name}.bin").write_text(head)
    row = opcheck(place, tmp_path / "r", status=1)[0]
    assert row["result"] == "ERROR"
    assert "without its values" in row["reason"]


def test_nan_inputs_give_nan_goldens_that_must_be_met(tmp_path):
    inputs, outputs = norm_tensors()
    inputs[0][1, 3] = np.nan
    right = outputs[0].copy()
    right[1] = np.nan
    assert check(tmp_path / "a", "RmsNormOperation", NORM, inputs, [right])[0]["result"] == "PASS"
    row = check(tmp_path / "b", "RmsNormOperation", NORM, inputs, outputs)[0]
    assert row["result"] == "FAILED"
    assert row["pattern_mismatches"] == 64
    assert "NaN" in row["reason"]


def test_the_moment_before_alone_cannot_be_judged(tmp_path):
    place = run_folder_of(tmp_path / "dump")
    inputs, _ = norm_tensors()
    folder = write_operation(place, "0_RmsNormOperation", NORM, [], [], before=inputs)
    (folder / "after").rmdir()
    sentence = "Only the rerun mode allows checking dumped data before executing operators."
    done = run("opcheck", place, "-o", tmp_path)
    assert (done.returncode, sentence in done.stderr) == (2, True)
    done = run("llm", "opcheck", "-i", place, "-o", tmp_path, name="msit")
    assert (done.returncode, sentence in done.stderr) == (0, True)


def test_an_output_that_the_operation_does_not_have_fails(tmp_path):
    inputs, outputs = norm_tensors()
    rows = check(tmp_path, "RmsNormOperation", NORM, inputs, [*outputs, outputs[0]])
    assert [row["result"] for row in rows] == ["PASS", "FAILED"]
    assert "outtensor1" in rows[1]["reason"]


# ---- options ----


def test_results_do_not_depend_on_threads_or_memory(dump, tmp_path):
    def text(folder, *options):
        opcheck(dump, tmp_path / folder, *options)
        return next((tmp_path / folder).glob("*.jsonl")).read_bytes()

    assert text("a", "-j", "1") == text("b", "-j", "8") == text("c", "--max-memory", "1KiB")


def test_precision_mode_converts_before_anything_is_computed(tmp_path):
    inputs, outputs = norm_tensors()
    place = run_folder_of(tmp_path / "dump")
    write_operation(place, "0_RmsNormOperation", NORM, inputs, outputs)
    kept = opcheck(place, tmp_path / "a")[0]
    forced = opcheck(place, tmp_path / "b", "-pmode", "force_fp32")[0]
    assert (kept["dtype"], forced["dtype"]) == ("float16", "float32")
    assert kept["precision_standard"] == "99.9%(error<0.0009765625)"
    assert forced["precision_standard"] == "99.99%(error<9.5367431640625e-07)"
    assert kept["result"] == "PASS"
    assert forced["result"] == "FAILED"  # float16 digits under float32's limits


@pytest.mark.parametrize("standard", ["atb", "legacy-o4", "legacy-o4-strict", "legacy-o1", "mixed"])
def test_the_standard_decides_the_result(tmp_path, standard):
    inputs, outputs = norm_tensors()
    outputs[0][0, 0] *= np.float16(1.5)  # one of 256 elements: beyond atb, within 99 % of mixed only
    row = check(tmp_path, "RmsNormOperation", NORM, inputs, outputs, "--standard", standard)[0]
    assert row["standard"] == standard
    column = {
        "atb": "atb_result",
        "legacy-o4": "legacy_o4_result",
        "legacy-o1": "legacy_o1_result",
        "mixed": "mixed_result",
    }.get(standard)
    if column:
        assert row[column] == row["result"]
    assert row["atb_result"] == "FAILED"


def test_custom_metrics_become_columns(tmp_path):
    metric = tmp_path / "mine.py"
    metric.write_text("def spread(golden, mine):\n    return float(abs(golden - mine).max()), 'seen'\n")
    inputs, outputs = norm_tensors()
    row = check(tmp_path, "RmsNormOperation", NORM, inputs, outputs, "-alg", f"{metric}:spread")[0]
    golden = rms_norm(*inputs, 1e-5).astype(np.float16)
    assert row["spread"] == float(abs(golden.astype(np.float32) - outputs[0].astype(np.float32)).max())
    done = run("opcheck", tmp_path / "dump", "-o", tmp_path, "-alg", f"{tmp_path}/none.py:spread")
    assert done.returncode == 2


@pytest.mark.parametrize("program", ["assay", "msit", "ait"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-ids", "1__2"], "is no list of ids"),
        (["-ids", "a"], "is no list of ids"),
        (["-opname", "a;b"], "invalid safe_string value"),
        (["-metric", "mse"], "invalid choice: 'mse'"),
        (["-pmode", "fp8"], "invalid choice: 'fp8'"),
        (["-j", "x"], "number"),
        (["-device", "-1"], "device"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_wrong_values_end_with_status_2(dump, tmp_path, program, options, said):
    command = ["opcheck"] if program == "assay" else ["llm", "opcheck"]
    done = run(*command, "-i", dump, "-o", tmp_path, *options, name=program)
    assert done.returncode == 2
    assert said in done.stderr


def test_running_again_is_refused_clearly(dump, tmp_path):
    done = run("opcheck", dump, "-o", tmp_path, "-rerun")
    assert done.returncode == 2
    assert "-rerun needs an NPU" in done.stderr
    done = run("llm", "opcheck", "-i", dump, "-o", tmp_path, "-rerun", "-opt", name="msit")
    assert done.returncode == 0
    assert "-rerun needs an NPU" in done.stderr
    assert not list(tmp_path.glob("opcheck_result*"))


def test_something_else_than_a_dump_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(3))
    done = run("opcheck", tmp_path, "-o", tmp_path)
    assert done.returncode == 2
    assert "Input path is not in msit_dump tensors directory" in done.stderr
    done = run("llm", "opcheck", "-i", tmp_path, "-o", tmp_path, name="msit")
    assert done.returncode == 0
    assert "Input path is not in msit_dump tensors directory: " in done.stderr


# ---- the old command ----


def test_the_old_command_ends_with_0_and_counts(dump, tmp_path):
    out = tmp_path / "out"
    done = run("llm", "opcheck", "-i", dump, "-o", out, name="msit")
    assert (done.returncode, "Output path not found: " in done.stderr) == (0, True)
    quiet = run("llm", "opcheck", "-i", dump, "-o", out / "a/b", "-l", "fatal", name="ait")
    assert quiet.returncode == 0
    assert quiet.stderr == f"ait llm opcheck: error: Output path not found: {out}/a/b; nothing was checked\n"
    out.mkdir()
    done = run("llm", "oo", "-i", dump, "-o", out, name="msit")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^Total cases: 5; Total time: \d+\.\d+ seconds$", done.stdout, re.M)
    assert [bool(re.fullmatch(r"opcheck_result_\d{8}_\d{6}\.xlsx", path.name)) for path in out.iterdir()] == [True]
    done = run("llm", "opcheck", "-i", dump, "-o", out, "--fail-on", "failed", name="msit")
    assert done.returncode == 1


def test_the_old_command_takes_the_original_order_of_options(dump, tmp_path):
    done = run(
        "llm", "opcheck", "-metric", "abs", "kl", "-ids", "0_0,1", "-i", dump, "-j", "8", "-o", tmp_path, "-l", "error",
        "-opname", "Rms", "-device", "3", "-pmode", "keep_origin_dtype", "--format", "jsonl", name="msit",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in next(tmp_path.glob("*.jsonl")).read_text().splitlines()]
    assert [row["op_id"] for row in rows] == ["0_0", "1_0"]
    assert "max_abs_error" in rows[0] and "kl_divergence" in rows[0] and "cosine_similarity" not in rows[0]
    done = run("llm", "opcheck", "-i", dump, "-o", tmp_path, "-j", "9", name="msit")
    assert done.returncode == 2


@pytest.mark.parametrize("program", ["assay", "msit"])
def test_lists_may_have_full_width_commas(dump, tmp_path, program):
    command = ["opcheck"] if program == "assay" else ["llm", "opcheck"]
    options = ["-ids", "0_0\uff0c1", "--metric", "kl", "cos_sim", "-opname", "Rms\uff0clinear", "--format", "jsonl"]
    done = run(*command, "-i", dump, "-o", tmp_path, *options, name=program)
    rows = [json.loads(line) for line in next(tmp_path.glob("*.jsonl")).read_text().splitlines()]
    assert done.returncode == 0, done.stderr
    assert [row["op_id"] for row in rows] == ["0_0", "1_0"]
    assert {"kl_divergence", "cosine_similarity"} <= set(rows[0])


def test_the_table_of_operations_is_printed():
    done = run("opcheck", "--ops-list")
    assert done.returncode == 0
    names = [line for line in done.stdout.splitlines() if line and not line.startswith(" ")]
    assert names == sorted(names)
    assert {"RmsNormOperation", "LinearOperation", "SelfAttentionOperation", "ReshapeAndCacheOperation"} <= set(names)


# ---- while it runs ----


def test_ctrl_c_keeps_what_is_done(tmp_path):
    place = run_folder_of(tmp_path / "dump")
    inputs, outputs = norm_tensors(shape=(2048, 4096))
    first = write_operation(place, "0_RmsNormOperation", NORM, inputs, outputs)
    for i in range(1, 200):
        folder = place / f"{i}_RmsNormOperation"
        (folder / "after").mkdir(parents=True)
        os.link(first / "op_param.json", folder / "op_param.json")
        for name in ("intensor0", "intensor1", "outtensor0"):
            os.link(first / "after" / f"{name}.bin", folder / "after" / f"{name}.bin")
    out = tmp_path / "out"
    out.mkdir()
    process = subprocess.Popen(
        [binary(), "opcheck", place, "-o", out, "--format", "jsonl", "-j", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not any(path.stat().st_size for path in out.iterdir()):
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    rows = [json.loads(line) for path in out.iterdir() for line in path.read_text().splitlines()]
    assert 0 < len(rows) < 200
    assert {row["result"] for row in rows} == {"PASS"}


def test_ctrl_c_inside_one_case_ends_soon(tmp_path):
    # 4096 x 8192 times 8192 x 8192 in fp64: 550 GFLOP, more than ten seconds; the bytes are holes of files.
    place = run_folder_of(tmp_path / "dump")
    x, w, y = (np.zeros(shape, np.float16) for shape in ((2, 8), (4, 8), (2, 4)))
    folder = write_operation(place, "0_LinearOperation", {"transposeB": True, "hasBias": False}, [x, w], [y])
    for name, (rows, columns) in {
        "intensor0": (4096, 8192),
        "intensor1": (8192, 8192),
        "outtensor0": (4096, 8192),
    }.items():
        path = folder / "after" / f"{name}.bin"
        size = rows * columns * 2
        header = f"$Version=1.0\n$Object.Count=1\n$Object.Length={size}\nformat=2\ndtype=1\n"
        header += f"dims={rows},{columns}\n$Object.data=0,{size}\n$End=1\n"
        path.write_bytes(header.encode())
        os.truncate(path, len(header) + size)
    out = tmp_path / "out"
    out.mkdir()
    process = subprocess.Popen([binary(), "opcheck", place, "-o", out], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(1)
    assert process.poll() is None
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert (process.returncode, time.monotonic() - sent < 3) == (130, True)


def test_python_gives_the_same_rows(dump, tmp_path):
    import assay

    rows = opcheck(dump, tmp_path / "r", status=1)
    report = assay.opcheck(dump)
    assert report.counts == {"passed": 4, "failed": 1, "not_supported": 0, "errors": 0, "outputs": 5}
    assert not report.passed
    assert [row["op_id"] for row in report.failures()] == ["0_1"]
    assert json.loads(json.dumps(report.rows)) == rows
    assert "0_1" in str(report)
    written = report.write(tmp_path / "w", ["csv", "xlsx"])
    assert [Path(path).suffix for path in written] == [".csv", ".xlsx"]
    with pytest.raises(assay.Error, match="unknown standard"):
        assay.opcheck(dump, standard="best")
