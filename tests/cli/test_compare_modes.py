# SPDX-License-Identifier: Apache-2.0
"""Modes of compare besides the plain one, both sides written by hand: mapping files, --map, rotary and fused tensors,
statistics of ATB, tiled memory, the report of ait 0.2, sides exchanged, the summary sheet."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import openpyxl
import pytest
import torch
from assay_command import read_csv, run, the_report
from atb_files import node, write_bin, write_topology

LAYERS = 12  # more than ten, so that the original's rule finds them


class Sides:
    """A torch tree and an ATB dump of LAYERS layers, each with the modules and operations that a test adds."""

    def __init__(self, root):
        self.golden = root / "golden" / "msit_dump_20250101_110000" / "torch_tensors" / "npu0_77"
        self.mine = root / "mine" / "msit_dump_20250101_120000"
        self.modules: list[tuple[str, str]] = []
        self.operations: list[tuple[str, str]] = []
        self.golden.mkdir(parents=True)

    def module(self, name, kind, layer, **tensors):
        """A leaf below a layer; tensors are named as files: output, output_0, input_0."""
        if layer == 0:
            self.modules.append((name, kind))
        folder = self.golden / "0" / f"root.model.layers.{layer}.{name}"
        folder.mkdir(parents=True)
        for stem, array in tensors.items():
            torch.save(torch.from_numpy(array), folder / f"{stem}.pth")

    def operation(self, path, layer, before=(), after=()):
        """An operation below a layer: "0_Attention/1_LinearOperation"."""
        if layer == 0:
            self.operations.append((path, path.rsplit("_", 1)[1]))
        folder = self.mine / "tensors" / "0_78" / "0" / f"{layer}_Prefill_layer" / path
        for i, array in enumerate(before):
            write_bin(folder / "before" / f"intensor{i}.bin", array)
        for i, array in enumerate(after):
            write_bin(folder / "after" / f"outtensor{i}.bin", array)

    def finish(self):
        def layer_tree(i):
            children: dict[str, dict] = {}
            for name, kind in self.modules:
                at = children
                parts = name.split(".")
                for depth in range(len(parts)):
                    full = ".".join(parts[: depth + 1])
                    leaf = depth == len(parts) - 1
                    at = at.setdefault(full, {"kind": kind if leaf else "Block", "children": {}})["children"]

            def emit(entries):
                return [
                    {"name": f"root.model.layers.{i}.{k}", "type": v["kind"], "children": emit(v["children"])}
                    for k, v in entries.items()
                ]

            return {"name": f"root.model.layers.{i}", "type": "DecoderLayer", "children": emit(children)}

        layers = {"name": "root.model.layers", "type": "ModuleList", "children": [layer_tree(i) for i in range(LAYERS)]}
        tree = {
            "name": "root",
            "type": "ForCausalLM",
            "children": [{"name": "root.model", "type": "Model", "children": [layers]}],
        }
        (self.golden / "model_tree.json").write_text(json.dumps(tree))

        def operations_of(layer):
            made: dict[str, dict] = {}
            roots = []
            for path, _ in self.operations:
                parent, ids = None, str(layer)
                for part in path.split("/"):
                    number, kind = part.split("_", 1)
                    ids += f"_{number}"
                    key = ids + kind
                    if key not in made:
                        made[key] = node(f"{kind}_{ids}", kind)
                        (roots if parent is None else parent["nodes"]).append(made[key])
                    parent = made[key]
            return roots

        write_topology(
            self.mine,
            78,
            "Model",
            [node(f"Prefill_layer_{i}", "Prefill_layer", *operations_of(i)) for i in range(LAYERS)],
        )
        return self


@pytest.fixture
def sides(tmp_path):
    return Sides(tmp_path)


def noise(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def compare(golden, mine, out, *options, name="assay", status=0):
    words = ("llm", "compare", "-gp", golden, "-mp", mine) if name != "assay" else ("compare", golden, mine)
    # Nobody computed these values: the verdict names the operators, the tests are about the pairs.
    more = ("--exit-zero",) if name == "assay" and status == 0 else ()
    done = run(*words, "-o", out, *options, *more, name=name)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def names(rows, layer=0):
    """(golden module, my operation) of one layer's rows."""
    found = []
    for row in rows:
        golden = row["golden_data_path"].split("/0/")[-1].removeprefix(f"root.model.layers.{layer}.")
        mine = row["my_data_path"].split("/0/")[-1].removeprefix(f"{layer}_Prefill_layer/")
        if f"layers.{layer}." in row["golden_data_path"]:
            found.append((golden, mine))
    return found


