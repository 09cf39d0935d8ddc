# SPDX-License-Identifier: Apache-2.0
"""topology.json of a ggml run: the nodes of the records, wired as the graph computes."""

from __future__ import annotations

import json
import sys

import pytest
from test_ggml_capture import CHAT, capture, ggml_probe  # noqa: F401 - a fixture


@pytest.fixture
def topology(models, llama_engine, ggml_probe, tmp_path):  # noqa: F811
    run = capture(ggml_probe, tmp_path / "out", [sys.executable, CHAT, models["f32"], "--tokens", 1])
    return run, json.loads((run.folder / "topology.json").read_text())


def test_its_nodes_are_those_of_the_records(topology):
    run, graph = topology
    recorded = [line for line in run.lines if line.get("kind") == "operator" and line["step"] == 0]
    assert [(node["opName"], node["opType"]) for node in graph["nodes"]] == [(r["node"], r["type"]) for r in recorded]
    assert [node["param"] for node in graph["nodes"]] == [line["args"] for line in recorded]


def test_every_source_is_an_earlier_node_or_a_leaf(topology):
    _, graph = topology
    known = {leaf["name"] for leaf in graph["leafs"]}
    for node in graph["nodes"]:
        assert set(node["inTensors"]) <= known, node["opName"]
        assert node["outTensors"] == [node["opName"]]
        known.add(node["opName"])
    leaves = {leaf["name"] for leaf in graph["leafs"]}
    assert {"token_embd.weight", "blk.3.ffn_down.weight", "cache_k_l0", "inp_tokens", "inp_pos"} <= leaves


def test_edges_are_those_of_the_records_and_readers_of_a_cache_follow_its_writer(topology):
    run, graph = topology
    by_number = {line["n"]: line for line in run.lines}
    inputs = {
        (line["node"], line["slot"]): by_number[line["from"]]["node"]
        for line in run.lines
        if line["step"] == 0 and line.get("role") == "input" and "from" in line
    }
    sources = {node["opName"]: node["inTensors"] for node in graph["nodes"]}
    for node in graph["nodes"]:
        slots = [name for name, value in node["param"].items() if isinstance(value, dict) and "tensor" in value]
        for slot, source in zip(slots, node["inTensors"]):
            if (node["opName"], slot) in inputs and "cache_" not in node["opName"]:
                # An alias that returns what it was given made nothing: records name the maker before it.
                maker = inputs[node["opName"], slot]
                while source != maker and any(f"::ggml.{op}." in source for op in ("reshape", "view", "permute")):
                    source = sources[source][0]
                assert source == maker, (node["opName"], slot)
    # Its only source is the leaf; what the leaf holds is SET_ROWS' work.
    assert sources["cache_k_l0 (view)::ggml.view.0"] == ["cache_k_l0 (view)::ggml.set_rows.0"]
