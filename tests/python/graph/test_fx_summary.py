# SPDX-License-Identifier: Apache-2.0
"""config.debug.fx_summary: the table of a graph's operators, counted here by hand."""

from __future__ import annotations

import csv

import pytest
import torch

from assay.torch.graph import CompilerConfig, get_backend
from assay.torch.graph._fx_summary import HEADER


def net(x):
    for _ in range(3):
        x = (x + 1).sin()
    return torch.special.erfcx(x)


@pytest.fixture
def config(tmp_path):
    torch._dynamo.reset()
    made = CompilerConfig()
    made.debug.fx_summary.type = "csv"
    made.debug.fx_summary.path = str(tmp_path)
    return made


def rows_of(folder):
    (path,) = folder.glob("summary_rank_0_pid_*_ts_*.csv")
    text = path.read_bytes()
    assert text.startswith(b"\xef\xbb\xbf")
    header, *rows = csv.reader(text.decode("utf-8-sig").splitlines(keepends=True))
    assert tuple(header) == HEADER
    return {row[0]: row[1:] for row in rows}


def test_operators_are_counted_and_the_model_runs_eagerly(config, tmp_path):
    x = torch.rand(2, 3)
    assert torch.equal(torch.compile(net, backend=get_backend(config))(x), net(x))
    rows = rows_of(tmp_path)
    assert rows["aten.add.Tensor"] == ["aten", "known as Add", "3", "3x float32[2, 3], 1", "3x float32[2, 3]"]
    assert rows["aten.sin.default"][1:3] == ["known as Sin", "3"]
    assert rows["aten.special_erfcx.default"][1:3] == ["no counterpart known", "1"]


def test_without_skip_compile_the_dump_goes_on(config, tmp_path):
    config.debug.fx_summary.skip_compile = False
    config.dump_config.enable_dump = True
    config.dump_config.dump_path = str(tmp_path)
    backend = get_backend(config)
    torch.compile(net, backend=backend)(torch.rand(2))
    backend.close()
    assert rows_of(tmp_path)
    assert len(list(tmp_path.glob("worldsize1_global_rank0/*/0/graph_*/*/0/Sin.*"))) == 3


def test_with_skip_compile_nothing_is_dumped(config, tmp_path):
    config.dump_config.enable_dump = True
    config.dump_config.dump_path = str(tmp_path)
    backend = get_backend(config)
    torch.compile(net, backend=backend)(torch.rand(2))
    backend.close()
    assert rows_of(tmp_path)
    assert not list(tmp_path.glob("worldsize*/*/0"))


def test_other_modes_write_none(config, tmp_path):
    config.mode = "reduce-overhead"
    torch.compile(net, backend=get_backend(config))(torch.rand(2))
    assert not list(tmp_path.glob("summary*"))


def test_an_unwritable_folder_is_no_reason_to_fail(config, tmp_path, caplog):
    folder = tmp_path / "leaves"
    folder.mkdir()
    config.debug.fx_summary.path = str(folder)
    backend = get_backend(config)
    folder.rmdir()
    x = torch.rand(2)
    assert torch.equal(torch.compile(net, backend=backend)(x), net(x))
    assert "cannot be written" in caplog.text
