# SPDX-License-Identifier: Apache-2.0
"""A port against its golden model, found without a mapping file: examples/atb_host in float16 against Hugging Face's
Llama in float32, over the same weights, in all variants of the host.

Each pair of a report is held against what the two tensors are (model_pairs.py), which is known from their places alone.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from assay_command import read_csv, run, the_report

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("assay._capture")

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench import record_lines
from bench.sealing import reseal
from model_pairs import (
    HostModel,
    capture_native,
    capture_tree,
    dump_host,
    generate,
    golden_meaning,
    load_model,
    save_weights,
)

# Rounding of float16 (2^-11 each) through up to twelve layers; measured: at most 2.9e-3.
FLOAT16_REL_L2 = 5e-3
# Int8 products of both weights and activations; measured: at most 4.5e-2.
INT8_REL_L2 = 8e-2
TOKENS = 4  # a prompt and three steps


@dataclass
class Variant:
    options: list[str]  # of the host: how it computes
    model: dict
    sizes: list[str] = field(default_factory=list)  # of the host: what it computes
    rel_l2: float = FLOAT16_REL_L2
    warmup: str = "none"


VARIANTS = {
    "plain": Variant([], {}),
    "three-layers": Variant([], {"layers": 3}, ["--layers", "3"]),
    "twelve-layers": Variant([], {"layers": 12}, ["--layers", "12"]),
    "packed": Variant(["--packed"], {"packed": True}),
    "without-bias": Variant([], {"bias": False}, ["--no-bias"]),
    "permuted": Variant(["--permuted"], {}),
    "two-ranks": Variant(["--ranks", "2"], {"ranks": 2}),
    "two-ranks-packed": Variant(["--ranks", "2", "--packed"], {"ranks": 2, "packed": True}),
    "quantised": Variant(["--quant"], {"quantised": True}, rel_l2=INT8_REL_L2),
    "quantised-packed": Variant(["--quant", "--packed"], {"quantised": True, "packed": True}, rel_l2=INT8_REL_L2),
    "warm-up": Variant(["--warmup", "all"], {}, warmup="all"),
    "served": Variant(
        ["--packed", "--warmup", "all"], {"packed": True, "layers": 12}, ["--layers", "12"], warmup="all"
    ),
    "warm-up-of-the-prompt": Variant(["--warmup", "prompt"], {}, warmup="prompt"),
}


class Sides:
    """Makes each run once, however many tests compare it."""

    def __init__(self, folder: Path):
        self.folder = folder

    def weights(self, variant: Variant):
        """Folder, prompt and generated tokens; equal for equal sizes, whatever the host makes of the weights."""
        path = self.folder / ("weights" + "".join(variant.sizes))
        if not path.exists():
            prompt, tokens = save_weights(path, *variant.sizes)
            (path / "tokens.json").write_text(json.dumps([prompt, tokens]))
        return path, *json.loads((path / "tokens.json").read_text())

    def golden(self, variant: Variant, kind: str) -> Path:
        weights, prompt, _ = self.weights(variant)
        path = self.folder / f"{kind}-{weights.name}"
        if not path.exists():
            model = load_model(weights)
            return {"tree": capture_tree, "native": capture_native}[kind](model, prompt, TOKENS, path)
        return path if kind == "native" else next(path.glob("*/torch_tensors/*"))

    def mine(self, name: str) -> Path:
        path = self.folder / f"host-{name}"
        variant = VARIANTS[name]
        return next(path.glob("msit_dump_*")) if path.exists() else dump_host(path, *variant.options, *variant.sizes)


@pytest.fixture(scope="session")
def sides(tmp_path_factory):
    return Sides(tmp_path_factory.mktemp("sides"))


# ---- reading a report ----


def golden_place(path: str):
    """(token, module, role, slot) of the path column of a torch side, of either layout."""
    if match := re.search(r"/(\d+)/(root[^/]*)/(input|output)_?([\d_]*)\.pth$", path):
        return int(match[1]), match[2].removeprefix("root").removeprefix("."), match[3], match[4].replace("_", ".")
    match = re.search(r"step-(\d+)(?:-\d+)?\.safetensors:(.*?)\.?(input|output)(?:\.(.*))?$", path)
    assert match, path
    return int(match[1]), match[2], match[3], match[4] or ""


def mine_place(path: str):
    """(run, node path, role, index) of the path column of an ATB dump."""
    match = re.search(r"/tensors/\d+_\d+/(\d+)/(.*)/(?:before|after)/(in|out)tensor(\d+)\.bin", path)
    assert match, path
    return int(match[1]), match[2], match[3] + "put", int(match[4])


@dataclass
class Pair:
    row: dict = field(repr=False)
    token: int
    golden: str | None  # what the tensor is
    mine: str | None
    module: str  # of golden
    role: str  # of golden
    right_token: bool  # of mine

    @property
    def right(self):
        return self.right_token and self.golden is not None and self.golden == self.mine

    def __str__(self):
        place = "/".join(map(str, mine_place(self.row["my_data_path"])))
        said = f"[{self.golden} = {self.mine}] {self.row['matched_by']}"
        return f"token {self.token} {self.module} {self.role} = {place} {said}"


def read_pairs(rows, variant: Variant) -> list[Pair]:
    model = HostModel(**variant.model)
    pairs = []
    for row in rows:
        token, module, role, slot = golden_place(row["golden_data_path"])
        run_number, path, my_role, index = mine_place(row["my_data_path"])
        golden = golden_meaning(module, role, slot, model.layers)
        if golden and token > 0:
            golden = golden.removeprefix("last ")  # a step has one row
        mine = model.meaning(path, my_role, index)
        decoding = int(path.split("_")[0]) >= model.operations
        # The prompt is the first run of its operations, a step too; a warm-up comes before.
        first = (variant.warmup == "all") if decoding else (variant.warmup != "none")
        right_token = token == (run_number - first + 1 if decoding else run_number - first)
        pairs.append(Pair(row, token, golden, mine, module, role, right_token))
    return pairs


def compare(golden, mine, out, *options, status=0):
    """Returns (rows of the report, what the terminal says, unmatched rows)."""
    done = run("compare", golden, mine, *options, "-o", out, "--jsonl", "--unmatched")
    assert done.returncode == status, done.stderr + done.stdout
    text = the_report(out, "msit_cmp_report_*.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    return rows, done.stdout, read_csv(the_report(out, "msit_cmp_unmatched_*.csv"))


def check_numbers(pairs: list[Pair], variant: Variant):
    for pair in pairs:
        assert not pair.row["cmp_fail_reason"], pair
        assert pair.row["relative_euclidean_distance"] <= variant.rel_l2, (
            f"{pair}: {pair.row['relative_euclidean_distance']}"
        )


def modules_of(layers: int):
    """Outputs that the original's tables name, in this model."""
    inside = ["", "self_attn", "mlp", "input_layernorm", "post_attention_layernorm"]
    inside += [f"self_attn.{letter}_proj" for letter in "qkvo"]
    inside += ["mlp.gate_proj", "mlp.up_proj", "mlp.act_fn", "mlp.down_proj"]
    names = {f"model.layers.{i}.{part}".rstrip(".") for i in range(layers) for part in inside}
    return names | {"model.embed_tokens", "model.norm", "lm_head"}


