# SPDX-License-Identifier: Apache-2.0
"""tests/support/warm_python.py: programs see what a fresh interpreter shows them. The oracle is sys.executable."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import warm_python

torch = pytest.importorskip("torch")

SHOW = """
import json, os, resource, signal, subprocess, sys, warnings
main = sys.modules["__main__"]
print(json.dumps({
    "argv": sys.argv, "orig_argv": sys.orig_argv[1:], "executable": sys.executable, "cwd": os.getcwd(),
    "path": sys.path, "flags": str(sys.flags), "environment": dict(sorted(os.environ.items())),
    "getenv": subprocess.check_output("echo $WARM_TEXT", shell=True, text=True),
    "main": {n: repr(v) for n, v in sorted(vars(main).items())
             if n[:2] == "__" and n not in ("__loader__", "__warningregistry__")},
    "loader": getattr(main.__loader__, "__name__", "") + str(getattr(main.__loader__, "path", "")),
    "file": globals().get("__file__"), "is_main": main.__dict__ is globals(),
    "meta_path": [getattr(f, "__name__", type(f).__name__) for f in sys.meta_path],
    "third": sorted(m for m in sys.modules if m.partition(".")[0] not in sys.stdlib_module_names
                    and m != "__mp_main__"),
    "streams": [[s.name, s.mode, s.encoding, s.errors, s.line_buffering, s.isatty()] for s in
                (sys.stdin, sys.stdout, sys.stderr)],
    "signals": [str(signal.getsignal(n)) for n in (1, 2, 13, 15, 25)], "mask": len(signal.pthread_sigmask(0, [])),
    "limits": [resource.getrlimit(kind) for kind in range(16)], "nice": os.nice(0), "umask": os.umask(0),
    "descriptors": sorted(os.listdir("/proc/self/fd")), "threads": len(os.listdir("/proc/self/task")),
    "filters": [str(f) for f in warnings.filters], "input": sys.stdin.read(), "group": os.getpgid(0) > 1,
}))
"""


@pytest.fixture(scope="module")
def python() -> str:
    return warm_python.python()


def both(python: str, *words: object, **options: object) -> list[subprocess.CompletedProcess[str]]:
    """What came of the words behind each of the two commands."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "timeout": 100} | options
    return [subprocess.run([p, *map(str, words)], **options) for p in (sys.executable, python)]


def assert_same(python: str, *words: object, **options: object) -> str:
    """Returns what is printed."""
    real, warm = both(python, *words, **options)
    assert (warm.returncode, warm.stdout, warm.stderr) == (real.returncode, real.stdout, real.stderr)
    return warm.stdout


@pytest.mark.parametrize("way", ["file", "folder", "link", "-c", "-m"])
def test_a_program_finds_itself_as_in_a_fresh_interpreter(python, tmp_path, way):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "show.py").write_text(SHOW)
    (tmp_path / "link.py").symlink_to("below/show.py")
    words = {
        "file": ["below/show.py"],
        "folder": [tmp_path / "below" / "show.py", "-c"],
        "link": ["./link.py"],
        "-c": ["-c", SHOW, "-u"],
        "-m": ["-m", "below.show"],
    }[way]
    variables = os.environ | {
        "WARM_TEXT": "a \xe9",
        "WARM_BYTES": "\udcff",
        "PYTHONPATH": f"here::{tmp_path}:/nowhere:here",
    }

    real, warm = both(
        python, *words, "an argument", "", cwd=tmp_path, env=variables, input="lines\nto read", preexec_fn=_inherits
    )

    assert (warm.returncode, warm.stderr) == (real.returncode, real.stderr) == (0, "")
    found, expected = (json.loads(re.sub(" at 0x[0-9a-f]+", "", done.stdout)) for done in (warm, real))
    assert found == expected
    assert found["third"] == [m for m in found["third"] if "torch" not in m] and found["input"] == "lines\nto read"


def _inherits() -> None:
    os.umask(0o027)
    os.nice(3)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (300, 400))


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.exit()",
        "import sys; sys.exit(7)",
        "import sys; sys.exit(-1)",
        "import sys; print('out'); sys.exit('why')",
        "import os; print('lost'); os._exit(9)",
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "raise KeyboardInterrupt('by hand')",
        "def f():\n    return {}['a']\ntry:\n    f()\nexcept KeyError:\n    1 / 0",
        "print(1\n",
        "import sys; sys.excepthook = lambda *a: print('hook', a[1]); print(undefined)",
        "import atexit; atexit.register(print, 'late'); raise ValueError",
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()",
        "class A:\n    def __del__(self):\n        print('gone')\na = A()",
        "import sys, os; sys.stdout.close(); os.close(1)",
        "import os\nif os.fork():\n    print(os.wait()[1])\nelse:\n    raise SystemExit(3)",
        "import warnings; warnings.warn('look out')",
        "import not_there",
        "import json.not_there",
    ],
)
def test_a_program_ends_as_in_a_fresh_interpreter(python, tmp_path, code):
    assert_same(python, "-c", code)

    (tmp_path / "program.py").write_text(code)
    assert_same(python, "program.py", cwd=tmp_path)


