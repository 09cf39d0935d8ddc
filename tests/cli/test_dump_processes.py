# SPDX-License-Identifier: Apache-2.0
"""`assay dump` around programs of several processes, and programs that do not end by themselves."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from assay_command import binary, run

import assay

pytest.importorskip("torch")

# Three calls of three modules, an input and an output each, and the input and output of the model: 24 tensors.
SERVER = """
import multiprocessing, os, signal, sys, time, torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
def serve(end):
    for step in range(3):
        net(torch.full((2, 4), float(step)))
    deadline = time.time() + 20      # until the writer has put the last step on disk
    folder = {out!r}
    def steps_on_disk():
        ranks = [r for r in os.listdir(folder) if r.startswith("rank")]
        return [r for r in ranks if os.path.exists(f"{{folder}}/{{r}}/step-000002.safetensors")]
    while len(steps_on_disk()) < int(sys.argv[3]) and time.time() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    os.write(1, b"served %d\\n" % os.getpid())
    if end == "wait":
        time.sleep(60)
    elif end == "exit":
        os._exit(5)
    elif end != "return":
        os.kill(os.getpid(), getattr(signal, end))
if __name__ == "__main__":
    method, end = sys.argv[1:3]
    if method == "alone":
        serve(end)
    else:
        context = multiprocessing.get_context(method)
        children = [context.Process(target=serve, args=(end,)) for _ in range(int(sys.argv[3]))]
        for child in children: child.start()
        for child in children: child.join()
"""


@pytest.fixture
def server(tmp_path):
    path = tmp_path / "server.py"
    path.write_text(SERVER.format(out=str(tmp_path / "out")))
    return path


def dump(tmp_path, *command, options=()):
    return run("dump", "-o", tmp_path / "out", "--steps", "all", "--host", "torch", *options, "--", *command)


def served(stdout):
    return [int(pid) for pid in re.findall(r"served (\d+)", stdout)]


ENDS = {
    "exit": "ended with status 5",
    "SIGTERM": "was ended by signal 15 (Terminated)",
    "SIGKILL": "was ended by signal 9 (Killed)",
    "SIGSEGV": "was ended by signal 11 (Segmentation fault)",
}


@pytest.mark.slow
@pytest.mark.parametrize("end", list(ENDS))
def test_a_program_that_ends_at_once_is_named_with_what_it_left(tmp_path, server, end):
    done = dump(tmp_path, sys.executable, server, "alone", end, "1")

    (pid,) = served(done.stdout)
    assert done.returncode == (5 if end == "exit" else 128 + getattr(signal, end))
    assert f"assay: 24 tensors of 3 steps, process {pid}, in {tmp_path / 'out' / 'rank0'}\n" in done.stderr
    assert f"process {pid} {ENDS[end]} before its capture was complete" in done.stderr
    assert "nothing was captured" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("end", ["exit", "SIGKILL"])
def test_every_worker_that_ends_at_once_is_named(tmp_path, server, method, end):
    done = dump(tmp_path, sys.executable, server, method, end, "2", options=["--require"])

    pids = served(done.stdout)
    assert len(pids) == 2
    assert done.returncode == 125  # the program ended with 0, the capture was cut short
    for pid in pids:
        assert f"24 tensors of 3 steps, process {pid}, in {tmp_path / 'out' / 'rank0'}" in done.stderr
        # Kernels before 6.15 do not tell how a process ended that is not one's child.
        assert re.search(f"process {pid} ({re.escape(ENDS[end])}|ended by a signal or by _exit) before", done.stderr)
    assert "nothing was captured" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_that_return_have_complete_runs(tmp_path, server, method):
    done = dump(tmp_path, sys.executable, server, method, "return", "2", options=["--require"])

    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    out = tmp_path / "out"
    pids = served(done.stdout)
    assert len(pids) == 2
    for pid in pids:  # where the kernel does not tell the status: it ran its exit handlers
        assert re.search(
            rf"24 tensors of 1 PyTorch model, process {pid} \((ended with status 0|came to its end)\), in ", done.stderr
        )
    # The program itself imported torch, too, and served nothing.
    (parent,) = re.findall(
        r"nothing of process (\d+) \(ended with status 0\): it imported torch and called no module", done.stderr
    )
    assert int(parent) not in pids
    for rank in sorted(p for p in out.iterdir() if p.name.startswith("rank")):
        manifest = rank / "manifest.json" if rank.name != "rank0" else out / "manifest.json"
        assert json.loads(manifest.read_text())["complete"] is True
    assert assay.open(out).damage == ()  # all of one run
    assert sorted(p.name for p in out.iterdir() if p.name.isdigit()) == []  # the scratch folder


POOL = """
import multiprocessing, time, torch
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())
fork = multiprocessing.get_context("fork")
pair, all_three = fork.Barrier(2), fork.Barrier(3)
def answer(x):
    pair.wait(60)    # each worker has its half
    return net(torch.full((1, 4), float(x))).sum().item()
