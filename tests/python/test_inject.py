# SPDX-License-Identifier: Apache-2.0
"""Scripts that know nothing of assay, started as `assay dump` starts them: two environment variables.

The oracle is the same script without the variables (output, exit status) and edited by hand (files). Most scripts get
their torch from a server (tests/support/warm_python.py), not those of tests of processes and of the start itself.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import warm_python

pytest.importorskip("torch")
assay = pytest.importorskip("assay")
outermost = pytest.importorskip("assay.inject.outermost")
from bench import record_lines  # noqa: E402

from assay import _steps  # noqa: E402

FRESH = (sys.executable,)
SITECUSTOMIZE = Path(outermost.__file__).with_name("sitecustomize.py")
PACKAGES = Path(assay.__file__).parent.parent

MODEL = """
import sys, os, torch
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(11, 8)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.SiLU(), torch.nn.Linear(16, 8))
        self.head = torch.nn.Linear(8, 11)
    def forward(self, ids):
        return self.head(self.mlp(self.embed(ids)))
model = Net().eval()
def decode(model, steps=3):
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        for _ in range(steps):
            ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], 1)
    return ids.tolist()
"""


@dataclass
class Done:
    """What a script left: its output, the run's folder, the reports of its processes."""

    status: int
    stdout: str
    stderr: str
    out: Path
    reports: list[dict[str, Any]] = field(default_factory=list)

    @property
    def report(self) -> dict[str, Any]:
        assert len(self.reports) == 1, self.reports
        return self.reports[0]

    def records(self, rank: str = "rank0") -> list[dict[str, Any]]:
        return record_lines.read(self.out / rank / "records.jsonl")

    def nodes(self, step: int, rank: str = "rank0") -> list[str]:
        """Names of the nodes of a step in the order they were entered."""
        first = {r["node"]: r["order"] for r in reversed(self.records(rank)) if r["step"] == step}
        return sorted(first, key=first.__getitem__)

    def manifest(self, rank: str = "") -> dict[str, Any]:
        return json.loads((self.out / rank / "manifest.json").read_text())


@pytest.fixture
def dump(tmp_path):
    """dump(script, *arguments, **settings) -> Done; `injected=False` runs the script as it is.

    python: the command that runs it, FRESH for one that starts in this test.
    """
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(SITECUSTOMIZE, site)

    def run(script, *arguments, injected=True, python=None, paths=(), env=None, name="out", **settings):
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(script))
        out, reports = tmp_path / name, tmp_path / f"{name}_reports"
        reports.mkdir(exist_ok=True)
        asked = {
            "output": str(out),
            "layout": "native",
            "steps": "",
            "modules": [],
            "statistics": False,
            "full": True,
            "report_dir": str(reports),
            "seed": None,
        } | settings
        variables = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "ASSAY", "ATB_"))}
        search = [*map(str, paths), str(PACKAGES)]
        if injected:
            search.insert(0, str(site))
            variables["ASSAY_TORCH_DUMP"] = json.dumps(asked)
        variables["ASSAY_RUN_ID"] = "5" * 32  # the id is the only thing that two captures of one program differ in
        variables |= {"PYTHONPATH": os.pathsep.join(search), "OMP_NUM_THREADS": "1"} | (env or {})
        command = [*(python or [warm_python.python()]), str(path), *map(str, arguments)]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=240, cwd=tmp_path)
        written = [json.loads(p.read_text()) for p in sorted(reports.glob("torch_*.json"))]
        return Done(done.returncode, done.stdout, done.stderr, out, written)

    return run


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# --- the same as by hand


def test_a_run_is_byte_for_byte_that_of_the_script_edited_by_hand(dump):
    script = MODEL + "print(decode(model))\n"
    by_hand = MODEL + "import assay\nwith assay.capture(model, sys.argv[1]):\n    print(decode(model))\n"

    plain = dump(script, injected=False, python=FRESH)
    done = dump(script, python=FRESH)
    edited = dump(by_hand, plain.out.with_name("edited"), injected=False, python=FRESH)

    assert (done.status, done.stdout, done.stderr) == (0, plain.stdout, "")
    assert edited.status == 0
    ours, theirs = files_of(done.out / "rank0"), files_of(plain.out.with_name("edited") / "rank0")
    assert ours == theirs and "step-000002.safetensors" in ours
    assert done.manifest()["complete"] is True
    assert done.report["models"] == [{"name": "", "class": "Net", "steps": 3, "tensors": 42}]  # 7 modules, in and out
    assert done.report["output"] == str(done.out / "rank0") and done.report["message"] == ""


LLAMA = """
import os, sys, torch, transformers
torch.manual_seed(7)
config = transformers.LlamaConfig(vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=None)
model = transformers.LlamaForCausalLM(config).eval()
def generate():
    with torch.no_grad():
        print(model.generate(torch.arange(1, 7)[None], max_new_tokens=4, do_sample=False).tolist())
"""


