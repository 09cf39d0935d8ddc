# SPDX-License-Identifier: Apache-2.0
"""`assay dump` of jobs of several ranks, on one machine and on several.

A "node" is an `assay dump ... -- torchrun --nnodes 2 --node-rank i` of its own with an output folder of its own.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
assay = pytest.importorskip("assay")
jsonschema = pytest.importorskip("jsonschema")
torch_distributed = pytest.importorskip("torch.distributed")
if not torch_distributed.is_available():
    pytest.skip("torch without distributed", allow_module_level=True)

PROGRAM = """
import atexit, os, sys, torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
total = model(torch.full((1, 4), float(rank + 1))).sum().detach()
dist.all_reduce(total)
hooked = any("_call_impl" in vars(m) for m in model.modules())
sys.stdout.write(f"rank {rank}: {total.item():.6f} hooked {hooked}\\n")
sys.stdout.flush()
dist.barrier()
atexit._run_exitfuncs()
os._exit(0)  # a worker of gloo that frees a tensor while Python ends aborts the process (pytorch PR 179291)
"""

ALONE = """
import torch
model = torch.nn.Linear(4, 4)
print(sum(model(torch.ones(1, 4)).shape))
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def environment(**more: str) -> dict[str, str]:
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("ASSAY_", "SLURM_", "OMPI_", "PMI", "TORCHELASTIC"))
    }
    return {**kept, "OMP_NUM_THREADS": "1", **more}


def torchrun(*options: object) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", *map(str, options)]


def run(command: list[str], variables: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=variables or environment(), capture_output=True, text=True, timeout=240)


def validate(answer: dict[str, object]) -> None:
    folder = Path(__file__).parents[2] / "docs" / "schemas"
    schemas = [json.loads((folder / f"{name}.schema.json").read_text()) for name in ("answer", "dump")]
    whole = {**schemas[1], "allOf": [schemas[0]]}
    jsonschema.Draft202012Validator(whole).validate(answer)


def rank_lines(text: str) -> list[str]:
    return sorted(line for line in text.splitlines() if line.startswith("rank "))


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def binary(assay_command):
    return assay_command


@pytest.mark.slow
def test_only_the_ranks_that_are_asked_for_capture(program, binary, tmp_path):
    command = [*torchrun("--standalone", "--nproc-per-node", 3), str(program)]
    plain = run(command)
    assert plain.returncode == 0, plain.stderr

    done = run([binary, "dump", "-o", str(tmp_path / "run"), "--ranks", "1,7-8", "--", *command])

    assert done.returncode == 0, done.stderr
    # The sums are those without a capture, and only rank 1 has something of ours in its modules.
    expected = rank_lines(plain.stdout)
    expected[1] = expected[1].replace("hooked False", "hooked True")
    assert rank_lines(done.stdout) == expected
    assert sorted(path.name for path in (tmp_path / "run").glob("rank*")) == ["rank1"]
    assert {record.rank for record in assay.open(tmp_path / "run").records} == {1}
    assert "assay: ranks 0,2 here were not asked for (--ranks 1,7-8)\n" in done.stderr
    assert "assay: warning: --ranks 1,7-8: the job has no rank 7-8, only 0-2\n" in done.stderr


def test_a_rank_that_is_not_asked_for_has_captured_what_was_asked(binary, tmp_path):
    program = tmp_path / "alone.py"
    program.write_text(ALONE)
    command = [binary, "dump", "-o", str(tmp_path / "run"), "--ranks", "0", "--require", "--json", "--"]

    done = run([*command, sys.executable, str(program)], environment(RANK="1", WORLD_SIZE="2"))

    answer = json.loads(done.stdout.splitlines()[-1])
    validate(answer)
    assert (answer["outcome"], answer["exit_status"], answer["warnings"]) == ("nothing_captured", 0, [])
    assert answer["sentence"] == "rank 1 here was not asked for (--ranks 0)"
    assert not list((tmp_path / "run").glob("rank*"))


def test_ranks_that_do_not_exist_are_less_than_asked(binary, tmp_path):
    program = tmp_path / "alone.py"
    program.write_text(ALONE)
    command = [binary, "dump", "-o", str(tmp_path / "run"), "--ranks", "5", "--require", "--json", "--"]

    done = run([*command, sys.executable, str(program)], environment(RANK="1", WORLD_SIZE="2"))

    answer = json.loads(done.stdout.splitlines()[-1])
    validate(answer)
    assert (answer["outcome"], answer["exit_status"]) == ("nothing_captured", 125)
    assert answer["sentence"] == "--ranks 5: the job has no rank 5, only 0-1"


def test_capture_in_a_rank_that_is_not_asked_for_touches_nothing(tmp_path, monkeypatch):
    import torch

    monkeypatch.setenv("RANK", "3")
    model = torch.nn.Linear(2, 2)
    before = dict(vars(model))

    with assay.capture(model, tmp_path / "run", ranks="0-2,7") as handle:
        assert dict(vars(model)) == before
        model(torch.ones(1, 2))
    handle.flush()
    handle.remove()
    assert (handle.stats["records"], handle.stats["stopped"]) == (0, "")
    assert not (tmp_path / "run").exists()

    for ranks in ([1, 3], 3, range(2, 4), "all", None):
        with assay.capture(model, tmp_path / f"run{ranks}", ranks=ranks) as handle:
            model(torch.ones(1, 2))
        assert handle.stats["records"] == 2
        assert (tmp_path / f"run{ranks}" / "rank3" / "records.jsonl").exists()
    with pytest.raises(assay.FormatError, match="no list of ranks"):
        assay.capture(model, tmp_path / "run", ranks="3-")


@pytest.mark.parametrize("ranks", ["1-", "x", "3-2", "0,,1"])
def test_a_list_of_ranks_that_is_none_is_refused(binary, ranks, tmp_path):
    done = run([binary, "dump", "-o", str(tmp_path / "run"), "--ranks", ranks, "--", "true"])
    assert done.returncode == 2
    assert "--ranks" in done.stderr and not (tmp_path / "run").exists()
