# SPDX-License-Identifier: Apache-2.0
"""The dump command around a program that plays the acceleration library: examples/atb_host, in both string ABIs."""

from __future__ import annotations

import csv
import json
import os
import re
import sys
from pathlib import Path

import pytest
from assay_command import run

EVERYTHING = ["--type", "model", "layer", "op", "kernel", "tensor", "cpu_profiling", "onnx", "-tiling", "-er", "all"]


@pytest.fixture(scope="session")
def hosts(atb_homes):
    folder = atb_homes[1].parent
    return {abi: folder / f"atb_host_abi{abi}" for abi in (0, 1)}


@pytest.fixture(scope="session")
def scripted_host(atb_homes):
    """The host of tests/capture, which hands over whatever its words name."""
    program = atb_homes[1].parents[2] / "tests" / "capture" / "cxx_abi_1" / "probe_script"
    assert program.exists(), f"{program} is not built"
    return program


def dump(output: Path, *words, name="assay"):
    """In the layout of the original tool; test_dump_atb_native.py has the other one."""
    return (
        run("dump", "--host", "atb", "--layout", "strict", "-o", output, *words)
        if name == "assay"
        else run("llm", "dump", "-o", output, *words, name=name)
    )


def root_of(output: Path, pattern="msit_dump_*") -> Path:
    (root,) = output.glob(pattern)
    return root


def tree(root: Path) -> dict[str, bytes]:
    """Relative path -> content, with the process id taken out of both; without what is about the process itself."""
    pid = re.search(r"probe_summary_(\d+)", " ".join(p.name for p in root.iterdir())).group(1)
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and not path.name.startswith(("probe_summary", "manifest")):
            content = path.read_bytes().replace(str(root).encode(), b"ROOT")
            found[str(path.relative_to(root)).replace(pid, "PID")] = content.replace(pid.encode(), b"PID")
    return found


@pytest.fixture(scope="session")
def full_run(hosts, tmp_path_factory):
    output = tmp_path_factory.mktemp("full") / "out"
    done = dump(output, *EVERYTHING, "--", hosts[1])
    assert done.returncode == 0, done.stderr
    return done, root_of(output)


def test_the_program_computes_the_same_with_and_without_us(hosts, full_run):
    done, _ = full_run
    assert done.stdout == run_plain(hosts[1])


def run_plain(host) -> str:
    import subprocess

    return subprocess.run([host], stdout=subprocess.PIPE, text=True, check=True).stdout


def test_both_string_abis_give_the_same_tree(hosts, full_run, tmp_path):
    done = dump(tmp_path / "out", *EVERYTHING, "--", hosts[0])
    assert done.returncode == 0, done.stderr
    theirs = tree(root_of(tmp_path / "out"))
    assert theirs == tree(full_run[1])
    assert len(theirs) > 1000


def test_every_kind_of_file_is_there(full_run):
    done, root = full_run
    kinds = {path.name for path in root.iterdir() if path.is_dir()}
    assert kinds == {
        "tensors",
        "tiling",
        "layer",
        "model",
        "operation_io_tensors",
        "kernel_io_tensors",
        "cpu_profiling",
    }
    manifest = json.loads((root / "manifest.json").read_text())
    bins = list((root / "tensors").rglob("*.bin"))
    assert manifest["captured"] == manifest["planned"] == len(bins)
    assert manifest["missed"] == []
    assert manifest["exit_status"] == 0
    assert f"{len(bins)} tensors" in done.stderr


def test_every_topology_becomes_a_graph_and_the_scratch_folder_goes(full_run):
    onnx = pytest.importorskip("onnx")
    _, root = full_run
    jsons = {path.with_suffix("") for kind in ("layer", "model") for path in (root / kind).rglob("*.json")}
    graphs = {path.with_suffix("") for kind in ("layer", "model") for path in (root / kind).rglob("*.onnx")}
    assert jsons == graphs
    assert jsons
    for graph in graphs:
        onnx.checker.check_model(onnx.load(f"{graph}.onnx"))
    assert [path.name for path in root.parent.iterdir()] == [root.name]


