# SPDX-License-Identifier: Apache-2.0
"""Every command block of README.md and docs runs as it is printed, and prints what the document says it prints.

A comment before a block says how it is run; readers of the page do not see it:

    <!-- run: SCENE -->            the commands run in a folder that SCENE prepared. Blocks of one document with one
                                   scene share it, unless a number follows: SCENE/2. With `status 1` behind it the
                                   last command ends with that status, `status 1,0` says it of each; with `each`
                                   every command is tried in a folder of its own
                                   Blocks of Python run in one interpreter, one after the other, behind what the scene
                                   left as before.py; a function test_... runs under pytest. A comment behind an
                                   expression that begins as a value does, <, ' or True, is what it shows
                                   Of a workflow in YAML the lines that a job runs are the commands; what it installs
                                   is looked up
    <!-- synopsis -->              a grammar: its options are held against the help of the command
    <!-- not run: REASON -->       a machine of CI cannot; these are counted

In a transcript a line of three dots stands for any number of lines; the last lines are the true end. Times, process
numbers, sizes of machines and paths of this checkout are masked.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Callable, Optional

import document_scenes
import pytest
import warm_python
import yaml
from assay_command import binary

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
COMMAND = re.compile(
    r"(?:\$ |assay |msit |ait |make |git |python |source |cmake |eval |\.?\.?/?tools/|[A-Z_]+=\S+ assay )"
)


@dataclass
class Block:
    document: str
    line: int
    language: str
    lines: list[str]
    mark: str = ""

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def kind(self) -> str:
        return self.mark.split(":")[0].strip()

    @property
    def scene(self) -> str:
        return self.mark.partition(":")[2].split()[0]

    @property
    def function(self) -> str:
        return self.scene.split("/")[0]

    @property
    def statuses(self) -> list[int]:
        """Of the commands; a single one is the last's."""
        found = re.search(r"status ([\d,]+)", self.mark)
        given = [int(number) for number in found.group(1).split(",")] if found else [0]
        return given if len(given) > 1 else [0] * (len(self.steps()) - 1) + given

    def steps(self) -> list[Step]:
        """The commands, in order; of a transcript with what they print."""
        if self.language == "yaml":
            return [Step(line, False) for line in commands_of(yaml.safe_load("\n".join(self.lines)))]
        transcript = any(line.startswith("$ ") for line in self.lines)
        steps: list[Step] = []
        for line in self.lines:
            if transcript and not line.startswith("$ ") and not (steps and steps[-1].open):
                steps[-1].output.append(line)
            elif steps and steps[-1].open:
                steps[-1].command += "\n" + line
            elif line.strip():
                steps.append(Step(line.removeprefix("$ "), transcript))
        return steps


@dataclass
class Step:
    command: str
    transcript: bool
    output: list[str] = field(default_factory=list)

    @property
    def open(self) -> bool:
        """Goes on in the next line."""
        return self.command.endswith("\\") or self.command.count("'") % 2 == 1


def commands_of(workflow: object, key: str = "") -> list[str]:
    """What GitHub has behind `run`, GitLab in a list behind `script`."""
    if isinstance(workflow, dict):
        return [command for name, value in workflow.items() for command in commands_of(value, name)]
    if isinstance(workflow, list):
        return [command for value in workflow for command in commands_of(value, key)]
    return [str(workflow)] if key in ("run", "script") else []


def blocks_of(path: Path) -> list[Block]:
    blocks = []
    lines = path.read_text(encoding="utf-8").split("\n")
    mark, at = "", 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("```"):
            end = next(i for i in range(at + 1, len(lines)) if lines[i].startswith("```"))
            content = lines[at + 1 : end]
            language = line[3:].strip()
            is_command = language in ("", "sh") and any(COMMAND.match(each) for each in content)
            if is_command or mark:
                blocks.append(Block(str(path.relative_to(ROOT)), at + 1, language, content, mark))
            mark, at = "", end
        elif found := re.fullmatch(r"<!-- ((?:run|not run): .*|synopsis) -->", line):
            mark = found.group(1)
        elif line.strip():
            mark = ""
        at += 1
    return blocks


BLOCKS = [block for path in DOCUMENTS for block in blocks_of(path)]
RUN = [block for block in BLOCKS if block.kind == "run"]


