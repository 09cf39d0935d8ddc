# SPDX-License-Identifier: Apache-2.0
"""`assay gate`: statuses, sentences, the command that goes on, every format with a reader of its own, what is left."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import warm_python
from assay_command import binary, run
from test_answers import validator

# Logits of 64 tokens for two prompts; `kind` says what is wrong with it.
PROGRAM = r"""
import os, sys, torch
torch.manual_seed(0)
kind = sys.argv[1]
twin = os.environ.get("ASSAY_TWIN")

class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(1 + 0.1 * torch.randn(32))

    def forward(self, x):
        return x * self.weight

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        vocabulary = 96 if kind == "vocabulary" else 48 if kind == "fewer" else 64
        self.embed = torch.nn.Embedding(vocabulary, 32)
        self.norm = Norm()
        if kind == "hostile":
            self.add_module("evil<&\"'\n::error::]]>\x1b\ufffe", self.norm)
            del self.norm
        self.lm_head = torch.nn.Linear(32, vocabulary)

    def forward(self, input_ids):
        norm = next(m for m in self.modules() if isinstance(m, Norm))
        return self.lm_head(norm(self.embed(input_ids)))

model = Model().eval()
print("on standard output", kind)
print("on standard error", kind, file=sys.stderr)
if kind == "failing":
    print("the last words of", kind, file=sys.stderr)
    sys.exit(3)
if kind == "silent":
    sys.exit(0)
if kind == "twin":
    assert open(sys.argv[2] + "/twin.json").read() == "{}" and twin == sys.argv[2], (sys.argv, twin)
if kind == "sleeping":
    open(sys.argv[2], "w").close()
    import time
    time.sleep(60)
with torch.no_grad():
    if kind in ("wrong", "hostile"):
        next(m for m in model.modules() if isinstance(m, Norm)).weight *= 1.03
    if kind != "golden":
        model = model.bfloat16()
    prompt = torch.arange(40)[None]
    for step in range(2):
        model(prompt + step + (kind == "prompt"))
if kind == "leaving":
    os._exit(0)
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    (folder / "program.py").write_text(PROGRAM)
    return folder


def command(kind: str, *more: str) -> str:
    python = sys.executable if kind in ("sleeping", "leaving") else warm_python.python()
    return " ".join([python, "program.py", kind, *more])


