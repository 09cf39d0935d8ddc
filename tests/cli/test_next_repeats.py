# SPDX-License-Identifier: Apache-2.0
"""`next:` captures again what was captured: under the launcher, in the folder and with the variables of then."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import warm_python
from assay_command import binary, run
from test_dump_ranks import environment, free_port

PROGRAM = """
import os, sys, torch
rank, gain = int(os.environ.get("RANK", "0")), float(os.environ.get("GAIN", "1"))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4))
if {"bfloat16", "mine"} & set(sys.argv):
    model = model.bfloat16()
with torch.no_grad():
    model[1].weight.mul_(gain)
    model(torch.randn(4, 16).to(model[0].weight.dtype) + rank)
"""

# What an mpirun does for one machine: so many of its command, each with its rank.
MPIRUN = f"""#!{sys.executable}
import os, subprocess, sys
count = int(sys.argv[sys.argv.index("-n") + 1])
ranks = [subprocess.Popen(sys.argv[3:], env={{**os.environ, "OMPI_COMM_WORLD_SIZE": str(count), "RANK": str(rank),
         "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_SIZE": str(count)}}) for rank in range(count)]
sys.exit(max(rank.wait() for rank in ranks))
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as environment() has it
    (tmp_path / "model.py").write_text(PROGRAM)
    mpirun = tmp_path / "bin" / "mpirun"
    mpirun.parent.mkdir()
    mpirun.write_text(MPIRUN)
    mpirun.chmod(mpirun.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def paths(place: Path, **more: str) -> dict[str, str]:
    return environment(PATH=f"{place / 'bin'}:{Path(binary()).parent}:{os.environ['PATH']}", **more)


def shell(line: str, cwd: Path, **more: str) -> str:
    done = subprocess.run(
        ["bash", "-c", line], cwd=cwd, env=paths(cwd, **more), capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    return done.stdout + done.stderr


def next_after_locate(golden: object, mine: object, cwd: Path) -> str:
    said = json.loads(run("locate", golden, mine, "--json", cwd=cwd).stdout)
    assert said["outcome"] != "first_wrong", said
    return str(said["next"])


def ranks_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("rank*"))


def torchrun() -> str:
    return shlex.join(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
    )


@pytest.mark.slow
@pytest.mark.parametrize("in_front", [False, True])
def test_a_launcher_is_repeated(place, in_front):
    """Inside `assay dump` as torchrun usually is, and around it as mpirun."""
    launcher = "mpirun -n 2"
    for name, words in (("golden", "model.py"), ("mine", "model.py bfloat16")):
        program = f"{warm_python.python()} {words}"
        line = (
            f"{launcher} assay dump -o {name} -- {program}"
            if in_front
            else f"assay dump -o {name} -- {launcher} {program}"
        )
        shell(line, place)
        assert ranks_of(place / name) == ["rank0", "rank1"]
    following = next_after_locate("golden", "mine", place)
    assert ("mpirun -n 2 assay dump " in following) == in_front
    assert following.startswith("assay dump ") != in_front
    assert (" -- mpirun -n 2 " in following) != in_front
    shell(following, place)
    assert ranks_of(place / "golden-operators") == ["rank0", "rank1"]


@pytest.mark.slow
def test_torchrun_is_repeated_for_dump_and_for_capture(place):
    (place / "own.py").write_text(
        "import assay\n"
        + PROGRAM.replace("with torch.no_grad():", "with torch.no_grad(), assay.capture(model, sys.argv[1]):")
    )
    shell(f"assay dump -o golden -- {torchrun()} model.py", place)
    shell(f"{torchrun()} own.py mine", place)
    for run_of, script in (("golden", "model.py"), ("mine", "own.py mine")):
        for rank in (0, 1):
            command = json.loads((place / run_of / f"rank{rank}" / "manifest.json").read_text())["host"]["command"]
            assert command["folder"] == str(place)
            assert shlex.join(command["words"][1:3]) == "-m torch.distributed.run"
            assert shlex.join(command["words"]).endswith(f" {script}")
    following = next_after_locate("golden", "mine", place)
    assert " -m torch.distributed.run --nproc-per-node 2 " in following
    shell(following, place)
    assert ranks_of(place / "golden-operators") == ["rank0", "rank1"]


def test_a_job_of_which_nobody_knows_the_launcher_is_not_taken_for_one_process(place):
    for name in ("golden", "mine"):
        for rank in "01":
            shell(
                f"assay dump -o {name} -- {warm_python.python()} model.py {name}",
                place,
                RANK=rank,
                WORLD_SIZE="2",
                LOCAL_WORLD_SIZE="2",
            )
    assert next_after_locate("golden", "mine", place).startswith("LAUNCHER assay dump --level operator ")


def test_a_folder_and_variables_are_given_back(place):
    other = place / "other"
    other.mkdir()
    shell(f"assay dump -o golden --exec 'GAIN=1 {warm_python.python()} model.py'", place)
    shell(f"assay dump -o mine --exec 'GAIN=1 {warm_python.python()} model.py bfloat16'", place, VLLM_API_KEY="secret")
    here = next_after_locate("golden", "mine", place)
    assert here.endswith(f" -- env GAIN=1 {warm_python.python()} model.py")
    there = next_after_locate("../golden", "../mine", other)
    assert there.endswith(f" -- env -C {place} GAIN=1 {warm_python.python()} model.py")
    shell(f"cd other && {there}", place)
    assert ranks_of(other / "golden-operators") == ["rank0"]
    assert "secret" not in (place / "mine" / "manifest.json").read_text()


@pytest.mark.parametrize("words", [["-c", PROGRAM], ["-m", "model", "bfloat16"]])
def test_what_python_was_given_is_repeated(place, words):
    own = (
        "import assay, sys, torch\n"
        "model = torch.nn.Linear(2, 2)\n"
        "with assay.capture(model, 'own'): model(torch.ones(1, 2))\n"
    )
    if words[0] == "-m":
        (place / "model.py").write_text(own)
    else:
        words = ["-c", own]
    subprocess.run([sys.executable, *words], cwd=place, env=paths(place), check=True)
    command = json.loads((place / "own" / "manifest.json").read_text())["host"]["command"]
    assert command == {"words": [sys.executable, *words], "folder": str(place)}
