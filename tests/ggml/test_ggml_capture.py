# SPDX-License-Identifier: Apache-2.0
"""What the probe captures is what a naive probe sees, node by node and bit by bit, and the hosts notice neither."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from bench import record_lines
from naive_capture import Node, naive_capture

CHAT = Path(__file__).resolve().parents[2] / "examples" / "ggml" / "chat.py"
ALIASES = {"RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE"}


@dataclass(frozen=True)
class Output:
    step: int
    name: str
    op: str
    ne: tuple[int, ...]
    raw: bytes | None


@dataclass(frozen=True)
class Capture:
    stdout: str
    stderr: str
    lines: list[dict]
    folder: Path

    def outputs(self) -> list[Output]:
        """The output of every operator, in order."""
        payloads: dict[str, bytes] = {}
        found = []
        for line in self.lines:
            if line.get("role") != "output":
                continue
            raw = None
            if "file" in line:
                payload = payloads.setdefault(line["file"], (self.folder / line["file"]).read_bytes())
                raw = payload[line["offset"] : line["offset"] + line["bytes"]]
            name, operator = line["node"].rsplit("::ggml.", 1)
            found.append(Output(line["step"], name, operator.rsplit(".", 1)[0].upper(), tuple(line["ne"]), raw))
        return found


@pytest.fixture(scope="session")
def ggml_probe(build_folder) -> Path:
    library = build_folder / "lib" / "assay" / "libggml_probe.so"
    assert library.exists(), f"{library} is not built"
    return library


def capture(probe: Path, out: Path, command, **settings: object) -> Capture:
    environment = {
        **os.environ,
        "LD_PRELOAD": str(probe),
        "ASSAY_GGML_DUMP": json.dumps({"output": str(out), "steps": "all", **settings}),
    }
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    records = out / "rank0" / "records.jsonl"
    lines = record_lines.read(records) if records.exists() else []
    return Capture(done.stdout, done.stderr, lines, out / "rank0")


def plain_run(command) -> str:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=True).stdout


def hold_against(mine: list[Output], golden: list[Node]) -> int:
    """Every node in order; the bytes of all that compute, but for writes to caches. Returns how many these were."""
    assert [(out.step, out.op, out.ne) for out in mine] == [(node.graph, node.op, node.ne) for node in golden]
    compared = 0
    for out, node in zip(mine, golden):
        assert out.name == node.name or (out.name.startswith("(") and node.name.startswith(("node_", " ("))), node.name
        if node.op in ALIASES or node.op == "SET_ROWS":  # the latter's result is the whole cache
            continue
        assert out.raw == node.raw, (out.step, node.name, node.op)
        compared += 1
    return compared


@pytest.mark.parametrize(
    "arguments",
    ["", "--compute sync --rebuild", "--backends 2 --parallel", "--backends 2 --split", "--type q4_0 --cpu-threads 2"],
)
def test_every_node_of_a_cpp_host(arguments, ggml_host, ggml_probe, naive_probe, tmp_path):
    command = [ggml_host, *arguments.split()]
    golden, _ = naive_capture(naive_probe, tmp_path / "nodes", command)

    mine = capture(ggml_probe, tmp_path / "out", command)

    assert mine.stdout == plain_run(command)
    # Four graphs; a layer has 20 nodes with bytes of their own and two rows are chosen in the last one.
    assert hold_against(mine.outputs(), golden) >= 4 * 2 * 20


@pytest.mark.parametrize("callback", ["watch", "all", "cancel"])
def test_the_host_s_own_callback_sees_the_same(callback, ggml_host, ggml_probe, tmp_path):
    command = [ggml_host, "--callback", callback, "--backends", 2, "--split"]

    mine = capture(ggml_probe, tmp_path / "out", command)

    assert mine.stdout == plain_run(command)
    assert mine.outputs()


def test_threads_with_schedulers_of_their_own(ggml_host, ggml_probe, tmp_path):
    command = [ggml_host, "--threads", 2, "--schedulers", 2, "--runs", 2]

    mine = capture(ggml_probe, tmp_path / "out", command)

    assert mine.stdout == plain_run(command)
    # 2 threads, 2 schedulers, 2 runs, 4 graphs.
    assert {out.step for out in mine.outputs()} == set(range(32))
    last = [out for out in mine.outputs() if out.name.endswith("result_output")]
    assert len(last) == 32 and all(out.raw is not None for out in last)


@pytest.mark.parametrize("kind", ["f32", "q8_0", "q4_0"])
def test_every_node_of_llama_cpp(kind, models, llama_engine, ggml_probe, naive_probe, tmp_path):
    command = [sys.executable, CHAT, models[kind], "--tokens", 3]
    golden, _ = naive_capture(naive_probe, tmp_path / "nodes", command)

    mine = capture(ggml_probe, tmp_path / "out", command)

    assert mine.stdout == plain_run(command)
    # Four layers with 17 nodes that compute: norms, products, rope, soft-max ...
    assert hold_against(mine.outputs(), golden) >= 4 * 4 * 17


@pytest.mark.parametrize("arguments", ["--flash-attention --cache-type f16", "--flash-attention --cache-type q8_0"])
def test_flash_attention_and_quantised_caches(arguments, models, llama_engine, ggml_probe, naive_probe, tmp_path):
    command = [sys.executable, CHAT, models["f32"], "--tokens", 2, *arguments.split()]
    golden, _ = naive_capture(naive_probe, tmp_path / "nodes", command)

    mine = capture(ggml_probe, tmp_path / "out", command)

    assert mine.stdout == plain_run(command)
    hold_against(mine.outputs(), golden)
    assert any(out.op == "FLASH_ATTN_EXT" and out.raw for out in mine.outputs())


TWO_ENGINES = """
import ctypes, runpy, sys
model, library = sys.argv[1:]
def host(*arguments):
    arguments = [b"ggml_host", *arguments]
    assert ctypes.CDLL(library).ggml_host_main(len(arguments), (ctypes.c_char_p * len(arguments))(*arguments)) == 0
