# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face Llama with random weights under torch.compile with our backend: prefill and decode.

Oracle for outputs: the model run eagerly, bit for bit. Oracle for the files: the operators that a dispatch mode sees in
that eager run.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from dump_reading import index_of, run_folder, step_dumps, the_only
from torch.utils._python_dispatch import TorchDispatchMode

from assay.torch.graph import CompilerConfig, get_backend, step

transformers = pytest.importorskip("transformers")


def llama(dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=128, max_position_embeddings=64,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).to(dtype).eval()


def generate(model: Any, tokens: int, advance: Any) -> list[torch.Tensor]:
    """Logits of a prefill of 8 tokens and of `tokens` - 1 decode steps."""
    logits = []
    with torch.no_grad():
        out = model(input_ids=torch.arange(1, 9)[None], use_cache=True)
        logits.append(out.logits.clone())
        for _ in range(tokens - 1):
            advance()
            following = out.logits[:, -1:].argmax(-1)
            out = model(input_ids=following, past_key_values=out.past_key_values, use_cache=True)
            logits.append(out.logits.clone())
    return logits


class Recorder(TorchDispatchMode):
    """Outputs of every operator that eager torch runs, by its name, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, list[torch.Tensor]] = defaultdict(list)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.seen[str(func)].append(out.detach().clone())
        return out


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_prefill_and_decode(tmp_path: Path, dtype: torch.dtype, dynamic: bool) -> None:
    tokens = 3 if dynamic else 2
    model = llama(dtype)
    recorder = Recorder()
    with recorder:
        expected = generate(model, tokens, lambda: None)

    config = CompilerConfig()
    config.dump_config.enable_dump = True
    config.dump_config.dump_path = str(tmp_path)
    backend = get_backend(config)
    logits = generate(torch.compile(model, backend=backend, dynamic=dynamic), tokens, step)
    backend.close()

    # The run is not changed, and nothing is missing or hidden.
    assert [torch.equal(mine, eager) for mine, eager in zip(logits, expected)] == [True] * tokens
    run = run_folder(tmp_path)
    index = index_of(run)
    graphs = index["graphs"]
    assert index["breaks"] == [] and len(graphs) == 2, "prefill and decode"
    assert [graph["steps"] for graph in graphs] == [[0], list(range(1, tokens))]
    assert all(graph["planned"] == graph["dumped"] > 190 and graph["missed"] == [] for graph in graphs)

    # Every operator of the text has its file, but those that compute with sizes alone.
    dumped: dict[str, list[torch.Tensor]] = defaultdict(list)
    for graph in graphs:
        text = the_only(run, f"dynamo_original_graph_{graph['graph']}_*.txt").read_text()
        blocks = re.split(r"^op \{$", text, flags=re.M)[1:]
        texts = {re.search(r'name: "([^"]+)"', block)[1]: block for block in blocks}  # type: ignore[index]
        for number in graph["steps"]:
            dumps = step_dumps(run, graph["graph"], number)
            silent = {name for name in texts if name not in dumps}
            for name in silent:
                kind = re.search(r'\n  type: "([^"]+)"', texts[name])[1]  # type: ignore[index]
                unread = kind == "Data" and not re.search(rf'"{name}:0"', text.replace(texts[name], ""))
                assert kind in ("Const", "NetOutput") or unread or "FakeTensor" not in texts[name], (name, kind)
            for dump in sorted(dumps.values(), key=lambda dump: dump.task):
                linked = re.search(r's: "[^"]+-(aten\.[^"]+)\.OUTPUT\.0"', texts[dump.name])
                if linked and dump.outputs:
                    dumped[linked[1]].append(dump.outputs[0].tensor)

    # What the operators gave is what eager torch's operators gave, in their order.
    for target in ("aten.mm.default", "aten.silu.default", "aten.embedding.default", "aten.rsqrt.default"):
        seen = recorder.seen[target]
        assert len(seen) == len(dumped[target]) > 0, target
        assert all(torch.equal(mine, eager) for mine, eager in zip(dumped[target], seen)), target


@pytest.mark.slow
def test_a_cache_that_the_graph_writes_into(tmp_path: Path) -> None:
    """Static cache: the graph overwrites its inputs. Against aot_eager, since the model masks otherwise when eager."""
    model = llama(torch.float32)

    def generate_static(run: Any) -> list[torch.Tensor]:
        cache = transformers.StaticCache(config=model.config, max_cache_len=16)
        ids, logits = torch.arange(1, 9)[None], []
        with torch.no_grad():
            for _ in range(2):
                out = run(input_ids=ids, past_key_values=cache, use_cache=True)
                logits.append(out.logits.clone())
                ids = out.logits[:, -1:].argmax(-1)
        return logits

    expected = generate_static(torch.compile(model, backend="aot_eager"))
    for level in (0, 1):
        torch._dynamo.reset()
        path = tmp_path / str(level)
        path.mkdir()
        config = CompilerConfig()
        config.dump_config.enable_dump = True
        config.dump_config.dump_path = str(path)
        config.execution.decomposition_level = level
        backend = get_backend(config)
        logits = generate_static(torch.compile(model, backend=backend))
        backend.close()
        assert [torch.equal(mine, plain) for mine, plain in zip(logits, expected)] == [True, True], level
        graphs = index_of(run_folder(path))["graphs"]
        assert all(graph["planned"] == graph["dumped"] > 150 and graph["missed"] == [] for graph in graphs)


@pytest.mark.slow
def test_training_step_has_the_same_gradients(tmp_path: Path) -> None:
    ids = torch.arange(1, 9)[None]
    gradients = []
    for compiled in (False, True):
        model = llama(torch.float32).train()
        run: Any = model
        if compiled:
            config = CompilerConfig()
            config.dump_config.enable_dump = True
            config.dump_config.dump_path = str(tmp_path)
            backend = get_backend(config)
            run = torch.compile(model, backend=backend)
        run(input_ids=ids, labels=ids).loss.backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    backend.close()
    assert all(torch.equal(gradients[0][name], gradients[1][name]) for name in gradients[0])
    forward, backward = index_of(run_folder(tmp_path))["graphs"]
    assert (forward["kind"], backward["kind"]) == ("forward", "backward")
    assert forward["planned"] == forward["dumped"] and backward["planned"] == backward["dumped"]