@pytest.fixture(scope="module")
def golden(programs) -> Path:
    """A golden run, so that only mine has to be captured."""
    path = programs / "golden-run"
    done = run(
        "dump", "--level", "operator", "--steps", "all", "-o", path, "--", *command("golden").split(), cwd=programs
    )
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    """The system's temporary folder of this test, so that it can be seen what is left in it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def left_in(temporary: Path) -> list[str]:
    return sorted(path.name for path in temporary.glob("assay-*"))


def gate(programs, *words, **options):
    return run("gate", *words, cwd=programs, **options)


def next_of(text: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith("next: ")]
    assert text.splitlines()[-1] == line
    return line.removeprefix("next: ")


def sentence_of(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines()[:-1])


def test_clean_is_one_sentence_and_leaves_nothing(programs, golden, temporary):
    done = gate(programs, golden, "--mine", command("healthy"))
    assert done.returncode == 0, done
    assert sentence_of(done.stdout).startswith("clean: all "), done.stdout
    assert "operators are exact to rounding" in sentence_of(done.stdout)
    assert next_of(done.stdout) == shlex.join(["assay", "gate", str(golden), "--mine", command("healthy")]) + " --why"
    assert left_in(temporary) == []
    # What the programs print is not our result.
    assert "on standard output healthy" in done.stderr
    assert "on standard error healthy" in done.stderr
    phases = [line.split(": ")[1] for line in done.stderr.splitlines() if line.startswith("gate: ")]
    assert phases == ["mine, operators", "verdict"]


def test_modules_alone_are_enough_on_request(programs, golden):
    words = [golden, "--mine", command("healthy"), "--level", "module"]
    done = gate(programs, *words, "--why")
    assert done.returncode == 0, done
    # Not what was just asked, but with what decides the verdict.
    assert shlex.split(next_of(done.stdout)) == ["assay", "gate", *map(str, words), "--html", "page.html"]
    done = gate(programs, *words)
    assert sentence_of(done.stdout).startswith("clean: 16 captured values of mine are golden's function"), done.stdout
    phases = [line.split(": ")[1] for line in done.stderr.splitlines() if line.startswith("gate: ")]
    assert phases == ["mine, modules", "verdict"]


def test_a_wrong_module_is_captured_again_with_operators_and_kept(programs, golden, temporary):
    done = gate(programs, golden, "--mine", command("wrong"), "--level", "module")
    assert done.returncode == 1, done
    assert sentence_of(done.stdout).startswith("first bad: norm (Norm: aten.mul.Tensor, step 0): weight differs")
    (folder,) = left_in(temporary)
    run_under_test = temporary / folder / "mine-operators"
    following = shlex.split(next_of(done.stdout))
    assert following[:3] == ["assay", "show", str(run_under_test)]
    shown = run(*following[1:])
    assert shown.returncode == 0
    assert "aten.mul.Tensor" in shown.stdout


def test_two_commands_are_both_captured(programs, temporary):
    done = gate(programs, "--golden", command("golden"), "--mine", command("healthy"), "-o", "kept")
    assert done.returncode == 0, done
    assert {path.name for path in (programs / "kept").iterdir()} == {"golden", "mine"}
    assert next_of(done.stdout) == "assay locate kept/golden kept/mine --why"
    assert run(*shlex.split(next_of(done.stdout))[1:], cwd=programs).returncode == 0
    again = gate(programs, "--golden", command("golden"), "--mine", command("healthy"), "-o", "kept")
    assert (again.returncode, again.stdout) == (2, "")
    assert "kept/golden: is there already" in again.stderr
    assert {path.name for path in (programs / "kept").iterdir()} == {"golden", "mine"}


def test_a_twin_stands_in_commands_and_environment(programs, tmp_path, temporary):
    twin = tmp_path / "a twin's {gguf} $(touch no)"
    twin.mkdir()
    (twin / "twin.json").write_text("{}")
    done = gate(programs, twin, "--golden", command("golden"), "--mine", command("twin", "{twin}"))
    assert done.returncode == 0, done.stderr
    missing = gate(programs, twin, "--golden", command("golden"), "--mine", command("healthy", "{gguf}"))
    assert missing.returncode == 2
    assert "has no model.gguf, which {gguf} stands for" in missing.stderr


CANNOT = {
    "failing": ("the program of mine ended with status 3", "program.py failing"),
    "silent": (
        "nothing was captured of mine; is the program one that computes with PyTorch or ggml?",
        "assay help own-host",
    ),
    "prompt": ("mine was not given what golden was: ", "assay compare "),
}


@pytest.mark.parametrize("kind", CANNOT)
def test_what_cannot_be_judged_is_125(programs, golden, temporary, kind):
    sentence, following = CANNOT[kind]
    done = gate(programs, golden, "--mine", command(kind), "--level", "module")
    assert done.returncode == 125, done
    assert sentence_of(done.stdout).startswith("cannot judge: ")
    assert sentence in sentence_of(done.stdout)
    assert following in next_of(done.stdout)
    assert "mine, operators" not in done.stderr  # operators would tell nothing more
    assert len(left_in(temporary)) == (kind == "prompt")
    if kind == "failing":
        assert "the last words of failing" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["vocabulary", "fewer"])
def test_another_vocabulary_cannot_be_judged(programs, golden, temporary, kind):
    done = gate(programs, golden, "--mine", command(kind))
    assert done.returncode == 125, done
    assert "cannot judge: " in done.stdout


def test_a_program_that_is_none_is_said_before_anything_runs(programs, golden, temporary):
    done = gate(programs, golden, "--mine", "./no-such-program --now")
    assert done.returncode == 125
    assert "the program of mine is none, there is no file to run named ./no-such-program" in sentence_of(done.stdout)
    assert left_in(temporary) == []


USAGE = {
    "no mine": (["GOLDEN"], '--mine "COMMAND" is missing'),
    "no golden": (["--mine", "true"], "what is right is missing"),
    "no such first": (["nowhere", "--mine", "true"], "nowhere: no such file or folder"),
    "first of no kind": (
        ["program.py", "--mine", "true"],
        "is no twin (it has no twin.json), no run and no fingerprint",
    ),
    "a shell's command": (["GOLDEN", "--mine", "true > file"], "redirection ('>') is not supported"),
    "no quotation mark": (["GOLDEN", "--mine", "true 'x"], "no closing quotation mark"),
    "no words": (["GOLDEN", "--mine", " "], "--mine names no program to run"),
    "no twin": (["GOLDEN", "--mine", "true {twin}"], "{twin} stands in a command, but no twin is given"),
    "run and golden": (["GOLDEN", "--golden", "true", "--mine", "true"], "--golden has nothing to do beside it"),
    "format": (["GOLDEN", "--mine", "true", "--format", "toml"], "toml"),
    "floor": (["GOLDEN", "--mine", "true", "--floor", "nowhere.json"], "nowhere.json"),
    "floors": (["GOLDEN", "--mine", "true", "--save-floor", "x.json"], "--save-floor needs healthy pairs"),
    "page's folder": (
        ["GOLDEN", "--mine", "true", "--html", "no/such/page.html"],
        "there is no such folder, for --html",
    ),
}


@pytest.mark.parametrize("case", USAGE)
def test_wrong_input_is_one_sentence_and_leaves_nothing(programs, golden, temporary, case):
    words, sentence = USAGE[case]
    done = gate(programs, *(golden if word == "GOLDEN" else word for word in words))
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert left_in(temporary) == []
    assert [line for line in done.stderr.splitlines() if line.startswith("next: ")] == ["next: assay help gate"]


# ---- formats, each with a reader that is not ours ----


def test_json_is_the_verdict_and_the_gate(programs, golden, temporary):
    done = gate(programs, golden, "--mine", command("wrong"), "--level", "operator", "--format", "json")
    assert done.returncode == 1
    outcome = json.loads(done.stdout)
    assert outcome["outcome"] == "first_wrong"
    assert outcome["first_bad"]["module"] == "norm"
    assert outcome["tokens"]["positions"] == 80
    validator("gate").validate(outcome)
    assert outcome["exit_status"] == 1
    gate_keys = outcome["gate"]
    assert gate_keys["commands"] == {"golden": None, "mine": command("wrong")}
    assert list(gate_keys["seconds"]) == ["mine, operators", "verdict"]
    assert gate_keys["runs"]["kept"] is True
    assert Path(gate_keys["runs"]["mine"]).is_dir()
    assert gate_keys["versions"]["mine"]["torch"] == gate_keys["versions"]["golden"]["torch"] != ""
    assert outcome["next"].startswith("assay show ")


def test_json_of_a_program_that_failed_has_its_last_words(programs, golden, temporary):
    done = gate(programs, golden, "--mine", command("failing"), "--format", "json")
    outcome = json.loads(done.stdout)
    assert (done.returncode, outcome["exit_status"], outcome["outcome"]) == (125, 125, "cannot_judge")
    validator("gate").validate(outcome)
    assert "the last words of failing" in outcome["gate"]["program_output"]
    assert outcome["gate"]["runs"] == {"kept": False, "golden": None, "mine": None}
    assert outcome["next"] == command("failing")


def unescaped(text: str) -> str:
    """As GitHub's runner reads the data of a command."""
    for code, character in (("%0A", "\n"), ("%0D", "\r"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, character)
    return text


def test_github_names_the_line_of_the_module(programs, golden, temporary, monkeypatch):
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    done = gate(programs, golden, "--mine", command("wrong"), "--level", "operator", "--format", "github")
    first, following = done.stdout.splitlines()
    properties, message = first.removeprefix("::error ").split("::", 1)
    place = dict(item.split("=", 1) for item in properties.split(","))
    lines = PROGRAM.splitlines()
    assert place["file"] == "program.py"
    assert lines[int(place["line"]) - 1].strip() == "def forward(self, x):"
    assert unescaped(message).startswith("first bad: norm (Norm: aten.mul.Tensor, step 0): ")
    assert "%25 relative L2" in message
    assert following.startswith("next: assay show ")


def test_github_says_clean_in_a_notice(programs, golden, temporary):
    done = gate(programs, golden, "--mine", command("healthy"), "--level", "operator", "--format", "github")
    assert done.stdout.startswith("::notice title=assay gate::clean: all ")


def test_junit_has_one_case(programs, golden, temporary):
    for kind, status, tag in (("wrong", 1, "failure"), ("failing", 125, "skipped")):
        done = gate(programs, golden, "--mine", command(kind), "--level", "operator", "--format", "junit")
        assert done.returncode == status
        root = ET.fromstring(done.stdout)
        (suite,) = root.findall("testsuite")
        (case,) = suite.findall("testcase")
        assert suite.get("tests") == "1"
        assert suite.get("failures") == str(int(tag == "failure"))
        assert suite.get("skipped") == str(int(tag == "skipped"))
        assert case.get("name") == str(golden)
        (result,) = case.findall(tag)
        assert result.get("message").startswith("first bad: norm" if tag == "failure" else "cannot judge: ")
        properties = {p.get("name"): p.get("value") for p in suite.find("properties")}
        assert properties["mine"] == command(kind)
        assert properties["next"] in case.findtext("system-out")
        if kind == "failing":
            assert "the last words of failing" in case.findtext("system-err")


@pytest.fixture(scope="module")
def hostile(programs) -> Path:
    """Golden of a model one of whose modules has a name that every format must escape."""
    path = programs / "hostile-run"
    text = PROGRAM.replace('if kind in ("wrong", "hostile")', 'if kind == "wrong"').replace(
        '!= "golden"', '!= "hostile"'
    )
    (programs / "healthy_hostile.py").write_text(text)
    done = run("dump", "--level", "operator", "--steps", "all", "-o", path, "--",
               warm_python.python(), "healthy_hostile.py", "hostile", cwd=programs)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return path


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "json", "github", "junit"])
def test_hostile_names_break_no_format(programs, hostile, temporary, form):
    done = gate(programs, hostile, "--mine", command("hostile"), "--level", "operator", "--format", form)
    assert done.returncode == 1, done
    assert "\x1b" not in done.stdout
    if form == "json":
        assert json.loads(done.stdout)["first_bad"]["module"].startswith("evil<&\"'\n::error::]]>\x1b")
    elif form == "junit":
        failure = ET.fromstring(done.stdout).find("testsuite/testcase/failure")
        assert "evil<&\"'?::error::]]>?" in failure.get("message")
    else:
        assert not any(line.startswith("::error::]]") for line in done.stdout.splitlines())
        assert "evil<&\"'?::error::]]>?" in " ".join(done.stdout.split())


