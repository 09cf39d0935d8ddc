# SPDX-License-Identifier: Apache-2.0
"""Under `assay` every time is UTC, wherever the machine is: names of files, manifests, reports.

The old names keep theirs. The commands run 9:45 east of UTC, a zone that none of them means; Python's datetime is the
oracle.
"""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
import torch
from assay_command import run
from opcheck_dump import run_folder_of, write_operation
from test_dump import environment_of
from test_logitscmp import write as write_logits
from test_overflow import write as write_ge_dump

import assay

LOCAL = timezone(timedelta(hours=9, minutes=45))
CHINA = timezone(timedelta(hours=8))
STAMP = re.compile(r"\d{8}T?_?\d{6}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@pytest.fixture(autouse=True)
def far_east(monkeypatch):
    monkeypatch.setenv("TZ", "XYZ-9:45")


def is_now(text: str, zone: timezone) -> bool:
    """Whether the time in a text is the present one of a zone."""
    found = STAMP.search(text)
    assert found, text
    moment = datetime.strptime(re.sub(r"\D", "", found.group()), "%Y%m%d%H%M%S").replace(tzinfo=zone)
    return abs(datetime.now(timezone.utc) - moment) < timedelta(minutes=2)


def the_name(folder: Path, pattern: str) -> str:
    (path,) = folder.glob(pattern)
    return path.name


@pytest.mark.parametrize(("name", "zone"), [("assay", timezone.utc), ("msit", LOCAL)])
def test_dump(tmp_path, name, zone):
    assert is_now(environment_of(tmp_path, name=name)["ATB_TIMESTAMP"], zone)


def test_dump_names_its_folder_itself(tmp_path):
    assert run("dump", "--host", "atb", "--", "/bin/true", cwd=tmp_path).returncode == 0
    assert is_now(the_name(tmp_path, "assay_dump_*"), timezone.utc)


@pytest.mark.parametrize(("name", "zone"), [("assay", timezone.utc), ("msit", CHINA), ("ait", CHINA)])
def test_logits(tmp_path, name, zone):
    for side in ("golden", "mine"):
        write_logits(tmp_path / side, logits_x_0_0=torch.ones(1, 2))
    words = ["logitscmp", "-gp", tmp_path / "golden", "-mp", tmp_path / "mine"]
    run(*([] if name == "assay" else ["llm"]), *words, name=name, cwd=tmp_path)
    assert is_now(the_name(tmp_path / "output", "logits_cmp_res_*.csv"), zone)


@pytest.mark.parametrize(("name", "zone"), [("assay", timezone.utc), ("msit", CHINA)])
def test_bad_cases(tmp_path, name, zone):
    for side, verdict in (("golden", "True"), ("mine", "False")):
        (tmp_path / f"{side}.csv").write_text(
            f"key,queries,input_token_ids,output_token_ids,passed\n1,q,1,2,{verdict}\n"
        )
    words = ["bcanalyze", "-gp", "golden.csv", "-mp", "mine.csv"]
    done = run(*([] if name == "assay" else ["llm"]), *words, name=name, cwd=tmp_path)
    assert is_now(the_name(tmp_path, "msit_bad_case/analyzer/*.csv"), zone), done.stderr


def test_reports(tmp_path):
    write_ge_dump(tmp_path / "ge" / "1", "Add.Add_1.12.3.1760000000123400", np.float32([1, np.inf]))
    run("overflow", "-d", tmp_path / "ge", "-out", tmp_path / "overflow")
    assert is_now(the_name(tmp_path / "overflow", "overflow_summary_*.txt"), timezone.utc)
    np.save(tmp_path / "a.npy", np.ones(3))
    run("compare", tmp_path / "a.npy", tmp_path / "a.npy", "-o", tmp_path / "compare")
    assert is_now(the_name(tmp_path / "compare", "msit_cmp_report_*"), timezone.utc)
    place = run_folder_of(tmp_path / "atb")
    write_operation(
        place, "0_SortOperation", {"num": [1]}, [np.ones((1, 4), np.float16)], [np.ones((1, 1), np.float16)]
    )
    run("opcheck", place, "-o", tmp_path / "opcheck")
    assert is_now(the_name(tmp_path / "opcheck", "opcheck_result_*"), timezone.utc)


def test_manifests(tmp_path):
    model = torch.nn.Linear(2, 2)
    with assay.capture(model, tmp_path / "run"):
        model(torch.ones(1, 2))
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert is_now(manifest["started"], timezone.utc) and is_now(manifest["finished"], timezone.utc)
