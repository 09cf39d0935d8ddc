# SPDX-License-Identifier: Apache-2.0
"""`assay compare -w`: checkpoints written by safetensors, torch and transformers; torch in fp64 is the oracle."""

from __future__ import annotations

import json
import math
import struct

import pytest
import torch
from assay_command import read_csv, run, the_report
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

C5_COLUMNS = [
    "weight_name",
    "golden_dtype",
    "golden_shape",
    "golden_max_value",
    "golden_min_value",
    "golden_mean_value",
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
]


def compare(tmp_path, golden, mine, *more, status=0, name="assay"):
    """Rows of the report by the name of the weight."""
    out = tmp_path / "out"
    words = ["llm", "compare"] if name != "assay" else ["compare"]
    done = run(*words, "-w", "-gp", golden, "-mp", mine, "-o", out, *more, name=name)
    assert done.returncode == status, done.stderr
    return {row["weight_name"]: row for row in read_csv(the_report(out))}


def write(folder, tensors, file="model.safetensors"):
    folder.mkdir(exist_ok=True)
    save_file({name: tensor.clone().contiguous() for name, tensor in tensors.items()}, folder / file)
    return folder


def check(row, golden, mine):
    """A row against the formulas in fp64; mine is what the quantised weight stands for."""
    g, m = golden.double().flatten(), mine.double().flatten()
    error = (m - g).abs()
    log_p, log_q = torch.log_softmax(g, 0), torch.log_softmax(m, 0)
    expected = {
        "cosine_similarity": torch.nn.functional.cosine_similarity(g, m, 0, eps=1e-300),
        "max_relative_error": (error / g.abs().clamp(min=2.0**-23)).max(),
        "mean_relative_error": (error / g.abs().clamp(min=2.0**-23)).mean(),
        "max_absolute_error": error.max(),
        "mean_absolute_error": error.mean(),
        "kl_divergence": (log_p.exp() * (log_p - log_q)).sum(),
        "relative_euclidean_distance": (m - g).norm() / g.norm(),
        "golden_max_value": g.max(),
        "golden_mean_value": g.mean(),
        "my_min_value": m.min(),
        "my_mean_value": m.mean(),
        "sqnr_db": 10 * torch.log10((g * g).sum() / ((m - g) ** 2).sum()),
    }
    for column, value in expected.items():
        # The product is rounded to float32 once: 2^-24 of a value, far below what quantising does.
        assert float(row[column]) == pytest.approx(float(value), rel=1e-5, abs=1e-9), column
    assert row["cmp_fail_reason"] == ""


def quantise_int8(weight, scale):
    return torch.clamp(torch.round(weight.double() / scale), -128, 127).to(torch.int8)


def per_channel(weight):
    scale = weight.abs().amax(dim=-1, keepdim=True).float() / 127
    return quantise_int8(weight, scale), scale


# ---- a model ----


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A sharded checkpoint of transformers, and its tensors."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=64, intermediate_size=160, num_hidden_layers=11, num_attention_heads=4, vocab_size=96
    )
    folder = tmp_path_factory.mktemp("golden")
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder, max_shard_size="300KB")
    shards = sorted(folder.glob("*.safetensors"))
    assert len(shards) > 2
    tensors = {}
    for shard in shards:
        tensors.update(load_file(shard))
    return folder, tensors


