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
    lines = [json.loads(line) for line in records.read_text().splitlines()] if records.exists() else []
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


def test_a_shuffled_engine_is_measured(build_folder, ggml_probe, tmp_path):
    command = [build_folder / "tests" / "ggml" / "fake_host_shuffled"]

    mine = capture(ggml_probe, tmp_path / "out", command)

    assert mine.stdout == plain_run(command)
    printed = [[float.fromhex(word) for word in line.split()[2:]] for line in mine.stdout.splitlines()]
    for step, values in enumerate(printed):
        outputs = {(out.name, out.op): out for out in mine.outputs() if out.step == step}
        assert np.frombuffer(outputs["second", "ADD"].raw, np.float32).tolist() == values
        # x is step, step + 1 ...; each row over the root of its mean square plus 0.25.
        x = np.arange(8.0).reshape(2, 4) + step
        norm = x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.25)
        mine_norm = np.frombuffer(outputs["first", "RMS_NORM"].raw, np.float32).reshape(2, 4)
        np.testing.assert_allclose(mine_norm, norm, rtol=1e-6)
        assert outputs["second (view)", "VIEW"].ne == (4, 1, 1, 1)


@pytest.mark.parametrize(
    ("kind", "reason"), [("ambiguous", "'ne' in a tensor was found 2 times"), ("old", "ggml_op_desc is missing")]
)
def test_an_engine_that_cannot_be_measured_is_left_alone(kind, reason, build_folder, ggml_probe, tmp_path):
    command = [build_folder / "tests" / "ggml" / f"fake_host_{kind}"]

    mine = capture(ggml_probe, tmp_path / "out", command)

    assert mine.stdout == plain_run(command)
    assert mine.lines == []
    assert reason in mine.stderr
    assert len(mine.stderr.splitlines()) == 1


def test_a_host_that_never_computes_leaves_nothing(ggml_host, ggml_probe, tmp_path):
    mine = capture(ggml_probe, tmp_path / "out", [ggml_host, "--no-compute"])

    assert mine.stdout == "ggml 0.13.1\n"
    assert not (tmp_path / "out").exists()