# ---- mapping files ----


@pytest.fixture
def strange_types(sides):
    """Types that no built-in table knows, with unrelated values so that only a mapping file can pair them."""
    for i in range(LAYERS):
        sides.module("a", "FancyNorm", i, output=noise((1, 3, 8), 10 + i))
        sides.module("b", "FancyGate_V2", i, output=noise((1, 3, 8), 100 + i))
        sides.operation("0_FancyNormOperation", i, after=[noise((3, 8), 200 + i)])
        sides.operation("1_GateOperation", i, after=[noise((3, 8), 300 + i)])
    return sides.finish()


@pytest.mark.parametrize("value", ["FancyNorm", ["FancyNorm"], ["FancyNorm_output"]])
@pytest.mark.parametrize("name", ["assay", "msit"])
def test_a_user_table_pairs_types(tmp_path, strange_types, value, name):
    folder = tmp_path / "mapping"
    folder.mkdir()
    (folder / "op_mapping_file.json").write_text(json.dumps({"FancyNormOperation": value}))
    compare(strange_types.golden, strange_types.mine, tmp_path / "out", "-cl", "api", "-mf", folder, name=name)
    rows = read_csv(the_report(tmp_path / "out"))
    pairs = names(rows, 3)
    assert ("a/output.pth", "0_FancyNormOperation/after/outtensor0.bin") in pairs
    assert [row for row in rows if "FancyNorm" in row["golden_op_type"]].__len__() == LAYERS
    if name == "assay":
        assert {row["matched_by"] for row in rows if row["golden_op_type"] == "FancyNorm"} == {"map_count"}


def test_rules_reach_types_with_underscores_and_paths(tmp_path, strange_types):
    file = tmp_path / "mine.json"
    rules = [
        {"my": "*/1_GateOperation", "golden": {"glob": "FancyGate_V2"}},
        {"my": {"all": ["FancyNorm"]}, "golden": "*.a", "my_location": "outtensor0", "golden_location": "output"},
    ]
    file.write_text(json.dumps({"rules": rules}))
    compare(strange_types.golden, strange_types.mine, tmp_path / "out", "-cl", "api", "-mf", file)
    rows = [row for row in read_csv(the_report(tmp_path / "out")) if row["matched_by"] == "mapping file"]
    assert len(rows) == 2 * LAYERS
    assert names(rows, 5) == [
        ("a/output.pth", "0_FancyNormOperation/after/outtensor0.bin"),
        ("b/output.pth", "1_GateOperation/after/outtensor0.bin"),
    ]


@pytest.mark.parametrize("text", ["[]", "{", '{"a b": "C"}', '{"A": "b-c"}', '{"A": 3}', '{"rules": [{"mine": "x"}]}'])
def test_a_wrong_mapping_file_is_named(tmp_path, strange_types, text):
    file = tmp_path / "m.json"
    file.write_text(text)
    done = compare(strange_types.golden, strange_types.mine, tmp_path / "out", "-mf", file, status=2)
    assert f"error: Invalid op_mapping file: {file} (" in done.stderr
    assert done.stderr.count(str(file)) == 1
    assert len(done.stderr.splitlines()) <= 2
    assert "json.exception" not in done.stderr
    assert "expected" in done.stderr or "is no " in done.stderr or "known are" in done.stderr


def test_a_mapping_file_that_is_not_json_is_named_with_the_place(tmp_path, strange_types):
    file = tmp_path / "m.json"
    file.write_text('{\n  "A": "B",\n  "C" "D"\n}\n')
    done = compare(strange_types.golden, strange_types.mine, tmp_path / "out", "-mf", file, status=2)
    assert "line 3, column 9" in done.stderr  # the last character of "D", which nothing may follow


# ---- --map ----


