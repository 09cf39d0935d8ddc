# SPDX-License-Identifier: Apache-2.0
"""`assay compare`: rows and files against NumPy and openpyxl, exit statuses, bad input, bounded memory."""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import openpyxl
import pytest
import torch
from assay_command import binary, has_mapped, read_csv, run, the_report, write_sparse_npy, write_torch_tree

C5_COLUMNS = [
    "token_id",
    "data_id",
    "golden_data_path",
    "golden_op_type",
    "golden_dtype",
    "golden_shape",
    "golden_max_value",
    "golden_min_value",
    "golden_mean_value",
    "my_data_path",
    "my_op_type",
    "my_dtype",
    "my_shape",
    "my_max_value",
    "my_min_value",
    "my_mean_value",
    "cosine_similarity",
    "max_relative_error",
    "mean_relative_error",
    "max_absolute_error",
    "mean_absolute_error",
    "kl_divergence",
    "relative_euclidean_distance",
    "cmp_fail_reason",
]
STATISTICS_COLUMNS = [
    "token_id",
    "data_id",
    "golden_data_path",
    "golden_op_type",
    "my_data_path",
    "my_op_type",
    "max_stat_absolute_error",
    "max_stat_relative_error",
    "min_stat_absolute_error",
    "min_stat_relative_error",
    "mean_stat_absolute_error",
    "mean_stat_relative_error",
    "l2norm_stat_absolute_error",
    "l2norm_stat_relative_error",
]


def write_flat(folder, arrays):
    folder.mkdir()
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def oracle(golden, mine):
    """The corrected metrics in NumPy fp64, straight from their formulas."""
    g = golden.astype(np.float64).ravel()
    m = mine.astype(np.float64).ravel()
    finite = np.isfinite(g) & np.isfinite(m)
    g, m = g[finite], m[finite]
    error = np.abs(m - g)
    relative = error / np.maximum(np.abs(g), 2.0**-23)
    norm_g, norm_m = np.linalg.norm(g), np.linalg.norm(m)
    p, q = np.exp(g - g.max()), np.exp(m - m.max())
    log_p, log_q = g - g.max() - np.log(p.sum()), m - m.max() - np.log(q.sum())
    return {
        "cosine_similarity": 1.0 if norm_g == norm_m == 0 else g @ m / (max(norm_g, 1e-8) * max(norm_m, 1e-8)),
        "max_relative_error": relative.max(),
        "mean_relative_error": relative.mean(),
        "max_absolute_error": error.max(),
        "mean_absolute_error": error.mean(),
        "kl_divergence": max(0.0, float(np.exp(log_p) @ (log_p - log_q))),
        "relative_euclidean_distance": np.linalg.norm(m - g) / norm_g,
    }


def test_metrics_of_many_arrays_agree_with_numpy(tmp_path):
    random = np.random.default_rng(7)
    golden, mine = {}, {}
    for i in range(60):
        shape = tuple(random.integers(1, 9, size=random.integers(0, 4)))
        dtype = [np.float32, np.float64, np.float16, np.int32][i % 4]
        base = random.normal(size=shape) * 10.0 ** random.integers(-3, 3)
        golden[f"t{i}"] = (base * (100 if dtype == np.int32 else 1) + 1).astype(dtype)
        noise = random.normal(size=shape) * (5 if dtype == np.int32 else 0.01)
        mine[f"t{i}"] = (golden[f"t{i}"] + noise).astype(dtype)
    write_flat(tmp_path / "g", golden)
    write_flat(tmp_path / "m", mine)

    done = run("compare", tmp_path / "g", tmp_path / "m", "-o", tmp_path / "out")

    assert done.returncode == 0, done.stderr
    rows = read_csv(the_report(tmp_path / "out"))
    assert len(rows) == 60
    for row in rows:
        name = row["my_data_path"].rsplit("/", 1)[1][:-4]
        for column, expected in oracle(golden[name], mine[name]).items():
            tolerance = {"rel": 1e-9, "abs": 1e-12} if column == "kl_divergence" else {"rel": 1e-12, "abs": 1e-15}
            assert float(row[column]) == pytest.approx(expected, **tolerance), (name, column)
        assert float(row["golden_max_value"]) == golden[name].max()


