# SPDX-License-Identifier: Apache-2.0
"""Completions and manual pages are made of the table of commands: they say what the help says."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from assay_command import binary, run

TOOLS = ["logitscmp", "logitsdump", "bcanalyze", "analyze", "casefilter"]
COMMANDS = [
    "dump",
    "errcheck",
    "compare",
    "locate",
    "gate",
    "opcheck",
    "fingerprint",
    "repeat",
    "invariance",
    "show",
    "verify",
    "join",
    "convert",
    "overflow",
    "doctor",
    "twin",
]
COMMANDS += ["graph", *TOOLS, "completion", "man", "help"]
OLD_COMMANDS = ["compare", "dump", "errcheck", "opcheck", *TOOLS]
SHARE = Path(sys.prefix) / "share"


@functools.cache
def script(shell):
    done = run("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@functools.cache
def options_of(*words, name="assay"):
    """The spellings on a help page, in its order, each row a tuple."""
    text = run(*words, "--help", name=name).stdout.split("\nexample:")[0]
    return [tuple(row.split(", ")) for row in re.findall(r"^  (-[\w-]+(?:, -[\w-]+)*)", text, re.M)]


@functools.cache
def choices_of(*words, name="assay"):
    """The choices on a help page, by the first spelling of their option."""
    text = run(*words, "--help", name=name).stdout
    found = re.findall(r"^  (-[\w-]+)(?:, -[\w-]+)* \[?{([^}]*)}", " ".join(re.split(r"\n {4,6}(?=\{)", text)), re.M)
    return {option: choices.split(",") for option, choices in found}


def bash(*words, cwd=None):
    line = " ".join(f"'{word}'" for word in words)
    program = f"{script('bash')}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _assay; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", program], stdout=subprocess.PIPE, text=True, cwd=cwd, check=True)
    return done.stdout.split()


def test_help_lists_the_commands_of_these_tests():
    listed = run("--help").stdout.split("commands:")[1].split("options:")[0]
    assert set(re.findall(r"^  (\w+)", listed, re.M)) == set(COMMANDS)


# ---- bash ----


def test_bash_completes_every_command():
    assert set(bash("assay", "")) == {*COMMANDS, "--help", "--version"}
    assert set(bash("msit", "llm", "")) == {*OLD_COMMANDS, "dd", "cc", "oo", "--help"}
    assert bash("ait", "") == ["llm", "--help"]


@pytest.mark.parametrize("command", COMMANDS)
def test_bash_completes_every_option_of_the_help(command):
    names = [name for row in options_of(command) for name in row]
    assert names and bash("assay", command, "-") == names


@pytest.mark.parametrize("command", OLD_COMMANDS)
def test_bash_completes_every_option_of_the_old_commands(command):
    names = [name for row in options_of("llm", command, name="msit") for name in row]
    assert names and bash("msit", "llm", command, "-") == names


def test_bash_completes_values_and_files(tmp_path):
    assert bash("assay", "compare", "-cl", "l") == ["layer", "logits"]
    assert bash("msit", "llm", "dd", "--type", "c") == ["cpu_profiling"]
    assert bash("assay", "help", "lo") == ["locate", "logitscmp", "logitsdump"]
    assert bash("assay", "completion", "") == ["bash", "zsh", "fish"]
    (tmp_path / "golden").mkdir()
    (tmp_path / "gold.npy").touch()
    assert sorted(bash("assay", "compare", "g", cwd=tmp_path)) == ["gold.npy", "golden"]
    assert bash("assay", "compare", "-o", "g", cwd=tmp_path) == ["golden"]
    assert bash("assay", "verify", "go", cwd=tmp_path) != []


@pytest.mark.parametrize("command", COMMANDS)
def test_bash_completes_every_choice(command):
    for option, choices in choices_of(command).items():
        assert bash("assay", command, option, "") == choices


def test_what_it_prints_completes_in_a_fresh_bash():
    program = 'eval "$(assay completion)"; COMP_WORDS=(assay comp); COMP_CWORD=1; _assay; echo ${COMPREPLY[@]}'
    environment = {**os.environ, "PATH": f"{Path(binary()).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", program], stdout=subprocess.PIPE, text=True, env=environment, check=True)
    assert done.stdout.split() == ["compare", "completion"]


# ---- zsh and fish, by what is written ----


def sections_of_zsh():
    """The lines of _arguments of each command, by "program command"."""
    found = re.findall(
        r"^    \(((?:assay|msit)\\ [^)]*)\)\n      _arguments((?: \\\n        .*)*)\n      ;;", script("zsh"), re.M
    )
    return {name.split("|")[0].replace("\\", ""): text.split(" \\\n        ")[1:] for name, text in found}


@pytest.mark.parametrize(("program", "command"), [("assay", c) for c in COMMANDS] + [("msit", c) for c in OLD_COMMANDS])
def test_zsh_has_every_option_and_choice(program, command):
    words = [command] if program == "assay" else ["llm", command]
    rows = sections_of_zsh()[f"{program} {command}"]
    options = [re.match(r"'\(([^)]*)\)'(?:{(\S*)}|(-[^']*))'\[", row) for row in rows]
    spelled = [tuple(match[1].split()) for match in options if match]
    assert spelled == options_of(*words, name=program)
    # What excludes itself is what is completed
    assert all(
        tuple((match[2] or match[3].split("'")[0]).split(",")) == tuple(match[1].split()) for match in options if match
    )
    for option, choices in choices_of(*words, name=program).items():
        (row,) = [row for row in rows if row.startswith((f"'({option} ", f"'({option})"))]
        assert f":({' '.join(choices)})'" in row


def lines_of_fish(program, command):
    condition = rf"^complete -c {program} -n '__assay_has_command {command}(?: \w+)?' (.*)$"
    return re.findall(condition, script("fish"), re.M)


@pytest.mark.parametrize(
    ("program", "command"),
    [("assay", c) for c in COMMANDS] + [(old, c) for c in OLD_COMMANDS for old in ("msit", "ait")],
)
def test_fish_has_every_option_and_choice(program, command):
    words = [command] if program == "assay" else ["llm", command]
    named = [re.match(r"((?:-[lso] \S+ ?)*)", line)[1].split() for line in lines_of_fish(program, command)]
    spelled = [
        tuple(("--" if kind == "-l" else "-") + name for kind, name in zip(row[::2], row[1::2])) for row in named
    ]
    assert [row for row in spelled if row] == options_of(*words, name=program)
    lines = dict(
        zip(
            [row[0] for row in spelled if row],
            [line for line, row in zip(lines_of_fish(program, command), spelled) if row],
        )
    )
    for option, choices in choices_of(*words, name=program).items():
        assert f" -a '{' '.join(choices)}' " in lines[option]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_that_is_here_takes_the_script(shell, tmp_path):
    path = tmp_path / "script"
    path.write_text(script(shell), encoding="utf-8")
    # What is written between quotes and brackets is closed, whether the shell is here or not
    code = re.sub(r"(?m)^ *#.*$", "", script(shell))
    outside = re.sub(r"'[^']*'", "", code.replace("'\\''", "").replace("\\'", "")) if shell != "bash" else code
    assert outside.count("'") == 0 or shell == "bash"
    assert outside.count("{") == outside.count("}")
    assert "@" not in re.sub(r"@(?:folders|files|\")|\$@|\[@\]|\$\{[^}]*@[^}]*\}", "", outside)
    if shutil.which(shell) is None:
        return
    done = subprocess.run([shell, "-n", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
def test_fish_completes():
    def fish(line):
        program = f"source (assay completion fish | psub); complete -C '{line}'"
        environment = {**os.environ, "PATH": f"{Path(binary()).parent}:{os.environ['PATH']}"}
        done = subprocess.run(["fish", "-c", program], stdout=subprocess.PIPE, text=True, env=environment, check=True)
        return [row.split("\t")[0] for row in done.stdout.splitlines()]

    assert set(fish("assay ")) >= set(COMMANDS)
    assert set(fish("assay compare --c")) == {"--cmp-level", "--cos", "--compat", "--custom-algorithms"}
    assert set(fish("assay compare -cl ")) >= {"layer", "module", "api", "logits"}
    assert set(fish("msit llm dd --type ")) >= {"model", "stats"}


# ---- manual pages ----


@pytest.mark.parametrize("command", COMMANDS)
def test_the_manual_page_has_what_the_help_has(command):
    page = run("man", command).stdout
    assert page.startswith(f'.TH ASSAY-{command.upper()} 1 "" "assay ')
    assert [line for line in page.splitlines() if line.startswith(".SH")][:3] == [
        ".SH NAME",
        ".SH SYNOPSIS",
        ".SH DESCRIPTION",
    ]
    shown = [line[3:].replace("\\-", "-") for line in page.splitlines() if line.startswith(".B ")]
    rows = [re.match(r"(-[\w-]+(?:, -[\w-]+)*)", line) for line in shown]
    assert [tuple(row[1].split(", ")) for row in rows if row] == options_of(command)
    # Nothing is taken for a request
    assert all(re.match(r"\.(TH|SH|TP|B |PP|EX|EE|IP)", line) for line in page.splitlines() if line[:1] in (".", "'"))


def test_pages_of_all_commands_are_written(tmp_path):
    assert run("man", "-o", "pages", cwd=tmp_path).returncode == 0
    assert {path.name for path in (tmp_path / "pages").iterdir()} == {"assay.1", *(f"assay-{c}.1" for c in COMMANDS)}
    assert (tmp_path / "pages" / "assay-show.1").read_text(encoding="utf-8") == run("man", "show").stdout
    assert (tmp_path / "pages" / "assay.1").read_text(encoding="utf-8") == run("man").stdout
    assert "unknown command shwo; did you mean show?" in run("man", "shwo").stderr


@pytest.mark.skipif(shutil.which("man") is None, reason="no man here")
def test_man_shows_the_page_without_a_word(tmp_path):
    (tmp_path / "page.1").write_text(run("man", "compare").stdout)
    done = subprocess.run(
        ["man", "--warnings", "-l", "page.1"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert "--rel-l2 N" in done.stdout


# ---- what is installed ----


@pytest.mark.parametrize(
    ("shell", "place"),
    [
        ("bash", "bash-completion/completions/assay"),
        ("zsh", "zsh/site-functions/_assay"),
        ("fish", "fish/vendor_completions.d/assay.fish"),
    ],
)
def test_the_script_is_installed_where_the_shell_looks(shell, place):
    assert (SHARE / place).read_text(encoding="utf-8") == script(shell)


def test_manual_pages_are_installed():
    installed = SHARE / "man" / "man1"
    assert (installed / "assay.1").read_text(encoding="utf-8") == run("man").stdout
    assert {path.name for path in installed.glob("assay*")} == {"assay.1", *(f"assay-{c}.1" for c in COMMANDS)}