def test_the_statistics_become_a_table_in_place_of_the_text(hosts, tmp_path):
    done = dump(tmp_path / "out", "--type", "cpu_profiling", "--", hosts[1], "--atb", "8.0")
    folder = next((root_of(tmp_path / "out") / "cpu_profiling").iterdir())
    assert done.returncode == 0
    assert {path.suffix for path in folder.iterdir()} == {".csv"}
    with open(sorted(folder.iterdir())[0], newline="") as file:
        rows = list(csv.DictReader(file))
    assert {"opname", "execute_totalTime", "setup_totalTime", "setup_opsInitLuanchBufferTime"} <= set(rows[0])
    assert len({row["opname"] for row in rows}) == len(rows) > 3


ALL_ZERO = "every number is 0"  # of our probe, for one process


def test_one_report_of_zeros_among_others_is_no_sign_of_a_library_that_resets_them(scripted_host, tmp_path):
    # "stale" reports one operation with zeros; "nested" reports others with 535 and 188 us
    for words, is_said in ((["nested=1", "stale"], False), (["stale"], True)):
        done = dump(tmp_path / f"{len(words)}", "--type", "cpu_profiling", "--", scripted_host, *words)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count(ALL_ZERO) == is_said, done.stderr


# Leaves two reports as a probe of the vendor does, the second one as it is told.
OTHER_PROBE = """
folder=$ATB_OUTPUT_DIR/msit_dump_$ATB_TIMESTAMP/cpu_profiling/$$
mkdir -p "$folder"
echo "[A_1]:totalTime:0, runnerSetupTime:0" > "$folder/operation_statistic_1.txt"
echo "$1" > "$folder/operation_statistic_2.txt"
"""


@pytest.mark.parametrize("name", ["assay", "msit"])
@pytest.mark.parametrize(
    ("second", "is_said"),
    [
        ("[B_2]:totalTime:0, runnerSetupTime:0", True),
        ("[B_2]:totalTime:17, runnerSetupTime:0", False),
        ("no report", False),
    ],
)
def test_reports_of_another_probe_are_all_zero_only_together(tmp_path, name, second, is_said):
    program = tmp_path / "program.sh"
    program.write_text(OTHER_PROBE)
    words = ["--", "sh", program, second] if name == "assay" else ["--exec", f"sh {program} '{second}'"]
    done = dump(tmp_path / "out", "--type", "cpu_profiling", *words, name=name)
    assert done.returncode == 0, done.stderr
    assert (done.stdout + done.stderr).count("every number of cpu_profiling is 0") == is_said, done.stderr


def test_what_another_probe_left_is_not_denied(atb_homes, hosts, tmp_path):
    # Given the naive probe, which writes the library's tree and no summary
    probe = atb_homes[1].parent / "naive_probe_abi1.so"
    start = f'NAIVE_PROBE_DIR="$ATB_OUTPUT_DIR/msit_dump_$ATB_TIMESTAMP/tensors" exec {hosts[1]}'
    words = ("--type", "tensor", "--require", "--probe-library", probe, "--")
    done = dump(tmp_path / "out", *words, "sh", "-c", start)
    assert done.returncode == 0, done.stderr
    root = root_of(tmp_path / "out")
    files = sum(path.is_file() for path in root.rglob("*")) - 1  # the manifest is ours
    assert files > 100
    # Then its files are counted, and nothing is claimed of what may be missing
    assert "nothing was captured" not in done.stderr
    assert f"{files} files in {root}; the probe that wrote them does not say whether that is all" in done.stderr
    assert done.stderr.endswith(f"next: assay opcheck {root}\n")


def test_what_another_probe_left_in_an_earlier_run_is_not_of_this_one(tmp_path):
    # Given ait's folder, which every run uses again, with a report of ten seconds ago
    program = tmp_path / "program.sh"
    program.write_text(OTHER_PROBE.replace("msit_dump_$ATB_TIMESTAMP", "ait_dump"))
    words = ("--type", "cpu_profiling", "--exec")
    first = dump(tmp_path / "out", *words, f"sh {program} none", name="ait")
    assert "nothing was captured" not in first.stdout + first.stderr
    for path in (tmp_path / "out").rglob("operation_statistic_*"):
        os.utime(path, (path.stat().st_mtime - 10,) * 2)
    second = dump(tmp_path / "out", *words, "true", name="ait")
    assert "nothing was captured" in second.stdout + second.stderr


