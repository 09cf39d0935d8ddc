# SPDX-License-Identifier: Apache-2.0
"""A host with the probe preloaded: what it finds on disk, and that it never notices."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess

import probe_host
import pytest
from probe_host import EVERYTHING, HEADER, LIBRARY, record, run, script, status_page_counters, without_pid

HALVES = bytes.fromhex("003c00c000380000 8042ff7b")
ALL_TYPES = "tensor|model|layer|op|kernel|cpu_profiling"


# What holds of a file a tensor alone: its lists and links, its modes, the original's texts of numbers, what becomes of
# one that cannot be written.
OF_FILES_ALONE = {
    "test_the_lists_name_the_files_that_are_there",
    "test_the_output_folder_may_be_relative_and_without_slash",
    "test_both_string_abis_leave_identical_trees",
    "test_a_library_without_the_newest_questions_leaves_the_same_tree",
    "test_statistics_and_descriptions",
    "test_identical_tensors_become_relative_links",
    "test_a_forked_child_has_its_own_folder_and_counters",
    "test_closed_descriptors_do_no_harm",
    "test_no_file_of_ours_takes_the_place_of_a_standard_stream",
    "test_a_file_size_limit_ends_nothing",
    "test_modes_of_files_and_folders",
    "test_without_memory_a_tensor_is_lost_and_counted",
}


def pytest_generate_tests(metafunc):
    layouts = ["strict"] if metafunc.function.__name__ in OF_FILES_ALONE else ["strict", "native"]
    metafunc.parametrize("layout", layouts, indirect=True)


@pytest.fixture(autouse=True)
def layout(request, monkeypatch):
    monkeypatch.setattr(probe_host, "LAYOUT", {"ASSAY_PROBE_LAYOUT": request.param})
    return request.param


def stored(summary: dict) -> int:
    """Tensors that are there, also those whose bytes an earlier one has."""
    return summary["tensors"]["written"] + summary["tensors"]["linked"]


# ---- what is captured -------------------------------------------------------------------------------------------


def test_a_nested_graph_leaves_the_tree_of_the_original(tmp_path):
    ran = run(tmp_path, "pid=77", "nested=2", ATB_DUMP_TYPE=ALL_TYPES, ATB_SAVE_TILING="1")
    assert (ran.status, ran.stdout) == (0, "done\n")
    layer = "0_77/1/1_Decoder_layer"
    kernel = f"{layer}/0_Attention/1_LinearOperation/1_AddKernel"
    tensors = ran.files()
    assert tensors[f"{kernel}/before/intensor0.bin"] == HEADER + HALVES
    assert tensors[f"{kernel}/after/outtensor0.bin"] == HEADER + b"\x01" + HALVES[1:]
    assert tensors[f"{layer}/0_Attention/1_LinearOperation/op_param.json"] == b'{"transposeB":true}\n'
    # depth: layer, graph, operation, kernel; graphs have no parameters
    assert {f"{layer}/before/intensor0.bin", f"{layer}/0_Attention/after/outtensor0.bin"} <= tensors.keys()
    assert f"{layer}/0_Attention/op_param.json" not in tensors
    # -time 3: inputs before, outputs after
    assert not [name for name in tensors if "before/outtensor" in name or "after/intensor" in name]
    assert ran.files("tiling")[f"{kernel}/kernel_tilingdata.bin"] == bytes([7]) * 32
    pid = str(ran.summary["pid"])
    model = json.loads(ran.files("model")[f"{pid}/M.json"])
    assert [node["opName"] for node in model["nodes"]] == ["WordEmbedding_0", "Decoder_layer_1"]
    assert set(ran.files("layer")) == {f"{pid}/WordEmbedding_0.json", f"{pid}/Decoder_layer_1.json"}
    statistic = ran.files("cpu_profiling")[f"{pid}/operation_statistic_2.txt"].decode()
    assert statistic.splitlines()[0] == "[Decoder_layer_1]:totalTime:535, runnerCreateTime:120"


def test_the_lists_name_the_files_that_are_there(tmp_path):
    ran = run(tmp_path, "pid=77", "nested=1", ATB_DUMP_TYPE="tensor|op|kernel")
    for kind, count in (("operation", 4), ("kernel", 5)):
        (path,) = (ran.dump / f"{kind}_io_tensors").rglob("*.csv")
        lines = path.read_text().splitlines()
        assert len(lines) == 1 + count
        for number, line in enumerate(lines[1:], start=1):
            cells = line.split("|")
            assert cells[0] == str(number) and len(cells) == 21
            for file, place in ((cells[14], "before/intensor0.bin"), (cells[15], "after/outtensor0.bin")):
                assert file.endswith(place)
                assert os.path.isfile(file)


def test_without_tensors_the_lists_leave_the_file_cells_empty(tmp_path):
    ran = run(tmp_path, "nested=1", ATB_DUMP_TYPE="op|kernel")
    (path,) = (ran.dump / "kernel_io_tensors").rglob("*.csv")
    assert path.read_text().splitlines()[1].split("|")[14:16] == ["", ""]


def test_operations_count_their_own_runs(tmp_path):
    ran = run(tmp_path, "pid=7", "two", ATB_SAVE_TENSOR_RANGE="1,2", ATB_SAVE_TENSOR_IDS="0,1", ATB_SAVE_CHILD="0")
    folders = {"/".join(name.split("/")[1:3]) for name in ran.files()}
    # operation 0 ran as 0 and 1, operation 1 as 0, 1 and 2
    assert folders == {"1/0_LinearOperation", "1/1_LinearOperation", "2/1_LinearOperation"}


def test_both_string_abis_leave_identical_trees(tmp_path):
    trees = []
    for abi in (0, 1):
        ran = run(
            tmp_path / str(abi), "pid=7", "nested=2", "odd", abi=abi, ATB_DUMP_TYPE=ALL_TYPES, ATB_SAVE_TILING="1"
        )
        assert ran.status == 0
        trees.append(without_pid(ran.dump))
    assert trees[0] == trees[1]
    assert len(trees[0]) > 50


def test_a_library_without_the_newest_questions_leaves_the_same_tree(tmp_path):
    """Before CANN 8.3 there is neither UpdateConfig nor IsSaveTensorInSpecificDir."""
    new = run(tmp_path / "new", "pid=7", "nested=2", ATB_DUMP_TYPE=ALL_TYPES)
    old = run(tmp_path / "old", "old", "pid=7", "nested=2", ATB_DUMP_TYPE=ALL_TYPES)
    assert old.summary["asked"]["in_dir"] == 0 < new.summary["asked"]["in_dir"]
    assert without_pid(old.dump) == without_pid(new.dump)
    config = tmp_path / "config.json"
    config.write_text('{"dump_enable":"true","er":"all"}')
    config.chmod(0o600)
    steered = run(tmp_path / "steered", "old", "two", ATB_DUMP_CONFIG=str(config))
    assert "does not ask about folders" in steered.summary["notes"][0]


def test_statistics_and_descriptions(tmp_path):
    ran = run(tmp_path / "stats", "pid=7", "again", ATB_SAVE_TENSOR_STATISTICS="1", ASSAY_PROBE_STATISTICS_TEXT="f")
    name = "0_7/0/0_LinearOperation/before/intensor0.bin"
    description = b"$Version=1.0\n$Object.Count=0\n$Object.Length=0\nformat=2\ndtype=1\ndims=2,3\n"
    numbers = b"max=65504.000000\nmin=-2.000000\nmean=10917.791667\nl2norm=65504.000121\n"
    assert ran.files()[name] == description + numbers + b"$End=1\n"
    ran = run(tmp_path / "desc", "pid=7", "again", ATB_SAVE_TENSOR="2")
    assert ran.files()[name] == description + b"$End=1\n"
    ran = run(tmp_path / "exact", "pid=7", "again", ATB_DUMP_TYPE="stats", ATB_SAVE_TENSOR="2")
    numbers = b"max=65504\nmin=-2\nmean=10917.791666666666\nl2norm=65504.000121183446\nnan_count=0\ninf_count=0\n"
    got = ran.files()[name]
    assert re.sub(rb"l2norm=.*", b"", got) == re.sub(rb"l2norm=.*", b"", description + numbers + b"$End=1\n")
    assert float(re.search(rb"l2norm=(.*)", got)[1]) == pytest.approx(4290774031.8125**0.5, rel=1e-15)


def test_identical_tensors_become_relative_links(tmp_path):
    ran = run(tmp_path, "pid=7", "identical", ATB_SAVE_SYMLINK="1", ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER="0")
    folder = ran.dump / "tensors/0_7/0/0_Op/after"
    assert ran.summary["tensors"]["linked"] == 2
    # outtensor0 got other bytes at the end; the others kept theirs
    assert (folder / "outtensor0.bin").read_bytes()[-4096:] == b"\4" + b"\3" * 4095
    for name in ("outtensor1.bin", "outtensor2.bin"):
        assert (folder / name).read_bytes()[-4096:] == b"\3" * 4096
    links = [path for path in folder.iterdir() if path.is_symlink()]
    assert [os.readlink(link) for link in links] == ["outtensor1.bin"]


def test_repeated_execute_replaces_its_files(tmp_path):
    once = run(tmp_path / "once", "pid=7", "two")
    again = run(tmp_path / "again", "pid=7", "again")
    name = "0_7/0/0_LinearOperation/after/outtensor0.bin"
    assert again.files()[name] == once.files()[name]


def test_devices_are_filtered_everywhere(tmp_path):
    ran = run(tmp_path, "device=1", "nested=1", ATB_DEVICE_ID="0,2", ATB_DUMP_TYPE=ALL_TYPES, ATB_SAVE_TILING="1")
    # The topology comes before any path names the device, and without the vendor's library nobody can ask for it.
    assert {path.name for path in ran.dump.iterdir() if path.is_dir()} <= {"layer", "model", "cpu_profiling"}
    assert ran.summary["files"]["operation_rows"] == 0


def test_overflows_are_written_at_once_and_stop_only_when_asked(tmp_path):
    ran = run(tmp_path, "two", "_exit", ATB_DUMP_TYPE="-", ATB_CHECK_TYPE="1")
    assert ran.status == 0
    (result,) = tmp_path.iterdir()
    assert re.fullmatch(r"msit_overflow_res_\d+\.txt", result.name)
    assert stat.S_IMODE(result.stat().st_mode) == 0o600
    lines = result.read_text().split("\n")
    assert lines[0] == "Overflow detected! Operator name: LinearOperation_0:MatMulKernel"
    assert len(lines) == 10  # five runs of two kernels
    stopped = run(tmp_path / "stop", "two", ATB_DUMP_TYPE="-", ATB_CHECK_TYPE="1", ATB_EXIT="1")
    (result,) = stopped.out.iterdir()
    assert len(result.read_text().split("\n")) == 5


def test_an_overflow_check_and_a_configuration_file_that_wakes_up_later(tmp_path):
    config = tmp_path / "config.json"
    config.write_text('{"dump_enable":false}')
    config.chmod(0o600)
    enabled = '{"dump_enable":true,"exec_range":"all"}'
    ran = run(
        tmp_path / "not" / "yet",
        "pid=7",
        "two",
        f"write={config}:{enabled}",
        "config",
        "again",
        ATB_OUTPUT_DIR=f"{tmp_path}/new/folder",
        ATB_DUMP_TYPE="-",
        ATB_CHECK_TYPE="1",
        ATB_DUMP_CONFIG=str(config),
        ASSAY_PROBE_RELOAD_MS="0",
    )
    assert (ran.status, ran.stdout) == (0, "done\n")
    folder = tmp_path / "new" / "folder"
    assert len(list(folder.glob("msit_overflow_res_*.txt"))) == 1
    assert (folder / "msit_dump/tensors/0_7/0/0_LinearOperation/before/intensor0.bin").exists()


def test_topology_files_are_listed_for_the_command(tmp_path):
    ran = run(
        tmp_path,
        "nested=1",
        ATB_DUMP_TYPE="model|onnx",
        ATB_DUMP_SUB_PROC_INFO_SAVE_PATH=str(tmp_path / "4711"),
    )
    listed = (tmp_path / "4711" / "subprocess_info.txt").read_text().splitlines()
    assert [os.path.basename(path) for path in listed] == ["WordEmbedding_0.json", "Decoder_layer_1.json", "M.json"]
    assert all(os.path.isfile(path) for path in listed)
    assert ran.summary["files"]["layers"] == 2


# ---- the configuration file -------------------------------------------------------------------------------------


def test_a_configuration_file_steers_the_running_host(tmp_path):
    config = tmp_path / "config.json"
    config.write_text('{"dump_enable":"false","er":"all"}')
    config.chmod(0o600)
    enabled = '{"dump_enable":"true","er":"all","ids":"1","child":"false"}'
    ran = run(
        tmp_path / "out",
        "pid=7",
        "nested=1",
        f"write={config}:{enabled}",
        "config",
        "two",
        ATB_DUMP_CONFIG=str(config),
        ATB_SAVE_TENSOR_IDS="0",  # the file rules
        ASSAY_PROBE_RELOAD_MS="0",
    )
    assert ran.status == 0
    # nested ran while it was off; of "two" only operation 1 is in the list
    assert {name.split("/")[2] for name in ran.files()} == {"1_LinearOperation"}
    assert {name.split("/")[1] for name in ran.files()} == {"0", "1", "2"}


def test_a_configuration_file_of_msprobe_needs_no_command(tmp_path):
    config = tmp_path / "config.json"
    config.write_text('{"task":"all","dump_enable":true,"exec_range":"all","save_child":false}')
    config.chmod(0o600)
    ran = run(
        tmp_path / "out", "pid=7", "nested=1", ATB_DUMP_CONFIG=str(config), ATB_DUMP_TYPE="-", ATB_SAVE_TENSOR="-"
    )
    names = set(ran.files())
    assert "0_7/0/1_Decoder_layer/before/intensor0.bin" in names
    assert not [name for name in names if "0_Attention" in name]
    record = ran.files()["0_7/0/1_Decoder_layer/before/intensor0.bin"]
    assert b"\nmax=65504\n" in record and record.endswith(HALVES)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"dump_enable":"true","er":7}', "must be a string"),
        ('{"dump_enable":"true","ids":[1]}', "must be a string"),
        ("{", "no valid JSON"),
        ("[" * 100_000, "no valid JSON"),
        ("", "no valid JSON"),
    ],
)
def test_a_bad_configuration_file_is_one_line_and_no_failure(tmp_path, text, sentence):
    config = tmp_path / "config.json"
    config.write_text(text)
    config.chmod(0o600)
    ran = run(tmp_path / "out", "nested=3", ATB_DUMP_CONFIG=str(config), ASSAY_PROBE_RELOAD_MS="0")
    assert (ran.status, ran.stdout) == (0, "done\n")
    assert len(ran.stderr.splitlines()) == 1 and sentence in ran.stderr and str(config) in ran.stderr


def test_old_values_stay_in_force_after_a_bad_change(tmp_path):
    config = tmp_path / "config.json"
    config.write_text('{"dump_enable":"true","er":"all","child":"false"}')
    config.chmod(0o600)
    ran = run(
        tmp_path / "out",
        "pid=7",
        f"write={config}:broken",
        "config",
        "two",
        ATB_DUMP_CONFIG=str(config),
        ASSAY_PROBE_RELOAD_MS="0",
    )
    # The first call read the broken file: nothing was in force before.
    assert not (ran.dump / "tensors").exists()
    config.write_text('{"dump_enable":"true","er":"all","child":"false"}')
    ran = run(
        tmp_path / "again",
        "pid=7",
        "config",
        f"write={config}:broken",
        "config",
        "two",
        ATB_DUMP_CONFIG=str(config),
        ASSAY_PROBE_RELOAD_MS="0",
    )
    assert len(ran.files()) > 0


# ---- the host's contract ----------------------------------------------------------------------------------------


def test_hostile_arguments_are_checked_like_a_file(tmp_path):
    ran = run(tmp_path / "out", "pid=7", "odd", ATB_DUMP_TYPE=ALL_TYPES, ATB_SAVE_TILING="1")
    assert (ran.status, ran.stdout) == (0, "done\n")
    assert not (tmp_path / "outside").exists() and not os.path.exists("/outside")
    skipped = ran.summary["skipped"]
    assert skipped["size"] == 5  # twice empty, 20 GiB, 2^64-1, 4 bytes that claim to be 9 GiB
    assert skipped["null"] == 1
    assert skipped["header"] == 2
    assert skipped["name"] == 3  # out of the dump, absolute, empty
    files = ran.files()
    assert files["0_7/0/0_Op/after/outtensor1.bin"].endswith(b"dims=\n$Object.data=0,2\n$End=1\n\x00\x3c")  # rank 0
    assert "0_7/0/0_a_plug_in_/after/outtensor0.bin" in files  # unusual names are kept, cleaned
    assert max(name.count("/") for name in files) > 40  # no limit of depth
    assert ran.summary["first_error"] != ""  # the damaged topology
    assert ran.summary["tensors"]["lost"] == 0


HOSTILE = ["", " ", "-1", "1e400", "99999999999999999999", "\u00e9\u00e9", "../../..", "%s%n%n", "a" * 100_000]


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_environment_values(tmp_path, value):
    names = [
        "ATB_SAVE_TENSOR_TIME",
        "ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER",
        "ATB_SAVE_TENSOR_IDS",
        "ATB_SAVE_TENSOR_RUNNER",
        "ATB_SAVE_CHILD",
        "ATB_SAVE_TENSOR_RANGE",
        "ATB_SAVE_TENSOR_PART",
        "ATB_SAVE_TILING",
        "ATB_TIMESTAMP",
        "ATB_DEVICE_ID",
        "ATB_AIT_LOG_LEVEL",
        "ATB_DUMP_SUB_PROC_INFO_SAVE_PATH",
        "ATB_CHECK_TYPE",
        "ASSAY_ATB_DUMP_NAME",
        "ASSAY_PROBE_QUEUE_BYTES",
        "ASSAY_PROBE_ON_FULL",
        "ASSAY_PROBE_RELOAD_MS",
    ]
    out = tmp_path / "in" / "out"
    ran = run(out, "nested=1", **{name: value for name in names}, cwd=tmp_path)
    assert (ran.status, ran.stdout) == (0, "done\n")
    # The subprocess list may be named anywhere, the dump lies in its folder.
    (dump,) = (path for path in out.iterdir() if path.name.startswith(("msit_dump", "_", "-", "1", "9", ".", "a")))
    assert list(dump.glob("probe_summary_*.json"))


def test_the_output_folder_may_be_relative_and_without_slash(tmp_path):
    ran = run(tmp_path, "pid=7", "two", ATB_OUTPUT_DIR="sub/./x//", cwd=tmp_path)
    assert ran.status == 0
    assert (tmp_path / "sub/./x/msit_dump/tensors/0_7").is_dir()
    ran = run(tmp_path, "pid=7", "two", ATB_OUTPUT_DIR="~/y", HOME=str(tmp_path))
    assert (tmp_path / "y/msit_dump/tensors/0_7").is_dir()
    ran = run(tmp_path, "pid=7", "two", ATB_OUTPUT_DIR="-", cwd=tmp_path)
    assert (tmp_path / "msit_dump/tensors/0_7").is_dir()
    # the start folder counts, wherever the host goes later
    ran = run(tmp_path, "pid=7", "again", "chdir=/", "two", ATB_OUTPUT_DIR="z", cwd=tmp_path)
    assert (tmp_path / "z/msit_dump/tensors/0_7/2").is_dir()


def test_a_folder_that_cannot_be_made_is_one_line_and_no_failure(tmp_path):
    (tmp_path / "file").write_text("")
    ran = run(tmp_path, "nested=3", "threads", ATB_OUTPUT_DIR=f"{tmp_path}/file/out")
    assert (ran.status, ran.stdout) == (0, "done\n")
    (line,) = ran.stderr.splitlines()
    assert line.startswith("assay: error: ") and str(tmp_path) in line
    assert line.endswith("capture off, the run continues")


def test_threads_lose_nothing(tmp_path):
    ran = run(tmp_path, "pid=7", "threads", ASSAY_PROBE_QUEUE_BYTES="5000")
    assert ran.status == 0
    tensors = ran.summary["tensors"]
    # 4 threads, 25 runs, an operation and two kernels, one input and one output of two each
    assert tensors["seen"] == 4 * 25 * 3 * 4
    assert stored(ran.summary) == 4 * 25 * 3 * 2 == len([n for n in ran.files() if n.endswith(".bin")])
    assert ran.summary["bytes"]["queue_peak"] <= 5000


@pytest.mark.parametrize("leave", ["fork", "fork_exit_now"])
def test_a_forked_child_has_its_own_folder_and_counters(tmp_path, leave):
    variables = {} if leave == "fork" else {"ASSAY_PROBE_SYNC": "1"}
    ran = run(tmp_path, "two", leave, "two", **variables)
    assert (ran.status, ran.stdout) == (0, "done\n")
    assert len(list((ran.dump / "tensors").iterdir())) == 2  # 0_<parent>, 0_<child>
    child_folder = next(f for f in (ran.dump / "tensors").iterdir() if (f / "0/5_LinearOperation").exists())
    child = child_folder.name[2:]
    assert len(list(child_folder.rglob("*.bin"))) == 6
    summaries = {str(s["pid"]): s for s in ran.summaries()}
    if leave == "fork":
        assert summaries[child]["tensors"]["written"] == 6
    else:  # _exit: the page tells what the summary cannot
        page = (ran.dump / f"probe_status_{child}").read_bytes()
        assert status_page_counters(page)["written"] == 6
    (parent,) = [s for pid, s in summaries.items() if pid != child]
    assert parent["tensors"]["written"] == 60 and parent["complete"]


@pytest.mark.parametrize(("end", "status"), [("_exit", 0), ("kill", -9), ("abort", -6)])
def test_a_sudden_end_leaves_whole_files_and_a_page_that_tells_what_is_lost(tmp_path, end, status, layout):
    ran = run(tmp_path, "pid=7", "large=40", end, ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER="0")
    assert ran.status == status
    (page,) = ran.dump.glob("probe_status_*")
    counters = status_page_counters(page.read_bytes())
    assert counters["accepted"] == 40
    whole = ran.files()
    assert counters["written"] + counters["linked"] <= len(whole)
    if layout == "strict":
        assert len(whole) <= counters["written"] + 1  # renamed, and not yet counted
    for name, content in whole.items():
        number = int(re.search(r"outtensor(\d+).bin", name)[1])
        assert content == record("4", "1048576", bytes([number]) * 1048576)


def test_what_was_taken_is_on_the_disk_soon_when_the_host_pauses(tmp_path):
    """A server goes on after the runs that were asked for, and is killed some day."""
    ran = run(tmp_path, "pid=7", "large=3", "two", "pause=1000", "kill", ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER="0")
    assert ran.status == -9
    (page,) = ran.dump.glob("probe_status_*")
    counters = status_page_counters(page.read_bytes())
    assert counters["accepted"] == counters["written"] + counters["linked"]
    assert counters["accepted"] == len([name for name in ran.files() if name.endswith(".bin")])


def test_synchronous_mode_loses_nothing_at_a_sudden_end(tmp_path):
    ran = run(tmp_path, "pid=7", "large=10", "kill", ASSAY_PROBE_SYNC="1", ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER="0")
    assert ran.status == -9
    assert len(ran.files()) == 10


def test_destructors_of_the_host_may_still_call(tmp_path):
    ran = run(tmp_path, "pid=7", "late", "two")
    assert (ran.status, ran.stdout) == (0, "done\n")
    assert ran.files()["0_7/0/0_Op/after/outtensor99.bin"] == HEADER + HALVES
    assert stored(ran.summary) == 5 * 3 * 2 + 1
    assert not list(ran.dump.glob("probe_status_*"))


def test_errno_rounding_flags_folder_signals_are_left_as_found(tmp_path):
    for variables in ({}, {"ATB_SAVE_TENSOR_STATISTICS": "1"}, {"ASSAY_PROBE_SYNC": "1"}):
        ran = run(tmp_path, "state", ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER="0", **variables)
        assert (ran.status, ran.stdout) == (0, "done\n")


def test_a_locale_with_decimal_comma_changes_no_number(tmp_path):
    made = subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", tmp_path / "de_DE.UTF-8"], capture_output=True)
    if made.returncode != 0:
        pytest.skip("the definitions of locales are not installed")
    variables = {"ATB_SAVE_TENSOR_STATISTICS": "1", "LOCPATH": str(tmp_path)}
    ran = run(tmp_path / "out", "locale=de_DE.UTF-8", "pid=7", "again", **variables)
    assert ran.status == 0
    assert b"mean=10917.79" in ran.files()["0_7/0/0_LinearOperation/before/intensor0.bin"]


def test_closed_descriptors_do_no_harm(tmp_path):
    ran = run(tmp_path, "pid=7", "two", "close_all", "nested=1", ATB_DUMP_TYPE=ALL_TYPES)
    assert (ran.status, ran.stdout, ran.stderr) == (0, "done\n", "")
    assert ran.summary["tensors"]["lost"] == ran.summary["tensors"]["failed"] == 0


def test_a_file_that_took_the_place_of_stderr_stays_clean(tmp_path):
    mine = tmp_path / "data"
    ran = run(tmp_path / "out", "two", f"steal_stderr={mine}", "odd")
    assert ran.status == 0 and ran.summary["skipped"]["size"] == 5
    assert mine.read_bytes() == b""


def test_no_file_of_ours_takes_the_place_of_a_standard_stream(tmp_path):
    """A host that closed its streams still prints to 0, 1 and 2. Here no other descriptor is left: we rather fail."""
    ran = run(tmp_path, "again", "close_stdin", "descriptor_limit=3", "two", ASSAY_PROBE_SYNC="1")
    assert (ran.status, ran.stdout) == (0, "done\n")
    (page,) = ran.dump.glob("probe_status_*")
    counters = status_page_counters(page.read_bytes())
    assert counters["failed"] == 5 * 3 * 2 and counters["written"] == 2 * 3 * 2


def test_a_file_size_limit_ends_nothing(tmp_path):
    for variables in ({}, {"ASSAY_PROBE_SYNC": "1"}):
        out = tmp_path / str(len(variables))
        ran = run(out, "file_limit=5000", "large=3", "odd", ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER="0", **variables)
        assert (ran.status, ran.stdout) == (0, "done\n")  # SIGXFSZ would have been -25
        assert ran.summary["tensors"]["failed"] == 3
        assert "File too large" in ran.summary["first_error"]
        assert not list(ran.dump.rglob("*.tmp*"))


def test_no_descriptor_left_ends_nothing(tmp_path):
    ran = run(tmp_path, "pid=7", "descriptor_limit=3", "two", ASSAY_PROBE_SYNC="1")
    assert (ran.status, ran.stdout) == (0, "done\n")
    assert "capture off" in ran.stderr


def test_an_almost_full_disk_is_left_alone(tmp_path):
    ran = run(tmp_path, "nested=1", ASSAY_PROBE_DISK_RESERVE=str(1 << 60))
    assert (ran.status, ran.stdout) == (0, "done\n")
    assert ran.summary["skipped"]["disk"] > 0 and ran.summary["tensors"]["accepted"] == 0
    assert len(ran.stderr.splitlines()) == 1
    assert not (ran.dump / "tensors").exists()


def test_a_full_disk_ends_nothing(tmp_path):
    """A file system of 6 MB in a mount namespace of its own, filled by 20 tensors of 1 MiB."""
    try_out = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", str(tmp_path)]
    if subprocess.run(try_out, capture_output=True).returncode != 0:
        pytest.skip("no mount namespaces here")
    small = tmp_path / "small"
    kept = tmp_path / "kept"
    small.mkdir()
    environment = {**EVERYTHING, "ATB_OUTPUT_DIR": str(small), "ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER": "0"}
    for policy in ({}, {"ASSAY_PROBE_SYNC": "1"}):
        run_host = f"LD_PRELOAD={LIBRARY} {script()} pid=7 large=20"
        inside = (
            f"mount -t tmpfs -o size=6m tmpfs {small} && ({run_host}); s=$?; cp -r {small} {kept}{len(policy)}; exit $s"
        )
        done = subprocess.run(
            ["unshare", "-rm", "sh", "-c", inside],
            env={**environment, **policy, "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
        dump = tmp_path / f"kept{len(policy)}" / "msit_dump"
        found = list(dump.glob("probe_summary_*.json"))
        if found:
            counters = json.loads(found[0].read_text())["tensors"]
        else:  # not even the summary fitted: the page was allocated at the start
            counters = status_page_counters(next(dump.glob("probe_status_*")).read_bytes())
        files = list((dump / "tensors").rglob("*.bin"))
        assert 3 <= len(files) == counters["written"] <= 6
        assert counters["seen"] == 20
        assert all(path.stat().st_size > 1 << 20 for path in files)


def test_a_dump_that_is_removed_meanwhile_comes_back(tmp_path):
    ran = run(tmp_path, "pid=7", "two", f"remove={tmp_path}/msit_dump", "nested=1", ASSAY_PROBE_SYNC="1")
    assert (ran.status, ran.stdout) == (0, "done\n")
    assert len(ran.files()) > 0


def test_modes_of_files_and_folders(tmp_path):
    previous = os.umask(0)
    try:
        ran = run(tmp_path, "pid=7", "nested=1", ATB_DUMP_TYPE=ALL_TYPES)
    finally:
        os.umask(previous)
    for path in ran.dump.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o750 if path.is_dir() else 0o640), path


def test_off_leaves_no_trace(tmp_path):
    for variables in ({"ATB_DUMP_TYPE": "-"}, {"ATB_DUMP_TYPE": "nonsense"}):
        ran = run(tmp_path, "nested=2", "odd", "threads", "late", **variables)
        assert (ran.status, ran.stdout, ran.stderr) == (0, "done\n", "")
        assert list(tmp_path.iterdir()) == []


def test_the_summary_says_what_was_asked_when_nothing_matched(tmp_path):
    ran = run(tmp_path / "ids", "nested=2", ATB_SAVE_TENSOR_IDS="99")
    asked = ran.summary["asked"]
    assert asked["need_save"] > 0 and asked["need_save_yes"] == 0
    ran = run(tmp_path / "range", "nested=2", ATB_SAVE_TENSOR_RANGE="100,200")
    asked = ran.summary["asked"]
    assert asked["need_save_yes"] > 0 and asked["in_range"] > 0 and asked["in_range_yes"] == 0
    assert ran.summary["tensors"]["seen"] == 0


def test_notes_about_what_the_library_cannot_tell(tmp_path):
    ran = run(tmp_path / "some", "nested=1", "stale", ATB_DUMP_TYPE=ALL_TYPES, ATB_SAVE_TILING="1")
    notes = " ".join(ran.summary["notes"])
    for part in ("kernels behind the first", "replayed"):
        assert part in notes
    assert "resets its statistics" not in notes  # the nested operations report times
    ran = run(tmp_path / "zeros", "stale", ATB_DUMP_TYPE=ALL_TYPES)
    assert "resets its statistics" in " ".join(ran.summary["notes"])


def test_the_writer_thread_is_named_and_blocks_all_signals(tmp_path):
    ran = run(tmp_path, "again", "thread")
    assert (ran.status, ran.stdout) == (0, "done\n")


def test_without_memory_a_tensor_is_lost_and_counted(tmp_path):
    ran = run(tmp_path, "two", "no_memory", ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER="0")
    assert (ran.status, ran.stdout) == (0, "done\n")
    assert ran.summary["tensors"]["failed"] == 1
    assert "no memory" in ran.summary["first_error"]


def test_a_signal_handler_may_exit_in_the_middle_of_a_call(tmp_path):
    """exit() runs our handler while a call of ours holds its locks: it must not wait for itself."""
    for sync in ("0", "1"):
        variables = {"ASSAY_PROBE_SYNC": sync, "ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER": "0"}
        assert run(tmp_path / sync, "exit_in_handler", **variables).status == 9
