#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Audits the wheels of a folder, installs them into a fresh virtual environment and uses them as a new user would.

No compiler is on PATH there. What runs inside a host may need nothing but the C library, everything else that, libgcc_s
(which comes with every glibc) and our own library; none of it a version of a symbol that the wheel's platform lacks.

    tools/smoke_test.py dist
    tools/smoke_test.py dist/aarch64      of wheels for another processor the audit alone
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

# What every Linux machine has (the manylinux policy): libc and its parts, the loader. Not libpython.
IN_A_HOST = r"libc|libm|libdl|libpthread|librt|ld-linux.*|linux-vdso"
# Of the offline half: libassay.so and what stands on it.
OFFLINE = rf"{IN_A_HOST}|libgcc_s|libassay"
OFFLINE_FILES = re.compile(r"^(assay|libassay\.so|_core\..*|_opcheck\..*)$")

MOST_BYTES = 15_000_000  # of a wheel
ROOT = Path(__file__).resolve().parent.parent

CHECK = """
import assay, assay._core, assay._capture, assay.reference, numpy as np, tempfile, os
folder = tempfile.mkdtemp()
np.save(os.path.join(folder, "a.npy"), np.arange(6, dtype=np.float32).reshape(2, 3))
record = assay.open(os.path.join(folder, "a.npy")).records[0]
assert record.numpy().sum() == 15, record
assert abs(assay.stats(np.array([3.0, 4.0], np.float32)).l2_norm - 5.0) < 1e-15
product = assay.reference.matmul(np.ones((8, 64), np.float16), np.ones((64, 32), np.float16))
assert product.shape == (8, 32) and (product == 64).all(), product
print("assay", assay.__version__, "reads what numpy wrote")
"""

# A program under `assay dump` in an environment without torch: all probes are there, and none does anything.
INJECTED = """
import ctypes, os, sys
probes = os.environ["LD_PRELOAD"].replace(":", " ").split()
assert sorted(map(os.path.basename, probes)) == ["libatb_probe.so", "libggml_probe.so"], probes
for probe in probes:
    ctypes.CDLL(probe, mode=os.RTLD_NOW | os.RTLD_NOLOAD)  # fails for what is not loaded already
assert any(type(finder).__name__ == "_ImportWatch" for finder in sys.meta_path)
print("assay dump loads its probes")
"""

# Tests of a stranger's project: one that passes, one whose port has a norm 3 % too large.
PROJECT = """
import copy, pytest, torch

@pytest.mark.parametrize("gain", [1.0, 1.03])
def test_port(assay, gain):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.LayerNorm(32), torch.nn.Linear(32, 32))
    port = copy.deepcopy(model).bfloat16()
    port[1].weight.data *= gain
    assay.same(golden=model, mine=lambda x: port(x.bfloat16()), inputs=torch.ones(2, 32))
"""


def run(command: list[str], path: str, **options: object) -> str:
    """Runs a command with PATH set to `path`; prints what it printed when it fails, and gives its output."""
    environment = {"PATH": path, "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8"}
    environment.update({k: v for k, v in os.environ.items() if k.startswith(("PIP_", "SSL_"))})
    done = subprocess.run(command, env=environment, text=True, capture_output=True, **options)  # type: ignore[call-overload]
    if done.returncode != 0:
        sys.exit(f"smoke: {' '.join(command)} failed with {done.returncode}\n{done.stdout}{done.stderr}")
    return str(done.stdout)


def main() -> int:
    """Returns 0 when the installed wheels work."""
    wheels = sorted(str(wheel) for wheel in Path(sys.argv[1]).glob("*.whl"))
    wheel = next(Path(wheel) for wheel in wheels if "assay_llm" in wheel)
    audit(wheel)
    if not wheel.stem.endswith(os.uname().machine):
        return 0
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        binaries = str(environment / "bin")
        python = str(environment / "bin" / "python")
        run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *wheels], binaries)
        for compiler in ("g++", "cc", "clang", "cmake", "ninja"):
            assert shutil.which(compiler, path=binaries) is None, compiler
        print(run(["assay", "--version"], binaries, cwd=folder).strip())
        print(run([python, "-c", CHECK], binaries, cwd=folder).strip())
        print(run(["msit", "llm", "compare", "--help"], binaries, cwd=folder).splitlines()[0])
        print(
            run(
                ["assay", "dump", "-o", "out", "-l", "error", "--", python, "-c", INJECTED], binaries, cwd=folder
            ).strip()
        )
        native = [path for path in environment.rglob("*") if path.is_file() and "assay" in str(path) and is_elf(path)]
        for path in native:
            allowed = OFFLINE if OFFLINE_FILES.match(path.name) else IN_A_HOST
            for library in needed_libraries(path):
                assert re.match(rf"({allowed})\.so", library), f"{path.name} needs {library}"
        print(f"smoke: {len(native)} native files need what every machine has, those of a host the C library alone")
        names = {path.name for path in native}
        assert {"assay", "libassay.so", "libatb_probe.so", "libatb_probe_abi0.so", "libatb_probe_abi1.so"} <= names, (
            names
        )
        assert len(native) >= 8, native
        check_pytest_plugin(environment, Path(folder) / "project")
        check_other_places(Path(sys.argv[1]), python, folder, binaries)
    return 0


