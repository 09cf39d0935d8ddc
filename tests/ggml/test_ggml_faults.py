# SPDX-License-Identifier: Apache-2.0
"""Each planted fault changes what it says first, and all before it stays the same to the bit."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hugging_face import PromptGraph, difference, load, reference, table
from naive_capture import Node, naive_capture
from planted_faults import FAULTS, MODEL_FAULTS, Fault, ModelFault

from assay.twin.gguf_file import convert

PROMPT = [1, 50, 60, 70, 300]
CHAT = Path(__file__).resolve().parents[2] / "examples" / "ggml" / "chat.py"


@pytest.fixture(scope="session")
def healthy_nodes(models, llama_engine, naive_probe, tmp_path_factory) -> list[Node]:
    return capture(naive_probe, models["f32"], tmp_path_factory.mktemp("healthy"))


def capture(probe: Path, model: Path, folder: Path) -> list[Node]:
    """The nodes of the prompt's graph, which is the second, in order."""
    prompt = ",".join(map(str, PROMPT))
    nodes, _ = naive_capture(probe, folder / "nodes", [sys.executable, CHAT, model, "--tokens", 1, "--prompt", prompt])
    return [node for node in nodes if node.graph == 1]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_shows_first_where_it_says(fault: Fault, healthy_nodes, models, naive_probe, tmp_path):
    convert(fault.plant(models["hf"], tmp_path / "hf"), tmp_path / "faulty.gguf")

    faulty = capture(naive_probe, tmp_path / "faulty.gguf", tmp_path)

    assert [(node.name, node.op) for node in faulty] == [(node.name, node.op) for node in healthy_nodes]
    changed = [mine for golden, mine in zip(healthy_nodes, faulty) if golden.raw != mine.raw]
    assert (changed[0].name, changed[0].op) == fault.node
    assert changed[-1].name == "result_output"


def first_difference(model, graph: PromptGraph) -> str | None:
    golden = reference(model, PROMPT)
    for place, name, op, heads in table(biased=False):
        if difference(golden[place], graph.rows(name, op, heads)) > 1e-4:
            return place
    return None


@pytest.mark.slow
@pytest.mark.parametrize("fault", MODEL_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_of_the_port_shows_against_a_healthy_engine(fault: ModelFault, healthy_nodes, models):
    graph = PromptGraph(healthy_nodes, PROMPT, "llama")
    model = load(models["hf"])
    assert first_difference(model, graph) is None

    fault.apply(model)

    assert first_difference(model, graph) == fault.place
