# SPDX-License-Identifier: Apache-2.0
"""The probe in llama-cpp-python: ggml 0.25.3, built from its source package (docs/design/ggml-engines.md).

Skipped where that package is not installed.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from naive_capture import naive_capture
from test_ggml_capture import capture, ggml_probe, hold_against, plain_run  # noqa: F401 - ggml_probe is a fixture
from test_ggml_engines import PROMPT, hugging_face, relative_difference

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "ggml"
CHAT = EXAMPLES / "chat_llama_cpp.py"
TOKENS = 4

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed"
)


def chat(model: Path, *arguments: object) -> list:
    prompt = ",".join(map(str, PROMPT))
    return [sys.executable, CHAT, model, "--prompt", prompt, "--tokens", TOKENS, *arguments]


def test_float32_agrees_with_hugging_face(models, tmp_path):
    printed = plain_run(chat(models["f32"], "--logits", tmp_path / "mine.npy"))

    mine = np.load(tmp_path / "mine.npy").astype(np.float64)
    tokens = [int(word) for word in printed.splitlines()[0].split()[1:]]
    golden = hugging_face(models["hf"], tokens)
    assert tokens == golden.argmax(-1).tolist()
    mine -= np.logaddexp.reduce(mine, axis=-1, keepdims=True)
    assert relative_difference(golden, mine) < 1e-5


# Four layers of 36 nodes, or 31 with flash attention and two casts more of a cache that is not float16; six outside.
@pytest.mark.parametrize(
    ("arguments", "nodes"),
    [("", 4 * 36 + 6), ("--flash-attention --cache-type f16", 4 * 31 + 6), ("--flash-attention", 4 * 33 + 6)],
)
def test_every_node_is_captured(arguments, nodes, models, ggml_probe, naive_probe, tmp_path):  # noqa: F811
    command = chat(models["f32"], *arguments.split())
    golden, _ = naive_capture(naive_probe, tmp_path / "nodes", command)

    mine = capture(ggml_probe, tmp_path / "out", command)

    assert mine.stdout == plain_run(command)
    assert Counter(out.step for out in mine.outputs()) == dict.fromkeys(range(TOKENS), nodes)
    assert hold_against(mine.outputs(), golden) >= TOKENS * 4 * 15
    (engine,) = json.loads((tmp_path / "out" / "manifest.json").read_text())["engines"]
    assert engine["version"] == "0.25.3"
    assert engine["file"].startswith("libggml-base.so") or "/libggml-base.so" in engine["file"]


@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
@pytest.mark.parametrize("api", ["class", "low-level"])
def test_logits_are_the_same_bits_with_and_without(api, kind, models, ggml_probe, tmp_path):  # noqa: F811
    command = chat(models[kind], "--api", api, "--threads", 2)

    mine = capture(ggml_probe, tmp_path / "out", command)

    assert mine.stdout == plain_run(command)
    assert "logits " in mine.stdout and len(mine.outputs()) == TOKENS * (4 * 36 + 6)


def test_the_host_s_own_callback_sees_the_same(models, ggml_probe, tmp_path):  # noqa: F811
    command = chat(models["f32"], "--api", "low-level", "--callback", "watch")

    mine = capture(ggml_probe, tmp_path / "out", command)

    assert mine.stdout == plain_run(command)
    layers = " ".join(f"l_out-{layer}" for layer in range(4))
    assert mine.stdout.splitlines()[2] == "delivered " + " ".join([layers] * TOKENS)
    assert len(mine.outputs()) == TOKENS * (4 * 36 + 6)


BOTH = """
import runpy, sys
for program in sys.argv[2:]:
    sys.argv = [program, sys.argv[1], "--tokens", "2"]
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as stopped:
        assert stopped.code == 0
"""


def test_with_another_engine_in_one_process(models, llama_engine, ggml_probe, naive_probe, tmp_path):  # noqa: F811
    script = BOTH.replace("sys.argv[2:]", repr([str(CHAT), str(EXAMPLES / "chat.py")]))
    command = [sys.executable, "-c", script, models["f32"]]
    golden, _ = naive_capture(naive_probe, tmp_path / "nodes", command)

    mine = capture(ggml_probe, tmp_path / "out", command)

    assert mine.stdout == plain_run(command)
    engines = json.loads((tmp_path / "out" / "manifest.json").read_text())["engines"]
    assert sorted(engine["version"] for engine in engines) == ["0.25.3", "0.26.0"]
    products = [out.raw for out in mine.outputs() if out.op == "MUL_MAT"]
    assert products and products == [node.raw for node in golden if node.op == "MUL_MAT"]
