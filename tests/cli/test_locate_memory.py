# SPDX-License-Identifier: Apache-2.0
"""`assay locate` on runs of several sizes: its memory follows its limit and the lists of records, not the bytes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import assay

WIDTH = 768
LIMIT = 64 << 20

# Starts the command from a small process: what a process holds when it starts another counts as that one's, too.
MEASURE = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, text=True)
print(done.stdout.replace(chr(10), " "))
print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


def capture_chain(folder: Path, layers: int, dtype: torch.dtype, level: str) -> int:
    """Captures a chain of linear modules with all bytes and weights; returns the bytes of its tensors."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers))).to(dtype)
    data = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(1)).to(dtype)
    with torch.no_grad(), assay.capture(model, folder, level=level, weights=True):
        model(data)
    return sum(file.stat().st_size for file in folder.rglob("*.safetensors"))


def resident_bytes(command: str, golden: Path, mine: Path) -> int:
    """The largest resident memory of one verdict, which must be clean."""
    words = [command, "locate", str(golden), str(mine), "--max-memory", str(LIMIT), "--jobs", "2"]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *words], capture_output=True, text=True, check=True, timeout=120
    )
    sentence, numbers = done.stdout.splitlines()
    assert "clean: " in sentence, sentence
    status, resident = map(int, numbers.split())
    assert status == 0
    return resident


@pytest.mark.parametrize("level", ["operator", "module"])
def test_memory_does_not_grow_with_the_bytes_of_a_run(assay_command, tmp_path, level):
    # Given two pairs of runs, one of them nine times as large
    sizes, resident = [], []
    for layers in (6, 54):
        folder = tmp_path / str(layers)
        size = capture_chain(folder / "golden", layers, torch.float32, "operator")
        sizes.append(size + capture_chain(folder / "mine", layers, torch.bfloat16, level))
        # When both are judged with the same limit
        resident.append(resident_bytes(assay_command, folder / "golden", folder / "mine"))
    # Then the larger one needs no more than the limit beyond the smaller one
    assert sizes[1] - sizes[0] > 2.5 * LIMIT
    assert resident[1] - resident[0] < LIMIT
