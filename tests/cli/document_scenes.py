# SPDX-License-Identifier: Apache-2.0
"""What lies in the folder in which the commands of a document are typed. tests/cli/test_documents.py calls these."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import torch
import warm_python
from assay_command import binary, write_small_hook_dump, write_torch_tree
from atb_files import node
from dump_files import Dump, Operand, overflow_payload
from graph_dumps import fused, graph, write_current, write_text

ROOT = Path(__file__).parents[2]
BUILD = Path(os.environ.get("ASSAY_BUILD_DIR", ROOT / "build" / "release")).absolute()

PROGRAM = """\
import torch

torch.manual_seed(0)
WIDTH = 32


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.mlp = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + torch.nn.functional.gelu(self.mlp(self.norm(x)))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Block() for _ in range(6))
        self.lm_head = torch.nn.Linear(WIDTH, 8)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(x)


class Llm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Model()

    def forward(self, x):
        return self.model(x)


llm = Llm()
x = torch.randn(4, WIDTH)
FAULT
with torch.no_grad():
    for _ in range(2):
        llm(x)
"""


def python_programs(folder: Path) -> None:
    """run.py and ported.py: the same small model; in ported.py one norm is 3 % too large."""
    fault = "llm.model.layers[3].norm.weight.data *= 1.03"
    (folder / "run.py").write_text(PROGRAM.replace("FAULT", ""))
    (folder / "ported.py").write_text(PROGRAM.replace("FAULT", fault))


def captured_programs(folder: Path) -> None:
    """golden, captured from run.py."""
    python_programs(folder)
    subprocess.run(
        [binary(), "dump", "-o", "golden", "--", warm_python.python(), "run.py"],
        cwd=folder,
        check=True,
        capture_output=True,
    )


def published_config(folder: Path) -> None:
    """The configuration of a large model, without its weights."""
    values = {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "bos_token_id": 128000,
        "eos_token_id": 128001, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192},
    }  # fmt: skip
    (folder / "Meta-Llama-3.1-8B").mkdir()
    (folder / "Meta-Llama-3.1-8B" / "config.json").write_text(json.dumps(values))


SERVE = """\
import argparse

from transformers import AutoModelForCausalLM

from assay import twin

options = argparse.ArgumentParser()
options.add_argument("--model")
folder = options.parse_args().model
twin.run(AutoModelForCausalLM.from_pretrained(folder).eval(), folder)
"""


def workflow(folder: Path) -> None:
    """A repository with the configuration of a model, serve.py, which runs a checkpoint on the twin's prompts, and
    drive.py, which runs it on the scenarios of invariance."""
    published_config(folder)
    (folder / "Meta-Llama-3.1-8B" / "config.json").rename(folder / "config.json")
    (folder / "serve.py").write_text(SERVE)
    (folder / "drive.py").write_text('import runpy\n\nrunpy.run_module("assay.invariance", run_name="__main__")\n')
    (folder / "requirements.txt").write_text("transformers\n")


def git_repository(folder: Path) -> None:
    """run.py in a repository of eight commits, of which the fifth multiplies a norm's weight."""

    def git(*words: str) -> None:
        identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    for number in range(1, 9):
        fault = "llm.model.layers[3].norm.weight.data *= 1.03" if number >= 5 else ""
        (folder / "run.py").write_text(PROGRAM.replace("FAULT", fault) + f"# version {number}\n")
        git("add", "run.py")
        git("commit", "-q", "-m", "Scale the norm" if number == 5 else f"Change {number}")
        git("tag", f"v{number}")


def atb_host(folder: Path) -> None:
    """The program that plays the acceleration library."""
    (folder / "build").symlink_to(BUILD.parent)
    (folder / "serve").symlink_to(BUILD / "examples" / "atb_host" / "atb_host")


def programs(folder: Path) -> None:
    """One program of every kind that can be captured without more packages."""
    python_programs(folder)
    atb_host(folder)
    (folder / "run.sh").write_text("./serve\n")


SESSION = """\
import torch
from transformers import LlamaConfig, LlamaForCausalLM

sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)


def made():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**sizes, pad_token_id=0)).eval()


model, ported = made(), made()
with torch.no_grad():
    ported.model.layers[1].input_layernorm.weight *= 1.03
inputs = {"input_ids": torch.tensor([[1, 5, 9, 12]]), "attention_mask": torch.ones(1, 4, dtype=torch.long)}
"""


