# SPDX-License-Identifier: Apache-2.0
"""`assay compare -alg FILE.py:FUNC`: functions of the user in a helper process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from assay_command import binary, read_csv, run, the_report, write_torch_tree
from safetensors.torch import save_file


@pytest.fixture(autouse=True)
def this_python(monkeypatch):
    monkeypatch.setenv("ASSAY_PYTHON", sys.executable)


@pytest.fixture
def sides(tmp_path):
    """Two folders of arrays a and b."""
    random = np.random.default_rng(0)
    for side in ("g", "m"):
        (tmp_path / side).mkdir()
    arrays = {"a": random.normal(size=(4, 5)).astype(np.float32), "b": random.normal(size=7).astype(np.float16)}
    for name, array in arrays.items():
        np.save(tmp_path / "g" / f"{name}.npy", array)
        np.save(tmp_path / "m" / f"{name}.npy", (array + 0.25).astype(array.dtype))
    return tmp_path / "g", tmp_path / "m"


def functions(tmp_path, code, *names):
    file = tmp_path / "user_metrics.py"
    file.write_text(code)
    return [f"{file}:{name}" for name in names]


def rows_of(tmp_path, sides, *specs):
    done = run("compare", *sides, "-o", tmp_path / "out", "-alg", *specs)
    assert done.returncode == 0, done.stderr
    return {row["my_data_path"].rsplit("/", 1)[1]: row for row in read_csv(the_report(tmp_path / "out"))}


def error_of(sides, *specs):
    done = run("compare", *sides, "-o", "never", "-alg", *specs)
    assert done.returncode == 2
    assert not os.path.exists("never")
    return done.stderr


NUMPY = """
import numpy as np

def largest(golden, my):
    assert golden.dtype == np.float32 and golden.ndim == 1
    return float(np.abs(my - golden).max()), ""

def count(golden, my):
    return golden.size, f"saw {golden.size} values"

def word(golden, my):
    return "=ok", ""