# ---- the oracle itself ----


@pytest.mark.parametrize("name", ["plain", "packed"])
def test_tensors_of_equal_meaning_have_equal_values(sides, name):
    """Holds model_pairs.py against the numbers: else a wrong table could call wrong pairs right."""
    import assay

    variant = VARIANTS[name]
    model = HostModel(**variant.model)
    golden = {}
    for record in assay.open(sides.golden(variant, "native")).records:
        meaning = golden_meaning(record.node, record.role, record.slot, model.layers)
        if meaning and record.step == 0:
            golden.setdefault(meaning, record.numpy().astype(np.float64).ravel())
    checked = 0
    for path in sorted(sides.mine(name).glob("tensors/*/0/**/*.bin")):
        _, place, role, index = mine_place(str(path))
        decoding = int(place.split("_")[0]) >= model.operations
        meaning = model.meaning(place, role, index)
        if decoding or meaning not in golden:
            continue
        theirs = np.asarray(assay.read_tensor(path)).astype(np.float64).ravel()
        assert theirs.size == golden[meaning].size, path
        distance = np.linalg.norm(theirs - golden[meaning]) / np.linalg.norm(golden[meaning])
        assert distance <= FLOAT16_REL_L2, (path, meaning, distance)
        checked += 1
    assert checked > 80