def llama_session(folder: Path) -> None:
    """What a notebook has before its first cell: a Llama of two layers, and a port with one norm 3 % too large."""
    (folder / "before.py").write_text(SESSION)
    (folder / "golden").mkdir()


MODELS = """\
import torch


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = torch.nn.LayerNorm(64), torch.nn.Linear(64, 64)

    def forward(self, x):
        return x + torch.nn.functional.gelu(self.mlp(self.norm(x)))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(*(Layer() for _ in range(4)))
        self.head = torch.nn.Linear(64, 8)
        self.table = torch.randn(16, 64)

    def forward(self, input_ids):
        return self.head(self.layers(self.table[input_ids].to(self.head.weight.dtype)))


reference_model, ported_model, tokens = Model(), Model(), torch.tensor([3, 1, 4, 15])
ported_model.layers[2].norm.weight.data *= 1.03
ported_model = ported_model.bfloat16()
"""


def two_models(folder: Path) -> None:
    """reference_model and ported_model, in which one norm's weight is 3 % too large."""
    (folder / "before.py").write_text(MODELS)


def small_model(folder: Path) -> None:
    """The examples, as they stand in a checkout."""
    (folder / "examples").symlink_to(ROOT / "examples")


def graph_pairs(folder: Path) -> None:
    """Dumps of graph mode on four ranks, their nodes run one by one, and the graph on both sides of fusion."""
    write_current(folder, ranks=(0, 1, 2, 3))
    (folder / "msit_fx_dump").rename(folder / "fx_dump")
    (folder / "msit_ge_dump").rename(folder / "ge_dump")
    for side in ("unfused", "fused"):
        write_current(folder / "tmp")
        (folder / "tmp" / "msit_ge_dump").rename(folder / side)


def atb_host_mine(folder: Path) -> None:
    """The same, and mine captured from it."""
    atb_host(folder)
    words = [binary(), "dump", "-er", "all", "-o", "mine", "--", "./serve"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)


def atb_host_golden(folder: Path) -> None:
    """The same, and golden captured from it."""
    atb_host(folder)
    words = [binary(), "dump", "-er", "all", "-o", "golden", "--", "build/release/examples/atb_host/atb_host"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)


