# SPDX-License-Identifier: Apache-2.0
"""The batch script of docs/guide/clusters.md, run as it is printed.

There is no Slurm here: `scontrol` prints the hosts, and `srun` starts on this machine what it would start on another.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ray_hosts import alone, binary, files_of, wait_until, write_two_ranks

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
SCONTROL = '#!/bin/bash\n[ "$1 $2" = "show hostnames" ] && tr "," "\\n" <<< "$3"\n'
SRUN = '#!/bin/bash\necho "$@" >> srun.log\nwhile [[ $1 == --* ]]; do shift; done\nexec "$@"\n'
HANGING = '#!/bin/bash\n[ "$1" = part ] && touch {begun} && exec sleep 60\nexec {binary} "$@"\n'


def script() -> str:
    """The only block of bash on the page."""
    (found,) = re.findall(r"^```bash\n(.*?)^```$", (ROOT / "docs/guide/clusters.md").read_text(), re.M | re.S)
    return found


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return write_two_ranks(tmp_path)


class Job:
    """A job of two hosts with a CPU each; both are this machine."""

    def __init__(self, folder: Path, command: str, *words: object) -> None:
        self.folder = folder
        tools = [str(folder / "tools"), str(Path(binary()).parent), str(Path(sys.executable).parent)]
        write_program(folder / "tools/scontrol", SCONTROL)
        write_program(folder / "tools/srun", SRUN)
        (folder / "home/assay/bin").mkdir(parents=True)
        (folder / "home/assay/bin/activate").write_text(f"export PATH={':'.join(tools)}:$PATH\n")
        (folder / "compare.sbatch").write_text(script())
        self.number = 100_000 + os.getpid() % 10_000  # names the port, too
        environment = {
            **os.environ,
            "HOME": str(folder / "home"),
            "ASSAY_BINARY": command,
            "SLURM_JOB_ID": str(self.number),
            "SLURM_JOB_NAME": "assay-compare",
            "SLURM_JOB_NODELIST": f"{socket.gethostname()},localhost",
            "SLURM_CPUS_ON_NODE": "1",
        }
        self.process = subprocess.Popen(
            ["bash", "compare.sbatch", *map(str, words)],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> tuple[int, str, str]:
        """Status, output and errors."""
        out, errors = self.process.communicate(timeout=150)
        return self.process.returncode, out, errors

    def clear(self) -> None:
        """What a job that went wrong leaves, and the folder that Ray leaves in any case."""
        for process in self.left():
            os.kill(process, signal.SIGKILL)
        shutil.rmtree(f"/tmp/ray-{self.number}", ignore_errors=True)

    def left(self) -> list[int]:
        """Processes of the job that still run."""
        mark = f"SLURM_JOB_ID={self.number}".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                environment = (process / "environ").read_bytes().split(b"\0")
            except OSError:  # it has ended meanwhile, or is another user's
                continue
            if mark in environment:
                found.append(int(process.name))
        return found


@pytest.fixture
def submit(tmp_path: Path) -> Callable[..., Job]:
    """Starts a job in the test's folder."""
    jobs: list[Job] = []

    def start(command: str, *words: object) -> Job:
        jobs.append(Job(tmp_path, command, *words))
        return jobs[-1]

    yield start
    for job in jobs:
        job.clear()


def test_the_job_compares_and_ends_its_cluster(runs, submit, tmp_path):
    words = [*runs, "-cl", "api", "--rel-l2", "0.1"]
    here = alone("compare", *words, "-o", tmp_path / "here")
    job = submit(binary(), *words, "-o", tmp_path / "there")
    status, out, errors = job.end()
    assert (status, errors) == (here.returncode, here.stderr) == (1, ""), out
    assert files_of(tmp_path / "there") == files_of(tmp_path / "here")
    head, worker = (tmp_path / "srun.log").read_text().splitlines()
    assert f"--nodelist={socket.gethostname()} " in head and " --head " in head
    assert "--nodelist=localhost " in worker and f"--address={socket.gethostname()}:" in worker
    assert len(list((tmp_path / "parts-assay-compare").iterdir())) == 2
    assert job.left() == []


def test_the_signal_before_the_time_is_up_leaves_a_report(runs, submit, tmp_path):
    write_program(tmp_path / "hanging", HANGING.format(begun=tmp_path / "begun", binary=binary()))
    job = submit(str(tmp_path / "hanging"), *runs, "-cl", "api", "-o", tmp_path / "there")
    wait_until((tmp_path / "begun").exists, 90)
    assert len(job.left()) > 4  # the script, two nodes of Ray, the comparison
    job.process.send_signal(signal.SIGUSR1)
    status, out, errors = job.end()
    assert status == 130, (out, errors)
    assert "interrupted: 8 of 8 pairs were not compared" in out
    assert "msit_cmp_report.csv" in files_of(tmp_path / "there")
    assert job.left() == []
