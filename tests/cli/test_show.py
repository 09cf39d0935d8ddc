# SPDX-License-Identifier: Apache-2.0
"""`assay show` over runs that torch, NumPy and safetensors wrote."""

from __future__ import annotations

import json
import math
import os
import subprocess
import time

import numpy as np
import pytest
import torch
from assay_command import write_native_run, write_small_hook_dump
from atb_files import write_bin
from operator_runs import write_run
from safetensors.torch import save_file

from assay import open as opened


@pytest.fixture
def torch_dump(tmp_path):
    """Two steps of three modules, weights, and a module tree: what register_hook leaves."""
    write_small_hook_dump(tmp_path / "dump")
    return tmp_path / "dump"


def test_prints_the_tree_in_execution_order(assay, torch_dump):
    result = assay("show", torch_dump)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        f"{torch_dump}: torch-tree, 13 records, steps 0-1, 1 weight",
        "root",
        "  norm    RMSNorm: 4 tensors, 72 B, bfloat16, float32, steps 0-1",
        "  embed   Embedding: 4 tensors, 72 B, bfloat16, float32, steps 0-1",
        "  a_head  Linear: 4 tensors, 72 B, bfloat16, float32, steps 0-1",
    ]


def test_operators_stand_below_their_module(assay, tmp_path):
    rank = tmp_path / "run" / "rank0"
    rank.mkdir(parents=True)
    (tmp_path / "run" / "manifest.json").write_text(json.dumps({"format": "assay-run", "version": 1, "complete": True}))
    add = {"node": "norm::aten.add.Tensor.0", "type": "aten.add.Tensor"}
    lines = [
        {**add, "kind": "operator", "module": "norm", "args": {"self": {"tensor": "self"}, "other": 1e-6}},
        {**add, "role": "input", "slot": "self", "dtype": "float32", "shape": [3]},
        {**add, "role": "output", "slot": "", "dtype": "float32", "shape": [3]},
        {"node": "norm", "type": "RMSNorm", "role": "output", "slot": "", "dtype": "float32", "shape": [3]},
    ]
    (rank / "records.jsonl").write_text(
        "".join(json.dumps({"n": n, "step": 0, **line}) + "\n" for n, line in enumerate(lines))
    )
    result = assay("show", tmp_path / "run")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        f"{tmp_path / 'run'}: native, 3 records, steps 0, 1 operator",
        "norm                 RMSNorm: 1 tensor, float32",
        "  aten.add.Tensor.0  aten.add.Tensor: 2 tensors, float32",
    ]


# ---- equal layers ----


def layer(i: int, width: int = 4, kind: str = "Block", **more: object) -> list[dict]:
    """The records of a layer: its own output, its norm's, and an operator in that."""
    norm = f"model.layers.{i}.norm"
    operator = {"node": f"{norm}::aten.mul.Tensor.0", "type": "aten.mul.Tensor"}
    return [
        {**operator, "kind": "operator", "module": norm, "args": {}},
        {**operator, "shape": [width]},
        {"node": norm, "type": "Norm", "shape": [width]},
        {"node": f"model.layers.{i}", "type": kind, "shape": [width], **more},
    ]


def tree_of(assay, run, *options: str) -> list[str]:
    result = assay("show", run, *options)
    assert result.returncode == 0, result.stderr
    return [line.split("  ")[0] if line[0] != " " else line for line in result.stdout.splitlines()[1:]]


def test_equal_layers_are_shown_once_with_their_members(assay, tmp_path):
    run = write_native_run(tmp_path / "run", [r for i in range(12) for r in layer(i)])
    result = assay("show", run)
    assert result.stdout.splitlines()[1:] == [
        "model.layers.0-11 (12 times)  Block: 1 tensor, float32",
        "  norm                        Norm: 1 tensor, float32",
        "    aten.mul.Tensor.0         aten.mul.Tensor: 1 tensor, float32",
        "11 layers that equal others are left out: --all shows every line",
    ]
    whole = assay("show", run, "--all").stdout.splitlines()[1:]
    assert len(whole) == 2 + 3 * 12 and not any("times" in line for line in whole)
    assert len(assay("show", run, "--list").stdout.splitlines()) == 1 + 3 * 12
    assert len(json.loads(assay("show", run, "--json").stdout)["records"]) == 3 * 12


