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
ours = sys.modules.get("assay._capture")
seen = ours is not None and any(map(ours.is_captured, model.modules()))
sys.stdout.write(f"rank {rank}: {total.item():.6f} seen {seen}\\n")
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
    expected[1] = expected[1].replace("seen False", "seen True")
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


# --- one run id for several hosts

BEFORE_ANY_GROUP = PROGRAM.replace(
    'dist.init_process_group("gloo")\nrank = dist.get_rank()', 'rank = int(os.environ["RANK"])'
)
BEFORE_ANY_GROUP = BEFORE_ANY_GROUP.replace("dist.all_reduce(total)", 'dist.init_process_group("gloo")')


def run_on_two_nodes(binary: str, program: Path, folder: Path, *rendezvous: object, **variables: str) -> list[str]:
    """Two commands at the same time, each with a folder of its own; returns what they printed on stderr."""
    commands = [
        [binary, "dump", "-o", str(folder / f"node{node}"), "--", *torchrun("--nnodes", 2, "--nproc-per-node", 1),
         *(str(option).format(node=node) for option in rendezvous), str(program)]
        for node in range(2)
    ]  # fmt: skip
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    nodes = [subprocess.Popen(command, env=environment(**variables), **pipes) for command in commands]
    try:
        outputs = [node.communicate(timeout=240) for node in nodes]
    finally:
        for node in nodes:
            node.kill()
    assert [node.returncode for node in nodes] == [0, 0], outputs
    return [stderr for _, stderr in outputs]


def run_ids(folder: Path) -> list[str]:
    """Of both nodes: as the manifest has it, which the first line of the records must have, too."""
    ids = []
    for node in range(2):
        (rank,) = (folder / f"node{node}").glob("rank*")
        first = json.loads((rank / "records.jsonl").read_text().splitlines()[0])
        ids.append(json.loads((folder / f"node{node}" / "manifest.json").read_text())["id"])
        assert first["run"] == ids[-1]
    return ids


@pytest.mark.slow
@pytest.mark.parametrize("source", [PROGRAM, BEFORE_ANY_GROUP], ids=["group", "before any group"])
def test_static_rendezvous_without_any_name_gives_each_job_one_id(source, binary, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(source)
    port = free_port()
    static = ["--node-rank", "{node}", "--master-addr", "127.0.0.1", "--master-port", port]

    ids = []
    for job in ("first", "second"):  # one after the other, with the same settings
        (tmp_path / job).mkdir()
        said = run_on_two_nodes(binary, program, tmp_path / job, *static)
        assert not any("run id" in text for text in said)
        ids.append(run_ids(tmp_path / job))

    assert ids[0][0] == ids[0][1] and ids[1][0] == ids[1][1]
    assert ids[0][0] != ids[1][0]


@pytest.mark.slow
def test_c10d_rendezvous_with_the_same_name_twice_gives_two_ids(program, binary, tmp_path):
    c10d = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "nightly"]

    ids = []
    for job in ("first", "second"):
        (tmp_path / job).mkdir()
        run_on_two_nodes(binary, program, tmp_path / job, *c10d)
        ids.append(run_ids(tmp_path / job))

    assert ids[0][0] == ids[0][1] and ids[1][0] == ids[1][1]
    assert ids[0][0] != ids[1][0]


def launched(variables: dict[str, str]) -> str | None:
    from assay._run_id import id_of_launcher

    return id_of_launcher(variables)


