# SPDX-License-Identifier: Apache-2.0
"""What every command shares: help and its width, unknown words and what was meant, ranges of numbers, environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from assay_command import binary, run, write_torch_tree

COMMANDS = ["dump", "errcheck", "compare", "locate", "opcheck", "show", "verify", "join", "convert", "overflow",
            "doctor", "graph", "logitscmp", "logitsdump", "bcanalyze", "analyze", "casefilter", "completion",
            "man"]  # fmt: skip


def test_without_arguments_the_help_goes_to_stderr_and_the_status_says_usage(assay):
    done = assay()
    assert done.returncode == 2
    assert done.stdout == ""
    assert "usage: assay COMMAND [OPTIONS]" in done.stderr
    assert "compare" in done.stderr


def test_version_is_one_line(assay):
    done = assay("--version")
    assert (done.returncode, done.stdout) == (0, "assay 0.1.0\n")


def test_the_long_version_says_what_a_report_of_a_defect_needs(assay):
    done = assay("--version", "--verbose")
    first, *lines = done.stdout.splitlines()
    assert (done.returncode, first) == (0, "assay 0.1.0")
    said = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert list(said) == ["commit", "compiler", "system", "glibc", "processor", "components"]
    assert re.fullmatch(r"unknown|[0-9a-f]{40}\+?", said["commit"])
    assert said["system"].split() == [os.uname().sysname, os.uname().release, os.uname().machine]
    assert said["glibc"].startswith(os.confstr("CS_GNU_LIBC_VERSION").split()[1])
    flags = Path("/proc/cpuinfo").read_text()
    assert ("AVX-512" in said["processor"]) == all(f" {flag}" in flags for flag in ("avx512f", "avx512bw", "avx512vl"))
    for component in ("OpenBLAS 0.", "zlib 1.", "nlohmann-json 3.", "libstdc++ ", "d3-scale "):
        assert component in said["components"]
    assert assay("--version", "--verbos").stderr.startswith("error: unknown option --verbos; did you mean --verbose?")


# ---- help ----


def test_help_names_every_command(assay):
    listed = assay("--help").stdout
    assert assay("help").stdout == listed
    for command in COMMANDS:
        assert f"\n  {command} " in listed


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_looks_alike(assay, command):
    done = assay(command, "--help")
    assert done.returncode == 0
    assert done.stdout == assay("help", command).stdout == assay(command, "-h").stdout
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"usage: assay {command}")
    assert "OPTIONS]" in done.stdout.split("\n\n")[0]
    assert "\nexample:\n" in done.stdout
    assert any(line.startswith("  --help, -h") for line in lines)


def test_help_of_an_unknown_command_says_so(assay):
    done = assay("help", "comapre")
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown command comapre; did you mean compare?\n")


@pytest.mark.parametrize("columns", [None, "50", "120"])
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_as_wide_as_the_terminal(assay, command, columns):
    env = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    done = assay(*command.split(), "--help", env={**env, **({"COLUMNS": columns} if columns else {})})
    text = done.stdout.split("\nexample:")[0]  # an example is one line to copy, however long
    widest = max(map(len, text.splitlines()))
    assert widest <= int(columns or 80)
    assert widest > int(columns or 80) * 0.75 or columns == "120"


@pytest.mark.parametrize("columns", ["0", "-5", "nonsense", "99999999999999999999"])
def test_a_senseless_width_does_not_matter(assay, columns):
    assert assay("compare", "--help", env={**os.environ, "COLUMNS": columns}).returncode == 0


# ---- unknown words ----


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["comapre", "a", "b"], "compare"),
        (["shwo", "a"], "show"),
        (["loacte"], "locate"),
        (["convert", "--fromat", "npy", "a", "b"], "--format"),
        (["compare", "a", "b", "--rel-12", "0.1"], "--rel-l2"),
        (["show", "--sttas"], "--stats"),
        (["locate", "a", "b", "--slcie=x"], "--slice"),
        (["doctor", "--jsno"], "--json"),
        (["graph", "--stlye", "me", "x"], "--style"),
        (["dump", "--stesp", "1", "--", "true"], "--steps"),
        (["errcheck", "--outptu", "x", "--", "true"], "--output"),
        (["opcheck", "x", "--standrad", "atb"], "--standard"),
        (["overflow", "--dump-paht", "x"], "--dump-path"),
        (["bcanalyze", "--goldne-path", "x"], "--golden-path"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_nearest(assay, words, meant):
    done = assay(*words)
    assert done.returncode == 2
    first = done.stderr.splitlines()[0]
    assert first.endswith(f"; did you mean {meant}?"), done.stderr
    following = done.stderr.splitlines()[-1]
    assert following in ("next: assay help", f"next: assay help {words[0]}", f"next: assay {words[0]} --help")


def test_what_is_near_to_nothing_gets_no_guess(assay):
    done = assay("frobnicate")
    assert done.returncode == 2
    assert done.stderr == "error: unknown command frobnicate\nnext: assay help\n"
    done = assay("show", "--frob")
    assert done.returncode == 2
    assert done.stderr == "error: unknown option --frob\nnext: assay show --help\n"


def test_the_old_names_say_what_the_original_said(assay):
    done = run("llm", "comapre", name="msit")
    assert done.returncode == 2
    assert "invalid choice: 'comapre' (choose from 'dump'" in done.stderr
    done = run("llm", "compare", "-gp", "a", "-mp", "b", "--ouptut", "x", name="msit")
    assert "error: unrecognized arguments: --ouptut x" in done.stderr


# ---- words ----


# Old options, a module, and tokens that are some: those that the runs choose.
OTHER_TOKENS = re.compile(r"--?token-(map|range)|TOKEN_RANGE|embed_tokens|--tokens|the tokens\s+that the runs choose")
# Tokens of a text, not steps of a run.
OF_TEXTS = ("logitsdump", "analyze")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_calls_a_forward_call_a_step(assay, command):
    said = OTHER_TOKENS.sub("", assay(command, "--help").stdout)
    assert command in OF_TEXTS or "token" not in said.lower()


def test_what_commands_print_calls_a_forward_call_a_step(assay, tmp_path):
    for side in ("golden", "mine"):
        write_torch_tree(tmp_path / side, layer_count=2, tokens=(0, 1), change=lambda name, t: t + (name == "root"))
    for words in (
        ["show"],
        ["show", "--list"],
        ["compare", "-o", "out"],
        ["compare", "-o", "out", "--rel-l2", "0"],
        ["locate"],
    ):
        paths = ["golden"] if words[0] == "show" else ["golden", "mine"]
        done = assay(*words, *paths, cwd=tmp_path)
        said = done.stdout + done.stderr
        assert "step" in said or words[0] == "locate", said
        assert "token" not in OTHER_TOKENS.sub("", said).lower(), said


# ---- ranges ----


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (["compare", "a", "b", "--jobs", "-3"], "a whole number from 0 to 4096"),
        (["compare", "a", "b", "--jobs=1e9"], "a whole number from 0 to 4096"),
        (["locate", "a", "b", "-j", "99999999999999999999"], "a whole number from 0 to 4096"),
        (["opcheck", "a", "-j", "-3"], "a whole number from 0 to 4096"),
        (["compare", "a", "b", "--cos", "2"], "a number from -1 to 1"),
        (["compare", "a", "b", "--cos", "nan"], "a number from -1 to 1"),
        (["compare", "a", "b", "--rel-l2", "-1"], "a number of at least 0"),
        (["compare", "a", "b", "--atol", "nan"], "a number of at least 0"),
        (["compare", "a", "b", "--rtol=x"], "a number of at least 0"),
        (["doctor", "--timeout", "nan"], "a number from 0.1 to 600"),
        (["graph", "x", "--level", "-2"], "a whole number from -1 to 1000000"),
        (["show", ".", "--width", "3"], "a whole number from 20 to 1000"),
        (["show", ".", "--step=-1"], "numbers from 0 up"),
        (["convert", ".", "x", "--rank=-1", "--format", "npy"], "numbers from 0 up"),
    ],
)
def test_a_number_out_of_range_is_one_sentence_with_the_range(assay, words, allowed):
    done = assay(*words)
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert f"expected {allowed}" in errors[0]
    assert len(errors[0]) < 160


@pytest.mark.parametrize(
    "words", [["dump", "--steps", "-1", "--", "true"], ["dump", "--queue", "nan", "--", "true"],
              ["overflow", "-d", "x", "-out", "y", "-n", "9"], ["logitscmp", "-gp", "a", "-mp", "b", "-cs", "2"]]
)  # fmt: skip
def test_so_is_one_of_the_commands_with_the_old_grammar(assay, words):
    done = assay(*words)
    assert done.returncode == 2
    assert len(done.stderr) < 300


# Every option that is a number or a list of numbers, with the words that its command needs beside it.
NUMBERS = {
    "dump": (
        ["--", "true"],
        ["-er", "-time", "-stp", "-device", "-seed", "--queue", "--steps", "--ranks", "--node-memory", "--disk-budget"],
    ),
    "compare": (
        ["a", "b"],
        ["--token-map", "--ranks", "--rank", "--atol", "--rtol", "--cos", "--rel-l2", "--jobs", "--max-memory"],
    ),
    "locate": (["a", "b"], ["--jobs", "--max-memory"]),
    "show": (["{file}"], ["--step", "--rank", "--width"]),
    "verify": (["a"], ["--jobs"]),
    "convert": (["{file}", "b.npy"], ["--step", "--rank"]),
    "overflow": (["-d", "a", "-out", "b"], ["-n"]),
    "doctor": ([], ["--timeout"]),
    "graph": (["a"], ["--level"]),
    "opcheck": (["a"], ["-ids", "-device", "--jobs", "--max-memory"]),
    "logitscmp": (["-gp", "a", "-mp", "b"], ["-cs", "-kl", "-l1"]),
    "logitsdump": (["-e", "torchrun", "-bcr", "a.csv"], ["-tr"]),
}
NO_NUMBERS = ["nan", "inf", "-inf", "-3", "1e400", "0x10", "-" + "9" * 400, "9" * 400]
# No limit at all; words behind -seed are the program; identifiers are texts of digits.
MEANT = {(name, "inf") for name in ("--atol", "--rtol", "--rel-l2", "-kl", "-l1")} | {
    *(("-seed", word) for word in ("nan", "inf")),
    ("-ids", "9" * 400),
}


@pytest.mark.parametrize(("command", "option"), [(c, option) for c, (_, names) in NUMBERS.items() for option in names])
def test_what_no_number_can_be_is_refused_by_every_option(assay, tmp_path, command, option):
    np.save(tmp_path / "x.npy", np.zeros(2))
    beside = [word.format(file=tmp_path / "x.npy") for word in NUMBERS[command][0]]
    for value in NO_NUMBERS:
        words = [f"{option}={value}"] if option.startswith("--") else [option, value]
        done = assay(command, *words, *beside, cwd=tmp_path)
        if (option, value) in MEANT:
            continue
        # Then it is refused before anything is opened, in one sentence that does not repeat 400 digits
        assert done.returncode == 2, (value, done.stderr)
        (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert len(error) < 200, error
        assert "cannot open" not in error, (value, error)
        # A word with one dash that is no number is another option.
        assert value[:9] in error or (value == "-inf" and "expected one argument" in error), (value, error)
    assert not (tmp_path / "b.npy").exists()


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_no_option_with_a_number_is_left_out_of_these_tests(assay, command):
    numbers = {"N", "MIB", "SIZE", "BYTES", "STEPS", "RANGE", "LIST", "TOKEN_RANGE", "COSINE_SIMILARITY", "L1_NORM"}
    shown = assay(command, "--help", env={**os.environ, "COLUMNS": "200"}).stdout
    named = re.findall(r"^  (-[\w-]+)(?:, (-[\w-]+))? \[?([A-Z0-9_]+)", shown, re.M)
    options = {(long, short) for long, short, metavar in named if metavar in numbers}
    tried = set(NUMBERS.get(command, ([], []))[1])
    # The lists of locate are read with its runs: tests/cli/test_user_pairs.py
    elsewhere = {"--token-map", "--ranks"} if command == "locate" else set()
    assert {names for names in options if not (set(names) & (tried | elsewhere))} == set()
    assert (command not in NUMBERS) == (not options and command not in ("show", "convert", "overflow"))


# ---- ways to call it ----


def test_python_m_assay_is_the_command(assay):
    def module(*words):
        return subprocess.run([sys.executable, "-m", "assay", *words], capture_output=True, text=True, timeout=60)

    assert module("--version").stdout == assay("--version").stdout
    done, native = module("show", "/nowhere"), assay("show", "/nowhere")
    assert (done.returncode, done.stderr) == (native.returncode, native.stderr) and done.returncode == 2


def test_assignments_in_front_of_a_command_in_a_string_are_its_environment(assay, tmp_path):
    script = "import os; open('seen', 'w').write(os.environ.get('A_B', '-') + os.environ.get('C', '-'))"
    (tmp_path / "x.py").write_text(script)
    command = f"A_B=1 C=two {sys.executable} x.py"
    assay("dump", "-o", "out", "--host", "atb", "--exec", command, cwd=tmp_path)
    assert (tmp_path / "seen").read_text() == "1two"
    (tmp_path / "seen").unlink()
    assay("locate", "--golden", command, "--mine", "true", "-o", "runs", cwd=tmp_path)
    assert (tmp_path / "seen").read_text() == "1two"


def test_words_behind_two_dashes_are_no_assignments(assay, tmp_path):
    done = assay("dump", "-o", "out", "--host", "atb", "--", "A=1", "true", cwd=tmp_path)
    assert done.returncode == 1
    assert "A=1" in done.stderr


def write_checkpoints(folder):
    import torch
    from safetensors.torch import save_file

    for side, value in (("golden", 1.0), ("mine", 2.0)):
        (folder / side).mkdir()
        save_file({"model.a.weight": torch.full((4,), value)}, folder / side / "model.safetensors")


def test_two_checkpoints_are_compared_by_their_weights_without_being_told(assay, tmp_path):
    write_checkpoints(tmp_path)
    done = assay("compare", "golden", "mine", "-o", "report", cwd=tmp_path)
    asked = assay("compare", "-w", "golden", "mine", "-o", "report", cwd=tmp_path)
    assert "their weights are compared (-w)" in done.stderr
    assert done.stdout.split("report:")[0] == asked.stdout.split("report:")[0]


TWO = "two checkpoints are compared by their weights; add -w: assay compare -w golden mine"
ONE = "golden is a checkpoint, whose weights are compared with those of another one; for that add -w"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["compare", "golden/model.safetensors", "mine/model.safetensors"], 1, f"note: {TWO}"),
        (["compare", "golden", "mine/model.safetensors"], 2, f"; {TWO}"),
        (["compare", "golden", "run"], 1, f"note: {ONE}"),
        (["locate", "golden", "mine"], 2, f"error: golden: is a checkpoint, and no run; {TWO}"),
        (["locate", "golden", "run"], 2, f"error: golden: is a checkpoint, and no run; {ONE}"),
    ],
)
def test_checkpoints_where_runs_are_meant_say_which_option_is_missing(assay, tmp_path, words, status, said):
    write_checkpoints(tmp_path)
    write_torch_tree(tmp_path / "run", layer_count=1)
    # A limit, so that a difference is a status
    limit = ["--atol", "0.5"] if status == 1 else []
    done = assay(*words, *limit, cwd=tmp_path)
    assert said in done.stderr
    assert done.returncode in ((1, 125) if status == 1 else (2,)), done.stderr


def test_the_advice_works_as_it_is_printed(assay, tmp_path):
    write_checkpoints(tmp_path)
    said, following = assay("locate", "golden", "mine", cwd=tmp_path).stderr.splitlines()
    advice = following.removeprefix("next: ")
    assert said.endswith(f"add -w: {advice}")
    done = assay(*advice.split()[1:], cwd=tmp_path)
    assert "model.a.weight" in done.stdout
    assert "add -w" not in done.stderr


def test_runs_are_no_checkpoints(assay, tmp_path):
    for side in ("golden", "mine"):
        write_torch_tree(tmp_path / side, layer_count=1)
    said = assay("compare", "golden", "mine", "-o", "report", cwd=tmp_path).stderr
    assert "(-w)" not in said and "add -w" not in said


def test_a_manual_on_a_terminal_is_text_and_elsewhere_a_page_for_man(assay):
    elsewhere = assay("man", "show").stdout
    assert elsewhere.startswith(".TH ASSAY-SHOW 1 ")
    screen, terminal = os.openpty()
    child = subprocess.Popen([binary(), "man", "show"], stdout=terminal)
    os.close(terminal)
    text = b""
    while True:
        try:
            text += os.read(screen, 65536)
        except OSError:  # the other end is closed
            break
    os.close(screen)
    assert child.wait(60) == 0
    assert text.startswith(b"usage: assay show ")
    assert b".SH" not in text