def test_positions_that_are_not_finite_are_counted_and_left_out(tmp_path):
    golden = np.array([1.0, np.nan, np.inf, np.inf, 2.0, 3.0, np.nan], np.float32)
    mine = np.array([1.5, np.nan, np.inf, -np.inf, np.nan, 3.0, 1.0], np.float32)
    write_flat(tmp_path / "g", {"t": golden})
    write_flat(tmp_path / "m", {"t": mine})
    run("compare", tmp_path / "g", tmp_path / "m", "-o", tmp_path / "out")
    (row,) = read_csv(the_report(tmp_path / "out"))
    assert row["max_absolute_error"] == "0.5"  # |1.5 - 1|; 3 = 3; nothing else is finite on both sides
    counts = [
        "compared_count",
        "nan_only_in_golden",
        "nan_only_in_my",
        "nan_in_both",
        "inf_in_both",
        "inf_sign_mismatches",
    ]
    assert [row[c] for c in counts] == ["2", "1", "1", "1", "2", "1"]
    assert row["cmp_fail_reason"] == "golden_data includes NAN or inf. my_data includes NAN or inf."
    assert row["golden_max_value"] == ""  # NaN


def test_the_worked_example_has_the_originals_values(tmp_path):
    golden = np.array([1, 2, 0, -4], np.float32)
    mine = np.array([1.001, 1.998, 0.5, -4.01], np.float32)
    write_flat(tmp_path / "g", {"t": golden})
    write_flat(tmp_path / "m", {"t": mine})
    for compat, expected in {
        "msit": [0.9941198684, 0.0025000572, 0.0011250228, 0.0100002289, 0.0032500625, 0.0117923277, 0.1091318566],
        "none": [0.9941198684, None, None, 0.5, 0.1282500625, 0.0117923277, 0.1091318566],
    }.items():
        run("compare", tmp_path / "g", tmp_path / "m", "-o", tmp_path / compat, "--compat", compat)
        path = the_report(tmp_path / compat)
        header = path.read_text().splitlines()[0].split(",")
        (row,) = read_csv(path)
        assert header[: len(C5_COLUMNS)] == C5_COLUMNS
        assert (len(header) == len(C5_COLUMNS)) == (compat == "msit")
        for column, value in zip(C5_COLUMNS[16:23], expected):
            if value is not None:
                assert float(row[column]) == pytest.approx(value, abs=1.5e-8), (compat, column)
        assert [row[f"golden_{c}_value"] for c in ("max", "min", "mean")] == ["2.0", "-4.0", "-0.25"]
        assert row["golden_dtype"] == "torch.float32"
        assert row["golden_shape"] == "[4]"