def test_a_step_of_slurm_is_a_job():
    first = {"SLURM_JOB_ID": "71", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURMD_NODENAME": "a"}
    assert launched(first) == launched({**first, "SLURM_PROCID": "1", "SLURMD_NODENAME": "b"}) is not None
    others = [{"SLURM_JOB_ID": "72"}, {"SLURM_STEP_ID": "1"}, {"SLURM_RESTART_COUNT": "1"}]
    assert len({launched(first), *(launched({**first, **other}) for other in others)}) == 4
    # The shell of an allocation starts any number of programs.
    assert launched({"SLURM_JOB_ID": "71"}) is None
    assert launched({"SLURM_JOB_ID": "71", "SLURM_STEP_ID": "batch"}) is None


def test_a_namespace_of_pmix_is_a_job():
    first = {"PMIX_NAMESPACE": "prterun-a-4711@1", "PMIX_RANK": "0", "PMIX_HOSTNAME": "a"}
    assert launched(first) == launched({**first, "PMIX_RANK": "1", "PMIX_HOSTNAME": "b"}) is not None
    assert launched(first) != launched({**first, "PMIX_NAMESPACE": "prterun-a-4712@1"})
    assert launched({}) is None


def alone_in_two(binary: str, folder: Path, **variables: str) -> tuple[str, str]:
    """(id, stderr) of a process that says that it is one of two, on a host of its own."""
    folder.mkdir()
    (folder / "alone.py").write_text(ALONE)
    variables = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", **variables}
    done = run([binary, "dump", "-o", str(folder / "run"), "--", sys.executable, str(folder / "alone.py")],
               environment(**variables))  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr
    return json.loads((folder / "run" / "manifest.json").read_text())["id"], done.stderr


def test_a_job_that_cannot_agree_is_told(binary, tmp_path):
    ours, said = alone_in_two(binary, tmp_path / "none")
    assert len(ours) == 32
    assert "there is no process group yet, and the launcher names no job; ASSAY_RUN_ID gives" in said

    _, said = alone_in_two(binary, tmp_path / "wrong", ASSAY_RUN_ID="nightly")
    assert "ASSAY_RUN_ID is not 32 hexadecimal digits" in said

    given, said = alone_in_two(binary, tmp_path / "given", ASSAY_RUN_ID="a" * 32)
    assert given == "a" * 32 and "run id" not in said

    slurm = {"SLURM_JOB_ID": "71", "SLURM_STEP_ID": "0"}
    given, said = alone_in_two(binary, tmp_path / "slurm", **slurm)
    assert given == launched(slurm) and "run id" not in said


def test_a_store_that_does_not_answer_costs_seconds_and_a_sentence(binary, tmp_path):
    with socket.socket() as deaf:  # takes connections and says nothing
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        _, said = alone_in_two(
            binary,
            tmp_path / "deaf",
            TORCHELASTIC_USE_AGENT_STORE="True",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(deaf.getsockname()[1]),
        )
    assert "assay: warning: the run id is that of" in said


# --- budgets of a host


@pytest.mark.parametrize(("ranks", "sharers"), [("all", 4), ("0,2", 2)])
def test_the_ranks_of_a_host_share_its_budgets(ranks, sharers, binary, tmp_path):
    program = tmp_path / "alone.py"
    program.write_text(ALONE.replace("torch.ones(1, 4)", "torch.ones(65536, 4)"))  # 1 MiB in, 1 MiB out
    budgets = ["--node-memory", "80MiB", "--disk-budget", f"{3 * sharers // 2}MiB", "--parallel", "tp=2,dp=2"]
    command = [binary, "dump", "-o", str(tmp_path / "run"), "--ranks", ranks, *budgets, "--"]
    variables = {"RANK": "2", "LOCAL_RANK": "2", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}

    done = run([*command, sys.executable, str(program)], environment(**variables))

    # 1.5 MiB a rank hold the input, not the output as well; the program goes on.
    assert (done.returncode, done.stdout) == (0, "65540\n"), done.stderr
    manifest = json.loads((tmp_path / "run" / "rank2" / "manifest.json").read_text())
    assert manifest["complete"] is False and "the disk limit of" in manifest["sink"]["stopped"]
    assert "the disk limit of" in done.stderr
    assert manifest["sink"]["queue_bytes"] <= (80 << 20) // sharers
    assert manifest["host"]["parallel"] == {"tp": {"rank": 0, "size": 2}, "dp": {"rank": 1, "size": 2}}
    lines = [json.loads(line) for line in (tmp_path / "run" / "rank2" / "records.jsonl").read_text().splitlines()]
    assert sum(line.get("bytes", 0) for line in lines if "same_as" not in line) <= 3 << 19
    assert any("bytes" in line for line in lines), lines
    assert any("bytes" not in line for line in lines), lines
    assert len(assay.open(tmp_path / "run").records) == len(lines)
