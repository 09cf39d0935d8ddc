# SPDX-License-Identifier: Apache-2.0
"""`assay repeat -- python run.py`: programs that compute the same bits each time, and programs that do not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import warm_python
from assay_command import run
from test_answers import refusal, validator

import assay

ROOT = Path(__file__).parents[2]
CHAT = ROOT / "examples" / "ggml" / "chat.py"
CPU_FLAGS = {"avx2", "fma", "f16c", "bmi2"}  # what the wheel is compiled for

# Counts its own runs in a file. Which of them go wrong, and how, the words behind it say.
PROGRAM = """
import sys, warnings, torch
from pathlib import Path
warnings.simplefilter("ignore")
counter, fault, *wrong = sys.argv[1:]
number = int(Path(counter).read_text()) if Path(counter).exists() else 0
Path(counter).write_text(str(number + 1))
is_wrong = str(number) in wrong
if fault == "failing" and is_wrong:
    raise SystemExit(5)
if fault != "weights":
    torch.manual_seed(0)

def mul(a, b):
    out = torch.empty_like(a)
    torch.mul(a, b, out=out)
    if is_wrong:
        out[1, 3] += 0.5
    return out

if fault == "race":
    library = torch.library.Library("aten", "IMPL")
    library.impl("mul.Tensor", mul, "CPU")

class Gate(torch.nn.Module):
    def forward(self, x):
        return x * x

with torch.no_grad():
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), Gate(), torch.nn.Linear(8, 2))
    print("computed", net(torch.ones(2, 8)).shape)
