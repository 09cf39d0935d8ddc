# SPDX-License-Identifier: Apache-2.0
"""DumpConfig and seed_all: parameters, defaults, validation, the one instance of a process."""

import argparse
import logging
import os
import random
import subprocess
import sys
import warnings

import pytest

torch = pytest.importorskip("torch")

from assay.torch.strict import DumpConfig, reset, seed_all  # noqa: E402
from assay.torch.strict.config import name_pattern  # noqa: E402
from assay.torch.strict.paths import dump_stamp  # noqa: E402


@pytest.fixture(autouse=True)
def fresh_process_state(monkeypatch):
    for name in ("ATB_TIMESTAMP", "MSIT_DUMP_TIMESTAMP", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "RAW_INPUT_PATH"):
        monkeypatch.delenv(name, raising=False)
    reset()
    yield
    reset()


def test_defaults():
    config = DumpConfig()
    assert type(config).__name__ == "DumpConfig"
    assert config.dump_path == "./" and config.token_range == [0] and config.tensor_part == 2
    assert config.module_list == [] and config.api_list == [] and config.mode == ["module"]
    assert config.dump_statistics_mode == 0 and config.device_id is None and config.dump_last_logits is False
    assert (config.dump_dir, config.token_id, config.dump_flag) == ("", 0, True)
    assert config.is_dump_cur_device is True and config.last_logits is None and config.module_ids == {}


def test_all_thirteen_positions(tmp_path):
    config = DumpConfig(
        str(tmp_path), [3], True, [torch.nn.Linear], [torch.abs], 1, 5, 2, True, "api", True, "root.a*", None
    )
    assert config.dump_path == str(tmp_path) and config.token_range == [3] and config.analyze is True
    assert config.module_list == [torch.nn.Linear] and config.api_list == [torch.abs] and config.tensor_part == 1
    assert config.device_id == 5 and config.dump_statistics_mode == 2 and config.dump_last_logits is True
    assert config.mode == ["api"] and config.dump_weight is True and config.layer_name == "root.a*"


def test_empty_token_range_means_the_first_token():
    assert DumpConfig(token_range=[]).token_range == [0]


def test_a_list_in_third_position_is_the_module_list_of_old_callers(tmp_path):
    with pytest.warns(DeprecationWarning, match="module_list"):
        config = DumpConfig(str(tmp_path), [1], [torch.nn.Linear], 0)
    assert config.module_list == [torch.nn.Linear] and config.tensor_part == 0 and config.analyze is False


def test_a_bool_in_third_position_is_analyze(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert DumpConfig(str(tmp_path), [1], True).analyze is True


@pytest.mark.parametrize(
    "wrong",
    [
        {"token_range": (0, 1)},
        {"token_range": range(3)},
        {"token_range": 3},
        {"module_list": torch.nn.Linear},
        {"tensor_part": 3},
        {"tensor_part": "2"},
        {"tensor_part": 1.0},
        {"device_id": "0"},
        {"dump_statistics_mode": 3},
    ],
    ids=str,
)
def test_invalid_arguments_raise_one_value_error_and_leave_nothing_behind(wrong, caplog):
    with pytest.raises(ValueError) as caught:
        DumpConfig(**wrong)
    assert type(caught.value) is ValueError and str(caught.value) == "Invalid args of DumpConfig."
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert DumpConfig(token_range=[7]).token_range == [7]


@pytest.mark.parametrize(
    "good", [{"tensor_part": True}, {"tensor_part": 0}, {"device_id": 0}, {"api_list": "abs"}], ids=str
)
def test_arguments_that_pass(good):
    DumpConfig(**good)


@pytest.mark.parametrize("path", ["/tmp/a b", "/tmp/a*", "/tmp/\u00e9", "/tmp/a:b", "/tmp/" + "a" * 256, "/a" * 2049])
def test_illegal_paths(path):
    with pytest.raises(argparse.ArgumentTypeError, match="output path"):
        DumpConfig(path)


def test_symbolic_links_are_refused_unless_allowed(tmp_path, monkeypatch):
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(argparse.ArgumentTypeError, match="is illegal"):
        DumpConfig(str(link))
    monkeypatch.setenv("RAW_INPUT_PATH", f"/elsewhere|{link}")
    assert DumpConfig(str(link)).dump_path == str(link)


def test_a_layer_name_that_is_no_string():
    with pytest.raises(AttributeError):
        DumpConfig(layer_name=3)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("root.model.layers.3.*", "root.model.layers.3.mlp", True),
        ("root.model.layers.3.*", "root.model.layers.3.mlp.up_proj", True),
        ("root.model.layers.3.*", "root.model.layers.3.self_attn.softmax", True),
        ("root.model.layers.3.*", "root.model.layers.3", False),
        ("root.model.layers.3.*", "root.model.layers.30.mlp", False),
        ("root.model.layers.3*", "rootXmodel.layers.3", False),
        ("r?ot", "root", False),
        ("root.(a|b)[c]{1}+^$\\", "root.(a|b)[c]{1}+^$\\", True),
        ("", "root", False),
        (None, "anything", True),
    ],
)
def test_layer_name_patterns(pattern, name, matches):
    assert (name_pattern(pattern).match(name) is not None) is matches


