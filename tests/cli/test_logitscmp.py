# SPDX-License-Identifier: Apache-2.0
"""logitscmp against torch: the formulas are written down here once more, as the original wrote them."""

from __future__ import annotations

import csv
import math
import os
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from assay_command import run

COLUMNS = [
    "file_name",
    "key",
    "token_id",
    "cosine_similarity",
    "kl_divergence",
    "l1_norm",
    "ulp_max_diff",
    "ulp",
    "passed",
    "cmp_fail_reason",
]
SPACING = {"fp16": 2**-10, "bf16": 2**-7, "fp32": 2**-23}


def expected_metrics(golden, mine, dtype="fp16"):
    golden, mine = golden.squeeze(0), mine.squeeze(0)
    cosine = torch.cosine_similarity(golden.double(), mine.double(), dim=0).item()
    divergence = F.kl_div(F.log_softmax(mine, dim=-1), F.softmax(golden, dim=-1), reduction="sum").item()
    l1 = (mine.double().abs().sum() / golden.double().abs().sum() - 1).item()
    maximum = mine.float().max()
    ulp = (2 ** torch.floor(torch.log2(maximum)) * SPACING[dtype]).item()
    return {
        "cosine_similarity": round(cosine, 10),
        "kl_divergence": max(divergence, 0),
        "l1_norm": l1,
        "ulp_max_diff": (golden.float().max() - maximum).abs().item(),
        "ulp": ulp,
    }


def write(folder: Path, **tensors):
    folder.mkdir(exist_ok=True)
    for name, tensor in tensors.items():
        torch.save(tensor, folder / f"{name}.pth")


def compare(tmp_path, *options, name="msit", status=0):
    words = ["logitscmp", "-gp", tmp_path / "golden", "-mp", tmp_path / "mine", *options]
    done = run(*(["llm"] if name != "assay" else []), *words, name=name, cwd=tmp_path)
    assert done.returncode == status, done.stderr
    return done


def report(folder: Path):
    found = sorted(folder.glob("logits_cmp_res_*.csv"))
    assert len(found) == 1, found
    assert re.fullmatch(r"logits_cmp_res_\d{14}\.csv", found[0].name)
    with open(found[0], newline="", encoding="utf-8") as file:
        text = file.read()
    assert text.count("\r\n") == text.count("\n")
    rows = list(csv.DictReader(text.splitlines()))
    assert list(rows[0]) == COLUMNS
    return rows


def pair(seed, dtype, size=5000, noise=0.02):
    generator = torch.Generator().manual_seed(seed)
    golden = torch.randn(1, size, generator=generator) * 4
    mine = golden + torch.randn(1, size, generator=generator) * noise
    return golden.to(dtype), mine.to(dtype)


# The half types' divergence is mostly the rounding of each step, which the command repeats; a last digit of torch's
# exponential may still turn one of some thousand roundings.
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [
        (torch.float16, dict(rel=0.02, abs=3e-5)),
        (torch.bfloat16, dict(rel=0.02, abs=3e-4)),
        (torch.float32, dict(rel=2e-3, abs=1e-6)),
        (torch.float64, dict(rel=1e-9, abs=1e-15)),
    ],
)
def test_metrics_are_those_of_torch(tmp_path, dtype, tolerance):
    for seed in range(6):
        golden, mine = pair(seed, dtype)
        write(tmp_path / "golden", **{f"logits_boolq_{seed}_0": golden})
        write(tmp_path / "mine", **{f"logits_boolq_{seed}_0": mine})
    compare(tmp_path)
    rows = report(tmp_path / "output")
    assert [row["key"] for row in rows] == [str(seed) for seed in range(6)]
    for seed, row in enumerate(rows):
        expected = expected_metrics(*pair(seed, dtype))
        assert float(row["kl_divergence"]) == pytest.approx(expected.pop("kl_divergence"), **tolerance)
        for name, value in expected.items():
            assert float(row[name]) == pytest.approx(value, rel=1e-12, abs=1e-12), (seed, name)
        assert row["cmp_fail_reason"] == ""