sys.argv = ["chat", model, "--tokens", "2"]
host(b"--steps", b"1")
try:
    runpy.run_path(CHAT, run_name="__main__")
except SystemExit as stopped:
    assert stopped.code == 0
host(b"--steps", b"2")
"""


def test_two_engines_in_one_process(ggml_host, models, llama_engine, ggml_probe, naive_probe, tmp_path):
    # The library's functions and those of the extension have the same names, in no common name space.
    script = TWO_ENGINES.replace("CHAT", repr(str(CHAT)))
    command = [sys.executable, "-c", script, models["f32"], ggml_host.with_suffix(".so")]
    golden, _ = naive_capture(naive_probe, tmp_path / "nodes", command)

    mine = capture(ggml_probe, tmp_path / "out", command)

    assert mine.stdout == plain_run(command)
    engines = json.loads((tmp_path / "out" / "manifest.json").read_text())["engines"]
    assert sorted(engine["version"] for engine in engines) == ["0.13.1", "0.26.0"]
    # Two graphs of the library, three or four of llama.cpp, three of the library, whose scheduler is another then.
    assert {out.step for out in mine.outputs()} == {node.graph for node in golden}
    assert [out.raw for out in mine.outputs() if out.op == "ROPE"] == [n.raw for n in golden if n.op == "ROPE"]


def test_every_process_of_a_command_has_a_folder(ggml_host, ggml_probe, tmp_path):
    command = ["bash", "-c", f"'{ggml_host}' --seed 1 && '{ggml_host}' --seed 2 && '{ggml_host}' --no-compute"]

    mine = capture(ggml_probe, tmp_path / "out", command)

    assert mine.stdout == plain_run(command)
    ranks = [folder for folder in (tmp_path / "out").iterdir() if folder.is_dir()]
    assert len(ranks) == 2
    assert len({(rank / "step-000000.safetensors").read_bytes() for rank in ranks}) == 2


def fake_graph(step):
    """What tests/ggml/fake_host.cpp computes: (name, operator) -> values."""

    def norm(values):  # each row over the root of its mean square plus 0.25
        return values / np.sqrt((values**2).mean(-1, keepdims=True) + 0.25)

    x = np.arange(8.0).reshape(2, 4) + step
    second = norm(x) + x
    third = norm(second)
    return {
        ("twice", "ADD"): x + x,
        ("first", "RMS_NORM"): norm(x),
        ("second", "ADD"): second,
        ("third", "RMS_NORM"): third,
        ("fourth", "ADD"): third + second,
        ("fifth", "ADD"): second + x + x,
    }


def assert_is_fake_graph(mine, step, missing=()):
    outputs = {(out.name, out.op): out for out in mine.outputs() if out.step == step}
    expected = {key: values for key, values in fake_graph(step).items() if key[0] not in missing}
    assert {key for key, out in outputs.items() if out.raw is not None and out.op != "VIEW"} == set(expected)
    for key, values in expected.items():
        found = np.frombuffer(outputs[key].raw, np.float32).reshape(2, 4)
        np.testing.assert_allclose(found, values, rtol=1e-6, err_msg=f"{key} of step {step}")
    assert "fourth" in missing or outputs["fourth (view)", "VIEW"].ne == (4, 1, 1, 1)


def starts_of(mine):
    return [int(line.split()[1]) for line in mine.stderr.splitlines() if line.startswith("starts ")]


def test_a_shuffled_engine_is_measured(build_folder, ggml_probe, tmp_path):
    command = [build_folder / "tests" / "ggml" / "fake_host_shuffled"]

    mine = capture(ggml_probe, tmp_path / "out", command)

    assert mine.stdout == plain_run(command)
    for step in range(5):
        assert_is_fake_graph(mine, step)
        printed = [float.fromhex(word) for word in mine.stdout.splitlines()[step].split()[2:]]
        np.testing.assert_allclose(printed, fake_graph(step)["fourth", "ADD"].ravel(), rtol=1e-6)


def test_the_engine_is_stopped_only_where_a_result_would_be_lost(build_folder, ggml_probe, tmp_path):
    command = [build_folder / "tests" / "ggml" / "fake_host_shuffled"]

    mine = capture(ggml_probe, tmp_path / "out", command)

    # In the first call at each of six nodes, to see their order; later not at `twice` and `second`: `fifth` reads them.
    # `first` has one reader, and what comes after `third` is in its memory.
    assert starts_of(mine) == [6, 4, 4, 4, 4]
    # Names that are not asked for are no reason to stop: `first` is computed with `second`, and stays out of memory.
    some = capture(ggml_probe, tmp_path / "some", command, names=["twice", "second"])
    assert starts_of(some) == [3, 2, 2, 2, 2]  # and what comes after the last stop
    for step in range(5):
        assert_is_fake_graph(some, step, missing=["first", "third", "fourth", "fifth"])
    assert starts_of(capture(ggml_probe, tmp_path / "sync", command, sync=True)) == [6, 6, 6, 6, 6]


def test_an_engine_that_changes_the_order_of_nodes_is_stopped_at_each(build_folder, ggml_probe, tmp_path, monkeypatch):
    command = [build_folder / "tests" / "ggml" / "fake_host_shuffled"]
    monkeypatch.setenv("FAKE_SWAPPED_CALL", "2")  # first, second, twice, third ...

    mine = capture(ggml_probe, tmp_path / "out", command)

    assert mine.stdout == plain_run(command)
    # In call 2 the order is found to be another one when `second` has been asked for and not yet read.
    assert starts_of(mine) == [6, 4, 5, 6, 6]
    for step in range(5):
        assert_is_fake_graph(mine, step, missing=["second"] if step == 2 else [])
    missed = json.loads((tmp_path / "out" / "manifest.json").read_text())["coverage"]["missed"]
    assert [(entry["node"], entry["count"]) for entry in missed] == [("second", 1)]
    assert "another order" in missed[0]["reason"]


@pytest.mark.parametrize(
    ("kind", "reason"), [("ambiguous", "'ne' in a tensor was found 2 times"), ("old", "ggml_op_desc is missing")]
)
def test_an_engine_that_cannot_be_measured_is_left_alone(kind, reason, build_folder, ggml_probe, tmp_path):
    command = [build_folder / "tests" / "ggml" / f"fake_host_{kind}"]

    mine = capture(ggml_probe, tmp_path / "out", command)

    assert mine.stdout == plain_run(command)
    assert mine.lines == []
    assert reason in mine.stderr
    assert len([line for line in mine.stderr.splitlines() if not line.startswith("starts ")]) == 1


def test_a_host_that_never_computes_leaves_nothing(ggml_host, ggml_probe, tmp_path):
    mine = capture(ggml_probe, tmp_path / "out", [ggml_host, "--no-compute"])

    assert mine.stdout == "ggml 0.13.1\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("settings", [{}, {"full": False, "statistics": True}, {"digest": True}])
def test_lines_of_later_steps_refer_to_those_of_the_first(settings, ggml_host, ggml_probe, tmp_path):
    mine = capture(ggml_probe, tmp_path / "out", [ggml_host], **settings)

    # The host's graphs are of a prompt, and of tokens that are one graph.
    texts = (mine.folder / "records.jsonl").read_text().splitlines()
    assert len(texts) == len(mine.lines)
    steps = sorted({line["step"] for line in mine.lines if line["step"] > 0})
    assert len(steps) >= 2
    first, *later = ([i for i, line in enumerate(mine.lines) if line["step"] == step] for step in steps)
    in_full = {"type", "node", "order", "role", "slot", "kind", "dtype", "shape", "strides", "ne", "leaf", "args"}
    content = ("stats", "digest", "bytes")
    for numbers in later:
        for i, j in zip(first, numbers, strict=True):
            assert {key: mine.lines[i].get(key) for key in in_full} == {key: mine.lines[j].get(key) for key in in_full}
            assert [key in mine.lines[i] for key in content] == [key in mine.lines[j] for key in content]
        referring = [json.loads(texts[j]) for j in numbers if "like" in json.loads(texts[j])]
        assert len(referring) > 0.75 * len(numbers)
        assert {line["like"] for line in referring} <= {mine.lines[i]["n"] for i in first}
        assert sum(len(texts[j]) for j in numbers) < 0.5 * sum(len(texts[i]) for i in first)
