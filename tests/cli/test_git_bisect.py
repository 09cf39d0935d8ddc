# SPDX-License-Identifier: Apache-2.0
"""`git bisect run` with our statuses: commits that do not run or cannot be judged are skipped, the bad one is named."""

from __future__ import annotations

import shlex
import subprocess

import pytest
import warm_python
from assay_command import binary

PROGRAM = """
import sys
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Embedding(50, 16), torch.nn.Linear(16, 16), torch.nn.LayerNorm(16))
prompt = [3, 1, 4, 1, 5]
CHANGE
with torch.no_grad():
    model(torch.tensor([prompt]))
"""
WRONG = "model[2].weight.data *= 1.03"
OTHER_PROMPT = "prompt = [7, 7, 7]"
BROKEN = 'raise SystemExit("half a commit")'


def git(folder, *words):
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *identity, *words], cwd=folder, check=False, capture_output=True, text=True)


def write_repository(folder, changes):
    """A commit and a tag v1, v2 ... for each change of the program."""
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for number, change in enumerate(changes, start=1):
        (folder / "run.py").write_text(PROGRAM.replace("CHANGE", change) + f"# version {number}\n")
        git(folder, "add", "run.py")
        git(folder, "commit", "-q", "-m", f"Change {number}")
        git(folder, "tag", f"v{number}")


def commit(folder, number: int) -> str:
    return git(folder, "rev-parse", f"v{number}").stdout.strip()


def judged(folder) -> dict[str, str]:
    """v4 -> skip: what `git bisect run` made of our statuses."""
    words = [line.split() for line in git(folder, "bisect", "log").stdout.splitlines() if line.startswith("git bisect")]
    tags = {commit(folder, number): f"v{number}" for number in range(1, 9)}
    return {tags[line[3]]: line[2] for line in words if len(line) == 4}


@pytest.mark.slow
def test_bisect_skips_what_cannot_be_judged_and_names_the_bad_commit(tmp_path):
    # Given eight commits: the fourth does not run, the fifth was given another prompt, the sixth is wrong
    folder = tmp_path / "repository"
    write_repository(folder, ["", "", "", BROKEN, OTHER_PROMPT, WRONG, WRONG, WRONG])
    git(folder, "checkout", "-q", "v2")
    assay, python = shlex.quote(binary()), shlex.quote(warm_python.python())
    capture = ["sh", "-c", f"{assay} dump --level operator --weights -o golden -- {python} run.py"]
    subprocess.run(capture, cwd=folder, check=True, capture_output=True)
    # When git bisects with the recipe of docs/commands/locate.md
    git(folder, "bisect", "start", "v8", "v2")
    recipe = f"rm -rf mine; {assay} dump --weights -o mine -- {python} run.py || exit 125; {assay} locate golden mine"
    done = git(folder, "bisect", "run", "sh", "-c", recipe)
    # Then the two in front of the bad commit were skipped: git cannot tell the three apart, and names no other
    said = done.stdout + done.stderr
    assert judged(folder) == {"v3": "good", "v4": "skip", "v5": "skip", "v6": "bad"} | {
        name: "bad" for name in judged(folder) if name in ("v7", "v8")
    }, said
    blamed = said.split("The first bad commit could be any of:")[1].split("We cannot bisect more!")[0].split()
    assert sorted(blamed) == sorted(commit(folder, number) for number in (4, 5, 6))
    assert said.count("clean: ") == 1, said
    assert "mine was not given what golden was" in said
