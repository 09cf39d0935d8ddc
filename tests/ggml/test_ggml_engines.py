# SPDX-License-Identifier: Apache-2.0
"""The engines and models that the ggml tests stand on: what the converter writes is the model that Hugging Face has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_llama

ROOT = Path(__file__).resolve().parents[2]
CHAT = ROOT / "examples" / "ggml" / "chat.py"
CONVERT = ROOT / "examples" / "ggml" / "convert_hf_to_gguf.py"
PROMPT = [1, 50, 60, 70, 300]
TOKENS = 6


def chat(model: Path, logprobs: Path, *arguments: object) -> tuple[list[int], np.ndarray]:
    """Tokens and log-probabilities (TOKENS, vocabulary) of the first request."""
    done = subprocess.run(
        [sys.executable, CHAT, model, "--prompt", ",".join(map(str, PROMPT)), "--tokens", str(TOKENS), "--logprobs",
         logprobs, *map(str, arguments)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [int(token) for token in done.stdout.splitlines()[0].split()[1:]], np.load(logprobs)[0]


def hugging_face(folder: Path, tokens: list[int]) -> np.ndarray:
    """Log-probabilities after the prompt and each of the tokens but the last, float64 (TOKENS, vocabulary)."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT + tokens[:-1]])).logits[0, len(PROMPT) - 1 :]
    return logits.double().log_softmax(-1).numpy()


def relative_difference(golden: np.ndarray, mine: np.ndarray) -> float:
    """Largest difference in parts of the largest value."""
    return float(np.abs(golden - mine).max() / np.abs(golden).max())


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_float32_agrees_with_hugging_face(family, request, llama_engine, tmp_path):
    models = request.getfixturevalue("models" if family == "llama" else "qwen2_models")

    tokens, mine = chat(models["f32"], tmp_path / "mine.npy")

    golden = hugging_face(models["hf"], tokens)
    assert tokens == golden.argmax(-1).tolist()
    assert relative_difference(golden, mine) < 1e-5


# The kernels round activations as they round the weights: half a step is 5e-4 of a value for f16, 4e-3 of a block's
# largest for Q8_0 and 6e-2 for Q4_0 (whose activations are Q8_0). Some thirty products in a row leave a few times that.
@pytest.mark.parametrize(("kind", "limit"), [("f16", 5e-3), ("q8_0", 5e-2), ("q4_0", 5e-1)])
def test_coarser_weights_stay_near_and_differ(kind, limit, models, llama_engine, tmp_path):
    tokens, mine = chat(models[kind], tmp_path / "mine.npy")

    golden = hugging_face(models["hf"], tokens)
    difference = np.sqrt(np.mean((golden - mine) ** 2)) / golden.std()
    assert 1e-6 < difference < limit


def test_prompt_in_chunks_gives_the_same_model(models, llama_engine, tmp_path):
    tokens, whole = chat(models["f32"], tmp_path / "whole.npy")

    same_tokens, chunks = chat(models["f32"], tmp_path / "chunks.npy", "--chunk", 2)

    assert same_tokens == tokens
    assert relative_difference(whole, chunks) < 1e-5


def test_runs_are_bit_identical(models, llama_engine, tmp_path):
    first = chat(models["q8_0"], tmp_path / "first.npy", "--threads", 2)
    second = chat(models["q8_0"], tmp_path / "second.npy", "--threads", 2)

    assert first[0] == second[0]
    assert first[1].tobytes() == second[1].tobytes()


def test_converter_reorders_rows_of_queries_and_keys():
    # One head of six channels: halves (0 1 2 | 3 4 5) become neighbours (0 3)(1 4)(2 5). Two heads: each by itself.
    from assay.twin.gguf_file import neighbours_from_halves

    rows = np.arange(12.0)[:, None]
    assert neighbours_from_halves(rows[:6], 1)[:, 0].tolist() == [0, 3, 1, 4, 2, 5]
    assert neighbours_from_halves(rows, 2)[:, 0].tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]


def test_converter_quantises_matrices_and_keeps_norms(models):
    import gguf

    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(models["q4_0"]).tensors}

    kinds = {name: tensor.tensor_type.name for name, tensor in tensors.items()}
    assert kinds["blk.3.attn_norm.weight"] == kinds["output_norm.weight"] == "F32"
    # Seven matrices a layer, the embeddings and the head.
    assert sum(kind == "Q4_0" for kind in kinds.values()) == 4 * 7 + 2


def test_converter_refuses_other_models(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"architectures": ["MambaForCausalLM"]}))

    done = subprocess.run([sys.executable, CONVERT, folder, tmp_path / "out.gguf"], capture_output=True, text=True)

    assert done.returncode == 2
    assert "MambaForCausalLM is not converted" in done.stderr
    assert not (tmp_path / "out.gguf").exists()


def test_tied_embeddings_are_written_once(tmp_path, llama_engine):
    paths = tiny_llama.write_models(tmp_path, types=("f32",), tie_word_embeddings=True)

    tokens, mine = chat(paths["f32"], tmp_path / "mine.npy")

    assert relative_difference(hugging_face(paths["hf"], tokens), mine) < 1e-5