def test_ait_leaves_the_text_form_below_ait_dump(hosts, tmp_path):
    done = dump(tmp_path / "out", "--type", "cpu_profiling", "tensor", "--exec", f"{hosts[1]} --atb 8.0", name="ait")
    assert done.returncode == 0, done.stderr
    root = root_of(tmp_path / "out", "ait_dump")
    (folder,) = (root / "cpu_profiling").iterdir()
    assert re.fullmatch(r"\d{8}_\d{6}", folder.name)  # {TIMESTAMP} of its documents
    text = (folder / "operation_statistic_1.txt").read_text()
    assert re.match(r"\w+:\n\[execute\] .*\n\[setup\] totalTime:.*\n\n", text)
    # -time 1, the default of its documents: all after the operation
    assert {path.parent.name for path in (root / "tensors").rglob("*.bin")} == {"after"}


@pytest.mark.parametrize(("name", "time"), [("msit", "3"), ("ait", "2")])
def test_old_names_capture_the_same_tensors_with_the_same_options(hosts, full_run, tmp_path, name, time):
    done = dump(tmp_path / "out", "-time", time, "--type", "tensor", "-er", "0,0", "--exec", str(hosts[1]), name=name)
    assert done.returncode == 0, done.stderr
    theirs = {k: v for k, v in tree(next((tmp_path / "out").iterdir())).items() if k.startswith("tensors")}
    ours = {k: v for k, v in tree(full_run[1]).items() if k.startswith("tensors/0_PID/0/")}
    # ait has no time 3, inputs before and outputs after: of both times these are the same.
    assert {k: v for k, v in theirs.items() if k in ours} == ours
    assert (len(theirs) > len(ours)) == (time == "2")


# ---- what was lost, and why ----


@pytest.mark.parametrize(("how", "status"), [("_exit", 0), ("kill", 137), ("abort", 134)])
def test_what_a_killed_process_had_still_queued_is_counted(hosts, tmp_path, how, status):
    done = dump(tmp_path / "out", "-er", "all", "--", hosts[1], "--exit", how)
    root = root_of(tmp_path / "out")
    manifest = json.loads((root / "manifest.json").read_text())
    stored = len(list((root / "tensors").rglob("*.bin")))
    assert done.returncode == status
    assert manifest["captured"] in (stored, stored - 1)  # killed between the rename and the count
    (process,) = manifest["processes"]
    assert process["complete"] is False
    if missing := manifest["planned"] - manifest["captured"]:
        assert f"{missing} tensor" in done.stderr
        assert "--sync writes at once" in done.stderr


FILES_OF_12_KIB = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (12 << 10, 12 << 10))
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_tensors_of_which_none_could_be_stored_are_not_said_to_have_been_filtered(hosts, tmp_path):
    # Given a program that may not write files as large as the outputs: 8 tokens x 1024 x 2 bytes
    host = [sys.executable, "-c", FILES_OF_12_KIB, hosts[1], "--hidden", "1024", "--layers", "1", "--steps", "0"]
    # When the outputs of its first operation are captured
    done = dump(tmp_path / "out", "--type", "tensor", "-ids", "0", "-child", "false", "-stp", "1", "--", *host)
    # Then the reason is the writing, not a filter
    assert done.returncode == 0, done.stderr
    assert list(root_of(tmp_path / "out").rglob("*.bin")) == []
    assert re.search(r"nothing was captured: \d+ tensors? passed the filters, none was stored\n", done.stderr)


def test_a_write_error_is_said_once_and_the_end_adds_how_many_it_were(hosts, tmp_path):
    # Given three operations whose inputs and outputs are larger than any file may be
    host = [sys.executable, "-c", FILES_OF_12_KIB, hosts[1], "--hidden", "1024", "--layers", "2", "--steps", "0"]
    done = dump(tmp_path / "out", "--type", "tensor", "-stp", "1", "--", *host)
    root = root_of(tmp_path / "out")
    (summary,) = root.glob("probe_summary_*.json")
    failed = json.loads(summary.read_text())["tensors"]["failed"]
    # Then the probe says the first one when it happens, and the command how many there were
    assert failed > 1
    assert done.stderr.count("File too large") == 1, done.stderr
    assert f": {failed} tensors could not be written; {summary} has the first error\n" in done.stderr
    (missed,) = [m for m in json.loads((root / "manifest.json").read_text())["missed"] if m["count"] == failed]
    assert "File too large" in missed["reason"]