def test_explicit_pairs_take_slices_and_merges(tmp_path):
    golden, mine = tmp_path / "g", tmp_path / "m"
    full = noise((2, 6, 8), 1)
    left, right = noise((4, 8), 2), noise((4, 8), 3)
    for rank in (0, 1):
        for root in (golden, mine):
            (root / f"rank{rank}").mkdir(parents=True)
    for folder, arrays in (
        (golden, {"many": full, "sum": left + right}),
        (mine, {"one": full[1, 2:5] + 1, "part": left}),
    ):
        (folder / "flat").mkdir()
        for name, array in arrays.items():
            np.save(folder / "flat" / f"{name}.npy", array)
    pairs = [{"golden": "many", "my": "one", "slice": "[1, 2:5]"}, {"golden": "sum", "my": "part"}]
    map_file = tmp_path / "map.json"
    map_file.write_text(json.dumps(pairs))
    compare(golden / "flat", mine / "flat", tmp_path / "out", "--map", map_file)
    rows = {row["node"]: row for row in read_csv(the_report(tmp_path / "out"))}
    assert rows["one output"]["golden_shape"] == "[3, 8]"
    assert float(rows["one output"]["max_absolute_error"]) == pytest.approx(1, rel=1e-6)
    assert float(rows["part output"]["max_absolute_error"]) == pytest.approx(np.abs(right).max(), rel=1e-6)


@pytest.mark.parametrize("reduce", ["sum", "cat:1", "pick"])
def test_explicit_merges_of_ranks(tmp_path, reduce):
    golden = tmp_path / "g" / "msit_dump_20250101_110000"
    mine = tmp_path / "m" / "msit_dump_20250101_120000"
    shards = [noise((4, 8), 2), noise((4, 8), 3)]
    whole = {"sum": shards[0] + shards[1], "cat:1": np.concatenate(shards, 1), "pick": shards[0]}[reduce]
    write_bin(golden / "tensors" / "0_1" / "0" / "0_LinearOperation" / "after" / "outtensor0.bin", whole)
    for rank, shard in enumerate(shards):
        write_bin(mine / "tensors" / f"{rank}_{rank + 5}" / "0" / "0_MatMul" / "after" / "outtensor0.bin", shard)
    map_file = tmp_path / "map.json"
    map_file.write_text(json.dumps([{"golden": "0_LinearOperation", "my": "0_MatMul", "reduce": reduce}]))
    compare(golden, mine, tmp_path / "out", "--map", map_file, "-cl", "api")
    (row,) = read_csv(the_report(tmp_path / "out"))
    assert (row["matched_by"], row["golden_shape"], row["my_shape"]) == (
        "explicit",
        str(list(whole.shape)),
        str(list(whole.shape)),
    )
    assert float(row["max_absolute_error"]) < 1e-6
    assert "ranks" in row["note"]


# ---- rotary and fused tensors ----


def rope_sides(sides, length, positions=9, half=4):
    """In-layer rotary modules with outputs cos and sin of all positions; ATB gets the row of the last one, doubled."""
    for i in range(LAYERS):
        angles = noise((1, 1, positions, half), 40 + i)
        sides.module("self_attn.rotary_emb", "Rotary", i, output_0=np.cos(angles), output_1=np.sin(angles))
        row = angles[:, 0, length - 1, :]
        doubled = np.concatenate([row, row], axis=1)
        inputs = [noise((1, 8), 1), noise((1, 8), 2), np.cos(doubled), np.sin(doubled), np.array([length], np.int32)]
        sides.operation(
            "0_Attention/2_RopeOperation", i, before=inputs, after=[noise((1, 8), 3 + i), noise((1, 8), 90 + i)]
        )
    return sides.finish()


@pytest.mark.parametrize("name", ["assay", "msit"])
def test_rope_inputs_meet_one_position_of_the_rotary_outputs(tmp_path, sides, name):
    rope_sides(sides, length=5)
    options = ("-cl", "api") if name == "assay" else ("-cl", "api", "--compat", "msit")
    compare(sides.golden, sides.mine, tmp_path / "out", *options, name=name)
    rows = [row for row in read_csv(the_report(tmp_path / "out")) if "rotary" in row["golden_data_path"]]
    assert names(rows, 2) == [
        ("self_attn.rotary_emb/output_0.pth", "0_Attention/2_RopeOperation/before/intensor2.bin"),
        ("self_attn.rotary_emb/output_1.pth", "0_Attention/2_RopeOperation/before/intensor3.bin"),
    ]
    assert all(float(row["max_absolute_error"]) == 0 for row in rows)
    # The original took [:, :, length - 1, :] of [1, 1, 9, 4] and squeezed the batch away.
    assert {(row["golden_shape"], row["my_shape"]) for row in rows} == {("[1, 4]", "[1, 4]")}


