# SPDX-License-Identifier: Apache-2.0
"""Many ranks at a glance: which differ from their peers, and what they have in common."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from assay_command import read_csv, run, the_report

import assay

RANKS, LAYERS = 16, 3


def write_ranks(folder: Path, ranks: list[dict[str, np.ndarray]]) -> Path:
    """A native run: of each rank the inputs and outputs of its nodes, in their order."""
    for rank, nodes in enumerate(ranks):
        place = folder / f"rank{rank}"
        place.mkdir(parents=True)
        payload, lines = bytearray(64), []
        for order, (name, tensor) in enumerate(nodes.items()):
            node, role = name.rsplit(" ", 1)
            line = {"n": order, "step": 0, "node": node, "type": "Linear", "order": order, "role": role, "slot": ""}
            line |= {"dtype": str(tensor.dtype), "shape": list(tensor.shape), "bytes": tensor.nbytes}
            lines.append(json.dumps({**line, "file": "step-000000.safetensors", "offset": len(payload)}))
            payload += tensor.tobytes()
        (place / "step-000000.safetensors").write_bytes(payload)
        (place / "records.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "manifest.json").write_text(json.dumps({"format": "assay-run", "version": 1, "complete": True}))
    return folder


def write_job(folder: Path, wrong: set[int]) -> Path:
    """A native run of RANKS ranks without groups in its manifest; layer 1 of `wrong` ranks is 30 % too large."""
    ranks = []
    for rank in range(RANKS):
        draw = np.random.default_rng(rank)
        nodes = {f"layers.{layer} output": draw.standard_normal((4, 16)).astype(np.float32) for layer in range(LAYERS)}
        if rank in wrong:
            nodes["layers.1 output"] *= np.float32(1.3)
        ranks.append(nodes)
    return write_ranks(folder, ranks)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """golden, and mine wrong in the ranks 4, 5, 6, 7 of 16: with tp=4 those of one place of dp."""
    folder = tmp_path_factory.mktemp("jobs")
    return write_job(folder / "golden", set()), write_job(folder / "mine", {4, 5, 6, 7})


def ranks_of(jobs, out, *options):
    done = run("compare", *jobs, "-cl", "api", "--json", "-o", out, *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["ranks"]


def test_told_groups_name_what_the_ranks_have_in_common(jobs, tmp_path):
    plain = ranks_of(jobs, tmp_path)
    assert plain["sentence"].startswith("ranks 4-7 differ from their 12 peers, from layers.1 output of step 0 on: 0.3 ")
    told = ranks_of(jobs, tmp_path, "--parallel", "tp=4,dp=4")
    assert told["sentence"].startswith("the 4 ranks of dp 1 differ from their 12 peers")
    assert [one["groups"] for one in told["beside_peers"]] == [{"dp": 1, "tp": rank} for rank in range(4)]
    other = ranks_of(jobs, tmp_path, "--parallel", "tp=2,pp=2,dp=4")  # neighbours of four are one replica there, too
    assert other["sentence"].startswith("the 4 ranks of dp 1 differ")


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ("tp=4,dp=2", "parallel tp=4,dp=2 is a job of 8 ranks, and {mine} has a rank 8"),
        ("tp=4,qp=4", "'qp' is no kind of group (tp, pp, dp, ep, cp)"),
        ("tp:4", "is not like 'tp=2,pp=2,dp=2'"),
    ],
)
def test_groups_that_are_none_of_the_job_are_refused(jobs, tmp_path, sizes, said):
    done = run("compare", *jobs, "-o", tmp_path, "--parallel", sizes)
    assert done.returncode == 2
    assert said.format(mine=jobs[1]) in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())


# ---- stages of a pipeline, replicas ----


def model(prompt: int) -> dict[str, np.ndarray]:
    """What a model of four layers is given and computes for a prompt."""
    draw = np.random.default_rng(prompt)
    nodes = {"model input": np.array([prompt, 2, 3])}
    for layer in range(4):
        for part in ("attn", "mlp"):
            nodes[f"model.layers.{layer}.{part} output"] = draw.standard_normal((4, 16)).astype(np.float32)
    return nodes


def stages_of(nodes: dict[str, np.ndarray], numbered_on: bool) -> list[dict[str, np.ndarray]]:
    """Two stages of two layers each."""
    stages: list[dict[str, np.ndarray]] = [{}, {}]
    for name, tensor in nodes.items():
        layer = int(name.split(" ")[0].split(".")[2]) if "layers" in name else 0
        own = name if numbered_on else name.replace(f"layers.{layer}", f"layers.{layer % 2}", 1)
        stages[layer // 2][own] = tensor
    return stages


@pytest.mark.parametrize("numbered_on", [True, False], ids=["numbered-on", "numbered-from-0"])
def test_stages_are_compared_as_one_model(tmp_path, numbered_on):
    nodes = model(1)
    golden = write_ranks(tmp_path / "golden", [nodes])
    wrong = {**nodes, "model.layers.3.attn output": nodes["model.layers.3.attn output"] * np.float32(1.5)}
    mine = write_ranks(tmp_path / "mine", stages_of(wrong, numbered_on))
    done = run("compare", golden, mine, "-cl", "api", "-o", tmp_path / "out", "--parallel", "pp=2")
    assert done.returncode == 0, done.stderr
    assert "golden has 1 stage, mine 2: the stages together are compared with the model" in done.stdout
    assert ("number their layers from 0" in done.stderr) == (not numbered_on)
    rows = read_csv(the_report(tmp_path / "out"))
    assert len(rows) == 9 and {row["matched_by"] for row in rows} == {"equal names"}
    # 0.5 times the tensor over the tensor
    assert {row["node"]: row["rank"] for row in rows if float(row["relative_euclidean_distance"] or 0) > 0.4} == {
        "model.layers.3.attn output": "1"
    }
    assert "both share" not in done.stdout


def test_replicas_with_other_requests_are_neither_compared_nor_accused(tmp_path):
    golden = write_ranks(tmp_path / "golden", [model(1)])
    mine = write_ranks(tmp_path / "mine", [model(1), model(2)])
    for options in ([], ["--parallel", "dp=2"]):
        done = run("compare", golden, mine, "-cl", "api", "-o", tmp_path / f"out{len(options)}", *options)
        assert done.returncode == 0 and "same: 9 of 9 pairs" in done.stdout, done.stdout
        assert "first bad" not in done.stdout and "both share" not in done.stdout, done.stdout
    said = " ".join(done.stdout.split())
    assert "golden has 1 replica, mine 2: those that were given golden's inputs are compared with it" in said
    assert "rank 1 (dp 1) has other inputs than golden: not compared" in said


def test_stages_of_several_ranks_are_put_together_first(tmp_path):
    nodes = model(1)
    halves = [
        {
            name: np.ascontiguousarray(np.split(tensor, 2, axis=-1)[half]) if tensor.ndim == 2 else tensor
            for name, tensor in stage.items()
        }
        for stage in stages_of(nodes, False)
        for half in (0, 1)
    ]
    golden = write_ranks(tmp_path / "golden", [nodes])
    mine = write_ranks(tmp_path / "mine", halves)
    done = run("compare", golden, mine, "-cl", "api", "-o", tmp_path / "out", "--parallel", "tp=2,pp=2")
    assert done.returncode == 0 and "same: 9 of 9 pairs equal in every value" in done.stdout, done.stdout + done.stderr
    assert "1 against 2 ranks: shards are put together\n" in done.stdout


# ---- experts of ranks ----

EXPERTS, PLACES = 8, 4


def mixture(wrong: int = -1) -> dict[str, np.ndarray]:
    """A model of two layers of experts, of which one may be 1.5 times too large in layer 1."""
    draw = np.random.default_rng(7)
    nodes = {"model input": np.array([1, 2, 3])}
    for layer in range(2):
        nodes[f"model.layers.{layer}.attn output"] = draw.standard_normal((4, 16)).astype(np.float32)
        for expert in range(EXPERTS):
            name = f"model.layers.{layer}.mlp.experts.{expert} output"
            nodes[name] = draw.standard_normal((2 + expert % 3, 16)).astype(np.float32)
        nodes[f"model.layers.{layer}.mlp output"] = draw.standard_normal((4, 16)).astype(np.float32)
    if wrong >= 0:
        nodes[f"model.layers.1.mlp.experts.{wrong} output"] *= np.float32(1.5)
    return nodes


def places_of(nodes: dict[str, np.ndarray], places: int, local: bool) -> list[dict[str, np.ndarray]]:
    """Ranks that each hold a part of the experts, in order, and all of the rest."""
    each = EXPERTS // places
    ranks: list[dict[str, np.ndarray]] = [{} for _ in range(places)]
    for name, tensor in nodes.items():
        before, found, after = name.partition("experts.")
        if not found:
            for rank in ranks:
                rank[name] = tensor
            continue
        number, role = after.split(" ")
        place = int(number) // each
        ranks[place][f"{before}experts.{int(number) % each if local else number} {role}"] = tensor
    return ranks


def tell_places(run_folder: Path, places: int) -> None:
    """Manifests of ranks that know their places."""
    for rank in range(places):
        host = {"rank": rank, "parallel": {"ep": {"rank": rank, "size": places}}}
        manifest = {"format": "assay-run", "version": 1, "complete": True, "host": host}
        (run_folder / f"rank{rank}" / "manifest.json").write_text(json.dumps(manifest))


def differing(folder: Path) -> dict[str, str]:
    rows = read_csv(the_report(folder))
    return {row["node"]: row["rank"] for row in rows if float(row["relative_euclidean_distance"] or 0) > 0}


@pytest.mark.parametrize("local", [True, False], ids=["numbered-from-0", "numbered-on"])
def test_experts_are_compared_by_their_number_in_the_model(tmp_path, local):
    golden = write_ranks(tmp_path / "golden", [mixture()])
    mine = write_ranks(tmp_path / "mine", places_of(mixture(wrong=5), PLACES, local))
    done = run("compare", golden, mine, "-cl", "api", "-o", tmp_path / "out", "--parallel", f"ep={PLACES}")
    assert done.returncode == 0, done.stderr
    said = "mine: experts are numbered from 0 in each of 4 places of ep: they are numbered on, 2 a place, so that "
    assert (said + "those of ep 1 begin with 2" in done.stderr) == local, done.stderr
    rows = {row["node"]: row for row in read_csv(the_report(tmp_path / "out"))}
    assert len(rows) == 1 + 2 * (EXPERTS + 2) and {row["matched_by"] for row in rows.values()} == {"equal names"}
    # expert 5 is the second one of the third place of two each
    assert differing(tmp_path / "out") == {"model.layers.1.mlp.experts.5 output": "2"}
    note = rows["model.layers.1.mlp.experts.5 output"]["note"]
    assert ("in mine model.layers.1.mlp.experts.1 of rank 2" in note) == local, note
    assert "in mine" not in rows["model.layers.1.mlp.experts.1 output"]["note"]  # of rank 0, where both are 1


def test_experts_of_two_jobs_with_other_numbers_of_places(tmp_path):
    golden = write_ranks(tmp_path / "golden", places_of(mixture(), 2, True))
    tell_places(golden, 2)
    mine = write_ranks(tmp_path / "mine", places_of(mixture(wrong=6), PLACES, True))
    tell_places(mine, PLACES)
    done = run("compare", golden, mine, "-cl", "api", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "golden: experts are numbered from 0 in each of 2 places of ep" in done.stderr
    assert differing(tmp_path / "out") == {"model.layers.1.mlp.experts.6 output": "3"}
    assert len(read_csv(the_report(tmp_path / "out"))) == 1 + 2 * (EXPERTS + 2)


def test_experts_of_equal_jobs_stay_as_they_are(tmp_path):
    golden = write_ranks(tmp_path / "golden", places_of(mixture(), PLACES, True))
    mine = write_ranks(tmp_path / "mine", places_of(mixture(wrong=6), PLACES, True))
    for folder in (golden, mine):
        tell_places(folder, PLACES)
    done = run("compare", golden, mine, "-cl", "api", "-o", tmp_path / "out")
    assert done.returncode == 0 and "numbered" not in done.stderr, done.stderr
    assert differing(tmp_path / "out") == {"model.layers.1.mlp.experts.0 output": "3"}


def test_an_expert_without_tokens_does_not_shift_the_others(tmp_path):
    nodes = {name: tensor for name, tensor in mixture().items() if not name.split(" ")[0].endswith("experts.7")}
    golden = write_ranks(tmp_path / "golden", [nodes])
    ranks = [
        {name: tensor for name, tensor in rank.items() if rank_number or "experts.3" not in name}
        for rank_number, rank in enumerate(places_of(nodes, 2, True))
    ]
    mine = write_ranks(tmp_path / "mine", ranks)
    done = run("compare", golden, mine, "-cl", "api", "-o", tmp_path / "out", "--parallel", "ep=2")
    assert done.returncode == 0 and "4 a place" in done.stderr, done.stderr
    assert differing(tmp_path / "out") == {}


def test_experts_of_unknown_places_are_not_accused(tmp_path):
    golden = write_ranks(tmp_path / "golden", [mixture()])
    mine = write_ranks(tmp_path / "mine", places_of(mixture(), PLACES, True))
    done = run("compare", golden, mine, "-cl", "api", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert (
        "mine: experts look numbered within a rank: each of 4 ranks has some below 2, the other run has 8; only those "
        "of rank 0 are compared, --parallel with ep=N tells which the others are"
    ) in done.stderr
    assert differing(tmp_path / "out") == {}
    assert "first bad" not in done.stdout, done.stdout
    golden_of_many = run("compare", mine, golden, "-cl", "api", "-o", tmp_path / "turned")
    assert "golden: experts look numbered within a rank" in golden_of_many.stderr
    assert differing(tmp_path / "turned") == {} and "first bad" not in golden_of_many.stdout


# ---- replicas ----


def test_replicas_that_have_goldens_inputs_are_compared_with_it(tmp_path):
    wrong = {**model(1), "model.layers.2.mlp output": model(1)["model.layers.2.mlp output"] * np.float32(1.5)}
    golden = write_ranks(tmp_path / "golden", [model(1)])
    mine = write_ranks(tmp_path / "mine", [model(1), model(2), wrong, model(1), model(3)])
    done = run("compare", golden, mine, "-cl", "api", "-o", tmp_path / "out", "--parallel", "dp=5")
    assert done.returncode == 0, done.stderr
    rows = read_csv(the_report(tmp_path / "out"))
    assert sorted(row["rank"] for row in rows) == ["0"] * 9 + ["2"] * 9 + ["3"] * 9
    assert differing(tmp_path / "out") == {"model.layers.2.mlp output": "2"}
    said = " ".join(done.stdout.split())
    assert "ranks 2-3 (dp 2-3) have golden's inputs: compared with it, too" in said
    assert "ranks 1, 4 (dp 1, 4) have other inputs than golden: not compared" in said
    # three ranks have peers: those that are compared
    assert "rank 2 differs from its 2 peers, from model.layers.2.mlp output of step 0 on" in said


def test_the_replica_with_goldens_inputs_need_not_be_the_first(tmp_path):
    golden = write_ranks(tmp_path / "golden", [model(1)])
    mine = write_ranks(tmp_path / "mine", [model(2), model(1)])
    done = run("compare", golden, mine, "-cl", "api", "-o", tmp_path / "out", "--parallel", "dp=2")
    assert done.returncode == 0 and "same: 9 of 9 pairs" in done.stdout, done.stdout
    assert {row["rank"] for row in read_csv(the_report(tmp_path / "out"))} == {"1"}
    assert "rank 0 (dp 0) has other inputs than golden: not compared" in " ".join(done.stdout.split())


def test_replicas_of_several_stages_and_shards(tmp_path):
    """Two replicas of two stages of two ranks that hold halves, the second with a fault in its last stage."""

    def job(nodes: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
        return [
            {
                name: np.ascontiguousarray(np.split(tensor, 2, axis=-1)[half]) if tensor.ndim == 2 else tensor
                for name, tensor in stage.items()
            }
            for stage in stages_of(nodes, False)
            for half in (0, 1)
        ]

    wrong = {**model(1), "model.layers.3.attn output": model(1)["model.layers.3.attn output"] * np.float32(1.5)}
    golden = write_ranks(tmp_path / "golden", [model(1)])
    mine = write_ranks(tmp_path / "mine", job(model(1)) + job(wrong))
    done = run("compare", golden, mine, "-cl", "api", "-o", tmp_path / "out", "--parallel", "tp=2,pp=2,dp=2")
    assert done.returncode == 0, done.stderr
    rows = read_csv(the_report(tmp_path / "out"))
    assert len(rows) == 18 and {row["matched_by"] for row in rows} == {"equal names"}
    assert differing(tmp_path / "out") == {"model.layers.3.attn output": "6"}  # and its other half on rank 7
    assert "ranks 4-7 (dp 1) have golden's inputs" in " ".join(done.stdout.split())


def test_replicas_without_captured_inputs_stay_out(tmp_path):
    nodes = {name: tensor for name, tensor in model(1).items() if name != "model input"}
    golden = write_ranks(tmp_path / "golden", [nodes])
    mine = write_ranks(tmp_path / "mine", [nodes, nodes])
    done = run("compare", golden, mine, "-cl", "api", "-o", tmp_path / "out", "--parallel", "dp=2")
    said = " ".join(done.stdout.split())
    assert "same: 8 of 8 pairs" in said
    assert "of rank 1 (dp 1) no inputs were captured that golden has, too: not compared" in said


# ---- trees of stages ----


def write_tree(folder: Path, layers: range) -> None:
    """The tree of a rank that holds these layers; their numbers are those of their names."""

    def module(name: str, kind: str, *children: dict) -> dict:
        return {"name": name, "type": kind, "children": list(children)}

    blocks = [
        module(
            f"model.layers.{layer}",
            "Block",
            module(
                f"model.layers.{layer}.self_attention",
                "SelfAttention",
                module(f"model.layers.{layer}.self_attention.o", "Linear"),
            ),
            module(f"model.layers.{layer}.mlp", "MLP", module(f"model.layers.{layer}.mlp.down", "Linear")),
        )
        for layer in layers
    ]
    tree = module("", "LM", module("model", "Model", module("model.layers", "ModuleList", *blocks)))
    (folder / "topology.json").write_text(json.dumps(tree))


@pytest.mark.parametrize("numbered_on", [True, False], ids=["numbered-on", "numbered-from-0"])
@pytest.mark.parametrize(("level", "pairs"), [("layer", 4), ("module", 8)])
def test_levels_need_only_the_tree_of_each_stage(tmp_path, numbered_on, level, pairs):
    nodes = {name.replace(".attn", ".self_attention"): tensor for name, tensor in model(1).items()}
    for layer in range(4):
        nodes[f"model.layers.{layer} output"] = nodes[f"model.layers.{layer}.mlp output"] + np.float32(1)
    golden = write_ranks(tmp_path / "golden", [nodes])
    write_tree(golden / "rank0", range(4))
    wrong = {name: tensor * np.float32(1.5) if "layers.3" in name else tensor for name, tensor in nodes.items()}
    mine = write_ranks(tmp_path / "mine", stages_of(wrong, numbered_on))
    for stage in (0, 1):
        write_tree(mine / f"rank{stage}", range(2 * stage, 2 * stage + 2) if numbered_on else range(2))
    done = run("compare", golden, mine, "-cl", level, "-o", tmp_path / "out", "--parallel", "pp=2")
    assert done.returncode == 0, done.stderr
    rows = read_csv(the_report(tmp_path / "out"))
    assert len(rows) == pairs, [row["node"] for row in rows]
    assert "matched 100.0 % of the tensors" in done.stdout, done.stdout
    assert all(rank == "1" and "layers.3" in node for node, rank in differing(tmp_path / "out").items())
    assert len(differing(tmp_path / "out")) == pairs / 4


# ---- groups told to other commands ----


def test_groups_are_told_to_locate_and_to_python(tmp_path):
    golden = write_ranks(tmp_path / "golden", [mixture()])
    mine = write_ranks(tmp_path / "mine", places_of(mixture(), PLACES, True))
    for command in (["locate"], ["compare", "-cl", "api", "-o", tmp_path / "out"]):
        done = run(*command, golden, mine, "--parallel", "expert=4")
        assert "experts are numbered from 0 in each of 4 places of ep" in done.stderr, done.stderr
    refused = run("locate", golden, mine, "--parallel", "ep=2")
    assert refused.returncode == 2 and "is a job of 2 ranks" in refused.stderr, refused.stderr

    for parallel in ("ep=4", {"expert": 4}):
        compared = assay.compare(golden, mine, parallel=parallel)
        assert compared.counts["identical"] == 1 + 2 * (EXPERTS + 2)
        assert any("numbered on, 2 a place" in note for note in compared.notes)
        assert compared.located.to_dict() == assay.locate(golden, mine, parallel=parallel).to_dict()
    with pytest.raises(assay.errors.FormatError, match="is no kind of group"):
        assay.locate(golden, mine, parallel={"expertise": 4})
    with pytest.raises(assay.errors.Error, match="is a job of 2 ranks"):
        assay.compare(golden, mine, parallel="ep=2")