@pytest.mark.slow
@pytest.mark.parametrize("level", ["full", "stats"])
def test_generate_of_a_hugging_face_model_counts_every_token(dump, level):
    full = level == "full"
    plain = dump(LLAMA + "generate()\n", injected=False, python=[warm_python.python("transformers")])
    done = dump(
        LLAMA + "generate()\n",
        full=full,
        statistics=not full,
        steps="0,2-3",
        python=[warm_python.python("transformers")],
    )
    by_hand = (
        f"import assay\nwith assay.capture(model, sys.argv[1], steps=[0, 2, 3], data={level!r}):\n    generate()\n"
    )
    edited = dump(
        LLAMA + by_hand, plain.out.with_name("edited"), injected=False, python=[warm_python.python("transformers")]
    )

    assert edited.status == 0 and done.stdout == plain.stdout
    assert files_of(done.out / "rank0") == files_of(plain.out.with_name("edited") / "rank0")
    assert {record["step"] for record in done.records()} == {0, 2, 3}
    assert done.report["models"][0]["class"] == "LlamaForCausalLM" and done.report["models"][0]["steps"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("statistics,full,mode", [(False, True, 0), (True, False, 1), (True, True, 2)])
def test_the_strict_layout_is_that_of_register_hook(dump, statistics, full, mode):
    plain = dump(LLAMA + "generate()\n", injected=False, python=[warm_python.python("transformers")])
    done = dump(
        LLAMA + "generate()\n",
        layout="strict",
        steps="1-2",
        modules=["model.layers.0*"],
        statistics=statistics,
        full=full,
        python=[warm_python.python("transformers")],
    )
    by_hand = """
from assay.torch.strict import DumpConfig, register_hook
register_hook(model, DumpConfig(dump_path=sys.argv[1], token_range=[1, 2], dump_statistics_mode=int(sys.argv[2]),
                                layer_name="root.model.layers.0*"))
generate()
"""
    edited = dump(
        LLAMA + by_hand,
        plain.out.with_name("edited"),
        mode,
        injected=False,
        python=[warm_python.python("transformers")],
    )

    assert edited.status == 0 and done.stdout == plain.stdout
    (ours,), (theirs,) = done.out.glob("*/torch_tensors/*"), plain.out.with_name("edited").glob("*/torch_tensors/*")
    found, wanted = files_of(ours), files_of(theirs)
    manifest, expected = json.loads(found.pop("manifest.json")), json.loads(wanted.pop("manifest.json"))
    assert found == wanted and len(wanted) > 20
    assert manifest["complete"] is True and manifest["coverage"] == expected["coverage"]
    assert done.report["output"] == str(ours)


# --- which calls


def test_steps_and_modules_select(dump):
    done = dump(MODEL + "decode(model, 5)\n", steps="1,3-", modules=["mlp.*", "root.head"], statistics=True, full=False)

    assert {(r["step"], r["node"]) for r in done.records()} == {
        (step, node) for step in (1, 3, 4) for node in ("mlp.0", "mlp.1", "mlp.2", "head")
    }
    assert all("file" not in r and "stats" in r for r in done.records())
    assert done.report["models"][0]["steps"] == 5


@pytest.mark.slow
def test_without_statistics_and_bytes_only_what_ran_is_recorded(dump):
    native = dump(MODEL + "decode(model)\n", statistics=False, full=False)
    strict = dump(MODEL + "decode(model)\n", statistics=False, full=False, layout="strict", name="strict")

    assert {(r["dtype"], "stats" in r, "file" in r) for r in native.records()} == {
        ("int64", False, False),
        ("float32", False, False),
    }
    assert native.report["message"] == ""
    (folder,) = strict.out.glob("*/torch_tensors/*")
    assert sorted(p.name for p in folder.iterdir()) == ["manifest.json", "model_tree.json"]


@pytest.mark.parametrize(
    "settings,sentence",
    [
        ({"steps": "7-"}, "the steps 7- were not reached: there were 3"),
        ({"steps": "1,2,50-60"}, "the steps 50-60 were not reached: there were 3"),
        ({"modules": ["mpl.*"]}, "'mpl.*' matches no module; did you mean 'mlp.*'?"),
        ({"modules": ["root.mlp.7"]}, "'root.mlp.7' matches no module; did you mean 'mlp.2'?"),
        ({"modules": ["mlp.*", "haed"]}, "'haed' matches no module; did you mean 'head'?"),
    ],
)
def test_the_report_says_what_did_not_come(dump, settings, sentence):
    done = dump(MODEL + "print(decode(model))\n", **settings)

    assert done.report["message"] == sentence
    others = settings in ({"steps": "1,2,50-60"}, {"modules": ["mlp.*", "haed"]})
    assert bool(done.records()) == others


def test_a_script_without_a_module_call_says_so_and_leaves_no_run(dump):
    done = dump("import torch\nprint(torch.ones(2).sum().item())\n")

    assert (done.status, done.stdout, done.stderr) == (0, "2.0\n", "")
    assert done.report["message"] == "torch was imported, but no nn.Module was called"
    assert done.report["models"] == [] and done.report["output"] is None
    assert not done.out.exists()


def test_every_outermost_module_is_a_model_and_counts_its_own_calls(dump):
    done = dump("""
        import torch
        normalise = torch.nn.LayerNorm(4, elementwise_affine=False)   # a helper without weights comes first
        encoder = torch.nn.Sequential(torch.nn.Linear(4, 4))
        decoder = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        loss = torch.nn.MSELoss()
        x = torch.ones(2, 4)
        for _ in range(2):
            memory = encoder(normalise(x))
            for _ in range(2):
                memory = decoder(memory)
            loss(memory, x)
    """)

    assert [(m["name"], m["class"], m["steps"]) for m in done.report["models"]] == [
        ("LayerNorm", "LayerNorm", 2),
        ("", "Sequential", 2),
        ("Sequential", "Sequential", 4),
        ("MSELoss", "MSELoss", 2),
    ]
    assert done.nodes(1) == ["Sequential", "Sequential/0", "Sequential/1", "LayerNorm", "", "0", "MSELoss"]
    assert done.nodes(3) == ["Sequential", "Sequential/0", "Sequential/1"]
    run = assay.open(done.out)
    keys = [(r.step, r.node, r.call, r.role, r.slot) for r in run.records]
    assert len(keys) == len(set(keys))
    assert all(r.numpy().shape == tuple(r.shape) for r in run.records)
    assert [child["type"] for child in json.loads((done.out / "rank0/topology.json").read_text())["children"]] == [
        "LayerNorm",
        "Sequential",
        "Sequential",
        "MSELoss",
    ]


def test_a_part_that_a_method_of_the_model_calls_keeps_its_path_in_the_model(dump):
    done = dump("""
        import torch
        class Translator(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder = torch.nn.Sequential(torch.nn.Linear(4, 4))
                self.decoder = torch.nn.Linear(4, 4)
            def forward(self, memory):
                return self.decoder(memory)
            def generate(self, x):
                memory = self.encoder(x)
                for _ in range(2):
                    memory = self(memory)
                return memory
        Translator().generate(torch.ones(1, 4))
    """)

    assert [m["class"] for m in done.report["models"]] == ["Translator"]
    assert done.nodes(0) == ["encoder", "encoder.0", "", "decoder"]
    assert done.nodes(1) == ["", "decoder"]


def test_a_call_from_a_constructor_is_no_step(dump):
    done = dump("""
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = torch.nn.Linear(4, 6)
                self.head = torch.nn.Linear(self.conv(torch.ones(1, 4)).shape[-1], 2)
            def forward(self, x):
                return self.head(self.conv(x))
        net = Net()
        net(torch.ones(1, 4))
    """)

    assert [(m["name"], m["class"], m["steps"]) for m in done.report["models"]] == [("", "Net", 1)]
    assert done.nodes(0) == ["", "conv", "head"]


def test_modules_made_inside_a_forward_are_no_models(dump):
    done = dump("""
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.line = torch.nn.Linear(4, 4)
                self.line.register_forward_hook(lambda *_: None)   # torch's slow path, through the class
            def forward(self, x):
                return torch.nn.Softmax(-1)(self.line(x))
        net = Net()
        for _ in range(3):
            net(torch.ones(1, 4))
    """)

    assert [m["class"] for m in done.report["models"]] == ["Net"]
    assert {r["node"] for r in done.records()} == {"", "line"}


def test_modules_made_anew_in_a_loop_are_models_each(dump):
    done = dump("""
        import torch
        for _ in range(300):
            torch.nn.ReLU()(torch.ones(1))
    """)

    names = [model["name"] for model in done.report["models"]]
    assert names == ["ReLU", *(f"ReLU-{number}" for number in range(2, 301))] and done.report["message"] == ""
    assert {record["node"] for record in done.records()} == set(names)


def test_what_lies_beyond_the_bound_of_modules_is_said(dump):
    done = dump("""
        import torch, assay.inject.outermost
        assay.inject.outermost.MAX_MODULES = 64
        for _ in range(70):
            torch.nn.ReLU()(torch.ones(1))
    """)

    assert len(done.report["models"]) == 64 and done.report["models"][63]["name"] == "ReLU-64"
    assert done.report["message"] == "more than 64 modules; passed over: ReLU (6)"


def test_a_strict_dump_takes_the_first_module_with_weights_and_says_what_it_passed_over(dump):
    done = dump(
        MODEL
        + """
torch.nn.Softmax(-1)(torch.ones(1, 2))
decode(model, 2)
torch.nn.Linear(1, 1)(torch.ones(1, 1))
""",
        layout="strict",
        steps="0",
        modules=["embed", "root.head"],
    )

    (folder,) = done.out.glob("*/torch_tensors/*")
    assert sorted(p.name for p in (folder / "0").iterdir()) == ["root.embed", "root.head"]
    assert (folder / "0/root.head/output.pth").exists() and not (folder / "1").exists()
    assert done.report["models"][0]["class"] == "Net"
    assert done.report["message"] == "a strict dump holds one model; passed over: Softmax (1)"


@pytest.mark.slow
def test_threads_that_run_two_models_at_once_lose_nothing(dump):
    done = dump(
        MODEL
        + """
import threading
other = torch.nn.Linear(4, 4)
def work(model, x):
    with torch.no_grad():
        for _ in range(50):
            model(x)
threads = [threading.Thread(target=work, args=a) for a in ((model, torch.tensor([[1]])), (other, torch.ones(1, 4)))]
[t.start() for t in threads]
[t.join() for t in threads]
"""
    )

    assert (done.status, done.stderr) == (0, "")
    assert sorted((m["class"], m["steps"]) for m in done.report["models"]) == [("Linear", 50), ("Net", 50)]
    run = assay.open(done.out)
    assert len(run.records) == 50 * 14 + 50 * 2
    assert all(r.numpy() is not None for r in run.records)


# --- torch.compile

COMPILED = """
import sys, torch
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(4, 4)
    def forward(self, x):
        return torch.relu(self.line(x))
net = Net()
if sys.argv[1] == "wrapper":
    run = torch.compile(net, backend="eager", fullgraph=True)
elif sys.argv[1] == "method":
    net.compile(backend="eager", fullgraph=True)
    run = net
elif sys.argv[1] == "forward":
    net.forward = torch.compile(net.forward, backend="eager", fullgraph=True)
    run = net
elif sys.argv[1] == "inside":        # as vLLM does it: a part whose __call__ runs a compiled function
    class Part(Net):
        def __init__(self):
            super().__init__()
            self.compiled = torch.compile(self.forward, backend="eager", fullgraph=True)
        def __call__(self, x):
            return self.compiled(x)
    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.part = Part()
        def forward(self, x):
            return self.part(x)
    run = Whole()
else:
    run = torch.compile(lambda x: net(x), backend="eager", fullgraph=True)
with torch.no_grad():
    print([run(torch.full((1, 4), float(i))).tolist() for i in range(3)])
import torch._dynamo.utils as u
print({name: dict(counts) for name, counts in u.counters.items()})
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["wrapper", "method", "forward", "inside", "function"])
def test_compiled_models_compile_as_before_and_the_manifest_says_what_is_hidden(dump, how):
    plain = dump(COMPILED, how, injected=False)
    done = dump(COMPILED, how)

    assert plain.status == 0
    assert (done.status, done.stdout) == (0, plain.stdout)  # same numbers, same graphs, no more graph breaks
    if how == "function":
        assert "torch.compile compiled; set TORCHDYNAMO_DISABLE=1" in done.report["message"]
        return
    assert {r["node"] for r in done.records()} == {""} and done.report["models"][0]["steps"] == 3
    missed = done.manifest()["coverage"]["missed"]
    assert all(m["reason"].endswith("compiled by torch.compile") for m in missed) and missed
    count = "1 module was" if len(missed) == 1 else f"{len(missed)} modules were"
    assert done.report["message"].startswith(f"{count} {missed[0]['reason']}, {missed[0]['node']!r} first")
    assert "TORCHDYNAMO_DISABLE=1" in done.report["message"]


LATE = """
import torch
torch.manual_seed(0)
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(4, 4)
        self.gate = torch.nn.Sequential(torch.nn.SiLU(), torch.nn.Linear(4, 4))
    def forward(self, x):
        return x + self.gate(self.line(x))
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
net = Net().eval()
x = torch.ones(1, 4)
def many(run):
    print([run(x * i).tolist() for i in range(12)])   # more often than torch.compile is willing to compile anew
"""

COMPILE_LATE = """
with torch.no_grad():
    many(net)
    many(torch.compile(lambda x: torch.relu(net(x)), backend="eager", fullgraph=True))
    many(torch.compile(net, backend="eager", fullgraph=True))
    many(net)
    torch._dynamo.reset()
    many(torch.compile(net.__call__, backend="eager", fullgraph=True))
    net.compile(backend="eager", fullgraph=True)
    many(net)
    net.blocks[0].compile(backend="eager", fullgraph=True)
    many(net.blocks[0])
import torch._dynamo.utils as u
print(u.counters["stats"]["unique_graphs"] if sys.argv[1] == "native" else "")
"""

TRACE_LATE = """
import warnings
warnings.simplefilter("ignore")
if sys.argv[2] == "before":
    net(x)
print(len(torch.fx.symbolic_trace(net).graph.nodes))
for strict in (True, False):
    print(torch.export.export(net, (x,), strict=strict).graph)
many(torch.jit.trace(net, x))
many(torch.jit.script(net))
many(torch.export.export(net, (x,)).module())
many(net)
print(torch.func.functional_call(net, dict(net.named_parameters()), (x,)))
print(torch.vmap(net)(torch.ones(3, 1, 4)))
with torch.device("meta"):
    print(Net()(torch.ones(1, 4)).shape)
net(x).sum().backward()
print(net.blocks[0].line.weight.grad)
"""


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["native", "strict"])
def test_what_is_captured_already_can_still_be_compiled(dump, layout):
    plain = dump("import sys\n" + LATE + COMPILE_LATE, layout, injected=False)
    done = dump("import sys\n" + LATE + COMPILE_LATE, layout, layout=layout)

    assert (done.status, done.stdout) == (plain.status, plain.stdout) and plain.status == 0
    if layout == "native":
        assert [m["class"] for m in done.report["models"]] == ["Net", "OptimizedModule", "Net", "Block"]


@pytest.mark.slow
@pytest.mark.parametrize("first_call", ["before", "after"])
@pytest.mark.parametrize("layout", ["native", "strict"])
def test_what_is_captured_can_be_traced_scripted_and_exported(dump, layout, first_call):
    plain = dump("import sys\n" + LATE + TRACE_LATE, layout, first_call, injected=False)
    done = dump("import sys\n" + LATE + TRACE_LATE, layout, first_call, layout=layout)

    assert (done.status, done.stdout) == (plain.status, plain.stdout) and plain.status == 0


# --- processes


@pytest.mark.slow
def test_forked_and_spawned_children_have_runs_of_their_own(dump):
    done = dump(
        MODEL
        + """
import multiprocessing
def child(model):
    print(decode(model, 2), flush=True)
if __name__ == "__main__":
    print(decode(model, 1), flush=True)
    for method in ("fork", "spawn"):
        process = multiprocessing.get_context(method).Process(target=child, args=(model,))
        process.start(); process.join()
        assert process.exitcode == 0
    decode(model, 1)
""",
        python=FRESH,
    )

    assert (done.status, done.stderr) == (0, "")
    steps = {r["pid"]: r["models"][0]["steps"] for r in done.reports}
    assert sorted(steps.values()) == [2, 2, 2]  # the parent's two calls, and two of each child
    folders = [Path(r["output"]).name for r in done.reports]
    assert len(set(folders)) == 3 and "rank0" in folders
    assert all(name in ("rank0", f"rank0-{r['pid']}") for name, r in zip(folders, done.reports))
    for folder in folders:
        assert {r["step"] for r in done.records(folder)} == {0, 1}
        assert len(done.records(folder)) == 28
        assert done.manifest("" if folder == "rank0" else folder)["complete"] is True
    run = assay.open(done.out)
    assert sorted({r.rank for r in run.records}) == [0, 1, 2]


@pytest.mark.slow
def test_children_of_a_strict_dump_have_folders_of_their_own(dump):
    done = dump(
        MODEL
        + """
import multiprocessing
def child(model):
    decode(model, 2)
if __name__ == "__main__":
    decode(model, 1)
    process = multiprocessing.get_context("fork").Process(target=child, args=(model,))
    process.start(); process.join()
    if os.fork() == 0:
        raise SystemExit(0)          # a child that runs nothing leaves nothing
    os.wait()
    decode(model, 1)
""",
        layout="strict",
        python=FRESH,
    )

    assert (done.status, done.stderr) == (0, "")
    assert [r["models"][0]["steps"] for r in done.reports] == [2, 2]
    folders = list(done.out.glob("*/torch_tensors/*"))
    assert sorted(map(str, folders)) == sorted(r["output"] for r in done.reports)
    for folder in folders:
        assert sorted(p.name for p in folder.iterdir() if p.is_dir()) == ["0", "1"]
        assert json.loads((folder / "manifest.json").read_text())["complete"] is True


@pytest.mark.slow
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_data_loader_workers_are_left_alone(dump, context):
    done = dump(
        f"""
        import torch
        class Data(torch.utils.data.Dataset):
            scale = torch.nn.Linear(2, 2)
            def __len__(self):
                return 6
            def __getitem__(self, index):
                return self.scale(torch.full((2,), float(index))).detach()
        if __name__ == "__main__":
            model = torch.nn.Linear(2, 1)
            loader = torch.utils.data.DataLoader(Data(), num_workers=2, multiprocessing_context={context!r})
            for batch in loader:
                model(batch)
        """,
        python=FRESH,
    )

    assert (done.status, done.stderr) == (0, "")
    assert [p.name for p in done.out.iterdir() if p.is_dir()] == ["rank0"]
    main = [r for r in done.reports if r["models"]]
    assert [m["steps"] for m in main[0]["models"]] == [6] and len(main) == 1


@pytest.mark.slow
def test_a_program_started_by_the_script_is_captured_beside_it(dump):
    done = dump(
        MODEL
        + """
import subprocess
if len(sys.argv) == 1:
    subprocess.run([sys.executable, __file__, "again"], check=True)
print(decode(model))
""",
        python=FRESH,
    )

    assert done.status == 0
    assert len(done.reports) == 2
    assert sorted(Path(r["output"]).name.split("-")[0] for r in done.reports) == ["rank0", "rank0"]
    assert len(assay.open(done.out).records) == 84


def test_a_folder_with_a_run_of_an_earlier_command_is_refused(dump, tmp_path):
    plain = dump(MODEL + "print(decode(model, 1))\n", injected=False)
    assert dump(MODEL + "decode(model, 1)\n").status == 0
    before = files_of(tmp_path / "out")

    (tmp_path / "second").mkdir()
    again = dump(MODEL + "print(decode(model, 1))\n", report_dir=str(tmp_path / "second"))

    assert (again.status, again.stdout) == (0, plain.stdout)
    assert again.stderr.count("\n") == 1 and "holds a run already" in again.stderr
    assert files_of(tmp_path / "out") == before
    (report,) = (tmp_path / "second").glob("torch_*.json")
    assert "holds a run already" in json.loads(report.read_text())["message"]


@pytest.mark.slow
def test_torchrun_gives_every_rank_its_folder(dump):
    done = dump(
        MODEL
        + """
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
decode(model, 2 + dist.get_rank())
dist.destroy_process_group()
""",
        python=(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"),
    )

    assert done.status == 0, done.stderr
    captured = {r["rank"]: r for r in done.reports if r["models"]}
    assert {rank: r["models"][0]["steps"] for rank, r in captured.items()} == {0: 2, 1: 3}
    assert {Path(r["output"]).name for r in captured.values()} == {"rank0", "rank1"}
    run = assay.open(done.out)
    assert {(r.rank, r.step) for r in run.records} == {(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)}
    assert done.manifest("rank1")["complete"] is True


@pytest.mark.parametrize("end", ["os._exit(7)", "os.kill(os.getpid(), 9)"])
def test_a_host_that_ends_at_once_leaves_a_run_that_opens(dump, end):
    # Enough bytes for the writer to have been at work; what it had not written yet is lost.
    done = dump(MODEL + f"decode(model, 400)\n{end}\n", python=FRESH)

    assert done.status == (7 if "_exit" in end else -signal.SIGKILL)
    # The report of the beginning is all there is.
    assert done.report["ended"] is False and done.report["folder"] == "rank0"
    assert done.report["models"] == [] and not done.report["idle"]
    run = assay.open(done.out)
    assert len(run.records) > 0 and done.manifest()["complete"] is False
    assert all(r.numpy() is not None for r in run.records)


# --- the host's contract


@pytest.mark.slow
def test_exceptions_of_the_model_reach_the_script_as_they_are(dump):
    script = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(2, 2)
    def forward(self, x):
        return self.line(x) / len(x[9])
net = Net()
for _ in range(2):
    try:
        net(torch.ones(1, 2))
    except IndexError as error:
        print(error, error.__context__, error.__cause__)
net(torch.ones(1, 3))
"""
    plain, done = dump(script, injected=False), dump(script)

    assert (done.status, done.stdout) == (1, plain.stdout)
    assert done.stderr.splitlines()[-1] == plain.stderr.splitlines()[-1]
    assert done.manifest()["complete"] is True and done.report["models"][0]["steps"] == 3


@pytest.mark.slow
def test_an_output_that_cannot_be_made_costs_one_line(dump, tmp_path):
    (tmp_path / "file").write_text("")
    plain = dump(MODEL + "print(decode(model))\n", injected=False)

    for layout in ("native", "strict"):
        done = dump(MODEL + "print(decode(model))\n", output=str(tmp_path / "file/below"), layout=layout, name=layout)
        assert (done.status, done.stdout) == (0, plain.stdout)
        assert done.stderr.count("\n") == 1 and "the capture is off, the script goes on" in done.stderr
        assert "below" in done.report["message"] or "directory" in done.report["message"]


@pytest.mark.slow
@pytest.mark.parametrize("output", [None, "/proc/nowhere"])
def test_a_host_that_has_closed_its_stderr_goes_on(dump, output):
    done = dump(
        """
        import os, sys, torch
        sys.stderr.close(); os.close(2)
        model = torch.compile(torch.nn.Linear(2, 2), backend="eager")   # there would be a warning, or an error
        print(model(torch.ones(1, 2)).shape)
        """,
        **({"output": output} if output else {}),
        python=FRESH,
    )

    assert (done.status, done.stdout) == (0, "torch.Size([1, 2])\n")
    assert len(done.report["models"]) == (0 if output else 1)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["{", "[]", '{"output": ""}', '{"output": "x", "steps": "a-b"}'])
