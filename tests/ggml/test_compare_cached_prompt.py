# SPDX-License-Identifier: Apache-2.0
"""A prompt whose beginning llama.cpp has in its cache: the graph computes the rest alone."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from bench import record_lines
from hugging_face import load
from test_compare_sequences import assay_command, capture_batch

HOST = Path(__file__).with_name("two_prompts.py")
FIRST, SECOND = [1, 50, 60, 70, 300], [1, 50, 60, 90, 310]
STEPS = 8


@pytest.fixture(scope="module")
def golden(models, llama_engine, tmp_path_factory) -> Path:
    return capture_batch(load(models["hf"]), [SECOND], tmp_path_factory.mktemp("golden") / "run")


def engine_run(model: Path, folder: Path, steps: str) -> Path:
    prompts = [",".join(map(str, prompt)) for prompt in (FIRST, SECOND)]
    done = assay_command("dump", "-o", folder, "--steps", steps, "--", sys.executable, HOST, model, *prompts, STEPS)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def whole(models, llama_engine, tmp_path_factory) -> Path:
    return engine_run(models["f32"], tmp_path_factory.mktemp("whole") / "run", "0-40")


def first_graph_of_the_second_prompt(run: Path) -> int:
    """Its first token is the one behind the three that both prompts have."""
    for line in record_lines.read(run / "rank0" / "records.jsonl"):
        if line.get("leaf") == "inp_tokens" and "file" in line:
            data = (run / "rank0" / line["file"]).read_bytes()
            if np.frombuffer(data, np.int32, 1, line["offset"])[0] == SECOND[3]:
                return int(line["step"])
    raise AssertionError("the engine used no cache")


def test_what_came_from_the_cache_is_compared_where_the_first_prompt_computed_it(golden, whole, tmp_path):
    limits = ("--rel-l2", "1e-5", "--allow-unmatched", "*")
    done = assay_command("compare", golden, whole, *limits, "-o", tmp_path / "out")
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 0, said
    assert f"within the limits: all {STEPS * 71} pairs" in said
    where = "the first 3 tokens of 5 of Hugging Face's step 0 were taken from a cache"
    assert f"{where}: they are compared where an earlier request computed them" in said
    assert "went on with other tokens" not in said


def test_a_run_with_both_prompts_is_clean(golden, whole):
    done = assay_command("locate", golden, whole)
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"clean: (\d+) captured values", done.stdout)[1]) == STEPS * 71
    assert "were taken from a cache" in " ".join(done.stdout.split())


def test_a_prompt_that_is_not_all_there_is_no_clean_one(golden, whole, models, tmp_path):
    first = first_graph_of_the_second_prompt(whole)
    part = engine_run(models["f32"], tmp_path / "part", f"{first}-40")
    done = assay_command("locate", golden, part)
    said = " ".join(done.stdout.split())
    assert done.returncode == 125, said
    assert "cannot judge: no fault was found in what both runs computed, but the first 3 tokens of 5 of " in said
    assert "were taken from a cache, which no graph of the run filled" in said
    assert "went on with other tokens" not in said
