# SPDX-License-Identifier: Apache-2.0
"""Runs at URLs: the report is that of the local copy, only what is needed travels, and whatever goes wrong is said in a
sentence. The oracle of every report is the same command on the local folder."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from assay_command import binary
from remote_store import serve
from safetensors.torch import save_file

import assay


class Block(torch.nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.up = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


def capture(folder: Path, fault: float = 0, width: int = 64, rows: int = 4, level: str = "operator") -> Path:
    torch.manual_seed(0)
    model = Block(width)
    with torch.no_grad():
        model.down.weight[3, 5] += fault
        with assay.capture(model, folder, steps=[0, 1], level=level):
            for step in range(2):
                model(torch.ones(rows, width) * (step + 1))
    return folder


@pytest.fixture(scope="module")
def runs():
    # A short path: reports shorten long ones.
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as short:
        folder = Path(short)
        capture(folder / "golden")
        capture(folder / "mine", fault=0.5)
        yield folder


@pytest.fixture(scope="module")
def store_of_module():
    yield from serve()


@pytest.fixture
def store(store_of_module, request):
    """An empty bucket of its own, named by `store.bucket`."""
    store_of_module.traffic.forget()
    store_of_module.bucket = "b" + re.sub(r"[^a-z0-9]", "", request.node.name.lower())[-20:]
    store_of_module.s3.call_s3("create_bucket", Bucket=store_of_module.bucket)
    yield store_of_module
    store_of_module.traffic.forget()


class Command:
    """Runs `assay` with a cache of its own."""

    def __init__(self, cache: Path):
        self.cache = cache
        self.environment: dict[str, str] = {}

    def environ(self) -> dict[str, str]:
        return {**os.environ, "NO_COLOR": "1", "ASSAY_CACHE": str(self.cache), **self.environment}

    def __call__(self, *words: object, cwd=None, status=0) -> str:
        done = subprocess.run(
            [binary(), *map(str, words)], capture_output=True, text=True, timeout=120, env=self.environ(), cwd=cwd
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def command(tmp_path):
    return Command(tmp_path / "cache")


@pytest.fixture
def on_store(command, store):
    command.environment = dict(store.environment)
    return command


STAMP = re.compile(r"\d{14}|\d{8}_\d{6}|in \d+\.\d+ s")


def without(text: str, place: object) -> str:
    """A report without what names its place; columns are as wide as the paths in them."""
    return re.sub("  +", "  ", STAMP.sub("TIME", text.replace(str(place), "")))


COMMANDS = [
    "show {golden}",
    "show {golden} --stats",
    "show {golden} up.output --values",
    "show {golden} --json",
    "show {golden}/rank0/step-000000.safetensors",
    "show {golden}/manifest.json",
    "show {golden}/nowhere",
    "verify {golden}",
    "verify {golden} --json",
    "compare {golden} {mine}",
    "compare {golden} {mine} --json",
    "compare {golden} {golden}/rank0/step-000000.safetensors",
    "opcheck {golden}",
    "locate {golden} {mine}",
    "locate {golden} {golden}",
]


def check_same_reports(command, runs: Path, base: str, tmp_path: Path, commands=COMMANDS) -> None:
    for line in commands:
        results = []
        for place in (str(runs), base):
            words = [word.format(golden=f"{place}/golden", mine=f"{place}/mine") for word in line.split()]
            out = Path(tempfile.mkdtemp(dir=tmp_path))
            done = subprocess.run([binary(), *words], capture_output=True, text=True, env=command.environ(), cwd=out)
            results.append((done.returncode, without(done.stdout, place), without(done.stderr, place)))
        assert results[0] == results[1], line


def test_reports_on_file_urls_are_those_of_the_folder(command, runs, tmp_path):
    check_same_reports(command, runs, f"file://{runs}", tmp_path)


@pytest.mark.slow
def test_reports_on_an_object_store_are_those_of_the_folder(on_store, store, runs, tmp_path):
    store.put(runs, f"{store.bucket}/runs")
    check_same_reports(on_store, runs, f"s3://{store.bucket}/runs", tmp_path)


def test_reports_on_a_web_server_are_those_of_the_folder(command, runs, tmp_path):
    pytest.importorskip("aiohttp")
    server = subprocess.Popen(
        [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(runs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        port = re.search(r"port (\d+)", server.stdout.readline())[1]
        check_same_reports(command, runs, f"http://127.0.0.1:{port}", tmp_path)
    finally:
        server.kill()
        server.wait()


def torch_tree(folder: Path) -> Path:
    """docs/formats/torch-tree.md"""
    place = folder / "msit_dump_20250101_000000" / "torch_tensors" / "cuda0_4711" / "0"
    for node in ("root.layers.0", "root.layers.1", "root"):
        (place / node).mkdir(parents=True)
        torch.save(torch.arange(6.0).reshape(2, 3), place / node / "output.pth")
    return folder


def flat_files(folder: Path) -> Path:
    folder.mkdir()
    np.save(folder / "a.npy", np.arange(400_000.0))
    np.save(folder / "fortran.npy", np.asfortranarray(np.arange(12.0).reshape(3, 4)))
    np.save(folder / "big_endian.npy", np.arange(12, dtype=">f4"))
    np.savez_compressed(folder / "b.npz", x=np.ones(3), y=np.zeros((2, 2)))
    save_file({"w": torch.ones(1 << 19), "v": torch.zeros(3)}, folder / "c.safetensors")
    torch.save({"p": torch.ones(5), "q": [torch.zeros(2)]}, folder / "d.pth")
    (folder / "notes.txt").write_text("nothing\n")
    return folder


@pytest.mark.parametrize("write", [torch_tree, flat_files])
def test_other_layouts_are_read_alike(command, tmp_path, write):
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as short:
        write(Path(short) / "golden")
        lines = ["show {golden} --all", "show {golden} --stats", "show {golden} --json", "compare {golden} {golden}"]
        check_same_reports(command, Path(short), f"file://{short}", tmp_path, lines)


def test_a_report_never_names_the_cache(on_store, store, runs, tmp_path):
    url = store.put(runs / "golden", f"{store.bucket}/golden")
    store.s3.rm(f"{store.bucket}/golden/rank0/step-000001.safetensors")
    shown = on_store("show", url) + on_store("compare", url, url, cwd=tmp_path, status=125)
    assert f"{url}/rank0/step-000001.safetensors: the file is missing" in shown
    assert str(on_store.cache) not in shown


# ---- what travels ----


@pytest.fixture
def large(tmp_path):
    """Outputs of 8 and 4 MB and their inputs; the second step differs."""
    return capture(tmp_path / "large", width=1024, rows=1024, level="module")


def test_show_reads_lists_only(on_store, store, large):
    url = store.put(large, f"{store.bucket}/large")
    store.traffic.forget()
    on_store("show", url)
    payload = sum(path.stat().st_size for path in large.rglob("*.safetensors"))
    assert payload > 25e6
    # The head of each file, to which its digest belongs, is one block.
    assert store.traffic.bytes_of(".safetensors") <= 2 << 20
    lists = sum(path.stat().st_size for path in large.rglob("*.json*"))
    assert store.traffic.bytes_of(".json") + store.traffic.bytes_of(".jsonl") == lists


def test_one_tensor_fetches_its_blocks_and_no_others(on_store, store, large):
    url = store.put(large, f"{store.bucket}/large")
    on_store("show", url)
    store.traffic.forget()
    on_store("show", url, "down.output", "--step", "0", "--values")
    size = 1024 * 1024 * 4
    # Blocks are whole: one more at each end.
    assert size <= store.traffic.bytes_of(".safetensors") <= size + (2 << 20)


def test_what_is_in_the_cache_does_not_travel_again(on_store, store, large, tmp_path):
    url = store.put(large, f"{store.bucket}/large")
    on_store("verify", url)
    store.traffic.forget()
    on_store("verify", url)
    assert [request for request in store.traffic.requests if request.range] == []
    assert sum(store.traffic.sent.values()) < 20_000  # the list of the bucket


def test_two_processes_share_a_cache(on_store, store, large):
    url = store.put(large, f"{store.bucket}/large")
    both = [
        subprocess.Popen([binary(), "verify", url], env=on_store.environ(), stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert outputs[0] == outputs[1] and outputs[0].startswith("whole")


def test_a_small_cache_gives_up_what_was_used_longest_ago(on_store, store, large):
    url = store.put(large, f"{store.bucket}/large")
    on_store.environment["ASSAY_CACHE_LIMIT"] = "25MiB"
    whole = on_store("show", url, "--stats")
    assert without(whole, url) == without(on_store("show", large, "--stats"), str(large))
    used = sum(path.stat().st_blocks * 512 for path in on_store.cache.rglob("*.data"))
    assert used <= 25 << 20
    # The records' list was used last of all lists, and the run can still be read.
    assert on_store("show", url, "--stats") == whole


# ---- what goes wrong ----


def test_a_replaced_object_is_read_anew(on_store, store, tmp_path):
    folder = capture(tmp_path / "run")
    url = store.put(folder, f"{store.bucket}/run")
    before = on_store("show", url, "--stats")
    shutil.rmtree(folder)
    capture(folder, fault=0.5)
    store.put(folder, f"{store.bucket}/")
    after = on_store("show", url, "--stats")
    assert after != before
    assert without(after, url) == without(on_store("show", folder, "--stats"), folder)
    kept = [path.name.split("-")[0] for path in on_store.cache.rglob("*.data")]
    assert len(kept) == len(set(kept))  # no old version is left


def test_an_object_replaced_between_listing_and_reading_is_named(on_store, store, large):
    url = store.put(large, f"{store.bucket}/large")
    key = f"{store.bucket}/large/rank0/step-000000.safetensors"
    replaced = []

    def replace(request):
        if request.range and request.path == f"/{key}" and not replaced:
            replaced.append(request)
            store.s3.pipe(key, b"\1" * (large / "rank0" / "step-000000.safetensors").stat().st_size)
        return None

    on_store("show", url)
    store.traffic.lock = NoLock()  # the replacement is itself a request
    store.traffic.fault = replace
    said = on_store("show", url, "down.output", "--step", "0", "--values", status=2)
    assert replaced
    assert f"s3://{key}: the file was changed while it was read" in said


class NoLock:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def test_a_truncated_object_is_as_damaged_as_a_truncated_file(on_store, store, runs, tmp_path):
    copy = tmp_path / "run"
    subprocess.run(["cp", "-r", runs / "golden", copy], check=True)
    os.truncate(copy / "rank0" / "step-000000.safetensors", 5000)
    url = store.put(copy, f"{store.bucket}/run")
    local = on_store("verify", copy, status=1)
    remote = on_store("verify", url, status=1)
    # Sentences that begin with a path are in another order where all paths begin with "s3:".
    assert sorted(without(remote, url).splitlines()) == sorted(without(local, str(copy)).splitlines())


def test_a_connection_cut_in_a_range_is_tried_again(on_store, store, large):
    url = store.put(large, f"{store.bucket}/large")
    cut = []

    def once(request):
        if request.range and len(cut) < 3:
            cut.append(request)
            return "cut"
        return None

    store.traffic.fault = once
    assert on_store("verify", url).startswith("whole")
    assert len(cut) == 3


@pytest.mark.parametrize("words", ["verify {url}/golden", "compare {url}/golden {url}/mine"])
@pytest.mark.parametrize(
    ("fault", "sentence"),
    [("cut", r"\(4 attempts\)"), ("deny", "access is denied"), ("error", "Reduce your request rate")],
)
def test_what_stays_broken_is_no_damage_of_the_run(on_store, store, runs, tmp_path, fault, words, sentence):
    url = store.put(runs, f"{store.bucket}/runs")
    broken = f"/{store.bucket}/runs/golden/rank0/step-000000.safetensors"
    store.traffic.fault = lambda request: fault if request.path == broken and request.method == "GET" else None
    said = on_store(*words.format(url=url).split(), cwd=tmp_path, status=2)
    assert re.search(f"error: s3:/{broken}: .*{sentence}", said), said
    assert "damage" not in said and "differ" not in said


def test_a_list_that_cannot_be_had_is_an_error_of_the_command(on_store, store, runs):
    url = store.put(runs / "golden", f"{store.bucket}/golden")
    store.traffic.fault = lambda request: "deny" if request.path.endswith("records.jsonl") else None
    said = on_store("show", url, status=2)
    assert said.startswith(f"error: {url}/rank0/records.jsonl: access is denied")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("s3://{bucket}/nowhere", "cannot open: No such file or directory"),
        ("s3://no-such-bucket-here/x", "cannot open: No such file or directory"),
        ("s3://", "names no file or folder"),
        ("nothing://x/y", "Protocol not known: nothing"),
        ("http://127.0.0.1:9/x", r"Cannot connect to host 127.0.0.1:9 .*\(4 attempts\)"),
    ],
)
def test_a_url_that_leads_nowhere_is_said_in_a_sentence(on_store, store, url, sentence):
    url = url.format(bucket=store.bucket)
    said = on_store("show", url, status=2)
    assert re.match(f"error: {url}: (fsspec cannot open it: )?.*{sentence}", said), said


def test_without_credentials_the_sentence_says_so(on_store, store, runs):
    url = store.put(runs / "golden", f"{store.bucket}/golden")
    on_store.environment = {
        **store.environment,
        "AWS_ACCESS_KEY_ID": "",
        "AWS_SECRET_ACCESS_KEY": "",
        "AWS_EC2_METADATA_DISABLED": "true",
        "HOME": "/nowhere",
    }
    assert "Unable to locate credentials" in on_store("show", url, status=2)


def test_a_python_without_fsspec_is_told_what_to_install(command, runs, tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    bare.chmod(0o755)
    command.environment = {"ASSAY_PYTHON": str(bare)}
    said = command("show", f"file://{runs}/golden", status=2)
    assert "pip install 'assay-llm[remote]'" in said and said.count("\n") == 1


def test_a_cache_that_is_too_small_is_no_damage(command, runs):
    command.environment = {"ASSAY_CACHE_LIMIT": "1k"}
    said = command("show", f"file://{runs}/golden", status=2)
    assert re.match(r"error: \S+cache: .* are needed at once, the cache may hold 1.0 kB \(ASSAY_CACHE_LIMIT\)", said)


def test_a_cache_that_cannot_be_written_is_named(command, runs):
    command.cache = Path("/proc/cache")
    said = command("show", f"file://{runs}/golden", status=2)
    assert said.startswith("error: /proc/cache: cannot create the folder") and "ASSAY_CACHE" in said


def test_a_limit_that_is_no_size_is_refused(command, runs):
    command.environment = {"ASSAY_CACHE_LIMIT": "much"}
    said = command("show", f"file://{runs}/golden", status=2)
    assert said.startswith("error: ASSAY_CACHE_LIMIT: 'much' is no size")


def test_hostile_keys_stay_keys(on_store, store, runs, tmp_path):
    place = f"{store.bucket}/run"
    url = store.put(runs / "golden", place)
    plain = on_store("show", url)
    body = b"x" * 10
    client = store.s3.call_s3
    for key in ("run/../../escaped", "run//absolute", "run/./here", "run/" + "long" * 240, "run/rank0/records.jsonl/x"):
        client("put_object", Bucket=store.bucket, Key=key, Body=body)
    said = on_store("show", url)
    assert "is both a file and a folder" in said
    assert not list(tmp_path.rglob("*escaped*")) and not list(tmp_path.rglob("*absolute*"))
    store.s3.call_s3("delete_object", Bucket=store.bucket, Key="run/rank0/records.jsonl/x")
    assert on_store("show", url) == plain


def test_ctrl_c_during_a_transfer_leaves_nothing_running(on_store, store, runs):
    url = store.put(runs, f"{store.bucket}/runs")
    for words in (["verify"], ["compare", url + "/golden"], ["show"]):
        store.traffic.forget()
        store.traffic.released.clear()
        store.traffic.fault = lambda request: "hang" if request.path.endswith("records.jsonl") else None
        process = subprocess.Popen(
            ["bash", "-c", '"$0" "$@"; exit $?', binary(), *words, f"{url}/golden"],
            env=on_store.environ(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        deadline = time.monotonic() + 30
        while not any(request.path.endswith("records.jsonl") for request in store.traffic.requests):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        began = time.monotonic()
        process.wait(timeout=20)
        assert process.returncode in (130, -signal.SIGINT), process.stderr.read()
        assert time.monotonic() - began < 10
        while group_lives(process.pid):
            assert time.monotonic() - began < 10
            time.sleep(0.01)
        store.traffic.released.set()


def group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