def test_what_is_no_program_is_left_to_the_real_python(python, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__main__.py").write_text("print('main')")

    for words in (["not_there.py"], ["folder"], ["-V"], ["-u", "-c", "print(1)"], ["-c"], ["-m", "not_there"]):
        assert_same(python, *words, cwd=tmp_path)
    assert_same(python, input="print('from standard input')")


def test_output_that_nobody_reads_and_input_that_is_not_there_are_as_ever(python):
    for streams in ("</dev/null >&-", "<&-", "2>&-", ">/dev/full"):
        code = "import sys; print(sys.stdin, sys.stdout, sys.stderr, sep=chr(10), file=sys.stderr); print(sys.stdin)"
        done = [
            subprocess.run(["sh", "-c", f'"$0" -c "$1" {streams}', p, code], capture_output=True, text=True)
            for p in (sys.executable, python)
        ]
        assert (done[1].returncode, done[1].stdout, done[1].stderr) == (
            done[0].returncode,
            done[0].stdout,
            done[0].stderr,
        )


def test_descriptors_come_with_their_numbers(python):
    reads, writes = os.pipe()
    code = f"import os; os.write({writes}, str(os.listdir('/proc/self/fd')).encode())"
    for command in (sys.executable, python):
        subprocess.run([command, "-c", code], pass_fds=[writes], check=True)
    os.close(writes)
    with open(reads) as pipe:
        found = pipe.read()

    assert found[: len(found) // 2] == found[len(found) // 2 :] and f"'{writes}'" in found


# --- imports

IMPORTS = """
import sys, warnings
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in {watched!r}:
            print("asked for", name, "torch.nn" in sys.modules, path)
sys.meta_path.insert(0, Watch())
import {name}
print({name}.__spec__.origin, type({name}.__spec__.loader), {name}.__spec__.loader.__dict__)
print(sorted(m for m in sys.modules if m.partition(".")[0] in ("torch", "numpy", "transformers")))
print([str(f) for f in warnings.filters])
print([type(f) for f in sys.meta_path])
"""


@pytest.mark.parametrize("name", ["numpy", "torch", "torch.nn.functional", "typing_extensions"])
def test_an_import_goes_the_usual_way(python, name):
    watched = ("torch", "torch.nn", "numpy", "numpy.linalg")

    printed = assert_same(python, "-c", IMPORTS.format(watched=watched, name=name))

    assert ("asked for torch False None" in printed) == name.startswith("torch")
    assert ("'torch.ops'" in printed) == name.startswith("torch")


@pytest.mark.slow
def test_an_import_of_more_than_torch_goes_the_usual_way():
    name = "transformers"
    watched = (name, "torch.ao")
    python = warm_python.python(name)

    printed = assert_same(python, "-c", IMPORTS.format(watched=watched, name="torch"))
    assert_same(python, "-c", IMPORTS.format(watched=watched, name=name))

    assert f"'{name}'" not in printed
    code = "import torch, sys; torch._dynamo; print('torch._dynamo' in sys.modules)"
    assert assert_same(python, "-c", code) == "True\n"


def test_a_package_of_the_programs_own_goes_before(python, tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("VALUE = 1")
    (tmp_path / "typing_extensions.py").write_text("VALUE = 2")

    code = "import torch, typing_extensions as t; print(torch.VALUE, t.VALUE, torch.__file__)"

    assert assert_same(python, "-c", code, cwd=tmp_path).startswith("1 2 ")


def test_start_up_files_of_the_search_path_run(python, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys; print('custom', __file__, 'torch' in sys.modules, sys.path)"
    )

    printed = assert_same(python, "-c", "print(1)", env=os.environ | {"PYTHONPATH": str(tmp_path)})

    assert printed.startswith("custom ") and "False" in printed


def test_random_numbers_and_threads_are_those_of_a_fresh_process(python):
    code = """
import random, torch, numpy
print(torch.get_num_threads(), torch.get_num_interop_threads())
random.seed(3), numpy.random.seed(3), torch.manual_seed(3)
print(random.random(), numpy.random.rand(), torch.rand(2), (torch.ones(300, 300) @ torch.rand(300, 300)).sum())
"""
    free = (
        "import random, torch, numpy; print(random.random(), numpy.random.rand(), numpy.random.default_rng().random())"
    )
    free += "; print(torch.initial_seed(), torch.rand(1).item())"

    assert_same(python, "-c", code)
    for threads in ("1", "2"):
        assert_same(python, "-c", code, env=os.environ | {"OMP_NUM_THREADS": threads})
    first, second = (subprocess.run([python, "-c", free], capture_output=True, text=True).stdout for _ in range(2))
    assert not set(first.split()) & set(second.split())


def test_variables_that_are_read_at_the_start_count(python):
    code = "import sys, warnings; print(hash('a'), sys.flags, sys.stdout.encoding, warnings.filters)"

    for name, value in {"PYTHONHASHSEED": "5", "PYTHONWARNINGS": "error", "PYTHONIOENCODING": "latin-1"}.items():
        assert_same(python, "-c", code, env=os.environ | {"PYTHONHASHSEED": "4", name: value})


# --- signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("handled", [False, True])
def test_signals_reach_the_program(python, number, handled):
    code = f"""
import signal, sys, time
if {handled}:
    signal.signal({number:d}, lambda *_: sys.exit(5))
print("ready", flush=True)
time.sleep(60)
"""
    ends = []
    for command in (sys.executable, python):
        process = subprocess.Popen([command, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)  # it sleeps
        process.send_signal(number)
        ends.append((*process.communicate(timeout=30), process.returncode))

    assert ends[0] == ends[1] and ends[0][2] == (5 if handled else -number)


def _is_gone(path: Path) -> bool:
    """Soon."""
    for _ in range(200):
        if not path.exists():
            return True
        time.sleep(0.05)
    return False


def test_a_program_ends_when_its_command_is_killed(python):
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    process = subprocess.Popen([python, "-c", code], stdout=subprocess.PIPE, text=True)
    program = int(process.stdout.readline())

    process.kill()
    process.communicate()

    assert program != process.pid and _is_gone(Path(f"/proc/{program}"))


@pytest.mark.parametrize("end", ["pass", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_the_servers_end_with_who_asked_for_them(end, tmp_path):
    code = f"""
import os, signal, subprocess, sys
sys.path.append({os.path.dirname(warm_python.__file__)!r})
import warm_python
command = warm_python.python()
print(command)
subprocess.run([command, "-c", "import os; print(os.getpid(), os.getppid(), flush=True)"])
sys.stdout.flush()
{end}
"""
    done = subprocess.run([sys.executable, "-uc", code], capture_output=True, text=True)

    command, pids = done.stdout.splitlines()
    assert all(_is_gone(Path("/proc", pid)) for pid in pids.split())
    assert _is_gone(Path(command))


# --- with the product

MODEL = """
import sys, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.SiLU(), torch.nn.Linear(8, 4))
with torch.no_grad():
    for step in range(3):
        print(model(torch.full((1, 4), float(step))).tolist())
"""


def test_assay_dump_does_not_keep_it_from_its_server(python, tmp_path):
    binary = os.environ.get("ASSAY_BINARY") or str(Path(sys.executable).with_name("assay"))
    code = "import os; print(os.getppid())"
    words = [[python, "-c", code], [binary, "dump", "-o", tmp_path / "out", "--", python, "-c", code]]

    parents = [subprocess.run(w, stdout=subprocess.PIPE, text=True, check=True).stdout for w in words]

    assert parents[0] == parents[1]


@pytest.mark.parametrize("options", [(), ("--host", "torch", "--level", "operator", "--digest", "--weights")])
def test_assay_dump_captures_the_same_run(python, tmp_path, options):
    assay = pytest.importorskip("assay")
    binary = os.environ.get("ASSAY_BINARY") or str(Path(sys.executable).with_name("assay"))
    (tmp_path / "run.py").write_text(MODEL)
    files, manifests, said = [], [], []
    for command in (sys.executable, python):
        words = [binary, "dump", *options, "-o", "out", "--", command, "run.py"]
        variables = os.environ | {"ASSAY_RUN_ID": "5" * 32}
        done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0 and len(assay.open(tmp_path / "out").records) > 6
        said.append((done.stdout, re.sub(r"process \d+", "process N", done.stderr)))
        found = {
            str(p.relative_to(tmp_path)): p.read_text("latin-1") for p in (tmp_path / "out").rglob("*") if p.is_file()
        }
        manifests.append([json.loads(found.pop(name)) for name in sorted(found) if name.endswith("manifest.json")])
        files.append(found)
        (tmp_path / "out").rename(tmp_path / "earlier") if command == sys.executable else None

    assert files[0] == files[1] and said[0] == said[1]
    for one, other in zip(*manifests):
        assert {key for key in one if one[key] != other[key]} <= {"host", "started", "finished", "steps", "seal"}
        assert {key for key, value in one.get("host", {}).items() if other["host"][key] != value} <= {"pid", "command"}
