# SPDX-License-Identifier: Apache-2.0
"""Damage of a run is called damage: it hides no fault and accuses no operator.

Of two captures of a Llama of two layers, one wrong and one healthy, every record line, step file and manifest entry is
removed, cut short, exchanged and doubled. The wrong run is never called clean, the healthy one is never accused.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from bench import record_lines  # noqa: E402
from bench.damaging import (  # noqa: E402
    Damaged,
    changed_entries,
    changed_files,
    changed_lines,
    changed_payloads,
    content_of,
    copied,
    overwrite,
    payloads,
)
from bench.sealing import reseal, unseal, write_manifest  # noqa: E402

import assay  # noqa: E402

LINES_OF_QUICK_TEST = 12


@dataclass(frozen=True)
class Runs:
    """golden at operator level; of modules: `wrong`, one weight of which is 5 % too large, and `healthy`."""

    golden: Path
    wrong: Path
    healthy: Path

    def sides(self) -> list[Path]:
        return [self.wrong, self.healthy]


def llama(factor: float = 1.0) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight.mul_(factor)
    return model


def capture(folder: Path, level: str, factor: float = 1.0, **options: Any) -> Path:
    model = llama(factor)
    with torch.no_grad(), assay.capture(model, folder, level=level, weights=True, **options):
        model(torch.arange(6).unsqueeze(0), use_cache=False)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    root = tmp_path_factory.mktemp("damage")
    return Runs(
        capture(root / "golden", "operator"),
        capture(root / "wrong", "module", factor=1.05),
        capture(root / "healthy", "module"),
    )


def test_whole_runs_are_judged(runs: Runs) -> None:
    for run in (runs.golden, *runs.sides()):
        assert assay.open(run).damage == ()
        assert assay.open(run).verify() == ()
    assert assay.locate(runs.golden, runs.wrong).outcome == "first_wrong"
    assert assay.locate(runs.golden, runs.healthy).outcome == "clean"


def words(verdict: assay.Verdict) -> str:
    return " ".join(str(verdict).split())


# ---- one change of one file ----


def check(runs: Runs, run: Path, damaged: Damaged, folder: Path) -> None:
    mine = copied(run, folder, damaged.file)
    damaged.change(mine)
    try:
        verdict = assay.locate(runs.golden, mine)
    except assay.Error:  # nothing is left that could be judged
        return
    said = f"{damaged.what}: {words(verdict)}"
    if verdict.outcome == "cannot_judge":
        assert "is damaged: " in said or "did not finish" in said, said
    elif run == runs.wrong:  # what is left of a run whose end is missing may show its fault
        assert verdict.outcome == "first_wrong" and "up_proj" in said, said
        assert damaged.of_payload or not assay.open(mine).coverage.complete, said
    else:
        assert verdict.outcome == "clean" and damaged.of_payload, said
    if damaged.of_payload:  # of which a verdict need not read all
        assert assay.open(mine).verify() != (), said


def all_changes(runs: Runs, run: Path) -> list[Damaged]:
    other = runs.golden if run == runs.wrong else runs.wrong
    changes = (changed_lines, changed_files, changed_entries, changed_payloads)
    return [damaged for change in changes for damaged in change(run, other)]


def test_a_sample_of_damage_hides_no_fault_and_accuses_nobody(runs: Runs, tmp_path: Path) -> None:
    draw = random.Random(7)
    for run in runs.sides():
        for damaged in changed_files(run, runs.golden):
            check(runs, run, damaged, tmp_path / "mine")
        for damaged in draw.sample(all_changes(runs, run), LINES_OF_QUICK_TEST):
            check(runs, run, damaged, tmp_path / "mine")


@pytest.mark.slow
def test_no_damage_hides_a_fault_or_accuses_an_operator(runs: Runs, tmp_path: Path) -> None:
    for run in runs.sides():
        for damaged in all_changes(runs, run):
            check(runs, run, damaged, tmp_path / "mine")


@pytest.mark.slow
def test_a_damaged_golden_accuses_nobody(runs: Runs, tmp_path: Path) -> None:
    draw = random.Random(11)
    for damaged in draw.sample([*changed_lines(runs.golden, runs.wrong)], 300):
        golden = copied(runs.golden, tmp_path / "golden", damaged.file)
        damaged.change(golden)
        verdict = assay.locate(golden, runs.healthy)
        assert verdict.outcome == "cannot_judge", f"{damaged.what}: {verdict}"


# ---- what only the payloads tell ----


def twin_of(runs: Runs, record: dict[str, Any]) -> Optional[bytes]:
    """The bytes that golden has in that record's place."""
    place = ("step", "node", "role", "slot")
    for other in record_lines.read(runs.golden / "rank0" / "records.jsonl"):
        if "file" in other and all(other.get(key) == record.get(key) for key in place):
            return content_of(runs.golden, other)
    return None