@pytest.mark.parametrize(
    "other",
    [
        {"width": 5},
        {"kind": "OtherBlock"},
        {"dtype": "bfloat16"},
        {"slot": "1"},
        {"call": 1},
        {"role": "input"},
        {"step": 1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_layer_that_differs_stays(assay, tmp_path, other):
    records = [r for i in range(6) for r in layer(i, **(other if i == 3 else {}))]
    lines = tree_of(assay, write_native_run(tmp_path / "run", records))
    assert [line for line in lines if "norm" not in line and "aten" not in line] == [
        "model",
        "  layers",
        *[line for line in lines if line.startswith("    0-2, 4-5 (5 times)")],
        *[line for line in lines if line.startswith("    3  ")],
        "4 layers that equal others are left out: --all shows every line",
    ]
    assert len(lines) == 3 + 6, lines


def test_layers_that_alternate_are_two_groups(assay, tmp_path):
    run = write_native_run(tmp_path / "run", [r for i in range(12) for r in layer(i, kind="AB"[i % 2])])
    lines = [line.split("  ")[2] for line in tree_of(assay, run) if "times" in line]
    assert lines == ["0, 2, 4, ... 10 (6 times)", "1, 3, 5, ... 11 (6 times)"]


def test_layers_of_atb_fold_and_their_operations_do_not(assay, tmp_path):
    root = tmp_path / "msit_dump_20260105_100000" / "tensors" / "0_4711" / "0"
    names = ["0_WordEmbedding", *(f"{i}_Prefill_layer" for i in (1, 2, 3)), "4_LmHead"]
    for name in names:
        for part in ("after", "0_RmsNormOperation/after", "1_RmsNormOperation/after"):
            write_bin(root / name / part / "outtensor0.bin", np.zeros(4, np.float16))
    assert [line.split("  ")[0] or line[:22].rstrip() for line in tree_of(assay, tmp_path)] == [
        "0_WordEmbedding",
        "  0_RmsNormOperation",
        "  1_RmsNormOperation",
        "1-3_Prefill_layer (3 times)",
        "  0_RmsNormOperation",
        "  1_RmsNormOperation",
        "4_LmHead",
        "  0_RmsNormOperation",
        "  1_RmsNormOperation",
        "2 layers that equal others are left out: --all shows every line",
    ]


def test_operators_of_a_program_without_modules_stand_below_their_layer(assay, tmp_path):
    def node(name: str, operator: str, shape: int = 4) -> dict:
        return {"node": f"{name}::ggml.{operator}.0", "type": f"ggml.{operator}", "shape": [shape]}

    records = [node("embd", "get_rows")]
    for i in range(4):
        records += [node(f"norm-{i}", "rms_norm"), node(f"cache_k_l{i} (view)", "set_rows"), node(f"l_out-{i}", "add")]
        records[-1]["shape"] = [4 if i < 3 else 1]  # llama.cpp's last layer: rows whose logits are asked for
    records.append(node("result_norm", "mul"))
    run = write_native_run(tmp_path / "run", records, host={"kind": "ggml"})
    names = [line for line in tree_of(assay, run) if "ggml." not in line]
    assert names == [
        "embd",
        "layer 0-2 (3 times)",
        "  norm-*",
        "  cache_k_l* (view)",
        "  l_out-*",
        "layer 3",
        "  norm-3",
        "  cache_k_l3 (view)",
        "  l_out-3",
        "result_norm",
        "2 layers that equal others are left out: --all shows every line",
    ]


def test_equal_layers_of_a_checkpoint_share_a_line(assay, tmp_path):
    tensors = {f"model.layers.{i}.{part}.weight": torch.zeros(2, 2) for i in range(4) for part in ("q", "k")}
    tensors["model.layers.2.q.weight"] = torch.zeros(2, 2, dtype=torch.float16)
    save_file({**tensors, "lm_head.weight": torch.zeros(3)}, tmp_path / "m.safetensors")
    lines = assay("show", tmp_path / "m.safetensors").stdout.splitlines()[1:]
    assert sorted(lines) == sorted(
        [
            "m lm_head.weight  float32 [3]  12 B",
            "m model.layers.0-1, 3.k.weight  float32 [2, 2]  16 B  (3 times)",
            "m model.layers.0-1, 3.q.weight  float32 [2, 2]  16 B  (3 times)",
            "m model.layers.2.k.weight  float32 [2, 2]  16 B",
            "m model.layers.2.q.weight  float16 [2, 2]  8 B",
            "equal layers share a line: --all shows every line",
        ]
    )
    assert len(assay("show", tmp_path / "m.safetensors", "--all").stdout.splitlines()) == 1 + 9


# ---- lines, tensors, json ----


def test_lists_the_records_that_a_pattern_and_a_step_choose(assay, torch_dump):
    result = assay("show", torch_dump, "root.*", "--step", "1", "--stats")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()[1:]
    assert [line.split("  ")[1] for line in lines if line.startswith("step 1")] == [
        "root.norm input 0",
        "root.norm output",
        "root.embed input 0",
        "root.embed output",
        "root.a_head input 0",
        "root.a_head output",
    ]
    # 0..5: mean 2.5, sqrt(0 + 1 + 4 + 9 + 16 + 25) = sqrt(55)
    assert "bfloat16 [2, 3]  12 B  min 0  max 5  mean 2.5  l2 7.4162" in result.stdout


def test_shows_one_tensor_with_values_and_histogram(assay, torch_dump):
    result = assay("show", torch_dump, "norm.input.0", "--step", "0", "--width", "60")
    assert result.returncode == 0, result.stderr
    assert "dtype     bfloat16" in result.stdout
    assert "shape     [2, 3]" in result.stdout
    assert "strides   [3, 1]" in result.stdout
    assert "[0, 0]               0             1             2" in result.stdout
    assert "histogram" in result.stdout
    assert max(len(line) for line in result.stdout.partition("histogram")[2].splitlines()) <= 60


def test_opens_a_token_and_a_module_folder(assay, torch_dump):
    token = torch_dump / "msit_dump_20250220_083154/torch_tensors/cpu_77/1"
    assert "6 records, steps 1" in assay("show", token).stdout
    assert "2 records, steps 1" in assay("show", token / "root.norm").stdout


def test_json_holds_every_record(assay, torch_dump):
    report = json.loads(assay("show", torch_dump, "--json", "--stats", "--weights").stdout)
    assert report["layout"] == "torch-tree"
    assert report["coverage"]["complete"] is True
    assert len(report["records"]) == 13
    weight = report["records"][0]
    assert (weight["node"], weight["slot"], weight["role"], weight["step"]) == ("root.norm", "weight", "weight", -1)
    assert weight["stats"]["l2"] == math.sqrt(3)
    assert [record["order"] for record in report["records"]] == list(range(13))


@pytest.mark.parametrize(
    ("save", "text"),
    [
        (lambda p: np.save(p / "x.npy", np.float64([0.1, np.nan, np.inf])), "0.1           nan           inf"),
        (lambda p: torch.save(torch.tensor([2**62 + 1]), p / "x.npy"), "4611686018427387905"),
        (lambda p: torch.save(torch.tensor([1 + 2j]).conj(), p / "x.npy"), "1-2j"),
        (lambda p: np.save(p / "x.npy", np.array([True, False])), "True         False"),
        (lambda p: np.save(p / "x.npy", np.zeros((0, 3))), "(no elements)"),
        (lambda p: np.save(p / "x.npy", np.float32(0.1)), "0.1"),
    ],
)
def test_prints_values_exactly(assay, tmp_path, save, text):
    save(tmp_path)
    result = assay("show", tmp_path / "x.npy", "--values", "--all")
    assert result.returncode == 0, result.stderr
    assert text in result.stdout


def test_histogram_counts_every_finite_value(assay, tmp_path):
    values = np.random.default_rng(0).normal(size=10_000).astype(np.float32)
    values[:3] = [np.nan, np.inf, -np.inf]
    np.save(tmp_path / "x.npy", values)
    lines = assay("show", tmp_path / "x.npy", "--histogram").stdout.partition("histogram\n")[2].splitlines()
    counts = [int(line.split()[-1]) for line in lines[:24]]
    finite = values[np.isfinite(values)].astype(np.float64)
    expected, _ = np.histogram(finite, bins=24)
    # A value within rounding of an edge may fall on either side of it.
    assert np.abs(np.array(counts) - expected).max() <= 1
    assert sum(counts) == 9_997
    assert lines[24] == "left out: 1 NaN, 1 +Inf, 1 -Inf"


def test_does_not_read_all_of_a_large_tensor_unasked(assay, tmp_path):
    # given 64 GiB of zeros that take no place, with a one at the end
    count = 1 << 34
    with (tmp_path / "big.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (count,)})
        file.truncate(file.tell() + 4 * count)
        file.seek(-4, os.SEEK_END)
        file.write(np.float32(1).tobytes())
    started = time.monotonic()
    shown = assay("show", tmp_path / "big.npy")
    assert shown.returncode == 0, shown.stderr
    # then its ends are there, and what takes all of it is named
    assert time.monotonic() - started < 10
    assert "--stats reads all of it" in shown.stdout and "histogram" not in shown.stdout
    assert shown.stdout.rstrip().splitlines()[-1].split()[-1].startswith("1")


def test_lists_the_members_of_containers(assay, tmp_path):
    save_file({"a.b": torch.ones(2, 2), "c": torch.zeros(3, dtype=torch.float16)}, tmp_path / "s.safetensors")
    torch.save({"k": (torch.ones(2), 3), "l": [torch.zeros(1)]}, tmp_path / "n.pth")
    np.savez_compressed(tmp_path / "z.npz", a=np.arange(3))
    listing = assay("show", tmp_path / "s.safetensors").stdout
    assert "s a.b  float32 [2, 2]  16 B" in listing and "s c  float16 [3]  6 B" in listing
    listing = assay("show", tmp_path / "n.pth").stdout
    assert "n k.0  float32 [2]" in listing and "n k.1  value 3" in listing and "n l.0  float32 [1]" in listing
    listing = assay("show", tmp_path)
    assert "4 records" not in listing.stdout and listing.stdout.count("\n") == 7  # head and six members


def test_goes_on_past_an_unreadable_file(assay, torch_dump):
    broken = torch_dump / "msit_dump_20250220_083154/torch_tensors/cpu_77/0/root.norm/output.pth"
    whole = broken.read_bytes()
    for content in (b"", whole[:40], whole[: len(whole) // 2], b"\x00" * 100):
        broken.write_bytes(content)
        result = assay("show", torch_dump, "--list")
        assert result.returncode == 0, result.stderr
        assert result.stdout.count("problem: ") == 1
        assert str(broken) in result.stdout


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda p: None, "No such file or directory"),
        (lambda p: p.mkdir(), "holds no run"),
        (lambda p: p.write_text("hello"), "is no tensor file"),
        (lambda p: p.write_bytes(b""), "the file is empty"),
        (lambda p: os.mkfifo(p), "is not a regular file"),
        (lambda p: p.symlink_to(p), "Too many levels of symbolic links"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(assay, tmp_path, make, sentence):
    path = tmp_path / "run"
    make(path)
    result = assay("show", path)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: {path}: ") and sentence in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_name_that_fits_nothing_suggests_others(assay, torch_dump):
    result = assay("show", torch_dump, "root.a_haed")
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        f"error: no record of {torch_dump} fits 'root.a_haed'; did you mean root.a_head?",
        f"next: assay show {torch_dump}",
    ]
    result = assay("show", torch_dump, "head")
    assert result.returncode == 2
    assert "; did you mean root.a_head?" in result.stderr
    result = assay("show", torch_dump, "nothing like it")
    assert result.returncode == 2
    assert "did you mean" not in result.stderr


def test_wrong_steps_are_a_usage_error(assay, torch_dump):
    result = assay("show", torch_dump, "--step", "2-1")
    assert result.returncode == 2
    assert "expected numbers from 0 up, such as 0,2-4, not '2-1'" in result.stderr


def test_a_closed_pipe_is_quiet(assay_command, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(200_000))
    command = f"'{assay_command}' show '{tmp_path}/x.npy' --values --all | head -1"
    for ignored in (False, True):
        result = subprocess.run(
            ["bash", "-c", ("trap '' PIPE; " if ignored else "") + command], capture_output=True, text=True, timeout=60
        )
        assert result.stderr == ""
        assert result.stdout.count("\n") == 1


def test_a_full_disk_is_an_error(assay_command, torch_dump):
    with open("/dev/full", "w") as full:
        result = subprocess.run([assay_command, "show", torch_dump], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 2
    assert "No space left" in result.stderr


def test_control_characters_in_names_do_not_reach_the_terminal(assay, tmp_path):
    np.save(tmp_path / "a\x1b[31mb.npy", np.zeros(1))
    result = assay("show", tmp_path, "--list")
    assert result.returncode == 0, result.stderr
    assert "\x1b" not in result.stdout
    assert "a?[31mb" in result.stdout


def test_a_killed_capture_of_operators_did_not_capture_more_than_was_planned(assay, tmp_path):
    run = write_run(tmp_path / "run")
    modules = {name for name in opened(run).nodes if "::" not in name}
    # As a capture writes it when it begins.
    manifest = {"format": "assay-run", "version": 1, "complete": False}
    manifest["coverage"] = {"planned": len(modules) + 1, "captured": 0, "missed": []}
    (run / "manifest.json").write_text(json.dumps(manifest))
    shown = assay("show", run).stdout
    assert f"\n  captured {len(modules)} of {len(modules) + 1} nodes\n" in shown
