# SPDX-License-Identifier: Apache-2.0
"""What of golden a comparison says nothing about: names come before values, "same" is never more than was compared."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from assay_command import run
from safetensors.torch import save_file

WITHIN = ("--rel-l2", "1e-6")


def tensors():
    generator = torch.Generator().manual_seed(3)
    return {f"layers.{i}.{name}": torch.randn(8, 8, generator=generator) for i in range(3) for name in "qkv"}


def exchanged():
    """The golden tensors, two of which stand under each other's key."""
    golden = tensors()
    return {**golden, "layers.1.q": golden["layers.1.k"], "layers.1.k": golden["layers.1.q"]}


def write(path, content):
    if path.suffix == ".npz":
        np.savez(path, **{key: value.numpy() for key, value in content.items()})
    elif path.suffix == ".pth":
        torch.save(content, path)
    else:
        save_file(content, path)
    return path


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".npz"])
def test_exchanged_tensors_of_two_files_differ(tmp_path, suffix):
    golden, mine = write(tmp_path / f"golden{suffix}", tensors()), write(tmp_path / f"mine{suffix}", exchanged())
    done = run("compare", golden, mine, *WITHIN)
    assert done.returncode == 1
    assert "differs: 2 of 9 pairs beyond the limits" in done.stdout


def test_exchanged_tensors_of_files_in_folders_differ(tmp_path):
    """given two folders whose files have other names, then their keys pair the tensors, not their values"""
    for side, content in (("golden", tensors()), ("mine", exchanged())):
        (tmp_path / side).mkdir()
        write(tmp_path / side / f"of-{side}.safetensors", content)
    done = run("compare", tmp_path / "golden", tmp_path / "mine", *WITHIN, "-o", tmp_path / "out")
    assert done.returncode == 1
    assert "differs: 2 of 9 pairs beyond the limits" in done.stdout


def test_what_values_alone_paired_is_never_the_same(tmp_path):
    golden = write(tmp_path / "golden.safetensors", tensors())
    numbered = {f"tensor{i}": value for i, value in enumerate(tensors().values())}
    mine = write(tmp_path / "mine.safetensors", numbered)
    done = run("compare", golden, mine, *WITHIN)
    assert done.returncode == 125
    assert "9 tensors of golden were paired by their values, which says nothing about the place" in done.stdout
    assert "same" not in run("compare", golden, mine).stdout


def test_tensors_of_golden_without_partner_are_not_comparable_as_a_whole(tmp_path):
    golden = write(tmp_path / "golden.safetensors", tensors())
    fewer = tensors()
    del fewer["layers.2.v"]
    mine = write(tmp_path / "mine.safetensors", fewer)
    done = run("compare", golden, mine, *WITHIN)
    assert done.returncode == 125
    assert "1 tensor of golden has no partner in mine, first layers.2.v" in done.stdout
    assert "--allow-unmatched PATTERN" in done.stderr
    assert run("compare", golden, mine, *WITHIN, "--allow-unmatched", "layers.0.*").returncode == 125
    assert run("compare", golden, mine, *WITHIN, "--allow-unmatched", "layers.2.*").returncode == 0
    assert run("compare", golden, mine, *WITHIN, "--exit-zero").returncode == 0
    # What only mine has takes nothing away from golden.
    assert run("compare", mine, golden, *WITHIN).returncode == 0
    done = run("compare", golden, mine)
    assert done.returncode == 0, "no limit was asked for"
    assert "same" not in done.stdout


def test_ranks_that_were_left_out_are_not_missing(tmp_path):
    for side, ranks in (("golden", (0, 1)), ("mine", (0, 1))):
        for rank in ranks:
            folder = tmp_path / side / f"rank{rank}"
            folder.mkdir(parents=True)
            write_native(folder, complete=True)
    done = run("compare", tmp_path / "golden", tmp_path / "mine", *WITHIN, "--ranks", "0", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr


def write_native(folder, complete):
    """A run of docs/formats/native.md with one record."""
    save_file({"0": torch.ones(4)}, folder / "step-000000.safetensors")
    size = int.from_bytes((folder / "step-000000.safetensors").read_bytes()[:8], "little")
    record = {
        "n": 0, "step": 0, "order": 0, "role": "output", "node": "net", "slot": "0", "dtype": "float32", "shape": [4],
        "file": "step-000000.safetensors", "offset": 8 + size, "bytes": 16,
    }  # fmt: skip
    (folder / "records.jsonl").write_text(json.dumps(record) + "\n")
    (folder / "manifest.json").write_text(json.dumps({"format": "assay-run", "version": 1, "complete": complete}))


def test_a_run_that_did_not_finish_is_not_comparable_as_a_whole(tmp_path):
    for side, complete in (("golden", True), ("mine", False)):
        folder = tmp_path / side / "rank0"
        folder.mkdir(parents=True)
        write_native(folder, complete)
    done = run("compare", tmp_path / "golden", tmp_path / "mine", *WITHIN, "-o", tmp_path / "out")
    assert done.returncode == 125, done.stdout
    assert "the capture of mine did not finish" in done.stdout


def test_msit_keeps_its_status(tmp_path):
    fewer = tensors()
    del fewer["layers.2.v"]
    golden, mine = write(tmp_path / "golden.pth", tensors()), write(tmp_path / "mine.pth", fewer)
    done = run("compare", golden, mine, *WITHIN, "--compat", "msit", "-o", tmp_path / "out")
    assert done.returncode == 0
    assert "not comparable" not in done.stdout