def test_an_int8_checkpoint_meets_the_float_one_it_was_made_of(tmp_path, llama):
    folder, golden = llama
    mine, expected = {}, {}
    for name, weight in golden.items():
        if name.endswith("_proj.weight"):
            codes, scale = per_channel(weight)
            offset = torch.full_like(scale, 2.0)
            mine.update({name: codes, f"{name}_scale": scale, f"{name}_offset": offset})
            expected[name] = (codes.double() - 2) * scale.double()
        else:
            mine[name] = expected[name] = weight
    names = list(mine)
    write(tmp_path / "mine", {name: mine[name] for name in names[::2]}, "quant_model_weight-1.safetensors")
    write(tmp_path / "mine", {name: mine[name] for name in names[1::2]}, "quant_model_weight-2.safetensors")

    rows = compare(tmp_path, folder, tmp_path / "mine", "--unmatched")

    assert list(rows[next(iter(rows))])[: len(C5_COLUMNS)] == C5_COLUMNS
    assert set(rows) == set(golden)
    for name, row in rows.items():
        if name.endswith("_proj.weight"):
            check(row, golden[name], expected[name])
            assert row["quantisation"] == "int8 per channel, asymmetric"
            assert row["golden_dtype"] == "torch.bfloat16"
            assert row["my_dtype"] == "torch.float32"
        else:
            assert float(row["max_absolute_error"]) == 0
            assert row["quantisation"] == ""
    assert read_csv(the_report(tmp_path / "out", "msit_cmp_unmatched_*.csv")) == []


def test_a_torch_checkpoint_of_other_precision_is_compared_with_safetensors(tmp_path, llama):
    folder, golden = llama
    (tmp_path / "mine").mkdir()
    torch.save({name: weight.half() for name, weight in golden.items()}, tmp_path / "mine" / "pytorch_model.bin")

    rows = compare(tmp_path, folder, tmp_path / "mine")

    assert set(rows) == set(golden)
    name = "model.layers.10.mlp.up_proj.weight"
    assert float(rows[name]["max_absolute_error"]) == (golden[name].half().double() - golden[name].double()).abs().max()
    assert rows[name]["my_dtype"] == "torch.float16"
    assert rows[name]["note"] == "dtype differs"


# ---- layouts ----


def test_scales_per_group_and_per_tensor(tmp_path):
    weight = torch.randn(16, 128)
    groups = weight.view(16, 4, 32)
    group_scale = groups.abs().amax(dim=-1) / 127
    group_codes = quantise_int8(groups, group_scale[..., None])
    tensor_scale = weight.abs().max() / 127
    golden = write(tmp_path / "g", {"a.weight": weight, "b.weight": weight})
    mine = write(
        tmp_path / "m",
        {
            "a.weight": group_codes.view(16, 128),
            "a.weight_scale": group_scale,
            "b.weight": quantise_int8(weight, tensor_scale),
            "b.weight_scale": tensor_scale.reshape(()),
        },
    )

    rows = compare(tmp_path, golden, mine)

    check(rows["a.weight"], weight, (group_codes.double() * group_scale.double()[..., None]).view(16, 128))
    assert rows["a.weight"]["quantisation"] == "int8 per group of 32"
    check(rows["b.weight"], weight, quantise_int8(weight, tensor_scale).double() * tensor_scale.double())
    assert rows["b.weight"]["quantisation"] == "int8 per tensor"


def test_experts_with_a_scale_each_channel_of_each_expert(tmp_path):
    weight = torch.randn(3, 8, 16)
    codes, scale = per_channel(weight)
    golden = write(tmp_path / "g", {"experts.w13_weight": weight})
    mine = write(tmp_path / "m", {"experts.w13_weight": codes, "experts.w13_weight_scale": scale})
    check(compare(tmp_path, golden, mine)["experts.w13_weight"], weight, codes.double() * scale.double())


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8_with_scales_of_blocks(tmp_path, dtype):
    weight = torch.randn(200, 300)
    scale = torch.rand(2, 3) + 0.5  # blocks of 128 x 128, the last ones smaller
    spread = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[:200, :300]
    codes = (weight / spread).to(dtype)
    golden = write(tmp_path / "g", {"a.weight": weight})
    mine = write(tmp_path / "m", {"a.weight": codes, "a.weight_scale_inv": scale})

    row = compare(tmp_path, golden, mine)["a.weight"]

    check(row, weight, codes.double() * spread.double())
    assert row["quantisation"].endswith("per block of 128 x 128")


