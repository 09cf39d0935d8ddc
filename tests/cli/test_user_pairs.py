# SPDX-License-Identifier: Apache-2.0
"""What the user says corresponds (--token-map, --ranks, --map) holds for the verdict as it does for the table."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from assay_command import run
from operator_runs import BLOCKS, write_run

import assay


@pytest.fixture(scope="module")
def golden(tmp_path_factory) -> Path:
    """The reference: float32, with operators, one step."""
    return write_run(tmp_path_factory.mktemp("golden") / "run", dtype=torch.float32)


def with_text(run_folder: Path, *replacements: tuple[str, str]) -> Path:
    """The run with other texts in its records and its tree of modules."""
    for name in ("records.jsonl", "topology.json"):
        file = run_folder / "rank0" / name
        text = file.read_text()
        for old, new in replacements:
            text = text.replace(old, new)
        file.write_text(text)
    return run_folder


def sentence(golden: Path, mine: Path, *options: object) -> tuple[str, int]:
    """The last sentence of `assay locate`, and its exit status."""
    done = run("locate", golden, mine, *options)
    return " ".join(done.stdout.split()), done.returncode


LATER = ('"step": 0', '"step": 5')  # a warm-up came first
RENAMED = (".proj", ".linear")
FAULT = {"blocks.1.proj": lambda t: t * 1.03}


def test_steps_are_those_of_the_token_map(golden, tmp_path):
    mine = with_text(write_run(tmp_path / "mine"), LATER)
    said, status = sentence(golden, mine)
    assert status == 125, said
    said, status = sentence(golden, mine, "--token-map", "0:5")
    assert (said.split(":")[0], status) == ("clean", 0), said


def test_a_finding_is_told_in_the_step_of_the_run_under_test(golden, tmp_path):
    mine = with_text(write_run(tmp_path / "mine", kernels=FAULT), LATER)
    said, status = sentence(golden, mine, "--token-map", "0:5")
    assert "first bad: blocks.1.proj (Projection: aten.mm.default, step 5)" in said
    assert status == 1


def test_steps_that_the_token_map_leaves_out_are_not_judged(golden, tmp_path):
    two_steps = write_run(tmp_path / "golden", dtype=torch.float32, steps=(0, 1))
    mine = with_text(write_run(tmp_path / "mine", kernels=FAULT, steps=(0, 1)))
    lines = (mine / "rank0" / "records.jsonl").read_text().splitlines()
    healthy = write_run(tmp_path / "healthy", steps=(0, 1))
    # The fault is in step 1 only: step 0 is that of the healthy run, whose lines and bytes are as long.
    right = (healthy / "rank0" / "records.jsonl").read_text().splitlines()
    assert len(right) == len(lines)
    payload = bytearray((mine / "rank0" / "step-000000.safetensors").read_bytes())
    source = (healthy / "rank0" / "step-000000.safetensors").read_bytes()
    for i, line in enumerate(right):
        record = json.loads(line)
        if record.get("step") != 1:
            lines[i] = line
            if "offset" in record:
                place = slice(record["offset"], record["offset"] + record["bytes"])
                payload[place] = source[place]
    (mine / "rank0" / "records.jsonl").write_text("\n".join(lines) + "\n")
    (mine / "rank0" / "step-000000.safetensors").write_bytes(payload)

    assert sentence(two_steps, mine)[1] == 1
    assert sentence(two_steps, mine, "--token-map", "0:0")[1] == 0


def test_modules_are_those_of_the_map(golden, tmp_path):
    mine = with_text(write_run(tmp_path / "mine"), RENAMED)
    pairs = [{"golden": f"blocks.{i}.proj", "my": f"blocks.{i}.linear"} for i in range(BLOCKS)]
    (tmp_path / "map.json").write_text(json.dumps(pairs))
    # Without it the weights of the renamed modules are known by what they compute; with it they have partners.
    said, status = sentence(golden, mine)
    assert ("clean: all 10 operators are exact" in said, status) == (True, 0), said
    assert "4 of 7 weights are golden's, the others compute what other weights of golden's do" in said
    said, status = sentence(golden, mine, "--map", tmp_path / "map.json")
    assert (said.split(":")[0], status) == ("clean", 0), said
    assert "all 7 weights are golden's" in said


def test_a_finding_is_told_by_the_name_of_the_run_under_test(golden, tmp_path):
    mine = with_text(write_run(tmp_path / "mine", kernels=FAULT), RENAMED)
    pairs = [{"golden": f"blocks.{i}.proj", "my": f"blocks.{i}.linear"} for i in range(BLOCKS)]
    (tmp_path / "map.json").write_text(json.dumps(pairs))
    done = run(
        "compare", golden, mine, "--map", tmp_path / "map.json", "--verdict", "-cl", "api", "-o", tmp_path / "report"
    )
    assert "first bad: blocks.1.linear (Projection: aten.mm.default, step 0)" in " ".join(done.stdout.split())
    assert done.returncode == 1


def test_entries_with_a_slice_concern_the_table_only(golden, tmp_path):
    mine = write_run(tmp_path / "mine")
    (tmp_path / "map.json").write_text(
        json.dumps([{"golden": "blocks.0.proj", "my": "blocks.1.proj", "slice": "[:2]", "my_slice": "[:2]"}])
    )
    done = run("locate", golden, mine, "--map", tmp_path / "map.json")
    assert done.returncode == 0
    assert "note: --map: 1 of its entries name a slice, a merge or no module of both sides; the verdict" in done.stderr


def test_a_table_of_types_is_said_not_to_reach_the_verdict(golden, tmp_path):
    (tmp_path / "types.json").write_text(json.dumps({"RmsNormOperation": "LlamaRMSNorm"}))
    mine = write_run(tmp_path / "mine")
    said = "note: --op-mapping-file pairs types for the table; the verdict does not use it"
    with_types = run("compare", golden, mine, "-mf", tmp_path / "types.json", "-cl", "api", "-o", tmp_path / "a")
    without = run("compare", golden, mine, "-cl", "api", "-o", tmp_path / "b")
    assert said in with_types.stderr
    assert "op-mapping-file" not in without.stderr


def test_ranks_that_the_user_leaves_out_are_not_judged(golden, tmp_path):
    sides = {}
    for side, plan in (("golden", {"dtype": torch.float32}), ("mine", {})):
        sides[side] = write_run(tmp_path / side, **plan)
        second = write_run(tmp_path / f"{side}-1", **plan, **({"kernels": FAULT} if side == "mine" else {}))
        shutil.copytree(second / "rank0", sides[side] / "rank1")
    assert sentence(sides["golden"], sides["mine"])[1] == 1
    assert sentence(sides["golden"], sides["mine"], "--ranks", "0")[1] == 0
    done = run("locate", sides["golden"], sides["mine"], "--ranks", "0,3")
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: rank 3 is not present on both sides")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--token-map", "0:9"), "error: step 9 of --token-map is not in mine"),
        (
            ("--token-map", "0"),
            "error: argument --token-map: '0' is no pair of steps; expected GOLDEN:MINE, for example 0:1",
        ),
        (("--map", "absent.json"), "error: argument --map: absent.json: cannot open: No such file or directory"),
    ],
)
def test_what_says_nothing_is_refused(golden, tmp_path, option, said):
    done = run("locate", golden, write_run(tmp_path / "mine"), *option)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, said)


def test_python_takes_the_same(golden, tmp_path):
    mine = with_text(write_run(tmp_path / "mine", kernels=FAULT), RENAMED, LATER)
    pairs = [{"golden": f"blocks.{i}.proj", "my": f"blocks.{i}.linear"} for i in range(BLOCKS)]
    verdict = assay.locate(golden, mine, map=pairs, token_map={0: 5})
    assert (verdict.first_bad.module, verdict.first_bad.step) == ("blocks.1.linear", 5)
    compared = assay.compare(golden, mine, map=pairs, token_map={0: 5})
    assert (compared.first_bad.module, compared.first_bad.step) == ("blocks.1.linear", 5)