def test_rope_at_the_last_position_is_no_longer_out_of_bounds(tmp_path, sides):
    rope_sides(sides, length=9)
    compare(sides.golden, sides.mine, tmp_path / "out", "-cl", "api")
    rows = [row for row in read_csv(the_report(tmp_path / "out")) if "rotary" in row["golden_data_path"]]
    assert len(rows) == 2 * LAYERS and all(float(row["max_absolute_error"]) == 0 for row in rows)


@pytest.mark.parametrize("name", ["assay", "msit"])
def test_fused_qkv_outputs_meet_their_projections(tmp_path, sides, name):
    wanted = {}
    for i in range(LAYERS):
        q, k, v = (noise((1, 3, 8), 1000 + 10 * i + j) for j in range(3))
        for part, array in (("q", q), ("k", k), ("v", v)):
            sides.module(f"self_attn.{part}_proj", "Linear", i, output=array)
        outputs = [array[0] * np.float32(1.0009765625) for array in (q, k, v)]
        sides.operation("0_Attention/0_QKVLinearSplitPack", i, after=outputs)
        sides.operation("0_Attention/1_OutOperation", i, after=[noise((3, 8), 5 + i)])
    sides.finish()
    for j, part in enumerate("qkv"):
        wanted[f"self_attn.{part}_proj/output.pth"] = f"0_Attention/0_QKVLinearSplitPack/after/outtensor{j}.bin"
    compare(sides.golden, sides.mine, tmp_path / "out", "-cl", "api", name=name)
    rows = [row for row in read_csv(the_report(tmp_path / "out")) if "_proj" in row["golden_data_path"]]
    assert dict(names(rows, 7)) == wanted
    assert len(rows) == 3 * LAYERS
    assert all(float(row["relative_euclidean_distance"]) == pytest.approx(2**-10, rel=1e-3) for row in rows)


# ---- statistics, tiled memory, exchanged sides ----


def statistics_of(array):
    d = array.astype(np.float64)
    return [float(value) for value in (d.max(), d.min(), d.mean(), np.linalg.norm(d))]


def statistics_record(array):
    dims = ",".join(map(str, array.shape))
    named = zip(("max", "min", "mean", "l2norm"), statistics_of(array))
    values = "".join(f"{name}={value!r}\n" for name, value in named)
    return f"$Version=1.0\n$Object.Count=0\nformat=2\ndtype=0\ndims={dims}\n{values}$End=1\n".encode()


@pytest.mark.parametrize("golden_kind", ["torch", "atb"])
@pytest.mark.parametrize("mine_kind", ["torch", "atb"])
def test_statistics_of_all_four_combinations(tmp_path, golden_kind, mine_kind):
    first = noise((LAYERS, 3, 8), 1)
    second = first * 1.5
    made = []
    for side, kind, arrays in (("g", golden_kind, first), ("m", mine_kind, second)):
        sides = Sides(tmp_path / side)
        for i in range(LAYERS):
            sides.module("norm", "RMSNorm", i, output=arrays[i])
            sides.operation("0_RmsNormOperation", i, after=[arrays[i]])
        sides.finish()
        if kind == "torch":
            for i in range(LAYERS):
                module = sides.golden / "0" / f"root.model.layers.{i}.norm"
                (module / "output.pth").unlink()
                header = "NodeName,NodeType,InputOutput,Index,DataType,Shape,Max,Min,Mean,L2Norm\r\n"
                values = ",".join(map(repr, statistics_of(arrays[i])))
                row = f'{module.name},RMSNorm,Output,0,torch.float32,"(3, 8)",{values}\r\n'
                (module / "statistics.csv").write_text(header + row)
            made.append(sides.golden)
        else:
            for i in range(LAYERS):
                path = sides.mine / "tensors/0_78/0" / f"{i}_Prefill_layer/0_RmsNormOperation/after/outtensor0.bin"
                path.write_bytes(statistics_record(arrays[i]))
            made.append(sides.mine)
    compare(*made, tmp_path / "out", "-st")
    rows = read_csv(the_report(tmp_path / "out", "statstics_cmp_report_*.csv"))
    assert len(rows) == LAYERS
    for row, g in zip(rows, first.astype(np.float64)):
        assert float(row["max_stat_absolute_error"]) == pytest.approx(g.max() / 2, rel=1e-6)
        assert float(row["l2norm_stat_relative_error"]) == pytest.approx(0.5, rel=1e-6)
    # The paths are those of the files that were read.
    for column, kind in (("golden_data_path", golden_kind), ("my_data_path", mine_kind)):
        name = {"torch": "statistics.csv", "atb": "outtensor0.bin"}[kind]
        paths = [Path(row[column]) for row in rows]
        assert all(path.is_file() and path.name == name for path in paths) and len(set(paths)) == LAYERS, paths


