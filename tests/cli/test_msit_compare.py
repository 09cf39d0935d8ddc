# SPDX-License-Identifier: Apache-2.0
"""`msit llm compare` and `ait llm compare`: the original's messages, files and exit statuses."""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path

import numpy as np
import openpyxl
import pytest
import torch
from assay_command import read_csv, run, the_report, write_torch_tree
from safetensors.torch import save_file

LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - \d+ - msit_llm_logger - (\w+) - (.*)")


def log_of(done):
    lines = [LOG_LINE.fullmatch(line) for line in done.stderr.splitlines()]
    assert all(lines), done.stderr
    return [line.groups() for line in lines]


@pytest.fixture
def trees(tmp_path):
    golden = write_torch_tree(tmp_path / "g")
    mine = write_torch_tree(tmp_path / "m", change=lambda name, t: t * 1.5 if name.endswith("layers.3") else t, pid=2)
    return golden, mine


@pytest.mark.parametrize("name", ["msit", "ait"])
@pytest.mark.parametrize("command", ["compare", "cc"])
def test_a_tree_gives_the_workbook_and_the_originals_log(tmp_path, trees, name, command):
    golden, mine = trees
    done = run("llm", command, "-gp", golden, "-mp", mine, "-o", tmp_path / "out", "-l", "info", name=name)
    assert (done.returncode, done.stdout) == (0, "")
    path = the_report(tmp_path / "out", "msit_cmp_report_*.xlsx")
    assert log_of(done) == [
        ("INFO", "golden_layer_type: LlamaDecoderLayer"),
        ("INFO", "my_layer_type: LlamaDecoderLayer"),
        ("INFO", f"Saved comparing results: {path}"),
    ]
    assert openpyxl.load_workbook(path).sheetnames == ["layer", "module", "api"]


def test_one_level_gives_a_csv_and_differences_do_not_change_the_status(tmp_path, trees):
    golden, mine = trees
    done = run("llm", "compare", "-gp", golden, "-mp", mine, "-cl", "layer", "-o", tmp_path / "out", name="msit")
    assert done.returncode == 0
    assert log_of(done)[0][1] == "golden_layer_type: LlamaDecoderLayer"
    assert not any(message.startswith("my_layer_type") for _, message in log_of(done))
    rows = read_csv(the_report(tmp_path / "out"))
    assert len(rows) == 12
    assert float(rows[3]["relative_euclidean_distance"]) == pytest.approx(0.5, rel=1e-6)


def test_two_files_are_compared_in_the_log_only(tmp_path):
    np.save(tmp_path / "a.npy", np.array([1, 2], np.float32))
    np.save(tmp_path / "b.npy", np.array([1, 2.5], np.float32))
    done = run("llm", "compare", "-gp", "a.npy", "-mp", "b.npy", "-o", "out", name="msit", cwd=tmp_path)
    ((_, message),) = log_of(done)
    assert done.returncode == 0
    assert message.startswith("Compared results: {'cosine_similarity': 0.99")
    assert message.endswith("'cmp_fail_reason': ''}")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_no_dump_ends_with_status_0_and_no_report(tmp_path, trees):
    golden, _ = trees
    (tmp_path / "none").mkdir()
    done = run("llm", "compare", "-gp", golden, "-mp", tmp_path / "none", "-o", tmp_path / "out", name="msit")
    assert done.returncode == 0
    assert log_of(done) == [
        (
            "ERROR",
            f"cannot parse data path({tmp_path / 'none'}). it is not a atb dump path or a torch dump path.",
        )
    ]
    assert not (tmp_path / "out").exists()


def test_tokens_without_common_ids_are_one_error(tmp_path):
    golden = write_torch_tree(tmp_path / "g", tokens=(0, 1))
    mine = write_torch_tree(tmp_path / "m", tokens=(2,), pid=2)
    done = run("llm", "compare", "-gp", golden, "-mp", mine, "-o", tmp_path / "out", name="msit")
    (entry,) = log_of(done)
    assert entry == ("ERROR", "my tokens is [2] and golden tokens is [0, 1]. The two cannot be matched.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: --golden-path/-gp, --my-path/-mp"),
        (["-gp", "a"], "the following arguments are required: --my-path/-mp"),
        (["-gp"], "argument --golden-path/-gp: expected one argument"),
        (["-gp", "a", "-mp", "b", "-x"], "unrecognized arguments: -x"),
        (
            ["-gp", "a", "-mp", "b", "-cl", "token"],
            "argument --cmp-level/-cl: invalid choice: 'token' (choose from 'layer', 'module', 'api', 'logits')",
        ),
        (["--s", "-gp", "a", "--m", "b", "-w=1"], "argument --weight/-w: ignored explicit argument '1'"),
        (["--o", "a"], "ambiguous option: --o could match --output, --op-mapping-file"),
    ],
)
def test_wrong_arguments_give_argparses_message_and_status_2(arguments, message):
    done = run("llm", "compare", *arguments, name="msit")
    assert done.returncode == 2
    assert done.stderr.startswith("usage: msit llm compare [-h] --golden-path GOLDEN_PATH --my-path MY_PATH")
    assert done.stderr.splitlines()[-1] == f"msit llm compare: error: {message}"


