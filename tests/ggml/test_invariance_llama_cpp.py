# SPDX-License-Identifier: Apache-2.0
"""`assay invariance -- python -m assay.invariance MODEL.gguf`: slots of one batch of llama.cpp.

Skipped where llama-cpp-python is not installed (docs/design/ggml-engines.md).
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cli"))

from assay_command import run
from tiny_llama import SIZES

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed"
)

WORDS = ["--host", "ggml", "--vocabulary", SIZES["vocab_size"], "--one-process", "--json"]
LAYERS = SIZES["num_hidden_layers"]

# What the driver gives the engine; but behind the prompt each slot has the first cell of the slot before, too.
SHARED = """
import sys
import llama_cpp
from assay import invariance

decode = llama_cpp.llama_decode

def shared(context, batch):
    status = decode(context, batch)
    slots = {batch.seq_id[at][0] for at in range(batch.n_tokens)}
    memory = llama_cpp.llama_get_memory(context)
    for slot in range(1, len(slots)):
        llama_cpp.llama_memory_seq_cp(memory, slot - 1, slot, 0, 1)
    return status

llama_cpp.llama_decode = shared
sys.exit(invariance.main())
"""


def invariance(tmp_path: Path, *program: object, words: tuple[object, ...] = ()) -> tuple[int, dict]:
    done = run("invariance", *WORDS, *words, "--", sys.executable, *program, cwd=tmp_path)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("kind", ["f32", "q8_0"])
def test_no_slot_leaks_into_another(models, tmp_path, kind):
    status, found = invariance(tmp_path, "-m", "assay.invariance", models[kind])
    assert (status, found["leaks"]) == (0, [])
    # Three steps of a prompt and two tokens, in each layer products, norms, angles, attention.
    assert found["judged"] >= 3 * LAYERS * 20
    assert not any(one["beyond_rounding"] for one in found["not_invariant"])
    # Behind padding on the right there is no last token of all rows.
    compared = {one["scenario"] for one in found["logits"]}
    assert compared == {name for name in found["scenarios"] if name != "equal-1" and "right" not in name}


def test_a_cell_that_two_slots_share_is_a_leak_in_the_first_attention(models, tmp_path):
    script = tmp_path / "shared.py"
    script.write_text(SHARED)
    status, found = invariance(tmp_path, script, models["f32"], words=("--no-padding",))
    assert status == 1
    first = found["leaks"][0]
    assert (first["operator"], first["step"]) == ("ggml.flash_attn_ext", 1)
    assert "-0 " in first["node"]
    assert {"src1", "src2"} <= set(first["mixed"])  # keys and values of all slots lie in one cache


def test_each_scenario_may_have_a_process_of_its_own(models, tmp_path):
    words = [word for word in WORDS if word != "--one-process"]
    program = [sys.executable, "-m", "assay.invariance", models["f32"]]
    options = ["--no-padding", "--batch", 2, "--decode", 1, "--length", 3]
    done = run("invariance", *words, *options, "--", *program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["judged"] >= 2 * LAYERS * 20


def test_a_file_that_is_no_model_is_refused(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    done = run("invariance", *WORDS, "--", sys.executable, "-m", "assay.invariance", "x.gguf", cwd=tmp_path)
    assert done.returncode == 125
    assert "x.gguf: llama.cpp cannot load it" in done.stderr