def test_tiled_memory_is_compared_in_plain_order(tmp_path, sides):
    for i in range(LAYERS):
        plain = noise((1, 20, 40), 70 + i)
        sides.module("norm", "RMSNorm", i, output=plain)
        padded = np.zeros((32, 48), np.float16)
        padded[:20, :40] = plain[0]
        # nd[n, c] = nz[c // 16, n // 16, n % 16, c % 16]
        tiles = padded.reshape(2, 16, 3, 16).transpose(2, 0, 1, 3)
        sides.operation("0_RmsNormOperation", i, after=[np.ascontiguousarray(tiles)])
        path = sides.mine / "tensors/0_78/0" / f"{i}_Prefill_layer/0_RmsNormOperation/after/outtensor0.bin"
        path.write_bytes(
            path.read_bytes().replace(b"format=2\n", b"format=29\n").replace(b"dims=3,2,16,16", b"dims=20,40")
        )
    sides.finish()
    compare(sides.golden, sides.mine, tmp_path / "out", "-cl", "api")
    rows = read_csv(the_report(tmp_path / "out"))
    assert len(rows) == LAYERS
    for row in rows:
        assert row["my_shape"] == "[20, 40]"
        assert float(row["relative_euclidean_distance"]) < 2**-11


def test_values_tell_which_of_two_results_is_the_layer_s(tmp_path, sides):
    for i in range(LAYERS):
        x = noise((1, 3, 8), i)
        sides.module("norm", "RMSNorm", i, output=noise((1, 3, 8), 50 + i))
        torch.save(torch.from_numpy(x), _folder(sides.golden / "0" / f"root.model.layers.{i}") / "output.pth")
        sides.operation("0_RmsNormOperation", i, after=[noise((3, 8), 50 + i)])
        after = sides.mine / "tensors/0_78/0" / f"{i}_Prefill_layer" / "after"
        write_bin(after / "outtensor0.bin", noise((3, 8), 500 + i))
        write_bin(after / "outtensor1.bin", x[0])
    sides.finish()
    compare(sides.golden, sides.mine, tmp_path / "out", "-cl", "api")
    rows = [row for row in read_csv(the_report(tmp_path / "out")) if row["my_op_type"] == "Prefill_layer"]
    assert [row["my_data_path"].rsplit("/", 1)[1] for row in rows] == ["outtensor1.bin"] * LAYERS
    assert all(float(row["max_absolute_error"]) == 0 for row in rows)


def _folder(path):
    path.mkdir(parents=True, exist_ok=True)
    return path


def test_atb_may_be_golden(tmp_path, sides):
    for i in range(LAYERS):
        x = noise((1, 3, 8), i)
        sides.module("norm", "RMSNorm", i, output=x)
        sides.operation("0_RmsNormOperation", i, after=[x[0] + np.float32(0.5)])
    sides.finish()
    compare(sides.mine, sides.golden, tmp_path / "out", "-cl", "api")
    rows = read_csv(the_report(tmp_path / "out"))
    assert len(rows) == LAYERS
    assert all(row["golden_op_type"] == "RmsNormOperation" and row["my_op_type"] == "RMSNorm" for row in rows)