def test_old_spellings_and_attached_values_are_understood(tmp_path, trees):
    golden, mine = trees
    arguments = ["--golden_path", golden, f"-mp={mine}", "--cmp-level=module", f"--out={tmp_path / 'out'}"]
    assert run("llm", "compare", *arguments, name="msit").returncode == 0
    assert len(read_csv(the_report(tmp_path / "out"))) == 24


def test_compat_msit_keeps_the_originals_columns_only(tmp_path, trees):
    golden, mine = trees
    run(
        "llm",
        "compare",
        "-gp",
        golden,
        "-mp",
        mine,
        "-cl",
        "api",
        "--compat",
        "msit",
        "-o",
        tmp_path / "out",
        name="msit",
    )
    rows = read_csv(the_report(tmp_path / "out"))
    assert list(rows[0])[-1] == "cmp_fail_reason"
    # 41 nodes with themselves, and the chain (root, root.lm_head) crosswise
    assert len(rows) == 43


def test_help_shows_every_option():
    text = run("llm", "compare", "-h", name="msit").stdout
    for option in ["-gp", "-mp", "-cl", "-o", "-mf", "-alg", "-l", "-w", "-st", "-r"]:
        assert f", {option} " in text or f", {option}\n" in text
    assert run("-h", name="msit").returncode == 0
    assert run("llm", name="msit").returncode == 0


# ---- the line of two files ----


def literal_of(message):
    return ast.literal_eval(message.removeprefix("Compared results: "))


def test_the_line_of_two_files_is_a_python_literal(tmp_path):
    np.save(tmp_path / "a.npy", np.array([1, 2], np.float32))
    (tmp_path / "own.py").write_text(
        'def quote(golden, mine):\n    return "it\'s", \'said "no"\'\n'
        "def both(golden, mine):\n    return 'a\\'b\"c\\\\d', ''\n"
        'def whole(golden, mine):\n    return 7, "it\'s"\n'
    )
    specs = [f"{tmp_path}/own.py:{name}" for name in ("quote", "both", "whole")]
    done = run("llm", "compare", "-gp", "a.npy", "-mp", "a.npy", "-alg", *specs, name="msit", cwd=tmp_path)
    values = literal_of(log_of(done)[-1][1])
    assert (values["quote"], values["both"], values["whole"]) == ("it's", "a'b\"c\\d", 7)
    assert values["cmp_fail_reason"] == 'said "no" it\'s'
    assert values["cosine_similarity"] == 1.0


def test_metrics_that_overflow_stand_in_the_line_as_python_prints_them(tmp_path):
    # 3e38 + 3e38 leaves float32, and infinity over infinity is nan; the original printed both.
    np.save(tmp_path / "g.npy", np.array([3e38, 1], np.float32))
    np.save(tmp_path / "m.npy", np.array([-3e38, 1], np.float32))
    done = run("llm", "compare", "-gp", "g.npy", "-mp", "m.npy", "--compat", "msit", name="msit", cwd=tmp_path)
    ((_, message),) = log_of(done)
    text = message.removeprefix("Compared results: ")
    values = eval(text, {"__builtins__": {}}, {"nan": float("nan"), "inf": float("inf")})
    assert values["max_absolute_error"] == float("inf")
    assert np.isnan(values["relative_euclidean_distance"])
    assert len(values) == 8


@pytest.mark.parametrize("name", ["msit", "assay"])
def test_files_of_other_counts_give_the_reason_in_every_mode(tmp_path, name):
    np.save(tmp_path / "a.npy", np.zeros(2, np.float32))
    np.save(tmp_path / "b.npy", np.zeros(3, np.float32))
    words = ("llm", "compare") if name == "msit" else ("compare",)
    done = run(*words, "-gp", "a.npy", "-mp", "b.npy", "--compat", "msit", "-o", "out", name=name, cwd=tmp_path)
    if name == "msit":
        assert literal_of(log_of(done)[-1][1]) == {"cmp_fail_reason": "data shape doesn't match."}
        return
    assert "data shape doesn't match." in done.stdout
    assert "no tensor of golden has a partner" not in done.stdout
    (row,) = read_csv(the_report(tmp_path / "out"))
    assert row["cmp_fail_reason"] == "data shape doesn't match."