def test_a_variable_that_is_not_ours_costs_one_line(dump, text):
    done = dump("import torch\nprint(torch.nn.ReLU()(torch.ones(1)))\n", env={"ASSAY_TORCH_DUMP": text})

    assert (done.status, done.stdout) == (0, "tensor([1.])\n")
    assert done.stderr.startswith("assay: ") and done.stderr.count("\n") == 1


def test_a_script_that_captures_by_itself_is_left_to_it(dump, tmp_path):
    own = tmp_path / "own"
    done = dump(
        MODEL
        + """
import assay
decode(model, 1)
with assay.capture(model, sys.argv[1]):
    decode(model, 2)
decode(model, 1)
""",
        own,
    )

    assert (done.status, done.stderr) == (0, "")
    assert {r.step for r in assay.open(own).records} == {0, 1}
    assert {r["step"] for r in done.records()} == {0} and done.manifest()["complete"] is True
    assert done.report["message"] == "the script captures by itself with assay.capture(); assay dump stepped back"


@pytest.mark.parametrize("layout", ["native", "strict"])
def test_a_script_with_hooks_of_the_old_names_is_left_to_them(dump, tmp_path, layout):
    own = tmp_path / "own"
    done = dump(
        MODEL
        + """
from assay.torch.strict import DumpConfig, register_hook
decode(model, 1)
register_hook(model, DumpConfig(dump_path=sys.argv[1], token_range=[1]))
decode(model, 3)
""",
        own,
        layout=layout,
    )

    assert (done.status, done.stderr) == (0, "")
    (folder,) = own.glob("*/torch_tensors/*")
    assert sorted(p.name for p in folder.iterdir() if p.is_dir()) == ["1"]
    assert "stepped back" in done.report["message"]


