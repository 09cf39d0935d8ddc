# SPDX-License-Identifier: Apache-2.0
"""Graphs that a server throws away are told from prompts, and the manifest says what was run on which files."""

from __future__ import annotations

import json
import os
import sys

import pytest
from test_ggml_capture import CHAT, capture, ggml_probe  # noqa: F401 - a fixture


def host_of(run) -> dict:
    return json.loads((run.folder / "manifest.json").read_text())["host"]


def tokens_of(run, step: int) -> int:
    line = next(line for line in run.lines if line["step"] == step and line.get("leaf") == "inp_tokens")
    return line["shape"][0]


def steps_of(run) -> set[int]:
    return {line["step"] for line in run.lines}


@pytest.mark.parametrize("arguments", [[], ["--contexts", "2"]])
def test_the_default_reaches_the_first_prompt(arguments, models, llama_engine, ggml_probe, tmp_path):  # noqa: F811
    command = [sys.executable, CHAT, models["f32"], "--tokens", 3, *arguments]

    mine = capture(ggml_probe, tmp_path / "out", command, steps="0,0", first_only=True)

    # Each context computes two tokens when it is made; the first prompt has five.
    contexts = 2 if arguments else 1
    assert steps_of(mine) == set(range(contexts + 1))
    assert [tokens_of(mine, step) for step in range(contexts + 1)] == [2] * contexts + [5]


def test_the_manifest_names_the_warm_up(models, llama_engine, ggml_probe, tmp_path):  # noqa: F811
    mine = capture(ggml_probe, tmp_path / "out", [sys.executable, CHAT, models["f32"], "--tokens", 3])

    assert host_of(mine)["warm_up_steps"] == [0]
    assert tokens_of(mine, 0) == 2


def test_a_prompt_that_begins_a_text_is_no_warm_up(ggml_host, ggml_probe, tmp_path):  # noqa: F811
    # The first graph has five tokens, the next ones go on from there.
    mine = capture(ggml_probe, tmp_path / "out", [ggml_host], steps="0,0", first_only=True)

    assert steps_of(mine) == {0}
    assert host_of(mine)["warm_up_steps"] == []


def test_a_named_step_is_that_graph_and_no_other(models, llama_engine, ggml_probe, tmp_path):  # noqa: F811
    mine = capture(ggml_probe, tmp_path / "out", [sys.executable, CHAT, models["f32"], "--tokens", 3], steps="0,0")

    assert steps_of(mine) == {0}


@pytest.mark.parametrize("form", ["relative", "absolute"])
def test_the_manifest_has_the_model_s_absolute_path(form, models, llama_engine, ggml_probe, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(models["f32"].parent)
    path = models["f32"] if form == "absolute" else models["f32"].name

    mine = capture(ggml_probe, tmp_path / "out", [sys.executable, CHAT, path, "--tokens", 1])

    assert host_of(mine)["models"] == [str(models["f32"].resolve())]
    assert host_of(mine)["cwd"] == os.getcwd()
