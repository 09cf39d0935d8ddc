# SPDX-License-Identifier: Apache-2.0
"""What the commands print on terminals of 60 to 200 columns, with and without UTF-8 and colours."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import unicodedata
from pathlib import Path

import pytest
from assay_command import binary, write_native_run
from operator_runs import write_run

WIDTHS = (60, 80, 120, 200)
LAYERS = 24
FIRST_BAD = 17


def on_terminal(width: int, *words: object, status: int = 0, **environment: str) -> str:
    """What a command prints on a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    settings = {"LC_ALL": "C.UTF-8", "TERM": "xterm", "NO_COLOR": "1", **environment}
    process = subprocess.Popen(
        [binary(), *map(str, words)], stdout=theirs, stderr=subprocess.PIPE, env={**os.environ, **settings}
    )
    os.close(theirs)
    printed = b""
    try:
        while block := os.read(ours, 65536):
            printed += block
    except OSError:  # Linux tells the end of a terminal so
        pass
    os.close(ours)
    errors = process.communicate(timeout=60)[1].decode()
    assert process.returncode == status, errors
    return printed.decode().replace("\r\n", "\n")


def columns(text: str) -> int:
    """By Unicode's own table."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in re.sub(r"\x1b\[\d+m", "", text)
    )


def assert_fits(text: str, width: int) -> None:
    """No line is longer than the terminal, but for single words, such as paths, and commands to paste."""
    for line in text.splitlines():
        words = line.split()
        is_word = len(words) == 1 or (len(words) == 2 and words[0] in ("report:", "file"))
        assert columns(line) <= width or is_word or words[0] == "next:", f"{columns(line)} of {width}: {line}"


def statistics(scale: float) -> dict[str, float]:
    return {"count": 4, "nan": 0, "pos_inf": 0, "neg_inf": 0, "min": -scale, "max": scale, "mean": 0, "l2": 2 * scale}


def write_layers(folder: Path, first_bad: int = LAYERS, stack: str = "language_model.model.layers") -> Path:
    """A run of statistics; from a layer on, they are 3 % too large, before it a little more from layer to layer."""
    records = []
    for i in range(LAYERS):
        error = 0.0 if first_bad == LAYERS else 0.03 if i >= first_bad else 1e-6 * (i + 1)
        for name, kind in ((".self_attention.rotary_projection", "Projection"), ("", "DecoderLayer")):
            records.append(
                {"node": f"{stack}.{i}{name}", "type": kind, "order": len(records), "stats": statistics(1 + error)}
            )
    return write_native_run(folder, records)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return write_layers(folder / "golden"), write_layers(folder / "mine", FIRST_BAD)


@pytest.fixture(scope="module")
def operators(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("operators")
    return write_run(folder / "golden"), write_run(folder / "mine", gains={1: 1.03})


@pytest.mark.parametrize("width", WIDTHS)
def test_a_comparison_fits_and_keeps_the_layer_numbers(runs, tmp_path, width):
    text = on_terminal(width, "compare", *runs, "--rel-l2", "0.001", "-o", tmp_path, status=1)
    assert_fits(text, width)
    rows = text.partition("worst rows")[2].partition("\n\n")[0].splitlines()[1:]
    assert len(rows) == 10
    for row in rows:
        assert re.search(r"\b(1[7-9]|2[0-3])\b", row.split(" output")[0]), row
        assert "FAIL" in row
    assert f"step 0 language_model.model.layers.{FIRST_BAD}" in " ".join(text.split())
    if width >= 120:  # there is room for whole names
        assert "..." not in text.partition("worst rows")[2].partition("error by layer")[0]


@pytest.mark.parametrize("width", WIDTHS)
def test_verdict_and_operator_checks_fit(operators, tmp_path, width):
    golden, mine = operators
    located = on_terminal(width, "locate", golden, mine, "--why", status=1)
    checked = on_terminal(width, "opcheck", golden, "-o", tmp_path)
    compared = on_terminal(width, "compare", golden, mine, "-o", tmp_path, status=1)
    for text in (located, checked, compared):
        assert_fits(text, width)
    assert "blocks.1.norm" in located and "10 of 10 operators pass" in " ".join(checked.split())


@pytest.mark.parametrize("width", WIDTHS)
def test_listings_fit_and_lose_nothing(runs, operators, width):
    golden = runs[0]
    for words in (
        ["show", golden],
        ["show", golden, "--all"],
        ["show", golden, "--list", "--stats"],
        ["show", golden, "*.17.self_attention.rotary_projection"],
        ["show", operators[0], "--all"],
        ["show", operators[0], "--list"],
        ["show", operators[0], "blocks.1.norm.output"],
    ):
        text = on_terminal(width, *words)
        assert_fits(text, width)
        if width >= 80:
            assert not re.search(r"\w\.\.\.|\.\.\.\w", text), text
    lines = on_terminal(width, "show", golden, "--list", "--stats").split("\nstep ")[1:]
    assert len(lines) == 2 * LAYERS
    for i, line in enumerate(lines):
        assert re.search(rf"layers\.{i // 2}\b.*output  float32|layers\.{i // 2}\b.*output$", line.splitlines()[0])
        assert " ".join(line.split()).endswith("float32 [4] statistics only min -1 max 1 mean 0 l2 2")


def test_a_pipe_has_whole_lines(runs):
    done = subprocess.run([binary(), "show", runs[0], "--list", "--stats"], capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 1 + 2 * LAYERS


# ---- the line of errors ----


def spark(text: str) -> list[str]:
    """Title, blocks and what is below them."""
    found = re.search(r"^error by layer.*?(?=\n\n)", text, re.MULTILINE | re.DOTALL)
    return found.group().splitlines() if found else []


def test_the_error_grows_through_the_layers_in_one_line(runs, tmp_path):
    title, line, caret = spark(on_terminal(80, "compare", *runs, "--rel-l2", "0.001", "-o", tmp_path, status=1))
    assert title == "error by layer (relative, of the L2 norm, 1e-6 to 3e-2)"
    name, blocks = line.split()
    assert name == f"language_model.model.layers.0-{LAYERS - 1}"
    # log(2) / log(30000) of eight levels is 0.5: the second layer is on the first level, the fourth on the second.
    assert blocks[:4] == "▁▁▁▂" and blocks[FIRST_BAD:] == "█" * (LAYERS - FIRST_BAD) and len(blocks) == LAYERS
    assert caret == " " * line.index("█") + f"^ {FIRST_BAD}"


def test_the_verdict_says_which_layer_is_marked(operators, tmp_path):
    _, line, caret = spark(on_terminal(80, "compare", *operators, "-o", tmp_path, status=1))
    assert line.startswith("  blocks.0-2  ·") and caret == " " * (line.index("·") + 1) + "^ 1"


def test_colour_marks_the_layer_without_a_caret(runs, tmp_path):
    lines = spark(on_terminal(80, "compare", *runs, "--rel-l2", "0.001", "-o", tmp_path, status=1, NO_COLOR=""))
    assert len(lines) == 2
    assert "\x1b[31m█\x1b[0m██████" in lines[1] and lines[1].count("\x1b") == 2


@pytest.mark.parametrize(
    ("environment", "blocks"),
    [
        ({"LC_ALL": "C"}, False),
        ({"LC_ALL": "C", "LANG": "C.UTF-8"}, False),
        ({"LC_ALL": "", "LC_CTYPE": "en_US.utf8", "LANG": "C"}, True),
        ({"LC_ALL": "", "LC_CTYPE": "", "LANG": "de_DE.UTF-8"}, True),
        ({"LC_ALL": "", "LC_CTYPE": "", "LANG": ""}, False),
        ({"TERM": "dumb"}, False),
    ],
)
def test_blocks_need_a_terminal_that_has_them(runs, tmp_path, environment, blocks):
    text = on_terminal(80, "compare", *runs, "-o", tmp_path, **environment)
    assert text.isascii() == (not blocks)
    assert ("█" if blocks else "#" * (LAYERS - FIRST_BAD)) in spark(text)[1]


def test_more_layers_than_columns_share_them(tmp_path):
    def write(folder: Path, bad: int) -> Path:
        scale = [1.5 if i == bad else 1.0 for i in range(150)]
        return write_native_run(folder, [{"node": f"h.{i}", "stats": statistics(s)} for i, s in enumerate(scale)])

    text = on_terminal(60, "compare", write(tmp_path / "g", -1), write(tmp_path / "m", 100), "-o", tmp_path)
    title = " ".join(spark(text)[:2])
    assert re.sub(r" +", " ", title) == (
        "error by layer (relative, of the L2 norm, 5e-1; the largest of up to 4 layers a column)"
    )
    name, blocks = spark(text)[2].split()
    assert name == "h.0-149" and len(blocks) == 60 - 2 - len(name) - 2
    assert blocks.index("█") == 100 * len(blocks) // 150 and blocks.count("█") == 1


def test_equal_runs_have_no_line(runs, tmp_path):
    assert "error by layer" not in on_terminal(80, "compare", runs[0], runs[0], "-o", tmp_path)


# ---- names ----


@pytest.mark.parametrize("width", WIDTHS)
def test_names_of_other_alphabets_are_cut_between_characters(tmp_path, width):
    stack = "模型.编码器." + "层" * 30
    golden, mine = (write_layers(tmp_path / side, bad, stack) for side, bad in (("g", LAYERS), ("m", FIRST_BAD)))
    for words in (["compare", golden, mine, "-o", tmp_path], ["show", golden], ["show", mine, "--list"]):
        text = on_terminal(width, *words)
        assert "\ufffd" not in text
        assert_fits(text, width)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_name_of_500_characters_fits(tmp_path, width):
    golden, mine = (write_layers(tmp_path / side, bad, "x" * 500) for side, bad in (("g", LAYERS), ("m", FIRST_BAD)))
    assert_fits(on_terminal(width, "compare", golden, mine, "-o", tmp_path), width)
    assert_fits(on_terminal(width, "show", golden), width)
