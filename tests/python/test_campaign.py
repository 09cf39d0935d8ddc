# SPDX-License-Identifier: Apache-2.0
"""Campaigns (bench/campaign): what a run leaves, what the next one goes on from, and what is called a failure."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Optional

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import record_lines  # noqa: E402
from bench.campaign import kill_programs, kills, large, page  # noqa: E402
from bench.campaign.__main__ import main  # noqa: E402
from bench.campaign.campaign import FAILED, MISTAKE, OK, Campaign, Case, Result, Workplace  # noqa: E402
from bench.campaign.fuzzing import Fuzzing  # noqa: E402
from bench.campaign.state import Identity, State  # noqa: E402
from bench.report import Row, Section  # noqa: E402


class Counting(Campaign):
    """Cases that write their name, process and time into a file, and then do what the test wants."""

    title = "Counting"
    about = ("Cases are counted.",)
    weight = 1.0
    timeout_s = 30.0
    columns = ["", "cases"]

    def __init__(
        self, ledger: Path, count: Optional[int] = None, seconds: float = 0.0, bad: str = "", name: str = "counting"
    ) -> None:
        self.name = name
        self.ledger = ledger
        self.count = count
        self.seconds = seconds
        self.bad = dict(word.split("=") for word in bad.split())

    def cases(self, seed: int) -> Iterator[Case]:
        numbers = itertools.count() if self.count is None else range(self.count)
        return (Case(f"s{seed}-{number}") for number in numbers)

    def sample(self) -> Iterable[Case]:
        return [Case("sample-0"), Case("sample-1")]

    def case_of(self, name: str) -> Case:
        if "-" not in name:
            raise ValueError("no such case")
        return Case(name)

    def run(self, case: Case, work: Workplace) -> Result:
        with open(self.ledger, "a") as file:
            file.write(f"{case.name} {os.getpid()} {time.monotonic()}\n")
        (work.scratch / case.name).write_text("output")
        time.sleep(self.seconds)
        what = self.bad.get(case.name, OK)
        if what == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if what == "raise":
            raise RuntimeError("it is broken")
        if what == "hang":
            subprocess.run(["sleep", "100"], check=False)
        return {"outcome": what, "reason": f"{what} | as asked"}

    def rows(self, results: list[Result]) -> list[Row]:
        return [Row("all | of them", {"cases": str(len(results))})]

    def ran(self) -> list[str]:
        """Names of the cases that were begun, in order."""
        return [line.split()[0] for line in self.ledger.read_text().splitlines()]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def campaign(state: Path, *arguments: str, of: Campaign, commit: str = "abc1234") -> int:
    """Runs the command on one campaign; publishes beside its state."""
    words = ["--state", str(state), "--docs", str(state.parent / "docs"), *arguments]
    return main(words, campaigns=[of], commit=commit)


def lines(state: Path, name: str = "counting/results.jsonl") -> list[dict]:
    return [json.loads(line) for line in (state / name).read_text().splitlines()]


# ---- going on


def test_a_second_run_goes_on_behind_the_finished_cases(tmp_path: Path, state: Path) -> None:
    first = Counting(tmp_path / "ledger", count=3)
    assert campaign(state, of=first) == 0
    assert campaign(state, of=Counting(tmp_path / "ledger", count=5)) == 0
    assert first.ran() == [f"s1-{number}" for number in range(5)]
    header, *results = lines(state)
    assert (header["commit"], header["seed"]) == ("abc1234", 1)
    assert [result["case"] for result in results] == first.ran()
    assert list((state / "counting" / "scratch").iterdir()) == []


def test_another_commit_or_seed_begins_anew_and_the_first_one_can_come_back(tmp_path: Path, state: Path) -> None:
    counting = Counting(tmp_path / "ledger", count=2)
    assert campaign(state, of=counting) == 0
    assert campaign(state, of=counting, commit="def5678") == 0
    assert campaign(state, "--seed", "7", of=counting) == 0
    assert counting.ran() == ["s1-0", "s1-1"] * 2 + ["s7-0", "s7-1"]
    assert lines(state, "counting/results-abc1234-1.jsonl")[0]["commit"] == "abc1234"
    assert lines(state, "counting/results-def5678-1.jsonl")[0]["commit"] == "def5678"

    assert campaign(state, of=Counting(tmp_path / "ledger", count=3)) == 0
    assert counting.ran()[6:] == ["s1-2"]  # the other two are those of the first run
    assert not (state / "counting" / "results-abc1234-1.jsonl").exists()


@pytest.mark.parametrize("damage", [b'{"case": "s1-2", "outc', b"\0\0\0\0\0\n", b'["no object"]\n'])
def test_a_line_that_is_half_written_is_dropped(tmp_path: Path, state: Path, damage: bytes) -> None:
    counting = Counting(tmp_path / "ledger", count=2)
    assert campaign(state, of=counting) == 0
    with open(state / "counting" / "results.jsonl", "ab") as file:
        file.write(damage)
    assert campaign(state, of=Counting(tmp_path / "ledger", count=4)) == 0
    assert counting.ran() == ["s1-0", "s1-1", "s1-2", "s1-3"]
    assert [result["case"] for result in lines(state)[1:]] == counting.ran()


def start_in_a_process(tmp_path: Path, state: Path) -> subprocess.Popen[str]:
    """An endless campaign in a process of its own; returns when it has finished five cases."""
    script = (
        "import sys; from pathlib import Path\n"
        f"sys.path[:0] = [{str(ROOT)!r}, {str(Path(__file__).parent)!r}]\n"
        "from test_campaign import Counting, campaign\n"
        f"sys.exit(campaign(Path({str(state)!r}), of=Counting(Path({str(tmp_path / 'ledger')!r}), seconds=0.02)))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    results = state / "counting" / "results.jsonl"
    while not results.exists() or results.read_bytes().count(b"\n") < 6:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    return process


def test_after_a_kill_only_the_case_in_hand_runs_again(tmp_path: Path, state: Path) -> None:
    process = start_in_a_process(tmp_path, state)
    process.kill()
    process.communicate()
    finished = [result["case"] for result in lines(state)[1:] if "case" in result]
    counting = Counting(tmp_path / "ledger", count=len(finished) + 3)
    worker = int(counting.ledger.read_text().splitlines()[-1].split()[1])
    assert gone(Path(f"/proc/{worker}").exists), "the worker outlives its campaign"
    begun = counting.ran()
    assert campaign(state, of=counting) == 0
    again = counting.ran()[len(begun) :]
    assert set(again).isdisjoint(finished)
    assert [result["case"] for result in lines(state)[1:]] == [f"s1-{number}" for number in range(len(finished) + 3)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_with_a_summary_and_how_to_go_on(tmp_path: Path, state: Path, number: signal.Signals) -> None:
    process = start_in_a_process(tmp_path, state)
    process.send_signal(number)
    output, errors = process.communicate(timeout=20)
    assert process.returncode == 130, errors
    assert "all | of them" in output
    assert f"this goes on: {'.venv/bin/python' if '.venv' in sys.executable else sys.executable}" in errors
    assert f"--state {state}" in errors
    assert all(result["outcome"] == OK for result in lines(state)[1:])


def test_two_campaigns_in_one_folder_are_refused(tmp_path: Path, state: Path, capfd: pytest.CaptureFixture) -> None:
    process = start_in_a_process(tmp_path, state)
    try:
        assert campaign(state, of=Counting(tmp_path / "other", count=1)) == 2
        assert "error: another campaign runs in" in capfd.readouterr().err
        assert not (tmp_path / "other").exists()
    finally:
        process.terminate()
        process.communicate()


# ---- bounds


def test_no_case_begins_when_the_time_is_up(tmp_path: Path, state: Path) -> None:
    counting = Counting(tmp_path / "ledger", seconds=0.05)
    begin = time.monotonic()
    assert campaign(state, "--minutes", "0.01", of=counting) == 0
    starts = [float(line.split()[2]) for line in counting.ledger.read_text().splitlines()]
    assert len(starts) >= 2
    assert max(starts) - begin < 0.6 + 0.05
    assert len(lines(state)) == 1 + len(starts)  # the one in hand was allowed to end


def test_no_case_begins_that_takes_longer_than_what_is_left(tmp_path: Path, state: Path) -> None:
    counting = Counting(tmp_path / "ledger", seconds=0.05)
    counting.least_s = 60.0
    assert campaign(state, "--minutes", "0.9", of=counting) == 0
    assert not counting.ledger.exists()


def test_campaigns_share_the_time_by_weight(tmp_path: Path, state: Path) -> None:
    heavy = Counting(tmp_path / "heavy", seconds=0.02, name="heavy")
    heavy.weight = 4.0
    light = Counting(tmp_path / "light", seconds=0.02, name="light")
    assert main(["--state", str(state), "--minutes", "0.02"], campaigns=[heavy, light], commit="c") == 0
    assert len(heavy.ran()) > len(light.ran()) > 0


def test_no_time_runs_nothing(tmp_path: Path, state: Path) -> None:
    counting = Counting(tmp_path / "ledger")
    assert campaign(state, "--minutes", "0", of=counting) == 0
    assert not counting.ledger.exists()


def test_a_case_that_takes_too_long_fails_and_what_it_started_ends(
    tmp_path: Path, state: Path, capfd: pytest.CaptureFixture
) -> None:
    counting = Counting(tmp_path / "ledger", count=2, bad="s1-0=hang")
    counting.timeout_s = 0.5
    assert campaign(state, of=counting) == 1
    assert counting.ran() == ["s1-0", "s1-1"]
    assert "took longer than 0.5 s" in capfd.readouterr().err
    worker = counting.ledger.read_text().split()[1]
    assert gone(lambda: any(session_of(entry) == worker for entry in os.listdir("/proc") if entry.isdigit()))


def gone(there: Callable[[], bool]) -> bool:
    """Whether something goes away: the kernel takes a moment to end a killed process."""
    deadline = time.monotonic() + 10
    while there() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not there()


def session_of(process: str) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[3]
    except OSError:
        return ""


def test_two_jobs_run_every_case_once_and_a_group_in_one_process(tmp_path: Path, state: Path) -> None:
    class Grouped(Counting):
        def cases(self, seed: int) -> Iterator[Case]:
            return (Case(f"s-{number}", group=f"g{number // 4}") for number in range(12))

    grouped = Grouped(tmp_path / "ledger", seconds=0.01)
    assert campaign(state, "--jobs", "2", of=grouped) == 0
    assert sorted(grouped.ran()) == sorted(f"s-{number}" for number in range(12))
    processes: dict[int, set[str]] = {0: set(), 1: set(), 2: set()}
    for line in grouped.ledger.read_text().splitlines():
        name, process, _ = line.split()
        processes[int(name.split("-")[1]) // 4].add(process)
    assert all(len(of_group) == 1 for of_group in processes.values())
    assert len(set.union(*processes.values())) == 2


# ---- sample, failures, arguments


def test_the_sample_is_fixed_and_made_anew_each_time(tmp_path: Path, state: Path) -> None:
    counting = Counting(tmp_path / "ledger")
    assert campaign(state, "--sample", of=counting) == 0
    assert campaign(state, "--sample", "--seed", "5", "--minutes", "0", of=counting) == 0
    assert counting.ran() == ["sample-0", "sample-1"] * 2
    assert len(lines(state, "counting/sample.jsonl")) == 1 + 2
    assert not (state / "counting" / "results.jsonl").exists()


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (FAILED, "failed | as asked"),
        ("raise", "! counting/s1-1: failed: RuntimeError: it is broken"),
        ("crash", "the process of the case died, signal SIGSEGV\nFatal Python error: Segmentation fault"),
    ],
)
def test_a_failure_is_printed_with_its_command_and_the_others_go_on(
    tmp_path: Path, state: Path, capfd: pytest.CaptureFixture, what: str, reason: str
) -> None:
    counting = Counting(tmp_path / "ledger", count=3, bad=f"s1-1={what}")
    assert campaign(state, of=counting) == 1
    errors = capfd.readouterr().err
    assert "! counting/s1-1: failed: " in errors
    assert reason in errors
    assert "python -m bench.campaign --repeat counting/s1-1\n" in errors
    assert counting.ran() == ["s1-0", "s1-1", "s1-2"]
    assert [result["outcome"] for result in lines(state)[1:]] == [OK, FAILED, OK]


def test_a_mistake_is_a_figure_but_a_failure_of_the_sample(tmp_path: Path, state: Path) -> None:
    counting = Counting(tmp_path / "ledger", count=1, bad=f"s1-0={MISTAKE} sample-1={MISTAKE}")
    assert campaign(state, of=counting) == 0
    assert campaign(state, "--sample", of=counting) == 1


def test_what_is_not_available_is_no_failure(tmp_path: Path, state: Path, capfd: pytest.CaptureFixture) -> None:
    assert campaign(state, "--sample", of=Fuzzing(tmp_path / "absent")) == 0
    assert "not available: no fuzzer is built" in capfd.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--only", "nonsense"],
        ["--repeat", "counting/nonsense"],
        ["--repeat", "nonsense/s1-0"],
        ["--jobs", "0"],
        ["--sample", "--publish"],
    ],
)
def test_wrong_arguments_are_a_usage_error(
    tmp_path: Path, state: Path, capsys: pytest.CaptureFixture, arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        campaign(state, *arguments, of=Counting(tmp_path / "ledger", count=1))
    assert error.value.code == 2
    assert "error: " in capsys.readouterr().err
    assert not (tmp_path / "ledger").exists()


def test_a_repeated_case_keeps_its_output(tmp_path: Path, state: Path, capsys: pytest.CaptureFixture) -> None:
    counting = Counting(tmp_path / "ledger", bad=f"s1-4={FAILED}")
    assert campaign(state, "--repeat", "counting/s1-3", of=counting) == 0
    assert campaign(state, "--repeat", "counting/s1-4", of=counting) == 1
    assert counting.ran() == ["s1-3", "s1-4"]
    assert (state / "counting" / "repeat" / "s1-3" / "s1-3").read_text() == "output"
    assert '"reason": "failed | as asked"' in capsys.readouterr().out


# ---- the page


def test_results_are_published_as_json_and_page(tmp_path: Path, state: Path) -> None:
    counting = Counting(tmp_path / "ledger", count=3, bad=f"s1-1={FAILED}")
    assert campaign(state, "--publish", of=counting, commit="abc1234-dirty") == 1
    data = json.loads((tmp_path / "docs" / "results" / "counting.json").read_text())
    assert (data["commit"], data["dirty"], data["seed"], data["cases"]) == ("abc1234-dirty", True, 1, 3)
    assert data["outcomes"] == {OK: 2, MISTAKE: 0, FAILED: 1, "not available": 0}
    assert {"cpu", "cores", "memory", "date"} <= set(data["machine"]) and data["date"].endswith("UTC")
    assert [bad["case"] for bad in data["bad"]] == ["s1-1"]

    text = (tmp_path / "docs" / "campaign.md").read_text()
    assert "Commit `abc1234-dirty`, with changes that are not committed" in text
    assert "| all \\| of them | 3 |" in text
    assert "| failed | failed \\| as asked | `" in text
    assert "--repeat counting/s1-1` |" in text


def test_the_page_is_made_of_what_was_published(tmp_path: Path, state: Path) -> None:
    assert campaign(state, "--page", of=Counting(tmp_path / "ledger")) == 0
    assert "Nothing has been published yet." in (tmp_path / "docs" / "campaign.md").read_text()
    counting = Counting(tmp_path / "ledger", count=1)
    assert campaign(state, "--publish", of=counting) == 0
    whole = (tmp_path / "docs" / "campaign.md").read_text()
    (tmp_path / "docs" / "campaign.md").unlink()
    assert campaign(state, "--page", of=counting) == 0
    assert (tmp_path / "docs" / "campaign.md").read_text() == whole
    assert "Nothing has been published yet." not in whole


def test_the_page_of_the_checkout_is_up_to_date(tmp_path: Path) -> None:
    made = tmp_path / "campaign.md"
    page.write_page(ROOT / "docs" / "benchmarks" / "results", made)
    assert made.read_text() == (ROOT / "docs" / "benchmarks" / "campaign.md").read_text()


# ---- fuzzing

FUZZER = """#!/bin/sh
# libFuzzer's manner: statistics on stderr; this one crashes with an even seed
for word in "$@"; do case $word in -seed=*[02468]) crash=1;; -artifact_prefix=*) prefix=${word#*=};; esac; done
echo "$@" >> LEDGER
if [ -n "$crash" ]; then
  echo bad > "${prefix}crash-1"
  echo "==1==ERROR: AddressSanitizer: heap-buffer-overflow" >&2
  echo "SUMMARY: AddressSanitizer: heap-buffer-overflow npy.cpp:7" >&2
  echo "artifact_prefix='$prefix'; Test unit written to ${prefix}crash-1" >&2
fi
echo "stat::number_of_executed_units: 1234" >&2
echo "stat::new_units_added:          5" >&2
[ -z "$crash" ] || exit 77
"""


@pytest.fixture
def fuzzing(tmp_path: Path) -> Fuzzing:
    program = tmp_path / "fuzz" / "src" / "npy_fuzz"
    program.parent.mkdir(parents=True)
    program.write_text(FUZZER.replace("LEDGER", str(tmp_path / "fuzz.ledger")))
    program.chmod(0o755)
    (tmp_path / "fuzz" / "not_built_fuzz").write_text("no program")
    (tmp_path / "src" / "npy_fuzz_corpus").mkdir(parents=True)
    return Fuzzing(tmp_path / "fuzz", tmp_path / "src")


def workplace(tmp_path: Path) -> Workplace:
    (tmp_path / "scratch").mkdir()
    return Workplace(tmp_path / "scratch", tmp_path / "kept")


def test_a_fuzzer_works_on_its_kept_corpus_and_is_counted(tmp_path: Path, fuzzing: Fuzzing) -> None:
    assert next(fuzzing.cases(3)).name.startswith("npy_fuzz-")
    result = fuzzing.run(Case("npy_fuzz-7-30s"), workplace(tmp_path))
    assert result == {"outcome": OK, "executions": 1234, "found": 5}
    words = (tmp_path / "fuzz.ledger").read_text().split()
    assert {"-seed=7", "-max_total_time=30"} < set(words)
    # The first folder is the one that libFuzzer writes to.
    assert words[-2:] == [str(tmp_path / "kept/corpus/npy_fuzz"), str(tmp_path / "src/npy_fuzz_corpus")]
    (row,) = fuzzing.rows([{"case": "npy_fuzz-7-30s", **result}, {"case": "npy_fuzz-9-30s", **result}])
    assert (row.cells["executions"], row.cells["failed"]) == ("2468", "0")


def test_a_crash_fails_and_is_repeated_with_its_input(tmp_path: Path, fuzzing: Fuzzing) -> None:
    result = fuzzing.run(Case("npy_fuzz-8-30s"), workplace(tmp_path))
    assert result["outcome"] == FAILED
    assert result["reason"] == "AddressSanitizer: heap-buffer-overflow npy.cpp:7"
    program, crash = result["repeat"].split()
    assert program == str(tmp_path / "fuzz/src/npy_fuzz")
    assert Path(crash).read_text() == "bad\n"


def test_the_fuzzers_sample_starts_from_the_seeds(tmp_path: Path, fuzzing: Fuzzing) -> None:
    (case,) = fuzzing.sample()
    assert fuzzing.run(case, workplace(tmp_path))["outcome"] == OK
    words = (tmp_path / "fuzz.ledger").read_text().split()
    assert "-runs=2000" in words
    assert words[-2] == str(tmp_path / "scratch/corpus/npy_fuzz")


# ---- kills


def captured(folder: Path, steps: int = 3, data: str = "full", weights: bool = False) -> Path:
    torch = pytest.importorskip("torch")
    import assay

    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    with torch.no_grad(), assay.capture(model, folder, data=data, weights=weights):
        for _ in range(steps):
            model(torch.randn(2, 4))
    return folder


def as_killed(folder: Path, keep: Optional[int] = None) -> list[dict]:
    """Makes a run one that was killed, after `keep` records; returns these."""
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "complete": False, "finished": None}))
    path = folder / "rank0" / "records.jsonl"
    kept = path.read_text().splitlines(keepends=True)[:keep]
    path.write_text("".join(kept))
    return record_lines.whole(kept)


def compared(tmp_path: Path) -> int:
    import assay

    return kills.compare(assay.open(tmp_path / "killed"), assay.open(tmp_path / "lived"))


def test_the_beginning_of_a_run_is_right_as_far_as_it_goes(tmp_path: Path) -> None:
    captured(tmp_path / "lived")
    captured(tmp_path / "killed")
    as_killed(tmp_path / "killed", keep=8)
    assert compared(tmp_path) == 8


def test_another_byte_in_a_killed_run_is_seen(tmp_path: Path) -> None:
    captured(tmp_path / "lived")
    captured(tmp_path / "killed")
    record = as_killed(tmp_path / "killed")[5]
    with open(tmp_path / "killed" / "rank0" / record["file"], "r+b") as file:
        file.seek(record["offset"])
        byte = file.read(1)[0]
        file.seek(record["offset"])
        file.write(bytes([byte ^ 1]))
    with pytest.raises(kills.Wrong, match="the bytes are not those of the run that lived"):
        compared(tmp_path)


def test_statistics_that_are_not_those_of_the_bytes_are_seen(tmp_path: Path) -> None:
    for side in ("lived", "killed"):  # both are wrong in the same way: only the bytes can tell
        captured(tmp_path / side)
        path = tmp_path / side / "rank0" / "records.jsonl"
        records = as_killed(tmp_path / side)
        records[5]["stats"]["mean"] += 1e-6
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises(kills.Wrong, match="those of its bytes are"):
        compared(tmp_path)


@pytest.mark.parametrize("data", ["full", "stats"])
def test_values_of_another_seed_are_seen(tmp_path: Path, data: str) -> None:
    captured(tmp_path / "lived", data=data)
    captured(tmp_path / "killed", data=data)
    path = tmp_path / "killed" / "rank0" / "records.jsonl"
    records = as_killed(tmp_path / "killed")
    records[5]["stats"]["max"] += 1
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises(kills.Wrong, match="statistics"):
        compared(tmp_path)


def test_a_hole_is_seen(tmp_path: Path) -> None:
    captured(tmp_path / "lived")
    captured(tmp_path / "killed")
    path = tmp_path / "killed" / "rank0" / "records.jsonl"
    records = as_killed(tmp_path / "killed")
    missing = next(record for record in records if record["step"] == 1 and record["role"] == "output")
    path.write_text("".join(json.dumps(record) + "\n" for record in records if record is not missing))
    with pytest.raises(kills.Wrong, match="lacks 1 records before its end"):
        compared(tmp_path)


def test_a_run_that_is_called_complete_must_be_whole(tmp_path: Path) -> None:
    captured(tmp_path / "lived")
    captured(tmp_path / "killed", steps=2)
    with pytest.raises(kills.Wrong, match="lacks 6 records"):
        compared(tmp_path)


def test_a_run_killed_before_its_first_record_lacks_nothing(tmp_path: Path) -> None:
    captured(tmp_path / "lived", weights=True)  # these have step -1
    captured(tmp_path / "killed", weights=True)
    as_killed(tmp_path / "killed", keep=0)
    assert compared(tmp_path) == 0


def test_a_temporary_file_that_is_a_record_is_seen(tmp_path: Path) -> None:
    for side in ("lived", "killed"):
        captured(tmp_path / side)
    rank = tmp_path / "killed" / "rank0"
    records = as_killed(tmp_path / "killed")
    (rank / f"{records[0]['file']}.tmp").write_bytes((rank / records[0]["file"]).read_bytes())
    records[0]["file"] += ".tmp"
    (rank / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises(kills.Wrong, match="is a temporary file"):
        compared(tmp_path)


def test_what_the_command_says_is_held_against_the_run(tmp_path: Path) -> None:
    import assay

    captured(tmp_path / "run", steps=1)
    run = assay.open(tmp_path / "run")
    count = len(run.records)
    for told in (count, count - 1):  # killed between the last file and its count
        kill_programs.Atb().check_count(run, f"assay: {told} tensors (1 kB) of 1 process in there\n")
    for words in (f"assay: {count + 1} tensors (1 kB)", f"assay: {count - 2} tensors (1 kB)", "nothing was captured"):
        with pytest.raises(kills.Wrong, match=f"there are {count} tensors"):
            kill_programs.Atb().check_count(run, words)
    with pytest.raises(kills.Wrong, match="records, but"):
        kill_programs.Ggml().check_count(run, "assay: warning: nothing was captured")


def test_kills_are_the_same_for_the_same_number() -> None:
    drawn = kills.Kills()
    names = [case.name for case in itertools.islice(drawn.cases(4), 8)]
    assert names == [case.name for case in itertools.islice(drawn.cases(4), 8)]
    assert {name.rpartition("-")[0] for name in names[: len(kills.HOSTS)]} == set(kills.HOSTS)
    assert kills.plan_of(17) == kills.plan_of(17) != kills.plan_of(18)
    assert [case.name for case in drawn.sample()] == [case.name for case in drawn.sample()]
    for wrong in ("full", "full-x", "nobody-17"):
        with pytest.raises(ValueError):
            drawn.case_of(wrong)


# A process of its own: one that has threads must not fork hosts.
@pytest.mark.slow
@pytest.mark.parametrize("host", list(kills.HOSTS))
def test_a_host_is_killed_and_what_is_left_is_right(tmp_path: Path, host: str) -> None:
    pytest.importorskip("torch")
    # 2 closes its capture meanwhile, 3 captures until the end.
    for number in (2, 3):
        name = f"kills/{host}-{number}"
        words = [sys.executable, "-m", "bench.campaign", "--repeat", name, "--state", str(tmp_path)]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert json.loads(done.stdout)["outcome"] == OK


# ---- large runs


@pytest.mark.slow
def test_a_large_run_is_captured_opened_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    runs = large.Large()
    work = workplace(tmp_path)
    result = runs.run(Case("small-10-1"), work)
    assert (result["outcome"], result["records"]) == (OK, 1020), result["reason"]
    assert list(work.scratch.iterdir()) == []

    monkeypatch.setattr(large, "COMPARE_BASE", 1 << 20)
    monkeypatch.setattr(large, "COMPARE_A_RECORD", 0)
    result = runs.run(Case("small-10-1"), work)
    assert result["outcome"] == FAILED
    assert "the bound is 1 MiB" in result["reason"]


def test_the_twin_of_a_large_run_differs_in_one_bit(tmp_path: Path) -> None:
    import random

    import assay

    golden = captured(tmp_path / "golden")
    large._copy_with_another_bit(golden, tmp_path / "twin", random.Random(1))
    pairs = list(zip(assay.open(golden).records, assay.open(tmp_path / "twin").records))
    changed = {one.file + str(one.step) for one, other in pairs if one.numpy().tobytes() != other.numpy().tobytes()}
    assert len(changed) == 1
    bits = [
        bin(int.from_bytes(one.numpy().tobytes(), "big") ^ int.from_bytes(other.numpy().tobytes(), "big")).count("1")
        for one, other in pairs
    ]
    assert set(bits) == {0, 1}


# ---- verdicts


def test_every_case_of_the_laboratory_is_found_by_its_name() -> None:
    pytest.importorskip("transformers")
    from bench.faults import faults, lab
    from bench.faults.families import LARGER

    families, kinds = (*LARGER, "qwen3", "mamba2", "qwen2_moe", "bert"), tuple(faults.KINDS)
    cases = list(lab.fault_cases(families, (3, 104729), kinds, strengths=(1.0, 0.5, 0.1)))
    cases += lab.fault_cases(("gemma2", "mamba2"), (0,), kinds, shaped=True, decode=8)
    cases += lab.fault_cases(("llama",), (0,), kinds, coarse=True)
    cases += lab.healthy_cases(families, (3,), tuple(lab.PAIRS))
    cases.append(lab.Case("neox", 1, "epsilon", "hidden", 4, pair="decomposed", width=256))
    assert len({case.name for case in cases}) == len(cases) > 1000
    for case in cases:
        assert lab.case_of(case.name) == case
    for wrong in ("llama-0", "nobody-0-bfloat16", "llama-0-bfloat16-nothing-hidden-layer1-1", "llama-0-bfloat16-x"):
        with pytest.raises(ValueError):
            lab.case_of(wrong)


def test_verdicts_are_judged_by_what_was_planted() -> None:
    pytest.importorskip("transformers")
    from bench.campaign import verdicts
    from bench.faults import lab

    faulty = lab.Case("llama", 0, "epsilon", "hidden", 1)
    place = "model.layers.1.post_attention_layernorm"

    def judged(case: lab.Case, outcome: str, first: Optional[str] = None) -> str:
        return verdicts.judge(lab.Result(case, "O", place if case.kind else "", outcome, first))

    assert judged(faulty, "first_wrong", place) == verdicts.NAMED
    assert judged(faulty, "first_wrong", "model.norm") == verdicts.MISNAMED
    assert judged(faulty, "clean") == verdicts.MISSED
    assert judged(faulty, "cannot_judge") == verdicts.NOT_JUDGED
    small = lab.Result(faulty, "O", place, "clean", size=3e-3, rounding=1e-2, power=4e-3)
    assert verdicts.judge(small) == verdicts.BELOW
    larger = lab.Result(faulty, "O", place, "clean", size=5e-3, rounding=1e-2, power=4e-3)
    assert verdicts.judge(larger) == verdicts.MISSED
    other = lab.Case("llama", 0, "other-tokens", "visible")
    assert judged(other, "cannot_judge") == verdicts.NOT_JUDGED
    assert judged(other, "first_wrong", "model.norm") == verdicts.FALSE_ALARM
    assert judged(other, "clean") == verdicts.MISSED
    healthy = lab.Case("llama", 0)
    assert judged(healthy, "first_wrong", "model.norm") == verdicts.FALSE_ALARM
    assert judged(healthy, "clean") == verdicts.CLEAN
    assert judged(healthy, "cannot_judge") == verdicts.HEALTHY_NOT_JUDGED


def test_verdicts_are_counted_by_level_family_kind_and_pair() -> None:
    pytest.importorskip("transformers")
    from bench.campaign import verdicts

    results = [
        {
            "case": "llama-1000-bfloat16-epsilon-hidden-layer1-1@OB",
            "outcome": MISTAKE,
            "verdicts": {"O": verdicts.NAMED, "B": verdicts.MISNAMED},
        },
        {"case": "llama-1000-bfloat16-fused@OB", "outcome": OK, "verdicts": {"O": verdicts.CLEAN, "B": verdicts.CLEAN}},
        {"case": "gpt2-1000-bfloat16-epsilon-hidden-layer1-1@OB", "outcome": FAILED, "reason": "time-out"},
        {
            "case": "gpt2-1001-bfloat16-epsilon-hidden-layer1-1@OB",
            "outcome": OK,
            "verdicts": {verdicts.NOT_PLANTED: "not planted: rounded away"},
        },
    ]
    rows = {row.name: row for row in verdicts.Verdicts().rows(results)}
    assert list(rows) == ["O: operators", "B: layer outputs", "family llama", "fault epsilon", "pair fused"]
    assert rows["O: operators"].cells[verdicts.NAMED] == "1 (100.0 %)"
    assert rows["family llama"].cells["verdicts"] == "4"
    assert rows["family llama"].cells[verdicts.NAMED] == "1 (50.0 %)"
    assert rows["fault epsilon"].cells["clean at O"] == "0 of 1"
    assert rows["pair fused"].cells["clean at O"] == "1 of 1"


def test_a_trained_model_has_sixty_healthy_worlds_and_forty_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    from bench.campaign.trained import Trained
    from bench.faults import lab, trained

    campaign = Trained()
    cases = list(campaign.cases(2))
    assert [campaign.case_of(case.name) for case in cases] == cases
    kinds = [lab.case_of(case.name.rpartition("@")[0]).kind for case in cases]
    assert len(set(cases)) == len(cases)
    assert kinds.count("") >= 60 and len(set(kinds)) >= 41
    assert {case.name.partition("-")[0] for case in [*cases, *campaign.sample()]} == {"smollm2"}
    monkeypatch.setattr(trained, "WHEELS", tmp_path)
    assert "make engines" in str(campaign.unavailable())


def test_the_cases_of_a_seed_are_a_fair_sample() -> None:
    pytest.importorskip("transformers")
    from bench.campaign import verdicts
    from bench.faults.families import DRAWN, LARGER

    drawn = verdicts.Verdicts()
    cases = list(itertools.islice(drawn.cases(2), 800))
    assert cases == list(itertools.islice(drawn.cases(2), 800))
    assert len({case.name for case in cases}) == 800
    assert [drawn.case_of(case.name) for case in cases] == cases
    families = [case.name.partition("-")[0] for case in cases]
    assert {family: families.count(family) for family in DRAWN}.keys() == set(families)
    assert max(map(families.count, DRAWN)) - min(map(families.count, DRAWN)) <= 16  # two models
    in_sample = {case.name.partition("-")[0] for case in drawn.sample()}
    assert in_sample == {*LARGER, *verdicts.IN_SAMPLE}


def test_a_state_is_of_one_commit_and_seed(tmp_path: Path) -> None:
    with State(tmp_path, Identity("c-dirty", "1", 2)) as state:
        state.add({"case": "a", "outcome": OK})
        assert state.header["commit"] == "c-dirty"
    with State(tmp_path, Identity("c-dirty", "2", 2)) as state:  # another version
        assert state.results == []


def test_a_table_says_what_its_columns_mean(tmp_path: Path) -> None:
    header = {"commit": "c", "version": "1", "seed": 1, "started": "then", "machine": machine(), "load": 0.0}
    data = page.summary(Counting(tmp_path), header, [], lambda result: "", 0.0)
    assert Section.from_json(data["table"]).notes == ["Cases are counted."]
    assert "- Cases are counted." in page.render([data])


def test_rows_by_kind_and_family_and_counts_of_zero_stay_in_the_json_file(tmp_path: Path) -> None:
    header = {"commit": "c", "version": "1", "seed": 1, "started": "then", "machine": machine(), "load": 0.0}
    data = page.summary(Counting(tmp_path), header, [], lambda result: "", 0.0)
    # given two rows that split the first one up, counts of zero and of the audit, and more mistakes than are read
    row = data["table"]["rows"][0]
    row["cells"] |= {"misnamed": "", "clean at O": "1 of 2"}
    data["table"]["columns"] += ["misnamed", "clean at O"]
    data["table"]["rows"] = [row, {**row, "name": "family llama"}, {**row, "name": "fault shifted"}]
    bad = [{"case": f"c{i}", "outcome": MISTAKE, "reason": "a; b; c; d", "command": f"do c{i}"} for i in range(30)]
    data["bad"] = [{**bad[0], "outcome": OK, "command": "do well"}, *bad]
    text = page.render([data])
    # then
    assert "family llama" not in text and "fault shifted" not in text
    assert "misnamed" not in text and "clean at O" not in text
    assert "| mistake | a; b | `do c1` |" in text and "do c2" not in text and "do well" not in text
    assert "(results/counting.json) has 2 more rows by kind and family and all 31 listed cases." in text


def machine() -> dict[str, str]:
    from bench.measure import machine as of_this

    return of_this()
