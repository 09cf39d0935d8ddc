# SPDX-License-Identifier: Apache-2.0
"""The dump command around llama.cpp as the wheel xllamacpp brings it: one extension module, nothing rebuilt."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "ggml"))
CHAT = ROOT / "examples" / "ggml" / "chat.py"
CPU_FLAGS = {"avx2", "fma", "f16c", "bmi2"}  # what the wheel is compiled for

pytest.importorskip("xllamacpp")
pytestmark = pytest.mark.skipif(
    not set(Path("/proc/cpuinfo").read_text().split()) >= CPU_FLAGS, reason="the wheel needs AVX2, FMA, F16C and BMI2"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    import tiny_llama

    return tiny_llama.write_models(tmp_path_factory.mktemp("model"), types=("f32",))["f32"]


def dump(assay, output: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return assay("dump", "--host", "ggml", "-o", output, *words)


def records(rank: Path) -> list[dict]:
    return [json.loads(line) for line in (rank / "records.jsonl").read_text().splitlines()]


def operators(rank: Path, step: int = 0) -> list[dict]:
    return [r for r in records(rank) if r.get("kind") == "operator" and r["step"] == step]


def values(rank: Path, record: dict) -> np.ndarray:
    dtype = {"float32": np.float32, "int32": np.int32, "int64": np.int64}[record["dtype"]]
    with open(rank / record["file"], "rb") as file:
        file.seek(record["offset"])
        return np.frombuffer(file.read(record["bytes"]), dtype).reshape(record["shape"])


@pytest.fixture(scope="module")
def run(assay, model, tmp_path_factory):
    output = tmp_path_factory.mktemp("ggml") / "out"
    done = dump(assay, output, "--steps", "all", "--", sys.executable, CHAT, model)
    assert done.returncode == 0, done.stderr
    return done, output / "rank0"


@pytest.mark.parametrize("options", [[], ["--threads", "2", "--flash-attention"], ["--contexts", "2"]])
def test_tokens_and_log_probabilities_are_the_same_with_and_without(assay, model, tmp_path, options):
    plain = subprocess.run([sys.executable, CHAT, model, *options], stdout=subprocess.PIPE, text=True, check=True)
    done = dump(assay, tmp_path / "out", "--steps", "all", "--", sys.executable, CHAT, model, *options)
    assert "logprobs" in plain.stdout
    assert done.stdout == plain.stdout


def test_every_computed_node_of_a_graph_is_recorded_once(run):
    done, rank = run
    nodes = operators(rank)
    # Four layers of 36 nodes and six outside; the three that ggml 0.26 never computes are not there.
    assert len(nodes) == 150
    assert len({n["node"] for n in nodes}) == 150
    assert [n["order"] for n in nodes] == sorted(n["order"] for n in nodes)
    assert "ggml nodes" in done.stderr and "next: assay opcheck" in done.stderr


def test_names_and_parameters_are_those_of_the_engine(run):
    by_name = {n["node"]: n for n in operators(run[1])}
    assert by_name["norm-3::ggml.rms_norm.1"]["args"]["eps"] == 1e-05  # the second of that name
    rope = by_name["Qcur-0::ggml.rope.0"]["args"]
    assert (rope["n_dims"], rope["mode"], rope["freq_base"], rope["freq_scale"]) == (64, 0, 10000, 1)
    assert by_name["kq_soft_max-0::ggml.soft_max.0"]["args"]["scale"] == 0.125  # 1 / sqrt(64)
    assert by_name["ffn_swiglu-0::ggml.glu.0"]["args"]["op"] == "SWIGLU"
    assert by_name["(attn_out-3)::ggml.get_rows.0"]["module"] == "(attn_out-3)"  # has no name of its own
    assert by_name["cache_k_l0 (view)::ggml.set_rows.0"]["writes"] == ["src2"]


def test_inputs_share_the_bytes_of_their_producer_and_numbers_agree(run):
    rank = run[1]
    lines = {r["n"]: r for r in records(rank)}
    step = [r for r in lines.values() if r["step"] == 1]
    norm_in, norm_out = (
        next(r for r in step if r["node"] == "norm-0::ggml.rms_norm.0" and r.get("role") == role)
        for role in ("input", "output")
    )
    assert lines[norm_in["from"]]["node"] == "embd::ggml.get_rows.0"
    assert norm_in["same_as"] == norm_in["from"]
    x = values(rank, norm_in).astype(np.float64)
    expected = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(values(rank, norm_out), expected, rtol=1e-5, atol=1e-6)


def test_inputs_of_the_host_have_bytes_once_and_weights_and_caches_have_none(run):
    rank = run[1]
    step = [r for r in records(rank) if r["step"] == 1]
    tokens = [r for r in step if r.get("leaf") == "inp_tokens"]
    assert values(rank, tokens[0]).tolist() == [1, 50, 60, 70, 300]
    assert values(rank, next(r for r in step if r.get("leaf") == "inp_pos")).tolist() == [0, 1, 2, 3, 4]
    weights = [r for r in step if r.get("leaf", "").endswith(".weight")]
    caches = [r for r in step if "cache_" in r.get("leaf", "")]
    assert weights and not any("file" in r for r in weights)
    assert caches and not any("file" in r for r in caches)
    written = [r for r in step if r["type"] == "ggml.set_rows" and r.get("role") == "output"]
    assert written and not any("file" in r for r in written)


def test_aliases_point_into_the_bytes_of_their_root(run):
    rank = run[1]
    lines = [r for r in records(rank) if r["step"] == 0 and r.get("role") == "output"]
    product, alias = (next(r for r in lines if r["node"] == f"Qcur-0::ggml.{op}.0") for op in ("mul_mat", "reshape"))
    assert alias["same_as"] == product["n"] and alias["offset"] == product["offset"]
    assert alias["storage"] == product["storage"] and alias["vid"] != product["vid"]
    permuted = next(r for r in lines if r["node"] == "Qcur-0 (view) (permuted)::ggml.permute.0")
    assert "file" not in permuted and permuted["storage"] != alias["storage"]


def test_step_files_are_safetensors(run):
    path = run[1] / "step-000000.safetensors"
    size = struct.unpack("<Q", path.read_bytes()[:8])[0]
    header = json.loads(path.read_bytes()[8 : 8 + size])
    end = max(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
    assert path.stat().st_size == 8 + size + end


def test_the_manifest_names_the_engine(run):
    manifest = json.loads((run[1].parent / "manifest.json").read_text())
    assert manifest["complete"] and manifest["config"]["level"] == "operator"
    assert manifest["host"]["kind"] == "ggml"
    engine = manifest["engines"][0]
    assert "xllamacpp" in engine["file"] and engine["version"] == "0.26.0" and len(engine["build_id"]) == 40


def test_the_topology_becomes_an_onnx_graph(assay, run, tmp_path):
    onnx = pytest.importorskip("onnx")

    done = assay("graph", run[1] / "topology.json", "-o", tmp_path / "graph.onnx")

    assert done.returncode == 0, done.stderr
    nodes = {node.name: node for node in onnx.load(tmp_path / "graph.onnx").graph.node}
    assert len(nodes) == 150
    attention = next(node for name, node in nodes.items() if name.startswith("kq_soft_max-0"))
    assert any("kq-0" in name for name in attention.input)


def test_filters_choose_steps_names_and_operators(assay, model, tmp_path):
    options = ["--steps", "1-2", "--modules", "ffn_*", "l_out-*", "--exclude", "ffn_up-*", "-opname", "mul_mat,add"]
    done = dump(assay, tmp_path / "out", *options, "--", sys.executable, CHAT, model)
    assert done.returncode == 0, done.stderr
    found = [r for r in records(tmp_path / "out" / "rank0") if r.get("kind") == "operator"]
    assert {r["step"] for r in found} == {1, 2}
    expected = {f"{name}-{i}::ggml.mul_mat.0" for name in ("ffn_gate", "ffn_out") for i in range(4)}
    expected |= {f"{name}-{i}::ggml.add.0" for name in ("ffn_inp", "l_out") for i in range(4)}
    assert {r["node"] for r in found} == expected


def test_statistics_are_those_of_the_full_data(assay, model, tmp_path, run):
    rank = run[1]
    done = dump(assay, tmp_path / "out", "--statistics", "--", sys.executable, CHAT, model)
    assert done.returncode == 0, done.stderr
    # The warm-up does not count, so that the prompt behind it is there, too.
    measured = {
        r["node"]: r["stats"]
        for r in records(tmp_path / "out" / "rank0")
        if r["step"] == 1 and r.get("role") == "output" and "stats" in r
    }
    assert "graph 0 was a warm-up" in done.stderr
    full = [r for r in records(rank) if r["step"] == 1 and r.get("role") == "output" and "file" in r]
    assert len(measured) == len(full) > 90
    for record in full:
        data = values(rank, record).astype(np.float64)
        finite = data[np.isfinite(data)]
        assert measured[record["node"]]["count"] == data.size
        assert measured[record["node"]]["min"] == finite.min()
        assert measured[record["node"]]["l2"] == pytest.approx(np.sqrt((finite**2).sum()), rel=1e-12)
    assert not list((tmp_path / "out" / "rank0").glob("*.safetensors"))


def test_the_configuration_file_switches_the_capture_off(assay, model, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"dump_enable": "false", "er": "all"}))
    config.chmod(0o600)
    done = dump(assay, tmp_path / "out", "-config", config, "--", sys.executable, CHAT, model)
    assert done.returncode == 0
    assert not (tmp_path / "out" / "rank0").exists()
    config.write_text(json.dumps({"dump_enable": "true", "er": "1,1"}))
    config.chmod(0o600)
    done = dump(assay, tmp_path / "out", "-config", config, "--", sys.executable, CHAT, model)
    assert {r["step"] for r in records(tmp_path / "out" / "rank0")} == {1}


def test_a_child_process_has_its_own_folder_and_a_silent_parent_none(assay, model, tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(
        "import subprocess, sys\nfor _ in range(2): subprocess.run([sys.executable, *sys.argv[1:]], check=True)\n"
    )
    done = dump(assay, tmp_path / "out", "--", sys.executable, script, CHAT, model)
    assert done.returncode == 0, done.stderr
    ranks = sorted(p.name for p in (tmp_path / "out").iterdir() if p.name.startswith("rank"))
    assert len(ranks) == 2 and ranks[0] == "rank0" and ranks[1].startswith("rank0-")
    assert all(len(operators(tmp_path / "out" / rank)) == 150 for rank in ranks)


def test_a_library_that_never_computes_is_named(assay, tmp_path):
    done = dump(assay, tmp_path / "out", "--", sys.executable, "-c", "import xllamacpp; print('hello')")
    assert done.stdout == "hello\n"
    assert "no compute call was seen" in done.stderr


def test_the_probe_is_inert_without_a_request(model):
    build = Path(os.environ.get("ASSAY_BUILD_DIR", ROOT / "build" / "release")).absolute()
    environment = {**os.environ, "LD_PRELOAD": str(build / "lib" / "assay" / "libggml_probe.so")}
    environment.pop("ASSAY_GGML_DUMP", None)
    with_probe, without = (
        subprocess.run([sys.executable, CHAT, model], stdout=subprocess.PIPE, text=True, check=True, env=e).stdout
        for e in (environment, None)
    )
    assert with_probe == without


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["--modules", "fnn_out-*"], "--modules 'ffn_out-*'"),
        (["--modules", "l_ot-0"], "--modules 'l_out-0'"),
        (["-opname", "mulmat"], "-opname mul_mat"),
    ],
)
def test_what_matches_no_node_is_told_with_the_nearest_name(assay, model, tmp_path, words, near):
    done = dump(assay, tmp_path / "out", *words, "--", sys.executable, CHAT, model)
    [warning] = [line for line in done.stderr.splitlines() if "matches" in line]
    assert f" matches {' '.join(words)}; did you mean {near}? 'assay graph " in warning
    assert (tmp_path / "out" / "rank0" / "topology.json").exists() and f"{tmp_path}/out/rank0/topology.json" in warning


def test_a_run_is_named_once_by_its_own_folder(run):
    done, rank = run
    said = [line for line in done.stderr.splitlines() if line.startswith("assay: ") and str(rank) in line]
    assert len(said) == 1 and " ggml nodes " in said[0]
    assert "before its capture was complete" not in done.stderr
    assert f"assay: next: assay opcheck {rank.parent}\n" in done.stderr
