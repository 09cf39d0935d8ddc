# SPDX-License-Identifier: Apache-2.0
"""Answers of commands: `--json` keeps to the published schemas, text ends with exactly one next command, and both say
the same."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import warm_python
from assay_command import run
from operator_runs import write_run
from referencing import Registry, Resource

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
EXAMPLE = Path(__file__).parents[2] / "examples" / "small_model.py"


def validator(command: str) -> jsonschema.Draft202012Validator:
    registry: Any = Registry().with_resources(
        (path.name, Resource.from_contents(json.loads(path.read_text()))) for path in SCHEMAS.glob("*.json")
    )
    schema = json.loads((SCHEMAS / f"{command}.schema.json").read_text())
    return jsonschema.Draft202012Validator(schema, registry=registry)


def test_the_schemas_are_schemas():
    assert len(list(SCHEMAS.glob("*.json"))) >= 4
    for path in SCHEMAS.glob("*.json"):
        jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text()))


def answers(*words: Any, status: int = 0) -> tuple[dict[str, Any], str]:
    """The object and the text of one command; both end alike."""
    told = run(*words)
    assert told.returncode == status, told.stderr
    done = run(*words, "--json")
    assert done.returncode == status, done.stderr
    answer = json.loads(done.stdout)
    validator(words[0]).validate(answer)
    text = told.stdout
    assert [line for line in text.splitlines() if line.startswith("next: ")] == [f"next: {answer['next']}"]
    assert text.endswith(f"next: {answer['next']}\n")
    assert re.sub(r"\s+", " ", answer["sentence"]) in re.sub(r"\s+", " ", text)
    return answer, text


def refusal(command: str, *words: Any, status: int = 2, **options: Any) -> str:
    """What is said of wrong options or input: the sentence and one next command, with --json as one object."""
    told = run(command, *words, **options)
    assert (told.returncode, told.stdout) == (status, ""), told.stderr
    *said, following = told.stderr.splitlines()
    assert following.startswith("next: ") and not any(line.startswith("next: ") for line in said)
    done = run(command, "--json", *words, **options)
    answer = json.loads(done.stdout)
    validator(command).validate(answer)
    assert (answer["outcome"], answer["exit_status"], done.returncode) == ("error", status, status)
    assert (answer["next"], done.stderr.splitlines()) == (following.removeprefix("next: "), said)
    assert f"error: {answer['sentence']}" in done.stderr
    shown = run(*shlex.split(answer["next"])[1:], **options)
    assert shown.returncode == 0, shown.stderr
    return str(answer["sentence"])


def test_fingerprint(tmp_path):
    golden = write_run(tmp_path / "golden")
    answer, _ = answers("fingerprint", golden, "-o", tmp_path / "golden.json.gz")
    assert (answer["operators"], answer["steps"], answer["weights"]) == (10, 1, 7)
    assert answer["bytes"] == (tmp_path / "golden.json.gz").stat().st_size


@pytest.mark.parametrize("command", ["verify", "fingerprint"])
@pytest.mark.parametrize(
    ("words", "said"), [(["nowhere"], "nowhere"), ([], "RUN"), (["a", "--frob"], "unknown option --frob")]
)
def test_what_is_no_run_is_refused(tmp_path, command, words, said):
    assert said in refusal(command, *words, cwd=tmp_path)


@pytest.mark.parametrize(
    ("command", "words", "status", "said"),
    [
        ("opcheck", [], 2, "no run was given"),
        ("opcheck", ["nowhere"], 2, "nowhere"),
        ("opcheck", ["nowhere", "--frob"], 2, "unknown option --frob"),
        ("dump", ["--frob"], 2, "unknown option --frob"),
        ("dump", ["-o", "out", "--", "no-such-program"], 1, "no-such-program"),
        ("twin", ["nowhere.json", "-o", "tiny"], 2, "nowhere.json"),
        ("twin", ["--check", "nowhere"], 2, "nowhere"),
        ("twin", ["nowhere.json"], 2, "-o DIR"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_one_command(tmp_path, command, words, status, said):
    assert said in refusal(command, *words, status=status, cwd=tmp_path)


def test_a_gate_that_cannot_begin_is_an_object(tmp_path):
    done = run("gate", "nowhere", "--format", "json", cwd=tmp_path)
    answer = json.loads(done.stdout)
    validator("gate").validate(answer)
    assert (answer["outcome"], answer["exit_status"], done.returncode) == ("error", 2, 2)
    assert "--mine" in answer["sentence"] and f"error: {answer['sentence']}" in done.stderr
    assert answer["next"] == "assay help gate"


def captured(folder: Path, *options: str) -> Path:
    done = run("dump", *options, "-o", folder, "--", warm_python.python(), EXAMPLE)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return captured(tmp_path_factory.mktemp("golden") / "run", "--level", "operator")


def test_a_whole_run_is_verified(golden):
    answer, _ = answers("verify", golden)
    assert (answer["outcome"], answer["damage"]) == ("whole", [])
    assert answer["next"] == f"assay show {golden}"


def test_a_damaged_run_is_captured_again(golden, tmp_path):
    copy = tmp_path / "a copy"
    subprocess.run(["cp", "-r", golden, copy], check=True)
    path = next(copy.glob("rank0/step-*.safetensors"))
    with path.open("r+b") as file:
        file.seek(-100, os.SEEK_END)
        file.write(b"\xff" * 50)
    answer, _ = answers("verify", copy, status=1)
    assert answer["outcome"] == "damaged"
    assert next(Path(one["file"]).name for one in answer["damage"]) == path.name
    # The program is the one that was captured, and a path with a blank is one word.
    words = shlex.split(answer["next"])
    assert words[:4] == ["assay", "dump", "-o", f"{copy}-again"]
    assert words[-1] == str(EXAMPLE)


def test_a_run_that_is_right_by_itself_is_compared_next(golden, tmp_path):
    answer, _ = answers("opcheck", golden, "-o", tmp_path)
    assert (answer["outcome"], answer["failed"], answer["wrong"]) == ("right", 0, [])
    assert answer["next"] == f"assay compare GOLDEN {golden}"
    assert all(Path(file).exists() for file in answer["files"])


def test_a_wrong_operator_is_shown_next(golden, tmp_path):
    copy = tmp_path / "run"
    subprocess.run(["cp", "-r", golden, copy], check=True)
    wrong = spoil_a_product(copy)
    answer, _ = answers("opcheck", copy, "-o", tmp_path, status=1)
    assert answer["outcome"] == "wrong"
    assert answer["wrong"][0]["node"] == wrong
    shown = run(*shlex.split(answer["next"])[1:])
    assert shown.returncode == 0, shown.stderr
    assert wrong in shown.stdout


def spoil_a_product(run_folder: Path) -> str:
    """Changes one value that a product made, and takes away what tells of damage. Returns the product's node."""
    records_file = run_folder / "rank0" / "records.jsonl"
    lines = [json.loads(line) for line in records_file.read_text().splitlines()]
    one = next(r for r in lines if r.get("type") == "aten.addmm.default" and r.get("role") == "output")
    with (run_folder / "rank0" / one["file"]).open("r+b") as file:
        file.seek(one["offset"])
        file.write(b"\x00\x00\x80\x41")  # 16.0
    for line in lines:
        line.pop("run", None)
        line.pop("digest", None)
        if line.get("offset") == one["offset"]:
            line.pop("stats", None)
    records_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for manifest in run_folder.rglob("manifest.json"):
        content = json.loads(manifest.read_text())
        for key in ("files", "run", "seal", "steps"):
            content.pop(key, None)
        manifest.write_text(json.dumps(content))
    return str(one["node"])