def test_goldens_payloads_under_the_records_of_a_wrong_run_are_damage(runs: Runs, tmp_path: Path) -> None:
    mine = copied(runs.wrong, tmp_path / "mine", "")
    changed = 0
    for record in payloads(runs.wrong).values():
        file = mine / "rank0" / record["file"]
        if file.stat().st_nlink > 1:
            file.write_bytes(cut_loose(file))
        theirs = twin_of(runs, record)
        if theirs is not None and theirs != content_of(mine, record):
            overwrite(mine, record, theirs)
            changed += 1
    assert changed > 3  # the weight, and what comes after it
    verdict = assay.locate(runs.golden, mine)
    assert verdict.outcome == "cannot_judge", verdict
    assert "the run under test is damaged: " in words(verdict)
    compared = assay.compare(runs.golden, mine)
    assert any("mine is damaged: " in gap for gap in compared.gaps)
    # The reader of an earlier version's run has the statistics of its records to go by.
    unseal(mine)
    verdict = assay.locate(runs.golden, mine)
    assert verdict.outcome == "cannot_judge" and "damaged" in words(verdict), verdict


def cut_loose(file: Path) -> bytes:
    content = file.read_bytes()
    file.unlink()
    return content


@pytest.mark.parametrize("side", ["wrong", "healthy"])
def test_a_zeroed_tensor_is_named(runs: Runs, tmp_path: Path, side: str) -> None:
    run = getattr(runs, side)
    draw = random.Random(3)
    for record in draw.sample([r for r in payloads(run).values() if r["dtype"] == "float32"], 4):
        mine = copied(run, tmp_path / "mine", f"rank0/{record['file']}")
        overwrite(mine, record, bytes(record["bytes"]))
        verdict = assay.locate(runs.golden, mine)
        assert verdict.outcome == "cannot_judge", verdict
        assert record["file"] in words(verdict) and names_one(words(verdict), run, record), verdict
        ((file, fault), *rest) = assay.open(mine).verify()
        assert file.endswith(record["file"])
        assert names_one(" ".join([fault, *(f[1] for f in rest)]), run, record)


def names_one(text: str, run: Path, record: dict[str, Any]) -> bool:
    """Whether one of the records that share the payload is named."""
    records = record_lines.read(run / "rank0" / "records.jsonl")
    same = [r for r in records if (r.get("file"), r.get("offset")) == (record["file"], record["offset"])]
    return any(f"{r['node'] or 'the model'} {r['role']}" in text for r in same)


def test_compare_marks_the_rows_of_a_damaged_tensor(runs: Runs, tmp_path: Path) -> None:
    record = next(r for r in payloads(runs.healthy).values() if r["node"] == "model.norm" and r["role"] == "output")
    mine = copied(runs.healthy, tmp_path / "mine", f"rank0/{record['file']}")
    values = np.frombuffer(content_of(mine, record), np.float32)
    overwrite(mine, record, np.roll(values, 1).tobytes())  # minimum, maximum, mean and norm stay
    # Statistics do not tell rows in another order: that is the digest's and the sketch's business.
    assert any("another order" in fault for _, fault in assay.open(mine).verify())
    overwrite(mine, record, (values * np.float32(1.001)).tobytes())
    compared = assay.compare(runs.golden, mine)
    assert any("mine is damaged: " in gap and record["file"] in gap for gap in compared.gaps)
    assert (
        sum("damaged" in (row["cmp_fail_reason"] or "") for row in compared.rows) >= 2
    )  # its output, and who reads that


