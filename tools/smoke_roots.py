#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Uses the wheels of a folder in bare systems, older and newer than this one, without a compiler and an index.

    tools/smoke_roots.py dist [--suites bullseye,bookworm,trixie] [--roots build/roots]
    tools/smoke_roots.py dist/aarch64 --machine aarch64 --suites bookworm

Each system is Debian's smallest with its own Python, made by debootstrap and kept for the next time: 11 has glibc 2.31
and Python 3.9, 12 has 2.36 and 3.11, 13 has 2.41 and 3.13. Programs of another processor run under qemu-user. Needs
root, own mounts, and for another processor the kernel's binfmt_misc; otherwise nothing is done, and that is said.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from smoke_test import CHECK, INJECTED

from build import build_folder

ROOT = Path(__file__).resolve().parent.parent
HERE = os.uname().machine
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
BINFMT = Path("/proc/sys/fs/binfmt_misc")
PYTHONS = {"bullseye": "3.9", "bookworm": "3.11", "trixie": "3.13"}
PACKAGES = "python3,python3-venv,python3-pip"
# In /smoke of a root: `PATH` of a user, and a home that is not root's.
IN_ROOT = 'mount --bind /proc $0/proc && mount --bind /dev $0/dev && exec chroot $0 /bin/sh -ec "$1"'


def sh(command: list[str], **options: object) -> str:
    """Runs a command; ends this program with what it printed when it fails, gives its output."""
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options)  # type: ignore[call-overload]
    if done.returncode != 0:
        sys.exit(f"smoke: {' '.join(command)[:300]} failed with {done.returncode}\n{done.stdout}")
    return str(done.stdout)


class System:
    """One bare system below a folder."""

    def __init__(self, folder: Path, suite: str, machine: str) -> None:
        self.folder = folder / (suite if machine == HERE else f"{suite}-{machine}")
        self.suite = suite
        self.machine = machine

    def make(self) -> None:
        """Installs it, unless it is there."""
        ready = self.folder / ".ready"
        if ready.exists():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        options = ["--variant=minbase", f"--arch={DEBIAN[self.machine]}", f"--include={PACKAGES}"]
        if self.machine == HERE:
            sh(["debootstrap", *options, self.suite, str(self.folder)])
        else:
            self.unpack(options)
        for tool in ("gcc", "g++", "cc", "clang"):
            assert not (self.folder / "usr" / "bin" / tool).exists(), f"{self.folder} has {tool}"
        ready.touch()

    def unpack(self, options: list[str]) -> None:
        """Its packages without what they run when they are installed, which takes minutes under qemu."""
        sh(["debootstrap", "--foreign", *options, self.suite, str(self.folder)])
        unpack = 'dpkg-deb --fsys-tarfile "$0" | tar -x --keep-directory-symlink -C "$1"'
        for package in sorted(self.folder.glob("var/cache/apt/archives/*.deb")):
            sh(["sh", "-ec", unpack, str(package), str(self.folder)])
            package.unlink()
        shutil.copy(self.folder / "usr" / "share" / "base-passwd" / "passwd.master", self.folder / "etc" / "passwd")

    def run(self, script: str) -> str:
        """Runs a script of sh in it, with its own mounts, which end with it."""
        path = "PATH=/opt/venv/bin:/root/.local/bin:/usr/bin:/bin LANG=C.UTF-8 HOME=/root"
        words = f"cd /smoke; export {path}; {script}"
        return sh(
            ["unshare", "--mount", "sh", "-c", IN_ROOT, str(self.folder), words], env={"PATH": os.environ["PATH"]}
        )


def numpy_wheels(folder: Path, python: str, machine: str) -> None:
    """Fetches the one package that ours needs, for another Python than this one."""
    platforms = [f"manylinux_2_28_{machine}", f"manylinux_2_27_{machine}", f"manylinux2014_{machine}"]
    chosen = [word for platform in platforms for word in ("--platform", platform)]
    sh([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--python-version", python,
        *chosen, "-d", str(folder), "numpy"])  # fmt: skip


def put_hosts(folder: Path, machine: str) -> None:
    """The program that plays the acceleration library, linked so that it loads everywhere, for both string ABIs."""
    build = build_folder(machine)
    compiler = "g++" if machine == HERE else f"{machine}-linux-gnu-g++"
    example = build / "examples" / "atb_host"
    stubs = next(build.glob("glibc-*"))
    for abi in (0, 1):
        objects = sorted((example / "CMakeFiles" / f"atb_host_abi{abi}.dir").rglob("*.o"))
        objects += sorted((build / "CMakeFiles").glob("older_glibc*.dir/src/base/*.o"))
        library = folder / f"abi{abi}" / "libatb.so"
        library.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(example / f"cxx_abi_{abi}" / "lib" / "libatb.so", library)
        static = ["-static-libstdc++", "-static-libgcc", "-Wl,--allow-shlib-undefined"]
        where = [f"-L{stubs}", f"-Wl,-rpath,$ORIGIN/abi{abi}", "-o", f"{folder}/atb_host_abi{abi}"]
        sh([compiler, *map(str, objects), str(library), *static, *where])