def test_mixed_types_are_promoted_as_torch_does(tmp_path):
    pairs = {}
    for number, (a, b) in enumerate([(torch.float16, torch.float32), (torch.float32, torch.bfloat16)]):
        golden, mine = pair(number, torch.float32, noise=0.3)
        pairs[number] = (golden.to(a), mine.to(b))
        write(tmp_path / "golden", **{f"logits_x_{number}_0": pairs[number][0]})
        write(tmp_path / "mine", **{f"logits_x_{number}_0": pairs[number][1]})
    compare(tmp_path, "-o", "out")
    for number, row in enumerate(report(tmp_path / "out")):
        expected = expected_metrics(*pairs[number])["kl_divergence"]
        assert float(row["kl_divergence"]) == pytest.approx(expected, rel=0.02, abs=1e-5)


def test_one_spacing_of_the_maximum_passes(tmp_path):
    # 23.4375 and its neighbour in fp16: exponent 4, so ulp = 16 * 2^-10.
    golden = torch.tensor([[23.4375, -1.0, 0.5]], dtype=torch.float16)
    mine = torch.tensor([[23.421875, 5.0, 0.5]], dtype=torch.float16)
    write(tmp_path / "golden", logits_dev_1352_0=golden, logits_dev_1352_1=golden)
    write(tmp_path / "mine", logits_dev_1352_0=mine, logits_dev_1352_1=mine - 1)
    compare(tmp_path)
    near, far = report(tmp_path / "output")
    assert (near["ulp_max_diff"], near["ulp"], near["passed"]) == ("0.015625", "0.015625", "True")
    assert (far["ulp_max_diff"], far["passed"]) == ("1.015625", "False")


def test_limits_decide(tmp_path):
    golden, mine = pair(0, torch.float32)
    write(tmp_path / "golden", logits_x_0_0=golden)
    write(tmp_path / "mine", logits_x_0_0=mine)
    expected = expected_metrics(golden, mine, "fp32")
    verdicts = {}
    for name, options in {
        "wide": ["-cs", "0.9", "-kl", "1", "-l1", "1"],
        "cosine": ["-cs", "1", "-kl", "1", "-l1", "1"],
        "kl": ["-cs", "0.9", "-kl", "0", "-l1", "1"],
        "l1": ["-cs", "0.9", "-kl", "1", f"-l1={expected['l1_norm']!r}"],
    }.items():
        compare(tmp_path, *options, "-d", "fp32", "-o", name)
        verdicts[name] = report(tmp_path / name)[0]["passed"]
    assert expected["ulp_max_diff"] > expected["ulp"]
    assert verdicts == {"wide": "True", "cosine": "False", "kl": "False", "l1": "False"}


def test_rows_name_what_cannot_be_compared_and_keep_their_order(tmp_path):
    ok = torch.tensor([[1.0, 2.0]])
    golden = dict(
        logits_x_10_0=ok,
        logits_x_9_1=ok,
        logits_x_9_0=ok,
        logits_python_3_0=ok,
        logits_cpp_10_0=ok,
        logits_cpp_9_0=ok,
        logits_go_5=ok,
        invalid_file=ok,
        lonely=ok,
        logits_x_11_0=torch.tensor([[1.0, 2.0, 3.0]]),
        logits_x_12_0=torch.tensor([[1.0, math.nan]]),
        logits_x_13_0=ok,
        logits_x_14_0=ok,
    )
    mine = dict(
        golden,
        logits_x_11_0=ok,
        logits_x_12_0=torch.tensor([[math.inf, 1.0]]),
        logits_x_13_0=torch.tensor([[0.0, -1.0]]),
        only_mine=ok,
    )
    del mine["lonely"]
    write(tmp_path / "golden", **golden)
    write(tmp_path / "mine", **mine)
    (tmp_path / "mine" / "logits_x_14_0.pth").write_bytes(b"no tensor")
    (tmp_path / "golden" / "notes.txt").write_text("not logits")
    compare(tmp_path)
    rows = report(tmp_path / "output")
    assert [(row["file_name"].removesuffix(".pth"), row["key"], row["token_id"]) for row in rows] == [
        ("logits_x_9_0", "9", "0"),
        ("logits_x_9_1", "9", "1"),
        ("logits_x_10_0", "10", "0"),
        ("logits_x_11_0", "11", "0"),
        ("logits_x_12_0", "12", "0"),
        ("logits_x_13_0", "13", "0"),
        ("logits_x_14_0", "14", "0"),
        ("logits_cpp_9_0", "cpp/9", "0"),
        ("logits_cpp_10_0", "cpp/10", "0"),
        ("logits_python_3_0", "python/3", "0"),
        ("invalid_file", "NA", "NA"),
        ("logits_go_5", "NA", "NA"),
        ("lonely", "NA", "NA"),
        ("only_mine", "NA", "NA"),
    ]
    reasons = {row["file_name"].removesuffix(".pth"): row["cmp_fail_reason"] for row in rows}
    assert reasons["logits_x_9_0"] == ""
    assert reasons["logits_x_11_0"] == "data shape doesn't match."
    assert reasons["logits_x_12_0"] == "golden_data includes NAN or inf. my_data includes NAN or inf."
    assert reasons["logits_x_13_0"] == "max value is 0, cannot compute ulp"
    assert "logits_x_14_0.pth" in reasons["logits_x_14_0"]
    assert reasons["invalid_file"] == "parse_error:invalid_format_invalid_file"
    assert reasons["logits_go_5"] == "parse_error:missing_digits_after_go"
    assert reasons["lonely"] == "only_in_golden_path"
    assert reasons["only_mine"] == "only_in_my_path"
    for row in rows:
        if row["cmp_fail_reason"]:
            assert {row[name] for name in COLUMNS[3:9]} == {"NA"}