@pytest.mark.slow
def test_nothing_of_the_host_is_kept_or_left_behind(dump):
    script = (
        MODEL
        + """
import copy, gc, pickle, weakref
before = torch.nn.Module.__dict__["_call_impl"].__name__
decode(model, 2)
twin = pickle.loads(pickle.dumps(copy.deepcopy(model)))
print(decode(twin, 1), before, sorted(k for k in twin.state_dict()))
reference = weakref.ref(model)
del model
gc.collect()
print(reference(), [type(f).__name__ for f in sys.meta_path], [p for p in sys.path if "site" in os.path.basename(p)])
print("sitecustomize" in sys.modules, sorted(m for m in sys.modules if m.startswith("numpy"))[:1])
"""
    )
    plain, done = dump(script, injected=False), dump(script)

    assert done.stderr == ""
    # Until torch._dynamo is imported, if ever, one finder waits for it.
    ours, theirs = done.stdout.replace("'_ImportWatch', ", "").splitlines(), plain.stdout.splitlines()
    assert ours[:2] == theirs[:2]


def test_a_strict_dump_takes_its_hooks_out_after_the_last_token(dump):
    done = dump(
        MODEL
        + """
own = torch.nn.Module.__dict__["_call_impl"]
decode(model, 1)
print(sum(len(m._forward_hooks) for m in model.modules()) > 0)
import copy, pickle
assert decode(copy.deepcopy(pickle.loads(pickle.dumps(model))), 1)
decode(model, 2)
print(sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()))
print(torch.nn.Module.__dict__["_call_impl"] is own, torch.nn.Module._call_impl.__module__)
""",
        layout="strict",
        steps="0",
    )

    assert done.stdout == "True\n0\nTrue torch.nn.modules.module\n"
    (folder,) = done.out.glob("*/torch_tensors/*")
    assert json.loads((folder / "manifest.json").read_text())["complete"] is True


