# SPDX-License-Identifier: Apache-2.0
"""The program that plays the acceleration library makes the documented calls, and its tensors are right.

Two oracles: a model of the documented call sequence in Python, held against the log of a preloaded library that writes
down every call; and every operation recomputed in float64 from the inputs and parameters that a probe stored of it.
The probe is a naive one (tests/capture/hosts/naive_probe.cpp), so nothing of ours stands between host and oracle; what
our probe stores is then held against what the naive one stores.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ASSAY_BUILD_DIR", ROOT / "build" / "release")).absolute()
HOST = BUILD / "examples" / "atb_host"
ASSAY = BUILD / "bin" / "assay"
OUR_PROBE = BUILD / "lib" / "assay" / "libatb_probe.so"


def run_host(*arguments, abi=1, preload=None, status=0, **variables):
    """Runs the host with a preloaded library, by path or by a name that has a build for each string ABI."""
    program = HOST / f"atb_host_abi{abi}"
    assert program.exists(), f"{program} is not built; set ASSAY_BUILD_DIR to a build made with ASSAY_BUILD_TESTS=ON"
    environment = {**os.environ, **{key: str(value) for key, value in variables.items()}}
    if preload:
        environment["LD_PRELOAD"] = str(preload if isinstance(preload, Path) else HOST / f"{preload}_abi{abi}.so")
    done = subprocess.run(
        [str(program), *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == status, (done.returncode, done.stderr)
    return done


# ---------------------------------------------------------------------------------------------------------------------
# The documented call sequence.


@dataclass
class Kernel:
    name: str
    operation: str
    ins: int
    outs: int
    tiling: bool = True


@dataclass
class Node:
    """One operation: a graph has children, the others kernels; a plugin has an operation of its own inside."""

    name: str
    ins: list[str]  # names of the operation's tensors since 9.1; for graphs and plugins only their number counts
    outs: list[str]
    children: list[Node] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    inside: Node | None = None
    kind: str = "operation"  # graph, plugin, if
    # State of one object in the process.
    ids: list[int] = field(default_factory=list)
    setups: int = 0
    executed: int = 0
    directory: str = ""

    @property
    def topology_name(self):
        return ("PluginOperation" if self.kind == "plugin" else self.name) + "".join(f"_{i}" for i in self.ids)


def operation(name, ins, outs, *kernels):
    return Node(name, ins.split(), outs.split(), kernels=list(kernels))


def graph(name, ins, outs, *children):
    return Node(name, [""] * ins, [""] * outs, children=list(children), kind="graph")


def gather():
    return operation("GatherOperation", "x indices", "output", Kernel("Gather16I64Kernel", "GatherOperation", 2, 1))


def norm():
    return operation("RmsNormOperation", "x1 x2", "output", Kernel("RmsNormKernel", "NormOperation", 2, 1))


def linear(bias=False):
    product = Kernel("MatMulNdF16Kernel", "MatMulOperation", 2, 1)
    if not bias:
        return operation("LinearOperation", "x weight", "output", product)
    return operation(
        "LinearOperation", "x weight bias", "output", product, Kernel("AddF16Kernel", "ElewiseOperation", 2, 1)
    )


def elewise(kind):
    return operation("ElewiseOperation", "x y", "output", Kernel(f"{kind}F16Kernel", "ElewiseOperation", 2, 1))


def attention(prompt):
    if prompt:
        core = operation(
            "SelfAttentionOperation",
            "query key value mask seqLen",
            "attnOut",
            Kernel("UnpadFlashAttentionNdKernel", "UnpadFlashAttentionOperation", 5, 1),
        )
    else:
        core = operation(
            "PagedAttentionOperation",
            "query keyCache valueCache blockTables contextLens",
            "attnOut",
            Kernel("PagedAttentionMaskNdKernel", "PagedAttentionOperation", 5, 1),
        )
    rope = operation("RopeOperation", "x1 x2 x3 x4 x5", "output1 output2", Kernel("RopeKernel", "RopeOperation", 5, 2))
    cache = operation(
        "ReshapeAndCacheOperation",
        "key value keyCache valueCache slots",
        "outKeyCache outValueCache",
        Kernel("ReshapeAndCacheNdKernel", "ReshapeAndCacheOperation", 5, 2),
    )
    ins = 1 + 7 + (5 if prompt else 6) + 2  # hidden states, weights, what changes a step, caches
    return graph("Attention", ins, 1, linear(True), linear(True), linear(True), rope, cache, core, linear())


def mlp():
    swish = operation("ActivationOperation", "x", "y", Kernel("SwishF16Kernel", "ActivationOperation", 1, 1))
    return graph("Mlp", 4, 1, linear(), linear(), swish, elewise("Mul"), linear())


def lm_head(prompt):
    kernel = (
        Kernel("SliceF16Int64Kernel", "SliceOperation", 1, 1)
        if prompt
        else Kernel("AsStridedF16Int64Kernel", "AsStridedOperation", 1, 1, tiling=False)
    )
    choice = Node("IfOperation", ["x"], ["output"], kernels=[kernel], kind="if")
    sort = operation("SortOperation", "x", "output1 output2", Kernel("SortF16Kernel", "SortOperation", 1, 2))
    plugin = Node("GreedySearch", ["x"], ["output"], inside=sort, kind="plugin")
    return graph("LmHead", 3, 2, choice, norm(), linear(), plugin)


def model(prompt, layers):
    layer_name = "Prefill_layer" if prompt else "Decoder_layer"
    ins = 1 + 12 + (5 if prompt else 6) + 2
    return [
        graph("WordEmbedding", 2, 1, gather()),
        graph("PositionalEmbedding", 3, 2, gather(), gather()),
        *[
            graph(layer_name, ins, 1, norm(), attention(prompt), elewise("Add"), norm(), mlp(), elewise("Add"))
            for _ in range(layers)
        ],
        lm_head(prompt),
    ]


class DocumentedLibrary:
    """The calls of the real library, step by step; `calls` is what a probe is asked and told, in order."""

    def __init__(self, release, no, pid):
        self.release, self.no, self.pid = release, set(no), pid
        self.calls: list[tuple[str, ...]] = []
        self.next_id = 0

    def ask(self, name, *arguments):
        self.calls.append((name, *arguments))
        return name not in self.no

    def tell(self, name, *arguments):
        self.calls.append((name, *arguments))

    def in_directory(self, directory):
        return self.release < 8.3 or self.ask("IsSaveTensorInSpecificDir", directory)

    def forward(self, name, operations):
        for node in operations:
            self.setup(node)
            self.execute(node)
        if self.ask("IsReportModelTopoInfo", name):
            self.tell("ReportModelTopoInfo", name)

    # 4.1
    def setup(self, node):
        first = not node.ids
        if first:
            node.ids = [self.next_id]
            self.next_id += 1
            self.make_runner(node)
            if self.ask("ReportOperationGraphEnable"):
                self.tell("ReportOperationGraph", node.topology_name)
        self.need_save(node.ids, node.name)
        if self.ask("IsSaveTensorDesc"):
            self.name_directories(node, f"0_{self.pid}/{node.setups}/{node.ids[0]}_{node.name}")
        self.setup_runner(node, first)
        self.fill_tiling(node)
        node.setups += 1
        if self.ask("ReportOperationStatisticEnable"):
            self.tell("ReportOperationSetupStatistic", str(node.setups), node.topology_name)

    def need_save(self, ids, name):
        return self.ask("IsTensorNeedSave", ",".join(map(str, ids)), name)

    def make_runner(self, node):
        suffix = {"graph": "Runner", "plugin": None}.get(node.kind, "OpsRunner")
        runner = {"SliceF16Int64Kernel": "Slice", "AsStridedF16Int64Kernel": "AsStrided"}
        stem = node.name.removesuffix("Operation")
        if node.kind == "if":  # its runner is that of the chosen branch
            stem = runner[node.kernels[0].name]
        node.directory = "PluginRunner" if suffix is None else stem + suffix
        for position, child in enumerate(node.children):
            child.ids = [*node.ids, position]
            self.make_runner(child)
            self.need_save(child.ids, child.name)

    def name_directories(self, node, directory):
        node.directory = directory
        for position, child in enumerate(node.children):
            self.name_directories(child, f"{directory}/{position}_{child.name}")

    def setup_runner(self, node, first):
        for child in node.children:
            self.setup_runner(child, first)
        if node.inside:
            self.setup(node.inside)
        for k in range(len(node.kernels)):
            if first:
                self.need_save([*node.ids, k], node.name)
            elif self.release >= 8.3:
                self.ask("IsSaveTiling")
        if self.release >= 8.3:
            self.tell("UpdateConfig")

    def fill_tiling(self, node):
        for child in node.children:
            self.fill_tiling(child)
        for k, kernel in enumerate(node.kernels):
            directory = f"{node.directory}/{k}_{kernel.name}"
            if (
                kernel.tiling
                and "IsTensorNeedSave" not in self.no
                and self.ask("IsExecuteCountInRange", str(node.executed))
                and self.ask("IsSaveTiling")
                and self.in_directory(directory)
            ):
                self.tell("SaveTiling", f"{directory}/kernel_tilingdata.bin")

    # 4.2
    def wants(self, node):
        return (
            self.ask("IsExecuteCountInRange", str(node.executed))
            and "IsTensorNeedSave" not in self.no
            and self.in_directory(node.directory)
        )

    def save(self, directory, ins, outs):
        self.ask("IsSaveTensorData")
        for kind, names in (("in", ins), ("out", outs)):
            for i, name in enumerate(names):
                self.tell("SaveTensor", f"{directory}/{kind}tensor{i}{'_' if name else ''}{name}.bin")

    def save_operation(self, node, when):
        named = self.release >= 9.1 and node.kind == "operation"
        ins, outs = (names if named else [""] * len(names) for names in (node.ins, node.outs))
        self.save(f"{node.directory}/{when}", ins, outs)

    def execute(self, node):
        self.execute_runner(node)
        if self.release < 8.1 and self.ask("ReportOperationStatisticEnable"):
            self.tell("ReportOperationExecuteStatistic", str(node.setups), node.topology_name)

    def execute_runner(self, node):
        if self.wants(node) and self.ask("IsSaveTensorBefore"):
            self.save_operation(node, "before")
        for child in node.children:
            self.execute_runner(child)
        if node.inside:
            self.execute(node.inside)
        for k, kernel in enumerate(node.kernels):
            self.execute_kernel(node, kernel, f"{node.directory}/{k}_{kernel.name}")
        if self.wants(node) and self.ask("IsSaveTensorAfter"):
            self.save_operation(node, "after")
        if self.wants(node) and self.ask("IsSaveParam") and node.kind == "operation":
            self.tell("SaveParam", f"{node.directory}/op_param.json")
        if self.ask("ReportOperationIOTensorEnable") and node.kind != "graph":
            self.ask("IsSaveTensorBefore")
            name = node.name + "".join(f"_{i}" for i in node.ids)
            self.tell("ReportOperationIOTensor", str(node.executed), name)
        node.executed += 1

    def execute_kernel(self, node, kernel, directory):
        def save(moment):
            if (
                "IsTensorNeedSave" not in self.no
                and self.ask("IsExecuteCountInRange", str(node.executed))
                and self.ask("IsSaveTensor" + moment)
                and self.in_directory(directory)
            ):
                self.save(f"{directory}/{moment.lower()}", [""] * kernel.ins, [""] * kernel.outs)

        save("Before")
        self.ask("IsOverflowCheck")
        if self.ask("ReportKernelIOTensorEnable"):
            self.ask("IsSaveTensorBefore")
            self.tell("ReportKernelIOTensor", str(node.executed), kernel.operation)
        save("After")


# Which arguments of a logged call the model above predicts; the others are checked by tests of their own.
SHOWN = {
    "SaveTensor": [5],
    "SaveTiling": [2],
    "SaveParam": [1],
    "ReportOperationGraph": [0],
    "ReportModelTopoInfo": [0],
    "ReportOperationSetupStatistic": [0, 1],
    "ReportOperationExecuteStatistic": [0, 1],
    "ReportOperationIOTensor": [0, 1],
    "ReportKernelIOTensor": [0, 1],
}


def read_log(path):
    """Returns [(thread, function, arguments...)]."""
    return [tuple(line.split("\t")) for line in path.read_text().splitlines()]


def call_log(tmp_path, *arguments, no="", abi=1, status=0):
    path = tmp_path / f"calls-{abi}.log"
    path.unlink(missing_ok=True)
    run_host(
        *arguments, abi=abi, preload="atb_call_log", status=status, ATB_CALL_LOG=path, ATB_CALL_LOG_NO=",".join(no)
    )
    return read_log(path)


def shown(call):
    _, name, *arguments = call
    return (name, *(arguments if name not in SHOWN else [arguments[i] for i in SHOWN[name]]))


def pid_of(log):
    """Returns the process id in the directories of the log; the calls have none while IsSaveTensorDesc says no."""
    for call in log:
        for text in call[2:]:
            if match := re.match(r"0_(\d+)/", text):
                return match[1]
    return "none"


def without_pid(log):
    """The log with the process id taken out of all directories."""
    return [tuple(re.sub(r"\b0_\d+/", "0_PID/", text) for text in call) for call in log]


@pytest.mark.parametrize("release", ["8.0", "8.3", "9.1"])
@pytest.mark.parametrize(
    "no",
    [
        ["IsOverflowCheck"],
        ["IsOverflowCheck", "IsTensorNeedSave"],
        ["IsOverflowCheck", "IsExecuteCountInRange"],
        ["IsOverflowCheck", "IsSaveTensorBefore", "IsSaveTiling", "ReportOperationGraphEnable"],
        ["IsOverflowCheck", "IsSaveTensorAfter", "ReportKernelIOTensorEnable", "IsSaveParam"],
        ["IsOverflowCheck", "IsSaveTensorInSpecificDir", "ReportOperationStatisticEnable", "IsReportModelTopoInfo"],
        ["IsOverflowCheck", "IsSaveTensorDesc", "ReportOperationIOTensorEnable"],
    ],
    ids=lambda no: "+".join(no[1:]) or "all",
)
def test_calls_come_in_the_documented_order(tmp_path, release, no):
    # Given a model of one layer, a prompt and two decoding steps
    log = call_log(tmp_path, "--layers", 1, "--steps", 2, "--atb", release, no=no)
    # When the documented sequence is played for the same answers
    library = DocumentedLibrary(float(release), no, pid_of(log))
    for _ in range(2):  # context made, stream set
        library.ask("IsOverflowCheck")
    prompt, decoder = model(True, 1), model(False, 1)
    library.forward("LlamaModel_Prefill", prompt)
    for _ in range(2):
        library.forward("LlamaModel_Decoder", decoder)
    library.ask("IsOverflowCheck")  # context destroyed
    # Then every call is there, in order, and no other
    calls = [shown(call) for call in log]
    for i, (got, expected) in enumerate(zip(calls, library.calls)):
        assert got == expected, f"call {i}; before it {calls[max(0, i - 3) : i]}"
    assert len(calls) == len(library.calls)


def test_both_string_abis_make_the_same_calls(tmp_path):
    logs = [call_log(tmp_path, "--atb", "8.3", abi=abi) for abi in (0, 1)]
    assert without_pid(logs[0]) == without_pid(logs[1])


def test_tensors_are_described_by_numbers_and_match_their_size(tmp_path):
    item_bytes = {"0": 4, "1": 2, "3": 4, "9": 8, "27": 2}
    for dtype, half in (("fp16", "1"), ("bf16", "27")):
        saved = [call[2:] for call in call_log(tmp_path, "--dtype", dtype) if call[1] == "SaveTensor"]
        assert {fields[0] for fields in saved} == {"2"}  # ND
        assert {fields[1] for fields in saved} == {half, "3", "9"}
        for _, kind, dims, size, _, _ in saved:
            assert int(size) == np.prod([int(d) for d in dims.split(",")]) * item_bytes[kind]


def test_kernel_tensors_are_saved_with_the_dims_of_their_view(tmp_path):
    log = call_log(tmp_path)
    bias = [call for call in log if call[1] == "SaveTensor" and "1_AddF16Kernel/before/intensor1.bin" in call[-1]]
    reported = [call for call in log if call[1] == "ReportKernelIOTensor" and call[3] == "ElewiseOperation"]
    assert bias[0][4] == "1,64"
    assert reported[0][5].split("|")[1].split(";")[2] == "64"  # the operation list has the dims before the view


def test_operation_lists_have_the_librarys_paths(tmp_path):
    log = call_log(tmp_path, "--atb", "9.1")
    rows = [
        call for call in log if call[1] == "ReportOperationIOTensor" and call[3].startswith("LinearOperation_2_1_0")
    ]
    folder = f"0_{pid_of(log)}/0/2_Prefill_layer/1_Attention/0_LinearOperation/before"
    assert rows[0][5] == "|".join(
        f"float16;nd;{dims};{folder}/intensor{i}.bin" for i, dims in enumerate(("8,64", "64,64", "64"))
    )
    assert rows[0][6] == f"float16;nd;8,64;{folder}/outtensor0.bin"
    assert [call[3] for call in log if call[1] == "ReportOperationIOTensor" and "Greedy" in call[3]] != []


def test_tiling_is_real_in_8_0_and_never_filled_later(tmp_path):
    def sums(release):
        calls = [call for call in call_log(tmp_path, "--atb", release) if call[1] == "SaveTiling"]
        assert all(int(call[2]) % 32 == 0 for call in calls)
        return {call[3] for call in calls}

    assert len(sums("8.3")) == 1  # always the same zeros
    assert len(sums("8.0")) > 10


def test_statistics_are_real_in_8_0_only(tmp_path):
    keys = re.findall(
        r"\w+",
        """totalTime runnerCreateTime runnerSetupTime runnerFillHostTilingTime setupTotalCount setupCacheHitCount
        setupCacheMissCount opsInitLuanchBufferTime tilingCacheHitCount tilingCacheMissCount tilingLocalCacheHitCount
        tilingGlobalCacheHitCount kernelCacheGetTilingTime kernelCacheAddTilingTime kernelCacheCompareRunInfoTime
        kernelCacheGetRunInfoTime""",
    )
    texts = {
        release: [c[4] for c in call_log(tmp_path, "--atb", release) if c[1] == "ReportOperationSetupStatistic"]
        for release in ("8.0", "8.3")
    }
    for release_texts in texts.values():
        for text in release_texts:
            assert [pair.split(":")[0] for pair in text.split(", ")] == keys
    assert all(text.split(", ")[0] == "totalTime:0" for text in texts["8.3"])
    assert any(text.split(", ")[0] != "totalTime:0" for text in texts["8.0"])


def test_topologies_are_what_nlohmann_would_dump(tmp_path):
    log = call_log(tmp_path)
    position = {"ReportOperationGraph": 3, "ReportModelTopoInfo": 3, "SaveParam": 2}
    for text in {call[position[call[1]]] for call in log if call[1] in position}:
        assert json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")) == text
    names = [call[2] for call in log if call[1] == "ReportOperationGraph"]
    assert names[:6] == [
        "WordEmbedding_0",
        "PositionalEmbedding_1",
        "Prefill_layer_2",
        "Prefill_layer_3",
        "LmHead_4",
        "SortOperation_5",  # run by the plugin inside LmHead, yet top-level
    ]


def test_graph_tensor_ids_count_inputs_outputs_internals(tmp_path):
    texts = {call[2]: json.loads(call[3]) for call in call_log(tmp_path) if call[1] == "ReportOperationGraph"}
    head = texts["LmHead_4"]
    assert (head["inTensorNum"], head["outTensorNum"], head["internalTensorNum"]) == (3, 2, 2)
    assert head["param"] == ""
    choice, _, _, plugin = head["nodes"]
    assert (choice["opName"], choice["param"]) == ("IfOperation_4_0", None)
    assert (plugin["opName"], plugin["opType"]) == ("PluginOperation_4_3", "PluginOperation")
    assert [node["inTensorIds"] for node in head["nodes"]] == [[0], [5, 1], [6, 2], [3]]
    assert [node["outTensorIds"] for node in head["nodes"]] == [[5], [6], [3], [4]]
    # In place: the cache write names its inputs as its outputs.
    cache = texts["Prefill_layer_2"]["nodes"][1]["nodes"][4]
    assert cache["outTensorIds"] == cache["inTensorIds"][2:4]


def test_model_topology_names_are_consistent(tmp_path):
    models = {call[2]: json.loads(call[3]) for call in call_log(tmp_path) if call[1] == "ReportModelTopoInfo"}
    assert set(models) == {"LlamaModel_Prefill", "LlamaModel_Decoder"}
    for name, topology in models.items():
        known = {text for key, value in topology.items() if key.endswith("Tensors") for text in value}
        assert all(text.startswith(name + "_") for text in known)
        produced = set(topology["inTensors"] + topology["weightTensors"])
        produced |= set(topology["kCacheTensors"] + topology["vCacheTensors"])
        for node in topology["nodes"]:
            assert set(node) == {"inTensors", "opName", "outTensors"}
            assert set(node["inTensors"]) <= produced  # nothing is read before it is written
            produced |= set(node["outTensors"])
        assert produced == known


# ---------------------------------------------------------------------------------------------------------------------
# The numbers.

PRECISION = {1: (10, -14), 27: (7, -126)}  # fraction bits, least exponent of float16 and bf16
FLOAT_EPSILON = 2.0**-24


def read_bin(path):
    """Returns (dtype number, float64 or integer array) of a record as docs/formats/atb-bin.md draws it."""
    head, payload = path.read_bytes().split(b"$End=1\n", 1)
    fields = dict(line.split("=") for line in head.decode().splitlines())
    dtype = int(fields["dtype"])
    dims = [int(d) for d in fields["dims"].split(",")]
    if dtype == 27:
        halves = np.frombuffer(payload, np.uint16).astype(np.uint32) << 16
        return dtype, halves.view(np.float32).astype(np.float64).reshape(dims)
    array = np.frombuffer(payload, {0: np.float32, 1: np.float16, 2: np.int8, 3: np.int32, 9: np.int64}[dtype])
    array = array.reshape(dims)
    return dtype, array.astype(np.float64) if dtype in (0, 1) else array


def half_ulp(values, dtype):
    bits, least = PRECISION[dtype]
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = np.floor(np.log2(np.abs(values)))
    return 0.5 * 2.0 ** (np.clip(np.nan_to_num(exponent, nan=least, neginf=least), least, 127) - bits)


class Operation:
    """The folder of one executed operation: parameters, inputs before it, outputs after it."""

    def __init__(self, folder):
        self.folder = folder
        self.type = folder.name.split("_", 1)[1]
        param = folder / "op_param.json"
        self.param = json.loads(param.read_text()) if param.exists() else {}
        self.ins = self.read("before", "intensor")
        self.outs = self.read("after", "outtensor")

    def read(self, when, kind):
        files = {int(p.name[len(kind) :].split(".")[0].split("_")[0]): p for p in (self.folder / when).glob(kind + "*")}
        return [read_bin(files[i]) for i in sorted(files)]


def softmax_attention(q, k, v, scale, add):
    """q [m, d], k and v [n, d], add [m, n]; returns the result and a bound of its error in float arithmetic."""
    scores = q @ k.T * scale + add
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    # An error of a score is a relative error of its weight; sums of n terms add n roundings more.
    relative = FLOAT_EPSILON * (8 + 2 * q.shape[1] * (np.abs(q) @ np.abs(k).T).max() * abs(scale) + 4 * len(k))
    return weights @ v, relative * (weights @ np.abs(v))


def expected(op):
    """Returns [(float64 result, bound of the float error)] of an operation, or None for one that is a mere container.

    Formulas: docs/opcheck.
    """
    ins = [array for _, array in op.ins]
    if op.type == "GatherOperation":
        return [(ins[0][ins[1]], 0)]
    if op.type == "RmsNormOperation":
        mean = (ins[0] ** 2).mean(axis=-1, keepdims=True)
        result = ins[0] * ins[1] / np.sqrt(mean + op.param["normParam"]["epsilon"])
        return [(result, FLOAT_EPSILON * (ins[0].shape[-1] + 8) * np.abs(result))]
    if op.type == "LinearOperation":
        product = ins[0] @ ins[1].T
        error = FLOAT_EPSILON * ins[0].shape[1] * (np.abs(ins[0]) @ np.abs(ins[1]).T)
        if op.param["hasBias"]:
            # The product is rounded to the type before the bias is added.
            error = error + half_ulp(product, op.outs[0][0]) * 1.01
            product = product + ins[2]
        return [(product, error)]
    if op.type == "LinearQuantOperation":
        x, weight, scales = ins[0], ins[1].astype(np.float64), ins[-1]
        largest = np.abs(x).max(axis=1, keepdims=True)
        # In float as the host does it, so that numbers halfway between two int8 go the same way.
        row_scale = (largest.astype(np.float32) / np.float32(127)).astype(np.float64)
        numbers = np.rint((x.astype(np.float32) / row_scale.astype(np.float32)).astype(np.float64))
        product = numbers @ weight.T * row_scale * scales
        error = 4 * FLOAT_EPSILON * np.abs(product)
        if op.param["hasBias"]:
            error = error + half_ulp(product, op.outs[0][0]) * 1.01
            product = product + ins[2]
        return [(product, error)]
    if op.type == "SplitOperation":
        assert sum(op.param["splitSizes"]) == ins[0].shape[op.param["splitDim"]]
        edges = np.cumsum(op.param["splitSizes"])[:-1]
        return [(part, 0) for part in np.split(ins[0], edges, axis=op.param["splitDim"])]
    if op.type == "RopeOperation":
        q, k, cos, sin, _ = ins
        results = []
        for x in (q, k):
            heads = x.reshape(len(x), -1, cos.shape[1])
            half = cos.shape[1] // 2
            turned = np.concatenate([-heads[..., half:], heads[..., :half]], axis=-1)
            first, second = heads * cos[:, None], turned * sin[:, None]
            error = 3 * FLOAT_EPSILON * (np.abs(first) + np.abs(second))
            results.append(((first + second).reshape(x.shape), error.reshape(x.shape)))
        return results
    if op.type == "ReshapeAndCacheOperation":
        key, value, keys, values, slots = ins
        results = []
        for new, cache in ((key, keys), (value, values)):
            flat = cache.copy().reshape(-1, *cache.shape[2:])
            flat[slots] = new
            results.append((flat.reshape(cache.shape), 0))
        return results
    if op.type == "SelfAttentionOperation":
        q, k, v, mask, _ = ins
        heads, kv_heads = op.param["headNum"], op.param["kvHeadNum"]
        size = q.shape[1] // heads
        add = mask * (-3e38 if op.ins[3][0] == 27 else 1.0)
        parts = []
        for head in range(heads):
            at, kv = slice(head * size, (head + 1) * size), head * kv_heads // heads
            kv_at = slice(kv * size, (kv + 1) * size)
            parts.append(softmax_attention(q[:, at], k[:, kv_at], v[:, kv_at], op.param["qkScale"], add))
        return [tuple(np.concatenate(each, axis=1) for each in zip(*parts))]
    if op.type == "PagedAttentionOperation":
        q, keys, values, tables, lengths = ins
        heads, kv_heads = op.param["headNum"], op.param["kvHeadNum"]
        k = np.concatenate([keys[block] for block in tables[0]])[: lengths[0]]
        v = np.concatenate([values[block] for block in tables[0]])[: lengths[0]]
        parts = []
        for head in range(heads):
            kv = head * kv_heads // heads
            add = np.zeros((1, len(k)))
            parts.append(softmax_attention(q[:, head], k[:, kv], v[:, kv], op.param["qkScale"], add))
        return [tuple(np.stack(each, axis=1) for each in zip(*parts))]
    if op.type == "ElewiseOperation":
        result = {8: np.add, 9: np.multiply}[op.param["elewiseType"]](*ins)
        return [(result, FLOAT_EPSILON * np.abs(result))]
    if op.type == "ActivationOperation":
        assert op.param["activationType"] == 4
        result = ins[0] / (1 + np.exp(-ins[0]))
        return [(result, 8 * FLOAT_EPSILON * np.abs(result))]
    if op.type == "IfOperation":
        return [(ins[0][-1:], 0)]
    if op.type == "SortOperation":
        best = ins[0].argmax(axis=-1)[:, None]
        return [(np.take_along_axis(ins[0], best, 1), 0), (best, 0)]
    if op.type == "GreedySearch":
        return [(ins[0].argmax(axis=-1), 0)]
    return None


def wrong_elements(op):
    """Counts the elements of all outputs farther from the float64 result than one rounding; None for containers."""
    with np.errstate(all="ignore"):
        references = expected(op)
        if references is None:
            return None
        assert len(references) == len(op.outs), op.folder
        wrong = 0
        for (reference, bound), (dtype, output) in zip(references, op.outs):
            assert reference.shape == output.shape, op.folder
            if dtype in PRECISION:
                limit = np.maximum(half_ulp(reference, dtype), half_ulp(output, dtype)) + bound
            else:
                limit = np.zeros(output.shape)
            wrong += int((~(np.abs(output - reference) <= limit * 1.0000001)).sum())
    return wrong


def natural(path):
    """Execution order within a run: counts and ids by number."""
    return [int(part.split("_")[0]) for part in path.parts]


def dumped(tmp_path, *arguments, abi=1):
    """Runs the host under the naive probe; returns its operations in execution order."""
    run_host(*arguments, abi=abi, preload="naive_probe", NAIVE_PROBE_DIR=tmp_path)
    (device,) = tmp_path.iterdir()
    folders = {path.parent for path in device.rglob("before")}
    folders = {path for path in folders if not path.name.endswith("Kernel")}
    # All prompt operations have lower base ids than all decoding operations, whose runs alternate.
    prompt_end = 1 + max(natural(p.relative_to(device))[1] for p in folders if "Prefill" in str(p))

    def order(path):
        run, base, *rest = natural(path.relative_to(device))
        return base > prompt_end + 1, run, base, rest

    return [Operation(path) for path in sorted(folders, key=order)]


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("shape", [[], ["--layers", 4, "--heads", 8, "--kv-heads", 1, "--no-bias", "--prompt", 21]])
def test_every_operation_is_right_within_one_rounding(tmp_path, dtype, shape):
    operations = dumped(tmp_path, "--dtype", dtype, *shape)
    checked = {}
    for op in operations:
        wrong = wrong_elements(op)
        if wrong is not None:
            assert wrong == 0, op.folder
            checked[op.type] = checked.get(op.type, 0) + 1
    layers = 4 if shape else 2
    assert checked["LinearOperation"] == 4 * (7 * layers + 1)  # a prompt and three steps
    assert checked["SelfAttentionOperation"] == layers
    assert checked["PagedAttentionOperation"] == 3 * layers
    assert set(checked) == {
        *("GatherOperation", "RmsNormOperation", "LinearOperation", "RopeOperation", "ReshapeAndCacheOperation"),
        *("SelfAttentionOperation", "PagedAttentionOperation", "ElewiseOperation", "ActivationOperation"),
        *("IfOperation", "SortOperation", "GreedySearch"),
    }


@pytest.mark.parametrize(
    ("arguments", "types"),
    [
        (["--packed"], {"SplitOperation": 4 * 2 * 2, "LinearOperation": 4 * (2 * 4 + 1), "RmsNormOperation": 4 * 5}),
        (["--permuted"], {"LinearOperation": 4 * (2 * 7 + 1)}),
        (["--quant"], {"LinearQuantOperation": 4 * 2 * 7, "LinearOperation": 4}),
        (["--quant", "--packed", "--no-bias"], {"LinearQuantOperation": 4 * 2 * 4, "SplitOperation": 4 * 2 * 2}),
        (["--warmup", "all"], {"SelfAttentionOperation": 2 * 2, "PagedAttentionOperation": 4 * 2}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_every_operation_of_a_variant_is_right(tmp_path, arguments, types):
    checked = {}
    for op in dumped(tmp_path, *arguments):
        wrong = wrong_elements(op)
        if wrong is not None:
            assert wrong == 0, op.folder
            checked[op.type] = checked.get(op.type, 0) + 1
    assert {name: checked[name] for name in types} == types


def test_variants_compute_the_same_up_to_rounding():
    tokens, logits = run_host().stdout.splitlines()
    assert run_host("--packed").stdout.splitlines() == [tokens, logits]  # the same products in other matrices
    assert run_host("--warmup", "all").stdout.splitlines() == [tokens, logits]
    assert run_host("--warmup", "prompt").stdout.splitlines() == [tokens, logits]
    for arguments in (["--permuted"], ["--ranks", 2], ["--ranks", 2, "--packed", "--permuted"]):
        theirs = run_host(*arguments).stdout.splitlines()
        assert theirs[0] == tokens and theirs[1] != logits  # sums in another order


def test_ranks_add_up_their_parts(tmp_path):
    # Given two ranks, each a process with a device of its own
    run_host("--ranks", 2, preload="naive_probe", NAIVE_PROBE_DIR=tmp_path)
    folders = sorted(tmp_path.iterdir())
    assert [folder.name.split("_")[0] for folder in folders] == ["0", "1"]
    places = [path.relative_to(folders[0]) for path in sorted(folders[0].rglob("*_AllReduceOperation"))]
    assert len(places) == 4 * 2 * 2  # after attention and MLP of each layer, a prompt and three steps
    for place in places:
        first, second = (Operation(folder / place) for folder in folders)
        parts = first.ins[0][1], second.ins[0][1]
        assert not np.array_equal(*parts)
        # Then both have the same sum, rounded once
        for op in (first, second):
            total = parts[0] + parts[1]
            assert (np.abs(op.outs[0][1] - total) <= half_ulp(total, 1) + FLOAT_EPSILON * np.abs(total)).all()
        np.testing.assert_array_equal(first.outs[0][1], second.outs[0][1])
    # And each has half of the columns of q and of the rows of o
    attention = places[0].parent
    shapes = [[array.shape for _, array in Operation(folder / attention).ins] for folder in folders]
    assert shapes[0] == shapes[1]
    assert (32, 64) in shapes[0] and (64, 32) in shapes[0] and (64, 64) not in shapes[0]


def test_a_rank_that_dies_takes_the_others_with_it(tmp_path):
    # Given a probe that stops the run of a rank at an overflow
    log = tmp_path / "log"
    done = run_host("--ranks", 2, "--overflow", preload="atb_call_log", status=3, ATB_CALL_LOG=log, ATB_CALL_LOG_NO="")
    assert "the library stopped with status 31" in done.stderr


def test_a_graphs_output_is_its_last_nodes_output(tmp_path):
    operations = {op.folder: op for op in dumped(tmp_path)}
    layers = [op for op in operations.values() if op.type in ("Prefill_layer", "Decoder_layer")]
    assert len(layers) == 8
    for layer in layers:
        last = operations[layer.folder / "5_ElewiseOperation"]
        np.testing.assert_array_equal(layer.outs[0][1], last.outs[0][1])
        attention_graph = operations[layer.folder / "1_Attention"]
        np.testing.assert_array_equal(
            attention_graph.outs[0][1], operations[layer.folder / "2_ElewiseOperation"].ins[1][1]
        )


def test_printed_tokens_are_the_dumped_ones(tmp_path):
    printed = run_host().stdout.splitlines()[0].split()[1:]
    tokens = [op.outs[0][1][0] for op in dumped(tmp_path) if op.type == "GreedySearch"]
    assert [str(token) for token in tokens] == printed


# name: type of the operation, a folder above it or its own, what the model must be for it
FAULTS: dict[str, tuple] = {
    "wrong_epsilon": ("RmsNormOperation", "0_RmsNormOperation"),
    "gamma_plus_one": ("RmsNormOperation", "0_RmsNormOperation"),
    "norm_of_half_row": ("RmsNormOperation", "0_RmsNormOperation"),
    "dropped_bias": ("LinearOperation", "0_LinearOperation"),
    "bias_twice": ("LinearOperation", "0_LinearOperation"),
    "split_offset": ("SplitOperation", "0_QKVLinearSplitPack", "--packed"),
    "rope_off_by_one": ("RopeOperation", "1_Attention"),
    "rope_sign": ("RopeOperation", "1_Attention"),
    "rope_interleaved": ("RopeOperation", "1_Attention"),
    "wrong_slot": ("ReshapeAndCacheOperation", "1_Attention"),
    "value_from_key": ("ReshapeAndCacheOperation", "1_Attention"),
    "dropped_scale": ("SelfAttentionOperation", "1_Attention"),
    "missing_mask_row": ("SelfAttentionOperation", "1_Attention"),
    "mask_off_by_one": ("SelfAttentionOperation", "1_Attention"),
    "swapped_heads": ("SelfAttentionOperation", "1_Attention"),
    "head_order_reversed": ("SelfAttentionOperation", "1_Attention"),
    "wrong_group": ("SelfAttentionOperation", "1_Attention"),
    "no_rescale": ("SelfAttentionOperation", "1_Attention"),
    "stale_cache": ("PagedAttentionOperation", "1_Attention"),
    "context_one_more": ("PagedAttentionOperation", "1_Attention"),
    "residual_dropped": ("ElewiseOperation", "2_ElewiseOperation"),
    "swish_as_gelu": ("ActivationOperation", "4_Mlp"),
    "swish_as_sigmoid": ("ActivationOperation", "4_Mlp"),
    "mul_as_add": ("ElewiseOperation", "4_Mlp"),
    "overflow": ("ElewiseOperation", "4_Mlp"),
    "accumulate_bf16": ("LinearOperation", "4_Mlp"),
    "truncate_rounding": ("LinearOperation", "4_Mlp"),
    "one_element": ("LinearOperation", "4_Mlp"),
    "transposed_tile": ("LinearOperation", "4_Mlp"),
    "missing_tail": ("LinearOperation", "4_Mlp"),
    "scale_off_by_one": ("LinearQuantOperation", "4_Mlp", "--quant"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_the_first_wrong_operation(tmp_path, fault):
    operation_type, node, *options = FAULTS[fault]
    operations = dumped(tmp_path, "--layers", 4, "--fault", fault, *options)
    first = next(op for op in operations if wrong_elements(op))
    assert first.type == operation_type
    assert node in first.folder.parts
    layer = "Decoder_layer" if operation_type == "PagedAttentionOperation" else "Prefill_layer"
    # The middle one of four layers: the second operation of that name.
    at = next(i for i, part in enumerate(first.folder.parts) if part.endswith(layer))
    root = Path(*first.folder.parts[:at])
    layers = sorted(int(path.name.split("_")[0]) for path in root.glob(f"*_{layer}"))
    assert layers.index(int(first.folder.parts[at].split("_")[0])) == 1


def test_a_fault_in_the_embedding_is_outside_the_layers(tmp_path):
    first = next(op for op in dumped(tmp_path, "--fault", "gather_off_by_one") if wrong_elements(op))
    assert first.folder.parts[-2:] == ("0_WordEmbedding", "0_GatherOperation")


def test_a_rank_that_is_not_added_is_missing_in_all_sums(tmp_path):
    run_host("--ranks", 2, "--fault", "rank_missing", preload="naive_probe", NAIVE_PROBE_DIR=tmp_path)
    first, second = (
        {part: Operation(next(folder.glob(f"0/2_*/{part}/*_AllReduceOperation"))) for part in ("1_Attention", "4_Mlp")}
        for folder in sorted(tmp_path.iterdir())
    )
    # Then both hold what rank 0 had, and only in the operation of the fault
    for rank in (first, second):
        np.testing.assert_array_equal(rank["4_Mlp"].outs[0][1], first["4_Mlp"].ins[0][1])
        assert not np.array_equal(rank["1_Attention"].outs[0][1], first["1_Attention"].ins[0][1])


def test_every_fault_has_its_test():
    named = run_host("--help").stdout.split("faults:")[1].split()
    assert set(named) == {*FAULTS, "gather_off_by_one", "rank_missing"}


# ---------------------------------------------------------------------------------------------------------------------
# The program.


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_output_is_the_same_with_any_probe(tmp_path, dtype):
    plain = run_host("--dtype", dtype).stdout
    assert len(plain.splitlines()) == 2
    for abi in (0, 1):
        assert run_host("--dtype", dtype, abi=abi).stdout == plain
        log = tmp_path / f"log{abi}"
        assert run_host("--dtype", dtype, abi=abi, preload="atb_call_log", ATB_CALL_LOG=log).stdout == plain
        for mode in ("files", "raw", "none"):
            folder = tmp_path / f"{mode}{abi}"
            folder.mkdir()
            variables = {"NAIVE_PROBE_DIR": folder, "NAIVE_PROBE_MODE": mode}
            assert run_host("--dtype", dtype, abi=abi, preload="naive_probe", **variables).stdout == plain


def tensor_files(folder):
    """Returns {path below the device folder: bytes} of what is below {device}_{pid}."""
    (device,) = folder.iterdir()
    return {path.relative_to(device).as_posix(): path.read_bytes() for path in device.rglob("*") if path.is_file()}


@pytest.mark.parametrize("abi", [0, 1])
@pytest.mark.parametrize("arguments", [[], ["--dtype", "bf16", "--atb", "8.0"], ["--atb", "9.1"]], ids=" ".join)
def test_our_probe_stores_what_the_naive_one_stores(tmp_path, abi, arguments):
    # Given the same run under both probes, with the settings that the dump command uses by default
    naive, ours = tmp_path / "naive", tmp_path / "ours"
    naive.mkdir()
    ours.mkdir()
    plain = run_host(*arguments, abi=abi, preload="naive_probe", NAIVE_PROBE_DIR=naive).stdout
    settings = {
        "ATB_OUTPUT_DIR": f"{ours}/",
        "ATB_DUMP_TYPE": "tensor",
        "ATB_SAVE_TENSOR": 1,
        "ATB_SAVE_TENSOR_TIME": 1,
        "ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER": 1,
        "ATB_SAVE_TENSOR_RANGE": "0,9",
        "ATB_SAVE_TENSOR_PART": 2,
        "ATB_SAVE_CHILD": 1,
    }
    assert run_host(*arguments, abi=abi, preload=OUR_PROBE, **settings).stdout == plain
    # Then every file is there under the same name, with the same bytes: header, data and parameters
    expected_files, files = tensor_files(naive), tensor_files(ours / "msit_dump" / "tensors")
    assert files.keys() == expected_files.keys()
    assert [name for name in files if files[name] != expected_files[name]] == []


@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ("wrong_epsilon", "0_RmsNormOperation/0_RmsNormKernel"),
        ("swapped_heads", "1_Attention/5_SelfAttentionOperation/0_UnpadFlashAttentionNdKernel"),
    ],
)
def test_three_commands_name_the_planted_fault(tmp_path, fault, place):
    """What docs/guide/without-an-npu.md shows."""

    def assay(*arguments, status=0):
        done = subprocess.run([ASSAY, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == status, done.stderr
        return done.stdout

    host = str(HOST / "atb_host")
    golden = assay("dump", "-er", "all", "-o", "golden", "--", host)
    mine = assay("dump", "-er", "all", "-o", "mine", "--", host, "--fault", fault)
    assert golden == run_host().stdout and mine == run_host("--fault", fault).stdout != golden
    report = assay("compare", "golden", "mine", "-o", "report", "--rel-l2", "0.01", status=1)
    assert "matched 100.0 % of the tensors" in report
    first = report[report.index("first beyond its limit") :].splitlines()[1]
    assert " ".join(first.split()) == f"step 0 2_Prefill_layer/{place} output 0"


def test_a_probe_of_the_other_string_abi_hears_only_questions_without_strings(tmp_path):
    # As with the real library: IsTensorNeedSave stays the library's own, so nothing is ever saved and nothing is said.
    naive = HOST / "naive_probe_abi0.so"
    assert run_host(abi=1, preload=naive, NAIVE_PROBE_DIR=tmp_path).stdout == run_host(abi=1).stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("abi", [0, 1])
def test_the_interface_is_the_librarys_and_can_be_interposed(abi):
    def symbols(path):
        listing = subprocess.run(["nm", "-D", path], capture_output=True, text=True, check=True).stdout
        return {line.split()[-1]: line.split()[-2] for line in listing.splitlines() if "Probe" in line}

    library = symbols(HOST / f"cxx_abi_{abi}" / "lib" / "libatb.so")
    program = symbols(HOST / f"atb_host_abi{abi}")
    # 25 functions of Probe, 2 of SpeedProbe; the library's two helpers for its own tensor types are the host's here.
    assert len(library) == 27 and set(library.values()) == {"T"}
    assert set(program.values()) == {"U"} and program.keys() == library.keys()
    assert any("cxx11" in name for name in library) == (abi == 1)


def test_releases_and_parallel_contexts_compute_the_same():
    lines = run_host().stdout.splitlines()
    for release in ("8.0", "9.1"):
        assert run_host("--atb", release).stdout.splitlines() == lines
    assert run_host("--threads", 3).stdout.splitlines() == lines * 3
    assert run_host("--async").stdout.splitlines() == lines


def test_parallel_contexts_take_different_ids(tmp_path):
    log = call_log(tmp_path, "--threads", 3, "--steps", 1)
    assert len({call[0] for call in log}) >= 3
    paths = [call[-1] for call in log if call[1] == "SaveTensor"]
    assert len(paths) == len(set(paths))


def test_asynchronous_execution_makes_the_same_calls_from_two_threads(tmp_path):
    def set_up(log):
        return [call[1:] for call in log if call[1] in ("IsTensorNeedSave", "ReportOperationGraph", "UpdateConfig")]

    def executed(log):
        return [call[1:] for call in without_pid(log) if call[1] == "SaveTensor"]

    plain, asynchronous = call_log(tmp_path), call_log(tmp_path, "--async")
    assert set_up(plain) == set_up(asynchronous)
    assert executed(plain) == executed(asynchronous)
    threads = {call[0] for call in asynchronous if call[1] == "SaveTensor"}
    assert threads.isdisjoint({call[0] for call in asynchronous if call[1] == "UpdateConfig"})


def test_ways_to_end(tmp_path):
    lines = run_host().stdout.splitlines()
    assert run_host("--exit", "_exit").stdout.splitlines() == lines
    assert run_host("--exit", "kill", status=-9).stdout.splitlines() == lines
    assert run_host("--exit", "abort", status=-6).stdout.splitlines() == lines
    forked = run_host("--exit", "fork").stdout.splitlines()
    assert forked == ["child " + line for line in lines] + lines
    log = call_log(tmp_path, "--exit", "fork")
    devices = {call[-1].split("/")[0] for call in log if call[1] == "SaveTensor"}
    assert len(devices) == 2  # the child's paths carry its own process id


def test_overflow_is_reported_and_can_stop_the_run(tmp_path):
    log = call_log(tmp_path, "--overflow", no=["IsOverflowStop"])
    reported = [call[2] for call in log if call[1] == "ReportOverflowKernel"]
    assert reported[0] == "ElewiseOperation_2_4_3:MulF16Kernel"
    stopped = call_log(tmp_path, "--overflow", status=3)
    assert [call[2] for call in stopped if call[1] == "ReportOverflowKernel"] == reported[:1]


def test_a_healthy_run_reports_no_overflow(tmp_path):
    assert not [call for call in call_log(tmp_path) if call[1] == "ReportOverflowKernel"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--steps", "x"],
        ["--layers", "0"],
        ["--foo", "1"],
        ["--hidden", "30"],
        ["--atb", "7"],
        ["--steps"],
        ["--ranks", "3"],
        ["--ranks", "2", "--threads", "2"],
        ["--warmup", "x"],
        ["--warmup", "all", "--steps", "0"],
        ["--quant", "--fault", "one_element"],
        ["--fault", "scale_off_by_one"],
        ["--fault", "split_offset"],
        ["--fault", "rank_missing"],
        ["--no-bias", "--fault", "dropped_bias"],
        ["--save-weights", "no/such/folder"],
    ],
    ids=" ".join,
)
def test_wrong_options_are_refused(arguments):
    done = run_host(*arguments, status=2)
    assert done.stderr.startswith("atb_host: ") and "usage: atb_host" in done.stderr and done.stdout == ""
