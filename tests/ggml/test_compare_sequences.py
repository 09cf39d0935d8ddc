# SPDX-License-Identifier: Apache-2.0
"""Several sequences in one graph of ggml, or in one batch of Hugging Face: each token is paired with its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hugging_face import load

import assay

HOST = Path(__file__).with_name("two_requests.py")
PROMPTS = [[1, 50, 60, 70, 300], [1, 90, 61, 80, 310]]
STEPS = 8  # long enough for the second request to come in while the first is answered


def assay_command(*words: object) -> subprocess.CompletedProcess:
    command = [os.environ.get("ASSAY_BINARY", "assay"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def capture_batch(model, prompts: list[list[int]], folder: Path) -> Path:
    import torch

    ids, past = torch.tensor(prompts), None
    with assay.capture(model, folder, level="operator", steps=range(STEPS), weights=True), torch.no_grad():
        for _ in range(STEPS):
            result = model(ids, past_key_values=past, use_cache=True)
            ids, past = result.logits[:, -1:].argmax(-1), result.past_key_values
    return folder


@pytest.fixture(scope="module")
def engine_run(models, llama_engine, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("two") / "run"
    prompts = [",".join(map(str, prompt)) for prompt in PROMPTS]
    done = assay_command(
        "dump", "-o", folder, "--steps", "0-40", "--", sys.executable, HOST, models["f32"], STEPS, *prompts
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def goldens(models, llama_engine, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("golden")
    model = load(models["hf"])
    sides = {"first": PROMPTS[:1], "second": PROMPTS[1:], "both": PROMPTS}
    return {name: capture_batch(model, prompts, folder / name) for name, prompts in sides.items()}


@pytest.mark.parametrize("side", ["first", "second", "both"])
def test_every_step_of_a_sequence_is_compared(goldens, engine_run, tmp_path, side):
    # What ggml's fused operators never store has no partner.
    limits = ("--rel-l2", "1e-5", "--allow-unmatched", "*")
    done = assay_command("compare", goldens[side], engine_run, *limits, "-o", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "same prompt" not in done.stdout + done.stderr
    # 71 tensors a step; of a batch the rotated queries and keys of four layers are not put together
    assert f"within the limits: all {STEPS * (63 if side == 'both' else 71)} pairs" in done.stdout


@pytest.mark.parametrize("side", ["first", "second"])
def test_a_sequence_among_others_is_clean(goldens, engine_run, side):
    done = assay_command("locate", goldens[side], engine_run)
    assert done.returncode == 0, done.stdout
    judged = int(re.search(r"clean: (\d+) captured values", done.stdout)[1])
    assert judged == STEPS * 71


def test_a_batch_is_never_clean_by_halves(goldens, engine_run):
    done = assay_command("locate", goldens["both"], engine_run)
    assert "first bad" not in done.stdout
    assert "cannot judge" in done.stdout or "clean" in done.stdout
    if "clean" in done.stdout:
        assert int(re.search(r"clean: (\d+) captured values", done.stdout)[1]) >= STEPS * 60


def test_a_batch_of_which_the_engine_computed_half_is_not_clean(models, goldens, llama_engine, tmp_path):
    words = [",".join(map(str, PROMPTS[0])), "1,90"]
    done = assay_command(
        "dump", "-o", tmp_path / "run", "--steps", "0-40", "--", sys.executable, HOST, models["f32"], STEPS, *words
    )
    assert done.returncode == 0, done.stderr
    done = assay_command("locate", goldens["both"], tmp_path / "run")
    assert "clean:" not in done.stdout
    assert "first bad" not in done.stdout
    assert f"of Hugging Face's {2 * (5 + STEPS - 1)} tokens were computed by no graph" in " ".join(done.stdout.split())


def test_a_fault_in_one_of_several_sequences_is_named(models, engine_run, tmp_path):
    model = load(models["hf"])
    model.model.layers[1].self_attn.scaling *= 1.1
    golden = capture_batch(model, PROMPTS[1:], tmp_path / "faulty")
    done = assay_command("locate", golden, engine_run)
    assert done.returncode == 1, done.stdout
    assert "first bad: model.layers.1.self_attn" in done.stdout
