# SPDX-License-Identifier: Apache-2.0
"""`assay twin`: the command in front of assay.twin; tests/python/twin tests what it writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import warm_python
from assay_command import binary
from test_answers import validator

pytest.importorskip("transformers")


def twin(*words, cwd, **environment):
    python = {"ASSAY_PYTHON": warm_python.python("transformers")}
    return subprocess.run(
        [binary(), "twin", *words], cwd=cwd, capture_output=True, text=True, env={**os.environ, **python, **environment}
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """config.json of a Qwen3 of 28 layers, and `tiny`, its twin."""
    where = tmp_path_factory.mktemp("twin")
    values = {
        "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
    }  # fmt: skip
    (where / "config.json").write_text(json.dumps(values))
    made = twin("config.json", "-o", "tiny", "--layers", "2", "--seed", "7", cwd=where)
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.startswith("tiny: qwen3, 2 layers of width 128, ")
    assert "seed 7" in made.stdout
    assert made.stdout.splitlines()[-1] == "next: assay twin --check tiny"
    assert made.stdout.count("next:") == 1
    return where


def test_writes_a_checkpoint_with_the_same_ratios(folder):
    files = {"config.json", "generation_config.json", "model.safetensors", "twin.json"}
    assert files <= set(os.listdir(folder / "tiny")) <= {*files, "model.gguf"}
    config = json.loads((folder / "tiny" / "config.json").read_text())
    assert config["num_attention_heads"] == 2 * config["num_key_value_heads"]  # 16 and 8
    assert (folder / "tiny" / "model.safetensors").stat().st_mode & 0o777 == 0o666 & ~_umask()
    assert sorted(os.listdir(folder)) == ["config.json", "tiny"]


def test_answers_as_json_by_the_schema(folder, tmp_path):
    made = twin(str(folder / "config.json"), "-o", "a twin", "--json", "--layers", "1", cwd=tmp_path)
    checked = twin("--check", "a twin", "--json", cwd=tmp_path)

    for done in (made, checked):
        assert (done.returncode, done.stderr) == (0, "")
        validator("twin").validate(json.loads(done.stdout))
    answer = json.loads(made.stdout)
    assert answer["twin"] == json.loads((tmp_path / "a twin" / "twin.json").read_text())
    assert answer["next"] == "assay twin --check 'a twin'"
    assert {row["good"] for row in json.loads(checked.stdout)["findings"]} <= {True, None}


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_checks_it(folder):
    checked = twin("--check", "tiny", cwd=folder)

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "BAD" not in checked.stdout
    assert checked.stdout.splitlines()[-1] == 'next: assay gate tiny --mine "CMD"'


def test_the_golden_program_is_told_the_folder_by_the_environment(folder):
    program = [warm_python.python("transformers"), "-m", "assay.twin", "run"]
    done = subprocess.run(program, cwd=folder, capture_output=True, text=True, env={**os.environ, "ASSAY_TWIN": "tiny"})

    assert done.returncode == 0, done.stderr
    lines = [line.split(" ") for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == ["plain", "padded", "offset", "far"]
    assert lines[0][1:4] == ["(1,", "19,", "512)"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["config.json"], "a twin is written to a folder: -o DIR"),
        (["--check", "tiny", "--seed", "1"], "--seed is of no use with --check"),
        (["config.json", "-o", "out", "--layers", "0"], "--layers"),
    ],
)
def test_wrong_options(words, sentence, folder):
    done = twin(*words, cwd=folder)
    assert done.returncode == 2
    assert sentence in done.stderr


def test_refuses_in_one_sentence_and_leaves_nothing(folder):
    for words, sentence in [
        (["nothing.json", "-o", "out"], "error: nothing.json is not there"),
        (["tiny", "-o", "out"], "error: tiny: a qwen3 of 2 layers of width 128 cannot be made smaller"),
        (["config.json", "-o", "tiny"], "error: tiny is there already; give another folder with -o"),
        (["--check", "."], "error: . has no twin.json, so it is no twin"),
    ]:
        done = twin(*words, cwd=folder)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(sentence), done.stderr
        assert done.stderr.splitlines()[1:] == ["next: assay help twin"]
    assert sorted(os.listdir(folder)) == ["config.json", "tiny"]


def test_says_what_is_not_installed(folder, tmp_path):
    """A Python with no packages but ours, and one without ours."""
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    import assay

    ours = os.path.dirname(os.path.dirname(assay.__file__))
    linked = tmp_path / "packages"
    linked.mkdir()
    (linked / "assay").symlink_to(os.path.join(ours, "assay"))

    done = twin("config.json", "-o", "out", cwd=folder, ASSAY_PYTHON=str(bare), PYTHONPATH=str(linked))
    assert done.returncode == 2
    assert "torch and transformers and safetensors not installed; pip install 'assay-llm[twin]'" in done.stderr
    done = twin("config.json", "-o", "out", cwd=folder, ASSAY_PYTHON=str(bare), PYTHONPATH="")
    assert done.returncode == 2
    assert "has no package assay; pip install 'assay-llm[twin]'" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing(number, folder, tmp_path):
    """Sent when the hidden folder is there: the weights are being made."""
    command = [binary(), "twin", str(folder / "config.json"), "-o", "out", "--layers", "28"]
    program = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, env={**os.environ, "ASSAY_PYTHON": sys.executable}
    )
    end = time.monotonic() + 60
    while not os.listdir(tmp_path) and time.monotonic() < end:
        time.sleep(0.01)
    assert os.listdir(tmp_path)

    program.send_signal(number)

    assert program.wait(60) == 128 + number
    assert os.listdir(tmp_path) == []