def test_compare_calls_no_run_with_a_damaged_payload_clean(runs: Runs, tmp_path: Path) -> None:
    """The verdict is found before the rows, which read every payload."""
    command = os.environ.get("ASSAY_BINARY") or str(Path(sys.executable).with_name("assay"))
    changes = list(changed_payloads(runs.healthy, runs.wrong))
    for damaged in random.Random(3).sample(changes, 10):
        mine = copied(runs.healthy, tmp_path / "mine", damaged.file)
        damaged.change(mine)
        words = [command, "compare", str(runs.golden), str(mine), "--verdict", "--json", "-o", str(tmp_path / "out")]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        said = json.loads(done.stdout)
        assert (done.returncode, said["outcome"]) == (125, "cannot_judge"), f"{damaged.what}: {said['sentence']}"
        assert "is damaged: " in said["sentence"] and said["next"].startswith("assay verify "), said


# ---- runs of earlier versions, and seals ----


def test_runs_without_seals_are_judged_as_before(runs: Runs, tmp_path: Path) -> None:
    for run, outcome in ((runs.wrong, "first_wrong"), (runs.healthy, "clean")):
        mine = Path(shutil.copytree(run, tmp_path / run.name))
        unseal(mine)
        assert '"run"' not in (mine / "rank0" / "records.jsonl").read_text()
        assert assay.open(mine).damage == ()
        assert assay.locate(runs.golden, mine).outcome == outcome


def test_a_manifest_that_counts_more_than_there_is_tells_of_a_lost_tail(runs: Runs, tmp_path: Path) -> None:
    mine = Path(shutil.copytree(runs.healthy, tmp_path / "mine"))
    unseal(mine)  # counts are in manifests of all versions
    records = mine / "rank0" / "records.jsonl"
    records.write_text("".join(records.read_text().splitlines(keepends=True)[:-1]))
    ((_, fault),) = assay.open(mine).damage
    assert "records of step 0, the capture wrote" in fault


def test_a_change_that_is_meant_is_sealed_anew(runs: Runs, tmp_path: Path) -> None:
    mine = Path(shutil.copytree(runs.healthy, tmp_path / "mine"))
    records = mine / "rank0" / "records.jsonl"
    lines = records.read_text().splitlines(keepends=True)
    records.write_text("".join(line for line in lines if '"model.norm"' not in line or '"step":-1' in line))
    assert assay.open(mine).damage != ()
    reseal(mine)
    assert assay.open(mine).damage == ()
    assert assay.open(mine).verify() == ()


def test_a_rank_of_another_capture_is_damage(runs: Runs, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    for rank, run in enumerate([runs.healthy, runs.wrong]):
        shutil.copytree(run / "rank0", mine / f"rank{rank}")
        shutil.copyfile(run / "manifest.json", mine / f"rank{rank}" / "manifest.json")
    ((file, fault),) = assay.open(mine).damage
    assert file.endswith("rank1") and "is of another run than" in fault
    one_id = json.loads((mine / "rank0" / "manifest.json").read_text())["id"]
    second = mine / "rank1" / "manifest.json"
    write_manifest(second, {**json.loads(second.read_text()), "id": one_id})
    reseal(mine)
    assert assay.open(mine).damage == ()


@pytest.mark.parametrize("with_manifest", [0, None])
def test_a_rank_of_another_capture_without_a_manifest_is_damage(runs: Runs, tmp_path: Path, with_manifest: Any) -> None:
    # given two ranks of two runs: the second one's records alone tell of which run they are
    mine = tmp_path / "mine"
    for rank, run in enumerate([runs.healthy, runs.wrong]):
        shutil.copytree(run / "rank0", mine / f"rank{rank}")
        (mine / f"rank{rank}" / "manifest.json").unlink(missing_ok=True)
    if with_manifest is not None:
        shutil.copyfile(runs.healthy / "manifest.json", mine / "rank0" / "manifest.json")
    found = [fault for file, fault in assay.open(mine).damage if file.endswith("rank1")]
    assert found == [f"is of another run than {mine}/rank0"]


@pytest.mark.parametrize("what", ["link", "folder"])
def test_a_step_file_that_is_no_file_is_damage(runs: Runs, tmp_path: Path, what: str) -> None:
    mine = Path(shutil.copytree(runs.healthy, tmp_path / "mine"))
    step = next((mine / "rank0").glob("*.safetensors"))
    step.unlink()
    if what == "folder":
        step.mkdir()
    else:  # out of the run, to bytes that are right
        step.symlink_to(runs.healthy / "rank0" / step.name)
    found = [fault for file, fault in assay.open(mine).damage if file.endswith(step.name)]
    assert any("is a folder" in fault or "link" in fault for fault in found), found