def groups() -> list[object]:
    """Blocks of one document and scene run one after the other."""
    found: dict[tuple[str, str], list[Block]] = {}
    for block in RUN:
        found.setdefault((block.document, block.scene), []).append(block)
    return [
        pytest.param(
            blocks,
            id=f"{document}-{scene}",
            marks=[pytest.mark.slow] if blocks[0].function in document_scenes.SLOW else [],
        )
        for (document, scene), blocks in found.items()
    ]


# ---- comparing -------------------------------------------------------------------------------------------------------

MASKS = [
    (re.compile(r"(?<!\d)20\d{6}_?\d{6}(?!\d)"), "<stamp>"),
    (re.compile(r"\b20\d\d-\d\d-\d\d \d\d:\d\d:\d\d,\d+ - \d+ -"), "<time> - <pid> -"),
    (re.compile(r"\b\d+(?:\.\d+)? s\b"), "<seconds>"),
    (re.compile(r"\bcpu_\d+\b"), "cpu_<pid>"),
    (re.compile(r"\bprocess \d+"), "process <pid>"),
    (re.compile(r"^Date: .*"), "Date: <date>"),
    (re.compile(r"\b[0-9a-f]{40}\b"), "<commit>"),
]


def masked(line: str, folder: Path) -> str:
    line = line.replace(str(folder) + "/", "").replace(str(ROOT) + "/", "")
    for pattern, word in MASKS:
        line = pattern.sub(word, line)
    return re.sub(r" {2,}", "  ", line).rstrip()  # columns move with the width of what is masked


def matches(expected: list[str], actual: list[str]) -> bool:
    """Three dots stand for any lines."""
    if not expected:
        return not actual
    if expected[0].strip() == "...":
        return any(matches(expected[1:], actual[i:]) for i in range(len(actual) + 1))
    return bool(actual) and expected[0] == actual[0] and matches(expected[1:], actual[1:])


def without_blank_end(lines: list[str]) -> list[str]:
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines


