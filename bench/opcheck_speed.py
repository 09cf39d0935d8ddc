# SPDX-License-Identifier: Apache-2.0
"""`assay opcheck` on dumps of a Llama layer, beside a script that computes the same goldens in torch in float64.

Two dumps: one layer at hidden size 4096 (a prompt of 128 tokens and a decoding step), where products decide, and
many layers at hidden size 64, where what is done for each operation decides. Both sides read the same files from the
page cache, use all cores and judge by the same element rule; assay also measures everything else that its report has.
Their runs alternate at random.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from bench.compare_speed import find_assay
from bench.measure import iqr, load_average, machine, median, shuffled
from bench.report import FAILED, NOT_AVAILABLE, Row, Section

COLUMNS = ["", "cases", "MB", "ms", "IQR", "cases/s", "GB/s", "of torch", "resident MB", "goal", "met"]
TORCH_SCRIPT = Path(__file__).parent / "rivals" / "torch_opcheck.py"
OVERHEAD_GOAL, PRODUCT_GOAL = 5.0, 2.5  # times as many cases a second as torch
SMALL_MEMORY = 256 << 20
ACL = {"float32": 0, "float16": 1, "int32": 3}
EPSILON = 0.000009999999747378752  # 1e-5 as a float


@dataclass
class Contender:
    """One side on one dump: whole-process times, and for torch the times it says itself."""

    name: str
    words: list[str]
    goal: Optional[float] = None
    wall: list[float] = field(default_factory=list)
    inner: list[float] = field(default_factory=list)
    resident: int = 0
    cases: int = 0
    failed: str = ""


# ---- the dumps ----


class LayerDump:
    """Writes operations of a decoder layer as the ATB probe stores them, float16; outputs come from float32.

    Equal tensors (the weights) are one file with several names, so that they are in the page cache once.
    """

    def __init__(self, root: Path, hidden: int, intermediate: int, heads: int, kv_heads: int) -> None:
        import torch

        self.torch = torch
        self.rank = root / "msit_dump_20250102_030405" / "tensors" / "0_4711"
        self.generator = torch.Generator().manual_seed(hidden)
        self.hidden, self.heads, self.kv_heads, self.size = hidden, heads, kv_heads, hidden // heads
        self.stored: dict[int, tuple[Any, Path]] = {}  # keeps the tensor, so that its id stays its own
        self.cases = self.bytes = 0
        kv_width = kv_heads * self.size
        shapes = {"q": (hidden, hidden), "k": (kv_width, hidden), "gate": (intermediate, hidden)}
        shapes["down"] = (hidden, intermediate)
        self.weights = {name: self.random(*shape, scale=shape[1] ** -0.5) for name, shape in shapes.items()}
        self.gamma = (1 + self.random(hidden, scale=0.1).float()).half()

    def random(self, *shape: int, scale: float = 1.0) -> Any:
        return (self.torch.randn(*shape, generator=self.generator) * scale).half()

    def write(self, path: Path, tensor: Any) -> None:
        known = self.stored.get(id(tensor))
        self.bytes += tensor.numel() * tensor.element_size()
        if known is not None:
            os.link(known[1], path)
            return
        self.stored[id(tensor)] = (tensor, path)
        data = tensor.contiguous().numpy().tobytes()
        kind = ACL[str(tensor.dtype).removeprefix("torch.")]
        dims = ",".join(map(str, tensor.shape))
        head = f"$Version=1.0\n$Object.Count=1\n$Object.Length={len(data)}\nformat=2\ndtype={kind}\ndims={dims}\n"
        path.write_bytes(f"{head}$Object.data=0,{len(data)}\n$End=1\n".encode() + data)

    def operation(self, folder: Path, name: str, parameters: dict[str, Any], ins: list[Any], outs: list[Any]) -> None:
        place = folder / f"{len(list(folder.iterdir())) if folder.exists() else 0}_{name}"
        (place / "after").mkdir(parents=True)
        (place / "op_param.json").write_text(json.dumps(parameters))
        for kind, tensors in (("intensor", ins), ("outtensor", outs)):
            for i, tensor in enumerate(tensors):
                self.write(place / "after" / f"{kind}{i}.bin", tensor)
        self.cases += 1

    def linear(self, folder: Path, x: Any, weight: str) -> Any:
        matrix = self.weights[weight]
        product = (x.float() @ matrix.float().T).half()
        parameters = {"transposeA": False, "transposeB": True, "hasBias": False, "outDataType": -1}
        self.operation(folder, "LinearOperation", parameters, [x, matrix], [product])
        return product

    def layer(self, step: int, number: int, tokens: int, context: int) -> None:
        """A prompt of `tokens` when `context` is 0, otherwise one token after `context` - 1 others."""
        torch, size = self.torch, self.size
        folder = self.rank / str(step) / f"{number}_layer"
        x = self.random(tokens, self.hidden)
        norm = (
            x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + EPSILON) * self.gamma.float()
        ).half()
        used = {"epsilon": EPSILON, "quantType": 0, "rstd": False, "precisionMode": 0, "modelType": 0}
        self.operation(folder, "RmsNormOperation", {"layerType": 1, "normParam": used}, [x, self.gamma], [norm])
        q, k = self.linear(folder, norm, "q"), self.linear(folder, norm, "k")
        angles = torch.arange(tokens).float()[:, None] * 10000.0 ** (-torch.arange(size // 2).float() * 2 / size)
        cos, sin = (torch.cat([f(angles)] * 2, -1).half() for f in (torch.cos, torch.sin))
        turned = [self.rotate(each.float(), cos.float(), sin.float()).half() for each in (q, k)]
        lengths = torch.tensor([tokens], dtype=torch.int32)
        rope = {"rotaryCoeff": 2, "cosFormat": 0}
        self.operation(folder, "RopeOperation", rope, [q, k, cos, sin, lengths], turned)
        attended = self.attention(folder, turned[0], turned[1], context).reshape(tokens, self.hidden)
        added = (x.float() + attended.float()).half()
        self.operation(folder, "ElewiseOperation", {"elewiseType": 8}, [x, attended], [added])
        gate = self.linear(folder, norm, "gate")
        swish = (gate.float() * torch.sigmoid(gate.float())).half()
        self.operation(folder, "ActivationOperation", {"activationType": 4, "scale": 1.0}, [gate], [swish])
        gated = (swish.float() * gate.float()).half()
        self.operation(folder, "ElewiseOperation", {"elewiseType": 9}, [swish, gate], [gated])
        self.linear(folder, gated, "down")

    def rotate(self, x: Any, cos: Any, sin: Any) -> Any:
        heads = x.reshape(len(x), -1, self.size)
        u, v = heads.chunk(2, -1)
        return (heads * cos[:, None] + self.torch.cat([-v, u], -1) * sin[:, None]).reshape(x.shape)

    def attention(self, folder: Path, q: Any, k: Any, context: int) -> Any:
        torch, scale = self.torch, self.size**-0.5
        parameters = {"headNum": self.heads, "kvHeadNum": self.kv_heads, "qkScale": scale}
        group = self.heads // self.kv_heads
        if context == 0:
            tokens = len(q)
            v = self.random(*k.shape)
            mask = torch.full((tokens, tokens), -10000.0).triu(1).half()
            split = [x.float().reshape(tokens, -1, self.size).transpose(0, 1) for x in (q, k, v)]
            keys, values = (x.repeat_interleave(group, 0) for x in split[1:])
            weights = torch.softmax(split[0] @ keys.transpose(1, 2) * scale + mask.float(), -1)
            out = (weights @ values).transpose(0, 1).reshape(q.shape).half()
            lengths = torch.tensor([tokens], dtype=torch.int32)
            parameters |= {"calcType": 3, "maskType": 1, "isTriuMask": 0}
            self.operation(folder, "SelfAttentionOperation", parameters, [q, k, v, mask, lengths], [out])
            return out
        block = 16
        count = (context + block - 1) // block
        caches = [self.random(count, block, self.kv_heads, self.size) for _ in range(2)]
        table = torch.arange(count - 1, -1, -1, dtype=torch.int32)[None]
        keys, values = (
            x[table[0].long()].flatten(0, 1)[:context].float().transpose(0, 1).repeat_interleave(group, 0)
            for x in caches
        )
        query = q.reshape(1, self.heads, self.size)
        weights = torch.softmax(query.float().transpose(0, 1) @ keys.transpose(1, 2) * scale, -1)
        out = (weights @ values).transpose(0, 1).half()
        ins = [query, *caches, table, torch.tensor([context], dtype=torch.int32)]
        self.operation(folder, "PagedAttentionOperation", parameters, ins, [out])
        return out


def make_dump(root: Path, large: bool, quick: bool) -> tuple[int, int]:
    """Writes a dump below `root`; returns (operations, bytes of their tensors, shared ones each time).

    In a process of its own: what a process holds when it starts another counts as resident memory of that one, too.
    """
    command = [sys.executable, "-m", "bench.opcheck_speed", str(root), *["large"] * large, *["quick"] * quick]
    done = subprocess.run(command, cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"bench.opcheck_speed: {done.stderr[-1000:]}")
    cases, size = done.stdout.split()
    return int(cases), int(size)


def write_dump(root: Path, large: bool, quick: bool) -> tuple[int, int]:
    """Does the work of make_dump()."""
    import torch

    with torch.inference_mode():
        if large:
            hidden, intermediate = (1024, 2752) if quick else (4096, 11008)
            dump = LayerDump(root, hidden, intermediate, 32, 8)
            dump.layer(0, 0, 128, 0)
            dump.layer(1, 0, 1, 129)
        else:
            dump = LayerDump(root, 64, 128, 4, 2)
            for number in range(10 if quick else 150):
                dump.layer(0, number, 8, 0)
                dump.layer(1, number, 1, 9)
    return dump.cases, dump.bytes


# ---- measuring ----


def run_once(contender: Contender, folder: Path) -> None:
    """Runs one process and adds what it took."""
    with open(folder / "stdout.txt", "w+") as out, open(folder / "stderr.txt", "w+") as errors:
        start = time.perf_counter()
        process = subprocess.Popen(contender.words, stdout=out, stderr=errors, cwd=folder)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        said = out.read()
        if process.returncode != 0:
            errors.seek(0)
            contender.failed = f"exit status {process.returncode}: {(said + errors.read())[-500:]}"
            return
    contender.wall.append(wall)
    contender.resident = max(contender.resident, usage.ru_maxrss * 1024)
    if contender.words[1] == str(TORCH_SCRIPT):
        result = json.loads(said)
        contender.inner.append(result["seconds"])
        contender.cases = result["cases"]
        if result["passed"] != result["cases"]:
            contender.failed = f"{result['cases'] - result['passed']} of {result['cases']} cases do not pass"


def rows_of(contenders: list[Contender], cases: int, size: int) -> list[Row]:
    """One row each; ratios are of times without torch's import, which favours torch."""
    rows = []
    torch_seconds = next((median(c.inner) for c in contenders if c.inner), None)
    for contender in contenders:
        if contender.failed:
            rows.append(Row(contender.name, status=FAILED, reason=contender.failed))
            continue
        times = contender.inner or contender.wall
        seconds = median(times)
        row = Row(contender.name, seconds=seconds, unit="one command")
        row.data = {"wall": contender.wall, "inner": contender.inner, "resident": contender.resident}
        row.cells = {
            "cases": str(cases),
            "MB": f"{size / 1e6:.0f}",
            "ms": f"{seconds * 1e3:.0f}",
            "IQR": f"{iqr(times) * 1e3:.0f}",
            "cases/s": f"{cases / seconds:.0f}",
            "GB/s": f"{size / seconds / 1e9:.2f}",
            "resident MB": f"{contender.resident / 1e6:.0f}",
        }
        if torch_seconds is not None:
            row.cells["of torch"] = f"{torch_seconds / seconds:.2f}x"
            if contender.goal is not None:
                rate = torch_seconds / seconds
                row.judge(f"{rate:.2f}x", f"{contender.goal:g}x", rate >= contender.goal)
        rows.append(row)
    return rows