def test_ctrl_c_leaves_nothing(programs, golden, temporary, tmp_path):
    started = tmp_path / "started"
    process = subprocess.Popen(
        [binary(), "gate", golden, "--mine", command("sleeping", str(started))],
        cwd=programs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not started.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    assert left_in(temporary) != []
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, (out, err)
    assert out == ""
    assert err.splitlines()[-1] == "interrupted: no verdict"
    assert left_in(temporary) == []


def test_a_process_that_stays_does_not_hold_the_gate(programs, golden, temporary):
    stays = programs / "stays.py"
    stays.write_text("import subprocess\nsubprocess.Popen(['sleep', '20'])\n" + PROGRAM)
    start = time.monotonic()
    done = gate(programs, golden, "--mine", f"{sys.executable} stays.py healthy", "--level", "operator")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - start < 19


def test_show_output_stays_on_standard_output(programs, golden, temporary):
    done = gate(programs, golden, "--mine", command("failing"), "--show-output")
    assert done.stdout.startswith("on standard output failing\ncannot judge: ")


@pytest.mark.slow
def test_page_and_lists_are_written_on_request(programs, golden, temporary, tmp_path):
    page = tmp_path / "page.html"
    done = gate(programs, golden, "--mine", command("healthy"), "--html", page, "--why", "--tokens")
    assert done.returncode == 0
    assert "holds: inputs are equal" in done.stdout
    assert "of 80 positions chose another token: " in " ".join(done.stdout.split())
    assert "clean: " in page.read_text()
    assert left_in(temporary) == []


def test_a_lacking_mine_is_refused_where_that_is_wanted(programs, golden, temporary):
    done = gate(programs, golden, "--mine", command("leaving"), "--require-capture")
    assert done.returncode == 125, done
    assert "the program of mine ran, but its capture lacks something" in sentence_of(done.stdout)
    assert left_in(temporary) == []


def test_a_lacking_golden_is_refused_where_that_is_wanted(programs, golden, tmp_path, temporary):
    lacking = tmp_path / "lacking"
    lacking.mkdir()
    manifest = json.loads((golden / "manifest.json").read_text())
    for name in golden.iterdir():
        (lacking / name.name).symlink_to(name)
    (lacking / "manifest.json").unlink()
    manifest["complete"] = False
    (lacking / "manifest.json").write_text(json.dumps(manifest))
    done = gate(programs, lacking, "--mine", command("healthy"), "--require-capture")
    assert done.returncode == 125, done
    assert sentence_of(done.stdout).endswith("lacks something: its capture did not finish")
    assert next_of(done.stdout) == f"assay verify {lacking}"


FAR = r"""
import sys, torch
torch.manual_seed(0)

class Rotary(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("inv_freq", 10000.0 ** (-torch.arange(32) / 32), persistent=False)

    def forward(self, x, position_ids):
        return (position_ids[..., None].float() * self.inv_freq).cos().to(x.dtype)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rotary = torch.nn.Embedding(64, 32), Rotary()
        self.lm_head = torch.nn.Linear(32, 64)

    def forward(self, input_ids, position_ids):
        x = self.embed(input_ids)
        return self.lm_head(x * self.rotary(x, position_ids))

model = Model().eval()
if sys.argv[1] == "mine":
    kept = model.rotary.inv_freq
    model = model.bfloat16()
    model.rotary.inv_freq = kept
with torch.no_grad():
    model(input_ids=torch.arange(24)[None], position_ids=16000 + torch.arange(24)[None])
"""


def test_modules_are_enough_for_positions_far_away(programs, temporary):
    """In bfloat16 an angle of 16 000 is off by up to 32: only golden's own buffers tell that mine did not do that."""
    (programs / "far.py").write_text(FAR)
    words = [f"{warm_python.python()} far.py {side}" for side in ("golden", "mine")]
    done = gate(programs, "--golden", words[0], "--mine", words[1], "--level", "module")
    assert done.returncode == 0, done
    assert "mine, operators" not in done.stderr


@pytest.mark.slow
def test_golden_of_a_twin_needs_no_command(tmp_path, temporary, monkeypatch):
    """A shaped twin in bfloat16 is clean, and what a tolerance would have to allow is said of its tokens."""
    python = warm_python.python("transformers")
    monkeypatch.setenv("ASSAY_PYTHON", python)
    sizes = {"hidden_size": 512, "intermediate_size": 1376, "num_attention_heads": 8, "num_key_value_heads": 2}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **sizes, "num_hidden_layers": 8}))
    twin = tmp_path / "tiny"
    make = ["-m", "assay.twin", "make", tmp_path / "config.json", "-o", twin, "--layers", "2", "--gguf-type", "none"]
    subprocess.run([python, *make], check=True, capture_output=True)
    mine = f"{python} -m assay.twin run --dtype bfloat16 --attention sdpa {{twin}}"
    done = run("gate", twin, "--mine", mine, "--format", "json")
    outcome = json.loads(done.stdout)
    assert (done.returncode, outcome["outcome"]) == (0, "clean"), outcome["sentence"]
    assert list(outcome["gate"]["seconds"]) == ["golden, operators", "mine, operators", "verdict"]
    tokens = outcome["tokens"]
    assert tokens["positions"] > 50
    assert tokens["padding"] > 0
    assert tokens["other_choices"] == tokens["near_ties"]
    assert tokens["kl_max"] < 1e-2
    assert left_in(temporary) == []
