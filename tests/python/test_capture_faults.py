# SPDX-License-Identifier: Apache-2.0
"""Real faults while a capture starts, runs and ends: the host computes as without, a sentence says what was wrong, and
no run that is not whole calls itself complete."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Optional

import pytest
import warm_python

torch = pytest.importorskip("torch")
pytest.importorskip("assay.torch.capture")

# The host of every test: `fault(folder)` makes the fault, `start(folder)` captures.
HOST = """
import contextlib, json, os, resource, shutil, signal, sys, time
import torch
from torch import nn
import assay
from assay import _capture
import assay.torch.capture
from assay.torch.strict import DumpConfig, register_hook

torch.set_num_threads(1)
model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(20)])
x = torch.ones(512, 64)
wanted = model(x)

def same():
    assert torch.equal(model(x), wanted)

def free_of_us():
    for module in model.modules():
        assert not assay._capture.is_captured(module) and not module._forward_hooks and not module._forward_pre_hooks
    assert isinstance(nn.Module.__dict__["_call_impl"], type(free_of_us))

folder = sys.argv[1]
"""


def run_host(body: str, folder: Path, *, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    python = sys.executable if before else warm_python.python()
    command = [*before, python, "-c", HOST + body, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def manifests(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in folder.rglob("manifest.json")]


FAULTS_AT_START = {
    "a limit on the size of files": "resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))",
    "no descriptor left for the topology": """