def test_second_call_with_the_same_arguments_is_silent_and_with_others_warns(tmp_path, caplog):
    config = DumpConfig(dump_path=str(tmp_path), token_range=[1])
    assert DumpConfig(str(tmp_path), [1]) is config and not caplog.records
    assert DumpConfig(str(tmp_path), [2]) is config
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    DumpConfig.reset()
    assert DumpConfig(str(tmp_path), [2]).token_range == [2]


def test_unknown_arguments_are_type_errors():
    with pytest.raises(TypeError):
        DumpConfig(token_rang=[0])
    with pytest.raises(TypeError):
        DumpConfig("./", dump_path="./")


@pytest.fixture
def determinism_restored(monkeypatch):
    for name in [
        "LCCL_DETERMINISTIC",
        "HCCL_DETERMINISTIC",
        "ATB_MATMUL_SHUFFLE_K_ENABLE",
        "ATB_LLM_LCOC_ENABLE",
        "PYTHONHASHSEED",
        "CUBLAS_WORKSPACE_CONFIG",
    ]:
        monkeypatch.setenv(name, "before")
        monkeypatch.delenv(name)
    yield
    torch.use_deterministic_algorithms(False)


def test_seed_all(determinism_restored, caplog):
    import numpy

    caplog.set_level(logging.INFO)
    assert seed_all() is None
    first = random.random(), numpy.random.rand(), torch.rand(1).item()
    expected = {
        "LCCL_DETERMINISTIC": "1",
        "HCCL_DETERMINISTIC": "true",
        "ATB_MATMUL_SHUFFLE_K_ENABLE": "0",
        "ATB_LLM_LCOC_ENABLE": "0",
        "PYTHONHASHSEED": "2024",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }
    assert {name: os.environ[name] for name in expected} == expected
    assert torch.are_deterministic_algorithms_enabled()
    assert [record.levelname for record in caplog.records] == ["INFO"]
    seed_all(2024)
    assert first == (random.random(), numpy.random.rand(), torch.rand(1).item())
    random.seed(2024)
    assert first[0] == random.random()


@pytest.mark.parametrize("seed", ["7", 1.5, None])
def test_seed_all_wants_an_int(seed):
    with pytest.raises(argparse.ArgumentTypeError, match=f"^{seed} is not an int.$"):
        seed_all(seed)


def test_numpy_bounds_the_seed(determinism_restored):
    with pytest.raises(ValueError):
        seed_all(2**32)


def test_config_applies_the_seed_after_validation(determinism_restored):
    with pytest.raises(ValueError):
        DumpConfig(tensor_part=9, seed=1)
    assert not torch.are_deterministic_algorithms_enabled()
    DumpConfig(seed=1)
    assert torch.are_deterministic_algorithms_enabled() and os.environ["PYTHONHASHSEED"] == "1"


@pytest.mark.parametrize("name", ["ATB_TIMESTAMP", "MSIT_DUMP_TIMESTAMP"])
def test_stamp_from_the_environment(name, monkeypatch, tmp_path):
    monkeypatch.setenv(name, "20250220_083154")
    assert dump_stamp(str(tmp_path)) == "20250220_083154" == os.environ["ATB_TIMESTAMP"]


def test_ranks_of_one_launch_agree_on_the_stamp_without_collectives(tmp_path):
    """Ranks that start in different seconds; each says its stamp, all are the same. Another launch has its own."""
    code = (
        "import sys, time; from assay.torch.strict import paths;"
        "now = time.time(); paths.time.gmtime = lambda: time.localtime(now + 10 * int(sys.argv[2]));"
        "sys.stdout.write(paths.dump_stamp(sys.argv[1]) + chr(10))"
    )
    environment = dict(os.environ, LOCAL_WORLD_SIZE="4", WORLD_SIZE="4", MASTER_ADDR="localhost", MASTER_PORT="29500")
    environment.pop("ATB_TIMESTAMP", None)

    def launch(launcher):
        script = " & ".join(f'"{sys.executable}" -c "{code}" "{tmp_path}" {rank}' for rank in range(4)) + " & wait"
        return subprocess.run(
            [*launcher, script], env=environment, capture_output=True, text=True, check=True
        ).stdout.split()

    first = launch(["bash", "-c"])
    assert len(first) == 4 and len(set(first)) == 1
    environment["MASTER_PORT"] = "29501"
    assert len(set(launch(["bash", "-c"]))) == 1
    assert len([name for name in os.listdir(tmp_path) if name.startswith(".msit_dump_stamp_")]) == 2