def look_up(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """In place of an installation: our distribution has the extras, the files of requirements are there."""
    ours = metadata.metadata("assay-llm")
    words = shlex.split(command)[2:]
    problems = []
    for before, word in zip(["", *words], words):
        name, _, extras = word.rstrip("]").partition("[")
        if before == "-r":
            problems += [] if (folder / word).is_file() else [f"there is no {word}"]
        elif word != "-r" and not (name == ours["Name"] and {extras} <= {*ours.get_all("Provides-Extra")}):
            problems.append(f"there is no {word}")
    return subprocess.CompletedProcess(command, len(problems), "\n".join(problems))


def run_step(step: Step, folder: Path) -> subprocess.CompletedProcess[str]:
    programs = (binary(), warm_python.python(), sys.executable)
    bin_folder = os.pathsep.join(str(Path(program).parent) for program in programs)
    environment = {**os.environ, "PATH": bin_folder + os.pathsep + os.environ["PATH"], "NO_COLOR": "1"}
    environment["LC_ALL"] = "C.UTF-8"
    if step.command.startswith("pip install "):
        return look_up(step.command, folder)
    if step.command.startswith(("assay twin ", "assay gate ")):
        environment["ASSAY_PYTHON"] = warm_python.python("transformers")
    environment.pop("COLUMNS", None)
    return subprocess.run(
        ["bash", "-c", step.command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )


def transcript_of(block: Block, folder: Path, prepare: Optional[Callable[[str], Path]]) -> list[str]:
    """What is wrong with a block, nothing when it is as printed."""
    problems = []
    steps = block.steps()
    for step, expected_status in zip(steps, block.statuses):
        done = run_step(step, prepare(block.function) if prepare else folder)
        if done.returncode != expected_status:
            problems.append(f"$ {step.command}\nended with {done.returncode}, not {expected_status}\n{done.stdout}")
            continue
        if not step.transcript:
            continue
        expected = without_blank_end([masked(line, folder) for line in step.output])
        actual = without_blank_end([masked(line, folder) for line in done.stdout.split("\n")])
        if not matches(expected, actual):
            problems.append(f"$ {step.command}\n{done.stdout}")
    return problems


# What a comment shows of the value in front of it; of prose it does not begin so.
SHOWN = re.compile(r"\S.*#\s+((?:<|'|\[|True|False).*)$")


def environment_of_sessions() -> dict[str, str]:
    return {**os.environ, "BROWSER": "true", "NO_COLOR": "1", "PYTHONWARNINGS": "error::DeprecationWarning:assay"}


def session_problems(blocks: list[Block], folder: Path) -> list[str]:
    """What is wrong with blocks of Python that run in one interpreter."""
    tests = [block for block in blocks if any(line.startswith("def test_") for line in block.lines)]
    if tests:
        return [problem for block in tests for problem in pytest_problems(block, folder)]
    (folder / "blocks.json").write_text(json.dumps([code_of("\n".join(block.lines)) for block in blocks]))
    done = subprocess.run(
        [warm_python.python("transformers"), ROOT / "tests" / "cli" / "document_session.py", "blocks.json"],
        cwd=folder,
        env=environment_of_sessions(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode != 0:
        return [done.stdout + done.stderr]
    problems = []
    for line in done.stdout.splitlines():
        if not line.startswith('["'):
            continue  # what the program printed
        source, value = json.loads(line)
        expected = SHOWN.match(source)
        pattern = ".*".join(map(re.escape, expected.group(1).strip().split("..."))) if expected else ".*"
        if not re.fullmatch(pattern, value, re.DOTALL):
            problems.append(f"{source}\nshows {value}")
    return problems


def pytest_problems(block: Block, folder: Path) -> list[str]:
    """The test fails, and says what stands in the document behind it."""
    before = (folder / "before.py").read_text()
    (folder / "test_block.py").write_text(before + "\n\n" + "\n".join(block.lines) + "\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_block.py"],
        cwd=folder,
        env={**environment_of_sessions(), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    said = " ".join(done.stdout.replace("\nE  ", " ").split())
    document = (ROOT / block.document).read_text().split("\n")
    behind = document.index("```", block.line + len(block.lines))
    printed = document[document.index("```", behind + 1) + 1 :]
    sentence = " ".join(" ".join(printed[: printed.index("```")]).split()).partition(" golden: ")[0]
    if done.returncode == 1 and sentence in said:
        return []
    return [f"{sentence}\nis not in\n{done.stdout}{done.stderr}"]


@pytest.fixture(scope="module")
def prepare(tmp_path_factory) -> Callable[[str], Path]:
    """A copy of what a scene left; each scene is made once."""
    made: dict[str, Path] = {}

    def copy_of(scene: str) -> Path:
        if scene not in made:
            made[scene] = tmp_path_factory.mktemp(scene)
            getattr(document_scenes, scene)(made[scene])
        folder = tmp_path_factory.mktemp(scene) / "copy"
        return Path(shutil.copytree(made[scene], folder, symlinks=True))

    return copy_of


@pytest.mark.parametrize("blocks", groups())
def test_a_block_prints_what_the_document_says(blocks, prepare):
    folder = prepare(blocks[0].function)
    for is_python, alike in itertools.groupby(blocks, lambda block: block.language == "python"):
        if is_python:
            session = list(alike)
            problems = session_problems(session, folder)
            assert not problems, f"{session[0].place}:\n" + "\n".join(problems)
            continue
        for block in alike:
            problems = transcript_of(block, folder, prepare if " each" in block.mark else None)
            assert not problems, f"{block.place} prints now:\n" + "\n".join(problems)


# ---- all blocks ------------------------------------------------------------------------------------------------------


GUIDES = [ROOT / "README.md", ROOT / "docs" / "ci.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]


def test_every_command_block_says_how_it_is_run():
    assert [block.place for block in BLOCKS if not block.mark] == []


@pytest.mark.parametrize(("language", "least"), [("python", 12), ("yaml", 5)])
def test_every_block_of_a_guide_says_how_it_is_run(language, least):
    known = {(block.document, block.line) for block in BLOCKS}
    lines = [
        (str(path.relative_to(ROOT)), number)
        for path in GUIDES
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
        if line == f"```{language}"
    ]
    assert len(lines) >= least
    assert [place for place in lines if place not in known] == []


def test_a_pod_mounts_volumes_that_it_has():
    clusters = [block for block in BLOCKS if block.document == "docs/guide/clusters.md" and block.language == "yaml"]
    pods = [pod for block in clusters for pod in pods_of(yaml.safe_load("\n".join(block.lines)))]
    assert len(pods) == 2
    for pod in pods:
        mounts = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
        assert mounts == {volume["name"] for volume in pod["volumes"]}


def pods_of(value: object) -> list[dict]:
    if isinstance(value, list):
        return [pod for item in value for pod in pods_of(item)]
    if not isinstance(value, dict):
        return []
    return [value] if "containers" in value else [pod for item in value.values() for pod in pods_of(item)]


def test_blocks_that_cannot_run_say_why_and_are_counted(capsys):
    not_run = [block for block in BLOCKS if block.kind == "not run"]
    with capsys.disabled():
        print(f"\n{len(RUN)} command blocks of the documents are run, {len(not_run)} cannot be:")
        for block in not_run:
            print(f"  {block.place}: {block.mark.partition(':')[2].strip()}")
    assert all(len(block.mark.partition(":")[2].split()) >= 3 for block in not_run)
    assert len(not_run) <= 17, "more blocks than before are not run"
    assert len(RUN) >= 20


def test_a_transcript_shows_the_true_end():
    cut = [
        block.place
        for block in RUN
        if block.language != "python"
        and any(step.output and without_blank_end(step.output)[-1:] in (["..."], ["  ..."]) for step in block.steps())
    ]
    assert cut == []


def test_every_scene_is_used():
    assert {block.function for block in RUN} == set(document_scenes.ALL)


SYNOPSES = [block for block in BLOCKS if block.kind == "synopsis"]


@pytest.mark.parametrize("block", [pytest.param(block, id=block.place) for block in SYNOPSES])
def test_a_synopsis_names_options_that_the_command_has(block, assay_command):
    text = "\n".join(block.lines)
    for entry in re.split(r"\n(?=\S)", text):
        words = entry.split()
        old = words[0] in ("msit", "ait")
        command = words[: 3 if old else 2]
        assert command[0] in ("assay", "msit", "ait"), entry
        if command[1] == "COMMAND":
            continue
        more = ["-d", "x"] if words[1:3] == ["convert", "-d"] else []
        help_text = subprocess.run(
            [command[0], *command[1:], *more, "--help"],
            executable=assay_command,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout
        grammar = entry.split(" -- ")[0]
        for option in re.findall(r"(?<![\w-])(--?[a-z][\w-]*)", grammar):
            legacy = {"-gp": "--golden-path", "-mp": "--my-path", "-alg": "--custom-algorithms"}.get(option, option)
            assert re.search(rf"(?<![\w-])(?:{option}|{legacy})(?![\w-])", help_text), f"{block.place}: {option}"


# ---- Python ----------------------------------------------------------------------------------------------------------


def python_blocks() -> list[object]:
    blocks = []
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for found in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, found.start()) + 1
            blocks.append(pytest.param(found.group(1), id=f"{path.relative_to(ROOT)}:{line}"))
    return blocks


def code_of(block: str) -> str:
    """Without prompts; of a session what was typed."""
    lines = block.split("\n")
    if block.startswith(">>> "):
        lines = [line[4:] for line in lines if line.startswith((">>> ", "... "))]
    return "\n".join(lines)


def names_of(code: str) -> list[tuple[str, str]]:
    """(module, name in it) of every name that the code takes from our packages: imported ones and assay.compare."""
    names: list[tuple[str, str]] = []
    modules = {"assay": "assay"}  # by what the code calls them
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("assay", "msit_llm"):
            names += [(node.module or "", alias.name) for alias in node.names]
            modules |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        if isinstance(node, ast.FunctionDef) and any(argument.arg == "assay" for argument in node.args.args):
            modules.pop("assay")  # the fixture of the plug-in of pytest
        if isinstance(node, ast.Import):
            names += [(alias.name, "") for alias in node.names if alias.name.startswith("assay")]
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            names.append((modules[node.value.id], node.attr))
    return names


def exists(module: str, name: str) -> bool:
    try:
        found = importlib.import_module(module)
    except ImportError:  # a function or class of a module
        parent, _, last = module.rpartition(".")
        found = getattr(importlib.import_module(parent), last)
    return not name or hasattr(found, name) or importlib.util.find_spec(f"{module}.{name}") is not None


@pytest.mark.parametrize("block", python_blocks())
def test_a_python_block_parses_and_its_names_exist(block):
    names = names_of(code_of(block))
    assert [f"{module}.{name}" for module, name in names if not exists(module, name)] == []


def test_a_name_that_is_not_there_is_found():
    assert not exists("assay", "locat") and exists("assay", "locate") and exists("assay.torch", "graph")
    assert ("assay.torch.graph", "get_backend") in names_of("from assay.torch import graph\ngraph.get_backend(1)")


# ---- the comparison itself -------------------------------------------------------------------------------------------


def test_three_dots_stand_for_lines_but_not_for_the_end():
    assert matches(["a", "...", "c"], ["a", "b", "b", "c"])
    assert matches(["a", "...", "c"], ["a", "c"])
    assert not matches(["a", "...", "c"], ["a", "b"])
    assert not matches(["a"], ["a", "b"])
    assert matches([], [])
