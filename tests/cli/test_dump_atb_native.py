# SPDX-License-Identifier: Apache-2.0
"""A dump of the acceleration library in the native layout says what the files of the original's layout say."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from assay_command import binary, run
from bench import record_lines
from safetensors import safe_open

SMALL = ["--layers", "1", "--hidden", "32", "--prompt", "8", "--steps", "3"]
ALL = ["--type", "model", "layer", "tensor", "-er", "all"]
DTYPES = {"0": "<f4", "1": "<f2", "3": "<i4", "9": "<i8", "12": "?"}


def dump(host: Path, out: Path, *words: str, layout: str = "native") -> Path:
    done = run("dump", "--host", "atb", "--layout", layout, "-o", out, *ALL, *words, "--", host, *SMALL)
    assert done.returncode == 0, done.stderr
    (root,) = out.glob("msit_dump_*")
    return root


@pytest.fixture(scope="module")
def host(atb_homes):
    return atb_homes[1].parent / "atb_host_abi1"


@pytest.fixture(scope="module")
def dumps(host, tmp_path_factory):
    """The same program, which computes the same each time, in both layouts."""
    place = tmp_path_factory.mktemp("layouts")
    return {layout: dump(host, place / layout, layout=layout) for layout in ("native", "strict")}


def process_of(root: Path) -> Path:
    (process,) = (root / "tensors").iterdir()
    return process


def lines_of(root: Path) -> list[dict]:
    return record_lines.read(process_of(root) / "records.jsonl")


def path_of(line: dict) -> str:
    """Below the folder of the process, as the layout of the original has it."""
    folder = f"{line['step']}/{line['node']}"
    if line.get("kind") == "operator":
        return f"{folder}/op_param.json"
    return f"{folder}/{line['moment']}/{line['role'].removesuffix('put')}tensor{line['slot']}.bin"


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def read_bin(content: bytes) -> tuple[dict[str, str], bytes]:
    """docs/formats/atb-bin.md"""
    header, payload = content.split(b"$End=1\n", 1)
    return dict(line.split("=", 1) for line in header.decode().splitlines()), payload


def test_every_line_has_the_bytes_of_its_file(dumps):
    files = files_below(process_of(dumps["strict"]))
    lines = lines_of(dumps["native"])
    assert {path_of(line) for line in lines} == set(files)
    assert len(lines) == len(files) > 500
    process = process_of(dumps["native"])
    for line in lines:
        if line.get("kind") == "operator":
            assert json.dumps(line["args"]) == json.dumps(json.loads(files[path_of(line)]))
            continue
        header, payload = read_bin(files[path_of(line)])
        stored = (process / line["file"]).read_bytes()[line["offset"] : line["offset"] + line["bytes"]]
        assert stored == payload
        assert ",".join(map(str, line["shape"])) == header["dims"]
        assert np.dtype(DTYPES[header["dtype"]]).name == line["dtype"]


def test_other_readers_of_safetensors_open_its_files(dumps):
    process = process_of(dumps["native"])
    by_name = {
        f"{line['n']}:{line['node']}.{line['role']}.{line['slot']}": line
        for line in lines_of(dumps["native"])
        if "file" in line and "same_as" not in line
    }
    found = set()
    for path in process.glob("*.safetensors"):
        with safe_open(path, "np") as file:
            for name in file.keys():  # noqa: SIM118
                if name.startswith("__pad"):
                    continue
                line = by_name[name]
                tensor = file.get_tensor(name)
                raw = path.read_bytes()[line["offset"] : line["offset"] + line["bytes"]]
                assert tensor.tobytes() == raw and list(tensor.shape) == line["shape"]
                found.add(name)
    assert found == set(by_name)


def test_equal_values_are_stored_once(dumps):
    payloads = [read_bin(content) for name, content in files_below(dumps["strict"]).items() if name.endswith(".bin")]
    distinct = {(header["dtype"], payload) for header, payload in payloads}
    stored = [line for line in lines_of(dumps["native"]) if "file" in line and "same_as" not in line]
    assert len(stored) == len(distinct)
    assert sum(line["bytes"] for line in stored) == sum(len(payload) for _, payload in distinct)
    # weights are inputs of graphs, operations and kernels in each of the runs
    assert sum(len(payload) for _, payload in payloads) > 5 * sum(line["bytes"] for line in stored)


def test_the_whole_verifies(dumps, tmp_path):
    done = run("verify", dumps["native"])
    assert done.returncode == 0 and done.stdout.startswith("whole: "), done.stdout
    assert "digest" in done.stdout
    broken = tmp_path / "broken"
    shutil.copytree(dumps["native"], broken)
    (file,) = process_of(broken).glob("step-000001.safetensors")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    done = run("verify", broken)
    assert done.returncode == 1 and "holds other bytes than the capture wrote" in done.stdout


def rows_of(folder: Path, pattern: str) -> list[dict]:
    (path,) = folder.glob(pattern)
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_both_layouts_are_the_same_run(dumps, tmp_path):
    """Records, names, order, parameters, topology and coverage."""
    shown = {}
    for layout, root in dumps.items():
        listed = run("show", root, "--list")
        tree = run("show", root)
        assert listed.returncode == tree.returncode == 0, listed.stderr
        texts = (listed.stdout + tree.stdout).replace(str(root), "ROOT")
        shown[layout] = re.sub(r"0_\d+", "PROCESS", texts).replace(", bytes", "")
    assert shown["native"] == shown["strict"]
    for first, second in (("strict", "native"), ("native", "strict")):
        out = tmp_path / first
        done = run("compare", dumps[first], dumps[second], "--cmp-level", "api", "-o", out)
        assert done.returncode == 0, done.stdout
        rows = rows_of(out, "*.csv")
        assert len(rows) > 500
        assert f"same: {len(rows)} of {len(rows)} pairs equal in every value" in done.stdout


def test_the_operations_are_judged_alike(host, tmp_path):
    verdicts = {}
    for layout in ("native", "strict"):
        root = dump(host, tmp_path / layout, layout=layout)
        done = run("opcheck", root, "--format", "csv", "-o", tmp_path / f"report-{layout}")
        assert done.returncode == 0, done.stdout
        rows = rows_of(tmp_path / f"report-{layout}", "*.csv")
        paths = [name for name in rows[0] if "path" in name.lower()]
        verdicts[layout] = [{name: cell for name, cell in row.items() if name not in paths} for row in rows]
    assert verdicts["native"] == verdicts["strict"] and len(verdicts["native"]) > 20


@pytest.mark.disagrees_with_itself("a kernel of mine is wrong by itself")
def test_a_fault_is_told_in_the_same_words(host, dumps, tmp_path):
    """Equal values share a place in a file, so nothing may be told from its file alone."""
    told = {}
    for layout in ("native", "strict"):
        out = tmp_path / layout
        words = ["--host", "atb", "--layout", layout, "-o", out / "mine", *ALL, "--", host, *SMALL]
        done = run("dump", *words, "--fault", "wrong_epsilon")
        assert done.returncode == 0, done.stderr
        (mine,) = (out / "mine").glob("msit_dump_*")
        located = run("locate", dumps[layout], mine)
        compared = run("compare", dumps[layout], mine, "-o", out)
        assert located.returncode == 1, located.stderr
        texts = (located.stdout + compared.stdout).replace(str(mine), "MINE").splitlines()
        told[layout] = [line for line in texts if not line.startswith(("golden ", "mine ", "report"))]
    assert told["native"] == told["strict"]
    assert any("RmsNormOperation" in line and line.startswith("first bad") for line in told["native"])


def test_the_tree_of_the_original_is_made_again_byte_for_byte(dumps, tmp_path):
    done = run("convert", dumps["native"], tmp_path / "tree", "--to", "atb-tree")
    assert done.returncode == 0, done.stderr
    assert files_below(process_of(tmp_path / "tree")) == files_below(process_of(dumps["strict"]))
    other = {name for name in files_below(dumps["native"]) if not name.startswith("tensors/")}
    assert other == {name for name in files_below(tmp_path / "tree") if not name.startswith("tensors/")}
    again = run("convert", dumps["strict"], tmp_path / "again", "--to", "atb-tree")
    assert again.returncode == 2 and "is a tree of files already" in again.stderr


@pytest.mark.parametrize("words", [("--statistics",), ("--statistics", "--digest")])
def test_statistics_need_no_files(host, tmp_path, words):
    native = dump(host, tmp_path / "native", *words)
    assert not list(native.rglob("*.safetensors"))
    lines = [line for line in lines_of(native) if line.get("kind") != "operator"]
    assert all(("digest" in line) == ("--digest" in words) and "stats" in line for line in lines)
    # The values are those of a dump of data.
    data = files_below(process_of(dump(host, tmp_path / "data", layout="strict")))
    for line in lines[:200]:
        header, payload = read_bin(data[path_of(line)])
        values = np.frombuffer(payload, DTYPES[header["dtype"]]).astype(np.float64)
        assert (line["stats"]["min"], line["stats"]["max"]) == (values.min(), values.max())
        assert line["stats"]["mean"] == pytest.approx(values.mean(), rel=1e-9, abs=1e-12)
        assert line["stats"]["l2"] == pytest.approx(np.sqrt((values**2).sum()), rel=1e-9)
    strict = dump(host, tmp_path / "strict", "--statistics", layout="strict")
    done = run("convert", native, tmp_path / "tree", "--to", "atb-tree")
    assert done.returncode == 0, done.stderr
    assert files_below(process_of(tmp_path / "tree")) == files_below(process_of(strict))


def test_the_old_names_keep_the_old_files(host, tmp_path):
    for name, words in (("msit", []), ("assay", ["--host", "atb", "--compat", "msit"])):
        command = ["llm", "dump"] if name == "msit" else ["dump"]
        done = run(*command, *words, "-o", tmp_path / name, "--exec", f"{host} --layers 1 --steps 1", name=name)
        assert done.returncode == 0, done.stderr
        assert not list((tmp_path / name).rglob("records.jsonl"))
        assert list((tmp_path / name).rglob("*.bin"))


@pytest.mark.parametrize(
    "damage",
    [
        ("missing file", lambda process: next(process.glob("step-000001*")).unlink()),
        ("cut records", lambda process: cut(process / "records.jsonl")),
        ("records of another run", lambda process: other_id(process / "records.jsonl")),
        ("no manifest", lambda process: (process / "manifest.json").unlink()),
    ],
    ids=lambda damage: damage[0],
)
def test_a_damaged_process_is_not_called_the_same(dumps, tmp_path, damage):
    shutil.copytree(dumps["native"], tmp_path / "mine")
    damage[1](process_of(tmp_path / "mine"))
    done = run("compare", dumps["native"], tmp_path / "mine", "-o", tmp_path / "report")
    assert done.returncode != 0 or "did not finish" in done.stdout, done.stdout
    assert "same:" not in done.stdout


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2000])


def other_id(path: Path) -> None:
    text = path.read_text()
    path.write_text(re.sub(r'"run":"[0-9a-f]{32}"', '"run":"' + "0" * 32 + '"', text))


MEASURED = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def test_memory_is_bounded_however_long_the_program_runs(host, tmp_path):
    # given a program of layers of 512, of 20 steps and of 80
    large = ["--layers", "2", "--hidden", "512", "--prompt", "64", "--vocab", "2048"]

    def peak_mib(*words: object) -> float:
        done = subprocess.run([sys.executable, "-c", MEASURED, *map(str, words)], capture_output=True, text=True)
        status, peak = done.stdout.split()
        assert status == "0", done.stderr
        return int(peak) / 1024

    def dumped(steps: int) -> tuple[float, int, int]:
        out = tmp_path / str(steps)
        words = [binary(), "dump", "--host", "atb", "-o", out, *ALL, "--", host, *large, "--steps", steps]
        peak = peak_mib(*words)
        (root,) = out.glob("msit_dump_*")
        sizes = [file.stat().st_size for file in process_of(root).glob("*.safetensors")]
        return peak, sum(sizes), len(lines_of(root))

    bare = peak_mib(host, *large, "--steps", 20)
    # when all of it is dumped
    peak, size, lines = dumped(20)
    longer_peak, longer_size, longer_lines = dumped(80)
    # then four times the records need no more than the buffer of 64 MiB, and what is known of values seen lately
    assert longer_lines > 3 * lines > 10_000 and longer_size > size > 20e6
    assert peak - bare < 64 + 24
    assert longer_peak - peak < 16