def test_an_error_that_costs_no_tensor_is_said_once(scripted_host, tmp_path):
    # Given a host whose topology cannot be read
    done = dump(tmp_path / "out", "--type", "layer", "--", scripted_host, "odd")
    (summary,) = root_of(tmp_path / "out").glob("probe_summary_*.json")
    error = json.loads(summary.read_text())["first_error"]
    assert error != ""
    assert done.stderr.count(error) == 1, done.stderr
    assert f"an error left its dump incomplete; {summary} has it\n" in done.stderr


def test_tensors_that_the_probe_passes_over_are_counted_with_the_reason(scripted_host, tmp_path):
    # Given a host that hands over what no file can hold
    done = dump(tmp_path / "out", "--type", "tensor", "-er", "all", "--", scripted_host, "odd")
    (summary,) = root_of(tmp_path / "out").glob("probe_summary_*.json")
    skipped = json.loads(summary.read_text())["skipped"]
    # Then each kind is one line with how many there were; of tests/capture/test_atb_probe.py
    assert (skipped["size"], skipped["header"]) == (5, 2)
    for count, why in (
        (f"{skipped['size']} tensors", "empty, larger than 10 GiB, or not readable"),
        (f"{skipped['header']} tensors", "format, dtype or dims are longer than 50 characters"),
        (f"{skipped['name']} tensors", "the path cannot be a path of the dump"),
    ):
        assert done.stderr.count(f": {count} missing: {why}\n") == 1, done.stderr
    # and the probe has said the first of each kind, once.
    assert done.stderr.count("a tensor has 0 bytes and was not saved") == 1, done.stderr
    assert done.stderr.count("has more than 50 characters or a line feed") == 1, done.stderr


@pytest.mark.parametrize("how", ["_exit", "kill"])
def test_written_at_once_nothing_is_lost(hosts, full_run, tmp_path, how):
    done = dump(tmp_path / "out", "--sync", "--type", "tensor", "-er", "all", "--", hosts[1], "--exit", how)
    theirs = {k: v for k, v in tree(root_of(tmp_path / "out")).items() if k.startswith("tensors")}
    assert theirs == {k: v for k, v in tree(full_run[1]).items() if k.startswith("tensors")}
    assert "missing" not in done.stderr


def test_graphs_and_tables_are_made_after_a_failure_too(hosts, tmp_path):
    words = ["--sync", "--type", "onnx", "cpu_profiling", "--", hosts[1], "--exit", "kill"]
    done = dump(tmp_path / "out", *words)
    root = root_of(tmp_path / "out")
    assert done.returncode == 137
    assert list(root.rglob("*.onnx"))
    assert not list(root.rglob("operation_statistic_*.txt"))
    assert [path.name for path in (tmp_path / "out").iterdir()] == [root.name]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-ids", "77"], "no operation matches -ids '77'; these ids ran: 0_0, 0, 0_0_0, 1_0, "),
        (
            ["-ids", "77", "-opname", "nothing"],
            "no operation matches -ids '77' or -opname 'nothing'; these ran: Gather",
        ),
        (["-opname", "liner"], "no operation matches -opname 'liner'; did you mean -opname linear? these ran: Gather"),
        (["-er", "90,99"], "no step of an operation was in the range 90,99 (-er)\n"),
        (["-device", "3"], "no operation ran on device 3 (--device-id)\n"),
    ],
)
def test_a_choice_that_fits_nothing_is_told(hosts, tmp_path, words, why):
    done = dump(tmp_path / "out", *words, "--", hosts[1])
    assert done.returncode == 0
    [warning] = [line for line in done.stderr.splitlines(keepends=True) if "warning" in line]  # one sentence, no more
    assert warning.startswith(f"assay: warning: no tensor was captured: {why}")