def test_what_was_captured(tmp_path):
    words = ("dump", "--level", "operator", "-o", tmp_path / "run", "--json", "--", warm_python.python(), EXAMPLE)
    done = run(*words)
    assert done.returncode == 0, done.stderr
    *printed, last = done.stdout.splitlines()
    assert printed == ["answer: [5, 0, 2, 6]"]  # the program's own
    assert "next:" not in done.stderr
    answer = json.loads(last)
    validator("dump").validate(answer)
    assert (answer["outcome"], answer["steps"]) == ("captured", 1)
    assert answer["next"] == f"assay opcheck {answer['run']}"
    assert run(*shlex.split(answer["next"])[1:], "-o", tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("options", "following"),
    [([], "assay compare GOLDEN {}"), (["--statistics"], "assay show {}"), (["--type", "model"], "assay show {}")],
)
def test_what_follows_a_capture(tmp_path, options, following):
    done = run("dump", *options, "-o", tmp_path / "run", "--", warm_python.python(), EXAMPLE)
    assert done.stderr.endswith(f"assay: next: {following.format(tmp_path / 'run')}\n")


def test_nothing_captured(tmp_path):
    done = run("dump", "--json", "-o", tmp_path / "run", "--", "true")
    assert done.returncode == 0
    answer = json.loads(done.stdout)
    validator("dump").validate(answer)
    assert (answer["outcome"], answer["next"]) == ("nothing_captured", "assay help own-host")
    assert run("dump", "--json", "--require", "-o", tmp_path / "run", "--", "true").returncode == 125


def test_verify_names_a_file_once_however_many_of_its_tensors_are_damaged(golden, tmp_path):
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", golden, copy], check=True)
    path = next(copy.glob("rank0/step-*.safetensors"))
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\x55" * (path.stat().st_size - 4096))
    answer, _ = answers("verify", copy, status=1)
    assert sum(one["file"] == str(path) for one in answer["damage"]) > 9
    lines = run("verify", copy).stdout.splitlines()
    (place,) = [number for number, line in enumerate(lines) if line.startswith(f"{path}: ")]
    assert lines[place].endswith(" faults")
    assert all(line.startswith("  ") and str(path) not in line for line in lines[place + 1 : place + 9])
    assert lines[place + 9].endswith("more, which --json lists")


def test_opcheck_writes_the_page_that_html_names(golden, tmp_path):
    page = tmp_path / "page.html"
    done = run("opcheck", golden, "-o", tmp_path / "report", "--html", page)
    assert done.returncode == 0, done
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert str(page) in done.stdout
    refused = run("opcheck", golden, "-o", tmp_path / "report", "--html", "page.txt")
    assert refused.returncode == 2
    assert "a page ends with .html" in refused.stderr