def test_a_row_of_other_counts_and_nan_stays_with_both_reasons(tmp_path):
    def changed(name, tensor):
        if name == "root.model.layers.3":
            return tensor[:1] * float("nan")
        return tensor[:1] if name == "root.model.layers.4" else tensor

    golden = write_torch_tree(tmp_path / "g")
    mine = write_torch_tree(tmp_path / "m", change=changed, pid=2)
    words = ("llm", "compare", "-gp", golden, "-mp", mine, "-cl", "layer", "--compat", "msit", "-o", tmp_path / "out")
    assert run(*words, name="msit").returncode == 0
    reasons = {
        Path(row["my_data_path"]).parent.name: row["cmp_fail_reason"] for row in read_csv(the_report(tmp_path / "out"))
    }
    # The original leaves out rows whose reason is exactly that of the count.
    assert reasons["root.model.layers.3"] == "data shape doesn't match. my_data includes NAN or inf."
    assert "root.model.layers.4" not in reasons and len(reasons) == 11


def test_ait_02_between_trees_has_its_19_columns_and_each_pair_once(tmp_path, trees):
    golden, mine = trees
    run("compare", golden, mine, "--compat", "ait-0.2", "-o", tmp_path / "out")
    (path,) = (tmp_path / "out").glob("*/cmp_report.csv")
    rows = read_csv(path)
    assert len(rows[0]) == 19
    pairs = [(row["golden_data_path"], row["my_data_path"]) for row in rows]
    assert len(set(pairs)) == len(pairs) == 43


@pytest.mark.parametrize("size", [3, 1001, 1024, 70001])
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_tensor_has_cosine_1_with_itself_and_minus_1_with_its_opposite(tmp_path, size, jobs):
    for seed in range(8):
        x = np.random.default_rng(seed).standard_normal(size).astype(np.float32)
        np.save(tmp_path / "x.npy", x)
        np.save(tmp_path / "y.npy", -x)
        for other, cosine in (("x.npy", "1.0"), ("y.npy", "-1.0")):
            done = run("compare", "x.npy", other, "--jobs", jobs, cwd=tmp_path)
            (line,) = [line for line in done.stdout.splitlines() if line.startswith("cosine_similarity")]
            assert line.split() == ["cosine_similarity", cosine]


# Prime and odd lengths have rests behind the blocks and vectors of the kernels; norms of random values round.
EQUAL_DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
EQUAL_SIZES = [1, 3, 7, 1001, 1024, 4099, 70001]


@pytest.mark.parametrize(
    ("rules", "report", "one"),
    [
        ([], "msit_cmp_report_*.csv", "1.0"),
        (["--compat", "msit"], "msit_cmp_report_*.csv", "1.0"),
        (["--compat", "ait-0.2"], "*/cmp_report.csv", "1.000000"),  # six decimals are its own
    ],
)
def test_equal_tensors_have_cosine_1_in_every_type_length_and_mode(tmp_path, rules, report, one):
    tensors = {}
    for dtype, size, seed in itertools.product(EQUAL_DTYPES, EQUAL_SIZES, range(4)):
        values = torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        tensors[f"{dtype}.{size}.{seed}"] = (values * (1, 0.01, 300, 7)[seed]).to(dtype)
    save_file(tensors, tmp_path / "golden.safetensors")
    save_file({name: -tensor for name, tensor in tensors.items()}, tmp_path / "opposite.safetensors")
    for mine, cosine in (("golden.safetensors", one), ("opposite.safetensors", f"-{one}")):
        done = run("compare", "golden.safetensors", mine, *rules, "-o", f"out-{mine}", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        rows = read_csv(the_report(tmp_path / f"out-{mine}", report))
        assert len(rows) == len(tensors)
        assert {row["cosine_similarity"] for row in rows} == {cosine}


@pytest.mark.parametrize("name", ["msit", "ait"])
def test_the_old_commands_print_cosine_1_for_equal_files(tmp_path, name):
    for seed in range(8):
        np.save(tmp_path / "x.npy", np.random.default_rng(seed).standard_normal(1001))
        done = run("llm", "compare", "-gp", "x.npy", "-mp", "x.npy", name=name, cwd=tmp_path)
        ((_, message),) = log_of(done)
        assert message.startswith("Compared results: {'cosine_similarity': 1.0, ")
