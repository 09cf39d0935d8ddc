# SPDX-License-Identifier: Apache-2.0
"""`assay gate` on a twin of six layers, beside the two programs alone and what people write instead.

    python -m bench.gate_speed save TWIN DTYPE FILE [wrong]   the program: all prompts of a twin; logits into FILE
    python -m bench.gate_speed allclose GOLDEN MINE           rival: the two files, torch.allclose with 1e-2

The program is the same as `python -m assay.twin run`, but for the file; `wrong` makes one norm 1 % too large. The floor
of a gate is golden's and mine's program without capture, one after the other.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Optional

from bench.compare_speed import find_assay
from bench.locate_speed import Command
from bench.measure import load_average, machine, median, shuffled
from bench.report import FAILED, NOT_AVAILABLE, Row, Section

COLUMNS = ["", "s", "IQR", "CPU s", "resident MB", "of floor", "of floor, CPU", "found", "goal", "met"]
GOAL_SECONDS = 60
LAYERS = 6
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}


def save(folder: str, dtype: str, file: str, fault: str = "") -> None:
    """Runs all prompts of the twin and saves the logits."""
    import torch

    from assay import twin

    with twin.quiet():
        model = twin.load(folder, dtype=dtype)
        if fault:
            model.get_submodule(f"model.layers.{LAYERS // 2}.post_attention_layernorm").weight.data *= 1.01
        torch.save(twin.run(model, folder), file)


def allclose(golden: str, mine: str) -> None:
    """Ends with status 1 when the logits differ by more than 1e-2, absolutely and relatively."""
    import torch

    theirs, ours = torch.load(golden), torch.load(mine)
    same = all(torch.allclose(ours[name].float(), theirs[name], rtol=1e-2, atol=1e-2) for name in theirs)
    print("same" if same else "differs")
    sys.exit(0 if same else 1)


def make_twin(folder: Path) -> None:
    """A shaped twin of six layers with all its prompts."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    words = ["-m", "assay.twin", "make", folder / "config.json", "-o", folder / "tiny", "--layers", str(LAYERS)]
    subprocess.run([sys.executable, *words], check=True, capture_output=True)


def commands_of(folder: Path, assay: str) -> dict[str, Command]:
    """Every command, by what it is."""
    twin = str(folder / "tiny")
    child = [sys.executable, "-m", "bench.gate_speed"]
    save_words = [*child, "save", twin]

    def gate(fault: str) -> list[str]:
        mine = " ".join([*child, "save", "{twin}", "bfloat16", str(folder / "mine.pt"), fault]).strip()
        return [assay, "gate", twin, "--mine", mine, "--format", "json"]

    return {
        "golden": Command("golden's program alone", [*save_words, "float32", str(folder / "golden.pt")]),
        "mine": Command("mine's program alone", [*save_words, "bfloat16", str(folder / "port.pt")]),
        "wrong alone": Command(
            "mine's wrong program alone", [*save_words, "bfloat16", str(folder / "bad.pt"), "wrong"]
        ),
        "healthy": Command("assay gate, healthy", gate("")),
        "wrong": Command("assay gate, one norm 1 % too large", gate("wrong"), accepted=(1,)),
        "rival": Command(
            "rival: torch.allclose alone, healthy",
            [*child, "allclose", str(folder / "golden.pt"), str(folder / "port.pt")],
            accepted=(0, 1),
        ),
        "rival, wrong": Command(
            "rival: torch.allclose alone, the same fault",
            [*child, "allclose", str(folder / "golden.pt"), str(folder / "bad.pt")],
            accepted=(0, 1),
        ),
    }


def row_of(command: Command, floor: tuple[float, float]) -> Row:
    """The row in seconds, with its share of the floor (wall, CPU) where the command runs both programs."""
    row = command.row()
    if row.status == FAILED:
        return row
    for column in ("ms", "IQR", "CPU ms"):
        row.cells[column.replace("ms", "s")] = f"{float(row.cells.pop(column)) / 1e3:.1f}"
    if command.name.startswith("assay gate"):
        seconds = median(command.wall)
        row.cells["of floor"] = f"{seconds / floor[0]:.2f}"
        row.cells["of floor, CPU"] = f"{median(command.cpu) / floor[1]:.2f}"
        row.judge(f"{seconds:.1f} s", f"{GOAL_SECONDS} s", seconds <= GOAL_SECONDS)
    return row


def phases_of(outcome: dict[str, Any]) -> str:
    """ "golden, operators 4.1 s, mine, operators 3.9 s, verdict 0.8 s"."""
    return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in outcome["gate"]["seconds"].items())


def measure(folder: Path, assay: str, repetitions: int) -> tuple[list[Row], list[str]]:
    """Runs everything; returns the rows and a note for each gate."""
    make_twin(folder)
    commands = commands_of(folder, assay)
    found: dict[str, str] = {}
    notes = []
    generator = random.Random(20261126)
    for turn in range(1 + repetitions):
        order = ["golden", "mine", "wrong alone", *shuffled(["healthy", "wrong", "rival", "rival, wrong"], generator)]
        for key in order:
            command = commands[key]
            if command.failed:
                continue
            command.run(folder, counts=turn > 0)
            output = (folder / "stdout.txt").read_text()
            if key in ("healthy", "wrong") and not command.failed:
                outcome = json.loads(output)
                bad = outcome["first_bad"]
                found[key] = "clean" if bad is None else bad["module"]
                if turn == repetitions:
                    notes.append(f"{command.name}: {phases_of(outcome)}.")
            elif key.startswith("rival") and not command.failed:
                found[key] = output.strip()
    programs = [commands["golden"], commands["mine"]]
    floor = sum(median(one.wall) for one in programs), sum(median(one.cpu) for one in programs)
    rows = [row_of(command, floor) for command in commands.values()]
    for row, key in zip(rows, commands):
        row.cells["found"] = found.get(key, "")
    return rows, notes


def run(build: Path, quick: bool, given: Optional[str]) -> Section:
    """Makes the twin below `build`/work, times the commands and removes everything."""
    section = Section("gate", "A gate: two programs captured and judged", COLUMNS, machine=machine())
    before = load_average()
    root = Path(__file__).parent.parent
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    os.environ.setdefault("ASSAY_PYTHON", sys.executable)
    work = (build / "work" / f"gate-{os.getpid()}").resolve()
    work.mkdir(parents=True)
    assay = find_assay(given)
    kept = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = tempfile.mkdtemp(dir=work)  # what gates keep goes, too
    try:
        if assay:
            section.rows, notes = measure(work, assay, 1 if quick else 5)
            section.notes += notes
        else:
            section.rows.append(Row("assay gate", status=NOT_AVAILABLE, reason="no `assay` command is installed"))
    finally:
        shutil.rmtree(work, ignore_errors=True)
        os.environ.pop("TMPDIR")
        if kept is not None:
            os.environ["TMPDIR"] = kept
    section.load = (before, load_average())
    section.notes += [
        f"A shaped twin of {LAYERS} layers of Llama, prompts from position 0, 300 and 16 000 on and with padding; "
        "golden in float32, mine in bfloat16. Floor: golden's and mine's programs alone, one after the other, each "
        "with its imports. The gate captures both with their operators.",
        "Rival: the logits that the same two programs saved, and `torch.allclose` with rtol and atol of 1e-2; its time "
        "is without the two programs. Whole commands from fork to exit, order alternated at random, medians.",
    ]
    return section


if __name__ == "__main__":
    {"save": save, "allclose": allclose}[sys.argv[1]](*sys.argv[2:])