"""


@pytest.fixture
def repeat(tmp_path):
    """Runs the command on the program with the words behind it, in a folder of its own."""
    script = tmp_path / "run.py"
    script.write_text(PROGRAM)

    def call(words: list, *program: object):
        counter = tmp_path / "counter"
        counter.unlink(missing_ok=True)
        return run(
            "repeat", "--host", "torch", *words, "--", warm_python.python(), script, counter, *program, cwd=tmp_path
        )

    return call


def next_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("next: ")]


def test_a_program_that_repeats_leaves_nothing_and_ends_with_0(repeat, tmp_path):
    done = repeat(["-n", "3"], "none")
    assert done.returncode == 0, done.stderr
    # t, addmm, mul, t, addmm
    assert done.stdout.startswith("repeats: 3 runs are equal bit for bit: 5 operators in 1 step\n")
    assert len(next_lines(done.stdout)) == 1
    assert done.stderr.count("computed") == 3  # what the program prints is not mixed with the result
    assert {path.name for path in tmp_path.iterdir()} == {"run.py", "counter"}


@pytest.mark.slow
def test_a_race_is_named_with_its_runs_its_element_and_how_wrong_it_is(repeat, tmp_path):
    # Run 1 of 0 to 2; of those that keep values the third, which is run 5 of all.
    done = repeat(["-n", "3", "-o", "runs", "--json"], "race", 1, 5)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    validator("repeat").validate(found)
    assert (found["outcome"], found["exit_status"]) == ("differs", 1)
    assert (found["first"]["module"], found["first"]["operator"]) == ("1", "aten.mul.Tensor")
    assert found["first"]["runs"] == [1]
    assert found["elements"]["kind"] == "wrong element"
    assert (found["elements"]["different"], found["elements"]["place"]) == (1, "[1, 3]")
    kept = {path.name for path in (tmp_path / "runs").iterdir()}
    assert kept == {"run-0", "run-1", "values-0", "values-2"}
    assert found["next"] == "assay compare runs/values-0 runs/values-2"
    compared = run("compare", "runs/values-0", "runs/values-2", cwd=tmp_path)
    assert compared.returncode == 1 and "aten.mul.Tensor" in compared.stdout


@pytest.mark.slow
def test_a_race_that_does_not_come_again_is_told_all_the_same(repeat):
    done = repeat(["-n", "2"], "race", 1)
    assert done.returncode == 1
    assert "its inputs are equal bit for bit, its output is not, in run 1" in done.stdout.replace("\n  ", " ")
    assert "values: it did not differ again in 3 runs that kept them" in done.stdout.replace("\n  ", " ")


@pytest.mark.slow
def test_until_different_stops_at_the_first_run_that_differs(repeat):
    done = repeat(["--until-different", "-n", "2"], "race", 3)
    assert done.returncode == 1
    assert done.stderr.count("run-") == 3  # runs 1 to 3 are held against run 0


@pytest.mark.slow
def test_until_different_gives_up(repeat):
    done = repeat(["--until-different", "--most", "3"], "none")
    assert (done.returncode, done.stderr.count("computed")) == (0, 3)


@pytest.mark.slow
def test_weights_made_without_a_seed_are_told_and_the_next_command_repeats(repeat, tmp_path):
    done = repeat(["-n", "2"], "weights")
    assert done.returncode == 1
    assert "the weight 0.weight is another one from the start" in done.stdout.replace("\n  ", " ")
    (following,) = next_lines(done.stdout)
    words = following.removeprefix("next: assay ").split()
    assert words[:2] == ["repeat", "-seed"]
    elsewhere = tmp_path / "elsewhere"  # the folder of runs is named after the second, and the first one was kept
    elsewhere.mkdir()
    again = run(*words[:2], "--host", "torch", "-n", "2", *words[2:], cwd=elsewhere)
    assert again.returncode == 0, again.stdout


@pytest.mark.slow
def test_threads_are_varied_and_each_number_has_its_own_first_run(repeat):
    done = repeat(["-n", "2", "--threads", "1,2", "--json"], "none")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    validator("repeat").validate(found)
    assert (found["outcome"], found["exit_status"]) == ("repeats", 0)
    assert [(group["threads"], group["runs"]) for group in found["threads"]] == [(1, 2), (2, 2)]
    assert found["runs"] == 4


@pytest.mark.slow
def test_what_depends_on_the_number_of_threads_is_listed_and_a_failure_when_asked(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(
        "import os, torch\n"
        "threads = float(os.environ['OMP_NUM_THREADS'])\n"
        "def neg(a):\n"
        "    return torch.mul(a, -threads)\n"
        "library = torch.library.Library('aten', 'IMPL')\n"
        "library.impl('neg', neg, 'CPU')\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return -x\n"
        "Net()(torch.ones(3))\n"
    )
    words = ["repeat", "--host", "torch", "-n", "2", "--threads", "1,2", "-o"]
    done = run(*words, tmp_path / "a", "--", warm_python.python(), script)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.replace("\n  ", " ")
    assert "depends on the number of threads, 2 against 1: Net aten.neg.default (operator): 1 place" in lines
    asked = run(*words, tmp_path / "b", "--threads-must-agree", "--json", "--", warm_python.python(), script)
    assert asked.returncode == 1
    found = json.loads(asked.stdout)
    validator("repeat").validate(found)
    assert (found["outcome"], found["exit_status"]) == ("depends_on_threads", 1)


@pytest.mark.parametrize(
    ("words", "program", "said"),
    [
        (["-n", "2"], ("failing", 1), "cannot judge: the program ended with status 5"),
        (["-n", "2", "--steps", "7"], ("none",), "cannot judge: no operator with a digest was captured"),
    ],
)
def test_a_program_that_fails_or_is_not_captured_cannot_be_judged(repeat, tmp_path, words, program, said):
    done = repeat(words, *program)
    assert done.returncode == 125
    assert done.stdout.startswith(said)
    assert len(next_lines(done.stdout)) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"run.py", "counter"}


def test_a_program_that_cannot_be_judged_is_one_object(tmp_path):
    done = run("repeat", "--json", "--", "false", cwd=tmp_path)
    answer = json.loads(done.stdout)
    validator("repeat").validate(answer)
    assert (answer["outcome"], answer["exit_status"], done.returncode) == ("cannot_judge", 125, 125)
    assert answer["next"] == "assay dump -o dump -- false"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-n", "1", "--", "true"], "expected a whole number from 2"),
        (["--threads", "0", "--", "true"], "expected a whole number from 1"),
        (["--steps", "x", "--", "true"], "is no list of steps"),
        (["-o", ".", "--", "true"], "is there already"),
        ([], "no program was given"),
    ],
)
def test_wrong_options_end_with_2(tmp_path, words, said):
    assert said in refusal("repeat", *words, cwd=tmp_path)


# ---- llama.cpp -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gguf(tmp_path_factory) -> Path:
    pytest.importorskip("xllamacpp")
    if not set(Path("/proc/cpuinfo").read_text().split()) >= CPU_FLAGS:
        pytest.skip("the wheel needs AVX2, FMA, F16C and BMI2")
    sys.path.insert(0, str(ROOT / "tests" / "ggml"))
    import tiny_llama

    return tiny_llama.write_models(tmp_path_factory.mktemp("model"), types=("f32",))["f32"]


def test_llama_cpp_repeats_with_one_and_two_threads(gguf, tmp_path):
    command = [sys.executable, CHAT, gguf, "--tokens", "2", "--threads", "{threads}"]
    done = run("repeat", "-n", "3", "--threads", "1,2", "--json", "--", *command, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    found = json.loads(done.stdout)
    assert found["runs"] == 6 and found["operators"] > 100
    assert found["operators_without_digest"] == 0


def test_another_prompt_of_llama_cpp_is_another_input_and_no_node_is_accused(gguf, tmp_path):
    script = tmp_path / "run.py"
    script.write_text(
        "import runpy, sys\nfrom pathlib import Path\n"
        "counter = Path('counter')\n"
        "number = int(counter.read_text()) if counter.exists() else 0\n"
        "counter.write_text(str(number + 1))\n"
        "sys.argv = ['chat.py', sys.argv[2], '--prompt', f'1,50,{60 + number}', '--tokens', '1']\n"
        f"runpy.run_path({str(CHAT)!r}, run_name='__main__')\n"
    )
    done = run("repeat", "-n", "2", "--json", "--", sys.executable, script, "--", gguf, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert {one["cause"] for one in found["findings"]} == {"input"}
    assert found["first"]["operator"] == "ggml.get_rows"


# ---- digests ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_digests_stand_in_for_the_data(tmp_path, repeat):
    script = tmp_path / "run.py"
    words = ["--host", "torch", "--level", "operator", "--digest", "--", warm_python.python(), script]
    for folder, more in (("digests", ["-sd"]), ("data", [])):
        done = run("dump", "-o", tmp_path / folder, *more, *words, tmp_path / "counter", "none")
        assert done.returncode == 0, done.stderr
    digests = assay.open(str(tmp_path / "digests")).records
    data = assay.open(str(tmp_path / "data")).records
    assert not list((tmp_path / "digests" / "rank0").glob("*.safetensors"))
    assert len(digests) == len(data) > 10
    for known, record in zip(digests, data):
        assert known.digest == assay.digest(record.numpy())
