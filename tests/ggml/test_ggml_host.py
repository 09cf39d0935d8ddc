# SPDX-License-Identifier: Apache-2.0
"""The C++ program on ggml computes the Llama it claims, and the same bits in every way of computing it."""

from __future__ import annotations

import re
import subprocess

import numpy as np
import pytest

LAYERS, HIDDEN, HEADS, KV_HEADS, INTERMEDIATE, VOCAB, CELLS, SEED = 2, 64, 4, 2, 128, 96, 32, 1
HEAD = HIDDEN // HEADS
PROMPT = [(3 + 7 * i) % VOCAB for i in range(5)]
STEP = re.compile(r"step (\d+) status 0 nodes (\d+) splits (\d+) token (\d+) logits ([0-9a-f]{16})")


def run(program, *arguments: object) -> str:
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def steps(output: str) -> list[tuple[str, str]]:
    """(token, checksum of the logits) of every line."""
    return [match.groups()[3:] for match in STEP.finditer(output)]


def random_values(name: str, *shape: int) -> np.ndarray:
    """The values that the host documents: splitmix64 over seed, FNV-1a of the name and the index."""

    def splitmix64(state):
        state = state + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return state ^ (state >> np.uint64(31))

    hashed = 0xCBF29CE484222325
    for byte in name.encode():
        hashed = ((hashed ^ byte) * 0x100000001B3) % 2**64
    with np.errstate(over="ignore"):
        bits = splitmix64(np.uint64(SEED ^ hashed) ^ splitmix64(np.arange(np.prod(shape), dtype=np.uint64)))
    return ((bits >> np.uint64(40)).astype(np.int64) - 2**23).astype(np.float64).reshape(shape) / 2**23


def matrix(name: str, rows: int, columns: int) -> np.ndarray:
    scale = np.sqrt(np.float32(3 / columns))
    return (random_values(f"{name}.weight", rows, columns).astype(np.float32) * scale).astype(np.float64)


def norm(x: np.ndarray, name: str) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * (1 + random_values(f"{name}.weight", HIDDEN) / 2)


