# SPDX-License-Identifier: Apache-2.0
"""The probe in whisper.cpp, as the wheel pywhispercpp has it: four schedulers, each computing without `_async`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_whisper
from naive_capture import naive_capture
from test_ggml_capture import ALIASES, capture, ggml_probe, plain_run  # noqa: F401 - ggml_probe is a fixture

TRANSCRIBE = Path(__file__).resolve().parents[2] / "examples" / "ggml" / "transcribe.py"
TOKENS = 4

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("_pywhispercpp") is None, reason="pywhispercpp is not installed"
)


@pytest.fixture(scope="module")
def model():
    return tiny_whisper.make_model()


@pytest.fixture(scope="module")
def container(model, tmp_path_factory) -> Path:
    return tiny_whisper.write_whisper(tmp_path_factory.mktemp("whisper") / "tiny.bin", model)


@pytest.mark.parametrize("arguments", ["", "--threads 2 --flash-attention"])
def test_every_node_of_a_transcription(arguments, container, ggml_probe, naive_probe, tmp_path):  # noqa: F811
    command = [sys.executable, TRANSCRIBE, container, "--tokens", TOKENS, *arguments.split()]
    golden, _ = naive_capture(naive_probe, tmp_path / "nodes", command)

    mine = capture(ggml_probe, tmp_path / "out", command)

    assert mine.stdout == plain_run(command)
    assert mine.stdout.startswith("tokens ")
    outputs = mine.outputs()
    # Most of its nodes have no name, so they are held against each other by place.
    assert [(out.step, out.op, out.ne) for out in outputs] == [(node.graph, node.op, node.ne) for node in golden]
    for out, node in zip(outputs, golden):
        if out.raw is None:  # a view, or keys and values on their way into a cache
            assert out.op in (*ALIASES, "CPY"), out.name
        elif out.op not in ALIASES:
            assert out.raw == node.raw, out.name
    assert sum(out.raw is not None and out.op == "MUL_MAT" for out in outputs) >= 2 + 2 * 6 + 4 + 5 * 2 * 8
    # Convolutions, encoder, the encoder's keys and values for the decoder, and the decoder for prompt and tokens.
    assert {out.step for out in outputs} == set(range(3 + 1 + TOKENS))
    assert {out.name.split("/")[0] for out in outputs if out.step} == {"sched1", "sched2", "sched3"}


def leaf(captured, step: int, name: str, dtype) -> np.ndarray:
    (line,) = [line for line in captured.lines if line.get("leaf") == name and line["step"] == step and "file" in line]
    payload = (captured.folder / line["file"]).read_bytes()[line["offset"] : line["offset"] + line["bytes"]]
    return np.frombuffer(payload, dtype).reshape(line["shape"])


def test_encoder_and_decoder_are_those_of_hugging_face(model, container, ggml_probe, tmp_path):  # noqa: F811
    import torch

    mine = capture(ggml_probe, tmp_path / "out", [sys.executable, TRANSCRIBE, container, "--tokens", TOKENS])

    # From the spectrum and the tokens that the engine computed with.
    mel = torch.from_numpy(leaf(mine, 0, "mel", np.float32).copy())[None]
    steps = range(3, 3 + 1 + TOKENS)
    tokens = np.concatenate([leaf(mine, step, "embd", np.int32) for step in steps])
    with torch.no_grad():
        states = model.model.encoder(mel).last_hidden_state
        decoded = model.model.decoder(torch.from_numpy(tokens.astype(np.int64))[None], encoder_hidden_states=states)
        golden = model.proj_out(decoded.last_hidden_state)[0].numpy()

    def last_of(step: int) -> np.ndarray:
        out = [out for out in mine.outputs() if out.step == step][-1]
        return np.frombuffer(out.raw, np.float32).reshape(-1, out.ne[0])

    # Weights and what they are multiplied with are rounded to halves, 5e-4 of a value, some ten times in a row.
    assert relative_error(states[0].numpy(), last_of(1)) < 1e-2
    logits = np.concatenate([last_of(step)[-1:] for step in steps])
    assert relative_error(golden[-len(logits) :], logits) < 1e-2


def relative_error(golden: np.ndarray, mine: np.ndarray) -> float:
    """Root mean square of the difference, in parts of that of golden."""
    assert golden.shape == mine.shape
    return float(np.linalg.norm(golden - mine) / np.linalg.norm(golden))
