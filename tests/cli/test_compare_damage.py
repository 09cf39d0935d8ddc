# SPDX-License-Identifier: Apache-2.0
"""What is damaged, missing or hostile costs its own row and nothing else, in torch trees and in ATB dumps."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from assay_command import read_csv, run, the_report, write_torch_tree
from atb_files import node, write_bin, write_topology

LAYERS = 12


def write_atb_tree(root: Path, layer_count=LAYERS, tokens=(0,), pid=1, seed=0):
    """An ATB dump with one output an operation; returns the {device}_{pid} folder.

    The operations: an embedding, layers of Attention and Mlp, a head.
    """
    dump = root / "msit_dump_20250220_083154"
    generator = np.random.default_rng(seed)
    layers = [
        node(f"Decoder_layer_{i}", "Decoder_layer", node(f"Attention_{i}_0", "Attention"), node(f"Mlp_{i}_1", "Mlp"))
        for i in range(1, layer_count + 1)
    ]
    embedding, head = node("WordEmbedding_0", "WordEmbedding"), node(f"LmHead_{layer_count + 1}", "LmHead")
    write_topology(dump, pid, "Model", [embedding, *layers, head])
    rank = dump / "tensors" / f"{pid - 1}_{pid}"
    places = ["0_WordEmbedding", f"{layer_count + 1}_LmHead"]
    for i in range(1, layer_count + 1):
        places += [f"{i}_Decoder_layer{below}" for below in ("", "/0_Attention", "/1_Mlp")]
    for token in tokens:
        for place in sorted(places):
            value = generator.standard_normal((2, 8)).astype(np.float32)
            write_bin(rank / str(token) / place / "after" / "outtensor0.bin", value)
    return rank


class TorchLayout:
    name = "torch"
    outputs = LAYERS * 3 + 5  # three a layer; the root, its model, embedding, norm, head

    def write(self, root, **options):
        return write_torch_tree(root, LAYERS, **options)

    def file(self, rank, layer, token=0):
        return rank / str(token) / f"root.model.layers.{layer}.mlp" / "output.pth"


class AtbLayout:
    name = "atb"
    outputs = LAYERS * 3 + 2

    def write(self, root, **options):
        return write_atb_tree(root, LAYERS, **options)

    def file(self, rank, layer, token=0):
        return rank / str(token) / f"{layer + 1}_Decoder_layer" / "1_Mlp" / "after" / "outtensor0.bin"


@pytest.fixture(params=[TorchLayout(), AtbLayout()], ids=lambda layout: layout.name)
def layout(request):
    return request.param


def compare(golden, mine, out, *options, status=0):
    done = run("compare", golden, mine, "-cl", "api", "-o", out, "--unmatched", *options, errors="backslashreplace")
    assert done.returncode == status, done.stderr
    return read_csv(the_report(out)), read_csv(the_report(out, "msit_cmp_unmatched_*.csv")), done.stdout + done.stderr


def reasons(rows):
    return {row["my_data_path"]: row["cmp_fail_reason"] for row in rows if row["cmp_fail_reason"]}


def test_without_damage_every_output_is_a_row_without_difference(tmp_path, layout):
    golden, mine = (layout.write(tmp_path / side, pid=1) for side in ("golden", "mine"))
    rows, unmatched, _ = compare(golden, mine, tmp_path / "out")
    assert (len(rows), unmatched, reasons(rows)) == (layout.outputs, [], {})
    assert {row["max_absolute_error"] for row in rows} == {"0.0"}


@pytest.mark.parametrize("side", ["golden", "mine"])
def test_one_unreadable_one_truncated_and_one_missing_tensor(tmp_path, layout, side):
    sides = {name: layout.write(tmp_path / name, pid=1) for name in ("golden", "mine")}
    truncated, garbage, empty, missing = (layout.file(sides[side], layer) for layer in (2, 3, 4, 5))
    truncated.write_bytes(truncated.read_bytes()[:-20])
    garbage.write_bytes(b"\x80\x02not a tensor at all")
    empty.write_bytes(b"")
    missing.unlink()
    rows, unmatched, _ = compare(sides["golden"], sides["mine"], tmp_path / "out")
    column = "golden_data_path" if side == "golden" else "my_data_path"
    # Then each of the readable ones is compared, and each damaged one is a row that says what is wrong
    damaged = {row[column]: row["cmp_fail_reason"] for row in rows if row["cmp_fail_reason"]}
    assert damaged.keys() == {str(truncated), str(garbage), str(empty)}
    assert all(row["max_absolute_error"] == "0.0" for row in rows if row[column] not in damaged)
    assert len(rows) == layout.outputs - 1
    # and the one whose partner is gone is listed with a reason.
    (alone,) = unmatched
    assert alone["side"] == ("my" if side == "golden" else "golden") and alone["reason"]
    assert alone["path"] == str(layout.file(sides["mine" if side == "golden" else "golden"], 5))


def test_a_missing_token_is_said(tmp_path, layout):
    golden = layout.write(tmp_path / "golden", tokens=(0, 1, 2), pid=1)
    mine = layout.write(tmp_path / "mine", tokens=(0, 1, 2), pid=1)
    shutil.rmtree(mine / "1")
    rows, unmatched, text = compare(golden, mine, tmp_path / "out")
    assert {row["token_id"] for row in rows} == {"0", "2"} and len(rows) == 2 * layout.outputs
    assert {row["token_id"] for row in unmatched} == {"1"} and all(row["reason"] for row in unmatched)
    assert re.search(r"step.*\b1\b", text), text


def test_a_missing_rank_is_said(tmp_path, layout):
    for side, pids in (("golden", (1, 2)), ("mine", (1,))):
        for pid in pids:
            layout.write(tmp_path / side, pid=pid, seed=7)
    golden, mine = ((tmp_path / side / "msit_dump_20250220_083154") for side in ("golden", "mine"))
    rows, _, text = compare(golden, mine, tmp_path / "out")
    assert len(rows) == layout.outputs and reasons(rows) == {}
    assert re.search(r"rank.*\b1\b", text), text


def hostile_torch(path: Path, kind: str):
    if kind == "pickle":
        path.write_bytes(b"cos\nsystem\n(S'touch /tmp/assay_was_here'\ntR.")
    elif kind == "bomb":
        import zipfile

        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("archive/data.pkl", b"\0" * (64 << 20))
    elif kind == "huge":
        torch.save(torch.zeros(4), path)
        path.write_bytes(path.read_bytes().replace(b"K\x04\x85", b"K\xff\x85"))


def hostile_atb(path: Path, kind: str):
    head = "$Version=1.0\n$Object.Count=1\n$Object.Length=%s\nformat=2\ndtype=%s\ndims=%s\n$Object.data=%s\n$End=1\n"
    path.write_bytes(
        {
            "pickle": (head % (16, 0, "4,-1", "0,16")).encode() + bytes(16),
            "bomb": (head % (1 << 62, 0, "4611686018427387904,4", f"0,{1 << 62}")).encode(),
            "huge": (head % (16, 0, "1000000,1000000", "0,16")).encode() + bytes(16),
        }[kind]
    )


def test_hostile_files_cost_their_own_rows_only(tmp_path, layout):
    golden, mine = (layout.write(tmp_path / side, pid=1) for side in ("golden", "mine"))
    hostile = hostile_torch if layout.name == "torch" else hostile_atb
    bad = [layout.file(mine, layer) for layer in range(1, 7)]
    for path, kind in zip(bad[:3], ("pickle", "bomb", "huge")):
        hostile(path, kind)
    secret = tmp_path / "secret.bin"
    shutil.copy(layout.file(golden, 8), secret)
    bad[3].unlink()
    os.symlink(secret, bad[3])  # out of the dump
    bad[4].unlink()
    os.mkfifo(bad[4])  # nobody ever writes into it
    bad[5].unlink()
    bad[5].mkdir()
    # Names that a spreadsheet, a terminal or a parser may stumble over
    (mine / "0" / "=1+cmd|'calc'!A0").mkdir()
    (mine / "0" / "\x1b[31mred\nname").mkdir()
    (mine / "0" / "\xff".encode("latin-1").decode("utf-8", "surrogateescape")).mkdir()
    (mine / "not a token").mkdir()
    (mine / "99999999999999999999").mkdir()
    rows, unmatched, text = compare(golden, mine, tmp_path / "out")
    good = [row for row in rows if not row["cmp_fail_reason"]]
    assert all(row["max_absolute_error"] == "0.0" for row in good)
    assert len(good) == layout.outputs - len(bad)
    # Each bad one is either a row with its reason, or its partner is listed as alone
    said = {row["golden_data_path"] for row in rows if row["cmp_fail_reason"]}
    alone = {row["path"] for row in unmatched}
    assert {str(layout.file(golden, layer)) for layer in range(1, 7)} <= said | alone
    assert not any(str(secret) in row["my_data_path"] for row in good)
    assert "\x1b[31mred" not in text
    assert not Path("/tmp/assay_was_here").exists()


def test_cells_that_a_spreadsheet_would_run_are_defused(tmp_path):
    for side in ("golden", "mine"):
        folder = tmp_path / side
        folder.mkdir()
        np.save(folder / "=1+1.npy", np.ones(3, np.float32))
        np.save(folder / "@SUM(A1).npy", np.ones(3, np.float32))
    done = run("compare", "golden", "mine", "-o", "out", "--unmatched", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cells = [cell for row in read_csv(the_report(tmp_path / "out")) for cell in row.values()]
    assert not [cell for cell in cells if cell and cell[0] in "=@"]