@pytest.mark.parametrize("axis", [0, 1])
def test_two_int4_in_a_byte(tmp_path, axis):
    codes = torch.randint(-8, 8, (6, 10))
    low, high = (codes[0::2], codes[1::2]) if axis == 0 else (codes[:, 0::2], codes[:, 1::2])
    packed = ((high << 4) | (low & 15)).to(torch.uint8).view(torch.int8)
    scale = torch.rand(6, 1) + 0.1
    weight = codes * scale + torch.randn(6, 10) * 0.1
    golden = write(tmp_path / "g", {"a.weight": weight})
    mine = write(tmp_path / "m", {"a.weight": packed, "a.weight_scale": scale})

    row = compare(tmp_path, golden, mine)["a.weight"]

    check(row, weight, codes.double() * scale.double())
    assert row["quantisation"] == "int4 per channel"
    assert row["my_shape"] == "[6, 10]"


def pack_words(codes, axis, order=range(8)):
    """Eight unsigned 4-bit codes along an axis into one int32; order[k] is the code in nibble k."""
    pieces = codes.unflatten(axis, (-1, 8)).unbind(axis + 1)
    words = sum(pieces[code].long() << (4 * nibble) for nibble, code in enumerate(order))
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def test_gptq(tmp_path):
    codes = torch.randint(0, 16, (64, 24))  # [in, out]
    zeros = torch.randint(1, 17, (4, 24))
    scales = (torch.rand(4, 24) + 0.1).half()
    order = torch.randperm(64) % 4
    weight = torch.randn(24, 64)
    mine = {
        "a.qweight": pack_words(codes, 0),
        "a.qzeros": pack_words(zeros - 1, 1),
        "a.scales": scales,
        "a.g_idx": order.to(torch.int32),
    }
    golden = write(tmp_path / "g", {"a.weight": weight})

    row = compare(tmp_path, golden, write(tmp_path / "m", mine))["a.weight"]

    check(row, weight, ((codes - zeros[order]).double() * scales.double()[order]).T)
    assert row["quantisation"] == "GPTQ int4 per group of 16, asymmetric"


def test_gptq_of_the_second_format_keeps_zero_points_as_they_are(tmp_path):
    codes = torch.randint(0, 16, (16, 8))
    zeros = torch.randint(0, 16, (1, 8))
    scales = torch.rand(1, 8) + 0.1
    weight = torch.randn(8, 16)
    golden = write(tmp_path / "g", {"a.weight": weight})
    mine = write(
        tmp_path / "m",
        {"a.qweight": pack_words(codes, 0), "a.qzeros": pack_words(zeros, 1), "a.scales": scales},
    )
    (mine / "config.json").write_text(json.dumps({"quantization_config": {"checkpoint_format": "gptq_v2"}}))
    check(compare(tmp_path, golden, mine)["a.weight"], weight, ((codes - zeros).double() * scales.double()).T)


def test_awq(tmp_path):
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    codes = torch.randint(0, 16, (32, 24))
    zeros = torch.randint(0, 16, (2, 24))
    scales = torch.rand(2, 24) + 0.1
    weight = torch.randn(24, 32)
    golden = write(tmp_path / "g", {"a.weight": weight})
    mine = write(
        tmp_path / "m",
        {"a.qweight": pack_words(codes, 1, order), "a.qzeros": pack_words(zeros, 1, order), "a.scales": scales},
    )

    row = compare(tmp_path, golden, mine)["a.weight"]

    def spread(x):
        return x.repeat_interleave(16, 0)

    check(row, weight, ((codes - spread(zeros)).double() * spread(scales).double()).T)
    assert row["quantisation"] == "AWQ int4 per group of 16, asymmetric"


@pytest.mark.parametrize("asymmetric", [False, True])
def test_compressed_tensors(tmp_path, asymmetric):
    codes = torch.randint(-8, 8, (16, 64))
    scale = (torch.rand(16, 2) + 0.1).bfloat16()
    zeros = torch.randint(-8, 8, (16, 2)) if asymmetric else torch.zeros(16, 2, dtype=torch.int64)
    weight = torch.randn(16, 64)
    parts = {
        "a.weight_packed": pack_words(codes + 8, 1),
        "a.weight_scale": scale,
        "a.weight_shape": torch.tensor([16, 64]),
    }
    if asymmetric:
        parts["a.weight_zero_point"] = pack_words(zeros + 8, 0)
    golden = write(tmp_path / "g", {"a.weight": weight})

    rows = compare(tmp_path, golden, write(tmp_path / "m", parts), "--unmatched")

    spread = [x.double().repeat_interleave(32, 1) for x in (zeros, scale)]
    check(rows["a.weight"], weight, (codes.double() - spread[0]) * spread[1])
    assert rows["a.weight"]["quantisation"] == "int4 per group of 32" + (", asymmetric" if asymmetric else "")
    assert read_csv(the_report(tmp_path / "out", "msit_cmp_unmatched_*.csv")) == []