def contenders_of(assay: Optional[str], dump: Path, report: Path, title: str, goal: float) -> list[Contender]:
    """Ours, ours with little memory, and the script."""
    found = []
    if assay:
        words = [assay, "opcheck", str(dump), "-o", str(report), "--format", "jsonl", "--no-kernels"]
        found.append(Contender(f"assay opcheck, {title}", words, goal))
        found.append(
            Contender(f"assay opcheck --max-memory 256MiB, {title}", [*words, "--max-memory", str(SMALL_MEMORY)])
        )
    found.append(Contender(f"rival: torch script, {title}", [sys.executable, str(TORCH_SCRIPT), str(dump)]))
    return found


def run(build: Path, quick: bool, given: Optional[str]) -> Section:
    """Writes the dumps below `build`/work, runs both sides and deletes the dumps."""
    section = Section("opcheck", "Operations recomputed in float64, warm files", COLUMNS, machine=machine())
    before = load_average()
    work = (build / "work" / f"opcheck-{os.getpid()}").absolute()
    assay = find_assay(given)
    repetitions = 2 if quick else 5
    generator = random.Random(20260103)
    titles = {True: f"one layer, hidden {1024 if quick else 4096}", False: f"{20 if quick else 300} layers, hidden 64"}
    goals = {True: PRODUCT_GOAL, False: OVERHEAD_GOAL}
    try:
        for large in (True, False):
            dump = work / ("large" if large else "small")
            cases, size = make_dump(dump, large, quick)
            print(f"opcheck: {titles[large]} ...", file=sys.stderr, flush=True)
            contenders = contenders_of(assay, dump, work / "report", titles[large], goals[large])
            for turn in range(1 + repetitions):
                for contender in shuffled(contenders, generator):
                    if not contender.failed:
                        run_once(contender, work)
                        if turn == 0:  # only warms up
                            contender.wall.clear()
                            contender.inner.clear()
            section.rows += rows_of(contenders, cases, size)
        if not assay:
            section.rows.append(Row("assay opcheck", status=NOT_AVAILABLE, reason="no `assay` command is installed"))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    section.load = (before, load_average())
    section.notes = [
        "Medians; runs alternate at random, files in the page cache, all cores. `assay`: from fork to exit, with every "
        "measure and a report. The script: from its first file on, without the 1 to 3 s that importing torch takes, "
        "and with the element rule alone. MB counts a weight at each use. Resident memory counts mapped pages.",
    ]
    return section


if __name__ == "__main__":
    print(*write_dump(Path(sys.argv[1]), "large" in sys.argv[2:], "quick" in sys.argv[2:]))