@pytest.mark.parametrize("name", ["assay", "msit"])
def test_steps_that_never_came_are_told(hosts, tmp_path, name):
    # Given a host with one prompt and three decoding steps: its prompt's operations run once, the others three times
    words = ["-er", "0,1,7,7,9,12", *(["--", str(hosts[1])] if name == "assay" else ["--exec", str(hosts[1])])]
    done = dump(tmp_path / "out", *words, name=name)
    assert done.returncode == 0, done.stderr
    told = re.search(r"the steps (\S+) \(-er\) were not reached: the operations ran (\d) times at most", done.stderr)
    assert told and told.group(1) == "7,9-12" and told.group(2) in "34", done.stderr
    reached = dump(tmp_path / "all", "-er", "0,1", *words[2:], name=name)
    assert "not reached" not in reached.stderr


def test_a_child_after_fork_has_its_own_folder(hosts, tmp_path):
    done = dump(tmp_path / "out", "--", hosts[1], "--exit", "fork")
    root = root_of(tmp_path / "out")
    pids = {path.name for path in (root / "tensors").iterdir()}
    assert len(pids) == 2
    named = re.findall(r"process (\d+) came to its end: (\d+) tensors", done.stderr)
    assert {f"0_{pid}" for pid, _ in named} == pids
    assert all(int(count) > 0 for _, count in named)
    assert "of 2 processes" in done.stderr


def test_the_configuration_file_chooses(hosts, tmp_path):
    config = tmp_path / "config.json"
    config.write_text('{"dump_enable":"true","er":"0,0","ids":"1","child":"false","device":""}')
    config.chmod(0o640)
    done = dump(tmp_path / "out", "--type", "tensor", "-config", config, "--", hosts[1])
    assert done.returncode == 0, done.stderr
    tops = {path.parent.parent.name for path in (root_of(tmp_path / "out") / "tensors").rglob("*.bin")}
    assert len(tops) == 1
    assert tops.pop().startswith("1_")


# ---- errcheck ----


@pytest.mark.parametrize("name", ["assay", "msit"])
def test_errcheck_names_the_kernels_that_overflow(hosts, tmp_path, name):
    words = ["-o", tmp_path, "--", hosts[1], "--overflow"]
    done = run("errcheck", *words) if name == "assay" else run("llm", "errcheck", *words, name=name)
    (result,) = tmp_path.glob("msit_overflow_res_*.txt")
    first = result.read_text().splitlines()[0]
    assert re.fullmatch(r"Overflow detected! Operator name: \w+:\w+", first)
    assert first in done.stderr
    assert done.returncode == (1 if name == "assay" else 0)
    assert result.stat().st_mode & 0o777 == 0o600


def test_errcheck_stops_at_the_first_when_asked(hosts, tmp_path):
    done = run("errcheck", "--exit", "-o", tmp_path, "--", hosts[1], "--overflow")
    (result,) = tmp_path.glob("msit_overflow_res_*.txt")
    assert len(result.read_text().splitlines()) == 1
    assert done.returncode == 3  # the host's own status for a failed operation


def test_errcheck_of_a_healthy_program_finds_nothing(hosts, tmp_path):
    done = run("errcheck", "-o", tmp_path, "--", hosts[1])
    assert (done.returncode, done.stderr) == (0, "assay: no overflow was reported\n")


# ---- what was captured is compared ----


def test_two_equal_runs_of_statistics_differ_nowhere(hosts, tmp_path):
    for side in ("golden", "mine"):
        assert dump(tmp_path / side, "--type", "stats", "--", hosts[1]).returncode == 0
    done = run("compare", tmp_path / "golden", tmp_path / "mine", "--stats", "-o", tmp_path / "report")
    assert done.returncode == 0
    assert not re.search(r"differs:|pairs differ", done.stdout + done.stderr)


def test_a_fault_shows_in_the_statistics(hosts, tmp_path):
    dump(tmp_path / "golden", "--type", "stats", "--", hosts[1])
    dump(tmp_path / "mine", "--type", "stats", "--", hosts[1], "--fault", "dropped_scale")
    done = run("compare", tmp_path / "golden", tmp_path / "mine", "--stats", "-o", tmp_path / "report")
    differing = re.search(r"(\d+) of (\d+) pairs differ", done.stdout + done.stderr)
    assert 0 < int(differing[1]) < int(differing[2])


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ('{"dump_enable":"false"}', "has dump_enable false"),
        ("{}", "does not set dump_enable to true"),
        ('{"dump_enable":"true","er":"90,95"}', "no step of an operation was in the range 90,95 (er in "),
        ('{"dump_enable":"true","er":"0,0","ids":"77"}', "let no operation through"),
    ],
)
def test_a_configuration_file_that_lets_nothing_through_is_blamed_itself(hosts, tmp_path, config, why):
    file = tmp_path / "config.json"
    file.write_text(config)
    file.chmod(0o640)
    done = dump(tmp_path / "out", "--type", "tensor", "-config", file, "--", hosts[1])
    assert why in done.stderr
    assert "(-er)" not in done.stderr