# Captures the example twice, once with a planted fault, and asks which operator is wrong.
CAPTURE = """
for abi in 0 1; do
  assay dump -er all -o golden$abi -l error -- ./atb_host_abi$abi > golden$abi.txt
  assay dump -er all -o mine$abi -l error -- ./atb_host_abi$abi --fault wrong_epsilon > mine$abi.txt
  status=0
  assay compare golden$abi mine$abi -o report$abi --rel-l2 0.01 > compare$abi.txt || status=$?
  [ $status = 1 ] || { cat compare$abi.txt; exit 1; }
  grep 'first bad: 2_Prefill_layer/0_RmsNormOperation' compare$abi.txt
done
"""

# Debian's own Python wants to be asked for that by name, since Debian 12.
USER = """
PATH=/root/.local/bin:/usr/bin:/bin
pip=$(python3 -m pip install --help | grep -o -- --break-system-packages | head -1)
python3 -m pip install -q --user $pip --no-index --find-links /smoke/wheels assay-llm
assay --version
for shared in man/man1/assay.1 bash-completion/completions/assay zsh/site-functions/_assay \\
    fish/vendor_completions.d/assay.fish; do
  [ -s /root/.local/share/$shared ] || { echo $shared is missing; exit 1; }
done
python3 -m pip uninstall -q -y $pip assay-llm
[ -z "$(find /root/.local -name '*assay*')" ] || { find /root/.local -name '*assay*'; exit 1; }
"""


def use(system: System, dist: Path) -> None:
    """Installs the wheels there as a user does, and captures, compares, judges."""
    smoke = system.folder / "smoke"
    shutil.rmtree(smoke, ignore_errors=True)
    shutil.rmtree(system.folder / "opt" / "venv", ignore_errors=True)
    wheels = smoke / "wheels"
    wheels.mkdir(parents=True)
    for wheel in dist.glob("*.whl"):
        shutil.copy(wheel, wheels)
    numpy_wheels(wheels, PYTHONS[system.suite], system.machine)
    (smoke / "check.py").write_text(CHECK)
    (smoke / "injected.py").write_text(INJECTED)
    print(f"== Debian {system.suite}, {system.machine}", flush=True)
    print(system.run("python3 --version; ldd --version | head -1").strip())
    system.run("python3 -m venv /opt/venv; pip install -q --no-index --find-links /smoke/wheels assay-msit")
    print(system.run("assay --version --verbose; python check.py; msit llm compare --help | head -1").strip())
    print(system.run("assay dump -o injected -l error -- python injected.py").strip())
    put_hosts(smoke, system.machine)
    print(system.run(CAPTURE).strip())
    system.run(USER)
    print("pip install --user: command, man page and completions are found, nothing is left behind", flush=True)


@contextlib.contextmanager
def emulated(machine: str) -> Iterator[str]:
    """The kernel hands programs of this processor to qemu-user meanwhile. Gives why it cannot; empty when it does."""
    register, registered = BINFMT / "register", BINFMT / f"qemu-{machine}"
    if machine == HERE or registered.exists():
        yield ""
        return
    line = Path(f"/usr/lib/binfmt.d/qemu-{machine}.conf")
    if not line.exists():
        yield f"{line} is missing: tools/setup.sh {machine}"
        return
    was_mounted = register.exists()
    try:
        if not was_mounted:
            sh(["mount", "-t", "binfmt_misc", "none", str(BINFMT)])
        register.write_text(line.read_text().strip())
    except (OSError, SystemExit) as problem:
        yield f"binfmt_misc cannot be used: {problem}"
        return
    try:
        yield ""
    finally:
        registered.write_text("-1")
        if not was_mounted:
            sh(["umount", str(BINFMT)])


def main() -> int:
    """Returns 0 when the wheels work everywhere."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", type=Path)
    parser.add_argument("--suites", default=",".join(PYTHONS))
    parser.add_argument("--machine", choices=sorted(DEBIAN), default=HERE)
    parser.add_argument("--roots", type=Path, default=ROOT / "build" / "roots")
    given = parser.parse_args()
    own_mounts = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
    if os.geteuid() != 0 or own_mounts.returncode != 0:
        print(
            f"smoke: not root with mounts of its own, the wheels were not tried elsewhere {own_mounts.stderr.strip()}"
        )
        return 0
    with emulated(given.machine) as problem:
        if problem:
            print(f"smoke: the wheels of {given.machine} were not tried: {problem}")
            return 0
        for suite in given.suites.split(","):
            system = System(given.roots.resolve(), suite, given.machine)
            system.make()
            use(system, given.dist)
    return 0


if __name__ == "__main__":
    sys.exit(main())
