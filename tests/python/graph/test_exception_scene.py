# SPDX-License-Identifier: Apache-2.0
"""Exception scenes: the operands of the operator that raised are on disk when the host sees the error."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from dump_reading import read_dump

from assay.torch.graph import CompilerConfig, get_backend
from assay.torch.graph._exception import root_folder


@torch.library.custom_op("assay_exception_test::fragile", mutates_args=())
def fragile(x: torch.Tensor, limit: float) -> torch.Tensor:
    if float(x.max()) > limit:
        raise RuntimeError(f"value {float(x.max())} above {limit}")
    return x.clone()


@fragile.register_fake
def _(x: torch.Tensor, limit: float) -> torch.Tensor:
    return torch.empty_like(x)


def model(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.assay_exception_test.fragile(x * 2, 5.0) + 1


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("ASCEND_DUMP_PATH", "ASCEND_WORK_PATH", "ASCEND_DUMP_SCENE", "NPU_COLLECT_PATH"):
        monkeypatch.delenv(name, raising=False)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def scene_backend(folder: Path, scene: str, engine: str = "interpreter", **more: str) -> Any:
    path = folder / "dump.json"
    path.write_text(json.dumps({"dump": {"dump_scene": scene, **more}}))
    config = CompilerConfig()
    config.dump_config.dump_config_path = str(path)
    config.execution.engine = engine
    return get_backend(config)


def run_into_the_error(backend: Any) -> None:
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        assert compiled(torch.tensor([1.0, 2.0])).tolist() == [3.0, 5.0]
        with pytest.raises(RuntimeError, match=r"value 8\.0 above 5\.0"):
            compiled(torch.tensor([1.0, 4.0]))
    backend.close()


@pytest.mark.parametrize("scene", ["aic_err_brief_dump", "lite_exception"])
def test_brief_scene_leaves_the_operands(tmp_path: Path, scene: str) -> None:
    run_into_the_error(scene_backend(tmp_path, scene, dump_path=str(tmp_path)))
    (path,) = (tmp_path / "extra-info" / "data-dump" / "0").iterdir()
    kind, stream, task, time = path.name.split(".")
    assert (kind, stream) == ("exception_info", "0")
    assert int(task) > 0
    assert len(time) == 16
    assert stat.S_IMODE(path.stat().st_mode) == 0o400
    read = read_dump(path)
    assert "ragile" in read.name
    assert read.inputs[0].tensor.tolist() == [2.0, 8.0]
    assert read.outputs == []
    assert b"RuntimeError: value 8.0 above 5.0" in path.read_bytes()  # dfx_message


@pytest.mark.slow
def test_operator_that_fails_between_fused_groups(tmp_path: Path) -> None:
    run_into_the_error(scene_backend(tmp_path, "aic_err_brief_dump", "partition", dump_path=str(tmp_path)))
    (path,) = (tmp_path / "extra-info" / "data-dump" / "0").iterdir()
    assert "ragile" in read_dump(path).name
    assert read_dump(path).inputs[0].tensor.tolist() == [2.0, 8.0]


def test_norm_scene_adds_attributes_and_the_type(tmp_path: Path) -> None:
    run_into_the_error(scene_backend(tmp_path, "aic_err_norm_dump", dump_path=str(tmp_path)))
    (path,) = (tmp_path / "extra-info" / "data-dump" / "0").iterdir()
    kind, stream, _, core, core_id, _ = path.name.split(".")
    assert "ragile" in kind
    assert (stream, core, core_id) == ("0", "0", "0")
    assert b"limit" in path.read_bytes()


def test_detail_scene_adds_the_call_stack(tmp_path: Path) -> None:
    run_into_the_error(scene_backend(tmp_path, "aic_err_detail_dump", dump_path=str(tmp_path)))
    folder = tmp_path / "extra-info" / "data-dump" / "0"
    stack = next(folder.glob("call_stack.custom.*")).read_text()
    assert "run_into_the_error" in stack
    assert "value 8.0 above 5.0" in stack
    assert next(folder.glob("exception_info.*")).name.rpartition(".")[2] in next(folder.glob("call*")).name


def test_environment_comes_before_the_configured_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_WORK_PATH", str(tmp_path / "work" / "new"))
    run_into_the_error(scene_backend(tmp_path, "aic_err_brief_dump", dump_path=str(tmp_path)))
    assert len(list((tmp_path / "work" / "new" / "extra-info" / "data-dump" / "0").iterdir())) == 1
    assert not (tmp_path / "extra-info").exists()


def test_precedence_of_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dump, work, file = str(tmp_path / "dump"), str(tmp_path / "work"), tmp_path / "file"
    file.write_text("")
    assert root_folder("/configured", {"ASCEND_DUMP_PATH": dump, "ASCEND_WORK_PATH": work}) == dump
    assert root_folder("/configured", {"ASCEND_WORK_PATH": work}) == work
    assert root_folder("/configured", {}) == "/configured"
    assert root_folder("", {}) == os.getcwd()
    # A folder that cannot be made is skipped, aloud.
    with pytest.warns(UserWarning, match="ASCEND_DUMP_PATH"):
        assert root_folder("", {"ASCEND_DUMP_PATH": str(file / "below"), "ASCEND_WORK_PATH": work}) == work


def test_scene_of_the_environment_needs_no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_DUMP_SCENE", "aic_err_brief_dump")
    monkeypatch.setenv("ASCEND_DUMP_PATH", str(tmp_path / "dumps"))
    monkeypatch.chdir(tmp_path)
    run_into_the_error(get_backend(CompilerConfig()))
    assert len(list((tmp_path / "dumps" / "extra-info" / "data-dump" / "0").iterdir())) == 1


def test_error_goes_on_when_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = scene_backend(tmp_path, "aic_err_brief_dump", dump_path=str(tmp_path))
    (tmp_path / "extra-info").write_text("a file where the folder should be")
    run_into_the_error(backend)