def test_two_quantisations_of_one_weight_meet_as_numbers(tmp_path):
    weight = torch.randn(8, 32)
    codes, scale = per_channel(weight)
    words = torch.randint(0, 16, (32, 8))
    scales = torch.rand(1, 8) + 0.1
    int8 = {"model.a.weight": codes, "model.a.weight_scale": scale, "model.b.weight": weight}
    gptq = {"a.qweight": pack_words(words, 0), "a.scales": scales, "b.weight": weight}
    as_int8 = codes.double() * scale.double()
    as_gptq = ((words - 8).double() * scales.double()).T
    one = write(tmp_path / "1", int8)
    two = write(tmp_path / "2", gptq)

    rows = compare(tmp_path, one, two, "--unmatched")

    check(rows["model.a.weight"], as_int8, as_gptq)
    assert rows["model.a.weight"]["quantisation"] == "golden int8 per channel; my GPTQ int4 per channel"
    assert float(rows["model.b.weight"]["max_absolute_error"]) == 0
    assert read_csv(the_report(tmp_path / "out", "msit_cmp_unmatched_*.csv")) == []
    (tmp_path / "turned").mkdir()
    check(compare(tmp_path / "turned", two, one)["a.weight"], as_gptq, as_int8)


def test_golden_may_be_the_quantised_side(tmp_path):
    weight = torch.randn(8, 32)
    codes, scale = per_channel(weight)
    golden = write(tmp_path / "g", {"a.weight": codes, "a.weight_scale": scale})
    row = compare(tmp_path, golden, write(tmp_path / "m", {"a.weight": weight}))["a.weight"]
    check(row, codes.double() * scale.double(), weight)
    assert row["quantisation"] == "golden int8 per channel"


def test_a_large_weight_goes_through_a_file(tmp_path, monkeypatch):
    torch.manual_seed(1)
    weight = torch.randn(4300, 4096, dtype=torch.bfloat16)  # 67 MiB as float32
    codes, scale = per_channel(weight)
    golden = write(tmp_path / "g", {"a.weight": weight})
    mine = write(tmp_path / "m", {"a.weight": codes, "a.weight_scale": scale})
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))

    row = compare(tmp_path, golden, mine)["a.weight"]

    check(row, weight, codes.double() * scale.double())
    assert list(scratch.iterdir()) == []
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    (tmp_path / "2").mkdir()
    row = compare(tmp_path / "2", golden, mine)["a.weight"]
    assert "cannot create a temporary file in" in row["cmp_fail_reason"]


# ---- the original's report ----