"""


def test_values_get_columns_after_the_reason_and_texts_join_it(tmp_path, sides):
    rows = rows_of(tmp_path, sides, *functions(tmp_path, NUMPY, "largest", "count", "word"))
    columns = list(rows["a.npy"])
    place = columns.index("cmp_fail_reason")
    assert columns[place + 1 : place + 4] == ["largest", "count", "word"]
    assert float(rows["a.npy"]["largest"]) == pytest.approx(0.25, abs=1e-6)
    assert [rows[name]["count"] for name in ("a.npy", "b.npy")] == ["20", "7"]
    assert rows["b.npy"]["cmp_fail_reason"] == "saw 7 values"
    assert rows["a.npy"]["word"] == "'=ok"


@pytest.mark.parametrize(
    "code",
    [
        # The original's own way: the module imports torch.
        "import torch\ndef f(golden, my):\n    return (my - golden).abs().max().item(), str(type(golden).__name__)\n",
        # No import: NumPy arrays have no max(dim=...), so the trial call says torch.
        "def f(golden, my):\n    return (my - golden).abs().max(dim=0).values.item(), str(type(golden).__name__)\n",
        "def f(golden: 'torch.Tensor', my: 'torch.Tensor'):\n    return (my - golden).abs().max().item(), 'Tensor'\n",
    ],
    ids=["import", "trial", "annotation"],
)
def test_functions_that_want_torch_get_tensors(tmp_path, sides, code):
    rows = rows_of(tmp_path, sides, *functions(tmp_path, code, "f"))
    assert float(rows["a.npy"]["f"]) == pytest.approx(0.25, abs=1e-6)
    assert rows["a.npy"]["cmp_fail_reason"] == "Tensor"


def test_bfloat16_arrives_as_float32(tmp_path):
    sides = tmp_path / "g", tmp_path / "m"
    for side, value in zip(sides, (1.5, 2.5)):
        side.mkdir()
        save_file({"x": torch.full((3,), value, dtype=torch.bfloat16)}, side / "x.safetensors")
    code = "def f(golden, my):\n    return str(golden.tolist() + my.tolist()), ''\n"
    done = run("compare", *sides, "-o", tmp_path / "out", "-alg", *functions(tmp_path, code, "f"))
    assert done.returncode == 0, done.stderr
    assert read_csv(the_report(tmp_path / "out"))[0]["f"] == "[1.5, 1.5, 1.5, 2.5, 2.5, 2.5]"


def test_weights_have_the_columns_too(tmp_path):
    sides = tmp_path / "g", tmp_path / "m"
    for side in sides:
        side.mkdir()
    save_file({"a.weight": torch.tensor([4.0, -2.0])}, sides[0] / "m.safetensors")
    quantised = {"a.weight": torch.tensor([10, -3], dtype=torch.int8), "a.weight_scale": torch.tensor([0.5])}
    save_file(quantised, sides[1] / "m.safetensors")
    rows = run(
        "compare", "-w", "-gp", sides[0], "-mp", sides[1], "-o", tmp_path / "out", "-alg",
        *functions(tmp_path, NUMPY, "largest"),
    )  # fmt: skip
    assert rows.returncode == 0, rows.stderr
    assert float(read_csv(the_report(tmp_path / "out"))[0]["largest"]) == 1.0


def test_a_torch_tree_has_the_columns_in_every_sheet(tmp_path):
    golden = write_torch_tree(tmp_path / "g")
    mine = write_torch_tree(tmp_path / "m", change=lambda name, tensor: tensor + 1, pid=2)
    done = run(
        "compare", golden, mine, "-o", tmp_path / "out", "-cl", "layer", "-alg",
        *functions(tmp_path, NUMPY, "largest"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = read_csv(the_report(tmp_path / "out"))
    assert rows and all(float(row["largest"]) == pytest.approx(1, abs=1e-6) for row in rows)


def test_the_old_command_logs_what_it_added(tmp_path, sides):
    done = run(
        "llm", "compare", "-gp", sides[0] / "a.npy", "-mp", sides[1] / "a.npy", "-o", tmp_path / "out", "-alg",
        *functions(tmp_path, NUMPY, "largest"), name="msit",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Added custom comparing algorithm: largest" in done.stderr
    assert "'largest': 0.25" in done.stderr


# ---- the original's refusals ----


def test_wrong_specifications(tmp_path, sides):
    form = "custom_compare_algorithm should be in format '{python_file_path}:{function_name}'"
    assert form in error_of(sides, "metrics.py")
    assert form in error_of(sides, "a:b:c")
    assert "nowhere.py not exists" in error_of(sides, "nowhere.py:f")


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("1 / 0", "import user_metrics from {folder} failed"),
        ("import sys; sys.exit(3)", "import user_metrics from {folder} failed"),
        ("g = 1", "getting f from {folder}/user_metrics.py:f failed"),
        ("def f(a, b, c): return 0, ''", "function f signature should have exact two parameters"),
        ("f = 3", "function f signature should have exact two parameters"),
        ("def f(a, b): return a.nothing", "function f should recieve 2 torch tensor parameters"),
        ("def f(a, b): return 0.5", "function f should return 2 value in type ((float, int, str), str)"),
        ("def f(a, b): return (), ''", "function f should return 2 value in type ((float, int, str), str)"),
    ],
)
def test_functions_that_cannot_be_used(tmp_path, sides, code, sentence):
    stderr = error_of(sides, *functions(tmp_path, code + "\n", "f"))
    assert sentence.format(folder=tmp_path) in stderr
    # The reason in the user's own code is shown as Python shows it.
    assert ("Traceback" in stderr) == ("import" in sentence or "recieve" in sentence)


def test_a_python_without_numpy_is_refused(tmp_path, sides, monkeypatch):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setenv("ASSAY_PYTHON", str(bare))
    assert "has no numpy" in error_of(sides, *functions(tmp_path, NUMPY, "largest"))
    monkeypatch.setenv("ASSAY_PYTHON", str(tmp_path / "nothing"))
    assert "name one in ASSAY_PYTHON" in error_of(sides, *functions(tmp_path, NUMPY, "largest"))


# ---- what goes wrong later ----


def test_an_exception_costs_one_value(tmp_path, sides):
    code = "def f(golden, my):\n    if golden.size == 7: raise ValueError('seven')\n    return 1, ''\n"
    rows = rows_of(tmp_path, sides, *functions(tmp_path, code, "f"))
    assert (rows["a.npy"]["f"], rows["b.npy"]["f"]) == ("1", "")
    assert rows["b.npy"]["cmp_fail_reason"] == "f: ValueError: seven"
    assert rows["b.npy"]["cosine_similarity"] != ""


def test_a_function_that_kills_its_process_costs_one_value(tmp_path, sides):
    code = (
        "import os, signal\n"
        "def f(golden, my):\n"
        "    if golden.size == 7: os.kill(os.getpid(), signal.SIGSEGV)\n"
        "    return 1, ''\n"
    )
    rows = rows_of(tmp_path, sides, *functions(tmp_path, code, "f"))
    assert (rows["a.npy"]["f"], rows["b.npy"]["f"]) == ("1", "")
    assert rows["b.npy"]["cmp_fail_reason"] == "f: the Python process ended with signal 11."


def test_a_function_that_hangs_costs_one_value(tmp_path, sides, monkeypatch):
    monkeypatch.setenv("ASSAY_ALGORITHM_TIMEOUT", "5")
    code = "import time\ndef f(golden, my):\n    while golden.size == 7: time.sleep(9)\n    return 1, ''\n"
    rows = rows_of(tmp_path, sides, *functions(tmp_path, code, "f"))
    assert (rows["a.npy"]["f"], rows["b.npy"]["f"]) == ("1", "")
    assert rows["b.npy"]["cmp_fail_reason"] == "f: gave no answer within 5 s, its Python process was ended."


def test_what_functions_print_does_not_reach_the_report(tmp_path, sides):
    code = "import os\ndef f(golden, my):\n    print('from Python'); os.write(1, b'from C\\n')\n    return 1, ''\n"
    done = run("compare", *sides, "-o", tmp_path / "out", "-alg", *functions(tmp_path, code, "f"))
    assert "from Python" in done.stderr and "from C" in done.stderr
    assert "from" not in done.stdout.replace(str(tmp_path), "")


def test_a_module_named_like_one_of_python_is_found(tmp_path, sides):
    (tmp_path / "json.py").write_text(
        "import helper_of_mine\ndef f(golden, my):\n    return helper_of_mine.VALUE, ''\n"
    )
    (tmp_path / "helper_of_mine.py").write_text("VALUE = 42\n")
    assert rows_of(tmp_path, sides, f"{tmp_path}/json.py:f")["a.npy"]["f"] == "42"


def test_functions_see_each_pair_although_they_keep_the_arrays(tmp_path, sides):
    code = (
        "kept = []\n"
        "def f(golden, my):\n"
        "    kept.append((golden, my))\n"
        "    my[:] = 0\n"
        "    return sum(g.size for g, m in kept if (m == 0).all()), ''\n"
        "def g(golden, my):\n"
        "    return float(abs(my - golden).max()), ''\n"
    )
    rows = rows_of(tmp_path, sides, *functions(tmp_path, code, "f", "g"))
    assert {row["f"] for row in rows.values()} <= {"20", "21", "8", "27", "28"}
    assert float(rows["a.npy"]["g"]) == pytest.approx(0.25, abs=1e-6)


def test_the_helper_ends_with_the_command(tmp_path, sides):
    note = tmp_path / "pid"
    code = (
        "import os, time\n"
        "def f(golden, my):\n"
        "    if golden.size > 1:\n"
        f"        open({str(note)!r} + '.part', 'w').write(str(os.getpid()))\n"
        f"        os.rename({str(note)!r} + '.part', {str(note)!r})\n"
        "        while True: time.sleep(0.1)\n"
        "    return 1, ''\n"
    )
    specs = functions(tmp_path, code, "f")
    command = subprocess.Popen(
        [binary(), "compare", *map(str, sides), "-o", str(tmp_path / "out"), "-alg", *specs],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not note.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    command.send_signal(signal.SIGKILL)
    command.wait()
    helper = int(note.read_text())
    while True:
        try:
            os.kill(helper, 0)
            state = Path(f"/proc/{helper}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            break
        if state == "Z":  # nobody here to collect it
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_large_tensors_are_mapped_not_sent(tmp_path):
    sides = tmp_path / "g", tmp_path / "m"
    for side, value in zip(sides, (1, 2)):
        side.mkdir()
        np.save(side / "x.npy", np.full(20_000_000, value, np.float16))
    code = "def f(golden, my):\n    return float((my - golden).sum(dtype='f8')), ''\n"
    done = run("compare", *sides, "-o", tmp_path / "out", "-alg", *functions(tmp_path, code, "f"))
    assert done.returncode == 0, done.stderr
    assert float(read_csv(the_report(tmp_path / "out"))[0]["f"]) == 20_000_000