def test_the_host_and_the_torch_model_generate_the_same_tokens(sides):
    weights, prompt, tokens = sides.weights(VARIANTS["plain"])
    assert generate(load_model(weights), prompt, TOKENS) == tokens


# ---- pairs without a mapping file ----


@pytest.mark.parametrize("kind", ["tree", "native"])
@pytest.mark.parametrize("name", VARIANTS)
def test_everything_the_tables_name_is_paired_and_nothing_wrongly(tmp_path, sides, name, kind):
    variant = VARIANTS[name]
    rows, _, _ = compare(sides.golden(variant, kind), sides.mine(name), tmp_path, "-cl", "api")
    pairs = read_pairs(rows, variant)
    assert [str(pair) for pair in pairs if not pair.right] == []
    check_numbers(pairs, variant)
    # Then every module that has a counterpart has found it, in each token
    model = HostModel(**variant.model)
    for token in range(TOKENS):
        found = {pair.module for pair in pairs if pair.token == token and pair.role == "output"}
        expected = modules_of(model.layers)
        if token == 0 and not model.packed:
            expected.discard("model.norm")  # of a prompt the host normalises only the last row
        if model.packed and model.ranks > 1:
            # No table names the second half of a split, and values cannot tell from a shard of it.
            expected -= {f"model.layers.{i}.mlp.up_proj" for i in range(model.layers)}
        assert expected - found == set(), f"token {token}"


@pytest.mark.parametrize("kind", ["tree", "native"])
@pytest.mark.parametrize("name", ["plain", "packed", "two-ranks", "quantised", "warm-up", "three-layers"])
@pytest.mark.parametrize("level", ["layer", "module"])
def test_levels_have_the_original_s_pairs(tmp_path, sides, name, kind, level):
    variant = VARIANTS[name]
    model = HostModel(**variant.model)
    rows, _, _ = compare(sides.golden(variant, kind), sides.mine(name), tmp_path, "-cl", level)
    pairs = read_pairs(rows, variant)
    assert [str(pair) for pair in pairs if not pair.right] == []
    check_numbers(pairs, variant)
    for token in range(TOKENS):
        found = [pair.module for pair in pairs if pair.token == token]
        if level == "module":
            expected = [f"model.layers.{i}.{part}" for i in range(model.layers) for part in ("self_attn", "mlp")]
        else:
            expected = ["model.embed_tokens", *(f"model.layers.{i}" for i in range(model.layers))]
            # Only a norm at the top of the model has a name that the tables know.
            expected += ["model.norm", "lm_head"] if model.packed else ["lm_head"]
        assert found == expected, f"token {token}"


def test_without_a_level_there_are_three_sheets(tmp_path, sides):
    openpyxl = pytest.importorskip("openpyxl")
    variant = VARIANTS["packed"]
    compare(sides.golden(variant, "tree"), sides.mine("packed"), tmp_path)
    book = openpyxl.load_workbook(the_report(tmp_path, "*.xlsx"))
    assert book.sheetnames[:3] == ["layer", "module", "api"]
    assert book["layer"].max_row == 1 + TOKENS * 5 and book["module"].max_row == 1 + TOKENS * 4