@pytest.mark.slow
def test_a_seed_fixes_the_random_numbers(dump):
    script = "import torch, random\nprint(torch.rand(3).tolist(), random.random())\n"

    first, second = dump(script, seed=5, name="a"), dump(script, seed=5, name="b")

    assert first.stdout == second.stdout and first.status == 0
    assert dump(script, seed=6, name="c").stdout != first.stdout


# --- start-up

SHOW = """
import sys, os
print([type(f).__name__ if not isinstance(f, type) else f.__name__ for f in sys.meta_path])
print(sys.path[1:])
print([m for m in sys.modules if m.split(".")[0] in ("assay", "torch", "json")])
"""


def test_a_process_without_torch_notices_nothing_but_one_finder(dump):
    plain, done = dump(SHOW, injected=False, python=FRESH), dump(SHOW, python=FRESH)

    assert done.stderr == "" and done.reports == []
    assert done.stdout.replace("'_ImportWatch', ", "") == plain.stdout


def test_the_users_own_sitecustomize_runs_once_and_fails_as_before(dump, tmp_path):
    (tmp_path / "user").mkdir()
    own = tmp_path / "user" / "sitecustomize.py"
    own.write_text("print('custom', __name__, __file__)\nVALUE = 3\n")
    script = "import sitecustomize, sys\nprint(sitecustomize.VALUE, sys.modules['sitecustomize'].__file__)\n"
    plain = dump(script, injected=False, paths=[own.parent], python=FRESH)
    done = dump(script, paths=[own.parent], python=FRESH)
    assert (done.stdout, done.stderr) == (plain.stdout, plain.stderr) and done.stdout.count("custom ") == 1

    for text in ("raise ValueError('broken')\n", "import not_there\n", "raise ImportError('x')\n"):
        own.write_text(text)
        plain = dump("print(1)\n", injected=False, paths=[own.parent], python=FRESH)
        done = dump("print(1)\n", paths=[own.parent], python=FRESH)
        assert (done.status, done.stdout, done.stderr) == (plain.status, plain.stdout, plain.stderr)
        assert "Error in sitecustomize" in done.stderr