def linger(x):
    all_three.wait(60)
    time.sleep(60)
if __name__ == "__main__":
    with fork.Pool(2) as pool:    # the end of the block terminates the workers; an idle one could end by itself before
        print(len(pool.map(answer, range(8), chunksize=1)))
        pool.map_async(linger, range(2), chunksize=1)
        all_three.wait(60)
"""


@pytest.mark.slow
def test_what_workers_of_a_terminated_pool_captured_is_there(tmp_path):
    (tmp_path / "pool.py").write_text(POOL)
    done = dump(tmp_path, sys.executable, tmp_path / "pool.py")

    assert (done.returncode, done.stdout) == (0, "8\n")
    assert "nothing was captured" not in done.stderr and "tensors of" in done.stderr
    assert re.search(r"process \d+ (was ended by signal 15|ended by a signal)", done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("who", ["the command", "the program"])
def test_a_tree_of_workers_that_a_signal_ends_is_named(tmp_path, server, who):
    words = [sys.executable, server, "fork", "wait", "2"]
    child = subprocess.Popen(
        ["assay", "dump", "-o", tmp_path / "out", "--steps", "all", "--host", "torch", "--", *words],
        executable=binary(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    out = child.stdout.readline() + child.stdout.readline()
    pids = served(out)
    assert len(pids) == 2
    if who == "the command":
        number = signal.SIGTERM
        child.send_signal(number)  # passed on to the program alone; its workers go on
    else:
        number = signal.SIGKILL
        parent = Path(f"/proc/{pids[0]}/stat").read_text().rpartition(")")[2].split()[1]
        os.kill(int(parent), number)
    time.sleep(0.3)
    for pid in pids:
        os.kill(pid, number)
    err = child.communicate(timeout=30)[1]
    assert child.returncode == (143 if who == "the command" else 137)
    for pid in pids:
        assert f"24 tensors of 3 steps, process {pid}, in" in err
        assert re.search(f"process {pid} .*before its capture was complete", err)
    assert "nothing was captured" not in err


@pytest.mark.slow
def test_a_process_that_outlives_the_program_is_said_to_go_on(tmp_path):
    (tmp_path / "daemon.py").write_text("""
import os, sys, time, torch
if os.fork() == 0:
    torch.nn.Linear(2, 2)(torch.ones(1, 2))
    time.sleep(8)
    os._exit(0)
time.sleep(1)
""")
    # It must not hold the pipes that the test reads.
    done = dump(tmp_path, "sh", "-c", f"{sys.executable} {tmp_path / 'daemon.py'} >/dev/null 2>&1")

    assert done.returncode == 0
    assert re.search(r"process \d+ is still running: its capture goes on in ", done.stderr)
    assert "rank0" in done.stderr


def test_a_process_that_ends_before_its_first_module_is_not_called_one_without_torch(tmp_path):
    done = dump(tmp_path, sys.executable, "-c", "import torch, os; os._exit(3)")

    assert done.returncode == 3
    assert "ended with status 3; it had imported torch, but recorded nothing" in done.stderr
    assert "no process of it imported torch" not in done.stderr