def audit(wheel: Path) -> None:
    """What the file itself says: its size, its platform, the stable ABI of its modules, its list of components."""
    size = wheel.stat().st_size
    assert size <= MOST_BYTES, f"{wheel.name} has {size} bytes"
    platform = re.search(r"manylinux_(\d+)_(\d+)_\w+", wheel.name)
    assert platform, f"{wheel.name} says nothing of the glibc that it needs"
    tools = Path(sys.executable).parent
    shown = output([str(tools / "auditwheel"), "show", str(wheel)])
    assert f'platform tag: "{platform[0]}"' in re.sub(r"\s+", " ", shown), shown
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        newest = {path.name: newest_glibc(path) for path in Path(folder).rglob("*") if path.is_file() and is_elf(path)}
        too_new = {name: version for name, version in newest.items() if version > (int(platform[1]), int(platform[2]))}
        assert newest and not too_new, too_new
        named = [path.name for path in Path(folder).rglob("*.so") if str(ROOT).encode() in path.read_bytes()]
        assert not named, f"{named} name the folder that they were built in"
        bill = next(Path(folder).glob("*.dist-info/sboms/*.cdx.json")).read_text()
        assert next(Path(folder).glob("*.dist-info/licenses/third-party/OpenBLAS.txt")).stat().st_size > 0
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill)
    assert problem is None, problem
    components = {part["name"]: part.get("version") for part in json.loads(bill)["components"]}
    assert all(components.values()) and {"OpenBLAS", "zlib", "libstdc++", "nlohmann-json"} <= set(components), (
        components
    )
    if "-abi3-" in wheel.name:
        output([str(tools / "abi3audit"), "--strict", str(wheel)])
    print(f"smoke: {wheel.name}: {size / 1e6:.1f} MB, {len(newest)} native files, {len(components)} components")


def output(command: list[str]) -> str:
    """Runs an auditor; what it says, or the end of this program."""
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        sys.exit(f"smoke: {' '.join(command)} failed with {done.returncode}\n{done.stdout}")
    return done.stdout


def newest_glibc(path: Path) -> tuple[int, ...]:
    """The newest version of glibc's symbols that an ELF file asks for; (0,) for none."""
    text = subprocess.run(["readelf", "-VW", str(path)], check=True, text=True, capture_output=True).stdout
    found = re.findall(r"Name: GLIBC_([0-9.]+)", text)
    return max((tuple(int(part) for part in version.split(".")) for version in found), default=(0,))


def check_pytest_plugin(environment: Path, project: Path) -> None:
    """`pytest --assay` with xdist in a project outside of the repository; torch and pytest are those of this Python."""
    tests = project / "tests"
    tests.mkdir(parents=True)
    (tests / "test_port.py").write_text(PROJECT)
    own = next(environment.glob("lib/python*/site-packages"))
    (own / "behind.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = [str(environment / "bin" / "python"), "-m", "pytest", "-q", "-n", "2", "--assay"]
    done = subprocess.run(command, cwd=project, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    (own / "behind.pth").unlink()
    expected = ("1 failed, 1 passed", "test_port[1.0]: clean: ", "first bad: 1 (LayerNorm", "next: assay compare ")
    if done.returncode != 1 or not all(words in done.stdout for words in expected):
        sys.exit(f"smoke: pytest --assay ended with {done.returncode}\n{done.stdout}")
    print("smoke: pytest --assay with xdist names the planted fault")


def check_other_places(dist: Path, python: str, folder: str, binaries: str) -> None:
    """Where else pip puts the wheels: without an index, and into a folder that is only on PYTHONPATH.

    The old names need the other wheel by its exact version, so that no index can put a stranger's package in its place.
    """
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    folder_only = ["--no-index", "--find-links", str(dist.absolute())]
    run([*pip, "uninstall", "-q", "-y", "assay-llm", "assay-msit"], binaries)
    run([*pip, "install", "-q", *folder_only, "assay-msit"], binaries)
    print(run(["assay", "--version"], binaries, cwd=folder).strip() + ", installed by assay-msit without an index")
    run([*pip, "uninstall", "-q", "-y", "assay-llm", "assay-msit"], binaries)
    target = Path(folder) / "elsewhere"
    run([*pip, "install", "-q", "--no-deps", *folder_only, "--target", str(target), "assay-llm"], binaries)
    run(["env", f"PYTHONPATH={target}", python, "-c", CHECK], f"{binaries}:/usr/bin:/bin", cwd=folder)
    print(run([str(target / "bin" / "assay"), "--version"], binaries, cwd=folder).strip() + ", in a folder of its own")


def is_elf(path: Path) -> bool:
    """True for a program or shared library."""
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def needed_libraries(path: Path) -> list[str]:
    """The NEEDED entries of an ELF file, as readelf prints them."""
    text = subprocess.run(["readelf", "-d", str(path)], check=True, text=True, capture_output=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", text)


if __name__ == "__main__":
    sys.exit(main())