def test_a_tree_gives_a_workbook_with_three_levels_and_a_summary(tmp_path):
    golden = write_torch_tree(tmp_path / "g")
    mine = write_torch_tree(tmp_path / "m", change=lambda name, t: t * 1.5 if name.endswith("layers.3") else t, pid=2)
    done = run("compare", "-gp", golden, "-mp", mine, "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    path = the_report(tmp_path / "out", "msit_cmp_report_*.xlsx")
    assert path.stat().st_mode & 0o777 == 0o640
    book = openpyxl.load_workbook(path)
    assert book.sheetnames == ["layer", "module", "api", "summary"]
    layer = book["layer"]
    assert [cell.value for cell in layer[1]][: len(C5_COLUMNS)] == C5_COLUMNS
    assert layer.freeze_panes == "A2"
    assert layer.auto_filter.ref.startswith("A1:")
    assert layer.max_row == 1 + 12
    assert book["module"].max_row == 1 + 24
    column = C5_COLUMNS.index("relative_euclidean_distance") + 1
    values = [layer.cell(row, column).value for row in range(2, 14)]
    assert values[3] == pytest.approx(0.5, rel=1e-6)
    assert values[:3] == [0, 0, 0]
    ids = [sheet.cell(row, 2).value for sheet in book.worksheets[:3] for row in range(2, sheet.max_row + 1)]
    assert ids == list(range(len(ids)))


def test_api_level_pairs_every_output_once_in_execution_order(tmp_path):
    golden = write_torch_tree(tmp_path / "g", tokens=(0, 1))
    mine = write_torch_tree(tmp_path / "m", tokens=(0, 1), pid=2)
    run("compare", golden, mine, "-cl", "api", "-o", tmp_path / "out")
    rows = read_csv(the_report(tmp_path / "out"))
    # per token: root, model, embed, 12 x (layer, attention, mlp), norm, head = 41
    assert len(rows) == 82
    assert [row["data_id"] for row in rows] == [str(i) for i in range(82)]
    assert [row["token_id"] for row in rows] == ["0"] * 41 + ["1"] * 41
    assert len({row["my_data_path"] for row in rows}) == 82
    assert {row["my_op_type"] for row in rows} >= {"LlamaDecoderLayer", "Linear"}


def test_short_models_have_layers_too_unless_the_original_is_wanted(tmp_path):
    golden = write_torch_tree(tmp_path / "g", layer_count=4)
    mine = write_torch_tree(tmp_path / "m", layer_count=4, pid=2)
    run("compare", golden, mine, "-cl", "layer", "-o", tmp_path / "ours")
    run("compare", golden, mine, "-cl", "layer", "-o", tmp_path / "msit", "--compat", "msit")
    assert len(read_csv(the_report(tmp_path / "ours"))) == 4
    assert read_csv(the_report(tmp_path / "msit")) == []


def test_combinations_that_do_not_fit_are_left_out_of_the_csv(tmp_path):
    def three_outputs(name, tensor):
        if name == "root.model.layers.0":
            return {"output_0": tensor, "output_1_0": tensor[:1], "output_1_1": tensor[:1]}
        return tensor

    golden = write_torch_tree(tmp_path / "g", change=three_outputs)
    mine = write_torch_tree(tmp_path / "m", change=three_outputs, pid=2)
    for compat in ("none", "msit"):
        run("compare", golden, mine, "-cl", "layer", "-o", tmp_path / compat, "--compat", compat)
        rows = read_csv(the_report(tmp_path / compat))
        # the golden run's nested outputs are dropped, so output_0 meets three files; two have another shape
        assert len(rows) == 12
        assert [row["data_id"] for row in rows][:2] == ["0", "3"]


def test_compat_msit_filters_int8_rows_as_the_original_did(tmp_path):
    quantised = [f"root.model.layers.{i}" for i in range(3)]
    golden = write_torch_tree(tmp_path / "g")
    mine = write_torch_tree(tmp_path / "m", change=lambda n, t: t.to(torch.int8) if n in quantised else t, pid=2)
    run("compare", golden, mine, "-cl", "layer", "-o", tmp_path / "msit", "--compat", "msit")
    # Removing a row while walking over the list skipped the next one: 0 and 2 go, 1 stays.
    assert [row["data_id"] for row in read_csv(the_report(tmp_path / "msit"))] == ["1", *map(str, range(3, 12))]
    run("compare", golden, mine, "-cl", "layer", "-o", tmp_path / "none")
    reasons = [row["cmp_fail_reason"] for row in read_csv(the_report(tmp_path / "none"))]
    assert reasons == ["int8 against a float type needs scale and offset."] * 3 + [""] * 9


@pytest.mark.parametrize("statistics_side", ["both", "golden", "mine", "none"])
def test_statistics_compare_whatever_side_has_them(tmp_path, statistics_side):
    values = {"g": torch.tensor([[1.0, -2.0], [3.0, 4.0]]), "m": torch.tensor([[1.0, -2.0], [3.0, 5.0]])}
    folders = {}
    for side, tensor in values.items():
        rank = tmp_path / side / "msit_dump_20250220_083154" / "torch_tensors" / f"cpu_{1 if side == 'g' else 2}"
        module = rank / "0" / "root.norm"
        module.mkdir(parents=True)
        tree = {"name": "root", "type": "M", "children": [{"name": "root.norm", "type": "Norm", "children": []}]}
        (rank / "model_tree.json").write_text(json.dumps(tree))
        if statistics_side in ("both", {"g": "golden", "m": "mine"}[side]):
            header = "NodeName,NodeType,InputOutput,Index,DataType,Shape,Max,Min,Mean,L2Norm\r\n"
            t = tensor.double()
            row = f'root.norm,Norm,Output,0,torch.float32,"(2, 2)",{t.max()},{t.min()},{t.mean()},{t.norm()}\r\n'
            (module / "statistics.csv").write_bytes((header + row).encode())
        else:
            torch.save(tensor, module / "output.pth")
        folders[side] = rank
    done = run("compare", folders["g"], folders["m"], "-st", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    path = the_report(tmp_path / "out", "statstics_cmp_report_*.csv")
    assert path.read_text() == the_report(tmp_path / "out", "statistics_cmp_report_*.csv").read_text()
    assert path.read_text().splitlines()[0].split(",")[: len(STATISTICS_COLUMNS)] == STATISTICS_COLUMNS
    (row,) = read_csv(path)
    assert float(row["max_stat_absolute_error"]) == 1
    assert float(row["max_stat_relative_error"]) == 0.25
    for column in ("golden_data_path", "my_data_path"):
        assert Path(row[column]).is_file(), row[column]
    assert float(row["min_stat_absolute_error"]) == 0
    assert float(row["mean_stat_absolute_error"]) == pytest.approx(0.25)


def test_limits_decide_the_exit_status(tmp_path):
    golden = write_torch_tree(tmp_path / "g")
    mine = write_torch_tree(tmp_path / "m", change=lambda name, t: t * 1.1 if name.endswith("5.mlp") else t, pid=2)
    out = tmp_path / "out"
    assert run("compare", golden, mine, "-o", out).returncode == 0
    assert run("compare", golden, mine, "-o", out, "--rel-l2", "0.2").returncode == 0
    failed = run("compare", golden, mine, "-o", out, "--rel-l2", "0.01")
    assert failed.returncode == 1
    assert "model.layers.5.mlp output" in failed.stdout.split("the first is not known")[1]
    assert run("compare", golden, mine, "-o", out, "--rel-l2", "0.01", "--exit-zero").returncode == 0
    rules = tmp_path / "limits.json"
    rules.write_text('[{"match": "*layers.5.mlp*", "rel_l2": 0.2}, {"rel_l2": 0.0}]')
    assert run("compare", golden, mine, "-o", out, "--thresholds", rules).returncode == 0
    assert run("compare", golden, mine, "-o", out, "--atol", "0.0", "--rtol", "0.11").returncode == 0
    assert run("compare", golden, mine, "-o", out, "--rtol", "0.09").returncode == 1
    assert run("compare", golden, mine, "-o", out, "--cos", "0.9999").returncode == 0  # a factor is no angle


def test_unmatched_tensors_are_listed_and_counted(tmp_path):
    golden = write_torch_tree(tmp_path / "g", layer_count=12)
    mine = write_torch_tree(tmp_path / "m", layer_count=11, pid=2)
    done = run("compare", golden, mine, "-cl", "api", "--unmatched", "-o", tmp_path / "out")
    rows = read_csv(the_report(tmp_path / "out", "msit_cmp_unmatched_*.csv"))
    assert {(row["side"], row["path"].split("/")[-2]) for row in rows} == {
        ("golden", "root.model.layers.11"),
        ("golden", "root.model.layers.11.mlp"),
        ("golden", "root.model.layers.11.self_attn"),
    }
    assert rows[0]["reason"] == "no node of this name or type in mine"
    assert "matched 96.2 %" in done.stdout  # 76 of 41 + 38


def test_json_lines_hold_the_same_rows(tmp_path):
    golden = write_flat(tmp_path / "g", {"t": np.array([1.0, np.nan])})
    mine = write_flat(tmp_path / "m", {"t": np.array([2.0, np.nan])})
    run("compare", golden, mine, "--jsonl", "-o", tmp_path / "out")
    (line,) = the_report(tmp_path / "out", "msit_cmp_report_*.jsonl").read_text().splitlines()
    row = json.loads(line)
    assert row["max_absolute_error"] == 1.0
    assert row["golden_max_value"] is None


def test_two_files_print_their_metrics_and_write_only_on_request(tmp_path):
    np.save(tmp_path / "a.npy", np.array([1.0, 2.0]))
    np.save(tmp_path / "b.npy", np.array([1.0, 2.5]))
    done = run("compare", "a.npy", "b.npy", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "max_absolute_error           0.5" in done.stdout
    assert not list(tmp_path.glob("msit_*"))
    run("compare", "a.npy", "b.npy", "-o", "out", cwd=tmp_path)
    (row,) = read_csv(the_report(tmp_path / "out"))
    assert row["max_absolute_error"] == "0.5"


def test_a_second_report_of_the_same_second_gets_its_own_name(tmp_path):
    golden = write_flat(tmp_path / "g", {"t": np.ones(3)})
    for _ in range(4):
        run("compare", golden, golden, "-o", tmp_path / "out")
    assert len(list((tmp_path / "out").glob("*.csv"))) == 4


def test_the_report_is_the_same_for_any_number_of_jobs(tmp_path):
    golden = write_torch_tree(tmp_path / "g")
    mine = write_torch_tree(tmp_path / "m", seed=1, pid=2)
    texts = []
    for jobs in (1, 2, 5):
        run("compare", golden, mine, "-cl", "api", "--jobs", jobs, "-o", tmp_path / str(jobs))
        texts.append(the_report(tmp_path / str(jobs)).read_bytes())
    assert texts[0] == texts[1] == texts[2]


def test_cells_cannot_become_formulas(tmp_path):
    golden = write_flat(tmp_path / "g", {"t": np.ones(3)})
    (golden / "t.npy").rename(golden / "=1+1.npy")
    run("compare", golden, golden, "-o", "out", cwd=tmp_path)
    text = the_report(tmp_path / "out").read_text()
    assert not any(cell.startswith("=") for row in read_csv(the_report(tmp_path / "out")) for cell in row.values())
    assert "=1+1" in text


# ---- the terminal ----

APPROVED = """\
golden  g  PyTorch dump, 82 records
mine    m  PyTorch dump, 82 records
matched 100.0 % of the tensors, steps 0, ranks 0

worst rows                rel L2     cosine    max abs
model.layers.3 output        0.5  1.0000000          1  FAIL
model.norm output           0.25  1.0000000        0.5  FAIL

error by layer (relative L2, 5e-1)
  model.layers.0-11  ···█········

one beyond its limit; the first is not known (no order of execution):
  step 0  model.layers.3 output
  rel_l2 0.5 > 0.01

differs: 2 of 41 pairs beyond the limits
report: out/msit_cmp_report_T.csv

cannot judge: golden was captured without operators, and how far healthy runs
  differ was not measured
next: assay dump --level operator -o golden-operators --next 'assay locate golden-operators m' -- PROGRAM
"""


def test_the_screen_names_the_worst_rows_and_the_first_failure(tmp_path):
    def constant(factor_of):
        return lambda name, t: torch.full_like(t, 2.0) * factor_of.get(name, 1.0)

    write_torch_tree(tmp_path / "G", change=constant({}))
    write_torch_tree(tmp_path / "M", change=constant({"root.model.layers.3": 1.5, "root.model.norm": 1.25}), pid=2)
    (tmp_path / "g").symlink_to(next(tmp_path.glob("G/*/*/cpu_1")))
    (tmp_path / "m").symlink_to(next(tmp_path.glob("M/*/*/cpu_2")))
    done = run("compare", "g", "m", "-cl", "api", "-o", "out", "--rel-l2", "0.01", cwd=tmp_path)
    assert done.returncode == 1
    stamp = the_report(tmp_path / "out").stem.rsplit("_", 1)[1]
    assert done.stdout.replace(stamp, "T") == APPROVED
    assert max(len(line) for line in done.stdout.splitlines() if not line.startswith(("report", "next"))) <= 80
    assert "\033" not in done.stdout + done.stderr


def test_integer_ids_do_not_head_the_worst_rows(tmp_path):
    ones = np.ones(8, np.float32)
    golden = {"ids": np.arange(8) * 1000, "near": ones, "far": ones}
    mine = {"ids": np.arange(8), "near": ones * np.float32(1.01), "far": ones * np.float32(1.5)}
    sides = []
    for name, tensors in (("golden", golden), ("mine", mine)):
        np.savez(tmp_path / f"{name}.npz", **tensors)
        sides.append((write_flat(tmp_path / name, tensors), tmp_path / f"{name}.npz"))
    for pair in zip(*sides):  # two folders, and two files
        screen = run("compare", *pair, "-o", tmp_path / "out").stdout
        assert re.findall(r"^(ids|near|far)\b.* [\d.]+$", screen, re.MULTILINE) == ["far", "near", "ids"], screen


def test_help_shows_an_example_that_works(tmp_path):
    text = run("compare", "--help").stdout
    example = next(line.split() for line in text.splitlines() if line.strip().startswith("assay compare golden/"))
    write_flat(tmp_path / "golden", {"t": np.ones(3)})
    write_flat(tmp_path / "mine", {"t": np.ones(3)})
    assert run(*example[1:], cwd=tmp_path).returncode == 0


# ---- bad input ----


def test_wrong_arguments_are_one_sentence_and_status_2(tmp_path):
    golden = write_flat(tmp_path / "g", {"t": np.ones(3)})
    file = golden / "t.npy"
    for arguments, sentence in [
        ([golden], "the run to compare with golden is missing"),
        ([golden, tmp_path / "none"], "none"),
        ([file, golden], "The golden_path and my_path must both be directory or file."),
        ([golden, golden, "--ranks", "a"], "'a' is no rank"),
        ([golden, golden, "--token-map", "3"], "'3' is no pair of steps"),
        ([golden, golden, "--max-memory", "lots"], "is no"),
        ([golden, golden, "-r", "x"], "rank id:x is illegal. Please check."),
        ([golden, golden, "--rank", "5"], "rank 5 is not present on both sides"),
        ([golden, golden, "-w"], "No .safetensors files found in the directory."),
        ([golden, golden, "-alg", "a.py"], "custom_compare_algorithm should be in format"),
        ([golden, golden, "-mf", file], "Invalid op_mapping file"),
        ([file, file, "--verdict"], "--verdict needs two runs"),
        ([golden, golden, "--thresholds", file], "is not JSON"),
        ([golden, golden, "-cl", "token"], "token"),
    ]:
        done = run("compare", *arguments, "-o", tmp_path / "out")
        assert done.returncode == 2, (arguments, done)
        assert done.stderr.startswith("error: "), done.stderr
        assert sentence in done.stderr
        assert not (tmp_path / "out").exists()


def test_one_unreadable_file_is_one_row(tmp_path):
    arrays = {"a": np.ones(100), "b": np.ones(100), "c": np.ones(100)}
    golden = write_flat(tmp_path / "g", arrays)
    mine = write_flat(tmp_path / "m", arrays)
    data = (mine / "b.npy").read_bytes()
    (mine / "b.npy").write_bytes(data[:300])
    done = run("compare", golden, mine, "-o", tmp_path / "out")
    assert done.returncode == 0
    rows = read_csv(the_report(tmp_path / "out"))
    assert [row["cosine_similarity"] != "" for row in rows] == [True, False, True]
    assert str(mine / "b.npy") in rows[1]["cmp_fail_reason"]
    assert "1 of 3 pairs could not be compared" in " ".join(done.stdout.split())
    assert run("compare", golden, mine, "-o", tmp_path / "out", "--rtol", "1").returncode == 1


def test_other_shapes_and_types_have_their_reason(tmp_path):
    golden = write_flat(
        tmp_path / "g",
        {
            "count": np.ones(3),
            "merged": np.ones((1, 2, 3)),
            "turned": np.arange(6.0).reshape(2, 3),
            "code": np.ones(4, np.int8),
            "empty": np.ones((0, 3)),
            "type": np.ones(2, np.float32),
        },
    )
    mine = write_flat(
        tmp_path / "m",
        {
            "count": np.ones(4),
            "merged": np.ones((2, 3)),
            "turned": np.arange(6.0).reshape(3, 2),
            "code": np.ones(4, np.float32),
            "empty": np.ones((0, 3)),
            "type": np.ones(2, np.float16),
        },
    )
    done = run("compare", golden, mine, "-o", tmp_path / "out", "--rel-l2", "0")
    assert done.returncode == 1
    rows = {row["my_data_path"].rsplit("/", 1)[1][:-4]: row for row in read_csv(the_report(tmp_path / "out"))}
    assert rows["count"]["cmp_fail_reason"] == "data shape doesn't match."
    assert (rows["merged"]["result"], rows["merged"]["max_absolute_error"]) == ("pass", "0.0")
    assert (rows["turned"]["result"], rows["turned"]["note"]) == ("fail", "reshaped")
    assert rows["code"]["cmp_fail_reason"] == "int8 against a float type needs scale and offset."
    assert (rows["empty"]["result"], rows["empty"]["note"]) == ("pass", "empty")
    assert (rows["type"]["result"], rows["type"]["note"]) == ("pass", "dtype differs")


def test_a_report_that_cannot_be_written_is_status_2(tmp_path):
    golden = write_flat(tmp_path / "g", {"t": np.ones(3)})
    done = run("compare", golden, golden, "-o", golden / "t.npy" / "below")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and "t.npy" in done.stderr
    with open("/dev/full", "w") as full:
        done = run("compare", golden, golden, "-o", tmp_path / "out", stdout=full)
    assert done.returncode == 2
    assert "standard output" in done.stderr


def test_a_full_disk_leaves_no_half_report(tmp_path):
    golden = write_torch_tree(tmp_path / "g")

    def small_files():  # what a full disk does to write(2), without a disk of our own
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    done = run("compare", golden, golden, "-o", tmp_path / "out", preexec_fn=small_files)
    assert done.returncode == 2, done
    assert done.stderr.startswith("error: ")
    assert list((tmp_path / "out").iterdir()) == []


def test_ctrl_c_leaves_no_half_report(tmp_path):
    size = 400_000_000
    for side in ("g", "m"):
        (tmp_path / side).mkdir()
        write_sparse_npy(tmp_path / side / "a.npy", size)
        write_sparse_npy(tmp_path / side / "b.npy", size)
    process = subprocess.Popen(
        [binary(), "compare", "g", "m", "-o", "out"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    while not has_mapped(process.pid, tmp_path):
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"interrupted" in stderr
    assert not list(tmp_path.glob("out/*"))


def test_two_files_of_many_tensors_have_a_line_each_the_worst_first(tmp_path):
    golden = {name: torch.arange(1, 5, dtype=torch.float32) for name in ("a", "b", "c")}
    golden["ids"] = torch.tensor([5, 6])
    mine = dict(golden, b=golden["b"] * 1.5, c=golden["c"] * 1.25, ids=torch.tensor([50000, 6]))
    for name, tensors in (("g.pth", golden), ("m.pth", mine)):
        torch.save(tensors, tmp_path / name)
    done = run("compare", "g.pth", "m.pth", cwd=tmp_path)
    lines = done.stdout.splitlines()
    names = [line.split()[0] for line in lines[lines.index("") + 2 : len(lines) - 3]]
    # By relative L2 distance 0.5 and 0.25; ids differ, but how far says nothing; a is equal.
    assert names == ["b", "c", "ids", "a"], done.stdout
    assert "3 of 4 pairs differ" in lines[-2]


# ---- memory ----


def test_files_larger_than_the_limit_are_compared_in_bounded_memory(tmp_path):
    write_sparse_npy(tmp_path / "g.npy", 300_000_000)  # 1.2 GB a side
    write_sparse_npy(tmp_path / "m.npy", 300_000_000)
    code = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE)\n"
        "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, binary(), "compare", "g.npy", "m.npy", "--max-memory", "128MiB"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    status, max_rss_kib = map(int, done.stdout.split())
    assert status == 0
    assert max_rss_kib < 512 * 1024
