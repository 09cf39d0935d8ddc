# SPDX-License-Identifier: Apache-2.0
"""Runs the scripted host with the probe preloaded, and reads what it left."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ASSAY_BUILD_DIR", ROOT / "build" / "release")).resolve()
LIBRARY = BUILD / "lib" / "assay" / "libatb_probe.so"

# Everything on, all of it: what `assay dump` sets for `--type tensor -er all -stp 2 -time 3`.
EVERYTHING = {
    "ATB_DUMP_TYPE": "tensor",
    "ATB_SAVE_TENSOR": "1",
    "ATB_SAVE_TENSOR_TIME": "1",
    "ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER": "1",
    "ATB_SAVE_TENSOR_RANGE": "all",
    "ATB_SAVE_TENSOR_PART": "2",
    "ATB_SAVE_CHILD": "1",
    "ASSAY_PROBE_DISK_RESERVE": "0",
}


# Set by tests that hold for both layouts: {"ASSAY_PROBE_LAYOUT": "native"}.
LAYOUT: dict[str, str] = {}


def record(dtype: str, dims: str, payload: bytes) -> bytes:
    """A tensor file as docs/formats/atb-bin.md draws it."""
    lines = ["$Version=1.0", "$Object.Count=1", f"$Object.Length={len(payload)}", "format=2", f"dtype={dtype}"]
    lines += [f"dims={dims}", f"$Object.data=0,{len(payload)}", "$End=1"]
    return "".join(line + "\n" for line in lines).encode() + payload


HEADER = record("1", "2,3", bytes(12))[:-12]


def script(abi: int = 1) -> Path:
    program = BUILD / "tests" / "capture" / f"cxx_abi_{abi}" / "probe_script"
    assert LIBRARY.exists(), f"no probe in {BUILD}; `make install` builds it, or set ASSAY_BUILD_DIR"
    assert program.exists(), f"no probe_script in {BUILD}; it is built with ASSAY_BUILD_TESTS=ON"
    return program


@dataclass
class Ran:
    status: int
    stdout: str
    stderr: str
    out: Path  # ATB_OUTPUT_DIR

    @property
    def dump(self) -> Path:
        return self.out / "msit_dump"

    def summaries(self) -> list[dict]:
        return [json.loads(path.read_text()) for path in sorted(self.dump.glob("probe_summary_*.json"))]

    @property
    def summary(self) -> dict:
        found = self.summaries()
        assert len(found) == 1, found
        return found[0]

    def files(self, kind: str = "tensors") -> dict[str, bytes]:
        """Name below msit_dump/<kind> -> content; links are followed. What is in the native layout, as the files."""
        base = self.dump / kind
        if any(base.rglob("records.jsonl")):
            out = self.out / "files"
            subprocess.run(
                [BUILD / "bin" / "assay", "convert", self.dump, out, "--to", "atb-tree", "--force"], check=True
            )
            base = out / kind
        return {str(path.relative_to(base)): path.read_bytes() for path in sorted(base.rglob("*")) if path.is_file()}


def run(
    out: Path, *steps: str, abi: int = 1, library: str = str(LIBRARY), cwd: Optional[Path] = None, **variables: str
) -> Ran:
    """Runs the host in an environment of exactly `variables` over EVERYTHING; "-" removes one."""
    out.mkdir(parents=True, exist_ok=True)
    environment = {**EVERYTHING, "ATB_OUTPUT_DIR": f"{out}/", "PATH": os.environ["PATH"], **LAYOUT, **variables}
    environment = {name: value for name, value in environment.items() if value != "-"}
    environment["LD_PRELOAD"] = library
    done = subprocess.run(
        [script(abi), *steps], env=environment, cwd=cwd, capture_output=True, text=True, timeout=120, errors="replace"
    )
    return Ran(done.returncode, done.stdout, done.stderr, out)


def without_pid(root: Path) -> dict[str, bytes]:
    """All files below `root`, with process numbers and the folder's own name taken out."""
    found = {}
    for path in sorted(root.rglob("*")):
        if not path.is_file() or path.name.startswith("probe_summary"):
            continue
        name = re.sub(r"/\d{2,}/", "/PID/", "/" + str(path.relative_to(root)))
        found[name] = re.sub(rb"/\d{2,}/", b"/PID/", path.read_bytes().replace(str(root).encode(), b"ROOT"))
    return found


def status_page_counters(page: bytes) -> dict[str, int]:
    """The first counters of probe_status_<pid>; offsets from docs/formats/probe-summary.md."""
    assert page[:8] == b"ASAYPRB1"
    names = ["seen", "accepted", "written", "linked", "failed", "dropped"]
    return {name: int.from_bytes(page[32 + 8 * i : 40 + 8 * i], "little") for i, name in enumerate(names)}