def test_usercustomize_runs_once(dump, tmp_path):
    base = getattr(sys, "_base_executable", sys.executable)
    where = subprocess.run(
        [base, "-c", "import site; print(site.ENABLE_USER_SITE, site.getusersitepackages())"],
        env=os.environ | {"PYTHONUSERBASE": str(tmp_path / "base")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    if where[0] != "True":
        pytest.skip("this Python has no user site")
    Path(where[1]).mkdir(parents=True)
    Path(where[1], "usercustomize.py").write_text("print('user')\n")

    done = dump("print(1)\n", python=(base,), env={"PYTHONUSERBASE": str(tmp_path / "base")})

    assert (done.stdout, done.stderr) == ("user\n1\n", "")


# A package of the name that fails the first time: imports are tried again by some programs.
FAKE_TORCH = """
import os, sys
flag = os.environ["FLAG"]
if not os.path.exists(flag):
    open(flag, "w").close()
    raise ImportError("not yet")
VALUE = 5
"""


def test_a_python_without_assay_says_so_once_and_only_when_torch_is_there(dump, tmp_path):
    (tmp_path / "fake" / "torch").mkdir(parents=True)
    (tmp_path / "fake" / "torch" / "__init__.py").write_text(FAKE_TORCH)
    script = """
import importlib, importlib.util, sys
class Other:                                  # a hook of the host's own, in front
    def find_spec(self, name, path=None, target=None):
        return None
sys.meta_path.insert(0, Other())
spec = importlib.util.find_spec("torch")      # only asking
print(type(spec.loader).__name__, "torch" in sys.modules)
try:
    import torch
except ImportError as error:
    print(error)
import torch
importlib.reload(torch)
print(torch.VALUE, [type(f).__name__ for f in sys.meta_path if not isinstance(f, type)])
"""
    (tmp_path / "hide").mkdir()
    (tmp_path / "hide" / "assay.py").write_text("raise ImportError('no assay in here')\n")
    paths, flag = [tmp_path / "hide", tmp_path / "fake"], tmp_path / "flag"
    without = dump(script, injected=False, paths=paths, env={"FLAG": str(flag)}, python=FRESH)
    flag.unlink()

    done = dump(script, paths=paths, env={"FLAG": str(flag)}, python=FRESH)

    assert without.stdout.startswith("SourceFileLoader False\nnot yet\n5 ['Other'")
    assert (done.status, done.stdout) == (0, without.stdout)
    assert done.stderr.count("\n") == 1 and "install the wheel of assay into this Python" in done.stderr
    assert dump("print(1)\n", paths=paths, python=FRESH).stderr == ""


# --- texts


def test_steps_are_read_as_documented():
    steps = _steps.parse_steps("0, 2-4,9-")

    assert [n for n in range(12) if steps(n)] == [0, 2, 3, 4, 9, 10, 11] and steps.last is None
    assert _steps.parse_steps("3,1-2").tokens() == [1, 2, 3] and _steps.parse_steps("3,1-2").last == 3
    assert _steps.parse_steps(" ") is None
    for text in ("a", "1,,2", "-3", "4-2", "1-2-3", "1.5"):
        with pytest.raises(ValueError, match="steps"):
            _steps.parse_steps(text)