def hook_dumps(folder: Path) -> None:
    """Two hook dumps of a model of 12 layers; one MLP of mine is 3 % too large."""

    def change(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if name == "root.model.layers.5.mlp":
            return tensor * 1.03
        return tensor + 0.002 if name == "root" else tensor

    write_torch_tree(folder / "golden")
    write_torch_tree(folder / "mine", change=change, pid=2)
    (folder / "metrics.py").write_text(
        "import numpy as np\n\n\ndef hits(golden: np.ndarray, my: np.ndarray):\n"
        '    return float(np.mean(np.abs(my - golden) < 1e-3)), ""\n'
    )


def small_hook_dump(folder: Path) -> None:
    """Two steps of three modules, and a weight."""
    write_small_hook_dump(folder / "golden")


def tensor_files(folder: Path) -> None:
    """Single files, and a hook dump."""
    from safetensors.torch import save_file

    torch.save(torch.ones(2, 3), folder / "output.pth")
    save_file({"a": torch.ones(2), "b": torch.zeros(3)}, folder / "model.safetensors")
    write_torch_tree(folder / "golden", layer_count=2)
    for name, array in {"x": np.ones((2, 3)), "y": np.zeros((2, 3)), "z": np.ones((2, 3))}.items():
        np.save(folder / f"{name}.npy", array.astype(np.float32))
    np.savez(folder / "values.npz", hidden=np.ones((2, 3), np.float32), logits=np.zeros(4, np.float32))


def graph_mode_dump(folder: Path) -> None:
    """One dump file of graph mode."""
    place = folder / "dump" / "20250102030405" / "0" / "graph_1" / "1" / "0"
    place.mkdir(parents=True)
    operands = [Operand.of(np.full((2, 3), value, np.float32)) for value in (1, 2, 3)]
    dump = Dump(inputs=operands[:2], outputs=operands[2:])
    (place / "Add.Add_1.12.3.1735786845123456").write_bytes(dump.encode())


def overflow_dump(folder: Path) -> None:
    """An addition that overflows, and the device's report of it."""
    place = folder / "dump"
    place.mkdir()
    one, two = np.array([1, 2], np.float32), np.array([np.inf, 1], np.float32)
    dump = Dump(inputs=[Operand.of(one)], outputs=[Operand.of(two)])
    (place / "Add.Add_1.12.3.1760000000123401").write_bytes(dump.encode())
    report = Dump(op_name="Node_OpDebug", outputs=[Operand.of(np.frombuffer(overflow_payload(status=272), np.uint8))])
    (place / "Opdebug.Node_OpDebug.99.3.1760000000123402").write_bytes(report.encode())


def topologies(folder: Path) -> None:
    """A layer of an ATB dump, two versions of it, and the texts of a graph on both sides of fusion."""

    def layer(epsilon: float, activation: bool) -> list[dict]:
        children = [node("LinearOperation_0_1_0", "LinearOperation")]
        if activation:
            children.append(node("ActivationOperation_0_1_1", "ActivationOperation"))
        norm = node("RmsNormOperation_0_0", "RmsNormOperation")
        norm["param"] = {"normParam": {"epsilon": epsilon}}
        return [norm, node("Mlp_0_1", "GraphOperation", *children)]

    versions = {"msit_dump_20260105_100000/layer/4711": (1e-5, True), "golden": (1e-5, True), "mine": (1e-6, False)}
    for place, (epsilon, activation) in versions.items():
        (folder / place).mkdir(parents=True)
        content = {"modelName": "Decoder_layer_0", "nodes": layer(epsilon, activation)}
        (folder / place / "Decoder_layer_0.json").write_text(json.dumps(content))
    texts = folder / "dump"
    texts.mkdir()
    write_text(texts, graph(), kind="original")
    members = {"AddMul": (["Add", "Mul"], [("Mul", 0)])}
    write_text(texts, fused(graph()), kind="optimized", metadata=members)


COMPILED = """\
import torch
from assay.torch.graph import CompilerConfig, get_backend

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(128, 64), torch.nn.GELU(), torch.nn.Linear(64, 8), torch.nn.Softmax(-1))
x = torch.randn(64, 128)
for path, engine in (("unfused", "interpreter"), ("fused", "partition")):
    torch._dynamo.reset()
    config = CompilerConfig()
    config.dump_config.enable_dump = True
    config.dump_config.dump_path = path
    config.execution.engine = engine
    compiled = torch.compile(model, backend=get_backend(config))
    with torch.no_grad():
        compiled(x)
"""


def compiled_model(folder: Path) -> None:
    """unfused and fused: the dumps that docs/graph.md makes."""
    for name in ("unfused", "fused"):
        (folder / name).mkdir()
    (folder / "compiled.py").write_text(COMPILED)
    subprocess.run(
        [warm_python.python("transformers"), "compiled.py"], cwd=folder, check=True, capture_output=True, timeout=240
    )


LLAMA = """\
import torch
from assay.torch import graph
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
model = LlamaForCausalLM(LlamaConfig(**sizes, attn_implementation="eager")).eval()
prompt = torch.tensor([[1, 5, 9, 12]])
for path, engine in (("golden", "interpreter"), ("mine", "partition")):
    torch._dynamo.reset()
    config = graph.CompilerConfig()
    config.dump_config.enable_dump = True
    config.dump_config.dump_path = path
    config.execution.engine = engine
    compiled = torch.compile(model, backend=graph.get_backend(config))
    with torch.no_grad():
        compiled(input_ids=prompt, use_cache=False)
"""


def compiled_llama(folder: Path) -> None:
    """golden and mine: a Llama of two layers, operator by operator and in groups."""
    for name in ("golden", "mine"):
        (folder / name).mkdir()
    (folder / "llama.py").write_text(LLAMA)
    subprocess.run(
        [warm_python.python("transformers"), "llama.py"], cwd=folder, check=True, capture_output=True, timeout=240
    )


ALL = [
    name
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__ and not name.startswith("_")
]
SLOW = [
    "llama_session",
    "two_models",
    "published_config",
    "workflow",
    "programs",
    "small_model",
    "compiled_model",
    "compiled_llama",
    "python_programs",
    "captured_programs",
    "git_repository",
]
