# SPDX-License-Identifier: Apache-2.0
"""Runs at URLs through the Python API; memory:// has the files of this process. The oracle is the local folder."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import assay
import assay._remote as transfers

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    # A process chooses its cache once.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def memory():
    """A folder in memory:// that no other test has."""
    system = fsspec.filesystem("memory")
    root = f"/{uuid.uuid4().hex}"
    yield system, root
    if system.exists(root):
        system.rm(root, recursive=True)


def capture(folder: Path, fault: float = 0) -> Path:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
    with torch.no_grad():
        model[2].bias[1] += fault
        with assay.capture(model, folder, steps=[0, 1], level="operator"):
            for step in range(2):
                model(torch.ones(3, 8) * (step + 1))
    return folder


def test_records_and_values_in_memory_are_those_of_the_folder(tmp_path, memory):
    system, root = memory
    folder = capture(tmp_path / "golden")
    system.put(str(folder), f"{root}/golden", recursive=True)
    there, here = assay.open(f"memory:/{root}/golden"), assay.open(folder)
    assert len(there) == len(here) > 0
    for far, near in zip(there, here):
        assert far.name == near.name
        if near.file is None:
            assert far.file is None
            continue
        assert far.file == near.file.replace(str(folder), f"memory:/{root}/golden")
        assert np.array_equal(far.numpy(), near.numpy())


def test_a_comparison_of_urls_is_that_of_the_folders(tmp_path, memory):
    system, root = memory
    golden, mine = capture(tmp_path / "golden"), capture(tmp_path / "mine", fault=0.5)
    system.put(str(mine), f"{root}/mine", recursive=True)
    far = assay.compare(f"file://{golden}", f"memory:/{root}/mine")
    near = assay.compare(golden, mine)
    assert [row["cosine_similarity"] for row in far.rows] == [row["cosine_similarity"] for row in near.rows]
    assert len(far.rows) > 10 and str(far).splitlines()[-1] == str(near).splitlines()[-1]


def test_a_file_that_is_written_again_is_read_anew(memory):
    system, root = memory
    for value in (1.0, 2.0):
        with system.open(f"{root}/x.npy", "wb") as file:
            np.save(file, np.full(5, value))
        assert assay.open(f"memory:/{root}/x.npy")[0].numpy().tolist() == [value] * 5


def test_a_file_beside_others_knows_them(memory):
    system, root = memory
    system.pipe(f"{root}/run/a.txt", b"x")
    with system.open(f"{root}/run/x.npy", "wb") as file:
        np.save(file, np.zeros(2))
    assert len(assay.open(f"memory:/{root}/run/x.npy")) == 1
    system.pipe(f"{root}/run/y.npy", b"not an array")
    assert [record.node for record in assay.open(f"memory:/{root}/run")] == ["x", "y"]


def test_only_the_header_of_a_large_safetensors_file_is_fetched_for_its_list(tmp_path, memory, monkeypatch):
    system, root = memory
    save_file({"a": torch.zeros(4 << 20), "b": torch.ones(3)}, tmp_path / "m.safetensors")
    system.put(str(tmp_path / "m.safetensors"), f"{root}/m.safetensors")
    moved: list[int] = []
    cat = type(system).cat_file

    def counted(self, path, start=None, end=None, **options):
        data = cat(self, path, start=start, end=end, **options)
        moved.append(len(data))
        return data

    monkeypatch.setattr(type(system), "cat_file", counted)
    run = assay.open(f"memory:/{root}/m.safetensors")
    assert sum(moved) == 1 << 20
    assert {record.slot: record.numpy().size for record in run} == {"a": 4 << 20, "b": 3}
    assert sum(moved) <= 18 << 20  # 16 MiB and the blocks at its ends


def test_a_gguf_header_longer_than_a_block_is_fetched_whole(tmp_path, memory):
    gguf = pytest.importorskip("gguf")
    system, root = memory
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_token_list([f"token {i}" for i in range(150_000)])  # 2.9 MB
    writer.add_tensor("w", np.arange(12, dtype=np.float32).reshape(3, 4))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    system.put(str(tmp_path / "m.gguf"), f"{root}/m.gguf")
    run = assay.open(f"memory:/{root}/m.gguf")
    assert run[0].numpy().tolist() == np.arange(12.0).reshape(3, 4).tolist()


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (FileNotFoundError("x"), "NotFound"),
        (PermissionError("no"), "Permission"),
        (OSError(28, "full"), "NoSpace"),
        (ValueError("bad name"), "Unsupported"),
    ],
)
def test_what_cannot_change_is_not_tried_again(problem, kind):
    attempts = []

    def work():
        attempts.append(1)
        raise problem

    with pytest.raises(transfers.Refusal) as refused:
        transfers.with_patience(work, lambda: None)
    assert refused.value.kind == kind and len(attempts) == 1


def test_what_may_change_is_tried_again_a_few_times(monkeypatch):
    monkeypatch.setattr(transfers.time, "sleep", lambda seconds: None)
    attempts = []

    def work():
        attempts.append(1)
        if len(attempts) < 3:
            raise ConnectionResetError("reset")
        return "here"

    assert transfers.with_patience(work, lambda: None) == "here"
    attempts.clear()
    monkeypatch.setattr(transfers, "ATTEMPTS", 2)
    with pytest.raises(transfers.Refusal, match=r"ConnectionResetError: reset \(2 attempts\)"):
        transfers.with_patience(work, lambda: None)


def test_the_helper_needs_nothing_of_assay():
    ours, theirs = socket.socketpair()
    program = Path(transfers.__file__).read_text()
    with ours, theirs:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", program, str(theirs.fileno())], pass_fds=[theirs.fileno()]
        )
        theirs.close()
        ours.sendall(b'{"id": 7, "facts": "s3://b/x"}\n')
        answer = json.loads(ours.makefile().readline())
    assert answer["id"] == 7 and answer["kind"] == "Unsupported" and "pip install" in answer["error"]
    assert child.wait(timeout=10) == 0  # it ends with its socket