def test_the_old_command_compares_the_same_paths(tmp_path, sides):
    variant = VARIANTS["packed"]
    golden, mine = sides.golden(variant, "tree"), sides.mine("packed")
    done = run("llm", "compare", "-gp", golden, "-mp", mine, "-cl", "layer", "-o", tmp_path, "-l", "info", name="msit")
    assert done.returncode == 0, done.stderr
    assert "Saved comparing results: " in done.stderr
    pairs = read_pairs(read_csv(the_report(tmp_path)), variant)
    # Two layers are no repeated block by the original's rule; what it pairs by name is there
    assert {"model.embed_tokens", "model.norm", "lm_head"} <= {pair.module for pair in pairs}
    assert all(pair.right for pair in pairs)


def test_compat_msit_gives_the_rows_of_the_tables_and_no_other(tmp_path, sides):
    """The original's rules on a model of the size and shape it was written for: twelve packed layers, warmed up."""
    variant = VARIANTS["served"]
    done = run(
        "compare", sides.golden(variant, "tree"), sides.mine("served"), "-cl", "api", "--compat", "msit", "-o", tmp_path
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pairs = read_pairs(read_csv(the_report(tmp_path)), variant)
    assert [str(pair) for pair in pairs if not pair.right] == []
    # By token, module, side and ATB node
    found = sorted(
        (pair.token, f"{pair.module} {pair.role}", re.sub(r"^\d+_", "", mine_place(pair.row["my_data_path"])[1]))
        for pair in pairs
    )
    inside = [
        ("", "output", ""),  # layer_match
        ("input_layernorm", "output", "0_Attention/0_QKVLinearSplitPack/0_NormLinear/0_RmsNormOperation"),  # map_count
        ("post_attention_layernorm", "output", "2_Mlp/0_RmsNormOperation"),
        *[(f"self_attn.{x}_proj", "output", "0_Attention/0_QKVLinearSplitPack") for x in "qkv"],  # qwen
        *[(f"self_attn.{x}_proj", "output", "0_Attention/0_QKVLinearSplitPack/1_SplitOperation") for x in "qkv"],
        ("self_attn.o_proj", "output", "0_Attention/4_LinearOperation"),  # enhanced_name, as the rest
        ("mlp.gate_proj", "output", "2_Mlp/2_SplitOperation"),
        ("mlp.act_fn", "output", "2_Mlp/3_ActivationOperation"),
        ("mlp.down_proj", "input", "2_Mlp/4_ElewiseOperation"),
        ("mlp.down_proj", "output", "2_Mlp/5_LinearOperation"),
    ]
    expected = []
    for token in range(TOKENS):
        layer_type = "Decoder_layer" if token else "Prefill_layer"
        expected += [
            (token, f"model.layers.{i}.{module}".rstrip(".") + f" {role}", f"{layer_type}/{node}".rstrip("/"))
            for i in range(12)
            for module, role, node in inside
        ]
        expected += [(token, "model.embed_tokens output", "WordEmbedding")]
        expected += [(token, "model.norm output", "RmsNormOperation"), (token, "lm_head output", "LmHead")]
    assert found == sorted(expected)


def test_level_logits_compares_as_level_api_does(tmp_path, sides):
    variant = VARIANTS["plain"]
    golden, mine = sides.golden(variant, "tree"), sides.mine("plain")
    rows, _, _ = compare(golden, mine, tmp_path / "logits", "-cl", "logits")
    expected, _, _ = compare(golden, mine, tmp_path / "api", "-cl", "api")
    assert [row["my_data_path"] for row in rows] == [row["my_data_path"] for row in expected]
    logits = [pair for pair in read_pairs(rows, variant) if pair.module == "lm_head" and pair.role == "output"]
    assert sorted(pair.token for pair in logits) == list(range(TOKENS))


def test_one_token_folder_and_the_prompt_alone(tmp_path, sides):
    variant = VARIANTS["plain"]
    rows, _, _ = compare(sides.golden(variant, "tree") / "0", sides.mine("plain"), tmp_path, "-cl", "layer")
    pairs = read_pairs(rows, variant)
    assert {pair.token for pair in pairs} == {0} and all(pair.right for pair in pairs)
    assert len(pairs) == 4


def test_a_token_map_overrules_what_was_found(tmp_path, sides):
    variant = VARIANTS["warm-up"]
    rows, _, _ = compare(
        sides.golden(variant, "tree"), sides.mine("warm-up"), tmp_path, "-cl", "layer", "--token-map", "2:2"
    )
    assert {pair.token for pair in read_pairs(rows, variant)} == {2}


def test_ranks_that_hold_parts_are_put_together(tmp_path, sides):
    variant = VARIANTS["two-ranks"]
    rows, _, _ = compare(sides.golden(variant, "tree"), sides.mine("two-ranks"), tmp_path, "-cl", "api")
    pairs = {(pair.token, pair.module): pair.row for pair in read_pairs(rows, variant) if pair.role == "output"}
    # Columns of q stand beside each other; o_proj is a sum of both; its reduced result is the same on both
    for module, width in (("self_attn.q_proj", 64), ("self_attn.o_proj", 64), ("mlp.gate_proj", 128)):
        row = pairs[0, f"model.layers.0.{module}"]
        assert row["my_shape"] in (f"[8, {width}]", f"[1, 8, {width}]"), row
        assert row["relative_euclidean_distance"] < FLOAT16_REL_L2


def test_levels_do_not_contradict_each_other_about_ranks(tmp_path, sides):
    both = sides.golden(VARIANTS["two-ranks"], "tree"), sides.mine("two-ranks")
    done = run("compare", *both, "-o", tmp_path)
    notes = [line for line in done.stdout.splitlines() if "against" in line and "ranks" in line]
    # One sentence for all of them, which does not say both that there are shards and that there are none.
    (note,) = notes
    said = re.search(r"1 against 2 ranks: shards are put together(?: on level (.+?);)?", note)
    assert said, note
    assert "no tensor is sharded" not in done.stdout and "rank 1 is in mine only" not in done.stdout
    for level in ("layer", "module", "api"):
        alone = run("compare", *both, "-cl", level, "-o", tmp_path / level).stdout
        assert ("shards are put together" in alone) == (said[1] is None or level in said[1].split(" and ")), alone


def test_columns_in_another_order_are_compared_in_goldens(tmp_path, sides):
    variant = VARIANTS["permuted"]
    rows, _, _ = compare(sides.golden(variant, "tree"), sides.mine("permuted"), tmp_path, "-cl", "api")
    inner = {"q", "k", "v", "attended", "gate", "up", "activated", "gated"}
    for pair in read_pairs(rows, variant):
        said = "order" in (pair.row["note"] or "")
        assert said == (pair.mine.split(".")[-1] in inner), (pair, pair.row["note"])


def test_a_planted_fault_is_the_first_row_beyond_the_limit(tmp_path, sides):
    variant = VARIANTS["plain"]
    mine = dump_host(tmp_path / "host", "--fault", "swapped_heads", "--fault-layer", "1")
    _, text, _ = compare(
        sides.golden(variant, "tree"), mine, tmp_path / "out", "-cl", "api", "--rel-l2", "0.01", status=1
    )
    first = text[text.index("first beyond its limit") :].splitlines()[1]
    # The attention kernel has no module of its own: the first that shows it is what follows it.
    assert "3_Prefill_layer/1_Attention" in first and "0" in first.split()[1]


def test_the_report_is_the_same_for_any_number_of_threads(tmp_path, sides):
    variant = VARIANTS["two-ranks"]
    golden, mine = sides.golden(variant, "native"), sides.mine("two-ranks")
    texts = []
    for jobs in (1, 3):
        compare(golden, mine, tmp_path / str(jobs), "-cl", "api", "--jobs", jobs)
        texts.append(the_report(tmp_path / str(jobs)).read_bytes())
    assert texts[0] == texts[1]


# ---- names hidden ----


class Renamer:
    """One random word for each word, so that a tree stays a tree and no name says anything."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.known = {}

    def word(self, text):
        if text not in self.known:
            self.known[text] = "n" + "".join(self.random.choices("abcdefghijkmnpqrstuvwxyz", k=9))
        return self.known[text]

    def path(self, name):
        # Each word depends on its place, too: equal words in different blocks become different ones.
        parts = name.split(".")
        return ".".join(self.word(".".join(parts[: i + 1])) for i in range(len(parts))) if name else name


def hide_native(source: Path, target: Path, seed: int, types: bool):
    """A copy of a native run under other names; returns {hidden name: name}."""
    shutil.copytree(source, target)
    renamer = Renamer(seed)
    hidden = {}

    def name(text):
        hidden[renamer.path(text)] = text
        return renamer.path(text)

    def hide_node(node):
        node["name"] = name(node["name"])
        if types:
            node["type"] = renamer.word("type " + node["type"])
        for child in node["children"]:
            hide_node(child)

    (rank,) = target.glob("rank*")
    topology = json.loads((rank / "topology.json").read_text())
    for node in topology if isinstance(topology, list) else [topology]:
        hide_node(node)
    (rank / "topology.json").write_text(json.dumps(topology))
    lines = []
    for record in record_lines.read(rank / "records.jsonl"):
        record["node"] = name(record["node"])
        if types:
            record["type"] = renamer.word("type " + record["type"])
        lines.append(json.dumps(record))
    (rank / "records.jsonl").write_text("\n".join(lines) + "\n")
    reseal(target)
    return hidden


@pytest.mark.parametrize("types", [False, True], ids=["names", "names and types"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_hidden_names_between_two_torch_runs(tmp_path, sides, seed, types):
    """At least 95 % of the pairs, none wrong: mine in float16 under random names."""
    torch = pytest.importorskip("torch")
    variant = VARIANTS["three-layers"]
    weights, prompt, _ = sides.weights(variant)
    half = sides.folder / "half"
    if not half.exists():
        capture_native(load_model(weights, torch.float16), prompt, TOKENS, half)
    golden = sides.golden(variant, "native")
    names = hide_native(half, tmp_path / "hidden", seed, types)
    rows, _, _ = compare(golden, tmp_path / "hidden", tmp_path / "out", "-cl", "api")
    expected, _, _ = compare(golden, half, tmp_path / "expected", "-cl", "api")
    wrong = []
    for row in rows:
        token, module, role, slot = golden_place(row["golden_data_path"])
        my_token, my_module, my_role, my_slot = golden_place(row["my_data_path"])
        true_module = names[my_module]
        same = (token, module, role, slot) == (my_token, true_module, my_role, my_slot)
        meaning = golden_meaning(module, role, slot, 3)
        alike = meaning is not None and meaning == golden_meaning(true_module, my_role, my_slot, 3)
        if not same and not (alike and token == my_token):
            wrong.append((row["golden_data_path"], true_module, my_role, my_slot, row["matched_by"]))
    assert wrong == []
    assert len(rows) >= 0.95 * len(expected)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_hidden_names_against_the_host(tmp_path, sides, seed):
    """Golden under random names, with random types: what the tables paired is found by value."""
    variant = VARIANTS["plain"]
    golden = sides.golden(variant, "native")
    names = hide_native(golden, tmp_path / "hidden", seed, True)
    expected, _, _ = compare(golden, sides.mine("plain"), tmp_path / "expected", "-cl", "api")
    rows, _, _ = compare(tmp_path / "hidden", sides.mine("plain"), tmp_path / "out", "-cl", "api")
    for row in rows:
        place = row["golden_data_path"]
        hidden = golden_place(place)[1]
        row["golden_data_path"] = place.replace(f":{hidden}.", f":{names[hidden]}.", 1) if hidden else place
    pairs = read_pairs(rows, variant)
    assert [str(pair) for pair in pairs if not pair.right] == []
    assert len(rows) >= 0.95 * len(expected)