def rotate(x: np.ndarray, mode: int) -> np.ndarray:
    """x: (token, head, channel)."""
    angles = np.arange(len(x))[:, None, None] * 10000.0 ** (-np.arange(HEAD // 2) * 2 / HEAD)
    out = np.empty_like(x)
    first, second = (slice(0, None, 2), slice(1, None, 2)) if mode == 0 else (slice(HEAD // 2), slice(HEAD // 2, None))
    out[..., first] = x[..., first] * np.cos(angles) - x[..., second] * np.sin(angles)
    out[..., second] = x[..., first] * np.sin(angles) + x[..., second] * np.cos(angles)
    return out


def logits_of(tokens: list[int], rope_mode: int) -> np.ndarray:
    """Float64, (token, vocabulary)."""
    count = len(tokens)
    x = matrix("token_embd", VOCAB, HIDDEN)[tokens]
    for layer in range(LAYERS):
        name = f"blk.{layer}"
        y = norm(x, f"{name}.attn_norm")
        query = (y @ matrix(f"{name}.attn_q", HIDDEN, HIDDEN).T).reshape(count, HEADS, HEAD)
        key = (y @ matrix(f"{name}.attn_k", KV_HEADS * HEAD, HIDDEN).T).reshape(count, KV_HEADS, HEAD)
        value = (y @ matrix(f"{name}.attn_v", KV_HEADS * HEAD, HIDDEN).T).reshape(count, KV_HEADS, HEAD)
        key, value = (rows.repeat(HEADS // KV_HEADS, axis=1) for rows in (rotate(key, rope_mode), value))
        scores = np.einsum("thc,shc->hts", rotate(query, rope_mode), key) / np.sqrt(HEAD)
        scores[:, np.triu(np.ones((count, count), dtype=bool), 1)] = -np.inf
        chances = np.exp(scores - scores.max(-1, keepdims=True))
        chances /= chances.sum(-1, keepdims=True)
        mixed = np.einsum("hts,shc->thc", chances, value).reshape(count, HIDDEN)
        x = x + mixed @ matrix(f"{name}.attn_output", HIDDEN, HIDDEN).T
        y = norm(x, f"{name}.ffn_norm")
        gate = y @ matrix(f"{name}.ffn_gate", INTERMEDIATE, HIDDEN).T
        up = y @ matrix(f"{name}.ffn_up", INTERMEDIATE, HIDDEN).T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ matrix(f"{name}.ffn_down", HIDDEN, INTERMEDIATE).T
    return norm(x, "output_norm") @ matrix("output", VOCAB, HIDDEN).T


@pytest.mark.parametrize("rope_mode", [0, 2])
def test_the_host_computes_a_llama(rope_mode, ggml_host, tmp_path):
    output = run(ggml_host, "--rope-mode", rope_mode, "--logits", tmp_path / "logits")

    mine = np.fromfile(tmp_path / "logits", np.float32).reshape(4, VOCAB)
    tokens = [int(token) for token, _ in steps(output)]
    golden = logits_of(PROMPT + tokens[:-1], rope_mode)[len(PROMPT) - 1 :]
    assert tokens == golden.argmax(-1).tolist()
    assert np.abs(golden - mine).max() / np.abs(golden).max() < 1e-5


@pytest.mark.parametrize(
    "arguments",
    [
        "--compute sync",
        "--compute direct",
        "--rebuild",
        "--backends 2",
        "--backends 2 --parallel",
        "--backends 2 --parallel --compute sync",
        "--backends 2 --split",
        "--backends 2 --split --parallel --rebuild",
        "--cpu-threads 2",
        "--callback watch",
        "--callback all",
    ],
)
def test_every_way_of_computing_gives_the_same_bits(arguments, ggml_host):
    plain = run(ggml_host)

    other = run(ggml_host, *arguments.split())

    assert len(steps(plain)) == 4
    assert steps(other) == steps(plain)
    assert {splits for _, _, splits, _, _ in STEP.findall(other)} == {"2" if "--split" in arguments else "1"}


def test_threads_and_schedulers_have_models_of_their_own(ggml_host):
    # Thread i, scheduler k of two: seed 1 + 2 i + k. Schedulers of a thread take turns.
    alone = [steps(run(ggml_host, "--seed", seed)) for seed in (1, 2, 3, 4)]

    both = run(ggml_host, "--threads", 2, "--schedulers", 2, "--runs", 2)

    _, first, second = both.split("thread ")
    for text, (one, other) in ((first, alone[:2]), (second, alone[2:])):
        turns = [step for pair in zip(one, other) for step in pair]
        assert steps(text) == turns + turns


def test_the_host_s_callback_is_asked_for_every_node_and_can_stop_a_graph(ggml_host):
    watched = run(ggml_host, "--callback", "watch", "--steps", 0)
    stopped = run(ggml_host, "--callback", "cancel", "--steps", 0)
    split = run(ggml_host, "--callback", "cancel", "--steps", 0, "--backends", 2, "--split")

    nodes = int(STEP.search(watched).group(2))
    assert f"asked {nodes} " in watched
    assert re.findall(r"node (\S+)", watched) == ["l_out-0", "l_out-1"]
    assert re.findall(r"node (\S+)", stopped) == ["l_out-0"]
    assert "status 0" in stopped
    # Only the rest of the split is stopped: the second one runs.
    assert re.findall(r"node (\S+)", split) == ["l_out-0", "l_out-1"]


@pytest.mark.parametrize(("kind", "limit"), [("f16", 2e-3), ("q8_0", 5e-2), ("q4_0", 6e-1)])
def test_coarser_weights_are_near(kind, limit, ggml_host, tmp_path):
    run(ggml_host, "--type", kind, "--steps", 0, "--logits", tmp_path / "logits")

    golden = logits_of(PROMPT, 0)[-1]
    difference = np.fromfile(tmp_path / "logits", np.float32) - golden
    assert 1e-6 < np.sqrt(np.mean(difference**2)) / golden.std() < limit


def test_wrong_arguments_are_refused(ggml_host):
    done = subprocess.run([ggml_host, "--split"], capture_output=True, text=True)

    assert done.returncode == 2
    assert "--split needs two back ends" in done.stderr