spare = os.open("/dev/null", os.O_RDONLY)
os.close(spare)
resource.setrlimit(resource.RLIMIT_NOFILE, (spare + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
""",
    "no descriptor left at all": """
spare = os.open("/dev/null", os.O_RDONLY)
os.close(spare)
resource.setrlimit(resource.RLIMIT_NOFILE, (spare, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
""",
    "a file where the folder belongs": "open(folder, 'w').close()",
    "a file above the folder": "open(folder, 'w').close(); folder += '/run'",
    "a link that leads to itself": "os.symlink(folder, folder)",
    "a name that no file system takes": "folder += '/' + 'x' * 300",
    "a place where nobody can make folders": "folder = '/proc/' + os.path.basename(folder)",
}
CAUSES = [
    "File too large",
    "Too many open files",
    "File exists",
    "ot a directory",
    "not a folder",
    "Too many levels of symbolic links",
    "File name too long",
    "No such file or directory",
]
LIFT = """
for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
    resource.setrlimit(limit, (resource.getrlimit(limit)[1],) * 2)
"""
STARTS = {
    "modules": "assay.capture(model, folder)",
    "statistics": "assay.capture(model, folder, data='stats')",
    "operators and weights": "assay.capture(model, folder, level='operator', weights=True)",
    "the old API": "register_hook(model, DumpConfig(folder, [0], dump_weight=True)); same()",
}
# One process that imports torch, a child for each fault; it prints what was raised, and the place that it was about.
TRY_EVERY_FAULT = """
base = folder
for number, fault in enumerate(faults):
    sys.stdout.flush()
    if os.fork() == 0:
        status, error = 1, None
        try:
            folder = f"{base}/{number}"
            exec(fault, globals())
            try:
                exec(start, globals())
            except Exception as raised:
                error = raised
            exec(lift, globals())
            same()
            if error is not None:
                free_of_us()
            print(json.dumps([type(error).__name__, isinstance(error, OSError), str(error), folder]))
            sys.stdout.flush()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0, fault
"""


@pytest.mark.slow
@pytest.mark.parametrize("start", STARTS)
def test_every_fault_of_a_start_is_a_sentence_and_leaves_nothing_in_the_model(start: str, tmp_path: Path) -> None:
    tables = f"faults = {list(FAULTS_AT_START.values())!r}\nstart = {STARTS[start]!r}\nlift = {LIFT!r}\n"
    done = run_host(tables + TRY_EVERY_FAULT, tmp_path)

    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(said) == len(FAULTS_AT_START)
    for fault, (name, is_os_error, sentence, folder) in zip(FAULTS_AT_START, said):
        if start == "the old API" and name == "NoneType":
            # One descriptor is enough for it to start; its manifest, looked at below, says what is missing.
            assert fault == "no descriptor left for the topology"
            continue
        if start == "the old API" and name == "ArgumentTypeError":
            # The two sentences of the original
            illegal = r"output path:/\S+ (is illegal|can not be written)\. Please check it\."
            assert re.fullmatch(illegal, sentence), sentence
            continue
        assert name == "FileError" if start != "the old API" else is_os_error, (fault, name, sentence)
        assert str(Path(folder).parent) in sentence and any(cause in sentence for cause in CAUSES), (fault, sentence)
    assert all(manifest["complete"] is False for manifest in manifests(tmp_path))


@pytest.mark.slow
def test_a_full_disk_at_the_start_and_later(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ("unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size=64k none {disk} && exec "$@"', "sh")
    if subprocess.run([*mount, "true"], capture_output=True).returncode != 0:
        pytest.skip("no private mounts here")

    done = run_host(
        """
filler = open(folder + "/filler", "wb", buffering=0)
with contextlib.suppress(OSError):
    while filler.write(bytes(1)):
        pass
try:
    assay.capture(model, folder + "/start")
except assay.Error as raised:
    print(raised)
same()
free_of_us()
os.truncate(folder + "/filler", 0)
with assay.capture(model, folder + "/later", queue_bytes=8 << 20) as handle:
    same()
print(handle.stats["stopped"])
for run in ("start", "later"):
    path = f"{folder}/{run}/manifest.json"
    print(json.load(open(path))["complete"] if os.path.exists(path) else None)
""",
        disk,
        before=mount,
    )

    assert done.returncode == 0, done.stderr
    start, later, *complete = done.stdout.splitlines()
    assert str(disk) in start and "No space left on device" in start
    assert later
    assert complete in (["None", "False"], ["False", "False"])


@pytest.mark.slow
def test_a_manifest_that_fails_first_never_says_complete(tmp_path: Path) -> None:
    # The fault passes before the handle ends: the manifest that is written then must know of it.
    done = run_host(
        """
real, calls = _capture.write_manifest, []
def once(*args):
    calls.append(args)
    if len(calls) == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    try:
        return real(*args)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
_capture.write_manifest = once
try:
    assay.capture(model, folder)
except assay.Error as raised:
    print(raised)
same()
free_of_us()
""",
        tmp_path / "run",
    )

    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "run" / "manifest.json") in done.stdout and "File too large" in done.stdout
    (manifest,) = manifests(tmp_path / "run")
    assert manifest["complete"] is False
    assert "could not start" in manifest["sink"]["stopped"]


FAULTS_WHILE_IT_RUNS = {
    "the folder is removed": "shutil.rmtree(folder)",
    "the folder is removed and made again": "shutil.rmtree(folder + '/rank0'); os.makedirs(folder + '/rank0')",
    "the folder is moved": "os.rename(folder + '/rank0', folder + '/moved')",
    "the list of records is removed": "os.unlink(folder + '/rank0/records.jsonl')",
    "the host closes every descriptor": "os.closerange(3, 1000)",
    "the host closes all and takes the numbers": """
os.closerange(3, 1000)
mine = [open(f"{folder}.mine{i}", "w+b") for i in range(40)]
""",
    "files may not grow": "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))",
}


@pytest.mark.slow
@pytest.mark.parametrize("data", ["full", "stats"])
@pytest.mark.parametrize("fault", FAULTS_WHILE_IT_RUNS)
def test_a_run_that_lost_its_files_is_not_complete(fault: str, data: str, tmp_path: Path) -> None:
    done = run_host(
        f"""
with assay.capture(model, folder, data={data!r}, queue_bytes=8 << 20) as handle:
    same()
    handle.flush()
"""
        + "".join(f"    {line}\n" for line in FAULTS_WHILE_IT_RUNS[fault].strip().splitlines())
        + """
    same()
    same()
free_of_us()
print(handle.stats["stopped"])
for file in globals().get("mine", []):
    assert os.fstat(file.fileno()).st_size == 0, "bytes of ours in a file of the host"
    os.close(os.dup(file.fileno()))
""",
        tmp_path / "run",
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "nothing says that it stopped"
    assert "Traceback" not in done.stderr
    assert all(manifest["complete"] is False for manifest in manifests(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["removed", "closed"])
def test_the_old_api_does_not_call_such_a_dump_complete(fault: str, tmp_path: Path) -> None:
    act = {"removed": "shutil.rmtree(config.dump_dir)", "closed": "os.closerange(3, 1000)"}[fault]
    done = run_host(
        f"""
config = DumpConfig(folder, [0, 1])
register_hook(model, config)
same()
{act}
same()
DumpConfig.reset()
free_of_us()
same()
""",
        tmp_path / "dump",
    )

    assert done.returncode == 0, done.stderr
    found = manifests(tmp_path / "dump")
    whole = len(list((tmp_path / "dump").rglob("output.pth"))) == 2 * 61
    assert all(manifest["complete"] is whole for manifest in found)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_stopped_host_and_a_killed_one_leave_no_complete_run(ending: str, tmp_path: Path) -> None:
    host = subprocess.Popen(
        [sys.executable, "-c", HOST + "h = assay.capture(model, folder)\nwhile True: same()", str(tmp_path / "run")],
        stderr=subprocess.DEVNULL,
    )
    try:
        records = tmp_path / "run" / "rank0" / "records.jsonl"
        deadline = time.monotonic() + 60
        while not (records.exists() and records.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.02)
        host.send_signal(signal.SIGSTOP if ending == "stop" else signal.SIGKILL)
        time.sleep(0.1)
        assert [manifest["complete"] for manifest in manifests(tmp_path / "run")] == [False]
    finally:
        host.kill()
        host.wait()


@pytest.mark.slow
def test_a_handle_that_ends_inside_a_step_leaves_no_complete_run(tmp_path: Path) -> None:
    done = run_host(
        """
handle = assay.capture(model, folder)
hook = model[5].register_forward_hook(lambda *_: handle.remove())
same()
hook.remove()
free_of_us()
same()
print(handle.stats["stopped"])
""",
        tmp_path / "run",
    )

    assert done.returncode == 0, done.stderr
    (manifest,) = manifests(tmp_path / "run")
    assert manifest["complete"] is False
    assert done.stdout.strip() == manifest["sink"]["stopped"] == "the capture ended inside step 0"


@pytest.mark.slow
def test_a_healthy_run_and_one_after_a_change_of_folder_are_complete(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    done = subprocess.run(
        [
            warm_python.python(),
            "-c",
            HOST + "with assay.capture(model, 'run') as h:\n    same(); os.chdir('elsewhere'); same()\n",
            "",
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    (manifest,) = manifests(tmp_path)
    assert manifest["complete"] is True and manifest["sink"]["stopped"] is None
    assert len(list((tmp_path / "run" / "rank0").glob("step-*.safetensors"))) == 2


def path_that_is_no_text(folder: Path) -> Optional[Path]:
    path = Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9"))
    try:
        path.mkdir()
    except OSError:
        return None
    shutil.rmtree(path)
    return path


@pytest.mark.slow
def test_a_path_that_is_no_utf8_works(tmp_path: Path) -> None:
    path = path_that_is_no_text(tmp_path)
    if path is None:
        pytest.skip("this file system takes UTF-8 only")
    done = run_host(
        """
with assay.capture(model, folder + "/native", weights=True) as handle:
    same()
os.makedirs(folder + "/strict")
os.chdir(folder + "/strict")
config = DumpConfig("dump", dump_weight=True, analyze=True)
register_hook(model, config)
same()
DumpConfig.reset()
free_of_us()
""",
        path,
    )

    assert done.returncode == 0, done.stderr
    found = manifests(path)
    assert len(found) == 2 and all(manifest["complete"] for manifest in found)
    assert len(list(path.rglob("*.pth"))) > 60
    import assay

    run = assay.open(str(path / "native"))
    assert run.records and not run.warnings


@pytest.mark.slow
@pytest.mark.parametrize("level", ["module", "operator"])
def test_a_host_that_has_little_memory_left_goes_on(level: str, tmp_path: Path) -> None:
    # given hosts that may have so much more memory than they hold when the capture begins
    body = """
import gc
extra, level = int(sys.argv[2]), sys.argv[3]
pages = int(open("/proc/self/statm").read().split()[0])
handle = None
resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (extra << 20), resource.RLIM_INFINITY))
try:
    handle = assay.capture(model, folder, level=level)
except (MemoryError, assay.Error):
    pass
for _ in range(6):
    try:
        model(x)
    except (MemoryError, RuntimeError) as error:  # torch's own: there is no memory for the model
        assert "emory" in str(error) or isinstance(error, MemoryError), error
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
if handle is not None:
    handle.remove()
same()
print("on")
"""
    ended = {}
    for extra in (1, 4, 8, 12, 16, 20, 24, 28, 36, 48, 64, 80):
        command = [sys.executable, "-c", HOST + body, str(tmp_path / str(extra)), str(extra), level]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        ended[extra] = (done.returncode, done.stdout, done.stderr[-300:] if done.returncode else "")
    # then none of them ends otherwise than it would without a capture
    assert all(status == 0 and out == "on\n" for status, out, _ in ended.values()), ended