# ---- reports ----

AIT_COLUMNS = (
    "token_id,data_id,golden_data_path,golden_dtype,golden_shape,golden_max_value,golden_min_value,golden_mean_value,"
    "my_data_path,my_dtype,my_shape,my_max_value,my_min_value,my_mean_value,cosine_similarity,max_relative_error,"
    "mean_relative_error,relative_euclidean_distance,cmp_fail_reason"
)


@pytest.mark.parametrize(
    "golden, mine",
    [
        ([1, 2, 0, -4], [1.001, 1.998, 0.5, -4.01]),
        ([0, 0], [0, 0]),
        ([0, 0], [1, 2]),
        ([1, 2], [0, 0]),
    ],
)
def test_the_report_of_ait_02(tmp_path, golden, mine):
    g, m = np.array(golden, np.float32), np.array(mine, np.float32)
    for side, array in (("g", g), ("m", m)):
        (tmp_path / side).mkdir()
        np.save(tmp_path / side / "t.npy", array)
    compare(tmp_path / "g", tmp_path / "m", tmp_path / "out", "--compat", "ait-0.2")
    (path,) = (tmp_path / "out").glob("*/cmp_report.csv")
    assert path.parent.name.isdigit()
    assert path.read_text().splitlines()[0] == AIT_COLUMNS
    (row,) = read_csv(path)
    norm_g, norm_m = np.linalg.norm(g), np.linalg.norm(m)
    if norm_g == 0 and norm_m == 0:
        assert row["cosine_similarity"] == "1.0"
    elif norm_g == 0 or norm_m == 0:
        side = "my_data" if norm_m == 0 else "golden_data"
        assert row["cosine_similarity"] == "NaN"
        assert row["cmp_fail_reason"] == f"Cannot compare by Cosine Similarity. All the values in {side} are zeros."
    else:
        assert row["cosine_similarity"] == f"{(m / norm_m) @ (g / norm_g):.6f}"
    relative = np.where(np.abs(g) > 2**-52, np.abs(m / np.where(g == 0, 1, g) - 1), 0)
    assert float(row["max_relative_error"]) == pytest.approx(relative.max(), rel=1e-6)
    assert float(row["mean_relative_error"]) == pytest.approx(relative.mean(), rel=1e-6)
    distance = 0 if norm_g == 0 else ((m - g) ** 2).sum() / (g**2).sum()
    assert float(row["relative_euclidean_distance"]) == pytest.approx(distance, rel=1e-6)


def test_the_summary_sheet_counts_and_ranks(tmp_path, sides):
    for i in range(LAYERS):
        x = noise((1, 3, 8), i)
        sides.module("norm", "RMSNorm", i, output=x)
        sides.operation("0_RmsNormOperation", i, after=[x[0] * np.float32(1 + (0.25 if i == 4 else 0.001))])
    sides.finish()
    compare(sides.golden, sides.mine, tmp_path / "out", "--rel-l2", "0.01", status=1)
    book = openpyxl.load_workbook(the_report(tmp_path / "out", "*.xlsx"))
    assert book.sheetnames == ["layer", "module", "api", "summary"]
    rows = [[cell.value for cell in line] for line in book["summary"]]
    header = rows[1]  # below the sentence
    table = [dict(zip(header, line)) for line in rows[2:]]
    worst = [
        line for line in table if line["section"] == "worst by metric" and line["name"] == "relative_euclidean_distance"
    ]
    assert worst[0]["worst_node"].startswith("4_Prefill_layer/0_RmsNormOperation")
    assert worst[0]["value"] == pytest.approx(0.25, rel=1e-5)
    (by_type,) = [line for line in table if line["section"] == "operator type"]
    assert (by_type["name"], by_type["pairs"], by_type["failed"]) == ("RmsNormOperation", LAYERS, 1)
    layers = [line for line in table if line["section"] == "layer"]
    assert [line["name"] for line in layers] == [f"{i}_Prefill_layer" for i in range(LAYERS)]
    assert [line["failed"] for line in layers] == [int(i == 4) for i in range(LAYERS)]
    (coverage,) = [line for line in table if line["section"] == "coverage percent" and line["name"] == "api"]
    assert coverage["value"] == 100
