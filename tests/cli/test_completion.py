# SPDX-License-Identifier: Apache-2.0
"""src/cli/completion.bash knows every command and option, and completes in a real bash."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from assay_command import binary, run

SCRIPT = Path(__file__).parents[2] / "src" / "cli" / "completion.bash"


def complete(*words, cwd=None):
    line = " ".join(f"'{word}'" for word in words)
    program = {"msit": "_assay_msit"}.get(words[0], "_assay")
    script = f"source {SCRIPT}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; {program}; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, text=True, cwd=cwd, check=True)
    return done.stdout.split()


def test_every_command_is_completed():
    listed = run("--help").stdout.split("commands:")[1].split("options:")[0]
    commands = re.findall(r"^  (\w+)", listed, re.M)
    assert commands
    assert set(commands) <= set(complete("assay", ""))


TOOLS = ["logitscmp", "logitsdump", "bcanalyze", "analyze", "casefilter"]
COMMANDS = ["dump", "errcheck", "compare", "locate", "opcheck", "show", "verify", "convert", "overflow", "doctor"]
COMMANDS += ["graph", *TOOLS]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_the_help_is_completed(command):
    text = run(command, "--help").stdout.split("\nexample:")[0]
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text))
    assert options == {word for word in complete("assay", command, "-") if word.startswith("--")}


@pytest.mark.parametrize("command", ["compare", "dump", "errcheck", *TOOLS])
def test_every_option_of_the_old_commands_is_completed(command):
    text = run("llm", command, "-h", name="msit").stdout.split("options:")[1].split("example:")[0]
    options = set(re.findall(r"^  (--[a-z][a-z0-9-]*)", text, re.M))
    assert options == {word for word in complete("msit", "llm", command, "-") if word.startswith("--")}


def test_values_and_files_are_completed(tmp_path):
    assert complete("assay", "compare", "-cl", "l") == ["layer", "logits"]
    (tmp_path / "golden").mkdir()
    (tmp_path / "gold.npy").touch()
    assert sorted(complete("assay", "compare", "g", cwd=tmp_path)) == ["gold.npy", "golden"]
    assert complete("assay", "compare", "-o", "g", cwd=tmp_path) == ["golden"]


def test_the_command_prints_the_script_that_is_installed_beside_it():
    printed = run("completion").stdout
    assert printed == SCRIPT.read_text(encoding="utf-8")
    installed = Path(sys.prefix) / "share" / "bash-completion" / "completions" / "assay"
    assert installed.read_text(encoding="utf-8") == printed


def test_what_it_prints_completes_in_a_fresh_bash():
    program = 'eval "$(assay completion)"; COMP_WORDS=(assay comp); COMP_CWORD=1; _assay; echo ${COMPREPLY[@]}'
    environment = {**os.environ, "PATH": f"{Path(binary()).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", program], stdout=subprocess.PIPE, text=True, env=environment, check=True)
    assert done.stdout.split() == ["compare", "completion"]