def test_processes_of_one_run_of_ait_do_not_share_a_folder_of_statistics(tmp_path):
    program = tmp_path / "program.sh"
    program.write_text(OTHER_PROBE.replace("msit_dump_$ATB_TIMESTAMP", "ait_dump"))
    both = tmp_path / "both.sh"
    both.write_text(f"sh {program} '[A_1]:totalTime:7'\nsh {program} '[A_1]:totalTime:8'\n")
    done = dump(tmp_path / "out", "--type", "cpu_profiling", "--exec", f"sh {both}", name="ait")
    assert done.returncode == 0, done.stderr
    first, second = sorted(path.name for path in (tmp_path / "out/ait_dump/cpu_profiling").iterdir())
    assert re.fullmatch(r"\d{8}_\d{6}", first) and second == f"{first}_1"


def test_a_second_run_below_ait_dump_counts_its_own_files_only(hosts, tmp_path):
    words = ["--type", "tensor", "cpu_profiling", "-er", "0,0", "--"]
    first = dump(tmp_path / "out", *words, hosts[1], name="ait")
    texts = {path: path.read_bytes() for path in (tmp_path / "out").rglob("operation_statistic_*.txt")}
    second = dump(tmp_path / "out", *words, hosts[1], name="ait")

    def counts(done):
        return [line.split(" - INFO - ")[1] for line in done.stderr.splitlines() if " of 1 process in " in line]

    assert counts(first) == counts(second) and len(counts(first)) == 1
    tables = [re.search(r"(\d+) profiling table", done.stderr).group(1) for done in (first, second)]
    assert tables[0] == tables[1] == str(len(texts))
    assert {path: path.read_bytes() for path in texts} == texts
    both = run("compare", *[tmp_path / "out" / "ait_dump"] * 2, "-o", tmp_path / "report")
    assert "golden holds 2 runs of 2 processes, one after the other" in both.stdout + both.stderr
    assert "mine holds 2 runs of 2 processes" in both.stdout + both.stderr
    assert ", ranks 0" not in both.stdout
    shown = run("show", tmp_path / "out" / "ait_dump")
    head = shown.stdout.splitlines()[0]
    assert ", 2 runs of 2 processes" in head and "ranks" not in head
    moment = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    life = rf"rank (\d) is process (\d+), from {moment} to {moment}"
    said = re.search(rf"device \d+ has tensors of several processes: {life}, {life}; (.*)", shown.stdout)
    pids = [json.loads(p.read_text())["pid"] for p in sorted((tmp_path / "out").rglob("probe_summary_*.json"))]
    assert sorted([int(said.group(2)), int(said.group(4))]) == sorted(pids)
    # Only the manifest of the second run, which replaced the first one's, tells runs within a second apart.
    assert said.group(5).startswith("each is of another run, one after the other;")
    (tmp_path / "out" / "ait_dump" / "manifest.json").unlink()
    summaries = sorted((tmp_path / "out").rglob("probe_summary_*.json"))
    for path, (started, ended), words in [
        (summaries[0], ("2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"), "each is of another run"),
        (summaries[1], ("2026-01-01T00:00:05Z", "2026-01-01T00:00:15Z"), "they ran together, as ranks of one run do"),
        (summaries[1], ("2026-01-01T00:00:09Z", "2026-01-01T00:00:15Z"), "one run after the other cannot be told"),
        (summaries[0], ("2026-01-01T00:00:00Z", None), "one run after the other cannot be told"),
    ]:
        path.write_text(json.dumps({**json.loads(path.read_text()), "started": started, "ended": ended}))
        assert words in run("show", tmp_path / "out" / "ait_dump").stdout, words
