# SPDX-License-Identifier: Apache-2.0
"""Weights that a run holds in other layouts than golden: codes with scales, shards of one or several ranks. torchao,
bitsandbytes, compressed-tensors and FSDP store them so; the tensors here are made with their formulas.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from assay_command import run

import assay

torch = pytest.importorskip("torch")
pytest.importorskip("assay._capture")

OUT, IN, GROUP = 48, 64, 32


def weight():
    generator = torch.Generator().manual_seed(3)
    return torch.randn(OUT, IN, generator=generator) / IN**0.5


class Stored(torch.nn.Module):
    """`linear` as a module that keeps its tensors by any names, and multiplies with what they stand for."""

    def __init__(self, tensors, value):
        super().__init__()
        self.linear = torch.nn.Module()
        for name, tensor in tensors.items():
            self.linear.register_buffer(name, tensor)
        self.value = value
        self.linear.forward = lambda x: torch.nn.functional.linear(x, self.value)

    def forward(self, x):
        return self.linear(x)


class Plain(torch.nn.Module):
    def __init__(self, value):
        super().__init__()
        self.linear = torch.nn.Linear(IN, OUT, bias=False)
        self.linear.weight = torch.nn.Parameter(value)

    def forward(self, x):
        return self.linear(x)


def capture(model, folder: Path) -> Path:
    x = torch.randn(1, 5, IN, generator=torch.Generator().manual_seed(4))
    with torch.no_grad(), assay.capture(model, str(folder), level="operator", weights=True):
        model(x)
    return folder


def int8_per_channel(value):
    scale = value.abs().amax(1, keepdim=True) / 127
    codes = torch.clamp(torch.round(value / scale), -128, 127)
    return {"weight": codes.to(torch.int8), "weight_scale": scale}, codes * scale


def bitsandbytes_int8(value):
    largest = value.abs().amax(1)
    codes = torch.round(value / largest[:, None] * 127)
    return {"weight": codes.to(torch.int8), "SCB": largest}, codes * largest[:, None] / 127


def bitsandbytes_old_names(value):
    tensors, stands_for = bitsandbytes_int8(value)
    return {"CB": tensors["weight"], "SCB": tensors["SCB"]}, stands_for


def packed_int4(value):
    """compressed-tensors, pack-quantized: eight offset-binary codes a word, a scale each group."""
    grouped = value.reshape(OUT, IN // GROUP, GROUP)
    scale = grouped.abs().amax(2) / 7
    codes = torch.clamp(torch.round(grouped / scale[..., None]), -8, 7)
    stands_for = (codes * scale[..., None]).reshape(OUT, IN)
    words = (codes.reshape(OUT, IN // 8, 8).to(torch.int64) + 8) << (4 * torch.arange(8))
    packed = words.sum(2).to(torch.int32)
    return {"weight_packed": packed, "weight_scale": scale, "weight_shape": torch.tensor([OUT, IN])}, stands_for


def float8(value):
    scale = value.abs().amax() / 448
    codes = (value / scale).to(torch.float8_e4m3fn)
    return {"weight": codes, "weight_scale": scale.reshape(1)}, codes.float() * scale


SCHEMES = {f.__name__: f for f in (int8_per_channel, bitsandbytes_int8, bitsandbytes_old_names, packed_int4, float8)}


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    return capture(Plain(weight()), tmp_path_factory.mktemp("stored") / "golden")


def words_of(done) -> str:
    return " ".join(done.stdout.split())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_weight_in_codes_is_judged_by_its_own_step(golden, tmp_path, scheme):
    mine = capture(Stored(*SCHEMES[scheme](weight())), tmp_path / "mine")
    done = run("locate", golden, mine)
    said = words_of(done)
    assert "first bad" not in said
    for complaint in ("weights not judged", "could not be compared", "without a partner"):
        assert complaint not in said


@pytest.mark.parametrize("scheme", ["int8_per_channel", "bitsandbytes_int8", "bitsandbytes_old_names", "float8"])
def test_codes_of_another_weight_are_named(golden, tmp_path, scheme):
    other = weight()
    other[7, 9] += 0.5
    mine = capture(Stored(*SCHEMES[scheme](other)), tmp_path / "mine")
    done = run("locate", golden, mine)
    assert done.returncode == 1
    assert "first bad: linear" in done.stdout
    assert "more than a step of" in words_of(done), done.stdout


def test_codes_that_calibration_may_have_moved_are_not_judged(golden, tmp_path):
    other = weight()
    other[7, 9] += 0.5
    done = run("locate", golden, capture(Stored(*packed_int4(other)), tmp_path / "mine"))
    assert "weights not judged, further than a step of their codes" in words_of(done), done.stdout
    assert "clean:" not in done.stdout


@pytest.mark.parametrize(
    "tensors",
    [
        {"weight": torch.zeros(OUT * IN // 2, 1, dtype=torch.uint8)},  # bitsandbytes 4 bit: blocks of a list
        {"weight": torch.zeros(OUT, IN, dtype=torch.int8)},  # no scale
        {"weight": torch.zeros(OUT, IN // 2, dtype=torch.uint8)},
    ],
)
def test_codes_without_known_scales_are_never_accused(golden, tmp_path, tensors):
    done = run("locate", golden, capture(Stored(tensors, weight()), tmp_path / "mine"))
    assert "first bad" not in done.stdout, done.stdout
    assert "clean:" not in done.stdout
    assert "weights not judged, codes whose scales are not known: linear.weight" in words_of(done)


def shards_of(value, how):
    if how == "flat":  # FSDP: one list, padded so that it divides
        padded = torch.cat([value.flatten(), torch.zeros(10)])
        return padded[: len(padded) // 2].clone(), padded[len(padded) // 2 :].clone()
    if how == "fused":  # gate and up in one matrix: each rank has its half of both
        first, second, third, fourth = value.chunk(4)
        return torch.cat([first, third]), torch.cat([second, fourth])
    return tuple(part.clone() for part in value.chunk(2, dim=how))


def capture_ranks(folder: Path, shards, monkeypatch) -> Path:
    """One run of several ranks, put together as a launcher with one folder a rank would."""
    monkeypatch.setenv("ASSAY_RUN_ID", "ab" * 16)
    for rank, shard in enumerate(shards):
        one = capture(Stored({"weight": shard}, weight()), folder.with_name(f"{folder.name}-{rank}"))
        if rank == 0:
            shutil.copytree(one, folder)
        else:
            shutil.copytree(one / "rank0", folder / f"rank{rank}")
    return folder


@pytest.mark.parametrize("how", [0, 1, "flat", "fused"])
def test_shards_of_all_ranks_are_put_together(golden, tmp_path, how, monkeypatch):
    done = run("locate", golden, capture_ranks(tmp_path / "mine", shards_of(weight(), how), monkeypatch))
    assert "first bad" not in done.stdout, done.stdout
    assert "weights not judged" not in words_of(done)
    note = "put together as interleave:0 in 2 blocks of ranks 0,1: linear.weight"
    assert (note in words_of(done)) == (how == "fused"), done.stdout

    other = weight()
    other[40, 60] += 0.5
    done = run("locate", golden, capture_ranks(tmp_path / "faulty", shards_of(other, how), monkeypatch))
    assert "first bad: linear" in done.stdout, done.stdout
    assert "40, 60]" in words_of(done)


@pytest.mark.parametrize("how", [0, 1, "flat"])
def test_a_shard_alone_is_never_accused_by_its_shape(golden, tmp_path, how):
    shard = shards_of(weight(), how)[0]
    done = run("locate", golden, capture(Stored({"weight": shard}, weight()), tmp_path / "mine"))
    assert "first bad" not in done.stdout, done.stdout
    assert "clean:" not in done.stdout
    assert "weights not judged, shards: 1 captured rank holds" in words_of(done)


def test_a_checkpoint_of_bitsandbytes_is_unpacked(tmp_path):
    from safetensors.torch import save_file

    tensors, stands_for = bitsandbytes_int8(weight())
    for name, content in (("golden", {"weight": stands_for}), ("mine", tensors)):
        (tmp_path / name).mkdir()
        save_file({f"linear.{k}": v.contiguous() for k, v in content.items()}, tmp_path / name / "model.safetensors")
    done = run("compare", "-w", tmp_path / "golden", tmp_path / "mine", "--rel-l2", "1e-6", "--jsonl", "-o",
               tmp_path / "out")  # fmt: skip
    assert done.returncode == 0, done.stdout
    (lines,) = (tmp_path / "out").glob("*.jsonl")
    assert "int8 per channel" in lines.read_text(), json.loads(lines.read_text().splitlines()[0])
