# SPDX-License-Identifier: Apache-2.0
"""A server's loop: tensors that live as long as it does are filled before each call, in whatever way."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path

import pytest
import torch

import assay
from assay.__main__ import find_command

LENGTH = 8


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(50, 32)
        self.places = torch.nn.Embedding(64, 32)
        self.norm = torch.nn.LayerNorm(32)
        self.up = torch.nn.Linear(32, 64)
        self.head = torch.nn.Linear(64, 50)

    def forward(self, ids, positions, mask, scale):
        hidden = self.norm(self.embed(ids) + self.places(positions)) * scale
        scores = hidden @ hidden.transpose(-1, -2) + mask
        return self.head(torch.relu(self.up(torch.softmax(scores, -1) @ hidden)))


def by_copy(buffer, values):
    buffer.copy_(values)


def by_numpy(buffer, values):
    buffer.numpy()[...] = values.numpy()


def by_data(buffer, values):
    buffer.data.copy_(values)


def by_rows(buffer, values):
    for row in range(len(buffer)):
        buffer[row] = values[row]


def by_fill(buffer, values):
    buffer.zero_()
    buffer += values


def by_out(buffer, values):
    torch.add(values, 0, out=buffer)


def by_dlpack(buffer, values):
    torch.from_dlpack(buffer.__dlpack__()).copy_(values)


FILLS = [by_copy, by_numpy, by_data, by_rows, by_fill, by_out, by_dlpack]


def serve(model, fill, steps=4, parts=False):
    """Ids grow with each step; as CUDA graphs want it, all that the model is given has one place."""
    ids, positions = torch.zeros(1, LENGTH, dtype=torch.long), torch.zeros(1, LENGTH, dtype=torch.long)
    mask, scale = torch.zeros(1, LENGTH, LENGTH), torch.ones(1)
    draw = torch.Generator().manual_seed(7)
    results = []
    for step in range(steps):
        fill(ids, torch.randint(50, ids.shape, generator=draw))
        fill(positions, torch.arange(step, step + LENGTH)[None])
        fill(mask, torch.full(mask.shape, float("-inf")).triu(1 + step))
        fill(scale, torch.tensor([1.0 + step / 4]))
        length = LENGTH - step if parts else LENGTH
        given = (ids[:, :length], positions[:, :length], mask[:, :length, :length], scale)
        results.append(model(*given).clone())
    return results


def locate(golden: Path, mine: Path) -> dict[str, object]:
    words = [find_command(), "locate", "--json", str(golden), str(mine)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1, 125), done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, contextlib.nullcontext])
@pytest.mark.parametrize("level", ["module", "operator"])
@pytest.mark.parametrize("fill", FILLS)
def test_a_run_with_buffers_that_are_filled_again_agrees_with_itself(tmp_path, fill, level, mode):
    torch.manual_seed(1)
    model = Model().eval()
    for number, parts in enumerate((False, True)):
        run = tmp_path / f"run{number}"
        with mode(), assay.capture(model, run, level=level, weights=True):
            captured = serve(model, fill, parts=parts)
        with mode():
            plain = serve(model, fill, parts=parts)
        assert all(torch.equal(a, b) for a, b in zip(captured, plain))
        said = locate(run, run)
        assert said["outcome"] == "clean", said["sentence"]


def test_a_buffer_that_one_side_did_not_fill_is_named(tmp_path):
    """What agrees with itself must not agree with everything: here step 2 still has the mask of step 1."""
    torch.manual_seed(1)
    model = Model().eval()
    calls = []

    def forgetful(buffer, values):
        calls.append(buffer)
        if len(calls) != 11:
            buffer.copy_(values)

    for name, fill in (("golden", by_copy), ("mine", forgetful)):
        with torch.no_grad(), assay.capture(model, tmp_path / name, level="operator", weights=True):
            serve(model, fill)
    said = locate(tmp_path / "golden", tmp_path / "mine")
    assert said["outcome"] != "clean"
