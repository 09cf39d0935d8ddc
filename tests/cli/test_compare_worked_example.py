# SPDX-License-Identifier: Apache-2.0
"""A worked example as a whole: a Llama of 12 layers on one device, both sides written by hand, every cell of the
report against numpy."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from assay_command import llama_tree, read_csv, run, the_report
from atb_files import node, write_bin, write_topology

LAYERS, TOKENS, HIDDEN, VOCABULARY = 12, 7, 32, 40
EPSILON = 2.0**-23

C5_HEADER = (
    "token_id,data_id,golden_data_path,golden_op_type,golden_dtype,golden_shape,golden_max_value,golden_min_value,"
    "golden_mean_value,my_data_path,my_op_type,my_dtype,my_shape,my_max_value,my_min_value,my_mean_value,"
    "cosine_similarity,max_relative_error,mean_relative_error,max_absolute_error,mean_absolute_error,kl_divergence,"
    "relative_euclidean_distance,cmp_fail_reason"
)

# What corresponds to what, in the order of the report: folder of the torch dump, its file, folder of the ATB dump.
PAIRS = [
    ("root.model.embed_tokens", "output.pth", "Embedding", "0_WordEmbedding", "WordEmbedding"),
    *[
        (f"root.model.layers.{i}", "output_0.pth", "LlamaDecoderLayer", f"{i + 1}_Prefill_layer", "Prefill_layer")
        for i in range(LAYERS)
    ],
    ("root.model.norm", "output.pth", "LlamaRMSNorm", "13_RmsNormOperation", "RmsNormOperation"),
    ("root.lm_head", "output.pth", "Linear", "14_LmHead", "LmHead"),
]


@pytest.fixture
def sides(tmp_path):
    """Returns (folder of the torch process, root of the ATB dump, [(golden, mine) arrays in the order of PAIRS])."""
    generator = np.random.default_rng(313)
    golden = tmp_path / "golden" / "msit_dump_20250101_110000" / "torch_tensors" / "npu0_77"
    mine = tmp_path / "mine" / "msit_dump_20250101_120000"
    golden.mkdir(parents=True)
    (golden / "model_tree.json").write_text(json.dumps(llama_tree(LAYERS)))
    values = []
    for module, file, _, place, _ in PAIRS:
        width = VOCABULARY if module == "root.lm_head" else HIDDEN
        first = generator.standard_normal((1, TOKENS, width)).astype(np.float16)
        first[0, 0, 0] = 0  # the original's formulas leave such places out
        second = (first[0] * (1 + generator.standard_normal((TOKENS, width)) * 1e-3) + 1e-4).astype(np.float16)
        values.append((first, second))
        folder = golden / "0" / module
        folder.mkdir(parents=True)
        torch.save(torch.from_numpy(first), folder / file)
        if file == "output_0.pth":  # keys and values: files that no rule takes
            for i in range(2):
                torch.save(torch.zeros(1, 2, TOKENS, 16, dtype=torch.float16), folder / f"output_1_{i}.pth")
        write_bin(mine / "tensors" / "0_78" / "0" / place / "after" / "outtensor0.bin", second)
    # What is below the layers takes no part in `-cl layer`.
    write_bin(
        mine / "tensors" / "0_78" / "0" / "1_Prefill_layer" / "0_Attention" / "after" / "outtensor0.bin",
        np.zeros((TOKENS, HIDDEN), np.float16),
    )
    write_topology(
        mine,
        78,
        "LlamaModel",
        [
            node("WordEmbedding_0", "WordEmbedding"),
            *[
                node(
                    f"Prefill_layer_{i}",
                    "Prefill_layer",
                    node(f"Attention_{i}_0", "Attention"),
                    node(f"Mlp_{i}_1", "Mlp"),
                )
                for i in range(1, LAYERS + 1)
            ],
            node("RmsNormOperation_13", "RmsNormOperation"),
            node("LmHead_14", "LmHead"),
        ],
    )
    return golden, mine, values


def c5_metrics(golden, mine):
    """The metrics, in float32 as the original; golden near zero is left out of the errors."""
    g, m = golden.astype(np.float32).ravel(), mine.astype(np.float32).ravel()
    kept = np.abs(g) > EPSILON
    relative = np.where(kept, np.abs(np.divide(m, g, out=np.ones_like(g), where=kept) - 1), 0)
    absolute = np.where(kept, np.abs(m - g), 0)
    return relative, absolute


def true_metrics(golden, mine):
    g, m = golden.astype(np.float64).ravel(), mine.astype(np.float64).ravel()
    return np.abs(m - g) / np.maximum(np.abs(g), EPSILON), np.abs(m - g)


def shared_metrics(golden, mine):
    g, m = golden.astype(np.float64).ravel(), mine.astype(np.float64).ravel()
    p, q = (np.exp(x - x.max()) / np.exp(x - x.max()).sum() for x in (g, m))
    return {
        "cosine_similarity": (g @ m) / np.sqrt((g @ g) * (m @ m)),
        "kl_divergence": (p * np.log(p / q)).sum(),
        "relative_euclidean_distance": np.sqrt(((m - g) ** 2).sum() / (g**2).sum()),
    }


def check_rows(rows, golden, mine, values, errors):
    assert [(row["golden_op_type"], row["my_op_type"]) for row in rows] == [(pair[2], pair[4]) for pair in PAIRS]
    for number, (row, pair, (first, second)) in enumerate(zip(rows, PAIRS, values)):
        module, file, _, place, _ = pair
        assert row["golden_data_path"] == str(golden / "0" / module / file)
        assert row["my_data_path"] == str(mine / "tensors" / "0_78" / "0" / place / "after" / "outtensor0.bin")
        assert (row["token_id"], row["data_id"], row["cmp_fail_reason"]) == ("0", str(number), "")
        assert row["golden_dtype"] == row["my_dtype"] == "torch.float16"
        assert row["golden_shape"] == str(list(first.shape)) and row["my_shape"] == str(list(second.shape))
        for side, array in (("golden", first), ("my", second)):
            array = array.astype(np.float64)
            for name, value in (("max", array.max()), ("min", array.min()), ("mean", array.mean())):
                assert float(row[f"{side}_{name}_value"]) == pytest.approx(value, rel=1e-5, abs=1e-8)
        for name, value in shared_metrics(first, second).items():
            # KL of nearly equal distributions is a small difference of large sums: float32 in the original.
            tolerance = {"abs": 2e-7} if name == "kl_divergence" else {"rel": 1e-6}
            assert float(row[name]) == pytest.approx(value, **tolerance), name
        relative, absolute = errors(first, second)
        assert float(row["max_relative_error"]) == pytest.approx(relative.max(), rel=1e-5)
        assert float(row["mean_relative_error"]) == pytest.approx(relative.mean(), rel=1e-5)
        assert float(row["max_absolute_error"]) == pytest.approx(absolute.max(), rel=1e-6)
        assert float(row["mean_absolute_error"]) == pytest.approx(absolute.mean(), rel=1e-5)


def header_of(path):
    return path.read_text().splitlines()[0]


def test_default_mode_has_the_same_pairs_and_true_numbers(tmp_path, sides):
    golden, mine, values = sides
    done = run("compare", golden, mine, "-cl", "layer", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    report = the_report(tmp_path / "out")
    assert header_of(report).startswith(C5_HEADER + ",")
    check_rows(read_csv(report), golden, mine, values, true_metrics)
    assert "15 pairs" in done.stdout


def test_compat_msit_has_the_originals_columns_and_masks(tmp_path, sides):
    golden, mine, values = sides
    done = run("compare", golden, mine, "-cl", "layer", "--compat", "msit", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    report = the_report(tmp_path / "out")
    assert header_of(report) == C5_HEADER
    check_rows(read_csv(report), golden, mine, values, c5_metrics)


@pytest.mark.parametrize("part", [".", "tensors", "tensors/0_78", "tensors/0_78/0", "model/78"])
@pytest.mark.parametrize("golden_part", [".", "0"])
def test_any_folder_of_the_dumps_may_be_named(tmp_path, sides, part, golden_part):
    """Which folders stand for which part of a dump."""
    golden, mine, _ = sides
    done = run(
        "llm", "compare", "-gp", golden / golden_part, "-mp", mine / part, "-cl", "layer", "-o", tmp_path / "out",
        name="msit",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "golden_layer_type: LlamaDecoderLayer" in done.stderr
    rows = read_csv(the_report(tmp_path / "out"))
    assert [row["my_op_type"] for row in rows] == [pair[4] for pair in PAIRS]
