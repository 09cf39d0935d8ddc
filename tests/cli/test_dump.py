# SPDX-License-Identifier: Apache-2.0
"""`assay dump`, `msit llm dump`, `ait llm dump`: the command around the program, whatever is captured in it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from assay_command import binary, run

LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - \d+ - msit_llm_logger - (\w+) - (.*)")


def log_of(done):
    return [found.groups() for line in done.stderr.splitlines() if (found := LOG_LINE.fullmatch(line))]


def script(folder: Path, text: str, name="prog.sh") -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\n" + text + "\n")
    path.chmod(0o755)
    return path


def environment_of(tmp_path, *arguments, name="msit", **kwargs):
    """Runs a program that prints its environment; returns what it saw."""
    words = ["llm", "dump"] if name != "assay" else ["dump"]
    done = run(*words, *arguments, "-o", tmp_path / "out", "--exec", "/usr/bin/env", name=name, **kwargs)
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


# ---- wrong options ----


@pytest.mark.parametrize("name", ["msit", "ait"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: --exec"),
        (["--exec", "a | b"], "argument --exec: invalid safe_string value: 'a | b'"),
        (["--exec", "a", "-time", "4"], "argument --save-time/-time: 4 is an invalid int value"),
        (
            ["--exec", "a", "-ids", "2_"],
            'argument --save-operation-ids/-ids: dym range string "2_" is not a legal string',
        ),
        (["--exec", "a", "-er", "x"], 'argument --execute-range/-er: output size "x" is not a legal number'),
        (["--exec", "a", "--nope"], "unrecognized arguments: --nope"),
    ],
)
def test_wrong_options_give_argparses_message_and_status_2(arguments, message, name):
    done = run("llm", "dump", *arguments, name=name)
    assert done.returncode == 2
    assert done.stderr.startswith(f"usage: {name} llm dump [-h]")
    assert done.stderr.splitlines()[-1] == f"{name} llm dump: error: {message}"


def test_wrong_options_under_our_name_come_with_a_hint():
    done = run("dump", "-time", "9", "--", "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == ("error: argument --save-time/-time: 9 is an invalid int value\nnext: assay help dump\n")


@pytest.mark.parametrize("command", ["dump", "errcheck"])
def test_without_a_program_the_form_is_shown(command):
    done = run(command)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: no program was given: assay {command} [OPTIONS] -- CMD ARGS ...\n")


@pytest.mark.parametrize("words", [("llm", "dump"), ("llm", "dd")])
def test_help_is_printed_and_ends_with_status_0(words):
    done = run(*words, "--help", name="msit")
    assert done.returncode == 0
    assert "--save-operation-ids, -ids" in done.stdout


def test_an_empty_exec_does_nothing(tmp_path):
    done = run("llm", "dump", "--exec", "", "-o", tmp_path / "out", name="msit")
    assert done.returncode == 0
    assert not (tmp_path / "out").exists()


# ---- what is refused when it runs ----


def test_redirection_is_refused_with_advice_and_status_1(tmp_path):
    done = run("llm", "dump", "--exec", "echo a > b", "-o", tmp_path, name="msit")
    assert done.returncode == 1
    assert "The command contains invalid characters" in done.stderr
    assert "redirection ('>') is not supported, use a script" in done.stderr


def test_an_output_path_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    done = run("dump", "-o", tmp_path / "file", "--", "true")
    assert done.returncode == 1
    assert (
        done.stderr == f"error: {tmp_path / 'file'}: the output path is a file, not a folder\nnext: assay help dump\n"
    )


def test_an_output_folder_that_everybody_may_change_is_refused(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    done = run("dump", "-o", folder / "x", "--", "true")
    assert done.returncode == 1
    assert "can be changed by every user" in done.stderr
    assert not (folder / "x").exists()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda p: None, "No such file or directory"),
        (lambda p: p.mkdir(), "is no regular file"),
        (lambda p: (p.write_text("{}"), p.chmod(0o664)), "can be changed by its group"),
        (lambda p: p.symlink_to("/etc/passwd"), "is a symbolic link"),
    ],
)
def test_an_unusable_configuration_file_is_refused(tmp_path, make, why):
    make(tmp_path / "c.json")
    done = run("dump", "-o", tmp_path / "out", "-config", tmp_path / "c.json", "--", "true")
    assert done.returncode == 1
    assert why in done.stderr


def test_a_program_that_does_not_exist_is_one_sentence(tmp_path):
    done = run("dump", "-o", tmp_path / "out", "--", "no_such_program")
    assert done.returncode == 1
    assert done.stderr == "error: no_such_program: cannot run: No such file or directory\nnext: assay help dump\n"
    assert list((tmp_path / "out").iterdir()) == []


def test_a_missing_probe_library_is_one_sentence(tmp_path):
    done = run("dump", "-o", tmp_path / "out", "--probe-library", tmp_path / "x.so", "--", "true")
    assert done.returncode == 1
    assert done.stderr == f"error: {tmp_path / 'x.so'}: no such probe library (--probe-library)\nnext: assay doctor\n"


def test_a_foreign_probe_library_is_told_apart_before_the_program_starts(tmp_path):
    text = tmp_path / "text.so"
    text.write_text("no library at all")
    other = tmp_path / "other.so"
    header = bytearray(Path("/bin/true").resolve().read_bytes())
    header[18:20] = (0xF3).to_bytes(2, "little")  # e_machine: RISC-V
    other.write_bytes(header)
    libc = Path(f"/lib/{os.uname().machine}-linux-gnu/libc.so.6")
    for library, why in (
        (text, "no ELF file"),
        (other, "is a library for another processor"),
        (libc, "is no probe library: it does not export ATB's probe interface"),
    ):
        done = run("dump", "-o", tmp_path / "out", "--probe-library", library, "--", "echo", "started")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"error: {library}: {why}\nnext: assay doctor\n"


def test_a_name_of_the_original_is_the_probe_beside_it(tmp_path):
    own = Path(binary()).resolve().parents[1] / "lib" / "assay"
    program = script(tmp_path, 'echo "$LD_PRELOAD"')
    done = run("dump", "-o", tmp_path / "out", "--probe-library", own / "libatb_probe_abi0.so", "--", program)
    assert Path(done.stdout.split(":")[0]) == own / "libatb_probe.so"
    alone = tmp_path / "libatb_probe_abi0.so"
    alone.write_bytes((own / alone.name).read_bytes())
    done = run("dump", "-o", tmp_path / "out2", "--probe-library", alone, "--", program)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == f"error: {tmp_path}/libatb_probe.so: cannot open: No such file or directory\nnext: assay doctor\n"
    )


# ---- the program ----


def test_the_programs_status_streams_and_words_are_its_own(tmp_path):
    program = script(tmp_path, 'read line; echo "got $line: $1"; echo oops >&2; exit 7')
    done = run("dump", "-o", tmp_path / "out", "--", program, "a  b;$c", input="hello\n")
    assert done.returncode == 7
    assert done.stdout == "got hello: a  b;$c\n"
    assert done.stderr.startswith("oops\n")


def test_quotes_in_exec_keep_words_together(tmp_path):
    program = script(tmp_path, 'for word in "$@"; do echo "[$word]"; done')
    done = run("llm", "dump", "-o", tmp_path / "o", "--exec", f"{program} \"a b\" 'c > d' e", name="msit")
    assert (done.returncode, done.stdout) == (0, "[a b]\n[c > d]\n[e]\n")


def test_a_program_ended_by_a_signal_gives_128_plus_its_number(tmp_path):
    done = run("dump", "-o", tmp_path / "out", "--", script(tmp_path, "kill -9 $$"))
    assert done.returncode == 137
    assert "assay: warning: the program was ended by signal 9" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signals_reach_the_program_and_the_summary_still_comes(tmp_path, number):
    program = script(tmp_path, "trap 'echo caught; exit 3' INT TERM USR1\necho ready\nwhile :; do sleep 0.05; done")
    child = subprocess.Popen(
        ["assay", "dump", "-o", tmp_path / "out", "--", program],
        executable=binary(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "ready\n"
    child.send_signal(number)
    out, err = child.communicate(timeout=20)
    assert (child.returncode, out) == (3, "caught\n")
    assert "nothing was captured" in err


def test_ctrl_c_at_a_terminal_reaches_the_program_once(tmp_path):
    program = script(tmp_path, "trap 'echo caught' INT\necho ready\nsleep 0.3 & wait; sleep 0.3 & wait; exit 5")
    child = subprocess.Popen(
        ["assay", "dump", "-o", tmp_path / "out", "--", program],
        executable=binary(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.05)
    os.killpg(child.pid, signal.SIGINT)  # from a process, so it is passed on: the program sees at least one
    out, _ = child.communicate(timeout=20)
    assert child.returncode == 5
    assert out.startswith("caught\n")


# ---- what is put into its environment ----


def test_msit_sets_the_variables_of_the_original(tmp_path):
    got = environment_of(tmp_path)
    assert got["ATB_OUTPUT_DIR"] == f"{tmp_path / 'out'}/"
    assert re.fullmatch(r"\d{8}_\d{6}", got["ATB_TIMESTAMP"])
    assert abs(time.mktime(time.strptime(got["ATB_TIMESTAMP"], "%Y%m%d_%H%M%S")) - time.time()) < 60  # local time
    assert got["ATB_DUMP_TYPE"] == "tensor|model"
    assert (got["ATB_SAVE_TENSOR_TIME"], got["ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER"]) == ("1", "1")
    assert Path(got["LD_PRELOAD"]).name == "libatb_probe.so"
    assert "ASSAY_TORCH_DUMP" not in got


@pytest.mark.parametrize("name", ["assay", "msit", "ait"])
def test_lists_may_have_full_width_commas(tmp_path, name):
    comma = "\uff0c"  # of a Chinese keyboard
    words = ["-ids", f"2{comma}3_1", "-er", f"0{comma}1", "-opname", f"Linear{comma}norm", "-device", f"0{comma}1"]
    got = environment_of(tmp_path, *words, name=name)
    plain = environment_of(tmp_path, *[word.replace(comma, ",") for word in words], name=name)
    names = ["ATB_SAVE_TENSOR_IDS", "ATB_SAVE_TENSOR_RANGE", "ATB_SAVE_TENSOR_RUNNER", "ATB_DEVICE_ID"]
    assert [got.get(key) for key in names] == [plain.get(key) for key in names]
    assert got["ATB_SAVE_TENSOR_IDS"] == "2,3_1" and got["ATB_SAVE_TENSOR_RANGE"] == "0,1"


def test_ait_has_the_defaults_and_the_root_of_its_documents(tmp_path):
    got = environment_of(tmp_path, name="ait")
    assert got["ASSAY_ATB_DUMP_NAME"] == "ait_dump"
    assert got["ATB_DUMP_TYPE"] == "tensor"
    assert (got["ATB_SAVE_TENSOR_TIME"], got["ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER"]) == ("1", "0")
    assert "ATB_TIMESTAMP" not in got


def test_what_an_earlier_run_left_in_the_environment_is_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("ATB_DUMP_CONFIG", "/old.json")
    monkeypatch.setenv("ATB_SAVE_TENSOR_IDS", "9")
    monkeypatch.setenv("LD_PRELOAD", "/nonexistent_but_kept.so")
    got = environment_of(tmp_path)
    assert "ATB_DUMP_CONFIG" not in got
    assert "ATB_SAVE_TENSOR_IDS" not in got
    assert got["LD_PRELOAD"].endswith("libatb_probe.so:/nonexistent_but_kept.so")


def test_two_runs_in_one_second_do_not_share_a_root(tmp_path):
    names = set()
    for _ in range(3):
        got = environment_of(tmp_path)
        root = tmp_path / "out" / got["ASSAY_ATB_DUMP_NAME"]
        assert root.name not in names
        names.add(root.name)
        root.mkdir()  # as the probe would have


def test_ranks_of_one_launcher_agree_on_the_root(tmp_path):
    commands = [["assay", "dump", "-o", str(tmp_path / "out"), "--", "/usr/bin/env"]] * 3
    env = {**os.environ, "LOCAL_WORLD_SIZE": "3"}
    children = []
    for number, command in enumerate(commands):
        children.append(
            subprocess.Popen(
                command, executable=binary(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env
            )
        )
        if number == 0:
            time.sleep(1.1)  # so that the second alone would not make them equal
    seen = [re.search(r"ATB_TIMESTAMP=(\S+)", child.communicate(timeout=20)[0]).group(1) for child in children]
    assert len(set(seen)) == 1


def test_the_abi_of_an_installed_atb_is_reported_from_its_symbols(tmp_path, monkeypatch, atb_homes):
    for abi, word in ((0, "False"), (1, "True")):
        monkeypatch.setenv("ATB_HOME_PATH", str(atb_homes[abi]))
        done = run("llm", "dump", "--exec", "true", "-o", tmp_path / "out", name="msit")
        assert ("INFO", f"Info detected from ATB so is_use_cxx11: {word}") in log_of(done)


@pytest.mark.parametrize("command", ["dump", "repeat", "invariance"])
def test_captures_that_begin_in_one_second_have_folders_of_their_own(tmp_path, command):
    seconds = [time.strftime("%Y%m%d_%H%M%S", time.gmtime(time.time() + after)) for after in range(60)]
    taken = {f"assay_{command}_{second}" for second in seconds}
    for name in taken:
        (tmp_path / name).mkdir()
    done = run(command, "--", "true", cwd=tmp_path)
    assert done.returncode == (0 if command == "dump" else 125), done
    assert "is there already" not in done.stderr
    more = {path.name for path in tmp_path.iterdir()} - taken
    # The others remove theirs, in which nothing was captured.
    assert {name.rpartition("_") for name in more} <= {(name, "_", "1") for name in taken}
    assert len(more) == (1 if command == "dump" else 0)


# ---- when nothing was captured ----


def test_a_program_without_atb_and_torch_is_told_apart(tmp_path):
    done = run("dump", "-o", tmp_path / "out", "--", "true")
    assert done.returncode == 0
    assert done.stderr == (
        "assay: warning: nothing was captured: no process of it called ATB's probe interface, none imported torch, "
        "and none computed a graph through a ggml scheduler\n"
        "assay: next: assay help own-host\n"
    )
    assert list((tmp_path / "out").iterdir()) == []
    page = run("help", "own-host")
    assert page.returncode == 0
    assert "numpy.savez" in page.stdout


def test_a_program_that_failed_is_no_other_kind_of_host(tmp_path):
    done = run("dump", "-o", tmp_path / "out", "--", "false")
    assert done.stderr.endswith("assay: next: assay doctor\n")


def test_a_statically_linked_program_is_told_apart(tmp_path):
    (tmp_path / "s.c").write_text("int main(void) { return 0; }\n")
    subprocess.run(["g++", "-x", "c", "-static", "-o", tmp_path / "s", tmp_path / "s.c"], check=True)
    done = run("dump", "-o", tmp_path / "out", "--", tmp_path / "s")
    assert f"nothing was captured: {tmp_path / 's'} is statically linked" in done.stderr


def test_the_shell_with_the_probe_in_it_prints_nothing_of_its_own(tmp_path):
    done = run("llm", "dump", "-o", tmp_path / "o", "-l", "error", "--", "bash", "-c", "echo a; exit 4", name="msit")
    assert (done.returncode, done.stdout, done.stderr) == (4, "a\n", "")


def test_python_is_not_disturbed_either(tmp_path):
    done = run("dump", "-o", tmp_path / "out", "--", sys.executable, "-c", "import sys; print(len(sys.argv))")
    assert (done.returncode, done.stdout) == (0, "1\n")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["env", "-i", "PATH=/bin", "true"], "starts the program without the environment that carries the capture"),
        (["env", "-", "true"], "starts the program without the environment that carries the capture"),
        ([sys.executable, "-I", "-c", "pass"], "-I ignores the start-up file that captures PyTorch; leave -I out"),
        ([sys.executable, "-sEu", "-c", "pass"], "-sEu ignores the start-up file"),
    ],
)
def test_a_program_that_hides_from_the_probes_is_told_apart(tmp_path, command, why):
    done = run("dump", "-o", tmp_path / "out", "--", *command)
    assert done.returncode == 0
    assert why in done.stderr


@pytest.mark.parametrize("command", [["env", "A=-i", "true"], [sys.executable, "-X", "utf8", "-c", "pass", "-I"]])
def test_words_of_the_program_itself_are_no_switches(tmp_path, command):
    done = run("dump", "-o", tmp_path / "out", "--", *command)
    assert "none imported torch" in done.stderr


def test_ggml_inside_the_program_is_told_apart(tmp_path):
    (tmp_path / "s.c").write_text('const char *name = "CROSS_ENTROPY_LOSS_BACK";\nint main(void) { return 0; }\n')
    subprocess.run(["g++", "-x", "c", "-o", tmp_path / "s", tmp_path / "s.c"], check=True)
    done = run("dump", "-o", tmp_path / "out", "--", tmp_path / "s")
    assert "has ggml linked into it, where its calls cannot be seen" in done.stderr


@pytest.mark.parametrize(("command", "status"), [(["true"], 125), (["sh", "-c", "exit 3"], 3)])
def test_require_makes_an_empty_capture_a_status(tmp_path, command, status):
    assert run("dump", "--require", "-o", tmp_path / "out", "--", *command).returncode == status


# ---- how it is typed ----


@pytest.mark.parametrize(
    "words",
    [
        ["-o", "out", "echo", "-o", "x", "--", "--type"],
        ["echo", "-o", "x", "--", "--type"],
        ["--type", "tensor", "echo", "-o", "x", "--", "--type"],
        ["-seed", "echo", "-o", "x", "--", "--type"],
    ],
)
def test_the_first_bare_word_is_the_program(tmp_path, words):
    done = run("dump", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "-o x -- --type\n")


def test_under_the_old_names_a_bare_word_is_no_program(tmp_path):
    done = run("llm", "dump", "echo", "x", name="msit", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize(
    "name", ["-x", "a b", "a,b", "a=b", "x/", "d\u00e9j\u00e0", b"raw\xff", "100%", "q'uote\"s", "--steps=0"]
)
def test_an_output_folder_may_have_any_name(tmp_path, name):
    done = run("dump", "-o", name, "--", "/usr/bin/env", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    path = f"{tmp_path}/{os.fsdecode(name).rstrip('/')}"
    assert os.path.isdir(path)
    assert f"ATB_OUTPUT_DIR={path}/\n" in done.stdout


def test_an_output_folder_that_cannot_be_made_is_said_before_the_program_starts():
    done = run("dump", "-o", "/proc/foo", "--", "echo", "started")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: /proc/foo: cannot create folder: No such file or directory\nnext: assay help dump\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-er", "0,99999999999999999999"], "expected numbers from 0 to 2147483647"),
        (["-er", "1 2,3"], 'output size "1 2,3" is not a legal number'),
        (["--steps", "0-4294967296"], "a step is a number from 0 to 2147483647"),
        (["--steps", "1 2"], "'1 2' is no list of steps like 0,2-4"),
        (["-ids", "1 2"], 'dym range string "1 2" is not a legal string'),
        (["-device", "0 1"], "invalid check_device_integer value"),
        (["-seed", "4294967296"], "4294967296 is no seed: Python takes 0 to 4294967295"),
        (["-seed=-1"], "-1 is no seed"),
    ],
)
def test_numbers_that_nobody_can_mean_are_refused(tmp_path, words, why):
    done = run("dump", "-o", tmp_path / "out", *words, "--", "echo", "started")
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr


def test_blanks_at_the_commas_of_a_list_do_not_count(tmp_path):
    got = environment_of(tmp_path, "-ids", " 2, 3_1 ,4 ", "--type", "tensor", "cpu_profiling")
    assert got["ATB_SAVE_TENSOR_IDS"] == "2,3_1,4"
    assert got["ATB_SAVE_CPU_PROFILING"] == "1"
    assert environment_of(tmp_path)["ATB_SAVE_CPU_PROFILING"] == "0"


@pytest.mark.parametrize("command", ["dump", "dd", "errcheck", "opcheck", "logitscmp"])
def test_the_word_llm_under_our_own_name_changes_nothing(command):
    plain, with_llm = run(command, "-h"), run("llm", command, "-h")
    assert plain.returncode == with_llm.returncode == 0
    assert plain.stdout == with_llm.stdout and "--output" in plain.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["install", "llm"], "msit-llm is part of this program and installed already"),
        (["install"], "You can specify the components you want to install"),
        (["check", "llm"], "  OK"),
        (["build-extra", "llm", "-f", "links"], "there are no more extra dependencies to build"),
    ],
)
def test_the_component_commands_of_the_old_names_have_nothing_to_do(words, said):
    done = run(*words, name="msit")
    assert done.returncode == 0
    assert said in done.stderr
    assert run(words[0], "profile", name="msit").returncode == 2