def c5_metrics(golden, mine):
    """Ascend/msit 8.2 in float32."""
    g, m = golden.flatten().float(), mine.flatten().float()
    mask = g.abs() > 2.0**-23
    relative = torch.where(mask, (m / g - 1).abs(), torch.zeros_like(g))
    absolute = torch.where(mask, (m - g).abs(), torch.zeros_like(g))
    return {
        "cosine_similarity": float(torch.nn.functional.cosine_similarity(g.double(), m.double(), 0, eps=1e-8)),
        "max_relative_error": float(relative.max()),
        "mean_relative_error": float(relative.mean()),
        "max_absolute_error": float(absolute.max()),
        "mean_absolute_error": float(absolute.mean()),
        "kl_divergence": max(0.0, float((g.softmax(0) * (g.log_softmax(0) - m.log_softmax(0))).sum())),
        "relative_euclidean_distance": float(((m - g) ** 2).sum().sqrt() / (g**2).sum().sqrt()),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_compat_msit_has_the_rows_columns_and_values_of_the_original(tmp_path, dtype):
    torch.manual_seed(2)
    golden = {f"layers.{i}.weight": torch.randn(8, 16) for i in (10, 2)}
    golden |= {"plain.weight": torch.randn(4), "layers.2.bias": torch.randn(8), "late.weight": torch.randn(8, 16)}
    first, expected = {"plain.weight": golden["plain.weight"]}, {}
    for name in ("layers.10.weight", "layers.2.weight"):
        codes, scale = per_channel(golden[name])
        scale, offset = scale.to(dtype), torch.rand(8, 1).to(dtype)
        first |= {name: codes, f"{name}_scale": scale, f"{name}_offset": offset}
        expected[name] = (codes - offset) * scale
    write(tmp_path / "g", golden)
    write(tmp_path / "m", first, "a.safetensors")
    late, scale = per_channel(golden["late.weight"])
    write(tmp_path / "m", {"late.weight": late, "late.weight_scale": scale, "late.weight_offset": scale * 0})

    rows = compare(tmp_path, tmp_path / "g", tmp_path / "m", "--compat", "msit", name="msit")

    assert list(rows) == [name for name in load_file(tmp_path / "g" / "model.safetensors") if name in expected]
    for name, row in rows.items():
        assert list(row) == C5_COLUMNS
        assert row["my_dtype"] == str(dtype)
        assert float(row["my_max_value"]) == float(expected[name].float().max())
        for column, value in c5_metrics(golden[name], expected[name]).items():
            assert float(row[column]) == pytest.approx(value, rel=2e-5, abs=2e-7), column


def test_the_old_name_writes_the_report_and_returns_0(tmp_path):
    golden = write(tmp_path / "g", {"a.weight": torch.tensor([4.0, -2.0])})
    mine = write(
        tmp_path / "m",
        {
            "a.weight": torch.tensor([10, -3], dtype=torch.int8),
            "a.weight_offset": torch.tensor([2.0]),
            "a.weight_scale": torch.tensor([0.5]),
        },
    )
    row = compare(tmp_path, golden, mine, name="msit")["a.weight"]
    assert (float(row["my_max_value"]), float(row["my_min_value"])) == (4.0, -2.5)
    assert float(row["max_absolute_error"]) == 0.5


# ---- what is missing or broken ----


def test_missing_and_extra_names_are_listed(tmp_path):
    golden = write(tmp_path / "g", {"a.weight": torch.ones(2), "only.golden": torch.ones(2)})
    mine = write(tmp_path / "m", {"a.weight": torch.ones(2), "only.mine": torch.ones(2)})
    assert list(compare(tmp_path, golden, mine, "--unmatched")) == ["a.weight"]
    listed = read_csv(the_report(tmp_path / "out", "msit_cmp_unmatched_*.csv"))
    assert [(row["side"], row["path"].rsplit(":", 1)[1], row["reason"]) for row in listed] == [
        ("golden", "only.golden", "weight exists only in golden"),
        ("my", "only.mine", "weight exists only in mine"),
    ]


def test_limits_decide_the_exit_status(tmp_path):
    golden = write(tmp_path / "g", {"a.weight": torch.ones(4)})
    mine = write(tmp_path / "m", {"a.weight": torch.full((4,), 1.01)})
    assert compare(tmp_path, golden, mine, "--rel-l2", "0.1")["a.weight"]["result"] == "pass"
    (tmp_path / "2").mkdir()
    row = compare(tmp_path / "2", golden, mine, "--rel-l2", "0.001", status=1)["a.weight"]
    assert row["result"] == "fail"


def test_what_does_not_fit_is_a_row_with_its_reason(tmp_path):
    torch.manual_seed(3)
    weight = torch.randn(4, 8)
    codes, scale = per_channel(weight)
    golden = write(tmp_path / "g", {f"{name}.weight": weight for name in ("fine", "shape", "scale", "none", "nan")})
    mine = {
        "fine.weight": weight,
        "shape.weight": torch.randn(4, 9),
        "scale.weight": codes,
        "scale.weight_scale": torch.ones(3, 1),
        "none.weight": codes,
        "nan.weight": codes,
        "nan.weight_scale": torch.where(torch.arange(4)[:, None] == 1, math.nan, scale),
    }
    rows = compare(tmp_path, golden, write(tmp_path / "m", mine))
    assert float(rows["fine.weight"]["max_absolute_error"]) == 0
    assert rows["shape.weight"]["cmp_fail_reason"] == "data shape doesn't match."
    assert rows["scale.weight"]["cmp_fail_reason"] == (
        "my: the scale has shape [3, 1], which does not fit a weight of shape [4, 8]."
    )
    assert rows["none.weight"]["cmp_fail_reason"] == "my weight is torch.int8 and 'none.weight_scale' is missing."
    assert rows["nan.weight"]["cmp_fail_reason"] == "my_data includes NAN or inf."
    assert rows["nan.weight"]["nan_only_in_my"] == "8"
    assert rows["nan.weight"]["compared_count"] == "24"


def test_a_truncated_shard_costs_only_its_own_weights(tmp_path, llama):
    folder, golden = llama
    mine = tmp_path / "m"
    mine.mkdir()
    for file in folder.iterdir():
        (mine / file.name).write_bytes(file.read_bytes())
    index = json.loads((mine / "model.safetensors.index.json").read_text())
    broken = sorted(set(index["weight_map"].values()))[1]
    (mine / broken).write_bytes((mine / broken).read_bytes()[:-100])

    rows = compare(tmp_path, folder, mine)

    assert set(rows) == set(golden)
    for name, row in rows.items():
        if index["weight_map"][name] == broken:
            assert broken in row["cmp_fail_reason"], name
            assert row["cosine_similarity"] == ""
        else:
            assert float(row["max_absolute_error"]) == 0


@pytest.mark.parametrize(
    "index",
    [
        b"{",
        b"[" * 100_000,
        b'{"weight_map": {"a.weight": "/etc/passwd"}}',
        b'{"weight_map": {"a.weight": 7}}',
        b" " * (65 << 20),
    ],
    ids=["no JSON", "deep", "a path", "a number", "huge"],
)
def test_a_useless_index_is_left_aside(tmp_path, index):
    golden = write(tmp_path / "g", {"a.weight": torch.ones(2)})
    mine = write(tmp_path / "m", {"a.weight": torch.ones(2)})
    (mine / "model.safetensors.index.json").write_bytes(index)
    assert float(compare(tmp_path, golden, mine)["a.weight"]["max_absolute_error"]) == 0


def test_a_header_that_lies_is_no_end(tmp_path):
    golden = write(tmp_path / "g", {"a.weight": torch.ones(2)})
    mine = write(tmp_path / "m", {"a.weight": torch.ones(2)})
    header = b'{"b":{"dtype":"F32","shape":[1152921504606846976],"data_offsets":[0,8]}}'
    (mine / "z.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 8)
    assert float(compare(tmp_path, golden, mine)["a.weight"]["max_absolute_error"]) == 0


def test_a_folder_without_weights_is_an_error(tmp_path):
    golden = write(tmp_path / "g", {"a.weight": torch.ones(2)})
    (tmp_path / "empty").mkdir()
    done = run("compare", "-w", "-gp", golden, "-mp", tmp_path / "empty", "-o", tmp_path / "out")
    assert done.returncode == 2
    assert "No .safetensors files found in the directory." in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_report_does_not_depend_on_jobs(tmp_path, llama):
    folder, golden = llama
    mine = {}
    for name, weight in golden.items():
        codes, scale = per_channel(weight)
        mine |= {name: codes, f"{name}_scale": scale}
    write(tmp_path / "m", mine)
    reports = []
    for jobs in (1, 3):
        out = tmp_path / f"out{jobs}"
        done = run("compare", "-w", folder, tmp_path / "m", "-o", out, "--jobs", jobs)
        assert done.returncode == 0, done.stderr
        reports.append(the_report(out).read_bytes())
    assert reports[0] == reports[1]