def test_special_values(tmp_path):
    zeros = torch.zeros(1, 3)
    negative = torch.tensor([[-2.0, -1.0, -3.0]])
    write(tmp_path / "golden", logits_x_0_0=zeros, logits_x_1_0=negative)
    write(tmp_path / "mine", logits_x_0_0=torch.tensor([[1.0, 0.0, 0.0]]), logits_x_1_0=negative)
    compare(tmp_path)
    zero, below = report(tmp_path / "output")
    assert (zero["cosine_similarity"], zero["l1_norm"], zero["passed"]) == ("0.0", "1", "False")
    # The logarithm of a negative maximum: no spacing, but the same tensors pass by their metrics.
    assert (below["ulp"], below["cosine_similarity"], below["passed"]) == ("nan", "1.0", "True")


def test_stamp_is_that_of_china(tmp_path):
    ok = torch.tensor([[1.0, 2.0]])
    write(tmp_path / "golden", logits_x_0_0=ok)
    write(tmp_path / "mine", logits_x_0_0=ok)
    from datetime import datetime, timedelta, timezone

    before = datetime.now(timezone(timedelta(hours=8))).strftime("%Y%m%d%H%M%S")
    compare(tmp_path)
    after = datetime.now(timezone(timedelta(hours=8))).strftime("%Y%m%d%H%M%S")
    name = next((tmp_path / "output").iterdir())
    assert before <= name.stem.removeprefix("logits_cmp_res_") <= after
    assert name.stat().st_mode & 0o777 == 0o640 & ~current_umask()


def current_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_our_name_says_in_the_status_whether_all_passed(tmp_path):
    ok = torch.tensor([[1.0, 2.0]])
    write(tmp_path / "golden", logits_x_0_0=ok)
    write(tmp_path / "mine", logits_x_0_0=ok)
    assert "1 of 1 files passed" in compare(tmp_path, name="assay").stderr
    write(tmp_path / "mine", logits_x_0_0=torch.tensor([[3.0, 1.0]]))
    assert "0 of 1 files passed" in compare(tmp_path, "-o", "second", name="assay", status=1).stderr


def test_wrong_options_and_folders(tmp_path):
    for option, value, sentence in [
        ("-cs", "1.5", "argument --cosine-similarity/-cs: Cosine similarity: 1.5 is an invalid float value"),
        ("-cs", "x", "argument --cosine-similarity/-cs: Cosine similarity is invalid. Please check."),
        ("-kl", "-0.1", "argument --kl-divergence/-kl: KL_divergence: -0.1 is an invalid float value"),
        ("-l1", "-2", "argument --l1-norm/-l1: L1_Norm: -2 is an invalid float value"),
        ("-d", "int8", "invalid choice: 'int8' (choose from 'fp16', 'bf16', 'fp32')"),
    ]:
        assert sentence in compare(tmp_path, option, value, status=2).stderr
    assert "are dir" in compare(tmp_path, status=1).stderr
    ok = torch.tensor([[1.0, 2.0]])
    write(tmp_path / "golden", a_0_0=ok)
    write(tmp_path / "mine", b_0_0=ok)
    assert "have same name files." in compare(tmp_path, status=1).stderr
    assert compare(tmp_path, name="assay", status=2).stderr.startswith("error: ")
    assert not (tmp_path / "output").exists()
