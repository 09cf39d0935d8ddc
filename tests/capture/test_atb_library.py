# SPDX-License-Identifier: Apache-2.0
"""The probe library as a file: what it exports, what it needs, what it does to processes that have no use for it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
from probe_host import BUILD, EVERYTHING, LIBRARY, ROOT, run, script, without_pid

MAP = ROOT / "src" / "capture" / "atb" / "exports.map"


def tool(*command: object) -> str:
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module", autouse=True)
def built():
    script()


def exported() -> set[str]:
    return {line.split()[-1] for line in tool("nm", "-D", "--defined-only", LIBRARY).splitlines()}


def test_it_exports_exactly_the_names_of_the_map():
    named = set(re.findall(r"^\s+(_Z\w+);", MAP.read_text(), re.MULTILINE))
    assert len(named) == 17 + 13 + 13
    assert exported() == named


def test_it_defines_every_function_of_the_stub_library_in_both_string_abis():
    for abi in (0, 1):
        stub = BUILD / "examples" / "atb_host" / f"cxx_abi_{abi}" / "lib" / "libatb.so"
        names = {line.split()[-1] for line in tool("nm", "-D", "--defined-only", stub).splitlines()}
        interface = {name for name in names if "5Probe" in name or "10SpeedProbe" in name}
        assert len(interface) == 25 + 2
        assert interface <= exported()


def test_it_leaves_the_librarys_own_helpers_alone():
    assert not [name for name in exported() if "ToProbeTensor" in name]


def test_it_needs_glibc_and_nothing_else():
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", tool("readelf", "-d", LIBRARY))
    # ld-linux: thread-local storage of the C++ runtime inside; libm: of the statistics; the others are in libc by now
    assert {re.sub(r"[-.].*", "", name) for name in needed} <= {"libc", "libm", "libpthread", "libdl", "ld"}
    undefined = tool("nm", "-D", "--undefined-only", LIBRARY).split("\n")
    foreign = [line for line in undefined if line.strip() and "@GLIBC_" not in line and line.split()[0] != "w"]
    assert foreign == []


def test_it_is_hardened():
    header = tool("readelf", "-lW", LIBRARY)
    assert "GNU_RELRO" in header
    assert re.search(r"GNU_STACK.* RW ", header)
    assert "NOW" in tool("readelf", "-d", LIBRARY)


def test_the_shims_share_no_weak_symbol():
    weak = []
    for abi in (0, 1):
        (object_file,) = BUILD.glob(f"**/atb_probe_shim_abi{abi}.dir/atb/shim.cpp.o")
        names = [line.split() for line in tool("nm", object_file).splitlines()]
        weak.append({fields[-1] for fields in names if fields[-2] in "WVu"})
    assert not weak[0] & weak[1]


def test_the_original_names_lead_to_the_one_library(tmp_path):
    """For a host that preloads one of them, or both, it is as if it preloaded the library; alone they are refused."""
    names = [LIBRARY.with_name(f"libatb_probe_abi{abi}.so") for abi in (0, 1)]
    assert all(name.stat().st_size < 20_000 for name in names)
    steps = ("pid=77", "nested=2")
    expected = without_pid(run(tmp_path / "plain", *steps).dump)
    assert expected
    for i, library in enumerate([str(names[0]), str(names[1]), f"{names[0]}:{names[1]}:{LIBRARY}"]):
        for abi in (0, 1):
            ran = run(tmp_path / f"{i}_{abi}", *steps, abi=abi, library=library)
            assert (ran.status, ran.stderr) == (0, "")
            assert without_pid(ran.dump) == expected
    alone = tmp_path / names[0].name
    shutil.copy(names[0], alone)
    done = subprocess.run(["/bin/true"], env={"LD_PRELOAD": str(alone)}, capture_output=True, text=True)
    assert "libatb_probe.so: cannot open shared object file" in done.stderr


@pytest.mark.parametrize("command", [["bash", "-c", "echo hi | cat; true"], ["grep", "x", "/dev/null"], ["ls", "/"]])
def test_other_programs_do_not_notice_it(tmp_path, command):
    environment = {**EVERYTHING, "ATB_OUTPUT_DIR": f"{tmp_path}/out/", "PATH": os.environ["PATH"]}
    plain = subprocess.run(command, env=environment, capture_output=True)
    loaded = subprocess.run(command, env={**environment, "LD_PRELOAD": str(LIBRARY)}, capture_output=True)
    assert (loaded.returncode, loaded.stdout, loaded.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert list(tmp_path.iterdir()) == []


def test_a_library_of_the_other_abi_beside_it_stays_silent(tmp_path):
    """Both shims are in one file, so there is no wrong one: each host finds its own symbols."""
    for abi in (0, 1):
        program = script(abi)
        linked = tool("nm", "-D", "--undefined-only", program)
        used = set(re.findall(r"_ZN3atb5Probe\w+", linked))
        assert len(used) > 20 and used <= exported()
